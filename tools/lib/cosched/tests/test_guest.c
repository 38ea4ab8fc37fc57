// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the library on a real kernel, in a guest with 8 CPUs: in a cgroup of its own or
 * a delegated one, in the root of the hierarchy ("root"), as a user to whom nothing is
 * delegated ("denied"), and on a kernel without the controller ("none").
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cosched.h"
#include "fake.h"

#define THREADED (COSCHED_CREATE | COSCHED_THREADED)

int failures;

static cpu_set_t cpus(int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; first <= last; first++)
		CPU_SET(first, &set);
	return set;
}

/* Does a file have a line? */
static bool has_line(const char *file, const char *want)
{
	FILE *f = fopen(file, "r");
	bool has = false;
	char line[256];

	while (f && !has && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		has = !strcmp(line, want);
	}
	if (f)
		fclose(f);
	return has;
}

static bool file_has(const struct cosched *c, const char *name, const char *want)
{
	char file[512];

	snprintf(file, sizeof(file), "%s/%s", cosched_path(c), name);
	return has_line(file, want);
}

/* Is a thread in a cluster? 0 is the calling one. */
static bool in(const struct cosched *c, pid_t tid)
{
	char file[64], want[512];

	snprintf(file, sizeof(file), tid ? "/proc/%d/cgroup" : "/proc/thread-self/cgroup", tid);
	snprintf(want, sizeof(want), "0::%s", cosched_path(c) + strlen("/sys/fs/cgroup"));
	return has_line(file, want);
}

static pthread_barrier_t barrier;
static pid_t tid;

static void *be_moved(void *arg)
{
	(void)arg;
	tid = syscall(SYS_gettid);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void test_home(struct cosched *c)
{
	char home[16];
	unsigned int p, a;
	cpu_set_t set;

	CHECK(!cosched_set_home(c, "4-5"));
	CHECK(!cosched_get_effective_home(c, sizeof(set), &set) && CPU_COUNT(&set) == 2 &&
	      CPU_ISSET(4, &set) && CPU_ISSET(5, &set));
	CHECK(cosched_set_home(c, "0-7000") && errno == ERANGE);
	CHECK(cosched_set_home(c, "5-4") && errno == EINVAL);
	CHECK(!cosched_get_home(c, home, sizeof(home)) && !strcmp(home, "4-5"));
	CHECK(!cosched_set_home(c, "auto") && !cosched_get_home(c, home, sizeof(home)) &&
	      !strcmp(home, "auto"));
	CHECK(!cosched_set_home(c, NULL));
	CHECK(!cosched_get_effective_home(c, sizeof(set), &set) && !CPU_COUNT(&set));
	CHECK(!cosched_set_home(c, "0-3"));

	CHECK(!cosched_set_weights(c, 4, 1000));
	CHECK(cosched_set_weights(c, 0, 1000) && errno == ERANGE);
	CHECK(cosched_set_weights(c, 4, 10001) && errno == ERANGE);
	CHECK(!cosched_get_weights(c, &p, &a) && p == 4 && a == 1000);
	CHECK(!cosched_set_weights(c, 0, 0) && !cosched_get_weights(c, &p, &a) &&
	      p == COSCHED_DEFAULT_PREFERRED && a == COSCHED_DEFAULT_ALLOWED);
}

/* Single threads, this one and another, of a process that stays where it is. */
static void test_threads(void)
{
	struct cosched *till = cosched_open("till", THREADED | COSCHED_EXCL), *store;
	pthread_t thread;

	if (!till) {
		CHECK(till);
		return;
	}
	CHECK(file_has(till, "cgroup.type", "threaded"));
	test_home(till);
	CHECK(!cosched_join(till, 0) && in(till, 0));
	CHECK(cosched_remove(till) && errno == EBUSY);

	/* This cluster is beside the one that this thread is in. */
	store = cosched_open("store", THREADED);
	if (!store) {
		CHECK(store);
		return;
	}
	pthread_barrier_init(&barrier, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, be_moved, NULL));
	pthread_barrier_wait(&barrier);
	CHECK(in(till, tid)); /* a thread in it started this one */
	CHECK(!cosched_join(store, tid) && in(store, tid) && in(till, 0));
	CHECK(cosched_leave(till, tid) && errno == ESRCH);
	CHECK(!cosched_leave(store, tid) && !in(store, tid) && !in(till, tid));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	CHECK(cosched_join(store, tid) && errno == ESRCH);
	CHECK(!cosched_leave(till, 0) && !in(till, 0));
	CHECK(!cosched_remove(till) && !cosched_remove(store));
	CHECK(cosched_set_home(till, "0") && (errno == ENOENT || errno == ENODEV));
	cosched_close(till);
	cosched_close(store);
}

