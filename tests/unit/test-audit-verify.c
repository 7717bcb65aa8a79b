/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log in a directory: errors that verification finds and names. */
#include "test-audit.h"

#include <sodium.h>
#include <sys/stat.h>

#include "base/str.h"

/* ---- a log in a directory ---- */

TEST_WITH(test_life, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct err e = ERR_INIT;
	struct stat st;

	open_log(&l);
	assert_int_equal(fstat(l.dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	host(&l, "hello");
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	for (int i = 0; i < 10; i++)
		assert_int_equal(box(&c, "/tmp/x"), 0);
	assert_int_equal(look(&l, NULL).live, 1);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	must(audit_sandbox_seal(&l, "never", &e), &e);
	assert_int_equal(audit_sync(&l, &c), 0);
	audit_chain_close(&c);
	/* host: begin, create, begin of abc, seal, checkpoint; abc: begin and ten */
	assert_good(&l, 5 + 11, 2);
	assert_int_equal(look(&l, NULL).checkpoints, 1);
	assert_int_equal(audit_sandbox_begin(&l, "../x", &c, &e), -EINVAL);
}

TEST_WITH(test_verify_names_the_record, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_buf_ struct buf good = BUF_INIT(0);
	size_t at[102] = { 0 };
	unsigned int seed = 1;

	open_log(&l);
	for (int i = 0; i < 100; i++)
		host(&l, "something to be recorded");
	good = slurp(d, HOST);
	for (size_t i = 0; i < 101; i++)
		at[i + 1] = at[i] + record_size(good.data + at[i]);
	assert_int_equal(at[101], good.len);
	for (int i = 0; i < (SANITIZED ? 200 : 2000); i++) {
		size_t bit = (size_t)rand_r(&seed) % (8 * good.len), k = 0;
		struct audit_report r;

		while (at[k + 1] <= bit / 8)
			k++;
		good.data[bit / 8] = (char)(good.data[bit / 8] ^ 1 << bit % 8);
		spill(d, HOST, good.data, good.len);
		good.data[bit / 8] = (char)(good.data[bit / 8] ^ 1 << bit % 8);
		r = look(&l, NULL);
		assert_bad(&r, "host-00000000.log", k, "");
		assert_int_equal(r.offset, at[k]);
	}
	spill(d, HOST, good.data, good.len);
	assert_good(&l, 101, 1);
}

/* Rewrites the chain from record `k` on, with another text in it and valid hashes. */
static void rechain(const struct unit_dir *d, const char *name, uint64_t k)
{
	_cleanup_buf_ struct buf old = slurp(d, name), new = BUF_INIT(64 * 1024 * 1024);
	uint8_t *out = malloc(AUDIT_RECORD_MAX);
	struct audit_head was = { 0 }, is = { 0 };

	assert_non_null(out);
	for (size_t at = 0; at < old.len;) {
		struct audit_record rec;
		const char *why;
		ssize_t n =
			audit_record_read(&was, (uint8_t *)old.data + at, old.len - at, &rec, &why);

		assert_true(n > 0);
		if (rec.seq == k)
			rec.n_payload--; /* any other text will do */
		assert_int_equal(buf_put(&new, out, audit_record_write(&is, &rec, out)), 0);
		at += (size_t)n;
	}
	free(out);
	spill(d, name, new.data, new.len);
}

TEST_WITH(test_rechained, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct audit_report r;
	struct err e = ERR_INIT;
	struct buf good_host, good_box;

	open_log(&l);
	host(&l, "one");
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	for (int i = 0; i < 5; i++)
		assert_int_equal(box(&c, "/tmp/x"), 0);
	audit_chain_close(&c);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	host(&l, "two");
	assert_good(&l, 0, 2);
	good_host = slurp(d, HOST);
	good_box = slurp(d, BOX);
	/* 0 begin, 1 create, 2 begin, 3 seal, 4 checkpoint, 5 create */
	rechain(d, HOST, 1);
	r = look(&l, NULL);
	assert_bad(&r, "host-00000000.log", 4, "checkpoint is about another record");
	spill(d, HOST, good_host.data, good_host.len);
	assert_int_equal(fchmodat(d->fd, BOX, 0600, 0), 0);
	rechain(d, BOX, 3);
	r = look(&l, NULL);
	assert_bad(&r, "abc-00000000.log", 5, "not the record that was sealed");
	rechain(d, BOX, 0);
	r = look(&l, NULL);
	assert_bad(&r, "abc-00000000.log", 0, "host chain says it begins with");
	spill(d, BOX, good_box.data, good_box.len - 3);
	r = look(&l, NULL);
	assert_bad(&r, "abc-00000000.log", 5, "before its seal");
	spill(d, BOX, good_box.data, good_box.len);
	assert_good(&l, 0, 2);
	assert_int_equal(unlinkat(d->fd, BOX, 0), 0);
	r = look(&l, NULL);
	assert_bad(&r, "host-00000000.log", 2, "sandbox abc: its chain is missing");
	buf_done(&good_host);
	buf_done(&good_box);
}

TEST_WITH(test_another_key, setup, unit_dir_teardown)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct audit_report r;
	struct err e = ERR_INIT;

	open_log(&l);
	host(&l, "one");
	must(audit_checkpoint(&l, NULL, &e), &e);
	must(audit_set_open(&l, &set, &e), &e);
	set.key[3] ^= 1;
	must(audit_verify(&set, set.key, NULL, &r, &e), &e);
	assert_bad(&r, "host-00000000.log", 2, "another key");
}

/* A signature is not valid for another record. */
TEST_WITH(test_forged_mark, setup, unit_dir_teardown)
{
	_cleanup_buf_ struct buf text = BUF_INIT(4096);
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct audit_mark m, back;
	struct err e = ERR_INIT;

	open_log(&l);
	host(&l, "one");
	must(audit_checkpoint(&l, &m, &e), &e);
	assert_int_equal(audit_mark_print(&m, &text), 0);
	must(audit_mark_read(text.data, text.len, &back, &e), &e);
	assert_memory_equal(&m, &back, sizeof(m));
	m.seq++;
	buf_reset(&text);
	assert_int_equal(audit_mark_print(&m, &text), 0);
	assert_int_equal(audit_mark_read(text.data, text.len, &back, &e), -EINVAL);
	assert_int_equal(audit_mark_read("[]", 2, &back, &e), -EINVAL);
	assert_int_equal(audit_mark_read("{\"seq\":1}", 9, &back, &e), -EINVAL);
}

TEST_WITH(test_truncated, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct audit_mark m;
	struct audit_report r;
	struct err e = ERR_INIT;
	struct buf good;
	size_t covered;

	open_log(&l);
	host(&l, "one");
	host(&l, "two");
	covered = (size_t)l.offset;
	must(audit_checkpoint(&l, &m, &e), &e);
	assert_int_equal(m.seq, 2);
	assert_false(look(&l, &m).bad);
	good = slurp(d, HOST);
	/* Cut anywhere: detected for all records that the checkpoint covers. */
	for (size_t n = 0; n < good.len; n++) {
		spill(d, HOST, good.data, n);
		assert_int_equal(look(&l, &m).bad, n < covered);
	}
	spill(d, HOST, good.data, good.len);
	rechain(d, HOST, 1);
	r = look(&l, &m);
	assert_bad(&r, "host-00000000.log", 2, "not the record that the checkpoint was made of");
	buf_done(&good);
}

/* ---- export ---- */

TEST_WITH(test_export, setup, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT, back = AUDIT_SET_INIT;
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	static struct audit_chain c;
	struct audit_report r;
	struct err e = ERR_INIT;
	int fd;

	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	assert_int_equal(box(&c, "/one"), 0);
	audit_chain_close(&c);
	must(audit_sandbox_seal(&l, "abc", &e), &e);
	must(audit_set_open(&l, &set, &e), &e);
	fd = openat(d->fd, "export", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(audit_export(&set, fd, &e), &e);
	must(audit_set_import(fd, &back, &e), &e);
	assert_int_equal(back.n, 2);
	must(audit_verify(&back, set.key, NULL, &r, &e), &e);
	assert_false(r.bad);
	assert_int_equal(r.records, 6);
}
