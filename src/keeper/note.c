/* SPDX-License-Identifier: Apache-2.0 */
/* Notes between warden and keeper: the table of allowed notes, and packing their values. */
#include <sys/socket.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/trace.h"
#include "egress/sockets.h"
#include "engine/monitor.h"
#include "keeper/note.h"
#include "tap-link/tap-link.h"
#include "wire/wire.h"

static_assert((int)NOTE_FILES_MAX <= (int)FD_PASS_MAX, "all files of a note go in one packet");

#define ANY    UINT64_MAX
#define NUMBER ((uint64_t)UINT32_MAX) /* the largest number of a record or an audit file */

enum {
	BOOT = 1 << PHASE_BOOT,
	HELLO = 1 << PHASE_HELLO,
	WAITING = 1 << PHASE_WAITING,
	SERVING = 1 << PHASE_SERVING,
	SAVE_ASKED = 1 << PHASE_SAVE_ASKED,
	SAVING = 1 << PHASE_SAVING,
	ENDING = 1 << PHASE_ENDING,
	SERVED = SERVING | SAVE_ASKED | SAVING,
	ERRNO_MAX = 4095,
};

struct note_rule {
	const char *name; /* in trace lines */
	enum note_sender by;
	unsigned int phases;
	size_t files_min, files_max;
	uint64_t value_max;
};

/* clang-format off */
static const struct note_rule rules[NOTE_KINDS] = {
	[NOTE_READY] = { "ready", NOTE_BY_KEEPER, HELLO, 0, 0, UINT32_MAX },
	[NOTE_WANT_RECORDS] = { "want records", NOTE_BY_KEEPER, SERVED, 0, 0, NOTE_FILES_MAX },
	[NOTE_DROP_RECORD] = { "drop record", NOTE_BY_KEEPER, SERVED, 0, 0, NUMBER },
	[NOTE_WANT_AUDIT] = { "want audit file", NOTE_BY_KEEPER, SERVED, 0, 0, NUMBER },
	[NOTE_DIRTY] = { "audit log has grown", NOTE_BY_KEEPER, BOOT | HELLO | SERVED, 0, 0, 0 },
	[NOTE_MACHINE_UP] = { "VM up", NOTE_BY_KEEPER, BOOT, 0, 0, 0 },
	[NOTE_WANT_SAVE] = { "want snapshot", NOTE_BY_KEEPER, SERVING, 0, 0, WIRE_SAVE_FORK },
	[NOTE_SAVED] = { "saved", NOTE_BY_KEEPER, SAVING, 0, 0, 1 },
	[NOTE_LIFE] = { "life", NOTE_BY_KEEPER, SERVED, 0, 0, ANY },
	[NOTE_MET] = { "limits met", NOTE_BY_KEEPER, SERVED | ENDING, 0, 0, ANY },
	[NOTE_STOPPED] = { "VM stopped", NOTE_BY_KEEPER, SERVED, 0, 0, LIFE_STOPS - 1 },
	[NOTE_WANT_TAP] = { "want hutch-tap", NOTE_BY_KEEPER, SERVED, 0, 0, 0 },
	[NOTE_WANT_FILTER] = { "want hutch-filter", NOTE_BY_KEEPER, SERVED, 0, 0, 0 },
	[NOTE_SECRET_USED] = { "secret used", NOTE_BY_KEEPER, SERVED, 0, 0, TAP_SECRETS_MAX - 1 },
	[NOTE_WANT_TRACE] = { "want trace lines", NOTE_BY_KEEPER, SERVED, 0, 0, 1 },

	[NOTE_RUN] = { "run", NOTE_BY_WARDEN, HELLO, 0, 0, VM_RESTORE },
	[NOTE_GO] = { "go", NOTE_BY_WARDEN, WAITING, 0, 1, 1 },
	[NOTE_RECORDS] = { "records", NOTE_BY_WARDEN, SERVED, 1, NOTE_FILES_MAX, NUMBER },
	[NOTE_NO_RECORDS] = { "no records", NOTE_BY_WARDEN, SERVED, 0, 0, ERRNO_MAX },
	[NOTE_EGRESS] = { "egress sockets", NOTE_BY_WARDEN, WAITING, 0, CAPTURE_SOCKETS,
			  (1 << CAPTURE_SOCKETS) - 1 },
	[NOTE_AUDIT] = { "audit file", NOTE_BY_WARDEN, SERVED, 0, 1, NUMBER },
	[NOTE_LIFE_NOW] = { "life now", NOTE_BY_WARDEN, SERVED, 0, 0, ANY },
	[NOTE_SAVE] = { "save", NOTE_BY_WARDEN, SAVE_ASKED, 0, 3, 0 },
	[NOTE_SAVE_END] = { "snapshot done", NOTE_BY_WARDEN, SAVING, 0, 0, ANY },
	[NOTE_PAUSED] = { "paused", NOTE_BY_WARDEN, SERVED, 0, 0, 0 },
	[NOTE_SUSPEND] = { "suspend", NOTE_BY_WARDEN, SERVED, 0, 0, 0 },
	[NOTE_RULES] = { "rules", NOTE_BY_WARDEN, HELLO, 1, 1, 0 },
	[NOTE_ADOPT] = { "adopt", NOTE_BY_WARDEN, WAITING, 1, 1, 0 },
	[NOTE_TRACE] = { "trace lines", NOTE_BY_WARDEN, SERVED, 1, 1, 0 },
	[NOTE_TAP] = { "hutch-tap", NOTE_BY_WARDEN, SERVED, 0, 1, ERRNO_MAX },
	[NOTE_FILTER] = { "hutch-filter", NOTE_BY_WARDEN, SERVED, 0, 1, ERRNO_MAX },
};
/* clang-format on */

