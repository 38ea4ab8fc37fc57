// SPDX-License-Identifier: GPL-2.0
/*
 * Automatic homes under load that goes on: they settle in half a second and then stay, for
 * a minute; and in none of many patterns made of random numbers does a home go to and fro.
 * For hours of the guest's time, and so no part of test_cosched_auto.c.  Works on any machine
 * with two LLC domains of equal size or more.  Meant for a guest in parallel virtual time;
 * see rules_util.h.
 */

#include "rules_util.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Homes settle in this time; the kernel looks every 100 ms. */
#define AUTO_SETTLE_MS	500

/* How often the test looks at homes: none changes twice between two looks. */
#define WATCH_MS	50

#define MAX_CLUSTERS	5
#define MAX_HOMES	64

static long first = 1, patterns = 1, pattern_ms = 10000, steady_ms = 60000;

static int per_llc(void)
{
	return CPU_COUNT(&ru_topo()->llc[0]);
}

/* A cluster with an automatic home, its load, and where its home was. */
struct cluster {
	char cg[PATH_MAX];
	int n;
	unsigned int busy_us, sleep_us;		/* busy_us 0: never sleeps */
	struct ru_gang *g;
	int nr_homes;
	struct {
		char cpus[128];
		long ms;
	} home[MAX_HOMES];
};

static void make(struct cluster *c, const char *top, int nr)
{
	char name[16];

	snprintf(name, sizeof(name), "c%d", nr);
	cs_mkdir(c->cg, top, name);
	cs_write(c->cg, CS_PREF, "auto");
}

static void start(struct cluster *c, int n, unsigned int busy_us, unsigned int sleep_us)
{
	c->n = n;
	c->busy_us = busy_us;
	c->sleep_us = sleep_us;
	c->g = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = c->cg, .busy_us = busy_us, .sleep_us = sleep_us });
}

/* Notes the home of @c if it has changed. Returns whether @c has had that home before. */
static bool note_home(struct cluster *c, long ms)
{
	char cpus[sizeof(c->home[0].cpus)];
	int i;

	cs_read(c->cg, CS_HOME, cpus, sizeof(cpus));
	if (c->nr_homes && !strcmp(c->home[c->nr_homes - 1].cpus, cpus))
		return false;
	REQUIRE(c->nr_homes < MAX_HOMES, "%d changes of one home", c->nr_homes);
	strcpy(c->home[c->nr_homes].cpus, cpus);
	c->home[c->nr_homes++].ms = ms;
	for (i = 0; i < c->nr_homes - 1; i++)
		if (!strcmp(c->home[i].cpus, cpus))
			return true;
	return false;
}

static void show(const struct cluster *c, int nr)
{
	char line[4096];
	int i, len = 0;

	for (i = 0; i < c->nr_homes; i++)
		len += snprintf(line + len, sizeof(line) - len, " %s@%ld", c->home[i].cpus,
				c->home[i].ms);
	cs_diag("  c%d: %d threads, %u us busy, %u us asleep; home%s", nr, c->n, c->busy_us,
		c->sleep_us, line);
}

/* After a step, half a second; then no home moves for a minute. */
static void step(struct cluster *c, int n, const char *what)
{
	long long before[MAX_CLUSTERS], moves = 0;
	int i;

	cs_sleep_ms(AUTO_SETTLE_MS);
	for (i = 0; i < n; i++) {
		before[i] = cs_stat(c[i].cg, "home_changes");
		c[i].nr_homes = 0;
	}
	for (long ms = 0; ms < steady_ms; ms += 20 * WATCH_MS) {
		for (i = 0; i < n; i++)
			note_home(&c[i], AUTO_SETTLE_MS + ms);
		cs_sleep_ms(20 * WATCH_MS);
	}
	for (i = 0; i < n; i++) {
		moves += cs_stat(c[i].cg, "home_changes") - before[i];
		if (c[i].n)
			show(&c[i], i);
	}
	cs_diag("%s: %lld moves in %ld s", what, moves, steady_ms / 1000);
	REQUIRE(!moves, "%s: homes move %lld times although nothing changes", what, moves);
}

