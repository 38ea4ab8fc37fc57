/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
/*
 * libcosched - clusters of threads with a home
 *
 * The threads of a cluster prefer the CPUs of its home, and leave them rather
 * than let a CPU idle. A cluster is a cgroup of the controller cosched; what its
 * files mean is in Documentation/admin-guide/cgroup-v2-cosched.rst.
 *
 * Functions that return int return 0, or -1 with errno set, unless they say
 * otherwise. All of them can be called by several threads at a time, with the
 * same cluster too, but for cosched_close(). None is async-signal-safe.
 *
 * Where the kernel has no controller they do nothing and fail with ENOTSUP, so a
 * program can call them and go on. Other errors of all functions:
 *
 *	EACCES, EPERM	not permitted: the cgroup is not delegated to the user
 *	ENODEV, ENOENT	the cluster was removed
 *	ENOMEM, EMFILE, ENFILE
 */
#ifndef _COSCHED_H
#define _COSCHED_H

#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of cosched_open() */
#define COSCHED_CREATE		0x1	/* make the cluster if it is not there */
#define COSCHED_EXCL		0x2	/* with COSCHED_CREATE: fail if it is there */
#define COSCHED_THREADED	0x4	/* for single threads of this process */

/* Types of affinity, as "Scheduler Soft Affinity" has them */
#define COSCHED_HARD_AFFINITY	0	/* sched_setaffinity(2) itself */
#define COSCHED_SOFT_AFFINITY	1	/* a preference */

/* The weights in force where nobody sets any, see cosched_set_weights() */
#define COSCHED_DEFAULT_PREFERRED	100
#define COSCHED_DEFAULT_ALLOWED		150

struct cosched;

/**
 * cosched_available - does the kernel have the controller?
 *
 * Return: 1 if it does, 0 if it does not. That it does is no promise that this
 * user may make clusters.
 */
int cosched_available(void);

/**
 * cosched_open - get hold of a cluster
 * @name: 1 to 255 bytes without '/' and newline, not beginning with '.'
 * @flags: of COSCHED_CREATE, COSCHED_EXCL and COSCHED_THREADED
 *
 * A cluster for whole processes is where the cosched command has those that it
 * gives a name: cosched in the root of the hierarchy for root, for others in the
 * highest cgroup above the calling process that they may write to. One that is
 * COSCHED_THREADED is below the cgroup that the calling process is in; its threads
 * can join, and the process stays where it is.
 *
 * The controller is enabled down to the cluster as far as that is needed.
 *
 * Errors: EINVAL (@name, @flags), EEXIST, ENOENT (not there, without
 * COSCHED_CREATE), EBUSY (a cgroup above has processes of its own, or children,
 * that do not go together with it), EAGAIN (as many cgroups as are allowed, or
 * others removed it each time).
 *
 * Return: the cluster, for cosched_close(), or NULL.
 */
struct cosched *cosched_open(const char *name, unsigned int flags);

/**
 * cosched_close - let go of a cluster, which stays
 * @cluster: may be NULL
 */
void cosched_close(struct cosched *cluster);

/**
 * cosched_remove - remove a cluster that nobody is in
 * @cluster: remains to be closed
 *
 * Errors: EBUSY (it has threads or cgroups below it).
 */
int cosched_remove(struct cosched *cluster);

/**
 * cosched_path - the directory of a cluster
 * @cluster: what it is of, as long as the string is used
 */
const char *cosched_path(const struct cosched *cluster);

/**
 * cosched_join - put a thread or a process into a cluster
 * @cluster: the cluster
 * @id: of a thread for a COSCHED_THREADED cluster, else of a process, which joins
 *	with all of its threads; 0 for the calling one
 *
 * Errors: ESRCH (there is none), EXDEV (a thread of a process that is elsewhere),
 * EBUSY, EINVAL (a kernel thread).
 */
int cosched_join(struct cosched *cluster, pid_t id);

