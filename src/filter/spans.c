/* SPDX-License-Identifier: Apache-2.0 */
/* Finding matches in the buffer of a stream. */
#include <string.h>

#include "base/str.h"
#include "filter/filter-inner.h"

enum {
	CSI_MAX = 24, /* bytes of a terminal's escape sequence */
};

struct search {
	struct filter *f;
	struct spans *s;
	const char *data;
	size_t n;
	size_t base; /* where the searched region begins */
	uint32_t rule;
};

int spans_init(struct spans *s, const struct filter *f)
{
	s->v = calloc(SPANS_MAX, sizeof(*s->v));
	s->region = calloc(REGIONS_MAX + f->rules->n, sizeof(*s->region));
	s->last = calloc(f->rules->n + 1, sizeof(*s->last));
	s->last_span = calloc(f->rules->n + 1, sizeof(*s->last_span));
	return s->v && s->region && s->last && s->last_span ? 0 : -ENOMEM;
}

void spans_done(struct spans *s)
{
	free(s->v);
	free(s->region);
	free(s->last);
	free(s->last_span);
}

/* ---- edges ---- */

static bool is_word(char c)
{
	return ascii_is_lower(ascii_lower(c)) || ascii_is_digit(c) || c == '_';
}

static bool is_hex(char c)
{
	return ascii_is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
}

/* Does a terminal's escape sequence ("\e[1;32m") end here? */
static bool ends_sequence(const char *data, size_t at)
{
	for (size_t i = 2; i <= CSI_MAX && i <= at; i++) {
		const char c = data[at - i];

		if (c == '[')
			return i < at && data[at - i - 1] == '\x1b';
		if (!ascii_is_digit(c) && c != ';')
			return false;
	}
	return false;
}

/* The letter before a match may belong to an escape: "\n" in JSON, "%3D" in a URL, a colour. */
static bool left_is_free(const char *data, size_t at)
{
	if (at == 0 || !is_word(data[at - 1]))
		return true;
	if (at >= 2 && data[at - 2] == '\\' && strchr("nrtbf", data[at - 1]))
		return true;
	if (at >= 3 && data[at - 3] == '%' && is_hex(data[at - 2]) && is_hex(data[at - 1]))
		return true;
	return ends_sequence(data, at);
}

static bool edges_are_free(const struct filter_rule *rule, const struct search *q, size_t from,
			   size_t to)
{
	if (rule->edge & FILTER_EDGE_LEFT && !left_is_free(q->data, from))
		return false;
	return !(rule->edge & FILTER_EDGE_RIGHT) || to == q->n || !is_word(q->data[to]);
}

/* ---- spans ---- */

static int by_start(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->to > y->to ? -1 : x->to < y->to;
}

/* Makes room by joining spans that overlap: what is left are disjoint ones, which always fit. */
static void join(struct spans *s, size_t n_rules)
{
	size_t n = 0;

	qsort(s->v, s->n, sizeof(*s->v), by_start);
	for (size_t i = 0; i < s->n; i++) {
		if (n > 0 && s->v[i].from < s->v[n - 1].to)
			s->v[n - 1].to = MAX(s->v[n - 1].to, s->v[i].to);
		else
			s->v[n++] = s->v[i];
	}
	s->n = n;
	memset(s->last_span, 0, n_rules * sizeof(*s->last_span));
}

static_assert(SPANS_MAX > (FILTER_PIECE + 4 * FILTER_WIDTH_MAX) / FILTER_WIDTH_MIN + 1,
	      "disjoint spans leave room for one more");

static void add_span(struct search *q, struct span span)
{
	struct spans *s = q->s;
	uint32_t *last = span.is_form ? NULL : &s->last_span[span.index];

	/* Hyperscan reports each possible end of a match. */
	if (last && *last > 0 && s->v[*last - 1].from == span.from) {
		s->v[*last - 1].to = MAX(s->v[*last - 1].to, span.to);
		return;
	}
	if (s->n == SPANS_MAX)
		join(s, q->f->rules->n);
	s->v[s->n++] = span;
	if (last)
		*last = (uint32_t)s->n;
}

/* ---- parts of a match ---- */

static bool is_token(char c)
{
	return is_word(c) || (c != '\0' && strchr("./+~-", c));
}

static void cut_word(const char *data, size_t *from, size_t *to)
{
	size_t at = *to;

	while (at > *from && !is_token(data[at - 1]) && data[at - 1] != '=')
		at--;
	*to = at;
	while (at > *from && data[at - 1] == '=')
		at--;
	while (at > *from && is_token(data[at - 1]))
		at--;
	*from = at;
}

