// SPDX-License-Identifier: GPL-2.0
/*
 * The rules of placement, one by one; the numbers are those of the design
 * (Documentation/admin-guide/cosched-design.rst). Every test works on any
 * machine with two LLC domains or more, and asserts on counters, tracepoints
 * and shares of CPU time. Meant for a guest in parallel virtual time; see rules_util.h.
 *
 * In all of them, "home" is an LLC domain (or a part of it), blockers are
 * spinners pinned in no cluster, and a waker sleeps and wakes many times.
 */

#include "rules_util.h"

#include <errno.h>
#include <linux/sched.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS	1000000ull

/* A waker's cycle: short enough to leave its CPU idle for most of the time. */
#define WAKER_BUSY_US	300
#define WAKER_SLEEP_US	2000

static double percent(double part, double whole)
{
	return whole ? 100 * part / whole : 0;
}

/* Spinners in no cluster, one on each CPU of the set, times n. */
static struct ru_gang *block(const cpu_set_t *set, int n)
{
	return ru_gang(&(struct ru_gang_opts){
		.n = n * CPU_COUNT(set), .start = *set, .one_each = true });
}

static struct ru_gang *wakers(const char *cg, int n, const cpu_set_t *start)
{
	return ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = cg, .start = *start, .one_each = true,
		.busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
}

/* A worker that waits for a CPU when it is allowed elsewhere can be pulled by an idle CPU. */
static void until_asleep(const struct ru_gang *g)
{
	while (cs_task_state(g->w[0].tid) != 'S')
		cs_sleep_ms(1);
}

/*
 * Allows the sleeping worker on @set instead of @bound.  Tried again if it waited for a CPU, or was
 * moved meanwhile and left its data behind.
 */
static void allow_asleep(struct ru_gang *g, const cpu_set_t *bound, const cpu_set_t *set)
{
	for (;;) {
		until_asleep(g);
		ru_allow(g, set);
		if (cs_task_state(g->w[0].tid) == 'S' &&
		    CPU_ISSET(cs_task_cpu(g->w[0].tid), bound))
			return;
		ru_allow(g, bound);
		cs_sleep_ms(5);
	}
}

/* Twenty times: binds the worker to @prev, then allows it anywhere, and traces its wakeups. */
static void trace_wakeups_from(struct ru_gang *g, const cpu_set_t *prev, struct ru_trace *trace)
{
	int i;

	ru_trace_start();
	for (i = 0; i < 20; i++) {
		ru_allow(g, prev);
		cs_sleep_ms(20);
		allow_asleep(g, prev, &ru_topo()->online);
		cs_sleep_ms(10);
	}
	ru_trace_stop(trace);
}

/* Traces for a while, then adds up. */
struct seen {
	struct ru_trace trace;
	const struct ru_gang *g;
	int placed;		/* cosched_place events of the gang */
};

static struct seen watch(const struct ru_gang *g, long ms)
{
	struct seen s = { .g = g };

	ru_trace_start();
	cs_sleep_ms(ms);
	ru_trace_stop(&s.trace);
	s.placed = ru_count(&s.trace, g, "cosched_place", NULL);
	return s;
}

static double placed(const struct seen *s, const char *reason)
{
	return percent(ru_count(&s->trace, s->g, "cosched_place", reason), s->placed);
}

static double placed_to(const struct seen *s, const char *reason, const cpu_set_t *set)
{
	return percent(ru_count_to(&s->trace, s->g, "cosched_place", reason, set), s->placed);
}

static void show(const struct seen *s)
{
	cs_diag("%d placements: home_idle %.1f%% home_queue %.1f%% home_stray %.1f%% spill %.1f%% overflow %.1f%% stay %.1f%%",
		s->placed, placed(s, "home_idle"), placed(s, "home_queue"), placed(s, "home_stray"),
		placed(s, "spill"), placed(s, "overflow"), placed(s, "stay"));
}

static cpu_set_t outside_of(const cpu_set_t *home)
{
	return ru_minus(&ru_topo()->online, home);
}

/*
 * Keeps this program, and the harness that waits for it, off the CPUs of the set until the test
 * ends: these CPUs are to be idle for others, or this program would wait there itself before it
 * has woken all of a gang.
 */
static void keep_off(const cpu_set_t *set)
{
	cpu_set_t rest = outside_of(set);

	if (sched_setaffinity(0, sizeof(rest), &rest) ||
	    sched_setaffinity(getppid(), sizeof(rest), &rest))
		cs_fail("sched_setaffinity: %s", strerror(errno));
}

/* Rule 1: home first */

static void rule1_wakeup_goes_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home);
	long long at_home, spilled;
	struct ru_mark mark;
	struct ru_gang *g;
	struct seen s;
	int i, same = 0;

	ru_prefer(top, &home);
	g = wakers(top, CPU_COUNT(&home), &rest);
	ru_allow(g, &topo->online);
	cs_sleep_ms(50);
	at_home = cs_stat(top, "wakeups_home");
	spilled = cs_stat(top, "wakeups_spilled");
	ru_mark(g, &mark);
	s = watch(g, 500);
	show(&s);
	at_home = cs_stat(top, "wakeups_home") - at_home;
	spilled = cs_stat(top, "wakeups_spilled") - spilled;
	cs_diag("%.2f%% of the CPU time at home, wakeups_home %lld, wakeups_spilled %lld",
		ru_share(g, &mark, &home), at_home, spilled);
	REQUIRE(ru_share(g, &mark, &home) >= 97, "wakers leave an idle home");
	REQUIRE(s.placed > 100, "too few wakeups: %d", s.placed);
	REQUIRE(placed_to(&s, "home_idle", &home) >= 95, "wakeups not placed at an idle home CPU");
	REQUIRE(at_home >= s.placed * 95 / 100, "wakeups_home counts %lld of %d wakeups", at_home,
		s.placed);
	REQUIRE(spilled <= s.placed / 100, "%lld wakeups spilled from an idle home", spilled);

	/* The previous CPU first. */
	for (i = 0; i < s.trace.n; i++) {
		const struct ru_event *e = &s.trace.event[i];

		if (!strcmp(e->name, "cosched_place") && ru_member(g, e->pid))
			same += e->src == e->dst;
	}
	cs_diag("%.1f%% of the wakeups on the previous CPU", percent(same, s.placed));
	REQUIRE(percent(same, s.placed) >= 90, "wakeups leave an idle previous CPU");
}

/* Exits with the number of the CPU that it first runs on. */
static void __attribute__((noreturn)) exit_with_cpu(void)
{
	_exit(sched_getcpu() & 0xff);
}

static int cpu_of_child(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		cs_fail("a child did not exit");
	return WEXITSTATUS(status);
}

/* Makes the calling thread run on that CPU, and then allows it all. */
static void run_on(int cpu)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t one = ru_one(cpu);

	if (sched_setaffinity(0, sizeof(one), &one) ||
	    sched_setaffinity(0, sizeof(topo->online), &topo->online))
		cs_fail("sched_setaffinity: %s", strerror(errno));
}

static void rule1_fork_starts_at_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home);
	int i, fd, cpu, wrong = 0;

	ru_prefer(top, &home);
	fd = open(top, O_RDONLY | O_DIRECTORY);
	REQUIRE(fd >= 0, "open %s: %s", top, strerror(errno));
	for (i = 0; i < 20; i++) {
		struct clone_args args = {
			.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = fd,
		};
		pid_t pid;

		run_on(ru_nth(&rest, i));
		pid = syscall(SYS_clone3, &args, sizeof(args));
		REQUIRE(pid >= 0, "clone3: %s", strerror(errno));
		if (!pid)
			exit_with_cpu();
		cpu = cpu_of_child(pid);
		wrong += !CPU_ISSET(cpu, &home);
	}
	REQUIRE(!wrong, "%d of 20 children forked into the cluster did not start at home", wrong);
}

static const char *self;

static void rule1_exec_goes_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home);
	int i, cpu, wrong = 0;

	for (i = 0; i < 10; i++) {
		char cg[512], name[32];
		pid_t pid;

		/* The child's cgroup gets its preference only a moment before the exec. */
		snprintf(name, sizeof(name), "e%d", i);
		cs_mkdir(cg, top, name);
		pid = fork();
		REQUIRE(pid >= 0, "fork: %s", strerror(errno));
		if (!pid) {
			cs_move(cg, 0);
			run_on(ru_nth(&rest, i));
			ru_prefer(cg, &home);
			execl(self, self, "--exit-with-cpu", NULL);
			_exit(255);
		}
		cpu = cpu_of_child(pid);
		REQUIRE(cpu != 255, "exec failed");
		wrong += !CPU_ISSET(cpu, &home);
	}
	REQUIRE(!wrong, "%d of 10 processes were not at home after exec", wrong);
}

/*
 * Near the data: with the previous CPU busy, another of its LLC domain. A wakeup of a task that is
 * in the other domain by then does not count: it waited for a kernel thread, and an idle CPU took
 * it.
 */
static void rule1_neighbours_first(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home, prev;
	int i, woke = 0, near = 0, from_busy = 0;
	struct ru_trace trace;
	struct ru_gang *g;

	if (topo->nr_llcs < 3)
		cs_skip("needs a home of two LLC domains, and one outside");
	home = ru_or(&topo->llc[0], &topo->llc[1]);
	ru_prefer(top, &home);
	prev = ru_first(&topo->llc[1], 1);
	g = wakers(top, 1, &prev);
	block(&prev, 1);
	cs_sleep_ms(SETTLE_MS);
	/* Its first wakeup from there each time; later its previous CPU is an idle one. */
	trace_wakeups_from(g, &prev, &trace);
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		if (strcmp(e->name, "cosched_place") || e->pid != g->w[0].tid ||
		    !CPU_ISSET(e->src, &topo->llc[1]))
			continue;
		woke++;
		from_busy += CPU_ISSET(e->src, &prev);
		near += !strcmp(e->reason, "home_idle") && CPU_ISSET(e->dst, &topo->llc[1]);
	}
	cs_diag("%d of %d near their previous CPU, %d of them from a busy one", near, woke,
		from_busy);
	REQUIRE(from_busy >= 10, "few woke up whose previous CPU is busy");
	REQUIRE(percent(near, woke) >= 95,
		"wakeups leave the LLC domain of their previous CPU, where CPUs are idle");
}

/*
 * A home has two LLC domains.  The first has no idle CPU, and @busy CPUs of the second are busy.
 * Returns how many percent of the wakeups of a task that runs briefly go from the first to @where.
 */
static double brief_to_far(const char *top, int busy, const cpu_set_t *where)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = ru_or(&topo->llc[0], &topo->llc[1]), rest = ru_minus(&topo->online, &home);
	cpu_set_t prev = ru_first(&topo->llc[0], 1), far = ru_first(&topo->llc[1], busy);
	int i, woke = 0, there = 0;
	struct ru_trace trace;
	struct ru_gang *g;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = top, .start = prev, .one_each = true,
		.busy_us = 100, .sleep_us = 5000 });
	block(&topo->llc[0], 1);
	if (busy)
		block(&far, 1);
	if (CPU_COUNT(&rest))
		block(&rest, 1);
	/* Until the kernel knows how briefly it runs, and loads are what the queues are. */
	cs_sleep_ms(100 + SETTLE_MS);
	trace_wakeups_from(g, &prev, &trace);
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		if (strcmp(e->name, "cosched_place") || e->pid != g->w[0].tid ||
		    !CPU_ISSET(e->src, &topo->llc[0]))
			continue;
		woke++;
		there += CPU_ISSET(e->dst, where);
	}
	cs_diag("%d of %d wakeups to %d CPUs of the other domain, where %d of %d are busy", there,
		woke, CPU_COUNT(where), busy, CPU_COUNT(&topo->llc[1]));
	REQUIRE(woke >= 10, "few woke up whose previous domain is busy");
	return percent(there, woke);
}

/* A task that runs briefly finds an idle CPU below another LLC, if home has one there. */
static void rule1_brief_to_idle_domain(const char *top)
{
	REQUIRE(brief_to_far(top, 0, &ru_topo()->llc[1]) >= 50, "wakeups wait where a domain of home is idle");
}

/* It does not take the last idle CPUs there: tasks that sleep there for a moment will need them. */
static void rule1_brief_not_to_busy_domain(const char *top)
{
	const cpu_set_t *far = &ru_topo()->llc[1];
	int n = CPU_COUNT(far);

	REQUIRE(brief_to_far(top, n - n / 2, far) <= 5,
		"wakeups of one that runs briefly go to a domain of home of which half is busy");
}

/* There as well, it takes an idle core before the sibling of a busy CPU. */
static void rule1_brief_to_idle_core(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	const cpu_set_t *far = &topo->llc[1];
	cpu_set_t idle = ru_minus(far, &topo->siblings[ru_nth(far, 0)]);

	if (!topo->smt || !CPU_COUNT(&idle))
		cs_skip("needs SMT and a home of two cores");
	REQUIRE(brief_to_far(top, 1, &idle) >= 50, "wakeups go to the sibling of a busy CPU");
}

/* Did a worker of @g run on @cpu at any time from @from to @to? */
static bool ran_on(const struct ru_gang *g, int cpu, uint64_t from, uint64_t to)
{
	int i, k;

	for (i = 0; i < g->n; i++) {
		for (k = 0; k < g->w[i].nr_intervals; k++) {
			const struct ru_interval *v = &g->w[i].interval[k];

			if (v->cpu == cpu && v->from <= to && v->to >= from)
				return true;
		}
	}
	return false;
}

/* From the end of a run until others see the CPU idle, and from a wakeup until they do not. */
#define SWITCH_NS	(60 * 1000ull)

/*
 * All CPUs but one are busy, of home and elsewhere.  That one is busy now and then, for less than a
 * tick.  As soon as it idles, a wakeup finds it, even if many wakeups before found no idle CPU.
 */
static void rule1_idle_again(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	const cpu_set_t *home = &topo->llc[0];
	int i, cpu = ru_nth(home, CPU_COUNT(home) - 1), idle = 0, busy = 0, found = 0;
	cpu_set_t last = ru_one(cpu), others = outside_of(&last);
	struct ru_gang *g, *now_and_then;
	struct ru_trace trace;
	uint64_t placed = 0;

	keep_off(&last);
	ru_prefer(top, home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 8, .cg = top, .start = *home, .busy_us = 30, .sleep_us = 300, .log = true });
	block(&others, 1);
	now_and_then = ru_gang(&(struct ru_gang_opts){
		.n = 1, .start = last, .one_each = true, .busy_us = 400, .sleep_us = 400,
		.log = true });
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	cs_sleep_ms(400);
	ru_trace_stop(&trace);
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		if (!ru_member(g, e->pid) || strcmp(e->name, "cosched_place"))
			continue;
		if (ran_on(now_and_then, cpu, e->ns, e->ns)) {
			busy++;
		} else if (e->ns > placed + SWITCH_NS &&
			   !ran_on(now_and_then, cpu, e->ns - SWITCH_NS, e->ns) &&
			   !ran_on(g, cpu, e->ns - SWITCH_NS, e->ns)) {
			idle++;
			found += e->dst == cpu;
		}
		if (e->dst == cpu)
			placed = e->ns;
	}
	cs_diag("%d wakeups while no CPU of home idled; while one did %d, %d of them to it", busy,
		idle, found);
	REQUIRE(busy >= 50 && idle >= 30, "too few wakeups");
	REQUIRE(percent(found, idle) >= 95, "wakeups miss a CPU of home that idles again");
}

