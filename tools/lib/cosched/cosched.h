/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
/*
 * libcosched - clusters of threads with a home
 *
 * The threads of a cluster prefer the CPUs of its home, and leave them rather
 * than let a CPU idle. A cluster is a cgroup of the controller cosched;
 * Documentation/admin-guide/cgroup-v2-cosched.rst says what its files mean.
 *
 * Functions that return int return 0, or -1 with errno set, unless they say
 * otherwise. Several threads can call all functions except cosched_close() at the
 * same time, even with the same cluster. None is async-signal-safe.
 *
 * If the kernel has no controller, the functions do nothing and fail with ENOTSUP,
 * so a program can call them and go on. Other errors of all functions:
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

/* The weights in force if no weights are set, see cosched_set_weights() */
#define COSCHED_DEFAULT_PREFERRED	100
#define COSCHED_DEFAULT_ALLOWED		150

struct cosched;

/**
 * cosched_available - does the kernel have the controller?
 *
 * Return: 1 if it does, 0 if it does not. 1 does not mean that this user may make
 * clusters.
 */
int cosched_available(void);

/**
 * cosched_open - open a cluster, and make it if asked to
 * @name: 1 to 255 bytes without '/' and newline, not beginning with '.'
 * @flags: any of COSCHED_CREATE, COSCHED_EXCL and COSCHED_THREADED
 *
 * A cluster for whole processes is where the cosched command keeps its named
 * clusters: in the cgroup "cosched". For root, this cgroup is in the root of the
 * hierarchy; for other users, in the highest cgroup at or above that of the calling
 * process that they may write to. A COSCHED_THREADED cluster is below the cgroup of
 * the calling process: threads of the process can join it, and the process stays
 * where it is.
 *
 * The controller is enabled in the cgroups above the cluster if that is needed.
 *
 * Errors: EINVAL (@name, @flags), EEXIST (it exists, with COSCHED_EXCL), ENOENT (it
 * does not exist, without COSCHED_CREATE), EBUSY (a cgroup above has processes of
 * its own, or children, that do not go together with the cluster), EAGAIN (there
 * are as many cgroups as are allowed, or the cluster was removed each time that it
 * was made).
 *
 * Return: the cluster, for cosched_close(), or NULL.
 */
struct cosched *cosched_open(const char *name, unsigned int flags);

/**
 * cosched_close - close a cluster, which continues to exist
 * @cluster: may be NULL
 */
void cosched_close(struct cosched *cluster);

/**
 * cosched_remove - remove a cluster that has no threads
 * @cluster: the caller still has to close it
 *
 * Errors: EBUSY (the cluster has threads, or cgroups below it).
 */
int cosched_remove(struct cosched *cluster);

/**
 * cosched_path - the directory of a cluster
 * @cluster: the cluster, to be closed only after the last use of the string
 */
const char *cosched_path(const struct cosched *cluster);

/**
 * cosched_join - put a thread or a process into a cluster
 * @cluster: the cluster
 * @id: a thread if the cluster is COSCHED_THREADED, else a process, which joins
 *	with all of its threads; 0 for the calling thread or process
 *
 * Errors: ESRCH (there is no such thread or process), EXDEV (a thread of a process
 * that is in another part of the hierarchy), EBUSY (processes are in clusters below
 * @cluster), EINVAL (a kernel thread).
 */
int cosched_join(struct cosched *cluster, pid_t id);

/**
 * cosched_leave - put a thread or a process back
 * @cluster: the cluster that the thread or process is in
 * @id: as for cosched_join()
 *
 * The thread or process is put into the cgroup that the calling process was in when
 * it opened @cluster.
 *
 * Errors: ESRCH (there is no such thread or process, or it is not in @cluster),
 * EINVAL (the caller was in @cluster when it opened it).
 */
int cosched_leave(struct cosched *cluster, pid_t id);

/**
 * cosched_set_home - name the CPUs that a cluster prefers
 * @cluster: the cluster
 * @home: a list of CPUs ("0-3,8"), "auto" for the kernel to choose, or "" or NULL
 *	to inherit the home of the cgroup above
 *
 * A value that is refused changes nothing.
 *
 * Errors: EINVAL (@home is not a list of CPUs), ERANGE (a CPU that the machine
 * cannot have), E2BIG (@home is longer than any list).
 */
int cosched_set_home(struct cosched *cluster, const char *home);

/**
 * cosched_get_home - read the home that was asked for
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
 * @set: gets the CPUs, none if there is no preference
 *
 * Errors: ERANGE (a CPU that @set has no room for), EINVAL (@len is not a multiple
 * of the size of a long).
 */
int cosched_get_effective_home(struct cosched *cluster, size_t len, cpu_set_t *set);

/**
 * cosched_set_weights - set what load costs at home and elsewhere
 * @cluster: the cluster
 * @preferred: cost of load at home, 1 to 10000
 * @allowed: cost of load elsewhere, 1 to 10000
 *
 * A thread leaves home for CPUs elsewhere only if
 *
 *	@preferred * load(home) > @allowed * load(elsewhere)
 *
 * 4 and 1000 nearly bind the thread to its home; 100 and 100 are hardly a preference
 * under load. If both are 0, the weights are inherited again. Values that are refused
 * change nothing.
 *
 * Errors: ERANGE (a weight is not from 1 to 10000).
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
 * The call that "Scheduler Soft Affinity" proposes. With COSCHED_SOFT_AFFINITY, the
 * thread joins the cluster whose home is @set. Threads in the same cgroup that ask
 * for the same CPUs share this cluster. It is below the thread's cgroup, and its
 * name is "soft-" and the list of CPUs, or a hash of a list that is too long for a
 * name. It is made if necessary, and removed when the last thread in it asks for
 * something else. Threads and programs that the thread starts inherit the
 * preference. CPUs that the machine cannot have are left out. If @set has all CPUs
 * that are online, the thread has no preference any more.
 *
 * With COSCHED_HARD_AFFINITY, the call is sched_setaffinity(2), and needs no
 * controller.
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
 * Errors: ESRCH (there is no such thread), ENODATA (soft, and the thread has no
 * preference), ERANGE (soft, and a CPU that @set has no room for), EINVAL (@type,
 * @len, or hard and @set is too small).
 */
int cosched_getaffinity2(pid_t pid, size_t len, cpu_set_t *set, int type);

#ifdef __cplusplus
}
#endif

#endif /* _COSCHED_H */
