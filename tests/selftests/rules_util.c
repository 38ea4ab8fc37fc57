// SPDX-License-Identifier: GPL-2.0
/* Helpers for the tests of placement; see rules_util.h. */

#include "rules_util.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACE_DIR	"/sys/kernel/tracing/instances/cosched-rules"
/* Enough for the busiest second of a test; the tests check for lost events. */
#define TRACE_KB	"4096"

uint64_t ru_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Sets of CPUs */

cpu_set_t ru_minus(const cpu_set_t *a, const cpu_set_t *b)
{
	cpu_set_t set;

	/* Not a & ~b: there is no macro for a complement. */
	CPU_XOR(&set, a, b);
	CPU_AND(&set, &set, a);
	return set;
}

cpu_set_t ru_and(const cpu_set_t *a, const cpu_set_t *b)
{
	cpu_set_t set;

	CPU_AND(&set, a, b);
	return set;
}

cpu_set_t ru_or(const cpu_set_t *a, const cpu_set_t *b)
{
	cpu_set_t set;

	CPU_OR(&set, a, b);
	return set;
}

cpu_set_t ru_one(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return set;
}

int ru_nth(const cpu_set_t *set, int n)
{
	int cpu;

	n %= CPU_COUNT(set);
	for (cpu = 0; cpu < RU_CPUS; cpu++)
		if (CPU_ISSET(cpu, set) && !n--)
			return cpu;
	return -1;
}

cpu_set_t ru_first(const cpu_set_t *set, int n)
{
	cpu_set_t first;
	int i;

	CPU_ZERO(&first);
	for (i = 0; i < n; i++)
		CPU_SET(ru_nth(set, i), &first);
	return first;
}

const struct ru_topo *ru_topo(void)
{
	static struct ru_topo topo;
	char dir[96], list[1024];
	int i, cpu;

	if (topo.nr_cpus)
		return &topo;
	cs_online(&topo.online);
	topo.nr_cpus = CPU_COUNT(&topo.online);
	topo.nr_llcs = cs_llcs(topo.llc, RU_CPUS);
	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, &topo.online))
			continue;
		for (i = 0; i < topo.nr_llcs; i++)
			if (CPU_ISSET(cpu, &topo.llc[i]))
				topo.llc_of[cpu] = i;
		snprintf(dir, sizeof(dir), "/sys/devices/system/cpu/cpu%d/topology", cpu);
		cs_read(dir, "thread_siblings_list", list, sizeof(list));
		cs_parse_cpus(list, &topo.siblings[cpu]);
		if (CPU_COUNT(&topo.siblings[cpu]) > 1)
			topo.smt = true;
	}
	if (topo.nr_llcs < 2)
		cs_skip("needs two LLC domains");
	return &topo;
}

cpu_set_t ru_isolated(void)
{
	char list[1024];
	cpu_set_t cpus;

	cs_read("/sys/devices/system/cpu", "isolated", list, sizeof(list));
	cs_parse_cpus(list, &cpus);
	if (!CPU_COUNT(&cpus))
		cs_skip("needs a kernel booted with isolcpus=");
	return cpus;
}

/* Workers */

/* Ten microseconds, nearly all of it in PAUSE: see rules_util.h. */
void ru_unit_of_work(void)
{
	int i;

	for (i = 0; i < 10; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		__asm__ volatile("" : "+r"(i));
	}
}

