// SPDX-License-Identifier: GPL-2.0
/*
 * Automatic homes of clusters: the choice
 *
 * The choice is a pure function of demands, capacities, distances and the homes
 * until now. It has no kernel state, does not allocate and uses integers only, so
 * that KUnit can test it with any input. kernel/cgroup/cosched.c collects the input
 * and makes homes of the output.
 *
 * Model
 * =====
 *
 * A home consists of whole LLC domains.
 *
 * The demand of a cluster is made of two decayed numbers: that of its tasks that run,
 * and that of its tasks that are runnable. The first says nothing about tasks that
 * wait. The second is right for tasks that never sleep. It says too much where other
 * tasks are in the way of tasks that sleep often: whichever domain a cluster leaves
 * would then look empty. The demand of those is the mean of both.
 *
 * How large: domains are added until they hold what the cluster is due,
 *
 *	due = demand * min(5/4, capacity / load)
 *
 * where capacity and load are those of all domains that the cluster may use. The
 * quarter is headroom; if the machine has none to give, every cluster gets its
 * share. A domain of which less than half would be used is not added: rule 4 sends
 * the small excess to where there is room, and threads in one domain share more
 * than threads in two. A domain that costs more than it saves, because it is small,
 * far or full of others, is not added either: a cluster that had it would give it
 * away for any other in an exchange, or move for the distance, and get it again at
 * the next look. This comparison uses the cost below, but with headroom for every
 * cluster: without headroom, a large cluster would keep out of a domain that others
 * just fill. A domain is given back when less than a quarter of it is used, or when
 * the home costs more with it than without, by the margin below and, with headroom,
 * by half of that: it would be taken again else.
 *
 * The last step, from one domain to all there are, ends all locality. It is made
 * only for a cluster that has the machine nearly for itself (7/8 of it are due to
 * the cluster) and more tasks than CPUs. 8 threads on two domains of 4 CPUs that
 * share data are 7 % better off with a home of one domain, and threads that share
 * none lose 1 %. One look is not enough for this step: if two clusters begin
 * together, one is the first, and a look in the milliseconds between finds the
 * machine its own. The other then had to make do with what the first left of its
 * domain until the next look, and two instances of hackbench took 7 % longer. A
 * cluster that overruns the machine while it waits for the second look may use all
 * of it before that: see "Overrun" in kernel/sched/cosched.c.
 *
 * A cluster is due 16 times its demand, as far as others leave that, if its tasks
 * run briefly, wake up together and wait for each other although they would lose
 * nothing elsewhere ("Bursts" in kernel/sched/cosched.c), or if it overruns the
 * machine at two looks in a row. For such a cluster the last step to all domains is
 * made if more than 3/4 of the machine is due to it. The home that it grows from is
 * chosen without this factor, so that its average demand is in the best place.
 *
 * Where: the set with the least cost,
 *
 *	cost = load of others / capacity		the queue to join
 *	     + (mean distance within - 10) / 40		threads that share data
 *	     + mean distance to memory / 2		see cosched_auto::far
 *	     + (due - capacity) / capacity, if positive
 *	     + 1/16 for each domain but the first	few large domains before many
 *
 * where 1 is the cost of one more runnable task per CPU. A cluster moves only for a
 * clear gain: 3/16, or a sixteenth of the cost if that is large. Otherwise it keeps
 * its home, grown by the nearest domain or shrunk by the farthest, where load
 * counts as well as distance. Without this margin, clusters would follow each
 * other's noise. A cluster does not leave its home, either, because of a load of
 * others if none of them is runnable there: that load may be an error (see
 * cosched_survey_load()), and if it is not, one of them is runnable at the next
 * look. At the border, where a home is too small but less than half of another
 * domain would be used, the cluster does not move now only to grow soon: it grows
 * instead, if that costs no more.
 *
 * A cluster that gains nothing by moving alone may gain together with others. A
 * large cluster (one that has several domains, or too little room) that stays may
 * have clusters of one domain that are not larger than itself make room for it. It
 * takes what it would grow to if they were not there, and each of them that gains
 * by it moves to one of the domains that the large cluster leaves. This is done if
 * the cost of all, each multiplied by its tasks, falls by the margin, and if none
 * of them then has a reason to leave. So clusters of 4, 2 and 4 threads on domains
 * of 4, 2 and 4 CPUs have one domain each in the end, wherever they start, and two
 * clusters of 4 threads leave a domain of 8 CPUs to a cluster of 8 threads that has
 * two domains of 4. One domain is cleared at a time: more is not tried.
 *
 * Example: on four domains of 4 CPUs, clusters of 8, 4 and 4 threads that always
 * run are due exactly that, as capacity / load is 16/16. Let their homes be domains
 * 0, 0 and 1. The first cluster grows from domain 0 to domains 0 and 2, which costs
 * 4/8 for the load of the second cluster and 1/16 for the second domain. Domains 2
 * and 3 cost 1/16, so it moves there; the others stay.
 *
 * A cluster that has no home until now may begin anywhere, as one that moves does.
 * What sleeping tasks have left in averages does not count for it: the load of a
 * domain is ignored if it is less than half of the domain and none of its tasks is
 * runnable. Domains that are then equal differ by where files are, which is a
 * distance to memory as well (cosched_survey_files() in kernel/cgroup/cosched.c).
 * If tasks of the cluster run already, the domain where they run is its home until
 * now (cosched_survey_running()).
 *
 * At a look that is made for a new cluster, between two regular looks, the other
 * clusters stay: all they could go by is what is there at that moment.
 *
 * All clusters start at their homes until now. Then each looks once, in the order
 * of their demands by powers of two: larger clusters first, and older ones first
 * among equals. This order must not change while demands vary. Batch clusters come
 * last, and what other clusters are due and what homes cost them is computed as if
 * there were no batch clusters.
 *
 * What holds (cosched_auto_test.c)
 * ================================
 *
 * - The same input gives the same output. If the domains are numbered in another
 *   way, homes are as large, and domains as evenly loaded.
 * - A cluster that may use a domain has a home of at least one domain.
 * - Repeated on its own result, the choice comes to rest, except for one of some
 *   100,000 machines where memory far away does not follow. At rest, no cluster of
 *   one domain could change to another domain where the load of others is less by
 *   more than the margin. So, with equal domains, no domain is loaded more than the
 *   mean plus the margin plus the smallest cluster on it: one cluster is what whole
 *   clusters on whole domains cannot avoid, the rest is the margin.
 * - A home where the load of others costs less than the margin does not move, other
 *   than to make room for a cluster that is larger or of its size, or when smaller
 *   ones make room for it.
 * - The homes of other clusters do not depend on batch clusters.
 * - If a demand changes by a twentieth, nothing moves in 98 of 100 cases, and in one of
 *   400 more than two homes do. There is no bound to that: where a large cluster leaves
 *   a gap, or needs one, as many small ones gain by a move as fit in. All are at rest
 *   after four looks.
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
 * How many CPUs a cluster whose tasks wake up together needs at that moment, for each
 * CPU that it needs on average: its tasks run for a sixteenth of the time between
 * wakeups.
 */
