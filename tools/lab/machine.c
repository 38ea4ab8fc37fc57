// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * machine: a QEMU plugin that makes memory accesses take time.
 *
 * Under TCG an access to memory takes as long as an addition. This plugin models
 * the caches of a machine and lets each access take what it would take there, by
 * advancing the clock of the vCPU that makes it (QEMU with parallel virtual time,
 * patches/qemu-10.0). What programs lose by sharing data across LLC domains, and
 * gain by sharing a cache, then shows in the guest's own clock.
 *
 * The model
 * =========
 *
 * Each core has an L1 and an L2 data cache, which its SMT threads share. Cores are
 * grouped into LLC domains and those into NUMA nodes. A directory with one entry
 * for each line of memory has the cores that hold it, the one that holds it
 * modified, and the LLCs that hold it. An access takes, in this order:
 *
 *   L1 hit, of a line to read or that is modified here	nothing: it is in the CPI
 *   L2 hit, likewise				l2
 *   the first write to a line that no other core holds	l2
 *   modified in another core of the same LLC	peer
 *   a write to a line that cores of the same LLC share	peer
 *   modified in, or for a write held by, another LLC	transfer, by nodes
 *   held by the own LLC				llc
 *   held by another LLC only			transfer, by nodes
 *   memory					memory, by nodes
 *
 * and an atomic instruction takes "atomic" more. Who asks for a modified line while
 * it is on its way to another core waits until it is there. Caches are
 * set-associative and replaced by age, L1 by the order in which lines came. L1 is
 * contained in L2; a line that leaves L2 leaves L1.
 *
 * A line's set is chosen by its address. Which lines fall into one set of L1, and
 * drive one another out, is then a matter of where a build's linker and allocators
 * put things, by which two builds differ more than by what they do. With "scatter"
 * it is drawn for each line from a number instead: another number, another layout,
 * and with a few of them the mean of all layouts (random placement: Kosmidis et al.,
 * A Cache Design for Probabilistically Analysable Real-Time Systems, DATE 2013; why:
 * Mytkowicz et al., Producing Wrong Data Without Doing Anything Obviously Wrong!,
 * ASPLOS 2009).
 *
 * Before each L1 there is a filter, a direct-mapped table of lines that are in it:
 * most accesses are found there and nothing else is looked at.
 *
 * Left out: instruction fetches, page walks, prefetchers, overlap of misses, limits
 * of bandwidth. An instruction takes QEMU's constant time besides.
 *
 * The guest speaks to the plugin by no-operation instructions
 *
 *   0f 1f 84 00 CC 5a 05 c0	nopl 0xc0055aCC(%rax,%rax,1)
 *
 * with CC: 0 switches the model off and 1 on; 2 begins a region, in which
 * everything is counted, and 3 ends it. Without them a region is the whole run.
 * 4 says that the thread which executes it belongs to the cluster in RAX.
 *
 * Counting by cluster
 * ===================
 *
 * A thread is known by its address space and its thread pointer, CR3 and FS base.
 * They are looked up where the kernel returns to user space: from then on, until
 * another thread returns or the CPU idles, all that the CPU does counts for the
 * thread's cluster. So system calls count for the thread that makes them, also
 * what they do after it was switched out and before the next one returns. What
 * interrupts do while the CPU would idle, and threads of no cluster, is the rest.
 * A thread keeps its cluster until it says another; one that is made later in the
 * same address space, with the same thread pointer, inherits it.
 *
 * All vCPUs run in one thread: there are no locks.
 */
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MAX_CPUS	64
#define MAX_LLCS	64
#define MAX_NODES	64
#define MAX_CLUSTERS	64
#define LINE_SHIFT	6
#define FILTER_LINES	512	/* a power of two */

enum command { MODEL_OFF, MODEL_ON, REGION_BEGIN, REGION_END, JOIN_CLUSTER };

/* What happened; the names in the output are in event_names. */
enum event {
	ACCESSES,
	L2_HITS,
	LLC_HITS,
	PEER_HITS,		/* from another core of the same LLC */
	TRANSFERS_NEAR,		/* from another LLC of the same node */
	TRANSFERS_FAR,		/* of another node */
	MEMORY_NEAR,
	MEMORY_FAR,
	INVALIDATIONS,		/* of other cores' copies */
	ATOMICS,
	STALL_NS,
	IDLE_NS,
	NR_EVENTS,
};

static const char *const event_names[NR_EVENTS] = {
	"accesses", "l2_hits", "llc_hits", "peer_hits", "transfers_near", "transfers_far",
	"memory_near", "memory_far", "invalidations", "atomics", "stall_ns",
	"idle_ns",
};

