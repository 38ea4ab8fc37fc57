// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the arithmetic of cosched: load and the comparison of rule 4.
 * Included by cosched.c.
 */
#include <kunit/test.h>

/* Time runs on a grid of 1024 ns; a period of decay has 1024 of those. */
#define TEST_PERIOD	1024ULL

/*
 * Reference: y^n in fixed point with 62 fractional bits, by multiplying n times
 * with y = 2^(-1/32). Slow and obvious, unlike decay_load().
 */
#define TEST_Y		4512914048937386751ULL	/* 2^62 * 2^(-1/32) */

static u64 test_pow_y(unsigned int n)
{
	u64 r = 1ULL << 62;

	while (n--)
		r = mul_u64_u64_shr(r, TEST_Y, 62);
	return r;
}

/* Sum over each 1024 ns unit in [from, to) of y^(periods until now). */
static u64 test_contrib(u64 from, u64 to, u64 now)
{
	u64 sum = 0, t = from;

	while (t < to) {
		u64 end = min(to, (t / TEST_PERIOD + 1) * TEST_PERIOD);

		sum += mul_u64_u64_shr(end - t, test_pow_y(now / TEST_PERIOD - t / TEST_PERIOD),
				       62 - 10);
		t = end;
	}
	return sum >> 10;
}

/*
 * Two sums of decayed microseconds agree but for rounding. That is 0.2 %: PELT
 * rounds down in each period, its LOAD_AVG_MAX is 0.1 % below the exact limit.
 */
static void test_expect_near(struct kunit *test, u64 value, u64 reference)
{
	KUNIT_EXPECT_LE_MSG(test, abs_diff(value, reference), reference / 500 + 2,
			    "%llu is not near %llu", value, reference);
}

static void cosched_test_contrib(struct kunit *test)
{
	static const u64 stretches[][2] = {
		{ 0, 0 }, { 0, 1 }, { 5, 900 }, { 0, 1024 }, { 1023, 1024 }, { 1000, 1100 },
		{ 512, 2560 }, { 7, 32 * 1024 }, { 100, 65 * 1024 + 3 }, { 1, 400 * 1024 },
	};
	struct cosched_cpu cc = { };
	int i;

	for (i = 0; i < ARRAY_SIZE(stretches); i++) {
		u64 from = stretches[i][0], to = stretches[i][1];

		test_expect_near(test, cosched_contrib(from, to), test_contrib(from, to, to));
	}
	/* A task that runs for ever has all there is: PELT's maximum. */
	KUNIT_EXPECT_EQ(test, cosched_contrib(0, 4000 * TEST_PERIOD), LOAD_AVG_MAX - 1024);
	/* Nor is that ever more. */
	cosched_add_util(&cc, 4000 * TEST_PERIOD << 10, 4000 * TEST_PERIOD << 10);
	cosched_add_util(&cc, 4000 * TEST_PERIOD << 10, 4000 * TEST_PERIOD << 10);
	KUNIT_EXPECT_EQ(test, cc.util_sum, LOAD_AVG_MAX);
}

static void cosched_test_half_life(struct kunit *test)
{
	struct cosched_cpu cc = { .nr_runnable = 0, .util_sum = 40000, .runnable_sum = 80000 };

	cosched_advance(&cc, 32 * TEST_PERIOD << 10);
	test_expect_near(test, cc.util_sum, 20000);
	test_expect_near(test, cc.runnable_sum, 40000);
	/* Five more: from one half-life in all to six. */
	cosched_advance(&cc, 6 * 32 * TEST_PERIOD << 10);
	test_expect_near(test, cc.util_sum, 40000 / 64);
	/* An hour later nothing is left, and the clock may jump without harm. */
	cosched_advance(&cc, 3600ULL * NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, cc.util_sum, 0);
	KUNIT_EXPECT_EQ(test, cc.runnable_sum, 0);
}

/* However time is cut into updates, the sums are those of the reference. */
static void cosched_test_advance(struct kunit *test)
{
	static const unsigned int steps[] = { 1, 700, 3, 1024, 2048, 333, 90000, 17, 5000, 1023 };
	static const u16 nrs[] = { 1, 0, 2, 7, 3, 0, 1, 100, 4, 1 };
	struct cosched_cpu cc = { };
	u64 now = 0, ref = 0, t = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(steps); i++)
		now += steps[i];
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		cc.nr_runnable = nrs[i];
		ref += nrs[i] * test_contrib(t, t + steps[i], now);
		t += steps[i];
		/* Below the grid, several updates within a unit are none. */
		cosched_advance(&cc, (t << 10) - 1);
		cosched_advance(&cc, t << 10);
		cosched_advance(&cc, (t << 10) + 1);
	}
	KUNIT_EXPECT_EQ(test, cc.last, t << 10);
	test_expect_near(test, cc.runnable_sum, ref);
}

static void cosched_test_load_avg(struct kunit *test)
{
	struct cosched_cpu cc = { .nr_runnable = 3 };
	struct cosched_load load;
	u64 now = 12345 << 10;
	int i;

	/* One task runs and two wait, for 50 half-lives, charged every ms or so. */
	cosched_advance(&cc, now);
	for (i = 0; i < 1700; i++) {
		u64 from = now;

		now += 976563 + i;
		cosched_advance(&cc, now);
		cc.util_sum += cosched_contrib(from >> 10, now >> 10);
	}
	cosched_load_avg(&cc, &load);
	test_expect_near(test, load.util, SCHED_CAPACITY_SCALE);
	test_expect_near(test, load.runnable, 3 * SCHED_CAPACITY_SCALE);

	/* The most tasks that nr_runnable can count do not overflow. */
	cc.nr_runnable = U16_MAX;
	cosched_advance(&cc, now + 10ULL * NSEC_PER_SEC);
	cosched_load_avg(&cc, &load);
	test_expect_near(test, load.runnable, (u64)U16_MAX << SCHED_CAPACITY_SHIFT);
}

