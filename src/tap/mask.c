/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/mask.h"

#include <sodium.h>
#include <string.h>

#include "base/base64.h"
#include "tap/percent.h"

enum {
	WINDOW_MAX = 32, /* a longer one fills the table */
	BLOCK = 3,
	SLOTS = 4096,
	PATTERN_MAX = 64 * 1024,
	STREAM_MAX = 4 * 1024 * 1024, /* bytes of a feed and before */
};

struct pattern {
	char *s;
	size_t n;
	bool is_value; /* not another form of one */
};

struct patterns {
	struct pattern *pattern;
	size_t n;
	size_t longest, window;
	uint8_t shift[SLOTS]; /* by a hash of the last bytes: how far the window may move */
	bool first[256];      /* the first bytes of patterns */
	size_t users;	      /* masks */
};

struct mask {
	struct patterns *known;
	struct buf held; /* after the first `passed`: a true prefix of a pattern */
	size_t passed;	 /* bytes of `held` that the last call has returned */
	size_t released; /* bytes at the beginning of the prefix that are passed on already */
	size_t covered;	 /* bytes at the beginning of the prefix that a match covers */
	struct buf work;
	bool hit;
	unsigned int *probes, own_probes;
};

static struct mask *use(struct patterns *known, unsigned int *probes)
{
	struct mask *m = known ? calloc(1, sizeof(*m)) : NULL;

	if (!m)
		return NULL;
	m->known = known;
	known->users++;
	m->probes = probes ? probes : &m->own_probes;
	m->held = (struct buf)BUF_INIT(STREAM_MAX);
	m->work = (struct buf)BUF_INIT(STREAM_MAX);
	return m;
}

struct mask *mask_new(unsigned int *probes)
{
	struct patterns *known = calloc(1, sizeof(*known));
	struct mask *m = use(known, probes);

	if (!m)
		free(known);
	return m;
}

struct mask *mask_branch(struct mask *m)
{
	return use(m->known, m->probes == &m->own_probes ? NULL : m->probes);
}

bool mask_is_empty(const struct mask *m)
{
	return !m || m->known->n == 0;
}

static void leave(struct patterns *known)
{
	if (--known->users > 0)
		return;
	for (size_t i = 0; i < known->n; i++) {
		sodium_memzero(known->pattern[i].s, known->pattern[i].n);
		free(known->pattern[i].s);
	}
	free(known->pattern);
	free(known);
}

static void note_probe(struct mask *m, const char *s, size_t n, size_t held);

struct mask *mask_free(struct mask *m)
{
	if (!m)
		return NULL;
	/* The reader of the pause may have closed the connection. */
	note_probe(m, buf_text(&m->held) + m->passed, m->held.len - m->passed,
		   m->held.len - m->passed);
	leave(m->known);
	if (m->held.data)
		sodium_memzero(m->held.data, m->held.cap);
	if (m->work.data)
		sodium_memzero(m->work.data, m->work.cap);
	buf_done(&m->held);
	buf_done(&m->work);
	free(m);
	return NULL;
}

bool mask_take_hit(struct mask *m)
{
	bool hit = m && m->hit;

	if (m)
		m->hit = false;
	return hit;
}

/* ---- patterns ---- */

static size_t slot(const char *s)
{
	uint16_t two;

	memcpy(&two, s, sizeof(two));
	return (two | (uint32_t)(unsigned char)s[2] << 16) * UINT32_C(0x9E3779B1) >> 20;
}

static void build(struct patterns *m)
{
	m->longest = 0;
	m->window = WINDOW_MAX;
	memset(m->first, 0, sizeof(m->first));
	for (size_t i = 0; i < m->n; i++) {
		m->longest = MAX(m->longest, m->pattern[i].n);
		m->window = MIN(m->window, m->pattern[i].n);
		m->first[(unsigned char)m->pattern[i].s[0]] = true;
	}
	memset(m->shift, (int)(m->window - BLOCK + 1), sizeof(m->shift));
	for (size_t i = 0; i < m->n; i++)
		for (size_t end = BLOCK; end <= m->window; end++) {
			uint8_t *shift = &m->shift[slot(m->pattern[i].s + end - BLOCK)];

			*shift = (uint8_t)MIN((size_t)*shift, m->window - end);
		}
}

