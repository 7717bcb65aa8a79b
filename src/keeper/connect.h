/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest with its own kernel asks for. */
#pragma once

#include "egress/broker.h"
#include "wire/message.h"

struct keeper;

/* Is that a channel of the guest's own? The keeper's have even numbers. */
static inline bool guest_opened(uint32_t ch)
{
	return ch % 2 != 0;
}

/* What the link says about such channels. */
void connection_opened(struct keeper *k, uint32_t ch, enum wire_op op, const struct fields *f);
void connection_data(struct keeper *k, uint32_t ch, unsigned int stream, const void *data,
		     size_t n);
void connection_eof(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_credit(struct keeper *k, uint32_t ch, unsigned int stream);
void connection_closed(struct keeper *k, uint32_t ch, const struct fields *f);

/* What the broker says; its cookies are connections. */
void connection_reported(const struct broker_event *ev);
void connection_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason);

/* There is room in the guest's link again: reads on. */
void connections_wake(struct keeper *k);
void connections_sweep(struct keeper *k);

/* What is left of them when the broker has been freed. */
void connections_done(struct keeper *k);
