/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _FAKE_H
#define _FAKE_H

#include <stdbool.h>

/*
 * A made-up /proc, /sys and tree of cgroups in a temporary directory, which the
 * library is made to use. A cgroup that is made there gets files. The files take any
 * value, and moving a thread only writes its number to a file. The machine has 8 CPUs,
 * and CPU 7 is offline.
 */
enum fake_controller { FAKE_NONE, FAKE_ORDINARY, FAKE_IMPLICIT };

void fake_begin(const char *own, enum fake_controller controller);
void fake_end(void);

/* The path of a file of the tree; the thread's last four paths are valid. */
const char *fake_path(const char *name);
/* Its text, without a newline at the end; NULL if it is not there. */
const char *fake_text(const char *name);
/* Makes /proc say that the calling thread, and the process, are in a cgroup. */
void fake_move(const char *own);
void fake_write(const char *name, const char *text);
bool fake_exists(const char *name);

extern int failures;

/* Runs a test in a process of its own, as the library remembers the cgroup it began in. */
void fake_run(const char *name, void (*test)(void));

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", \
				__FILE__, __LINE__, #what, errno); \
			failures++; \
		} \
	} while (0)

#endif
