// SPDX-License-Identifier: GPL-2.0
/*
 * Automatic homes: the file, the hierarchy, and where homes are once load is what it
 * is.  The choice itself has KUnit tests (kernel/cgroup/cosched_auto_test.c); here it
 * meets tasks.  Every test works on any machine with two LLC domains of equal size or
 * more.  Meant for a guest in parallel virtual time; see rules_util.h.
 */

#include "rules_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Homes settle in this time; the kernel looks every 100 ms. */
#define AUTO_SETTLE_MS	500

static void make(char *cg, const char *top, const char *name, const char *asked)
{
	cs_mkdir(cg, top, name);
	cs_write(cg, CS_PREF, asked);
}

static cpu_set_t home_of(const char *cg)
{
	char list[1024];
	cpu_set_t set;

	cs_read(cg, CS_HOME, list, sizeof(list));
	CPU_ZERO(&set);
	if (list[0])
		cs_parse_cpus(list, &set);
	cs_diag("%s: home %s", strrchr(cg, '/') + 1, list);
	return set;
}

/* The number of LLC domains of a home, which has to consist of whole domains. */
static int domains(const cpu_set_t *home)
{
	const struct ru_topo *topo = ru_topo();
	int i, n = 0;

	for (i = 0; i < topo->nr_llcs; i++) {
		cpu_set_t both = ru_and(home, &topo->llc[i]);

		if (CPU_COUNT(&both)) {
			REQUIRE(CPU_EQUAL(&both, &topo->llc[i]), "a part of an LLC domain");
			n++;
		}
	}
	return n;
}

static int common(const cpu_set_t *a, const cpu_set_t *b)
{
	cpu_set_t both = ru_and(a, b);

	return CPU_COUNT(&both);
}

/* Threads that always run. */
static struct ru_gang *spinners(const char *cg, int n)
{
	return ru_gang(&(struct ru_gang_opts){ .n = n, .cg = cg });
}

static int per_llc(void)
{
	return CPU_COUNT(&ru_topo()->llc[0]);
}

/* No home changes for that long. */
static void stands_still(char (*cg)[PATH_MAX], int n, long ms)
{
	long long before[16];
	int i;

	for (i = 0; i < n; i++)
		before[i] = cs_stat(cg[i], "home_changes");
	cs_sleep_ms(ms);
	for (i = 0; i < n; i++)
		REQUIRE(cs_stat(cg[i], "home_changes") == before[i], "%s moves on: %lld changes",
			strrchr(cg[i], '/') + 1, cs_stat(cg[i], "home_changes") - before[i]);
}

/* "auto" is accepted, comes back, and gives a home at once; a list or nothing ends it. */
static void file(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[PATH_MAX], list[1024];
	cpu_set_t home;

	cs_mkdir(cg, top, "a");
	cs_expect(cg, CS_PREF, "");
	cs_write(cg, CS_PREF, "  auto\n");
	cs_expect(cg, CS_PREF, "auto");
	home = home_of(cg);
	REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
	REQUIRE(cs_try_write(cg, CS_PREF, "auto,1") == -EINVAL, "auto,1 is accepted");
	REQUIRE(cs_try_write(cg, CS_PREF, "Auto") == -EINVAL, "Auto is accepted");
	cs_expect(cg, CS_PREF, "auto");
	/* Once more changes nothing. */
	cs_write(cg, CS_PREF, "auto");
	home = home_of(cg);
	REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
	REQUIRE(cs_stat(cg, "home_changes") == 1, "it moved");

	cs_format_cpus(&topo->llc[1], list, sizeof(list));
	cs_write(cg, CS_PREF, list);
	cs_expect(cg, CS_PREF, list);
	cs_expect(cg, CS_HOME, list);
	cs_write(cg, CS_PREF, "auto");
	cs_expect(cg, CS_PREF, "auto");
	cs_write(cg, CS_PREF, "\n");
	cs_expect(cg, CS_PREF, "");
	cs_expect(cg, CS_HOME, "");
}

/* A child inherits the home; below a home that was named, one within it is chosen. */
static void hierarchy(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t home, part, second = ru_first(&topo->llc[1], 1);
	char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX], list[1024];
	int i;

	make(a, top, "a", "auto");
	cs_enable(a);
	cs_mkdir(b, a, "b");
	cs_read(a, CS_HOME, list, sizeof(list));
	cs_expect(b, CS_HOME, list);
	cs_write(b, CS_PREF, "auto");
	cs_expect(b, CS_HOME, list);

	/* Half of one domain and one CPU of another. */
	part = ru_first(&topo->llc[0], per_llc() / 2);
	part = ru_or(&part, &second);
	cs_format_cpus(&part, list, sizeof(list));
	cs_write(a, CS_PREF, list);
	make(c, a, "c", "auto");
	for (i = 0; i < 2; i++) {
		home = home_of(i ? c : b);
		REQUIRE(CPU_COUNT(&home), "no home");
		REQUIRE(common(&home, &part) == CPU_COUNT(&home), "outside of the parent's home");
	}
	/* The parent's home moves, and at once those within it, even one that is partly there. */
	home = home_of(b);
	for (i = 0; i < 2; i++) {
		const cpu_set_t *llc = &topo->llc[!!common(&home, &topo->llc[1]) ^ i];

		ru_prefer(a, llc);
		cs_format_cpus(llc, list, sizeof(list));
		cs_expect(b, CS_HOME, list);
		cs_expect(c, CS_HOME, list);
		cs_sleep_ms(300);
		cs_expect(b, CS_HOME, list);
	}
	/* Without the parent's home, the homes are chosen from all domains. */
	cs_write(a, CS_PREF, "\n");
	cs_sleep_ms(300);
	home = home_of(b);
	REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
}

