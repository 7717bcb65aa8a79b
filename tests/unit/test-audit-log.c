/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log in a directory: full disks, killed writers, rotation, the cap, failing calls. */
#include "test-audit.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "fail.h"

/* ---- full disks, killed writers ---- */

TEST_WITH(test_full_disk, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;

	(void)signal(SIGXFSZ, SIG_IGN);
	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	assert_int_equal(box(&c, "/one"), 0);
	for (rlim_t more = 0; more < 180; more += 7) {
		uint64_t before = c.head.count;

		limit_size(c.bytes + more);
		assert_int_equal(box(&c, "/does not fit, or only just"), -EFBIG);
		assert_int_equal(box(&c, "/still full"), -EFBIG);
		/* A record that was begun counts. */
		assert_int_equal(c.head.count, before + (more > 0));
		assert_false(look(&l, NULL).bad);
		limit_size(0);
		assert_int_equal(box(&c, "/there is room again"), 0);
		assert_int_equal(c.n_out, 0);
		assert_int_equal(look(&l, NULL).torn, 0);
	}
	audit_chain_close(&c);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	assert_good(&l, 0, 2);
}

TEST_WITH(test_full_disk_of_host_chain, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;
	static struct audit_chain c;

	(void)signal(SIGXFSZ, SIG_IGN);
	audit_put_text(&p, "what", "three");
	open_log(&l);
	host(&l, "one");
	limit_size(l.offset + 50);
	assert_int_equal(audit_host(&l, AUDIT_CREATE, &p, &e), -EFBIG);
	assert_non_null(strstr(e.msg, "nothing is started without it"));
	assert_int_equal(audit_sandbox_begin(&l, "abc", &c, &e), -EFBIG);
	limit_size(0);
	assert_good(&l, 2, 1);
	must(audit_host(&l, AUDIT_CREATE, &p, &e), &e);
	assert_good(&l, 3, 1);
}

/* A torn record at the end of the host chain, cut at every byte. */
TEST_WITH(test_torn, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	struct audit_log first = AUDIT_LOG_INIT;
	size_t whole;
	struct buf good;

	open_log(&first);
	host(&first, "one");
	whole = (size_t)first.offset;
	host(&first, "two");
	audit_close(&first);
	good = slurp(d, HOST);
	for (size_t n = whole + 1; n < good.len; n += SANITIZED ? 13 : 1) {
		_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;

		spill(d, HOST, good.data, n);
		open_log(&l);
		assert_int_equal(look(&l, NULL).torn, 1);
		host(&l, "three");
		/* begin, one, torn, three */
		assert_good(&l, 4, 1);
		assert_int_equal(look(&l, NULL).torn, 0);
	}
	buf_done(&good);
}

/* Damage is not mistaken for a torn write, and nothing is appended after it. */
TEST_WITH(test_damage_is_not_torn, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct audit_log first = AUDIT_LOG_INIT;
	struct err e = ERR_INIT;
	struct buf b;

	open_log(&first);
	host(&first, "one");
	audit_close(&first);
	b = slurp(d, HOST);
	b.data[b.len - 1] ^= 1;
	spill(d, HOST, b.data, b.len);
	open_log(&l);
	assert_int_equal(audit_host(&l, AUDIT_CREATE, NULL, &e), -EBADMSG);
	assert_non_null(strstr(e.msg, "hutch audit verify"));
	buf_done(&b);
	b = slurp(d, HOST);
	assert_int_equal(audit_host(&l, AUDIT_CREATE, NULL, &e), -EBADMSG);
	buf_done(&b);
}

TEST_WITH(test_torn_sandbox, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;
	struct buf b;

	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	assert_int_equal(box(&c, "/one"), 0);
	assert_int_equal(box(&c, "/two"), 0);
	audit_chain_close(&c);
	b = slurp(d, BOX);
	spill(d, BOX, b.data, b.len - 5);
	buf_done(&b);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	/* begin, begin, seal, checkpoint; begin, one, torn */
	assert_good(&l, 7, 2);
}

