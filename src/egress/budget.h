/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on a sandbox's network use: in total, at the same time and per minute. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget_limits {
	uint64_t bytes_out, bytes_in;
	uint64_t streams;	     /* at the same time */
	uint64_t streams_per_minute; /* in any 60 seconds */
	uint64_t names;		     /* distinct names and addresses */
};

enum {
	BUDGET_SLOTS =
		61, /* seconds; one more than a minute, since the current second is not over */
};

/* Names used so far: an open-addressing hash table of strings. */
struct budget_names {
	char **v;
	size_t n, cap;
};

struct budget {
	struct budget_limits max;
	uint64_t out, in; /* bytes left; pumps subtract from it */
	uint64_t streams;
	uint32_t opened[BUDGET_SLOTS];
	uint64_t second, recent; /* second of the newest slot, sum of all slots */
	struct budget_names names;
};

enum budget_result {
	BUDGET_OK,
	BUDGET_BYTES_OUT,
	BUDGET_BYTES_IN,
	BUDGET_STREAMS,
	BUDGET_RATE,
	BUDGET_NAMES,
	BUDGET_NO_MEMORY,
};

void budget_init(struct budget *b, const struct budget_limits *max);
void budget_done(struct budget *b);

/* Count earlier use of a resumed sandbox; -ENOMEM. */
void budget_spend(struct budget *b, uint64_t out, uint64_t in);
int budget_spend_name(struct budget *b, const char *host);

/* Opens a stream to `host` at clock_mono() time `now`, or returns the limit that forbids it. */
enum budget_result budget_open(struct budget *b, const char *host, uint64_t now);
void budget_close(struct budget *b);
