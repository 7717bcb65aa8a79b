/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a secret: valid information can be sealed again with a value, and unsealing returns
 * this value. The input is also tried as notes, as a value and as a name.
 */
#include <string.h>

#include "base/str.h"
#include "fuzz.h"
#include "secret/inner.h"

static const uint8_t key[SECRET_KEY] = { 7 };

static void seal_again(struct secret_info *info, const char *data, size_t n)
{
	_cleanup_buf_ struct buf value = BUF_INIT(SECRET_VALUE_MAX),
				 text = BUF_INIT(SECRET_FILE_MAX),
				 back = BUF_INIT(SECRET_VALUE_MAX);
	_cleanup_secret_info_ struct secret_info same = { 0 };
	_cleanup_free_ char *written = NULL;
	struct err e = ERR_INIT;

	if (secret_value_check(data, n, &e) < 0)
		(void)buf_puts(&value, "some value");
	else
		(void)buf_put(&value, data, n);
	(void)snprintf(info->name, sizeof(info->name), "NAME");
	assert(secret_seal(key, info, &value, &written, &e) == 0);
	assert(buf_puts(&text, written) == 0);
	assert(secret_read_info(&text, &same, &e) == 0);
	assert(same.set == info->set && same.source == info->source);
	assert(json_equal(same.command, info->command) || (!same.command && !info->command));
	assert(secret_unseal(key, "NAME", &text, &back, &e) == 0);
	assert(back.len == value.len && memcmp(back.data, value.data, value.len) == 0);
	assert(secret_unseal(key, "OTHER", &text, &back, &e) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SECRET_FILE_MAX),
				 value = BUF_INIT(SECRET_VALUE_MAX);
	_cleanup_secret_info_ struct secret_info info = { 0 }, notes = { 0 };
	struct err e = ERR_INIT;

	if (buf_put(&text, data, size) < 0)
		return 0;
	if (secret_read_info(&text, &info, &e) == 0) {
		assert(info.source < SECRET_SOURCES && info.set > 0);
		assert((info.source == SECRET_EXEC) == (info.command != NULL));
		seal_again(&info, (const char *)data, size);
	}
	assert(secret_unseal(key, "NAME", &text, &value, &e) < 0 && e.msg[0] && value.len == 0);
	if (secret_notes_text(&text, &notes, &e) == 0)
		assert(json_is_array(notes.hosts));
	if (secret_value_check((const char *)data, size, &e) == 0)
		assert(utf8_valid((const char *)data, size) && !memchr(data, '\n', size));
	if (secret_name_check(buf_text(&text), &e) == 0)
		assert(strlen(buf_text(&text)) <= SECRET_NAME_MAX);
	return 0;
}
