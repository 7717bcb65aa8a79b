/* SPDX-License-Identifier: Apache-2.0 */
/* Confines the process that becomes QEMU, the inmate of qemu-jail.c. It starts as root of the
 * sandbox's user namespace, in new namespaces of all other kinds, with the warden's files open. The
 * table of stages builds its root directory and drops everything but its descriptors. */
#include "engine/qemu-confine.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fault.h"
#include "base/str.h"
#include "confine/become.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/rlimits.h"
#include "confine/root.h"
#include "confine/stages.h"

/* Where the root is built. The path means nothing after it becomes "/". */
#define PLACE "/run"

struct inmate {
	const struct qemu_jail *jail;
	const struct qemu_trees *trees;
	struct qemu_pipes *pipes;
	const char *tree; /* tree being mounted, for messages */
};

/* ---- its root ---- */

static int put_tree(const struct qemu_tree *t)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), PLACE "%s", t->to);
	if (t->link[0])
		return symlink(t->link, path) < 0 ? -errno : 0;
	/* The mode is for QEMU's user, whatever the warden's umask. Trees are mounted over all
	 * other directories. */
	if (str_has_prefix(t->to, "/dev/") &&
	    (mkdir(PLACE "/dev", 0755) < 0 || chmod(PLACE "/dev", 0755) < 0))
		return -errno;
	if (t->directory) {
		if (mkdir(path, 0755) < 0)
			return -errno;
	} else {
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		(void)fd_close(fd);
	}
	return move_mount(t->fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int make_root(void *arg)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("hutch", PLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=755,size=16k,nr_inodes=32") < 0)
		return -errno;
	return 0;
}

static int put_trees(void *arg)
{
	struct inmate *in = arg;

	for (size_t i = 0; i < in->trees->n; i++) {
		int r;

		in->tree = in->trees->t[i].to;
		r = put_tree(&in->trees->t[i]);
		if (r < 0)
			return r;
	}
	in->tree = NULL;
	return 0;
}

/* QEMU opens this file for writing. It has room for a few pages: the file system is small. */
static int put_memory(void *arg)
{
	const struct inmate *in = arg;
	_cleanup_close_ int fd = -EBADF;

	if (in->jail->memory == 0)
		return 0;
	fd = open(PLACE QEMU_MEMORY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)in->jail->memory) < 0 ||
	    fchown(fd, QEMU_JAIL_ID, QEMU_JAIL_ID) < 0)
		return -errno;
	return 0;
}

static int enter_root(void *arg)
{
	int r = root_enter(PLACE);

	return r < 0 ? r : FAULT("jail-root");
}

/* ---- dropping privileges ---- */

static int become_root(void *arg)
{
	return become(0);
}

/* The host's name could identify the host. */
static int forget_names(void *arg)
{
	static const char name[] = "hutch";

	return sethostname(name, STRLEN("hutch")) < 0 || setdomainname("", 0) < 0 ? -errno : 0;
}

/* The limit of user namespaces below its own; not every kernel has the file. */
static int forbid_namespaces(void *arg)
{
	_cleanup_close_ int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, "0", 1);
	return 0;
}

static int set_limits(void *arg)
{
	const struct inmate *in = arg;
	const struct limit limits[] = {
		{ RLIMIT_NOFILE, QEMU_JAIL_NOFILE }, { RLIMIT_CORE, 0 },     { RLIMIT_MEMLOCK, 0 },
		{ RLIMIT_FSIZE, in->jail->file },    { RLIMIT_MSGQUEUE, 0 },
	};

	return rlimits_lower(limits, ARRAY_SIZE(limits));
}

/* QEMU asks for huge pages. A clone would pay for 2 MiB where its guest writes a few bytes. */
static int forbid_huge_pages(void *arg)
{
	return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0 && errno != EINVAL ? -errno : 0;
}

/* The bounding set first: changing it needs a capability. */
static int drop_all(void *arg)
{
	int r = caps_bound(0);

	if (r == 0)
		r = become(QEMU_JAIL_ID);
	if (r == 0)
		r = stage_drop_privileges(NULL);
	return r < 0 ? r : FAULT("jail-dropped");
}

/* The warden has no pid in this pid namespace, so ask its pidfd. */
static int has_warden(void *arg)
{
	const struct inmate *in = arg;
	struct pollfd p = { .fd = in->pipes->warden, .events = POLLIN };

	if (poll(&p, 1, 0) < 0)
		return -errno;
	return p.revents ? -ESRCH : 0;
}

