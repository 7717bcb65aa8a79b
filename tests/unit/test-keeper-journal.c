/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's records: with the real guest, and the functions alone. */
#include "test-keeper.h"

#include <sodium.h>

#include "audit/audit-read.h"
#include "base/fd.h"
#include "base/str.h"

/* ---- a log ---- */

struct book {
	struct audit_log log;
	struct audit_chain chain;
};

static void must(int r, const struct err *e)
{
	if (r < 0)
		fail_msg("%s", e->msg);
}

static void book_open(struct book *b, const struct unit_dir *d)
{
	char path[2 * UNIT_PATH_MAX];
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/audit", d->path);
	(void)setenv("HUTCH_AUDIT_DIR", path, 1);
	*b = (struct book){ .log = AUDIT_LOG_INIT, .chain = AUDIT_CHAIN_INIT };
	must(audit_open(&b->log, &e), &e);
	must(audit_sandbox_begin(&b->log, "abc", &b->chain, &e), &e);
}

static void book_done(struct book *b)
{
	audit_chain_close(&b->chain);
	audit_close(&b->log);
}

#define _cleanup_book_ _cleanup_(book_done)

/* "exec {...}\n" for each record of the sandbox's chain, which must be intact. */
static const char *book_text(const struct book *b)
{
	static char text[256 * 1024];
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	_cleanup_free_ struct audit_scan *s = malloc(sizeof(*s));
	struct audit_record rec;
	struct err e = ERR_INIT;
	const char *why;
	size_t first = 0, n = 0;
	uint64_t torn;
	int r;

	assert_non_null(s);
	must(audit_set_open(&b->log, &set, &e), &e);
	while (first < set.n && !set.files[first].id[0])
		first++;
	audit_scan_init(s, &set, first, set.n);
	text[0] = '\0';
	while ((r = audit_scan_next(s, &rec, &torn, &why)) == 1)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %.*s\n",
				      audit_kind_name(rec.kind), (int)rec.n_payload, rec.payload);
	audit_scan_done(s);
	assert_int_equal(r, 0);
	assert_int_equal(torn, 0);
	assert_true(n < sizeof(text));
	return text;
}

/* Waits for a record; returns the rest of its line and all that follows. */
static const char *book_wait(const struct book *b, const char *what)
{
	uint64_t end = clock_mono() + PATIENCE_S * NSEC_PER_SEC;
	const char *at;

	while (!(at = strstr(book_text(b), what))) {
		if (clock_mono() > end)
			fail_msg("'%s' is not in: %s", what, book_text(b));
		(void)usleep(2000);
	}
	return at;
}

/* ---- with the real guest ---- */

TEST_IN_DIR(a_command_is_recorded)
{
	_cleanup_bench_ struct bench b;
	_cleanup_book_ struct book book;
	uint8_t hash[JOURNAL_HASH];
	char hex[2 * JOURNAL_HASH + 1];
	const char *intent, *outcome;
	struct talk *t;

	book_open(&book, *state);
	bench_init(&b, state);
	b.chain = &book.chain;
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "cat >/dev/null; exit 7", .input = true,
		      .env = "TOKEN=s3cr3t");
	UNTIL(b.client, t->accepted);
	assert_int_equal(link_data(b.client->l, t->ch, 0, "code", 4), 4);
	assert_int_equal(link_eof(b.client->l, t->ch, 0), 0);
	UNTIL(b.client, t->closed);
	intent = book_wait(&book, "exec {\"n\":1,\"op\":\"exec\"");
	assert_non_null(strstr(intent, "\"argv\":[\"/bin/sh\",\"-c\",\"cat >/dev/null; exit 7\"]"));
	outcome = book_wait(&book, "exec-end {\"n\":1,\"op\":\"exec\",\"exit\":7");
	(void)crypto_generichash(hash, sizeof(hash), (const uint8_t *)"code", 4, NULL, 0);
	(void)sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
	assert_non_null(strstr(outcome, "\"bytes\":4,"));
	assert_non_null(strstr(outcome, hex));
	assert_null(strstr(book_text(&book), "s3cr3t"));
}

