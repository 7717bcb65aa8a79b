/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables below repeat PROTOCOL.md. They generate a valid example of every message, and every
 * way to break one of its fields.
 */
#include "unit.h"

#include <string.h>

#include "fail.h"
#include "wire/message.h"

enum {
	PAYLOAD_MAX = 2 * 1024 * 1024,
	FIELDS_MAX = 32,
	LENGTH_MAX = 0xffffff,
};

enum kind {
	NUMBER = 1,
	FLAG,
	TEXT,
	BYTES,
	RAW,
	META,
};

static const struct {
	enum kind kind;
	uint64_t min, max; /* limits of a number, otherwise of the length */
} kinds[TAG_MAX] = {
	[TAG_VERSION] = { NUMBER, 0, UINT32_MAX },
	[TAG_AGENT] = { TEXT, 0, 64 },
	[TAG_HOSTNAME] = { TEXT, 0, 63 },
	[TAG_READ] = { BYTES, 0, 4096 },
	[TAG_WRITE] = { BYTES, 0, 4096 },
	[TAG_EXECUTE] = { BYTES, 0, 4096 },
	[TAG_ARGV] = { BYTES, 0, 131072 },
	[TAG_ENV] = { BYTES, 0, 131072 },
	[TAG_CWD] = { BYTES, 0, 4096 },
	[TAG_PATH] = { BYTES, 0, 4096 },
	[TAG_TARGET] = { BYTES, 0, 4096 },
	[TAG_USER] = { TEXT, 0, 64 },
	[TAG_STDIN] = { FLAG, 0, 0 },
	[TAG_COLUMNS] = { NUMBER, 0, UINT16_MAX },
	[TAG_ROWS] = { NUMBER, 0, UINT16_MAX },
	[TAG_RLIMIT] = { RAW, 17, 17 },
	[TAG_OFFSET] = { NUMBER, 0, INT64_MAX },
	[TAG_LENGTH] = { NUMBER, 0, INT64_MAX },
	[TAG_MODE] = { NUMBER, 0, 07777 },
	[TAG_PARENTS] = { FLAG, 0, 0 },
	[TAG_DEPTH] = { NUMBER, 0, 64 },
	[TAG_RECURSIVE] = { FLAG, 0, 0 },
	[TAG_PID] = { NUMBER, 1, INT32_MAX },
	[TAG_NUMBER] = { NUMBER, 1, 64 },
	[TAG_EVENT] = { NUMBER, 1, 6 },
	[TAG_KIND] = { NUMBER, 1, 4 },
	[TAG_SIZE] = { NUMBER, 0, INT64_MAX },
	[TAG_UID] = { NUMBER, 0, UINT32_MAX },
	[TAG_GID] = { NUMBER, 0, UINT32_MAX },
	[TAG_MTIME] = { NUMBER, 0, INT64_MAX },
	[TAG_CODE] = { NUMBER, 0, 255 },
	[TAG_SIGNAL] = { NUMBER, 1, 64 },
	[TAG_USER_US] = { NUMBER, 0, INT64_MAX },
	[TAG_SYSTEM_US] = { NUMBER, 0, INT64_MAX },
	[TAG_MAX_RSS] = { NUMBER, 0, INT64_MAX },
	[TAG_TEXT] = { TEXT, 0, 256 },
	[TAG_LANDLOCK] = { NUMBER, 0, UINT32_MAX },
	[TAG_TIMEOUT] = { NUMBER, 1, UINT32_MAX },
	[TAG_NAME] = { TEXT, 0, 63 },
	[TAG_DETACH] = { FLAG, 0, 0 },
	[TAG_RECORD] = { NUMBER, 1, UINT32_MAX },
	[TAG_RULE] = { TEXT, 0, 300 },
	[TAG_DENY] = { FLAG, 0, 0 },
	[TAG_PORT] = { NUMBER, 1, 65535 },
	[TAG_OWNER] = { TEXT, 0, 64 },
	[TAG_GROUP] = { TEXT, 0, 64 },
	[TAG_META] = { META, 2, 64 + 1 + 1024 },
	[TAG_FOLLOW] = { FLAG, 0, 0 },
	[TAG_OWNERS] = { FLAG, 0, 0 },
	[TAG_REPLACE] = { FLAG, 0, 0 },
	[TAG_ON_TIMEOUT] = { NUMBER, 1, 2 },
	[TAG_WANT] = { NUMBER, 1, 2 },
	[TAG_DEADLINE] = { NUMBER, 0, INT64_MAX },
	[TAG_SEED] = { RAW, 32, 32 },
	[TAG_TIME] = { NUMBER, 0, INT64_MAX },
	[TAG_MACHINE] = { TEXT, 0, 32 },
	[TAG_NETWORK] = { TEXT, 0, 64 },
	[TAG_PIDS] = { NUMBER, 1, INT32_MAX },
	[TAG_HOST] = { TEXT, 0, 255 },
	[TAG_EGRESS] = { FLAG, 0, 0 },
	[TAG_LIMIT] = { NUMBER, 1, 4 },
	[TAG_CA] = { TEXT, 0, 4096 },
};

