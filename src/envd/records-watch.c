/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes readers of records by inotify(7). The kernel has one watch per file, and returns the same
 * number for each request. So files are found by that number, and the watch is removed with a
 * file's last reader. Numbers are not reused for a long time: a late event finds no reader.
 *
 * A woken reader may remove other readers and itself. `next` is the next one to wake; removing that
 * one moves `next` on.
 */
#include "envd/records-watch.h"

#include <string.h>
#include <sys/inotify.h>

enum {
	BUCKETS = 256,
	READ_MAX = 16 * 1024,
};

struct record_file {
	struct records_watch *watch;
	int wd;
	struct record_reader *readers;
	struct record_file *next; /* in its bucket */
};

struct records_watch {
	struct loop_fd inotify;
	struct record_file *files[BUCKETS];
	struct record_reader *next;
};

static struct record_file **bucket_of(struct records_watch *w, int wd)
{
	return &w->files[(unsigned int)wd % BUCKETS];
}

static struct record_file *find(struct records_watch *w, int wd)
{
	struct record_file *f = *bucket_of(w, wd);

	while (f && f->wd != wd)
		f = f->next;
	return f;
}

static void wake(struct records_watch *w, const struct record_file *f)
{
	for (struct record_reader *s = f->readers; s; s = w->next) {
		w->next = s->next;
		s->wake(s);
	}
	w->next = NULL;
}

/* Events were lost. Waking a file's readers may free it and the next one, so each step searches for
 * the next higher number. */
static void wake_all(struct records_watch *w)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		int last = -1;

		for (;;) {
			struct record_file *f = NULL;

			for (struct record_file *at = w->files[i]; at; at = at->next)
				if (at->wd > last && (!f || at->wd < f->wd))
					f = at;
			if (!f)
				break;
			last = f->wd;
			wake(w, f);
		}
	}
}

static void on_inotify(struct loop_fd *src, uint32_t events)
{
	struct records_watch *w = src->arg;
	char buffer[READ_MAX] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = RETRY_EINTR(read(src->fd, buffer, sizeof(buffer)));

	(void)events;
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
		const struct record_file *f = find(w, event->wd);

		at += (ssize_t)(sizeof(*event) + event->len);
		if (event->mask & IN_Q_OVERFLOW)
			wake_all(w);
		else if (f)
			wake(w, f);
	}
}

int records_watch_new(struct loop *loop, struct records_watch **ret, struct err *e)
{
	struct records_watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return err_oom(e);
	w->inotify = (struct loop_fd){ .cb = on_inotify, .arg = w };
	w->inotify.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	r = w->inotify.fd < 0 ? -errno : loop_add_fd(loop, &w->inotify, w->inotify.fd, EPOLLIN);
	if (r < 0) {
		(void)records_watch_free(w);
		return err_set(e, r, "cannot watch records: %s", strerror(-r));
	}
	*ret = w;
	return 0;
}

struct records_watch *records_watch_free(struct records_watch *w)
{
	if (!w)
		return NULL;
	loop_del_fd(&w->inotify);
	(void)fd_close(w->inotify.fd);
	free(w);
	return NULL;
}

static struct record_file *get_file(struct records_watch *w, int wd)
{
	struct record_file *f = find(w, wd);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f) {
		(void)inotify_rm_watch(w->inotify.fd, wd);
		return NULL;
	}
	*f = (struct record_file){ .watch = w, .wd = wd, .next = *bucket_of(w, wd) };
	*bucket_of(w, wd) = f;
	return f;
}

int records_watch_add(struct records_watch *w, struct record_reader *s, int fd, struct err *e)
{
	struct record_file *f;
	char path[64];
	int wd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(w->inotify.fd, path, IN_MODIFY);
	if (wd < 0)
		return err_errno(e, "cannot watch the record");
	f = get_file(w, wd);
	if (!f)
		return err_oom(e);
	s->file = f;
	s->prev = NULL;
	s->next = f->readers;
	if (s->next)
		s->next->prev = s;
	f->readers = s;
	return 0;
}

static void drop_file(struct record_file *f)
{
	struct record_file **at = bucket_of(f->watch, f->wd);

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	(void)inotify_rm_watch(f->watch->inotify.fd, f->wd);
	free(f);
}

void records_watch_del(struct record_reader *s)
{
	struct record_file *f = s->file;

	if (!f)
		return;
	if (f->watch->next == s)
		f->watch->next = s->next;
	if (s->prev)
		s->prev->next = s->next;
	else
		f->readers = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->file = NULL;
	if (!f->readers)
		drop_file(f);
}
