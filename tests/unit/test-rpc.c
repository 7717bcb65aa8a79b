/* SPDX-License-Identifier: Apache-2.0 */
#include "test-api.h"

static unsigned int had;

static void have(struct request *r)
{
	had++;
	rpc_answer(r, json_incref(r->body));
}

static void keep(struct request *r)
{
	had++;
}

static void read_body(const char *type, const char *body, size_t n, void (*then)(struct request *r))
{
	struct request *r = ask(type);

	client.body = body;
	client.n_body = n;
	had = 0;
	rpc_read(r, then);
}

#define BODY(type, text, then) read_body(type, text, STRLEN(text), then)

/* ---- one message for another ---- */

TEST(test_unary)
{
	BODY("application/json", "{\"a\":1}", have);
	assert_int_equal(client.status, 200);
	assert_string_equal(client.type, "application/json");
	assert_string_equal(buf_text(&client.out), "{\"a\":1}");
	BODY("Application/JSON; charset=utf-8", "{}", have);
	assert_int_equal(client.status, 200);
	assert_string_equal(buf_text(&client.out), "{}");
}

TEST(test_not_a_message)
{
	static const char *const wrong[] = {
		"", "{", "[]", "1", "{}x", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		read_body("application/json", wrong[i], strlen(wrong[i]), have);
		assert_int_equal(had, 0);
		assert_int_equal(client.status, 400);
		assert_non_null(strstr(buf_text(&client.out), "\"invalid_argument\""));
	}
}

TEST(test_media_types)
{
	static const char *const wrong[] = { "text/plain", "application/jsonx", "application/proto",
					     "application/connect+proto", "" };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		read_body(wrong[i], "{}", 2, have);
		assert_int_equal(had, 0);
		assert_int_equal(client.status, 415);
	}
	rpc_read_stream(ask("application/json"), have);
	assert_int_equal(client.status, 415);
	assert_false(rpc_begin_stream(ask("application/json")));
	assert_int_equal(client.status, 415);
}

TEST(test_codes)
{
	static const struct {
		enum rpc_code code;
		int status;
		const char *text;
	} all[] = {
		{ RPC_CANCELED, 499, "canceled" },
		{ RPC_UNKNOWN, 500, "unknown" },
		{ RPC_INVALID_ARGUMENT, 400, "invalid_argument" },
		{ RPC_DEADLINE_EXCEEDED, 504, "deadline_exceeded" },
		{ RPC_NOT_FOUND, 404, "not_found" },
		{ RPC_ALREADY_EXISTS, 409, "already_exists" },
		{ RPC_PERMISSION_DENIED, 403, "permission_denied" },
		{ RPC_RESOURCE_EXHAUSTED, 429, "resource_exhausted" },
		{ RPC_FAILED_PRECONDITION, 400, "failed_precondition" },
		{ RPC_ABORTED, 409, "aborted" },
		{ RPC_UNIMPLEMENTED, 501, "unimplemented" },
		{ RPC_INTERNAL, 500, "internal" },
		{ RPC_UNAVAILABLE, 503, "unavailable" },
		{ RPC_UNAUTHENTICATED, 401, "unauthenticated" },
	};
	char want[128];

	assert_int_equal(ARRAY_SIZE(all), RPC_CODE_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		(void)snprintf(want, sizeof(want), "{\"code\":\"%s\",\"message\":\"no 1\"}",
			       all[i].text);
		BODY("application/json", "{}", keep);
		rpc_fail(client.r, all[i].code, "no %d", 1);
		assert_int_equal(client.status, all[i].status);
		assert_string_equal(buf_text(&client.out), want);
		BODY("application/connect+json", "\0\0\0\0\2{}", keep);
		rpc_fail_status(client.r, all[i].code, "no %d", 1);
		assert_int_equal(client.status, all[i].status);
		assert_string_equal(buf_text(&client.out), want);
	}
}

