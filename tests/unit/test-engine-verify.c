/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of /proc, and the rows of a process that is not in a container.
 * tests/attack/test_receipt.py checks the rows of real containers, complete and with a layer
 * removed. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/proc-hidden.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/oci.h"
#include "engine/verify.h"
#include "fail.h"

static struct span at(const char *text, const char *part)
{
	const char *p = strstr(text, part);

	assert_non_null(p);
	return (struct span){ p, strlen(part) };
}

TEST(lines_and_words)
{
	struct span rest = span_of("a  b\n\n\tc"), line, word;

	(void)state;
	assert_true(span_line(&rest, &line));
	assert_true(span_word(&line, &word) && span_is(word, "a"));
	assert_true(span_word(&line, &word) && span_is(word, "b"));
	assert_false(span_word(&line, &word));
	assert_true(span_line(&rest, &line) && line.n == 0);
	assert_true(span_line(&rest, &line) && span_word(&line, &word) && span_is(word, "c"));
	assert_false(span_line(&rest, &line));
	rest = span_of("");
	assert_false(span_line(&rest, &line));
}

TEST(words_of_a_list)
{
	struct span list = span_of("rw,nosuid,size=64k,lowerdir=/a,x"), value;

	(void)state;
	assert_true(span_lists(list, "rw") && span_lists(list, "nosuid") && span_lists(list, "x"));
	assert_false(span_lists(list, "ro") || span_lists(list, "nosui") ||
		     span_lists(list, "size") || span_lists(list, ""));
	assert_true(span_option(list, "size", &value) && span_is(value, "64k"));
	assert_true(span_option(list, "lowerdir", &value) && span_is(value, "/a"));
	assert_false(span_option(list, "lower", &value) || span_option(list, "x", &value));
	assert_true(span_begins(list, "rw,") && span_ends(list, ",x"));
	assert_false(span_begins(span_of("r"), "rw") || span_ends(span_of("x"), ",x"));
}

TEST(hexadecimal)
{
	uint64_t value;

	(void)state;
	assert_true(span_hex(span_of("00000000000001eb"), &value) && value == 0x1eb);
	assert_true(span_hex(span_of("ffffffffffffffff"), &value) && value == UINT64_MAX);
	assert_false(span_hex(span_of("1eb"), &value));
	assert_false(span_hex(span_of("00000000000001EB"), &value));
	assert_false(span_hex(span_of("00000000000001eg"), &value));
	assert_false(span_hex(span_of("000000000000001eb"), &value));
}

TEST(fields_of_status)
{
	static const char text[] = "Name:\ta\\nSeccomp:\t2\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t8\t7\n"
				   "CapEff:\t00000000000001eb\nSeccomp:\t1\nSeccomp_filters:\t3\n"
				   "Groups:\t\nTwo:\t1 2\nNone:\n";
	struct span s;
	uint64_t n;

	(void)state;
	assert_true(text_field_number(text, "Seccomp:", &n) && n == 1);
	assert_true(text_field_number(text, "Seccomp_filters:", &n) && n == 3);
	assert_true(text_field_hex(text, "CapEff:", &n) && n == 0x1eb);
	assert_false(text_field_number(text, "NoNewPrivs:", &n));
	assert_false(text_field_number(text, "Two:", &n) || text_field_number(text, "None:", &n));
	assert_false(text_field_number(text, "Name:", &n) || text_field_hex(text, "Seccomp:", &n));
	assert_true(text_field(text, "Uid:", &s) && text_all_are(s, 7, 7));
	assert_false(text_all_are(s, 8, 9));
	assert_true(text_field(text, "Gid:", &s) && !text_all_are(s, 7, 7));
	assert_true(text_field(text, "Groups:", &s) && !text_all_are(s, 0, 0));
}

