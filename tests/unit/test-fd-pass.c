/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/fd-pass.h"
#include "base/util.h"
#include "fail.h"

struct pair {
	int a, b;
};

static int setup(void **state)
{
	static struct pair p;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	p = (struct pair){ fds[0], fds[1] };
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	p->a = fd_close(p->a);
	p->b = fd_close(p->b);
	return 0;
}

TEST_WITH(they_arrive_in_order, setup, teardown)
{
	struct pair *p = *state;
	_cleanup_close_ int one = open("/dev/null", O_RDONLY | O_CLOEXEC),
			    two = open("/", O_PATH | O_CLOEXEC);
	int sent[] = { one, -EBADF, two }, got[4];
	char data[3];

	assert_int_equal(fd_pass(p->a, 0, "abc", 3, sent, 3), 0);
	assert_int_equal(fd_receive(p->b, 0, data, 3, got, 4), 0);
	assert_memory_equal(data, "abc", 3);
	assert_true(got[0] >= 0 && got[1] >= 0 && got[2] == -EBADF && got[3] == -EBADF);
	assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(got[1], F_GETFL) & O_PATH);
	(void)fd_close(got[0]);
	(void)fd_close(got[1]);
	assert_int_equal(fd_pass(p->a, 0, "x", 1, NULL, 0), 0);
	assert_int_equal(fd_receive(p->b, 0, data, 1, NULL, 0), 0);
	assert_int_equal(fd_receive(p->b, MSG_DONTWAIT, data, 1, NULL, 0), -EAGAIN);
}

TEST_WITH(what_was_not_expected_is_closed, setup, teardown)
{
	struct pair *p = *state;
	int sent[] = { p->a, p->a, p->a }, got[3];
	size_t fds = fail_count_fds();
	char data[3];

	assert_int_equal(fd_pass(p->a, 0, "abc", 3, sent, 3), 0);
	assert_int_equal(fd_receive(p->b, 0, data, 3, got, 2), -EBADMSG);
	assert_int_equal(fd_pass(p->a, 0, "abc", 3, sent, 3), 0);
	assert_int_equal(fd_receive(p->b, 0, data, 2, got, 3), -EBADMSG);
	assert_int_equal(fd_pass(p->a, 0, "a", 1, sent, 3), 0);
	assert_int_equal(fd_receive(p->b, 0, data, 3, got, 3), -EBADMSG);
	assert_int_equal(fail_count_fds(), fds);
}

TEST_WITH(the_other_end_goes, setup, teardown)
{
	struct pair *p = *state;
	char c;

	p->a = fd_close(p->a);
	assert_int_equal(fd_receive(p->b, 0, &c, 1, NULL, 0), -EPIPE);
	assert_int_equal(fd_pass(p->b, 0, "x", 1, NULL, 0), -EPIPE);
}
