/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether KVM works: the checks below an invented root, the conclusion, the file that caches it,
 * and a guest's boot, with scripts that imitate QEMU's failures.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "fail.h"
#include "vm/accel-inner.h"

TEST_IN_DIR(seen)
{
	const struct unit_dir *d = *state;
	struct accel_seen s;

	accel_see(d->fd, 0, &s);
	assert_int_equal(s.device, -ENOENT);
	assert_null(s.vendor);
	assert_true(accel_hopeless(&s));
	/* A file of another type with that name. */
	assert_int_equal(path_mkdirs(d->fd, "dev", 0755), 0);
	unit_dir_write(d, "dev/kvm", "", 0);
	assert_int_equal(path_mkdirs(d->fd, "sys/module/kvm_amd", 0755), 0);
	accel_see(d->fd, 0, &s);
	assert_int_equal(s.device, -ENODEV);
	assert_string_equal(s.vendor, "kvm_amd");
	assert_true(accel_hopeless(&s));
	assert_int_equal(path_mkdirs(d->fd, "sys/module/kvm_intel", 0755), 0);
	accel_see(d->fd, 0, &s);
	assert_string_equal(s.vendor, "kvm_intel");
	/* QEMU runs under other ids than the ordinary user's, so /dev/kvm must be open to all. */
	assert_int_equal(fchmodat(d->fd, "dev/kvm", 0660, 0), 0);
	accel_see(d->fd, 0, &s);
	assert_false(s.closed);
	accel_see(d->fd, 1000, &s);
	assert_true(s.closed);
	assert_int_equal(fchmodat(d->fd, "dev/kvm", 0666, 0), 0);
	accel_see(d->fd, 1000, &s);
	assert_false(s.closed);
}

