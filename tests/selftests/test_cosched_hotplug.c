// SPDX-License-Identifier: GPL-2.0
/*
 * CPUs of a home that go offline and come back: a home has online CPUs only,
 * what was asked for stays, and the tasks run on all the time.
 */

#include "cosched_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The home follows hotplug from a notifier; readers may see it a bit late. */
#define FOLLOW_MS	3000

/* Automatic homes settle in this time. */
#define AUTO_SETTLE_MS	500

static long rounds = 15;

/* Skips unless these CPUs can be taken offline; leaves them online. */
static void need_hotplug(int first, int last)
{
	int cpu, ret;

	cs_need_cpus(last + 1);
	for (cpu = first; cpu <= last; cpu++) {
		ret = cs_try_set_online(cpu, false);
		if (ret == -ENOENT || ret == -EPERM || ret == -EACCES)
			cs_skip("CPU %d cannot be taken offline", cpu);
		REQUIRE(!ret, "CPU %d offline: %s", cpu, strerror(-ret));
		cs_set_online(cpu, true);
	}
}

/* An offline CPU is not in the home; what was asked for reads as before. */
static void leaves_and_returns(const char *top)
{
	char cg[PATH_MAX], child[PATH_MAX], own[PATH_MAX];

	need_hotplug(3, 3);
	cs_mkdir(cg, top, "cg");
	cs_enable(cg);
	cs_mkdir(child, cg, "child");
	cs_mkdir(own, cg, "own");
	cs_write(cg, CS_PREF, "2-3\n");
	cs_write(own, CS_PREF, "1-3\n");
	cs_expect(child, CS_HOME, "2-3");
	cs_expect(own, CS_HOME, "2-3");

	cs_set_online(3, false);
	cs_expect_soon(cg, CS_HOME, "2", FOLLOW_MS);
	cs_expect_soon(child, CS_HOME, "2", FOLLOW_MS);
	cs_expect_soon(own, CS_HOME, "2", FOLLOW_MS);
	cs_expect(cg, CS_PREF, "2-3");
	cs_expect(own, CS_PREF, "1-3");

	cs_set_online(3, true);
	cs_expect_soon(cg, CS_HOME, "2-3", FOLLOW_MS);
	cs_expect_soon(child, CS_HOME, "2-3", FOLLOW_MS);
	cs_expect_soon(own, CS_HOME, "2-3", FOLLOW_MS);
	cs_expect(cg, CS_PREF, "2-3");
}

/*
 * With its last CPU offline, a child's home is its parent's, that of a cluster
 * without a parent's home is empty; with the CPU back it is as before.
 */
static void whole_home_offline(const char *top)
{
	char parent[PATH_MAX], child[PATH_MAX], leaf[PATH_MAX];
	char alone[PATH_MAX];

	need_hotplug(2, 3);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(child, parent, "child");
	cs_enable(child);
	cs_mkdir(leaf, child, "leaf");
	cs_mkdir(alone, top, "alone");
	cs_write(parent, CS_PREF, "0-3\n");
	cs_write(child, CS_PREF, "2-3\n");
	cs_write(alone, CS_PREF, "2-3\n");

	cs_set_online(2, false);
	cs_expect_soon(child, CS_HOME, "3", FOLLOW_MS);
	cs_expect_soon(alone, CS_HOME, "3", FOLLOW_MS);
	cs_set_online(3, false);
	cs_expect_soon(parent, CS_HOME, "0-1", FOLLOW_MS);
	cs_expect_soon(child, CS_HOME, "0-1", FOLLOW_MS);
	cs_expect_soon(leaf, CS_HOME, "0-1", FOLLOW_MS);
	cs_expect_soon(alone, CS_HOME, "", FOLLOW_MS);
	cs_expect(child, CS_PREF, "2-3");
	cs_expect(alone, CS_PREF, "2-3");

	cs_set_online(2, true);
	cs_expect_soon(child, CS_HOME, "2", FOLLOW_MS);
	cs_expect_soon(leaf, CS_HOME, "2", FOLLOW_MS);
	cs_expect_soon(alone, CS_HOME, "2", FOLLOW_MS);
	cs_set_online(3, true);
	cs_expect_soon(parent, CS_HOME, "0-3", FOLLOW_MS);
	cs_expect_soon(child, CS_HOME, "2-3", FOLLOW_MS);
	cs_expect_soon(alone, CS_HOME, "2-3", FOLLOW_MS);
}

