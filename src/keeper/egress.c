/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Egress of the sandbox. The warden sends the capturing sockets with a note (src/egress/capture.c
 * reads them). The broker decides, resolves, dials and moves the bytes. Every verdict is recorded
 * (egress-record.c).
 *
 * Nothing is let out while the audit log cannot be written.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fault.h"
#include "keeper/connect.h"
#include "keeper/serve.h"

/* ---- rules ---- */

static int parse_rules(const struct spec_list *list, bool deny, struct ruleset_entry *v, size_t *n,
		       struct err *e)
{
	for (size_t i = 0; i < list->n; i++) {
		struct ruleset_entry *entry = &v[*n];

		*entry = (struct ruleset_entry){ .deny = deny, .id = (uint32_t)*n };
		if (rule_parse(list->v[i], strlen(list->v[i]), &entry->rule, e) < 0 ||
		    (!deny && entry->rule.port == 0))
			return err_set(e, -EINVAL, "'%.80s' is not a rule of the spec", list->v[i]);
		(*n)++;
	}
	return 0;
}

int egress_make_rules(const struct egress *g, struct ruleset **ret)
{
	_cleanup_free_ struct ruleset_entry *left = NULL;
	size_t n = 0;
	int r = narrow_apply(&g->narrow, g->entries, g->n_policy + g->n_live, &left, &n);

	return r < 0 ? r : ruleset_new(left, n, ret);
}

static int load_narrow(const struct spec_list *list, struct narrow *ret, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->n; i++)
		r = narrow_add(ret, list->v[i], strlen(list->v[i]), e);
	return r;
}

/* This set is for DNS queries; the broker owns another one. */
static int load_rules(struct egress *g, const struct spec *s, struct err *e)
{
	size_t n = s->egress.allow.n + s->egress.deny.n;

	g->entries = calloc(n + EGRESS_LIVE_MAX, sizeof(g->entries[0]));
	if (!g->entries)
		return err_oom(e);
	if (parse_rules(&s->egress.allow, false, g->entries, &g->n_policy, e) < 0 ||
	    parse_rules(&s->egress.deny, true, g->entries, &g->n_policy, e) < 0 ||
	    load_narrow(&s->egress.narrow, &g->narrow, e) < 0)
		return e->num;
	return egress_make_rules(g, &g->rules) < 0 ? err_oom(e) : 0;
}

/* ---- callbacks of the broker ---- */

/* For guests with their own kernel: the connection hears the report after it is recorded. */
static void on_asked_report(void *arg, const struct broker_event *ev)
{
	egress_on_report(arg, ev);
	connection_reported(ev);
}

static bool is_recorded(void *arg)
{
	const struct keeper *k = arg;

	return k->journal.error == 0;
}

/* ---- callbacks of the capture ---- */

static enum capture_may on_ask(const struct name *name, uint64_t number, const char **ret_reason,
			       void *arg)
{
	*ret_reason = "not allowed by the policy of this sandbox";
	return egress_may_resolve(arg, name) ? CAPTURE_MAY : CAPTURE_MAY_NOT;
}

static enum front_result result_of(enum broker_reason reason)
{
	switch (reason) {
	case BROKER_LOOKUP:
	case BROKER_ADDRESS:
		return FRONT_UNREACHABLE;
	case BROKER_DIAL:
	case BROKER_TAP:
		return FRONT_REFUSED;
	case BROKER_TIME:
		return FRONT_TIMEOUT;
	case BROKER_BUDGET:
	case BROKER_FAULT:
	case BROKER_UNRECORDED:
		return FRONT_BUSY;
	default:
		return FRONT_DENIED;
	}
}

/* The broker's cookies for captured streams: pointers to how the stream came. */
static enum capture_how cookies[] = { CAPTURE_DIRECT, CAPTURE_BY_CONNECT, CAPTURE_BY_SOCKS5 };

static void on_connect(int fd, const struct target *t, enum capture_how how, void *arg)
{
	struct keeper *k = arg;
	const struct broker_request req = {
		.fd = fd, .target = *t, .proxy = how != CAPTURE_DIRECT, .cookie = &cookies[how]
	};

	if (journal_works(k))
		broker_open(k->egress->broker, &req);
	else
		capture_refuse(fd, how, FRONT_BUSY, "the audit log cannot be written");
}

