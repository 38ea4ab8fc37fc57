/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of the cosched controller in the fair class. Each is a no-op branch until
 * the first cgroup sets a preference, and from then on one pointer test for tasks
 * of no cluster. The model is at the top of cosched.c.
 */
#ifndef _KERNEL_SCHED_COSCHED_H
#define _KERNEL_SCHED_COSCHED_H

#include <linux/cosched.h>

#ifdef CONFIG_CGROUP_COSCHED

void __cosched_enqueue(struct rq *rq, struct task_struct *p);
void __cosched_dequeue(struct rq *rq, struct task_struct *p);
void __cosched_set_next(struct rq *rq, struct task_struct *p);
void __cosched_tick(struct task_struct *curr);
int __cosched_select_cpu(struct task_struct *p, int prev, int target, int wake_flags);
int __cosched_can_migrate(struct task_struct *p, int src, int dst,
			  enum cpu_idle_type idle, bool failed, bool active);
bool __cosched_detach(struct task_struct *p, int src, int dst, enum cpu_idle_type idle);
bool __cosched_leaves_home(struct task_struct *p, int src, int dst);
bool __cosched_preempts_stray(struct task_struct *p, int cpu);
int cosched_waiting_cpu(struct task_struct *prev, int cpu);
void cosched_sched_fork(struct task_struct *p);
void cosched_update_llc(int cpu, int llc_id);
bool cosched_task_fits(struct task_struct *p, int cpu);
void cosched_put_first(struct rq *rq, struct task_struct *p, bool preempt, bool ahead);
void cosched_hand_on(struct rq *rq, struct task_struct *p, bool ahead);

/* @p was enqueued on @rq. */
static inline void cosched_enqueue(struct rq *rq, struct task_struct *p)
{
	if (cosched_enabled() && p->cosched)
		__cosched_enqueue(rq, p);
}

/* @p is about to be dequeued from @rq; its dequeue may be delayed. */
static inline void cosched_dequeue(struct rq *rq, struct task_struct *p)
{
	if (cosched_enabled() && p->cosched)
		__cosched_dequeue(rq, p);
}

/* @rq is about to switch to @p; its current task is still the one before. */
static inline void cosched_set_next(struct rq *rq, struct task_struct *p)
{
	if (cosched_enabled() && p->cosched)
		__cosched_set_next(rq, p);
}

/* What @p has run so far is not charged to its cluster. */
static inline void cosched_charge_from_now(struct task_struct *p)
{
	p->cosched_charged = p->se.sum_exec_runtime;
}

/* @p is in the fair class from now on. */
static inline void cosched_switched_to(struct task_struct *p)
{
	if (cosched_enabled() && p->cosched)
		cosched_charge_from_now(p);
}

/* Is @p in a cluster? */
static inline bool cosched_has_cluster(struct task_struct *p)
{
	return cosched_enabled() && p->cosched;
}

static inline void cosched_tick(struct task_struct *curr)
{
	if (cosched_enabled() && curr->cosched)
		__cosched_tick(curr);
}

/*
 * Choose a CPU for the waking, forked or exec'ing @p, whose previous CPU is @prev and
 * which wake-affine would pull to @target. Negative: cosched has no opinion.
 */
static inline int
cosched_select_cpu(struct task_struct *p, int prev, int target, int wake_flags)
{
	if (cosched_enabled() && p->cosched)
		return __cosched_select_cpu(p, prev, target, wake_flags);
	return -1;
}

/*
 * May the balancer move @p from @src to @dst? 1: yes, and @p is never cache hot; 0: no;
 * negative: cosched has no opinion. @idle: whether @dst is idle, newly or for longer;
 * @failed: balancing has failed too often to be choosy; @active: @p is to be pushed
 * while it runs.
 */
static inline int cosched_can_migrate(struct task_struct *p, int src, int dst,
				      enum cpu_idle_type idle, bool failed, bool active)
{
	if (cosched_enabled() && p->cosched)
		return __cosched_can_migrate(p, src, dst, idle, failed, active);
	return -1;
}

/* The balancer moves @p. Return: whether that takes @p out of its home. */
static inline bool cosched_detach(struct task_struct *p, int src, int dst,
				  enum cpu_idle_type idle)
{
	return cosched_enabled() && p->cosched && __cosched_detach(p, src, dst, idle);
}

/* Would a move from @src to @dst take @p out of its home? NUMA balancing makes no such move. */
static inline bool cosched_leaves_home(struct task_struct *p, int src, int dst)
{
	return cosched_enabled() && READ_ONCE(p->cosched) && __cosched_leaves_home(p, src, dst);
}

/*
 * Does the waking @p preempt the stray that runs on @cpu, where @p was placed? If so,
 * @cpu is to enqueue @p itself. Otherwise @cpu would wait for the lock of its run
 * queue, which the waker still holds by then.
 */
static inline bool cosched_preempts_stray(struct task_struct *p, int cpu)
{
	return cosched_enabled() && p->cosched && __cosched_preempts_stray(p, cpu);
}

#else /* !CONFIG_CGROUP_COSCHED */

static inline void cosched_enqueue(struct rq *rq, struct task_struct *p) { }
static inline void cosched_dequeue(struct rq *rq, struct task_struct *p) { }
static inline void cosched_set_next(struct rq *rq, struct task_struct *p) { }
static inline void cosched_tick(struct task_struct *curr) { }
static inline void cosched_switched_to(struct task_struct *p) { }
static inline bool cosched_has_cluster(struct task_struct *p) { return false; }
static inline int cosched_waiting_cpu(struct task_struct *prev, int cpu) { return -1; }
static inline void cosched_sched_fork(struct task_struct *p) { }
static inline void cosched_update_llc(int cpu, int llc_id) { }

static inline int
cosched_select_cpu(struct task_struct *p, int prev, int target, int wake_flags)
{
	return -1;
}

static inline int cosched_can_migrate(struct task_struct *p, int src, int dst,
				      enum cpu_idle_type idle, bool failed, bool active)
{
	return -1;
}

static inline bool cosched_detach(struct task_struct *p, int src, int dst,
				  enum cpu_idle_type idle)
{
	return false;
}

static inline bool cosched_leaves_home(struct task_struct *p, int src, int dst)
{
	return false;
}

static inline bool cosched_preempts_stray(struct task_struct *p, int cpu)
{
	return false;
}

#endif /* !CONFIG_CGROUP_COSCHED */
#endif /* _KERNEL_SCHED_COSCHED_H */
