/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/journald.h"
#include "base/log.h"
#include "base/str.h"
#include "base/trace.h"
#include "fail.h"

/* Redirects stderr to `fd` between begin() and end(), which returns the output. */
struct capture {
	int saved, fd;
	struct buf text;
};

static struct capture begin(int fd)
{
	struct capture c = { .saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3),
			     .fd = fd,
			     .text = BUF_INIT(100000) };

	assert_true(c.saved >= 0 && fd >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	return c;
}

static const char *end(struct capture *c)
{
	assert_int_equal(dup2(c->saved, STDERR_FILENO), STDERR_FILENO);
	c->saved = fd_close(c->saved);
	(void)lseek(c->fd, 0, SEEK_SET);
	assert_int_equal(fd_read_all(c->fd, &c->text), 0);
	return buf_text(&c->text);
}

static void capture_done(struct capture *c)
{
	(void)fd_close(c->fd);
	buf_done(&c->text);
}

static int memory_file(void)
{
	return memfd_create("stderr", MFD_CLOEXEC);
}

static void form(bool journal)
{
	struct stat st;
	char stream[64];

	(void)unsetenv("HUTCH_LOG");
	(void)fstat(STDERR_FILENO, &st);
	(void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	if (journal)
		(void)setenv("JOURNAL_STREAM", stream, 1);
	else
		(void)unsetenv("JOURNAL_STREAM");
}

TEST(for_the_journal)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_to_journal("/nonexistent/socket"); /* the stream of stderr is the fallback */
	log_error("e %d", 1);
	log_warning("w");
	log_info("i");
	assert_string_equal(end(&c), "<3>e 1\n<4>w\n<6>i\n");
}

struct journal {
	char dir[32], path[64];
	int fd;
};

static void journal_begin(struct journal *j)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(j->dir, sizeof(j->dir), "/tmp/journal.XXXXXX");
	assert_non_null(mkdtemp(j->dir));
	(void)snprintf(j->path, sizeof(j->path), "%s/socket", j->dir);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", j->path);
	j->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(j->fd >= 0);
	assert_int_equal(bind(j->fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void journal_end(struct journal *j)
{
	(void)fd_close(j->fd);
	(void)unlink(j->path);
	(void)rmdir(j->dir);
}

/* The next entry, as a text. */
static const char *entry(const struct journal *j)
{
	static char text[8192];
	ssize_t n = recv(j->fd, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

TEST(entries_have_fields)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());
	_cleanup_(journal_end) struct journal j;
	char want[256];

	journal_begin(&j);
	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_to_journal(j.path);
	log_error_of("box", "req", "it\nis %s", "so");
	(void)snprintf(want, sizeof(want),
		       "MESSAGE=it\\nis so\nPRIORITY=3\nSYSLOG_IDENTIFIER=prog\n"
		       "HUTCH_PROCESS=prog\nHUTCH_SANDBOX=box\nHUTCH_REQUEST=req\nHUTCH_KIND=log\n"
		       "CODE_FILE=test-log.c\nCODE_LINE=%d\n",
		       __LINE__ - 5);
	assert_string_equal(entry(&j), want);
	log_info("plain");
	assert_null(strstr(entry(&j), "HUTCH_SANDBOX"));
	assert_string_equal(end(&c), ""); /* not twice */
}

/* If the journal accepts nothing, the text goes to stderr. */
TEST(a_full_journal_falls_back)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());
	_cleanup_(journal_end) struct journal j;

	journal_begin(&j);
	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_to_journal(j.path);
	for (unsigned int i = 0; i < 2000; i++)
		log_info("line %u", i);
	assert_non_null(strstr(end(&c), "<6>line 1999\n"));
}

TEST(a_value_with_a_newline_is_binary)
{
	const struct journald_field fields[] = { { "ONE", "a\nb" },
						 { "NONE", "" },
						 { "TWO", "c" } };
	static const char want[] = "ONE\n\3\0\0\0\0\0\0\0a\nb\nTWO=c\n";
	_cleanup_(journal_end) struct journal j;
	_cleanup_close_ int fd = -EBADF;

	journal_begin(&j);
	assert_int_equal(journald_open(j.path, &fd), 0);
	assert_int_equal(journald_send(fd, fields, ARRAY_SIZE(fields)), 0);
	assert_memory_equal(entry(&j), want, sizeof(want));
	assert_int_equal(journald_open("/nonexistent/socket", &fd), -ENOENT);
}

TEST(an_entry_is_bounded)
{
	_cleanup_(journal_end) struct journal j;
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *much = calloc(1, JOURNALD_MAX + 1);
	const struct journald_field f = { "MESSAGE", much };

	assert_non_null(much);
	memset(much, 'x', JOURNALD_MAX);
	journal_begin(&j);
	assert_int_equal(journald_open(j.path, &fd), 0);
	assert_int_equal(journald_send(fd, &f, 1), -EMSGSIZE);
}

/* HUTCH_LOG=debug: lines of trace.h, also to the journal. */
TEST(debug_has_trace_lines)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());
	_cleanup_(journal_end) struct journal j;
	struct trace_line line;
	const char *text;

#ifndef HUTCH_TRACE
	skip();
