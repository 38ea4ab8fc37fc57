// SPDX-License-Identifier: GPL-2.0
/* Helpers for the cosched selftests; see cosched_util.h. */

#include "cosched_util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the process of one test exits with. */
enum {
	EXIT_PASS = 0,
	EXIT_FAIL = 1,
	EXIT_SKIP = 4,		/* kselftest's own number for it */
};

#define DEFAULT_TIMEOUT_S	60

const char *const cs_stat_keys[] = {
	"preferred_usec",
	"outside_usec",
	"wakeups_home",
	"wakeups_spilled",
	"wakeups_overflowed",
	"strays_returned",
	"strays_swapped",
	"tasks_pushed",
	"tasks_pulled",
	"home_changes",
};

const int cs_nr_stat_keys = ARRAY_LEN(cs_stat_keys);

static char root[PATH_MAX];
static enum cs_mode mode;
static cpu_set_t online_at_start, allowed_at_start;
static char options_at_start[256];

/* Reported with a skipped test's line: a pipe from the test to the harness. */
static int skip_pipe[2] = { -1, -1 };

static void diag_v(const char *fmt, va_list ap)
{
	char line[4096], *at = line, *end;

	vsnprintf(line, sizeof(line), fmt, ap);
	/* Every line is a TAP comment: a newline in a value must not end the comment. */
	while (at) {
		end = strchr(at, '\n');
		if (end)
			*end++ = '\0';
		printf("# %s\n", at);
		at = end && *end ? end : NULL;
	}
	fflush(stdout);
}

void cs_diag(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diag_v(fmt, ap);
	va_end(ap);
}

void cs_fail_at(const char *file, int line, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cs_diag("%s:%d: %s", file, line, text);
	_exit(EXIT_FAIL);
}

void cs_skip(const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len >= (int)sizeof(text))
		len = sizeof(text) - 1;
	if (write(skip_pipe[1], text, len) != len)
		cs_diag("skipped: %s", text);
	_exit(EXIT_SKIP);
}

enum cs_mode cs_mode(void)
{
	return mode;
}

const char *cs_root(void)
{
	return root;
}

long long cs_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

void cs_sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* cgroups and their files */

void cs_name(char *path, const char *parent, const char *child)
{
	char joined[PATH_MAX];

	/* Through a buffer: path and parent may be the same array. */
	if (snprintf(joined, sizeof(joined), "%s/%s", parent, child) >=
	    (int)sizeof(joined))
		cs_fail("path too long: %s/%s", parent, child);
	strcpy(path, joined);
}

void cs_mkdir(char *path, const char *parent, const char *child)
{
	cs_name(path, parent, child);
	if (mkdir(path, 0755))
		cs_fail("mkdir %s: %s", path, strerror(errno));
}

int cs_try_rmdir(const char *cg)
{
	return rmdir(cg) ? -errno : 0;
}

void cs_rmdir(const char *cg)
{
	long long end = cs_now_ms() + 5000;
	int ret;

	/* A killed task leaves its cgroup a moment after it was reaped. */
	while ((ret = cs_try_rmdir(cg)) == -EBUSY && cs_now_ms() < end)
		cs_sleep_ms(5);
	if (ret)
		cs_fail("rmdir %s: %s", cg, strerror(-ret));
}

static int remove_below(const char *cg, long long end)
{
	char child[PATH_MAX];
	struct dirent *entry;
	int ret = 0;
	DIR *dir;

	dir = opendir(cg);
	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while ((entry = readdir(dir))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		snprintf(child, sizeof(child), "%s/%s", cg, entry->d_name);
		ret = remove_below(child, end);
		if (ret)
			break;
	}
	closedir(dir);
	if (ret)
		return ret;

	while ((ret = cs_try_rmdir(cg)) == -EBUSY && cs_now_ms() < end) {
		/* A task that moves itself here may have come after the first kill. */
		cs_try_write(cg, "cgroup.kill", "1");
		cs_sleep_ms(5);
	}
	return ret == -ENOENT ? 0 : ret;
}

int cs_rmtree(const char *cg)
{
	/* Fails if the kernel has no cgroup.kill; then rmdir shows whether tasks are left. */
	cs_try_write(cg, "cgroup.kill", "1");
	return remove_below(cg, cs_now_ms() + 30000);
}

