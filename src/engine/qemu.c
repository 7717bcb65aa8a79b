/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/qemu.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/nested.h"

/* Offsets of the arguments in `text`, which may move while it grows. */
struct args {
	struct buf *text;
	size_t at[QEMU_ARGS_MAX];
	size_t n;
};

static void put(struct args *a, const char *text)
{
	assert(a->n < QEMU_ARGS_MAX - 1);
	a->at[a->n++] = a->text->len;
	(void)buf_put(a->text, text, strlen(text) + 1);
}

static void put_pair(struct args *a, const char *option, const char *value)
{
	put(a, option);
	put(a, value);
}

static void put_all(struct args *a, const char *const *list)
{
	for (; *list; list++)
		put(a, *list);
}

/* ---- snapshots depend on this: the same for every kind of start ---- */

/* acpi=on: Debian's kernel finds virtio-mmio in no other way. rtc: without a clock the kernel waits
 * two seconds for one. No memory is merged with another sandbox's (KSM reveals equal pages) or
 * included in a core dump.
 *
 * pit: an emulated CPU has no TSC deadline timer, so the kernel measures the APIC timer's rate. If
 * QEMU is not scheduled at that moment, the rate is wrong for the whole life of the VM and of its
 * clones: sleeps take twice as long, or the kernel has no timer. With a PIT the kernel notices and
 * uses that. */
static void put_machine(struct args *a, const struct qemu_machine *m)
{
	char text[192];

	(void)snprintf(text, sizeof(text),
		       "microvm,acpi=on,pit=%s,pic=off,rtc=on,isa-serial=%s,x-option-roms=off,"
		       "mem-merge=off,dump-guest-core=off,memory-backend=mem0",
		       m->kvm ? "off" : "on", m->console ? "on" : "off");
	put_pair(a, "-M", text);
	if (m->kvm) {
		put_pair(a, "-accel", "kvm");
		/* No virtualization inside: it would add KVM's emulation of it to the boundary. */
		put_pair(a, "-cpu", "host,vmx=off,svm=off");
	} else {
		(void)snprintf(text, sizeof(text), "tcg,tb-size=%d", QEMU_TB_MIB);
		put_pair(a, "-accel", text);
		/* rdrand: else the guest waits for entropy. arat: else it never sleeps for long. */
		put_pair(a, "-cpu", "qemu64,+rdrand,+arat");
	}
	(void)snprintf(text, sizeof(text), "%u", m->vcpus);
	put_pair(a, "-smp", text);
	(void)snprintf(text, sizeof(text), "%" PRIu64 "M", m->memory >> 20);
	put_pair(a, "-m", text);
}

/* QEMU leaves a shared file out of the state (from 8.1 on, only a file with a name), and
 * hutch-ram.so maps it privately (ram.h). */
static void put_memory(struct args *a, const struct qemu_machine *m)
{
	char text[192];

	(void)snprintf(text, sizeof(text),
		       "memory-backend-%s,id=mem0,size=%" PRIu64 "M,merge=off,dump=off%s%s",
		       m->placeholder ? "file" : "ram", m->memory >> 20,
		       m->placeholder ? ",share=on,mem-path=" : "",
		       m->placeholder ? m->placeholder : "");
	put_pair(a, "-object", text);
}

/* QEMU's own throttling: it also holds where no control group limits I/O. 0 means no limit here,
 * too. */
static void put_limit(struct args *a, const struct qemu_machine *m)
{
	char text[128];

	(void)snprintf(text, sizeof(text), QEMU_THROTTLE, m->disk_bandwidth, m->disk_ops);
	put_pair(a, "-object", text);
}

/* `unmap`: discarded blocks become holes. `limited`: by put_limit(). */
static void put_disk(struct args *a, int fd, bool read_only, bool unmap, bool limited)
{
	char text[192];

	(void)snprintf(text, sizeof(text), "fd=%d,set=%d", fd, fd);
	put_pair(a, "-add-fd", text);
	(void)snprintf(text, sizeof(text),
		       "driver=raw,node-name=disk%d,read-only=%s,file.driver=file,"
		       "file.filename=/dev/fdset/%d,file.locking=off%s",
		       fd, read_only ? "on" : "off", fd,
		       unmap ? ",discard=unmap,file.discard=unmap" : "");
	put_pair(a, "-blockdev", text);
	if (limited) {
		(void)snprintf(
			text, sizeof(text),
			"driver=throttle,node-name=limited%d,throttle-group=limit,file=disk%d", fd,
			fd);
		put_pair(a, "-blockdev", text);
	}
	(void)snprintf(text, sizeof(text), "virtio-blk-device,drive=%s%d",
		       limited ? "limited" : "disk", fd);
	put_pair(a, "-device", text);
}

