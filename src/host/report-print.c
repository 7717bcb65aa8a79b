/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the report for people. One line per check: sign, title, value; below a bad one, what it
 * means. Then the verdicts, then what to do, most urgent first.
 */
#include <string.h>
#include <sys/ioctl.h>

#include "base/str.h"
#include "host/host.h"

enum {
	WIDTH_MIN = 60,
	WIDTH_MAX = 100,
	SIGN_COL = 2,	/* where signs begin */
	LEVEL_COL = 9,	/* the longest name of a level */
	TITLE_COL = 8,	/* titles */
	VALUE_COL = 32, /* values, and the text below them */
};

struct out {
	FILE *f;
	bool color;
	size_t width;
};

static const struct sign {
	const char *plain, *symbol, *color;
} state_signs[] = {
	[HOST_OK] = { "ok", "\u2713", "32" },
	[HOST_INFO] = { "info", "\u00b7", "36" },
	[HOST_WARN] = { "warn", "!", "33" },
	[HOST_FAIL] = { "FAIL", "\u2717", "31" },
};
static_assert(ARRAY_SIZE(state_signs) == HOST_STATE_MAX, "a state without a sign");

static const char *const verdict_colors[] = {
	[HOST_READY] = "32",
	[HOST_LIMITED] = "33",
	[HOST_UNAVAILABLE] = "31",
};
static_assert(ARRAY_SIZE(verdict_colors) == HOST_VERDICT_MAX, "a verdict without a color");

static const char *const area_titles[] = {
	[HOST_AREA_KERNEL] = "Kernel",	   [HOST_AREA_CGROUPS] = "Control groups",
	[HOST_AREA_ENGINES] = "Engines",   [HOST_AREA_USERS] = "Users",
	[HOST_AREA_STORAGE] = "Storage",   [HOST_AREA_SECRETS] = "Secrets",
	[HOST_AREA_HARDWARE] = "Hardware",
};
static_assert(ARRAY_SIZE(area_titles) == HOST_AREA_MAX, "an area without a title");

/* Counts characters, which equals columns without double-width characters. */
static size_t columns(const char *s, size_t n)
{
	size_t c = 0;

	for (size_t i = 0; i < n; i++)
		c += ((unsigned char)s[i] & 0xc0) != 0x80;
	return c;
}

static void paint(const struct out *o, const char *color, const char *text)
{
	if (o->color)
		(void)fprintf(o->f, "\033[%sm%s\033[0m", color, text);
	else
		(void)fputs(text, o->f);
}

static void indent(const struct out *o, size_t from, size_t to)
{
	(void)fprintf(o->f, "%*s", from < to ? (int)(to - from) : 1, "");
}

/* Prints `text` from column `at`, wrapped at spaces; further lines start at `left`. */
static void wrap(const struct out *o, const char *text, size_t at, size_t left)
{
	bool first = true;

	while (*(text += strspn(text, " "))) {
		size_t n = strcspn(text, " "), cols = columns(text, n);

		if (!first && at + 1 + cols > o->width) {
			(void)fputc('\n', o->f);
			indent(o, 0, left);
			at = left;
		} else if (!first) {
			(void)fputc(' ', o->f);
			at++;
		}
		(void)fwrite(text, 1, n, o->f);
		at += cols;
		text += n;
		first = false;
	}
	(void)fputc('\n', o->f);
}

static void print_check(const struct out *o, const struct host_check *c)
{
	const struct sign *s = &state_signs[c->state];
	const char *sign = o->color ? s->symbol : s->plain;
	size_t title = columns(c->title, strlen(c->title));

	indent(o, 0, SIGN_COL);
	paint(o, s->color, sign);
	indent(o, SIGN_COL + columns(sign, strlen(sign)), TITLE_COL);
	(void)fputs(c->title, o->f);
	indent(o, TITLE_COL + title, VALUE_COL);
	wrap(o, c->value, MAX((size_t)VALUE_COL, TITLE_COL + title + 1), VALUE_COL);
	if (c->state == HOST_OK || !c->detail[0])
		return;
	indent(o, 0, VALUE_COL);
	if (o->color)
		(void)fputs("\033[2m", o->f);
	wrap(o, c->detail, VALUE_COL, VALUE_COL);
	if (o->color)
		(void)fputs("\033[0m", o->f);
}

