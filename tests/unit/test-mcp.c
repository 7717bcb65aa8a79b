/* SPDX-License-Identifier: Apache-2.0 */
/* MCP messages, and the conversion of a sandbox's bytes. tests/mcp tests the tools. */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "mcp/mcp-inner.h"

static struct mcp_message handle_n(const char *text, size_t n, bool begun)
{
	_cleanup_free_ char *raw = unit_copy(text, n);
	struct mcp_message m = { 0 };

	assert_int_equal(mcp_handle(raw, n, begun, &m), 0);
	assert_true((m.reply != NULL) == (m.kind == MCP_REPLY || m.kind == MCP_INITIALIZE));
	return m;
}

static struct mcp_message handle(const char *text, bool begun)
{
	return handle_n(text, strlen(text), begun);
}

static int code_of(const struct mcp_message *m)
{
	return (int)json_integer_value(json_object_get(json_object_get(m->reply, "error"), "code"));
}

static void fails(const char *text, int code, const char *id)
{
	_cleanup_mcp_message_ struct mcp_message m = handle(text, true);
	_cleanup_free_ char *said = json_write_line(json_object_get(m.reply, "id"));

	if (code_of(&m) != code)
		fail_msg("%s: %d", text, code_of(&m));
	assert_string_equal(said, id);
	assert_string_equal(json_string_value(json_object_get(m.reply, "jsonrpc")), "2.0");
}

/* ---- JSON-RPC ---- */

TEST(what_is_no_message)
{
	fails("", MCP_PARSE_ERROR, "null");
	fails("{", MCP_PARSE_ERROR, "null");
	fails("{}{}", MCP_PARSE_ERROR, "null");
	fails("{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\"}", MCP_PARSE_ERROR, "null");
	fails("{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", MCP_PARSE_ERROR, "null");
	fails("{\"jsonrpc\":\"2.0\",\"id\":1e999,\"method\":\"ping\"}", MCP_PARSE_ERROR, "null");
	fails("{\"jsonrpc\":\"2.0\",\"id\":99999999999999999999,\"method\":\"ping\"}",
	      MCP_PARSE_ERROR, "null");
	fails("1", MCP_INVALID_REQUEST, "null");
	fails("null", MCP_INVALID_REQUEST, "null");
	fails("{}", MCP_INVALID_REQUEST, "null");
	fails("{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}", MCP_INVALID_REQUEST, "7");
	fails("{\"jsonrpc\":2.0,\"id\":7,\"method\":\"ping\"}", MCP_INVALID_REQUEST, "7");
	fails("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":1}", MCP_INVALID_REQUEST, "7");
	fails("{\"jsonrpc\":\"2.0\",\"id\":7}", MCP_INVALID_REQUEST, "null");
	fails("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"x\":1}", MCP_INVALID_REQUEST,
	      "7");
}

TEST(batches_are_refused)
{
	fails("[]", MCP_INVALID_REQUEST, "null");
	fails("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", MCP_INVALID_REQUEST, "null");
}

