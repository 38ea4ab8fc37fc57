// SPDX-License-Identifier: GPL-2.0
/*
 * How values pass down the tree of cgroups: inheritance of homes and weights,
 * notification of a changed home, threads of one process in several clusters,
 * and what happens when the controller is taken away.
 */

#include "cosched_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a notification may take on a slow machine. */
#define NOTIFY_MS	3000
/* Long enough for one that should not come; the kernel delays up to 10 ms. */
#define QUIET_MS	300
#define SETTLE_MS	50

static long model_seed = 1;
static long model_steps = 400;

/*
 * Three levels: a child's home is what it asks for within its parent's home,
 * or its parent's home where nothing is left of that or it asks for nothing.
 * A change of any level shows in all below at once, and never in what they
 * asked for.
 */
static void inheritance(const char *top)
{
	enum { A, B, C, D, E, NODES };	/* A > B > { C, D, E } */
	static const struct {
		int node;
		const char *write;
		const char *home[NODES];
	} steps[] = {
		{ A, "0-3\n", { "0-3", "0-3", "0-3", "0-3", "0-3" } },
		{ B, "0-1\n", { "0-3", "0-1", "0-1", "0-1", "0-1" } },
		{ C, "1-2\n", { "0-3", "0-1", "1", "0-1", "0-1" } },
		/* disjoint from its parent's home: falls back to that */
		{ D, "2-3\n", { "0-3", "0-1", "1", "0-1", "0-1" } },
		{ A, "1-2\n", { "1-2", "1", "1", "1", "1" } },
		/* now B is the disjoint one */
		{ A, "2-3\n", { "2-3", "2-3", "2", "2-3", "2-3" } },
		{ A, "3\n", { "3", "3", "3", "3", "3" } },
		{ A, "0-3\n", { "0-3", "0-1", "1", "0-1", "0-1" } },
		{ B, "\n", { "0-3", "0-3", "1-2", "2-3", "0-3" } },
		{ E, "0\n", { "0-3", "0-3", "1-2", "2-3", "0" } },
		/* nothing above: what they ask for, as it is */
		{ A, "\n", { "", "", "1-2", "2-3", "0" } },
		{ B, "2\n", { "", "2", "2", "2", "2" } },
		{ C, "\n", { "", "2", "2", "2", "2" } },
		{ B, "\n", { "", "", "", "2-3", "0" } },
		{ D, "\n", { "", "", "", "", "0" } },
		{ E, "\n", { "", "", "", "", "" } },
	};
	char cg[NODES][PATH_MAX];
	char asked[NODES][64] = { "" };
	int i, n;

	cs_need_cpus(4);
	cs_mkdir(cg[A], top, "a");
	cs_enable(cg[A]);
	cs_mkdir(cg[B], cg[A], "b");
	cs_enable(cg[B]);
	cs_mkdir(cg[C], cg[B], "c");
	cs_mkdir(cg[D], cg[B], "d");
	cs_mkdir(cg[E], cg[B], "e");

	for (i = 0; i < ARRAY_LEN(steps); i++) {
		strcpy(asked[steps[i].node], steps[i].write);
		*strchr(asked[steps[i].node], '\n') = '\0';
		cs_write(cg[steps[i].node], CS_PREF, steps[i].write);
		for (n = 0; n < NODES; n++) {
			char home[64];

			cs_read(cg[n], CS_HOME, home, sizeof(home));
			REQUIRE(!strcmp(home, steps[i].home[n]),
				"step %d, '%s' to %c: home of %c is '%s', expected '%s'",
				i, asked[steps[i].node], 'A' + steps[i].node,
				'A' + n, home, steps[i].home[n]);
			cs_expect(cg[n], CS_PREF, asked[n]);
		}
	}
}

/* A cgroup made below a home has that home from the start. */
static void inherited_at_creation(const char *top)
{
	char parent[PATH_MAX], mid[PATH_MAX], leaf[PATH_MAX];

	cs_need_cpus(4);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_write(parent, CS_PREF, "1,3\n");
	cs_write(parent, CS_WEIGHTS, "3 4\n");
	cs_mkdir(mid, parent, "mid");
	cs_expect(mid, CS_PREF, "");
	cs_expect(mid, CS_HOME, "1,3");
	cs_expect(mid, CS_WEIGHTS, "3 4");
	cs_enable(mid);
	cs_mkdir(leaf, mid, "leaf");
	cs_expect(leaf, CS_HOME, "1,3");
	cs_expect(leaf, CS_WEIGHTS, "3 4");
}