/* An offline CPU may be named; it joins the home when it comes online. */
static void offline_cpu_named(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX];

	need_hotplug(3, 3);
	cs_mkdir(a, top, "a");
	cs_mkdir(b, top, "b");
	cs_set_online(3, false);
	cs_write(a, CS_PREF, "3\n");
	cs_expect(a, CS_PREF, "3");
	cs_expect(a, CS_HOME, "");
	cs_write(b, CS_PREF, "1,3\n");
	cs_expect(b, CS_PREF, "1,3");
	cs_expect(b, CS_HOME, "1");
	cs_set_online(3, true);
	cs_expect_soon(a, CS_HOME, "3", FOLLOW_MS);
	cs_expect_soon(b, CS_HOME, "1,3", FOLLOW_MS);
}

/*
 * A CPU that this machine could have but has not may be named, too. Needs a
 * guest that was given room for more CPUs than it has.
 */
static void absent_cpu_named(const char *top)
{
	char cg[PATH_MAX], value[64], want[64];
	cpu_set_t online;
	int last;

	cs_online(&online);
	last = cs_highest_possible();
	if (CPU_ISSET(last, &online))
		cs_skip("every possible CPU is online");
	cs_mkdir(cg, top, "cg");
	snprintf(value, sizeof(value), "0,%d\n", last);
	cs_write(cg, CS_PREF, value);
	snprintf(want, sizeof(want), last == 1 ? "0-%d" : "0,%d", last);
	cs_expect(cg, CS_PREF, want);
	cs_expect(cg, CS_HOME, "0");
}

/* A change of home by hotplug is notified like a change by a write. */
static void hotplug_notifies(const char *top)
{
	char cg[PATH_MAX], other[PATH_MAX], path[2][PATH_MAX], buf[256];
	struct pollfd p[2];
	int i, up;

	need_hotplug(3, 3);
	cs_mkdir(cg, top, "cg");
	cs_mkdir(other, top, "other");
	cs_write(cg, CS_PREF, "2-3\n");
	cs_write(other, CS_PREF, "1\n");
	cs_name(path[0], cg, CS_HOME);
	cs_name(path[1], other, CS_HOME);
	cs_sleep_ms(100);
	for (i = 0; i < 2; i++) {
		p[i].fd = open(path[i], O_RDONLY);
		p[i].events = POLLPRI;
		REQUIRE(p[i].fd >= 0 && read(p[i].fd, buf, sizeof(buf)) > 0,
			"%s: %s", path[i], strerror(errno));
	}
	for (up = 0; up < 2; up++) {
		cs_set_online(3, up);
		REQUIRE(poll(&p[0], 1, FOLLOW_MS) == 1,
			"CPU 3 of the home went %s and nobody was told",
			up ? "online" : "offline");
		lseek(p[0].fd, 0, SEEK_SET);
		REQUIRE(read(p[0].fd, buf, sizeof(buf)) > 0, "read: %s",
			strerror(errno));
		REQUIRE(!strncmp(buf, up ? "2-3\n" : "2\n", up ? 4 : 2),
			"told, but the home is still '%s'", buf);
		REQUIRE(!poll(&p[1], 1, 200),
			"a change was told where the home has no CPU 3");
	}
}

/* The task goes on after its home left, and goes home when that is back. */
static void tasks_run_on(const char *top)
{
	long long usec, pref, all;
	char cg[PATH_MAX];
	pid_t pids[2];
	int i, up;

	need_hotplug(2, 3);
	cs_mkdir(cg, top, "cg");
	cs_write(cg, CS_PREF, "2-3\n");
	for (i = 0; i < 2; i++)
		pids[i] = cs_spinner(cg);
	for (up = 0; up < 2; up++) {
		cs_set_online(2, up);
		cs_set_online(3, up);
		cs_expect_soon(cg, CS_HOME, up ? "2-3" : "", FOLLOW_MS);
		/* Time for strays to return. */
		cs_sleep_ms(500);
		for (i = 0; i < 2; i++)
			cs_stop(pids[i]);
		pref = cs_stat(cg, "preferred_usec");
		all = pref + cs_stat(cg, "outside_usec");
		usec = cs_task_usec(pids[0]) + cs_task_usec(pids[1]);
		for (i = 0; i < 2; i++)
			cs_continue(pids[i]);
		cs_sleep_ms(1000);
		for (i = 0; i < 2; i++)
			cs_stop(pids[i]);
		pref = cs_stat(cg, "preferred_usec") - pref;
		all = cs_stat(cg, "preferred_usec") +
		      cs_stat(cg, "outside_usec") - all;
		usec = cs_task_usec(pids[0]) + cs_task_usec(pids[1]) - usec;
		for (i = 0; i < 2; i++)
			cs_continue(pids[i]);
		REQUIRE(usec > 500000, "home %s: the tasks got only %lld us",
			up ? "back" : "offline", usec);
		if (!up)
			continue;
		REQUIRE(llabs(all - usec) < usec / 10 + 20000,
			"used %lld us, counted %lld", usec, all);
		REQUIRE(pref > all * 9 / 10,
			"home is back: %lld of %lld us there", pref, all);
	}
	for (i = 0; i < 2; i++)
		cs_kill(pids[i]);
}

