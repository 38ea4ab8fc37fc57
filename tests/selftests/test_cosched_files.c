// SPDX-License-Identifier: GPL-2.0
/*
 * What can be read from and written to the cosched files: defaults, values
 * accepted, every error, and that a refused write changes nothing at all.
 */

#include "cosched_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A cluster with a neighbour on every side. All have values that a write to
 * "self" could damage if the kernel mixed something up.
 */
struct family {
	char parent[PATH_MAX];
	char self[PATH_MAX];
	char child[PATH_MAX];
	char sibling[PATH_MAX];
};

static void make_family(struct family *f, const char *top)
{
	cs_need_cpus(4);
	cs_mkdir(f->parent, top, "parent");
	cs_enable(f->parent);
	cs_mkdir(f->self, f->parent, "self");
	cs_enable(f->self);
	cs_mkdir(f->child, f->self, "child");
	cs_mkdir(f->sibling, f->parent, "sibling");

	cs_write(f->parent, CS_PREF, "0-3\n");
	cs_write(f->parent, CS_WEIGHTS, "11 12\n");
	cs_write(f->self, CS_PREF, "1-2\n");
	cs_write(f->self, CS_WEIGHTS, "21 22\n");
	cs_write(f->sibling, CS_PREF, "3\n");
	cs_write(f->sibling, CS_WEIGHTS, "31 32\n");
}

static void add_state(char *buf, size_t len, const char *cg)
{
	static const char *const files[] = { CS_PREF, CS_HOME, CS_WEIGHTS };
	char value[4096];
	size_t used;
	int i;

	for (i = 0; i < ARRAY_LEN(files); i++) {
		cs_read(cg, files[i], value, sizeof(value));
		used = strlen(buf);
		snprintf(buf + used, len - used, "%s/%s='%s'\n", cg, files[i],
			 value);
	}
	used = strlen(buf);
	snprintf(buf + used, len - used, "%s home_changes=%lld\n", cg,
		 cs_stat(cg, "home_changes"));
}

/* All that a refused write must leave as it was. */
static void family_state(const struct family *f, char *buf, size_t len)
{
	buf[0] = '\0';
	add_state(buf, len, f->parent);
	add_state(buf, len, f->self);
	add_state(buf, len, f->child);
	add_state(buf, len, f->sibling);
}

/* Printable, and not longer than a line, for messages. */
static const char *show(const char *buf, size_t len)
{
	static char out[128];
	size_t i, used = 0;

	for (i = 0; i < len && used < sizeof(out) - 8; i++) {
		unsigned char c = buf[i];

		if (c >= ' ' && c < 127)
			used += sprintf(out + used, "%c", c);
		else
			used += sprintf(out + used, "\\x%02x", c);
	}
	strcpy(out + used, i < len ? "..." : "");
	return out;
}

static void refused_n(const struct family *f, const char *file,
		      const char *value, size_t len, int want)
{
	char before[16384], after[16384];
	int got;

	family_state(f, before, sizeof(before));
	got = cs_try_write_n(f->self, file, value, len);
	family_state(f, after, sizeof(after));
	REQUIRE(got == -want, "write '%s' to %s: %s, expected %s",
		show(value, len), file, got ? strerror(-got) : "accepted",
		strerror(want));
	REQUIRE(!strcmp(before, after),
		"refused write '%s' to %s changed something; before:\n%s after:\n%s",
		show(value, len), file, before, after);
}

static void refused(const struct family *f, const char *file,
		    const char *value, int want)
{
	refused_n(f, file, value, strlen(value), want);
}

/*
 * A cgroup has exactly the five files, with the access that is documented, and
 * the root cgroup has none of them: it is no cluster.
 */
static void files_present(const char *top)
{
	static const struct {
		const char *file;
		mode_t access;
	} files[] = {
		{ CS_PREF, 0644 },
		{ CS_HOME, 0444 },
		{ CS_WEIGHTS, 0644 },
		{ CS_STAT, 0444 },
		{ CS_LOAD, 0444 },
	};
	char cg[PATH_MAX], path[PATH_MAX];
	struct stat st;
	int i;

	cs_mkdir(cg, top, "cg");
	for (i = 0; i < ARRAY_LEN(files); i++) {
		cs_name(path, cg, files[i].file);
		REQUIRE(!stat(path, &st), "%s: %s", path, strerror(errno));
		REQUIRE((st.st_mode & 0777) == files[i].access,
			"%s has access %o, expected %o", path,
			st.st_mode & 0777, files[i].access);
		REQUIRE(!cs_has_file(cs_root(), files[i].file),
			"the root cgroup has %s", files[i].file);
	}
}

