/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/places.h"

#include <stddef.h>

#include "ca-store/ca-store.h"

const char *const ca_bundles[] = {
	CA_CERTS_BUNDLE,
	"etc/ssl/certs/ca-bundle.crt",
	"etc/pki/tls/certs/ca-bundle.crt",
	"etc/ssl/ca-bundle.pem",
	"etc/ssl/cert.pem",
	NULL,
};

/* Debian and Alpine, Fedora, openSUSE, Arch. */
const char *const ca_anchors[] = {
	CA_LOCAL_CAS,
	"etc/pki/ca-trust/source/anchors",
	"etc/pki/trust/anchors",
	"etc/ca-certificates/trust-source/anchors",
	NULL,
};

const char *const ca_makes[] = {
	CA_CERTS_BUNDLE, CA_CERTS, "etc/ssl", CA_LOCAL_CAS, NULL,
};

/* With the directories that links of the bundles lead to on Fedora, openSUSE and Arch. */
const char *const ca_store_readable[] = {
	CA_OURS,
	CA_CERTS,
	"etc/ssl/cert.pem",
	"etc/ssl/ca-bundle.pem",
	"etc/pki/tls/certs",
	"etc/pki/ca-trust/extracted",
	"etc/ca-certificates/extracted",
	"var/lib/ca-certificates",
	NULL,
};