static void sleep_loop(void *arg)
{
	(void)arg;
	for (;;) {
		long long end = cs_now_ms() + 2;

		while (cs_now_ms() < end)
			;
		cs_sleep_ms(1);
	}
}

/* A cluster with an automatic home has one at any time, without the CPU that just went offline. */
static void has_home_without(const char *cg, int cpu)
{
	char list[1024];
	cpu_set_t home;

	cs_read(cg, CS_HOME, list, sizeof(list));
	REQUIRE(list[0], "no home while CPU %d is offline", cpu);
	cs_parse_cpus(list, &home);
	REQUIRE(!CPU_ISSET(cpu, &home), "home %s, and CPU %d is offline", list, cpu);
}

/* A home of one or more whole LLC domains. */
static bool whole_domains(const char *cg)
{
	static cpu_set_t llcs[CPU_SETSIZE];
	int i, n = cs_llcs(llcs, CPU_SETSIZE);
	char list[1024];
	cpu_set_t home, both;

	cs_read(cg, CS_HOME, list, sizeof(list));
	if (!list[0])
		return false;
	cs_parse_cpus(list, &home);
	for (i = 0; i < n; i++) {
		CPU_AND(&both, &home, &llcs[i]);
		if (CPU_COUNT(&both) && !CPU_EQUAL(&both, &llcs[i]))
			return false;
	}
	return true;
}

/*
 * Hotplug again and again while clusters of running, sleeping and waking tasks
 * have their homes on the CPUs that come and go: in the end all is as before.
 */
static void under_load(const char *top, const char *const homes[4], bool automatic)
{
	char cg[4][PATH_MAX];
	long long usec, end;
	pid_t pids[12];
	int i, round;

	need_hotplug(1, 3);
	for (i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%d", i);
		cs_mkdir(cg[i], top, name);
		cs_write(cg[i], CS_PREF, homes[i]);
	}
	for (i = 0; i < 12; i++)
		pids[i] = i % 3 ? cs_spawn(cg[i % 4], sleep_loop, NULL) :
				  cs_spinner(cg[i % 4]);
	for (round = 0; round < rounds; round++) {
		int cpu = 1 + round % 3;

		cs_set_online(cpu, false);
		for (i = 0; i < 4 && automatic; i++)
			has_home_without(cg[i], cpu);
		if (round & 1) {
			int next = 1 + (round + 1) % 3;

			cs_set_online(next, false);
			for (i = 0; i < 4 && automatic; i++)
				has_home_without(cg[i], next);
			cs_set_online(next, true);
		}
		cs_move(cg[round % 4], pids[round % 12]);
		cs_set_online(cpu, true);
	}
	for (i = 0; i < 4 && !automatic; i++)
		cs_expect_soon(cg[i], CS_HOME, homes[i], FOLLOW_MS);
	end = cs_now_ms() + FOLLOW_MS;
	for (i = 0; i < 4 && automatic; i++) {
		cs_expect(cg[i], CS_PREF, "auto");
		while (!whole_domains(cg[i]) && cs_now_ms() < end)
			cs_sleep_ms(10);
		REQUIRE(whole_domains(cg[i]), "a home of a part of a domain");
	}
	for (i = 0; i < 12; i++) {
		REQUIRE(!kill(pids[i], 0), "task %d died", i);
		usec = cs_task_usec(pids[i]);
		for (round = 0; round < 50 && cs_task_usec(pids[i]) == usec;
		     round++)
			cs_sleep_ms(100);
		REQUIRE(cs_task_usec(pids[i]) > usec, "task %d does not run",
			i);
		cs_kill(pids[i]);
	}
}

static void hotplug_under_load(const char *top)
{
	static const char *const homes[] = { "3", "2-3", "1-3", "0,2" };

	under_load(top, homes, false);
}

