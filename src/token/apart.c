/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process speaks with the endpoint. It has the request, but not the store, and for root it
 * is an ordinary user. Once it is connected, Landlock denies it all files, also those of the store,
 * which belong to its user, and other connections: a fault in the parsing of TLS has no more than
 * the request. It sends one struct head, and the body or nothing.
 */
#include "token/apart.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "confine/become.h"
#include "confine/landlock.h"
#include "token/https.h"

enum {
	NOBODY = 65534,
};

struct head {
	unsigned int status;
	struct err e;
};

/* In a user namespace without this id (EINVAL), root is only the user who made the namespace. */
static int drop_user(void)
{
	int r = geteuid() == 0 ? become(NOBODY) : 0;

	return r == -EINVAL ? 0 : r;
}

static int confine(int to, pid_t parent, struct err *e)
{
	const struct rlimit none = { 0, 0 };
	int kept[] = { to };
	int r = fd_close_others(STDERR_FILENO + 1, kept, ARRAY_SIZE(kept));

	if (r == 0)
		r = drop_user();
	if (r == 0 && (setrlimit(RLIMIT_FSIZE, &none) < 0 || setrlimit(RLIMIT_NPROC, &none) < 0))
		r = -errno;
	if (r == 0)
		r = proc_die_with(parent, SIGKILL);
	return r < 0 ? err_set(e, r, "cannot confine a process: %s", strerror(-r)) : 0;
}

static int forbid_files(struct err *e)
{
	int r = landlock_forbid_all(false, -EBADF, 0);

	if (r >= 0)
		r = landlock_check();
	return r < 0 ? err_set(e, r, "cannot confine a process: Landlock: %s", strerror(-r)) : 0;
}

static void child(const struct token_url *url, X509_STORE *trusted, const struct buf *request,
		  int to, pid_t parent)
{
	_cleanup_secret_ struct buf response = BUF_INIT(TOKEN_RESPONSE_MAX);
	struct head head = { .e = ERR_INIT };
	_cleanup_close_ int fd = -EBADF;
	struct https_body body = { 0 };

	if (confine(to, parent, &head.e) < 0 || https_dial(url, &fd, &head.e) < 0 ||
	    forbid_files(&head.e) < 0 ||
	    https_exchange(url, fd, trusted, request, &response, &body, &head.e) < 0)
		body.n = 0;
	head.status = body.status;
	if (fd_write_all(to, &head, sizeof(head)) == 0 && body.n > 0)
		(void)fd_write_all(to, body.text, body.n);
}

static int take(const struct buf *text, unsigned int *ret_status, struct buf *ret, struct err *e)
{
	struct head head;

	if (text->len < sizeof(head))
		return err_set(e, -EIO, "the process that speaks with the endpoint was killed");
	memcpy(&head, text->data, sizeof(head));
	head.e.msg[sizeof(head.e.msg) - 1] = '\0';
	if (head.e.num != 0)
		return err_set(e, -EIO, "%s", head.e.msg);
	*ret_status = head.status;
	return buf_put(ret, text->data + sizeof(head), text->len - sizeof(head)) < 0 ? err_oom(e)
										     : 0;
}

int apart_exchange(const struct token_url *url, X509_STORE *trusted, const struct buf *request,
		   unsigned int *ret_status, struct buf *ret, struct err *e)
{
	_cleanup_secret_ struct buf text = BUF_INIT(TOKEN_RESPONSE_MAX + sizeof(struct head));
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	const pid_t parent = getpid();
	int r = fd_pipe(0, &from, &to);

	if (r == 0)
		r = proc_fork(&p);
	if (r < 0)
		return err_set(e, r, "cannot start a process: %s", strerror(-r));
	if (r == 1) {
		child(url, trusted, request, to, parent);
		_exit(EXIT_SUCCESS);
	}
	to = fd_close(to);
	r = fd_read_all(from, &text);
	return r < 0 ? err_set(e, r, "cannot read the response: %s", strerror(-r))
		     : take(&text, ret_status, ret, e);
}
