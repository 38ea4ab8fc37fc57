// SPDX-License-Identifier: GPL-2.0
/*
 * Instances of threads that are bound by memory, as the warehouses of SPECjbb2005 with
 * which Red Hat measured automatic NUMA balancing ("Automatic NUMA Balancing", 2014): each
 * thread updates memory of its own and reads some that its instance shares, all of it larger
 * than caches. An instance's first thread touches all of it, as a JVM does with AlwaysPreTouch,
 * so that it begins on one node, wherever the threads go.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: numamem [OPTION]...\n"
"Runs instances of threads that update memory, and prints what they did from the start\n"
"on for each interval; \"result settled_msec N\": since when it stayed within 10 % of the\n"
"final throughput; and \"result ops_per_sec N\": that, updates and reads of a chunk, of all\n"
"instances, in the last third.\n"
"\n"
"  -w, --instances N    instances (2)\n"
"  -n, --workers N      threads in each (2)\n"
"  -k, --kib N          KiB that each thread has of its own (8192)\n"
"  -S, --shared N       KiB that an instance shares (8192)\n"
"  -p, --percent N      percent of what a thread does with these (20)\n"
"  -c, --chunk N        KiB of one update or read (4)\n"
"  -b, --busy US        work between two sleeps (0: never sleep)\n"
"  -s, --sleep US       length of a sleep (500), varied by half\n"
"  -t, --time MS        how long to run (3000)\n"
"  -i, --interval MS    how long an interval is (100)\n"
"  -g, --cgroup DIR     cgroup of instance I: DIR with %d replaced by I\n"
"  -m, --model          switch the lab's machine model on when all threads run\n"
"  -h, --help           this text\n";

#define PAGE_BYTES	4096
#define MAX_INTERVALS	4096

struct worker {
	unsigned int instance, nr;
	pthread_t thread;
	volatile uint64_t ops;
} __attribute__((aligned(64)));

struct shared {
	uint32_t running;
	bool go, stop;
};

static long instances = 2, workers = 2, own_kib = 8192, shared_kib = 8192, percent = 20;
static long chunk_kib = 4, busy_us, pause_us = 500, duration_ms = 3000, interval_ms = 100;
static bool model;
static const char *cgroup;
static struct worker *all;
static volatile struct shared *shared;
/* An instance's: what it shares, then what each thread has. */
static uint64_t *memory;

static void update(uint64_t *chunk)
{
	for (long i = 0; i < chunk_kib * 128; i += 8)
		chunk[i]++;
}

static uint64_t look_at(const volatile uint64_t *chunk)
{
	uint64_t sum = 0;

	for (long i = 0; i < chunk_kib * 128; i += 8)
		sum += chunk[i];
	return sum;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t seed = 2654435761u * (w - all + 1);
	uint64_t *own = memory + (shared_kib + w->nr * own_kib) * 128, slept;

	model_cluster(w->instance);
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	while (!shared->go)
		sleep_ns(1000000);
	slept = now_ns();
	while (!shared->stop) {
		if (busy_us && now_ns() - slept >= busy_us * 1000ull) {
			sleep_ns(jitter(pause_us * 1000, &seed));
			slept = now_ns();
		}
		if (shared_kib && next_random(&seed) % 100 < percent)
			look_at(memory + next_random(&seed) % (shared_kib / chunk_kib) *
				chunk_kib * 128);
		else
			update(own + next_random(&seed) % (own_kib / chunk_kib) * chunk_kib * 128);
		w->ops++;
		cpu_pause();
	}
	return NULL;
}

static void start_instance(unsigned int nr)
{
	size_t size = (shared_kib + workers * own_kib) * 1024;
	struct worker *w = &all[nr * workers];

	if (fork_child())
		return;
	if (cgroup)
		join_cgroup(cgroup, nr, false);
	/* Memory private to a process, which NUMA balancing moves. */
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("allocating %zu bytes: %s", size, strerror(errno));
	for (size_t i = 0; i < size; i += PAGE_BYTES)
		((volatile char *)memory)[i] = 1;
	for (long i = 0; i < workers; i++) {
		w[i].instance = nr;
		w[i].nr = i;
		if (pthread_create(&w[i].thread, NULL, work, &w[i]))
			die("creating a thread");
	}
	for (long i = 0; i < workers; i++)
		pthread_join(w[i].thread, NULL);
	exit(0);
}

