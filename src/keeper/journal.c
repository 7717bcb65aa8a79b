/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records the keeper's work for clients in the sandbox's audit chain: each command or file change
 * before the guest is asked, and its outcome afterwards. If the request cannot be recorded, the
 * guest is not asked. If the outcome cannot be recorded, the next successful record says how many
 * outcomes are missing.
 *
 * The client's input (code on standard input, or the contents of a file) is recorded as a 32-byte
 * BLAKE2b hash, as `b2sum -l 256` prints it. Beyond 64 MiB, which no code needs, the rest is not
 * hashed and the record says so ("hashed"): hashing would take most of the time of a copy. Values
 * of environment variables are never recorded.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "keeper/command.h"
#include "keeper/serve.h"

/* Recorded operations and their names in records; NULL: not recorded. */
static const char *const ops[WIRE_OP_MAX] = {
	[WIRE_OP_EXEC] = "exec", [WIRE_OP_WRITE] = "write",   [WIRE_OP_MKDIR] = "mkdir",
	[WIRE_OP_MOVE] = "move", [WIRE_OP_REMOVE] = "remove", [WIRE_OP_UNPACK] = "unpack",
};

static void put_field(struct audit_payload *p, const char *key, const struct fields *f,
		      enum wire_tag tag)
{
	const char *value;
	size_t pos = 0, n;

	if (fields_next(f, tag, &pos, &value, &n))
		audit_put_bytes(p, key, value, n);
}

bool journal_is_on(const struct keeper *k)
{
	return k->journal.chain && k->journal.chain->fd >= 0;
}

/* Asks the warden, at most once a second, to sync the log to disk. */
static void tell_dirty(struct keeper *k)
{
	uint64_t now = clock_mono();

	if (now < k->journal.dirty_until)
		return;
	k->journal.dirty_until = now + AUDIT_SYNC_MS * NSEC_PER_MSEC;
	(void)note_send(k->warden.fd, NOTE_DIRTY, 0, NULL, 0);
}

static void want_file(struct keeper *k)
{
	if (k->journal.asked || !audit_chain_wants_file(k->journal.chain))
		return;
	k->journal.asked = note_send(k->warden.fd, NOTE_WANT_AUDIT, k->journal.chain->number + 1,
				     NULL, 0) == 0;
}

int journal_append(struct keeper *k, enum audit_kind kind, struct audit_payload *p)
{
	struct journal *j = &k->journal;
	int r;

	if (!journal_is_on(k))
		return 0;
	if (j->lost > 0)
		audit_put_number(p, "outcomes_lost", j->lost);
	r = FAULT("journal-payload");
	if (r == 0)
		r = audit_append(j->chain, kind, p);
	if (r < 0) {
		if (j->error == 0)
			log_error("cannot write the audit log: %s", strerror(-r));
		return j->error = r;
	}
	j->lost = 0;
	j->error = 0;
	tell_dirty(k);
	want_file(k);
	return 0;
}

/* The event has happened and cannot be undone: a failed write is only counted. */
void journal_outcome(struct keeper *k, enum audit_kind kind, struct audit_payload *p)
{
	if (journal_append(k, kind, p) < 0)
		k->journal.lost++;
}

void journal_tally(struct keeper *k, struct audit_tally *t, struct audit_payload *scratch)
{
	if (journal_is_on(k) &&
	    audit_tally_record(t, k->journal.chain, AUDIT_EGRESS_SUM, clock_mono(), scratch) == 0)
		tell_dirty(k);
}

bool journal_works(struct keeper *k)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (k->journal.error == 0)
		return true;
	audit_put_text(&p, "what", "nothing was done while the audit log could not be written");
	return journal_append(k, AUDIT_REFUSED, &p) == 0;
}

bool journal_file(struct keeper *k, uint64_t number, const int *files, size_t n)
{
	struct journal *j = &k->journal;

	/* The warden has no room for another file; the next record asks again. */
	if (n == 0 && j->asked) {
		j->asked = false;
		return true;
	}
	if (n != 1 || !j->asked || !j->chain || number != (uint64_t)j->chain->number + 1 ||
	    audit_chain_switch(j->chain, files[0]) < 0)
		return false;
	j->asked = false;
	(void)FAULT("journal-next");
	return true;
}

/* Puts the arguments as NUL-terminated strings. */
static int put_argv(struct audit_payload *p, const struct fields *f)
{
	_cleanup_buf_ struct buf text = BUF_INIT(2 * WIRE_OPEN_MAX);
	_cleanup_free_ const char **argv = NULL;
	size_t n = 0, pos = 0, len, at = 0;
	const char *value;

	while (fields_next(f, TAG_ARGV, &pos, &value, &len)) {
		(void)buf_put(&text, value, len);
		(void)buf_put(&text, "", 1);
		n++;
	}
	argv = calloc(n + 1, sizeof(*argv));
	if (!argv || text.err)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		argv[i] = text.data + at;
		at += strlen(argv[i]) + 1;
	}
	audit_put_argv(p, argv, n);
	return 0;
}

static int put_command(const struct relay *r, struct audit_payload *p, const struct fields *f)
{
	if (r->command->head.name[0])
		audit_put_text(p, "name", r->command->head.name);
	put_field(p, "user", f, TAG_USER);
	put_field(p, "cwd", f, TAG_CWD);
	return put_argv(p, f);
}

