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

/**
 * enum cosched_auto_reason - Why an automatic home is another one than before
 * @COSCHED_AUTO_SAME: it is not
 * @COSCHED_AUTO_NEW: there was none
 * @COSCHED_AUTO_CPUS: the cluster may not use a domain of it any more
 * @COSCHED_AUTO_YIELDED: it is batch, and others need a domain of it
 * @COSCHED_AUTO_GROWN: the cluster is due more than there is in it
 * @COSCHED_AUTO_BURSTS: its tasks wake up together, and others leave more than it has
 * @COSCHED_AUTO_SHRUNK: the cluster is due less than there is in it
 * @COSCHED_AUTO_LOAD: another costs less by the margin, most of all for the load of others
 * @COSCHED_AUTO_DISTANCE: most of all as its domains are nearer to each other
 * @COSCHED_AUTO_MEMORY: most of all as memory is nearer
 * @COSCHED_AUTO_SIZE: most of all as it has more of what is due, or fewer domains
 * @COSCHED_AUTO_EXCHANGE: smaller clusters made room for it
 * @COSCHED_AUTO_ROOM: it made room for a larger one, and gains by that
 * @COSCHED_AUTO_REASONS: how many there are
 *
 * A home that is smaller because a domain of it costs more than it saves has one of the reasons of
 * a move, as it gains by the margin.
 */
enum cosched_auto_reason {
	COSCHED_AUTO_SAME,
	COSCHED_AUTO_NEW,
	COSCHED_AUTO_CPUS,
	COSCHED_AUTO_YIELDED,
	COSCHED_AUTO_GROWN,
	COSCHED_AUTO_BURSTS,
	COSCHED_AUTO_SHRUNK,
	/* In the order of enum auto_part. */
	COSCHED_AUTO_LOAD,
	COSCHED_AUTO_DISTANCE,
	COSCHED_AUTO_MEMORY,
	COSCHED_AUTO_SIZE,
	COSCHED_AUTO_EXCHANGE,
	COSCHED_AUTO_ROOM,
	COSCHED_AUTO_REASONS
};

/* For people: "new", "cpus" and so on. */
extern const char *const cosched_auto_reasons[COSCHED_AUTO_REASONS];

/**
 * struct cosched_auto_change - A change of an automatic home
 * @reason: why; without one the rest is 0
 * @before: what the former home would cost now, as large as it would be; 0: there is none that the
 *	cluster may use
 * @after: what the new home costs
 *
 * Costs are in 1024ths of a runnable task on each CPU, see "Model" in cosched_auto.c. For a move
 * they are those that were compared, without bursts. A home that grows or shrinks by what is due
 * may cost more afterwards. So may one after an exchange, as that gains in sum.
 */
struct cosched_auto_change {
	enum cosched_auto_reason reason;
	u32		before;
	u32		after;
};

/* A cluster with an automatic home. */
struct cosched_auto {
	struct list_head node;
	u64		id;			/* order of clusters of equal size */
	struct cosched_auto *parent;		/* the nearest one above it, or NULL */
	/* Scratch: one that is directly below it, and another one below .parent. */
	struct cosched_auto *below, *beside;
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
	struct cosched_auto_change change;	/* output: if it is another one, why */
};

void cosched_auto_choose(struct list_head *clusters, struct cosched_machine *m);

#endif /* _KERNEL_CGROUP_COSCHED_AUTO_H */
