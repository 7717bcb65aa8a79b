/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "request.h"

/* POST /files. */
void files_upload(struct request *r);
