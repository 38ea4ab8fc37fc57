// SPDX-License-Identifier: GPL-2.0
/*
 * Cluster-aware placement of related threads
 *
 * Threads that share data run faster on CPUs that share a cache. A cgroup that
 * sets cosched.cpus_preferred is a cluster of such threads and the CPUs named
 * there are its home. Unlike a cpuset, the home is a preference: a task leaves
 * it rather than let a CPU idle. The idea is from Vaddagiri et al., "Scaling
 * software on multi-core through co-scheduling of related tasks", OLS 2009.
 *
 * Model
 * =====
 *
 * Everything below rests on one comparison. The load of a set S of CPUs is
 * their mean decayed number of runnable fair tasks,
 *
 *	load(S) = \Sum_{c in S} runnable_avg(c) / |S|
 *
 * with PELT's runnable_avg, which counts queues; utilisation saturates at one
 * task per CPU and can't tell a long queue from a short one. A task may leave
 * its home H for a domain D, the CPUs of one LLC that are outside of H, only if
 * D is the cheaper place (rule 4):
 *
 *	preferred * load(H) > allowed * load(D)
 *
 * with the cluster's cosched.weights. The default, 100 150, sends a task away
 * when home is more than half again as loaded as D. The margin is what prevents
 * ping-pong: with all domains equally loaded no task has a reason to move, no
 * matter which CPU is idle for a moment. If the task would queue in D, its own
 * load is added to load(D), so that D is still cheaper once the task is there.
 *
 * Example 1: a home of 4 CPUs with 4 threads that always run, all else idle.
 * load(H) = 1, but a thread that sleeps for a moment finds its own CPU idle and
 * stays. A fifth thread finds no idle CPU at home; load(D) is 0 and
 * 100 * 1 > 150 * 0, so it goes to D.
 *
 * Example 2: two clusters of 8 threads on two domains of 4 CPUs, each domain the
 * home of one cluster. load(H) and load(D) are both 2. 100 * 2 > 150 * 2 is false:
 * a thread that finds no idle CPU at home queues there although a CPU of D may be
 * idle for an instant. With 12 threads against 4 the loads are 3 and 1:
 * 100 * 3 > 150 * 1, and the twelve spill over until 150 * load(D) catches up.
 *
 * Where it is applied
 * ===================
 *
 * Wakeup, fork and exec: cosched_select_cpu(). The choices, in this order:
 *
 * 1. An idle CPU at home, the nearest to the warm data first. A task that runs briefly takes one
 *    below an LLC other than the nearest only if more of home's CPUs are idle there than busy.
 *
 * 2. A stray, that is a task whose previous CPU is outside, stays on that CPU if it is idle. Unless
 *    the stray runs briefly, it stays there even if a home CPU is idle, but not durably idle.
 *
 * 3. A task that runs briefly, for less than half of what a move costs, waits behind another such
 *    task of its cluster if it would be next there and home is busy on average. It does not wait
 *    if leaving was found to cost less (see "Apart").
 *
 * 4. An idle CPU of the nearest domain that is cheaper. For a task that runs briefly, that domain
 *    must not be busy on average.
 *
 * 5. The shortest queue of the cheapest domain, except for a task that its own cluster wakes.
 *
 * 6. Otherwise a queue at home: that of the CPU where the data is warm. A task that does not run
 *    briefly, and is not woken by its own cluster, takes another one that is much shorter.
 *
 * Exceptions to this order:
 *
 * - Before it waits or leaves (3 and later), a task that runs briefly takes a home CPU that only
 *   a stray of another cluster uses, if the stray computes. cosched_goes_first() lets the task
 *   preempt the stray, which has a home of its own.
 *
 * - Before that, if the cluster keeps a domain outside busy as well as home, a task that its own
 *   cluster wakes there stays in that domain: cosched_settled().
 *
 * - Before all of this, a cluster that overruns the machine, or tries what that does to it (see
 *   "Bursts"), has all of the machine as its home. A task that its own cluster wakes then is
 *   placed as without a home. Where the cluster overruns the machine, the task goes to its waker's
 *   domain if that has no more to do: cosched_gather().
 *
 * Load balancer: cosched_can_migrate().
 *
 * - A move into home is allowed even if the task is cache hot.
 *
 * - An idle CPU takes a task out of home only if home has no idle CPU (unless balancing keeps
 *   failing), and one at a time. The idle CPU has to be durably idle and, where leaving is dear,
 *   to have been so for four looks, or its domain has to be cheaper. Any idle CPU will do for a
 *   task of the idle class that runs for long at a time.
 *
 * - A busy CPU takes a task out of home only if its domain is cheaper.
 *
 * - A task that runs alone on its CPU is not pushed out, unless interrupts or other classes take a
 *   fifth or more of that CPU.
 *
 * - A CPU that would idle, and for which the balancer has found nothing, takes a task that waits
 *   on another CPU of the same home, if that home has several LLC domains: cosched_waiting_cpu().
 *
 * Tick: cosched_tick().
 *
 * - A running stray returns when a home CPU is durably idle. If none is, it swaps places with a
 *   task that runs at the stray's home without being at home there; or it goes to a queue at home
 *   that is shorter than its own, if home is no dearer with the stray in it. Unless it swaps, it
 *   takes along the tasks of its cluster that wait on the same CPU.
 *
 * - A task whose CPU other tasks wait for moves to a durably idle CPU. If the task is at home now,
 *   that CPU has to be in a cheaper domain, or nobody may have used it for four looks, or for more
 *   by the ratio of the weights. The balancer would move the task too, but later: it waits for
 *   utilisation, which takes 100 ms to grow, and longer still after a while with nothing to do.
 *   So the task also goes to a CPU of its own home, if that is below another LLC and nobody has
 *   used it for four looks.
 *
 * - Running tasks can only be moved by the stopper threads. So the task itself asks for the move,
 *   in a task work when it next returns to user mode.
 *
 * NUMA balancing: cosched_leaves_home(). It moves no task out of its home, not even to swap places
 * with another task. Pages follow the CPUs that use them, as they do without cosched. So memory
 * comes to a home, and an automatic home goes to the memory, by cosched_task_faults(). No task
 * goes back and forth between the two.
 *
 * Hard limits win: cpus_ptr and with it cpusets, CPUs without a sched domain
 * (isolated), core scheduling cookies, capacity on asymmetric systems. The
 * energy-aware wakeup and WF_CURRENT_CPU decide before cosched is asked. Only
 * the fair class calls in here.
 *
 * When two strays swap and both come home by that, the cookies of other strays on their cores are
 * ignored. Otherwise a core full of strays, each bound to the others by its cookie, would never
 * change hands.
 *
 * Load tracking
 * =============
 *
 * struct cosched_cpu has the load of one cluster on one CPU: the number of
 * runnable tasks and how long tasks ran, decayed with PELT's half-life of 32
 * periods of 1024 us. Windows are aligned to the run queue's task clock, so
 * that the time stamp itself has the position in the current window. The load
 * is updated when a task of the cluster is enqueued or dequeued and at ticks,
 * when the cluster is charged for what the task's sum_exec_runtime grew by. A
 * reader decays it up to now.
 *
 * load(D) is needed for all tasks, in clusters or not. It is computed from the
 * run queues' own averages at the first wakeup in a jiffy that asks for it, and
 * kept in sched_domain_shared. load(H) is kept likewise in struct cosched_home,
 * together with whether any domain is cheaper. Once a jiffy is enough, as the
 * averages move by 2 % in a millisecond at most. No other loop over CPUs is
 * needed to compare domains.
 *
 * A wakeup looks at eight domains outside of home at most, and in a home of many
 * domains at as many CPUs as eight domains have: COSCHED_WAKE_LLCS.
 *
 * Locking and lifetime
 * ====================
 *
 * cosched_mutex (kernel/cgroup/cosched.c) serialises all changes of clusters.
 *
 * p->cosched, the cluster of a task, changes under task_rq_lock() only, in
 * cosched_task_update() and cosched_task_exit(). So holding p's rq lock or
 * pi_lock keeps it stable. p->cosched holds a reference to the cluster.
 * p->cosched_queued, whether the task is counted in nr_runnable of its cluster
 * on its CPU, changes under p's rq lock.
 *
 * cosched_task_update() reads from a task's css which cluster it belongs to. It
 * is called after each event that may change that: after fork linked the task to
 * its css_set, after a migration between cgroups switched its css_set, and for
 * each task of a cgroup whose cluster changed. The events may race. Each stores
 * its change before it calls, and the calls are serialised by the task's lock, so
 * the last one sees everything. A task in the middle of a wakeup is covered by pi_lock.
 *
 * A dying task leaves its css_set's list before it is off the run queue for
 * good. A walk of the cgroup's tasks no longer finds it, so its cluster must
 * not depend on the cgroup: the task's reference keeps the cluster, and
 * cosched_task_exit(), called from cgroup_exit(), drops the reference. The task
 * itself sets PF_EXITING before that. This keeps a walker that found the task
 * earlier from giving it a cluster again.
 *
 * Another CPU's running task, its cluster and any cluster's home may be read in
 * an RCU read section: tasks and clusters are freed after a grace period.
 * A home is replaced as a whole. Its predecessor is kept as the buffer for the
 * next change, which first waits for a grace period. So neither a write to a
 * file nor CPU hotplug can fail half way for lack of memory.
 *
 * struct cosched_apart, struct cosched_trial, cosched_cluster::overruns, talks, bursts, full and
 * dear are written by one wakeup at a time: the one that holds the bit lock
 * cosched_cluster::reviewing, with interrupts off. No other wakeup waits for the lock. A reader
 * without the lock sees each value as before or as after the change.
 * cosched_cluster::slept is written without a lock, by tasks that go to sleep and by looks at
 * automatic homes; these write .sleeps and .sampled as well, under cosched_mutex.
 * cosched_cluster::queue_reviewed is written by the wakeup whose cmpxchg() of queue_seen succeeds
 * in that jiffy. cosched_cluster::runs are changed by atomic operations.
 *
 * struct cosched_cpu is protected by its CPU's rq lock. Exceptions are events[],
 * which only that CPU writes, with interrupts off, and racy reads.
 *
 * Waiting tasks are moved under the rq locks of both CPUs, taken by double_rq_lock(), or by
 * double_lock_balance() in the callback that fetches them after a switch.
 *
 * Lock order: cpus_read_lock > cosched_mutex > sched_domains_mutex,
 * cosched_mutex > p->pi_lock > rq->lock.
 */
#include <linux/cosched.h>
#include <linux/mmu_context.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/task_work.h>

#include "sched.h"
#include "sched-pelt.h"
#include "cosched.h"

#define CREATE_TRACE_POINTS
#include <trace/events/cosched.h>

DEFINE_STATIC_KEY_DEFERRED_FALSE(cosched_used, HZ);

/*
 * The first CPU of each LLC domain. Updated at every rebuild of the domains, by
 * hotplug or by cpuset partitions. A CPU without an LLC domain counts as its own;
 * a CPU without any sched domain, offline or isolated, is not in here.
 */
static struct cpumask cosched_llcs;

/* Load of one cluster on one CPU. */
struct cosched_cpu {
	u64	last;		/* rq_clock_task() up to which runnable_sum is decayed */
	u64	exec;		/* ns run here since the home last changed */
	u32	runnable_sum;	/* decayed us times runnable tasks; 65535 tasks fit */
	u16	util_sum;	/* decayed us in which a task of the cluster ran */
	u16	nr_runnable;
	u16	nr_idle_policy;	/* of .nr_runnable, SCHED_IDLE tasks */
	u16	events[COSCHED_NR_BATCHED];	/* not yet in cosched_cluster::events */
};

static_assert(sizeof(struct cosched_cpu) <= 32);
static_assert(LOAD_AVG_MAX <= U16_MAX);

/* All that a remote wakeup writes is in one cache line. */
#define COSCHED_CPU_ALIGN	32

/* Flush an element of events[] when it has counted that many, half of what fits. */
#define COSCHED_EVENT_BATCH	32768

/*
 * The kind of task for which the load of a CPU is asked. A CPU that has only
 * tasks of the idle class is idle for a normal task, as it is in a wakeup
 * without clusters, and busy for a task of the idle class.
 */
enum cosched_asker {
	COSCHED_ASKER_NORMAL,
	COSCHED_ASKER_IDLE_CLASS,
	COSCHED_NR_ASKERS,
};

/* A domain outside is cheaper than home; on average it is not busy (calm), or it is busy. */
#define COSCHED_CHEAPER_CALM	BIT(0)
#define COSCHED_CHEAPER_BUSY	BIT(1)

/*
 * For how long strays count as present after they were last seen. When tasks that are at home run
 * on all CPUs of home for an instant, strays wait and are not seen. If they counted as gone, the
 * next task at home that has to wait would wait for a slice of a stray.
 */
#define COSCHED_STRAYS_KEPT	max(HZ / 64, 2)

struct cosched_home {
	unsigned long	stamp[COSCHED_NR_ASKERS];	/* jiffies of .load */
	unsigned long	load[COSCHED_NR_ASKERS];	/* sum of the CPUs' runnable averages */
	unsigned long	outside_stamp[COSCHED_NR_ASKERS];	/* jiffies of .cheaper */
	u8		cheaper[COSCHED_NR_ASKERS];	/* COSCHED_CHEAPER_* */
	unsigned long	strays;		/* jiffies when strays were last seen to compute here */
	unsigned int	nr;		/* CPUs in .mask, 0: there is no home */
	unsigned int	nr_used;	/* of these CPUs, how many .load sums; at least 1 */
	int		from;		/* a CPU: look at LLC domains outside from here on */
	unsigned long	mask[];
};

/* Whether tasks that run briefly leave home rather than wait there. Times are in jiffies. */
struct cosched_apart {
	unsigned long	from;		/* since when they leave */
	unsigned long	lasts;		/* for how long from then on; 0: they do not leave */
	unsigned long	next;		/* for how long the next time */
	unsigned long	reviewed;	/* when the cluster was last reviewed */
	unsigned int	nr_reviews;	/* since the tasks last gathered at home */
};

/* See "Bursts". */
enum cosched_trial_phase {
	COSCHED_TRIAL_NONE,
	COSCHED_TRIAL_HOME,		/* how long do runs at home take? */
	COSCHED_TRIAL_SETTLE,		/* all of the machine is home, and caches fill */
	COSCHED_TRIAL_SPREAD,		/* how long do runs take then? */
};

struct cosched_trial {
	unsigned long	from;		/* jiffies when the phase began, or the trial ended */
	unsigned long	wait;		/* jiffies from then to the next trial, at least */
	u32		run[2];		/* mean runs at home and then, in us; 0: not known */
	u8		phase;
	u8		found;		/* reviews in a row that call for a trial */
	bool		passed;		/* whether the last trial passed */
};

/* Runs outside count as at most so many times as long as at home; see cosched_cheaper(). */
#define COSCHED_LONGER_MAX	(2 * SCHED_CAPACITY_SCALE)

/* How long a cluster is apart, at least and at most. */
#define COSCHED_APART_MIN	(HZ / 4)
#define COSCHED_APART_MAX	(4 * HZ)

/* How long a phase of a trial takes, the pause between two trials, how long a verdict holds. */
#define COSCHED_TRIAL_PHASE	max(HZ / 20, 1)
#define COSCHED_TRIAL_MIN	HZ
#define COSCHED_TRIAL_MAX	(64 * HZ)
#define COSCHED_TRIAL_HOLDS	(HZ / 4)

/*
 * So many sleeps between two samples are taken to be one of each task, however many tasks there
 * are; and how far samples are apart at least. Not to write to a shared cache line at each sleep.
 */
#define COSCHED_SLEEPS_MAX	64U
#define COSCHED_SLEEPS_INTERVAL	max(HZ / 20, 1)

struct cosched_cluster {
	struct cosched_home		*spare;		/* the previous home, see above */
	unsigned long			spare_gp;
	atomic64_t			preferred_ns;	/* with previous homes */
	atomic64_t			outside_ns;
	atomic64_t			events[COSCHED_NR_EVENTS];
	struct rcu_head			rcu;
	/* .ref is written by forks and exits, .runs by tasks that go to sleep. */
	refcount_t			ref;
	atomic64_t			runs[2];	/* COSCHED_RUNS_ONE(): at home, outside */

	/* Read by each wakeup and rarely written: not in one cache line with the above. */
	struct cosched_home __rcu	*home ____cacheline_aligned_in_smp;
	struct cosched_cpu __percpu	*cpu;
	u32				weights;	/* preferred << 16 | allowed */
	u16				dear;		/* (run outside / run at home)^2 */
	u8				overruns;	/* reviews in a row that found an overrun */
	u8				talks;		/* reviews by own wakeups, less others */
	u8				bursts;		/* reviews in a row that found bursts */
	bool				full;		/* whether others need all other CPUs */
	u8				slept;		/* sleeps since .sampled, limited */
	u8				sleeps;		/* sleeps up to .sampled */
	unsigned long			sampled;	/* jiffies when .slept was begun */
	struct cosched_apart		apart;
	struct cosched_trial		trial;
	unsigned long			reviewing;	/* bit 0: a review is in progress */
	unsigned long			asked;		/* jiffies when demand was asked for */
	unsigned long			queue_seen;	/* when a long queue at home was seen */
	unsigned long			queue_reviewed;	/* and when it caused a review */
	u64				cgroup_id;
	unsigned long			active[];	/* CPUs that may have load of the cluster */
};

/*
 * @val * y^n with y^32 = 1/2, as in pelt.c. The functions there are inlined where
 * ticks and wakeups need them; sharing them would cost every tick 17 instructions.
 */
static u64 decay_load(u64 val, u64 n)
{
	if (unlikely(n > LOAD_AVG_PERIOD * 63))
		return 0;
	return mul_u64_u32_shr(val >> (n / LOAD_AVG_PERIOD),
			       runnable_avg_yN_inv[n % LOAD_AVG_PERIOD], 32);
}

static inline struct cpumask *home_mask(struct cosched_home *home)
{
	return to_cpumask(home->mask);
}

/* Forget what is cached of @home: the next caller that needs its load sums it up again. */
static void cosched_home_expire(struct cosched_home *home)
{
	int i;

	home->strays = jiffies - COSCHED_STRAYS_KEPT - 1;
	for (i = 0; i < COSCHED_NR_ASKERS; i++) {
		home->stamp[i] = jiffies - 1;
		home->outside_stamp[i] = jiffies - 1;
	}
}

static struct cosched_home *cosched_home_alloc(void)
{
	struct cosched_home *home;

	home = kzalloc(sizeof(*home) + cpumask_size(), GFP_KERNEL);
	if (home)
		cosched_home_expire(home);
	return home;
}

/**
 * cosched_cluster_alloc() - Create a cluster that has no home yet.
 * @cgroup_id: id of the cgroup, for tracing
 *
 * Return: the cluster with one reference, or NULL if there is no memory.
 */
struct cosched_cluster *cosched_cluster_alloc(u64 cgroup_id)
{
	struct cosched_cluster *cl;
	struct cosched_home *home;

	cl = kzalloc(sizeof(*cl) + cpumask_size(), GFP_KERNEL);
	if (!cl)
		return NULL;
	home = cosched_home_alloc();
	cl->spare = cosched_home_alloc();
	cl->cpu = __alloc_percpu(sizeof(struct cosched_cpu), COSCHED_CPU_ALIGN);
	if (!home || !cl->spare || !cl->cpu) {
		free_percpu(cl->cpu);
		kfree(cl->spare);
		kfree(home);
		kfree(cl);
		return NULL;
	}
	RCU_INIT_POINTER(cl->home, home);
	refcount_set(&cl->ref, 1);
	cl->cgroup_id = cgroup_id;
	cl->apart.reviewed = jiffies;
	cl->apart.next = COSCHED_APART_MIN;
	cl->trial.wait = COSCHED_TRIAL_MIN;
	cl->trial.from = jiffies - COSCHED_TRIAL_MIN;
	cl->dear = SCHED_CAPACITY_SCALE;
	cl->spare_gp = get_completed_synchronize_rcu();
	cosched_cluster_set_weights(cl, COSCHED_WEIGHT_PREFERRED, COSCHED_WEIGHT_ALLOWED);
	return cl;
}

