/* SPDX-License-Identifier: Apache-2.0 */
/* What well-known credentials look like, so that none is put into a policy by mistake. */
#pragma once

#include <stdbool.h>

/* What credential stands somewhere in `text` ("a GitHub token"), or NULL. */
const char *credential_find(const char *text);

/* Is a variable of this name usually a credential: PASSWORD, API_TOKEN, CLIENT_SECRET? */
bool credential_name(const char *name);
