/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cluster-aware placement of related threads: the cosched cgroup controller.
 *
 * kernel/cgroup/cosched.c owns the cgroup side (files, hierarchy, life cycle),
 * kernel/sched/cosched.c the scheduler side (load, placement). This header is
 * what they see of each other and what the rest of the kernel sees of both.
 */
#ifndef _LINUX_COSCHED_H
#define _LINUX_COSCHED_H

#include <linux/cpumask.h>
#include <linux/jump_label_ratelimit.h>
#include <linux/refcount.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

struct cgroup;
struct task_struct;

#ifdef CONFIG_CGROUP_COSCHED

/* Range and defaults of cosched.weights; see rule 4 in kernel/sched/cosched.c. */
#define COSCHED_WEIGHT_MIN		1
#define COSCHED_WEIGHT_MAX		10000
#define COSCHED_WEIGHT_PREFERRED	100
#define COSCHED_WEIGHT_ALLOWED		150

/* Counted events of a cluster, in the order in which cosched.stat prints them. */
enum cosched_event {
	COSCHED_WAKEUP_HOME,
	COSCHED_WAKEUP_SPILLED,
	COSCHED_WAKEUP_OVERFLOWED,
	COSCHED_NR_BATCHED,		/* the events above are batched per CPU */
	COSCHED_STRAY_RETURNED = COSCHED_NR_BATCHED,
	COSCHED_STRAY_SWAPPED,
	COSCHED_TASK_PUSHED,
	COSCHED_TASK_PULLED,
	COSCHED_HOME_CHANGED,
	COSCHED_NR_EVENTS,
};

/* What cosched.stat shows, summed over CPUs. */
struct cosched_stat {
	u64 preferred_ns;
	u64 outside_ns;
	u64 events[COSCHED_NR_EVENTS];
};

/* Decayed load of a cluster on one CPU; SCHED_CAPACITY_SCALE is one CPU or task. */
struct cosched_load {
	unsigned long util;
	unsigned long runnable;
};

/* What automatic homes are chosen from. */
struct cosched_demand {
	u32 sum;		/* decayed */
	u32 nr_normal;		/* runnable tasks that are not SCHED_IDLE */
	u32 nr_idle_policy;	/* runnable tasks that are SCHED_IDLE */
	bool bursts;		/* its tasks wait at home for each other, and need not */
	bool overruns;		/* it overruns the machine, all of which is its home then */
};

/* What the clusters that were asked for their demand have on a CPU. */
struct cosched_on_cpu {
	u64 now;		/* the task clock there, 0 until it is read */
	u32 load;		/* SCHED_CAPACITY_SCALE being one task */
	s32 nr_others : 31;	/* runnable tasks that are not theirs, if .asked */
	u32 asked : 1;		/* there is such a cluster here */
};

struct cosched_cluster;

extern struct static_key_false_deferred cosched_used;

/* True while any cgroup has a preference, and for a moment longer. */
static inline bool cosched_enabled(void)
{
	return static_branch_unlikely(&cosched_used.key);
}

struct cosched_cluster *cosched_cluster_alloc(u64 cgroup_id);
bool cosched_cluster_tryget(struct cosched_cluster *cl);
void cosched_cluster_put(struct cosched_cluster *cl);
bool cosched_cluster_set_home(struct cosched_cluster *cl, const struct cpumask *home);
const struct cpumask *cosched_cluster_home(struct cosched_cluster *cl);
void cosched_cluster_set_weights(struct cosched_cluster *cl, unsigned int preferred,
				 unsigned int allowed);
unsigned long cosched_cluster_gp(struct cosched_cluster *cl);
void cosched_cluster_stat(struct cosched_cluster *cl, struct cosched_stat *stat);
void cosched_cluster_load(struct cosched_cluster *cl, int cpu, struct cosched_load *load);
bool cosched_cluster_demand(struct cosched_cluster *cl, struct cosched_on_cpu *cpus,
			    struct cosched_demand *demand);
u32 cosched_cpu_demand(int cpu, unsigned int *nr);
u32 cosched_task_demand(struct task_struct *p);
u32 cosched_cgroup_limit(struct cgroup *cgrp, bool *batch);
bool cosched_numa_balancing(void);
void cosched_task_faults(struct task_struct *p, u64 *faults);
void cosched_llc_cpus(int cpu, struct cpumask *cpus);
void cosched_llc_ids(int *llc);

void cosched_task_update(struct task_struct *p);
void cosched_task_exit(struct task_struct *p);

/* The cluster of the cgroup that @p is in now; the caller is in an RCU read section. */
struct cosched_cluster *cosched_css_cluster(struct task_struct *p);

#endif /* CONFIG_CGROUP_COSCHED */
#endif /* _LINUX_COSCHED_H */
