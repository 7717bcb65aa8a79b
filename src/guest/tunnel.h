/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that moves bytes between a program's socket and its channel. Each direction has its own
 * file descriptor and ends on its own; when both have ended, the channel is closed.
 */
#pragma once

#include "guest/flow.h"

/* Must be the first member of the job that owns it. */
struct tunnel {
	struct job job;
	bool passes_resets; /* report a reset connection to the peer by WIRE_GONE */
	bool reset;	    /* by the program or by the peer; only with passes_resets */
	struct outflow out;
	struct inflow in;
};

/* No byte flows before tunnel_begin(). */
void tunnel_init(struct tunnel *t, bool passes_resets);

/* Takes *fd (non-blocking) on success. The caller wakes `out` when it wants bytes to flow. */
int tunnel_begin(struct tunnel *t, int *fd);

/* Closes both descriptors. */
void tunnel_done(struct tunnel *t);

/* For job_ops. */
void tunnel_data(struct job *j, unsigned int stream, const void *data, size_t n);
void tunnel_eof(struct job *j, unsigned int stream);
void tunnel_wake(struct job *j);
