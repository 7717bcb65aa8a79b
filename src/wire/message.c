/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/message.h"

#include <string.h>

#include "base/str.h"

enum field_type {
	FIELD_NUMBER,
	FIELD_FLAG,
	FIELD_TEXT,  /* UTF-8 */
	FIELD_BYTES, /* no NUL */
	FIELD_RAW,   /* exactly `max` bytes */
	FIELD_META,  /* see wire_meta_valid() */
};

enum {
	FIELD_HEADER = 4,
	PATH_BYTES_MAX = 4096,
	VALUE_BYTES_MAX = 128 * 1024
};

/* clang-format off */
static const struct {
	enum field_type type;
	uint64_t max; /* largest number; else longest value */
	uint64_t min; /* smallest number */
} tags[TAG_MAX] = {
	[TAG_VERSION] = { FIELD_NUMBER, UINT32_MAX },
	[TAG_AGENT] = { FIELD_TEXT, 64 },
	[TAG_HOSTNAME] = { FIELD_TEXT, 63 },
	[TAG_READ] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_WRITE] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_EXECUTE] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_ARGV] = { FIELD_BYTES, VALUE_BYTES_MAX },
	[TAG_ENV] = { FIELD_BYTES, VALUE_BYTES_MAX },
	[TAG_CWD] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_PATH] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_TARGET] = { FIELD_BYTES, PATH_BYTES_MAX },
	[TAG_USER] = { FIELD_TEXT, 64 },
	[TAG_STDIN] = { FIELD_FLAG, 0 },
	[TAG_COLUMNS] = { FIELD_NUMBER, UINT16_MAX },
	[TAG_ROWS] = { FIELD_NUMBER, UINT16_MAX },
	[TAG_RLIMIT] = { FIELD_RAW, 17 },
	[TAG_OFFSET] = { FIELD_NUMBER, INT64_MAX },
	[TAG_LENGTH] = { FIELD_NUMBER, INT64_MAX },
	[TAG_MODE] = { FIELD_NUMBER, 07777 },
	[TAG_PARENTS] = { FIELD_FLAG, 0 },
	[TAG_DEPTH] = { FIELD_NUMBER, 64 },
	[TAG_RECURSIVE] = { FIELD_FLAG, 0 },
	[TAG_PID] = { FIELD_NUMBER, INT32_MAX, 1 },
	[TAG_NUMBER] = { FIELD_NUMBER, 64, 1 },
	[TAG_EVENT] = { FIELD_NUMBER, WIRE_LOST, WIRE_CREATED },
	[TAG_KIND] = { FIELD_NUMBER, WIRE_OTHER, WIRE_FILE },
	[TAG_SIZE] = { FIELD_NUMBER, INT64_MAX },
	[TAG_UID] = { FIELD_NUMBER, UINT32_MAX },
	[TAG_GID] = { FIELD_NUMBER, UINT32_MAX },
	[TAG_MTIME] = { FIELD_NUMBER, INT64_MAX },
	[TAG_CODE] = { FIELD_NUMBER, 255 },
	[TAG_SIGNAL] = { FIELD_NUMBER, 64, 1 },
	[TAG_USER_US] = { FIELD_NUMBER, INT64_MAX },
	[TAG_SYSTEM_US] = { FIELD_NUMBER, INT64_MAX },
	[TAG_MAX_RSS] = { FIELD_NUMBER, INT64_MAX },
	[TAG_TEXT] = { FIELD_TEXT, WIRE_TEXT_MAX },
	[TAG_LANDLOCK] = { FIELD_NUMBER, UINT32_MAX },
	[TAG_TIMEOUT] = { FIELD_NUMBER, UINT32_MAX, 1 },
	[TAG_NAME] = { FIELD_TEXT, 63 },
	[TAG_DETACH] = { FIELD_FLAG, 0 },
	[TAG_RECORD] = { FIELD_NUMBER, UINT32_MAX, 1 },
	[TAG_RULE] = { FIELD_TEXT, 300 },
	[TAG_DENY] = { FIELD_FLAG, 0 },
	[TAG_PORT] = { FIELD_NUMBER, UINT16_MAX, 1 },
	[TAG_OWNER] = { FIELD_TEXT, 64 },
	[TAG_GROUP] = { FIELD_TEXT, 64 },
	[TAG_META] = { FIELD_META, WIRE_META_BYTES },
	[TAG_FOLLOW] = { FIELD_FLAG, 0 },
	[TAG_OWNERS] = { FIELD_FLAG, 0 },
	[TAG_REPLACE] = { FIELD_FLAG, 0 },
	[TAG_ON_TIMEOUT] = { FIELD_NUMBER, WIRE_TIMEOUT_PAUSES, WIRE_TIMEOUT_ENDS },
	[TAG_WANT] = { FIELD_NUMBER, WIRE_RUNNING, WIRE_PAUSED },
	[TAG_DEADLINE] = { FIELD_NUMBER, INT64_MAX },
	[TAG_SEED] = { FIELD_RAW, WIRE_SEED },
	[TAG_TIME] = { FIELD_NUMBER, INT64_MAX },
	[TAG_MACHINE] = { FIELD_TEXT, 32 },
	[TAG_NETWORK] = { FIELD_TEXT, 64 },
	[TAG_PIDS] = { FIELD_NUMBER, INT32_MAX, 1 },
	[TAG_HOST] = { FIELD_TEXT, 255 },
	[TAG_EGRESS] = { FIELD_FLAG, 0 },
	[TAG_LIMIT] = { FIELD_NUMBER, WIRE_LIMIT_INODES, WIRE_LIMIT_MEMORY },
	[TAG_REQUEST] = { FIELD_TEXT, WIRE_REQUEST_MAX },
	[TAG_CA] = { FIELD_TEXT, WIRE_CA_MAX },
};

