/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response of a program in a sandbox: each accepted field can be written into our own head
 * without changing its meaning, and a truncated head is not accepted as complete.
 */
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "envd/port-answer.h"
#include "fuzz.h"

static void check_text(const char *s, const char *never)
{
	assert(s[0] || never[0] != ':');
	assert(!strpbrk(s, never));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *copy = malloc(size + 1), *less = malloc(size + 1);
	struct port_answer a, b;
	const char *why = NULL;
	int n;

	assert(copy && less);
	memcpy(copy, data, size);
	memcpy(less, data, size);
	n = port_answer_parse(&(struct http_scan){ 0 }, copy, size, &a, &why);
	assert(n >= 0 || why);
	if (n <= 0)
		return 0;
	assert((size_t)n <= size && a.status >= 100 && a.status <= 599 && a.length >= -2);
	assert(port_answer_parse(&(struct http_scan){ 0 }, less, (size_t)n - 1, &b, &why) == 0);
	for (size_t i = 0; i < a.n_fields; i++) {
		check_text(a.fields[i].name, ":\r\n \t");
		check_text(a.fields[i].value, "\r\n");
		assert(strcasecmp(a.fields[i].name, "content-length") != 0 &&
		       strcasecmp(a.fields[i].name, "transfer-encoding") != 0 &&
		       strcasecmp(a.fields[i].name, "connection") != 0);
	}
	return 0;
}
