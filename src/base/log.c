/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

enum {
	LOG_LINE_MAX = 4096
};

enum log_form {
	FORM_TERMINAL,
	FORM_JOURNAL,
	FORM_PLAIN,
};

static struct {
	const char *program;
	enum log_level level;
	enum log_form form;
} state = { .program = "hutch", .level = LOG_LEVEL_INFO };

static const char *level_name(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return "error";
	case LOG_LEVEL_WARNING:
		return "warning";
	case LOG_LEVEL_DEBUG:
		return "debug";
	default:
		return "info";
	}
}

/* JOURNAL_STREAM is "device:inode" of the socket; it is inherited also by those whose stderr is
 * another. */
static bool to_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	(void)snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	return str_eq(stream, own);
}

void log_open(const char *program, enum log_level level)
{
	static const enum log_level all[] = { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO,
					      LOG_LEVEL_DEBUG };
	const char *wish = getenv("HUTCH_LOG");

	state.program = program;
	state.level = level;
	for (size_t i = 0; wish && i < ARRAY_SIZE(all); i++)
		if (str_eq(wish, level_name(all[i])))
			state.level = all[i];
	if (to_journal())
		state.form = FORM_JOURNAL;
	else
		state.form = isatty(STDERR_FILENO) ? FORM_TERMINAL : FORM_PLAIN;
}

bool log_wants(enum log_level level)
{
	return level <= state.level;
}

static void put_head(struct buf *b, enum log_level level)
{
	char when[CLOCK_RFC3339_MAX];

	if (state.form == FORM_JOURNAL)
		(void)buf_printf(b, "<%d>", (int)level);
	else if (state.form == FORM_PLAIN)
		(void)buf_printf(b, "%s %s[%d] %s: ", clock_format(clock_wall(), when),
				 state.program, (int)getpid(), level_name(level));
	else
		(void)buf_printf(b, "%s: %s%s", state.program,
				 level == LOG_LEVEL_INFO ? "" : level_name(level),
				 level == LOG_LEVEL_INFO ? "" : ": ");
}

void log_write(enum log_level level, const char *fmt, ...)
{
	/* Escaping may make four bytes of one. */
	_cleanup_buf_ struct buf line = BUF_INIT(LOG_LINE_MAX * 4 + 128);
	char text[LOG_LINE_MAX];
	int saved = errno;
	va_list ap;

	if (!log_wants(level))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_head(&line, level);
	(void)str_escape(&line, text, strlen(text));
	(void)buf_putc(&line, '\n');
	if (line.err == 0)
		(void)fd_write_all(STDERR_FILENO, line.data, line.len);
	errno = saved;
}
