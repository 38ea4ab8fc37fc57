// SPDX-License-Identifier: GPL-2.0
/*
 * How much tasks of the idle class leave idle, by rule 5 of placement. For a guest of its own in
 * parallel virtual time: how often a CPU that runs out of work looks for some depends on how long
 * that took before, in other tests.
 */

#include "rules_util.h"

/*
 * A CPU that is idle for a moment may take a task of the idle class, too: beside a cluster that
 * sleeps and runs briefly, and has the other domain as its home, soakers use all CPUs of both.
 */
static void idle_class_soaks(const char *top)
{
	const struct ru_topo *topo = ru_topo();
	const cpu_set_t *home = topo->llc;
	int n = CPU_COUNT(&home[0]) + CPU_COUNT(&home[1]);
	char brief[512], batch[512];
	struct ru_gang *g[2];
	cpu_set_t both;
	uint64_t from;
	double idle;

	CPU_OR(&both, &home[0], &home[1]);
	cs_need_controller(top, "cpu");
	cs_mkdir(brief, top, "brief");
	ru_prefer(brief, &home[0]);
	cs_mkdir(batch, top, "batch");
	cs_write(batch, "cpu.idle", "1");
	ru_prefer(batch, &home[1]);
	g[0] = ru_gang(&(struct ru_gang_opts){
		.n = CPU_COUNT(&home[0]) * 3 / 2, .cg = brief, .start = home[0], .busy_us = 100,
		.sleep_us = 900, .log = true });
	g[1] = ru_gang(&(struct ru_gang_opts){
		.n = n, .cg = batch, .start = home[1], .log = true });
	ru_allow(g[0], &both);
	ru_allow(g[1], &both);
	cs_sleep_ms(SETTLE_MS);
	from = ru_now();
	cs_sleep_ms(1000);
	idle = ru_idle(g, 2, &both, from, ru_now());
	ru_figure(idle, "%", "idle while tasks of the idle class wait at home");
	REQUIRE(idle <= 1.2, "CPUs idle, and tasks of the idle class wait at home");
}

static const struct cs_test tests[] = {
	{ "idle_class_soaks", idle_class_soaks, 120 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Measures what tasks of the idle class leave idle.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
