// SPDX-License-Identifier: GPL-2.0
/*
 * Automatic homes of clusters: the choice
 *
 * A pure function of demands, capacities, distances and the homes until now. No
 * kernel state, no allocation, integers only, so that KUnit can ask it anything.
 * kernel/cgroup/cosched.c collects what goes in and makes homes of what comes out.
 *
 * Model
 * =====
 *
 * A home consists of whole LLC domains.
 *
 * The demand of a cluster is the mean of the decayed numbers of its tasks that run and
 * that are runnable. The first says nothing of what waits. The second says too much
 * where others are in the way of tasks that sleep often: a cluster would leave behind
 * it a domain that looks empty, whichever it comes from.
 *
 * How large: domains are added until they hold what the cluster is due,
 *
 *	due = demand * min(5/4, capacity / load)
 *
 * capacity and load being those of all domains that it may use. The quarter is
 * headroom; where there is none to give, everyone has its share. A domain of
 * which less than half would be used is not added: rule 4 sends the little there
 * is too much to where there is room, and threads in one domain share more than
 * in two. Nor is one that costs more than it saves, as it is small, far or full of others:
 * whoever had it would give it for any other by an exchange, or move for the distance, and have
 * it again at the next look. This comparison is of the cost below, but with headroom for
 * everyone: without, a large cluster would keep out of a domain that others just fill.
 * A domain is given back when less than a quarter of it is used. The last step,
 * from one domain to all there are, is the one that ends all locality, and is
 * made for a cluster only that has the machine nearly for itself (7/8 of it are
 * due to it) and more tasks than CPUs. 8 threads on two domains of 4 CPUs that
 * share data are 7 % better off with a home of one, and those that share none
 * lose 1 %. Nor by one look: of two that begin together one is the first, and a look in the
 * milliseconds between finds the machine its own. The other had to do with what it left of its
 * domain until the next look, and two instances of hackbench took 7 % longer. Who
 * waits for the second look and overruns the machine has all of it before: see "Overrun" in
 * kernel/sched/cosched.c.
 *
 * A cluster whose tasks run briefly, wake up together and wait for each other, although they
 * would lose nothing elsewhere ("Bursts" in kernel/sched/cosched.c), or that overruns the
 * machine at two looks in a row, is due 16 times its demand, as far as others leave that, and all
 * there is if they leave 3/4 of it. Where it begins is chosen without, so that what it demands on
 * average is in the best place.
 *
 * Where: the set with the least cost,
 *
 *	cost = load of others / capacity		a queue that one would join
 *	     + (mean distance within - 10) / 40		threads that share
 *	     + mean distance to memory / 2		see cosched_auto::far
 *	     + (due - capacity) / capacity, if positive
 *	     + 1/16 for each domain but the first	few large ones before many
 *
 * where 1 is what one runnable task more per CPU costs. A cluster moves for a clear
 * gain only: 3/16, or a sixteenth of a cost that is large. Else it keeps its home, grown
 * by the nearest domain or shrunk by the farthest, as long as load does not outweigh
 * distance. Without that, clusters would follow each other's noise. Nor is what it has left
 * for a load of others of whom none is runnable there: it may be an error (see
 * cosched_survey_load()), and if it is not, somebody is at the next look. At the border, where
 * it has too little and less than half of a domain more would be used, it does not move
 * now to grow soon: if that costs no more, it grows instead.
 *
 * Who gains nothing alone may with others. A large cluster (it has several domains, or too
 * little) that stays may have smaller ones of one domain make room for it: it takes what it would
 * grow to if they were not there, each of them that likes to one of the domains that it leaves,
 * where the cost of all, each by its tasks, falls by the margin, and then none of them has a
 * reason to leave. So clusters of 4, 2 and 4 threads on domains of 4, 2 and 4 CPUs have one each
 * in the end, wherever they start, and two of 4 threads leave a domain of 8 CPUs to 8 threads
 * that have two of 4. One domain is cleared at a time: more is not tried.
 *
 * Example: on four domains of 4 CPUs, clusters of 8, 4 and 4 threads that always
 * run are due just that: 16/16. Let their homes be domains 0, 0 and 1. The first
 * grows, from 0 to 0 and 2, where it costs 4/8 for the second's load and 1/16. On 2
 * and 3 it costs 1/16, and moves there; the others stay.
 *
 * Who has no home until now may begin anywhere, as one that moves does, but what sleepers left in
 * averages does not count for it: the load of less than half a domain of which nobody is runnable.
 * Domains that are equal then differ by where files are, which is a distance to memory as well
 * (cosched_survey_files() in kernel/cgroup/cosched.c). Tasks that run already are a home until now
 * (cosched_survey_running()).
 *
 * At a look for the sake of a new one, between two that count, the others stay: they have nothing
 * to go by but what just then is there.
 *
 * All clusters start at their homes until now, then each looks once, in order of
 * demand by powers of two, larger first, oldest first: the order has to stand still
 * while demands vary. Batch clusters come last, and what others are due and what it costs
 * them is as if there were none.
 *
 * What holds (cosched_auto_test.c)
 * ================================
 *
 * - The same input has the same output. With other names for domains, homes are as
 *   large, and domains as evenly loaded.
 * - A cluster that may use a domain has a home of one at least.
 * - Repeated on its own result the choice comes to rest, but for one of some 100,000
 *   machines where memory far away does not follow. Then no cluster of one
 *   domain could change to another where the load of others is less by more than the
 *   margin. So, with equal domains, none is loaded more than the mean plus the
 *   margin plus the smallest cluster on it: what whole clusters on whole domains
 *   cannot avoid is one cluster, the rest is the margin.
 * - A home that the cost of others' load is below the margin of does not move, other
 *   than to make room for a larger one's, or one's of its size, or where smaller ones do.
 * - Where the homes of others are does not depend on batch clusters.
 */
