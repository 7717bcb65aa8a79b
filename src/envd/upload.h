/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* POST /files. */
void files_upload(struct request *r);
