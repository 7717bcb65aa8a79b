/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service tells its manager: the protocol of sd_notify(3), datagrams of "NAME=value" lines.
 * Without NOTIFY_SOCKET everything here does nothing and succeeds.
 */
#pragma once

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

struct notify {
	int fd; /* -EBADF: nobody listens */
	struct sockaddr_un to;
	socklen_t n_to;
	uint64_t watchdog; /* ns between two notify_watchdog(): half of what is allowed; 0: none
			      wanted */
};

#define NOTIFY_INIT           \
	{                     \
		.fd = -EBADF, \
	}
#define _cleanup_notify_ _cleanup_(notify_close)

/*
 * Reads NOTIFY_SOCKET (a path, or '@' and an abstract name), WATCHDOG_USEC and WATCHDOG_PID, and
 * takes them out of the environment: they are not for children.
 */
int notify_open(struct notify *n, struct err *e);
void notify_close(struct notify *n);

/*
 * 0 or -errno, which a service goes on after. `status` is one line for people, or NULL; what would
 * be another line is escaped. Those that change a state wait a few seconds for a manager that is
 * busy, the others do not.
 */
int notify_ready(const struct notify *n, const char *status);
int notify_stopping(const struct notify *n, const char *status);
int notify_watchdog(const struct notify *n);
