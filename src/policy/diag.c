/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/diag.h"

#include <stdarg.h>
#include <string.h>

#include "base/str.h"

enum {
	DIAG_TEXT_MAX = 512
};

void diags_done(struct diags *d)
{
	arena_done(&d->arena);
	*d = (struct diags){ 0 };
}

void diag_add(struct diags *d, enum diag_level level, struct pos pos, const char *key,
	      const char *hint, const char *fmt, ...)
{
	char text[DIAG_TEXT_MAX], *k, *t, *h;
	va_list ap;

	assert(pos.src && pos.line > 0);
	d->errors += level == DIAG_ERROR;
	if (d->n == DIAG_MAX) {
		d->dropped++;
		return;
	}
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	k = arena_strdup(&d->arena, key);
	t = arena_strdup(&d->arena, text);
	h = hint ? arena_strdup(&d->arena, hint) : NULL;
	if (!k || !t || (hint && !h)) {
		d->oom = true;
		return;
	}
	/* Truncation may have split a character. */
	str_make_utf8(k);
	str_make_utf8(t);
	d->list[d->n++] =
		(struct diag){ .level = level, .pos = pos, .key = k, .text = t, .hint = h };
}

static int compare(const void *x, const void *y)
{
	const struct diag *a = x, *b = y;
	int d = strcmp(a->pos.src->label, b->pos.src->label);

	if (d == 0)
		d = a->pos.line < b->pos.line ? -1 : a->pos.line > b->pos.line;
	if (d == 0)
		d = a->pos.column < b->pos.column ? -1 : a->pos.column > b->pos.column;
	return d != 0 ? d : strcmp(a->text, b->text);
}

void diags_sort(struct diags *d)
{
	qsort(d->list, d->n, sizeof(d->list[0]), compare);
}

int diags_result(const struct diags *d)
{
	if (d->oom)
		return -ENOMEM;
	return d->errors > 0 ? -EINVAL : 0;
}

int diags_outcome(struct diags *d, const char *label, struct err *e)
{
	int r = diags_result(d);

	diags_sort(d);
	if (r == -ENOMEM)
		return err_oom(e);
	if (r < 0)
		return err_set(e, r, "%s: %zu error%s", label, d->errors,
			       d->errors == 1 ? "" : "s");
	return 0;
}

int diag_format(const struct diag *g, struct buf *b)
{
	(void)str_escape(b, g->pos.src->label, strlen(g->pos.src->label));
	(void)buf_printf(b, ":%u:%u: %s: ", g->pos.line, g->pos.column,
			 g->level == DIAG_ERROR ? "error" : "warning");
	if (g->key[0]) {
		(void)str_escape(b, g->key, strlen(g->key));
		(void)buf_puts(b, ": ");
	}
	(void)str_escape(b, g->text, strlen(g->text));
	if (g->hint) {
		(void)buf_puts(b, "; ");
		(void)str_escape(b, g->hint, strlen(g->hint));
	}
	return b->err;
}

int diags_first(const struct diags *d, int num, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

	for (size_t i = 0; i < d->n; i++)
		if (d->list[i].level == DIAG_ERROR && diag_format(&d->list[i], &b) == 0)
			return err_set(e, num, "%s", buf_text(&b));
	return num;
}
