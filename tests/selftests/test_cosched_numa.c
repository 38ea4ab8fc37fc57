// SPDX-License-Identifier: GPL-2.0
/*
 * Homes and NUMA balancing: an automatic home goes to the memory of its cluster, and a home set by
 * hand keeps its tasks from their memory.  Where memory is bound to a node, nothing else can bring
 * the two together; else it comes to the home.  Every test needs four nodes with an LLC domain or
 * more each.  Meant for a guest in parallel virtual time; see rules_util.h.
 */

#include "rules_util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES		4
#define DEBUG		"/sys/kernel/debug/sched/numa_balancing"
#define NUMA_SYSCTL	"/proc/sys/kernel"

/* Where a task has its memory, as numa_maps shows it. */
#define MEM_AT		0x100000000000

/* For each task; together more than the MiB of memory that the kernel needs to have seen. */
#define PAGES		512
#define TASKS		3

/* The kernel looks at a cluster's memory once a second, after two scans or three. */
#define FOLLOW_MS	4000

static cpu_set_t node_cpus(int node)
{
	char dir[64], list[1024];
	cpu_set_t set;

	snprintf(dir, sizeof(dir), "/sys/devices/system/node/node%d", node);
	if (cs_try_read(dir, "cpulist", list, sizeof(list)) < 0)
		cs_skip("needs %d nodes", NODES);
	cs_parse_cpus(list, &set);
	return set;
}

static void need_balancing(void)
{
	node_cpus(NODES - 1);
	if (cs_try_write(NUMA_SYSCTL, "numa_balancing", "1"))
		cs_skip("needs NUMA balancing");
	/* Scans are as fast as they may be, as the test waits for their faults. */
	cs_write(DEBUG, "scan_delay_ms", "100");
	cs_write(DEBUG, "scan_period_min_ms", "100");
	cs_write(DEBUG, "scan_period_max_ms", "200");
}

static volatile char *mem_on(int node, size_t pages)
{
	unsigned long nodes = 1UL << node;
	size_t page = sysconf(_SC_PAGESIZE), i;
	volatile char *mem;

	if (syscall(SYS_set_mempolicy, MPOL_BIND | MPOL_F_NUMA_BALANCING, &nodes, 64))
		_exit(1);
	mem = mmap((void *)MEM_AT, pages * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (mem == MAP_FAILED)
		_exit(1);
	for (i = 0; i < pages; i++)
		mem[i * page]++;
	return mem;
}

/* Touches @pages of memory now and then, and else just runs. */
static void touch(volatile char *mem, size_t pages)
{
	size_t page = sysconf(_SC_PAGESIZE), i;

	for (;;) {
		for (i = 0; i < pages; i++)
			mem[i * page]++;
		for (i = 0; i < 5000; i++)
			__builtin_ia32_pause();
	}
}

/* Its memory stays on the node *@arg. */
static void work(void *arg)
{
	touch(mem_on(*(int *)arg, PAGES), PAGES);
}

/* Its memory is on the node *@arg at first, and may move. */
static void work_free(void *arg)
{
	volatile char *mem = mem_on(*(int *)arg, PAGES);

	if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0))
		_exit(1);
	touch(mem, PAGES);
}

/* How many pages of its memory a task has on each node. */
static void pages_of(pid_t pid, int on[NODES])
{
	char path[64], line[1024], *at;
	FILE *f;
	int node;

	memset(on, 0, NODES * sizeof(on[0]));
	snprintf(path, sizeof(path), "/proc/%d/numa_maps", pid);
	f = fopen(path, "r");
	if (!f)
		cs_skip("needs %s", path);
	while (fgets(line, sizeof(line), f)) {
		if (strtoull(line, NULL, 16) != MEM_AT)
			continue;
		for (at = line; (at = strstr(at, " N")); at++) {
			int n;

			if (sscanf(at, " N%d=%d", &node, &n) == 2 && node < NODES)
				on[node] += n;
		}
	}
	fclose(f);
}

static cpu_set_t home_of(const char *cg)
{
	char list[1024];
	cpu_set_t set;

	cs_read(cg, CS_HOME, list, sizeof(list));
	cs_parse_cpus(list, &set);
	cs_diag("home %s", list);
	return set;
}

