// SPDX-License-Identifier: GPL-2.0
/*
 * A fixed amount of waking up, and of being interrupted by the tick, counted in
 * cycles of the time stamp counter.  In a guest in parallel virtual time, one
 * cycle is one guest instruction, so that two kernels compare exactly.
 *
 * A mean would carry whatever else the kernel did meanwhile, so the run is cut
 * into short windows: the least window is the bare path, the median the usual
 * one.
 */
#define _GNU_SOURCE
#include "common.h"
#include <linux/futex.h>

static const char help[] =
"Usage: wakebench [OPTION]... pipe|futex|timer|wake|tick|fault\n"
"Prints cycles (instructions, in parallel virtual time) per wakeup, tick or page fault as\n"
"\"MODE windows W least L median M mean A\".  With --model also \"result nsec M\".\n"
"\n"
"  pipe    two processes hand a byte back and forth through two pipes\n"
"  futex   two processes wake one another through a futex\n"
"  timer   one process sleeps for the shortest time, woken by its timer\n"
"  wake    one process wakes another that sleeps; only the call of the waker counts\n"
"  tick    one process runs and is interrupted by the tick\n"
"  fault   one process touches pages for the first time; before that line, \"cycles N\" of\n"
"          all windows, which the machine model counts also if it is not on\n"
"\n"
"  -w, --windows N      windows, or ticks, to count (2000)\n"
"  -r, --rounds N       round trips, sleeps or pages in one window (8)\n"
"  -c, --cpus LIST      CPUs that both may use (all)\n"
"  -t, --timekeeper CPU tick: keep this CPU busy and so with it the kernel's time\n"
"  -g, --cgroup DIR     cgroup to join first\n"
"  -b, --busy LIST      keep each of these CPUs busy with a process; repeatable; in the\n"
"                       cgroup if that is given before\n"
"  -u, --work USEC      wake: the process that is woken runs for that long before it sleeps (0)\n"
"  -m, --model          switch the lab's machine model on, and have it count\n"
"  -h, --help           this text\n";

static long windows = 2000, rounds = 8, work_us;
static bool model, joined;
static int timekeeper = -1;
static uint64_t *cost;