struct cosched_test_compare {
	unsigned int	preferred, allowed;
	unsigned long	home;
	unsigned int	home_nr;
	unsigned long	load;
	unsigned int	nr;
	bool		cheaper;
};

/* Rule 4: preferred * load(home) > allowed * load(D), loads being means. */
static void cosched_test_cheaper(struct kunit *test)
{
	static const struct cosched_test_compare cases[] = {
		/* Balanced: never, whatever the size of the domains. */
		{ 100, 150, 4096, 4, 4096, 4, false },
		{ 100, 150, 4096, 4, 16384, 16, false },
		/* Nothing anywhere is no reason to go. */
		{ 100, 150, 0, 4, 0, 4, false },
		/* An idle domain is cheaper than any load. */
		{ 100, 150, 1, 4, 0, 4, true },
		/* The margin: just not, and just. */
		{ 100, 150, 6144, 4, 4096, 4, false },
		{ 100, 150, 6145, 4, 4096, 4, true },
		/* 12 threads against 4 on domains of 4. */
		{ 100, 150, 12288, 4, 4096, 4, true },
		{ 1, 100, 12288, 4, 4096, 4, false },
		{ 4, 1000, 12288, 4, 4096, 4, false },
		{ 100, 100, 4097, 4, 4096, 4, true },
		{ 100, 100, 4096, 4, 4096, 4, false },
		/* Means, not sums: a small home is as full as a large domain. */
		{ 100, 150, 2048, 1, 8192, 8, true },
		{ 100, 150, 1024, 1, 8192, 8, false },
		/* The largest values do not overflow. */
		{ 10000, 10000, 1UL << 31, 4096, (1UL << 31) - 1, 4096, true },
		{ 10000, 10000, 1UL << 31, 4096, 1UL << 31, 4096, false },
		{ 10000, 1, 1, 4096, 0, 1, true },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct cosched_test_compare *c = &cases[i];

		KUNIT_EXPECT_EQ_MSG(test, c->cheaper,
				    cosched_cheaper(c->preferred << 16 | c->allowed, c->home,
						    c->home_nr, c->load, c->nr),
				    "case %d", i);
	}
}

/* A mean forgets half in 22 wakeups, that it never slept after a few. */
static void cosched_test_mean_run(struct kunit *test)
{
	u32 mean = 1024;
	int i;

	for (i = 0; i < 22; i++)
		mean = cosched_mean_run(mean, 0, COSCHED_MEAN_RUNS);
	KUNIT_EXPECT_GE(test, mean, 512);
	KUNIT_EXPECT_LE(test, mean, 540);

	mean = COSCHED_RUN_MAX;
	for (i = 1; i <= 10; i++) {
		mean = cosched_mean_run(mean, 100, i);
		/* 2 / ((i + 1) * (i + 2)) is left of what it was; divisions lose one each. */
		KUNIT_EXPECT_LE(test, mean, 100 + 2 * COSCHED_RUN_MAX / ((i + 1) * (i + 2)) + 10);
		KUNIT_EXPECT_GE(test, mean, 100);
	}
	KUNIT_EXPECT_GT(test, cosched_mean_run(COSCHED_RUN_MAX, 100, 1), COSCHED_RUN_MAX / 4);

	/* Longer than the maximum, up to the longest that is not taken for shorter. */
	KUNIT_EXPECT_EQ(test, COSCHED_RUN_MAX,
			cosched_mean_run(COSCHED_RUN_MAX, U32_MAX, COSCHED_MEAN_RUNS));
	KUNIT_EXPECT_EQ(test, 100, cosched_mean_run(100, 100, COSCHED_MEAN_RUNS));
}

/* Weights are published as a pair. */
static void cosched_test_weights(struct kunit *test)
{
	struct cosched_cluster cl = { };

	cosched_cluster_set_weights(&cl, COSCHED_WEIGHT_MAX, COSCHED_WEIGHT_MIN);
	KUNIT_EXPECT_EQ(test, cl.weights >> 16, COSCHED_WEIGHT_MAX);
	KUNIT_EXPECT_EQ(test, cl.weights & 0xffff, COSCHED_WEIGHT_MIN);
}