/* Puts an adopted command, with those arguments that its old record kept. */
static void put_adopted(const struct record_head *h, struct audit_payload *p)
{
	const char *argv[RECORD_ARGV];
	size_t n = 0;

	if (h->name[0])
		audit_put_text(p, "name", h->name);
	audit_put_bytes(p, "user", h->user, strlen(h->user));
	audit_put_bytes(p, "cwd", h->cwd, strlen(h->cwd));
	for (size_t at = 0; at < h->shown; at += strlen(h->argv + at) + 1)
		argv[n++] = h->argv + at;
	audit_put_argv(p, argv, n);
	if (h->flags & RECORD_CUT)
		audit_put_number(p, "cut", 1);
}

static int put_change(struct audit_payload *p, const struct fields *f)
{
	put_field(p, "user", f, TAG_USER);
	put_field(p, "path", f, TAG_PATH);
	put_field(p, "target", f, TAG_TARGET);
	if (fields_has(f, TAG_MODE))
		audit_put_number(p, "mode", fields_number(f, TAG_MODE, 0));
	return 0;
}

static void begin(struct audit_payload *p, const struct relay *r)
{
	audit_put_number(p, "n", r->entry.number);
	audit_put_text(p, "op", r->adopted ? "adopt" : ops[r->op]);
}

static void put_request(struct audit_payload *p, const struct relay *r)
{
	if (r->request[0])
		audit_put_text(p, "request", r->request);
}

static int put_open(const struct relay *r, const struct buf *open, struct audit_payload *p)
{
	enum wire_message message;
	struct err e = ERR_INIT;
	struct fields f;

	if (r->adopted) {
		put_adopted(&r->command->head, p);
		return 0;
	}
	if (message_of_open((uint8_t)r->op, false, &message) < 0 ||
	    fields_parse(message, open->data, open->len, &f, &e) < 0)
		return -EINVAL;
	return r->op == WIRE_OP_EXEC ? put_command(r, p, &f) : put_change(p, &f);
}

int journal_begin(struct relay *r, const struct buf *open)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	bool exec = r->op == WIRE_OP_EXEC;
	int err;

	if (!ops[r->op] || !journal_is_on(r->keeper))
		return 0;
	r->entry.number = exec ? r->command->record.number : ++r->keeper->journal.operations;
	begin(&p, r);
	put_request(&p, r);
	err = put_open(r, open, &p);
	if (err == 0)
		err = journal_append(r->keeper, exec ? AUDIT_EXEC : AUDIT_FILE_WRITE, &p);
	if (err < 0)
		return err;
	(void)FAULT("journal-begun");
	(void)crypto_generichash_init(&r->entry.hash, NULL, 0, JOURNAL_HASH);
	r->entry.open = true;
	return 0;
}

void journal_data(struct relay *r, const void *data, size_t n)
{
	if (!r->entry.open)
		return;
	if (r->entry.bytes < JOURNAL_HASHED)
		(void)crypto_generichash_update(&r->entry.hash, data,
						MIN(n, JOURNAL_HASHED - r->entry.bytes));
	r->entry.bytes += n;
}

static void put_input(struct relay *r, struct audit_payload *p)
{
	uint8_t hash[JOURNAL_HASH];

	audit_put_number(p, "bytes", r->entry.bytes);
	if (r->entry.bytes == 0 && r->op == WIRE_OP_EXEC)
		return;
	(void)crypto_generichash_final(&r->entry.hash, hash, sizeof(hash));
	audit_put_hex(p, "blake2b", hash, sizeof(hash));
	if (r->entry.bytes > JOURNAL_HASHED)
		audit_put_number(p, "hashed", JOURNAL_HASHED);
}

/* Puts how the command ended, as reported by the guest. */
static void put_exit(const struct relay *r, struct audit_payload *p)
{
	struct err ignored = ERR_INIT;
	struct fields f;

	if (!r->exit.came ||
	    fields_parse(MESSAGE_EXIT, r->exit.bytes, r->exit.len, &f, &ignored) < 0)
		return;
	if (fields_has(&f, TAG_SIGNAL))
		audit_put_number(p, "signal", fields_number(&f, TAG_SIGNAL, 0));
	else
		audit_put_number(p, "exit", fields_number(&f, TAG_CODE, 0));
	audit_put_number(p, "user_us", fields_number(&f, TAG_USER_US, 0));
	audit_put_number(p, "system_us", fields_number(&f, TAG_SYSTEM_US, 0));
}

void journal_end(struct relay *r, enum wire_code code, const char *text)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (!r->entry.open)
		return;
	r->entry.open = false;
	begin(&p, r);
	put_exit(r, &p);
	put_input(r, &p);
	if (code != WIRE_DONE)
		audit_put_text(&p, "result", wire_code_name(code));
	if (text && text[0])
		audit_put_text(&p, "text", text);
	(void)FAULT("journal-done");
	journal_outcome(r->keeper, r->op == WIRE_OP_EXEC ? AUDIT_EXEC_END : AUDIT_FILE_END, &p);
	(void)FAULT("journal-ended");
}

void journal_signal(struct relay *r, uint64_t number)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (!r->entry.open)
		return;
	audit_put_number(&p, "n", r->entry.number);
	audit_put_number(&p, "signal", number);
	journal_outcome(r->keeper, AUDIT_SIGNAL, &p);
}

void journal_limit(struct relay *r, const char *what)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (!r->entry.open)
		return;
	audit_put_number(&p, "n", r->entry.number);
	audit_put_text(&p, "limit", what);
	journal_outcome(r->keeper, AUDIT_LIMIT, &p);
}
