/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper/tap.h"

#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/json-util.h"
#include "base/log.h"
#include "keeper/serve.h"

enum {
	TURN_MAX = 64,	/* messages before other events are handled */
	ANY_PORT = 443, /* rules need one; ruleset_knows() ignores it */
};

/* ---- which streams ---- */

int tap_init(struct keeper *k, struct err *e)
{
	const struct spec_list *hosts = &k->spec->tap_hosts;
	_cleanup_free_ struct ruleset_entry *v = NULL;
	struct tap *t = &k->egress->tap;

	t->src.fd = -EBADF;
	if (hosts->n == 0)
		return 0;
	v = calloc(hosts->n, sizeof(*v));
	if (!v)
		return err_oom(e);
	for (size_t i = 0; i < hosts->n; i++) {
		v[i].id = (uint32_t)i;
		if (rule_parse(hosts->v[i], strlen(hosts->v[i]), &v[i].rule, e) < 0)
			return e->num;
		v[i].rule.port = ANY_PORT;
	}
	return ruleset_new(v, hosts->n, &t->hosts) < 0 ? err_oom(e) : 0;
}

void tap_done(struct keeper *k)
{
	struct tap *t = &k->egress->tap;

	if (t->src.fd >= 0) {
		loop_del_fd(&t->src);
		t->src.fd = fd_close(t->src.fd);
	}
	t->hosts = ruleset_free(t->hosts);
}

bool tap_knows(void *arg, const struct name *name)
{
	const struct keeper *k = arg;

	return k->egress->tap.hosts && ruleset_knows(k->egress->tap.hosts, name);
}

/*
 * Streams with the protocol "tcp" stay end to end, such as SSH, unless the port is one for TLS or
 * HTTP: a rule added later, or a parent's in a fork, must not lead around hutch-tap. On other
 * ports, the broker refuses TLS and HTTP that ask for such a host (tap_knows).
 */
bool tap_carries(void *arg, const struct target *t, enum rule_proto proto)
{
	const struct rule port = { .port = t->port };

	return !t->is_addr && tap_knows(arg, &t->name) &&
	       (proto != RULE_PROTO_TCP || rule_proto(&port) != RULE_PROTO_ANY);
}

/* ---- records ---- */

static bool is_allowed(const struct tap_request *r)
{
	return r->result == TAP_DONE || r->result == TAP_CLIENT_CLOSED ||
	       r->result == TAP_SERVER_CLOSED || r->result == TAP_BAD_RESPONSE;
}

static const char *verdict(const struct tap_request *r)
{
	return broker_what_name(is_allowed(r) ? BROKER_ALLOW : BROKER_DENY);
}

/* False: the request was counted and will be recorded in a sum. */
static bool is_single(struct keeper *k, const struct target *t, const struct tap_request *r)
{
	char key[NAME_TEXT_MAX + 64];
	struct egress *g = k->egress;
	const uint64_t now = clock_mono();

	if (now / NSEC_PER_SEC != g->tap.second) {
		g->tap.second = now / NSEC_PER_SEC;
		g->tap.recorded = 0;
	}
	/* Usage is never summed up: the bill is made of these records. */
	if (r->llm.is_call && (r->llm.input > 0 || r->llm.output > 0))
		return true;
	if (!journal_is_on(k) || g->tap.recorded < TAP_RECORDS_MAX) {
		g->tap.recorded++;
		return true;
	}
	(void)snprintf(key, sizeof(key), "%s %s:%u", verdict(r), t->name.text, t->port);
	if (audit_tally_add(&g->tally, AUDIT_HTTP, key, now))
		return true;
	if (g->tally_timer.slot == 0)
		(void)loop_set_timer(k->loop, &g->tally_timer, audit_tally_due(&g->tally));
	return false;
}