void cs_enable(const char *cg)
{
	if (mode == CS_MODE_ORDINARY)
		cs_write(cg, "cgroup.subtree_control", "+cosched");
}

void cs_need_controller(const char *top, const char *name)
{
	char enable[32];

	snprintf(enable, sizeof(enable), "+%s", name);
	if (cs_try_write(cs_root(), "cgroup.subtree_control", enable) ||
	    cs_try_write(top, "cgroup.subtree_control", enable))
		cs_skip("needs the %s controller", name);
}

bool cs_has_file(const char *cg, const char *file)
{
	char path[PATH_MAX];

	cs_name(path, cg, file);
	return !access(path, F_OK);
}

ssize_t cs_try_read(const char *cg, const char *file, char *buf, size_t len)
{
	char path[PATH_MAX];
	size_t have = 0;
	ssize_t n;
	int fd;

	cs_name(path, cg, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf + have, len - 1 - have);
		if (n > 0)
			have += n;
	} while (n > 0 && have < len - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return n;
	buf[have] = '\0';
	if (have && buf[have - 1] == '\n')
		buf[--have] = '\0';
	return have;
}

void cs_read(const char *cg, const char *file, char *buf, size_t len)
{
	ssize_t n = cs_try_read(cg, file, buf, len);

	if (n < 0)
		cs_fail("read %s/%s: %s", cg, file, strerror(-n));
}

int cs_try_write_n(const char *cg, const char *file, const void *buf,
		   size_t len)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	cs_name(path, cg, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, buf, len);
	if (n < 0)
		n = -errno;
	else
		n = (size_t)n == len ? 0 : -EIO;
	close(fd);
	return n;
}

int cs_try_write(const char *cg, const char *file, const char *value)
{
	return cs_try_write_n(cg, file, value, strlen(value));
}

void cs_write_at(const char *src, int line, const char *cg, const char *file,
		 const char *value)
{
	int ret = cs_try_write(cg, file, value);

	if (ret)
		cs_fail_at(src, line, "write '%s' to %s/%s: %s", value, cg,
			   file, strerror(-ret));
}

void cs_expect_at(const char *src, int line, const char *cg, const char *file,
		  const char *value)
{
	char got[4096];

	cs_read(cg, file, got, sizeof(got));
	if (strcmp(got, value))
		cs_fail_at(src, line, "%s/%s holds '%s', expected '%s'", cg,
			   file, got, value);
}

void cs_expect_soon_at(const char *src, int line, const char *cg,
		       const char *file, const char *value, long ms)
{
	long long end = cs_now_ms() + ms;
	char got[4096];

	for (;;) {
		cs_read(cg, file, got, sizeof(got));
		if (!strcmp(got, value))
			return;
		if (cs_now_ms() > end)
			break;
		cs_sleep_ms(2);
	}
	cs_fail_at(src, line, "%s/%s still holds '%s' after %ld ms, expected '%s'",
		   cg, file, got, ms, value);
}

/* The options of the cgroup2 mount that a remount must name in order to keep them. */
static void mount_options(char *buf, size_t len)
{
	static const char *const known[] = {
		"nsdelegate", "favordynmods", "memory_localevents",
		"memory_recursiveprot", "memory_hugetlb_accounting",
		"pids_localevents",
	};
	char line[PATH_MAX + 1024], where[PATH_MAX];
	FILE *mounts;
	int i;

	buf[0] = '\0';
	mounts = fopen("/proc/self/mounts", "re");
	if (!mounts)
		return;
	while (fgets(line, sizeof(line), mounts)) {
		if (sscanf(line, "%*s %4095s cgroup2", where) != 1 ||
		    strcmp(where, root))
			continue;
		for (i = 0; i < ARRAY_LEN(known); i++)
			if (strstr(line, known[i]))
				snprintf(buf + strlen(buf), len - strlen(buf),
					 "%s%s", *buf ? "," : "", known[i]);
	}
	fclose(mounts);
}

static int remount(const char *options)
{
	return mount("none", root, NULL, MS_REMOUNT, options) ? -errno : 0;
}