/*
 * A new cgroup prefers nothing, has no home, the documented weights, every
 * counter in its documented order at zero, and load nowhere.
 */
static void defaults(const char *top)
{
	static struct cs_load load;
	char cg[PATH_MAX], buf[4096], want[4096] = "";
	int i;

	cs_mkdir(cg, top, "cg");
	cs_expect(cg, CS_PREF, "");
	cs_expect(cg, CS_HOME, "");
	cs_expect(cg, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);

	for (i = 0; i < cs_nr_stat_keys; i++)
		sprintf(want + strlen(want), "%s%s 0", i ? "\n" : "",
			cs_stat_keys[i]);
	cs_read(cg, CS_STAT, buf, sizeof(buf));
	REQUIRE(!strcmp(buf, want), "%s holds:\n%s", CS_STAT, buf);

	cs_load(cg, &load);
	REQUIRE(!load.nr_cpus, "load on %d CPUs of an empty cgroup",
		load.nr_cpus);
	for (i = 0; i < load.nr_llcs; i++)
		REQUIRE(!load.llc[i].home && !load.llc[i].util &&
			!load.llc[i].runnable,
			"llc%d of an empty cgroup: home=%ld util=%ld runnable=%ld",
			i, load.llc[i].home, load.llc[i].util,
			load.llc[i].runnable);
}

/* Reading gives one line, whatever the value: a shell can read it. */
static void values_end_in_newline(const char *top)
{
	static const char *const files[] = { CS_PREF, CS_HOME, CS_WEIGHTS };
	char cg[PATH_MAX], path[PATH_MAX], buf[256];
	int i, round, fd;
	ssize_t n;

	cs_need_cpus(2);
	cs_mkdir(cg, top, "cg");
	for (round = 0; round < 2; round++) {
		for (i = 0; i < ARRAY_LEN(files); i++) {
			cs_name(path, cg, files[i]);
			fd = open(path, O_RDONLY);
			n = read(fd, buf, sizeof(buf));
			close(fd);
			REQUIRE(n > 0 && buf[n - 1] == '\n' &&
				memchr(buf, '\n', n) == buf + n - 1,
				"%s is not one line: '%s'", files[i],
				show(buf, n > 0 ? n : 0));
		}
		cs_write(cg, CS_PREF, "0-1\n");
	}
}

/*
 * Every way to write a CPU list is accepted, with and without a newline and
 * with blanks around, and the same CPUs are read back and are the home.
 */
static void cpus_accepted(const char *top)
{
	static const struct {
		const char *write;
		const char *read;
	} values[] = {
		{ "0", "0" },
		{ "0\n", "0" },
		{ "1\n", "1" },
		{ "0-1\n", "0-1" },
		{ "0,1\n", "0-1" },
		{ "1,0\n", "0-1" },
		{ "0-3\n", "0-3" },
		{ "0,2-3\n", "0,2-3" },
		{ "3,1\n", "1,3" },
		{ "1-1\n", "1" },
		{ "2,2,2\n", "2" },
		{ "0-2,1-3\n", "0-3" },
		{ "  0-1\n", "0-1" },
		{ "3  \n", "3" },
		{ " \t 1-2 \t \n", "1-2" },
		{ "\t0,3", "0,3" },
	};
	char cg[PATH_MAX];
	int i;

	cs_need_cpus(4);
	cs_mkdir(cg, top, "cg");
	for (i = 0; i < ARRAY_LEN(values); i++) {
		cs_write(cg, CS_PREF, values[i].write);
		cs_expect(cg, CS_PREF, values[i].read);
		cs_expect(cg, CS_HOME, values[i].read);
	}
}

