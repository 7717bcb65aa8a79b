/* SPDX-License-Identifier: Apache-2.0 */
#include "envd/port-answer.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "base/util.h"

/* Fields about the connection, which hutchd sets itself. */
static const char *const connection_fields[] = {
	"connection",	     "keep-alive",     "proxy-connection", "te",   "trailer",
	"transfer-encoding", "content-length", "upgrade",	   "date", "alt-svc",
};

static int refuse(const char **why, const char *text)
{
	*why = text;
	return -EBADMSG;
}

static int read_length(const char *value, struct port_answer *a, const char **why)
{
	uint64_t n = 0;

	if (a->length != -2 || str_to_u64(value, strlen(value), INT64_MAX, &n) < 0)
		return refuse(why, "its Content-Length is not one number, or comes twice");
	a->length = (int64_t)n;
	return 0;
}

static int read_coding(const char *value, struct port_answer *a, const char **why)
{
	if (a->length != -2 || strcasecmp(value, "chunked") != 0)
		return refuse(why, "its Transfer-Encoding is not chunked alone");
	a->length = -1;
	return 0;
}

static int take_field(const char *name, const char *value, struct port_answer *a, const char **why)
{
	if (strcasecmp(name, "content-length") == 0)
		return read_length(value, a, why);
	if (strcasecmp(name, "transfer-encoding") == 0)
		return read_coding(value, a, why);
	for (size_t i = 0; i < ARRAY_SIZE(connection_fields); i++)
		if (strcasecmp(name, connection_fields[i]) == 0)
			return 0;
	if (a->n_fields == PORT_ANSWER_FIELDS)
		return refuse(why, "it has too many fields");
	a->fields[a->n_fields].name = name;
	a->fields[a->n_fields++].value = value;
	return 0;
}

/* Parses the fields after the status line, and puts a NUL after each name and value. */
static int read_fields(char *data, size_t n, struct port_answer *a, const char **why)
{
	struct http_scan scan = { 0 };
	struct http_header f;
	struct http_text line;
	int r = 0;

	(void)http_scan_line(&scan, data, n, &line); /* the status line */
	while (r == 0 && http_scan_line(&scan, data, n, &line) == HTTP_SCAN_LINE) {
		if (http_header_parse(line, &f) < 0)
			return refuse(why, "a field of it is not NAME: VALUE");
		data[f.name.s + f.name.n - data] = data[f.value.s + f.value.n - data] = '\0';
		r = take_field(f.name.s, f.value.s, a, why);
	}
	return r;
}

int port_answer_parse(struct http_scan *scan, char *data, size_t n, struct port_answer *ret,
		      const char **ret_why)
{
	struct port_answer a = { .length = -2 };
	size_t head;
	int r;

	switch (http_scan_head(scan, data, MIN(n, (size_t)PORT_ANSWER_MAX))) {
	case HTTP_SCAN_MORE:
		return n >= PORT_ANSWER_MAX ? refuse(ret_why, "its head is too long") : 0;
	case HTTP_SCAN_LINE:
	case HTTP_SCAN_HEAD:
		break;
	case HTTP_SCAN_BAD_END:
		return refuse(ret_why, "a line of it does not end in CR LF");
	case HTTP_SCAN_CONTROL:
		return refuse(ret_why, "a control character in it");
	}
	head = scan->pos;
	a.status = http_status_parse(data, head);
	if (a.status <= 0)
		return refuse(ret_why, "its first line is not HTTP/1.1 STATUS");
	r = read_fields(data, head, &a, ret_why);
	if (r < 0)
		return r;
	a.bodiless = a.status < 200 || a.status == 204 || a.status == 304;
	*scan = (struct http_scan){ 0 };
	*ret = a;
	return (int)head;
}