/* Whether tasks wait at a home of 4 CPUs, by how long they run there and outside. */
static void cosched_test_judge(struct kunit *test)
{
	static const struct {
		u32 home, outside;	/* us */
		u32 load, room;		/* percent of a CPU */
		u16 preferred, allowed;
		enum cosched_review_reason want;
	} cases[] = {
		{ 100, 100, 400, 400, 100, 150, COSCHED_REVIEW_FITS },
		{ 100, 100, 600, 190, 100, 150, COSCHED_REVIEW_FULL },
		{ 100, 100, 600, 210, 100, 150, COSCHED_REVIEW_APART },
		/* To wait takes half as long again. */
		{ 100, 149, 600, 400, 100, 150, COSCHED_REVIEW_APART },
		{ 100, 151, 600, 400, 100, 150, COSCHED_REVIEW_DEAR },
		{ 20, 29, 600, 400, 100, 150, COSCHED_REVIEW_APART },
		/* Weights are what leaving is said to cost, against the default ones. */
		{ 100, 223, 600, 400, 100, 100, COSCHED_REVIEW_APART },
		{ 100, 227, 600, 400, 100, 100, COSCHED_REVIEW_DEAR },
		{ 100, 100, 600, 400, 1, 100, COSCHED_REVIEW_DEAR },
		{ 100, 10000, 600, 400, 10000, 1, COSCHED_REVIEW_APART },
		/* Large ones, and none that was measured. */
		{ COSCHED_RUN_MAX, COSCHED_RUN_MAX, U32_MAX, U32_MAX, 10000, 10000,
		  COSCHED_REVIEW_APART },
		{ 0, 0, 600, 400, 100, 150, COSCHED_REVIEW_DEAR },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_review r = {
			.run = { cases[i].home, cases[i].outside },
			.load = (u64)cases[i].load * SCHED_CAPACITY_SCALE / 100,
			.tasks = (u64)cases[i].load * SCHED_CAPACITY_SCALE / 100,
			.capacity = 4 * SCHED_CAPACITY_SCALE,
			.room = (u64)cases[i].room * SCHED_CAPACITY_SCALE / 100,
		};

		KUNIT_EXPECT_EQ_MSG(test, cosched_judge(&r, cases[i].preferred << 16 |
							cases[i].allowed),
				    cases[i].want, "case %d", i);
	}
}

/* Whether a home of 4 CPUs is full at times for nothing, by runs there and outside. */
static void cosched_test_judge_bursts(struct kunit *test)
{
	static const struct {
		u32 home, outside;	/* us */
		u32 nr_home, nr_outside;
		u32 load, room;		/* CPUs */
		bool mine, want;
	} cases[] = {
		{ 100, 100, 31, 8, 1, 4, true, true },
		{ 100, 100, 32, 8, 1, 4, true, false },
		/* Others are there. */
		{ 100, 100, 31, 8, 1, 4, false, false },
		/* Runs outside are longer. */
		{ 100, 125, 30, 100, 1, 4, true, true },
		{ 100, 126, 30, 100, 1, 4, true, false },
		/* More than home has CPUs, and more than there are. */
		{ 100, 100, 30, 100, 6, 2, true, true },
		{ 100, 100, 30, 100, 6, 1, true, false },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_review r = {
			.run = { cases[i].home, cases[i].outside },
			.nr = { cases[i].nr_home, cases[i].nr_outside },
			.load = cases[i].load * SCHED_CAPACITY_SCALE,
			.capacity = 4 * SCHED_CAPACITY_SCALE,
			.room = cases[i].room * SCHED_CAPACITY_SCALE,
			.mine = cases[i].mine,
		};

		KUNIT_EXPECT_EQ_MSG(test, cosched_judge_bursts(&r), cases[i].want, "case %d", i);
	}
}

/* Is there room to try whether a cluster with a home of 4 of 16 CPUs runs as well anywhere? */
static void cosched_test_judge_trial(struct kunit *test)
{
	static const struct {
		u32 load, others;	/* percent of a CPU */
		bool want;
	} cases[] = {
		{ 50, 0, true }, { 400, 399, true }, { 401, 0, false }, { 50, 400, false },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_review r = {
			.load = (u64)cases[i].load * SCHED_CAPACITY_SCALE / 100,
			.others = (u64)cases[i].others * SCHED_CAPACITY_SCALE / 100,
			.capacity = 4 * SCHED_CAPACITY_SCALE,
			.total = 16 * SCHED_CAPACITY_SCALE,
		};

		KUNIT_EXPECT_EQ_MSG(test, cosched_judge_trial(&r), cases[i].want, "case %d", i);
	}
}

/* Counts @nr runs of @us, at home or outside, and lets a phase of the trial of @cl be over. */
static void cosched_test_trial_phase(struct cosched_cluster *cl, int outside, u32 us, int nr)
{
	while (nr--)
		atomic64_add(COSCHED_RUNS_ONE(us), &cl->runs[outside]);
	cosched_trial_go_on(cl);
	cl->trial.from = jiffies - COSCHED_TRIAL_PHASE;
	cosched_trial_go_on(cl);
}

/* Is all of the machine home of @cl, if it was reviewed just now? */
static bool cosched_test_everywhere(struct cosched_cluster *cl)
{
	cl->apart.reviewed = jiffies;
	return cosched_everywhere(cl);
}

