// SPDX-License-Identifier: GPL-2.0
/*
 * The cosched cgroup controller: where clusters of related threads prefer to run
 *
 * A cgroup that sets cosched.cpus_preferred or cosched.weights has a preference
 * of its own and so is a cluster; its descendants belong to that cluster until
 * they set a preference themselves. This file has the files, the hierarchy and
 * the life cycle. What a cluster means for the scheduler, and the rules for
 * locking and lifetime, are in kernel/sched/cosched.c.
 *
 * The home of a cgroup is the set of CPUs that it prefers now. It is computed
 * from the root of the tree down:
 *
 *	home(child) = asked(child) & home(parent)	if that is not empty
 *	home(child) = home(parent)			otherwise
 *
 * The root has no home and so does not narrow what its children ask for. Only
 * online CPUs count: a home follows CPU hotplug. What a cgroup with an automatic
 * home asks for is chosen from time to time, see below and cosched_auto.c.
 *
 * Everything that changes the result (a write, a new or a removed cgroup, a CPU
 * that comes or goes) runs cosched_update() under cosched_mutex over the cgroups
 * affected. All memory is allocated before that, so a write is accepted or
 * refused as a whole. Static keys need cpus_read_lock(), and the hotplug
 * callbacks run with that lock held, hence the order
 *
 *	cgroup_mutex > cpus_read_lock > cosched_mutex
 */
#include <linux/cgroup.h>
#include <linux/cosched.h>
#include <linux/cpu.h>
#include <linux/ctype.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <trace/events/cosched.h>

#include "cosched_auto.h"
#ifdef CONFIG_CPUSETS
#include "cpuset-internal.h"
#endif

struct cosched_css {
	struct cgroup_subsys_state	css;

	/* The cluster that its tasks belong to, its own or an ancestor's, or NULL. */
	struct cosched_cluster __rcu	*cluster;

	/* The following are protected by cosched_mutex. */
	struct cosched_cluster		*own;		/* NULL: no preference set here */
	struct list_head		owner;		/* in cosched_owners while .own is set */
	struct cpumask			*asked;		/* NULL: inherited */
	struct cosched_automatic	*automatic;	/* what chooses .asked, or NULL */
	unsigned int			weights[2];	/* 0: inherited */
	bool				changed;	/* home changed in this cosched_update() */
	bool				offline;
	struct cosched_stat		past;		/* of clusters that no longer exist */

	struct cgroup_file		effective_file;
};

static DEFINE_MUTEX(cosched_mutex);

/* Protected by cosched_mutex: */
static struct cpumask cosched_online;	/* CPUs that homes may consist of */
static struct cpumask cosched_scratch, cosched_llc_scratch, cosched_auto_scratch;
static struct cosched_css *cosched_root;
static LIST_HEAD(cosched_owners);

/* A cgroup with an automatic home. */
struct cosched_automatic {
	struct cosched_auto		choice;
	struct cosched_css		*cs;
	struct cosched_demand		sample;		/* demand at this look */
	bool				sampled;	/* .sample was taken at least once */
	bool				turn;		/* its home is chosen at this look */
	bool				light;		/* is batch because it weighs little */
	bool				batch;		/* is batch because of its tasks */
	bool				alone;		/* choice.alone at the last look */
	u32				normal;		/* mean number of non-SCHED_IDLE tasks */
	u32				demand;		/* its own, over a few looks */
	u32				limit;		/* CPU time that it is allowed */
	u32				part;		/* of its demand, how much that allows */
	unsigned int			depth;		/* how many are above it */
	u32				bursts;		/* demand when bursts last seen, or 0 */
	bool				overran;	/* overran the machine at the last look */
	u32				chosen;		/* demand when its home was last chosen */
	unsigned int			next_faults;	/* the look that reads faults again */
	unsigned int			next_cpus;	/* the look that finds .cpus anew */
	struct cpumask			cpus;		/* CPUs that cpusets leave to its tasks */
	u64				running;	/* if new: where most of its tasks run */
	bool				far_known;
	u32				far[COSCHED_AUTO_DOMAINS];
	u32				room[COSCHED_AUTO_DOMAINS];
};

/* The machine and its load; exists while there are automatic homes. */
struct cosched_survey {
	struct cosched_machine		machine;
	struct list_head		clusters;	/* cosched_automatic::choice */
	unsigned int			nr_clusters;
	bool				new_tree;	/* .clusters changed since the last look */
	unsigned int			depth;		/* most of cosched_automatic::depth */
	struct cpumask			online;		/* at the look before, as .llc_before */
	struct cpumask			usable;		/* CPUs that are in a domain */
	struct cpumask			span[COSCHED_AUTO_DOMAINS];
	int				node[COSCHED_AUTO_DOMAINS];
	bool				new_domains;	/* since the look before */
	unsigned long			loaded;		/* jiffies, when load was surveyed */
	s64				others[COSCHED_AUTO_DOMAINS];	/* load, smoothed */
	unsigned int			looks;
	u64				pages[MAX_NUMNODES];		/* or faults, by node */
	u32				far[COSCHED_AUTO_DOMAINS];	/* a guess, if new */
	u32				running[COSCHED_AUTO_DOMAINS];	/* of a new cluster */
	int				llc[NR_CPUS], llc_before[NR_CPUS];
	u16				domain[NR_CPUS];
	struct cosched_on_cpu		on_cpu[NR_CPUS]; /* of clusters with automatic homes */
};

static struct cosched_survey *cosched_survey;	/* protected by cosched_mutex */

static struct cosched_css *css_cosched(struct cgroup_subsys_state *css)
{
	return container_of(css, struct cosched_css, css);
}

static struct cosched_css *cosched_parent(struct cosched_css *cs)
{
	return cs->css.parent ? css_cosched(cs->css.parent) : NULL;
}

struct cosched_cluster *cosched_css_cluster(struct task_struct *p)
{
	return rcu_dereference(css_cosched(task_css(p, cosched_cgrp_id))->cluster);
}

static void cosched_lock(void)
{
	cpus_read_lock();
	mutex_lock(&cosched_mutex);
}

static void cosched_unlock(void)
{
	mutex_unlock(&cosched_mutex);
	cpus_read_unlock();
}

/*
 * Hierarchy
 */

/* The cgroup whose cluster @cs belongs to: @cs itself or an ancestor, or NULL. */
static struct cosched_css *cosched_owner(struct cosched_css *cs)
{
	while (cs && !(cs->own && !cpumask_empty(cosched_cluster_home(cs->own))))
		cs = cosched_parent(cs);
	return cs;
}

/* home(@cs), empty if there is none. */
static const struct cpumask *cosched_home(struct cosched_css *cs)
{
	cs = cosched_owner(cs);
	return cs ? cosched_cluster_home(cs->own) : cpu_none_mask;
}

/* Compute home(child) into @home, see the top. @asked may be NULL, @parent empty. */
static void cosched_narrow(struct cpumask *home, const struct cpumask *asked,
			   const struct cpumask *parent, const struct cpumask *online)
{
	if (asked && cpumask_and(home, asked, online)) {
		if (cpumask_empty(parent) || cpumask_and(home, home, parent))
			return;
	}
	cpumask_and(home, parent, online);
}

