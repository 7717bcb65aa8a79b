/* SPDX-License-Identifier: Apache-2.0 */
/* Receives the CA certificate of the sandbox. */
#pragma once

#include "base/err.h"
#include "wire/message.h"

/*
 * At HELLO, before confine_start(), which allows reading the files: installs the certificate of
 * TAG_CA, if there is one. At the first HELLO, only the image has filled the root directory, so a
 * failure is an error. At a later one, users may have damaged it: a failure is logged.
 */
int trust_hello(const struct fields *hello, struct err *e);
