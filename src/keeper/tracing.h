/* SPDX-License-Identifier: Apache-2.0 */
/* Trace lines for clients: tracing.c. */
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
	uint64_t lost; /* lines dropped since the last one sent */
};

struct tracing {
	struct trace_reader readers[TRACE_READERS_MAX];
	size_t n;
	uint32_t guest_ch;   /* the channel of the guest's lines; 0: none */
	struct loop_fd pipe; /* the pipe of the warden's lines */
	bool piped;
	struct trace_lines guest, warden;
	uint64_t window, guest_lost; /* this second's start, lines dropped in it */
	unsigned int in_window;
};

void tracing_opened(struct client *c, uint32_t ch);
void tracing_drop(const struct client *c, uint32_t ch); /* it closed `ch`; 0: it disconnected */
void tracing_hello(struct keeper *k);  /* HELLO was sent: a traced start asks the guest */
void tracing_served(struct keeper *k); /* the start is over */
void tracing_done(struct keeper *k);

/* The guest's lines came. False: not on the trace channel. */
bool tracing_guest_data(struct keeper *k, uint32_t ch, const void *data, size_t n);
void tracing_guest_closed(struct keeper *k, uint32_t ch);

/* The warden sent its pipe. Takes it if it returns true. */
bool tracing_warden(struct keeper *k, int fd);

/* The keeper ends: passes on the warden's last lines. The warden writes the reason before it
 * kills, but its pipe may arrive together with the guest's end. */
void tracing_last(struct keeper *k);
