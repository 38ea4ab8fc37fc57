// SPDX-License-Identifier: GPL-2.0
/*
 * Soakers: processes that use all the CPU time they can get, as batch jobs do, in
 * the mixes of "CFS, latency and batch" (Google): of idle class beside a normal one,
 * one of another nice value, random work and sleep, a cgroup each. What counts is how
 * much of the machine they leave idle, how evenly they share it, how often they move.
 *
 * Each soaker says after every unit of work how much CPU time it has had, of its own
 * clock: the values in /proc and other processes' clocks are as old as the last tick, and
 * the ticks of /proc/stat are coarser still. Time that no soaker had counts as idle, also
 * the time of the kernel's threads.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/resource.h>

#include "common.h"

static const char help[] =
"Usage: soak [OPTION]...\n"
"Prints, of each soaker, \"soaker I cpu_msec N migrations M\"; then \"soak cpus N msec N\n"
"idle P kernel_idle P rsd P migrations M\": in percent, the machine's time that no soaker\n"
"had, what the kernel counted as idle, in units of 10 ms, and the standard deviation of\n"
"the soakers' CPU time by its mean; then \"result METRIC VALUE\".\n"
"It measures as SCHED_FIFO, where it is allowed to.\n"
"\n"
"  -n, --number N       soakers (16)\n"
"  -i, --idle-class N   the last N of them are SCHED_IDLE (0)\n"
"  -N, --nice NICE      nice value of the first (0)\n"
"  -b, --burst MS       random work of up to MS of CPU time, then random sleep of up to MS,\n"
"                       over and over (0: never sleep)\n"
"  -p, --packed LIST    all have only these CPUs for 100 ms, and all CPUs from then on\n"
"  -W, --warmup MS      how long after that is not measured (0)\n"
"  -t, --time MS        how long is measured (1000)\n"
"  -r, --result WHAT    idle (idle_percent), rsd (rsd_percent) or migrations\n"
"                       (migrations_per_sec) (idle)\n"
"  -c, --clusters N     soaker I is of cluster I modulo N (1)\n"
"  -g, --cgroup DIR     cgroup of cluster I: DIR with %d replaced by I\n"
"  -M, --model          switch the lab's machine model on when all soakers run, and\n"
"                       have it count while they are measured\n"
"  -h, --help           this text\n";

/* For this long the balancer finds nothing to move, and its intervals grow. */
#define PACKED_MS	100

/*
 * A unit that took longer was interrupted, by a tick or by others that had the CPU.
 * In a guest in virtual time it takes 10 us, a tick less than that.
 */
#define GAP_NS		25000

struct soaker {
	uint64_t cpu_ns;	/* CPU time until the end of its last unit */
} __attribute__((aligned(64)));

/* Of all soakers at once. */
struct sample {
	uint64_t ns;		/* when */
	uint64_t *cpu_ns;
	long *migrations;
	uint64_t own_ns;	/* CPU time of this process */
	double kernel_idle_ns;
};

static long number = 16, idle_class, nice_value, burst_ms, warmup_ms, duration_ms = 1000;
static long clusters = 1;
static bool model, packed;
static const char *cgroup, *result = "idle";
static cpu_set_t packed_cpus;
static uint32_t *running;
static struct soaker *soakers;
static pid_t *pids;

/* CPU time of this process. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts))
		die("reading the CPU-time clock: %s", strerror(errno));
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/*
 * A unit of work; returns the CPU time that the soaker has had. Asking the kernel each
 * time would make it account for time, and so end slices, where it otherwise does not.
 */
static uint64_t soak_unit(struct soaker *s)
{
	static uint64_t last, lead;	/* of the clock, over CPU time */
	uint64_t t;

	/* Nearly all of it PAUSE, which costs the lab's host little: 10 us there. */
	for (int i = 0; i < 10; i++)
		cpu_pause();
	t = now_ns();
	if (t - last > GAP_NS) {
		uint64_t cpu = cpu_ns();

		t = now_ns();
		lead = t - cpu;
	}
	last = t;
	__atomic_store_n(&s->cpu_ns, t - lead, __ATOMIC_RELAXED);
	return t - lead;
}