TEST(maps_of_ids)
{
	static const char *const wrong[] = {
		"",
		"\n",
		"         0 1000000000\n",
		"         1 1000000000      65536\n",
		"         0 1000000000      65536 1\n",
		"         0 1000000000      65536\n     65536 0 1\n",
		"         0 1000000000      65536\n\n",
		"         0 -1 65536\n",
		"a b c\n",
	};
	uint64_t first = 0, count = 0;

	(void)state;
	assert_true(text_one_map("         0 1000000000      65536\n", &first, &count));
	assert_int_equal(first, 1000000000);
	assert_int_equal(count, 65536);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(text_one_map(wrong[i], &first, &count));
}

TEST(devices_of_a_network)
{
#define DEV                                                    \
	"Inter-|   Receive            |  Transmit\n"           \
	" face |bytes    packets errs |bytes    packets err\n" \
	"    lo:       0       0\n"
#define ROUTE "Iface\tDestination\tGateway\n"
#define INET6 "00000000000000000000000000000001 01 80 10 80       lo\n"
	struct span s;

	(void)state;
	assert_false(text_other_device(DEV, TEXT_NET_DEV, &s));
	assert_false(text_other_device(DEV "    lo:1234567890\n", TEXT_NET_DEV, &s));
	assert_true(text_other_device(DEV "  eth0: 1 2\n", TEXT_NET_DEV, &s));
	assert_true(span_is(s, "eth0:"));
	assert_true(text_other_device(DEV "  lo0: 1 2\n", TEXT_NET_DEV, &s));
	assert_false(text_other_device(ROUTE, TEXT_NET_ROUTE, &s));
	assert_false(text_other_device(ROUTE "lo\t0\t0\n", TEXT_NET_ROUTE, &s));
	assert_true(text_other_device(ROUTE "eth0\t0\t0\n", TEXT_NET_ROUTE, &s));
	assert_false(text_other_device("", TEXT_NET_INET6, &s));
	assert_false(text_other_device(INET6, TEXT_NET_INET6, &s));
	assert_true(text_other_device(INET6 "fe80 02 40 20 80 eth0\n", TEXT_NET_INET6, &s));
	assert_true(text_other_device("\n", TEXT_NET_INET6, &s));
}

TEST(groups_of_a_process)
{
	static const char text[] = "4:memory:/hutch/a\n2:cpu,cpuacct:/hutch/b\n"
				   "1:name=systemd:/\n0::/user/c:d\n";
	struct span s;

	(void)state;
	assert_true(text_cgroup(text, "memory", &s) && span_is(s, "/hutch/a"));
	assert_true(text_cgroup(text, "cpu", &s) && span_is(s, "/hutch/b"));
	assert_true(text_cgroup(text, NULL, &s) && span_is(s, "/user/c:d"));
	assert_false(text_cgroup(text, "pids", &s) || text_cgroup(text, "systemd", &s));
	assert_false(text_cgroup("4:memory\n", "memory", &s) || text_cgroup("", NULL, &s));
}

TEST(mounts_of_a_process)
{
	static const char text[] =
		"97 70 0:41 / / rw,nosuid shared:1 master:2 - overlay hutch rw,lowerdir=/l\n"
		"98 97 0:45 / /proc rw - proc proc rw\n"
		"99 97 0:6 /null /proc/keys ro - devtmpfs  rw,size=1k\n"
		"100 97 0:6 / /twice ro - tmpfs a rw\n"
		"101 97 0:6 / /twice ro - tmpfs a rw\n";
	static const char *const wrong[] = {
		"",
		"97 70 0:41 / / rw overlay hutch rw\n",
		"97 70 0:41 / / rw - overlay\n",
		"97 70 0:41 / /\n",
		"97 70 0:41 / / rw - overlay hutch rw\n\n",
		"97 70 0:41 / / rw 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 - overlay hutch rw\n",
	};
	struct text_mounts all;
	const struct text_mount *m;

	(void)state;
	assert_int_equal(text_mounts(text, &all), 0);
	assert_int_equal(all.n, 5);
	m = text_mount_at(&all, "/");
	assert_true(m && span_is(m->type, "overlay") && span_is(m->super, "rw,lowerdir=/l") &&
		    span_is(m->options, "rw,nosuid"));
	m = text_mount_at(&all, "/proc/keys");
	assert_true(m && span_is(m->root, "/null") && span_is(m->super, "rw,size=1k"));
	assert_null(text_mount_at(&all, "/twice"));
	assert_null(text_mount_at(&all, "/pro"));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(text_mounts(wrong[i], &all), -EBADMSG);
}

