/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches of directories. WatchDir is a stream, with a watch that lives as long as its request.
 * CreateWatcher makes a watch that stays with the box after the answer, and queues its events until
 * a client polls them. Both are a struct watcher with one call to the guest.
 *
 * Events have no flow control, so both are bounded. A client that does not read loses its stream; a
 * watcher that no client polls reports lost events and continues.
 */
#include "envd/watch.h"

#include <string.h>
#include <sys/random.h>

#include "base/str.h"
#include "envd/fs.h"

enum {
	WATCHERS_MAX = 64,	 /* per box */
	QUEUE_EVENTS_MAX = 4096, /* per polled watcher */
	QUEUE_MAX = 1024 * 1024, /* size of their fields, waiting for either kind of client */
	ID_LEN = 16,
	OPENED_MAX = 1000, /* reopened watches of one stream */
};

struct watcher {
	struct request *r; /* the stream; or CreateWatcher, until answered */
	struct box *box;
	struct call *call;
	enum wire_op op; /* current call */
	bool stream, entries, started;
	bool open;	     /* the call was accepted */
	unsigned int opened; /* number of calls so far */
	char *root;	     /* absolute if entries are requested */
	size_t waiting;	     /* bytes in the queue, or unread by the stream's client */
	/* only of a polled watcher */
	char id[ID_LEN + 1];
	json_t *queue;
	bool lost;
	char why[WIRE_TEXT_MAX + 1]; /* set when the watch has ended */
	struct watcher *next;
};

static void watcher_free(struct watcher *w)
{
	if (w->call)
		peer_close(w->call);
	json_decref(w->queue);
	free(w->root);
	free(w);
}

static void on_drop(struct request *r)
{
	watcher_free(r->data);
}

/* ---- events ---- */

static const char *type_of(const struct fields *f)
{
	static const char *const names[] = {
		[WIRE_CREATED] = "EVENT_TYPE_CREATE",	[WIRE_WRITTEN] = "EVENT_TYPE_WRITE",
		[WIRE_REMOVED] = "EVENT_TYPE_REMOVE",	[WIRE_RENAMED] = "EVENT_TYPE_RENAME",
		[WIRE_ATTRIBUTES] = "EVENT_TYPE_CHMOD",
	};
	uint64_t event = fields_number(f, TAG_EVENT, WIRE_LOST);

	return event < ARRAY_SIZE(names) ? names[event] : NULL;
}

/* NULL: out of memory. */
static json_t *event_json(const struct watcher *w, const struct fields *f)
{
	_cleanup_free_ char *name = envd_text(f, TAG_PATH);
	json_t *event = name ? JSON_OBJECT({ "name", json_string(name) },
					   { "type", json_string(type_of(f)) })
			     : NULL;

	if (event && w->entries && fields_has(f, TAG_KIND) &&
	    json_put(event, "entry", envd_entry(f, w->root)) < 0) {
		json_decref(event);
		return NULL;
	}
	return event;
}

static void tell(struct watcher *w, const struct fields *f)
{
	if (http_full(w->r->x))
		w->waiting += f->len;
	if (!type_of(f))
		rpc_fail(w->r, RPC_INTERNAL, "events were lost: too many came at once");
	else if (w->waiting > QUEUE_MAX)
		rpc_fail(w->r, RPC_RESOURCE_EXHAUSTED, "events come faster than they are read");
	else
		rpc_send(w->r, JSON_OBJECT({ "filesystem", event_json(w, f) }));
}

static void on_room(struct request *r)
{
	struct watcher *w = r->data;

	w->waiting = 0;
}

static void keep(struct watcher *w, const struct fields *f)
{
	w->waiting += f->len;
	if (!type_of(f) || w->waiting > QUEUE_MAX ||
	    json_array_size(w->queue) >= QUEUE_EVENTS_MAX ||
	    json_push(w->queue, event_json(w, f)) < 0)
		w->lost = true;
}

/* ---- the call ---- */

static void open_watch(struct watcher *w);

static void poll_from_now(struct watcher *w)
{
	struct request *r = w->r;

	w->r = NULL;
	w->next = w->box->watchers;
	w->box->watchers = w;
	r->data = NULL;
	r->drop = NULL;
	rpc_answer(r, JSON_OBJECT({ "watcherId", json_string(w->id) }));
}

static void begin_stream(struct watcher *w)
{
	w->started = true;
	w->r->room = on_room;
	if (rpc_clocks(w->r, "{\"keepalive\":{}}", NULL) < 0)
		rpc_fail(w->r, RPC_RESOURCE_EXHAUSTED, "out of timers");
	else
		rpc_send(w->r, JSON_OBJECT({ "start", json_object() }));
}

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct watcher *w = arg;

	w->open = true;
	if (w->op == WIRE_OP_STAT)
		w->root = envd_text(f, TAG_PATH);
	else if (!w->stream)
		poll_from_now(w);
	else if (!w->started)
		begin_stream(w);
}

static void on_msg(struct call *c, enum wire_msg kind, const struct fields *f, void *arg)
{
	struct watcher *w = arg;

	if (kind != WIRE_MSG_EVENT)
		return;
	if (w->stream)
		tell(w, f);
	else
		keep(w, f);
}

/*
 * If a stream's directory is removed or moved, opens the path again. The guest then reports that it
 * is missing, or that the sandbox ends; the first code alone does not show which.
 */