static void rule1_idle_core_before_sibling(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home), first, sibling;
	int i, hits = 0, seen = 0;
	struct ru_gang *g;

	if (!topo->smt || CPU_COUNT(&home) <= CPU_COUNT(&topo->siblings[ru_nth(&home, 0)]))
		cs_skip("needs SMT and a home of two cores");
	first = ru_first(&home, 1);
	sibling = ru_minus(&topo->siblings[ru_nth(&home, 0)], &first);
	ru_prefer(top, &home);
	block(&first, 1);
	/* Only its first wakeup looks for a CPU: then its previous CPU is idle. */
	for (i = 0; i < 10; i++) {
		struct ru_trace trace;
		int k;

		g = wakers(top, 1, &rest);
		cs_sleep_ms(20);
		ru_trace_start();
		ru_allow(g, &topo->online);
		cs_sleep_ms(20);
		ru_trace_stop(&trace);
		for (k = 0; k < trace.n; k++) {
			const struct ru_event *e = &trace.event[k];

			if (strcmp(e->name, "cosched_place") || !ru_member(g, e->pid))
				continue;
			seen++;
			hits += CPU_ISSET(e->dst, &sibling);
			break;
		}
		ru_end(g);
	}
	cs_diag("%d of %d first wakeups on the busy core's sibling", hits, seen);
	REQUIRE(seen == 10, "%d of 10 first wakeups were traced", seen);
	REQUIRE(!hits, "a sibling was taken though a core was idle");
}

/* SCHED_IDLE-only CPUs count as idle. */
static void rule1_sched_idle_is_idle(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home);
	struct ru_mark mark;
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .start = home, .one_each = true, .policy = SCHED_IDLE });
	cs_sleep_ms(SETTLE_MS);
	g = wakers(top, 1, &rest);
	ru_allow(g, &topo->online);
	cs_sleep_ms(20);
	ru_mark(g, &mark);
	s = watch(g, 300);
	show(&s);
	REQUIRE(placed_to(&s, "home_idle", &home) >= 95, "SCHED_IDLE threads keep a waker from home");
	REQUIRE(ru_share(g, &mark, &home) >= 97, "SCHED_IDLE threads keep a waker from home");
}

/* Of wakeups in rounds 10 ms apart, those to a CPU that another of the same round went to. */
static int placed_together(const struct ru_trace *t, const struct ru_gang *g, int *seen)
{
	int i, together = 0;
	uint64_t last = 0;
	cpu_set_t taken;

	*seen = 0;
	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		if (!ru_member(g, e->pid) || strcmp(e->name, "cosched_place"))
			continue;
		if (e->ns - last > 5 * MS)
			CPU_ZERO(&taken);
		last = e->ns;
		++*seen;
		together += CPU_ISSET(e->dst, &taken);
		CPU_SET(e->dst, &taken);
	}
	return together;
}

/*
 * A SCHED_IDLE-only CPU counts as idle, but not once another task is on its way there: tasks that
 * are woken in a row get a CPU each.
 */
static void rule1_sched_idle_one_each(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], first = ru_first(&home, 1);
	cpu_set_t from = ru_first(&topo->llc[0], 1);
	int i, seen, together, n = CPU_COUNT(&home);
	struct ru_trace trace;
	struct ru_gang *g;

	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = n, .start = home, .one_each = true, .policy = SCHED_IDLE });
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = first, .busy_us = 100, .sleep_us = 3600 * 1000000u });
	cs_sleep_ms(SETTLE_MS);
	if (sched_setaffinity(0, sizeof(from), &from))
		cs_fail("sched_setaffinity: %s", strerror(errno));
	ru_allow(g, &topo->online);
	ru_trace_start();
	for (i = 0; i < 20; i++) {
		ru_wake(g);
		cs_sleep_ms(10);
	}
	ru_trace_stop(&trace);
	together = placed_together(&trace, g, &seen);
	cs_diag("%d wakeups, %d to a CPU that was another's", seen, together);
	REQUIRE(seen >= 18 * n, "%d of %d wakeups were traced", seen, 20 * n);
	REQUIRE(percent(together, seen) <= 5, "several are sent to a SCHED_IDLE CPU at once");
}

/* Rule 2: break rather than idle */

static void rule2_spill_to_idle(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g, *busy;
	struct ru_mark mark;
	long long spilled;
	struct seen s;

	ru_prefer(top, &home);
	/* Home is full of the cluster's own threads, which may not leave it. */
	busy = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = top, .start = home, .one_each = true });
	g = wakers(top, 2, &home);
	cs_sleep_ms(SETTLE_MS);
	spilled = cs_stat(top, "wakeups_spilled");
	ru_trace_start();
	ru_mark(g, &mark);
	allow_asleep(g, &home, &topo->online);
	cs_sleep_ms(500);
	s.g = g;
	ru_trace_stop(&s.trace);
	s.placed = ru_count(&s.trace, g, "cosched_place", NULL);
	show(&s);
	spilled = cs_stat(top, "wakeups_spilled") - spilled;
	cs_diag("%.1f%% of the wakers' CPU time outside, wakeups_spilled %lld",
		ru_share(g, &mark, &rest), spilled);
	REQUIRE(ru_count_to(&s.trace, g, "cosched_place", "spill", &rest) >= 1, "no wakeup spilled");
	REQUIRE(spilled >= 1, "wakeups_spilled did not count");
	REQUIRE(ru_share(g, &mark, &rest) >= 90, "wakers wait at a full home though CPUs are idle");
	(void)busy;
}

/*
 * The nearest idle CPUs are the rest of the LLC domain that holds home. A waker's first
 * wakeup spills. Later it stays there, or goes on if a kernel thread is on its CPU; such a
 * move does not start at home any more, and is not counted.
 */
static void rule2_nearest_first(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t llc = topo->llc[1], home = ru_first(&llc, CPU_COUNT(&llc) / 2);
	cpu_set_t near = ru_minus(&llc, &home);
	int i, round, spills = 0, close = 0;
	const struct ru_event *e;

	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = top, .start = home, .one_each = true });
	keep_off(&llc);
	cs_sleep_ms(SETTLE_MS);
	for (i = 0; i < 10; i++) {
		struct ru_trace trace;
		struct ru_gang *g = ru_gang(&(struct ru_gang_opts){
			.n = 1, .cg = top, .start = home, .one_each = true,
			.busy_us = WAKER_BUSY_US, .sleep_us = 20000 });

		/* Lets the load that the last round's waker left there decay. */
		cs_sleep_ms(150);
		until_asleep(g);
		ru_trace_start();
		ru_allow(g, &topo->online);
		cs_sleep_ms(60);
		ru_trace_stop(&trace);
		round = close;
		for (e = trace.event; e < trace.event + trace.n; e++) {
			if (!ru_member(g, e->pid) || strcmp(e->reason, "spill") ||
			    !CPU_ISSET(e->src, &home))
				continue;
			spills++;
			close += CPU_ISSET(e->dst, &near);
		}
		for (e = trace.event; close != round + 1 && e < trace.event + trace.n; e++) {
			if (ru_member(g, e->pid))
				cs_diag("round %d, %lld us: %s %s %d -> %d", i,
					(long long)(e->ns - trace.event->ns) / 1000,
					e->name, e->reason, e->src, e->dst);
		}
		ru_end(g);
	}
	cs_diag("%d spills, %d of them to the rest of home's LLC domain", spills, close);
	/* A waker may have woken after its state was read and before it was allowed elsewhere. */
	REQUIRE(spills >= 8, "only %d of 10 wakers spilled from a full home", spills);
	/* Where only one CPU is near, a kernel thread may have run on it for a moment. */
	REQUIRE(close >= spills - (CPU_COUNT(&near) == 1), "spilled past idle CPUs of home's own LLC domain");
}

/* A CPU idle for a moment in a domain that is busy on average is not taken. */
static void rule2_not_for_a_moment(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	block(&home, 1);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&rest), .start = rest, .one_each = true,
		.busy_us = 9000, .sleep_us = 1000 });
	g = wakers(top, 1, &home);
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	s = watch(g, 500);
	show(&s);
	REQUIRE(placed(&s, "spill") <= 2, "spills to CPUs that are idle for a moment");
	/* An idle CPU may pull a waiter all the same (rule 5), which then may stay (rule 3). */
	REQUIRE(placed(&s, "home_queue") >= 75, "wakeups do not queue at home");
}

/* Rule 3: otherwise queue at home */

/*
 * A full home: its CPU *@first has @least tasks that never sleep, its other CPUs have @others each.
 * A waker comes from *@first.
 */
static struct seen queue_beside(const char *top, int least, int others, cpu_set_t *first)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), longer;
	struct ru_gang *g;
	struct seen s;

	*first = ru_first(&home, 1);
	longer = ru_minus(&home, first);
	ru_prefer(top, &home);
	block(first, least);
	block(&longer, others);
	block(&rest, others);
	g = wakers(top, 1, &longer);
	cs_sleep_ms(SETTLE_MS);
	until_asleep(g);
	ru_trace_start();
	ru_allow(g, &topo->online);
	cs_sleep_ms(500);
	ru_trace_stop(&s.trace);
	s.g = g;
	s.placed = ru_count(&s.trace, g, "cosched_place", NULL);
	show(&s);
	cs_diag("%.1f%% on the least loaded CPU", placed_to(&s, NULL, first));
	REQUIRE(placed_to(&s, "home_queue", &home) >= 90, "wakeups do not queue at a full home");
	return s;
}

/* On the least loaded CPU, if the queue where they last ran is much longer. */
static void rule3_queue_on_least_loaded(const char *top)
{
	cpu_set_t first;
	struct seen s = queue_beside(top, 1, 5, &first);

	REQUIRE(placed_to(&s, NULL, &first) >= 90, "wakeups do not queue on home's least loaded CPU");
}

static void queue_where_warm(const char *top, int least, int others)
{
	const struct ru_event *e;
	cpu_set_t first;
	struct seen s = queue_beside(top, least, others, &first);
	int left = 0;

	for (e = s.trace.event; e < s.trace.event + s.trace.n; e++)
		left += ru_member(s.g, e->pid) && !strcmp(e->name, "cosched_place") &&
			e->src != e->dst;
	REQUIRE(!left, "%d wakeups leave the CPU where their data is warm", left);
}

/* Where they last ran, if that queue is hardly longer; the balancer may decide otherwise. */
static void rule3_queue_where_warm(const char *top)
{
	queue_where_warm(top, 1, 2);
}

/* With long queues, also if that one is three tasks longer: it is not twice as long. */
static void rule3_long_queue_where_warm(const char *top)
{
	queue_where_warm(top, 4, 7);
}

/* Wakes a gang from a home CPU other than the first, on which it slept. */
static void wake_gang(void *arg)
{
	cpu_set_t second = ru_one(ru_nth(&ru_topo()->llc[0], 1));

	if (sched_setaffinity(0, sizeof(second), &second))
		cs_fail("sched_setaffinity: %s", strerror(errno));
	ru_wake(arg);
	pause();
}

/*
 * A task of a cluster wakes sixteen others that slept on one CPU, while all CPUs are busy: each CPU
 * of home with @at_home tasks, each other with @outside. The woken tasks stay where they slept or
 * where the waker is, however long the queues become there, and are not spread over the CPUs.
 */
static void woken_by_own(const char *top, int at_home, int outside)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), first = ru_first(&home, 1);
	cpu_set_t near = ru_first(&home, 2);
	struct ru_trace trace;
	struct ru_gang *g;
	int n = 16, there;

	if (CPU_COUNT(&home) < 3)
		cs_skip("needs three CPUs in an LLC domain");
	ru_prefer(top, &home);
	block(&home, at_home);
	block(&rest, outside);
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = first, .one_each = true,
		.busy_us = 2000, .sleep_us = 3600 * 1000000u });
	cs_sleep_ms(100 + SETTLE_MS);
	ru_allow(g, &topo->online);
	ru_trace_start();
	cs_spawn(top, wake_gang, g);
	cs_sleep_ms(20);
	ru_trace_stop(&trace);
	there = ru_count_to(&trace, g, "cosched_place", "home_queue", &near);
	cs_diag("%d of %d wakeups queue where the data or the waker is", there,
		ru_count(&trace, g, "cosched_place", NULL));
	REQUIRE(there >= n, "only %d of %d woke up there", there, n);
	REQUIRE(there == ru_count(&trace, g, "cosched_place", NULL),
		"those whom one of their own wakes are dealt out");
}

static void rule3_woken_by_own(const char *top)
{
	woken_by_own(top, 1, 2);
}

/* They do not queue outside either, where the CPUs have less to do. */
static void rule4_woken_by_own(const char *top)
{
	woken_by_own(top, 3, 1);
}

/* @n brief tasks for each CPU of home, in a cluster below @top; all CPUs outside are busy. */
static struct ru_gang *brief_at_home(const char *top, int n, unsigned int busy_us,
				     unsigned int sleep_us)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g;
	char cg[512];

	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &home);
	block(&rest, 2);
	g = ru_gang(&(struct ru_gang_opts){
		.n = n * CPU_COUNT(&home), .cg = cg, .start = home,
		.busy_us = busy_us, .sleep_us = sleep_us });
	ru_allow(g, &topo->online);
	cs_sleep_ms(SETTLE_MS);
	return g;
}

/* Tasks of another cluster that never sleep and may not leave: one on each CPU of that home. */
static struct ru_gang *strays_at_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang *strays;
	char cg[512];

	cs_mkdir(cg, top, "b");
	ru_prefer(cg, &topo->llc[1]);
	strays = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&topo->llc[0]), .cg = cg, .start = topo->llc[0], .one_each = true });
	cs_sleep_ms(SETTLE_MS);
	return strays;
}

/* How often the workers of @g slept. *@late: how often they ran a millisecond late or more. */
static uint64_t cycles(const struct ru_gang *g, uint64_t *late)
{
	uint64_t sum = 0;
	int i;

	*late = 0;
	for (i = 0; i < g->n; i++) {
		sum += g->w[i].cycles;
		*late += g->w[i].late;
	}
	return sum;
}

/*
 * A task that runs briefly at home does not wait for the slices of strays, which are there because
 * nobody needed the CPU.
 */
static void before_strays(const char *top, int n)
{
	struct ru_gang *g = brief_at_home(top, n, 100, 2000), *strays = strays_at_home(top);
	uint64_t before, runs, late_before, late, since;
	struct ru_mark mark;
	struct seen s;
	double left;

	ru_mark(strays, &mark);
	before = cycles(g, &late_before);
	since = ru_now();
	s = watch(g, 400);
	since = ru_now() - since;
	runs = cycles(g, &late) - before;
	late -= late_before;
	left = percent(ru_ran(strays, &mark, &ru_topo()->llc[0]), (double)strays->n * since);
	show(&s);
	cs_diag("%llu of %llu runs late; strays have %.1f%% of the CPU time",
		(unsigned long long)late, (unsigned long long)runs, left);
	REQUIRE(placed(&s, "home_stray") >= 60, "wakeups do not go to the CPUs of strays");
	REQUIRE(percent(late, runs) <= 0.5, "those at home wait for strays");
	REQUIRE(left >= 75, "strays do not have what the others leave");
}

