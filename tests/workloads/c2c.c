// SPDX-License-Identifier: GPL-2.0
/*
 * A producer writes a buffer, a consumer reads it, over and over: how fast data
 * moves between two CPUs. Table 1 of Vaddagiri et al., "Scaling software on
 * multi-core through co-scheduling of related tasks", OLS 2009, was measured
 * with c2cbench -P0 -C1 -prw -crd -d4096 -b256 -s8, which does this.
 *
 * Or, with --latency, both change one word in turn by compare-and-exchange, which is
 * how core-to-core latencies are published.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: c2c [OPTION]...\n"
"Moves a buffer from a producer to a consumer and prints \"c2c producer P consumer C\n"
"bytes B rounds R ns T mb_per_s X\": B bytes R times in T nanoseconds of the system's\n"
"clock, X = B * R / T in MB/s. With --latency: \"c2c producer P consumer C messages R\n"
"latency_ns X\", X the median of samples of 200 messages each.\n"
"\n"
"  -p, --producer CPU   CPU of the producer (0)\n"
"  -c, --consumer CPU   CPU of the consumer (1)\n"
"  -b, --kib N          size of the buffer in KiB (256)\n"
"  -s, --stride N       bytes from one access to the next, 8 to 4096 (8)\n"
"  -r, --rounds N       how often (20; with --latency 2000, there and back)\n"
"  -l, --latency        one word, in turn\n"
"  -S, --string         write and copy by REP string instructions (x86 only), stride 8\n"
"  -h, --help           this text\n";

/* For --latency: rounds that are not counted, and rounds of a sample. */
#define WARMUP	1000
#define SAMPLE	100

static long producer, consumer = 1, kib = 256, stride = 8, rounds;
static bool latency, string;
static volatile uint64_t *buffer, *copy;
static volatile uint32_t *full;		/* a line of its own */
static long step, words;

static void run_on(long cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("running on CPU %ld: %s", cpu, strerror(errno));
}

static void wait_for(uint32_t value)
{
	while (__atomic_load_n(full, __ATOMIC_ACQUIRE) != value)
		cpu_pause();
}

static void change(uint32_t from, uint32_t to)
{
	uint32_t expected = from;

	while (!__atomic_compare_exchange_n(full, &expected, to, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED))
		expected = from;
}

static void *answer(void *unused)
{
	(void)unused;
	run_on(consumer);
	for (long r = -WARMUP; r < rounds; r++)
		change(1, 0);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Median of the nanoseconds of SAMPLE rounds: few samples have a timer's interrupt in them. */
static uint64_t ask(void)
{
	uint64_t *sample = calloc(rounds / SAMPLE + 1, sizeof(*sample)), t = 0;
	long n = 0;

	if (!sample)
		die("out of memory");
	for (long r = -WARMUP; r < rounds; r++) {
		if (!r)
			model_begin();
		if (r >= 0 && r % SAMPLE == 0) {
			if (r)
				sample[n++] = now_ns() - t;
			t = now_ns();
		}
		change(0, 1);
	}
	change(0, 0);
	sample[n++] = now_ns() - t;
	qsort(sample, n, sizeof(*sample), by_value);
	t = sample[n / 2];
	free(sample);
	return t;
}

static void fill(uint64_t value)
{
#if defined(__x86_64__)
	if (string) {
		volatile uint64_t *to = buffer;
		long n = words;

		__asm__ volatile("rep stosq" : "+D" (to), "+c" (n) : "a" (value) : "memory");
		return;
	}
#endif
	for (long i = 0; i < words; i += step)
		buffer[i] = value + i;
}

static uint64_t take(void)
{
	uint64_t sum = 0;

#if defined(__x86_64__)
	if (string) {
		volatile uint64_t *from = buffer, *to = copy;
		long n = words;

		__asm__ volatile("rep movsq" : "+S" (from), "+D" (to), "+c" (n) :: "memory");
		return 0;
	}
#endif
	for (long i = 0; i < words; i += step)
		sum += buffer[i];
	return sum;
}

static void *consume(void *unused)
{
	uint64_t sum = 0;

	(void)unused;
	run_on(consumer);
	for (long r = -1; r < rounds; r++) {
		wait_for(1);
		sum += take();
		__atomic_store_n(full, 0, __ATOMIC_RELEASE);
	}
	return (void *)(uintptr_t)sum;
}

/* The first round warms up. */
static uint64_t produce(void)
{
	uint64_t t = 0;

	for (long r = -1; r < rounds; r++) {
		wait_for(0);
		if (!r) {
			model_begin();
			t = now_ns();
		}
		fill(r);
		__atomic_store_n(full, 1, __ATOMIC_RELEASE);
	}
	wait_for(0);
	return now_ns() - t;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "producer", required_argument, NULL, 'p' },
		{ "consumer", required_argument, NULL, 'c' },
		{ "kib", required_argument, NULL, 'b' },
		{ "stride", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "latency", no_argument, NULL, 'l' },
		{ "string", no_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	pthread_t thread;
	uint64_t t;
	int c;

	while ((c = getopt_long(argc, argv, "p:c:b:s:r:lSh", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			producer = parse_number("producer", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'c':
			consumer = parse_number("consumer", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'b':
			kib = parse_number("kib", optarg, 1, 1 << 20);
			break;
		case 's':
			stride = parse_number("stride", optarg, 8, 4096);
			break;
		case 'r':
			rounds = parse_number("rounds", optarg, 1, 1000000);
			break;
		case 'l':
			latency = true;
			break;
		case 'S':
			string = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return 2;
		}
	}
	if (optind != argc || (string && (latency || stride != 8))) {
		fputs(help, stderr);
		return 2;
	}
#if !defined(__x86_64__)
	if (string)
		die("--string: these instructions are x86's");
#endif
	if (!rounds)
		rounds = latency ? 2000 : 20;
	if (latency)
		rounds = (rounds + SAMPLE - 1) / SAMPLE * SAMPLE;
	step = stride / 8;
	words = kib * 1024 / 8;
	buffer = shared_alloc(kib * 1024);
	copy = shared_alloc(kib * 1024);
	full = shared_alloc(4096);
	run_on(producer);
	if (pthread_create(&thread, NULL, latency ? answer : consume, NULL))
		die("no thread for the consumer");
	model_on();
	t = latency ? ask() : produce();
	model_end();
	model_off();
	pthread_join(thread, NULL);
	printf("c2c producer %ld consumer %ld ", producer, consumer);
	if (latency)
		printf("messages %ld latency_ns %.1f\n", 2 * rounds, t / (2.0 * SAMPLE));
	else
		printf("bytes %ld rounds %ld ns %lu mb_per_s %.1f\n", kib * 1024, rounds,
		       (unsigned long)t, kib * 1024.0 * rounds * 1e3 / t);
	return 0;
}
