// SPDX-License-Identifier: GPL-2.0
/* Tests of the library on a made-up tree of cgroups: what the library writes where. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cosched.h"
#include "fake.h"

#define CGROUP "sys/fs/cgroup"

static bool same(const char *a, const char *b)
{
	if (a && b && !strcmp(a, b))
		return true;
	fprintf(stderr, "\"%s\", want \"%s\"\n", a ? a : "(nothing)", b);
	return false;
}

/* The set of up to four CPUs; -1 is none. */
static cpu_set_t cpus(int a, int b, int c, int d)
{
	int list[] = { a, b, c, d };
	cpu_set_t set;
	int i;

	CPU_ZERO(&set);
	for (i = 0; i < 4; i++) {
		if (list[i] >= 0)
			CPU_SET(list[i], &set);
	}
	return set;
}

/* A kernel without the controller: the library does nothing, and returns ENOTSUP. */
static void test_none(void)
{
	cpu_set_t set = cpus(0, -1, -1, -1), had;

	fake_begin("/svc/app", FAKE_NONE);
	CHECK(!cosched_available());
	CHECK(!cosched_open("shop", COSCHED_CREATE) && errno == ENOTSUP);
	CHECK(!cosched_open("shop", COSCHED_CREATE | COSCHED_THREADED) && errno == ENOTSUP);
	CHECK(cosched_setaffinity2(0, sizeof(set), &set, COSCHED_SOFT_AFFINITY) &&
	      errno == ENOTSUP);
	CHECK(cosched_getaffinity2(0, sizeof(set), &set, COSCHED_SOFT_AFFINITY) &&
	      errno == ENODATA);
	CHECK(!fake_exists(CGROUP "/cosched") && !fake_exists(CGROUP "/svc/app/soft-0"));
	CHECK(same(fake_text(CGROUP "/cgroup.subtree_control"), ""));
	/* Hard affinity needs no controller. */
	CHECK(!cosched_getaffinity2(0, sizeof(had), &had, COSCHED_HARD_AFFINITY) &&
	      CPU_COUNT(&had));
	CHECK(!cosched_setaffinity2(0, sizeof(had), &had, COSCHED_HARD_AFFINITY));
	fake_end();
}

/* No cgroup v2 is mounted; only the source of another mount is called cgroup2. */
static void test_not_mounted(void)
{
	fake_begin("/svc/app", FAKE_ORDINARY);
	fake_write("proc/self/mountinfo", "22 1 0:20 / /sys rw - sysfs cgroup2 rw\n");
	CHECK(!cosched_available());
	CHECK(!cosched_open("shop", COSCHED_CREATE) && errno == ENOTSUP);
	fake_end();
}

/* A part of the hierarchy is mounted, at a path with a blank in it. */
static void test_mounted_part(void)
{
	struct cosched *c;

	fake_begin("/svc/app", FAKE_ORDINARY);
	CHECK(!rename(fake_path(CGROUP), fake_path("sys/fs/a b")));
	fake_write("proc/self/mountinfo",
		   "30 22 0:26 /pod /sys/fs/a\\040b rw shared:1 - cgroup2 cgroup2 rw\n");
	fake_move("/pod/svc/app");
	c = cosched_open("till", COSCHED_CREATE | COSCHED_THREADED);
	/* The made-up tree makes files below CGROUP only. */
	CHECK(!c && errno == EAGAIN);
	CHECK(same(fake_text("sys/fs/a b/svc/app/cgroup.subtree_control"), "+cosched"));
	fake_move("/podium/svc/app");
	CHECK(!cosched_open("till", COSCHED_CREATE | COSCHED_THREADED) && errno == ENOTSUP);
	fake_move("/../svc");
	CHECK(!cosched_open("till", COSCHED_CREATE | COSCHED_THREADED) && errno == ENOTSUP);
	fake_end();
}