#define BIT(tag) ((tag_set)1 << (tag))
#define ENTRY_NEEDS                                                                                  \
	(BIT(TAG_PATH) | BIT(TAG_MODE) | BIT(TAG_KIND) | BIT(TAG_SIZE) | BIT(TAG_UID) | BIT(TAG_GID) | \
	 BIT(TAG_MTIME))
#define ENTRY_MAY (BIT(TAG_TARGET) | BIT(TAG_OWNER) | BIT(TAG_GROUP))

#define EXEC_MAY  (BIT(TAG_CWD) | BIT(TAG_USER) | BIT(TAG_STDIN) | BIT(TAG_COLUMNS) | BIT(TAG_ROWS))
#define EXEC_MANY (BIT(TAG_ARGV) | BIT(TAG_ENV) | BIT(TAG_RLIMIT))

/* The fields that each message must have, may have once, and may have many times. */
static const struct {
	tag_set needs, may, many;
} messages[MESSAGE_MAX] = {
	[MESSAGE_NONE] = { 0, 0, 0 },
	[MESSAGE_HELLO_KEEPER] = { BIT(TAG_VERSION), BIT(TAG_HOSTNAME) | BIT(TAG_CWD) | BIT(TAG_SEED) | BIT(TAG_TIME) | BIT(TAG_MACHINE) | BIT(TAG_PIDS) | BIT(TAG_EGRESS) | BIT(TAG_CA),
				   BIT(TAG_READ) | BIT(TAG_WRITE) | BIT(TAG_EXECUTE) | BIT(TAG_NETWORK) },
	[MESSAGE_HELLO_GUEST] = { BIT(TAG_VERSION) | BIT(TAG_AGENT), BIT(TAG_LANDLOCK), 0 },
	[MESSAGE_EXEC] = { BIT(TAG_ARGV), EXEC_MAY, EXEC_MANY },
	[MESSAGE_READ] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_OFFSET) | BIT(TAG_LENGTH), 0 },
	[MESSAGE_WRITE] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_MODE) | BIT(TAG_PARENTS), BIT(TAG_META) },
	[MESSAGE_STAT] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_FOLLOW), 0 },
	[MESSAGE_LIST] = { BIT(TAG_PATH) | BIT(TAG_DEPTH), BIT(TAG_USER) | BIT(TAG_FOLLOW), 0 },
	[MESSAGE_MKDIR] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_MODE) | BIT(TAG_PARENTS), 0 },
	[MESSAGE_MOVE] = { BIT(TAG_PATH) | BIT(TAG_TARGET), BIT(TAG_USER) | BIT(TAG_PARENTS), 0 },
	[MESSAGE_REMOVE] = { BIT(TAG_PATH), BIT(TAG_USER), 0 },
	[MESSAGE_WATCH] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_RECURSIVE), 0 },
	[MESSAGE_PACK] = { BIT(TAG_PATH), BIT(TAG_USER) | BIT(TAG_OWNERS), 0 },
	[MESSAGE_UNPACK] = { BIT(TAG_PATH), BIT(TAG_USER), 0 },
	[MESSAGE_STARTED] = { BIT(TAG_PID), 0, 0 },
	[MESSAGE_ENTRY] = { ENTRY_NEEDS, ENTRY_MAY, BIT(TAG_META) },
	[MESSAGE_SIGNAL] = { BIT(TAG_NUMBER), 0, 0 },
	[MESSAGE_RESIZE] = { BIT(TAG_COLUMNS) | BIT(TAG_ROWS), 0, 0 },
	[MESSAGE_EXIT] = { BIT(TAG_USER_US) | BIT(TAG_SYSTEM_US) | BIT(TAG_MAX_RSS), BIT(TAG_CODE) | BIT(TAG_SIGNAL), 0 },
	[MESSAGE_EVENT] = { BIT(TAG_EVENT) | BIT(TAG_PATH), (ENTRY_NEEDS & ~BIT(TAG_PATH)) | ENTRY_MAY, BIT(TAG_META) },
	[MESSAGE_CLOSE] = { BIT(TAG_CODE), BIT(TAG_TEXT), 0 },
	[MESSAGE_EXEC_CLIENT] = { BIT(TAG_ARGV), EXEC_MAY | BIT(TAG_TIMEOUT) | BIT(TAG_NAME) | BIT(TAG_DETACH), EXEC_MANY },
	[MESSAGE_EGRESS] = { 0, BIT(TAG_DENY) | BIT(TAG_REPLACE), BIT(TAG_RULE) },
	[MESSAGE_LIFE] = { 0, BIT(TAG_TIMEOUT) | BIT(TAG_ON_TIMEOUT) | BIT(TAG_WANT), 0 },
	[MESSAGE_LIFE_NOW] = { BIT(TAG_WANT) | BIT(TAG_DEADLINE), 0, 0 },
	[MESSAGE_ATTACH] = { 0, BIT(TAG_STDIN) | BIT(TAG_NAME) | BIT(TAG_RECORD), 0 },
	[MESSAGE_STARTED_CLIENT] = { BIT(TAG_PID), BIT(TAG_RECORD), 0 },
	[MESSAGE_PORT] = { BIT(TAG_PORT), 0, 0 },
	[MESSAGE_PORT_CLIENT] = { BIT(TAG_PORT), BIT(TAG_OWNERS), 0 },
	[MESSAGE_CONNECT] = { BIT(TAG_PORT) | BIT(TAG_HOST), 0, 0 },
	[MESSAGE_ASK] = { BIT(TAG_HOST), 0, 0 },
	[MESSAGE_ADOPT] = { BIT(TAG_PID), 0, 0 },
	[MESSAGE_SAVE] = { 0, BIT(TAG_NAME) | BIT(TAG_WANT), 0 },
	[MESSAGE_SAVED] = { BIT(TAG_NAME), 0, 0 },
	[MESSAGE_LIMIT] = { BIT(TAG_SIZE) | BIT(TAG_LIMIT), 0, 0 },
	[MESSAGE_TRACE] = { 0, 0, 0 },
	[MESSAGE_WAKE] = { 0, BIT(TAG_SEED) | BIT(TAG_TIME), 0 },
};
/* clang-format on */