void cs_mount_option(const char *option)
{
	char options[256];
	int ret;

	mount_options(options, sizeof(options) - strlen(option) - 2);
	if (*options)
		strcat(options, ",");
	strcat(options, option);
	ret = remount(options);
	if (ret)
		cs_fail("remount %s with '%s': %s", root, options,
			strerror(-ret));
}

/* cosched.stat and cosched.load */

long long cs_key(const char *cg, const char *file, const char *key)
{
	size_t len = strlen(key);
	char buf[8192], *line;

	cs_read(cg, file, buf, sizeof(buf));
	for (line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, key, len) && line[len] == ' ')
			return strtoll(line + len + 1, NULL, 10);
	cs_fail("%s/%s has no %s", cg, file, key);
}

long long cs_stat(const char *cg, const char *key)
{
	return cs_key(cg, CS_STAT, key);
}

static void parse_llc(const char *line, struct cs_load *load)
{
	struct cs_load_llc *llc = &load->llc[load->nr_llcs];
	char list[1024];
	int id, end = 0;

	if (load->nr_llcs == ARRAY_LEN(load->llc))
		cs_fail("more LLC domains than this test can hold");
	if (sscanf(line, "llc%d cpus=%1023s home=%ld util=%ld runnable=%ld%n",
		   &id, list, &llc->home, &llc->util, &llc->runnable,
		   &end) != 5 || line[end])
		cs_fail("malformed line in %s: '%s'", CS_LOAD, line);
	if (id != load->nr_llcs)
		cs_fail("llc%d where llc%d was due: '%s'", id, load->nr_llcs,
			line);
	cs_parse_cpus(list, &llc->cpus);
	load->nr_llcs++;
}

static void parse_cpu(const char *line, struct cs_load *load)
{
	struct cs_load_cpu *cpu = &load->cpu[load->nr_cpus];
	int end = 0;

	if (load->nr_cpus == ARRAY_LEN(load->cpu))
		cs_fail("more CPU lines than CPUs");
	if (sscanf(line, "cpu%d home=%ld util=%ld runnable=%ld%n", &cpu->cpu,
		   &cpu->home, &cpu->util, &cpu->runnable, &end) != 4 ||
	    line[end])
		cs_fail("malformed line in %s: '%s'", CS_LOAD, line);
	load->nr_cpus++;
}

void cs_load(const char *cg, struct cs_load *load)
{
	static char buf[256 * 1024];
	char *line;

	load->nr_llcs = 0;
	load->nr_cpus = 0;
	cs_read(cg, CS_LOAD, buf, sizeof(buf));
	for (line = strtok(buf, "\n"); line; line = strtok(NULL, "\n")) {
		if (!strncmp(line, "llc", 3))
			parse_llc(line, load);
		else if (!strncmp(line, "cpu", 3))
			parse_cpu(line, load);
		else
			cs_fail("unknown line in %s: '%s'", CS_LOAD, line);
	}
}

long cs_load_util(const char *cg)
{
	static struct cs_load load;
	long util = 0;
	int i;

	cs_load(cg, &load);
	for (i = 0; i < load.nr_llcs; i++)
		util += load.llc[i].util;
	return util;
}

/* tasks */

static void move_task(const char *cg, const char *file, pid_t id)
{
	char value[32];
	int ret;

	snprintf(value, sizeof(value), "%d", id);
	ret = cs_try_write(cg, file, value);
	if (ret)
		cs_fail("move task %d to %s: %s", id, cg, strerror(-ret));
}

int cs_try_move(const char *cg, pid_t pid)
{
	char value[32];

	snprintf(value, sizeof(value), "%d", pid);
	return cs_try_write(cg, "cgroup.procs", value);
}

void cs_move(const char *cg, pid_t pid)
{
	move_task(cg, "cgroup.procs", pid);
}

void cs_move_thread(const char *cg, pid_t tid)
{
	move_task(cg, "cgroup.threads", tid);
}

