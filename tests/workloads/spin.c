// SPDX-License-Identifier: GPL-2.0
/* N threads or processes that never sleep, or sleep now and then. */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: spin [OPTION]...\n"
"Runs spinners and prints, for each, its CPU time, how many units of 1,000 instructions\n"
"it did, and the CPUs it ran on.\n"
"\n"
"  -n, --number N       spinners (1)\n"
"  -p, --processes      one process each; default: threads of one process\n"
"  -t, --time MS        how long (1000); 0: until killed\n"
"  -b, --busy US        work between two sleeps (0: never sleep)\n"
"  -s, --sleep US       length of a sleep (1000), varied by half\n"
"  -c, --cpus LIST      CPUs they may use (all)\n"
"      --start LIST     CPUs they begin on, spread one each, before --cpus\n"
"  -g, --cgroup DIR     cgroup to join first\n"
"      --idle           SCHED_IDLE\n"
"  -q, --quiet          print nothing\n"
"  -h, --help           this text\n";

struct spinner {
	pthread_t thread;
	pid_t pid;
	unsigned int nr;
	uint64_t cpu_ns;
	uint64_t units[MAX_CPUS];
};

static struct spinner *spinners;
static long number = 1, duration_ms = 1000, busy_us, pause_us = 1000;
static bool processes, quiet, idle_policy, have_cpus, have_start;
static cpu_set_t cpus, start;
static uint64_t end_ns;

static void pin_to_start(unsigned int nr)
{
	unsigned int skip = nr % CPU_COUNT(&start);
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &start) && !skip--) {
			CPU_SET(cpu, &one);
			break;
		}
	}
	if (sched_setaffinity(0, sizeof(one), &one))
		die("pinning a spinner to its first CPU: %s", strerror(errno));
}

static void *spin(void *arg)
{
	struct spinner *s = arg;
	uint32_t seed = 2654435761u * (s->nr + 1);
	uint64_t slept = now_ns();
	struct timespec ts;

	if (idle_policy && sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
		die("SCHED_IDLE: %s", strerror(errno));
	if (have_start)
		pin_to_start(s->nr);
	if (have_cpus || have_start)
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			die("--cpus: %s", strerror(errno));

	for (;;) {
		uint64_t t = now_ns();
		int cpu = sched_getcpu();

		if (t >= end_ns)
			break;
		if (cpu >= 0 && cpu < MAX_CPUS)
			s->units[cpu]++;
		if (busy_us && t - slept >= busy_us * 1000ull) {
			sleep_ns(jitter(pause_us * 1000, &seed));
			slept = now_ns();
		}
		work_unit();
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	s->cpu_ns = ts.tv_sec * 1000000000ull + ts.tv_nsec;
	return NULL;
}

static void report(void)
{
	for (long i = 0; i < number; i++) {
		struct spinner *s = &spinners[i];
		uint64_t sum = 0;

		for (int cpu = 0; cpu < MAX_CPUS; cpu++)
			sum += s->units[cpu];
		printf("spinner %ld cpu_usec %lu units %lu ran", i, s->cpu_ns / 1000, sum);
		for (int cpu = 0; cpu < MAX_CPUS; cpu++)
			if (s->units[cpu])
				printf(" %d:%.1f%%", cpu, 100.0 * s->units[cpu] / sum);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "number", required_argument, NULL, 'n' },
		{ "processes", no_argument, NULL, 'p' },
		{ "time", required_argument, NULL, 't' },
		{ "busy", required_argument, NULL, 'b' },
		{ "sleep", required_argument, NULL, 's' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "start", required_argument, NULL, 'S' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "idle", no_argument, NULL, 'i' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	memset(&cpus, 0xff, sizeof(cpus));
	while ((c = getopt_long(argc, argv, "n:pt:b:s:c:g:qh", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			number = parse_number("number", optarg, 1, 4096);
			break;
		case 'p':
			processes = true;
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 0, 86400000);
			break;
		case 'b':
			busy_us = parse_number("busy", optarg, 0, 1000000000);
			break;
		case 's':
			pause_us = parse_number("sleep", optarg, 1, 1000000000);
			break;
		case 'c':
			cpus = parse_cpus(optarg);
			have_cpus = true;
			break;
		case 'S':
			start = parse_cpus(optarg);
			have_start = CPU_COUNT(&start);
			break;
		case 'g':
			join_cgroup(optarg, 0, false);
			break;
		case 'i':
			idle_policy = true;
			break;
		case 'q':
			quiet = true;
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

	spinners = shared_alloc(number * sizeof(*spinners));
	end_ns = duration_ms ? now_ns() + duration_ms * 1000000ull : UINT64_MAX;
	for (long i = 0; i < number; i++) {
		spinners[i].nr = i;
		if (processes) {
			spinners[i].pid = fork_child();
			if (!spinners[i].pid) {
				spin(&spinners[i]);
				return 0;
			}
		} else if (pthread_create(&spinners[i].thread, NULL, spin, &spinners[i])) {
			die("creating thread %ld", i);
		}
	}
	for (long i = 0; i < number; i++) {
		if (processes)
			waitpid(spinners[i].pid, NULL, 0);
		else
			pthread_join(spinners[i].thread, NULL);
	}
	if (!quiet)
		report();
	return 0;
}
