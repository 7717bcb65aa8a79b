/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readers' half of a record. The file may change at any moment, and a compromised keeper may
 * write it: check every value before use, and do not expect two reads to give the same.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/str.h"
#include "state/record-sum.h"

#define COUNT_MAX (UINT64_C(1) << 60) /* bytes */

enum {
	TRIES = 1000, /* if the writer is always faster */
};

const char *const record_state_names[] = {
	[RECORD_UNUSED] = "unused", [RECORD_STARTING] = "starting", [RECORD_RUNNING] = "running",
	[RECORD_ENDED] = "ended",   [RECORD_LOST] = "lost",	    NULL,
};

/* ---- header ---- */

static int damaged(struct err *e, const char *what)
{
	return err_set(e, -EBADMSG, "the record is damaged: %s", what);
}

static bool ends(const char *text, size_t n)
{
	return memchr(text, '\0', n);
}

static bool head_valid(const struct record_head *h)
{
	return h->checksum == record_sum(h, offsetof(struct record_head, checksum)) &&
	       h->magic == RECORD_MAGIC && h->version == RECORD_VERSION &&
	       h->number <= RECORD_NUMBER_MAX && ends(h->name, sizeof(h->name)) &&
	       ends(h->user, sizeof(h->user)) && ends(h->cwd, sizeof(h->cwd)) &&
	       h->shown <= sizeof(h->argv) && (h->shown == 0 || h->argv[h->shown - 1] == '\0') &&
	       (h->name[0] == '\0' || record_name_valid(h->name, strlen(h->name)));
}

static uint64_t blocks_of(const struct record_slot *s)
{
	return (s->end + RECORD_BLOCK - 1) / RECORD_BLOCK;
}

static bool ring_valid(const struct record_slot *s)
{
	uint64_t n = blocks_of(s);

	if (s->ring == 0)
		return s->head == 0 && s->first == 0;
	return s->head > 0 && s->head <= COUNT_MAX / RECORD_BLOCK &&
	       s->ring <= COUNT_MAX / RECORD_BLOCK && s->first >= s->head &&
	       n >= s->head + s->ring && s->first <= n && n - s->first <= s->ring;
}

static bool slot_valid(const struct record_slot *s)
{
	return s->checksum == record_sum(s, offsetof(struct record_slot, checksum)) &&
	       s->state >= RECORD_STARTING && s->state <= RECORD_ENDED && s->how < RECORD_HOWS &&
	       (s->state == RECORD_ENDED) == (s->how != RECORD_NOT_YET) &&
	       s->bytes[0] <= COUNT_MAX && s->bytes[1] <= COUNT_MAX &&
	       s->unkept <= s->bytes[0] + s->bytes[1] && s->end <= COUNT_MAX &&
	       ends(s->text, sizeof(s->text)) && ring_valid(s);
}

/* Parses one page from one read. The writer leaves at least one slot valid at any time. */
static int parse_header(const char *page, struct record_info *ret, struct err *e)
{
	struct record_slot slots[2];
	bool valid[2];

	memcpy(&ret->head, page, sizeof(ret->head));
	memcpy(slots, page + RECORD_SLOTS, sizeof(slots));
	if (!head_valid(&ret->head))
		return damaged(e, "its head");
	valid[0] = slot_valid(&slots[0]);
	valid[1] = slot_valid(&slots[1]);
	if (!valid[0] && !valid[1])
		return damaged(e, "its slots");
	ret->slot = slots[valid[1] && (!valid[0] || slots[1].sequence > slots[0].sequence)];
	return 0;
}

int record_read(int fd, struct record_info *ret, struct err *e)
{
	int r = -EBADMSG;

	for (int i = 0; r == -EBADMSG && i < 3; i++) { /* the first write may be torn */
		char page[RECORD_BLOCKS];
		ssize_t n = RETRY_EINTR(pread(fd, page, sizeof(page), 0));

		if (n < 0)
			return err_errno(e, "cannot read the record");
		if (n == 0)
			return err_set(e, -ENODATA, "the record is not in use yet");
		r = (size_t)n < sizeof(page) ? damaged(e, "it is too short")
					     : parse_header(page, ret, e);
	}
	return r;
}

int record_list_next(int fd, struct record_info *ret, struct err *e)
{
	char page[RECORD_BLOCKS] = { 0 };
	size_t got = 0;

	while (got < sizeof(page)) {
		ssize_t n = RETRY_EINTR(read(fd, page + got, sizeof(page) - got));

		if (n < 0)
			return err_errno(e, "cannot read the list of commands");
		if (n == 0 && got > 0)
			return damaged(e, "it is too short");
		if (n == 0)
			return 0;
		got += (size_t)n;
	}
	return parse_header(page, ret, e) < 0 ? e->num : 1;
}