static void cosched_cluster_free_rcu(struct rcu_head *rcu)
{
	struct cosched_cluster *cl = container_of(rcu, struct cosched_cluster, rcu);

	free_percpu(cl->cpu);
	kfree(cl->spare);
	kfree(rcu_access_pointer(cl->home));
	kfree(cl);
}

bool cosched_cluster_tryget(struct cosched_cluster *cl)
{
	return refcount_inc_not_zero(&cl->ref);
}

void cosched_cluster_put(struct cosched_cluster *cl)
{
	if (cl && refcount_dec_and_test(&cl->ref))
		call_rcu(&cl->rcu, cosched_cluster_free_rcu);
}

void cosched_cluster_set_weights(struct cosched_cluster *cl, unsigned int preferred,
				 unsigned int allowed)
{
	/* One store, so that a wakeup sees both weights of the same write. */
	WRITE_ONCE(cl->weights, preferred << 16 | allowed);
}

/**
 * cosched_cluster_home() - The home of a cluster.
 * @cl: the cluster
 *
 * Return: its home, valid as long as the caller holds cosched_mutex.
 */
const struct cpumask *cosched_cluster_home(struct cosched_cluster *cl)
{
	return home_mask(rcu_dereference_protected(cl->home, true));
}

/* The grace period after which the buffer for the next home is free, for cond_synchronize_rcu(). */
unsigned long cosched_cluster_gp(struct cosched_cluster *cl)
{
	return cl->spare_gp;
}

/* Add the time run on @cpu to a total: that at home if @cpu was home until now, @preferred. */
static void cosched_fold_exec(struct cosched_cluster *cl, int cpu, bool preferred)
{
	struct cosched_cpu *cc = per_cpu_ptr(cl->cpu, cpu);
	struct rq *rq = cpu_rq(cpu);
	struct rq_flags rf;

	rq_lock_irqsave(rq, &rf);
	atomic64_add(cc->exec, preferred ? &cl->preferred_ns : &cl->outside_ns);
	cc->exec = 0;
	rq_unlock_irqrestore(rq, &rf);
}

/**
 * cosched_cluster_set_home() - Publish a new home.
 * @cl: the cluster
 * @mask: its home from now on, online CPUs only; may be empty
 *
 * The caller holds cosched_mutex. May wait for a grace period if the home changed
 * just before. Never fails.
 *
 * Return: whether the new home differs from the previous one.
 */
bool cosched_cluster_set_home(struct cosched_cluster *cl, const struct cpumask *mask)
{
	struct cosched_home *old = rcu_dereference_protected(cl->home, true);
	struct cosched_home *new = cl->spare;
	int cpu;

	if (cpumask_equal(home_mask(old), mask))
		return false;

	cond_synchronize_rcu(cl->spare_gp);
	cpumask_copy(home_mask(new), mask);
	new->nr = cpumask_weight(mask);
	cosched_home_expire(new);

	for_each_possible_cpu(cpu) {
		bool was = cpumask_test_cpu(cpu, home_mask(old));

		if (was != cpumask_test_cpu(cpu, mask))
			cosched_fold_exec(cl, cpu, was);
	}
	rcu_assign_pointer(cl->home, new);
	cl->spare = old;
	cl->spare_gp = get_state_synchronize_rcu();

	atomic64_inc(&cl->events[COSCHED_HOME_CHANGED]);
	trace_cosched_home(cl->cgroup_id, mask);
	return true;
}

/*
 * Load of a cluster
 */

/* Decayed microseconds of the time span [@from, @to), both in units of 1024 ns. */
static u32 cosched_contrib(u64 from, u64 to)
{
	u64 periods = (to >> 10) - (from >> 10);

	if (!periods)
		return to - from;
	/* The first period, the whole periods in between, the current period. */
	return decay_load(1024 - (from & 1023), periods) +
	       LOAD_AVG_MAX - decay_load(LOAD_AVG_MAX, periods) - 1024 +
	       (to & 1023);
}

/* Bring @cc up to @now; nr_runnable did not change since cc->last. */
static void cosched_advance(struct cosched_cpu *cc, u64 now)
{
	u64 from = cc->last >> 10, to = now >> 10;
	u64 periods;

	if (unlikely(to <= from))
		return;
	periods = (to >> 10) - (from >> 10);
	if (periods) {
		cc->util_sum = decay_load(cc->util_sum, periods);
		cc->runnable_sum = decay_load(cc->runnable_sum, periods);
	}
	if (cc->nr_runnable)
		cc->runnable_sum += cc->nr_runnable * cosched_contrib(from, to);
	cc->last = to << 10;
}

static void cosched_load_avg(const struct cosched_cpu *cc, struct cosched_load *load)
{
	/* The sum that a task that always ran would have, as get_pelt_divider(). */
	u32 divider = LOAD_AVG_MAX - 1024 + ((cc->last >> 10) & 1023);

	load->util = min_t(u64, SCHED_CAPACITY_SCALE,
			   div_u64((u64)cc->util_sum << SCHED_CAPACITY_SHIFT, divider));
	load->runnable = div_u64((u64)cc->runnable_sum << SCHED_CAPACITY_SHIFT, divider);
}

/*
 * The total time that @p has run, up to @now. While @p runs, sum_exec_runtime has the
 * time up to exec_start only; the next update_curr() adds the rest.
 */
static u64 cosched_sum_exec(struct rq *rq, struct task_struct *p, u64 now)
{
	u64 sum = p->se.sum_exec_runtime;

	/* Not where it runs on behalf of another task: exec_start may be from before that. */
	if (task_current(rq, p) && task_current_donor(rq, p) &&
	    (s64)(now - p->se.exec_start) > 0)
		sum += now - p->se.exec_start;
	return sum;
}

/* A task ran for @delta until @now. The sum is limited in case clocks go backwards. */
static void cosched_add_util(struct cosched_cpu *cc, u64 now, u64 delta)
{
	u32 sum = cc->util_sum + cosched_contrib((now - delta) >> 10, now >> 10);

	cc->util_sum = min_t(u32, sum, LOAD_AVG_MAX);
}

/* Charge the cluster of @p for the time that @p ran since the last charge. */
static void cosched_charge(struct rq *rq, struct task_struct *p, struct cosched_cpu *cc)
{
	u64 now = rq_clock_task(rq), sum = cosched_sum_exec(rq, p, now);
	s64 delta = max((s64)(sum - p->cosched_charged), 0);

	cosched_advance(cc, now);
	cosched_add_util(cc, now, delta);
	cc->exec += delta;
	p->cosched_charged = sum;
}

static bool cosched_counts(struct task_struct *p)
{
	return p->sched_class == &fair_sched_class && !p->se.sched_delayed;
}

/*
 * How long a task runs between two sleeps, in units of 1024 ns: a mean that forgets
 * half in 22 wakeups. Runs longer than the maximum are not told apart. A task that has
 * never slept is taken to run for the maximum. That is soon forgotten: run K of the
 * first runs counts for 2 / (K + 2), so that 2 / ((K + 1) * (K + 2)) of the maximum is
 * left after it.
 */
#define COSCHED_RUN_MAX		((u32)(8 * NSEC_PER_MSEC >> 10))
#define COSCHED_MEAN_RUNS	62U

static u32 cosched_mean_run(u32 mean, u32 run, unsigned int nr)
{
	int diff = (int)min(run, COSCHED_RUN_MAX) - (int)mean;

	return mean + 2 * diff / (int)(min(nr, COSCHED_MEAN_RUNS) + 2);
}

/*
 * Does @p run for much less time than a move costs it? task_hot() has a figure for that
 * cost. Half of it separates tasks that locks put to sleep all the time from tasks that
 * compute and sleep on a lock now and then.
 */
static bool cosched_runs_briefly(struct task_struct *p)
{
	return READ_ONCE(p->cosched_brief);
}

static void cosched_set_run(struct task_struct *p, u32 run)
{
	bool brief = (u64)run << 10 < sysctl_sched_migration_cost / 2;

	p->cosched_run = run;
	/* Each waker of @p reads this, so write it only if it changed. */
	if (p->cosched_brief != brief)
		WRITE_ONCE(p->cosched_brief, brief);
}

/*
 * Has @p, which may run on any CPU, run for so long since it last slept that the end of its run is
 * not worth waiting for? As of the last tick.
 */
static bool cosched_runs_on(struct task_struct *p)
{
	/* data_race(): a torn read makes one guess wrong. */
	u32 now = data_race(p->cosched_charged) >> 10;

	return now - READ_ONCE(p->cosched_slept) > COSCHED_RUN_MAX / 2;
}

/* Jiffies between two reviews of a cluster, and the number of reviews before the first verdict. */
#define COSCHED_REVIEW_INTERVAL	max(HZ / 128, 1)
#define COSCHED_REVIEWS		4
/* The same before a cluster is apart again. */
#define COSCHED_REVIEWS_AGAIN	(COSCHED_REVIEWS / 2)
/* A mean is taken from at least so many runs, at home and outside each. */
#define COSCHED_REVIEW_RUNS	12

/* One in so many brief runs at home is sampled. */
#define COSCHED_RUNS_SAMPLED	8

/* Runs: their number in the low bits and their sum in us above it, which change together. */
#define COSCHED_RUNS_SHIFT	24
#define COSCHED_RUNS_ONE(us)	((u64)(us) << COSCHED_RUNS_SHIFT | 1)
#define COSCHED_RUNS_SUM(runs)	((u64)(runs) >> COSCHED_RUNS_SHIFT)
#define COSCHED_RUNS_NR(runs)	((u32)(runs) & (BIT(COSCHED_RUNS_SHIFT) - 1))

/* See "Apart". */
static bool cosched_apart(struct cosched_cluster *cl)
{
	return jiffies - READ_ONCE(cl->apart.from) < READ_ONCE(cl->apart.lasts);
}

/* Was @cl reviewed so recently that the findings still hold? */
static bool cosched_reviewed(struct cosched_cluster *cl)
{
	return jiffies - READ_ONCE(cl->apart.reviewed) <=
	       COSCHED_REVIEWS * COSCHED_REVIEW_INTERVAL;
}

/*
 * See "Bursts". Tasks come in bursts once that many reviews in a row found it, each from at least
 * so many runs at home and outside.
 */
#define COSCHED_BURSTS_REVIEWS	3
#define COSCHED_BURSTS_RUNS	(COSCHED_REVIEW_RUNS / 2)

/*
 * See "Overrun". A cluster overruns the machine once that many reviews in a row found it. After one
 * more, a single review that does not find it changes nothing: see cosched_count_overruns().
 */
#define COSCHED_OVERRUN_REVIEWS	2
#define COSCHED_OVERRUN_MAX	(COSCHED_OVERRUN_REVIEWS + 1)
/* Tasks talk if so many more reviews are by a wakeup from their own cluster than by others. */
#define COSCHED_TALKS		COSCHED_OVERRUN_REVIEWS
#define COSCHED_TALKS_MAX	(COSCHED_TALKS + 1)

/* Did @cl overrun the machine when it was last reviewed, not long ago? */
static bool cosched_overruns(struct cosched_cluster *cl)
{
	return READ_ONCE(cl->overruns) >= COSCHED_OVERRUN_REVIEWS && cosched_reviewed(cl);
}

/* Is all of the machine the home of @cl, because it overruns the machine or in a trial? */
static bool cosched_everywhere(struct cosched_cluster *cl)
{
	return cosched_overruns(cl) || (READ_ONCE(cl->trial.phase) >= COSCHED_TRIAL_SETTLE &&
					cosched_reviewed(cl));
}

/* Does @cl overrun the machine with tasks that wake each other? They move as without a home. */
static bool cosched_hands_off(struct cosched_cluster *cl)
{
	return READ_ONCE(cl->talks) >= COSCHED_TALKS && cosched_overruns(cl);
}

/* See "Dear". */
static bool cosched_full(struct cosched_cluster *cl)
{
	return READ_ONCE(cl->full) && cosched_reviewed(cl);
}

/*
 * @p ran for @run us and goes to sleep. Runs matter only while the cluster is reviewed, because its
 * home is busy, or full at times. They are sampled from tasks that run briefly and, if the machine
 * is full, from all tasks whose runs have an end, within COSCHED_RUN_MAX / 2 on average. Brief
 * runs at home are many: not all of them are needed, except in a trial. While the cluster is apart,
 * or overruns the machine, no mean decides anything.
 */
static void cosched_sample_run(struct task_struct *p, u32 run)
{
	struct cosched_cluster *cl = p->cosched;
	struct cosched_home *home;
	unsigned int trial = READ_ONCE(cl->trial.phase);
	bool outside, brief;

	if (jiffies - READ_ONCE(cl->apart.reviewed) > 3 * COSCHED_REVIEW_INTERVAL ||
	    cosched_apart(cl) || (cosched_everywhere(cl) && !trial))
		return;
	brief = cosched_runs_briefly(p);
	if (!brief && !(cosched_full(cl) && p->cosched_run <= COSCHED_RUN_MAX / 2))
		return;
	/* Interrupts are off, which makes this an RCU read section. */
	home = rcu_dereference_sched(cl->home);
	outside = trial >= COSCHED_TRIAL_SETTLE || !cpumask_test_cpu(task_cpu(p), home_mask(home));
	if (outside || trial || !brief || p->cosched_slept % COSCHED_RUNS_SAMPLED == 0)
		atomic64_add(COSCHED_RUNS_ONE(min(run, COSCHED_RUN_MAX)), &cl->runs[outside]);
}

/* @p goes to sleep, and has been charged for all the time it ran. */
static void cosched_update_run(struct task_struct *p)
{
	u32 now = p->cosched_charged >> 10, run = now - p->cosched_slept;
	unsigned int slept = READ_ONCE(p->cosched->slept);

	p->cosched_nr_runs += p->cosched_nr_runs < COSCHED_MEAN_RUNS;
	cosched_set_run(p, cosched_mean_run(p->cosched_run, run, p->cosched_nr_runs));
	p->cosched_slept = now;
	/* Not atomic: that one of two is lost does not matter. */
	if (slept < COSCHED_SLEEPS_MAX)
		WRITE_ONCE(p->cosched->slept, slept + 1);
	cosched_sample_run(p, run);
}

/*
 * Mark @cpu for functions that look at the load of a cluster on all CPUs. One of them,
 * cosched_cluster_demand(), does so without a lock and may clear the bit just when it is
 * set here. The next tick sets it again.
 */
static void cosched_mark_active(struct cosched_cluster *cl, int cpu)
{
	if (!cpumask_test_cpu(cpu, to_cpumask(cl->active)))
		cpumask_set_cpu(cpu, to_cpumask(cl->active));
}

/* The CPUs that placement takes for the home of @cl. */
static const struct cpumask *cosched_home_span(struct cosched_cluster *cl,
					       struct cosched_home *home)
{
	return cosched_everywhere(cl) ? cpu_online_mask : home_mask(home);
}

/*
 * Is @p, which runs on @cpu, a stray there that will not be gone soon? Not if it is realtime for
 * now: then no fair task goes before it. Called in an RCU read section.
 */
static bool cosched_long_stray(struct task_struct *p, int cpu)
{
	struct cosched_cluster *cl = READ_ONCE(p->cosched);
	struct cosched_home *home = cl ? rcu_dereference(cl->home) : NULL;

	return home && home->nr && !cpumask_test_cpu(cpu, cosched_home_span(cl, home)) &&
	       READ_ONCE(p->sched_class) == &fair_sched_class && cosched_runs_on(p);
}

/* Have strays been seen to compute at @home lately? */
static bool cosched_home_strays(struct cosched_home *home)
{
	return jiffies - READ_ONCE(home->strays) <= COSCHED_STRAYS_KEPT;
}

/*
 * Does @p, new on @rq, go before tasks that are not at home there? It does if it runs briefly and
 * is at home there.
 * Return: 2 if it goes before the running task, a stray that computes; 1 if it goes before strays
 * that wait, after the running task, which is of its own cluster; else 0.
 */
static int cosched_goes_first(struct rq *rq, struct task_struct *p)
{
	struct cosched_cluster *cl = p->cosched;
	struct cosched_home *home;
	struct task_struct *curr;
	int first = 0;

	if (!cosched_runs_briefly(p) || cosched_everywhere(cl))
		return 0;
	rcu_read_lock();
	curr = rcu_dereference(rq->curr);
	home = rcu_dereference(cl->home);
	if (!cpumask_test_cpu(cpu_of(rq), home_mask(home)))
		goto out;
	if (READ_ONCE(curr->cosched) != cl)
		first = cosched_long_stray(curr, cpu_of(rq)) ? 2 : 0;
	else if (cosched_home_strays(home))
		first = READ_ONCE(rq->cfs.h_nr_runnable) >
			READ_ONCE(per_cpu_ptr(cl->cpu, cpu_of(rq))->nr_runnable);
out:
	rcu_read_unlock();
	return first;
}

/*
 * See cosched_preempts_stray(). Called without the run queue's lock: @cpu may have switched to
 * another task by the time @p is enqueued. If no strays compute at home, nothing of @cpu is read.
 */
bool __cosched_preempts_stray(struct task_struct *p, int cpu)
{
	guard(rcu)();

	return cosched_home_strays(rcu_dereference(p->cosched->home)) &&
	       cosched_goes_first(cpu_rq(cpu), p) == 2;
}

/*
 * May tasks of a cluster run ahead of their shares here? If they used less than half of the CPU,
 * strays had more of it, and soon will again. If they use up their share, a stray that they kept
 * waiting would be the only eligible task, for a slice each time: beside four such tasks, a stray
 * had 48 % of a CPU.
 */
static bool cosched_leaves_room(const struct cosched_cpu *cc)
{
	return cc->util_sum < LOAD_AVG_MAX / 2;
}

void __cosched_enqueue(struct rq *rq, struct task_struct *p)
{
	struct cosched_cpu *cc = per_cpu_ptr(p->cosched->cpu, cpu_of(rq));
	int first;

	lockdep_assert_rq_held(rq);
	if (p->cosched_queued || !cosched_counts(p))
		return;
	cosched_advance(cc, rq_clock_task(rq));
	cc->nr_runnable++;
	/* A change of policy dequeues the task and enqueues it again. */
	cc->nr_idle_policy += task_has_idle_policy(p);
	cosched_mark_active(p->cosched, cpu_of(rq));
	p->cosched_queued = true;

	/* Here, and not where wakeups preempt, so that tasks of no cluster need not ask. */
	first = cosched_goes_first(rq, p);
	if (first)
		cosched_put_first(rq, p, first > 1, cosched_leaves_room(cc));
}

void __cosched_dequeue(struct rq *rq, struct task_struct *p)
{
	struct cosched_cpu *cc = per_cpu_ptr(p->cosched->cpu, cpu_of(rq));

	lockdep_assert_rq_held(rq);
	if (!p->cosched_queued)
		return;
	cosched_charge(rq, p, cc);
	if (cc->nr_runnable > 1 && !task_is_running(p) && cosched_goes_first(rq, p))
		cosched_hand_on(rq, p, cosched_leaves_room(cc));
	cc->nr_runnable--;
	cc->nr_idle_policy -= task_has_idle_policy(p);
	p->cosched_queued = false;
	/* It is by the clock of this CPU. */
	p->se.first_until = 0;
	if (!task_is_running(p))
		cosched_update_run(p);
}

