/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc-hidden.h"

#include <stddef.h>

const char *const proc_masked[] = {
	"/proc/acpi",
	"/proc/asound",
	"/proc/buddyinfo",
	"/proc/cmdline",
	"/proc/config.gz",
	"/proc/diskstats",
	"/proc/dynamic_debug",
	"/proc/fs",
	"/proc/interrupts",
	"/proc/iomem",
	"/proc/ioports",
	"/proc/kallsyms",
	"/proc/kcore",
	"/proc/key-users",
	"/proc/keys",
	"/proc/kmsg",
	"/proc/kpagecgroup",
	"/proc/kpagecount",
	"/proc/kpageflags",
	"/proc/latency_stats",
	"/proc/modules",
	"/proc/partitions",
	"/proc/sched_debug",
	"/proc/scsi",
	"/proc/slabinfo",
	"/proc/sysrq-trigger",
	"/proc/timer_list",
	"/proc/timer_stats",
	"/proc/vmallocinfo",
	"/proc/zoneinfo",
	NULL,
};

const char *const proc_readonly[] = { "/proc/bus", "/proc/irq", "/proc/sys", NULL };