static_assert(TAG_MAX <= 8 * sizeof(tag_set), "tag_set has a bit for each tag");

/* Reads one field: its tag and value. */
static int read_field(struct reader *r, uint8_t *ret_tag, const uint8_t **ret, size_t *ret_n)
{
	uint8_t tag = (uint8_t)reader_be(r, 1);
	size_t n = (size_t)reader_be(r, 3);
	const uint8_t *value = reader_bytes(r, n);

	if (!value)
		return -EBADMSG;
	*ret_tag = tag;
	*ret = value;
	*ret_n = n;
	return 0;
}

static uint64_t number_of(const uint8_t *value)
{
	struct reader r = reader_of(value, 8);

	return reader_be(&r, 8);
}

static bool number_valid(uint8_t tag, const uint8_t *value)
{
	uint64_t number = number_of(value);

	return number >= tags[tag].min && number <= tags[tag].max;
}

bool wire_meta_valid(const char *s, size_t n)
{
	const char *equals = memchr(s, '=', n);
	size_t key = equals ? (size_t)(equals - s) : 0;

	if (key == 0 || key > WIRE_META_KEY_MAX || n - key - 1 > WIRE_META_VALUE_MAX)
		return false;
	for (size_t i = 0; i < key; i++)
		if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-')
			return false;
	return !memchr(s, '\0', n);
}

