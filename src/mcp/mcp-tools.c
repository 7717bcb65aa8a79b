/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tools: source of the schemas for clients, and of the checks of their arguments. */
#include <string.h>

#include "base/str.h"
#include "mcp/mcp-inner.h"

static const char *const languages[] = { "python", "javascript", "bash", NULL };

#define ARG_SANDBOX                                                                                \
	{                                                                                          \
		"sandbox", ARG_TEXT, false, SPEC_ID, SPEC_ID, NULL,                                \
			"The id of a sandbox that create_sandbox made. Without it, the session's " \
			"own sandbox is used."                                                     \
	}
#define ARG_PATH(what)                                                                    \
	{                                                                                 \
		"path", ARG_TEXT, true, 1, TOOL_PATH_MAX, NULL,                           \
			what " An absolute path, or one that is relative to the working " \
			     "directory of commands."                                     \
	}

/* clang-format off */
const struct mcp_tool mcp_tools[] = {
	{ .name = "run_command", .title = "Run a command",
	  .description = "Runs a shell command in a sandbox, waits for it to end, and returns its standard output, standard error and "
			 "exit status. Each command is a new login shell: files stay, the working directory and variables do not. "
			 "There is no terminal and no standard input. At most 64 KiB of each stream are returned, from its beginning "
			 "and its end. A command that leaves a process in the background should redirect its output.",
	  .args = { { "command", ARG_TEXT, true, 1, 100 * 1024, NULL, "The command, for the shell (bash)." },
		    { "cwd", ARG_TEXT, false, 1, TOOL_PATH_MAX, NULL, "The absolute path of the directory to run it in." },
		    { "timeout_s", ARG_NUMBER, false, 1, MCP_COMMAND_MAX_S, NULL,
		      "Seconds after which it is killed; 60 if not given. The policy of the sandbox may allow less." },
		    { "user", ARG_TEXT, false, 1, 64, NULL, "The user of the sandbox to run it as, such as root." },
		    ARG_SANDBOX },
	  .in_sandbox = true, .destroys = true, .run = tool_run_command },
	{ .name = "run_code", .title = "Run code",
	  .description = "Runs a program, given as text, in a sandbox, and returns the same as run_command. Each program starts with "
			 "empty memory; files stay. To see a value, print it.",
	  .args = { { "code", ARG_TEXT, true, 1, 1024 * 1024, NULL, "The text of the program." },
		    { "language", ARG_TEXT, true, 0, 0, languages, "The programming language." },
		    { "timeout_s", ARG_NUMBER, false, 1, MCP_COMMAND_MAX_S, NULL, "Seconds after which it is killed; 60 if not given." },
		    ARG_SANDBOX },
	  .in_sandbox = true, .destroys = true, .run = tool_run_code },
	{ .name = "read_file", .title = "Read a file",
	  .description = "Returns the contents of a file in a sandbox as text: at most 64 KiB from `offset` on, and how many bytes "
			 "follow. Bytes that are not UTF-8 are replaced.",
	  .args = { ARG_PATH("The file."),
		    { "offset", ARG_NUMBER, false, 0, INT64_MAX, NULL, "The byte to begin at; 0 if not given." },
		    ARG_SANDBOX },
	  .in_sandbox = true, .reads_only = true, .run = tool_read_file },
	{ .name = "write_file", .title = "Write a file",
	  .description = "Writes a text to a file in a sandbox. Replaces an existing file and creates missing directories.",
	  .args = { ARG_PATH("The file."),
		    { "content", ARG_TEXT, true, 0, MCP_MESSAGE_MAX, NULL, "The whole new contents." },
		    ARG_SANDBOX },
	  .in_sandbox = true, .destroys = true, .run = tool_write_file },
	{ .name = "list_files", .title = "List a directory",
	  .description = "Lists the files and directories below a directory of a sandbox, with kind and size; at most 1000.",
	  .args = { ARG_PATH("The directory."),
		    { "depth", ARG_NUMBER, false, 1, TOOL_DEPTH_MAX, NULL, "How many levels; 1 if not given." },
		    ARG_SANDBOX },
	  .in_sandbox = true, .reads_only = true, .run = tool_list_files },
	{ .name = "create_sandbox", .title = "Create a sandbox",
	  .description = "Creates another sandbox, with files of its own, and returns its id for the other tools. The session's own "
			 "sandbox needs no call: it is created when it is first used. Sandboxes end with the session.",
	  .args = { { "template", ARG_TEXT, false, 1, TOOL_NAME_MAX, NULL, "The image to start from; the default image if not given." },
		    { "timeout_s", ARG_NUMBER, false, 1, 24 * 3600, NULL,
		      "Seconds after its last use at which it ends; as the session's own if not given." } },
	  .whole = true, .run = tool_create_sandbox },
	{ .name = "list_sandboxes", .title = "List the sandboxes",
	  .description = "Lists the running sandboxes of this session.",
	  .reads_only = true, .run = tool_list_sandboxes },
	{ .name = "kill_sandbox", .title = "End a sandbox",
	  .description = "Ends a sandbox of this session at once. Its processes and files are gone.",
	  .args = { { "sandbox", ARG_TEXT, true, SPEC_ID, SPEC_ID, NULL, "The id of the sandbox." } },
	  .whole = true, .destroys = true, .run = tool_kill_sandbox },
	{ 0 }
};
/* clang-format on */

/* ---- schemas ---- */

