/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an image of a sandbox. Of three processes, only two see the sandbox's bytes:
 *
 *   keeper --- socket --> feeder --- pipe --> worker of the image store
 *                           |                    |
 *                         report               result
 *                           +----> we <----------+
 *
 * The feeder is a confined child (sandbox-confine.h) that unpacks frames and passes the archive on.
 * The worker, confined by src/image, reads the archive. We parse nothing: both report in packets of
 * fixed size, and the image is kept only if both succeed.
 *
 * If any of them dies, the others end too: the feeder notices by its socket to us and its pipe to
 * the worker. The leftovers in the store are those of any interrupted import; the next import
 * removes them. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "client/transfer.h"
#include "sandbox/sandbox-confine.h"
#include "sandbox/sandbox.h"

enum {
	CHUNK = 256 * 1024,
	LAST_S = 60,   /* from the end of the archive to the feeder's report */
	REFUSED_S = 1, /* the same, if the worker rejected the archive */
};

struct report {
	int result;
	int no_reader;		/* not 0: failed because the worker stopped reading */
	char text[ERR_MSG_MAX]; /* reason */
	char note[ERR_MSG_MAX];
};

struct feed {
	struct proc feeder;
	int sock;
	char *note;
};

/* ---- the feeder ---- */

struct feeder {
	struct transfer t;
	int pipe;
	uint64_t left; /* bytes that it may still pass on */
	bool no_reader;
};

static int pass_on(struct feeder *f, struct err *e)
{
	static char chunk[CHUNK];
	int64_t n;
	int r;

	while ((n = transfer_read(&f->t, chunk, sizeof(chunk), e)) > 0) {
		if ((uint64_t)n > f->left)
			return err_set(
				e, -EFBIG,
				"the sandbox sent more data than its image and disk can hold");
		f->left -= (uint64_t)n;
		r = fd_write_all(f->pipe, chunk, (size_t)n);
		f->no_reader = r < 0;
		if (r < 0)
			return err_set(e, r, "cannot forward the archive: %s", strerror(-r));
	}
	return (int)n;
}

static int feed(struct feeder *f, const struct jail *j, struct err *e)
{
	int r = jail_enter(j, e);

	if (r == 0)
		r = transfer_open_root(&f->t, e);
	if (r == 0)
		r = pass_on(f, e);
	/* The worker sees the end of the archive; only the result after it says whether it is
	 * complete. */
	return r < 0 ? r : transfer_finish(&f->t, e);
}

static _noreturn_ void feeder(int conn, int pipe, int sock, uint64_t max)
{
	const struct jail j = { .dir = -EBADF, .keep = { conn, pipe, sock } };
	struct feeder f = { .t = TRANSFER_INIT(conn), .pipe = pipe, .left = max };
	struct report last = { 0 };
	struct err e = ERR_INIT;

	(void)signal(SIGPIPE, SIG_IGN);
	f.t.stop = sock;
	last.result = feed(&f, &j, &e);
	last.no_reader = f.no_reader;
	memcpy(last.text, e.msg, sizeof(last.text));
	(void)snprintf(last.note, sizeof(last.note), "%.*s", ERR_MSG_MAX - 1, f.t.text);
	(void)!send(sock, &last, sizeof(last), MSG_NOSIGNAL);
	_exit(last.result < 0);
}

/* Starts the feeder. The caller owns the feed and the pipe's end that delivers the archive. */
static int start(int conn, uint64_t max, struct feed *f, int *ret_pipe, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF, from = -EBADF, to = -EBADF;
	int socks[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return err_errno(e, "cannot make a socket");
	ours = socks[0];
	theirs = socks[1];
	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot make a pipe");
	(void)fflush(NULL);
	r = proc_fork(&f->feeder);
	if (r < 0)
		return err_set(e, r, "cannot start a process: %s", strerror(-r));
	if (r == 1)
		feeder(conn, to, theirs, max);
	f->sock = TAKE_FD(ours);
	*ret_pipe = TAKE_FD(from);
	return 0;
}

/* ---- the end ---- */

/* The ended() of struct image_stream. */
static int ended(void *arg, int r, struct err *e)
{
	const struct feed *f = arg;
	struct pollfd p = { .fd = f->sock, .events = POLLIN };
	struct report report = { 0 };

	/* Do not wait long for a feeder that waits for a silent sandbox. */
	if (RETRY_EINTR(poll(&p, 1, (r < 0 ? REFUSED_S : LAST_S) * 1000)) <= 0)
		return r < 0 ? 0
			     : err_set(e, -ETIME,
				       "the sandbox did not confirm the end of the archive");
	if (RETRY_EINTR(recv(f->sock, &report, sizeof(report), 0)) != (ssize_t)sizeof(report))
		return r < 0 ? 0
			     : err_set(e, -EPIPE, "the process that reads the archive has ended");
	report.text[sizeof(report.text) - 1] = report.note[sizeof(report.note) - 1] = '\0';
	memcpy(f->note, report.note, sizeof(report.note));
	if (report.result == 0 || (report.no_reader && r < 0))
		return 0;
	return err_set(e, report.result < 0 ? report.result : -EIO, "%s", report.text);
}

static void feed_done(struct feed *f)
{
	proc_done(&f->feeder);
	f->sock = fd_close(f->sock);
}

/* Twice the size, for headers, padding and files with several links. */
static uint64_t limit_of(const struct spec *spec, const json_t *image)
{
	uint64_t size = (uint64_t)json_integer_value(json_object_get(image, "size"));

	if (spec->limits.disk == 0 || spec->limits.disk >= IMAGE_BYTES_MAX / 4 ||
	    size >= IMAGE_BYTES_MAX / 4)
		return IMAGE_BYTES_MAX;
	return 2 * (size + spec->limits.disk);
}

static int get_image(const struct image_store *store, const struct spec *spec, json_t **ret,
		     struct err *e)
{
	int r = image_store_get(store, spec->image, ret, e);

	return r < 0 ? err_wrap(e, "the configuration of the sandbox's image") : 0;
}

int sandbox_commit(const struct sandbox *s, const struct sandbox_commit *c,
		   char ret_note[static ERR_MSG_MAX], struct image_done *ret, struct err *e)
{
	_cleanup_image_store_ struct image_store store = IMAGE_STORE_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_json_ json_t *image = NULL;
	_cleanup_close_ int conn = -EBADF, pipe = -EBADF;
	_cleanup_(feed_done) struct feed f = { .feeder = PROC_INIT, .sock = -EBADF };
	char note[ERR_MSG_MAX] = "";
	int r = spec_read(s->dir, &spec, e);

	f.note = note;
	if (r == 0)
		r = image_store_open(&store, true, e);
	if (r == 0)
		r = get_image(&store, &spec, &image, e);
	if (r == 0)
		r = sandbox_connect(s, &conn, e);
	if (r == 0)
		r = start(conn, c->max_bytes > 0 ? c->max_bytes : limit_of(&spec, image), &f, &pipe,
			  e);
	if (r < 0)
		return r;
	r = image_import_stream(&(struct image_stream){ .store = &store,
							.name = c->name,
							.input = TAKE_FD(pipe),
							.from = image,
							.sandbox = s->id,
							.config = c->config,
							.ended = ended,
							.arg = &f,
							.reporter = c->reporter },
				ret, e);
	if (r == 0)
		memcpy(ret_note, note, sizeof(note));
	return r;
}
