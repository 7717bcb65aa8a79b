/* SPDX-License-Identifier: Apache-2.0 */
/* AppArmor: tests whether a profile can be applied to a program that we execute. */
#pragma once

/* Profile of every process in a container, if it is loaded: dist/apparmor. */
#define APPARMOR_PROFILE "hutch-sandbox"
#define APPARMOR_LOAD	 "apparmor_parser -r /etc/apparmor.d/" APPARMOR_PROFILE

/*
 * Returns 0 if `profile` is loaded and this process may change to it, -ENOENT if it is not loaded,
 * -EOPNOTSUPP without AppArmor, -EACCES if this process's own profile forbids the change. Needs no
 * privilege and changes nothing.
 */
int apparmor_try(const char *profile);
