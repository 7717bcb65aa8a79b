/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command, reads its options, runs it. */
#include <locale.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "log.h"
#include "str.h"

const char *cli_option(const struct invocation *inv, const char *name)
{
	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, name))
			return inv->given[i].value;
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
	return EXIT_USAGE;
}

int cli_fail(const struct invocation *inv, const struct err *e)
{
	(void)fprintf(stderr, "%s: ", inv->path);
	cli_puts(stderr, e->msg);
	(void)fputc('\n', stderr);
	return e->num == -EINVAL || e->num == -ENOENT || e->num == -EEXIST ? EXIT_NO : EXIT_HUTCH;
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

static const struct option *find_option(const struct command *cmd, const char *name, size_t n,
					char letter)
{
	for (const struct option *o = cmd->options; o && o->name; o++)
		if (letter ? o->letter == letter
			   : strlen(o->name) == n && memcmp(o->name, name, n) == 0)
			return o;
	return NULL;
}

const struct command *cli_find_command(const struct command *cmd, const char *name)
{
	for (const struct command *c = cmd->sub; c && c->name; c++)
		if (str_eq(c->name, name))
			return c;
	return NULL;
}

const char *cli_closest_command(const struct command *cmd, const char *name)
{
	const char *names[32];
	size_t n = 0;

	for (const struct command *c = cmd->sub; c && c->name && n < ARRAY_SIZE(names) - 1; c++)
		names[n++] = c->name;
	names[n] = NULL;
	return str_closest(name, names);
}

static int unknown_command(const struct invocation *inv, const char *word)
{
	const char *close = cli_closest_command(inv->cmd, word);

	if (close)
		return cli_usage(inv, "unknown command '%s'; did you mean '%s'?", word, close);
	return cli_usage(inv, "unknown command '%s'", word);
}

static int unknown_option(const struct invocation *inv, const char *word)
{
	const char *names[OPTIONS_MAX + 2] = { "help" }, *close;
	size_t n = 1;

	for (const struct option *o = inv->cmd->options; o && o->name && n <= OPTIONS_MAX; o++)
		names[n++] = o->name;
	names[n] = NULL;
	close = str_has_prefix(word, "--") ? str_closest(word + 2, names) : NULL;
	if (close)
		return cli_usage(inv, "unknown option '%s'; did you mean '--%s'?", word, close);
	return cli_usage(inv, "unknown option '%s'", word);
}

/*
 * One word that begins with a dash. Moves *i when the option's argument is the next word. EXIT_OK,
 * or EXIT_USAGE.
 */
static int take_option(struct invocation *inv, char **argv, int argc, int *i)
{
	const char *word = argv[*i], *value = NULL;
	const struct option *o;

	if (word[1] == '-') {
		size_t n = strcspn(word + 2, "=");

		o = find_option(inv->cmd, word + 2, n, 0);
		if (o && word[2 + n] == '=')
			value = word + 2 + n + 1;
	} else {
		o = find_option(inv->cmd, "", 0, word[1]);
		if (o && word[2])
			value = word + 2;
	}
	if (!o)
		return unknown_option(inv, word);
	if (value && !o->arg)
		return cli_usage(inv, "'--%s' takes no argument", o->name);
	if (!value && o->arg && *i + 1 < argc)
		value = argv[++*i];
	if (!value && o->arg)
		return cli_usage(inv, "'--%s' needs an argument: %s", o->name, o->arg);
	if (inv->n_given == OPTIONS_MAX)
		return cli_usage(inv, "too many options");
	inv->given[inv->n_given].name = o->name;
	inv->given[inv->n_given++].value = value ? value : "";
	return EXIT_OK;
}

static bool wants_help(const char *word)
{
	return str_eq(word, "--help") || str_eq(word, "-h");
}

/* Reads options and arguments of the command found; options may stand anywhere before "--". */
static int take_words(struct invocation *inv, char **argv, int argc)
{
	bool options = true;
	int r = EXIT_OK;

	for (int i = 0; r == EXIT_OK && i < argc; i++) {
		if (options && str_eq(argv[i], "--")) {
			options = false;
		} else if (options && argv[i][0] == '-' && argv[i][1]) {
			r = take_option(inv, argv, argc, &i);
		} else if (inv->n_args >= inv->cmd->max_args) {
			r = cli_usage(inv, "'%s' is one argument too many", argv[i]);
		} else {
			inv->args[inv->n_args++] = argv[i];
		}
	}
	if (r == EXIT_OK && inv->n_args < inv->cmd->min_args)
		r = cli_usage(inv, "expected %s", inv->cmd->args);
	return r;
}

static int dispatch(struct invocation *inv, char **argv, int argc)
{
	const struct command *chain[COMMAND_DEPTH_MAX] = { &root_command };
	int depth = 1, i = 0;

	inv->cmd = &root_command;
	(void)snprintf(inv->path, sizeof(inv->path), "hutch");
	if (argc == 1 && str_eq(argv[0], "--version"))
		return cmd_version(inv);
	for (; inv->cmd->sub && i < argc && argv[i][0] != '-'; i++) {
		const struct command *c = cli_find_command(inv->cmd, argv[i]);

		if (!c)
			return unknown_command(inv, argv[i]);
		inv->cmd = c;
		chain[depth++] = c;
		(void)snprintf(inv->path + strlen(inv->path), sizeof(inv->path) - strlen(inv->path),
			       " %s", c->name);
	}
	for (int j = i; j < argc && !str_eq(argv[j], "--"); j++)
		if (wants_help(argv[j])) {
			help_print(stdout, chain, depth);
			return EXIT_OK;
		}
	if (inv->cmd->sub && i < argc)
		return unknown_option(inv, argv[i]);
	if (inv->cmd->sub) {
		help_print(stderr, chain, depth);
		return EXIT_USAGE;
	}
	i = take_words(inv, argv + i, argc - i);
	return i == EXIT_OK ? inv->cmd->run(inv) : i;
}

int main(int argc, char **argv)
{
	struct invocation inv = { 0 };

	(void)setlocale(LC_CTYPE, "C.UTF-8");
	log_open("hutch", LOG_LEVEL_WARNING);
	inv.color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	return cli_finish(dispatch(&inv, argv + MIN(argc, 1), argc - MIN(argc, 1)));
}
