/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.json: whether a sandbox that lives is paused, and its deadline. Written by the warden before
 * the sandbox is ready, and whenever it changes; of one that has ended it says nothing.
 */
#pragma once

#include "spec.h"

struct life {
	bool paused;
	uint64_t deadline; /* wall clock, ms; 0: none, as always while it is paused */
	enum on_timeout on_timeout;
};

int life_write(int dir, const struct life *l, struct err *e); /* atomically */
int life_read(int dir, struct life *ret, struct err *e);      /* -ENOENT: there is none */
