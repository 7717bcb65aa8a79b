/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line. A command is a struct next to its handler, in a file cmd-*.c, and an entry in
 * the list of commands.c. Parsing, help, completion and the test of the manual page use it.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/json-util.h"
#include "builtin/default-store.h"
#include "policy/policy.h"

/* Exit codes, also documented in hutch(1). */
enum {
	EXIT_OK = 0,
	EXIT_NO = 1,	/* negative result: invalid file, denied connection, host lacks a feature */
	EXIT_USAGE = 2, /* invalid command line */
	EXIT_TIMEOUT = 124,	 /* a command in a sandbox reached its time limit */
	EXIT_HUTCH = 125,	 /* hutch itself failed: file not readable, out of memory */
	EXIT_NOT_EXECUTED = 126, /* the command exists but cannot run */
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL = 128, /* plus the number of the signal that ended it */
};

struct option {
	const char *name; /* long form, without dashes */
	char letter;	  /* short form, or 0 */
	const char *arg;  /* name of its argument; NULL: none */
	const char *help;
};

struct invocation;

struct command {
	const char *name;
	const char *args; /* "AGENT NAME:PORT"; "" for none */
	int min_args, max_args;
	/*
	 * The arguments end with the words of another command, which are not parsed as options:
	 * from the first word after `own_args` others, or from "--". A failure of ours is then
	 * always EXIT_HUTCH, because small numbers belong to the other command.
	 */
	bool passes_on;
	int own_args;
	const char *summary;
	const char *help;		  /* paragraphs for --help, after the summary */
	const struct option *options;	  /* ends with .name NULL; may be NULL */
	const struct command *const *sub; /* commands below this one; ends with NULL */
	int (*run)(struct invocation *inv);
};

#define OPTIONS(...)  ((const struct option[]){ __VA_ARGS__, { 0 } })
#define COMMANDS(...) ((const struct command *const[]){ __VA_ARGS__, NULL })

/* clang-format off */
#define OPT_JSON { "json", 0, NULL, "print JSON for programs" }
#define OPT_INCLUDE                                                                     \
	{ "include", 'I', "DIR", "look for agents/ and presets/ in DIR too (can be repeated)" }
/* clang-format on */

enum {
	ARGS_MAX = 1024 * 1024, /* any number */
	OPTIONS_MAX = 256,
	COMMAND_DEPTH_MAX = 4
};

/* One parsed command line. */
struct invocation {
	const struct command *root, *cmd;
	char path[64];	   /* "hutch config explain" */
	const char **args; /* NULL-terminated */
	int n_args;
	struct {
		const char *name, *value;
	} given[OPTIONS_MAX];
	int n_given;
	bool color; /* stdout is a terminal and NO_COLOR is not set */
};

/* Returns the last value of an option ("" without argument), or NULL if it was not given. */
const char *cli_option(const struct invocation *inv, const char *name);

/* Prints "hutch config explain: message" and a hint to --help on stderr; returns EXIT_USAGE. */
int cli_usage(const struct invocation *inv, const char *fmt, ...) _printf_(2, 3);

/* Prints errors and warnings of a policy. */
void cli_diags(FILE *f, const struct diags *d);

/*
 * Prints the message of `e` on stderr, escaped; returns EXIT_NO for -EINVAL or -ENOENT, else
 * EXIT_HUTCH.
 */
int cli_fail(const struct invocation *inv, const struct err *e);

/*
 * Prints a value as canonical JSON on stdout and releases it; NULL means out of memory. Returns
 * `code` or EXIT_HUTCH.
 */
int cli_print_json(json_t *j, int code);

/* Flushes stdout and reports a write error (a full disk). Returns `code` or EXIT_HUTCH. */
int cli_finish(int code);

/*
 * Makes a JSON string of untrusted text; bytes that are not UTF-8 (as in file names) are escaped.
 */
json_t *cli_json_text(const char *s);

/* Prints untrusted text, escaped. */
void cli_puts(FILE *f, const char *s);

/* SGR codes, empty without colour. */
const char *cli_style(const struct invocation *inv, const char *sgr);

void help_print(FILE *f, const struct command *const *chain, int depth);

/* Returns the subcommand of that name, or NULL; and the one that was probably meant. */
const struct command *cli_find_command(const struct command *cmd, const char *name);
const char *cli_closest_command(const struct command *cmd, const char *name);

/* Opens the store that every command uses: -I DIR and so on, default-store.h. */
int cli_store_open(struct default_store *s, const struct invocation *inv, struct err *e);

extern const struct command root_command;

/* Commands listed in another file: commands.c, or the file of the parent command. */
extern const struct command cmd_run, cmd_create, cmd_exec, cmd_shell, cmd_attach, cmd_logs,
	cmd_wait, cmd_signal, cmd_cp, cmd_commit, cmd_watch, cmd_ps, cmd_inspect, cmd_debug,
	cmd_receipt, cmd_pause, cmd_suspend, cmd_resume, cmd_ttl, cmd_kill, cmd_rm, cmd_gc,
	cmd_config, cmd_agents, cmd_presets, cmd_image, cmd_image_kernel, cmd_snapshot,
	cmd_snapshot_create, cmd_template, cmd_fork, cmd_pool, cmd_egress, cmd_egress_log,
	cmd_egress_suggest, cmd_llm, cmd_llm_spans, cmd_secret, cmd_key, cmd_audit, cmd_audit_show,
	cmd_mcp, cmd_doctor, cmd_completion, cmd_help, cmd_version;