/* A command from before, under another keeper: its record, and its end. */
TEST_IN_DIR(a_command_that_ran_before_is_recorded)
{
	_cleanup_bench_ struct bench b;
	_cleanup_book_ struct book book;
	uint32_t ch;

	book_open(&book, *state);
	bench_init(&b, state);
	b.chain = &book.chain;
	ran_before(&b, 11, "job", RECORD_RUNNING);
	bench_start(&b, false);
	bench_go(&b);
	UNTIL2(b.guest, b.client, b.guest->n == 1);
	(void)book_wait(&book, "exec {\"n\":1,\"op\":\"adopt\",\"name\":\"job\",\"user\":\"u\","
			       "\"cwd\":\"/w\",\"argv\":[\"run\",\"it\"],");
	ch = b.guest->talks[0].ch;
	assert_int_equal(link_close(b.guest->l, ch, WIRE_NOT_FOUND, "none"), 0);
	peer_write(b.guest);
	(void)book_wait(&book, "exec-end {\"n\":1,\"op\":\"adopt\",\"bytes\":0,\"result\":");
}

TEST_IN_DIR(signals_and_limits_are_recorded)
{
	_cleanup_bench_ struct bench b;
	_cleanup_book_ struct book book;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;

	book_open(&book, *state);
	bench_init(&b, state);
	b.chain = &book.chain;
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo ready; exec sleep 100");
	UNTIL(b.client, t->got[1] > 0);
	fields_put_number(&f, TAG_NUMBER, SIGTERM);
	assert_int_equal(link_msg(b.client->l, t->ch, WIRE_MSG_SIGNAL, &f), 0);
	UNTIL(b.client, t->closed);
	(void)book_wait(&book, "signal {\"n\":1,\"signal\":15}");
	(void)book_wait(&book, "exec-end {\"n\":1,\"op\":\"exec\",\"signal\":15");
	t = peer_exec(b.client, .script = "exec sleep 100", .timeout = 50);
	UNTIL(b.client, t->closed);
	(void)book_wait(&book, "limit {\"n\":2,\"limit\":\"time limit of 50ms reached\"}");
	(void)book_wait(&book, "exec-end {\"n\":2");
}

/* ---- the test plays the guest: its requests ---- */

TEST_IN_DIR(nothing_is_asked_without_a_record)
{
	_cleanup_bench_ struct bench b;
	_cleanup_book_ struct book book;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;
	size_t asked;

	book_open(&book, *state);
	(void)fd_close(book.chain.fd);
	book.chain.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(book.chain.fd >= 0);
	bench_init(&b, state);
	b.chain = &book.chain;
	bench_start(&b, false);
	bench_go(&b);
	asked = b.guest->n;
	t = peer_exec(b.client, .script = "true");
	UNTIL2(b.client, b.guest, t->closed);
	assert_int_equal(t->code, WIRE_IO);
	assert_non_null(strstr(t->text, "audit log cannot be written"));
	fields_put_text(&f, TAG_PATH, "/x");
	t = peer_open(b.client, WIRE_OP_MKDIR, &f);
	UNTIL2(b.client, b.guest, t->closed);
	assert_int_equal(t->code, WIRE_IO);
	assert_int_equal(b.guest->n, asked);
	/* An operation that changes nothing needs no record: the positive control. */
	t = peer_open(b.client, WIRE_OP_READ, &f);
	UNTIL2(b.client, b.guest, b.guest->n == asked + 1);
}

/* ---- by themselves ---- */

struct half {
	struct keeper k;
	int warden; /* the other end */
};

static void half_open(struct half *h, struct audit_chain *c)
{
	*h = (struct half){ .k = { .journal.chain = c } };
	pair_of(SOCK_SEQPACKET, &h->k.warden.fd, &h->warden);
}

static void half_done(struct half *h)
{
	(void)fd_close(h->k.warden.fd);
	(void)fd_close(h->warden);
}

#define _cleanup_half_ _cleanup_(half_done)