struct cache {
	uint32_t nr_sets;	/* a power of two */
	uint32_t scatter;	/* draws the set of each line; 0: by address */
	uint32_t ways;
	uint32_t *line;		/* line number plus 1, of each set the youngest first */
};

struct core {
	int llc;
	uint32_t filter[FILTER_LINES];	/* line number plus 1, shifted by 1; lowest bit: writable */
	struct cache l1, l2;
};

struct llc {
	int node;
	struct cache cache;
};

/* A line of memory. */
struct line {
	uint64_t sharers;	/* cores */
	uint64_t llcs;
	uint64_t until : 57;	/* on its way to the owner, ns */
	uint64_t owner : 7;	/* the core that has it modified, plus 1 */
};

/* In a scoreboard: counted by code that QEMU generates. */
struct vcpu {
	uint64_t insns;
	uint64_t pauses;
};

static const void *control;
static struct qemu_plugin_scoreboard *board;
static const char *out_file;
static bool model_on;
static bool ever_in_region;

static int nr_cpus, nr_cores, nr_llcs, nr_nodes;
static int core_of[MAX_CPUS];
static struct core cores[MAX_CPUS];
static struct llc llcs[MAX_LLCS];
static uint32_t l1_size, l1_ways, l1_scatter, l2_size, l2_ways, llc_size, llc_ways;
static uint32_t cost_l2, cost_llc, cost_peer, cost_atomic;
static uint32_t cost_transfer[MAX_NODES][MAX_NODES], cost_memory[MAX_NODES][MAX_NODES];

static struct line *lines;
static uint64_t nr_lines, node_lines;
static uint64_t low_memory;	/* bytes below the hole that ends at 4 GiB */

/* What was counted: of a vCPU, or of a cluster. */
struct count {
	uint64_t events[NR_EVENTS];
	struct vcpu vcpu;
};

static uint64_t events[MAX_CPUS][NR_EVENTS];
static struct count at_begin[MAX_CPUS];		/* of the region */
static struct count region[MAX_CPUS];
static int64_t region_ns, region_begin_ns, last_ns;
static int in_region;

static int64_t idle_since[MAX_CPUS];		/* -1: not idle */

static GHashTable *threads;			/* struct thread to its cluster plus 1 */
static int cluster_on[MAX_CPUS];		/* the cluster whose thread runs, plus 1 */
static struct count at_switch[MAX_CPUS];	/* when it began to */
static struct count clusters[MAX_CLUSTERS];
static int nr_clusters;
static struct qemu_plugin_register *reg_rax, *reg_cr3, *reg_fs_base, *reg_gs_base, *reg_k_gs_base;

/*
 * Caches
 */

static void cache_init(struct cache *c, uint32_t size, uint32_t ways)
{
	c->ways = ways;
	c->nr_sets = size / ways >> LINE_SHIFT;
	c->line = calloc((size_t)c->nr_sets * ways, sizeof(*c->line));
	if (!c->line)
		abort();
}

static inline uint32_t cache_index(const struct cache *c, uint32_t nr)
{
	uint64_t h = nr;

	if (c->scatter) {	/* splitmix64's mixing */
		h = (h << 32 | c->scatter) * 0x9e3779b97f4a7c15;
		h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
		h = (h ^ h >> 27) * 0x94d049bb133111eb;
		h ^= h >> 31;
	}
	return h & (c->nr_sets - 1);
}

static inline uint32_t *cache_set(struct cache *c, uint32_t nr)
{
	return c->line + (size_t)cache_index(c, nr) * c->ways;
}

/* Is the line there? Makes it the youngest. */
static inline bool cache_lookup(struct cache *c, uint32_t nr)
{
	uint32_t *set = cache_set(c, nr), i;

	for (i = 0; i < c->ways; i++) {
		if (set[i] != nr + 1)
			continue;
		memmove(set + 1, set, i * sizeof(*set));
		set[0] = nr + 1;
		return true;
	}
	return false;
}

/* Returns the line number plus 1 of the line that had to go, or 0. */
static inline uint32_t cache_insert(struct cache *c, uint32_t nr)
{
	uint32_t *set = cache_set(c, nr), gone = set[c->ways - 1];

	memmove(set + 1, set, (c->ways - 1) * sizeof(*set));
	set[0] = nr + 1;
	return gone;
}

static inline uint32_t *filter_slot(int core, uint32_t nr)
{
	return &cores[core].filter[nr & (FILTER_LINES - 1)];
}

