// SPDX-License-Identifier: GPL-2.0
/*
 * Warehouses: clusters of threads (or processes) that update the records of
 * their own warehouse under a lock, do some private work, and sleep now and
 * then.  Nothing is shared between warehouses, so each is faster on CPUs that
 * share a cache: the workload that cosched is for.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: warehouse [OPTION]...\n"
"Runs warehouses of workers that update shared records under a lock and sleep\n"
"now and then.  Prints the operations of each warehouse and the share of its\n"
"work done in each last-level cache domain, then \"result ops_per_sec N\".\n"
"\n"
"  -w, --warehouses N   warehouses (2)\n"
"  -n, --workers N[,N]  workers in each (4), or in the first, the second, ... in turn\n"
"  -p, --processes      workers are processes on shared memory, not threads\n"
"  -1, --one-process    all workers of all warehouses are threads of one process, made in\n"
"                       turn, each in its warehouse's cgroup; else each warehouse is a\n"
"                       process with its threads\n"
"  -r, --records N      records, one cache line each, in a warehouse (64)\n"
"  -u, --updates N      records updated by one operation (16)\n"
"  -l, --local N        units of 1,000 instructions of private work in one (1)\n"
"  -k, --locks N        locks over a warehouse's records (4)\n"
"  -b, --busy US        work between two sleeps (2000); 0: never sleep\n"
"  -s, --sleep US       length of a sleep (500), varied by half\n"
"  -W, --warmup MS      how long before operations are counted (0)\n"
"  -t, --time MS        how long they are (1000)\n"
"  -i, --interval MS    report every MS as well\n"
"  -g, --cgroup DIR     cgroup of warehouse W: DIR with %d replaced by W\n"
"  -m, --model          switch the lab's machine model on when all workers run, and\n"
"                       have it count while operations are counted\n"
"  -h, --help           this text\n";

#define MAX_LOCKS	64

struct record {
	uint64_t count, sum;
	char pad[48];
} __attribute__((aligned(64)));

struct worker {
	unsigned int warehouse, nr;
	pid_t pid;
	pthread_t thread;
	uint64_t ops, ops_on[MAX_CPUS];
} __attribute__((aligned(64)));

struct warehouse {
	struct {
		pthread_mutex_t lock;
	} __attribute__((aligned(64))) locks[MAX_LOCKS];
	struct record records[];
};

/* Where the workers are started, counted and stopped, in memory that all share. */
struct shared {
	struct window window;
	uint32_t running;
};

static long warehouses = 2, records = 64, updates = 16, local = 1;
static long locks = 4, busy_us = 2000, pause_us = 500, duration_ms = 1000, interval_ms;
static long warmup_ms;
static long sizes[64] = { 4 }, nr_sizes = 1;
static bool processes, one_process, model;
static volatile struct shared *shared;
static long nr_workers, *first_worker;	/* of each warehouse, and one more */
static const char *cgroup;
static struct worker *all;
static struct warehouse **house;
static int llc_of[MAX_CPUS], nr_llcs;

/* Domains are numbered in the order of their first CPU. */
static void read_llcs(void)
{
	for (int cpu = 0; cpu < MAX_CPUS; cpu++)
		llc_of[cpu] = -1;
	for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
		char path[128], line[4096];
		cpu_set_t set;
		FILE *f;

		if (llc_of[cpu] >= 0)
			continue;
		snprintf(path, sizeof(path),
			 "/sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", cpu);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f)) {
			line[strcspn(line, "\n")] = 0;
			set = parse_cpus(line);
			for (int i = 0; i < MAX_CPUS; i++)
				if (CPU_ISSET(i, &set))
					llc_of[i] = nr_llcs;
			nr_llcs++;
		}
		fclose(f);
	}
}

