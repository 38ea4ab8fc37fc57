// SPDX-License-Identifier: GPL-2.0
/*
 * What cosched must reach, measured: how much of its time a cluster spends at
 * home, how soon idle CPUs are used and strays come back, how often threads
 * move between LLC domains, what a cluster costs in memory.
 *
 * Meant for a guest in parallel virtual time; see rules_util.h. Every measured value is
 * printed as "# figure NAME VALUE UNIT". The tests called "work" run on a
 * kernel without cosched as well, for comparison.
 */

#include "rules_util.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CLUSTERS	64
#define MS		1000000ull
#define NEVER		9999.0		/* ms, printed where something did not happen */

/* The smallest LLC domain: clusters are as large, so that all have one home each. */
static int llc_size(const struct ru_topo *topo)
{
	int i, least = topo->nr_cpus;

	for (i = 0; i < topo->nr_llcs; i++)
		if (CPU_COUNT(&topo->llc[i]) < least)
			least = CPU_COUNT(&topo->llc[i]);
	return least;
}

/*
 * One cluster for each LLC domain with as many workers as it has CPUs, every
 * worker on a CPU of its own and, but for the few that chance would put at
 * home, outside the home that its cluster is going to have.
 */
struct scattered {
	int n;
	char cg[MAX_CLUSTERS][512];
	struct ru_gang *gang[MAX_CLUSTERS];
};

static void scatter(const char *top, struct scattered *s, const struct ru_gang_opts *how,
		    bool in_cgroup)
{
	const struct ru_topo *topo = ru_topo();
	int c, i, size = llc_size(topo);

	s->n = topo->nr_llcs;
	REQUIRE(s->n <= MAX_CLUSTERS, "more LLC domains than this test can hold");
	for (c = 0; c < s->n; c++) {
		struct ru_gang_opts o = *how;
		char name[32];

		snprintf(name, sizeof(name), "c%d", c);
		cs_mkdir(s->cg[c], top, name);
		o.n = size;
		o.cg = in_cgroup ? s->cg[c] : NULL;
		o.watch = topo->llc[c];
		s->gang[c] = ru_gang(&o);
		for (i = 0; i < size; i++) {
			cpu_set_t one = ru_one(ru_nth(&topo->llc[(c + 1 + i) % s->n], i));

			ru_allow_one(s->gang[c], i, &one);
		}
	}
	cs_sleep_ms(SETTLE_MS);
	for (c = 0; c < s->n; c++)
		ru_allow(s->gang[c], &topo->online);
}

/*
 * Home kept: as many threads as home CPUs, all other CPUs busy with other
 * clusters, from a scattered start: 97 % of a cluster's CPU time at home.
 */
static void home_kept(const char *top, const char *name, struct ru_gang_opts how)
{
	const struct ru_topo *topo = ru_topo();
	long long pref[MAX_CLUSTERS], out[MAX_CLUSTERS];
	struct ru_mark mark[MAX_CLUSTERS];
	static struct scattered s;
	double least = 100, least_stat = 100;
	int c;

	scatter(top, &s, &how, true);
	for (c = 0; c < s.n; c++)
		ru_prefer(s.cg[c], &topo->llc[c]);
	cs_sleep_ms(100);
	for (c = 0; c < s.n; c++) {
		pref[c] = cs_stat(s.cg[c], "preferred_usec");
		out[c] = cs_stat(s.cg[c], "outside_usec");
		ru_mark(s.gang[c], &mark[c]);
	}
	cs_sleep_ms(1000);
	for (c = 0; c < s.n; c++) {
		double share = ru_share(s.gang[c], &mark[c], &topo->llc[c]), stat;

		pref[c] = cs_stat(s.cg[c], "preferred_usec") - pref[c];
		out[c] = cs_stat(s.cg[c], "outside_usec") - out[c];
		REQUIRE(pref[c] + out[c] > 0, "cosched.stat counted no CPU time");
		stat = 100.0 * pref[c] / (pref[c] + out[c]);
		if (share < least)
			least = share;
		if (stat < least_stat)
			least_stat = stat;
	}
	ru_figure(least, "%", "home_kept.%s.least_cluster", name);
	ru_figure(least_stat, "%", "home_kept.%s.least_cluster_by_stat", name);
	REQUIRE(least >= 97, "%s: a cluster had %.2f%% of its CPU time at home, 97%% is required",
		name, least);
	REQUIRE(least_stat >= 97, "%s: cosched.stat says %.2f%%, 97%% is required", name,
		least_stat);
}

static void test_home_kept_never_sleeping(const char *top)
{
	home_kept(top, "never_sleeping", (struct ru_gang_opts){ });
}