/* A trial is passed where runs take hardly longer anywhere than at home. */
static void cosched_test_trial(struct kunit *test)
{
	static const struct {
		u32 home, spread;	/* us */
		int nr_home, nr_spread;
		bool want;
		unsigned int wait;	/* in COSCHED_TRIAL_MIN, for the next one, after that */
	} cases[] = {
		{ 80, 91, COSCHED_TRIAL_RUNS, COSCHED_TRIAL_RUNS, false, 2 },
		{ 80, 160, 1000, 1000, false, 4 },
		{ 80, 90, COSCHED_TRIAL_RUNS, COSCHED_TRIAL_RUNS, true, 1 },
		/* Of too few, nothing is known. */
		{ 80, 80, COSCHED_TRIAL_RUNS - 1, 1000, false, 2 },
		{ 80, 80, 1000, COSCHED_TRIAL_RUNS - 1, false, 4 },
		{ 80, 160, 1000, 1000, false, 8 },
		{ 80, 160, 1000, 1000, false, 16 },
		{ 80, 160, 1000, 1000, false, 32 },
		{ 80, 160, 1000, 1000, false, 64 },
		{ 80, 160, 1000, 1000, false, 64 },
		{ 80, 40, 1000, 1000, true, 1 },
	};
	struct cosched_cluster *cl = cosched_cluster_alloc(0);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, cl);
	KUNIT_EXPECT_FALSE(test, cosched_bursts(cl));
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		cosched_trial_begin(cl);
		KUNIT_EXPECT_FALSE(test, cosched_test_everywhere(cl));
		/* Whatever the last one found. */
		KUNIT_EXPECT_FALSE_MSG(test, cosched_bursts(cl), "case %d", i);
		cosched_test_trial_phase(cl, 0, cases[i].home, cases[i].nr_home);
		KUNIT_EXPECT_EQ_MSG(test, cosched_test_everywhere(cl),
				    cases[i].nr_home >= COSCHED_TRIAL_RUNS, "case %d", i);
		if (cl->trial.phase) {
			/* Until caches are warm, runs do not count. */
			cosched_test_trial_phase(cl, 1, COSCHED_RUN_MAX, 1000);
			KUNIT_EXPECT_EQ(test, cl->trial.phase, COSCHED_TRIAL_SPREAD);
			cosched_test_trial_phase(cl, 1, cases[i].spread, cases[i].nr_spread);
		}
		KUNIT_EXPECT_EQ(test, cl->trial.phase, COSCHED_TRIAL_NONE);
		KUNIT_EXPECT_FALSE(test, cosched_test_everywhere(cl));
		KUNIT_EXPECT_EQ_MSG(test, cosched_bursts(cl), cases[i].want, "case %d", i);
		KUNIT_EXPECT_EQ_MSG(test, cl->trial.wait, cases[i].wait * COSCHED_TRIAL_MIN,
				    "case %d", i);
	}
	cl->trial.from = jiffies - COSCHED_TRIAL_HOLDS;
	KUNIT_EXPECT_FALSE(test, cosched_bursts(cl));
	cosched_cluster_put(cl);
}

/* One is tried after three reviews in a row, for an automatic home, and not soon again. */
static void cosched_test_review_bursts(struct kunit *test)
{
	static const struct {
		u32 outside;		/* us; 80 at home */
		unsigned long since;	/* the last trial */
		bool mine, automatic, tried, bursts, overrun;
	} cases[] = {
		{ .outside = 160, .since = HZ, .mine = true, .automatic = true, .overrun = true },
		{ .outside = 160, .since = HZ, .mine = true, .automatic = true, .tried = true },
		{ .outside = 160, .since = HZ, .mine = true, .automatic = false },
		{ .outside = 160, .since = HZ / 2, .mine = true, .automatic = true },
		{ .outside = 160, .since = HZ, .mine = false, .automatic = true },
		{ .outside = 100, .since = HZ, .mine = true, .automatic = true, .bursts = true },
	};
	struct cosched_review r = {
		.nr = { COSCHED_REVIEW_RUNS, COSCHED_REVIEW_RUNS },
		.load = SCHED_CAPACITY_SCALE,
		.capacity = 4 * SCHED_CAPACITY_SCALE,
		.total = 16 * SCHED_CAPACITY_SCALE,
	};
	int i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_cluster *cl = cosched_cluster_alloc(0);

		KUNIT_ASSERT_NOT_NULL(test, cl);
		cl->asked = jiffies - !cases[i].automatic * HZ;
		cl->trial.from = jiffies - cases[i].since;
		cl->overruns = cases[i].overrun * COSCHED_OVERRUN_REVIEWS;
		r.run[0] = 80;
		r.run[1] = cases[i].outside;
		r.mine = cases[i].mine;
		for (j = 0; j < COSCHED_BURSTS_REVIEWS; j++) {
			KUNIT_EXPECT_EQ(test, cl->trial.phase, COSCHED_TRIAL_NONE);
			KUNIT_EXPECT_FALSE(test, cosched_bursts(cl));
			cl->apart.reviewed = jiffies;
			cosched_review_bursts(cl, &r);
		}
		KUNIT_EXPECT_EQ_MSG(test, cl->trial.phase,
				    cases[i].tried * COSCHED_TRIAL_HOME,
				    "case %d", i);
		KUNIT_EXPECT_EQ_MSG(test, cosched_bursts(cl), cases[i].bursts, "case %d", i);
		cosched_cluster_put(cl);
	}
}

/* Who is better apart comes in bursts, if runs outside take hardly longer. */
static void cosched_test_go_apart(struct kunit *test)
{
	struct cosched_review r = {
		.run = { 80, 101 },
		.nr = { COSCHED_REVIEW_RUNS, COSCHED_REVIEW_RUNS },
		.load = 5 * SCHED_CAPACITY_SCALE,
		.capacity = 4 * SCHED_CAPACITY_SCALE,
		.room = 4 * SCHED_CAPACITY_SCALE,
		.mine = true,
	};
	struct cosched_cluster *cl = cosched_cluster_alloc(0);

	KUNIT_ASSERT_NOT_NULL(test, cl);
	cosched_go_apart(cl, &r);
	KUNIT_EXPECT_EQ(test, cl->apart.lasts, COSCHED_APART_MIN);
	KUNIT_EXPECT_EQ(test, cl->bursts, 0);
	r.run[1] = 100;
	cosched_go_apart(cl, &r);
	KUNIT_EXPECT_EQ(test, cl->apart.lasts, 2 * COSCHED_APART_MIN);
	KUNIT_EXPECT_EQ(test, cl->bursts, COSCHED_BURSTS_REVIEWS);
	cosched_end_apart(&cl->apart);
	KUNIT_EXPECT_FALSE(test, cosched_apart(cl));
	KUNIT_EXPECT_EQ(test, cl->apart.next, COSCHED_APART_MIN);
	cosched_cluster_put(cl);
}

