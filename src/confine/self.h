/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of this process that confine it. All functions return 0 or -errno. */
#pragma once

/* Executing a program gives no privileges any more. self_check_privileges(): -EPERM if it could. */
int self_no_new_privileges(void);
int self_check_privileges(void);

/* Only root may trace this process or read its memory. A change of ids resets this. */
int self_not_dumpable(void);

/*
 * The kernel kills this process when its parent ends. A change of ids resets this. The parent may
 * have ended before: the caller checks that afterwards.
 */
int self_die_with_parent(void);

/* Makes descriptors 0 to `n` - 1, at most 2, /dev/null. */
int self_null_stdio(int n);