static inline void filter_forget(int core, uint32_t nr)
{
	uint32_t *slot = filter_slot(core, nr);

	if (*slot >> 1 == nr + 1)
		*slot = 0;
}

static inline void filter_make_readonly(int core, uint32_t nr)
{
	uint32_t *slot = filter_slot(core, nr);

	if (*slot >> 1 == nr + 1)
		*slot &= ~1u;
}

static uint32_t transfer(uint64_t *ev, int node, uint64_t from)
{
	uint32_t least = UINT32_MAX;
	bool far = true;

	/* The nearest of the LLCs that have it. */
	for (; from; from &= from - 1) {
		int other = llcs[__builtin_ctzll(from)].node;

		if (cost_transfer[node][other] < least) {
			least = cost_transfer[node][other];
			far = other != node;
		}
	}
	ev[far ? TRANSFERS_FAR : TRANSFERS_NEAR]++;
	return least;
}

/*
 * Clocks of vCPUs are up to a quantum apart. What lies farther ahead than this way
 * takes is of a vCPU that has run ahead, and the line may not have left by then.
 */
static uint32_t wait_for_line(const struct line *l, uint32_t cost)
{
	int64_t left = (int64_t)l->until - qemu_plugin_vcpu_time();

	return left > 0 && left <= cost ? left : 0;
}

/* An access of a core that its filter does not have, or writes what is not its own alone. */
static uint32_t access_line(uint64_t *ev, int core, uint32_t nr, bool store)
{
	struct core *c = &cores[core];
	struct line *l = &lines[nr];
	uint64_t me = 1ull << core, mine = 1ull << c->llc, others = l->sharers & ~me;
	uint64_t elsewhere = l->llcs & ~mine;
	int node = llcs[c->llc].node, owner = (int)l->owner - 1;
	bool moves = false;
	/* What others took away is still in the caches' lists: the directory decides. */
	bool in_l2 = (l->sharers & me) && cache_lookup(&c->l2, nr);
	bool in_l1 = cache_lookup(&c->l1, nr);
	uint32_t cost, gone;

	if (in_l2 && (!store || owner == core)) {
		ev[L2_HITS] += !in_l1;
		cost = in_l1 ? 0 : cost_l2;
	} else if (owner >= 0 && owner != core) {
		if (cores[owner].llc == c->llc) {
			ev[PEER_HITS]++;
			cost = cost_peer;
		} else {
			cost = transfer(ev, node, 1ull << cores[owner].llc);
		}
		moves = true;
		if (!store) {
			l->owner = 0;
			filter_make_readonly(owner, nr);
		}
	} else if (store && elsewhere) {
		cost = transfer(ev, node, elsewhere);
	} else if (in_l2) {		/* a write to what is shared within the LLC */
		ev[others ? PEER_HITS : L2_HITS]++;
		cost = others ? cost_peer : cost_l2;
	} else if ((l->llcs & mine) && cache_lookup(&llcs[c->llc].cache, nr)) {
		ev[LLC_HITS]++;
		cost = cost_llc;
	} else if (elsewhere) {
		cost = transfer(ev, node, elsewhere);
	} else {
		int home = nr / node_lines;

		ev[home == node ? MEMORY_NEAR : MEMORY_FAR]++;
		cost = cost_memory[node][home];
	}

	if (moves)
		cost += wait_for_line(l, cost);
	if (store) {
		for (; others; others &= others - 1) {
			filter_forget(__builtin_ctzll(others), nr);
			ev[INVALIDATIONS]++;
		}
		l->sharers = me;
		l->owner = core + 1;
		l->llcs = mine;
		if (moves)
			l->until = qemu_plugin_vcpu_time() + cost;
	}
	if (!in_l2 && !cache_lookup(&c->l2, nr)) {
		gone = cache_insert(&c->l2, nr);
		if (gone) {
			struct line *g = &lines[gone - 1];

			g->sharers &= ~me;
			if (g->owner == core + 1)
				g->owner = 0;
			filter_forget(core, gone - 1);
		}
	}
	l->sharers |= me;
	if (!cache_lookup(&llcs[c->llc].cache, nr)) {
		gone = cache_insert(&llcs[c->llc].cache, nr);
		if (gone)
			lines[gone - 1].llcs &= ~mine;
	}
	l->llcs |= mine;
	if (!in_l1) {
		gone = cache_insert(&c->l1, nr);
		if (gone)
			filter_forget(core, gone - 1);
	}
	*filter_slot(core, nr) = (nr + 1) << 1 | ((int)l->owner == core + 1);
	return cost;
}

/*
 * Counting by line: whose data the caches lose
 */

