/* SPDX-License-Identifier: Apache-2.0 */
/* Where the value of a secret comes from: a prompt, standard input, a file, a variable, a command.
 */
#pragma once

#include "cli/cli.h"
#include "secret/change.h"

/* Options of the commands that read a value; they exclude each other. */
/* clang-format off */
#define OPTS_SECRET_SOURCE                                                              \
	{ "file", 'f', "FILE", "read the value from FILE" },                            \
	{ "env", 'e', "VAR", "take the value of the environment variable VAR" },        \
	{ "exec", 'x', NULL, "take the output of COMMAND, which 'rotate' runs again" }, \
	{ "oauth", 0, "FILE", "get tokens with the OAuth 2.0 client in FILE (YAML)" },  \
	{ "github-app", 0, "FILE", "get tokens with the GitHub App in FILE (YAML)" }
/* clang-format on */

/*
 * Finds the source in the options; without one, standard input. The words after the first argument
 * are the command. EXIT_OK or EXIT_USAGE.
 */
int secret_input_source(const struct invocation *inv, struct secret_origin *ret);

/*
 * Reads the value, without one newline at its end, and checks it. `ret` has no memory yet; its
 * owner wipes it. A variable is wiped from our environment.
 */
int secret_input_read(const struct invocation *inv, const char *name,
		      const struct secret_origin *origin, struct buf *ret, struct err *e);
