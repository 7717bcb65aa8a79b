/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filesystem.Filesystem of E2B's envd, except its watches. Each method is one or two guest
 * operations: struct method has its first step and what follows when the guest closes the call;
 * struct fs keeps what the guest sent in between.
 *
 * MakeDir starts with a stat, because an existing directory is an error here but not for the guest,
 * which creates parents. ListDir starts with a stat if the path is relative, because entries have
 * absolute paths and only the guest knows the home directory.
 */
#include "envd/fs.h"

#include <strings.h>

#include "base/str.h"

enum {
	LIST_MAX = 64 * 1024 * 1024,   /* size of an answer */
	LISTS_MAX = 256 * 1024 * 1024, /* total of all unsent answers */
	LIST_PIECE = 64 * 1024,
	DEPTH_MAX = 64,
	LIST_TRIES = 5, /* see list_done() */
	STATUS_MEDIA_TYPE = 415,
};

/* Size of all listings, which stay in memory until their clients have read them. */
static size_t lists;

struct fs;

struct method {
	const char *name;
	void (*start)(struct fs *f);
	void (*done)(struct fs *f, enum wire_code code, const char *text);
};

struct fs {
	struct request *r;
	const struct method *method;
	struct call *call;
	enum wire_op op; /* last call */
	json_t *entry;	 /* from its ACCEPT */
	char *root;	 /* absolute path of a listing */
	struct buf list; /* the text of the answer */
	size_t sent;	 /* bytes of `list` */
	size_t listed;
	unsigned int tries;
	int err; /* in an entry */
};

/* ---- the message ---- */

void fs_read(struct request *r, void (*have)(struct request *r))
{
	const char *type = http_field(r->x, "content-type");

	if (type && strncasecmp(type, RPC_STREAM, STRLEN(RPC_STREAM)) == 0)
		request_fail(r, STATUS_MEDIA_TYPE, "this method is no stream: expected " RPC_JSON);
	else
		rpc_read(r, have);
}

json_t *fs_member(const struct request *r, const char *name, const char *other)
{
	json_t *j = json_object_get(r->body, name);

	if (!j && other)
		j = json_object_get(r->body, other);
	return json_is_null(j) ? NULL : j;
}

const char *fs_text(struct request *r, const char *name)
{
	const json_t *j = fs_member(r, name, NULL);

	if (!j)
		return "";
	if (!json_is_string(j))
		rpc_fail(r, RPC_INVALID_ARGUMENT, "'%s' is not a text", name);
	return json_string_value(j);
}

bool fs_flag(const struct request *r, const char *name, const char *other)
{
	return json_is_true(fs_member(r, name, other));
}

bool fs_put(struct request *r, struct buf *b, const char *path, const char *target)
{
	char user[RPC_USER_MAX + 1];

	if (rpc_user(r, user) < 0) {
		rpc_fail_status(r, RPC_UNAUTHENTICATED, "the field Authorization names no user");
		return false;
	}
	fields_put_text(b, TAG_PATH, path);
	if (target)
		fields_put_text(b, TAG_TARGET, target);
	if (user[0])
		fields_put_text(b, TAG_USER, user);
	return true;
}

void fs_fail(struct request *r, const struct err *e)
{
	switch (e->num) {
	case -ESRCH:
	case -EPIPE:
		request_gone(r);
		break;
	case -EINVAL:
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", e->msg);
		break;
	case -EAGAIN:
	case -ENOMEM:
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "%s", e->msg);
		break;
	default:
		rpc_fail_err(r, RPC_INTERNAL, e);
	}
}

void fs_fail_code(struct request *r, enum wire_code code, const char *text)
{
	if (code == WIRE_GONE)
		request_gone(r);
	else
		rpc_fail(r, rpc_of_wire(code), "%s", text[0] ? text : wire_code_name(code));
}

/* ---- calls ---- */

static void fs_drop(struct request *r)
{
	struct fs *f = r->data;

	if (f->call)
		peer_close(f->call);
	json_decref(f->entry);
	free(f->root);
	lists -= f->list.len;
	buf_done(&f->list);
	free(f);
}

static void on_accepted(struct call *c, const struct fields *fields, void *arg)
{
	struct fs *f = arg;

	if (!fields_has(fields, TAG_KIND))
		return;
	f->entry = envd_entry(fields, NULL);
	f->err = f->entry ? 0 : -ENOMEM;
}

