/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes of a session, found by their directories. All of this blocks and runs in a child
 * process. A session sees only its own sandboxes, even for an administrator: a model that malicious
 * text has taken over must not reach other sandboxes.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "builtin/default-store.h"
#include "client/transfer.h"
#include "mcp/mcp-inner.h"
#include "state/life.h"
#include "template/template.h"

enum {
	TOKEN_BYTES = 20, /* as hutchd draws them: BOX_TOKEN of api/api-inner.h */
	RANDOM_MAX = 32,
};

static const char key_session[] = "mcp-session", key_own[] = "mcp-own";

static void draw(char *out, size_t bytes)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char random[RANDOM_MAX] = { 0 };

	assert(bytes <= sizeof(random));
	if (RETRY_EINTR(getrandom(random, bytes, 0)) != (ssize_t)bytes)
		abort(); /* getrandom(2) never fails for up to 256 bytes */
	for (size_t i = 0; i < bytes; i++) {
		out[2 * i] = digits[random[i] >> 4];
		out[2 * i + 1] = digits[random[i] & 15];
	}
	out[2 * bytes] = '\0';
}

void session_draw_id(char out[static MCP_SESSION + 1])
{
	draw(out, MCP_SESSION / 2);
}

bool mcp_session_of(const json_t *metadata, char ret_id[static MCP_SESSION + 1], bool *ret_own)
{
	const char *id = json_string_value(json_object_get(metadata, key_session));

	if (!id || strlen(id) != MCP_SESSION || strspn(id, "0123456789abcdef") != MCP_SESSION)
		return false;
	memcpy(ret_id, id, MCP_SESSION + 1);
	*ret_own = json_object_get(metadata, key_own) != NULL;
	return true;
}

/* ---- start ---- */

/* Same format as hutchd's: the API shows these sandboxes to the same key. */
static char *api_text(const struct session_ref *s, const char *template, bool own)
{
	char token[2 * TOKEN_BYTES + 1];
	_cleanup_json_ json_t *j = NULL, *metadata = NULL;

	draw(token, TOKEN_BYTES);
	metadata = JSON_OBJECT({ key_session, json_string(s->id) });
	if (metadata && own && json_put(metadata, key_own, json_string("yes")) < 0)
		return NULL;
	j = metadata ? JSON_OBJECT({ "token", json_string(token) },
				   { "owner", json_string(s->owner) },
				   { "metadata", json_incref(metadata) })
		     : NULL;
	if (!j || (template && json_put(j, "template", json_string(template)) < 0))
		return NULL;
	return json_write_line(j);
}

static int plan(const struct session_ref *s, const char *template, const char *api,
		struct spec *ret, struct err *e)
{
	_cleanup_default_store_ struct default_store store = { 0 };
	_cleanup_diags_ struct diags d = { 0 };
	char image[IMAGE_NAME_MAX + 1];
	struct sandbox_options o = { .agent = s->agent, .level = s->level, .api = api };
	int r = default_store_open(&store, NULL, 0, e);

	if (r == 0 && template) {
		r = template_find_image(s->owner, template, image, e);
		o.image = image;
	}
	if (r == 0) {
		r = sandbox_plan(&store.store, &o, &d, ret, e);
		if (r < 0 && d.errors > 0) {
			(void)diags_first(&d, r, e);
			return job_conceal_policy(s->all, s->agent ? s->agent : "default", e);
		}
	}
	return r < 0 && r != -ENOENT && r != -EINVAL && r != -ENOMEM
		       ? job_conceal(s->all, e, "the sandbox cannot be planned")
		       : r;
}

int session_start(const struct session_ref *s, const struct state_root *root, const char *template,
		  uint64_t deadline, bool own, char ret_id[static SPEC_ID + 1], struct err *e)
{
	const char *image = template ? template : s->image;
	_cleanup_free_ char *api = api_text(s, image, own);
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	int r = api ? plan(s, image, api, &spec, e) : err_oom(e);

	if (r < 0)
		return r;
	spec.deadline = spec.limits.ttl > 0 ? MIN(deadline, spec.limits.ttl) : deadline;
	spec.on_timeout = ON_TIMEOUT_END;
	spec.quota = s->all || !quota_limits(&s->quota) ? NULL : &s->quota;
	r = sandbox_start(root, &spec, &b, NULL, e);
	if (r == -EUSERS)
		return r;
	if (r < 0)
		return job_conceal(s->all, e, "the sandbox cannot be started");
	memcpy(ret_id, b.id, sizeof(b.id));
	return 0;
}

/* ---- existing sandboxes ---- */