static void print_areas(const struct out *o, const struct host_report *r)
{
	for (enum host_area a = 0; a < HOST_AREA_MAX; a++) {
		(void)fputc('\n', o->f);
		paint(o, "1", area_titles[a]);
		(void)fputc('\n', o->f);
		for (size_t i = 0; i < r->n_checks; i++)
			if (r->checks[i].area == a)
				print_check(o, &r->checks[i]);
	}
}

static void print_levels(const struct out *o, const struct host_report *r)
{
	const size_t verdict_col = SIGN_COL + LEVEL_COL + 2;
	const size_t why_col = verdict_col + STRLEN("unavailable") + 2;

	(void)fputc('\n', o->f);
	paint(o, "1", "Isolation levels");
	(void)fputc('\n', o->f);
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++) {
		const char *name = level_names[l];
		const char *verdict = host_verdict_name(r->levels[l].verdict);

		indent(o, 0, SIGN_COL);
		(void)fputs(name, o->f);
		indent(o, SIGN_COL + strlen(name), verdict_col);
		paint(o, verdict_colors[r->levels[l].verdict], verdict);
		indent(o, verdict_col + strlen(verdict), why_col);
		wrap(o, r->levels[l].why, why_col, why_col);
	}
}

/* True if an earlier check of the same state gives the same advice. */
static bool said_before(const struct host_report *r, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (r->checks[k].state == r->checks[i].state &&
		    str_eq(r->checks[k].advice, r->checks[i].advice))
			return true;
	return false;
}

/* Prints the advice of all checks in one state, numbered from `n` on. */
static size_t print_steps(const struct out *o, const struct host_report *r, enum host_state s,
			  size_t n)
{
	for (size_t i = 0; i < r->n_checks; i++) {
		const struct host_check *c = &r->checks[i];
		const char *title = c->title + strspn(c->title, " ");
		char head[HOST_SHORT_MAX];

		if (c->state != s || !c->advice[0] || said_before(r, i))
			continue;
		n++;
		if (s == HOST_INFO)
			(void)snprintf(head, sizeof(head), "-  %s: ", title);
		else
			(void)snprintf(head, sizeof(head), "%zu. %s: ", n, title);
		indent(o, 0, SIGN_COL);
		(void)fputs(head, o->f);
		wrap(o, c->advice, SIGN_COL + strlen(head), SIGN_COL + 3);
	}
	return n;
}

static void print_next(const struct out *o, const struct host_report *r)
{
	size_t n, optional = 0;

	(void)fputc('\n', o->f);
	paint(o, "1", "Next steps");
	(void)fputc('\n', o->f);
	n = print_steps(o, r, HOST_FAIL, 0);
	n = print_steps(o, r, HOST_WARN, n);
	if (n == 0)
		(void)fprintf(o->f, "%*sNothing to do.\n", SIGN_COL, "");
	for (size_t i = 0; i < r->n_checks; i++)
		optional += r->checks[i].state == HOST_INFO && r->checks[i].advice[0];
	if (optional == 0)
		return;
	(void)fputc('\n', o->f);
	paint(o, "1", "Optional");
	(void)fputc('\n', o->f);
	(void)print_steps(o, r, HOST_INFO, 0);
}

int host_report_print_width(const struct host_report *r, FILE *f, bool color, size_t width)
{
	struct out o = { .f = f, .color = color };
	char head[5 * HOST_SHORT_MAX];

	o.width = MIN(MAX(width, (size_t)WIDTH_MIN), (size_t)WIDTH_MAX);
	(void)snprintf(head, sizeof(head), "%s, Linux %s on %s, as %s", r->os, r->kernel, r->arch,
		       r->user);
	wrap(&o, head, 0, SIGN_COL);
	print_areas(&o, r);
	print_levels(&o, r);
	print_next(&o, r);
	return fflush(f) == EOF || ferror(f) ? -EIO : 0;
}

int host_report_print(const struct host_report *r, FILE *f, bool color)
{
	struct winsize ws = { 0 };
	size_t width = WIDTH_MAX;

	if (ioctl(fileno(f), TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
		width = ws.ws_col;
	return host_report_print_width(r, f, color, width);
}
