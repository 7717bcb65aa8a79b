/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of sandboxes. */
#include "base/str.h"
#include "state/spec.h"

bool spec_id_valid(const char *id)
{
	if (!ascii_is_lower(id[0]) || strlen(id) != SPEC_ID)
		return false;
	return strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == SPEC_ID;
}
