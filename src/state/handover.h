/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a warden through the service manager. A confined hutchd can neither run newuidmap nor make
 * namespaces, and neither can its children. So hutchd connects to a socket of the service manager
 * (SOCK_SEQPACKET, $HUTCH_STARTER), which starts a hutch-keeper for each connection, with the
 * connection as standard input. One packet passes the file descriptors that a child would have
 * inherited; the answer is a pidfd. The lock on the state directory belongs to the open file
 * description, so it is passed along.
 *
 * hutch-preparer, which makes the parts of a VM, is started in the same way ($HUTCH_PREPARER).
 */
#pragma once

#include "base/err.h"

struct handover {
	int dir, report, log;
	int client; /* or -EBADF */
};

/* Sends the descriptors, which the caller keeps too. The caller owns *ret_pidfd. */
int handover_send(const char *path, const struct handover *h, int *ret_pidfd, struct err *e);

/* Receives them, from the same user only. The caller owns the descriptors in *ret. */
int handover_receive(int sock, struct handover *ret, struct err *e);
