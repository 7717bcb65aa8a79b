/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command after the other, with the real hutch-guest at the other end. A relay between the two
 * sends the guest a keeper's HELLO, and counts bytes.
 */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "client/session.h"
#include "wire/link.h"

enum {
	BIG = 10 * 1024 * 1024,
	HELLO_BYTES = WIRE_HEADER + 12, /* that of a session */
};

struct box {
	int fd;
	struct proc relay, guest;
	uint64_t *passed; /* bytes from the guest; shared with the relay */
	int in, out, err;
	struct session_result result;
	struct err e;
};

/* ---- the other end ---- */

static void say_hello(int guest)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096), frame = BUF_INIT(4096);

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_READ, "/");
	fields_put_text(&b, TAG_WRITE, "/");
	fields_put_text(&b, TAG_EXECUTE, "/");
	(void)buf_put_be(&frame, b.len, 4);
	(void)buf_put_be(&frame, 0, 4);
	(void)buf_put_be(&frame, WIRE_HELLO, 1);
	(void)buf_put_be(&frame, 0, 3);
	(void)buf_put(&frame, b.data, b.len);
	(void)fd_write_all(guest, frame.data, frame.len);
}

/* False at the end. */
static bool pass_on(int from, int to, uint64_t *count)
{
	static char chunk[64 * 1024];
	ssize_t n = read(from, chunk, sizeof(chunk));

	if (n <= 0 || fd_write_all(to, chunk, (size_t)n) < 0)
		return false;
	if (count)
		*count += (uint64_t)n;
	return true;
}

_noreturn_ static void relay(int client, int guest, uint64_t *passed)
{
	struct pollfd p[] = { { .fd = client, .events = POLLIN },
			      { .fd = guest, .events = POLLIN } };
	char hello[HELLO_BYTES];
	bool more = recv(client, hello, sizeof(hello), MSG_WAITALL) == HELLO_BYTES;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	say_hello(guest);
	while (more && poll(p, 2, -1) > 0) {
		if (p[0].revents)
			more = pass_on(client, guest, NULL);
		if (more && p[1].revents)
			more = pass_on(guest, client, passed);
	}
	_exit(0);
}

static void box_open(struct box *b)
{
	const char *argv[] = { "hutch-guest", "--not-init", "--channel", "3", NULL };
	int ours[2], theirs[2];

	*b = (struct box){ .relay = PROC_INIT, .guest = PROC_INIT };
	b->passed = mmap(NULL, sizeof(*b->passed), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(b->passed, MAP_FAILED);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ours), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, theirs), 0);
	assert_int_equal(proc_spawn(&(struct proc_spec){ .path = getenv("HUTCH_GUEST"),
							 .argv = argv,
							 .in = -EBADF,
							 .out = -EBADF,
							 .err = STDERR_FILENO,
							 .more = &theirs[1],
							 .n_more = 1 },
				    &b->guest, &b->e),
			 0);
	if (proc_fork(&b->relay) == 1) {
		(void)fd_close(ours[0]);
		(void)fd_close(theirs[1]);
		relay(ours[1], theirs[0], b->passed);
	}
	b->fd = ours[0];
	(void)fd_close(ours[1]);
	(void)fd_close(theirs[0]);
	(void)fd_close(theirs[1]);
	b->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	b->out = memfd_create("out", MFD_CLOEXEC);
	b->err = memfd_create("err", MFD_CLOEXEC);
	assert_true(b->in >= 0 && b->out >= 0 && b->err >= 0);
}

static void box_close(struct box *b)
{
	b->fd = fd_close(b->fd);
	proc_done(&b->relay);
	proc_done(&b->guest);
	(void)munmap(b->passed, sizeof(*b->passed));
	(void)fd_close(b->in);
	(void)fd_close(b->out);
	(void)fd_close(b->err);
}

#define _cleanup_box_ _cleanup_(box_close)

static int run_spec(struct box *b, struct session_spec spec)
{
	spec.in = b->in;
	spec.out = b->out;
	spec.err = b->err;
	return session_run(b->fd, &spec, &b->result, &b->e);
}