static inline uint64_t cycles(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#else
	return now_ns();
#endif
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Each window holds per_window wakeups or ticks. */
static void report(const char *mode, long per_window)
{
	double sum = 0;

	end_measuring(model);
	qsort(cost, windows, sizeof(*cost), by_value);
	for (long i = 0; i < windows; i++)
		sum += cost[i];
	printf("%s windows %ld least %.2f median %.2f mean %.2f\n", mode, windows,
	       (double)cost[0] / per_window, (double)cost[windows / 2] / per_window,
	       sum / windows / per_window);
	if (model)
		printf("result nsec %.3f\n", (double)cost[windows / 2] / per_window);
}

static void pass(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		die("pipe: %s", strerror(errno));
}

static void bench_pipe(void)
{
	int there[2], back[2];
	char byte = 0;
	pid_t pid;

	if (pipe(there) || pipe(back))
		die("pipe: %s", strerror(errno));
	pid = fork_child();
	if (!pid)
		for (;;)
			pass(there[0], back[1]);

	for (long w = -windows / 10; w < windows; w++) {
		uint64_t t = cycles();

		for (long r = 0; r < rounds; r++)
			if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				die("pipe: %s", strerror(errno));
		if (w >= 0)
			cost[w] = cycles() - t;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("pipe", 2 * rounds);
}

static void futex_wait(uint32_t *word, uint32_t until)
{
	uint32_t v;

	while ((v = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != until)
		syscall(SYS_futex, word, FUTEX_WAIT, v, NULL, NULL, 0);
}

static void futex_post(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void bench_futex(void)
{
	/* A page each, so that the two words hash to futex buckets alike on every run. */
	uint32_t *there = shared_alloc(4096), *back = shared_alloc(4096), n = 0;
	pid_t pid = fork_child();

	if (!pid) {
		for (;;) {
			futex_wait(there, ++n);
			futex_post(back, n);
		}
	}
	for (long w = -windows / 10; w < windows; w++) {
		uint64_t t = cycles();

		for (long r = 0; r < rounds; r++) {
			futex_post(there, ++n);
			futex_wait(back, n);
		}
		if (w >= 0)
			cost[w] = cycles() - t;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("futex", 2 * rounds);
}

/* A task that joined a cluster elsewhere goes home when it wakes up. */
static void go_home(void)
{
	for (int i = 0; joined && i < 10; i++)
		sleep_ns(10000000);
}

/*
 * As far as the waker has to execute it: the kernel chooses a CPU and queues the sleeper there. How
 * long the sleeper then waits for a CPU does not count, so all CPUs may be busy meanwhile; it may
 * not run on that of the waker, in the midst of the call. A wakeup that comes before the other
 * sleeps again does not count, either.
 */
static void bench_wake(void)
{
	uint32_t *word = shared_alloc(4096);
	cpu_set_t here, others;
	pid_t pid;

	go_home();
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_getaffinity(0, sizeof(others), &others))
		die("sched_getaffinity: %s", strerror(errno));
	CPU_XOR(&others, &others, &here);
	pid = fork_child();
	if (sched_setaffinity(0, sizeof(here), pid ? &here : &others))
		die("sched_setaffinity: %s", strerror(errno));
	while (!pid) {
		uint64_t t;

		syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
		t = now_ns();
		while (work_us && now_ns() - t < work_us * 1000ull)
			cpu_pause();
	}
	for (long w = -windows / 10; w < windows; w++) {
		uint64_t sum = 0;

		for (long r = 0; r < rounds;) {
			uint64_t t = now_ns();

			while (now_ns() - t < 50000)
				cpu_pause();
			t = cycles();
			if (syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0) == 1) {
				sum += cycles() - t;
				r++;
			}
		}
		if (w >= 0)
			cost[w] = sum;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("wake", rounds);
}

/*
 * The CPU is idle while the process sleeps, and the counter goes on while it is
 * idle. To count only what the process and the kernel ran, keep the CPU busy with
 * a process of the idle class, whose own work is known. To the kernel that CPU is
 * as good as an idle one, so the process mostly wakes up there, wherever else it
 * might. The load balancer may move it: what it was in the midst of does not count.
 */
static void bench_timer(void)
{
	uint64_t *beat = shared_alloc(4096);
	cpu_set_t here, all;
	long left = 0;
	pid_t pid;
	int cpu;

	go_home();
	cpu = sched_getcpu();
	CPU_ZERO(&here);
	CPU_SET(cpu, &here);
	if (sched_getaffinity(0, sizeof(all), &all) || sched_setaffinity(0, sizeof(here), &here))
		die("affinity: %s", strerror(errno));
	pid = fork_child();
	if (!pid) {
		if (sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
			die("SCHED_IDLE: %s", strerror(errno));
		/* Two instructions a turn: the addition and the jump. */
		for (;;)
			__asm__ volatile("addq $2, %0" : "+m"(*beat));
	}
	while (!*(volatile uint64_t *)beat)
		sleep_ns(1000000);
	if (sched_setaffinity(0, sizeof(all), &all))
		die("affinity: %s", strerror(errno));
	for (long w = -windows / 10; w < windows;) {
		uint64_t t = cycles(), b = *(volatile uint64_t *)beat;
		bool stays = true;

		for (long r = 0; stays && r < rounds; r++) {
			sleep_ns(1);
			stays = sched_getcpu() == cpu;
		}
		t = cycles() - t - (*(volatile uint64_t *)beat - b);
		if (!stays) {
			if (++left > windows)
				die("woken on other CPUs than %d too often", cpu);
			if (sched_setaffinity(0, sizeof(here), &here) ||
			    sched_setaffinity(0, sizeof(all), &all))
				die("affinity: %s", strerror(errno));
			continue;
		}
		if (w >= 0)
			cost[w] = t;
		w++;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report("timer", rounds);
}

/* With PAUSE, which the emulator executes without work. */
static void keep_busy(cpu_set_t cpus)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		cpu_set_t one;

		if (!CPU_ISSET(cpu, &cpus))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (fork_child())
			continue;
		if (sched_setaffinity(0, sizeof(one), &one))
			die("--busy: %s", strerror(errno));
		for (;;)
			cpu_pause();
	}
}

/*
 * One CPU's tick also advances the kernel's time, in steps whose number depends on
 * where in a tick the guest began: a difference of 13 instructions between two
 * kernels that do not differ there. That CPU is one that is not idle, and it keeps
 * this role until it idles: here the one where a process spins while others sleep.
 */
static pid_t keep_time(void)
{
	cpu_set_t cpus;
	pid_t pid = fork_child();

	if (pid) {
		sleep_ns(50 * 1000000);
		/* It has ended, and has said why. */
		if (waitpid(pid, NULL, WNOHANG))
			exit(2);
		return pid;
	}
	CPU_ZERO(&cpus);
	CPU_SET(timekeeper, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("--timekeeper: %s", strerror(errno));
	for (;;)
		__asm__ volatile("");
}

/*
 * A loop that only reads the counter advances it in equal steps; a larger step
 * is an interruption, and the difference is what the tick ran.
 */
static void bench_tick(void)
{
	pid_t pid = timekeeper < 0 ? 0 : keep_time();
	uint64_t last = cycles(), step = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		uint64_t t = cycles();

		if (t - last < step)
			step = t - last;
		last = t;
	}
	last = cycles();
	for (long w = -windows / 10; w < windows;) {
		uint64_t t = cycles(), d = t - last;

		last = t;
		if (d < step + 200)
			continue;
		if (w >= 0)
			cost[w] = d - step;
		w++;
		last = cycles();
	}
	if (pid) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	report("tick", 1);
}

/* The store that faults is in the midst of other instructions, without a branch between them. */
static void bench_fault(void)
{
	const size_t page = 4096, size = windows * rounds * page;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t begin, end;

	if (p == MAP_FAILED)
		die("%zu bytes of memory: %s", size, strerror(errno));
	/* A kernel without huge pages reports an error. */
	madvise(p, size, MADV_NOHUGEPAGE);
	begin = cycles();
	model_begin();
	for (long w = 0; w < windows; w++) {
		uint64_t t = cycles();

		for (long r = 0; r < rounds; r++, p += page)
			__asm__ volatile("nop; nop; nop; nop; movb $1, (%0); nop; nop"
					 : : "r"(p) : "memory");
		cost[w] = cycles() - t;
	}
	model_end();
	end = cycles();
	printf("cycles %lu\n", (unsigned long)(end - begin));
	report("fault", rounds);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "windows", required_argument, NULL, 'w' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "timekeeper", required_argument, NULL, 't' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "busy", required_argument, NULL, 'b' },
		{ "work", required_argument, NULL, 'u' },
		{ "model", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	cpu_set_t cpus;
	int c;

	while ((c = getopt_long(argc, argv, "w:r:c:t:g:b:u:mh", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			windows = parse_number("windows", optarg, 1, 10000000);
			break;
		case 'r':
			rounds = parse_number("rounds", optarg, 1, 1000000);
			break;
		case 'c':
			cpus = parse_cpus(optarg);
			if (sched_setaffinity(0, sizeof(cpus), &cpus))
				die("--cpus: %s", strerror(errno));
			break;
		case 't':
			timekeeper = parse_number("timekeeper", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'g':
			join_cgroup(optarg, 0, false);
			joined = true;
			break;
		case 'b':
			keep_busy(parse_cpus(optarg));
			break;
		case 'u':
			work_us = parse_number("work", optarg, 0, 1000000);
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
	if (optind != argc - 1) {
		fputs(help, stderr);
		return 2;
	}
	cost = calloc(windows, sizeof(*cost));
	if (!cost)
		die("out of memory");
	begin_measuring(model, 0);
	if (!strcmp(argv[optind], "pipe"))
		bench_pipe();
	else if (!strcmp(argv[optind], "futex"))
		bench_futex();
	else if (!strcmp(argv[optind], "timer"))
		bench_timer();
	else if (!strcmp(argv[optind], "wake"))
		bench_wake();
	else if (!strcmp(argv[optind], "tick"))
		bench_tick();
	else if (!strcmp(argv[optind], "fault"))
		bench_fault();
	else
		die("no such mode: %s", argv[optind]);
	return 0;
}
