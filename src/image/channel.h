/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a confined worker and its master, over a SOCK_SEQPACKET socket. Packets have one
 * fixed size, so there is nothing to parse. The master trusts no field: it terminates text, only
 * displays numbers, and opens files only by names that match a pattern.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "image/image.h"

enum channel_type {
	CHANNEL_GO = 1,	  /* to the worker: its ids are mapped */
	CHANNEL_OPEN,	  /* from it: open a file of the layout, named by `text` */
	CHANNEL_OPENED,	  /* to it: `num` 0 and a descriptor, or -errno */
	CHANNEL_PROGRESS, /* from it: phase and counts */
	CHANNEL_CONFIG,	  /* from it: `text` is a line of the image's configuration */
	CHANNEL_RESULT,	  /* from it, at the end: `num` and text, or counts and tree */
};

struct channel_msg {
	uint32_t type; /* enum channel_type */
	int32_t num;
	uint32_t phase; /* enum image_phase */
	uint32_t landlock;
	struct image_counts counts;
	struct tree_info tree;
	char text[IMAGE_TEXT_MAX];
};

/* 0 or -errno; -EAGAIN if `wait` is false and the other side is slow. `fd` may be -EBADF. */
int channel_send(int sock, const struct channel_msg *m, int fd, bool wait);

/* 0, -EPIPE if the other side has gone, -EBADMSG, or -errno. *ret_fd is -EBADF if none came. */
int channel_recv(int sock, struct channel_msg *ret, int *ret_fd);