TEST(test_wire_codes)
{
	for (unsigned int i = 0; i < 256; i++)
		assert_true(rpc_of_wire((enum wire_code)i) < RPC_CODE_MAX);
	assert_int_equal(rpc_of_wire(WIRE_NOT_FOUND), RPC_NOT_FOUND);
	assert_int_equal(rpc_of_wire(WIRE_TIMEOUT), RPC_DEADLINE_EXCEEDED);
	assert_int_equal(rpc_of_wire((enum wire_code)200), RPC_INTERNAL);
}

TEST(test_text_of_a_sandbox_is_escaped)
{
	BODY("application/json", "{}", keep);
	rpc_fail(client.r, RPC_INTERNAL, "%s", "a\x1b[31m\xff\nb");
	assert_string_equal(buf_text(&client.out),
			    "{\"code\":\"internal\",\"message\":\"a\\\\x1b[31m\\\\xff\\\\nb\"}");
}

/* ---- streams ---- */

TEST(test_envelopes)
{
	size_t at = 0;

	BODY("application/connect+json", "\0\0\0\0\7{\"a\":1}", have);
	assert_int_equal(client.status, 200);
	assert_string_equal(client.type, "application/connect+json");
	expect_envelope(&at, 0, "{\"a\":1}");
	expect_envelope(&at, 2, "{}");
	assert_int_equal(at, client.out.len);
	assert_true(client.ended);
	assert_false(client.begun);
	assert_int_equal(client.writes, 1);
}

TEST(test_broken_envelopes)
{
	static const struct {
		const char *data;
		size_t n;
	} wrong[] = { { "", 0 },
		      { "\0\0\0\0", 4 },
		      { "\0\0\0\0\2{", 6 },
		      { "\0\0\0\0\2{}x", 8 },
		      { "\0\0\0\0\2{}\0\0\0\0\2{}", 14 },
		      { "\1\0\0\0\2{}", 7 },
		      { "\2\0\0\0\2{}", 7 },
		      { "\0\xff\xff\xff\xff{}", 7 },
		      { "\0\0\0\0\0", 5 },
		      { "\0\0\0\0\2[]", 7 } };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		size_t at = 0;
		unsigned int flags;
		_cleanup_free_ char *text = NULL;

		read_body("application/connect+json", wrong[i].data, wrong[i].n, have);
		assert_int_equal(had, 0);
		assert_int_equal(client.status, 200);
		text = next_envelope(&at, &flags);
		assert_int_equal(flags, 2);
		assert_non_null(strstr(text, "{\"error\":{\"code\":\"invalid_argument\""));
		assert_int_equal(at, client.out.len);
	}
}

TEST(test_messages_go_together)
{
	size_t at = 0;

	BODY("application/connect+json", "\0\0\0\0\2{}", keep);
	rpc_send(client.r, json_integer(1));
	assert_true(client.begun);
	assert_int_equal(client.writes, 1);
	(void)buf_puts(rpc_open(client.r), "\"two\"");
	rpc_close(client.r);
	rpc_put(client.r, json_integer(3));
	assert_int_equal(rpc_waiting(client.r), 5 + 5 + 5 + 1);
	assert_int_equal(client.writes, 1);
	rpc_fail(client.r, RPC_ABORTED, "no");
	assert_int_equal(client.writes, 2);
	assert_true(client.ended);
	expect_envelope(&at, 0, "1");
	expect_envelope(&at, 0, "\"two\"");
	expect_envelope(&at, 0, "3");
	expect_envelope(&at, 2, "{\"error\":{\"code\":\"aborted\",\"message\":\"no\"}}");
}

TEST(test_without_memory_it_is_cut)
{
	BODY("application/connect+json", "\0\0\0\0\2{}", keep);
	rpc_send(client.r, json_integer(1));
	rpc_send(client.r, NULL);
	rpc_send(client.r, json_integer(2));
	assert_non_null(client.r); /* the sender still uses it */
	assert_int_equal(client.out.len, 6);
	assert_int_equal(loop_once(config.loop, UINT64_MAX), 0);
	assert_true(client.cut);
	assert_null(client.r);
}

/* ---- fields ---- */

