/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delimiter is CR LF -- and the boundary. A boundary contains no CR, so after a mismatch a
 * delimiter can only begin at the byte that did not match. The bytes matched so far are contents;
 * they equal the start of the delimiter, so they need not be stored.
 */
#include "envd/multipart.h"

#include <strings.h>

#include "base/str.h"

enum state {
	STATE_FIRST,  /* the first delimiter, without its leading line break */
	STATE_BEHIND, /* after a delimiter: CR LF, or -- for the last */
	STATE_HEAD,
	STATE_DATA,
	STATE_ENDED, /* a part has ended, to be reported */
	STATE_LAST,  /* after the last delimiter; a line break may follow */
	STATE_OVER,
};

enum {
	LINE_BREAK = 2,
};

/* ---- parameters: ; name=value; name="value" ---- */

struct text {
	const char *pos, *end;
};

static void skip_space(struct text *t)
{
	while (t->pos < t->end && http_is_blank(*t->pos))
		t->pos++;
}

static struct http_text take_token(struct text *t)
{
	struct http_text word = { t->pos, http_token_len(t->pos, (size_t)(t->end - t->pos)) };

	t->pos += word.n;
	return word;
}

/* Only \" and \\ are escapes: some clients send \ unescaped before other characters. */
static int take_quoted(struct text *t, struct buf *out)
{
	for (t->pos++; t->pos < t->end && *t->pos != '"'; t->pos++) {
		if (*t->pos == '\\' && t->end - t->pos > 1 &&
		    (t->pos[1] == '"' || t->pos[1] == '\\'))
			t->pos++;
		(void)buf_putc(out, *t->pos);
	}
	if (t->pos == t->end)
		return -EBADMSG;
	t->pos++;
	return out->err;
}

/* 1 with the next parameter, 0 at the end, -EBADMSG, -ENOMEM. */
static int next_param(struct text *t, struct http_text *ret_name, struct buf *value)
{
	struct http_text word;

	buf_reset(value);
	skip_space(t);
	if (t->pos == t->end)
		return 0;
	if (*t->pos++ != ';')
		return -EBADMSG;
	skip_space(t);
	*ret_name = take_token(t);
	if (ret_name->n == 0 || t->pos == t->end || *t->pos++ != '=')
		return -EBADMSG;
	if (t->pos < t->end && *t->pos == '"')
		return take_quoted(t, value) < 0 ? (value->err ? value->err : -EBADMSG) : 1;
	word = take_token(t);
	if (word.n == 0)
		return -EBADMSG;
	return buf_put(value, word.s, word.n) < 0 ? value->err : 1;
}

/* ---- the body's type ---- */

static bool is_form(struct text *t)
{
	struct http_text word;

	skip_space(t);
	word = take_token(t);
	if (!http_text_is(word, "multipart") || t->pos == t->end || *t->pos++ != '/')
		return false;
	word = take_token(t);
	return http_text_is(word, "form-data");
}

bool multipart_is(const char *content_type)
{
	struct text t = { content_type, content_type + strlen(content_type) };

	return is_form(&t);
}

/* bchars of RFC 2046, 5.1.1; no space at the end. */
static bool boundary_valid(const char *s, size_t n)
{
	static const char marks[] = "'()+_,-./:=? ";

	if (n == 0 || n > MULTIPART_BOUNDARY_MAX || s[n - 1] == ' ')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_digit(s[i]) && !ascii_is_lower(s[i]) && !ascii_is_upper(s[i]) &&
		    (!s[i] || !strchr(marks, s[i])))
			return false;
	return true;
}

int multipart_init(struct multipart *m, const char *content_type, struct err *e)
{
	struct text t = { content_type, content_type + strlen(content_type) };
	_cleanup_buf_ struct buf value = BUF_INIT(MULTIPART_HEAD_MAX);
	char delimiter[MULTIPART_DELIMITER_MAX + 1] = "";
	struct http_text name;
	int r;

	if (!is_form(&t))
		return err_set(e, -EINVAL, "the body is not multipart/form-data");
	while ((r = next_param(&t, &name, &value)) > 0) {
		if (!http_text_is(name, "boundary"))
			continue;
		if (delimiter[0] || !boundary_valid(value.data, value.len))
			return err_set(e, -EINVAL, "the boundary in Content-Type is not valid");
		(void)snprintf(delimiter, sizeof(delimiter), "\r\n--%s", value.data);
	}
	if (r == -ENOMEM)
		return err_oom(e);
	if (r < 0 || !delimiter[0])
		return err_set(e, -EINVAL, "Content-Type has no boundary that can be read");
	*m = (struct multipart){ .matched = LINE_BREAK, .n_delimiter = strlen(delimiter) };
	memcpy(m->delimiter, delimiter, sizeof(delimiter));
	m->head = (struct buf)BUF_INIT(MULTIPART_HEAD_MAX);
	return 0;
}