TEST(too_many_mounts)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	static struct text_mounts all;

	(void)state;
	for (size_t i = 0; i < TEXT_MOUNTS_MAX; i++)
		assert_int_equal(buf_puts(&b, "1 2 0:1 / / rw - proc proc rw\n"), 0);
	assert_int_equal(text_mounts(buf_text(&b), &all), 0);
	assert_int_equal(buf_puts(&b, "1 2 0:1 / / rw - proc proc rw\n"), 0);
	assert_int_equal(text_mounts(buf_text(&b), &all), -E2BIG);
}

/* Every prefix of a text, without a NUL after a span. */
TEST(cut_anywhere)
{
	static const char text[] =
		"1 2 0:1 / /a rw,x=1 shared:1 - proc proc rw\n4:memory:/x\n0::/y";
	static struct text_mounts all;

	(void)state;
	for (size_t n = 0; n < sizeof(text); n++) {
		_cleanup_free_ char *copy = strndup(text, n);
		struct span s = at(text, "rw,x=1");
		uint64_t a, b;

		(void)text_mounts(copy, &all);
		(void)text_cgroup(copy, NULL, &s);
		(void)text_one_map(copy, &a, &b);
		(void)text_other_device(copy, TEXT_NET_DEV, &s);
		(void)text_other_device(copy, TEXT_NET_INET6, &s);
	}
}

TEST(what_the_bundle_gives)
{
	(void)state;
	assert_int_equal(oci_guest_capabilities(), 0x1ed);
	assert_string_equal(proc_readonly[2], "/proc/sys");
	assert_null(proc_readonly[3]);
}

/* The smallest limits possible, so that no process has them by chance. */
static const struct spec spec = {
	.id = "abcdefghijklmnop",
	.limits = { .cpus = 1, .memory = 1, .disk = 1, .pids = 1 },
};

/* The table under test: a container's or a VM's. */
static const struct verify_table *table = &verify_of_container;

static int of_container(void **state)
{
	(void)state;
	table = &verify_of_container;
	return 0;
}

static int of_machine(void **state)
{
	(void)state;
	table = &verify_of_machine;
	return 0;
}

static void look_until(const struct proc *p, bool rootless, uint64_t deadline, struct receipt *ret)
{
	struct cgroup group = CGROUP_INIT;
	struct engine_start start = { .engine = engine_find("qemu"),
				      .spec = &spec,
				      .group = &group,
				      .channel = -EBADF,
				      .ids = 100000,
				      .rootless = rootless };
	struct engine_sandbox box = { .init = *p, .disk = 1 };

	for (size_t i = 0; i < CGROUP_PARTS; i++)
		(void)snprintf(group.why[i], sizeof(group.why[i]), "no group %zu", i);
	receipt_init(ret, 0);
	/* A row that is not filled in would be noticed. */
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++)
		receipt_yes(ret, i, "untouched");
	verify_process(table, &start, &box, deadline, ret);
}

static void look_at(const struct proc *p, bool rootless, struct receipt *ret)
{
	look_until(p, rootless, 0, ret);
}

static void wait_for_ever(struct proc *ret)
{
	if (proc_fork(ret) == 1)
		for (;;)
			(void)pause();
	assert_true(ret->pid > 0);
}