static int node_of(const cpu_set_t *home)
{
	int node;

	for (node = 0; node < NODES; node++) {
		cpu_set_t cpus = node_cpus(node), both = ru_and(&cpus, home);

		if (CPU_EQUAL(&both, home))
			return node;
	}
	cs_fail("a home on several nodes");
}

static void start(const char *cg, int node, pid_t *pid)
{
	int i;

	for (i = 0; i < TASKS; i++)
		pid[i] = cs_spawn(cg, work, &node);
}

static long long faults_on(pid_t pid, int node)
{
	char path[64], line[256];
	long long sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/sched", pid);
	f = fopen(path, "r");
	REQUIRE(f, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		long long private, shared;
		int nid;

		if (sscanf(line, "numa_faults node=%d task_private=%lld task_shared=%lld",
			   &nid, &private, &shared) == 3 && nid == node)
			sum += private + shared;
	}
	fclose(f);
	return sum;
}

/* The home moves to where the memory is, once, and the tasks go with it. */
static void home_follows_memory(const char *top)
{
	long long moves, preferred, outside;
	cpu_set_t home, there;
	char cg[PATH_MAX];
	pid_t pid[TASKS];
	int from, to;

	need_balancing();
	cs_mkdir(cg, top, "a");
	cs_write(cg, CS_PREF, "auto");
	home = home_of(cg);
	from = node_of(&home);
	to = (from + 2) % NODES;
	start(cg, to, pid);
	cs_sleep_ms(FOLLOW_MS);
	cs_diag("%lld faults on node %d, %lld on node %d", faults_on(pid[0], from), from,
		faults_on(pid[0], to), to);
	home = home_of(cg);
	there = node_cpus(to);
	REQUIRE(CPU_EQUAL(&home, &there), "memory is on node %d, home is not", to);

	moves = cs_stat(cg, "home_changes");
	preferred = cs_stat(cg, "preferred_usec");
	outside = cs_stat(cg, "outside_usec");
	cs_sleep_ms(2000);
	REQUIRE(cs_stat(cg, "home_changes") == moves, "moves on");
	preferred = cs_stat(cg, "preferred_usec") - preferred;
	outside = cs_stat(cg, "outside_usec") - outside;
	REQUIRE(preferred > 19 * outside, "%lld us at home, %lld outside", preferred, outside);
}

/* More than all files together that the guest has. */
#define FILE_SIZE	(64l << 20)

/* A file all of which is on @node. */
static int file_on(int node)
{
	unsigned long nodes = 1UL << node;
	int fd = memfd_create("file", 0);

	REQUIRE(fd >= 0, "memfd_create: %s", strerror(errno));
	REQUIRE(!syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 64), "set_mempolicy: %s",
		strerror(errno));
	REQUIRE(!posix_fallocate(fd, 0, FILE_SIZE), "no memory on node %d", node);
	REQUIRE(!syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), "set_mempolicy: %s",
		strerror(errno));
	return fd;
}

/*
 * There are no tasks yet whose memory could be known, and no domain is better than another: a new
 * home is where most of the page cache is, but not beside another home.
 */
static void new_ones_near_files(const char *top)
{
	cpu_set_t home, other, there;
	char cg[2][PATH_MAX];
	int fd, node;

	for (node = NODES - 1; node >= 0; node--) {
		there = node_cpus(node);
		fd = file_on(node);
		/* Until the load of the task that wrote it is forgotten. */
		cs_sleep_ms(300);
		cs_mkdir(cg[0], top, "a");
		cs_mkdir(cg[1], top, "b");
		cs_write(cg[0], CS_PREF, "auto");
		cs_write(cg[1], CS_PREF, "auto");
		home = home_of(cg[0]);
		other = home_of(cg[1]);
		REQUIRE(CPU_EQUAL(&home, &there), "files are on node %d, the home is not", node);
		REQUIRE(node_of(&other) != node, "both on node %d", node);
		cs_rmdir(cg[0]);
		cs_rmdir(cg[1]);
		close(fd);
	}
}