/* Runs a script to its end in a new box. */
static void run_shell(struct box *b, const char *script, bool input)
{
	const char *argv[] = { "sh", "-c", script, NULL };

	assert_int_equal(run_spec(b, (struct session_spec){ .argv = argv, .input = input }), 0);
}

static void expect(const struct box *b, enum session_how how, unsigned int number)
{
	if (b->result.how != how || b->result.number != number)
		fail_msg("ended by %d, %u (%s); expected %d, %u", (int)b->result.how,
			 b->result.number, b->result.text, (int)how, number);
}

static void expect_file(int fd, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(fd, &b), 0);
	assert_string_equal(buf_text(&b), want);
}

/* ---- ends ---- */

TEST(test_exit_status)
{
	for (unsigned int code = 0; code < 256; code += 51) {
		_cleanup_box_ struct box b;
		char script[32];

		box_open(&b);
		(void)snprintf(script, sizeof(script), "exit %u", code);
		run_shell(&b, script, false);
		expect(&b, SESSION_EXITED, code);
	}
}

TEST(test_signals_that_end_it)
{
	static const unsigned int sigs[] = { SIGKILL, SIGTERM, SIGSEGV };

	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
		_cleanup_box_ struct box b;
		char script[32];

		box_open(&b);
		(void)snprintf(script, sizeof(script), "ulimit -c 0; kill -%u $$", sigs[i]);
		run_shell(&b, script, false);
		expect(&b, SESSION_SIGNALED, sigs[i]);
	}
}

static void check_refused(struct session_spec spec, unsigned int code)
{
	_cleanup_box_ struct box b;

	box_open(&b);
	assert_int_equal(run_spec(&b, spec), 0);
	expect(&b, SESSION_REFUSED, code);
	assert_true(b.result.text[0]);
}

TEST(test_refused)
{
	const char *nothing[] = { "no-such-program", NULL }, *file[] = { "/etc/passwd", NULL },
		   *ok[] = { "true", NULL };

	check_refused((struct session_spec){ .argv = nothing }, WIRE_NOT_FOUND);
	check_refused((struct session_spec){ .argv = file }, WIRE_PERMISSION);
	check_refused((struct session_spec){ .argv = ok, .user = "no-such-user" }, WIRE_NO_USER);
	check_refused((struct session_spec){ .argv = ok, .cwd = "/no/such" }, WIRE_NOT_DIRECTORY);
}

TEST(test_too_long)
{
	_cleanup_free_ char *arg = malloc(100 * 1024);
	const char *argv[20];
	_cleanup_box_ struct box b;

	box_open(&b);
	memset(arg, 'x', 100 * 1024 - 1);
	arg[100 * 1024 - 1] = '\0';
	for (size_t i = 0; i + 1 < ARRAY_SIZE(argv); i++)
		argv[i] = arg;
	argv[ARRAY_SIZE(argv) - 1] = NULL;
	assert_int_equal(run_spec(&b, (struct session_spec){ .argv = argv }), -E2BIG);
}

/* In a child process: waits until the session has written output, so that a script has begun. */
static void wait_for_output(const struct box *b)
{
	struct stat st;

	for (int i = 0; i < 12000; i++) {
		if (fstat(b->out, &st) == 0 && st.st_size > 0)
			return;
		(void)usleep(10 * 1000);
	}
	_exit(4);
}

TEST(test_lost)
{
	_cleanup_proc_ struct proc killer = PROC_INIT;
	_cleanup_box_ struct box b;

	box_open(&b);
	if (proc_fork(&killer) == 1) {
		wait_for_output(&b);
		_exit(proc_signal(&b.guest, SIGKILL) < 0);
	}
	run_shell(&b, "echo before; sleep 100", false);
	expect(&b, SESSION_LOST, 0);
	expect_file(b.out, "before\n");
}

