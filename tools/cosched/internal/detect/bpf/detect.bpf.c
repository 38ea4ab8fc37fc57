// SPDX-License-Identifier: GPL-2.0
/*
 * Who uses which lock, who wakes whom, and who faults on which page, of the processes in
 * the map targets.
 *
 * A lock is known by its address: that in its process, or where the memory is shared,
 * by the place in the file or shared memory object behind it, so that one lock is one
 * lock for all processes that map it.  That is looked up when a thread is first seen
 * at an address, not at each use.  A page is known in the same way.
 *
 * An entry of uses, pages or wakes is only written by the thread that it is of, so
 * counting needs no atomic instruction.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "kernel.h"

char _license[] SEC("license") = "GPL";

/* Of include/uapi/linux/futex.h. */
#define FUTEX_WAIT		0
#define FUTEX_WAKE		1
#define FUTEX_REQUEUE		3
#define FUTEX_CMP_REQUEUE	4
#define FUTEX_WAKE_OP		5
#define FUTEX_LOCK_PI		6
#define FUTEX_UNLOCK_PI		7
#define FUTEX_WAIT_BITSET	9
#define FUTEX_WAKE_BITSET	10
#define FUTEX_WAIT_REQUEUE_PI	11
#define FUTEX_CMP_REQUEUE_PI	12
#define FUTEX_LOCK_PI2		13
#define FUTEX_CMD_MASK		(~(128 | 256))	/* without PRIVATE, CLOCK_REALTIME */

/* Of x86-64. */
#define NR_EXIT			60
#define NR_FUTEX		202
#define NR_EXIT_GROUP		231

/* Values of struct target. */
#define TARGET_SELF		1	/* and the children to come */
#define TARGET_CHILDREN		2	/* only those */

/* Values of use.where. */
#define WHERE_UNKNOWN		0	/* the mappings were being changed: ask again */
#define WHERE_PRIVATE		1
#define WHERE_SHARED		2

struct use_key {
	__u32 tgid, tid;
	__u64 addr;
};

struct use {
	__u64 locks;		/* calls of functions that take the lock */
	__u64 waits;		/* for the futex */
	__u64 wakes;		/* of those who wait for it */
	__u64 faults;		/* of the page */
	__u64 inode, offset;	/* where shared */
	__u32 dev, where;
	char comm[16];
};

struct wake_key {
	__u32 waker_tgid, waker, wakee_tgid, wakee;
};

struct wake {
	__u64 wakes;
	char waker_comm[16], wakee_comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* User space sets the sizes of these, and empties them each interval. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct use_key);
	__type(value, struct use);
} uses SEC(".maps");

/* Of its own, so that who maps much memory leaves room for locks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct use_key);
	__type(value, struct use);
} pages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct wake_key);
	__type(value, struct wake);
} wakes SEC(".maps");

/* What is known of a thread from its last fault. */
struct fault {
	__u64 page;		/* where, if only its process has that; else 0 */
	__u64 hints;		/* hinting_faults() before it */
	/* The mapping that it was in, when that was found, and the place of its begin. */
	__u64 start, end, found;
	struct use place;
	bool writable;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault);
} faults SEC(".maps");

/* What found no room. */
__u64 lost_uses, lost_pages, lost_wakes, lost_targets;

static bool target(__u32 tgid)
{
	__u32 *how = bpf_map_lookup_elem(&targets, &tgid);

	return how && *how == TARGET_SELF;
}

struct place {
	__u64 addr;
	struct use *use;
	__u64 start, end;	/* of the mapping */
	bool writable;
};

static long place_of(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	unsigned long flags = BPF_CORE_READ(vma, vm_flags);
	struct place *p = data;
	struct use *u = p->use;
	struct inode *inode;

	p->start = BPF_CORE_READ(vma, vm_start);
	p->end = BPF_CORE_READ(vma, vm_end);
	p->writable = flags & VM_WRITE;
	u->where = WHERE_PRIVATE;
	if (!(flags & VM_SHARED))
		return 0;
	inode = BPF_CORE_READ(vma, vm_file, f_inode);
	if (!inode)
		return 0;
	u->inode = BPF_CORE_READ(inode, i_ino);
	u->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	u->offset = (BPF_CORE_READ(vma, vm_pgoff) << PAGE_SHIFT) + p->addr - p->start;
	u->where = WHERE_SHARED;
	return 0;
}

static void find_place(struct use *u, __u64 addr)
{
	struct place p = { .addr = addr, .use = u };

	bpf_find_vma(bpf_get_current_task_btf(), addr, place_of, &p, 0);
}

static void count(__u64 addr, __u32 locks, __u32 waits, __u32 wakes)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct use_key key = { .tgid = id >> 32, .tid = id, .addr = addr };
	struct use *u = bpf_map_lookup_elem(&uses, &key);
	struct use first = {};

	if (u) {
		u->locks += locks;
		u->waits += waits;
		u->wakes += wakes;
		if (u->where != WHERE_UNKNOWN)
			return;
		/* The map's value cannot be given to the callback. */
		first.where = WHERE_UNKNOWN;
		find_place(&first, addr);
		u->inode = first.inode;
		u->dev = first.dev;
		u->offset = first.offset;
		u->where = first.where;
		return;
	}
	first.locks = locks;
	first.waits = waits;
	first.wakes = wakes;
	bpf_get_current_comm(first.comm, sizeof(first.comm));
	find_place(&first, addr);
	if (bpf_map_update_elem(&uses, &key, &first, BPF_NOEXIST))
		__sync_fetch_and_add(&lost_uses, 1);
}

/*
 * At functions that take a lock, of processes among the targets only.  User space
 * loads it without the attach type of its section where the kernel is older than 6.6.
 */