/* A password may have other characters than a token. */
static void cut_after(const char *data, size_t *from, size_t to, char c)
{
	for (size_t at = to; at > *from; at--)
		if (data[at - 1] == c) {
			*from = at;
			return;
		}
}

static void cut_part(enum filter_part part, const char *data, size_t *from, size_t *to)
{
	switch (part) {
	case FILTER_PART_WORD:
		cut_word(data, from, to);
		break;
	case FILTER_PART_PASSWORD:
		while (*to > *from && data[*to - 1] != '@')
			(*to)--;
		if (*to > *from)
			(*to)--;
		cut_after(data, from, *to, ':');
		break;
	case FILTER_PART_SPACE:
		cut_after(data, from, *to, ' ');
		break;
	default:
		break;
	}
}

static int on_match(unsigned int id, unsigned long long from, unsigned long long to,
		    unsigned int flags, void *arg)
{
	struct search *q = arg;
	const uint32_t index = q->rule == UINT32_MAX ? id : q->rule;
	const struct filter_rule *rule = &q->f->rules->rule[index];
	size_t a = q->base + (size_t)from, b = q->base + (size_t)to;

	if (!edges_are_free(rule, q, a, b))
		return 0;
	cut_part(rule->part, q->data, &a, &b);
	if (a < b && filter_check_passes(rule->check, q->data + a, b - a))
		add_span(q, (struct span){ .from = a, .to = b, .index = index });
	return 0;
}

/* ---- regions ---- */

static void add_region(struct search *q, const struct filter_literal *literal, size_t to)
{
	const struct filter_rule *rule = &q->f->rules->rule[literal->index];
	const size_t from = to - literal->n;
	const size_t end = MIN(q->n, from + rule->max);
	struct region new = { .rule = literal->index, .to = end };
	struct spans *s = q->s;
	uint32_t *last = &s->last[literal->index];

	if (rule->starts && rule->edge & FILTER_EDGE_LEFT && !left_is_free(q->data, from))
		return;
	new.from = rule->starts ? from : to - MIN(to, rule->max);
	if (*last > 0 && (new.from <= s->region[*last - 1].to || s->n_region >= REGIONS_MAX)) {
		s->region[*last - 1].to = MAX(s->region[*last - 1].to, new.to);
		s->region[*last - 1].from = MIN(s->region[*last - 1].from, new.from);
		return;
	}
	s->region[s->n_region++] = new;
	*last = (uint32_t)s->n_region;
}

static int on_literal(unsigned int id, unsigned long long from, unsigned long long to,
		      unsigned int flags, void *arg)
{
	struct search *q = arg;
	const struct filter_literal *literal = &q->f->literal[id];

	if (literal->is_form)
		add_span(q, (struct span){ .from = (size_t)to - literal->n,
					   .to = (size_t)to,
					   .index = literal->index,
					   .is_form = true });
	else
		add_region(q, literal, (size_t)to);
	return 0;
}

static int search_regions(struct search *q)
{
	for (size_t i = 0; i < q->s->n_region; i++) {
		const struct region *region = &q->s->region[i];
		int r;

		if (region->to - region->from < q->f->rules->rule[region->rule].min)
			continue;
		r = filter_need_pattern(q->f, region->rule);
		if (r < 0)
			return r;
		q->rule = region->rule;
		q->base = region->from;
		if (hs_scan(q->f->pattern[region->rule], q->data + region->from,
			    (unsigned int)(region->to - region->from), 0, q->f->scratch, on_match,
			    q) != HS_SUCCESS)
			return -EIO;
	}
	return 0;
}

static void reset(struct spans *s, size_t n_rules)
{
	if (s->n_region > 0)
		memset(s->last, 0, n_rules * sizeof(*s->last));
	if (s->n > 0)
		memset(s->last_span, 0, n_rules * sizeof(*s->last_span));
	s->n = s->n_region = 0;
}

int spans_find(struct filter *f, struct spans *s, const char *data, size_t n)
{
	struct search q = { .f = f, .s = s, .data = data, .n = n, .rule = UINT32_MAX };
	int r;

	reset(s, f->rules->n);
	if (f->literals && hs_scan(f->literals, data, (unsigned int)n, 0, f->scratch, on_literal,
				   &q) != HS_SUCCESS)
		return -EIO;
	if (f->bare &&
	    hs_scan(f->bare, data, (unsigned int)n, 0, f->scratch, on_match, &q) != HS_SUCCESS)
		return -EIO;
	r = search_regions(&q);
	if (r == 0 && s->n > 1)
		qsort(s->v, s->n, sizeof(*s->v), by_start);
	return r;
}
