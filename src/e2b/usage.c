/* SPDX-License-Identifier: Apache-2.0 */
/* Resource usage and logs of E2B sandboxes. */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "e2b/e2b.h"
#include "state/record.h"

enum {
	LOG_MAX = 1000,
};

/* ---- metrics ---- */

void e2b_metrics(struct request *r)
{
	struct box *b = request_box(r);
	json_t *list;

	if (!b)
		return;
	list = json_array();
	if (list && json_push(list, box_metric(b)) < 0)
		list = (json_decref(list), NULL);
	request_answer(r, 200, list);
}

static int add_metric(struct request *r, json_t *all, const char *id, size_t n)
{
	char text[SPEC_ID + 1];
	struct box *b;

	if (n != SPEC_ID)
		return 0;
	(void)snprintf(text, sizeof(text), "%.*s", (int)n, id);
	b = box_find(r->api, text);
	return b && box_is_for(b, r) ? json_put(all, text, box_metric(b)) : 0;
}

void e2b_metrics_all(struct request *r)
{
	_cleanup_json_ json_t *all = json_object();
	_cleanup_free_ char *ids = NULL;
	int rc = http_query(r->x, "sandbox_ids", &ids);

	if (rc < 0) {
		request_fail(r, 400, "sandbox_ids: expected ids separated by commas");
		return;
	}
	for (const char *s = ids; all && rc == 0 && *s;) {
		size_t n = strcspn(s, ",");

		rc = add_metric(r, all, s, n);
		s += n + (s[n] == ',');
	}
	request_answer(r, 200,
		       rc == 0 && all ? JSON_OBJECT({ "sandboxes", json_incref(all) }) : NULL);
}

/* ---- logs: commands that were run, also in an ended sandbox ---- */

static json_t *entry(uint64_t when, const char *message, const struct record_info *info)
{
	char text[CLOCK_RFC3339_MAX];

	return JSON_OBJECT({ "timestamp", json_string(clock_format(when, text)) },
			   { "level", json_string("info") }, { "message", json_string(message) },
			   { "fields", JSON_OBJECT({ "command", json_number(info->head.number) },
						   { "pid", json_number(info->slot.pid) }) });
}

static int add_command(json_t *list, const struct record_info *info)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8 * RECORD_ARGV);
	char ended[96];
	int r;

	(void)buf_puts(&b, "started:");
	for (size_t i = 0; i < info->head.shown; i += strlen(info->head.argv + i) + 1) {
		(void)buf_putc(&b, ' ');
		(void)str_escape(&b, info->head.argv + i, strlen(info->head.argv + i));
	}
	r = json_push(list, entry(info->head.start, buf_text(&b), info));
	if (info->slot.state != RECORD_ENDED)
		return r;
	(void)snprintf(ended, sizeof(ended), "%s %u",
		       info->slot.how == RECORD_EXITED	   ? "ended: exit status"
		       : info->slot.how == RECORD_SIGNALED ? "ended: signal"
							   : "ended: code",
		       info->slot.value);
	return r | json_push(list, entry(info->slot.ended, ended, info));
}

static json_t *logs(int dir)
{
	_cleanup_json_ json_t *list = json_array();
	char name[RECORD_FILE_NAME];
	struct err ignored = ERR_INIT;
	struct record_info info;

	for (uint64_t i = 1; list && i <= RECORDS_MAX; i++) {
		_cleanup_close_ int fd = -EBADF;

		record_file_name(i, name);
		fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0 || json_array_size(list) >= LOG_MAX)
			break;
		if (record_read(fd, &info, &ignored) == 0 && add_command(list, &info) < 0)
			return NULL;
	}
	return TAKE_PTR(list);
}

void e2b_logs_v2(struct request *r)
{
	_cleanup_close_ int dir = request_dir(r);

	if (dir >= 0)
		request_answer(r, 200, JSON_OBJECT({ "logs", logs(dir) }));
}

static json_t *lines(const json_t *entries)
{
	_cleanup_json_ json_t *list = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach(entries, i, one)
	{
		if (list &&
		    json_push(
			    list,
			    JSON_OBJECT(
				    { "timestamp", json_incref(json_object_get(one, "timestamp")) },
				    { "line", json_incref(json_object_get(one, "message")) })) < 0)
			return NULL;
	}
	return TAKE_PTR(list);
}

void e2b_logs(struct request *r)
{
	_cleanup_json_ json_t *entries = NULL;
	_cleanup_close_ int dir = request_dir(r);

	if (dir < 0)
		return;
	entries = logs(dir);
	request_answer(
		r, 200,
		JSON_OBJECT({ "logs", lines(entries) }, { "logEntries", json_incref(entries) }));
}

void e2b_teams(struct request *r)
{
	json_t *team =
		JSON_OBJECT({ "teamID", json_string("hutch") }, { "name", json_string("hutch") },
			    { "apiKey", json_string("") }, { "isDefault", json_true() });
	json_t *list = json_array();

	if (!list || json_push(list, team) < 0)
		list = (json_decref(list), NULL);
	request_answer(r, 200, list);
}