/* Appends to a listing; -ENOMEM, -ENOBUFS. */
static int list_put(struct fs *f, const char *text)
{
	size_t n = strlen(text);
	int r = n > LISTS_MAX - lists ? -ENOBUFS : buf_put(&f->list, text, n);

	lists += r == 0 ? n : 0;
	return r;
}

static void list_forget(struct fs *f)
{
	lists -= f->list.len;
	buf_reset(&f->list);
	f->listed = 0;
}

/* Converts an entry of a listing to text at once: JSON values would take far more memory. */
static void on_msg(struct call *c, enum wire_msg kind, const struct fields *fields, void *arg)
{
	struct fs *f = arg;
	_cleanup_json_ json_t *entry = NULL;
	_cleanup_free_ char *text = NULL;
	int r;

	if (kind != WIRE_MSG_ENTRY || f->op != WIRE_OP_LIST || f->err)
		return;
	entry = envd_entry(fields, f->root);
	text = entry ? json_write_line(entry) : NULL;
	r = f->listed++ > 0 ? list_put(f, ",") : 0;
	if (r == 0)
		r = text ? list_put(f, text) : -ENOMEM;
	if (r == -ENOBUFS)
		rpc_fail(
			f->r, RPC_RESOURCE_EXHAUSTED,
			"the listing has more than %d bytes, or there are too many: list less deep",
			LIST_MAX);
	else
		f->err = r;
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct fs *f = arg;

	f->call = NULL;
	if (f->err)
		rpc_fail(f->r, RPC_RESOURCE_EXHAUSTED, "out of memory");
	else
		f->method->done(f, code, text);
}

static const struct call_ops ops = {
	.accepted = on_accepted,
	.msg = on_msg,
	.closed = on_closed,
};

static void ask(struct fs *f, enum wire_op op, const struct buf *fields)
{
	struct err e = ERR_INIT;

	json_decref(f->entry);
	f->entry = NULL;
	f->op = op;
	if (envd_call(f->r, op, fields, &ops, f, &f->call, &e) < 0)
		fs_fail(f->r, &e);
}

/* Asks for the entry of the message's path, following links. */
static void ask_stat(struct fs *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	const char *path = fs_text(f->r, "path");

	if (!path || !fs_put(f->r, &b, path, NULL))
		return;
	fields_put_flag(&b, TAG_FOLLOW);
	ask(f, WIRE_OP_STAT, &b);
}

static void answer_entry(struct fs *f, enum wire_code code, const char *text)
{
	if (code != WIRE_DONE)
		fs_fail_code(f->r, code, text);
	else
		rpc_answer(f->r, JSON_OBJECT({ "entry", json_incref(f->entry) }));
}

/* ---- MakeDir ---- */

static void ask_mkdir(struct fs *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);

	if (!fs_put(f->r, &b, fs_text(f->r, "path"), NULL))
		return;
	fields_put_flag(&b, TAG_PARENTS);
	ask(f, WIRE_OP_MKDIR, &b);
}

static void mkdir_done(struct fs *f, enum wire_code code, const char *text)
{
	const char *type = json_string_value(json_object_get(f->entry, "type"));

	if (f->op != WIRE_OP_STAT)
		answer_entry(f, code, text);
	else if (code == WIRE_NOT_FOUND)
		ask_mkdir(f);
	else if (code != WIRE_DONE)
		fs_fail_code(f->r, code, text);
	else if (type && str_eq(type, "FILE_TYPE_DIRECTORY"))
		rpc_fail(f->r, RPC_ALREADY_EXISTS, "the directory exists already");
	else
		rpc_fail(f->r, RPC_INVALID_ARGUMENT, "the path exists and is not a directory");
}

/* ---- Move, Remove ---- */

static void move_start(struct fs *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	const char *source = fs_text(f->r, "source");
	const char *destination = source ? fs_text(f->r, "destination") : NULL;

	if (!destination || !fs_put(f->r, &b, source, destination))
		return;
	fields_put_flag(&b, TAG_PARENTS);
	ask(f, WIRE_OP_MOVE, &b);
}

static void remove_start(struct fs *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	const char *path = fs_text(f->r, "path");

	if (path && fs_put(f->r, &b, path, NULL))
		ask(f, WIRE_OP_REMOVE, &b);
}

