/* SPDX-License-Identifier: Apache-2.0 */
/* Limits, counts and tree metadata shared by this directory. */
#pragma once

#include <stdint.h>

#include "base/util.h"

#define IMAGE_ENTRIES_MAX UINT64_C(2000000)
#define IMAGE_BYTES_MAX	  (UINT64_C(64) << 30) /* unpacked, of all layers together */
#define IMAGE_RATIO_MAX	  UINT64_C(1000)       /* unpacked to packed */
#define IMAGE_RATIO_FROM  (UINT64_C(16) << 20) /* output allowed before the ratio counts */
#define IMAGE_TIME_MAX	  (UINT64_C(2) * 3600) /* seconds, for a build or import */

enum {
	IMAGE_LAYERS_MAX = 128,
	IMAGE_ID_RANGE = 65536, /* host ids to which a tree's ids are mapped */
	/* User and group ids that a tree can have: 0 to 65534. The last id of the range belongs to
	 * the keeper; see src/engine/oci.h. */
	IMAGE_ID_COUNT = IMAGE_ID_RANGE - 1,
	IMAGE_ENV_MAX = 256,
	IMAGE_ARGS_MAX = 256,  /* words in a command */
	IMAGE_TEXT_MAX = 4096, /* bytes of one variable, user, directory or command */
	IMAGE_DIGEST = 32,
	IMAGE_DIGEST_HEX = 64,
};

/* Counts of what was read and of what the rules dropped. */
struct image_counts {
	uint64_t entries, bytes;
	uint64_t devices; /* dropped: device nodes */
	uint64_t fifos;	  /* dropped: FIFOs */
	uint64_t setids;  /* set-user-ID and set-group-ID bits cleared */
	uint64_t xattrs;  /* dropped: extended attributes, among them file capabilities */
	uint64_t covered; /* dropped: files in /dev, /proc and /sys */
	uint64_t whiteouts;
};

/* A tree on disk. */
struct tree_info {
	uint8_t digest[IMAGE_DIGEST];
	uint64_t files, dirs, links, bytes;
};

enum image_phase {
	PHASE_START,
	PHASE_PACKAGES, /* mmdebstrap runs */
	PHASE_UNPACK,
	PHASE_VERIFY, /* blobs of a layout */
	PHASE_DIGEST,
	PHASE_KEEP,
	PHASE_MAX,
};

struct image_progress {
	enum image_phase phase;
	uint64_t seconds; /* since the start */
	uint64_t entries, bytes;
	const char *line; /* mmdebstrap's last line, or NULL */
};

/* Called a few times a second, and at once for a new phase or line. */
typedef void image_report_fn(void *arg, const struct image_progress *p);

struct image_reporter {
	image_report_fn *fn; /* may be NULL */
	void *arg;
};
