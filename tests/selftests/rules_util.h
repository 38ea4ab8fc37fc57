/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the tests of placement: topology, gangs of workers that record
 * where they ran, and the trace.
 *
 * A gang is a process (or one per worker) with workers that run, sleep and
 * note in shared memory on which CPU they were and when.  What a test asserts
 * comes from there, from cosched.stat and from tracepoints; never from how
 * fast something went.  Times are the guest's: tests that state a deadline run
 * in parallel virtual time, where the guest's clock does not depend on the host's
 * speed.  There a PAUSE is set to take a microsecond: workers spin with it, so
 * that a busy CPU costs the host next to nothing.
 */
#ifndef RULES_UTIL_H
#define RULES_UTIL_H

#include "cosched_util.h"

#include <stdint.h>

#define RU_CPUS		256
#define RU_INTERVALS	2048

/* PELT forgets all but 3 % in five half-lives: load is what it is by then. */
#define SETTLE_MS	200

/* Between two units of work, a worker that was away longer was not running. */
#define RU_GAP_NS	1000000

struct ru_topo {
	cpu_set_t online;
	int nr_cpus;
	cpu_set_t llc[RU_CPUS];
	int nr_llcs;
	int llc_of[RU_CPUS];
	cpu_set_t siblings[RU_CPUS];	/* of one core, itself included */
	bool smt;
};

/* Read once; the test is skipped where there are not two LLC domains. */
const struct ru_topo *ru_topo(void);
/* CPUs that isolcpus= took out of load balancing; the test is skipped if there are none. */
cpu_set_t ru_isolated(void);

/* sets of CPUs */
cpu_set_t ru_minus(const cpu_set_t *a, const cpu_set_t *b);
cpu_set_t ru_and(const cpu_set_t *a, const cpu_set_t *b);
cpu_set_t ru_or(const cpu_set_t *a, const cpu_set_t *b);
cpu_set_t ru_one(int cpu);
cpu_set_t ru_first(const cpu_set_t *set, int n);	/* its n first CPUs */
int ru_nth(const cpu_set_t *set, int n);		/* wraps around */

uint64_t ru_now(void);
void ru_unit_of_work(void);	/* 10 us, nearly all of it in PAUSE */

enum ru_stop {
	RU_RUN,
	RU_SLEEP,		/* sleeps for good */
	RU_EXIT,
};

struct ru_interval {
	uint64_t from, to;
	int cpu;
};

struct ru_worker {
	/* set by the test */
	volatile int stop;
	volatile unsigned int busy_us, sleep_us;
	/* set by the worker */
	volatile pid_t tid;
	volatile int cpu;
	volatile uint64_t beat;			/* last time it ran */
	volatile uint64_t cycles;		/* sleeps so far */
	volatile uint64_t late;			/* of these, ran RU_GAP_NS late or later */
	volatile uint64_t ran_ns[RU_CPUS];
	volatile int nr_intervals;
	struct ru_interval interval[RU_INTERVALS];
};

struct ru_gang {
	int n;
	pid_t pid;
	bool processes;
	bool session;
	bool log;				/* fill in interval[] */
	cpu_set_t watch;
	cpu_set_t start;
	bool one_each;
	cpu_set_t near;
	unsigned int far_times;
	int policy;
	volatile uint64_t created;		/* when all workers were runnable */
	struct ru_worker w[];
};

struct ru_gang_opts {
	int n;
	const char *cg;			/* NULL: stays in the test's */
	cpu_set_t start;		/* CPUs allowed at first; empty: all */
	bool one_each;			/* worker i pinned to CPU i of start */
	unsigned int busy_us;		/* 0: never sleeps */
	unsigned int sleep_us;
	cpu_set_t near;			/* where their data is: elsewhere */
	unsigned int far_times;		/* busy_us takes so many times as long; 0: as long */
	int policy;			/* SCHED_OTHER, SCHED_IDLE or SCHED_FIFO */
	bool processes;
	bool session;			/* one of its own, and so an autogroup */
	bool log;
	cpu_set_t watch;		/* where the test wants to see them */
};

/* Returns when every worker runs on a CPU that it may start on. */
struct ru_gang *ru_gang(const struct ru_gang_opts *opts);
void ru_allow(struct ru_gang *g, const cpu_set_t *set);	/* sched_setaffinity, all */
void ru_allow_one(struct ru_gang *g, int worker, const cpu_set_t *set);
void ru_move(struct ru_gang *g, const char *cg);
void ru_wake(struct ru_gang *g);			/* ends the sleep of those that sleep */
/* A core scheduling cookie of their own, of threads; 0, or -1 and errno. */
int ru_try_cookie(const struct ru_gang *g);
void ru_end(struct ru_gang *g);				/* kills and frees */
bool ru_member(const struct ru_gang *g, pid_t tid);

/* CPU time on a set of CPUs, all workers, since the last ru_mark(). */
struct ru_mark {
	uint64_t at;
	uint64_t ran_ns[RU_CPUS];
};

void ru_mark(const struct ru_gang *g, struct ru_mark *m);
uint64_t ru_ran(const struct ru_gang *g, const struct ru_mark *m, const cpu_set_t *set);
/* Percent of the gang's CPU time since the mark that was on the set. */
double ru_share(const struct ru_gang *g, const struct ru_mark *m, const cpu_set_t *set);

/*
 * From the intervals of the gangs: percent of the CPU time of the set, from
 * one time to another, in which no worker had the CPU.
 */
double ru_idle(struct ru_gang *const *gangs, int n, const cpu_set_t *set,
	       uint64_t from, uint64_t to);

/* the trace */
struct ru_event {
	uint64_t ns;
	char name[24];
	char reason[16];
	pid_t pid;		/* of sched_switch the next one */
	int src;		/* prev_cpu, orig_cpu or src_cpu */
	int dst;		/* cpu, dest_cpu, dst_cpu or target_cpu */
	int on;			/* the CPU that traced it */
	int dear, bursts;	/* of cosched_review, or -1 */
};

struct ru_trace {
	int n;
	struct ru_event *event;
};

void ru_trace_start(void);
/* From now on until ru_trace_stop(), that event, too: "sched/sched_wakeup". */
void ru_trace_also(const char *event);
void ru_trace_stop(struct ru_trace *trace);
/* Has it that name and reason (NULL: any)? */
bool ru_is(const struct ru_event *e, const char *name, const char *reason);
/* Such events of the gang (NULL: any task). */
int ru_count(const struct ru_trace *t, const struct ru_gang *g, const char *name,
	     const char *reason);
/* Of these, those whose destination is in the set. */
int ru_count_to(const struct ru_trace *t, const struct ru_gang *g, const char *name,
		const char *reason, const cpu_set_t *set);
/*
 * Was the CPU idle from @before ns before that event until @after ns after it? The trace has
 * "sched/sched_switch", too.
 */
bool ru_idle_about(const struct ru_trace *t, int at, int cpu, uint64_t before, uint64_t after);
/* Migrations of the gang into the set from elsewhere. */
int ru_moves_into(const struct ru_trace *t, const struct ru_gang *g, const cpu_set_t *set);
/* Migrations of the gang from one LLC domain to another since a time. */
int ru_domain_moves(const struct ru_trace *t, const struct ru_gang *g, uint64_t since);

/* cosched.cpus_preferred of a cgroup */
void ru_prefer(const char *cg, const cpu_set_t *home);

/* A measured figure, on a line that the Go tests read. */
void ru_figure(double value, const char *unit, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* RULES_UTIL_H */
