// SPDX-License-Identifier: GPL-2.0
/*
 * Wakeup latency: messengers wake their workers, over and over, and each worker
 * notes how long that took until it ran, as schbench does. A batch cluster, which
 * computes without ever sleeping, may run beside them.
 */
#define _GNU_SOURCE
#include <linux/futex.h>

#include "common.h"

static const char help[] =
"Usage: wakelat [OPTION]...\n"
"Prints \"wakelat wakeups N p50 A p99 B p99.9 C max D\", microseconds from a wakeup to\n"
"when the woken thread runs (only threads that wait are woken), then \"batch ops N\", the units of 1,000 instructions that\n"
"the batch cluster did, and \"result usec_p99 B\".\n"
"\n"
"  -m, --messengers N   messengers (2)\n"
"  -n, --workers N      workers of each (3)\n"
"  -l, --local N        units of 1,000 instructions that a worker does when woken (100)\n"
"  -i, --interval US    between two rounds of a messenger (1000), varied by half\n"
"  -B, --batch N        threads of the batch cluster (0)\n"
"  -W, --warmup MS      how long before wakeups are counted (0)\n"
"  -t, --time MS        how long they are (1000)\n"
"  -g, --cgroup DIR     cgroup of messengers and workers: DIR with %d replaced by 0; of the\n"
"                       batch cluster, by 1\n"
"  -M, --model          switch the lab's machine model on when all threads run, and\n"
"                       have it count while wakeups are counted\n"
"  -h, --help           this text\n";

#define MAX_SAMPLES	(1024 * 1024)

/* The worker waits, its messenger wakes it, it works. */
enum worker_state {
	WORKING,
	WAITING,
	WOKEN,
};

struct worker {
	uint32_t state;			/* enum worker_state, a futex */
	uint64_t woken_ns;		/* when .state became WOKEN */
	pthread_t thread;
} __attribute__((aligned(64)));

struct shared {
	uint32_t running;
	bool counts, stop;
	uint32_t nr_samples;
	uint32_t sample[MAX_SAMPLES];	/* ns */
	uint64_t batch_ops[1024][8];	/* a line each */
};

static long messengers = 2, workers = 3, local = 100, interval_us = 1000, batch, warmup_ms;
static long duration_ms = 1000;
static bool model;
static const char *cgroup;
static volatile struct shared *shared;
static struct worker *all;

static void futex(volatile uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

static void *work(void *arg)
{
	/* A worker checks now and then whether the run is over. */
	static const struct timespec limit = { .tv_nsec = 100000000 };
	struct worker *w = arg;

	model_cluster(0);
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	while (!shared->stop) {
		int64_t late;
		uint32_t nr;

		__atomic_store_n(&w->state, WAITING, __ATOMIC_RELEASE);
		do {
			futex(&w->state, FUTEX_WAIT, WAITING, &limit);
			if (shared->stop)
				return NULL;
		} while (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) != WOKEN);
		w->state = WORKING;
		/* Clocks of two CPUs may differ a bit, in virtual time by the quantum. */
		late = now_ns() - w->woken_ns;
		if (late < 0)
			late = 0;
		if (shared->counts) {
			nr = __atomic_fetch_add(&shared->nr_samples, 1, __ATOMIC_RELAXED);
			if (nr < MAX_SAMPLES)
				shared->sample[nr] = late < UINT32_MAX ? late : UINT32_MAX;
		}
		for (long i = 0; i < local; i++)
			work_unit();
	}
	return NULL;
}

static void *message(void *arg)
{
	unsigned int nr = (uintptr_t)arg;
	uint32_t seed = 2654435761u * (nr + 1);

	model_cluster(0);
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	while (!shared->stop) {
		sleep_ns(jitter(interval_us * 1000, &seed));
		for (long i = 0; i < workers; i++) {
			struct worker *w = &all[nr * workers + i];

			/* Not woken again before it waits again: work is no latency. */
			if (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) != WAITING)
				continue;
			w->woken_ns = now_ns();
			__atomic_store_n(&w->state, WOKEN, __ATOMIC_RELEASE);
			futex(&w->state, FUTEX_WAKE, 1, NULL);
		}
	}
	return NULL;
}

