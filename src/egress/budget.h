/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox may use of the network in its life, at once and a minute. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget_limits {
	uint64_t bytes_out, bytes_in;
	uint64_t streams;	     /* at once */
	uint64_t streams_per_minute; /* in any 60 seconds */
	uint64_t names;		     /* different ones, addresses counted too */
};

enum {
	BUDGET_SLOTS = 61, /* seconds; the first of them is not over, so one more than a minute */
};

/* The names that were used: an open hash table of texts. */
struct budget_names {
	char **v;
	size_t n, cap;
};

struct budget {
	struct budget_limits max;
	uint64_t out, in; /* bytes left: the pumps take from here */
	uint64_t streams;
	uint32_t opened[BUDGET_SLOTS];
	uint64_t second, recent; /* the second of the newest slot, the sum of all */
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

/* What was used before, elsewhere; -ENOMEM. */
void budget_spend(struct budget *b, uint64_t out, uint64_t in);
int budget_spend_name(struct budget *b, const char *host);

/* Opens a stream to `host` at clock_mono() time `now`, or says which limit stands against it. */
enum budget_result budget_open(struct budget *b, const char *host, uint64_t now);
void budget_close(struct budget *b);
