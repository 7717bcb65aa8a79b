/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this directory share. */
#pragma once

#include "mcp.h"
#include "runner.h"
#include "sandbox.h"

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
	uint64_t min, max;	    /* of a number; of the bytes of a text */
	const char *const *choices; /* NULL: any */
	const char *description;
};

struct tool_work;

struct mcp_tool {
	const char *name, *title, *description;
	struct tool_arg args[TOOL_ARGS_MAX + 1]; /* ends with .name NULL */
	bool in_sandbox;			 /* needs one; made if it names none */
	bool whole;				 /* never cut short: it makes or ends something */
	bool reads_only, destroys;
	int (*run)(struct tool_work *w, struct err *e);
};

extern const struct mcp_tool mcp_tools[]; /* ends with .name NULL */
json_t *tools_list(void);		  /* the result of tools/list */

/* The one that is meant by the params of tools/call, and its arguments, checked; or what is wrong
 * with them. */
int tools_check(const json_t *params, const struct mcp_tool **ret, json_t **ret_arguments,
		struct err *e);

/* ---- what a session is to those who work for it, in a child ---- */

struct session_ref {
	const char *agent, *level, *image, *owner, *id;
	uint64_t deadline;
	struct quota quota;
	bool all; /* as in struct mcp_config */
};

struct tool_work {
	const struct session_ref *session;
	const json_t *arguments;
	struct state_root root;
	/* of a tool that is in a sandbox */
	struct sandbox box;
	struct spec spec;
	struct runner *runner;
	/* what becomes of it */
	json_t *content;    /* array */
	json_t *structured; /* object, or NULL */
	bool failed;
};

/* mcp-work.c: an argument; NULL and `otherwise` if it was not given. */
const char *work_text(const struct tool_work *w, const char *name);
uint64_t work_number(const struct tool_work *w, const char *name, uint64_t otherwise);

/* Adds a text of ours, or of a sandbox, to the result. */
int work_say(struct tool_work *w, struct err *e, const char *fmt, ...) _printf_(3, 4);
int work_add(struct tool_work *w, json_t *text, struct err *e);	     /* taken */
int work_struct(struct tool_work *w, json_t *object, struct err *e); /* taken */

/* The result of tools/call, of `tool` with `arguments`; `own` is the session's sandbox. */
int work_run(const struct session_ref *s, const struct mcp_tool *tool, const json_t *arguments,
	     const char *own, json_t **ret, struct err *e);

/* ---- sandboxes of a session: mcp-sandbox.c ---- */

int session_start(const struct session_ref *s, const struct state_root *root, const char *template,
		  uint64_t deadline, bool own, char ret_id[static SPEC_ID + 1], struct err *e);

/* Who ends its sandboxes, as end.json says it. */
const char *session_killer(const struct session_ref *s, char out[static END_BY_MAX + 1]);

/* -ENOENT: there is none, or it is not this session's. */
int session_open(const struct session_ref *s, const struct state_root *root, const char *id,
		 struct sandbox *ret, struct spec *ret_spec, struct err *e);

/* It is used, for `busy` ms at most: puts its deadline off, to as long from now as it had at its
 * start, or as long as it is busy, if its policy lets it. */
void session_use(const struct sandbox *b, const struct spec *spec, uint64_t busy);
/* It is not busy any more, and was for longer than it has without that. */
void session_rest(const struct sandbox *b, const struct spec *spec);

int session_each(const struct session_ref *s, const struct state_root *root,
		 int (*fn)(void *arg, const struct sandbox *b, const struct spec *spec,
			   struct err *e),
		 void *arg, struct err *e);
int session_end_all(const struct session_ref *s, struct err *e);
bool session_alive(const char *id);
void session_draw_id(char out[static MCP_SESSION + 1]);

/* ---- what a sandbox prints: mcp-output.c ---- */

/* The beginning and the end of a stream, and how much there was between them. */
struct output {
	uint64_t total;
	size_t head_len;
	char head[MCP_TEXT_MAX * 3 / 4], tail[MCP_TEXT_MAX / 4];
};

void output_put(struct output *o, const char *data, size_t n);
uint64_t output_cut(const struct output *o);
/* As a text: with a line that says what was left out, and U+FFFD for what is no UTF-8. NULL without
 * memory. */
json_t *output_text(const struct output *o);
json_t *output_bytes(const char *data, size_t n); /* the same for bytes */

/* Writes a text to a file of the sandbox: mcp-file.c. */
int work_write(struct tool_work *w, const char *path, const json_t *text, struct err *e);

int tool_run_command(struct tool_work *w, struct err *e);
int tool_run_code(struct tool_work *w, struct err *e);
int tool_read_file(struct tool_work *w, struct err *e);
int tool_write_file(struct tool_work *w, struct err *e);
int tool_list_files(struct tool_work *w, struct err *e);
int tool_create_sandbox(struct tool_work *w, struct err *e);
int tool_list_sandboxes(struct tool_work *w, struct err *e);
int tool_kill_sandbox(struct tool_work *w, struct err *e);