static struct pattern *find(const struct patterns *m, const char *s, size_t n)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->pattern[i].n == n && memcmp(m->pattern[i].s, s, n) == 0)
			return &m->pattern[i];
	return NULL;
}

static int add(struct patterns *m, const char *s, size_t n)
{
	struct pattern *all;
	char *copy;

	if (n < MASK_VALUE_MIN)
		return 0;
	if (find(m, s, n))
		return 0;
	if (m->n == MASK_PATTERNS_MAX)
		return -ENOSPC;
	all = realloc(m->pattern, (m->n + 1) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	m->pattern = all;
	copy = malloc(n);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, s, n);
	m->pattern[m->n++] = (struct pattern){ copy, n, false };
	return 0;
}

static int add_buf(struct patterns *m, struct buf *b)
{
	int r = b->err ? b->err : add(m, buf_text(b), b->len);

	if (b->data)
		sodium_memzero(b->data, b->cap);
	buf_done(b);
	return r;
}

/* Adds a part of base64 text in the standard and in the URL-safe alphabet. */
static int add_base64(struct patterns *m, char *s, size_t n)
{
	int r = add(m, s, n);

	for (size_t i = 0; i < n; i++)
		s[i] = (char)(s[i] == '+' ? '-' : s[i] == '/' ? '_' : s[i]);
	return r < 0 ? r : add(m, s, n);
}

/*
 * Base64 of `before` bytes (0 to 2) and the value: the characters that contain bits of the value
 * alone. `before` bytes fill 8 * before / 6 characters, the last one in part.
 */
static int add_aligned(struct patterns *m, const char *value, size_t n, size_t before)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(PATTERN_MAX), text = BUF_INIT(PATTERN_MAX);
	size_t skip = (before * 8 + 5) / 6, whole = (before + n) * 8 / 6;
	int r;

	(void)buf_put(&raw, "\0", before);
	(void)buf_put(&raw, value, n);
	r = raw.err ? raw.err : base64_put(&text, raw.data, raw.len);
	if (r == 0)
		r = add_base64(m, text.data + skip, whole - skip);
	if (raw.data)
		sodium_memzero(raw.data, raw.cap);
	if (text.data)
		sodium_memzero(text.data, text.cap);
	return r;
}

/* As JSON encoders write it that escape slashes too. */
static void put_json(struct buf *out, const char *value, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strchr("\"\\/", value[i]) && value[i] != '\0')
			(void)buf_putc(out, '\\');
		(void)buf_putc(out, value[i]);
	}
}

/* As encoders of .NET write it, whose JSON has no plus sign. */
static void put_json_codes(struct buf *out, const char *value, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (value[i] == '\\')
			(void)buf_puts(out, "\\\\");
		else if (strchr("\"&'+<>`", value[i]) && value[i] != '\0')
			(void)buf_printf(out, "\\u%04X", (unsigned char)value[i]);
		else
			(void)buf_putc(out, value[i]);
}

/* With a slash as it is too: Python's quote() and others keep it. */
static int add_percent(struct patterns *m, const char *value, size_t n)
{
	int r = 0;

	for (int slash = 0; slash < 2 && r == 0; slash++) {
		struct buf upper = BUF_INIT(PATTERN_MAX), lower = BUF_INIT(PATTERN_MAX);

		percent_put(&upper, value, n, slash);
		percent_put_lower(&lower, value, n, slash);
		r = add_buf(m, &upper);
		r = MIN(r, add_buf(m, &lower));
	}
	return r;
}