static void cosched_effective_weights(struct cosched_css *cs, unsigned int weights[2])
{
	weights[0] = COSCHED_WEIGHT_PREFERRED;
	weights[1] = COSCHED_WEIGHT_ALLOWED;
	while (cs && !cs->weights[0])
		cs = cosched_parent(cs);
	if (cs) {
		weights[0] = cs->weights[0];
		weights[1] = cs->weights[1];
	}
}

/* Recompute @cs; its parent is up to date. */
static void cosched_update_one(struct cosched_css *cs)
{
	struct cosched_css *parent = cosched_parent(cs), *owner;
	struct cosched_cluster *cluster;
	struct css_task_iter it;
	struct task_struct *task;
	unsigned int weights[2];

	cs->changed = parent && parent->changed;
	if (cs->own) {
		cosched_narrow(&cosched_scratch, cs->asked, cosched_home(parent),
			       &cosched_online);
		cs->changed = cosched_cluster_set_home(cs->own, &cosched_scratch);
		cosched_effective_weights(cs, weights);
		cosched_cluster_set_weights(cs->own, weights[0], weights[1]);
	}

	owner = cosched_owner(cs);
	cluster = owner ? owner->own : NULL;
	if (cluster == rcu_access_pointer(cs->cluster))
		return;
	rcu_assign_pointer(cs->cluster, cluster);
	css_task_iter_start(&cs->css, 0, &it);
	while ((task = css_task_iter_next(&it)))
		cosched_task_update(task);
	css_task_iter_end(&it);
}

/*
 * Recompute @root and all cgroups below it. @before is the home of @root before the
 * change, or NULL if only the online CPUs or what an automatic home asks for changed.
 * Notifies pollers of cosched.cpus_preferred.effective.
 */
static void cosched_update(struct cosched_css *root, const struct cpumask *before)
{
	struct cgroup_subsys_state *pos;

	lockdep_assert_held(&cosched_mutex);

	rcu_read_lock();
	css_for_each_descendant_pre(pos, &root->css) {
		struct cosched_css *cs = css_cosched(pos);

		/* Include dying cgroups, as long as there can be a task that sees them. */
		if (cs->offline || !css_tryget(pos))
			continue;
		rcu_read_unlock();

		cosched_update_one(cs);
		if (cs == root && before)
			cs->changed = !cpumask_equal(before, cosched_home(cs));
		if (cs->changed)
			cgroup_file_notify(&cs->effective_file);

		rcu_read_lock();
		css_put(pos);
	}
	/* A change counts only in the walk in which it happens. */
	css_for_each_descendant_pre(pos, &root->css)
		css_cosched(pos)->changed = false;
	rcu_read_unlock();
}

/* @cs has no preference of its own any more. Its statistics are kept in .past. */
static struct cosched_cluster *cosched_disown(struct cosched_css *cs)
{
	struct cosched_cluster *cl = cs->own;

	if (cl) {
		cosched_cluster_stat(cl, &cs->past);
		cs->own = NULL;
		list_del(&cs->owner);
	}
	return cl;
}

static void cosched_drop(struct cosched_cluster *cl)
{
	if (cl) {
		/* Deferred to a work item, so that text is not patched for every change. */
		static_branch_slow_dec_deferred(&cosched_used);
		cosched_cluster_put(cl);
	}
}

/*
 * Automatic homes
 *
 * While there are any, a worker takes a look every COSCHED_AUTO_INTERVAL: it surveys
 * domains, load and the demand of each cluster, has cosched_auto_choose() choose, and
 * updates the cgroups whose home changed. New automatic homes, those within a home that
 * is set to something else, and CPU hotplug do not wait for the worker: they cause a
 * look at once. The worker is frozen with user space, so that homes are the same after
 * a suspend as before it.
 */

/* By then, averages have forgotten nine tenths of what they were. */
#define COSCHED_AUTO_INTERVAL	msecs_to_jiffies(100)

/*
 * The least demand assumed of a new cluster until it is first sampled: two tasks. That
 * is more than the task that writes to the file demands itself, or else several new
 * clusters would all avoid the domain of that task.
 */
#define COSCHED_AUTO_DEMAND_NEW	(2U * SCHED_CAPACITY_SCALE)

/* If its tasks that run already demand this much, a new cluster has its home where they are. */
#define COSCHED_AUTO_RUNNING	(SCHED_CAPACITY_SCALE / 4 * 3)

static void cosched_auto_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(cosched_auto_dwork, cosched_auto_work);

/* The nearest cgroup that asks for CPUs, @cs or above. */
static struct cosched_css *cosched_asker_of(struct cosched_css *cs)
{
	while (cs && !cs->asked)
		cs = cosched_parent(cs);
	return cs;
}

#ifdef CONFIG_CPUSETS
static const struct cpumask *cosched_cpuset(struct cgroup *cgrp)
{
	return css_cs(cgroup_e_css(cgrp, &cpuset_cgrp_subsys))->effective_cpus;
}
#endif

/*
 * Find the CPUs that cpusets leave to the tasks that the home of @a is for, into
 * @a->cpus. These are the CPUs of those cgroups, that of @a and below, that have tasks,
 * whether the controller is enabled there or not. A cgroup below with a home set by
 * hand is left out: that home is for its tasks. While there are no tasks, take the CPUs
 * of the cgroup of @a. The affinity of single tasks is not looked at.
 *
 * Return: the number of cgroups looked at.
 */
static unsigned int cosched_auto_cpus(struct cosched_automatic *a)
{
	unsigned int nr = 0;
#ifdef CONFIG_CPUSETS
	struct cgroup *cgrp = a->cs->css.cgroup;
	struct cgroup_subsys_state *pos;

	cpumask_clear(&a->cpus);
	rcu_read_lock();
	css_for_each_descendant_pre(pos, &cgrp->self) {
		struct cosched_css *asker;

		nr++;
		if (!cgroup_has_tasks(pos->cgroup))
			continue;
		asker = cosched_asker_of(css_cosched(cgroup_e_css(pos->cgroup,
								  &cosched_cgrp_subsys)));
		if (asker && asker->automatic)
			cpumask_or(&a->cpus, &a->cpus, cosched_cpuset(pos->cgroup));
	}
	if (cpumask_empty(&a->cpus))
		cpumask_copy(&a->cpus, cosched_cpuset(cgrp));
	rcu_read_unlock();
#else
	cpumask_copy(&a->cpus, cpu_possible_mask);
#endif
	return nr;
}

/* The automatic home that @a is below, or NULL. */
static struct cosched_automatic *cosched_auto_above(struct cosched_automatic *a)
{
	return container_of(a->choice.parent, struct cosched_automatic, choice);
}

/*
 * Find the domains and the CPUs in each. Return: whether they differ from those at the
 * look before.
 */