static void on_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason)
{
	enum capture_how how = *(const enum capture_how *)cookie;

	(void)arg;
	(void)capture_reply(fd, how, ok ? FRONT_OK : result_of(reason),
			    ok ? NULL : broker_reason_text(reason));
}

/* ---- start and end ---- */

static int new_broker(struct keeper *k, struct egress *g, struct err *e)
{
	static const struct broker_ops ops = { .report = egress_on_report,
					       .may_begin = is_recorded,
					       .reply = on_reply,
					       .is_tapped = tap_carries,
					       .is_name_tapped = tap_knows,
					       .hand_over = tap_hand_over };
	static const struct broker_ops asked = { .report = on_asked_report,
						 .may_begin = is_recorded,
						 .reply = connection_reply,
						 .is_tapped = tap_carries,
						 .is_name_tapped = tap_knows,
						 .hand_over = tap_hand_over };
	struct broker_conf conf = {
		.loop = k->loop,
		.ops = egress_is_asked_for(k->engine, k->spec) ? &asked : &ops,
		.arg = k,
		.has_tap = g->tap.hosts,
		.limits = { .bytes_out = k->spec->egress.bytes_out,
			    .bytes_in = k->spec->egress.bytes_in,
			    .streams = k->spec->egress.streams,
			    .streams_per_minute = k->spec->egress.streams_per_minute,
			    .names = k->spec->egress.names },
		.resolver = getenv("HUTCH_RESOLVER"),
	};
	struct ruleset *rules = NULL;
	const char *proxy = k->spec->egress.proxy;

	if (proxy && proxy[0] && target_parse(proxy, strlen(proxy), &conf.upstream, e) < 0)
		return err_wrap(e, "the proxy in spec.json");
	if (egress_make_rules(g, &rules) < 0)
		return err_oom(e);
	return broker_new(&conf, rules, &g->broker, e);
}

int egress_init(struct keeper *k, struct err *e)
{
	struct egress *g;

	if (k->spec->egress.allow.n == 0)
		return 0;
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_oom(e);
	k->egress = g;
	g->tally_timer = (struct loop_timer){ .cb = egress_on_tally, .arg = k };
	if (getrandom(g->key, sizeof(g->key), 0) != (ssize_t)sizeof(g->key))
		return err_set(e, -EIO, "no random numbers");
	if (load_rules(g, k->spec, e) < 0 || tap_init(k, e) < 0 || new_broker(k, g, e) < 0)
		return e->num;
	return FAULT_ERR("egress-broker", e);
}

bool egress_start(struct keeper *k, uint64_t which, const int *files, size_t n)
{
	static const struct capture_ops ops = { .ask = on_ask, .connect = on_connect };
	struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	size_t used = 0;

	if (!k->egress || egress_is_asked_for(k->engine, k->spec) || k->egress->capture ||
	    which >> CAPTURE_SOCKETS != 0 || (size_t)__builtin_popcountll(which) != n)
		return false;
	for (unsigned int i = 0; i < CAPTURE_SOCKETS; i++)
		if (which >> i & 1)
			s.fds[i] = files[used++];
	/* capture_new() takes the sockets even if it fails. */
	if (capture_new(k->loop, &s, (size_t)k->spec->egress.names, k->egress->key, &ops, k,
			&k->egress->capture) < 0 ||
	    FAULT("egress-taken") < 0)
		keeper_stop(k, KEEPER_FAILED);
	return true;
}

void egress_done(struct keeper *k)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct egress *g = k->egress;

	if (!g)
		return;
	g->capture = capture_free(g->capture);
	g->broker = broker_free(g->broker);
	connections_done(k);
	tap_done(k);
	journal_tally(k, &g->tally, &p);
	loop_del_timer(&g->tally_timer);
	g->rules = ruleset_free(g->rules);
	narrow_done(&g->narrow);
	free(g->entries);
	free(g);
	k->egress = NULL;
}
