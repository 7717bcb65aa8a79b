/* SPDX-License-Identifier: Apache-2.0 */
/* Used by probes: the fields of a check, and text files of the host. */
#include <stdarg.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "host/probe.h"

/* Escapes unsafe characters; cuts between characters, never within one. */
void host_set_text(char *out, size_t n, const char *s)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8 * HOST_DETAIL_MAX);
	const char *text;
	size_t len;

	(void)str_escape(&b, s, strnlen(s, HOST_DETAIL_MAX));
	text = buf_text(&b);
	len = strlen(text);
	if (len >= n) {
		len = n - STRLEN("...") - 1;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
			len--;
		memcpy(out, text, len);
		memcpy(out + len, "...", sizeof("..."));
		return;
	}
	memcpy(out, text, len + 1);
}

void check_value(struct host_check *c, enum host_state s, const char *fmt, ...)
{
	char text[HOST_DETAIL_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->state = s;
	host_set_text(c->value, sizeof(c->value), text);
}

void check_detail(struct host_check *c, const char *fmt, ...)
{
	char text[HOST_DETAIL_MAX];
	size_t used = strlen(c->detail);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (used > 0 && used + 8 < sizeof(c->detail)) {
		memcpy(c->detail + used, "; ", sizeof("; "));
		used += STRLEN("; ");
	}
	if (used + 8 < sizeof(c->detail))
		host_set_text(c->detail + used, sizeof(c->detail) - used, text);
}

void check_advice(struct host_check *c, const char *fmt, ...)
{
	char text[HOST_DETAIL_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	host_set_text(c->advice, sizeof(c->advice), text);
}

bool host_line(const struct probe_ctx *x, const char *path, char *out, size_t n)
{
	out[0] = '\0';
	return fd_read_line(x->root_fd, path, out, n) == 0;
}

long long host_number(const struct probe_ctx *x, const char *path)
{
	char line[32];
	uint64_t v;

	if (!host_line(x, path, line, sizeof(line)) ||
	    str_to_u64(line, strlen(line), INT64_MAX, &v) < 0)
		return -1;
	return (long long)v;
}

const char *host_text(int root_fd, const char *path, struct buf *b)
{
	struct err e = ERR_INIT;

	/* The start of a file that is too long is still useful. */
	(void)fd_read_file(root_fd, path, b, &e);
	return buf_text(b);
}

bool host_cpu_flag(const struct probe_ctx *x, const char *flag)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16 * 1024), line = BUF_INIT(8 * 1024);
	const char *p = strstr(host_text(x->root_fd, "proc/cpuinfo", &b), "\nflags");

	if (!p)
		return false;
	(void)buf_put(&line, p + 1, strcspn(p + 1, "\n"));
	return str_has_word(buf_text(&line), flag);
}

const struct host_check *host_report_find(const struct host_report *r, const char *id)
{
	for (size_t i = 0; i < r->n_checks; i++)
		if (str_eq(r->checks[i].id, id))
			return &r->checks[i];
	return NULL;
}