static bool cosched_survey_domains(struct cosched_survey *s)
{
	struct cosched_machine *m = &s->machine;
	unsigned int i, j, step, before = m->nr, nr = 0;
	int cpu;

	cosched_llc_ids(s->llc);
	s->new_domains = false;
	if (cpumask_equal(&s->online, &cosched_online) &&
	    !memcmp(s->llc, s->llc_before, nr_cpu_ids * sizeof(s->llc[0])))
		return false;
	cpumask_copy(&s->online, &cosched_online);
	memcpy(s->llc_before, s->llc, sizeof(s->llc));

	cpumask_clear(&s->usable);
	/* Number domains in the order of their first CPUs: neighbours are next to each other. */
	for_each_cpu(cpu, &cosched_online) {
		int first = s->llc[cpu];

		if (first == cpu)
			s->domain[cpu] = nr++;
		else if (first >= 0 && cpumask_test_cpu(first, &s->usable))
			s->domain[cpu] = s->domain[first];
		else
			continue;
		cpumask_set_cpu(cpu, &s->usable);
	}
	step = max(DIV_ROUND_UP(nr, COSCHED_AUTO_DOMAINS), 1);
	m->nr = DIV_ROUND_UP(nr, step);

	for (i = 0; i < m->nr; i++)
		cpumask_clear(&s->span[i]);
	for_each_cpu(cpu, &s->usable) {
		s->domain[cpu] /= step;
		cpumask_set_cpu(cpu, &s->span[s->domain[cpu]]);
	}
	s->new_domains = m->nr != before;
	for (i = 0; i < m->nr; i++) {
		int node = cpu_to_node(cpumask_first(&s->span[i]));

		s->new_domains |= s->node[i] != node;
		s->node[i] = node;
	}
	for (i = 0; i < m->nr; i++) {
		for (j = 0; j < m->nr; j++)
			m->distance[i][j] = min(node_distance(s->node[i], s->node[j]), U8_MAX);
	}
	return true;
}

/*
 * As many automatic homes above another count, from the topmost on. Otherwise a user who
 * nests a thousand could make every look take long.
 */
#define COSCHED_AUTO_DEPTH	8U

/* Find, for each automatic home, the nearest automatic home above it that counts. */
static void cosched_survey_tree(struct cosched_survey *s)
{
	struct cosched_automatic *a;
	struct cosched_css *cs;

	s->new_tree = false;
	s->depth = 0;
	list_for_each_entry(a, &s->clusters, choice.node) {
		unsigned int above = 0, skip;

		for (cs = cosched_parent(a->cs); cs; cs = cosched_parent(cs))
			above += !!cs->automatic;
		a->depth = min(above, COSCHED_AUTO_DEPTH);
		a->choice.parent = NULL;
		skip = above - a->depth;
		for (cs = cosched_parent(a->cs); above && !a->choice.parent;
		     cs = cosched_parent(cs)) {
			if (cs->automatic && !skip--)
				a->choice.parent = &cs->automatic->choice;
		}
		s->depth = max(s->depth, a->depth);
	}
}

/* Was the look before this one less than two intervals ago? */
static bool cosched_survey_in_time(const struct cosched_survey *s)
{
	return time_before(jiffies, s->loaded + 2 * COSCHED_AUTO_INTERVAL);
}

/* Had @a no home until now? */
static bool cosched_auto_is_new(const struct cosched_automatic *a)
{
	return cpumask_empty(a->cs->asked);
}

/*
 * Add what the runnable tasks of @cs demand to @running, by domain. Unless they are
 * @counted in the demand of a cluster already, add it to @demand as well, and do not
 * count them as others.
 */
static void cosched_survey_cgroup(struct cosched_survey *s, struct cosched_css *cs, bool counted,
				  struct cosched_demand *demand, u32 *running)
{
	struct css_task_iter it;
	struct task_struct *task;

	css_task_iter_start(&cs->css, 0, &it);
	while ((task = css_task_iter_next(&it))) {
		u32 load = cosched_task_demand(task);
		int cpu = task_cpu(task);
		struct cosched_on_cpu *on = &s->on_cpu[cpu];
		unsigned int nr;

		if (!load || !cpumask_test_cpu(cpu, &s->usable))
			continue;
		running[s->domain[cpu]] += load;
		if (counted)
			continue;
		if (!on->asked) {
			cosched_cpu_demand(cpu, &nr);
			on->nr_others = nr;
			on->asked = 1;
		}
		on->nr_others--;
		on->load += load;
		demand->sum += load;
	}
	css_task_iter_end(&it);
}

/*
 * @a is new, but its tasks may have run for long, in no cluster or in that of a cgroup
 * above. These tasks are not others to it, and its home until now is the domain where
 * most of them run: their memory and what they have in caches are there, and nothing
 * would be gained by another domain that is as good. If they demand less than most of a
 * CPU, this does not apply: the task that makes a cluster and is the first one in it
 * may be anywhere.
 */
static void cosched_survey_running(struct cosched_survey *s, struct cosched_automatic *a)
{
	struct cosched_css *above = cosched_owner(cosched_parent(a->cs));
	struct cosched_cluster *cl = above && above->automatic ? above->own : NULL, *now;
	struct cgroup_subsys_state *pos;
	u32 *running = s->running, sum = 0;
	unsigned int i, most = 0;

	memset(running, 0, sizeof(s->running));
	rcu_read_lock();
	css_for_each_descendant_pre(pos, &a->cs->css) {
		struct cosched_css *cs = css_cosched(pos);

		/* Cgroups below that have a home of their own are not part of @a. */
		if (cs != a->cs && cs->asked) {
			pos = css_rightmost_descendant(pos);
			continue;
		}
		if (cs->offline || !css_tryget(pos))
			continue;
		rcu_read_unlock();

		/* Are these tasks counted in the demand of a cluster that was asked? */
		now = rcu_access_pointer(cs->cluster);
		cosched_survey_cgroup(s, cs, now && (now == a->cs->own || now == cl),
				      &a->sample, running);
		cond_resched();

		rcu_read_lock();
		css_put(pos);
	}
	rcu_read_unlock();
	for (i = 0; i < s->machine.nr; i++) {
		sum += running[i];
		if (running[i] > running[most])
			most = i;
	}
	a->running = sum >= COSCHED_AUTO_RUNNING ? BIT_ULL(most) : 0;
}

/*
 * Collect the demands of clusters, and the load of others: what is left of the load of
 * run queues. The two differ in kind. A task that moves takes its load on a run queue
 * along, while the load of its cluster on that CPU fades; a new task counts fully on
 * the run queue and not yet in the cluster. In the mean over the CPUs of a domain and
 * over a few looks, errors of either sign cancel. Otherwise a cluster would take its
 * own comings and goings for others, and leave because of them. The errors that remain
 * amount to a task or more for half a second after a start, so runnable tasks are
 * counted as well. That count is of one moment, and only says whether there is any task
 * of others.
 */
