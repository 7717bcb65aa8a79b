/* SPDX-License-Identifier: Apache-2.0 */
/* TLS on both sides of a stream: certificates for the program, checks of the server's. */
#pragma once

#include "tap/ca.h"
#include "tap/config.h"
#include "tap/conn.h"

struct tls;

/* `store` has the CAs to trust. Takes both, also on failure. */
int tls_new(struct ca *ca, X509_STORE *store, struct tls **ret, struct err *e);
struct tls *tls_free(struct tls *t);

enum tls_protocol {
	TLS_UNDECIDED,
	TLS_HTTP1,
	TLS_HTTP2,
};

/* The peer of a connection. Lives as long as the connection. */
struct tls_peer {
	struct tls *tls;
	const char *host;
	uint16_t port;
	bool is_addr;
	char text[TAP_TEXT_MAX + 1]; /* why a handshake was refused; "": see OpenSSL's error */
	bool refuses_name;	     /* because of the name in the ClientHello */
	/* Protocols in the ClientHello of the program. */
	bool is_heard, offers_http1, offers_http2;
	enum tls_protocol protocol; /* for the program; set by tls_decide() */
};

/*
 * Starts TLS towards the program, as `peer`'s host, or towards the server, to which HTTP/2 is
 * offered if `http2`. -ENOMEM. The program's handshake stops at its ClientHello (is_heard) until
 * tls_decide() has set the protocol: of HTTP/2 and HTTP/1.1 the one that the server speaks, which
 * is NULL if it has failed.
 */
int tls_accept(struct conn *c, struct tls_peer *peer);
int tls_connect(struct conn *c, struct tls_peer *peer, bool http2);
void tls_decide(struct tls_peer *program, const struct conn *server);

/* The results of failed handshakes; `r` is that of conn_shake(). The texts go to peer->text. */
enum tap_result tls_client_failure(const struct conn *c, struct tls_peer *peer, int r);
enum tap_result tls_server_failure(const struct conn *c, struct tls_peer *peer, int r);

/* Has the program said that it does not trust our certificate? */
bool tls_is_distrust(unsigned long error);
