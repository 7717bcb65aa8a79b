/* SPDX-License-Identifier: Apache-2.0 */
/* How Hutch starts QEMU: a VM with virtio devices only. All code specific to QEMU is in qemu.c
 * (arguments), qemu-jail.h (confinement) and qmp.h (monitor protocol); another VM monitor would
 * have its own files beside them.
 *
 * QEMU uses only descriptors inherited at these numbers, and files in its jail that are removed
 * before the guest runs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/monitor.h"

struct spec;

#define QEMU_PROGRAM "qemu-system-x86_64"

enum {
	QEMU_FD_CHANNEL = 3, /* guest channel: virtio-serial port "hutch" */
	QEMU_FD_QMP,
	QEMU_FD_ROOT,	/* EROFS, read only: /dev/vda */
	QEMU_FD_DISK,	/* /dev/vdb */
	QEMU_FD_MEMORY, /* a template's memory file, or a sealed memfd; or none */
	QEMU_FD_STATE,	/* saved state to continue from; or none */
	QEMU_FDS,
};

/* Present in the jail only while QEMU starts. */
#define QEMU_KERNEL "/kernel"
#define QEMU_INITRD "/initrd"

struct qemu_machine {
	enum vm_start start;
	bool kvm;
	uint64_t memory; /* bytes, whole MiB */
	unsigned int vcpus;
	/* QEMU keeps the last QEMU_CONSOLE bytes of the guest kernel's messages; QMP's ringbuf-read
	 * of "console" returns them. They need no reader, and a flood uses no more memory. */
	bool console;
	uint64_t disk_bandwidth, disk_ops; /* writable disk, per second; 0: no limit */
	bool reserved;	  /* the disk has all its room: discarded blocks stay allocated */
	uint64_t tsc_khz; /* the host's TSC rate, for booting with TCG; 0: unknown */
};

enum {
	QEMU_ARGS_MAX = 64,
	QEMU_TEXT_MAX = 4096,
	QEMU_CONSOLE = 64 * 1024,
	QEMU_TB_MIB = 64, /* cache of translated code; QEMU's default reserves a GiB */
};

/* Writes QEMU's arguments, NULL-terminated, `program` first. The strings are in `text` and valid
 * until it changes. The VM waits (-S) for a monitor command to run. All arguments that a snapshot
 * depends on are the same for each `start`. -ENOMEM, -ENOBUFS. */
int qemu_arguments(const struct qemu_machine *m, const char *program, struct buf *text,
		   const char *argv[static QEMU_ARGS_MAX]);

/* microvm.c: fills in the VM of a spec, without measured values. */
void qemu_describe(const struct spec *spec, enum vm_start start, struct qemu_machine *ret);

/* `verify-machine.c` */
struct engine_start;
struct engine_sandbox;
struct receipt;
void verify_machine(const struct engine_start *s, const struct engine_sandbox *b,
		    struct receipt *r);

/* qemu-monitor.c */
extern const struct monitor_ops qemu_monitor;