#include <linux/bitops.h>
#include <linux/list_sort.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/topology.h>

#include "cosched_auto.h"

/*
 * How many CPUs a cluster of which tasks wake up together needs then, for each one that it
 * needs on average: they run for a sixteenth of the time between.
 */
#define AUTO_BURST		16

/* What a task waiting on each CPU costs, or a whole CPU. */
#define ONE			SCHED_CAPACITY_SCALE

/*
 * The gain to move for: less than one task makes on a domain of four CPUs, more than
 * demands differ by where they are measured; and a sixteenth of a large cost. With an eighth 13
 * clusters of a task each stayed on four CPUs, and 11 on the next four.
 */
#define AUTO_MARGIN		(ONE * 3 / 16)
#define AUTO_MARGIN_SHIFT	4

/* At most so many make room for one: what is in its way is hardly more than it demands. */
#define AUTO_WAY		8

/* Even a cluster of sleepers counts a little: many of them spread from the start. */
#define AUTO_DEMAND_MIN		(ONE / 256)

/* Domains on their way to become a home. */
struct auto_set {
	u64	domains;
	u64	load;			/* of others */
	u32	room, capacity;
	u32	pairs;			/* sum of distances between two of them */
	u32	nr;
	u16	near[COSCHED_AUTO_DOMAINS];	/* distance to all in the set; where nr > 1 */
};

/* What a choice of one cluster goes by. */
struct auto_look {
	const struct cosched_machine	*m;
	const u32			*room, *far;
	u64				allowed;
	u32				demand, due, total;
	u32				burst;	/* due where its tasks wake up together, or 0 */
	bool				bursts;	/* which is what .due is now */
	bool				alone;	/* cosched_auto::alone: it did at the look before */
	u32				cost;	/* of a large one that stays at its home, or 0 */
};