/* '!' needed, '?' optional, '*' any number, '+' one or more, '2' both or none, '1' just one. */
static const struct row {
	enum wire_message m;
	struct {
		uint8_t tag;
		char how;
	} uses[15];
} rows[] = {
	{ MESSAGE_NONE, { { 0, 0 } } },
	{ MESSAGE_HELLO_KEEPER,
	  { { TAG_VERSION, '!' },
	    { TAG_HOSTNAME, '?' },
	    { TAG_READ, '*' },
	    { TAG_WRITE, '*' },
	    { TAG_EXECUTE, '*' },
	    { TAG_CWD, '?' },
	    { TAG_SEED, '?' },
	    { TAG_TIME, '?' },
	    { TAG_MACHINE, '?' },
	    { TAG_NETWORK, '*' },
	    { TAG_PIDS, '?' },
	    { TAG_EGRESS, '?' },
	    { TAG_CA, '?' } } },
	{ MESSAGE_HELLO_GUEST,
	  { { TAG_VERSION, '!' }, { TAG_AGENT, '!' }, { TAG_LANDLOCK, '?' } } },
	{ MESSAGE_EXEC,
	  { { TAG_ARGV, '+' },
	    { TAG_ENV, '*' },
	    { TAG_CWD, '?' },
	    { TAG_USER, '?' },
	    { TAG_STDIN, '?' },
	    { TAG_COLUMNS, '2' },
	    { TAG_ROWS, '2' },
	    { TAG_RLIMIT, '*' } } },
	{ MESSAGE_READ,
	  { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_OFFSET, '?' }, { TAG_LENGTH, '?' } } },
	{ MESSAGE_WRITE,
	  { { TAG_PATH, '!' },
	    { TAG_USER, '?' },
	    { TAG_MODE, '?' },
	    { TAG_PARENTS, '?' },
	    { TAG_META, '*' } } },
	{ MESSAGE_STAT, { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_FOLLOW, '?' } } },
	{ MESSAGE_LIST,
	  { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_DEPTH, '!' }, { TAG_FOLLOW, '?' } } },
	{ MESSAGE_MKDIR,
	  { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_MODE, '?' }, { TAG_PARENTS, '?' } } },
	{ MESSAGE_MOVE,
	  { { TAG_PATH, '!' }, { TAG_TARGET, '!' }, { TAG_USER, '?' }, { TAG_PARENTS, '?' } } },
	{ MESSAGE_REMOVE, { { TAG_PATH, '!' }, { TAG_USER, '?' } } },
	{ MESSAGE_WATCH, { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_RECURSIVE, '?' } } },
	{ MESSAGE_PACK, { { TAG_PATH, '!' }, { TAG_USER, '?' }, { TAG_OWNERS, '?' } } },
	{ MESSAGE_UNPACK, { { TAG_PATH, '!' }, { TAG_USER, '?' } } },
	{ MESSAGE_STARTED, { { TAG_PID, '!' } } },
	{ MESSAGE_ENTRY,
	  { { TAG_PATH, '!' },
	    { TAG_TARGET, '?' },
	    { TAG_MODE, '!' },
	    { TAG_KIND, '!' },
	    { TAG_SIZE, '!' },
	    { TAG_UID, '!' },
	    { TAG_GID, '!' },
	    { TAG_MTIME, '!' },
	    { TAG_OWNER, '?' },
	    { TAG_GROUP, '?' },
	    { TAG_META, '*' } } },
	{ MESSAGE_SIGNAL, { { TAG_NUMBER, '!' } } },
	{ MESSAGE_RESIZE, { { TAG_COLUMNS, '!' }, { TAG_ROWS, '!' } } },
	{ MESSAGE_EXIT,
	  { { TAG_CODE, '1' },
	    { TAG_SIGNAL, '1' },
	    { TAG_USER_US, '!' },
	    { TAG_SYSTEM_US, '!' },
	    { TAG_MAX_RSS, '!' } } },
	{ MESSAGE_EVENT,
	  { { TAG_PATH, '!' },
	    { TAG_TARGET, '?' },
	    { TAG_MODE, '?' },
	    { TAG_EVENT, '!' },
	    { TAG_KIND, '?' },
	    { TAG_SIZE, '?' },
	    { TAG_UID, '?' },
	    { TAG_GID, '?' },
	    { TAG_MTIME, '?' },
	    { TAG_OWNER, '?' },
	    { TAG_GROUP, '?' },
	    { TAG_META, '*' } } },
	{ MESSAGE_CLOSE, { { TAG_CODE, '!' }, { TAG_TEXT, '?' } } },
	{ MESSAGE_EXEC_CLIENT,
	  { { TAG_ARGV, '+' },
	    { TAG_ENV, '*' },
	    { TAG_CWD, '?' },
	    { TAG_USER, '?' },
	    { TAG_STDIN, '?' },
	    { TAG_COLUMNS, '2' },
	    { TAG_ROWS, '2' },
	    { TAG_RLIMIT, '*' },
	    { TAG_TIMEOUT, '?' },
	    { TAG_NAME, '?' },
	    { TAG_DETACH, '?' } } },
	{ MESSAGE_ATTACH, { { TAG_STDIN, '?' }, { TAG_NAME, '1' }, { TAG_RECORD, '1' } } },
	{ MESSAGE_EGRESS, { { TAG_RULE, '*' }, { TAG_DENY, '?' }, { TAG_REPLACE, '?' } } },
	{ MESSAGE_LIFE, { { TAG_TIMEOUT, '?' }, { TAG_ON_TIMEOUT, '?' }, { TAG_WANT, '?' } } },
	{ MESSAGE_LIFE_NOW, { { TAG_WANT, '!' }, { TAG_DEADLINE, '!' } } },
	{ MESSAGE_STARTED_CLIENT, { { TAG_PID, '!' }, { TAG_RECORD, '?' } } },
	{ MESSAGE_PORT, { { TAG_PORT, '!' } } },
	{ MESSAGE_PORT_CLIENT, { { TAG_PORT, '!' }, { TAG_OWNERS, '?' } } },
	{ MESSAGE_CONNECT, { { TAG_PORT, '!' }, { TAG_HOST, '!' } } },
	{ MESSAGE_ASK, { { TAG_HOST, '!' } } },
	{ MESSAGE_ADOPT, { { TAG_PID, '!' } } },
	{ MESSAGE_SAVE, { { TAG_NAME, '?' }, { TAG_WANT, '?' } } },
	{ MESSAGE_SAVED, { { TAG_NAME, '!' } } },
	{ MESSAGE_WAKE, { { TAG_SEED, '?' }, { TAG_TIME, '?' } } },
	{ MESSAGE_LIMIT, { { TAG_SIZE, '!' }, { TAG_LIMIT, '!' } } },
	{ MESSAGE_TRACE, { { 0, 0 } } },
};

