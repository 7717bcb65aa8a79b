/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's command line and QMP commands, to the letter, and its replies. */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "engine/qemu.h"
#include "engine/qmp.h"
#include "fail.h"

#define HEAD                                                                                \
	"qemu -S -nodefaults -no-user-config -no-reboot -display none -monitor none "       \
	"-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny " \
	"-M microvm,acpi=on,pit="
#define CLOCKS	",pic=off,rtc=on,isa-serial="
#define MACHINE ",x-option-roms=off,mem-merge=off,dump-guest-core=off,memory-backend=mem0 "
#define TCG	"-accel tcg,tb-size=64 -cpu qemu64,+rdrand,+arat "
#define KVM	"-accel kvm -cpu host,vmx=off,svm=off "
#define DEVICES_(limit, discard, more)                                            \
	"-global virtio-mmio.force-legacy=false -chardev socket,id=channel,fd=3 " \
	"-device virtio-serial-device,max_ports=2 "                               \
	"-device virtserialport,id=hutch,chardev=channel,name=hutch,nr=1 "        \
	"-add-fd fd=5,set=5 -blockdev driver=raw,node-name=disk5,read-only=on,"   \
	"file.driver=file,file.filename=/dev/fdset/5,file.locking=off "           \
	"-device virtio-blk-device,drive=disk5 " limit                            \
	"-add-fd fd=6,set=6 -blockdev driver=raw,node-name=disk6,read-only=off,"  \
	"file.driver=file,file.filename=/dev/fdset/6,file.locking=off" discard more "6 "
#define DEVICES DEVICES_("", ",discard=unmap,file.discard=unmap", DRIVE "disk")
#define DRIVE	" -device virtio-blk-device,drive="
#define LIMITED                                                                             \
	DEVICES_("-object throttle-group,id=limit,x-bps-total=1048576,x-iops-total=0 ", "", \
		 " -blockdev driver=throttle,node-name=limited6,throttle-group=limit,"      \
		 "file=disk6" DRIVE "limited")
#define RESERVED DEVICES_("", "", DRIVE "disk")
#define QMP	 "-chardev socket,id=qmp,fd=4 -mon chardev=qmp,mode=control "
#define KERNEL                                                                           \
	"-kernel /kernel -initrd /initrd -append reboot=t panic=-1 cryptomgr.notests=1 " \
	"transparent_hugepage=madvise"
#define QUIET " quiet loglevel=0 8250.nr_uarts=0"

static const struct {
	struct qemu_machine m;
	const char *argv;
} machines[] = {
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .memory = 256 << 20,
	    .vcpus = 1,
	    .tsc_khz = 2000000 },
	  HEAD "on" CLOCKS "off" MACHINE TCG "-smp 1 -m 256M -object "
	       "memory-backend-file,id=mem0,size=256M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " DEVICES "-serial none " QMP KERNEL QUIET
	       " no_timer_check tsc=reliable tsc_early_khz=2000000 " },
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .kvm = true,
	    .memory = UINT64_C(8) << 30,
	    .vcpus = 4 },
	  HEAD "off" CLOCKS "off" MACHINE KVM "-smp 4 -m 8192M "
	       "-object "
	       "memory-backend-file,id=mem0,size=8192M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " DEVICES "-serial none " QMP KERNEL QUIET " " },
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .kvm = true,
	    .memory = 64 << 20,
	    .vcpus = 1,
	    .reserved = true,
	    .disk_bandwidth = 1 << 20 },
	  HEAD "off" CLOCKS "off" MACHINE KVM "-smp 1 -m 64M "
	       "-object "
	       "memory-backend-file,id=mem0,size=64M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " LIMITED "-serial none " QMP KERNEL QUIET " " },
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .kvm = true,
	    .memory = 64 << 20,
	    .vcpus = 1,
	    .reserved = true },
	  HEAD "off" CLOCKS "off" MACHINE KVM "-smp 1 -m 64M "
	       "-object "
	       "memory-backend-file,id=mem0,size=64M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " RESERVED "-serial none " QMP KERNEL QUIET " " },
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .kvm = true,
	    .memory = 64 << 20,
	    .vcpus = 1,
	    .reserved = true,
	    .nested = true },
	  HEAD "off" CLOCKS "off" MACHINE KVM "-smp 1 -m 64M "
	       "-object "
	       "memory-backend-file,id=mem0,size=64M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " RESERVED "-serial none " QMP KERNEL QUIET " hutch.nested " },
	{ { .start = VM_BOOT,
	    .placeholder = QEMU_MEMORY,
	    .memory = 64 << 20,
	    .vcpus = 1,
	    .console = true },
	  HEAD "on" CLOCKS "on" MACHINE TCG "-smp 1 -m 64M "
	       "-object "
	       "memory-backend-file,id=mem0,size=64M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " DEVICES
	       "-chardev ringbuf,id=console,size=65536 -serial chardev:console " QMP KERNEL
	       " console=ttyS0 no_timer_check tsc=reliable " },
	{ { .start = VM_RESTORE,
	    .placeholder = QEMU_MEMORY,
	    .kvm = true,
	    .memory = 256 << 20,
	    .vcpus = 2 },
	  HEAD "off" CLOCKS "off" MACHINE KVM "-smp 2 -m 256M "
	       "-object "
	       "memory-backend-file,id=mem0,size=256M,merge=off,dump=off,share=on,mem-path=/"
	       "memory " DEVICES "-serial none " QMP "-incoming defer " },
};