static void operation(struct worker *w, uint32_t *seed)
{
	struct warehouse *h = house[w->warehouse];
	long first = next_random(seed) % records;
	pthread_mutex_t *lock = &h->locks[first % locks].lock;

	pthread_mutex_lock(lock);
	for (long i = 0; i < updates; i++) {
		/* Records of one lock are those whose number is equal modulo locks. */
		struct record *r = &h->records[(first + i * locks) % records];

		r->count++;
		r->sum += r->count ^ w->nr;
	}
	pthread_mutex_unlock(lock);
	for (long i = 0; i < local; i++)
		work_unit();
	/* There may be no private work, but a step of the vCPU must still end. */
	if (!local)
		cpu_pause();
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t seed = 2654435761u * (w - all + 1);
	uint64_t slept;

	if (one_process && cgroup)
		join_cgroup(cgroup, w->warehouse, true);
	model_cluster(w->warehouse);
	slept = now_ns();
	__atomic_add_fetch(&shared->running, 1, __ATOMIC_RELEASE);
	for (;;) {
		uint64_t t = now_ns();
		int cpu = sched_getcpu();

		if (busy_us && t - slept >= busy_us * 1000ull) {
			sleep_ns(jitter(pause_us * 1000, &seed));
			t = now_ns();
			slept = t;
		}
		if (t >= shared->window.end_ns)
			return NULL;
		operation(w, &seed);
		if (t < shared->window.start_ns)
			continue;
		w->ops++;
		if (cpu >= 0 && cpu < MAX_CPUS)
			w->ops_on[cpu]++;
	}
}

static void start_worker(struct worker *w)
{
	if (!processes) {
		if (pthread_create(&w->thread, NULL, work, w))
			die("creating a worker");
		return;
	}
	w->pid = fork_child();
	if (!w->pid) {
		work(w);
		exit(0);
	}
}

/* One process per warehouse, so that each can be in a cgroup of its own. */
static pid_t start_warehouse(unsigned int nr)
{
	pid_t pid = fork_child();

	if (pid)
		return pid;
	if (cgroup)
		join_cgroup(cgroup, nr, false);
	for (long i = first_worker[nr]; i < first_worker[nr + 1]; i++)
		start_worker(&all[i]);
	for (long i = first_worker[nr]; i < first_worker[nr + 1]; i++) {
		struct worker *w = &all[i];

		if (processes)
			waitpid(w->pid, NULL, 0);
		else
			pthread_join(w->thread, NULL);
	}
	exit(0);
}

/* As in a server that takes connections, workers of one warehouse are not started together. */
static void start_threads(void)
{
	bool more = true;

	for (long i = 0; more; i++) {
		more = false;
		for (long h = 0; h < warehouses; h++) {
			if (first_worker[h] + i >= first_worker[h + 1])
				continue;
			start_worker(&all[first_worker[h] + i]);
			more = true;
		}
	}
}

/* Of the first @elapsed_ns of the window. */
static uint64_t report(uint64_t elapsed_ns)
{
	uint64_t total = 0;

	for (long h = 0; h < warehouses; h++) {
		uint64_t ops = 0, placed = 0, *per_llc = calloc(nr_llcs + 1, sizeof(*per_llc));

		for (long i = first_worker[h]; i < first_worker[h + 1]; i++) {
			struct worker *w = &all[i];

			ops += w->ops;
			for (int cpu = 0; cpu < MAX_CPUS; cpu++)
				if (llc_of[cpu] >= 0)
					per_llc[llc_of[cpu]] += w->ops_on[cpu];
		}
		for (int llc = 0; llc < nr_llcs; llc++)
			placed += per_llc[llc];
		printf("warehouse %ld ops %lu", h, ops);
		for (int llc = 0; llc < nr_llcs; llc++)
			printf(" llc%d %.1f%%", llc, placed ? 100.0 * per_llc[llc] / placed : 0.0);
		putchar('\n');
		free(per_llc);
		total += ops;
	}
	printf("total ops %lu msec %lu ops_per_sec %.0f\n", total, elapsed_ns / 1000000,
	       total * 1e9 / elapsed_ns);
	fflush(stdout);
	return total;
}

/* "12,4" */
static void parse_sizes(const char *text)
{
	char *copy = strdup(text), *save = NULL;

	nr_sizes = 0;
	for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (nr_sizes == (long)(sizeof(sizes) / sizeof(*sizes)))
			die("--workers: more than %ld numbers", nr_sizes);
		sizes[nr_sizes++] = parse_number("workers", word, 1, 1024);
	}
	if (!nr_sizes)
		die("--workers: '%s' is not a list of numbers", text);
	free(copy);
}

