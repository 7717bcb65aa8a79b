/* SPDX-License-Identifier: Apache-2.0 */
#include "tap-peers.h"

#include <dirent.h>
#include <sys/stat.h>

#define SECRETS(value)                                                                         \
	"{\"secrets\": [{\"name\": \"KEY\", \"hosts\": [\"" HOST                               \
	"\"], \"paths\": [], \"form\": \"bearer\", \"header\": \"\", \"format\": \"\","        \
	" \"user\": \"\", \"parameter\": \"\", \"placeholder\": \"hutch_placeholder_1234\"}]," \
	" \"http\": [], \"values\": {\"KEY\": \"" value "\"}}"

/* ---- streams ---- */

TEST_TAP(a_request_goes_to_the_server_and_back)
{
	struct pair p;

	begin();
	p = open_tls();
	ask_and_answer(&p);
	ask_and_answer(&p);
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
	assert_int_equal(world.n_requests, 2);
	assert_int_equal(world.requests[0].result, TAP_DONE);
	assert_int_equal(world.requests[0].status, 200);
	assert_string_equal(world.requests[0].path, "/");
	wait_for(p.server->is_eof);
	assert_int_equal(world.n_finished, 1);
}

TEST_TAP(the_certificate_is_of_the_host)
{
	struct pair p;
	X509 *x;

	begin();
	p = open_tls();
	ask_and_answer(&p);
	x = SSL_get1_peer_certificate(p.client->ssl);
	assert_int_equal(X509_check_host(x, HOST, 0, 0, NULL), 1);
	assert_int_equal(X509_check_ca(x), 0);
	assert_non_null(X509_get0_authority_key_id(x));
	X509_free(x);
}

TEST_TAP(the_programs_connection_may_have_no_name)
{
	struct pair p;

	begin();
	p = open_with(client_ssl(NULL), server_ssl(), "");
	ask_and_answer(&p);
	assert_string_equal(SSL_get_servername(p.server->ssl, TLSEXT_NAMETYPE_host_name), HOST);
}

TEST_TAP(another_name_is_refused)
{
	struct pair p;

	begin();
	p = open_with(client_ssl("other.test.example"), server_ssl(), "");
	ends_as(&p, TAP_BAD_REQUEST, "SNI names another host");
	wait_for(p.client->is_eof);
	assert_int_equal(ERR_GET_REASON(p.client->error), SSL_R_TLSV1_UNRECOGNIZED_NAME);
	assert_int_equal(world.n_requests, 0);
}

/* ---- TLS ---- */

TEST_TAP(tls_1_2_works_on_both_sides_and_1_1_on_none)
{
	struct pair p;
	SSL *c = client_ssl(HOST), *s = server_ssl();

	begin();
	(void)SSL_set_max_proto_version(c, TLS1_2_VERSION);
	(void)SSL_set_max_proto_version(s, TLS1_2_VERSION);
	p = open_with(c, s, "");
	ask_and_answer(&p);
	c = client_ssl(HOST);
	SSL_set_security_level(c, 0);
	(void)SSL_set_min_proto_version(c, TLS1_1_VERSION);
	(void)SSL_set_max_proto_version(c, TLS1_1_VERSION);
	p = open_with(c, server_ssl(), "");
	ends_as(&p, TAP_CLIENT_TLS, "");
}

TEST_TAP(sessions_with_servers_are_resumed)
{
	struct pair p;

	begin();
	p = open_tls();
	ask_and_answer(&p);
	assert_false(SSL_session_reused(p.server->ssl));
	p = open_tls();
	ask_and_answer(&p);
	assert_true(SSL_session_reused(p.server->ssl));
}

TEST_TAP(plain_http_stays_plain)
{
	struct pair p;

	begin();
	p = open_with(NULL, NULL, "");
	ask_and_answer(&p);
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
}

TEST_TAP(bytes_that_the_keeper_has_read_come_first)
{
	struct pair p;

	begin();
	p = open_with(NULL, NULL, "GET /early HTTP/1.1\r\nHo");
	say(p.client, "st: " HOST "\r\n\r\n");
	wait_for(has(p.server, "\r\n\r\n"));
	assert_true(has(p.server, "GET /early HTTP/1.1\r\n"));
}

TEST_TAP(a_program_that_sends_nothing_is_no_fault)
{
	struct pair p;

	begin();
	p = open_tls();
	end_close(p.client);
	p = open_with(NULL, NULL, "");
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
}

/* ---- closing ---- */

