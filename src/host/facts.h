/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of trying things on this host: 0 if it worked, -errno if not, -ENODATA if not tried.
 * Facts are plain data, so that a test can invent them and a receipt can use them.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cgroup-layout.h"

/* Namespaces other than the user namespace. */
enum host_ns {
	HOST_NS_MNT,
	HOST_NS_PID,
	HOST_NS_NET,
	HOST_NS_IPC,
	HOST_NS_UTS,
	HOST_NS_CGROUP,
	HOST_NS_TIME,
	HOST_NS_MAX
};

/* System calls that Hutch builds on. */
enum host_call {
	HOST_CALL_PIDFD_OPEN,
	HOST_CALL_CLONE3,
	HOST_CALL_OPENAT2,
	HOST_CALL_CLOSE_RANGE,
	HOST_CALL_MAX
};

enum host_program_id {
	HOST_NEWUIDMAP,
	HOST_NEWGIDMAP,
	HOST_NFT,
	HOST_MMDEBSTRAP,
	HOST_MKFS_EROFS,
	HOST_MKFS_EXT4,
	HOST_LZ4,
	HOST_TAR,
	HOST_GZIP,
	HOST_ZSTD,
	HOST_PROGRAM_MAX
};

enum {
	HOST_PATH_MAX = 256,
	HOST_ENGINES_MAX = 8, /* rows of the engine table that are checked */
};

struct host_program {
	int found;		    /* 0, or -ENOENT */
	char path[PATH_MAX];	    /* where */
	int ran;		    /* `--version`, for engines */
	char banner[HOST_PATH_MAX]; /* first line of its output: any bytes */
	uint64_t patched; /* rows of its CVE table that the distribution's changelog names */
	bool privileged;  /* set-user-id root or with file capabilities */
};

struct host_facts {
	int userns;	  /* a user namespace with its ids mapped, as the caller */
	int userns_plain; /* the same as uid 65534, when the caller is root */
	int ns[HOST_NS_MAX];
	int overlay_user; /* overlay with userxattr on tmpfs in its own user namespace, unprivileged
			   */
	int overlay_root; /* plain overlay on tmpfs, when the caller is root */
	int idmap;	  /* mount_setattr(2) exists */
	int seccomp;	  /* a filter was installed */
	int seccomp_kill; /* SECCOMP_RET_KILL_PROCESS */
	int seccomp_notify; /* SECCOMP_RET_USER_NOTIF */
	int no_new_privs;
	int landlock; /* ABI number, 1 and up */
	int apparmor; /* the AppArmor profile of sandboxes: see apparmor_try() */
	int call[HOST_CALL_MAX];
	int bpf_filter;	   /* a socket filter was loaded */
	int bpf_sk_lookup; /* an sk_lookup program was loaded */
	int bpf_cgroup;	   /* a program for a group's connections was loaded */
	int kvm;	   /* API version, 12 on every Linux since 2.6.22 */
	int cg[CG_MAX];	   /* a child group was created and removed in each hierarchy */
	struct host_program program[HOST_PROGRAM_MAX];
	struct host_program engine[HOST_ENGINES_MAX]; /* as engines[] */
};

/* Tries everything as the calling process. Takes about 100 ms; never hangs. */
void host_facts_try(struct host_facts *ret);

/* Sets everything to "not tried" and all programs to missing: the start for a test. */
void host_facts_clear(struct host_facts *ret);

const char *host_program_name(enum host_program_id i);
