/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses a TLS ClientHello. The caller collects the first bytes of a stream and calls again with
 * more until there is a result; records and segments may split the message anywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "names/name.h"

enum {
	HELLO_MAX = 16 * 1024, /* message size; real clients send less than a quarter */
};

struct hello {
	bool has_name;
	bool ech; /* encrypted ClientHello, or a GREASE one */
	struct name name;
};

/*
 * 1 with *ret once the whole message is there, 0 while it is incomplete, or -EBADMSG with a static
 * text in *ret_why: not TLS, broken, too long, repeated extension, invalid name.
 */
int hello_parse(const void *data, size_t n, struct hello *ret, const char **ret_why);
