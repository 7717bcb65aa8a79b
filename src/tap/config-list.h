/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "l7/l7.h"

/* Reads a list of at most `max` texts. They stay owned by the JSON value; the caller frees ret->v.
 */
int tap_config_list(const json_t *o, const char *key, size_t max, struct l7_list *ret,
		    struct err *e);