/* How many reviews it takes until one says something, and what it says of the next time. */
static void cosched_test_count_review(struct kunit *test)
{
	static const struct {
		enum cosched_review_reason reason;
		bool again;			/* were they apart before? */
		unsigned int needed;
		unsigned int next;		/* then, times the least */
	} cases[] = {
		{ COSCHED_REVIEW_APART, false, COSCHED_REVIEWS, 1 },
		{ COSCHED_REVIEW_APART, true, COSCHED_REVIEWS_AGAIN, 2 },
		{ COSCHED_REVIEW_DEAR, false, COSCHED_REVIEWS, 1 },
		{ COSCHED_REVIEW_DEAR, true, COSCHED_REVIEWS, 1 },
		{ COSCHED_REVIEW_FITS, true, COSCHED_REVIEWS, 2 },
		{ COSCHED_REVIEW_FULL, true, COSCHED_REVIEWS, 2 },
	};
	int i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_apart a = { .next = COSCHED_APART_MIN << cases[i].again };

		for (j = 1; j <= COSCHED_REVIEWS; j++) {
			/* Nothing is counted of which too little is known. */
			KUNIT_EXPECT_FALSE(test, cosched_count_review(&a, cases[i].reason, false));
			KUNIT_EXPECT_EQ_MSG(test, cosched_count_review(&a, cases[i].reason, true),
					    j >= cases[i].needed, "case %d, review %d", i, j);
		}
		KUNIT_EXPECT_EQ_MSG(test, a.next, COSCHED_APART_MIN * cases[i].next, "case %d", i);
	}
}

/* Whether a cluster overruns a machine of 16 CPUs, by what it and others do. */
static void cosched_test_judge_overrun(struct kunit *test)
{
	static const struct {
		u32 own, others;	/* percent of a CPU */
		u16 preferred, allowed;
		bool before, want, alone;
	} cases[] = {
		{ 1800, 0, 100, 150, false, false },
		{ 1801, 0, 100, 150, false, true },
		{ 1801, 199, 100, 150, false, true },
		{ 6400, 201, 100, 150, false, false },
		/* It ends later than it begins. */
		{ 1601, 0, 100, 150, true, true },
		{ 1600, 0, 100, 150, true, false },
		{ 1800, 399, 100, 150, true, true },
		{ 6400, 401, 100, 150, true, false },
		/* What others had counts less where none of them is runnable. */
		{ 1801, 201, 100, 150, false, false },
		{ 1801, 399, 100, 150, false, true, true },
		{ 6400, 401, 100, 150, false, false, true },
		{ 1800, 0, 100, 150, false, false, true },
		/* Weights that hold it ask for more, those that do not for no less. */
		{ 3600, 0, 100, 300, false, false },
		{ 3601, 0, 100, 300, false, true },
		{ 3200, 0, 100, 300, true, false },
		{ 6400, 0, 1, 100, false, false },
		{ 1800, 0, 100, 100, false, false },
		{ 1801, 0, 100, 100, false, true },
		{ 1600, 0, 10000, 1, true, false },
		/* As large as they can be: 4096 tasks on each of 4096 CPUs. */
		{ U32_MAX, 0, 10000, 10000, false, true },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_review r = {
			.own = (u64)cases[i].own * SCHED_CAPACITY_SCALE / 100,
			.others = (u64)cases[i].others * SCHED_CAPACITY_SCALE / 100,
			.total = 16 * SCHED_CAPACITY_SCALE,
			.alone = cases[i].alone,
		};

		KUNIT_EXPECT_EQ_MSG(test, cosched_judge_overrun(&r, cases[i].preferred << 16 |
								cases[i].allowed, cases[i].before),
				    cases[i].want, "case %d", i);
	}
}

/*
 * One review is not enough for that, unless there is nobody else, nor is one to end it, unless it
 * finds others.
 */
static void cosched_test_count_overruns(struct kunit *test)
{
	static const u32 weights = COSCHED_WEIGHT_PREFERRED << 16 | COSCHED_WEIGHT_ALLOWED;
	struct cosched_review r = { .total = 16 * SCHED_CAPACITY_SCALE };
	static const struct {
		u32 own;	/* tasks */
		u8 want;
		bool alone;
		u32 nr_own, others;
	} reviews[] = {
		/* Less than it takes to begin with is enough to go on, but not to begin again. */
		{ 19, 1 }, { 17, 0 }, { 19, 1 }, { 19, 2 }, { 17, 3 }, { 64, 3 },
		{ 16, 2 }, { 17, 3 }, { 16, 2 }, { 16, 0 }, { 17, 0 },
		/* Not yet for sure. */
		{ 19, 1 }, { 19, 2 }, { 16, 0 },
		{ 17, 0, true }, { 19, 3, true }, { 17, 3, true }, { 16, 2, true }, { 16, 0, true },
		{ 19, 1 }, { 19, 3, true }, { 19, 0, false, 0, 4 },
		/* Where it has less to do, too. */
		{ 19, 3, true }, { 8, 0, false, 0, 4 }, { 19, 3, true }, { 8, 2, false, 0, 3 },
		{ 8, 0 },
		/* Those who are runnable now count where nobody else is. */
		{ 4, 0, false, 64 }, { 4, 0, true, 18 }, { 4, 3, true, 19 }, { 4, 3, true, 17 },
		{ 4, 2, true, 16 }, { 4, 0, true, 16 }, { 4, 3, true, 64 }, { 4, 2, false, 64 },
		{ 4, 0, false, 64 },
	};
	u8 overruns = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(reviews); i++) {
		r.own = reviews[i].own * SCHED_CAPACITY_SCALE;
		r.alone = reviews[i].alone;
		r.nr_own = reviews[i].nr_own;
		r.others = reviews[i].others * SCHED_CAPACITY_SCALE;
		overruns = cosched_count_overruns(&r, weights, overruns);
		KUNIT_EXPECT_EQ_MSG(test, overruns, reviews[i].want, "review %d", i);
	}
}

