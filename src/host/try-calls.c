/* SPDX-License-Identifier: Apache-2.0 */
/* Tries system calls: seccomp, Landlock, BPF, KVM, and the newer process and file calls. */
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/kvm.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/apparmor.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/self.h"
#include "host/probe.h"

static int child_no_new_privs(long unused)
{
	(void)unused;
	return self_no_new_privileges();
}

static int child_seccomp(long unused)
{
	static const struct sock_filter allow = RETURN(SECCOMP_RET_ALLOW);
	int r = self_no_new_privileges();

	(void)unused;
	return r < 0 ? r : filter_apply(&allow, 1);
}

static int seccomp_action(uint32_t action)
{
	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0 ? -errno : 0;
}

/* Loads "return `value`", the smallest program there is, and lets go of it. */
static int load_bpf(enum bpf_prog_type type, enum bpf_attach_type attach, int32_t value)
{
	_cleanup_close_ int fd = -EBADF;
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = value },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = type;
	attr.expected_attach_type = attach;
	attr.insns = (uintptr_t)code;
	attr.insn_cnt = ARRAY_SIZE(code);
	attr.license = (uintptr_t) "Apache-2.0";
	fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	return fd < 0 ? -errno : 0;
}

static int child_bpf_filter(long unused)
{
	(void)unused;
	return load_bpf(BPF_PROG_TYPE_SOCKET_FILTER, 0, 0);
}

static int child_bpf_sk_lookup(long unused)
{
	(void)unused;
	return load_bpf(BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP, SK_PASS);
}

static int child_bpf_cgroup(long unused)
{
	(void)unused;
	return load_bpf(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT, 1);
}

static int kvm_api(void)
{
	_cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int version;

	if (fd < 0)
		return -errno;
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	return version < 0 ? -errno : version;
}

static int call_pidfd_open(void)
{
	_cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	return fd < 0 ? -errno : 0;
}

static int call_clone3(void)
{
	/* A kernel with the call (5.3) rejects a structure of size 0 with EINVAL. */
	if (syscall(SYS_clone3, NULL, 0) < 0 && errno == EINVAL)
		return 0;
	return -errno;
}

static int call_openat2(void)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	return fd < 0 ? -errno : 0;
}

static int call_close_range(void)
{
	/* No descriptor has this number. */
	return syscall(SYS_close_range, UINT_MAX, UINT_MAX, 0) < 0 ? -errno : 0;
}

void try_calls(struct host_facts *f)
{
	f->no_new_privs = try_in_child(child_no_new_privs, 0);
	f->seccomp = try_in_child(child_seccomp, 0);
	f->seccomp_kill = seccomp_action(SECCOMP_RET_KILL_PROCESS);
	f->seccomp_notify = seccomp_action(SECCOMP_RET_USER_NOTIF);
	f->landlock = landlock_abi();
	f->apparmor = apparmor_try(APPARMOR_PROFILE);
	f->call[HOST_CALL_PIDFD_OPEN] = call_pidfd_open();
	f->call[HOST_CALL_CLONE3] = call_clone3();
	f->call[HOST_CALL_OPENAT2] = call_openat2();
	f->call[HOST_CALL_CLOSE_RANGE] = call_close_range();
	f->bpf_filter = try_in_child(child_bpf_filter, 0);
	f->bpf_sk_lookup = try_in_child(child_bpf_sk_lookup, 0);
	f->bpf_cgroup = try_in_child(child_bpf_cgroup, 0);
	f->kvm = kvm_api();
}
