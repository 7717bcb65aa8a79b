/* SPDX-License-Identifier: Apache-2.0 */
/* Which ids of the host stand behind the user and group ids of an image. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"

/*
 * Used by root where /etc/subuid has no range for hutch or root. It lies behind the ranges that
 * systemd gives to containers (systemd's UIDS-GIDS).
 */
#define IDS_DEFAULT UINT32_C(0x70000000)

struct id_ranges {
	uint32_t uid, gid; /* the first of IMAGE_ID_RANGE */
};

/* For the user at hand: own subordinate ranges, for root those above. */
int ids_find(struct id_ranges *ret, struct err *e);

/* The first range of at least IMAGE_ID_RANGE that the text of /etc/subuid has for one of the names
 * (NULL-terminated). -ENOENT if there is none. Lines that make no sense are passed over. */
int ids_parse(const char *text, const char *const *names, uint32_t *ret);

/* Maps ids 0 to 65534 of the user namespace of process `pid` to the ranges. */
int ids_map(pid_t pid, const struct id_ranges *ids, struct err *e);
