/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packet is the beginning of a struct tap_message: the kind and the member of that kind. A
 * TAP_OPEN ends after its early bytes, a TAP_CONFIG after its kind.
 */
#include "tap-link/tap-link.h"

#include <string.h>
#include <sys/socket.h>

#include "base/fd-pass.h"

enum {
	FILES_OPEN = 2,
	FILES_CONFIG = 1,
	FILES_MAX = 2,
	STATUS_MIN = 100,
	STATUS_MAX = 999,
};

#define HEAD	  offsetof(struct tap_message, open)
#define OPEN_HEAD (HEAD + offsetof(struct tap_open, early))

DEFINE_NAMES(
	tap_result_text, enum tap_result, TAP_RESULTS, "unknown", [TAP_DONE] = "done",
	[TAP_DENIED] = "denied by a rule", [TAP_BAD_REQUEST] = "invalid request",
	[TAP_TOO_LARGE] = "too large", [TAP_RATE] = "over the rate", [TAP_NO_SECRET] = "no secret",
	[TAP_CLIENT_TRUST] = "certificate not trusted",
	[TAP_CLIENT_TLS] = "TLS with the program failed",
	[TAP_SERVER_TRUST] = "server certificate not trusted",
	[TAP_SERVER_TLS] = "TLS with the server failed", [TAP_BAD_RESPONSE] = "invalid response",
	[TAP_CLIENT_CLOSED] = "closed by the program", [TAP_SERVER_CLOSED] = "closed by the server",
	[TAP_TIME] = "timeout", [TAP_FAULT] = "out of resources",
	[TAP_LLM] = "denied by a rule on models", [TAP_BUDGET] = "budget spent");

/* Bytes of the packet, or 0 for a kind that does not exist. */
static size_t size_of(const struct tap_message *m)
{
	switch ((enum tap_kind)m->kind) {
	case TAP_OPEN:
		return OPEN_HEAD + m->open.n_early;
	case TAP_REQUEST:
		return HEAD + sizeof(m->request);
	case TAP_END:
		return HEAD + sizeof(m->end);
	case TAP_CONFIG:
		return HEAD;
	case TAP_RESERVE:
		return HEAD + sizeof(m->reserve);
	case TAP_SETTLE:
		return HEAD + sizeof(m->settle);
	case TAP_GRANT:
		return HEAD + sizeof(m->grant);
	default:
		return 0;
	}
}

static size_t files_of(uint32_t kind)
{
	return kind == TAP_OPEN ? FILES_OPEN : kind == TAP_CONFIG ? FILES_CONFIG : 0;
}

int tap_send(int fd, const struct tap_message *m, const int *files, size_t n)
{
	int r;

	assert(n == files_of(m->kind));
	assert(m->kind != TAP_OPEN || m->open.n_early <= TAP_EARLY_MAX);
	r = fd_pass(fd, MSG_DONTWAIT, m, size_of(m), files, n);
	/* The other process has ended with messages that it had not read. */
	return r == -ECONNRESET ? -EPIPE : r;
}

static bool is_text(const char *s, size_t size)
{
	return memchr(s, '\0', size);
}

/* A byte from another process is not a bool until it is known to be 0 or 1. */
static bool is_bool(const bool *b)
{
	uint8_t value;

	memcpy(&value, b, sizeof(value));
	return value <= 1;
}

static bool open_is_valid(const struct tap_open *o)
{
	return o->n_early <= TAP_EARLY_MAX && o->port > 0 && o->protocol > 0 &&
	       o->protocol < TAP_PROTOCOLS && is_bool(&o->is_addr) &&
	       is_text(o->host, sizeof(o->host)) && o->host[0];
}

static bool call_is_valid(const struct tap_call *c)
{
	return is_bool(&c->is_call) && is_bool(&c->is_guess) && is_bool(&c->has_cost) &&
	       c->rule < TAP_LLM_MAX && is_text(c->model, sizeof(c->model)) &&
	       is_text(c->provider, sizeof(c->provider));
}

static bool request_is_valid(const struct tap_request *r)
{
	return r->result < TAP_RESULTS && r->rule >= -1 && r->secret >= -1 &&
	       r->secret < TAP_SECRETS_MAX &&
	       (r->status == 0 || (r->status >= STATUS_MIN && r->status <= STATUS_MAX)) &&
	       is_bool(&r->reflected) && is_bool(&r->upgraded) && call_is_valid(&r->llm) &&
	       is_text(r->method, sizeof(r->method)) && is_text(r->path, sizeof(r->path)) &&
	       is_text(r->text, sizeof(r->text));
}

static bool end_is_valid(const struct tap_end *end)
{
	return end->result < TAP_RESULTS && is_text(end->text, sizeof(end->text));
}

static bool is_valid(const struct tap_message *m, size_t n)
{
	/* n_early is checked before size_of() adds it. */
	if (n < HEAD || (m->kind == TAP_OPEN && (n < OPEN_HEAD || !open_is_valid(&m->open))) ||
	    n != size_of(m))
		return false;
	switch (m->kind) {
	case TAP_REQUEST:
		return request_is_valid(&m->request);
	case TAP_END:
		return end_is_valid(&m->end);
	case TAP_RESERVE:
		return m->reserve.call > 0 && m->reserve.rule < TAP_LLM_MAX;
	case TAP_SETTLE:
		return m->settle.call > 0 && is_bool(&m->settle.as_reserved);
	case TAP_GRANT:
		return is_bool(&m->grant.granted) && is_text(m->grant.text, sizeof(m->grant.text));
	default:
		return true;
	}
}

static size_t count_files(const int files[static FILES_MAX])
{
	return (files[0] >= 0) + (files[1] >= 0);
}

int tap_receive(int fd, struct tap_message *ret, int files[static 2])
{
	struct tap_message m;
	int got[FILES_MAX];
	size_t n;
	int r;

	memset(&m, 0, HEAD);
	r = fd_receive_up_to(fd, MSG_DONTWAIT, &m, sizeof(m), &n, got, FILES_MAX);
	if (r < 0)
		return r;
	if (!is_valid(&m, n) || count_files(got) != files_of(m.kind)) {
		(void)fd_close(got[0]);
		(void)fd_close(got[1]);
		return -EBADMSG;
	}
	memcpy(ret, &m, n);
	memcpy(files, got, sizeof(got));
	return 0;
}
