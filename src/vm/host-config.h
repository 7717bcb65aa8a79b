/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.yaml: the operator's settings for all sandboxes on this host; hutch-host(5). The file comes
 * from the first of the agent directories that has one.
 */
#pragma once

#include "names/rule.h"
#include "policy/diag.h"
#include "state/spec.h"
#include "vm/accel.h"

enum {
	HOST_CONFIG_PATH = 1024,
};

struct host_config {
	unsigned int accel;		  /* enum accel_wish */
	uint64_t accel_timeout;		  /* milliseconds that a guest may take to boot with KVM */
	uint64_t snapshot_space;	  /* bytes on disk for all snapshots of a user */
	uint64_t keep_ended;		  /* milliseconds that an ended sandbox's files are kept */
	uint64_t ended_space;		  /* bytes on disk for all kept sandboxes */
	unsigned int disk_overcommit;	  /* 1: disks of sandboxes reserve no space */
	char engine[SPEC_ENGINE_MAX + 1]; /* preferred engine among those of a level; "": none */
	char egress_proxy[RULE_TEXT_MAX]; /* HOST:PORT for target_parse(); "": none */
	char tap_roots[HOST_CONFIG_PATH]; /* PEM file of CAs for hutch-tap; "": none */
};

#define HOST_CONFIG_INIT                                                                           \
	{                                                                                          \
		.accel = ACCEL_AUTO, .accel_timeout = 15000, .snapshot_space = UINT64_C(64) << 30, \
		.keep_ended = UINT64_C(7) * 24 * 3600 * 1000, .ended_space = UINT64_C(1) << 30     \
	}

/* Reads one file. Reports all errors to `d`; valid settings replace the defaults in *ret. */
void host_config_read(const struct source *src, struct host_config *ret, struct diags *d);

/* Loads this host's settings: all defaults without a file. -EINVAL with the first error. */
int host_config_load(struct host_config *ret, struct err *e);

/* The preferred engine: $HUTCH_ENGINE, else that of host.yaml; "": none. */
const char *host_config_engine(const struct host_config *c);

/* snapshot_room() with this host's limit. */
int host_snapshot_room(uint64_t need, struct err *e);
