/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What user code may not do, by the kernel's hand: Landlock on the paths of the policy, no
 * capabilities, no new privileges; and what the guest gives up itself.
 */
#pragma once

#include "base/err.h"
#include "wire/message.h"

/*
 * At the start of the program: not dumpable, no new privileges, an empty bounding set. What this
 * process lacks the rights for is not an error: then its children lack them too.
 */
void confine_self(void);

/* At HELLO: the ruleset, the host name; then every capability goes that is not needed to serve. */
int confine_start(const struct fields *hello, struct err *e);

/*
 * In a virtual machine: capabilities that confine_start() leaves, for nothing but what is between
 * confine_raise(true) and confine_raise(false). No child has them.
 */
void confine_keep(uint64_t capabilities);
void confine_raise(bool raise);

/* The version of Landlock that is in force; 0: this kernel has none. */
unsigned int confine_abi(void);

/* Descriptors that confine_child() needs, 0 and 1; -EBADF where there is none. */
int confine_fd(unsigned int i);

/*
 * In a child, as whoever it has become: no capabilities, Landlock, the filter of a machine. Only
 * one that packs the root for an image keeps one, `read_all`, to read what modes keep from it. 0 or
 * -errno.
 */
int confine_child(bool read_all);