/* The same with automatic homes: they have online CPUs all the time, in the end whole domains. */
static void auto_under_load(const char *top)
{
	static const char *const homes[] = { "auto", "auto", "auto", "auto" };

	under_load(top, homes, true);
}

/*
 * A suspend takes all CPUs but the first away and brings them back. Homes are after it what
 * they were before, also those that the kernel chose, and tasks run at home. The machine
 * does all but sleep: nothing could wake it.
 */
static void suspended(const char *top)
{
	static const char *const asked[] = { "2-3", "auto", "auto", "1,3", "auto" };
	char cg[5][PATH_MAX], home[5][64], after[64], name[16];
	long long changes, usec[3], ms;
	pid_t pid[3];
	int i;

	if (!cs_has_file("/sys/power", "pm_test"))
		cs_skip("needs a kernel that can test suspend");
	if (cs_has_file("/sys/power", "mem_sleep") &&
	    cs_try_write("/sys/power", "mem_sleep", "deep"))
		cs_skip("needs a machine that can suspend to memory");
	/* Five seconds if it is not there. */
	cs_try_write("/sys/module/suspend/parameters", "pm_test_delay", "1");
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		cs_mkdir(cg[i], top, name);
		cs_write(cg[i], CS_PREF, asked[i]);
		/* One CPU more than there are tasks, so that all of them can be at home. */
		if (i < 3)
			pid[i] = cs_spinner(cg[i]);
	}
	/* One that the kernel chooses within a home by hand. */
	cs_enable(cg[0]);
	cs_mkdir(cg[4], cg[0], "child");
	cs_write(cg[4], CS_PREF, asked[4]);
	cs_sleep_ms(AUTO_SETTLE_MS);
	for (i = 0; i < 5; i++)
		cs_read(cg[i], CS_HOME, home[i], sizeof(home[i]));
	for (i = 0; i < 3; i++)
		usec[i] = cs_task_usec(pid[i]);
	changes = cs_stat(cg[0], "home_changes");

	cs_write("/sys/power", "pm_test", "processors");
	ms = cs_now_ms();
	cs_write("/sys/power", "state", "mem");
	cs_diag("back after %lld ms", cs_now_ms() - ms);
	cs_write("/sys/power", "pm_test", "none");

	for (i = 0; i < 5; i++) {
		cs_expect(cg[i], CS_HOME, home[i]);
		cs_expect(cg[i], CS_PREF, asked[i]);
	}
	/* Its two CPUs went one by one, and came back. */
	changes = cs_stat(cg[0], "home_changes") - changes;
	REQUIRE(changes >= 3, "%lld changes of a home whose CPUs went and came", changes);
	for (i = 0; i < 3; i++)
		REQUIRE(cs_task_usec(pid[i]) >= usec[i], "task %d has lost time", i);
	/* The kernel looks again, and has no reason to choose others. */
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	for (i = 0; i < 5; i++) {
		cs_read(cg[i], CS_HOME, after, sizeof(after));
		cs_diag("c%d: home %s, then %s", i, home[i], after);
		REQUIRE(!strcmp(home[i], after), "home %s became %s", home[i], after);
	}
	for (i = 0; i < 3; i++) {
		cpu_set_t set;
		int at_home = 0, n;

		cs_parse_cpus(home[i], &set);
		usec[i] = cs_task_usec(pid[i]);
		for (n = 0; n < 20; n++) {
			at_home += CPU_ISSET(cs_task_cpu(pid[i]), &set);
			cs_sleep_ms(10);
		}
		REQUIRE(cs_task_usec(pid[i]) - usec[i] > 50000, "task %d does not run", i);
		REQUIRE(at_home >= 18, "task %d was at home %d of 20 times", i, at_home);
	}
}

static const struct cs_test tests[] = {
	{ "leaves_and_returns", leaves_and_returns, 0 },
	{ "whole_home_offline", whole_home_offline, 0 },
	{ "offline_cpu_named", offline_cpu_named, 0 },
	{ "absent_cpu_named", absent_cpu_named, 0 },
	{ "hotplug_notifies", hotplug_notifies, 0 },
	{ "tasks_run_on", tasks_run_on, 0 },
	{ "hotplug_under_load", hotplug_under_load, 180 },
	{ "auto_under_load", auto_under_load, 180 },
	{ "suspended", suspended, 0 },
};

static const struct cs_option options[] = {
	{ "rounds", "of hotplug under load, default 15", &rounds, NULL, NULL },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests homes whose CPUs go offline and come back.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.options = options,
		.noptions = ARRAY_LEN(options),
	};

	return cs_main(argc, argv, &program);
}