TEST(test_broken_protocol)
{
	_cleanup_box_ struct box b;
	int pair[2];

	box_open(&b);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fd_write_all(pair[1], "this is not a frame of any kind", 31), 0);
	(void)fd_close(b.fd);
	b.fd = pair[0];
	run_shell(&b, "true", false);
	expect(&b, SESSION_LOST, 0);
	assert_true(b.result.text[0]);
	(void)fd_close(pair[1]);
}

/* ---- output and input ---- */

TEST(test_output)
{
	_cleanup_box_ struct box b;

	box_open(&b);
	run_shell(&b, "printf out; printf err >&2; exit 3", false);
	expect(&b, SESSION_EXITED, 3);
	expect_file(b.out, "out");
	expect_file(b.err, "err");
}

TEST(test_environment_and_directory)
{
	const char *argv[] = { "sh", "-c", "echo \"$A $B\"; pwd", NULL };
	const char *env[] = { "A=1 2", "B=ä", NULL };
	_cleanup_box_ struct box b;

	box_open(&b);
	assert_int_equal(
		run_spec(&b, (struct session_spec){ .argv = argv, .env = env, .cwd = "/usr" }), 0);
	expect_file(b.out, "1 2 ä\n/usr\n");
}

TEST(test_no_input)
{
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)fd_close(b.in);
	b.in = memfd_create("in", MFD_CLOEXEC);
	assert_int_equal(fd_write_all(b.in, "secret", 6), 0);
	assert_int_equal(lseek(b.in, 0, SEEK_SET), 0);
	run_shell(&b, "readlink /proc/self/fd/0; cat", false);
	expect_file(b.out, "/dev/null\n");
	assert_int_equal(lseek(b.in, 0, SEEK_CUR), 0);
}

TEST(test_input_from_nowhere)
{
	_cleanup_box_ struct box b;

	box_open(&b); /* /dev/null, which epoll does not support */
	run_shell(&b, "cat; echo end", true);
	expect(&b, SESSION_EXITED, 0);
	expect_file(b.out, "end\n");
}

TEST(test_input_that_is_closed)
{
	_cleanup_box_ struct box b;
	int p[2];

	box_open(&b);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(fd_write_all(p[1], "last words", 10), 0);
	(void)fd_close(p[1]);
	(void)fd_close(b.in);
	b.in = p[0];
	run_shell(&b, "cat; sleep 0.2; echo; echo end", true);
	expect(&b, SESSION_EXITED, 0);
	expect_file(b.out, "last words\nend\n");
}

TEST(test_input_that_nobody_reads)
{
	_cleanup_box_ struct box b;
	int p[2];

	box_open(&b); /* the writer stays: hutch must end nevertheless */
	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	(void)fd_close(b.in);
	b.in = p[0];
	assert_int_equal(fd_write_all(p[1], "unread", 6), 0);
	run_shell(&b, "exit 5", true);
	expect(&b, SESSION_EXITED, 5);
	(void)fd_close(p[1]);
}

TEST(test_input_that_cannot_be_read)
{
	const char *argv[] = { "cat", NULL };
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)fd_close(b.in);
	b.in = open("/", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
	assert_int_equal(run_spec(&b, (struct session_spec){ .argv = argv, .input = true }),
			 -EISDIR);
	assert_non_null(strstr(b.e.msg, "standard input"));
}

/* ---- large amounts ---- */

static char *big_bytes(void)
{
	char *data = malloc(BIG);

	assert_non_null(data);
	for (size_t i = 0; i < BIG; i++)
		data[i] = (char)(i * 167 + i / 251);
	return data;
}

TEST(test_much_through_files)
{
	_cleanup_free_ char *data = big_bytes(), *back = malloc(BIG);
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)fd_close(b.in);
	b.in = memfd_create("in", MFD_CLOEXEC);
	assert_int_equal(fd_write_all(b.in, data, BIG), 0);
	assert_int_equal(lseek(b.in, 0, SEEK_SET), 0);
	run_shell(&b, "cat", true);
	expect(&b, SESSION_EXITED, 0);
	assert_int_equal(lseek(b.out, 0, SEEK_END), BIG);
	assert_int_equal(pread(b.out, back, BIG, 0), BIG);
	assert_memory_equal(data, back, BIG);
}

