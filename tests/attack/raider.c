/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile agent: runs in place of hutch-guest, as PID 1 with the channel as descriptor 3, and
 * sends harmful data. The text after a NUL byte at the very end of its own file selects the mode;
 * the test has no other way to reach it.
 *
 * Every mode first waits for the keeper's HELLO. Most modes then behave until a client asks for a
 * command, and break one rule. No mode exits by itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

enum {
	CHANNEL = 3,
	FDS = 200,
};

/* ---- frames ---- */

static void get(void *data, size_t n)
{
	char *p = data;

	while (n > 0) {
		ssize_t k = read(CHANNEL, p, n);

		if (k <= 0)
			_exit(0);
		p += k;
		n -= (size_t)k;
	}
}

/* Reads frames up to one of this type and returns its channel. */
static uint32_t await(int type)
{
	unsigned char h[HEADER], drop[4096];
	uint32_t n, ch;

	do {
		get(h, sizeof(h));
		memcpy(&n, h, 4);
		memcpy(&ch, h + 4, 4);
		for (n = ntohl(n); n > 0;) {
			size_t k = n < sizeof(drop) ? n : sizeof(drop);

			get(drop, k);
			n -= (uint32_t)k;
		}
	} while (h[8] != type);
	return ntohl(ch);
}

/* ---- a well-behaved agent's messages ---- */

static void hello(void)
{
	say_hello("raider", 1);
}

static void data(uint32_t ch, int stream, size_t n)
{
	put_head((uint32_t)n, ch, DATA, stream, 0);
	put(bytes, n);
}

/* ---- instead of the answer to HELLO ---- */

static void garbage(uint32_t ch)
{
	say_garbage();
}

static void half(uint32_t ch)
{
	put("\0\0\0", 3);
}

static void version(uint32_t ch)
{
	say_hello("raider", 2);
}

static void hellos(uint32_t ch)
{
	for (;;)
		hello();
}

static void early(uint32_t ch)
{
	data(2, 1, 1);
}

static void huge(uint32_t ch)
{
	put_head(1U << 30, 0, HELLO, 0, 0);
	for (;;)
		put(bytes, sizeof(bytes));
}

static void fields(uint32_t ch)
{
	struct payload p = { .data = "\xc8\xff\xff\xffxx", .n = 6 };

	frame_of(0, HELLO, 0, &p);
}

static void leave(uint32_t ch)
{
	(void)close(CHANNEL);
}

static void end(uint32_t ch)
{
	_exit(0);
}

/* ---- after a client's OPEN: break one rule ---- */

static void without_credit(uint32_t ch)
{
	say_accepted(ch);
	for (;;)
		data(ch, 1, PAYLOAD_MAX);
}

static void unknown_channel(uint32_t ch)
{
	say_exit(ch + 2, 1, 0);
}

static void accept_twice(uint32_t ch)
{
	say_accepted(ch);
	say_accepted(ch);
}

static void data_first(uint32_t ch)
{
	data(ch, 1, 1);
}

static void after_eof(uint32_t ch)
{
	say_accepted(ch);
	frame(ch, END, 1, NULL, 0);
	data(ch, 1, 1);
}

static void after_close(uint32_t ch)
{
	say_accepted(ch);
	say_closed(ch, 0, NULL);
	(void)await(CLOSE);
	data(ch, 1, 1);
}

static void own_open(uint32_t ch)
{
	frame(1, OPEN, 1, NULL, 0);
}

static void credit(uint32_t ch)
{
	struct payload p = { .data = "\xff\xff\xff\xff", .n = 4 };

	say_accepted(ch);
	frame_of(ch, CREDIT, 0, &p);
}

static void no_credit(uint32_t ch)
{
	struct payload p = { .n = 4 };

	say_accepted(ch);
	frame_of(ch, CREDIT, 0, &p);
}

static void stream(uint32_t ch)
{
	say_accepted(ch);
	data(ch, 3, 1);
}

static void reserved(uint32_t ch)
{
	put_head(0, ch, ACCEPT, 0, 1);
}

static void type(uint32_t ch)
{
	put_head(0, ch, CLOSE + 4, 0, 0); /* one above WAKE, the last type */
}

static void too_long(uint32_t ch)
{
	say_accepted(ch);
	put_head(PAYLOAD_MAX + 1, ch, DATA, 1, 0);
}

static void two_ends(uint32_t ch)
{
	say_accepted(ch);
	say_exit(ch, 1, 1);
}

static void late_hello(uint32_t ch)
{
	hello();
}

/* ---- break no rule ---- */

static void mute(uint32_t ch)
{
}

/* Sends codes that are reserved for the keeper or undefined, with text that would act on a
 * terminal. */
static void codes(uint32_t ch)
{
	for (uint64_t code = 14; code <= 255; code++) {
		say_closed(ch, code, "\x1b]0;owned\x07\x1b[2J\nhutch run: forged\xe2\x80\xae");
		ch = await(OPEN);
	}
}

static void lie(uint32_t ch)
{
	say_accepted(ch);
	say_exit(ch, 1, 0);
	say_exit(ch, 0, 1);
	data(ch, 1, 1);
	say_closed(ch, 0, NULL);
}

/* Stops reading but keeps its end open for writing: data sent to it waits for ever. */
static void deaf(uint32_t ch)
{
	(void)shutdown(CHANNEL, SHUT_RD);
	forever();
}

static void numbers(int type)
{
	unsigned char h[HEADER + 8] = { [3] = 8, [8] = (unsigned char)type };

	for (size_t i = 0; i + sizeof(h) <= sizeof(bytes); i += sizeof(h))
		memcpy(bytes + i, h, sizeof(h));
	for (;;)
		put(bytes, sizeof(bytes) / sizeof(h) * sizeof(h));
}

