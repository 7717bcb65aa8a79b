/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands outlive their keeper where a machine is saved and another keeper continues it: a fork, a
 * sandbox of a snapshot, one that was suspended. The guest keeps them, their pipes unread; what it
 * knows of each is a pid. What was asked for is known to the keeper only. So that writes the
 * headers of their records into a list, when the guest is asleep and nothing changes any more, and
 * the list is saved with the machine.
 *
 * The next keeper gets it before "go" and takes each command over (OPEN adopt): it has a record of
 * its own from there on, with the name, the arguments and the start of the old one, its output
 * since the machine was saved, and its end. It is detached: whoever waited for it waited elsewhere.
 * Of time limits that of the policy begins anew.
 *
 * The list comes from a process that may have been anybody's by then. It is checked as a record is,
 * by the one process that has no rights; a pid that is none is refused by the guest, whose it is.
 */
#include <string.h>

#include "base/log.h"
#include "keeper/command.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

static const char left[] =
	"the sandbox was suspended; 'hutch resume' lets the command go on, with a "
	"new record";

static bool runs(const struct relay *r)
{
	return r->command && r->command->begun && !r->command->over && r->guest_ch != 0 &&
	       r->pid != 0;
}

static int put(const struct command *c, int list)
{
	const struct record_info i = { .head = c->head, .slot = c->record.slot };

	return record_list_put(list, &i);
}

int adopt_write(const struct keeper *k, int list)
{
	int err = 0;

	for (const struct relay *r = k->relays.list; r && err == 0; r = r->next)
		if (runs(r))
			err = put(r->command, list);
	return err;
}

void adopt_leave(struct keeper *k)
{
	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		if (runs(r))
			relay_finish(r, WIRE_GONE, left, strlen(left));
	}
	relays_publish(k);
}

static bool adoptable(const struct record_info *i)
{
	return i->slot.state == RECORD_RUNNING && i->slot.pid > 0 && i->slot.pid <= INT32_MAX;
}

void adopt_all(struct keeper *k)
{
	struct record_info was;
	struct err e = ERR_INIT;
	int r = 0;

	if (k->vm.adopt < 0)
		return;
	while (r >= 0 && (r = record_list_next(k->vm.adopt, &was, &e)) == 1) {
		if (!adoptable(&was))
			continue;
		r = relay_adopt(k, &was);
		if (r < 0)
			(void)err_set(&e, r, "too many of them");
	}
	if (r < 0)
		log_error("not all commands that run are taken over: %s", e.msg);
	k->vm.adopt = fd_close(k->vm.adopt);
	relays_recordable(k, 0);
}
