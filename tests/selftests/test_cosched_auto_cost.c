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

/*
 * A look at a thousand clusters, a third of which run now and then.  All that kworkers did
 * is counted, for each 100 ms: 4.2 million instructions on 64 domains of a CPU.  The goal
 * is a million.
 */
static void thousand_clusters(const char *top)
{
	char cg[PATH_MAX], name[16];
	long long ns;
	int i;

	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		cs_mkdir(cg, top, name);
		cs_write(cg, CS_PREF, "auto");
		if (i % 3 == 0)
			ru_gang(&(struct ru_gang_opts){
				.n = 1, .cg = cg, .busy_us = 500, .sleep_us = 30000 });
	}
	cs_sleep_ms(500);
	ns = workers_ns();
	cs_sleep_ms(1000);
	ns = (workers_ns() - ns) / 10;
	ru_figure(ns, "ns", "auto_pass");
	REQUIRE(ns < 5000000, "%lld instructions each 100 ms", ns);
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
