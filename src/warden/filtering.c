/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in hutch-filter, the output filter. It starts hutch-filter when the keeper asks
 * for it, and gives it the policy's rules and the values of this sandbox's secrets, again whenever
 * the store changes. The keeper gets a socket to hutch-filter and never sees a value.
 *
 * hutch-filter has the user id of the sandbox's hutch-tap, which has the same secrets.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "filter-link/filter-link.h"
#include "warden/warden.h"

enum {
	AGAIN_S = 1, /* between two starts */
};

static_assert(2 * TAP_SECRETS_MAX * (SECRET_VALUE_MAX + SECRET_NAME_MAX) <= FILTER_CONFIG_MAX,
	      "a sandbox that starts can start its hutch-filter");

int warden_filter_begin(struct warden *w, struct err *e)
{
	char own[PATH_MAX];
	int r = proc_own_directory(own);

	if (!w->spec.filter || !w->spec.filter[0])
		return 0;
	if (r == 0 && (proc_find_in(own, ".", "hutch-filter", w->filter.program) ||
		       proc_find_in(own, "../filter", "hutch-filter", w->filter.program)))
		return 0;
	return err_set(e, -ENOENT,
		       "no hutch-filter beside hutch-keeper, and the policy has an output filter: "
		       "is hutch installed as a whole?");
}

/* ---- the configuration ---- */

static void put_config(const struct warden *w, struct buf *b)
{
	const struct spec_list *rules = &w->spec.filter_rules;

	/* Names of rules and actions need no escapes: the policy's compiler has checked them, and
	 * hutch-filter rejects others. */
	(void)buf_printf(b, "{\"action\":\"%s\",\"rules\":[", w->spec.filter);
	for (size_t i = 0; i < rules->n; i++)
		(void)buf_printf(b, "%s\"%s\"", i > 0 ? "," : "", rules->v[i]);
	(void)buf_puts(b, "],\"values\":");
	tapping_put_values(w, b);
	(void)buf_putc(b, '}');
}

static int make_config(const struct warden *w, int *ret_fd)
{
	_cleanup_secret_ struct buf b = BUF_INIT(FILTER_CONFIG_MAX - 1);
	_cleanup_close_ int fd = memfd_create("hutch-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	/* At once: growing it would leave copies of values behind. */
	if (!buf_reserve(&b, FILTER_CONFIG_MAX - 1))
		return -ENOMEM;
	put_config(w, &b);
	r = b.err ? b.err : fd_write_all(fd, b.data, b.len);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int send_config(const struct warden *w)
{
	_cleanup_close_ int fd = -EBADF;
	int r = make_config(w, &fd);

	return r < 0 ? r : filter_send_config(w->filter.sock, fd);
}

/* ---- the process ---- */

static void stop(struct warden *w)
{
	w->filter.sock = fd_close(w->filter.sock);
	proc_done(&w->filter.proc);
}

static int spawn(struct warden *w, int ours, int keepers, struct err *e)
{
	const int more[] = { ours, keepers };
	char uid[16];
	const char *const argv[] = { "hutch-filter", "--uid", uid, NULL };
	const struct proc_spec spec = {
		.path = w->filter.program,
		.argv = argv,
		.in = -EBADF,
		.out = -EBADF,
		.err = STDERR_FILENO,
		.more = more,
		.n_more = ARRAY_SIZE(more),
		.own_session = true,
	};

	(void)snprintf(uid, sizeof(uid), "%u", tapping_user(w));
	return proc_spawn(&spec, &w->filter.proc, e);
}

/* *ret_fd: the keeper's end. */
static int start(struct warden *w, int *ret_fd, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF, keeper = -EBADF, filter = -EBADF;
	int r;

	if (fd_socket_pair(SOCK_SEQPACKET, &ours, &theirs) < 0 ||
	    fd_socket_pair(SOCK_SEQPACKET, &keeper, &filter) < 0 ||
	    fcntl(ours, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
	    fcntl(keeper, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return err_errno(e, "cannot make the channels of hutch-filter");
	if (spawn(w, theirs, filter, e) < 0)
		return e->num;
	w->filter.sock = TAKE_FD(ours);
	r = send_config(w);
	if (r < 0)
		return err_set(e, r, "cannot configure hutch-filter: %s", strerror(-r));
	*ret_fd = TAKE_FD(keeper);
	return FAULT_ERR("filter-started", e);
}

void warden_filter_start(struct warden *w)
{
	const uint64_t now = clock_mono();
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;
	int r;

	/* A sandbox that can crash its hutch-filter must not keep the host busy with new ones. */
	if (!w->filter.program[0] ||
	    (w->filter.started != 0 && now - w->filter.started < AGAIN_S * NSEC_PER_SEC)) {
		(void)note_send(w->note, NOTE_FILTER, EAGAIN, NULL, 0);
		return;
	}
	stop(w);
	w->filter.started = now;
	r = start(w, &fd, &e);
	if (r == 0) {
		(void)note_send(w->note, NOTE_FILTER, 0, &fd, 1);
		return;
	}
	log_error("%s", e.msg);
	stop(w);
	(void)note_send(w->note, NOTE_FILTER, (uint64_t)-r, NULL, 0);
}

void warden_filter_refill(struct warden *w)
{
	/* If hutch-filter does not take the new values, it must not continue without them. */
	if (w->filter.sock >= 0 && send_config(w) < 0)
		stop(w);
}

void warden_filter_end(struct warden *w)
{
	stop(w);
}
