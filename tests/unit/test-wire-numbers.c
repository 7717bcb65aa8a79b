/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the numbers on the wire, and errors for our own invalid requests. */
#include "unit.h"

#include <string.h>

#include "wire/message.h"

/* Tags are numbers on the wire: none may change. */
TEST(tags_keep_their_numbers)
{
	assert_int_equal(TAG_VERSION, 1);
	assert_int_equal(TAG_PATH, 10);
	assert_int_equal(TAG_LENGTH, 18);
	assert_int_equal(TAG_KIND, 26);
	assert_int_equal(TAG_TEXT, 36);
	assert_int_equal(TAG_LANDLOCK, 37);
	assert_int_equal(TAG_TIMEOUT, 38);
	assert_int_equal(TAG_NAME, 39);
	assert_int_equal(TAG_DETACH, 40);
	assert_int_equal(TAG_RECORD, 41);
	assert_int_equal(TAG_RULE, 42);
	assert_int_equal(TAG_DENY, 43);
	assert_int_equal(TAG_PORT, 44);
	assert_int_equal(TAG_OWNER, 45);
	assert_int_equal(TAG_GROUP, 46);
	assert_int_equal(TAG_META, 47);
	assert_int_equal(TAG_FOLLOW, 51);
	assert_int_equal(TAG_OWNERS, 52);
	assert_int_equal(TAG_REPLACE, 48);
	assert_int_equal(TAG_ON_TIMEOUT, 49);
	assert_int_equal(TAG_WANT, 50);
	assert_int_equal(TAG_DEADLINE, 53);
	assert_int_equal(TAG_SEED, 54);
	assert_int_equal(TAG_TIME, 55);
	assert_int_equal(TAG_MACHINE, 56);
	assert_int_equal(TAG_NETWORK, 57);
	assert_int_equal(TAG_PIDS, 58);
	assert_int_equal(TAG_HOST, 59);
	assert_int_equal(TAG_EGRESS, 60);
	assert_int_equal(TAG_LIMIT, 61);
	assert_int_equal(TAG_REQUEST, 62);
	assert_int_equal(TAG_CA, 63);
	assert_int_equal(TAG_MAX, 64);
}

TEST(numbers_name_messages)
{
	static const int opens[] = {
		-1,
		MESSAGE_EXEC,
		MESSAGE_READ,
		MESSAGE_WRITE,
		MESSAGE_STAT,
		MESSAGE_LIST,
		MESSAGE_MKDIR,
		MESSAGE_MOVE,
		MESSAGE_REMOVE,
		MESSAGE_WATCH,
		MESSAGE_PACK,
		MESSAGE_UNPACK,
		-1,
		-1,
		-1,
		MESSAGE_PORT,
		-1,
		-1,
		MESSAGE_ADOPT,
		-1,
		MESSAGE_TRACE,
	};
	static const int accepts[] = {
		-1,
		MESSAGE_STARTED,
		MESSAGE_ENTRY,
		MESSAGE_ENTRY,
		MESSAGE_ENTRY,
		MESSAGE_NONE,
		MESSAGE_ENTRY,
		MESSAGE_ENTRY,
		MESSAGE_NONE,
		MESSAGE_NONE,
		MESSAGE_ENTRY,
		MESSAGE_ENTRY,
		-1,
		-1,
		-1,
		MESSAGE_NONE,
		MESSAGE_NONE,
		MESSAGE_NONE,
		MESSAGE_STARTED,
		-1,
		MESSAGE_NONE,
	};
	static const int keeper[] = { -1, MESSAGE_SIGNAL, MESSAGE_RESIZE, -1, -1, -1 };
	static const int guest[] = {
		-1, -1, -1, MESSAGE_EXIT, MESSAGE_ENTRY, MESSAGE_EVENT, MESSAGE_LIMIT
	};

	for (unsigned int i = 0; i < 256; i++) {
		const int want[] = { i < ARRAY_SIZE(opens) ? opens[i] : -1,
				     i < ARRAY_SIZE(accepts) ? accepts[i] : -1,
				     i < ARRAY_SIZE(keeper) ? keeper[i] : -1,
				     i < ARRAY_SIZE(guest) ? guest[i] : -1 };

		for (unsigned int k = 0; k < 4; k++) {
			enum wire_message m = MESSAGE_MAX;
			int r = k == 0	 ? message_of_open((uint8_t)i, false, &m)
				: k == 1 ? message_of_accept((uint8_t)i, false, &m)
					 : message_of_msg((uint8_t)i, k == 2, &m);

			assert_int_equal(r, want[k] < 0 ? -EBADMSG : 0);
			assert_int_equal(m, want[k] < 0 ? MESSAGE_MAX : want[k]);
		}
	}
}

