/* SPDX-License-Identifier: GPL-2.0 */
/* The choice of automatic homes, a pure function; see cosched_auto.c. */
#ifndef _KERNEL_CGROUP_COSCHED_AUTO_H
#define _KERNEL_CGROUP_COSCHED_AUTO_H

#include <linux/list.h>
#include <linux/types.h>

/* A set of domains is a u64. Machines with more take neighbours for one. */
#define COSCHED_AUTO_DOMAINS	64

/* A machine as the choice sees it. Loads and capacities: SCHED_CAPACITY_SCALE is one CPU. */
struct cosched_machine {
	unsigned int	nr;			/* domains */
	u32		capacity[COSCHED_AUTO_DOMAINS];
	/* Of tasks without automatic home; the choice adds the clusters'. */
	u64		load[COSCHED_AUTO_DOMAINS];
	/* The part of it, all or nothing, of which nobody is runnable just now. */
	u64		unseen[COSCHED_AUTO_DOMAINS];
	/* Of batch clusters that are not to be placed: for those of batch only. */
	u64		batch[COSCHED_AUTO_DOMAINS];
	/*
	 * Scratch: sums, load by capacity, the load before batch was placed and the capacity
	 * that it leaves, and what those pay for others, in each, who may have to make room.
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
	u64		id;			/* orders what is equal */
	struct cosched_auto *parent;		/* which it is below, or NULL */
	u32		demand;			/* with those below it: what its home is for */
	u32		own;			/* without them: what it adds to its home's load */
	bool		batch;			/* takes what others leave */
	bool		bursts;			/* its tasks wake up together */
	bool		alone;			/* needs all there is; did at the look before */
	bool		stays;			/* where it may: others look, it does not */
	/* Where its CPUs are that it may use; NULL: all of them. */
	const u32	*room;
	/* How far its memory is, as (distance - 10) / 10 * 1024; NULL: unknown. */
	const u32	*far;
	u64		home;			/* until now, and then from now on; 0: none */
};

void cosched_auto_choose(struct list_head *clusters, struct cosched_machine *m);

#endif /* _KERNEL_CGROUP_COSCHED_AUTO_H */
