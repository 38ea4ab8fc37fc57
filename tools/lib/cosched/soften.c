// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
/*
 * Turns a program's hard affinity into a preference: cosched run --soften
 *
 * When this object is preloaded, the calls that set the affinity of a thread put the
 * thread into a cluster instead, whose home is the CPUs that were asked for. The calls
 * that read the affinity return what was asked for, as the kernel would. They read it
 * from the cgroup of the thread, so that it is the same in a child and after an exec,
 * as with hard affinity. If there is no controller, or the user lacks the permissions,
 * a call is passed on unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cosched.h"

#define API __attribute__((visibility("default")))

/* Room for the CPUs of any Linux: CONFIG_NR_CPUS of CONFIG_MAXSMP. */
#define MOST_CPUS 8192

union cpus {
	cpu_set_t set;
	char bytes[MOST_CPUS / 8];
};

#define SIZE sizeof(union cpus)

/* What the program set, restricted to the CPUs that the kernel lets a thread use. */
static int asked(pid_t tid, union cpus *cpus)
{
	union cpus soft;
	int saved = errno;

	if (cosched_getaffinity2(tid, SIZE, &cpus->set, COSCHED_HARD_AFFINITY))
		return -1;
	if (!cosched_getaffinity2(tid, SIZE, &soft.set, COSCHED_SOFT_AFFINITY)) {
		CPU_AND_S(SIZE, &soft.set, &soft.set, &cpus->set);
		if (CPU_COUNT_S(SIZE, &soft.set))
			*cpus = soft;
	}
	errno = saved;
	return 0;
}

static int prefer(pid_t tid, size_t len, const cpu_set_t *set)
{
	union cpus wanted = { 0 }, allowed;
	int saved = errno;

	if (cosched_getaffinity2(tid, SIZE, &allowed.set, COSCHED_HARD_AFFINITY))
		return -1;
	if (len > SIZE)
		len = SIZE;
	memcpy(&wanted, set, len);
	CPU_AND_S(SIZE, &wanted.set, &wanted.set, &allowed.set);
	/*
	 * The thread may use none of the CPUs, so a preference would be useless. Either they
	 * do not exist, and the kernel has to say so, as programs find out that way; or they
	 * are beyond a limit that something else set for the thread.
	 */
	if (!CPU_COUNT_S(SIZE, &wanted.set))
		return cosched_setaffinity2(tid, len, set, COSCHED_HARD_AFFINITY);
	if (cosched_setaffinity2(tid, SIZE, &wanted.set, COSCHED_SOFT_AFFINITY)) {
		errno = saved;
		return cosched_setaffinity2(tid, len, set, COSCHED_HARD_AFFINITY);
	}
	errno = saved;
	return 0;
}

API int sched_setaffinity(pid_t pid, size_t len, const cpu_set_t *set)
{
	return prefer(pid, len, set);
}

API int sched_getaffinity(pid_t pid, size_t len, cpu_set_t *set)
{
	union cpus cpus;

	/* The kernel refuses a set that is too small. */
	if (cosched_getaffinity2(pid, len, set, COSCHED_HARD_AFFINITY) || asked(pid, &cpus))
		return -1;
	memcpy(set, &cpus, len < SIZE ? len : SIZE);
	return 0;
}

/*
 * The TID of a thread. There is no function for it, but the kernel's IDs of CPU time
 * clocks contain it: ~tid is in the bits above the lowest three.
 */
static pid_t tid_of(pthread_t thread)
{
	clockid_t clock;

	if (pthread_equal(thread, pthread_self()))
		return syscall(SYS_gettid);
	if (pthread_getcpuclockid(thread, &clock))
		return -1;
	return ~(clock >> 3);
}

/* These functions return an error and leave errno alone. */
API int pthread_setaffinity_np(pthread_t thread, size_t len, const cpu_set_t *set)
{
	int saved = errno, err;

	err = prefer(tid_of(thread), len, set) ? errno : 0;
	errno = saved;
	return err;
}

API int pthread_getaffinity_np(pthread_t thread, size_t len, cpu_set_t *set)
{
	int saved = errno, err;

	err = sched_getaffinity(tid_of(thread), len, set) ? errno : 0;
	errno = saved;
	return err;
}

/*
 * The affinity of a thread that is to be created is in an attribute object, which only
 * the C library can look into. The affinity must not get into that object, or the C
 * library would set it. Therefore, attributes with an affinity are listed here.
 */
struct attribute {
	struct attribute *next;
	const pthread_attr_t *attr;
	union cpus cpus;
};

static pthread_mutex_t attributes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attribute *attributes;

