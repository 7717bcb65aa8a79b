/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's record files: a few spare ones, so that a command need not wait for the warden, and
 * the sizes of ended records.
 *
 * A budget limits all records of a sandbox together. A running record gets room in steps of blocks.
 * If the budget is used up, the oldest ended records are dropped; if there are none, the asking
 * record has reached its limit. The first two blocks of a record are always given, so RELAYS_EXEC
 * records can exceed the budget by that much each.
 */
#include <string.h>

#include "base/log.h"
#include "keeper/command.h"
#include "keeper/serve.h"

#define BUDGET_MIN (UINT64_C(64) << 20)

enum {
	BUDGET_CAPS = 4, /* the budget, in records of maximum size */
	ROOM_STEP = 16,	 /* blocks reserved at once */
	WANTED = 4,	 /* spare files to ask for */
};

void records_init(struct records *s, uint64_t output)
{
	s->limit = MAX(output / RECORD_BLOCK, (uint64_t)RECORD_BLOCKS_MIN);
	s->budget = output > UINT64_MAX / BUDGET_CAPS ? UINT64_MAX : output * BUDGET_CAPS;
	s->budget = MAX(s->budget, BUDGET_MIN);
}

void records_done(struct records *s)
{
	while (s->n_spare > 0)
		(void)fd_close(s->spare[--s->n_spare].fd);
}

/* ---- room ---- */

static void drop(struct keeper *k, size_t i)
{
	struct records *s = &k->records;

	keeper_tell(k, NOTE_DROP_RECORD, s->ended[i].number);
	s->bytes -= s->ended[i].size;
	s->n_ended--;
	memmove(&s->ended[i], &s->ended[i + 1], (s->n_ended - i) * sizeof(s->ended[0]));
}

static bool make_room(struct keeper *k, uint64_t bytes)
{
	struct records *s = &k->records;

	while (s->bytes + bytes > s->budget && s->n_ended > 0)
		drop(k, 0);
	return s->bytes + bytes <= s->budget;
}

/* The record's grow callback: reserves one more block. */
static bool grow(struct record *r, void *arg)
{
	struct command *c = arg;
	struct records *s = &c->keeper->records;
	uint64_t more = ROOM_STEP * RECORD_BLOCK;

	if (record_size(r) + RECORD_BLOCK <= c->room)
		return true;
	if (!make_room(c->keeper, more))
		return false;
	c->room += more;
	s->bytes += more;
	return true;
}

/* ---- files ---- */

static void want(struct keeper *k)
{
	struct records *s = &k->records;

	if (s->asked || s->n_spare > WANTED / 2)
		return;
	s->asked = true;
	keeper_tell(k, NOTE_WANT_RECORDS, WANTED);
}

/* Tests run without a warden: numbers without files. */
static void invent(struct records *s)
{
	s->spare[s->n_spare++] = (struct spare){ .number = ++s->invented, .fd = -EBADF };
}

bool records_take(struct keeper *k, struct command *c)
{
	struct records *s = &k->records;

	if (k->warden.fd < 0)
		invent(s);
	if (s->n_spare == 0) {
		want(k);
		return false;
	}
	/* Drops the oldest record if the table is full; running commands are always fewer than
	 * its rows. */
	while (s->n_ended + k->relays.n >= RECORDS_MAX && s->n_ended > 0)
		drop(k, 0);
	c->room = RECORD_BLOCKS + RECORD_BLOCKS_MIN * RECORD_BLOCK;
	(void)make_room(k, c->room);
	s->bytes += c->room;
	c->record = (struct record){
		.fd = s->spare[0].fd,
		.number = s->spare[0].number,
		.limit = s->limit,
		.grow = grow,
		.arg = c,
	};
	s->n_spare--;
	memmove(&s->spare[0], &s->spare[1], s->n_spare * sizeof(s->spare[0]));
	if (k->warden.fd >= 0)
		want(k);
	return true;
}

/* Inserts the record by its number, the oldest first. */
void records_ended(struct keeper *k, struct command *c)
{
	struct records *s = &k->records;
	size_t i = s->n_ended;
	uint64_t size = record_size(&c->record);

	(void)record_publish(&c->record);
	c->record.fd = fd_close(c->record.fd);
	s->bytes = s->bytes - c->room + size;
	assert(s->n_ended < RECORDS_MAX);
	while (i > 0 && s->ended[i - 1].number > c->record.number)
		i--;
	memmove(&s->ended[i + 1], &s->ended[i], (s->n_ended - i) * sizeof(s->ended[0]));
	s->ended[i] = (struct ended){ .number = c->record.number, .size = size };
	s->n_ended++;
}

bool records_came(struct keeper *k, uint64_t first, const int *files, size_t n)
{
	struct records *s = &k->records;

	if (n > ARRAY_SIZE(s->spare) - s->n_spare)
		return false;
	for (size_t i = 0; i < n; i++)
		s->spare[s->n_spare++] = (struct spare){ .number = first + i, .fd = files[i] };
	s->asked = false;
	return true;
}

void records_refused(struct keeper *k, uint64_t error)
{
	log_warning("no record can be made: %s", strerror((int)error));
	k->records.asked = false;
}
