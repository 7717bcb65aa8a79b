/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OCI bundle of a sandbox: what crun, runc and runsc are told. Nothing in it comes from a user
 * as JSON; a policy has no key for a mount, a device, a capability or a namespace.
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
	uint32_t host_uid, host_gid; /* what id 0 inside is outside; 65,536 of each */
	const char *cgroup; /* path below every controller's root; NULL: no control group */
	uint64_t memory, pids, cpus; /* bytes, processes, thousandths; only with a control group */
	uint64_t shm;		     /* bytes of /dev/shm */
	uint64_t nofile; /* descriptors of a process; at most our own hard limit, for few may raise
			    that */
};

enum {
	OCI_IDS = 65536
};

/* The text of config.json; NULL without memory. The caller frees it. */
char *oci_config(const struct oci_spec *spec);