/* How dear leaving is, from what it was before and what was seen less an eighth, in percent. */
static void cosched_test_judge_dear(struct kunit *test)
{
	static const struct {
		u32 home, outside;	/* us */
		u32 nr_home, nr_outside;
		u32 before, want;
	} cases[] = {
		/* As many runs as what was before counts for: the mean. */
		{ 800, 1700, 12, 16, 100, 250 },
		{ 800, 1700, 12, 16, 400, 400 },
		{ 800, 1300, 12, 16, 225, 225 },
		{ 800, 900, 12, 16, 300, 200 },
		{ 100, 100, 12, 16, 300, 200 },
		/* Few hardly count, many not for all. */
		{ 800, 1300, 12, 1, 100, 107 },
		{ 800, 1700, 1000, 64, 100, 340 },
		{ 800, 1700, 1000, 100000, 100, 340 },
		/* It is cheap to leave, or dearer than can be. */
		{ 200, 100, 12, 16, 100, 100 },
		{ 100, 100000, 12, 64, 400, 400 },
		{ 1, COSCHED_RUN_MAX, 12, 16, 100, 250 },
		/* Not seen: a little is forgotten, and nothing of nothing. */
		{ 100, 200, 11, 16, 292, 280 },
		{ 100, 0, 12, 0, 292, 280 },
		{ 0, 100, 12, 16, 292, 280 },
		{ 100, 0, 12, 0, 100, 100 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cosched_review r = {
			.run = { cases[i].home, cases[i].outside },
			.nr = { cases[i].nr_home, cases[i].nr_outside },
		};
		u32 dear = cosched_judge_dear(&r, cases[i].before * SCHED_CAPACITY_SCALE / 100);

		KUNIT_EXPECT_EQ_MSG(test, DIV_ROUND_CLOSEST(dear * 100, SCHED_CAPACITY_SCALE),
				    cases[i].want, "case %d", i);
	}
}

/* What is not seen any more is half forgotten after 11 reviews, and then all of it. */
static void cosched_test_forget_dear(struct kunit *test)
{
	struct cosched_review r = { };
	u32 dear = 3 * SCHED_CAPACITY_SCALE;
	int i;

	for (i = 0; i < 11; i++)
		dear = cosched_judge_dear(&r, dear);
	KUNIT_EXPECT_EQ(test, DIV_ROUND_CLOSEST(dear * 10, SCHED_CAPACITY_SCALE), 20);
	for (i = 0; i < 1000; i++)
		dear = cosched_judge_dear(&r, dear);
	KUNIT_EXPECT_EQ(test, dear, SCHED_CAPACITY_SCALE);
}

/* Runs are of interest where home is busy, and neither is decided yet what they decide. */
static void cosched_test_sample_run(struct kunit *test)
{
	static const struct {
		unsigned int reviews;	/* last reviewed before so many intervals */
		u32 run, slept;
		bool overrun, full, apart, trial, want;
	} cases[] = {
		{ .run = 50, .want = true },
		{ .run = 50, .reviews = 3, .want = true },
		{ .run = 50, .reviews = 4 },
		{ .run = 50, .slept = 1 },	/* one in eight of brief ones at home */
		{ .run = 50, .slept = 1, .trial = true, .want = true },
		{ .run = 50, .apart = true },
		{ .run = 50, .overrun = true },
		{ .run = 2000 },
		{ .run = 2000, .full = true, .want = true },
		{ .run = COSCHED_RUN_MAX, .full = true },
	};
	struct cosched_cluster *cl = cosched_cluster_alloc(0);
	struct task_struct *p;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, cl);
	p = kunit_kzalloc(test, sizeof(*p), GFP_KERNEL);
	if (!p) {
		cosched_cluster_put(cl);
		KUNIT_FAIL_AND_ABORT(test, "no memory");
	}
	/* Of CPU 0, which is where @p is. */
	cosched_cluster_set_home(cl, cpumask_of(0));
	p->cosched = cl;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		atomic64_set(&cl->runs[0], 0);
		cosched_set_run(p, cases[i].run);
		p->cosched_slept = cases[i].slept;
		cl->overruns = cases[i].overrun * COSCHED_OVERRUN_REVIEWS;
		cl->full = cases[i].full;
		cl->trial.phase = cases[i].trial * COSCHED_TRIAL_HOME;
		cl->apart.lasts = cases[i].apart * COSCHED_APART_MAX;
		local_irq_disable();
		cl->apart.from = jiffies;
		cl->apart.reviewed = jiffies - cases[i].reviews * COSCHED_REVIEW_INTERVAL;
		cosched_sample_run(p, cases[i].run);
		local_irq_enable();
		KUNIT_EXPECT_EQ_MSG(test, atomic64_read(&cl->runs[0]),
				    cases[i].want * COSCHED_RUNS_ONE(cases[i].run), "case %d", i);
		KUNIT_EXPECT_EQ(test, atomic64_read(&cl->runs[1]), 0);
	}
	cosched_cluster_put(cl);
}