static_assert(ARRAY_SIZE(rows) == MESSAGE_MAX, "an example of every message");

struct field {
	uint8_t tag;
	size_t n;
	const void *value;
};

struct payload {
	struct field list[FIELDS_MAX];
	size_t n;
};

static const uint8_t one[8] = { 0, 0, 0, 0, 0, 0, 0, 1 };
static const char raw[32] = "\x07\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x10"; /* its beginning is a limit */

/* The k-th value of a field: short and unique. */
static struct field example(uint8_t tag, unsigned int k)
{
	static const char *const texts[] = { "a\xc3\xa4z", "second" };
	static const char *const bytes[] = { "/x/\xff\xfe", "B=2" };
	static const char *const meta[] = { "a-1=x\xff", "b=" };

	switch (tag < TAG_MAX ? kinds[tag].kind : NUMBER) {
	case FLAG:
		return (struct field){ tag, 0, NULL };
	case TEXT:
		return (struct field){ tag, strlen(texts[k]), texts[k] };
	case BYTES:
		return (struct field){ tag, strlen(bytes[k]), bytes[k] };
	case RAW:
		return (struct field){ tag, (size_t)kinds[tag].max, raw };
	case META:
		return (struct field){ tag, strlen(meta[k]), meta[k] };
	default:
		return (struct field){ tag, sizeof(one), one };
	}
}

