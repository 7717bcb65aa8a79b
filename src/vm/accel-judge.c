/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about KVM, the verdict from them and from a test boot, and the file that stores it. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "vm/accel-inner.h"

enum {
	ACCEL_FILE_MAX = 16 * 1024,
	ACCEL_VERSION = 2,
};

static const char file_name[] = "accel.json";

static int try_device(int root_fd)
{
	_cleanup_close_ int fd = openat(root_fd, "dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return ioctl(fd, KVM_GET_API_VERSION, 0) == KVM_API_VERSION ? 0 : -ENODEV;
}

/*
 * A sandbox's QEMU runs under the sandbox's ids, without its creator's groups. Root gives it its
 * own device node; an ordinary user cannot.
 */
static bool is_closed(int root_fd, uid_t uid)
{
	struct stat st;

	return uid != 0 && fstatat(root_fd, "dev/kvm", &st, 0) == 0 &&
	       (st.st_mode & (S_IROTH | S_IWOTH)) != (S_IROTH | S_IWOTH);
}

void accel_see(int root_fd, uid_t uid, struct accel_seen *ret)
{
	*ret = (struct accel_seen){ .device = try_device(root_fd),
				    .closed = is_closed(root_fd, uid) };
	/* These directories also exist if the module is built in. */
	if (faccessat(root_fd, "sys/module/kvm_intel", F_OK, 0) == 0)
		ret->vendor = "kvm_intel";
	else if (faccessat(root_fd, "sys/module/kvm_amd", F_OK, 0) == 0)
		ret->vendor = "kvm_amd";
}

bool accel_hopeless(const struct accel_seen *s)
{
	return s->device < 0 || s->closed || !s->vendor;
}

static void explain_device(const struct accel_seen *s, char *out, size_t n)
{
	if (s->device == -ENOENT)
		(void)snprintf(out, n, "KVM: /dev/kvm does not exist");
	else if (s->device < 0)
		(void)snprintf(out, n, "KVM: /dev/kvm cannot be used: %s", strerror(-s->device));
	else if (s->closed)
		(void)snprintf(
			out, n,
			"KVM: /dev/kvm is closed to the ids under which an ordinary user's VMs "
			"run: chmod 666 /dev/kvm, or run hutch as root");
	else if (!s->vendor)
		(void)snprintf(out, n,
			       "KVM: /dev/kvm exists, but neither kvm_intel nor kvm_amd is loaded "
			       "(a paravirtual device)");
	else
		(void)snprintf(out, n, "KVM: /dev/kvm exists and %s is loaded", s->vendor);
}

static void explain_boot(const struct accel_seen *s, const struct accel_tried *t, char *out,
			 size_t n)
{
	/* Continues the sentence: "..., but a guest did not boot". */
	const char *joint = accel_hopeless(s) ? "; " : ", but ";

	switch (t->boot) {
	case ACCEL_NOT_TRIED:
		break;
	case ACCEL_BOOTED:
		(void)snprintf(out, n, "%sa guest boots, which is not enough", joint);
		break;
	case ACCEL_LATE:
		(void)snprintf(out, n, "%sa guest did not boot within %llu s", joint,
			       (unsigned long long)(t->deadline_ms / 1000));
		break;
	case ACCEL_STOPPED:
		(void)snprintf(out, n, "%sa guest did not boot: KVM stopped it", joint);
		break;
	case ACCEL_ENDED:
		(void)snprintf(out, n, "%sa guest did not boot: QEMU exited%s%s", joint,
			       t->text[0] ? ": " : "", t->text);
		break;
	}
}

bool accel_verdict_holds(const struct accel_verdict *v, bool insist, uint64_t now_ms)
{
	return v->retry_at == 0 || (!insist && now_ms < v->retry_at);
}

void accel_judge(const struct accel_seen *s, const struct accel_tried *t, uint64_t now_ms,
		 struct accel_verdict *ret)
{
	size_t used;

	*ret = (struct accel_verdict){ .works = !accel_hopeless(s) && t->boot == ACCEL_BOOTED,
				       .retry_at = t->boot == ACCEL_LATE ? now_ms + ACCEL_RETRY_MS
									 : 0 };
	if (ret->works)
		return;
	explain_device(s, ret->why, sizeof(ret->why));
	used = strlen(ret->why);
	explain_boot(s, t, ret->why + used, sizeof(ret->why) - used);
}

static int get(const json_t *j, const char *key, char *out, size_t n, struct err *e)
{
	const char *text = NULL;
	int r = json_get_string(j, key, n - 1, &text, e);

	if (r == 0)
		(void)snprintf(out, n, "%s", text);
	return r;
}

static int parse(const char *text, size_t n, struct accel_key *key, struct accel_verdict *v)
{
	static const char *const keys[] = { "version", "boot",	   "qemu", "kernel",
					    "works",   "retry_at", "why",  NULL };
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;
	uint64_t version = 0;

	if (json_read(text, n, &j, &e) < 0 || json_only_keys(j, keys, &e) < 0 ||
	    json_get_u64(j, "version", ACCEL_VERSION, &version, &e) < 0 ||
	    get(j, "boot", key->boot, sizeof(key->boot), &e) < 0 ||
	    get(j, "qemu", key->qemu, sizeof(key->qemu), &e) < 0 ||
	    get(j, "kernel", key->kernel, sizeof(key->kernel), &e) < 0 ||
	    json_get_bool(j, "works", &v->works, &e) < 0 ||
	    json_get_u64(j, "retry_at", INT64_MAX, &v->retry_at, &e) < 0 ||
	    get(j, "why", v->why, sizeof(v->why), &e) < 0)
		return -ENOENT;
	return version == ACCEL_VERSION ? 0 : -ENOENT;
}

int accel_load(int dir, const struct accel_key *key, struct accel_verdict *ret)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ACCEL_FILE_MAX);
	struct accel_verdict v = { 0 };
	struct accel_key found = { 0 };
	struct err e = ERR_INIT;

	if (fd_read_file(dir, file_name, &b, &e) < 0 ||
	    parse(buf_text(&b), b.len, &found, &v) < 0 || !str_eq(found.boot, key->boot) ||
	    !str_eq(found.qemu, key->qemu) || !str_eq(found.kernel, key->kernel))
		return -ENOENT;
	*ret = v;
	return 0;
}

int accel_store(int dir, const struct accel_key *key, const struct accel_verdict *v, struct err *e)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "version", json_integer(ACCEL_VERSION) }, { "boot", json_string(key->boot) },
		{ "qemu", json_string(key->qemu) }, { "kernel", json_string(key->kernel) },
		{ "works", json_boolean(v->works) }, { "retry_at", json_number(v->retry_at) },
		{ "why", json_string(v->why) });
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;

	if (!text)
		return err_oom(e);
	return fd_replace_file(dir, file_name, 0600, text, strlen(text), e);
}
