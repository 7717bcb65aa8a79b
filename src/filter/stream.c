/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream's buffer has released bytes, which matches may still begin in, and then held ones. Each
 * round searches the whole buffer, and decides about the bytes in front of a point that no unknown
 * match can reach back over.
 */
#include <string.h>

#include "base/str.h"
#include "filter/filter-inner.h"

enum {
	CONTEXT = 32, /* bytes before a match that its edge may depend on */
	KEPT = FILTER_WIDTH_MAX + CONTEXT,
	BUFFER = FILTER_PIECE + KEPT + FILTER_HELD_MAX,
	PEM_DASHES = 5,
};
static_assert(BUFFER < FILTER_PIECE + 4 * FILTER_WIDTH_MAX, "as spans.c expects");

/* Bytes after a match that are taken out, too. */
struct tail {
	enum filter_tail kind;
	size_t left;		   /* at most so many */
	size_t form, at;	   /* FILTER_TAIL_VALUE: the byte of the form that is expected */
	unsigned int dashes, runs; /* FILTER_TAIL_PEM: of the "-----" around its END */
};

struct filter_stream {
	struct filter *f;
	enum filter_action action;
	filter_hit *hit;
	void *arg;
	struct spans spans;
	size_t len, released;
	uint64_t base;	  /* offset of the buffer's first byte in the stream */
	uint64_t covered; /* offset of the end of the last match */
	struct tail tail;
	bool blocked;
	int error;
	char buffer[BUFFER];
};

struct filter_stream *filter_stream_new(struct filter *f, enum filter_action action,
					filter_hit *hit, void *arg)
{
	struct filter_stream *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	memset(s, 0, offsetof(struct filter_stream, buffer));
	s->f = f;
	s->action = action;
	s->hit = hit;
	s->arg = arg;
	return spans_init(&s->spans, f) < 0 ? filter_stream_free(s) : s;
}

struct filter_stream *filter_stream_free(struct filter_stream *s)
{
	if (!s)
		return NULL;
	spans_done(&s->spans);
	explicit_bzero(s->buffer, s->len);
	free(s);
	return NULL;
}

size_t filter_held(const struct filter_stream *s)
{
	return s->action == FILTER_REPORT ? 0 : s->len - s->released;
}

/* ---- tails ---- */

static bool is_alnum(char c)
{
	return ascii_is_lower(ascii_lower(c)) || ascii_is_digit(c);
}

static bool takes_token(const struct filter_stream *s, size_t at)
{
	const char c = s->buffer[at];

	return is_alnum(c) || (c != '\0' && strchr("._+/=~-", c));
}

/* The body, with headers ("Proc-Type: 4,ENCRYPTED") and escaped line ends, up to the END line. */
static bool takes_pem(struct filter_stream *s, size_t at)
{
	const char c = s->buffer[at], before = at > 0 ? s->buffer[at - 1] : '\n';
	struct tail *t = &s->tail;

	if (t->runs == 2)
		return false;
	t->dashes = c == '-' ? t->dashes + 1 : 0;
	if (t->dashes == PEM_DASHES)
		t->runs++;
	if (c == ' ')
		return t->runs == 1 || before == ':' || before == '\n' || before == ' ';
	return is_alnum(c) || (c != '\0' && strchr("+/=\r\n\t\\-:,", c));
}

static bool takes_value(struct filter_stream *s, size_t at)
{
	const struct filter_form *form = &s->f->forms.form[s->tail.form];
	const char c = s->buffer[at];

	if (s->tail.at == form->n)
		return false;
	if (form->text[s->tail.at] != c &&
	    (!form->caseless || ascii_lower(form->text[s->tail.at]) != ascii_lower(c)))
		return false;
	s->tail.at++;
	return true;
}

static bool tail_takes(struct filter_stream *s, size_t at)
{
	if (s->tail.left == 0)
		return false;
	s->tail.left--;
	switch (s->tail.kind) {
	case FILTER_TAIL_TOKEN:
		return takes_token(s, at);
	case FILTER_TAIL_PEM:
		return takes_pem(s, at);
	case FILTER_TAIL_VALUE:
		return takes_value(s, at);
	default:
		return false;
	}
}

/* Returns the first byte that the tail does not take; the tail then ends. */
static size_t follow_tail(struct filter_stream *s, size_t at, size_t end)
{
	while (at < end && tail_takes(s, at))
		at++;
	if (at < end)
		s->tail.kind = FILTER_TAIL_NONE;
	s->covered = MAX(s->covered, s->base + at);
	return at;
}

