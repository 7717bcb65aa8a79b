/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict, and the checks between it and the first byte. */
#include "test-broker.h"

#include "egress/check.h"
#include "egress/peek.h"

TEST_WITH(denied_names_are_not_looked_up, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	static const char *const rows[][2] = {
		{ "www.example.org:443", "" },
		{ "www.example.com:22", "" },
		{ "evil.example.com:443", "evil.example.com" },
		{ "10.0.0.1:443", "" },
	};
	size_t fds = fail_count_fds();

	desk_start(&d, &c, RULES("+.example.com:443", "-evil.example.com"));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = desk_open(&d, rows[i][0]);

		assert_int_equal(desk_last(&d)->what, BROKER_DENY);
		assert_int_equal(desk_last(&d)->reason, BROKER_RULES);
		assert_string_equal(desk_last(&d)->rule, rows[i][1]);
		world_expect_end(w, fd, -ECONNRESET);
		(void)fd_close(fd);
	}
	world_rest(w, 50);
	assert_int_equal(w->queries, 0);
	assert_int_equal(broker_budget(d.b)->streams, 0);
	(void)broker_free(d.b);
	assert_int_equal(fail_count_fds(), fds);
}

/* Opens `what` and sends the first bytes; the stream must end with a reset for that reason. */
static void refused(struct desk *d, const char *what, const void *first, size_t n,
		    enum broker_reason reason)
{
	int fd = desk_open(d, what);
	size_t ended = d->ended;

	if (n > 0)
		desk_put(fd, first, n);
	WORLD_UNTIL(d->w, d->ended > ended);
	if (desk_last(d)->reason != reason)
		fail_msg("%s: %s (%s)", what, broker_reason_text(desk_last(d)->reason),
			 desk_last(d)->detail);
	assert_int_equal(desk_last(d)->out, 0);
	world_expect_end(d->w, fd, -ECONNRESET);
	(void)fd_close(fd);
}

TEST_WITH(addresses_are_checked, world_setup, world_teardown)
{
	static const char *const names[] = { "private",	 "loopback", "metadata", "shared",
					     "embedded", "here",     "denied" };
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	int trap4 = world_listen("0.0.0.0", 22), trap6 = world_listen("::1", 22), fd;

	desk_start(&d, &c, RULES("+.example.com:22/tcp", "-93.184.66.0/24"));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char what[64];

		(void)snprintf(what, sizeof(what), "%s.example.com:22", names[i]);
		refused(&d, what, "", 0, BROKER_ADDRESS);
		print_message("# %s: %s\n", what, desk_last(&d)->detail);
	}
	refused(&d, "nx.example.com:22", "", 0, BROKER_LOOKUP);
	/* The broker dials only the good address of several: it is the first connection to
	 * arrive. */
	fd = desk_open(&d, "mixed.example.com:22");
	WORLD_UNTIL(w, ({
			    struct sockaddr_in at;
			    socklen_t n = sizeof(at);
			    int got = accept4(trap4, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
			    bool good = false;

			    if (got >= 0) {
				    assert_int_equal(getsockname(got, (struct sockaddr *)&at, &n),
						     0);
				    good = ntohl(at.sin_addr.s_addr) == 0x5db80001;
				    /* An address of this host is recognised only after the
				     * connect(). */
				    assert_true(good || ntohl(at.sin_addr.s_addr) == 0x5db90001);
				    (void)fd_close(got);
			    }
			    good;
		    }));
	assert_int_equal(accept4(trap6, NULL, NULL, SOCK_CLOEXEC), -1);
	(void)fd_close(fd);
	(void)broker_free(d.b);
	(void)fd_close(trap4);
	(void)fd_close(trap6);
}

static const char *resolved(const struct ruleset *none, const char *text, bool private)
{
	struct err e = ERR_INIT;
	struct addr a;

	assert_int_equal(addr_parse(text, strlen(text), &a, &e), 0);
	return check_resolved(none, &a, 443, private);
}

/* A rule with /private opens RFC 1918 and unique local addresses, and no other kind. */
TEST(private_addresses)
{
	static const char *const private[] = { "10.0.0.1",    "172.16.0.1", "172.31.255.255",
					       "192.168.1.1", "fd12::1",    "fc00::1" };
	static const char *const never[] = {
		"127.0.0.1",
		"127.1.2.3",
		"169.254.1.1",
		"169.254.169.254",
		"169.254.170.2",
		"100.64.0.1",
		"100.100.100.200",
		"168.63.129.16",
		"192.0.0.192",
		"224.0.0.1",
		"0.0.0.0",
		"240.0.0.1",
		"255.255.255.255",
		"198.18.0.1",
		"192.0.2.1",
		"::1",
		"::",
		"fe80::1",
		"ff02::1",
		"fd00:ec2::254",
		"fd20:ce::254",
		"::ffff:10.0.0.1",
		"64:ff9b::a00:1",
		"2002:a00:1::1",
	};
	struct err e = ERR_INIT;
	_cleanup_ruleset_ struct ruleset *none = NULL, *denies = NULL;
	struct ruleset_entry deny = { .deny = true };

	assert_int_equal(rule_parse("10.0.0.0/24", 11, &deny.rule, &e), 0);
	assert_int_equal(ruleset_new(NULL, 0, &none), 0);
	assert_int_equal(ruleset_new(&deny, 1, &denies), 0);
	for (size_t i = 0; i < ARRAY_SIZE(private); i++) {
		assert_string_equal(resolved(none, private[i], false), "private");
		assert_null(resolved(none, private[i], true));
	}
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		assert_non_null(resolved(none, never[i], true));
	assert_null(resolved(none, "172.32.0.1", false)); /* just outside is public */
	assert_non_null(resolved(denies, "10.0.0.1", true));
	assert_null(resolved(denies, "10.0.1.1", true));
}

