/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-keeper is two processes.
 *
 * The *warden* (main.c, start.c, wait.c, end.c) has the rights of whoever started it. It makes the
 * sandbox, verifies the receipt, waits, kills and cleans up. It parses nothing that comes from the
 * sandbox or from a client: it knows exit statuses, and notes, which have a fixed size.
 *
 * The *keeper* (serve.c, clients.c, relay.c, command.c) is its child and has no rights at all:
 * confine.c takes them away before the first byte of the guest is read. It parses everything: the
 * guest's frames and those of the clients.
 */
#pragma once

#include "audit/audit.h"
#include "keeper/note.h"
#include "state/spec.h"

/* What the warden gives the keeper, across fork(2). */
struct keeper_start {
	const struct spec *spec;
	const struct engine *engine;
	int guest;		   /* the keeper's end of the channel */
	int monitor;		   /* the keeper's end of the engine's monitor, or -EBADF */
	int listener;		   /* the socket's */
	struct audit_chain *chain; /* the sandbox's; NULL: nothing is recorded */
	int warden;		   /* SOCK_SEQPACKET: struct keeper_note, both ways */
	const char *no_freezer;	   /* why it cannot be paused; "" */
	const char *no_snapshots;  /* why it cannot be saved; "" */
	uint32_t id;		   /* the user and group id to become */
	pid_t parent;		   /* the warden: the keeper dies with it */
	bool guarded; /* the kernel holds it to what it may dial: to be tried before it serves */
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