TEST_TAP(a_program_may_end_its_direction_first)
{
	struct pair p;

	begin();
	p = open_tls();
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	(void)SSL_shutdown(p.client->ssl);
	(void)shutdown(p.client->fd, SHUT_WR);
	wait_for(has(p.server, "\r\n\r\n"));
	say(p.server, OK);
	wait_for(p.client->is_eof);
	assert_true(has(p.client, "hello") && p.client->is_clean);
	ends_as(&p, TAP_DONE, "");
}

#define UNTIL_CLOSE "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"

TEST_TAP(a_response_may_end_with_the_connection)
{
	struct pair p;

	begin();
	p = open_tls();
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(has(p.server, "\r\n\r\n"));
	say(p.server, UNTIL_CLOSE);
	(void)SSL_shutdown(p.server->ssl);
	end_close(p.server);
	wait_for(p.client->is_eof);
	assert_true(has(p.client, "hello") && p.client->is_clean);
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
}

TEST_TAP(a_cut_response_does_not_look_complete)
{
	struct pair p;

	begin();
	p = open_tls();
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(has(p.server, "\r\n\r\n"));
	say(p.server, UNTIL_CLOSE);
	end_close(p.server); /* without close_notify */
	wait_for(p.client->is_eof);
	assert_false(p.client->is_clean);
	ends_as(&p, TAP_SERVER_CLOSED, "without ending TLS");
	wait_for(world.n_requests == 1);
	assert_int_equal(world.requests[0].result, TAP_SERVER_CLOSED);
}

TEST_TAP(a_program_that_leaves_ends_its_stream)
{
	struct pair p;

	begin();
	p = open_tls();
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(has(p.server, "\r\n\r\n"));
	end_close(p.client);
	say(p.server, OK);
	wait_for(end_of(&p));
	wait_for(p.server->is_eof);
}

#define RULE(max_body)                                                                            \
	"{\"secrets\": [], \"values\": {}, \"http\": [{\"host\": \"" HOST                         \
	"\", \"methods\": [], \"paths\": [], \"max_body\": " max_body ", \"rate\": 0, \"deny\": " \
	"false, \"at\": \"\"}]}"
#define POST "POST / HTTP/1.1\r\nHost: " HOST "\r\nContent-Length: "

static struct pair open_as(bool tls)
{
	return tls ? open_tls() : open_with(NULL, NULL, "");
}

/* Without TLS, only the reset tells the server that something is missing. */
static void a_cut_request_is_reset(bool tls)
{
	struct pair whole = open_as(tls), cut = open_as(tls);

	say(whole.client, POST "5\r\n\r\nwhole");
	say(cut.client, POST "50\r\n\r\npart");
	wait_for(has(whole.server, "whole") && has(cut.server, "part"));
	say(whole.server, OK);
	wait_for(has(whole.client, "hello"));
	end_close(whole.client);
	end_close(cut.client);
	wait_for(whole.server->is_eof && cut.server->is_eof);
	assert_true(whole.server->is_clean && !whole.server->is_reset);
	assert_true(cut.server->is_reset && !cut.server->is_clean);
	wait_for(end_of(&cut));
	assert_int_equal(world.requests[world.n_requests - 1].result, TAP_CLIENT_CLOSED);
}

TEST_TAP(a_server_does_not_take_a_cut_request_as_whole)
{
	begin();
	a_cut_request_is_reset(true);
	a_cut_request_is_reset(false);
}

/* The request is refused in its middle: nothing of it follows, and the program has its reason. */
static void a_refused_body_is_reset(bool tls)
{
	struct pair p = open_as(tls);

	say(p.client, "POST / HTTP/1.1\r\nHost: " HOST "\r\nTransfer-Encoding: chunked\r\n\r\n"
		      "4\r\npart\r\n");
	wait_for(has(p.server, "part"));
	say(p.client, "6\r\nbeyond\r\n0\r\n\r\n");
	wait_for(p.client->is_eof);
	assert_true(p.client->is_clean && has(p.client, "HTTP/1.1 413 "));
	end_close(p.client);
	wait_for(p.server->is_eof);
	assert_true(p.server->is_reset);
	assert_false(has(p.server, "beyond"));
	assert_false(has(p.server, "\r\n0\r\n"));
}

TEST_TAP(a_body_over_the_limit_ends_in_a_reset)
{
	send_config(RULE("8"), world.root_cert);
	a_refused_body_is_reset(true);
	a_refused_body_is_reset(false);
}

