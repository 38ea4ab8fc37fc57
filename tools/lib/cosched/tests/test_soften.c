// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the preloaded object on a made-up tree of cgroups: what it does with the
 * calls of a program, and that these calls do not reach the kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake.h"

#define APP "sys/fs/cgroup/svc/app"

static cpu_set_t real(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (syscall(SYS_sched_getaffinity, 0, sizeof(set), &set) < 0)
		exit(1);
	return set;
}

/* The first CPU that this test may use, as a set and as part of a name. */
static cpu_set_t first(const char *format, char *name)
{
	cpu_set_t all = real(), set;
	int cpu = 0;

	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	snprintf(name, PATH_MAX, format, cpu);
	return set;
}

/* A made-up machine with all CPUs that the machine of the test may have. */
static void begin(enum fake_controller controller)
{
	fake_begin("/svc/app", controller);
	fake_write("sys/devices/system/cpu/possible", "0-1023\n");
	fake_write("sys/devices/system/cpu/online", "0-1023\n");
}

static bool equal(cpu_set_t a, cpu_set_t b)
{
	return CPU_EQUAL(&a, &b);
}

static void test_process(void)
{
	char cluster[PATH_MAX], own[64], id[32];
	cpu_set_t one = first(APP "/soft-%d/cgroup.threads", cluster), all = real(), got;

	begin(FAKE_ORDINARY);
	errno = 0;
	CHECK(!sched_setaffinity(0, sizeof(one), &one) && !errno);
	CHECK(equal(real(), all));
	CHECK(fake_exists(cluster) && !strcmp(fake_text(cluster), "0"));

	/* What was set can be read as soon as /proc says where the thread is. */
	CHECK(!sched_getaffinity(0, sizeof(got), &got) && equal(got, all));
	snprintf(own, sizeof(own), "/svc/app/soft-%s", strstr(cluster, "soft-") + 5);
	*strrchr(own, '/') = 0;
	fake_move(own);
	CHECK(!sched_getaffinity(0, sizeof(got), &got) && equal(got, one));
	snprintf(id, sizeof(id), "proc/%d", getpid());
	CHECK(!symlink("self", fake_path(id)));
	CHECK(!pthread_getaffinity_np(pthread_self(), sizeof(got), &got) && equal(got, one));
	CHECK(sched_getaffinity(0, 1, &got) && errno == EINVAL);

	/* The same results as from the kernel. */
	CPU_ZERO(&got);
	CHECK(sched_setaffinity(0, sizeof(got), &got) && errno == EINVAL);
	CPU_SET(1023, &got);
	CHECK(sched_setaffinity(0, sizeof(got), &got) && errno == EINVAL);
	CHECK(pthread_setaffinity_np(pthread_self(), sizeof(got), &got) == EINVAL);
	CHECK(sched_setaffinity(INT_MAX, sizeof(one), &one) && errno == ESRCH);
	fake_end();
}

static pthread_barrier_t barrier;
static pid_t tid;

static void *wait_for_end(void *arg)
{
	(void)arg;
	tid = syscall(SYS_gettid);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Another thread, by its pthread_t. */
static void test_thread(void)
{
	char cluster[PATH_MAX], dir[32];
	cpu_set_t one = first(APP "/soft-%d/cgroup.threads", cluster);
	pthread_t thread;

	begin(FAKE_ORDINARY);
	pthread_barrier_init(&barrier, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, wait_for_end, NULL));
	pthread_barrier_wait(&barrier);
	snprintf(dir, sizeof(dir), "proc/%d", tid);
	CHECK(!symlink("self", fake_path(dir)));
	errno = 0;
	CHECK(!pthread_setaffinity_np(thread, sizeof(one), &one) && !errno);
	CHECK(fake_exists(cluster) && atoi(fake_text(cluster)) == tid);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	fake_end();
}

static void *read_real(void *arg)
{
	*(cpu_set_t *)arg = real();
	return arg;
}

/* Attributes: a thread has joined before its routine runs; a new object has no affinity. */
static void test_attributes(void)
{
	char cluster[PATH_MAX];
	cpu_set_t one = first(APP "/soft-%d/cgroup.threads", cluster), all = real(), got;
	pthread_attr_t attr;
	pthread_t thread;
	void *result;

	begin(FAKE_ORDINARY);
	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setaffinity_np(&attr, sizeof(one), &one));
	CHECK(!pthread_attr_getaffinity_np(&attr, sizeof(got), &got) && equal(got, one));
	CHECK(!pthread_create(&thread, &attr, read_real, &got));
	CHECK(!pthread_join(thread, &result) && result == &got && equal(got, all));
	CHECK(fake_exists(cluster) && !strcmp(fake_text(cluster), "0"));
	fake_write(cluster, "");

	CPU_ZERO(&got);
	CPU_SET(1023, &got);
	CHECK(!pthread_attr_setaffinity_np(&attr, sizeof(got), &got));
	CHECK(pthread_create(&thread, &attr, read_real, &got) == EINVAL);

	/* A new object at the same address, though the old one was not destroyed. */
	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_getaffinity_np(&attr, sizeof(got), &got) && !equal(got, one));
	CHECK(!pthread_create(&thread, &attr, read_real, &got));
	CHECK(!pthread_join(thread, NULL) && !*fake_text(cluster));
	pthread_attr_destroy(&attr);
	fake_end();
}

/* Calls are passed on: the kernel binds the thread. */
static void test_none(void)
{
	char name[PATH_MAX];
	cpu_set_t one = first("%d", name), all = real(), got;
	pthread_attr_t attr;
	pthread_t thread;

	begin(FAKE_NONE);
	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setaffinity_np(&attr, sizeof(one), &one));
	CHECK(!pthread_create(&thread, &attr, read_real, &got));
	CHECK(!pthread_join(thread, NULL) && equal(got, one));
	pthread_attr_destroy(&attr);
	CHECK(!sched_setaffinity(0, sizeof(one), &one) && equal(real(), one));
	CHECK(!sched_getaffinity(0, sizeof(got), &got) && equal(got, one));

	/* What was passed on does not limit what is asked for next, not for a thread either. */
	if (CPU_COUNT(&all) > 1) {
		CPU_XOR(&one, &one, &all);
		CHECK(!pthread_attr_init(&attr));
		CHECK(!pthread_attr_setaffinity_np(&attr, sizeof(one), &one));
		CHECK(!pthread_create(&thread, &attr, read_real, &got));
		CHECK(!pthread_join(thread, NULL) && equal(got, one));
		pthread_attr_destroy(&attr);
		CHECK(!sched_setaffinity(0, sizeof(one), &one) && equal(real(), one));
	}
	fake_end();
}

int main(void)
{
	fake_run("process", test_process);
	fake_run("thread", test_thread);
	fake_run("attributes", test_attributes);
	fake_run("none", test_none);
	return !!failures;
}
