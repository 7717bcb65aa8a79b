/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper in a child process. Its guest is the real program or a link of the test; its clients are
 * links of the test. Every wait has a deadline.
 */
#pragma once

#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "keeper/keeper.h"
#include "keeper/serve.h"
#include "unit-engine.h"
#include "wire/link.h"

enum {
	TALKS_MAX = 800,
	PATIENCE_S = 120,
	KEEPER_ID = 0x70000001,
};

/* One channel, as seen by this end. */
struct talk {
	uint32_t ch;
	enum wire_op op;
	bool accepted, closed, lazy; /* lazy: gives no credit */
	bool opened;		     /* by the peer */
	uint64_t code;
	char text[WIRE_TEXT_MAX + 1];
	char out[WIRE_STREAMS][4096]; /* the first bytes received */
	size_t got[WIRE_STREAMS];
	bool eof[WIRE_STREAMS];
	unsigned int msgs, credits;
	bool exited;
	uint64_t exit_code, record, want, deadline;
	struct buf open; /* fields of a received OPEN */
};

struct peer {
	int fd;
	struct link *l;
	bool hello, ended;
	uint64_t landlock;
	struct talk talks[TALKS_MAX];
	size_t n;
};

static inline struct talk *talk_of(struct peer *p, uint32_t ch)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->talks[i].ch == ch)
			return &p->talks[i];
	fail_msg("no channel %u", ch);
	return NULL;
}

static inline void peer_hello_(struct link *l, const struct fields *f, void *arg)
{
	struct peer *p = arg;

	p->hello = true;
	p->landlock = fields_number(f, TAG_LANDLOCK, 0);
}

static inline void peer_opened_(struct link *l, uint32_t ch, enum wire_op op,
				const struct fields *f, void *arg)
{
	struct peer *p = arg;
	struct talk *t = &p->talks[p->n++];

	assert_true(p->n < TALKS_MAX);
	*t = (struct talk){ .ch = ch, .op = op, .opened = true, .open = BUF_INIT(WIRE_OPEN_MAX) };
	assert_int_equal(buf_put(&t->open, f->data, f->len), 0);
}

static inline void peer_accepted_(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct talk *t = talk_of(arg, ch);

	t->accepted = true;
	t->record = fields_number(f, TAG_RECORD, 0);
	t->want = fields_number(f, TAG_WANT, 0);
	t->deadline = fields_number(f, TAG_DEADLINE, 0);
}

static inline void peer_data_(struct link *l, uint32_t ch, unsigned int stream, const void *data,
			      size_t n, void *arg)
{
	struct talk *t = talk_of(arg, ch);

	if (t->got[stream] < sizeof(t->out[0]) - 1)
		memcpy(t->out[stream] + t->got[stream], data,
		       MIN(n, sizeof(t->out[0]) - 1 - t->got[stream]));
	t->got[stream] += n;
	if (!t->lazy)
		assert_int_equal(link_consumed(l, ch, stream, n), 0);
}

static inline void peer_eof_(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	talk_of(arg, ch)->eof[stream] = true;
}

static inline void peer_credit_(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	talk_of(arg, ch)->credits++;
}

static inline void peer_msg_(struct link *l, uint32_t ch, enum wire_msg kind,
			     const struct fields *f, void *arg)
{
	struct talk *t = talk_of(arg, ch);

	t->msgs++;
	if (kind == WIRE_MSG_EXIT) {
		assert_false(t->exited);
		/* Behind all output. */
		t->exited = true;
		t->exit_code = fields_number(f, TAG_CODE, 256 + fields_number(f, TAG_SIGNAL, 0));
	}
}

static inline void peer_closed_(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct talk *t = talk_of(arg, ch);
	const char *text;
	size_t pos = 0, n;

	t->closed = true;
	t->code = fields_number(f, TAG_CODE, 256);
	if (fields_next(f, TAG_TEXT, &pos, &text, &n))
		memcpy(t->text, text, n);
}

static const struct link_ops peer_ops = {
	.hello = peer_hello_,
	.opened = peer_opened_,
	.accepted = peer_accepted_,
	.data = peer_data_,
	.eof = peer_eof_,
	.credit = peer_credit_,
	.msg = peer_msg_,
	.closed = peer_closed_,
};

static inline struct peer *peer_new(enum link_role role, int fd)
{
	struct peer *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->fd = fd;
	assert_int_equal(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	assert_int_equal(link_new(role, &peer_ops, p, &p->l), 0);
	if (role == LINK_KEEPER)
		link_with_client(p->l);
	return p;
}

static inline void peer_free(struct peer *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++)
		buf_done(&p->talks[i].open);
	(void)fd_close(p->fd);
	(void)link_free(p->l);
	free(p);
}

