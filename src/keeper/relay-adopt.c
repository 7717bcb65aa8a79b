/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands outlive their keeper when another keeper continues a saved VM: a fork, a sandbox started
 * from a snapshot, a resumed sandbox. The guest keeps the processes, with their output unread in
 * the pipes, but knows only a pid of each; only the keeper knows the request. So the keeper writes
 * the record headers of running commands into a list while the guest is asleep, and the list is
 * saved with the VM.
 *
 * The next keeper gets the list before "go" and takes over each command (OPEN adopt). The command
 * gets a new record with the old one's name, arguments and start, its output since the VM was
 * saved, and its end. It is detached: its old client is connected elsewhere. The policy's time
 * limit starts anew.
 *
 * The list is untrusted: an attacker may have controlled the keeper that wrote it. The unprivileged
 * keeper checks it like any record, and the guest refuses an unknown pid.
 */
#include <string.h>

#include "base/log.h"
#include "keeper/command.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

static const char left[] =
	"the sandbox was suspended; 'hutch resume' continues the command, with a new record";

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
		log_error("cannot take over all running commands: %s", e.msg);
	k->vm.adopt = fd_close(k->vm.adopt);
	relays_recordable(k, 0);
}
