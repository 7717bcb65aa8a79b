/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of this directory. */
#pragma once

#include "client/runner.h"
#include "mcp/mcp.h"
#include "sandbox/sandbox.h"

/* ---- tools: mcp-tools.c ---- */

enum {
	TOOL_ARGS_MAX = 6,
	TOOL_PATH_MAX = 4096,
	TOOL_ENTRIES_MAX = 1000,
	TOOL_NAMES_MAX = 256 * 1024, /* bytes of all paths of a listing */
	TOOL_DEPTH_MAX = 8,
	TOOL_NAME_MAX = 127,
};

struct tool_arg {
	const char *name;
	enum {
		ARG_TEXT,
		ARG_NUMBER,
	} type;
	bool required;
	uint64_t min, max;	    /* range of a number, or of a string's length in bytes */
	const char *const *choices; /* NULL: any */
	const char *description;
};

struct tool_work;

struct mcp_tool {
	const char *name, *title, *description;
	struct tool_arg args[TOOL_ARGS_MAX + 1]; /* ends with .name NULL */
	bool in_sandbox;			 /* runs in a sandbox; default: the session's own */
	bool whole;				 /* creates or ends a sandbox: never interrupted */
	bool reads_only, destroys;
	int (*run)(struct tool_work *w, struct err *e);
};

extern const struct mcp_tool mcp_tools[]; /* ends with .name NULL */
json_t *tools_list(void);		  /* result of tools/list */

/* Finds the tool in the params of tools/call, and checks its arguments. */
int tools_check(const json_t *params, const struct mcp_tool **ret, json_t **ret_arguments,
		struct err *e);

/* ---- a session's data for tools, which run in a child process ---- */

struct session_ref {
	const char *agent, *level, *image, *owner, *id;
	uint64_t deadline;
	struct quota quota;
	bool all; /* see struct mcp_config */
};

struct tool_work {
	const struct session_ref *session;
	const json_t *arguments;
	struct state_root root;
	/* tools with in_sandbox only */
	struct sandbox box;
	struct spec spec;
	struct runner *runner;
	/* result */
	json_t *content;    /* array */
	json_t *structured; /* object, or NULL */
	bool failed;
};

/* mcp-work.c: an argument; NULL and `otherwise` if it was not given. */
const char *work_text(const struct tool_work *w, const char *name);
uint64_t work_number(const struct tool_work *w, const char *name, uint64_t otherwise);

/* Add a message, or a sandbox's text, or structured content. Take ownership of the JSON value. */
int work_say(struct tool_work *w, struct err *e, const char *fmt, ...) _printf_(3, 4);
int work_add(struct tool_work *w, json_t *text, struct err *e);
int work_struct(struct tool_work *w, json_t *object, struct err *e);

/* Runs `tool` and makes the result of tools/call; `own` is the session's own sandbox. */
int work_run(const struct session_ref *s, const struct mcp_tool *tool, const json_t *arguments,
	     const char *own, json_t **ret, struct err *e);

/* ---- sandboxes of a session: mcp-sandbox.c ---- */

int session_start(const struct session_ref *s, const struct state_root *root, const char *template,
		  uint64_t deadline, bool own, char ret_id[static SPEC_ID + 1], struct err *e);

/* Describes the session as the killer of a sandbox, for end.json. */
const char *session_killer(const struct session_ref *s, char out[static END_BY_MAX + 1]);

/* Opens a running sandbox of the session. -ENOENT if there is none, or it is another session's. */
int session_open(const struct session_ref *s, const struct state_root *root, const char *id,
		 struct sandbox *ret, struct spec *ret_spec, struct err *e);

/*
 * Extends the deadline of a sandbox that will be used for at most `busy` ms: to its initial
 * deadline from now or to `busy`, whichever is longer, within the ttl of its policy.
 */
void session_use(const struct sandbox *b, const struct spec *spec, uint64_t busy);
/* Resets the deadline after a use that was longer than the initial deadline. */
void session_rest(const struct sandbox *b, const struct spec *spec);

int session_each(const struct session_ref *s, const struct state_root *root,
		 int (*fn)(void *arg, const struct sandbox *b, const struct spec *spec,
			   struct err *e),
		 void *arg, struct err *e);
int session_end_all(const struct session_ref *s, struct err *e);
bool session_alive(const char *id);
void session_draw_id(char out[static MCP_SESSION + 1]);

/* ---- output of a sandbox: mcp-output.c ---- */

/* The beginning and the end of a stream, and its total length. */
struct output {
	uint64_t total;
	size_t head_len;
	char head[MCP_TEXT_MAX * 3 / 4], tail[MCP_TEXT_MAX / 4];
};

void output_put(struct output *o, const char *data, size_t n);
uint64_t output_cut(const struct output *o);
/*
 * Converts to a string, with U+FFFD for invalid UTF-8 and a line that says how much was left out.
 * NULL without memory.
 */
json_t *output_text(const struct output *o);
json_t *output_bytes(const char *data, size_t n); /* the same for a buffer */

/* Writes a string to a file of the sandbox: mcp-file.c. */
int work_write(struct tool_work *w, const char *path, const json_t *text, struct err *e);

int tool_run_command(struct tool_work *w, struct err *e);
int tool_run_code(struct tool_work *w, struct err *e);
int tool_read_file(struct tool_work *w, struct err *e);
int tool_write_file(struct tool_work *w, struct err *e);
int tool_list_files(struct tool_work *w, struct err *e);
int tool_create_sandbox(struct tool_work *w, struct err *e);
int tool_list_sandboxes(struct tool_work *w, struct err *e);
int tool_kill_sandbox(struct tool_work *w, struct err *e);
