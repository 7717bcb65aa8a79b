/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets that are refreshed. hutch-token gets the tokens: the warden starts it, one at a time, and
 * reads its result from a pipe. The store changes by that, which tapping_changed() passes on.
 *
 * A token is refreshed when hutch-tap is wanted, and while hutch-tap runs when less than a quarter
 * of its life is left. The first stream waits for a token that is missing or expired. After a
 * failure, the old token is used until it expires.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "warden/warden.h"

enum {
	RETRY_S = 60,
	LOOK_S = 3600, /* between looks at the wall clock, which may be set */
	TEXT_MAX = 512,
};

void tokens_begin(struct warden *w)
{
	char own[PATH_MAX];

	if (w->spec.tap_secrets.n == 0)
		return;
	if (proc_own_directory(own) < 0 ||
	    (!proc_find_in(own, ".", "hutch-token", w->tokens.program) &&
	     !proc_find_in(own, "../token", "hutch-token", w->tokens.program)))
		w->tokens.program[0] = '\0';
	w->tokens.text = (struct buf)BUF_INIT(TEXT_MAX);
}

void tokens_close(struct warden *w)
{
	w->tokens.from = fd_close(w->tokens.from);
	proc_done(&w->tokens.proc);
}

void tokens_end(struct warden *w)
{
	tokens_close(w);
	buf_done(&w->tokens.text);
}

/* ---- times ---- */

/* False if the secret is not refreshed, or not readable: put_values() reports that. */
static bool times_of(const struct warden *w, size_t i, uint64_t *ret_due, uint64_t *ret_end)
{
	struct err ignored = ERR_INIT;

	return secret_token_times(&w->tap.store, w->spec.tap_secrets.v[i], ret_due, ret_end,
				  &ignored) == 1;
}

/* When to refresh this secret, of clock_mono(). */
static uint64_t time_of(const struct warden *w, size_t i)
{
	const uint64_t mono = clock_mono(), wall = clock_wall();
	uint64_t due, end;

	if (!times_of(w, i, &due, &end))
		return UINT64_MAX;
	due = mono + (due > wall ? due - wall : 0);
	return MIN(MAX(due, w->tokens.retry[i]), mono + LOOK_S * NSEC_PER_SEC);
}

bool tokens_must_wait(const struct warden *w)
{
	const uint64_t mono = clock_mono(), wall = clock_wall();
	uint64_t due, end;

	for (size_t i = 0; i < w->spec.tap_secrets.n; i++)
		if (w->tokens.retry[i] <= mono && times_of(w, i, &due, &end) && end <= wall)
			return true;
	return false;
}

uint64_t tokens_next(struct warden *w)
{
	uint64_t next = UINT64_MAX;

	if (w->tap.sock < 0 && !w->tokens.wanted)
		return next;
	for (size_t i = 0; i < w->spec.tap_secrets.n; i++) {
		const uint64_t t = time_of(w, i);

		if (t < next) {
			next = t;
			w->tokens.which = i;
		}
	}
	return next;
}

/* ---- hutch-token ---- */

static int roots_file(const struct warden *w, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = memfd_create("roots", MFD_CLOEXEC);

	if (fd < 0 || fd_write_all(fd, buf_text(&w->tap.roots), w->tap.roots.len) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot make a file in memory");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int spawn(struct warden *w, const char *name, struct err *e)
{
	const char *const argv[] = { "hutch-token", name, NULL };
	_cleanup_close_ int roots = -EBADF, from = -EBADF, to = -EBADF;
	struct proc_spec spec = { .path = w->tokens.program,
				  .argv = argv,
				  .more = &w->tap.store.dir,
				  .n_more = 1,
				  .own_session = true };

	if (!w->tokens.program[0])
		return err_set(e, -ENOENT,
			       "no hutch-token beside hutch-keeper: is hutch installed as a "
			       "whole?");
	if (roots_file(w, &roots, e) < 0)
		return e->num;
	if (fd_pipe(0, &from, &to) < 0 || fcntl(from, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, "cannot make a pipe");
	spec.in = roots;
	spec.out = spec.err = to;
	if (proc_spawn(&spec, &w->tokens.proc, e) < 0)
		return e->num;
	w->tokens.from = TAKE_FD(from);
	return 0;
}

static void failed(struct warden *w, const char *why)
{
	const size_t i = w->tokens.which;
	const uint64_t mono = clock_mono(), wall = clock_wall();
	uint64_t due, end;

	log_error("no token for secret '%s': %s", w->spec.tap_secrets.v[i], why);
	witness_token(w, w->spec.tap_secrets.v[i], why);
	w->tokens.retry[i] = mono + RETRY_S * NSEC_PER_SEC;
	if (!times_of(w, i, &due, &end))
		return;
	if (end > wall)
		w->tokens.retry[i] = MIN(w->tokens.retry[i], mono + (end - wall));
	else
		tapping_refill(w); /* takes the expired token away */
}

bool tokens_start(struct warden *w)
{
	struct err e = ERR_INIT;

	buf_reset(&w->tokens.text);
	if (spawn(w, w->spec.tap_secrets.v[w->tokens.which], &e) == 0)
		return true;
	failed(w, e.msg);
	return false;
}

bool tokens_read(struct warden *w)
{
	struct buf *b = &w->tokens.text;
	char bytes[TEXT_MAX];
	ssize_t n = RETRY_EINTR(read(w->tokens.from, bytes, sizeof(bytes)));

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n > 0) {
		(void)buf_put(b, bytes, MIN((size_t)n, b->max - b->len));
		return false;
	}
	if (b->len > 0)
		b->data[strcspn(b->data, "\n")] = '\0';
	if (str_has_prefix(buf_text(b), "refreshed "))
		witness_token(w, w->spec.tap_secrets.v[w->tokens.which], NULL);
	else if (!str_has_prefix(buf_text(b), "fresh "))
		failed(w, b->len > 0 ? b->data : "hutch-token was killed");
	return true;
}