static bool is_ours(const struct session_ref *s, const struct spec *spec)
{
	_cleanup_json_ json_t *j = NULL;
	struct err ignored = ERR_INIT;
	char id[MCP_SESSION + 1];
	const char *owner;
	bool own;

	if (!spec->api[0] || json_read(spec->api, strlen(spec->api), &j, &ignored) < 0)
		return false;
	owner = json_string_value(json_object_get(j, "owner"));
	return mcp_session_of(json_object_get(j, "metadata"), id, &own) && str_eq(id, s->id) &&
	       owner && str_eq(owner, s->owner);
}

static bool lives(int dir)
{
	enum state_phase phase = state_phase(dir);

	return state_phase_serves(phase) || phase == STATE_STARTING;
}

int session_open(const struct session_ref *s, const struct state_root *root, const char *id,
		 struct sandbox *ret, struct spec *ret_spec, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	struct err own = ERR_INIT;

	if (strlen(id) != SPEC_ID || sandbox_find(root, id, &b, &own) < 0 || !lives(b.dir) ||
	    spec_read(b.dir, &spec, &own) < 0 || !is_ours(s, &spec))
		return err_set(e, -ENOENT, "there is no sandbox '%.16s' in this session", id);
	*ret_spec = spec;
	spec = (struct spec){ 0 };
	*ret = b;
	b.dir = -EBADF;
	return 0;
}

int session_each(const struct session_ref *s, const struct state_root *root,
		 int (*fn)(void *arg, const struct sandbox *b, const struct spec *spec,
			   struct err *e),
		 void *arg, struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_list(root, &ids, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
		_cleanup_spec_ struct spec spec = { 0 };
		struct err ignored = ERR_INIT;

		if (session_open(s, root, ids[i], &b, &spec, &ignored) == 0)
			r = fn(arg, &b, &spec, e);
	}
	return r;
}

bool session_alive(const char *id)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err ignored = ERR_INIT;

	return state_root_open(&root, &ignored) == 0 &&
	       sandbox_find(&root, id, &b, &ignored) == 0 && lives(b.dir);
}

/* ---- deadlines and the end ---- */

static void set_deadline(const struct sandbox *b, uint64_t ms)
{
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	const struct transfer_life life = { .timeout = ms };
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;
	uint64_t ignored;

	if (sandbox_connect(b, &fd, &e) == 0) {
		t.fd = fd;
		(void)transfer_life(&t, &life, &ignored, &e);
	}
	if (e.num < 0)
		log_warning("sandbox %s keeps its deadline: %s", b->id, e.msg);
}

/* Limits a new deadline to the ttl of the policy, less a second for delays; 0 if nothing is left.
 */
static uint64_t within_ttl(const struct spec *spec, uint64_t now, uint64_t ms)
{
	const uint64_t ttl = spec->limits.ttl, end = spec->created / NSEC_PER_MSEC + ttl;

	if (ttl == 0)
		return ms;
	return end > now + 1000 ? MIN(ms, end - now - 1000) : 0;
}

void session_use(const struct sandbox *b, const struct spec *spec, uint64_t busy)
{
	const uint64_t now = clock_wall() / NSEC_PER_MSEC;
	const uint64_t ms = within_ttl(spec, now, MAX(spec->deadline, busy));
	struct err ignored = ERR_INIT;
	struct life is = { 0 };

	if (life_read(b->dir, &is, &ignored) == 0 && is.deadline > 0 && is.deadline < now + ms)
		set_deadline(b, ms);
}

void session_rest(const struct sandbox *b, const struct spec *spec)
{
	const uint64_t ms = within_ttl(spec, clock_wall() / NSEC_PER_MSEC, spec->deadline);

	if (ms > 0)
		set_deadline(b, ms);
}

struct ending {
	const struct state_root *root;
	const char *by;
	struct err first;
};

const char *session_killer(const struct session_ref *s, char out[static END_BY_MAX + 1])
{
	(void)snprintf(out, END_BY_MAX + 1, "an MCP session%s%s", s->owner[0] ? " of key " : "",
		       s->owner);
	return out;
}

static int end_one(void *arg, const struct sandbox *b, const struct spec *spec, struct err *e)
{
	struct ending *x = arg;
	struct err owed = ERR_INIT, own = ERR_INIT;

	if (sandbox_kill(x->root, b, x->by, &owed, &own) < 0 && x->first.num == 0)
		x->first = own;
	return 0;
}

int session_end_all(const struct session_ref *s, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	char by[END_BY_MAX + 1];
	struct ending x = { .root = &root, .by = session_killer(s, by) };
	int r = state_root_open(&root, e);

	if (r == 0)
		r = session_each(s, &root, end_one, &x, e);
	if (r == 0 && x.first.num < 0)
		r = (*e = x.first).num;
	return r;
}