SEC("uprobe.multi")
int lock(struct pt_regs *regs)
{
	count(regs->di, 1, 0, 0);
	return 0;
}

/*
 * Of all system calls the futex.  A probe of its function alone would be cheaper, but
 * kernels that restrict the tracing of functions allow tracepoints.
 */
SEC("tp_btf/sys_enter")
int BPF_PROG(futex, struct pt_regs *regs, long nr)
{
	if (nr != NR_FUTEX || !target(bpf_get_current_pid_tgid() >> 32))
		return 0;
	switch (regs->si & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
	case FUTEX_WAIT_REQUEUE_PI:
		count(regs->di, 0, 1, 0);
		break;
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
	case FUTEX_WAKE_OP:
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
	case FUTEX_CMP_REQUEUE_PI:
	case FUTEX_UNLOCK_PI:
		count(regs->di, 0, 0, 1);
		break;
	}
	return 0;
}

/*
 * An interrupt wakes on behalf of nobody: only a waker in a system call counts, as a
 * write to a pipe or, through the loopback device, to a socket is one.  (The kernel
 * sets orig_ax to -1 where user code was interrupted.)  Wakeups by futex are counted
 * at its address; who waits for the end of a process shares nothing with it by that.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *wakee)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct wake_key key = {};
	struct wake first = {};
	struct pt_regs *regs;
	struct wake *w;
	long nr;

	if (wakee == waker || !target(waker->tgid) || !target(wakee->tgid))
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(waker);
	nr = BPF_CORE_READ(regs, orig_ax);
	if (nr < 0 || nr == NR_FUTEX || nr == NR_EXIT || nr == NR_EXIT_GROUP)
		return 0;
	key.waker_tgid = waker->tgid;
	key.waker = waker->pid;
	key.wakee_tgid = wakee->tgid;
	key.wakee = wakee->pid;
	w = bpf_map_lookup_elem(&wakes, &key);
	if (w) {
		w->wakes++;
		return 0;
	}
	first.wakes = 1;
	bpf_probe_read_kernel(first.waker_comm, sizeof(first.waker_comm), waker->comm);
	bpf_probe_read_kernel(first.wakee_comm, sizeof(first.wakee_comm), wakee->comm);
	if (bpf_map_update_elem(&wakes, &key, &first, BPF_NOEXIST))
		__sync_fetch_and_add(&lost_wakes, 1);
	return 0;
}

/*
 * Changes with each fault of a thread by which NUMA balancing finds out who uses a page:
 * task_numa_fault() counts them, from 0 again in each pass over the memory.
 */
static __u64 hinting_faults(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->numa_faults_locality))
		return 0;
	return ((__u64)task->numa_scan_seq << 32) +
	       task->numa_faults_locality[0] + task->numa_faults_locality[1];
}

/*
 * Where interrupts are disabled, as they are at a fault, finding a mapping takes one more:
 * microseconds in a virtual machine.  Those who fault often do so in one mapping, so it
 * is believed to be there for a while.
 */
#define BELIEVED_NS	1000000

static void find_mapping(struct fault *f, __u64 addr)
{
	struct use first = {};
	struct place p = { .addr = addr, .use = &first };
	__u64 now = bpf_ktime_get_ns();

	if (addr >= f->start && addr < f->end && now - f->found < BELIEVED_NS)
		return;
	bpf_find_vma(bpf_get_current_task_btf(), addr, place_of, &p, 0);
	first.offset -= addr - p.start;
	f->start = p.start;
	f->end = p.end;
	f->found = now;
	f->place = first;
	f->writable = p.writable;
}

static void count_fault(__u64 page, struct use *place)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct use_key key = { .tgid = id >> 32, .tid = id, .addr = page };
	struct use *u = bpf_map_lookup_elem(&pages, &key);

	if (u) {
		u->faults++;
		return;
	}
	place->faults = 1;
	bpf_get_current_comm(place->comm, sizeof(place->comm));
	if (bpf_map_update_elem(&pages, &key, place, BPF_NOEXIST))
		__sync_fetch_and_add(&lost_pages, 1);
}

/*
 * Each process that uses a page of shared memory faults on it.  On other pages it is the
 * first thread that does, and tells nothing: the page is new, or was somebody else's that
 * gave it back.  But a page that NUMA balancing took away is in use, and whoever uses it
 * next is one of its users.  This is known when the fault has been dealt with, at
 * the thread's next one.
 *
 * Who cannot write to a page changes nothing that others read: so no code, which all share.
 */
static int fault(__u64 addr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 page = addr >> PAGE_SHIFT << PAGE_SHIFT, hints;
	struct use place = {};
	struct fault *f;

	if (!target(task->tgid))
		return 0;
	f = bpf_task_storage_get(&faults, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!f)
		return 0;
	hints = hinting_faults(task);
	if (f->page && f->hints != hints) {
		place.where = WHERE_PRIVATE;
		count_fault(f->page, &place);
	}
	find_mapping(f, page);
	f->page = f->writable && f->place.where == WHERE_PRIVATE ? page : 0;
	f->hints = hints;
	if (f->writable && f->place.where == WHERE_SHARED) {
		place = f->place;
		place.offset += page - f->start;
		count_fault(page, &place);
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(fault_of_user, unsigned long addr)
{
	return fault(addr);
}

/* System calls fault on the memory that they are given. */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(fault_of_kernel, unsigned long addr)
{
	return fault(addr);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, to = child->tgid, how = TARGET_SELF;

	if (from != to && bpf_map_lookup_elem(&targets, &from) &&
	    bpf_map_update_elem(&targets, &to, &how, BPF_ANY))
		__sync_fetch_and_add(&lost_targets, 1);
	return 0;
}