/* The task clock of @rq as of now. The clock itself stands still while the CPU idles. */
static u64 cosched_clock_now(struct rq *rq)
{
	s64 age = sched_clock_cpu(cpu_of(rq)) - READ_ONCE(rq->clock);

	return READ_ONCE(rq->clock_task) + max_t(s64, age, 0);
}

/*
 * @cl on @cpu as of @now, a time of the task clock there. Reads without a lock: in the middle of an
 * update, what the update adds may be missing.
 */
static struct cosched_cpu cosched_peek(struct cosched_cluster *cl, int cpu, u64 now)
{
	/* data_race(): a torn snapshot makes one summand of one mean wrong. */
	struct cosched_cpu snap = data_race(*per_cpu_ptr(cl->cpu, cpu));

	cosched_advance(&snap, now);
	return snap;
}

/**
 * cosched_cluster_load() - Load of a cluster on a CPU, decayed up to now.
 * @cl: the cluster
 * @cpu: a possible CPU
 * @load: where to add the result to
 */
void cosched_cluster_load(struct cosched_cluster *cl, int cpu, struct cosched_load *load)
{
	struct cosched_cpu *cc = per_cpu_ptr(cl->cpu, cpu), snap;
	struct cpumask *active = to_cpumask(cl->active);
	struct rq *rq = cpu_rq(cpu);
	struct task_struct *curr;
	struct cosched_load avg;
	struct rq_flags rf;
	u64 now;

	if (!cpumask_test_cpu(cpu, active))
		return;

	/* The fields have to be consistent, and statistics may wait for the lock. */
	rq_lock_irqsave(rq, &rf);
	now = cosched_clock_now(rq);
	snap = *cc;
	cosched_advance(&snap, now);
	/* Add the time that the running task has not been charged for yet. */
	curr = rcu_dereference_protected(rq->curr, true);
	if (curr->cosched == cl && curr->cosched_queued) {
		u64 delta = cosched_sum_exec(rq, curr, now) - curr->cosched_charged;

		cosched_add_util(&snap, now, delta);
	}
	if (!snap.util_sum && !snap.runnable_sum && !snap.nr_runnable)
		cpumask_clear_cpu(cpu, active);
	rq_unlock_irqrestore(rq, &rf);

	cosched_load_avg(&snap, &avg);
	load->util += avg.util;
	load->runnable += avg.runnable;
}

static void cosched_count(struct cosched_cluster *cl, enum cosched_event event)
{
	unsigned int nr;

	lockdep_assert_irqs_disabled();
	nr = __this_cpu_inc_return(cl->cpu->events[event]);
	if (unlikely(nr >= COSCHED_EVENT_BATCH)) {
		atomic64_add(nr, &cl->events[event]);
		__this_cpu_write(cl->cpu->events[event], 0);
	}
}

/**
 * cosched_cluster_stat() - Statistics of a cluster since it was created.
 * @cl: the cluster
 * @stat: where to add them to
 *
 * The caller holds cosched_mutex, so that the home does not change meanwhile.
 */
void cosched_cluster_stat(struct cosched_cluster *cl, struct cosched_stat *stat)
{
	struct cosched_home *home = rcu_dereference_protected(cl->home, true);
	int cpu, i;

	for (i = 0; i < COSCHED_NR_EVENTS; i++)
		stat->events[i] += atomic64_read(&cl->events[i]);
	stat->preferred_ns += atomic64_read(&cl->preferred_ns);
	stat->outside_ns += atomic64_read(&cl->outside_ns);

	for_each_possible_cpu(cpu) {
		struct cosched_cpu *cc = per_cpu_ptr(cl->cpu, cpu);
		struct rq *rq = cpu_rq(cpu);
		struct rq_flags rf;
		u64 exec;

		for (i = 0; i < COSCHED_NR_BATCHED; i++)
			stat->events[i] += READ_ONCE(cc->events[i]);
		if (IS_ENABLED(CONFIG_64BIT)) {
			exec = READ_ONCE(cc->exec);
		} else {
			rq_lock_irqsave(rq, &rf);
			exec = cc->exec;
			rq_unlock_irqrestore(rq, &rf);
		}
		if (cpumask_test_cpu(cpu, home_mask(home)))
			stat->preferred_ns += exec;
		else
			stat->outside_ns += exec;
	}
}

/*
 * Load of domains, and rule 4
 */

/* Number of tasks on @rq, without those that sleep with delayed dequeue: cfs_h_nr_delayed(). */
static unsigned int cosched_nr_queued(struct rq *rq)
{
	int nr = READ_ONCE(rq->nr_running);

	/* Read without a lock, one of these counters may be newer than the others. */
	nr -= READ_ONCE(rq->cfs.h_nr_queued) - READ_ONCE(rq->cfs.h_nr_runnable);
	return max(nr, 0);
}

/*
 * As sched_idle_cpu(), but first asks whether @cpu has any tasks of the idle class, as few CPUs do:
 * sched_idle_cpu() reads another cache line first. Also, no task may be on the way to @cpu, as in
 * idle_cpu(), so that tasks that are woken in a row get a CPU each.
 */
static bool cosched_only_idle_class(int cpu)
{
	return cfs_nr_idle_class(&cpu_rq(cpu)->cfs) && sched_idle_cpu(cpu) &&
	       !READ_ONCE(cpu_rq(cpu)->ttwu_pending);
}

/*
 * @avg, an average of @rq's fair class, decayed until now if the CPU is idle.
 * Ticks of an idle CPU advance the clocks but not the averages, so the time to
 * decay for is the age of the averages, as in migrate_se_pelt_lag().
 */
static unsigned long cosched_decay_idle(struct rq *rq, unsigned long avg)
{
	struct cfs_rq *cfs_rq = &rq->cfs;
	u64 now;
	s64 age;

	/* The caller has read the cache line of h_nr_queued. nr_running is in another one. */
	if (!avg || READ_ONCE(cfs_rq->h_nr_queued) || READ_ONCE(rq->nr_running))
		return avg;
	now = u64_u32_load(rq->clock_pelt_idle);
	/* Pairs with smp_wmb() in _update_idle_rq_clock_pelt(). */
	smp_rmb();
	now += sched_clock_cpu(cpu_of(rq)) - u64_u32_load(rq->clock_idle);
	age = now - u64_u32_load_copy(cfs_rq->avg.last_update_time,
				      cfs_rq->last_update_time_copy);
	return age > 0 ? decay_load(avg, age >> 20) : avg;
}

/*
 * Does the recent utilisation of @cpu, stored in *@util, leave capacity to spare? If
 * @cpu has only tasks of the idle class, the utilisation is taken to be theirs, and
 * counts as 0: they take what no other task wants.
 */
static bool cosched_cpu_quiet(int cpu, unsigned long *util)
{
	struct rq *rq = cpu_rq(cpu);

	if (cosched_only_idle_class(cpu)) {
		*util = 0;
		return true;
	}
	*util = cosched_decay_idle(rq, READ_ONCE(rq->cfs.avg.util_avg));
	return fits_capacity(*util, rq->cpu_capacity);
}

/* @p is of the idle class by its policy, or by any cgroup above it that has cpu.idle set. */
static enum cosched_asker cosched_asker(struct task_struct *p)
{
#ifdef CONFIG_FAIR_GROUP_SCHED
	struct task_group *tg;

	for (tg = READ_ONCE(p->sched_task_group); tg; tg = tg->parent) {
		if (READ_ONCE(tg->idle) > 0)
			return COSCHED_ASKER_IDLE_CLASS;
	}
#endif
	return task_has_idle_policy(p) ? COSCHED_ASKER_IDLE_CLASS : COSCHED_ASKER_NORMAL;
}

static unsigned long cosched_cpu_load(int cpu, enum cosched_asker asker)
{
	struct rq *rq = cpu_rq(cpu);

	if (asker == COSCHED_ASKER_NORMAL && cosched_only_idle_class(cpu))
		return 0;
	return cosched_decay_idle(rq, READ_ONCE(rq->cfs.avg.runnable_avg));
}

/* Load of the *@nr CPUs of @span that are not in @except and have a sched domain, summed. */
static unsigned long cosched_sum_load(const struct cpumask *span, const struct cpumask *except,
				      enum cosched_asker asker, unsigned int *nr)
{
	unsigned long sum = 0;
	int cpu;

	*nr = 0;
	for_each_cpu(cpu, span) {
		if ((except && cpumask_test_cpu(cpu, except)) ||
		    !rcu_access_pointer(cpu_rq(cpu)->sd))
			continue;
		sum += cosched_cpu_load(cpu, asker);
		(*nr)++;
	}
	return sum;
}

/* Does a stray that computes run on any CPU of @home? */
static bool cosched_has_long_strays(struct cosched_home *home)
{
	int cpu;

	for_each_cpu(cpu, home_mask(home)) {
		if (cosched_long_stray(rcu_dereference(cpu_rq(cpu)->curr), cpu))
			return true;
	}
	return false;
}

/*
 * The least load that a CPU of home counts with: what a busy CPU has after 6 ms. A
 * caller that compares has found home full, which the average may not show yet.
 */
#define COSCHED_HOME_LOAD_MIN	(SCHED_CAPACITY_SCALE / 8)

/* The load of @home, summed over *@nr of its CPUs, see cosched_sum_load(); *@nr is at least 1. */
static unsigned long cosched_home_load(struct cosched_home *home, enum cosched_asker asker,
				       unsigned int *nr)
{
	unsigned long now = jiffies, load;

	if (READ_ONCE(home->stamp[asker]) != now) {
		load = cosched_sum_load(home_mask(home), NULL, asker, nr);
		WRITE_ONCE(home->nr_used, max(*nr, 1U));
		WRITE_ONCE(home->load[asker], max(load, *nr * COSCHED_HOME_LOAD_MIN));
		if (cosched_has_long_strays(home))
			WRITE_ONCE(home->strays, now);
		WRITE_ONCE(home->stamp[asker], now);
	}
	*nr = READ_ONCE(home->nr_used);
	return READ_ONCE(home->load[asker]);
}

/* The CPUs of @cpu's LLC domain; only @cpu if it has none. */
static const struct cpumask *cosched_llc_span(int cpu)
{
	struct sched_domain *sd = rcu_dereference(per_cpu(sd_llc, cpu));

	return sd ? sched_domain_span(sd) : cpumask_of(cpu);
}

/*
 * The load of the *@nr CPUs of @cpu's LLC domain that are outside of @home, summed. It is
 * cached for a jiffy if many ask for the same sum: not if @home has CPUs in the domain,
 * nor for the idle class.
 */
static unsigned long cosched_outside_load(int cpu, struct cosched_home *home,
					  enum cosched_asker asker, unsigned int *nr)
{
	const struct cpumask *span = cosched_llc_span(cpu);
	struct sched_domain_shared *sds;
	unsigned long now = jiffies;

	sds = rcu_dereference(per_cpu(sd_llc_shared, cpu));
	if (!sds || asker != COSCHED_ASKER_NORMAL || cpumask_intersects(span, home_mask(home)))
		return cosched_sum_load(span, home_mask(home), asker, nr);

	*nr = per_cpu(sd_llc_size, cpu);
	if (READ_ONCE(sds->cosched_stamp) != now) {
		unsigned int ignored;

		WRITE_ONCE(sds->cosched_load, cosched_sum_load(span, NULL, asker, &ignored));
		WRITE_ONCE(sds->cosched_stamp, now);
	}
	return READ_ONCE(sds->cosched_load);
}

/*
 * Rule 4. Loads are sums over a number of CPUs; the means are compared by
 * multiplying crosswise. The products fit: weights are below 2^14, numbers of
 * CPUs below 2^13, and sums below 2^34 even for 4096 CPUs with 4096 tasks each,
 * or at most four times that if leaving is dear.
 */
static bool cosched_cheaper(u32 weights, unsigned long home_load, unsigned int home_nr,
			    u64 load, unsigned int nr)
{
	return (u64)(weights >> 16) * home_load * nr >
	       (u64)(weights & 0xffff) * load * home_nr;
}

/*
 * With @more load added, is @home dearer for its cluster than @nr CPUs elsewhere that have @load
 * together?
 */
static bool cosched_home_dearer(struct cosched_cluster *cl, struct cosched_home *home,
				enum cosched_asker asker, unsigned long more,
				unsigned long load, unsigned int nr)
{
	unsigned int home_nr;
	u64 dear = load;

	if (cosched_full(cl))
		dear = dear * READ_ONCE(cl->dear) >> SCHED_CAPACITY_SHIFT;
	load = cosched_home_load(home, asker, &home_nr);
	return cosched_cheaper(READ_ONCE(cl->weights), load + more, home_nr, dear, nr);
}

static bool cosched_llc_cheaper(struct cosched_cluster *cl, struct cosched_home *home,
				enum cosched_asker asker, int llc, unsigned long *load,
				unsigned int *nr)
{
	*load = cosched_outside_load(llc, home, asker, nr);
	return *nr && cosched_home_dearer(cl, home, asker, 0, *load, *nr);
}

/* Are @nr CPUs that have @load together busy on average? */
static bool cosched_busy(unsigned long load, unsigned int nr)
{
	return !fits_capacity((u64)load, (u64)nr << SCHED_CAPACITY_SHIFT);
}

/*
 * How many LLC domains a waking task looks at, at most, outside of home and again in it, so that a
 * wakeup does not take longer on a machine that has more of them. The best of a few is not much
 * worse than the best of all, less so if one that was found to be good is among the next few:
 * Mitzenmacher, Prabhakar and Shah, "Load Balancing with Memory", 2002. CPUs that idle elsewhere
 * take what waits (rule 7), and forks, execs and ticks look at all domains.
 */
#define COSCHED_WAKE_LLCS	8

/* Does the machine have more LLC domains than a waking task looks at? */
static bool cosched_many_llcs(void)
{
	return cpumask_weight(&cosched_llcs) > COSCHED_WAKE_LLCS;
}

/* The first CPU of the LLC domain in @span that comes after @cpu; of the first, after the last. */
static int cosched_next_llc(int cpu, const struct cpumask *span)
{
	int llc = cpumask_next_and(cpu, &cosched_llcs, span);

	return llc < nr_cpu_ids ? llc : cpumask_first_and(&cosched_llcs, span);
}

/*
 * Is no domain outside of @home cheaper or, if @calm, no domain that is not busy on average? The
 * first caller in a jiffy looks at all domains, although a cpuset partition may have fewer. So a
 * task that finds home full need not look at each domain to stay. If there are many domains, it
 * looks at some of them: from the one on that was cheaper and calm the last time, else at the next
 * ones.
 */
static bool cosched_none_cheaper(struct cosched_cluster *cl, struct cosched_home *home,
				 enum cosched_asker asker, bool calm)
{
	unsigned long now = jiffies, load;
	unsigned int nr, left = COSCHED_WAKE_LLCS;
	u8 cheaper = 0;
	int llc, good = -1;

	if (READ_ONCE(home->outside_stamp[asker]) != now) {
		for_each_cpu_wrap(llc, &cosched_llcs, READ_ONCE(home->from)) {
			u8 is = 0;

			if (!left) {
				WRITE_ONCE(home->from, good < 0 ? llc : good);
				break;
			}
			if (cosched_llc_cheaper(cl, home, asker, llc, &load, &nr))
				is = cosched_busy(load, nr) ? COSCHED_CHEAPER_BUSY :
							      COSCHED_CHEAPER_CALM;
			if (good < 0 && is == COSCHED_CHEAPER_CALM)
				good = llc;
			cheaper |= is;
			left -= !!nr;
		}
		WRITE_ONCE(home->cheaper[asker], cheaper);
		WRITE_ONCE(home->outside_stamp[asker], now);
	}
	cheaper = READ_ONCE(home->cheaper[asker]);
	return calm ? !(cheaper & COSCHED_CHEAPER_CALM) : !cheaper;
}

/*
 * Wakeup, fork and exec
 */

/* The best CPUs that a scan has found so far. */
struct cosched_scan {
	int		idle;		/* an idle CPU, or -1 */
	int		rank;		/* its rank: how near and how idle it is */
	int		enough;		/* a CPU of this rank ends the scan */
	const struct cpumask *within;	/* if not NULL, only these CPUs */
	unsigned int	nr_scanned;
	unsigned int	limit;		/* the most CPUs to scan */
	unsigned int	looks;		/* not 0: only durably idle CPUs, for so many looks */
	/* Set by cosched_scan_queues(): */
	int		queue;		/* the CPU with the shortest queue, or -1 */
	unsigned int	nr_queued;	/* tasks; with .host its own, twice if another's runs */
	unsigned long	load;		/* and its runnable average */
	unsigned int	nr_queues;
	/* If set, its tasks go before strays here: also find a CPU used only by a stray, */
	struct cosched_cluster *host;
	int		stray;		/* which is this one, or -1 */
};

#define COSCHED_SCAN_INIT	\
	{ .idle = -1, .rank = -1, .enough = COSCHED_RANK_BEST, .queue = -1, .limit = UINT_MAX, \
	  .stray = -1 }

/* Rank of an idle CPU, the sum of: shares the LLC; its core is idle; shares the L2. */
#define COSCHED_RANK_LLC	BIT(2)
#define COSCHED_RANK_CORE	BIT(1)
#define COSCHED_RANK_L2		BIT(0)
#define COSCHED_RANK_BEST	(COSCHED_RANK_LLC | COSCHED_RANK_CORE | COSCHED_RANK_L2)

/* May the kernel place @p on @cpu at all? */
static bool cosched_cpu_allowed(struct task_struct *p, int cpu)
{
	return cpumask_test_cpu(cpu, p->cpus_ptr) && cpu_active(cpu) &&
	       rcu_access_pointer(cpu_rq(cpu)->sd);
}

/* The first CPU of @span where @p may be placed, nr_cpu_ids if there is none. */
static int cosched_any_allowed(struct task_struct *p, const struct cpumask *span)
{
	int cpu;

	for_each_cpu_and(cpu, span, p->cpus_ptr) {
		if (cosched_cpu_allowed(p, cpu))
			return cpu;
	}
	return nr_cpu_ids;
}

/* Does @cpu have the capacity for @p, and its core run nothing that must not run beside @p? */
static bool cosched_cpu_suits(struct task_struct *p, int cpu)
{
	if (sched_asym_cpucap_active() && !cosched_task_fits(p, cpu))
		return false;
	return sched_core_cookie_match(cpu_rq(cpu), p);
}

/*
 * Does @cpu run a task, and have none of the idle class? A wakeup asks this about each CPU of a
 * full home, where the answer is always yes, and under a lock that others spin for. So this reads
 * only two cache lines and calls no function.
 */
static __always_inline bool cosched_cpu_taken(int cpu)
{
	struct rq *rq = cpu_rq(cpu);

	return rcu_access_pointer(rq->curr) != rq->idle && !cfs_nr_idle_class(&rq->cfs);
}

static bool cosched_cpu_idle(struct task_struct *p, int cpu)
{
	if (cosched_cpu_taken(cpu))
		return false;
	if (!available_idle_cpu(cpu) &&
	    (!cosched_only_idle_class(cpu) || cosched_asker(p) != COSCHED_ASKER_NORMAL))
		return false;
	return cosched_cpu_suits(p, cpu);
}

/*
 * How often a running task looks for a better CPU. Short compared with the 32 ms in which averages
 * halve, long compared with what a look costs.
 */
#define COSCHED_LOOK_INTERVAL		msecs_to_jiffies(4)

