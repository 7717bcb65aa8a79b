/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of netlink(7) that sets up a network namespace: messages in a buffer of fixed size, sent
 * at once. All input is our own, so a message that does not fit is a bug.
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NETLINK_BATCH_MAX = 2048
};

struct netlink {
	int sock; /* -EBADF: none */
	uint32_t seq;
	size_t n, msg; /* bytes so far; start of the current message */
	_Alignas(8) uint8_t data[NETLINK_BATCH_MAX];
};

#define NETLINK_INIT           \
	{                      \
		.sock = -EBADF \
	}

/* `family` is NETLINK_ROUTE or NETLINK_NETFILTER, in the caller's network namespace. 0 or -errno.
 */
int netlink_open(struct netlink *nl, int family);
void netlink_done(struct netlink *nl);

/* Begins a message with its fixed header. `flags` without NLM_F_REQUEST. */
void netlink_begin(struct netlink *nl, uint16_t type, uint16_t flags, const void *head, size_t n);

void netlink_put(struct netlink *nl, uint16_t attr, const void *data, size_t n);
void netlink_put_text(struct netlink *nl, uint16_t attr, const char *text);
void netlink_put_be32(struct netlink *nl, uint16_t attr, uint32_t v);

/* Nested attributes: pass the result of netlink_nest() to netlink_nest_end(). */
size_t netlink_nest(struct netlink *nl, uint16_t attr);
void netlink_nest_end(struct netlink *nl, size_t nest);

/*
 * Sends all messages and reads the kernel's answers: 0, or the first error. At least one message
 * must have NLM_F_ACK.
 */
int netlink_send(struct netlink *nl);

#define _cleanup_netlink_ _cleanup_(netlink_done)