TEST(test_users)
{
	static const struct {
		const char *field, *user; /* NULL: refused */
	} all[] = {
		{ NULL, "" },
		{ "Basic dXNlcjo=", "user" },
		{ "basic dXNlcjo", "user" },
		{ "Basic cm9vdDpwYXNz", "root" },
		{ "Basic cm9vdA==", "root" },
		{ "Basic Og==", NULL },
		{ "Basic ", NULL },
		{ "Basic dXNlcjo= ", NULL },
		{ "Bearer dXNlcjo=", NULL },
		{ "Basic", NULL },
		{ "Basic dQBzZXI6", NULL }, /* a NUL */
		{ "Basic /zo=", NULL },	    /* not UTF-8 */
	};
	char user[RPC_USER_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct request *r = ask("application/json");

		client.fields[1][0] = all[i].field ? "authorization" : NULL;
		client.fields[1][1] = all[i].field;
		assert_int_equal(rpc_user(r, user), all[i].user ? 0 : -EINVAL);
		if (all[i].user)
			assert_string_equal(user, all[i].user);
		leave_client();
	}
}

TEST(test_timeouts)
{
	static const struct {
		const char *field;
		uint64_t ms;
	} all[] = { { NULL, 0 }, { "60000", 60000 },   { "0", 0 }, { "-1", 0 }, { "1e3", 0 },
		    { "", 0 },	 { "99999999999", 0 }, { "1", 1 }, { "01", 0 }, { " 1", 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct request *r = ask("application/json");

		client.fields[1][0] = all[i].field ? "connect-timeout-ms" : NULL;
		client.fields[1][1] = all[i].field;
		assert_int_equal(rpc_timeout(r), all[i].ms);
		leave_client();
	}
}

/* ---- clocks ---- */

static void begin_stream(const char *field, const char *value)
{
	BODY("application/connect+json", "\0\0\0\0\2{}", keep);
	client.fields[1][0] = field;
	client.fields[1][1] = value;
}

static unsigned int expired;

static void on_expired(struct request *r)
{
	expired++;
	assert_ptr_equal(r, client.r);
}

TEST(test_the_deadline_ends_it)
{
	size_t at = 0;

	begin_stream("connect-timeout-ms", "20");
	expired = 0;
	assert_int_equal(rpc_clocks(client.r, "{}", on_expired), 0);
	rpc_send(client.r, json_integer(1));
	while (client.r)
		assert_int_equal(loop_once(config.loop, UINT64_MAX), 0);
	assert_int_equal(expired, 1);
	expect_envelope(&at, 0, "1");
	expect_envelope(
		&at, 2,
		"{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the time limit of "
		"the request was reached\"}}");
}

TEST(test_silence_is_broken)
{
	uint64_t begin = clock_mono();
	size_t at = 0;

	begin_stream("keepalive-ping-interval", "1");
	assert_int_equal(rpc_clocks(client.r, "{\"k\":1}", NULL), 0);
	client.full = true;
	assert_int_equal(loop_once(config.loop, UINT64_MAX), 0);
	assert_int_equal(client.out.len, 0); /* the client does not read */
	client.full = false;
	assert_int_equal(loop_once(config.loop, UINT64_MAX), 0);
	assert_true(clock_mono() - begin >= 2 * NSEC_PER_SEC);
	expect_envelope(&at, 0, "{\"k\":1}");
	leave_client();
	assert_int_equal(loop_once(config.loop, 0), 0);
}

/* ---- faults ---- */

static int talk(void)
{
	struct request *r = ask("application/connect+json");

	client.body = "\0\0\0\0\2{}";
	client.n_body = 7;
	client.fields[1][0] = "connect-timeout-ms";
	client.fields[1][1] = "100000";
	if (!r)
		return -ENOMEM;
	rpc_read_stream(r, keep);
	if (client.r && rpc_clocks(r, "{}", NULL) == 0) {
		rpc_put(r, JSON_OBJECT({ "a", json_string("b") }));
		rpc_end(r);
	}
	leave_client();
	return 0;
}

TEST(test_faults)
{
	FAIL_SWEEP(talk());
}

int main(void)
{
	return unit_run(api_setup, api_teardown);
}
