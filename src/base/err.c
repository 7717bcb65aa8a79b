/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <string.h>

/* vsnprintf() that marks truncated text with "...". */
_printf_(2, 0) static void format(char buf[ERR_MSG_MAX], const char *fmt, va_list ap)
{
	int n = vsnprintf(buf, ERR_MSG_MAX, fmt, ap);
	char *cut = buf + ERR_MSG_MAX - sizeof("...");

	if (n < 0)
		buf[0] = '\0';
	if (n < ERR_MSG_MAX)
		return;
	/* Cut between characters: half a character is not UTF-8, and JSON could not hold it. */
	while (cut > buf && ((unsigned char)*cut & 0xc0) == 0x80)
		cut--;
	memcpy(cut, "...", sizeof("..."));
}

int err_set_(struct err *e, int num, const char *fmt, ...)
{
	char text[ERR_MSG_MAX];
	va_list ap;

	assert(e && num < 0);
	/* The arguments may contain e->msg, which vsnprintf() must not overwrite while it reads. */
	va_start(ap, fmt);
	format(text, fmt, ap);
	va_end(ap);
	e->num = num;
	memcpy(e->msg, text, strlen(text) + 1);
	return num;
}

int err_errno_(struct err *e, const char *fmt, ...)
{
	int num = errno > 0 ? -errno : -EIO;
	char what[ERR_MSG_MAX];
	va_list ap;

	va_start(ap, fmt);
	format(what, fmt, ap);
	va_end(ap);
	return err_set(e, num, "%s: %s", what, strerror(-num));
}

int err_wrap_(struct err *e, const char *fmt, ...)
{
	char context[ERR_MSG_MAX], was[ERR_MSG_MAX];
	va_list ap;

	assert(e && e->num < 0);
	memcpy(was, e->msg, sizeof(was));
	va_start(ap, fmt);
	format(context, fmt, ap);
	va_end(ap);
	return err_set(e, e->num, "%s: %s", context, was);
}

int err_oom_(struct err *e)
{
	return err_set(e, -ENOMEM, "out of memory");
}
