/* SPDX-License-Identifier: Apache-2.0 */
/* For any input the reply is one JSON-RPC answer or nothing; and any bytes can be made text. */
#include <string.h>

#include "fuzz.h"
#include "mcp/mcp-inner.h"

static void check_reply(const struct mcp_message *m)
{
	_cleanup_free_ char *line = json_write_line(m->reply);
	_cleanup_json_ json_t *back = NULL;
	struct err e = ERR_INIT;

	assert(line && !strchr(line, '\n'));
	assert(json_read(line, strlen(line), &back, &e) == 0);
	assert(!json_object_get(back, "result") != !json_object_get(back, "error"));
	assert(json_object_get(back, "id"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_json_ json_t *text = output_bytes((const char *)data, size);

	assert(text && json_string_length(text) <= 3 * size);
	for (int begun = 0; begun < 2; begun++) {
		_cleanup_mcp_message_ struct mcp_message m = { 0 };

		assert(mcp_handle((const char *)data, size, begun, &m) == 0);
		if (m.reply)
			check_reply(&m);
		assert((m.kind == MCP_CALL) == (m.tool != NULL));
		assert(m.kind != MCP_CALL || (begun && m.id && json_is_object(m.arguments)));
	}
	return 0;
}