struct line_count {
	uint32_t nr;
	uint64_t vaddr;		/* of the last access; lines have more than one */
	uint64_t events[NR_EVENTS];
};

static GHashTable *line_counts;		/* by line number; NULL: nobody wants them */
static uint32_t nr_lines_wanted;
static uint64_t cpu_data[MAX_CPUS];	/* where the kernel's GS points to; 0: not seen yet */

static uint32_t access_and_count(uint64_t *ev, int core, uint32_t nr, bool store, uint64_t vaddr)
{
	struct line_count *lc = g_hash_table_lookup(line_counts, GUINT_TO_POINTER(nr));
	uint64_t before[NR_EVENTS];
	uint32_t cost;
	int e;

	if (!lc) {
		lc = g_new0(struct line_count, 1);
		lc->nr = nr;
		g_hash_table_insert(line_counts, GUINT_TO_POINTER(nr), lc);
	}
	memcpy(before, ev, sizeof(before));
	cost = access_line(ev, core, nr, store);
	for (e = 0; e < NR_EVENTS; e++)
		lc->events[e] += ev[e] - before[e];
	/* Only those that had to be looked for: hits of L1 are not seen here one by one. */
	lc->events[ACCESSES]++;
	lc->events[STALL_NS] += cost;
	lc->vaddr = vaddr;
	return cost;
}

static gint by_stall(gconstpointer a, gconstpointer b)
{
	const struct line_count *x = a, *y = b;

	if (x->events[STALL_NS] != y->events[STALL_NS])
		return x->events[STALL_NS] < y->events[STALL_NS] ? 1 : -1;
	return x->nr < y->nr ? -1 : x->nr > y->nr;
}

static void stall(unsigned int cpu, uint32_t ns)
{
	events[cpu][STALL_NS] += ns;
	qemu_plugin_vcpu_stall(control, ns);
}

static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *atomic)
{
	struct qemu_plugin_hwaddr *hw = qemu_plugin_get_hwaddr(info, vaddr);
	/* An atomic instruction asks for the line to write to it at once. */
	bool store = atomic || qemu_plugin_mem_is_store(info);
	uint64_t addr, *ev = events[cpu];
	uint32_t nr, slot, cost;
	int core;

	if (!hw || qemu_plugin_hwaddr_is_io(hw))
		return;
	addr = qemu_plugin_hwaddr_phys_addr(hw);
	if (addr >= low_memory) {
		if (addr < 4ull << 30)
			return;
		addr -= (4ull << 30) - low_memory;
	}
	nr = addr >> LINE_SHIFT;
	if (nr >= nr_lines)
		return;
	core = core_of[cpu];
	ev[ACCESSES]++;
	slot = *filter_slot(core, nr);
	if (slot >> 1 == nr + 1 && (slot & 1) >= store)
		return;
	if (line_counts && (in_region || !ever_in_region))
		cost = access_and_count(ev, core, nr, store, vaddr);
	else
		cost = access_line(ev, core, nr, store);
	if (cost)
		stall(cpu, cost);
}

static void on_atomic(unsigned int cpu, void *unused)
{
	(void)unused;
	events[cpu][ATOMICS]++;
	if (cost_atomic)
		stall(cpu, cost_atomic);
}

/*
 * What the guest says
 */

static struct count count_now(int cpu)
{
	struct count c;

	memcpy(c.events, events[cpu], sizeof(c.events));
	c.vcpu = *(struct vcpu *)qemu_plugin_scoreboard_find(board, cpu);
	return c;
}

static void add_since(struct count *to, const struct count *then, const struct count *now)
{
	int e;

	for (e = 0; e < NR_EVENTS; e++)
		to->events[e] += now->events[e] - then->events[e];
	to->vcpu.insns += now->vcpu.insns - then->vcpu.insns;
	to->vcpu.pauses += now->vcpu.pauses - then->vcpu.pauses;
}

/* Clocks of vCPUs are up to a quantum apart: @now may be before it became idle. */
static void count_idle(int cpu, int64_t now)
{
	if (idle_since[cpu] < 0 || now <= idle_since[cpu])
		return;
	events[cpu][IDLE_NS] += now - idle_since[cpu];
	idle_since[cpu] = now;
}

/* From now on this vCPU works for a cluster, or with 0 for none. */
static void switch_cluster(int cpu, int cluster)
{
	struct count now;

	if (cluster == cluster_on[cpu])
		return;
	now = count_now(cpu);
	if (in_region && cluster_on[cpu])
		add_since(&clusters[cluster_on[cpu] - 1], &at_switch[cpu], &now);
	at_switch[cpu] = now;
	cluster_on[cpu] = cluster;
}