/* Weights come from the nearest cgroup above that set them. */
static void weights_inherited(const char *top)
{
	static const struct {
		int level;
		const char *write;
		const char *read[4];
	} steps[] = {
		{ 0, "1 2\n", { "1 2", "1 2", "1 2", "1 2" } },
		{ 2, "5 6\n", { "1 2", "1 2", "5 6", "5 6" } },
		{ 1, "3 4\n", { "1 2", "3 4", "5 6", "5 6" } },
		{ 0, "7 8\n", { "7 8", "3 4", "5 6", "5 6" } },
		{ 2, "\n", { "7 8", "3 4", "3 4", "3 4" } },
		{ 1, "\n", { "7 8", "7 8", "7 8", "7 8" } },
		/* set to what it inherits is set all the same */
		{ 3, "7 8\n", { "7 8", "7 8", "7 8", "7 8" } },
		{ 0, "\n", { CS_WEIGHTS_DEFAULT, CS_WEIGHTS_DEFAULT,
			     CS_WEIGHTS_DEFAULT, "7 8" } },
		{ 3, "\n", { CS_WEIGHTS_DEFAULT, CS_WEIGHTS_DEFAULT,
			     CS_WEIGHTS_DEFAULT, CS_WEIGHTS_DEFAULT } },
	};
	char cg[4][PATH_MAX];
	int i, n;

	for (n = 0; n < 4; n++) {
		char name[2] = { 'a' + n, '\0' };

		cs_mkdir(cg[n], n ? cg[n - 1] : top, name);
		cs_enable(cg[n]);
	}
	for (i = 0; i < ARRAY_LEN(steps); i++) {
		cs_write(cg[steps[i].level], CS_WEIGHTS, steps[i].write);
		for (n = 0; n < 4; n++) {
			char got[64];

			cs_read(cg[n], CS_WEIGHTS, got, sizeof(got));
			REQUIRE(!strcmp(got, steps[i].read[n]),
				"step %d, level %d: weights are '%s', expected '%s'",
				i, n, got, steps[i].read[n]);
		}
	}
}

/* The model of which inheritance() shows some cases. */
#define MODEL_NODES	13	/* a root, 3 children, 9 grandchildren */

static int model_parent(int n)
{
	return n ? (n - 1) / 3 : -1;
}

static unsigned int model_home(const unsigned int *asked, int n)
{
	unsigned int above;

	if (n < 0)
		return 0;
	above = model_home(asked, model_parent(n));
	if (!above)
		return asked[n];
	return asked[n] & above ? asked[n] & above : above;
}

static void format_bits(unsigned int bits, char *buf, size_t len)
{
	cpu_set_t set;
	int cpu;

	CPU_ZERO(&set);
	for (cpu = 0; cpu < 32; cpu++)
		if (bits & (1u << cpu))
			CPU_SET(cpu, &set);
	cs_format_cpus(&set, buf, len);
}

/*
 * Whatever is written where, in whatever order, every home in a tree of 13
 * cgroups is the one that the rule gives.
 */
static void inheritance_model(const char *top)
{
	static char cg[MODEL_NODES][PATH_MAX];
	unsigned int asked[MODEL_NODES] = { 0 }, all;
	char value[128], want[128], got[128];
	int i, n, node;

	cs_need_cpus(4);
	all = 0xf;
	cs_diag("seed %ld", model_seed);
	srandom(model_seed);
	for (n = 0; n < MODEL_NODES; n++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", n);
		cs_mkdir(cg[n], n ? cg[model_parent(n)] : top, name);
		if (n < 4)
			cs_enable(cg[n]);
	}
	for (i = 0; i < model_steps; i++) {
		node = random() % MODEL_NODES;
		/* One in four takes its preference back. */
		asked[node] = random() % 4 ? random() & all : 0;
		format_bits(asked[node], value, sizeof(value) - 1);
		strcat(value, "\n");
		cs_write(cg[node], CS_PREF, value);
		for (n = 0; n < MODEL_NODES; n++) {
			format_bits(model_home(asked, n), want, sizeof(want));
			cs_read(cg[n], CS_HOME, got, sizeof(got));
			REQUIRE(!strcmp(got, want),
				"step %d, wrote %#x to n%d: home of n%d is '%s', expected '%s'",
				i, asked[node], node, n, got, want);
		}
	}
}

