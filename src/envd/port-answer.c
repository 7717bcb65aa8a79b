/* SPDX-License-Identifier: Apache-2.0 */
#include "port-answer.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "str.h"
#include "util.h"

enum {
	STATUS_LINE_MIN = 12, /* HTTP/1.1 200 */
};

/* About the connection, which is ours to say. */
static const char *const connection_fields[] = {
	"connection",	     "keep-alive",     "proxy-connection", "te",   "trailer",
	"transfer-encoding", "content-length", "upgrade",	   "date", "alt-svc",
};

static int refuse(const char **why, const char *text)
{
	*why = text;
	return -EBADMSG;
}

static bool value_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
			return false;
	return true;
}

static int read_status(const char *line, size_t n, struct port_answer *a, const char **why)
{
	uint64_t status = 0;

	if (n < STATUS_LINE_MIN || memcmp(line, "HTTP/1.", 7) != 0 ||
	    (line[7] != '0' && line[7] != '1') || line[8] != ' ' ||
	    str_to_u64(line + 9, 3, 599, &status) < 0 || status < 100 ||
	    (n > STATUS_LINE_MIN && line[12] != ' ') || !value_valid(line, n))
		return refuse(why, "its first line is not HTTP/1.1 STATUS");
	a->status = (int)status;
	return 0;
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

static int read_field(char *line, size_t n, struct port_answer *a, const char **why)
{
	size_t name = str_token_len(line, n);
	char *value;

	if (name == 0 || name == n || line[name] != ':')
		return refuse(why, "a field of it is not NAME: VALUE");
	value = line + name + 1;
	line[name] = line[n] = '\0';
	value += strspn(value, " \t");
	while (line + n > value && (line[n - 1] == ' ' || line[n - 1] == '\t'))
		line[--n] = '\0';
	if (!value_valid(value, (size_t)(line + n - value)))
		return refuse(why, "a control character in it");
	return take_field(line, value, a, why);
}

/* The end of the head: behind the first empty line. Lines end in CR LF; with LF alone the next
 * reader may see other lines than we do. */
static size_t head_end(const char *data, size_t n)
{
	const char *end = memmem(data, n, "\r\n\r\n", 4);

	return end ? (size_t)(end - data) + 4 : 0;
}

int port_answer_parse(char *data, size_t n, struct port_answer *ret, const char **ret_why)
{
	struct port_answer a = { .length = -2 };
	size_t head = head_end(data, MIN(n, (size_t)PORT_ANSWER_MAX)), at = 0;
	int r = 0;

	if (head == 0)
		return n >= PORT_ANSWER_MAX ? refuse(ret_why, "its head is too long") : 0;
	if (memchr(data, '\0', head))
		return refuse(ret_why, "a control character in it");
	while (r == 0 && at < head - 2) {
		char *line = data + at;
		size_t len = (size_t)((char *)memmem(line, head - at, "\r\n", 2) - line);

		if (memchr(line, '\n', len) || memchr(line, '\r', len))
			return refuse(ret_why, "a line of it does not end in CR LF");
		r = at == 0 ? read_status(line, len, &a, ret_why)
			    : read_field(line, len, &a, ret_why);
		at += len + 2;
	}
	if (r < 0)
		return r;
	a.bodiless = a.status < 200 || a.status == 204 || a.status == 304;
	*ret = a;
	return (int)head;
}