static void test_home_kept_sleeping(const char *top)
{
	home_kept(top, "sleeping", (struct ru_gang_opts){ .busy_us = 5000, .sleep_us = 500 });
}

static void test_home_kept_processes(const char *top)
{
	home_kept(top, "processes", (struct ru_gang_opts){
		.busy_us = 5000, .sleep_us = 500, .processes = true });
}

/* The first time since t0 that a worker had each of the CPUs, the last of them. */
static double all_busy_after_ms(const struct ru_gang *g, uint64_t t0)
{
	const struct ru_topo *topo = ru_topo();
	uint64_t last = t0;
	int cpu, i, k;

	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		uint64_t first = UINT64_MAX;

		if (!CPU_ISSET(cpu, &topo->online))
			continue;
		for (i = 0; i < g->n; i++) {
			for (k = 0; k < g->w[i].nr_intervals; k++) {
				const struct ru_interval *v = &g->w[i].interval[k];

				if (v->cpu != cpu || v->to < t0)
					continue;
				if (v->from < first)
					first = v->from;
				break;
			}
		}
		if (first == UINT64_MAX)
			return NEVER;
		if (first > last)
			last = first;
	}
	return (last - t0) / 1e6;
}

/* Percent idle in the second that begins 100 ms after t0. */
static double idle_second(struct ru_gang *g, uint64_t t0)
{
	return ru_idle(&g, 1, &ru_topo()->online, t0 + 100 * MS, t0 + 1100 * MS);
}

static void work_conserving(struct ru_gang *g, const char *name, uint64_t t0)
{
	double busy;

	cs_sleep_ms(1150);
	busy = all_busy_after_ms(g, t0);
	ru_figure(busy, "ms", "work.%s.all_busy_after", name);
	ru_figure(idle_second(g, t0), "%", "work.%s.idle", name);
	REQUIRE(busy <= 100 || cs_mode() == CS_MODE_ABSENT,
		"%s: all CPUs were busy after %.1f ms, 100 are allowed", name, busy);
}

/* The cgroup of the workers, with a home of one LLC domain; none without cosched. */
static const char *work_cgroup(const char *top)
{
	if (cs_mode() == CS_MODE_ABSENT)
		return NULL;
	ru_prefer(top, &ru_topo()->llc[0]);
	return top;
}

/*
 * Work conserving: a home of one LLC domain, and as many threads as the machine has
 * CPUs. The Go test compares the idle time with the unmodified kernel's.
 */
static void test_work_forked(const char *top)
{
	struct ru_gang *g = ru_gang(&(struct ru_gang_opts){
		.n = ru_topo()->nr_cpus, .log = true, .processes = true, .cg = work_cgroup(top) });

	work_conserving(g, "forked", g->created);
}

/* Threads that slept, at home, and wake all at once. */
static void test_work_woken(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang_opts o = {
		.n = topo->nr_cpus, .log = true, .start = topo->llc[0],
		.busy_us = 100, .sleep_us = 300000, .cg = work_cgroup(top),
	};
	struct ru_gang *g = ru_gang(&o);
	uint64_t t0;
	int i;

	cs_sleep_ms(100);
	for (i = 0; i < g->n; i++)
		g->w[i].busy_us = 0;
	ru_allow(g, &topo->online);
	t0 = ru_now();
	ru_wake(g);
	work_conserving(g, "woken", t0);
}

static long packed_starts = 1;

/*
 * All threads on home when a hard limit to it is lifted: running, so that no
 * wakeup places them, and with the balancer's intervals grown while it found
 * nothing to move. The mean of starts at different times.
 */
static void test_work_packed(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang_opts o = {
		.n = topo->nr_cpus, .start = topo->llc[0], .log = true, .cg = work_cgroup(top),
	};
	double busy = 0, idle = 0;
	int i;

	for (i = 0; i < packed_starts; i++) {
		struct ru_gang *g = ru_gang(&o);
		uint64_t t0;

		cs_sleep_ms(SETTLE_MS + 17 * i);
		t0 = ru_now();
		ru_allow(g, &topo->online);
		cs_sleep_ms(1150);
		busy += all_busy_after_ms(g, t0) / packed_starts;
		idle += idle_second(g, t0) / packed_starts;
		ru_end(g);
	}
	ru_figure(busy, "ms", "work.packed.all_busy_after");
	ru_figure(idle, "%", "work.packed.idle");
	REQUIRE(busy <= 100 || cs_mode() == CS_MODE_ABSENT,
		"all CPUs were busy after %.1f ms in the mean, 100 are allowed", busy);
}