/* Tasks that ran before there was a home: the first one is where their memory is already. */
static void running_ones_near_memory(const char *top)
{
	cpu_set_t home, there, from;
	char cg[PATH_MAX], before[PATH_MAX];
	pid_t pid[TASKS];
	int i, node;

	need_balancing();
	/*
	 * With an automatic home there already, the next look is not the first one at this
	 * machine, which asks where the memory of each cluster is, whether it is new or not.
	 */
	cs_mkdir(before, top, "before");
	cs_write(before, CS_PREF, "auto");
	cs_sleep_ms(300);
	for (node = NODES - 1; node >= 0; node--) {
		from = node_cpus((node + 1) % NODES);
		there = node_cpus(node);
		cs_mkdir(cg, top, "a");
		start(cg, node, pid);
		for (i = 0; i < TASKS; i++)
			REQUIRE(!sched_setaffinity(pid[i], sizeof(from), &from), "%s",
				strerror(errno));
		cs_sleep_ms(1000);
		cs_diag("%lld faults on node %d", faults_on(pid[0], node), node);
		cs_write(cg, CS_PREF, "auto");
		home = home_of(cg);
		REQUIRE(CPU_EQUAL(&home, &there), "memory is on node %d, home is not", node);
		for (i = 0; i < TASKS; i++)
			cs_kill(pid[i]);
		cs_rmdir(cg);
	}
}

/* Without NUMA balancing the kernel does not know where memory is, and a home stays where it is. */
static void balancing_off(const char *top)
{
	cpu_set_t home, before;
	char cg[PATH_MAX];
	pid_t pid[TASKS];
	int i, memory, tries;

	need_balancing();
	cs_write(NUMA_SYSCTL, "numa_balancing", "0");
	cs_mkdir(cg, top, "a");
	cs_write(cg, CS_PREF, "auto");
	before = home_of(cg);
	/*
	 * In the first looks the home may move away from what other tasks do, and go to the very
	 * node where the memory is. If it does, try again.
	 */
	for (tries = 0;; tries++) {
		/* A new home is on the first of equal nodes: not there. */
		memory = node_of(&before) == 3 ? 2 : 3;
		start(cg, memory, pid);
		cs_sleep_ms(500);
		before = home_of(cg);
		if (node_of(&before) != memory)
			break;
		REQUIRE(tries < 3, "it is there already");
		for (i = 0; i < TASKS; i++)
			cs_kill(pid[i]);
		cs_sleep_ms(500);
		before = home_of(cg);
	}
	cs_sleep_ms(FOLLOW_MS);
	home = home_of(cg);
	REQUIRE(CPU_EQUAL(&home, &before), "it moved");
	cs_write(NUMA_SYSCTL, "numa_balancing", "1");
	cs_sleep_ms(FOLLOW_MS);
	home = home_of(cg);
	REQUIRE(node_of(&home) == memory, "and does not when that is known");
}

/*
 * A home set by hand, and memory elsewhere: NUMA balancing, which knows where, takes no
 * task out of home, so none has to return.
 */
static void home_wins(const char *top)
{
	long long returned, preferred, outside;
	char cg[PATH_MAX], name[16];
	cpu_set_t cpus;
	pid_t pid[TASKS];
	int node;

	need_balancing();
	/* All CPUs that their memory is at are idle. */
	node = 1;
	cpus = node_cpus(node);
	snprintf(name, sizeof(name), "n%d", node);
	cs_mkdir(cg, top, name);
	ru_prefer(cg, &cpus);
	start(cg, 3, pid);
	cs_sleep_ms(1000);
	returned = cs_stat(cg, "strays_returned") + cs_stat(cg, "strays_swapped");
	preferred = cs_stat(cg, "preferred_usec");
	outside = cs_stat(cg, "outside_usec");
	cs_sleep_ms(2000);
	REQUIRE(faults_on(pid[0], 3) > PAGES / 4, "only %lld faults on node 3",
		faults_on(pid[0], 3));
	returned = cs_stat(cg, "strays_returned") + cs_stat(cg, "strays_swapped") - returned;
	preferred = cs_stat(cg, "preferred_usec") - preferred;
	outside = cs_stat(cg, "outside_usec") - outside;
	cs_diag("%lld us at home, %lld outside, %lld returned", preferred, outside, returned);
	/* A kernel thread may displace one for a moment. */
	REQUIRE(returned <= 2, "%lld tasks had to return", returned);
	REQUIRE(preferred > 99 * outside, "%lld us at home, %lld outside", preferred, outside);
}

/*
 * A home set by hand, and memory elsewhere that may move: it comes, and the tasks stay at home
 * meanwhile.
 */
