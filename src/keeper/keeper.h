/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-keeper is two processes.
 *
 * The *warden* (main.c, start.c, wait.c, end.c) has the privileges of the process that started it.
 * It creates the sandbox, verifies the receipt, waits, kills and cleans up. It parses nothing from
 * the sandbox or from clients, only exit statuses and notes of fixed size.
 *
 * The *keeper* (serve.c, clients.c, relay.c, command.c) is the warden's child and has no
 * privileges: confine.c drops them before the keeper reads the first byte from the guest. It parses
 * everything: the frames of the guest and of the clients.
 */
#pragma once

#include "audit/audit.h"
#include "keeper/note.h"
#include "state/spec.h"

/* The keeper's inputs; the warden fills them in before fork(2). */
struct keeper_start {
	const struct spec *spec;
	const struct engine *engine;
	int guest;		   /* the keeper's end of the channel */
	int monitor;		   /* the keeper's end of the engine's monitor, or -EBADF */
	int listener;		   /* the listening socket for clients */
	struct audit_chain *chain; /* the sandbox's audit chain; NULL: nothing is recorded */
	int warden;		   /* SOCK_SEQPACKET: struct keeper_note, both ways */
	const char *ca;		   /* PEM certificate that the sandbox trusts; NULL or "": none */
	const char *no_freezer;	   /* why the sandbox cannot be paused, or "" */
	const char *no_snapshots;  /* why no snapshot can be made, or "" */
	uint32_t id;		   /* the user and group id to become */
	pid_t parent;		   /* the warden's pid; the keeper dies with it */
	bool guarded;		   /* a dial guard is in force; checked before serving */
};

/* How the keeper ended, as its exit status. */
enum keeper_end {
	KEEPER_ONCE = 0,    /* the only client of `hutch run` disconnected */
	KEEPER_IDLE = 10,   /* no command and no client for the idle time */
	KEEPER_GUEST_GONE,  /* the channel ended: the guest is dead */
	KEEPER_GUEST_BROKE, /* the guest broke the protocol */
	KEEPER_FAILED,	    /* internal failure: memory, confinement */
	KEEPER_DISK_FULL,   /* the VM stopped during its start: the host's disk is full */
	KEEPER_END_MAX,
};

/* Runs the keeper in the child: confines it, greets the guest, waits for "go", serves. Never
 * returns. */
_noreturn_ void keeper_run(const struct keeper_start *s);
