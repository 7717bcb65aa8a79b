/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: those that connect to the socket, and the one that is there from the beginning. */
#pragma once

#include "keeper/port.h"

struct keeper;

enum {
	CLIENTS_MAX = 64,
};

struct client {
	struct keeper *keeper;
	struct port port;
	struct loop_timer deadline; /* for its HELLO */
	bool first;		    /* the one that a sandbox with `once` is for */
	bool gone;		    /* to be cleared away */
	bool heard_out;		    /* nothing more can be read from it */
	struct client *prev, *next;
};

struct clients {
	struct client *list;
	size_t n;
	bool once;	/* the sandbox ends with its first client */
	bool had_first; /* this client has come */
	struct loop_fd listener;
	struct loop_timer accept_again;
};

int clients_listen(struct keeper *k);
struct client *client_new(struct keeper *k, int fd); /* takes fd; NULL: closed, no memory */
void clients_sweep(struct keeper *k);
void clients_done(struct keeper *k);