/* A CPU fetches one that waits elsewhere, unless those talk and overrun the machine. */
static void cosched_test_hands_off(struct kunit *test)
{
	static const struct {
		u8 overruns, talks;
		unsigned int reviews;
		bool trial, fetches;
	} cases[] = {
		{ 0, 0, .fetches = true },
		{ 0, 2, .fetches = true },
		{ 2, 0, .fetches = true },
		{ 2, 1, .fetches = true },
		{ 1, 2, .fetches = true },
		{ 2, 2 },
		{ 2, 3 },
		{ 0, 2, .trial = true, .fetches = true },
		/* That was long ago. */
		{ 2, 2, .reviews = COSCHED_REVIEWS + 1, .fetches = true },
	};
	int i, cpu = cpumask_first(cpu_online_mask), other = cpumask_last(cpu_online_mask), found;
	struct cosched_cluster *cl;
	struct task_struct *p;

	if (cpus_share_cache(cpu, other))
		kunit_skip(test, "needs two LLC domains");
	p = kunit_kzalloc(test, sizeof(*p), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, p);
	cl = cosched_cluster_alloc(0);
	KUNIT_ASSERT_NOT_NULL(test, cl);
	cosched_cluster_set_home(cl, cpu_online_mask);
	per_cpu_ptr(cl->cpu, other)->nr_runnable = 2;
	p->cosched = cl;
	cosched_set_run(p, 500);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		cl->overruns = cases[i].overruns;
		cl->talks = cases[i].talks;
		cl->trial.phase = cases[i].trial * COSCHED_TRIAL_SPREAD;
		local_irq_disable();
		cl->apart.reviewed = jiffies - cases[i].reviews * COSCHED_REVIEW_INTERVAL;
		found = cosched_waiting_cpu(p, cpu);
		local_irq_enable();
		KUNIT_EXPECT_EQ_MSG(test, found == other, cases[i].fetches, "case %d", i);
	}
	cosched_cluster_put(cl);
}

/* Who talks does after two reviews, and still does after one by a timer, but not after two. */
static void cosched_test_count_talks(struct kunit *test)
{
	static const struct {
		bool own;
		u8 want;
	} reviews[] = {
		{ false, 0 }, { true, 1 }, { true, 2 }, { false, 1 }, { true, 2 }, { true, 3 },
		{ true, 3 }, { false, 2 }, { true, 3 }, { false, 2 }, { false, 1 }, { false, 0 },
	};
	u8 talks = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(reviews); i++) {
		talks = cosched_count_talks(talks, reviews[i].own);
		KUNIT_EXPECT_EQ_MSG(test, talks, reviews[i].want, "review %d", i);
	}
	KUNIT_EXPECT_EQ(test, COSCHED_TALKS, 2);
}

/* Means of runs, half of which are forgotten each time. */
static void cosched_test_review_runs(struct kunit *test)
{
	struct cosched_cluster cl = { };
	struct cosched_review r;
	int i;

	KUNIT_EXPECT_FALSE(test, cosched_review_runs(&cl, &r));
	for (i = 0; i < COSCHED_REVIEW_RUNS; i++) {
		atomic64_add(COSCHED_RUNS_ONE(100 + i % 2), &cl.runs[0]);
		KUNIT_EXPECT_FALSE(test, cosched_review_runs(&(struct cosched_cluster){
			.runs[0] = cl.runs[0] }, &r));
		atomic64_add(COSCHED_RUNS_ONE(COSCHED_RUN_MAX), &cl.runs[1]);
	}
	KUNIT_EXPECT_TRUE(test, cosched_review_runs(&cl, &r));
	KUNIT_EXPECT_EQ(test, r.run[0], 100);
	KUNIT_EXPECT_EQ(test, r.run[1], COSCHED_RUN_MAX);
	KUNIT_EXPECT_EQ(test, COSCHED_RUNS_NR(atomic64_read(&cl.runs[1])), COSCHED_REVIEW_RUNS / 2);
	KUNIT_EXPECT_FALSE(test, cosched_review_runs(&cl, &r));
	KUNIT_EXPECT_EQ(test, r.run[0], 100);
	KUNIT_EXPECT_EQ(test, r.run[1], COSCHED_RUN_MAX);
	/* Few are forgotten, and none gets shorter by that. */
	atomic64_set(&cl.runs[1], 3 * COSCHED_RUNS_ONE(100));
	cosched_review_runs(&cl, &r);
	KUNIT_EXPECT_EQ(test, r.nr[1], 3);
	cosched_review_runs(&cl, &r);
	KUNIT_EXPECT_EQ(test, r.run[1], 100);
	KUNIT_EXPECT_EQ(test, r.nr[1], 1);
	cosched_review_runs(&cl, &r);
	KUNIT_EXPECT_EQ(test, r.nr[1], 0);
	/* As many as there can be in an interval and before, of the longest. */
	atomic64_set(&cl.runs[0], 0);
	for (i = 0; i < 100000; i++)
		atomic64_add(COSCHED_RUNS_ONE(COSCHED_RUN_MAX), &cl.runs[0]);
	cosched_review_runs(&cl, &r);
	KUNIT_EXPECT_EQ(test, r.run[0], COSCHED_RUN_MAX);
}

