// SPDX-License-Identifier: GPL-2.0
/*
 * A part of the tree handed to a user who is not root: he may do there what he
 * likes within the home he was given, and nothing outside.
 */

#include "cosched_util.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct delegation {
	char user[PATH_MAX];	/* handed over */
	char init[PATH_MAX];	/* below it, where the user's process starts */
	char other[PATH_MAX];	/* next to it, not handed over */
};

static void hand_over(const char *cg, const char *file)
{
	char path[PATH_MAX];

	if (file)
		cs_name(path, cg, file);
	else
		strcpy(path, cg);
	REQUIRE(!chown(path, CS_UNPRIVILEGED, CS_UNPRIVILEGED), "chown %s: %s",
		path, strerror(errno));
}

/* As cgroup-v2.rst says it is done: the directory and the cgroup.* files. */
static void delegate(const char *cg)
{
	hand_over(cg, NULL);
	hand_over(cg, "cgroup.procs");
	hand_over(cg, "cgroup.threads");
	hand_over(cg, "cgroup.subtree_control");
}

static void make_delegation(struct delegation *d, const char *top)
{
	cs_need_cpus(4);
	cs_mkdir(d->user, top, "user");
	cs_mkdir(d->other, top, "other");
	cs_write(d->user, CS_PREF, "0-1\n");
	cs_write(d->user, CS_WEIGHTS, "7 8\n");
	cs_write(d->other, CS_PREF, "2\n");
	cs_write(d->other, CS_WEIGHTS, "9 9\n");
	delegate(d->user);
	cs_mkdir(d->init, d->user, "init");
	delegate(d->init);
}

/* Runs fn as the user in his cgroup; its failures are the test's. */
static void run_as_user(const struct delegation *d,
			void (*fn)(const struct delegation *d))
{
	int status;
	pid_t pid;

	pid = fork();
	REQUIRE(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		cs_move(d->init, 0);
		REQUIRE(!setgroups(0, NULL) &&
			!setresgid(CS_UNPRIVILEGED, CS_UNPRIVILEGED,
				   CS_UNPRIVILEGED) &&
			!setresuid(CS_UNPRIVILEGED, CS_UNPRIVILEGED,
				   CS_UNPRIVILEGED),
			"become the user: %s", strerror(errno));
		fn(d);
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		!WEXITSTATUS(status), "failed as the user");
}

static void denied(const char *cg, const char *file, const char *value)
{
	char before[256], after[256];
	int ret;

	cs_read(cg, file, before, sizeof(before));
	ret = cs_try_write(cg, file, value);
	REQUIRE(ret == -EACCES || ret == -EPERM,
		"the user's write '%s' to %s/%s: %s", value, cg, file,
		ret ? strerror(-ret) : "accepted");
	cs_read(cg, file, after, sizeof(after));
	REQUIRE(!strcmp(before, after), "%s/%s went from '%s' to '%s'", cg,
		file, before, after);
}

static void use_subtree(const struct delegation *d)
{
	char app[PATH_MAX], leaf[PATH_MAX];

	cs_enable(d->user);
	cs_mkdir(app, d->user, "app");
	cs_expect(app, CS_HOME, "0-1");
	cs_expect(app, CS_WEIGHTS, "7 8");
	cs_write(app, CS_PREF, "1\n");
	cs_expect(app, CS_PREF, "1");
	cs_expect(app, CS_HOME, "1");
	cs_write(app, CS_WEIGHTS, "1 1\n");
	cs_expect(app, CS_WEIGHTS, "1 1");
	cs_enable(app);
	cs_mkdir(leaf, app, "leaf");
	cs_write(leaf, CS_PREF, "0-1\n");
	cs_expect(leaf, CS_HOME, "1");
	cs_write(leaf, CS_PREF, "\n");
	/* Errors are the same as root's. */
	REQUIRE(cs_try_write(leaf, CS_PREF, "0-\n") == -EINVAL,
		"a malformed value was accepted");
	REQUIRE(cs_try_write(leaf, CS_WEIGHTS, "0 1\n") == -ERANGE,
		"a weight of 0 was accepted");
	/* And his processes live there. */
	cs_move(leaf, 0);
	cs_stat(leaf, "preferred_usec");
	cs_load_util(leaf);
	cs_move(d->init, 0);
	cs_rmdir(leaf);
}

/* The owner of the directory makes cgroups there and sets their values. */
static void owner_may_write(const char *top)
{
	struct delegation d;

	make_delegation(&d, top);
	run_as_user(&d, use_subtree);
	cs_expect(d.user, CS_HOME, "0-1");
	cs_expect(d.user, CS_WEIGHTS, "7 8");
}

