/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and results of a tool. */
#include <stdarg.h>
#include <string.h>

#include "mcp/mcp-inner.h"

enum {
	SAY_MAX = 1024,
};

const char *work_text(const struct tool_work *w, const char *name)
{
	return json_string_value(json_object_get(w->arguments, name));
}

uint64_t work_number(const struct tool_work *w, const char *name, uint64_t otherwise)
{
	const json_t *value = json_object_get(w->arguments, name);

	return value ? (uint64_t)json_integer_value(value) : otherwise;
}

int work_add(struct tool_work *w, json_t *text, struct err *e)
{
	json_t *item = JSON_OBJECT({ "type", json_string("text") }, { "text", text });

	return json_push(w->content, item) < 0 ? err_oom(e) : 0;
}

int work_say(struct tool_work *w, struct err *e, const char *fmt, ...)
{
	char text[SAY_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return work_add(w, output_bytes(text, strlen(text)), e);
}

int work_struct(struct tool_work *w, json_t *object, struct err *e)
{
	w->structured = object;
	return object ? 0 : err_oom(e);
}