/* Ends early on the signal that ru_wake() sends. */
static void nap(uint64_t us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

static void wake_up(int signal)
{
	(void)signal;
}

static uint64_t varied(uint64_t mean, uint32_t *seed)
{
	uint32_t x = *seed;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	*seed = x;
	return mean / 2 + x % (mean + 1);
}

static void note_interval(struct ru_worker *w, int cpu, uint64_t from, uint64_t to, bool more)
{
	int n = w->nr_intervals;

	if (more && n) {
		w->interval[n - 1].to = to;
		return;
	}
	if (n == RU_INTERVALS)
		return;
	w->interval[n] = (struct ru_interval){ from, to, cpu };
	w->nr_intervals = n + 1;
}

static bool far_away(const struct ru_gang *g, int cpu)
{
	return g->far_times && !CPU_ISSET(cpu, &g->near);
}

static void work(struct ru_gang *g, struct ru_worker *w, int nr)
{
	uint64_t last, t, us, ran = 0, burst;
	uint32_t seed = 2654435761u * (nr + 1);
	int cpu, last_cpu;

	if (g->policy != SCHED_OTHER) {
		struct sched_param param = { .sched_priority = g->policy == SCHED_FIFO };

		if (sched_setscheduler(0, g->policy, &param))
			cs_fail("scheduling policy %d: %s", g->policy, strerror(errno));
	}
	if (CPU_COUNT(&g->start)) {
		cpu_set_t set = g->start;

		if (g->one_each)
			set = ru_one(ru_nth(&g->start, nr));
		if (sched_setaffinity(0, sizeof(set), &set))
			cs_fail("pinning a worker: %s", strerror(errno));
	}
	last = ru_now();
	last_cpu = sched_getcpu();
	w->tid = syscall(SYS_gettid);
	burst = varied(w->busy_us, &seed);
	while (w->stop == RU_RUN) {
		bool stayed;

		ru_unit_of_work();
		t = ru_now();
		cpu = sched_getcpu();
		stayed = cpu == last_cpu && t - last < RU_GAP_NS;
		if (stayed) {
			w->ran_ns[cpu] += t - last;
			ran += far_away(g, cpu) ? (t - last) / g->far_times : t - last;
		}
		w->cpu = cpu;
		w->beat = t;
		if (g->log)
			note_interval(w, cpu, t, t, stayed);
		last = t;
		last_cpu = cpu;
		if (w->busy_us && ran >= burst * 1000) {
			us = varied(w->sleep_us, &seed);
			t = ru_now();
			nap(us);
			w->late += ru_now() - t > us * 1000 + RU_GAP_NS;
			w->cycles++;
			ran = 0;
			burst = varied(w->busy_us, &seed);
			last = ru_now();
			last_cpu = -1;
		}
	}
	while (w->stop == RU_SLEEP)
		nap(3600 * 1000000ull);
}

struct thread_arg {
	struct ru_gang *g;
	int nr;
};

static void *thread(void *arg)
{
	struct thread_arg *a = arg;

	work(a->g, &a->g->w[a->nr], a->nr);
	return NULL;
}

/* The gang's first process: its threads, or one child for each worker. */
static void lead(void *arg)
{
	struct ru_gang *g = arg;
	pthread_attr_t attr;
	pthread_t *threads;
	int i;

	if (g->session && setsid() < 0)
		cs_fail("setsid: %s", strerror(errno));
	if (g->processes) {
		for (i = 0; i < g->n; i++) {
			if (fork())
				continue;
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			work(g, &g->w[i], i);
			_exit(0);
		}
		__atomic_store_n(&g->created, ru_now(), __ATOMIC_RELEASE);
		while (wait(NULL) > 0)
			;
		return;
	}
	threads = calloc(g->n, sizeof(*threads));
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 * 1024);
	for (i = 0; i < g->n; i++) {
		struct thread_arg *a = malloc(sizeof(*a));

		*a = (struct thread_arg){ g, i };
		if (pthread_create(&threads[i], &attr, thread, a))
			cs_fail("creating a worker");
	}
	__atomic_store_n(&g->created, ru_now(), __ATOMIC_RELEASE);
	for (i = 0; i < g->n; i++)
		pthread_join(threads[i], NULL);
}

struct ru_gang *ru_gang(const struct ru_gang_opts *opts)
{
	size_t size = sizeof(struct ru_gang) + opts->n * sizeof(struct ru_worker);
	struct ru_gang *g;
	uint64_t end;
	pid_t pid;
	int i;