#endif
	journal_begin(&j);
	form(false);
	(void)setenv("HUTCH_LOG", "debug", 1);
	log_open("prog", LOG_LEVEL_WARNING);
	trace_set_sandbox("box");
	TRACE(TRACE_STATE, "here %d", 1);
	log_to_journal(j.path);
	TRACE_OF("req", TRACE_NOTE, "there");
	log_trace(false);
	TRACE(TRACE_STATE, "nowhere");
	trace_set_sandbox("");
	(void)unsetenv("HUTCH_LOG");
	text = end(&c);
	assert_int_equal(trace_parse(text, strcspn(text, "\n"), &line), 0);
	assert_string_equal(line.process, "prog");
	assert_string_equal(line.sandbox, "box");
	assert_string_equal(line.text, "here 1");
	assert_string_equal(text + strcspn(text, "\n"), "\n");
	text = entry(&j);
	assert_non_null(strstr(text, "MESSAGE=there\nPRIORITY=7\n"));
	assert_non_null(strstr(text, "HUTCH_REQUEST=req\nHUTCH_KIND=note\n"));
}

/* The variable of a service whose child writes to a file. */
TEST(another_stream_is_not_the_journal)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(false);
	(void)setenv("JOURNAL_STREAM", "8:1", 1);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("text");
	assert_non_null(strstr(end(&c), " info: text\n"));
}

TEST(with_a_timestamp)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());
	uint64_t before = clock_wall(), when;
	char want[64], *space;

	form(false);
	log_open("prog", LOG_LEVEL_INFO);
	log_warning("careful");
	(void)end(&c);
	space = strchr(c.text.data, ' ');
	assert_non_null(space);
	*space = '\0';
	assert_int_equal(clock_parse(c.text.data, &when), 0);
	assert_true(when >= before && when <= clock_wall());
	(void)snprintf(want, sizeof(want), "prog[%d] warning: careful\n", (int)getpid());
	assert_string_equal(space + 1, want);
}

TEST(on_a_terminal)
{
	_cleanup_close_ int pty = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct termios raw;
	char out[100] = "";
	struct capture c;

	if (pty < 0 || grantpt(pty) < 0 || unlockpt(pty) < 0)
		skip();
	c = begin(open(ptsname(pty), O_RDWR | O_NOCTTY | O_CLOEXEC));
	assert_int_equal(tcgetattr(c.fd, &raw), 0);
	cfmakeraw(&raw);
	assert_int_equal(tcsetattr(c.fd, TCSANOW, &raw), 0);
	form(false);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("hello");
	log_error("oh");
	assert_int_equal(dup2(c.saved, STDERR_FILENO), STDERR_FILENO);
	/* The kernel delivers it later and in pieces. */
	for (size_t n = 0; n < STRLEN("prog: hello\nprog: error: oh\n");) {
		ssize_t k = read(pty, out + n, sizeof(out) - 1 - n);

		assert_true(k > 0);
		n += (size_t)k;
	}
	assert_string_equal(out, "prog: hello\nprog: error: oh\n");
	(void)fd_close(c.saved);
	capture_done(&c);
}

TEST(levels)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_WARNING);
	assert_true(log_wants(LOG_LEVEL_ERROR) && log_wants(LOG_LEVEL_WARNING));
	assert_false(log_wants(LOG_LEVEL_INFO) || log_wants(LOG_LEVEL_DEBUG));
	log_info("not seen");
	log_warning("seen");
	assert_string_equal(end(&c), "<4>seen\n");
}

TEST(the_environment_overrides)
{
	static const struct {
		const char *wish;
		enum log_level most;
	} want[] = {
		{ "error", LOG_LEVEL_ERROR },	{ "warning", LOG_LEVEL_WARNING },
		{ "info", LOG_LEVEL_INFO },	{ "debug", LOG_LEVEL_DEBUG },
		{ "nonsense", LOG_LEVEL_INFO }, { "", LOG_LEVEL_INFO },
	};

	form(true);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		(void)setenv("HUTCH_LOG", want[i].wish, 1);
		log_open("prog", LOG_LEVEL_INFO);
		assert_true(log_wants(want[i].most));
		assert_false(log_wants(want[i].most + 1));
	}
}

TEST(a_line_cannot_be_forged)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("guest said '%s'", "x\n<3>forged \x1b[2J\xff");
	assert_string_equal(end(&c), "<6>guest said 'x\\n<3>forged \\x1b[2J\\xff'\n");
}

TEST(a_long_line_is_cut)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());
	_cleanup_free_ char *text = malloc(10001);

	memset(text, 0x1b, 10000); /* each becomes four bytes */
	text[10000] = '\0';
	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("%s", text);
	(void)end(&c);
	assert_int_equal(c.text.len, 3 + 4 * 4095 + 1);
	assert_true(str_has_prefix(c.text.data, "<6>\\x1b\\x1b"));
	assert_true(str_has_suffix(c.text.data, "\\x1b\n"));
}

TEST(errno_is_left_alone)
{
	form(true);
	log_open("prog", LOG_LEVEL_ERROR);
	errno = EXDEV;
	log_info("not wanted");
	assert_int_equal(errno, EXDEV);
	fail_arm(2, EIO); /* the write, after one allocation */
	errno = EXDEV;
	log_error("cannot be written");
	assert_true(fail_reached());
	fail_off();
	assert_int_equal(errno, EXDEV);
}

static int one_line(void)
{
	log_error("text");
	return 0;
}

TEST(sweeps)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	FAIL_SWEEP(one_line());
	/* Failed: the allocation, the write. Written: the run after these, the interrupted one,
	 * the last. */
	assert_string_equal(end(&c), "<3>text\n<3>text\n<3>text\n");
}