static void forget_part(struct multipart *m)
{
	free(m->name);
	free(m->filename);
	m->name = m->filename = NULL;
	buf_reset(&m->head);
	m->scan = (struct http_scan){ 0 };
}

void multipart_done(struct multipart *m)
{
	forget_part(m);
	buf_done(&m->head);
}

/* ---- the head of a part ---- */

/* Decodes the escapes that browsers use inside quotes; there are no others. */
static void unescape(char *s)
{
	static const char escapes[][4] = { "%22", "%0d", "%0a" }, means[] = "\"\r\n";
	char *out = s;

	while (*s) {
		size_t i = 0;

		while (i < ARRAY_SIZE(escapes) && strncasecmp(s, escapes[i], 3) != 0)
			i++;
		*out++ = i < ARRAY_SIZE(escapes) ? means[i] : *s;
		s += i < ARRAY_SIZE(escapes) ? 3 : 1;
	}
	*out = '\0';
}

static int keep(struct buf *value, char **ret, struct err *e)
{
	if (*ret)
		return err_set(e, -EBADMSG, "a part has two names of a kind");
	*ret = strdup(buf_text(value));
	if (!*ret)
		return err_oom(e);
	unescape(*ret);
	return 0;
}

static int read_disposition(struct multipart *m, struct http_text field, struct err *e)
{
	_cleanup_buf_ struct buf value = BUF_INIT(MULTIPART_HEAD_MAX);
	struct text t = { field.s, field.s + field.n };
	struct http_text name;
	int r;

	if (m->name || !http_text_is(take_token(&t), "form-data"))
		return err_set(e, -EBADMSG,
			       "a part has a Content-Disposition that is not one of a form");
	while ((r = next_param(&t, &name, &value)) > 0) {
		if (http_text_is(name, "name"))
			r = keep(&value, &m->name, e);
		else if (http_text_is(name, "filename"))
			r = keep(&value, &m->filename, e);
		else
			r = err_set(
				e, -EBADMSG,
				"a part's Content-Disposition has more than a name and a filename");
		if (r < 0)
			return r;
	}
	if (r == -ENOMEM)
		return err_oom(e);
	if (r < 0 || !m->name)
		return err_set(e, -EBADMSG, "a part's Content-Disposition cannot be read");
	return 0;
}

static int read_encoding(struct http_text value, struct err *e)
{
	if (!http_text_is(value, "binary") && !http_text_is(value, "8bit") &&
	    !http_text_is(value, "7bit"))
		return err_set(e, -EBADMSG, "a part has a transfer encoding that is not supported");
	return 0;
}

static int read_line(struct multipart *m, struct http_text line, struct err *e)
{
	struct http_header f;

	if (!utf8_valid(line.s, line.n) || http_header_parse(line, &f) < 0)
		return err_set(e, -EBADMSG, "a part's head has a line that is not a field");
	if (http_text_is(f.name, "content-disposition"))
		return read_disposition(m, f.value, e);
	if (http_text_is(f.name, "content-transfer-encoding"))
		return read_encoding(f.value, e);
	return 0;
}

/* Handles the empty line after a part's head. */
static int end_head(struct multipart *m, struct err *e)
{
	if (!m->name)
		return err_set(e, -EBADMSG, "a part has no Content-Disposition");
	if (++m->parts > MULTIPART_PARTS_MAX)
		return err_set(e, -EBADMSG, "the body has more than %d parts", MULTIPART_PARTS_MAX);
	m->state = STATE_DATA;
	return MULTIPART_PART;
}

/* ---- the body ---- */

static char take(const char **data, size_t *n)
{
	(*n)--;
	return *(*data)++;
}

static int do_first(struct multipart *m, const char **data, size_t *n, struct err *e)
{
	while (*n > 0 && m->matched < m->n_delimiter)
		if (take(data, n) != m->delimiter[m->matched++])
			return err_set(e, -EBADMSG, "the body does not begin with its boundary");
	if (m->matched == m->n_delimiter)
		m->state = STATE_BEHIND;
	return MULTIPART_MORE;
}