/* Every field of a message, repeated ones twice; of "just one" the `which`-th. */
static struct payload full(const struct row *row, unsigned int which)
{
	struct payload p = { .n = 0 };
	unsigned int seen = 0;

	for (size_t i = 0; row->uses[i].tag; i++) {
		char how = row->uses[i].how;

		if (how == '1' && seen++ != which)
			continue;
		p.list[p.n++] = example(row->uses[i].tag, 0);
		if (how == '*' || how == '+')
			p.list[p.n++] = example(row->uses[i].tag, 1);
	}
	return p;
}

static struct payload least(const struct row *row)
{
	struct payload p = { .n = 0 };

	for (size_t i = 0; row->uses[i].tag; i++)
		if (strchr("!+", row->uses[i].how) || row->uses[i].tag == TAG_SIGNAL ||
		    row->uses[i].tag == TAG_RECORD)
			p.list[p.n++] = example(row->uses[i].tag, 1);
	return p;
}

static char use_of(const struct row *row, unsigned int tag)
{
	for (size_t i = 0; row->uses[i].tag; i++)
		if (row->uses[i].tag == tag)
			return row->uses[i].how;
	return 0;
}

static void encode(const struct payload *p, struct buf *b)
{
	for (size_t i = 0; i < p->n; i++)
		fields_put_bytes(b, p->list[i].tag, p->list[i].value, p->list[i].n);
	assert_int_equal(b->err, 0);
}

/* Parses a copy without readable memory after it. A refused message leaves the result unchanged. */
static int parse_bytes(const struct row *row, const void *data, size_t n)
{
	_cleanup_free_ char *exact = unit_copy(data, n);
	struct fields f = { .len = 77 };
	struct err e = ERR_INIT;
	int r = fields_parse(row->m, exact, n, &f, &e);

	if (r == 0) {
		assert_int_equal(f.len, n);
		return 0;
	}
	assert_int_equal(f.len, 77);
	assert_int_equal(e.num, r);
	assert_string_not_equal(e.msg, "");
	return r;
}

static void expect(const struct row *row, const struct payload *p, bool good, const char *what)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
	int r;

	encode(p, &b);
	r = parse_bytes(row, b.data, b.len);
	if (r != (good ? 0 : -EBADMSG))
		fail_msg("message %d, %s: %d", (int)row->m, what, r);
}

/* Every field of every full example, in turn. */
#define for_each_field(row, p, i)                                                                  \
	for (const struct row *row = rows; row < rows + MESSAGE_MAX; row++)                        \
		for (unsigned int which_ = 0; which_ < (row->m == MESSAGE_EXIT ? 2 : 1); which_++) \
			for (struct payload p = full(row, which_), *once_ = &p; once_;             \
			     once_ = NULL)                                                         \
				for (size_t i = 0; i < p.n; i++)

static struct payload without(const struct payload *p, size_t i)
{
	struct payload q = *p;

	memmove(&q.list[i], &q.list[i + 1], (q.n - i - 1) * sizeof(q.list[0]));
	q.n--;
	return q;
}

static struct payload with(const struct payload *p, size_t i, struct field f)
{
	struct payload q = *p;

	assert_true(q.n < FIELDS_MAX);
	memmove(&q.list[i + 1], &q.list[i], (q.n - i) * sizeof(q.list[0]));
	q.list[i] = f;
	q.n++;
	return q;
}