/* New clusters part before they have any load. */
static void new_ones_part(const char *top)
{
	char cg[2][PATH_MAX];
	cpu_set_t a, b;

	make(cg[0], top, "a", "auto");
	make(cg[1], top, "b", "auto");
	a = home_of(cg[0]);
	b = home_of(cg[1]);
	REQUIRE(!common(&a, &b), "both at the same place");
}

/*
 * A cluster whose tasks already run has its first home where they run, though that is the busiest
 * domain, and keeps it. Before, the tasks were in no cluster, or with @above in the cluster of the
 * cgroup above, or with @by_hand in their own with a home set by hand.
 */
static void running_ones(const char *top, bool above, bool by_hand)
{
	const struct ru_topo *topo = ru_topo();
	char parent[PATH_MAX], cg[1][PATH_MAX];
	cpu_set_t home, all = topo->online;
	struct ru_gang *g;
	int i;

	cs_mkdir(parent, top, "above");
	cs_enable(parent);
	for (i = topo->nr_llcs - 1; i >= 0; i--) {
		cs_mkdir(cg[0], parent, "a");
		if (above)
			ru_prefer(parent, &all);
		if (by_hand)
			ru_prefer(cg[0], &topo->llc[i]);
		g = ru_gang(&(struct ru_gang_opts){
			.n = per_llc(), .cg = cg[0], .start = topo->llc[i] });
		cs_sleep_ms(SETTLE_MS);
		ru_allow(g, &all);
		cs_write(cg[0], CS_PREF, "auto");
		home = home_of(cg[0]);
		REQUIRE(CPU_EQUAL(&home, &topo->llc[i]), "they ran in domain %d", i);
		stands_still(cg, 1, AUTO_SETTLE_MS);
		ru_end(g);
		cs_rmdir(cg[0]);
		/* Until the load of the tasks is forgotten. */
		cs_sleep_ms(SETTLE_MS);
	}
}

static void running_ones_stay(const char *top)
{
	running_ones(top, false, false);
}

static void running_ones_stay_below(const char *top)
{
	running_ones(top, true, false);
}

static void running_ones_stay_by_hand(const char *top)
{
	running_ones(top, false, true);
}

/* The first home is as large as the tasks need: they run on half of the domains, the last ones. */
static void running_ones_fit(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	int i, n = topo->nr_llcs / 2;
	cpu_set_t home, half;
	char cg[PATH_MAX];
	struct ru_gang *g;

	CPU_ZERO(&half);
	for (i = topo->nr_llcs - n; i < topo->nr_llcs; i++)
		half = ru_or(&half, &topo->llc[i]);
	cs_mkdir(cg, top, "a");
	g = ru_gang(&(struct ru_gang_opts){ .n = CPU_COUNT(&half), .cg = cg, .start = half });
	cs_sleep_ms(SETTLE_MS);
	ru_allow(g, &topo->online);
	cs_write(cg, CS_PREF, "auto");
	home = home_of(cg);
	REQUIRE(domains(&home) == n, "%d domains for %d", domains(&home), n);
	REQUIRE(common(&home, &half) >= per_llc(), "none where they ran");
}

/* Two clusters whose tasks run in one domain part: one of them leaves. */
static void running_ones_part(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[2][PATH_MAX];
	cpu_set_t home[2];
	int i;

	for (i = 0; i < 2; i++) {
		cs_mkdir(cg[i], top, i ? "b" : "a");
		ru_gang(&(struct ru_gang_opts){
			.n = per_llc(), .cg = cg[i], .start = topo->llc[1] });
	}
	cs_sleep_ms(SETTLE_MS);
	for (i = 0; i < 2; i++)
		cs_write(cg[i], CS_PREF, "auto");
	cs_sleep_ms(AUTO_SETTLE_MS);
	for (i = 0; i < 2; i++)
		home[i] = home_of(cg[i]);
	REQUIRE(!common(&home[0], &home[1]), "both at the same place");
	stands_still(cg, 2, AUTO_SETTLE_MS);
}

/* Two clusters that are as large as a domain have one domain each, for good, and run there. */
static void part(char (*cg)[PATH_MAX], struct ru_gang **g)
{
	struct ru_mark mark[2];
	cpu_set_t home[2];
	int i;

	cs_sleep_ms(AUTO_SETTLE_MS);
	for (i = 0; i < 2; i++)
		home[i] = home_of(cg[i]);
	REQUIRE(!common(&home[0], &home[1]), "both at the same place");
	REQUIRE(domains(&home[0]) == domains(&home[1]), "%d and %d domains", domains(&home[0]),
		domains(&home[1]));
	/* Threads follow their home: as all CPUs are busy, they change places one after another. */
	stands_still(cg, 2, 1000);
	for (i = 0; i < 2; i++)
		ru_mark(g[i], &mark[i]);
	stands_still(cg, 2, 1000);
	for (i = 0; i < 2; i++) {
		double share = ru_share(g[i], &mark[i], &home[i]);

		cs_diag("%.1f%% of the CPU time at home", share);
		REQUIRE(share >= 95, "%s is not at home", strrchr(cg[i], '/') + 1);
	}
}

/* As many threads as an LLC domain has CPUs, and twice as many. */
static void equal(const char *top, int times)
{
	char cg[2][PATH_MAX];
	struct ru_gang *g[2];
	int i;

	for (i = 0; i < 2; i++)
		make(cg[i], top, i ? "b" : "a", "auto");
	for (i = 0; i < 2; i++)
		g[i] = spinners(cg[i], times * per_llc());
	part(cg, g);
}

