/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command, parses its options, runs it. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/trace.h"
#include "cli/cli.h"

static const struct option *find_option(const struct command *cmd, const char *name, size_t n,
					char letter)
{
	for (const struct option *o = cmd->options; o && o->name; o++)
		if (letter ? o->letter == letter
			   : strlen(o->name) == n && memcmp(o->name, name, n) == 0)
			return o;
	return NULL;
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

/* Notes an option; its argument is `value`, or the next word. Returns EXIT_OK or EXIT_USAGE. */
static int note_option(struct invocation *inv, const struct option *o, const char *value,
		       char **argv, int argc, int *i)
{
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

/* Parses "-it": letters up to one with an argument, which is the rest of the word or the next one.
 */
static int take_letters(struct invocation *inv, char **argv, int argc, int *i)
{
	const char *word = argv[*i];
	int r = EXIT_OK;

	for (const char *c = word + 1; r == EXIT_OK && *c; c++) {
		const struct option *o = find_option(inv->cmd, "", 0, *c);

		if (!o)
			return unknown_option(inv, word);
		if (o->arg)
			return note_option(inv, o, c[1] ? c + 1 : NULL, argv, argc, i);
		r = note_option(inv, o, NULL, argv, argc, i);
	}
	return r;
}

/* Parses one word that begins with a dash. Moves *i if the option's argument is the next word. */
static int take_option(struct invocation *inv, char **argv, int argc, int *i)
{
	const char *word = argv[*i];
	const struct option *o;
	size_t n;

	if (word[1] != '-')
		return take_letters(inv, argv, argc, i);
	n = strcspn(word + 2, "=");
	o = find_option(inv->cmd, word + 2, n, 0);
	if (!o)
		return unknown_option(inv, word);
	return note_option(inv, o, word[2 + n] == '=' ? word + 2 + n + 1 : NULL, argv, argc, i);
}

static bool wants_help(const char *word)
{
	return str_eq(word, "--help") || str_eq(word, "-h");
}

static bool is_option(const char *word)
{
	return word[0] == '-' && word[1];
}

/* Returns whether the option takes the next word as its argument. */
static bool takes_next(const struct command *cmd, const char *word)
{
	const struct option *o;

	if (word[1] == '-') {
		o = find_option(cmd, word + 2, strlen(word + 2), 0);
		return o && o->arg;
	}
	for (const char *c = word + 1; *c; c++) {
		o = find_option(cmd, "", 0, *c);
		if (o && o->arg)
			return !c[1];
	}
	return false;
}

/* Help is shown whatever the other words are, but not for a word that is passed on. */
static bool help_wanted(const struct command *cmd, char **argv, int argc)
{
	int words = 0;

	for (int i = 0; i < argc && !str_eq(argv[i], "--"); i++) {
		if (wants_help(argv[i]))
			return true;
		if (!cmd->passes_on)
			continue;
		if (!is_option(argv[i]) && words++ >= cmd->own_args)
			return false;
		i += is_option(argv[i]) && takes_next(cmd, argv[i]);
	}
	return false;
}

/*
 * Parses options and arguments of the command; options may be anywhere before "--", or before the
 * words that are passed on. Collects the arguments at the beginning of argv.
 */
static int take_words(struct invocation *inv, char **argv, int argc)
{
	bool options = true;
	int r = EXIT_OK;

	inv->args = (const char **)argv;
	for (int i = 0; r == EXIT_OK && i < argc; i++) {
		if (options && str_eq(argv[i], "--")) {
			options = false;
		} else if (options && is_option(argv[i])) {
			r = take_option(inv, argv, argc, &i);
		} else if (inv->n_args >= inv->cmd->max_args) {
			r = cli_usage(inv, "'%s' is one argument too many", argv[i]);
		} else {
			options = options &&
				  !(inv->cmd->passes_on && inv->n_args == inv->cmd->own_args);
			inv->args[inv->n_args++] = argv[i];
		}
	}
	if (r == EXIT_OK && inv->n_args < inv->cmd->min_args)
		r = cli_usage(inv, "expected %s", inv->cmd->args);
	inv->args[inv->n_args] = NULL;
	return r;
}

static int dispatch(struct invocation *inv, char **argv, int argc)
{
	const struct command *chain[COMMAND_DEPTH_MAX] = { &root_command };
	int depth = 1, i = 0;

	inv->root = inv->cmd = &root_command;
	(void)snprintf(inv->path, sizeof(inv->path), "hutch");
	if (argc == 1 && str_eq(argv[0], "--version"))
		return cmd_version.run(inv);
	for (; inv->cmd->sub && i < argc && argv[i][0] != '-'; i++) {
		const struct command *c = cli_find_command(inv->cmd, argv[i]);

		if (!c)
			return unknown_command(inv, argv[i]);
		inv->cmd = c;
		chain[depth++] = c;
		(void)snprintf(inv->path + strlen(inv->path), sizeof(inv->path) - strlen(inv->path),
			       " %s", c->name);
	}
	if (help_wanted(inv->cmd, argv + i, argc - i)) {
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

/* Opens missing standard descriptors so that later files do not become standard output; using them
 * still fails. */
static void fill_standard(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	struct invocation inv = { 0 };
	char request[TRACE_REQUEST + 1];

	fill_standard();
	if (sodium_init() < 0) { /* selects code for this processor */
		(void)fputs("hutch: libsodium does not work here\n", stderr);
		return EXIT_HUTCH;
	}
	(void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is an ordinary write error */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	log_open("hutch", LOG_LEVEL_WARNING);
	trace_set_process("cli");
	trace_new_request(request);
	trace_set_request(request);
	inv.color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	return cli_finish(dispatch(&inv, argv + MIN(argc, 1), argc - MIN(argc, 1)));
}
