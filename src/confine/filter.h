/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Syscall filters for seccomp(2), for our own processes: FILTER_HEAD, then the allowed calls, the
 * most frequent first, then RETURN(OTHERWISE).
 */
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/util.h"

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "no list of system calls for this architecture"
#endif

/* A sanitizer's runtime makes other calls, so its builds only log violations. */
#define OTHERWISE (SANITIZED ? SECCOMP_RET_LOG : SECCOMP_RET_KILL_PROCESS)

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* The lower half on little-endian hosts; it contains all flags checked. */
#define LOAD_ARG(n)	    LOAD(args[n])
#define RETURN(what)	    BPF_STMT(BPF_RET | BPF_K, what)
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define ALLOW(name)	    UNLESS(__NR_##name, 1), RETURN(SECCOMP_RET_ALLOW)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "LOAD_ARG() takes the lower half");

/* clang-format off */
/* x32 calls begin at 0x40000000; no other table has numbers that large. */
#define FILTER_HEAD							\
	LOAD(arch),							\
	UNLESS(FILTER_ARCH, 2),						\
	LOAD(nr),							\
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),		\
	RETURN(SECCOMP_RET_KILL_PROCESS)

/* Memory for malloc(3): anonymous and not executable. */
#define ALLOW_MEMORY									\
	ALLOW(brk), ALLOW(munmap), ALLOW(mremap), ALLOW(madvise),			\
	UNLESS(__NR_mmap, 6),								\
	LOAD_ARG(2), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 3, 0),		\
	LOAD_ARG(3), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1),		\
	RETURN(SECCOMP_RET_ALLOW),							\
	RETURN(OTHERWISE)
/* clang-format on */

/* Applies the filter to this process permanently. Needs no_new_privs or CAP_SYS_ADMIN. 0 or -errno.
 */
int filter_apply(const struct sock_filter *filter, size_t n);