static bool value_valid(uint8_t tag, const uint8_t *value, size_t n)
{
	uint64_t max = tags[tag].max;

	switch (tags[tag].type) {
	case FIELD_NUMBER:
		return n == 8 && number_valid(tag, value);
	case FIELD_FLAG:
		return n == 0;
	case FIELD_TEXT:
		return n <= max && !memchr(value, '\0', n) && utf8_valid((const char *)value, n);
	case FIELD_BYTES:
		return n <= max && !memchr(value, '\0', n);
	case FIELD_META:
		return wire_meta_valid((const char *)value, n);
	default:
		return n == max;
	}
}

static size_t count_values(const struct fields *f, enum wire_tag tag)
{
	const char *value;
	size_t pos = 0, n, count = 0;

	while (fields_next(f, tag, &pos, &value, &n))
		count++;
	return count;
}

/* Rules that the table cannot express. */
static int check_whole(enum wire_message m, const struct fields *f, struct err *e)
{
	if (count_values(f, TAG_META) > WIRE_META_MAX)
		return err_set(e, -EBADMSG, "message %d: more than %d pieces of metadata", (int)m,
			       WIRE_META_MAX);
	if (m == MESSAGE_EXIT && fields_has(f, TAG_CODE) == fields_has(f, TAG_SIGNAL))
		return err_set(e, -EBADMSG, "an exit has a code or a signal");
	if ((m == MESSAGE_EXEC || m == MESSAGE_EXEC_CLIENT) &&
	    fields_has(f, TAG_COLUMNS) != fields_has(f, TAG_ROWS))
		return err_set(e, -EBADMSG, "a terminal has columns and rows");
	if (m == MESSAGE_ATTACH && fields_has(f, TAG_NAME) == fields_has(f, TAG_RECORD))
		return err_set(e, -EBADMSG, "a command has a name or a number");
	return 0;
}

static unsigned int first_of(tag_set set)
{
	unsigned int tag = 0;

	while (!(set & BIT(tag)))
		tag++;
	return tag;
}

static int parse_with(enum wire_message m, tag_set more, const void *data, size_t n,
		      struct fields *ret, struct err *e)
{
	const tag_set allowed = messages[m].needs | messages[m].may | messages[m].many | more;
	struct fields f = { .data = data, .len = n };
	struct reader r = reader_of(data, n);
	uint8_t last = 0;

	while (reader_left(&r) > 0) {
		const uint8_t *value = NULL;
		size_t len = 0;
		uint8_t tag = 0;

		if (read_field(&r, &tag, &value, &len) < 0)
			return err_set(e, -EBADMSG,
				       "message %d: a field is longer than the message", (int)m);
		if (tag == 0 || tag >= TAG_MAX || !(allowed & BIT(tag)))
			return err_set(e, -EBADMSG, "message %d: field %u does not belong here",
				       (int)m, tag);
		if (tag < last || (tag == last && !(messages[m].many & BIT(tag))))
			return err_set(e, -EBADMSG,
				       "message %d: field %u is out of order or repeated", (int)m,
				       tag);
		if (!value_valid(tag, value, len))
			return err_set(e, -EBADMSG, "message %d: field %u has an invalid value",
				       (int)m, tag);
		f.present |= BIT(tag);
		last = tag;
	}
	if ((messages[m].needs & ~f.present) != 0)
		return err_set(e, -EBADMSG, "message %d: field %u is missing", (int)m,
			       first_of(messages[m].needs & ~f.present));
	if (check_whole(m, &f, e) < 0)
		return e->num;
	*ret = f;
	return 0;
}

