/* SPDX-License-Identifier: Apache-2.0 */
/* keys.json: parsed keys can be written, and parsing the result gives the same keys. */
#include <string.h>

#include "fuzz.h"
#include "keys/keys.h"

static void again(const struct key_entry *list, size_t n)
{
	_cleanup_free_ struct key_entry *back = NULL;
	_cleanup_free_ char *text = keys_write_text(list, n);
	struct err e = ERR_INIT;
	size_t n_back = 0;

	assert(text && keys_read_text(text, strlen(text), &back, &n_back, &e) == 0);
	assert(n_back == n && memcmp(back, list, n * sizeof(*list)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ struct key_entry *list = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = keys_read_text((const char *)data, size, &list, &n, &e);

	assert(r == 0 || e.msg[0]);
	(void)key_text_valid((const char *)data, size);
	if (r < 0)
		return 0;
	assert(n <= KEYS_MAX);
	for (size_t i = 0; i < n; i++)
		assert(key_name_valid(list[i].info.name) && list[i].info.role < KEY_ROLES &&
		       strlen(list[i].info.prefix) == KEY_PREFIX && list[i].info.created > 0);
	again(list, n);
	return 0;
}
