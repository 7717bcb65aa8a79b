/* SPDX-License-Identifier: Apache-2.0 */
/* Records and chains as bytes: every change is detected; contents of payloads. */
#include "test-audit.h"

#include <sodium.h>

#include "base/str.h"

/* ---- chains in memory ---- */

enum {
	MANY = 1000
};

/*
 * A log of MANY records, with the offset of each. Its clock jumps back and forth and boot ids
 * repeat: only numbers and hashes define the order of records.
 */
struct book {
	struct buf bytes;
	size_t at[MANY + 1];
	struct audit_head before[MANY + 1];
};

static void write_book(struct book *book)
{
	uint8_t *out = malloc(AUDIT_RECORD_MAX);
	struct audit_head head = { 0 };

	assert_non_null(out);
	*book = (struct book){ .bytes = BUF_INIT(64 * 1024 * 1024) };
	for (unsigned int i = 0; i < MANY; i++) {
		char text[64];
		struct audit_record r = { .kind = AUDIT_EXEC,
					  .boot = { (uint8_t)(i / 100 % 3) },
					  .wall = i * 7919 % MANY,
					  .mono = MANY - i,
					  .payload = text };

		r.n_payload =
			(size_t)snprintf(text, sizeof(text), "{\"argv\":[\"step\",\"%u\"]}", i);
		book->at[i] = book->bytes.len;
		book->before[i] = head;
		assert_int_equal(buf_put(&book->bytes, out, audit_record_write(&head, &r, out)), 0);
	}
	book->at[MANY] = book->bytes.len;
	book->before[MANY] = head;
	free(out);
}

/* Reads record `k` of the book as the one after `n` records. */
static ssize_t read_as(const struct book *book, size_t k, size_t n, const char **ret_why)
{
	struct audit_head head = book->before[n];
	struct audit_record rec;

	return audit_record_read(&head, (const uint8_t *)book->bytes.data + book->at[k],
				 book->bytes.len - book->at[k], &rec, ret_why);
}

/*
 * The bytes before the flipped bit are unchanged, so the reader reaches that record in state
 * before[k]. Checking this one record is as good as checking the whole log.
 */
TEST(test_every_bit)
{
	struct book book;
	const char *why;
	unsigned int step = SANITIZED ? 61 : 1;
	uint64_t flipped = 0;

	write_book(&book);
	for (size_t k = 0; k < MANY; k++) {
		assert_true(read_as(&book, k, k, &why) > 0);
		for (size_t bit = k % step; bit < 8 * (book.at[k + 1] - book.at[k]); bit += step) {
			char *byte = &book.bytes.data[book.at[k] + bit / 8];

			*byte = (char)(*byte ^ 1 << bit % 8);
			if (read_as(&book, k, k, &why) != -EBADMSG)
				fail_msg("bit %zu of record %zu", bit, k);
			*byte = (char)(*byte ^ 1 << bit % 8);
			flipped++;
		}
	}
	print_message("# %llu bits flipped, each found in its record\n",
		      (unsigned long long)flipped);
	assert_true(SANITIZED || flipped == 8 * book.bytes.len);
	buf_done(&book.bytes);
}

TEST(test_every_deletion_swap_duplicate)
{
	struct book book;
	const char *why;

	write_book(&book);
	for (size_t k = 0; k + 1 < MANY; k++) {
		/* Record k is missing, swapped with its neighbour, or duplicated. */
		assert_int_equal(read_as(&book, k + 1, k, &why), -EBADMSG);
		assert_string_equal(why, "records are missing before it");
		assert_int_equal(read_as(&book, k, k + 1, &why), -EBADMSG);
		assert_string_equal(why, "its sequence number was used before");
	}
	buf_done(&book.bytes);
}

/* A truncated valid record is the end of the log; a truncated other record is an error. */
TEST(test_every_cut)
{
	struct book book;
	const char *why;
	struct audit_record rec;

	write_book(&book);
	for (size_t n = 1; n < book.at[8] - book.at[7]; n++) {
		const uint8_t *p = (const uint8_t *)book.bytes.data;
		struct audit_head head = book.before[7];

		assert_int_equal(audit_record_read(&head, p + book.at[7], n, &rec, &why), 0);
		if (n > 23)
			assert_int_equal(audit_record_read(&head, p + book.at[8], n, &rec, &why),
					 -EBADMSG);
	}
	buf_done(&book.bytes);
}

/* ---- payloads ---- */

TEST(test_payload)
{
	static const char *const values[] = { "hunter2", "hunter22" };
	const struct audit_secrets secrets = { values, 2 };
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(&secrets);
	static const char *const argv[] = { "curl", "-H", "token: hunter22;hunter2", "a\"b\\c" };
	static struct audit_chain c;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	c.fd = null;
	audit_put_text(&p, "text", "a\n\033[31m\xe2\x80\xae\xff");
	audit_put_number(&p, "n", 7);
	audit_put_argv(&p, argv, ARRAY_SIZE(argv));
	assert_int_equal(audit_append(&c, AUDIT_EXEC, &p), 0);
	assert_non_null(strstr(payload(&c),
			       "{\"text\":\"a\\\\n\\\\x1b[31m\\\\u{202e}\\\\xff\",\"n\":7,"
			       "\"argv\":[\"curl\",\"-H\",\"token: [redacted];[redacted]\","
			       "\"a\\\"b\\\\\\\\c\"],\"argc\":4,\"argv_sha256\":\""));
	assert_null(strstr(payload(&c), "hunter"));
	audit_chain_close(&c);
}

TEST(test_long_argv)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	static struct audit_chain c;
	static char big[100000];
	const char *argv[500];

	memset(big, '\033', sizeof(big) - 1);
	for (size_t i = 0; i < ARRAY_SIZE(argv); i++)
		argv[i] = big;
	c.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	audit_put_argv(&p, argv, ARRAY_SIZE(argv));
	assert_int_equal(audit_append(&c, AUDIT_EXEC, &p), 0);
	assert_non_null(strstr(payload(&c), "...\"],\"argc\":500,"));
	audit_chain_close(&c);
}
