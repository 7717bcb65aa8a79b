/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths and patterns are compared unit by unit: a unit is one byte, or one percent-encoded byte.
 * So "%2B" in a path equals "+" in a pattern, although the path keeps its spelling.
 *
 * An encoded slash has two readings: a byte of a segment, or a separator. A request must be allowed
 * in both, and a deny rule applies in either.
 */
#include "l7/l7.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

enum {
	UNIT_STAR = 256, /* an unencoded "*" of a pattern */
};

static int hex_value(char c)
{
	if (ascii_is_digit(c))
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of a percent-encoding at `s`, or -1. */
static int encoded(const char *s, const char *end)
{
	int high, low;

	if (end - s < 3 || s[0] != '%')
		return -1;
	high = hex_value(s[1]);
	low = hex_value(s[2]);
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool is_unreserved(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c > 0 && strchr("-._~", c));
}

int l7_method_check(const char *s, size_t n, struct err *e)
{
	if (n == 0)
		return err_set(e, -EINVAL, "a method is empty");
	if (n > L7_METHOD_MAX)
		return err_set(e, -EINVAL, "a method has %zu bytes, at most %d", n, L7_METHOD_MAX);
	for (size_t i = 0; i < n; i++) {
		if (ascii_is_lower(s[i]))
			return err_set(e, -EINVAL, "a method is in upper case, such as GET");
		if (!ascii_is_upper(s[i]) && !(i > 0 && (ascii_is_digit(s[i]) || s[i] == '-')))
			return err_set(e, -EINVAL, "byte %zu is not part of a method such as GET",
				       i + 1);
	}
	return 0;
}

/* Why a byte may not be in a path, or NULL. */
static const char *bad_byte(unsigned char c)
{
	if (c <= ' ' || c == 0x7f)
		return "a path has a space or control byte";
	if (c > 0x7f)
		return "a path has a byte that is not ASCII";
	switch (c) {
	case '\\':
		return "a path has a backslash";
	case ';':
		return "a path has a ';'";
	case '?':
	case '#':
		return "a path ends before '?' and '#'";
	default:
		return NULL;
	}
}

/* Why the percent-encoded byte `c`, followed by `rest`, may not be in a path, or NULL. */
static const char *bad_encoding(int c, const char *rest, const char *end)
{
	char twice[3] = "%";

	if (c < ' ' || c == 0x7f)
		return "a path has an encoded control byte";
	if (c == '\\')
		return "a path has an encoded backslash";
	if (c != '%' || end - rest < 2)
		return NULL;
	memcpy(twice + 1, rest, 2);
	c = encoded(twice, twice + 3);
	if (c == '%' || c == '.' || c == '/' || c == '\\' || c == ';' || (c >= 0 && c < ' '))
		return "a path is encoded twice";
	return NULL;
}

/* Writes the canonical spelling without looking at segments. */
static const char *respell(const char *s, size_t n, char out[static L7_PATH_MAX + 1])
{
	const char *end = s + n, *why;
	size_t len = 0;

	if (n == 0 || s[0] != '/')
		return "a path begins with '/'";
	if (n > L7_PATH_MAX)
		return "a path is too long";
	while (s < end) {
		int c = *s == '%' ? encoded(s, end) : (unsigned char)*s;

		if (c < 0)
			return "a path has a malformed percent-encoding";
		why = *s == '%' ? bad_encoding(c, s + 3, end) : bad_byte((unsigned char)c);
		if (why)
			return why;
		if (*s != '%' || is_unreserved(c)) {
			out[len++] = (char)c;
		} else {
			out[len++] = '%';
			out[len++] = "0123456789ABCDEF"[c >> 4];
			out[len++] = "0123456789ABCDEF"[c & 15];
		}
		s += *s == '%' ? 3 : 1;
	}
	out[len] = '\0';
	return NULL;
}

/* Reads one unit and moves past it. `pattern`: a star has its own value. */
static int unit(const char **s, const char *end, bool pattern)
{
	int c = encoded(*s, end);

	if (c < 0) {
		c = (unsigned char)**s;
		if (pattern && c == '*')
			c = UNIT_STAR;
		*s += 1;
	} else {
		*s += 3;
	}
	return c;
}

/* A segment of a path or pattern, without the slashes around it. */
struct segment {
	const char *s, *end;
};

/*
 * Takes the next segment off `*s`, which points at a slash or at the end. `split`: an encoded slash
 * separates too. False at the end.
 */
static bool next_segment(const char **s, const char *end, bool split, struct segment *ret)
{
	const char *p = *s;

	if (p == end)
		return false;
	p += *p == '/' ? 1 : 3;
	ret->s = p;
	while (p < end && *p != '/' && !(split && encoded(p, end) == '/'))
		p++;
	ret->end = *s = p;
	return true;
}

/* Are the decoded bytes of the segment UTF-8? Overlong forms are not. */
static bool is_utf8(const struct segment *g)
{
	char text[L7_PATH_MAX];
	const char *s = g->s;
	size_t n = 0;

	while (s < g->end)
		text[n++] = (char)unit(&s, g->end, false);
	return utf8_valid(text, n);
}

/* Why the canonical spelling is ambiguous, or NULL. */
static const char *check_segments(const char *path)
{
	const char *s = path, *end = path + strlen(path);
	struct segment g;

	while (next_segment(&s, end, true, &g)) {
		size_t n = (size_t)(g.end - g.s);

		if (n == 0 && s != end)
			return "a path has an empty segment";
		if ((n == 1 && g.s[0] == '.') || (n == 2 && g.s[0] == '.' && g.s[1] == '.'))
			return "a path has a segment '.' or '..'";
		if (!is_utf8(&g))
			return "a path has encoded bytes that are not UTF-8";
	}
	return NULL;
}

int l7_path(const char *s, size_t n, char ret[static L7_PATH_MAX + 1], const char **ret_why)
{
	char path[L7_PATH_MAX + 1];
	const char *why = respell(s, n, path);

	if (!why)
		why = check_segments(path);
	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	memcpy(ret, path, strlen(path) + 1);
	return 0;
}

static bool is_deep(const struct segment *g)
{
	return g->end - g->s == 2 && g->s[0] == '*' && g->s[1] == '*';
}

int l7_pattern_check(const char *s, size_t n, struct err *e)
{
	char path[L7_PATH_MAX + 1];
	const char *why = NULL, *p, *end;
	struct segment g;

	if (n > L7_PATTERN_MAX)
		return err_set(e, -EINVAL, "a path has %zu bytes, at most %d", n, L7_PATTERN_MAX);
	if (l7_path(s, n, path, &why) < 0)
		return err_set(e, -EINVAL, "%s", why);
	end = s + n;
	for (p = s; next_segment(&p, end, true, &g);)
		if (!is_deep(&g) && memmem(g.s, (size_t)(g.end - g.s), "**", 2))
			return err_set(e, -EINVAL,
				       "'**' is a whole segment: write /** for everything below");
	return 0;
}

/* How to compare. */
struct manner {
	bool split; /* an encoded slash separates segments */
	bool fold;  /* "a" matches "A" */
};

static bool same_unit(int a, int b, bool fold)
{
	return a == b ||
	       (fold && a >= 0 && a < UNIT_STAR && ascii_lower((char)a) == ascii_lower((char)b));
}

/* Matches one segment: after a mismatch, the last star takes one unit more. */
static bool match_segment(struct segment p, struct segment t, bool fold)
{
	const char *star = NULL, *taken = NULL;

	while (t.s < t.end) {
		const char *pn = p.s, *tn = t.s;
		int want = p.s < p.end ? unit(&pn, p.end, true) : -1;

		if (want == UNIT_STAR) {
			star = p.s = pn;
			taken = t.s;
		} else if (same_unit(want, unit(&tn, t.end, false), fold)) {
			p.s = pn;
			t.s = tn;
		} else if (star) {
			(void)unit(&taken, t.end, false);
			p.s = star;
			t.s = taken;
		} else {
			return false;
		}
	}
	while (p.s < p.end && *p.s == '*')
		p.s++;
	return p.s == p.end;
}

/* The end of the text without its last slash: "/a/" is "/a", and "/" has no segment. */
static const char *end_of(const char *s, bool split)
{
	size_t n = strlen(s);

	if (n > 0 && s[n - 1] == '/')
		n--;
	else if (split && n >= 3 && encoded(s + n - 3, s + n) == '/')
		n -= 3;
	return s + n;
}

/* The same over segments: "**" takes one segment more after a mismatch. */
static bool match(const char *pattern, const char *path, struct manner how)
{
	const char *pe = end_of(pattern, how.split), *te = end_of(path, how.split);
	const char *deep = NULL, *taken = NULL;
	struct segment p = { 0 }, t = { 0 };

	while (path < te) {
		const char *pn = pattern, *tn = path;
		bool more = next_segment(&pn, pe, how.split, &p);

		(void)next_segment(&tn, te, how.split, &t);
		if (more && is_deep(&p)) {
			deep = pattern = pn;
			taken = path;
		} else if (more && match_segment(p, t, how.fold)) {
			pattern = pn;
			path = tn;
		} else if (deep) {
			(void)next_segment(&taken, te, how.split, &t);
			pattern = deep;
			path = taken;
		} else {
			return false;
		}
	}
	while (next_segment(&pattern, pe, how.split, &p))
		if (!is_deep(&p))
			return false;
	return true;
}

static bool match_list(const struct l7_list *patterns, const char *path, struct manner how)
{
	for (size_t i = 0; i < patterns->n; i++)
		if (match(patterns->v[i], path, how))
			return true;
	return patterns->n == 0;
}

bool l7_pattern_match(const char *pattern, const char *path)
{
	return l7_patterns_match(&(struct l7_list){ .v = &pattern, .n = 1 }, path);
}

bool l7_patterns_match(const struct l7_list *patterns, const char *path)
{
	return match_list(patterns, path, (struct manner){ 0 }) &&
	       (!strstr(path, "%2F") ||
		match_list(patterns, path, (struct manner){ .split = true }));
}

static bool names_host(const struct l7_rule *r, const struct name *host)
{
	const struct name *want = &r->host.name;
	const char *tail;

	if (r->host.kind == RULE_ADDR || host->len < want->len)
		return false;
	tail = host->text + host->len - want->len;
	if (!str_eq(tail, want->text))
		return false;
	return tail == host->text || (r->host.kind == RULE_SUBTREE && tail[-1] == '.');
}

bool l7_names(const struct l7_rule *rules, size_t n, const struct name *host)
{
	for (size_t i = 0; i < n; i++)
		if (names_host(&rules[i], host))
			return true;
	return false;
}

/* A server may read "delete" as DELETE, so a deny rule applies in any case. */
static bool match_method(const struct l7_rule *r, const char *method)
{
	for (size_t i = 0; i < r->methods.n; i++)
		if (str_eq(r->methods.v[i], method) ||
		    (r->deny && strcasecmp(r->methods.v[i], method) == 0))
			return true;
	return r->methods.n == 0;
}

/* Many servers read paths in any case too, so a deny rule applies to all. */
static bool match_paths(const struct l7_rule *r, const char *path, bool split)
{
	return match_list(&r->paths, path, (struct manner){ .split = split, .fold = r->deny });
}

/* How close a rule comes to the request that it does not match. */
static size_t nearness(const struct l7_rule *r, const struct l7_request *q, bool split)
{
	size_t best = 0;

	if (match_paths(r, q->path, split))
		return 2 * L7_PATH_MAX;
	for (size_t i = 0; i < r->paths.n; i++) {
		const char *p = r->paths.v[i];
		size_t n = 0;

		while (p[n] && p[n] == q->path[n])
			n++;
		best = n > best ? n : best;
	}
	return best * 2 + match_method(r, q->method);
}

static struct l7_verdict check(const struct l7_rule *rules, size_t n, const struct l7_request *q,
			       bool split)
{
	struct l7_verdict v = { .allowed = true, .rule = -1, .near = -1 };
	size_t best = 0;

	for (size_t i = 0; i < n; i++) {
		const struct l7_rule *r = &rules[i];
		size_t score;

		if (!names_host(r, q->host))
			continue;
		if (match_method(r, q->method) && match_paths(r, q->path, split)) {
			if (r->deny)
				return (struct l7_verdict){ .rule = (int)i, .near = -1 };
			if (v.rule < 0)
				v.rule = (int)i;
		} else if (!r->deny) {
			score = nearness(r, q, split);
			if (v.near < 0 || score > best) {
				v.near = (int)i;
				best = score;
			}
		}
	}
	if (v.rule >= 0)
		v.near = -1;
	v.allowed = v.near < 0;
	return v;
}

struct l7_verdict l7_check(const struct l7_rule *rules, size_t n, const struct l7_request *r)
{
	struct l7_verdict v = check(rules, n, r, false), other;

	if (!v.allowed)
		return v;
	other = check(rules, n, r, true);
	return other.allowed ? v : other;
}

static void put_list(struct buf *b, const struct l7_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		(void)buf_printf(b, "%s%s", i > 0 ? ", " : "", list->v[i]);
}

const char *l7_rule_format(const struct l7_rule *r, char *out, size_t size)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

	assert(size >= 4);
	if (r->methods.n == 0)
		(void)buf_puts(&b, r->paths.n > 0 ? "any method" : "everything");
	put_list(&b, &r->methods);
	if (r->paths.n > 0 || r->methods.n > 0)
		(void)buf_puts(&b, r->paths.n > 0 ? " " : " any path");
	put_list(&b, &r->paths);
	(void)snprintf(out, size, "%s", buf_text(&b));
	if (b.err || b.len >= size)
		(void)snprintf(out + (b.len < size - 4 ? b.len : size - 4), 4, "...");
	return out;
}