static void rule3_before_strays(const char *top)
{
	before_strays(top, 2);
}

/*
 * Neither do tasks that wait behind another of their cluster, although with groups a group is not
 * eligible any more as soon as one of its tasks ran.
 */
static void rule3_before_strays_in_groups(const char *top)
{
	cs_need_controller(top, "cpu");
	before_strays(top, 6);
}

/*
 * Wakes @g 60 times from the last CPU of home. Returns how many wakeups of the last 40 times went
 * to other CPUs. *@enqueued_there: how many of these were enqueued by the CPU that they went to.
 */
static int wake_remotely(struct ru_gang *g, int *enqueued_there)
{
	const cpu_set_t *home = &ru_topo()->llc[0];
	int i, k, from = ru_nth(home, CPU_COUNT(home) - 1), n = 0;
	cpu_set_t own = ru_one(from);
	struct ru_trace trace;

	if (sched_setaffinity(0, sizeof(own), &own))
		cs_fail("sched_setaffinity: %s", strerror(errno));
	for (i = 0; i < 60; i++) {
		if (i == 20) {
			ru_trace_start();
			ru_trace_also("sched/sched_wakeup");
		}
		ru_wake(g);
		cs_sleep_ms(10);
	}
	ru_trace_stop(&trace);
	*enqueued_there = 0;
	for (k = 0; k < trace.n; k++) {
		const struct ru_event *e = &trace.event[k];

		if (!ru_member(g, e->pid) || strcmp(e->name, "sched_wakeup") || e->dst == from)
			continue;
		n++;
		*enqueued_there += e->on == e->dst;
	}
	return n;
}

/*
 * A task that preempts a stray is not enqueued by its waker, which would hold the lock of the
 * stray's CPU while that CPU wants the lock to switch. Tasks of no cluster are.
 */
static void rule3_stray_cpu_enqueues(const char *top)
{
	cpu_set_t home = ru_topo()->llc[0], first = ru_first(&home, 1);
	struct ru_gang *g, *other;
	int n, there;
	char cg[512];

	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = cg, .start = home, .busy_us = 100, .sleep_us = 3600 * 1000000u });
	other = ru_gang(&(struct ru_gang_opts){
		.n = 1, .start = first, .busy_us = 100, .sleep_us = 3600 * 1000000u });
	strays_at_home(top);
	n = wake_remotely(g, &there);
	cs_diag("at home %d of %d", there, n);
	REQUIRE(n >= 30, "only %d of 40 were woken on another CPU", n);
	REQUIRE(percent(there, n) >= 90, "who preempts a stray is enqueued by its waker");
	n = wake_remotely(other, &there);
	cs_diag("of no cluster %d of %d", there, n);
	REQUIRE(n >= 30, "only %d of 40 of no cluster were woken on another CPU", n);
	REQUIRE(percent(there, n) <= 10, "who is in no cluster is not enqueued by its waker");
}

/* Tasks woken together on CPUs where strays compute have all run before a stray runs again. */
static void hand_on(const char *top, const cpu_set_t *cpus, int n, int allowed)
{
	int i, round, late = 0, each = (n + CPU_COUNT(cpus) - 1) / CPU_COUNT(cpus);
	struct ru_gang *g;
	char cg[512];

	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &ru_topo()->llc[0]);
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = cg, .start = *cpus, .busy_us = 100, .sleep_us = 3600 * 1000000u });
	strays_at_home(top);
	keep_off(&ru_topo()->llc[0]);
	/* The kernel needs nine runs to know that they are brief. */
	for (round = 0; round < 100; round++) {
		uint64_t woke = ru_now(), last = 0;

		ru_wake(g);
		cs_sleep_ms(20);
		for (i = 0; i < n; i++) {
			REQUIRE(g->w[i].beat > woke, "a task that was woken did not run for 20 ms");
			if (g->w[i].beat > last)
				last = g->w[i].beat;
		}
		/* Each runs for up to 150 us. */
		late += round >= 20 && last > woke + 2 * each * 150000ull + MS;
	}
	cs_diag("%d of 80 times a stray got in between", late);
	REQUIRE(late <= allowed, "those at home do not hand on to one another");
}

static void rule3_hand_on(const char *top)
{
	cpu_set_t two = ru_first(&ru_topo()->llc[0], 2);

	hand_on(top, &two, 12, 2);
}

/* The same if no stray is seen for a moment, because tasks at home run on all CPUs of home. */
static void rule3_hand_on_everywhere(const char *top)
{
	const cpu_set_t *home = &ru_topo()->llc[0];

	hand_on(top, home, 6 * CPU_COUNT(home), 2);
}

/*
 * Three tasks for each CPU of home, which run for about @busy_us, are woken together 50 times while
 * strays compute there. Returns how many were fetched by a CPU that had only strays left.
 */
static int fetched(const char *cg, unsigned int busy_us)
{
	const cpu_set_t *home = &ru_topo()->llc[0];
	struct ru_trace trace;
	struct ru_gang *g;
	int round, k, n;

	g = ru_gang(&(struct ru_gang_opts){
		.n = 3 * CPU_COUNT(home), .cg = cg, .start = *home,
		.busy_us = busy_us, .sleep_us = 3600 * 1000000u });
	keep_off(home);
	for (round = 0; round < 110; round++) {
		if (round == 60)
			ru_trace_start();
		ru_wake(g);
		cs_sleep_ms(10);
	}
	ru_trace_stop(&trace);
	for (k = 0; k < trace.n; k++) {
		const struct ru_event *e = &trace.event[k];

		if (strcmp(e->name, "cosched_fetch"))
			continue;
		REQUIRE(ru_member(g, e->pid), "a task of another cluster was fetched");
		REQUIRE(CPU_ISSET(e->src, home) && CPU_ISSET(e->dst, home),
			"a task was fetched from CPU %d to CPU %d, not within home", e->src,
			e->dst);
	}
	n = ru_count(&trace, g, "cosched_fetch", NULL);
	cs_diag("%d fetched of runs of %u us", n, busy_us);
	ru_end(g);
	return n;
}

/*
 * A CPU of home that has only strays left takes a task that waits on another CPU. It does not take
 * tasks that run for long: these do not go before strays.
 */
static void rule3_fetch(const char *top)
{
	char cg[512];

	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &ru_topo()->llc[0]);
	strays_at_home(top);
	REQUIRE(fetched(cg, 150) >= 25, "those that wait are left where they are");
	REQUIRE(!fetched(cg, 2000), "those that run for long are fetched");
}

/*
 * A task that runs briefly does not count strays: it waits where fewest tasks of its own cluster
 * are. The first CPU has four of these, each other CPU has one of them and four strays. Some of the
 * woken tasks wait there, too.
 */
static void rule3_queue_beside_strays(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], first = ru_first(&home, 1), others = ru_minus(&home, &first);
	struct ru_gang *g = brief_at_home(top, 1, 100, 2000);
	char own[512], strays[512];
	struct seen s;

	snprintf(own, sizeof(own), "%s/a", top);
	cs_mkdir(strays, top, "b");
	ru_prefer(strays, &topo->llc[1]);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = own, .start = home, .one_each = true });
	ru_gang(&(struct ru_gang_opts){ .n = 3, .cg = own, .start = first });
	ru_gang(&(struct ru_gang_opts){
		.n = 4 * CPU_COUNT(&others), .cg = strays, .start = others, .one_each = true });
	cs_sleep_ms(SETTLE_MS);
	s = watch(g, 400);
	show(&s);
	cs_diag("%.1f%% wait beside strays", placed_to(&s, "home_queue", &others));
	REQUIRE(placed_to(&s, "home_queue", &others) >= 80, "they count strays as well");
}

/* However many tasks are at home and however often they wake up: a stray has its share, no more. */
static void rule3_share_of_strays(const char *top)
{
	struct ru_gang *strays;
	cpu_set_t home = ru_topo()->llc[0];
	struct ru_mark mark;
	double share;

	ru_allow(brief_at_home(top, 4, 200, 1), &home);
	strays = strays_at_home(top);
	ru_mark(strays, &mark);
	cs_sleep_ms(400);
	share = percent(ru_ran(strays, &mark, &home), 400.0 * MS * strays->n);
	cs_diag("%.1f%% of the CPU time for one stray beside four at home", share);
	REQUIRE(share >= 20, "strays starve");
	REQUIRE(share <= 30, "those at home have less than their share");
}

/* A stray whose own CPU is idle stays there while home has no idle CPU. */
static void rule3_stray_stays(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), start = ru_first(&rest, 1);
	struct ru_mark mark;
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	block(&home, 1);
	g = wakers(top, 1, &start);
	keep_off(&start);
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	ru_mark(g, &mark);
	s = watch(g, 300);
	show(&s);
	/* Another one, should a kernel thread have been on the first. */
	REQUIRE(placed_to(&s, "stay", &rest) >= 95, "a stray's wakeups leave its idle CPU");
	REQUIRE(ru_share(g, &mark, &rest) >= 95, "a stray leaves its idle CPU for a full home");
}

/* Rule 4: one comparison, PREFERRED * load(home) > ALLOWED * load(D) */

static struct seen with_weights(const char *cg, struct ru_gang *g, const char *weights)
{
	long long over = cs_stat(cg, "wakeups_overflowed");
	struct seen s;
	int n;

	cs_write(cg, CS_WEIGHTS, weights);
	cs_sleep_ms(50);
	s = watch(g, 500);
	cs_diag("weights %s:", weights);
	show(&s);
	over = cs_stat(cg, "wakeups_overflowed") - over;
	n = ru_count(&s.trace, g, "cosched_place", "overflow");
	/* The counter ran while the weights settled, too. */
	REQUIRE(over >= n, "wakeups_overflowed counts %lld of %d", over, n);
	return s;
}

/* A home with four times the load of everything else. */
static void rule4_loaded_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	block(&home, 4);
	block(&rest, 1);
	g = wakers(top, 2, &home);
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);

	s = with_weights(top, g, "100 150");
	REQUIRE(placed_to(&s, "overflow", &rest) >= 50, "100 * 4 > 150 * 1, but wakeups queue at home");
	s = with_weights(top, g, "1 10000");
	REQUIRE(placed(&s, "overflow") <= 1, "1 * 4 < 10000 * 1, but wakeups overflow");
	REQUIRE(placed(&s, "home_queue") >= 90, "with weights 1 10000 wakeups do not queue at home");
}

/* A home with the load of everything else: the default margin keeps it. */
static void rule4_equal_load(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	block(&home, 2);
	block(&rest, 2);
	g = wakers(top, 2, &home);
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);

	s = with_weights(top, g, "100 150");
	REQUIRE(placed(&s, "overflow") <= 1, "100 * 2 < 150 * 2, but wakeups overflow");
	s = with_weights(top, g, "10000 1");
	REQUIRE(placed_to(&s, "overflow", &rest) >= 50, "10000 * 2 > 1 * 2, but wakeups queue at home");
}

/*
 * Two tasks for each CPU outside began to run a moment ago, which loads do not show yet: home,
 * where one task runs on each CPU, has the shorter queues.
 */
static void rule4_queues_of_now(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g, *late;
	struct ru_trace trace;
	int n = CPU_COUNT(&home);

	ru_prefer(top, &home);
	block(&home, 1);
	late = ru_gang(&(struct ru_gang_opts){
		.n = 2 * CPU_COUNT(&rest), .start = rest, .one_each = true,
		.busy_us = 100000, .sleep_us = 3600 * 1000000u });
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = home, .one_each = true,
		.busy_us = 2000, .sleep_us = 3600 * 1000000u });
	/* Until all sleep, and their load has decayed. */
	cs_sleep_ms(400 + SETTLE_MS);
	ru_allow(g, &topo->online);
	ru_trace_start();
	ru_wake(late);
	cs_sleep_ms(3);
	ru_wake(g);
	cs_sleep_ms(3);
	ru_trace_stop(&trace);
	cs_diag("%d of %d wakeups queue at home, %d outside",
		ru_count(&trace, g, "cosched_place", "home_queue"), n,
		ru_count(&trace, g, "cosched_place", "overflow"));
	REQUIRE(!ru_count(&trace, g, "cosched_place", "overflow"),
		"wakeups leave home for longer queues");
	REQUIRE(ru_count(&trace, g, "cosched_place", "home_queue") >= n, "not all of them woke up");
}

/* Rule 5: the balancer agrees */

/*
 * A thread waits on each home CPU behind one that may not leave, and CPUs idle outside:
 * the waiting threads are pulled out. No other mechanism can move them: with these weights a
 * domain would have to be empty to be cheaper, and at nice 19 beside -20 the waiting threads do
 * not run, so they do not look around.
 */
static void rule5_idle_cpu_pulls(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0];
	int n = CPU_COUNT(&home);
	struct ru_mark mark;
	struct ru_trace trace;
	long long pulled, before, soon;
	int traced, pushed = 0;
	double used;
	struct ru_gang *g, *blockers;
	int i;

	ru_prefer(top, &home);
	cs_write(top, CS_WEIGHTS, "1 10000");
	for (i = 1; i < topo->nr_llcs; i++)
		ru_gang(&(struct ru_gang_opts){
			.n = 1, .start = ru_first(&topo->llc[i], 1),
			.busy_us = 100, .sleep_us = 1000 });
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = home, .one_each = true });
	blockers = block(&home, 1);
	for (i = 0; i < n; i++)
		REQUIRE(!setpriority(PRIO_PROCESS, g->w[i].tid, 19) &&
			!setpriority(PRIO_PROCESS, blockers->w[i].tid, -20), "setpriority: %s",
			strerror(errno));
	cs_sleep_ms(SETTLE_MS);
	pulled = cs_stat(top, "tasks_pulled");
	ru_trace_start();
	ru_allow(g, &topo->online);
	cs_sleep_ms(400);
	soon = cs_stat(top, "tasks_pulled") - pulled;
	ru_mark(g, &mark);
	cs_sleep_ms(500);
	used = percent(ru_ran(g, &mark, &topo->online), n * (double)(ru_now() - mark.at));
	before = cs_stat(top, "tasks_pulled") - pulled;
	ru_trace_stop(&trace);
	pulled = cs_stat(top, "tasks_pulled") - pulled;
	traced = ru_count(&trace, g, "cosched_pull", NULL);
	cs_diag("%d threads used %.1f%% of %d CPUs; tasks_pulled %lld", n, used, n, soon);
	REQUIRE(used >= 93, "threads wait at home while CPUs are idle");
	REQUIRE(soon >= n, "tasks_pulled counts %lld of %d", soon, n);
	/* Once outside, one that shares a CPU goes on to another. */
	for (i = 0; i < trace.n; i++)
		pushed += !strcmp(trace.event[i].name, "cosched_push") &&
			  CPU_ISSET(trace.event[i].src, &home);
	REQUIRE(!pushed, "they were to be pulled, not to go by themselves");
	REQUIRE(traced >= before && traced <= pulled,
		"%d cosched_pull events, tasks_pulled counts %lld", traced, pulled);
	REQUIRE(ru_count(&trace, g, "cosched_pull", "idle") >= 1, "no pull by an idle CPU traced");
}

