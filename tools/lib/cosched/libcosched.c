// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
/*
 * libcosched - clusters of threads with a home
 *
 * The only state is where the hierarchy is mounted and which cgroup the process
 * began in. Everything else is read from the kernel when it is needed, since other
 * processes, and other threads of this process, may change it at any time.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cosched.h"

#define API __attribute__((visibility("default")))

#define FILE_PREFERRED	"cosched.cpus_preferred"
#define FILE_EFFECTIVE	"cosched.cpus_preferred.effective"
#define FILE_WEIGHTS	"cosched.weights"

/* Named clusters of processes are in this cgroup, like those of the command. */
#define BASE		"cosched"
/* The names of the clusters of cosched_setaffinity2() begin with this. */
#define SOFT		"soft-"
/*
 * Others can remove a cluster after we made it and before we join it, but only if
 * they happen to do it just then. That does not happen by chance so often in a row.
 */
#define TRIES		64
/* CONFIG_NR_CPUS of CONFIG_MAXSMP */
#define MOST_CPUS	8192

struct cosched {
	int dir;
	unsigned int flags;
	char *path;
	char *origin;		/* the cgroup of the process when it opened this */
};

/*
 * Small things.
 */

static void release(void *p)
{
	int saved = errno;

	free(p);
	errno = saved;
}

static void release_fd(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
}

static int fail(int error)
{
	errno = error;
	return -1;
}

__attribute__((format(printf, 1, 2)))
static char *print(const char *format, ...)
{
	va_list args;
	char *s;
	int n;

	va_start(args, format);
	n = vasprintf(&s, format, args);
	va_end(args);
	if (n < 0) {
		errno = ENOMEM;
		return NULL;
	}
	return s;
}

/* Tests put a tree of their own in the place of /proc and /sys. */
static const char *root(void)
{
	const char *r = secure_getenv("COSCHED_TEST_ROOT");

	return r ? r : "";
}

/* The text of a file, without newlines at its end. */
static char *slurp_at(int dir, const char *name)
{
	size_t len = 0, size = 256;
	char *text = NULL, *more;
	ssize_t n;
	int fd;

	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	for (;;) {
		more = realloc(text, size);
		if (!more)
			goto failed;
		text = more;
		n = read(fd, text + len, size - 1 - len);
		if (n < 0)
			goto failed;
		if (!n)
			break;
		len += n;
		if (len == size - 1)
			size *= 2;
	}
	while (len && text[len - 1] == '\n')
		len--;
	text[len] = 0;
	close(fd);
	return text;
failed:
	release(text);
	release_fd(fd);
	return NULL;
}

__attribute__((format(printf, 1, 2)))
static char *slurp(const char *format, ...)
{
	char *name, *text;
	va_list args;

	va_start(args, format);
	if (vasprintf(&name, format, args) < 0)
		name = NULL;
	va_end(args);
	if (!name) {
		errno = ENOMEM;
		return NULL;
	}
	text = slurp_at(AT_FDCWD, name);
	release(name);
	return text;
}

/* The kernel takes or refuses a value as a whole, so it must be one write(). */
static int write_at(int dir, const char *name, const char *value)
{
	char *line = print("%s\n", value);
	ssize_t n;
	int fd;

	if (!line)
		return -1;
	fd = openat(dir, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
	n = fd < 0 ? -1 : write(fd, line, strlen(line));
	release_fd(fd);
	release(line);
	return n < 0 ? -1 : 0;
}

static int write_in(const char *dir, const char *name, const char *value)
{
	char *path = print("%s/%s", dir, name);
	int err;

	if (!path)
		return -1;
	err = write_at(AT_FDCWD, path, value);
	release(path);
	return err;
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);
	const char *s = text;

	while ((s = strstr(s, word))) {
		if ((s == text || isspace(s[-1]) || s[-1] == '+') && (!s[len] || isspace(s[len])))
			return true;
		s += len;
	}
	return false;
}

static bool exists_in(const char *dir, const char *name)
{
	char *path = print("%s/%s", dir, name);
	bool there = path && !access(path, F_OK);

	release(path);
	return there;
}

