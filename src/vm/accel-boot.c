/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boots a guest to test whether KVM works: the same kind of VM, kernel and initrd as for sandboxes,
 * with empty disks. The test passes when the guest has mounted both disks, locked down its kernel
 * and opened the channel. It runs no user code and is always killed. So QEMU needs no jail here: it
 * runs as the caller, with its own syscall filter.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "engine/qemu.h"
#include "engine/qmp.h"
#include "vm/accel-inner.h"

enum {
	GUEST_MEMORY = 256 << 20,
	ROOT_SIZE = 1 << 20,
};

struct boot {
	int channel, qmp, said; /* our ends; `said` reads QEMU's stderr */
	struct proc qemu;
	struct buf line;
	uint64_t deadline;
};

static void boot_done(struct boot *b)
{
	proc_done(&b->qemu);
	(void)fd_close(b->channel);
	(void)fd_close(b->qmp);
	(void)fd_close(b->said);
	buf_done(&b->line);
}

/* QEMU's descriptors: 2, and 3 onwards. */
struct ends {
	int err, more[QEMU_FD_DISK - 2];
};

static void ends_done(struct ends *n)
{
	(void)fd_close(n->err);
	for (size_t i = 0; i < ARRAY_SIZE(n->more); i++)
		(void)fd_close(n->more[i]);
}

/* QEMU expects a descriptor opened the way it would open the file itself. */
static int make_root(int *ret)
{
	char root[ACCEL_ROOT_SIZE];
	_cleanup_close_ int fd = memfd_create("hutch-accel", MFD_CLOEXEC);
	char path[64];
	int r;

	accel_empty_root(root);
	if (fd < 0 || ftruncate(fd, ROOT_SIZE) < 0)
		return -errno;
	r = fd_write_all(fd, root, sizeof(root));
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret = open(path, O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

static int make_pair(int *ours, int *theirs)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ours = fds[0];
	*theirs = fds[1];
	return 0;
}

static int make_ends(struct boot *b, int disk, struct ends *n)
{
	int r = fd_pipe(O_NONBLOCK, &b->said, &n->err);

	if (r < 0)
		return r;
	r = make_pair(&b->channel, &n->more[QEMU_FD_CHANNEL - 3]);
	if (r == 0)
		r = make_pair(&b->qmp, &n->more[QEMU_FD_QMP - 3]);
	if (r == 0)
		r = make_root(&n->more[QEMU_FD_ROOT - 3]);
	if (r < 0)
		return r;
	n->more[QEMU_FD_DISK - 3] = fcntl(disk, F_DUPFD_CLOEXEC, 0);
	return n->more[QEMU_FD_DISK - 3] < 0 ? -errno : 0;
}

/* Replaces paths inside the jail by real paths. */
static void name_files(const char **argv, const char *kernel, const char *initrd)
{
	for (; *argv; argv++)
		if (str_eq(*argv, QEMU_KERNEL))
			*argv = kernel;
		else if (str_eq(*argv, QEMU_INITRD))
			*argv = initrd;
}

static int start(struct boot *b, const char *qemu, const char *kernel, const char *initrd, int disk,
		 struct err *e)
{
	static const struct qemu_machine machine = {
		.start = VM_BOOT, .kvm = true, .memory = GUEST_MEMORY, .vcpus = 1
	};
	_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX);
	_cleanup_(ends_done) struct ends n = { -EBADF, { -EBADF, -EBADF, -EBADF, -EBADF } };
	const char *argv[QEMU_ARGS_MAX] = { NULL };
	struct proc_spec spec = { .path = qemu, .argv = argv, .in = -EBADF, .out = -EBADF };
	int r = make_ends(b, disk, &n);

	if (r == 0)
		r = qemu_arguments(&machine, qemu, &text, argv);
	if (r < 0)
		return err_set(e, r, "cannot prepare a guest: %s", strerror(-r));
	name_files(argv, kernel, initrd);
	spec.err = n.err;
	spec.more = n.more;
	spec.n_more = ARRAY_SIZE(n.more);
	spec.own_session = true;
	return proc_spawn(&spec, &b->qemu, e);
}

