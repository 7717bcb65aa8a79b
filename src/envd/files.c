/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain endpoints of E2B's envd: GET and POST of /files, health, metrics and environment.
 *
 * A download has as many bytes as the file had when it was opened. The guest gets credit back when
 * the client has read the bytes, so a slow client stops the guest, and nothing is buffered here.
 * Files of size 0 may still have contents (those of /proc): they are sent in chunks.
 */
#include "envd/files.h"

#include <string.h>

#include "api/box.h"
#include "base/str.h"
#include "envd/entry.h"
#include "envd/file-query.h"
#include "envd/upload.h"

enum {
	STATUS_OK = 200,
	STATUS_EMPTY = 204,
	STATUS_GONE = 502,
};

static void fail(struct request *r, int status, const char *text)
{
	if (status == STATUS_GONE)
		request_gone(r);
	else
		request_fail(r, status, "%s", text);
}

/* ---- GET /files ---- */

struct download {
	struct request *r;
	struct call *call;
	uint64_t left;
	bool chunked; /* the file's size is 0 */
	size_t owed;  /* bytes that the client has not read, without credit for the guest */
};

static void on_drop(struct request *r)
{
	struct download *d = r->data;

	if (d->call)
		peer_close(d->call);
	free(d);
}

static void on_room(struct request *r)
{
	struct download *d = r->data;
	size_t owed = d->owed;

	d->owed = 0;
	if (d->call && owed > 0)
		peer_consumed(d->call, 0, owed);
}

static void begin(struct download *d, int64_t length)
{
	request_begin(d->r, STATUS_OK, "application/octet-stream", length);
}

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct download *d = arg;

	d->left = fields_number(f, TAG_SIZE, 0);
	d->chunked = d->left == 0;
	if (!d->chunked)
		begin(d, (int64_t)d->left);
}

static void on_data(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct download *d = arg;
	size_t k = d->chunked ? n : (size_t)MIN((uint64_t)n, d->left);

	if (!d->r->begun)
		begin(d, -1);
	request_write(d->r, data, k);
	d->left -= d->chunked ? 0 : k;
	if (!d->chunked && d->left == 0) {
		request_end(d->r); /* ignores what was appended since */
		return;
	}
	d->owed += n;
	if (!http_full(d->r->x))
		on_room(d->r);
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct download *d = arg;

	d->call = NULL;
	if (code != WIRE_DONE) {
		fail(d->r, file_status(code), text[0] ? text : wire_code_name(code));
		return;
	}
	if (!d->r->begun)
		begin(d, 0);
	request_end(d->r);
}

static const struct call_ops ops = {
	.accepted = on_accepted,
	.data = on_data,
	.closed = on_closed,
};

static void download(struct request *r, const struct file_query *q)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	struct download *d = calloc(1, sizeof(*d));
	struct err e = ERR_INIT;

	if (!d) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*d = (struct download){ .r = r };
	r->data = d;
	r->drop = on_drop;
	r->room = on_room;
	fields_put_text(&b, TAG_PATH, q->path ? q->path : "");
	if (q->user)
		fields_put_text(&b, TAG_USER, q->user);
	if (envd_call(r, WIRE_OP_READ, &b, &ops, d, &d->call, &e) < 0) {
		int status = file_status_errno(e.num);
		char text[REQUEST_TEXT_MAX];

		fail(r, status, status == 500 ? request_reason(r, status, &e, text) : e.msg);
	}
}

static void files_download(struct request *r)
{
	_cleanup_(file_query_done) struct file_query q = { 0 };

	if (file_query_read(r, &q))
		download(r, &q);
}

/* ---- other endpoints ---- */

static void health(struct request *r)
{
	request_empty(r, STATUS_EMPTY);
}

static void envs(struct request *r)
{
	const struct spec_list *env = &r->box->spec.env;
	json_t *all = json_object();

	for (size_t i = 0; all && i < env->n; i++) {
		const char *equal = strchr(env->v[i], '=');
		_cleanup_free_ char *name =
			equal ? strndup(env->v[i], (size_t)(equal - env->v[i])) : NULL;

		/* JSON cannot express a value that is not UTF-8. */
		if (name)
			(void)json_put(all, name, json_string(equal + 1));
	}
	request_answer(r, STATUS_OK, all);
}

/* The same figures as in the control plane, under other names. */
static void metrics(struct request *r)
{
	static const char *const names[][2] = {
		{ "ts", "timestampUnix" },	  { "cpu_count", "cpuCount" },
		{ "cpu_used_pct", "cpuUsedPct" }, { "mem_total", "memTotal" },
		{ "mem_used", "memUsed" },	  { "mem_cache", "memCache" },
		{ "disk_used", "diskUsed" },	  { "disk_total", "diskTotal" },
	};
	_cleanup_json_ json_t *from = box_metric(r->box);
	json_t *all = from ? json_object() : NULL;

	for (size_t i = 0; all && i < ARRAY_SIZE(names); i++)
		(void)json_put(all, names[i][0], json_incref(json_object_get(from, names[i][1])));
	request_answer(r, STATUS_OK, all);
}

const struct route envd_files_routes[] = {
	{ "GET", "/files", ROLE_TOKEN | ROLE_SIGNED, files_download },
	{ "POST", "/files", ROLE_TOKEN | ROLE_SIGNED, files_upload },
	{ "GET", "/health", ROLE_NOBODY | ROLE_TOKEN, health },
	{ "GET", "/envs", ROLE_TOKEN, envs },
	{ "GET", "/metrics", ROLE_TOKEN, metrics },
	{ 0 },
};