int fields_parse(enum wire_message m, const void *data, size_t n, struct fields *ret, struct err *e)
{
	return parse_with(m, 0, data, n, ret, e);
}

int fields_parse_open(enum wire_message m, bool client, const void *data, size_t n,
		      struct fields *ret, struct err *e)
{
	return parse_with(m, client ? BIT(TAG_REQUEST) : 0, data, n, ret, e);
}

static int wrong_value(uint8_t tag, size_t n, struct err *e)
{
	static const char *const names[TAG_MAX] = {
		[TAG_ARGV] = "an argument",	     [TAG_ENV] = "an environment variable",
		[TAG_CWD] = "the working directory", [TAG_PATH] = "the path",
		[TAG_USER] = "the name of the user", [TAG_META] = "a piece of metadata",
	};
	const char *name = names[tag] ? names[tag] : "a value";

	if (n > tags[tag].max)
		return err_set(e, -EINVAL, "%s is longer than %llu bytes", name,
			       (unsigned long long)tags[tag].max);
	return err_set(e, -EINVAL, "%s is not valid%s", name,
		       tags[tag].type == FIELD_TEXT ? " UTF-8" : "");
}

int fields_check_open(enum wire_op op, bool client, const struct buf *b, struct err *e)
{
	struct reader r = reader_of(b->data, b->len);
	enum wire_message m = MESSAGE_NONE;
	const uint8_t *value = NULL;
	struct fields f;
	uint8_t tag = 0;
	size_t n = 0;

	if (b->err == -ENOBUFS)
		return err_set(e, -EINVAL, "all values together are longer than %zu bytes", b->max);
	if (b->err)
		return err_oom(e);
	if (message_of_open((uint8_t)op, client, &m) == 0 &&
	    fields_parse_open(m, client, b->data, b->len, &f, e) == 0)
		return 0;
	while (reader_left(&r) > 0 && read_field(&r, &tag, &value, &n) == 0 && tag < TAG_MAX)
		if (!value_valid(tag, value, n))
			return wrong_value(tag, n, e);
	return err_set(e, -EINVAL, "the request is invalid");
}

bool fields_has(const struct fields *f, enum wire_tag tag)
{
	return f->present >> tag & 1;
}

bool fields_next(const struct fields *f, enum wire_tag tag, size_t *pos, const char **ret,
		 size_t *ret_n)
{
	struct reader r = reader_of(f->data, f->len);

	if (!fields_has(f, tag))
		return false;
	(void)reader_bytes(&r, *pos);
	while (reader_left(&r) > 0) {
		const uint8_t *value = NULL;
		size_t n = 0;
		uint8_t this = 0;

		if (read_field(&r, &this, &value, &n) < 0)
			return false;
		*pos = f->len - reader_left(&r);
		if (this != tag)
			continue;
		*ret = (const char *)value;
		*ret_n = n;
		return true;
	}
	return false;
}

const void *fields_slice(const struct fields *f, enum wire_tag first, enum wire_tag last,
			 size_t *ret_n)
{
	struct reader r = reader_of(f->data, f->len);
	const uint8_t *from = r.pos, *to = r.pos, *value;
	uint8_t tag;
	size_t n;

	while (reader_left(&r) > 0 && read_field(&r, &tag, &value, &n) == 0 && tag <= last) {
		if (tag < first)
			from = r.pos;
		to = r.pos;
	}
	*ret_n = (size_t)(to - from);
	return from;
}