static u32 auto_ratio(u64 load, u32 capacity)
{
	return capacity ? min_t(u64, div_u64(load * ONE, capacity), U32_MAX / 8) : 0;
}

static u64 auto_all_domains(const struct cosched_machine *m)
{
	return m->nr < 64 ? BIT_ULL(m->nr) - 1 : U64_MAX;
}

static u32 auto_near(const struct auto_look *l, const struct auto_set *s, int d)
{
	return s->nr > 1 ? s->near[d] : l->m->distance[__ffs64(s->domains)][d];
}

static void auto_add(const struct auto_look *l, struct auto_set *s, int d)
{
	unsigned int i;

	if (s->nr) {
		s->pairs += auto_near(l, s, d);
		for (i = 0; i < l->m->nr; i++)
			s->near[i] = auto_near(l, s, i) + l->m->distance[d][i];
	}
	s->domains |= BIT_ULL(d);
	s->nr++;
	s->load += l->m->load[d];
	s->room += l->room[d];
	s->capacity += l->m->capacity[d];
}

static void auto_del(const struct auto_look *l, struct auto_set *s, int d)
{
	unsigned int i;

	for (i = 0; i < l->m->nr; i++)
		s->near[i] -= l->m->distance[d][i];
	s->pairs -= s->near[d];
	s->domains &= ~BIT_ULL(d);
	s->nr--;
	s->load -= l->m->load[d];
	s->room -= l->room[d];
	s->capacity -= l->m->capacity[d];
}

/* What @d adds to the cost of @s, or @member of it does: distance to the others, and load. */
static u32 auto_price(const struct auto_look *l, const struct auto_set *s, int d, bool member)
{
	u32 near = auto_near(l, s, d) - (member ? l->m->distance[d][d] : 0);

	return near * (ONE / 4) / (LOCAL_DISTANCE * (s->nr - member)) +
	       l->m->ratio[d];
}

/* The cheapest domain that @s does not have. */
static int auto_nearest(const struct auto_look *l, const struct auto_set *s)
{
	u32 price, best_price = U32_MAX;
	int best = 0;
	u64 left;

	for (left = l->allowed & ~s->domains; left; left &= left - 1) {
		price = auto_price(l, s, __ffs64(left), false);
		if (price < best_price) {
			best_price = price;
			best = __ffs64(left);
		}
	}
	return best;
}

/* The dearest that it has. */
static int auto_farthest(const struct auto_look *l, const struct auto_set *s)
{
	u32 price, worst_price = 0;
	int worst = 0;
	u64 left;

	for (left = s->domains; left; left &= left - 1) {
		price = auto_price(l, s, __ffs64(left), true);
		if (price >= worst_price) {
			worst_price = price;
			worst = __ffs64(left);
		}
	}
	return worst;
}

/* Is the step from one domain to all that there are worth it? @back: the way back. */
static bool auto_all(const struct auto_look *l, bool back)
{
	if (l->bursts)
		return l->due > (back ? l->total / 8 * 5 : l->total / 4 * 3);
	if (back)
		return l->demand > l->total && l->due > l->total / 4 * 3;
	return l->demand > l->total + l->total / 8 && l->due > l->total - l->total / 8;
}

/* Was it at the look before, too? Bursts would be over. */
static bool auto_all_still(const struct auto_look *l, bool back)
{
	return (l->alone || l->bursts) && auto_all(l, back);
}

/* What the size of a set costs: each domain but the first, and what is missing of @wanted. */
static u32 auto_cost_size(const struct auto_set *s, u32 wanted)
{
	u32 cost = (s->nr - 1) * ONE / 16;

	if (wanted > s->room)
		cost += auto_ratio(wanted - s->room, s->room);
	return cost;
}

