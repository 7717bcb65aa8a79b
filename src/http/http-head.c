/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head is looked over byte by byte as it comes (http_head_scan), so that one which is broken or
 * too long is refused at once, and read when it is complete (http_head_parse). What is kept of it
 * is written anew into one piece of memory, of a size that is known before: every name and value
 * stands there with a NUL behind it, where the head had at least as many bytes around it.
 */
#include "http-head.h"

#include <arpa/inet.h>
#include <strings.h>

#include "http-query.h"
#include "http-server.h"
#include "str.h"

enum {
	VERSION_LEN = 8, /* HTTP/1.1 */
	HOST_NAME_MAX_LEN = 253,
	PORT_MAX = 65535,
};

#define LENGTH_MAX (UINT64_C(1) << 53) /* what a JavaScript number holds */

/* Fields whose grammar is a list: several are one, joined. Any other may come once. */
static const struct {
	const char *name, *joint;
} lists[] = {
	{ "accept", ", " },
	{ "accept-charset", ", " },
	{ "accept-encoding", ", " },
	{ "accept-language", ", " },
	{ "access-control-request-headers", ", " },
	{ "baggage", ", " },
	{ "cache-control", ", " },
	{ "connection", ", " },
	{ "content-encoding", ", " },
	{ "content-language", ", " },
	{ "cookie", "; " },
	{ "forwarded", ", " },
	{ "if-match", ", " },
	{ "if-none-match", ", " },
	{ "keep-alive", ", " },
	{ "link", ", " },
	{ "pragma", ", " },
	{ "prefer", ", " },
	{ "sec-websocket-extensions", ", " },
	{ "sec-websocket-protocol", ", " },
	{ "te", ", " },
	{ "tracestate", ", " },
	{ "upgrade", ", " },
	{ "via", ", " },
	{ "warning", ", " },
	{ "x-forwarded-for", ", " },
	{ "x-forwarded-host", ", " },
	{ "x-forwarded-proto", ", " },
};

static int refuse(struct http_refusal *r, int status, const char *why)
{
	*r = (struct http_refusal){ status, why };
	return -EBADMSG;
}

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* ---- where it ends ---- */

static int scan_limits(const struct http_scan *s, struct http_refusal *why)
{
	if (s->lines == 0 &&
	    s->pos > HTTP_SERVER_TARGET_MAX + HTTP_METHOD_MAX_LEN + VERSION_LEN + STRLEN("  \r\n"))
		return refuse(why, 414, "the target of the request is too long");
	if (s->pos >= HTTP_SERVER_HEAD_MAX)
		return refuse(why, 431, "the head of the request is too long");
	if (s->lines > HTTP_SERVER_FIELDS_MAX + 1)
		return refuse(why, 431, "the request has too many fields");
	return 0;
}

int http_head_scan(struct http_scan *s, const char *data, size_t n, struct http_refusal *ret_why)
{
	for (; s->pos < n; s->pos++) {
		char c = data[s->pos];
		bool after_cr = s->pos > s->line && data[s->pos - 1] == '\r';

		if (scan_limits(s, ret_why) < 0)
			return -EBADMSG;
		if (after_cr != (c == '\n'))
			return refuse(ret_why, 400, "a line of the head does not end in CR LF");
		if (is_control(c) && c != '\r' && c != '\n' && c != '\t')
			return refuse(ret_why, 400, "a control character in the head");
		if (c != '\n')
			continue;
		if (s->pos - s->line == 1) {
			s->pos++;
			return s->lines > 0 ? 1 : refuse(ret_why, 400, "an empty request line");
		}
		s->lines++;
		s->line = s->pos + 1;
	}
	return 0;
}

/* ---- what it says ---- */

/* The memory that texts go to, one behind the other. */
struct area {
	char *pos;
	size_t left;
};

static void area_put(struct area *a, const char *s, size_t n)
{
	assert(n <= a->left);
	memcpy(a->pos, s, n);
	a->pos += n;
	a->left -= n;
}

static const char *area_text(struct area *a, const char *s, size_t n)
{
	const char *text = a->pos;

	area_put(a, s, n);
	area_put(a, "", 1);
	return text;
}

/* A component of nothing but one or two dots, also if somebody below us would decode it again. */
static bool is_dots(const char *s, size_t n)
{
	size_t dots = 0, i = 0;

	while (i < n) {
		if (s[i] == '.')
			i++;
		else if (n - i >= 3 && strncasecmp(s + i, "%2e", 3) == 0)
			i += 3;
		else
			return false;
		dots++;
	}
	return dots == 1 || dots == 2;
}

static bool path_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_control(s[i]))
			return false;
	for (const char *p = s; *p != '\0'; p += *p == '/') {
		size_t len = strcspn(p, "/");

		if (is_dots(p, len))
			return false;
		p += len;
	}
	return utf8_valid(s, n);
}