static void __attribute__((noreturn)) soak(unsigned int nr)
{
	uint32_t seed = 2654435761u * (nr + 1);
	struct soaker *s = &soakers[nr];

	if (cgroup)
		join_cgroup(cgroup, nr % clusters, false);
	if (packed && sched_setaffinity(0, sizeof(packed_cpus), &packed_cpus))
		die("--packed: %s", strerror(errno));
	if (nr >= number - idle_class &&
	    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
		die("SCHED_IDLE: %s", strerror(errno));
	if (!nr && setpriority(PRIO_PROCESS, 0, nice_value))
		die("--nice %ld: %s", nice_value, strerror(errno));
	__atomic_add_fetch(running, 1, __ATOMIC_RELEASE);
	while (!burst_ms)
		soak_unit(s);
	for (;;) {
		uint64_t burst = burst_ms * 1000000ull;
		uint64_t end = soak_unit(s) + next_random(&seed) % burst;

		while (soak_unit(s) < end)
			;
		sleep_ns(next_random(&seed) % burst);
	}
}

/* -1 where the kernel does not tell. */
static long migrations_of(pid_t pid)
{
	long n = -1;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/sched", pid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "se.nr_migrations : %ld", &n) == 1)
			break;
	fclose(f);
	return n;
}

static double kernel_idle_ns(void)
{
	FILE *f = fopen("/proc/uptime", "r");
	double idle;

	if (!f || fscanf(f, "%*f %lf", &idle) != 1)
		die("/proc/uptime: no idle time");
	fclose(f);
	return idle * 1e9;
}

static void read_clocks(struct sample *s)
{
	s->ns = now_ns();
	for (long i = 0; i < number; i++)
		s->cpu_ns[i] = __atomic_load_n(&soakers[i].cpu_ns, __ATOMIC_RELAXED);
	s->own_ns = cpu_ns();
}

/* Slow, so not between two readings of the clocks. */
static void read_files(struct sample *s)
{
	s->kernel_idle_ns = kernel_idle_ns();
	for (long i = 0; i < number; i++)
		s->migrations[i] = migrations_of(pids[i]);
}

static struct sample new_sample(void)
{
	struct sample s = {
		.cpu_ns = calloc(number, sizeof(*s.cpu_ns)),
		.migrations = calloc(number, sizeof(*s.migrations)),
	};

	if (!s.cpu_ns || !s.migrations)
		die("no memory for %ld soakers", number);
	return s;
}

static void report(const struct sample *from, const struct sample *to, long cpus)
{
	double elapsed = to->ns - from->ns, all = elapsed * cpus, sum = 0, squares = 0;
	double mean, rsd, idle, kernel_idle;
	long migrations = 0;

	for (long i = 0; i < number; i++) {
		double ns = to->cpu_ns[i] - from->cpu_ns[i];
		long moves = from->migrations[i] < 0 ? -1 : to->migrations[i] - from->migrations[i];

		sum += ns;
		squares += ns * ns;
		migrations = moves < 0 || migrations < 0 ? -1 : migrations + moves;
		printf("soaker %ld cpu_msec %.3f migrations %ld\n", i, ns / 1e6, moves);
	}
	mean = sum / number;
	/* Rounding must not make it the root of a negative number. */
	rsd = mean ? 100 * sqrt(fmax(0, squares / number - mean * mean)) / mean : 0;
	idle = fmax(0, 100 * (1 - (sum + to->own_ns - from->own_ns) / all));
	kernel_idle = 100 * (to->kernel_idle_ns - from->kernel_idle_ns) / all;
	printf("soak cpus %ld msec %.3f idle %.4f kernel_idle %.2f rsd %.4f migrations %ld\n", cpus,
	       elapsed / 1e6, idle, kernel_idle, rsd, migrations);
	if (!strcmp(result, "idle")) {
		printf("result idle_percent %.4f\n", idle);
	} else if (!strcmp(result, "rsd")) {
		printf("result rsd_percent %.4f\n", rsd);
	} else {
		if (migrations < 0)
			die("/proc/PID/sched has no migrations: needs CONFIG_SCHED_DEBUG");
		printf("result migrations_per_sec %.2f\n", migrations / (elapsed / 1e9));
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "number", required_argument, NULL, 'n' },
		{ "idle-class", required_argument, NULL, 'i' },
		{ "nice", required_argument, NULL, 'N' },
		{ "burst", required_argument, NULL, 'b' },
		{ "packed", required_argument, NULL, 'p' },
		{ "warmup", required_argument, NULL, 'W' },
		{ "time", required_argument, NULL, 't' },
		{ "result", required_argument, NULL, 'r' },
		{ "clusters", required_argument, NULL, 'c' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "model", no_argument, NULL, 'M' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct sample from, to;
	cpu_set_t cpus;
	int c;

	while ((c = getopt_long(argc, argv, "n:i:N:b:p:W:t:r:c:g:Mh", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			number = parse_number("number", optarg, 1, 4096);
			break;
		case 'i':
			idle_class = parse_number("idle-class", optarg, 0, 4096);
			break;
		case 'N':
			nice_value = parse_number("nice", optarg, -20, 19);
			break;
		case 'b':
			burst_ms = parse_number("burst", optarg, 0, 1000);
			break;
		case 'p':
			packed_cpus = parse_cpus(optarg);
			packed = true;
			break;
		case 'W':
			warmup_ms = parse_number("warmup", optarg, 0, 86400000);
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 1, 86400000);
			break;
		case 'r':
			result = optarg;
			break;
		case 'c':
			clusters = parse_number("clusters", optarg, 1, 4096);
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
	if (strcmp(result, "idle") && strcmp(result, "rsd") && strcmp(result, "migrations"))
		die("--result: '%s' is not idle, rsd or migrations", result);
	if (idle_class > number)
		die("--idle-class: %ld of %ld soakers", idle_class, number);
	if (packed && !CPU_COUNT(&packed_cpus))
		die("--packed: no CPUs");
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		die("reading the allowed CPUs: %s", strerror(errno));

	running = shared_alloc(sizeof(*running));
	soakers = shared_alloc(number * sizeof(*soakers));
	pids = calloc(number, sizeof(*pids));
	if (!pids)
		die("no memory for %ld soakers", number);
	from = new_sample();
	to = new_sample();
	for (long i = 0; i < number; i++) {
		pids[i] = fork_child();
		if (!pids[i])
			soak(i);
	}
	wait_for_workers(running, number);
	if (packed) {
		sleep_ns(PACKED_MS * 1000000ull);
		for (long i = 0; i < number; i++)
			if (sched_setaffinity(pids[i], sizeof(cpus), &cpus))
				die("releasing soaker %ld: %s", i, strerror(errno));
	}
	/* Not to wait for a soaker at the end; a run without the right measures a tick more. */
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 }) && errno != EPERM)
		die("SCHED_FIFO: %s", strerror(errno));
	begin_measuring(model, warmup_ms);
	read_files(&from);
	read_clocks(&from);
	sleep_ns(duration_ms * 1000000ull);
	read_clocks(&to);
	read_files(&to);
	end_measuring(model);
	for (long i = 0; i < number; i++)
		kill(pids[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	report(&from, &to, CPU_COUNT(&cpus));
	return 0;
}
