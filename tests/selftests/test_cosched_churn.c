// SPDX-License-Identifier: GPL-2.0
/*
 * A thousand clusters created and removed while their tasks fork, exec, exit
 * and move between them, their homes and weights are rewritten and, in one of
 * the tests, CPUs go offline and come back. What must hold: the kernel
 * survives it (on a debug kernel, without a report), cgroups that are left
 * alone keep what they have, and in the end nothing is left behind.
 */

#include "cosched_util.h"

#include <errno.h>
#include <limits.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXEC_ARG	"--churn-exec"	/* what an exec'ed task is told by */
#define WORKERS		4
#define MAX_TASKS	10		/* alive at once, of each worker */
#define THREADED	12		/* threaded clusters */
#define MOVERS		3		/* threads that move among them */
/* Removed cgroups go when the last RCU callback ran. */
#define GONE_MS		60000

static long seconds = 20;
static long clusters = 1000;
static long seed = 1;
static bool quotas_too;		/* there is the cpu controller */

/* What was done, counted over all processes. */
static struct counts {
	long created;
	long removed;
	long moves;
	long forks;
	long into;		/* of them straight into the cluster */
	long execs;
	long thread_moves;
	long writes;
	long toggles;
	long hotplugs;
	long filled;		/* workers that have made all of theirs once */
} *counts;

static void count(long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static const char *const homes[] = {
	"0\n", "1\n", "0-1\n", "1,3\n", "2-3\n", "0-3\n", "3\n", "auto\n", "\n",
};

/* Groups that are throttled now and then, some of them while a task of theirs has just woken up. */
static const char *const quotas[] = {
	"1000 5000\n", "2000 10000\n", "30000 20000\n", "max\n",
};

static const char *const weights[] = {
	"1 100\n", "100 150\n", "4 1000\n", "10000 1\n", "\n",
};

struct worker {
	char top[PATH_MAX];
	unsigned int random;
	int slots;
	bool *there;
	pid_t tasks[MAX_TASKS];
	long long end;
};

static unsigned int pick(struct worker *w, unsigned int n)
{
	return rand_r(&w->random) % n;
}

static void slot_name(const struct worker *w, int slot, char *path)
{
	char name[16];

	snprintf(name, sizeof(name), "c%d", slot);
	cs_name(path, w->top, name);
}

/* For a cgroup that only this process removes: a valid value must be accepted. */
static void rewrite(struct worker *w, const char *cg)
{
	unsigned int what = pick(w, 6);

	if (what == 0 && cs_has_file(cg, "cpu.max"))
		cs_write(cg, "cpu.max", quotas[pick(w, ARRAY_LEN(quotas))]);
	else if (what <= 2)
		cs_write(cg, CS_WEIGHTS, weights[pick(w, ARRAY_LEN(weights))]);
	else
		cs_write(cg, CS_PREF, homes[pick(w, ARRAY_LEN(homes))]);
	count(&counts->writes);
}

static void burn(unsigned int us)
{
	struct timespec from, now;

	clock_gettime(CLOCK_MONOTONIC, &from);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - from.tv_sec) * 1000000L +
		 (now.tv_nsec - from.tv_nsec) / 1000 < (long)us);
}

static void exec_self(void)
{
	char *const argv[] = { "churn", EXEC_ARG, NULL };
	char *const envp[] = { NULL };

	count(&counts->execs);
	execve("/proc/self/exe", argv, envp);
	_exit(1);
}

static void *thread_exec(void *arg)
{
	(void)arg;
	burn(500);
	/* Not the leader: the kernel kills the other threads, and this one takes its place. */
	exec_self();
	return NULL;
}

static void *thread_burn(void *arg)
{
	burn((uintptr_t)arg);
	return NULL;
}

/*
 * A cgroup with the controller enabled for another populated one takes no
 * tasks: EBUSY; and one below a cgroup that has tasks itself is an invalid
 * domain: EOPNOTSUPP. Both come and go as the others move on.
 */
static bool may_fail_to_move(int ret)
{
	return !ret || ret == -EBUSY || ret == -EOPNOTSUPP;
}