/* The rule that allowed the stream decides, also after a change of rules. */
TEST_WITH(private_by_rule, world_setup, world_teardown)
{
	static const char *const still[] = { "loopback", "metadata", "shared", "embedded", "here" };
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);

	desk_start(&d, &c, RULES("+.example.com:22/tcp/private", "+private.example.com:23/tcp"));
	refused(&d, "private.example.com:23", "", 0, BROKER_ADDRESS);
	refused(&d, "private.example.com:22", "", 0, BROKER_DIAL);
	for (size_t i = 0; i < ARRAY_SIZE(still); i++) {
		char what[64];

		(void)snprintf(what, sizeof(what), "%s.example.com:22", still[i]);
		refused(&d, what, "", 0, BROKER_ADDRESS);
	}
	(void)broker_free(d.b);
}

TEST_WITH(literal_rules, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("127.0.0.1", 5432);
	struct broker_request req = { .target = { .is_addr = true, .port = 443 } };
	int fd, srv, fds[2];

	desk_start(&d, &c,
		   RULES("+127.0.0.1:5432", "+169.254.0.0/16:443", "+0.0.0.0/8:443",
			 "+[2001:db8::/32]:443", "+[ff00::/8]:443", "+db.example.com:5432"));
	fd = desk_open(&d, "127.0.0.1:5432");
	desk_put(fd, "\0\0\0\x08", 4);
	srv = world_accept(w, l);
	world_expect(w, srv, "\0\0\0\x08", 4);
	assert_int_equal(w->queries, 0);
	(void)fd_close(fd);
	(void)fd_close(srv);
	WORLD_UNTIL(w, d.ended == 1);
	assert_string_equal(desk_last(&d)->addr, "127.0.0.1");
	assert_string_equal(desk_last(&d)->rule, "127.0.0.1:5432");
	for (int i = 0; i < 3; i++) {
		static const struct addr never[] = {
			{ 4, 32, { 169, 254, 169, 254 } },
			{ 4, 32, { 0, 0, 0, 0 } },
			{ 6, 128, { 0xff, 0x02 } },
		};

		req.target.addr = never[i];
		world_pair(fds);
		req.fd = fds[1];
		broker_open(d.b, &req);
		assert_int_equal(desk_last(&d)->what, BROKER_DENY);
		assert_int_equal(desk_last(&d)->reason, BROKER_ADDRESS);
		(void)fd_close(fds[0]);
	}
	(void)broker_free(d.b);
}

