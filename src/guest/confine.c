/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ruleset is made once, from the paths of HELLO, and every child puts it on itself before it
 * runs anything of the user's. A domain is inherited over fork and exec and cannot be taken off, so
 * what a script calls is as confined as the script.
 *
 * A path that does not exist has no rule: what is created there later is denied, not allowed.
 *
 * At another HELLO, of a machine that was asleep, users may have put a link where a path of the
 * policy was. So its ruleset is put on above the first one, and allows nothing that this does not.
 */
#include "guest/guest-confine.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "confine/calls-filter.h"
#include "confine/caps.h"
#include "confine/landlock.h"
#include "confine/self.h"
#include "confine/stages.h"

#define RIGHTS_READ    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_EXECUTE (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE)
#define RIGHTS_ALL     (LANDLOCK_ACCESS_FS_IOCTL_DEV | (LANDLOCK_ACCESS_FS_IOCTL_DEV - 1))
#define RIGHTS_WRITE                                                                          \
	(RIGHTS_ALL & ~(uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | \
				  LANDLOCK_ACCESS_FS_MAKE_BLOCK))
#define RIGHTS_DEVICE                                                   \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | \
	 LANDLOCK_ACCESS_FS_TRUNCATE | LANDLOCK_ACCESS_FS_IOCTL_DEV)
/* What a rule on something that is not a directory may hold. */
#define RIGHTS_OF_FILE (RIGHTS_DEVICE | LANDLOCK_ACCESS_FS_EXECUTE)

/* What every program takes for granted. Nothing here can be executed. */
static const struct {
	const char *path;
	uint64_t rights;
} always[] = {
	{ "/dev/null", RIGHTS_DEVICE },
	{ "/dev/zero", RIGHTS_DEVICE },
	{ "/dev/full", RIGHTS_DEVICE },
	{ "/dev/random", RIGHTS_DEVICE },
	{ "/dev/urandom", RIGHTS_DEVICE },
	{ "/dev/tty", RIGHTS_DEVICE },
	{ "/dev/ptmx", RIGHTS_DEVICE },
	{ "/dev/pts", RIGHTS_DEVICE | LANDLOCK_ACCESS_FS_READ_DIR },
	{ "/dev/shm", RIGHTS_WRITE },
	{ "/proc", RIGHTS_READ },
};

static struct {
	unsigned int abi;
	uint64_t handled;
	int ruleset;	/* of the last HELLO */
	int first;	/* and of the first one, if that was another */
	uint64_t spare; /* capabilities that are kept and not in use: confine_raise() */
} state = { .ruleset = -EBADF, .first = -EBADF };

/* To become users, hand them their terminal, raise their limits, and end them. */
#define IN_USE                                                               \
	(CAPS_BIT(CAP_SETUID) | CAPS_BIT(CAP_SETGID) | CAPS_BIT(CAP_CHOWN) | \
	 CAPS_BIT(CAP_SYS_RESOURCE) | CAPS_BIT(CAP_KILL))

int confine_fd(unsigned int i)
{
	return i == 0 ? state.ruleset : state.first;
}

unsigned int confine_abi(void)
{
	return state.abi;
}

static int add_path(const char *path, uint64_t rights)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	rights &= state.handled;
	if (!S_ISDIR(st.st_mode))
		rights &= RIGHTS_OF_FILE;
	return landlock_allow(state.ruleset, fd, rights);
}

static int add_list(const struct fields *f, enum wire_tag tag, uint64_t rights, struct err *e)
{
	char path[4096 + 1];
	const char *value;
	size_t pos = 0, n;
	int r;

	while (fields_next(f, tag, &pos, &value, &n)) {
		if (n == 0 || value[0] != '/' || n >= sizeof(path))
			return err_set(e, -EINVAL, "a path of the policy is not absolute");
		memcpy(path, value, n);
		path[n] = '\0';
		r = add_path(path, rights);
		if (r < 0)
			return err_set(e, r, "cannot confine '%s': %s", path, strerror(-r));
	}
	return 0;
}

