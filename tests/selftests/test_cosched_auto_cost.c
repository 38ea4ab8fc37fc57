// SPDX-License-Identifier: GPL-2.0
/*
 * What automatic homes cost when there are many.  For a guest in parallel virtual time,
 * where a nanosecond is an instruction.
 */

#include "rules_util.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CPU time that the kernel's workers used, in nanoseconds. */
static long long workers_ns(void)
{
	char path[64], comm[32];
	struct dirent *d;
	long long sum = 0, ns;
	DIR *proc = opendir("/proc");
	FILE *f;

	REQUIRE(proc, "/proc: %s", strerror(errno));
	while ((d = readdir(proc))) {
		int pid = atoi(d->d_name);

		if (!pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		f = fopen(path, "r");
		if (!f)
			continue;
		comm[0] = 0;
		if (!fgets(comm, sizeof(comm), f))
			comm[0] = 0;
		fclose(f);
		if (strncmp(comm, "kworker/", 8))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%lld", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	closedir(proc);
	return sum;
}

/* What kworkers do in 100 ms: for all homes, the goal is less than a million instructions. */
static void look(const char *what)
{
	uint64_t since;
	long long ns;

	/* Until homes have come to rest. */
	cs_sleep_ms(500);
	since = ru_now();
	ns = workers_ns();
	/* Interrupts that balance load count, too: long enough for the usual number of them. */
	cs_sleep_ms(1000);
	ns = (workers_ns() - ns) * 100000000 / (long long)(ru_now() - since);
	ru_figure(ns, "ns", what);
	REQUIRE(ns < 1000000, "%s: %lld instructions each 100 ms", what, ns);
}

/*
 * A thousand clusters: first none has a thread, then a third of them have one that works now and
 * then, then all have one, and then all are batch.
 */
static void thousand_clusters(const char *top)
{
	static char cg[1000][PATH_MAX];
	char name[16];
	int i;

	cs_need_controller(top, "cpu");
	for (i = 0; i < ARRAY_LEN(cg); i++) {
		snprintf(name, sizeof(name), "c%d", i);
		cs_mkdir(cg[i], top, name);
		cs_write(cg[i], CS_PREF, "auto");
	}
	look("auto_idle");
	for (i = 0; i < ARRAY_LEN(cg); i += 3)
		ru_gang(&(struct ru_gang_opts){
			.n = 1, .cg = cg[i], .busy_us = 500, .sleep_us = 30000 });
	look("auto_some");
	for (i = 0; i < ARRAY_LEN(cg); i++) {
		if (i % 3)
			ru_gang(&(struct ru_gang_opts){
				.n = 1, .cg = cg[i], .busy_us = 500, .sleep_us = 30000 });
	}
	look("auto_all");
	for (i = 0; i < ARRAY_LEN(cg); i++)
		cs_write(cg[i], "cpu.idle", "1");
	/* The kernel sees that they are batch when it is their turn, and their homes move then. */
	cs_sleep_ms(2000);
	look("auto_batch");
}

static const struct cs_test tests[] = {
	{ "thousand_clusters", thousand_clusters, 300 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Measures what automatic homes cost.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
