/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link and the loop. Each round of the loop writes all its frames in one write. The link queues
 * the rest. While much is queued, the guest reads no program output (link_ready); while very much
 * is queued, it reads no requests of the keeper either, because they add answers.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "guest/guest-confine.h"
#include "guest/guest.h"
#include "guest/standby.h"
#include "guest/trust.h"
#include "guest/vm.h"

enum {
	INPUT_MAX = 128 * 1024, /* per read of the channel */
	OUTPUT_STOPS_INPUT =
		LINK_OUT_MAX / 2, /* the other half holds the answers to one such read */
};

static void end(struct guest *g, int result)
{
	if (!g->ended)
		g->result = result;
	g->ended = true;
}

static void end_with(struct guest *g, const struct err *e)
{
	log_error("%s", e->msg);
	end(g, EXIT_FAILURE);
}

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	struct guest *g = arg;
	struct err e = ERR_INIT;

	if (vm_settle(f, &e) < 0 || egress_open(g, f, &e) < 0 || trust_hello(f, &e) < 0 ||
	    confine_start(f, &e) < 0) {
		end_with(g, &e);
		return;
	}
	g->asleep = false;
	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_AGENT, "hutch-guest " HUTCH_VERSION);
	fields_put_number(&b, TAG_LANDLOCK, confine_abi());
	guest_check(g, link_hello(l, &b));
	memory_settle();
}

static void on_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		      void *arg)
{
	struct guest *g = arg;

	if (op == WIRE_OP_TRACE) {
		tracing_open(g, ch);
		return;
	}
	if (!job_room(g))
		jobs_forget(g);
	if (op == WIRE_OP_ADOPT)
		exec_adopt(g, ch, f);
	else if (!job_room(g))
		guest_refuse(g, ch, WIRE_TOO_MANY,
			     "too many commands, file operations and connections at once");
	else if (op == WIRE_OP_EXEC)
		exec_open(g, ch, f);
	else if (op == WIRE_OP_PORT)
		port_open(g, ch, f);
	else
		files_open(g, ch, op, f);
}

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->accepted)
		j->ops->accepted(j);
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->data)
		j->ops->data(j, stream, data, n);
	else
		guest_check(arg, link_consumed(l, ch, stream, n));
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->eof)
		j->ops->eof(j, stream);
}

static void on_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->wake)
		j->ops->wake(j);
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->msg)
		j->ops->msg(j, kind, f);
}

static void tell(struct job *j, const struct fields *f)
{
	char text[WIRE_TEXT_MAX + 1] = "";
	const char *value = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_TEXT, &pos, &value, &n);
	memcpy(text, value, MIN(n, (size_t)WIRE_TEXT_MAX));
	j->ops->answered(j, (enum wire_code)fields_number(f, TAG_CODE, WIRE_IO), text);
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct job *j = link_cookie(l, ch);

	if (j && j->ops->answered)
		tell(j, f);
	if (j)
		job_closed(j);
	else
		tracing_closed(arg, ch);
}

static void on_sleep(struct link *l, void *arg)
{
	struct guest *g = arg;

	/* The frames of this round still go out before ASLEEP. */
	g->falling = true;
}

static void on_wake(struct link *l, const struct fields *f, void *arg)
{
	struct guest *g = arg;
	struct err e = ERR_INIT;

	if (vm_wake(f, &e) < 0)
		end_with(g, &e);
	g->asleep = false;
}

static void on_reset(struct link *l, void *arg)
{
	tracing_closed(arg, 0);
	jobs_reset(arg);
}

static const struct link_ops ops = {
	.hello = on_hello,
	.sleep = on_sleep,
	.wake = on_wake,
	.reset = on_reset,
	.opened = on_opened,
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.credit = on_credit,
	.msg = on_msg,
	.closed = on_closed,
};

static void feed(struct guest *g)
{
	static char input[INPUT_MAX];
	struct err e = ERR_INIT;
	ssize_t k = read(g->channel.fd, input, sizeof(input));

	if (k == 0) {
		end(g, EXIT_SUCCESS);
	} else if (k < 0 && errno != EAGAIN && errno != EINTR) {
		log_error("cannot read from the channel: %s", strerror(errno));
		end(g, errno == ECONNRESET ? EXIT_SUCCESS : EXIT_FAILURE);
	} else if (k > 0 && link_feed(g->link, input, (size_t)k, &e) < 0) {
		log_error("the keeper broke the protocol: %s", e.msg);
		end(g, EXIT_FAILURE);
	}
}

