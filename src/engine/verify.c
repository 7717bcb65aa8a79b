/* SPDX-License-Identifier: Apache-2.0 */
/* The receipt of a sandbox, checked from outside: what the kernel reports about the running PID
 * 1 in /proc/PID, independent of the runtime's configuration. All files are read through one
 * descriptor of that directory, which can never refer to another process; the pidfd shows that
 * the process was alive before and after. This file has the rows of a container and those that
 * all engines share. No user code has run yet, but the files below its root and its /dev are
 * treated as untrusted.
 *
 * A row is enforced only if its check returns 0: whatever cannot be read or parsed is not
 * enforced. */
#include "engine/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/apparmor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/container.h"
#include "engine/oci.h"

enum {
	GUEST_SECONDS = 10 /* a slow runtime may need this long for its last steps */
};

/* Checks that PID 1 and we are in different namespaces of the kind `name`. */
static int check_namespace(const struct verify *v, const char *name, ino_t *ret, struct err *e)
{
	char path[32], own[48];
	struct stat theirs, ours;

	(void)snprintf(path, sizeof(path), "ns/%s", name);
	(void)snprintf(own, sizeof(own), "/proc/self/%s", path);
	if (fstatat(v->proc, path, &theirs, 0) < 0)
		return err_errno(e, "cannot stat %s of PID 1", path);
	if (stat(own, &ours) < 0)
		return err_errno(e, "cannot stat %s", own);
	if (theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino)
		return err_set(e, -EPERM, "PID 1 is in the host's %s namespace", name);
	*ret = theirs.st_ino;
	return 0;
}

int verify_namespace(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	static const char *const names[RECEIPT_ROWS] = {
		[EXTRA_MOUNT_NAMESPACE] = "mnt",
		[EXTRA_IPC_NAMESPACE] = "ipc",
		[EXTRA_UTS_NAMESPACE] = "uts",
		[EXTRA_CGROUP_NAMESPACE] = "cgroup",
	};
	ino_t ns;

	assert(names[row]);
	if (check_namespace(v, names[row], &ns, e) < 0)
		return e->num;
	return sight_set(ret, "%s:[%ju], not the host's", names[row], (uintmax_t)ns);
}

int verify_pid_namespace(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	struct span rest, word, last = { 0 };
	size_t n = 0;
	ino_t ns;

	if (check_namespace(v, "pid", &ns, e) < 0)
		return e->num;
	if (!text_field(buf_text(&v->status), "NSpid:", &rest))
		return err_set(e, -EBADMSG, "no NSpid in the status of PID 1");
	for (; span_word(&rest, &word); n++)
		last = word;
	if (n < 2 || !span_is(last, "1"))
		return err_set(e, -EPERM, "it is not PID 1 of a pid namespace of its own");
	return sight_set(ret, "pid:[%ju], not the host's; it is PID 1 there", (uintmax_t)ns);
}

/* Checks that the map has one line, which gives the sandbox the ids from v->s->ids on, as we see
 * them: the kernel translates the file for the reader's user namespace. */
static int check_map(const struct verify *v, const char *path, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(VERIFY_FILE_MAX);
	uint64_t first, count;

	if (fd_read_file(v->proc, path, &b, e) < 0)
		return e->num;
	if (!text_one_map(buf_text(&b), &first, &count))
		return err_set(e, -EPERM, "%s of PID 1 is not one range from 0 on", path);
	if (first == 0 || first != v->s->ids || count != OCI_IDS)
		return err_set(e, -EPERM, "%s of PID 1 is 0 %" PRIu64 " %" PRIu64 ", not 0 %u %d",
			       path, first, count, v->s->ids, OCI_IDS);
	return 0;
}

int verify_user_namespace(const struct verify *v, unsigned int row, struct sight *ret,
			  struct err *e)
{
	ino_t ns;

	if (check_namespace(v, "user", &ns, e) < 0 || check_map(v, "uid_map", e) < 0 ||
	    check_map(v, "gid_map", e) < 0)
		return e->num;
	return sight_set(ret, "user:[%ju]; uid_map and gid_map: 0 %u %d", (uintmax_t)ns, v->s->ids,
			 OCI_IDS);
}

/* Checks that PID 1 runs as one of the sandbox's ids, and we as none of them. Its saved group may
 * be another of them: see confine_self() of the guest. */
