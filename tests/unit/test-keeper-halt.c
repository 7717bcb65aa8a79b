/* SPDX-License-Identifier: Apache-2.0 */
/* A VM that stops without an order: the test is its QEMU, and the warden. */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "engine/qemu.h"
#include "keeper/serve.h"
#include "unit.h"

enum {
	A_WHILE_S = 120,
	FLOOD = 100,
};

#define EVENT "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": "
#define FULL                                                                         \
	EVENT "\"BLOCK_IO_ERROR\", \"data\": {\"device\": \"\", \"nospace\": true, " \
	      "\"action\": \"stop\"}}\r\n"
#define STOP	 EVENT "\"STOP\"}\r\n"
#define RESUME	 EVENT "\"RESUME\"}\r\n"
#define RETURN	 "{\"return\": {}}\r\n"
#define GREETING "{\"QMP\": {}}\r\n"
#define CONT	 "{\"execute\":\"cont\"}\n"

static const struct engine vm = {
	.name = "vm", .level = LEVEL_MICROVM, .traits = ENGINE_OWN_KERNEL, .monitor = &qemu_monitor
};
static struct spec spec;
static struct keeper k;
static int warden, qemu;

static void up(void *arg)
{
	((struct keeper *)arg)->phase = PHASE_SERVING;
}

static void failed(void *arg, const char *why)
{
	assert_string_equal(why, CONT);
	keeper_stop(arg, KEEPER_FAILED);
}

static void gone(void *arg, bool in_the_middle)
{
	keeper_stop(arg, KEEPER_GUEST_GONE);
}

static void stopped(void *arg, enum vm_stop why)
{
	halt_stopped(arg, why);
}

static const struct monitor_user user = { up, failed, gone, stopped };

static void say(const char *text)
{
	assert_int_equal(write(qemu, text, strlen(text)), strlen(text));
}

/* Runs the loop until QEMU gets this command, or until the deadline: false. */
static bool got(const char *command, uint64_t until)
{
	char in[256];
	size_t n = 0;

	while (n < strlen(command) && clock_mono() < until) {
		ssize_t r = recv(qemu, in + n, strlen(command) - n, MSG_DONTWAIT);

		if (r > 0)
			n += (size_t)r;
		else
			assert_true(loop_once(k.loop, until) >= 0);
	}
	return n == strlen(command) && memcmp(in, command, n) == 0;
}

static bool gets(const char *command)
{
	return got(command, clock_mono() + A_WHILE_S * NSEC_PER_SEC);
}

/* The next note to the warden. */
static uint64_t noted(void)
{
	const uint64_t until = clock_mono() + A_WHILE_S * NSEC_PER_SEC;
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n;

	while (note_receive(warden, &note, files, &n) < 0) {
		assert_true(clock_mono() < until);
		assert_true(loop_once(k.loop, until) >= 0);
	}
	assert_int_equal(note.kind, NOTE_STOPPED);
	return note.value;
}

static bool silence(void)
{
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n;

	return note_receive(warden, &note, files, &n) == -EAGAIN;
}

static void on_guest(struct loop_fd *src, uint32_t events)
{
}

static int setup(void **state)
{
	int fds[2], q[2], g[2];

	(void)state;
	k = (struct keeper){ .spec = &spec, .engine = &vm, .phase = PHASE_HELLO };
	k.save.begun = true; /* there is no guest whose clock could be set */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, q), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, g), 0);
	k.warden.fd = fds[0];
	warden = fds[1];
	qemu = q[1];
	assert_int_equal(loop_new(&k.loop), 0);
	assert_int_equal(port_init(&k.guest, LINK_KEEPER, &relay_guest_ops, &k, g[0], on_guest), 0);
	(void)fd_close(g[1]);
	k.vm.monitor = qemu_monitor.start(k.loop, q[0], 0, &user, &k);
	assert_non_null(k.vm.monitor);
	say(GREETING);
	assert_true(gets("{\"execute\":\"qmp_capabilities\"}\n"));
	say(RETURN);
	while (k.phase != PHASE_SERVING)
		assert_true(loop_once(k.loop, clock_mono() + NSEC_PER_SEC) >= 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	halt_done(&k);
	qemu_monitor.free(k.vm.monitor);
	port_done(&k.guest);
	k.loop = loop_free(k.loop);
	(void)fd_close(k.warden.fd);
	(void)fd_close(warden);
	(void)fd_close(qemu);
	return 0;
}

TEST_WITH(is_continued_until_it_runs, setup, teardown)
{
	(void)state;
	say(FULL STOP);
	assert_int_equal(noted(), LIFE_DISK_FULL);
	assert_true(halted(&k));
	/* Still no room, in both orders of the answer. */
	assert_true(gets(CONT));
	say(RESUME RETURN FULL STOP);
	assert_true(gets(CONT));
	say(RESUME FULL STOP RETURN);
	assert_true(gets(CONT));
	assert_true(silence());
	assert_true(halted(&k));
	say(RESUME RETURN);
	assert_int_equal(noted(), LIFE_RUNS);
	assert_false(halted(&k) || k.ended);
}

TEST_WITH(the_reason_belongs_to_one_stop, setup, teardown)
{
	(void)state;
	say(FULL STOP);
	assert_int_equal(noted(), LIFE_DISK_FULL);
	assert_true(gets(CONT));
	say(RESUME RETURN);
	assert_int_equal(noted(), LIFE_RUNS);
	say(STOP);
	assert_int_equal(noted(), LIFE_STOPPED);
}

/* A frozen QEMU cannot answer. */
TEST_WITH(a_paused_one_waits, setup, teardown)
{
	(void)state;
	k.life.paused = true;
	say(FULL STOP);
	assert_int_equal(noted(), LIFE_DISK_FULL);
	assert_false(got(CONT, clock_mono() + 2 * NSEC_PER_SEC));
	k.life.paused = false;
	assert_true(gets(CONT));
}

TEST_WITH(a_flood_is_one_stop, setup, teardown)
{
	(void)state;
	for (size_t i = 0; i < FLOOD; i++)
		say(FULL STOP RESUME);
	assert_int_equal(noted(), LIFE_DISK_FULL);
	assert_true(gets(CONT));
	assert_true(silence());
	assert_false(k.ended);
}

TEST_WITH(one_that_cannot_continue_ends, setup, teardown)
{
	(void)state;
	say(STOP);
	assert_int_equal(noted(), LIFE_STOPPED);
	assert_true(gets(CONT));
	say("{\"error\": {\"class\": \"GenericError\", \"desc\": \"Resetting\"}}\r\n");
	while (!k.ended)
		assert_true(loop_once(k.loop, clock_mono() + NSEC_PER_SEC) >= 0);
	assert_int_equal(k.end, KEEPER_FAILED);
}

TEST_WITH(a_start_fails_at_once, setup, teardown)
{
	(void)state;
	k.phase = PHASE_HELLO;
	say(FULL STOP);
	while (!k.ended)
		assert_true(loop_once(k.loop, clock_mono() + NSEC_PER_SEC) >= 0);
	assert_int_equal(k.end, KEEPER_DISK_FULL);
	assert_true(silence());
}