/* A list that names every possible CPU one by one is not too long. */
static void cpus_longest_list(const char *top)
{
	char cg[PATH_MAX], list[CPU_SETSIZE * 6] = "", canonical[4096];
	cpu_set_t possible, online;
	int cpu, used = 0;

	cs_mkdir(cg, top, "cg");
	cs_possible(&possible);
	for (cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &possible))
			used += sprintf(list + used, "%s%d", used ? "," : "",
					cpu);
	cs_write(cg, CS_PREF, list);
	cs_format_cpus(&possible, canonical, sizeof(canonical));
	cs_expect(cg, CS_PREF, canonical);
	cs_online(&online);
	cs_format_cpus(&online, canonical, sizeof(canonical));
	cs_expect(cg, CS_HOME, canonical);
}

/* An empty line, or a line of blanks, takes the preference back. */
static void cpus_unset(const char *top)
{
	static const char *const empty[] = { "\n", " \n", "\t \t\n", " " };
	char cg[PATH_MAX];
	int i;

	cs_mkdir(cg, top, "cg");
	for (i = 0; i < ARRAY_LEN(empty); i++) {
		cs_write(cg, CS_PREF, "0\n");
		cs_expect(cg, CS_HOME, "0");
		cs_write(cg, CS_PREF, empty[i]);
		cs_expect(cg, CS_PREF, "");
		cs_expect(cg, CS_HOME, "");
	}
}

/* A value that is no CPU list is refused with EINVAL and changes nothing. */
static void cpus_malformed(const char *top)
{
	static const char *const values[] = {
		"0-", "0-\n", "0-,2\n", "-", "-\n", "-1\n", "0--1\n",
		"3-1\n", "1-0\n", "0-1-2\n",
		"a\n", "0a\n", "0-1x\n", "x0-1\n", "0-b\n", "none\n",
		"0x1\n", "0-0x3\n", "1.5\n", "0;1\n", "0/1\n", "0:1\n",
		"0-3:1/0\n", "0-1 auto\n", "auto,1\n", "auto auto\n",
		"+1\n", "\"0\"\n", "{0,1}\n", "0*\n", "?\n",
		"\xef\xbc\x90\n",	/* a digit, but not one of ASCII */
		"\xff\xfe\n",
	};
	struct family f;
	int i;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(values); i++)
		refused(&f, CS_PREF, values[i], EINVAL);
}

/*
 * A value is one line: several are refused whole, also when each would be
 * right alone, so that nobody believes in a value that was cut.
 */
static void cpus_several_lines(const char *top)
{
	static const char *const values[] = {
		"0\n1\n", "0-1\n2-3\n", "0\n1", "0-1\n\n2", "0,\n1\n",
		"0-\n3\n", "0\nauto\n", "0\r\n1\n",
	};
	struct family f;
	int i;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(values); i++)
		refused(&f, CS_PREF, values[i], EINVAL);
}

/*
 * Spellings on which the documentation says nothing: accepted as just the CPUs
 * that they name or refused as malformed, but never half understood.
 */
static void cpus_whole_or_nothing(const char *top)
{
	static const struct {
		const char *write;
		const char *read;
	} values[] = {
		{ "0,,1\n", "0-1" },	{ ",0\n", "0" },
		{ "0,\n", "0" },	{ "0, 1\n", "0-1" },
		{ "0 1\n", "0-1" },	{ "0 - 1\n", "0-1" },
		{ "\n0\n", "0" },	{ "0\n\n", "0" },
		{ "0-1\n \n", "0-1" },	{ "0-1\r\n", "0-1" },
		{ "00\n", "0" },	{ "0-3:1/2\n", "0,2" },
		{ ",\n", "" },
	};
	char before[16384], after[16384];
	struct family f;
	int i, ret;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(values); i++) {
		cs_write(f.self, CS_PREF, "1-2\n");
		family_state(&f, before, sizeof(before));
		ret = cs_try_write(f.self, CS_PREF, values[i].write);
		if (!ret) {
			cs_expect(f.self, CS_PREF, values[i].read);
			continue;
		}
		REQUIRE(ret == -EINVAL, "write '%s': %s",
			show(values[i].write, strlen(values[i].write)),
			strerror(-ret));
		family_state(&f, after, sizeof(after));
		REQUIRE(!strcmp(before, after), "refused write '%s' changed something:\n%s",
			show(values[i].write, strlen(values[i].write)), after);
	}
}