static void cosched_survey_load(struct cosched_survey *s)
{
	struct cosched_machine *m = &s->machine;
	bool known = !s->new_domains && cosched_survey_in_time(s);
	s32 nr_others[COSCHED_AUTO_DOMAINS] = { };
	s64 others[COSCHED_AUTO_DOMAINS] = { };
	struct cosched_automatic *a;
	struct cosched_css *pos;
	unsigned int i;
	int cpu;

	memset(s->on_cpu, 0, nr_cpu_ids * sizeof(s->on_cpu[0]));
	list_for_each_entry(a, &s->clusters, choice.node)
		a->sample = (struct cosched_demand){ };
	list_for_each_entry(pos, &cosched_owners, owner) {
		struct cosched_demand demand = { };
		struct cosched_css *cs = cosched_asker_of(pos);

		if (!cs || !cs->automatic)
			continue;
		if (!cosched_cluster_demand(pos->own, s->on_cpu, &demand))
			continue;
		a = cs->automatic;
		a->sample.sum += demand.sum;
		a->sample.bursts |= demand.bursts;
		a->sample.overruns |= demand.overruns;
		/* The homes above bound this one: they are for its tasks, too. */
		for (; a; a = a->choice.parent ? cosched_auto_above(a) : NULL) {
			a->sample.nr_normal += demand.nr_normal;
			a->sample.nr_idle_policy += demand.nr_idle_policy;
		}
	}
	list_for_each_entry(a, &s->clusters, choice.node) {
		if (cosched_auto_is_new(a))
			cosched_survey_running(s, a);
	}
	for (i = 0; i < m->nr; i++)
		m->capacity[i] = 0;
	for_each_cpu(cpu, &s->usable) {
		struct cosched_on_cpu *on = &s->on_cpu[cpu];
		unsigned int d = s->domain[cpu], nr;
		u32 load = cosched_cpu_demand(cpu, &nr);

		m->capacity[d] += arch_scale_cpu_capacity(cpu);
		/* If a CPU runs the idle class only, nothing there counts. */
		if (load)
			others[d] += (s64)load - on->load;
		/* All but the task that takes this look. */
		nr_others[d] += (on->asked ? on->nr_others : (s32)nr) -
				(cpu == raw_smp_processor_id());
	}
	for (i = 0; i < m->nr; i++) {
		if (known)
			others[i] = (others[i] + s->others[i]) / 2;
		s->others[i] = others[i];
		m->load[i] = max(others[i], 0);
		m->batch[i] = 0;
		m->unseen[i] = nr_others[i] > 0 ? 0 : m->load[i];
	}
	s->loaded = jiffies;
}

/*
 * With at least this number of faults, those of a MiB, the place of memory is known.
 * Less memory than that fits into a cache, wherever the threads are, and every process
 * has as much.
 */
#define COSCHED_AUTO_FAULTS	(SZ_1M / PAGE_SIZE)

/*
 * NUMA balancing scans a task once a second at most, so faults are read every tenth look, but of
 * COSCHED_AUTO_FAULTS_READ clusters at most at a look, on average: it takes a walk over all tasks.
 */
#define COSCHED_AUTO_MEMORY		10
#define COSCHED_AUTO_FAULTS_READ	16

/* The next look that reads the faults of @a. Those of different clusters are read in turn. */
static unsigned int cosched_auto_next_faults(struct cosched_survey *s, struct cosched_automatic *a)
{
	unsigned int looks = max(s->nr_clusters / COSCHED_AUTO_FAULTS_READ, COSCHED_AUTO_MEMORY);

	return s->looks + looks - (u32)(a->choice.id + s->looks) % looks;
}

/*
 * Sum up the faults of the tasks of @cs and all cgroups below it, by node, into
 * s->pages. Return: their total.
 */
static u64 cosched_survey_faults(struct cosched_survey *s, struct cosched_css *cs)
{
	struct cgroup_subsys_state *pos;
	struct css_task_iter it;
	struct task_struct *task;
	u64 sum = 0;
	int nid;

	memset(s->pages, 0, sizeof(s->pages));
	rcu_read_lock();
	css_for_each_descendant_pre(pos, &cs->css) {
		if (css_cosched(pos)->offline || !css_tryget(pos))
			continue;
		rcu_read_unlock();

		css_task_iter_start(pos, 0, &it);
		while ((task = css_task_iter_next(&it)))
			cosched_task_faults(task, s->pages);
		css_task_iter_end(&it);
		cond_resched();

		rcu_read_lock();
		css_put(pos);
	}
	rcu_read_unlock();
	for_each_online_node(nid)
		sum += s->pages[nid];
	return sum;
}

/*
 * How far s->pages, @sum in all, are from each domain, multiplied by @scale: see
 * cosched_auto::far.
 */
static void cosched_survey_far(struct cosched_survey *s, u64 sum, u32 scale, u32 *to)
{
	unsigned int i;
	int nid;

	for (i = 0; i < s->machine.nr; i++) {
		u64 far = 0;

		/* Domains of a node follow one another, mostly, and are as far. */
		if (i && s->node[i] == s->node[i - 1]) {
			to[i] = to[i - 1];
			continue;
		}
		for_each_online_node(nid)
			far += s->pages[nid] * (node_distance(s->node[i], nid) - LOCAL_DISTANCE);
		to[i] = div64_u64(far * scale, LOCAL_DISTANCE * sum);
	}
}

/* How far the memory of @a is from each domain, see cosched_auto::far; NULL: unknown. */
static const u32 *cosched_survey_memory(struct cosched_survey *s, struct cosched_automatic *a,
					bool sampling)
{
	u64 sum;

	if (!cosched_numa_balancing()) {
		a->far_known = false;
		return NULL;
	}
	/* In turn, and of new ones. A cluster that did not run had no faults. */
	if (s->new_domains || cosched_auto_is_new(a) ||
	    (sampling && a->sample.sum && (int)(s->looks - a->next_faults) >= 0)) {
		a->next_faults = cosched_auto_next_faults(s, a);
		sum = cosched_survey_faults(s, a->cs);
		a->far_known = sum >= COSCHED_AUTO_FAULTS;
		if (a->far_known)
			cosched_survey_far(s, sum, SCHED_CAPACITY_SCALE, a->far);
	}
	return a->far_known ? a->far : NULL;
}

/*
 * A guess for a new cluster of whose memory nothing is known: it reads files, and its
 * files may be where the page cache is. The guess is only to decide between domains
 * that are equal otherwise. It counts a 64th of what known memory does, which is less
 * than a new cluster counts on a domain of 100 CPUs.
 */
static const u32 *cosched_survey_files(struct cosched_survey *s)
{
	u64 sum = 0;
	int nid;

	for_each_online_node(nid) {
		s->pages[nid] = node_page_state(NODE_DATA(nid), NR_FILE_PAGES);
		sum += s->pages[nid];
	}
	if (!sum)
		return NULL;
	cosched_survey_far(s, sum, SCHED_CAPACITY_SCALE / 64, s->far);
	return s->far;
}

/*
 * Are the tasks of @a SCHED_IDLE, except for some that hardly run? After other tasks
 * ran, it takes two seconds to become true, as a home of leftovers does not suit those;
 * and it only becomes true at a look that sees a SCHED_IDLE task. With a task of
 * another policy it takes three looks to become false.
 */
static bool cosched_auto_idle_policy(struct cosched_automatic *a)
{
	u32 nr = min(a->sample.nr_normal, 1024);	/* enough: larger numbers count the same */

	a->normal = (7 * a->normal + nr * (u32)SCHED_CAPACITY_SCALE) / 8;
	if (a->normal > SCHED_CAPACITY_SCALE / 4)
		return false;
	if (a->normal < SCHED_CAPACITY_SCALE / 16 && a->sample.nr_idle_policy)
		return true;
	return a->batch;
}

/* The domains of the CPUs that @a has for a home, however they were chosen. */
static u64 cosched_auto_domains(struct cosched_survey *s, struct cosched_automatic *a)
{
	u64 domains = 0;
	int cpu;

	for_each_cpu_and(cpu, a->cs->asked, &s->usable)
		domains |= BIT_ULL(s->domain[cpu]);
	return domains;
}

/* What the cpu controller allows @a, and whether its weight makes it batch. */
static void cosched_survey_limit(struct cosched_automatic *a)
{
	a->limit = cosched_cgroup_limit(a->cs->css.cgroup, &a->light);
}

/*
 * Do the tasks of @a come in bursts? Once its home has grown for them no task waits,
 * and bursts are not seen any more: they are assumed to go on until @a demands less
 * than half of what it did then. The same holds if @a overruns the machine at two looks
 * in a row: bursts are not seen then either, and whenever @a does not overrun for a
 * moment, all its tasks would go home, as on average there are few of them. If one look
 * were enough, the first of two clusters that begin together would get the domain of
 * the other.
 */
