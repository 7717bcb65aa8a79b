/* SPDX-License-Identifier: Apache-2.0 */
/* A VM that has stopped without an order, mostly because the host's disk is full: halt.c. */
#pragma once

#include "base/loop.h"
#include "engine/monitor.h"
#include "state/life.h"

struct client;
struct keeper;

enum halt_state {
	HALT_NONE,
	HALT_STOPPED,
	HALT_TRYING, /* told to continue; it may stop again at once */
};

struct halt {
	enum halt_state state;
	enum life_stop why;
	uint64_t since;
	struct loop_timer tick;
};

/* The monitor reports that the VM has stopped. */
void halt_stopped(struct keeper *k, enum vm_stop why);
void halt_done(struct keeper *k);

bool halted(const struct keeper *k);

/* Refuses an operation: the guest cannot answer. */
void halt_refuse(struct client *c, uint32_t ch);
