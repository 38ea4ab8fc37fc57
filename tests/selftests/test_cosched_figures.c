// SPDX-License-Identifier: GPL-2.0
/*
 * cosched.stat and cosched.load: that they count what the tasks do, for the
 * cgroup they do it in and all above, and keep what was counted.
 */

#include "cosched_util.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The load of one task that always runs. */
#define FULL	1024

/* Half-life 32 ms: after this long 1/2^15 of an old load is left. */
#define SETTLE_MS	500

static long long cluster_usec(const char *cg)
{
	return cs_stat(cg, "preferred_usec") + cs_stat(cg, "outside_usec");
}

static void stat_values(const char *cg, long long *values)
{
	int i;

	for (i = 0; i < cs_nr_stat_keys; i++)
		values[i] = cs_stat(cg, cs_stat_keys[i]);
}

static void pin(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	REQUIRE(!sched_setaffinity(pid, sizeof(set), &set),
		"pin task %d to CPU %d: %s", pid, cpu, strerror(errno));
}

static void unpin(pid_t pid)
{
	cpu_set_t set;

	cs_online(&set);
	REQUIRE(!sched_setaffinity(pid, sizeof(set), &set),
		"unpin task %d: %s", pid, strerror(errno));
}

/*
 * preferred_usec and outside_usec together are the CPU time of the cluster's
 * tasks: of a task that may stay at home nearly all is at home, and of one
 * held elsewhere by its affinity all is outside.
 */
static void stat_counts_time(const char *top)
{
	char cg[PATH_MAX], sibling[PATH_MAX];
	long long usec, pref, out;
	pid_t pid;
	int round;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	cs_mkdir(sibling, top, "sibling");
	cs_write(cg, CS_PREF, "1\n");
	cs_write(sibling, CS_PREF, "1\n");
	pid = cs_spinner(cg);
	for (round = 0; round < 2; round++) {
		if (round)
			pin(pid, 3);
		cs_sleep_ms(300);
		cs_stop(pid);
		usec = cs_task_usec(pid);
		pref = cs_stat(cg, "preferred_usec");
		out = cs_stat(cg, "outside_usec");
		cs_continue(pid);
		cs_sleep_ms(1000);
		cs_stop(pid);
		usec = cs_task_usec(pid) - usec;
		pref = cs_stat(cg, "preferred_usec") - pref;
		out = cs_stat(cg, "outside_usec") - out;
		REQUIRE(usec > 100000, "the task got only %lld us", usec);
		REQUIRE(llabs(pref + out - usec) < usec / 10 + 20000,
			"used %lld us, counted %lld at home and %lld outside",
			usec, pref, out);
		if (!round)
			REQUIRE(pref > (pref + out) * 9 / 10,
				"%lld us at home, %lld outside", pref, out);
		else
			REQUIRE(out > (pref + out) * 9 / 10,
				"pinned outside: %lld us at home, %lld outside",
				pref, out);
		cs_continue(pid);
	}
	cs_kill(pid);
	REQUIRE(!cluster_usec(sibling), "a cluster without tasks counted time");
}

static void set_policy(pid_t pid, int policy)
{
	struct sched_param param = { .sched_priority = policy == SCHED_FIFO };

	REQUIRE(!sched_setscheduler(pid, policy, &param),
		"give task %d policy %d: %s", pid, policy, strerror(errno));
}

/*
 * The time that a task runs in another class is not counted, whether it runs or
 * sleeps when it changes to that class and back.
 */