static _noreturn_ void append_for_ever(unsigned int n)
{
	struct audit_log l = AUDIT_LOG_INIT;
	struct err e = ERR_INIT;

	if (audit_open(&l, &e) < 0)
		_exit(1);
	for (;;) {
		_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

		audit_put_number(&p, "writer", n);
		if (audit_host(&l, AUDIT_CREATE, &p, &e) < 0)
			_exit(2);
	}
}

TEST_WITH(test_killed_writers, setup, unit_dir_teardown)
{
	struct timespec a_while = { .tv_nsec = 40 * 1000 * 1000 };
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct audit_report last = { 0 }, now;

	open_log(&l);
	for (int round = 0; round < 8; round++) {
		pid_t pids[4];

		for (unsigned int i = 0; i < ARRAY_SIZE(pids); i++) {
			pids[i] = fork();
			assert_true(pids[i] >= 0);
			if (pids[i] == 0)
				append_for_ever(i);
		}
		(void)nanosleep(&a_while, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
			(void)kill(pids[i], SIGKILL);
		for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
			int status = 0;

			assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
			assert_true(WIFSIGNALED(status));
		}
		host(&l, "survivor");
		now = look(&l, NULL);
		assert_false(now.bad);
		assert_true(now.records > last.records);
		last = now;
	}
	print_message("# %llu records by killed writers\n", (unsigned long long)last.records);
}

/* ---- rotation, cap ---- */

TEST_WITH(test_rotation, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT, late = AUDIT_LOG_INIT;
	struct audit_report r;
	char text[4000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	open_log(&l);
	open_log(&late);
	host(&late, "early");
	for (int i = 0; i < 200; i++)
		host(&l, text);
	host(&late, "it has to find the new file");
	r = look(&l, NULL);
	assert_false(r.bad);
	assert_true(r.checkpoints >= 3);
	assert_true(l.number >= 3);
	assert_int_equal(late.number, l.number);
	/* A missing file in the middle, at the end, at the beginning. */
	assert_int_equal(renameat(d->fd, "audit/host-00000001.log", d->fd, "audit/x"), 0);
	r = look(&l, NULL);
	assert_bad(&r, "host-00000002.log", r.seq, "a file is missing");
	assert_int_equal(renameat(d->fd, "audit/x", d->fd, "audit/host-00000001.log"), 0);
	assert_int_equal(renameat(d->fd, HOST, d->fd, "audit/x"), 0);
	r = look(&l, NULL);
	assert_bad(&r, "host-00000001.log", r.seq, "no signed record says why");
}

/* Killed between the new file and its first record. */
TEST_WITH(test_rotation_interrupted, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;

	open_log(&l);
	host(&l, "one");
	unit_dir_write(d, "audit/host-00000001.log", "", 0);
	assert_good(&l, 2, 1);
	host(&l, "two");
	/* begin, one, rotate, two */
	assert_good(&l, 4, 1);
	assert_int_equal(l.number, 1);
}

TEST_WITH(test_sandbox_rotation, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;
	char text[4000];
	uint64_t n = 0;
	int fd = -EBADF;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	for (; !audit_chain_wants_file(&c); n++)
		assert_int_equal(box(&c, text), 0);
	must(audit_sandbox_next(&l, "abc", 1, &fd, &e), &e);
	assert_int_equal(audit_chain_switch(&c, fd), 0);
	/* No new file comes: the chain ends with an error. */
	for (; box(&c, text) == 0; n++)
		assert_true(n < 10000);
	assert_int_equal(box(&c, text), -EFBIG);
	audit_chain_close(&c);
	must(audit_sandbox_next(&l, "abc", 2, &fd, &e), &e);
	(void)close(fd);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	assert_good(&l, n + 2 + 4, 2);
}

static uint64_t used(const struct audit_log *l)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	struct err e = ERR_INIT;
	uint64_t sum = 0;

	must(audit_set_open(l, &set, &e), &e);
	for (size_t i = 0; i < set.n; i++)
		sum += set.files[i].size;
	return sum;
}

enum {
	CAP = 2 * 1024 * 1024
};

