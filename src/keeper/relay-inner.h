/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a relay have in common, and nobody else needs. */
#pragma once

#include "keeper/relay.h"
#include "state/record.h"

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

/* What one side sent: goes on, or is held. May put the relay aside. */
void relay_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n);

/* Moves on what is held. True if something moved. May put the relay aside. */
bool relay_pump(struct relay *r, enum way way, unsigned int stream);

/* Takes the client away from it. What its command prints goes to the record alone. */
void relay_detach(struct relay *r);

/* Tells the client of `r` which command it has, which is that of `of`. */
void relay_accept_command(struct relay *r, const struct relay *of);

/* A view of a payload that was checked, to be sent as it came. */
static inline struct buf relay_raw(const struct fields *f)
{
	return (struct buf){ .data = (char *)f->data, .len = f->len, .max = f->len };
}

/* ---- relay-open.c: how it begins ---- */

/* What a client asks for: refused, or a relay. */
void relay_open(struct client *c, uint32_t ch, enum wire_op op, const struct fields *f);

/* Begins to take over a command that ran before: relays_recordable() goes on. 0 or -errno. */
int relay_adopt(struct keeper *k, const struct record_info *was);

/* ---- relay-time.c ---- */

/* The clock of a command runs from now on. 0 or -errno. */
int relay_start_timer(struct relay *r);

/* ---- relay-port.c: connections to ports ---- */

/* Whether there is room for one more; it may have been made. */
bool relay_port_room(struct keeper *k, bool public);

/* Its clock runs from now on. 0 or -errno. */
int relay_port_begin(struct relay *r);

/* ---- relay-flow.c: its streams ---- */

/* Of which budget an operation is. */
enum relay_kind relay_kind(enum wire_op op);

/* Whether it uses that stream; others are thrown away. */
bool flow_is_used(enum wire_op op, enum way way, unsigned int stream);

/* What one side sent: goes on, or is held. False: there is no room, and the relay is to be cut. */
bool flow_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n);
void flow_eof(struct relay *r, enum way way, unsigned int stream);

/* Moves on what is held. True if something moved; relay_settle() then comes next. */
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