static void stat_counts_fair_class(const char *top)
{
	long long usec, counted, realtime;
	char cg[PATH_MAX];
	bool asleep;
	pid_t pid;
	int round;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "1\n");
	pid = cs_spinner(cg);
	for (round = 0; round < 2; round++) {
		asleep = round;
		cs_sleep_ms(300);
		cs_stop(pid);
		usec = cs_task_usec(pid);
		counted = cluster_usec(cg);
		if (!asleep)
			cs_continue(pid);
		set_policy(pid, SCHED_FIFO);
		if (asleep)
			cs_continue(pid);
		cs_sleep_ms(300);
		if (asleep)
			cs_stop(pid);
		realtime = cs_task_usec(pid) - usec;
		set_policy(pid, SCHED_OTHER);
		if (asleep)
			cs_continue(pid);
		cs_sleep_ms(300);
		cs_stop(pid);
		usec = cs_task_usec(pid) - usec;
		counted = cluster_usec(cg) - counted;
		cs_diag("%lld us, of which %lld real-time; counted %lld",
			usec, realtime, counted);
		REQUIRE(realtime > 100000 && usec - realtime > 50000,
			"got only %lld us, of which %lld real-time", usec, realtime);
		REQUIRE(llabs(counted - (usec - realtime)) < usec / 10 + 20000,
			"used %lld us, of which %lld real-time, counted %lld",
			usec, realtime, counted);
		cs_continue(pid);
	}
	cs_kill(pid);
}

static void sleep_loop(void *arg)
{
	(void)arg;
	for (;;)
		cs_sleep_ms(1);
}

/* A task that sleeps and wakes with an idle home wakes at home. */
static void stat_counts_wakeups(const char *top)
{
	long long home, spilled, overflowed;
	char cg[PATH_MAX];
	pid_t pid;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "2-3\n");
	pid = cs_spawn(cg, sleep_loop, NULL);
	cs_sleep_ms(200);
	home = cs_stat(cg, "wakeups_home");
	spilled = cs_stat(cg, "wakeups_spilled");
	overflowed = cs_stat(cg, "wakeups_overflowed");
	cs_sleep_ms(1000);
	home = cs_stat(cg, "wakeups_home") - home;
	spilled = cs_stat(cg, "wakeups_spilled") - spilled;
	overflowed = cs_stat(cg, "wakeups_overflowed") - overflowed;
	cs_kill(pid);
	REQUIRE(home > 50, "only %lld wakeups at home in a second", home);
	REQUIRE(spilled + overflowed <= home / 10,
		"%lld wakeups at home, %lld spilled, %lld overflowed", home,
		spilled, overflowed);
}

/* home_changes counts each change of the home, whatever caused it. */
static void stat_counts_home_changes(const char *top)
{
	char parent[PATH_MAX], cg[PATH_MAX];
	long long n;

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(cg, parent, "cg");
	cs_write(cg, CS_PREF, "1-2\n");
	n = cs_stat(cg, "home_changes");
#define EXPECT_MORE(more, what)	do {					\
		long long now = cs_stat(cg, "home_changes");		\
		REQUIRE(now == n + (more),				\
			what ": home_changes went from %lld to %lld", n, now); \
		n = now;						\
	} while (0)
	cs_write(cg, CS_PREF, "1\n");
	EXPECT_MORE(1, "own home changed");
	cs_write(cg, CS_PREF, "1\n");
	EXPECT_MORE(0, "same home written");
	cs_write(cg, CS_PREF, "1-2\n");
	EXPECT_MORE(1, "own home changed back");
	cs_write(parent, CS_PREF, "0-2\n");
	EXPECT_MORE(0, "parent's home set around it");
	cs_write(parent, CS_PREF, "2-3\n");
	EXPECT_MORE(1, "narrowed by the parent's home");
	cs_write(cg, CS_WEIGHTS, "3 4\n");
	EXPECT_MORE(0, "weights written");
#undef EXPECT_MORE
}

/*
 * Whatever goes on, no counter ever goes back: neither while the cgroup takes
 * its preference back and sets it again, nor while its parent does so.
 */
