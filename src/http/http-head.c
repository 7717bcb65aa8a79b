/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_head_scan() checks a head byte by byte as it arrives, so that a broken or overlong head is
 * rejected at once; http_head_parse() reads the complete head. It copies the parts it keeps into
 * one allocation, whose size is known in advance: each name and value gets a NUL, for which the
 * head had at least one byte of framing.
 */
#include "http/http-head.h"

#include <arpa/inet.h>
#include <strings.h>

#include "base/str.h"
#include "http/http-query.h"
#include "http/http-server.h"

enum {
	/* One byte more than the longest target, so that http_head_parse() reports it. */
	REQUEST_LINE_MAX =
		HTTP_METHOD_MAX_LEN + HTTP_SERVER_TARGET_MAX + STRLEN("  HTTP/1.1\r\n") + 1,
	HOST_NAME_MAX_LEN = 253,
	PORT_MAX = 65535,
};

#define LENGTH_MAX (UINT64_C(1) << 53) /* the largest exact integer in JavaScript */

/* Fields whose grammar is a list: repeated ones are joined. Any other field may come once. */
static const char *const lists[] = {
	"accept",
	"accept-charset",
	"accept-encoding",
	"accept-language",
	"access-control-request-headers",
	"baggage",
	"cache-control",
	"connection",
	"content-encoding",
	"content-language",
	"cookie",
	"forwarded",
	"if-match",
	"if-none-match",
	"keep-alive",
	"link",
	"pragma",
	"prefer",
	"sec-websocket-extensions",
	"sec-websocket-protocol",
	"te",
	"tracestate",
	"upgrade",
	"via",
	"warning",
	"x-forwarded-for",
	"x-forwarded-host",
	"x-forwarded-proto",
};

static int refuse(struct http_refusal *r, int status, const char *why)
{
	*r = (struct http_refusal){ status, why };
	return -EBADMSG;
}

/* ---- finding the end ---- */

/* Reports the limit that `s` has reached. */
static int refuse_long(const struct http_scan *s, struct http_refusal *why)
{
	return s->lines == 0 ? refuse(why, 414, "the target of the request is too long")
			     : refuse(why, 431, "the head of the request is too long");
}

int http_head_scan(struct http_scan *s, const char *data, size_t n, struct http_refusal *ret_why)
{
	for (;;) {
		size_t max = s->lines == 0 ? REQUEST_LINE_MAX : HTTP_SERVER_HEAD_MAX;
		struct http_text line;

		switch (http_scan_line(s, data, MIN(n, max), &line)) {
		case HTTP_SCAN_MORE:
			return s->pos < n ? refuse_long(s, ret_why) : 0;
		case HTTP_SCAN_LINE:
			if (s->lines > HTTP_SERVER_FIELDS_MAX + 1)
				return refuse(ret_why, 431, "the request has too many fields");
			break;
		case HTTP_SCAN_HEAD:
			return s->lines > 0 ? 1 : refuse(ret_why, 400, "an empty request line");
		case HTTP_SCAN_BAD_END:
			return refuse(ret_why, 400, "a line of the head does not end in CR LF");
		case HTTP_SCAN_CONTROL:
			return refuse(ret_why, 400, "a control character in the head");
		}
	}
}

/* ---- reading the parts ---- */

/* Memory for the texts, filled front to back. */
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

static const char *area_text(struct area *a, struct http_text t)
{
	const char *text = a->pos;

	area_put(a, t.s, t.n);
	area_put(a, "", 1);
	return text;
}

/* Returns whether a component is one or two dots, even after a second decoding further down. */
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
		if (http_is_control(s[i]))
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

/* Origin form only: this server is not a proxy. */
static int read_target(struct http_head *h, struct area *a, struct http_text t,
		       struct http_refusal *why)
{
	const char *mark = memchr(t.s, '?', t.n);
	size_t path = mark ? (size_t)(mark - t.s) : t.n;

	if (t.n > HTTP_SERVER_TARGET_MAX)
		return refuse(why, 414, "the target of the request is too long");
	if (t.n == 0 || t.s[0] != '/')
		return refuse(why, 400, "the target of the request is not a path");
	if (!http_target_valid(t) || memchr(t.s, '#', t.n))
		return refuse(why, 400, "the target of the request is not valid");
	h->target = area_text(a, (struct http_text){ t.s, path });
	h->query = mark ? area_text(a, (struct http_text){ mark + 1, t.n - path - 1 }) : "";
	return read_path(h, a, why);
}

static int read_request_line(struct http_head *h, struct area *a, struct http_text line,
			     struct http_refusal *why)
{
	struct http_request_line l;

	if (http_request_line_parse(line, &l) < 0)
		return refuse(why, 400, "the request line is not METHOD TARGET HTTP/1.1");
	if (l.major != '1' || l.minor > '1')
		return refuse(why, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
	h->minor = l.minor - '0';
	h->method = area_text(a, l.method);
	return read_target(h, a, l.target, why);
}

/* A field of the head. */
struct line {
	struct http_header field;
	bool taken;
};

static const char *list_joint(struct http_text name)
{
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (http_text_is(name, lists[i]))
			return str_eq(lists[i], "cookie") ? "; " : ", ";
	return NULL;
}

/* Writes the field of the first of `n` lines, joined with other lines of the same name. */
static int put_field(struct http_head *h, struct area *a, struct line *l, size_t n,
		     struct http_refusal *why)
{
	struct http_field *f = &h->fields[h->n_fields++];
	const char *joint = list_joint(l->field.name);

	f->name = area_text(a, l->field.name);
	f->value = a->pos;
	area_put(a, l->field.value.s, l->field.value.n);
	for (size_t i = 1; i < n; i++) {
		if (!http_text_same(l->field.name, l[i].field.name))
			continue;
		if (!joint)
			return refuse(why, 400, "a field that may come once came twice");
		area_put(a, joint, strlen(joint));
		area_put(a, l[i].field.value.s, l[i].field.value.n);
		l[i].taken = true;
	}
	area_put(a, "", 1);
	return 0;
}

/* Reads the rest of the head, after the request line. */
static int read_fields(struct http_head *h, struct area *a, struct http_scan *scan,
		       const char *data, size_t n, struct http_refusal *why)
{
	struct line lines[HTTP_SERVER_FIELDS_MAX];
	struct http_text line;
	size_t count = 0;

	while (http_scan_line(scan, data, n, &line) == HTTP_SCAN_LINE) {
		if (count == ARRAY_SIZE(lines))
			return refuse(why, 431, "the request has too many fields");
		if (http_header_parse(line, &lines[count].field) < 0)
			return refuse(why, 400,
				      http_is_blank(line.s[0]) ? "a folded field"
							       : "a field that is not NAME: VALUE");
		lines[count++].taken = false;
	}
	assert(scan->pos == n);
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

/* ---- interpreting it ---- */

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

/* NAME, ADDRESS or [ADDRESS], with or without :PORT. */
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
	struct http_scan scan = { 0 };
	struct http_text line = { 0 };
	enum http_scanned first = http_scan_line(&scan, data, n, &line);
	struct area a;
	int r;

	assert(first == HTTP_SCAN_LINE);
	/* The target is kept twice: raw, and decoded as a path. */
	a.left = n + line.n;
	a.pos = h.text = malloc(a.left);
	if (!h.text)
		return -ENOMEM;
	r = read_request_line(&h, &a, line, ret_why);
	if (r == 0)
		r = read_fields(&h, &a, &scan, data, n, ret_why);
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