/* Each PING needs an answer, and this agent reads no answers. */
static void pings(uint32_t ch)
{
	numbers(PING);
}

/* Sends descriptors, in case the keeper accepts them. */
static void rights(uint32_t ch)
{
	static union {
		char space[CMSG_SPACE(FDS * sizeof(int))];
		struct cmsghdr align;
	} u;
	unsigned char h[HEADER + 8] = { [3] = 8, [8] = PONG };
	struct iovec iov = { h, sizeof(h) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = &u.align;

	m.msg_control = u.space;
	m.msg_controllen = sizeof(u.space);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(FDS * sizeof(int));
	for (int i = 0; i < FDS; i++)
		memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &(int){ CHANNEL }, sizeof(int));
	for (int i = 0; i < 1000; i++)
		if (sendmsg(CHANNEL, &m, 0) < 0)
			break;
	say_accepted(ch);
	say_exit(ch, 1, 0);
	say_closed(ch, 0, NULL);
}

static void urgent(uint32_t ch)
{
	(void)send(CHANNEL, "!", 1, MSG_OOB);
	say_accepted(ch);
	(void)send(CHANNEL, "!", 1, MSG_OOB);
}

/* ---- harm that PID 1 can do to its host ---- */

static int open_rw(const char *path)
{
	return open(path, O_RDWR | O_CLOEXEC);
}

static int open_truncate(const char *path)
{
	return open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
}

static int make_writable(const char *path)
{
	return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL);
}

static int uncover(const char *path)
{
	return umount2(path, MNT_DETACH);
}

static int change_mode(const char *path)
{
	return chmod(path, 0777);
}

static int change_owner(const char *path)
{
	return chown(path, 0, 0);
}

static int make_disk(const char *path)
{
	return mknod(path, S_IFBLK | 0600, 0xfe00);
}

static int raw_socket(const char *path)
{
	return socket(AF_INET, SOCK_RAW, 1);
}

static int write_knob(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "0", 1) < 0 ? -1 : 0;
}

static int leave_root(const char *path)
{
	return chroot(path);
}

static const struct {
	const char *what, *path;
	int (*try)(const char *path);
} tries[] = {
	{ "write agent", "/dev/hutch-guest", open_rw },
	{ "truncate agent", "/dev/hutch-guest", open_truncate },
	{ "write exe", "/proc/self/exe", open_rw },
	{ "chmod agent", "/dev/hutch-guest", change_mode },
	{ "chown agent", "/dev/hutch-guest", change_owner },
	{ "chmod null", "/dev/null", change_mode },
	{ "remount agent", "/dev/hutch-guest", make_writable },
	{ "remount sys", "/proc/sys", make_writable },
	{ "uncover kallsyms", "/proc/kallsyms", uncover },
	{ "uncover agent", "/dev/hutch-guest", uncover },
	{ "block device", "/tmp/disk", make_disk },
	{ "raw socket", "", raw_socket },
	{ "core pattern", "/proc/sys/kernel/core_pattern", write_knob },
	{ "chroot", "/tmp", leave_root },
	{ "write own", "/root/mine", write_knob },
};

static void reports(uint32_t ch)
{
	(void)close(open("/root/mine", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	say_accepted(ch);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		int r = tries[i].try(tries[i].path);
		char line[128];
		int n = snprintf(line, sizeof(line), "%s: %s\n", tries[i].what,
				 r < 0 ? strerrorname_np(errno) : "ok");

		put_head((uint32_t)n, ch, DATA, 1, 0);
		put(line, (size_t)n);
	}
	say_exit(ch, 1, 0);
	say_closed(ch, 0, NULL);
}

/* ---- */

static const struct {
	const char *name;
	void (*before)(uint32_t ch); /* instead of HELLO */
	void (*after)(uint32_t ch);  /* instead of the answer to a client */
} modes[] = {
	{ "half", half, NULL },
	{ "garbage", garbage, NULL },
	{ "version", version, NULL },
	{ "hellos", hellos, NULL },
	{ "early", early, NULL },
	{ "huge", huge, NULL },
	{ "fields", fields, NULL },
	{ "leave", leave, NULL },
	{ "end", end, NULL },
	{ "without-credit", NULL, without_credit },
	{ "unknown-channel", NULL, unknown_channel },
	{ "accept-twice", NULL, accept_twice },
	{ "data-first", NULL, data_first },
	{ "after-eof", NULL, after_eof },
	{ "after-close", NULL, after_close },
	{ "own-open", NULL, own_open },
	{ "credit", NULL, credit },
	{ "no-credit", NULL, no_credit },
	{ "stream", NULL, stream },
	{ "reserved", NULL, reserved },
	{ "type", NULL, type },
	{ "too-long", NULL, too_long },
	{ "two-ends", NULL, two_ends },
	{ "late-hello", NULL, late_hello },
	{ "late-garbage", NULL, garbage },
	{ "late-leave", NULL, leave },
	{ "late-end", NULL, end },
	{ "mute", NULL, mute },
	{ "codes", NULL, codes },
	{ "lie", NULL, lie },
	{ "deaf", NULL, deaf },
	{ "pings", NULL, pings },
	{ "rights", NULL, rights },
	{ "urgent", NULL, urgent },
	{ "reports", NULL, reports },
};

int main(void)
{
	const char *name = mode_of("/proc/self/exe");

	channel = CHANNEL;
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, name) != 0)
			continue;
		(void)await(HELLO);
		if (modes[i].before) {
			modes[i].before(0);
			forever();
		}
		hello();
		for (;;)
			modes[i].after(await(OPEN));
	}
	return 3;
}
