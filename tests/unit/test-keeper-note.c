/* SPDX-License-Identifier: Apache-2.0 */
/* Valid notes between warden and keeper: every kind, in every phase, with every number of files. */
#include "unit.h"

#include <dirent.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/note.h"
#include "keeper/take-note.h"

#define ANY UINT64_MAX

/* A second copy of the table, so that a change of it is noticed. */
static const struct {
	enum note_kind kind;
	enum note_sender by;
	const char *phases; /* B, H, W, S, A(sked), s(aving), E */
	size_t min, max;
	uint64_t value;
} allowed[] = {
	{ NOTE_READY, NOTE_BY_KEEPER, "H", 0, 0, UINT32_MAX },
	{ NOTE_WANT_RECORDS, NOTE_BY_KEEPER, "SAs", 0, 0, 8 },
	{ NOTE_DROP_RECORD, NOTE_BY_KEEPER, "SAs", 0, 0, UINT32_MAX },
	{ NOTE_WANT_AUDIT, NOTE_BY_KEEPER, "SAs", 0, 0, UINT32_MAX },
	{ NOTE_DIRTY, NOTE_BY_KEEPER, "BHSAs", 0, 0, 0 },
	{ NOTE_MACHINE_UP, NOTE_BY_KEEPER, "B", 0, 0, 0 },
	{ NOTE_WANT_SAVE, NOTE_BY_KEEPER, "S", 0, 0, 2 },
	{ NOTE_SAVED, NOTE_BY_KEEPER, "s", 0, 0, 1 },
	{ NOTE_LIFE, NOTE_BY_KEEPER, "SAs", 0, 0, ANY },
	{ NOTE_MET, NOTE_BY_KEEPER, "SAsE", 0, 0, ANY },
	{ NOTE_WANT_TRACE, NOTE_BY_KEEPER, "SAs", 0, 0, 1 },
	{ NOTE_STOPPED, NOTE_BY_KEEPER, "SAs", 0, 0, 2 },
	{ NOTE_WANT_TAP, NOTE_BY_KEEPER, "SAs", 0, 0, 0 },
	{ NOTE_WANT_FILTER, NOTE_BY_KEEPER, "SAs", 0, 0, 0 },
	{ NOTE_SECRET_USED, NOTE_BY_KEEPER, "SAs", 0, 0, 63 },
	{ NOTE_RUN, NOTE_BY_WARDEN, "H", 0, 0, 1 },
	{ NOTE_GO, NOTE_BY_WARDEN, "W", 0, 1, 1 },
	{ NOTE_RECORDS, NOTE_BY_WARDEN, "SAs", 1, 8, UINT32_MAX },
	{ NOTE_NO_RECORDS, NOTE_BY_WARDEN, "SAs", 0, 0, 4095 },
	{ NOTE_EGRESS, NOTE_BY_WARDEN, "W", 0, 5, 31 },
	{ NOTE_AUDIT, NOTE_BY_WARDEN, "SAs", 0, 1, UINT32_MAX },
	{ NOTE_LIFE_NOW, NOTE_BY_WARDEN, "SAs", 0, 0, ANY },
	{ NOTE_SAVE, NOTE_BY_WARDEN, "A", 0, 3, 0 },
	{ NOTE_SAVE_END, NOTE_BY_WARDEN, "s", 0, 0, ANY },
	{ NOTE_PAUSED, NOTE_BY_WARDEN, "SAs", 0, 0, 0 },
	{ NOTE_SUSPEND, NOTE_BY_WARDEN, "SAs", 0, 0, 0 },
	{ NOTE_RULES, NOTE_BY_WARDEN, "H", 1, 1, 0 },
	{ NOTE_ADOPT, NOTE_BY_WARDEN, "W", 1, 1, 0 },
	{ NOTE_TRACE, NOTE_BY_WARDEN, "SAs", 1, 1, 0 },
	{ NOTE_TAP, NOTE_BY_WARDEN, "SAs", 0, 1, 4095 },
	{ NOTE_FILTER, NOTE_BY_WARDEN, "SAs", 0, 1, 4095 },
};

static_assert(ARRAY_SIZE(allowed) == NOTE_KINDS - 1, "all of them");

static const char phases[NOTE_PHASES + 1] = "BHWSAsE";

static bool may_come(uint64_t kind, size_t n, enum note_sender by, enum note_phase phase)
{
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		if (allowed[i].kind == kind)
			return allowed[i].by == by && strchr(allowed[i].phases, phases[phase]) &&
			       n >= allowed[i].min && n <= allowed[i].max;
	return false;
}

static size_t open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static struct {
	unsigned int calls;
	uint64_t value;
	size_t n;
	bool refuses;
} handler;

static bool handle(void *arg, uint64_t value, const int *files, size_t n)
{
	assert_ptr_equal(arg, &handler);
	handler.calls++;
	handler.value = value;
	handler.n = n;
	if (handler.refuses)
		return false;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(close(files[i]), 0);
	return true;
}