/* If these tests run in a container, a child inherits some of its layers. */
static bool has_by_inheritance(unsigned int row)
{
	struct rlimit core, files;

	switch (row) {
	case LAYER_SECCOMP: /* a VM needs filters in addition to ours */
		return table == &verify_of_container && prctl(PR_GET_SECCOMP) == 2;
	case LAYER_NO_NEW_PRIVILEGES:
		return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
	case EXTRA_RLIMITS:
		return getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max <= 1 &&
		       getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY;
	case EXTRA_NO_DEVICES:
		return table == &verify_of_container && access("/dev/kmsg", F_OK) < 0 &&
		       access("/dev/console", F_OK) < 0;
	default:
		return false;
	}
}

TEST(plain_child_has_nothing)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt r;

	(void)state;
	wait_for_ever(&p);
	look_at(&p, false, &r);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		if (i == LAYER_LANDLOCK || i == LAYER_DIAL_GUARD || i >= EXTRA_KEEPER) {
			assert_string_equal(r.row[i].seen, "untouched");
			continue;
		}
		assert_string_not_equal(r.row[i].seen, "untouched");
		if (!has_by_inheritance(i) && r.row[i].enforced)
			fail_msg("%s: %s", receipt_row_name(i), r.row[i].seen);
		assert_true(r.row[i].seen[0]);
	}
}

TEST(reasons_are_given)
{
	bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt r;

	(void)state;
	wait_for_ever(&p);
	look_at(&p, false, &r);
	assert_string_equal(r.row[LAYER_KVM].seen, "a container has no virtual machine");
	assert_string_equal(r.row[LAYER_CGROUP_CPU].seen, "no group 0");
	assert_string_equal(r.row[LAYER_CGROUP_PIDS].seen, "no group 2");
	assert_string_equal(r.row[LAYER_CGROUP_CPU].advice, "");
	assert_string_equal(r.row[EXTRA_MOUNT_NAMESPACE].seen,
			    "PID 1 is in the host's mnt namespace");
	look_at(&p, true, &r);
	assert_non_null(strstr(r.row[LAYER_CGROUP_CPU].advice,
			       v2 ? "Delegate=yes" : "unified_cgroup_hierarchy=1"));
}

static void expect_all(const struct receipt *r, const char *seen)
{
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		if (i == LAYER_LANDLOCK || i == LAYER_DIAL_GUARD || i >= EXTRA_KEEPER)
			continue;
		assert_false(r->row[i].enforced);
		assert_string_equal(r->row[i].seen, seen);
	}
}

TEST_WITH(reasons_of_a_machine, of_machine, of_container)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt r;

	(void)state;
	wait_for_ever(&p);
	look_at(&p, false, &r);
	assert_string_equal(r.row[LAYER_KVM].seen,
			    "TCG: the CPU is emulated, which is slower and more code to trust");
	assert_string_equal(r.row[EXTRA_MASKED_PROC].seen, "the root of QEMU is not empty");
	assert_non_null(strstr(r.row[EXTRA_NO_SYSFS].seen, " mounts, not one"));
	assert_string_equal(r.row[LAYER_DISK_QUOTA].seen,
			    "QEMU does not have the sandbox's disk open");
	look_until(&p, false, clock_mono(), &r);
	expect_all(&r, "PID 1 does not run qemu-system-x86_64");
}

/* A VM's control groups must have room for its kernel and QEMU, too. */
TEST(limits)
{
	struct spec s = { .limits = { .cpus = 1500, .memory = 1 << 30, .pids = 7 } };
	struct cgroup_limits l = engine_find("crun")->limits(&s);

	(void)state;
	assert_int_equal(l.cpus, 1500);
	assert_int_equal(l.memory, 1 << 30);
	assert_int_equal(l.pids, 7);
	s.machine.kernel = "/k";
	s.machine.accel = "kvm";
	l = engine_find("qemu")->limits(&s);
	assert_int_equal(l.cpus, 1500);
	assert_int_equal(l.memory, (UINT64_C(1024 + 32 + 80) + 128) << 20);
	assert_int_equal(l.pids, 96 + 2);
	s.machine.accel = "tcg";
	assert_int_equal(engine_find("qemu")->limits(&s).memory, (1024 + 32 + 80 + 256) << 20);
}