static void steady(const char *top)
{
	struct cluster c[3] = { };
	int i;

	for (i = 0; i < 3; i++)
		make(&c[i], top, i);
	start(&c[0], per_llc(), 0, 0);
	start(&c[1], per_llc() / 2, 0, 0);
	start(&c[2], per_llc(), 3000, 1000);
	step(c, 3, "from nothing");

	/* Two of them change places in size. */
	ru_end(c[1].g);
	start(&c[1], 2 * per_llc(), 0, 0);
	ru_end(c[0].g);
	start(&c[0], per_llc() / 2, 2000, 2000);
	step(c, 3, "one grows, one shrinks");

	ru_end(c[1].g);
	c[1].n = 0;
	step(c, 3, "one ends");
}

/* splitmix64: alike everywhere, and other numbers for each neighbouring seed. */
static unsigned int pick(uint64_t *state, unsigned int n)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) % n;
}

/* One pattern, made from @nr alone. Returns whether a home went back to where it had been. */
static bool run_pattern(const char *top, long nr)
{
	static const unsigned int busy[] = { 200, 500, 1000, 2000, 5000, 10000, 20000 };
	struct cluster *c = calloc(MAX_CLUSTERS, sizeof(*c));
	uint64_t seed = nr;
	int n, i, returned = 0, moved = 0;
	char dir[PATH_MAX], name[32];
	long long from, ms;

	snprintf(name, sizeof(name), "p%ld", nr);
	cs_mkdir(dir, top, name);
	cs_enable(dir);
	n = 2 + pick(&seed, MAX_CLUSTERS - 1);
	for (i = 0; i < n; i++)
		make(&c[i], dir, i);
	for (i = 0; i < n; i++) {
		int threads = 1 + pick(&seed, 2 * per_llc());
		unsigned int run = pick(&seed, 4) ? busy[pick(&seed, ARRAY_LEN(busy))] : 0;

		/* Asleep for a quarter of the time that it is busy, up to four times as long. */
		start(&c[i], threads, run, (run << pick(&seed, 5)) / 4);
	}
	from = cs_now_ms();
	for (ms = 0; ms < pattern_ms; ms = cs_now_ms() - from) {
		for (i = 0; i < n; i++) {
			int before = c[i].nr_homes;
			bool again = note_home(&c[i], ms);

			if (ms < AUTO_SETTLE_MS)
				continue;
			returned += again;
			moved += c[i].nr_homes > before;
		}
		cs_sleep_ms(WATCH_MS);
	}
	cs_diag("pattern %ld: %d clusters, %d moves, %d of them back%s", nr, n, moved, returned,
		returned ? " (TO AND FRO)" : "");
	for (i = 0; i < n; i++) {
		if (moved)
			show(&c[i], i);
		ru_end(c[i].g);
	}
	for (i = 0; i < n; i++)
		cs_rmdir(c[i].cg);
	cs_rmdir(dir);
	free(c);
	return returned;
}

/*
 * In a pattern, no home changes to one that it had before, once half a second has passed.
 * A cluster at the limit of what its home holds may cross that limit, late.
 */
static void random_patterns(const char *top)
{
	long nr, failed = 0;
	char list[1024] = "";

	for (nr = first; nr < first + patterns; nr++) {
		if (!run_pattern(top, nr))
			continue;
		failed++;
		snprintf(list + strlen(list), sizeof(list) - strlen(list), " %ld", nr);
	}
	REQUIRE(!failed, "%ld of %ld patterns have homes go to and fro:%s", failed, patterns, list);
}

static const struct cs_test tests[] = {
	{ "steady", steady, 3600 },
	{ "random_patterns", random_patterns, 7200 },
};

static const struct cs_option options[] = {
	{ "first", "the first pattern, a seed; default 1", &first, NULL, NULL },
	{ "patterns", "how many, default 1", &patterns, NULL, NULL },
	{ "pattern-ms", "how long each takes, default 10000", &pattern_ms, NULL, NULL },
	{ "steady-ms", "how long homes have to stay, default 60000", &steady_ms, NULL, NULL },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests that automatic homes stay where they are under steady load.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
		.options = options,
		.noptions = ARRAY_LEN(options),
	};

	return cs_main(argc, argv, &program);
}
