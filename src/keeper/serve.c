/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper process from start to end. It sends HELLO to the guest, reports the guest's answer to
 * the warden, waits for "go", and serves clients until it has a reason to end, which becomes its
 * exit status. Frames that a round of the loop produces are written at the end of the round, in one
 * write for each link.
 *
 * When the guest ends, clients have a second to read the output that it sent before.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/engine.h"
#include "keeper/connect.h"
#include "keeper/greet.h"
#include "keeper/keeper-confine.h"
#include "keeper/merge.h"
#include "keeper/serve.h"
#include "keeper/take-note.h"

enum {
	LAST_WORDS_MS =
		1000, /* to read the last output of a deaf guest, and for clients to read it */
	NO_MONITOR_MS = 10000, /* for a VM whose monitor has ended to end, too */
};

/* ---- the guest ---- */

static void on_guest(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	struct err e = ERR_INIT;
	int r;

	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	r = port_read(&k->guest, &e);
	if (r == -EPIPE)
		keeper_stop(k, KEEPER_GUEST_GONE);
	else if (r == -EPROTO)
		log_error("the guest broke the protocol: %s", e.msg);
	else if (r < 0)
		log_error("the guest's link failed: %s", e.msg);
	if (r < 0)
		keeper_stop(k, r == -EPROTO ? KEEPER_GUEST_BROKE : KEEPER_FAILED);
}

/* ---- the monitor of a VM ---- */

