/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /files: writes the files of a body, one after the other, each by one write of the guest.
 *
 *     http -> raw -> (gunzip) -> text -> (multipart) -> contents -> peer_send()
 *
 * pump() moves bytes as far as possible, and runs again after each event it waits for: more of the
 * body, a file opened or in place, credit. Meanwhile the body is paused, and its last piece and
 * gunzip's last output are kept. So an upload of any size takes the same memory.
 *
 * After an error the rest of the body is read and dropped before the answer, because a client that
 * is still sending would not see an earlier one. Files that are already in place stay.
 */
#include "envd/upload.h"

#include <string.h>
#include <strings.h>

#include "api/gunzip.h"
#include "base/str.h"
#include "envd/entry.h"
#include "envd/file-query.h"
#include "envd/multipart.h"

enum {
	PLAIN = 64 * 1024,	/* gunzip output per call */
	KEPT_MAX = 1024 * 1024, /* rest of the body while paused */
	WHY_MAX = 300,
};

#define METADATA "x-metadata-"

/* Limits expansion: a gibibyte of zeros is allowed, a disk full of them is not. */
static const struct gunzip_limits limits = { .free = UINT64_C(1) << 30, .ratio = 100 };

enum part {
	PART_NONE,
	PART_ASKED, /* waits for the guest to open the file */
	PART_OPEN,
	PART_CLOSING, /* waits for the guest to put it in place */
	PART_SKIPPED, /* not a file: ignored */
};

struct slice {
	const char *p;
	size_t n;
};

struct upload {
	struct request *r;
	struct call *call;
	enum part part;
	struct file_query query;
	struct buf meta; /* fields */
	bool form;
	struct multipart multipart;
	struct gunzip *gunzip;
	char *plain; /* gunzip's output */
	struct buf kept;
	struct slice raw, text; /* unused rest of the body, and of its unpacked form */
	struct slice contents;	/* the file's, not sent yet */
	bool begun;		/* a body without a form: its file has begun */
	bool placed;		/* the file is in place */
	bool ended;		/* the body's end was reached */
	json_t *files;
	int status; /* to answer after an error; 0: none */
	char why[WHY_MAX];
};

static void on_drop(struct request *r)
{
	struct upload *u = r->data;

	if (u->call)
		peer_close(u->call);
	if (u->form)
		multipart_done(&u->multipart);
	(void)gunzip_free(u->gunzip);
	free(u->plain);
	buf_done(&u->kept);
	buf_done(&u->meta);
	file_query_done(&u->query);
	json_decref(u->files);
	free(u);
}

/* ---- errors ---- */

/* Keeps the first error. The open file is abandoned, and its old contents stay. */
static void fail(struct upload *u, int status, const char *text)
{
	if (u->status)
		return;
	u->status = status;
	(void)snprintf(u->why, sizeof(u->why), "%s", text);
	if (u->call)
		peer_close(u->call);
	u->call = NULL;
}

static void fail_err(struct upload *u, const struct err *e)
{
	int status = e->num == -EFBIG ? 413 : e->num == -EBADMSG ? 400 : file_status_errno(e->num);
	char text[REQUEST_TEXT_MAX];

	fail(u, status, status == 500 ? request_reason(u->r, status, e, text) : e->msg);
}

/* ---- one file ---- */

static bool pump(struct upload *u);

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct upload *u = arg;

	u->part = PART_OPEN;
	(void)pump(u);
}

static void on_credit(struct call *c, unsigned int stream, void *arg)
{
	struct upload *u = arg;

	if (u->part == PART_OPEN)
		(void)pump(u);
}

static void on_msg(struct call *c, enum wire_msg kind, const struct fields *f, void *arg)
{
	struct upload *u = arg;

	if (kind == WIRE_MSG_ENTRY && u->part == PART_CLOSING && !u->placed)
		u->placed = json_push(u->files, envd_write_info(f)) == 0;
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct upload *u = arg;

	u->call = NULL;
	if (code != WIRE_DONE)
		fail(u, file_status(code), text[0] ? text : wire_code_name(code));
	else if (!u->placed)
		fail(u, 500, "the file was not put in place");
	u->part = PART_NONE;
	(void)pump(u);
}

static const struct call_ops ops = {
	.accepted = on_accepted,
	.credit = on_credit,
	.msg = on_msg,
	.closed = on_closed,
};

