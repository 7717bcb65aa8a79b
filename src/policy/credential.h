/* SPDX-License-Identifier: Apache-2.0 */
/* Recognizes well-known credentials, so that none is put into a policy by mistake. */
#pragma once

#include <stdbool.h>

/* Describes the first credential found in `text` ("a GitHub token"), or returns NULL. */
const char *credential_find(const char *text);

/* Does a variable of this name usually hold a credential: PASSWORD, API_TOKEN, CLIENT_SECRET? */
bool credential_name(const char *name);