/* ---- blocks ---- */

static uint64_t place(const struct record_slot *s, uint64_t block)
{
	if (s->ring > 0 && block >= s->head)
		block = s->head + (block - s->head) % s->ring;
	return RECORD_BLOCKS + block * RECORD_BLOCK;
}

static bool is_there(const struct record_slot *s, uint64_t block)
{
	return block < blocks_of(s) && (s->ring == 0 || block < s->head || block >= s->first);
}

/*
 * Reads the beginning of a block, at most `n` bytes and as far as it is written, and then updates
 * `info`. -EAGAIN: the writer has overwritten the block.
 */
static int read_block(int fd, struct record_info *info, uint64_t block, void *to, size_t n,
		      size_t *ret_n, struct err *e)
{
	const struct record_slot before = info->slot;
	size_t there = (size_t)MIN((uint64_t)RECORD_BLOCK, before.end - block * RECORD_BLOCK);
	struct record_block head;
	ssize_t k;
	int r;

	n = MIN(n, there);
	k = RETRY_EINTR(pread(fd, to, n, (off_t)place(&before, block)));
	if (k < 0)
		return err_errno(e, "cannot read the record");
	r = record_read(fd, info, e);
	if (r < 0)
		return r;
	if (!is_there(&info->slot, block))
		return err_set(e, -EAGAIN, "the record is written faster than it is read");
	if ((size_t)k < n || n < sizeof(head))
		return damaged(e, "a block is too short");
	memcpy(&head, to, sizeof(head));
	if (head.number != block || head.magic != RECORD_MAGIC || head.offset > COUNT_MAX)
		return damaged(e, "the header of a block is wrong");
	*ret_n = n;
	return 0;
}

static int offset_of(int fd, struct record_info *info, uint64_t block, uint64_t *ret, struct err *e)
{
	struct record_block head;
	size_t n;
	int r = read_block(fd, info, block, &head, sizeof(head), &n, e);

	if (r == 0)
		*ret = head.offset;
	return r;
}

/* Finds the last block of [low, high) that begins at or before the offset; `low` if none does. */
static int search_range(int fd, struct record_info *info, uint64_t low, uint64_t high,
			uint64_t offset, uint64_t *ret, struct err *e)
{
	uint64_t at;
	int r = 0;

	while (r == 0 && high - low > 1) {
		uint64_t mid = low + (high - low) / 2;

		r = offset_of(fd, info, mid, &at, e);
		if (r == 0 && at <= offset)
			low = mid;
		else
			high = mid;
	}
	*ret = low;
	return r;
}

/* Finds the block that contains an offset. The record must have at least one block. */
static int search(int fd, struct record_info *info, uint64_t offset, uint64_t *ret, struct err *e)
{
	const struct record_slot s = info->slot;
	uint64_t n = blocks_of(&s), at = 0;
	int r = 0;

	if (s.ring > 0 && s.first < n)
		r = offset_of(fd, info, s.first, &at, e);
	if (r < 0)
		return r;
	if (s.ring > 0 && s.first < n && at <= offset)
		return search_range(fd, info, s.first, n, offset, ret, e);
	return search_range(fd, info, 0, s.ring > 0 ? s.head : n, offset, ret, e);
}

/* ---- the cursor ---- */

void record_cursor_init(struct record_cursor *c, int fd, uint64_t offset)
{
	*c = (struct record_cursor){ .fd = fd, .offset = offset, .block = UINT64_MAX };
}

/* Returns the rest of the chunk at the cursor from the offset on. 0: no more chunks in the loaded
 * data. */
static int next_chunk(struct record_cursor *c, const struct record_info *info,
		      struct record_piece *ret, struct err *e)
{
	struct record_chunk chunk;

	while (c->at + sizeof(chunk) < c->len) {
		const char *data = c->data + c->at + sizeof(chunk);
		uint64_t pos = c->pos;

		memcpy(&chunk, c->data + c->at, sizeof(chunk));
		if (chunk.length == 0 || chunk.length > c->len - c->at - sizeof(chunk) ||
		    chunk.stream < 1 || chunk.stream > 2)
			return damaged(e, "a chunk");
		c->at += sizeof(chunk) + chunk.length;
		c->pos += chunk.length;
		if (c->pos <= c->offset)
			continue;
		*ret = (struct record_piece){
			.stream = chunk.stream,
			.offset = c->offset,
			.time = info->head.start + chunk.ms * NSEC_PER_MSEC,
			.data = data + (c->offset - pos),
			.n = c->pos - c->offset,
			.n_data = (size_t)(c->pos - c->offset),
		};
		c->offset = c->pos;
		return 1;
	}
	return 0;
}