/* A cluster for processes: where it is, what is enabled, and its files. */
static void test_process(void)
{
	/* Root uses the root of the tree; other users own the tree, and may write to /svc. */
	const char *base = geteuid() ? CGROUP "/svc/cosched" : CGROUP "/cosched";
	char shop[PATH_MAX], file[PATH_MAX], home[16];
	unsigned int p, a;
	struct cosched *c;
	cpu_set_t set;

#define FILE_OF(name) (snprintf(file, sizeof(file), "%s/%s", shop, name), file)

	fake_begin("/svc/app", FAKE_ORDINARY);
	snprintf(shop, sizeof(shop), "%s/shop", base);
	CHECK(cosched_available());
	CHECK(!cosched_open("shop", 0) && errno == ENOENT);
	CHECK(!fake_exists(base));
	c = cosched_open("shop", COSCHED_CREATE);
	if (!c) {
		CHECK(c);
		return;
	}
	CHECK(same(cosched_path(c), fake_path(shop)));
	CHECK(same(fake_text(CGROUP "/cgroup.subtree_control"), "+cosched"));
	snprintf(file, sizeof(file), "%s/cgroup.subtree_control", base);
	CHECK(same(fake_text(file), "+cosched"));
	CHECK(same(fake_text(CGROUP "/svc/app/cgroup.subtree_control"), ""));
	CHECK(same(fake_text(FILE_OF("cgroup.type")), "domain"));
	CHECK(!cosched_open("shop", COSCHED_CREATE | COSCHED_EXCL) && errno == EEXIST);

	CHECK(!cosched_set_home(c, "0-3,5") && same(fake_text(FILE_OF("cosched.cpus_preferred")),
						    "0-3,5"));
	CHECK(!cosched_get_home(c, home, 6) && same(home, "0-3,5"));
	CHECK(cosched_get_home(c, home, 5) && errno == ERANGE);
	CHECK(!cosched_set_home(c, "auto") && !cosched_get_home(c, home, sizeof(home)) &&
	      same(home, "auto"));
	CHECK(!cosched_set_home(c, NULL) && !cosched_get_home(c, home, 1) && same(home, ""));

	fake_write(FILE_OF("cosched.cpus_preferred.effective"), "0-1,9,1023\n");
	CHECK(!cosched_get_effective_home(c, sizeof(set), &set) && CPU_COUNT(&set) == 4 &&
	      CPU_ISSET(1, &set) && CPU_ISSET(9, &set) && CPU_ISSET(1023, &set));
	CHECK(cosched_get_effective_home(c, 8, &set) && errno == ERANGE);
	CHECK(cosched_get_effective_home(c, 4, &set) && errno == EINVAL);
	fake_write(FILE_OF("cosched.cpus_preferred.effective"), "\n");
	CHECK(!cosched_get_effective_home(c, sizeof(set), &set) && !CPU_COUNT(&set));

	CHECK(!cosched_get_weights(c, &p, &a) && p == COSCHED_DEFAULT_PREFERRED &&
	      a == COSCHED_DEFAULT_ALLOWED);
	CHECK(!cosched_set_weights(c, 4, 1000) && same(fake_text(FILE_OF("cosched.weights")),
						       "4 1000"));
	CHECK(!cosched_get_weights(c, &p, &a) && p == 4 && a == 1000);
	/* One 0 does not mean "inherited": it is left to the kernel to refuse it. */
	CHECK(!cosched_set_weights(c, 0, 1000) && same(fake_text(FILE_OF("cosched.weights")),
						       "0 1000"));
	CHECK(!cosched_set_weights(c, 0, 0) && same(fake_text(FILE_OF("cosched.weights")), ""));

	CHECK(!cosched_join(c, 4711) && same(fake_text(FILE_OF("cgroup.procs")), "4711"));
	CHECK(!cosched_join(c, 0) && same(fake_text(FILE_OF("cgroup.procs")), "0"));
	CHECK(cosched_join(c, -1) && errno == ESRCH);
	CHECK(cosched_leave(c, 0) && errno == ESRCH); /* /proc says that it is not there */
	fake_move(shop + strlen(CGROUP));
	CHECK(!cosched_leave(c, 0) && same(fake_text(CGROUP "/svc/app/cgroup.procs"), "0"));
	CHECK(!cosched_remove(c) && !fake_exists(shop));
	CHECK(cosched_set_home(c, "0") && errno == ENOENT);
	cosched_close(c);
	cosched_close(NULL);
	fake_end();
}

static void test_arguments(void)
{
	static const char * const names[] = { "", ".", "..", ".hidden", "a/b", "/a", "a\nb", NULL };
	char name[NAME_MAX + 2];
	size_t i;

	fake_begin("/svc/app", FAKE_ORDINARY);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		CHECK(!cosched_open(names[i], COSCHED_CREATE) && errno == EINVAL);
	memset(name, 'x', sizeof(name));
	name[NAME_MAX + 1] = 0;
	CHECK(!cosched_open(name, COSCHED_CREATE) && errno == EINVAL);
	CHECK(!cosched_open("shop", 8) && errno == EINVAL);
	CHECK(!fake_exists(CGROUP "/cosched"));
	fake_end();
}

