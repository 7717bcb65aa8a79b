/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel restrictions on user code: Landlock on the paths of the policy, no capabilities, no new
 * privileges; and the privileges that the guest drops itself.
 */
#pragma once

#include "base/err.h"
#include "wire/message.h"

/*
 * At the start of the program: not dumpable, no new privileges, an empty bounding set. Missing
 * privileges are not an error: then the children lack them too.
 */
void confine_self(void);

/* At HELLO: builds the ruleset, sets the host name, drops capabilities not needed to serve. */
int confine_start(const struct fields *hello, struct err *e);

/*
 * In a VM: capabilities that confine_start() keeps, raised only between confine_raise(true) and
 * confine_raise(false). Children never have them.
 */
void confine_keep(uint64_t capabilities);
void confine_raise(bool raise);

/* The Landlock version in force; 0: the kernel has none. */
unsigned int confine_abi(void);

/* File descriptors 0 and 1 that confine_child() needs, or -EBADF. */
int confine_fd(unsigned int i);

/*
 * In a child that has become its user: drops capabilities, applies Landlock and a VM's syscall
 * filter. With `read_all` the child keeps CAP_DAC_READ_SEARCH, to pack the root directory for an
 * image. 0 or -errno.
 */
int confine_child(bool read_all);