/* The most tasks that an idle CPU pulled at once, if more than @most. *@pulls: pulls in all. */
static int most_at_once(const struct ru_trace *trace, int *pulls, int most)
{
	const struct ru_event *e, *next, *end = trace->event + trace->n;

	for (e = trace->event; e < end; e++) {
		int taken = 0;

		if (!ru_is(e, "cosched_pull", "idle"))
			continue;
		(*pulls)++;
		for (next = e; next < end && next->ns <= e->ns + 100000; next++)
			taken += !strcmp(next->name, "cosched_pull") && next->dst == e->dst &&
				 !strcmp(next->reason, "idle");
		if (taken > most)
			most = taken;
	}
	return most;
}

/*
 * Eight threads for each home CPU, and CPUs outside that idle most of the time: a CPU that pulls
 * takes one thread, not as many as its domain would have room for. A few rounds, as threads may
 * leave by themselves.
 */
static void rule5_one_at_a_time(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	int round, pulls = 0, most = 0;

	ru_prefer(top, &home);
	/* An unused CPU balances only now and then, a CPU that goes idle does so at once. */
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&rest), .start = rest, .one_each = true,
		.busy_us = 100, .sleep_us = 1000 });
	for (round = 0; round < 20 && pulls < 2 && most < 2; round++) {
		struct ru_trace trace;
		struct ru_gang *g;

		g = ru_gang(&(struct ru_gang_opts){
			.n = 8 * CPU_COUNT(&home), .cg = top, .start = home, .one_each = true });
		cs_sleep_ms(SETTLE_MS);
		ru_trace_start();
		ru_allow(g, &topo->online);
		cs_sleep_ms(100);
		ru_trace_stop(&trace);
		most = most_at_once(&trace, &pulls, most);
		free(trace.event);
		ru_end(g);
	}
	cs_diag("%d pulls by idle CPUs; at most %d at once", pulls, most);
	REQUIRE(pulls >= 1, "no idle CPU pulls");
	REQUIRE(most <= 1, "an idle CPU pulls %d at once", most);
}

/* Strays that wait outside are pulled into a home with idle CPUs. */
static void rule5_into_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	cpu_set_t crowded = ru_first(&rest, CPU_COUNT(&home));
	struct ru_mark mark;
	struct ru_gang *g;
	double used;

	ru_prefer(top, &home);
	block(&rest, 1);
	g = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = top, .start = crowded, .one_each = true });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	cs_sleep_ms(100);
	ru_mark(g, &mark);
	cs_sleep_ms(300);
	used = percent(ru_ran(g, &mark, &home), CPU_COUNT(&home) * (double)(ru_now() - mark.at));
	cs_diag("strays use %.1f%% of home 100 ms after they may", used);
	REQUIRE(used >= 93, "strays wait outside while home is idle");
}

/* Does the task that the event @at pulls run where it was pulled to, within a ms? */
static bool runs_there(const struct ru_trace *trace, int at)
{
	const struct ru_event *pull = &trace->event[at], *e;

	for (e = pull + 1; e < trace->event + trace->n && e->ns < pull->ns + MS; e++)
		if (!strcmp(e->name, "sched_switch") && e->on == pull->dst && e->pid == pull->pid)
			return true;
	return false;
}

/*
 * A task that sleeps and is still queued, as its lag has not run out, is not pulled out of home: it
 * is the tasks that wait which idle CPUs are to take.
 */
static void rule5_sleepers(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0];
	int round, i, pulls = 0, asleep = 0;
	struct ru_gang *g;

	ru_prefer(top, &home);
	cs_write(top, CS_WEIGHTS, "1 10000");
	g = ru_gang(&(struct ru_gang_opts){
		.n = 4 * CPU_COUNT(&home), .cg = top, .start = home,
		.busy_us = 3000, .sleep_us = 2000 });
	for (round = 0; round < 20; round++) {
		struct ru_trace trace;

		ru_allow(g, &home);
		cs_sleep_ms(SETTLE_MS);
		ru_trace_start();
		ru_trace_also("sched/sched_switch");
		ru_allow(g, &topo->online);
		cs_sleep_ms(30);
		ru_trace_stop(&trace);
		for (i = 0; i < trace.n; i++) {
			if (!ru_is(&trace.event[i], "cosched_pull", "idle"))
				continue;
			pulls++;
			asleep += !runs_there(&trace, i);
		}
		free(trace.event);
	}
	cs_diag("%d pulls by idle CPUs, %d of tasks that do not run there", pulls, asleep);
	REQUIRE(pulls >= 20, "%d pulls are too few to tell", pulls);
	REQUIRE(asleep <= pulls / 50, "%d of %d tasks sleep that are pulled", asleep, pulls);
}

/*
 * A task that runs alone at home is not pushed out, unless something else takes its CPU: here a
 * realtime task, elsewhere interrupts.
 */
static void rule5_reduced(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], first = ru_first(&home, 1), rest = outside_of(&home);
	struct ru_gang *g, *hog;
	struct ru_mark mark;
	double out;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = top, .start = home, .one_each = true });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	cs_sleep_ms(200);
	ru_mark(g, &mark);
	cs_sleep_ms(500);
	out = ru_share(g, &mark, &rest);
	cs_diag("%.1f%% outside while they have home for themselves", out);
	REQUIRE(out < 1, "tasks that run alone are pushed out");
	hog = ru_gang(&(struct ru_gang_opts){
		.n = 1, .start = first, .one_each = true, .policy = SCHED_FIFO,
		.busy_us = 500, .sleep_us = 500 });
	cs_sleep_ms(1000);
	ru_mark(g, &mark);
	cs_sleep_ms(500);
	out = percent(ru_ran(g, &mark, &rest), ru_now() - mark.at);
	cs_diag("%.1f%% of a CPU outside while something else takes half of one at home", out);
	REQUIRE(out >= 50, "a task stays on a CPU that is half taken, while others idle");
	ru_end(hog);
}

/*
 * How often balancing has failed says nothing about a task that the weights keep at home: a CPU
 * that is idle for moments does not take it, even if a home CPU is idle in the same moment.
 */
static void rule5_failures(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_trace trace;
	struct ru_gang *g;
	int pulls;

	ru_prefer(top, &home);
	cs_write(top, CS_WEIGHTS, "1 10000");
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&rest), .start = rest, .one_each = true,
		.busy_us = 900, .sleep_us = 100 });
	g = ru_gang(&(struct ru_gang_opts){
		.n = 3 * CPU_COUNT(&home), .cg = top, .start = home,
		.busy_us = 400, .sleep_us = 500 });
	ru_allow(g, &topo->online);
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	cs_sleep_ms(1000);
	ru_trace_stop(&trace);
	pulls = ru_count(&trace, g, "cosched_pull", "idle");
	free(trace.event);
	cs_diag("%d pulls by CPUs that are idle for moments", pulls);
	REQUIRE(!pulls, "%d tasks are pulled from home", pulls);
}

/*
 * Out of home to busy CPUs only by rule 4: one thread more than two for each
 * home CPU, and two on each other CPU, is within the weights' margin.
 */
static void rule5_no_pull_to_busy(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_trace trace;
	struct ru_gang *g;
	int moves, rule4;
	uint64_t from;

	ru_prefer(top, &home);
	block(&rest, 2);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 2 * CPU_COUNT(&home) + 1, .cg = top, .start = home });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	cs_sleep_ms(100);
	ru_trace_start();
	from = ru_now();
	cs_sleep_ms(1000);
	ru_trace_stop(&trace);
	moves = ru_domain_moves(&trace, g, from);
	rule4 = ru_count(&trace, g, "cosched_pull", "rule4");
	cs_diag("%d moves between LLC domains in a second, %d pulls by rule 4", moves, rule4);
	REQUIRE(!rule4, "the balancer pulled by rule 4 though home is hardly fuller");
	REQUIRE(moves < 20, "wakeup, return and balancer undo one another");
}

/* Rule 6: strays come home */

static void rule6_stray_returns(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), start = ru_first(&rest, 1);
	struct ru_gang *g, *blockers;
	struct ru_trace trace;
	long long returned;
	int came, left;

	ru_prefer(top, &home);
	blockers = block(&home, 1);
	g = ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = start, .watch = home });
	cs_sleep_ms(SETTLE_MS);
	/* Before it may go home: to start tracing disturbs. */
	ru_trace_start();
	ru_allow(g, &topo->online);
	cs_sleep_ms(50);
	REQUIRE(CPU_ISSET(g->w[0].cpu, &rest), "the stray went to a full home");
	returned = cs_stat(top, "strays_returned");
	blockers->w[0].stop = RU_SLEEP;
	cs_sleep_ms(100);
	ru_trace_stop(&trace);
	returned = cs_stat(top, "strays_returned") - returned;
	came = ru_moves_into(&trace, g, &home);
	left = ru_moves_into(&trace, g, &rest);
	cs_diag("strays_returned %lld; came home %d times, left it %d", returned, came, left);
	REQUIRE(CPU_ISSET(g->w[0].cpu, &home), "the stray is not home after 100 ms");
	/* Should a kernel thread be on its CPU, the balancer may take it away once. */
	REQUIRE(left <= 1, "one stray left its home %d times", left);
	REQUIRE(came == 1 + left, "it came home %d times and left it %d times", came, left);
	/* From there it may come home by the tick or by the balancer, too. */
	REQUIRE(returned >= 1 && returned <= came, "strays_returned counts %lld, it came %d times",
		returned, came);
	REQUIRE(ru_count_to(&trace, g, "cosched_return", NULL, &home) == returned,
		"the return was not traced");
}

/* Only a home CPU that is idle durably calls a running stray back. */
static void rule6_not_for_a_moment(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), start = ru_first(&rest, 1);
	struct ru_mark mark;
	struct ru_gang *g;
	long long returned;

	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .start = home, .one_each = true,
		.busy_us = 9000, .sleep_us = 1000 });
	g = ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = start });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	returned = cs_stat(top, "strays_returned");
	ru_mark(g, &mark);
	cs_sleep_ms(500);
	returned = cs_stat(top, "strays_returned") - returned;
	cs_diag("strays_returned %lld, %.1f%% of the CPU time outside", returned,
		ru_share(g, &mark, &rest));
	REQUIRE(returned <= 1, "a stray was called back %lld times to CPUs that are idle for a moment",
		returned);
	REQUIRE(ru_share(g, &mark, &rest) >= 95, "a stray was called back to a busy home");
}

/*
 * Four tasks on each CPU, and a stray outside. No home CPU is idle or runs a task that belongs
 * elsewhere, and for the balancer the difference is too small, but queues at home are shorter.
 */
static void rule6_shorter_queue(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), start = ru_first(&rest, 1);
	struct ru_trace trace;
	long long returned;
	struct ru_gang *g;

	ru_prefer(top, &home);
	block(&rest, 4);
	ru_gang(&(struct ru_gang_opts){
		.n = 4 * CPU_COUNT(&home), .cg = top, .start = home, .one_each = true });
	g = ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = start });
	cs_sleep_ms(SETTLE_MS);
	returned = cs_stat(top, "strays_returned");
	ru_trace_start();
	ru_allow(g, &topo->online);
	cs_sleep_ms(500);
	ru_trace_stop(&trace);
	returned = cs_stat(top, "strays_returned") - returned;
	cs_diag("strays_returned %lld; came home %d times, left it %d", returned,
		ru_moves_into(&trace, g, &home), ru_moves_into(&trace, g, &rest));
	REQUIRE(CPU_ISSET(g->w[0].cpu, &home), "a stray waits where more wait than at home");
	REQUIRE(returned >= 1, "it came home, but strays_returned does not say so");
	REQUIRE(ru_moves_into(&trace, g, &rest) <= 1, "it left its home again");
}

/*
 * Many strays wait on one CPU with many other tasks, each of which has its slice before the next
 * stray's turn: the first stray to come home takes the waiting strays along.
 */
static void rule6_together(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), start = ru_first(&rest, 1);
	int n = 4 * CPU_COUNT(&home), returns = 0, soon = 0;
	cpu_set_t both = ru_or(&home, &start);
	struct ru_trace trace;

	block(&home, 1);
	block(&start, 2 * n);
	/* The balancer may take many at once before they have a home. If so, try again. */
	for (int tries = 0; tries < 8 && returns * 4 < n * 3; tries++) {
		struct ru_gang *g = ru_gang(&(struct ru_gang_opts){
			.n = n, .cg = top, .start = start });
		uint64_t first = 0;

		cs_sleep_ms(SETTLE_MS);
		ru_trace_start();
		ru_allow(g, &both);
		ru_prefer(top, &home);
		cs_sleep_ms(200);
		ru_trace_stop(&trace);
		returns = 0;
		soon = 0;
		for (int i = 0; i < trace.n; i++) {
			const struct ru_event *e = &trace.event[i];

			if (strcmp(e->name, "cosched_return") || !ru_member(g, e->pid))
				continue;
			if (!returns++)
				first = e->ns;
			soon += e->ns - first < 5 * MS;
		}
		cs_diag("%d of %d returned, %d of these in 5 ms; %d left home", returns, n, soon,
			ru_moves_into(&trace, g, &rest));
		REQUIRE(ru_moves_into(&trace, g, &rest) <= 1, "they left their home again");
		ru_end(g);
		cs_write(top, "cosched.cpus_preferred", "");
	}
	REQUIRE(soon * 4 >= n * 3, "strays that wait beside one that returns stay where they are");
}

/* Two clusters, each on the other's full home: swapped. */
static void rule6_swap(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	int c, n = CPU_COUNT(&topo->llc[0]);
	struct ru_gang *g[2];
	struct ru_trace trace;
	long long swapped = 0;
	cpu_set_t others;
	char cg[2][512];

	if (CPU_COUNT(&topo->llc[1]) != n)
		cs_skip("needs two LLC domains of one size");
	others = ru_minus(&topo->online, &topo->llc[0]);
	others = ru_minus(&others, &topo->llc[1]);
	if (CPU_COUNT(&others))
		block(&others, 1);
	for (c = 0; c < 2; c++) {
		cs_mkdir(cg[c], top, c ? "b" : "a");
		g[c] = ru_gang(&(struct ru_gang_opts){
			.n = n, .cg = cg[c], .start = topo->llc[!c], .one_each = true,
			.watch = topo->llc[c] });
	}
	cs_sleep_ms(SETTLE_MS);
	for (c = 0; c < 2; c++)
		ru_allow(g[c], &topo->online);
	ru_trace_start();
	for (c = 0; c < 2; c++)
		ru_prefer(cg[c], &topo->llc[c]);
	cs_sleep_ms(200);
	ru_trace_stop(&trace);
	for (c = 0; c < 2; c++) {
		struct ru_mark mark;

		swapped += cs_stat(cg[c], "strays_swapped");
		ru_mark(g[c], &mark);
		cs_sleep_ms(100);
		cs_diag("cluster %d: %.1f%% of its time at home", c,
			ru_share(g[c], &mark, &topo->llc[c]));
		REQUIRE(ru_share(g[c], &mark, &topo->llc[c]) >= 97, "strays were not swapped");
	}
	cs_diag("strays_swapped %lld, cosched_swap %d", swapped,
		ru_count(&trace, NULL, "cosched_swap", NULL));
	REQUIRE(swapped >= n, "strays_swapped counts %lld of at least %d", swapped, n);
	REQUIRE(ru_count(&trace, NULL, "cosched_swap", NULL) >= n / 2, "swaps were not traced");
}