/* A denied request has no part at the server, whose connection ends in order. */
TEST_TAP(a_refused_head_is_no_cut_request)
{
	struct pair p;

	send_config(RULE("8"), world.root_cert);
	p = open_tls();
	ask_and_answer(&p);
	buf_reset(&p.server->in);
	say(p.client, POST "9\r\n\r\n");
	wait_for(p.client->is_eof);
	assert_true(p.client->is_clean && has(p.client, "HTTP/1.1 413 "));
	end_close(p.client);
	wait_for(p.server->is_eof);
	assert_true(p.server->is_clean);
	assert_int_equal(p.server->in.len, 0);
}

TEST_TAP(large_bodies_pass_with_little_room)
{
	static char body[4 << 20];
	struct pair p;
	char head[64];

	begin();
	p = open_tls();
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(has(p.server, "\r\n\r\n"));
	memset(body, 'x', sizeof(body));
	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
		       sizeof(body));
	say(p.server, head);
	for (size_t sent = 0; sent < sizeof(body);) {
		struct end *v = p.server;

		v->n_out = MIN(sizeof(v->out), sizeof(body) - sent);
		memcpy(v->out, body + sent, v->n_out);
		sent += v->n_out;
		wait_for(v->n_out == 0);
	}
	wait_for(p.client->in.len >= sizeof(body));
	end_close(p.client);
	ends_as(&p, TAP_DONE, "");
}

/* ---- servers ---- */

static void server_is_refused(const char *why)
{
	struct pair p = open_tls();

	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(p.client->is_eof);
	assert_true(p.client->is_clean);
	assert_true(has(p.client, "HTTP/1.1 502 "));
	assert_true(has(p.client, "X-Hutch-Denied: certificate\r\n"));
	assert_true(has(p.client, why));
	end_close(p.client);
	ends_as(&p, TAP_SERVER_TRUST, why);
	assert_int_equal(world.requests[world.n_requests - 1].result, TAP_SERVER_TRUST);
	assert_int_equal(world.requests[world.n_requests - 1].status, 502);
	assert_int_equal(p.server->in.len, 0);
}

TEST_TAP(a_server_of_an_unknown_ca_is_refused)
{
	send_config(PLAIN_CONFIG, "");
	server_is_refused("set tap_roots in host.yaml");
}

static int setup_with_host_roots(void **state)
{
	world.host_roots = memfd_create("roots", MFD_CLOEXEC);
	return world.host_roots < 0 ? -1 : world_setup(state);
}

TEST_WITH(the_cas_of_the_host_are_trusted, setup_with_host_roots, world_teardown)
{
	struct pair p;

	send_config(PLAIN_CONFIG, "");
	for (int i = 0; i < 2; i++) {
		p = open_tls();
		ask_and_answer(&p);
	}
}

TEST_TAP(an_expired_certificate_is_refused)
{
	begin();
	use_cert(server_cert(HOST, -20, -10));
	server_is_refused("certificate has expired");
}

TEST_TAP(a_certificate_of_another_host_is_refused)
{
	begin();
	use_cert(server_cert("other.test.example", 0, 0));
	server_is_refused("hostname mismatch");
}

TEST_TAP(a_server_without_tls_is_reported)
{
	struct pair p;

	begin();
	p = open_with(client_ssl(HOST), NULL, "");
	say(p.server, "SSH-2.0-server\r\n");
	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(p.client->is_eof);
	assert_true(has(p.client, "HTTP/1.1 502 "));
	end_close(p.client);
	ends_as(&p, TAP_SERVER_TLS, "");
}

/* ---- programs that do not trust the CA ---- */

TEST_TAP(an_alert_about_the_ca_names_the_remedy)
{
	SSL_CTX *strict = SSL_CTX_new(TLS_client_method());
	struct pair p;
	SSL *s;

	begin();
	SSL_CTX_set_verify(strict, SSL_VERIFY_PEER, NULL);
	s = SSL_new(strict);
	SSL_set_connect_state(s);
	p = open_with(s, server_ssl(), "");
	ends_as(&p, TAP_CLIENT_TRUST, "NODE_EXTRA_CA_CERTS");
	end_close(p.client);
	SSL_CTX_free(strict);
}

TEST_TAP(closing_after_the_certificate_names_the_remedy)
{
	struct pair p;

	begin();
	p = open_with(client_ssl(HOST), server_ssl(), "");
	/* The ClientHello is sent. The client reads no answer. */
	assert_true(poll(&(struct pollfd){ p.client->fd, POLLIN, 0 }, 1, DEADLINE_S * 1000) > 0);
	end_close(p.client);
	ends_as(&p, TAP_CLIENT_TRUST, "closed the connection after our certificate");
}

/* ---- configuration ---- */

