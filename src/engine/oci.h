/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OCI bundle of a sandbox: what crun is told. Nothing in it comes from a user
 * as JSON; a policy has no key for a mount, a device, a capability or a namespace. Control groups
 * are not the runtime's: it is started inside of them.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Where the guest agent is found inside; on the sandbox's own /dev, so that the image is not
 * touched. */
#define OCI_GUEST_PATH "/dev/hutch-guest"

struct oci_spec {
	const char *rootfs; /* absolute: the merged tree */
	const char *guest;  /* absolute: hutch-guest on the host; a static program */
	const char *hostname;
	uint32_t host_uid, host_gid; /* what id 0 inside is outside; OCI_IDS of each */
	const char *user_namespace;  /* path of one with these ids to join; NULL: a new one */
	const char *apparmor;	     /* profile; NULL: none */
	uint64_t shm;		     /* bytes of /dev/shm */
	uint64_t nofile; /* descriptors of a process; at most our own hard limit, for few may raise
			    that. 0: PID 1 inherits all its limits */
	uint64_t core;	 /* our own hard limit of core files, for the same reason */
};

enum {
	OCI_IDS_RANGE = 65536,	     /* ids that a sandbox takes on the host */
	OCI_IDS = OCI_IDS_RANGE - 1, /* those that exist inside: 0 to 65534 */
	/* The last one is the keeper's. It is not mapped, so no process inside can become it, and
	 * signal the keeper or be counted with it. */
	OCI_KEEPER_OFFSET = OCI_IDS_RANGE - 1,
	OCI_CORE = 1, /* the most that a core file may have: none is written, and no handler run */
};

/* The text of config.json; NULL without memory. The caller frees it. */
char *oci_config(const struct oci_spec *spec);

/* The bits of the capabilities that PID 1 keeps, within its own user namespace. */
uint64_t oci_guest_capabilities(void);
