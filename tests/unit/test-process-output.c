/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a command's output, from records that the keeper's own code writes. */
#include "test-api.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "envd/process.h"
#include "state/record.h"

enum {
	PID = 77,
};

static struct box box;
static struct unit_dir *dir;

/* ---- a command ---- */

struct command {
	struct record r;
};

static bool grow(struct record *r, void *arg)
{
	return true;
}

static void command_begin(struct command *c, uint64_t number, unsigned int flags, uint64_t blocks)
{
	struct record_head head = {
		.flags = flags, .start = clock_wall(), .argv_n = 2, .shown = 8
	};
	char name[RECORD_FILE_NAME];

	memcpy(head.argv, "cat\0-ne", 8);
	record_file_name(number, name);
	c->r = (struct record){ .number = number, .limit = blocks, .grow = grow };
	c->r.fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(c->r.fd >= 0);
	record_begin(&c->r, &head);
	c->r.slot.state = RECORD_RUNNING;
	c->r.slot.pid = PID;
	c->r.dirty = true;
	assert_int_equal(record_publish(&c->r), 0);
}

static void command_prints(struct command *c, unsigned int stream, const void *data, size_t n)
{
	record_put(&c->r, stream, data, n, clock_mono());
	assert_int_equal(record_publish(&c->r), 0);
}

#define PRINTS(c, stream, text) command_prints(c, stream, text, STRLEN(text))

static void command_ends(struct command *c, enum record_how how, unsigned int value,
			 const char *text)
{
	c->r.slot.state = RECORD_ENDED;
	c->r.slot.how = how;
	c->r.slot.value = value;
	c->r.slot.ended = clock_wall();
	(void)snprintf(c->r.slot.text, sizeof(c->r.slot.text), "%s", text);
	c->r.dirty = true;
	assert_int_equal(record_publish(&c->r), 0);
	c->r.fd = fd_close(c->r.fd);
}

/* ---- who reads it ---- */

static void keep(struct request *r)
{
}

static void listen_to(uint64_t number, uint64_t offset, bool offsets)
{
	struct found f = FOUND_INIT;
	struct request *r = ask("application/connect+json");
	struct err e = ERR_INIT;

	client.body = "\0\0\0\0\2{}";
	client.n_body = 7;
	rpc_read_stream(r, keep);
	assert_int_equal(record_open(&box, number, &f, &e), 0);
	output_begin(r, &f, PID, offset, offsets);
}

static void turn(void)
{
	assert_int_equal(loop_once(config.loop, clock_mono() + 10 * NSEC_PER_SEC), 0);
}

static void expect_data(size_t *at, const char *name, const void *data, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)buf_printf(&b, "{\"event\":{\"data\":{\"%s\":\"", name);
	assert_int_equal(base64_put(&b, data, n), 0);
	(void)buf_puts(&b, "\"}}}");
	expect_envelope(at, 0, buf_text(&b));
}

#define START "{\"event\":{\"start\":{\"pid\":77}}}"

static int setup(void **state)
{
	int r = unit_dir_setup((void **)&dir);

	box = (struct box){ .api = &api, .sandbox = { .dir = r == 0 ? dir->fd : -EBADF } };
	return r;
}

static int teardown(void **state)
{
	leave_client();
	commands_drop(&box);
	return unit_dir_teardown((void **)&dir);
}

/* ---- tests ---- */

TEST_WITH(test_a_command_that_has_ended, setup, teardown)
{
	struct command c;
	size_t at = 0;

	command_begin(&c, 1, 0, 16);
	PRINTS(&c, 1, "one ");
	PRINTS(&c, 1, "two");
	PRINTS(&c, 2, "err");
	PRINTS(&c, 1, "three");
	command_ends(&c, RECORD_EXITED, 0, "");
	listen_to(1, 0, false);
	assert_int_equal(client.status, 200);
	assert_int_equal(client.writes, 1);
	assert_true(client.ended);
	expect_envelope(&at, 0, START);
	expect_data(&at, "stdout", "one two", 7);
	expect_data(&at, "stderr", "err", 3);
	expect_data(&at, "stdout", "three", 5);
	expect_envelope(
		&at, 0,
		"{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status "
		"0\"}}}");
	expect_envelope(&at, 2, "{}");
	assert_int_equal(at, client.out.len);
}