static void task_threads(void)
{
	pthread_t threads[3];
	int i;

	for (i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL,
				   i == 2 ? thread_exec : thread_burn,
				   (void *)(uintptr_t)(1000 * (i + 1))))
			_exit(1);
	for (;;)
		pause();
}

static void task_forks(void)
{
	int i;

	for (i = 0; i < 4; i++) {
		pid_t pid = fork();

		if (!pid) {
			burn(300);
			_exit(0);
		}
		count(&counts->forks);
		/* Some children are left to the process that reaps orphans. */
		if (pid > 0 && i & 1)
			waitpid(pid, NULL, 0);
	}
}

/* Moves itself until it is killed; the clusters may vanish under it. */
static void task_moves(struct worker *w)
{
	char cg[PATH_MAX];
	int ret;

	for (;;) {
		slot_name(w, pick(w, w->slots), cg);
		ret = cs_try_move(cg, 0);
		REQUIRE(may_fail_to_move(ret) || ret == -ENOENT ||
			ret == -ENODEV, "move to %s: %s", cg, strerror(-ret));
		if (!ret)
			count(&counts->moves);
		burn(1000);
		cs_sleep_ms(1);
	}
}

static void run_task(struct worker *w, int kind)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0, 0);
	switch (kind) {
	case 0:
		burn(1000 + pick(w, 4000));
		break;
	case 1:
		exec_self();
		break;
	case 2:
		task_forks();
		break;
	case 3:
		/* Not for ever, or in the end there would be nothing else. */
		burn(300000);
		break;
	case 4:
		for (;;) {
			burn(200);
			cs_sleep_ms(1);
		}
	case 5:
		task_threads();
		break;
	case 6:
		task_moves(w);
	}
	_exit(0);
}

/* A fork whose child is in the cgroup from its first moment. */
static pid_t fork_into(const char *cg)
{
	struct clone_args args = { 0 };
	pid_t pid;
	int fd;

	fd = open(cg, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	args.flags = CLONE_INTO_CGROUP;
	args.exit_signal = SIGCHLD;
	args.cgroup = fd;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid)
		close(fd);
	return pid;
}

static void start_task(struct worker *w, const char *cg)
{
	bool into = pick(w, 2);
	int i, kind;
	pid_t pid;

	for (i = 0; i < MAX_TASKS; i++)
		if (!w->tasks[i])
			break;
	if (i == MAX_TASKS) {
		/* Exits while the worker does other things; reaped later. */
		kill(w->tasks[pick(w, MAX_TASKS)], SIGKILL);
		return;
	}
	/* No task moves before all clusters to move to are there. */
	kind = pick(w, counts->filled < WORKERS ? 6 : 7);
	pid = into ? fork_into(cg) : fork();
	if (!pid) {
		if (!into)
			cs_try_move(cg, 0);
		run_task(w, kind);
	}
	if (pid < 0) {
		REQUIRE(may_fail_to_move(-errno) || errno == EAGAIN,
			"fork into %s: %s", cg, strerror(errno));
		return;
	}
	count(into ? &counts->into : &counts->forks);
	w->tasks[i] = pid;
}

static void reap(struct worker *w)
{
	pid_t pid;
	int i;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (i = 0; i < MAX_TASKS; i++)
			if (w->tasks[i] == pid)
				w->tasks[i] = 0;
}

static void create_slot(struct worker *w, int slot)
{
	char cg[PATH_MAX], name[16];

	snprintf(name, sizeof(name), "c%d", slot);
	cs_mkdir(cg, w->top, name);
	w->there[slot] = true;
	count(&counts->created);
	cs_write(cg, CS_PREF, homes[pick(w, ARRAY_LEN(homes) - 1)]);
	count(&counts->writes);
}

/* A cluster below a cluster, which vanishes with it. */
static void nest(struct worker *w, const char *cg)
{
	char below[PATH_MAX];

	cs_name(below, cg, "below");
	if (mkdir(below, 0755))
		return;
	/* Refused if the other cgroup below is populated; then there are no files. */
	if (cs_mode() == CS_MODE_ORDINARY)
		cs_try_write(cg, "cgroup.subtree_control", "+cosched");
	if (cs_has_file(below, CS_PREF))
		rewrite(w, below);
	start_task(w, below);
}

