/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box exists from the first request for its sandbox, or the first listing, until the warden's
 * pidfd reports the warden's end. A suspended sandbox has no warden, so each lookup checks its
 * state again. The token and metadata are in the sandbox's spec. A sandbox that hutchd did not
 * create (`hutch create`) gets a token, in a file of its own, at the first HTTP request for it.
 */
#include "api/box.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>

#include "api/request.h"
#include "base/fd.h"
#include "state/kept.h"
#include "state/life.h"

static const char own_file[] = "api.json";

static size_t bucket(const char *id)
{
	uint32_t h = 2166136261u;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 16777619u;
	return h % API_BUCKETS;
}

/* ---- end of a box ---- */

static void box_free(struct box *b)
{
	struct box **p = &b->api->boxes[bucket(b->sandbox.id)];

	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	b->api->n_boxes--;
	while (b->requests)
		request_gone(b->requests);
	for (const struct api_part *const *part = b->api->config->parts; *part; part++)
		if ((*part)->box_gone)
			(*part)->box_gone(b);
	b->peer = peer_free(b->peer);
	loop_del_fd(&b->warden);
	(void)fd_close(b->warden.fd);
	sandbox_close(&b->sandbox);
	spec_done(&b->spec);
	json_decref(b->metadata);
	json_decref(b->network);
	json_decref(b->own);
	free(b);
}

static void on_warden(struct loop_fd *src, uint32_t events)
{
	box_free(src->arg);
}

void boxes_free(struct api *a)
{
	for (size_t i = 0; i < API_BUCKETS; i++)
		while (a->boxes[i])
			box_free(a->boxes[i]);
}

/* ---- files of a box ---- */

static int read_json(int dir, const char *name, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SPEC_API_MAX);
	int r = fd_read_file(dir, name, &b, e);

	return r < 0 ? r : json_read(buf_text(&b), b.len, ret, e);
}

static bool take_token(const json_t *j, const char *key, char out[static BOX_TOKEN + 1])
{
	const char *text = json_string_value(json_object_get(j, key));

	if (!text || strlen(text) != BOX_TOKEN || strspn(text, "0123456789abcdef") != BOX_TOKEN)
		return false;
	memcpy(out, text, BOX_TOKEN + 1);
	return true;
}

void box_draw_token(char out[static BOX_TOKEN + 1])
{
	unsigned char bytes[BOX_TOKEN / 2];

	randombytes_buf(bytes, sizeof(bytes));
	(void)sodium_bin2hex(out, BOX_TOKEN + 1, bytes, sizeof(bytes));
}

int box_save(struct box *b, struct err *e)
{
	_cleanup_free_ char *text = b->own ? json_write_line(b->own) : NULL;

	return text ? state_write(b->sandbox.dir, own_file, text, strlen(text), e) : err_oom(e);
}

/* Draws a token for a sandbox that hutchd did not create. */
static int draw_own(struct box *b, struct err *e)
{
	char token[BOX_TOKEN + 1];

	box_draw_token(token);
	json_decref(b->own);
	b->own = JSON_OBJECT({ "token", json_string(token) });
	return b->own ? box_save(b, e) : err_oom(e);
}

int box_read_api(const char *made, int dir, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL, *own = NULL;
	struct err none = ERR_INIT;
	int r = json_read(made, strlen(made), &j, e);

	if (r < 0)
		return r;
	r = read_json(dir, own_file, &own, &none);
	if (r < 0 && r != -ENOENT)
		return (*e = none).num;
	if (own && json_object_update(j, own) < 0)
		return err_oom(e);
	*ret = TAKE_PTR(j);
	return 0;
}

/*
 * Merges spec.api, written at creation, and api.json, which replaces single members later: network,
 * and the token of a sandbox that hutchd did not create.
 */
static int read_own(struct box *b, struct err *e)
{
	_cleanup_json_ json_t *made = NULL;
	struct err none = ERR_INIT;
	int r = 0;

	if (b->spec.api[0])
		r = json_read(b->spec.api, strlen(b->spec.api), &made, e);
	if (r < 0)
		return r;
	r = read_json(b->sandbox.dir, own_file, &b->own, &none);
	if (r == -ENOENT)
		b->own = made ? json_object() : NULL;
	else if (r < 0)
		return (*e = none).num;
	if (!b->own && (r = draw_own(b, e)) < 0)
		return r;
	if (!made && !(made = json_object()))
		return err_oom(e);
	if (json_object_update(made, b->own) < 0)
		return err_oom(e);
	if (!take_token(made, "token", b->token))
		return err_set(e, -EINVAL, "sandbox %s has no token", b->sandbox.id);
	(void)take_token(made, "traffic", b->traffic);
	b->metadata = json_incref(json_object_get(made, "metadata"));
	if (!json_is_object(b->metadata))
		b->metadata = (json_decref(b->metadata), json_object());
	b->network = json_incref(json_object_get(made, "network"));
	b->build = json_is_string(json_object_get(made, "build"));
	b->auto_resume = json_is_true(json_object_get(made, "auto_resume"));
	b->internet = json_object_get(made, "internet")
			      ? json_is_true(json_object_get(made, "internet"))
			      : true;
	(void)snprintf(b->owner, sizeof(b->owner), "%s",
		       json_string_value(json_object_get(made, "owner")) ?: "");
	(void)snprintf(b->template, sizeof(b->template), "%s",
		       json_string_value(json_object_get(made, "template")) ?: b->spec.image);
	return b->metadata ? 0 : err_oom(e);
}

