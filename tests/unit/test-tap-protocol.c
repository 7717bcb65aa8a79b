/* SPDX-License-Identifier: Apache-2.0 */
/* The protocols of a stream: HTTP/1.1 or HTTP/2, with or without TLS, and who begins. */
#include "tap-peers.h"

static const unsigned char h2_alone[] = "\x02h2", h2_or_1[] = "\x02h2\x08http/1.1";

static int choose(SSL *s, const unsigned char **ret, unsigned char *ret_n,
		  const unsigned char *offered, unsigned int n, void *arg)
{
	const unsigned char *const wanted = arg;

	/* hutch-tap offers HTTP/2 only if the program does. */
	if (!memmem(offered, n, wanted, (size_t)wanted[0] + 1))
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = wanted + 1;
	*ret_n = wanted[0];
	return SSL_TLSEXT_ERR_OK;
}

static struct pair open_offering(const unsigned char *offer, size_t n, const char *server)
{
	SSL *s = client_ssl(HOST);

	SSL_CTX_set_alpn_select_cb(world.server, server ? choose : NULL, (void *)(uintptr_t)server);
	assert_int_equal(SSL_set_alpn_protos(s, offer, (unsigned int)n), 0);
	return open_with(s, server_ssl(), "");
}

static void has_protocol(const struct end *p, const char *name)
{
	const unsigned char *chosen;
	unsigned int n;

	SSL_get0_alpn_selected(p->ssl, &chosen, &n);
	assert_int_equal(n, strlen(name));
	assert_memory_equal(chosen, name, n);
}

TEST_TAP(http_2_is_spoken_if_both_sides_do)
{
	struct pair p;

	begin();
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, "\x02h2");
	wait_for(p.client->is_shaken && has(p.server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
	has_protocol(p.client, "h2");
	has_protocol(p.server, "h2");
	p = open_offering(h2_alone, sizeof(h2_alone) - 1, "\x02h2");
	wait_for(p.client->is_shaken);
	has_protocol(p.client, "h2");
	/* The server decides, ... */
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, "\x08http/1.1");
	ask_and_answer(&p);
	has_protocol(p.client, "http/1.1");
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, NULL);
	ask_and_answer(&p);
	has_protocol(p.client, "http/1.1");
	/* ... among the offers of the program. */
	p = open_offering(h2_or_1 + 3, sizeof(h2_or_1) - 4, "\x08http/1.1");
	ask_and_answer(&p);
	has_protocol(p.client, "http/1.1");
	p = open_offering(h2_or_1 + 3, sizeof(h2_or_1) - 4, "\x02h2");
	say(p.client, GET);
	wait_for(has(p.client, "HTTP/1.1 502 "));
}

