/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists sandboxes by state, metadata, template and time, in pages. The token of the next page is
 * the start time and id of the last entry, so a start or end in between shifts no page.
 */
#include <string.h>

#include "base/clock.h"
#include "e2b/e2b.h"

struct list {
	const struct request *r;
	bool running, paused, descending;
	uint64_t after; /* started after this; 0: any time */
	uint64_t limit;
	uint64_t token_time;
	char token_id[SPEC_ID + 1];
	char *template;
	json_t *metadata; /* texts that must match */
	struct box **found;
	size_t n, cap;
};

static void list_done(struct list *l)
{
	free(l->template);
	free(l->found);
	json_decref(l->metadata);
}

static bool has_metadata(const struct box *b, json_t *wanted)
{
	const char *key, *has;
	json_t *value;

	json_object_foreach(wanted, key, value)
	{
		has = json_string_value(json_object_get(b->metadata, key));
		if (!has || !str_eq(has, json_string_value(value)))
			return false;
	}
	return true;
}

static int compare(const struct list *l, uint64_t at, const char *id, const struct box *b)
{
	int r = at < b->spec.created ? -1 : at > b->spec.created;

	if (r == 0)
		r = strcmp(id, b->sandbox.id);
	return l->descending ? -r : r;
}

static bool wanted(const struct list *l, struct box *b)
{
	if (!box_is_for(b, l->r))
		return false;
	box_refresh(b);
	if (b->state == BOX_PAUSED ? !l->paused : !l->running)
		return false;
	if (l->template && !str_eq(b->template, l->template))
		return false;
	if (l->after > 0 && b->spec.created <= l->after)
		return false;
	if (l->metadata && !has_metadata(b, l->metadata))
		return false;
	return l->token_time == 0 || compare(l, l->token_time, l->token_id, b) < 0;
}

static int look(struct box *b, void *arg)
{
	struct list *l = arg;
	struct box **more;

	if (!wanted(l, b))
		return 0;
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 64;
		more = reallocarray(l->found, l->cap, sizeof(struct box *));
		if (!more)
			return -ENOMEM;
		l->found = more;
	}
	l->found[l->n++] = b;
	return 0;
}

static int by_time(const void *a, const void *b, void *arg)
{
	const struct box *one = *(struct box *const *)a;

	return compare(arg, one->spec.created, one->sandbox.id, *(struct box *const *)b);
}

/* ---- query ---- */

/* "running,paused" */
static int take_state(const struct request *r, struct list *l)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, "state", &text);

	if (rc == -ENOENT || (rc == 0 && !text[0])) {
		l->running = l->paused = true;
		return 0;
	}
	if (rc < 0)
		return rc;
	l->running = str_has_word(text, "running");
	l->paused = str_has_word(text, "paused");
	return l->running || l->paused ? 0 : -EINVAL;
}

/* Decodes two more times, because these texts are encoded three times. */
static int decode_twice(const char *text, size_t n, char **ret)
{
	_cleanup_free_ char *once = NULL;
	int r = http_decode(text, n, true, &once);

	return r < 0 ? r : http_decode(once, strlen(once), false, ret);
}

static int add_pair(json_t *j, const char *pair, size_t n)
{
	_cleanup_free_ char *key = NULL, *value = NULL;
	const char *eq = memchr(pair, '=', n);
	int r;

	if (!eq)
		return -EINVAL;
	r = decode_twice(pair, (size_t)(eq - pair), &key);
	if (r == 0)
		r = decode_twice(eq + 1, n - (size_t)(eq + 1 - pair), &value);
	return r < 0 ? r : json_put(j, key, json_string(value));
}

static int take_metadata(const struct request *r, struct list *l)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, "metadata", &text);

	if (rc == -ENOENT || (rc == 0 && !text[0]))
		return 0;
	if (rc == 0 && !(l->metadata = json_object()))
		rc = -ENOMEM;
	for (const char *s = text; rc == 0 && s && *s;) {
		size_t n = strcspn(s, "&");

		rc = json_object_size(l->metadata) < E2B_METADATA_MAX ? add_pair(l->metadata, s, n)
								      : -EINVAL;
		s += n + (s[n] == '&');
	}
	return rc;
}

