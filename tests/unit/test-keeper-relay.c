/* SPDX-License-Identifier: Apache-2.0 */
#include "test-keeper.h"

#include <dirent.h>

#include "base/str.h"
#include "fail.h"
#include "unit-engine.h"

/* ---- with the real guest ---- */

TEST(a_command_runs)
{
	_cleanup_bench_ struct bench b;
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo out; echo err >&2; exit 7");
	UNTIL(b.client, t->closed);
	assert_true(t->accepted && t->exited && t->eof[1] && t->eof[2]);
	assert_int_equal(t->code, WIRE_DONE);
	assert_int_equal(t->exit_code, 7);
	assert_string_equal(t->out[1], "out\n");
	assert_string_equal(t->out[2], "err\n");
}

TEST(defaults_are_merged)
{
	_cleanup_bench_ struct bench b;
	const char *env[] = { "ZED=policy", "ALPHA=policy", "MID=", NULL };
	struct talk *t;

	bench_init(&b, state);
	b.spec.env.v = env;
	b.spec.env.n = 3;
	b.spec.workspace = "/usr";
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo $ZED,$ALPHA,${MID-unset}; pwd",
		      .env = "ALPHA=client");
	UNTIL(b.client, t->closed);
	assert_string_equal(t->out[1], "policy,client,\n/usr\n");
	t = peer_exec(b.client, .script = "pwd", .cwd = "/etc");
	UNTIL(b.client, t->closed);
	assert_string_equal(t->out[1], "/etc\n");
}

TEST(stdin_goes_in)
{
	_cleanup_bench_ struct bench b;
	static char block[128 * 1024];
	size_t left = 3 * 1024 * 1024;
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "sleep 0.2; wc -c", .input = true);
	UNTIL(b.client, t->accepted);
	while (left > 0) {
		ssize_t n = link_data(b.client->l, t->ch, 0, block, MIN(left, sizeof(block)));

		assert_true(n >= 0 && !b.client->ended);
		left -= (size_t)n;
		peer_step(b.client, n > 0 ? 0 : 10);
	}
	assert_int_equal(link_eof(b.client->l, t->ch, 0), 0);
	UNTIL(b.client, t->closed);
	assert_string_equal(t->out[1], "3145728\n");
}

TEST(signals_arrive)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64);
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo ready; exec sleep 100");
	UNTIL(b.client, t->got[1] > 0);
	fields_put_number(&f, TAG_NUMBER, SIGTERM);
	assert_int_equal(link_msg(b.client->l, t->ch, WIRE_MSG_SIGNAL, &f), 0);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->exit_code, 256 + SIGTERM);
}

TEST(files_are_read)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64), g = BUF_INIT(64);
	struct talk *t;

	bench_init(&b, state);
	b.spec.user = "0";
	bench_start(&b, true);
	bench_go(&b);
	fields_put_text(&f, TAG_PATH, "/etc/passwd");
	t = peer_open(b.client, WIRE_OP_READ, &f);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_DONE);
	assert_true(t->accepted && t->eof[0]);
	assert_true(str_has_prefix(t->out[0], "root:"));
	fields_put_text(&g, TAG_PATH, "/etc");
	fields_put_number(&g, TAG_DEPTH, 1);
	t = peer_open(b.client, WIRE_OP_LIST, &g);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_DONE);
	assert_true(t->msgs > 10);
}

/* Memory of the keeper, in KiB. */
static size_t rss_of(pid_t pid)
{
	char path[64], line[256];
	_cleanup_fclose_ FILE *f = NULL;
	size_t kib = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (str_has_prefix(line, "VmRSS:"))
			kib = strtoul(line + 6, NULL, 10);
	return kib;
}