TEST_WITH(test_cap, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	static struct audit_chain c;
	struct audit_report r;
	struct err e = ERR_INIT;
	char text[4000], id[16];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	(void)setenv("HUTCH_AUDIT_MAX", "2097152", 1);
	open_log(&l);
	for (int i = 0; i < 1500; i++) {
		(void)snprintf(id, sizeof(id), "box%d", i);
		must(audit_sandbox_begin(&l, id, &c, &e), &e);
		for (int k = 0; k < 4; k++)
			assert_int_equal(box(&c, text), 0);
		audit_chain_close(&c);
		must(audit_sandbox_seal(&l, id, &e), &e);
		if (i % 100 == 0)
			assert_true(used(&l) < CAP + CAP / 2);
	}
	r = look(&l, NULL);
	if (r.bad)
		fail_msg("%s %llu: %s", r.file, (unsigned long long)r.seq, r.what);
	assert_true(r.missing > 0);
	must(audit_set_open(&l, &set, &e), &e);
	assert_true(set.files[0].number > 0); /* files of the host chain were deleted too */
}

TEST_WITH(test_cap_without_anything_to_remove, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;
	char text[4000], id[16];
	int r = 0;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	(void)setenv("HUTCH_AUDIT_MAX", "200000", 1);
	open_log(&l);
	for (int i = 0; r == 0 && i < 200; i++) {
		(void)snprintf(id, sizeof(id), "live%d", i);
		r = audit_sandbox_begin(&l, id, &c, &e);
		for (int k = 0; r == 0 && k < 4; k++)
			assert_int_equal(box(&c, text), 0);
		audit_chain_close(&c);
	}
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(e.msg, "HUTCH_AUDIT_MAX"));
	assert_true(used(&l) < 300000);
	assert_false(look(&l, NULL).bad);
}

TEST_WITH(test_off, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;

	(void)setenv("HUTCH_AUDIT", "off", 1);
	open_log(&l);
	assert_true(l.off);
	host(&l, "nothing");
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	assert_int_equal(box(&c, "/x"), 0);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	assert_int_equal(audit_sync(&l, &c), 0);
	assert_int_equal(unit_dir_entries(d), 0);
}

TEST_WITH(test_not_ours, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	struct audit_log l = AUDIT_LOG_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(mkdirat(d->fd, "audit", 0755), 0);
	assert_int_equal(fchmodat(d->fd, "audit", 0755, 0), 0);
	assert_int_equal(audit_open(&l, &e), -EPERM);
	(void)setenv("HUTCH_AUDIT_DIR", "relative", 1);
	assert_int_equal(audit_open(&l, &e), -EINVAL);
}

/* ---- faults ---- */

/* Each run has its own log, so that it does not read the records of the others. */
static int whole_life(const struct unit_dir *d)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	static struct audit_chain c;
	static unsigned int n;
	struct audit_report report;
	struct err e = ERR_INIT;
	char id[16], path[2 * UNIT_PATH_MAX];
	int r;

	(void)snprintf(id, sizeof(id), "run%u", n++);
	(void)snprintf(path, sizeof(path), "%s/%s", d->path, id);
	(void)setenv("HUTCH_AUDIT_DIR", path, 1);
	r = audit_open(&l, &e);
	if (r == 0)
		r = audit_host(&l, AUDIT_CREATE, NULL, &e);
	if (r == 0)
		r = audit_sandbox_begin(&l, id, &c, &e);
	if (r == 0) {
		r = box(&c, "/x");
		audit_chain_close(&c);
	}
	if (r == 0)
		r = audit_sandbox_seal(&l, id, &e);
	if (r == 0)
		r = audit_set_open(&l, &set, &e);
	if (r == 0)
		r = audit_verify(&set, set.key, NULL, &report, &e);
	if (r == 0 && report.bad)
		fail_msg("%s %llu: %s", report.file, (unsigned long long)report.seq, report.what);
	return r;
}

TEST_WITH(test_faults, setup, unit_dir_teardown)
{
	FAIL_SWEEP(whole_life(*state));
}
