/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/*
 * Collects the body and reads it as one JSON object (nothing at all counts as {} if `optional`);
 * what is no JSON is answered 400 and ends the request. `have` is called with r->body set. Members
 * are read with jansson's functions: unknown ones are ignored, null is as absent.
 */
void request_json(struct request *r, bool optional, void (*have)(struct request *r));
