/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: those that connect to the socket, and the first one, which the warden may pass on. */
#pragma once

#include "keeper/port.h"

struct keeper;

enum {
	CLIENTS_MAX = 64,
};

struct client {
	struct keeper *keeper;
	struct port port;
	struct loop_timer deadline; /* the client must send HELLO by then */
	bool first;		    /* with `once`, the sandbox ends with this client */
	bool gone;		    /* freed after the round */
	bool heard_out;		    /* its input has ended or failed */
	struct client *prev, *next;
};

struct clients {
	struct client *list;
	size_t n;
	bool once; /* the sandbox ends with its first client */
	bool had_first;
	struct loop_fd listener;
	struct loop_timer accept_again;
};

int clients_listen(struct keeper *k);
struct client *client_new(struct keeper *k, int fd); /* takes fd; NULL: no memory, fd closed */
void clients_sweep(struct keeper *k);
void clients_done(struct keeper *k);