	signal(SIGUSR1, wake_up);
	g = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g == MAP_FAILED)
		cs_fail("mmap: %s", strerror(errno));
	g->n = opts->n;
	g->start = opts->start;
	g->one_each = opts->one_each;
	g->near = opts->near;
	g->far_times = opts->far_times;
	g->policy = opts->policy;
	g->processes = opts->processes;
	g->session = opts->session;
	g->log = opts->log;
	g->watch = opts->watch;
	for (i = 0; i < g->n; i++) {
		g->w[i].busy_us = opts->busy_us;
		g->w[i].sleep_us = opts->sleep_us;
		/*
		 * A first write here, not in a worker, whose page faults would
		 * be part of what the test measures.
		 */
		memset(g->w[i].interval, 0, opts->log ? sizeof(g->w[i].interval) : 1);
	}
	/* g->pid is shared with the child, to which fork() returns 0. */
	if (opts->cg) {
		pid = cs_spawn(opts->cg, lead, g);
	} else {
		pid = fork();
		if (pid < 0)
			cs_fail("fork: %s", strerror(errno));
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			lead(g);
			_exit(0);
		}
	}
	g->pid = pid;
	end = ru_now() + 10000000000ull;
	for (i = 0; i < g->n; i++) {
		while (!g->w[i].beat) {
			if (ru_now() > end)
				cs_fail("worker %d did not start within 10 s", i);
			nap(1000);
		}
	}
	/* The gang's first process may wait for a CPU behind its workers. */
	while (!__atomic_load_n(&g->created, __ATOMIC_ACQUIRE)) {
		if (ru_now() > end)
			cs_fail("the workers' parent did not finish within 10 s");
		nap(1000);
	}
	return g;
}

void ru_allow_one(struct ru_gang *g, int worker, const cpu_set_t *set)
{
	if (sched_setaffinity(g->w[worker].tid, sizeof(*set), set))
		cs_fail("sched_setaffinity: %s", strerror(errno));
}

void ru_allow(struct ru_gang *g, const cpu_set_t *set)
{
	int i;

	for (i = 0; i < g->n; i++)
		ru_allow_one(g, i, set);
}

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE		62
#define PR_SCHED_CORE_CREATE	1
#endif

int ru_try_cookie(const struct ru_gang *g)
{
	/* Of the whole thread group. */
	return prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, g->pid, 1, 0);
}

void ru_move(struct ru_gang *g, const char *cg)
{
	int i;

	cs_move(cg, g->pid);
	for (i = 0; g->processes && i < g->n; i++)
		cs_move(cg, g->w[i].tid);
}

void ru_wake(struct ru_gang *g)
{
	int i;

	for (i = 0; i < g->n; i++)
		syscall(SYS_tgkill, g->processes ? g->w[i].tid : g->pid, g->w[i].tid, SIGUSR1);
}

void ru_end(struct ru_gang *g)
{
	int i;

	for (i = 0; g->processes && i < g->n; i++)
		kill(g->w[i].tid, SIGKILL);
	cs_kill(g->pid);
	munmap(g, sizeof(*g) + g->n * sizeof(struct ru_worker));
}

bool ru_member(const struct ru_gang *g, pid_t tid)
{
	int i;

	for (i = 0; i < g->n; i++)
		if (g->w[i].tid == tid)
			return true;
	return false;
}

void ru_mark(const struct ru_gang *g, struct ru_mark *m)
{
	int i, cpu;

	memset(m, 0, sizeof(*m));
	m->at = ru_now();
	for (i = 0; i < g->n; i++)
		for (cpu = 0; cpu < RU_CPUS; cpu++)
			m->ran_ns[cpu] += g->w[i].ran_ns[cpu];
}

uint64_t ru_ran(const struct ru_gang *g, const struct ru_mark *m, const cpu_set_t *set)
{
	uint64_t sum = 0;
	int i, cpu;

	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, set))
			continue;
		for (i = 0; i < g->n; i++)
			sum += g->w[i].ran_ns[cpu];
		sum -= m->ran_ns[cpu];
	}
	return sum;
}

double ru_share(const struct ru_gang *g, const struct ru_mark *m, const cpu_set_t *set)
{
	uint64_t all = ru_ran(g, m, &ru_topo()->online);

	if (!all)
		cs_fail("the workers did not run at all");
	return 100.0 * ru_ran(g, m, set) / all;
}

