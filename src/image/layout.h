/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images in the layout of the Open Container Initiative: index, manifest, configuration, layers.
 * Every blob has the size and SHA-256 that whoever named it said, before any of it is used.
 */
#pragma once

#include "json-util.h"
#include "unpack.h"
#include "worker.h"

enum {
	OCI_JSON_MAX = 4 * 1024 * 1024,
	OCI_MANIFESTS_MAX = 1024,
};

/* What archives of images (archive.h) have in common with layouts. */
int oci_read_json(int fd, const char *what, json_t **ret, struct err *e);
/* Sends environment, user, directory and command; refuses an image of another machine. */
int oci_send_config(struct worker *w, const json_t *config, struct err *e);
/* Are there 1 to IMAGE_LAYERS_MAX layers, and as many digests of them? */
int oci_check_layers(const json_t *layers, const json_t *ids, struct err *e);
/* The i-th layer over those before it; `diff_id`: the digest of what it unpacks to. */
int oci_apply_layer(struct unpack *u, int fd, size_t i, const char *diff_id, struct err *e);

/* Unpacks the image `tag` (NULL: the only one) of the layout whose files the master opens. */
int oci_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e);
