/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How QEMU is started: a machine of virtio devices and nothing else. All that is QEMU's own stands
 * in qemu.c (its arguments), qemu-jail.h (what it can reach) and qmp.h (how it is spoken to);
 * another monitor would be other files beside them.
 *
 * Everything it uses is a descriptor that it inherits, at these numbers, or a file of the jail that
 * is taken away before the guest runs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/monitor.h"

struct spec;

#define QEMU_PROGRAM "qemu-system-x86_64"

enum {
	QEMU_FD_CHANNEL = 3, /* the guest's channel: a virtio-serial port called "hutch" */
	QEMU_FD_QMP,
	QEMU_FD_ROOT,	/* EROFS, read only: /dev/vda */
	QEMU_FD_DISK,	/* /dev/vdb */
	QEMU_FD_MEMORY, /* of a template in the making, or a sealed memfd of one; or none */
	QEMU_FD_STATE,	/* what a clone continues from; or none */
	QEMU_FDS,
};

/* What the jail has while QEMU starts, and not after. */
#define QEMU_KERNEL "/kernel"
#define QEMU_INITRD "/initrd"

struct qemu_machine {
	enum vm_start start;
	bool kvm;
	uint64_t memory; /* bytes, whole MiB */
	unsigned int vcpus;
	/* What the guest's kernel says is kept by QEMU, the last QEMU_CONSOLE bytes of it: QMP's
	 * ringbuf-read of "console" has them. Nobody has to read them, and no flood grows. */
	bool console;
	uint64_t tsc_khz; /* of this host, for a kernel that boots with TCG; 0: it finds out */
};

enum {
	QEMU_ARGS_MAX = 64,
	QEMU_TEXT_MAX = 4096,
	QEMU_CONSOLE = 64 * 1024,
	QEMU_TB_MIB = 64, /* what TCG keeps of translated code; without it, a GiB is reserved */
};

/*
 * Arguments of a machine, NULL-terminated, with `program` as the first; the texts belong to `text`
 * and stay as long as nothing is put into it. It waits (-S) until it is told to continue. All that
 * a snapshot depends on is the same for each `start`. -ENOMEM, -ENOBUFS.
 */
int qemu_arguments(const struct qemu_machine *m, const char *program, struct buf *text,
		   const char *argv[static QEMU_ARGS_MAX]);

/* microvm.c: what QEMU is told of the VM of a spec, but for what is measured. */
void qemu_describe(const struct spec *spec, enum vm_start start, struct qemu_machine *ret);

/* verify-machine.c */
struct engine_start;
struct engine_sandbox;
struct receipt;
void verify_machine(const struct engine_start *s, const struct engine_sandbox *b,
		    struct receipt *r);

/* qemu-monitor.c */
extern const struct monitor_ops qemu_monitor;