/* A file watched by poll() and by inotify at once. */
struct watch {
	char path[PATH_MAX];
	int fd;
	int inotify;
};

/* What was told until now. */
static void forget(struct watch *w)
{
	char buf[4096] __attribute__((aligned(8)));

	while (read(w->inotify, buf, sizeof(buf)) > 0)
		;
	lseek(w->fd, 0, SEEK_SET);
	while (read(w->fd, buf, sizeof(buf)) > 0)
		;
}

static void watch(struct watch *w, const char *cg)
{
	cs_name(w->path, cg, CS_HOME);
	w->fd = open(w->path, O_RDONLY);
	REQUIRE(w->fd >= 0, "open %s: %s", w->path, strerror(errno));
	w->inotify = inotify_init1(IN_NONBLOCK);
	REQUIRE(w->inotify >= 0, "inotify_init1: %s", strerror(errno));
	REQUIRE(inotify_add_watch(w->inotify, w->path, IN_MODIFY) >= 0,
		"inotify_add_watch %s: %s", w->path, strerror(errno));
	/* inotify is told by a work item: that of a change before may come now. */
	cs_sleep_ms(SETTLE_MS);
	forget(w);
}

/* Whether both tell of a change within the time; they must agree. */
static bool notified(struct watch *w, int ms)
{
	struct pollfd p[2] = {
		{ .fd = w->fd, .events = POLLPRI },
		{ .fd = w->inotify, .events = POLLIN },
	};
	long long end = cs_now_ms() + ms;
	bool by_poll = false, by_inotify = false;

	do {
		/* One at a time, so as not to spin on the other's. */
		if (!by_poll && poll(&p[0], 1, 20) > 0)
			by_poll = p[0].revents & POLLPRI;
		if (!by_inotify && poll(&p[1], 1, 20) > 0)
			by_inotify = true;
	} while (!(by_poll && by_inotify) && cs_now_ms() < end);

	forget(w);
	REQUIRE(by_poll == by_inotify, "%s: a change told %s only", w->path,
		by_poll ? "by poll" : "by inotify");
	return by_poll;
}

static void expect_told(struct watch *w, const char *what)
{
	REQUIRE(notified(w, NOTIFY_MS), "%s: %s, but nobody was told", w->path,
		what);
}

static void expect_quiet(struct watch *w, const char *what)
{
	REQUIRE(!notified(w, QUIET_MS), "%s: %s, and a change was told",
		w->path, what);
}

/*
 * A changed home is told, by poll() and inotify, on the cgroup written to and
 * on all below whose home changes with it; what changes nobody's home is not,
 * nor anything on those whose own home stays.
 */
static void notification(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX], own[PATH_MAX];
	char other[PATH_MAX];
	struct watch wa, wb, wc, wown, wother;

	cs_need_cpus(4);
	cs_mkdir(a, top, "a");
	cs_enable(a);
	cs_mkdir(b, a, "b");
	cs_enable(b);
	cs_mkdir(c, b, "c");
	cs_mkdir(own, a, "own");
	cs_mkdir(other, top, "other");
	cs_write(own, CS_PREF, "0\n");
	cs_write(other, CS_PREF, "3\n");
	watch(&wa, a);
	watch(&wb, b);
	watch(&wc, c);
	watch(&wown, own);
	watch(&wother, other);
	expect_quiet(&wa, "nothing happened yet");

	cs_write(a, CS_PREF, "0-1\n");
	expect_told(&wa, "first home set");
	expect_told(&wb, "home inherited");
	expect_told(&wc, "home inherited over two levels");
	/* its own CPU 0 is within the new home as it was without */
	expect_quiet(&wown, "parent's home set around its own");
	expect_quiet(&wother, "another tree's home set");

	cs_write(a, CS_PREF, "0,2\n");
	expect_told(&wa, "home changed");
	expect_told(&wb, "inherited home changed");
	expect_told(&wc, "inherited home changed");
	expect_quiet(&wown, "parent's home changed around its own");

	cs_write(b, CS_PREF, "2\n");
	expect_told(&wb, "home narrowed");
	expect_told(&wc, "inherited home narrowed");
	expect_quiet(&wa, "child's home changed");

	cs_write(a, CS_PREF, "0,2\n");
	expect_quiet(&wa, "same value written");
	cs_write(a, CS_PREF, "2,0\n");
	expect_quiet(&wa, "same CPUs written");
	REQUIRE(cs_try_write(a, CS_PREF, "7-\n") == -EINVAL,
		"malformed value accepted");
	expect_quiet(&wa, "refused value written");
	cs_write(a, CS_WEIGHTS, "1 2\n");
	expect_quiet(&wa, "weights written");
	/* asks for more than the parent has: the home is 0,2 with or without */
	cs_write(c, CS_PREF, "2-3\n");
	expect_quiet(&wc, "preference set to what leaves the home as it is");

	cs_write(a, CS_PREF, "\n");
	expect_told(&wa, "home taken back");
	expect_quiet(&wb, "parent's home taken back, own remains");
	cs_write(b, CS_PREF, "\n");
	expect_told(&wb, "home taken back");
	expect_told(&wc, "parent's home taken back, asked CPUs remain");
	expect_quiet(&wother, "nothing of its own");
}