/* Is a path the same as another one, or below it? */
static bool below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strncmp(path, top, len) && (!path[len] || path[len] == '/');
}

/* Cuts the last part of a path off and returns it. */
static char *cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	*slash = 0;
	return slash + 1;
}

/*
 * Lists of CPUs.
 */

/* Parses a list as the kernel prints it. */
static int parse_cpus(const char *text, size_t len, cpu_set_t *set, bool drop)
{
	unsigned long first, last;
	char *end;

	/* As for sched_getaffinity(2). */
	if (len % sizeof(unsigned long))
		return fail(EINVAL);
	memset(set, 0, len);
	while (*text) {
		first = strtoul(text, &end, 10);
		last = first;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (end == text || (*end && *end != ',') || last < first)
			return fail(EINVAL);
		text = *end ? end + 1 : end;
		for (; first <= last; first++) {
			if (first >= len * CHAR_BIT) {
				if (!drop)
					return fail(ERANGE);
				break;
			}
			CPU_SET_S(first, len, set);
		}
	}
	return 0;
}

static char *print_cpus(size_t len, const cpu_set_t *set)
{
	size_t n = len * CHAR_BIT, first, last, at = 0;
	/* The longest list has every other CPU, each with up to seven digits and a comma. */
	char *list = malloc(n / 2 * 8 + 1);

	if (!list)
		return NULL;
	*list = 0;
	for (first = 0; first < n; first = last + 1) {
		last = first;
		if (!CPU_ISSET_S(first, len, set))
			continue;
		while (last + 1 < n && CPU_ISSET_S(last + 1, len, set))
			last++;
		at += sprintf(list + at, last > first ? "%s%zu-%zu" : "%s%zu",
			      at ? "," : "", first, last);
	}
	return list;
}

/* Reads a list of CPUs from sysfs; CPUs that the set has no room for do not matter. */
static int sys_cpus(const char *name, size_t len, cpu_set_t *set)
{
	char *text = slurp("%s/sys/devices/system/cpu/%s", root(), name);
	int err;

	if (!text)
		return -1;
	err = parse_cpus(text, len, set, true);
	release(text);
	return err;
}

/*
 * Cgroups, by their directories.
 */

static pthread_once_t mount_once = PTHREAD_ONCE_INIT;
static char *mount_point, *mount_root;

/* A blank in a path is written as \040, and so on. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to = (s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0');
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = 0;
}

/* ID PARENT DEVICE ROOT POINT OPTIONS [MORE]... - TYPE ... */
static bool is_cgroup2(char *line)
{
	char *dir = NULL, *point = NULL, *word, *rest;
	int n = 0;

	for (word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		n++;
		if (n == 4)
			dir = word;
		else if (n == 5)
			point = word;
		else if (!strcmp(word, "-"))
			break;
	}
	word = strtok_r(NULL, " ", &rest);
	if (!point || !word || strcmp(word, "cgroup2"))
		return false;
	unescape(dir);
	unescape(point);
	mount_root = strdup(strcmp(dir, "/") ? dir : "");
	mount_point = print("%s%s", root(), point);
	return true;
}

static void find_mount(void)
{
	char *text = slurp("%s/proc/self/mountinfo", root()), *line, *rest;

	if (!text)
		return;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (is_cgroup2(line))
			break;
	}
	free(text);
}

/* The cgroup of a process or thread. */
static char *cgroup_of(const char *id)
{
	char *text, *line, *rest, *path = NULL;

	pthread_once(&mount_once, find_mount);
	if (!mount_point || !mount_root) {
		errno = ENOTSUP;
		return NULL;
	}
	text = slurp("%s/proc/%s/cgroup", root(), id);
	if (!text) {
		if (errno == ENOENT)
			errno = ESRCH;
		return NULL;
	}
	errno = ENOTSUP;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, "0::/", 4))
			continue;
		line += 3;
		/* A cgroup outside of our namespace, or of what is mounted, cannot be reached. */
		if (!strncmp(line, "/..", 3) || !below(line, mount_root))
			break;
		line += strlen(mount_root);
		path = print("%s%s", mount_point, strcmp(line, "/") ? line : "");
		break;
	}
	release(text);
	return path;
}