static bool cosched_auto_bursts(struct cosched_automatic *a)
{
	if (a->sample.bursts || (a->sample.overruns && a->overran))
		a->bursts = max(a->demand, 1U);
	else if (a->demand < a->bursts / 2)
		a->bursts = 0;
	a->overran = a->sample.overruns;
	return a->bursts;
}

/*
 * Update what @a demands. @sampling: this look is a sample, to be remembered for the
 * next ones. Return: whether @a is batch.
 */
static bool cosched_survey_demand(struct cosched_automatic *a, bool sampling)
{
	struct cosched_auto *choice = &a->choice;
	u32 sample = min(a->sample.sum, a->limit);

	if (sampling)
		a->batch = cosched_auto_idle_policy(a);
	if (!sampling && !a->sampled)
		a->demand = max(sample, COSCHED_AUTO_DEMAND_NEW);
	else if (sampling)
		a->demand = a->sampled ? (a->demand + sample) / 2 : sample;
	a->sampled |= sampling;
	if (sampling)
		a->turn |= choice->bursts != cosched_auto_bursts(a);
	choice->bursts = a->bursts;
	choice->own = a->demand;
	choice->demand = a->demand;
	return a->light || a->batch;
}

/*
 * How often .cpus is found anew: at every look with less than COSCHED_AUTO_WALK cgroups
 * to walk over, less often with more, but at least every COSCHED_AUTO_WALK_MAX looks.
 */
#define COSCHED_AUTO_WALK	16
#define COSCHED_AUTO_WALK_MAX	10

/* Find where @a may be, and where its memory is. @all: the domains have changed. */
static void cosched_survey_cluster(struct cosched_survey *s, struct cosched_automatic *a,
				   bool all, bool sampling)
{
	struct cosched_auto *choice = &a->choice;
	const struct cpumask *home = cosched_home(cosched_parent(a->cs));
	int cpu;

	a->chosen = choice->demand;
	choice->stays = !sampling && !all && !cosched_auto_is_new(a);
	choice->far = cosched_survey_memory(s, a, sampling);
	if (!choice->far && !choice->home)
		choice->far = cosched_survey_files(s);
	if (all || (int)(s->looks - a->next_cpus) >= 0)
		a->next_cpus = s->looks + min(1 + cosched_auto_cpus(a) / COSCHED_AUTO_WALK,
					      COSCHED_AUTO_WALK_MAX);
	choice->room = NULL;
	if (!cpumask_empty(home) || !cpumask_subset(&s->usable, &a->cpus)) {
		memset(a->room, 0, sizeof(a->room));
		for_each_cpu_and(cpu, &s->usable, &a->cpus) {
			if (cpumask_empty(home) || cpumask_test_cpu(cpu, home))
				a->room[s->domain[cpu]] += arch_scale_cpu_capacity(cpu);
		}
		choice->room = a->room;
	}
}

/*
 * Turns
 *
 * Choosing a home takes ten times as long as adding up a demand, or longer, and few
 * homes change. So with more clusters than COSCHED_AUTO_TURN, only so many have their
 * turn at a look, one after another, and as many batch clusters. In addition, a cluster
 * has its turn if it
 *
 * - is new, has changed what it demands, or has begun or ceased to be batch or to come
 *   in bursts,
 * - has a home that is not exactly one domain: few clusters are due several domains,
 * - is below a cluster that has its turn: to that cluster it is no load.
 *
 * All others are load on the domains where they are, batch clusters to batch clusters
 * only.
 */
#define COSCHED_AUTO_TURN	64

/* The least demand that a cluster counts with, as in cosched_auto_choose(). */
#define COSCHED_AUTO_DEMAND_MIN	(SCHED_CAPACITY_SCALE / 256)

/* Did the demand of @a change enough to matter to the choice? */
static bool cosched_auto_changed(const struct cosched_automatic *a)
{
	u32 least = max(SCHED_CAPACITY_SCALE / 8, a->chosen / 8);

	return abs_diff(a->choice.demand, a->chosen) > least;
}

/* cosched_automatic::part is in fixed point, 1 << COSCHED_AUTO_PART_SHIFT is all. */
#define COSCHED_AUTO_PART_SHIFT	16

/*
 * A cluster demands what those below it demand as well, but not more than it is allowed
 * in all. If that is less, all of them demand so much less, each in proportion: they run
 * by turns, and are no more load than that to others.
 */
static void cosched_auto_nested(struct cosched_survey *s)
{
	const u32 all = 1 << COSCHED_AUTO_PART_SHIFT;
	struct cosched_automatic *a, *above;
	unsigned int depth;

	for (depth = s->depth; depth; depth--) {
		list_for_each_entry(a, &s->clusters, choice.node) {
			if (a->depth != depth)
				continue;
			above = cosched_auto_above(a);
			above->choice.demand += min(a->choice.demand, a->limit);
		}
	}
	for (depth = 0; depth <= s->depth; depth++) {
		list_for_each_entry(a, &s->clusters, choice.node) {
			u32 part = all;

			if (a->depth != depth)
				continue;
			if (depth)
				part = cosched_auto_above(a)->part;
			a->part = part;
			if (a->choice.demand > a->limit) {
				a->part = div_u64((u64)part * a->limit, a->choice.demand);
				a->choice.demand = a->limit;
			}
			if (a->part == all)
				continue;
			a->choice.demand = mul_u64_u32_shr(a->choice.demand, part,
							   COSCHED_AUTO_PART_SHIFT);
			a->choice.own = mul_u64_u32_shr(a->choice.own, a->part,
							COSCHED_AUTO_PART_SHIFT);
		}
	}
}

/*
 * Set cosched_automatic::turn of the clusters whose turn it is, @all: of all. This also
 * updates demands.
 */
static void cosched_auto_turns(struct cosched_survey *s, bool all, bool sampling)
{
	struct cosched_automatic *a, *above;
	unsigned int nr[2] = { };

	/* In the order of their last turns. */
	list_for_each_entry(a, &s->clusters, choice.node) {
		bool batch;

		a->turn = nr[a->choice.batch]++ < COSCHED_AUTO_TURN || all || !a->sampled;
		if (a->turn)
			cosched_survey_limit(a);
		batch = cosched_survey_demand(a, sampling);
		a->turn |= batch != a->choice.batch || !is_power_of_2(a->choice.home);
		a->choice.batch = batch;
		if (!s->depth)
			a->turn |= cosched_auto_changed(a);
	}
	if (!s->depth)
		return;
	cosched_auto_nested(s);
	list_for_each_entry(a, &s->clusters, choice.node)
		a->turn |= cosched_auto_changed(a);
	list_for_each_entry(a, &s->clusters, choice.node) {
		for (above = a; above->choice.parent && !a->turn;) {
			above = cosched_auto_above(above);
			a->turn = above->turn;
		}
	}
}

/* Store the CPUs of the home chosen for @a in @mask. */
static void cosched_auto_mask(struct cosched_survey *s, struct cosched_automatic *a,
			      struct cpumask *mask)
{
	const struct cpumask *home = cosched_home(cosched_parent(a->cs));
	u64 left;