static inline void peer_free_(struct peer **p)
{
	peer_free(*p);
}

#define _cleanup_peer_ _cleanup_(peer_free_)

static inline void peer_write(struct peer *p)
{
	size_t n;
	const void *data = link_pending(p->l, &n);

	while (n > 0) {
		ssize_t k = send(p->fd, data, n, MSG_NOSIGNAL);

		if (k < 0)
			break;
		link_wrote(p->l, (size_t)k);
		data = link_pending(p->l, &n);
	}
}

/* Writes and reads all that is possible, and waits a little if there is nothing. */
static inline void peer_step(struct peer *p, int ms)
{
	static char bytes[256 * 1024];
	struct pollfd poll_fd = { .fd = p->fd, .events = POLLIN };
	struct err e = ERR_INIT;
	ssize_t n;
	size_t left;

	peer_write(p);
	(void)link_pending(p->l, &left);
	if (left > 0)
		poll_fd.events |= POLLOUT;
	if (p->ended || poll(&poll_fd, 1, ms) <= 0)
		return;
	n = recv(p->fd, bytes, sizeof(bytes), 0);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		p->ended = true;
	if (n > 0 && link_feed(p->l, bytes, (size_t)n, &e) < 0)
		fail_msg("%s", e.msg);
	peer_write(p);
}

/* Moves bytes of up to two peers until the condition holds. */
#define UNTIL2(a, b, condition)                                                        \
	do {                                                                           \
		uint64_t end_ = clock_mono() + PATIENCE_S * NSEC_PER_SEC;              \
		while (!(condition)) {                                                 \
			if (clock_mono() > end_)                                       \
				fail_msg("line %d: not so: %s", __LINE__, #condition); \
			peer_step(a, (b) ? 1 : 10);                                    \
			if (b)                                                         \
				peer_step(b, 1);                                       \
		}                                                                      \
	} while (0)
#define UNTIL(a, condition) UNTIL2(a, (struct peer *)NULL, condition)

static inline struct talk *peer_open(struct peer *p, enum wire_op op, const struct buf *b)
{
	struct talk *t = &p->talks[p->n];

	*t = (struct talk){ .op = op };
	assert_int_equal(link_open(p->l, op, b, NULL, &t->ch), 0);
	p->n++;
	return t;
}

struct exec {
	const char *script;
	bool input;
	uint64_t timeout;
	const char *env, *cwd, *name;
	bool detach;
};

static inline struct talk *peer_exec_(struct peer *p, const struct exec *x)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);

	fields_put_text(&b, TAG_ARGV, "/bin/sh");
	fields_put_text(&b, TAG_ARGV, "-c");
	fields_put_text(&b, TAG_ARGV, x->script);
	if (x->env)
		fields_put_text(&b, TAG_ENV, x->env);
	if (x->cwd)
		fields_put_text(&b, TAG_CWD, x->cwd);
	if (x->input)
		fields_put_flag(&b, TAG_STDIN);
	if (x->timeout)
		fields_put_number(&b, TAG_TIMEOUT, x->timeout);
	if (x->name)
		fields_put_text(&b, TAG_NAME, x->name);
	if (x->detach)
		fields_put_flag(&b, TAG_DETACH);
	assert_int_equal(b.err, 0);
	return peer_open(p, WIRE_OP_EXEC, &b);
}

#define peer_exec(p, ...) peer_exec_(p, &(struct exec){ __VA_ARGS__ })

/* ---- the keeper ---- */

struct bench {
	struct unit_dir *dir;
	struct spec spec;
	pid_t keeper, guest_pid, helper; /* `helper` answers the keeper as a warden does */
	int warden;
	struct audit_chain *chain; /* or NULL: the log is off */
	bool no_records;	   /* the warden has no files for them */
	int adopt;		   /* commands from before, or -EBADF; ran_before() */
	char path[UNIT_PATH_MAX + 8];
	struct peer *guest;  /* if the test plays the guest */
	struct peer *client; /* the first one */
	int client_end;	     /* the keeper's end, sent with "go" */
};

static const char *const everywhere[] = { "/", NULL };