/*
 * CPUs that this machine cannot have are ERANGE: the first one too high, and
 * numbers that would be small ones if they were cut to 32 or 64 bits.
 */
static void cpus_out_of_range(const char *top)
{
	static const char *const numbers[] = {
		"8192", "65536", "999999", "4294967295", "4294967296",
		"4294967297", "18446744073709551615", "18446744073709551616",
		"18446744073709551617", "99999999999999999999999999999999",
	};
	char value[128];
	struct family f;
	int i, first;

	make_family(&f, top);
	first = cs_highest_possible() + 1;
	for (i = -1; i < ARRAY_LEN(numbers); i++) {
		char number[64];

		if (i < 0)
			snprintf(number, sizeof(number), "%d", first);
		else
			strcpy(number, numbers[i]);
		snprintf(value, sizeof(value), "%s\n", number);
		refused(&f, CS_PREF, value, ERANGE);
		snprintf(value, sizeof(value), "0,%s\n", number);
		refused(&f, CS_PREF, value, ERANGE);
		snprintf(value, sizeof(value), "0-%s\n", number);
		refused(&f, CS_PREF, value, ERANGE);
	}
}

/* Weights come back as written, from the smallest to the largest. */
static void weights_accepted(const char *top)
{
	static const struct {
		const char *write;
		const char *read;
	} values[] = {
		{ "1 1\n", "1 1" },
		{ "10000 10000\n", "10000 10000" },
		{ "1 10000\n", "1 10000" },
		{ "4 1000", "4 1000" },
		{ "100 100\n", "100 100" },
		{ "  5 6\n", "5 6" },
		{ "7 8  \n", "7 8" },
		{ "\t9 \t 10\t\n", "9 10" },
	};
	char cg[PATH_MAX];
	int i;

	cs_mkdir(cg, top, "cg");
	for (i = 0; i < ARRAY_LEN(values); i++) {
		cs_write(cg, CS_WEIGHTS, values[i].write);
		cs_expect(cg, CS_WEIGHTS, values[i].read);
	}
}

/* An empty line takes the weights back; then the parent's are in force. */
static void weights_unset(const char *top)
{
	static const char *const empty[] = { "\n", " \n", "\t\n" };
	struct family f;
	int i;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(empty); i++) {
		cs_write(f.self, CS_WEIGHTS, "1 2\n");
		cs_expect(f.child, CS_WEIGHTS, "1 2");
		cs_write(f.self, CS_WEIGHTS, empty[i]);
		cs_expect(f.self, CS_WEIGHTS, "11 12");
		cs_expect(f.child, CS_WEIGHTS, "11 12");
		cs_expect(f.sibling, CS_WEIGHTS, "31 32");
	}
	cs_write(f.parent, CS_WEIGHTS, "\n");
	cs_expect(f.self, CS_WEIGHTS, CS_WEIGHTS_DEFAULT);
}

/* A value that is not two integers is EINVAL. */
static void weights_malformed(const char *top)
{
	static const char *const values[] = {
		"5", "5\n", "5 \n", " 5\n", "1 2 3\n", "1 2 3", "1 2 x\n",
		"a b\n", "1 b\n", "a 2\n", "1,2\n", "1;2\n", "1/2\n", "1-2\n",
		"1.5 2\n", "1 2.5\n", "0x10 20\n", "10 0x20\n", "1x 2\n",
		"1 2x\n", "1e2 5\n", "-\n", "- -\n", "default\n",
		"auto\n", "max\n", "\xff \xfe\n",
		"100 150\n100 150\n", "1\n2\n", "1\n2", "1 2\n3", "1 2\n\n3 4\n",
	};
	struct family f;
	int i;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(values); i++)
		refused(&f, CS_WEIGHTS, values[i], EINVAL);
}

/*
 * Integers beyond 1..10000 are ERANGE, also those that would be in range if
 * they were cut to 32 or 64 bits.
 */