/* Clusters for threads are where the process is, no matter what its first thread has joined. */
static void test_threaded(void)
{
	const unsigned int flags = COSCHED_CREATE | COSCHED_THREADED;
	struct cosched *till, *store, *other;

	fake_begin("/svc/app", FAKE_ORDINARY);
	till = cosched_open("till", flags);
	if (!till) {
		CHECK(till);
		return;
	}
	CHECK(same(fake_text(CGROUP "/svc/cgroup.subtree_control"), "+cosched"));
	CHECK(same(fake_text(CGROUP "/svc/app/cgroup.subtree_control"), "+cosched"));
	CHECK(same(fake_text(CGROUP "/svc/app/till/cgroup.type"), "threaded"));
	CHECK(!cosched_join(till, 0) && same(fake_text(CGROUP "/svc/app/till/cgroup.threads"),
					     "0"));
	fake_move("/svc/app/till");

	store = cosched_open("store", flags);
	CHECK(store && same(cosched_path(store), fake_path(CGROUP "/svc/app/store")));
	CHECK(!cosched_leave(till, 0) && same(fake_text(CGROUP "/svc/app/cgroup.threads"), "0"));
	CHECK(cosched_leave(store, 0) && errno == ESRCH);

	/* Another process moved this one. */
	fake_move("/svc");
	other = cosched_open("till", flags);
	CHECK(other && same(cosched_path(other), fake_path(CGROUP "/svc/till")));
	cosched_close(till);
	cosched_close(store);
	cosched_close(other);
	fake_end();
}

/* An implicit controller is enabled nowhere; its files or the command line show it. */
static void test_implicit(void)
{
	struct cosched *c;

	fake_begin("/svc/app", FAKE_IMPLICIT);
	CHECK(cosched_available());
	c = cosched_open("till", COSCHED_CREATE | COSCHED_THREADED);
	CHECK(c && same(fake_text(CGROUP "/svc/app/cgroup.subtree_control"), ""));
	cosched_close(c);
	fake_end();
}

static void test_implicit_cmdline(void)
{
	fake_begin("/svc/app", FAKE_NONE);
	fake_write("proc/cmdline", "quiet cgroup.cosched=implicit\n");
	CHECK(cosched_available());
	fake_write("proc/cmdline", "cgroup.cosched=implicit cgroup_disable=cosched\n");
	CHECK(!cosched_available());
	fake_end();
}

static void test_soft(void)
{
	cpu_set_t set = cpus(0, 1, 2, 1000), got;
	unsigned int small = 0x6;
	int i;

	fake_begin("/svc/app", FAKE_ORDINARY);
#define SOFT(set) cosched_setaffinity2(0, sizeof(set), (cpu_set_t *)&(set), COSCHED_SOFT_AFFINITY)
	CHECK(!SOFT(set));
	CHECK(same(fake_text(CGROUP "/svc/app/soft-0-2/cgroup.type"), "threaded"));
	CHECK(same(fake_text(CGROUP "/svc/app/soft-0-2/cosched.cpus_preferred"), "0-2"));
	CHECK(same(fake_text(CGROUP "/svc/app/soft-0-2/cgroup.threads"), "0"));
	fake_move("/svc/app/soft-0-2");
	CHECK(!cosched_getaffinity2(0, sizeof(got), &got, COSCHED_SOFT_AFFINITY) &&
	      CPU_COUNT(&got) == 3 && CPU_ISSET(2, &got));

	/* The new cluster is not below the old one, which is removed: this was its last thread. */
	fake_write(CGROUP "/svc/app/soft-0-2/cgroup.threads", "");
	CHECK(!SOFT(small));
	CHECK(same(fake_text(CGROUP "/svc/app/soft-1-2/cosched.cpus_preferred"), "1-2"));
	CHECK(!fake_exists(CGROUP "/svc/app/soft-0-2"));

	/* A cluster with other threads stays, and is given the home of its name again. */
	fake_move("/svc/app/soft-1-2");
	set = cpus(4, -1, -1, -1);
	CHECK(!SOFT(set) && fake_exists(CGROUP "/svc/app/soft-1-2"));
	fake_write(CGROUP "/svc/app/soft-1-2/cosched.cpus_preferred", "7\n");
	CHECK(!SOFT(small) && same(fake_text(CGROUP "/svc/app/soft-1-2/cosched.cpus_preferred"),
				   "1-2"));

	/* All CPUs that are online. */
	CPU_ZERO(&set);
	for (i = 0; i < 7; i++)
		CPU_SET(i, &set);
	CHECK(!SOFT(set) && same(fake_text(CGROUP "/svc/app/cgroup.threads"), "0"));
	fake_move("/svc/app");
	CHECK(cosched_getaffinity2(0, sizeof(got), &got, COSCHED_SOFT_AFFINITY) &&
	      errno == ENODATA);
	CHECK(!SOFT(set));

	set = cpus(1000, -1, -1, -1);
	CHECK(SOFT(set) && errno == EINVAL);
	CHECK(cosched_setaffinity2(0, sizeof(set), &set, 2) && errno == EINVAL);
	CHECK(cosched_getaffinity2(0, sizeof(set), &set, 2) && errno == EINVAL);
	set = cpus(0, -1, -1, -1);
	CHECK(cosched_setaffinity2(-1, sizeof(set), &set, COSCHED_SOFT_AFFINITY) && errno == ESRCH);
	CHECK(cosched_setaffinity2(99, sizeof(set), &set, COSCHED_SOFT_AFFINITY) && errno == ESRCH);
	fake_end();
}