/* The decoded values equal the encoded ones. */
static void check_values(const struct row *row, const struct payload *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
	size_t pos[TAG_MAX] = { 0 };
	struct err e = ERR_INIT;
	struct fields f;

	encode(p, &b);
	assert_int_equal(fields_parse(row->m, b.data, b.len, &f, &e), 0);
	for (size_t i = 0; i < p->n; i++) {
		const struct field *want = &p->list[i];
		const char *value = NULL;
		size_t n = 0;

		assert_true(fields_has(&f, want->tag));
		assert_true(fields_next(&f, want->tag, &pos[want->tag], &value, &n));
		assert_int_equal(n, want->n);
		assert_true(n == 0 || memcmp(value, want->value, n) == 0);
		if (kinds[want->tag].kind == NUMBER)
			assert_int_equal(fields_number(&f, want->tag, 99), 1);
	}
	for (unsigned int tag = 1; tag < TAG_MAX; tag++) {
		const char *value;
		size_t n;

		assert_false(fields_next(&f, tag, &pos[tag], &value, &n));
		assert_true(fields_has(&f, tag) == (pos[tag] > 0));
		if (!fields_has(&f, tag) && kinds[tag].kind == NUMBER)
			assert_int_equal(fields_number(&f, tag, 99), 99);
	}
}

/* Every range of tags is one slice; the slices around it are the rest. */
TEST(slices_are_ranges_of_tags)
{
	for (const struct row *row = rows; row < rows + MESSAGE_MAX; row++) {
		_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
		struct payload p = full(row, 0);
		struct err e = ERR_INIT;
		struct fields f;

		encode(&p, &b);
		assert_int_equal(fields_parse(row->m, b.data, b.len, &f, &e), 0);
		for (unsigned int tag = 1; tag < TAG_MAX; tag++) {
			size_t n[3], sum;
			const char *at = fields_slice(&f, 1, tag - 1, &n[0]);
			const char *own = fields_slice(&f, tag, tag, &n[1]);

			(void)fields_slice(&f, tag + 1, TAG_MAX, &n[2]);
			sum = n[0] + n[1] + n[2];
			assert_int_equal(sum, b.len);
			assert_ptr_equal(own, at + n[0]);
			assert_true((n[1] > 0) == fields_has(&f, tag));
		}
	}
}

TEST(examples_come_back_as_they_were)
{
	for (const struct row *row = rows; row < rows + MESSAGE_MAX; row++) {
		struct payload p = full(row, 0);

		assert_int_equal(row->m, row - rows);
		expect(row, &p, true, "full");
		check_values(row, &p);
		p = full(row, 1);
		expect(row, &p, true, "full, the other way");
		check_values(row, &p);
		p = least(row);
		expect(row, &p, true, "least");
		check_values(row, &p);
	}
}

TEST(needed_fields_are_needed)
{
	for_each_field(row, p, i)
	{
		struct payload q = without(&p, i);
		char how = use_of(row, p.list[i].tag);

		expect(row, &q, strchr("?*+", how), "a field less");
		if (how != '+' || i + 1 == p.n || p.list[i + 1].tag != p.list[i].tag)
			continue;
		q = without(&q, i);
		expect(row, &q, false, "no value of a field that is repeated");
	}
}

TEST(exit_has_a_code_or_a_signal)
{
	const struct row *row = &rows[MESSAGE_EXIT];
	struct payload p = full(row, 0);
	struct payload both = with(&p, 1, example(TAG_SIGNAL, 0));

	assert_int_equal(p.list[0].tag, TAG_CODE);
	expect(row, &both, false, "code and signal");
}

TEST(terminals_have_two_sides)
{
	const struct row *row = &rows[MESSAGE_EXEC];
	struct payload p = least(row);
	struct payload columns = with(&p, 1, example(TAG_COLUMNS, 0));
	struct payload rows_only = with(&p, 1, example(TAG_ROWS, 0));
	struct payload both = with(&columns, 2, example(TAG_ROWS, 0));

	expect(row, &columns, false, "columns");
	expect(row, &rows_only, false, "rows");
	expect(row, &both, true, "columns and rows");
}