static void watch(struct guest *g, bool writing, bool input_stopped)
{
	int r;

	if (writing == g->writing && input_stopped == g->input_stopped)
		return;
	r = loop_mod_fd(&g->channel, (writing ? EPOLLOUT : 0) | (input_stopped ? 0 : EPOLLIN));
	g->writing = writing;
	g->input_stopped = input_stopped;
	guest_check(g, r);
}

/* Whether the queued bytes may still wait: guest_hold(). */
static bool holds(struct guest *g)
{
	size_t n;

	(void)link_pending(g->link, &n);
	if (g->held != 0 && n == g->held_bytes && !g->asleep && clock_mono() < g->held)
		return true;
	g->held = 0;
	return false;
}

/* Writes queued bytes, as many as the channel takes without blocking. */
static void flush(struct guest *g)
{
	size_t n;

	if (holds(g))
		return;
	if (link_flush(g->link) < 0) {
		end(g, EXIT_SUCCESS);
		return;
	}
	(void)link_pending(g->link, &n);
	watch(g, n > 0, n > OUTPUT_STOPS_INPUT);
}

static ssize_t write_now(void *arg, const struct iovec pieces[static 2])
{
	const struct guest *g = arg;
	ssize_t k = writev(g->channel.fd, pieces, 2);

	return k < 0 ? -errno : k;
}

static void on_channel(struct loop_fd *src, uint32_t events)
{
	struct guest *g = src->arg;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		feed(g);
	/* EPOLLOUT: guest_serve() flushes after every round. */
}

static void on_child(struct loop_signal *src, int signo)
{
	jobs_reap(src->arg);
}

int guest_start(struct guest *g, int fd)
{
	int r = loop_new(&g->loop);

	if (r == 0)
		r = link_new(LINK_GUEST, &ops, g, &g->link);
	if (r == 0)
		link_set_output(g->link, write_now, g);
	g->channel.cb = on_channel;
	g->child.cb = on_child;
	g->channel.arg = g->child.arg = g;
	if (r == 0)
		r = fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
	if (r == 0)
		r = loop_add_fd(g->loop, &g->channel, fd, EPOLLIN);
	if (r == 0)
		r = loop_add_signal(g->loop, &g->child, SIGCHLD);
	return r;
}

static void fall_asleep(struct guest *g)
{
	struct err e = ERR_INIT;

	g->falling = false;
	g->asleep = true;
	standby_drop(g); /* the VM may wake up as another sandbox, with other rules */
	if (vm_users_freeze(&e) < 0)
		end_with(g, &e);
	else
		guest_check(g, link_asleep(g->link));
}

/*
 * Waits while asleep. The guest reads no program, reaps no child and checks no time limit: messages
 * about them would be lost with the link.
 */
static void doze(struct guest *g)
{
	struct pollfd p = { .fd = g->channel.fd, .events = POLLIN };
	size_t n;

	(void)link_pending(g->link, &n);
	if (n > 0)
		p.events |= POLLOUT;
	if (poll(&p, 1, -1) > 0 && (p.revents & (POLLIN | POLLHUP | POLLERR)))
		feed(g);
}

int guest_serve(struct guest *g)
{
	while (!g->ended) {
		if (g->asleep)
			doze(g);
		else
			guest_check(g, loop_once(g->loop, g->held ? g->held : UINT64_MAX));
		if (g->falling)
			fall_asleep(g);
		flush(g);
		if (!g->asleep && g->starved && link_ready(g->link)) {
			g->starved = false;
			jobs_wake(g);
		}
		standby_make(g);
	}
	/* If PID 1 ends, the kernel kills all processes; this loop is for --not-init. */
	for (const struct job *j = g->jobs; j; j = j->next) {
		job_signal_group(j, j->pid, SIGKILL);
		if (j->pid > 0)
			(void)kill(j->pid, SIGKILL);
	}
	return g->result;
}