static note_handler *handlers[NOTE_KINDS];

static int say(const int ends[2], uint64_t kind, uint64_t value, size_t n, enum note_sender by,
	       enum note_phase phase)
{
	int files[NOTE_FILES_MAX];

	for (size_t i = 0; i < NOTE_FILES_MAX; i++)
		files[i] = STDERR_FILENO;
	assert_int_equal(note_send(ends[0], (enum note_kind)kind, value, files, n), 0);
	return note_dispatch(ends[1], by, phase, handlers, &handler);
}

static void connect_ends(int ends[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	memset(&handler, 0, sizeof(handler));
	for (size_t i = 0; i < NOTE_KINDS; i++)
		handlers[i] = handle;
}

static void disconnect(const int ends[2])
{
	(void)close(ends[0]);
	(void)close(ends[1]);
}

static void try(const int ends[2], uint64_t kind, size_t n, enum note_sender by,
		enum note_phase phase)
{
	const bool may = may_come(kind, n, by, phase);

	handler.calls = 0;
	assert_int_equal(say(ends, kind, 0, n, by, phase), may ? 0 : -EBADMSG);
	assert_int_equal(handler.calls, may);
	if (may)
		assert_int_equal(handler.n, n);
}

/* Kind 0 and kinds after the last are invalid. */
static void only_the_table_comes(void **state)
{
	const size_t before = open_files();
	int ends[2];

	(void)state;
	connect_ends(ends);
	for (uint64_t kind = 0; kind < NOTE_KINDS + 2; kind++)
		for (unsigned int phase = 0; phase < NOTE_PHASES; phase++)
			for (size_t n = 0; n <= NOTE_FILES_MAX; n++)
				for (int by = NOTE_BY_KEEPER; by <= NOTE_BY_WARDEN; by++)
					try(ends, kind, n, (enum note_sender)by,
					    (enum note_phase)phase);
	try(ends, UINT64_MAX, 0, NOTE_BY_KEEPER, PHASE_SERVING);
	disconnect(ends);
	assert_int_equal(open_files(), before); /* files of a refused note are closed */
}

static void values_have_an_end(void **state)
{
	int ends[2];

	(void)state;
	connect_ends(ends);
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
		const enum note_phase phase =
			(enum note_phase)(strchr(phases, allowed[i].phases[0]) - phases);

		assert_int_equal(say(ends, allowed[i].kind, allowed[i].value, allowed[i].min,
				     allowed[i].by, phase),
				 0);
		assert_int_equal(handler.value, allowed[i].value);
		if (allowed[i].value == ANY)
			continue;
		assert_int_equal(say(ends, allowed[i].kind, allowed[i].value + 1, allowed[i].min,
				     allowed[i].by, phase),
				 -EBADMSG);
	}
	disconnect(ends);
}

static void a_handler_may_refuse(void **state)
{
	const size_t before = open_files();
	int ends[2];

	(void)state;
	connect_ends(ends);
	handler.refuses = true;
	assert_int_equal(say(ends, NOTE_RECORDS, 1, 3, NOTE_BY_WARDEN, PHASE_SERVING), -EBADMSG);
	assert_int_equal(handler.calls, 1);
	handlers[NOTE_RECORDS] = NULL;
	assert_int_equal(say(ends, NOTE_RECORDS, 1, 3, NOTE_BY_WARDEN, PHASE_SERVING), -EBADMSG);
	assert_int_equal(handler.calls, 1);
	disconnect(ends);
	assert_int_equal(open_files(), before);
}

static void what_is_no_note(void **state)
{
	int ends[2];

	(void)state;
	connect_ends(ends);
	assert_int_equal(note_dispatch(ends[1], NOTE_BY_KEEPER, PHASE_SERVING, handlers, &handler),
			 -EAGAIN);
	assert_int_equal(write(ends[0], "short", 5), 5);
	assert_int_equal(note_dispatch(ends[1], NOTE_BY_KEEPER, PHASE_SERVING, handlers, &handler),
			 -EBADMSG);
	(void)close(ends[0]);
	assert_int_equal(note_dispatch(ends[1], NOTE_BY_KEEPER, PHASE_SERVING, handlers, &handler),
			 -EPIPE);
	(void)close(ends[1]);
	assert_int_equal(handler.calls, 0);
}

static void the_keeper_takes_what_the_warden_says(void **state)
{
	(void)state;
	assert_null(keeper_notes[0]);
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		assert_int_equal(keeper_notes[allowed[i].kind] != NULL,
				 allowed[i].by == NOTE_BY_WARDEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_table_comes),
		cmocka_unit_test(values_have_an_end),
		cmocka_unit_test(a_handler_may_refuse),
		cmocka_unit_test(what_is_no_note),
		cmocka_unit_test(the_keeper_takes_what_the_warden_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
