/* SPDX-License-Identifier: Apache-2.0 */
/* hutch cp, watch */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-sandbox.h"
#include "cli/copy.h"
#include "cli/view.h"
#include "tar/extract.h"

enum {
	ID_MAX = 64,
};

/* Splits ID:PATH; false if it is a local path. A ':' after a '/' belongs to a name. */
static bool take_remote(const char *text, char id[static ID_MAX], const char **ret_path)
{
	size_t n = strcspn(text, ":/");

	if (text[n] != ':' || n == 0 || n >= ID_MAX)
		return false;
	memcpy(id, text, n);
	id[n] = '\0';
	*ret_path = text + n + 1;
	return true;
}

static int check_path(const struct invocation *inv, const char *path)
{
	if (path[0] == '/')
		return EXIT_OK;
	return cli_usage(inv, "'%s': a path in a sandbox begins with '/'", path);
}

static int connect_to(const char *id, int *ret_fd, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;

	if (state_root_open(&root, e) < 0 || sandbox_find(&root, id, &b, e) < 0)
		return e->num;
	return sandbox_connect(&b, ret_fd, e);
}

static int take_limits(const struct invocation *inv, struct copy *c)
{
	const char *entries = cli_option(inv, "max-entries"), *bytes = cli_option(inv, "max-size");
	char hint[VALUE_HINT_MAX];

	c->max_entries = EXTRACT_ENTRIES_MAX;
	c->max_bytes = EXTRACT_BYTES_MAX;
	if (entries && str_to_u64(entries, strlen(entries), INT64_MAX, &c->max_entries) < 0)
		return cli_usage(inv, "--max-entries '%s': expected a number", entries);
	if (bytes && value_size(bytes, &c->max_bytes) < 0)
		return value_size_hint(bytes, hint)
			       ? cli_usage(inv, "--max-size '%s': did you mean '%s'?", bytes, hint)
			       : cli_usage(inv, "--max-size '%s': expected a size such as 10GiB",
					   bytes);
	return EXIT_OK;
}

static int report(const struct invocation *inv, const struct copy *c)
{
	int code = c->note[0] ? EXIT_NO : EXIT_OK;

	if (c->note[0]) {
		(void)fprintf(stderr, "%s: ", inv->path);
		cli_puts(stderr, c->note);
		(void)fputc('\n', stderr);
	}
	if (!cli_option(inv, "json"))
		return code;
	return cli_print_json(
		JSON_OBJECT({ "entries", json_number(c->entries) },
			    { "bytes", json_number(c->bytes) },
			    { "left_out", c->note[0] ? cli_json_text(c->note) : json_null() }),
		code);
}

static int run_cp(struct invocation *inv)
{
	const char *src = inv->args[0], *dst = inv->args[1], *path;
	_cleanup_close_ int fd = -EBADF;
	struct copy c = COPY_INIT;
	struct err e = ERR_INIT;
	char id[ID_MAX] = "", other[ID_MAX] = "";
	const char *ignored;
	bool out = take_remote(src, id, &path);
	int code, r;

	if (out == take_remote(dst, out ? other : id, out ? &ignored : &path))
		return cli_usage(inv, "exactly one of SRC and DST must be ID:PATH");
	code = check_path(inv, path);
	if (code == EXIT_OK)
		code = take_limits(inv, &c);
	if (code == EXIT_OK && out && str_eq(dst, "-") && isatty(STDOUT_FILENO))
		code = cli_usage(inv, "an archive is not for a terminal: redirect standard output");
	if (code == EXIT_OK && (src[0] == '\0' || dst[0] == '\0'))
		code = cli_usage(inv, "an empty path");
	if (code != EXIT_OK)
		return code;
	if (connect_to(id, &fd, &e) < 0)
		return cli_fail(inv, &e);
	c.t.fd = fd;
	c.user = cli_option(inv, "user");
	c.show = isatty(STDERR_FILENO) && !cli_option(inv, "json");
	c.began = clock_mono();
	r = out ? copy_out(&c, path, dst, &e) : copy_in(&c, src, path, &e);
	if (c.drawn)
		(void)fputs("\r\033[K", stderr);
	transfer_done(&c.t);
	return r < 0 ? cli_fail(inv, &e) : report(inv, &c);
}

