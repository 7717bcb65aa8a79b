/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that a VM's agent reports: what the warden receives, and how often. */
#include <sys/socket.h>

#include "base/clock.h"
#include "keeper/serve.h"
#include "unit-engine.h"
#include "unit.h"

enum {
	FLOOD = 1000,
	A_WHILE_S = 120,
};

static struct spec spec;
static struct keeper k;
static int warden;

static int setup(void **state)
{
	int fds[2];

	(void)state;
	k = (struct keeper){ .spec = &spec, .engine = &unit_vm };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	k.warden.fd = fds[0];
	warden = fds[1];
	return loop_new(&k.loop);
}

static int teardown(void **state)
{
	(void)state;
	met_done(&k);
	k.loop = loop_free(k.loop);
	(void)fd_close(k.warden.fd);
	(void)fd_close(warden);
	return 0;
}

static bool say(uint64_t limit, uint64_t size)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct err e = ERR_INIT;
	struct fields f;

	fields_put_number(&b, TAG_SIZE, size);
	fields_put_number(&b, TAG_LIMIT, limit);
	assert_int_equal(fields_parse(MESSAGE_LIMIT, b.data, b.len, &f, &e), 0);
	return met_said(&k, &f);
}

static bool heard(struct met *ret)
{
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n;

	if (note_receive(warden, &note, files, &n) < 0)
		return false;
	assert_int_equal(note.kind, NOTE_MET);
	assert_int_equal(n, 0);
	assert_true(met_unpack(note.value, ret));
	return true;
}

TEST_WITH(numbers_fit, setup, teardown)
{
	const struct met all = { .oom_kills = UINT64_MAX,
				 .pids_refused = UINT64_MAX,
				 .disk_full = true };
	struct met got;

	(void)state;
	assert_true(met_unpack(met_pack(&all), &got));
	assert_int_equal(got.oom_kills, (1 << 24) - 1);
	assert_int_equal(got.pids_refused, (UINT64_C(1) << 36) - 1);
	assert_true(got.disk_full);
	assert_false(got.inodes_full);
	assert_true(met_unpack(met_pack(&(struct met){ .inodes_full = true }), &got));
	assert_true(got.inodes_full && !got.disk_full && got.oom_kills == 0);
	assert_false(met_unpack(UINT64_MAX, &got));
}

TEST_WITH(the_warden_hears_it, setup, teardown)
{
	struct met got = { 0 };

	(void)state;
	assert_true(say(WIRE_LIMIT_MEMORY, 3));
	assert_true(heard(&got));
	assert_int_equal(got.oom_kills, 3);
	assert_false(heard(&got));
	/* A report that follows at once is delayed, and not lost at the end. */
	assert_true(say(WIRE_LIMIT_PIDS, 5));
	assert_true(say(WIRE_LIMIT_DISK, 1));
	assert_false(heard(&got));
	met_done(&k);
	assert_true(heard(&got));
	assert_int_equal(got.oom_kills, 3);
	assert_int_equal(got.pids_refused, 5);
	assert_true(got.disk_full);
}

TEST_WITH(a_flood_is_a_few_notes, setup, teardown)
{
	uint64_t end = clock_mono() + A_WHILE_S * NSEC_PER_SEC;
	struct met got = { 0 };

	(void)state;
	for (uint64_t i = 1; i <= FLOOD; i++)
		(void)say(WIRE_LIMIT_PIDS, i);
	assert_true(heard(&got));
	assert_int_equal(got.pids_refused, 1);
	assert_false(heard(&got));
	while (!heard(&got)) {
		assert_true(clock_mono() < end);
		assert_true(loop_once(k.loop, end) >= 0);
	}
	assert_int_equal(got.pids_refused, FLOOD);
	assert_false(heard(&got));
}

TEST_WITH(a_container_has_nothing_to_say, setup, teardown)
{
	struct met got;

	(void)state;
	k.engine = &unit_container;
	assert_false(say(WIRE_LIMIT_MEMORY, 3));
	met_done(&k);
	assert_false(heard(&got));
}