/*
 * Moves on: an empty cluster goes, a populated one is emptied first, and its
 * tasks are dying while it is removed.
 */
static void remove_slot(struct worker *w, int slot)
{
	char cg[PATH_MAX], below[PATH_MAX];
	int ret;

	slot_name(w, slot, cg);
	cs_name(below, cg, "below");
	ret = cs_try_rmdir(below);
	if (!ret || ret == -ENOENT)
		ret = cs_try_rmdir(cg);
	if (ret == -EBUSY) {
		cs_write(cg, "cgroup.kill", "1");
		cs_try_rmdir(below);
		ret = cs_try_rmdir(cg);
	}
	if (ret == -EBUSY)
		return;		/* at another time */
	REQUIRE(!ret, "rmdir %s: %s", cg, strerror(-ret));
	w->there[slot] = false;
	count(&counts->removed);
}

static void move_some_task(struct worker *w, const char *cg)
{
	int i = pick(w, MAX_TASKS), ret;

	if (!w->tasks[i])
		return;
	ret = cs_try_move(cg, w->tasks[i]);
	REQUIRE(may_fail_to_move(ret) || ret == -ESRCH, "move to %s: %s", cg,
		strerror(-ret));
	if (!ret)
		count(&counts->moves);
}

static void churn_step(struct worker *w)
{
	int slot = pick(w, w->slots);
	char cg[PATH_MAX];

	reap(w);
	slot_name(w, slot, cg);
	if (!w->there[slot]) {
		create_slot(w, slot);
		start_task(w, cg);
		return;
	}
	switch (pick(w, 10)) {
	case 0:
	case 1:
		rewrite(w, cg);
		break;
	case 2:
	case 3:
	case 4:
		start_task(w, cg);
		break;
	case 5:
	case 6:
		move_some_task(w, cg);
		break;
	case 7:
		nest(w, cg);
		break;
	default:
		remove_slot(w, slot);
		break;
	}
}