uint64_t fields_number(const struct fields *f, enum wire_tag tag, uint64_t otherwise)
{
	const char *value;
	size_t pos = 0, n;

	assert(tags[tag].type == FIELD_NUMBER);
	return fields_next(f, tag, &pos, &value, &n) ? number_of((const uint8_t *)value)
						     : otherwise;
}

char *fields_copy(const struct fields *f, enum wire_tag tag, bool *oom)
{
	const char *value;
	size_t pos = 0, n;
	char *copy;

	if (!fields_next(f, tag, &pos, &value, &n))
		return NULL;
	copy = malloc(n + 1);
	if (!copy) {
		*oom = true;
		return NULL;
	}
	memcpy(copy, value, n);
	copy[n] = '\0';
	return copy;
}

void fields_put_bytes(struct buf *b, enum wire_tag tag, const void *data, size_t n)
{
	if (n > 0xffffff) {
		b->err = -ENOBUFS;
		return;
	}
	(void)buf_put_be(b, (uint64_t)tag << 24 | n, FIELD_HEADER);
	(void)buf_put(b, data, n);
}

void fields_put_number(struct buf *b, enum wire_tag tag, uint64_t value)
{
	(void)buf_put_be(b, (uint64_t)tag << 24 | 8, FIELD_HEADER);
	(void)buf_put_be(b, value, 8);
}

void fields_put_flag(struct buf *b, enum wire_tag tag)
{
	fields_put_bytes(b, tag, NULL, 0);
}

void fields_put_text(struct buf *b, enum wire_tag tag, const char *text)
{
	fields_put_bytes(b, tag, text, strlen(text));
}

/* Looks up a message by number; 0 in the list means none. */
static int pick(const uint8_t *list, size_t n, uint8_t number, enum wire_message *ret)
{
	if (number >= n || list[number] == 0)
		return -EBADMSG;
	*ret = (enum wire_message)(list[number] - 1);
	return 0;
}

int message_of_open(uint8_t op, bool client, enum wire_message *ret)
{
	static const uint8_t list[WIRE_OP_MAX] = {
		[WIRE_OP_EXEC] = MESSAGE_EXEC + 1,     [WIRE_OP_READ] = MESSAGE_READ + 1,
		[WIRE_OP_WRITE] = MESSAGE_WRITE + 1,   [WIRE_OP_STAT] = MESSAGE_STAT + 1,
		[WIRE_OP_LIST] = MESSAGE_LIST + 1,     [WIRE_OP_MKDIR] = MESSAGE_MKDIR + 1,
		[WIRE_OP_MOVE] = MESSAGE_MOVE + 1,     [WIRE_OP_REMOVE] = MESSAGE_REMOVE + 1,
		[WIRE_OP_WATCH] = MESSAGE_WATCH + 1,   [WIRE_OP_PACK] = MESSAGE_PACK + 1,
		[WIRE_OP_UNPACK] = MESSAGE_UNPACK + 1, [WIRE_OP_PORT] = MESSAGE_PORT + 1,
		[WIRE_OP_ADOPT] = MESSAGE_ADOPT + 1,   [WIRE_OP_TRACE] = MESSAGE_TRACE + 1,
	};

	static const uint8_t clients[WIRE_OP_MAX] = {
		[WIRE_OP_EXEC] = MESSAGE_EXEC_CLIENT + 1, [WIRE_OP_ATTACH] = MESSAGE_ATTACH + 1,
		[WIRE_OP_EGRESS] = MESSAGE_EGRESS + 1,	  [WIRE_OP_LIFE] = MESSAGE_LIFE + 1,
		[WIRE_OP_SAVE] = MESSAGE_SAVE + 1,	  [WIRE_OP_PORT] = MESSAGE_PORT_CLIENT + 1,
	};

	if (client && pick(clients, ARRAY_SIZE(clients), op, ret) == 0)
		return 0;
	return pick(list, ARRAY_SIZE(list), op, ret);
}

int message_of_guest_open(uint8_t op, enum wire_message *ret)
{
	static const uint8_t list[WIRE_OP_MAX] = {
		[WIRE_OP_CONNECT] = MESSAGE_CONNECT + 1,
		[WIRE_OP_ASK] = MESSAGE_ASK + 1,
	};

	return pick(list, ARRAY_SIZE(list), op, ret);
}