/* What the machine's state adds to what a set of this size costs anywhere. */
static u32 auto_cost_avoidable(const struct auto_look *l, const struct auto_set *s)
{
	u32 cost = auto_ratio(s->load, s->capacity);
	u64 far = 0, d;

	if (s->nr > 1) {
		u32 nr = s->nr * (s->nr - 1) / 2;

		cost += (s->pairs - LOCAL_DISTANCE * nr) * (ONE / 4) / (LOCAL_DISTANCE * nr);
	}
	if (l->far) {
		for (d = s->domains; d; d &= d - 1)
			far += l->far[__ffs64(d)];
		cost += div_u64(far, 2 * s->nr);
	}
	return cost;
}

static u32 auto_cost(const struct auto_look *l, const struct auto_set *s)
{
	return auto_cost_avoidable(l, s) + auto_cost_size(s, l->due);
}

/* What growth goes by: the same, with headroom even where the machine is full. */
static u32 auto_cost_growth(const struct auto_look *l, const struct auto_set *s)
{
	u32 wanted = max(l->due, min(l->demand, l->due) / 4 * 5);

	return auto_cost_avoidable(l, s) + auto_cost_size(s, wanted);
}

/* @keep: as far as it would not shrink again. */
static void auto_grow(const struct auto_look *l, struct auto_set *s, bool keep)
{
	while (l->due > s->room && s->domains != l->allowed) {
		int d = auto_nearest(l, s);
		u32 cost;

		if (l->due <= s->room + min(l->room[d], s->room) / (keep ? 4 : 2))
			return;
		if (s->nr == 1 && (s->domains | BIT_ULL(d)) == l->allowed &&
		    !auto_all_still(l, keep))
			return;
		cost = auto_cost_growth(l, s);
		auto_add(l, s, d);
		/* Small, or full of others. */
		if (auto_cost_growth(l, s) >= cost) {
			auto_del(l, s, d);
			return;
		}
	}
}

static void auto_shrink(const struct auto_look *l, struct auto_set *s)
{
	while (s->nr > 1) {
		int d = auto_farthest(l, s);
		u32 rest = s->room - l->room[d];

		if (l->due > rest + min(l->room[d], rest) / 4 &&
		    (s->nr > 2 || s->domains != l->allowed || auto_all(l, true)))
			return;
		auto_del(l, s, d);
	}
}

static void auto_set(const struct auto_look *l, struct auto_set *s, u64 domains)
{
	/* All but near[], which counts from the second domain on. */
	memset(s, 0, offsetof(struct auto_set, near));
	for (; domains; domains &= domains - 1)
		auto_add(l, s, __ffs64(domains));
}

/* The cost of one domain, @d, that holds what is due. */
static __always_inline u32 auto_cost_fits(const struct auto_look *l, int d)
{
	return l->m->ratio[d] + (l->far ? l->far[d] / 2 : 0);
}

/* The cost of one domain. */
static u32 auto_cost_one(const struct auto_look *l, int d)
{
	u32 cost = auto_cost_fits(l, d);

	if (l->due > l->room[d])
		cost += auto_ratio(l->due - l->room[d], l->room[d]);
	return cost;
}

/* A home that begins with @d, and its cost. */
static noinline u32 auto_cost_grown(const struct auto_look *l, struct auto_set *s, int d)
{
	auto_set(l, s, BIT_ULL(d));
	auto_grow(l, s, false);
	/* Grown from a small one, it may be more than it would keep. */
	auto_shrink(l, s);
	return auto_cost(l, s);
}

/* The same. Of one domain, only that it is this one is said. Asked of each: it has to be fast. */
static __always_inline u32 auto_from(const struct auto_look *l, struct auto_set *s, int d)
{
	if (l->due > l->room[d])
		return auto_cost_grown(l, s, d);
	s->domains = BIT_ULL(d);
	return auto_cost_fits(l, d);
}

/* What nobody is seen of is no reason to leave. */
static void auto_unsee(const struct auto_look *l, struct auto_set *s)
{
	u64 left;

	for (left = s->domains; left; left &= left - 1)
		s->load -= min(s->load, l->m->unseen[__ffs64(left)]);
}