/* The keeper's next note; NOTE_READY if there is none. */
static struct keeper_note half_note(struct half *h)
{
	struct keeper_note note = { .kind = NOTE_READY };
	int files[NOTE_FILES_MAX];
	size_t n;

	assert_int_equal(fcntl(h->warden, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	(void)note_receive(h->warden, &note, files, &n);
	return note;
}

static int append(struct half *h, const char *text)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "text", text);
	return journal_append(&h->k, AUDIT_EXEC, &p);
}

static void outcome(struct half *h, const char *text)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "text", text);
	journal_outcome(&h->k, AUDIT_EXEC_END, &p);
}

TEST_IN_DIR(lost_outcomes_are_told_once)
{
	_cleanup_book_ struct book book;
	_cleanup_half_ struct half h;
	int good, full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	book_open(&book, *state);
	half_open(&h, &book.chain);
	good = book.chain.fd;
	assert_true(journal_works(&h.k));
	book.chain.fd = full;
	outcome(&h, "one");
	outcome(&h, "two");
	assert_int_equal(h.k.journal.lost, 2);
	assert_int_equal(append(&h, "intent"), -ENOSPC);
	assert_false(journal_works(&h.k));
	book.chain.fd = good;
	assert_true(journal_works(&h.k));
	(void)book_wait(&book, "\"outcomes_lost\":2}");
	assert_int_equal(append(&h, "intent"), 0);
	assert_int_equal(h.k.journal.lost, 0);
	(void)close(full);
}

TEST_IN_DIR(the_warden_is_told_once_a_second)
{
	_cleanup_book_ struct book book;
	_cleanup_half_ struct half h;

	book_open(&book, *state);
	half_open(&h, &book.chain);
	for (int i = 0; i < 100; i++)
		assert_int_equal(append(&h, "x"), 0);
	assert_int_equal(half_note(&h).kind, NOTE_DIRTY);
	assert_int_equal(half_note(&h).kind, NOTE_READY);
	h.k.journal.dirty_until = 0; /* a second later */
	assert_int_equal(append(&h, "x"), 0);
	assert_int_equal(half_note(&h).kind, NOTE_DIRTY);
}

TEST_IN_DIR(the_next_file_is_asked_for_in_time)
{
	static char big[4000];
	_cleanup_book_ struct book book;
	_cleanup_half_ struct half h;
	struct keeper_note note;
	struct err e = ERR_INIT;
	int fd = -EBADF;

	book_open(&book, *state);
	half_open(&h, &book.chain);
	memset(big, 'x', sizeof(big) - 1);
	assert_false(journal_file(&h.k, 1, &fd, 1)); /* no request was made */
	while (!h.k.journal.asked)
		assert_int_equal(append(&h, big), 0);
	do
		note = half_note(&h);
	while (note.kind == NOTE_DIRTY);
	assert_int_equal(note.kind, NOTE_WANT_AUDIT);
	assert_int_equal(note.value, 1);
	must(audit_sandbox_next(&book.log, "abc", 1, &fd, &e), &e);
	assert_false(journal_file(&h.k, 2, &fd, 1));
	assert_true(journal_file(&h.k, 1, NULL, 0)); /* not made: requested again */
	assert_false(journal_file(&h.k, 1, NULL, 0));
	assert_int_equal(append(&h, "again"), 0);
	assert_int_equal(half_note(&h).kind, NOTE_WANT_AUDIT);
	assert_true(journal_file(&h.k, 1, &fd, 1));
	assert_int_equal(book.chain.number, 1);
	assert_int_equal(append(&h, "behind"), 0);
	assert_true(book.chain.bytes < AUDIT_SANDBOX_FILE_MAX / 4);
}

TEST_IN_DIR(switched_off)
{
	struct audit_chain none = AUDIT_CHAIN_INIT;
	_cleanup_half_ struct half h;

	half_open(&h, &none);
	assert_false(journal_is_on(&h.k));
	assert_int_equal(append(&h, "x"), 0);
	assert_int_equal(half_note(&h).kind, NOTE_READY);
	h.k.journal.chain = NULL;
	assert_int_equal(append(&h, "x"), 0);
}