static json_t *choices_json(const char *const *choices)
{
	size_t n = 0;

	while (choices[n])
		n++;
	return json_texts(choices, n);
}

static json_t *arg_json(const struct tool_arg *a)
{
	const bool number = a->type == ARG_NUMBER;
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "type", json_string(number ? "integer" : "string") },
			    { "description", json_string(a->description) });
	int r = j ? 0 : -ENOMEM;

	if (r == 0 && a->choices)
		r = json_put(j, "enum", choices_json(a->choices));
	if (r == 0 && number)
		r = json_put(j, "minimum", json_number(a->min));
	/* JSON Schema counts characters and check_text() bytes, so the schema is only an upper
	 * bound. */
	if (r == 0 && !a->choices && (!number || a->max < INT64_MAX))
		r = json_put(j, number ? "maximum" : "maxLength", json_number(a->max));
	return r < 0 ? NULL : TAKE_PTR(j);
}

static json_t *schema_json(const struct mcp_tool *t)
{
	_cleanup_json_ json_t *properties = json_object(), *required = json_array();
	int r = properties && required ? 0 : -ENOMEM;

	for (const struct tool_arg *a = t->args; r == 0 && a->name; a++) {
		r = json_put(properties, a->name, arg_json(a));
		if (r == 0 && a->required)
			r = json_push(required, json_string(a->name));
	}
	if (r < 0)
		return NULL;
	return JSON_OBJECT(
		{ "type", json_string("object") }, { "properties", json_incref(properties) },
		{ "required", json_incref(required) }, { "additionalProperties", json_false() });
}

static json_t *tool_json(const struct mcp_tool *t)
{
	return JSON_OBJECT(
		{ "name", json_string(t->name) }, { "title", json_string(t->title) },
		{ "description", json_string(t->description) }, { "inputSchema", schema_json(t) },
		{ "annotations", JSON_OBJECT({ "readOnlyHint", json_boolean(t->reads_only) },
					     { "destructiveHint", json_boolean(t->destroys) }) });
}

json_t *tools_list(void)
{
	_cleanup_json_ json_t *list = json_array();

	for (const struct mcp_tool *t = mcp_tools; t->name; t++)
		if (!list || json_push(list, tool_json(t)) < 0)
			return NULL;
	return JSON_OBJECT({ "tools", json_incref(list) });
}

/* ---- checks ---- */

static int check_choice(const struct tool_arg *a, const char *text, struct err *e)
{
	for (size_t i = 0; a->choices[i]; i++)
		if (str_eq(a->choices[i], text))
			return 0;
	return err_set(e, -EINVAL, "%s: '%.40s' is not a valid value; see tools/list", a->name,
		       text);
}

static int check_text(const struct tool_arg *a, const json_t *value, struct err *e)
{
	if (!json_is_string(value))
		return err_set(e, -EINVAL, "%s: expected a text", a->name);
	if (a->choices)
		return check_choice(a, json_string_value(value), e);
	if (json_string_length(value) < a->min || json_string_length(value) > a->max)
		return err_set(e, -EINVAL, "%s: expected a text of %llu to %llu bytes", a->name,
			       (unsigned long long)a->min, (unsigned long long)a->max);
	return 0;
}

static int check_number(const struct tool_arg *a, const json_t *value, struct err *e)
{
	json_int_t n = json_integer_value(value);

	if (!json_is_integer(value) || n < 0 || (uint64_t)n < a->min || (uint64_t)n > a->max)
		return err_set(e, -EINVAL, "%s: expected a whole number from %llu to %llu", a->name,
			       (unsigned long long)a->min, (unsigned long long)a->max);
	return 0;
}

static const struct tool_arg *find_arg(const struct mcp_tool *t, const char *name)
{
	for (const struct tool_arg *a = t->args; a->name; a++)
		if (str_eq(a->name, name))
			return a;
	return NULL;
}

static int check_arguments(const struct mcp_tool *t, const json_t *arguments, struct err *e)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)arguments, key, value)
	{
		const struct tool_arg *a = find_arg(t, key);
		int r = !a ? err_set(e, -EINVAL, "%s has no argument '%.40s'", t->name, key)
			: a->type == ARG_TEXT ? check_text(a, value, e)
					      : check_number(a, value, e);

		if (r < 0)
			return r;
	}
	for (const struct tool_arg *a = t->args; a->name; a++)
		if (a->required && !json_object_get(arguments, a->name))
			return err_set(e, -EINVAL, "%s: the argument '%s' is missing", t->name,
				       a->name);
	return 0;
}

int tools_check(const json_t *params, const struct mcp_tool **ret, json_t **ret_arguments,
		struct err *e)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	json_t *given = json_object_get(params, "arguments");
	_cleanup_json_ json_t *arguments = given ? json_incref(given) : json_object();
	const struct mcp_tool *t = mcp_tools;
	int r;

	if (!arguments)
		return err_oom(e);
	if (!name)
		return err_set(e, -EINVAL, "name: expected the name of a tool");
	while (t->name && !str_eq(t->name, name))
		t++;
	if (!t->name)
		return err_set(e, -EINVAL, "there is no tool '%.80s'", name);
	if (!json_is_object(arguments))
		return err_set(e, -EINVAL, "arguments: expected an object");
	r = check_arguments(t, arguments, e);
	if (r < 0)
		return r;
	*ret = t;
	*ret_arguments = TAKE_PTR(arguments);
	return 0;
}