/* A list that is too long for a name. */
static void test_soft_long(void)
{
	const char *home = NULL;
	FILE *list;
	char *path;
	cpu_set_t set;
	char line[PATH_MAX];
	int i;

	fake_begin("/svc/app", FAKE_ORDINARY);
	fake_write("sys/devices/system/cpu/possible", "0-1023\n");
	CPU_ZERO(&set);
	for (i = 0; i < 1000; i += 2)
		CPU_SET(i, &set);
	CHECK(!SOFT(set));
	list = popen("ls -d $COSCHED_TEST_ROOT/sys/fs/cgroup/svc/app/soft-*", "r");
	if (list && fgets(line, sizeof(line), list)) {
		path = strstr(line, CGROUP);
		line[strcspn(line, "\n")] = 0;
		strcat(path, "/cosched.cpus_preferred");
		home = fake_text(path);
	}
	CHECK(home && !strncmp(home, "0,2,4,6,", 8) && !strcmp(home + strlen(home) - 8,
							       ",996,998"));
	if (list)
		pclose(list);
	fake_end();
}

/* Several threads do all of this at the same time. */
#define RACERS 8
static pthread_barrier_t barrier;

static void *race(void *arg)
{
	const unsigned int flags = COSCHED_CREATE | COSCHED_THREADED;
	cpu_set_t set = cpus(0, 1, -1, -1);
	struct cosched *c;
	bool first;

	pthread_barrier_wait(&barrier);
	c = cosched_open("till", flags | COSCHED_EXCL);
	first = c;
	CHECK(c || errno == EEXIST);
	if (!c)
		c = cosched_open("till", flags);
	if (!c) {
		CHECK(c);
		return NULL;
	}
	CHECK(!cosched_set_home(c, "0-1") && !cosched_join(c, 0));
	CHECK(!SOFT(set));
	cosched_close(c);
	*(bool *)arg = first;
	return NULL;
}

static void test_race(void)
{
	pthread_t threads[RACERS];
	bool first[RACERS] = { false };
	int i, n = 0;

	fake_begin("/svc/app", FAKE_ORDINARY);
	pthread_barrier_init(&barrier, NULL, RACERS);
	for (i = 0; i < RACERS; i++)
		CHECK(!pthread_create(&threads[i], NULL, race, &first[i]));
	for (i = 0; i < RACERS; i++) {
		pthread_join(threads[i], NULL);
		n += first[i];
	}
	CHECK(n == 1);
	CHECK(same(fake_text(CGROUP "/svc/app/till/cosched.cpus_preferred"), "0-1"));
	CHECK(same(fake_text(CGROUP "/svc/app/soft-0-1/cosched.cpus_preferred"), "0-1"));
	fake_end();
}

int main(void)
{
	fake_run("none", test_none);
	fake_run("not mounted", test_not_mounted);
	fake_run("mounted part", test_mounted_part);
	fake_run("process", test_process);
	fake_run("arguments", test_arguments);
	fake_run("threaded", test_threaded);
	fake_run("implicit", test_implicit);
	fake_run("implicit, by the command line", test_implicit_cmdline);
	fake_run("soft", test_soft);
	fake_run("soft, long", test_soft_long);
	fake_run("race", test_race);
	return !!failures;
}