/* ---- watch ---- */

static const char *const event_names[] = {
	[WIRE_CREATED] = "created", [WIRE_WRITTEN] = "written",	      [WIRE_REMOVED] = "removed",
	[WIRE_RENAMED] = "renamed", [WIRE_ATTRIBUTES] = "attributes", [WIRE_LOST] = "lost",
};

static void print_event(const struct fields *f, void *arg)
{
	const char *name = event_names[fields_number(f, TAG_EVENT, WIRE_LOST)];
	bool oom = false, json = arg != NULL;
	_cleanup_free_ char *path = fields_copy(f, TAG_PATH, &oom), *line = NULL;
	_cleanup_json_ json_t *j = NULL;

	if (json && path) {
		j = JSON_OBJECT({ "event", json_string(name) }, { "path", cli_json_text(path) });
		line = j ? json_write_line(j) : NULL;
		(void)printf("%s\n", line ? line : "{}");
	} else {
		(void)printf("%-10s  ", name);
		cli_puts(stdout, path ? path : "");
		(void)putchar('\n');
	}
	(void)fflush(stdout);
	if (ferror(stdout)) /* the reader has gone */
		exit(EXIT_SIGNAL + SIGPIPE);
}

static int run_watch(struct invocation *inv)
{
	_cleanup_close_ int fd = -EBADF;
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	struct err e = ERR_INIT;
	char id[ID_MAX], byte;
	const char *path;
	int64_t r;

	if (!take_remote(inv->args[0], id, &path))
		return cli_usage(inv, "'%s': expected ID:PATH", inv->args[0]);
	if (check_path(inv, path) != EXIT_OK)
		return EXIT_USAGE;
	if (connect_to(id, &fd, &e) < 0)
		return cli_fail(inv, &e);
	t.fd = fd;
	t.event = print_event;
	t.arg = (void *)cli_option(inv, "json");
	r = transfer_open(&t, WIRE_OP_WATCH, path, cli_option(inv, "user"),
			  cli_option(inv, "recursive"), &e);
	while (r >= 0)
		r = transfer_read(&t, &byte, 1, &e);
	return cli_fail(inv, &e);
}

/* clang-format off */
const struct command cmd_cp = {
	.name = "cp", .args = "SRC DST", .min_args = 2, .max_args = 2,
	.summary = "copy files and directories into a sandbox, or out of it",
	.help = "One of SRC and DST is ID:PATH with an absolute path. Like 'cp -r', copies into DST if it is a directory, else\n"
		"to that name. SRC/. means the contents of the directory. '-' is a tar archive on standard input or output.\n"
		"Sockets, FIFOs, devices and set-ID bits are left out. Exits 1 if something was left out or rejected.",
	.options = OPTIONS(
		OPT_JSON,
		{ "user", 'u', "USER", "read or write in the sandbox as this user" },
		{ "max-entries", 0, "N", "maximum number of files and directories to copy out; default 1000000" },
		{ "max-size", 0, "SIZE", "maximum number of bytes to copy out; default 64GiB" }),
	.run = run_cp,
};

const struct command cmd_watch = {
	.name = "watch", .args = "ID:PATH", .min_args = 1, .max_args = 1,
	.summary = "print changes to the files in a directory of a sandbox",
	.help = "Prints a line for each event: created, written, removed, renamed, attributes; or lost, if there were too\n"
		"many. Ends when the directory is removed.",
	.options = OPTIONS(
		OPT_JSON,
		{ "recursive", 'r', NULL, "watch the directories below it too" },
		{ "user", 'u', "USER", "watch as this user" }),
	.run = run_watch,
};
/* clang-format on */