static void begin_file(struct upload *u, const char *path)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	struct err e = ERR_INIT;

	fields_put_text(&b, TAG_PATH, path);
	if (u->query.user)
		fields_put_text(&b, TAG_USER, u->query.user);
	fields_put_flag(&b, TAG_PARENTS);
	(void)buf_put(&b, u->meta.data, u->meta.len);
	u->part = PART_ASKED;
	u->placed = false;
	if (envd_call(u->r, WIRE_OP_WRITE, &b, &ops, u, &u->call, &e) < 0)
		fail_err(u, &e);
}

static void end_file(struct upload *u)
{
	if (u->part == PART_SKIPPED) {
		u->part = PART_NONE;
		return;
	}
	u->part = PART_CLOSING;
	peer_eof(u->call, 0);
}

static void begin_part(struct upload *u)
{
	const struct multipart *m = &u->multipart;

	if (!str_eq(m->name, "file"))
		u->part = PART_SKIPPED;
	else if (u->query.path && json_array_size(u->files) > 0)
		fail(u, 400, "two files were sent for one path");
	else if (u->query.path)
		begin_file(u, u->query.path);
	else if (m->filename && m->filename[0])
		begin_file(u, m->filename);
	else
		fail(u, 400,
		     "a file was sent without a path: neither the query nor the part has one");
}

/* ---- the body ---- */

/* Returns the unpacked body: the file, or a form. */
static struct slice *source(struct upload *u)
{
	return u->gunzip ? &u->text : &u->raw;
}

/* Whether there are bytes to parse, after running gunzip if necessary. */
static bool refill(struct upload *u)
{
	struct err e = ERR_INIT;
	ssize_t k;

	if (source(u)->n > 0)
		return true;
	if (!u->gunzip)
		return false;
	k = gunzip_next(u->gunzip, &u->raw.p, &u->raw.n, u->plain, PLAIN, &e);
	if (k < 0)
		fail_err(u, &e);
	u->text = (struct slice){ u->plain, k > 0 ? (size_t)k : 0 };
	return k > 0;
}

/* Parses the next event of the body. False: it needs more bytes. */
static bool take_form(struct upload *u)
{
	struct slice *s = source(u);
	struct err e = ERR_INIT;
	bool more = refill(u);
	int event;

	if (u->status)
		return true;
	/* Also without input: the end of a part may still be pending. */
	event = multipart_next(&u->multipart, &s->p, &s->n, &u->contents.p, &u->contents.n, &e);
	if (event < 0)
		fail_err(u, &e);
	else if (event == MULTIPART_PART)
		begin_part(u);
	else if (event == MULTIPART_PART_END)
		end_file(u);
	return more || event != MULTIPART_MORE;
}

static bool take_file(struct upload *u)
{
	if (!u->begun) {
		u->begun = true;
		begin_file(u, u->query.path);
		return true;
	}
	if (!refill(u))
		return u->status != 0;
	u->contents = *source(u);
	source(u)->p += u->contents.n;
	source(u)->n = 0;
	return true;
}

/*
 * Sends contents. False: not all of them. The rest returns to its source, which is kept while
 * waiting; only a false start of a delimiter is not from there, but it persists.
 */
static bool send_contents(struct upload *u)
{
	struct slice *c = &u->contents, *s = source(u);
	ssize_t k = u->part == PART_SKIPPED ? (ssize_t)c->n : peer_send(u->call, 0, c->p, c->n);

	if (k < 0) {
		fail(u, 502, "the sandbox has ended");
		return true;
	}
	c->p += k;
	c->n -= (size_t)k;
	if (c->n == 0)
		return true;
	if (c->p + c->n == s->p) {
		s->p = c->p;
		s->n += c->n;
		c->n = 0;
	}
	return false;
}

/* The whole body is consumed. False: an answer of the guest is still missing. */
static bool finish(struct upload *u)
{
	if (u->gunzip && !gunzip_whole(u->gunzip))
		fail(u, 400, "the body ends before its gzip stream does");
	else if (u->form && !multipart_whole(&u->multipart))
		fail(u, 400, "the body ends before its last boundary");
	else if (u->part == PART_OPEN)
		end_file(u);
	else if (json_array_size(u->files) == 0)
		fail(u, 400, "the body has no part called 'file'");
	else
		return true;
	return false;
}

enum move {
	MOVE_WAIT, /* for the guest */
	MOVE_MORE, /* for the body */
	MOVE_DONE,
};

