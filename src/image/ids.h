/* SPDX-License-Identifier: Apache-2.0 */
/* Host ids to which the user and group ids of an image are mapped. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Used by root if /etc/subuid has no range for hutch or root. It lies above the ranges that systemd
 * assigns to containers (systemd's UIDS-GIDS).
 */
#define IDS_DEFAULT UINT32_C(0x70000000)

struct id_ranges {
	uint32_t uid, gid; /* first of IMAGE_ID_RANGE ids */
};

/* The current user's subordinate ranges, or for root those above. */
int ids_find(struct id_ranges *ret, struct err *e);

/* Finds the first range of at least IMAGE_ID_RANGE ids for one of the names (NULL-terminated) in
 * the text of /etc/subuid. -ENOENT if there is none. Invalid lines are ignored. */
int ids_parse(const char *text, const char *const *names, uint32_t *ret);

/* Maps ids 0 to 65534 of the user namespace of process `pid` to the ranges. */
int ids_map(pid_t pid, const struct id_ranges *ids, struct err *e);
