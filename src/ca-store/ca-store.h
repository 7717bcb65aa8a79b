/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CA certificate of a sandbox, in the places where its programs look for CA certificates.
 * hutch-guest adds it before user code runs. An image made of the sandbox's files must not trust
 * it, so the worker that unpacks them removes it.
 */
#pragma once

#include "base/err.h"

/* The common name in the subject of every sandbox's CA. */
#define CA_STORE_SUBJECT "Hutch sandbox CA"

/*
 * OpenSSL's name for a link to our CA in a directory of certificates: the hash of its subject
 * (openssl x509 -subject_hash), which is the same in every sandbox.
 */
#define CA_STORE_LINK "0b35cce6.0"

enum {
	CA_STORE_CERT_MAX = 4096,	     /* bytes of the certificate in PEM */
	CA_STORE_FILE_MAX = 4 * 1024 * 1024, /* size of a bundle of the image */
};

/*
 * Installs the certificate in the root directory `root`; replaces that of an earlier call. A
 * read-only root is no error, and stays unchanged.
 */
int ca_store_install(int root, const char *ca, size_t n, struct err *e);

/*
 * Removes the CA of any sandbox: files are byte for byte as before ca_store_install(), apart from
 * changes by others. Changes nothing in a root directory without one.
 */
int ca_store_remove(int root, struct err *e);

/* Files and directories that a sandbox with a CA may always read; NULL at the end. */
extern const char *const ca_store_readable[];