/* Each of the 256 tags that a message lacks, at its place in the order. */
TEST(other_fields_do_not_belong)
{
	for (const struct row *row = rows; row < rows + MESSAGE_MAX; row++)
		for (unsigned int tag = 0; tag < 256; tag++) {
			struct payload p = full(row, 0), q;
			size_t i = 0;

			if (use_of(row, tag))
				continue;
			while (i < p.n && p.list[i].tag < tag)
				i++;
			q = with(&p, i, example((uint8_t)tag, 0));
			expect(row, &q, false, "a field of something else");
		}
}

TEST(order_matters)
{
	for_each_field(row, p, i)
	{
		for (size_t j = i + 1; j < p.n; j++) {
			struct payload q = p;

			q.list[i] = p.list[j];
			q.list[j] = p.list[i];
			expect(row, &q, p.list[i].tag == p.list[j].tag, "out of order");
		}
	}
}

TEST(only_some_are_repeated)
{
	for_each_field(row, p, i)
	{
		bool many = strchr("*+", use_of(row, p.list[i].tag));
		struct payload q = with(&p, i, p.list[i]);
		struct payload end = with(&p, p.n, p.list[i]);

		expect(row, &q, many, "repeated");
		expect(row, &end, many && p.list[i].tag == p.list[p.n - 1].tag,
		       "repeated at the end");
	}
}

static void expect_length(const struct row *row, const struct payload *p, size_t i, size_t n,
			  bool good)
{
	_cleanup_free_ char *value = malloc(n + 1);
	struct payload q = *p;

	assert_non_null(value);
	memset(value, kinds[p->list[i].tag].kind == NUMBER ? 0 : 'x', n);
	if (n > 0)
		value[n - 1] = 1;
	q.list[i].value = value;
	q.list[i].n = n;
	expect(row, &q, good, "length of a value");
}

TEST(lengths_have_limits)
{
	for_each_field(row, p, i)
	{
		uint8_t tag = p.list[i].tag;
		size_t max = kinds[tag].kind == NUMBER ? 8 : (size_t)kinds[tag].max;
		bool any = kinds[tag].kind == TEXT || kinds[tag].kind == BYTES;

		if (kinds[tag].kind == META)
			continue;
		expect_length(row, &p, i, max, true);
		expect_length(row, &p, i, max + 1, false);
		expect_length(row, &p, i, max + 256, false);
		if (max == 0)
			continue;
		expect_length(row, &p, i, max - 1, any);
		expect_length(row, &p, i, 0, any);
	}
}

static void expect_number(const struct row *row, const struct payload *p, size_t i, uint64_t value,
			  bool good)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8);
	struct payload q = *p;

	assert_int_equal(buf_put_be(&b, value, 8), 0);
	q.list[i].value = b.data;
	expect(row, &q, good, "value of a number");
}

TEST(numbers_have_limits)
{
	for_each_field(row, p, i)
	{
		uint8_t tag = p.list[i].tag;

		if (kinds[tag].kind != NUMBER)
			continue;
		expect_number(row, &p, i, kinds[tag].max, true);
		expect_number(row, &p, i, kinds[tag].max + 1, false);
		expect_number(row, &p, i, UINT64_MAX, false);
		expect_number(row, &p, i, kinds[tag].min, true);
		expect_number(row, &p, i, 0, kinds[tag].min == 0);
	}
}

TEST(texts_are_utf8_without_nul)
{
	static const struct {
		const char *bytes;
		size_t n;
		bool text, path;
	} values[] = {
		{ "", 0, true, true },
		{ "\xf0\x9f\xa6\x8a", 4, true, true },
		{ "\0", 1, false, false },
		{ "\0a", 2, false, false },
		{ "a\0b", 3, false, false },
		{ "ab\0", 3, false, false },
		{ "\xff", 1, false, true },
		{ "\x80", 1, false, true },
		{ "\xc0\x80", 2, false, true },
		{ "\xe2\x82", 2, false, true },
		{ "a\xc3", 2, false, true },
		{ "\xed\xa0\x80", 3, false, true },
		{ "\xf4\x90\x80\x80", 4, false, true },
	};

	for_each_field(row, p, i)
	{
		enum kind kind = kinds[p.list[i].tag].kind;

		for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
			struct payload q = p;

			q.list[i].value = values[k].bytes;
			q.list[i].n = values[k].n;
			if (kind == TEXT || kind == BYTES)
				expect(row, &q, kind == TEXT ? values[k].text : values[k].path,
				       "bytes of a value");
		}
	}
}

