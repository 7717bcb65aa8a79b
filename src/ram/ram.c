/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces mmap(3) in QEMU: see ram.h. Any failure is one of QEMU's mmap(3), after which it exits.
 */
#include "ram/ram.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	/* Mappings of one process are limited (vm.max_map_count, 65,530). Each piece of data is
	 * one, and so is each hole. */
	PIECES_MAX = 16384,
	PAGE = 4096,
};

/* A snapshot's file is mapped in pieces of data. Holes shorter than `gap` belong to the piece. */
struct piece {
	off_t from, to;
};

static bool mapped;

static void *plain(void *address, size_t n, int prot, int flags, int fd, off_t offset)
{
	long at = syscall(SYS_mmap, address, n, prot, flags, fd, offset);
	void *ret;

	memcpy(&ret, &at, sizeof(ret));
	return ret;
}

static size_t wanted_size(void)
{
	const char *text = getenv(RAM_SIZE);

	return text ? (size_t)strtoull(text, NULL, 10) : 0;
}

/* The next piece at or after p->to. 1; 0: there is none; -1: an error. */
static int next_piece(struct piece *p, off_t gap, off_t size)
{
	off_t data = p->to < size ? lseek(RAM_FD_MEMORY, p->to, SEEK_DATA) : -1;

	if (data < 0)
		return p->to >= size || errno == ENXIO ? 0 : -1;
	p->from = data / PAGE * PAGE;
	do {
		p->to = lseek(RAM_FD_MEMORY, data, SEEK_HOLE);
		if (p->to < 0)
			return -1;
		p->to = (p->to + PAGE - 1) / PAGE * PAGE;
		data = p->to < size ? lseek(RAM_FD_MEMORY, p->to, SEEK_DATA) : -1;
	} while (data >= 0 && data - p->to < gap);
	if (p->to > size)
		p->to = size;
	return 1;
}

static long count_pieces(off_t gap, off_t size)
{
	struct piece p = { 0 };
	long n = 0;
	int r;

	while ((r = next_piece(&p, gap, size)) > 0)
		n++;
	return r < 0 ? -1 : n;
}

static int map_pieces(char *address, off_t size, int prot)
{
	struct piece p = { 0 };
	off_t gap = PAGE;
	long n;
	int r;

	while ((n = count_pieces(gap, size)) > PIECES_MAX)
		gap *= 2;
	if (n < 0)
		return -1;
	while ((r = next_piece(&p, gap, size)) > 0)
		if (plain(address + p.from, (size_t)(p.to - p.from), prot,
			  MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE, RAM_FD_MEMORY,
			  p.from) == MAP_FAILED)
			return -1;
	return r;
}

static int report(const void *address, int fd)
{
	struct ram_report at = { .address = (uintptr_t)address };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	at.dev = st.st_dev;
	at.ino = st.st_ino;
	return write(RAM_FD_REPORT, &at, sizeof(at)) == (ssize_t)sizeof(at) ? 0 : -1;
}

static void *map_ram(void *address, size_t size, int prot, int fd)
{
	char *at = plain(address, size, prot,
			 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const bool snapshot = getenv(RAM_SNAPSHOT) != NULL;

	if (at == MAP_FAILED)
		return MAP_FAILED;
	if (snapshot && lseek(RAM_FD_MEMORY, 0, SEEK_END) != (off_t)size) {
		errno = EBADMSG;
		return MAP_FAILED;
	}
	if ((snapshot && map_pieces(at, (off_t)size, prot) < 0) || report(at, fd) < 0)
		return MAP_FAILED;
	if (snapshot)
		(void)close(RAM_FD_MEMORY);
	(void)close(RAM_FD_REPORT);
	mapped = true;
	return at;
}

/* QEMU reserves addresses first and then maps its memory file at them, shared. */
static void *map(void *address, size_t n, int prot, int flags, int fd, off_t offset)
{
	const int kind = MAP_SHARED | MAP_FIXED;

	if (!mapped && fd >= 0 && (flags & kind) == kind && (prot & PROT_WRITE) &&
	    n == wanted_size())
		return map_ram(address, n, prot, fd);
	return plain(address, n, prot, flags, fd, offset);
}

/* With 64-bit file offsets the C library's mmap() is the symbol mmap64. QEMU may use either. */
void *ram_mmap(void *address, size_t n, int prot, int flags, int fd, off_t offset) __asm__("mmap");
void *ram_mmap64(void *address, size_t n, int prot, int flags, int fd,
		 off_t offset) __asm__("mmap64");

void *ram_mmap(void *address, size_t n, int prot, int flags, int fd, off_t offset)
{
	return map(address, n, prot, flags, fd, offset);
}

void *ram_mmap64(void *address, size_t n, int prot, int flags, int fd, off_t offset)
{
	return map(address, n, prot, flags, fd, offset);
}