static int add_forms(struct patterns *m, const char *value, size_t n, const char *user)
{
	struct buf b = BUF_INIT(PATTERN_MAX);
	_cleanup_buf_ struct buf pair = BUF_INIT(PATTERN_MAX);
	int r = add(m, value, n);

	r = r < 0 ? r : add_percent(m, value, n);
	put_json(&b, value, n);
	r = r < 0 ? r : add_buf(m, &b);
	put_json_codes(&b, value, n);
	r = r < 0 ? r : add_buf(m, &b);
	for (size_t before = 0; before < BLOCK && r == 0; before++)
		r = add_aligned(m, value, n, before);
	if (r == 0 && user) {
		(void)buf_printf(&pair, "%s:", user);
		(void)buf_put(&pair, value, n);
		r = pair.err ? pair.err : add_aligned(m, pair.data, pair.len, 0);
		if (pair.data)
			sodium_memzero(pair.data, pair.cap);
	}
	buf_done(&b);
	return r;
}

int mask_add(struct mask *m, const char *value, size_t n, const char *user)
{
	struct pattern *known = find(m->known, value, n);
	int r;

	if (n < MASK_VALUE_MIN || (known && known->is_value))
		return 0;
	r = add_forms(m->known, value, n, user);
	build(m->known);
	known = find(m->known, value, n);
	if (r == 0 && known)
		known->is_value = true;
	return r;
}

/* ---- search ---- */

/* The longest pattern at `s`, or 0. */
static size_t match_at(const struct patterns *m, const char *s, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct pattern *p = &m->pattern[i];

		if (p->s[0] == s[0] && p->n <= n && p->n > found && memcmp(p->s, s, p->n) == 0)
			found = p->n;
	}
	return found;
}

/*
 * Moves the window while it can move as far as possible. Four steps at a time, so that the
 * processor need not wait for one before it begins the next.
 */
static size_t skip(const struct patterns *m, const char *s, size_t n, size_t end)
{
	const size_t far = m->window - BLOCK + 1;

	while (end + 3 * far <= n) {
		const char *p = s + end - BLOCK;

		if ((m->shift[slot(p)] ^ far) | (m->shift[slot(p + far)] ^ far) |
		    (m->shift[slot(p + 2 * far)] ^ far) | (m->shift[slot(p + 3 * far)] ^ far))
			break;
		end += 4 * far;
	}
	return end;
}

/* Returns where the next match at or after `at` begins, or `n`; *ret is its length. */
static size_t search(const struct patterns *m, const char *s, size_t n, size_t at, size_t *ret)
{
	size_t end = at + m->window;

	while ((end = skip(m, s, n, end)) <= n) {
		size_t shift = m->shift[slot(s + end - BLOCK)];

		if (shift == 0) {
			*ret = match_at(m, s + end - m->window, n - (end - m->window));
			if (*ret > 0)
				return end - m->window;
			shift = 1;
		}
		end += shift;
	}
	return n;
}

/* The length of the longest end of the text that is a true prefix of a pattern. */
static size_t prefix(const struct patterns *m, const char *s, size_t n)
{
	for (size_t at = n < m->longest ? 0 : n - m->longest + 1; at < n; at++) {
		if (!m->first[(unsigned char)s[at]])
			continue;
		for (size_t i = 0; i < m->n; i++)
			if (m->pattern[i].n > n - at &&
			    memcmp(m->pattern[i].s, s + at, n - at) == 0)
				return n - at;
	}
	return 0;
}

/*
 * Masks the text, of which *covered bytes at the beginning are covered already. *ret is the text
 * itself if nothing is covered, else a copy in `work`. Matches may overlap, so the search reads the
 * unmasked text. *covered becomes the end of the last match.
 */
static int cover(struct mask *m, const char *s, size_t n, size_t *covered, const char **ret)
{
	size_t len = 0, at = search(m->known, s, n, 0, &len);

	*ret = s;
	if (at == n && *covered == 0)
		return 0;
	buf_reset(&m->work);
	if (buf_put(&m->work, s, n) < 0)
		return -ENOMEM;
	memset(m->work.data, '*', MIN(*covered, n));
	for (; at < n; at = search(m->known, s, n, at + 1, &len)) {
		size_t from = MAX(at, *covered), end = at + len;

		if (from < end)
			memset(m->work.data + from, '*', end - from);
		*covered = MAX(*covered, end);
		m->hit = true;
	}
	*ret = m->work.data;
	return 0;
}

