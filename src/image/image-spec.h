/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an image: images/NAME.yaml with its capability presets, or the image "base" plus the
 * capabilities of an agent's policy. hutch-image(5) describes the file.
 */
#pragma once

#include "policy/policy.h"

enum image_variant {
	VARIANT_UNSET,
	VARIANT_EXTRACT,
	VARIANT_ESSENTIAL,
	VARIANT_APT,
	VARIANT_MINBASE,
	VARIANT_IMPORTANT,
	VARIANT_MAX,
};

extern const char *const variant_names[VARIANT_MAX + 1];

struct image_spec {
	/*
	 * First member, so that the readers of policy files, which find fields by offset, also fill
	 * in the rest of the struct. Only arena, capabilities and env are used.
	 */
	struct policy policy;
	const char *name, *summary;
	const char *suite, *user;
	unsigned int variant; /* enum image_variant */
	struct text_list mirrors;
	struct pair_list files;
	char digest[POLICY_DIGEST_HEX + 1]; /* canonical spec: same digest, same image */
};

/*
 * Reads `ref`: the name of an image or of an agent, or a file of either kind (anything with '/' or
 * ending in .yaml). -EINVAL (see d), -ENOENT, -EIO, -ENOMEM; as policy_compile().
 */
int image_spec_read(struct policy_store *store, const char *ref, struct diags *d,
		    struct image_spec **ret, struct err *e);

struct image_spec *image_spec_free(struct image_spec *s);

static inline void cleanup_image_spec(struct image_spec **s)
{
	(void)image_spec_free(*s);
}

#define _cleanup_image_spec_ _cleanup_(cleanup_image_spec)