static void stat_monotonic(const char *top)
{
	static const char *const homes[] = { "0\n", "1-2\n", "\n", "3\n" };
	long long last[2][16] = { { 0 } }, now[16];
	char parent[PATH_MAX], cg[PATH_MAX];
	const char *cgs[2] = { parent, cg };
	pid_t pids[6];
	int i, k, n;

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(cg, parent, "cg");
	for (i = 0; i < 6; i++)
		pids[i] = i & 1 ? cs_spawn(cg, sleep_loop, NULL) :
				  cs_spinner(cg);
	for (i = 0; i < 240; i++) {
		/*
		 * Not both at a time: a cgroup below a cluster that asks for
		 * nothing shows the figures of that cluster, not its own.
		 */
		if (i % 10 == 0)
			cs_write(i < 120 ? cg : parent, CS_PREF,
				 homes[i / 10 % 4]);
		for (n = 0; n < 2; n++) {
			stat_values(cgs[n], now);
			for (k = 0; k < cs_nr_stat_keys; k++)
				REQUIRE(now[k] >= last[n][k],
					"step %d: %s of %s went from %lld to %lld",
					i, cs_stat_keys[k], cgs[n], last[n][k],
					now[k]);
			memcpy(last[n], now, sizeof(now));
		}
		cs_sleep_ms(5);
	}
	for (i = 0; i < 6; i++)
		cs_kill(pids[i]);
	for (k = 0; k < 2; k++)
		REQUIRE(last[1][k] > 10000, "%s came to only %lld us",
			cs_stat_keys[k], last[1][k]);
}

/*
 * A cgroup counts for itself and all below: one without a preference of its
 * own, the sum of its children's; and it keeps what they counted when they
 * are removed.
 */
static void stat_hierarchical(const char *top)
{
	char parent[PATH_MAX], a[PATH_MAX], b[PATH_MAX];
	long long va[16], vb[16], vp[16] = { 0 }, after[16];
	pid_t pids[4];
	int i, k;

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(a, parent, "a");
	cs_mkdir(b, parent, "b");
	cs_write(a, CS_PREF, "0-1\n");
	cs_write(b, CS_PREF, "2\n");
	for (i = 0; i < 4; i++)
		pids[i] = i & 2 ? cs_spawn(i & 1 ? a : b, sleep_loop, NULL) :
				  cs_spinner(i & 1 ? a : b);
	cs_sleep_ms(500);
	for (i = 0; i < 4; i++)
		cs_kill(pids[i]);
	cs_sleep_ms(50);

	stat_values(a, va);
	stat_values(b, vb);
	stat_values(parent, vp);
	REQUIRE(va[0] + va[1] > 50000, "a counted only %lld us", va[0] + va[1]);
	REQUIRE(vb[0] + vb[1] > 50000, "b counted only %lld us", vb[0] + vb[1]);
	for (k = 0; k < cs_nr_stat_keys; k++)
		REQUIRE(llabs(vp[k] - va[k] - vb[k]) <= 2,
			"%s: %lld and %lld below, %lld above", cs_stat_keys[k],
			va[k], vb[k], vp[k]);
	REQUIRE(cluster_usec(top) >= vp[0] + vp[1], "two levels up counted %lld us of %lld",
		cluster_usec(top), vp[0] + vp[1]);

	cs_rmdir(a);
	cs_rmdir(b);
	cs_sleep_ms(300);
	stat_values(parent, after);
	for (k = 0; k < cs_nr_stat_keys; k++)
		REQUIRE(after[k] >= vp[k], "%s: %lld before the children were removed, %lld after",
			cs_stat_keys[k], vp[k], after[k]);
	cs_rmdir(parent);
	REQUIRE(cluster_usec(top) >= vp[0] + vp[1],
		"the grandparent lost what was counted");
}

/* A parent that is a cluster itself counts its own and its children's. */
static void stat_own_and_below(const char *top)
{
	char parent[PATH_MAX], child[PATH_MAX];
	long long in_child, in_parent;
	pid_t pid;

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_write(parent, CS_PREF, "0-1\n");
	/* First in the parent itself, while it is a leaf. */
	pid = cs_spinner(parent);
	cs_sleep_ms(300);
	cs_kill(pid);
	in_parent = cluster_usec(parent);
	REQUIRE(in_parent > 30000, "counted only %lld us", in_parent);

	cs_enable(parent);
	cs_mkdir(child, parent, "child");
	cs_write(child, CS_PREF, "1\n");
	pid = cs_spinner(child);
	cs_sleep_ms(300);
	cs_kill(pid);
	cs_sleep_ms(50);
	in_child = cluster_usec(child);
	REQUIRE(in_child > 30000, "the child counted only %lld us", in_child);
	REQUIRE(llabs(cluster_usec(parent) - in_parent - in_child) <= 20000,
		"%lld us of its own, %lld of its child, %lld in all", in_parent,
		in_child, cluster_usec(parent));
	cs_rmdir(child);
	REQUIRE(cluster_usec(parent) >= in_parent + in_child,
		"lost the child's %lld us: %lld", in_child,
		cluster_usec(parent));
}