static void weights_out_of_range(const char *top)
{
	static const char *const numbers[] = {
		"0", "10001", "-1", "-10000", "65537", "2147483648",
		"4294967295", "4294967296", "4294967297", "-4294967295",
		"18446744073709551616", "18446744073709551617",
		"99999999999999999999999999999999",
	};
	char value[128];
	struct family f;
	int i;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(numbers); i++) {
		snprintf(value, sizeof(value), "%s 5\n", numbers[i]);
		refused(&f, CS_WEIGHTS, value, ERANGE);
		snprintf(value, sizeof(value), "5 %s\n", numbers[i]);
		refused(&f, CS_WEIGHTS, value, ERANGE);
	}
	refused(&f, CS_WEIGHTS, "0 0\n", ERANGE);
}

/*
 * A write beyond the limit is E2BIG, wherever in it the value stands. The
 * kernel must not take the first page and drop the rest: a page of blanks
 * before the value would unset it.
 */
static void oversized(const char *top)
{
	static const char *const files[] = { CS_PREF, CS_WEIGHTS };
	static const char *const values[] = { "0-1", "5 6" };
	/* More than 100 + 6 * NR_CPUS for the largest NR_CPUS there is. */
	const size_t len = 100 + 6 * 8192 + 4096;
	struct family f;
	char *buf;
	int i;

	make_family(&f, top);
	buf = malloc(len);
	for (i = 0; i < ARRAY_LEN(files); i++) {
		memset(buf, ' ', len);
		memcpy(buf, values[i], strlen(values[i]));
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, ' ', len);
		memcpy(buf + len - strlen(values[i]), values[i],
		       strlen(values[i]));
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, ' ', len);
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, '\n', len);
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, '0', len);
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, 'x', len);
		refused_n(&f, files[i], buf, len, E2BIG);
		memset(buf, 0, len);
		refused_n(&f, files[i], buf, len, E2BIG);
	}
	memset(buf, ',', len);
	for (i = 0; i + 1 < (int)len; i += 2)
		buf[i] = '1';
	refused_n(&f, CS_PREF, buf, len, E2BIG);
}

/*
 * Between one page and the limit, where there is something between, a write is
 * taken or refused whole: never cut.
 */
static void never_cut(const char *top)
{
	static const char *const files[] = { CS_PREF, CS_WEIGHTS };
	static const char *const values[] = { "0-1", "5 6" };
	char before[16384], after[16384];
	static char buf[16384];
	struct family f;
	size_t len;
	int i, ret;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(files); i++) {
		for (len = 64; len <= sizeof(buf); len += len / 4) {
			memset(buf, ' ', len);
			memcpy(buf + len - strlen(values[i]), values[i],
			       strlen(values[i]));
			family_state(&f, before, sizeof(before));
			ret = cs_try_write_n(f.self, files[i], buf, len);
			if (!ret) {
				cs_expect(f.self, files[i], values[i]);
				continue;
			}
			REQUIRE(ret == -E2BIG, "write of %zu bytes to %s: %s",
				len, files[i], strerror(-ret));
			family_state(&f, after, sizeof(after));
			REQUIRE(!strcmp(before, after),
				"refused write of %zu bytes to %s changed something:\n%s",
				len, files[i], after);
		}
	}
}

/*
 * A NUL byte does not hide what follows it. One at the very end, as programs
 * leave it that count it to the string, is taken or refused, but not anything
 * else.
 */
static void nul_bytes(const char *top)
{
	struct family f;
	int ret;

	make_family(&f, top);
#define REFUSED(file, literal)	\
	refused_n(&f, file, literal, sizeof(literal) - 1, EINVAL)
	REFUSED(CS_PREF, "0-1\0002");
	REFUSED(CS_PREF, "0-1\0\n");
	REFUSED(CS_PREF, "0\000x\n");
	REFUSED(CS_PREF, "0-\0003\n");
	REFUSED(CS_PREF, "\0000-1\n");
	REFUSED(CS_PREF, "auto\0x");
	REFUSED(CS_PREF, "\0\0\0\0");
	REFUSED(CS_PREF, "\n\0000\n");
	REFUSED(CS_WEIGHTS, "1\0002\n");
	REFUSED(CS_WEIGHTS, "1 2\0003\n");
	REFUSED(CS_WEIGHTS, "1 2\000x");
	REFUSED(CS_WEIGHTS, "\0001 2\n");
	REFUSED(CS_WEIGHTS, "\0\0");
#undef REFUSED

	ret = cs_try_write_n(f.self, CS_PREF, "0-1", 4);
	REQUIRE(!ret || ret == -EINVAL, "a NUL at the end: %s",
		strerror(-ret));
	cs_expect(f.self, CS_PREF, ret ? "1-2" : "0-1");
	ret = cs_try_write_n(f.self, CS_WEIGHTS, "5 6", 4);
	REQUIRE(!ret || ret == -EINVAL, "a NUL at the end: %s",
		strerror(-ret));
	cs_expect(f.self, CS_WEIGHTS, ret ? "21 22" : "5 6");
}