static inline void bench_init(struct bench *b, void **state)
{
	*b = (struct bench){
		.dir = *state, .warden = -EBADF, .client_end = -EBADF, .adopt = -EBADF
	};
	b->spec.user = "";
	b->spec.workspace = "/";
	b->spec.api = "";
	b->spec.env.v = b->spec.read.v = b->spec.write.v = b->spec.execute.v =
		(const char **)everywhere;
	b->spec.read.n = b->spec.write.n = b->spec.execute.n = 1;
	(void)snprintf(b->path, sizeof(b->path), "%s/sock", b->dir->path);
	(void)unlink(b->path);
}

static inline int bench_listen(const struct bench *b)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", b->path);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 128), 0);
	assert_int_equal(chmod(b->path, 0777), 0);
	return fd;
}

static inline void pair_of(int type, int *a, int *b)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
	*a = fds[0];
	*b = fds[1];
}

static inline void bench_guest(struct bench *b, int fd)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%d", fd);
	b->guest_pid = fork();
	if (b->guest_pid == 0) {
		(void)fcntl(fd, F_SETFD, 0);
		(void)execl(HUTCH_GUEST, "hutch-guest", "--not-init", "--channel", number, NULL);
		_exit(127);
	}
	assert_true(b->guest_pid > 0);
}

