/* SPDX-License-Identifier: Apache-2.0 */
/* Passes file descriptors to another process over a SOCK_SEQPACKET socket. */
#pragma once

#include <stddef.h>

enum {
	FD_PASS_MAX = 8
};

/* Sends `n` bytes, at least one, with the `n_fds` descriptors; negative ones are left out. `flags`
 * as for send(2). 0 or -errno. */
int fd_pass(int sock, int flags, const void *data, size_t n, const int *fds, size_t n_fds);

/*
 * Receives one packet of exactly `n` bytes with at most `n_fds` descriptors, in order, CLOEXEC; the
 * rest of `fds` becomes -EBADF. The caller owns them. 0; -EPIPE if the peer has closed; -EBADMSG
 * for any other packet, whose descriptors are closed; -errno. `flags` as for recv(2).
 */
int fd_receive(int sock, int flags, void *data, size_t n, int *fds, size_t n_fds);

/* The same for a packet of 1 to `max` bytes; its length is *ret_n. */
int fd_receive_up_to(int sock, int flags, void *data, size_t max, size_t *ret_n, int *fds,
		     size_t n_fds);
