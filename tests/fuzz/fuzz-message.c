/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A payload of fields; the first byte selects the message. An accepted payload has one encoding:
 * encoding its fields again gives the same bytes.
 */
#include <string.h>

#include "fuzz.h"
#include "wire/message.h"

static void write_again(const struct fields *f, struct buf *b)
{
	for (unsigned int tag = 1; tag < TAG_MAX; tag++) {
		const char *value;
		size_t pos = 0, n, values = 0;

		while (fields_next(f, tag, &pos, &value, &n)) {
			fields_put_bytes(b, tag, value, n);
			values++;
		}
		assert((values > 0) == fields_has(f, tag));
	}
}

static void check_copy(const struct fields *f)
{
	_cleanup_free_ char *copy = NULL;
	const char *value;
	bool oom = false;
	size_t pos = 0, n;

	copy = fields_copy(f, TAG_PATH, &oom);
	assert(!oom && !copy == !fields_has(f, TAG_PATH));
	if (copy)
		assert(fields_next(f, TAG_PATH, &pos, &value, &n) && strlen(copy) == n &&
		       memcmp(copy, value, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf again = BUF_INIT(size);
	struct fields f = { .len = SIZE_MAX };
	struct err e = ERR_INIT;
	int r;

	if (size == 0)
		return 0;
	r = fields_parse((enum wire_message)(data[0] % MESSAGE_MAX), data + 1, size - 1, &f, &e);
	assert(r == 0 || (r == -EBADMSG && e.num == r && e.msg[0] && f.len == SIZE_MAX));
	if (r < 0)
		return 0;
	write_again(&f, &again);
	assert(again.err == 0 && again.len == size - 1);
	assert(again.len == 0 || memcmp(again.data, data + 1, again.len) == 0);
	check_copy(&f);
	return 0;
}
