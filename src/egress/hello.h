/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a TLS ClientHello asks for. The caller gathers the first bytes of a stream and calls again
 * with more of them until there is an answer; records and segments may cut the message anywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "name.h"

enum {
	HELLO_MAX = 16 * 1024, /* of the message; no client in use sends a quarter of it */
};

struct hello {
	bool has_name;
	bool ech; /* encrypted ClientHello, or the empty one that hides who uses it */
	struct name name;
};

/*
 * 1 with *ret once the whole message is there, 0 while it is not, or -EBADMSG with the reason in
 * *ret_why (static text): not TLS, broken, too long, an extension twice, a name that is none.
 */
int hello_parse(const void *data, size_t n, struct hello *ret, const char **ret_why);
