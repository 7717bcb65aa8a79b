/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of rules: a strict part of the regular expressions that Hyperscan understands. */
#include <string.h>

#include "base/str.h"
#include "filter/rules.h"

enum {
	DEPTH_MAX = 8,
	REPEAT_MAX = 256,
};

struct pattern {
	const char *all, *at;
	struct err *e;
};

struct width {
	size_t min, max;
};

static int read_choice(struct pattern *p, unsigned int depth, struct width *ret);

static int wrong(struct pattern *p, const char *why)
{
	return err_set(p->e, -EINVAL, "invalid pattern: %s at byte %zu", why,
		       (size_t)(p->at - p->all) + 1);
}

static bool is_letter(char c)
{
	return ascii_is_lower(ascii_lower(c));
}

/* "\." and "\t"; "\d" and others are classes whose contents a reader has to look up. */
static int read_escape(struct pattern *p)
{
	const char c = p->at[1];

	if (c != 't' && (is_letter(c) || ascii_is_digit(c) || c < ' ' || c > '~'))
		return wrong(p, "only punctuation and 't' may follow a backslash");
	p->at += 2;
	return 0;
}

static int read_class(struct pattern *p)
{
	p->at++;
	if (*p->at == '^' || *p->at == ']')
		return wrong(p, "a class lists its characters, and begins with neither '^' nor "
				"']'");
	while (*p->at != ']') {
		if (*p->at == '\0' || *p->at == '[')
			return wrong(p, "unfinished class, or '[' in a class");
		if (*p->at == '\\') {
			if (read_escape(p) < 0)
				return -EINVAL;
		} else {
			p->at++;
		}
	}
	p->at++;
	return 0;
}

static int read_group(struct pattern *p, unsigned int depth, struct width *ret)
{
	if (!str_has_prefix(p->at, "(?:") || depth == DEPTH_MAX)
		return wrong(p, "a group begins with '(?:', and there are at most 8 in each other");
	p->at += 3;
	if (read_choice(p, depth + 1, ret) < 0)
		return -EINVAL;
	if (*p->at != ')')
		return wrong(p, "unfinished group");
	p->at++;
	return 0;
}

static int read_atom(struct pattern *p, unsigned int depth, struct width *ret)
{
	*ret = (struct width){ 1, 1 };
	switch (*p->at) {
	case '[':
		return read_class(p);
	case '(':
		return read_group(p, depth, ret);
	case '\\':
		return read_escape(p);
	case '.':
	case '*':
	case '+':
	case '?':
	case '^':
	case '$':
	case '{':
	case '}':
	case ']':
		return wrong(p, "this character needs a backslash");
	default:
		p->at++;
		return 0;
	}
}

static int read_number(struct pattern *p, size_t *ret)
{
	size_t n = strspn(p->at, "0123456789");
	uint64_t value;

	if (str_to_u64(p->at, n, REPEAT_MAX, &value) < 0)
		return wrong(p, "a repetition is a number of at most 256");
	p->at += n;
	*ret = (size_t)value;
	return 0;
}

static int read_repeat(struct pattern *p, struct width *w)
{
	size_t low = 0, high = 0;

	if (*p->at == '?') {
		p->at++;
		w->min = 0;
		return 0;
	}
	if (*p->at != '{')
		return 0;
	p->at++;
	if (read_number(p, &low) < 0)
		return -EINVAL;
	high = low;
	if (*p->at == ',') {
		p->at++;
		if (read_number(p, &high) < 0)
			return -EINVAL;
	}
	if (*p->at != '}' || high < low || high == 0)
		return wrong(p, "invalid repetition");
	p->at++;
	w->min *= low;
	w->max *= high;
	return 0;
}

static int read_sequence(struct pattern *p, unsigned int depth, struct width *ret)
{
	struct width all = { 0 }, w = { 0 };

	while (*p->at && *p->at != '|' && *p->at != ')') {
		if (read_atom(p, depth, &w) < 0 || read_repeat(p, &w) < 0)
			return -EINVAL;
		all.min += w.min;
		all.max += w.max;
		if (all.max > FILTER_WIDTH_MAX)
			return wrong(p, "matches are longer than 256 bytes");
	}
	*ret = all;
	return 0;
}

static int read_choice(struct pattern *p, unsigned int depth, struct width *ret)
{
	struct width all = { 0 }, w = { 0 };

	if (read_sequence(p, depth, &all) < 0)
		return -EINVAL;
	while (*p->at == '|') {
		p->at++;
		if (read_sequence(p, depth, &w) < 0)
			return -EINVAL;
		all.min = MIN(all.min, w.min);
		all.max = MAX(all.max, w.max);
	}
	*ret = all;
	return 0;
}

int filter_pattern_width(const char *pattern, size_t *ret_min, size_t *ret_max, struct err *e)
{
	struct pattern p = { .all = pattern, .at = pattern, .e = e };
	struct width w = { 0 };

	for (const char *c = pattern; *c; c++)
		if (*c < ' ' || *c > '~')
			return err_set(e, -EINVAL, "invalid pattern: byte %zu is not ASCII text",
				       (size_t)(c - pattern) + 1);
	if (read_choice(&p, 0, &w) < 0)
		return -EINVAL;
	if (*p.at)
		return wrong(&p, "')' without a group");
	if (w.min < FILTER_WIDTH_MIN)
		return err_set(e, -EINVAL,
			       "invalid pattern: a match of %zu bytes is possible, less than 6",
			       w.min);
	*ret_min = w.min;
	*ret_max = w.max;
	return 0;
}
