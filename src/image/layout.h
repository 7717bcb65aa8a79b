/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in the layout of the Open Container Initiative: index, manifest, configuration, layers.
 * Every blob has the size and SHA-256 that whoever named it said, before any of it is used.
 */
#pragma once

#include "unpack.h"
#include "worker.h"

enum {
	OCI_JSON_MAX = 4 * 1024 * 1024,
	OCI_MANIFESTS_MAX = 1024,
};

/* Unpacks the image `tag` (NULL: the only one) of the layout whose files the master opens. */
int oci_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e);
