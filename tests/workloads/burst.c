// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that are busy and asleep for random times: load that comes and goes,
 * so that an idle CPU and a waiting thread often exist at the same moment.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: burst [OPTION]...\n"
"Runs threads that are busy, then asleep, for random times, and prints the CPU\n"
"time they got, the time they wanted to run, and the share of it they waited.\n"
"\n"
"  -n, --number N       threads (16)\n"
"  -b, --busy MS        longest burst of work (100)\n"
"  -s, --sleep MS       longest sleep (100)\n"
"  -t, --time MS        how long (2000)\n"
"  -c, --cpus LIST      CPUs they may use (all)\n"
"  -g, --cgroup DIR     cgroup to join first\n"
"      --seed N         other random times (1)\n"
"  -h, --help           this text\n";

/* A gap longer than this between two units of work was spent waiting. */
#define GAP_NS		1000000

struct thread {
	pthread_t id;
	uint32_t seed;
	uint64_t ran, wanted;
};

static long number = 16, busy_ms = 100, pause_ms = 100, duration_ms = 2000, seed = 1;
static cpu_set_t cpus;
static bool have_cpus;
static uint64_t end_ns;

static void *burst(void *arg)
{
	struct thread *th = arg;

	if (have_cpus && sched_setaffinity(0, sizeof(cpus), &cpus))
		die("--cpus: %s", strerror(errno));

	for (;;) {
		uint64_t left = next_random(&th->seed) % (busy_ms * 1000000ull);
		uint64_t from = now_ns(), last = from;

		while (left && last < end_ns) {
			uint64_t t, d;

			work_unit();
			t = now_ns();
			d = t - last;
			last = t;
			if (d > GAP_NS)
				continue;
			th->ran += d;
			left -= d < left ? d : left;
		}
		th->wanted += last - from;
		if (last >= end_ns)
			return NULL;
		sleep_ns(next_random(&th->seed) % (pause_ms * 1000000ull));
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "number", required_argument, NULL, 'n' },
		{ "busy", required_argument, NULL, 'b' },
		{ "sleep", required_argument, NULL, 's' },
		{ "time", required_argument, NULL, 't' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "seed", required_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	uint64_t ran = 0, wanted = 0;
	struct thread *threads;
	int c;

	while ((c = getopt_long(argc, argv, "n:b:s:t:c:g:h", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			number = parse_number("number", optarg, 1, 4096);
			break;
		case 'b':
			busy_ms = parse_number("busy", optarg, 1, 1000000);
			break;
		case 's':
			pause_ms = parse_number("sleep", optarg, 1, 1000000);
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 1, 86400000);
			break;
		case 'c':
			cpus = parse_cpus(optarg);
			have_cpus = true;
			break;
		case 'g':
			join_cgroup(optarg, 0, false);
			break;
		case 'S':
			seed = parse_number("seed", optarg, 1, INT32_MAX);
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

	threads = calloc(number, sizeof(*threads));
	if (!threads)
		die("out of memory");
	end_ns = now_ns() + duration_ms * 1000000ull;
	for (long i = 0; i < number; i++) {
		threads[i].seed = 2654435761u * (i + 1) ^ seed;
		if (pthread_create(&threads[i].id, NULL, burst, &threads[i]))
			die("creating thread %ld", i);
	}
	for (long i = 0; i < number; i++) {
		pthread_join(threads[i].id, NULL);
		ran += threads[i].ran;
		wanted += threads[i].wanted;
	}
	printf("burst threads %ld ran_usec %lu runnable_usec %lu waited %.2f%%\n",
	       number, ran / 1000, wanted / 1000,
	       wanted ? 100.0 * (wanted - ran) / wanted : 0.0);
	return 0;
}