static void equal_full(const char *top)
{
	equal(top, 1);
}

static void equal_twice(const char *top)
{
	equal(top, 2);
}

/* Likewise in autogroups, of different nice values. */
static void autogroups(const char *top)
{
	char cg[2][PATH_MAX], proc[32];
	struct ru_gang *g[2];
	int i;

	if (cs_try_write("/proc/sys/kernel", "sched_autogroup_enabled", "1"))
		cs_skip("needs a kernel with autogroups");
	for (i = 0; i < 2; i++)
		make(cg[i], top, i ? "b" : "a", "auto");
	for (i = 0; i < 2; i++) {
		g[i] = ru_gang(&(struct ru_gang_opts){
			.n = 2 * per_llc(), .cg = cg[i], .session = true });
		snprintf(proc, sizeof(proc), "/proc/%d", g[i]->pid);
		cs_write(proc, "autogroup", i ? "10" : "0");
	}
	part(cg, g);
}

/*
 * Likewise if each cluster has a core scheduling cookie, so that they share no core. The threads
 * start wherever they ran before they were in clusters, so threads that never sleep change places.
 */
static void core_cookies(const char *top, int times)
{
	char cg[2][PATH_MAX];
	struct ru_gang *g[2];
	int i;

	if (!ru_topo()->smt)
		cs_skip("needs SMT");
	for (i = 0; i < 2; i++)
		make(cg[i], top, i ? "b" : "a", "auto");
	for (i = 0; i < 2; i++) {
		g[i] = spinners(NULL, times * per_llc());
		if (ru_try_cookie(g[i]))
			cs_skip("needs core scheduling");
	}
	cs_sleep_ms(SETTLE_MS);
	for (i = 0; i < 2; i++)
		ru_move(g[i], cg[i]);
	part(cg, g);
}

static void core_cookies_full(const char *top)
{
	core_cookies(top, 1);
}

static void core_cookies_twice(const char *top)
{
	core_cookies(top, 2);
}

/* One has three times as many threads as the other: each has its share, and none in common. */
static void uneven(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[2][PATH_MAX];
	cpu_set_t a, b;

	make(cg[0], top, "large", "auto");
	make(cg[1], top, "small", "auto");
	spinners(cg[0], 3 * per_llc());
	spinners(cg[1], per_llc());
	cs_sleep_ms(AUTO_SETTLE_MS);
	a = home_of(cg[0]);
	b = home_of(cg[1]);
	REQUIRE(!common(&a, &b), "both at the same place");
	REQUIRE(domains(&b) == 1, "the small one has %d domains", domains(&b));
	REQUIRE(domains(&a) == (topo->nr_llcs >= 4 ? 3 : 1), "the large one has %d domains",
		domains(&a));
	stands_still(cg, 2, 500);
}

/* Eight small clusters are spread over all domains, by demand. */
static void many_small(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[8][PATH_MAX], name[16];
	int i, n[RU_CPUS] = { }, most = 0, least = 8;

	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		make(cg[i], top, name, "auto");
	}
	for (i = 0; i < 8; i++)
		spinners(cg[i], 1);
	cs_sleep_ms(AUTO_SETTLE_MS);
	for (i = 0; i < 8; i++) {
		cpu_set_t home = home_of(cg[i]);

		REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
		n[topo->llc_of[ru_nth(&home, 0)]]++;
	}
	for (i = 0; i < topo->nr_llcs; i++) {
		most = n[i] > most ? n[i] : most;
		least = n[i] < least ? n[i] : least;
	}
	cs_diag("%d to %d on a domain", least, most);
	REQUIRE(most <= least + 1, "%d on one domain, %d on another", most, least);
	stands_still(cg, 8, 500);
}

/* Clusters of one task each, and how many of them have their home on a domain. */
struct crowd {
	char (*cg)[PATH_MAX];
	struct ru_gang **g;		/* NULL: its task has ended */
	int *llc;
	int nr, on[RU_CPUS], least, most;
};

static void count_crowd(struct crowd *c)
{
	const struct ru_topo *topo = ru_topo();
	char list[1024];
	int i;

	memset(c->on, 0, sizeof(c->on));
	for (i = 0; i < c->nr; i++) {
		cpu_set_t home;

		if (!c->g[i])
			continue;
		cs_read(c->cg[i], CS_HOME, list, sizeof(list));
		cs_parse_cpus(list, &home);
		REQUIRE(domains(&home) == 1, "%s: home %s", c->cg[i], list);
		c->llc[i] = topo->llc_of[ru_nth(&home, 0)];
		c->on[c->llc[i]]++;
	}
	c->least = 0;
	c->most = 0;
	for (i = 0; i < topo->nr_llcs; i++) {
		if (c->on[i] < c->on[c->least])
			c->least = i;
		if (c->on[i] > c->on[c->most])
			c->most = i;
	}
	cs_diag("%d to %d on a domain", c->on[c->least], c->on[c->most]);
}

/*
 * More tasks than CPUs, each in a cluster of its own, are spread evenly, and spread again when some
 * end.  Tasks that wait for two thirds of the time count as much as those that do not.
 */
