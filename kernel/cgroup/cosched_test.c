// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the cosched controller: parsing and hierarchy. Included by
 * cosched.c.
 */
#include <kunit/test.h>

static void cosched_test_one_line(struct kunit *test)
{
	static const struct {
		const char *in;
		size_t len;
		const char *out;	/* NULL: refused */
	} cases[] = {
		{ "", 0, "" },
		{ "\n", 1, "" },
		{ "\t\t\x20\n", 4, "" },
		{ "0-3\n", 4, "0-3" },
		{ "  0-3 \t\n", 8, "0-3" },
		{ "100 150", 7, "100 150" },
		{ "0-3\n4-7\n", 8, NULL },
		{ "0-3\n\n", 5, "0-3" },
		{ "0\0003", 3, NULL },
		{ "0-3\0", 4, NULL },
	};
	char buf[16];
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		char *out;

		memset(buf, 0, sizeof(buf));
		memcpy(buf, cases[i].in, cases[i].len);
		out = cosched_one_line(buf, cases[i].len);
		if (cases[i].out)
			KUNIT_EXPECT_STREQ_MSG(test, out, cases[i].out, "case %d", i);
		else
			KUNIT_EXPECT_NULL_MSG(test, out, "case %d", i);
	}
}

static void cosched_test_parse_cpus(struct kunit *test)
{
	static const struct {
		const char *in;
		int ret;
	} cases[] = {
		{ "0", 0 },
		{ "0-0", 0 },
		{ "0,0", 0 },
		{ "automatic", -EINVAL },
		{ "Auto", -EINVAL },
		{ ",", -EINVAL },
		{ "-", -EINVAL },
		{ "0-", -EINVAL },
		{ "-1", -EINVAL },
		{ "0x1", -EINVAL },
		{ "0;1", -EINVAL },
		{ "all the CPUs", -EINVAL },
		{ "99999", -ERANGE },
		{ "0,99999", -ERANGE },
		{ "0-99999", -ERANGE },
		{ "99999999999999999999", -ERANGE },
		{ "4294967295", -ERANGE },
		{ "0-4294967295", -ERANGE },
	};
	struct cpumask *mask;
	int i;

	mask = kunit_kzalloc(test, cpumask_size(), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, mask);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		cpumask_clear(mask);
		KUNIT_EXPECT_EQ_MSG(test, cosched_parse_cpus(cases[i].in, mask), cases[i].ret,
				    "\"%s\"", cases[i].in);
		if (!cases[i].ret)
			KUNIT_EXPECT_TRUE(test, cpumask_equal(mask, cpumask_of(0)));
	}
}

static void cosched_test_parse_weights(struct kunit *test)
{
	static const struct {
		const char *in;
		int ret;
		unsigned int weights[2];
	} cases[] = {
		{ "100 150", 0, { 100, 150 } },
		{ "1 10000", 0, { 1, 10000 } },
		{ "10000 1", 0, { 10000, 1 } },
		{ "4\t1000", 0, { 4, 1000 } },
		{ "4   1000", 0, { 4, 1000 } },
		{ "0 150", -ERANGE },
		{ "100 0", -ERANGE },
		{ "10001 1", -ERANGE },
		{ "1 10001", -ERANGE },
		{ "99999999999 1", -ERANGE },
		{ "-1 100", -ERANGE },
		{ "100 -1", -ERANGE },
		{ "100", -EINVAL },
		{ "100 150 1", -EINVAL },
		{ "100 150x", -EINVAL },
		{ "0x64 150", -EINVAL },
		{ "+100 150", -EINVAL },
		{ "100,150", -EINVAL },
		{ "default", -EINVAL },
	};
	unsigned int weights[2];
	char buf[32];
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		strscpy(buf, cases[i].in);
		KUNIT_EXPECT_EQ_MSG(test, cosched_parse_weights(buf, weights), cases[i].ret,
				    "\"%s\"", cases[i].in);
		if (cases[i].ret)
			continue;
		KUNIT_EXPECT_EQ(test, weights[0], cases[i].weights[0]);
		KUNIT_EXPECT_EQ(test, weights[1], cases[i].weights[1]);
	}
}

/* home(child) = asked & home(parent), or home(parent); bits are CPUs. */
static void cosched_test_narrow(struct kunit *test)
{
	static const struct {
		u8 asked, parent, online, home;
	} cases[] = {
		/* Below the root, all that is online is allowed. */
		{ 0x0f, 0x00, 0xff, 0x0f },
		{ 0x0f, 0x00, 0x3c, 0x0c },
		{ 0x0f, 0x00, 0xf0, 0x00 },
		{ 0x00, 0x00, 0xff, 0x00 },
		/* Below a cgroup with a home. */
		{ 0x3c, 0x0f, 0xff, 0x0c },
		{ 0x00, 0x0f, 0xff, 0x0f },
		{ 0xf0, 0x0f, 0xff, 0x0f },
		/* What they have in common is offline: as if it were empty. */
		{ 0x03, 0x0f, 0xfc, 0x0c },
		{ 0x3c, 0x0f, 0xf3, 0x03 },
	};
	static struct cpumask asked, parent, online, home;
	const struct cpumask *ask;
	int i;

	if (nr_cpumask_bits < 8)
		kunit_skip(test, "needs room for 8 CPUs");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		*cpumask_bits(&asked) = cases[i].asked;
		*cpumask_bits(&parent) = cases[i].parent;
		*cpumask_bits(&online) = cases[i].online;
		*cpumask_bits(&home) = 0xaa;
		ask = NULL;
		if (cases[i].asked)
			ask = &asked;
		cosched_narrow(&home, ask, &parent, &online);
		KUNIT_EXPECT_EQ_MSG(test, *cpumask_bits(&home) & 0xff, cases[i].home,
				    "case %d", i);
	}
}