TEST(judgement)
{
	static const struct {
		struct accel_seen seen;
		struct accel_tried tried;
		const char *why; /* NULL: it works */
	} rows[] = {
		{ { 0, "kvm_intel" }, { ACCEL_BOOTED, 15000, "" }, NULL },
		{ { 0, "kvm_amd" },
		  { ACCEL_LATE, 15000, "" },
		  "KVM: /dev/kvm exists and kvm_amd is loaded, but a guest did not boot within "
		  "15 s" },
		{ { 0, "kvm_amd" },
		  { ACCEL_STOPPED, 15000, "" },
		  "KVM: /dev/kvm exists and kvm_amd is loaded, but a guest did not boot: KVM "
		  "stopped it" },
		{ { 0, "kvm_intel" },
		  { ACCEL_ENDED, 15000, "no memory" },
		  "KVM: /dev/kvm exists and kvm_intel is loaded, but a guest did not boot: QEMU "
		  "exited: no memory" },
		{ { 0, NULL },
		  { ACCEL_NOT_TRIED, 0, "" },
		  "KVM: /dev/kvm exists, but neither kvm_intel nor kvm_amd is loaded (a "
		  "paravirtual device)" },
		{ { 0, NULL },
		  { ACCEL_LATE, 15000, "" },
		  "KVM: /dev/kvm exists, but neither kvm_intel nor kvm_amd is loaded (a "
		  "paravirtual device); a guest did not boot within 15 s" },
		{ { 0, NULL },
		  { ACCEL_BOOTED, 15000, "" },
		  "KVM: /dev/kvm exists, but neither kvm_intel nor kvm_amd is loaded (a "
		  "paravirtual device); a guest boots, which is not enough" },
		{ { 0, "kvm_intel", true },
		  { ACCEL_BOOTED, 15000, "" },
		  "KVM: /dev/kvm is closed to the ids under which an ordinary user's VMs run: "
		  "chmod 666 /dev/kvm, or run hutch as root; a guest boots, which is not enough" },
		{ { -ENOENT, NULL }, { 0 }, "KVM: /dev/kvm does not exist" },
		{ { -EACCES, "kvm_amd" },
		  { 0 },
		  "KVM: /dev/kvm cannot be used: Permission denied" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct accel_verdict v;

		accel_judge(&rows[i].seen, &rows[i].tried, 7, &v);
		assert_int_equal(v.works, !rows[i].why);
		assert_int_equal(v.retry_at,
				 rows[i].tried.boot == ACCEL_LATE ? 7 + ACCEL_RETRY_MS : 0);
		assert_string_equal(v.why, rows[i].why ? rows[i].why : "");
	}
}

/* A slow host is no proof against KVM: a late boot counts for a while, and not for a host whose
 * operator wants KVM. */
TEST(a_late_boot_is_no_final_verdict)
{
	const struct accel_seen seen = { 0, "kvm_intel" };
	struct accel_tried tried = { ACCEL_LATE, 15000, "" };
	struct accel_verdict v;

	accel_judge(&seen, &tried, 1000, &v);
	assert_true(accel_verdict_holds(&v, false, 1000));
	assert_true(accel_verdict_holds(&v, false, 1000 + ACCEL_RETRY_MS - 1));
	assert_false(accel_verdict_holds(&v, false, 1000 + ACCEL_RETRY_MS));
	assert_false(accel_verdict_holds(&v, true, 1000));
	for (enum accel_boot b = ACCEL_BOOTED; b <= ACCEL_ENDED; b++) {
		if (b == ACCEL_LATE)
			continue;
		tried.boot = b;
		accel_judge(&seen, &tried, 1000, &v);
		assert_true(accel_verdict_holds(&v, true, UINT64_MAX));
	}
}

static const struct accel_key key = { "boot-1", "qemu-1", "kernel-1" };

TEST_IN_DIR(kept)
{
	const struct unit_dir *d = *state;
	struct accel_verdict v = { .works = false, .retry_at = 77, .why = "a \"reason\"" };
	struct accel_verdict got = { 0 };
	struct accel_key other[] = { key, key, key };
	struct err e = ERR_INIT;

	assert_int_equal(accel_load(d->fd, &key, &got), -ENOENT);
	assert_int_equal(accel_store(d->fd, &key, &v, &e), 0);
	assert_int_equal(accel_load(d->fd, &key, &got), 0);
	assert_false(got.works);
	assert_string_equal(got.why, v.why);
	assert_int_equal(got.retry_at, 77);
	v = (struct accel_verdict){ .works = true };
	assert_int_equal(accel_store(d->fd, &key, &v, &e), 0);
	assert_int_equal(accel_load(d->fd, &key, &got), 0);
	assert_true(got.works);
	assert_int_equal(unit_dir_entries(d), 1);
	/* Another boot of the host, another QEMU, another kernel. */
	other[0].boot[0] = other[1].qemu[0] = other[2].kernel[0] = 'x';
	for (size_t i = 0; i < ARRAY_SIZE(other); i++)
		assert_int_equal(accel_load(d->fd, &other[i], &got), -ENOENT);
}

/* A damaged file is ignored. */
TEST_IN_DIR(damaged)
{
	static const char good[] =
		"{\"version\": 2, \"boot\": \"boot-1\", \"qemu\": \"qemu-1\", "
		"\"kernel\": \"kernel-1\", \"works\": true, \"retry_at\": 0, \"why\": \"\"}";
	static const char *const bad[] = {
		"",
		"{}",
		"[]",
		"{\"version\": 2, \"boot\": \"boot-1\", \"qemu\": \"qemu-1\", \"kernel\": "
		"\"kernel-1\", \"works\": 1, \"retry_at\": 0, \"why\": \"\"}",
		"{\"version\": 0, \"boot\": \"boot-1\", \"qemu\": \"qemu-1\", \"kernel\": "
		"\"kernel-1\", \"works\": true, \"retry_at\": 0, \"why\": \"\"}",
		"{\"version\": 2, \"boot\": \"boot-1\", \"qemu\": \"qemu-1\", \"kernel\": "
		"\"kernel-1\", \"works\": true, \"retry_at\": 0, \"why\": \"\", \"more\": 1}",
		"{\"version\": 2, \"boot\": \"boot-1\", \"qemu\": \"qemu-1\", \"kernel\": "
		"\"kernel-1\", \"works\": true, \"retry_at\": 0}",
	};
	const struct unit_dir *d = *state;
	struct accel_verdict got;

	unit_dir_write(d, "accel.json", good, strlen(good));
	assert_int_equal(accel_load(d->fd, &key, &got), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		unit_dir_write(d, "accel.json", bad[i], strlen(bad[i]));
		assert_int_equal(accel_load(d->fd, &key, &got), -ENOENT);
	}
	for (size_t n = 0; n < strlen(good); n++) {
		unit_dir_write(d, "accel.json", good, n);
		assert_int_equal(accel_load(d->fd, &key, &got), -ENOENT);
	}
}

static int store_and_load(int dir)
{
	const struct accel_verdict v = { .works = true };
	struct accel_verdict got;
	struct err e = ERR_INIT;
	int r = accel_store(dir, &key, &v, &e);

	return r < 0 ? r : accel_load(dir, &key, &got) < 0 ? -EIO : 0;
}

TEST_IN_DIR(faults)
{
	const struct unit_dir *d = *state;

	FAIL_SWEEP(store_and_load(d->fd));
}

/* A script in QEMU's place, with QMP on file descriptor 4. */
static void boot_with(const struct unit_dir *d, const char *script, uint64_t ms,
		      struct accel_tried *ret)
{
	char path[128];
	struct err e = ERR_INIT;

	unit_dir_write(d, "qemu", script, strlen(script));
	assert_int_equal(fchmodat(d->fd, "qemu", 0755, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/qemu", d->path);
	assert_int_equal(accel_boot(path, "/the/kernel", "/the/initrd", d->fd, ms, ret, &e), 0);
}

#define GREETING "echo '{\"QMP\": {\"version\": {}}}' >&4; read a <&4; read b <&4\n"
#define EVENT	 "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": "

TEST_IN_DIR(boots)
{
	const struct unit_dir *d = *state;
	struct accel_tried t;
	uint64_t began;

	boot_with(d,
		  "#!/bin/sh\n" GREETING "case \"$a$b\" in *qmp_capabilities*cont*) ;; *) exit;; "
		  "esac\n"
		  "case \"$*\" in *'-accel kvm -cpu host'*'-kernel /the/kernel -initrd "
		  "/the/initrd'*) ;; *) exit;; esac\n"
		  "echo '{\"return\": {}}' >&4; echo '" EVENT "\"RESUME\"}' >&4\n"
		  "echo '" EVENT "\"VSERPORT_CHANGE\", \"data\": {\"open\": true}}' >&4\n"
		  "exec sleep 100\n",
		  30000, &t);
	assert_int_equal(t.boot, ACCEL_BOOTED);

	began = clock_mono();
	boot_with(d, "#!/bin/sh\n" GREETING "trap '' TERM\nexec sleep 100\n", 300, &t);
	assert_int_equal(t.boot, ACCEL_LATE);
	assert_true(clock_mono() - began >= 300 * NSEC_PER_MSEC);
	assert_true(clock_mono() - began < 60 * NSEC_PER_SEC);

	boot_with(d, "#!/bin/sh\n" GREETING "echo '" EVENT "\"STOP\"}' >&4\nexec sleep 100\n",
		  30000, &t);
	assert_int_equal(t.boot, ACCEL_STOPPED);

	boot_with(d, "#!/bin/sh\necho 'first' >&2; printf 'no \\033KVM here\\n' >&2; exit 1\n",
		  30000, &t);
	assert_int_equal(t.boot, ACCEL_ENDED);
	assert_string_equal(t.text, "no \\x1bKVM here");

	/* Longer than a line may be. */
	boot_with(d, "#!/bin/sh\ncat /dev/zero >&4\n", 30000, &t);
	assert_int_equal(t.boot, ACCEL_ENDED);
}

static int boot_once(const char *path)
{
	struct accel_tried t;
	struct err e = ERR_INIT;

	return accel_boot(path, "k", "i", 2, 30000, &t, &e);
}

TEST_IN_DIR(boot_faults)
{
	static const char script[] = "#!/bin/sh\n" GREETING "echo '" EVENT
				     "\"VSERPORT_CHANGE\", \"data\": {\"open\": true}}' >&4\n";
	const struct unit_dir *d = *state;
	char path[128];

	unit_dir_write(d, "qemu", script, strlen(script));
	assert_int_equal(fchmodat(d->fd, "qemu", 0755, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/qemu", d->path);
	FAIL_SWEEP(boot_once(path));
}

/* One block, in which the kernel and fsck.erofs(1) find a root directory. */
TEST(empty_image)
{
	static const unsigned char magic[] = { 0xe2, 0xe1, 0xf5, 0xe0 };
	static const char names[] = "...";
	char block[ACCEL_ROOT_SIZE];

	accel_empty_root(block);
	assert_memory_equal(block + 1024, magic, sizeof(magic));
	assert_int_equal(block[1024 + 12], 12); /* 4096 bytes a block */
	assert_int_equal(block[1024 + 14], 36); /* the root's inode, in 32 bytes */
	assert_int_equal(block[36 * 32], 4);
	assert_memory_equal(block + 36 * 32 + 32 + 24, names, 3);
}

TEST(no_qemu)
{
	struct accel_tried t;
	struct err e = ERR_INIT;

	assert_int_equal(accel_boot("/nonexistent/qemu", "k", "i", 2, 1000, &t, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "/nonexistent/qemu"));
}
