/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a warden that is nobody's child. A hutchd that is locked down can neither run newuidmap
 * nor make namespaces, and what it starts cannot either. So it connects to a socket of the service
 * manager (SOCK_SEQPACKET, $HUTCH_STARTER), which starts a hutch-keeper for each connection, with
 * the connection as its standard input. One packet hands over what a child would have inherited;
 * the answer is a pidfd. The lock on the state directory belongs to the open file description, and
 * so goes along.
 */
#pragma once

#include "err.h"

struct handover {
	int dir, report, log;
	int client; /* or -EBADF */
};

/* Hands over; the descriptors stay the caller's too, who owns *ret_pidfd. */
int handover_send(const char *path, const struct handover *h, int *ret_pidfd, struct err *e);

/* The other end: only from our own user. The caller owns what is in *ret. */
int handover_receive(int sock, struct handover *ret, struct err *e);