/* The tasks that are left in @cg, and what they do. */
static void show_left(const char *cg)
{
	char procs[4096], path[64], text[4096], *line, *save;
	static const char *const files[] = { "stat", "wchan", "stack", "status", "cgroup" };
	unsigned int i;

	if (cs_try_read(cg, "cgroup.procs", procs, sizeof(procs)) < 0)
		return;
	cs_diag("%s: procs %s", cg, procs);
	if (cs_try_read(cg, "cgroup.events", text, sizeof(text)) > 0)
		cs_diag("events %s", text);
	for (line = strtok_r(procs, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		snprintf(path, sizeof(path), "/proc/%s", line);
		for (i = 0; i < ARRAY_LEN(files); i++)
			if (cs_try_read(path, files[i], text, sizeof(text)) > 0)
				cs_diag("%s/%s: %s", path, files[i], text);
	}
}

static void churn_worker(void *arg)
{
	struct worker *w = arg;
	char cg[PATH_MAX];
	int i, ret;

	w->there = calloc(w->slots, sizeof(*w->there));
	/* It goes ahead of its own tasks, which would leave it little CPU time. */
	setpriority(PRIO_PROCESS, 0, -20);
	/* All of them at once, first, so that there really are so many. */
	for (i = 0; i < w->slots; i++) {
		create_slot(w, i);
		slot_name(w, i, cg);
		if (i % 4 == 0)
			start_task(w, cg);
		reap(w);
		REQUIRE(cs_now_ms() < w->end, "only %d of %d clusters in %ld s",
			i, w->slots, 10 * seconds);
	}
	count(&counts->filled);
	w->end = cs_now_ms() + seconds * 1000;
	while (cs_now_ms() < w->end)
		churn_step(w);

	for (i = 0; i < w->slots; i++) {
		if (!w->there[i])
			continue;
		slot_name(w, i, cg);
		ret = cs_rmtree(cg);
		if (ret)
			show_left(cg);
		REQUIRE(!ret, "remove %s: %s", cg, strerror(-ret));
		count(&counts->removed);
		reap(w);
	}
	for (i = 0; i < MAX_TASKS; i++)
		if (w->tasks[i])
			cs_kill(w->tasks[i]);
}

/* Writes to other processes' clusters, which may vanish at any time. */
static void foreign_writer(void *arg)
{
	struct worker *w = arg;
	char name[32], cg[PATH_MAX], buf[4096];
	cpu_set_t set;
	ssize_t n;
	int ret;

	for (;;) {
		snprintf(name, sizeof(name), "w%u/c%u", pick(w, WORKERS),
			 pick(w, w->slots));
		cs_name(cg, w->top, name);
		ret = cs_try_write(cg, CS_PREF,
				   homes[pick(w, ARRAY_LEN(homes))]);
		REQUIRE(!ret || ret == -ENOENT || ret == -ENODEV,
			"write to %s: %s", cg, strerror(-ret));
		if (!ret)
			count(&counts->writes);
		n = cs_try_read(cg, CS_HOME, buf, sizeof(buf));
		REQUIRE(n >= 0 || n == -ENOENT || n == -ENODEV,
			"read %s: %s", cg, strerror(-n));
		REQUIRE(n < 0 || !cs_try_parse_cpus(buf, &set),
			"the home of %s is '%s'", cg, buf);
		n = cs_try_read(cg, CS_LOAD, buf, sizeof(buf));
		REQUIRE(n >= 0 || n == -ENOENT || n == -ENODEV,
			"read %s: %s", cg, strerror(-n));
		n = cs_try_read(cg, CS_STAT, buf, sizeof(buf));
		REQUIRE(n >= 0 || n == -ENOENT || n == -ENODEV,
			"read %s: %s", cg, strerror(-n));
	}
}

static void threaded_name(const struct worker *w, int i, char *cg)
{
	char name[16];

	snprintf(name, sizeof(name), "t%d", i);
	cs_name(cg, w->top, name);
}

static void *mover(void *arg)
{
	struct worker w = *(struct worker *)arg;
	char cg[PATH_MAX];
	int i, ret;

	w.random += syscall(SYS_gettid);
	setpriority(PRIO_PROCESS, 0, -10);
	/* Ends after a while, and another one takes its place. */
	for (i = 0; i < 50; i++) {
		threaded_name(&w, pick(&w, THREADED), cg);
		ret = cs_try_write(cg, "cgroup.threads", "0");
		/*
		 * Not threaded yet, or no more there: EOPNOTSUPP, ENOENT,
		 * ENODEV.
		 */
		REQUIRE(!ret || ret == -ENOENT || ret == -ENODEV ||
			ret == -EOPNOTSUPP || ret == -EBUSY,
			"thread to %s: %s", cg, strerror(-ret));
		if (!ret)
			count(&counts->thread_moves);
		burn(100 + pick(&w, 400));
		cs_sleep_ms(1);
		if (i % 10 == 0) {
			pid_t pid = fork();

			if (!pid)
				_exit(0);
			if (pid > 0)
				waitpid(pid, NULL, 0);
		}
	}
	return NULL;
}

static void make_threaded(struct worker *w, int i)
{
	char cg[PATH_MAX], name[16];

	snprintf(name, sizeof(name), "t%d", i);
	cs_mkdir(cg, w->top, name);
	cs_write(cg, "cgroup.type", "threaded");
	rewrite(w, cg);
}

/*
 * One process, of whose threads each moves among threaded clusters that are
 * removed and made anew when they are empty.
 */
static void thread_worker(void *arg)
{
	struct worker *w = arg;
	pthread_t threads[MOVERS];
	char cg[PATH_MAX];
	int i;

	for (i = 0; i < MOVERS; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, mover, w),
			"cannot start a thread");
	for (;;) {
		for (i = 0; i < MOVERS; i++) {
			if (pthread_tryjoin_np(threads[i], NULL))
				continue;
			REQUIRE(!pthread_create(&threads[i], NULL, mover, w),
				"cannot start a thread");
		}
		i = pick(w, THREADED);
		threaded_name(w, i, cg);
		if (pick(w, 2))
			rewrite(w, cg);
		else if (!cs_try_rmdir(cg))
			make_threaded(w, i);
		cs_sleep_ms(1);
	}
}

