/* SPDX-License-Identifier: Apache-2.0 */
/* How Hutch starts QEMU: a VM with virtio devices only. All code specific to QEMU is in qemu.c
 * (arguments), qemu-jail.h (confinement) and qmp.h (monitor protocol); another VM monitor would
 * have its own files beside them.
 *
 * QEMU uses only descriptors inherited at these numbers, and files in its jail that are removed
 * before the guest runs. */
#pragma once

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/monitor.h"
#include "ram/ram.h"

struct engine;
struct spec;

#define QEMU_PROGRAM "qemu-system-x86_64"

extern const struct engine engine_qemu; /* the row of the engine table */

enum {
	QEMU_FD_CHANNEL = 3, /* guest channel: virtio-serial port "hutch" */
	QEMU_FD_QMP,
	QEMU_FD_ROOT,	/* EROFS, read only: /dev/vda */
	QEMU_FD_DISK,	/* /dev/vdb */
	QEMU_FD_MEMORY, /* memory of a snapshot, until it is mapped (ram.h); or none */
	QEMU_FD_STATE,	/* the rest of its state; or none */
	QEMU_FD_REPORT, /* a pipe for the address of the memory, until it is mapped */
	QEMU_FDS,
};

static_assert((int)QEMU_FD_MEMORY == (int)RAM_FD_MEMORY &&
		      (int)QEMU_FD_REPORT == (int)RAM_FD_REPORT,
	      "the library uses the same numbers");

/* Present in the jail only while QEMU starts. */
#define QEMU_IN_JAIL "/" QEMU_PROGRAM
#define QEMU_KERNEL  "/kernel"
#define QEMU_INITRD  "/initrd"
#define QEMU_RAM     "/" RAM_LIBRARY
#define QEMU_MEMORY  "/memory" /* the placeholder of ram.h */

/* The limits of the writable disk: bytes and operations per second, 0 for none. */
#define QEMU_THROTTLE "throttle-group,id=limit,x-bps-total=%" PRIu64 ",x-iops-total=%" PRIu64

struct qemu_machine {
	enum vm_start start;
	bool kvm;
	uint64_t memory; /* bytes, whole MiB */
	/* The path of the placeholder that hutch-ram.so replaces. NULL: plain memory, which cannot
	 * be saved. */
	const char *placeholder;
	unsigned int vcpus;
	/* QEMU keeps the last QEMU_CONSOLE bytes of the guest kernel's messages; QMP's ringbuf-read
	 * of "console" returns them. They need no reader, and a flood uses no more memory. */
	bool console;
	uint64_t disk_bandwidth, disk_ops; /* writable disk, per second; 0: no limit */
	bool nested;			   /* root in the guest is not confined: isolation.nested */
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

/* qemu-ram.c: finds hutch-ram.so, which maps the VM's memory. */
int qemu_ram_library(char ret[static PATH_MAX], struct err *e);

enum {
	QEMU_ENVIRONMENT_MAX = 4,
};

/* QEMU's environment: loads the library from `library` and tells it what to map. The strings are in
 * `text`. */
int qemu_ram_environment(const struct qemu_machine *m, const char *library, struct buf *text,
			 const char *env[static QEMU_ENVIRONMENT_MAX]);

/* Reads from the pipe what the library has mapped. */
int qemu_ram_report(int pipe, struct ram_report *ret, struct err *e);

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
