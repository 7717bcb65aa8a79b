/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in the Open Container Initiative layout: index, manifest, configuration, layers. Size and
 * SHA-256 of every blob are checked against its descriptor before the blob is used.
 */
#pragma once

#include "base/json-util.h"
#include "image/unpack.h"
#include "image/worker.h"

enum {
	OCI_JSON_MAX = 4 * 1024 * 1024,
	OCI_MANIFESTS_MAX = 1024,
};

/* Shared with image archives (archive.h). */
int oci_read_json(int fd, const char *what, json_t **ret, struct err *e);
/* Sends environment, user, directory and command; rejects images for another platform. */
int oci_send_config(struct worker *w, const json_t *config, struct err *e);
/* Checks that there are 1 to IMAGE_LAYERS_MAX layers, and a digest for each. */
int oci_check_layers(const json_t *layers, const json_t *ids, struct err *e);
/* Applies layer `i` on top of the layers before it; `diff_id`: digest of the unpacked layer. */
int oci_apply_layer(struct unpack *u, int fd, size_t i, const char *diff_id, struct err *e);

/* Unpacks the image `tag` (NULL: the only one) of the layout whose files the master opens. */
int oci_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e);
