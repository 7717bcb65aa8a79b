/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command record with arbitrary contents. The first byte selects the offset at which the reader
 * starts. Wrong checksums are corrected first, because they do not protect the reader: an attacker
 * who can write a record can write its checksums too.
 */
#include <string.h>
#include <sys/mman.h>

#include "fuzz.h"
#include "state/record-sum.h"

enum {
	PIECES_MAX = 1 << 16, /* a chunk has a byte at least, and no file here is that large */
};

static void make_right(char *page)
{
	struct record_head head;
	struct record_slot slot;

	memcpy(&head, page, sizeof(head));
	head.magic = RECORD_MAGIC;
	head.version = RECORD_VERSION;
	head.checksum = record_sum(&head, offsetof(struct record_head, checksum));
	memcpy(page, &head, sizeof(head));
	for (size_t i = 0; i < 2; i++) {
		memcpy(&slot, page + RECORD_SLOTS + i * RECORD_SLOT, sizeof(slot));
		slot.checksum = record_sum(&slot, offsetof(struct record_slot, checksum));
		memcpy(page + RECORD_SLOTS + i * RECORD_SLOT, &slot, sizeof(slot));
	}
}

static void read_all(int fd, uint64_t from)
{
	struct record_cursor c;
	struct record_info info;
	struct record_piece p;
	struct err e = ERR_INIT;
	uint64_t dropped, expected = from;
	unsigned int n = 0;
	int r;

	record_cursor_init(&c, fd, from);
	while ((r = record_next(&c, &info, &p, &e)) > 0) {
		assert(p.offset == expected && p.n > 0 && ++n < PIECES_MAX);
		assert(p.stream <= 2 && (p.stream == 0) == (p.n_data == 0));
		assert(p.stream == 0 || (p.n_data == p.n && p.data >= c.data &&
					 p.data + p.n_data <= c.data + sizeof(c.data)));
		expected += p.n;
	}
	assert(r == 0 || e.msg[0]);
	if (record_read(fd, &info, &e) < 0)
		return;
	assert(strlen(info.slot.text) <= RECORD_TEXT + 7 &&
	       strlen(info.head.name) <= RECORD_NAME_MAX);
	for (uint64_t at = 0; at < info.head.shown; at += strlen(info.head.argv + at) + 1)
		assert(at + strlen(info.head.argv + at) < sizeof(info.head.argv));
	(void)record_dropped(fd, &info, &dropped, &e);
}

/* The same bytes as a list of headers. */
static void read_list(int fd)
{
	struct record_info info;
	struct err e = ERR_INIT;
	int r;

	assert(lseek(fd, 0, SEEK_SET) == 0);
	while ((r = record_list_next(fd, &info, &e)) == 1)
		assert(strlen(info.head.cwd) < sizeof(info.head.cwd));
	assert(r == 0 || e.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_close_ int fd = memfd_create("record", MFD_CLOEXEC);
	_cleanup_free_ char *copy = malloc(size + 1);

	assert(fd >= 0 && copy);
	if (size < 1)
		return 0;
	memcpy(copy, data + 1, size - 1);
	assert(write(fd, copy, size - 1) == (ssize_t)(size - 1));
	read_all(fd, 0);
	if (size - 1 < RECORD_BLOCKS)
		return 0;
	make_right(copy);
	assert(pwrite(fd, copy, RECORD_BLOCKS, 0) == RECORD_BLOCKS);
	read_all(fd, 0);
	read_all(fd, (uint64_t)data[0] * 64);
	read_list(fd);
	return 0;
}
