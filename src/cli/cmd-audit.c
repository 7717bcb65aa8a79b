/* SPDX-License-Identifier: Apache-2.0 */
/* hutch audit verify, export, checkpoint, key */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>

#include "audit/audit-read.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/audit-view.h"

enum {
	MARK_FILE_MAX = 4096,
	FINGERPRINT = 16, /* bytes of the SHA-256 of a key */
};

/* ---- verify ---- */

static int read_mark(const char *path, struct audit_mark *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(MARK_FILE_MAX);
	int r = fd_read_file(AT_FDCWD, path, &b, e);

	if (r < 0)
		return r;
	return audit_mark_read(buf_text(&b), b.len, ret, e) < 0 ? err_wrap(e, "%s", path) : 0;
}

static int read_key(const char *hex, uint8_t ret[static AUDIT_PUBLIC], struct err *e)
{
	size_t n = 0;

	if (sodium_hex2bin(ret, AUDIT_PUBLIC, hex, strlen(hex), NULL, &n, NULL) < 0 ||
	    n != AUDIT_PUBLIC)
		return err_set(e, -EINVAL,
			       "--key: expected the 64 hex digits that 'hutch audit key' prints");
	return 0;
}

/* Opens this host's log, or an export. */
static int open_what(const struct invocation *inv, struct audit_log *l, struct audit_set *set,
		     struct err *e)
{
	int fd;