/* The last line of QEMU's stderr, as far as the pipe holds it. */
static void last_words(struct boot *b, char *out, size_t n)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(8192);
	char text[2048];
	char *line = text, *end;
	ssize_t got = read(b->said, text, sizeof(text) - 1);

	out[0] = '\0';
	if (got <= 0)
		return;
	text[got] = '\0';
	while ((end = strchr(line, '\n')) && end[1])
		line = end + 1;
	(void)str_escape(&shown, line, strcspn(line, "\n"));
	(void)snprintf(out, n, "%s", buf_text(&shown));
	str_make_utf8(out);
}

/* The result that a QMP line decides; ACCEL_NOT_TRIED if none. */
static enum accel_boot judge_line(const char *line, size_t n)
{
	switch (qmp_read_line(line, n)) {
	case QMP_PORT_OPEN:
		return ACCEL_BOOTED;
	case QMP_STOP:
		return ACCEL_STOPPED;
	case QMP_ERROR:
	case QMP_SHUTDOWN:
	case QMP_WRONG:
		return ACCEL_ENDED;
	default:
		return ACCEL_NOT_TRIED;
	}
}

static enum accel_boot judge_lines(struct boot *b)
{
	enum accel_boot r = ACCEL_NOT_TRIED;
	char *end;

	while (r == ACCEL_NOT_TRIED && b->line.len > 0 &&
	       (end = memchr(b->line.data, '\n', b->line.len))) {
		size_t n = (size_t)(end - b->line.data);

		r = judge_line(b->line.data, n);
		buf_consume(&b->line, n + 1);
	}
	return r;
}

/* Reads what is available. The socket closes when QEMU exits. */
static enum accel_boot read_some(struct boot *b)
{
	char *at = buf_reserve(&b->line, 1024);
	ssize_t n = at ? read(b->qmp, at, 1024) : 0;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return ACCEL_NOT_TRIED;
	if (n <= 0)
		return ACCEL_ENDED;
	buf_commit(&b->line, (size_t)n);
	return judge_lines(b);
}

static enum accel_boot listen_for_it(struct boot *b)
{
	enum accel_boot r = ACCEL_NOT_TRIED;

	while (r == ACCEL_NOT_TRIED) {
		uint64_t now = clock_mono();
		struct pollfd p = { .fd = b->qmp, .events = POLLIN };
		int n;

		if (now >= b->deadline)
			return ACCEL_LATE;
		n = poll(&p, 1, (int)((b->deadline - now) / NSEC_PER_MSEC) + 1);
		if (n < 0 && errno != EINTR)
			return ACCEL_ENDED;
		if (n > 0)
			r = read_some(b);
	}
	return r;
}

int accel_boot(const char *qemu, const char *kernel, const char *initrd, int disk,
	       uint64_t deadline_ms, struct accel_tried *ret, struct err *e)
{
	static const char go[] = "{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"cont\"}\n";
	_cleanup_(boot_done) struct boot b = { .channel = -EBADF,
					       .qmp = -EBADF,
					       .said = -EBADF,
					       .qemu = PROC_INIT,
					       .line = BUF_INIT(QMP_LINE_MAX + 1024) };
	struct accel_tried tried = { .deadline_ms = deadline_ms };
	int r;

	b.deadline = clock_mono() + deadline_ms * NSEC_PER_MSEC;
	r = start(&b, qemu, kernel, initrd, disk, e);
	if (r < 0)
		return r;
	/* If QEMU exits at once, its output reports that; SIGPIPE must not kill us. */
	if (send(b.qmp, go, sizeof(go) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(go) - 1)
		tried.boot = listen_for_it(&b);
	else
		tried.boot = ACCEL_ENDED;
	if (tried.boot == ACCEL_ENDED)
		last_words(&b, tried.text, sizeof(tried.text));
	*ret = tried;
	return 0;
}