static void on_vm_up(void *arg)
{
	struct keeper *k = arg;

	if (note_send(k->warden.fd, NOTE_MACHINE_UP, 0, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

static void on_vm_failed(void *arg, const char *why)
{
	log_error("the VM's monitor: %s", why);
	keeper_stop(arg, KEEPER_FAILED);
}

static void on_vm_stays(struct loop_timer *t)
{
	log_error("the VM runs, but its monitor is closed: it can be neither saved nor continued");
	keeper_stop(t->arg, KEEPER_GUEST_BROKE);
}

/* The guest's channel ends too. After HELLO the keeper reads the guest's last output there first. A
 * VM that closes only its monitor would never end, so a timer ends it. */
static void on_vm_gone(void *arg, bool in_the_middle)
{
	struct keeper *k = arg;

	if (k->phase == PHASE_HELLO || in_the_middle) {
		keeper_stop(k, KEEPER_GUEST_GONE);
		return;
	}
	k->vm.closed = (struct loop_timer){ .cb = on_vm_stays, .arg = k };
	keeper_check(k, loop_set_timer(k->loop, &k->vm.closed,
				       clock_mono() + NO_MONITOR_MS * NSEC_PER_MSEC));
}

static void on_vm_stopped(void *arg, enum vm_stop why)
{
	halt_stopped(arg, why);
}

static int start_monitor(struct keeper *k)
{
	static const struct monitor_user user = {
		.up = on_vm_up, .failed = on_vm_failed, .gone = on_vm_gone, .stopped = on_vm_stopped
	};

	k->vm.monitor = k->engine->monitor->start(k->loop, TAKE_FD(k->vm.fd),
						  spec_transfer_s(k->spec), &user, k);
	return k->vm.monitor ? 0 : -ENOMEM;
}

/* ---- start and end ---- */

/* Checks the policy's settings once: they go over the wire with every command. */
static int check_spec(const struct keeper *k, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX), argv = BUF_INIT(16);
	struct fields f;

	greet_put(k, &b);
	if (b.err || b.len > WIRE_PAYLOAD_MAX)
		return err_set(e, -E2BIG,
			       "the paths and networks of the policy are too long together");
	if (fields_parse(MESSAGE_HELLO_KEEPER, b.data, b.len, &f, e) < 0)
		return err_wrap(e, "the paths of the policy");
	buf_reset(&b);
	fields_put_text(&argv, TAG_ARGV, "true");
	if (argv.err || fields_parse(MESSAGE_EXEC_CLIENT, argv.data, argv.len, &f, e) < 0)
		return err_oom(e);
	merge_open(k, WIRE_OP_EXEC, &f, &b);
	if (b.err)
		return err_set(e, b.err, "the environment of the policy is too long");
	if (fields_parse(MESSAGE_EXEC, b.data, b.len, &f, e) < 0)
		return err_wrap(e, "environment, user or workspace of the policy");
	return 0;
}

static int make_loop(struct keeper *k, const struct keeper_start *s)
{
	int r = k->env ? loop_new(&k->loop) : -ENOMEM;

	if (r < 0)
		return r;
	r = port_init(&k->guest, LINK_KEEPER, &relay_guest_ops, k, s->guest, on_guest);
	if (r < 0)
		return r;
	if (egress_is_asked_for(s->engine, s->spec))
		link_guest_asks(k->guest.link);
	return s->warden >= 0 ? loop_add_fd(k->loop, &k->warden, s->warden, EPOLLIN) : 0;
}

int keeper_init(struct keeper *k, const struct keeper_start *s, struct err *e)
{
	int r;

	*k = (struct keeper){ .spec = s->spec,
			      .engine = s->engine,
			      .ca = s->ca,
			      .phase = PHASE_HELLO,
			      .guest.src.fd = s->guest,
			      .warden = { .cb = keeper_take_note, .arg = k, .fd = s->warden },
			      .vm = { .fd = s->engine->monitor ? s->monitor : -EBADF,
				      .no_snapshots = s->no_snapshots,
				      .adopt = -EBADF },
			      .clients = { .once = s->spec->once, .listener.fd = s->listener },
			      .life.no_freezer = s->no_freezer && s->no_freezer[0]
							 ? s->no_freezer
							 : "see 'hutch receipt'",
			      .journal.chain = s->chain };
	records_init(&k->records, s->spec->limits.output);
	filtering_init(k, &relay_filtering_ops);
	k->env = merge_index(s->spec);
	r = make_loop(k, s);
	if (r < 0)
		(void)err_set(e, r, "cannot make the keeper's loop: %s", strerror(-r));
	if (r == 0 && check_spec(k, e) == 0 && egress_init(k, e) == 0)
		return 0;
	keeper_done(k);
	return e->num;
}

void keeper_done(struct keeper *k)
{
	k->ended = true;
	tracing_done(k);
	egress_done(k);
	save_done(k);
	if (k->vm.monitor)
		k->engine->monitor->free(k->vm.monitor);
	k->vm.monitor = NULL;
	k->vm.fd = fd_close(k->vm.fd);
	if (k->loop) {
		clients_done(k);
		relays_done(k);
		filtering_done(k);
		loop_del_timer(&k->deadline);
		loop_del_timer(&k->vm.closed);
		loop_del_timer(&k->idle);
		loop_del_timer(&k->met.again);
		halt_done(k);
		loop_del_fd(&k->clients.listener);
		loop_del_fd(&k->warden);
	}
	records_done(&k->records);
	port_done(&k->guest);
	k->clients.listener.fd = fd_close(k->clients.listener.fd);
	k->warden.fd = fd_close(k->warden.fd);
	k->vm.adopt = fd_close(k->vm.adopt);
	k->loop = loop_free(k->loop);
	free(k->env);
	k->env = NULL;
}

static void flush_clients(struct keeper *k, bool input)
{
	for (struct client *c = k->clients.list; c; c = c->next) {
		client_check(c, port_flush(&c->port));
		if (!c->gone)
			client_check(c, port_want(&c->port, input && port_waiting(&c->port) <=
									     OUTPUT_STOPS_INPUT));
	}
}

static void on_deaf(struct loop_timer *t)
{
	log_error("the guest has stopped reading from its channel");
	keeper_stop(t->arg, KEEPER_GUEST_BROKE);
}

/*
 * Drops output that cannot be written: waiting for a socket that reports itself ready and takes
 * nothing would spin. The keeper still reads what the guest sent before it ended. A guest that only
 * stopped reading would never end, so a timer ends it.
 */
static void flush_guest(struct keeper *k)
{
	size_t n;

	if (port_flush(&k->guest) == 0)
		return;
	(void)link_pending(k->guest.link, &n);
	link_wrote(k->guest.link, n);
	if (k->deaf)
		return;
	k->deaf = true;
	k->deadline.cb = on_deaf;
	k->deadline.arg = k;
	keeper_check(k, loop_set_timer(k->loop, &k->deadline,
				       clock_mono() + LAST_WORDS_MS * NSEC_PER_MSEC));
}

static bool any_gone(const struct keeper *k)
{
	for (const struct client *c = k->clients.list; c; c = c->next)
		if (c->gone)
			return true;
	return false;
}

void keeper_round(struct keeper *k)
{
	do {
		bool room;

		clients_sweep(k);
		flush_guest(k);
		room = port_waiting(&k->guest) <= OUTPUT_STOPS_INPUT;
		keeper_check(k, port_want(&k->guest, room));
		relays_publish(k); /* records must show it before a client hears it */
		flush_clients(k, room);
	} while (relays_wake(k) || any_gone(k));
	connections_wake(k);
	relays_sweep(k);
	connections_sweep(k);
	if (k->tracing.n > 0) /* trace lines caused by this round */
		flush_clients(k, port_waiting(&k->guest) <= OUTPUT_STOPS_INPUT);
}

static bool anything_waits(const struct keeper *k)
{
	for (const struct client *c = k->clients.list; c; c = c->next)
		if (port_waiting(&c->port) > 0)
			return true;
	for (size_t i = 0; i < RELAY_KINDS; i++)
		if (k->relays.held[i] > 0)
			return true;
	return k->filtering.open > 0;
}

/* The guest has ended: gives clients a moment to read its last output and the end. */
static void last_words(struct keeper *k)
{
	uint64_t deadline = clock_mono() + LAST_WORDS_MS * NSEC_PER_MSEC;

	(void)FAULT("keeper-last-words");
	loop_del_fd(&k->guest.src); /* the link stays: clients may still send requests */
	loop_del_fd(&k->clients.listener);
	loop_del_fd(&k->warden);
	relays_guest_gone(k);
	save_guest_gone(k);
	keeper_round(k);
	while (anything_waits(k) && clock_mono() < deadline) {
		if (loop_once(k->loop, deadline) < 0)
			return;
		keeper_round(k);
	}
}

enum keeper_end keeper_serve(struct keeper *k)
{
	keeper_check(k, k->engine->monitor ? start_monitor(k) : greet_guest(k));
	keeper_round(k);
	while (!k->ended) {
		int r = loop_once(k->loop, UINT64_MAX);

		keeper_check(k, r);
		if (k->ended)
			tracing_last(k);
		keeper_round(k);
	}
	met_done(k);
	if (k->end == KEEPER_GUEST_GONE || k->end == KEEPER_GUEST_BROKE)
		last_words(k);
	egress_done(k); /* ends open streams and records counted denials */
	return k->end;
}

/* The loop serves all sockets in turn and must never block on one. */
static int set_nonblocking(const struct keeper_start *s, struct err *e)
{
	const int fds[] = { s->guest, s->monitor, s->listener };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0 && fcntl(fds[i], F_SETFL, O_RDWR | O_NONBLOCK) < 0)
			return err_errno(e, "cannot make a socket non-blocking");
	return 0;
}

void keeper_run(const struct keeper_start *s)
{
	static struct keeper k;
	struct err e = ERR_INIT;
	int end = KEEPER_FAILED;

	trace_set_process("keeper");
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a full log must not kill the keeper */
	if (FAULT_ERR("keeper-begin", &e) == 0 && keeper_confine_fds(s, &e) == 0 &&
	    FAULT_ERR("keeper-fds", &e) == 0 && set_nonblocking(s, &e) == 0 &&
	    keeper_try_guard(s, &e) == 0 && keeper_init(&k, s, &e) == 0 &&
	    FAULT_ERR("keeper-made", &e) == 0 && keeper_confine(s, &e) == 0 &&
	    FAULT_ERR("keeper-isolated", &e) == 0)
		end = keeper_serve(&k);
	else
		log_error("%s", e.msg);
	_exit(end);
}