/* The guest numbers devices in this order: the first disk is /dev/vda. */
static void put_devices(struct args *a, const struct qemu_machine *m)
{
	const bool limited = m->disk_bandwidth > 0 || m->disk_ops > 0;
	char text[96];

	put_pair(a, "-global", "virtio-mmio.force-legacy=false");
	(void)snprintf(text, sizeof(text), "socket,id=channel,fd=%d", QEMU_FD_CHANNEL);
	put_pair(a, "-chardev", text);
	put_pair(a, "-device", "virtio-serial-device,max_ports=2");
	put_pair(a, "-device", "virtserialport,id=hutch,chardev=channel,name=hutch,nr=1");
	put_disk(a, QEMU_FD_ROOT, true, false, false);
	if (limited)
		put_limit(a, m);
	put_disk(a, QEMU_FD_DISK, false, !m->reserved, limited);
	if (!m->console) {
		put_pair(a, "-serial", "none");
		return;
	}
	(void)snprintf(text, sizeof(text), "ringbuf,id=console,size=%d", QEMU_CONSOLE);
	put_pair(a, "-chardev", text);
	put_pair(a, "-serial", "chardev:console");
}

/* ---- the rest ---- */

static void put_monitor(struct args *a)
{
	char text[96];

	(void)snprintf(text, sizeof(text), "socket,id=qmp,fd=%d", QEMU_FD_QMP);
	put_pair(a, "-chardev", text);
	put_pair(a, "-mon", "chardev=qmp,mode=control");
}

/*
 * Huge pages only where a program asks for them. Otherwise the guest's khugepaged moves the memory
 * of idle programs into new huge pages, 16 MiB every 10 s: each fork would get a copy of its own of
 * memory that it shares with others.
 */
#define KERNEL_ALWAYS "reboot=t panic=-1 cryptomgr.notests=1 transparent_hugepage=madvise"

static void put_kernel(struct args *a, const struct qemu_machine *m)
{
	/* The emulated TSC runs at the host's rate, which the guest cannot measure. */
	char text[256], tsc[48] = "";

	if (!m->kvm && m->tsc_khz)
		(void)snprintf(tsc, sizeof(tsc), " tsc_early_khz=%" PRIu64, m->tsc_khz);
	(void)snprintf(text, sizeof(text), KERNEL_ALWAYS "%s%s%s%s",
		       m->console ? " console=ttyS0" : " quiet loglevel=0 8250.nr_uarts=0",
		       m->kvm ? "" : " no_timer_check tsc=reliable", tsc,
		       m->nested ? " " NESTED_WORD : "");
	put_pair(a, "-kernel", QEMU_KERNEL);
	put_pair(a, "-initrd", QEMU_INITRD);
	put_pair(a, "-append", text);
}

int qemu_arguments(const struct qemu_machine *m, const char *program, struct buf *text,
		   const char *argv[static QEMU_ARGS_MAX])
{
	static const char *const always[] = {
		"-S",
		"-nodefaults",
		"-no-user-config",
		"-no-reboot",
		"-display",
		"none",
		"-monitor",
		"none",
		"-sandbox",
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		NULL
	};
	struct args a = { .text = text };

	put(&a, program);
	put_all(&a, always);
	put_machine(&a, m);
	put_memory(&a, m);
	put_devices(&a, m);
	put_monitor(&a);
	if (m->start == VM_BOOT)
		put_kernel(&a, m);
	else
		put_pair(&a, "-incoming", "defer");
	if (text->err)
		return text->err;
	for (size_t i = 0; i < a.n; i++)
		argv[i] = text->data + a.at[i];
	argv[a.n] = NULL;
	return 0;
}