/* Taking the preference back or changing it loses nothing counted. */
static void stat_survives_unsetting(const char *top)
{
	long long before[16] = { 0 }, after[16] = { 0 };
	char cg[PATH_MAX];
	pid_t pid;
	int k;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "0\n");
	pid = cs_spinner(cg);
	cs_sleep_ms(300);
	stat_values(cg, before);
	REQUIRE(before[0] + before[1] > 30000, "counted only %lld us",
		before[0] + before[1]);
	cs_write(cg, CS_PREF, "\n");
	stat_values(cg, after);
	for (k = 0; k < cs_nr_stat_keys; k++)
		REQUIRE(after[k] >= before[k], "%s: %lld set, %lld unset",
			cs_stat_keys[k], before[k], after[k]);
	cs_sleep_ms(100);
	cs_write(cg, CS_PREF, "1\n");
	memcpy(before, after, sizeof(before));
	stat_values(cg, after);
	for (k = 0; k < cs_nr_stat_keys; k++)
		REQUIRE(after[k] >= before[k], "%s: %lld unset, %lld set again",
			cs_stat_keys[k], before[k], after[k]);
	cs_sleep_ms(300);
	REQUIRE(cluster_usec(cg) > after[0] + after[1] + 30000,
		"counts no more after it was set again");
	cs_kill(pid);
}

/* A cgroup without a preference is no cluster, and nothing is counted. */
static void stat_without_preference(const char *top)
{
	char cg[PATH_MAX], other[PATH_MAX];
	pid_t pid;
	int k;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	/* Another cluster, so that the scheduler side is switched on. */
	cs_mkdir(other, top, "other");
	cs_write(other, CS_PREF, "0\n");
	pid = cs_spinner(cg);
	cs_sleep_ms(300);
	for (k = 0; k < cs_nr_stat_keys; k++)
		REQUIRE(!cs_stat(cg, cs_stat_keys[k]), "%s is %lld",
			cs_stat_keys[k], cs_stat(cg, cs_stat_keys[k]));
	REQUIRE(!cs_load_util(cg), "has a load of %ld", cs_load_util(cg));
	REQUIRE(!cluster_usec(other), "the other cluster counted %lld us",
		cluster_usec(other));
	cs_kill(pid);
}

/*
 * A cgroup that inherits its whole preference belongs to the cluster above:
 * its task counts there, and it shows that cluster's figures.
 */
static void inheriting_shows_cluster(const char *top)
{
	char parent[PATH_MAX], child[PATH_MAX], other[PATH_MAX];
	char of_parent[4096], of_child[4096];
	pid_t pid;
	long util;

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_write(parent, CS_PREF, "0-1\n");
	cs_mkdir(child, parent, "child");
	cs_mkdir(other, parent, "other");
	pid = cs_spinner(child);
	cs_sleep_ms(SETTLE_MS);
	util = cs_load_util(parent);
	REQUIRE(util > FULL * 8 / 10, "the cluster's load is %ld", util);
	util = cs_load_util(child);
	REQUIRE(util > FULL * 8 / 10, "its member's load is %ld", util);
	cs_kill(pid);
	cs_sleep_ms(SETTLE_MS);
	REQUIRE(cs_stat(parent, "preferred_usec") > 30000,
		"the cluster counted only %lld us",
		cs_stat(parent, "preferred_usec"));
	cs_read(parent, CS_STAT, of_parent, sizeof(of_parent));
	cs_read(child, CS_STAT, of_child, sizeof(of_child));
	REQUIRE(!strcmp(of_parent, of_child),
		"the cluster shows:\n%s its member:\n%s", of_parent, of_child);
	cs_read(other, CS_STAT, of_child, sizeof(of_child));
	REQUIRE(!strcmp(of_parent, of_child),
		"the cluster shows:\n%s another member:\n%s", of_parent,
		of_child);
}

/*
 * cosched.load has one line for each LLC domain: together they have each
 * online CPU once, they are the machine's own LLC domains where sysfs tells
 * them, and home= is how many of the CPUs are home.
 */