TEST(ids)
{
	static const char *const good[] = { "0", "-5", "9223372036854775807", "\"\"", "\"a\\nb\"" };
	static const char *const bad[] = { "null", "true", "1.5", "[1]", "{}" };
	char text[1024], many[MCP_ID_MAX + 2];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_mcp_message_ struct mcp_message m = { 0 };
		_cleanup_free_ char *said = NULL;

		(void)snprintf(text, sizeof(text),
			       "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"ping\"}", good[i]);
		m = handle(text, true);
		said = json_write_line(json_object_get(m.reply, "id"));
		assert_string_equal(said, good[i]);
		assert_non_null(json_object_get(m.reply, "result"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		(void)snprintf(text, sizeof(text),
			       "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"ping\"}", bad[i]);
		fails(text, MCP_INVALID_REQUEST, "null");
	}
	memset(many, 'a', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	(void)snprintf(text, sizeof(text),
		       "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"ping\"}", many);
	fails(text, MCP_INVALID_REQUEST, "null");
}

TEST(depth_and_size)
{
	static char deep[200000], large[MCP_MESSAGE_MAX + 2];
	_cleanup_mcp_message_ struct mcp_message m = { 0 };

	memset(deep, '[', sizeof(deep));
	m = handle_n(deep, sizeof(deep), true);
	assert_int_equal(code_of(&m), MCP_PARSE_ERROR);
	mcp_message_done(&m);
	memset(large, ' ', sizeof(large));
	m = handle_n(large, sizeof(large), true);
	assert_int_equal(code_of(&m), MCP_PARSE_ERROR);
}

TEST(nothing_is_said_to_those_who_do_not_ask)
{
	static const char *const quiet[] = {
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"no/such\",\"params\":[1]}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"tools/"
		"call\",\"params\":{\"name\":\"run_command\"}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"x\"}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"cancelled\",\"params\":{\"requestId\":[]}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(quiet); i++) {
		_cleanup_mcp_message_ struct mcp_message m = handle(quiet[i], true);

		assert_int_equal(m.kind, MCP_SILENT);
	}
}

TEST(a_cancellation)
{
	_cleanup_mcp_message_ struct mcp_message m =
		handle("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
		       "\"params\":{\"requestId\":\"x\",\"reason\":\"y\"}}",
		       true);

	assert_int_equal(m.kind, MCP_CANCEL);
	assert_string_equal(json_string_value(m.id), "x");
}

/* ---- methods ---- */

#define REQUEST(method, params) \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":" params "}"
#define CALL(name, args) REQUEST("tools/call", "{\"name\":\"" name "\",\"arguments\":" args "}")

TEST(versions)
{
	static const struct {
		const char *asked, *said;
	} rows[] = {
		{ "2025-06-18", "2025-06-18" },
		{ "2025-03-26", "2025-03-26" },
		{ "2024-11-05", "2025-06-18" },
		{ "9999-01-01", "2025-06-18" },
	};
	char text[256];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_mcp_message_ struct mcp_message m = { 0 };

		(void)snprintf(text, sizeof(text),
			       REQUEST("initialize", "{\"protocolVersion\":\"%s\"}"),
			       rows[i].asked);
		m = handle(text, false);
		assert_int_equal(m.kind, MCP_INITIALIZE);
		assert_string_equal(json_string_value(json_object_get(
					    json_object_get(m.reply, "result"), "protocolVersion")),
				    rows[i].said);
	}
	fails(REQUEST("initialize", "{\"protocolVersion\":\"2025-06-18\"}"), MCP_INVALID_REQUEST,
	      "1");
}

TEST(first_things_first)
{
	_cleanup_mcp_message_ struct mcp_message m = handle(CALL("list_sandboxes", "{}"), false);

	assert_int_equal(code_of(&m), MCP_INVALID_REQUEST);
	mcp_message_done(&m);
	m = handle(REQUEST("ping", "{}"), false);
	assert_non_null(json_object_get(m.reply, "result"));
	mcp_message_done(&m);
	m = handle(REQUEST("initialize", "{}"), false);
	assert_int_equal(code_of(&m), MCP_INVALID_PARAMS);
}

TEST(calls)
{
	static const char *const good[] = {
		CALL("run_command", "{\"command\":\"ls\"}"),
		CALL("run_command",
		     "{\"command\":\"ls\",\"timeout_s\":3600,\"cwd\":\"/\",\"user\":\"x\"}"),
		CALL("run_code", "{\"code\":\"1\",\"language\":\"python\"}"),
		CALL("write_file", "{\"path\":\"x\",\"content\":\"\"}"),
		CALL("list_sandboxes", "{}"),
		REQUEST("tools/call",
			"{\"name\":\"list_sandboxes\",\"_meta\":{\"progressToken\":1}}"),
	};
	static const char *const bad[] = {
		REQUEST("tools/call", "{}"),
		REQUEST("tools/call", "[]"),
		REQUEST("tools/call", "{\"name\":1}"),
		CALL("nope", "{}"),
		CALL("run_command", "{}"),
		CALL("run_command", "[]"),
		CALL("run_command", "{\"command\":\"\"}"),
		CALL("run_command", "{\"command\":null}"),
		CALL("run_command", "{\"command\":\"ls\",\"env\":{}}"),
		CALL("run_command", "{\"command\":\"ls\",\"timeout_s\":-1}"),
		CALL("run_command", "{\"command\":\"ls\",\"timeout_s\":3601}"),
		CALL("run_command", "{\"command\":\"ls\",\"timeout_s\":\"1\"}"),
		CALL("run_command", "{\"command\":\"ls\",\"sandbox\":\"short\"}"),
		CALL("run_code", "{\"code\":\"1\",\"language\":\"c\"}"),
		REQUEST("tools/list", "{\"cursor\":\"x\"}"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_mcp_message_ struct mcp_message m = handle(good[i], true);

		if (m.kind != MCP_CALL)
			fail_msg("%s", good[i]);
		assert_true(json_is_object(m.arguments));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		fails(bad[i], MCP_INVALID_PARAMS, "1");
	fails(REQUEST("prompts/list", "{}"), MCP_NO_METHOD, "1");
}

/* The schemas match the checks. */
TEST(schemas)
{
	_cleanup_mcp_message_ struct mcp_message m = handle(REQUEST("tools/list", "{}"), true);
	const json_t *list = json_object_get(json_object_get(m.reply, "result"), "tools");

	assert_int_equal(json_array_size(list), 8);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *tool = json_array_get(list, i);
		const json_t *schema = json_object_get(tool, "inputSchema");

		assert_string_equal(json_string_value(json_object_get(tool, "name")),
				    mcp_tools[i].name);
		assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
		for (const struct tool_arg *a = mcp_tools[i].args; a->name; a++)
			assert_non_null(
				json_object_get(json_object_get(schema, "properties"), a->name));
	}
}

/* ---- output of a sandbox ---- */

static void check_text(const char *bytes, size_t n, const char *expected)
{
	_cleanup_json_ json_t *j = output_bytes(bytes, n);

	assert_string_equal(json_string_value(j), expected);
}

TEST(bytes_become_text)
{
	check_text("", 0, "");
	check_text("a\0b", 3,
		   "a\xef\xbf\xbd"
		   "b");
	check_text("\xff\xc3(", 3, "\xef\xbf\xbd\xef\xbf\xbd(");
	check_text("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	check_text("\xc3\xa4", 2, "\xc3\xa4");
}

static struct output out;

static void put_many(size_t n, size_t piece)
{
	_cleanup_free_ char *data = malloc(n + 1);

	assert_non_null(data);
	for (size_t i = 0; i < n; i++)
		data[i] = (char)('a' + i % 23);
	memset(&out, 0, sizeof(out));
	for (size_t i = 0; i < n; i += piece)
		output_put(&out, data + i, MIN(piece, n - i));
}

TEST(what_fits_is_whole)
{
	static const size_t sizes[] = { 0, 1, MCP_TEXT_MAX * 3 / 4, MCP_TEXT_MAX * 3 / 4 + 1,
					MCP_TEXT_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_cleanup_json_ json_t *j = NULL;
		const char *text;

		put_many(sizes[i], 1000);
		assert_int_equal(output_cut(&out), 0);
		j = output_text(&out);
		assert_int_equal(json_string_length(j), sizes[i]);
		text = json_string_value(j);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(text[k], 'a' + k % 23);
	}
}

TEST(what_does_not_is_counted)
{
	static const size_t sizes[] = { MCP_TEXT_MAX + 1, 100003, 1000000 };
	static const char *const note = " bytes left out here]\n";

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_cleanup_json_ json_t *j = NULL;
		const char *tail;
		size_t n = sizes[i];

		put_many(n, 777);
		assert_int_equal(output_cut(&out), n - MCP_TEXT_MAX);
		j = output_text(&out);
		tail = strstr(json_string_value(j), note) + strlen(note);
		assert_int_equal(strlen(tail), MCP_TEXT_MAX / 4);
		for (size_t k = 0; tail[k]; k++)
			assert_int_equal(tail[k], 'a' + (n - MCP_TEXT_MAX / 4 + k) % 23);
	}
}

/* ---- faults ---- */

static int handle_all(void)
{
	static const char *const texts[] = { REQUEST("tools/list", "{}"),
					     CALL("run_command", "{\"command\":\"ls\"}"), "{" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); i++) {
		_cleanup_mcp_message_ struct mcp_message m = { 0 };

		r = mcp_handle(texts[i], strlen(texts[i]), true, &m);
	}
	return r;
}

TEST(without_memory)
{
	FAIL_SWEEP(handle_all());
}