/* The files that are only read refuse every write, also root's. */
static void read_only_files(const char *top)
{
	static const char *const files[] = { CS_HOME, CS_STAT, CS_LOAD };
	char before[16384], after[16384];
	struct family f;
	int i, ret;

	make_family(&f, top);
	family_state(&f, before, sizeof(before));
	for (i = 0; i < ARRAY_LEN(files); i++) {
		ret = cs_try_write(f.self, files[i], "0\n");
		REQUIRE(ret == -EINVAL || ret == -EACCES || ret == -EPERM,
			"write to %s: %s", files[i],
			ret ? strerror(-ret) : "accepted");
	}
	family_state(&f, after, sizeof(after));
	REQUIRE(!strcmp(before, after), "a write changed something:\n%s",
		after);
}

static void write_with(const char *cg, const char *file, int flags,
		       const char *value)
{
	char path[PATH_MAX];
	int fd;

	cs_name(path, cg, file);
	fd = open(path, O_WRONLY | flags, 0644);
	REQUIRE(fd >= 0, "open %s with flags %#x: %s", path, flags,
		strerror(errno));
	REQUIRE(write(fd, value, strlen(value)) == (ssize_t)strlen(value),
		"write '%s' with flags %#x: %s", value, flags,
		strerror(errno));
	close(fd);
}

/*
 * A shell's > and >> both replace the value: a write is the whole value, not
 * text at an offset. Opening with O_TRUNC alone changes nothing.
 */
static void truncate_and_append(const char *top)
{
	char path[PATH_MAX];
	struct family f;
	int fd;

	make_family(&f, top);
	write_with(f.self, CS_PREF, O_TRUNC, "0\n");
	cs_expect(f.self, CS_PREF, "0");
	write_with(f.self, CS_PREF, O_APPEND, "1\n");
	cs_expect(f.self, CS_PREF, "1");
	write_with(f.self, CS_PREF, O_CREAT | O_TRUNC, "2-3\n");
	cs_expect(f.self, CS_PREF, "2-3");
	write_with(f.self, CS_WEIGHTS, O_TRUNC, "1 2\n");
	cs_expect(f.self, CS_WEIGHTS, "1 2");
	write_with(f.self, CS_WEIGHTS, O_APPEND, "3 4\n");
	cs_expect(f.self, CS_WEIGHTS, "3 4");

	cs_name(path, f.self, CS_PREF);
	fd = open(path, O_WRONLY | O_TRUNC);
	REQUIRE(fd >= 0, "open %s: %s", path, strerror(errno));
	close(fd);
	cs_expect(f.self, CS_PREF, "2-3");
}

/*
 * Container runtimes write a value of several lines line by line to one file
 * descriptor: every write(2) is a value of its own, the last one stays. A
 * write of no bytes is none.
 */
static void one_write_one_value(const char *top)
{
	char path[PATH_MAX];
	struct family f;
	int fd;

	make_family(&f, top);
	cs_name(path, f.self, CS_PREF);
	fd = open(path, O_RDWR);
	REQUIRE(fd >= 0, "open %s: %s", path, strerror(errno));
	REQUIRE(write(fd, "0-2\n", 4) == 4, "first line: %s", strerror(errno));
	cs_expect(f.self, CS_PREF, "0-2");
	REQUIRE(write(fd, "3\n", 2) == 2, "second line: %s", strerror(errno));
	cs_expect(f.self, CS_PREF, "3");
	REQUIRE(write(fd, "x\n", 2) < 0 && errno == EINVAL,
		"third line, malformed, was accepted");
	cs_expect(f.self, CS_PREF, "3");
	REQUIRE(pwrite(fd, "1\n", 2, 100) == 2, "at an offset: %s",
		strerror(errno));
	cs_expect(f.self, CS_PREF, "1");
	REQUIRE(write(fd, "", 0) == 0, "no bytes: %s", strerror(errno));
	cs_expect(f.self, CS_PREF, "1");
	close(fd);
}

