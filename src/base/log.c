/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/journald.h"
#include "base/str.h"
#include "base/trace.h"

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
	const char *path; /* of journald's socket */
	int journal;	  /* journald's socket; -EBADF: write to stderr instead */
} state = { .program = "hutch", .level = LOG_LEVEL_INFO, .journal = -EBADF };

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

/* JOURNAL_STREAM is "device:inode" of the socket; processes with another stderr inherit it too. */
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
	state.journal = fd_close(state.journal);
	if (to_journal())
		log_to_journal(JOURNALD_SOCKET);
	else
		state.form = isatty(STDERR_FILENO) ? FORM_TERMINAL : FORM_PLAIN;
	trace_set_process(program);
	log_trace(state.level == LOG_LEVEL_DEBUG);
}

void log_to_journal(const char *path)
{
	state.form = FORM_JOURNAL;
	state.path = path;
	state.journal = fd_close(state.journal);
	(void)journald_open(path, &state.journal);
}

void log_forked(void)
{
	/* After the fork this number may belong to another file: do not close it. */
	state.journal = -EBADF;
	if (state.form == FORM_JOURNAL)
		(void)journald_open(state.path, &state.journal);
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

/* Returns 0, or -errno if the entry must go to stderr instead. */
static int send_entry(enum log_level level, const struct log_where *w, const struct trace_line *t,
		      const char *text)
{
	const char *slash = w->file ? strrchr(w->file, '/') : NULL;
	char number[16] = "", priority[16], us[32] = "";
	const struct journald_field fields[] = {
		{ "MESSAGE", text },
		{ "PRIORITY", priority },
		{ "SYSLOG_IDENTIFIER", state.program },
		{ "HUTCH_PROCESS", t->process },
		{ "HUTCH_SANDBOX", t->sandbox },
		{ "HUTCH_REQUEST", t->request },
		{ "HUTCH_KIND", trace_kind_names[t->kind] },
		{ "HUTCH_MONOTONIC_US", us },
		{ "CODE_FILE", slash ? slash + 1 : w->file },
		{ "CODE_LINE", number },
	};

	if (state.journal < 0)
		return -EBADF;
	(void)snprintf(priority, sizeof(priority), "%d", (int)level);
	if (w->file)
		(void)snprintf(number, sizeof(number), "%d", w->line);
	if (t->us > 0)
		(void)snprintf(us, sizeof(us), "%llu", (unsigned long long)t->us);
	return journald_send(state.journal, fields, ARRAY_SIZE(fields));
}

static void print_trace(const struct trace_line *line)
{
	char text[TRACE_LINE_MAX + 8];
	size_t head = 0, n;

	if (state.form == FORM_JOURNAL &&
	    send_entry(LOG_LEVEL_DEBUG, &(const struct log_where){ 0 }, line, line->text) == 0)
		return;
	if (state.form == FORM_JOURNAL)
		head = (size_t)snprintf(text, sizeof(text), "<%d>", LOG_LEVEL_DEBUG);
	n = trace_format(line, text + head);
	(void)fd_write_all(STDERR_FILENO, text, head + n);
}

void log_trace(bool on)
{
	trace_print_by(on ? print_trace : NULL);
}

static bool entry_sent(enum log_level level, const struct log_where *w, const char *text)
{
	struct trace_line t = { .kind = TRACE_LOG };

	if (state.form != FORM_JOURNAL || state.journal < 0)
		return false;
	(void)snprintf(t.process, sizeof(t.process), "%s", state.program);
	(void)snprintf(t.sandbox, sizeof(t.sandbox), "%s", w->sandbox ? w->sandbox : "");
	(void)snprintf(t.request, sizeof(t.request), "%s", w->request ? w->request : "");
	return send_entry(level, w, &t, text) == 0;
}

void log_write(enum log_level level, const struct log_where *where, const char *fmt, ...)
{
	/* Escaping may turn one byte into four. */
	_cleanup_buf_ struct buf line = BUF_INIT(LOG_LINE_MAX * 4 + 128);
	char text[LOG_LINE_MAX];
	int saved = errno;
	size_t head;
	va_list ap;

	if (!log_wants(level))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	trace_log(text);
	put_head(&line, level);
	head = line.len;
	(void)str_escape(&line, text, strlen(text));
	if (line.err == 0 && !entry_sent(level, where, buf_text(&line) + head) &&
	    buf_putc(&line, '\n') == 0)
		(void)fd_write_all(STDERR_FILENO, line.data, line.len);
	errno = saved;
}