static char *cgroup_of_thread(pid_t tid)
{
	char id[16];

	if (!tid)
		return cgroup_of("thread-self");
	snprintf(id, sizeof(id), "%d", tid);
	return cgroup_of(id);
}

/* Is a cgroup a cluster of cosched_setaffinity2()? */
static bool is_soft(const char *path)
{
	return !strncmp(strrchr(path, '/') + 1, SOFT, strlen(SOFT));
}

/*
 * A cgroup is a "domain"; or a "domain threaded", which has threads in cgroups below
 * it; or itself "threaded"; or "domain invalid", which can only become threaded. The
 * root has no type.
 */
static bool has_type(const char *path, const char *type)
{
	char *text = slurp("%s/cgroup.type", path);
	bool is = text && !strcmp(text, type);

	release(text);
	return is;
}

API int cosched_available(void)
{
	bool found = false;
	struct dirent *e;
	char *text;
	DIR *dir;

	pthread_once(&mount_once, find_mount);
	if (!mount_point || !mount_root)
		return 0;
	text = slurp("%s/cgroup.controllers", mount_point);
	found = text && has_word(text, "cosched");
	free(text);
	/* An implicit controller is not listed: its files are in all cgroups except the root. */
	if (!found && exists_in(mount_point, FILE_PREFERRED))
		return 1;
	dir = found ? NULL : opendir(mount_point);
	while (dir && !found && (e = readdir(dir))) {
		if (e->d_type == DT_DIR && e->d_name[0] != '.') {
			text = print("%s/%s", mount_point, e->d_name);
			found = text && exists_in(text, FILE_PREFERRED);
			free(text);
		}
	}
	if (dir)
		closedir(dir);
	if (found)
		return 1;
	text = slurp("%s/proc/cmdline", root());
	found = text && has_word(text, "cgroup.cosched=implicit") &&
		!has_word(text, "cgroup_disable=cosched");
	free(text);
	return found;
}

/* Enables the controller for the children of a cgroup, so that they have its files. */
static int enable_children(char *path)
{
	char *controllers = slurp("%s/cgroup.controllers", mount_point), *control;
	size_t len = strlen(mount_point);
	bool implicit, on;
	char end;
	int err = 0;

	if (!controllers)
		return -1;
	implicit = !has_word(controllers, "cosched");
	free(controllers);
	if (implicit)
		return 0;
	/* From the root down: at the end of the mount point and of each name below it. */
	while (!err) {
		end = path[len];
		path[len] = 0;
		control = slurp("%s/cgroup.subtree_control", path);
		on = control && has_word(control, "cosched");
		err = control ? 0 : -1;
		release(control);
		if (control && !on)
			err = write_in(path, "cgroup.subtree_control", "+cosched");
		path[len] = end;
		if (!end)
			break;
		len += 1 + strcspn(path + len + 1, "/");
	}
	return err;
}

/* Makes a cgroup with the controller's files; it may exist already, unless @exclusive. */
static int make_cgroup(const char *path, bool threaded, bool exclusive)
{
	char *parent = strdup(path);
	bool made = false;
	int err;

	if (!parent)
		return -1;
	cut_name(parent);
	err = exists_in(path, FILE_PREFERRED) ? 0 : enable_children(parent);
	release(parent);
	if (err)
		return -1;
	made = !mkdir(path, 0755);
	if (!made && (errno != EEXIST || exclusive))
		return -1;
	if (has_type(path, "domain invalid") || (threaded && has_type(path, "domain"))) {
		err = write_in(path, "cgroup.type", "threaded");
		/* There are processes that a threaded cgroup does not go together with. */
		if (err && errno == EOPNOTSUPP)
			errno = EBUSY;
	}
	if (!err && !exists_in(path, FILE_PREFERRED)) {
		/* Another process removed the cgroup, or disabled the controller again. */
		err = fail(ENOENT);
	}
	if (err && made) {
		int saved = errno;

		rmdir(path);
		errno = saved;
	}
	return err;
}