pid_t cs_spawn(const char *cg, cs_work_fn fn, void *arg)
{
	pid_t parent = getpid();
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		cs_fail("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		cs_fail("fork: %s", strerror(errno));
	if (!pid) {
		close(ready[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(EXIT_FAIL);
		cs_move(cg, 0);
		if (write(ready[1], "", 1) != 1)
			_exit(EXIT_FAIL);
		close(ready[1]);
		fn(arg);
		_exit(EXIT_PASS);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		cs_fail("a task did not get into %s", cg);
	close(ready[0]);
	return pid;
}

static void spin(void *arg)
{
	(void)arg;
	for (;;) {
#if defined(__x86_64__)
		/* In parallel virtual time, this instruction lets time pass. */
		__builtin_ia32_pause();
#endif
		__asm__ volatile("" ::: "memory");
	}
}

pid_t cs_spinner(const char *cg)
{
	return cs_spawn(cg, spin, NULL);
}

void cs_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void cs_stop(pid_t pid)
{
	long long end = cs_now_ms() + 10000;

	kill(pid, SIGSTOP);
	while (cs_task_state(pid) != 'T') {
		if (cs_now_ms() > end)
			cs_fail("task %d does not stop", pid);
		cs_sleep_ms(1);
	}
}

void cs_continue(pid_t pid)
{
	kill(pid, SIGCONT);
}

/* Field n of /proc/PID/stat, counted from 1 as in proc(5); n > 2. */
static long stat_field(pid_t pid, int n, char *state)
{
	char path[64], buf[1024], *at;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	len = cs_try_read(path, "stat", buf, sizeof(buf));
	if (len < 0)
		cs_fail("read /proc/%d/stat: %s", pid, strerror(-len));
	/* The name may hold anything, so count from its last bracket. */
	at = strrchr(buf, ')');
	if (!at)
		cs_fail("/proc/%d/stat: '%s'", pid, buf);
	at += 2;
	*state = *at;
	for (n -= 3; n > 0 && at; n--) {
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return at ? strtol(at, NULL, 10) : -1;
}

int cs_task_cpu(pid_t pid)
{
	char state;

	return stat_field(pid, 39, &state);
}

char cs_task_state(pid_t pid)
{
	char state;

	stat_field(pid, 3, &state);
	return state;
}

long long cs_task_usec(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		cs_fail("CPU time of task %d: %s", pid, strerror(errno));
	return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

/* CPUs */

int cs_try_parse_cpus(const char *list, cpu_set_t *set)
{
	const char *at = list;
	long first, last;
	char *end;

	CPU_ZERO(set);
	while (*at) {
		first = strtol(at, &end, 10);
		if (end == at)
			return -EINVAL;
		last = first;
		if (*end == '-') {
			at = end + 1;
			last = strtol(at, &end, 10);
			if (end == at)
				return -EINVAL;
		}
		if (first < 0 || last < first || last >= CPU_SETSIZE)
			return -EINVAL;
		for (; first <= last; first++)
			CPU_SET(first, set);
		if (*end == ',')
			end++;
		else if (*end)
			return -EINVAL;
		at = end;
	}
	return 0;
}

void cs_parse_cpus(const char *list, cpu_set_t *set)
{
	if (cs_try_parse_cpus(list, set))
		cs_fail("not a CPU list: '%s'", list);
}

void cs_format_cpus(const cpu_set_t *set, char *buf, size_t len)
{
	size_t used = 0;
	int cpu, last;

	buf[0] = '\0';
	for (cpu = 0; cpu < CPU_SETSIZE; cpu = last + 1) {
		last = cpu;
		if (!CPU_ISSET(cpu, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		if (used)
			used += snprintf(buf + used, len - used, ",");
		used += snprintf(buf + used, len - used,
				 last > cpu ? "%d-%d" : "%d", cpu, last);
		if (used + 16 > len)
			cs_fail("CPU list too long");
	}
}

static void read_mask(const char *file, cpu_set_t *set)
{
	char list[1024];

	cs_read("/sys/devices/system/cpu", file, list, sizeof(list));
	cs_parse_cpus(list, set);
}

void cs_online(cpu_set_t *set)
{
	read_mask("online", set);
}

void cs_possible(cpu_set_t *set)
{
	read_mask("possible", set);
}

int cs_highest_possible(void)
{
	cpu_set_t possible;
	int cpu;

	cs_possible(&possible);
	for (cpu = CPU_SETSIZE - 1; cpu > 0; cpu--)
		if (CPU_ISSET(cpu, &possible))
			break;
	return cpu;
}

void cs_need_cpus(int n)
{
	cpu_set_t online;
	int cpu;

	cs_online(&online);
	for (cpu = 0; cpu < n; cpu++)
		if (!CPU_ISSET(cpu, &online))
			cs_skip("needs CPUs 0 to %d online", n - 1);
}

int cs_try_set_online(int cpu, bool up)
{
	char dir[64];

	snprintf(dir, sizeof(dir), "/sys/devices/system/cpu/cpu%d", cpu);
	return cs_try_write(dir, "online", up ? "1" : "0");
}

void cs_set_online(int cpu, bool up)
{
	long long end = cs_now_ms() + 10000;
	int ret;

	/* -EBUSY is what a hotplug operation gets while another is running. */
	while ((ret = cs_try_set_online(cpu, up)) == -EBUSY &&
	       cs_now_ms() < end)
		cs_sleep_ms(10);
	if (ret)
		cs_fail("set CPU %d %s: %s", cpu, up ? "online" : "offline",
			strerror(-ret));
}

/* The list in the cache directory of the highest level; false if none. */
static bool llc_of(int cpu, char *list, size_t len)
{
	int index, best = -1, level;
	char dir[128], buf[32];

	for (index = 0; index < 16; index++) {
		snprintf(dir, sizeof(dir),
			 "/sys/devices/system/cpu/cpu%d/cache/index%d", cpu,
			 index);
		if (cs_try_read(dir, "level", buf, sizeof(buf)) <= 0)
			break;
		level = atoi(buf);
		if (level >= best &&
		    cs_try_read(dir, "shared_cpu_list", list, len) > 0)
			best = level;
	}
	return best >= 0;
}

int cs_llcs(cpu_set_t *llcs, int max)
{
	cpu_set_t online, seen, llc;
	char list[1024];
	int cpu, n = 0;

	cs_online(&online);
	CPU_ZERO(&seen);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &online) || CPU_ISSET(cpu, &seen))
			continue;
		if (!llc_of(cpu, list, sizeof(list)))
			return 0;
		cs_parse_cpus(list, &llc);
		if (n == max)
			cs_fail("more than %d LLC domains", max);
		llcs[n++] = llc;
		CPU_OR(&seen, &seen, &llc);
	}
	return n;
}

/* The harness */

static bool find_root(void)
{
	char device[256], where[PATH_MAX], type[256];
	bool found = false;
	FILE *mounts;

	mounts = fopen("/proc/self/mounts", "re");
	if (!mounts)
		return false;
	while (fscanf(mounts, "%255s %4095s %255s%*[^\n]", device, where,
		      type) == 3) {
		if (!strcmp(type, "cgroup2")) {
			strcpy(root, where);
			found = true;
			break;
		}
	}
	fclose(mounts);
	return found;
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);
	const char *at = text;

	while ((at = strstr(at, word))) {
		if ((at == text || at[-1] == ' ') &&
		    (!at[len] || at[len] == ' '))
			return true;
		at += len;
	}
	return false;
}

static enum cs_mode find_mode(void)
{
	char probe[PATH_MAX + 64], buf[1024];
	enum cs_mode found = CS_MODE_ABSENT;

	if (cs_try_read(root, "cgroup.controllers", buf, sizeof(buf)) < 0)
		return CS_MODE_ABSENT;
	if (has_word(buf, "cosched"))
		return CS_MODE_ORDINARY;
	snprintf(probe, sizeof(probe), "%s/cosched-probe.%d", root, getpid());
	if (mkdir(probe, 0755))
		return CS_MODE_ABSENT;
	if (cs_has_file(probe, CS_PREF))
		found = CS_MODE_IMPLICIT;
	rmdir(probe);
	return found;
}

static void restore_cpus(void)
{
	cpu_set_t now;
	int cpu;

	cs_online(&now);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &online_at_start) && !CPU_ISSET(cpu, &now))
			cs_set_online(cpu, true);
}

/* A test may keep the harness off some CPUs. */
static void restore_affinity(void)
{
	cpu_set_t now;

	sched_getaffinity(0, sizeof(now), &now);
	if (!CPU_EQUAL(&now, &allowed_at_start))
		sched_setaffinity(0, sizeof(allowed_at_start), &allowed_at_start);
}

static void restore_options(void)
{
	char now[256];

	mount_options(now, sizeof(now));
	if (strcmp(now, options_at_start))
		remount(options_at_start);
}

/* In the process of the test. */
static void run_in_child(const struct cs_test *test, const char *top)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(skip_pipe[0]);
	test->fn(top);
	_exit(EXIT_PASS);
}

/*
 * Wait for the test's process, for as long as it may take. Nobody wakes up meanwhile: on a CPU
 * where a test counts who is runnable that would be one more.
 */
static int wait_child(pid_t pid, const struct cs_test *test)
{
	unsigned int limit = test->timeout_s ?: DEFAULT_TIMEOUT_S;
	struct pollfd ended = { .fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status, ret;

	if (ended.fd < 0) {
		cs_diag("pidfd_open: %s", strerror(errno));
		kill(-pid, SIGKILL);
		waitpid(pid, &status, 0);
		return EXIT_FAIL;
	}
	do
		ret = poll(&ended, 1, limit * 1000);
	while (ret < 0 && errno == EINTR);
	close(ended.fd);
	if (ret <= 0) {
		cs_diag("%s: no result after %u s", test->name, limit);
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return EXIT_FAIL;
	}
	waitpid(pid, &status, 0);
	/* Tasks that the test left running and that are in no cgroup of its own. */
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status)) {
		cs_diag("%s: killed by signal %d", test->name,
			WTERMSIG(status));
		return EXIT_FAIL;
	}
	return WEXITSTATUS(status);
}

