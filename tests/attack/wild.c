/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile VM: /init of its initrd in place of hutch-guest, with its own kernel and all
 * privileges. The text after a NUL byte at the very end of its own file selects its mode; in mode
 * `obey` the first word of the command that a client asks for does. See test_machine_hostile.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "wild.h"

enum {
	TRIES = 20000, /* milliseconds to wait for a device */
	BLOCK = 4096,
	DEVICES = 8,
	SCRIBBLE = 16 << 20, /* bytes of memory */
	COM1 = 0x3f8,
	DEBUG_PORT = 0x402, /* the firmware's */
};

static char word[64]; /* the client's command */

/* ---- frames ---- */

static void get(void *data, size_t n)
{
	char *p = data;

	while (n > 0) {
		ssize_t k = read(channel, p, n);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else {
			(void)usleep(1000); /* the host end is not open yet */
		}
	}
}

/* Stores the first argument if this is an OPEN. */
static void note_word(const unsigned char *p, size_t n)
{
	while (n >= 4) {
		size_t len = (size_t)p[2] << 8 | p[3];

		if (len > n - 4)
			return;
		if (p[0] == TAG_ARGV && len < sizeof(word)) {
			memcpy(word, p + 4, len);
			word[len] = '\0';
			return;
		}
		p += 4 + len;
		n -= 4 + len;
	}
}

/* Reads frames up to one of these types and returns its channel. */
static uint32_t await(int type, int other)
{
	static unsigned char payload[1 << 20];
	unsigned char h[HEADER];
	uint32_t n, ch;

	do {
		get(h, sizeof(h));
		memcpy(&n, h, 4);
		memcpy(&ch, h + 4, 4);
		n = ntohl(n);
		if (n > sizeof(payload))
			_exit(3);
		get(payload, n);
		if (h[8] == PING)
			frame(0, PONG, 0, payload, n);
	} while (h[8] != type && h[8] != other);
	if (h[8] == OPEN)
		note_word(payload, n);
	else if (h[8] == SLEEP)
		(void)strcpy(word, "sleep");
	return ntohl(ch);
}

/* ---- a well-behaved agent's messages ---- */

/* Answers as a command that printed `text` and succeeded. */
static void answer(uint32_t ch, const char *text)
{
	say_accepted(ch);
	frame(ch, DATA, STDOUT, text, strlen(text));
	say_exit(ch, 1, 0);
	say_closed(ch, 0, NULL);
}

/* ---- attacks ---- */

static void well(uint32_t ch)
{
	answer(ch, "well\n");
}

static void garbage(uint32_t ch)
{
	(void)ch;
	say_garbage();
}

/* Sends valid frames as fast as possible and never reads. */
static void flood(uint32_t ch)
{
	(void)ch;
	for (;;)
		frame(0, PING, 0, NULL, 0);
}

static void mute(uint32_t ch)
{
	(void)ch;
	forever();
}

/* Turns off interrupts for ever. */
static void spin(uint32_t ch)
{
	(void)ch;
	if (iopl(3) == 0)
		__asm__ volatile("cli");
	for (;;)
		__asm__ volatile("");
}

/* Floods every possible console. */
static void console(uint32_t ch)
{
	int fds[] = { open("/dev/console", O_WRONLY | O_CLOEXEC),
		      open("/dev/kmsg", O_WRONLY | O_CLOEXEC),
		      open("/dev/hvc0", O_WRONLY | O_CLOEXEC) };
	int ports = iopl(3) == 0;

	(void)ch;
	memset(bytes, 'x', sizeof(bytes));
	for (;;) {
		for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
			if (fds[i] >= 0)
				(void)!write(fds[i], bytes, 512);
		for (int i = 0; ports && i < 512; i++) {
			outb('x', COM1);
			outb('x', DEBUG_PORT);
		}
	}
}

static void leave(uint32_t ch)
{
	(void)ch;
	(void)reboot(RB_AUTOBOOT);
}

static void off(uint32_t ch)
{
	(void)ch;
	(void)reboot(RB_POWER_OFF);
}

static void panic(uint32_t ch)
{
	(void)ch;
	_exit(0);
}

/* ---- disks ---- */

static int disk(const char *path, int flags)
{
	for (int i = 0; i < TRIES; i++) {
		int fd = open(path, flags | O_CLOEXEC);

		if (fd >= 0 || errno != ENOENT)
			return fd;
		(void)usleep(1000);
	}
	return -1;
}