/**
 * cosched_leave - put a thread or a process back
 * @cluster: the cluster that it is in
 * @id: as for cosched_join()
 *
 * Back is the cgroup that the calling process was in when it opened @cluster.
 *
 * Errors: ESRCH (there is none, or it is not in @cluster), EINVAL (the caller was
 * in @cluster when it opened it).
 */
int cosched_leave(struct cosched *cluster, pid_t id);

/**
 * cosched_set_home - name the CPUs that a cluster prefers
 * @cluster: the cluster
 * @home: a list of CPUs ("0-3,8"), "auto" for the kernel to choose, or "" or NULL
 *	to inherit that of the cgroup above
 *
 * Refused values change nothing.
 *
 * Errors: EINVAL (no such list), ERANGE (a CPU that the machine cannot have),
 * E2BIG.
 */
int cosched_set_home(struct cosched *cluster, const char *home);

/**
 * cosched_get_home - read what was asked for
 * @cluster: the cluster
 * @home: gets the string, as cosched_set_home() takes it
 * @len: size of @home in bytes
 *
 * Errors: ERANGE (@len is too small).
 */
int cosched_get_home(struct cosched *cluster, char *home, size_t len);

/**
 * cosched_get_effective_home - read the home that is in force
 * @cluster: the cluster
 * @len: size of @set in bytes
 * @set: gets the CPUs, none where there is no preference
 *
 * Errors: ERANGE (a CPU that @set has no room for), EINVAL (@len is no multiple of
 * that of a long).
 */
int cosched_get_effective_home(struct cosched *cluster, size_t len, cpu_set_t *set);

/**
 * cosched_set_weights - say what load costs
 * @cluster: the cluster
 * @preferred: cost of load at home, 1 to 10000
 * @allowed: cost of load elsewhere, 1 to 10000
 *
 * A thread leaves home for CPUs elsewhere only if
 *
 *	@preferred * load(home) > @allowed * load(elsewhere)
 *
 * 4 and 1000 nearly bind it, 100 and 100 are hardly a preference under load. Both
 * 0: inherited again. Refused values change nothing.
 *
 * Errors: ERANGE.
 */
int cosched_set_weights(struct cosched *cluster, unsigned int preferred,
			unsigned int allowed);

/**
 * cosched_get_weights - read the weights in force, own or inherited
 * @cluster: the cluster
 * @preferred: gets the cost of load at home
 * @allowed: gets the cost of load elsewhere
 */
int cosched_get_weights(struct cosched *cluster, unsigned int *preferred,
			unsigned int *allowed);

/**
 * cosched_setaffinity2 - sched_setaffinity() with a type
 * @pid: thread, 0 for the calling one
 * @len: size of @set in bytes
 * @set: CPUs
 * @type: COSCHED_SOFT_AFFINITY or COSCHED_HARD_AFFINITY
 *
 * The call that "Scheduler Soft Affinity" proposes. Soft, the thread joins the
 * cluster whose home is @set, and which threads in the same cgroup that ask for
 * the same share; it is made if need be, "soft-" and the list of CPUs below the
 * thread's cgroup, and removed when the last one in it asks for something else.
 * What threads and programs are started by it inherit it. CPUs that the machine
 * cannot have are left out. All CPUs that are online: no preference any more.
 *
 * Hard, it is sched_setaffinity(2), without the controller too.
 *
 * Errors: those of cosched_join(), and EINVAL (no CPU that the machine can have,
 * or @type).
 */
int cosched_setaffinity2(pid_t pid, size_t len, const cpu_set_t *set, int type);

/**
 * cosched_getaffinity2 - read what cosched_setaffinity2() set
 * @pid: thread, 0 for the calling one
 * @len: size of @set in bytes
 * @set: gets the CPUs
 * @type: COSCHED_SOFT_AFFINITY or COSCHED_HARD_AFFINITY
 *
 * Errors: ESRCH, ENODATA (soft, and the thread has none), ERANGE (soft, a CPU
 * that @set has no room for), EINVAL (@type, @len, or hard and @set too small).
 */
int cosched_getaffinity2(pid_t pid, size_t len, cpu_set_t *set, int type);

#ifdef __cplusplus
}
#endif

#endif /* _COSCHED_H */
