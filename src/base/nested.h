/* SPDX-License-Identifier: Apache-2.0 */
/* Names that the host and hutch-guest share for VMs with isolation.nested. */
#pragma once

/* The word of the kernel command line: hutch-guest leaves root in the VM unconfined. */
#define NESTED_WORD "hutch.nested"

/* Lists the modules that only such a VM loads, in load order; in its initrd alone. */
#define NESTED_MODULES "lib/modules-nested"
