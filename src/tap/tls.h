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

/* The peer of a connection. Lives as long as the connection. */
struct tls_peer {
	struct tls *tls;
	const char *host;
	uint16_t port;
	bool is_addr;
	char text[TAP_TEXT_MAX + 1]; /* why a handshake was refused; "": see OpenSSL's error */
	bool refuses_name;	     /* because of the name in the ClientHello */
};

/* Starts TLS towards the program, as `peer`'s host, or towards the server. -ENOMEM. */
int tls_accept(struct conn *c, struct tls_peer *peer);
int tls_connect(struct conn *c, struct tls_peer *peer);

/* The results of failed handshakes; `r` is that of conn_shake(). The texts go to peer->text. */
enum tap_result tls_client_failure(const struct conn *c, struct tls_peer *peer, int r);
enum tap_result tls_server_failure(const struct conn *c, struct tls_peer *peer, int r);

/* Has the program said that it does not trust our certificate? */
bool tls_is_distrust(unsigned long error);