static void memory_comes(const char *top)
{
	int i, from = 3, to = 1, before[NODES], after[NODES];
	long long preferred, outside;
	cpu_set_t cpus;
	char cg[PATH_MAX];
	pid_t pid[TASKS];

	need_balancing();
	cs_mkdir(cg, top, "a");
	cpus = node_cpus(to);
	ru_prefer(cg, &cpus);
	for (i = 0; i < TASKS; i++)
		pid[i] = cs_spawn(cg, work_free, &from);
	cs_sleep_ms(50);
	for (i = 0; i < TASKS; i++) {
		pages_of(pid[i], before);
		REQUIRE(before[from] > PAGES * 9 / 10, "%d pages on node %d at the start",
			before[from], from);
	}
	preferred = cs_stat(cg, "preferred_usec");
	outside = cs_stat(cg, "outside_usec");
	cs_sleep_ms(FOLLOW_MS);
	for (i = 0; i < TASKS; i++) {
		pages_of(pid[i], after);
		cs_diag("task %d: %d pages at home, %d on node %d", i, after[to], after[from],
			from);
		REQUIRE(after[to] > PAGES * 9 / 10, "%d of %d pages came home", after[to], PAGES);
	}
	preferred = cs_stat(cg, "preferred_usec") - preferred;
	outside = cs_stat(cg, "outside_usec") - outside;
	REQUIRE(preferred > 99 * outside, "%lld us at home, %lld outside", preferred, outside);
}

/*
 * Tasks of no cluster have their memory at a home, whose tasks have theirs where the others run,
 * and no CPU anywhere is idle: NUMA balancing would have each of the ones change places with one of
 * the others, which would leave its home.
 */
static void no_swap_out_of_home(const char *top)
{
	static const int home = 3, away = 1;
	long long returned, preferred, outside;
	struct ru_trace trace;
	char cg[PATH_MAX], other[PATH_MAX];
	cpu_set_t cpus;
	pid_t pid[RU_CPUS], last = 0;
	int i, node, n = 0;

	need_balancing();
	cs_mkdir(cg, top, "a");
	cpus = node_cpus(home);
	ru_prefer(cg, &cpus);
	cs_mkdir(other, top, "other");
	for (node = 0; node < NODES; node++) {
		cpu_set_t all = node_cpus(node);

		if (node != home && node != away)
			ru_gang(&(struct ru_gang_opts){
				.n = CPU_COUNT(&all), .start = all, .one_each = true });
	}
	for (i = 0; i < CPU_COUNT(&cpus); i++)
		cs_spawn(cg, work, (void *)&away);
	cs_sleep_ms(200);
	cpus = node_cpus(away);
	for (i = 0; i < CPU_COUNT(&cpus); i++) {
		pid[n] = cs_spawn(other, work, (void *)&home);
		REQUIRE(!sched_setaffinity(pid[n], sizeof(cpus), &cpus), "%s", strerror(errno));
		n++;
	}
	cs_sleep_ms(200);
	cpus = ru_topo()->online;
	for (i = 0; i < n; i++)
		REQUIRE(!sched_setaffinity(pid[i], sizeof(cpus), &cpus), "%s", strerror(errno));
	last = pid[n - 1];
	returned = cs_stat(cg, "strays_returned") + cs_stat(cg, "strays_swapped");
	preferred = cs_stat(cg, "preferred_usec");
	outside = cs_stat(cg, "outside_usec");
	ru_trace_start();
	ru_trace_also("sched/sched_swap_numa");
	ru_trace_also("sched/sched_stick_numa");
	cs_sleep_ms(2000);
	ru_trace_stop(&trace);
	REQUIRE(faults_on(last, home) > PAGES / 4, "only %lld faults on node %d",
		faults_on(last, home), home);
	returned = cs_stat(cg, "strays_returned") + cs_stat(cg, "strays_swapped") - returned;
	preferred = cs_stat(cg, "preferred_usec") - preferred;
	outside = cs_stat(cg, "outside_usec") - outside;
	cs_diag("%d swaps, %d refused; %lld us at home, %lld outside, %lld returned",
		ru_count(&trace, NULL, "sched_swap_numa", NULL),
		ru_count(&trace, NULL, "sched_stick_numa", NULL), preferred, outside, returned);
	REQUIRE(!ru_count(&trace, NULL, "sched_swap_numa", NULL), "swapped");
	REQUIRE(returned <= 2, "%lld tasks had to return", returned);
	REQUIRE(preferred > 99 * outside, "%lld us at home, %lld outside", preferred, outside);
}