static void crowd_spreads(const char *top)
{
	/* One task less is a gain of more than 3/16 for each CPU then. */
	int i, domain, most, apart = 2 + per_llc() * 3 / 16;
	struct crowd c = { .nr = 3 * ru_topo()->nr_llcs * per_llc() };
	char name[16];

	c.cg = calloc(c.nr, sizeof(*c.cg));
	c.g = calloc(c.nr, sizeof(*c.g));
	c.llc = calloc(c.nr, sizeof(*c.llc));
	for (i = 0; i < c.nr; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		make(c.cg[i], top, name, "auto");
	}
	for (i = 0; i < c.nr; i++)
		c.g[i] = spinners(c.cg[i], 1);
	cs_sleep_ms(AUTO_SETTLE_MS);
	count_crowd(&c);
	REQUIRE(c.on[c.most] - c.on[c.least] < apart, "%d on one domain, %d on another",
		c.on[c.most], c.on[c.least]);

	domain = c.least;
	most = c.on[c.most];
	for (i = 0; i < c.nr && most - c.on[domain] < apart; i++) {
		if (c.llc[i] != domain)
			continue;
		ru_end(c.g[i]);
		c.g[i] = NULL;
		c.on[domain]--;
	}
	cs_diag("some end on domain %d: %d to %d", domain, c.on[domain], most);
	cs_sleep_ms(AUTO_SETTLE_MS);
	count_crowd(&c);
	REQUIRE(c.on[c.most] - c.on[c.least] < apart, "%d on one domain, %d on another",
		c.on[c.most], c.on[c.least]);
	free(c.cg);
	free(c.g);
	free(c.llc);
}

/* A cluster that outgrows its home gains a domain, and gives it back. Pollers are told. */
static void grows_and_shrinks(const char *top)
{
	char cg[1][PATH_MAX], path[PATH_MAX], buf[1024];
	struct pollfd p = { .events = POLLPRI };
	struct ru_gang *g;
	cpu_set_t one, two;

	if (ru_topo()->nr_llcs < 4)
		cs_skip("needs four LLC domains");
	make(cg[0], top, "a", "auto");
	spinners(cg[0], 2);
	cs_sleep_ms(AUTO_SETTLE_MS);
	one = home_of(cg[0]);
	REQUIRE(domains(&one) == 1, "%d domains", domains(&one));

	cs_name(path, cg[0], CS_HOME);
	p.fd = open(path, O_RDONLY);
	REQUIRE(p.fd >= 0 && read(p.fd, buf, sizeof(buf)) > 0, "%s: %s", path, strerror(errno));
	g = spinners(cg[0], 2 * per_llc() - 2);
	REQUIRE(poll(&p, 1, AUTO_SETTLE_MS) == 1 && p.revents & POLLPRI, "nobody is told");
	cs_sleep_ms(AUTO_SETTLE_MS);
	two = home_of(cg[0]);
	REQUIRE(domains(&two) == 2, "%d domains", domains(&two));
	REQUIRE(common(&one, &two) == per_llc(), "left its first domain");
	stands_still(cg, 1, 500);

	ru_end(g);
	cs_sleep_ms(AUTO_SETTLE_MS);
	two = home_of(cg[0]);
	REQUIRE(domains(&two) == 1, "%d domains", domains(&two));
	stands_still(cg, 1, 500);
}

/* Wakes all of @g, so many times, every ms or two. */
static void wake_together(struct ru_gang *g, int times)
{
	while (times--) {
		ru_wake(g);
		cs_sleep_ms(1);
	}
}

/*
 * Threads that wake up together, run for an instant, and share nothing: on average they need few
 * CPUs, but all idle CPUs when they wake up. Therefore their home grows before they wait for each
 * other, stays so, and gives the CPUs back when others need them.
 */
static void bursts(const char *top)
{
	char cg[1][PATH_MAX];
	cpu_set_t first, home, elsewhere;
	struct ru_gang *g;
	long long changes;

	make(cg[0], top, "a", "auto");
	g = ru_gang(&(struct ru_gang_opts){
		.n = 3 * per_llc(), .cg = cg[0], .busy_us = 100, .sleep_us = 1000000 });
	first = home_of(cg[0]);
	REQUIRE(domains(&first) == 1, "%d domains", domains(&first));
	wake_together(g, AUTO_SETTLE_MS);
	home = home_of(cg[0]);
	REQUIRE(domains(&home) > 1, "no headroom");
	changes = cs_stat(cg[0], "home_changes");
	wake_together(g, 1000);
	REQUIRE(cs_stat(cg[0], "home_changes") == changes, "moves on");

	CPU_XOR(&elsewhere, &ru_topo()->online, &first);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&elsewhere), .start = elsewhere, .one_each = true });
	wake_together(g, AUTO_SETTLE_MS);
	home = home_of(cg[0]);
	REQUIRE(CPU_EQUAL(&home, &first), "in the way of others");
}

/* A task of the gang's own cluster, so that no task of another cluster is runnable. */
static void wake_each_10ms(void *arg)
{
	for (;;) {
		cs_sleep_ms(10);
		ru_wake(arg);
	}
}

/*
 * Threads that wake up together, two for each CPU of the machine, and run for longer than an
 * instant: on average they need less than half of the machine. All of it is home while they
 * overrun it. Whenever they do not, all would go back to a small home, so the home itself grows.
 * Others still get their CPUs.
 */
