/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares a container's network namespace. An unprivileged warden may enter that namespace,
 * which belongs to a user namespace below its own, but could not return to the host's. So a
 * child enters, prepares everything and sends the sockets back; a socket stays in the namespace
 * it was made in. */
#include "engine/netns.h"

#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fault.h"
#include "base/fd-pass.h"
#include "base/proc.h"

static_assert((int)CAPTURE_SOCKETS <= (int)FD_PASS_MAX, "all go in one packet");

static int prepare(int pidfd, const struct addr *networks, size_t n, struct capture_sockets *s,
		   struct err *e)
{
	int r;

	if (setns(pidfd, CLONE_NEWNET) < 0)
		return err_errno(e, "cannot enter the sandbox's network namespace");
	r = FAULT_ERR("netns-entered", e);
	return r < 0 ? r : net_capture(&(struct net_plan){ .networks = networks, .n = n }, s, e);
}

struct report {
	struct err e;
	uint8_t sockets; /* a mask */
};

static _noreturn_ void serve(int sock, int pidfd, const struct addr *networks, size_t n)
{
	struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	struct report report = { .e = ERR_INIT };

	(void)prepare(pidfd, networks, n, &s, &report.e);
	report.sockets = capture_sockets_mask(&s);
	(void)FAULT("netns-made");
	_exit(fd_pass(sock, 0, &report, sizeof(report), s.fds, CAPTURE_SOCKETS) < 0);
}

static int take(int sock, struct capture_sockets *ret, struct err *e)
{
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	struct report report;
	int r = fd_receive(sock, 0, &report, sizeof(report), s.fds, CAPTURE_SOCKETS);

	if (r == 0)
		r = capture_sockets_place(&s, report.sockets);
	if (r < 0)
		return err_set(e, r, "the process that prepares the sandbox's network failed: %s",
			       strerror(-r));
	if (report.e.num < 0) {
		*e = report.e;
		return err_negative(report.e.num);
	}
	*ret = s;
	s = (struct capture_sockets)CAPTURE_SOCKETS_INIT;
	return 0;
}

int netns_capture(int pidfd, const struct addr *networks, size_t n, struct capture_sockets *ret,
		  struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF;
	_cleanup_proc_ struct proc child = PROC_INIT;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(e, "cannot make a socket");
	ours = pair[0];
	theirs = pair[1];
	r = proc_fork(&child);
	if (r > 0) {
		(void)fd_close(ours);
		serve(theirs, pidfd, networks, n);
	}
	if (r < 0)
		return err_set(e, r, "cannot start a process: %s", strerror(-r));
	theirs = fd_close(theirs);
	FAULT_KILL("netns-child", child.pidfd);
	r = FAULT_ERR("netns-forked", e);
	return r < 0 ? r : take(ours, ret, e);
}
