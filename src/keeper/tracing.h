/* SPDX-License-Identifier: Apache-2.0 */
/* Trace lines for clients. */
#pragma once

#include "base/loop.h"
#include "base/trace.h"

struct client;
struct keeper;

enum {
	TRACE_READERS_MAX = 8,
};

struct trace_reader {
	struct client *client;
	uint32_t ch;
	uint64_t lost; /* lines that found no room, since the last that did */
};

struct tracing {
	struct trace_reader readers[TRACE_READERS_MAX];
	size_t n;
	uint32_t guest_ch;   /* that the guest's lines come on; 0: none */
	struct loop_fd pipe; /* that the warden's come by */
	bool piped;
	struct trace_lines guest, warden;
	uint64_t window, guest_lost; /* of the guest: this second's beginning, and those dropped */
	unsigned int in_window;
};

void tracing_opened(struct client *c, uint32_t ch);
void tracing_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void tracing_hello(struct keeper *k);  /* HELLO is sent: during a start the guest is asked too */
void tracing_served(struct keeper *k); /* the start is over */
void tracing_done(struct keeper *k);

/* The guest's lines. False: not on their channel. */
bool tracing_guest_data(struct keeper *k, uint32_t ch, const void *data, size_t n);
void tracing_guest_closed(struct keeper *k, uint32_t ch);

/* The warden's answer: a pipe. Takes it if it returns true. */
bool tracing_warden(struct keeper *k, int fd);

/* The keeper ends: passes on what the warden has written so far. It says why before it kills, but
 * its pipe may have come together with the end of the guest. */
void tracing_last(struct keeper *k);
