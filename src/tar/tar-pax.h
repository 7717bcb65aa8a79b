/* SPDX-License-Identifier: Apache-2.0 */
/* Extended (pax) headers of tar: values for the next entry. */
#pragma once

#include "tar/tar.h"

/* Values from the extended headers before an entry. Each may occur once. */
struct tar_more {
	bool has_name, has_link, has_size, has_uid, has_gid, has_mtime;
	char name[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];
	size_t name_len, link_len;
	uint64_t size, uid, gid, mtime;
	unsigned int xattrs;
};

/* Reads one record KEY=VALUE of a pax header. `global`: the header applies to all entries. */
int pax_record(struct tar_more *m, bool global, const char *key, size_t key_len, const char *value,
	       size_t len, struct err *e);

/* Reads a record whose value is too long to buffer: 0 if the value can be ignored. */
int pax_skipped(struct tar_more *m, bool global, const char *key, size_t key_len, struct err *e);