/* Weights come from the nearest ancestor that set some. */
static void cosched_test_weights_inherited(struct kunit *test)
{
	struct cosched_css *cs = kunit_kcalloc(test, 3, sizeof(*cs), GFP_KERNEL);
	unsigned int weights[2];

	KUNIT_ASSERT_NOT_NULL(test, cs);
	cs[1].css.parent = &cs[0].css;
	cs[2].css.parent = &cs[1].css;

	cosched_effective_weights(&cs[2], weights);
	KUNIT_EXPECT_EQ(test, weights[0], COSCHED_WEIGHT_PREFERRED);
	KUNIT_EXPECT_EQ(test, weights[1], COSCHED_WEIGHT_ALLOWED);

	cs[0].weights[0] = 4;
	cs[0].weights[1] = 1000;
	cosched_effective_weights(&cs[2], weights);
	KUNIT_EXPECT_EQ(test, weights[0], 4);
	KUNIT_EXPECT_EQ(test, weights[1], 1000);

	cs[1].weights[0] = 1;
	cs[1].weights[1] = 2;
	cosched_effective_weights(&cs[2], weights);
	KUNIT_EXPECT_EQ(test, weights[0], 1);
	cosched_effective_weights(&cs[0], weights);
	KUNIT_EXPECT_EQ(test, weights[0], 4);
}

/* The cluster of a cgroup is that of the nearest one that has a home. */
static void cosched_test_owner(struct kunit *test)
{
	struct cosched_css *cs = kunit_kcalloc(test, 3, sizeof(*cs), GFP_KERNEL);
	struct cosched_cluster *upper, *lower;

	KUNIT_ASSERT_NOT_NULL(test, cs);
	cs[1].css.parent = &cs[0].css;
	cs[2].css.parent = &cs[1].css;
	upper = cosched_cluster_alloc(1);
	lower = cosched_cluster_alloc(2);
	if (!upper || !lower) {
		KUNIT_FAIL(test, "no memory");
		goto out;
	}

	KUNIT_EXPECT_PTR_EQ(test, cosched_owner(&cs[2]), NULL);
	/* Weights alone make no home. */
	cs[1].own = lower;
	KUNIT_EXPECT_PTR_EQ(test, cosched_owner(&cs[2]), NULL);
	KUNIT_EXPECT_TRUE(test, cpumask_empty(cosched_home(&cs[2])));

	cs[0].own = upper;
	KUNIT_EXPECT_TRUE(test, cosched_cluster_set_home(upper, cpumask_of(0)));
	KUNIT_EXPECT_FALSE(test, cosched_cluster_set_home(upper, cpumask_of(0)));
	KUNIT_EXPECT_PTR_EQ(test, cosched_owner(&cs[2]), &cs[0]);
	KUNIT_EXPECT_TRUE(test, cosched_cluster_set_home(lower, cpumask_of(0)));
	KUNIT_EXPECT_PTR_EQ(test, cosched_owner(&cs[2]), &cs[1]);
	KUNIT_EXPECT_TRUE(test, cpumask_equal(cosched_home(&cs[2]), cpumask_of(0)));
out:
	cosched_cluster_put(lower);
	cosched_cluster_put(upper);
}

/* Batch by the policy of its tasks: what is seen, and when that changes. */
static void cosched_test_idle_policy(struct kunit *test)
{
	static const struct {
		u32 normal, idle;	/* runnable tasks */
		int looks;		/* so often */
		bool before, after;	/* at the first but one, and at the last */
	} steps[] = {
		{ 0, 0, 10, false, false },	/* nothing is known */
		{ 0, 1, 1, true, true },	/* at once */
		{ 1, 15, 2, true, true },	/* one task that woke up */
		{ 0, 15, 20, true, true },
		{ 1, 15, 3, true, false },	/* one that stays */
		{ 0, 15, 12, false, false },
		{ 0, 15, 1, true, true },
		{ 0, 0, 100, true, true },	/* all sleep */
		{ 4000000, 0, 1, false, false },
		{ 0, 0, 100, false, false },	/* of what sleeps nothing is known */
		{ 1, 1, 1, false, false },
		{ 0, 1, 5, false, false },	/* not the one that made them */
		{ 0, 1, 1, true, true },
	};
	struct cosched_automatic a = { };
	int i, j;

	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		for (j = 0; j < steps[i].looks; j++) {
			a.sample.nr_normal = steps[i].normal;
			a.sample.nr_idle_policy = steps[i].idle;
			a.batch = cosched_auto_idle_policy(&a);
			KUNIT_EXPECT_EQ_MSG(test, a.batch, j + 1 < steps[i].looks ?
					    steps[i].before : steps[i].after,
					    "step %d, look %d: %u", i, j, a.normal);
		}
	}
}

static struct kunit_case cosched_cgroup_test_cases[] = {
	KUNIT_CASE(cosched_test_one_line),
	KUNIT_CASE(cosched_test_parse_cpus),
	KUNIT_CASE(cosched_test_parse_weights),
	KUNIT_CASE(cosched_test_narrow),
	KUNIT_CASE(cosched_test_weights_inherited),
	KUNIT_CASE(cosched_test_owner),
	KUNIT_CASE(cosched_test_idle_policy),
	{ }
};

static struct kunit_suite cosched_cgroup_test_suite = {
	.name = "cosched_cgroup",
	.test_cases = cosched_cgroup_test_cases,
};

kunit_test_suite(cosched_cgroup_test_suite);
