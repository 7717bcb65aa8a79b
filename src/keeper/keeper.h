/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-keeper is two processes.
 *
 * The *warden* (main.c, warden.c, end.c) has the rights of whoever started it. It makes the
 * sandbox, verifies the receipt, waits, kills and cleans up. It parses nothing that comes from the
 * sandbox or from a client: it knows exit statuses, and one packet of a fixed size.
 *
 * The *keeper* (serve.c, clients.c, relay.c) is its child and has no rights at all: isolate.c takes
 * them away before the first byte of the guest is read. It parses everything: the guest's frames
 * and those of the clients.
 */
#pragma once

#include "err.h"
#include "spec.h"

/* What the warden gives the keeper, across fork(2). */
struct keeper_start {
	const struct spec *spec;
	int guest;    /* the keeper's end of the channel */
	int listener; /* the socket's */
	int client;   /* a client that is there already, or -EBADF */
	int warden;   /* SOCK_SEQPACKET: struct keeper_note out; a byte in means "go" */
	uint32_t id;  /* the user and group id to become */
	pid_t parent; /* the warden: the keeper dies with it */
};

/* Sent once, when the guest has said HELLO. */
struct keeper_note {
	uint32_t landlock; /* the version that the guest says is in force */
};

/* How the keeper ended, as its exit status. */
enum keeper_end {
	KEEPER_ONCE = 0,    /* the only client of `hutch run` has gone */
	KEEPER_IDLE = 10,   /* nothing ran and nobody was there for the idle time */
	KEEPER_GUEST_GONE,  /* the channel ended: the guest is dead */
	KEEPER_GUEST_BROKE, /* the guest broke the protocol */
	KEEPER_FAILED,	    /* our own trouble: memory, isolation */
	KEEPER_END_MAX,
};

/* The whole life of the keeper, in the child. Locks itself down, greets the guest, waits for "go",
 * serves. Never returns. */
_noreturn_ void keeper_run(const struct keeper_start *s);

/*
 * isolate.c. Takes away everything that serving does not need; stages at the top of the file. First
 * isolate_fds(): the descriptors named in `s`, and 2, are all that stay open. Then the keeper makes
 * its loop, for isolate() takes the right to. 0, or -errno: then the keeper must end without having
 * read anything.
 */
int isolate_fds(const struct keeper_start *s, struct err *e);
int isolate(const struct keeper_start *s, struct err *e);
