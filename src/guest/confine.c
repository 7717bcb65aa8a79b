/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines user code. The guest builds the Landlock ruleset once, from the paths of HELLO, and
 * every child applies it before it runs user code. A Landlock domain is inherited over fork and
 * exec and cannot be removed.
 *
 * A path that does not exist gets no rule: a file that is created there later is denied.
 *
 * Before a resumed VM receives its next HELLO, users may have replaced a path of the policy by a
 * symbolic link. So children apply the new ruleset on top of the first: it cannot widen that.
 */
#include "guest/guest-confine.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "ca-store/ca-store.h"
#include "confine/calls-filter.h"
#include "confine/caps.h"
#include "confine/landlock.h"
#include "confine/self.h"
#include "confine/stages.h"
#include "guest/vm.h"

#define RIGHTS_READ    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_EXECUTE (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE)
#define RIGHTS_ALL     (LANDLOCK_ACCESS_FS_IOCTL_DEV | (LANDLOCK_ACCESS_FS_IOCTL_DEV - 1))
#define RIGHTS_WRITE                                                                          \
	(RIGHTS_ALL & ~(uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | \
				  LANDLOCK_ACCESS_FS_MAKE_BLOCK))
#define RIGHTS_DEVICE                                                   \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | \
	 LANDLOCK_ACCESS_FS_TRUNCATE | LANDLOCK_ACCESS_FS_IOCTL_DEV)
/* The rights that a rule on a non-directory may contain. */
#define RIGHTS_OF_FILE (RIGHTS_DEVICE | LANDLOCK_ACCESS_FS_EXECUTE)

/* Files that every program needs. None of them can be executed. */
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
	int ruleset;	/* from the last HELLO */
	int first;	/* from the first HELLO, if that was another one */
	uint64_t spare; /* capabilities kept but not raised: confine_raise() */
} state = { .ruleset = -EBADF, .first = -EBADF };

/* To become users, hand them their terminal, raise their limits, and kill their processes. */
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

/* Takes an O_PATH descriptor; a negative one is a missing path. */
static int add_fd(int taken, uint64_t rights)
{
	_cleanup_close_ int fd = taken;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	rights &= state.handled;
	if (!S_ISDIR(st.st_mode))
		rights &= RIGHTS_OF_FILE;
	return landlock_allow(state.ruleset, fd, rights);
}

static int add_path(const char *path, uint64_t rights)
{
	return add_fd(open(path, O_PATH | O_CLOEXEC), rights);
}

/*
 * Every policy lets programs read the CA certificates that they shall use. Not through links: those
 * of an image could lead anywhere.
 */
static int add_trust(struct err *e)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = root < 0 ? -errno : 0;

	for (size_t i = 0; r == 0 && ca_store_readable[i]; i++)
		r = add_fd(path_open_nofollow(root, ca_store_readable[i], O_PATH, 0), RIGHTS_READ);
	return r < 0 ? err_set(e, r, "cannot allow the CA certificates: %s", strerror(-r)) : 0;
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

	if (abi < 1 || vm_is_nested())
		return 0; /* the guest reports this to the keeper, which decides */
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
	if (fields_has(hello, TAG_CA) && add_trust(e) < 0)
		return e->num;
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

	/* A container has its host name already, and may not change it. */
	if (fields_next(hello, TAG_HOSTNAME, &pos, &name, &n))
		(void)!sethostname(name, n);
	if (make_ruleset(hello, e) < 0)
		return e->num;
	/* CAP_DAC_READ_SEARCH is for a child: see confine_child(). A nested VM's root gets all. */
	r = caps_limit(vm_is_nested() ? UINT64_MAX
				      : IN_USE | CAPS_BIT(CAP_DAC_READ_SEARCH) | state.spare,
		       IN_USE);
	return r < 0 ? err_set(e, r, "cannot drop capabilities: %s", strerror(-r)) : 0;
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
	/* Children inherit both; in a nested VM, they may gain privileges. */
	if (!vm_is_nested()) {
		(void)caps_bound(0);
		(void)self_no_new_privileges();
	}
	/*
	 * prlimit(2) on another process requires that all its ids match the caller's. A saved group
	 * that no process has protects the guest's limits from a root user without capabilities.
	 */
	(void)!setresgid((gid_t)-1, (gid_t)-1, 65534);
	/* Must follow the last change of ids, which resets the flag to fs.suid_dumpable. */
	(void)self_not_dumpable();
}

/* ---- a child ---- */

/* The child is a copy of the guest's memory and now belongs to the user. */
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

/* A nested VM: root has everything, and other users have what their programs' modes give them. */
static const struct confine_stage nested_stages[] = {
	{ "memory", hide_memory },
	{ "capabilities", drop_capabilities, has_no_others },
	{ NULL },
};

static const struct confine_stage stages[] = {
	{ "memory", hide_memory },
	{ "capabilities", drop_capabilities, has_no_others },
	{ "Landlock", restrict_files },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int confine_child(bool read_all)
{
	uint64_t keep = read_all ? CAPS_BIT(CAP_DAC_READ_SEARCH) : 0;

	if (vm_is_nested() && geteuid() == 0)
		keep = UINT64_MAX;
	return confine_run(vm_is_nested() ? nested_stages : stages, &keep, NULL);
}