static void region_begin(int64_t now)
{
	int i;

	if (in_region++)
		return;
	/* Without regions it would be the whole run. */
	if (line_counts && !ever_in_region)
		g_hash_table_remove_all(line_counts);
	for (i = 0; i < nr_cpus; i++) {
		count_idle(i, now);
		at_switch[i] = count_now(i);
		at_begin[i] = at_switch[i];
	}
	region_begin_ns = now;
	ever_in_region = true;
}

static void region_end(int64_t now)
{
	int i;

	if (!in_region || --in_region)
		return;
	for (i = 0; i < nr_cpus; i++) {
		struct count end;

		count_idle(i, now);
		end = count_now(i);
		add_since(&region[i], &at_begin[i], &end);
		if (cluster_on[i])
			add_since(&clusters[cluster_on[i] - 1], &at_switch[i], &end);
		at_switch[i] = end;
	}
	region_ns += now - region_begin_ns;
}

static void on_idle(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id;
	switch_cluster(cpu, 0);
	idle_since[cpu] = qemu_plugin_vcpu_time();
}

static void on_resume(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id;
	count_idle(cpu, qemu_plugin_vcpu_time());
	idle_since[cpu] = -1;
}

/* A thread, as the processor sees it. */
struct thread {
	uint64_t space, pointer;
};

static guint thread_hash(gconstpointer p)
{
	const struct thread *t = p;

	return (t->space >> 12) * 31 + (t->pointer >> 6);
}

static gboolean thread_equal(gconstpointer a, gconstpointer b)
{
	return !memcmp(a, b, sizeof(struct thread));
}

static uint64_t read_register(struct qemu_plugin_register *reg)
{
	static GByteArray *bytes;
	uint64_t value = 0;

	if (!bytes)
		bytes = g_byte_array_new();
	g_byte_array_set_size(bytes, 0);
	if (qemu_plugin_read_register(reg, bytes) == sizeof(value))
		memcpy(&value, bytes->data, sizeof(value));
	return value;
}

/* Without what says nothing of the address space: PCID, and the user's half of two tables. */
static struct thread thread_now(void)
{
	return (struct thread) {
		.space = read_register(reg_cr3) & 0xfffffffffe000ull,
		.pointer = read_register(reg_fs_base),
	};
}

/* One of both is the user's, which is not in the upper half of addresses. */
static void note_cpu_data(unsigned int cpu)
{
	uint64_t kernel = read_register(reg_k_gs_base);

	if (kernel >> 63 == 0)
		kernel = read_register(reg_gs_base);
	if (kernel >> 63)
		cpu_data[cpu] = kernel;
}

static void on_return(unsigned int cpu, void *unused)
{
	struct thread t;

	(void)unused;
	/* Each time: it is elsewhere while the kernel boots. */
	if (line_counts && reg_gs_base && reg_k_gs_base)
		note_cpu_data(cpu);
	if (!nr_clusters)
		return;
	t = thread_now();
	switch_cluster(cpu, GPOINTER_TO_INT(g_hash_table_lookup(threads, &t)));
}

static void join_cluster(unsigned int cpu, uint64_t nr)
{
	struct thread *t;

	/* Said to a machine with fewer: it is not a cluster for us. */
	if (nr >= MAX_CLUSTERS || !reg_rax || !reg_cr3 || !reg_fs_base)
		return;
	t = g_new(struct thread, 1);
	*t = thread_now();
	if ((int)nr >= nr_clusters)
		nr_clusters = nr + 1;
	g_hash_table_replace(threads, t, GINT_TO_POINTER((int)nr + 1));
	switch_cluster(cpu, nr + 1);
}

static void on_new_vcpu(qemu_plugin_id_t id, unsigned int cpu)
{
	static const struct {
		const char *name;
		struct qemu_plugin_register **to;
	} wanted[] = {
		{ "rax", &reg_rax }, { "cr3", &reg_cr3 }, { "fs_base", &reg_fs_base },
		{ "gs_base", &reg_gs_base }, { "k_gs_base", &reg_k_gs_base },
	};
	GArray *all = qemu_plugin_get_registers();
	size_t k;
	guint i;

	(void)id;
	(void)cpu;
	for (i = 0; i < all->len; i++) {
		qemu_plugin_reg_descriptor *d = &g_array_index(all, qemu_plugin_reg_descriptor, i);

		for (k = 0; k < G_N_ELEMENTS(wanted); k++)
			if (!strcmp(d->name, wanted[k].name))
				*wanted[k].to = d->handle;
	}
	g_array_free(all, TRUE);
}