static u64 auto_look(struct auto_look *l, u64 home)
{
	u32 cost = U32_MAX, best_cost = U32_MAX;
	bool large = false, border = false;
	u64 seeds, best = 0;
	struct auto_set set;

	home &= l->allowed;
	if (home) {
		auto_set(l, &set, home);
		auto_grow(l, &set, false);
		auto_shrink(l, &set);
		border = set.domains == home && l->due > set.room;
		home = set.domains;
		auto_unsee(l, &set);
		large = set.nr > 1 || l->due > set.room;
		/* Fits and has nothing to gain: by far the most frequent case. */
		if (l->due <= set.room && auto_cost_avoidable(l, &set) <= AUTO_MARGIN) {
			l->cost = large ? auto_cost(l, &set) : 0;
			return home;
		}
		cost = auto_cost(l, &set);
	}

	for (seeds = l->allowed; seeds; seeds &= seeds - 1) {
		u32 c = auto_from(l, &set, __ffs64(seeds));

		if (c < best_cost) {
			best_cost = c;
			best = set.domains;
		}
	}
	if (!home)
		return best;
	if (best_cost + max(AUTO_MARGIN, cost >> AUTO_MARGIN_SHIFT) >= cost) {
		l->cost = large ? cost : 0;
		return home;
	}
	/* At the border it grows, rather than move now and grow soon. */
	if (border) {
		auto_set(l, &set, home);
		auto_grow(l, &set, true);
		if (auto_cost(l, &set) <= best_cost)
			return set.domains;
	}
	return best;
}

/*
 * For bursts: @home, and what of several domains there was @before, made as large as is due
 * then. Where it is was decided without: who is due more than it demands would go to and fro
 * with others.
 */
static u64 auto_spread(struct auto_look *l, u64 home, u64 before)
{
	struct auto_set set;

	if (!l->burst)
		return home;
	l->due = max(l->due, l->burst);
	l->bursts = true;
	if (hweight64(before) > 1)
		home |= before & l->allowed;
	auto_set(l, &set, home);
	auto_grow(l, &set, false);
	auto_shrink(l, &set);
	return set.domains;
}

static u32 auto_demand(u32 demand)
{
	/* A thousandth of what 32 bits hold times ONE: more than there can be tasks. */
	return clamp(demand, AUTO_DEMAND_MIN, U32_MAX / 4);
}

/* Add the load of @a to its home, or take it away; to all it may use until it has one. */
static void auto_charge(struct cosched_machine *m, const struct cosched_auto *a, bool add)
{
	u64 home = a->home ?: auto_all_domains(m), sum = 0, left, load;
	const u32 *room = a->room ?: m->capacity;

	for (left = home; left; left &= left - 1)
		sum += room[__ffs64(left)];
	for (left = home; left && sum; left &= left - 1) {
		int d = __ffs64(left);

		load = div64_u64((u64)auto_demand(a->own) * room[d], sum);
		load = add ? load : -load;
		m->load[d] += load;
		m->all_load += load;
		m->ratio[d] = auto_ratio(m->load[d], m->capacity[d]);
	}
}

/* The same for those below @a, whose load is none of others to it. */
static void auto_charge_below(struct cosched_machine *m, const struct cosched_auto *a,
			      const struct list_head *clusters, bool add)
{
	const struct cosched_auto *b, *above;

	if (a->demand == a->own)
		return;
	list_for_each_entry(b, clusters, node) {
		for (above = b->parent; above && above != a;)
			above = above->parent;
		if (above && b->batch <= a->batch)
			auto_charge(m, b, add);
	}
}

