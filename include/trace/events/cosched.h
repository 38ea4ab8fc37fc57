/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM cosched

#if !defined(_TRACE_COSCHED_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_COSCHED_H

#include <linux/cpumask.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>

#define COSCHED_PLACE_REASONS				\
	EM(COSCHED_HOME_IDLE,	"home_idle")		\
	EM(COSCHED_HOME_QUEUE,	"home_queue")		\
	EM(COSCHED_HOME_STRAY,	"home_stray")		\
	EM(COSCHED_STAY,	"stay")			\
	EM(COSCHED_SPILL,	"spill")		\
	EM(COSCHED_GATHER,	"gather")		\
	EMe(COSCHED_OVERFLOW,	"overflow")

#define COSCHED_PULL_REASONS				\
	EM(COSCHED_PULL_IDLE,	"idle")			\
	EMe(COSCHED_PULL_CHEAPER, "rule4")

#define COSCHED_REVIEW_REASONS				\
	EM(COSCHED_REVIEW_FITS,	"fits")			\
	EM(COSCHED_REVIEW_FULL,	"full")			\
	EM(COSCHED_REVIEW_DEAR,	"dear")			\
	EM(COSCHED_REVIEW_OVERRUN, "overrun")		\
	EM(COSCHED_REVIEW_TRIAL, "trial")		\
	EMe(COSCHED_REVIEW_APART, "apart")

#ifndef _TRACE_COSCHED_ENUMS
#define _TRACE_COSCHED_ENUMS
#undef EM
#undef EMe
#define EM(a, b)	a,
#define EMe(a, b)	a

enum cosched_place_reason { COSCHED_PLACE_REASONS };
enum cosched_pull_reason { COSCHED_PULL_REASONS };
enum cosched_review_reason { COSCHED_REVIEW_REASONS };
#endif

#undef EM
#undef EMe
#define EM(a, b)	TRACE_DEFINE_ENUM(a);
#define EMe(a, b)	TRACE_DEFINE_ENUM(a);

COSCHED_PLACE_REASONS
COSCHED_PULL_REASONS
COSCHED_REVIEW_REASONS

#undef EM
#undef EMe
#define EM(a, b)	{ a, b },
#define EMe(a, b)	{ a, b }

/* A waking, forked or exec'ing task of a cluster was given a CPU. */
TRACE_EVENT(cosched_place,

	TP_PROTO(struct task_struct *p, int prev_cpu, int cpu, int reason),

	TP_ARGS(p, prev_cpu, cpu, reason),

	TP_STRUCT__entry(
		__array(char,	comm,	TASK_COMM_LEN)
		__field(pid_t,	pid)
		__field(int,	prev_cpu)
		__field(int,	cpu)
		__field(int,	reason)
	),

	TP_fast_assign(
		memcpy(__entry->comm, p->comm, TASK_COMM_LEN);
		__entry->pid		= p->pid;
		__entry->prev_cpu	= prev_cpu;
		__entry->cpu		= cpu;
		__entry->reason		= reason;
	),

	TP_printk("comm=%s pid=%d prev_cpu=%d cpu=%d reason=%s",
		  __entry->comm, __entry->pid, __entry->prev_cpu, __entry->cpu,
		  __print_symbolic(__entry->reason, COSCHED_PLACE_REASONS))
);

DECLARE_EVENT_CLASS(cosched_move,

	TP_PROTO(struct task_struct *p, int src_cpu, int dst_cpu),

	TP_ARGS(p, src_cpu, dst_cpu),

	TP_STRUCT__entry(
		__array(char,	comm,	TASK_COMM_LEN)
		__field(pid_t,	pid)
		__field(int,	src_cpu)
		__field(int,	dst_cpu)
	),

	TP_fast_assign(
		memcpy(__entry->comm, p->comm, TASK_COMM_LEN);
		__entry->pid		= p->pid;
		__entry->src_cpu	= src_cpu;
		__entry->dst_cpu	= dst_cpu;
	),

	TP_printk("comm=%s pid=%d src_cpu=%d dst_cpu=%d",
		  __entry->comm, __entry->pid, __entry->src_cpu, __entry->dst_cpu)
);

