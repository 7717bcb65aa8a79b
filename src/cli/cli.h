/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: one table of commands (commands.c) from which parsing, help, completion and the
 * test of the manual page are made. A command is a file cmd-*.c and a row.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "default-store.h"
#include "err.h"
#include "json-util.h"
#include "policy.h"

/* Exit codes, also documented in hutch(1). */
enum {
	EXIT_OK = 0,
	EXIT_NO = 1,	/* the answer is no: file wrong, connection denied, host lacks something */
	EXIT_USAGE = 2, /* the command line is wrong */
	EXIT_TIMEOUT = 124,	 /* of a command in a sandbox: its time limit */
	EXIT_HUTCH = 125,	 /* hutch itself failed: file not readable, out of memory */
	EXIT_NOT_EXECUTED = 126, /* it is there and cannot be run */
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL = 128, /* and the number of the signal that ended it */
};

struct option {
	const char *name; /* long form, without dashes */
	char letter;	  /* short form, or 0 */
	const char *arg;  /* what its argument is called; NULL: it has none */
	const char *help;
};

struct invocation;

struct command {
	const char *name;
	const char *args; /* "AGENT NAME:PORT"; "" for none */
	int min_args, max_args;
	/*
	 * The arguments end with the words of another command, which are nobody's options: from the
	 * first word behind `own_args` others, or from "--". A failure of ours is then EXIT_HUTCH
	 * always, because small numbers are the other command's.
	 */
	bool passes_on;
	int own_args;
	const char *summary;
	const char *help;	      /* paragraphs for --help, after the summary */
	const struct option *options; /* ends with .name NULL; may be NULL */
	const struct command *sub;    /* commands below this one; ends with .name NULL */
	int (*run)(struct invocation *inv);
};

enum {
	ARGS_MAX = 1024 * 1024, /* any number */
	OPTIONS_MAX = 256,
	COMMAND_DEPTH_MAX = 4
};

/* One parsed command line. */
struct invocation {
	const struct command *cmd;
	char path[64];	   /* "hutch config explain" */
	const char **args; /* NULL-terminated */
	int n_args;
	struct {
		const char *name, *value;
	} given[OPTIONS_MAX];
	int n_given;
	bool color; /* stdout is a terminal and NO_COLOR is not set */
};

extern const struct command root_command;

/* The value of an option ("" for one without argument; the last one), or NULL if it was not given.
 */
const char *cli_option(const struct invocation *inv, const char *name);

/* Prints "hutch config explain: message" and where to read on, on stderr; returns EXIT_USAGE. */
int cli_usage(const struct invocation *inv, const char *fmt, ...) _printf_(2, 3);

/* Prints errors and warnings of a policy. */
void cli_diags(FILE *f, const struct diags *d);

/*
 * Prints what `e` says on stderr, escaped; returns EXIT_NO for a -EINVAL or -ENOENT, else
 * EXIT_HUTCH.
 */
int cli_fail(const struct invocation *inv, const struct err *e);

/*
 * Prints a value as canonical JSON on stdout and drops it; NULL is "out of memory". Returns `code`
 * or EXIT_HUTCH.
 */
int cli_print_json(json_t *j, int code);

/*
 * Flushes stdout and says so if what was printed did not arrive (a full disk). Returns `code` or
 * EXIT_HUTCH.
 */
int cli_finish(int code);

/*
 * Text from outside as a JSON string; what is not UTF-8 (the name of a file may be anything) is
 * escaped.
 */
json_t *cli_json_text(const char *s);

/* Prints text from outside, escaped. */
void cli_puts(FILE *f, const char *s);

/* SGR codes, empty without colour. */
const char *cli_style(const struct invocation *inv, const char *sgr);

void help_print(FILE *f, const struct command *const *chain, int depth);

/* The command below `cmd` of that name, or NULL; and the one that was probably meant. */
const struct command *cli_find_command(const struct command *cmd, const char *name);
const char *cli_closest_command(const struct command *cmd, const char *name);

/* The store every command uses: -I DIR and so on, default-store.h. */
int cli_store_open(struct default_store *s, const struct invocation *inv, struct err *e);

int cmd_help(struct invocation *inv);
int cmd_version(struct invocation *inv);
int cmd_completion(struct invocation *inv);
int cmd_config_validate(struct invocation *inv);
int cmd_config_compile(struct invocation *inv);
int cmd_config_explain(struct invocation *inv);
int cmd_config_docs(struct invocation *inv);
int cmd_presets(struct invocation *inv);
int cmd_agents(struct invocation *inv);
int cmd_doctor(struct invocation *inv);
int cmd_mcp(struct invocation *inv);
int cmd_image_build(struct invocation *inv);
int cmd_image_import(struct invocation *inv);
int cmd_image_ls(struct invocation *inv);
int cmd_image_inspect(struct invocation *inv);
int cmd_image_rm(struct invocation *inv);
int cmd_image_kernel(struct invocation *inv);
int cmd_fork(struct invocation *inv);
int cmd_pool_fill(struct invocation *inv);
int cmd_pool_ls(struct invocation *inv);
int cmd_pool_drain(struct invocation *inv);
int cmd_snapshot_create(struct invocation *inv);
int cmd_snapshot_ls(struct invocation *inv);
int cmd_snapshot_rm(struct invocation *inv);
int cmd_template_ls(struct invocation *inv);
int cmd_template_rm(struct invocation *inv);
int cmd_template_share(struct invocation *inv);
int cmd_template_unshare(struct invocation *inv);
int cmd_run(struct invocation *inv);
int cmd_create(struct invocation *inv);
int cmd_exec(struct invocation *inv);
int cmd_attach(struct invocation *inv);
int cmd_logs(struct invocation *inv);
int cmd_wait(struct invocation *inv);
int cmd_signal(struct invocation *inv);
int cmd_shell(struct invocation *inv);
int cmd_cp(struct invocation *inv);
int cmd_commit(struct invocation *inv);
int cmd_watch(struct invocation *inv);
int cmd_ps(struct invocation *inv);
int cmd_debug(struct invocation *inv);
int cmd_inspect(struct invocation *inv);
int cmd_receipt(struct invocation *inv);
int cmd_gc(struct invocation *inv);
int cmd_suspend(struct invocation *inv);
int cmd_pause(struct invocation *inv);
int cmd_resume(struct invocation *inv);
int cmd_ttl(struct invocation *inv);
int cmd_kill(struct invocation *inv);
int cmd_rm(struct invocation *inv);
int cmd_audit_show(struct invocation *inv);
int cmd_audit_verify(struct invocation *inv);
int cmd_audit_export(struct invocation *inv);
int cmd_audit_checkpoint(struct invocation *inv);
int cmd_audit_key(struct invocation *inv);
int cmd_key_create(struct invocation *inv);
int cmd_key_set(struct invocation *inv);
int cmd_key_ls(struct invocation *inv);
int cmd_key_revoke(struct invocation *inv);
int cmd_egress_log(struct invocation *inv);
int cmd_egress_explain(struct invocation *inv);
int cmd_egress_allow(struct invocation *inv);
int cmd_egress_deny(struct invocation *inv);
int cmd_egress_suggest(struct invocation *inv);
