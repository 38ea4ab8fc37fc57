// SPDX-License-Identifier: GPL-2.0
/*
 * Makes memory look like that of a machine that has been up for a while.
 *
 * A guest that has just booted hands out pages and kernel objects in the order in which the same
 * set-up always takes them, so that all runs of a row have data in the same places, and one file
 * more moves it all.  Here tasks on all CPUs take and give back pages and kernel objects that are
 * drawn from a seed.
 */
#define _GNU_SOURCE
#include <sys/socket.h>

#include "common.h"

static const char help[] =
"Usage: stir [OPTION]...\n"
"Takes and gives back memory, files, pipes, sockets and processes on all CPUs, so\n"
"that pages and kernel objects are free in an order that is drawn, and ends when\n"
"the load of that is forgotten.  Prints nothing.\n"
"\n"
"  -s, --seed N         what is drawn (1)\n"
"  -n, --number N       tasks for each CPU (2)\n"
"  -r, --rounds N       things that each of them takes, one after another (48)\n"
"  -k, --keep DIR       leave a file of each task there, of 1 to 16 pages\n"
"  -h, --help           this text\n";

#define MAX_ROUNDS	1000
#define MAX_PAGES	64
#define PAGE		4096

/* What a task has taken. */
struct thing {
	enum { NOTHING, PAGES, FILE_OPEN, PIPE, SOCKETS } kind;
	void *pages;
	size_t size;
	int fd[2];
};

static long seed = 1, number = 2, rounds = 48;
static const char *keep;
static char block[MAX_PAGES * PAGE];
static cpu_set_t cpus;

static void go_to(unsigned int nth)
{
	cpu_set_t one;

	nth %= CPU_COUNT(&cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus) || nth--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		/* It may have gone offline. */
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static void put_into(int fd, size_t size)
{
	if (write(fd, block, size) != (ssize_t)size)
		die("stir: writing %zu bytes: %s", size, strerror(errno));
}

static void take(struct thing *t, uint32_t *state)
{
	/* Few are large. */
	unsigned int pages = 1 + next_random(state) % (1 + next_random(state) % MAX_PAGES);
	pid_t pid;

	t->size = pages * PAGE;
	t->kind = PAGES + next_random(state) % 5;
	switch (t->kind) {
	case PAGES:
		t->pages = mmap(NULL, t->size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (t->pages == MAP_FAILED)
			die("stir: allocating %zu bytes: %s", t->size, strerror(errno));
		break;
	case FILE_OPEN:
		t->fd[1] = memfd_create("stir", 0);
		t->fd[0] = t->fd[1];
		if (t->fd[0] < 0)
			die("stir: memfd_create: %s", strerror(errno));
		put_into(t->fd[0], t->size);
		break;
	case PIPE:
		if (pipe2(t->fd, O_NONBLOCK))
			die("stir: pipe: %s", strerror(errno));
		put_into(t->fd[1], t->size % (16 * PAGE) + 1);
		break;
	case SOCKETS:
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, t->fd))
			die("stir: socketpair: %s", strerror(errno));
		for (unsigned int i = 0; i < pages; i++)
			put_into(t->fd[i % 2], 1 + next_random(state) % 1024);
		break;
	default:
		t->kind = NOTHING;
		pid = fork_child();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static void give_back(struct thing *t)
{
	if (t->kind == PAGES)
		munmap(t->pages, t->size);
	else if (t->kind != NOTHING)
		close(t->fd[0]);
	if (t->kind == PIPE || t->kind == SOCKETS)
		close(t->fd[1]);
	t->kind = NOTHING;
}

static void leave_file(unsigned int nr, uint32_t *state)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%.4000s/stir.%u", keep, nr);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		die("stir: %s: %s", path, strerror(errno));
	put_into(fd, (1 + next_random(state) % 16) * PAGE);
	close(fd);
}

static void stir(unsigned int nr)
{
	static struct thing things[MAX_ROUNDS];
	uint32_t state = 2654435761u * (uint32_t)(seed + 1) ^ 2246822519u * (nr + 1);

	state += !state;
	for (int i = 0; i < 8; i++)
		next_random(&state);
	for (long i = 0; i < rounds; i++) {
		go_to(next_random(&state));
		take(&things[i], &state);
		give_back(&things[next_random(&state) % (i + 1)]);
		if (keep && i == rounds / 2)
			leave_file(nr, &state);
		if (next_random(&state) % 4 == 0)
			sleep_ns(jitter(20000, &state));
	}
	/* The rest is given back in another order than it was taken. */
	for (long left = rounds; left; left--) {
		long i = next_random(&state) % left;

		give_back(&things[i]);
		things[i] = things[left - 1];
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "number", required_argument, NULL, 'n' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "keep", required_argument, NULL, 'k' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c, status, failed = 0;
	long tasks;

	while ((c = getopt_long(argc, argv, "s:n:r:k:h", options, NULL)) != -1) {
		switch (c) {
		case 's':
			seed = parse_number("seed", optarg, 0, UINT32_MAX);
			break;
		case 'n':
			number = parse_number("number", optarg, 1, 16);
			break;
		case 'r':
			rounds = parse_number("rounds", optarg, 1, MAX_ROUNDS);
			break;
		case 'k':
			keep = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return 2;
		}
	}
	if (optind < argc)
		die("stir: '%s' is no option; see stir --help", argv[optind]);
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		die("sched_getaffinity: %s", strerror(errno));

	tasks = number * CPU_COUNT(&cpus);
	for (long i = 0; i < tasks; i++) {
		if (!fork_child()) {
			stir(i);
			return 0;
		}
	}
	for (long i = 0; i < tasks; i++)
		if (wait(&status) < 0 || status)
			failed = 2;
	/* Eight times as long as load takes to fall to a half (PELT). */
	sleep_ns(256000000);
	return failed;
}
