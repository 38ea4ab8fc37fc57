// SPDX-License-Identifier: GPL-2.0
/*
 * A program that knows nothing of preferences. It binds its threads in all the ways that
 * there are, and prints for each thread what the calls return and what the kernel says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static cpu_set_t cpus(int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; first <= last; first++)
		CPU_SET(first, &set);
	return set;
}

/* Prints what follows @word at the beginning of a line of a file. */
static void print_line(const char *name, const char *file, const char *word)
{
	FILE *f = fopen(file, "r");
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, word, strlen(word)))
			printf(" %s=%.*s", name, (int)strcspn(line + strlen(word), "\n"),
			       line + strlen(word));
	}
	if (f)
		fclose(f);
}

static void print(const char *name, int result)
{
	cpu_set_t set, other;
	int i;

	printf("%s result=%d reads=", name, result);
	if (sched_getaffinity(0, sizeof(set), &set) ||
	    pthread_getaffinity_np(pthread_self(), sizeof(other), &other) ||
	    !CPU_EQUAL(&set, &other))
		exit(1);
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &set))
			printf("%d", i);
	}
	print_line("allowed", "/proc/thread-self/status", "Cpus_allowed_list:\t");
	print_line("in", "/proc/thread-self/cgroup", "0::");
	printf("\n");
	fflush(stdout);
}

static pthread_barrier_t barrier;

static void *bound_by_another(void *arg)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	print("thread", *(int *)arg);
	return NULL;
}

static void *bound_at_start(void *arg)
{
	print("attribute", 0);
	return arg;
}

int main(int argc, char **argv)
{
	cpu_set_t set = cpus(4, 5);
	pthread_attr_t attr;
	pthread_t thread;
	int result;

	if (argc > 1) {
		print(argv[1], 0);
		/* The inherited affinity does not limit what the program can ask for. */
		set = cpus(0, 0);
		print("child's own", sched_setaffinity(0, sizeof(set), &set));
		return 0;
	}
	print("main", sched_setaffinity(0, sizeof(set), &set));
	if (!fork()) {
		execl("/proc/self/exe", argv[0], "child", NULL);
		_exit(1);
	}
	wait(NULL);

	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&thread, NULL, bound_by_another, &result))
		return 1;
	pthread_barrier_wait(&barrier);
	set = cpus(0, 1);
	result = pthread_setaffinity_np(thread, sizeof(set), &set);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);

	set = cpus(2, 3);
	if (pthread_attr_init(&attr) || pthread_attr_setaffinity_np(&attr, sizeof(set), &set) ||
	    pthread_create(&thread, &attr, bound_at_start, NULL))
		return 1;
	pthread_join(thread, NULL);
	set = cpus(1000, 1000);
	result = sched_setaffinity(0, sizeof(set), &set);
	print(errno == EINVAL ? "no CPU" : "?", result);
	return 0;
}