/* Starts both; with `real` the guest is the program. The first client has sent HELLO. */
static inline void bench_start(struct bench *b, bool real)
{
	int guest, client;
	struct keeper_start s = { .spec = &b->spec,
				  .engine = &unit_container,
				  .no_snapshots = "",
				  .chain = b->chain,
				  .id = KEEPER_ID,
				  .parent = getpid() };

	pair_of(SOCK_STREAM, &s.guest, &guest);
	pair_of(SOCK_STREAM, &b->client_end, &client);
	assert_int_equal(fcntl(b->client_end, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	pair_of(SOCK_SEQPACKET, &s.warden, &b->warden);
	s.listener = bench_listen(b);
	b->keeper = fork();
	if (b->keeper == 0)
		keeper_run(&s);
	assert_true(b->keeper > 0);
	if (real)
		bench_guest(b, guest);
	else
		b->guest = peer_new(LINK_GUEST, dup(guest));
	(void)close(guest);
	(void)close(s.guest);
	(void)close(s.warden);
	(void)close(s.listener);
	b->client = peer_new(LINK_KEEPER, client);
}

static inline void peer_say_hello(struct peer *p, bool guest)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	if (guest) {
		fields_put_text(&b, TAG_AGENT, "test");
		fields_put_number(&b, TAG_LANDLOCK, 77);
	}
	assert_int_equal(link_hello(p->l, &b), 0);
}

/* The guest answers, and the keeper notifies the warden. */
static inline void bench_greet(struct bench *b, struct keeper_note *ret)
{
	struct pollfd p = { .fd = b->warden, .events = POLLIN };

	if (b->guest) {
		UNTIL(b->guest, b->guest->hello);
		peer_say_hello(b->guest, true);
		peer_write(b->guest);
	}
	assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
	assert_int_equal(read(b->warden, ret, sizeof(*ret)), (ssize_t)sizeof(*ret));
	if (b->guest)
		assert_int_equal(ret->value, 77);
	assert_int_equal(ret->kind, NOTE_READY);
}

static inline void give_records_(struct bench *b, uint64_t *last, uint64_t n)
{
	int files[NOTE_FILES_MAX];
	uint64_t first = *last + 1;

	n = MIN(n, (uint64_t)NOTE_FILES_MAX);
	for (size_t i = 0; i < n; i++) {
		char path[UNIT_PATH_MAX + RECORD_FILE_NAME], name[RECORD_FILE_NAME];

		record_file_name(++*last, name);
		(void)snprintf(path, sizeof(path), "%s/%s", b->dir->path, name);
		files[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	}
	(void)note_send(b->warden, NOTE_RECORDS, first, files, n);
	for (size_t i = 0; i < n; i++)
		(void)close(files[i]);
}

static inline _noreturn_ void helper_(struct bench *b, uint64_t last)
{
	struct pollfd p = { .fd = b->warden, .events = POLLIN };
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n;

	(void)close(b->client->fd);
	if (b->guest)
		(void)close(b->guest->fd);
	while (poll(&p, 1, -1) == 1 && note_receive(b->warden, &note, files, &n) == 0) {
		char name[RECORD_FILE_NAME], path[UNIT_PATH_MAX + RECORD_FILE_NAME];

		record_file_name(note.value, name);
		(void)snprintf(path, sizeof(path), "%s/%s", b->dir->path, name);
		if (note.kind == NOTE_WANT_RECORDS && b->no_records)
			(void)note_send(b->warden, NOTE_NO_RECORDS, ENOSPC, NULL, 0);
		else if (note.kind == NOTE_WANT_RECORDS)
			give_records_(b, &last, note.value);
		else if (note.kind == NOTE_DROP_RECORD)
			(void)unlink(path);
	}
	_exit(0);
}

static inline void bench_helper_end(struct bench *b)
{
	if (b->helper > 0) {
		(void)kill(b->helper, SIGKILL);
		(void)waitpid(b->helper, NULL, 0);
	}
	b->helper = 0;
}

/* With its first client, as for hutch run. */
static inline void bench_say_go(struct bench *b)
{
	assert_int_equal(note_send(b->warden, NOTE_GO, b->spec.once, &b->client_end, 1), 0);
	b->client_end = fd_close(b->client_end);
}

static inline void bench_go(struct bench *b)
{
	struct keeper_note note = { 0 };
	uint64_t last = 0;

	bench_greet(b, &note);
	if (b->adopt >= 0) {
		assert_int_equal(lseek(b->adopt, 0, SEEK_SET), 0);
		assert_int_equal(note_send(b->warden, NOTE_ADOPT, 0, &b->adopt, 1), 0);
	}
	bench_say_go(b);
	if (!b->no_records)
		give_records_(b, &last, RECORDS_AT_START);
	b->helper = fork();
	if (b->helper == 0)
		helper_(b, last);
	peer_say_hello(b->client, false);
	UNTIL(b->client, b->client->hello);
	assert_int_equal(b->client->landlock, note.value);
}

/* Adds a command of an earlier keeper, with "run" and "it" as arguments, to this keeper's list. */
static inline void ran_before(struct bench *b, uint32_t pid, const char *name,
			      enum record_state state)
{
	struct record r = { .fd = -EBADF, .number = 40 + pid, .limit = RECORD_BLOCKS_MIN };
	struct record_info i = { .head = { .flags = RECORD_INPUT,
					   .start = 1,
					   .argv_n = 2,
					   .shown = 7,
					   .user = "u",
					   .cwd = "/w",
					   .argv = "run\0it" } };

	(void)snprintf(i.head.name, sizeof(i.head.name), "%s", name);
	record_begin(&r, &i.head); /* makes it whole */
	i.slot = r.slot;
	i.slot.state = state;
	i.slot.how = state == RECORD_ENDED ? RECORD_EXITED : RECORD_NOT_YET;
	i.slot.pid = pid;
	if (b->adopt < 0)
		b->adopt = memfd_create("commands", MFD_CLOEXEC);
	assert_int_equal(record_list_put(b->adopt, &i), 0);
}

static inline struct peer *bench_connect(const struct bench *b)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", b->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return peer_new(LINK_KEEPER, fd);
}

static inline struct peer *bench_client(const struct bench *b)
{
	struct peer *p = bench_connect(b);

	peer_say_hello(p, false);
	UNTIL(p, p->hello || p->ended);
	return p;
}

/* Waits for the keeper; returns its exit status, or 1000 + signal. */
static inline int bench_end(struct bench *b)
{
	uint64_t end = clock_mono() + PATIENCE_S * NSEC_PER_SEC;
	int status = 0;

	while (waitpid(b->keeper, &status, WNOHANG) == 0) {
		if (clock_mono() > end)
			fail_msg("the keeper does not end");
		(void)usleep(2000);
	}
	b->keeper = 0;
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline void bench_done(struct bench *b)
{
	bench_helper_end(b);
	if (b->keeper > 0) {
		(void)kill(b->keeper, SIGKILL);
		(void)waitpid(b->keeper, NULL, 0);
	}
	if (b->guest_pid > 0) {
		(void)kill(b->guest_pid, SIGKILL);
		(void)waitpid(b->guest_pid, NULL, 0);
	}
	(void)fd_close(b->warden);
	(void)fd_close(b->adopt);
	(void)fd_close(b->client_end);
	peer_free(b->guest);
	peer_free(b->client);
	(void)unlink(b->path);
}

#define _cleanup_bench_ _cleanup_(bench_done)

/* The test plays the guest. */
static inline void bench_scripted(struct bench *b, void **state)
{
	bench_init(b, state);
	bench_start(b, false);
	bench_go(b);
}

/* The guest's next request. */
static inline struct talk *asked(struct bench *b)
{
	size_t n = b->guest->n;

	UNTIL2(b->guest, b->client, b->guest->n > n);
	return &b->guest->talks[n];
}