static int run_test(const struct cs_test *test, int number)
{
	char top[PATH_MAX + 64], why[512] = "";
	ssize_t len;
	pid_t pid;
	int ret;

	snprintf(top, sizeof(top), "%s/cosched-%s.%d", root, test->name,
		 getpid());
	if (pipe(skip_pipe)) {
		cs_diag("pipe: %s", strerror(errno));
		return EXIT_FAIL;
	}
	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		cs_diag("fork: %s", strerror(errno));
		return EXIT_FAIL;
	}
	if (!pid) {
		if (mode != CS_MODE_ABSENT) {
			if (mkdir(top, 0755))
				cs_fail("mkdir %s: %s", top, strerror(errno));
			cs_enable(top);
		}
		run_in_child(test, top);
	}
	close(skip_pipe[1]);
	ret = wait_child(pid, test);
	len = read(skip_pipe[0], why, sizeof(why) - 1);
	close(skip_pipe[0]);
	why[len > 0 ? len : 0] = '\0';

	restore_cpus();
	restore_options();
	restore_affinity();
	len = cs_rmtree(top);
	if (len) {
		cs_diag("%s: cannot remove %s: %s", test->name, top,
			strerror(-len));
		ret = EXIT_FAIL;
	}

	if (ret == EXIT_PASS)
		printf("ok %d %s\n", number, test->name);
	else if (ret == EXIT_SKIP)
		printf("ok %d %s # SKIP %s\n", number, test->name, why);
	else
		printf("not ok %d %s\n", number, test->name);
	fflush(stdout);
	return ret;
}

