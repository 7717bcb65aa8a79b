/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ClientHello, cut at every place: the result for a part never contradicts the result for the
 * whole.
 */
#include <string.h>

#include "base/str.h"
#include "egress/hello.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello whole = { 0 }, part;
	const char *why = NULL, *part_why = NULL;
	int r = hello_parse(data, size, &whole, &why);
	size_t step = size / 64 + 1;

	assert(r >= 0 || (r == -EBADMSG && why));
	for (size_t n = 0; n < size; n += step) {
		int k = hello_parse(data, n, &part, &part_why);

		if (k > 0) /* the rest was not looked at */
			assert(r == 1 && part.has_name == whole.has_name && part.ech == whole.ech &&
			       str_eq(part.name.text, whole.name.text));
		if (k < 0)
			assert(r < 0);
		memset(&part, 0, sizeof(part));
	}
	if (r == 1 && whole.has_name) {
		struct name again;
		struct err e;

		assert(name_parse(whole.name.text, whole.name.len, &again, &e) == 0);
		assert(str_eq(again.text, whole.name.text));
	}
	return 0;
}