int verify_ids(const struct verify *v, uint32_t offset, struct sight *ret, struct err *e)
{
	uint64_t first = v->s->ids, last = first + OCI_IDS - 1, own = first + offset, group;
	struct span uid, gid, groups, word;

	if (check_map(v, "uid_map", e) < 0 || check_map(v, "gid_map", e) < 0)
		return e->num;
	if (last >= UINT32_MAX || (geteuid() >= first && geteuid() <= last) ||
	    (getegid() >= first && getegid() <= last))
		return err_set(e, -EPERM, "the ids from %u on are not the sandbox's alone",
			       v->s->ids);
	if (!text_field(buf_text(&v->status), "Uid:", &uid) || !text_all_are(uid, own, own) ||
	    !text_field(buf_text(&v->status), "Gid:", &gid) || !text_all_are(gid, first, last) ||
	    !text_field(buf_text(&v->status), "Groups:", &groups))
		return err_set(e, -EPERM, "PID 1 does not run as id %" PRIu64, own);
	while (span_word(&groups, &word))
		if (!span_number(word, &group) || group < first || group > last)
			return err_set(e, -EPERM, "PID 1 is in a group that is not the sandbox's");
	return sight_set(ret, "runs as %" PRIu64 " of %u to %" PRIu64 "%s", own, v->s->ids, last,
			 v->s->rootless ? ", subordinate ids that this user's sandboxes share"
					: "");
}

static int look_ids(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	return verify_ids(v, 0, ret, e);
}

/* Checks that a file below net/ names no device but lo. A missing file is an error, which the
 * caller may ignore. */
static int check_devices(const struct verify *v, const char *path, enum text_net kind,
			 struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(VERIFY_FILE_MAX);
	struct span name;

	if (fd_read_file(v->proc, path, &b, e) < 0)
		return e->num;
	if (text_other_device(buf_text(&b), kind, &name))
		return err_set(e, -EPERM, "%s of PID 1 has %.*s", path, (int)MIN(name.n, 32U),
			       name.s);
	return 0;
}

int verify_network(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	static const char *const v6[] = { "net/if_inet6", "net/ipv6_route" };
	ino_t ns;

	if (check_namespace(v, "net", &ns, e) < 0 ||
	    check_devices(v, "net/dev", TEXT_NET_DEV, e) < 0 ||
	    check_devices(v, "net/route", TEXT_NET_ROUTE, e) < 0)
		return e->num;
	for (size_t i = 0; i < ARRAY_SIZE(v6); i++) {
		/* The kernel may lack IPv6. */
		int r = check_devices(v, v6[i], TEXT_NET_INET6, e);

		if (r < 0 && r != -ENOENT)
			return r;
	}
	return sight_set(ret, "net:[%ju]: lo alone, no route to elsewhere", (uintmax_t)ns);
}

int verify_seccomp(const struct verify *v, uint64_t filters, struct sight *ret, struct err *e)
{
	const char *status = buf_text(&v->status);
	uint64_t mode, n;

	if (!text_field_number(status, "Seccomp:", &mode) ||
	    !text_field_number(status, "Seccomp_filters:", &n))
		return err_set(e, -EBADMSG, "no Seccomp in the status of PID 1");
	if (mode != 2 || n < filters)
		return err_set(e, -EPERM, "Seccomp: %" PRIu64 ", Seccomp_filters: %" PRIu64, mode,
			       n);
	return sight_set(ret, "Seccomp: 2, Seccomp_filters: %" PRIu64, n);
}

static int look_seccomp(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	return verify_seccomp(v, 1, ret, e);
}

int verify_no_new_privileges(const struct verify *v, unsigned int row, struct sight *ret,
			     struct err *e)
{
	uint64_t set;

	if (!text_field_number(buf_text(&v->status), "NoNewPrivs:", &set))
		return err_set(e, -EBADMSG, "no NoNewPrivs in the status of PID 1");
	if (set != 1)
		return err_set(e, -EPERM, "NoNewPrivs: %" PRIu64, set);
	return sight_set(ret, "NoNewPrivs: 1");
}

int verify_capabilities(const struct verify *v, uint64_t may, uint64_t *ret, struct err *e)
{
	static const struct {
		const char *key;
		bool may_have;
	} sets[] = { { "CapInh:", false },
		     { "CapAmb:", false },
		     { "CapBnd:", true },
		     { "CapEff:", true },
		     { "CapPrm:", true } }; /* last: its bits are reported */
	uint64_t bits = 0;
	ino_t ns;

	if (check_namespace(v, "user", &ns, e) < 0)
		return e->num;
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		uint64_t most = sets[i].may_have ? may : 0;

		if (!text_field_hex(buf_text(&v->status), sets[i].key, &bits))
			return err_set(e, -EBADMSG, "no %s in the status of PID 1", sets[i].key);
		if (bits & ~most)
			return err_set(e, -EPERM,
				       "%s %016" PRIx64 ", of which %" PRIx64 " is not allowed",
				       sets[i].key, bits, bits & ~most);
	}
	*ret = bits;
	return 0;
}

/* PID 1 keeps a few capabilities, to start commands as the requested users; they are limited to its
 * own user namespace. hutch-guest starts commands without any, which cannot be verified here. */
static int look_capabilities(const struct verify *v, unsigned int row, struct sight *ret,
			     struct err *e)
{
	uint64_t bits = 0;