static int read_path(struct http_head *h, struct area *a, struct http_refusal *why)
{
	size_t n = strlen(h->target);
	ssize_t len;

	assert(n < a->left);
	len = http_unescape(h->target, n, false, a->pos);
	if (len < 0 || !path_valid(a->pos, (size_t)len))
		return refuse(why, 400, "the path of the request is not valid");
	h->path = a->pos + strspn(a->pos, "/") - 1;
	a->pos += len + 1;
	a->left -= (size_t)len + 1;
	return 0;
}

/* Origin form only: we are nobody's proxy. */
static int read_target(struct http_head *h, struct area *a, const char *s, size_t n,
		       struct http_refusal *why)
{
	const char *mark = memchr(s, '?', n);
	size_t path = mark ? (size_t)(mark - s) : n;

	if (n > HTTP_SERVER_TARGET_MAX)
		return refuse(why, 414, "the target of the request is too long");
	if (n == 0 || s[0] != '/')
		return refuse(why, 400, "the target of the request is not a path");
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] >= 0x7f || s[i] == '#')
			return refuse(why, 400, "the target of the request is not valid");
	h->target = area_text(a, s, path);
	h->query = mark ? area_text(a, mark + 1, n - path - 1) : "";
	return read_path(h, a, why);
}

static int read_version(struct http_head *h, const char *s, size_t n, struct http_refusal *why)
{
	if (n != VERSION_LEN || memcmp(s, "HTTP/", 5) != 0 || !ascii_is_digit(s[5]) ||
	    s[6] != '.' || !ascii_is_digit(s[7]))
		return refuse(why, 400, "the request line is not METHOD TARGET HTTP/1.1");
	if (s[5] != '1' || s[7] > '1')
		return refuse(why, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
	h->minor = s[7] - '0';
	return 0;
}

static int read_request_line(struct http_head *h, struct area *a, const char *s, size_t n,
			     struct http_refusal *why)
{
	size_t method = str_token_len(s, n);
	const char *target = s + method + 1, *end;

	if (method == 0 || method > HTTP_METHOD_MAX_LEN || method == n || s[method] != ' ')
		return refuse(why, 400, "the request line is not METHOD TARGET HTTP/1.1");
	end = memchr(target, ' ', n - method - 1);
	if (!end)
		return refuse(why, 400, "the request line is not METHOD TARGET HTTP/1.1");
	h->method = area_text(a, s, method);
	if (read_version(h, end + 1, n - (size_t)(end + 1 - s), why) < 0)
		return -EBADMSG;
	return read_target(h, a, target, (size_t)(end - target), why);
}

/* A field as it stands in the head. */
struct line {
	const char *name, *value;
	size_t name_len, value_len;
	bool taken;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static int read_field(const char *s, size_t n, struct line *ret, struct http_refusal *why)
{
	struct line l = { .name = s, .name_len = str_token_len(s, n) };

	if (is_blank(s[0]))
		return refuse(why, 400, "a folded field");
	if (l.name_len == 0 || l.name_len == n || s[l.name_len] != ':')
		return refuse(why, 400, "a field that is not NAME: VALUE");
	l.value = s + l.name_len + 1;
	l.value_len = n - l.name_len - 1;
	for (; l.value_len > 0 && is_blank(l.value[0]); l.value++)
		l.value_len--;
	while (l.value_len > 0 && is_blank(l.value[l.value_len - 1]))
		l.value_len--;
	*ret = l;
	return 0;
}

static bool same_name(const struct line *a, const struct line *b)
{
	return a->name_len == b->name_len && strncasecmp(a->name, b->name, a->name_len) == 0;
}

static const char *list_joint(const struct line *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (strlen(lists[i].name) == l->name_len &&
		    strncasecmp(lists[i].name, l->name, l->name_len) == 0)
			return lists[i].joint;
	return NULL;
}

/* Writes the field of the first of `n` lines, with the others of its name. */
static int put_field(struct http_head *h, struct area *a, struct line *l, size_t n,
		     struct http_refusal *why)
{
	struct http_field *f = &h->fields[h->n_fields++];
	const char *joint = list_joint(l);

	f->name = area_text(a, l->name, l->name_len);
	f->value = a->pos;
	area_put(a, l->value, l->value_len);
	for (size_t i = 1; i < n; i++) {
		if (!same_name(l, &l[i]))
			continue;
		if (!joint)
			return refuse(why, 400, "a field that may come once came twice");
		area_put(a, joint, strlen(joint));
		area_put(a, l[i].value, l[i].value_len);
		l[i].taken = true;
	}
	area_put(a, "", 1);
	return 0;
}

static int read_fields(struct http_head *h, struct area *a, const char *s, size_t n,
		       struct http_refusal *why)
{
	struct line lines[HTTP_SERVER_FIELDS_MAX];
	size_t count = 0;

	for (const char *end; n > 2; n -= (size_t)(end + 2 - s), s = end + 2) {
		end = memmem(s, n, "\r\n", 2);
		assert(end && end > s);
		if (count == ARRAY_SIZE(lines))
			return refuse(why, 431, "the request has too many fields");
		if (read_field(s, (size_t)(end - s), &lines[count++], why) < 0)
			return -EBADMSG;
	}
	h->fields = calloc(count + 1, sizeof(*h->fields));
	if (!h->fields)
		return -ENOMEM;
	h->n_fields = 0;
	for (size_t i = 0; i < count; i++)
		if (!lines[i].taken && put_field(h, a, &lines[i], count - i, why) < 0)
			return -EBADMSG;
	return 0;
}

const char *http_head_field(const struct http_head *h, const char *name)
{
	for (size_t i = 0; i < h->n_fields; i++)
		if (strcasecmp(h->fields[i].name, name) == 0)
			return h->fields[i].value;
	return NULL;
}

/* ---- what it means ---- */

static bool name_valid(const char *s, size_t n)
{
	if (n == 0 || n > HOST_NAME_MAX_LEN || s[0] == '.' || s[n - 1] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_digit(s[i]) && !ascii_is_lower(ascii_lower(s[i])) &&
		    (s[i] == '\0' || !strchr("-_.", s[i]) || (s[i] == '.' && s[i + 1] == '.')))
			return false;
	return true;
}

static bool ipv6_valid(const char *s, size_t n)
{
	char text[INET6_ADDRSTRLEN] = "";
	struct in6_addr addr;

	if (n >= sizeof(text))
		return false;
	memcpy(text, s, n);
	return inet_pton(AF_INET6, text, &addr) == 1;
}

/* NAME, ADDRESS or [ADDRESS], and :PORT or not. */
static bool host_valid(const char *s)
{
	bool bracket = s[0] == '[';
	size_t n = strcspn(s, bracket ? "]" : ":");
	uint64_t port;

	if (bracket ? s[n] != ']' || !ipv6_valid(s + 1, n - 1) : !name_valid(s, n))
		return false;
	s += n + bracket;
	if (s[0] == '\0')
		return true;
	return s[0] == ':' && str_to_u64(s + 1, strlen(s + 1), PORT_MAX, &port) == 0;
}

static int read_host(struct http_head *h, struct http_refusal *why)
{
	h->host = http_head_field(h, "host");
	if (!h->host && h->minor == 0)
		h->host = "";
	else if (!h->host)
		return refuse(why, 400, "the field Host is missing");
	else if (!host_valid(h->host))
		return refuse(why, 400, "the field Host is not NAME or NAME:PORT");
	return 0;
}

static int read_framing(struct http_head *h, struct http_refusal *why)
{
	const char *length = http_head_field(h, "content-length");
	const char *coding = http_head_field(h, "transfer-encoding");
	uint64_t n = 0;

	if (length && coding)
		return refuse(why, 400, "both Content-Length and Transfer-Encoding");
	if (coding && (h->minor == 0 || strcasecmp(coding, "chunked") != 0))
		return refuse(why, 400, "a Transfer-Encoding that is not chunked");
	if (length && str_to_u64(length, strlen(length), LENGTH_MAX, &n) < 0)
		return refuse(why, 400, "the field Content-Length is not a number");
	h->length = coding ? -1 : (int64_t)n;
	return 0;
}

static int read_connection(struct http_head *h, struct http_refusal *why)
{
	const char *connection = http_head_field(h, "connection");
	const char *expect = http_head_field(h, "expect");

	h->keep = h->minor == 1;
	for (const char *p = connection; p && *(p += strspn(p, " ,\t")) != '\0';) {
		size_t n = strcspn(p, " ,\t");

		if (n == STRLEN("close") && strncasecmp(p, "close", n) == 0)
			h->keep = false;
		p += n;
	}
	if (expect && strcasecmp(expect, "100-continue") != 0)
		return refuse(why, 417, "the field Expect is not 100-continue");
	h->expect = expect && h->minor == 1 && h->length != 0;
	return 0;
}

void http_head_done(struct http_head *h)
{
	free(h->text);
	free(h->fields);
	*h = (struct http_head){ 0 };
}

int http_head_parse(const char *data, size_t n, struct http_head *ret, struct http_refusal *ret_why)
{
	_cleanup_(http_head_done) struct http_head h = { 0 };
	const char *end = memmem(data, n, "\r\n", 2);
	size_t line = end ? (size_t)(end - data) : 0;
	struct area a;
	int r;

	assert(end && n >= line + 4);
	/* The request line is kept twice, as it came and as a path. */
	a.left = n + line;
	a.pos = h.text = malloc(a.left);
	if (!h.text)
		return -ENOMEM;
	r = read_request_line(&h, &a, data, line, ret_why);
	if (r == 0)
		r = read_fields(&h, &a, end + 2, n - line - 2, ret_why);
	if (r == 0)
		r = read_host(&h, ret_why);
	if (r == 0)
		r = read_framing(&h, ret_why);
	if (r == 0)
		r = read_connection(&h, ret_why);
	if (r < 0)
		return r;
	*ret = h;
	h = (struct http_head){ 0 };
	return 0;
}
