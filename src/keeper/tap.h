/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's side of hutch-tap: which streams it carries, handing them over, and recording what
 * it reports. The warden starts hutch-tap when the first stream needs it, and sends the keeper a
 * socket to it. If hutch-tap ends, its streams are cut; the next stream asks for a new one.
 */
#pragma once

#include "egress/broker.h"
#include "tap-link/tap-link.h"

struct keeper;

enum {
	TAP_RECORDS_MAX = 100, /* requests recorded one by one in a second; the rest is counted */
	TAP_USED_S = 60,       /* between two notes about the use of a secret */
};

struct tap {
	struct ruleset *hosts; /* NULL: the policy needs no hutch-tap */
	struct loop_fd src;    /* fd -EBADF: not running */
	bool asked;	       /* a request to start it is under way */
	unsigned int recorded; /* requests in this second */
	uint64_t second;
	uint64_t used[TAP_SECRETS_MAX]; /* time of the last report to the warden; 0: none */
};

int tap_init(struct keeper *k, struct err *e);
void tap_done(struct keeper *k);

/* Callbacks of the broker. */
bool tap_knows(void *arg, const struct name *name);
bool tap_carries(void *arg, const struct target *t, enum rule_proto proto);
int tap_hand_over(void *arg, const struct broker_handover *h);

/* NOTE_TAP: the socket of a started hutch-tap, or without a file the errno of its failure. False:
 * not expected. */
bool tap_came(struct keeper *k, uint64_t error, const int *files, size_t n);