static void load_format(const char *top)
{
	static const char *const homes[] = { "0", "1-2", "3", "0-3", "0,2" };
	static cpu_set_t llcs[256];
	static struct cs_load load;
	cpu_set_t online, seen, home, both;
	char cg[PATH_MAX], value[64];
	pid_t pid;
	int i, n, h, nllcs;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	pid = cs_spinner(cg);
	nllcs = cs_llcs(llcs, ARRAY_LEN(llcs));
	cs_online(&online);
	for (h = 0; h < ARRAY_LEN(homes); h++) {
		snprintf(value, sizeof(value), "%s\n", homes[h]);
		cs_write(cg, CS_PREF, value);
		cs_parse_cpus(homes[h], &home);
		cs_sleep_ms(100);
		cs_load(cg, &load);
		CPU_ZERO(&seen);
		REQUIRE(load.nr_llcs > 0, "no LLC domain at all");
		for (i = 0; i < load.nr_llcs; i++) {
			struct cs_load_llc *llc = &load.llc[i];

			CPU_AND(&both, &seen, &llc->cpus);
			REQUIRE(!CPU_COUNT(&both), "llc%d shares a CPU", i);
			CPU_OR(&seen, &seen, &llc->cpus);
			CPU_AND(&both, &home, &llc->cpus);
			REQUIRE(llc->home == CPU_COUNT(&both),
				"home %s: llc%d has home=%ld", homes[h], i,
				llc->home);
			REQUIRE(llc->util >= 0 && llc->runnable >= 0,
				"llc%d has util=%ld runnable=%ld", i,
				llc->util, llc->runnable);
			if (!nllcs)
				continue;
			REQUIRE(i < nllcs && CPU_EQUAL(&llc->cpus, &llcs[i]),
				"llc%d has other CPUs than sysfs says", i);
		}
		REQUIRE(!nllcs || nllcs == load.nr_llcs,
			"%d LLC domains, sysfs has %d", load.nr_llcs, nllcs);
		REQUIRE(CPU_EQUAL(&seen, &online),
			"the LLC domains have %d CPUs, %d are online",
			CPU_COUNT(&seen), CPU_COUNT(&online));
		for (i = 0; i < load.nr_cpus; i++) {
			struct cs_load_cpu *c = &load.cpu[i];

			REQUIRE(CPU_ISSET(c->cpu, &online), "cpu%d is offline",
				c->cpu);
			REQUIRE(c->home == !!CPU_ISSET(c->cpu, &home),
				"home %s: cpu%d has home=%ld", homes[h],
				c->cpu, c->home);
			for (n = 0; n < i; n++)
				REQUIRE(load.cpu[n].cpu != c->cpu,
					"cpu%d is there twice", c->cpu);
		}
	}
	cs_kill(pid);
}

static const struct cs_load_cpu *cpu_of(const struct cs_load *load, int cpu)
{
	static const struct cs_load_cpu none;
	int i;

	for (i = 0; i < load->nr_cpus; i++)
		if (load->cpu[i].cpu == cpu)
			return &load->cpu[i];
	return &none;
}

static const struct cs_load_llc *llc_of_cpu(const struct cs_load *load, int cpu)
{
	int i;

	for (i = 0; i < load->nr_llcs; i++)
		if (CPU_ISSET(cpu, &load->llc[i].cpus))
			return &load->llc[i];
	cs_fail("CPU %d is in no LLC domain", cpu);
}

static bool near(long value, long want)
{
	return value > want * 85 / 100 && value < want * 115 / 100;
}