/* A keeper's client has its own operations, and fields that no guest sees. */
TEST(numbers_name_messages_of_clients)
{
	for (unsigned int i = 0; i < 256; i++) {
		enum wire_message of[4] = { MESSAGE_MAX, MESSAGE_MAX, MESSAGE_MAX, MESSAGE_MAX };
		int r[] = { message_of_open((uint8_t)i, false, &of[0]),
			    message_of_open((uint8_t)i, true, &of[1]),
			    message_of_accept((uint8_t)i, false, &of[2]),
			    message_of_accept((uint8_t)i, true, &of[3]) };
		const struct {
			enum wire_op op;
			enum wire_message open, accept;
		} own[] = { { WIRE_OP_EXEC, MESSAGE_EXEC_CLIENT, MESSAGE_STARTED_CLIENT },
			    { WIRE_OP_ATTACH, MESSAGE_ATTACH, MESSAGE_STARTED_CLIENT },
			    { WIRE_OP_EGRESS, MESSAGE_EGRESS, MESSAGE_NONE },
			    { WIRE_OP_LIFE, MESSAGE_LIFE, MESSAGE_LIFE_NOW },
			    { WIRE_OP_SAVE, MESSAGE_SAVE, MESSAGE_SAVED },
			    { WIRE_OP_PORT, MESSAGE_PORT_CLIENT, MESSAGE_NONE } };
		size_t k = 0;

		while (k < ARRAY_SIZE(own) && own[k].op != i)
			k++;
		assert_int_equal(r[1], k < ARRAY_SIZE(own) ? 0 : r[0]);
		assert_int_equal(r[3], k < ARRAY_SIZE(own) ? 0 : r[2]);
		assert_int_equal(of[1], k < ARRAY_SIZE(own) ? own[k].open : of[0]);
		assert_int_equal(of[3], k < ARRAY_SIZE(own) ? own[k].accept : of[2]);
	}
	assert_int_equal(WIRE_OP_ATTACH, 12);
	assert_int_equal(WIRE_OP_EGRESS, 13);
	assert_int_equal(WIRE_OP_LIFE, 14);
	assert_int_equal(WIRE_OP_PORT, 15);
	assert_int_equal(WIRE_OP_SAVE, 19);
	assert_int_equal(WIRE_OP_TRACE, 20);
}

/* A guest has two requests to its keeper; a keeper sends neither to a guest. */
TEST(numbers_name_messages_of_guests)
{
	assert_int_equal(WIRE_OP_CONNECT, 16);
	assert_int_equal(WIRE_OP_ASK, 17);
	assert_int_equal(WIRE_OP_ADOPT, 18);
	for (unsigned int i = 0; i < 256; i++) {
		enum wire_message m = MESSAGE_MAX;
		int r = message_of_guest_open((uint8_t)i, &m);

		assert_int_equal(r, i == WIRE_OP_CONNECT || i == WIRE_OP_ASK ? 0 : -EBADMSG);
		assert_int_equal(m, i == WIRE_OP_CONNECT ? MESSAGE_CONNECT
				    : i == WIRE_OP_ASK	 ? MESSAGE_ASK
							 : MESSAGE_MAX);
	}
}

