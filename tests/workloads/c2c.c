// SPDX-License-Identifier: GPL-2.0
/*
 * A producer writes a buffer, a consumer reads it, over and over: how fast data
 * moves between two CPUs. What Table 1 of Vaddagiri et al., "Scaling software on
 * multi-core through co-scheduling of related tasks", OLS 2009, was measured
 * with: c2cbench -P0 -C1 -prw -crd -d4096 -b256 -s8.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: c2c [OPTION]...\n"
"Moves a buffer from a producer to a consumer and prints \"c2c producer P consumer C\n"
"bytes B rounds R ns T mb_per_s X\": B bytes R times in T nanoseconds of the system's\n"
"clock, X = B * R / T in MB/s.\n"
"\n"
"  -p, --producer CPU   CPU of the producer (0)\n"
"  -c, --consumer CPU   CPU of the consumer (1)\n"
"  -b, --kib N          size of the buffer in KiB (256)\n"
"  -s, --stride N       bytes from one access to the next, 8 to 4096 (8)\n"
"  -r, --rounds N       how often (20)\n"
"  -h, --help           this text\n";

static long producer, consumer = 1, kib = 256, stride = 8, rounds = 20;
static volatile uint64_t *buffer;
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

static void *consume(void *unused)
{
	uint64_t sum = 0;

	(void)unused;
	run_on(consumer);
	for (long r = -1; r < rounds; r++) {
		wait_for(1);
		for (long i = 0; i < words; i += step)
			sum += buffer[i];
		__atomic_store_n(full, 0, __ATOMIC_RELEASE);
	}
	return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "producer", required_argument, NULL, 'p' },
		{ "consumer", required_argument, NULL, 'c' },
		{ "kib", required_argument, NULL, 'b' },
		{ "stride", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	pthread_t thread;
	uint64_t t = 0;
	int c;

	while ((c = getopt_long(argc, argv, "p:c:b:s:r:h", options, NULL)) != -1) {
		switch (c) {
		case 'p': producer = parse_number("producer", optarg, 0, CPU_SETSIZE - 1); break;
		case 'c': consumer = parse_number("consumer", optarg, 0, CPU_SETSIZE - 1); break;
		case 'b': kib = parse_number("kib", optarg, 1, 1 << 20); break;
		case 's': stride = parse_number("stride", optarg, 8, 4096); break;
		case 'r': rounds = parse_number("rounds", optarg, 1, 1000000); break;
		case 'h': fputs(help, stdout); return 0;
		default: fputs(help, stderr); return 2;
		}
	}
	if (optind != argc) {
		fputs(help, stderr);
		return 2;
	}
	step = stride / 8;
	words = kib * 1024 / 8;
	buffer = shared_alloc(kib * 1024);
	full = shared_alloc(4096);
	run_on(producer);
	if (pthread_create(&thread, NULL, consume, NULL))
		die("no thread for the consumer");
	model_on();
	/* The first round warms up. */
	for (long r = -1; r < rounds; r++) {
		wait_for(0);
		if (!r) {
			model_begin();
			t = now_ns();
		}
		for (long i = 0; i < words; i += step)
			buffer[i] = r + i;
		__atomic_store_n(full, 1, __ATOMIC_RELEASE);
	}
	wait_for(0);
	t = now_ns() - t;
	model_end();
	model_off();
	pthread_join(thread, NULL);
	printf("c2c producer %ld consumer %ld bytes %ld rounds %ld ns %lu mb_per_s %.1f\n", producer,
	       consumer, kib * 1024, rounds, (unsigned long)t, kib * 1024.0 * rounds * 1e3 / t);
	return 0;
}