TEST(one_that_does_not_read_stops_itself_alone)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *good = NULL;
	size_t before;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	good = bench_client(&b);
	before = rss_of(b.keeper);
	for (int i = 0; i < 40; i++)
		(void)peer_exec(b.client, .script = "yes");
	peer_write(b.client); /* and never reads */
	(void)usleep(300000);
	for (int i = 0; i < 20; i++) {
		struct talk *t = peer_exec(good, .script = "echo fine");

		UNTIL(good, t->closed);
		assert_string_equal(t->out[1], "fine\n");
	}
	/* 40 times the credit, plus the buffer of one link; sanitizers keep freed memory. */
	if (HUTCH_PLAIN)
		assert_true(rss_of(b.keeper) < before + 40 * 512 + 4096);
	/* The client reads again, and all commands continue; none is forgotten. */
	for (int i = 0; i < 40; i++)
		UNTIL(b.client, b.client->talks[i].got[1] > 1024 * 1024);
}

TEST(a_flood_comes_through_in_order)
{
	_cleanup_bench_ struct bench b;
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "head -c 50000000 /dev/zero; exit 3");
	/* Slowly at first: all bytes are held somewhere, and the exit too. */
	for (int i = 0; i < 20; i++) {
		peer_step(b.client, 0);
		(void)usleep(5000);
	}
	UNTIL(b.client, t->closed);
	assert_int_equal(t->got[1], 50000000);
	assert_true(t->eof[1] && t->exited);
	assert_int_equal(t->exit_code, 3);
}

TEST(time_limits_end_commands)
{
	_cleanup_bench_ struct bench b;
	struct talk *t, *u, *v;

	bench_init(&b, state);
	/* Time for a shell to start, and to look at u before t ends. */
	b.spec.limits.timeout = 6000;
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo begin; sleep 100");
	u = peer_exec(b.client, .script = "sleep 100", .timeout = 200);
	v = peer_exec(b.client, .script = "sleep 100", .timeout = 100000);
	UNTIL(b.client, u->closed);
	assert_int_equal(u->code, WIRE_TIMEOUT);
	assert_string_equal(u->text, "time limit of 200ms reached");
	assert_false(t->closed);
	UNTIL(b.client, t->closed && v->closed);
	assert_int_equal(t->code, WIRE_TIMEOUT);
	assert_string_equal(t->text, "time limit of 6s reached");
	assert_string_equal(t->out[1], "begin\n");
	assert_false(t->exited);
	assert_string_equal(v->text, "time limit of 6s reached");
}

/* Whether a process with this text in its command line is alive. */
static bool runs(const char *text)
{
	DIR *d = opendir("/proc");
	struct dirent *ent;
	bool found = false;

	assert_non_null(d);
	while (!found && (ent = readdir(d))) {
		char path[300], line[512] = "";
		int fd;
		ssize_t n;

		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", ent->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, line, sizeof(line) - 1);
		(void)close(fd);
		for (ssize_t i = 0; i < n; i++)
			if (line[i] == '\0')
				line[i] = ' ';
		found = strstr(line, text) != NULL && str_has_prefix(line, "sleep");
	}
	(void)closedir(d);
	return found;
}

static struct talk *attach(struct peer *p, uint64_t number, bool input)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (input)
		fields_put_flag(&b, TAG_STDIN);
	fields_put_number(&b, TAG_RECORD, number);
	return peer_open(p, WIRE_OP_ATTACH, &b);
}

static void put_signal(struct peer *p, const struct talk *t, unsigned int number)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_NUMBER, number);
	assert_int_equal(link_msg(p->l, t->ch, WIRE_MSG_SIGNAL, &b), 0);
}

/* A broken connection does not end the command; CLOSE does. */
TEST(a_client_that_goes_leaves_its_commands)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *c = NULL;
	char script[64], text[32];
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	c = bench_client(&b);
	(void)snprintf(text, sizeof(text), "sleep 1000.%d", (int)getpid());
	(void)snprintf(script, sizeof(script), "echo x; exec %s", text);
	t = peer_exec(c, .script = script);
	UNTIL(c, t->got[1] > 0);
	UNTIL(b.client, runs(text));
	(void)shutdown(c->fd, SHUT_RDWR);
	for (int i = 0; i < 20; i++)
		peer_step(b.client, 10);
	assert_true(runs(text));
	t = peer_exec(b.client, .script = script, .name = "other");
	UNTIL(b.client, t->got[1] > 0);
	assert_int_equal(link_close(b.client->l, t->ch, WIRE_DONE, NULL), 0);
	t = attach(b.client, 1, false);
	UNTIL(b.client, t->accepted);
	put_signal(b.client, t, SIGKILL);
	UNTIL(b.client, t->closed);
	UNTIL(b.client, !runs(text));
	t = peer_exec(b.client, .script = "exit 0");
	UNTIL(b.client, t->closed);
	assert_int_equal(t->exit_code, 0);
}

