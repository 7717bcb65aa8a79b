/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of hutchd to a keeper about commands; the test plays the keeper. */
#include "test-api.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "envd/process.h"
#include "state/record.h"

enum {
	PID = 77,
	NUMBER = 3,
	DEEP = 400 * 1024, /* input that exceeds the credit */
};

static struct box box;
static struct unit_dir *dir;

/* ---- the keeper ---- */

static struct {
	struct link *link;
	struct loop_fd socket;
	uint32_t ch;
	enum wire_op op;
	unsigned int opened, eofs, closed, signal, cols, rows;
	char fields[4096];
	size_t n_fields;
	size_t bytes;
	char data[64];
	bool reads; /* gives credit back */
} keeper;

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_AGENT, "test");
	assert_int_equal(link_hello(l, &b), 0);
}

static void on_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		      void *arg)
{
	keeper.ch = ch;
	keeper.op = op;
	keeper.opened++;
	assert_true(f->len <= sizeof(keeper.fields));
	memcpy(keeper.fields, f->data, f->len);
	keeper.n_fields = f->len;
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	assert_int_equal(stream, 0);
	if (keeper.bytes + n < sizeof(keeper.data))
		memcpy(keeper.data + keeper.bytes, data, n);
	keeper.bytes += n;
	if (keeper.reads)
		assert_int_equal(link_consumed(l, ch, stream, n), 0);
}

static void on_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	keeper.eofs++;
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	keeper.signal = (unsigned int)fields_number(f, TAG_NUMBER, 0);
	keeper.cols = (unsigned int)fields_number(f, TAG_COLUMNS, 0);
	keeper.rows = (unsigned int)fields_number(f, TAG_ROWS, 0);
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	keeper.closed++;
}

static const struct link_ops ops = {
	.hello = on_hello,
	.opened = on_opened,
	.data = on_data,
	.eof = on_eof,
	.msg = on_msg,
	.closed = on_closed,
};

static void keeper_flush(void)
{
	const void *data;
	size_t n;

	while (data = link_pending(keeper.link, &n), n > 0) {
		ssize_t k = send(keeper.socket.fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k <= 0)
			break;
		link_wrote(keeper.link, (size_t)k);
	}
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	char chunk[65536];
	struct err e = ERR_INIT;
	ssize_t n = recv(src->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

	if (n > 0)
		assert_int_equal(link_feed(keeper.link, chunk, (size_t)n, &e), 0);
	keeper_flush();
}

/* Runs until nothing is pending. */
static void settle(void)
{
	for (int i = 0; i < 50; i++) {
		keeper_flush();
		assert_int_equal(loop_once(config.loop, 0), 0);
	}
}

static void keeper_accepts(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_PID, PID);
	fields_put_number(&b, TAG_RECORD, NUMBER);
	assert_int_equal(link_accept(keeper.link, keeper.ch, &b), 0);
	settle();
}

static void keeper_closes(enum wire_code code, const char *text)
{
	assert_int_equal(link_close(keeper.link, keeper.ch, code, text), 0);
	settle();
}

static struct fields asked(enum wire_message m)
{
	struct fields f = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(fields_parse(m, keeper.fields, keeper.n_fields, &f, &e), 0);
	return f;
}

/* ---- the record of the command ---- */

static void write_record(void)
{
	struct record_head head = { .flags = RECORD_INPUT, .start = clock_wall(), .shown = 4 };
	struct record r = { .number = NUMBER };
	char name[RECORD_FILE_NAME];

	memcpy(head.argv, "cat", 4);
	record_file_name(NUMBER, name);
	r.fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(r.fd >= 0);
	record_begin(&r, &head);
	r.slot.state = RECORD_RUNNING;
	r.slot.pid = PID;
	r.dirty = true;
	assert_int_equal(record_publish(&r), 0);
	(void)fd_close(r.fd);
}

/* ---- the client ---- */

static void call(const char *method, const char *type, const char *body, size_t n)
{
	const struct route *row = envd_process_routes;
	struct request *r = ask(type);

	client.body = body;
	client.n_body = n;
	client.fields[1][0] = "connect-timeout-ms";
	client.fields[1][1] = "5000";
	client.fields[2][0] = "authorization";
	client.fields[2][1] = "Basic cm9vdDo=";
	request_join(r, &box);
	while (!str_has_suffix(row->path, method))
		row++;
	row->handle(r);
	settle();
}

static void unary(const char *method, const char *body)
{
	call(method, "application/json", body, strlen(body));
}

static void start(const char *body)
{
	static char envelope[4096];

	envelope[3] = (char)(strlen(body) >> 8);
	envelope[4] = (char)strlen(body);
	memcpy(envelope + 5, body, strlen(body));
	call("/Start", "application/connect+json", envelope, 5 + strlen(body));
}

