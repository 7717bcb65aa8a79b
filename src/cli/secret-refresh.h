/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets whose value is a credential, for which hutch-token gets tokens. */
#pragma once

#include "secret/change.h"

enum {
	SECRET_REFRESH_TEXT = 64,
};

/* Appends the credential in a file of YAML or JSON, as the JSON that is stored. */
int secret_credential_text(const char *path, enum secret_source type, const struct buf *text,
			   struct buf *ret, struct err *e);

/* Runs hutch-token and waits for it. `force`: also while the token is fresh. */
int secret_refresh(const struct secret_store *s, const char *name, bool force,
		   char ret[static SECRET_REFRESH_TEXT], struct err *e);