static int record_of(const struct bench *b, uint64_t number, struct record_info *ret)
{
	char name[RECORD_FILE_NAME];
	struct err e = ERR_INIT;
	_cleanup_close_ int fd = -EBADF;

	record_file_name(number, name);
	fd = openat(b->dir->fd, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : record_read(fd, ret, &e);
}

/* Its client may leave: the record has its output and its end. */
TEST(a_detached_command_is_recorded)
{
	_cleanup_bench_ struct bench b;
	struct record_info info = { 0 };
	struct talk *t, *again;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo out; echo err >&2; sleep 0.3; exit 4",
		      .name = "job", .detach = true);
	UNTIL(b.client, t->accepted);
	assert_int_equal(t->record, 1);
	again = peer_exec(b.client, .script = "true", .name = "job");
	UNTIL(b.client, again->closed);
	assert_int_equal(again->code, WIRE_EXISTS);
	again = peer_exec(b.client, .script = "true", .name = "17");
	UNTIL(b.client, again->closed);
	assert_int_equal(again->code, WIRE_INVALID);
	assert_int_equal(link_close(b.client->l, t->ch, WIRE_DONE, NULL), 0);
	UNTIL(b.client, record_of(&b, 1, &info) == 0 && info.slot.state == RECORD_ENDED);
	assert_int_equal(t->got[1], 0);
	assert_int_equal(info.slot.value, 4);
	assert_int_equal(info.slot.bytes[0], 4);
	assert_int_equal(info.slot.bytes[1], 4);
	assert_string_equal(info.head.name, "job");
	again = peer_exec(b.client, .script = "true", .name = "job");
	UNTIL(b.client, again->closed);
	assert_int_equal(again->code, WIRE_DONE);
}

/* One client at a time has the input, and its typed bytes are not lost when it leaves. */
TEST(input_is_handed_over)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *c = NULL;
	struct talk *t, *first, *second;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "cat", .input = true);
	UNTIL(b.client, t->accepted);
	second = attach(b.client, t->record, true);
	UNTIL(b.client, second->closed);
	assert_int_equal(second->code, WIRE_EXISTS);
	second = attach(b.client, t->record + 1, false);
	UNTIL(b.client, second->closed);
	assert_int_equal(second->code, WIRE_NOT_FOUND);
	c = bench_client(&b);
	first = peer_exec(c, .script = "cat; echo end", .input = true, .detach = true);
	UNTIL(c, first->accepted);
	assert_int_equal(link_data(c->l, first->ch, 0, "one ", 4), 4);
	peer_write(c);
	(void)shutdown(c->fd, SHUT_RDWR);
	for (second = NULL; !second || second->closed;) {
		second = attach(b.client, first->record, true);
		UNTIL(b.client, second->accepted || second->closed);
	}
	assert_int_equal(link_data(b.client->l, second->ch, 0, "two\n", 4), 4);
	assert_int_equal(link_eof(b.client->l, second->ch, 0), 0);
	UNTIL(b.client, second->closed);
	assert_int_equal(second->code, WIRE_DONE);
	{
		struct record_info info = { 0 };

		assert_int_equal(record_of(&b, first->record, &info), 0);
		assert_int_equal(info.slot.bytes[0], 12); /* "one two\nend\n" */
	}
}

/* More concurrent commands than record files, then no files at all. */
TEST(commands_wait_for_records)
{
	_cleanup_bench_ struct bench b;
	struct talk *t[50];

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = peer_exec(b.client, .script = "exit 3");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		UNTIL(b.client, t[i]->closed);
		assert_int_equal(t[i]->exit_code, 3);
	}
}

TEST(without_records_nothing_runs)
{
	_cleanup_bench_ struct bench b;
	struct talk *t;

	bench_init(&b, state);
	b.no_records = true;
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "true");
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_NO_SPACE);
	assert_false(t->accepted);
}

