/* SPDX-License-Identifier: Apache-2.0 */
/* Notes between warden and keeper. */
#include <sys/socket.h>

#include "fd-pass.h"
#include "note.h"
#include "trace.h"

static_assert((int)NOTE_FILES_MAX <= (int)FD_PASS_MAX, "all files of a note go in one packet");

static const char *name_of(uint64_t kind)
{
	static const char *const names[] = {
		[NOTE_READY] = "ready",
		[NOTE_WANT_RECORDS] = "want records",
		[NOTE_DROP_RECORD] = "drop record",
		[NOTE_WANT_AUDIT] = "want audit file",
		[NOTE_DIRTY] = "audit log has grown",
		[NOTE_MACHINE_UP] = "machine up",
		[NOTE_WANT_SAVE] = "want snapshot",
		[NOTE_SAVED] = "saved",
		[NOTE_LIFE] = "life",
		[NOTE_MET] = "limits met",
		[NOTE_WANT_TRACE] = "want trace lines",
		[NOTE_RUN] = "run",
		[NOTE_GO] = "go",
		[NOTE_RECORDS] = "records",
		[NOTE_NO_RECORDS] = "no records",
		[NOTE_EGRESS] = "egress sockets",
		[NOTE_AUDIT] = "audit file",
		[NOTE_LIFE_NOW] = "life now",
		[NOTE_SAVE] = "save",
		[NOTE_SAVE_END] = "snapshot done",
		[NOTE_PAUSED] = "paused",
		[NOTE_SUSPEND] = "suspend",
		[NOTE_RULES] = "rules",
		[NOTE_ADOPT] = "adopt",
		[NOTE_TRACE] = "trace lines",
	};

	return kind < ARRAY_SIZE(names) && names[kind] ? names[kind] : "unknown";
}

static void trace_note(const char *way, const struct keeper_note *note, size_t n)
{
	TRACE(TRACE_NOTE, "%s: %s, value %llu, %zu files", way, name_of(note->kind),
	      (unsigned long long)note->value, n);
}

/* Without files it is write(2): the keeper has no other way. */
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
};

/* The next `bits` of a value, which are taken off. */
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