/* Moves a process or thread, 0 for the calling one. */
static int move(int dir, const char *file, pid_t id)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", id);
	if (!write_at(dir, file, text))
		return 0;
	/* Here, EOPNOTSUPP does not mean that there is no controller: the domain differs. */
	if (errno == EOPNOTSUPP)
		errno = EXDEV;
	return -1;
}

static int move_to(const char *path, const char *file, pid_t id)
{
	int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (dir < 0)
		return -1;
	err = move(dir, file, id);
	release_fd(dir);
	return err;
}

/* Does errno say that the cgroup was removed meanwhile? */
static bool gone(void)
{
	return errno == ENOENT || errno == ENODEV;
}

/*
 * Clusters.
 */

static pthread_mutex_t began_lock = PTHREAD_MUTEX_INITIALIZER;
static char *began;

/*
 * The cgroup whose children take this process's threads: the cgroup that the process
 * was in when it first asked. Since then, its first thread may have joined a cluster,
 * which is a threaded cgroup below. If the process is anywhere else, it was moved, and
 * its cgroup is determined anew.
 */
static char *threads_base(void)
{
	char *now = cgroup_of("self"), *up, *result = NULL;

	if (!now)
		return NULL;
	if (is_soft(now))
		cut_name(now);
	pthread_mutex_lock(&began_lock);
	up = strdup(now);
	if (!up)
		goto out;
	if (began && below(now, began)) {
		while (strcmp(up, began) && has_type(up, "threaded"))
			cut_name(up);
	}
	if (!began || strcmp(up, began)) {
		free(began);
		began = strdup(now);
	}
	result = began ? strdup(began) : NULL;
out:
	pthread_mutex_unlock(&began_lock);
	free(up);
	release(now);
	return result;
}

/* The cgroup with the named clusters for processes. */
static char *processes_base(void)
{
	char *own, *best = NULL, *procs;

	if (!geteuid()) {
		pthread_once(&mount_once, find_mount);
		return print("%s/" BASE, mount_point);
	}
	own = cgroup_of("self");
	if (!own)
		return NULL;
	for (; strlen(own) > strlen(mount_point); cut_name(own)) {
		procs = print("%s/cgroup.procs", own);
		if (procs && !faccessat(AT_FDCWD, own, W_OK, AT_EACCESS) &&
		    !faccessat(AT_FDCWD, procs, W_OK, AT_EACCESS)) {
			free(best);
			best = print("%s/" BASE, own);
		}
		free(procs);
	}
	free(own);
	if (!best)
		errno = EACCES;
	return best;
}

static bool valid_name(const char *name)
{
	return name && *name && *name != '.' && strlen(name) <= NAME_MAX && !strpbrk(name, "/\n");
}