static qemu_plugin_id_t plugin;
static void install_callbacks(qemu_plugin_id_t id);

static void on_command(unsigned int cpu, void *what)
{
	int64_t now = qemu_plugin_vcpu_time();
	bool on = model_on;

	if (now > last_ns)
		last_ns = now;
	switch ((enum command)(uintptr_t)what) {
	case MODEL_OFF:
		on = false;
		break;
	case MODEL_ON:
		on = true;
		break;
	case REGION_BEGIN:
		region_begin(now);
		break;
	case REGION_END:
		region_end(now);
		break;
	case JOIN_CLUSTER:
		join_cluster(cpu, read_register(reg_rax));
		break;
	}
	if (on == model_on)
		return;
	model_on = on;
	/* Code without callbacks is several times faster: translate it all again. */
	qemu_plugin_reset(plugin, install_callbacks);
}

static const uint8_t command_bytes[] = { 0x0f, 0x1f, 0x84, 0x00, 0, 0x5a, 0x05, 0xc0 };

static int find_command(const uint8_t *b, size_t n)
{
	if (n != sizeof(command_bytes) || memcmp(b, command_bytes, 4) ||
	    memcmp(b + 5, command_bytes + 5, 3) || b[4] > JOIN_CLUSTER)
		return -1;
	return b[4];
}

/* SYSRET, SYSEXIT or IRET: on to user space, or back into the kernel, which is all the same. */
static bool is_return(const uint8_t *b, size_t n)
{
	if (n > 1 && (b[0] & 0xf0) == 0x40) {		/* REX */
		b++;
		n--;
	}
	return (n == 1 && b[0] == 0xcf) ||
	       (n == 2 && b[0] == 0x0f && (b[1] == 0x07 || b[1] == 0x35));
}

/* LOCK, or XCHG with memory, which is the same. */
static bool is_atomic(const uint8_t *b, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		switch (b[i]) {
		case 0xf0:
			return true;
		case 0x66: case 0xf2: case 0xf3: case 0x2e: case 0x36: case 0x3e: case 0x26:
		case 0x64: case 0x65:
		case 0x40 ... 0x4f:
			continue;
		case 0x86: case 0x87:
			return i + 1 < n && b[i + 1] < 0xc0;
		default:
			return false;
		}
	}
	return false;
}

static void count_insn(struct qemu_plugin_insn *insn, qemu_plugin_u64 in)
{
	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
							    in, 1);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	qemu_plugin_u64 insns = qemu_plugin_scoreboard_u64_in_struct(board, struct vcpu, insns);
	qemu_plugin_u64 pauses = qemu_plugin_scoreboard_u64_in_struct(board, struct vcpu, pauses);
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t b[16];
		size_t len = qemu_plugin_insn_data(insn, b, sizeof(b));
		int command = find_command(b, len);
		bool atomic;

		/* One by one, as a fault may end a block in its midst, and a command a region. */
		count_insn(insn, insns);
		if (command >= 0)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_command,
							       QEMU_PLUGIN_CB_R_REGS,
							       (void *)(uintptr_t)command);
		if (len == 2 && b[0] == 0xf3 && b[1] == 0x90)
			count_insn(insn, pauses);
		if (!model_on)
			continue;
		if (is_return(b, len))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_return,
							       QEMU_PLUGIN_CB_R_REGS, NULL);
		atomic = is_atomic(b, len);
		qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, (void *)(uintptr_t)atomic);
		if (atomic)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_atomic,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
}

/*
 * Results
 */

static void print_events(FILE *f, const uint64_t *of)
{
	int e;

	for (e = 0; e < NR_EVENTS; e++)
		fprintf(f, ", \"%s\": %" PRIu64, event_names[e], of[e]);
	fprintf(f, "}");
}

static void print_count(FILE *f, const struct count *c)
{
	fprintf(f, "{\"insns\": %" PRIu64 ", \"pauses\": %" PRIu64, c->vcpu.insns, c->vcpu.pauses);
	print_events(f, c->events);
}