static void overruns(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[1][PATH_MAX];
	cpu_set_t first, home, elsewhere;
	struct ru_gang *g;
	long long changes;
	int i;

	make(cg[0], top, "a", "auto");
	g = ru_gang(&(struct ru_gang_opts){
		.n = 2 * topo->nr_cpus, .cg = cg[0], .busy_us = 2000, .sleep_us = 10000000 });
	cs_sleep_ms(AUTO_SETTLE_MS);
	first = home_of(cg[0]);
	cs_spawn(cg[0], wake_each_10ms, g);
	/* Until two looks in a row happen to come while they overrun it. */
	home = first;
	for (i = 0; i < 10 && !CPU_EQUAL(&home, &topo->online); i++) {
		cs_sleep_ms(AUTO_SETTLE_MS);
		home = home_of(cg[0]);
	}
	REQUIRE(CPU_EQUAL(&home, &topo->online), "not all of the machine");
	changes = cs_stat(cg[0], "home_changes");
	cs_sleep_ms(1000);
	REQUIRE(cs_stat(cg[0], "home_changes") == changes, "moves on");

	CPU_XOR(&elsewhere, &topo->online, &first);
	ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&elsewhere), .start = elsewhere, .one_each = true });
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	home = home_of(cg[0]);
	REQUIRE(common(&home, &elsewhere) < CPU_COUNT(&elsewhere), "in the way of others");
}

/* With explicit homes, and tasks of no cluster: where there is room. */
static void beside_others(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char a[PATH_MAX], b[PATH_MAX];
	cpu_set_t home;
	int i;

	cs_mkdir(a, top, "explicit");
	ru_prefer(a, &topo->llc[0]);
	spinners(a, per_llc());
	for (i = 1; i < topo->nr_llcs - 1; i++)
		ru_gang(&(struct ru_gang_opts){
			.n = per_llc(), .start = topo->llc[i], .one_each = true });
	cs_sleep_ms(SETTLE_MS);
	make(b, top, "auto", "auto");
	spinners(b, per_llc() - 1);
	cs_sleep_ms(AUTO_SETTLE_MS);
	home = home_of(b);
	REQUIRE(CPU_EQUAL(&home, &topo->llc[topo->nr_llcs - 1]), "not where nobody is");
}

/* No domain that the cpuset does not have. */
static void limited_cpus(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[PATH_MAX], list[1024];
	int i;

	cs_need_controller(top, "cpuset");
	make(cg, top, "a", "auto");
	for (i = topo->nr_llcs - 1; i >= 0; i--) {
		cs_format_cpus(&topo->llc[i], list, sizeof(list));
		cs_write(cg, "cpuset.cpus", list);
		cs_expect_soon(cg, CS_HOME, list, AUTO_SETTLE_MS);
	}
}

/*
 * The cpusets of the cgroups below that hold the tasks count, whether cosched is enabled there or
 * not.  A cgroup without tasks does not count, nor does one with a home set by hand.
 */
static void limited_cpus_below(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char a[PATH_MAX], full[PATH_MAX], empty[PATH_MAX], other[PATH_MAX], list[1024];
	cpu_set_t home, both;
	int i, j, enable;

	cs_need_controller(top, "cpuset");
	make(a, top, "a", "auto");
	cs_write(a, "cgroup.subtree_control", "+cpuset");
	cs_mkdir(full, a, "full");
	cs_mkdir(empty, a, "empty");
	cs_mkdir(other, a, "other");
	spinners(full, 2);
	for (enable = 0; enable < 2; enable++) {
		if (enable) {
			cs_enable(a);
			ru_prefer(other, &topo->llc[0]);
			spinners(other, 1);
		}
		for (i = topo->nr_llcs - 1; i >= 0; i--) {
			j = (i + 1) % topo->nr_llcs;
			cs_format_cpus(&topo->llc[j], list, sizeof(list));
			cs_write(empty, "cpuset.cpus", list);
			cs_write(other, "cpuset.cpus", list);
			cs_format_cpus(&topo->llc[i], list, sizeof(list));
			cs_write(full, "cpuset.cpus", list);
			cs_expect_soon(a, CS_HOME, list, AUTO_SETTLE_MS);
		}
	}
	/* With tasks in two cgroups, the home may be any CPUs that either may use. */
	cs_write(other, CS_PREF, "\n");
	cs_sleep_ms(AUTO_SETTLE_MS);
	home = home_of(a);
	both = ru_or(&topo->llc[0], &topo->llc[1]);
	REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
	REQUIRE(common(&home, &both) == CPU_COUNT(&home), "where none of them may be");
}

/* cpuset.cpus.partition of @cg, below @top, with the CPUs @cpus, which no other cgroup then has. */
static void make_partition(const char *top, const char *cg, const char *kind,
			   const cpu_set_t *cpus)
{
	char list[1024];

	cs_format_cpus(cpus, list, sizeof(list));
	if (cs_try_write(top, "cpuset.cpus.exclusive", list))
		cs_skip("needs cpuset.cpus.exclusive");
	cs_write(cg, "cpuset.cpus.exclusive", list);
	cs_write(cg, "cpuset.cpus.partition", kind);
	cs_expect(cg, "cpuset.cpus.partition", kind);
	cs_expect(cg, "cpuset.cpus.effective", list);
}

static void end_partition(const char *top, const char *cg)
{
	cs_write(cg, "cpuset.cpus.partition", "member");
	cs_write(cg, "cpuset.cpus.exclusive", "\n");
	cs_write(top, "cpuset.cpus.exclusive", "\n");
}

/*
 * A partition with a cluster in it, on the CPUs that are home of another cluster, or on half of
 * them: the cluster's home is there, the other's is elsewhere, and tasks run at home.  When the
 * partition is taken back, both have whole domains again, apart from each other.  In an isolated
 * partition no load is balanced and there are no domains: all of its CPUs are home.
 */