/* When a worker first ran at home since t0: from its intervals. */
static double home_after_ms(const struct ru_gang *g, int worker, uint64_t t0)
{
	const struct ru_worker *w = &g->w[worker];
	int k;

	for (k = 0; k < w->nr_intervals; k++) {
		const struct ru_interval *v = &w->interval[k];

		if (v->to >= t0 && CPU_ISSET(v->cpu, &g->watch))
			return v->from > t0 ? (v->from - t0) / 1e6 : 0;
	}
	return NEVER;
}

/*
 * Return: home full of others' threads, one stray outside; one home CPU becomes
 * idle and stays so. The stray runs there within 20 ms.
 */
static double returned_after_ms(const char *top, int nr, bool others_busy, bool housekeeping,
				int how)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = ru_minus(&topo->online, &home), start, others;
	struct ru_gang *blockers, *stray, *busy = NULL, *keeper = NULL;
	uint64_t t0;
	char cg[512], name[32];
	double ms;

	start = ru_one(ru_nth(&rest, 7 * nr));
	others = ru_minus(&rest, &start);
	snprintf(name, sizeof(name), "s%d", nr);
	cs_mkdir(cg, top, name);
	ru_prefer(cg, &home);
	blockers = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home), .start = home, .one_each = true });
	if (others_busy && CPU_COUNT(&others))
		busy = ru_gang(&(struct ru_gang_opts){
			.n = CPU_COUNT(&others), .start = others, .one_each = true });
	if (housekeeping) {
		cpu_set_t freed = ru_one(ru_nth(&home, nr));

		keeper = ru_gang(&(struct ru_gang_opts){
			.n = 1, .start = freed, .busy_us = 50, .sleep_us = 5000 });
	}
	stray = ru_gang(&(struct ru_gang_opts){
		.n = 1, .cg = cg, .start = start, .watch = home, .log = true });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(stray, &topo->online);
	cs_sleep_ms(20);
	REQUIRE(CPU_ISSET(stray->w[0].cpu, &rest), "the stray went home though home was full");

	blockers->w[nr % blockers->n].stop = how;
	t0 = ru_now();
	cs_sleep_ms(150);
	ms = home_after_ms(stray, 0, t0);
	ru_end(stray);
	ru_end(blockers);
	if (busy)
		ru_end(busy);
	if (keeper)
		ru_end(keeper);
	return ms;
}

static void test_return(const char *top)
{
	static const struct {
		const char *name;
		bool others_busy, housekeeping;
		int how;
	} cases[] = {
		{ "others_idle.sleeps", false, false, RU_SLEEP },
		{ "others_idle.exits", false, false, RU_EXIT },
		{ "others_busy.sleeps", true, false, RU_SLEEP },
		{ "others_busy.exits", true, false, RU_EXIT },
		/* Idle but for 1 %: what a kernel thread or a daemon takes now and then. */
		{ "housekeeping", true, true, RU_SLEEP },
	};
	int i, k, nr = 0, failed = 0;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		double worst = 0;

		for (k = 0; k < 4; k++) {
			double ms = returned_after_ms(top, nr++, cases[i].others_busy,
						      cases[i].housekeeping, cases[i].how);

			if (ms > worst)
				worst = ms;
		}
		ru_figure(worst, "ms", "return.%s.worst_of_4", cases[i].name);
		failed += worst > 20;
	}
	REQUIRE(!failed, "a stray was home later than 20 ms after a home CPU became idle");
}

/*
 * Joining: every CPU busy with a thread that never sleeps, each on the home of
 * another cluster than its own; only swapping brings them home, within 50 ms.
 */
static void joined(const char *top, const char *name, bool join)
{
	const struct ru_topo *topo = ru_topo();
	static struct scattered s;
	double worst = 0;
	uint64_t t0, begun;
	int c, i;

	if (join)
		scatter(top, &s, &(struct ru_gang_opts){ .log = true }, false);
	else
		scatter(top, &s, &(struct ru_gang_opts){ .log = true }, true);
	begun = ru_now();
	for (c = 0; c < s.n; c++)
		ru_prefer(s.cg[c], &topo->llc[c]);
	for (c = 0; join && c < s.n; c++)
		ru_move(s.gang[c], s.cg[c]);
	t0 = ru_now();
	cs_sleep_ms(500);
	for (c = 0; c < s.n; c++) {
		for (i = 0; i < s.gang[c]->n; i++) {
			double ms = home_after_ms(s.gang[c], i, t0);

			if (ms > worst)
				worst = ms;
		}
	}
	ru_figure((t0 - begun) / 1e6, "ms", "join.%s.took_to_write", name);
	ru_figure(worst, "ms", "join.%s.last_thread_home_after", name);
	REQUIRE(worst <= 50, "%s: the last thread was home after %.1f ms, 50 are allowed", name,
		worst);
}