	cpumask_clear(mask);
	for (left = a->choice.home; left; left &= left - 1)
		cpumask_or(mask, mask, &s->span[__ffs64(left)]);
	/* If there is no domain that @a may use, take all CPUs that it may use. */
	if (!cpumask_and(mask, mask, &a->cpus) && !cpumask_and(mask, &cosched_online, &a->cpus))
		cpumask_copy(mask, &cosched_online);
	if (!cpumask_empty(home) && !cpumask_and(mask, mask, home))
		cpumask_copy(mask, home);
}

static void cosched_auto_trace(struct cosched_survey *s, struct cosched_automatic *a, bool new,
			       const struct cpumask *mask)
{
	const struct cosched_auto_change *change = &a->choice.change;
	enum cosched_auto_reason reason = change->reason;
	u64 left, capacity = 0, load = 0;

	/* Others of the same domains, or none of its domains is left. */
	if (new)
		reason = COSCHED_AUTO_NEW;
	else if (!reason || reason == COSCHED_AUTO_NEW)
		reason = COSCHED_AUTO_CPUS;
	for (left = a->choice.home; left; left &= left - 1) {
		capacity += s->machine.capacity[__ffs64(left)];
		load += s->machine.load[__ffs64(left)];
	}
	trace_cosched_home_auto(a->choice.id, a->cs->asked, mask, cosched_auto_reasons[reason],
				change->before, change->after, a->choice.batch, a->choice.demand,
				capacity, load);
}

/* Choose automatic homes. @but is left to the caller to update, as it changes anyway. */
static void cosched_auto_update(bool sampling, struct cosched_css *but)
{
	struct cosched_survey *s = cosched_survey;
	struct cosched_automatic *a, *next;
	struct cosched_machine *m;
	LIST_HEAD(turn);
	bool all;

	lockdep_assert_held(&cosched_mutex);
	if (!s)
		return;
	m = &s->machine;
	if (s->new_tree)
		cosched_survey_tree(s);
	all = cosched_survey_domains(s);
	/* With one CPU, or isolated CPUs only, there is nothing to choose. */
	if (m->nr)
		cosched_survey_load(s);
	s->looks += sampling;
	cosched_auto_turns(s, all, sampling);
	list_for_each_entry_safe(a, next, &s->clusters, choice.node) {
		if (a->turn) {
			if (cosched_auto_is_new(a))
				a->choice.home = a->running;
			else if (all)
				a->choice.home = cosched_auto_domains(s, a);
			cosched_survey_cluster(s, a, all, sampling);
			list_move_tail(&a->choice.node, &turn);
		} else {
			u64 *load = a->choice.batch ? m->batch : m->load;
			u32 own = max(a->choice.own, COSCHED_AUTO_DEMAND_MIN);

			load[__ffs64(a->choice.home)] += own;
		}
	}
	cosched_auto_choose(&turn, m);

	list_for_each_entry(a, &turn, choice.node) {
		struct cosched_css *cs = a->cs;
		bool new = cosched_auto_is_new(a);

		/* Only a regular look changes it: a look between two of them does not count. */
		if (sampling)
			a->alone = a->choice.alone;
		a->choice.alone = a->alone;
		cosched_auto_mask(s, a, &cosched_auto_scratch);
		if (!cpumask_equal(&cosched_auto_scratch, cs->asked)) {
			cosched_auto_trace(s, a, new, &cosched_auto_scratch);
			cpumask_copy(cs->asked, &cosched_auto_scratch);
			if (cs != but)
				cosched_update(cs, NULL);
		}
		/* This is a part of what was chosen, or else all that @a may use. */
		a->choice.home = cosched_auto_domains(s, a);
	}
	list_splice_tail(&turn, &s->clusters);
}

static void cosched_auto_work(struct work_struct *work)
{
	cosched_lock();
	/* After such a pause, by a suspend: frozen tasks demanded nothing, and will again. */
	if (cosched_survey && !cosched_survey_in_time(cosched_survey))
		cosched_survey->loaded = jiffies;
	else
		cosched_auto_update(true, NULL);
	if (cosched_survey)
		queue_delayed_work(system_freezable_power_efficient_wq, &cosched_auto_dwork,
				   COSCHED_AUTO_INTERVAL);
	cosched_unlock();
}

/* Allocate an automatic home for @cs. */
static struct cosched_automatic *cosched_auto_alloc(struct cosched_css *cs)
{
	struct cosched_automatic *a = kzalloc(sizeof(*a), GFP_KERNEL);

	if (a) {
		a->cs = cs;
		a->choice.id = cgroup_id(cs->css.cgroup);
	}
	return a;
}

/* Add an automatic home, and the survey with the first one. */
static int cosched_auto_add(struct cosched_automatic *a)
{
	if (!cosched_survey) {
		cosched_survey = kvzalloc(sizeof(*cosched_survey), GFP_KERNEL);
		if (!cosched_survey)
			return -ENOMEM;
		INIT_LIST_HEAD(&cosched_survey->clusters);
		queue_delayed_work(system_freezable_power_efficient_wq, &cosched_auto_dwork,
				   COSCHED_AUTO_INTERVAL);
	}
	a->next_cpus = cosched_survey->looks;
	a->next_faults = cosched_survey->looks;
	list_add(&a->choice.node, &cosched_survey->clusters);
	cosched_survey->nr_clusters++;
	cosched_survey->new_tree = true;
	return 0;
}

static void cosched_auto_del(struct cosched_automatic *a)
{
	list_del(&a->choice.node);
	cosched_survey->new_tree = true;
	if (!--cosched_survey->nr_clusters) {
		kvfree(cosched_survey);
		cosched_survey = NULL;
	}
}

/*
 * Set what @cs asks for to *@asked, to be chosen by *@automatic if that is not NULL,
 * and set its weights. The former values are swapped into *@asked and *@automatic. If
 * @asked or @weights is NULL, that setting is left alone.
 */
static int cosched_set(struct cosched_css *cs, struct cpumask **asked,
		       struct cosched_automatic **automatic, unsigned int *weights)
{
	struct cosched_cluster *cl = NULL;
	struct cpumask *before;
	unsigned long gp;
	int ret = 0;

	before = kmalloc(cpumask_size(), GFP_KERNEL);
	if (!before)
		return -ENOMEM;

	/*
	 * If the home changed less than a grace period ago, wait here, while no lock is
	 * held that others need.
	 */
	mutex_lock(&cosched_mutex);
	gp = asked && cs->own ? cosched_cluster_gp(cs->own) : get_completed_synchronize_rcu();
	mutex_unlock(&cosched_mutex);
	cond_synchronize_rcu(gp);

	cosched_lock();
	if (cs->offline) {
		ret = -ENODEV;
		goto unlock;
	}
	if (asked && *automatic) {
		if (cs->automatic)	/* it is automatic already */
			goto unlock;
		ret = cosched_auto_add(*automatic);
		if (ret)
			goto unlock;
	}
	if (!cs->own && (asked ? !!*asked : !!weights[0])) {
		cl = cosched_cluster_alloc(cgroup_id(cs->css.cgroup));
		if (!cl) {
			if (asked && *automatic)
				cosched_auto_del(*automatic);
			ret = -ENOMEM;
			goto unlock;
		}
		static_branch_inc_cpuslocked(&cosched_used.key);
	}
	cpumask_copy(before, cosched_home(cs));
	if (cl) {
		cs->own = cl;
		list_add(&cs->owner, &cosched_owners);
	}
	if (asked) {
		swap(cs->asked, *asked);
		swap(cs->automatic, *automatic);
		if (*automatic)
			cosched_auto_del(*automatic);
	}
	if (weights) {
		cs->weights[0] = weights[0];
		cs->weights[1] = weights[1];
	}
	cl = cs->asked || cs->weights[0] ? NULL : cosched_disown(cs);
	if (cs->automatic)
		cosched_auto_update(false, cs);
	cosched_update(cs, before);
	/* Automatic homes within this one may now be cut off, or part of what they may use. */
	if (!cs->automatic && !cpumask_equal(before, cosched_home(cs)))
		cosched_auto_update(false, NULL);
	cosched_drop(cl);
unlock:
	cosched_unlock();
	kfree(before);
	return ret;
}

