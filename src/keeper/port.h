/* SPDX-License-Identifier: Apache-2.0 */
/* A link on a descriptor: the keeper's to its guest, and one to each client. */
#pragma once

#include "base/loop.h"
#include "wire/link.h"

enum {
	INPUT_MAX = 4 * (WIRE_HEADER + WIRE_PAYLOAD_MAX), /* read at once: whole frames of DATA */
	OUTPUT_STOPS_INPUT = LINK_OUT_MAX / 2, /* what one read asks for fits in the other half */
	CREDIT_STEP = WIRE_CREDIT_START / 4, /* given back at once, not for every line of output */
	/* Bytes on their way: of commands and of what goes out, of operations on files, of
	 * connections to ports, each together. */
	HELD_MAX = 64 * 1024 * 1024,
	HELD_FILES_MAX = 32 * 1024 * 1024,
	HELD_PORT_MAX = 32 * 1024 * 1024,
};

struct port {
	struct link *link;
	struct loop_fd src; /* not in a loop: the caller moves the bytes */
};

/* Takes a non-blocking descriptor, which may be -EBADF; watched later, by port_watch(). */
int port_init(struct port *p, enum link_role role, const struct link_ops *ops, void *arg, int fd,
	      void (*cb)(struct loop_fd *src, uint32_t events));
int port_watch(struct port *p, struct loop *loop);
void port_done(struct port *p);

/* Reads once and feeds the link. 0; -EPIPE when it has ended; or the link's error. */
int port_read(struct port *p, struct err *e);

/* Writes what waits, as far as it goes. 0 or -errno. */
int port_flush(struct port *p);

/* Asks the loop for what is of use now: to be written if something waits, to be read if `input`. */
int port_want(struct port *p, bool input);

size_t port_waiting(const struct port *p);