static void partition(const char *top, const char *kind)
{
	bool isolated = !strcmp(kind, "isolated");
	char cg[2][PATH_MAX], list[1024];
	cpu_set_t home[2], cpus;
	struct ru_mark mark[2];
	struct ru_gang *g[2];
	int i, half;

	cs_need_controller(top, "cpuset");
	for (i = 0; i < 2; i++) {
		make(cg[i], top, i ? "outside" : "inside", "auto");
		g[i] = spinners(cg[i], per_llc() / 2);
	}
	for (half = 0; half < 2; half++) {
		cs_sleep_ms(AUTO_SETTLE_MS);
		cpus = home_of(cg[1]);
		REQUIRE(domains(&cpus) == 1, "%d domains", domains(&cpus));
		if (half)
			cpus = ru_first(&cpus, per_llc() / 2);
		make_partition(top, cg[0], kind, &cpus);
		cs_format_cpus(&cpus, list, sizeof(list));
		cs_expect_soon(cg[0], CS_HOME, list, AUTO_SETTLE_MS);
		cs_sleep_ms(AUTO_SETTLE_MS);
		cs_expect(cg[0], CS_HOME, list);
		home[0] = cpus;
		home[1] = home_of(cg[1]);
		REQUIRE(CPU_COUNT(&home[1]) && !common(&home[1], &cpus), "CPUs of the partition are home");
		stands_still(cg, 2, AUTO_SETTLE_MS);
		for (i = 0; i < 2; i++)
			ru_mark(g[i], &mark[i]);
		cs_sleep_ms(AUTO_SETTLE_MS);
		for (i = 0; i < 2; i++) {
			double share = ru_share(g[i], &mark[i], &home[i]);

			REQUIRE(share >= (i ? 95 : 100), "%.1f%% of the CPU time at home", share);
			/* Nothing spreads tasks over isolated CPUs but placement. */
			REQUIRE(isolated || i || ru_ran(g[i], &mark[i], &home[i]) >
				AUTO_SETTLE_MS * 1000000ull * 9 / 10 * g[i]->n, "CPUs of the partition idle");
		}

		end_partition(top, cg[0]);
		cs_sleep_ms(AUTO_SETTLE_MS);
		for (i = 0; i < 2; i++) {
			home[i] = home_of(cg[i]);
			REQUIRE(domains(&home[i]) == 1, "%d domains", domains(&home[i]));
		}
		REQUIRE(!common(&home[0], &home[1]), "both at the same place");
		stands_still(cg, 2, AUTO_SETTLE_MS);
	}
}

static void partition_root(const char *top)
{
	partition(top, "root");
}

static void partition_isolated(const char *top)
{
	partition(top, "isolated");
}

/* A partition of half of the machine, with two clusters in it: each has its part of the domains. */
static void partition_shared(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char parent[PATH_MAX], cg[3][PATH_MAX], name[16];
	cpu_set_t half, home[3];
	int i;

	if (topo->nr_llcs < 4)
		cs_skip("needs four LLC domains");
	cs_need_controller(top, "cpuset");
	cs_mkdir(parent, top, "partition");
	cs_enable(parent);
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		make(cg[i], i < 2 ? parent : top, name, "auto");
		spinners(cg[i], per_llc());
	}
	CPU_ZERO(&half);
	for (i = topo->nr_llcs / 2; i < topo->nr_llcs; i++)
		CPU_OR(&half, &half, &topo->llc[i]);
	make_partition(top, parent, "root", &half);
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	for (i = 0; i < 3; i++) {
		home[i] = home_of(cg[i]);
		REQUIRE(domains(&home[i]) == 1, "%d domains", domains(&home[i]));
		REQUIRE(common(&home[i], &half) == (i < 2 ? per_llc() : 0), "on the wrong side");
	}
	REQUIRE(!common(&home[0], &home[1]), "both at the same place");
	stands_still(cg, 3, AUTO_SETTLE_MS);
	end_partition(top, parent);
	cs_sleep_ms(AUTO_SETTLE_MS);
	/* Nothing is better elsewhere. */
	for (i = 0; i < 3; i++) {
		cpu_set_t now = home_of(cg[i]);

		REQUIRE(CPU_EQUAL(&now, &home[i]), "moved for nothing");
	}
}

/* A throttled cluster demands no more than it is allowed. */
static void bandwidth(const char *top)
{
	char cg[1][PATH_MAX], max[64];
	cpu_set_t home;

	if (ru_topo()->nr_llcs < 4)
		cs_skip("needs four LLC domains");
	cs_need_controller(top, "cpu");
	make(cg[0], top, "a", "auto");
	cs_write(cg[0], "cpu.max", "100000 100000");
	spinners(cg[0], 2 * per_llc());
	cs_sleep_ms(AUTO_SETTLE_MS);
	home = home_of(cg[0]);
	REQUIRE(domains(&home) == 1, "one CPU's worth has %d domains", domains(&home));
	snprintf(max, sizeof(max), "max 100000");
	cs_write(cg[0], "cpu.max", max);
	cs_sleep_ms(AUTO_SETTLE_MS);
	home = home_of(cg[0]);
	REQUIRE(domains(&home) == 2, "two domains' worth has %d", domains(&home));
}

/*
 * Eight children together get no more than their parent is allowed, one CPU, though each of them
 * would take all of it: the parent's home is one domain, and theirs are inside.  When the limit is
 * gone, they need more.
 */