static void try_outside(const struct delegation *d)
{
	char path[PATH_MAX], top[PATH_MAX], buf[256];

	/* The files that limit him are not his, though the directory is. */
	denied(d->user, CS_PREF, "0-3\n");
	denied(d->user, CS_PREF, "\n");
	denied(d->user, CS_WEIGHTS, "1 1\n");
	denied(d->other, CS_PREF, "0\n");
	denied(d->other, CS_WEIGHTS, "1 1\n");
	cs_name(top, d->user, "..");
	denied(top, CS_PREF, "0\n");

	/* He may read everything. */
	cs_read(d->other, CS_PREF, buf, sizeof(buf));
	cs_read(d->other, CS_HOME, buf, sizeof(buf));
	cs_stat(d->other, "outside_usec");

	cs_name(path, d->other, "sub");
	REQUIRE(mkdir(path, 0755) && errno == EACCES,
		"made a cgroup outside: %s", path);
	REQUIRE(cs_try_move(d->other, 0) == -EACCES,
		"left for a cgroup outside");
}

/* He can change nothing outside, and not the values that his own part was given. */
static void nothing_outside(const char *top)
{
	struct delegation d;

	make_delegation(&d, top);
	run_as_user(&d, try_outside);
	cs_expect(d.user, CS_PREF, "0-1");
	cs_expect(d.user, CS_WEIGHTS, "7 8");
	cs_expect(d.other, CS_PREF, "2");
	cs_expect(d.other, CS_WEIGHTS, "9 9");
}

static void try_to_widen(const struct delegation *d)
{
	static const struct {
		const char *write;
		const char *home;
	} values[] = {
		{ "0-3\n", "0-1" },
		{ "1-2\n", "1" },
		{ "2-3\n", "0-1" },	/* disjoint: what he was given */
		{ "2\n", "0-1" },
		{ "\n", "0-1" },
	};
	char app[PATH_MAX], leaf[PATH_MAX];
	int i;

	cs_enable(d->user);
	cs_mkdir(app, d->user, "app");
	cs_enable(app);
	cs_mkdir(leaf, app, "leaf");
	cs_write(leaf, CS_PREF, "0-3\n");
	for (i = 0; i < ARRAY_LEN(values); i++) {
		cs_write(app, CS_PREF, values[i].write);
		cs_expect(app, CS_HOME, values[i].home);
		cs_expect(leaf, CS_HOME, values[i].home);
	}
}

/* Whatever he asks for, his homes stay within the one that he was given. */
static void cannot_widen(const char *top)
{
	struct delegation d;

	make_delegation(&d, top);
	run_as_user(&d, try_to_widen);
	cs_expect(d.user, CS_HOME, "0-1");
}

static void use_own_file(const struct delegation *d)
{
	cs_write(d->user, CS_PREF, "1-3\n");
	cs_expect(d->user, CS_PREF, "1-3");
	cs_expect(d->user, CS_HOME, "1-2");
	denied(d->user, CS_WEIGHTS, "1 1\n");
}

/*
 * The file itself handed over, too: then he may write it, and the home above
 * still bounds what comes of it.
 */
static void file_handed_over(const char *top)
{
	struct delegation d;

	make_delegation(&d, top);
	cs_write(top, CS_PREF, "0-2\n");
	hand_over(d.user, CS_PREF);
	run_as_user(&d, use_own_file);
	cs_expect(d.other, CS_HOME, "2");
}

static void in_namespace(const struct delegation *d)
{
	char app[PATH_MAX];
	int ret;

	/* Root of the container is still bound by what the container was given. */
	ret = cs_try_write(d->user, CS_PREF, "0-3\n");
	REQUIRE(ret == -EPERM, "write to the namespace's root: %s",
		ret ? strerror(-ret) : "accepted");
	ret = cs_try_write(d->user, CS_WEIGHTS, "1 1\n");
	REQUIRE(ret == -EPERM, "write to the namespace's root: %s",
		ret ? strerror(-ret) : "accepted");
	cs_expect(d->user, CS_PREF, "0-1");
	cs_expect(d->user, CS_WEIGHTS, "7 8");
	cs_enable(d->user);
	cs_mkdir(app, d->user, "app");
	cs_write(app, CS_PREF, "1\n");
	cs_expect(app, CS_HOME, "1");
}

/*
 * With nsdelegate, the root of a cgroup namespace is a boundary of delegation:
 * even root in it cannot change the values there, only those below.
 */
static void namespace_is_a_boundary(const char *top)
{
	struct delegation d;
	int status;
	pid_t pid;

	make_delegation(&d, top);
	cs_mount_option("nsdelegate");
	pid = fork();
	REQUIRE(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		cs_move(d.user, 0);
		REQUIRE(!unshare(CLONE_NEWCGROUP), "unshare: %s",
			strerror(errno));
		/* Out of the way of subtree_control, within the namespace. */
		cs_move(d.init, 0);
		in_namespace(&d);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status),
		"failed in the namespace");
}

static const struct cs_test tests[] = {
	{ "owner_may_write", owner_may_write, 0 },
	{ "nothing_outside", nothing_outside, 0 },
	{ "cannot_widen", cannot_widen, 0 },
	{ "file_handed_over", file_handed_over, 0 },
	{ "namespace_is_a_boundary", namespace_is_a_boundary, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests cosched in cgroups that were handed to another user.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
