/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch egress suggest: rules that would allow denied connections of a sandbox. While the sandbox
 * exists, its rules decide, as in 'hutch egress explain'; afterwards the log.
 */
#include <string.h>

#include "base/str.h"
#include "cli/egress-rules.h"
#include "cli/view.h"

enum {
	PORT_DEFAULT = 443,
	WANTED_MAX = 1000, /* names; a longer list is useless */
};

struct wanted {
	char id[AUDIT_ID_MAX + 1];
	uint64_t time, count;
	struct target t; /* port 0: only a DNS query */
	enum why why;	 /* from the last record; WHY_ALLOWED: only sums, without a reason */
	char detail[64];
};

struct denials {
	struct wanted *v;
	size_t n;
};

/* ---- denied connections ---- */

/* A single denial has a reason, a sum has none. */
static void merge(struct wanted *into, const struct wanted *w)
{
	if (w->t.port > 0)
		into->t.port = w->t.port;
	into->count += w->count;
	into->time = w->time;
	if (w->why == WHY_ALLOWED)
		return;
	into->why = w->why;
	memcpy(into->detail, w->detail, sizeof(into->detail));
}

static int want(struct denials *d, const struct egress_event *ev, const char *host, uint64_t port,
		uint64_t count)
{
	struct wanted w = { .time = ev->time, .count = count };
	struct wanted *v;

	if (egress_host(host, &w.t) < 0)
		return 0;
	(void)snprintf(w.id, sizeof(w.id), "%s", ev->id);
	w.t.port = (uint16_t)port;
	w.why = why_parse(egress_text(ev->o, "reason"));
	if (w.why == WHY_ADDRESS)
		(void)snprintf(w.detail, sizeof(w.detail), "%s", egress_text(ev->o, "detail"));
	for (size_t i = 0; i < d->n; i++)
		if (str_eq(d->v[i].id, w.id) && egress_same_host(&d->v[i].t, &w.t) &&
		    (d->v[i].t.port == port || port == 0 || d->v[i].t.port == 0)) {
			merge(&d->v[i], &w);
			return 0;
		}
	if (d->n == WANTED_MAX)
		return 0;
	v = reallocarray(d->v, d->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	d->v = v;
	v[d->n++] = w;
	return 0;
}

static int want_sum(struct denials *d, const struct egress_event *ev)
{
	json_t *key;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(ev->o, "keys"), i, key)
	{
		const char *text = egress_text(key, "text"), *colon = strrchr(text, ':');
		_cleanup_free_ char *host = colon ? strndup(text, (size_t)(colon - text)) : NULL;
		uint64_t port = 0;

		if (r == 0 && host && !egress_is_request(key) &&
		    str_to_u64(colon + 1, strlen(colon + 1), UINT16_MAX, &port) == 0)
			r = want(d, ev, host, port, egress_number(key, "count"));
	}
	return r;
}

/* Ignores reasons other than rules, such as a spent budget. */
static int on_denial(const struct egress_event *ev, void *arg)
{
	uint64_t port = egress_number(ev->o, "port");

	if (ev->kind == AUDIT_EGRESS_SUM)
		return want_sum(arg, ev);
	if (ev->kind != AUDIT_EGRESS || port > UINT16_MAX ||
	    !str_eq(egress_text(ev->o, "verdict"), "deny") ||
	    why_parse(egress_text(ev->o, "reason")) == WHY_ALLOWED)
		return 0;
	return want(arg, ev, egress_text(ev->o, "host"), port, 1);
}

/* Keeps only the sandbox with the latest denial. */
static void keep_last(struct denials *d)
{
	char id[AUDIT_ID_MAX + 1] = "";
	uint64_t last = 0;
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].time >= last) {
			last = d->v[i].time;
			memcpy(id, d->v[i].id, sizeof(id));
		}
	for (size_t i = 0; i < d->n; i++)
		if (str_eq(d->v[i].id, id))
			d->v[n++] = d->v[i];
	d->n = n;
}

/* ---- rules to allow them ---- */

struct adviser {
	struct default_store store;
	struct policy *floor;	   /* the common part of all policies */
	struct egress_rules rules; /* the sandbox's, if `there` */
	bool there;
};

/* Finds why it is denied: like explain while the sandbox exists, else from the log. */
static int ask_why(struct adviser *a, const struct wanted *w, const struct target *t,
		   struct egress_why *ret, struct err *e)
{
	if (a->there)
		return egress_explain(&a->rules, &a->store.store, t, ret, e);
	*ret = (struct egress_why){ .why = w->why, .detail = w->detail };
	return 0;
}

static void print_presets(const struct explanation *x)
{
	for (size_t i = 0; i < x->n_presets; i++)
		(void)printf("%s%s", i == 0 ? "; or preset " : ", ", x->presets[i]);
}