static enum move move(struct upload *u)
{
	while (!u->status) {
		if (u->part == PART_ASKED || u->part == PART_CLOSING)
			return MOVE_WAIT;
		if (u->contents.n > 0 && !send_contents(u))
			return MOVE_WAIT;
		if (u->contents.n > 0 || (u->form ? take_form(u) : take_file(u)))
			continue;
		if (!u->ended)
			return MOVE_MORE;
		if (finish(u))
			return MOVE_DONE;
	}
	u->raw.n = 0;
	return u->ended ? MOVE_DONE : MOVE_MORE;
}

/* False: the request was answered and freed. */
static bool pump(struct upload *u)
{
	enum move m = move(u);

	if (m != MOVE_DONE)
		http_body_pause(u->r->x, m == MOVE_WAIT);
	else if (u->status == 502)
		request_gone(u->r);
	else if (u->status)
		request_fail(u->r, u->status, "%s", u->why);
	else
		request_answer(u->r, 200, json_incref(u->files));
	return m != MOVE_DONE;
}

/* http reuses its bytes after the call: copies what is left of them. */
static void keep(struct upload *u)
{
	buf_reset(&u->kept);
	if (buf_put(&u->kept, u->raw.p, u->raw.n) == 0) {
		u->raw.p = u->kept.data;
		return;
	}
	u->raw.n = 0;
	fail(u, 503, "out of memory");
	(void)pump(u);
}

static void on_data(struct exchange *x, const char *data, size_t n)
{
	struct upload *u = ((struct request *)x->cookie)->data;

	assert(u->raw.n == 0); /* paused until all bytes are consumed */
	u->raw = (struct slice){ data, n };
	if (pump(u) && u->raw.n > 0)
		keep(u);
}

static void on_end(struct exchange *x)
{
	struct upload *u = ((struct request *)x->cookie)->data;

	u->ended = true;
	(void)pump(u);
}

/* ---- the head ---- */

static void put_meta(struct upload *u, char *pair)
{
	for (char *c = pair; *c != '='; c++)
		*c = ascii_lower(*c);
	fields_put_text(&u->meta, TAG_META, pair);
}

/* Reads all fields X-Metadata-KEY: VALUE. */
static void read_metadata(struct upload *u)
{
	const char *name, *value;

	for (size_t i = 0; http_field_at(u->r->x, i, &name, &value); i++) {
		_cleanup_free_ char *pair = NULL;

		if (strncasecmp(name, METADATA, STRLEN(METADATA)) != 0)
			continue;
		name += STRLEN(METADATA);
		if (!name[0])
			fail(u, 400, "a field X-Metadata- has no key");
		else if (asprintf(&pair, "%s=%s", name, value) < 0)
			fail(u, 503, "out of memory");
		else
			put_meta(u, pair);
	}
}

static void read_encoding(struct upload *u)
{
	const char *encoding = http_field(u->r->x, "content-encoding");

	if (!encoding || strcasecmp(encoding, "identity") == 0)
		return;
	if (strcasecmp(encoding, "gzip") != 0) {
		fail(u, 400, "the body has an encoding that is not supported: send gzip or none");
		return;
	}
	u->plain = malloc(PLAIN);
	if (!u->plain || gunzip_new(&limits, &u->gunzip) < 0)
		fail(u, 503, "out of memory");
}

static void read_type(struct upload *u)
{
	static const char octets[] = "application/octet-stream";
	const char *type = http_field(u->r->x, "content-type");
	struct err e = ERR_INIT;

	if (type && multipart_is(type)) {
		u->form = multipart_init(&u->multipart, type, &e) == 0;
		if (!u->form)
			fail_err(u, &e);
	} else if (!type || strncasecmp(type, octets, STRLEN("application/octet-stream")) != 0) {
		fail(u, 400,
		     "the body is neither multipart/form-data nor application/octet-stream");
	} else if (!u->query.path) {
		fail(u, 400, "the query has no path");
	}
}

void files_upload(struct request *r)
{
	static const struct http_body body = { .data = on_data, .end = on_end };
	struct upload *u = calloc(1, sizeof(*u));

	if (!u) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*u = (struct upload){ .r = r, .kept = BUF_INIT(KEPT_MAX), .meta = BUF_INIT(WIRE_OPEN_MAX) };
	r->data = u;
	r->drop = on_drop;
	if (!file_query_read(r, &u->query))
		return;
	u->files = json_array();
	if (!u->files)
		fail(u, 503, "out of memory");
	read_metadata(u);
	read_encoding(u);
	read_type(u);
	http_body(r->x, &body);
}