#define CAT                                                                                 \
	"{\"process\":{\"cmd\":\"cat\",\"args\":[\"-\"],\"envs\":{\"A\":\"b\"},\"cwd\":\"/" \
	"tmp\"},\"tag\":\"x\"}"

static void expect_text(struct fields *f, enum wire_tag tag, size_t *pos, const char *text)
{
	const char *value;
	size_t n;

	assert_true(fields_next(f, tag, pos, &value, &n));
	assert_int_equal(n, strlen(text));
	assert_memory_equal(value, text, n);
}

/* ---- set up ---- */

static void on_peer_ended(struct peer *p, void *arg)
{
	box.peer = peer_free(p);
}

static int setup(void **state)
{
	struct err e = ERR_INIT;
	int pair[2];

	memset(&keeper, 0, sizeof(keeper));
	if (unit_dir_setup((void **)&dir) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
	    link_new(LINK_GUEST, &ops, NULL, &keeper.link) < 0)
		return -1;
	link_with_client(keeper.link);
	keeper.socket = (struct loop_fd){ .cb = on_socket };
	box = (struct box){ .api = &api, .sandbox = { .dir = dir->fd } };
	if (loop_add_fd(config.loop, &keeper.socket, pair[0], EPOLLIN) < 0)
		return -1;
	return peer_new(config.loop, pair[1], on_peer_ended, NULL, &box.peer, &e);
}

static int teardown(void **state)
{
	leave_client();
	commands_drop(&box);
	box.peer = peer_free(box.peer);
	loop_del_fd(&keeper.socket);
	(void)fd_close(keeper.socket.fd);
	keeper.link = link_free(keeper.link);
	return unit_dir_teardown((void **)&dir);
}

/* ---- tests ---- */

TEST_WITH(test_what_is_asked_for, setup, teardown)
{
	struct fields f;
	size_t pos = 0;

	start(CAT);
	assert_int_equal(keeper.op, WIRE_OP_EXEC);
	f = asked(MESSAGE_EXEC_CLIENT);
	expect_text(&f, TAG_ARGV, &pos, "cat");
	expect_text(&f, TAG_ARGV, &pos, "-");
	pos = 0;
	expect_text(&f, TAG_ENV, &pos, "E2B_SANDBOX=true");
	expect_text(&f, TAG_ENV, &pos, "A=b");
	pos = 0;
	expect_text(&f, TAG_CWD, &pos, "/tmp");
	pos = 0;
	expect_text(&f, TAG_USER, &pos, "root");
	pos = 0;
	expect_text(&f, TAG_NAME, &pos, "x");
	assert_true(fields_has(&f, TAG_STDIN) && fields_has(&f, TAG_DETACH));
	assert_false(fields_has(&f, TAG_COLUMNS));
	assert_int_equal(fields_number(&f, TAG_TIMEOUT, 0), 5000);
	assert_int_equal(client.status, 0);
	leave_client();
	start("{\"process\":{\"cmd\":\"x\",\"envs\":{\"E2B_SANDBOX\":\"no\"}},\"stdin\":false}");
	f = asked(MESSAGE_EXEC_CLIENT);
	pos = 0;
	expect_text(&f, TAG_ENV, &pos, "E2B_SANDBOX=no");
	assert_false(fields_has(&f, TAG_STDIN));
	leave_client();
	start("{\"process\":{\"cmd\":\"x\"},\"pty\":{\"size\":{\"cols\":100}}}");
	f = asked(MESSAGE_EXEC_CLIENT);
	assert_int_equal(fields_number(&f, TAG_COLUMNS, 0), 100);
	assert_int_equal(fields_number(&f, TAG_ROWS, 0), 24);
}

/* One call for all requests to a command, from its start to its end. */
TEST_WITH(test_one_line, setup, teardown)
{
	write_record();
	start(CAT);
	keeper_accepts();
	assert_int_equal(client.status, 200);
	assert_true(client.begun);
	leave_client();
	unary("/SendInput", "{\"process\":{\"pid\":77},\"input\":{\"stdin\":\"eHk\"}}");
	assert_string_equal(buf_text(&client.out), "{}");
	unary("/SendInput", "{\"process\":{\"tag\":\"x\"},\"input\":{\"stdin\":\"eg==\"}}");
	assert_memory_equal(keeper.data, "xyz", 3);
	unary("/SendSignal", "{\"process\":{\"pid\":77},\"signal\":\"SIGNAL_SIGTERM\"}");
	assert_int_equal(keeper.signal, 15);
	unary("/Update", "{\"process\":{\"pid\":77},\"pty\":{\"size\":{\"cols\":9,\"rows\":8}}}");
	assert_true(keeper.cols == 9 && keeper.rows == 8);
	unary("/CloseStdin", "{\"process\":{\"pid\":77}}");
	assert_int_equal(client.status, 200);
	assert_int_equal(keeper.eofs, 1);
	unary("/SendInput", "{\"process\":{\"pid\":77},\"input\":{\"stdin\":\"eHk\"}}");
	assert_int_equal(client.status, 500);
	unary("/List", "{}");
	assert_non_null(strstr(buf_text(&client.out), "\"pid\":77"));
	assert_int_equal(keeper.opened, 1);
	keeper_closes(WIRE_DONE, NULL);
	unary("/SendSignal", "{\"process\":{\"tag\":\"x\"},\"signal\":\"SIGNAL_SIGKILL\"}");
	assert_int_equal(client.status, 404);
}