/*
 * Files
 */

static void cosched_stat_add(struct cosched_stat *sum, const struct cosched_stat *stat)
{
	int i;

	sum->preferred_ns += stat->preferred_ns;
	sum->outside_ns += stat->outside_ns;
	for (i = 0; i < COSCHED_NR_EVENTS; i++)
		sum->events[i] += stat->events[i];
}

/* Strip @buf to one value on one line, or nothing. NULL if there is more than that. */
static char *cosched_one_line(char *buf, size_t nbytes)
{
	if (memchr(buf, '\0', nbytes))
		return NULL;
	buf = strim(buf);
	return strchr(buf, '\n') ? NULL : buf;
}

/* Parse a list of possible CPUs into the zeroed @mask. */
static int cosched_parse_cpus(const char *buf, struct cpumask *mask)
{
	int ret;

	ret = bitmap_parselist(buf, cpumask_bits(mask), nr_cpu_ids);
	/*
	 * The parser adds one to the end of a range before it checks it: for this end
	 * that wraps.
	 */
	if (ret == -EOVERFLOW || (ret == -EINVAL && strstr(buf, "4294967295")))
		return -ERANGE;
	if (ret)
		return ret;
	if (cpumask_empty(mask))
		return -EINVAL;
	return cpumask_subset(mask, cpu_possible_mask) ? 0 : -ERANGE;
}

/* Parse two decimal integers with blanks between them, and nothing else. */
static int cosched_parse_weights(char *buf, unsigned int weights[2])
{
	int i, ret;

	for (i = 0; i < 2; i++) {
		char *word;

		buf = skip_spaces(buf);
		word = strsep(&buf, " \t");
		if (!buf && i == 0)
			return -EINVAL;
		/* kstrtouint() would accept a sign. */
		if (!isdigit(*word))
			return *word == '-' && isdigit(word[1]) ? -ERANGE : -EINVAL;
		ret = kstrtouint(word, 10, &weights[i]);
		if (ret)
			return ret;
		if (weights[i] < COSCHED_WEIGHT_MIN || weights[i] > COSCHED_WEIGHT_MAX)
			return -ERANGE;
	}
	return buf ? -EINVAL : 0;
}

static ssize_t cosched_preferred_write(struct kernfs_open_file *of, char *buf,
				       size_t nbytes, loff_t off)
{
	struct cosched_css *cs = css_cosched(of_css(of));
	struct cosched_automatic *automatic = NULL;
	struct cpumask *mask = NULL;
	int ret = 0;

	buf = cosched_one_line(buf, nbytes);
	if (!buf)
		return -EINVAL;
	if (*buf) {
		mask = kzalloc(cpumask_size(), GFP_KERNEL);
		if (!mask)
			return -ENOMEM;
		if (!strcmp(buf, "auto")) {
			automatic = cosched_auto_alloc(cs);
			if (!automatic)
				ret = -ENOMEM;
		} else {
			ret = cosched_parse_cpus(buf, mask);
		}
	}
	if (!ret)
		ret = cosched_set(cs, &mask, &automatic, NULL);
	kfree(automatic);
	kfree(mask);
	return ret ?: nbytes;
}

static int cosched_preferred_show(struct seq_file *m, void *v)
{
	struct cosched_css *cs = css_cosched(seq_css(m));

	mutex_lock(&cosched_mutex);
	if (cs->automatic)
		seq_puts(m, "auto\n");
	else
		seq_printf(m, "%*pbl\n", cpumask_pr_args(cs->asked ?: cpu_none_mask));
	mutex_unlock(&cosched_mutex);
	return 0;
}

static int cosched_effective_show(struct seq_file *m, void *v)
{
	mutex_lock(&cosched_mutex);
	seq_printf(m, "%*pbl\n", cpumask_pr_args(cosched_home(css_cosched(seq_css(m)))));
	mutex_unlock(&cosched_mutex);
	return 0;
}

static ssize_t cosched_weights_write(struct kernfs_open_file *of, char *buf,
				     size_t nbytes, loff_t off)
{
	unsigned int weights[2] = { };
	int ret = 0;

	buf = cosched_one_line(buf, nbytes);
	if (!buf)
		return -EINVAL;
	if (*buf)
		ret = cosched_parse_weights(buf, weights);
	if (!ret)
		ret = cosched_set(css_cosched(of_css(of)), NULL, NULL, weights);
	return ret ?: nbytes;
}

static int cosched_weights_show(struct seq_file *m, void *v)
{
	unsigned int weights[2];

	mutex_lock(&cosched_mutex);
	cosched_effective_weights(css_cosched(seq_css(m)), weights);
	mutex_unlock(&cosched_mutex);
	seq_printf(m, "%u %u\n", weights[0], weights[1]);
	return 0;
}

/*
 * The cgroup whose figures @cs shows, with those below it: @cs if it has a preference
 * of its own, else the one whose cluster it belongs to.
 */
static struct cosched_css *cosched_shown(struct cosched_css *cs)
{
	return cs->own ? cs : cosched_owner(cs) ?: cs;
}

static int cosched_stat_show(struct seq_file *m, void *v)
{
	static const char * const names[COSCHED_NR_EVENTS] = {
		[COSCHED_WAKEUP_HOME]		= "wakeups_home",
		[COSCHED_WAKEUP_SPILLED]	= "wakeups_spilled",
		[COSCHED_WAKEUP_OVERFLOWED]	= "wakeups_overflowed",
		[COSCHED_STRAY_RETURNED]	= "strays_returned",
		[COSCHED_STRAY_SWAPPED]		= "strays_swapped",
		[COSCHED_TASK_PUSHED]		= "tasks_pushed",
		[COSCHED_TASK_PULLED]		= "tasks_pulled",
		[COSCHED_HOME_CHANGED]		= "home_changes",
	};
	struct cgroup_subsys_state *pos;
	struct cosched_stat sum = { };
	int i;

	mutex_lock(&cosched_mutex);
	rcu_read_lock();
	css_for_each_descendant_pre(pos, &cosched_shown(css_cosched(seq_css(m)))->css) {
		struct cosched_css *cs = css_cosched(pos);

		cosched_stat_add(&sum, &cs->past);
		if (cs->own)
			cosched_cluster_stat(cs->own, &sum);
	}
	rcu_read_unlock();
	mutex_unlock(&cosched_mutex);

	seq_printf(m, "preferred_usec %llu\n", div_u64(sum.preferred_ns, NSEC_PER_USEC));
	seq_printf(m, "outside_usec %llu\n", div_u64(sum.outside_ns, NSEC_PER_USEC));
	for (i = 0; i < COSCHED_NR_EVENTS; i++)
		seq_printf(m, "%s %llu\n", names[i], sum.events[i]);
	return 0;
}