static void *make_and_join(void *arg)
{
	struct cosched *c;
	bool first;

	pthread_barrier_wait(&barrier);
	c = cosched_open("race", THREADED | COSCHED_EXCL);
	first = c;
	CHECK(c || errno == EEXIST);
	if (!c)
		c = cosched_open("race", THREADED);
	CHECK(c && !cosched_join(c, 0) && in(c, 0) && !cosched_leave(c, 0));
	pthread_barrier_wait(&barrier);
	if (first)
		CHECK(!cosched_remove(c));
	cosched_close(c);
	*(int *)arg += first;
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void *flip(void *arg)
{
	cpu_set_t one = cpus(1, 1), two = cpus(1, 2), all = cpus(0, 7);
	int i, bad = 0;

	for (i = 0; i < 50; i++) {
		bad += cosched_setaffinity2(0, sizeof(one), &one, COSCHED_SOFT_AFFINITY);
		bad += cosched_setaffinity2(0, sizeof(two), &two, COSCHED_SOFT_AFFINITY);
	}
	bad += cosched_setaffinity2(0, sizeof(all), &all, COSCHED_SOFT_AFFINITY);
	CHECK(!bad);
	return arg;
}

/* Two threads make the same cluster; and two threads join and leave clusters by affinity. */
static void test_race(void)
{
	pthread_t a, b;
	int round, n;

	pthread_barrier_init(&barrier, NULL, 2);
	for (round = 0; round < 20; round++) {
		int first[2] = { 0 };

		CHECK(!pthread_create(&a, NULL, make_and_join, &first[0]));
		CHECK(!pthread_create(&b, NULL, make_and_join, &first[1]));
		pthread_join(a, NULL);
		pthread_join(b, NULL);
		n = first[0] + first[1];
		CHECK(n == 1);
	}
	CHECK(!pthread_create(&a, NULL, flip, NULL));
	CHECK(!pthread_create(&b, NULL, flip, NULL));
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

/* The call that the talk proposes. */
static void test_soft(void)
{
	cpu_set_t set = cpus(4, 5), got, had;
	struct cosched *c;

	CHECK(!sched_getaffinity(0, sizeof(had), &had));
	CHECK(!cosched_setaffinity2(0, sizeof(set), &set, COSCHED_SOFT_AFFINITY));
	CHECK(!sched_getaffinity(0, sizeof(got), &got) && CPU_EQUAL(&got, &had));
	CHECK(!cosched_getaffinity2(0, sizeof(got), &got, COSCHED_SOFT_AFFINITY) &&
	      CPU_EQUAL(&got, &set));
	c = cosched_open("soft-4-5", COSCHED_THREADED);
	CHECK(c && in(c, 0) && file_has(c, "cosched.cpus_preferred.effective", "4-5"));
	set = cpus(0, 7);
	CHECK(!cosched_setaffinity2(0, sizeof(set), &set, COSCHED_SOFT_AFFINITY));
	CHECK(c && !in(c, 0) && access(cosched_path(c), F_OK));
	CHECK(cosched_getaffinity2(0, sizeof(got), &got, COSCHED_SOFT_AFFINITY) &&
	      errno == ENODATA);
	cosched_close(c);
}

/* Whole processes. */
static void test_process(void)
{
	struct cosched *shop = cosched_open("shop", COSCHED_CREATE), *till;

	if (!shop) {
		CHECK(shop);
		return;
	}
	test_home(shop);
	CHECK(!cosched_join(shop, 0) && in(shop, getpid()));
	/* A cluster for threads, below the cluster of the process. */
	till = cosched_open("till", THREADED);
	CHECK(till && !strncmp(cosched_path(till), cosched_path(shop), strlen(cosched_path(shop))));
	CHECK(till && !cosched_join(till, 0) && in(till, 0));
	CHECK(till && !cosched_leave(till, 0) && !cosched_remove(till));
	CHECK(!cosched_leave(shop, 0) && !in(shop, 0) && !cosched_remove(shop));
	cosched_close(till);
	cosched_close(shop);
}

/* A process's threads cannot join a cluster below the cgroup of another process. */
static void test_elsewhere(void)
{
	struct cosched *till = cosched_open("till", THREADED);

	CHECK(till && cosched_join(till, 1) && (errno == EXDEV || errno == EACCES));
	CHECK(till && !cosched_remove(till));
	cosched_close(till);
}

static void test_refused(int error, int other)
{
	cpu_set_t set = cpus(4, 5);

	CHECK(!cosched_open("shop", COSCHED_CREATE) && (errno == error || errno == other));
	CHECK(!cosched_open("till", THREADED) && (errno == error || errno == other));
	CHECK(cosched_setaffinity2(0, sizeof(set), &set, COSCHED_SOFT_AFFINITY) &&
	      (errno == error || errno == other));
	CHECK(!cosched_setaffinity2(0, sizeof(set), &set, COSCHED_HARD_AFFINITY));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "none")) {
		CHECK(!cosched_available());
		test_refused(ENOTSUP, ENOTSUP);
	} else if (!strcmp(mode, "denied")) {
		CHECK(cosched_available());
		test_refused(EACCES, EPERM);
	} else {
		CHECK(cosched_available());
		test_threads();
		test_race();
		test_soft();
		if (strcmp(mode, "root"))
			test_elsewhere();
		test_process();
	}
	printf("%d failures\n", failures);
	return !!failures;
}