void box_refresh(struct box *b)
{
	struct err ignored = ERR_INIT;
	struct life life = { 0 };

	if (b->suspended) {
		b->state = BOX_PAUSED;
		b->stopped = false;
		b->deadline = 0;
		b->pause_at_deadline = b->spec.on_timeout == ON_TIMEOUT_PAUSE;
		return;
	}
	if (life_read(b->sandbox.dir, &life, &ignored) < 0)
		return;
	b->state = life.paused ? BOX_PAUSED : BOX_RUNNING;
	b->stopped = life.stopped != LIFE_RUNS;
	b->deadline = life.deadline;
	b->pause_at_deadline = life.on_timeout == ON_TIMEOUT_PAUSE;
}

/* ---- loading ---- */

/* Also while another process resumes it: requests then wait (suspend.c). */
static bool is_suspended(const struct box *b)
{
	enum state_phase phase = state_phase(b->sandbox.dir);

	return phase == STATE_ON_DISK ||
	       (phase == STATE_STARTING && state_is_suspended(b->sandbox.dir));
}

static int watch_warden(struct box *b, struct err *e)
{
	int pidfd = -EBADF;
	pid_t pid;

	b->suspended = is_suspended(b);
	if (b->suspended)
		return 0;
	if (state_warden(b->sandbox.dir, &pidfd, &pid) < 0)
		return err_set(e, -ENOENT, "sandbox %s has ended", b->sandbox.id);
	b->warden.fd = pidfd;
	return loop_add_fd(b->api->config->loop, &b->warden, pidfd, EPOLLIN) < 0 ? err_oom(e) : 0;
}

/* All steps that can fail; box_free() is only for a box in the table. */
static int load(struct box *b, struct err *e)
{
	int r;

	b->sandbox.dir = openat(b->api->root.dir, b->sandbox.id,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->sandbox.dir < 0)
		return err_set(e, -ENOENT, "there is no sandbox %s", b->sandbox.id);
	if (!state_phase_lives(state_phase(b->sandbox.dir)) && !is_suspended(b))
		return err_set(e, -ENOENT, "sandbox %s does not run", b->sandbox.id);
	r = spec_read(b->sandbox.dir, &b->spec, e);
	if (r == 0)
		r = read_own(b, e);
	if (r == 0)
		r = watch_warden(b, e);
	if (r == 0)
		box_refresh(b);
	return r;
}

static struct box *box_new(struct api *a, const char *id, struct err *e)
{
	struct box *b;

	if (a->n_boxes == BOXES_MAX)
		return (void)err_set(e, -ENOSPC, "more than %d sandboxes", BOXES_MAX), NULL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return (void)err_oom(e), NULL;
	*b = (struct box){ .api = a, .sandbox = SANDBOX_INIT };
	(void)snprintf(b->sandbox.id, sizeof(b->sandbox.id), "%s", id);
	b->warden = (struct loop_fd){ .cb = on_warden, .arg = b, .fd = -EBADF };
	b->next = a->boxes[bucket(id)];
	a->boxes[bucket(id)] = b;
	a->n_boxes++;
	if (load(b, e) == 0)
		return b;
	box_free(b);
	return NULL;
}

static struct box *known(struct api *a, const char *id)
{
	struct box *b = a->boxes[bucket(id)];

	while (b && !str_eq(b->sandbox.id, id))
		b = b->next;
	return b;
}

struct box *box_find(struct api *a, const char *id)
{
	struct err e = ERR_INIT;
	struct box *b = spec_id_valid(id) ? known(a, id) : NULL;

	/* A resuming box stays suspended until it runs: later requests for it wait too. Then it is
	 * replaced at once, because the requests that use it would end with it. */
	if (b && b->suspended && !is_suspended(b)) {
		box_free(b); /* it runs again, or has ended */
		b = NULL;
	}
	if (b || !spec_id_valid(id))
		return b;
	b = box_new(a, id, &e);
	if (!b && e.num != -ENOENT)
		log_warning("sandbox %s: %s", id, e.msg);
	return b;
}