/* Returns whether a rule in the policy would change this. */
static bool helps(const struct egress_why *w, const struct verdict *floor)
{
	return !floor->deny &&
	       (w->why == WHY_POLICY || w->why == WHY_ALLOWED || w->why == WHY_NO_NETWORK) &&
	       !(w->x.verdict.deny && w->why == WHY_POLICY);
}

static void print_why(const struct adviser *a, const struct egress_why *w, const struct wanted *wd,
		      const struct verdict *floor)
{
	if (floor->deny) {
		(void)fputs("; a deny rule of every policy, which no rule overcomes", stdout);
	} else if (!helps(w, floor)) {
		(void)printf("; %s%s", why_text(w->why), w->detail[0] ? ": " : "");
		cli_puts(stdout, w->detail);
		(void)fputs(w->why == WHY_POLICY ? ", by a deny rule of its own" : "", stdout);
	} else if (a->there && w->why == WHY_ALLOWED) {
		(void)fputs("; now allowed in this sandbox", stdout);
	} else if (wd->t.port == 0) {
		(void)fputs("; the port is unknown, 443 is a guess", stdout);
	}
}

static int suggest_one(struct adviser *a, const struct wanted *w, struct err *e)
{
	struct target t = w->t;
	char host[ADDR_TEXT_MAX];
	struct explanation x;
	struct egress_why why;

	if (t.port == 0)
		t.port = PORT_DEFAULT;
	if (policy_explain_rules(a->floor->egress.rules, &a->store.store, &t, &x, e) < 0 ||
	    ask_why(a, w, &t, &why, e) < 0)
		return e->num;
	(void)printf("    %s- \"%s:%u%s\"  # denied %llu time%s",
		     helps(&why, &x.verdict) ? "" : "# ",
		     t.is_addr ? addr_format(&t.addr, host) : t.name.text, t.port,
		     egress_wants_private(&why, &t) ? "/private" : "", (unsigned long long)w->count,
		     w->count == 1 ? "" : "s");
	print_why(a, &why, w, &x.verdict);
	if (helps(&why, &x.verdict))
		print_presets(&x);
	(void)putchar('\n');
	return 0;
}

static int suggest_all(struct adviser *a, const struct denials *d, struct err *e)
{
	static const char text[] = "agent: {name: x, type: x}\n";
	_cleanup_diags_ struct diags diags = { 0 };
	int r = policy_compile_text(&a->store.store, "(floor)", text, strlen(text), &diags,
				    &a->floor, e);

	if (r < 0)
		return r;
	r = egress_rules_open(d->v[0].id, &a->rules, e);
	a->there = r == 0;
	if (r < 0 && r != -ENOENT)
		return r;
	(void)printf("# denied connections of sandbox %s\negress:\n  domains:\n", d->v[0].id);
	r = 0;
	for (size_t i = 0; r == 0 && i < d->n; i++)
		r = suggest_one(a, &d->v[i], e);
	return r;
}

static int suggest(const struct invocation *inv, const struct denials *d, struct err *e)
{
	struct adviser a = { .rules = EGRESS_RULES_INIT };
	int r = cli_store_open(&a.store, inv, e);

	if (r == 0)
		r = suggest_all(&a, d, e);
	egress_rules_done(&a.rules);
	(void)policy_free(a.floor);
	default_store_close(&a.store);
	return r;
}

static int run_egress_suggest(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct denials d = { 0 };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = inv->n_args > 0 ? inv->args[0] : "", .event = on_denial, .arg = &d
	};
	char id[AUDIT_ID_MAX + 1];
	struct err e = ERR_INIT;
	int r = audit_open(&l, &e);

	if (r == 0)
		r = egress_read(&reader, &l, &e);
	keep_last(&d);
	if (r == 0 && d.n > 0)
		r = suggest(inv, &d, &e);
	else if (r == 0 && (r = egress_no_network(&l, reader.sandbox, id, &e)) > 0)
		(void)printf("# %s: %s; start another with a rule in its policy\n", id,
			     why_text(WHY_NO_NETWORK));
	else if (r == 0)
		(void)fputs("# nothing was denied\n", stdout);
	free(d.v);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

/* clang-format off */
const struct command cmd_egress_suggest = {
	.name = "suggest", .args = "[ID]", .max_args = 1,
	.summary = "print rules that would allow the denied connections of a sandbox",
	.help = "Prints lines for an agent file, with the presets that contain them. Without ID, takes the sandbox with the\n"
		"latest denial. Review the rules before you use them: the code in the sandbox chose these targets.",
	.run = run_egress_suggest,
};
/* clang-format on */