/* Reading a few bytes at a time gives the same text as reading all at once. */
static void short_reads(const char *top)
{
	static const char *const files[] = {
		CS_PREF, CS_HOME, CS_WEIGHTS, CS_STAT, CS_LOAD
	};
	char path[PATH_MAX], whole[8192], parts[8192];
	struct family f;
	ssize_t n;
	int i, fd;

	make_family(&f, top);
	for (i = 0; i < ARRAY_LEN(files); i++) {
		ssize_t have = 0, len = 0;

		cs_name(path, f.self, files[i]);
		fd = open(path, O_RDONLY);
		REQUIRE(fd >= 0, "open %s: %s", path, strerror(errno));
		while ((n = read(fd, whole + len, sizeof(whole) - len)) > 0)
			len += n;
		REQUIRE(!lseek(fd, 0, SEEK_SET), "lseek: %s", strerror(errno));
		while ((n = read(fd, parts + have, 3)) > 0)
			have += n;
		close(fd);
		REQUIRE(len && have == len && !memcmp(whole, parts, len),
			"%s read by threes differs", files[i]);
	}
}

struct racer {
	const char *cg;
	const char *file;
	const char *value;
	int want;		/* what each write must give */
};

static void race(void *arg)
{
	const struct racer *r = arg;
	int ret;

	for (;;) {
		ret = cs_try_write(r->cg, r->file, r->value);
		REQUIRE(ret == r->want, "racing write '%s' to %s: %s",
			r->value, r->file, ret ? strerror(-ret) : "accepted");
	}
}

/* Runs the writers for a while, and check() all the while. */
static void run_race(struct racer *racers, int n,
		     void (*check)(const struct family *f),
		     const struct family *f)
{
	long long end = cs_now_ms() + 1500;
	int i, status, rounds = 0;
	pid_t pids[8];

	for (i = 0; i < n; i++)
		pids[i] = cs_spawn(cs_root(), race, &racers[i]);
	/* On a slow kernel, until there were some looks, but not for ever. */
	while (cs_now_ms() < end || (rounds <= 10 && cs_now_ms() < end + 60000)) {
		check(f);
		rounds++;
	}
	for (i = 0; i < n; i++) {
		REQUIRE(waitpid(pids[i], &status, WNOHANG) == 0,
			"a writer gave up");
		cs_kill(pids[i]);
	}
	REQUIRE(rounds > 10, "only %d looks at the value", rounds);
}

static void one_of(const char *cg, const char *file, const char *const *values,
		   int n)
{
	char got[4096];
	int i;

	cs_read(cg, file, got, sizeof(got));
	for (i = 0; i < n; i++)
		if (!strcmp(got, values[i]))
			return;
	cs_fail("%s/%s holds '%s', which nobody wrote", cg, file, got);
}

static const char *const raced_cpus[] = { "0", "1-3", "0,2" };
static const char *const raced_weights[] = { "1 1", "10000 10000", "21 22" };

static void check_race(const struct family *f)
{
	one_of(f->self, CS_PREF, raced_cpus, 3);
	one_of(f->self, CS_HOME, raced_cpus, 3);
	one_of(f->child, CS_HOME, raced_cpus, 3);
	one_of(f->self, CS_WEIGHTS, raced_weights, 3);
	one_of(f->child, CS_WEIGHTS, raced_weights, 3);
}

/*
 * Writers that race leave a value that one of them wrote, never a mixture, in
 * the file as in what is derived from it; malformed writes in between are
 * refused each time; and the neighbours keep theirs.
 */