	if (inv->n_args == 0)
		return audit_view_open(l, set, e);
	fd = RETRY_EINTR(
		openat(AT_FDCWD, inv->args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", inv->args[0]);
	return audit_set_import(fd, set, e);
}

static int report_json(const struct audit_report *r)
{
	uint64_t seq = MIN(r->seq, (uint64_t)INT64_MAX);
	json_t *bad = !r->bad ? json_null()
			      : JSON_OBJECT({ "file", json_string(r->file) },
					    { "record", json_number(seq) },
					    { "offset", json_number(r->offset) },
					    { "what", json_string(r->what) });

	return cli_print_json(JSON_OBJECT({ "good", json_boolean(!r->bad) },
					  { "records", json_number(r->records) },
					  { "chains", json_number(r->chains) },
					  { "checkpoints", json_number(r->checkpoints) },
					  { "live", json_number(r->live) },
					  { "torn", json_number(r->torn) },
					  { "removed", json_number(r->missing) }, { "bad", bad }),
			      r->bad ? EXIT_NO : EXIT_OK);
}

static int report_text(const struct audit_report *r)
{
	if (r->bad) {
		(void)printf("%s, record %llu, byte %llu: %s\n", r->file,
			     (unsigned long long)r->seq, (unsigned long long)r->offset, r->what);
		return EXIT_NO;
	}
	(void)printf("%llu records in %llu chains, %llu checkpoints, all good\n",
		     (unsigned long long)r->records, (unsigned long long)r->chains,
		     (unsigned long long)r->checkpoints);
	if (r->live > 0)
		(void)printf("%llu chains are not sealed yet: only a later checkpoint can prove "
			     "that their last records are complete\n",
			     (unsigned long long)r->live);
	if (r->torn > 0)
		(void)printf(
			"%llu chains end in half a record: it is being written, or its writer was "
			"killed\n",
			(unsigned long long)r->torn);
	if (r->missing > 0)
		(void)printf("%llu chains were removed at the cap, and that is recorded\n",
			     (unsigned long long)r->missing);
	if (r->from_gone)
		(void)printf(
			"the records that the checkpoint covers were removed at the size limit\n");
	return EXIT_OK;
}

static int run_audit_verify(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	const char *from = cli_option(inv, "from"), *key = cli_option(inv, "key");
	struct audit_report report = { 0 };
	struct audit_mark mark = { 0 };
	struct err e = ERR_INIT;
	uint8_t own[AUDIT_PUBLIC];
	int r = key ? read_key(key, own, &e) : 0;

	if (r == 0 && from)
		r = read_mark(from, &mark, &e);
	if (r == 0)
		r = open_what(inv, &l, &set, &e);
	if (r == 0 && !key && !set.has_key)
		r = err_set(&e, -ENOENT, "the log has no key; give its public key with --key");
	if (r == 0)
		r = audit_verify(&set, key ? own : set.key, from ? &mark : NULL, &report, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	if (!key && inv->n_args > 0)
		(void)fputs("hutch audit verify: warning: the key comes from the export itself; "
			    "give --key\n",
			    stderr);
	return cli_option(inv, "json") ? report_json(&report) : report_text(&report);
}

/* ---- export, checkpoint, key ---- */

static int run_audit_export(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	struct err e = ERR_INIT;

	if (isatty(STDOUT_FILENO))
		return cli_usage(inv, "an export is binary: redirect standard output to a file");
	if (audit_view_open(&l, &set, &e) < 0 || audit_export(&set, STDOUT_FILENO, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

static int run_audit_checkpoint(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_buf_ struct buf b = BUF_INIT(MARK_FILE_MAX);
	struct audit_mark m;
	struct err e = ERR_INIT;

	if (audit_open(&l, &e) < 0 || audit_checkpoint(&l, &m, &e) < 0)
		return cli_fail(inv, &e);
	if (audit_mark_print(&m, &b) < 0)
		return cli_fail(inv, (err_oom(&e), &e));
	(void)puts(buf_text(&b));
	return EXIT_OK;
}

static int run_audit_key(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	uint8_t key[AUDIT_PUBLIC], hash[AUDIT_HASH];
	char hex[2 * AUDIT_PUBLIC + 1], print[2 * AUDIT_HASH + 1];
	struct err e = ERR_INIT;

	if (audit_open(&l, &e) < 0 || audit_public_key(&l, key, &e) < 0)
		return cli_fail(inv, &e);
	(void)crypto_hash_sha256(hash, key, sizeof(key));
	(void)sodium_bin2hex(hex, sizeof(hex), key, sizeof(key));
	(void)sodium_bin2hex(print, sizeof(print), hash, FINGERPRINT);
	if (cli_option(inv, "json"))
		return cli_print_json(JSON_OBJECT({ "key", json_string(hex) },
						  { "fingerprint", json_string(print) }),
				      EXIT_OK);
	(void)printf("key          %s\nfingerprint  %s\n", hex, print);
	return EXIT_OK;
}

/* clang-format off */
static const struct command cmd_audit_verify = {
	.name = "verify", .args = "[EXPORT]", .max_args = 1,
	.summary = "check every record, chain and signature",
	.help = "Verifies this host's log, or EXPORT, a file that 'hutch audit export' wrote. Exits 0 if the log is intact. On\n"
		"damage exits 1 and prints the file, number, byte offset and fault of the first bad record. A log whose end\n"
		"was cut off verifies without error, unless --from gives a checkpoint that was kept on another host.",
	.options = OPTIONS(
		OPT_JSON,
		{ "from", 0, "FILE", "a checkpoint kept elsewhere, which the log must contain" },
		{ "key", 0, "KEY", "the expected public key, instead of the one in the log" }),
	.run = run_audit_verify,
};

static const struct command cmd_audit_export = {
	.name = "export", .args = "",
	.summary = "write the whole log as one stream on standard output",
	.run = run_audit_export,
};

static const struct command cmd_audit_checkpoint = {
	.name = "checkpoint", .args = "",
	.summary = "sign the records so far and print the signature",
	.help = "Keep the output on another host: 'hutch audit verify --from' then detects any change to the log up to this\n"
		"point.",
	.run = run_audit_checkpoint,
};

static const struct command cmd_audit_key = {
	.name = "key", .args = "",
	.summary = "print the public key of this host's log, and its fingerprint",
	.options = OPTIONS(OPT_JSON), .run = run_audit_key,
};

const struct command cmd_audit = {
	.name = "audit", .args = "",
	.summary = "show and verify the audit log",
	.sub = COMMANDS(&cmd_audit_show, &cmd_audit_verify, &cmd_audit_export, &cmd_audit_checkpoint, &cmd_audit_key),
};
/* clang-format on */
