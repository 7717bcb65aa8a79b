/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "tap/config.h"

/* Reads the member `llm` of the configuration. tap_config_done() frees what it has made, also after
 * a failure. */
int tap_config_llm(const json_t *o, struct tap_config *c, struct err *e);
void tap_config_llm_done(struct tap_config *c);