static void racing_writers(const char *top)
{
	struct family f;
	struct racer racers[] = {
		{ f.self, CS_PREF, "0\n", 0 },
		{ f.self, CS_PREF, "1-3\n", 0 },
		{ f.self, CS_PREF, "0,2\n", 0 },
		{ f.self, CS_PREF, "2-\n", -EINVAL },
		{ f.self, CS_WEIGHTS, "1 1\n", 0 },
		{ f.self, CS_WEIGHTS, "10000 10000\n", 0 },
		{ f.self, CS_WEIGHTS, "0 7\n", -ERANGE },
	};

	make_family(&f, top);
	cs_write(f.self, CS_PREF, "0\n");
	run_race(racers, ARRAY_LEN(racers), check_race, &f);

	cs_expect(f.parent, CS_PREF, "0-3");
	cs_expect(f.parent, CS_HOME, "0-3");
	cs_expect(f.parent, CS_WEIGHTS, "11 12");
	cs_expect(f.sibling, CS_PREF, "3");
	cs_expect(f.sibling, CS_HOME, "3");
	cs_expect(f.sibling, CS_WEIGHTS, "31 32");
	cs_expect(f.child, CS_PREF, "");
	cs_write(f.self, CS_PREF, "3\n");
	cs_expect(f.self, CS_HOME, "3");
	cs_expect(f.child, CS_HOME, "3");
}

static void check_levels(const struct family *f)
{
	static const char *const parents[] = { "0-1", "2-3" };
	/* 1-2 within either, or the whole of it where they are disjoint. */
	static const char *const selves[] = { "1", "2", "3", "0-1" };
	static const char *const siblings[] = { "3", "0-1" };

	one_of(f->parent, CS_HOME, parents, 2);
	one_of(f->self, CS_HOME, selves, 4);
	one_of(f->child, CS_HOME, selves, 4);
	one_of(f->sibling, CS_HOME, siblings, 2);
	cs_expect(f->sibling, CS_PREF, "3");
}

/*
 * Writers on different levels of one tree race: every home in the tree is at
 * all times one that follows from values that were written, and when they stop
 * it follows from the last ones.
 */
static void racing_levels(const char *top)
{
	struct family f;
	struct racer racers[] = {
		{ f.parent, CS_PREF, "0-1\n", 0 },
		{ f.parent, CS_PREF, "2-3\n", 0 },
		{ f.self, CS_PREF, "1-2\n", 0 },
		{ f.self, CS_PREF, "3\n", 0 },
	};

	make_family(&f, top);
	cs_write(f.parent, CS_PREF, "0-1\n");
	run_race(racers, ARRAY_LEN(racers), check_levels, &f);

	cs_write(f.self, CS_PREF, "1-2\n");
	cs_write(f.parent, CS_PREF, "2-3\n");
	cs_expect(f.self, CS_HOME, "2");
	cs_expect(f.child, CS_HOME, "2");
	cs_expect(f.sibling, CS_HOME, "3");
}

static const struct cs_test tests[] = {
	{ "files_present", files_present, 0 },
	{ "defaults", defaults, 0 },
	{ "values_end_in_newline", values_end_in_newline, 0 },
	{ "cpus_accepted", cpus_accepted, 0 },
	{ "cpus_longest_list", cpus_longest_list, 0 },
	{ "cpus_unset", cpus_unset, 0 },
	{ "cpus_malformed", cpus_malformed, 0 },
	{ "cpus_several_lines", cpus_several_lines, 0 },
	{ "cpus_whole_or_nothing", cpus_whole_or_nothing, 0 },
	{ "cpus_out_of_range", cpus_out_of_range, 0 },
	{ "weights_accepted", weights_accepted, 0 },
	{ "weights_unset", weights_unset, 0 },
	{ "weights_malformed", weights_malformed, 0 },
	{ "weights_out_of_range", weights_out_of_range, 0 },
	{ "oversized", oversized, 0 },
	{ "never_cut", never_cut, 0 },
	{ "nul_bytes", nul_bytes, 0 },
	{ "read_only_files", read_only_files, 0 },
	{ "truncate_and_append", truncate_and_append, 0 },
	{ "one_write_one_value", one_write_one_value, 0 },
	{ "short_reads", short_reads, 0 },
	{ "racing_writers", racing_writers, 0 },
	{ "racing_levels", racing_levels, 0 },
};

int main(int argc, char **argv)
{
	static const struct cs_program program = {
		.about = "Tests what can be read from and written to the cosched files.",
		.tests = tests,
		.ntests = ARRAY_LEN(tests),
	};

	return cs_main(argc, argv, &program);
}