static void place_workers(void)
{
	first_worker = calloc(warehouses + 1, sizeof(*first_worker));
	if (!first_worker)
		die("out of memory");
	for (long h = 0; h < warehouses; h++)
		first_worker[h + 1] = first_worker[h] + sizes[h % nr_sizes];
	nr_workers = first_worker[warehouses];
	all = shared_alloc(nr_workers * sizeof(*all));
	for (long h = 0; h < warehouses; h++) {
		for (long i = first_worker[h]; i < first_worker[h + 1]; i++) {
			all[i].warehouse = h;
			all[i].nr = i - first_worker[h];
		}
	}
}

static void build_warehouses(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	house = calloc(warehouses, sizeof(*house));
	if (!house)
		die("out of memory");
	for (long h = 0; h < warehouses; h++) {
		house[h] = shared_alloc(sizeof(**house) + records * sizeof(struct record));
		for (long i = 0; i < locks; i++)
			pthread_mutex_init(&house[h]->locks[i].lock, &attr);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "warehouses", required_argument, NULL, 'w' },
		{ "workers", required_argument, NULL, 'n' },
		{ "processes", no_argument, NULL, 'p' },
		{ "one-process", no_argument, NULL, '1' },
		{ "records", required_argument, NULL, 'r' },
		{ "updates", required_argument, NULL, 'u' },
		{ "local", required_argument, NULL, 'l' },
		{ "locks", required_argument, NULL, 'k' },
		{ "busy", required_argument, NULL, 'b' },
		{ "sleep", required_argument, NULL, 's' },
		{ "warmup", required_argument, NULL, 'W' },
		{ "time", required_argument, NULL, 't' },
		{ "interval", required_argument, NULL, 'i' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "model", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	uint64_t t, start_ns, end_ns;
	int c;

	while ((c = getopt_long(argc, argv, "w:n:p1r:u:l:k:b:s:W:t:i:g:mh", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			warehouses = parse_number("warehouses", optarg, 1, 1024);
			break;
		case 'n':
			parse_sizes(optarg);
			break;
		case 'p':
			processes = true;
			break;
		case '1':
			one_process = true;
			break;
		case 'r':
			records = parse_number("records", optarg, 1, 1 << 24);
			break;
		case 'u':
			updates = parse_number("updates", optarg, 0, 1 << 20);
			break;
		case 'l':
			local = parse_number("local", optarg, 0, 1 << 20);
			break;
		case 'k':
			locks = parse_number("locks", optarg, 1, MAX_LOCKS);
			break;
		case 'b':
			busy_us = parse_number("busy", optarg, 0, 1000000000);
			break;
		case 's':
			pause_us = parse_number("sleep", optarg, 1, 1000000000);
			break;
		case 'W':
			warmup_ms = parse_number("warmup", optarg, 0, 86400000);
			break;
		case 't':
			duration_ms = parse_number("time", optarg, 1, 86400000);
			break;
		case 'i':
			interval_ms = parse_number("interval", optarg, 1, 86400000);
			break;
		case 'g':
			cgroup = optarg;
			break;
		case 'm':
			model = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return 2;
		}
	}
	if (optind != argc || (processes && one_process)) {
		fputs(help, stderr);
		return 2;
	}
	/* Otherwise an update could reach a record of another lock. */
	records = (records + locks - 1) / locks * locks;

	read_llcs();
	build_warehouses();
	place_workers();
	shared = shared_alloc(sizeof(*shared));
	no_window(&shared->window);
	if (one_process)
		start_threads();
	for (long h = 0; h < warehouses && !one_process; h++)
		start_warehouse(h);
	wait_for_workers(&shared->running, nr_workers);
	begin_window(&shared->window, model, warmup_ms, duration_ms);
	start_ns = shared->window.start_ns;
	end_ns = shared->window.end_ns;
	while (interval_ms && now_ns() + interval_ms * 1000000ull < end_ns) {
		sleep_ns(interval_ms * 1000000ull);
		report(now_ns() - start_ns);
	}
	while ((t = now_ns()) < end_ns)
		sleep_ns(end_ns - t);
	end_measuring(model);
	for (long i = 0; one_process && i < nr_workers; i++)
		pthread_join(all[i].thread, NULL);
	while (wait(NULL) > 0)
		;
	printf("result ops_per_sec %.1f\n", report(end_ns - start_ns) * 1e9 / (end_ns - start_ns));
	return 0;
}