TEST_TAP(a_new_value_is_used_at_once)
{
	struct pair p;

	send_config(SECRETS("value-one"), world.root_cert);
	p = open_tls();
	ask_and_answer(&p);
	assert_true(has(p.server, "Bearer value-one\r\n"));
	send_config(SECRETS("value-two"), world.root_cert);
	/* The order of the two sockets is not fixed; a stream opened later is. */
	for (int i = 0; i < 1000 && !has(p.server, "value-two"); i++)
		ask_and_answer(&p);
	assert_true(has(p.server, "Bearer value-two\r\n"));
	assert_int_equal(world.requests[0].secret, 0);
}

TEST_TAP(a_rule_has_a_rate)
{
	struct pair p;

	send_config("{\"secrets\": [], \"values\": {}, \"http\": [{\"host\": \"" HOST
		    "\", \"methods\": [], \"paths\": [], \"max_body\": 0, \"rate\": 2, "
		    "\"deny\": false, \"at\": \"\"}]}",
		    world.root_cert);
	p = open_tls();
	ask_and_answer(&p);
	ask_and_answer(&p);
	buf_reset(&p.client->in);
	say(p.client, GET);
	wait_for(p.client->is_eof);
	assert_true(has(p.client, "HTTP/1.1 429 "));
	wait_for(world.n_requests == 3);
	assert_int_equal(world.requests[2].result, TAP_RATE);
}

static void exits_with(int code)
{
	int status = end_of_tap();

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
}

TEST_TAP(a_wrong_configuration_ends_the_process)
{
	send_text("{\"secrets\": []}");
	exits_with(1);
}

TEST_TAP(a_new_configuration_changes_nothing_but_values)
{
	send_config(SECRETS("value"), world.root_cert);
	send_config(PLAIN_CONFIG, world.root_cert);
	exits_with(1);
}

TEST_TAP(the_process_ends_with_the_warden)
{
	begin();
	world.warden = fd_close(world.warden);
	exits_with(0);
}

TEST_TAP(the_process_ends_with_the_keeper)
{
	begin();
	world.keeper = fd_close(world.keeper);
	exits_with(0);
}

TEST_TAP(an_invalid_message_ends_the_process)
{
	begin();
	assert_int_equal(send(world.keeper, "xxxx", 4, 0), 4);
	exits_with(1);
}

TEST_TAP(its_end_cuts_every_stream)
{
	struct pair p;

	begin();
	p = open_tls();
	ask_and_answer(&p);
	assert_int_equal(kill(world.pid, SIGKILL), 0);
	(void)end_of_tap();
	wait_for(p.client->is_eof && p.server->is_eof && world.is_gone);
	assert_false(p.client->is_clean);
}

/* ---- programs that leave ---- */

static struct pair in_request(void)
{
	struct pair p = open_tls();

	wait_for(p.client->is_shaken);
	say(p.client, GET);
	wait_for(has(p.server, "\r\n\r\n"));
	return p;
}

static void is_over(struct pair *p)
{
	wait_for(end_of(p) && p->server->is_eof);
	assert_int_equal(world.requests[world.n_requests - 1].result, TAP_CLIENT_CLOSED);
}

TEST_TAP(a_killed_program_ends_its_stream_although_the_server_is_silent)
{
	struct pair p, other;

	begin();
	other = open_tls();
	ask_and_answer(&other);
	p = in_request();
	end_close(p.client); /* without close_notify, as for a process that was killed */
	is_over(&p);
	ask_and_answer(&other);
}