/* A client may give its request any id; the guest never sees it. */
TEST(clients_name_their_request)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	struct err e = ERR_INIT;
	struct fields f;

	fields_put_text(&b, TAG_PATH, "/tmp");
	fields_put_text(&b, TAG_REQUEST, "0123456789abcdef");
	assert_int_equal(fields_check_open(WIRE_OP_STAT, true, &b, &e), 0);
	assert_int_equal(fields_check_open(WIRE_OP_STAT, false, &b, &e), -EINVAL);
	assert_int_equal(fields_parse_open(MESSAGE_STAT, true, b.data, b.len, &f, &e), 0);
	assert_true(fields_has(&f, TAG_REQUEST));
	assert_int_equal(fields_parse_open(MESSAGE_STAT, false, b.data, b.len, &f, &e), -EBADMSG);
	assert_int_equal(fields_parse(MESSAGE_STAT, b.data, b.len, &f, &e), -EBADMSG);
	buf_reset(&b);
	fields_put_text(&b, TAG_PATH, "/tmp");
	fields_put_text(&b, TAG_REQUEST, "0123456789abcdef0123456789abcdef0");
	assert_int_equal(fields_check_open(WIRE_OP_STAT, true, &b, &e), -EINVAL);
}

/* Types of frames must not change either. */
TEST(types_keep_their_numbers)
{
	assert_int_equal(WIRE_HELLO, 1);
	assert_int_equal(WIRE_CLOSE, 10);
	assert_int_equal(WIRE_SLEEP, 11);
	assert_int_equal(WIRE_ASLEEP, 12);
	assert_int_equal(WIRE_WAKE, 13);
	assert_int_equal(WIRE_TYPE_MAX, 14);
}

TEST(codes_have_names)
{
	for (unsigned int i = 0; i < WIRE_CODE_MAX; i++) {
		assert_non_null(wire_code_name(i));
		assert_string_not_equal(wire_code_name(i), "unknown code");
	}
	assert_string_equal(wire_code_name(WIRE_NOT_FOUND), "not found");
	assert_string_equal(wire_code_name(WIRE_CODE_MAX), "unknown code");
	assert_string_equal(wire_code_name(UINT64_MAX), "unknown code");
}

/* An invalid request is reported in words before it is sent. */
TEST(own_requests_are_checked)
{
	static char longest[4097 + 1];
	const struct {
		enum wire_op op;
		enum wire_tag tag;
		const char *value, *heard;
	} cases[] = {
		{ WIRE_OP_EXEC, TAG_CWD, "/tmp", NULL },
		{ WIRE_OP_EXEC, TAG_CWD, longest,
		  "the working directory is longer than 4096 bytes" },
		{ WIRE_OP_EXEC, TAG_USER, "\x9b", "the name of the user is not valid UTF-8" },
		{ WIRE_OP_EXEC, TAG_USER, longest, "the name of the user is longer than 64 bytes" },
		{ WIRE_OP_EXEC, TAG_PATH, "/", "the request is invalid" },
		{ WIRE_OP_WATCH, TAG_PATH, "/", "the request is invalid" },
	};

	memset(longest, '/', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);
		struct err e = ERR_INIT;

		fields_put_text(&b, TAG_ARGV, "true");
		fields_put_text(&b, cases[i].tag, cases[i].value);
		assert_int_equal(fields_check_open(cases[i].op, true, &b, &e),
				 cases[i].heard ? -EINVAL : 0);
		if (cases[i].heard)
			assert_string_equal(e.msg, cases[i].heard);
	}
}

TEST(own_requests_that_were_not_written)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8);
	struct err e = ERR_INIT;

	fields_put_text(&b, TAG_PATH, "/too/long");
	assert_int_equal(fields_check_open(WIRE_OP_STAT, false, &b, &e), -EINVAL);
	assert_string_equal(e.msg, "all values together are longer than 8 bytes");
	b.err = -ENOMEM;
	assert_int_equal(fields_check_open(WIRE_OP_STAT, false, &b, &e), -ENOMEM);
}
