/* SPDX-License-Identifier: Apache-2.0 */
/* A link with its descriptor: the guest's link, and one for each client. */
#pragma once

#include "base/loop.h"
#include "wire/link.h"

enum {
	INPUT_MAX = 4 * (WIRE_HEADER + WIRE_PAYLOAD_MAX), /* whole DATA frames, read at once */
	OUTPUT_STOPS_INPUT = LINK_OUT_MAX / 2, /* one read's requests fit in the other half */
	CREDIT_STEP = WIRE_CREDIT_START / 4,   /* credit is returned in steps of this size */
	/* Limits on held bytes: of commands and, separately, of egress; of file operations; of
	 * connections to ports. */
	HELD_MAX = 64 * 1024 * 1024,
	HELD_FILES_MAX = 32 * 1024 * 1024,
	HELD_PORT_MAX = 32 * 1024 * 1024,
};

struct port {
	struct link *link;
	struct loop_fd src; /* while not in a loop, the caller moves the bytes */
};

/* Takes a non-blocking descriptor, or -EBADF. port_watch() adds it to a loop later. */
int port_init(struct port *p, enum link_role role, const struct link_ops *ops, void *arg, int fd,
	      void (*cb)(struct loop_fd *src, uint32_t events));
int port_watch(struct port *p, struct loop *loop);
void port_done(struct port *p);

/* Reads once and feeds the link. 0; -EPIPE at the end of input; or the link's error. */
int port_read(struct port *p, struct err *e);

/* Writes as much pending output as the descriptor takes. 0 or -errno. */
int port_flush(struct port *p);

/* Sets the events to wait for: output if any is pending, input if `input`. */
int port_want(struct port *p, bool input);

size_t port_waiting(const struct port *p);
