/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to a sandbox. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fault.h"
#include "sandbox/sandbox.h"
#include "state/spare-pool.h"

enum {
	CONNECT_TIMEOUT_S = 10
};

/* Reports why no keeper is listening. */
static int has_ended(const struct sandbox *s, struct err *e)
{
	char time[CLOCK_RFC3339_MAX];
	struct err ignored = ERR_INIT;
	struct end end = { 0 };

	if (end_read(s->dir, &end, &ignored) == 0)
		return err_set(e, -ESRCH, "sandbox %s ended at %.19sZ: %s%s%s", s->id,
			       clock_format(end.time, time), end_reason_names[end.reason],
			       end.by[0] ? " by " : "", end.by);
	if (state_is_suspended(s->dir))
		return err_set(e, -ESRCH, "sandbox %s is suspended: hutch resume %s", s->id, s->id);
	if (state_phase(s->dir) == STATE_STARTING)
		return err_set(e, -ESRCH, "sandbox %s is not ready yet", s->id);
	return err_set(e, -ESRCH, "sandbox %s has ended: its keeper was killed", s->id);
}

static int set_timeout(int fd, int seconds)
{
	const struct timeval t = { .tv_sec = seconds };

	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* Connects through the directory's descriptor: a path may be longer than a socket address. */
int sandbox_connect(const struct sandbox *s, int *ret_fd, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", s->dir);
	/* A spare's keeper accepts no client before the spare has an owner. */
	if (faccessat(s->dir, STATE_SPARE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, -ESRCH, "sandbox %s is a spare: hutch pool ls", s->id);
	/* Do not wait forever on a listening socket that no process accepts from. */
	if (fd < 0 || set_timeout(fd, CONNECT_TIMEOUT_S) < 0)
		return err_errno(e, "cannot connect to sandbox %s", s->id);
	r = RETRY_EINTR(connect(fd, (const struct sockaddr *)&a, sizeof(a)));
	if (r < 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return has_ended(s, e);
	if (r < 0 && errno == EAGAIN)
		return err_set(e, -ETIME, "sandbox %s does not answer", s->id);
	if (r < 0 || set_timeout(fd, 0) < 0)
		return err_errno(e, "cannot connect to sandbox %s", s->id);
	r = FAULT_ERR("connect-done", e);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}