TEST(the_end_of_the_guest_is_told)
{
	_cleanup_bench_ struct bench b;
	struct talk *t;

	bench_init(&b, state);
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "echo before; sleep 100");
	UNTIL(b.client, t->got[1] > 0);
	(void)kill(b.guest_pid, SIGKILL);
	UNTIL(b.client, t->closed);
	assert_int_equal(t->code, WIRE_GONE);
	assert_int_equal(bench_end(&b), KEEPER_GUEST_GONE);
}

TEST(once_ends_with_the_first)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *c = NULL;

	bench_init(&b, state);
	b.spec.once = true;
	bench_start(&b, true);
	bench_go(&b);
	c = bench_client(&b);
	peer_free(TAKE_PTR(c));
	c = bench_client(&b);
	assert_true(c->hello);
	peer_free(TAKE_PTR(b.client));
	assert_int_equal(bench_end(&b), KEEPER_ONCE);
}

TEST(idle_ends)
{
	_cleanup_bench_ struct bench b;
	uint64_t before;
	struct talk *t;

	bench_init(&b, state);
	b.spec.limits.idle = 300;
	bench_start(&b, true);
	bench_go(&b);
	t = peer_exec(b.client, .script = "sleep 1");
	UNTIL(b.client, t->closed);
	before = clock_mono();
	peer_free(TAKE_PTR(b.client));
	assert_int_equal(bench_end(&b), KEEPER_IDLE);
	assert_true(clock_mono() - before >= 290 * NSEC_PER_MSEC);
}

/* ---- the test plays the guest ---- */

static void accept_exec(struct bench *b, uint32_t ch)
{
	_cleanup_buf_ struct buf f = BUF_INIT(64);

	fields_put_number(&f, TAG_PID, 7);
	assert_int_equal(link_accept(b->guest->l, ch, &f), 0);
}

TEST(what_the_guest_is_asked_for_is_in_order)
{
	_cleanup_bench_ struct bench b;
	const char *env[] = { "B=2", "A=1", NULL };
	struct err e = ERR_INIT;
	struct fields f;
	struct talk *t;

	bench_init(&b, state);
	b.spec.env.v = env;
	b.spec.env.n = 2;
	b.spec.user = "agent";
	b.spec.workspace = "/work";
	bench_start(&b, false);
	bench_go(&b);
	(void)peer_exec(b.client, .script = "x", .timeout = 5000, .input = true, .env = "C=3");
	t = asked(&b);
	assert_int_equal(fields_parse(MESSAGE_EXEC, t->open.data, t->open.len, &f, &e), 0);
	assert_true(fields_has(&f, TAG_STDIN) && fields_has(&f, TAG_CWD) &&
		    fields_has(&f, TAG_USER));
	assert_false(fields_has(&f, TAG_TIMEOUT));
}

TEST(codes_that_are_not_the_guests)
{
	static const struct {
		unsigned int said, heard;
	} rows[] = { { WIRE_GONE, WIRE_GONE },
		     { WIRE_NOT_FOUND, WIRE_NOT_FOUND },
		     { WIRE_TIMEOUT, WIRE_IO },
		     { 16, WIRE_IO },
		     { 255, WIRE_IO } };
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct talk *t = peer_exec(b.client, .script = "x"), *g = asked(&b);

		assert_int_equal(link_close(b.guest->l, g->ch, (enum wire_code)rows[i].said, "why"),
				 0);
		UNTIL2(b.guest, b.client, t->closed);
		assert_int_equal(t->code, rows[i].heard);
		assert_string_equal(t->text, "why");
	}
}

TEST(too_many_are_refused)
{
	_cleanup_bench_ struct bench b;
	struct talk *t, *u;

	bench_scripted(&b, state);
	for (int i = 0; i < RELAYS_EXEC; i++)
		(void)peer_exec(b.client, .script = "x");
	UNTIL2(b.guest, b.client, b.guest->n == RELAYS_EXEC);
	t = peer_exec(b.client, .script = "x");
	UNTIL2(b.guest, b.client, t->closed);
	assert_int_equal(t->code, WIRE_TOO_MANY);
	assert_int_equal(b.guest->n, RELAYS_EXEC);
	/* One ends, which makes room for one. */
	assert_int_equal(link_close(b.client->l, b.client->talks[9].ch, WIRE_DONE, NULL), 0);
	UNTIL2(b.guest, b.client, b.guest->talks[9].closed);
	t = peer_exec(b.client, .script = "x");
	u = asked(&b);
	accept_exec(&b, u->ch);
	UNTIL2(b.guest, b.client, t->accepted);
}

