/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a stream: a socket, in plain or behind TLS. Nothing here blocks. conn_read() and
 * conn_write() move as many bytes as the socket allows; the caller watches conn_events().
 */
#pragma once

#include <openssl/bio.h>

#include "base/buf.h"
#include "base/loop.h"

enum {
	CONN_CHUNK = 96 * 1024, /* most bytes that one conn_write() takes */
};

struct conn {
	struct loop_fd src;
	int fd;
	SSL *ssl; /* NULL: plain */
	void *owner;
	struct buf early;   /* read before anything from the socket */
	struct buf pending; /* encrypted, but not yet sent */
	bool readable, writable;
	bool is_full;	 /* the last read filled its buffer: TLS may hold more */
	bool is_lost;	 /* the socket reported an error or a hang-up and is no longer watched */
	bool is_shaken;	 /* the handshake is complete; always true for plain */
	bool is_eof;	 /* no more bytes will come */
	bool is_cut;	 /* and TLS has not said so: bytes may be missing */
	bool is_shut;	 /* we have ended our direction */
	bool is_dead;	 /* writing failed */
	bool shows_cert; /* our certificate was sent */
	unsigned long error; /* OpenSSL's, of the failed handshake or read */
};

void conn_init(struct conn *c, int fd, void *owner);
void conn_done(struct conn *c); /* closes the socket */

/* Starts TLS on it; takes `ssl`. -ENOMEM. */
int conn_start_tls(struct conn *c, SSL *ssl, BIO_METHOD *method);
BIO_METHOD *conn_bio(void); /* for conn_start_tls(); freed by BIO_meth_free() */

/* 1 when complete, 0 if it continues, -EPROTO (c->error), -EPIPE (closed by the other side). */
int conn_shake(struct conn *c);

/* Reads up to `n` bytes: 0 with *ret_n; none and 0 means end of file (is_eof), or try again later.
 * -errno: the connection is broken. */
int conn_read(struct conn *c, char *data, size_t n, size_t *ret_n);

/* Takes up to CONN_CHUNK bytes, *ret_n of them. -EPIPE: the connection is broken. */
int conn_write(struct conn *c, const char *data, size_t n, size_t *ret_n);

/* Sends pending bytes. True if none is left. */
bool conn_flush(struct conn *c);

/* Ends our direction, after the pending bytes. */
void conn_shut(struct conn *c);
/* The next close resets the connection. */
void conn_reset_on_close(struct conn *c);

/* Is there something to read without waiting for the socket? */
bool conn_has_more(const struct conn *c);

/* Notes events of the loop, and what to watch for next. */
void conn_note(struct conn *c, uint32_t events);
int conn_watch(struct conn *c, struct loop *l, bool in, bool out);
