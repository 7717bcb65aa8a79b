/* SPDX-License-Identifier: Apache-2.0 */
/* One stream: two connections and the exchange between them. It frees itself when it is over. */
#pragma once

#include "tap/tap.h"

/* Takes both files, also on failure: then it has told the keeper. */
void stream_open(struct tap *t, const struct tap_open *o, const int files[static 2]);

/* Serves once each stream that has more to do. */
void stream_run_due(struct tap *t);