/* To batch, domains are as small as others leave them. Less than a quarter is none. */
static void auto_leave(const struct cosched_machine *m, const u32 *room, u32 *left)
{
	unsigned int i;

	for (i = 0; i < m->nr; i++) {
		left[i] = room[i];
		if (m->busy[i])
			left[i] -= div_u64((u64)room[i] * min_t(u64, m->busy[i], m->capacity[i]),
					   m->capacity[i]);
		if (left[i] < room[i] / 4)
			left[i] = 0;
	}
}

/* What @a may use and is due, @a being out. @left is for what others leave of its own room. */
static void auto_prepare(struct auto_look *l, const struct cosched_auto *a,
			 const struct cosched_machine *m, u32 *left)
{
	u64 load = auto_demand(a->demand), capacity = 0, allowed = 0;
	unsigned int i;
	bool leftovers = false;
	u32 total = 0;

	memset(l, 0, sizeof(*l));
	l->m = m;
	l->room = a->room ?: m->capacity;
	l->far = a->far;
	l->demand = auto_demand(a->demand);
	l->alone = a->alone;
	if (a->batch) {
		const u32 *free = m->left;

		if (a->room) {
			auto_leave(m, a->room, left);
			free = left;
		}
		/* Where others need all, all domains are equal. */
		leftovers = memchr_inv(free, 0, m->nr * sizeof(*free));
		if (leftovers)
			l->room = free;
	}
	for (i = 0; i < m->nr && (a->room || a->batch); i++) {
		u64 busy = leftovers ? min_t(u64, m->busy[i], m->capacity[i]) : 0;

		if (!l->room[i])
			continue;
		allowed |= BIT_ULL(i);
		total += l->room[i];
		capacity += m->capacity[i] - busy;
		load += m->load[i] - min(m->load[i], busy);
	}
	if (!a->room && !a->batch) {
		allowed = auto_all_domains(m);
		total = m->all_capacity;
		capacity = m->all_capacity;
		load += m->all_load;
	}
	l->allowed = allowed;
	l->total = total;
	l->due = l->demand + l->demand / 4;
	/* Load is more than the demand: no overflow. */
	if (load > capacity - capacity / 5)
		l->due = div64_u64(l->demand * capacity, load);
	if (a->bursts && !a->batch) {
		/* Of what others leave. */
		capacity -= min(capacity, load - l->demand);
		l->burst = min((u64)l->demand * AUTO_BURST, capacity);
	}
}

static int auto_size(const struct cosched_auto *a)
{
	return fls(auto_demand(a->demand));
}

static void auto_settle(struct cosched_machine *m, struct cosched_auto *a, u64 home)
{
	auto_charge(m, a, false);
	a->home = home;
	auto_charge(m, a, true);
}

/* Is @a content with its home as it is? */
static bool auto_stays(struct cosched_machine *m, const struct cosched_auto *a)
{
	struct auto_look l;
	u64 home;

	auto_charge(m, a, false);
	auto_prepare(&l, a, m, NULL);
	home = auto_look(&l, a->home);
	auto_charge(m, a, true);
	return home == a->home;
}

/* Put @a, which has one domain, in the best of @domains if that is clearly better: its gain. */
static s64 auto_give_way(struct cosched_machine *m, struct cosched_auto *a, u64 domains)
{
	struct auto_look l;
	u32 c, cost, best;

	auto_charge(m, a, false);
	auto_prepare(&l, a, m, NULL);
	cost = auto_cost_one(&l, __ffs64(a->home));
	best = cost - min(cost, AUTO_MARGIN);
	for (domains &= l.allowed; domains; domains &= domains - 1) {
		c = auto_cost_one(&l, __ffs64(domains));
		if (c < best) {
			best = c;
			a->home = BIT_ULL(__ffs64(domains));
		}
	}
	best = auto_cost_one(&l, __ffs64(a->home));
	auto_charge(m, a, true);
	return (s64)auto_demand(a->own) * ((s64)cost - best);
}

/* What @l would have in @domains, of what is due to it. */
static u32 auto_room(const struct auto_look *l, u64 domains)
{
	u32 room = 0;

	for (; domains; domains &= domains - 1)
		room += l->room[__ffs64(domains)];
	return min(l->due, room);
}