static int gap(struct record_cursor *c, uint64_t to, struct record_piece *ret)
{
	*ret = (struct record_piece){ .offset = c->offset, .n = to - c->offset };
	c->offset = to;
	return 1;
}

/* Loads a block, or more of the current one. 1: *ret is a gap before the block. */
static int load(struct record_cursor *c, struct record_info *info, uint64_t block,
		struct record_piece *ret, struct err *e)
{
	struct record_block head;
	bool again = c->block == block;
	int r = read_block(c->fd, info, block, c->data, sizeof(c->data), &c->len, e);

	if (r < 0) {
		c->block = UINT64_MAX;
		return r;
	}
	c->block = block;
	if (again)
		return 0;
	memcpy(&head, c->data, sizeof(head));
	c->at = sizeof(head);
	c->pos = head.offset;
	return head.offset > c->offset ? gap(c, head.offset, ret) : 0;
}

/* Chooses the next block to read: 1, or 0 if there is none. */
static int choose(struct record_cursor *c, struct record_info *info, uint64_t *ret, struct err *e)
{
	const struct record_slot *s = &info->slot;
	uint64_t n = blocks_of(s);
	int r;

	if (n == 0)
		return 0;
	if (c->block == UINT64_MAX) {
		r = search(c->fd, info, c->offset, ret, e);
		return r < 0 ? r : 1;
	}
	/* The writer may have extended the current block. */
	if (c->len < MIN((uint64_t)RECORD_BLOCK, s->end - c->block * RECORD_BLOCK)) {
		*ret = c->block;
		return 1;
	}
	*ret = c->block + 1;
	if (s->ring > 0 && *ret >= s->head && *ret < s->first)
		*ret = s->first;
	return *ret < n;
}

static int try_next(struct record_cursor *c, struct record_info *info, struct record_piece *ret,
		    struct err *e)
{
	uint64_t block = 0, total;
	int r = next_chunk(c, info, ret, e);

	while (r == 0) {
		r = choose(c, info, &block, e);
		if (r <= 0)
			break;
		r = load(c, info, block, ret, e);
		if (r == 0)
			r = next_chunk(c, info, ret, e);
	}
	total = record_bytes(info);
	if (r == 0 && info->slot.unkept > 0 && c->offset >= total - info->slot.unkept &&
	    c->offset < total)
		return gap(c, total, ret);
	return r;
}

int record_next(struct record_cursor *c, struct record_info *info, struct record_piece *ret,
		struct err *e)
{
	int r = record_read(c->fd, info, e);

	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = try_next(c, info, ret, e);
		if (r != -EAGAIN)
			return r;
		r = i + 1 < TRIES ? record_read(c->fd, info, e) : r;
	}
	return r;
}

/* Returns the offset after a full block. */
static int end_of(int fd, struct record_info *info, uint64_t block, uint64_t *ret, struct err *e)
{
	struct record_cursor c;
	struct record_piece piece;
	int r;

	record_cursor_init(&c, fd, 0);
	r = load(&c, info, block, &piece, e);
	c.offset = COUNT_MAX;
	if (r >= 0)
		r = next_chunk(&c, info, &piece, e);
	if (r >= 0)
		*ret = c.pos;
	return MIN(r, 0);
}

int record_dropped(int fd, const struct record_info *info, uint64_t *ret, struct err *e)
{
	uint64_t from = 0, to = 0;
	struct record_info now = *info;
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < TRIES; i++) {
		r = 0;
		if (now.slot.ring > 0)
			r = end_of(fd, &now, now.slot.head - 1, &from, e);
		if (r == 0 && now.slot.ring > 0)
			r = now.slot.first < blocks_of(&now.slot)
				    ? offset_of(fd, &now, now.slot.first, &to, e)
				    : (to = record_bytes(&now) - now.slot.unkept, 0);
		if (r == -EAGAIN && record_read(fd, &now, e) < 0)
			return e->num;
	}
	if (r < 0)
		return r;
	if (to < from)
		return damaged(e, "its offsets");
	*ret = to - from + now.slot.unkept;
	return 0;
}