TEST_WITH(tls_must_ask_for_the_name, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	_listening_ l2 = world_listen("93.184.0.1", 5000);
	uint8_t hello[2048];
	size_t n;
	int fd, srv;

	desk_start(&d, &c,
		   RULES("+.example.com:443", "+ech.example.com:5000/tls+ech",
			 "+www.example.com:5000"));
	n = desk_hello("evil.example.com", false, 1000, hello);
	refused(&d, "www.example.com:443", hello, n, BROKER_CONTENT);
	assert_string_equal(desk_last(&d)->detail, "asks for another name: evil.example.com");
	refused(&d, "www.example.com:5000", hello, n, BROKER_CONTENT);
	n = desk_hello(NULL, false, 1000, hello);
	refused(&d, "www.example.com:443", hello, n, BROKER_CONTENT);
	n = desk_hello("www.example.com", true, 1000, hello);
	refused(&d, "www.example.com:443", hello, n, BROKER_CONTENT);
	refused(&d, "www.example.com:443", "GET / HTTP/1.1\r\n\r\n", 18, BROKER_CONTENT);
	/* Nothing of this has reached the server. */
	for (int i = 0; i < 5; i++) {
		char byte;

		srv = accept4(i == 1 ? l2 : l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (srv >= 0)
			assert_true(recv(srv, &byte, 1, 0) <= 0);
		(void)fd_close(srv);
	}
	/* One byte per TLS record, one byte per segment. */
	n = desk_hello("WWW.example.com", false, 1, hello);
	fd = desk_open(&d, "www.example.com:443");
	for (size_t i = 0; i < n; i++) {
		desk_put(fd, hello + i, 1);
		world_rest(w, 0);
	}
	do
		srv = world_accept(w, l);
	while (recv(srv, &(char){ 0 }, 1, MSG_PEEK) == 0 && fd_close(srv));
	world_expect(w, srv, hello, n);
	(void)fd_close(fd);
	(void)fd_close(srv);
	n = desk_hello("ech.example.com", true, 100, hello);
	fd = desk_open(&d, "ech.example.com:5000");
	desk_put(fd, hello, n);
	srv = world_accept(w, l2);
	world_expect(w, srv, hello, n);
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(d.b);
}

TEST_WITH(http_must_ask_for_the_name, world_setup, world_teardown)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: www.example.com:81\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: www.example.com\r\nHost: www.example.com\r\n\r\n",
		"GET http://evil.com/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
		"CONNECT evil.com:443 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
		"GET / HTTP/1.1\nHost: www.example.com\n\n",
		"GET / HTTP/1.1\r\nX: y\r\n Host: z\r\nHost: www.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : www.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nX: \x0b\r\nHost: www.example.com\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"\r\nGET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: www.example.com.\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: www.example.com@evil.com\r\n\r\n",
	};
	static const char good[] =
		"GET /x HTTP/1.1\r\nAccept: */*\r\nhOsT:  WWW.example.com:80 \r\n\r\nbody";
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 80);
	_listening_ l2 = world_listen("93.184.0.1", 3000);
	int fd, srv;

	desk_start(&d, &c, RULES("+www.example.com:80", "+www.example.com:3000"));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refused(&d, "www.example.com:80", bad[i], strlen(bad[i]), BROKER_CONTENT);
		d.n_seen = 0;
		refused(&d, "www.example.com:3000", bad[i], strlen(bad[i]), BROKER_CONTENT);
		d.n_seen = 0;
	}
	refused(&d, "www.example.com:80", "GET /\0 HTTP/1.1\r\n", 17, BROKER_CONTENT);
	fd = desk_open(&d, "www.example.com:80");
	desk_put(fd, good, strlen(good));
	do
		srv = world_accept(w, l);
	while ((world_rest(w, 20), recv(srv, &(char){ 0 }, 1, MSG_PEEK) <= 0) && fd_close(srv));
	world_expect(w, srv, good, strlen(good));
	(void)fd_close(fd);
	(void)fd_close(srv);
	(void)broker_free(d.b);
}

TEST_WITH(server_may_speak_first, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 22);
	int fd, srv;

	desk_start(&d, &c, RULES("+git.example.com:22"));
	fd = desk_open(&d, "git.example.com:22");
	srv = world_accept(w, l);
	desk_put(srv, "SSH-2.0-x\r\n", 11);
	world_expect(w, fd, "SSH-2.0-x\r\n", 11);
	desk_put(fd, "SSH-2.0-y\r\n", 11);
	world_expect(w, srv, "SSH-2.0-y\r\n", 11);
	desk_put(fd, "\x16\x03GET / HTTP/1.1\r\n", 18); /* not the first bytes of the stream */
	world_expect(w, srv, "\x16\x03GET / HTTP/1.1\r\n", 18);
	(void)fd_close(fd);
	world_expect_end(w, srv, 0);
	(void)fd_close(srv);
	WORLD_UNTIL(w, d.ended == 1);
	assert_int_equal(desk_last(&d)->reason, BROKER_OK);
	assert_int_equal(desk_last(&d)->out, 29);
	assert_int_equal(desk_last(&d)->in, 11);
	assert_string_equal(desk_last(&d)->addr, "93.184.0.1");
	(void)broker_free(d.b);
}

TEST_WITH(proxies_are_answered, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct desk d = { 0 };
	struct broker_conf c = desk_conf(&d, w);
	_listening_ l = world_listen("93.184.0.1", 443);
	struct broker_request req = { .proxy = true };
	struct err e;
	uint8_t hello[2048];
	size_t n = desk_hello("www.example.com", false, 500, hello);
	int fds[2], srv;

	desk_start(&d, &c, RULES("+.example.com:443"));
	assert_int_equal(target_parse("www.example.com:443", 19, &req.target, &e), 0);
	world_pair(fds);
	req.fd = fds[1];
	req.early = hello;
	req.n_early = n;
	broker_open(d.b, &req);
	srv = world_accept(w, l);
	world_expect(w, fds[0], "200\n", 4);
	world_expect(w, srv, hello, n);
	(void)fd_close(fds[0]);
	(void)fd_close(srv);
	WORLD_UNTIL(w, d.ended == 1);
	assert_int_equal(desk_last(&d)->out, n);
	/* Refused by the rules, by the resolver, and for the first bytes. */
	for (int i = 0; i < 3; i++) {
		static const char *const what[] = { "x.org:443", "nx.example.com:443",
						    "api.example.com:443" };

		assert_int_equal(target_parse(what[i], strlen(what[i]), &req.target, &e), 0);
		world_pair(fds);
		req.fd = fds[1];
		req.n_early = i == 2 ? n : 0;
		broker_open(d.b, &req);
		world_expect(w, fds[0], "403\n", 4);
		world_expect_end(w, fds[0], 0);
		(void)fd_close(fds[0]);
	}
	assert_int_equal(d.replies, 4);
	(void)broker_free(d.b);
}
