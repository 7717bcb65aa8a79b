/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Network settings of the E2B API. They narrow the policy and never widen it: denyOut lists denied
 * addresses, and "0.0.0.0/0" there denies everything except allowOut.
 */
#include <string.h>

#include "api/route.h"
#include "e2b/e2b.h"
#include "names/addr.h"
#include "names/narrow.h"

enum {
	ENTRIES_MAX = 1000,
	ENTRY_MAX = 253,
};

static const char everything[] = "0.0.0.0/0";

static bool is_address(const char *text)
{
	struct err ignored = ERR_INIT;
	struct addr a;

	return addr_parse(text, strlen(text), &a, &ignored) == 0;
}

static bool is_name(const char *text)
{
	return !is_address(text) &&
	       text[strspn(text, "*.-0123456789abcdefghijklmnopqrstuvwxyz"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")] == '\0' &&
	       strchr(text, '.');
}

static int check_list(const json_t *network, const char *key, bool names, struct err *e)
{
	const json_t *list = json_object_get(network, key), *one;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > ENTRIES_MAX)
		return err_set(e, -EINVAL, "network.%s: expected a list of at most %d entries", key,
			       ENTRIES_MAX);
	json_array_foreach(list, i, one)
	{
		const char *text = json_string_value(one);

		if (!text || strlen(text) > ENTRY_MAX ||
		    !(is_address(text) || (names && is_name(text))))
			return err_set(e, -EINVAL, "network.%s: '%.80s' is not %s", key,
				       text ? text : "?",
				       names ? "an address, a network or a name"
					     : "an address or a network");
	}
	return 0;
}

static bool denies_everything(const json_t *network)
{
	const json_t *list = json_object_get(network, "denyOut"), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (str_eq(json_string_value(one), everything))
			return true;
	}
	return false;
}

static bool allows_names(const json_t *network)
{
	const json_t *list = json_object_get(network, "allowOut"), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (!is_address(json_string_value(one)))
			return true;
	}
	return false;
}

static const char *const refused[] = { "rules", "egressProxy", "maskRequestHost", "httpsPorts" };

static int check_public(const json_t *network, struct err *e)
{
	const json_t *value = json_object_get(network, "allowPublicTraffic");

	if (value && !json_is_null(value) && !json_is_boolean(value))
		return err_set(e, -EINVAL, "network.allowPublicTraffic: expected true or false");
	return 0;
}

int e2b_network(const json_t *network, json_t **ret, struct err *e)
{
	static const char *const kept[] = { "allowOut", "denyOut", "allowPublicTraffic" };
	_cleanup_json_ json_t *j = NULL;
	int r;

	*ret = NULL;
	if (!network || json_is_null(network))
		return 0;
	if (!json_is_object(network))
		return err_set(e, -EINVAL, "network: expected an object");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		const json_t *value = json_object_get(network, refused[i]);

		if (value && !json_is_null(value) &&
		    !(json_is_object(value) && json_object_size(value) == 0))
			return err_set(e, -ENOTSUP, "network.%s is not supported", refused[i]);
	}
	r = check_list(network, "allowOut", true, e);
	if (r == 0)
		r = check_list(network, "denyOut", false, e);
	if (r == 0)
		r = check_public(network, e);
	if (r < 0)
		return r;
	if (allows_names(network) && !denies_everything(network))
		return err_set(e, -EINVAL,
			       "network.allowOut has names: then denyOut must have \"%s\"",
			       everything);
	j = json_object();
	for (size_t i = 0; j && i < ARRAY_SIZE(kept); i++) {
		json_t *value = json_object_get(network, kept[i]);

		if (value && !json_is_null(value) && json_put(j, kept[i], json_incref(value)) < 0)
			return err_oom(e);
	}
	*ret = TAKE_PTR(j);
	return *ret ? 0 : err_oom(e);
}

/* ---- conversion to rules ---- */

/* "*.example.com" also covers example.com itself, because rules have no narrower form. */
static int push_rule(json_t *list, char sign, const char *entry)
{
	char text[ENTRY_MAX + 4];

	if (str_eq(entry, everything))
		return json_push(list, json_string("-*"));
	if (strchr(entry, ':'))
		(void)snprintf(text, sizeof(text), "%c[%s]", sign, entry);
	else
		(void)snprintf(text, sizeof(text), "%c%s", sign,
			       entry[0] == '*' ? entry + 1 : entry);
	return json_push(list, json_string(text));
}

/* Parses the rules as the keeper will, to report errors to the client. */
static int check_rules(const json_t *list, struct err *e)
{
	_cleanup_narrow_ struct narrow w = { 0 };
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (narrow_add(&w, json_string_value(one), json_string_length(one), e) < 0)
			return err_wrap(e, "network: '%.80s'", json_string_value(one) + 1);
	}
	return 0;
}

