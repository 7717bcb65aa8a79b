/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a relay have in common, and nobody else needs. */
#pragma once

#include "record.h"
#include "relay.h"

enum {
	/* What may wait for a client that does not read, of messages, which have no credit. The
	 * rest of LINK_OUT_MAX is for what cannot be left out. */
	RELAY_MESSAGES_MAX = 4 * 1024 * 1024,
};
static_assert((int)RELAY_MESSAGES_MAX < (int)LINK_OUT_MAX, "a client is not lost by a listing");

/* ---- relay.c: its two ends ---- */

/* The guest's end is over. The client hears it after everything else. */
void relay_finish(struct relay *r, enum wire_code code, const char *text, size_t n);

/* What goes behind the output, once that has gone. May put the relay aside. */
void relay_settle(struct relay *r);

/* Ends a relay at both ends, without regard to what is held. */
void relay_cut(struct relay *r, enum wire_code code, const char *text);

/* Both ends are closed. Freed after the round: a caller may still look at it. */
void relay_put_aside(struct relay *r);

/* Its place in the budgets is free before it is cleared away. */
void relay_leave(struct relay *r);

/* Of which budget it is. */
enum relay_kind relay_kind(enum wire_op op);

/* What all of its kind may hold together, bytes. */
size_t relay_held_max(enum wire_op op);

/* ---- relay-open.c: how it begins ---- */

/* Tells the client of `r` which command it has, which is that of `of`. */
void relay_accept_command(struct relay *r, const struct relay *of);

/* Begins to take over a command that ran before: relays_recordable() goes on. 0 or -errno. */
int relay_adopt(struct keeper *k, const struct record_info *was);

/* ---- relay-port.c: connections to ports ---- */

/* Whether there is room for one more; it may have been made. */
bool relay_port_room(struct keeper *k, bool public);

/* Its clock runs from now on. 0 or -errno. */
int relay_port_begin(struct relay *r);

/* ---- relay-flow.c: its streams ---- */

/* What one side sent: goes on, or is held. May put the relay aside. */
void flow_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n);
void flow_eof(struct relay *r, enum way way, unsigned int stream);

/* Moves on what is held. True if something moved. May put the relay aside. */
bool flow_pump(struct relay *r, enum way way, unsigned int stream);

/* `n` bytes have gone on, or are thrown away: whoever sent them gets credit for them. */
void flow_credit(struct relay *r, enum way way, unsigned int stream, size_t n);

/* Throws away what is held. */
void flow_forget(struct relay *r, struct flow *f);
void flows_forget(struct relay *r, enum way way);
bool flows_empty(const struct relay *r, enum way way);

/* Input comes from somebody else from now on, or (a channel of 0) from nobody. What came before is
 * still passed on. */
void flow_set_input(struct relay *r, struct client *c, uint32_t ch);
