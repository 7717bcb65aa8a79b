/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's half of a record: it only calls pwrite(2) on a file descriptor that it was given.
 * Each contiguous piece of output is written in one call, without copying the bytes.
 *
 * A failed write (no space) does not end the command: the lost output is counted, and the output
 * written before stays.
 */
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "state/record-sum.h"

enum {
	PIECES = 20,	 /* blocks written at once */
	STEP_MAX = 64,	 /* blocks of the ring dropped at once: each time costs a slot write, */
	STEP_SHARE = 16, /* but at most 1/16 of the ring */
	FULL = RECORD_BLOCK - sizeof(struct record_block) - sizeof(struct record_chunk),
};

/* ---- names ---- */

bool record_name_valid(const char *name, size_t n)
{
	bool digits = true;

	if (n < 1 || n > RECORD_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool letter = ascii_is_lower(name[i]), digit = ascii_is_digit(name[i]);

		if (!letter && !digit &&
		    (i == 0 || !(name[i] == '.' || name[i] == '_' || name[i] == '-')))
			return false;
		digits &= digit;
	}
	return !digits;
}

void record_file_name(uint64_t number, char out[static RECORD_FILE_NAME])
{
	(void)snprintf(out, RECORD_FILE_NAME, "cmd-%llu", (unsigned long long)number);
}

/* ---- header ---- */

static int write_at(int fd, const void *data, size_t n, uint64_t at)
{
	ssize_t k = RETRY_EINTR(pwrite(fd, data, n, (off_t)at));

	return k < 0 ? -errno : (size_t)k < n ? -ENOSPC : 0;
}

static void failed(struct record *r, int error)
{
	if (r->error == 0)
		r->error = error;
}

int record_publish(struct record *r)
{
	if (!r->dirty || r->fd < 0)
		return 0;
	r->dirty = false;
	r->slot.sequence++;
	r->slot.checksum = record_sum(&r->slot, offsetof(struct record_slot, checksum));
	/* A full disk does not matter here: the slot's space is already allocated. */
	(void)FAULT("record-slot");
	return write_at(r->fd, &r->slot, sizeof(r->slot),
			RECORD_SLOTS + r->slot.sequence % 2 * RECORD_SLOT);
}

void record_begin(struct record *r, struct record_head *head)
{
	char page[RECORD_BLOCKS] = { 0 };
	int k;

	head->magic = RECORD_MAGIC;
	head->version = RECORD_VERSION;
	head->number = r->number;
	head->limit = r->limit;
	head->checksum = record_sum(head, offsetof(struct record_head, checksum));
	memcpy(page, head, sizeof(*head));
	memcpy(r->name, head->name, sizeof(r->name));
	r->start = clock_mono();
	r->slot = (struct record_slot){ .sequence = 1, .state = RECORD_STARTING };
	r->slot.checksum = record_sum(&r->slot, offsetof(struct record_slot, checksum));
	memcpy(page + RECORD_SLOTS + RECORD_SLOT, &r->slot, sizeof(r->slot));
	k = FAULT("record-begin");
	if (k == 0)
		k = write_at(r->fd, page, sizeof(page), 0);
	if (k == 0)
		k = FAULT("record-page");
	if (k < 0)
		failed(r, k);
}

int record_list_put(int fd, const struct record_info *i)
{
	struct record_slot slot = i->slot;
	char page[RECORD_BLOCKS] = { 0 };

	slot.checksum = record_sum(&slot, offsetof(struct record_slot, checksum));
	memcpy(page, &i->head, sizeof(i->head));
	memcpy(page + RECORD_SLOTS, &slot, sizeof(slot));
	return fd_write_all(fd, page, sizeof(page));
}

/* ---- blocks ---- */

struct batch {
	struct record *r;
	uint64_t at;	 /* position in the file */
	uint64_t before; /* slot.end without this batch */
	uint64_t data;	 /* bytes of output */
	size_t bytes;
	struct iovec v[3 * PIECES];
	int n;
	struct {
		struct record_block block;
		struct record_chunk chunk;
	} h[PIECES];
	size_t n_h;
};

static void batch_begin(struct batch *b, struct record *r)
{
	*b = (struct batch){ .r = r, .before = r->slot.end };
}

static void batch_write(struct batch *b)
{
	struct record *r = b->r;
	ssize_t k = 0;

	if (b->n > 0 && r->error == 0) {
		k = RETRY_EINTR(pwritev(r->fd, b->v, b->n, (off_t)b->at));
		if (k < 0 || (size_t)k < b->bytes)
			failed(r, k < 0 ? -errno : -ENOSPC);
		failed(r, FAULT("record-block"));
	}
	if (r->error != 0) {
		r->slot.end = b->before;
		r->slot.unkept += b->data;
	}
	batch_begin(b, r);
}