static const struct note_rule *rule_of(uint64_t kind)
{
	return kind < NOTE_KINDS && rules[kind].name ? &rules[kind] : NULL;
}

static void trace_note(const char *way, const struct keeper_note *note, size_t n)
{
	const struct note_rule *rule = rule_of(note->kind);

	TRACE(TRACE_NOTE, "%s: %s, value %llu, %zu files", way, rule ? rule->name : "unknown",
	      (unsigned long long)note->value, n);
}

/* Without files this is write(2): the keeper's filter allows sendmsg(2) only for VMs. */
int note_send(int fd, enum note_kind kind, uint64_t value, const int *files, size_t n)
{
	const struct keeper_note note = { .kind = kind, .value = value };

	assert(n <= NOTE_FILES_MAX);
	trace_note("sent", &note, n);
	if (n > 0)
		return fd_pass(fd, MSG_DONTWAIT, &note, sizeof(note), files, n);
	return RETRY_EINTR(write(fd, &note, sizeof(note))) < 0 ? -errno : 0;
}

int note_receive(int fd, struct keeper_note *ret, int files[static NOTE_FILES_MAX], size_t *ret_n)
{
	int r = fd_receive(fd, MSG_DONTWAIT, ret, sizeof(*ret), files, NOTE_FILES_MAX);
	size_t n = 0;

	if (r < 0)
		return r;
	while (n < NOTE_FILES_MAX && files[n] >= 0)
		n++;
	*ret_n = n;
	trace_note("received", ret, n);
	return 0;
}

bool note_may_come(const struct keeper_note *note, size_t n, enum note_sender by,
		   enum note_phase phase)
{
	const struct note_rule *rule = rule_of(note->kind);

	return rule && rule->by == by && rule->phases >> phase & 1 && n >= rule->files_min &&
	       n <= rule->files_max && note->value <= rule->value_max;
}

static int reject(const int *files, size_t n)
{
	while (n > 0)
		(void)fd_close(files[--n]);
	return -EBADMSG;
}