API struct cosched *cosched_open(const char *name, unsigned int flags)
{
	bool threaded = flags & COSCHED_THREADED, create = flags & COSCHED_CREATE;
	struct cosched *c;
	int err, tries;
	char *base;

	if (!valid_name(name) || (flags & ~(COSCHED_CREATE | COSCHED_EXCL | COSCHED_THREADED))) {
		errno = EINVAL;
		return NULL;
	}
	if (!cosched_available()) {
		errno = ENOTSUP;
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->dir = -1;
	c->flags = flags;
	c->origin = cgroup_of("self");
	base = threaded ? threads_base() : processes_base();
	c->path = base ? print("%s/%s", base, name) : NULL;
	if (!c->origin || !c->path)
		goto failed;
	if (threaded) {
		release(c->origin);
		c->origin = strdup(base);
		if (!c->origin)
			goto failed;
	}
	for (tries = 0; tries < TRIES; tries++) {
		err = 0;
		if (create && !threaded)
			err = make_cgroup(base, false, false);
		if (create && !err)
			err = make_cgroup(c->path, threaded, flags & COSCHED_EXCL);
		if (!err)
			c->dir = open(c->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (c->dir >= 0 || !create || !gone())
			break;
		/* Without the cgroup that it would be in, it cannot be made again. */
		if (threaded && access(base, F_OK))
			break;
	}
	if (tries == TRIES)
		errno = EAGAIN;
	if (c->dir < 0)
		goto failed;
	if (!exists_in(c->path, FILE_PREFERRED)) {
		errno = ENOENT;
		goto failed;
	}
	free(base);
	return c;
failed:
	release(base);
	err = errno;
	cosched_close(c);
	errno = err;
	return NULL;
}

API void cosched_close(struct cosched *c)
{
	if (!c)
		return;
	if (c->dir >= 0)
		close(c->dir);
	free(c->path);
	free(c->origin);
	free(c);
}

API int cosched_remove(struct cosched *c)
{
	return rmdir(c->path);
}

API const char *cosched_path(const struct cosched *c)
{
	return c->path;
}

static const char *members(const struct cosched *c)
{
	return c->flags & COSCHED_THREADED ? "cgroup.threads" : "cgroup.procs";
}

API int cosched_join(struct cosched *c, pid_t id)
{
	if (id < 0)
		return fail(ESRCH);
	return move(c->dir, members(c), id);
}

API int cosched_leave(struct cosched *c, pid_t id)
{
	char *now;
	bool in;

	if (below(c->origin, c->path))
		return fail(EINVAL);
	if (!id && !(c->flags & COSCHED_THREADED))
		now = cgroup_of("self");
	else
		now = cgroup_of_thread(id);
	if (!now)
		return -1;
	in = below(now, c->path);
	free(now);
	if (!in)
		return fail(ESRCH);
	return move_to(c->origin, members(c), id);
}

API int cosched_set_home(struct cosched *c, const char *home)
{
	return write_at(c->dir, FILE_PREFERRED, home ? home : "");
}

API int cosched_get_home(struct cosched *c, char *home, size_t len)
{
	char *text = slurp_at(c->dir, FILE_PREFERRED);
	size_t size = text ? strlen(text) + 1 : 0;
	int err = 0;

	if (!text)
		return -1;
	if (size <= len)
		memcpy(home, text, size);
	else
		err = fail(ERANGE);
	release(text);
	return err;
}

API int cosched_get_effective_home(struct cosched *c, size_t len, cpu_set_t *set)
{
	char *text = slurp_at(c->dir, FILE_EFFECTIVE);
	int err;

	if (!text)
		return -1;
	err = parse_cpus(text, len, set, false);
	release(text);
	return err;
}

API int cosched_set_weights(struct cosched *c, unsigned int preferred, unsigned int allowed)
{
	char text[32] = "";

	if (preferred || allowed)
		snprintf(text, sizeof(text), "%u %u", preferred, allowed);
	return write_at(c->dir, FILE_WEIGHTS, text);
}

API int cosched_get_weights(struct cosched *c, unsigned int *preferred, unsigned int *allowed)
{
	char *text = slurp_at(c->dir, FILE_WEIGHTS);
	unsigned int p, a;
	int n;

	if (!text)
		return -1;
	n = sscanf(text, "%u %u", &p, &a);
	free(text);
	if (n != 2)
		return fail(EINVAL);
	*preferred = p;
	*allowed = a;
	return 0;
}

/*
 * The call that the talk proposes. Threads of a cgroup that ask for the same CPUs
 * share a cluster. So a pool of a thousand threads, each bound to one of 64 CPUs, makes
 * 64 clusters at most, and the second thread of a cluster finds the home that it would
 * have written.
 */

/* A name has room for 255 bytes. If the list is longer, the name has its FNV-1a hash. */
static char *soft_path(const char *base, const char *list)
{
	uint64_t hash = 0xcbf29ce484222325;
	const char *s;

	if (strlen(list) + strlen(SOFT) <= NAME_MAX)
		return print("%s/" SOFT "%s", base, list);
	for (s = list; *s; s++)
		hash = (hash ^ (unsigned char)*s) * 0x100000001b3;
	return print("%s/" SOFT "%016llx", base, (unsigned long long)hash);
}

/* Gives a cluster, which may be new, the home that its name says. */
static int set_soft_home(const char *path, const char *list)
{
	char *now = slurp("%s/" FILE_PREFERRED, path);
	bool same = now && !strcmp(now, list);

	if (!now)
		return -1;
	free(now);
	return same ? 0 : write_in(path, FILE_PREFERRED, list);
}

static int join_soft(const char *base, const char *list, const char *now, pid_t tid)
{
	char *path = soft_path(base, list);
	int err = -1, tries;

	if (!path)
		return -1;
	for (tries = 0; tries < TRIES; tries++) {
		err = make_cgroup(path, true, false);
		if (!err)
			err = set_soft_home(path, list);
		if (!err && strcmp(path, now))
			err = move_to(path, "cgroup.threads", tid);
		if (!err)
			break;
		/* EXDEV: the cluster was made anew meanwhile, and is not threaded yet. */
		if ((!gone() && errno != EXDEV) || access(base, F_OK))
			break;
	}
	/* The thread may have been the last one in its old cluster. */
	if (!err && is_soft(now) && strcmp(path, now))
		rmdir(now);
	release(path);
	return err;
}

static int leave_soft(const char *base, const char *now, pid_t tid)
{
	if (!is_soft(now))
		return 0;
	if (move_to(base, "cgroup.threads", tid))
		return -1;
	rmdir(now);
	return 0;
}

static int set_soft(pid_t tid, size_t len, const cpu_set_t *set)
{
	size_t size = len > MOST_CPUS / CHAR_BIT ? CPU_ALLOC_SIZE(len * CHAR_BIT)
		: MOST_CPUS / CHAR_BIT;
	cpu_set_t *wanted = calloc(1, size), *there = calloc(1, size);
	char *now = NULL, *base = NULL, *list = NULL;
	int err = -1;

	if (!wanted || !there || sys_cpus("possible", size, there))
		goto out;
	memcpy(wanted, set, len);
	CPU_AND_S(size, wanted, wanted, there);
	if (!CPU_COUNT_S(size, wanted)) {
		errno = EINVAL;
		goto out;
	}
	now = cgroup_of_thread(tid);
	base = now ? strdup(now) : NULL;
	list = print_cpus(size, wanted);
	if (!base || !list || sys_cpus("online", size, there))
		goto out;
	if (is_soft(base))
		cut_name(base);
	CPU_AND_S(size, wanted, wanted, there);
	if (CPU_EQUAL_S(size, wanted, there))
		err = leave_soft(base, now, tid);
	else
		err = join_soft(base, list, now, tid);
out:
	release(now);
	release(base);
	release(list);
	release(there);
	release(wanted);
	return err;
}

API int cosched_setaffinity2(pid_t pid, size_t len, const cpu_set_t *set, int type)
{
	/* By number: in the preloaded object, sched_setaffinity() is our own function. */
	if (type == COSCHED_HARD_AFFINITY)
		return syscall(SYS_sched_setaffinity, pid, len, set) < 0 ? -1 : 0;
	if (type != COSCHED_SOFT_AFFINITY)
		return fail(EINVAL);
	if (pid < 0)
		return fail(ESRCH);
	if (!cosched_available())
		return fail(ENOTSUP);
	return set_soft(pid, len, set);
}

static int get_soft(pid_t tid, size_t len, cpu_set_t *set)
{
	char *now = cgroup_of_thread(tid), *text;
	int err;

	if (!now)
		return -1;
	if (!is_soft(now)) {
		free(now);
		return fail(ENODATA);
	}
	text = slurp("%s/" FILE_PREFERRED, now);
	release(now);
	if (!text)
		return -1;
	err = parse_cpus(text, len, set, false);
	release(text);
	return err;
}

API int cosched_getaffinity2(pid_t pid, size_t len, cpu_set_t *set, int type)
{
	long n;

	if (type == COSCHED_SOFT_AFFINITY)
		return pid < 0 ? fail(ESRCH) : get_soft(pid, len, set);
	if (type != COSCHED_HARD_AFFINITY)
		return fail(EINVAL);
	n = syscall(SYS_sched_getaffinity, pid, len, set);
	if (n < 0)
		return -1;
	memset((char *)set + n, 0, len - n);
	return 0;
}