/* All of it is written by each of the threads. */
#define SHARED_PAGES	2048

struct sharing {
	int node;
	int threads;
};

static void *share(void *arg)
{
	touch(arg, SHARED_PAGES);
	return NULL;
}

static void work_sharing(void *arg)
{
	const struct sharing *s = arg;
	volatile char *mem = mem_on(s->node, SHARED_PAGES);
	pthread_t thread;
	int i;

	if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0))
		_exit(1);
	for (i = 1; i < s->threads; i++) {
		if (pthread_create(&thread, NULL, share, (void *)mem))
			_exit(1);
	}
	share((void *)mem);
}

/* Pages that NUMA balancing has brought to the threads of @pid, all together. */
static long long migrated(pid_t pid)
{
	char path[300], line[256];
	long long n, sum = 0;
	struct dirent *d;
	bool found = false;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	REQUIRE(tasks, "%s: %s", path, strerror(errno));
	while ((d = readdir(tasks))) {
		FILE *f;

		if (!atoi(d->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/sched", pid, d->d_name);
		f = fopen(path, "r");
		REQUIRE(f, "%s: %s", path, strerror(errno));
		while (fgets(line, sizeof(line), f)) {
			if (sscanf(line, "numa_pages_migrated : %lld", &n) != 1)
				continue;
			sum += n;
			found = true;
		}
		fclose(f);
	}
	closedir(tasks);
	REQUIRE(found, "no numa_pages_migrated");
	return sum;
}

/*
 * A home of two nodes, with a thread on each CPU, all of which share memory that is on one of the
 * nodes at first: the kernel spreads it over both, and then leaves it there.
 */
static void shared_memory_is_spread(const char *top)
{
	struct sharing s = { .node = 0 };
	long long moved, preferred, outside;
	int i, before[NODES], after[NODES];
	cpu_set_t first = node_cpus(0), home = node_cpus(1);
	char cg[PATH_MAX];
	pid_t pid;

	need_balancing();
	home = ru_or(&home, &first);
	cs_mkdir(cg, top, "a");
	ru_prefer(cg, &home);
	s.threads = CPU_COUNT(&home);
	pid = cs_spawn(cg, work_sharing, &s);
	/* How long it takes depends on when tasks are scanned. */
	for (i = 0; i < 4; i++) {
		cs_sleep_ms(FOLLOW_MS);
		pages_of(pid, before);
		cs_diag("pages on nodes: %d, %d, %d, %d", before[0], before[1], before[2],
			before[3]);
		if (before[1] > SHARED_PAGES / 4)
			break;
	}
	for (i = 0; i < 2; i++)
		REQUIRE(before[i] > SHARED_PAGES / 4, "%d pages on node %d", before[i], i);
	REQUIRE(before[2] + before[3] < SHARED_PAGES / 20, "pages where there is no home");

	moved = migrated(pid);
	preferred = cs_stat(cg, "preferred_usec");
	outside = cs_stat(cg, "outside_usec");
	cs_sleep_ms(FOLLOW_MS);
	moved = migrated(pid) - moved;
	pages_of(pid, after);
	cs_diag("pages on nodes: %d, %d, %d, %d; %lld migrated meanwhile", after[0], after[1],
		after[2], after[3], moved);
	for (i = 0; i < 2; i++)
		REQUIRE(after[i] > SHARED_PAGES / 4, "%d pages on node %d", after[i], i);
	REQUIRE(moved < SHARED_PAGES / 2, "%lld pages go to and fro", moved);
	preferred = cs_stat(cg, "preferred_usec") - preferred;
	outside = cs_stat(cg, "outside_usec") - outside;
	REQUIRE(preferred > 99 * outside, "%lld us at home, %lld outside", preferred, outside);
}

static const struct cs_test tests[] = {
	{ "home_follows_memory", home_follows_memory, 0 },
	{ "new_ones_near_files", new_ones_near_files, 0 },
	{ "running_ones_near_memory", running_ones_near_memory, 0 },
	{ "balancing_off", balancing_off, 0 },
	{ "home_wins", home_wins, 0 },
	{ "memory_comes", memory_comes, 0 },
	{ "no_swap_out_of_home", no_swap_out_of_home, 0 },
	{ "shared_memory_is_spread", shared_memory_is_spread, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests homes and NUMA balancing.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