static bool hold_cluster(char *held)
{
	int ret = 0;

	snprintf(held, PATH_MAX + 64, "%s/cosched-held.%d", root, getpid());
	if (mkdir(held, 0755))
		ret = -errno;
	else
		ret = cs_try_write(held, CS_PREF, "0\n");
	if (ret)
		printf("Bail out! cannot make a cluster in %s: %s\n", root,
		       strerror(-ret));
	return !ret;
}

static void usage(const char *name, const struct cs_program *program)
{
	int i;

	printf("Usage: %s [OPTION]...\n%s\n\n", name, program->about);
	printf("  -t, --test NAME    run only the tests whose name holds NAME\n");
	printf("      --list         print the names of the tests\n");
	for (i = 0; i < program->noptions; i++) {
		const struct cs_option *o = &program->options[i];
		char left[64];

		snprintf(left, sizeof(left), "--%s%s", o->name,
			 o->number ? " N" : o->text ? " TEXT" : "");
		printf("      %-14s %s\n", left, o->help);
	}
	printf("  -h, --help         print this\n\n");
	printf("Needs root and a mounted cgroup2. Prints KTAP; exits with 0 if every test\n");
	printf("passed, 4 if every test was skipped, 1 otherwise.\n");
}

/* Takes one option of the program; the number of arguments it used, or 0. */
static int take_option(const struct cs_program *program, char **argv)
{
	char *end;
	int i;

	if (strncmp(argv[0], "--", 2))
		return 0;
	for (i = 0; i < program->noptions; i++) {
		const struct cs_option *o = &program->options[i];

		if (strcmp(argv[0] + 2, o->name))
			continue;
		if (o->flag) {
			*o->flag = true;
			return 1;
		}
		if (!argv[1])
			return 0;
		if (o->text) {
			*o->text = argv[1];
			return 2;
		}
		*o->number = strtol(argv[1], &end, 10);
		return *end || end == argv[1] ? 0 : 2;
	}
	return 0;
}

