/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/*
 * Reads the body as one JSON object; with `optional`, an empty body counts as {}. Invalid JSON is
 * answered with 400 and ends the request. `have` is called with r->body set. Unknown members are
 * ignored; null counts as absent.
 */
void request_json(struct request *r, bool optional, void (*have)(struct request *r));