static void remove_done(struct fs *f, enum wire_code code, const char *text)
{
	if (code == WIRE_DONE || code == WIRE_NOT_FOUND)
		rpc_answer(f->r, json_object());
	else
		fs_fail_code(f->r, code, text);
}

/* ---- ListDir ---- */

/* 1 to DEPTH_MAX, or 0: the request was answered with an error. */
static uint64_t list_depth(struct request *r)
{
	const json_t *j = fs_member(r, "depth", NULL);
	json_int_t depth = j ? json_integer_value(j) : 0;

	if ((j && !json_is_integer(j)) || depth < 0 || depth > DEPTH_MAX) {
		rpc_fail(r, RPC_INVALID_ARGUMENT, "the depth is a number from 1 to %d", DEPTH_MAX);
		return 0;
	}
	return depth > 0 ? (uint64_t)depth : 1;
}

static void ask_list(struct fs *f, const char *path)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
	uint64_t depth = list_depth(f->r);

	if (!depth || !fs_put(f->r, &b, path, NULL))
		return;
	fields_put_number(&b, TAG_DEPTH, depth);
	fields_put_flag(&b, TAG_FOLLOW);
	list_forget(f);
	f->tries++;
	if (f->root != path) {
		free(f->root);
		f->root = strdup(path);
	}
	if (!f->root || list_put(f, "{\"entries\":[") < 0)
		rpc_fail(f->r, RPC_RESOURCE_EXHAUSTED, "out of memory");
	else
		ask(f, WIRE_OP_LIST, &b);
}

static void list_start(struct fs *f)
{
	const char *path = fs_text(f->r, "path");

	if (path && path[0] == '/')
		ask_list(f, path);
	else if (path)
		ask_stat(f);
}

/* Writes as much as the client reads. */
static void list_write(struct request *r)
{
	struct fs *f = r->data;

	while (f->sent < f->list.len && !http_full(r->x)) {
		size_t n = MIN(f->list.len - f->sent, (size_t)LIST_PIECE);

		request_write(r, f->list.data + f->sent, n);
		f->sent += n;
	}
	if (f->sent == f->list.len)
		request_end(r);
}

static void list_answer(struct fs *f)
{
	struct request *r = f->r;

	if (list_put(f, "]}") < 0) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
	} else if (f->list.len <= LIST_PIECE) {
		request_text(r, 200, RPC_JSON, f->list.data, f->list.len);
	} else {
		r->room = list_write;
		request_begin(r, 200, RPC_JSON, (int64_t)f->list.len);
		list_write(r);
	}
}

/*
 * Entries have no flow control: if hutchd did not get the CPU for long, the keeper aborts a large
 * listing. When hutchd sees that, it has read everything, and asks again.
 */
static void list_done(struct fs *f, enum wire_code code, const char *text)
{
	if (code == WIRE_TOO_MANY && f->listed > 0 && f->tries < LIST_TRIES)
		ask_list(f, f->root);
	else if (code != WIRE_DONE)
		fs_fail_code(f->r, code, text);
	else if (f->op == WIRE_OP_STAT)
		ask_list(f, json_string_value(json_object_get(f->entry, "path")));
	else
		list_answer(f);
}

/* ---- handlers ---- */

static const struct method methods[] = {
	{ "Stat", ask_stat, answer_entry },   { "MakeDir", ask_stat, mkdir_done },
	{ "Move", move_start, answer_entry }, { "Remove", remove_start, remove_done },
	{ "ListDir", list_start, list_done },
};

static void have_message(struct request *r)
{
	const char *name = strrchr(r->route->path, '/') + 1;
	const struct method *m = methods;
	struct fs *f = calloc(1, sizeof(*f));

	if (!f) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	while (!str_eq(m->name, name))
		m++;
	*f = (struct fs){ .r = r, .method = m, .list = BUF_INIT(LIST_MAX) };
	r->data = f;
	r->drop = fs_drop;
	m->start(f);
}

static void handle(struct request *r)
{
	fs_read(r, have_message);
}

const struct route envd_fs_routes[] = {
	FS_ROUTE("Stat", handle),   FS_ROUTE("MakeDir", handle), FS_ROUTE("Move", handle),
	FS_ROUTE("Remove", handle), FS_ROUTE("ListDir", handle), { 0 },
};
