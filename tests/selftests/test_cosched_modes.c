// SPDX-License-Identifier: GPL-2.0
/*
 * How the controller gets into the cgroups, which the boot parameters choose:
 * ordinary, through cgroup.subtree_control; implicit, in every cgroup; or not
 * at all. The tests of a mode fail in another one, so choose with -t.
 */

#include "cosched_util.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const files[] = {
	CS_PREF, CS_HOME, CS_WEIGHTS, CS_STAT, CS_LOAD
};

static void need_mode(enum cs_mode want)
{
	static const char *const names[] = { "absent", "ordinary", "implicit" };

	REQUIRE(cs_mode() == want, "booted with the controller %s, not %s",
		names[cs_mode()], names[want]);
}

static void expect_files(const char *cg, bool there)
{
	int i;

	for (i = 0; i < ARRAY_LEN(files); i++)
		REQUIRE(cs_has_file(cg, files[i]) == there, "%s has %s%s", cg,
			there ? "no " : "", files[i]);
}

static bool lists_cosched(const char *cg, const char *file)
{
	char buf[1024];

	cs_read(cg, file, buf, sizeof(buf));
	return strstr(buf, "cosched");
}

/*
 * Ordinary: the files are where the parent's cgroup.subtree_control has
 * cosched, nowhere else, and never in the root.
 */
static void ordinary_by_subtree_control(const char *top)
{
	char parent[PATH_MAX], a[PATH_MAX], b[PATH_MAX];

	need_mode(CS_MODE_ORDINARY);
	expect_files(cs_root(), false);
	REQUIRE(lists_cosched(cs_root(), "cgroup.controllers"),
		"not in the root's cgroup.controllers");
	cs_mkdir(parent, top, "parent");
	expect_files(parent, true);
	REQUIRE(lists_cosched(parent, "cgroup.controllers"),
		"not in cgroup.controllers where it is enabled");
	cs_mkdir(a, parent, "a");
	expect_files(a, false);
	REQUIRE(!lists_cosched(a, "cgroup.controllers"),
		"in cgroup.controllers where it is not enabled");

	cs_enable(parent);
	expect_files(a, true);
	cs_mkdir(b, parent, "b");
	expect_files(b, true);
	cs_write(parent, "cgroup.subtree_control", "-cosched");
	expect_files(a, false);
	expect_files(b, false);
	expect_files(parent, true);
}

/*
 * What is below a cluster without files of its own is part of it: enabling the
 * controller is for setting values, not for being in a cluster.
 */
static void ordinary_below_without_files(const char *top)
{
	char parent[PATH_MAX], deep[PATH_MAX];
	long long usec, counted;
	pid_t pid;

	need_mode(CS_MODE_ORDINARY);
	cs_need_cpus(2);
	cs_mkdir(parent, top, "parent");
	cs_mkdir(deep, parent, "x");
	cs_mkdir(deep, deep, "y");
	expect_files(deep, false);
	cs_write(parent, CS_PREF, "1\n");
	pid = cs_spinner(deep);
	cs_sleep_ms(200);
	cs_stop(pid);
	usec = cs_task_usec(pid);
	counted = cs_stat(parent, "preferred_usec");
	cs_continue(pid);
	cs_sleep_ms(500);
	cs_stop(pid);
	usec = cs_task_usec(pid) - usec;
	counted = cs_stat(parent, "preferred_usec") - counted;
	cs_kill(pid);
	REQUIRE(counted > usec * 8 / 10,
		"of %lld us, %lld were counted at home two levels up", usec,
		counted);
}

/* The controller is threaded: its files are in threaded cgroups. */
static void ordinary_in_threaded_cgroups(const char *top)
{
	char dom[PATH_MAX], t[PATH_MAX];

	need_mode(CS_MODE_ORDINARY);
	cs_mkdir(dom, top, "dom");
	cs_mkdir(t, dom, "t");
	cs_write(t, "cgroup.type", "threaded");
	REQUIRE(lists_cosched(dom, "cgroup.controllers"),
		"not in a threaded domain's cgroup.controllers");
	cs_enable(dom);
	expect_files(t, true);
}

/*
 * Implicit: the files are in every cgroup but the root at once, with nothing
 * in any cgroup.subtree_control.
 */