/*
 * A stray that does not wait does not change places with a task of no cluster in order to wait at
 * home: that task may sleep soon, and leave an idle CPU behind and a longer queue at home.
 */
static void rule6_no_swap_to_wait(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t shared = ru_first(&topo->llc[0], 1), rest = ru_minus(&topo->llc[0], &shared);
	cpu_set_t place = ru_first(&topo->llc[1], 1), either = ru_or(&shared, &place), others;
	struct ru_gang *stray, *stranger;
	int i, swaps = 0;

	others = ru_minus(&topo->online, &topo->llc[0]);
	others = ru_minus(&others, &place);
	if (CPU_COUNT(&others))
		block(&others, 1);
	/* Each home CPU has a thread of the cluster, and one also has a thread of no cluster. */
	if (CPU_COUNT(&rest))
		ru_gang(&(struct ru_gang_opts){
			.n = CPU_COUNT(&rest), .cg = top, .start = rest, .one_each = true });
	ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = shared, .one_each = true });
	stranger = block(&shared, 1);
	stray = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = top, .start = place, .one_each = true });
	ru_prefer(top, &topo->llc[0]);
	cs_sleep_ms(SETTLE_MS);
	for (i = 0; i < 5; i++) {
		struct ru_trace trace;

		ru_allow(stranger, &shared);
		ru_allow(stray, &place);
		cs_sleep_ms(50);
		ru_trace_start();
		ru_allow(stranger, &either);
		ru_allow(stray, &topo->online);
		cs_sleep_ms(100);
		ru_trace_stop(&trace);
		swaps += ru_count(&trace, NULL, "cosched_swap", NULL) > 0;
	}
	/* It may swap now and then, when a kernel thread makes it wait as well. */
	REQUIRE(swaps <= 2, "a stray that did not wait changed places %d times of %d to wait at home",
		swaps, i);
}

/* Rule 7: work conserving */

static void rule7_no_cpu_idle_while_threads_wait(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0];
	struct ru_gang *g;
	uint64_t t0;
	double idle;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 2 * topo->nr_cpus, .cg = top, .log = true, .processes = true });
	t0 = g->created;
	cs_sleep_ms(650);
	idle = ru_idle(&g, 1, &topo->online, t0 + 100 * MS, t0 + 600 * MS);
	cs_diag("%d threads: %.2f%% of the CPU time idle after 100 ms", g->n, idle);
	REQUIRE(idle <= 0.5, "CPUs are idle while threads of the cluster wait");
}

/*
 * A home has two LLC domains, and its threads wake up after all have slept: one on each CPU, three
 * on the first CPU. The thread of the last CPU soon sleeps again. The balancer compares domains and
 * sees no load in a few milliseconds, so a thread that waits in the other domain is no imbalance to
 * it; and for the tick the last CPU is not idle for long enough. This CPU therefore takes a waiting
 * thread when it runs out of work.
 */
static void idle_cpu_of_wide_home(const char *top, unsigned int busy_us)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = ru_or(&topo->llc[0], &topo->llc[1]);
	cpu_set_t others = ru_minus(&topo->online, &home);
	cpu_set_t first = ru_first(&topo->llc[0], 1), last = ru_first(&topo->llc[1], 1);
	cpu_set_t rest = ru_minus(&home, &first);
	struct ru_gang *crowd, *crew, *g[2];
	const unsigned int for_good = 3600 * 1000000u;
	const int rounds = 10, known = 15;
	const struct ru_worker *w;
	double idle = 0;
	int i;

	rest = ru_minus(&rest, &last);
	if (CPU_COUNT(&others))
		block(&others, 1);
	ru_prefer(top, &home);
	g[0] = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = top, .start = last, .busy_us = busy_us, .sleep_us = for_good,
		.log = true });
	crowd = ru_gang(&(struct ru_gang_opts){
		.n = 3, .cg = top, .start = first, .busy_us = 20000, .sleep_us = for_good,
		.log = true });
	g[1] = crowd;
	crew = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&rest), .cg = top, .start = rest, .one_each = true,
		.busy_us = 20000, .sleep_us = for_good });
	w = &g[0]->w[0];
	/* Until the kernel knows how long it runs. */
	for (i = 0; i < known; i++) {
		ru_wake(g[0]);
		cs_sleep_ms(5 + 2 * busy_us / 1000);
	}
	for (i = 0; i < rounds; i++) {
		ru_allow(crowd, &first);
		/* Until all sleep, and their load has decayed. */
		cs_sleep_ms(SETTLE_MS);
		ru_wake(crowd);
		ru_wake(crew);
		cs_sleep_ms(1);
		ru_allow(crowd, &home);
		ru_wake(g[0]);
		cs_sleep_ms(11);
		REQUIRE(w->cycles == known + i + 1u && ru_now() > w->beat + 2 * MS,
			"did not sleep again");
		idle += ru_idle(g, 2, &last, w->beat, w->beat + 2 * MS) / rounds;
	}
	cs_diag("%.1f%% idle", idle);
	/* 0 or 100 in each round; without cosched_newidle() 100 on demo and cfs-talk. */
	REQUIRE(idle <= 50, "a CPU of home is idle while a thread waits at another one of it");
}

static void rule7_idle_cpu_of_wide_home(const char *top)
{
	idle_cpu_of_wide_home(top, 4000);
}

/* Also if the CPU ran a thread briefly, but for longer than it takes to get another. */
static void rule7_idle_cpu_after_brief_run(const char *top)
{
	idle_cpu_of_wide_home(top, 100);
}

/*
 * Two threads that never sleep for each home CPU, and CPUs idle outside: without waiting
 * for the balancer, half of them leave within a few looks, 4 ms apart, and stay outside.
 * For the effect of weights see test_cosched_reach.c, work_packed on 44 CPUs.
 */
static void rule7_crowded_task_leaves(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0];
	int n = 2 * CPU_COUNT(&home), traced = 0, i;
	long long pushed, before = 0;
	struct ru_trace trace;
	struct ru_mark mark;
	struct ru_gang *g;
	double used;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){ .n = n, .cg = top, .start = home });
	/* The balancer may be first, on a small machine with all of them. */
	for (i = 0, pushed = 0; i < 5 && !pushed; i++) {
		ru_allow(g, &home);
		cs_sleep_ms(SETTLE_MS);
		pushed = cs_stat(top, "tasks_pushed");
		REQUIRE(!pushed, "tasks were pushed to CPUs that they may not use");
		ru_trace_start();
		ru_allow(g, &topo->online);
		cs_sleep_ms(50);
		before = cs_stat(top, "tasks_pushed");
		ru_trace_stop(&trace);
		pushed = cs_stat(top, "tasks_pushed");
		traced = ru_count(&trace, g, "cosched_push", NULL);
	}
	ru_mark(g, &mark);
	cs_sleep_ms(200);
	used = percent(ru_ran(g, &mark, &topo->online), n * (double)(ru_now() - mark.at));
	cs_diag("%d threads used %.1f%% of %d CPUs; tasks_pushed %lld", n, used, n, pushed);
	REQUIRE(used >= 97, "threads wait at home while CPUs are idle");
	REQUIRE(pushed >= 1, "tasks_pushed did not count");
	REQUIRE(traced >= before && traced <= pushed,
		"%d cosched_push events, tasks_pushed counts %lld", traced, pushed);
	REQUIRE(cs_stat(top, "tasks_pushed") - pushed <= 2, "tasks are pushed for ever");
}

/*
 * Two threads for each CPU of one LLC domain, and a home that has another one, too, which idles.
 * Half of them go there within a few looks.
 */
static void rule7_crowded_task_crosses_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = ru_or(&topo->llc[0], &topo->llc[1]);
	int n = 2 * CPU_COUNT(&topo->llc[0]), traced = 0, i;
	struct ru_trace trace;
	struct ru_mark mark;
	struct ru_gang *g;
	double used;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){ .n = n, .cg = top, .start = topo->llc[0] });
	/* The balancer may be first. */
	for (i = 0; i < 5 && !traced; i++) {
		ru_allow(g, &topo->llc[0]);
		cs_sleep_ms(SETTLE_MS);
		ru_trace_start();
		ru_allow(g, &home);
		cs_sleep_ms(50);
		ru_trace_stop(&trace);
		traced = ru_count_to(&trace, g, "cosched_push", NULL, &topo->llc[1]);
	}
	ru_mark(g, &mark);
	cs_sleep_ms(200);
	used = percent(ru_ran(g, &mark, &home), n * (double)(ru_now() - mark.at));
	cs_diag("%d threads used %.1f%% of the %d CPUs of home; %d went to its other domain", n,
		used, CPU_COUNT(&home), traced);
	REQUIRE(traced >= 1, "threads wait in one domain of home while the other one idles");
	REQUIRE(used >= 90, "threads wait at home while CPUs of home are idle");
	REQUIRE(!cs_stat(top, "tasks_pushed"), "moves within home count as tasks_pushed");
}

/*
 * Home is crowded, and all CPUs outside even more, until the only task of one CPU outside sleeps.
 * Returns after how many ms a task of the cluster takes that CPU. INFINITY: not within @max_ms;
 * NAN: the balancer, which does not look at weights, was first.
 */
static double unused_taken_ms(const char *top, int max_ms)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], unused = ru_one(ru_nth(&topo->llc[1], 0));
	cpu_set_t others = outside_of(&home);
	struct ru_gang *full, *last, *g;
	double ms = INFINITY;
	struct ru_trace trace;
	int i;

	others = ru_minus(&others, &unused);
	full = block(&others, 6);
	last = block(&unused, 1);
	g = ru_gang(&(struct ru_gang_opts){ .n = 2 * CPU_COUNT(&home), .cg = top, .start = home });
	ru_allow(g, &topo->online);
	keep_off(&unused);
	ru_trace_start();
	cs_sleep_ms(SETTLE_MS);
	last->w[0].stop = RU_SLEEP;
	until_asleep(last);
	cs_sleep_ms(max_ms);
	ru_trace_stop(&trace);
	for (i = 0; i < trace.n && ms == INFINITY; i++) {
		const struct ru_event *e = &trace.event[i];

		if (!CPU_ISSET(e->dst, &unused) || !ru_member(g, e->pid))
			continue;
		if (!strcmp(e->name, "cosched_push"))
			ms = ((double)e->ns - last->w[0].beat) / MS;
		else if (!strcmp(e->name, "cosched_pull"))
			ms = NAN;
	}
	free(trace.event);
	ru_end(g);
	ru_end(last);
	ru_end(full);
	REQUIRE(!sched_setaffinity(0, sizeof(topo->online), &topo->online),
		"sched_setaffinity: %s", strerror(errno));
	return ms;
}

static void unused_taken(const char *top, const char *weights, int from_ms, int to_ms)
{
	double ms;
	int i;

	cs_write(top, CS_WEIGHTS, weights);
	/* A kernel thread that runs there for an instant uses the CPU, too, and may do so often. */
	for (i = 0; i < 4; i++) {
		ms = unused_taken_ms(top, 3 * to_ms / 2);
		cs_diag("weights %s: taken after %.1f ms", weights, ms);
		REQUIRE(!(ms < from_ms), "weights %s: too soon, %d ms are due", weights, from_ms);
		if (ms <= to_ms)
			return;
	}
	cs_fail("weights %s: not within %d ms", weights, to_ms);
}

/*
 * A CPU outside that nobody has used for four looks, 16 ms, is taken however dear its
 * domain is; with weights that have allowed ten times preferred, after ten times as long.
 */
static void rule7_unused_by_weights(const char *top)
{
	ru_prefer(top, &ru_topo()->llc[0]);
	unused_taken(top, CS_WEIGHTS_DEFAULT, 16, 48);
	unused_taken(top, "1 10", 160, 300);
}

/*
 * More tasks that run briefly than home has CPUs, and leaving costs nothing: reviews find
 * this out, and the tasks do not wait. They gather again when others need the CPUs outside.
 */
static void rule7_brief_tasks_part(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	int n = 2 * CPU_COUNT(&home), apart, full, i;
	uint64_t since = 0, longest = 0;
	struct ru_trace trace;
	struct ru_mark mark;
	struct ru_gang *g;
	double used;

	if (CPU_COUNT(&rest) < CPU_COUNT(&home))
		cs_skip("needs as many CPUs outside of home as in it");
	ru_prefer(top, &home);
	ru_trace_start();
	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = home, .busy_us = 180, .sleep_us = 10 });
	ru_allow(g, &topo->online);
	/* The first four reviews take 28 ms, then the cluster is apart for 250. */
	cs_sleep_ms(100);
	ru_mark(g, &mark);
	cs_sleep_ms(50);
	ru_trace_stop(&trace);
	apart = ru_count(&trace, NULL, "cosched_review", "apart");
	used = ru_share(g, &mark, &rest);
	cs_diag("%d threads: apart %d times, %.1f%% of the CPU time outside", n, apart, used);
	REQUIRE(apart == 1, "tasks that gain by it did not part, or not for long");
	REQUIRE(used >= 35, "they wait at home while CPUs are idle");

	/* The second time it is for 500 ms, and the third for a second, unless others disturb. */
	ru_trace_start();
	cs_sleep_ms(1500);
	ru_trace_stop(&trace);
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		if (!ru_is(e, "cosched_review", "apart"))
			continue;
		if (since && e->ns - since > longest)
			longest = e->ns - since;
		since = e->ns;
	}
	cs_diag("from one such review to another at most %.0f ms", longest / 1e6);
	REQUIRE(longest >= 500 * MS, "they find out anew as often as at first");

	ru_trace_start();
	block(&rest, 2);
	cs_sleep_ms(100);
	ru_trace_stop(&trace);
	full = ru_count(&trace, NULL, "cosched_review", "full");
	cs_sleep_ms(200);
	ru_trace_start();
	cs_sleep_ms(500);
	ru_trace_stop(&trace);
	apart = ru_count(&trace, NULL, "cosched_review", "apart");
	cs_diag("beside others: ended %d times in 100 ms, then apart %d times", full, apart);
	REQUIRE(full >= 1, "they stay apart where others need the CPUs");
	REQUIRE(!apart, "they part where others need the CPUs");
}

/* Runnable tasks of @cg for each CPU of @home, as percent of those for each other CPU. */
static double lean(const char *cg, const cpu_set_t *home)
{
	static struct cs_load load;
	double in = 0, out = 0;
	int i;

	cs_load(cg, &load);
	for (i = 0; i < load.nr_cpus; i++) {
		if (CPU_ISSET(load.cpu[i].cpu, home))
			in += load.cpu[i].runnable;
		else
			out += load.cpu[i].runnable;
	}
	out /= ru_topo()->nr_cpus - CPU_COUNT(home);
	return 100 * in / CPU_COUNT(home) / out;
}

