// SPDX-License-Identifier: GPL-2.0
/*
 * A pool of threads in two parts. The threads that parse share one queue and its data,
 * the threads that store share another: each part is a cluster with a home of its own.
 *
 *	threadpool [HOME HOME]		default: both "auto", the kernel chooses
 *
 * Without the controller, the pool works as it always did.
 */
#include <cosched.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THREADS	4	/* in each part */
#define JOBS	1000	/* for each part */

struct part {
	const char *name, *home;
	struct cosched *cluster;	/* NULL: without a preference */
	pthread_mutex_t lock;
	int jobs;			/* jobs that are left */
	int joined;			/* threads that are in the cluster */
};

static void *work(void *arg)
{
	struct part *part = arg;
	int joined = part->cluster && !cosched_join(part->cluster, 0);
	int left;

	pthread_mutex_lock(&part->lock);
	part->joined += joined;
	pthread_mutex_unlock(&part->lock);
	do {
		pthread_mutex_lock(&part->lock);
		left = part->jobs ? part->jobs-- : 0;
		pthread_mutex_unlock(&part->lock);
	} while (left);
	if (joined)
		cosched_leave(part->cluster, 0);
	return NULL;
}

/* The program works without a preference: errors are reported, and the work goes on. */
static void make_cluster(struct part *part)
{
	part->cluster = cosched_open(part->name, COSCHED_CREATE | COSCHED_THREADED);
	if (!part->cluster) {
		fprintf(stderr, "threadpool: %s: no cluster: %s\n", part->name,
			errno == ENOTSUP ? "the kernel has no cosched" : strerror(errno));
		return;
	}
	/* These threads share all of their data: let them wait at home rather than leave. */
	if (cosched_set_home(part->cluster, part->home) ||
	    cosched_set_weights(part->cluster, 4, 1000))
		fprintf(stderr, "threadpool: %s: %s\n", cosched_path(part->cluster),
			strerror(errno));
}

int main(int argc, char **argv)
{
	struct part parts[] = {
		{ "parse", argc > 2 ? argv[1] : "auto", NULL, PTHREAD_MUTEX_INITIALIZER, JOBS, 0 },
		{ "store", argc > 2 ? argv[2] : "auto", NULL, PTHREAD_MUTEX_INITIALIZER, JOBS, 0 },
	};
	pthread_t threads[2][THREADS];
	int i, j;

	for (i = 0; i < 2; i++) {
		make_cluster(&parts[i]);
		for (j = 0; j < THREADS; j++) {
			if (pthread_create(&threads[i][j], NULL, work, &parts[i]))
				return 1;
		}
	}
	for (i = 0; i < 2; i++) {
		for (j = 0; j < THREADS; j++)
			pthread_join(threads[i][j], NULL);
		printf("%s: %d of %d threads had a home, %d jobs left\n", parts[i].name,
		       parts[i].joined, THREADS, parts[i].jobs);
		if (parts[i].cluster)
			cosched_remove(parts[i].cluster);
		cosched_close(parts[i].cluster);
	}
	return 0;
}
