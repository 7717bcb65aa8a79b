/* SPDX-License-Identifier: Apache-2.0 */
/* Egress requests of a guest with its own kernel: connect.c. */
#pragma once

#include "egress/broker.h"
#include "wire/message.h"

struct keeper;

/* True for a channel that the guest opened: these have odd numbers, the keeper's even ones. */
static inline bool guest_opened(uint32_t ch)
{
	return ch % 2 != 0;
}

/* Callbacks of the guest's link, for channels that the guest opened. */
void connection_opened(struct keeper *k, uint32_t ch, enum wire_op op, const struct fields *f);
void connection_data(struct keeper *k, uint32_t ch, unsigned int stream, const void *data,
		     size_t n);
void connection_eof(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_credit(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_closed(struct keeper *k, uint32_t ch, const struct fields *f);

/* Callbacks of the broker; its cookies are connections. */
void connection_reported(const struct broker_event *ev);
void connection_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason);

/* The guest's link has room again: resumes reading. */
void connections_wake(struct keeper *k);
void connections_sweep(struct keeper *k);

/* Call it after the broker was freed: closes all remaining connections. */
void connections_done(struct keeper *k);