/* One task that always runs is a load of 1024 on its CPU and its domain. */
static void load_of_a_spinner(const char *top)
{
	static struct cs_load load;
	const struct cs_load_cpu *c;
	const struct cs_load_llc *llc;
	char cg[PATH_MAX];
	pid_t pid;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "2\n");
	pid = cs_spinner(cg);
	pin(pid, 2);
	cs_sleep_ms(SETTLE_MS);
	cs_load(cg, &load);
	c = cpu_of(&load, 2);
	llc = llc_of_cpu(&load, 2);
	REQUIRE(near(c->util, FULL), "cpu2 has util=%ld", c->util);
	REQUIRE(near(c->runnable, FULL), "cpu2 has runnable=%ld", c->runnable);
	REQUIRE(c->home == 1, "cpu2 has home=%ld", c->home);
	REQUIRE(near(llc->util, FULL), "its domain has util=%ld", llc->util);
	REQUIRE(near(llc->runnable, FULL), "its domain has runnable=%ld",
		llc->runnable);
	REQUIRE(near(cs_load_util(cg), FULL), "all domains have util=%ld",
		cs_load_util(cg));

	/* Held outside its home it is a load there. */
	pin(pid, 3);
	cs_sleep_ms(SETTLE_MS);
	cs_load(cg, &load);
	c = cpu_of(&load, 3);
	REQUIRE(near(c->util, FULL), "cpu3 has util=%ld", c->util);
	REQUIRE(!c->home, "cpu3 has home=%ld", c->home);
	c = cpu_of(&load, 2);
	REQUIRE(c->util < FULL / 10, "left cpu2 has util=%ld", c->util);
	cs_kill(pid);
}

/*
 * Utilisation saturates with the CPU, runnable counts those that wait: three
 * tasks on one CPU are a util of 1024 and a runnable of 3072. A task that runs
 * for half of the time is half of it.
 */
static void load_counts_queues(const char *top)
{
	static struct cs_load load;
	const struct cs_load_cpu *c;
	char cg[PATH_MAX];
	pid_t pids[3];
	int i;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "1\n");
	for (i = 0; i < 3; i++) {
		pids[i] = cs_spinner(cg);
		pin(pids[i], 1);
	}
	cs_sleep_ms(SETTLE_MS);
	cs_load(cg, &load);
	c = cpu_of(&load, 1);
	REQUIRE(near(c->util, FULL), "three tasks have util=%ld", c->util);
	REQUIRE(near(c->runnable, 3 * FULL), "three tasks have runnable=%ld",
		c->runnable);
	REQUIRE(near(llc_of_cpu(&load, 1)->runnable, 3 * FULL),
		"their domain has runnable=%ld",
		llc_of_cpu(&load, 1)->runnable);

	/* One of another cluster beside: half of the CPU, still one waiter. */
	cs_kill(pids[1]);
	cs_kill(pids[2]);
	pids[1] = cs_spinner(cs_root());
	pin(pids[1], 1);
	cs_sleep_ms(SETTLE_MS);
	cs_load(cg, &load);
	c = cpu_of(&load, 1);
	REQUIRE(c->util > FULL * 3 / 10 && c->util < FULL * 7 / 10,
		"half a CPU is util=%ld", c->util);
	REQUIRE(near(c->runnable, FULL), "one task has runnable=%ld",
		c->runnable);
	cs_kill(pids[0]);
	cs_kill(pids[1]);
}

/*
 * Load decays with its half-life of 32 ms once its task has stopped, also on a
 * CPU that is idle and updates nothing, and neither at once nor never.
 */
static void load_decays(const char *top)
{
	long util, first = 0;
	long long start;
	char cg[PATH_MAX];
	pid_t pid;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "1\n");
	pid = cs_spinner(cg);
	cs_sleep_ms(SETTLE_MS);
	kill(pid, SIGSTOP);
	start = cs_now_ms();
	util = cs_load_util(cg);
	/* Only if the machine let this be read within the first 20 ms. */
	if (cs_now_ms() - start < 20)
		first = util;
	if (first)
		REQUIRE(first > FULL / 2, "gone at once: util=%ld after %lld ms",
			first, cs_now_ms() - start);
	else
		cs_diag("too slow to look at the start of the decay");
	cs_sleep_ms(SETTLE_MS);
	util = cs_load_util(cg);
	REQUIRE(util < FULL / 50, "util=%ld %d ms after the task stopped",
		util, SETTLE_MS);
	kill(pid, SIGCONT);
	cs_sleep_ms(SETTLE_MS);
	util = cs_load_util(cg);
	REQUIRE(util > FULL * 8 / 10, "util=%ld after it runs again", util);
	cs_kill(pid);
	cs_sleep_ms(SETTLE_MS);
	util = cs_load_util(cg);
	REQUIRE(util < FULL / 50, "util=%ld after the task exited", util);
}

