/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Java keystores of a root directory. Java reads no bundle: each JDK has a `cacerts`, which on
 * Debian, Fedora and Alpine is a link to a common one.
 */
#pragma once

#include "base/err.h"
#include "ca-store/ca-file.h"

/*
 * Rewrites each keystore (keystore_rewrite()) with the certificate `der`, or without ours if it is
 * NULL. Keystores that cannot be changed stay as they are; if `der` is given, a warning names them.
 */
int java_rewrite(int root, const char *der, size_t n, struct err *e);