int message_of_accept(uint8_t op, bool client, enum wire_message *ret)
{
	static const uint8_t list[WIRE_OP_MAX] = {
		[WIRE_OP_EXEC] = MESSAGE_STARTED + 1,  [WIRE_OP_READ] = MESSAGE_ENTRY + 1,
		[WIRE_OP_WRITE] = MESSAGE_ENTRY + 1,   [WIRE_OP_STAT] = MESSAGE_ENTRY + 1,
		[WIRE_OP_LIST] = MESSAGE_NONE + 1,     [WIRE_OP_MKDIR] = MESSAGE_ENTRY + 1,
		[WIRE_OP_MOVE] = MESSAGE_ENTRY + 1,    [WIRE_OP_REMOVE] = MESSAGE_NONE + 1,
		[WIRE_OP_WATCH] = MESSAGE_NONE + 1,    [WIRE_OP_PACK] = MESSAGE_ENTRY + 1,
		[WIRE_OP_UNPACK] = MESSAGE_ENTRY + 1,  [WIRE_OP_PORT] = MESSAGE_NONE + 1,
		[WIRE_OP_CONNECT] = MESSAGE_NONE + 1,  [WIRE_OP_ASK] = MESSAGE_NONE + 1,
		[WIRE_OP_ADOPT] = MESSAGE_STARTED + 1, [WIRE_OP_TRACE] = MESSAGE_NONE + 1,
	};

	static const uint8_t clients[WIRE_OP_MAX] = {
		[WIRE_OP_EXEC] = MESSAGE_STARTED_CLIENT + 1,
		[WIRE_OP_ATTACH] = MESSAGE_STARTED_CLIENT + 1,
		[WIRE_OP_EGRESS] = MESSAGE_NONE + 1,
		[WIRE_OP_LIFE] = MESSAGE_LIFE_NOW + 1,
		[WIRE_OP_SAVE] = MESSAGE_SAVED + 1,
	};

	if (client && pick(clients, ARRAY_SIZE(clients), op, ret) == 0)
		return 0;
	return pick(list, ARRAY_SIZE(list), op, ret);
}

int message_of_msg(uint8_t kind, bool from_keeper, enum wire_message *ret)
{
	static const uint8_t keeper[WIRE_MSG_MAX] = {
		[WIRE_MSG_SIGNAL] = MESSAGE_SIGNAL + 1,
		[WIRE_MSG_RESIZE] = MESSAGE_RESIZE + 1,
	};
	static const uint8_t guest[WIRE_MSG_MAX] = {
		[WIRE_MSG_EXIT] = MESSAGE_EXIT + 1,
		[WIRE_MSG_ENTRY] = MESSAGE_ENTRY + 1,
		[WIRE_MSG_EVENT] = MESSAGE_EVENT + 1,
		[WIRE_MSG_LIMIT] = MESSAGE_LIMIT + 1,
	};

	return pick(from_keeper ? keeper : guest, WIRE_MSG_MAX, kind, ret);
}

DEFINE_NAMES(wire_code_name, uint64_t, WIRE_CODE_MAX, "unknown code", [WIRE_DONE] = "done",
	     [WIRE_INVALID] = "invalid", [WIRE_NOT_FOUND] = "not found", [WIRE_EXISTS] = "exists",
	     [WIRE_PERMISSION] = "permission denied", [WIRE_NOT_DIRECTORY] = "not a directory",
	     [WIRE_IS_DIRECTORY] = "is a directory", [WIRE_NOT_EMPTY] = "not empty",
	     [WIRE_NO_SPACE] = "no space left", [WIRE_TOO_MANY] = "too many",
	     [WIRE_NO_USER] = "no such user", [WIRE_CANNOT_EXECUTE] = "cannot execute",
	     [WIRE_IO] = "input/output error", [WIRE_UNSUPPORTED] = "not supported",
	     [WIRE_GONE] = "gone", [WIRE_TIMEOUT] = "time limit reached");
