/* SPDX-License-Identifier: Apache-2.0 */
/* The receipt of a VM. The host confines QEMU, so the rows inspect the QEMU process. The guest has
 * its own kernel and is not inspected: it reaches no further than QEMU does. Most rows are shared
 * with containers; those about a container's root directory check QEMU's descriptors instead. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/qemu-jail.h"
#include "engine/qemu.h"
#include "engine/verify.h"

enum {
	START_SECONDS = 10,
	FILES_MAX = 4 * QEMU_JAIL_NOFILE,
	OUR_FILTERS = 2, /* the jail's and QEMU's own */
	KVM_MAJOR = 10,
	KVM_MINOR = 232,
};

/* ---- descriptors ---- */

struct open_file {
	struct stat st;
	uint64_t mode;	 /* O_ACCMODE of its flags */
	char target[64]; /* link target, truncated */
};

/* fdinfo: "flags:\t0100002", in octal. */
static int read_mode(int info, const char *name, uint64_t *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(VERIFY_FILE_MAX);
	struct span flags;

	if (fd_read_file(info, name, &b, e) < 0)
		return e->num;
	if (!text_field(buf_text(&b), "flags:", &flags) || flags.n == 0)
		return err_set(e, -EBADMSG, "no flags of descriptor %s of QEMU", name);
	/* The last digit holds the two bits. */
	*ret = (uint64_t)(flags.s[flags.n - 1] - '0') & O_ACCMODE;
	return 0;
}

static int read_file(int fds, int info, const char *name, struct open_file *ret, struct err *e)
{
	ssize_t n = readlinkat(fds, name, ret->target, sizeof(ret->target) - 1);

	if (n < 0 || fstatat(fds, name, &ret->st, 0) < 0)
		return err_errno(e, "cannot stat descriptor %s of QEMU", name);
	ret->target[n] = '\0';
	return read_mode(info, name, &ret->mode, e);
}

