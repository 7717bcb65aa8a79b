/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses between KVM and TCG. Facts about the host are checked each time; the result of a test
 * boot stays in accel.json until the host reboots, or QEMU or the kernel changes; a boot that was
 * only late counts for ten minutes. A process that finds no verdict makes one under a lock, so that
 * concurrent starts wait for a single test boot.
 */
#include "vm/accel.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "engine/engine.h"
#include "engine/qemu.h"
#include "snapshot/disk-copy.h"
#include "vm/accel-inner.h"
#include "vm/home.h"
#include "vm/host-config.h"

enum {
	DISK_SIZE = 4 << 20, /* disk of the test guest: the smallest possible */
};

/* Everything a verdict depends on, and where it is stored. */
struct subject {
	int dir;
	const struct machine_kernel *kernel;
	char qemu[PATH_MAX];
	struct accel_key key;
	struct accel_seen seen;
	bool insist; /* KVM is configured: test again after a late boot */
};

static uint64_t now_ms(void)
{
	return clock_mono() / NSEC_PER_MSEC;
}

static void subject_done(struct subject *s)
{
	(void)fd_close(s->dir);
}

static int identify_qemu(struct subject *s, struct err *e)
{
	struct stat st;

	if (engine_program(&engine_qemu, s->qemu, e) < 0)
		return e->num;
	if (stat(s->qemu, &st) < 0)
		return err_errno(e, "cannot stat '%s'", s->qemu);
	(void)snprintf(s->key.qemu, sizeof(s->key.qemu), "%llu:%llu:%llu:%lld.%09ld",
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		       (unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec,
		       st.st_mtim.tv_nsec);
	return 0;
}

static int subject_open(struct subject *s, bool make, struct err *e)
{
	char path[IMAGE_HOME_MAX];
	int r = identify_qemu(s, e);

	if (r == 0 && !s->kernel)
		r = err_set(e, -ENOENT, "no guest kernel is installed: hutch image kernel");
	if (r < 0)
		return r;
	(void)snprintf(s->key.kernel, sizeof(s->key.kernel), "%s", s->kernel->digest);
	r = fd_read_line(AT_FDCWD, "/proc/sys/kernel/random/boot_id", s->key.boot,
			 sizeof(s->key.boot));
	if (r < 0)
		return err_set(e, r, "cannot read the boot id: %s", strerror(-r));
	return image_home_open(MACHINE_HOME, make, path, &s->dir, e);
}

static int lock(const struct subject *s, int *ret, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(s->dir, "accel.lock", O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		return err_set(e, fd, "cannot open the lock of accel.json: %s", strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock accel.json");
	*ret = TAKE_FD(fd);
	return 0;
}

static int try_it(const struct subject *s, struct accel_tried *ret, struct err *e)
{
	_cleanup_close_ int tmp = -EBADF, disk = -EBADF;
	struct host_config config = HOST_CONFIG_INIT;
	char home[IMAGE_HOME_MAX], blank[4096];
	int r = host_config_load(&config, e);

	if (r == 0)
		r = machine_blank(DISK_SIZE, blank, e);
	if (r == 0)
		r = machine_home_open("tmp", true, home, &tmp, e);
	if (r == 0)
		r = disk_new_from(tmp, blank, &disk, e);
	return r < 0 ? r
		     : accel_boot(s->qemu, s->kernel->kernel, s->kernel->initrd, disk,
				  config.accel_timeout, ret, e);
}

/* Boots a guest and stores the result. The caller holds the lock. */
static int make_verdict(const struct subject *s, struct accel_verdict *ret, struct err *e)
{
	struct accel_tried tried = { 0 };
	int r = s->seen.device == 0 ? try_it(s, &tried, e) : 0;

	if (r < 0)
		return r;
	accel_judge(&s->seen, &tried, now_ms(), ret);
	return accel_store(s->dir, &s->key, ret, e);
}

/* The stored verdict or, with `probe`, a new one. -ENOENT: there is none. */
static int find_verdict(const struct subject *s, bool probe, struct accel_verdict *ret,
			struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	struct accel_verdict v = { 0 };
	uint64_t late = 0;
	int r = accel_load(s->dir, &s->key, &v);

	if (r == 0 && accel_verdict_holds(&v, s->insist && probe, now_ms())) {
		*ret = v;
		return 0;
	}
	if (!probe)
		return err_set(e, -ENOENT, "run 'hutch doctor --probe'");
	late = v.retry_at;
	r = lock(s, &held, e);
	if (r < 0)
		return r;
	/* The process that held the lock may have tested KVM: its result is as good as ours. */
	if (accel_load(s->dir, &s->key, &v) < 0 ||
	    !accel_verdict_holds(&v, s->insist && v.retry_at == late, now_ms()))
		return make_verdict(s, ret, e);
	*ret = v;
	return 0;
}

static void see(struct accel_seen *ret)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	accel_see(root, geteuid(), ret);
}

/* Whether KVM works, or why not; *ret_known is false if that was not tested yet. */
static int judge(const struct machine_kernel *kernel, bool insist, bool probe,
		 struct accel_verdict *ret, bool *ret_known, struct err *e)
{
	_cleanup_(subject_done) struct subject s = { .dir = -EBADF,
						     .kernel = kernel,
						     .insist = insist };
	const struct accel_tried nothing = { 0 };
	bool hopeless;
	int r;

	see(&s.seen);
	hopeless = accel_hopeless(&s.seen);
	accel_judge(&s.seen, &nothing, now_ms(), ret);
	probe = probe && !hopeless;
	r = subject_open(&s, probe, e);
	if (r == 0)
		r = find_verdict(&s, probe, ret, e);
	/* A stored test result explains more, but cannot change this outcome. */
	if (hopeless)
		ret->works = false;
	*ret_known = hopeless || r == 0;
	if (*ret_known || probe)
		return *ret_known ? 0 : r;
	(void)snprintf(ret->why, sizeof(ret->why), "KVM: not checked yet: %.200s", e->msg);
	return 0;
}

int accel_choose(const struct machine_kernel *kernel, bool probe, enum accel *ret,
		 char why[static ACCEL_WHY_MAX], struct err *e)
{
	struct accel_verdict v = { 0 };
	enum accel_wish wish;
	bool known = false;
	int r = accel_wish(&wish, e);

	if (r < 0)
		return r;
	if (wish == ACCEL_WANT_TCG) {
		(void)snprintf(why, ACCEL_WHY_MAX, "TCG is configured");
		*ret = ACCEL_TCG;
		return 0;
	}
	r = judge(kernel, wish == ACCEL_WANT_KVM, probe, &v, &known, e);
	if (r < 0)
		return r;
	if (!v.works && known && wish == ACCEL_WANT_KVM)
		return err_set(e, -ENOTSUP, "KVM is configured and does not work: %s", v.why);
	(void)snprintf(why, ACCEL_WHY_MAX, "%s", v.why);
	*ret = v.works ? ACCEL_KVM : ACCEL_TCG;
	return 0;
}

int accel_probe(const struct machine_kernel *kernel, struct err *e)
{
	_cleanup_(subject_done) struct subject s = { .dir = -EBADF, .kernel = kernel };
	_cleanup_close_ int held = -EBADF;
	struct accel_verdict v;
	int r = subject_open(&s, true, e);

	if (r == 0)
		r = lock(&s, &held, e);
	if (r < 0)
		return r;
	see(&s.seen);
	return make_verdict(&s, &v, e);
}
