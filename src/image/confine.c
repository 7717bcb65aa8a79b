/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image-confine.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "confine/become.h"
#include "confine/caps.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/self.h"
#include "confine/stages.h"

#define MEMORY_MAX (UINT64_C(2) << 30)

enum {
	FILES_MAX = 512
};

#define KEPT_CAPS                                                                  \
	(CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) | \
	 CAPS_BIT(CAP_FSETID))

/* Arguments of the stages. */
struct worker_start {
	const struct confine_job *job;
	int sock;
	struct channel_msg *m; /* for the result */
};

/* The directories of gzip and its libraries. */
static const char *const readable[] = { "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache" };

static int allow_reading(int ruleset)
{
	for (size_t i = 0; i < ARRAY_SIZE(readable); i++) {
		_cleanup_close_ int fd = open(readable[i], O_PATH | O_CLOEXEC);
		uint64_t access = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
		struct stat st;
		int r;

		if (fd < 0)
			continue; /* not every host has all of them */
		if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
			access |= LANDLOCK_ACCESS_FS_READ_DIR;
		r = landlock_allow(ruleset, fd, access);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Allows reading the input by name, if it is a directory. */
static int allow_input(int ruleset, int input)
{
	struct stat st;

	if (input < 0 || fstat(input, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	return landlock_allow(ruleset, input,
			      LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
}

static int forbid_files(void *arg)
{
	const struct worker_start *w = arg;
	_cleanup_close_ int ruleset = -EBADF;
	int r, abi = landlock_abi();
	/* Only files: the worker's namespaces cover the rest. */
	const int files_abi = MIN(abi, 3);
	const struct landlock_rights rights = { .fs = landlock_file_rights(files_abi) };

	if (abi < 1)
		return 0;
	ruleset = landlock_ruleset(&rights);
	if (ruleset < 0)
		return ruleset;
	/* The worker never creates devices, sockets or FIFOs. */
	r = landlock_allow(ruleset, w->job->work,
			   rights.fs & ~(uint64_t)(LANDLOCK_ACCESS_FS_MAKE_CHAR |
						   LANDLOCK_ACCESS_FS_MAKE_BLOCK |
						   LANDLOCK_ACCESS_FS_MAKE_SOCK |
						   LANDLOCK_ACCESS_FS_MAKE_FIFO |
						   LANDLOCK_ACCESS_FS_EXECUTE));
	if (r == 0)
		r = allow_reading(ruleset);
	if (r == 0)
		r = allow_input(ruleset, w->job->input);
	if (r == 0)
		r = landlock_restrict(ruleset);
	w->m->landlock = r == 0;
	return r;
}

static int refuse_privileges(void *arg)
{
	return self_no_new_privileges();
}

static int has_no_new_privileges(void *arg)
{
	return self_check_privileges();
}

static int drop_caps(void *arg)
{
	int r = caps_bound(KEPT_CAPS);

	return r < 0 ? r : caps_only(KEPT_CAPS);
}

static int has_no_others(void *arg)
{
	return caps_check(KEPT_CAPS);
}

static int set_limits(void *arg)
{
	static const struct limit limits[] = {
		{ RLIMIT_CORE, 1 }, /* not 0: that would still start a handler, see core(5) */
		{ RLIMIT_CPU, IMAGE_TIME_MAX },
		{ RLIMIT_FSIZE, IMAGE_BYTES_MAX },
		{ RLIMIT_NOFILE, FILES_MAX },
		{ RLIMIT_AS, MEMORY_MAX },
	};

	return rlimits_lower(limits, ARRAY_SIZE(limits));
}

/*
 * Mounts an input directory where the worker's ids can reach it. Runs with the master's id, which
 * can still follow the path; uses the path, because the descriptor belongs to the master's mount
 * namespace and cannot be mounted here.
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

static int become_root(void *arg)
{
	const struct worker_start *w = arg;
	int r;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	r = mount_input(w->job->input);
	return r < 0 ? r : become(0);
}

static int close_stdio(void *arg)
{
	return self_null_stdio(SANITIZED ? 2 : 3);
}

static int await_master(void *arg)
{
	const struct worker_start *w = arg;
	struct channel_msg m;
	int fd = -EBADF, r = channel_recv(w->sock, &m, &fd);

	(void)fd_close(fd);
	return r == 0 && m.type != CHANNEL_GO ? -EBADMSG : r;
}

/* In the worker: all stages listed in image-confine.h, in order. */
static const struct confine_stage stages[] = {
	{ "waiting for the master", await_master },
	{ "taking user ids", become_root },
	{ "closing standard input and output", close_stdio },
	{ "refusing new privileges", refuse_privileges, has_no_new_privileges },
	{ "dropping capabilities", drop_caps, has_no_others },
	{ "Landlock", forbid_files },
	{ "setting limits", set_limits },
	/* Last: a change of ids clears it. The channel reveals a master that died before. */
	{ "tying itself to its master", stage_die_with_parent },
	{ NULL },
};

static _noreturn_ void worker(const struct confine_job *job, int sock)
{
	struct channel_msg m = { 0 };
	struct err e = ERR_INIT;
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)umask(0);
	r = confine_run_err(stages, &(struct worker_start){ job, sock, &m }, "confining the worker",
			    &e);
	if (r == 0)
		r = job->run(job, sock, &m, &e);
	m.type = CHANNEL_RESULT;
	m.num = r;
	if (r < 0)
		(void)snprintf(m.text, sizeof(m.text), "%s", e.msg);
	(void)channel_send(sock, &m, -EBADF, true);
	_exit(r < 0);
}

/* Like fork(2), with namespaces. There are no threads, so glibc need not know. */
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
	r = p.pidfd < 0 ? err_errno(e, "cannot open a pidfd of the worker")
			: ids_map(p.pid, job->ids, e);
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