TEST(an_open_that_grows_too_long)
{
	_cleanup_bench_ struct bench b;
	static char value[100 * 1024], script[100 * 1024];
	const char *env[] = { value, NULL };
	_cleanup_buf_ struct buf f = BUF_INIT(WIRE_OPEN_MAX);
	struct talk *t;

	memset(value, 'v', sizeof(value) - 1);
	value[1] = '=';
	memset(script, 's', sizeof(script) - 1);
	bench_init(&b, state);
	b.spec.env.v = env;
	b.spec.env.n = 1;
	bench_start(&b, false);
	bench_go(&b);
	for (int i = 0; i < 10; i++)
		fields_put_text(&f, TAG_ARGV, script);
	assert_int_equal(f.err, 0);
	t = peer_open(b.client, WIRE_OP_EXEC, &f);
	UNTIL2(b.guest, b.client, t->closed);
	assert_int_equal(t->code, WIRE_INVALID);
	assert_int_equal(b.guest->n, 0);
}

/* Fills the guest's link, which the test does not read, until the keeper reads from no client. */
static void fill_guest(struct bench *b, const struct talk *t)
{
	struct pollfd p = { .fd = b->client->fd, .events = POLLOUT };
	size_t left = 0;

	for (int i = 0; left == 0 || poll(&p, 1, 300) > 0; i++) {
		assert_true(i < 1000); /* it ends at some point */
		for (int n = 0; n < 1000 && left == 0; n++)
			put_signal(b->client, t, SIGCONT);
		peer_write(b->client);
		(void)link_pending(b->client->l, &left);
	}
}

/* Otherwise a command that should end would continue without a client. */
TEST(a_close_counts_after_its_client_has_gone)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *c = NULL;
	struct talk *t, *u, *g, *h;

	bench_scripted(&b, state);
	c = bench_client(&b);
	t = peer_exec(c, .script = "x");
	UNTIL2(b.guest, c, b.guest->n == 1);
	g = &b.guest->talks[0];
	accept_exec(&b, g->ch);
	UNTIL2(b.guest, c, t->accepted);
	u = peer_exec(b.client, .script = "y");
	h = asked(&b);
	accept_exec(&b, h->ch);
	UNTIL2(b.guest, b.client, u->accepted);
	fill_guest(&b, u);
	assert_int_equal(link_close(c->l, t->ch, WIRE_DONE, NULL), 0);
	peer_write(c);
	peer_free(TAKE_PTR(c));
	(void)usleep(200 * 1000);
	UNTIL2(b.guest, b.client, g->closed);
	assert_false(h->closed);
}

TEST(exit_and_close_wait_for_the_output)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(128);
	static char block[WIRE_CREDIT_START];
	struct talk *t, *g;

	bench_scripted(&b, state);
	t = peer_exec(b.client, .script = "x");
	t->lazy = true;
	g = asked(&b);
	accept_exec(&b, g->ch);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(link_data(b.guest->l, g->ch, 1, block, sizeof(block)),
				 sizeof(block));
		UNTIL2(b.guest, b.client,
		       t->got[1] == sizeof(block) &&
			       (i > 0 || link_credit(b.guest->l, g->ch, 1) == sizeof(block)));
	}
	fields_put_number(&f, TAG_CODE, 5);
	fields_put_number(&f, TAG_USER_US, 1);
	fields_put_number(&f, TAG_SYSTEM_US, 1);
	fields_put_number(&f, TAG_MAX_RSS, 1);
	assert_int_equal(link_eof(b.guest->l, g->ch, 1), 0);
	assert_int_equal(link_msg(b.guest->l, g->ch, WIRE_MSG_EXIT, &f), 0);
	assert_int_equal(link_msg(b.guest->l, g->ch, WIRE_MSG_EXIT, &f), 0); /* heard once */
	assert_int_equal(link_close(b.guest->l, g->ch, WIRE_DONE, NULL), 0);
	for (int i = 0; i < 30; i++) {
		peer_step(b.guest, 1);
		peer_step(b.client, 1);
	}
	assert_false(t->exited || t->closed || t->eof[1]);
	t->lazy = false;
	assert_int_equal(link_consumed(b.client->l, t->ch, 1, sizeof(block)), 0);
	UNTIL2(b.guest, b.client, t->closed);
	assert_int_equal(t->got[1], 2 * sizeof(block));
	assert_true(t->exited && t->eof[1]);
}