static void put_request(const struct keeper *k, struct audit_payload *p, const struct target *t,
			const struct tap_request *r)
{
	const struct spec_list *secrets = &k->spec->tap_secrets;

	audit_put_number(p, "stream", r->stream);
	audit_put_text(p, "verdict", verdict(r));
	audit_put_text(p, "host", t->name.text);
	audit_put_number(p, "port", t->port);
	audit_put_text(p, "method", r->method);
	audit_put_text(p, "path", r->path);
	if (r->status != 0)
		audit_put_number(p, "status", r->status);
	if (r->secret >= 0 && (size_t)r->secret < secrets->n)
		audit_put_text(p, "secret", secrets->v[r->secret]);
	if (r->reflected)
		audit_put_text(p, "masked", "the response contained the secret");
	if (r->upgraded)
		audit_put_text(p, "upgraded", "websocket");
	if (r->result != TAP_DONE)
		audit_put_text(p, "reason", tap_result_text((enum tap_result)r->result));
	if (r->text[0])
		audit_put_text(p, "detail", r->text);
	audit_put_number(p, "bytes_out", r->bytes_out);
	audit_put_number(p, "bytes_in", r->bytes_in);
	audit_put_number(p, "ms", r->ns / NSEC_PER_MSEC);
}

/* The name of the API key that created the sandbox. The spec is the host's own. */
static void put_key(const struct keeper *k, struct audit_payload *p)
{
	_cleanup_json_ json_t *api = NULL;
	struct err ignored = ERR_INIT;
	const char *key;

	if (!k->spec->api[0] || json_read(k->spec->api, strlen(k->spec->api), &api, &ignored) < 0)
		return;
	key = json_string_value(json_object_get(api, "owner"));
	if (key && key[0])
		audit_put_text(p, "key", key);
}

static void put_call(const struct keeper *k, struct audit_payload *p, const struct tap_call *c)
{
	audit_put_text(p, "agent", k->spec->agent);
	put_key(k, p);
	audit_put_text(p, "provider", c->provider);
	audit_put_text(p, "model", c->model);
	audit_put_number(p, "llm_rule", c->rule);
	audit_put_number(p, "tokens_in", c->input);
	audit_put_number(p, "tokens_cached", c->cached);
	audit_put_number(p, "tokens_cache_write", c->cache_write);
	audit_put_number(p, "tokens_out", c->output);
	if (c->has_cost)
		audit_put_number(p, "microdollars", c->cost);
	if (c->is_guess)
		audit_put_text(p, "usage", "estimated: the response does not report it");
}

/* For `hutch secret ls`; the warden writes it down. */
static void note_use(struct keeper *k, const struct tap_request *r)
{
	const uint64_t now = clock_mono();
	uint64_t *last;

	if (r->secret < 0 || (size_t)r->secret >= k->spec->tap_secrets.n)
		return;
	last = &k->egress->tap.used[r->secret];
	if (*last != 0 && now - *last < TAP_USED_S * NSEC_PER_SEC)
		return;
	*last = now;
	(void)note_send(k->warden.fd, NOTE_SECRET_USED, (uint64_t)r->secret, NULL, 0);
}

static void record(struct keeper *k, const struct tap_request *r)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	const struct target *t = broker_tapped(k->egress->broker, r->stream);

	if (!t)
		return; /* the broker has cut the stream, and recorded that */
	TRACE(TRACE_VERDICT, "stream %llu, request to %s:%u: %s", (unsigned long long)r->stream,
	      t->name.text, t->port, verdict(r));
	note_use(k, r);
	if (!is_single(k, t, r))
		return;
	put_request(k, &p, t, r);
	if (r->llm.is_call)
		put_call(k, &p, &r->llm);
	journal_outcome(k, r->llm.is_call ? AUDIT_LLM : AUDIT_HTTP, &p);
}

/* ---- messages ---- */

static void lose(struct keeper *k, const char *why)
{
	struct tap *t = &k->egress->tap;

	loop_del_fd(&t->src);
	t->src.fd = fd_close(t->src.fd);
	log_error("%s", why);
	broker_tap_lost(k->egress->broker, why);
}