TEST(arguments)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
		_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX),
					 line = BUF_INIT(QEMU_TEXT_MAX);
		const char *argv[QEMU_ARGS_MAX];

		assert_int_equal(qemu_arguments(&machines[i].m, "qemu", &text, argv), 0);
		for (size_t n = 0; argv[n]; n++)
			assert_int_equal(buf_printf(&line, "%s ", argv[n]), 0);
		assert_string_equal(buf_text(&line), machines[i].argv);
	}
}

static int make_arguments(void)
{
	_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX);
	const char *argv[QEMU_ARGS_MAX];

	return qemu_arguments(&machines[0].m, "qemu", &text, argv);
}

TEST(without_memory)
{
	_cleanup_buf_ struct buf small = BUF_INIT(100);
	const char *argv[QEMU_ARGS_MAX];

	(void)state;
	FAIL_SWEEP(make_arguments());
	assert_int_equal(qemu_arguments(&machines[0].m, "qemu", &small, argv), -ENOBUFS);
}

#define EVENT(name)                                                                               \
	"{\"timestamp\": {\"seconds\": 1794786790, \"microseconds\": 484960}, \"event\": \"" name \
	"\""

static const struct {
	const char *line;
	enum qmp_line is;
} lines[] = {
	{ "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, "
	  "\"package\": \"Debian\"}, \"capabilities\": [\"oob\"]}}\r",
	  QMP_GREETING },
	{ "{\"return\": {}}\r", QMP_RETURN },
	{ "{\"return\": \"text\", \"id\": 1}", QMP_RETURN },
	{ "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"The command\"}}\r", QMP_ERROR },
	{ EVENT("RESUME") "}\r", QMP_RESUME },
	{ EVENT("STOP") "}\r", QMP_STOP },
	{ EVENT("STOPPED") "}\r", QMP_OTHER },
	{ EVENT("SHUTDOWN") ", \"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}\r",
	  QMP_SHUTDOWN },
	{ EVENT("MIGRATION") ", \"data\": {\"status\": \"completed\"}}\r", QMP_MIGRATED },
	{ EVENT("MIGRATION") ", \"data\": {\"status\": \"failed\"}}\r", QMP_MIGRATION_FAILED },
	{ EVENT("MIGRATION") ", \"data\": {\"status\": \"cancelled\"}}\r", QMP_MIGRATION_FAILED },
	{ EVENT("MIGRATION") ", \"data\": {\"status\": \"active\"}}\r", QMP_OTHER },
	{ EVENT("MIGRATION_PASS") ", \"data\": {\"pass\": 1}}\r", QMP_OTHER },
	{ EVENT("VSERPORT_CHANGE") ", \"data\": {\"open\": true, \"id\": \"hutch\"}}\r",
	  QMP_PORT_OPEN },
	{ EVENT("VSERPORT_CHANGE") ", \"data\": {\"open\": false, \"id\": \"hutch\"}}\r",
	  QMP_OTHER },
	{ EVENT("BLOCK_IO_ERROR") ", \"data\": {\"device\": \"\", \"nospace\": true, "
				  "\"action\": \"stop\"}}\r",
	  QMP_NO_SPACE },
	{ EVENT("BLOCK_IO_ERROR") ", \"data\": {\"device\": \"\", \"nospace\": false, "
				  "\"action\": \"report\"}}\r",
	  QMP_OTHER },
	{ EVENT("NIC_RX_FILTER_CHANGED") "}", QMP_OTHER },
	{ EVENT("RESUME"), QMP_WRONG },
	{ "{\"timestamp\": {\"seconds\": x, \"microseconds\": 1}, \"event\": \"STOP\"}",
	  QMP_WRONG },
	{ "{\"event\": \"RESUME\"}", QMP_WRONG },
	{ "{\"returns\": {}}", QMP_WRONG },
	{ " {\"return\": {}}", QMP_WRONG },
	{ "{}", QMP_WRONG },
	{ "\r", QMP_WRONG },
	{ "", QMP_WRONG },
};

TEST(words)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_int_equal(qmp_read_line(lines[i].line, strlen(lines[i].line)), lines[i].is);
}

/* A truncated reply is an error, and is not read past its end. */
TEST(cut_words)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		for (size_t n = 0; n < strlen(lines[i].line); n++) {
			_cleanup_free_ char *copy = unit_copy(lines[i].line, n);

			if (n == 0 || copy[n - 1] != '}')
				assert_int_equal(qmp_read_line(copy, n), QMP_WRONG);
			else
				(void)qmp_read_line(copy, n);
		}
}