int e2b_narrow(const json_t *network, bool internet, json_t **ret, struct err *e)
{
	const json_t *allow = json_object_get(network, "allowOut"), *one;
	const json_t *deny = json_object_get(network, "denyOut");
	_cleanup_json_ json_t *list = json_array();
	int r = list ? 0 : -ENOMEM;
	size_t i;

	if (r == 0 && !internet)
		r = json_push(list, json_string("-*"));
	json_array_foreach(deny, i, one)
	{
		if (r == 0)
			r = push_rule(list, '-', json_string_value(one));
	}
	json_array_foreach(allow, i, one)
	{
		if (r == 0)
			r = push_rule(list, '+', json_string_value(one));
	}
	if (r < 0)
		return err_oom(e);
	r = check_rules(list, e);
	if (r == 0)
		*ret = TAKE_PTR(list);
	return r;
}

/* ---- change of a running sandbox ---- */

struct change {
	struct request *request;
	struct call *call;
	json_t *network;
	bool internet;
};

static void change_drop(struct request *r)
{
	struct change *c = r->data;

	if (c->call)
		peer_close(c->call);
	json_decref(c->network);
	free(c);
}

/* Ends requests and streams to ports that may not pass any more. */
static void cut_ports(struct box *b)
{
	struct request *r = b->requests;

	while (r) {
		struct request *next = r->next;

		if (r->port != API_ENVD_PORT && !request_may_pass(r, b))
			request_cut(r);
		r = next;
	}
}

/*
 * allowPublicTraffic: false protects the ports by a token, keeping an existing one; true opens
 * them; if absent, nothing changes. `token` is the resulting token, "" for open ports.
 */
static int take_public(const struct box *b, json_t *network, char token[static BOX_TOKEN + 1])
{
	const json_t *asked = json_object_get(network, "allowPublicTraffic");

	memcpy(token, b->traffic, BOX_TOKEN + 1);
	if (json_is_true(asked))
		token[0] = '\0';
	else if (json_is_false(asked) && !token[0])
		box_draw_token(token);
	if (!token[0])
		return 0;
	return json_put(network, "allowPublicTraffic", json_false());
}

/* The keeper applies the change already: now it is saved. */
static void changed(struct request *r, struct change *c)
{
	_cleanup_json_ json_t *network = c->network ? json_incref(c->network) : json_object();
	char token[BOX_TOKEN + 1];
	struct box *b = r->box;
	struct err e = ERR_INIT;
	int rc = network ? take_public(b, network, token) : -ENOMEM;

	rc |= json_put(b->own, "network", json_incref(network));
	rc |= json_put(b->own, "internet", json_boolean(c->internet));
	rc |= json_put(b->own, "traffic", token[0] ? json_string(token) : json_null());
	if (rc < 0 || box_save(b, &e) < 0) {
		char text[REQUEST_TEXT_MAX];

		request_fail(r, 500, "the network was changed, and could not be written down: %s",
			     request_reason(r, 500, &e, text));
		return;
	}
	json_decref(b->network);
	b->network = json_incref(json_object_get(b->own, "network"));
	b->internet = c->internet;
	memcpy(b->traffic, token, sizeof(token));
	cut_ports(b);
	request_empty(r, 204);
}

static void on_closed(struct call *call, enum wire_code code, const char *text, void *arg)
{
	struct change *c = arg;

	c->call = NULL;
	if (code == WIRE_DONE)
		changed(c->request, c);
	else if (code == WIRE_GONE)
		request_fail(c->request, 404, "the sandbox has ended");
	else
		request_fail(c->request, 400, "%s", text);
}

static const struct call_ops change_ops = { .closed = on_closed };

static int ask_keeper(struct change *c, struct box *b, struct err *e)
{
	_cleanup_json_ json_t *list = NULL;
	_cleanup_buf_ struct buf fields = BUF_INIT(1024 * 1024);
	struct peer *p = NULL;
	const json_t *one;
	size_t i;
	int r = e2b_narrow(c->network, c->internet, &list, e);

	if (r == 0)
		r = box_peer(b, &p, e);
	if (r < 0)
		return r;
	json_array_foreach(list, i, one)
	{
		fields_put_text(&fields, TAG_RULE, json_string_value(one));
	}
	fields_put_flag(&fields, TAG_REPLACE);
	return peer_call(p, WIRE_OP_EGRESS, &fields, &change_ops, c, &c->call, e);
}

static void have_network(struct request *r)
{
	struct change *c;
	struct err e = ERR_INIT;
	struct box *b = request_box(r);
	int rc;

	if (!b)
		return;
	c = calloc(1, sizeof(*c));
	if (!c) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*c = (struct change){ .request = r };
	r->data = c;
	r->drop = change_drop;
	request_join(r, b);
	c->internet = !json_is_false(json_object_get(r->body, "allow_internet_access"));
	rc = e2b_network(r->body, &c->network, &e);
	if (rc == 0)
		rc = ask_keeper(c, b, &e);
	if (rc < 0)
		request_fail_err(r, &e);
}

void e2b_set_network(struct request *r)
{
	request_json(r, false, have_network);
}