static void batch_add(struct batch *b, const void *data, size_t n)
{
	if (n == 0)
		return;
	b->v[b->n++] = (struct iovec){ .iov_base = (void *)data, .iov_len = n };
	b->bytes += n;
	b->r->slot.end += n;
}

static uint64_t place(const struct record_slot *s, uint64_t block)
{
	if (s->ring > 0 && block >= s->head)
		block = s->head + (block - s->head) % s->ring;
	return RECORD_BLOCKS + block * RECORD_BLOCK;
}

/* Makes room for block `b` and `more` blocks after it. At the limit, drops old blocks, some of them
 * in advance, and publishes that before they are overwritten. */
static void make_room(struct batch *batch, uint64_t b, uint64_t more)
{
	struct record *r = batch->r;
	struct record_slot *s = &r->slot;
	uint64_t step;
	int k;

	if (s->ring == 0 &&
	    (b < RECORD_BLOCKS_MIN || (b < r->limit && (!r->grow || r->grow(r, r->arg)))))
		return;
	if (s->ring == 0) {
		s->head = b / 2;
		s->ring = b - s->head;
		s->first = s->head;
	}
	if (b - s->ring < s->first)
		return;
	batch_write(batch);
	step = MIN(s->ring / STEP_SHARE, (uint64_t)STEP_MAX);
	s->first = MIN(b - s->ring + 1 + MAX(more, step), b);
	r->dirty = true;
	k = record_publish(r);
	if (k < 0)
		failed(r, k); /* never overwrite blocks without publishing it first */
}

/* Appends as much of the output as fits into the current block. Returns its length. */
static size_t put_piece(struct batch *b, unsigned int stream, const void *data, size_t n,
			uint32_t ms)
{
	static const char zero[RECORD_BLOCK];
	struct record_slot *s = &b->r->slot;
	size_t fill = s->end % RECORD_BLOCK, room, header = sizeof(struct record_chunk);
	struct record_chunk *c;
	uint64_t block;

	if (fill > 0 && RECORD_BLOCK - fill <= header) {
		if (b->n == 0)
			s->end += RECORD_BLOCK - fill; /* readers ignore these bytes */
		else
			batch_add(b, zero, RECORD_BLOCK - fill);
		fill = 0;
	}
	if (fill == 0)
		make_room(b, s->end / RECORD_BLOCK, (n - 1) / FULL);
	block = s->end / RECORD_BLOCK;
	if (b->n > 0 && place(s, block) + fill != b->at + b->bytes)
		batch_write(b);
	if (b->n == 0)
		b->at = place(s, block) + fill;
	c = &b->h[b->n_h].chunk;
	b->h[b->n_h].block = (struct record_block){ .number = block,
						    .offset = s->bytes[0] + s->bytes[1],
						    .magic = RECORD_MAGIC };
	room = RECORD_BLOCK - fill - header - (fill == 0 ? sizeof(struct record_block) : 0);
	n = MIN(n, room);
	*c = (struct record_chunk){ .stream = (uint8_t)stream, .length = (uint16_t)n, .ms = ms };
	if (fill == 0)
		batch_add(b, &b->h[b->n_h].block, sizeof(struct record_block));
	batch_add(b, c, header);
	batch_add(b, data, n);
	b->n_h++;
	b->data += n;
	s->bytes[stream - 1] += n;
	if (b->n_h == PIECES)
		batch_write(b);
	return n;
}

void record_put(struct record *r, unsigned int stream, const void *data, size_t n, uint64_t now)
{
	uint64_t ms = (now - r->start) / NSEC_PER_MSEC;
	struct batch b;

	if (n == 0)
		return;
	batch_begin(&b, r);
	while (n > 0 && r->error == 0) {
		size_t k = put_piece(&b, stream, data, n, (uint32_t)MIN(ms, (uint64_t)UINT32_MAX));

		data = (const char *)data + k;
		n -= k;
	}
	batch_write(&b);
	r->slot.bytes[stream - 1] += n;
	r->slot.unkept += n;
	r->dirty = true;
}

uint64_t record_size(const struct record *r)
{
	const struct record_slot *s = &r->slot;
	uint64_t blocks = (s->end + RECORD_BLOCK - 1) / RECORD_BLOCK;

	return RECORD_BLOCKS + (s->ring > 0 ? s->head + s->ring : blocks) * RECORD_BLOCK;
}