TEST(events_that_nobody_reads)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf f = BUF_INIT(64), ev = BUF_INIT(8192);
	char path[4096];
	struct talk *t, *g;

	bench_scripted(&b, state);
	memset(path, 'p', sizeof(path));
	fields_put_text(&f, TAG_PATH, "/");
	t = peer_open(b.client, WIRE_OP_WATCH, &f);
	g = asked(&b);
	assert_int_equal(link_accept(b.guest->l, g->ch, NULL), 0);
	UNTIL2(b.guest, b.client, t->accepted);
	fields_put_bytes(&ev, TAG_PATH, path, sizeof(path));
	fields_put_number(&ev, TAG_EVENT, WIRE_CREATED);
	/* The client reads nothing; after some megabytes the keeper closes the channel, not the
	 * client. */
	for (int i = 0; i < 20000 && !g->closed; i++) {
		UNTIL(b.guest, g->closed || link_ready(b.guest->l));
		if (!g->closed)
			assert_int_equal(link_msg(b.guest->l, g->ch, WIRE_MSG_EVENT, &ev), 0);
		peer_step(b.guest, 0);
	}
	UNTIL(b.guest, g->closed);
	UNTIL2(b.guest, b.client, t->closed);
	assert_int_equal(t->code, WIRE_TOO_MANY);
	assert_true(t->msgs > 100);
	t = peer_exec(b.client, .script = "x");
	g = asked(&b);
	accept_exec(&b, g->ch);
	UNTIL2(b.guest, b.client, t->accepted);
}

TEST(a_guest_that_breaks_the_rules)
{
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	assert_int_equal(send(b.guest->fd, "not a frame at all", 18, 0), 18);
	assert_int_equal(bench_end(&b), KEEPER_GUEST_BROKE);
}

TEST(a_client_that_breaks_the_rules)
{
	_cleanup_bench_ struct bench b;
	_cleanup_peer_ struct peer *c = NULL, *d = NULL;
	_cleanup_buf_ struct buf hello = BUF_INIT(64);
	struct talk *t;

	bench_scripted(&b, state);
	c = bench_client(&b);
	assert_int_equal(send(c->fd, "not a frame at all", 18, 0), 18);
	UNTIL2(c, b.client, c->ended);
	/* A client cannot pass file descriptors. */
	d = bench_connect(&b);
	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&hello, TAG_WRITE, "/");
	assert_int_equal(link_hello(d->l, &hello), 0);
	UNTIL2(d, b.client, d->ended);
	assert_false(d->hello);
	t = peer_exec(b.client, .script = "x");
	accept_exec(&b, asked(&b)->ch);
	UNTIL2(b.guest, b.client, t->accepted);
}

TEST(sixty_four_clients)
{
	_cleanup_bench_ struct bench b;
	struct peer *all[CLIENTS_MAX];

	bench_scripted(&b, state);
	for (int i = 1; i < CLIENTS_MAX; i++) {
		all[i] = bench_client(&b);
		assert_true(all[i]->hello);
	}
	all[0] = bench_client(&b);
	assert_true(all[0]->ended);
	peer_free(all[0]);
	peer_free(all[1]);
	all[1] = bench_client(&b);
	/* Until the keeper has noticed, there is no room. */
	for (int i = 0; i < 2000 && all[1]->ended; i++) {
		peer_free(all[1]);
		(void)usleep(10000);
		all[1] = bench_client(&b);
	}
	assert_true(all[1]->hello);
	for (int i = 1; i < CLIENTS_MAX; i++)
		peer_free(all[i]);
}

