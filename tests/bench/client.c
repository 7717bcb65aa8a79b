/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of a keeper's socket that runs one command after the other and prints how many
 * nanoseconds all of them took and how many bytes they wrote.
 *
 *   bench-client SOCKET COUNT PROGRAM [ARGUMENT...]
 *
 * SOCKET is a path, or fd:NUMBER for an inherited descriptor (a guest without a keeper). The client
 * connects and exchanges HELLO before the clock starts. A failed command ends the measurement.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/link.h"

enum {
	COUNT_MAX = 1000000,
	READ_SIZE = 128 * 1024, /* more than a whole DATA frame */
};

struct client {
	int fd;
	char **argv;
	bool direct; /* connected to a guest */
	bool greeted, running, exited;
	uint64_t bytes;
	struct err e; /* set by a callback that found an error */
};

static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	struct client *c = arg;

	c->greeted = true;
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct client *c = arg;

	c->bytes += n;
	if (stream == 2)
		(void)fwrite(data, 1, n, stderr);
	(void)link_consumed(l, ch, stream, n);
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct client *c = arg;

	if (kind != WIRE_MSG_EXIT)
		return;
	c->exited = true;
	if (!fields_has(f, TAG_CODE) || fields_number(f, TAG_CODE, 0) != 0)
		(void)err_set(&c->e, -EIO, "'%s' ended with code %llu, signal %llu", c->argv[0],
			      (unsigned long long)fields_number(f, TAG_CODE, 0),
			      (unsigned long long)fields_number(f, TAG_SIGNAL, 0));
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct client *c = arg;
	uint64_t code = fields_number(f, TAG_CODE, 0);
	_cleanup_free_ char *text = NULL;
	bool oom = false;

	c->running = false;
	text = fields_copy(f, TAG_TEXT, &oom);
	if (code != 0 || !c->exited)
		(void)err_set(&c->e, -EIO, "'%s': %s: %s", c->argv[0], wire_code_name(code),
			      text ? text : "");
}

static const struct link_ops ops = {
	.hello = on_hello,
	.data = on_data,
	.msg = on_msg,
	.closed = on_closed,
};

static int dial(const char *name, int *ret, struct err *e)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -EBADF;

	if (strncmp(name, "fd:", 3) == 0) {
		*ret = (int)strtol(name + 3, NULL, 10);
		return 0;
	}
	if (strlen(name) >= sizeof(addr.sun_path))
		return err_set(e, -ENAMETOOLONG, "'%s' is too long for a socket", name);
	(void)memcpy(addr.sun_path, name, strlen(name) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_errno(e, "cannot connect to '%s'", name);
	*ret = TAKE_FD(fd);
	return 0;
}

/* Writes all pending data, then reads once. Pending data is small, so the write never blocks for
 * long. */
static int turn(struct client *c, struct link *l)
{
	static char block[READ_SIZE];
	size_t n;
	const void *out = link_pending(l, &n);
	ssize_t got;
	int r = n ? fd_write_all(c->fd, out, n) : 0;

	if (r < 0)
		return err_set(&c->e, r, "cannot write to the keeper: %s", strerror(-r));
	link_wrote(l, n);
	do
		got = read(c->fd, block, sizeof(block));
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_errno(&c->e, "cannot read from the keeper");
	if (got == 0)
		return err_set(&c->e, -EPIPE, "the keeper has ended the connection");
	r = link_feed(l, block, (size_t)got, &c->e);
	return r < 0 ? r : c->e.num;
}

static int greet(struct client *c, struct link *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);
	int r;

	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	/* Only for a guest: a keeper has sent its own and accepts none from a client. */
	if (c->direct) {
		fields_put_text(&b, TAG_WRITE, "/");
		fields_put_text(&b, TAG_EXECUTE, "/");
	}
	r = link_hello(l, &b);
	while (r == 0 && !c->greeted)
		r = turn(c, l);
	return r;
}

static int run_once(struct client *c, struct link *l, const struct buf *fields)
{
	uint32_t ch;
	int r = link_open(l, WIRE_OP_EXEC, fields, NULL, &ch);

	if (r < 0)
		return err_set(&c->e, r, "cannot ask for a command: %s", strerror(-r));
	c->running = true;
	c->exited = false;
	while (r == 0 && c->running)
		r = turn(c, l);
	return r;
}

static int run(struct client *c, unsigned long count, uint64_t *ret_ns)
{
	_cleanup_buf_ struct buf fields = BUF_INIT(WIRE_OPEN_MAX);
	_cleanup_link_ struct link *l = NULL;
	uint64_t begin;
	int r = link_new(LINK_KEEPER, &ops, c, &l);

	if (r < 0)
		return err_oom(&c->e);
	if (!c->direct)
		link_with_client(l);
	for (char **a = c->argv; *a; a++)
		fields_put_text(&fields, TAG_ARGV, *a);
	r = greet(c, l);
	begin = clock_mono();
	for (unsigned long i = 0; r == 0 && i < count; i++)
		r = run_once(c, l, &fields);
	*ret_ns = clock_mono() - begin;
	return r;
}

int main(int argc, char **argv)
{
	struct client c = { .fd = -EBADF };
	unsigned long count = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t ns = 0;
	int r;

	if (count == 0 || count > COUNT_MAX) {
		(void)fprintf(stderr, "usage: bench-client SOCKET COUNT PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	c.argv = argv + 3;
	c.direct = strncmp(argv[1], "fd:", 3) == 0;
	r = dial(argv[1], &c.fd, &c.e);
	if (r == 0)
		r = run(&c, count, &ns);
	if (r < 0)
		(void)fprintf(stderr, "bench-client: %s\n", c.e.msg);
	else
		(void)printf("%llu %llu\n", (unsigned long long)ns, (unsigned long long)c.bytes);
	return r < 0;
}