TEST(meta_is_a_key_and_a_value)
{
	static const struct {
		const char *before, *after;
		size_t n; /* number of x between them */
		bool good;
	} values[] = {
		{ "k=", "", 0, true },	       { "k=", "", 1024, true },
		{ "k=", "", 1025, false },     { "", "=v", 64, true },
		{ "", "=v", 65, false },       { "", "=", 64, true },
		{ "", "=v", 0, false },	       { "", "", 10, false },
		{ "", "", 0, false },	       { "az09-", "=", 1, true },
		{ "K", "=", 1, false },	       { "k_", "=", 1, false },
		{ "k.", "=", 1, false },       { "k ", "=", 1, false },
		{ "\xc3\xa4", "=", 1, false }, { "k==", "=", 1, true },
		{ "k=\xff", "\n", 1, true },
	};
	const struct row *row = &rows[MESSAGE_WRITE];
	struct payload p = least(row);

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
		struct payload q;

		(void)buf_puts(&b, values[i].before);
		for (size_t k = 0; k < values[i].n; k++)
			(void)buf_putc(&b, 'x');
		(void)buf_puts(&b, values[i].after);
		q = with(&p, p.n, (struct field){ TAG_META, b.len, buf_text(&b) });
		expect(row, &q, values[i].good, buf_text(&b));
		(void)buf_putc(&b, 0);
		assert_false(wire_meta_valid(b.data, b.len));
	}
}

TEST(a_file_has_so_much_metadata)
{
	static const enum wire_message having[] = { MESSAGE_WRITE, MESSAGE_ENTRY, MESSAGE_EVENT };

	for (size_t i = 0; i < ARRAY_SIZE(having); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
		const struct row *row = &rows[having[i]];
		struct payload p = least(row);

		encode(&p, &b);
		for (unsigned int k = 0; k < 32; k++)
			fields_put_text(&b, TAG_META, "same=key");
		assert_int_equal(parse_bytes(row, b.data, b.len), 0);
		fields_put_text(&b, TAG_META, "one=more");
		assert_int_equal(parse_bytes(row, b.data, b.len), -EBADMSG);
	}
}

/* The length of a field does not match its contents. */
TEST(lengths_do_not_lie)
{
	for_each_field(row, p, i)
	{
		size_t n = p.list[i].n, at = 0;
		const size_t lies[] = { n + 1, n - 1, 0, LENGTH_MAX, LENGTH_MAX - 1, 0x800000 };

		for (size_t j = 0; j < i; j++)
			at += 4 + p.list[j].n;
		for (size_t k = 0; k < ARRAY_SIZE(lies); k++) {
			_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);

			if (lies[k] == n || lies[k] > LENGTH_MAX)
				continue;
			encode(&p, &b);
			b.data[at + 1] = (char)(lies[k] >> 16);
			b.data[at + 2] = (char)(lies[k] >> 8);
			b.data[at + 3] = (char)lies[k];
			assert_int_equal(parse_bytes(row, b.data, b.len), -EBADMSG);
		}
	}
}

TEST(cut_or_longer_is_wrong)
{
	for (const struct row *row = rows; row < rows + MESSAGE_MAX; row++) {
		_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);
		struct payload p = full(row, 0);
		size_t start = 0, len;

		encode(&p, &b);
		for (size_t i = 0; i < p.n; start += 4 + p.list[i++].n)
			for (size_t k = 1; k < 4 + p.list[i].n; k++)
				assert_int_equal(parse_bytes(row, b.data, start + k), -EBADMSG);
		len = b.len;
		for (unsigned int more = 1; more <= 5; more++) {
			assert_int_equal(buf_putc(&b, 0), 0);
			assert_int_equal(parse_bytes(row, b.data, len + more), -EBADMSG);
			memset(b.data + len, 0xff, more);
			assert_int_equal(parse_bytes(row, b.data, len + more), -EBADMSG);
			memset(b.data + len, 0, more);
		}
	}
}

