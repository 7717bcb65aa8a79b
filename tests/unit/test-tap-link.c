/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "tap-link/tap-link.h"

struct pair {
	int a, b;
	int null;
};

static int setup(void **state)
{
	static struct pair p;

	*state = &p;
	p.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return p.null < 0 ? -1 : fd_socket_pair(SOCK_SEQPACKET, &p.a, &p.b);
}

static int teardown(void **state)
{
	struct pair *p = *state;

	p->a = fd_close(p->a);
	p->b = fd_close(p->b);
	p->null = fd_close(p->null);
	return 0;
}

static struct tap_message an_open(void)
{
	struct tap_message m = { .kind = TAP_OPEN,
				 .open = { .stream = 7,
					   .protocol = TAP_ONLY_TLS,
					   .port = 443,
					   .host = "api.example.com" } };

	m.open.n_early = 3;
	memcpy(m.open.early, "abc", 3);
	return m;
}

static size_t open_descriptors(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Sends the first `n` bytes of the message as they are; the receiver must reject them. */
static void rejects(struct pair *p, const struct tap_message *m, size_t n, size_t n_files)
{
	const int files[] = { p->null, p->null, p->null };
	const size_t before = open_descriptors();
	struct tap_message got;
	int fds[2];

	assert_int_equal(fd_pass(p->a, 0, m, n, files, n_files), 0);
	assert_int_equal(tap_receive(p->b, &got, fds), -EBADMSG);
	assert_int_equal(open_descriptors(), before);
}

TEST_WITH(a_stream_arrives_with_its_files_and_early_bytes, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message m = an_open(), got;
	int files[] = { p->null, p->a }, fds[2];

	assert_int_equal(tap_send(p->a, &m, files, 2), 0);
	assert_int_equal(tap_receive(p->b, &got, fds), 0);
	assert_int_equal(got.kind, TAP_OPEN);
	assert_true(got.open.stream == 7 && got.open.port == 443 && !got.open.is_addr);
	assert_int_equal(got.open.protocol, TAP_ONLY_TLS);
	assert_string_equal(got.open.host, "api.example.com");
	assert_int_equal(got.open.n_early, 3);
	assert_memory_equal(got.open.early, "abc", 3);
	assert_true(fds[0] >= 0 && fds[1] >= 0);
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	(void)fd_close(fds[0]);
	(void)fd_close(fds[1]);
}

TEST_WITH(the_most_early_bytes_arrive, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message m = an_open(), got;
	int files[] = { p->null, p->a }, fds[2];

	m.open.n_early = TAP_EARLY_MAX;
	m.open.early[TAP_EARLY_MAX - 1] = 'z';
	assert_int_equal(tap_send(p->a, &m, files, 2), 0);
	assert_int_equal(tap_receive(p->b, &got, fds), 0);
	assert_memory_equal(got.open.early, m.open.early, TAP_EARLY_MAX);
	(void)fd_close(fds[0]);
	(void)fd_close(fds[1]);
}

TEST_WITH(records_and_config_arrive, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message got, request = { .kind = TAP_REQUEST,
					    .request = { .stream = 1,
							 .result = TAP_DENIED,
							 .rule = 2,
							 .secret = -1,
							 .status = 403,
							 .reflected = true,
							 .method = "GET",
							 .path = "/v1",
							 .text = "why" } };
	struct tap_message end = { .kind = TAP_END,
				   .end = { .stream = 1, .result = TAP_TIME, .text = "slow" } };
	struct tap_message config = { .kind = TAP_CONFIG };
	int fds[2];

	assert_int_equal(tap_send(p->b, &request, NULL, 0), 0);
	assert_int_equal(tap_send(p->b, &end, NULL, 0), 0);
	assert_int_equal(tap_receive(p->a, &got, fds), 0);
	assert_true(got.request.rule == 2 && got.request.secret == -1 && got.request.reflected);
	assert_string_equal(got.request.path, "/v1");
	assert_true(fds[0] < 0 && fds[1] < 0);
	assert_int_equal(tap_receive(p->a, &got, fds), 0);
	assert_int_equal(got.end.result, TAP_TIME);
	assert_string_equal(got.end.text, "slow");
	assert_int_equal(tap_receive(p->a, &got, fds), -EAGAIN);
	assert_int_equal(tap_send(p->a, &config, &p->null, 1), 0);
	assert_int_equal(tap_receive(p->b, &got, fds), 0);
	assert_true(got.kind == TAP_CONFIG && fds[0] >= 0 && fds[1] < 0);
	(void)fd_close(fds[0]);
}

TEST_WITH(sizes_and_files_are_checked, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message m = an_open(), end = { .kind = TAP_END }, unknown = { .kind = 9 };
	struct tap_message config = { .kind = TAP_CONFIG };
	const size_t head = offsetof(struct tap_message, open),
		     early = head + offsetof(struct tap_open, early);

	rejects(p, &m, 1, 2);
	rejects(p, &m, head, 2);
	rejects(p, &m, early - 1, 2);
	rejects(p, &m, early + 2, 2);
	rejects(p, &m, early + 4, 2);
	rejects(p, &m, early + 3, 0);
	rejects(p, &m, early + 3, 1);
	rejects(p, &m, early + 3, 3);
	rejects(p, &end, head + sizeof(end.end), 1);
	rejects(p, &end, head + sizeof(end.end) - 1, 0);
	rejects(p, &config, head, 0);
	rejects(p, &config, head, 2);
	rejects(p, &config, head + 1, 1);
	rejects(p, &unknown, head, 0);
	m.open.n_early = UINT32_MAX;
	rejects(p, &m, early + 3, 2);
	m.open.n_early = TAP_EARLY_MAX + 1;
	rejects(p, &m, sizeof(m), 2);
}

TEST_WITH(values_are_checked, setup, teardown)
{
	struct pair *p = *state;
	const size_t head = offsetof(struct tap_message, open),
		     open_n = head + offsetof(struct tap_open, early) + 3,
		     request_n = head + sizeof(struct tap_request),
		     end_n = head + sizeof(struct tap_end);
	struct tap_message m = an_open(), end = { .kind = TAP_END }, r;
	const struct tap_message good = { .kind = TAP_REQUEST,
					  .request = { .rule = -1, .secret = -1 } };
	const uint8_t two = 2;

	m.open.port = 0;
	rejects(p, &m, open_n, 2);
	m = an_open();
	m.open.protocol = 0;
	rejects(p, &m, open_n, 2);
	m.open.protocol = TAP_PROTOCOLS;
	rejects(p, &m, open_n, 2);
	m = an_open();
	memset(m.open.host, 'a', sizeof(m.open.host));
	rejects(p, &m, open_n, 2);
	m.open.host[0] = '\0';
	rejects(p, &m, open_n, 2);
	m = an_open();
	memcpy(&m.open.is_addr, &two, 1);
	rejects(p, &m, open_n, 2);
	end.end.result = TAP_RESULTS;
	rejects(p, &end, end_n, 0);
	end.end.result = TAP_DONE;
	memset(end.end.text, 'a', sizeof(end.end.text));
	rejects(p, &end, end_n, 0);
	(void)(r = good, r.request.result = TAP_RESULTS);
	rejects(p, &r, request_n, 0);
	(void)(r = good, r.request.rule = -2);
	rejects(p, &r, request_n, 0);
	(void)(r = good, r.request.secret = TAP_SECRETS_MAX);
	rejects(p, &r, request_n, 0);
	(void)(r = good, r.request.status = 99);
	rejects(p, &r, request_n, 0);
	(void)(r = good, memcpy(&r.request.reflected, &two, 1));
	rejects(p, &r, request_n, 0);
	(void)(r = good, memset(r.request.method, 'a', sizeof(r.request.method)));
	rejects(p, &r, request_n, 0);
	(void)(r = good, memset(r.request.path, 'a', sizeof(r.request.path)));
	rejects(p, &r, request_n, 0);
	(void)(r = good, memset(r.request.text, 'a', sizeof(r.request.text)));
	rejects(p, &r, request_n, 0);
}

TEST_WITH(the_end_of_the_other_process_is_seen, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message got, end = { .kind = TAP_END };
	int fds[2];

	p->a = fd_close(p->a);
	assert_int_equal(tap_receive(p->b, &got, fds), -EPIPE);
	assert_int_equal(tap_send(p->b, &end, NULL, 0), -EPIPE);
}

TEST_WITH(a_full_socket_does_not_block, setup, teardown)
{
	struct pair *p = *state;
	struct tap_message end = { .kind = TAP_END };
	int r = 0;

	for (int i = 0; i < 100000 && r == 0; i++)
		r = tap_send(p->a, &end, NULL, 0);
	assert_int_equal(r, -EAGAIN);
}

TEST_WITH(every_result_has_a_text, setup, teardown)
{
	for (int i = 0; i < TAP_RESULTS; i++)
		assert_string_not_equal(tap_result_text(i), "unknown");
	assert_string_equal(tap_result_text(TAP_RESULTS), "unknown");
}
