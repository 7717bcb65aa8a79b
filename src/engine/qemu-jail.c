/* SPDX-License-Identifier: Apache-2.0 */
/* Starts QEMU in its jail, in two steps, because a process cannot enter a new pid namespace itself:
 *
 *   porter   a child of the warden: enters the control groups and the sandbox's user namespace,
 *            clones a child with new namespaces of all other kinds, reports its pid and exits
 *   inmate   that child, by CLONE_PARENT a child of the warden: builds its root directory, drops
 *            all but its descriptors (qemu-confine.c) and executes QEMU
 *
 * Both report failures through one pipe, which closes when they exit or QEMU executes: end of file
 * means that both are done.
 *
 * The warden clones the trees for the root directory as detached mounts: the inmate, root only in
 * the sandbox's user namespace, cannot choose what it sees. When QEMU has its files open and before
 * the guest runs, a process that enters QEMU's namespaces from outside removes all of them
 * (qemu_jail_seal()).
 *
 * QEMU can be traced by its own user inside the namespace, where no other process runs, and by the
 * warden: execve(2) makes it dumpable again, and nothing after that can change it. */
#include "engine/qemu-jail.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "confine/become.h"
#include "confine/root.h"
#include "engine/engine.h"
#include "engine/qemu-confine.h"
#include "engine/userns.h"

#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define SEAL_TIMEOUT  (10 * NSEC_PER_SEC)

/* Mount point of the final, empty root. */
#define EMPTY "/empty"

enum {
	KVM_MAJOR = 10,
	KVM_MINOR = 232,
};

/* A report of porter or inmate, written at once. */
struct report {
	pid_t pid; /* inmate's pid, from the porter */
	int num;   /* -errno */
	char at[64];
};

/* ---- the warden: files for the jail ---- */

static void trees_done(struct qemu_trees *all)
{
	while (all->n > 0)
		(void)fd_close(all->t[--all->n].fd);
}