#ifdef CONFIG_FAIR_GROUP_SCHED
/* What is batch by its weight, within groups of all kinds. */
static void cosched_test_batch_weight(struct kunit *test)
{
	static const struct {
		u16 weight[3];		/* cpu.weight from the top down; 0: no more groups */
		bool batch;
	} cases[] = {
		{ { }, false },
		{ { 1 }, true },
		{ { 10 }, true },
		{ { 11 }, false },
		{ { 100 }, false },
		{ { 10000 }, false },
		{ { 10, 100 }, true },
		{ { 100, 10, 100 }, true },
		{ { 30, 30 }, true },
		{ { 50, 50 }, false },
		{ { 10, 10000 }, true },	/* for those beside it in a small group */
		{ { 10000, 10 }, true },	/* against those that are lifted with it */
	};
	int i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned long weight = scale_load_down(NICE_0_LOAD);

		for (j = 0; j < 3 && cases[i].weight[j]; j++) {
			unsigned long shares = sched_weight_from_cgroup(cases[i].weight[j]);

			weight = cosched_weight_within(weight, scale_load(shares));
		}
		KUNIT_EXPECT_EQ_MSG(test, weight <= COSCHED_BATCH_WEIGHT, cases[i].batch,
				    "case %d", i);
	}
	/* cpu.weight.nice: 10, and cpu.idle. */
	KUNIT_EXPECT_EQ(test, sched_prio_to_weight[30], COSCHED_BATCH_WEIGHT);
	KUNIT_EXPECT_LE(test, WEIGHT_IDLEPRIO, COSCHED_BATCH_WEIGHT);
}
#endif

/* Tasks that never sleep count in full; half of the waiting of others does. */
static void cosched_test_demand(struct kunit *test)
{
	static const struct {
		u32 util, runnable;
		unsigned int sleeps;
		u32 demand;
	} cases[] = {
		/* Nothing, and what a sleeping task has left. */
		{ 0, 0, 0, 0 },
		{ 0, 0, 1, 0 },
		{ 10, 10, 0, 10 },
		{ 10, 10, 1, 10 },
		/* None waits: sleeps do not matter. */
		{ 4096, 4096, 0, 4096 },
		{ 4096, 4096, 64, 4096 },
		/* Most wait, or all. */
		{ 4096, 8192, 0, 8192 },
		{ 1024, 16384, 0, 16384 },
		{ 0, 4096, 0, 4096 },
		/* As many sleeps as tasks, or more: the mean. */
		{ 4096, 8192, 8, 6144 },
		{ 4096, 8192, 64, 6144 },
		{ 0, 512, 1, 256 },
		/* One of eight slept, four did. */
		{ 4096, 8192, 1, 7936 },
		{ 4096, 8192, 4, 7168 },
		/* More tasks than sleeps are counted. */
		{ 4096, 200 << 10, 64, 102 << 10 },
		{ 4096, 200 << 10, 32, 151 << 10 },
		/* What runs may exceed what is runnable by an error. */
		{ 1030, 1024, 0, 1024 },
		/* Four million tasks do not overflow. */
		{ 0, U32_MAX, 0, U32_MAX },
		{ 0, U32_MAX, 64, U32_MAX / 2 + 1 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test, cases[i].demand,
				    cosched_demand(cases[i].util, cases[i].runnable,
						   cases[i].sleeps),
				    "case %d", i);
}

/* What a cluster may take: 1 KiB and 32 bytes for each possible CPU. */
static void cosched_test_memory(struct kunit *test)
{
	KUNIT_EXPECT_LE(test, sizeof(struct cosched_cpu), 32);
	KUNIT_EXPECT_LE(test, sizeof(struct cosched_cluster) +
			2 * (sizeof(struct cosched_home) + cpumask_size()), 1024);
}

static struct kunit_case cosched_test_cases[] = {
	KUNIT_CASE(cosched_test_contrib),
	KUNIT_CASE(cosched_test_half_life),
	KUNIT_CASE(cosched_test_advance),
	KUNIT_CASE(cosched_test_load_avg),
	KUNIT_CASE(cosched_test_cheaper),
	KUNIT_CASE(cosched_test_mean_run),
	KUNIT_CASE(cosched_test_weights),
	KUNIT_CASE(cosched_test_judge),
	KUNIT_CASE(cosched_test_judge_bursts),
	KUNIT_CASE(cosched_test_judge_trial),
	KUNIT_CASE(cosched_test_trial),
	KUNIT_CASE(cosched_test_review_bursts),
	KUNIT_CASE(cosched_test_go_apart),
	KUNIT_CASE(cosched_test_count_review),
	KUNIT_CASE(cosched_test_judge_overrun),
	KUNIT_CASE(cosched_test_count_overruns),
	KUNIT_CASE(cosched_test_hands_off),
	KUNIT_CASE(cosched_test_count_talks),
	KUNIT_CASE(cosched_test_judge_dear),
	KUNIT_CASE(cosched_test_forget_dear),
	KUNIT_CASE(cosched_test_sample_run),
	KUNIT_CASE(cosched_test_review_runs),
#ifdef CONFIG_FAIR_GROUP_SCHED
	KUNIT_CASE(cosched_test_batch_weight),
#endif
	KUNIT_CASE(cosched_test_demand),
	KUNIT_CASE(cosched_test_memory),
	{ }
};

static struct kunit_suite cosched_test_suite = {
	.name = "cosched",
	.test_cases = cosched_test_cases,
};

kunit_test_suite(cosched_test_suite);
