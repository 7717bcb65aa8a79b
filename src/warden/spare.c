/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spare waits before the last step of a start: its VM runs, its receipt is checked, and its
 * keeper does not serve yet. The process that takes it first writes the spare's new spec, then
 * hands over the descriptors that a parent would have given (state/handover.h). From then on that
 * process counts as its starter.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "state/handover.h"
#include "state/spare-pool.h"
#include "warden/warden.h"

enum {
	BACKLOG = 16,
};

int spare_find_pool(struct warden *w, struct err *e)
{
	char key[SPARE_KEY + 2];
	int r = fd_read_line(w->dir, STATE_SPARE, key, sizeof(key));

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = spare_key_valid(key) ? spare_pool_open(&w->root, key, false, &w->pool)
					 : -EINVAL;
	return r < 0 ? err_set(e, r, "cannot find the pool that it is a spare of: %s", strerror(-r))
		     : 0;
}

/* The socket gets its final name only once it listens. */
static int listen_in_pool(struct warden *w, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char name[SPEC_ID + 8];

	(void)snprintf(name, sizeof(name), "new-%s", w->spec.id);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", w->pool, name);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0 ||
	    renameat(w->pool, name, w->pool, w->spec.id) < 0)
		return err_errno(e, "cannot be a spare");
	*ret_fd = TAKE_FD(fd);
	return FAULT_ERR("spare-listens", e);
}

static int open_signals(int *ret_fd, struct err *e)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	*ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return *ret_fd < 0 ? err_errno(e, "cannot listen to signals") : 0;
}

/* 0: taken, and no other process can take it. -EAGAIN: the connection brought no handover. */
static int accept_one(struct warden *w, int listener, struct err *e)
{
	_cleanup_close_ int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct handover h;

	if (sock < 0 || handover_receive(sock, &h, e) < 0)
		return -EAGAIN;
	w->report = h.report;
	w->client = h.client;
	(void)fd_close(h.dir);
	(void)fd_close(h.log);
	return 0;
}

/* Reads the spec again, which the new owner has changed. */
static int read_again(struct warden *w, struct err *e)
{
	_cleanup_spec_ struct spec spec = { 0 };
	int r = spec_read(w->dir, &spec, e);

	if (r == 0 && !str_eq(spec.id, w->spec.id))
		r = err_set(e, -EINVAL, "the spec is that of another sandbox");
	if (r < 0)
		return r;
	spec_done(&w->spec);
	w->spec = spec;
	spec = (struct spec){ 0 };
	warden_name_lines(&w->spec);
	return witness_taken(w, e);
}

bool spare_wait(struct warden *w, enum end_reason *ret_reason, struct err *e)
{
	_cleanup_close_ int listener = -EBADF, signals = -EBADF;
	int r = open_signals(&signals, e);

	*ret_reason = END_KEEPER;
	if (r == 0)
		r = listen_in_pool(w, &listener, e);
	if (r < 0)
		return false;
	w->report = fd_close(w->report); /* the parent need not wait any longer */
	for (r = -EAGAIN; r == -EAGAIN;) {
		struct pollfd fds[] = { { .fd = listener, .events = POLLIN },
					{ .fd = signals, .events = POLLIN },
					{ .fd = w->box.init.pidfd, .events = POLLIN },
					{ .fd = w->keeper.pidfd, .events = POLLIN } };

		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return false;
		if (fds[1].revents) {
			*ret_reason = END_KILLED;
			return false;
		}
		if (fds[2].revents || fds[3].revents) {
			*ret_reason = END_GUEST;
			return false;
		}
		if (fds[0].revents)
			r = accept_one(w, listener, e);
	}
	*e = (struct err)ERR_INIT;
	return read_again(w, e) == 0;
}

void spare_done(struct warden *w, bool taken)
{
	if (w->pool < 0)
		return;
	if (!taken)
		(void)unlinkat(w->pool, w->spec.id, 0);
	else
		(void)unlinkat(w->dir, STATE_SPARE, 0);
	w->pool = fd_close(w->pool);
}