/* Is the last look of @p less than @nr intervals ago? */
static bool cosched_looked(struct task_struct *p, unsigned int nr)
{
	return jiffies - p->cosched_look < nr * COSCHED_LOOK_INTERVAL;
}

/*
 * A CPU that has been idle for this many look intervals, times the ratio of the weights, is not
 * needed by any task, whatever the weights say about its domain.
 */
#define COSCHED_LOOKS_UNUSED		4

/* Has @cpu been idle for @looks look intervals of a running task? */
static bool cosched_idle_for(int cpu, unsigned int looks)
{
	u64 since = READ_ONCE(cpu_rq(cpu)->idle_stamp);
	/* Negative if @cpu went idle just now and the clock read here is behind. */
	s64 idle = sched_clock_cpu(cpu) - since;

	return since && idle >= (s64)jiffies_to_nsecs(looks * COSCHED_LOOK_INTERVAL);
}

static unsigned int cosched_looks_unused(struct cosched_cluster *cl)
{
	u32 weights = READ_ONCE(cl->weights);

	return COSCHED_LOOKS_UNUSED * max((weights & 0xffff) / (weights >> 16), 1U);
}

/* Do interrupts or other classes take a fifth or more of @cpu? */
static bool cosched_cpu_reduced(int cpu)
{
	return fits_capacity(cpu_rq(cpu)->cpu_capacity, arch_scale_cpu_capacity(cpu));
}

/*
 * Is @cpu, which is idle now, durably idle for @p, which may move there? It is if @p would fit
 * beside what ran there before, with the kernel's usual margin. But utilisation decays slowly, and
 * a task that never sleeps fits beside nothing. So @cpu is also durably idle if what ran there
 * before leaves it capacity to spare, and it has either been idle for a look interval, or has
 * hardly run since @p looked at it at least one look interval ago: its utilisation did not grow,
 * compared with pure decay, by more than a quarter of what a busy CPU's would have. A CPU that
 * idles for a moment here and there passes none of these tests.
 * A CPU of which interrupts or other classes take a part is not durably idle: utilisation does not
 * show what they do.
 */
static bool cosched_durably_idle(struct task_struct *p, int cpu, unsigned long *util)
{
	struct rq *rq = cpu_rq(cpu);
	unsigned long periods, quiet;

	if (!cosched_cpu_quiet(cpu, util) || cosched_cpu_reduced(cpu))
		return false;
	if (fits_capacity(*util + READ_ONCE(p->se.avg.util_avg), rq->cpu_capacity))
		return true;
	if (cosched_idle_for(cpu, 1))
		return true;
	if (p->cosched_look_cpu != cpu || cosched_looked(p, 1))
		return false;
	periods = jiffies_to_usecs(min(jiffies - p->cosched_look, HZ)) >> 10;
	/* Decayed for one period less: both utilisations are decayed by whole periods. */
	quiet = decay_load(p->cosched_look_util, periods - 1) +
		(SCHED_CAPACITY_SCALE - decay_load(SCHED_CAPACITY_SCALE, periods)) / 4;
	return *util <= quiet;
}

static bool cosched_core_idle(int cpu)
{
	int sibling;

	if (!sched_smt_active())
		return true;
	for_each_cpu(sibling, cpu_smt_mask(cpu)) {
		if (sibling != cpu && !available_idle_cpu(sibling))
			return false;
	}
	return true;
}

/*
 * Find the best CPU for @p in @span, without those in @except: an idle CPU as near to @warm as
 * possible. Within an LLC, whole idle cores come before idle siblings of busy CPUs.
 */
