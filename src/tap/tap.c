/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/tap.h"

#include <openssl/x509.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "tap/stream.h"
#include "tap/trust.h"

/* ---- the configuration ---- */

static int read_text(int fd, char **ret, size_t *ret_n, struct err *e)
{
	char *text = malloc(TAP_CONFIG_MAX + 1);
	size_t n = 0;
	ssize_t k = text ? 1 : 0;

	if (!text)
		return err_oom(e);
	while (k > 0 && n <= TAP_CONFIG_MAX) {
		k = RETRY_EINTR(pread(fd, text + n, TAP_CONFIG_MAX + 1 - n, (off_t)n));
		n += (size_t)MAX(k, (ssize_t)0);
	}
	if (k < 0) {
		explicit_bzero(text, n);
		free(text);
		return err_errno(e, "cannot read the configuration");
	}
	*ret = text;
	*ret_n = n;
	return 0;
}

/* Only values may change: streams and records refer to rules and secrets by their index. */
static int check_same(const struct tap_config *a, const struct tap_config *b, struct err *e)
{
	bool same = a->n_secrets == b->n_secrets && a->n_http == b->n_http &&
		    a->n_llm == b->n_llm && str_eq(a->ca_cert, b->ca_cert) &&
		    str_eq(a->roots, b->roots);

	for (size_t i = 0; same && i < a->n_secrets; i++)
		same = str_eq(a->secrets[i].name, b->secrets[i].name);
	return same ? 0
		    : err_set(e, -EINVAL,
			      "the new configuration changes more than values of secrets");
}

static int begin_tls(struct tap *t, const struct tap_config *c, struct err *e)
{
	X509_STORE *store = TAKE_PTR(t->store);
	struct ca *ca = NULL;

	if (c->roots[0] && trust_add(store, c->roots, e) < 0)
		;
	else if (ca_load(c->ca_cert, c->ca_key, &ca, e) == 0)
		return tls_new(ca, store, &t->tls, e);
	X509_STORE_free(store);
	return e->num;
}

static int take_config(struct tap *t, int fd, struct err *e)
{
	struct tap_config c;
	char *text;
	size_t n;
	int r;

	if (read_text(fd, &text, &n, e) < 0)
		return e->num;
	r = tap_config_parse(text, n, &c, e);
	explicit_bzero(text, n);
	free(text);
	if (r < 0)
		return r;
	r = t->has_config ? check_same(&t->config, &c, e) : begin_tls(t, &c, e);
	explicit_bzero((char *)c.ca_key, strlen(c.ca_key));
	if (r < 0) {
		tap_config_done(&c);
		return r;
	}
	tap_config_done(&t->config);
	t->config = c;
	return FAULT_ERR("tap-config", e);
}

/* ---- the sockets ---- */

static void fail(struct tap *t, const struct err *e)
{
	log_error("%s", e->msg);
	tap_stop(t, e->num);
}

static int watch_for_streams(struct tap *t)
{
	int r = loop_add_fd(t->loop, &t->keeper[0], TAP_FD_KEEPER, EPOLLIN);

	t->has_config = true;
	return r < 0 ? r : loop_add_fd(t->narrow, &t->keeper[1], TAP_FD_KEEPER, 0);
}

static void on_warden(struct loop_fd *src, uint32_t events)
{
	struct tap *t = src->arg;
	struct err e = ERR_INIT;
	struct tap_message m;
	int files[2], r = tap_receive(src->fd, &m, files);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		tap_stop(t, r == -EPIPE ? 0 : r);
		return;
	}
	if (m.kind == TAP_GRANT) {
		tap_granted(t, &m.grant);
		return;
	}
	if (m.kind != TAP_CONFIG)
		r = err_set(&e, -EBADMSG, "the warden sent another message than a configuration");
	else
		r = take_config(t, files[0], &e);
	(void)fd_close(files[0]);
	(void)fd_close(files[1]);
	if (r == 0 && !t->has_config && watch_for_streams(t) < 0)
		r = err_oom(&e);
	if (r < 0)
		fail(t, &e);
}

/* False if there is no message now. */
static bool take_stream(struct tap *t, int fd)
{
	struct tap_message m;
	int files[2], r = tap_receive(fd, &m, files);

	if (r == 0 && m.kind == TAP_OPEN) {
		stream_open(t, &m.open, files);
		(void)FAULT("tap-stream");
		return true;
	}
	if (r != -EAGAIN)
		tap_stop(t, r == -EPIPE ? 0 : r < 0 ? r : -EBADMSG);
	return false;
}

static void on_keeper(struct loop_fd *src, uint32_t events)
{
	struct tap *t = src->arg;

	if (events & EPOLLOUT)
		tap_send_queued(t);
	if (!(events & ~(uint32_t)EPOLLOUT))
		return;
	/* In the narrow loop, this is the end of the keeper. */
	if (src == &t->keeper[1]) {
		tap_stop(t, 0);
		return;
	}
	for (int i = 0; i < TAP_OPENS_AT_ONCE && !t->is_over; i++)
		if (!take_stream(t, src->fd))
			break;
}

static int start(struct tap *t, struct err *e)
{
	struct loop *const loops[] = { t->loop, t->narrow };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(loops); i++) {
		t->warden[i] = (struct loop_fd){ .cb = on_warden, .arg = t };
		t->keeper[i] = (struct loop_fd){ .cb = on_keeper, .arg = t };
		r = loop_add_fd(loops[i], &t->warden[i], TAP_FD_WARDEN, EPOLLIN);
	}
	return r < 0 ? err_set(e, r, "cannot watch the warden: %s", strerror(-r)) : 0;
}

int tap_run(struct tap *t, struct err *e)
{
	int r = start(t, e);

	while (r == 0 && !t->is_over) {
		if (t->n_queued >= TAP_QUEUE_LONG)
			r = loop_once(t->narrow, UINT64_MAX);
		else
			r = loop_once(t->loop, t->due_first ? 0 : UINT64_MAX);
		if (r == 0 && !t->is_over)
			stream_run_due(t);
		if (r < 0)
			(void)err_set(e, r, "cannot wait for events: %s", strerror(-r));
	}
	if (r == 0 && t->result < 0)
		r = e->num ? e->num
			   : err_set(e, t->result, "hutch-tap cannot continue: %s",
				     strerror(-t->result));
	return r;
}