/* Includes mounts below the path: a user namespace may not split them from it. */
static int clone_tree(const char *path, uint64_t attributes, struct qemu_tree *t, struct err *e)
{
	struct mount_attr attr = { .attr_set = attributes };

	t->fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (t->fd < 0 ||
	    mount_setattr(t->fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0) {
		t->fd = fd_close(t->fd);
		return err_errno(e, "cannot mount '%s'", path);
	}
	return 0;
}

static int take_file(struct qemu_trees *all, const struct qemu_jail_file *f, struct err *e)
{
	struct qemu_tree *t = &all->t[all->n];
	struct stat st;
	ssize_t n;

	assert(all->n < QEMU_TREES_MAX);
	*t = (struct qemu_tree){ .to = f->to, .fd = -EBADF };
	if (lstat(f->from, &st) < 0)
		return errno == ENOENT && f->optional ? 0
						      : err_errno(e, "cannot stat '%s'", f->from);
	t->directory = S_ISDIR(st.st_mode);
	if (!S_ISLNK(st.st_mode)) {
		if (clone_tree(f->from, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, t,
			       e) < 0)
			return e->num;
		all->n++;
		return 0;
	}
	n = readlink(f->from, t->link, sizeof(t->link));
	if (n < 0 || n == (ssize_t)sizeof(t->link))
		return err_set(e, -ENAMETOOLONG, "the target of the link '%s' is too long",
			       f->from);
	t->link[n] = '\0';
	all->n++;
	return 0;
}

/* A device of the sandbox's own on an otherwise empty file system: every process that can open the
 * host's could lock and watch it. An ordinary user cannot make one. */
static int make_kvm(const struct qemu_jail *j, struct qemu_trees *all, struct err *e)
{
	const uint32_t id = j->ids + QEMU_JAIL_ID;
	_cleanup_close_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), dir = -EBADF;

	assert(all->n < QEMU_TREES_MAX);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", "4k", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", "4", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "755", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_errno(e, "cannot create a file system for /dev/kvm");
	dir = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (dir < 0 || mknodat(dir, "kvm", S_IFCHR | 0600, makedev(KVM_MAJOR, KVM_MINOR)) < 0 ||
	    fchownat(dir, "kvm", id, id, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, "cannot create /dev/kvm for the sandbox");
	all->t[all->n++] =
		(struct qemu_tree){ .to = "/dev", .fd = TAKE_FD(dir), .directory = true };
	return 0;
}

static int take_trees(const struct qemu_jail *j, struct qemu_trees *all, struct err *e)
{
	int r = 0;

	for (const struct qemu_jail_file *f = j->files; r == 0 && f->from; f++)
		r = take_file(all, f, e);
	if (r < 0 || !j->kvm)
		return r;
	if (!j->rootless)
		return make_kvm(j, all, e);
	all->t[all->n] = (struct qemu_tree){ .to = "/dev/kvm", .fd = -EBADF };
	r = clone_tree("/dev/kvm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &all->t[all->n], e);
	all->n += r == 0 ? 1 : 0;
	return r;
}

/* ---- the inmate ---- */

static _noreturn_ void say_and_end(int fd, const char *at, int num)
{
	struct report report = { .num = num };

	(void)snprintf(report.at, sizeof(report.at), "%s", at);
	(void)!write(fd, &report, sizeof(report));
	_exit(127);
}

static _noreturn_ void inmate(const struct qemu_jail *j, const struct qemu_trees *all,
			      struct qemu_pipes *p)
{
	static const char *const nothing[] = { NULL };
	const char *at = NULL, *const *env = j->env ? j->env : nothing;
	int r = qemu_confine(j, all, p, &at);

	if (r == 0) {
		at = j->program;
		proc_reset_signals();
		(void)setsid();
		(void)umask(077);
		(void)execve(j->program, (char *const *)j->argv, (char *const *)env);
		r = -errno;
	}
	say_and_end(p->report, at, r);
}

/* ---- the porter ---- */

static _noreturn_ void porter(const struct qemu_jail *j, const struct qemu_trees *all, int userns,
			      struct qemu_pipes *p)
{
	struct report report = { 0 };
	const char *at = "entering control groups";
	int r = cgroup_enter(j->group);

	if (r == 0)
		r = FAULT("jail-groups");
	if (r == 0 && (at = "entering its user namespace") && setns(userns, CLONE_NEWUSER) < 0)
		r = -errno;
	if (r == 0 && (at = "making namespaces")) {
		report.pid = (pid_t)syscall(SYS_clone, QEMU_NAMESPACES | CLONE_PARENT | SIGCHLD,
					    NULL, NULL, NULL, NULL);
		if (report.pid == 0)
			inmate(j, all, p);
		if (report.pid < 0)
			r = -errno;
	}
	if (r == 0)
		r = FAULT("jail-cloned");
	if (r < 0)
		say_and_end(p->report, at, r);
	(void)!write(p->report, &report, sizeof(report));
	_exit(0);
}

/* ---- the warden ---- */

/* 1: a report; 0: end of file; or an error. */
static int next_report(int fd, uint64_t deadline, struct report *ret, struct err *e)
{
	uint64_t now = clock_mono();
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int ready = RETRY_EINTR(
		poll(&p, 1, now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) + 1 : 0));
	ssize_t n;

	if (ready < 0)
		return err_errno(e, "cannot wait for the jail");
	if (ready == 0)
		return err_set(e, -ETIME, "QEMU was not started within %d seconds",
			       (int)(START_TIMEOUT / NSEC_PER_SEC));
	n = RETRY_EINTR(read(fd, ret, sizeof(*ret)));
	if (n != 0 && n != (ssize_t)sizeof(*ret))
		return err_set(e, -EPIPE, "cannot read the report of QEMU's jail: %s",
			       n < 0 ? strerror(errno) : "it is incomplete");
	return n > 0;
}

static int hear_reports(int fd, struct proc *inmate_proc, struct err *e)
{
	uint64_t deadline = clock_mono() + START_TIMEOUT;
	struct report report, failed = { 0 };
	int r;

	while ((r = next_report(fd, deadline, &report, e)) > 0) {
		if (report.num < 0 && failed.num == 0)
			failed = report;
		if (report.pid > 0)
			r = proc_adopt(report.pid, inmate_proc);
		if (r < 0)
			return err_set(e, r, "QEMU (%d) is not our child: %s", report.pid,
				       strerror(-r));
	}
	if (r < 0)
		return r;
	if (failed.num < 0)
		return err_set(e, failed.num, "cannot start QEMU in its jail: %.*s: %s",
			       (int)sizeof(failed.at), failed.at, strerror(-failed.num));
	return inmate_proc->pid > 0
		       ? 0
		       : err_set(e, -EPIPE, "QEMU's jail ended before it started QEMU");
}

struct ends {
	struct qemu_pipes theirs;
	int said, report;
};

static void ends_done(struct ends *s)
{
	const int all[] = { s->theirs.in,     s->theirs.out, s->theirs.report,
			    s->theirs.warden, s->said,	     s->report };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		(void)fd_close(all[i]);
}

static int make_ends(struct ends *s)
{
	_cleanup_close_ int closed = -EBADF; /* QEMU's input is at its end */
	int r = fd_pipe(0, &s->theirs.in, &closed);

	if (r == 0)
		r = fd_pipe(O_NONBLOCK, &s->said, &s->theirs.out);
	if (r == 0)
		r = fd_pipe(0, &s->report, &s->theirs.report);
	if (r < 0)
		return r;
	s->theirs.warden = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return s->theirs.warden < 0 ? -errno : 0;
}

static int run(const struct qemu_jail *j, const struct qemu_trees *all, int userns, struct ends *s,
	       struct proc *ret, struct err *e)
{
	_cleanup_proc_ struct proc p = PROC_INIT, q = PROC_INIT;
	int r = make_ends(s);

	if (r == 0)
		r = proc_fork(&p);
	if (r > 0)
		porter(j, all, userns, &s->theirs);
	if (r < 0)
		return err_set(e, r, "cannot start QEMU's jail: %s", strerror(-r));
	s->theirs.report = fd_close(s->theirs.report);
	FAULT_KILL("jail-forked", p.pidfd);
	r = hear_reports(s->report, &q, e);
	if (r == 0)
		r = FAULT_ERR("jail-started", e);
	if (r < 0)
		return r;
	*ret = (struct proc){ .pid = q.pid, .pidfd = TAKE_FD(q.pidfd) };
	q.pid = 0;
	return 0;
}

int qemu_jail_start(const struct qemu_jail *j, struct proc *ret, int *ret_said, struct err *e)
{
	_cleanup_(trees_done) struct qemu_trees all = { .n = 0 };
	_cleanup_(ends_done) struct ends s = {
		.theirs = { .in = -EBADF, .out = -EBADF, .report = -EBADF, .warden = -EBADF },
		.said = -EBADF,
		.report = -EBADF,
	};
	_cleanup_close_ int userns = -EBADF;
	int r = take_trees(j, &all, e);

	if (r == 0)
		r = userns_make(j->ids, j->pids, &userns, e);
	if (r == 0)
		r = FAULT_ERR("jail-userns", e);
	if (r == 0)
		r = run(j, &all, userns, &s, ret, e);
	if (r == 0)
		*ret_said = TAKE_FD(s.said);
	return r;
}

/* ---- sealing ---- */

/* Makes an empty directory the root of all processes in the mount namespace and removes the old
 * root with all mounts: pivot_root(2) changes the root of every process that had the old one. One
 * umount2(2) waits once for the other CPUs; unmounting each mount would wait once for each. */
static int replace_root(void)
{
	return mkdir(EMPTY, 0755) < 0 ? -errno : root_enter_empty(EMPTY);
}

static _noreturn_ void sealer(int pidfd, int report)
{
	const char *at = "entering its namespaces";
	int r = setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : become(0);

	if (r == 0 && (at = "emptying its root"))
		r = replace_root();
	if (r < 0)
		say_and_end(report, at, r);
	_exit(0);
}

int qemu_jail_seal(const struct proc *qemu, struct err *e)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	struct report report = { 0 };
	siginfo_t info = { 0 };
	int r;

	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot seal QEMU's jail");
	r = proc_fork(&p);
	if (r > 0)
		sealer(qemu->pidfd, to);
	if (r < 0)
		return err_set(e, r, "cannot seal QEMU's jail: %s", strerror(-r));
	to = fd_close(to);
	FAULT_KILL("jail-sealer", p.pidfd);
	r = proc_wait(&p, clock_mono() + SEAL_TIMEOUT, &info);
	if (r == 0 && info.si_code == CLD_EXITED && info.si_status == 0)
		return FAULT_ERR("jail-sealed", e);
	if (r == 0 && read(from, &report, sizeof(report)) == (ssize_t)sizeof(report))
		return err_set(e, report.num, "cannot seal QEMU's jail: %.*s: %s",
			       (int)sizeof(report.at), report.at, strerror(-report.num));
	return err_set(e, r < 0 ? r : -EPIPE,
		       "cannot seal QEMU's jail: the helper process was killed");
}
