/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the workloads share: time, a unit of work, CPU lists, cgroups, options.
 *
 * A unit of work ends with PAUSE.  In parallel virtual time a guest that spins
 * with it costs the host less; on hardware it costs a few nanoseconds.
 */
#ifndef WORKLOADS_COMMON_H
#define WORKLOADS_COMMON_H

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

#define MAX_CPUS	1024

static inline void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = ns / 1000000000,
		.tv_nsec = ns % 1000000000,
	};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* About a thousand instructions that touch no memory. */
static inline void work_unit(void)
{
	for (unsigned int i = 500; i; i--)
		__asm__ volatile("" : "+r"(i));
	cpu_pause();
}

/* Small, fast, and the same sequence on every run. */
static inline uint32_t next_random(uint32_t *state)
{
	uint32_t x = *state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

/* Uniform in [mean / 2, mean * 3 / 2). */
static inline uint64_t jitter(uint64_t mean, uint32_t *state)
{
	if (mean < 2)
		return mean;
	return mean / 2 + next_random(state) % mean;
}

/* "0-3,8" to a set; dies with a message if the list is malformed. */
static inline cpu_set_t parse_cpus(const char *list)
{
	const char *p = list;
	cpu_set_t set;

	CPU_ZERO(&set);
	while (*p) {
		char *end;
		long from = strtol(p, &end, 10), to = from;

		if (end == p)
			die("bad CPU list '%s'", list);
		p = end;
		if (*p == '-') {
			to = strtol(p + 1, &end, 10);
			if (end == p + 1)
				die("bad CPU list '%s'", list);
			p = end;
		}
		if (from < 0 || to < from || to >= CPU_SETSIZE)
			die("bad CPU list '%s'", list);
		for (; from <= to; from++)
			CPU_SET(from, &set);
		if (*p == ',')
			p++;
		else if (*p)
			die("bad CPU list '%s'", list);
	}
	return set;
}

static inline long parse_number(const char *option, const char *s, long min, long max)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		die("--%s: '%s' is not a number between %ld and %ld", option, s, min, max);
	return v;
}

/*
 * Moves the calling process, or only this thread of it, into the cgroup that
 * @pattern names, with %d in it replaced by @nr.
 */
static inline void join_cgroup(const char *pattern, unsigned int nr, bool thread)
{
	const char *file = thread ? "cgroup.threads" : "cgroup.procs";
	const char *d = strstr(pattern, "%d");
	char path[4096 + 32];
	int fd;

	if (d)
		snprintf(path, sizeof(path), "%.*s%u%.3000s/%s", (int)(d - pattern), pattern, nr,
			 d + 2, file);
	else
		snprintf(path, sizeof(path), "%.4000s/%s", pattern, file);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, "0\n", 2) != 2)
		die("%s: %s", path, strerror(errno));
	close(fd);
}

/* Returns when @running has become @all: each worker counts itself there. */
static inline void wait_for_workers(volatile uint32_t *running, long all)
{
	uint64_t start = now_ns();

	while (__atomic_load_n(running, __ATOMIC_ACQUIRE) < (uint32_t)all) {
		if (now_ns() - start > 60000000000ull)
			die("%ld workers did not start within a minute", all);
		sleep_ns(1000000);
	}
}

/* Before the measurement: switches the model on, and warms up. */
static inline void begin_measuring(bool model, long warmup_ms)
{
	if (model)
		model_on();
	if (warmup_ms)
		sleep_ns(warmup_ms * 1000000ull);
	if (model)
		model_begin();
}

/*
 * Operations that begin within this window count.  Each worker looks at the clock and counts its
 * own operations: the process that sets the window may get a CPU late, when the others have gone
 * on, and would count their later operations, too.
 */
struct window {
	uint64_t start_ns, end_ns;
};

static inline void no_window(volatile struct window *w)
{
	w->end_ns = UINT64_MAX;
	w->start_ns = UINT64_MAX;
}

/*
 * As begin_measuring().  All workers must know the window before it begins, so without a warmup it
 * begins a moment later.
 */
static inline void begin_window(volatile struct window *w, bool model, long warmup_ms,
				long duration_ms)
{
	uint64_t t, start_ns;

	if (model)
		model_on();
	start_ns = now_ns() + (warmup_ms ? warmup_ms : 1) * 1000000ull;
	w->start_ns = start_ns;
	w->end_ns = start_ns + duration_ms * 1000000ull;
	while ((t = now_ns()) < start_ns)
		sleep_ns(start_ns - t);
	if (model)
		model_begin();
}

static inline void end_measuring(bool model)
{
	if (model) {
		model_end();
		model_off();
	}
}

static inline void *shared_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("allocating %zu bytes: %s", size, strerror(errno));
	return p;
}

/* A child must not outlive a workload that was killed. */
static inline pid_t fork_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

#endif