/* Descriptors 0 to 2, those of qemu.h, then the pipe for failure reports, closed by execve(2). */
static int arrange_fds(void *arg)
{
	const struct inmate *in = arg;
	const struct qemu_jail *j = in->jail;
	struct qemu_pipes *p = in->pipes;
	int high[QEMU_FDS + 1];

	for (int i = 0; i <= QEMU_FDS; i++) {
		int fd = i == 0 ? p->in : i < 3 ? p->out : i == QEMU_FDS ? p->report : j->fds[i];

		high[i] = fd < 0 ? -EBADF : fcntl(fd, F_DUPFD_CLOEXEC, QEMU_FDS + 1);
		if (fd >= 0 && high[i] < 0)
			return -errno;
	}
	for (int i = 0; i <= QEMU_FDS; i++) {
		if (high[i] < 0)
			(void)close(i);
		else if (dup3(high[i], i, i == QEMU_FDS ? O_CLOEXEC : 0) < 0)
			return -errno;
	}
	p->report = QEMU_FDS;
	return syscall(SYS_close_range, QEMU_FDS + 1, ~0U, 0) < 0 ? -errno : 0;
}

/* clang-format off */
#define DENY(name) UNLESS(__NR_##name, 1), RETURN(SECCOMP_RET_ERRNO | EPERM)
/* Reported as missing from the kernel, so that QEMU and the C library use alternatives. */
#define LACK(name) UNLESS(__NR_##name, 1), RETURN(SECCOMP_RET_ERRNO | ENOSYS)

/* Denies what QEMU does not need after it got all its files. QEMU's own second filter (-sandbox)
 * denies calls that only its start needs, above all execve(2). */
static const struct sock_filter filter[] = {
	FILTER_HEAD,

	/* Namespaces and mounts. clone3(2) hides its flags. */
	LACK(clone3), DENY(unshare), DENY(setns),
	UNLESS(__NR_clone, 3),
	LOAD_ARG(0), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, QEMU_NAMESPACES | CLONE_NEWUSER, 0, 1),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
	LOAD(nr),
	DENY(mount), DENY(umount2), DENY(pivot_root), DENY(chroot), DENY(open_tree), DENY(move_mount),
	DENY(fsopen), DENY(fsconfig), DENY(fsmount), DENY(fspick), DENY(mount_setattr),

	/* Other processes. */
	DENY(ptrace), DENY(process_vm_readv), DENY(process_vm_writev), DENY(kcmp), DENY(pidfd_open),
	DENY(pidfd_getfd), DENY(pidfd_send_signal), DENY(process_madvise), DENY(execveat),

	/* Files by handle, networks, keys. */
	DENY(name_to_handle_at), DENY(open_by_handle_at), DENY(socket), DENY(connect), DENY(bind),
	DENY(listen), DENY(add_key), DENY(request_key), DENY(keyctl), DENY(quotactl),

	/* Parts of the kernel with a poor security record. */
	LACK(io_uring_setup), LACK(io_uring_enter), LACK(io_uring_register), DENY(bpf),
	DENY(perf_event_open), DENY(userfaultfd), DENY(fanotify_init), DENY(inotify_init),
	DENY(inotify_init1), DENY(vhangup), DENY(sync), DENY(syncfs),
	DENY(syslog), DENY(acct), DENY(swapon), DENY(swapoff), DENY(reboot), DENY(kexec_load), DENY(kexec_file_load),
	DENY(init_module), DENY(finit_module), DENY(delete_module), DENY(personality),

	/* Locks and leases: a covert channel on files that VMs share. */
	DENY(flock),
	UNLESS(__NR_fcntl, 8),
	LOAD_ARG(1),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLK, 4, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLKW, 3, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLKW, 1, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLEASE, 0, 1),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
	LOAD(nr),

	/* The host's clocks and names. */
	DENY(settimeofday), DENY(clock_settime), DENY(clock_adjtime), DENY(adjtimex), DENY(sethostname),
	DENY(setdomainname),

	RETURN(SECCOMP_RET_ALLOW),
};
/* clang-format on */

static int filter_calls(void *arg)
{
	return filter_apply(filter, ARRAY_SIZE(filter));
}

static const struct confine_stage stages[] = {
	{ "asking to die with the warden", stage_die_with_parent, has_warden },
	{ "becoming root of its user namespace", become_root },
	{ "forgetting the host's name", forget_names },
	{ "forbidding user namespaces", forbid_namespaces },
	{ "making an empty root", make_root },
	{ "filling its root", put_trees },
	{ "making its memory file", put_memory },
	{ "entering its root", enter_root },
	{ "limits", set_limits },
	{ "forbidding huge pages", forbid_huge_pages },
	{ "dropping capabilities", drop_all, stage_has_no_privileges },
	/* Again: a change of ids clears the setting. */
	{ "asking to die with the warden", stage_die_with_parent, has_warden },
	{ "arranging descriptors", arrange_fds },
	{ "filtering system calls", filter_calls },
	{ NULL },
};

int qemu_confine(const struct qemu_jail *j, const struct qemu_trees *trees, struct qemu_pipes *p,
		 const char **ret_at)
{
	struct inmate in = { .jail = j, .trees = trees, .pipes = p };
	int r = confine_run(stages, &in, ret_at);

	if (r < 0 && in.tree)
		*ret_at = in.tree;
	return r;
}
