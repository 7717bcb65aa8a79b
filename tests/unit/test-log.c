/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>

#include "clock.h"
#include "fail.h"
#include "fd.h"
#include "log.h"
#include "str.h"

/* Stderr goes to `fd` between begin() and end(), which gives what was written there. */
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

static void for_the_journal(void **state)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_DEBUG);
	log_error("e %d", 1);
	log_warning("w");
	log_info("i");
	log_debug("d");
	assert_string_equal(end(&c), "<3>e 1\n<4>w\n<6>i\n<7>d\n");
}

/* The variable of a service whose child writes to a file. */
static void another_stream_is_not_the_journal(void **state)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(false);
	(void)setenv("JOURNAL_STREAM", "8:1", 1);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("text");
	assert_non_null(strstr(end(&c), " info: text\n"));
}

static void with_a_timestamp(void **state)
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

static void on_a_terminal(void **state)
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
	/* The kernel hands it over in its own time and in pieces. */
	for (size_t n = 0; n < STRLEN("prog: hello\nprog: error: oh\n");) {
		ssize_t k = read(pty, out + n, sizeof(out) - 1 - n);

		assert_true(k > 0);
		n += (size_t)k;
	}
	assert_string_equal(out, "prog: hello\nprog: error: oh\n");
	(void)fd_close(c.saved);
	capture_done(&c);
}

static void levels(void **state)
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

static void the_environment_overrides(void **state)
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

static void a_line_cannot_be_forged(void **state)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	log_info("guest said '%s'", "x\n<3>forged \x1b[2J\xff");
	assert_string_equal(end(&c), "<6>guest said 'x\\n<3>forged \\x1b[2J\\xff'\n");
}

static void a_long_line_is_cut(void **state)
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

static void errno_is_left_alone(void **state)
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

static void sweeps(void **state)
{
	_cleanup_(capture_done) struct capture c = begin(memory_file());

	form(true);
	log_open("prog", LOG_LEVEL_INFO);
	FAIL_SWEEP(one_line());
	/* Struck: no memory, no write; whole: the run after these, the interrupted one, the last.
	 */
	assert_string_equal(end(&c), "<3>text\n<3>text\n<3>text\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_the_journal),
		cmocka_unit_test(another_stream_is_not_the_journal),
		cmocka_unit_test(with_a_timestamp),
		cmocka_unit_test(on_a_terminal),
		cmocka_unit_test(levels),
		cmocka_unit_test(the_environment_overrides),
		cmocka_unit_test(a_line_cannot_be_forged),
		cmocka_unit_test(a_long_line_is_cut),
		cmocka_unit_test(errno_is_left_alone),
		cmocka_unit_test(sweeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