/*
 * May @b be in the way of @a? It has one domain, and demands about as much or less, down to a
 * quarter, which is where those who ask this end: smaller ones are not what is in the way.
 */
static bool auto_in_way(const struct cosched_auto *a, const struct cosched_auto *b)
{
	return b != a && !b->stays && !b->batch && !b->bursts && b->demand == b->own &&
	       hweight64(b->home) == 1 && (!b->room || b->room[__ffs64(b->home)]) &&
	       auto_size(b) <= auto_size(a);
}

/*
 * Let @a have what it would grow to from domain @d if nobody were in its way there, and these what
 * it leaves, one after the other. Do they gain, each by its tasks, and want to stay? A gain is of
 * what is there just then. So what two cost each other counts once, as it does for one that moves
 * alone: no cycle of such steps and of moves gains.
 */
static bool auto_make_room(const struct auto_look *l, struct cosched_machine *m,
			   struct cosched_auto *a, int d, const struct list_head *clusters)
{
	s64 gain, own = auto_demand(a->own), paid = own * l->cost + m->paid[d];
	s64 least = max(own * AUTO_MARGIN, paid >> AUTO_MARGIN_SHIFT);
	struct cosched_auto *b, *way[AUTO_WAY];
	u64 home = a->home, to;
	struct auto_set set;
	int i, nr = 0;
	bool better;
	u32 cost;

	if (paid <= least)
		return false;
	list_for_each_entry(b, clusters, node) {
		if (auto_size(b) < auto_size(a) - 2)
			break;
		if (b->home != BIT_ULL(d) || !auto_in_way(a, b))
			continue;
		if (nr == AUTO_WAY)
			return false;
		way[nr++] = b;
	}
	auto_charge(m, a, false);
	for (i = 0; i < nr; i++)
		auto_charge(m, way[i], false);
	cost = auto_from(l, &set, d);
	for (i = 0; i < nr; i++)
		auto_charge(m, way[i], true);
	to = set.domains;
	/* If it gave up room that is due to it, it would grow for that at the next look. */
	better = cost < l->cost && paid - own * cost > least && (home & ~to) &&
		 auto_room(l, to) >= auto_room(l, home);
	if (better) {
		auto_set(l, &set, to);
		gain = own * ((s64)l->cost - auto_cost(l, &set));
		a->home = to;
	}
	auto_charge(m, a, true);
	if (!better)
		return false;
	for (i = 0; i < nr; i++)
		gain += auto_give_way(m, way[i], home & ~to);
	better = gain > least && auto_stays(m, a);
	for (i = 0; i < nr && better; i++)
		better = auto_stays(m, way[i]);
	if (better)
		return true;
	auto_settle(m, a, home);
	for (i = 0; i < nr; i++)
		auto_settle(m, way[i], BIT_ULL(d));
	return false;
}

/*
 * @a finds no place that is better, as long as nobody makes room. Those who ask are large: there
 * are hardly more of them than domains. They ask in the order of those who are there, not in that
 * of domains, which is by chance.
 */
static void auto_exchange(const struct auto_look *l, struct cosched_machine *m,
			  struct cosched_auto *a, const struct list_head *clusters)
{
	u64 left = l->allowed, own;
	const struct cosched_auto *b;
	int d;

	memset(m->paid, 0, sizeof(m->paid));
	list_for_each_entry(b, clusters, node) {
		if (auto_size(b) < auto_size(a) - 2)
			break;
		if (!auto_in_way(a, b))
			continue;
		d = __ffs64(b->home);
		own = auto_demand(b->own);
		m->paid[d] += own * auto_ratio(m->load[d] - own, m->capacity[d]);
	}
	list_for_each_entry(b, clusters, node) {
		if (auto_size(b) < auto_size(a) - 2)
			break;
		if (!(b->home & left) || !auto_in_way(a, b))
			continue;
		left &= ~b->home;
		if (auto_make_room(l, m, a, __ffs64(b->home), clusters))
			break;
	}
}