	if (verify_capabilities(v, oci_guest_capabilities(), &bits, e) < 0)
		return e->num;
	return sight_set(ret,
			 "none outside its user namespace; inside, PID 1 keeps %" PRIx64
			 " (CapInh, CapAmb: 0)",
			 bits);
}

static int look_apparmor(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	char profile[256];
	int r = fd_read_line(v->proc, "attr/apparmor/current", profile, sizeof(profile));

	/* The kernel has the directory since 5.1; an unreadable file in it means that AppArmor is
	 * built in but off. */
	if (r == -ENOENT || r == -EINVAL) {
		(void)snprintf(ret->advice, sizeof(ret->advice),
			       "boot with apparmor=1 security=apparmor, then " APPARMOR_LOAD);
		return err_set(e, -EOPNOTSUPP, "AppArmor is not loaded on this host");
	}
	if (r < 0)
		return err_set(e, r, "cannot read the AppArmor profile of PID 1: %s", strerror(-r));
	if (str_eq(profile, APPARMOR_PROFILE " (enforce)"))
		return sight_set(ret, "profile %s", profile);
	(void)snprintf(ret->advice, sizeof(ret->advice), "as root: " APPARMOR_LOAD);
	return err_set(e, -EPERM, "PID 1 is %s, not " APPARMOR_PROFILE " (enforce)", profile);
}

static int look_kvm(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	return err_set(e, -EOPNOTSUPP, "a container has no virtual machine");
}

/* "Max open files  SOFT  HARD  files" */
static int read_limit(const char *limits, const char *key, uint64_t *ret_hard, struct err *e)
{
	struct span rest, soft, hard;
	uint64_t n;

	if (!text_field(limits, key, &rest) || !span_word(&rest, &soft) || !span_word(&rest, &hard))
		return err_set(e, -EBADMSG, "no '%s' in the limits of PID 1", key);
	if (!span_number(soft, &n) || !span_number(hard, &n))
		return err_set(e, -EPERM, "%s: unlimited", key);
	*ret_hard = n;
	return 0;
}

int verify_rlimits(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(VERIFY_FILE_MAX);
	uint64_t files, core;

	if (fd_read_file(v->proc, "limits", &b, e) < 0 ||
	    read_limit(buf_text(&b), "Max open files", &files, e) < 0 ||
	    read_limit(buf_text(&b), "Max core file size", &core, e) < 0)
		return e->num;
	if (core > OCI_CORE)
		return err_set(e, -EPERM, "Max core file size: %" PRIu64 ", not %d", core,
			       OCI_CORE);
	return sight_set(ret, "Max open files: %" PRIu64 ", Max core file size: %" PRIu64, files,
			 core);
}

static const struct verify_row rows[] = {
	{ LAYER_USER_NAMESPACE, verify_user_namespace },
	{ LAYER_PID_NAMESPACE, verify_pid_namespace },
	{ LAYER_NO_NETWORK_DEVICE, verify_network },
	{ LAYER_SECCOMP, look_seccomp },
	{ LAYER_NO_CAPABILITIES, look_capabilities },
	{ LAYER_NO_NEW_PRIVILEGES, verify_no_new_privileges },
	{ LAYER_READ_ONLY_ROOT, verify_root },
	{ LAYER_APPARMOR, look_apparmor },
	{ LAYER_CGROUP_CPU, verify_cgroup },
	{ LAYER_CGROUP_MEMORY, verify_cgroup },
	{ LAYER_CGROUP_PIDS, verify_cgroup },
	{ LAYER_DISK_QUOTA, verify_disk },
	{ LAYER_KVM, look_kvm },
	{ EXTRA_MOUNT_NAMESPACE, verify_namespace },
	{ EXTRA_IPC_NAMESPACE, verify_namespace },
	{ EXTRA_UTS_NAMESPACE, verify_namespace },
	{ EXTRA_CGROUP_NAMESPACE, verify_namespace },
	{ EXTRA_OWN_IDS, look_ids },
	{ EXTRA_MASKED_PROC, verify_masked_proc },
	{ EXTRA_NO_SYSFS, verify_mounts },
	{ EXTRA_NO_DEVICES, verify_devices },
	{ EXTRA_RLIMITS, verify_rlimits },
};
static_assert(ARRAY_SIZE(rows) == VERIFY_ROWS, "a row without a check");

/* PID 1 is alive and not reaped, so its pid still belongs to it. Waits up to `msec` for its end. */
static int check_alive(const struct engine_sandbox *b, int msec, struct err *e)
{
	struct pollfd p = { .fd = b->init.pidfd, .events = POLLIN };
	int r;

	r = RETRY_EINTR(poll(&p, 1, msec));
	if (r < 0)
		return err_errno(e, "cannot check whether PID 1 is alive");
	if (r > 0)
		return err_set(e, -ESRCH, "PID 1 has ended");
	return 0;
}