TEST_WITH(test_ends, setup, teardown)
{
	static const struct {
		enum record_how how;
		unsigned int value;
		const char *text, *event, *end;
	} all[] = {
		{ RECORD_EXITED, 3, "",
		  "{\"event\":{\"end\":{\"error\":\"exit status 3\",\"exitCode\":3,\"exited\":true,"
		  "\"status\":\"exit status 3\"}}}",
		  "{}" },
		{ RECORD_SIGNALED, 9, "",
		  "{\"event\":{\"end\":{\"error\":\"signal: killed\",\"exitCode\":-1,\"exited\":"
		  "false,\"status\":\"signal: killed\"}}}",
		  "{}" },
		{ RECORD_SIGNALED, 64, "its client ended it",
		  "{\"event\":{\"end\":{\"error\":\"signal: signal 64: its client ended "
		  "it\",\"exitCode\":-1,\"exited\":false,\"status\":\"signal: signal 64\"}}}",
		  "{}" },
		{ RECORD_CLOSED, WIRE_TIMEOUT, "time limit of 1s reached", NULL,
		  "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"time limit of 1s "
		  "reached\"}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct command c;
		size_t at = 0;

		command_begin(&c, 1, 0, 16);
		command_ends(&c, all[i].how, all[i].value, all[i].text);
		listen_to(1, 0, false);
		expect_envelope(&at, 0, START);
		if (all[i].event)
			expect_envelope(&at, 0, all[i].event);
		expect_envelope(&at, 2, all[i].end);
		assert_true(client.ended);
	}
}

TEST_WITH(test_woken_by_what_is_written, setup, teardown)
{
	struct command c;
	size_t at = 0;

	command_begin(&c, 2, 0, 16);
	listen_to(2, 0, false);
	assert_true(client.begun);
	expect_envelope(&at, 0, START);
	PRINTS(&c, 2, "a");
	turn();
	expect_data(&at, "stderr", "a", 1);
	PRINTS(&c, 1, "b");
	command_ends(&c, RECORD_EXITED, 0, "");
	turn();
	expect_data(&at, "stdout", "b", 1);
	assert_true(client.ended);
	turn(); /* for the removed watch */
}

TEST_WITH(test_offsets, setup, teardown)
{
	struct command c;
	size_t at = 0;

	command_begin(&c, 3, RECORD_TERMINAL, 16);
	PRINTS(&c, 1, "0123456789");
	command_ends(&c, RECORD_EXITED, 0, "");
	listen_to(3, 4, true);
	expect_envelope(&at, 0, START);
	expect_envelope(&at, 0, "{\"event\":{\"data\":{\"pty\":\"NDU2Nzg5\",\"offset\":\"4\"}}}");
	listen_to(3, 1000, true);
	at = 0;
	expect_envelope(&at, 0, START);
	expect_envelope(
		&at, 0,
		"{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status "
		"0\"}}}");
}

/* False: this took so long that the first half was already sent. */
static bool second_half_comes(size_t *at)
{
	uint64_t begin;
	struct command c;

	command_begin(&c, 4, 0, 16);
	listen_to(4, 0, false);
	*at = 0;
	expect_envelope(at, 0, START);
	begin = clock_mono();
	PRINTS(&c, 1, "a\xf0\x9f");
	turn();
	expect_data(at, "stdout", "a", 1);
	PRINTS(&c, 1, "\x98\x80z");
	turn();
	(void)fd_close(c.r.fd);
	return clock_mono() - begin < 500 * NSEC_PER_MSEC;
}

TEST_WITH(test_characters_stay_whole, setup, teardown)
{
	struct command c;
	size_t at = 0;

	while (!second_half_comes(&at))
		leave_client();
	expect_data(&at, "stdout", "\xf0\x9f\x98\x80z", 5);
	leave_client();
	command_begin(&c, 4, 0, 16);
	listen_to(4, 0, false);
	at = 0;
	expect_envelope(&at, 0, START);
	/* Nothing follows: it is soon sent as it is. */
	PRINTS(&c, 1, "\xe2\x82");
	while (at == client.out.len)
		turn();
	expect_data(&at, "stdout", "\xe2\x82", 2);
	/* Bytes that cannot begin a character are not held back, nor are those that another
	 * stream follows. */
	PRINTS(&c, 1, "\xff\x80\x80\x80");
	while (at == client.out.len)
		turn();
	expect_data(&at, "stdout", "\xff\x80\x80\x80", 4);
	PRINTS(&c, 1, "\xc3");
	PRINTS(&c, 2, "e");
	while (at == client.out.len)
		turn();
	expect_data(&at, "stdout", "\xc3", 1);
	expect_data(&at, "stderr", "e", 1);
	leave_client();
	(void)fd_close(c.r.fd);
}

TEST_WITH(test_large_output_is_cut_into_pieces, setup, teardown)
{
	static char data[300000];
	struct command c;
	size_t at = 0, seen = 0, largest = 0;
	unsigned int flags = 0;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = "\xc3\xa4"[i % 2];
	command_begin(&c, 5, 0, 256);
	command_prints(&c, 1, data, sizeof(data));
	command_ends(&c, RECORD_EXITED, 0, "");
	listen_to(5, 0, false);
	while (client.r)
		turn();
	while (flags == 0 && at < client.out.len) {
		_cleanup_free_ char *text = next_envelope(&at, &flags), *piece = NULL;
		_cleanup_json_ json_t *j = NULL;
		struct err e = ERR_INIT;
		const char *b64 = NULL;
		size_t n;

		assert_int_equal(json_read(text, strlen(text), &j, &e), 0);
		(void)json_unpack(j, "{s:{s:{s:s}}}", "event", "data", "stdout", &b64);
		if (!b64)
			continue;
		assert_int_equal(base64_decode(b64, strlen(b64), &piece, &n), 0);
		assert_true(utf8_valid(piece, n));
		assert_memory_equal(piece, data + seen, n);
		seen += n;
		largest = MAX(largest, n);
	}
	assert_int_equal(seen, sizeof(data));
	assert_true(largest <= 32 * 1024);
}

/* Number of files that this process watches. */
static size_t watches(void)
{
	char path[64], line[256];
	size_t n = 0;

	for (int fd = 3; fd < 64; fd++) {
		FILE *f;

		(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			n += strncmp(line, "inotify wd:", 11) == 0;
		if (f)
			(void)fclose(f);
	}
	return n;
}

/* A command that prints without end does not wake a client with a full buffer. */
TEST_WITH(test_a_full_client_is_not_woken, setup, teardown)
{
	struct command c;
	size_t at = 0;

	command_begin(&c, 8, 0, 16);
	listen_to(8, 0, false);
	at = client.out.len;
	assert_int_equal(watches(), 1);
	client.full = true;
	PRINTS(&c, 1, "x");
	turn();
	assert_int_equal(watches(), 0);
	PRINTS(&c, 1, "y");
	client.full = false;
	client.room(&client.x);
	expect_data(&at, "stdout", "xy", 2);
	assert_int_equal(watches(), 1);
	PRINTS(&c, 1, "z");
	turn();
	expect_data(&at, "stdout", "z", 1);
	command_ends(&c, RECORD_EXITED, 0, "");
	turn();
	assert_true(client.ended);
	assert_int_equal(watches(), 0);
}

/* A slow client gets no writes until it reads; then it continues where it was. */
TEST_WITH(test_a_slow_client, setup, teardown)
{
	struct command c;
	size_t before;

	command_begin(&c, 6, 0, 16);
	listen_to(6, 0, false);
	client.full = true;
	before = client.out.len;
	PRINTS(&c, 1, "x");
	turn();
	command_ends(&c, RECORD_EXITED, 0, "");
	turn();
	assert_int_equal(client.out.len, before);
	assert_false(client.ended);
	client.full = false;
	client.room(&client.x);
	expect_data(&before, "stdout", "x", 1);
	assert_true(client.ended);
}

TEST_WITH(test_a_gap_is_told, setup, teardown)
{
	static char data[20 * RECORD_BLOCK];
	struct command c;
	size_t at = 0;
	unsigned int flags = 0;
	_cleanup_free_ char *text = NULL;

	memset(data, 'x', sizeof(data));
	command_begin(&c, 7, 0, 4);
	command_prints(&c, 1, data, sizeof(data));
	listen_to(7, 0, false);
	expect_envelope(&at, 0, START);
	while (flags == 0) {
		free(text);
		text = next_envelope(&at, &flags);
	}
	assert_non_null(strstr(text, "{\"error\":{\"code\":\"aborted\""));
	assert_non_null(strstr(text, "bytes of output from offset"));
	assert_true(client.ended);
	(void)fd_close(c.r.fd);
}

TEST_WITH(test_a_damaged_record, setup, teardown)
{
	struct command c;
	char zero[512] = "";

	command_begin(&c, 8, 0, 4);
	listen_to(8, 0, false);
	assert_true(client.begun);
	assert_int_equal(pwrite(c.r.fd, zero, sizeof(zero), 0), sizeof(zero));
	turn();
	assert_true(client.ended);
	assert_non_null(memmem(client.out.data, client.out.len, "\"internal\"", 10));
	(void)fd_close(c.r.fd);
}

/* ---- many ---- */

static struct record_reader readers[3];
static unsigned int woken;

static void take_out(struct record_reader *s)
{
	woken++;
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		if (&readers[i] != s || i == 1)
			records_watch_del(&readers[i]);
}

TEST_WITH(test_readers_may_take_each_other_out, setup, teardown)
{
	struct command c;
	struct found f = FOUND_INIT;
	struct err e = ERR_INIT;

	command_begin(&c, 9, 0, 4);
	assert_int_equal(record_open(&box, 9, &f, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i] = (struct record_reader){ .wake = take_out };
		assert_int_equal(records_watch_add(api.records, &readers[i], f.fd, &e), 0);
	}
	found_close(&f);
	woken = 0;
	PRINTS(&c, 1, "x");
	turn();
	assert_int_equal(woken, 1);
	PRINTS(&c, 1, "y");
	turn();
	assert_true(woken <= 2);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		records_watch_del(&readers[i]);
	(void)fd_close(c.r.fd);
}

/* ---- finding ---- */

TEST_WITH(test_find_and_list, setup, teardown)
{
	struct selector pid = { .pid = PID }, none = { .pid = 5 };
	_cleanup_found_ struct found f = FOUND_INIT;
	_cleanup_json_ json_t *list = NULL;
	_cleanup_free_ char *text = NULL;
	struct command old, running;
	struct err e = ERR_INIT;

	command_begin(&old, 100, 0, 4);
	command_ends(&old, RECORD_EXITED, 1, "");
	command_begin(&running, 101, 0, 4);
	unit_dir_write(dir, "cmd-102", "", 0); /* a spare one */
	unit_dir_write(dir, "cmd-103", "rubbish", 7);
	assert_int_equal(command_find(&box, &pid, false, &f, &e), 0);
	assert_int_equal(f.info.head.number, 101);
	assert_int_equal(command_find(&box, &none, false, &f, &e), -ENOENT);
	assert_int_equal(command_find(&box, &none, true, &f, &e), -ENOENT);
	list = command_list(&box, &e);
	assert_non_null(list);
	assert_int_equal(json_array_size(list), 1);
	text = json_write_line(list);
	assert_string_equal(text, "[{\"config\":{\"args\":[\"-ne\"],\"cmd\":\"cat\",\"cwd\":\"\","
				  "\"envs\":{}},\"pid\":77}]");
	command_ends(&running, RECORD_EXITED, 1, "");
}

/* A command that ended long ago is found only by a request for all, and is not watched. */
TEST_WITH(test_long_ago, setup, teardown)
{
	struct selector s = { .pid = PID };
	_cleanup_found_ struct found f = FOUND_INIT;
	struct command c;
	struct err e = ERR_INIT;

	command_begin(&c, 200, 0, 4);
	c.r.slot.state = RECORD_ENDED;
	c.r.slot.how = RECORD_EXITED;
	c.r.slot.ended = clock_wall() - (PROCESS_REPLAY_S + 1) * NSEC_PER_SEC;
	c.r.dirty = true;
	assert_int_equal(record_publish(&c.r), 0);
	(void)fd_close(c.r.fd);
	assert_int_equal(command_find(&box, &s, false, &f, &e), -ENOENT);
	assert_int_equal(box.commands->n, 0);
	assert_int_equal(box.commands->high, 200);
	assert_int_equal(command_find(&box, &s, true, &f, &e), 0);
	assert_int_equal(f.info.head.number, 200);
}

/* ---- faults ---- */

static int listen_once(void)
{
	struct found f = FOUND_INIT;
	struct request *r = ask("application/connect+json");
	struct err e = ERR_INIT;
	int k;

	if (!r)
		return -ENOMEM;
	client.body = "\0\0\0\0\2{}";
	client.n_body = 7;
	rpc_read_stream(r, keep);
	k = client.r ? record_open(&box, 1, &f, &e) : -ENOMEM;
	if (k == 0)
		output_begin(r, &f, PID, 0, false);
	found_close(&f);
	leave_client();
	return k;
}

TEST_WITH(test_faults, setup, teardown)
{
	struct command c;

	command_begin(&c, 1, 0, 16);
	PRINTS(&c, 1, "text");
	FAIL_SWEEP(listen_once());
	command_ends(&c, RECORD_EXITED, 0, "");
	FAIL_SWEEP(listen_once());
}

int main(void)
{
	return unit_run(api_setup, api_teardown);
}