/*
 * Take the load of less than half a domain where nobody is seen out of it, or put it back. That
 * much is what those who sleep have left in averages after a start, and no more there when the
 * tasks of a new cluster come; of more, somebody would be seen.
 */
static void auto_remnants(struct cosched_machine *m, bool add)
{
	unsigned int i;

	for (i = 0; i < m->nr; i++) {
		u64 load = m->unseen[i];

		if (!load || load >= m->capacity[i] / 2)
			continue;
		load = add ? load : -load;
		m->load[i] += load;
		m->all_load += load;
		m->ratio[i] = auto_ratio(m->load[i], m->capacity[i]);
	}
}

static void auto_choose_one(struct cosched_auto *a, struct cosched_machine *m,
			    const struct list_head *clusters)
{
	u32 left[COSCHED_AUTO_DOMAINS];
	struct auto_look l;
	bool new = !a->home, stays = false;
	u64 home = 0;

	auto_charge(m, a, false);
	auto_charge_below(m, a, clusters, false);
	if (new)
		auto_remnants(m, false);
	auto_prepare(&l, a, m, left);
	if (l.allowed) {
		stays = a->stays && !new && !(a->home & ~l.allowed);
		home = stays ? a->home : auto_look(&l, a->home);
	}
	if (new)
		auto_remnants(m, true);
	a->alone = auto_all(&l, false);
	a->home = home && !stays ? auto_spread(&l, home, a->home) : home;
	auto_charge_below(m, a, clusters, true);
	auto_charge(m, a, true);
	/* Not where others are below: they are in it. */
	if (l.cost && !a->batch && !a->bursts && a->demand == a->own)
		auto_exchange(&l, m, a, clusters);
}

static int auto_cmp(void *priv, const struct list_head *a, const struct list_head *b)
{
	const struct cosched_auto *x = list_entry(a, struct cosched_auto, node);
	const struct cosched_auto *y = list_entry(b, struct cosched_auto, node);
	int size = auto_size(y) - auto_size(x);

	return size ?: x->id > y->id;
}

/**
 * cosched_auto_choose() - Choose the homes of all clusters that have automatic ones.
 * @clusters: list of struct cosched_auto, sorted here; their homes are updated
 * @m: the machine; load is that of all other tasks, and then of all
 */
void cosched_auto_choose(struct list_head *clusters, struct cosched_machine *m)
{
	struct cosched_auto *a;
	unsigned int i;
	int batch;

	m->all_load = 0;
	m->all_capacity = 0;
	for (i = 0; i < m->nr; i++) {
		m->ratio[i] = auto_ratio(m->load[i], m->capacity[i]);
		m->all_load += m->load[i];
		m->all_capacity += m->capacity[i];
	}
	list_sort(NULL, clusters, auto_cmp);
	for (batch = 0; batch < 2; batch++) {
		memcpy(m->busy, m->load, sizeof(m->busy));
		if (batch)
			auto_leave(m, m->capacity, m->left);
		for (i = 0; batch && i < m->nr; i++) {
			m->load[i] += m->batch[i];
			m->all_load += m->batch[i];
			m->ratio[i] = auto_ratio(m->load[i], m->capacity[i]);
		}
		list_for_each_entry(a, clusters, node) {
			if (a->batch == batch) {
				a->home &= auto_all_domains(m);
				auto_charge(m, a, true);
			}
		}
		list_for_each_entry(a, clusters, node) {
			if (a->batch == batch)
				auto_choose_one(a, m, clusters);
		}
	}
}

#if IS_ENABLED(CONFIG_CGROUP_COSCHED_KUNIT_TEST)
#include "cosched_auto_test.c"
#endif
