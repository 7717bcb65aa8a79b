/* SPDX-License-Identifier: Apache-2.0 */
/* The places of a root directory where programs look for CA certificates. */
#pragma once

#define CA_OURS		"etc/hutch"
#define CA_CERTS	"etc/ssl/certs"
#define CA_BUNDLE	"ca-certificates.crt"
#define CA_CERTS_BUNDLE "etc/ssl/certs/ca-certificates.crt"
#define CA_LOCAL	"usr/local/share"
#define CA_LOCAL_DIR	"ca-certificates"
#define CA_LOCAL_CAS	"usr/local/share/ca-certificates"
#define CA_ANCHOR	"hutch-sandbox-ca.crt"

/* Bundles; the first that exists is the image's. NULL at the end, as of all lists here. */
extern const char *const ca_bundles[];

/* Directories of local CAs. */
extern const char *const ca_anchors[];

/*
 * Files and directories that ca_store_install() makes if they are missing, children first. It notes
 * the names of those that it has made in etc/hutch/made, one per line.
 */
#define CA_MADE "made"
extern const char *const ca_makes[];

enum {
	CA_MADE_MAX = 4096, /* size of that file */
};