void mask_text(struct mask *m, char *text, size_t n)
{
	size_t covered = 0;
	const char *masked;

	if (!m || m->known->n == 0)
		return;
	if (cover(m, text, n, &covered, &masked) < 0)
		memset(text, '*', n);
	else if (masked != text)
		memcpy(text, masked, n);
	buf_reset(&m->work);
}

/* The stream has held back its first `held` bytes. Was that a guess? */
static void note_probe(struct mask *m, const char *s, size_t n, size_t held)
{
	if (*m->probes < MASK_PROBES_MAX && held > 0 &&
	    held >= MIN((size_t)MASK_PROBE_MIN, m->known->window / 2) &&
	    match_at(m->known, s, n) == 0)
		++*m->probes;
}

/* How many bytes at the end to hold back. Those before `covered` are masked already. */
static size_t hold(const struct mask *m, const char *s, size_t n, size_t covered)
{
	size_t keep = prefix(m->known, s, n);

	return *m->probes < MASK_PROBES_MAX ? keep
					    : MAX(keep, MIN(n - covered, m->known->longest - 1));
}

int mask_feed(struct mask *m, const char *data, size_t n, const char **ret, size_t *ret_n)
{
	size_t keep, known, held;

	*ret = data;
	*ret_n = n;
	if (!m || m->known->n == 0)
		return 0;
	buf_consume(&m->held, m->passed);
	m->passed = 0;
	held = m->held.len;
	if (held > 0) {
		if (buf_put(&m->held, data, n) < 0)
			return -ENOMEM;
		data = m->held.data;
		n = m->held.len;
	}
	if (cover(m, data, n, &m->covered, ret) < 0)
		return -ENOMEM;
	keep = hold(m, data, n, m->covered);
	if (keep < n)
		note_probe(m, data, n, held);
	*ret_n = n - keep;
	m->covered = m->covered > *ret_n ? m->covered - *ret_n : 0;
	if (data == m->held.data)
		m->passed = *ret_n;
	else if (keep > 0 && buf_put(&m->held, data + *ret_n, keep) < 0)
		return -ENOMEM;
	known = MIN(m->released, *ret_n);
	m->released -= known;
	*ret += known;
	*ret_n -= known;
	return 0;
}

/* The bytes held back, without those that were released. */
static int give_held(struct mask *m, const char **ret, size_t *ret_n)
{
	buf_consume(&m->held, m->passed);
	m->passed = 0;
	buf_reset(&m->work);
	if (buf_put(&m->work, m->held.data, m->held.len) < 0)
		return -ENOMEM;
	memset(m->work.data, '*', MIN(m->covered, m->held.len));
	*ret = m->work.data + m->released;
	*ret_n = m->work.len - m->released;
	m->released = m->held.len;
	return 0;
}

bool mask_holds(const struct mask *m)
{
	return m && *m->probes < MASK_PROBES_MAX && m->held.len > m->passed + m->released &&
	       m->held.len - m->passed <= MASK_RELEASE_MAX;
}

int mask_release(struct mask *m, const char **ret, size_t *ret_n)
{
	*ret = "";
	*ret_n = 0;
	return mask_holds(m) ? give_held(m, ret, ret_n) : 0;
}

int mask_end(struct mask *m, const char **ret, size_t *ret_n)
{
	*ret = "";
	*ret_n = 0;
	if (!m || m->known->n == 0)
		return 0;
	buf_consume(&m->held, m->passed);
	m->passed = 0;
	note_probe(m, buf_text(&m->held), m->held.len, m->held.len);
	if (give_held(m, ret, ret_n) < 0)
		return -ENOMEM;
	buf_done(&m->held);
	m->released = m->covered = 0;
	return 0;
}