TEST(empty_is_a_message_without_fields)
{
	struct fields f = { .present = 1 };
	struct err e = ERR_INIT;
	const char *value;
	size_t pos = 0, n;

	assert_int_equal(fields_parse(MESSAGE_NONE, NULL, 0, &f, &e), 0);
	assert_int_equal(f.present, 0);
	assert_false(fields_next(&f, TAG_PATH, &pos, &value, &n));
	assert_int_equal(fields_parse(MESSAGE_STAT, NULL, 0, &f, &e), -EBADMSG);
}

/* A set of tags with too few bits would take tag + 64 for an allowed tag, and pass a field without
 * the check of its value. */
TEST(numbers_beyond_the_tags_belong_to_no_message)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (unsigned int tag = TAG_MAX; tag <= UINT8_MAX; tag++) {
			const struct payload usual = full(&rows[i], 0);
			_cleanup_buf_ struct buf b = BUF_INIT(PAYLOAD_MAX);

			encode(&usual, &b);
			assert_int_equal(parse_bytes(&rows[i], b.data, b.len), 0);
			fields_put_flag(&b, (enum wire_tag)tag);
			assert_int_equal(parse_bytes(&rows[i], b.data, b.len), -EBADMSG);
		}
}

/* Each bit of the set stands for one tag: fields_has() finds the last tag, and no other with it. */
TEST(the_set_has_a_bit_for_each_tag)
{
	static_assert(8 * sizeof(((struct fields *)NULL)->present) >= 2 * 64, "room for new tags");
	struct fields f = { .present = 0 };

	for (unsigned int set = 1; set < 8 * sizeof(f.present); set++) {
		f.present = (tag_set)1 << set;
		for (unsigned int tag = 1; tag < 8 * sizeof(f.present); tag++)
			assert_int_equal(fields_has(&f, (enum wire_tag)tag), tag == set);
	}
}

/* A position that does not come from fields_next() ends the walk and has no other effect. */
TEST(positions_stay_inside)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct err e = ERR_INIT;
	struct fields f;
	const char *value;

	fields_put_text(&b, TAG_PATH, "/x");
	assert_int_equal(fields_parse(MESSAGE_STAT, b.data, b.len, &f, &e), 0);
	for (size_t at = 1; at < b.len + 20; at++) {
		size_t pos = at, n;

		assert_false(fields_next(&f, TAG_PATH, &pos, &value, &n));
	}
}

TEST(values_are_copied_with_a_nul)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_free_ char *exact = NULL, *path = NULL, *user = NULL;
	struct err e = ERR_INIT;
	struct fields f;
	bool oom = false;

	fields_put_text(&b, TAG_PATH, "/tmp/x");
	exact = unit_copy(b.data, b.len);
	assert_int_equal(fields_parse(MESSAGE_STAT, exact, b.len, &f, &e), 0);
	path = fields_copy(&f, TAG_PATH, &oom);
	assert_string_equal(path, "/tmp/x");
	user = fields_copy(&f, TAG_USER, &oom);
	assert_null(user);
	assert_false(oom);
}

static int copy_and_free(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	_cleanup_free_ char *path = NULL;
	struct err e = ERR_INIT;
	struct fields f;
	bool oom = false;

	fields_put_text(&b, TAG_PATH, "/x");
	if (b.err)
		return b.err;
	assert_int_equal(fields_parse(MESSAGE_STAT, b.data, b.len, &f, &e), 0);
	path = fields_copy(&f, TAG_PATH, &oom);
	assert_true(oom == !path);
	return oom ? -ENOMEM : 0;
}

TEST(survives_failing_calls)
{
	FAIL_SWEEP(copy_and_free());
}

TEST(writing_has_limits)
{
	_cleanup_buf_ struct buf b = BUF_INIT(12);

	fields_put_number(&b, TAG_CODE, 7);
	assert_int_equal(b.err, 0);
	assert_memory_equal(b.data, "\x1f\0\0\x08\0\0\0\0\0\0\0\x07", 12);
	fields_put_flag(&b, TAG_STDIN);
	assert_int_equal(b.err, -ENOBUFS);
	buf_reset(&b);
	fields_put_bytes(&b, TAG_ENV, "", (size_t)LENGTH_MAX + 1);
	assert_int_equal(b.err, -ENOBUFS);
	assert_int_equal(b.len, 0);
}