static int do_behind(struct multipart *m, const char **data, size_t *n, struct err *e)
{
	char c = take(data, n);

	if (!m->last) {
		m->last = c;
		return MULTIPART_MORE;
	}
	if (m->last == '\r' && c == '\n')
		m->state = STATE_HEAD;
	else if (m->last == '-' && c == '-')
		m->state = STATE_LAST;
	else
		return err_set(e, -EBADMSG,
			       "a boundary is followed by something else than a line break");
	m->matched = 0;
	m->last = '\0';
	return m->state == STATE_LAST ? MULTIPART_END : MULTIPART_MORE;
}

static int do_head(struct multipart *m, const char **data, size_t *n, struct err *e)
{
	struct http_text line;
	int r = 0;

	while (*n > 0 && r == 0) {
		if (buf_putc(&m->head, take(data, n)) == -ENOMEM)
			return err_oom(e);
		if (m->head.err)
			return err_set(e, -EBADMSG, "the head of a part is longer than %d bytes",
				       MULTIPART_HEAD_MAX);
		switch (http_scan_line(&m->scan, m->head.data, m->head.len, &line)) {
		case HTTP_SCAN_MORE:
			break;
		case HTTP_SCAN_LINE:
			r = read_line(m, line, e);
			break;
		case HTTP_SCAN_HEAD:
			return end_head(m, e);
		case HTTP_SCAN_BAD_END:
		case HTTP_SCAN_CONTROL:
			return err_set(e, -EBADMSG, "a part's head has a line that is not a field");
		}
	}
	return r;
}

/*
 * Returns how many bytes are certainly contents: those before a delimiter, or before its beginning
 * at the end of the data.
 */
static size_t plain_length(const struct multipart *m, const char *data, size_t n)
{
	size_t at = 0;

	while (at < n) {
		const char *cr = memchr(data + at, '\r', n - at);
		size_t k = 1, max;

		if (!cr)
			return n;
		at = (size_t)(cr - data);
		max = MIN(n - at, m->n_delimiter);
		while (k < max && cr[k] == m->delimiter[k])
			k++;
		if (k == max)
			return at;
		at += k;
	}
	return n;
}

static int do_data(struct multipart *m, const char **data, size_t *n, const char **ret,
		   size_t *ret_n)
{
	size_t k = m->matched == 0 ? plain_length(m, *data, *n) : 0;

	if (k > 0) {
		*ret = *data;
		*ret_n = k;
		*data += k;
		*n -= k;
		return MULTIPART_DATA;
	}
	while (*n > 0 && **data == m->delimiter[m->matched]) {
		(void)take(data, n);
		if (++m->matched == m->n_delimiter) {
			m->state = STATE_ENDED;
			return MULTIPART_MORE;
		}
	}
	if (*n == 0)
		return MULTIPART_MORE;
	*ret = m->delimiter;
	*ret_n = m->matched;
	m->matched = 0;
	return MULTIPART_DATA;
}

static int do_last(struct multipart *m, const char **data, size_t *n, struct err *e)
{
	char c = take(data, n);

	if (m->state == STATE_LAST && c == '\r' && !m->last) {
		m->last = c;
		return MULTIPART_MORE;
	}
	if (m->state == STATE_LAST && c == '\n' && m->last) {
		m->last = '\0';
		m->state = STATE_OVER;
		return MULTIPART_MORE;
	}
	return err_set(e, -EBADMSG, "there is something behind the last boundary");
}

static int step(struct multipart *m, const char **data, size_t *n, const char **ret, size_t *ret_n,
		struct err *e)
{
	switch (m->state) {
	case STATE_FIRST:
		return do_first(m, data, n, e);
	case STATE_BEHIND:
		return do_behind(m, data, n, e);
	case STATE_HEAD:
		return do_head(m, data, n, e);
	case STATE_DATA:
		return do_data(m, data, n, ret, ret_n);
	default:
		return do_last(m, data, n, e);
	}
}

int multipart_next(struct multipart *m, const char **data, size_t *n, const char **ret,
		   size_t *ret_n, struct err *e)
{
	for (;;) {
		int r;

		if (m->state == STATE_ENDED) {
			m->state = STATE_BEHIND;
			forget_part(m);
			return MULTIPART_PART_END;
		}
		if (*n == 0)
			return MULTIPART_MORE;
		r = step(m, data, n, ret, ret_n, e);
		if (r != MULTIPART_MORE)
			return r;
	}
}

bool multipart_whole(const struct multipart *m)
{
	return (m->state == STATE_LAST && !m->last) || m->state == STATE_OVER;
}