TEST(not_the_guest)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt r;
	uint64_t start = clock_mono();

	(void)state;
	wait_for_ever(&p);
	look_until(&p, false, start + 20 * NSEC_PER_MSEC, &r);
	assert_true(clock_mono() >= start + 20 * NSEC_PER_MSEC);
	expect_all(&r, "PID 1 does not run hutch-guest");
	/* An ended process is not waited for. */
	assert_int_equal(proc_signal(&p, SIGKILL), 0);
	look_until(&p, false, UINT64_MAX, &r);
	expect_all(&r, "PID 1 has ended");
}

TEST(ended_child)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt r;
	siginfo_t info;

	(void)state;
	wait_for_ever(&p);
	assert_int_equal(proc_signal(&p, SIGKILL), 0);
	/* Not reaped: /proc still has an entry with part of the data. */
	assert_int_equal(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
	look_at(&p, false, &r);
	expect_all(&r, "PID 1 has ended");
	assert_int_equal(proc_wait(&p, UINT64_MAX, &info), 0);
	look_at(&p, false, &r);
	expect_all(&r, "there is no PID 1");
}

/* The number of one process and the pidfd of another, ended one: the pidfd decides. */
TEST(reused_number)
{
	_cleanup_proc_ struct proc p = PROC_INIT, other = PROC_INIT;
	struct proc mixed;
	static struct receipt r;

	(void)state;
	wait_for_ever(&p);
	wait_for_ever(&other);
	assert_int_equal(proc_signal(&p, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)p.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	mixed = (struct proc){ other.pid, p.pidfd };
	look_at(&mixed, false, &r);
	expect_all(&r, "PID 1 has ended");
}

/* A fault never makes a layer count as enforced; an interrupted call has no effect. */
static int look_again(const struct proc *p, const struct receipt *before, bool same)
{
	static struct receipt r;

	look_at(p, false, &r);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		assert_false(r.row[i].enforced && !before->row[i].enforced);
		if (same)
			assert_string_equal(r.row[i].seen, before->row[i].seen);
	}
	return 0;
}

TEST(faults)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	static struct receipt before;

	(void)state;
	wait_for_ever(&p);
	look_at(&p, false, &before);
	FAIL_SWEEP_(look_again(&p, &before, false), EIO);
	FAIL_SWEEP_(look_again(&p, &before, true), EINTR);
}

TEST_WITH(plain_child_has_nothing_of_a_machine, of_machine, of_container)
{
	plain_child_has_nothing(state);
}

TEST_WITH(faults_of_a_machine, of_machine, of_container)
{
	faults(state);
}

/* Rows that only QEMU has are not enforced; a QEMU without them does not start. */
TEST(rows_of_a_nested_machine)
{
	struct receipt r;
	struct err e = ERR_INIT;

	(void)state;
	receipt_init(&r, 0);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++)
		receipt_yes(&r, i, "seen %u", i);
	verify_nested(&r);
	assert_int_equal(receipt_check(&r, &e), 0);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		bool inside = i == LAYER_SECCOMP || i == LAYER_NO_CAPABILITIES ||
			      i == LAYER_NO_NEW_PRIVILEGES;

		assert_int_equal(r.row[i].enforced, !inside);
		assert_int_equal(strstr(r.row[i].seen, "isolation.nested") != NULL, inside);
	}
	receipt_init(&r, 0);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++)
		receipt_yes(&r, i, "seen %u", i);
	receipt_no(&r, LAYER_SECCOMP, "Seccomp: 0");
	verify_nested(&r);
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_non_null(strstr(e.msg, "seccomp (Seccomp: 0)"));
}