#define AUTO_BURST		16

/* The cost of one waiting task on each CPU, and the capacity of a whole CPU. */
#define ONE			SCHED_CAPACITY_SCALE

/*
 * The least gain that a cluster moves for: less than what one task costs on a domain of
 * four CPUs, more than demands differ depending on where they are measured; and a
 * sixteenth of a large cost. With an eighth, 13 clusters of one task each stayed on
 * four CPUs while the next four had 11.
 */
#define AUTO_MARGIN		(ONE * 3 / 16)
#define AUTO_MARGIN_SHIFT	4

/* At most so many clusters make room for one: those in its way demand hardly more than it does. */
#define AUTO_WAY		8

/* Even a cluster whose tasks sleep counts a little, so that many of them spread from the start. */
#define AUTO_DEMAND_MIN		(ONE / 256)

const char *const cosched_auto_reasons[COSCHED_AUTO_REASONS] = {
	[COSCHED_AUTO_SAME]	= "same",
	[COSCHED_AUTO_NEW]	= "new",
	[COSCHED_AUTO_CPUS]	= "cpus",
	[COSCHED_AUTO_YIELDED]	= "yielded",
	[COSCHED_AUTO_GROWN]	= "grown",
	[COSCHED_AUTO_BURSTS]	= "bursts",
	[COSCHED_AUTO_SHRUNK]	= "shrunk",
	[COSCHED_AUTO_LOAD]	= "load",
	[COSCHED_AUTO_DISTANCE]	= "distance",
	[COSCHED_AUTO_MEMORY]	= "memory",
	[COSCHED_AUTO_SIZE]	= "size",
	[COSCHED_AUTO_EXCHANGE]	= "exchange",
	[COSCHED_AUTO_ROOM]	= "room",
};