static void test_join_every_cpu_busy(const char *top)
{
	joined(top, "moved_in", true);
}

static void test_join_preference_set(const char *top)
{
	joined(top, "preference_set", false);
}

/* The same with room: one cluster, its home idle, its threads outside. */
static void test_join_home_idle(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home = topo->llc[0], rest = ru_minus(&topo->online, &home);
	struct ru_gang *g;
	double worst = 0;
	uint64_t t0;
	int i;

	ru_prefer(top, &home);
	g = ru_gang(&(struct ru_gang_opts){
		.n = llc_size(topo), .start = rest, .one_each = true, .log = true,
		.watch = home });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	ru_move(g, top);
	t0 = ru_now();
	cs_sleep_ms(300);
	for (i = 0; i < g->n; i++) {
		double ms = home_after_ms(g, i, t0);

		if (ms > worst)
			worst = ms;
	}
	ru_figure(worst, "ms", "join.home_idle.last_thread_home_after");
	REQUIRE(worst <= 50, "the last thread was home after %.1f ms, 50 are allowed", worst);
}

/*
 * No ping-pong: equal clusters, one for each LLC domain, that sleep now and
 * then: under 20 moves between domains per second and cluster.
 */
static void pingpong(const char *top, const char *name, int per_cpu, unsigned int busy_us,
		     unsigned int sleep_us)
{
	const struct ru_topo *topo = ru_topo();
	struct ru_gang *gang[MAX_CLUSTERS];
	struct ru_trace trace;
	double worst = 0;
	uint64_t from;
	int c;

	for (c = 0; c < topo->nr_llcs; c++) {
		char cg[512], dir[32];

		snprintf(dir, sizeof(dir), "c%d", c);
		cs_mkdir(cg, top, dir);
		ru_prefer(cg, &topo->llc[c]);
		gang[c] = ru_gang(&(struct ru_gang_opts){
			.n = per_cpu * CPU_COUNT(&topo->llc[c]), .cg = cg,
			.busy_us = busy_us, .sleep_us = sleep_us });
	}
	cs_sleep_ms(100);
	ru_trace_start();
	from = ru_now();
	cs_sleep_ms(1000);
	ru_trace_stop(&trace);
	for (c = 0; c < topo->nr_llcs; c++) {
		double rate = ru_domain_moves(&trace, gang[c], from) * 1e9 /
			      (ru_now() - from > 1000 * MS ? 1000 * MS : ru_now() - from);

		if (rate > worst)
			worst = rate;
	}
	cs_diag("%s: placed home_idle %d home_queue %d spill %d overflow %d stay %d, pulled idle %d rule4 %d, returned %d, swapped %d",
		name, ru_count(&trace, NULL, "cosched_place", "home_idle"),
		ru_count(&trace, NULL, "cosched_place", "home_queue"),
		ru_count(&trace, NULL, "cosched_place", "spill"),
		ru_count(&trace, NULL, "cosched_place", "overflow"),
		ru_count(&trace, NULL, "cosched_place", "stay"),
		ru_count(&trace, NULL, "cosched_pull", "idle"),
		ru_count(&trace, NULL, "cosched_pull", "rule4"),
		ru_count(&trace, NULL, "cosched_return", NULL),
		ru_count(&trace, NULL, "cosched_swap", NULL));
	ru_figure(worst, "moves/s", "pingpong.%s.worst_cluster", name);
	REQUIRE(worst < 20, "%s: a cluster moved %.0f times a second between domains, under 20 are allowed",
		name, worst);
}

static void test_pingpong_one_per_cpu(const char *top)
{
	pingpong(top, "one_per_cpu", 1, 5000, 500);
}

static void test_pingpong_two_per_cpu(const char *top)
{
	pingpong(top, "two_per_cpu", 2, 2000, 500);
}

/* Memory */

#define NR_GROUPS	4000	/* the kernel tells per-CPU memory in pages */

struct memory {
	long slab, percpu, free;	/* bytes */
};

static long meminfo(const char *key)
{
	static char buf[8192];
	char *at;

	cs_read("/proc", "meminfo", buf, sizeof(buf));
	at = strstr(buf, key);
	REQUIRE(at, "/proc/meminfo has no %s", key);
	return atol(at + strlen(key)) * 1024;
}

