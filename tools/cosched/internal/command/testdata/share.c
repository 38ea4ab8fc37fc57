// SPDX-License-Identifier: GPL-2.0
/*
 * Threads and processes whose groups are known: each is named after its group.
 *
 * MS is CPU time, each process its part of it; but no longer than a minute.
 *
 *   share threads MS     8 groups of 4 threads, a mutex for each group
 *   share late MS        the same, and a thread more in group 0 for each SIGUSR1
 *   share processes MS   the same as processes, the mutexes in shared memory that each
 *                        maps at another address
 *   share alike MS       32 threads that take any of 64 mutexes
 *   share memory MS      8 groups of 4 processes that write to pages of shared memory
 *                        without a lock, a memory for each group, and read of one for all
 *   share memory-alike MS  32 such processes, one memory for all
 *   share heap MS        8 groups of 4 threads, each group writes to its part of their memory
 *   share pipelines MS   2 pipelines of 4 processes through pipes, 1 through loopback TCP
 *   share many MS LOOPS  64 groups of 4 threads, with LOOPS of work between two locks; prints
 *                        how often locks were taken, and the CPU time it took in us
 *   share steady LOOPS MS  the same as many, until nobody reads what it prints each MS: the
 *                        time, how often locks were taken until then, and the CPU time, in ns
 *   share faults LOOPS MS  the same of page faults, by 8 groups of 4 threads that share memory
 *   share speed BURST MS prints the same of loops that take no lock: a thread on each CPU works
 *                        now and then, BURST loops
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GROUPS		8
#define MANY		64
#define WORKERS		4
#define LOCKS		64
#define STAGES		4
#define PAGE		4096

static pthread_mutex_t *locks;
static uint64_t cpu_ns, end_ns, speed_ns;
static long loops = 1000;
/* Written by a thread each, and read while it runs. */
static struct {
	alignas(64) uint64_t n;
} taken[MANY * WORKERS];

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int ended(void)
{
	/* Asking for the CPU time of that many threads is work, too. */
	if (cpu_ns == UINT64_MAX)
		return 0;
	return now_ns(CLOCK_PROCESS_CPUTIME_ID) >= cpu_ns || now_ns(CLOCK_MONOTONIC) >= end_ns;
}

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void be(char kind, int group)
{
	char name[16];

	snprintf(name, sizeof(name), "%c%d", kind, group);
	prctl(PR_SET_NAME, name);
}

static void work(void)
{
	for (long i = 0; i < loops; i++)
		__asm__ volatile("");
}

/* Takes one lock, or any, and rests now and then so that all get their turn. */
static void use(int lock, unsigned int seed, uint64_t *count)
{
	for (uint64_t n = 0; n % 64 || !ended(); n++) {
		pthread_mutex_t *m = &locks[lock >= 0 ? lock : rand_r(&seed) % LOCKS];

		pthread_mutex_lock(m);
		work();
		pthread_mutex_unlock(m);
		work();
		__atomic_store_n(count, n + 1, __ATOMIC_RELAXED);
		if (n % 1024 == 0)
			usleep(1000);
	}
}

static void *in_group(void *arg)
{
	long nr = (long)arg;

	be('w', nr / WORKERS);
	use(nr / WORKERS, 0, &taken[nr].n);
	return NULL;
}

static void *alike(void *arg)
{
	long nr = (long)arg;

	be('a', 0);
	use(-1, nr + 1, &taken[nr].n);
	return NULL;
}

static void *in_first(void *arg)
{
	be('w', 0);
	use(0, 0, arg);
	return NULL;
}

/* Starts a thread of the first group whenever there is a signal. */
static void add_threads(const sigset_t *signals, long nr)
{
	struct timespec wait = { .tv_nsec = 100000000 };
	pthread_t thread;

	while (!ended())
		if (sigtimedwait(signals, NULL, &wait) == SIGUSR1 && nr < MANY * WORKERS)
			check(!pthread_create(&thread, NULL, in_first, &taken[nr++].n),
			      "pthread_create");
}

static uint64_t all_taken(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < MANY * WORKERS; i++)
		sum += __atomic_load_n(&taken[i].n, __ATOMIC_RELAXED);
	return sum;
}

/* Lets the calling thread run when it is its time, if that is allowed. */
static void hurry(void)
{
	struct sched_param first = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_FIFO, &first);
}

/* Ends when it cannot print any more. */
static void report(long ms, int speed)
{
	struct timespec wait = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	uint64_t ns;

	hurry();
	do {
		nanosleep(&wait, NULL);
		ns = speed ? __atomic_load_n(&speed_ns, __ATOMIC_RELAXED) :
			     now_ns(CLOCK_PROCESS_CPUTIME_ID);
	} while (printf("%lu %lu %lu\n", now_ns(CLOCK_MONOTONIC), all_taken(), ns) > 0 &&
		 !fflush(stdout));
	exit(0);
}

