/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a command's record from the client's request to the command's end. */
#include <string.h>

#include "base/clock.h"
#include "keeper/command.h"
#include "keeper/serve.h"

/* Copies the first value of a field, or `otherwise`; sets RECORD_CUT if it does not fit. */
static void copy_text(struct record_head *h, const struct fields *f, enum wire_tag tag,
		      const char *otherwise, char *to, size_t room)
{
	const char *text = otherwise;
	size_t pos = 0, n = strlen(otherwise);

	(void)fields_next(f, tag, &pos, &text, &n);
	if (n >= room)
		h->flags |= RECORD_CUT;
	n = MIN(n, room - 1);
	memcpy(to, text, n);
	to[n] = '\0';
}

static uint64_t hash(uint64_t h, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)s[i]) * UINT64_C(0x100000001b3);
	return h * UINT64_C(0x100000001b3); /* the NUL between arguments */
}

static void copy_argv(struct record_head *h, const struct fields *f)
{
	const char *arg;
	size_t pos = 0, n;

	h->argv_hash = UINT64_C(0xcbf29ce484222325);
	while (fields_next(f, TAG_ARGV, &pos, &arg, &n)) {
		size_t room = sizeof(h->argv) - h->shown, shown = MIN(n, room > 0 ? room - 1 : 0);

		h->argv_n++;
		h->argv_bytes += n + 1;
		h->argv_hash = hash(h->argv_hash, arg, n);
		if (n >= room)
			h->flags |= RECORD_CUT;
		if (room == 0)
			continue;
		memcpy(h->argv + h->shown, arg, shown);
		h->shown += shown + 1;
	}
}

struct command *command_new(struct keeper *k, const struct fields *f)
{
	struct command *c = calloc(1, sizeof(*c));
	struct record_head *h;

	if (!c)
		return NULL;
	c->keeper = k;
	c->record.fd = -EBADF;
	h = &c->head;
	h->flags = (fields_has(f, TAG_STDIN) ? RECORD_INPUT : 0U) |
		   (fields_has(f, TAG_COLUMNS) ? RECORD_TERMINAL : 0U) |
		   (fields_has(f, TAG_DETACH) ? RECORD_DETACHED : 0U);
	copy_text(h, f, TAG_NAME, "", h->name, sizeof(h->name));
	copy_text(h, f, TAG_USER, k->spec->user, h->user, sizeof(h->user));
	copy_text(h, f, TAG_CWD, k->spec->workspace, h->cwd, sizeof(h->cwd));
	copy_argv(h, f);
	return c;
}

struct command *command_adopted(struct keeper *k, const struct record_head *was)
{
	struct command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->keeper = k;
	c->record.fd = -EBADF;
	c->head = *was;
	c->head.flags |= RECORD_DETACHED;
	return c;
}

void command_free(struct command *c)
{
	if (!c)
		return;
	if (c->record.fd >= 0)
		records_ended(c->keeper, c);
	free(c);
}

void command_asked(struct command *c)
{
	const uint64_t now = clock_wall();

	if (c->head.start == 0)
		c->head.start = now;
	record_begin(&c->record, &c->head);
	/* An adopted command started earlier: its times count from that start. */
	c->record.start -= now - MIN(now, c->head.start);
	c->begun = true;
}

void command_runs(struct command *c, uint32_t pid)
{
	c->record.slot.state = RECORD_RUNNING;
	c->record.slot.pid = pid;
	c->record.dirty = true;
}

void command_exited(struct command *c, const struct fields *f)
{
	struct record_slot *s = &c->record.slot;
	uint64_t sig = fields_number(f, TAG_SIGNAL, 0);

	s->user_us = fields_number(f, TAG_USER_US, 0);
	s->system_us = fields_number(f, TAG_SYSTEM_US, 0);
	s->max_rss_kib = fields_number(f, TAG_MAX_RSS, 0);
	command_over(c, sig > 0 ? RECORD_SIGNALED : RECORD_EXITED,
		     (unsigned int)(sig > 0 ? sig : fields_number(f, TAG_CODE, 0)), "");
}

void command_over(struct command *c, enum record_how how, unsigned int value, const char *text)
{
	struct record_slot *s = &c->record.slot;

	if (c->over || !c->begun)
		return;
	c->over = true;
	s->how = how;
	s->value = value;
	(void)snprintf(s->text, sizeof(s->text), "%s", text);
	s->state = RECORD_ENDED;
	s->ended = clock_wall();
	c->record.dirty = true;
	records_ended(c->keeper, c);
}