static void fork_loop(void *arg)
{
	(void)arg;
	for (;;) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid > 0)
			waitpid(pid, NULL, 0);
		count(&counts->forks);
	}
}

/* Takes the controller from two clusters with tasks and gives it back. */
static void toggler(void *arg)
{
	struct worker *w = arg;
	char a[PATH_MAX], b[PATH_MAX];
	pid_t pids[3];

	setpriority(PRIO_PROCESS, 0, -10);
	cs_mkdir(a, w->top, "a");
	cs_mkdir(b, w->top, "b");
	pids[0] = cs_spawn(a, fork_loop, NULL);
	pids[1] = cs_spawn(b, fork_loop, NULL);
	pids[2] = cs_spinner(a);
	for (;;) {
		cs_enable(w->top);
		rewrite(w, a);
		rewrite(w, b);
		cs_move(pick(w, 2) ? a : b, pids[2]);
		cs_sleep_ms(3);
		cs_write(w->top, "cgroup.subtree_control", "-cosched");
		cs_move(pick(w, 2) ? a : b, pids[pick(w, 3)]);
		cs_sleep_ms(3);
		count(&counts->toggles);
	}
}

static void hotplugger(void *arg)
{
	struct worker *w = arg;
	int cpu;

	for (;;) {
		cpu = 1 + pick(w, 3);
		cs_set_online(cpu, false);
		cs_sleep_ms(10 + pick(w, 30));
		cs_set_online(cpu, true);
		cs_sleep_ms(10 + pick(w, 30));
		count(&counts->hotplugs);
	}
}

static struct worker *new_worker(const char *top, const char *name, int i)
{
	struct worker *w = calloc(1, sizeof(*w));

	REQUIRE(w, "no memory");
	if (name)
		cs_mkdir(w->top, top, name);
	else
		strcpy(w->top, top);
	w->random = seed * 100 + i;
	w->slots = (clusters + WORKERS - 1) / WORKERS;
	w->end = cs_now_ms() + 10 * seconds * 1000;
	return w;
}

/* Where nothing but the worker's own cgroups is. */
static struct worker *new_clusters(const char *top, const char *name, int i)
{
	struct worker *w = new_worker(top, name, i);

	cs_enable(w->top);
	if (quotas_too)
		cs_write(w->top, "cgroup.subtree_control", "+cpu");
	return w;
}

struct population {
	long long descendants;
	long long dying;
};

static struct population population(void)
{
	struct population p = {
		cs_key(cs_root(), "cgroup.stat", "nr_descendants"),
		cs_key(cs_root(), "cgroup.stat", "nr_dying_descendants"),
	};

	return p;
}

/* Every cgroup made since is gone, also from memory. */
static void expect_population(struct population want)
{
	long long end = cs_now_ms() + GONE_MS;
	struct population now;

	for (;;) {
		now = population();
		if (now.descendants == want.descendants &&
		    now.dying <= want.dying)
			return;
		if (cs_now_ms() > end)
			break;
		cs_sleep_ms(50);
	}
	cs_fail("%lld cgroups and %lld dying, %d s after all was removed; there were %lld and %lld",
		now.descendants, now.dying, GONE_MS / 1000, want.descendants,
		want.dying);
}

static void check_alive(pid_t pid, const char *who)
{
	int status;

	REQUIRE(waitpid(pid, &status, WNOHANG) == 0, "%s gave up", who);
}