/* Writes the bytes into a pipe, in another process. */
static void feeder(struct proc *p, const char *data, int *ret)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	if (proc_fork(p) == 1) {
		(void)fd_close(fds[0]);
		_exit(fd_write_all(fds[1], data, BIG) == 0 ? 0 : 1);
	}
	(void)fd_close(fds[1]);
	*ret = fds[0];
}

/* Reads them slowly; its exit status says whether they were right. */
static void reader_child(struct proc *p, const char *data, int *ret)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	if (proc_fork(p) == 1) {
		static char chunk[100 * 1000];
		size_t at = 0;
		ssize_t n;

		(void)fd_close(fds[1]);
		while ((n = read(fds[0], chunk, sizeof(chunk))) > 0) {
			if (at + (size_t)n > BIG || memcmp(chunk, data + at, (size_t)n) != 0)
				_exit(1);
			at += (size_t)n;
			if (at % 7 == 0)
				(void)usleep(2000);
		}
		_exit(at == BIG ? 0 : 2);
	}
	(void)fd_close(fds[0]);
	*ret = fds[1];
}

static void expect_child(struct proc *p)
{
	siginfo_t info = { 0 };

	assert_int_equal(proc_wait(p, clock_mono() + 120 * NSEC_PER_SEC, &info), 0);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
}

TEST(test_much_through_pipes)
{
	_cleanup_free_ char *data = big_bytes();
	_cleanup_proc_ struct proc from = PROC_INIT, to = PROC_INIT;
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)fd_close(b.in);
	(void)fd_close(b.out);
	feeder(&from, data, &b.in);
	reader_child(&to, data, &b.out);
	run_shell(&b, "cat", true);
	expect(&b, SESSION_EXITED, 0);
	b.out = fd_close(b.out);
	expect_child(&from);
	expect_child(&to);
}

/* While the client does not read, only as much passes as the pipe and the credit hold. */
TEST(test_slow_reader)
{
	_cleanup_proc_ struct proc late = PROC_INIT;
	_cleanup_box_ struct box b;
	uint64_t *passed;
	int p[2];

	box_open(&b);
	passed = b.passed;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	if (proc_fork(&late) == 1) {
		uint64_t n = 0;

		(void)fd_close(p[1]);
		for (int i = 0; i < 12000 && *(volatile uint64_t *)passed < 64 * 1024; i++)
			(void)usleep(10 * 1000);
		(void)usleep(300 * 1000); /* more would come meanwhile */
		if (*(volatile uint64_t *)passed < 64 * 1024 ||
		    *(volatile uint64_t *)passed > 512 * 1024)
			_exit(3);
		while (pass_on(p[0], b.err, &n))
			;
		_exit(n == BIG ? 0 : 2);
	}
	(void)fd_close(p[0]);
	(void)fd_close(b.out);
	b.out = p[1];
	run_shell(&b, "head -c 10485760 /dev/zero", false);
	expect(&b, SESSION_EXITED, 0);
	b.out = fd_close(b.out);
	expect_child(&late);
}

TEST(test_reader_that_goes)
{
	_cleanup_box_ struct box b;
	int p[2];

	box_open(&b);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	(void)fd_close(p[0]);
	(void)fd_close(b.out);
	b.out = p[1];
	run_shell(&b, "while echo y; do :; done", false);
	expect(&b, SESSION_PIPE, SIGPIPE);
}

TEST(test_full_disk)
{
	const char *argv[] = { "echo", "y", NULL };
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)fd_close(b.out);
	b.out = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(run_spec(&b, (struct session_spec){ .argv = argv }), -ENOSPC);
	assert_non_null(strstr(b.e.msg, "standard output"));
}

/* ---- signals ---- */