int box_each(struct api *a, int (*fn)(struct box *b, void *arg), void *arg)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = state_list(&a->root, &ids, &n, &e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		struct box *b = box_find(a, ids[i]);

		if (b)
			r = fn(b, arg);
	}
	return r;
}

struct token {
	const char *text;
	struct box *found;
};

static int match_token(struct box *b, void *arg)
{
	struct token *t = arg;

	/* Compares with every box, so that the time taken reveals nothing. */
	if (sodium_memcmp(b->token, t->text, BOX_TOKEN) == 0)
		t->found = b;
	return 0;
}

struct box *box_by_token(struct api *a, const char *token)
{
	struct token t = { .text = token };

	if (strlen(token) == BOX_TOKEN)
		(void)box_each(a, match_token, &t);
	return t.found;
}

/* ---- connection to the keeper ---- */

static void on_peer_ended(struct peer *p, void *arg)
{
	struct box *b = arg;

	/* This client was too slow, or the sandbox ends: then the pidfd reports it. */
	b->peer = peer_free(p);
}

/* HUTCH_LOG=debug: trace lines of keeper, warden and guest, while connected. */
static void pass_line(void *arg, const char *text, size_t n)
{
	const struct box *b = arg;
	struct trace_line line;

	/* The sandbox's id is ours; the keeper's word for it is not trusted. */
	if (trace_parse(text, n, &line) < 0 ||
	    (!str_eq(line.process, "keeper") && !str_eq(line.process, "warden") &&
	     !str_eq(line.process, "guest")))
		return;
	(void)snprintf(line.sandbox, sizeof(line.sandbox), "%s", b->sandbox.id);
	trace_pass(&line);
}

static void on_lines(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct box *b = arg;

	trace_feed(&b->lines, data, n, pass_line, b);
	peer_consumed(c, stream, n);
}

static void follow(struct box *b)
{
	static const struct call_ops ops = { .data = on_lines };
	const struct buf none = BUF_INIT(0);
	struct err ignored = ERR_INIT;
	struct call *call;

	b->lines.n = 0;
	(void)peer_call(b->peer, WIRE_OP_TRACE, &none, &ops, b, &call, &ignored);
}

int box_peer(struct box *b, struct peer **ret, struct err *e)
{
	int fd = -EBADF, r;

	if (!b->peer) {
		r = sandbox_connect(&b->sandbox, &fd, e);
		if (r == 0)
			r = peer_new(b->api->config->loop, fd, on_peer_ended, b, &b->peer, e);
		if (r < 0)
			return r;
		if (trace_on)
			follow(b);
	}
	*ret = b->peer;
	return 0;
}

static bool is_for(const char *owner, const struct request *r)
{
	return r->role == ROLE_ADMIN || (r->role == ROLE_USER && str_eq(owner, r->owner));
}

bool box_is_for(const struct box *b, const struct request *r)
{
	return is_for(b->owner, r) && (!b->build || r->role == ROLE_ADMIN);
}

void request_no_box(struct request *r)
{
	request_fail(r, 404, "sandbox \"%s\" doesn't exist or you don't have access to it",
		     r->args[0]);
}

struct box *request_box(struct request *r)
{
	struct box *b = box_find(r->api, r->args[0]);

	if (b && box_is_for(b, r))
		return b;
	request_no_box(r);
	return NULL;
}

/* Opens the directory of an ended sandbox, which has no box. */
static int open_kept(struct request *r)
{
	_cleanup_close_ int dir =
		spec_id_valid(r->args[0]) ? kept_open(&r->api->root, r->args[0]) : -ENOENT;
	_cleanup_spec_ struct spec spec = { 0 };
	char owner[SPEC_OWNER_MAX + 1];
	struct err ignored = ERR_INIT;
	bool build = true;

	if (dir < 0 || spec_read(dir, &spec, &ignored) < 0 ||
	    spec_owner(&spec, owner, &ignored) < 0 || !is_for(owner, r) ||
	    spec_is_build(&spec, &build, &ignored) < 0 || (build && r->role != ROLE_ADMIN))
		return -EBADF;
	return TAKE_FD(dir);
}

int request_dir(struct request *r)
{
	const struct box *b = box_find(r->api, r->args[0]);
	int dir = -EBADF;

	if (!b)
		dir = open_kept(r);
	else if (box_is_for(b, r))
		dir = RETRY_EINTR(openat(b->sandbox.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (dir < 0)
		request_no_box(r);
	return dir < 0 ? -EBADF : dir;
}