static int by_from(const void *a, const void *b)
{
	const struct ru_interval *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

double ru_idle(struct ru_gang *const *gangs, int n, const cpu_set_t *set,
	       uint64_t from, uint64_t to)
{
	struct ru_interval *all;
	int total = 0, workers = 0, g, i, cpu;
	uint64_t idle = 0;

	for (g = 0; g < n; g++)
		workers += gangs[g]->n;
	all = calloc((size_t)workers * RU_INTERVALS, sizeof(*all));
	if (!all)
		cs_fail("no memory for the intervals of %d workers", workers);
	for (g = 0; g < n; g++)
		for (i = 0; i < gangs[g]->n; i++) {
			const struct ru_worker *w = &gangs[g]->w[i];
			/* The worker works on, and there may be more intervals at every look. */
			int nr = __atomic_load_n(&w->nr_intervals, __ATOMIC_ACQUIRE);

			if (nr == RU_INTERVALS)
				cs_fail("a worker ran out of intervals");
			memcpy(all + total, w->interval, nr * sizeof(*all));
			total += nr;
		}
	qsort(all, total, sizeof(*all), by_from);
	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		uint64_t covered = from;

		if (!CPU_ISSET(cpu, set))
			continue;
		for (i = 0; i < total && covered < to; i++) {
			if (all[i].cpu != cpu || all[i].to <= covered)
				continue;
			/* One worker ends, the next begins: a switch, not idleness. */
			if (all[i].from > covered + RU_GAP_NS)
				idle += (all[i].from < to ? all[i].from : to) - covered;
			covered = all[i].to;
		}
		if (covered + RU_GAP_NS < to)
			idle += to - covered;
	}
	free(all);
	return 100.0 * idle / ((to - from) * (double)CPU_COUNT(set));
}

/* The trace */

static void trace_write(const char *file, const char *value)
{
	int ret = cs_try_write(TRACE_DIR, file, value);

	if (ret)
		cs_fail("write '%s' to %s/%s: %s", value, TRACE_DIR, file, strerror(-ret));
}

void ru_trace_also(const char *event)
{
	char file[128];

	snprintf(file, sizeof(file), "events/%s/enable", event);
	trace_write(file, "1");
}

void ru_trace_start(void)
{
	if (mkdir(TRACE_DIR, 0755) && errno != EEXIST)
		cs_fail("mkdir %s: %s", TRACE_DIR, strerror(errno));
	trace_write("tracing_on", "0");
	trace_write("trace", "\n");
	trace_write("trace_clock", "mono");
	trace_write("buffer_size_kb", TRACE_KB);
	if (cs_mode() != CS_MODE_ABSENT)
		ru_trace_also("cosched");
	ru_trace_also("sched/sched_migrate_task");
	trace_write("tracing_on", "1");
}

/* The number after " key=", or -1. */
static int field(const char *line, const char *key)
{
	char want[32];
	const char *at;

	snprintf(want, sizeof(want), " %s=", key);
	at = strstr(line, want);
	return at ? atoi(at + strlen(want)) : -1;
}

/* Of the first of @names, which end with NULL, that the line has. */
static int either(const char *line, const char *const *names)
{
	int v = -1;

	for (; *names && v < 0; names++)
		v = field(line, *names);
	return v;
}

/* "   comm-pid   [003] d.h2.    12.345678: cosched_place: comm=... */
static bool parse_event(const char *line, struct ru_event *e)
{
	static const char *const pid[] = { "pid", "next_pid", NULL };
	static const char *const src[] = { "prev_cpu", "orig_cpu", "src_cpu", NULL };
	static const char *const dst[] = { "cpu", "dest_cpu", "dst_cpu", "target_cpu", NULL };
	const char *at = strstr(line, " ["), *reason;
	double seconds;
	int end = 0;

	memset(e, 0, sizeof(*e));
	if (line[0] == '#' || !at)
		return false;
	if (sscanf(at, " [%d] %*s %lf: %23[a-z_]:%n", &e->on, &seconds, e->name, &end) != 3 || !end)
		return false;
	e->ns = seconds * 1e9;
	at += end;
	e->pid = either(at, pid);
	e->src = either(at, src);
	e->dst = either(at, dst);
	e->dear = field(at, "dear");
	e->bursts = field(at, "bursts");
	reason = strstr(at, " reason=");
	if (reason)
		sscanf(reason, " reason=%15s", e->reason);
	return true;
}