/* Those that took most time; "set" is the one of L1. */
static void print_lines(FILE *f)
{
	GList *all = g_list_sort(g_hash_table_get_values(line_counts), by_stall), *at;
	uint32_t n = 0;
	int i;

	fprintf(f, ",\n \"cpu_data\": [");
	for (i = 0; i < nr_cpus; i++)
		fprintf(f, "%s\"0x%" PRIx64 "\"", i ? ", " : "", cpu_data[i]);
	fprintf(f, "],\n \"lines\": [");
	for (at = all; at && n < nr_lines_wanted; at = at->next) {
		const struct line_count *lc = at->data;

		fprintf(f, "%s\n  {\"address\": \"0x%" PRIx64 "\"", n++ ? "," : "", lc->vaddr);
		fprintf(f, ", \"line\": %" PRIu32 ", \"set\": %" PRIu32, lc->nr,
			cache_index(&cores[0].l1, lc->nr));
		print_events(f, lc->events);
	}
	fprintf(f, " ]");
	g_list_free(all);
}

static void print_counts(FILE *f, const char *name, const struct count *c, int n)
{
	int i;

	fprintf(f, ",\n \"%s\": [", name);
	for (i = 0; i < n; i++) {
		fprintf(f, i ? ",\n  " : "\n  ");
		print_count(f, &c[i]);
	}
	fprintf(f, " ]");
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *unused)
{
	static const struct count none;
	struct count all = {};
	FILE *f = stderr;
	int i;

	(void)id;
	(void)unused;
	/* QEMU gives up before the machine exists, for example because there is no such kernel. */
	if (qemu_plugin_num_vcpus() < nr_cpus)
		return;
	if (!ever_in_region) {
		region_begin_ns = 0;
		in_region = 1;
	}
	/* A region that nobody ended ends with the last that was heard of time. */
	in_region = !!in_region;
	region_end(last_ns);

	if (out_file) {
		f = fopen(out_file, "w");
		if (!f) {
			perror(out_file);
			return;
		}
	}
	for (i = 0; i < nr_cpus; i++)
		add_since(&all, &none, &region[i]);
	fprintf(f, "{\"region_ns\": %" PRId64 ",\n \"total\": ", region_ns);
	print_count(f, &all);
	print_counts(f, "vcpus", region, nr_cpus);
	print_counts(f, "clusters", clusters, nr_clusters);
	if (line_counts)
		print_lines(f);
	fprintf(f, "}\n");
	if (out_file)
		fclose(f);
}

/* A reset of the plugin takes all of them away. */
static void install_callbacks(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_init_cb(id, on_new_vcpu);
	qemu_plugin_register_vcpu_idle_cb(id, on_idle);
	qemu_plugin_register_vcpu_resume_cb(id, on_resume);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
}

/*
 * The description: lines of a key and numbers, made by `coslab` from models/
 */

static int bad(const char *what, const char *why)
{
	fprintf(stderr, "machine: %s: %s\n", what, why);
	return -1;
}

