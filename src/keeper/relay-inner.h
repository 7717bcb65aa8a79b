/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the relay*.c files only. */
#pragma once

#include "keeper/relay.h"
#include "state/record.h"

/* ---- relay.c: the two ends of a relay ---- */

/* The guest's end is closed. The client sees the code after all output. */
void relay_finish(struct relay *r, enum wire_code code, const char *text, size_t n);

/* Sends the exit message and the CLOSE once all output has been passed on. May put the relay
 * aside. */
void relay_settle(struct relay *r);

/* The exit message came: ends the record. */
void relay_exited(struct relay *r);

/* Closes both ends and drops held bytes. */
void relay_cut(struct relay *r, enum wire_code code, const char *text);

/* Both ends are closed. The relay is freed after the round, because a caller may still use it. */
void relay_put_aside(struct relay *r);

/* Frees its place in the budget before the relay itself is freed. */
void relay_leave(struct relay *r);

/* Passes on or holds bytes from one side. May put the relay aside. */
void relay_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n);

/* Passes on held bytes. True if any moved. May put the relay aside. */
bool relay_pump(struct relay *r, enum way way, unsigned int stream);

/* Disconnects the relay from its client. The command's output then goes only to the record. */
void relay_detach(struct relay *r);

/* Accepts the channel of `r` with the pid and record number of the command of `of`. */
void relay_accept_command(struct relay *r, const struct relay *of);

/* A view of a checked payload, to send it unchanged. */
static inline struct buf relay_raw(const struct fields *f)
{
	return (struct buf){ .data = (char *)f->data, .len = f->len, .max = f->len };
}

/* ---- relay-open.c: opening ---- */

/* Handles a client's request: creates a relay or refuses. */
void relay_open(struct client *c, uint32_t ch, enum wire_op op, const struct fields *f);

/* Prepares to take over an earlier keeper's command; relays_recordable() continues. 0 or -errno. */
int relay_adopt(struct keeper *k, const struct record_info *was);

/* ---- relay-time.c ---- */

/* Starts the time limit of a command. 0 or -errno. */
int relay_start_timer(struct relay *r);

/* ---- relay-port.c: connections to ports ---- */

/* True if one more connection fits; may close a quiet one for it. */
bool relay_port_room(struct keeper *k, bool public);

/* Starts the idle timer. 0 or -errno. */
int relay_port_begin(struct relay *r);

/* ---- relay-flow.c: streams ---- */

/* The kind, and so the budget, of an operation. */
enum relay_kind relay_kind(enum wire_op op);

/* True if the operation uses that stream; bytes on other streams are dropped. */
bool flow_is_used(enum wire_op op, enum way way, unsigned int stream);

/* Passes on or holds bytes from one side. False: no room, and the caller must cut the relay. */
bool flow_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n);
void flow_eof(struct relay *r, enum way way, unsigned int stream);

/* Passes on held bytes. True if any moved; call relay_settle() next. */
bool flow_pump(struct relay *r, enum way way, unsigned int stream);

/* `n` bytes were passed on or dropped: returns credit to their sender. */
void flow_credit(struct relay *r, enum way way, unsigned int stream, size_t n);

/* Returns credit for output that is not passed on. */
void flow_credit_back(struct relay *r, unsigned int stream, size_t n);

/* Drops held bytes. */
void flow_forget(struct relay *r, struct flow *f);
void flows_forget(struct relay *r, enum way way);
bool flows_empty(const struct relay *r, enum way way);

/* Input now comes from another client, or (channel 0) from none. Held bytes are still passed on. */
void flow_set_input(struct relay *r, struct client *c, uint32_t ch);
