// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that search memory which they share, as those of a web server or a
 * database look things up: each instance has records of its own, read by all of
 * its threads and written by none. What matters is whether an instance's records
 * fit the caches that its threads run on: two instances that share each cache run
 * worse than two that have a cache each. Modelled on ebizzy, with which Table 2 of
 * Vaddagiri et al., "Scaling software on multi-core through co-scheduling of
 * related tasks", OLS 2009, was measured.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: search [OPTION]...\n"
"Runs instances of threads that search their instance's records for random keys,\n"
"and prints \"result ops_per_sec N\": searches of all instances.\n"
"\n"
"  -w, --instances N    instances (2)\n"
"  -n, --workers N      threads in each (2)\n"
"  -k, --kib N          size of an instance's records in KiB (3072)\n"
"  -c, --chunk N        KiB that one search reads (4)\n"
"  -l, --local N        units of 1,000 instructions of private work in one (4)\n"
"  -b, --busy US        work between two sleeps (2000); 0: never sleep\n"
"  -s, --sleep US       length of a sleep (500), varied by half\n"
"  -W, --warmup MS      how long before searches are counted (0)\n"
"  -t, --time MS        how long they are (1000)\n"
"  -g, --cgroup DIR     cgroup of instance I: DIR with %d replaced by I\n"
"  -m, --model          switch the lab's machine model on when all threads run, and\n"
"                       have it count while searches are counted\n"
"  -h, --help           this text\n";

struct worker {
	unsigned int instance, nr;
	pthread_t thread;
	volatile uint64_t ops;
} __attribute__((aligned(64)));

struct shared {
	struct window window;
	uint32_t running;
};

static long instances = 2, workers = 2, kib = 3072, chunk_kib = 4, local = 4, busy_us = 2000;
static long pause_us = 500, warmup_ms, duration_ms = 1000;
static bool model;
static const char *cgroup;
static struct worker *all;
static volatile struct shared *shared;
static uint64_t **records;

/* Reads a line of each that a chunk has, and compares. */
static uint64_t search(const uint64_t *chunk, uint64_t key)
{
	uint64_t found = 0;

	for (long i = 0; i < chunk_kib * 128; i += 8)
		found += chunk[i] == key;
	return found;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t seed = 2654435761u * (w - all + 1);
	long chunks = kib / chunk_kib;
	uint64_t slept = now_ns();

	model_cluster(w->instance);
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	for (;;) {
		uint64_t t = now_ns(), ops;
		long nr = next_random(&seed) % chunks;

		if (busy_us && t - slept >= busy_us * 1000ull) {
			sleep_ns(jitter(pause_us * 1000, &seed));
			t = now_ns();
			slept = t;
		}
		if (t >= shared->window.end_ns)
			return NULL;
		/* The result is used, so that the compiler keeps the search. */
		ops = 1 + (search(records[w->instance] + nr * chunk_kib * 128, UINT64_MAX) > 0);
		if (t >= shared->window.start_ns)
			w->ops += ops;
		for (long i = 0; i < local; i++)
			work_unit();
		cpu_pause();
	}
}

static void start_instance(unsigned int nr)
{
	uint32_t seed = nr + 1;

	if (fork_child())
		return;
	if (cgroup)
		join_cgroup(cgroup, nr, false);
	/* Written here, so that its memory is the node's where the instance begins. */
	for (long i = 0; i < kib * 128; i++)
		records[nr][i] = next_random(&seed);
	for (long i = 0; i < workers; i++) {
		struct worker *w = &all[nr * workers + i];

		if (pthread_create(&w->thread, NULL, work, w))
			die("creating a thread");
	}
	for (long i = 0; i < workers; i++)
		pthread_join(all[nr * workers + i].thread, NULL);
	exit(0);
}

static uint64_t total(void)
{
	uint64_t ops = 0;

	for (long i = 0; i < instances * workers; i++)
		ops += all[i].ops;
	return ops;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "instances", required_argument, NULL, 'w' },
		{ "workers", required_argument, NULL, 'n' },
		{ "kib", required_argument, NULL, 'k' },
		{ "chunk", required_argument, NULL, 'c' },
		{ "local", required_argument, NULL, 'l' },
		{ "busy", required_argument, NULL, 'b' },
		{ "sleep", required_argument, NULL, 's' },
		{ "warmup", required_argument, NULL, 'W' },
		{ "time", required_argument, NULL, 't' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "model", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	uint64_t t;
	int c;

	while ((c = getopt_long(argc, argv, "w:n:k:c:l:b:s:W:t:g:mh", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			instances = parse_number("instances", optarg, 1, 1024);
			break;
		case 'n':
			workers = parse_number("workers", optarg, 1, 1024);
			break;
		case 'k':
			kib = parse_number("kib", optarg, 1, 1 << 20);
			break;
		case 'c':
			chunk_kib = parse_number("chunk", optarg, 1, 1 << 20);
			break;
		case 'l':
			local = parse_number("local", optarg, 0, 1 << 20);
			break;
		case 'b':
			busy_us = parse_number("busy", optarg, 0, 1000000000);
			break;
		case 's':
			pause_us = parse_number("sleep", optarg, 1, 1000000000);
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
		case 'm':
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
	if (kib < chunk_kib || optind != argc) {
		fputs(help, stderr);
		return 2;
	}
	shared = shared_alloc(sizeof(*shared));
	no_window(&shared->window);
	all = shared_alloc(instances * workers * sizeof(*all));
	records = calloc(instances, sizeof(*records));
	if (!records)
		die("out of memory");
	for (long i = 0; i < instances; i++) {
		records[i] = shared_alloc(kib * 1024);
		for (long k = 0; k < workers; k++) {
			all[i * workers + k].instance = i;
			all[i * workers + k].nr = k;
		}
		start_instance(i);
	}
	wait_for_workers(&shared->running, instances * workers);
	begin_window(&shared->window, model, warmup_ms, duration_ms);
	while ((t = now_ns()) < shared->window.end_ns)
		sleep_ns(shared->window.end_ns - t);
	end_measuring(model);
	while (wait(NULL) > 0)
		;
	printf("result ops_per_sec %.1f\n", total() * 1e3 / duration_ms);
	return 0;
}