/* Opens /proc/PID. */
static int open_process(struct verify *v, struct err *e)
{
	char path[32];
	struct statfs fs;

	if (v->b->init.pid <= 0 || v->b->init.pidfd < 0)
		return err_set(e, -ESRCH, "there is no PID 1");
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)v->b->init.pid);
	v->proc = RETRY_EINTR(
		openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (v->proc < 0 || fstatfs(v->proc, &fs) < 0)
		return err_errno(e, "cannot open %s", path);
	if (fs.f_type != PROC_SUPER_MAGIC)
		return err_set(e, -EINVAL, "%s is not the kernel's", path);
	return check_alive(v->b, 0, e);
}

/* Whether PID 1 runs the program that is bind-mounted at OCI_GUEST_PATH. */
static bool is_guest(const struct verify *v)
{
	struct err e = ERR_INIT;
	_cleanup_close_ int root = verify_open_root(v, &e);
	_cleanup_close_ int fd = -EBADF;
	struct stat runs, guest;

	if (root >= 0)
		fd = path_open_nofollow(root, &OCI_GUEST_PATH[1], O_PATH, 0);
	return fd >= 0 && fstat(fd, &guest) == 0 && fstatat(v->proc, "exe", &runs, 0) == 0 &&
	       runs.st_dev == guest.st_dev && runs.st_ino == guest.st_ino;
}

/* A runtime reports a started process before the process's last steps: capabilities, seccomp,
 * execve(2). */
static int await_program(const struct verify *v, const struct verify_table *t, uint64_t deadline,
			 struct err *e)
{
	while (!t->runs(v)) {
		if (clock_mono() >= deadline)
			return err_set(e, -ETIME, "PID 1 does not run %s", t->program);
		if (check_alive(v->b, 1, e) < 0)
			return e->num;
	}
	return 0;
}

const struct verify_table verify_of_container = {
	.rows = rows,
	.runs = is_guest,
	.program = "hutch-guest",
};

static int read_process(struct verify *v, struct err *e)
{
	if (fd_read_file(v->proc, "status", &v->status, e) < 0 ||
	    fd_read_file(v->proc, "mountinfo", &v->mountinfo, e) < 0)
		return e->num;
	if (text_mounts(buf_text(&v->mountinfo), &v->mounts) < 0)
		return err_set(e, -EBADMSG, "cannot parse mountinfo of PID 1");
	return 0;
}

static void verify_done(struct verify *v)
{
	v->proc = fd_close(v->proc);
	buf_done(&v->status);
	buf_done(&v->mountinfo);
}

static void look_at_pause(const struct verify *v, struct receipt *r)
{
	struct err e = ERR_INIT;
	struct sight sight = { 0 };
	bool can = verify_pause(v, 0, &sight, &e) == 0;

	receipt_pause(r, can ? "freezer" : NULL, "%s", can ? sight.seen : e.msg);
}

static void look_at_all(const struct verify *v, const struct verify_row *all, struct receipt *r)
{
	for (size_t i = 0; i < VERIFY_ROWS; i++) {
		struct err e = ERR_INIT;
		struct sight sight = { 0 };

		if (all[i].look(v, all[i].row, &sight, &e) == 0) {
			receipt_yes(r, all[i].row, "%s", sight.seen);
			continue;
		}
		receipt_no(r, all[i].row, "%s", e.msg);
		if (sight.advice[0])
			receipt_advise(r, all[i].row, "%s", sight.advice);
	}
}

void verify_process(const struct verify_table *t, const struct engine_start *s,
		    const struct engine_sandbox *b, uint64_t deadline, struct receipt *r)
{
	_cleanup_(verify_done) struct verify v = {
		.s = s,
		.b = b,
		.proc = -EBADF,
		.status = BUF_INIT(VERIFY_FILE_MAX),
		.mountinfo = BUF_INIT(VERIFY_FILE_MAX),
		.limits = s->engine->limits(s->spec),
	};
	struct err e = ERR_INIT;

	if (open_process(&v, &e) == 0 && (!deadline || await_program(&v, t, deadline, &e) == 0) &&
	    read_process(&v, &e) == 0) {
		look_at_all(&v, t->rows, r);
		look_at_pause(&v, r);
		if (check_alive(b, 0, &e) == 0)
			return;
	}
	for (size_t i = 0; i < VERIFY_ROWS; i++)
		receipt_no(r, t->rows[i].row, "%s", e.msg);
	receipt_pause(r, NULL, "%s", e.msg);
}

void verify_container(const struct engine_start *s, const struct engine_sandbox *b,
		      struct receipt *r)
{
	verify_process(&verify_of_container, s, b, clock_mono() + GUEST_SECONDS * NSEC_PER_SEC, r);
}