/* Gives an attribute object an affinity, or none if @cpus is NULL. */
static int remember(const pthread_attr_t *attr, const union cpus *cpus)
{
	struct attribute **at, *a = NULL, *old;

	if (cpus) {
		a = malloc(sizeof(*a));
		if (!a)
			return ENOMEM;
		a->attr = attr;
		a->cpus = *cpus;
	}
	pthread_mutex_lock(&attributes_lock);
	for (at = &attributes; *at && (*at)->attr != attr; at = &(*at)->next)
		;
	old = *at;
	if (old)
		*at = old->next;
	if (a) {
		a->next = attributes;
		attributes = a;
	}
	pthread_mutex_unlock(&attributes_lock);
	free(old);
	return 0;
}

static bool recall(const pthread_attr_t *attr, union cpus *cpus)
{
	struct attribute *a;

	pthread_mutex_lock(&attributes_lock);
	for (a = attributes; a && a->attr != attr; a = a->next)
		;
	if (a)
		*cpus = a->cpus;
	pthread_mutex_unlock(&attributes_lock);
	return a;
}

API int pthread_attr_setaffinity_np(pthread_attr_t *attr, size_t len, const cpu_set_t *set)
{
	union cpus cpus = { 0 };

	if (!len)
		return remember(attr, NULL);
	memcpy(&cpus, set, len < SIZE ? len : SIZE);
	return remember(attr, &cpus);
}

API int pthread_attr_getaffinity_np(const pthread_attr_t *attr, size_t len, cpu_set_t *set)
{
	int (*next)(const pthread_attr_t *attr, size_t len, cpu_set_t *set);
	union cpus cpus;
	size_t i;

	if (!recall(attr, &cpus)) {
		next = dlsym(RTLD_NEXT, "pthread_attr_getaffinity_np");
		return next(attr, len, set);
	}
	for (i = len; i < SIZE; i++) {
		if (cpus.bytes[i])
			return EINVAL;
	}
	memset(set, 0, len);
	memcpy(set, &cpus, len < SIZE ? len : SIZE);
	return 0;
}

/* A new object does not inherit an affinity from an old one at the same address. */
API int pthread_attr_init(pthread_attr_t *attr)
{
	int (*next)(pthread_attr_t *attr) = dlsym(RTLD_NEXT, "pthread_attr_init");

	remember(attr, NULL);
	return next(attr);
}

API int pthread_attr_destroy(pthread_attr_t *attr)
{
	int (*next)(pthread_attr_t *attr) = dlsym(RTLD_NEXT, "pthread_attr_destroy");

	remember(attr, NULL);
	return next(attr);
}

API int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	int (*next)(pthread_t thread, pthread_attr_t *attr) = dlsym(RTLD_NEXT,
								    "pthread_getattr_np");
	union cpus cpus;
	int err = next(thread, attr), saved = errno;

	if (!err)
		err = asked(tid_of(thread), &cpus) ? errno : remember(attr, &cpus);
	errno = saved;
	return err;
}

struct start {
	void *(*routine)(void *arg);
	void *arg;
	union cpus cpus;
};

static void *begin(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	prefer(0, SIZE, &start.cpus.set);
	return start.routine(start.arg);
}

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *arg),
		      void *arg);

/* Lets the C library bind the thread, just as prefer() passes on what is beyond a limit. */
static int create_bound(create_fn *next, pthread_t *thread, const pthread_attr_t *attr,
			void *(*routine)(void *arg), void *arg, const union cpus *cpus)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int (*set)(const pthread_attr_t *attr, size_t len, const cpu_set_t *set);
	int err;

	set = dlsym(RTLD_NEXT, "pthread_attr_setaffinity_np");
	pthread_mutex_lock(&lock);
	err = set(attr, SIZE, &cpus->set);
	if (!err)
		err = next(thread, attr, routine, arg);
	set(attr, 0, NULL);
	pthread_mutex_unlock(&lock);
	return err;
}

API int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *arg),
		       void *arg)
{
	create_fn *next = dlsym(RTLD_NEXT, "pthread_create");
	union cpus cpus, allowed;
	struct start *start;
	int err;

	if (!attr || !recall(attr, &cpus))
		return next(thread, attr, routine, arg);
	if (cosched_getaffinity2(0, SIZE, &allowed.set, COSCHED_HARD_AFFINITY))
		return errno;
	CPU_AND_S(SIZE, &allowed.set, &allowed.set, &cpus.set);
	if (!CPU_COUNT_S(SIZE, &allowed.set))
		return create_bound(next, thread, attr, routine, arg, &cpus);
	start = malloc(sizeof(*start));
	if (!start)
		return EAGAIN;
	start->routine = routine;
	start->arg = arg;
	start->cpus = cpus;
	err = next(thread, attr, begin, start);
	if (err)
		free(start);
	return err;
}