static void end_stream(struct keeper *k, const struct tap_end *end)
{
	const bool good = end->result == TAP_DONE;
	char detail[TAP_TEXT_MAX + 128];

	(void)snprintf(detail, sizeof(detail), "%s%s%s",
		       tap_result_text((enum tap_result)end->result), end->text[0] ? ": " : "",
		       end->text);
	broker_tap_ended(k->egress->broker, end->stream, good ? BROKER_OK : BROKER_TAP,
			 good ? NULL : detail);
}

/* 0, or as tap_receive(). */
static int take_one(struct keeper *k)
{
	static struct tap_message m; /* zero-filling 4 KiB for each would cost more than it saves */
	int files[2] = { -EBADF, -EBADF };
	int r = tap_receive(k->egress->tap.src.fd, &m, files);

	if (r < 0)
		return r;
	switch (m.kind) {
	case TAP_REQUEST:
		record(k, &m.request);
		return 0;
	case TAP_END:
		end_stream(k, &m.end);
		return 0;
	default:
		for (size_t i = 0; i < ARRAY_SIZE(files); i++)
			(void)fd_close(files[i]);
		return -EBADMSG;
	}
}

static void watch(struct keeper *k, uint32_t events)
{
	if (loop_mod_fd(&k->egress->tap.src, events) < 0)
		lose(k, "hutch-tap cannot be watched");
}

static void on_tap(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	int r = 0;

	for (int i = 0; i < TURN_MAX && r == 0; i++)
		r = take_one(k);
	if (r == -EPIPE)
		return lose(k, "hutch-tap ended");
	if (r < 0 && r != -EAGAIN)
		return lose(k, "hutch-tap sent an invalid message");
	if (events & EPOLLOUT) {
		watch(k, EPOLLIN);
		broker_offer(k->egress->broker);
	}
}

/* ---- handing over ---- */

/* A stream with the protocol "tcp" is not checked, but hutch-tap reads only these two. */
static enum tap_protocol protocol_of(enum rule_proto proto)
{
	switch (proto) {
	case RULE_PROTO_ANY:
	case RULE_PROTO_TCP:
		return TAP_TLS_OR_HTTP;
	case RULE_PROTO_HTTP:
		return TAP_ONLY_HTTP;
	default:
		return TAP_ONLY_TLS;
	}
}

int tap_hand_over(void *arg, const struct broker_handover *h)
{
	struct tap_message m = { .kind = TAP_OPEN,
				 .open = { .stream = h->stream,
					   .protocol = protocol_of(h->proto),
					   .port = h->target->port,
					   .n_early = (uint32_t)h->n_early } };
	const int files[] = { h->client, h->server };
	struct keeper *k = arg;
	struct tap *t = &k->egress->tap;
	int r;

	if (t->src.fd < 0) {
		if (t->asked)
			return -EAGAIN;
		r = note_send(k->warden.fd, NOTE_WANT_TAP, 0, NULL, 0);
		t->asked = r == 0;
		(void)FAULT("keeper-tap-asked");
		return r == 0 ? -EAGAIN : r;
	}
	(void)snprintf(m.open.host, sizeof(m.open.host), "%s", h->target->name.text);
	if (h->n_early > 0)
		memcpy(m.open.early, h->early, h->n_early);
	r = tap_send(t->src.fd, &m, files, ARRAY_SIZE(files));
	(void)FAULT("keeper-tap-stream");
	if (r == -EAGAIN && loop_mod_fd(&t->src, EPOLLIN | EPOLLOUT) < 0)
		return -EIO;
	return r;
}

bool tap_came(struct keeper *k, uint64_t error, const int *files, size_t n)
{
	struct tap *t;

	if (!k->egress || !k->egress->tap.asked || (n > 0) != (error == 0))
		return false;
	t = &k->egress->tap;
	t->asked = false;
	(void)FAULT("keeper-tap");
	if (n == 0) {
		broker_tap_lost(k->egress->broker, "hutch-tap could not be started: see the log of "
						   "the sandbox");
		return true;
	}
	t->src = (struct loop_fd){ .cb = on_tap, .arg = k };
	if (loop_add_fd(k->loop, &t->src, files[0], EPOLLIN) < 0) {
		t->src.fd = -EBADF;
		return false;
	}
	broker_offer(k->egress->broker);
	return true;
}
