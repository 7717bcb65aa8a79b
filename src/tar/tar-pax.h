/* SPDX-License-Identifier: Apache-2.0 */
/* Extended headers of tar: what they say about the next entry. */
#pragma once

#include "tar.h"

/* What goes before an entry and changes it. Each value can be said once. */
struct tar_more {
	bool has_name, has_link, has_size, has_uid, has_gid, has_mtime;
	char name[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];
	size_t name_len, link_len;
	uint64_t size, uid, gid, mtime;
	unsigned int xattrs;
};

/* Takes one record KEY=VALUE of a pax header. `global`: from a header for all entries. */
int pax_record(struct tar_more *m, bool global, const char *key, size_t key_len, const char *value,
	       size_t len, struct err *e);

/* Only the key is known and the value too long to look at: 0 if it does not matter. */
int pax_skipped(struct tar_more *m, bool global, const char *key, size_t key_len, struct err *e);
