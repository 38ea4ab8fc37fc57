// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"

int failures;

static char top[64];
static enum fake_controller controller;

const char *fake_path(const char *name)
{
	static __thread char paths[4][PATH_MAX];
	static __thread int next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", top, name);
	return path;
}

void fake_write(const char *name, const char *text)
{
	const char *path = fake_path(name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		perror(path);
		exit(1);
	}
	close(fd);
}

const char *fake_text(const char *name)
{
	static __thread char text[4096];
	int fd = open(fake_path(name), O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return NULL;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = 0;
	return text;
}

bool fake_exists(const char *name)
{
	return !access(fake_path(name), F_OK);
}

static bool passes_on(const char *dir)
{
	char text[256] = "", name[PATH_MAX];
	int fd;

	snprintf(name, sizeof(name), "%s/cgroup.subtree_control", dir);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	if (fd >= 0)
		close(fd);
	return strstr(text, "cosched");
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir + strlen(top) + 1, name);
	fake_write(path, text);
}

static void populate(const char *path)
{
	char parent[PATH_MAX];

	put(path, "cgroup.procs", "");
	put(path, "cgroup.threads", "");
	put(path, "cgroup.subtree_control", "");
	snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = 0;
	put(path, "cgroup.type", "domain\n");
	if (controller == FAKE_IMPLICIT || passes_on(parent)) {
		put(path, "cosched.cpus_preferred", "");
		put(path, "cosched.cpus_preferred.effective", "");
		put(path, "cosched.weights", "100 150\n");
	}
}

/*
 * Replaces the C library's mkdir(): a new cgroup has its files at once. Here it is made
 * elsewhere and then moved, so that no other thread sees it without files.
 */
int mkdir(const char *path, mode_t mode)
{
	static __thread char fresh[PATH_MAX];

	if (!*top || strncmp(path, fake_path("sys/fs/cgroup/"), strlen(top) + 15))
		return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
	if (!access(path, F_OK)) {
		errno = EEXIST;
		return -1;
	}
	snprintf(fresh, sizeof(fresh), "%s.new-%ld", path, syscall(SYS_gettid));
	if (syscall(SYS_mkdirat, AT_FDCWD, fresh, mode))
		return -1;
	populate(fresh);
	if (syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, path, RENAME_NOREPLACE)) {
		char command[PATH_MAX + 16];
		int saved = errno;

		snprintf(command, sizeof(command), "rm -r '%s'", fresh);
		if (system(command))
			exit(1);
		errno = saved;
		return -1;
	}
	return 0;
}

/*
 * A write to cgroup.subtree_control must not truncate it. An ordinary file is emptied and then
 * written: a cgroup that is made between these two steps would not have the controller enabled.
 */
int openat(int dir, const char *path, int flags, ...)
{
	static const char control[] = "/cgroup.subtree_control";
	size_t len = strlen(path);
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | __O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (len >= sizeof(control) && !strcmp(path + len + 1 - sizeof(control), control))
		flags &= ~O_TRUNC;
	return syscall(SYS_openat, dir, path, flags, mode);
}

/* A cgroup can be removed though it has files. */
int rmdir(const char *path)
{
	static const char * const files[] = {
		"cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.type",
		"cosched.cpus_preferred", "cosched.cpus_preferred.effective", "cosched.weights",
	};
	char name[PATH_MAX];
	struct stat st;
	size_t i;

	/* Of its files, only a list of threads that is not empty prevents that. */
	snprintf(name, sizeof(name), "%s/cgroup.threads", path);
	if (!stat(name, &st) && st.st_size) {
		errno = EBUSY;
		return -1;
	}
	for (i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(name, sizeof(name), "%s/%s", path, files[i]);
		unlink(name);
	}
	return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

void fake_begin(const char *own, enum fake_controller has)
{
	static const char * const dirs[] = {
		"proc", "proc/self", "proc/thread-self", "sys", "sys/devices", "sys/devices/system",
		"sys/devices/system/cpu", "sys/fs", "sys/fs/cgroup",
	};
	char text[PATH_MAX], *slash;
	size_t i;

	controller = has;
	*top = 0;
	snprintf(text, sizeof(text), "/tmp/cosched-test-XXXXXX");
	if (!mkdtemp(text))
		exit(1);
	for (i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		char dir[PATH_MAX];

		snprintf(dir, sizeof(dir), "%.64s/%s", text, dirs[i]);
		if (syscall(SYS_mkdirat, AT_FDCWD, dir, 0755))
			exit(1);
	}
	snprintf(top, sizeof(top), "%s", text);
	setenv("COSCHED_TEST_ROOT", top, 1);
	fake_write("proc/cmdline", "quiet\n");
	fake_write("proc/self/mountinfo",
		   "22 1 0:20 / /sys rw - sysfs none rw\n"
		   "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw\n");
	fake_write("sys/devices/system/cpu/possible", "0-7\n");
	fake_write("sys/devices/system/cpu/online", "0-6\n");
	fake_write("sys/fs/cgroup/cgroup.controllers", has == FAKE_ORDINARY ? "cpu cosched\n"
		   : "cpu\n");
	fake_write("sys/fs/cgroup/cgroup.subtree_control", "");
	fake_write("sys/fs/cgroup/cgroup.procs", "");
	/* The cgroups down to the process's own. */
	snprintf(text, sizeof(text), "%s/sys/fs/cgroup%s/", top, own);
	for (slash = text + strlen(top) + 15; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		if (mkdir(text, 0755))
			exit(1);
	}
	fake_move(own);
}

void fake_move(const char *own)
{
	char text[PATH_MAX];

	/* As on a host with hierarchies of cgroup v1 too. */
	snprintf(text, sizeof(text), "1:cpu:/else\n0::%s\n", own);
	fake_write("proc/self/cgroup", text);
	fake_write("proc/thread-self/cgroup", text);
}

void fake_run(const char *name, void (*test)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		failures = 0;
		/* A test that does not end is a failure, too. */
		alarm(60);
		test();
		_exit(!!failures);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "failed: %s\n", name);
		failures++;
	}
}

void fake_end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r '%s'", top);
	if (system(command))
		exit(1);
	*top = 0;
}
