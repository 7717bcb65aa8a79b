/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the handler of a request: first the sandbox, if any, then the client's role, then the row
 * of the tables. A request that no row allows is refused.
 *
 * A request goes to a sandbox (data plane) if the field E2b-Sandbox-Id names one, if its host is
 * PORT-ID.domain, if it has a sandbox's token, or if it is a signed URL. Others go to hutchd.
 */
#include "api/route.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "api/apart.h"
#include "api/api.h"
#include "api/box.h"
#include "api/signature.h"
#include "api/suspend.h"
#include "api/wake.h"
#include "base/clock.h"

enum {
	PORT_DIGITS = 5,
};

/* ---- rows ---- */

/* Matches one component of each. "{}" matches any component, and stores it decoded. */
static bool match_part(const char **path, const char **target, struct request *r, size_t *n_args)
{
	size_t a = strcspn(*path, "/"), b = strcspn(*target, "/");
	_cleanup_free_ char *text = NULL;

	if (a == 2 && (*path)[0] == '{') {
		if (*n_args == REQUEST_ARGS || http_decode(*target, b, false, &text) < 0 ||
		    !text[0] || strlen(text) > REQUEST_ARG_MAX)
			return false;
		(void)snprintf(r->args[(*n_args)++], sizeof(r->args[0]), "%s", text);
	} else if (a != b || strncmp(*path, *target, a) != 0) {
		return false;
	}
	*path += a;
	*target += b;
	return true;
}

static bool match_path(const char *path, const char *target, struct request *r)
{
	size_t n_args = 0;

	memset(r->args, 0, sizeof(r->args));
	target += strspn(target, "/") - (target[0] == '/');
	while (*path == '/' && *target == '/') {
		path++;
		target++;
		if (!match_part(&path, &target, r, &n_args))
			return false;
	}
	return !*path && !*target;
}

static const struct route *find_in(const struct route *table, struct request *r, bool *other)
{
	for (const struct route *row = table; row->method; row++) {
		if (!match_path(row->path, r->x->target, r))
			continue;
		if (str_eq(row->method, r->x->method))
			return row;
		*other = true;
	}
	return NULL;
}

/* Finds the row of a request; *ret_other: a row exists for another method. */
static const struct route *find_row(enum api_plane plane, struct request *r, bool *ret_other)
{
	const struct route *row = NULL;

	*ret_other = false;
	for (const struct api_part *const *part = r->api->config->parts; *part; part++) {
		const struct route *const *table = (*part)->routes[plane];

		for (; !row && table && *table; table++)
			row = find_in(*table, r, ret_other);
	}
	return row;
}

static void dispatch(struct request *r, enum api_plane plane)
{
	char id[REQUEST_ARG_MAX + 1];
	bool other = false;

	http_add_field(r->x, "X-Request-Id", r->id);
	memcpy(id, r->args[0], sizeof(id));
	r->route = find_row(plane, r, &other);
	if (r->box)
		memcpy(r->args[0], id, sizeof(id)); /* for request_gone() */
	if (!r->route && other)
		request_fail(r, 405, "%s is not for %s", r->x->path, r->x->method);
	else if (!r->route)
		request_fail(r, 404, "there is nothing at %s", r->x->path);
	else if (!(r->route->roles & r->role) && r->role == ROLE_NOBODY)
		request_fail(r, 401,
			     "no valid credential: make a key with 'hutch key create' and "
			     "send it as X-API-Key");
	else if (!(r->route->roles & r->role))
		request_fail(r, 403, "this key is not for %s", r->x->path);
	else if (r->route->apart == APART)
		request_apart(r, r->route->handle);
	else
		r->route->handle(r);
}

/* ---- role of the client ---- */

/* Returns the key of a request, or NULL. *ret_presented: it carries a credential of some kind. */
static const char *key_of(const struct exchange *x, bool *ret_presented)
{
	const char *key = http_field(x, "x-api-key");
	const char *bearer = http_field(x, "authorization");

	*ret_presented = key || bearer;
	if (!key && bearer && strncasecmp(bearer, "bearer ", 7) == 0)
		key = bearer + 7;
	return key;
}

/* A presented credential decides alone: a wrong key is refused even on the Unix socket. */
enum role request_role(struct request *r)
{
	static const enum role roles[KEY_ROLES] = {
		[KEY_ADMIN] = ROLE_ADMIN, [KEY_USER] = ROLE_USER, [KEY_METRICS] = ROLE_METRICS
	};
	bool presented = false;
	const char *key = key_of(r->x, &presented);
	struct key_info info;
	struct err e = ERR_INIT;