static void bandwidth_above(const char *top)
{
	char all[9][PATH_MAX], name[16];
	cpu_set_t above, home;
	int i;

	if (ru_topo()->nr_llcs < 4)
		cs_skip("needs four LLC domains");
	cs_need_controller(top, "cpu");
	make(all[8], top, "parent", "auto");
	cs_write(all[8], "cpu.max", "100000 100000");
	cs_enable(all[8]);
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		make(all[i], all[8], name, "auto");
		spinners(all[i], 1);
	}
	cs_sleep_ms(AUTO_SETTLE_MS);
	above = home_of(all[8]);
	REQUIRE(domains(&above) == 1, "one CPU's worth has %d domains", domains(&above));
	for (i = 0; i < 8; i++) {
		home = home_of(all[i]);
		REQUIRE(CPU_EQUAL(&home, &above), "c%d is not where its parent is", i);
	}
	stands_still(all, 9, AUTO_SETTLE_MS);

	cs_write(all[8], "cpu.max", "max 100000");
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	above = home_of(all[8]);
	REQUIRE(domains(&above) == 8 / per_llc(), "8 CPUs' worth has %d domains", domains(&above));
	for (i = 0; i < 8; i++) {
		home = home_of(all[i]);
		REQUIRE(domains(&home) == 1 && common(&home, &above) == CPU_COUNT(&home),
			"c%d is not within its parent's home", i);
	}
}

/*
 * A batch cluster has no home where others need all CPUs, but has one there once it is not batch
 * any more: with four threads for each CPU, half or more of any domain is due to it then.  @file
 * of the cgroup @owner says whether it is batch; if @file is NULL, the policy of its tasks does.
 */
static void batch(const char *cg, const char *top, const char *owner, const char *file,
		  const char *yes, const char *no)
{
	cpu_set_t soaker, normal;
	struct ru_gang *g;
	char beside[PATH_MAX];
	int i;

	if (file)
		cs_write(owner, file, yes);
	g = ru_gang(&(struct ru_gang_opts){
		.n = 4 * ru_topo()->nr_cpus, .cg = cg, .policy = file ? SCHED_OTHER : SCHED_IDLE });
	cs_sleep_ms(AUTO_SETTLE_MS);
	home_of(cg);
	make(beside, top, "normal", "auto");
	spinners(beside, per_llc());
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	soaker = home_of(cg);
	normal = home_of(beside);
	REQUIRE(domains(&normal) == 1, "the normal one has %d domains", domains(&normal));
	REQUIRE(domains(&soaker) == ru_topo()->nr_llcs - 1, "the soaker has %d domains",
		domains(&soaker));
	REQUIRE(!common(&soaker, &normal), "the soaker is where the normal one is");

	if (file)
		cs_write(owner, file, no);
	for (i = 0; i < g->n && !file; i++)
		REQUIRE(!sched_setscheduler(g->w[i].tid, SCHED_OTHER, &(struct sched_param){ 0 }),
			"sched_setscheduler: %s", strerror(errno));
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	soaker = home_of(cg);
	home_of(beside);
	/* With two domains, only a cluster that is nearly alone has both as its home. */
	REQUIRE(ru_topo()->nr_llcs == 2 || domains(&soaker) == ru_topo()->nr_llcs,
		"no more batch, it has %d domains", domains(&soaker));
}

static void batch_idle(const char *top)
{
	char cg[PATH_MAX];

	cs_need_controller(top, "cpu");
	make(cg, top, "soaker", "auto");
	batch(cg, top, cg, "cpu.idle", "1", "0");
}

static void batch_weight(const char *top)
{
	char cg[PATH_MAX];

	cs_need_controller(top, "cpu");
	make(cg, top, "soaker", "auto");
	batch(cg, top, cg, "cpu.weight", "10", "100");
}

/* The weight of a cgroup above counts, too. */
static void batch_weight_above(const char *top)
{
	char slice[PATH_MAX], cg[PATH_MAX];

	cs_need_controller(top, "cpu");
	cs_mkdir(slice, top, "slice");
	cs_enable(slice);
	make(cg, slice, "soaker", "auto");
	batch(cg, top, slice, "cpu.weight", "1", "100");
}

static void batch_policy(const char *top)
{
	char cg[PATH_MAX];

	make(cg, top, "soaker", "auto");
	batch(cg, top, NULL, NULL, NULL, NULL);
}

/* All of a home goes offline, and comes back. */
static void hotplug(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	char cg[2][PATH_MAX];
	cpu_set_t home, gone = topo->llc[1];
	int cpu, i;

	if (CPU_ISSET(0, &gone))
		cs_skip("CPU 0 cannot go offline");
	for (i = 0; i < 2; i++) {
		make(cg[i], top, i ? "b" : "a", "auto");
		spinners(cg[i], per_llc());
	}
	cs_sleep_ms(AUTO_SETTLE_MS);
	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, &gone))
			continue;
		cs_set_online(cpu, false);
		for (i = 0; i < 2; i++) {
			home = home_of(cg[i]);
			REQUIRE(CPU_COUNT(&home), "no home");
			REQUIRE(!CPU_ISSET(cpu, &home), "an offline CPU is home");
		}
	}
	for (cpu = 0; cpu < RU_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &gone))
			cs_set_online(cpu, true);
	}
	cs_sleep_ms(2 * AUTO_SETTLE_MS);
	for (i = 0; i < 2; i++) {
		home = home_of(cg[i]);
		REQUIRE(domains(&home) == 1, "%d domains", domains(&home));
	}
	gone = home_of(cg[0]);
	REQUIRE(!common(&home, &gone), "both at the same place");
}

/*
 * CPUs isolated from load balancing are in no LLC domain and no home. A domain that has lost some
 * of its CPUs counts for the rest: each cluster has a domain to itself that is large enough.
 */