static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct watcher *w = arg;

	w->call = NULL;
	if (!w->r)
		(void)snprintf(w->why, sizeof(w->why), "%s", text[0] ? text : wire_code_name(code));
	else if (w->op == WIRE_OP_STAT && code == WIRE_DONE)
		open_watch(w);
	else if (w->open && code == WIRE_GONE && w->opened < OPENED_MAX)
		open_watch(w);
	else
		fs_fail_code(w->r, code, text);
}

static const struct call_ops ops = {
	.accepted = on_accepted,
	.msg = on_msg,
	.closed = on_closed,
};

static void ask(struct watcher *w, enum wire_op op, const struct buf *fields)
{
	struct err e = ERR_INIT;

	w->op = op;
	w->open = false;
	w->opened++;
	if (envd_call(w->r, op, fields, &ops, w, &w->call, &e) < 0)
		fs_fail(w->r, &e);
}

static void open_watch(struct watcher *w)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);

	if (!fs_put(w->r, &b, fs_text(w->r, "path"), NULL))
		return;
	if (fs_flag(w->r, "recursive", NULL))
		fields_put_flag(&b, TAG_RECURSIVE);
	ask(w, WIRE_OP_WATCH, &b);
}

/* Entries have absolute paths, and only the guest knows the home directory. */
static void start(struct watcher *w)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	const char *path = fs_text(w->r, "path");

	if (!path)
		return;
	if (w->entries && path[0] != '/') {
		if (fs_put(w->r, &b, path, NULL))
			ask(w, WIRE_OP_STAT, &b);
		return;
	}
	w->root = strdup(path);
	if (w->root)
		open_watch(w);
	else
		rpc_fail(w->r, RPC_RESOURCE_EXHAUSTED, "out of memory");
}

static struct watcher *watcher_new(struct request *r, bool stream)
{
	struct watcher *w = calloc(1, sizeof(*w));

	if (!w) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	w->r = r;
	w->box = r->box;
	w->stream = stream;
	w->entries = fs_flag(r, "includeEntry", "include_entry");
	r->data = w;
	r->drop = on_drop;
	return w;
}

/* ---- the stream ---- */

static void have_watch_dir(struct request *r)
{
	struct watcher *w = watcher_new(r, true);

	if (w)
		start(w);
}

static void watch_dir(struct request *r)
{
	rpc_read_stream(r, have_watch_dir);
}

/* ---- polled watchers ---- */

static bool draw_id(char out[static ID_LEN + 1])
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return false;
	(void)snprintf(out, ID_LEN + 1, "%016llx", (unsigned long long)random);
	return true;
}

static size_t count(const struct box *b)
{
	size_t n = 0;

	for (const struct watcher *w = b->watchers; w; w = w->next)
		n++;
	return n;
}

static void have_create(struct request *r)
{
	struct watcher *w;

	if (count(r->box) >= WATCHERS_MAX) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "the sandbox has %d watchers: remove one first",
			 WATCHERS_MAX);
		return;
	}
	w = watcher_new(r, false);
	if (!w)
		return;
	w->queue = json_array();
	if (w->queue && draw_id(w->id))
		start(w);
	else
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
}

static void watch_create(struct request *r)
{
	fs_read(r, have_create);
}

/* Returns the link to the watcher named in the message, or NULL after answering with an error. */
static struct watcher **find(struct request *r)
{
	const json_t *id = fs_member(r, "watcherId", "watcher_id");
	struct watcher **p = &r->box->watchers;

	while (*p && !(json_is_string(id) && str_eq((*p)->id, json_string_value(id))))
		p = &(*p)->next;
	if (*p)
		return p;
	rpc_fail(r, RPC_NOT_FOUND, "there is no such watcher");
	return NULL;
}

static void have_events(struct request *r)
{
	struct watcher **p = find(r), *w = p ? *p : NULL;
	json_t *events, *empty;

	if (!w)
		return;
	empty = json_array();
	if (!empty) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	events = w->queue;
	w->queue = empty;
	w->waiting = 0;
	if (w->lost) {
		w->lost = false;
		json_decref(events);
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "events were lost: ask for them more often");
	} else if (w->why[0] && json_array_size(events) == 0) {
		json_decref(events);
		rpc_fail(r, RPC_FAILED_PRECONDITION, "the watch has ended: %s", w->why);
	} else {
		rpc_answer(r, JSON_OBJECT({ "events", events }));
	}
}

static void watch_events(struct request *r)
{
	fs_read(r, have_events);
}

static void have_remove(struct request *r)
{
	struct watcher **p = find(r), *w = p ? *p : NULL;

	if (!w)
		return;
	*p = w->next;
	watcher_free(w);
	rpc_answer(r, json_object());
}

static void watch_remove(struct request *r)
{
	fs_read(r, have_remove);
}

void watchers_drop(struct box *b)
{
	while (b->watchers) {
		struct watcher *w = b->watchers;

		b->watchers = w->next;
		watcher_free(w);
	}
}

const struct route envd_watch_routes[] = {
	FS_ROUTE("WatchDir", watch_dir),
	FS_ROUTE("CreateWatcher", watch_create),
	FS_ROUTE("GetWatcherEvents", watch_events),
	FS_ROUTE("RemoveWatcher", watch_remove),
	{ 0 },
};