/* A set of domains that may become a home. */
struct auto_set {
	u64	domains;
	u64	load;			/* of others */
	u32	room, capacity;
	u32	pairs;			/* sum of distances between any two of them */
	u32	nr;
	u16	near[COSCHED_AUTO_DOMAINS];	/* sum of distances to the set; if nr > 1 */
};

/* What the choice for one cluster is made from. */
struct auto_look {
	const struct cosched_machine	*m;
	const u32			*room, *far;
	u64				allowed;
	u32				demand, due, total;
	u32				burst;	/* due if its tasks wake up together, or 0 */
	u32				usual;	/* .due before it was raised to .burst */
	bool				bursts;	/* it is raised now */
	bool				alone;	/* cosched_auto::alone of the look before */
	u32				cost;	/* of its home if it is large and stays, or 0 */
	u64				kept;	/* if it moves: its home without that, or 0 */
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

/*
 * What @d adds to the cost of @s, or already contributes if it is a @member: distance
 * to the other domains, and load.
 */
static u32 auto_price(const struct auto_look *l, const struct auto_set *s, int d, bool member)
{
	u32 near = auto_near(l, s, d) - (member ? l->m->distance[d][d] : 0);

	return near * (ONE / 4) / (LOCAL_DISTANCE * (s->nr - member)) +
	       l->m->ratio[d];
}

/* The cheapest allowed domain that is not in @s. */
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

/* The domain in @s that costs most. */
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

/*
 * Is the step from one domain to all there are worth it? @back: asked before that step
 * is taken back, with lower thresholds.
 */
static bool auto_all(const struct auto_look *l, bool back)
{
	if (l->bursts)
		return l->due > (back ? l->total / 8 * 5 : l->total / 4 * 3);
	if (back)
		return l->demand > l->total && l->due > l->total / 4 * 3;
	return l->demand > l->total + l->total / 8 && l->due > l->total - l->total / 8;
}

/*
 * The same, and was it worth it at the look before, too? For bursts only this look
 * counts: they would be over by the next one.
 */
static bool auto_all_still(const struct auto_look *l, bool back)
{
	return (l->alone || l->bursts) && auto_all(l, back);
}

/* What the size of a set costs: each domain but the first, and what it lacks of @wanted. */
static u32 auto_cost_size(const struct auto_set *s, u32 wanted)
{
	u32 cost = (s->nr - 1) * ONE / 16;

	if (wanted > s->room)
		cost += auto_ratio(wanted - s->room, s->room);
	return cost;
}

/* What distance to memory costs. */
static u32 auto_cost_memory(const struct auto_look *l, const struct auto_set *s)
{
	u64 far = 0, d;

	if (!l->far)
		return 0;
	for (d = s->domains; d; d &= d - 1)
		far += l->far[__ffs64(d)];
	return div_u64(far, 2 * s->nr);
}

/* What load and distances add to the cost that a set of this size has anywhere. */
static u32 auto_cost_avoidable(const struct auto_look *l, const struct auto_set *s)
{
	u32 cost = auto_ratio(s->load, s->capacity);

	if (s->nr > 1) {
		u32 nr = s->nr * (s->nr - 1) / 2;

		cost += (s->pairs - LOCAL_DISTANCE * nr) * (ONE / 4) / (LOCAL_DISTANCE * nr);
	}
	return cost + auto_cost_memory(l, s);
}

static u32 auto_cost(const struct auto_look *l, const struct auto_set *s)
{
	return auto_cost_avoidable(l, s) + auto_cost_size(s, l->due);
}

/*
 * The cost by which growth is decided: as auto_cost(), but with headroom even if the
 * machine is full.
 */
static u32 auto_cost_growth(const struct auto_look *l, const struct auto_set *s)
{
	u32 wanted = max(l->due, min(l->demand, l->due) / 4 * 5);

	return auto_cost_avoidable(l, s) + auto_cost_size(s, wanted);
}

/* Add domains to @s, as many as are due. @keep: as many as would not be given back. */
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
		/* @d is small, far or full of others. */
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
	/* Clear all but near[], which is only used from the second domain on. */
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

/* Grow a home that begins with @d into @s. Return: its cost. */
static noinline u32 auto_cost_grown(const struct auto_look *l, struct auto_set *s, int d)
{
	auto_set(l, s, BIT_ULL(d));
	auto_grow(l, s, false);
	/* Grown from a small domain, the home may be larger than the cluster would keep. */
	auto_shrink(l, s);
	return auto_cost(l, s);
}

/*
 * The same, but if @d alone is large enough, only @s->domains is set. This is called
 * for every domain, so it has to be fast.
 */
static __always_inline u32 auto_from(const struct auto_look *l, struct auto_set *s, int d)
{
	if (l->due > l->room[d])
		return auto_cost_grown(l, s, d);
	s->domains = BIT_ULL(d);
	return auto_cost_fits(l, d);
}

/* Subtract the load of which no task is seen runnable: it is no reason to leave. */
static void auto_unsee(const struct auto_look *l, struct auto_set *s)
{
	u64 left;

	for (left = s->domains; left; left &= left - 1)
		s->load -= min(s->load, l->m->unseen[__ffs64(left)]);
}

/*
 * Is @home worse than @part of it by what counts for growth, too? If not, the cluster would soon
 * grow again.
 */
static bool auto_gives_back(const struct auto_look *l, u64 home, u64 part)
{
	struct auto_set set;
	u32 cost;

	auto_set(l, &set, part);
	cost = auto_cost_growth(l, &set);
	auto_set(l, &set, home);
	auto_unsee(l, &set);
	return cost + AUTO_MARGIN / 2 < auto_cost_growth(l, &set);
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
		/* The cluster fits and has nothing to gain: by far the most frequent case. */
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
	if (best_cost + max(AUTO_MARGIN, cost >> AUTO_MARGIN_SHIFT) >= cost ||
	    (!(best & ~home) && !auto_gives_back(l, home, best))) {
		l->cost = large ? cost : 0;
		return home;
	}
	/* At the border the home grows, rather than move now and grow soon. */
	if (border) {
		auto_set(l, &set, home);
		auto_grow(l, &set, true);
		if (auto_cost(l, &set) <= best_cost)
			return set.domains;
	}
	l->kept = home;
	return best;
}

/* What the cost of a home is made of. */
enum auto_part {
	AUTO_LOAD,
	AUTO_DISTANCE,
	AUTO_MEMORY,
	AUTO_SIZE,
	AUTO_PARTS
};

/* Split the cost of @domains into @parts. @kept: as auto_look() sees a home. Return: the cost. */
static u32 auto_parts(const struct auto_look *l, u64 domains, bool kept, u32 *parts)
{
	struct auto_set set;

	memset(parts, 0, AUTO_PARTS * sizeof(*parts));
	if (!domains)
		return 0;
	auto_set(l, &set, domains);
	if (kept)
		auto_unsee(l, &set);
	parts[AUTO_LOAD] = auto_ratio(set.load, set.capacity);
	parts[AUTO_MEMORY] = auto_cost_memory(l, &set);
	parts[AUTO_DISTANCE] = auto_cost_avoidable(l, &set) - parts[AUTO_LOAD] - parts[AUTO_MEMORY];
	parts[AUTO_SIZE] = auto_cost_size(&set, l->due);
	return auto_cost(l, &set);
}

/* May @a use a part of each of @domains? */
static bool auto_may_use(const struct cosched_auto *a, u64 domains)
{
	for (; domains && a->room; domains &= domains - 1)
		if (!a->room[__ffs64(domains)])
			return false;
	return true;
}

/*
 * Note why the home of @a becomes @spread, which for bursts is larger than @home. Not called where
 * homes stay.
 */
static noinline void auto_note(struct auto_look *l, struct cosched_auto *a, u64 home, u64 spread)
{
	bool moved = l->kept && (a->home & ~spread);
	struct cosched_auto_change *c = &a->change;
	u32 was[AUTO_PARTS], is[AUTO_PARTS];
	unsigned int i, most = 0;

	/* Moves are decided without bursts. */
	if (moved && l->bursts)
		l->due = l->usual;
	c->before = auto_parts(l, moved ? l->kept : a->home & l->allowed, moved, was);
	c->after = auto_parts(l, moved ? home : spread, false, is);
	for (i = 1; i < AUTO_PARTS; i++)
		if ((s64)was[i] - is[i] > (s64)was[most] - is[most])
			most = i;

	if (!a->home)
		c->reason = COSCHED_AUTO_NEW;
	else if (a->home & ~l->allowed)
		c->reason = auto_may_use(a, a->home) ? COSCHED_AUTO_YIELDED : COSCHED_AUTO_CPUS;
	else if (moved)
		c->reason = COSCHED_AUTO_LOAD + most;
	else if (spread & ~a->home)
		c->reason = l->bursts ? COSCHED_AUTO_BURSTS : COSCHED_AUTO_GROWN;
	else
		c->reason = COSCHED_AUTO_SHRUNK;
}

/*
 * For bursts: @home, together with @before if that had several domains, made as large
 * as is due then. Where the home is was decided without bursts: a cluster that is due
 * more than it demands would move to and fro with others.
 */
static u64 auto_spread(struct auto_look *l, u64 home, u64 before)
{
	struct auto_set set;

	if (!l->burst)
		return home;
	l->usual = l->due;
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
	/* At most a million tasks: 5/4 of that, in units of ONE, fit into 32 bits. */
	return clamp(demand, AUTO_DEMAND_MIN, U32_MAX / 4);
}

/*
 * Add the load of @a to its home, or take it away. Until @a has a home, its load is
 * spread over all domains that it may use.
 */
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

/* Link each cluster to those directly below it. */
static void auto_link(const struct list_head *clusters)
{
	struct cosched_auto *a;

	list_for_each_entry(a, clusters, node) {
		a->below = NULL;
		if (a->parent)
			a->parent->below = NULL;
	}
	list_for_each_entry(a, clusters, node) {
		if (a->parent) {
			a->beside = a->parent->below;
			a->parent->below = a;
		}
	}
}

/* The next one after @b of the clusters below @a, @a itself being before the first. */
static struct cosched_auto *auto_next_below(const struct cosched_auto *a,
					    const struct cosched_auto *b)
{
	if (b->below)
		return b->below;
	while (b != a && !b->beside)
		b = b->parent;
	return b == a ? NULL : b->beside;
}

/* The same for the clusters below @a: to @a, their load is not a load of others. */
static void auto_charge_below(struct cosched_machine *m, const struct cosched_auto *a, bool add)
{
	const struct cosched_auto *b;

	for (b = auto_next_below(a, a); b; b = auto_next_below(a, b)) {
		if (b->batch <= a->batch)
			auto_charge(m, b, add);
	}
}

/*
 * For batch clusters, a domain is as large as what others leave of it. Less than a
 * quarter counts as nothing.
 */
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

/*
 * What @a may use and is due, while its own load is not in @m. @left is a buffer for
 * what others leave of the room of @a.
 */
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
		/* If others need everything, all domains are equal to a batch cluster. */
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
	/* The load includes the demand: no overflow. */
	if (load > capacity - capacity / 5)
		l->due = div64_u64(l->demand * capacity, load);
	if (a->bursts && !a->batch) {
		/* At most what others leave. */
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

/* Would @a keep its home as it is? */
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

/*
 * Move @a, which has one domain, to the best of @domains if that is better by the
 * margin, and say in @change what that means to it. Return: the gain, multiplied by its
 * tasks.
 */
static s64 auto_give_way(struct cosched_machine *m, struct cosched_auto *a, u64 domains,
			 struct cosched_auto_change *change)
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
	*change = a->change;
	change->after = best;
	if (change->reason != COSCHED_AUTO_NEW) {
		change->reason = COSCHED_AUTO_ROOM;
		change->before = cost;
	}
	return (s64)auto_demand(a->own) * ((s64)cost - best);
}

/* How much of what is due according to @l there is in @domains. */
static u32 auto_room(const struct auto_look *l, u64 domains)
{
	u32 room = 0;

	for (; domains; domains &= domains - 1)
		room += l->room[__ffs64(domains)];
	return min(l->due, room);
}

/*
 * May @b be in the way of @a? It may if it has one domain and demands about as much as
 * @a or less. The callers stop at clusters that demand less than a quarter of what @a
 * does: smaller ones are not what is in the way.
 */
static bool auto_in_way(const struct cosched_auto *a, const struct cosched_auto *b)
{
	return b != a && !b->stays && !b->batch && !b->bursts && b->demand == b->own &&
	       hweight64(b->home) == 1 && (!b->room || b->room[__ffs64(b->home)]) &&
	       auto_size(b) <= auto_size(a);
}

/*
 * Give @a what it would grow to from domain @d if no cluster were in its way there, and
 * give those clusters, one after the other, what @a leaves. Do they gain in sum, each
 * multiplied by its tasks, and would all of them stay then? If not, undo it. Each gain
 * is computed from the state at that step. So what two clusters cost each other counts
 * once, as it does when one cluster moves alone: no cycle of such exchanges and of
 * moves gains.
 */
static bool auto_make_room(const struct auto_look *l, struct cosched_machine *m,
			   struct cosched_auto *a, int d, const struct list_head *clusters)
{
	s64 gain, own = auto_demand(a->own), paid = own * l->cost + m->paid[d];
	s64 least = max(own * AUTO_MARGIN, paid >> AUTO_MARGIN_SHIFT);
	struct cosched_auto_change change[AUTO_WAY];
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
	/* If @a gave up room that is due to it, it would grow for that at the next look. */
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
		gain += auto_give_way(m, way[i], home & ~to, &change[i]);
	better = gain > least && auto_stays(m, a);
	for (i = 0; i < nr && better; i++)
		better = auto_stays(m, way[i]);
	if (better) {
		for (i = 0; i < nr; i++)
			if (way[i]->home != BIT_ULL(d))
				way[i]->change = change[i];
		auto_charge(m, a, false);
		auto_set(l, &set, to);
		auto_charge(m, a, true);
		a->change.reason = COSCHED_AUTO_EXCHANGE;
		a->change.before = l->cost;
		a->change.after = auto_cost(l, &set);
		return true;
	}
	auto_settle(m, a, home);
	for (i = 0; i < nr; i++)
		auto_settle(m, way[i], BIT_ULL(d));
	return false;
}

/*
 * @a finds no better place as long as no other cluster makes room: look for clusters
 * that do. Only large clusters come here, and there are hardly more of them than
 * domains. They try domains in the order of the clusters there, not by number, which is
 * arbitrary.
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
 * Take loads of less than half a domain of which no task is seen runnable out of @m, or
 * put them back. That much is what sleeping tasks have left in averages after a start,
 * and it is gone when the tasks of a new cluster come. If a load is larger than that,
 * one of its tasks would be seen.
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
	u64 home = 0, spread;

	auto_charge(m, a, false);
	auto_charge_below(m, a, false);
	if (new)
		auto_remnants(m, false);
	auto_prepare(&l, a, m, left);
	if (l.allowed) {
		stays = a->stays && !new && !(a->home & ~l.allowed);
		home = stays ? a->home : auto_look(&l, a->home);
	}
	a->alone = auto_all(&l, false);
	spread = home && !stays ? auto_spread(&l, home, a->home) : home;
	if (spread != a->home)
		auto_note(&l, a, home, spread);
	if (new)
		auto_remnants(m, true);
	a->home = spread;
	auto_charge_below(m, a, true);
	auto_charge(m, a, true);
	/* Not if there are clusters below @a: they are within its home. */
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
 * @m: the machine; its load is that of all other tasks at first, and that of all tasks afterwards
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
	auto_link(clusters);
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
				a->change = (struct cosched_auto_change){ };
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