static int open_dir(int at, const char *path)
{
	return RETRY_EINTR(openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void close_dir(DIR *const *d)
{
	if (*d)
		(void)closedir(*d);
}

/* Calls `fn` for each open descriptor of QEMU, until it returns an error. */
static int each_file(const struct verify *v,
		     int (*fn)(const struct verify *v, const struct open_file *f, void *arg,
			       struct err *e),
		     void *arg, struct err *e)
{
	_cleanup_close_ int fds = open_dir(v->proc, "fd"), info = open_dir(v->proc, "fdinfo");
	_cleanup_(close_dir) DIR *d = fds < 0 || info < 0 ? NULL : fd_list(fds);
	const struct dirent *entry;
	struct open_file f;
	size_t n = 0;
	int r;

	if (!d)
		return err_errno(e, "cannot list the descriptors of QEMU");
	for (errno = 0; (entry = readdir(d)); errno = 0) {
		if (entry->d_name[0] == '.')
			continue;
		if (n++ == FILES_MAX)
			return err_set(e, -E2BIG, "QEMU has more than %d descriptors", FILES_MAX);
		r = read_file(fds, info, entry->d_name, &f, e);
		if (r == -ENOENT)
			continue; /* closed in the meantime */
		if (r < 0 || fn(v, &f, arg, e) < 0)
			return e->num;
	}
	return errno ? err_errno(e, "cannot list the descriptors of QEMU") : 0;
}

static bool is_file(const struct verify *v, enum engine_file which, const struct open_file *f)
{
	return v->b->file[which].ino != 0 && f->st.st_ino == v->b->file[which].ino &&
	       f->st.st_dev == v->b->file[which].dev;
}

/* The image is open read-only, and all other open files belong to the VM. */
static int check_file(const struct verify *v, const struct open_file *f, void *arg, struct err *e)
{
	size_t *images = arg;

	if (is_file(v, ENGINE_FILE_ROOT, f)) {
		if (f->mode != O_RDONLY)
			return err_set(e, -EPERM, "QEMU has the image's disk open for writing");
		++*images;
		return 0;
	}
	if (!S_ISREG(f->st.st_mode) && !S_ISDIR(f->st.st_mode))
		return 0; /* anonymous inodes have no type; another row checks devices */
	for (enum engine_file i = 0; i < ENGINE_FILES; i++)
		if (is_file(v, i, f))
			return 0;
	return err_set(e, -EPERM, "QEMU has a file open that is not the VM's: %s", f->target);
}

static int look_image(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	size_t images = 0;

	if (each_file(v, check_file, &images, e) < 0)
		return e->num;
	if (images == 0)
		return err_set(e, -EPERM, "QEMU does not have the image's disk open");
	return sight_set(ret, "/dev/vda is the image, opened read-only; no other file is open but "
			      "the VM's own");
}

static int find_disk(const struct verify *v, const struct open_file *f, void *arg, struct err *e)
{
	uint64_t *size = arg;

	if (is_file(v, ENGINE_FILE_DISK, f))
		*size = (uint64_t)f->st.st_size;
	return 0;
}

/* The disk is behind a throttle group with the requested limits. */
static int look_throttle(const struct verify *v, char *ret, size_t n, struct err *e)
{
	const uint64_t rate = v->s->spec->limits.disk_bandwidth, ops = v->s->spec->limits.disk_ops;
	_cleanup_buf_ struct buf args = BUF_INIT(VERIFY_FILE_MAX);
	char want[128];

	ret[0] = '\0';
	if (rate == 0 && ops == 0)
		return 0;
	(void)snprintf(want, sizeof(want), QEMU_THROTTLE, rate, ops);
	if (fd_read_file(v->proc, "cmdline", &args, e) < 0)
		return e->num;
	if (!memmem(args.data, args.len, want, strlen(want) + 1))
		return err_set(e, -EPERM, "QEMU does not limit the disk: no %s", want);
	(void)snprintf(ret, n, "; QEMU allows %" PRIu64 " bytes/s, %" PRIu64 " operations/s%s",
		       rate, ops, rate == 0 || ops == 0 ? " (0: any number)" : "");
	return 0;
}

static int look_disk(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	uint64_t size = 0;
	char throttle[96];

	if (each_file(v, find_disk, &size, e) < 0)
		return e->num;
	if (size == 0)
		return err_set(e, -EPERM, "QEMU does not have the sandbox's disk open");
	if (size > v->b->disk || size > v->s->spec->limits.disk)
		return err_set(e, -EPERM,
			       "/dev/vdb has %" PRIu64 " bytes, more than the %" PRIu64
			       " that were asked for",
			       size, v->s->spec->limits.disk);
	if (look_throttle(v, throttle, sizeof(throttle), e) < 0)
		return e->num;
	return sight_set(ret, "/dev/vdb has %" PRIu64 " bytes%s", size, throttle);
}

static int check_device(const struct verify *v, const struct open_file *f, void *arg, struct err *e)
{
	if (S_ISBLK(f->st.st_mode) ||
	    (S_ISCHR(f->st.st_mode) && f->st.st_rdev != makedev(KVM_MAJOR, KVM_MINOR)))
		return err_set(e, -EPERM, "QEMU has the device %u:%u open", major(f->st.st_rdev),
			       minor(f->st.st_rdev));
	return 0;
}

static int find_kvm(const struct verify *v, const struct open_file *f, void *arg, struct err *e)
{
	bool *found = arg;

	*found |= str_eq(f->target, "anon_inode:kvm-vm");
	return 0;
}

static int look_kvm(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	bool found = false;

	if (each_file(v, find_kvm, &found, e) < 0)
		return e->num;
	if (!found)
		return err_set(e, -EOPNOTSUPP,
			       "TCG: the CPU is emulated, which is slower and more code to trust");
	return sight_set(ret, "anon_inode:kvm-vm: the guest runs on the CPU itself");
}

/* ---- its root directory ---- */

/* The directory has no entries. */
static int check_empty(const struct verify *v, struct err *e)
{
	_cleanup_close_ int root = verify_open_root(v, e);
	_cleanup_close_ int fd = -EBADF;
	_cleanup_(close_dir) DIR *d = NULL;
	const struct dirent *entry;

	if (root < 0)
		return e->num;
	fd = open_dir(root, ".");
	d = fd < 0 ? NULL : fd_list(fd);
	if (!d)
		return err_errno(e, "cannot list the root of QEMU");
	for (errno = 0; (entry = readdir(d)); errno = 0)
		if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
			return err_set(e, -EPERM, "the root of QEMU is not empty");
	return errno ? err_errno(e, "cannot list the root of QEMU") : 0;
}

/* QEMU has one mount, and it is read-only. */
static int check_mounts(const struct verify *v, struct err *e)
{
	const struct text_mount *m = text_mount_at(&v->mounts, "/");

	if (v->mounts.n != 1 || !m)
		return err_set(e, -EPERM, "QEMU has %zu mounts, not one", v->mounts.n);
	if (!span_is(m->type, "tmpfs") || !span_lists(m->options, "ro") ||
	    !span_lists(m->super, "ro"))
		return err_set(e, -EPERM, "the root of QEMU is not a read-only tmpfs");
	return 0;
}

static int look_proc(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	if (check_empty(v, e) < 0)
		return e->num;
	return sight_set(ret,
			 "the guest has its own kernel; QEMU's root is empty, without a /proc");
}

static int look_mounts(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	if (check_mounts(v, e) < 0)
		return e->num;
	return sight_set(ret, "the guest has its own kernel; QEMU has one mount, tmpfs ro");
}

static int look_devices(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	if (check_empty(v, e) < 0 || each_file(v, check_device, NULL, e) < 0)
		return e->num;
	return sight_set(ret, "the guest has virtio devices alone; QEMU has none of the host's but "
			      "/dev/kvm at most");
}

/* ---- the process ---- */

/* Filters inherited from us do not count. */
static int look_seccomp(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	_cleanup_buf_ struct buf own = BUF_INIT(VERIFY_FILE_MAX);
	uint64_t filters;

	if (fd_read_file(AT_FDCWD, "/proc/self/status", &own, e) < 0)
		return e->num;
	if (!text_field_number(buf_text(&own), "Seccomp_filters:", &filters))
		return err_set(e, -EBADMSG, "no Seccomp in our own status");
	return verify_seccomp(v, filters + OUR_FILTERS, ret, e);
}

static int look_capabilities(const struct verify *v, unsigned int row, struct sight *ret,
			     struct err *e)
{
	uint64_t none = 0;

	if (verify_capabilities(v, 0, &none, e) < 0)
		return e->num;
	return sight_set(ret, "CapPrm, CapEff, CapBnd, CapInh, CapAmb: 0");
}

static int look_ids(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	return verify_ids(v, QEMU_JAIL_ID, ret, e);
}

static int look_apparmor(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	return err_set(e, -EOPNOTSUPP, "QEMU runs under no AppArmor profile of ours");
}

static const struct verify_row rows[] = {
	{ LAYER_USER_NAMESPACE, verify_user_namespace },
	{ LAYER_PID_NAMESPACE, verify_pid_namespace },
	{ LAYER_NO_NETWORK_DEVICE, verify_network },
	{ LAYER_SECCOMP, look_seccomp },
	{ LAYER_NO_CAPABILITIES, look_capabilities },
	{ LAYER_NO_NEW_PRIVILEGES, verify_no_new_privileges },
	{ LAYER_READ_ONLY_ROOT, look_image },
	{ LAYER_APPARMOR, look_apparmor },
	{ LAYER_CGROUP_CPU, verify_cgroup },
	{ LAYER_CGROUP_MEMORY, verify_cgroup },
	{ LAYER_CGROUP_PIDS, verify_cgroup },
	{ LAYER_DISK_QUOTA, look_disk },
	{ LAYER_KVM, look_kvm },
	{ EXTRA_MOUNT_NAMESPACE, verify_namespace },
	{ EXTRA_IPC_NAMESPACE, verify_namespace },
	{ EXTRA_UTS_NAMESPACE, verify_namespace },
	{ EXTRA_CGROUP_NAMESPACE, verify_namespace },
	{ EXTRA_OWN_IDS, look_ids },
	{ EXTRA_MASKED_PROC, look_proc },
	{ EXTRA_NO_SYSFS, look_mounts },
	{ EXTRA_NO_DEVICES, look_devices },
	{ EXTRA_RLIMITS, verify_rlimits },
};
static_assert(ARRAY_SIZE(rows) == VERIFY_ROWS, "a row without a check");

static bool is_qemu(const struct verify *v)
{
	struct err ignored = ERR_INIT;
	struct stat runs, qemu;
	char path[PATH_MAX];

	return engine_program(v->s->engine, path, &ignored) == 0 && stat(path, &qemu) == 0 &&
	       fstatat(v->proc, "exe", &runs, 0) == 0 && runs.st_dev == qemu.st_dev &&
	       runs.st_ino == qemu.st_ino;
}

const struct verify_table verify_of_machine = {
	.rows = rows,
	.runs = is_qemu,
	.program = QEMU_PROGRAM,
};

/*
 * With isolation.nested, these rows are true of QEMU and not of the programs that the policy is
 * about, so they count as not enforced. QEMU is the boundary: it must still have all of them.
 */
void verify_nested(struct receipt *r)
{
	static const enum layer inside[] = { LAYER_SECCOMP, LAYER_NO_CAPABILITIES,
					     LAYER_NO_NEW_PRIVILEGES };
	char seen[RECEIPT_SEEN_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
		struct receipt_row *row = &r->row[inside[i]];

		row->required |= !row->enforced;
		if (!row->enforced)
			continue;
		row->asked = false;
		(void)snprintf(seen, sizeof(seen), "%s", row->seen);
		receipt_no(r, inside[i], RECEIPT_NESTED "; QEMU: %.80s", seen);
	}
}

void verify_machine(const struct engine_start *s, const struct engine_sandbox *b, struct receipt *r)
{
	verify_process(&verify_of_machine, s, b, clock_mono() + START_SECONDS * NSEC_PER_SEC, r);
	if (s->spec->nested)
		verify_nested(r);
}