int cs_main(int argc, char **argv, const struct cs_program *program)
{
	int i, n, used, selected = 0, failed = 0, skipped = 0;
	const char *filter = NULL;
	bool enabled_here = false;
	char buf[1024], held[PATH_MAX + 64] = "";

	if (program->early)
		program->early(argc, argv);

	for (i = 1; i < argc; i += used) {
		used = 1;
		if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			usage(argv[0], program);
			return 0;
		}
		if (!strcmp(argv[i], "--list")) {
			for (n = 0; n < program->ntests; n++)
				printf("%s\n", program->tests[n].name);
			return 0;
		}
		if ((!strcmp(argv[i], "-t") || !strcmp(argv[i], "--test")) &&
		    i + 1 < argc) {
			filter = argv[i + 1];
			used = 2;
			continue;
		}
		used = take_option(program, argv + i);
		if (!used) {
			fprintf(stderr, "%s: bad option '%s'; try --help\n",
				argv[0], argv[i]);
			return 2;
		}
	}
	for (n = 0; n < program->ntests; n++)
		if (!filter || strstr(program->tests[n].name, filter))
			selected++;

	printf("TAP version 13\n");
	if (!selected) {
		printf("Bail out! no test is called '%s'\n", filter);
		return 1;
	}
	printf("1..%d\n", selected);
	if (geteuid()) {
		printf("Bail out! must run as root\n");
		return 1;
	}
	if (!find_root()) {
		printf("Bail out! no cgroup2 is mounted\n");
		return 1;
	}
	cs_online(&online_at_start);
	sched_getaffinity(0, sizeof(allowed_at_start), &allowed_at_start);
	mount_options(options_at_start, sizeof(options_at_start));
	mode = find_mode();
	if (mode == CS_MODE_ABSENT && !program->any_mode) {
		printf("Bail out! this kernel has no cosched controller: it is not in %s/cgroup.controllers, and a new cgroup has no %s\n",
		       root, CS_PREF);
		return 1;
	}
	if (mode == CS_MODE_ORDINARY) {
		n = cs_try_read(root, "cgroup.subtree_control", buf,
				sizeof(buf));
		enabled_here = n >= 0 && !has_word(buf, "cosched");
		n = cs_try_write(root, "cgroup.subtree_control", "+cosched");
		if (n) {
			printf("Bail out! cannot enable cosched in %s: %s\n",
			       root, strerror(-n));
			return 1;
		}
	}

	if (mode != CS_MODE_ABSENT && !program->no_cluster_held &&
	    !hold_cluster(held))
		return 1;

	for (i = 0, n = 0; i < program->ntests; i++) {
		const struct cs_test *test = &program->tests[i];

		if (filter && !strstr(test->name, filter))
			continue;
		switch (run_test(test, ++n)) {
		case EXIT_PASS:
			break;
		case EXIT_SKIP:
			skipped++;
			break;
		default:
			failed++;
		}
	}
	if (*held)
		cs_try_rmdir(held);
	if (enabled_here)
		cs_try_write(root, "cgroup.subtree_control", "-cosched");

	printf("# Totals: pass:%d fail:%d skip:%d\n",
	       selected - failed - skipped, failed, skipped);
	if (failed)
		return 1;
	return skipped == selected ? EXIT_SKIP : 0;
}
