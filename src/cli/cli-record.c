/* SPDX-License-Identifier: Apache-2.0 */
/* Finds records and waits for them. Nothing here talks to a keeper. */
#include "cli/cli-record.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "state/kept.h"
#include "wire/message.h"

enum {
	FILES_MAX = 2 * RECORDS_MAX,
};

/* ---- one record ---- */

/* If no warden holds the lock, the record is final. */
static bool warden_ended(const struct sandbox *b)
{
	_cleanup_close_ int pidfd = -EBADF;
	pid_t pid;

	return state_warden(b->dir, &pidfd, &pid) < 0;
}

int handle_refresh(struct handle *h, struct err *e)
{
	bool over = h->lost || warden_ended(&h->b);
	int r = record_read(h->fd, &h->info, e);

	h->lost = r == 0 && over && h->info.slot.state != RECORD_ENDED;
	return r;
}

/* -ENODATA: the record is not used yet. */
static int open_number(const struct sandbox *b, uint64_t number, struct handle *ret, struct err *e)
{
	char name[RECORD_FILE_NAME];
	int r;

	record_file_name(number, name);
	ret->fd = RETRY_EINTR(openat(b->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
	if (ret->fd < 0 && errno != ENOENT)
		return err_errno(e, "cannot open %s/%llu", b->id, (unsigned long long)number);
	if (ret->fd < 0 && b->ended && kept_is_cut(b->dir))
		return err_set(e, -ENOENT,
			       "the output of sandbox %s was removed to make room: see ended_space "
			       "in hutch-host(5)",
			       b->id);
	if (ret->fd < 0)
		return err_set(e, -ENOENT, "no command %s/%llu: see 'hutch ps -e %s'", b->id,
			       (unsigned long long)number, b->id);
	r = handle_refresh(ret, e);
	if (r == 0 && ret->info.head.number != number)
		r = err_set(e, -EBADMSG, "the record is damaged: its number");
	return r < 0 && r != -ENODATA ? err_wrap(e, "%s/%llu", b->id, (unsigned long long)number)
				      : r;
}

void handle_close(struct handle *h)
{
	h->fd = fd_close(h->fd);
	sandbox_close(&h->b);
}

static int find_name(const char *name, struct handle *ret, struct err *e)
{
	struct handle *list = NULL;
	size_t n = 0, found = SIZE_MAX;
	uint64_t dropped;

	if (record_list(&ret->b, &list, &n, &dropped, e) < 0)
		return e->num;
	for (size_t i = 0; i < n; i++)
		if (str_eq(list[i].info.head.name, name) &&
		    (found == SIZE_MAX || handle_lives(&list[i]) || !handle_lives(&list[found])))
			found = i;
	if (found != SIZE_MAX) {
		ret->fd = TAKE_FD(list[found].fd);
		ret->info = list[found].info;
		ret->lost = list[found].lost;
	}
	record_list_free(list, n);
	return found != SIZE_MAX
		       ? 0
		       : err_set(e, -ENOENT, "no command '%s' in %s: see 'hutch ps -e %s'", name,
				 ret->b.id, ret->b.id);
}

int handle_open(const struct state_root *root, const char *text, struct handle *ret, struct err *e)
{
	const char *slash = strchr(text, '/');
	char id[SPEC_ID + 1];
	uint64_t number;
	int r;

	if (!slash || slash == text || (size_t)(slash - text) > SPEC_ID || !slash[1])
		return err_set(e, -EINVAL,
			       "'%.80s' is not a command: expected ID/NUMBER or ID/NAME", text);
	(void)snprintf(id, sizeof(id), "%.*s", (int)(slash - text), text);
	r = sandbox_find(root, id, &ret->b, e);
	if (r < 0)
		return r;
	if (str_to_u64(slash + 1, strlen(slash + 1), RECORD_NUMBER_MAX, &number) == 0)
		return open_number(&ret->b, number, ret, e);
	if (!record_name_valid(slash + 1, strlen(slash + 1)))
		return err_set(e, -EINVAL, "'%.80s' is not the name of a command", slash + 1);
	return find_name(slash + 1, ret, e);
}

/* ---- all records ---- */

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int read_numbers(int dir, uint64_t *list, size_t max, size_t *ret_n)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	size_t n = 0;

	if (!d)
		return -errno;
	while (n < max && (entry = readdir(d)))
		if (str_has_prefix(entry->d_name, "cmd-") &&
		    str_to_u64(entry->d_name + 4, strlen(entry->d_name + 4), RECORD_NUMBER_MAX,
			       &list[n]) == 0)
			n++;
	(void)closedir(d);
	qsort(list, n, sizeof(list[0]), compare_numbers);
	*ret_n = n;
	return 0;
}

void record_list_free(struct handle *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		list[i].fd = fd_close(list[i].fd); /* the directory belongs to the sandbox */
	free(list);
}

int record_list(const struct sandbox *b, struct handle **ret, size_t *ret_n, uint64_t *ret_dropped,
		struct err *e)
{
	_cleanup_free_ uint64_t *numbers = calloc(FILES_MAX, sizeof(*numbers));
	struct handle *list = NULL;
	uint64_t last = 0;
	size_t n = 0, used = 0, files = 0;
	int r = numbers ? read_numbers(b->dir, numbers, FILES_MAX, &files) : -ENOMEM;

	if (r == 0 && !(list = calloc(files + 1, sizeof(*list))))
		r = -ENOMEM;
	if (r < 0 || !list)
		return err_set(e, r, "cannot list the commands of %s: %s", b->id, strerror(-r));
	for (size_t i = 0; i < files; i++) {
		struct handle h = { .b = *b, .fd = -EBADF };

		r = open_number(b, numbers[i], &h, e);
		if (r < 0) {
			(void)fd_close(h.fd);
			if (r == -ENODATA || r == -ENOENT || r == -EBADMSG)
				continue;
			record_list_free(list, n);
			return r;
		}
		list[n++] = h;
		last = numbers[i];
		used = i + 1;
	}
	*ret = list;
	*ret_n = n;
	*ret_dropped = last - used;
	return 0;
}

int record_newest(const struct sandbox *b, struct handle *ret, struct err *e)
{
	_cleanup_free_ uint64_t *numbers = calloc(FILES_MAX, sizeof(*numbers));
	size_t n = 0;
	int r = numbers ? read_numbers(b->dir, numbers, FILES_MAX, &n) : -ENOMEM;

	if (r < 0)
		return err_set(e, r, "cannot list the commands of %s: %s", b->id, strerror(-r));
	while (n > 0) {
		struct handle h = { .b = *b, .fd = -EBADF };

		if (open_number(b, numbers[--n], &h, e) == 0) {
			*ret = h;
			return 0;
		}
		(void)fd_close(h.fd);
	}
	return err_set(e, -ENOENT, "sandbox %s has run no command", b->id);
}

/* ---- waiting ---- */

int follow_open(const struct handle *h, struct follow *ret, struct err *e)
{
	char path[64];
	pid_t pid;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", h->fd);
	ret->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (ret->inotify < 0 || inotify_add_watch(ret->inotify, path, IN_MODIFY) < 0)
		return err_errno(e, "cannot watch the record");
	(void)state_warden(h->b.dir, &ret->warden, &pid); /* -EBADF: it has ended */
	return 0;
}

int follow_wait(struct follow *f, struct err *e)
{
	struct pollfd p[] = { { .fd = f->inotify, .events = POLLIN },
			      { .fd = f->warden, .events = POLLIN } };
	char events[4096];

	if (f->warden < 0)
		return 0;
	if (RETRY_EINTR(poll(p, ARRAY_SIZE(p), -1)) < 0)
		return err_errno(e, "cannot wait for the command");
	(void)!read(f->inotify, events, sizeof(events));
	if (p[1].revents)
		f->warden = fd_close(f->warden);
	return 0;
}

void follow_close(struct follow *f)
{
	f->inotify = fd_close(f->inotify);
	f->warden = fd_close(f->warden);
}

/* ---- showing ---- */

const char *record_outcome(const struct handle *h, char out[static 32])
{
	const struct record_slot *s = &h->info.slot;

	if (s->state != RECORD_ENDED)
		(void)snprintf(out, 32, "%s", record_state_names[h->lost ? RECORD_LOST : s->state]);
	else if (s->how == RECORD_EXITED)
		(void)snprintf(out, 32, "exit %u", s->value);
	else if (s->how == RECORD_SIGNALED)
		(void)snprintf(out, 32, "signal %u", s->value);
	else
		(void)snprintf(out, 32, "%s", wire_code_name(s->value));
	return out;
}

static json_t *argv_json(const struct record_head *h)
{
	json_t *list = json_array();

	for (uint64_t at = 0; at < h->shown; at += strlen(h->argv + at) + 1)
		if (json_push(list, cli_json_text(h->argv + at)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *time_json(uint64_t time)
{
	char text[CLOCK_RFC3339_MAX];

	return time > 0 ? json_string(clock_format(time, text)) : json_null();
}

/* A number from an untrusted file. */
static json_t *number_json(uint64_t n)
{
	return json_number(MIN(n, (uint64_t)INT64_MAX));
}

static json_t *end_json(const struct handle *h)
{
	const struct record_slot *s = &h->info.slot;

	if (s->state != RECORD_ENDED)
		return json_null();
	return JSON_OBJECT(
		{ "time", time_json(s->ended) },
		{ "exit", s->how == RECORD_EXITED ? json_number(s->value) : json_null() },
		{ "signal", s->how == RECORD_SIGNALED ? json_number(s->value) : json_null() },
		{ "error",
		  s->how == RECORD_CLOSED ? json_string(wire_code_name(s->value)) : json_null() },
		{ "text", s->text[0] ? cli_json_text(s->text) : json_null() },
		{ "user_us", number_json(s->user_us) }, { "system_us", number_json(s->system_us) },
		{ "max_rss_kib", number_json(s->max_rss_kib) });
}

json_t *record_json(const struct handle *h)
{
	const struct record_head *head = &h->info.head;
	const struct record_slot *s = &h->info.slot;
	struct err ignored = ERR_INIT;
	char handle[64];
	uint64_t dropped = 0;

	(void)record_dropped(h->fd, &h->info, &dropped, &ignored);
	(void)snprintf(handle, sizeof(handle), "%s/%llu", h->b.id,
		       (unsigned long long)head->number);
	return JSON_OBJECT(
		{ "handle", json_string(handle) }, { "number", json_number(head->number) },
		{ "name", head->name[0] ? json_string(head->name) : json_null() },
		{ "state", json_string(record_state_names[h->lost ? RECORD_LOST : s->state]) },
		{ "started", time_json(head->start) }, { "end", end_json(h) },
		{ "pid", json_number(s->pid) }, { "stdout", number_json(s->bytes[0]) },
		{ "stderr", number_json(s->bytes[1]) }, { "dropped", number_json(dropped) },
		{ "user", cli_json_text(head->user) }, { "cwd", cli_json_text(head->cwd) },
		{ "terminal", json_boolean(head->flags & RECORD_TERMINAL) },
		{ "argv", argv_json(head) }, { "argv_bytes", number_json(head->argv_bytes) },
		{ "argv_cut", json_boolean(head->flags & RECORD_CUT) });
}
