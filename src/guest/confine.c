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
#include "guest-confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "calls-filter.h"
#include "fd.h"
#include "str.h"

/* Newer than the headers of Debian 12. */
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* ABI 3 */
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#endif

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

#define CAPABILITY(n) (UINT64_C(1) << (n))

/* To become users, hand them their terminal, raise their limits, and end them. */
#define IN_USE                                                                     \
	(CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID) | CAPABILITY(CAP_CHOWN) | \
	 CAPABILITY(CAP_SYS_RESOURCE) | CAPABILITY(CAP_KILL))

int confine_fd(unsigned int i)
{
	return i == 0 ? state.ruleset : state.first;
}

unsigned int confine_abi(void)
{
	return state.abi;
}

static uint64_t handled_by(long abi)
{
	uint64_t rights = RIGHTS_ALL;

	if (abi < 5)
		rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_IOCTL_DEV;
	if (abi < 3)
		rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_TRUNCATE;
	if (abi < 2) /* moves between directories are always denied there */
		rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
	return rights;
}

static int add_path(const char *path, uint64_t rights)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct landlock_path_beneath_attr rule = { .parent_fd = fd };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	rule.allowed_access = rights & state.handled;
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= RIGHTS_OF_FILE;
	if (syscall(SYS_landlock_add_rule, state.ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return -errno;
	return 0;
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
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_ruleset_attr attr = { 0 };
	int r;

	if (abi <= 0)
		return 0; /* the keeper is told, and decides */
	if (state.first < 0)
		state.first = TAKE_FD(state.ruleset);
	state.ruleset = fd_close(state.ruleset);
	state.handled = attr.handled_access_fs = handled_by(abi);
	/* The structure has grown since: this is its first member, which every kernel takes. */
	state.ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr,
				     sizeof(attr.handled_access_fs), 0); /* CLOEXEC by itself */
	if (state.ruleset < 0)
		return err_errno(e, "cannot make a Landlock ruleset");
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

/* Keeps of this process's capabilities those in `keep`, and uses those in `use`. 0 or -errno. */
static int limit_capabilities(uint64_t keep, uint64_t use)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (keep != 0 && syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (unsigned int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted & (uint32_t)(use >> (32 * i));
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
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
	r = limit_capabilities(IN_USE | CAPABILITY(CAP_DAC_READ_SEARCH) | state.spare, IN_USE);
	return r < 0 ? err_set(e, r, "cannot give up capabilities: %s", strerror(-r)) : 0;
}

void confine_keep(uint64_t capabilities)
{
	state.spare = capabilities;
}

void confine_raise(bool raise)
{
	if (state.spare != 0)
		(void)limit_capabilities(UINT64_MAX, IN_USE | (raise ? state.spare : 0));
}

void confine_self(void)
{
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/*
	 * prlimit(2) on another process wants all its numbers to be the caller's; a saved group
	 * that nobody has keeps a root without capabilities from starving the guest.
	 */
	(void)!setresgid((gid_t)-1, (gid_t)-1, 65534);
	/* After the last change of numbers, which sets it to fs.suid_dumpable. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static int restrict_self(int ruleset)
{
	return ruleset < 0 ? 0 : (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}

int confine_child(bool read_all)
{
	uint64_t keep = read_all ? CAPABILITY(CAP_DAC_READ_SEARCH) : 0;
	int r = limit_capabilities(keep, keep);

	/* A copy of the guest's memory, and by now the user's process. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (r < 0)
		return r;
	if (restrict_self(state.first) < 0 || restrict_self(state.ruleset) < 0)
		return -errno;
	return calls_filter_apply();
}