/* A running stray was moved home, or a task of its cluster that waited beside it. */
DEFINE_EVENT(cosched_move, cosched_return,
	TP_PROTO(struct task_struct *p, int src_cpu, int dst_cpu),
	TP_ARGS(p, src_cpu, dst_cpu)
);

/* A task that waited at home was fetched by a home CPU that only strays would have used. */
DEFINE_EVENT(cosched_move, cosched_fetch,
	TP_PROTO(struct task_struct *p, int src_cpu, int dst_cpu),
	TP_ARGS(p, src_cpu, dst_cpu)
);

/* A running task left a crowded CPU for one that had been idle for long. */
DEFINE_EVENT(cosched_move, cosched_push,
	TP_PROTO(struct task_struct *p, int src_cpu, int dst_cpu),
	TP_ARGS(p, src_cpu, dst_cpu)
);

/* A running stray changed places with @peer, which ran on the stray's home. */
TRACE_EVENT(cosched_swap,

	TP_PROTO(struct task_struct *p, struct task_struct *peer, int src_cpu, int dst_cpu),

	TP_ARGS(p, peer, src_cpu, dst_cpu),

	TP_STRUCT__entry(
		__array(char,	comm,	TASK_COMM_LEN)
		__field(pid_t,	pid)
		__field(pid_t,	peer)
		__field(int,	src_cpu)
		__field(int,	dst_cpu)
	),

	TP_fast_assign(
		memcpy(__entry->comm, p->comm, TASK_COMM_LEN);
		__entry->pid		= p->pid;
		__entry->peer		= peer->pid;
		__entry->src_cpu	= src_cpu;
		__entry->dst_cpu	= dst_cpu;
	),

	TP_printk("comm=%s pid=%d peer=%d src_cpu=%d dst_cpu=%d",
		  __entry->comm, __entry->pid, __entry->peer, __entry->src_cpu,
		  __entry->dst_cpu)
);

/* The load balancer takes a task out of its home. */
TRACE_EVENT(cosched_pull,

	TP_PROTO(struct task_struct *p, int src_cpu, int dst_cpu, int reason),

	TP_ARGS(p, src_cpu, dst_cpu, reason),

	TP_STRUCT__entry(
		__array(char,	comm,	TASK_COMM_LEN)
		__field(pid_t,	pid)
		__field(int,	src_cpu)
		__field(int,	dst_cpu)
		__field(int,	reason)
	),

	TP_fast_assign(
		memcpy(__entry->comm, p->comm, TASK_COMM_LEN);
		__entry->pid		= p->pid;
		__entry->src_cpu	= src_cpu;
		__entry->dst_cpu	= dst_cpu;
		__entry->reason		= reason;
	),

	TP_printk("comm=%s pid=%d src_cpu=%d dst_cpu=%d reason=%s",
		  __entry->comm, __entry->pid, __entry->src_cpu, __entry->dst_cpu,
		  __print_symbolic(__entry->reason, COSCHED_PULL_REASONS))
);

/* The home of a cgroup's cluster changed. */
TRACE_EVENT(cosched_home,

	TP_PROTO(u64 cgroup, const struct cpumask *home),

	TP_ARGS(cgroup, home),

	TP_STRUCT__entry(
		__field(u64,	cgroup)
		__cpumask(home)
	),

	TP_fast_assign(
		__entry->cgroup = cgroup;
		__assign_cpumask(home, cpumask_bits(home));
	),

	TP_printk("cgroup=%llu home=%s", __entry->cgroup, __get_cpumask(home))
);

