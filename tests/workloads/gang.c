// SPDX-License-Identifier: GPL-2.0
/*
 * Runs several instances of a command at once, each in a cgroup of its own, and
 * prints how long it takes until all have ended.  This makes clusters of a program
 * that does not know of cgroups, such as hackbench or a compiler.
 */
#define _GNU_SOURCE
#include "common.h"

static const char help[] =
"Usage: gang [OPTION]... -- COMMAND [ARGUMENT]...\n"
"Runs COMMAND several times at once and prints, of each instance as it ends,\n"
"\"instance I msec N\", and at last \"result msec N\", the time of the system's clock\n"
"until all have ended.  Exits with 1 if one of them fails.  In ARGUMENTs %d is\n"
"replaced by the instance's number, from 0 on.\n"
"\n"
"  -n, --instances N   how often (2)\n"
"  -g, --cgroup DIR    cgroup of instance I: DIR with %d replaced by I\n"
"  -o, --output        show what they print on standard output\n"
"  -m, --model         switch the lab's machine model on, and have it count\n"
"  -h, --help          this text\n";

static long instances = 2;
static const char *cgroup;
static bool model, output;

/* @text with %d in it, if there is one, replaced by @nr. */
static char *numbered(char *text, long nr)
{
	char *d = strstr(text, "%d"), *out;

	if (!d)
		return text;
	if (asprintf(&out, "%.*s%ld%s", (int)(d - text), text, nr, d + 2) < 0)
		die("no memory");
	return out;
}

static pid_t start(long nr, int go, char **command)
{
	pid_t pid = fork_child();
	char byte;

	if (pid)
		return pid;
	for (char **arg = command + 1; *arg; arg++)
		*arg = numbered(*arg, nr);
	if (cgroup)
		join_cgroup(cgroup, nr, false);
	if (!output && !freopen("/dev/null", "w", stdout))
		die("/dev/null: %s", strerror(errno));
	if (read(go, &byte, 1) != 1)
		exit(1);
	execvp(*command, command);
	die("%s: %s", *command, strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "instances", required_argument, NULL, 'n' },
		{ "cgroup", required_argument, NULL, 'g' },
		{ "output", no_argument, NULL, 'o' },
		{ "model", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c, go[2], status, failed = 0;
	pid_t pid, *pids;
	uint64_t t;

	while ((c = getopt_long(argc, argv, "+n:g:omh", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			instances = parse_number("instances", optarg, 1, 1024);
			break;
		case 'g':
			cgroup = optarg;
			break;
		case 'o':
			output = true;
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
	if (optind == argc) {
		fputs(help, stderr);
		return 2;
	}
	if (pipe2(go, O_CLOEXEC))
		die("pipe: %s", strerror(errno));
	pids = calloc(instances, sizeof(*pids));
	if (!pids)
		die("no memory");
	for (long i = 0; i < instances; i++)
		pids[i] = start(i, go[0], argv + optind);
	/* By then all are in their cgroups and wait for their byte. */
	sleep_ns(20000000);
	begin_measuring(model, 0);
	t = now_ns();
	for (long i = 0; i < instances; i++)
		if (write(go[1], "", 1) != 1)
			die("pipe: %s", strerror(errno));
	while ((pid = wait(&status)) > 0) {
		failed |= !WIFEXITED(status) || WEXITSTATUS(status);
		for (long i = 0; i < instances; i++)
			if (pids[i] == pid)
				printf("instance %ld msec %.3f\n", i, (now_ns() - t) / 1e6);
	}
	t = now_ns() - t;
	end_measuring(model);
	if (failed)
		die("an instance of %s failed", argv[optind]);
	printf("result msec %.3f\n", t / 1e6);
	return 0;
}
