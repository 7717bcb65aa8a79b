/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifies the service manager with the protocol of sd_notify(3), datagrams of "NAME=value" lines.
 * Without NOTIFY_SOCKET every function does nothing and succeeds.
 */
#pragma once

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

struct notify {
	int fd; /* -EBADF: no NOTIFY_SOCKET */
	struct sockaddr_un to;
	socklen_t n_to;
	uint64_t watchdog; /* ns between two notify_watchdog(): half the timeout; 0: none */
};

#define NOTIFY_INIT           \
	{                     \
		.fd = -EBADF, \
	}
#define _cleanup_notify_ _cleanup_(notify_close)

/*
 * Reads NOTIFY_SOCKET (a path, or '@' and an abstract name), WATCHDOG_USEC and WATCHDOG_PID, and
 * removes them from the environment: they are not for children.
 */
int notify_open(struct notify *n, struct err *e);
void notify_close(struct notify *n);

/*
 * 0 or -errno; a service continues after an error. `status` is one line for people, or NULL;
 * newlines are escaped. Functions that change a state wait a few seconds for a busy manager, the
 * others do not.
 */
int notify_ready(const struct notify *n, const char *status);
int notify_stopping(const struct notify *n, const char *status);
int notify_watchdog(const struct notify *n);
