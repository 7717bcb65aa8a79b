/* SPDX-License-Identifier: Apache-2.0 */
#include "image-confine.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "landlock.h"

#define MEMORY_MAX (UINT64_C(2) << 30)

enum {
	FILES_MAX = 512
};

static const int kept_caps[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID };

/* Where gzip and what it is linked with live. */
static const char *const readable[] = { "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache" };

static int allow(int ruleset, int fd, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };

	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
		       ? -errno
		       : 0;
}

static int allow_reading(int ruleset)
{
	for (size_t i = 0; i < ARRAY_SIZE(readable); i++) {
		_cleanup_close_ int fd = open(readable[i], O_PATH | O_CLOEXEC);
		uint64_t access = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
		struct stat st;
		int r;

		if (fd < 0)
			continue; /* not every machine has all of them */
		if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
			access |= LANDLOCK_ACCESS_FS_READ_DIR;
		r = allow(ruleset, fd, access);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The input, where it is a directory: what is in there is to be read by name. */
static int allow_input(int ruleset, int input)
{
	struct stat st;

	if (input < 0 || fstat(input, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	return allow(ruleset, input, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
}

/* 1 if it holds, 0 if this kernel has no Landlock, or -errno. */
static int landlock(int work, int input)
{
	_cleanup_close_ int ruleset = -EBADF;
	struct landlock_ruleset_attr attr = { .handled_access_fs = (1ULL << 13) - 1 };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	int r;

	if (abi < 1)
		return 0;
	if (abi >= 2)
		attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		attr.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (ruleset < 0)
		return -errno;
	/* Devices, sockets and FIFOs are never made. */
	r = allow(ruleset, work,
		  attr.handled_access_fs &
			  ~(uint64_t)(LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
				      LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
				      LANDLOCK_ACCESS_FS_EXECUTE));
	if (r == 0)
		r = allow_reading(ruleset);
	if (r == 0)
		r = allow_input(ruleset, input);
	if (r < 0)
		return r;
	return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 1;
}

static bool is_kept(int cap)
{
	for (size_t i = 0; i < ARRAY_SIZE(kept_caps); i++)
		if (kept_caps[i] == cap)
			return true;
	return false;
}

static int drop_caps(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		/* EINVAL: a capability that this kernel does not have. */
		if (!is_kept(cap) && prctl(PR_CAPBSET_DROP, cap) < 0 && errno != EINVAL)
			return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(kept_caps); i++)
		data[0].effective |= 1U << kept_caps[i];
	data[0].permitted = data[0].effective;
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static int set_limits(void)
{
	int r = proc_limit(RLIMIT_CORE,
			   1); /* not 0: a handler would still be started, see core(5) */

	if (r == 0)
		r = proc_limit(RLIMIT_CPU, IMAGE_TIME_MAX);
	if (r == 0)
		r = proc_limit(RLIMIT_FSIZE, IMAGE_BYTES_MAX);
	if (r == 0)
		r = proc_limit(RLIMIT_NOFILE, FILES_MAX);
	return r < 0 ? r : proc_limit(RLIMIT_AS, MEMORY_MAX);
}

/*
 * Puts an input that is a directory where the worker's ids can reach it. Done with the master's own
 * id, which may still go where the path leads; by path, because the descriptor is one of the
 * master's mount namespace, of which nothing can be mounted here.
 */
static int mount_input(int input)
{
	_cleanup_close_ int tree = -EBADF;
	char link[64], path[PATH_MAX];
	struct stat want, got;
	ssize_t n;

	if (input < 0 || fstat(input, &want) < 0 || !S_ISDIR(want.st_mode))
		return 0;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", input);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0 || fstat(tree, &got) < 0)
		return -errno;
	if (got.st_dev != want.st_dev || got.st_ino != want.st_ino)
		return -ESTALE;
	return move_mount(tree, "", AT_FDCWD, CONFINE_INPUT, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno
											  : 0;
}

static int become_root(int input)
{
	int r = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : mount_input(input);

	if (r == 0 && (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		r = -errno;
	return r;
}

static int close_stdio(void)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int fd = 0; fd < (SANITIZED ? 2 : 3); fd++)
		if (fd != null && dup2(null, fd) < 0)
			return -errno;
	return 0;
}

/* In the worker: all of the list in image-confine.h, one after the other. */
static int lock_down(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e)
{
	const char *at = "waiting for the master";
	int fd = -EBADF, r = channel_recv(sock, m, &fd);

	(void)fd_close(fd);
	if (r == 0 && m->type != CHANNEL_GO)
		r = -EBADMSG;
	*m = (struct channel_msg){ 0 };
	if (r == 0 && (at = "taking user ids"))
		r = become_root(job->input);
	if (r == 0 && (at = "closing standard input and output"))
		r = close_stdio();
	if (r == 0 && (at = "refusing new privileges"))
		r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
	if (r == 0 && (at = "dropping capabilities"))
		r = drop_caps();
	if (r == 0 && (at = "Landlock"))
		r = landlock(job->work, job->input);
	m->landlock = r > 0;
	if (r >= 0 && (at = "setting limits"))
		r = set_limits();
	/* Last: the kernel forgets it when ids change. A master that died before is seen on `sock`.
	 */
	if (r == 0 && (at = "tying itself to its master"))
		r = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;
	return r < 0 ? err_set(e, r, "confining the worker, %s: %s", at, strerror(-r)) : 0;
}

static _noreturn_ void worker(const struct confine_job *job, int sock)
{
	struct channel_msg m = { 0 };
	struct err e = ERR_INIT;
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)umask(0);
	r = lock_down(job, sock, &m, &e);
	if (r == 0)
		r = job->run(job, sock, &m, &e);
	m.type = CHANNEL_RESULT;
	m.num = r;
	if (r < 0)
		(void)snprintf(m.text, sizeof(m.text), "%s", e.msg);
	(void)channel_send(sock, &m, -EBADF, true);
	_exit(r < 0);
}

/* clone(2) as fork(2), with namespaces. We have no threads, so glibc need not know of it. */
static pid_t clone_worker(void)
{
	const unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID |
				    CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD;

	return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0);
}

int confine_start(const struct confine_job *job, struct proc *ret, int *ret_sock, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	const struct channel_msg go = { .type = CHANNEL_GO };
	int socks[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return err_errno(e, "cannot make a socket");
	ours = socks[0];
	theirs = socks[1];
	(void)fflush(NULL);
	p.pid = clone_worker();
	if (p.pid == 0) {
		(void)close(ours);
		worker(job, theirs);
	}
	if (p.pid < 0)
		return err_errno(e, "cannot make a user namespace; see 'hutch doctor'");
	p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
	r = p.pidfd < 0 ? err_errno(e, "cannot hold the worker") : ids_map(p.pid, job->ids, e);
	if (r == 0)
		r = channel_send(ours, &go, -EBADF, true);
	if (r < 0)
		return e->num < 0 ? r
				  : err_set(e, r, "cannot talk to the worker: %s", strerror(-r));
	*ret = p;
	p = (struct proc)PROC_INIT;
	*ret_sock = TAKE_FD(ours);
	return 0;
}