static void churn(const char *top, bool hotplug)
{
	enum { FOREIGN = WORKERS, THREADS, TOGGLER, HOTPLUG, ROLES };
	static const char *const names[ROLES] = {
		[FOREIGN] = "the writer to foreign clusters",
		[THREADS] = "the process of moving threads",
		[TOGGLER] = "the one who takes the controller away",
		[HOTPLUG] = "the one who takes CPUs offline",
	};
	pid_t pids[ROLES] = { 0 }, witness;
	char quiet[PATH_MAX], below[PATH_MAX];
	long long usec, start = cs_now_ms();
	struct population before;
	struct worker *w;
	int i, status;

	cs_need_cpus(4);
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(counts != MAP_FAILED, "mmap: %s", strerror(errno));

	/* Moves without a wait for RCU: some ten times as many of them. */
	cs_mount_option("favordynmods");

	quotas_too = !cs_try_write(cs_root(), "cgroup.subtree_control", "+cpu") &&
		     !cs_try_write(top, "cgroup.subtree_control", "+cpu");
	cs_mkdir(quiet, top, "witness");
	cs_enable(quiet);
	cs_mkdir(below, quiet, "below");
	cs_write(quiet, CS_PREF, "0\n");
	cs_write(quiet, CS_WEIGHTS, "42 43\n");
	witness = cs_spinner(below);
	/* Leaves CPU time to the others: the witness only has to go on. */
	REQUIRE(!setpriority(PRIO_PROCESS, witness, 10), "nice: %s",
		strerror(errno));
	before = population();

	for (i = 0; i < WORKERS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%d", i);
		w = new_clusters(top, name, i);
		pids[i] = cs_spawn(cs_root(), churn_worker, w);
	}
	while (__atomic_load_n(&counts->filled, __ATOMIC_RELAXED) < WORKERS) {
		for (i = 0; i < WORKERS; i++)
			check_alive(pids[i], "a worker");
		cs_sleep_ms(20);
	}
	cs_diag("%ld clusters after %lld ms", counts->created,
		cs_now_ms() - start);

	w = new_worker(top, NULL, FOREIGN);
	pids[FOREIGN] = cs_spawn(cs_root(), foreign_writer, w);

	w = new_worker(top, "threads", THREADS);
	for (i = 0; i < THREADED; i++) {
		char cg[PATH_MAX], name[16];

		snprintf(name, sizeof(name), "t%d", i);
		cs_mkdir(cg, w->top, name);
		cs_write(cg, "cgroup.type", "threaded");
	}
	cs_enable(w->top);
	pids[THREADS] = cs_spawn(w->top, thread_worker, w);

	if (cs_mode() == CS_MODE_ORDINARY) {
		w = new_worker(top, "toggle", TOGGLER);
		pids[TOGGLER] = cs_spawn(cs_root(), toggler, w);
	}
	if (hotplug) {
		w = new_worker(top, NULL, HOTPLUG);
		pids[HOTPLUG] = cs_spawn(cs_root(), hotplugger, w);
	}

	for (i = 0; i < WORKERS; i++) {
		REQUIRE(waitpid(pids[i], &status, 0) == pids[i],
			"waitpid: %s", strerror(errno));
		REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status),
			"worker %d failed", i);
	}
	for (i = WORKERS; i < ROLES; i++) {
		if (!pids[i])
			continue;
		check_alive(pids[i], names[i]);
		cs_kill(pids[i]);
	}
	cs_diag("clusters: %ld created, %ld removed; tasks: %ld moves, %ld forks, %ld into a cluster, %ld execs; %ld thread moves; %ld values written; %ld times disabled; %ld times a CPU offline",
		counts->created, counts->removed, counts->moves,
		counts->forks, counts->into, counts->execs,
		counts->thread_moves, counts->writes, counts->toggles,
		counts->hotplugs);
	REQUIRE(counts->created >= clusters, "only %ld clusters created",
		counts->created);
	REQUIRE(counts->created == counts->removed,
		"%ld clusters created, %ld removed", counts->created,
		counts->removed);
	REQUIRE(counts->moves && counts->forks && counts->into &&
		counts->execs && counts->thread_moves,
		"something was never done");
	REQUIRE(!hotplug || counts->hotplugs, "no CPU went offline");

	/* The cluster that nobody touched is as it was, and runs. */
	cs_expect(quiet, CS_PREF, "0");
	cs_expect(quiet, CS_HOME, "0");
	cs_expect(below, CS_PREF, "");
	cs_expect(below, CS_HOME, "0");
	cs_expect(below, CS_WEIGHTS, "42 43");
	usec = cs_task_usec(witness);
	cs_sleep_ms(500);
	REQUIRE(cs_task_usec(witness) > usec, "the witness does not run");
	cs_kill(witness);

	for (i = 0; i < WORKERS; i++) {
		char path[PATH_MAX], name[16];

		snprintf(name, sizeof(name), "w%d", i);
		cs_name(path, top, name);
		status = cs_rmtree(path);
		REQUIRE(!status, "remove %s: %s", path, strerror(-status));
	}
	{
		static const char *const left[] = { "threads", "toggle" };
		char path[PATH_MAX];

		for (i = 0; i < ARRAY_LEN(left); i++) {
			cs_name(path, top, left[i]);
			status = cs_rmtree(path);
			REQUIRE(!status, "remove %s: %s", path,
				strerror(-status));
		}
	}
	expect_population(before);
}