void ru_trace_stop(struct ru_trace *t)
{
	char line[1024];
	int room = 0;
	FILE *f;

	trace_write("tracing_on", "0");
	t->n = 0;
	t->event = NULL;
	f = fopen(TRACE_DIR "/trace", "r");
	if (!f)
		cs_fail("open the trace: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		struct ru_event e;

		if (strstr(line, "LOST"))
			cs_fail("the trace lost events: %s", line);
		if (!parse_event(line, &e))
			continue;
		if (t->n == room) {
			room = room ? 2 * room : 4096;
			t->event = realloc(t->event, room * sizeof(e));
			if (!t->event)
				cs_fail("out of memory");
		}
		t->event[t->n++] = e;
	}
	fclose(f);
	trace_write("events/enable", "0");
	trace_write("trace", "\n");
}

bool ru_is(const struct ru_event *e, const char *name, const char *reason)
{
	return !strcmp(e->name, name) && (!reason || !strcmp(e->reason, reason));
}

int ru_count_to(const struct ru_trace *t, const struct ru_gang *g, const char *name,
		const char *reason, const cpu_set_t *set)
{
	int i, n = 0;

	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		if (!ru_is(e, name, reason))
			continue;
		if (g && !ru_member(g, e->pid))
			continue;
		if (set && (e->dst < 0 || !CPU_ISSET(e->dst, set)))
			continue;
		n++;
	}
	return n;
}

int ru_count(const struct ru_trace *t, const struct ru_gang *g, const char *name,
	     const char *reason)
{
	return ru_count_to(t, g, name, reason, NULL);
}

bool ru_idle_about(const struct ru_trace *t, int at, int cpu, uint64_t before, uint64_t after)
{
	uint64_t ns = t->event[at].ns;
	const struct ru_event *e;
	int i;

	for (i = at; i >= 0; i--) {
		e = &t->event[i];
		if (!strcmp(e->name, "sched_switch") && e->on == cpu)
			break;
	}
	if (i < 0 || e->pid || e->ns + before > ns)
		return false;
	for (i = at + 1; i < t->n; i++) {
		e = &t->event[i];
		if (e->ns > ns + after)
			return true;
		if (!strcmp(e->name, "sched_switch") && e->on == cpu)
			return false;
	}
	return false;
}

static bool migration(const struct ru_event *e, const struct ru_gang *g)
{
	return !strcmp(e->name, "sched_migrate_task") && ru_member(g, e->pid);
}

int ru_moves_into(const struct ru_trace *t, const struct ru_gang *g, const cpu_set_t *set)
{
	int i, n = 0;

	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		if (migration(e, g) && !CPU_ISSET(e->src, set) && CPU_ISSET(e->dst, set))
			n++;
	}
	return n;
}

int ru_domain_moves(const struct ru_trace *t, const struct ru_gang *g, uint64_t since)
{
	const struct ru_topo *topo = ru_topo();
	int i, n = 0;

	for (i = 0; i < t->n; i++) {
		const struct ru_event *e = &t->event[i];

		if (e->ns >= since && migration(e, g) &&
		    topo->llc_of[e->src] != topo->llc_of[e->dst])
			n++;
	}
	return n;
}

void ru_prefer(const char *cg, const cpu_set_t *home)
{
	char list[1024];

	cs_format_cpus(home, list, sizeof(list));
	cs_write(cg, CS_PREF, list);
}

void ru_figure(double value, const char *unit, const char *fmt, ...)
{
	char name[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	cs_diag("figure %s %.3f %s", name, value, unit);
}
