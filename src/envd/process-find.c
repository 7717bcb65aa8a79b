/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds commands by their records. A sandbox keeps thousands of ended commands, and few are asked
 * for. So a box remembers the numbers of unfinished commands, which it checks each time, and the
 * highest known number; it reads only newer names from the directory.
 */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "envd/process.h"

enum {
	NUMBERS_MAX = 2 * RECORDS_MAX,
};

/* ---- one ---- */

int record_open(struct box *b, uint64_t number, struct found *ret, struct err *e)
{
	_cleanup_found_ struct found f = FOUND_INIT;
	char name[RECORD_FILE_NAME];
	int r;

	record_file_name(number, name);
	f.fd = RETRY_EINTR(
		openat(b->sandbox.dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
	if (f.fd < 0)
		return err_errno(e, "cannot open the record of the command");
	r = record_read(f.fd, &f.info, e);
	if (r < 0)
		return r;
	if (f.info.head.number != number)
		return err_set(e, -EBADMSG, "the record is damaged: its number");
	*ret = f;
	f.fd = -EBADF;
	return 0;
}

int selector_read(const json_t *message, struct selector *ret, struct err *e)
{
	struct selector s = { 0 };
	const json_t *process = NULL;
	uint64_t pid = 0;

	if (member_object(message, "process", &process, e) < 0 ||
	    member_number(process, "pid", INT32_MAX, &pid, e) < 0 ||
	    member_text(process, "tag", &s.tag, e) < 0)
		return e->num;
	if (s.tag ? pid > 0 : pid == 0)
		return err_set(e, -EINVAL, "'process' has to name a pid or a tag");
	s.pid = (uint32_t)pid;
	*ret = s;
	return 0;
}

bool selector_matches(const struct selector *s, uint32_t pid, const char *name)
{
	return s->tag ? name[0] != '\0' && str_eq(s->tag, name) : pid == s->pid;
}

/* ---- relevant commands ---- */

struct commands *commands_of(struct box *b)
{
	if (!b->commands)
		b->commands = calloc(1, sizeof(*b->commands));
	return b->commands;
}

/* Calls are closed with the connection, without a message. */
void commands_drop(struct box *b)
{
	struct commands *c = TAKE_PTR(b->commands);

	if (!c)
		return;
	while (c->lines) {
		struct line *l = c->lines;

		c->lines = l->next;
		free(l);
	}
	free(c->numbers);
	free(c);
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Appends the numbers above `above` to the list, ascending. */
static int read_numbers(int dir, uint64_t above, uint64_t *list, size_t *n)
{
	const size_t before = *n;
	DIR *d = fd_list(dir);
	struct dirent *entry;
	uint64_t number;

	if (!d)
		return -errno;
	while (*n < NUMBERS_MAX && (entry = readdir(d)))
		if (str_has_prefix(entry->d_name, "cmd-") &&
		    str_to_u64(entry->d_name + 4, strlen(entry->d_name + 4), RECORD_NUMBER_MAX,
			       &number) == 0 &&
		    number > above)
			list[(*n)++] = number;
	(void)closedir(d);
	qsort(list + before, *n - before, sizeof(list[0]), compare);
	return 0;
}

/* Whether a command may still be asked for: not ended, or ended just now. */
static bool matters(int r, const struct record_info *info)
{
	if (r < 0)
		return r != -ENOENT; /* a spare record, or one being written */
	return info->slot.state != RECORD_ENDED ||
	       clock_wall() < info->slot.ended + PROCESS_REPLAY_S * NSEC_PER_SEC;
}

static int learn(struct box *b, struct commands *c, struct err *e)
{
	int r;

	if (!c->numbers)
		c->numbers = calloc(NUMBERS_MAX, sizeof(*c->numbers));
	if (!c->numbers)
		return err_oom(e);
	r = read_numbers(b->sandbox.dir, c->high, c->numbers, &c->n);
	if (r < 0)
		return err_set(e, r, "cannot list the commands: %s", strerror(-r));
	if (c->n > 0)
		c->high = MAX(c->high, c->numbers[c->n - 1]);
	return 0;
}

/* Calls fn for each, newest first, until it returns 1; drops those that are over. */
static int each(struct box *b, int (*fn)(struct found *f, void *arg), void *arg, struct err *e)
{
	struct commands *c = commands_of(b);
	int r = c ? learn(b, c, e) : err_oom(e);

	for (size_t i = c && r == 0 ? c->n : 0; i > 0 && r == 0; i--) {
		_cleanup_found_ struct found f = FOUND_INIT;
		struct err ignored = ERR_INIT;
		int k = record_open(b, c->numbers[i - 1], &f, &ignored);

		if (!matters(k, &f.info)) {
			c->n--;
			memmove(&c->numbers[i - 1], &c->numbers[i],
				(c->n - (i - 1)) * sizeof(c->numbers[0]));
		} else if (k == 0) {
			r = fn(&f, arg);
		}
	}
	return r;
}

/* ---- by pid or name ---- */

struct finding {
	const struct selector *selector;
	struct found *ret;
};

static int take_match(struct found *f, void *arg)
{
	const struct finding *x = arg;

	if (!selector_matches(x->selector, f->info.slot.pid, f->info.head.name))
		return 0;
	*x->ret = *f;
	f->fd = -EBADF;
	return 1;
}

/* Searches all kept records. */
static int search(struct box *b, struct finding *x, struct err *e)
{
	_cleanup_free_ uint64_t *list = calloc(NUMBERS_MAX, sizeof(*list));
	size_t n = 0;
	int r = list ? read_numbers(b->sandbox.dir, 0, list, &n) : -ENOMEM;

	if (r < 0)
		return err_set(e, r, "cannot list the commands: %s", strerror(-r));
	for (; n > 0 && r == 0; n--) {
		_cleanup_found_ struct found f = FOUND_INIT;
		struct err ignored = ERR_INIT;

		if (record_open(b, list[n - 1], &f, &ignored) == 0)
			r = take_match(&f, x);
	}
	return r;
}

int command_find(struct box *b, const struct selector *s, bool all, struct found *ret,
		 struct err *e)
{
	struct finding x = { s, ret };
	int r = all ? search(b, &x, e) : each(b, take_match, &x, e);

	if (r != 0)
		return MIN(r, 0);
	return s->tag ? err_set(e, -ENOENT, "process with tag '%.80s' not found", s->tag)
		      : err_set(e, -ENOENT, "process with pid %u not found", s->pid);
}

/* ---- list ---- */

/* Converts a command's text, which may be any bytes. */
static json_t *text_json(const char *text)
{
	_cleanup_free_ char *copy = strdup(text);

	if (!copy)
		return NULL;
	str_make_utf8(copy);
	return json_string(copy);
}

static json_t *config_json(const struct record_head *h)
{
	json_t *args = json_array(), *cmd = NULL;
	int r = args ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < h->shown; at += strlen(h->argv + at) + 1) {
		if (at > 0)
			r = json_push(args, text_json(h->argv + at));
		else
			cmd = text_json(h->argv);
	}
	if (r < 0) {
		json_decref(args);
		json_decref(cmd);
		return NULL;
	}
	return JSON_OBJECT({ "cmd", cmd ? cmd : json_string("") }, { "args", args },
			   { "envs", json_object() }, { "cwd", text_json(h->cwd) });
}

static json_t *command_json(const struct record_info *info)
{
	json_t *j = JSON_OBJECT({ "config", config_json(&info->head) },
				{ "pid", json_number(info->slot.pid) });

	if (j && info->head.name[0] && json_put(j, "tag", json_string(info->head.name)) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static int push_running(struct found *f, void *arg)
{
	if (f->info.slot.state != RECORD_RUNNING)
		return 0;
	return json_push(arg, command_json(&f->info));
}

json_t *command_list(struct box *b, struct err *e)
{
	json_t *list = json_array();
	int r = list ? each(b, push_running, list, e) : err_oom(e);

	if (r == 0)
		return list;
	json_decref(list);
	if (e->num == 0)
		(void)err_oom(e);
	return NULL;
}