TEST_TAP(other_protocols_are_refused)
{
	static const unsigned char other[] = "\x03"
					     "foo";
	struct pair p;

	begin();
	p = open_offering(h2_alone, sizeof(h2_alone) - 1, "\x08http/1.1");
	ends_as(&p, TAP_CLIENT_TLS, "offers HTTP/2 alone");
	wait_for(p.client->is_eof);
	assert_int_equal(ERR_GET_REASON(p.client->error),
			 SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
	p = open_offering(other, sizeof(other) - 1, "\x08http/1.1");
	ends_as(&p, TAP_CLIENT_TLS, "offers neither http/1.1 nor h2");
}

/* The preface, empty SETTINGS, and GET https://HOST/ without Huffman codes. */
static void say_request_by_http_2(struct end *p)
{
	static const char head[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
				   "\0\0\0\x04\0\0\0\0\0"
				   "\0\0\0\x01\x05\0\0\0\x01\x82\x84\x87\x01";
	char text[sizeof(head) + sizeof(HOST) + 1];
	size_t n = sizeof(head) - 1;

	memcpy(text, head, n);
	text[n++] = sizeof(HOST) - 1;
	memcpy(text + n, HOST, sizeof(HOST) - 1);
	n += sizeof(HOST) - 1;
	text[sizeof(head) - 1 - 13 + 2] = (char)(4 + 1 + sizeof(HOST) - 1);
	say_bytes(p, text, n);
}

static bool has_text(const struct end *p, const char *text)
{
	return p->in.len > 0 && memmem(p->in.data, p->in.len, text, strlen(text));
}

/* A program that speaks HTTP/2 alone gets the reason by HTTP/2. */
TEST_TAP(a_refused_server_is_reported_by_http_2)
{
	struct pair p;

	send_config(PLAIN_CONFIG, "");
	p = open_offering(h2_alone, sizeof(h2_alone) - 1, "\x02h2");
	wait_for(p.client->is_shaken);
	has_protocol(p.client, "h2");
	say_request_by_http_2(p.client);
	wait_for(has_text(p.client, "hutch: the server's certificate"));
	wait_for(end_of(&p));
	assert_int_equal(end_of(&p)->result, TAP_SERVER_TRUST);
}

enum {
	HEADERS = 1,
	SETTINGS = 4,
	ACK = 1
};

/* Does a complete frame of this type and with these flags follow the preface? */
static bool has_frame_with(const struct end *p, uint8_t type, uint8_t flags)
{
	const uint8_t *data = (const uint8_t *)p->in.data;

	for (size_t at = STRLEN("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); at + 9 <= p->in.len;) {
		const size_t n = (size_t)data[at] << 16 | (size_t)data[at + 1] << 8 | data[at + 2];

		if (data[at + 3] == type && (data[at + 4] & flags) == flags)
			return at + 9 + n <= p->in.len;
		at += 9 + n;
	}
	return false;
}

static bool has_frame(const struct end *p, uint8_t type)
{
	return has_frame_with(p, type, 0);
}

/* The server never sends a byte after the handshake. */
TEST_TAP(a_request_by_http_2_does_not_wait_for_the_server)
{
	struct pair p;

	begin();
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, "\x02h2");
	wait_for(has_frame(p.server, SETTINGS) && p.client->in.len >= 9);
	assert_int_equal(p.client->in.data[3], SETTINGS);
	assert_false(has_frame(p.server, HEADERS));
	say_request_by_http_2(p.client);
	wait_for(has_frame(p.server, HEADERS));
}

/* Most servers send SETTINGS with the end of their handshake; a program may be slower. */
TEST_TAP(a_server_may_begin_http_2_before_the_program)
{
	static const char settings[] = "\0\0\0\x04\0\0\0\0\0";
	struct pair p;
	int fd;

	begin();
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, "\x02h2");
	fd = p.client->fd;
	p.client->fd = -EBADF; /* it does not read */
	wait_for(p.server->is_shaken);
	say_bytes(p.server, settings, sizeof(settings) - 1);
	wait_for(has_frame_with(p.server, SETTINGS, ACK));
	assert_null(end_of(&p));
	p.client->fd = fd;
	end_step(p.client);
	wait_for(p.client->is_shaken);
	say_request_by_http_2(p.client);
	wait_for(has_frame(p.server, HEADERS));
}

/* The end of the exchange leaves an acknowledgement that no server needs. */
TEST_TAP(a_connection_by_http_2_ends_with_the_programs_goaway)
{
	static const char settings[] = "\0\0\0\x04\0\0\0\0\0";
	static const char response[] = "\0\0\x01\x01\x05\0\0\0\x01\x88";
	static const char goaway[] = "\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
	struct pair p;

	begin();
	p = open_offering(h2_or_1, sizeof(h2_or_1) - 1, "\x02h2");
	wait_for(p.client->is_shaken);
	say_request_by_http_2(p.client);
	wait_for(has_frame(p.server, HEADERS));
	say_bytes(p.client, goaway, sizeof(goaway) - 1);
	/* In one record, so that hutch-tap has an ACK to send when the exchange ends. */
	memcpy(p.server->out, settings, sizeof(settings) - 1);
	memcpy(p.server->out + sizeof(settings) - 1, response, sizeof(response) - 1);
	p.server->n_out = sizeof(settings) + sizeof(response) - 2;
	end_step(p.server);
	wait_for(p.client->is_eof && p.client->is_clean && p.server->is_eof);
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
	assert_int_equal(world.n_requests, 1);
	assert_int_equal(world.requests[0].result, TAP_DONE);
}

static void is_refused_as_plain(struct pair *p)
{
	wait_for(p->client->is_eof);
	assert_true(p->client->is_clean && has(p->client, "HTTP/1.1 400 "));
	assert_true(has(p->client, "X-Hutch-Denied: request\r\n") && has(p->client, "use https"));
	ends_as(p, TAP_BAD_REQUEST, "the policy requires TLS on this port");
	wait_for(p->server->is_eof);
	assert_int_equal(p->server->in.len, 0);
}

TEST_TAP(the_policy_chooses_the_protocol)
{
	struct pair p;

	begin();
	p = open_for(TAP_ONLY_TLS, NULL, NULL, GET);
	is_refused_as_plain(&p);
	p = open_for(TAP_ONLY_TLS, NULL, NULL, "");
	say(p.client, GET);
	is_refused_as_plain(&p);
	p = open_for(TAP_ONLY_HTTP, client_ssl(HOST), server_ssl(), "");
	ends_as(&p, TAP_BAD_REQUEST, "the policy requires HTTP on this port");
	wait_for(p.client->is_eof && p.server->is_eof);
	assert_int_equal(ERR_GET_REASON(p.client->error), SSL_R_TLSV1_ALERT_ACCESS_DENIED);
	assert_int_equal(p.server->in.len, 0);
	assert_int_equal(world.n_requests, 0);
	/* The same bytes, where they are allowed. */
	p = open_for(TAP_ONLY_HTTP, NULL, NULL, "");
	ask_and_answer(&p);
	p = open_for(TAP_ONLY_TLS, client_ssl(HOST), server_ssl(), "");
	ask_and_answer(&p);
}

/* All at once, because this waits for the real time of a handshake. */
TEST_TAP(a_handshake_without_an_end_is_reported)
{
	const char why[] = "the server did not complete its TLS handshake";
	struct pair one, two, either, late, silent;
	SSL *s = client_ssl(HOST);

	begin();
	one = open_with(client_ssl(HOST), NULL, "");
	late = open_with(client_ssl(HOST), NULL, "");
	silent = open_with(NULL, server_ssl(), "");
	say_bytes(silent.client, "\x16", 1);
	assert_int_equal(SSL_set_alpn_protos(s, h2_alone, sizeof(h2_alone) - 1), 0);
	two = open_with(s, NULL, "");
	s = client_ssl(HOST);
	assert_int_equal(SSL_set_alpn_protos(s, h2_or_1, sizeof(h2_or_1) - 1), 0);
	either = open_with(s, NULL, "");
	wait_for(one.client->is_shaken && late.client->is_shaken);
	say(one.client, GET);
	wait_for(two.client->is_shaken && either.client->is_shaken);
	has_protocol(two.client, "h2");
	has_protocol(either.client, "http/1.1");
	say_request_by_http_2(two.client);
	say(either.client, GET);
	wait_for(has(one.client, "HTTP/1.1 504 ") && has(one.client, why));
	assert_true(has(one.client, "X-Hutch-Denied: time\r\n"));
	wait_for(has(either.client, "HTTP/1.1 504 ") && has(either.client, why));
	wait_for(has_text(two.client, why));
	ends_as(&silent, TAP_TIME, "the program did not complete its TLS handshake");
	/* A program may send its request after that time, too. */
	assert_null(end_of(&late));
	say(late.client, GET);
	wait_for(has(late.client, "HTTP/1.1 504 ") && has(late.client, why));
	ends_as(&one, TAP_TIME, why);
	ends_as(&two, TAP_TIME, why);
	ends_as(&either, TAP_TIME, why);
	ends_as(&late, TAP_TIME, why);
	for (size_t i = 0; i < world.n_requests; i++)
		assert_true(world.requests[i].result == TAP_TIME &&
			    world.requests[i].status == 504);
	assert_int_equal(world.n_requests, 4);
}