/* After the end of its direction nothing is read from the program. */
TEST_TAP(a_program_may_leave_after_the_end_of_its_direction)
{
	struct pair p;

	begin();
	p = in_request();
	(void)SSL_shutdown(p.client->ssl);
	(void)shutdown(p.client->fd, SHUT_WR);
	say(p.server, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\npart");
	wait_for(has(p.client, "part"));
	end_close(p.client);
	is_over(&p);
}

/* While the next requests wait, the program is not read, so a reset does not show in a read. */
TEST_TAP(a_program_with_waiting_requests_may_leave)
{
	struct pair p;

	begin();
	p = in_request();
	say(p.server, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\npart");
	wait_for(has(p.client, "part"));
	for (int i = 0; i < 8; i++) {
		p.client->n_out = sizeof(p.client->out);
		memset(p.client->out, 'x', p.client->n_out);
		wait_for(p.client->n_out == 0);
	}
	end_close(p.client);
	is_over(&p);
}

TEST_TAP(a_request_of_a_program_that_left_still_arrives)
{
	struct pair p;

	begin();
	p = open_with(NULL, NULL, "");
	say(p.client, POST "5\r\n\r\nwhole");
	end_close(p.client);
	wait_for(p.server->is_eof);
	assert_true(has(p.server, "whole") && !p.server->is_reset);
	is_over(&p);
}

/* ---- no room ---- */

static int setup_with_few_files(void **state)
{
	world.files = 32 + 2 * 4; /* four streams */
	return world_setup(state);
}

TEST_WITH(a_program_sees_that_there_is_no_room, setup_with_few_files, world_teardown)
{
	struct pair p[4], more;

	begin();
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = open_tls();
		ask_and_answer(&p[i]);
	}
	more = open_tls();
	wait_for(more.client->is_eof);
	assert_int_equal(ERR_GET_REASON(more.client->error), SSL_R_TLSV1_ALERT_INTERNAL_ERROR);
	ends_as(&more, TAP_FAULT, "too many streams");
	more = open_with(NULL, NULL, "GET / HTTP/1.1\r\n");
	wait_for(more.client->is_eof);
	assert_true(more.client->is_clean && has(more.client, "HTTP/1.1 503 "));
	ends_as(&more, TAP_FAULT, "too many streams");
	for (size_t i = 0; i < ARRAY_SIZE(p); i++)
		ask_and_answer(&p[i]);
	end_close(p[0].client);
	ends_as(&p[0], TAP_DONE, "");
	more = open_tls();
	ask_and_answer(&more);
}

/* ---- many ---- */

TEST_TAP(a_thousand_streams_at_once)
{
	enum {
		N = 1000
	};
	static struct pair p[N];
	struct rlimit l;
	size_t done = 0;

	begin();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = l.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
	for (size_t i = 0; i < N; i++) {
		p[i] = open_tls();
		wait_for(p[i].client->is_shaken && p[i].server->is_shaken);
	}
	for (size_t i = 0; i < N; i++)
		say(p[i].client, GET);
	for (size_t i = 0; i < N; i++) {
		wait_for(has(p[i].server, "\r\n\r\n"));
		say(p[i].server, OK);
	}
	for (size_t i = 0; i < N; i++) {
		wait_for(has(p[i].client, "hello"));
		end_close(p[i].client);
		done++;
	}
	wait_for(world.n_finished == N);
	assert_int_equal(done, N);
	assert_int_equal(world.n_requests, N);
}

/* ---- the jail ---- */

static const char *status_line(const char *key, char *out, size_t n)
{
	char path[64], text[8192];
	ssize_t k;
	char *at;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)world.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	k = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	assert_true(k > 0);
	text[k] = '\0';
	at = strstr(text, key);
	assert_non_null(at);
	(void)snprintf(out, n, "%.*s", (int)strcspn(at, "\n"), at);
	return out;
}

static void status_is(const char *line)
{
	char text[256], key[32];

	(void)snprintf(key, sizeof(key), "\n%.*s", (int)strcspn(line, "\t"), line);
	(void)status_line(key + 1, text, sizeof(text));
	assert_string_equal(text, line);
}

static ino_t namespace(pid_t pid, const char *kind)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

TEST_TAP(it_is_confined)
{
	char path[64], text[128], uid[64];
	const struct dirent *entry;
	struct pair p;
	DIR *d;

	begin();
	p = open_tls();
	ask_and_answer(&p);
	status_is("Seccomp:\t2");
	status_is("NoNewPrivs:\t1");
	status_is("CapInh:\t0000000000000000");
	status_is("CapPrm:\t0000000000000000");
	status_is("CapEff:\t0000000000000000");
	status_is("CapAmb:\t0000000000000000");
	if (geteuid() != 0)
		return;
	status_is("CapBnd:\t0000000000000000");
	(void)snprintf(uid, sizeof(uid), "Uid:\t%d\t%d\t%d\t%d", TAP_UID, TAP_UID, TAP_UID,
		       TAP_UID);
	status_is(uid);
	assert_string_equal(status_line("Groups:", text, sizeof(text)), "Groups:\t ");
	assert_int_not_equal(namespace(world.pid, "net"), namespace(getpid(), "net"));
	assert_int_not_equal(namespace(world.pid, "mnt"), namespace(getpid(), "mnt"));
	assert_int_not_equal(namespace(world.pid, "ipc"), namespace(getpid(), "ipc"));
	(void)snprintf(path, sizeof(path), "/proc/%d/root", (int)world.pid);
	d = opendir(path);
	assert_non_null(d);
	while ((entry = readdir(d)))
		assert_true(entry->d_name[0] == '.');
	(void)closedir(d);
}