static int cosched_load_show(struct seq_file *m, void *v)
{
	struct cgroup_subsys_state *pos;
	struct cosched_load *loads;
	const struct cpumask *home;
	struct cosched_css *shown;
	int cpu, llc, nr = 0;

	loads = kvcalloc(nr_cpu_ids, sizeof(*loads), GFP_KERNEL);
	if (!loads)
		return -ENOMEM;

	cosched_lock();
	shown = cosched_shown(css_cosched(seq_css(m)));
	home = cosched_home(shown);
	rcu_read_lock();
	css_for_each_descendant_pre(pos, &shown->css) {
		if (!css_cosched(pos)->own)
			continue;
		for_each_online_cpu(cpu)
			cosched_cluster_load(css_cosched(pos)->own, cpu, &loads[cpu]);
	}
	rcu_read_unlock();

	cpumask_copy(&cosched_scratch, cpu_online_mask);
	for_each_online_cpu(llc) {
		struct cosched_load sum = { };
		unsigned int nr_home = 0;
		struct cpumask *span;

		if (!cpumask_test_cpu(llc, &cosched_scratch))
			continue;
		span = &cosched_llc_scratch;
		cosched_llc_cpus(llc, span);
		/* Show each CPU once, although domains may be rebuilt meanwhile. */
		cpumask_and(span, span, &cosched_scratch);
		cpumask_set_cpu(llc, span);
		for_each_cpu(cpu, span) {
			nr_home += cpumask_test_cpu(cpu, home);
			sum.util += loads[cpu].util;
			sum.runnable += loads[cpu].runnable;
		}
		cpumask_andnot(&cosched_scratch, &cosched_scratch, span);
		seq_printf(m, "llc%d cpus=%*pbl home=%u util=%lu runnable=%lu\n", nr++,
			   cpumask_pr_args(span), nr_home, sum.util, sum.runnable);
		for_each_cpu(cpu, span) {
			if (!loads[cpu].util && !loads[cpu].runnable)
				continue;
			seq_printf(m, "cpu%d home=%d util=%lu runnable=%lu\n", cpu,
				   cpumask_test_cpu(cpu, home), loads[cpu].util,
				   loads[cpu].runnable);
		}
	}
	cosched_unlock();
	kvfree(loads);
	return 0;
}

/* As for cpuset.cpus. Longer writes are refused; by default they would be cut. */
#define COSCHED_MAX_WRITE	(100 + 6 * NR_CPUS)

static struct cftype cosched_files[] = {
	{
		.name = "cpus_preferred",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = cosched_preferred_show,
		.write = cosched_preferred_write,
		.max_write_len = COSCHED_MAX_WRITE,
	},
	{
		.name = "cpus_preferred.effective",
		.flags = CFTYPE_NOT_ON_ROOT,
		.file_offset = offsetof(struct cosched_css, effective_file),
		.seq_show = cosched_effective_show,
	},
	{
		.name = "weights",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = cosched_weights_show,
		.write = cosched_weights_write,
		.max_write_len = COSCHED_MAX_WRITE,
	},
	{
		.name = "stat",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = cosched_stat_show,
	},
	{
		.name = "load",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = cosched_load_show,
	},
	{ }	/* terminate */
};

/*
 * Life cycle
 */

static struct cgroup_subsys_state *cosched_css_alloc(struct cgroup_subsys_state *parent)
{
	struct cosched_css *cs;

	cs = kzalloc(sizeof(*cs), GFP_KERNEL);
	if (!cs)
		return ERR_PTR(-ENOMEM);
	if (!parent)
		cosched_root = cs;
	return &cs->css;
}

static int cosched_css_online(struct cgroup_subsys_state *css)
{
	cosched_lock();
	cosched_update_one(css_cosched(css));
	cosched_unlock();
	return 0;
}

/* No live task is left here, and none comes any more. */
static void cosched_css_offline(struct cgroup_subsys_state *css)
{
	struct cosched_css *cs = css_cosched(css);
	struct cosched_cluster *cl;

	cosched_lock();
	cl = cosched_disown(cs);
	if (cs->automatic)
		cosched_auto_del(cs->automatic);
	RCU_INIT_POINTER(cs->cluster, NULL);
	cs->offline = true;
	cosched_stat_add(&cosched_parent(cs)->past, &cs->past);
	memset(&cs->past, 0, sizeof(cs->past));
	cosched_drop(cl);
	cosched_unlock();
}

static void cosched_css_free(struct cgroup_subsys_state *css)
{
	struct cosched_css *cs = css_cosched(css);

	kfree(cs->automatic);
	kfree(cs->asked);
	kfree(cs);
}

static void cosched_attach(struct cgroup_taskset *tset)
{
	struct cgroup_subsys_state *css;
	struct task_struct *task;

	/* The last cluster may go while its tasks are on their way. */
	cgroup_taskset_for_each(task, css, tset) {
		if (cosched_enabled() || READ_ONCE(task->cosched))
			cosched_task_update(task);
	}
}

static void cosched_fork(struct task_struct *task)
{
	if (cosched_enabled())
		cosched_task_update(task);
}

struct cgroup_subsys cosched_cgrp_subsys = {
	.css_alloc	= cosched_css_alloc,
	.css_online	= cosched_css_online,
	.css_offline	= cosched_css_offline,
	.css_free	= cosched_css_free,
	.attach		= cosched_attach,
	.fork		= cosched_fork,
	.exit		= cosched_task_exit,
	.dfl_cftypes	= cosched_files,
	.threaded	= true,
};

static void cosched_cpus_changed(void)
{
	if (!cosched_enabled())
		return;
	/* Homes chosen before a suspend are right again after it. */
	if (!cpuhp_tasks_frozen)
		cosched_auto_update(false, NULL);
	cosched_update(cosched_root, NULL);
}

/* CPU hotplug; the caller has cpus_write_lock(). */
static int cosched_cpu_online(unsigned int cpu)
{
	mutex_lock(&cosched_mutex);
	cpumask_set_cpu(cpu, &cosched_online);
	cosched_cpus_changed();
	mutex_unlock(&cosched_mutex);
	return 0;
}

static int cosched_cpu_offline(unsigned int cpu)
{
	mutex_lock(&cosched_mutex);
	cpumask_clear_cpu(cpu, &cosched_online);
	cosched_cpus_changed();
	mutex_unlock(&cosched_mutex);
	return 0;
}

static int __init cosched_init(void)
{
	int ret = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "cgroup/cosched:online",
				    cosched_cpu_online, cosched_cpu_offline);

	return ret < 0 ? ret : 0;
}
core_initcall(cosched_init);

/*
 * With cgroup.cosched=implicit every cgroup has the files, with no need to enable the
 * controller in cgroup.subtree_control, as for perf_event. This is for hosts whose
 * service manager or container runtime enables only controllers that it knows.
 */
static int __init cosched_setup(char *mode)
{
	if (!strcmp(mode, "implicit"))
		cosched_cgrp_subsys.implicit_on_dfl = true;
	else
		pr_warn("cgroup.cosched=%s: unknown mode, the only one is \"implicit\"\n", mode);
	return 1;
}
__setup("cgroup.cosched=", cosched_setup);

#if IS_ENABLED(CONFIG_CGROUP_COSCHED_KUNIT_TEST)
#include "cosched_test.c"
#endif
