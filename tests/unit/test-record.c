/* SPDX-License-Identifier: Apache-2.0 */
/* Records: the writer against the reader, with a model of what a file of its size must hold. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "fail.h"
#include "state/record.h"

enum {
	BIG = 1 << 20,
};

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

/* The expected byte at an offset. */
static char byte_at(uint64_t offset)
{
	return (char)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

struct both {
	struct record r;
	int fd; /* for reading */
	uint64_t total;
	uint64_t limit; /* the budget in blocks; 0: no limit */
};

static bool grow(struct record *r, void *arg)
{
	const struct both *b = arg;

	return b->limit == 0 || record_size(r) / RECORD_BLOCK <= b->limit;
}

/* In memory, because thousands of files are made. */
static int both_open(struct both *b, uint64_t blocks)
{
	*b = (struct both){ .fd = -EBADF };
	b->r = (struct record){ .number = 1, .limit = blocks, .grow = grow, .arg = b };
	b->r.fd = memfd_create("record", MFD_CLOEXEC);
	b->fd = b->r.fd < 0 ? -EBADF : RETRY_EINTR(fcntl(b->r.fd, F_DUPFD_CLOEXEC, 3));
	return b->fd < 0 ? -errno : 0;
}

static void both_done(struct both *b)
{
	b->r.fd = fd_close(b->r.fd);
	b->fd = fd_close(b->fd);
}

#define _cleanup_both_ _cleanup_(both_done)

static void begin(struct both *b)
{
	struct record_head head = { .start = 1000, .argv_n = 1, .shown = 5, .name = "name" };

	memcpy(head.argv, "true", 5);
	record_begin(&b->r, &head);
}

static void put(struct both *b, unsigned int stream, size_t n)
{
	static char data[BIG];

	assert_true(n <= sizeof(data));
	for (size_t i = 0; i < n; i++)
		data[i] = byte_at(b->total + i);
	record_put(&b->r, stream, data, n, clock_mono());
	b->total += n;
}

/* Reads from the cursor to the end and checks every byte; returns the number of missing bytes. */
static uint64_t read_on(struct record_cursor *c, uint64_t *ret_pieces)
{
	struct record_info info;
	struct record_piece p;
	struct err e = ERR_INIT;
	uint64_t gaps = 0, expected = c->offset;
	int r;

	while ((r = record_next(c, &info, &p, &e)) > 0) {
		assert_int_equal(p.offset, expected);
		expected += p.n;
		if (p.stream == 0)
			gaps += p.n;
		for (size_t i = 0; i < p.n_data; i++)
			assert_int_equal(p.data[i], byte_at(p.offset + i));
		++*ret_pieces;
	}
	if (r < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(c->offset, expected);
	return gaps;
}

/* ---- without drops ---- */

TEST(what_is_written_is_read)
{
	_cleanup_both_ struct both b;
	struct record_cursor c;
	struct record_info info;
	struct err e = ERR_INIT;
	uint64_t pieces = 0;

	assert_int_equal(both_open(&b, 100), 0);
	assert_int_equal(record_read(b.fd, &info, &e), -ENODATA);
	begin(&b);
	record_cursor_init(&c, b.fd, 0);
	assert_int_equal(read_on(&c, &pieces), 0);
	assert_int_equal(pieces, 0);
	put(&b, 1, 10);
	assert_int_equal(read_on(&c, &pieces), 0);
	assert_int_equal(pieces, 0); /* not before it is published */
	(void)record_publish(&b.r);
	put(&b, 2, 5000);
	(void)record_publish(&b.r);
	assert_int_equal(read_on(&c, &pieces), 0);
	assert_int_equal(c.offset, 5010);
	assert_int_equal(record_read(b.fd, &info, &e), 0);
	assert_int_equal(info.head.number, 1);
	assert_string_equal(info.head.name, "name");
	assert_string_equal(info.head.argv, "true");
	assert_int_equal(info.slot.bytes[0], 10);
	assert_int_equal(info.slot.bytes[1], 5000);
	assert_int_equal(info.slot.state, RECORD_STARTING);
	b.r.slot.state = RECORD_ENDED;
	b.r.slot.how = RECORD_SIGNALED;
	b.r.slot.value = 9;
	b.r.dirty = true;
	(void)record_publish(&b.r);
	assert_int_equal(record_read(b.fd, &info, &e), 0);
	assert_int_equal(info.slot.value, 9);
}

/* ---- with a limit ---- */

/* Random sizes, pauses, limits and starting points: bytes and counts are exact in all of them. */
TEST(nothing_is_wrong_by_chance)
{
	for (unsigned int i = 0; i < 60; i++) {
		_cleanup_both_ struct both b;
		struct record_cursor all, slow;
		struct record_info info;
		struct err e = ERR_INIT;
		struct stat st;
		uint64_t pieces = 0, dropped, blocks, gaps = 0;

		seed = i;
		blocks = 2 + draw(i % 2 ? 4 : 100);
		assert_int_equal(both_open(&b, blocks), 0);
		b.limit = i % 3 ? 0 : blocks / 2;
		begin(&b);
		record_cursor_init(&slow, b.fd, 0);
		for (unsigned int k = 0; k < 60; k++) {
			put(&b, 1 + draw(2), 1 + draw(draw(4) ? 300 : draw(4) ? 9000 : 200000));
			if (draw(3))
				(void)record_publish(&b.r);
			if (draw(8) == 0)
				gaps += read_on(&slow, &pieces);
			if (draw(4) == 0) {
				record_cursor_init(&all, b.fd, draw((uint32_t)b.total + 10));
				(void)read_on(&all, &pieces);
			}
		}
		(void)record_publish(&b.r);
		gaps += read_on(&slow, &pieces);
		assert_int_equal(slow.offset, b.total);
		record_cursor_init(&all, b.fd, 0);
		assert_true(gaps == 0 || b.r.slot.ring > 0);
		gaps = read_on(&all, &pieces);
		assert_int_equal(all.offset, b.total);
		assert_int_equal(record_read(b.fd, &info, &e), 0);
		assert_int_equal(record_bytes(&info), b.total);
		assert_int_equal(record_dropped(b.fd, &info, &dropped, &e), 0);
		assert_int_equal(dropped, gaps);
		assert_int_equal(fstat(b.fd, &st), 0);
		assert_true((uint64_t)st.st_size <= RECORD_BLOCKS + blocks * RECORD_BLOCK);
		assert_true((uint64_t)st.st_size <= record_size(&b.r));
		assert_true(gaps == 0 || info.slot.ring > 0);
	}
}

/* Each half has its share: a file with room left drops nothing early. */
TEST(both_halves_are_kept)
{
	_cleanup_both_ struct both b;
	struct record_cursor c;
	struct record_info info;
	struct record_piece p;
	struct err e = ERR_INIT;
	uint64_t head = 0, kept = 0;
	bool gap = false;

	assert_int_equal(both_open(&b, 16), 0);
	begin(&b);
	for (int i = 0; i < 100; i++)
		put(&b, 1, 65536);
	(void)record_publish(&b.r);
	record_cursor_init(&c, b.fd, 0);
	while (record_next(&c, &info, &p, &e) > 0) {
		gap |= p.stream == 0;
		head += gap ? 0 : p.n_data;
		kept += p.n_data;
	}
	assert_true(head >= 7 * 4000 && head <= 8 * 4096);
	assert_true(kept - head >= 7 * 4000 && kept - head <= 8 * 4096);
}

/* ---- while it is written ---- */

static _noreturn_ void flood(struct both *b)
{
	uint64_t end = clock_mono() + 2 * NSEC_PER_SEC;

	seed = 5;
	while (clock_mono() < end) {
		put(b, 1 + draw(2), 1 + draw(30000));
		(void)record_publish(&b->r);
	}
	b->r.slot.state = RECORD_ENDED;
	b->r.slot.how = RECORD_EXITED;
	b->r.dirty = true;
	(void)record_publish(&b->r);
	_exit(0);
}

/* The ring reports dropped blocks to readers many at a time, and drops little more than it must. */
TEST(ring_moves_in_steps)
{
	enum {
		BLOCKS = 1024,
		ROUNDS = 512
	};
	_cleanup_both_ struct both b;
	uint64_t before;

	assert_int_equal(both_open(&b, BLOCKS), 0);
	begin(&b);
	while (b.r.slot.ring == 0)
		put(&b, 1, RECORD_BLOCK);
	before = b.r.slot.sequence;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t kept;

		put(&b, 1, RECORD_BLOCK);
		kept = b.r.slot.end / RECORD_BLOCK - b.r.slot.first;
		assert_true(kept <= b.r.slot.ring &&
			    kept + 1 >= b.r.slot.ring - b.r.slot.ring / 16);
	}
	assert_true(b.r.slot.sequence - before < ROUNDS / 8);
}

/* Readers are overtaken all the time, and never see a byte at a wrong offset. */
TEST(readers_that_are_overtaken)
{
	_cleanup_both_ struct both b;
	struct record_info info = { 0 };
	struct record_cursor c;
	struct err e = ERR_INIT;
	uint64_t pieces = 0, gaps = 0, dropped, reads = 0;
	pid_t writer;
	int status;

	assert_int_equal(both_open(&b, 12), 0);
	begin(&b);
	record_cursor_init(&c, b.fd, 0);
	writer = fork();
	if (writer == 0)
		flood(&b);
	while (info.slot.state != RECORD_ENDED) {
		gaps += read_on(&c, &pieces);
		assert_int_equal(record_read(b.fd, &info, &e), 0);
		assert_int_equal(record_dropped(b.fd, &info, &dropped, &e), 0);
		reads++;
	}
	assert_int_equal(waitpid(writer, &status, 0), writer);
	assert_int_equal(status, 0);
	gaps += read_on(&c, &pieces);
	assert_int_equal(c.offset, record_bytes(&info));
	assert_true(gaps > 0 && pieces > 0 && reads > 0);
}

/* ---- damage ---- */

static void spoil(const struct both *b, off_t at)
{
	char byte = 0;

	assert_int_equal(pread(b->fd, &byte, 1, at), 1);
	byte ^= 0x55;
	assert_int_equal(pwrite(b->r.fd, &byte, 1, at), 1);
}

TEST(half_a_header_is_not_seen)
{
	_cleanup_both_ struct both b;
	struct record_info info;
	struct err e = ERR_INIT;
	uint64_t newest;

	assert_int_equal(both_open(&b, 12), 0);
	begin(&b);
	put(&b, 1, 100);
	(void)record_publish(&b.r);
	put(&b, 1, 100);
	(void)record_publish(&b.r);
	newest = b.r.slot.sequence;
	spoil(&b, RECORD_SLOTS + (off_t)(newest % 2) * RECORD_SLOT + 60);
	assert_int_equal(record_read(b.fd, &info, &e), 0);
	assert_int_equal(info.slot.sequence, newest - 1);
	assert_int_equal(record_bytes(&info), 100);
	spoil(&b, RECORD_SLOTS + (off_t)((newest + 1) % 2) * RECORD_SLOT + 60);
	assert_int_equal(record_read(b.fd, &info, &e), -EBADMSG);
}

/* Any changed byte: an answer or an error, and no byte that was never written. */
TEST(any_byte_may_be_wrong)
{
	for (off_t at = 0; at < 3 * RECORD_BLOCK; at += 1 + (at > 200 && at < 3000 ? 97 : 0)) {
		_cleanup_both_ struct both b;
		struct record_info info;
		struct record_cursor c;
		struct record_piece p;
		struct err e = ERR_INIT;
		uint64_t dropped;
		int r, n = 0;

		assert_int_equal(both_open(&b, 4), 0);
		begin(&b);
		for (int i = 0; i < 40; i++)
			put(&b, 1, 1000);
		(void)record_publish(&b.r);
		spoil(&b, at);
		record_cursor_init(&c, b.fd, 0);
		while ((r = record_next(&c, &info, &p, &e)) > 0)
			assert_true(n++ < 1000);
		assert_true(r == 0 || r == -EBADMSG);
		if (record_read(b.fd, &info, &e) == 0)
			(void)record_dropped(b.fd, &info, &dropped, &e);
	}
}

TEST(names)
{
	static const char *const good[] = { "a", "job", "a.b_c-d", "0a", "1.2" };
	static const char *const bad[] = {
		"", "1", "123", "A", "-a", ".a", "a/b", "a b", "\xc3\xa4"
	};
	char name[RECORD_FILE_NAME], many[RECORD_NAME_MAX + 2];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(record_name_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(record_name_valid(bad[i], strlen(bad[i])));
	memset(many, 'a', sizeof(many));
	assert_true(record_name_valid(many, RECORD_NAME_MAX));
	assert_false(record_name_valid(many, RECORD_NAME_MAX + 1));
	record_file_name(UINT64_MAX, name);
	assert_string_equal(name, "cmd-18446744073709551615");
}

/* ---- trouble ---- */

/* A full disk: kept bytes stay, and dropped ones are counted. */
TEST(what_cannot_be_kept_is_counted)
{
	_cleanup_both_ struct both b;
	struct record_info info;
	struct record_cursor c;
	struct err e = ERR_INIT;
	uint64_t pieces = 0, dropped = 0;

	assert_int_equal(both_open(&b, 100), 0);
	begin(&b);
	put(&b, 1, 6000);
	fail_arm(1, ENOSPC);
	put(&b, 2, 7000);
	fail_off();
	put(&b, 1, 100);
	(void)record_publish(&b.r);
	assert_int_equal(b.r.error, -ENOSPC);
	assert_int_equal(record_read(b.fd, &info, &e), 0);
	assert_int_equal(record_bytes(&info), 13100);
	assert_int_equal(record_dropped(b.fd, &info, &dropped, &e), 0);
	assert_int_equal(dropped, 7100);
	record_cursor_init(&c, b.fd, 0);
	assert_int_equal(read_on(&c, &pieces), 7100);
	assert_int_equal(c.offset, 13100);
}

/* Writes and reads a whole record; one of the two sees each failure. */
static int a_whole_life(void)
{
	_cleanup_both_ struct both b;
	struct record_info info = { 0 };
	struct record_cursor c;
	struct record_piece p;
	struct err e = ERR_INIT;
	uint64_t dropped = 0;
	int r = both_open(&b, 3);

	if (r < 0)
		return r;
	begin(&b);
	for (int i = 0; i < 5; i++)
		put(&b, 1, 5000);
	(void)record_publish(&b.r);
	record_cursor_init(&c, b.fd, 0);
	while ((r = record_next(&c, &info, &p, &e)) > 0)
		for (size_t i = 0; i < p.n_data; i++)
			assert_int_equal(p.data[i], byte_at(p.offset + i));
	if (r == 0)
		r = record_dropped(b.fd, &info, &dropped, &e);
	if (r == 0 && b.r.error == 0)
		r = c.offset == b.total ? 0 : -EIO;
	return r < 0 ? r : b.r.error;
}

TEST(every_call_may_fail)
{
	FAIL_SWEEP(a_whole_life());
}