/*
 * Only the CPU time of the loops counts, not that of the calls around them, which may
 * be watched.
 */
static void *in_bursts(void *arg)
{
	long nr = (long)arg;
	uint64_t ns;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(nr, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return NULL;	/* none of ours */
	hurry();
	for (;;) {
		ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
		work();
		ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - ns;
		__atomic_fetch_add(&speed_ns, ns, __ATOMIC_RELAXED);
		__atomic_store_n(&taken[nr].n, taken[nr].n + loops, __ATOMIC_RELAXED);
		usleep(10000);
	}
}

static void run_threads(void *(*f)(void *), long nr, int late, long every)
{
	pthread_t threads[MANY * WORKERS];
	sigset_t signals;

	/* Whoever is given it would end, but for the one that waits for it. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	locks = calloc(LOCKS, sizeof(*locks));
	check(!!locks, "calloc");
	for (long i = 0; i < nr; i++)
		check(!pthread_create(&threads[i], NULL, f, (void *)i), "pthread_create");
	if (late)
		add_threads(&signals, nr);
	if (every)
		report(every, f == in_bursts);
	for (long i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
}

/* Writes to one page after the other, in an order of its own, perhaps what it reads. */
static void touch(char *memory, const char *text, size_t pages, unsigned int seed)
{
	while (!ended()) {
		size_t at = rand_r(&seed) % pages * PAGE;

		memory[at] = text ? text[at] : 1;
		work();
	}
}

static char *map_pages(int fd, size_t pages, int prot)
{
	char *memory = mmap(NULL, pages * PAGE, prot, MAP_SHARED, fd, 0);

	check(memory != MAP_FAILED, "mmap");
	return memory;
}

static int new_memory(size_t pages)
{
	int fd = memfd_create("memory", 0);

	check(fd >= 0 && !ftruncate(fd, pages * PAGE), "memfd_create");
	return fd;
}

#define FAULT_PAGES	256

static int memories[GROUPS];

/* Faults on each page of its group's memory, where only it has that, again and again. */
static void *in_memory(void *arg)
{
	long nr = (long)arg;
	char *memory = map_pages(memories[nr / WORKERS], FAULT_PAGES, PROT_READ | PROT_WRITE);

	be('w', nr / WORKERS);
	for (uint64_t n = 0;; n++) {
		memory[n % FAULT_PAGES * PAGE] = 1;
		work();
		__atomic_store_n(&taken[nr].n, n + 1, __ATOMIC_RELAXED);
		if (n % FAULT_PAGES == FAULT_PAGES - 1) {
			check(!madvise(memory, FAULT_PAGES * PAGE, MADV_DONTNEED), "madvise");
			usleep(1000);
		}
	}
	return NULL;
}

static void run_faults(long every)
{
	for (int i = 0; i < GROUPS; i++)
		memories[i] = new_memory(FAULT_PAGES);
	run_threads(in_memory, GROUPS * WORKERS, 0, every);
}

/* Each process faults once on each page: there are so many that it does until the end. */
static void run_memory(int groups)
{
	size_t pages = 2048;
	int text = new_memory(pages), fd[GROUPS];

	cpu_ns /= GROUPS * WORKERS;
	loops = 1000000;
	for (int i = 0; i < groups; i++)
		fd[i] = new_memory(pages);
	for (int i = 0; i < GROUPS * WORKERS; i++) {
		if (fork())
			continue;
		/* Every process has other pages before it. */
		mmap(NULL, (i + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		be('w', i / WORKERS);
		touch(map_pages(fd[i / WORKERS % groups], pages, PROT_READ | PROT_WRITE),
		      map_pages(text, pages, PROT_READ), pages, i + 1);
		exit(0);
	}
}

/* Few, which NUMA balancing takes away again and again. */
#define HEAP_PAGES	64

static char *heap;

static void *in_heap(void *arg)
{
	long nr = (long)arg;

	be('w', nr / WORKERS);
	touch(heap + nr / WORKERS * HEAP_PAGES * PAGE, NULL, HEAP_PAGES, nr + 1);
	return NULL;
}

static void run_processes(void)
{
	pthread_mutexattr_t attr;
	int fd = memfd_create("locks", 0);
	size_t size = 1 << 20;

	cpu_ns /= GROUPS * WORKERS;
	check(fd >= 0 && !ftruncate(fd, size), "memfd_create");
	locks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(locks != MAP_FAILED, "mmap");
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (int i = 0; i < GROUPS; i++)
		pthread_mutex_init(&locks[i], &attr);
	for (int i = 0; i < GROUPS * WORKERS; i++) {
		if (fork())
			continue;
		munmap(locks, size);
		/* Every process has other pages before it. */
		mmap(NULL, (i + 1) * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		locks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		check(locks != MAP_FAILED, "mmap");
		be('w', i / WORKERS);
		use(i / WORKERS, 0, &taken[0].n);
		exit(0);
	}
}

/* Gives two ends of a way for bytes. */
static void connect_stages(int tcp, int ends[2])
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t len = sizeof(at);
	int in;

	if (!tcp) {
		check(!pipe(ends), "pipe");
		return;
	}
	in = socket(AF_INET, SOCK_STREAM, 0);
	ends[1] = socket(AF_INET, SOCK_STREAM, 0);
	check(!bind(in, (void *)&at, len) && !listen(in, 1) &&
	      !getsockname(in, (void *)&at, &len) &&
	      !connect(ends[1], (void *)&at, len), "loopback");
	ends[0] = accept(in, NULL, NULL);
	check(ends[0] >= 0, "accept");
	close(in);
}

/* Each stage waits for the one before; the last one gives back to the first. */
static void run_pipeline(char kind, int nr, int tcp)
{
	int ends[STAGES][2];

	for (int i = 0; i < STAGES; i++)
		connect_stages(tcp, ends[i]);
	for (int i = 0; i < STAGES; i++) {
		char bytes[64] = "";
		int in = ends[i][0], out = ends[(i + 1) % STAGES][1];

		if (fork())
			continue;
		/* Who waits for one that has ended sees that if nobody else has that end. */
		for (int j = 0; j < STAGES; j++) {
			if (ends[j][0] != in)
				close(ends[j][0]);
			if (ends[j][1] != out)
				close(ends[j][1]);
		}
		be(kind, nr);
		if (i == 0)
			check(write(out, bytes, sizeof(bytes)) > 0, "write");
		while (!ended()) {
			if (read(in, bytes, sizeof(bytes)) <= 0)
				break;	/* it has ended */
			work();
			if (write(out, bytes, sizeof(bytes)) <= 0)
				break;
		}
		exit(0);
	}
	for (int i = 0; i < STAGES; i++) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
}

int main(int argc, char **argv)
{
	struct rusage r;
	long cpus;

	if (argc < 3)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	cpu_ns = atol(argv[2]) * 1000000ull;
	end_ns = now_ns(CLOCK_MONOTONIC) + 60 * 1000000000ull;
	if (!strcmp(argv[1], "threads")) {
		run_threads(in_group, GROUPS * WORKERS, 0, 0);
	} else if (!strcmp(argv[1], "late")) {
		run_threads(in_group, GROUPS * WORKERS, 1, 0);
	} else if (!strcmp(argv[1], "processes")) {
		run_processes();
	} else if (!strcmp(argv[1], "alike")) {
		run_threads(alike, GROUPS * WORKERS, 0, 0);
	} else if (!strcmp(argv[1], "memory")) {
		run_memory(GROUPS);
	} else if (!strcmp(argv[1], "memory-alike")) {
		run_memory(1);
	} else if (!strcmp(argv[1], "heap")) {
		heap = mmap(NULL, GROUPS * HEAP_PAGES * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(heap != MAP_FAILED, "mmap");
		loops = 100000;
		run_threads(in_heap, GROUPS * WORKERS, 0, 0);
	} else if (!strcmp(argv[1], "pipelines")) {
		cpu_ns /= 3 * STAGES;
		run_pipeline('p', 0, 0);
		run_pipeline('p', 1, 0);
		run_pipeline('t', 2, 1);
	} else if (!strcmp(argv[1], "many") && argc == 4) {
		loops = atol(argv[3]);
		run_threads(in_group, MANY * WORKERS, 0, 0);
		getrusage(RUSAGE_SELF, &r);
		printf("locks %lu cpu_us %lu\n", all_taken(),
		       (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000ul +
		       r.ru_utime.tv_usec + r.ru_stime.tv_usec);
	} else if (!strcmp(argv[1], "steady") && argc == 4) {
		loops = atol(argv[2]);
		cpu_ns = UINT64_MAX;
		run_threads(in_group, MANY * WORKERS, 0, atol(argv[3]));
	} else if (!strcmp(argv[1], "faults") && argc == 4) {
		loops = atol(argv[2]);
		cpu_ns = UINT64_MAX;
		run_faults(atol(argv[3]));
	} else if (!strcmp(argv[1], "speed") && argc == 4) {
		loops = atol(argv[2]);
		cpus = sysconf(_SC_NPROCESSORS_CONF);
		if (cpus > MANY * WORKERS)
			cpus = MANY * WORKERS;
		run_threads(in_bursts, cpus, 0, atol(argv[3]));
	} else {
		return 2;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
