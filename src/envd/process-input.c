/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a command: input, end of input, signals, terminal size. */
#include <signal.h>
#include <string.h>

#include "base/base64.h"
#include "base/str.h"
#include "envd/process.h"

/* ---- a request with one errand ---- */

static void answer(struct errand *e)
{
	rpc_answer(e->r, json_object());
}

static void on_drop(struct request *r)
{
	struct errand *e = r->data;

	errand_cancel(e);
	free(e->data);
	free(e);
}

/* NULL: r was answered with an error. */
static struct errand *errand_new(struct request *r, struct selector *ret_selector)
{
	struct errand *e;
	struct err err = ERR_INIT;

	if (selector_read(r->body, ret_selector, &err) < 0) {
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", err.msg);
		return NULL;
	}
	e = calloc(1, sizeof(*e));
	if (!e) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	e->r = r;
	e->done = answer;
	r->data = e;
	r->drop = on_drop;
	return e;
}

/* ---- input ---- */

/* "Input": bytes for stdin or for a terminal; a command has one of them. */
int input_read(const json_t *message, struct errand *e, struct err *err)
{
	const json_t *input = NULL;
	const char *in = NULL, *pty = NULL;
	int r;

	if (member_object(message, "input", &input, err) < 0 ||
	    member_text(input, "stdin", &in, err) < 0 || member_text(input, "pty", &pty, err) < 0)
		return err->num;
	if (!in == !pty)
		return err_set(err, -EINVAL, "'input' has to have 'stdin' or 'pty'");
	in = in ? in : pty;
	r = base64_decode(in, strlen(in), &e->data, &e->n);
	if (r == -EINVAL)
		return err_set(err, r, "the input is not base64");
	return r < 0 ? err_oom(err) : 0;
}

static void have_input(struct request *r)
{
	struct selector s;
	struct errand *e = errand_new(r, &s);
	struct err err = ERR_INIT;

	if (!e)
		return;
	if (input_read(r->body, e, &err) < 0)
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", err.msg);
	else
		errand_send(e, &s);
}

void process_send_input(struct request *r)
{
	rpc_read(r, have_input);
}

static void have_close(struct request *r)
{
	struct selector s;
	struct errand *e = errand_new(r, &s);

	if (!e)
		return;
	e->eof = true;
	errand_send(e, &s);
}

void process_close_stdin(struct request *r)
{
	rpc_read(r, have_close);
}

/* ---- signals ---- */

static unsigned int signal_of(const json_t *value)
{
	static const struct {
		const char *name;
		unsigned int number;
	} known[] = { { "SIGNAL_SIGKILL", SIGKILL }, { "SIGNAL_SIGTERM", SIGTERM } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (json_is_string(value) ? str_eq(json_string_value(value), known[i].name)
					  : json_integer_value(value) == known[i].number)
			return known[i].number;
	return 0;
}

static void have_signal(struct request *r)
{
	struct selector s;
	struct errand *e = errand_new(r, &s);

	if (!e)
		return;
	e->msg = WIRE_MSG_SIGNAL;
	e->number = signal_of(member(r->body, "signal"));
	if (e->number > 0)
		errand_send(e, &s);
	else
		rpc_fail(r, RPC_UNIMPLEMENTED,
			 "expected SIGNAL_SIGKILL or SIGNAL_SIGTERM in 'signal'");
}

void process_send_signal(struct request *r)
{
	rpc_read(r, have_signal);
}

/* ---- the size of a terminal ---- */

static void have_update(struct request *r)
{
	struct selector s;
	struct errand *e = errand_new(r, &s);
	struct err err = ERR_INIT;

	if (!e)
		return;
	e->msg = WIRE_MSG_RESIZE;
	if (!member(r->body, "pty"))
		rpc_answer(r, json_object()); /* nothing to change */
	else if (size_read(r->body, &e->cols, &e->rows, &err) < 0)
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", err.msg);
	else
		errand_send(e, &s);
}

void process_update(struct request *r)
{
	rpc_read(r, have_update);
}