/*
 * A review: whether a cluster overruns the machine, and if not, whether its tasks that run
 * briefly are apart.
 *
 * run_home and run_outside are for how long these tasks run at home and outside, in us.
 * load is that of home and of the cluster outside; tasks is the same, but at most the load
 * of the cluster itself if that was apart before. capacity is that of home, and room what
 * others leave of the rest. dear is the square of how many times longer runs outside are
 * taken to be where others leave no room, in 1/1024. bursts is whether its tasks are known
 * to come in bursts.
 *
 * At the end of a trial, run_outside is for how long the tasks ran while all of the machine
 * was home, or 0 if that is not known.
 */
TRACE_EVENT(cosched_review,

	TP_PROTO(u64 cgroup, int reason, u32 run_home, u32 run_outside, u64 load, u64 tasks,
		 u64 capacity, u64 room, u32 dear, bool bursts),

	TP_ARGS(cgroup, reason, run_home, run_outside, load, tasks, capacity, room, dear, bursts),

	TP_STRUCT__entry(
		__field(u64,	cgroup)
		__field(int,	reason)
		__field(u32,	run_home)
		__field(u32,	run_outside)
		__field(u64,	load)
		__field(u64,	tasks)
		__field(u64,	capacity)
		__field(u64,	room)
		__field(u32,	dear)
		__field(bool,	bursts)
	),

	TP_fast_assign(
		__entry->cgroup		= cgroup;
		__entry->reason		= reason;
		__entry->run_home	= run_home;
		__entry->run_outside	= run_outside;
		__entry->load		= load;
		__entry->tasks		= tasks;
		__entry->capacity	= capacity;
		__entry->room		= room;
		__entry->dear		= dear;
		__entry->bursts		= bursts;
	),

	TP_printk("cgroup=%llu reason=%s run_home=%u run_outside=%u load=%llu tasks=%llu capacity=%llu room=%llu dear=%u bursts=%d",
		  __entry->cgroup, __print_symbolic(__entry->reason, COSCHED_REVIEW_REASONS),
		  __entry->run_home, __entry->run_outside, __entry->load, __entry->tasks,
		  __entry->capacity, __entry->room, __entry->dear, __entry->bursts)
);

/*
 * The automatic home of a cgroup changes: why, whether the cgroup is batch, what its
 * cluster and those below it demand, the capacity of the domains that the new home is
 * in, and the load of all tasks on them. The reason is a string: in Linux 7.3
 * __get_cpumask() and __print_symbolic() print into the same buffer.
 */
TRACE_EVENT(cosched_home_auto,

	TP_PROTO(u64 cgroup, const struct cpumask *before, const struct cpumask *home,
		 const char *reason, u32 cost_before, u32 cost, bool batch, u32 demand,
		 u64 capacity, u64 load),

	TP_ARGS(cgroup, before, home, reason, cost_before, cost, batch, demand, capacity, load),

	TP_STRUCT__entry(
		__field(u64,	cgroup)
		__cpumask(before)
		__cpumask(home)
		__string(reason, reason)
		__field(u32,	cost_before)
		__field(u32,	cost)
		__field(bool,	batch)
		__field(u32,	demand)
		__field(u64,	capacity)
		__field(u64,	load)
	),

	TP_fast_assign(
		__entry->cgroup		= cgroup;
		__assign_cpumask(before, cpumask_bits(before));
		__assign_cpumask(home, cpumask_bits(home));
		__assign_str(reason);
		__entry->cost_before	= cost_before;
		__entry->cost		= cost;
		__entry->batch		= batch;
		__entry->demand		= demand;
		__entry->capacity	= capacity;
		__entry->load		= load;
	),

	TP_printk("cgroup=%llu before=%s home=%s reason=%s cost_before=%u cost=%u batch=%d demand=%u capacity=%llu load=%llu",
		  __entry->cgroup, __get_cpumask(before), __get_cpumask(home), __get_str(reason),
		  __entry->cost_before, __entry->cost, __entry->batch, __entry->demand,
		  __entry->capacity, __entry->load)
);

#undef EM
#undef EMe

#endif /* _TRACE_COSCHED_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
