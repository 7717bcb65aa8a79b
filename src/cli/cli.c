/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all commands: given options, messages, output. */
#include <stdarg.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"

const char *cli_option(const struct invocation *inv, const char *name)
{
	for (int i = inv->n_given; i > 0; i--)
		if (str_eq(inv->given[i - 1].name, name))
			return inv->given[i - 1].value;
	return NULL;
}

void cli_puts(FILE *f, const char *s)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	(void)str_escape(&b, s, strlen(s));
	(void)fputs(buf_text(&b), f);
}

json_t *cli_json_text(const char *s)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	if (utf8_valid(s, strlen(s)))
		return json_string(s);
	return str_escape(&b, s, strlen(s)) < 0 ? NULL : json_string(buf_text(&b));
}

const char *cli_style(const struct invocation *inv, const char *sgr)
{
	return inv->color ? sgr : "";
}

int cli_usage(const struct invocation *inv, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "%s: ", inv->path);
	cli_puts(stderr, text);
	(void)fprintf(stderr, "\nTry '%s --help'.\n", inv->path);
	return inv->cmd->passes_on ? EXIT_HUTCH : EXIT_USAGE;
}

int cli_fail(const struct invocation *inv, const struct err *e)
{
	(void)fprintf(stderr, "%s: ", inv->path);
	cli_puts(stderr, e->msg);
	(void)fputc('\n', stderr);
	if (inv->cmd->passes_on)
		return EXIT_HUTCH;
	return e->num == -EINVAL || e->num == -ENOENT || e->num == -EEXIST ? EXIT_NO : EXIT_HUTCH;
}

void cli_diags(FILE *f, const struct diags *d)
{
	for (size_t i = 0; i < d->n; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

		(void)diag_format(&d->list[i], &b);
		(void)fprintf(f, "%s\n", buf_text(&b));
	}
	if (d->dropped > 0)
		(void)fprintf(f, "... and %zu more\n", d->dropped);
}

int cli_finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	(void)fprintf(stderr, "hutch: cannot write to standard output: %s\n", strerror(errno));
	return EXIT_HUTCH;
}

int cli_print_json(json_t *j, int code)
{
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;

	json_decref(j);
	if (!text) {
		(void)fputs("hutch: out of memory\n", stderr);
		return EXIT_HUTCH;
	}
	(void)puts(text);
	return code;
}

const struct command *cli_find_command(const struct command *cmd, const char *name)
{
	for (const struct command *const *c = cmd->sub; c && *c; c++)
		if (str_eq((*c)->name, name))
			return *c;
	return NULL;
}

const char *cli_closest_command(const struct command *cmd, const char *name)
{
	const char *names[64];
	size_t n = 0;

	for (const struct command *const *c = cmd->sub; c && *c && n < ARRAY_SIZE(names) - 1; c++)
		names[n++] = (*c)->name;
	names[n] = NULL;
	return str_closest(name, names);
}

int cli_store_open(struct default_store *s, const struct invocation *inv, struct err *e)
{
	const char *include[OPTIONS_MAX];
	size_t n = 0;

	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, "include"))
			include[n++] = inv->given[i].value;
	return default_store_open(s, include, n, e);
}
