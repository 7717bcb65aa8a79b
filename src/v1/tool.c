/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs hutch for answers and event streams. For an answer, a job runs hutch and collects its
 * output. For an event stream, hutch is hutchd's own child, with a pipe in the loop; a slow reader
 * blocks only that pipe and that process.
 */
#include "v1/tool.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"

enum {
	OUTPUT_MAX = 12 * 1024 * 1024,
	SAID_MAX = 4096,
	DEADLINE_S = 60,
	LINE_MAX_BYTES = 256 * 1024,
	CHUNK = 16 * 1024,
	NO = 1,	   /* hutch's exit status for "no", with an answer */
	USAGE = 2, /* invalid arguments */
};

struct tool {
	struct request *request;
	struct job *job;
	const char *type;
	char refusal[REQUEST_TEXT_MAX / 2];
	void (*narrow)(const struct request *r, json_t *j);
	char *argv[TOOL_ARGS + 2];
};

static void tool_free(struct tool *t)
{
	for (size_t i = 0; t->argv[i]; i++)
		free(t->argv[i]);
	free(t);
}

static struct tool *tool_new(struct request *r, const char *const *argv)
{
	struct tool *t = calloc(1, sizeof(*t));

	for (size_t i = 0; t && (i == 0 || argv[i - 1]); i++) {
		assert(i < TOOL_ARGS + 1);
		t->argv[i] = strdup(i == 0 ? "hutch" : argv[i - 1]);
		if (!t->argv[i]) {
			tool_free(t);
			return NULL;
		}
	}
	if (t)
		t->request = r;
	return t;
}

/* Finds hutch beside hutchd, as installed, or in the build tree. */
static int find_hutch(char out[static PATH_MAX], struct err *e)
{
	char dir[PATH_MAX];
	int r = proc_own_directory(dir);

	if (r < 0)
		return err_set(e, r, "cannot find the directory of hutchd: %s", strerror(-r));
	return proc_find_in(dir, ".", "hutch", out) || proc_find_in(dir, "../cli", "hutch", out)
		       ? 0
		       : err_set(e, -ENOENT, "there is no hutch beside hutchd");
}

static int spawn(char *const *argv, int out, int err, struct proc *ret, struct err *e)
{
	char path[PATH_MAX];
	const struct proc_spec spec = { .path = path,
					.argv = (const char *const *)argv,
					.env = (const char *const *)environ,
					.in = -EBADF,
					.out = out,
					.err = err };
	int r = find_hutch(path, e);

	return r < 0 ? r : proc_spawn(&spec, ret, e);
}

/* ---- answers ---- */

/* Its stderr fits into the pipe buffer, so it can be read after stdout has ended. */
static int gather(char *const *argv, struct buf *out, struct buf *said, int *ret_status,
		  struct err *e)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_close_ int from = -EBADF, to = -EBADF, err_from = -EBADF, err_to = -EBADF;
	siginfo_t info = { 0 };
	int r;

	if (fd_pipe(0, &from, &to) < 0 || fd_pipe(0, &err_from, &err_to) < 0)
		return err_errno(e, "cannot make a pipe");
	r = spawn(argv, to, err_to, &p, e);
	to = fd_close(to);
	err_to = fd_close(err_to);
	if (r < 0)
		return r;
	r = fd_read_all(from, out);
	if (r == 0)
		r = fd_read_all(err_from, said);
	if (r == 0)
		r = proc_wait(&p, clock_mono() + DEADLINE_S * NSEC_PER_SEC, &info);
	if (r < 0)
		return err_set(e, r, "hutch %s: %s", argv[1], strerror(-r));
	*ret_status = info.si_code == CLD_EXITED ? info.si_status : -1;
	return 0;
}

static int tool_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(OUTPUT_MAX), said = BUF_INIT(SAID_MAX);
	const struct tool *t = arg;
	int status = -1, r;

	(void)alarm(DEADLINE_S);
	r = gather(t->argv, &out, &said, &status, e);
	if (r < 0)
		return r;
	if (status != 0 && (status != NO || out.len == 0))
		return err_set(e, status == NO || status == USAGE ? -EINVAL : -EIO, "%.*s",
			       (int)strcspn(buf_text(&said), "\n"), buf_text(&said));
	*ret = JSON_OBJECT({ "text", json_stringn(buf_text(&out), out.len) });
	return *ret ? 0 : err_oom(e);
}

static void answer_narrowed(const struct tool *t, const json_t *text)
{
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;
	int r = json_read(json_string_value(text), json_string_length(text), &j, &e);

	if (r < 0) {
		request_fail(t->request, 500, "%s", t->refusal);
		return;
	}
	t->narrow(t->request, j);
	request_answer(t->request, 200, TAKE_PTR(j));
}

static void tool_done(void *arg, const json_t *result, const struct err *e)
{
	const json_t *text = json_object_get(result, "text");
	struct tool *t = arg;

	t->job = NULL;
	if (!result && t->request->role != ROLE_ADMIN && (e->num == -EINVAL || e->num == -EIO)) {
		log_warning("hutch %s %s: %s", t->argv[1], t->argv[2] ?: "", e->msg);
		request_fail(t->request, 500, "%s; the operator sees why in hutchd's log",
			     t->refusal);
	} else if (!result)
		request_fail_err(t->request, e);
	else if (t->narrow && t->request->role != ROLE_ADMIN)
		answer_narrowed(t, text);
	else
		request_text(t->request, 200, t->type, json_string_value(text),
			     json_string_length(text));
}