/* More tasks than all CPUs can run, and no others: all CPUs are home, while that lasts. */
static void rule3_overrun(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	/* With eight tasks a mean of ten looks is 102 to 123 %, a mean of a hundred 100 to 107. */
	int i, overrun, n = 2 * topo->nr_cpus, looks = topo->nr_cpus < 8 ? 100 : 50;
	struct ru_trace trace;
	double leans = 0;

	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = topo->online, .busy_us = 700, .sleep_us = 70 });
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	for (i = 0; i < looks; i++) {
		cs_sleep_ms(20);
		leans += lean(top, &home) / looks;
	}
	ru_trace_stop(&trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	cs_diag("%d tasks: overrun %d times in %d ms; home has %.0f%% of what others have",
		n, overrun, looks * 20, leans);
	REQUIRE(overrun >= looks, "the cluster does not know that it overruns the machine");
	REQUIRE(leans < 115, "tasks wait at home");

	cs_write(top, CS_WEIGHTS, "1 100");
	cs_sleep_ms(50);
	ru_trace_start();
	cs_sleep_ms(50);
	ru_trace_stop(&trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	REQUIRE(!overrun, "weights do not hold it");
	cs_write(top, CS_WEIGHTS, "");

	block(&rest, 1);
	cs_sleep_ms(100);
	ru_trace_start();
	cs_sleep_ms(100);
	ru_trace_stop(&trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	cs_diag("beside others: overrun %d times", overrun);
	REQUIRE(!overrun, "others do not count");
}

/* Offline CPUs are no room: a cluster that has more to do than the CPUs that are left overruns. */
static void rule3_overrun_offline(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home), left = ru_first(&rest, 1);
	/* An eighth more than these can do, but not than all could; see cosched_judge_overrun(). */
	int cpu, overrun, n = 3 * (CPU_COUNT(&home) + 1) / 2;
	struct ru_trace trace;

	if (8 * n > 9 * topo->nr_cpus)
		cs_skip("needs more CPUs outside of home");
	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &rest) && !CPU_ISSET(cpu, &left))
			cs_set_online(cpu, false);
	}
	left = ru_or(&home, &left);
	ru_prefer(top, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = left, .busy_us = 700, .sleep_us = 10 });
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	cs_sleep_ms(500);
	ru_trace_stop(&trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	cs_diag("%d tasks on %d CPUs: overrun %d times in 500 ms", n, CPU_COUNT(&left), overrun);
	REQUIRE(overrun >= 25, "CPUs that are offline count as room");
}

/* The ends of two pipes: what a task is told by, and what it tells with. */
struct talker {
	int in, out;
};

/* What all talkers see: how long they run, .least and up to .range more, in ns. */
struct talk {
	volatile unsigned int least, range;
	volatile bool mute;
};

static struct talk *talks;

/* 0.3 to 1.5 ms are too long to be brief, 0.05 to 0.15 are. */
static void talk_for(unsigned int least, unsigned int most)
{
	if (!talks)
		talks = mmap(NULL, sizeof(*talks), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(talks != MAP_FAILED, "no memory");
	talks->least = least;
	talks->range = most - least;
	talks->mute = false;
}

/* Runs each time it is told to. Then tells the next, if it has one and talkers are not mute. */
static void talk(void *arg)
{
	const struct talker *t = arg;
	unsigned int seed = t->in;
	struct timespec now;
	uint64_t end;
	char c;

	while (read(t->in, &c, 1) == 1) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		end = now.tv_sec * 1000000000ULL + now.tv_nsec + talks->least +
		      rand_r(&seed) % talks->range;
		while (now.tv_sec * 1000000000ULL + now.tv_nsec < end) {
			ru_unit_of_work();
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		}
		if (t->out >= 0 && !talks->mute && write(t->out, &c, 1) != 1)
			break;
	}
	_exit(1);
}

/*
 * @n pairs of talkers in @top, which wait for a byte written to told[], a descriptor for each pair.
 * Their process IDs are in @who, two for each pair.
 */
static void pairs_of_talkers(const char *top, int n, int *told, pid_t *who)
{
	int i;

	for (i = 0; i < n; i++) {
		struct talker a, b;
		int there[2], back[2];

		REQUIRE(!pipe(there) && !pipe(back), "cannot make pipes");
		a = (struct talker){ there[0], back[1] };
		b = (struct talker){ back[0], there[1] };
		who[2 * i] = cs_spawn(top, talk, &a);
		who[2 * i + 1] = cs_spawn(top, talk, &b);
		close(there[0]);
		close(back[0]);
		close(back[1]);
		told[i] = there[1];
	}
}

static void tell(const int *told, int n)
{
	int i;

	for (i = 0; i < n; i++)
		REQUIRE(write(told[i], "", 1) == 1, "cannot write to a pipe");
}

/*
 * Counts the wakeups that were placed, and the running tasks that were pushed, while the cluster
 * overran: in *@held stretches from one review that found an overrun to the next such review, 7 ms
 * later. On a machine of few CPUs, a kernel thread or two end the overrun for a review.
 */
static int placed_while_overrun(const struct ru_trace *t, int *held)
{
	int i, placed = 0, since = 0;
	uint64_t last = 0;

	*held = 0;
	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		since += !strcmp(e->name, "cosched_place") || !strcmp(e->name, "cosched_push");
		if (!ru_is(e, "cosched_review", "overrun"))
			continue;
		if (last && e->ns - last < 10 * MS) {
			placed += since;
			++*held;
		}
		last = e->ns;
		since = 0;
	}
	return placed;
}

/* Tells somebody something every 2 ms. */
static void tell_often(void *arg)
{
	const int *out = arg;

	do {
		cs_sleep_ms(2);
	} while (write(*out, "", 1) == 1);
	_exit(1);
}

/*
 * The same, but with tasks that wake each other. The kernel places these as without a home, and so
 * it does a task that a timer wakes in order to wake one of them.
 */
static void rule3_overrun_talkers(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	int overrun, placed, held, n = topo->nr_cpus * 3 / 2, told[n], ends[2];
	struct talker last = { .out = -1 };
	struct ru_trace trace;
	pid_t who[2 * n];

	ru_prefer(top, &topo->llc[0]);
	talk_for(300000, 1500000);
	pairs_of_talkers(top, n, told, who);
	REQUIRE(!pipe(ends), "cannot make a pipe");
	last.in = ends[0];
	cs_spawn(top, talk, &last);
	cs_spawn(top, tell_often, &ends[1]);
	tell(told, n);
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	cs_sleep_ms(200);
	ru_trace_stop(&trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	placed = placed_while_overrun(&trace, &held);
	cs_diag("%d pairs: overrun %d times in 200 ms, %d of them on end; %d placed or pushed meanwhile",
		n, overrun, held, placed);
	REQUIRE(overrun >= 10, "the cluster does not know that it overruns the machine");
	REQUIRE(held >= 20, "it forgets that");
	REQUIRE(placed <= held, "tasks are parted from those they talk with");

	cs_write(top, CS_WEIGHTS, "1 100");
	cs_sleep_ms(50);
	ru_trace_start();
	cs_sleep_ms(50);
	ru_trace_stop(&trace);
	placed = ru_count(&trace, NULL, "cosched_place", NULL);
	cs_diag("by weights that hold it, %d wakeups placed in 50 ms", placed);
	REQUIRE(placed >= n, "the cluster places none");
}

/* Spinners in @top, @n on each CPU of the set. */
static struct ru_gang *spin_on(const char *top, const cpu_set_t *set, int n)
{
	return ru_gang(&(struct ru_gang_opts){
		.n = n * CPU_COUNT(set), .cg = top, .start = *set, .one_each = true });
}

/*
 * Has a wakeup moved @pid to a CPU of the set meanwhile? All wakeups come from @waker_cpu. If a CPU
 * pulls it, in balance or as a stray that returns, that CPU itself moves it.
 */
static bool woken_to(const struct ru_trace *t, pid_t pid, const cpu_set_t *set, int waker_cpu,
		     uint64_t from, uint64_t until)
{
	int i;

	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		if (e->pid == pid && e->ns >= from && e->ns <= until && e->on == waker_cpu &&
		    ru_is(e, "sched_migrate_task", NULL) && CPU_ISSET(e->dst, set))
			return true;
	}
	return false;
}

/*
 * How many times of ten does a wakeup from below the first LLC take a task there, 30 ms after the
 * task was let go below another LLC? With @idle, the task was alone on its CPU. Each other CPU of
 * the other domains has @n spinners. Below the first LLC there are nearly three for each CPU, but
 * most of them are on the waker's CPU: by the queues of the two CPUs alone no task would go there.
 * *@gathers: wakeups that were placed there. CPUs of the first domain that have one spinner may
 * pull the task, too: these times do not count.
 */
static int times_gathered(const char *top, int n, bool idle, int *gathers)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t near = topo->llc[0], far = topo->llc[1], rest = outside_of(&near);
	cpu_set_t waker_cpu = ru_first(&near, 1), beside = ru_minus(&near, &waker_cpu);
	struct ru_gang *g[3];
	struct ru_trace trace;
	pid_t waker, wakee;
	int i, there = 0, pulled = 0, told[2];
	uint64_t let_go[10], seen[10];
	bool is_near[10];
	struct talker t;

	if (idle)
		CPU_CLR(ru_nth(&far, 0), &rest);
	ru_prefer(top, &near);
	g[0] = spin_on(top, &waker_cpu, 2 * CPU_COUNT(&near));
	g[1] = spin_on(top, &beside, 1);
	g[2] = spin_on(top, &rest, n);
	talk_for(50000, 150000);
	talks->mute = true;
	REQUIRE(!pipe(told), "cannot make a pipe");
	t.in = told[0];
	t.out = told[1];
	wakee = cs_spawn(top, talk, &t);
	waker = cs_spawn(top, tell_often, &told[1]);
	REQUIRE(!setpriority(PRIO_PROCESS, waker, -20) &&
		!sched_setaffinity(waker, sizeof(waker_cpu), &waker_cpu), "cannot set up the waker");
	cs_sleep_ms(2 * SETTLE_MS);
	ru_trace_start();
	for (i = 0; i < 10; i++) {
		REQUIRE(!sched_setaffinity(wakee, sizeof(far), &far), "cannot send it away");
		cs_sleep_ms(30);
		let_go[i] = ru_now();
		REQUIRE(!sched_setaffinity(wakee, sizeof(far), &topo->online), "cannot let it go");
		cs_sleep_ms(30);
		is_near[i] = CPU_ISSET(cs_task_cpu(wakee), &near);
		seen[i] = ru_now();
	}
	ru_trace_stop(&trace);
	for (i = 0; i < 10; i++) {
		if (!is_near[i])
			continue;
		if (woken_to(&trace, wakee, &near, ru_nth(&near, 0), let_go[i], seen[i]))
			there++;
		else
			pulled++;
	}
	*gathers = ru_count(&trace, NULL, "cosched_place", "gather");
	cs_diag("%d spinners for each%s CPU elsewhere: %d of 10 times near its waker, %d gathered, %d pulled; overrun %d times",
		n, idle ? " other" : "", there, *gathers, pulled,
		ru_count(&trace, NULL, "cosched_review", "overrun"));
	cs_kill(wakee);
	cs_kill(waker);
	close(told[0]);
	close(told[1]);
	for (i = 0; i < 3; i++)
		ru_end(g[i]);
	return there;
}

/*
 * A task that is woken from afar goes where its waker is, unless there is more to do there, or it
 * would have to wait there while its own CPU is idle.
 */
static void rule3_overrun_gather(const char *top)
{
	int there, gathers;

	there = times_gathered(top, 3, false, &gathers);
	REQUIRE(there >= 9 && gathers >= 7, "the cluster leaves its tasks parted");
	there = times_gathered(top, 2, false, &gathers);
	REQUIRE(there <= 1 && gathers <= 1, "it gathers them where there is more to do");
	there = times_gathered(top, 6, true, &gathers);
	REQUIRE(there <= 1 && gathers <= 1, "who would run at once has to wait near its waker");
}

struct bursts {
	const int *told;
	int n;
	long every_ms;
};

/* Wakes all of them, over and over. */
static void tell_at_once(void *arg)
{
	const struct bursts *b = arg;

	for (;;) {
		cs_sleep_ms(b->every_ms);
		tell(b->told, b->n);
	}
}

/*
 * Makes @n tasks in @top, who[0] to who[n - 1], and who[n], which wakes all of these together every
 * @every_ms by told[].
 */
static void wake_each(const char *top, int n, long every_ms, int *told, pid_t *who)
{
	struct bursts bursts = { told, n, every_ms };
	int i, ends[2];

	for (i = 0; i < n; i++) {
		struct talker t = { .out = -1 };

		REQUIRE(!pipe(ends), "cannot make a pipe");
		t.in = ends[0];
		told[i] = ends[1];
		who[i] = cs_spawn(top, talk, &t);
		close(ends[0]);
	}
	who[n] = cs_spawn(top, tell_at_once, &bursts);
	REQUIRE(!setpriority(PRIO_PROCESS, who[n], -20), "cannot set up the waker");
}

static void end_each(int n, const int *told, const pid_t *who)
{
	int i;

	for (i = 0; i <= n; i++)
		cs_kill(who[i]);
	for (i = 0; i < n; i++)
		close(told[i]);
}

/*
 * A task wakes six tasks for each CPU together, over and over, and the whole machine is idle just
 * before. Traces @times such wakeups, and returns how many tasks it wakes each time.
 */
static int wake_at_once(const char *top, long every_ms, int times, struct ru_trace *trace)
{
	int n = 6 * ru_topo()->nr_cpus, told[n];
	pid_t who[n + 1];

	wake_each(top, n, every_ms, told, who);
	cs_sleep_ms(2 * SETTLE_MS);
	ru_trace_start();
	ru_trace_also("sched/sched_switch");
	cs_sleep_ms(times * every_ms);
	ru_trace_stop(trace);
	end_each(n, told, who);
	return n;
}

/* Does a task gather by this event, and was a CPU in its own domain idle then? */
static bool gathers(const struct ru_event *e)
{
	return ru_is(e, "cosched_place", "gather");
}

static bool idle_beside(const struct ru_trace *trace, int event)
{
	const struct ru_topo *topo = ru_topo();
	int cpu, llc = topo->llc_of[trace->event[event].src];

	for (cpu = 0; cpu < topo->nr_cpus; cpu++)
		if (topo->llc_of[cpu] == llc && ru_idle_about(trace, event, cpu, 50000, 100000))
			return true;
	return false;
}

/*
 * Some tasks gather once all CPUs are busy, but none while its own domain has an idle CPU. Not many
 * gather, since each wakeup sees where the tasks before it went. With loads that are up to a tick
 * old, all would see the same, and a fifth to a third of them gather.
 */
static void rule3_overrun_herd(const char *top)
{
	int i, n, times = 100, overrun, gathered = 0, left_idle = 0;
	struct ru_trace trace;

	ru_prefer(top, &ru_topo()->llc[0]);
	talk_for(500000, 900000);
	n = wake_at_once(top, 7, times, &trace);
	overrun = ru_count(&trace, NULL, "cosched_review", "overrun");
	for (i = 0; i < trace.n; i++) {
		if (!gathers(&trace.event[i]))
			continue;
		gathered++;
		left_idle += idle_beside(&trace, i);
	}
	cs_diag("%d tasks woken %d times: overrun %d times, %d gathered, %d of them from beside an idle CPU",
		n, times, overrun, gathered, left_idle);
	REQUIRE(overrun >= times / 2, "the cluster does not know that it overruns the machine");
	REQUIRE(!left_idle && 8 * gathered <= times * n, "they herd to their waker's domain");
}