	if (!presented && r->x->local && (r->x->uid == geteuid() || r->x->uid == 0))
		return ROLE_ADMIN;
	if (!key || !r->api->config->keys)
		return ROLE_NOBODY;
	if (keys_check(r->api->config->keys, key, strlen(key), &info) < 0) {
		if (keys_trouble(r->api->config->keys, &e))
			log_error("no key is valid: %s", e.msg);
		return ROLE_NOBODY;
	}
	(void)snprintf(r->owner, sizeof(r->owner), "%s", info.name);
	if (info.role == KEY_USER)
		r->grant = info.grant;
	return roles[info.role];
}

/* ---- sandbox of the request ---- */

/* Splits "3000-id.domain": 1 with both parts; 0 if the host has another form. */
static int split_host(const struct api *a, const char *host, uint64_t *ret_port,
		      char ret_id[static REQUEST_ARG_MAX + 1])
{
	size_t digits = strspn(host, "0123456789"), n;
	const char *id = host + digits + 1;

	if (digits == 0 || digits > PORT_DIGITS || host[digits] != '-')
		return 0;
	n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");
	if (n == 0 || n > REQUEST_ARG_MAX || id[n] != '.' ||
	    str_to_u64(host, digits, UINT16_MAX, ret_port) < 0)
		return 0;
	if (a->config->domain && strcasecmp(id + n + 1, a->config->domain) != 0)
		return 0;
	(void)snprintf(ret_id, REQUEST_ARG_MAX + 1, "%.*s", (int)n, id);
	return 1;
}

struct signed_url {
	const struct exchange *x;
	const char *op;
	struct box *found;
};

static int match_signature(struct box *b, void *arg)
{
	struct signed_url *s = arg;

	if (signature_matches(s->x, b->token, s->op))
		s->found = b;
	return 0;
}

static struct box *by_signature(struct request *r)
{
	struct signed_url s = { r->x, str_eq(r->x->method, "GET") ? "read" : "write", NULL };

	(void)box_each(r->api, match_signature, &s);
	return s.found;
}

/* Returns the role from X-Access-Token, or else a signature. A wrong token decides alone. */
static enum role role_in(const struct request *r, const struct box *b)
{
	const char *token = http_field(r->x, "x-access-token");
	const char *op = str_eq(r->x->method, "GET") ? "read" : "write";

	if (token)
		return strlen(token) == BOX_TOKEN && sodium_memcmp(token, b->token, BOX_TOKEN) == 0
			       ? ROLE_TOKEN
			       : ROLE_NOBODY;
	if (str_eq(r->x->path, "/files") && signature_matches(r->x, b->token, op) &&
	    signature_expired(r->x) == 0)
		return ROLE_SIGNED;
	return ROLE_NOBODY;
}

bool request_may_pass(const struct request *r, const struct box *b)
{
	const char *token = http_field(r->x, "e2b-traffic-access-token");

	if (!b->traffic[0])
		return true;
	return token && strlen(token) == BOX_TOKEN &&
	       sodium_memcmp(token, b->traffic, BOX_TOKEN) == 0;
}

static void pass_on(struct request *r)
{
	const struct api_part *const *part = r->api->config->parts;

	if (!request_may_pass(r, r->box)) {
		request_fail(r, 403, "this port is not public: send E2B-Traffic-Access-Token");
		return;
	}
	while (*part && !(*part)->port)
		part++;
	if (*part)
		(*part)->port(r);
	else
		request_fail(r, 404, "no part of this server serves ports");
}

static void serve_data(struct request *r)
{
	if (r->port != API_ENVD_PORT) {
		pass_on(r);
		return;
	}
	r->role = role_in(r, r->box);
	dispatch(r, PLANE_SANDBOX);
}

static bool may_wake(const struct request *r, const struct box *b)
{
	return r->port == API_ENVD_PORT ? role_in(r, b) != ROLE_NOBODY : request_may_pass(r, b);
}

static void resumed(struct request *r);

static void data_plane(struct request *r, struct box *b)
{
	if (b)
		box_refresh(b);
	/* Another request has resumed it, which this one may not: wait for that. */
	if (b && !b->auto_resume && box_is_resuming(b) && may_wake(r, b)) {
		(void)snprintf(r->args[0], sizeof(r->args[0]), "%s", b->sandbox.id);
		(void)box_await(r, b, resumed);
		return;
	}
	if (!b || (b->state == BOX_PAUSED && !b->auto_resume)) {
		request_gone(r);
		return;
	}
	(void)snprintf(r->args[0], sizeof(r->args[0]), "%s", b->sandbox.id);
	if (b->state == BOX_PAUSED && !may_wake(r, b)) {
		request_fail(r, 401, "the sandbox is paused, and resuming it needs its token");
		return;
	}
	if (b->state == BOX_PAUSED) {
		box_wake(r, b, serve_data);
		return;
	}
	request_join(r, b);
	serve_data(r);
}

