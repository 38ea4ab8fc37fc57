// SPDX-License-Identifier: GPL-2.0
/*
 * What automatic homes cost when there are many.  For a guest in parallel virtual time,
 * where a nanosecond is an instruction.
 */

#include "rules_util.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

#define NODES		4
#define DEBUG		"/sys/kernel/debug/sched/numa_balancing"

/*
 * Of each cluster.  One thread has more memory than the MiB that the kernel needs to have seen, the
 * others have a little.
 */
#define THREADS		4
#define PAGES		320
#define PAGES_OTHER	16

/* Of a process: its threads so far, and those that have their memory. */
struct process {
	volatile char *mem;
	int threads;
	volatile int ready;
	int scanned[2];		/* a pipe that is closed when its memory was scanned */
};

/* The processes whose memory was scanned. */
static volatile int *nr_known;

static void touch(volatile char *mem, int pages)
{
	long page = sysconf(_SC_PAGESIZE);
	int i;

	for (i = 0; i < pages; i++)
		mem[i * page]++;
}

static long long faults_of(pid_t pid, pid_t tid)
{
	char path[64], line[256];
	long long faults = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/sched", pid, tid);
	f = fopen(path, "r");
	REQUIRE(f, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f) &&
	       sscanf(line, "total_numa_faults : %lld", &faults) != 1)
		;
	fclose(f);
	return faults;
}

static void *sleeper(void *arg)
{
	struct process *p = arg;
	volatile char *mem;
	char byte;

	mem = p->mem + (PAGES + __atomic_fetch_add(&p->threads, 1, __ATOMIC_RELAXED) *
			PAGES_OTHER) * sysconf(_SC_PAGESIZE);
	touch(mem, PAGES_OTHER);
	__atomic_add_fetch(&p->ready, 1, __ATOMIC_RELAXED);
	if (read(p->scanned[0], &byte, 1))
		_exit(1);
	touch(mem, PAGES_OTHER);
	for (;;)
		pause();
	return NULL;
}

/*
 * A cluster's process, with its memory on the node *@arg: one thread works for 0.5 ms of 30, the
 * others sleep, and all have faults.
 */
static void process(void *arg)
{
	static struct process p;
	pthread_attr_t attr;
	unsigned long nodes = 1UL << *(int *)arg;
	pthread_t thread;
	uint64_t t;
	int i;

	/* Bound, as it would take long if a hundred thousand pages moved. */
	if (syscall(SYS_set_mempolicy, MPOL_BIND | MPOL_F_NUMA_BALANCING, &nodes, 64))
		_exit(1);
	p.mem = mmap(NULL, (PAGES + THREADS * PAGES_OTHER) * sysconf(_SC_PAGESIZE),
		     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p.mem == MAP_FAILED || pipe(p.scanned))
		_exit(1);
	touch(p.mem, PAGES);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
	for (i = 1; i < THREADS; i++) {
		if (pthread_create(&thread, &attr, sleeper, &p))
			_exit(1);
	}
	while (p.ready != THREADS - 1)
		cs_sleep_ms(10);
	/*
	 * In every 100 ms that it has run, NUMA balancing scans all of the process, so that
	 * what is touched next faults, and with the first of these faults those before count.
	 */
	do {
		for (t = ru_now(); ru_now() - t < 20000000;) {
			for (i = 0; i < 500; i++)
				__builtin_ia32_pause();
		}
		touch(p.mem, PAGES);
	} while (faults_of(getpid(), getpid()) < 256);
	close(p.scanned[1]);
	__atomic_fetch_add(nr_known, 1, __ATOMIC_RELAXED);
	for (;;) {
		touch(p.mem, PAGES);
		for (t = ru_now(); ru_now() - t < 500000;)
			ru_unit_of_work();
		cs_sleep_ms(30);
	}
}

/*
 * A thousand clusters of four threads each, whose memory NUMA balancing knows: the walk over
 * all threads of a cluster that adds up their faults is part of a look.
 */
static void nodes_thousand_clusters(const char *top)
{
	static char cg[1000][PATH_MAX];
	long long start;
	char name[64];
	int i;

	snprintf(name, sizeof(name), "/sys/devices/system/node/node%d", NODES - 1);
	if (!cs_has_file(name, "cpulist"))
		cs_skip("needs %d nodes", NODES);
	if (cs_try_write("/proc/sys/kernel", "numa_balancing", "1"))
		cs_skip("needs NUMA balancing");
	cs_need_controller(top, "cpu");
	cs_write(DEBUG, "scan_delay_ms", "1");
	cs_write(DEBUG, "scan_period_min_ms", "100");
	cs_write(DEBUG, "scan_period_max_ms", "100");
	for (i = 0; i < ARRAY_LEN(cg); i++) {
		snprintf(name, sizeof(name), "c%d", i);
		cs_mkdir(cg[i], top, name);
		cs_write(cg[i], CS_PREF, "auto");
	}
	look("auto_nodes_idle");
	start = cs_now_ms();
	nr_known = mmap(NULL, sizeof(*nr_known), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	REQUIRE(nr_known != MAP_FAILED, "mmap: %s", strerror(errno));
	for (i = 0; i < ARRAY_LEN(cg); i++) {
		cs_spawn(cg[i], process, &(int){ i % NODES });
		/* At most one for each CPU at a time: they run until they are known. */
		while (i - *nr_known >= 60 || (i == ARRAY_LEN(cg) - 1 && *nr_known <= i)) {
			REQUIRE(cs_now_ms() - start < 60000, "memory of %d clusters is known",
				*nr_known);
			cs_sleep_ms(10);
		}
	}
	cs_write(DEBUG, "scan_period_max_ms", "60000");
	cs_write(DEBUG, "scan_period_min_ms", "1000");
	cs_diag("the memory of all is known after %lld ms", cs_now_ms() - start);
	/* Each cluster's faults are read every 6 s: 16 clusters' at a look. */
	cs_sleep_ms(7000);
	look("auto_nodes_all");
	/* The same load where the kernel does not know where memory is. */
	cs_write("/proc/sys/kernel", "numa_balancing", "0");
	look("auto_nodes_all_unknown");
	cs_write("/proc/sys/kernel", "numa_balancing", "1");
	for (i = 0; i < ARRAY_LEN(cg); i++)
		cs_write(cg[i], "cpu.idle", "1");
	cs_sleep_ms(2000);
	look("auto_nodes_batch");
}

static const struct cs_test tests[] = {
	{ "thousand_clusters", thousand_clusters, 300 },
	{ "nodes_thousand_clusters", nodes_thousand_clusters, 300 },
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
