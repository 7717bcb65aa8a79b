/* SPDX-License-Identifier: Apache-2.0 */
#include "image/job.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

enum {
	TICK_MS = 500,
	LOG_MAX = 16 * 1024 * 1024
};

struct master {
	struct image_job *job;
	struct job_result *result;
	int sock;
	uint64_t start, logged;
	enum image_phase phase;
	struct image_counts counts;
	bool done;
	int num; /* result code */
	char line[256];
	size_t line_len;
};

static void report(const struct master *m)
{
	const struct image_reporter *r = &m->job->reporter;
	const struct image_progress p = {
		.phase = m->phase,
		.seconds = (clock_mono() - m->start) / NSEC_PER_SEC,
		.entries = m->counts.entries,
		.bytes = m->counts.bytes,
		.line = m->result->line[0] ? m->result->line : NULL,
	};

	if (r->fn)
		r->fn(r->arg, &p);
}

/* ---- files of a layout ---- */

static bool is_digest(const char *s)
{
	return strlen(s) == IMAGE_DIGEST_HEX && strspn(s, "0123456789abcdef") == IMAGE_DIGEST_HEX;
}

/* The worker may name only index.json or a digest, and gets only regular files. */
static int open_layout_file(int layout, const char *name)
{
	char path[128] = "index.json";
	struct stat st;
	int fd;

	if (layout < 0)
		return -EPERM;
	if (is_digest(name))
		(void)snprintf(path, sizeof(path), "blobs/sha256/%s", name);
	else if (!str_eq(name, path))
		return -EPERM;
	fd = path_open_nofollow(layout, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		(void)fd_close(fd);
		return -EINVAL;
	}
	return fd;
}

static int answer_open(const struct master *m, const char *name)
{
	_cleanup_close_ int fd = open_layout_file(m->job->layout, name);
	const struct channel_msg reply = { .type = CHANNEL_OPENED, .num = fd < 0 ? fd : 0 };

	return channel_send(m->sock, &reply, fd, true);
}

/* ---- messages from the worker ---- */

static int take_word(const struct master *m, const char *key, const char *word)
{
	json_t *list = json_object_get(m->result->config, key);

	if (!list && json_put(m->result->config, key, json_array()) < 0)
		return -ENOMEM;
	list = json_object_get(m->result->config, key);
	return json_array_size(list) < IMAGE_ARGS_MAX ? json_push(list, json_string(word)) : 0;
}