static void resumed(struct request *r)
{
	data_plane(r, box_find(r->api, r->args[0]));
}

/* Returns true if the request was for a sandbox. */
static bool route_data(struct request *r)
{
	const char *id = http_field(r->x, "e2b-sandbox-id");
	const char *port = http_field(r->x, "e2b-sandbox-port");
	const char *token = http_field(r->x, "x-access-token");

	r->port = API_ENVD_PORT;
	if (id) {
		(void)snprintf(r->args[0], sizeof(r->args[0]), "%s", id);
		if (port &&
		    (str_to_u64(port, strlen(port), UINT16_MAX, &r->port) < 0 || r->port == 0))
			request_fail(r, 400, "E2b-Sandbox-Port is not a port");
		else
			data_plane(r, box_find(r->api, id));
	} else if (split_host(r->api, r->x->host, &r->port, r->args[0]) == 1) {
		data_plane(r, box_find(r->api, r->args[0]));
	} else if (token) {
		data_plane(r, box_by_token(r->api, token));
	} else if (str_eq(r->x->path, "/files")) {
		struct box *b = by_signature(r);

		if (b)
			data_plane(r, b);
		else
			request_fail(r, 401, "no valid signature");
	} else {
		return false;
	}
	return true;
}

/* ---- in and out ---- */

/*
 * A web page can make a browser send requests here, by a name that resolves to us (DNS rebinding)
 * or directly to our address. The API is not for browsers: requests that come from a page are
 * refused, and so are host names that are not configured as ours.
 */
static bool is_ours(const struct api *a, const char *host)
{
	size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	const char *domain = a->config->domain;

	if (host[0] == '[' || strspn(host, "0123456789.") == n)
		return true;
	if (n == 9 && strncasecmp(host, "localhost", n) == 0)
		return true;
	if (!domain)
		return false;
	return strcasecmp(host, domain) == 0 ||
	       (strncasecmp(host, "api.", 4) == 0 && strcasecmp(host + 4, domain) == 0);
}

static void handle(struct request *r)
{
	struct exchange *x = r->x;

	if (route_data(r))
		return;
	if (!x->local && !is_ours(r->api, x->host)) {
		request_fail(r, 421,
			     "this is not %s: use an address, localhost, or the name given "
			     "with --domain",
			     x->host);
		return;
	}
	if (http_field(x, "origin")) {
		request_fail(r, 403, "requests from web pages are rejected");
		return;
	}
	r->role = request_role(r);
	dispatch(r, PLANE_CONTROL);
}

void api_handle(struct exchange *x, void *arg)
{
	struct api *a = arg;
	struct request *r = calloc(1, sizeof(*r));

	if (!r) {
		http_cut(x);
		return;
	}
	a->counts.requests++;
	*r = (struct request){ .api = a, .x = x, .role = ROLE_NOBODY };
	x->cookie = r;
	trace_new_request(r->id);
	r->since = clock_mono();
	request_enter(r);
	handle(r);
	request_leave();
}

void api_gone(struct exchange *x, void *arg)
{
	if (x->cookie)
		request_free(x->cookie);
}

static const struct {
	enum role role;
	const char *name;
} role_names[] = {
	{ ROLE_NOBODY, "nobody" }, { ROLE_METRICS, "metrics" }, { ROLE_USER, "user" },
	{ ROLE_ADMIN, "admin" },   { ROLE_TOKEN, "token" },	{ ROLE_SIGNED, "signed" },
};

static void print_table(FILE *f, const char *plane, const struct route *row)
{
	for (; row->method; row++) {
		(void)fprintf(f, "%s\t%s\t%s\t", plane, row->method, row->path);
		for (size_t i = 0, n = 0; i < ARRAY_SIZE(role_names); i++)
			if (row->roles & role_names[i].role)
				(void)fprintf(f, "%s%s", n++ ? "," : "", role_names[i].name);
		(void)fputc('\n', f);
	}
}

int api_print_routes(const struct api_part *const *parts, FILE *f)
{
	static const char *const names[PLANES] = { "control", "sandbox" };

	for (size_t plane = 0; plane < PLANES; plane++)
		for (const struct api_part *const *part = parts; *part; part++) {
			const struct route *const *table = (*part)->routes[plane];

			for (; table && *table; table++)
				print_table(f, names[plane], *table);
		}
	return ferror(f) ? -EIO : 0;
}