/*
 * A task does not gather either if its cluster is known to come in bursts: it would gain nothing.
 * Whether that is known depends on how the tasks happen to start.
 */
static void rule3_overrun_bursts(const char *top)
{
	int i, n, overrun, known = 0, gathered = 0, tries;
	struct ru_trace trace;

	if (ru_topo()->nr_cpus > 8)
		cs_skip("more CPUs than those whom one wakes at once overrun");
	ru_prefer(top, &ru_topo()->llc[0]);
	talk_for(150000, 250000);
	for (tries = 0; tries < 32 && known < 10; tries++) {
		uint64_t until = 0;

		n = wake_at_once(top, 4, 50, &trace);
		overrun = 0;
		for (i = 0; i < trace.n; i++) {
			const struct ru_event *e = &trace.event[i];

			gathered += gathers(e) && e->ns < until;
			if (!ru_is(e, "cosched_review", "overrun"))
				continue;
			overrun++;
			known += e->bursts;
			/* A millisecond less than the time to the next review. */
			until = e->bursts ? e->ns + 6 * MS : 0;
		}
		cs_diag("%d tasks woken 50 times: overrun %d times, %d so far known to come in bursts; %d gathered then",
			n, overrun, known, gathered);
	}
	REQUIRE(known >= 10, "the cluster does not know that its tasks come in bursts");
	REQUIRE(!gathered, "they gather, and gain nothing");
}

/*
 * Returns how many ms after the talkers began the whole machine was home; 60: it was not. @brief:
 * the talkers have talked before, and are known to run briefly.
 */
static double ms_until_overrun(const char *top, int n, bool brief)
{
	struct ru_trace trace;
	pid_t who[2 * n];
	double ms = 60;
	uint64_t since;
	int i, told[n];

	talk_for(brief ? 50000 : 300000, brief ? 150000 : 1500000);
	pairs_of_talkers(top, n, told, who);
	if (brief) {
		tell(told, n);
		cs_sleep_ms(30);
		talks->mute = true;
		cs_sleep_ms(SETTLE_MS);
		talks->mute = false;
	}
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	since = ru_now();
	tell(told, n);
	cs_sleep_ms(60);
	ru_trace_stop(&trace);
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		if (ru_is(e, "cosched_review", "overrun")) {
			ms = (double)(e->ns - since) / MS;
			break;
		}
	}
	for (i = 0; i < 2 * n; i++)
		cs_kill(who[i]);
	for (i = 0; i < n; i++)
		close(told[i]);
	return ms;
}

/*
 * A cluster that has the machine to itself need not wait for averages: more tasks are runnable than
 * all CPUs can run. If there are few tasks, too few are at home for that once some have left. A
 * kernel thread that happens to be runnable at a review makes the cluster wait for the next review.
 */
static void rule3_overrun_at_once(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	/* Their average is 9/8 for each CPU after 28, 64 and 28 ms. */
	const int pairs[] = { topo->nr_cpus * 5 / 2, topo->nr_cpus * 3 / 2, topo->nr_cpus * 5 / 2 };
	int i, j;

	ru_prefer(top, &topo->llc[0]);
	for (i = 0; i < 3; i++) {
		bool brief = i == 2;
		int soon = 0, rounds = brief ? 3 : 5;

		for (j = 0; j < rounds; j++) {
			double ms = ms_until_overrun(top, pairs[i], brief);

			cs_diag("%d pairs%s: all of the machine is home %.1f ms after they began",
				pairs[i], brief ? ", brief" : "", ms);
			soon += ms < (brief ? 15 : 25);
		}
		REQUIRE(soon > rounds / 2, "%d pairs: the cluster waits for its average", pairs[i]);
	}
}

/* Is @pid one of the tasks of wake_each(), or the waker, which comes after them? */
static bool among(const pid_t *who, int n, pid_t pid)
{
	while (n >= 0 && who[n] != pid)
		n--;
	return n >= 0;
}

/*
 * Returns how many ms after a task began to wake @n others in @top the whole machine was home; 60:
 * it was not. Below 0: another task, maybe of the kernel, woke up then, and may have waited for a
 * CPU.
 */
static double ms_until_queue_seen(const char *top, int n)
{
	uint64_t since = 0, known = 0, last = 0;
	bool others = false;
	struct ru_trace trace;
	pid_t who[n + 1];
	int i, told[n];

	wake_each(top, n, 4 * SETTLE_MS, told, who);
	ru_trace_start();
	ru_trace_also("sched/sched_waking");
	cs_sleep_ms(6 * SETTLE_MS);
	ru_trace_stop(&trace);
	end_each(n, told, who);
	for (i = 0; i < trace.n && !known; i++) {
		const struct ru_event *e = &trace.event[i];

		if (!since && e->pid == who[n] && ru_is(e, "cosched_place", NULL))
			since = e->ns;
		else if (since && ru_is(e, "cosched_review", "overrun"))
			known = e->ns;
		else if (since && e->ns < since + 4 * MS && ru_is(e, "sched_waking", NULL) &&
			 e->pid != who[n] && among(who, n, e->pid))
			last = e->ns;
	}
	for (i = 0; i < trace.n; i++) {
		const struct ru_event *e = &trace.event[i];

		/* A task that began to wait before may still wait. */
		others |= ru_is(e, "sched_waking", NULL) && e->ns + 2 * MS > since &&
			  e->ns < (known ?: last) && !among(who, n, e->pid);
	}
	free(trace.event);
	if (others)
		return -1;
	return known ? (double)(known - since) / MS : 60;
}

/*
 * Sets every how many seconds a kernel thread on each CPU wakes up to fold counters. Returns the
 * setting from before.
 */
static int fold_every(int seconds)
{
	char text[16];
	int before;

	cs_read("/proc/sys/vm", "stat_interval", text, sizeof(text));
	before = atoi(text);
	snprintf(text, sizeof(text), "%d", seconds);
	cs_write("/proc/sys/vm", "stat_interval", text);
	return before;
}

/*
 * The cluster need not wait for the next review, 7 ms later, either, if one of its tasks wakes so
 * many others that a single queue at home gets longer than the machine has CPUs.
 */
static void rule3_overrun_queue(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	/* For each home CPU twice as many as the machine has CPUs: some soon run elsewhere. */
	int n = 2 * topo->nr_cpus * CPU_COUNT(&topo->llc[0]), i, alone = 0, soon = 0;
	int fold = fold_every(3600);

	/* They fold for the last time. */
	cs_sleep_ms(2000 * fold);
	ru_prefer(top, &topo->llc[0]);
	talk_for(300000, 1500000);
	for (i = 0; i < 20 && alone < 5; i++) {
		double ms = ms_until_queue_seen(top, n);

		if (ms < 0) {
			cs_diag("%d tasks, and others", n);
			continue;
		}
		cs_diag("%d tasks: all of the machine is home %.1f ms after one began to wake them",
			n, ms);
		alone++;
		soon += ms < 4;
	}
	fold_every(fold);
	REQUIRE(alone == 5, "in %d of %d rounds none of others woke up", alone, i);
	REQUIRE(soon >= 4, "the cluster waits for a review");
}

/*
 * Returns how many percent of its CPU time a cluster with three tasks for each CPU of home spends
 * outside. *@dear: the mean of the reviews' figure.
 */
static double full_machine_share(const char *top, unsigned int far_times, int *dear)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	int n = 3 * CPU_COUNT(&home);
	struct ru_trace trace;
	struct ru_mark mark;
	struct ru_gang *g;
	double out;
	int64_t sum = 0;
	int i, nr = 0;

	g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = top, .start = home, .busy_us = 800, .sleep_us = 80,
		.near = home, .far_times = far_times });
	ru_allow(g, &topo->online);
	cs_sleep_ms(SETTLE_MS);
	ru_trace_start();
	ru_mark(g, &mark);
	/* What leaving costs is forgotten and seen again 20 times. */
	cs_sleep_ms(2000);
	out = ru_share(g, &mark, &rest);
	ru_trace_stop(&trace);
	for (i = 0; i < trace.n; i++) {
		if (trace.event[i].dear < 0)
			continue;
		sum += trace.event[i].dear;
		nr++;
	}
	free(trace.event);
	*dear = nr ? sum / nr : 0;
	cs_diag("%d tasks, outside everything takes %u times as long: %.1f%% of their time there, dear %d, mean of %d",
		n, far_times, out, *dear, nr);
	ru_end(g);
	return out;
}

/*
 * What is left of the @dear that a review found which was traced @ns ago. Not all reviews are
 * traced. They are more than 6 ms apart, and each since then may have forgotten a sixteenth.
 */
static int dear_since(int dear, uint64_t ns)
{
	for (; ns >= 6 * MS; ns -= 6 * MS)
		dear -= (dear - 1024 + 15) / 16;
	return dear;
}

static void show_events(const struct ru_trace *trace, uint64_t from, uint64_t to)
{
	int i;

	for (i = 0; i < trace->n; i++) {
		const struct ru_event *e = &trace->event[i];

		if (e->ns >= from && e->ns < to)
			cs_diag("%.3f ms: %s %s, pid %d, CPU %d to %d, dear %d",
				(e->ns - from) / 1e6, e->name, e->reason, e->pid, e->src, e->dst,
				e->dear);
	}
}

/*
 * The same cluster on a full machine, until all other tasks but those on @stay end at once; 20
 * rounds of this. Returns how many tasks idle CPUs pull from home within 14 ms, while the weights
 * let tasks leave in no other way. *@dear: how many of these were pulled while leaving is still
 * dear, by a review at most 16 ms before. *@rounds: in how many rounds the last review before the
 * end found leaving to be dear. *@used: in how many rounds a task was pulled, or was outside
 * already, from where it goes to the CPUs of the ended tasks.
 */
static int pulled_soon(const char *top, unsigned int far_times, const cpu_set_t *stay,
		       int *dear, int *rounds, int *used)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	struct ru_gang *g, *others;
	int round, k, pulled = 0;

	CPU_XOR(&rest, &rest, stay);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 3 * CPU_COUNT(&home), .cg = top, .start = home, .busy_us = 800,
		.sleep_us = 80, .near = home, .far_times = far_times });
	ru_allow(g, &topo->online);
	*dear = 0;
	*rounds = 0;
	*used = 0;
	for (round = 0; round < 20; round++) {
		const struct ru_event *review = NULL;
		struct ru_trace trace;
		bool found = false, out = false;
		int before = pulled;
		uint64_t freed, end;

		cs_write(top, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);
		others = block(&rest, 1);
		cs_sleep_ms(2 * SETTLE_MS);
		ru_trace_start();
		cs_sleep_ms(30);
		cs_write(top, CS_WEIGHTS, "1 10000");
		for (k = 0; k < g->n; k++)
			out |= !CPU_ISSET(cs_task_cpu(g->w[k].tid), &home);
		freed = ru_now();
		ru_end(others);
		end = ru_now();
		cs_sleep_ms(14);
		ru_trace_stop(&trace);
		for (k = 0; k < trace.n; k++) {
			const struct ru_event *e = &trace.event[k];

			if (e->dear >= 0) {
				review = e;
				if (e->ns < end)
					found = e->dear > 1408;
			}
			if (e->ns < end || !ru_is(e, "cosched_pull", "idle"))
				continue;
			pulled++;
			/* The first ends up to 4 ms before the last; a CPU idle for 16 may pull. */
			if (review && e->ns - review->ns < 16 * MS && e->ns - freed < 15 * MS &&
			    dear_since(review->dear, e->ns - review->ns) > 1408) {
				(*dear)++;
				cs_diag("round %d: %d pulled from CPU %d by CPU %d after %.1f ms, dear %d %.1f ms before",
					round, e->pid, e->src, e->dst, (e->ns - freed) / 1e6,
					review->dear, (e->ns - review->ns) / 1e6);
				show_events(&trace, freed - 9 * MS, e->ns + MS);
			}
		}
		*rounds += found;
		*used += out || pulled > before;
		free(trace.event);
	}
	ru_end(g);
	cs_diag("outside everything takes %u times as long: %d pulled within 14 ms, %d while leaving is dear, as %d of 20 times; outside is used %d times",
		far_times, pulled, *dear, *rounds, *used);
	return pulled;
}

/*
 * Rule 5: a task that runs much longer outside is not pulled by CPUs that others used until a
 * moment ago.
 */
static void rule5_dear(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t stay = outside_of(&topo->llc[0]), some;
	int i, dear, rounds, used, pulled, ends = 0;
	char cg[512];

	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &topo->llc[0]);
	/* A CPU of each other domain stays busy: an empty domain is cheaper by any weights. */
	for (i = 1; i < topo->nr_llcs; i++) {
		some = ru_first(&topo->llc[i], CPU_COUNT(&topo->llc[i]) - 1);
		CPU_XOR(&stay, &stay, &some);
		ends += CPU_COUNT(&some);
	}
	block(&stay, 1);
	pulled = pulled_soon(cg, 1, &stay, &dear, &rounds, &used);
	/* One task in each round, if there are CPUs for more. */
	REQUIRE(ends > 1 ? pulled >= 20 : used >= 18, "durably idle CPUs do not pull");
	pulled_soon(cg, 3, &stay, &dear, &rounds, &used);
	REQUIRE(rounds >= 10, "leaving is found to be dear %d of 20 times", rounds);
	REQUIRE(!dear, "%d are pulled from home though leaving is dear", dear);
}

/*
 * If all CPUs are busy, the cost of leaving is measured, and counts against leaving: tasks whose
 * work takes as long elsewhere share the other CPUs, tasks whose work takes three times as long
 * hardly leave. 1024 stands for "as long".
 */
static void rule4_dear(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = outside_of(&home);
	double cheap, costly;
	int dear;

	ru_prefer(top, &home);
	block(&rest, 1);
	cheap = full_machine_share(top, 1, &dear);
	REQUIRE(dear >= 1024, "no review says how dear leaving is");
	REQUIRE(dear < 1408, "leaving is dear where it costs nothing: %d", dear);
	costly = full_machine_share(top, 3, &dear);
	REQUIRE(dear > 1408, "leaving is not dear where it costs as much: %d", dear);
	REQUIRE(cheap > 10, "where leaving costs nothing they do not leave");
	REQUIRE(costly < cheap / 3, "they leave where it costs much");
}

/* Rule 8: hard limits win */

static void rule8_affinity(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home);
	cpu_set_t part = ru_first(&home, 1), mixed = ru_first(&rest, 1);
	struct ru_gang *out, *in, *spinner;
	struct ru_mark mo, mi, ms;
	cpu_set_t wrong;

	mixed = ru_or(&mixed, &part);
	ru_prefer(top, &home);
	out = ru_gang(&(struct ru_gang_opts){
		.n = 2, .cg = top, .start = rest,
		.busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
	spinner = ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = rest });
	in = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = top, .start = mixed,
		.busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
	cs_sleep_ms(50);
	ru_mark(out, &mo);
	ru_mark(in, &mi);
	ru_mark(spinner, &ms);
	cs_sleep_ms(500);
	wrong = ru_minus(&topo->online, &mixed);
	REQUIRE(ru_ran(out, &mo, &home) == 0, "wakers ran at home though they may not");
	REQUIRE(ru_ran(spinner, &ms, &home) == 0, "a spinner ran at home though it may not");
	REQUIRE(ru_ran(in, &mi, &wrong) == 0, "a waker ran on a CPU that it may not use");
	cs_diag("%.1f%% on the one home CPU that is allowed", ru_share(in, &mi, &part));
	REQUIRE(ru_share(in, &mi, &part) >= 95, "a waker does not use the home CPU that it may");
}