static uint64_t total(void)
{
	uint64_t ops = 0;

	for (long i = 0; i < instances * workers; i++)
		ops += all[i].ops;
	return ops;
}

/* The end of the last interval that was not within 10 % of @final. */
static double settled_ms(const double *speed, const double *end_ms, long nr, double final)
{
	while (nr && speed[nr - 1] >= 0.9 * final && speed[nr - 1] <= 1.1 * final)
		nr--;
	/* If it was settled from the start on: the end of the first interval. */
	return end_ms[nr];
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "instances", required_argument, NULL, 'w' },
		{ "workers", required_argument, NULL, 'n' },
		{ "kib", required_argument, NULL, 'k' },
		{ "shared", required_argument, NULL, 'S' },
		{ "percent", required_argument, NULL, 'p' },
		{ "chunk", required_argument, NULL, 'c' },
		{ "busy", required_argument, NULL, 'b' },
		{ "sleep", required_argument, NULL, 's' },
		{ "time", required_argument, NULL, 't' },
		{ "interval", required_argument, NULL, 'i' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "model", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	static double speed[MAX_INTERVALS], end_ms[MAX_INTERVALS + 1];
	uint64_t start_ns, then_ns, then_ops, third_ns = 0, third_ops = 0;
	double final;
	long nr;
	int c;

	while ((c = getopt_long(argc, argv, "w:n:k:S:p:c:b:s:t:i:g:mh", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			instances = parse_number("instances", optarg, 1, 1024);
			break;
		case 'n':
			workers = parse_number("workers", optarg, 1, 1024);
			break;
		case 'k':
			own_kib = parse_number("kib", optarg, 1, 1 << 20);
			break;
		case 'S':
			shared_kib = parse_number("shared", optarg, 0, 1 << 20);
			break;
		case 'p':
			percent = parse_number("percent", optarg, 0, 100);
			break;
		case 'c':
			chunk_kib = parse_number("chunk", optarg, 1, 1 << 20);
			break;
		case 'b':
			busy_us = parse_number("busy", optarg, 0, 1000000000);
			break;
		case 's':
			pause_us = parse_number("sleep", optarg, 1, 1000000000);
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 3, 86400000);
			break;
		case 'i':
			interval_ms = parse_number("interval", optarg, 1, 86400000);
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
	nr = duration_ms / interval_ms;
	if (own_kib < chunk_kib || (shared_kib && shared_kib < chunk_kib) || optind != argc) {
		fputs(help, stderr);
		return 2;
	}
	if (nr < 3 || nr > MAX_INTERVALS)
		die("--time is %ld intervals: 3 to %d are wanted", nr, MAX_INTERVALS);
	shared = shared_alloc(sizeof(*shared));
	all = shared_alloc(instances * workers * sizeof(*all));
	for (long i = 0; i < instances; i++)
		start_instance(i);
	wait_for_workers(&shared->running, instances * workers);
	begin_measuring(model, 0);
	shared->go = true;
	then_ns = now_ns();
	start_ns = then_ns;
	then_ops = 0;
	for (long i = 0; i < nr; i++) {
		uint64_t until = start_ns + (i + 1) * interval_ms * 1000000ull, now, ops;

		while ((now = now_ns()) < until)
			sleep_ns(until - now);
		ops = total();
		speed[i] = (ops - then_ops) * 1e9 / (now - then_ns);
		end_ms[i + 1] = (now - start_ns) / 1e6;
		printf("%.0f ms: %.0f /s\n", end_ms[i + 1], speed[i]);
		then_ns = now;
		then_ops = ops;
		if (i + 1 == nr - nr / 3) {
			third_ns = now;
			third_ops = ops;
		}
	}
	final = (then_ops - third_ops) * 1e9 / (then_ns - third_ns);
	end_measuring(model);
	shared->stop = true;
	while (wait(NULL) > 0)
		;
	printf("result settled_msec %.1f\n", settled_ms(speed, end_ms, nr, final));
	printf("result ops_per_sec %.1f\n", final);
	return 0;
}
