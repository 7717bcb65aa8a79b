/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of this directory share: limits, counts, and what is known of a tree. */
#pragma once

#include <stdint.h>

#include "util.h"

#define IMAGE_ENTRIES_MAX UINT64_C(2000000)
#define IMAGE_BYTES_MAX	  (UINT64_C(64) << 30) /* unpacked, of all layers together */
#define IMAGE_RATIO_MAX	  UINT64_C(1000)       /* unpacked to packed */
#define IMAGE_RATIO_FROM  (UINT64_C(16) << 20) /* what may come out before the ratio counts */
#define IMAGE_TIME_MAX	  (UINT64_C(2) * 3600) /* seconds, of a build or import */

enum {
	IMAGE_LAYERS_MAX = 128,
	IMAGE_ID_RANGE = 65536, /* ids of the host that stand behind those of a tree */
	/* User and group ids that a tree can have: 0 to 65534. The last of the range is the
	 * keeper's; see src/engine/oci.h. */
	IMAGE_ID_COUNT = IMAGE_ID_RANGE - 1,
	IMAGE_ENV_MAX = 256,
	IMAGE_ARGS_MAX = 256,  /* words of a command */
	IMAGE_TEXT_MAX = 4096, /* of one variable, user, directory or command */
	IMAGE_DIGEST = 32,
	IMAGE_DIGEST_HEX = 64,
};

/* What was read, and what the rules did about it. */
struct image_counts {
	uint64_t entries, bytes;
	uint64_t devices; /* dropped: device nodes */
	uint64_t fifos;	  /* dropped: FIFOs */
	uint64_t setids;  /* set-user-ID and set-group-ID bits cleared */
	uint64_t xattrs;  /* dropped: extended attributes, among them file capabilities */
	uint64_t covered; /* dropped: what lay in /dev, /proc and /sys */
	uint64_t whiteouts;
};

/* A tree as it is on disk. */
struct tree_info {
	uint8_t digest[IMAGE_DIGEST];
	uint64_t files, dirs, links, bytes;
};

enum image_phase {
	PHASE_START,
	PHASE_PACKAGES, /* mmdebstrap works */
	PHASE_UNPACK,
	PHASE_VERIFY, /* blobs of a layout */
	PHASE_DIGEST,
	PHASE_KEEP,
	PHASE_MAX,
};

struct image_progress {
	enum image_phase phase;
	uint64_t seconds; /* since the beginning */
	uint64_t entries, bytes;
	const char *line; /* mmdebstrap's last; NULL if there is none */
};

/* Called a few times a second, and at once for a new phase or line. */
typedef void image_report_fn(void *arg, const struct image_progress *p);

struct image_reporter {
	image_report_fn *fn; /* may be NULL */
	void *arg;
};
