/* SPDX-License-Identifier: GPL-2.0 */
/* The choice of automatic homes, a pure function; see cosched_auto.c. */
#ifndef _KERNEL_CGROUP_COSCHED_AUTO_H
#define _KERNEL_CGROUP_COSCHED_AUTO_H

#include <linux/list.h>
#include <linux/types.h>

/* A set of domains is a u64. On machines with more domains, neighbours count as one. */
#define COSCHED_AUTO_DOMAINS	64

/* A machine as the choice sees it. Loads and capacities: SCHED_CAPACITY_SCALE is one CPU. */
struct cosched_machine {
	unsigned int	nr;			/* domains */
	u32		capacity[COSCHED_AUTO_DOMAINS];
	/* Of tasks without an automatic home; the choice adds that of clusters. */
	u64		load[COSCHED_AUTO_DOMAINS];
	/* The same if none of these tasks is runnable just now, else 0. */
	u64		unseen[COSCHED_AUTO_DOMAINS];
	/* Of batch clusters that are not placed this time; counts for batch clusters only. */
	u64		batch[COSCHED_AUTO_DOMAINS];
	/*
	 * Scratch: the sums; and for each domain the ratio of load to capacity, the
	 * load before batch clusters are placed, the capacity that this leaves to them,
	 * and what the clusters that may have to make room pay for the load of others.
	 */
	u64		all_load;
	u32		all_capacity;
	u32		ratio[COSCHED_AUTO_DOMAINS];
	u64		busy[COSCHED_AUTO_DOMAINS];
	u32		left[COSCHED_AUTO_DOMAINS];
	u64		paid[COSCHED_AUTO_DOMAINS];
	/* Between domains, as node_distance(): 10 is near. */
	u8		distance[COSCHED_AUTO_DOMAINS][COSCHED_AUTO_DOMAINS];
};

/* A cluster with an automatic home. */
struct cosched_auto {
	struct list_head node;
	u64		id;			/* order of clusters of equal size */
	struct cosched_auto *parent;		/* the nearest one above it, or NULL */
	u32		demand;			/* with clusters below it: what its home is for */
	u32		own;			/* without them: what it adds to the load */
	bool		batch;			/* takes what others leave */
	bool		bursts;			/* its tasks wake up together, or it overruns */
	bool		alone;			/* needs all there is; input: at the last look */
	bool		stays;			/* at its home, if allowed: only others look */
	/* Capacity, by domain, of the CPUs that it may use; NULL: all of them. */
	const u32	*room;
	/* How far its memory is, by domain, as (distance - 10) / 10 * 1024; NULL: unknown. */
	const u32	*far;
	u64		home;			/* input: until now, output: from now on; 0: none */
};

void cosched_auto_choose(struct list_head *clusters, struct cosched_machine *m);

#endif /* _KERNEL_CGROUP_COSCHED_AUTO_H */
