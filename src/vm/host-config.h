/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.yaml: what whoever runs this host has decided for all sandboxes on it; hutch-host(5). The
 * first of the directories in which agents are looked for that has the file.
 */
#pragma once

#include "accel.h"
#include "diag.h"
#include "rule.h"
#include "spec.h"

struct host_config {
	unsigned int accel;	 /* enum accel_wish */
	uint64_t accel_timeout;	 /* milliseconds: how long a guest may take to boot with KVM */
	uint64_t snapshot_space; /* bytes on disk, of all snapshots of a user */
	uint64_t keep_ended;	 /* milliseconds: how long what is left of an ended sandbox stays */
	uint64_t ended_space;	 /* bytes on disk, of all those together */
	char engine[SPEC_ENGINE_MAX + 1]; /* preferred among those of its level; "": none is */
	char egress_proxy[RULE_TEXT_MAX]; /* HOST:PORT, as target_parse() takes it; "": none */
};

#define HOST_CONFIG_INIT                                                                           \
	{                                                                                          \
		.accel = ACCEL_AUTO, .accel_timeout = 15000, .snapshot_space = UINT64_C(64) << 30, \
		.keep_ended = UINT64_C(7) * 24 * 3600 * 1000, .ended_space = UINT64_C(1) << 30     \
	}

/* Reads one file. What is wrong goes to `d`, all of it; *ret, which has the
 * defaults, gets what is right. */
void host_config_read(const struct source *src, struct host_config *ret, struct diags *d);

/* This host's: all defaults if there is none. -EINVAL with the first thing that is wrong. */
int host_config_load(struct host_config *ret, struct err *e);

/* The engine that is preferred: $HUTCH_ENGINE, or that of host.yaml; "": none. */
const char *host_config_engine(const struct host_config *c);

/* snapshot_room() with what is allowed here. */
int host_snapshot_room(uint64_t need, struct err *e);
