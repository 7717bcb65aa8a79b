/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks of the guest's link: for relays, connections that the guest opened, and the keeper. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "keeper/command.h"
#include "keeper/connect.h"
#include "keeper/greet.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

enum {
	/* Messages have no credit, so this limits those waiting for a client that does not read.
	 * The rest of LINK_OUT_MAX is for frames that must not be dropped. */
	RELAY_MESSAGES_MAX = 4 * 1024 * 1024,
};
static_assert((int)RELAY_MESSAGES_MAX < (int)LINK_OUT_MAX, "a client is not lost by a listing");

static void guest_hello(struct link *l, const struct fields *f, void *arg)
{
	keeper_ready(arg, (uint32_t)fields_number(f, TAG_LANDLOCK, 0));
}

static void guest_asked(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			void *arg)
{
	connection_opened(arg, ch, op, f);
}

static void guest_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = relay_raw(f);

	if (r && r->command) {
		r->pid = (uint32_t)fields_number(f, TAG_PID, 0);
		command_runs(r->command, r->pid);
		relay_accept_command(r, r);
	} else if (r) {
		client_check(r->client, link_accept(r->client->port.link, r->client_ch, &b));
	}
}

static void guest_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	struct relay *r;

	if (guest_opened(ch)) {
		connection_data(arg, ch, stream, data, n);
		return;
	}
	r = link_cookie(l, ch);
	if (!r || !flow_is_used(r->op, TO_CLIENT, stream)) {
		(void)tracing_guest_data(arg, ch, data, n);
		keeper_check(arg, link_consumed(l, ch, stream, n));
		return;
	}
	if (filtering_has(r)) {
		filtering_data(r, stream, data, n);
		return;
	}
	if (r->command)
		record_put(&r->command->record, stream, data, n, clock_mono());
	relay_data(r, TO_CLIENT, stream, data, n);
}

static void guest_asleep(struct link *l, void *arg)
{
	struct keeper *k = arg;

	(void)l;
	if (k->save.begun && k->save.file >= 0)
		save_asleep(k);
	else
		keeper_stop(k, KEEPER_GUEST_BROKE);
}

static void guest_pong(struct link *l, uint64_t token, void *arg)
{
	keeper_heard(arg, token);
}

static void guest_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	if (guest_opened(ch))
		connection_eof(arg, ch, stream);
	else if (r && !filtering_eof(r, stream))
		flow_eof(r, TO_CLIENT, stream);
}

static void guest_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	if (guest_opened(ch))
		connection_credit(arg, ch, stream);
	else if (r)
		(void)relay_pump(r, TO_GUEST, stream);
}

static void trace_exit(const struct relay *r, const struct fields *f)
{
	const unsigned int sig = (unsigned int)fields_number(f, TAG_SIGNAL, 0);

	TRACE_OF(r->request, TRACE_STATE, "pid %u on guest channel %u ended: %s %u", r->pid,
		 r->guest_ch, sig > 0 ? "signal" : "exit",
		 sig > 0 ? sig : (unsigned int)fields_number(f, TAG_CODE, 0));
	if (sig == SIGSYS)
		TRACE_OF(r->request, TRACE_SYSCALL,
			 "pid %u was killed by SIGSYS: a filter of its own forbids a system call",
			 r->pid);
}

static void on_exit_msg(struct relay *r, const struct fields *f)
{
	if (r->exit.came || f->len > sizeof(r->exit.bytes))
		return;
	memcpy(r->exit.bytes, f->data, f->len);
	r->exit.len = f->len;
	r->exit.came = true;
	trace_exit(r, f);
	if (filtering_ends(r))
		return;
	relay_exited(r);
	relay_settle(r);
}

static void guest_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);
	struct buf b = relay_raw(f);

	if (!r)
		return;
	if (kind == WIRE_MSG_LIMIT && !met_said(arg, f))
		return;
	if (kind == WIRE_MSG_EXIT)
		on_exit_msg(r, f);
	else if (r->client_ch == 0)
		return; /* entries or events from a command make no sense */
	else if (port_waiting(&r->client->port) > RELAY_MESSAGES_MAX)
		relay_cut(r, WIRE_TOO_MANY, "too many entries or events wait to be read");
	else
		client_check(r->client, link_msg(r->client->port.link, r->client_ch, kind, &b));
}

static void guest_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);
	uint64_t code = fields_number(f, TAG_CODE, WIRE_IO);
	const char *text = "";
	size_t pos = 0, n = 0;

	if (guest_opened(ch))
		connection_closed(arg, ch, f);
	tracing_guest_closed(arg, ch);
	if (!r)
		return;
	r->guest_ch = 0; /* closed by the guest */
	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	/* Codes that only the keeper may send, and unknown ones, become WIRE_IO. */
	relay_finish(r, code >= WIRE_TIMEOUT ? WIRE_IO : (enum wire_code)code, text, n);
}

const struct link_ops relay_guest_ops = {
	.hello = guest_hello,
	.opened = guest_asked,
	.accepted = guest_accepted,
	.data = guest_data,
	.eof = guest_eof,
	.credit = guest_credit,
	.msg = guest_msg,
	.closed = guest_closed,
	.pong = guest_pong,
	.asleep = guest_asleep,
	.request = relay_request_of,
};
