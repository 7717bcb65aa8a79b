/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/vm.h"

#include <fcntl.h>
#include <sys/io.h>

#include "base/fd.h"
#include "base/str.h"

#define CLOCK_EVENTS "/sys/devices/system/clockevents/clockevent0/current_device"

enum {
	PIT_COUNTER = 0x40, /* of channel 0 */
	PIT_CONTROL = 0x43,
	PIT_ONCE = 0x30, /* channel 0, both bytes of the counter, mode 0: one interrupt */
};

/* Whether the kernel counts on another timer for interrupts. */
static bool is_unused(void)
{
	char device[32];

	return fd_read_line(AT_FDCWD, CLOCK_EVENTS, device, sizeof(device)) >= 0 &&
	       !str_eq(device, "pit");
}

void vm_pit_stop(void)
{
	if (!is_unused() || ioperm(PIT_COUNTER, PIT_CONTROL - PIT_COUNTER + 1, 1) < 0)
		return;
	outb(PIT_ONCE, PIT_CONTROL);
	outb(0, PIT_COUNTER);
	outb(0, PIT_COUNTER);
	(void)ioperm(PIT_COUNTER, PIT_CONTROL - PIT_COUNTER + 1, 0);
}
