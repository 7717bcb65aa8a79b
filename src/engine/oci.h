/* SPDX-License-Identifier: Apache-2.0 */
/* The OCI bundle of a sandbox, config.json for crun or runc. Nothing in it is JSON from a user; a
 * policy has no key for a mount, device, capability or namespace. The runtime makes no control
 * groups: the warden starts it inside the sandbox's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Path of hutch-guest inside, on the sandbox's own /dev, so that the image stays unchanged. */
#define OCI_GUEST_PATH "/dev/hutch-guest"

struct oci_spec {
	const char *rootfs; /* absolute: the merged tree */
	const char *guest;  /* absolute: hutch-guest on the host; a static program */
	const char *hostname;
	uint32_t host_uid, host_gid; /* host ids of id 0 inside; OCI_IDS of each */
	const char *user_namespace;  /* path of the namespace to join; NULL: a new one */
	const char *apparmor;	     /* profile; NULL: none */
	uint64_t shm;		     /* bytes of /dev/shm */
	uint64_t nofile; /* descriptors per process, at most our own hard limit, which few may
			  * raise. 0: PID 1 inherits all its limits */
	uint64_t core;	 /* our own hard limit of core files, likewise */
};

enum {
	OCI_IDS_RANGE = 65536,	     /* host ids per sandbox */
	OCI_IDS = OCI_IDS_RANGE - 1, /* ids that exist inside: 0 to 65534 */
	/* The last id is the keeper's. It is not mapped, so no process inside can become it, signal
	 * the keeper or share its per-user limits. */
	OCI_KEEPER_OFFSET = OCI_IDS_RANGE - 1,
	OCI_CORE = 1, /* bytes of a core file: nothing is written, no handler runs */
};

/* The text of config.json, which the caller frees; NULL: out of memory. */
char *oci_config(const struct oci_spec *spec);

/* The capabilities that PID 1 keeps in its own user namespace, as bits. */
uint64_t oci_guest_capabilities(void);
