/* SPDX-License-Identifier: Apache-2.0 */
/* The CA certificate of the sandbox, in the places where its programs look for CA certificates. */
#pragma once

#include "base/err.h"
#include "wire/message.h"

/*
 * OpenSSL's name for a link to our CA in a directory of certificates: the hash of its subject,
 * "CN=Hutch sandbox CA" (openssl x509 -subject_hash), which is the same in every sandbox.
 */
#define TRUST_LINK "0b35cce6.0"

enum {
	TRUST_BUNDLE_MAX = 4 * 1024 * 1024, /* size of a bundle of the image */
};

/*
 * At HELLO, before confine_start(), which allows reading the files: installs the certificate of
 * TAG_CA, if there is one. At the first HELLO, only the image has filled the root directory, so a
 * failure is an error. At a later one, users may have damaged it: a failure is logged.
 */
int trust_hello(const struct fields *hello, struct err *e);

/*
 * Installs the certificate in the root directory `root`; replaces that of an earlier call. A
 * read-only root is no error, and stays unchanged.
 */
int trust_install(int root, const char *ca, size_t n, struct err *e);

/* Files and directories that a sandbox with a CA may always read; NULL at the end. */
extern const char *const trust_readable[];