/* In a child: sends HELLO as `uid`, and checks whether the keeper answers. */
static _noreturn_ void hello_as(uid_t uid, const char *path)
{
	static const uint8_t hello[] = { 0, 0, 0, 12, 0, 0, 0, 0, WIRE_HELLO, 0, 0, 0,
					 1, 0, 0, 8,  0, 0, 0, 0, 0,	      0, 0, 1 };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte;

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (setresuid(uid, uid, uid) < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		_exit(2);
	(void)!send(fd, hello, sizeof(hello), MSG_NOSIGNAL);
	_exit(recv(fd, &byte, 1, 0) == 1 ? 1 : 0);
}

static int answered(uid_t uid, const char *path)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		hello_as(uid, path);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST(others_may_not_connect)
{
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	assert_int_equal(chmod(b.dir->path, 0755), 0);
	assert_int_equal(answered(0, b.path), 1);
	assert_int_equal(answered(1000, b.path), 0);
	assert_int_equal(answered(KEEPER_ID, b.path), 0);
}

TEST(without_go_nobody_is_served)
{
	_cleanup_bench_ struct bench b;
	struct keeper_note note = { 0 };

	bench_init(&b, state);
	bench_start(&b, false);
	bench_greet(&b, &note);
	peer_say_hello(b.client, false);
	peer_write(b.client);
	for (int i = 0; i < 10; i++)
		peer_step(b.client, 10);
	assert_false(b.client->hello);
	b.warden = fd_close(b.warden);
	assert_int_equal(bench_end(&b), KEEPER_FAILED);
}

TEST(go_before_the_guest_has_answered_is_no_go)
{
	_cleanup_bench_ struct bench b;

	bench_init(&b, state);
	bench_start(&b, false);
	assert_int_equal(note_send(b.warden, NOTE_GO, 0, NULL, 0), 0);
	assert_int_equal(bench_end(&b), KEEPER_FAILED);
}

TEST(without_a_warden_it_ends)
{
	_cleanup_bench_ struct bench b;

	bench_scripted(&b, state);
	bench_helper_end(&b);
	b.warden = fd_close(b.warden);
	assert_int_equal(bench_end(&b), KEEPER_FAILED);
}

/* ---- without a process ---- */

static int init_and_done(void)
{
	static const char *env[] = { "A=1", NULL };
	const struct spec spec = { .user = "u", .workspace = "/w", .env = { env, 1 } };
	const struct keeper_start s = { .spec = &spec,
					.engine = &unit_container,
					.guest = -EBADF,
					.listener = -EBADF,
					.warden = -EBADF };
	static struct keeper k;
	struct err e = ERR_INIT;
	int r = keeper_init(&k, &s, &e);

	if (r == 0)
		(void)client_new(&k, -EBADF);
	keeper_done(&k);
	return r;
}

TEST(no_start_leaves_anything_behind)
{
	FAIL_SWEEP(init_and_done());
}

/* A policy that would break the protocol with every command fails at the start. */
TEST(a_policy_that_does_not_fit)
{
	static char longer[130 * 1024];
	const char *env[] = { longer, NULL };
	struct spec spec = { .user = "", .workspace = "/", .env = { env, 1 } };
	const struct keeper_start s = { .spec = &spec,
					.engine = &unit_container,
					.guest = -EBADF,
					.listener = -EBADF,
					.warden = -EBADF };
	static struct keeper k;
	struct err e = ERR_INIT;

	memset(longer, 'x', sizeof(longer) - 1);
	assert_int_equal(keeper_init(&k, &s, &e), -EBADMSG);
	spec.env.n = 0;
	spec.user = "\xff";
	assert_int_equal(keeper_init(&k, &s, &e), -EBADMSG);
	spec.user = "";
	assert_int_equal(keeper_init(&k, &s, &e), 0);
	keeper_done(&k);
	spec.read = (struct spec_list){ env, 1 };
	assert_int_equal(keeper_init(&k, &s, &e), -E2BIG);
}

int main(void)
{
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root",
				unit_dir_setup, unit_dir_teardown);
}