static struct memory memory(void)
{
	/* What was freed a moment ago is freed by RCU and workers. */
	cs_sleep_ms(100);
	return (struct memory){ meminfo("Slab:"), meminfo("Percpu:"), meminfo("MemFree:") };
}

static void make_groups(const char *parent, const char *prefix)
{
	char cg[512], name[32];
	int i;

	for (i = 0; i < NR_GROUPS; i++) {
		snprintf(name, sizeof(name), "%s%d", prefix, i);
		cs_mkdir(cg, parent, name);
	}
}

static void test_memory(const char *top)
{
	struct memory m[5];
	char plain[512], with[512], cg[512], value[64];
	double unset, set, unset_percpu, by_free;
	cpu_set_t possible;
	long allowed;
	int i, n;

	if (cs_mode() != CS_MODE_ORDINARY)
		cs_skip("needs cgroups with and without the controller");
	cs_possible(&possible);
	n = CPU_COUNT(&possible);
	allowed = 1024 + 32 * n;
	cs_mkdir(plain, top, "plain");
	cs_mkdir(with, top, "with");
	cs_enable(with);

	/* Caches, and the first of everything, are not what a cluster costs. */
	make_groups(plain, "warm");
	m[0] = memory();
	make_groups(plain, "p");
	m[1] = memory();
	make_groups(with, "w");
	m[2] = memory();
	/* The first access makes an inode and a directory entry, not memory of the cluster. */
	for (i = 0; i < NR_GROUPS; i++) {
		snprintf(cg, sizeof(cg), "%.480s/w%d", with, i);
		cs_read(cg, CS_PREF, value, sizeof(value));
	}
	m[3] = memory();
	for (i = 0; i < NR_GROUPS; i++) {
		snprintf(cg, sizeof(cg), "%.480s/w%d", with, i);
		cs_write(cg, CS_PREF, "0");
	}
	m[4] = memory();

	unset = (double)((m[2].slab + m[2].percpu - m[1].slab - m[1].percpu) -
			 (m[1].slab + m[1].percpu - m[0].slab - m[0].percpu)) / NR_GROUPS;
	unset_percpu = (double)((m[2].percpu - m[1].percpu) - (m[1].percpu - m[0].percpu)) /
		       NR_GROUPS / n;
	set = (double)(m[4].slab + m[4].percpu - m[3].slab - m[3].percpu) / NR_GROUPS;
	by_free = (double)(m[3].free - m[4].free) / NR_GROUPS;
	ru_figure(unset, "bytes", "memory.css_and_its_files");
	ru_figure(unset_percpu, "bytes/cpu", "memory.css_percpu");
	ru_figure(set, "bytes", "memory.preference");
	ru_figure(by_free, "bytes", "memory.preference_by_memfree");
	ru_figure(allowed, "bytes", "memory.preference_allowed");
	REQUIRE(set <= allowed, "a preference costs %.0f bytes, %ld are allowed on %d CPUs", set,
		allowed, n);
	/* The css's reference count is per CPU: one word. */
	REQUIRE(unset_percpu <= 2 * sizeof(long),
		"a cgroup without preference costs %.1f bytes per CPU: more than its reference count",
		unset_percpu);
	/* A css and five kernfs nodes. */
	REQUIRE(unset <= 2048 + n * 2 * sizeof(long),
		"a cgroup without preference costs %.0f bytes", unset);
}

int main(int argc, char **argv)
{
	static const struct cs_test tests[] = {
		{ "home_kept_never_sleeping", test_home_kept_never_sleeping, 0 },
		{ "home_kept_sleeping", test_home_kept_sleeping, 0 },
		{ "home_kept_processes", test_home_kept_processes, 0 },
		{ "pingpong_one_per_cpu", test_pingpong_one_per_cpu, 0 },
		{ "pingpong_two_per_cpu", test_pingpong_two_per_cpu, 0 },
		{ "join_every_cpu_busy", test_join_every_cpu_busy, 0 },
		{ "join_preference_set", test_join_preference_set, 0 },
		{ "join_home_idle", test_join_home_idle, 0 },
		{ "return", test_return, 0 },
		{ "work_forked", test_work_forked, 0 },
		{ "work_woken", test_work_woken, 0 },
		{ "work_packed", test_work_packed, 0 },
		{ "memory", test_memory, 0 },
	};
	static const struct cs_option options[] = {
		{ .name = "starts", .help = "starts of work_packed (1)", .number = &packed_starts },
	};
	static const struct cs_program program = {
		.about = "Measures what cosched must reach.",
		.options = options,
		.noptions = ARRAY_LEN(options),
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.any_mode = true,
	};

	return cs_main(argc, argv, &program);
}