/* A thousand clusters, with everything at once. */
static void churn_plain(const char *top)
{
	churn(top, false);
}

/* The same while CPUs, and with them homes, go away and come back. */
static void churn_hotplug(const char *top)
{
	int ret = cs_try_set_online(1, false);

	if (ret)
		cs_skip("CPU 1 cannot be taken offline: %s", strerror(-ret));
	cs_set_online(1, true);
	churn(top, true);
}

/* Memory that the kernel cannot give back on demand, in KiB. */
static long kernel_memory(void)
{
	static const char *const keys[] = { "SUnreclaim:", "Percpu:" };
	char buf[8192], *at;
	long sum = 0;
	int i;

	cs_read("/proc", "meminfo", buf, sizeof(buf));
	for (i = 0; i < ARRAY_LEN(keys); i++) {
		at = strstr(buf, keys[i]);
		if (at)
			sum += strtol(at + strlen(keys[i]), NULL, 10);
	}
	return sum;
}

static void create_and_remove(const char *top, int n)
{
	char cg[PATH_MAX], name[16];
	int i;

	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		cs_mkdir(cg, top, name);
		cs_write(cg, CS_PREF, i & 1 ? "0-1\n" : "1,3\n");
		cs_write(cg, CS_WEIGHTS, "2 3\n");
		cs_write(cg, CS_PREF, i & 2 ? "2-3\n" : "\n");
	}
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		cs_name(cg, top, name);
		cs_rmdir(cg);
	}
}

/*
 * Clusters that come and go leave no memory behind. 2,000 of them at the 128
 * bytes that only their per-CPU state takes on four CPUs would be 250 KiB.
 */
static void no_leak(const char *top)
{
	struct population before;
	long at_start, now;
	int i;

	cs_need_cpus(4);
	if (!access("/sys/kernel/debug/kmemleak", F_OK))
		cs_diag("a debug kernel; its own memory is in the figures");
	before = population();
	/* Let caches of the allocators reach the size they will have. */
	for (i = 0; i < 4; i++)
		create_and_remove(top, 100);
	expect_population(before);
	cs_sleep_ms(500);
	at_start = kernel_memory();
	for (i = 0; i < 20; i++)
		create_and_remove(top, 100);
	expect_population(before);
	cs_sleep_ms(500);
	now = kernel_memory();
	cs_diag("%ld KiB before, %ld KiB after 2000 clusters", at_start, now);
	REQUIRE(now - at_start < 200, "%ld KiB more", now - at_start);
}

static void early(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], EXEC_ARG)) {
		burn(1000);
		_exit(0);
	}
}

static const struct cs_test tests[] = {
	{ "churn_plain", churn_plain, 3600 },
	{ "churn_hotplug", churn_hotplug, 3600 },
	{ "no_leak", no_leak, 600 },
};

static const struct cs_option options[] = {
	{ "seconds", "how long each churn lasts, default 20", &seconds, NULL, NULL },
	{ "clusters", "at once, default 1000", &clusters, NULL, NULL },
	{ "seed", "of the random choices, default 1", &seed, NULL, NULL },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests clusters created and removed under tasks that fork, exec, exit and move.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.options = options,
		.noptions = ARRAY_LEN(options),
		.early = early,
	};

	return cs_main(argc, argv, &program);
}
