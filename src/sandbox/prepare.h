/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "state/spec.h"
#include "vm/hypervisor.h"
#include "vm/machine.h"

/* Strings that a spec then points to. */
struct prepared {
	struct machine_kernel kernel;
	char root[4096], blank[4096], snapshot[4096], snapshots[4096];
	char hypervisor[HYPERVISOR_MAX];
};

/* Fills in `machine` of a VM's spec, without the template, or `blank` of a container's. `guest` is
 * the path of hutch-guest. */
int prepare_parts(const char *guest, struct prepared *p, struct spec *s, struct err *e);

/* The same with the template, which is built if missing. */
int prepare_machine(const char *guest, struct prepared *p, struct spec *s, struct err *e);
