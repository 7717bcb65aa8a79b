/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first fault point that a process passes reads HUTCH_FAULT into a table of fixed size; a child
 * inherits the table with its counters. No memory is allocated and no file opened, so a point may
 * be anywhere, even in the keeper after it has confined itself: there the syscall filter rejects
 * kill(2) and thereby kills the process.
 */
#include "base/fault.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/str.h"

enum {
	FAULTS_MAX = 8,
	POINT_MAX = 48,
	DEADLY = 1, /* kill the process; other values are -errno */
	STATUS_KILLED = 128 + SIGKILL,
	ENV_MAX = 1024,
};

struct fault {
	char point[POINT_MAX];
	uint64_t left; /* passes until it strikes; 0: it has struck */
	int what;
};

static struct {
	bool read, list;
	size_t n;
	struct fault v[FAULTS_MAX];
} faults;

static const struct {
	const char *name;
	int what;
} kinds[] = {
	{ "kill", DEADLY },    { "ENOSPC", -ENOSPC }, { "EIO", -EIO },	     { "EMFILE", -EMFILE },
	{ "ENFILE", -ENFILE }, { "ENOMEM", -ENOMEM }, { "EINTR", -EINTR },   { "EAGAIN", -EAGAIN },
	{ "EACCES", -EACCES }, { "EPERM", -EPERM },   { "EROFS", -EROFS },   { "EBUSY", -EBUSY },
	{ "ENOENT", -ENOENT }, { "EPIPE", -EPIPE },   { "EDQUOT", -EDQUOT }, { "ESRCH", -ESRCH },
};

static int kind_of(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, name, n) == 0)
			return kinds[i].what;
	return 0;
}

/* Parses one "POINT[:N]=WHAT" of `n` bytes. */
static int add(const char *s, size_t n)
{
	const char *equals = memchr(s, '=', n), *colon = memchr(s, ':', n);
	struct fault f = { .left = 1 };
	size_t name;

	if (!equals || faults.n == FAULTS_MAX)
		return -EINVAL;
	if (colon > equals)
		colon = NULL;
	name = (size_t)((colon ? colon : equals) - s);
	f.what = kind_of(equals + 1, n - (size_t)(equals + 1 - s));
	if (name == 0 || name >= sizeof(f.point) || f.what == 0)
		return -EINVAL;
	memcpy(f.point, s, name);
	if (colon &&
	    (str_to_u64(colon + 1, (size_t)(equals - colon - 1), UINT32_MAX, &f.left) < 0 ||
	     f.left == 0))
		return -EINVAL;
	faults.v[faults.n++] = f;
	return 0;
}

static void read_faults(void)
{
	const char *s = getenv("HUTCH_FAULT");

	faults.read = true;
	faults.list = getenv("HUTCH_FAULT_LIST");
	while (s && *s) {
		size_t n = strcspn(s, ",");

		/* Ignoring an invalid request would let the test pass without its fault. */
		if (add(s, n) < 0) {
			(void)dprintf(STDERR_FILENO, "HUTCH_FAULT: '%.*s' is not POINT[:N]=WHAT\n",
				      (int)n, s);
			_exit(2);
		}
		s += n + (s[n] == ',');
	}
}

/* One write(2), which the keeper's syscall filter allows. */
static void say(const char *what, const char *point)
{
	char line[POINT_MAX + 48];
	int n = snprintf(line, sizeof(line), "fault %s %s in %d\n", what, point, (int)getpid());

	(void)!write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1));
}

static int strike(const char *point)
{
	if (!faults.read)
		read_faults();
	if (faults.list)
		say("point", point);
	for (size_t i = 0; i < faults.n; i++) {
		struct fault *f = &faults.v[i];

		if (f->left > 0 && str_eq(f->point, point) && --f->left == 0) {
			say("struck at", point);
			return f->what;
		}
	}
	return 0;
}

int fault_pass(const char *point)
{
	int what = strike(point);

	if (what != DEADLY)
		return what;
	(void)kill(getpid(), SIGKILL);
	_exit(STATUS_KILLED); /* PID 1 of a PID namespace ignores its own SIGKILL */
}

int fault_err(const char *point, struct err *e)
{
	int r = fault_pass(point);

	return r < 0 ? err_set(e, r, "fault point %s: %s", point, strerror(-r)) : 0;
}

void fault_kill(const char *point, int pidfd)
{
	if (strike(point) == DEADLY && pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

const char *const *fault_env(void)
{
	static const char *const names[] = { "HUTCH_FAULT", "HUTCH_FAULT_LIST" };
	static char text[ARRAY_SIZE(names)][ENV_MAX];
	static const char *env[ARRAY_SIZE(names) + 1];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);

		if (value && snprintf(text[n], ENV_MAX, "%s=%s", names[i], value) < ENV_MAX) {
			env[n] = text[n];
			n++;
		}
	}
	env[n] = NULL;
	return env;
}