static void isolated(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	cpu_set_t gone = ru_isolated(), usable, left, home;
	char cg[RU_CPUS][PATH_MAX], name[16];
	struct ru_gang *g[RU_CPUS];
	struct ru_mark mark = { };
	int i, n = 0;

	usable = ru_minus(&topo->online, &gone);

	/* A cluster for each domain that is left, with a task for each CPU, small domains first. */
	for (i = 0; i < topo->nr_llcs; i++) {
		left = ru_and(&topo->llc[i], &usable);
		if (!CPU_COUNT(&left))
			continue;
		snprintf(name, sizeof(name), "c%d", n);
		make(cg[n], top, name, "auto");
		g[n] = spinners(cg[n], CPU_COUNT(&left));
		n++;
	}
	REQUIRE(n > 1, "needs CPUs in two LLC domains that are not isolated");
	cs_sleep_ms(AUTO_SETTLE_MS);
	CPU_ZERO(&left);
	for (i = 0; i < n; i++) {
		home = home_of(cg[i]);
		REQUIRE(CPU_COUNT(&home) >= g[i]->n, "%d CPUs for %d tasks", CPU_COUNT(&home),
			g[i]->n);
		REQUIRE(!common(&home, &gone), "an isolated CPU is home");
		REQUIRE(!common(&home, &left), "c%d is where others are", i);
		CPU_OR(&left, &left, &home);
	}
	REQUIRE(CPU_EQUAL(&left, &usable), "a CPU is nobody's home");
	stands_still(cg, n, 500);
	for (i = 0; i < n; i++)
		REQUIRE(!ru_ran(g[i], &mark, &gone), "tasks were sent to an isolated CPU");
}

/*
 * Patterns of load that are not even.  A cluster whose load is at the limit of what its home
 * holds may cross that limit once, late; but no home goes to and fro.
 */
static void no_oscillation(const char *top)
{
	static const struct {
		unsigned int busy_us, sleep_us;
	} patterns[] = {
		{ 500, 500 }, { 3000, 1000 }, { 1000, 9000 }, { 20000, 5000 }, { 200, 50 },
	};
	char cg[3][PATH_MAX], name[16];
	struct ru_gang *g[3];
	long long before[3];
	int p, i;

	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		make(cg[i], top, name, "auto");
	}
	for (p = 0; p < ARRAY_LEN(patterns); p++) {
		for (i = 0; i < 3; i++)
			g[i] = ru_gang(&(struct ru_gang_opts){
				.n = (i + 1) * per_llc() / 2, .cg = cg[i],
				.busy_us = patterns[(p + i) % ARRAY_LEN(patterns)].busy_us,
				.sleep_us = patterns[(p + i) % ARRAY_LEN(patterns)].sleep_us });
		cs_sleep_ms(AUTO_SETTLE_MS);
		for (i = 0; i < 3; i++)
			before[i] = cs_stat(cg[i], "home_changes");
		cs_sleep_ms(2000);
		for (i = 0; i < 3; i++) {
			long long n = cs_stat(cg[i], "home_changes") - before[i];

			REQUIRE(n <= 1, "pattern %d: c%d moved %lld times", p, i, n);
			ru_end(g[i]);
		}
	}
}

/* Clusters come and go under the kernel's worker; each has a home while it exists. */
static void churn(const char *top)
{
	char cg[200][PATH_MAX], list[1024], name[16];
	pid_t pid[200] = { };
	unsigned int seed = 1;
	int i, n;

	for (n = 0; n < 600; n++) {
		i = rand_r(&seed) % 200;
		if (!pid[i]) {
			snprintf(name, sizeof(name), "c%d", i);
			make(cg[i], top, name, "auto");
			pid[i] = cs_spinner(cg[i]);
			cs_stop(pid[i]);
			cs_read(cg[i], CS_HOME, list, sizeof(list));
			REQUIRE(list[0], "a cluster without home");
		} else {
			cs_kill(pid[i]);
			pid[i] = 0;
			cs_rmdir(cg[i]);
		}
	}
}

static const struct cs_test tests[] = {
	{ "file", file, 0 },
	{ "hierarchy", hierarchy, 0 },
	{ "new_ones_part", new_ones_part, 0 },
	{ "running_ones_stay", running_ones_stay, 0 },
	{ "running_ones_stay_below", running_ones_stay_below, 0 },
	{ "running_ones_stay_by_hand", running_ones_stay_by_hand, 0 },
	{ "running_ones_fit", running_ones_fit, 0 },
	{ "running_ones_part", running_ones_part, 0 },
	{ "equal_full", equal_full, 0 },
	{ "equal_twice", equal_twice, 0 },
	{ "autogroups", autogroups, 0 },
	{ "core_cookies_full", core_cookies_full, 0 },
	{ "core_cookies_twice", core_cookies_twice, 0 },
	{ "uneven", uneven, 0 },
	{ "many_small", many_small, 0 },
	{ "crowd_spreads", crowd_spreads, 0 },
	{ "grows_and_shrinks", grows_and_shrinks, 0 },
	{ "bursts", bursts, 0 },
	{ "overruns", overruns, 0 },
	{ "beside_others", beside_others, 0 },
	{ "limited_cpus", limited_cpus, 0 },
	{ "limited_cpus_below", limited_cpus_below, 0 },
	{ "partition_root", partition_root, 0 },
	{ "partition_isolated", partition_isolated, 0 },
	{ "partition_shared", partition_shared, 0 },
	{ "bandwidth", bandwidth, 0 },
	{ "bandwidth_above", bandwidth_above, 0 },
	{ "batch_idle", batch_idle, 0 },
	{ "batch_weight", batch_weight, 0 },
	{ "batch_weight_above", batch_weight_above, 0 },
	{ "batch_policy", batch_policy, 0 },
	{ "hotplug", hotplug, 0 },
	{ "isolated", isolated, 0 },
	{ "no_oscillation", no_oscillation, 0 },
	{ "churn", churn, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests automatic homes.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
