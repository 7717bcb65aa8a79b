/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct filter_jail {
	bool has_uid;
	uid_t uid;    /* to become, as root */
	pid_t parent; /* the warden */
};

/* Closes all descriptors but stderr and the two sockets. Before the loops are made. */
int filter_confine_fds(struct err *e);

/* Confines this process for good: the file's comment in confine.c lists how. */
int filter_confine(const struct filter_jail *j, struct err *e);