static void *compute(void *arg)
{
	volatile uint64_t *ops = shared->batch_ops[(uintptr_t)arg];

	model_cluster(1);
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	while (!shared->stop) {
		work_unit();
		*ops += shared->counts;
	}
	return NULL;
}

static void run(unsigned int cluster, void *(*routine)(void *), long n)
{
	pthread_t *threads = calloc(n, sizeof(*threads));

	if (fork_child()) {
		free(threads);
		return;
	}
	if (cgroup)
		join_cgroup(cgroup, cluster, false);
	for (long i = 0; routine == message && i < messengers * workers; i++) {
		if (pthread_create(&all[i].thread, NULL, work, &all[i]))
			die("creating a thread");
	}
	for (long i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, routine, (void *)i))
			die("creating a thread");
	for (long i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	/* Workers wait for at most their limit. */
	for (long i = 0; routine == message && i < messengers * workers; i++)
		pthread_join(all[i].thread, NULL);
	exit(0);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Microseconds that @part of @nr sorted samples are below. */
static double percentile(const uint32_t *sample, uint32_t nr, double part)
{
	uint32_t i = part * nr;

	return sample[i < nr ? i : nr - 1] / 1e3;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "messengers", required_argument, NULL, 'm' },
		{ "workers", required_argument, NULL, 'n' },
		{ "local", required_argument, NULL, 'l' },
		{ "interval", required_argument, NULL, 'i' },
		{ "batch", required_argument, NULL, 'B' },
		{ "warmup", required_argument, NULL, 'W' },
		{ "time", required_argument, NULL, 't' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "model", no_argument, NULL, 'M' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	uint64_t ops = 0;
	uint32_t *sample, nr;
	int c;

	while ((c = getopt_long(argc, argv, "m:n:l:i:B:W:t:g:Mh", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			messengers = parse_number("messengers", optarg, 1, 256);
			break;
		case 'n':
			workers = parse_number("workers", optarg, 1, 256);
			break;
		case 'l':
			local = parse_number("local", optarg, 0, 1 << 20);
			break;
		case 'i':
			interval_us = parse_number("interval", optarg, 10, 1000000000);
			break;
		case 'B':
			batch = parse_number("batch", optarg, 0, 1024);
			break;
		case 'W':
			warmup_ms = parse_number("warmup", optarg, 0, 86400000);
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 1, 86400000);
			break;
		case 'g':
			cgroup = optarg;
			break;
		case 'M':
			model = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return 2;
		}
	}
	if (optind != argc) {
		fputs(help, stderr);
		return 2;
	}
	shared = shared_alloc(sizeof(*shared));
	all = shared_alloc(messengers * workers * sizeof(*all));
	run(0, message, messengers);
	if (batch)
		run(1, compute, batch);
	wait_for_workers(&shared->running, messengers * (workers + 1) + batch);
	begin_measuring(model, warmup_ms);
	shared->counts = true;
	sleep_ns(duration_ms * 1000000ull);
	shared->counts = false;
	end_measuring(model);
	shared->stop = true;
	while (wait(NULL) > 0)
		;
	nr = shared->nr_samples < MAX_SAMPLES ? shared->nr_samples : MAX_SAMPLES;
	if (!nr)
		die("no wakeup was counted: --time is shorter than --interval");
	sample = (uint32_t *)shared->sample;
	qsort(sample, nr, sizeof(*sample), by_value);
	printf("wakelat wakeups %u p50 %.1f p99 %.1f p99.9 %.1f max %.1f\n", nr,
	       percentile(sample, nr, 0.5), percentile(sample, nr, 0.99),
	       percentile(sample, nr, 0.999), sample[nr - 1] / 1e3);
	for (long i = 0; i < batch; i++)
		ops += shared->batch_ops[i][0];
	printf("batch ops %lu\n", (unsigned long)ops);
	printf("result usec_p99 %.2f\n", percentile(sample, nr, 0.99));
	return 0;
}