static void implicit_everywhere(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX], buf[64];

	need_mode(CS_MODE_IMPLICIT);
	expect_files(cs_root(), false);
	cs_mkdir(a, top, "a");
	cs_mkdir(b, a, "b");
	cs_mkdir(c, b, "c");
	cs_read(a, "cgroup.subtree_control", buf, sizeof(buf));
	REQUIRE(!*buf, "cgroup.subtree_control holds '%s'", buf);
	expect_files(top, true);
	expect_files(a, true);
	expect_files(b, true);
	expect_files(c, true);
	cs_expect(c, CS_PREF, "");
	cs_expect(c, CS_HOME, "");
	cs_expect(c, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);
}

/* An implicit controller is not one that can be enabled or seen as such. */
static void implicit_not_listed(const char *top)
{
	char cg[PATH_MAX];
	int ret;

	need_mode(CS_MODE_IMPLICIT);
	cs_mkdir(cg, top, "cg");
	REQUIRE(!lists_cosched(cs_root(), "cgroup.controllers"),
		"in the root's cgroup.controllers");
	REQUIRE(!lists_cosched(cg, "cgroup.controllers"),
		"in cgroup.controllers");
	ret = cs_try_write(cg, "cgroup.subtree_control", "+cosched");
	REQUIRE(ret == -ENOENT || ret == -EINVAL, "+cosched: %s",
		ret ? strerror(-ret) : "accepted");
	expect_files(cg, true);
}

/* Values, inheritance and figures are the same as in ordinary mode. */
static void implicit_works(const char *top)
{
	char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX];
	long long usec, counted;
	pid_t pid;

	need_mode(CS_MODE_IMPLICIT);
	cs_need_cpus(4);
	cs_mkdir(a, top, "a");
	cs_mkdir(b, a, "b");
	cs_mkdir(c, b, "c");
	cs_write(a, CS_PREF, "1-2\n");
	cs_expect(c, CS_HOME, "1-2");
	cs_write(b, CS_PREF, "2-3\n");
	cs_expect(c, CS_HOME, "2");
	cs_write(b, CS_WEIGHTS, "5 6\n");
	cs_expect(c, CS_WEIGHTS, "5 6");
	REQUIRE(cs_try_write(c, CS_PREF, "2-") == -EINVAL,
		"a malformed value was accepted");

	pid = cs_spinner(c);
	cs_sleep_ms(200);
	cs_stop(pid);
	usec = cs_task_usec(pid);
	counted = cs_stat(b, "preferred_usec");
	cs_continue(pid);
	cs_sleep_ms(500);
	cs_stop(pid);
	usec = cs_task_usec(pid) - usec;
	counted = cs_stat(b, "preferred_usec") - counted;
	REQUIRE(counted > usec * 8 / 10,
		"of %lld us, %lld were counted at home", usec, counted);
	cs_continue(pid);
	cs_sleep_ms(300);
	REQUIRE(cs_load_util(c) > 800, "the load is %ld", cs_load_util(c));
	cs_kill(pid);
}

/* Switched off at boot: nothing of it is there. */
static void absent_everywhere(const char *top)
{
	char cg[PATH_MAX];
	int ret;

	need_mode(CS_MODE_ABSENT);
	/* The harness makes no cgroup where there is no controller. */
	REQUIRE(!mkdir(top, 0755), "mkdir %s: %s", top, strerror(errno));
	cs_mkdir(cg, top, "cg");
	expect_files(cs_root(), false);
	expect_files(cg, false);
	REQUIRE(!lists_cosched(cs_root(), "cgroup.controllers"),
		"in the root's cgroup.controllers");
	ret = cs_try_write(top, "cgroup.subtree_control", "+cosched");
	REQUIRE(ret == -EINVAL || ret == -ENOENT, "+cosched: %s",
		ret ? strerror(-ret) : "accepted");
}

static const struct cs_test tests[] = {
	{ "ordinary_by_subtree_control", ordinary_by_subtree_control, 0 },
	{ "ordinary_below_without_files", ordinary_below_without_files, 0 },
	{ "ordinary_in_threaded_cgroups", ordinary_in_threaded_cgroups, 0 },
	{ "implicit_everywhere", implicit_everywhere, 0 },
	{ "implicit_not_listed", implicit_not_listed, 0 },
	{ "implicit_works", implicit_works, 0 },
	{ "absent_everywhere", absent_everywhere, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests the boot modes of cosched; run those of one mode: -t ordinary_,\n-t implicit_ or -t absent_.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.any_mode = true,
	};

	return cs_main(argc, argv, &program);
}
