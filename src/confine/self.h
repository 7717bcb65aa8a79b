/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of this process that confine it. All functions return 0 or -errno. */
#pragma once

/* Sets no_new_privs: execve(2) grants no privileges. self_check_privileges(): -EPERM if it is not
 * set. */
int self_no_new_privileges(void);
int self_check_privileges(void);

/* Only root may trace this process or read its memory. A change of ids resets this. */
int self_not_dumpable(void);

/*
 * The kernel kills this process when its parent ends. A change of ids resets this. The parent may
 * have ended already: the caller must check that afterwards.
 */
int self_die_with_parent(void);

/* Redirects descriptors 0 to `n` - 1, at most 2, to /dev/null. */
int self_null_stdio(int n);