static const struct job_ops tool_ops = { .work = tool_work, .done = tool_done };

static void tool_drop(struct request *r)
{
	struct tool *t = r->data;

	if (t->job)
		job_abandon(t->job, NULL, NULL);
	tool_free(t);
}

static void answer(struct request *r, const char *type,
		   void (*narrow)(const struct request *r, json_t *j), const char *refusal,
		   const char *const *argv)
{
	struct tool *t = tool_new(r, argv);
	struct err e = ERR_INIT;

	if (!t) {
		request_fail(r, 503, "out of memory");
		return;
	}
	t->type = type;
	t->narrow = narrow;
	(void)snprintf(t->refusal, sizeof(t->refusal), "%s", refusal);
	r->data = t;
	r->drop = tool_drop;
	if (job_start(r->api->pools[POOL_LOOK], r->owner, &tool_ops, t, &t->job, &e) < 0)
		request_fail_err(r, &e);
}

void tool_answer(struct request *r, const char *type, const char *refusal, const char *const *argv)
{
	answer(r, type, NULL, refusal, argv);
}

void tool_answer_narrowed(struct request *r, void (*narrow)(const struct request *r, json_t *j),
			  const char *refusal, const char *const *argv)
{
	answer(r, "application/json", narrow, refusal, argv);
}

/* ---- events ---- */

struct follow {
	struct request *request;
	struct proc proc;
	struct loop_fd pipe;
	struct loop_timer beat;
	struct buf line;
	bool waiting; /* for the client to read */
};

static const uint64_t beat_ns = 30 * NSEC_PER_SEC;

static void follow_drop(struct request *r)
{
	struct follow *f = r->data;

	loop_del_fd(&f->pipe);
	loop_del_timer(&f->beat);
	(void)fd_close(f->pipe.fd);
	proc_done(&f->proc);
	buf_done(&f->line);
	r->api->n_followers--;
	free(f);
}

/* A line of JSON contains no line break, so each line is one event. */
static void put_events(struct follow *f)
{
	char *end;

	while (f->line.len > 0 && (end = memchr(f->line.data, '\n', f->line.len))) {
		size_t n = (size_t)(end - f->line.data);

		request_write(f->request, "data: ", 6);
		request_write(f->request, f->line.data, n);
		request_write(f->request, "\n\n", 2);
		buf_consume(&f->line, n + 1);
	}
}

static void on_output(struct loop_fd *src, uint32_t events)
{
	struct follow *f = src->arg;
	char *room = buf_reserve(&f->line, CHUNK);
	ssize_t n = room ? RETRY_EINTR(read(f->pipe.fd, room, CHUNK)) : 0;

	if (n <= 0) {
		request_end(f->request);
		return;
	}
	buf_commit(&f->line, (size_t)n);
	put_events(f);
	(void)loop_set_timer(f->request->api->config->loop, &f->beat, clock_mono() + beat_ns);
	f->waiting = http_full(f->request->x);
	if (f->waiting)
		loop_del_fd(&f->pipe);
}

static void on_room(struct request *r)
{
	struct follow *f = r->data;

	if (f->waiting && loop_add_fd(r->api->config->loop, &f->pipe, f->pipe.fd, EPOLLIN) == 0)
		f->waiting = false;
}

/* A heartbeat: shows the client, the server and proxies that the connection is alive. */
static void on_beat(struct loop_timer *src)
{
	struct follow *f = src->arg;

	request_write(f->request, ":\n\n", 3);
	(void)loop_set_timer(f->request->api->config->loop, src, clock_mono() + beat_ns);
}

static int follow_start(struct follow *f, char *const *argv, struct err *e)
{
	struct loop *loop = f->request->api->config->loop;
	_cleanup_close_ int to = -EBADF;
	int r;

	if (fd_pipe(O_NONBLOCK, &f->pipe.fd, &to) < 0)
		return err_errno(e, "cannot make a pipe");
	(void)fcntl(to, F_SETFL, 0);
	r = spawn(argv, to, -EBADF, &f->proc, e);
	to = fd_close(to);
	if (r == 0 && (loop_add_fd(loop, &f->pipe, f->pipe.fd, EPOLLIN) < 0 ||
		       loop_set_timer(loop, &f->beat, clock_mono() + beat_ns) < 0))
		r = err_oom(e);
	return r;
}

void tool_follow(struct request *r, const char *const *argv)
{
	struct tool *t = tool_new(r, argv);
	struct follow *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;
	int rc;

	if (!t || !f || r->api->n_followers == TOOL_FOLLOWERS) {
		bool many = t && f;

		if (t)
			tool_free(t);
		free(f);
		request_fail(r, many ? 429 : 503,
			     many ? "too many clients listen to events" : "out of memory");
		return;
	}
	*f = (struct follow){ .request = r, .proc = PROC_INIT };
	f->line = (struct buf)BUF_INIT(LINE_MAX_BYTES);
	f->pipe = (struct loop_fd){ .cb = on_output, .arg = f, .fd = -EBADF };
	f->beat = (struct loop_timer){ .cb = on_beat, .arg = f };
	r->api->n_followers++;
	r->data = f;
	r->drop = follow_drop;
	r->room = on_room;
	rc = follow_start(f, t->argv, &e);
	tool_free(t);
	if (rc < 0)
		request_fail_err(r, &e);
	else
		request_begin(r, 200, "text/event-stream", -1);
}
