/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the cosched selftests.
 *
 * A program is a table of tests. Every test runs in a process of its own with
 * a fresh cgroup below the root of the hierarchy, in which cosched is enabled,
 * so that a test states what must hold and does not clean up: whatever it
 * leaves behind (tasks, cgroups, offline CPUs) is undone by the harness when
 * the test returned, failed, crashed or ran out of time.
 *
 * A test that returns has passed. cs_fail() and cs_skip() do not return, and
 * may be called at any depth in the process of the test.
 */
#ifndef COSCHED_UTIL_H
#define COSCHED_UTIL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CS_PREF		"cosched.cpus_preferred"
#define CS_HOME		"cosched.cpus_preferred.effective"
#define CS_WEIGHTS	"cosched.weights"
#define CS_STAT		"cosched.stat"
#define CS_LOAD		"cosched.load"

#define CS_WEIGHTS_DEFAULT	"100 150"

/* Any user other than root; "nobody" on most systems. */
#define CS_UNPRIVILEGED		65534

#define ARRAY_LEN(a)	((int)(sizeof(a) / sizeof((a)[0])))

/* How the controller got into this kernel; found out once per program. */
enum cs_mode {
	CS_MODE_ABSENT,		/* not built, or cgroup_disable=cosched */
	CS_MODE_ORDINARY,	/* enabled through cgroup.subtree_control */
	CS_MODE_IMPLICIT,	/* cgroup.cosched=implicit */
};

struct cs_test {
	const char *name;
	void (*fn)(const char *top);
	unsigned int timeout_s;	/* 0: 60 s */
};

/* An option of one program, beside --help, --list and -t. */
struct cs_option {
	const char *name;	/* without the dashes */
	const char *help;
	long *number;		/* one of number, flag and text is set */
	bool *flag;
	const char **text;
};

struct cs_program {
	const char *about;
	const struct cs_test *tests;
	int ntests;
	const struct cs_option *options;
	int noptions;
	bool any_mode;		/* runs without the controller, too */
	/*
	 * The harness holds a cluster without tasks while the tests run, unless
	 * a program is about there being none. The scheduler's static key then
	 * stays on between tests. That is for the emulator's sake: QEMU before
	 * 8.1 translates code without a lock, and a CPU that does so while
	 * another patches that code can keep a breakpoint that is no more in
	 * memory: "Oops: int3", on any kernel, once in some hundred patches.
	 */
	bool no_cluster_held;
	/*
	 * Runs before anything else when set; a program that executes itself
	 * as a worker takes the whole run over by not returning.
	 */
	void (*early)(int argc, char **argv);
};

int cs_main(int argc, char **argv, const struct cs_program *program);

void cs_diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cs_fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
void cs_skip(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn));

#define cs_fail(...)	cs_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define REQUIRE(cond, ...)	((cond) ? (void)0 : cs_fail(__VA_ARGS__))

enum cs_mode cs_mode(void);
const char *cs_root(void);	/* where cgroup2 is mounted */

/* cgroups; paths are absolute */
void cs_name(char *path, const char *parent, const char *child);
void cs_mkdir(char *path, const char *parent, const char *child);
int cs_try_rmdir(const char *cg);		/* 0 or -errno */
void cs_rmdir(const char *cg);			/* waits for exiting tasks */
int cs_rmtree(const char *cg);			/* kills and removes all below */
void cs_enable(const char *cg);			/* +cosched, in ordinary mode */
/* Enables another controller, in the root and in @top; skips the test if the kernel lacks it. */
void cs_need_controller(const char *top, const char *name);
bool cs_has_file(const char *cg, const char *file);
/* Sets an option of the cgroup2 mount; the harness takes it back after the test. */
void cs_mount_option(const char *option);

/* Contents without the final newline; length or -errno. */
ssize_t cs_try_read(const char *cg, const char *file, char *buf, size_t len);
void cs_read(const char *cg, const char *file, char *buf, size_t len);
/* One write(2); 0 or -errno, and -EIO when the kernel took only a part. */
int cs_try_write_n(const char *cg, const char *file, const void *buf,
		   size_t len);
int cs_try_write(const char *cg, const char *file, const char *value);

void cs_write_at(const char *src, int line, const char *cg, const char *file,
		 const char *value);
void cs_expect_at(const char *src, int line, const char *cg, const char *file,
		  const char *value);
void cs_expect_soon_at(const char *src, int line, const char *cg,
		       const char *file, const char *value, long ms);

/* The write must succeed. */
#define cs_write(cg, file, value)	\
	cs_write_at(__FILE__, __LINE__, cg, file, value)
/* The file must hold this now, or at the latest in so many milliseconds. */
#define cs_expect(cg, file, value)	\
	cs_expect_at(__FILE__, __LINE__, cg, file, value)
#define cs_expect_soon(cg, file, value, ms)	\
	cs_expect_soon_at(__FILE__, __LINE__, cg, file, value, ms)

/* cosched.stat */
extern const char *const cs_stat_keys[];
extern const int cs_nr_stat_keys;
long long cs_stat(const char *cg, const char *key);
long long cs_key(const char *cg, const char *file, const char *key);

/* cosched.load, parsed strictly: anything undocumented in it is a failure. */
struct cs_load_llc {
	cpu_set_t cpus;
	long home;
	long util;
	long runnable;
};

struct cs_load_cpu {
	int cpu;
	long home;
	long util;
	long runnable;
};

struct cs_load {
	int nr_llcs;
	int nr_cpus;
	struct cs_load_llc llc[256];
	struct cs_load_cpu cpu[CPU_SETSIZE];
};

void cs_load(const char *cg, struct cs_load *load);
long cs_load_util(const char *cg);		/* sum over the LLC domains */

/* tasks */
typedef void (*cs_work_fn)(void *arg);

/* A child that is in the cgroup before it starts to work. */
pid_t cs_spawn(const char *cg, cs_work_fn fn, void *arg);
pid_t cs_spinner(const char *cg);		/* uses a CPU until killed */
void cs_kill(pid_t pid);			/* and reap */
/* Stops the task, so that all its CPU time is counted, however late ticks come. */
void cs_stop(pid_t pid);
void cs_continue(pid_t pid);
int cs_try_move(const char *cg, pid_t pid);
void cs_move(const char *cg, pid_t pid);
void cs_move_thread(const char *cg, pid_t tid);
int cs_task_cpu(pid_t pid);
long long cs_task_usec(pid_t pid);		/* CPU time used */
char cs_task_state(pid_t pid);

/* CPUs */
int cs_try_parse_cpus(const char *list, cpu_set_t *set);
void cs_parse_cpus(const char *list, cpu_set_t *set);
void cs_format_cpus(const cpu_set_t *set, char *buf, size_t len);
void cs_online(cpu_set_t *set);
void cs_possible(cpu_set_t *set);
int cs_highest_possible(void);
void cs_need_cpus(int n);			/* skips unless 0..n-1 online */
int cs_try_set_online(int cpu, bool online);
void cs_set_online(int cpu, bool online);
/* CPUs that share the last-level cache, by first CPU; 0 if sysfs has none. */
int cs_llcs(cpu_set_t *llcs, int max);

/* time */
long long cs_now_ms(void);
void cs_sleep_ms(long ms);

#endif /* COSCHED_UTIL_H */
