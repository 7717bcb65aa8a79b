/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about a file that cost time to find out, kept in a JSON file until the file changes. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum {
	KNOWN_MAX = 128, /* size of a value */
	KNOWN_KEY_MAX = 4096 + 256,
};

/* Identifies the file's present contents. An update changes at least one part of it, even if it
 * keeps the modification time. `settled`, or NULL: the last change is older than the steps of the
 * kernel's time stamps, so that another change shows. */
int known_key(const char *path, char ret[static KNOWN_KEY_MAX], bool *settled, struct err *e);

/* False: nothing is known for this key. `name` is a file in `dir`. */
bool known_load(int dir, const char *name, const char *key, char ret[static KNOWN_MAX]);

/* A failure is ignored: then the next caller finds the value out again. */
void known_store(int dir, const char *name, const char *key, const char *value);