static const char *result(ssize_t r)
{
	return r < 0 ? strerrorname_np(errno) : "ok";
}

static void write_disk(char *text, size_t size, const char *path)
{
	static unsigned char block[BLOCK] __attribute__((aligned(BLOCK)));
	uint64_t all[2] = { 0, 1 << 20 };
	int off = 0, fd = disk(path, O_RDWR), read_only = disk(path, O_RDONLY | O_DIRECT);
	const char *opened = result(fd), *changed = result(ioctl(read_only, BLKROSET, &off));
	const char *read_it = result(pread(read_only, block, sizeof(block), 0)), *dropped, *written;

	(void)close(fd);
	fd = open(path, O_RDWR | O_DIRECT | O_SYNC | O_CLOEXEC);
	memset(block, 0x5a, sizeof(block));
	written = result(pwrite(fd, block, sizeof(block), 0));
	dropped = result(ioctl(fd, BLKDISCARD, all));
	(void)snprintf(text + strlen(text), size - strlen(text),
		       "%s: open %s, unlock %s, read %s, write %s, discard %s\n", path, opened,
		       changed, read_it, written, dropped);
}

static void disks(uint32_t ch)
{
	char text[1024] = "";

	write_disk(text, sizeof(text), "/dev/vda");
	write_disk(text, sizeof(text), "/dev/vdb");
	answer(ch, text);
}

static void open_port(void)
{
	char path[32];

	for (int i = 0; i < TRIES * DEVICES && channel < 0; i++) {
		(void)snprintf(path, sizeof(path), "/dev/vport%dp1", i % DEVICES);
		channel = open(path, O_RDWR | O_CLOEXEC);
		if (channel < 0)
			(void)usleep(1000 / DEVICES);
	}
	if (channel < 0)
		_exit(3);
}

/* Bypasses the kernel. The channel's device is unbound and bound together with the disks. */
static void devices(uint32_t ch)
{
	char text[1024] = "";

	(void)close(channel);
	channel = -1;
	virtio_disks(text, sizeof(text));
	open_port();
	answer(ch, text);
}

/* ---- memory ---- */

/* Reports and then overwrites memory that a clone shares with others until it writes. */
static void memory(uint32_t ch)
{
	static char mark[] = "clean";
	char text[64];
	char *p = mmap(NULL, SCRIBBLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)snprintf(text, sizeof(text), "%s, %s\n", mark,
		       p == MAP_FAILED ? "no memory" : "wrote");
	if (p != MAP_FAILED) {
		memset(p, 0x5a, SCRIBBLE);
		(void)munmap(p, SCRIBBLE);
	}
	memcpy(mark, "DIRTY", sizeof(mark));
	answer(ch, text);
}

static void never_asleep(uint32_t ch)
{
	(void)ch;
	forever();
}

static const struct {
	const char *name;
	void (*run)(uint32_t ch);
} modes[] = {
	{ "well", well },	   { "garbage", garbage }, { "flood", flood },
	{ "mute", mute },	   { "spin", spin },	   { "console", console },
	{ "leave", leave },	   { "off", off },	   { "panic", panic },
	{ "disks", disks },	   { "devices", devices }, { "memory", memory },
	{ "sleep", never_asleep },
};

static void act(const char *name, uint32_t ch)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].name, name) == 0)
			modes[i].run(ch);
}

/* ---- boot ---- */

static void load_modules(void)
{
	FILE *f = fopen("/lib/modules-list", "re");
	char path[256];

	while (f && fgets(path, sizeof(path), f)) {
		int fd;

		path[strcspn(path, "\n")] = '\0';
		fd = open(path, O_RDONLY | O_CLOEXEC);
		(void)syscall(SYS_finit_module, fd, "", 0);
		(void)close(fd);
	}
}

static void boot(void)
{
	(void)mkdir("/dev", 0755);
	(void)mkdir("/proc", 0755);
	(void)mkdir("/sys", 0755);
	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("proc", "/proc", "proc", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	load_modules();
	(void)close(disk("/dev/vdb", O_RDONLY));
	open_port();
}

int main(void)
{
	const char *name = mode_of("/init");

	if (strcmp(name, "dead") == 0)
		return 0;
	boot();
	if (strcmp(name, "obey") != 0) { /* at once, without waiting for the keeper */
		act(name, 0);
		forever();
	}
	(void)await(HELLO, HELLO);
	say_hello("wild", 1);
	for (;;)
		act(word, await(OPEN, SLEEP));
}