static void rule8_cpuset(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home), part = ru_first(&home, 1);
	cpu_set_t mixed = ru_first(&rest, 1), wrong;
	struct ru_mark mo, mi;
	struct ru_gang *out, *in;
	char cg[512], list[1024];

	cs_need_controller(top, "cpuset");
	ru_prefer(top, &home);
	cs_mkdir(cg, top, "out");
	cs_format_cpus(&rest, list, sizeof(list));
	cs_write(cg, "cpuset.cpus", list);
	out = ru_gang(&(struct ru_gang_opts){
		.n = 2, .cg = cg, .busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
	cs_mkdir(cg, top, "in");
	mixed = ru_or(&mixed, &part);
	cs_format_cpus(&mixed, list, sizeof(list));
	cs_write(cg, "cpuset.cpus", list);
	in = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = cg, .busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
	cs_sleep_ms(50);
	ru_mark(out, &mo);
	ru_mark(in, &mi);
	cs_sleep_ms(500);
	wrong = ru_minus(&topo->online, &mixed);
	REQUIRE(ru_ran(out, &mo, &home) == 0, "ran at home, outside of the cpuset");
	REQUIRE(ru_ran(in, &mi, &wrong) == 0, "ran outside of the cpuset");
	cs_diag("%.1f%% on the one home CPU of the cpuset", ru_share(in, &mi, &part));
	REQUIRE(ru_share(in, &mi, &part) >= 95, "does not use the home CPU of its cpuset");
	cs_format_cpus(&home, list, sizeof(list));
	cs_expect(cg, CS_HOME, list);
}

/* Nothing is sent to a CPU that is isolated from load balancing. */
static void rule8_isolated_cpus(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t isolated = ru_isolated(), home, usable;
	struct ru_mark mark;
	struct ru_gang *g, *spinners;
	int llc;

	llc = topo->llc_of[ru_nth(&isolated, 0)];
	home = topo->llc[llc];
	usable = ru_minus(&home, &isolated);
	ru_prefer(top, &home);
	g = wakers(top, CPU_COUNT(&home), &usable);
	spinners = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .cg = top, .start = usable });
	/* Isolation is not affinity: they may run there, but nothing must send them there. */
	ru_allow(g, &topo->online);
	ru_allow(spinners, &topo->online);
	ru_mark(g, &mark);
	cs_sleep_ms(500);
	REQUIRE(ru_ran(g, &mark, &isolated) == 0, "wakers were sent to an isolated CPU");
	memset(&mark, 0, sizeof(mark));
	REQUIRE(ru_ran(spinners, &mark, &isolated) == 0, "spinners were sent to an isolated CPU");
}

/*
 * An isolated CPU does not serve the home that it is in. With 4 tasks on each other CPU of home
 * and 2 on each outside, outside is cheaper by default; home, half of which is isolated, would be
 * if these CPUs counted.
 */
static void rule8_isolated_in_home(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t isolated = ru_isolated(), home, usable, rest;
	struct ru_gang *g;
	struct seen s;

	home = topo->llc[topo->llc_of[ru_nth(&isolated, 0)]];
	usable = ru_minus(&home, &isolated);
	REQUIRE(2 * CPU_COUNT(&usable) == CPU_COUNT(&home), "needs a home of which half is isolated");
	rest = outside_of(&home);
	rest = ru_minus(&rest, &isolated);
	ru_prefer(top, &home);
	block(&usable, 4);
	block(&rest, 2);
	g = wakers(top, 1, &usable);
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	cs_sleep_ms(50);
	s = watch(g, 500);
	show(&s);
	REQUIRE(placed_to(&s, "overflow", &rest) >= 90, "CPUs that are isolated count as home's");
}

/* A task is not swapped to an isolated CPU to make room for a stray either. */
static void rule8_isolated_no_swap(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t isolated = ru_isolated(), home, both;
	struct ru_gang *stray, *others;
	struct ru_mark mark = {};
	int llc;

	llc = (topo->llc_of[ru_nth(&isolated, 0)] + 1) % topo->nr_llcs;
	home = ru_minus(&topo->llc[llc], &isolated);
	both = ru_or(&home, &isolated);
	ru_prefer(top, &home);
	others = ru_gang(&(struct ru_gang_opts){ .n = CPU_COUNT(&home), .start = home });
	stray = ru_gang(&(struct ru_gang_opts){ .n = 1, .cg = top, .start = isolated });
	ru_allow(others, &both);
	ru_allow(stray, &both);
	cs_sleep_ms(300);
	REQUIRE(ru_ran(others, &mark, &isolated) == 0, "a task was sent to an isolated CPU");
}

/* Tasks at home cannot go before a realtime task of another cluster, as they go before strays. */
static void rule8_realtime_stray(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], first = ru_first(&home, 1);
	struct ru_trace trace;
	char a[512], b[512];
	struct ru_gang *g;
	int round, n;

	cs_mkdir(a, top, "a");
	cs_mkdir(b, top, "b");
	ru_prefer(a, &home);
	ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = b, .start = first, .policy = SCHED_FIFO,
		.busy_us = 10000, .sleep_us = 500 });
	cs_sleep_ms(50);
	/* A cluster only from now on: its task has run for long before. */
	ru_prefer(b, &topo->llc[1]);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 2 * CPU_COUNT(&home), .cg = a, .start = home,
		.busy_us = 100, .sleep_us = 3600 * 1000000u });
	keep_off(&home);
	for (round = 0; round < 80; round++) {
		if (round == 20)
			ru_trace_start();
		ru_wake(g);
		cs_sleep_ms(10);
	}
	ru_trace_stop(&trace);
	n = ru_count_to(&trace, g, "cosched_place", "home_stray", &first);
	cs_diag("%d times placed before a realtime task", n);
	REQUIRE(!n, "a realtime task is taken for one that computes as a stray");
}

/* Only the fair class. */
static void rule8_realtime_untouched(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[1], rest = outside_of(&home), start = ru_first(&rest, 1);
	struct ru_mark mark;
	struct ru_gang *g;
	struct seen s;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = top, .start = start, .policy = SCHED_FIFO,
		.busy_us = WAKER_BUSY_US, .sleep_us = WAKER_SLEEP_US });
	ru_allow(g, &topo->online);
	ru_mark(g, &mark);
	s = watch(g, 300);
	REQUIRE(!s.placed && !ru_count(&s.trace, g, "cosched_return", NULL),
		"%d placements of a real-time thread", s.placed);
	cs_diag("%.1f%% on the CPU where it was", ru_share(g, &mark, &start));
	REQUIRE(ru_share(g, &mark, &start) >= 99, "a real-time thread was moved");
}

static void rule8_bandwidth(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang *g;
	struct ru_mark mark;
	uint64_t ran;
	double used;
	char cg[512];

	cs_need_controller(top, "cpu");
	cs_mkdir(cg, top, "limited");
	if (cs_try_write(cg, "cpu.max", "50000 100000"))
		cs_skip("needs CFS bandwidth control");
	ru_prefer(cg, &topo->llc[0]);
	g = ru_gang(&(struct ru_gang_opts){ .n = topo->nr_cpus, .cg = cg });
	cs_sleep_ms(100);
	ru_mark(g, &mark);
	cs_sleep_ms(1000);
	ran = ru_ran(g, &mark, &topo->online);
	used = percent(ran, ru_now() - mark.at);
	cs_diag("used %.1f%% of a CPU, limit 50%%; %.1f%% of it at home", used,
		ru_share(g, &mark, &topo->llc[0]));
	/* A slice of 5 ms may be overrun on each CPU in each period. */
	REQUIRE(used <= 65, "the cluster used %.1f%% of a CPU, its limit is 50%%", used);
	REQUIRE(used >= 35, "the cluster used only %.1f%% of a CPU, its limit is 50%%", used);
	REQUIRE(cs_key(cg, "cpu.stat", "nr_throttled") > 0, "never throttled");
}

/* A home CPU whose sibling runs a thread with another cookie is not idle for it. */
static void rule8_core_cookies(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t core, first, sibling;
	struct ru_gang *blocker, *g;
	struct seen s;

	if (!topo->smt)
		cs_skip("needs SMT");
	core = topo->siblings[ru_nth(&topo->llc[0], 0)];
	first = ru_first(&core, 1);
	sibling = ru_minus(&core, &first);
	ru_prefer(top, &core);
	blocker = block(&first, 1);
	if (ru_try_cookie(blocker))
		cs_skip("needs core scheduling");
	g = wakers(top, 1, &sibling);
	REQUIRE(!ru_try_cookie(g), "PR_SCHED_CORE: %s", strerror(errno));
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	s = watch(g, 500);
	show(&s);
	cs_diag("%.1f%% placed as home_idle beside another cookie",
		placed_to(&s, "home_idle", &sibling));
	REQUIRE(s.placed > 0, "no wakeup was traced");
	REQUIRE(placed_to(&s, "home_idle", &sibling) <= 5,
		"a sibling that another cookie keeps out counts as idle");
	REQUIRE(placed(&s, "spill") + placed(&s, "stay") >= 90,
		"idle cores outside do not count as idle for a thread with a cookie");

	/* And an idle core is idle for any cookie. */
	ru_end(blocker);
	cs_sleep_ms(SETTLE_MS);
	s = watch(g, 300);
	show(&s);
	REQUIRE(placed(&s, "home_idle") >= 90,
		"an idle home does not count as idle for a thread with a cookie");
}

/* Rule 10: unused is free */

static int cosched_events(const struct ru_trace *t, const struct ru_gang *g)
{
	int i, n = 0;

	for (i = 0; i < t->n; i++)
		n += !strncmp(t->event[i].name, "cosched", 7) &&
		     (!g || ru_member(g, t->event[i].pid));
	return n;
}

static void rule10_unset_does_nothing(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang *g = wakers(top, topo->nr_cpus, &topo->llc[0]);
	struct seen s;
	int i;

	ru_allow(g, &topo->online);
	s = watch(g, 200);
	REQUIRE(!cosched_events(&s.trace, NULL), "cosched events though no preference is set");
	for (i = 0; i < cs_nr_stat_keys; i++)
		REQUIRE(cs_stat(top, cs_stat_keys[i]) == 0, "%s counts without a preference",
			cs_stat_keys[i]);

	/* Set and unset again: as if never set. */
	ru_prefer(top, &topo->llc[1]);
	cs_sleep_ms(50);
	REQUIRE(cs_stat(top, "wakeups_home") > 0, "wakeups_home does not count");
	cs_write(top, CS_PREF, "\n");
	cs_sleep_ms(20);
	s = watch(g, 200);
	REQUIRE(!cosched_events(&s.trace, NULL), "cosched events after the preference was unset");
}

static void rule10_others_unaffected(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang *in, *out;
	char cg[512];
	struct seen s;

	cs_mkdir(cg, top, "cluster");
	ru_prefer(cg, &topo->llc[1]);
	in = wakers(cg, 2, &topo->llc[0]);
	out = wakers(NULL, topo->nr_cpus, &topo->online);
	ru_allow(in, &topo->online);
	ru_allow(out, &topo->online);
	s = watch(in, 200);
	REQUIRE(cosched_events(&s.trace, in) > 0, "no events of the cluster");
	REQUIRE(!cosched_events(&s.trace, out), "%d cosched events of threads in no cluster",
		cosched_events(&s.trace, out));
}

static void early(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--exit-with-cpu"))
		exit_with_cpu();
}

#define TEST(name) { #name, name, 0 }

int main(int argc, char **argv)
{
	static const struct cs_test tests[] = {
		/* First, while no preference was ever set. */
		TEST(rule10_unset_does_nothing),
		TEST(rule1_wakeup_goes_home),
		TEST(rule1_fork_starts_at_home),
		TEST(rule1_exec_goes_home),
		TEST(rule1_neighbours_first),
		TEST(rule1_brief_to_idle_domain),
		TEST(rule1_brief_not_to_busy_domain),
		TEST(rule1_brief_to_idle_core),
		TEST(rule1_idle_again),
		TEST(rule1_idle_core_before_sibling),
		TEST(rule1_sched_idle_is_idle),
		TEST(rule1_sched_idle_one_each),
		TEST(rule2_spill_to_idle),
		TEST(rule2_nearest_first),
		TEST(rule2_not_for_a_moment),
		TEST(rule3_queue_on_least_loaded),
		TEST(rule3_queue_where_warm),
		TEST(rule3_long_queue_where_warm),
		TEST(rule3_woken_by_own),
		TEST(rule3_before_strays),
		TEST(rule3_stray_cpu_enqueues),
		TEST(rule3_hand_on),
		TEST(rule3_hand_on_everywhere),
		TEST(rule3_fetch),
		TEST(rule3_queue_beside_strays),
		TEST(rule3_share_of_strays),
		TEST(rule3_stray_stays),
		TEST(rule4_loaded_home),
		TEST(rule4_equal_load),
		TEST(rule4_queues_of_now),
		TEST(rule4_woken_by_own),
		TEST(rule5_idle_cpu_pulls),
		TEST(rule5_one_at_a_time),
		TEST(rule5_into_home),
		TEST(rule5_dear),
		TEST(rule5_sleepers),
		TEST(rule5_reduced),
		TEST(rule5_failures),
		TEST(rule5_no_pull_to_busy),
		TEST(rule6_stray_returns),
		TEST(rule6_not_for_a_moment),
		TEST(rule6_shorter_queue),
		TEST(rule6_together),
		TEST(rule6_swap),
		TEST(rule6_no_swap_to_wait),
		TEST(rule7_no_cpu_idle_while_threads_wait),
		TEST(rule7_idle_cpu_of_wide_home),
		TEST(rule7_idle_cpu_after_brief_run),
		TEST(rule7_crowded_task_leaves),
		TEST(rule7_crowded_task_crosses_home),
		TEST(rule7_unused_by_weights),
		TEST(rule7_brief_tasks_part),
		TEST(rule3_overrun),
		TEST(rule3_overrun_offline),
		TEST(rule3_overrun_talkers),
		TEST(rule3_overrun_gather),
		TEST(rule3_overrun_herd),
		TEST(rule3_overrun_bursts),
		TEST(rule3_overrun_at_once),
		TEST(rule3_overrun_queue),
		TEST(rule4_dear),
		TEST(rule8_affinity),
		TEST(rule8_cpuset),
		TEST(rule8_isolated_cpus),
		TEST(rule8_isolated_in_home),
		TEST(rule8_isolated_no_swap),
		TEST(rule8_realtime_untouched),
		TEST(rule8_realtime_stray),
		TEST(rule8_bandwidth),
		TEST(rule8_core_cookies),
		TEST(rule10_others_unaffected),
		/* The last one: groups compete from then on. */
		TEST(rule3_before_strays_in_groups),
	};
	static const struct cs_program program = {
		.about = "Tests the rules of placement, 1 to 8 and 10.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.early = early,
	};

	self = "/proc/self/exe";
	return cs_main(argc, argv, &program);
}