static int take_number(const struct request *r, const char *name, uint64_t max, uint64_t *ret)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, name, &text);

	if (rc == -ENOENT)
		return 0;
	return rc < 0 ? rc : str_to_u64(text, strlen(text), max, ret);
}

static int take_order(const struct request *r, struct list *l)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, "order", &text);

	l->descending = rc < 0 || !str_eq(text, "asc");
	return rc == -ENOENT || (rc == 0 && (str_eq(text, "asc") || str_eq(text, "desc")))
		       ? 0
		       : -EINVAL;
}

static int take_after(const struct request *r, struct list *l)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, "startedAfter", &text);

	return rc == -ENOENT ? 0 : rc < 0 ? rc : clock_parse(text, &l->after);
}

/* "TIME.ID" */
static int take_token(const struct request *r, struct list *l)
{
	_cleanup_free_ char *text = NULL;
	int rc = http_query(r->x, "nextToken", &text);
	const char *dot;

	if (rc == -ENOENT || (rc == 0 && !text[0]))
		return 0;
	dot = rc == 0 ? strchr(text, '.') : NULL;
	if (!dot || strlen(dot + 1) != SPEC_ID ||
	    str_to_u64(text, (size_t)(dot - text), INT64_MAX, &l->token_time) < 0)
		return -EINVAL;
	(void)snprintf(l->token_id, sizeof(l->token_id), "%s", dot + 1);
	return 0;
}

/* Returns the name of the invalid parameter, or NULL. */
static const char *take_query(const struct request *r, struct list *l)
{
	int rc;

	if (take_state(r, l) < 0)
		return "state";
	if (take_metadata(r, l) < 0)
		return "metadata";
	if (take_order(r, l) < 0)
		return "order";
	if (take_after(r, l) < 0)
		return "startedAfter";
	if (take_number(r, "limit", E2B_PAGE_MAX, &l->limit) < 0 || l->limit == 0)
		return "limit";
	rc = http_query(r->x, "template", &l->template);
	if (rc < 0 && rc != -ENOENT)
		return "template";
	return take_token(r, l) < 0 ? "nextToken" : NULL;
}

/* ---- the answer ---- */

static void answer(struct request *r, struct list *l)
{
	_cleanup_json_ json_t *page = json_array();
	size_t n = MIN(l->n, (size_t)l->limit);
	char token[64];

	for (size_t i = 0; page && i < n; i++)
		if (json_push(page, e2b_info(l->found[i], false)) < 0)
			page = (json_decref(page), NULL);
	if (l->n > n) {
		(void)snprintf(token, sizeof(token), "%llu.%s",
			       (unsigned long long)l->found[n - 1]->spec.created,
			       l->found[n - 1]->sandbox.id);
		http_add_field(r->x, "X-Next-Token", token);
	}
	request_answer(r, 200, TAKE_PTR(page));
}

static void list(struct request *r, bool all)
{
	struct list l = { .r = r, .limit = E2B_PAGE_MAX };
	const char *wrong = take_query(r, &l);

	if (!all) {
		l.paused = false;
		l.limit = BOXES_MAX;
	}
	if (wrong) {
		request_fail(r, 400, "%s: not a value for a list of sandboxes", wrong);
	} else if (box_each(r->api, look, &l) < 0) {
		request_fail(r, 503, "out of memory");
	} else {
		if (l.n > 0)
			qsort_r(l.found, l.n, sizeof(struct box *), by_time, &l);
		answer(r, &l);
	}
	list_done(&l);
}

void e2b_list(struct request *r)
{
	list(r, false);
}

void e2b_list_v2(struct request *r)
{
	list(r, true);
}
