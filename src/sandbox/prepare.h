/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "state/spec.h"
#include "vm/machine.h"

/* Texts that a spec then points to. */
struct prepared {
	struct machine_kernel kernel;
	char root[4096], blank[4096], snapshot[4096], snapshots[4096];
};

/* Fills in `machine` of a spec that asks for one, but for the template, or `blank` of a container;
 * `guest` is the path of hutch-guest. */
int prepare_parts(const char *guest, struct prepared *p, struct spec *s, struct err *e);

/* The same, with the template, which is made if it is not there. */
int prepare_machine(const char *guest, struct prepared *p, struct spec *s, struct err *e);
