/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* Forwards a request to the program that listens on that port of r->box, and its answer back. */
void ports_handle(struct request *r);