static void write_final(void *arg)
{
	const char *cg = arg;
	int i;

	for (i = 0; i < 200; i++)
		cs_write(cg, CS_PREF, i & 1 ? "0-1\n" : "0\n");
	cs_write(cg, CS_PREF, "1\n");
}

/*
 * Many changes may be told as one, but the last is never lost: whoever reads
 * at each notification ends up with the value that stays. The reader sleeps in
 * poll() when it is told.
 */
static void last_change_told(const char *top)
{
	char cg[PATH_MAX], child[PATH_MAX], buf[256] = "";
	struct pollfd p = { .events = POLLPRI };
	struct watch w;
	ssize_t n;
	pid_t pid;
	int round;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	cs_enable(cg);
	cs_mkdir(child, cg, "child");
	watch(&w, child);
	p.fd = w.fd;
	for (round = 0; round < 10; round++) {
		cs_write(cg, CS_PREF, "0\n");
		cs_sleep_ms(50);
		forget(&w);
		pid = cs_spawn(cs_root(), write_final, cg);
		for (;;) {
			REQUIRE(poll(&p, 1, NOTIFY_MS) == 1,
				"round %d: told no more, last value read was '%s'",
				round, buf);
			lseek(w.fd, 0, SEEK_SET);
			n = read(w.fd, buf, sizeof(buf) - 1);
			REQUIRE(n > 0, "read: %s", strerror(errno));
			buf[n - 1] = '\0';
			if (!strcmp(buf, "1"))
				break;
		}
		REQUIRE(waitpid(pid, NULL, 0) == pid, "the writer is gone");
	}
}

struct worker {
	pthread_t thread;
	pid_t tid;
	bool stop;
	long long usec;		/* CPU time used when it ended */
};

