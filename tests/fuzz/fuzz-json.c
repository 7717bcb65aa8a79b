/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed value can be written, and parsing the result gives the same value and the same text. */
#include <string.h>

#include "base/json-util.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_json_ json_t *j = NULL, *back = NULL;
	_cleanup_free_ char *text = NULL, *again = NULL, *line = NULL;
	struct err e = ERR_INIT;
	int r = json_read((const char *)data, size, &j, &e);

	assert(r == 0 || e.msg[0]);
	if (r < 0)
		return 0;
	text = json_write_canonical(j);
	line = json_write_line(j);
	assert(text && line && !strchr(line, '\n'));
	assert(json_read(text, strlen(text), &back, &e) == 0);
	again = json_write_canonical(back);
	assert(json_equal(j, back) && strcmp(text, again) == 0);
	return 0;
}
