/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of a policy, in its arena. */
#pragma once

#include "names/name.h"
#include "policy/diag.h"

/* A list in the policy's arena. `set`: some file contains the key, even with an empty list. */
struct text_list {
	const char **v;
	size_t n, cap;
	bool set;
};

/* Environment variables, or files of an image, in the order written. */
struct pair {
	const char *key;
	const char *value;
	struct pos pos;
};

struct pair_list {
	struct pair *v;
	size_t n, cap;
};

struct preset_ref {
	const char *name;
	struct pos pos;
	uint32_t index; /* in the list of the file at `pos` */
};

struct preset_list {
	struct preset_ref *v;
	size_t n, cap;
};

struct secret_host {
	struct name name;
	struct pos pos;
	uint32_t index; /* in the list of the file at `pos` */
};

struct host_list {
	struct secret_host *v;
	size_t n, cap;
};

/* A text and its position; text NULL: not written. */
struct located {
	const char *text;
	struct pos pos;
};