static long long clock_usec(clockid_t clock)
{
	struct timespec ts;

	REQUIRE(!clock_gettime(clock, &ts), "CPU clock: %s", strerror(errno));
	return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	__atomic_store_n(&w->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
		;
	w->usec = clock_usec(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

static void start_worker(struct worker *w)
{
	w->tid = 0;
	w->stop = false;
	REQUIRE(!pthread_create(&w->thread, NULL, work, w),
		"cannot start a thread");
	while (!__atomic_load_n(&w->tid, __ATOMIC_ACQUIRE))
		cs_sleep_ms(1);
}

static void stop_worker(struct worker *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	pthread_join(w->thread, NULL);
}

/* CPU time of a running one. */
static long long thread_usec(struct worker *w)
{
	clockid_t clock;

	REQUIRE(!pthread_getcpuclockid(w->thread, &clock),
		"no CPU clock of a thread");
	return clock_usec(clock);
}

static long long cluster_usec(const char *cg)
{
	return cs_stat(cg, "preferred_usec") + cs_stat(cg, "outside_usec");
}

/*
 * The threads of one process may be in different clusters: each works on its
 * own home and its time counts there, while its process stays where it is.
 */
static void threaded(const char *top)
{
	static const char *const homes[] = { "0", "1", "2-3" };
	struct worker workers[3];
	char dom[PATH_MAX], cg[3][PATH_MAX], type[64];
	long long before[3], usec, counted, pref;
	int i;

	cs_need_cpus(4);
	cs_mkdir(dom, top, "dom");
	for (i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "t%d", i);
		cs_mkdir(cg[i], dom, name);
		cs_write(cg[i], "cgroup.type", "threaded");
	}
	/* Threaded: may be enabled where processes are. */
	cs_move(dom, getpid());
	cs_enable(dom);
	cs_read(dom, "cgroup.type", type, sizeof(type));
	REQUIRE(!strcmp(type, "domain threaded"), "%s is '%s'", dom, type);

	for (i = 0; i < 3; i++) {
		cs_write(cg[i], CS_PREF, homes[i]);
		start_worker(&workers[i]);
		cs_move_thread(cg[i], workers[i].tid);
		before[i] = thread_usec(&workers[i]);
	}
	cs_sleep_ms(2000);
	/* Only what has ended is counted whole, however late ticks come. */
	for (i = 0; i < 3; i++)
		stop_worker(&workers[i]);
	for (i = 0; i < 3; i++) {
		usec = workers[i].usec;
		pref = cs_stat(cg[i], "preferred_usec");
		counted = cluster_usec(cg[i]);
		REQUIRE(usec - before[i] > 50000, "thread %d got only %lld us",
			i, usec - before[i]);
		/* Between the time that it used since the move and all the time that it used. */
		REQUIRE(counted > (usec - before[i]) * 9 / 10 - 10000 &&
			counted < usec * 11 / 10 + 10000,
			"thread %d used %lld us, %lld of them since its move; its cluster counted %lld",
			i, usec, usec - before[i], counted);
		REQUIRE(pref > counted * 8 / 10,
			"thread %d was at home for %lld of %lld us", i,
			pref, counted);
	}
	cs_expect(dom, CS_HOME, "");
}

/* A thread's move between clusters takes its time along at once. */
static void threads_move(const char *top)
{
	char dom[PATH_MAX], a[PATH_MAX], b[PATH_MAX];
	long long in_a, in_b;
	struct worker w;
	int i;

	cs_need_cpus(2);
	cs_mkdir(dom, top, "dom");
	cs_mkdir(a, dom, "a");
	cs_mkdir(b, dom, "b");
	cs_write(a, "cgroup.type", "threaded");
	cs_write(b, "cgroup.type", "threaded");
	cs_move(dom, getpid());
	cs_enable(dom);
	cs_write(a, CS_PREF, "0\n");
	cs_write(b, CS_PREF, "1\n");
	start_worker(&w);
	for (i = 0; i < 4; i++) {
		cs_move_thread(i & 1 ? b : a, w.tid);
		in_a = cluster_usec(a);
		in_b = cluster_usec(b);
		cs_sleep_ms(400);
		in_a = cluster_usec(a) - in_a;
		in_b = cluster_usec(b) - in_b;
		REQUIRE((i & 1 ? in_b : in_a) > 100000,
			"the cluster moved to got %lld us",
			i & 1 ? in_b : in_a);
		REQUIRE((i & 1 ? in_a : in_b) < 40000,
			"the cluster left got %lld us more",
			i & 1 ? in_a : in_b);
	}
	stop_worker(&w);
}

/*
 * Taking the controller away with tasks in the clusters removes the files and
 * hands the tasks to the nearest cgroup above that still has it; given back,
 * it starts anew with the defaults.
 */
static void disabled_and_enabled(const char *top)
{
	char parent[PATH_MAX], cg[PATH_MAX];
	long long usec, counted;
	pid_t pid;
	int i;

	if (cs_mode() != CS_MODE_ORDINARY)
		cs_skip("an implicit controller is not taken away");
	cs_need_cpus(3);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(cg, parent, "cg");
	cs_write(parent, CS_PREF, "1-2\n");
	pid = cs_spinner(cg);
	for (i = 0; i < 10; i++) {
		cs_write(cg, CS_PREF, "2\n");
		cs_write(cg, CS_WEIGHTS, "5 6\n");
		cs_expect(cg, CS_HOME, "2");
		cs_sleep_ms(50);

		cs_write(parent, "cgroup.subtree_control", "-cosched");
		REQUIRE(!cs_has_file(cg, CS_PREF),
			"%s is there without the controller", CS_PREF);
		REQUIRE(!cs_has_file(cg, CS_STAT),
			"%s is there without the controller", CS_STAT);
		cs_expect(parent, CS_HOME, "1-2");
		cs_stop(pid);
		usec = cs_task_usec(pid);
		counted = cluster_usec(parent);
		cs_continue(pid);
		cs_sleep_ms(200);
		cs_stop(pid);
		usec = cs_task_usec(pid) - usec;
		counted = cluster_usec(parent) - counted;
		REQUIRE(usec > 20000, "the task got only %lld us", usec);
		REQUIRE(llabs(counted - usec) < usec / 4 + 20000,
			"the task used %lld us, the cluster above counted %lld",
			usec, counted);
		cs_continue(pid);

		cs_write(parent, "cgroup.subtree_control", "+cosched");
		cs_expect(cg, CS_PREF, "");
		cs_expect(cg, CS_HOME, "1-2");
		cs_expect(cg, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);
	}
	cs_kill(pid);
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
	}
}

/* The same while tasks fork and exit all the time. */
static void disabled_under_forks(const char *top)
{
	char parent[PATH_MAX], cg[2][PATH_MAX];
	pid_t pids[4];
	int i;

	if (cs_mode() != CS_MODE_ORDINARY)
		cs_skip("an implicit controller is not taken away");
	cs_need_cpus(2);
	cs_mkdir(parent, top, "parent");
	cs_enable(parent);
	cs_mkdir(cg[0], parent, "a");
	cs_mkdir(cg[1], parent, "b");
	for (i = 0; i < 4; i++)
		pids[i] = cs_spawn(cg[i & 1], fork_loop, NULL);
	for (i = 0; i < 60; i++) {
		cs_write(cg[0], CS_PREF, "0\n");
		cs_write(cg[1], CS_PREF, "1\n");
		cs_move(cg[i & 1], pids[i % 4]);
		cs_sleep_ms(5);
		cs_write(parent, "cgroup.subtree_control", "-cosched");
		cs_move(cg[~i & 1], pids[i % 4]);
		cs_write(parent, "cgroup.subtree_control", "+cosched");
		cs_expect(cg[0], CS_HOME, "");
	}
	for (i = 0; i < 4; i++) {
		REQUIRE(!kill(pids[i], 0), "a task died");
		cs_kill(pids[i]);
	}
}

/* Values belong to the cgroup: tasks that come and go change none. */
static void values_after_moves(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX];
	pid_t pids[4];
	int i, round;

	cs_need_cpus(4);
	cs_mkdir(a, top, "a");
	cs_mkdir(b, top, "b");
	cs_write(a, CS_PREF, "0-1\n");
	cs_write(b, CS_PREF, "2-3\n");
	cs_write(b, CS_WEIGHTS, "8 9\n");
	for (i = 0; i < 4; i++)
		pids[i] = cs_spinner(a);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < 4; i++)
			cs_move((round + i) & 1 ? a : b, pids[i]);
		cs_expect(a, CS_PREF, "0-1");
		cs_expect(a, CS_HOME, "0-1");
		cs_expect(a, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);
		cs_expect(b, CS_PREF, "2-3");
		cs_expect(b, CS_HOME, "2-3");
		cs_expect(b, CS_WEIGHTS, "8 9");
	}
	for (i = 0; i < 4; i++)
		cs_kill(pids[i]);
	cs_rmdir(a);
	cs_expect(b, CS_HOME, "2-3");
}

static const struct cs_test tests[] = {
	{ "inheritance", inheritance, 0 },
	{ "inherited_at_creation", inherited_at_creation, 0 },
	{ "inheritance_model", inheritance_model, 120 },
	{ "weights_inherited", weights_inherited, 0 },
	{ "notification", notification, 0 },
	{ "last_change_told", last_change_told, 120 },
	{ "threaded", threaded, 0 },
	{ "threads_move", threads_move, 0 },
	{ "disabled_and_enabled", disabled_and_enabled, 0 },
	{ "disabled_under_forks", disabled_under_forks, 0 },
	{ "values_after_moves", values_after_moves, 0 },
};

static const struct cs_option options[] = {
	{ "seed", "of the random writes, default 1", &model_seed, NULL, NULL },
	{ "steps", "random writes, default 400", &model_steps, NULL, NULL },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests how cosched values pass down the tree of cgroups.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.options = options,
		.noptions = ARRAY_LEN(options),
	};

	return cs_main(argc, argv, &program);
}
