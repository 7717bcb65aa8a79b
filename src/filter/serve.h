/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-filter at work: takes the output of a sandbox's commands from the keeper and returns what
 * may leave. It reads its sockets in turn from one loop. When the keeper does not read, nothing
 * more is read from the keeper.
 */
#pragma once

#include "base/loop.h"
#include "filter/filter-config.h"

enum {
	SERVE_PAUSE_MS = 50, /* after that without output, held bytes leave */
};

/* Serves until a socket closes. `l` is empty. 0 or -errno. */
int filter_serve(struct loop *l, const struct filter_rules *rules, struct err *e);