/* Sends signals to this process, a second apart, once the script has written something. */
static void sender(struct proc *p, const struct box *b, const int *sigs, size_t n)
{
	if (proc_fork(p) == 1) {
		wait_for_output(b);
		for (size_t i = 0; i < n; i++) {
			(void)kill(getppid(), sigs[i]);
			(void)usleep(1000 * 1000);
		}
		_exit(0);
	}
}

TEST(test_signal_is_passed_on)
{
	static const int sigs[] = { SIGINT, SIGQUIT, SIGTERM };

	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
		_cleanup_proc_ struct proc p = PROC_INIT;
		_cleanup_box_ struct box b;
		char script[80];

		box_open(&b);
		(void)snprintf(script, sizeof(script),
			       "trap 'exit 42' %d; echo ready; while :; do sleep 0.05; done",
			       sigs[i]);
		sender(&p, &b, &sigs[i], 1);
		run_shell(&b, script, false);
		expect(&b, SESSION_EXITED, 42);
	}
}

/* A hangup of the terminal does not end the command. */
TEST(test_hangup)
{
	static const int sigs[] = { SIGHUP };
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_box_ struct box b;

	box_open(&b);
	sender(&p, &b, sigs, ARRAY_SIZE(sigs));
	run_shell(&b, "trap 'exit 42' HUP; echo ready; while :; do sleep 0.05; done", false);
	expect(&b, SESSION_HANGUP, SIGHUP);
}

TEST(test_term_that_is_not_obeyed)
{
	static const int sigs[] = { SIGTERM, SIGTERM };
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_box_ struct box b;

	box_open(&b);
	sender(&p, &b, sigs, ARRAY_SIZE(sigs));
	run_shell(&b, "trap '' TERM; echo ready; sleep 100", false);
	expect(&b, SESSION_STOPPED, SIGTERM);
}

TEST(test_ignored_signal_stays_ignored)
{
	static const int sigs[] = { SIGHUP };
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_box_ struct box b;

	box_open(&b);
	(void)signal(SIGHUP, SIG_IGN);
	sender(&p, &b, sigs, ARRAY_SIZE(sigs));
	run_shell(&b, "echo ready; sleep 1.5; exit 9", false);
	(void)signal(SIGHUP, SIG_DFL);
	expect(&b, SESSION_EXITED, 9);
}

/* ---- terminals ---- */

TEST(test_terminal)
{
	struct winsize size = { .ws_row = 31, .ws_col = 97 };
	const char *argv[] = { "sh", "-c", "stty size; read x; echo \"<$x>\"; stty size", NULL };
	_cleanup_proc_ struct proc keys = PROC_INIT;
	struct termios before = { 0 }, after = { 0 };
	_cleanup_box_ struct box b;
	int main, side;

	box_open(&b);
	assert_int_equal(openpty(&main, &side, NULL, NULL, &size), 0);
	assert_int_equal(tcgetattr(side, &before), 0);
	(void)fd_close(b.in);
	b.in = side;
	if (proc_fork(&keys) == 1) {
		struct termios during;
		struct winsize other = { .ws_row = 10, .ws_col = 50 };

		wait_for_output(&b);
		(void)ioctl(main, TIOCSWINSZ, &other);
		(void)kill(getppid(), SIGWINCH);
		(void)usleep(1300 * 1000);
		(void)tcgetattr(side, &during);
		(void)!write(main, "keys\r", 5);
		_exit(during.c_lflag & (ICANON | ECHO | ISIG) ? 1 : 0);
	}
	assert_int_equal(
		run_spec(&b,
			 (struct session_spec){ .argv = argv, .input = true, .terminal = true }),
		0);
	expect(&b, SESSION_EXITED, 0);
	expect_file(b.out, "31 97\r\nkeys\r\n<keys>\r\n10 50\r\n");
	expect_child(&keys);
	assert_int_equal(tcgetattr(side, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
	(void)fd_close(main);
}

int main(void)
{
	/* A background job of a script, or a program under nohup(1), ignores some of these. */
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGQUIT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	return unit_run(NULL, NULL);
}
