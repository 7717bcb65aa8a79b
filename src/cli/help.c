/* SPDX-License-Identifier: Apache-2.0 */
/* Help, version and completion, generated from the command table. */
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"

static void print_options(FILE *f, const struct command *cmd)
{
	(void)fputs("\nOptions:\n", f);
	for (const struct option *o = cmd->options; o && o->name; o++) {
		char left[48];

		(void)snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? " " : "",
			       o->arg ? o->arg : "");
		(void)fprintf(f, "  %c%c%s %-18s %s\n", o->letter ? '-' : ' ',
			      o->letter ? o->letter : ' ', o->letter ? "," : " ", left, o->help);
	}
	(void)fprintf(f, "  -h, %-18s show this help\n", "--help");
}

void help_print(FILE *f, const struct command *const *chain, int depth)
{
	const struct command *cmd = chain[depth - 1];

	(void)fputs("Usage:", f);
	for (int i = 0; i < depth; i++)
		(void)fprintf(f, " %s", chain[i]->name);
	(void)fprintf(f, "%s%s%s\n\n%c%s.\n", cmd->sub ? " COMMAND" : " [OPTIONS]",
		      cmd->args[0] ? " " : "", cmd->args, cmd->summary[0] - 0x20, cmd->summary + 1);
	if (cmd->help)
		(void)fprintf(f, "\n%s\n", cmd->help);
	if (cmd->sub)
		(void)fputs("\nCommands:\n", f);
	for (const struct command *const *c = cmd->sub; c && *c; c++)
		(void)fprintf(f, "  %-12s %s\n", (*c)->name, (*c)->summary);
	print_options(f, cmd);
	if (depth == 1)
		(void)fputs(
			"\n'hutch help COMMAND' explains a command. Exit codes: 0 success or yes, "
			"1 "
			"no, 2 wrong usage,\n"
			"125 hutch failed; 'run' and 'exec' exit with the status of their command."
			"\nSee hutch(1), hutch-agent(5), hutch-image(5).\n",
			f);
}

static int run_help(struct invocation *inv)
{
	const struct command *chain[COMMAND_DEPTH_MAX + 1] = { inv->root };
	int depth = 1;

	for (int i = 0; i < inv->n_args; i++) {
		const struct command *above = chain[depth - 1],
				     *c = cli_find_command(above, inv->args[i]);
		const char *close = c ? NULL : cli_closest_command(above, inv->args[i]);

		if (close)
			return cli_usage(inv, "there is no command '%s'; did you mean '%s'?",
					 inv->args[i], close);
		if (!c)
			return cli_usage(inv, "there is no command '%s'", inv->args[i]);
		chain[depth++] = c;
	}
	help_print(stdout, chain, depth);
	return EXIT_OK;
}

static int run_version(struct invocation *inv)
{
	if (cli_option(inv, "json"))
		return cli_print_json(json_pack("{s:s}", "version", HUTCH_VERSION), EXIT_OK);
	(void)puts("hutch " HUTCH_VERSION);
	return EXIT_OK;
}

/* Prints the words that can follow "hutch A B" as one case of the script. */
static void completion_case(const char *path, const struct command *cmd)
{
	(void)printf("\t'%s') words='", path);
	for (const struct command *const *c = cmd->sub; c && *c; c++)
		(void)printf("%s ", (*c)->name);
	for (const struct option *o = cmd->options; o && o->name; o++)
		(void)printf("--%s ", o->name);
	(void)printf("--help' ;;\n");
	for (const struct command *const *c = cmd->sub; c && *c; c++) {
		char below[64];

		(void)snprintf(below, sizeof(below), "%s %s", path, (*c)->name);
		completion_case(below, *c);
	}
}

/*
 * The script follows the words typed so far as long as they name commands, then offers their
 * completions. For an agent or a sandbox it asks hutch for their names.
 */
static int run_completion(struct invocation *inv)
{
	if (!str_eq(inv->args[0], "bash"))
		return cli_usage(inv, "there is no completion for '%s', only for bash",
				 inv->args[0]);
	(void)puts("# bash completion for hutch; made by 'hutch completion bash'\n"
		   "_hutch_words()\n{\n"
		   "\tcase \"$1\" in");
	completion_case("hutch", inv->root);
	(void)puts("\t*) return 1 ;;\n\tesac\n}\n\n"
		   "_hutch()\n{\n"
		   "\tlocal words path=hutch next i cur=${COMP_WORDS[COMP_CWORD]}\n"
		   "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		   "\t\t[[ $i = 1 && ${COMP_WORDS[i]} = help ]] && continue\n"
		   "\t\tnext=\"$path ${COMP_WORDS[i]}\"\n"
		   "\t\t_hutch_words \"$next\" || break\n"
		   "\t\tpath=$next\n"
		   "\tdone\n"
		   "\t_hutch_words \"$path\"\n"
		   "\tcase \"$path\" in\n"
		   "\t'hutch config compile' | 'hutch config explain' | 'hutch agents')\n"
		   "\t\twords+=\" $(hutch agents 2>/dev/null | cut -d' ' -f1)\" ;;\n"
		   "\t'hutch image inspect' | 'hutch image rm')\n"
		   "\t\twords+=\" $(hutch image ls 2>/dev/null | cut -d' ' -f1)\" ;;\n"
		   "\t'hutch image build')\n"
		   "\t\twords+=\" base $(hutch agents 2>/dev/null | cut -d' ' -f1)\" ;;\n"
		   "\t'hutch presets')\n"
		   "\t\twords+=\" $(hutch presets 2>/dev/null | sed -n 's/^  \\([^ "
		   "]*\\).*/\\1/p')\" ;;\n"
		   "\t'hutch cp' | 'hutch watch')\n"
		   "\t\twords+=\" $(hutch ps 2>/dev/null | sed 1d | cut -d' ' -f1 | sed "
		   "'s,$,:/,')\" ;;\n"
		   "\t'hutch exec' | 'hutch kill')\n"
		   "\t\twords+=\" $(hutch ps 2>/dev/null | sed 1d | cut -d' ' -f1)\" ;;\n"
		   "\t'hutch inspect' | 'hutch receipt' | 'hutch rm')\n"
		   "\t\twords+=\" $(hutch ps -a 2>/dev/null | sed 1d | cut -d' ' -f1)\" ;;\n"
		   "\t'hutch completion') words+=' bash' ;;\n"
		   "\tesac\n"
		   "\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
		   "}\n"
		   "complete -o default -F _hutch hutch");
	return EXIT_OK;
}

/* clang-format off */
const struct command cmd_completion = {
	.name = "completion", .args = "bash", .min_args = 1, .max_args = 1,
	.summary = "print a completion script for a shell",
	.help = "To use it now: source <(hutch completion bash)",
	.run = run_completion,
};

const struct command cmd_help = {
	.name = "help", .args = "[COMMAND...]", .max_args = COMMAND_DEPTH_MAX,
	.summary = "show help for a command", .run = run_help,
};

const struct command cmd_version = {
	.name = "version", .args = "",
	.summary = "print the version", .options = OPTIONS(OPT_JSON), .run = run_version,
};
/* clang-format on */