/* A task moved to another cluster is a load there and no more where it was. */
static void load_moves_with_task(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX], none[PATH_MAX];
	long in_a, in_b, round;
	long long usec;
	pid_t pid;

	cs_need_cpus(4);
	cs_mkdir(a, top, "a");
	cs_mkdir(b, top, "b");
	cs_mkdir(none, top, "none");
	cs_write(a, CS_PREF, "1\n");
	cs_write(b, CS_PREF, "3\n");
	pid = cs_spinner(none);
	unpin(pid);
	for (round = 0; round < 4; round++) {
		cs_move(round & 1 ? b : a, pid);
		cs_sleep_ms(SETTLE_MS);
		in_a = cs_load_util(a);
		in_b = cs_load_util(b);
		REQUIRE((round & 1 ? in_b : in_a) > FULL * 8 / 10,
			"round %ld: where the task is, util is %ld", round,
			round & 1 ? in_b : in_a);
		REQUIRE((round & 1 ? in_a : in_b) < FULL / 20,
			"round %ld: where it was, util is %ld", round,
			round & 1 ? in_a : in_b);
	}
	cs_move(none, pid);
	usec = cluster_usec(a) + cluster_usec(b);
	cs_sleep_ms(SETTLE_MS);
	in_a = cs_load_util(a);
	in_b = cs_load_util(b);
	REQUIRE(in_a < FULL / 20 && in_b < FULL / 20,
		"after it left both, util is %ld and %ld", in_a, in_b);
	REQUIRE(cluster_usec(a) + cluster_usec(b) - usec < 50000,
		"time is counted where it was");
	cs_kill(pid);
}

/*
 * Set while its tasks run, a preference counts their load from then on; taken
 * back while they run, it forgets the load, and nothing stays behind for the
 * next time it is set.
 */
static void load_of_running_tasks(const char *top)
{
	char cg[PATH_MAX];
	pid_t pids[2];
	long util;
	int i;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	for (i = 0; i < 2; i++) {
		pids[i] = cs_spinner(cg);
		pin(pids[i], i + 1);
	}
	for (i = 0; i < 3; i++) {
		cs_write(cg, CS_PREF, "1-2\n");
		cs_sleep_ms(SETTLE_MS);
		util = cs_load_util(cg);
		REQUIRE(near(util, 2 * FULL), "two tasks have util=%ld", util);
		cs_write(cg, CS_PREF, "\n");
		cs_sleep_ms(100);
		util = cs_load_util(cg);
		REQUIRE(util < FULL / 20, "without a preference util=%ld",
			util);
	}
	cs_kill(pids[0]);
	cs_kill(pids[1]);
	cs_write(cg, CS_PREF, "1-2\n");
	cs_sleep_ms(SETTLE_MS);
	util = cs_load_util(cg);
	REQUIRE(util < FULL / 50, "util=%ld without any task", util);
}

static const struct cs_test tests[] = {
	{ "stat_counts_time", stat_counts_time, 0 },
	{ "stat_counts_fair_class", stat_counts_fair_class, 0 },
	{ "stat_counts_wakeups", stat_counts_wakeups, 0 },
	{ "stat_counts_home_changes", stat_counts_home_changes, 0 },
	{ "stat_monotonic", stat_monotonic, 0 },
	{ "stat_hierarchical", stat_hierarchical, 0 },
	{ "stat_own_and_below", stat_own_and_below, 0 },
	{ "stat_survives_unsetting", stat_survives_unsetting, 0 },
	{ "stat_without_preference", stat_without_preference, 0 },
	{ "inheriting_shows_cluster", inheriting_shows_cluster, 0 },
	{ "load_format", load_format, 0 },
	{ "load_of_a_spinner", load_of_a_spinner, 0 },
	{ "load_counts_queues", load_counts_queues, 0 },
	{ "load_decays", load_decays, 0 },
	{ "load_moves_with_task", load_moves_with_task, 0 },
	{ "load_of_running_tasks", load_of_running_tasks, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests the figures in cosched.stat and cosched.load.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
