/* SPDX-License-Identifier: Apache-2.0 */
/* AppArmor: whether a profile can be put on what we execute. */
#pragma once

/* What every process of a container runs under, where it is loaded: dist/apparmor. */
#define APPARMOR_PROFILE "hutch-sandbox"
#define APPARMOR_LOAD	 "apparmor_parser -r /etc/apparmor.d/" APPARMOR_PROFILE

/*
 * 0: `profile` is loaded, and this process may change to it. -ENOENT: it is not loaded.
 * -EOPNOTSUPP: there is no AppArmor. -EACCES: a profile that we run under ourselves does not allow
 * it. Needs no privilege and changes nothing.
 */
int apparmor_try(const char *profile);