static int make_ruleset(const struct fields *hello, struct err *e)
{
	int r, abi = landlock_abi();

	if (abi < 1)
		return 0; /* the keeper is told, and decides */
	if (state.first < 0)
		state.first = TAKE_FD(state.ruleset);
	state.ruleset = fd_close(state.ruleset);
	state.handled = landlock_file_rights(abi);
	state.ruleset = landlock_ruleset(&(struct landlock_rights){ .fs = state.handled });
	if (state.ruleset < 0)
		return err_set(e, state.ruleset, "cannot make a Landlock ruleset: %s",
			       strerror(-state.ruleset));
	for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
		r = add_path(always[i].path, always[i].rights);
		if (r < 0)
			return err_set(e, r, "cannot allow '%s': %s", always[i].path, strerror(-r));
	}
	if (add_list(hello, TAG_READ, RIGHTS_READ, e) < 0 ||
	    add_list(hello, TAG_WRITE, RIGHTS_WRITE, e) < 0 ||
	    add_list(hello, TAG_EXECUTE, RIGHTS_EXECUTE, e) < 0)
		return e->num;
	state.abi = (unsigned int)abi;
	return 0;
}

int confine_start(const struct fields *hello, struct err *e)
{
	const char *name;
	size_t pos = 0, n;
	int r;

	/* Containers come with their name and without the right to change it. */
	if (fields_next(hello, TAG_HOSTNAME, &pos, &name, &n))
		(void)!sethostname(name, n);
	if (make_ruleset(hello, e) < 0)
		return e->num;
	/* The second one is for a child: see confine_child(). */
	r = caps_limit(IN_USE | CAPS_BIT(CAP_DAC_READ_SEARCH) | state.spare, IN_USE);
	return r < 0 ? err_set(e, r, "cannot give up capabilities: %s", strerror(-r)) : 0;
}

void confine_keep(uint64_t capabilities)
{
	state.spare = capabilities;
}

void confine_raise(bool raise)
{
	if (state.spare != 0)
		(void)caps_limit(UINT64_MAX, IN_USE | (raise ? state.spare : 0));
}

void confine_self(void)
{
	(void)caps_bound(0);
	(void)self_no_new_privileges();
	/*
	 * prlimit(2) on another process wants all its numbers to be the caller's; a saved group
	 * that nobody has keeps a root without capabilities from starving the guest.
	 */
	(void)!setresgid((gid_t)-1, (gid_t)-1, 65534);
	/* After the last change of numbers, which sets it to fs.suid_dumpable. */
	(void)self_not_dumpable();
}

/* ---- a child ---- */

/* A copy of the guest's memory, and by now the user's process. */
static int hide_memory(void *arg)
{
	(void)self_not_dumpable();
	return 0;
}

static int drop_capabilities(void *arg)
{
	const uint64_t *keep = arg;

	return caps_limit(*keep, *keep);
}

static int has_no_others(void *arg)
{
	const uint64_t *keep = arg;

	return caps_check(*keep);
}

static int restrict_files(void *arg)
{
	int r = state.first < 0 ? 0 : landlock_restrict(state.first);

	return r < 0 || state.ruleset < 0 ? r : landlock_restrict(state.ruleset);
}

static int filter_calls(void *arg)
{
	return calls_filter_apply();
}

static const struct confine_stage stages[] = {
	{ "memory", hide_memory },
	{ "capabilities", drop_capabilities, has_no_others },
	{ "Landlock", restrict_files },
	{ "the filter of system calls", filter_calls },
	{ NULL },
};

int confine_child(bool read_all)
{
	uint64_t keep = read_all ? CAPS_BIT(CAP_DAC_READ_SEARCH) : 0;

	return confine_run(stages, &keep, NULL);
}