static void begin_tail(struct filter_stream *s, const struct span *span)
{
	static const size_t most[FILTER_TAILS] = { [FILTER_TAIL_TOKEN] = FILTER_TOKEN_TAIL_MAX,
						   [FILTER_TAIL_PEM] = FILTER_PEM_TAIL_MAX,
						   [FILTER_TAIL_VALUE] = 3 * FILTER_VALUE_MAX };
	struct tail t = { .form = span->index, .at = FILTER_PREFIX_MAX };

	if (!span->is_form)
		t.kind = s->f->rules->rule[span->index].tail;
	else if (s->f->forms.form[span->index].n > FILTER_PREFIX_MAX)
		t.kind = FILTER_TAIL_VALUE;
	t.left = most[t.kind];
	if (t.kind != FILTER_TAIL_NONE)
		s->tail = t;
}

/* ---- releasing ---- */

static const char *name_of(const struct filter_stream *s, const struct span *span)
{
	return span->is_form ? s->f->forms.form[span->index].name
			     : s->f->rules->rule[span->index].name;
}

static void put(struct filter_stream *s, size_t from, size_t to, struct buf *out)
{
	if (s->action != FILTER_REPORT && !s->blocked)
		(void)buf_put(out, s->buffer + from, to - from);
}

static void found(struct filter_stream *s, const struct span *span, struct buf *out)
{
	if (s->blocked)
		return;
	if (s->hit)
		s->hit(s->arg, name_of(s, span), span->from < s->released);
	if (s->action == FILTER_REDACT)
		(void)buf_printf(out, "[hutch: redacted %s]", name_of(s, span));
	if (s->action == FILTER_BLOCK)
		(void)buf_printf(out, "[hutch: blocked %s]", name_of(s, span));
	s->blocked = s->action == FILTER_BLOCK;
}

/* Takes out one match, up to `end`. Returns the first byte after it. */
static size_t take_out(struct filter_stream *s, const struct span *span, size_t end,
		       struct buf *out)
{
	/* Otherwise it continues a match that was reported already. */
	if (s->base + span->from >= s->covered)
		found(s, span, out);
	s->covered = MAX(s->covered, s->base + span->to);
	if (span->to > end)
		return end;
	begin_tail(s, span);
	return span->to;
}

static void release(struct filter_stream *s, size_t end, struct buf *out)
{
	const struct span *span = s->spans.v, *last = span + s->spans.n;
	size_t at = s->released;

	while (at < end) {
		if (s->tail.kind != FILTER_TAIL_NONE) {
			at = follow_tail(s, at, end);
			continue;
		}
		while (span < last && span->to <= at)
			span++;
		if (span == last || span->from >= end) {
			put(s, at, end, out);
			break;
		}
		if (span->from > at) {
			put(s, at, span->from, out);
			at = span->from;
		}
		at = take_out(s, span, end, out);
	}
	s->released = end;
}

/* The first byte that an unknown match may contain. */
static size_t safe_end(const struct filter_stream *s)
{
	/* One byte more: the edge after a match must be known, too. */
	const size_t window = s->f->window + 1;
	const size_t first = MAX(s->released, s->len > window ? s->len - window : 0);

	for (size_t at = s->len; at > first; at--)
		if (s->f->ends[(uint8_t)s->buffer[at - 1]])
			return at;
	return first;
}

static void forget(struct filter_stream *s)
{
	const size_t drop = s->released > KEPT ? s->released - KEPT : 0;

	memmove(s->buffer, s->buffer + drop, s->len - drop);
	s->base += drop;
	s->len -= drop;
	s->released -= drop;
}

static int advance(struct filter_stream *s, size_t end, struct buf *out)
{
	if (end > s->released && !s->blocked) {
		s->error = spans_find(s->f, &s->spans, s->buffer, s->len);
		if (s->error < 0)
			return s->error;
	}
	release(s, end, out);
	forget(s);
	s->error = out->err;
	return s->error;
}

int filter_put(struct filter_stream *s, const void *data, size_t n, struct buf *out)
{
	const char *at = data;

	if (s->error == 0 && s->action == FILTER_REPORT)
		s->error = buf_put(out, data, n);
	while (n > 0 && s->error == 0) {
		const size_t take = MIN(n, (size_t)FILTER_PIECE);

		memcpy(s->buffer + s->len, at, take);
		s->len += take;
		at += take;
		n -= take;
		(void)advance(s, safe_end(s), out);
	}
	return s->error;
}

int filter_pause(struct filter_stream *s, struct buf *out)
{
	return s->error < 0 ? s->error : advance(s, s->len, out);
}