static int read_numbers(char *text, uint64_t *to, int max)
{
	int n = 0;
	char *word, *end, *save = NULL;

	for (word = strtok_r(text, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
		if (n == max)
			return -1;
		to[n++] = strtoull(word, &end, 0);
		if (*end)
			return -1;
	}
	return n;
}

/* What each of a list belongs to, and of how many; false if there cannot be so many. */
static bool members(int *of, const uint64_t *v, int n, int *nr, int max)
{
	int i;

	for (i = 0; i < n; i++) {
		if (v[i] >= (uint64_t)max)
			return false;
		of[i] = v[i];
		if (of[i] >= *nr)
			*nr = of[i] + 1;
	}
	return true;
}

static int read_description(const char *file)
{
	static const struct {
		const char *key;
		uint32_t *to;
	} single[] = {
		{ "cost.l2", &cost_l2 }, { "cost.llc", &cost_llc },
		{ "cost.peer", &cost_peer }, { "cost.atomic", &cost_atomic },
		{ "scatter.l1", &l1_scatter },
	};
	char text[4096], *rest;
	uint64_t v[MAX_CPUS + 2];
	FILE *f = fopen(file, "r");
	int i, n, of[MAX_CPUS];
	bool fits = true;
	size_t k;

	if (!f)
		return bad(file, "cannot be opened");
	while (fgets(text, sizeof(text), f)) {
		rest = strchr(text, ' ');
		if (!rest)
			continue;
		*rest++ = '\0';
		n = read_numbers(rest, v, MAX_CPUS + 2);
		if (n < 1) {
			fclose(f);
			return bad(text, "not a list of numbers, or too long");
		}
		if (!strcmp(text, "core") && n <= MAX_CPUS) {
			nr_cpus = n;
			fits = members(core_of, v, n, &nr_cores, MAX_CPUS);
		} else if (!strcmp(text, "llc") && n <= MAX_CPUS) {
			fits = members(of, v, n, &nr_llcs, MAX_LLCS);
			for (i = 0; i < n; i++)
				cores[i].llc = of[i];
		} else if (!strcmp(text, "node") && n <= MAX_LLCS) {
			fits = members(of, v, n, &nr_nodes, MAX_NODES);
			for (i = 0; i < n; i++)
				llcs[i].node = of[i];
		} else if (!strcmp(text, "memory") && n == 2) {
			nr_lines = v[0] >> LINE_SHIFT;
			low_memory = v[1];
		} else if (!strcmp(text, "size.l1") && n == 2) {
			l1_size = v[0];
			l1_ways = v[1];
		} else if (!strcmp(text, "size.l2") && n == 2) {
			l2_size = v[0];
			l2_ways = v[1];
		} else if (!strcmp(text, "size.llc") && n == 2) {
			llc_size = v[0];
			llc_ways = v[1];
		} else if (!strcmp(text, "cost.nodes") && n == 4 && v[0] < MAX_NODES &&
			   v[1] < MAX_NODES) {
			cost_transfer[v[0]][v[1]] = v[2];
			cost_memory[v[0]][v[1]] = v[3];
		} else {
			for (k = 0; k < G_N_ELEMENTS(single); k++)
				if (!strcmp(text, single[k].key))
					break;
			if (k == G_N_ELEMENTS(single)) {
				fclose(f);
				return bad(text, "unknown, or the wrong number of numbers");
			}
			*single[k].to = v[0];
		}
		if (!fits) {
			fclose(f);
			return bad(text, "a number is too large");
		}
	}
	fclose(f);
	return 0;
}

static bool power_of_two(uint32_t v)
{
	return v && !(v & (v - 1));
}

/* Large and touched at random: huge pages make the model a third faster. */
static void *huge_alloc(size_t size)
{
	const size_t huge = 2 << 20;
	void *p = mmap(NULL, size + huge, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	p = (void *)(((uintptr_t)p + huge - 1) & ~(huge - 1));
	madvise(p, size, MADV_HUGEPAGE);
	return p;
}

static int make_machine(const qemu_info_t *info)
{
	int i;

	if (nr_cpus != info->system.max_vcpus)
		return bad("core", "the guest has another number of CPUs");
	if (!l1_ways || !l2_ways || !llc_ways || !power_of_two(l1_size / l1_ways >> LINE_SHIFT) ||
	    !power_of_two(l2_size / l2_ways >> LINE_SHIFT) ||
	    !power_of_two(llc_size / llc_ways >> LINE_SHIFT))
		return bad("size", "caches need a power of two of sets");
	if (!nr_lines || nr_lines >= 1u << 31 || nr_nodes < 1)
		return bad("memory", "missing, or more than 128 GiB");
	node_lines = (nr_lines + nr_nodes - 1) / nr_nodes;
	lines = huge_alloc(nr_lines * sizeof(*lines));
	if (!lines)
		return bad("memory", "no address space for the directory");
	for (i = 0; i < nr_cores; i++) {
		cache_init(&cores[i].l1, l1_size, l1_ways);
		cores[i].l1.scatter = l1_scatter;
		cache_init(&cores[i].l2, l2_size, l2_ways);
	}
	for (i = 0; i < nr_llcs; i++)
		cache_init(&llcs[i].cache, llc_size, llc_ways);
	return 0;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	const char *description = NULL;
	int i;

	for (i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			return bad(argv[i], "NAME=VALUE expected");
		*value++ = '\0';
		if (!strcmp(argv[i], "model"))
			description = strdup(value);
		else if (!strcmp(argv[i], "out"))
			out_file = strdup(value);
		else if (!strcmp(argv[i], "on"))
			model_on = !strcmp(value, "on") || !strcmp(value, "true");
		else if (!strcmp(argv[i], "lines"))
			nr_lines_wanted = strtoul(value, NULL, 0);
		else
			return bad(argv[i],
				   "unknown; there are model=FILE, out=FILE, on=on|off, lines=N");
	}
	if (!info->system_emulation)
		return bad("qemu", "a whole system is needed");
	if (!description)
		return bad("model", "missing: model=FILE");
	if (read_description(description) || make_machine(info))
		return -1;
	control = qemu_plugin_request_time_control();
	if (!control)
		return bad("time", "another plugin controls it");
	plugin = id;
	board = qemu_plugin_scoreboard_new(sizeof(struct vcpu));
	threads = g_hash_table_new_full(thread_hash, thread_equal, g_free, NULL);
	if (nr_lines_wanted)
		line_counts = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
	for (i = 0; i < MAX_CPUS; i++)
		idle_since[i] = -1;
	install_callbacks(id);
	return 0;
}