static void take_archive(const struct master *m, const char *kind)
{
	static const char *const kinds[] = { "docker-archive", "oci-archive" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (str_eq(kind, kinds[i]))
			m->result->archive = kinds[i];
}

/* "env A=b", "user x", "workdir /x": displayed and passed on, never interpreted here. */
static int take_config(struct master *m, char *text)
{
	char *value = strchr(text, ' '), *equals;
	json_t *env = json_object_get(m->result->config, "env");

	if (!value || !utf8_valid(text, strlen(text)))
		return 0;
	*value++ = '\0';
	if (str_eq(text, "user") || str_eq(text, "workdir"))
		return json_put(m->result->config, text, json_string(value));
	if (str_eq(text, "entrypoint") || str_eq(text, "cmd"))
		return take_word(m, text, value);
	if (str_eq(text, "archive")) {
		take_archive(m, value);
		return 0;
	}
	equals = strchr(value, '=');
	if (!str_eq(text, "env") || !equals || json_object_size(env) >= IMAGE_ENV_MAX)
		return 0;
	*equals = '\0';
	return json_put(env, value, json_string(equals + 1));
}

static int take_result(struct master *m, struct channel_msg *msg, struct err *e)
{
	m->done = true;
	m->result->counts = msg->counts;
	m->result->tree = msg->tree;
	m->result->landlock = msg->landlock != 0;
	if (msg->num >= 0)
		return 0;
	/* Only these two errors may come from the worker: they mean that the image is at fault. */
	str_make_utf8(msg->text);
	return err_set(e, msg->num == -EINVAL || msg->num == -ENOENT ? msg->num : -EIO, "%s",
		       msg->text);
}

static int take_packet(struct master *m, struct err *e)
{
	struct channel_msg msg;
	int fd = -EBADF, r = channel_recv(m->sock, &msg, &fd);

	(void)fd_close(fd); /* a worker sends no descriptors */
	if (r < 0)
		return err_set(e, -EIO, "the worker died%s",
			       r == -EPIPE ? "" : ", after an invalid message");
	switch (msg.type) {
	case CHANNEL_OPEN:
		r = answer_open(m, msg.text);
		return r < 0 ? err_set(e, r, "cannot answer the worker: %s", strerror(-r)) : 0;
	case CHANNEL_CONFIG:
		return take_config(m, msg.text) < 0 ? err_oom(e) : 0;
	case CHANNEL_PROGRESS:
		m->phase = MIN(msg.phase, (uint32_t)PHASE_MAX - 1);
		m->counts = msg.counts;
		report(m);
		return 0;
	case CHANNEL_RESULT:
		return take_result(m, &msg, e);
	default:
		return err_set(e, -EIO, "the worker sent an invalid message");
	}
}

/* ---- messages from mmdebstrap ---- */

static void take_line(struct master *m)
{
	m->line[m->line_len] = '\0';
	m->line_len = 0;
	if (!m->line[0])
		return;
	str_make_utf8(m->line);
	memcpy(m->result->line, m->line, sizeof(m->line));
	report(m);
}

/* False at the end. */
static bool take_news(struct master *m)
{
	char chunk[4096];
	ssize_t k = RETRY_EINTR(read(m->job->news, chunk, sizeof(chunk)));

	if (k <= 0)
		return k < 0 && errno == EAGAIN;
	if (m->job->log >= 0 && m->logged < LOG_MAX)
		(void)fd_write_all(m->job->log, chunk, (size_t)k);
	m->logged += (uint64_t)k;
	for (ssize_t i = 0; i < k; i++) {
		if (chunk[i] == '\n' || chunk[i] == '\r')
			take_line(m);
		else if (m->line_len < sizeof(m->line) - 1)
			m->line[m->line_len++] = chunk[i];
	}
	return true;
}

static int serve(struct master *m, uint64_t deadline, struct err *e)
{
	struct pollfd fds[] = { { .fd = m->sock, .events = POLLIN },
				{ .fd = m->job->news, .events = POLLIN } };
	int r = 0;

	while (r == 0 && !m->done) {
		int k = poll(fds, ARRAY_SIZE(fds), TICK_MS);

		if (k < 0 && errno != EINTR)
			return err_errno(e, "cannot wait for the worker");
		if (clock_mono() > deadline)
			return err_set(e, -ETIME, "not done after %llu seconds: stopped",
				       (unsigned long long)IMAGE_TIME_MAX);
		if (k <= 0)
			report(m);
		if (k > 0 && fds[1].revents && !take_news(m))
			fds[1].fd = -EBADF;
		if (k > 0 && fds[0].revents)
			r = take_packet(m, e);
	}
	while (fds[1].fd >= 0 && poll(&fds[1], 1, 0) > 0 && take_news(m))
		;
	return r;
}

int job_run(struct image_job *job, struct job_result *ret, struct err *e)
{
	_cleanup_close_ int sock = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct master m = { .job = job, .result = ret, .start = clock_mono(), .phase = job->phase };
	struct confine_job confined = { .ids = job->ids,
					.work = job->work,
					.input = job->input,
					.run = worker_run,
					.arg = &job->spec };
	int r;

	*ret = (struct job_result){ .config = JSON_OBJECT({ "env", json_object() }) };
	if (!ret->config)
		return err_oom(e);
	report(&m);
	r = confine_start(&confined, &p, &sock, e);
	job->input = fd_close(job->input);
	if (r < 0)
		return r;
	m.sock = sock;
	return serve(&m, m.start + IMAGE_TIME_MAX * NSEC_PER_SEC, e);
}

int job_empty(int work, const struct id_ranges *ids, struct err *e)
{
	struct image_job job = { .spec = { .kind = WORK_EMPTY },
				 .ids = ids,
				 .work = work,
				 .input = -EBADF,
				 .layout = -EBADF,
				 .news = -EBADF,
				 .log = -EBADF };
	struct job_result result;
	int r = job_run(&job, &result, e);

	json_decref(result.config);
	return r;
}