TEST_WITH(test_not_started, setup, teardown)
{
	static const struct {
		enum wire_code code;
		int status;
		const char *text;
	} all[] = {
		{ WIRE_NO_USER, 401, "{\"code\":\"unauthenticated\",\"message\":\"why\"}" },
		{ WIRE_NOT_DIRECTORY, 200,
		  "\"invalid_argument\",\"message\":\"cwd '/tmp' does not exist: why" },
		{ WIRE_NOT_FOUND, 200, "\"not_found\",\"message\":\"why\"" },
		{ WIRE_EXISTS, 200, "\"already_exists\"" },
		{ WIRE_TOO_MANY, 200, "\"resource_exhausted\"" },
		{ WIRE_GONE, 502, "The sandbox was not found" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		start(CAT);
		keeper_closes(all[i].code, "why");
		assert_int_equal(client.status, all[i].status);
		assert_non_null(
			memmem(client.out.data, client.out.len, all[i].text, strlen(all[i].text)));
		assert_null(box.commands->lines);
	}
}

/* A client that disconnects before the answer leaves the command to others. */
TEST_WITH(test_the_client_goes_first, setup, teardown)
{
	write_record();
	start(CAT);
	leave_client();
	assert_null(box.commands->lines->starter);
	unary("/SendInput", "{\"process\":{\"tag\":\"x\"},\"input\":{\"stdin\":\"eHk\"}}");
	assert_int_equal(client.status, 0); /* waits for the answer */
	keeper_accepts();
	assert_int_equal(client.status, 200);
	assert_int_equal(keeper.closed, 0);
}

/* A command that another client started. */
TEST_WITH(test_attach, setup, teardown)
{
	struct fields f;

	write_record();
	unary("/SendInput", "{\"process\":{\"pid\":77},\"input\":{\"stdin\":\"eHk\"}}");
	assert_int_equal(keeper.op, WIRE_OP_ATTACH);
	f = asked(MESSAGE_ATTACH);
	assert_true(fields_has(&f, TAG_STDIN));
	assert_int_equal(fields_number(&f, TAG_RECORD, 0), NUMBER);
	keeper_closes(WIRE_EXISTS, "another client has its input");
	assert_int_equal(client.status, 400);
	assert_non_null(strstr(buf_text(&client.out), "\"failed_precondition\""));
	unary("/CloseStdin", "{\"process\":{\"pid\":77}}");
	keeper_closes(WIRE_UNSUPPORTED, "it has none");
	assert_int_equal(client.status, 500);
	unary("/SendSignal", "{\"process\":{\"pid\":77},\"signal\":9}");
	f = asked(MESSAGE_ATTACH);
	assert_false(fields_has(&f, TAG_STDIN));
	keeper_accepts();
	assert_int_equal(client.status, 200);
	assert_int_equal(keeper.signal, 9);
	assert_int_equal(keeper.closed, 1); /* it is not kept */
	assert_null(box.commands->lines);
}

/* More than the command reads: the answer comes when all of it is sent. */
TEST_WITH(test_much_input, setup, teardown)
{
	static char body[DEEP / 3 * 4 + 128];
	size_t n = (size_t)snprintf(body, sizeof(body),
				    "{\"process\":{\"pid\":77},\"input\":{\"stdin\":\"");

	write_record();
	memset(body + n, 'A', DEEP / 3 * 4);
	memcpy(body + n + DEEP / 3 * 4, "\"}}", 4);
	unary("/SendInput", body);
	keeper_accepts();
	assert_int_equal(client.status, 0);
	assert_int_equal(keeper.bytes, WIRE_CREDIT_START);
	assert_int_equal(link_consumed(keeper.link, keeper.ch, 0, WIRE_CREDIT_START), 0);
	settle();
	assert_int_equal(client.status, 200);
	assert_int_equal(keeper.bytes, DEEP / 3 * 3);
	/* A client that disconnects in between leaves the line usable. */
	unary("/SendInput", body);
	leave_client();
	assert_null(box.commands->lines->errands);
}

TEST_WITH(test_the_connection_breaks, setup, teardown)
{
	write_record();
	start(CAT);
	assert_int_equal(shutdown(keeper.socket.fd, SHUT_RDWR), 0);
	loop_del_fd(&keeper.socket);
	settle();
	assert_int_equal(client.status, 502);
	assert_null(box.commands->lines);
}

int main(void)
{
	return unit_run(api_setup, api_teardown);
}
