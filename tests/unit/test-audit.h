/* SPDX-License-Identifier: Apache-2.0 */
/* An audit log for a test, and operations on it. */
#pragma once

#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "audit/audit-read.h"
#include "base/fd.h"

#define HOST "audit/host-00000000.log"
#define BOX  "audit/sandbox/abc-00000000.log"

static inline int setup(void **state)
{
	char path[2 * UNIT_PATH_MAX];
	int r = unit_dir_setup(state);

	(void)snprintf(path, sizeof(path), "%s/audit", ((struct unit_dir *)*state)->path);
	(void)setenv("HUTCH_AUDIT_DIR", path, 1);
	(void)unsetenv("HUTCH_AUDIT_MAX");
	(void)unsetenv("HUTCH_AUDIT");
	return r;
}

static inline void must(int r, const struct err *e)
{
	if (r < 0)
		fail_msg("%s", e->msg);
}

static inline void open_log(struct audit_log *l)
{
	struct err e = ERR_INIT;

	must(audit_open(l, &e), &e);
}

static inline void host(struct audit_log *l, const char *text)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;

	audit_put_text(&p, "what", text);
	must(audit_host(l, AUDIT_CREATE, &p, &e), &e);
}

static inline int box(struct audit_chain *c, const char *text)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "path", text);
	return audit_append(c, AUDIT_FILE_WRITE, &p);
}

static inline struct audit_report look(const struct audit_log *l, const struct audit_mark *from)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	struct audit_report report;
	struct err e = ERR_INIT;

	must(audit_set_open(l, &set, &e), &e);
	assert_true(set.has_key);
	must(audit_verify(&set, set.key, from, &report, &e), &e);
	return report;
}

static inline void assert_good(const struct audit_log *l, uint64_t records, uint64_t chains)
{
	struct audit_report r = look(l, NULL);

	if (r.bad)
		fail_msg("%s, record %llu, byte %llu: %s", r.file, (unsigned long long)r.seq,
			 (unsigned long long)r.offset, r.what);
	if (records > 0)
		assert_int_equal(r.records, records);
	assert_int_equal(r.chains, chains);
}

static inline void assert_bad(const struct audit_report *r, const char *file, uint64_t seq,
			      const char *what)
{
	assert_true(r->bad);
	assert_string_equal(r->file, file);
	assert_int_equal(r->seq, seq);
	if (!strstr(r->what, what))
		fail_msg("expected '%s', was '%s'", what, r->what);
}

/* The bytes of a file of the log. */
static inline struct buf slurp(const struct unit_dir *d, const char *name)
{
	struct buf b = BUF_INIT(64 * 1024 * 1024);
	struct err e = ERR_INIT;

	must(fd_read_file(d->fd, name, &b, &e), &e);
	return b;
}

static inline void spill(const struct unit_dir *d, const char *name, const void *data, size_t n)
{
	int fd = openat(d->fd, name, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	(void)close(fd);
}

static inline void limit_size(rlim_t n)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = n == 0 ? limit.rlim_max : n;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* By its header, see hutch-audit(5). */
static inline size_t record_size(const void *record)
{
	const uint8_t *length = (const uint8_t *)record + 8;

	return AUDIT_HEADER + ((size_t)length[0] << 24 | (size_t)length[1] << 16 |
			       (size_t)length[2] << 8 | length[3]);
}

static inline const char *payload(struct audit_chain *c)
{
	static char text[AUDIT_PAYLOAD_MAX];
	size_t n = record_size(c->out) - AUDIT_HEADER;

	memcpy(text, c->out + AUDIT_HEADER, n);
	text[n] = '\0';
	return text;
}