int note_take(int fd, enum note_sender by, enum note_phase phase, struct keeper_note *ret,
	      int files[static NOTE_FILES_MAX], size_t *ret_n)
{
	struct keeper_note note = { 0 };
	size_t n = 0;
	int r = note_receive(fd, &note, files, &n);

	if (r < 0)
		return r;
	if (!note_may_come(&note, n, by, phase))
		return reject(files, n);
	*ret = note;
	*ret_n = n;
	return 0;
}

int note_dispatch(int fd, enum note_sender by, enum note_phase phase,
		  note_handler *const handlers[static NOTE_KINDS], void *arg)
{
	int files[NOTE_FILES_MAX], r;
	struct keeper_note note = { 0 };
	size_t n = 0;

	r = note_take(fd, by, phase, &note, files, &n);
	if (r < 0)
		return r;
	if (handlers[note.kind] && handlers[note.kind](arg, note.value, files, n))
		return 0;
	return reject(files, n);
}

void save_name(uint64_t number, char ret[static SAVE_NAME])
{
	ret[0] = 's';
	ret[SAVE_NAME - 1] = '\0';
	for (size_t i = SAVE_NAME - 2; i > 0; i--) {
		ret[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
		number /= 36;
	}
}

/* ---- values ---- */

enum {
	TIMEOUT_BITS = 32,
	WORD_BITS = 2,
	MS_BITS = 48,
	RESULT_BITS = 8,
	MET_KILLS_BITS = 24,
	MET_FORKS_BITS = 36,
};

#define KILLS_MAX ((UINT64_C(1) << MET_KILLS_BITS) - 1)
#define FORKS_MAX ((UINT64_C(1) << MET_FORKS_BITS) - 1)

/* Removes the lowest `bits` from the value and returns them. */
static uint64_t take(uint64_t *value, unsigned int bits)
{
	uint64_t low = *value & ((UINT64_C(1) << bits) - 1);

	*value >>= bits;
	return low;
}

uint64_t life_order_pack(const struct life_order *o)
{
	return o->timeout | (uint64_t)o->on_timeout << TIMEOUT_BITS |
	       (uint64_t)o->want << (TIMEOUT_BITS + WORD_BITS);
}

bool life_order_unpack(uint64_t value, struct life_order *ret)
{
	ret->timeout = (uint32_t)take(&value, TIMEOUT_BITS);
	ret->on_timeout = (enum life_then)take(&value, WORD_BITS);
	ret->want = (enum life_want)take(&value, WORD_BITS);
	return value == 0 && ret->on_timeout <= THEN_PAUSE && ret->want <= WANT_RUNNING;
}

uint64_t life_answer_pack(const struct life_answer *a)
{
	return MIN(a->ms, (UINT64_C(1) << MS_BITS) - 1) | (uint64_t)a->result << MS_BITS |
	       (uint64_t)a->paused << (MS_BITS + RESULT_BITS);
}

bool life_answer_unpack(uint64_t value, struct life_answer *ret)
{
	ret->ms = take(&value, MS_BITS);
	ret->result = (enum life_result)take(&value, RESULT_BITS);
	ret->paused = take(&value, 1);
	return value == 0 && ret->result < LIFE_RESULTS;
}

uint64_t met_pack(const struct met *m)
{
	return MIN(m->oom_kills, KILLS_MAX) | MIN(m->pids_refused, FORKS_MAX) << MET_KILLS_BITS |
	       (uint64_t)m->disk_full << (MET_KILLS_BITS + MET_FORKS_BITS) |
	       (uint64_t)m->inodes_full << (MET_KILLS_BITS + MET_FORKS_BITS + 1);
}

bool met_unpack(uint64_t value, struct met *ret)
{
	const uint64_t flags = value >> (MET_KILLS_BITS + MET_FORKS_BITS);

	if (flags > 3)
		return false;
	*ret = (struct met){ .oom_kills = value & KILLS_MAX,
			     .pids_refused = value >> MET_KILLS_BITS & FORKS_MAX,
			     .disk_full = (flags & 1) != 0,
			     .inodes_full = (flags & 2) != 0 };
	return true;
}
