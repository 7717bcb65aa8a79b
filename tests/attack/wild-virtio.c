/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A minimal driver for virtio-mmio disks without a kernel's checks: it sends requests that a guest
 * with a hostile kernel could send. The registers are those of virtio 1.1, section 4.2.2; it uses
 * /dev/mem after it has unbound the kernel's drivers.
 */
#include "wild.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DRIVER "/sys/bus/platform/drivers/virtio-mmio/"

enum {
	BASE = 0xfeb00000, /* in QEMU's microvm */
	SLOT = 512,
	SLOTS = 24,
	PAGE = 4096,
	NAMES = 32,
	WAIT_MS = 2000,
	/* registers */
	MAGIC = 0x000,
	DEVICE = 0x008,
	OFFERED = 0x010,
	OFFERED_WORD = 0x014,
	TAKEN = 0x020,
	TAKEN_WORD = 0x024,
	QUEUE = 0x030,
	QUEUE_SIZE = 0x038,
	QUEUE_READY = 0x044,
	NOTIFY = 0x050,
	STATUS = 0x070,
	DESCRIPTORS = 0x080,
	AVAILABLE = 0x090,
	USED = 0x0a0,
	/* values */
	IS_DISK = 2,
	READ_ONLY = 1 << 5, /* a feature bit */
	ENTRIES = 8,
	IN = 0,
	OUT = 1,
	PENDING = 0xff,
	/* offsets in our page */
	AT_AVAILABLE = 256,
	AT_USED = 512,
	AT_REQUEST = 1024,
	AT_STATUS = 1100,
	AT_DATA = 2048,
	SECTOR = 512,
};

struct descriptor {
	uint64_t at;
	uint32_t n;
	uint16_t flags, next;
};

static volatile uint32_t *at(volatile unsigned char *slot, int reg)
{
	return (volatile uint32_t *)(slot + reg);
}

/* Returns the physical address of a page that is locked in memory. */
static uint64_t physical(const void *page)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	(void)!pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)page / PAGE * sizeof(entry)));
	(void)close(fd);
	return (entry & ((UINT64_C(1) << 55) - 1)) * PAGE;
}

static void set_address(volatile unsigned char *slot, int reg, uint64_t address)
{
	*at(slot, reg) = (uint32_t)address;
	*at(slot, reg + 4) = (uint32_t)(address >> 32);
}

/* Follows the specification but accepts no feature, not even READ_ONLY. */
static void begin(volatile unsigned char *slot, uint64_t page)
{
	*at(slot, STATUS) = 0;
	*at(slot, STATUS) = 1 | 2;
	*at(slot, TAKEN_WORD) = 0;
	*at(slot, TAKEN) = 0;
	*at(slot, TAKEN_WORD) = 1;
	*at(slot, TAKEN) = 1; /* version 1 */
	*at(slot, STATUS) = 1 | 2 | 8;
	*at(slot, QUEUE) = 0;
	*at(slot, QUEUE_SIZE) = ENTRIES;
	set_address(slot, DESCRIPTORS, page);
	set_address(slot, AVAILABLE, page + AT_AVAILABLE);
	set_address(slot, USED, page + AT_USED);
	*at(slot, QUEUE_READY) = 1;
	*at(slot, STATUS) = 1 | 2 | 4 | 8;
}

/* Returns the disk's status for a request on its first sector: 0 is success. */
static int ask(volatile unsigned char *slot, unsigned char *page, uint32_t what)
{
	const uint64_t base = physical(page);
	volatile unsigned char *answer = page + AT_STATUS;
	struct descriptor *d = (struct descriptor *)page;
	uint16_t *available = (uint16_t *)(page + AT_AVAILABLE);

	memset(page, 0, PAGE);
	memset(page + AT_DATA, 0x5a, SECTOR);
	memcpy(page + AT_REQUEST, &what, sizeof(what));
	*answer = PENDING;
	d[0] = (struct descriptor){ base + AT_REQUEST, 16, 1, 1 };
	d[1] = (struct descriptor){ base + AT_DATA, SECTOR, what == IN ? 1 | 2 : 1, 2 };
	d[2] = (struct descriptor){ base + AT_STATUS, 1, 2, 0 };
	available[1] = 1;
	begin(slot, base);
	__sync_synchronize();
	*at(slot, NOTIFY) = 0;
	for (int i = 0; i < WAIT_MS && *answer == PENDING; i++)
		(void)usleep(1000);
	*at(slot, STATUS) = 0;
	return *answer;
}

static void ask_all(volatile unsigned char *slots, char *text, size_t size)
{
	unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);

	for (int i = 0; page != MAP_FAILED && i < SLOTS; i++) {
		volatile unsigned char *slot = slots + i * SLOT;
		int read_only, in, out;

		if (*at(slot, MAGIC) != 0x74726976 || *at(slot, DEVICE) != IS_DISK)
			continue;
		*at(slot, OFFERED_WORD) = 0;
		read_only = (*at(slot, OFFERED) & READ_ONLY) != 0;
		in = ask(slot, page, IN);
		out = ask(slot, page, OUT);
		(void)snprintf(text + strlen(text), size - strlen(text), "%s: read %d, write %d\n",
			       read_only ? "image" : "own", in, out);
	}
}

/* ---- the drivers ---- */

static size_t list(char names[static NAMES][64])
{
	DIR *d = opendir(DRIVER);
	const struct dirent *de;
	size_t n = 0;

	while (d && n < NAMES && (de = readdir(d)))
		if (strchr(de->d_name, ':') && strlen(de->d_name) < sizeof(names[0]))
			(void)snprintf(names[n++], sizeof(names[0]), "%.60s", de->d_name);
	if (d)
		(void)closedir(d);
	return n;
}

static void tell(const char *file, const char *name)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	(void)!write(fd, name, strlen(name));
	(void)close(fd);
}

void virtio_disks(char *text, size_t size)
{
	char names[NAMES][64];
	size_t n = list(names);
	int fd = open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC);
	void *slots;

	for (size_t i = 0; i < n; i++)
		tell(DRIVER "unbind", names[i]);
	slots = mmap(NULL, SLOT * SLOTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, BASE);
	if (slots == MAP_FAILED)
		(void)snprintf(text + strlen(text), size - strlen(text), "/dev/mem: %s\n",
			       strerror(errno));
	else
		ask_all(slots, text, size);
	for (size_t i = 0; i < n; i++)
		tell(DRIVER "bind", names[i]);
}