static void cosched_scan(struct task_struct *p, const struct cpumask *span,
			 const struct cpumask *except, int warm, struct cosched_scan *s)
{
	int cpu;

	for_each_cpu_wrap(cpu, span, warm) {
		unsigned long util;

		if ((except && cpumask_test_cpu(cpu, except)) ||
		    (s->within && !cpumask_test_cpu(cpu, s->within)) ||
		    !cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (s->nr_scanned++ == s->limit)
			return;
		if (cosched_cpu_taken(cpu))
			continue;
		if (cosched_cpu_idle(p, cpu) && cosched_cpu_allowed(p, cpu) &&
		    (!s->looks || cosched_durably_idle(p, cpu, &util)) &&
		    (s->looks <= 1 || cosched_idle_for(cpu, s->looks))) {
			int rank = (cpus_share_cache(cpu, warm) ? COSCHED_RANK_LLC : 0) |
				   (cosched_core_idle(cpu) ? COSCHED_RANK_CORE : 0) |
				   (cpus_share_resources(cpu, warm) ? COSCHED_RANK_L2 : 0);

			if (rank > s->rank) {
				s->rank = rank;
				s->idle = cpu;
				if (rank >= s->enough)
					return;
			}
		}
	}
}

/* Of the home CPUs in @span that @p may run on, are more idle than not? */
static bool cosched_mostly_idle(struct task_struct *p, const struct cpumask *span,
				struct cosched_scan *s)
{
	unsigned int idle = 0, nr = 0;
	int cpu;

	for_each_cpu_and(cpu, span, s->within) {
		if (!cosched_cpu_allowed(p, cpu))
			continue;
		nr++;
		idle += cosched_cpu_idle(p, cpu);
	}
	s->nr_scanned += nr;
	return 2 * idle > nr;
}

/*
 * Find an idle CPU in @span, which is home: in the LLC domain of @warm, else in another one. Home's
 * CPUs in other LLC domains are not looked at before, as the cache lines that they write are far
 * away.
 *
 * A task that runs briefly, @brief, and has to leave its LLC domain goes to one where most of
 * home's CPUs are idle. Where most are busy, hardly any CPU is idle for long: the tasks that sleep
 * there wake up soon, find their place taken, and go somewhere else in turn. With two tasks that
 * each wake 6 or 12 workers once a ms, and two domains as their home, the slowest percent of
 * wakeups took 9 to 13 % longer when any idle CPU would do.
 */
static void cosched_scan_home(struct task_struct *p, const struct cpumask *span, int warm,
			      bool brief, struct cosched_scan *s)
{
	const struct cpumask *llc = cosched_llc_span(warm);
	int other;

	s->within = span;
	cosched_scan(p, llc, NULL, warm, s);
	if (s->idle >= 0 || cpumask_subset(span, llc))
		return;
	s->enough = COSCHED_RANK_CORE;
	if (!brief) {
		cosched_scan(p, span, llc, warm, s);
		return;
	}
	/* Of the LLC domain of @other, all CPUs are below the same LLC as @other. */
	s->enough = COSCHED_RANK_LLC | COSCHED_RANK_CORE;
	for_each_cpu_wrap(other, &cosched_llcs, warm) {
		const struct cpumask *far = cosched_llc_span(other);

		if (s->nr_scanned >= s->limit)
			return;
		if (cpumask_test_cpu(other, llc) || !cosched_mostly_idle(p, far, s))
			continue;
		cosched_scan(p, far, NULL, other, s);
		if (s->idle >= 0)
			return;
	}
}

/*
 * If there is no idle CPU: find the one with the shortest queue. This is not part of
 * cosched_scan(), as it reads three more of the cache lines that other CPUs write all the time, and
 * most wakeups at a full home do not need it: the task waits where it was. Wakers may hold a lock
 * that others spin for.
 */
static void cosched_scan_queues(struct task_struct *p, const struct cpumask *span,
				const struct cpumask *except, int warm, struct cosched_scan *s)
{
	int cpu;

	for_each_cpu_wrap(cpu, span, warm) {
		struct rq *rq = cpu_rq(cpu);
		unsigned int nr_queued, pending;
		unsigned long load;

		if ((except && cpumask_test_cpu(cpu, except)) || !cosched_cpu_allowed(p, cpu))
			continue;
		if (s->nr_queues++ == s->limit)
			return;
		/* A task on its way here from another LLC is in the queue, as in idle_cpu(). */
		pending = READ_ONCE(rq->ttwu_pending);
		nr_queued = cosched_nr_queued(rq) + pending;
		if (s->host && s->stray < 0 && nr_queued == 1 && !pending &&
		    cosched_long_stray(rcu_dereference(rq->curr), cpu) && cosched_cpu_suits(p, cpu))
			s->stray = cpu;
		if (s->host) {
			nr_queued = pending +
				    READ_ONCE(per_cpu_ptr(s->host->cpu, cpu)->nr_runnable);
			/* While another's task runs, .host's own wait for it; @p would, too. */
			if (READ_ONCE(rcu_dereference(rq->curr)->cosched) != s->host)
				nr_queued *= 2;
		}
		load = READ_ONCE(rq->cfs.avg.runnable_avg);
		if (s->queue < 0 || nr_queued < s->nr_queued ||
		    (nr_queued == s->nr_queued && load < s->load)) {
			s->queue = cpu;
			s->nr_queued = nr_queued;
			s->load = load;
		}
	}
}

/*
 * Apart
 *
 * A task that runs briefly and whose home is too small has two options. It can wait at home: with n
 * tasks for each CPU, it takes n times as long there. Or it can leave, and run longer without its
 * data. How much longer depends on the machine and on what the tasks share. So this is measured, on
 * the tasks that run at home and on those that had to leave. If leaving is the better of the two,
 * the cluster is apart for a while: its tasks do not wait at home when a CPU outside is idle, and a
 * task that wake-affine puts outside stays there if a CPU is idle. Being apart hides what is
 * measured: the tasks at home run longer, too, as what they share with those outside is not at
 * home. So the tasks gather at home again before the next verdict. If that is the same, it takes
 * half as many reviews, and lasts twice as long.
 */

/* What the verdict of a review is made from. */
struct cosched_review {
	u32	run[2];		/* mean runs at home and outside, in us */
	u32	nr[2];		/* the number of these runs */
	u64	load;		/* of home, plus that of the cluster outside */
	u64	tasks;		/* as .load, but tasks that just gathered do not count twice */
	u64	capacity;	/* of home */
	u64	room;		/* of other CPUs, what others leave free */
	u32	nr_own;		/* runnable tasks of the cluster just now, anywhere */
	bool	mine;		/* of these, at home: at least one for every two CPUs */
	bool	alone;		/* no task of others is runnable anywhere */
	u64	own;		/* load of the cluster, anywhere */
	u64	others;		/* all other load */
	u64	total;		/* capacity of the whole machine */
};

/* Weights other than the default ones make leaving count as dearer, or cheaper, than it is. */
static enum cosched_review_reason cosched_judge(const struct cosched_review *r, u32 weights)
{
	/* Both are below 2^56, see cosched_cheaper(). */
	u64 wait = r->tasks * (weights >> 16) * COSCHED_WEIGHT_ALLOWED;
	u64 leave = r->capacity * (weights & 0xffff) * COSCHED_WEIGHT_PREFERRED;

	if (r->load <= r->capacity)
		return COSCHED_REVIEW_FITS;
	if (r->load > r->capacity + r->room)
		return COSCHED_REVIEW_FULL;
	return mul_u64_u32_shr(wait, r->run[0], SCHED_CAPACITY_SHIFT) >
	       mul_u64_u32_shr(leave, r->run[1], SCHED_CAPACITY_SHIFT) ?
	       COSCHED_REVIEW_APART : COSCHED_REVIEW_DEAR;
}

/*
 * Overrun
 *
 * A cluster that has the machine to itself, and more to do than the whole machine can do, keeps
 * every domain as busy as home. All that its preference still does then is to keep queues of
 * different lengths, and to send tasks home, away from the tasks that they talk with: one instance
 * of hackbench took 3 % longer than without a home. So all of the machine is its home for as long
 * as that lasts, as an automatic home would be (auto_all() in kernel/cgroup/cosched_auto.c).
 *
 * A task that its own cluster wakes is then placed as without a home: to look for an idle CPU, or a
 * shorter queue, in the whole machine separates tasks that talk with each other. That cost one
 * instance of 4 groups 7 %. A task that a timer wakes has no waker to be near, and does look
 * further: 48 tasks that sleep by timers left 0.5 % of the CPUs idle that way, and 1.5 % otherwise.
 * The exception is a cluster whose tasks wake each other: a task that a timer wakes, to wake
 * others, belongs near those, and is placed as without a home, too.
 *
 * Weights that make leaving dearer than the default ones do ask for more load before a cluster
 * overruns the machine.
 *
 * One review is not enough to find an overrun, unless no other task is runnable on any CPU. If two
 * instances begin together, one is ready some milliseconds before the other. With one review it
 * would have spread over the CPUs that the other, of which one thread runs by then, needs next.
 *
 * If no other task is runnable, neither the cluster's average nor that of home has to show the
 * overrun yet: tasks that are runnable now are soon part of them, if they do not run briefly or are
 * twice as many as all CPUs. One instance of 8 groups that began on half of the machine, and stayed
 * there until its average said so, lost 5 ms. One of 1 group lost 2 %, as half of it was elsewhere
 * by then. One of 32 groups loses more than that before the next review: see
 * cosched_review_queue().
 *
 * If the tasks of a cluster that overruns the machine wake each other, CPUs that idle do not fetch
 * them, and running tasks do not leave crowded CPUs for idle ones: this is left to the balancer, as
 * without a home. To keep all CPUs busy separates tasks that talk with each other, too. Those that
 * are separated gather again: see cosched_gather().
 */
static bool cosched_overrun_others(const struct cosched_review *r, bool before)
{
	return r->others >= r->total / (before || r->alone ? 4 : 8);
}

static bool cosched_judge_overrun(const struct cosched_review *r, u32 weights, bool before)
{
	u64 tasks = r->alone ? max(r->own, (u64)r->nr_own << SCHED_CAPACITY_SHIFT) : r->own;
	u64 own = tasks * COSCHED_WEIGHT_ALLOWED * (weights >> 16);
	u64 total = r->total * COSCHED_WEIGHT_PREFERRED * (weights & 0xffff);

	if (cosched_overrun_others(r, before))
		return false;
	if (before)
		return tasks > r->total && own > total;
	return tasks > r->total + r->total / 8 && own > total + total / 8;
}

/*
 * Count the reviews in a row that found an overrun, with this one, after @before: up to the maximum
 * at once if the cluster is alone. At the maximum, a single review that finds no overrun does not
 * end it, as few tasks may happen to be runnable just then: home would have all of them for 7 ms. A
 * review that finds others does end it.
 */
static u8 cosched_count_overruns(const struct cosched_review *r, u32 weights, u8 before)
{
	bool was = before >= COSCHED_OVERRUN_REVIEWS;

	if (cosched_judge_overrun(r, weights, was))
		return was || r->alone ? COSCHED_OVERRUN_MAX : before + 1;
	return before == COSCHED_OVERRUN_MAX && !cosched_overrun_others(r, was) ? before - 1 : 0;
}

/*
 * Update the count that tells whether the tasks of a cluster wake each other, after a review by
 * such a wakeup, @own, or by another one. A single other one does not reset the count: it may be
 * that of a task which a timer wakes to wake others.
 */
static u8 cosched_count_talks(u8 before, bool own)
{
	if (own)
		return min(before + 1, COSCHED_TALKS_MAX);
	return before ? before - 1 : 0;
}

/* How many tasks that are not of @cl are runnable just now: on @cpu, and then on any CPU? */
static unsigned int cosched_others_on(struct cosched_cluster *cl, int cpu)
{
	unsigned int all = READ_ONCE(cpu_rq(cpu)->cfs.h_nr_runnable);

	return all - min(all, READ_ONCE(per_cpu_ptr(cl->cpu, cpu)->nr_runnable));
}

static unsigned int cosched_nr_others(struct cosched_cluster *cl)
{
	unsigned int nr = 0;
	int cpu;

	for_each_online_cpu(cpu)
		nr += cosched_others_on(cl, cpu);
	return nr;
}

static bool cosched_alone(struct cosched_cluster *cl)
{
	int cpu;

	for_each_online_cpu(cpu) {
		if (cosched_others_on(cl, cpu))
			return false;
	}
	return true;
}

/* The runnable average of @cl on the CPUs of @span in @home, or if not @at_home on the others. */
static unsigned long cosched_own_load(struct cosched_cluster *cl, const struct cpumask *span,
				      struct cosched_home *home, bool at_home)
{
	unsigned long own = 0;
	int cpu;

	for_each_cpu_and(cpu, span, to_cpumask(cl->active)) {
		struct cosched_load avg;
		struct cosched_cpu snap;

		if (cpumask_test_cpu(cpu, home_mask(home)) != at_home)
			continue;
		snap = cosched_peek(cl, cpu, cosched_clock_now(cpu_rq(cpu)));
		cosched_load_avg(&snap, &avg);
		own += avg.runnable;
	}
	return own;
}

/* How many tasks of @cl are runnable on @span just now. */
static unsigned int cosched_nr_on(struct cosched_cluster *cl, const struct cpumask *span)
{
	unsigned int nr = 0;
	int cpu;

	for_each_cpu_and(cpu, span, to_cpumask(cl->active))
		nr += READ_ONCE(per_cpu_ptr(cl->cpu, cpu)->nr_runnable);
	return nr;
}

static void cosched_review_load(struct task_struct *p, struct cosched_cluster *cl,
				struct cosched_home *home, struct cosched_review *r)
{
	enum cosched_asker asker = cosched_asker(p);
	unsigned int home_nr;
	u64 all;
	int llc;

	all = cosched_home_load(home, asker, &home_nr);
	r->load = all;
	r->capacity = (u64)home_nr << SCHED_CAPACITY_SHIFT;
	r->room = 0;
	r->own = cosched_own_load(cl, home_mask(home), home, true);
	r->alone = false;
	r->nr_own = cosched_nr_on(cl, cpu_online_mask);
	r->mine = 2 * cosched_nr_on(cl, home_mask(home)) >= home_nr;
	r->total = r->capacity;
	for_each_cpu(llc, &cosched_llcs) {
		unsigned long load, own;
		unsigned int nr;
		u64 capacity;

		own = cosched_own_load(cl, cosched_llc_span(llc), home, false);
		load = cosched_outside_load(llc, home, asker, &nr);
		capacity = (u64)nr << SCHED_CAPACITY_SHIFT;
		r->load += own;
		r->own += own;
		all += load;
		load -= min(load, own);
		r->room += capacity - min(capacity, load);
		r->total += capacity;
	}
	/*
	 * From the sums over all CPUs: a task that has moved takes its average along in that of the
	 * queue, but not in the cluster's, and would count as one of the others where it is now.
	 */
	r->others = all - min(all, r->own);
}

/* Take the means of the runs so far, forget half of these. Return: false if there are too few. */
static bool cosched_review_runs(struct cosched_cluster *cl, struct cosched_review *r)
{
	bool enough = true;
	int i;

	for (i = 0; i < 2; i++) {
		u64 runs = atomic64_read(&cl->runs[i]), sum = COSCHED_RUNS_SUM(runs);
		u32 nr = COSCHED_RUNS_NR(runs), rest = nr / 2;

		r->run[i] = div_u64(sum, max(nr, 1));
		r->nr[i] = nr;
		/* The half that is kept has the same mean. */
		sum -= (u64)r->run[i] * rest;
		atomic64_sub(sum << COSCHED_RUNS_SHIFT | (nr - rest), &cl->runs[i]);
		enough &= nr >= COSCHED_REVIEW_RUNS;
	}
	return enough;
}

/*
 * Dear
 *
 * If home has more load than capacity and others leave no room for the rest, a task that leaves
 * takes the place of another. All CPUs are then busy whichever task runs where, and more work gets
 * done the more of it is done near its data. So what leaving costs is measured in this case, too.
 * Where runs outside take r times as long, a task that leaves has to wait r times as often for its
 * turn, and it takes r times as much CPU time from the tasks there as it leaves to those at home:
 * loads elsewhere count r * r times. Tasks that never sleep, or run for so long at a time that what
 * they did does not depend on their data, are not measured, and nothing changes for them.
 *
 * Once that is known, few tasks are outside. It is forgotten, half of it in 11 reviews, until some
 * tasks leave again and show what leaving costs now. It is forgotten that soon, as the first few
 * tasks may have been an exception.
 */
#define COSCHED_DEAR_RUNS	16
#define COSCHED_DEAR_FORGET	16
/* Taken off r: runs outside seem up to a quarter longer even where leaving costs nothing. */
#define COSCHED_LONGER_MARGIN	(SCHED_CAPACITY_SCALE / 8)
/* Leaving is dear if r * r is more than this: runs take 17 % longer when that is taken off. */
#define COSCHED_DEAR_MUCH	(SCHED_CAPACITY_SCALE * 11 / 8)

static u32 cosched_judge_dear(const struct cosched_review *r, u32 dear)
{
	u32 longer, seen, nr = min(r->nr[1], 4 * COSCHED_DEAR_RUNS);

	if (!nr || !r->run[0] || r->nr[0] < COSCHED_REVIEW_RUNS)
		return dear - DIV_ROUND_UP(dear - SCHED_CAPACITY_SCALE, COSCHED_DEAR_FORGET);
	longer = (r->run[1] << SCHED_CAPACITY_SHIFT) / r->run[0];
	longer = clamp_t(u32, longer - min(longer, COSCHED_LONGER_MARGIN),
			 SCHED_CAPACITY_SCALE, COSCHED_LONGER_MAX);
	seen = longer * longer >> SCHED_CAPACITY_SHIFT;
	return (dear * COSCHED_DEAR_RUNS + seen * nr) / (COSCHED_DEAR_RUNS + nr);
}

/*
 * Bursts
 *
 * Tasks that run briefly and wake up together find no idle CPU at a home that has enough on
 * average. They leave it or wait for each other, as the weights have it. If runs outside, as
 * measured for "Apart", take hardly longer, there is no reason to wait, and an automatic home is to
 * grow (cosched_auto::bursts). Hardly longer is a quarter at most: 5 to 20 % were seen where
 * nothing is shared, as the tasks that wake the others are at home and soon done, and 60 to 100 %
 * where all is shared. Only few tasks make the slowest percent of wakeups slow, so one run in 32
 * outside is enough. Home also needs a runnable task of the cluster for every two CPUs: if others
 * make it full, the question is where home is.
 *
 * Where runs outside take longer, a trial may show why: tasks that are rarely outside find caches
 * cold there, which says nothing about what they share. It needs an automatic home that has enough
 * on average, and others that use less than a quarter of the machine. Runs at home are measured,
 * all of the machine is home until caches are warm, and runs are measured again. Hardly longer is
 * an eighth at most then. A trial that finds otherwise is not repeated soon.
 */
#define COSCHED_BURSTS_OUTSIDE		32
/* The number of runs that a trial has to see, each time that it measures. */
#define COSCHED_TRIAL_RUNS		32

/* Do tasks wait at home where they need not, if runs outside take no longer? */
static bool cosched_may_burst(const struct cosched_review *r)
{
	u32 runs = r->nr[0] * COSCHED_RUNS_SAMPLED + r->nr[1];

	return r->mine && r->load <= r->capacity + r->room &&
	       r->nr[1] * COSCHED_BURSTS_OUTSIDE >= runs;
}

static bool cosched_judge_bursts(const struct cosched_review *r)
{
	return cosched_may_burst(r) && r->run[1] <= r->run[0] + r->run[0] / 4;
}

/* Is there room for a trial? */
static bool cosched_judge_trial(const struct cosched_review *r)
{
	return r->load <= r->capacity && r->others < r->total / 4;
}

/* The survey of automatic homes asks for the cluster's demand ten times a second. */
static bool cosched_home_is_auto(struct cosched_cluster *cl)
{
	return jiffies - READ_ONCE(cl->asked) <= HZ / 2;
}

/* The mean of @runs, in us; 0 if there are too few. */
static u32 cosched_trial_run(u64 runs)
{
	u32 nr = COSCHED_RUNS_NR(runs);

	return nr >= COSCHED_TRIAL_RUNS ? div_u64(COSCHED_RUNS_SUM(runs), nr) : 0;
}

/* Start to count runs anew. */
static void cosched_forget_runs(struct cosched_cluster *cl)
{
	atomic64_set(&cl->runs[0], 0);
	atomic64_set(&cl->runs[1], 0);
	cl->apart.nr_reviews = 0;
}

static void cosched_trial_phase(struct cosched_cluster *cl, enum cosched_trial_phase phase)
{
	cosched_forget_runs(cl);
	WRITE_ONCE(cl->trial.from, jiffies);
	WRITE_ONCE(cl->trial.phase, phase);
}

/* What the last trial found does not count from now on. */
static void cosched_trial_begin(struct cosched_cluster *cl)
{
	cl->trial.run[0] = 0;
	cl->trial.found = 0;
	WRITE_ONCE(cl->trial.passed, false);
	cosched_trial_phase(cl, COSCHED_TRIAL_HOME);
}

/* End a trial with its verdict. @run: how long runs took, in us; 0: not known. */
static void cosched_trial_end(struct cosched_cluster *cl, u32 run)
{
	struct cosched_trial *t = &cl->trial;

	t->run[1] = run;
	WRITE_ONCE(t->passed, run && run <= t->run[0] + t->run[0] / 8);
	t->wait = t->passed ? COSCHED_TRIAL_MIN : min(2 * t->wait, COSCHED_TRIAL_MAX);
	cosched_trial_phase(cl, COSCHED_TRIAL_NONE);
}

/* Go on with the trial of @cl, if the next phase is due. */
static void cosched_trial_go_on(struct cosched_cluster *cl)
{
	struct cosched_trial *t = &cl->trial;

	if (jiffies - t->from < COSCHED_TRIAL_PHASE)
		return;
	switch (t->phase) {
	case COSCHED_TRIAL_HOME:
		t->run[0] = cosched_trial_run(atomic64_read(&cl->runs[0]));
		if (t->run[0])
			cosched_trial_phase(cl, COSCHED_TRIAL_SETTLE);
		else
			cosched_trial_end(cl, 0);
		break;
	case COSCHED_TRIAL_SETTLE:
		cosched_trial_phase(cl, COSCHED_TRIAL_SPREAD);
		break;
	default:
		cosched_trial_end(cl, cosched_trial_run(atomic64_read(&cl->runs[1])));
	}
}

/* Do the tasks of @cl come in bursts, as the last reviews or a trial found? */
static bool cosched_bursts(struct cosched_cluster *cl)
{
	if (READ_ONCE(cl->trial.passed) &&
	    jiffies - READ_ONCE(cl->trial.from) < COSCHED_TRIAL_HOLDS)
		return true;
	return READ_ONCE(cl->bursts) == COSCHED_BURSTS_REVIEWS && cosched_reviewed(cl);
}

/* Note what @r says about bursts, and begin a trial if it is time for one. */
static void cosched_review_bursts(struct cosched_cluster *cl, const struct cosched_review *r)
{
	struct cosched_trial *t = &cl->trial;

	if (min(r->nr[0], r->nr[1]) < COSCHED_BURSTS_RUNS)
		return;
	t->found = cosched_may_burst(r) ? min(t->found + 1, COSCHED_BURSTS_REVIEWS) : 0;
	WRITE_ONCE(cl->bursts, cosched_judge_bursts(r) ?
		   min(cl->bursts + 1, COSCHED_BURSTS_REVIEWS) : 0);
	if (t->found == COSCHED_BURSTS_REVIEWS && cl->bursts != COSCHED_BURSTS_REVIEWS &&
	    cosched_judge_trial(r) && jiffies - t->from >= t->wait && cosched_home_is_auto(cl) &&
	    !cosched_everywhere(cl))
		cosched_trial_begin(cl);
}

/* Was the cluster apart before it gathered, and not found to be better off at home since? */
static bool cosched_was_apart(struct cosched_apart *a)
{
	return a->next > COSCHED_APART_MIN;
}

/*
 * Do the reviews so far make @reason a verdict? Only those count for which enough runs are @known.
 * Only the verdict that leaving is dear makes the next time apart as short as the first: that home
 * is enough just now, or full, says nothing about what leaving costs.
 */
static bool cosched_count_review(struct cosched_apart *a, enum cosched_review_reason reason,
				 bool known)
{
	unsigned int needed = COSCHED_REVIEWS;

	if (!known)
		return false;
	a->nr_reviews++;
	if (reason == COSCHED_REVIEW_APART && cosched_was_apart(a))
		needed = COSCHED_REVIEWS_AGAIN;
	if (a->nr_reviews < needed)
		return false;
	if (reason == COSCHED_REVIEW_DEAR)
		a->next = COSCHED_APART_MIN;
	return true;
}

/* No longer apart: others need the CPUs, or the cluster needs all of them. */
static void cosched_end_apart(struct cosched_apart *a)
{
	WRITE_ONCE(a->lasts, 0);
	a->next = COSCHED_APART_MIN;
}

/* What @r says about bursts counts at once: while @cl is apart, nothing new is seen of them. */
static void cosched_go_apart(struct cosched_cluster *cl, const struct cosched_review *r)
{
	struct cosched_apart *a = &cl->apart;

	WRITE_ONCE(a->from, jiffies);
	WRITE_ONCE(a->lasts, a->next);
	a->next = min(2 * a->next, COSCHED_APART_MAX);
	if (cosched_judge_bursts(r))
		WRITE_ONCE(cl->bursts, COSCHED_BURSTS_REVIEWS);
}

/* Is the waker a task of @cl, and not an interrupt that came while such a task ran? */
static bool cosched_woken_by_own(struct cosched_cluster *cl)
{
	return in_task() && current->cosched == cl;
}

static void cosched_do_review(struct task_struct *p, struct cosched_cluster *cl,
			      struct cosched_home *home)
{
	unsigned long now = jiffies, last = READ_ONCE(cl->apart.reviewed);
	struct cosched_apart *a = &cl->apart;
	enum cosched_review_reason reason;
	struct cosched_review r;
	bool known, overrun, stale;
	u8 overruns;

	WRITE_ONCE(a->reviewed, now);
	/* Runs of long ago, or from before the cluster gathered again, do not count. */
	stale = now - last > COSCHED_REVIEWS * COSCHED_REVIEW_INTERVAL;
	if (stale || (a->lasts && !cosched_apart(cl))) {
		cosched_forget_runs(cl);
		WRITE_ONCE(a->lasts, 0);
	}
	if (now - last > HZ)
		WRITE_ONCE(cl->dear, SCHED_CAPACITY_SCALE);
	WRITE_ONCE(cl->talks, cosched_count_talks(stale ? 0 : cl->talks,
						  cosched_woken_by_own(cl)));
	cosched_review_load(p, cl, home, &r);
	r.tasks = cosched_was_apart(a) ? min(r.load, r.own) : r.load;
	if (cl->trial.phase) {
		if (!stale && cosched_judge_trial(&r))
			cosched_trial_go_on(cl);
		else
			cosched_trial_end(cl, 0);
		if (cl->trial.phase)
			return;
		trace_cosched_review(cl->cgroup_id, COSCHED_REVIEW_TRIAL, cl->trial.run[0],
				     cl->trial.run[1], r.load, r.tasks, r.capacity, r.room,
				     cl->dear, cosched_bursts(cl));
	}
	/* An overrun that was found longer ago than it lasts does not count. */
	overruns = stale ? 0 : cl->overruns;
	/*
	 * All CPUs are looked at only if the cluster has more to do than they can do, or has more
	 * runnable tasks than there are CPUs; twice as many if @p runs briefly, so that it is not
	 * just for an instant. With groups within groups the averages of run queues may be half of
	 * what there is, so count the tasks, too.
	 */
	if (r.own > r.total || (u64)r.nr_own << SCHED_CAPACITY_SHIFT >
			       (cosched_runs_briefly(p) ? 2 * r.total : r.total)) {
		unsigned int nr = cosched_nr_others(cl);

		r.alone = !nr;
		r.others = max(r.others, (u64)nr << SCHED_CAPACITY_SHIFT);
	}
	overruns = cosched_count_overruns(&r, READ_ONCE(cl->weights), overruns);
	overrun = overruns >= COSCHED_OVERRUN_REVIEWS;
	known = cosched_review_runs(cl, &r);
	reason = cosched_judge(&r, READ_ONCE(cl->weights));
	WRITE_ONCE(cl->overruns, overruns);
	if (!cosched_apart(cl))
		cosched_review_bursts(cl, &r);
	WRITE_ONCE(cl->dear, cosched_judge_dear(&r, cl->dear));
	WRITE_ONCE(cl->full, reason == COSCHED_REVIEW_FULL && !overrun);
	if (overrun)
		reason = COSCHED_REVIEW_OVERRUN;
	if (cosched_apart(cl)) {
		/* The cluster stays apart until its time is over, others come, or it overruns. */
		if (reason != COSCHED_REVIEW_FULL && !overrun)
			return;
		cosched_end_apart(a);
	} else if (!overrun) {
		known = cosched_count_review(a, reason, known);
		if (!known && reason != COSCHED_REVIEW_FULL)
			return;
		if (reason == COSCHED_REVIEW_APART)
			cosched_go_apart(cl, &r);
	}
	trace_cosched_review(cl->cgroup_id, reason, r.run[0], r.run[1], r.load, r.tasks,
			     r.capacity, r.room, cl->dear, cosched_bursts(cl));
}

/* Review @cl if the last review was @interval jiffies ago or more, and no other CPU does it. */
static noinline void cosched_try_review(struct task_struct *p, struct cosched_cluster *cl,
					struct cosched_home *home, unsigned long interval)
{
	if (test_and_set_bit_lock(0, &cl->reviewing))
		return;
	if (jiffies - cl->apart.reviewed >= interval)
		cosched_do_review(p, cl, home);
	clear_bit_unlock(0, &cl->reviewing);
}

/* If a review is due, see whether @cl, the waking @p's, should be apart or overruns all. */
static void cosched_review(struct task_struct *p, struct cosched_cluster *cl,
			   struct cosched_home *home)
{
	if (jiffies - READ_ONCE(cl->apart.reviewed) >= COSCHED_REVIEW_INTERVAL)
		cosched_try_review(p, cl, home, COSCHED_REVIEW_INTERVAL);
}

/*
 * One queue at home, of @queued tasks, is longer than the machine has CPUs: a task of @cl is waking
 * many at once. If the cluster is alone, and the weights allow it, it overruns the machine, and
 * that is known before all of the tasks are woken. By the next review CPUs elsewhere would have
 * taken single tasks, which talk from there with those at home: one instance of 32 groups of
 * threads took 3 % longer.
 */
static noinline void cosched_review_queue(struct task_struct *p, struct cosched_cluster *cl,
					  struct cosched_home *home, unsigned int queued)
{
	unsigned long now = jiffies, last = READ_ONCE(cl->queue_seen);
	struct cosched_review r = {
		.alone = true,
		/* If they run briefly twice as many are needed, as for any review. */
		.nr_own = cosched_runs_briefly(p) ? queued / 2 : queued,
		.total = (u64)num_online_cpus() << SCHED_CAPACITY_SHIFT,
	};

	if (!cosched_judge_overrun(&r, READ_ONCE(cl->weights), false))
		return;
	/* Once a tick: a kernel thread that is runnable for an instant is gone at the next one. */
	if (now == last || cmpxchg(&cl->queue_seen, last, now) != last || !cosched_alone(cl))
		return;
	/*
	 * What others left behind in averages may have prevented the last verdict, and takes longer
	 * to decay than a tick: do not try again before the next review would be due.
	 */
	if (now - READ_ONCE(cl->queue_reviewed) < COSCHED_REVIEW_INTERVAL)
		return;
	WRITE_ONCE(cl->queue_reviewed, now);
	cosched_try_review(p, cl, home, 0);
}

/* What kind of task looks for a CPU outside of home. */
enum cosched_leaver {
	COSCHED_WAKING,		/* scans as many CPUs as select_idle_sibling(): those of an LLC */
	COSCHED_NEW,		/* forked or exec'ed: scans all, as sched_balance_find_dst_cpu() */
	COSCHED_WOKEN,		/* by its own cluster: as WAKING, but goes only to an idle CPU */
	COSCHED_CROWDED,	/* running: scans all, goes only to a durably idle CPU */
	COSCHED_CROWDED_STRAY,	/* the same, but outside already: weights do not apply */
};

/*
 * Rules 2 and 4: no CPU of home is idle, so find one outside. Domains are visited from the nearest
 * on: the rest of @anchor's LLC, then by sched domain levels. When the number of CPUs to scan is
 * used up, one CPU of each further domain is still looked at, for a wakeup up to COSCHED_WAKE_LLCS
 * domains: the first ones may be full of tasks that came a moment ago and have no load yet. For a
 * task to queue outside, the comparison also has to hold for the queues as they are now: the
 * shortest one at home, of @nr_queued tasks, and the one outside. If the task is not a crowded one,
 * the caller has asked cosched_none_cheaper() before.
 *
 * A task that runs on a crowded CPU goes to one that is durably idle. Whatever the weights are, a
 * CPU that nobody has used for a while is not left idle (rule 7). As weights compare means, the
 * last CPUs of a large domain would wait for the balancer: four of 22 did so for 400 ms, when a
 * home of 22 CPUs had four tasks too many.
 */
static int cosched_leave_home(struct task_struct *p, struct cosched_cluster *cl,
			      struct cosched_home *home, int anchor, enum cosched_leaver who,
			      unsigned int nr_queued, enum cosched_place_reason *reason)
{
	const struct cpumask *done = NULL;
	bool wakes = who == COSCHED_WAKING || who == COSCHED_WOKEN;
	unsigned int budget = wakes ? per_cpu(sd_llc_size, anchor) : nr_cpu_ids;
	struct cosched_scan best = COSCHED_SCAN_INIT;
	enum cosched_asker asker = cosched_asker(p);
	unsigned long best_load = 0;
	unsigned int best_nr = 1, left = nr_cpu_ids;
	bool brief = wakes && cosched_runs_briefly(p) && !cosched_apart(cl), many;
	struct sched_domain *sd;
	int llc, from = -1;

	/* An LLC of one CPU has no sched domain, and nothing left outside of home. */
	sd = rcu_dereference(per_cpu(sd_llc, anchor));
	if (!sd) {
		sd = rcu_dereference(cpu_rq(anchor)->sd);
		done = cpumask_of(anchor);
	}
	many = wakes && cosched_many_llcs();
	if (many) {
		left = COSCHED_WAKE_LLCS;
		from = READ_ONCE(home->from) - 1;
	}
	for (; sd; done = sched_domain_span(sd), sd = rcu_dereference(sd->parent)) {
		const struct cpumask *level = sched_domain_span(sd);
		unsigned int left_level = left;
		/* Hotplug may change the mask meanwhile. */
		unsigned int nr_llcs = cpumask_weight_and(&cosched_llcs, level);

		/* Half in each level but the last, so that not all of them are near. */
		if (many && rcu_access_pointer(sd->parent))
			left_level = DIV_ROUND_UP(left, 2);
		for (llc = cosched_next_llc(from, level); nr_llcs-- && llc < nr_cpu_ids;
		     llc = cosched_next_llc(llc, level)) {
			const struct cpumask *span = cosched_llc_span(llc);
			struct cosched_scan s = COSCHED_SCAN_INIT;
			unsigned long load;
			unsigned int nr;
			bool cheaper;
			int first;

			if (done && cpumask_test_cpu(llc, done))
				continue;
			if (!left_level)
				break;
			cheaper = cosched_llc_cheaper(cl, home, asker, llc, &load, &nr);
			if (nr) {
				left_level--;
				left--;
			}
			if (!cheaper && who < COSCHED_CROWDED)
				continue;
			/* A CPU that idles there for a moment is left to the tasks there. */
			if (brief && cosched_busy(load, nr))
				continue;
			s.limit = max(budget, 1);
			if (who >= COSCHED_CROWDED)
				s.looks = cheaper || who == COSCHED_CROWDED_STRAY ?
					  1 : cosched_looks_unused(cl);
			/* Start at different CPUs: several tasks look at the same time. */
			first = cpumask_nth(p->pid % cpumask_weight(span), span);
			cosched_scan(p, span, home_mask(home), first, &s);
			budget -= min(budget, s.nr_scanned);
			if (s.idle >= 0) {
				*reason = COSCHED_SPILL;
				return s.idle;
			}
			if (who >= COSCHED_WOKEN)
				continue;
			/* To queue there, the domain has to be cheaper with the task in it. */
			load += READ_ONCE(p->se.avg.runnable_avg);
			if (!cosched_home_dearer(cl, home, asker, 0, load, nr))
				continue;
			cosched_scan_queues(p, span, home_mask(home), first, &s);
			/* By its queue, too: many tasks may have come since loads were summed. */
			if (!cosched_cheaper(READ_ONCE(cl->weights), nr_queued, 1, s.nr_queued, 1))
				continue;
			if (s.queue >= 0 && (best.queue < 0 || load * best_nr < best_load * nr)) {
				best = s;
				best_load = load;
				best_nr = nr;
			}
		}
	}
	*reason = COSCHED_OVERFLOW;
	return best.queue;
}

/* Will @cpu soon be free: does a task of @cl that runs briefly run there, and no other wait? */
static bool cosched_brief_wait(struct cosched_cluster *cl, int cpu)
{
	struct rq *rq = cpu_rq(cpu);
	struct task_struct *curr = rcu_dereference(rq->curr);

	return cosched_nr_queued(rq) <= 1 && READ_ONCE(curr->cosched) == cl &&
	       cosched_runs_briefly(curr);
}

/*
 * Is @home busy on average? If it is not, a task that leaves it soon finds an idle CPU there and
 * comes back, and is served at once meanwhile.
 */
static bool cosched_home_busy(struct cosched_home *home, enum cosched_asker asker)
{
	unsigned int nr;
	unsigned long load = cosched_home_load(home, asker, &nr);

	return cosched_busy(load, nr);
}

/* Are at least half of the tasks that run or wait in @llc, outside of @home, tasks of @cl? */
static bool cosched_own_llc(struct cosched_cluster *cl, struct cosched_home *home, int llc)
{
	const struct cpumask *span = cosched_llc_span(llc);
	unsigned int own = 0, all = 0;
	int cpu;

	for_each_cpu_andnot(cpu, span, home_mask(home)) {
		own += READ_ONCE(per_cpu_ptr(cl->cpu, cpu)->nr_runnable);
		all += READ_ONCE(cpu_rq(cpu)->cfs.h_nr_runnable);
	}
	return own * 2 >= all;
}

/*
 * Does @cl keep the domain of @cpu busy as well as its home? Wakers outside then have their wakees
 * beside them, as wake-affine has it: to send these wakees home to queue cost hackbench a third
 * more wakeups and 5 % more time. This does not hold if more than half of the tasks there are
 * others', and no longer once home has only half the load, compared with the domain, that was
 * needed to leave it: the difference keeps tasks from going back and forth.
 */
static bool cosched_settled(struct task_struct *p, struct cosched_cluster *cl,
			    struct cosched_home *home, int cpu)
{
	enum cosched_asker asker = cosched_asker(p);
	unsigned long load, home_load;
	unsigned int nr, home_nr;

	home_load = cosched_home_load(home, asker, &home_nr);
	if (!cosched_busy(home_load, home_nr))
		return false;
	load = cosched_outside_load(cpu, home, asker, &nr);
	return nr && cosched_busy(load, nr) &&
	       cosched_cheaper(READ_ONCE(cl->weights), 2 * home_load, home_nr, load, nr) &&
	       cosched_own_llc(cl, home, cpu);
}

/* An idle CPU outside of home that shares the LLC of @cpu; -1 if there is none. */
static int cosched_idle_beside(struct task_struct *p, struct cosched_home *home, int cpu)
{
	struct cosched_scan s = COSCHED_SCAN_INIT;

	cosched_scan(p, cosched_llc_span(cpu), home_mask(home), cpu, &s);
	return s.idle;
}

/*
 * The number of tasks in the queues of those CPUs in @cpu's LLC domain that @p may use, with *@nr
 * the number of these CPUs; 0 if one of them is idle. Counted as of now: if one task wakes many at
 * once, each of these sees those before it.
 */
static unsigned int cosched_llc_queued(struct task_struct *p, int cpu, unsigned int *nr)
{
	const struct cpumask *span = cosched_llc_span(cpu);
	unsigned int queued = 0;

	*nr = 0;
	for_each_cpu(cpu, span) {
		struct rq *rq = cpu_rq(cpu);
		unsigned int here;

		if (!cosched_cpu_allowed(p, cpu))
			continue;
		here = cosched_nr_queued(rq) + READ_ONCE(rq->ttwu_pending);
		if (!here || cosched_cpu_idle(p, cpu))
			return 0;
		queued += here;
		++*nr;
	}
	return queued;
}

/*
 * The CPU for @p, whose cluster overruns the machine, when a task of its own cluster wakes it on
 * @cpu, in another LLC domain than @prev; -1: leave it to the kernel. Tasks that talk with each
 * other are separated while such a cluster spreads over the machine. Wake-affine, which goes by the
 * loads of two CPUs, leaves half of them where they are. So they gather: @p goes to an idle CPU of
 * its waker's LLC domain, or to the shortest queue there, if the CPUs there have no more tasks each
 * than those of the domain that it leaves. This is not done if @p would run at once where it is,
 * nor more often than a running task looks for a better CPU. Tasks that come in bursts, and run
 * hardly longer elsewhere, would gain nothing by that: the caller does not ask for them.
 */
static int cosched_gather(struct task_struct *p, int prev, int cpu)
{
	const struct cpumask *span = cosched_llc_span(cpu);
	struct cosched_scan s = COSCHED_SCAN_INIT;
	unsigned int queued, nr, prev_queued, prev_nr;

	if (cpus_share_cache(prev, cpu) || !cosched_cpu_allowed(p, cpu) ||
	    cosched_looked(p, 1) || !cosched_nr_queued(cpu_rq(prev)))
		return -1;
	/* No CPU was seen to idle, or tasks to wait on it. */
	p->cosched_look = jiffies;
	p->cosched_look_cpu = nr_cpu_ids;
	prev_queued = cosched_llc_queued(p, prev, &prev_nr);
	if (!prev_queued)
		return -1;
	queued = cosched_llc_queued(p, cpu, &nr);
	if (!queued)
		cosched_scan(p, span, NULL, cpu, &s);
	if (s.idle >= 0)
		return s.idle;
	if (queued * prev_nr <= prev_queued * nr)
		cosched_scan_queues(p, span, NULL, cpu, &s);
	return s.queue;
}

/*
 * A task that wakes up and has to queue at home queues where its data is warm, as it does with
 * select_idle_sibling(). The exception is a queue there that is longer than the shortest one by
 * more than this number of tasks, and also more than twice as long: wakeups soon even out any
 * queue except one of tasks that never sleep.
 *
 * A task that runs briefly always waits where its data is warm, unless strays compute at home
 * (see "queue:" below). So does a task woken by its own cluster. If a task wakes many others at
 * once and each went to the shortest queue, they would be dealt out one by one, which separates
 * tasks that talk with each other. Left in one queue, they go as neighbours to CPUs that run out
 * of work. Dealing them out cost two instances of hackbench 2 %.
 *
 * A task woken by its own cluster does not queue outside either, where CPUs have less to do
 * (COSCHED_WOKEN): when one instance began before the other, the dozens of tasks that queued there
 * cost 1.5 %. If such a load lasts, the balancer moves tasks there.
 */
#define COSCHED_WARM_QUEUE		2U

int __cosched_select_cpu(struct task_struct *p, int prev, int target, int wake_flags)
{
	struct cosched_scan s = COSCHED_SCAN_INIT;
	struct cosched_cluster *cl = p->cosched;
	enum cosched_place_reason reason;
	enum cosched_asker asker;
	enum cosched_leaver who;
	bool wakeup = wake_flags & WF_TTWU;
	int cpu, this_cpu = smp_processor_id(), affine = target;
	unsigned int longer, queued;
	bool prev_home, target_home, affine_out, stays, brief, apart, waits, sync, woken, warm;
	bool everywhere, busy;
	const struct cpumask *span;
	struct cosched_home *home;

	lockdep_assert_held(&p->pi_lock);
	guard(rcu)();

	home = rcu_dereference(cl->home);
	if (!home->nr || !cpumask_intersects(home_mask(home), p->cpus_ptr))
		return -1;

	everywhere = cosched_everywhere(cl);
	woken = wakeup && cosched_woken_by_own(cl);
	if (everywhere && (woken || (wakeup && cosched_hands_off(cl)))) {
		cosched_review(p, cl, home);
		cpu = woken && cosched_hands_off(cl) && !cosched_bursts(cl) ?
		      cosched_gather(p, prev, this_cpu) : -1;
		if (cpu < 0)
			return -1;
		reason = COSCHED_GATHER;
		goto out;
	}

	span = everywhere ? cpu_online_mask : home_mask(home);
	prev_home = cpumask_test_cpu(prev, span) && cosched_cpu_allowed(p, prev);
	target_home = cpumask_test_cpu(target, span) && cosched_cpu_allowed(p, target);

	/* The home CPU where the data is warm: what wake-affine chose, else @prev, else any. */
	if (!target_home)
		target = prev_home ? prev : cosched_any_allowed(p, span);
	if (target >= nr_cpu_ids)
		return -1;

	reason = COSCHED_HOME_IDLE;
	cpu = prev;
	if (prev_home && cpus_share_cache(prev, target) && cosched_cpu_idle(p, prev))
		goto out;
	/* An exec'ing task that has its CPU to itself is as well off there as on an idle CPU. */
	if (prev_home && (wake_flags & WF_EXEC) && cosched_nr_queued(cpu_rq(prev)) <= 1)
		goto out;

	asker = cosched_asker(p);
	busy = wakeup && !everywhere && cosched_home_busy(home, asker);
	if (busy || (wakeup && (everywhere || READ_ONCE(cl->apart.lasts) ||
				READ_ONCE(cl->trial.phase))))
		cosched_review(p, cl, home);
	apart = wakeup && cosched_apart(cl);
	brief = wakeup && cosched_runs_briefly(p) && !apart;

	affine_out = !cpumask_test_cpu(affine, span) && cosched_cpu_allowed(p, affine);
	if (apart && affine_out) {
		cpu = cosched_idle_beside(p, home, affine);
		if (cpu >= 0) {
			reason = COSCHED_SPILL;
			goto out;
		}
	}

	/*
	 * A stray whose previous CPU, outside, is idle leaves it only for a durably idle
	 * home CPU, unless the stray runs too briefly to lose anything when it has to leave
	 * home again. If it took any idle home CPU, the one of a task that sleeps for a
	 * moment, that task would have to look for another CPU, and so on. If the tick has
	 * just looked for a durably idle CPU, the stray does not look again: that reads
	 * cache lines which home's CPUs write.
	 */
	stays = !cpumask_test_cpu(prev, span) && cosched_cpu_allowed(p, prev) &&
		cosched_cpu_idle(p, prev);
	if (stays && !brief && cosched_looked(p, 1)) {
		reason = COSCHED_STAY;
		cpu = prev;
		goto out;
	}
	s.looks = stays && !brief ? 1 : 0;
	s.host = brief && !everywhere && cosched_home_strays(home) ? cl : NULL;
	/* Look at no more CPUs than home and one domain outside have. */
	if (everywhere)
		s.limit = home->nr + per_cpu(sd_llc_size, target);
	if (wakeup && cosched_many_llcs())
		s.limit = min_t(unsigned int, s.limit,
				COSCHED_WAKE_LLCS * per_cpu(sd_llc_size, target));
	cosched_scan_home(p, span, target, brief && !everywhere, &s);
	if (s.idle >= 0) {
		cpu = s.idle;
		goto out;
	}
	if (!s.nr_scanned)
		return -1;

	/* A waker that is about to sleep leaves its CPU to the wakee, as with wake-affine. */
	sync = (wake_flags & WF_SYNC) && !(current->flags & PF_EXITING);
	if (wakeup && sync && target_home && target == this_cpu &&
	    cosched_nr_queued(cpu_rq(this_cpu)) == 1) {
		reason = COSCHED_HOME_QUEUE;
		cpu = target;
		goto out;
	}

	warm = target_home && (brief || woken);
	if (everywhere) {
		cosched_scan_queues(p, cosched_llc_span(target), NULL, target, &s);
		cosched_scan_queues(p, span, cosched_llc_span(target), target, &s);
		if (s.queue < 0)
			return -1;
		goto queue;
	}

	reason = COSCHED_STAY;
	cpu = prev;
	if (stays)
		goto out;

	if (woken && affine_out &&
	    cosched_settled(p, cl, home, affine)) {
		reason = COSCHED_SPILL;
		cpu = cosched_idle_beside(p, home, affine);
		if (cpu < 0) {
			reason = COSCHED_OVERFLOW;
			cpu = affine;
		}
		goto out;
	}

	if (s.host || !(woken && target_home)) {
		cosched_scan_queues(p, span, NULL, target, &s);
		/* CPUs that were allowed may go offline, or be isolated, at any time. */
		if (s.queue < 0)
			return -1;
	}
	/* A task at home goes before one that is not, see cosched_goes_first(). */
	if (s.stray >= 0) {
		reason = COSCHED_HOME_STRAY;
		cpu = s.stray;
		goto out;
	}

	/*
	 * Home is full just now, though maybe not on average. See "Bursts" and, for a task that
	 * does not run briefly and would be the third to wait, "Overrun".
	 */
	queued = wakeup ? cosched_nr_queued(cpu_rq(target)) : 0;
	if (brief || queued > COSCHED_WARM_QUEUE)
		cosched_review(p, cl, home);
	if (queued > num_online_cpus())
		cosched_review_queue(p, cl, home, queued);

	/* A brief wait for a task of its own cluster costs less than leaving the data. */
	waits = brief && busy;
	if (waits && target_home && cosched_brief_wait(cl, target)) {
		reason = COSCHED_HOME_QUEUE;
		cpu = target;
		goto out;
	}

	if (cosched_none_cheaper(cl, home, asker, brief))
		goto queue;
	who = !wakeup ? COSCHED_NEW : woken ? COSCHED_WOKEN : COSCHED_WAKING;
	cpu = cosched_leave_home(p, cl, home, target, who, s.nr_queued, &reason);
	if (cpu >= 0) {
		if (waits && s.queue < 0)
			cosched_scan_queues(p, span, NULL, target, &s);
		if (waits && s.queue >= 0 && cosched_brief_wait(cl, s.queue)) {
			reason = COSCHED_HOME_QUEUE;
			cpu = s.queue;
		}
		goto out;
	}

queue:
	reason = COSCHED_HOME_QUEUE;
	cpu = s.queue;
	/* With strays to run, no CPU runs out of work and takes a task from a long queue. */
	if (s.host)
		goto out;
	/* A forked or exec'ed task stays for longer than one that wakes up. */
	longer = wakeup ? max(s.nr_queued, COSCHED_WARM_QUEUE) : 1;
	if (warm || (target_home && cosched_nr_queued(cpu_rq(target)) <= s.nr_queued + longer))
		cpu = target;
	else if (prev_home && cosched_nr_queued(cpu_rq(prev)) <= s.nr_queued)
		cpu = prev;
out:
	if (everywhere && reason != COSCHED_GATHER && !cpumask_test_cpu(cpu, home_mask(home)))
		reason = reason == COSCHED_HOME_IDLE ? COSCHED_SPILL : COSCHED_OVERFLOW;
	switch (reason) {
	case COSCHED_HOME_IDLE:
	case COSCHED_HOME_QUEUE:
	case COSCHED_HOME_STRAY:
		cosched_count(cl, COSCHED_WAKEUP_HOME);
		break;
	case COSCHED_STAY:
	case COSCHED_SPILL:
		cosched_count(cl, COSCHED_WAKEUP_SPILLED);
		break;
	case COSCHED_OVERFLOW:
		cosched_count(cl, COSCHED_WAKEUP_OVERFLOWED);
		break;
	case COSCHED_GATHER:
		cosched_count(cl, cpumask_test_cpu(cpu, home_mask(home)) ?
				  COSCHED_WAKEUP_HOME : COSCHED_WAKEUP_OVERFLOWED);
		break;
	}
	trace_cosched_place(p, prev, cpu, reason);
	return cpu;
}

/*
 * Load balancer
 */

/* Is a CPU of @home idle on which @p may run? Core cookies and capacity are not checked. */
static bool cosched_home_idle(struct task_struct *p, struct cosched_home *home)
{
	int cpu;

	for_each_cpu_and(cpu, home_mask(home), p->cpus_ptr) {
		if (available_idle_cpu(cpu) && cosched_cpu_allowed(p, cpu))
			return true;
	}
	return false;
}

/*
 * May @dst, which is idle now, take @p of @cl from home, whatever the load of @dst's domain is?
 * Only if @dst is durably idle and, where tasks that leave home run much longer, see "Dear", only
 * if also nobody has used it for a while. When one of two instances of hackbench has ended, or
 * has no work for all of its CPUs, these CPUs are soon durably idle. The tasks that they took from
 * the other instance, which had a few ms left to run, made that one end 5 ms later.
 */
static bool cosched_idle_takes(struct task_struct *p, struct cosched_cluster *cl, int dst)
{
	unsigned long util;

	if (!cosched_durably_idle(p, dst, &util))
		return false;
	return !cosched_reviewed(cl) || READ_ONCE(cl->dear) <= COSCHED_DEAR_MUCH ||
	       cosched_idle_for(dst, COSCHED_LOOKS_UNUSED);
}

int __cosched_can_migrate(struct task_struct *p, int src, int dst,
			  enum cpu_idle_type idle, bool failed, bool active)
{
	struct cosched_cluster *cl = p->cosched;
	struct cosched_home *home;
	bool from_home, to_home;
	enum cosched_asker asker;
	unsigned long load;
	unsigned int nr;
	bool may;
	int ret = -1;

	rcu_read_lock();
	home = rcu_dereference(cl->home);
	from_home = cpumask_test_cpu(src, cosched_home_span(cl, home));
	to_home = cpumask_test_cpu(dst, cosched_home_span(cl, home));

	if (from_home == to_home)
		goto out;

	if (to_home) {
		ret = 1;
		goto out;
	}

	/* Capacity takes precedence over home. */
	if (sched_asym_cpucap_active() && !cosched_task_fits(p, src))
		goto out;

	ret = 0;
	/* A task that sleeps, but is still queued, would leave in place of one that waits. */
	if (p->se.sched_delayed)
		goto out;
	/*
	 * A task that runs alone at home has nothing to gain elsewhere, unless interrupts or other
	 * classes take a part of its CPU, as in check_cpu_capacity().
	 */
	if (active && cpu_rq(src)->cfs.h_nr_runnable <= 1 && !cosched_cpu_reduced(src))
		goto out;
	/* active_load_balance_cpu_stop() takes any CPU that it pushes to for idle. */
	if (active && idle == CPU_IDLE && !available_idle_cpu(dst))
		idle = __CPU_NOT_IDLE;
	/*
	 * A CPU of a cheaper domain may take the task, and so may a durably idle CPU. In a
	 * domain that is not cheaper, a CPU that idles for a moment while all are busy may not:
	 * that made 7 to 30 moves per second and cluster, instead of 0 to 6, on 8 LLCs of
	 * 4 CPUs with 2 threads per CPU. Nor may a busy CPU there, however often balancing
	 * fails: it keeps failing where a cluster's weights mean its tasks to stay at home.
	 *
	 * If @dst may, task_hot() decides about a task that runs briefly, unless its cluster is
	 * apart: pulling tasks that wait behind one another for an instant scatters their data.
	 *
	 * Any idle CPU may take an idle-class task that runs for long at a time. Such a task
	 * uses what nobody else wants, and that is the moments in which CPUs idle. Each of the
	 * other idle-class tasks has its turn soon. Not cosched_runs_on(): a task that changes
	 * places may sleep until the stopper threads of both CPUs have done the swap.
	 */
	asker = cosched_asker(p);
	may = cosched_llc_cheaper(cl, home, asker, dst, &load, &nr) ||
	      (idle == CPU_IDLE && cosched_idle_takes(p, cl, dst)) ||
	      (idle && asker == COSCHED_ASKER_IDLE_CLASS && p->cosched_run > COSCHED_RUN_MAX / 2);
	/*
	 * If a CPU of home is idle, it should take the task, so @dst may not. If balancing has
	 * failed too often, that CPU does not take it, for whatever reason, so @dst may.
	 * This is checked last, as it reads what all CPUs of home write. If @dst may not anyway,
	 * failures say nothing: @dst may have counted them while it was busy.
	 */
	if (!may)
		goto out;
	if (idle && cosched_home_idle(p, home))
		ret = failed;
	else
		ret = cosched_runs_briefly(p) && !cosched_apart(cl) ? -1 : 1;
out:
	rcu_read_unlock();
	return ret;
}

bool __cosched_leaves_home(struct task_struct *p, int src, int dst)
{
	struct cosched_cluster *cl;
	struct cosched_home *home;
	bool out = false;

	rcu_read_lock();
	/* Another CPU's running task may be on its way out of the cluster. */
	cl = READ_ONCE(p->cosched);
	if (cl) {
		home = rcu_dereference(cl->home);
		out = cpumask_test_cpu(src, cosched_home_span(cl, home)) &&
		      !cpumask_test_cpu(dst, cosched_home_span(cl, home));
	}
	rcu_read_unlock();
	return out;
}

/* Does @p run so briefly that a task waiting behind it would run before it could be fetched? */
static bool cosched_run_too_short(struct task_struct *p)
{
	return (u64)p->cosched_run << 10 < sysctl_sched_migration_cost / 8;
}

/**
 * cosched_waiting_cpu() - Find where a task waits that would be as much at home on an idle CPU.
 * @prev: the last task of @cpu, still current there but asleep
 * @cpu: a CPU that has nothing to do
 *
 * Only tasks of @prev's cluster are considered, so that no data is needed that all CPUs of home
 * would write. Only homes of several LLC domains are considered: below one LLC the balancer
 * compares single CPUs and finds such a task by itself. If @prev runs for less than an eighth of
 * what a move costs, nothing is fetched: tasks like it would wait no longer than that takes.
 *
 * Return: the first CPU of home after @cpu, by number and wrapping around, where two or more tasks
 * of the cluster are runnable; -1 if there is none.
 */
int cosched_waiting_cpu(struct task_struct *prev, int cpu)
{
	const struct cpumask *span;
	struct cosched_cluster *cl;
	int src, found = -1;

	if (cosched_run_too_short(prev))
		return -1;

	rcu_read_lock();
	cl = READ_ONCE(prev->cosched);
	if (!cl || cosched_hands_off(cl))
		goto out;
	span = cosched_home_span(cl, rcu_dereference(cl->home));
	if (!cpumask_test_cpu(cpu, span) || cpumask_subset(span, cosched_llc_span(cpu)))
		goto out;
	for_each_cpu_wrap(src, span, cpu) {
		if (src != cpu && READ_ONCE(per_cpu_ptr(cl->cpu, src)->nr_runnable) > 1) {
			found = src;
			break;
		}
	}
out:
	rcu_read_unlock();
	return found;
}

bool __cosched_detach(struct task_struct *p, int src, int dst, enum cpu_idle_type idle)
{
	struct cosched_cluster *cl = p->cosched;

	if (!__cosched_leaves_home(p, src, dst))
		return false;

	atomic64_inc(&cl->events[COSCHED_TASK_PULLED]);
	trace_cosched_pull(p, src, dst, idle ? COSCHED_PULL_IDLE : COSCHED_PULL_CHEAPER);
	return true;
}

/*
 * Running tasks: strays come home, others leave a crowded CPU
 */

/* Do tasks wait on @rq, where @p runs? Idle-class tasks count only if @p is one, too. */
static bool cosched_crowded(struct rq *rq, struct task_struct *p)
{
	int nr = READ_ONCE(rq->cfs.h_nr_runnable);

	if (nr > 1 && cosched_asker(p) == COSCHED_ASKER_NORMAL)
		nr -= cfs_nr_idle_class(&rq->cfs);
	return nr > 1;
}

#ifdef CONFIG_SCHED_CORE
/*
 * Can @p run on @cpu without sharing the core with a task of another cookie, so that one of the
 * two would idle? If @strays, tasks that are strays there do not count, as they are to come home,
 * too. Otherwise the task on each thread of a core would wait for those on the others, and none
 * would ever change places.
 */
static bool cosched_cookie_fits(struct task_struct *p, int cpu, bool strays)
{
	struct task_struct *curr;
	struct cosched_home *home;
	struct cosched_cluster *cl;
	int sibling;

	if (!sched_core_enabled(cpu_rq(cpu)))
		return true;
	for_each_cpu(sibling, cpu_smt_mask(cpu)) {
		curr = rcu_dereference(cpu_rq(sibling)->curr);
		if (sibling == cpu || is_idle_task(curr) ||
		    READ_ONCE(curr->core_cookie) == p->core_cookie)
			continue;
		cl = strays ? READ_ONCE(curr->cosched) : NULL;
		home = cl ? rcu_dereference(cl->home) : NULL;
		if (!home || !home->nr || cpumask_test_cpu(cpu, home_mask(home)))
			return false;
	}
	return true;
}
#else
static bool cosched_cookie_fits(struct task_struct *p, int cpu, bool strays)
{
	return true;
}
#endif

/* Would @p wait longer on @cpu than on @src, by the queues now, or on average by half a task? */
static bool cosched_waits_longer(struct task_struct *p, int cpu, int src)
{
	enum cosched_asker asker = cosched_asker(p);

	return cosched_nr_queued(cpu_rq(cpu)) > cosched_nr_queued(cpu_rq(src)) ||
	       cosched_cpu_load(cpu, asker) >
	       cosched_cpu_load(src, asker) + SCHED_CAPACITY_SCALE / 2;
}

/*
 * May @peer, which runs on @cpu, give its place there, at the home of the stray @p, to @p and go to
 * @src instead? Not if @peer is at home on @cpu.
 *
 * Return: 2 if @peer comes home by that; 1 if @peer remains outside of its home, or has none; 0 if
 * it may not. It is 1 only if @p would not wait longer on @cpu: otherwise @p would come home to
 * wait, from a CPU that may idle when @peer sleeps.
 */
static int cosched_swap_value(struct task_struct *p, struct task_struct *peer, int cpu, int src)
{
	struct cosched_home *home;
	struct cosched_cluster *cl;
	bool mutual = false;

	if (peer->sched_class != &fair_sched_class || (peer->flags & (PF_EXITING | PF_KTHREAD)) ||
	    is_migration_disabled(peer) || !cosched_cpu_allowed(peer, src))
		return 0;
	if (sched_asym_cpucap_active() && !cosched_task_fits(peer, src))
		return 0;

	cl = READ_ONCE(peer->cosched);
	home = cl ? rcu_dereference(cl->home) : NULL;
	if (home && home->nr) {
		if (cpumask_test_cpu(cpu, home_mask(home)))
			return 0;
		mutual = cpumask_test_cpu(src, home_mask(home));
	}
	if (!mutual && cosched_waits_longer(p, cpu, src))
		return 0;
	if (!cosched_cookie_fits(peer, src, mutual) || !cosched_cookie_fits(p, cpu, mutual))
		return 0;
	return 1 + mutual;
}

/* If the stray @p came home from @src, would home still be no dearer than the domain it left? */
static bool cosched_home_takes(struct task_struct *p, struct cosched_cluster *cl,
			       struct cosched_home *home, int src)
{
	unsigned long load, own = READ_ONCE(p->se.avg.runnable_avg);
	enum cosched_asker asker = cosched_asker(p);
	unsigned int nr;

	load = cosched_outside_load(src, home, asker, &nr);
	return !cosched_home_dearer(cl, home, asker, own, load - min(load, own), nr);
}

/*
 * Find where the stray @p, which runs on @src, should go, in this order:
 *
 * - to a home CPU that is durably idle;
 * - to a home CPU whose running task, *@peer, comes home by changing places (*@mutual is true);
 * - to the home CPU with the least load, if its queue is shorter than that of @src, now and on
 *   average, and home would be no dearer with @p;
 * - to a home CPU whose running task, *@peer, changes places without coming home.
 *
 * The third is there because a stray of another cluster rarely runs at the same time as @p if
 * queues are long and tasks do not sleep.
 *
 * Return: that CPU, or -1 if there is none. *@peer is NULL if @p goes there alone.
 */
static int cosched_way_home(struct task_struct *p, struct cosched_cluster *cl,
			    struct cosched_home *home, int src,
			    struct task_struct **peer, bool *mutual)
{
	int cpu, first, dst = -1, value = 0, look_cpu = nr_cpu_ids, queue = -1;
	unsigned int nr_queued = cosched_nr_queued(cpu_rq(src));
	enum cosched_asker asker = cosched_asker(p);
	unsigned long util, look_util = 0, least, load;
	struct cosched_scan s = COSCHED_SCAN_INIT;

	*peer = NULL;
	/* Less by half a task: a stray beside a task that runs for a short time is well off. */
	least = cosched_cpu_load(src, asker);
	least -= min(least, SCHED_CAPACITY_SCALE / 2);
	/* Strays on different CPUs look at different home CPUs first. */
	first = cpumask_nth(src % home->nr, home_mask(home));
	for_each_cpu_wrap(cpu, home_mask(home), first) {
		struct task_struct *curr;
		int v;

		if (!cosched_cpu_allowed(p, cpu))
			continue;
		if (cosched_cpu_idle(p, cpu)) {
			int rank = cosched_core_idle(cpu);
			bool durable = cosched_durably_idle(p, cpu, &util);

			if (durable && rank > s.rank) {
				s.idle = cpu;
				s.rank = rank;
			}
			/* Next time, look at the same CPU again if it is still idle. */
			if (look_cpu == nr_cpu_ids || cpu == p->cosched_look_cpu) {
				look_cpu = cpu;
				look_util = util;
			}
			continue;
		}
		if (s.idle >= 0 || value == 2)
			continue;
		if (sched_asym_cpucap_active() && !cosched_task_fits(p, cpu))
			continue;
		if (cosched_nr_queued(cpu_rq(cpu)) < nr_queued) {
			load = cosched_cpu_load(cpu, asker);
			if (load < least && cosched_cookie_fits(p, cpu, false)) {
				least = load;
				queue = cpu;
			}
		}
		curr = rcu_dereference(cpu_rq(cpu)->curr);
		v = cosched_swap_value(p, curr, cpu, src);
		if (v > value) {
			value = v;
			dst = cpu;
			*peer = curr;
		}
	}
	/* If the CPU of the last look is busy for a moment, look again at the next tick. */
	if (look_cpu == p->cosched_look_cpu || p->cosched_look_cpu >= nr_cpu_ids ||
	    !cosched_looked(p, 2)) {
		p->cosched_look = jiffies;
		p->cosched_look_cpu = look_cpu;
		p->cosched_look_util = look_util;
	}

	*mutual = value == 2;
	if (s.idle >= 0) {
		*peer = NULL;
		return s.idle;
	}
	if (value < 2 && queue >= 0 && cosched_home_takes(p, cl, home, src)) {
		*peer = NULL;
		return queue;
	}
	return dst;
}

/*
 * Have other tasks waited for @cpu, where @p runs, for longer than a kernel thread needs that has
 * work for an instant? Yes if some waited when @p last looked, not long ago. Also yes if, on
 * average, so many wait that @p may run too rarely for its last look to be recent enough.
 */
static bool cosched_long_crowded(struct task_struct *p, int cpu)
{
	if (READ_ONCE(cpu_rq(cpu)->cfs.avg.runnable_avg) > 2 * SCHED_CAPACITY_SCALE)
		return true;
	return p->cosched_look_cpu == cpu && cosched_looked(p, 8);
}

/*
 * A CPU of @span, which is home, that is below another LLC than @src and that nobody has used for a
 * while. Within an LLC, the balancer is quick. Between LLCs it compares groups of CPUs, and looks
 * less and less often if that does not help: after 16 tasks, 15 of them idle-class, had been bound
 * to one of four LLCs, 12 of them waited on one CPU for 100 ms while CPUs of their home idled.
 */
static int cosched_way_within(struct task_struct *p, const struct cpumask *span, int src)
{
	/* Start at different CPUs: several tasks look at the same time. */
	int first = cpumask_nth(p->pid % cpumask_weight(span), span);
	struct cosched_scan s = COSCHED_SCAN_INIT;

	/* @span may be all CPUs that are online, and one of them may have gone offline just now. */
	if (first >= nr_cpu_ids)
		return -1;
	s.looks = COSCHED_LOOKS_UNUSED;
	cosched_scan(p, span, cosched_llc_span(src), first, &s);
	return s.idle;
}

/*
 * Where should @p, which runs on @src, go if others wait there and, as @lasting says, not only for
 * a moment? To another LLC domain of home; out of home if no CPU of home is idle; or, if it is a
 * stray, elsewhere outside. -1: it stays.
 */
static int cosched_way_out(struct task_struct *p, struct cosched_cluster *cl,
			   struct cosched_home *home, int src, bool lasting)
{
	const struct cpumask *span = cosched_home_span(cl, home);
	enum cosched_place_reason reason;
	bool idle;

	if (!cosched_crowded(cpu_rq(src), p))
		return -1;
	idle = cosched_home_idle(p, home);
	if (idle && (!cpumask_test_cpu(src, span) || cpumask_subset(span, cosched_llc_span(src))))
		return -1;
	p->cosched_look = jiffies;
	p->cosched_look_cpu = src;
	p->cosched_look_util = 0;
	if (!lasting)
		return -1;
	if (idle)
		return cosched_way_within(p, span, src);
	return cosched_leave_home(p, cl, home, src, cpumask_test_cpu(src, home_mask(home)) ?
				  COSCHED_CROWDED : COSCHED_CROWDED_STRAY, 0, &reason);
}

/* Tasks to look at with two locks held: this takes a few us if none of them is in the cache. */
#define COSCHED_ALONG_LOOKS		128U

/*
 * Moves up to @nr tasks of @cl that wait on @src to @cpu, and returns how many it moved. If @first,
 * they are to go before the task that runs on @cpu, so only SCHED_NORMAL tasks that run briefly
 * are moved.
 */
static unsigned int cosched_move_waiting(struct cosched_cluster *cl, int src, int cpu,
					 unsigned int nr, bool first)
{
	struct rq *src_rq = cpu_rq(src), *dst_rq = cpu_rq(cpu);
	unsigned int looks = COSCHED_ALONG_LOOKS, moved = 0;
	struct task_struct *p, *next;

	lockdep_assert_rq_held(src_rq);
	lockdep_assert_rq_held(dst_rq);

	/* The last tasks in the list ran least recently. */
	list_for_each_entry_safe_reverse(p, next, &src_rq->cfs_tasks, se.group_node) {
		if (moved == nr || !looks--)
			break;
		if (p->cosched != cl || task_on_cpu(src_rq, p) || task_current_donor(src_rq, p) ||
		    task_is_blocked(p) || p->se.sched_delayed ||
		    (first && !(cosched_runs_briefly(p) && p->policy == SCHED_NORMAL)) ||
		    is_migration_disabled(p) || !cosched_cpu_allowed(p, cpu) ||
		    !cosched_cookie_fits(p, cpu, false) ||
		    (sched_asym_cpucap_active() && !cosched_task_fits(p, cpu)))
			continue;
		deactivate_task(src_rq, p, DEQUEUE_NOCLOCK);
		set_task_cpu(p, cpu);
		activate_task(dst_rq, p, ENQUEUE_NOCLOCK);
		wakeup_preempt(dst_rq, p, 0);
		if (first)
			trace_cosched_fetch(p, src, cpu);
		else
			trace_cosched_return(p, src, cpu);
		moved++;
	}
	return moved;
}

/*
 * A stray that goes home from a queue takes along the tasks of its cluster that wait there, as
 * long as home has the shorter queues. Otherwise each of them would find its way only when it runs
 * during a tick, after the slices of all others. A hundred tasks had woken up at once and left for
 * a domain that was idle at that time. When the tasks at home in that domain then had work, the
 * hundred were in their way for 100 ms without this, and are for 25 ms with it.
 */
static void cosched_take_along(struct cosched_cluster *cl, int src)
{
	struct rq *dst_rq, *src_rq = cpu_rq(src);
	unsigned int nr, moved = 1;
	struct cosched_home *home;
	int cpu;

	rcu_read_lock();
	home = rcu_dereference(cl->home);
	if (!home->nr || cpumask_test_cpu(src, cosched_home_span(cl, home)))
		goto out;
	for_each_cpu_wrap(cpu, home_mask(home), cpumask_nth(src % home->nr, home_mask(home))) {
		if (!moved || !READ_ONCE(per_cpu_ptr(cl->cpu, src)->nr_runnable))
			break;
		dst_rq = cpu_rq(cpu);
		if (cosched_nr_queued(src_rq) < cosched_nr_queued(dst_rq) + 2)
			continue;
		local_irq_disable();
		double_rq_lock(src_rq, dst_rq);
		if (cosched_nr_queued(src_rq) >= cosched_nr_queued(dst_rq) + 2) {
			update_rq_clock(src_rq);
			update_rq_clock(dst_rq);
			/* Half of the difference, shared among home's CPUs. */
			nr = cosched_nr_queued(src_rq) - cosched_nr_queued(dst_rq);
			nr /= 2 * home->nr;
			moved = cosched_move_waiting(cl, src, cpu, max(nr, 1U), false);
			atomic64_add(moved, &cl->events[COSCHED_STRAY_RETURNED]);
		}
		double_rq_unlock(src_rq, dst_rq);
		local_irq_enable();
	}
out:
	rcu_read_unlock();
}

/* The cluster that a CPU's balance callback fetches a task of. */
struct cosched_fetch {
	struct balance_callback	head;
	struct cosched_cluster	*cl;
};

static DEFINE_PER_CPU(struct cosched_fetch, cosched_fetches);

/*
 * The first CPU after @cpu, by number and wrapping around, below the same LLC and at home, where a
 * task of @cl waits; -1 if there is none, if @cpu is not at home, or if no strays compute at home.
 */
static int cosched_waiting_near(struct cosched_cluster *cl, int cpu)
{
	struct cosched_home *home = rcu_dereference(cl->home);
	int src;

	if (!cosched_home_strays(home) || !cpumask_test_cpu(cpu, home_mask(home)))
		return -1;
	for_each_cpu_wrap(src, cosched_llc_span(cpu), cpu) {
		if (src == cpu || !cpumask_test_cpu(src, home_mask(home)))
			continue;
		if (READ_ONCE(per_cpu_ptr(cl->cpu, src)->nr_runnable) >
		    (READ_ONCE(rcu_dereference(cpu_rq(src)->curr)->cosched) == cl))
			return src;
	}
	return -1;
}

/*
 * Runs when @rq has switched to a stray: fetches a task that waits elsewhere, which goes before the
 * stray. Interrupts have been off since the task of the cluster was current, so the cluster still
 * exists. If the lock was dropped meanwhile, another CPU may run this, but with preemption off
 * since it took the lock.
 */
static void cosched_fetch(struct rq *rq)
{
	int src = -1, cpu = cpu_of(rq);
	struct cosched_cluster *cl = per_cpu(cosched_fetches, cpu).cl;
	struct rq *src_rq;

	rcu_read_lock();
	if (cosched_long_stray(rcu_dereference(rq->curr), cpu))
		src = cosched_waiting_near(cl, cpu);
	if (src < 0)
		goto out;
	src_rq = cpu_rq(src);
	double_lock_balance(rq, src_rq);
	/* A task of the cluster may have been woken here meanwhile. */
	if (!per_cpu_ptr(cl->cpu, cpu)->nr_runnable) {
		update_rq_clock(src_rq);
		update_rq_clock(rq);
		cosched_move_waiting(cl, src, cpu, 1, true);
	}
	double_unlock_balance(rq, src_rq);
out:
	rcu_read_unlock();
}

/*
 * @rq switches to the stray @p, from the last runnable task of a cluster there, which goes to
 * sleep. A CPU that has only strays left does not run out of work, and so would not take a task
 * that waits elsewhere: have it do so once it has switched. Only if the task that goes to sleep
 * runs briefly, but not for less time than that takes, see cosched_run_too_short().
 */
void __cosched_set_next(struct rq *rq, struct task_struct *p)
{
	struct cosched_cluster *cl;
	struct task_struct *prev;
	int cpu = cpu_of(rq);

	lockdep_assert_rq_held(rq);
	guard(rcu)();
	prev = rcu_dereference(rq->curr);
	cl = READ_ONCE(prev->cosched);
	if (!cl || cl == p->cosched || prev->cosched_queued ||
	    prev->sched_class != &fair_sched_class || !cosched_runs_briefly(prev) ||
	    cosched_run_too_short(prev) || cosched_everywhere(cl) ||
	    per_cpu_ptr(cl->cpu, cpu)->nr_runnable || !cosched_long_stray(p, cpu))
		return;
	if (cosched_waiting_near(cl, cpu) >= 0) {
		struct cosched_fetch *fetch = per_cpu_ptr(&cosched_fetches, cpu);

		fetch->cl = cl;
		queue_balance_callback(rq, &fetch->head, cosched_fetch);
	}
}

/*
 * Runs in the task itself on its return to user mode, where it may sleep: running tasks
 * are moved by the stopper threads of the CPUs involved.
 */
static void cosched_move_work(struct callback_head *work)
{
	struct cosched_cluster *cl, *peer_cl = NULL;
	struct task_struct *p = current, *peer = NULL;
	bool crowded, pushed = false, out = false, mutual = false;
	struct cosched_home *home;
	int src, dst = -1;

	work->next = work;		/* may be queued again */
	if (p->flags & PF_EXITING)
		return;

	rcu_read_lock();
	/* The counters below need a reference: @p may leave the cluster while it sleeps. */
	cl = READ_ONCE(p->cosched);
	if (!cl || !cosched_cluster_tryget(cl)) {
		rcu_read_unlock();
		return;
	}
	home = rcu_dereference(cl->home);
	src = task_cpu(p);
	crowded = cosched_long_crowded(p, src);
	if (home->nr && !cpumask_test_cpu(src, cosched_home_span(cl, home)))
		dst = cosched_way_home(p, cl, home, src, &peer, &mutual);
	if (home->nr && dst < 0) {
		dst = cosched_way_out(p, cl, home, src, crowded);
		pushed = true;
		out = dst >= 0 && !cpumask_test_cpu(dst, home_mask(home));
	}
	if (peer) {
		get_task_struct(peer);
		peer_cl = mutual ? READ_ONCE(peer->cosched) : NULL;
		if (peer_cl && !cosched_cluster_tryget(peer_cl))
			peer_cl = NULL;
	}
	rcu_read_unlock();

	if (peer) {
		if (!migrate_swap(p, peer, dst, src)) {
			atomic64_inc(&cl->events[COSCHED_STRAY_SWAPPED]);
			if (peer_cl)
				atomic64_inc(&peer_cl->events[COSCHED_STRAY_SWAPPED]);
			trace_cosched_swap(p, peer, src, dst);
		}
		put_task_struct(peer);
		cosched_cluster_put(peer_cl);
	} else if (dst >= 0 && !migrate_task_to(p, dst)) {
		if (pushed) {
			if (out)
				atomic64_inc(&cl->events[COSCHED_TASK_PUSHED]);
			trace_cosched_push(p, src, dst);
		} else {
			/* The look saw that @dst idles, not that tasks wait there. */
			p->cosched_look_cpu = nr_cpu_ids;
			atomic64_inc(&cl->events[COSCHED_STRAY_RETURNED]);
			trace_cosched_return(p, src, dst);
			cosched_take_along(cl, src);
		}
	}
	cosched_cluster_put(cl);
}

void __cosched_tick(struct task_struct *curr)
{
	struct callback_head *work = &curr->cosched_work;
	struct rq *rq = task_rq(curr);
	struct cosched_home *home;
	bool look;

	if (curr->cosched_queued) {
		cosched_charge(rq, curr, per_cpu_ptr(curr->cosched->cpu, cpu_of(rq)));
		cosched_mark_active(curr->cosched, cpu_of(rq));
	}

	if (work->next != work || !curr->mm || (curr->flags & (PF_EXITING | PF_KTHREAD)) ||
	    cosched_looked(curr, 1))
		return;

	rcu_read_lock();
	home = rcu_dereference(curr->cosched->home);
	if (cpumask_test_cpu(cpu_of(rq), cosched_home_span(curr->cosched, home)))
		look = cosched_crowded(rq, curr) && !cosched_hands_off(curr->cosched);
	else
		look = home->nr;
	rcu_read_unlock();
	if (look)
		task_work_add(curr, work, TWA_RESUME);
}

/*
 * Tasks come and go
 */

/* A new task is in no cluster until it is linked to its cgroup. */
void cosched_sched_fork(struct task_struct *p)
{
	p->cosched = NULL;
	p->cosched_queued = false;
	p->cosched_charged = 0;
	p->cosched_slept = 0;
	cosched_set_run(p, COSCHED_RUN_MAX);
	p->cosched_nr_runs = 0;
	p->cosched_look = jiffies - COSCHED_LOOK_INTERVAL;
	p->cosched_look_cpu = nr_cpu_ids;
	p->se.first_until = 0;
	p->cosched_work.next = &p->cosched_work;
	p->cosched_work.func = cosched_move_work;
}

static void cosched_task_set(struct task_struct *p, bool exiting)
{
	struct cosched_cluster *old = NULL, *new = NULL;
	struct rq_flags rf;
	struct rq *rq;

	rq = task_rq_lock(p, &rf);
	if (!exiting) {
		if (p->flags & PF_EXITING)
			goto unlock;
		rcu_read_lock();
		do {
			new = cosched_css_cluster(p);
		} while (new && new != p->cosched && !cosched_cluster_tryget(new));
		rcu_read_unlock();
	}
	if (new == p->cosched)
		goto unlock;
	old = p->cosched;
	update_rq_clock(rq);
	if (old)
		__cosched_dequeue(rq, p);
	/* Pairs with the address dependency of readers in RCU read sections. */
	smp_store_release(&p->cosched, new);
	if (!new)
		goto unlock;
	/* What the task ran so far is not charged to the new cluster. */
	if (task_on_rq_queued(p) && task_current(rq, p) && cosched_counts(p))
		p->sched_class->update_curr(rq);
	cosched_charge_from_now(p);
	if (task_on_rq_queued(p))
		__cosched_enqueue(rq, p);
unlock:
	task_rq_unlock(rq, p, &rf);
	cosched_cluster_put(old);
}

/**
 * cosched_task_update() - Put a task into the cluster of its current cgroup.
 * @p: the task; the caller must have stored what changed before
 */
void cosched_task_update(struct task_struct *p)
{
	cosched_task_set(p, false);
}

/**
 * cosched_task_exit() - Take a dying task out of its cluster, for good.
 * @p: current
 */
void cosched_task_exit(struct task_struct *p)
{
	/*
	 * Check for a cluster under the lock only: a walker may be about to give the
	 * task a cluster, not having seen PF_EXITING yet. If the static key is off,
	 * because there are no clusters, there is no such walker.
	 */
	if (cosched_enabled() || p->cosched)
		cosched_task_set(p, true);
}

/*
 * What automatic homes are chosen from
 */

/*
 * The demand of tasks of which @util run and @runnable are runnable, decayed numbers with
 * SCHED_CAPACITY_SCALE being one. @sleeps: how often they went to sleep since the last sample.
 *
 * Tasks that never sleep need a CPU each, and so do those of them that wait. Where tasks that sleep
 * often are in each other's way, waiting makes them runnable for longer than they need: half of
 * it counts. In between, the more tasks there are for each sleep, the more of it counts.
 */
static u32 cosched_demand(u32 util, u32 runnable, unsigned int sleeps)
{
	u32 waiting = runnable - min(util, runnable);
	u64 all = min(runnable, COSCHED_SLEEPS_MAX << SCHED_CAPACITY_SHIFT);
	u64 slept = min((u64)sleeps << SCHED_CAPACITY_SHIFT, all);

	return runnable - (slept ? div64_u64(waiting * slept, 2 * all) : 0);
}

/* How often tasks of @cl went to sleep from the sample before the last one to the last. */
static unsigned int cosched_sleeps(struct cosched_cluster *cl)
{
	/* Looks at automatic homes in between, for new ones, are no samples. */
	if (jiffies - cl->sampled >= COSCHED_SLEEPS_INTERVAL) {
		cl->sampled = jiffies;
		cl->sleeps = READ_ONCE(cl->slept);
		WRITE_ONCE(cl->slept, 0);
	}
	return cl->sleeps;
}

/**
 * cosched_cluster_demand() - The demand of a cluster: how many of its tasks would run at a time
 *	if none waited.
 * @cl: the cluster
 * @cpus: for each possible CPU, where to add what the cluster has there, and to subtract its
 *	runnable tasks from the number of others
 * @demand: where to add the sum over all CPUs, SCHED_CAPACITY_SCALE being one task, the
 *	numbers of tasks that are runnable just now, and whether they come in bursts or
 *	overrun the machine
 *
 * A thousand clusters times the CPUs of a large machine are too many to look at, and to
 * lock. So this looks only at CPUs where the cluster had load lately, and without a lock,
 * by cosched_peek(). The result is smoothed anyway.
 *
 * Return: whether there was anything to add.
 */
bool cosched_cluster_demand(struct cosched_cluster *cl, struct cosched_on_cpu *cpus,
			    struct cosched_demand *demand)
{
	struct cpumask *active = to_cpumask(cl->active);
	struct cosched_load sum = { };
	bool any = false;
	int cpu;

	WRITE_ONCE(cl->asked, jiffies);
	for_each_cpu(cpu, active) {
		struct cosched_load avg;
		struct cosched_cpu snap;

		/* Once for each CPU, and not for each of a thousand clusters. */
		if (!cpus[cpu].now)
			cpus[cpu].now = cosched_clock_now(cpu_rq(cpu));
		snap = cosched_peek(cl, cpu, cpus[cpu].now);
		cosched_load_avg(&snap, &avg);
		if (!avg.runnable && !snap.nr_runnable) {
			cpumask_clear_cpu(cpu, active);
			continue;
		}
		sum.util += avg.util;
		sum.runnable += avg.runnable;
		cpus[cpu].load += (avg.util + avg.runnable) / 2;
		/* Both at one moment: a task that sleeps in between would count as another's. */
		if (!cpus[cpu].asked) {
			cpus[cpu].asked = 1;
			cpus[cpu].nr_others = READ_ONCE(cpu_rq(cpu)->cfs.h_nr_runnable);
		}
		cpus[cpu].nr_others -= snap.nr_runnable;
		demand->nr_normal += snap.nr_runnable - min(snap.nr_idle_policy, snap.nr_runnable);
		demand->nr_idle_policy += snap.nr_idle_policy;
		any = true;
	}
	demand->sum += cosched_demand(sum.util, sum.runnable, cosched_sleeps(cl));
	demand->bursts |= cosched_bursts(cl);
	demand->overruns |= cosched_overruns(cl);
	return any;
}

/**
 * cosched_cpu_demand() - The demand of all tasks on a CPU.
 * @cpu: an online CPU
 * @nr: where to store how many are runnable there just now
 *
 * Return: the demand. It is 0, and so is *@nr, if all tasks there are of the idle class.
 */
u32 cosched_cpu_demand(int cpu, unsigned int *nr)
{
	struct rq *rq = cpu_rq(cpu);

	*nr = 0;
	if (sched_idle_cpu(cpu))
		return 0;
	*nr = READ_ONCE(rq->cfs.h_nr_runnable);
	return (cosched_decay_idle(rq, READ_ONCE(rq->cfs.avg.runnable_avg)) +
		cosched_decay_idle(rq, READ_ONCE(rq->cfs.avg.util_avg))) / 2;
}

/**
 * cosched_task_demand() - The demand of one task, whether it is in a cluster or not.
 * @p: a task
 *
 * Return: the demand; 0 for a task that sleeps, is SCHED_IDLE or is not of the fair class.
 */
u32 cosched_task_demand(struct task_struct *p)
{
	/* Racy, like what is read from run queues: the next look corrects that. */
	if (READ_ONCE(p->on_rq) != TASK_ON_RQ_QUEUED || !cosched_counts(p) ||
	    task_has_idle_policy(p))
		return 0;
	return (READ_ONCE(p->se.avg.runnable_avg) + READ_ONCE(p->se.avg.util_avg)) / 2;
}

#ifdef CONFIG_FAIR_GROUP_SCHED
/*
 * The largest weight of a group that is batch: that of nice level 10, which is what nice(1)
 * sets by default, and which is a tenth of a CPU beside a task of level 0. The scheduler
 * itself does not balance such a difference between CPUs (sd->imbalance_pct), nor does a
 * home move for it (AUTO_MARGIN in kernel/cgroup/cosched_auto.c). It corresponds to a
 * cpu.weight of 10; a group with cpu.idle is below it.
 */
#define COSCHED_BATCH_WEIGHT	sched_prio_to_weight[NICE_TO_PRIO(10) - MAX_RT_PRIO]

/*
 * What a group with @shares weighs against a normal task, within a group that weighs
 * @weight. Shares above normal count as normal: those of a parent lift all groups in it
 * alike, or are meant for other groups in it.
 */
static unsigned long cosched_weight_within(unsigned long weight, unsigned long shares)
{
	return weight * min(shares, NICE_0_LOAD) / NICE_0_LOAD;
}
#endif

/**
 * cosched_cgroup_limit() - What the cpu controller allows a cgroup.
 * @cgrp: the cgroup
 * @batch: set to whether it weighs too little to matter to others
 *
 * Return: how much CPU time, SCHED_CAPACITY_SCALE being one CPU.
 */
u32 cosched_cgroup_limit(struct cgroup *cgrp, bool *batch)
{
	u32 limit = U32_MAX;

	*batch = false;
#ifdef CONFIG_FAIR_GROUP_SCHED
	unsigned long weight = scale_load_down(NICE_0_LOAD);

	rcu_read_lock();
	for (struct task_group *tg = css_tg(cgroup_e_css(cgrp, &cpu_cgrp_subsys)); tg;
	     tg = tg->parent) {
#ifdef CONFIG_CFS_BANDWIDTH
		u64 quota = READ_ONCE(tg->cfs_bandwidth.quota);

		if (quota != RUNTIME_INF)
			limit = min(limit, to_ratio(ktime_to_us(tg->cfs_bandwidth.period),
						    div_u64(quota, NSEC_PER_USEC)) >>
				    (BW_SHIFT - SCHED_CAPACITY_SHIFT));
#endif
		weight = cosched_weight_within(weight, READ_ONCE(tg->shares));
	}
	rcu_read_unlock();
	*batch = weight <= COSCHED_BATCH_WEIGHT;
#endif
	return limit;
}

/**
 * cosched_numa_balancing() - Whether NUMA balancing is on, and so knows where memory is.
 */
bool cosched_numa_balancing(void)
{
#ifdef CONFIG_NUMA_BALANCING
	return static_branch_unlikely(&sched_numa_balancing);
#else
	return false;
#endif
}

/**
 * cosched_task_faults() - Where the memory of a task is, in NUMA hinting faults.
 * @p: the task, on which the caller holds a reference
 * @faults: for each node, where to add them
 *
 * A task's array of faults is allocated at its first fault and freed with the task, after
 * the last reference, so it may be read without a lock. It holds averages that the task
 * itself updates now and then. A sum read in the middle of an update may be one that never
 * existed; the next look replaces it. The faults of the task's numa_group are not used:
 * they are sums over tasks of other clusters, too.
 */
void cosched_task_faults(struct task_struct *p, u64 *faults)
{
#ifdef CONFIG_NUMA_BALANCING
	unsigned long *of_task = READ_ONCE(p->numa_faults);
	int nid, i;

	if (!of_task)
		return;
	of_task += NR_NUMA_HINT_FAULT_TYPES * NUMA_MEM * nr_node_ids;
	for_each_online_node(nid) {
		for (i = 0; i < NR_NUMA_HINT_FAULT_TYPES; i++)
			faults[nid] += READ_ONCE(of_task[NR_NUMA_HINT_FAULT_TYPES * nid + i]);
	}
#endif
}

/**
 * cosched_llc_ids() - The LLC domains of all online CPUs, by their first CPU.
 * @llc: for each possible CPU, where to store it; negative for CPUs without a domain
 */
void cosched_llc_ids(int *llc)
{
	int cpu;

	/* Not while domains are being rebuilt: there are none for a moment then. */
	mutex_lock(&sched_domains_mutex);
	rcu_read_lock();
	for_each_online_cpu(cpu)
		llc[cpu] = rcu_access_pointer(cpu_rq(cpu)->sd) ?
			   cpumask_first(cosched_llc_span(cpu)) : -1;
	rcu_read_unlock();
	mutex_unlock(&sched_domains_mutex);
}

/**
 * cosched_llc_cpus() - The CPUs of the LLC domain of a CPU.
 * @cpu: an online CPU
 * @cpus: where to store them; only @cpu if it has no domain
 */
void cosched_llc_cpus(int cpu, struct cpumask *cpus)
{
	mutex_lock(&sched_domains_mutex);
	rcu_read_lock();
	cpumask_copy(cpus, cosched_llc_span(cpu));
	rcu_read_unlock();
	mutex_unlock(&sched_domains_mutex);
}

/*
 * The sched domains of @cpu were attached, and with them its LLC; or they were detached, because
 * @cpu goes offline or is isolated. A CPU without sched domains is not an LLC of its own, so there
 * is no domain outside of a home there.
 */
void cosched_update_llc(int cpu, int llc_id)
{
	if (cpu == llc_id && rcu_access_pointer(cpu_rq(cpu)->sd))
		cpumask_set_cpu(cpu, &cosched_llcs);
	else
		cpumask_clear_cpu(cpu, &cosched_llcs);
}

#if IS_ENABLED(CONFIG_CGROUP_COSCHED_KUNIT_TEST)
#include "cosched_test.c"
#endif
