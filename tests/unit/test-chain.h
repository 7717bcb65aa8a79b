/* SPDX-License-Identifier: Apache-2.0 */
/* An audit chain in memory, for a keeper in a test. */
#pragma once

#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "audit/audit-record.h"

enum {
	CHAIN_MAX = 1 << 20
};

static inline int memory_log(void)
{
	int fd = memfd_create("chain", MFD_CLOEXEC);

	assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
	return fd;
}

/* Number of records of that kind that contain `what`. */
static inline unsigned int chain_recorded(int fd, unsigned int kind, const char *what)
{
	_cleanup_free_ uint8_t *data = malloc(CHAIN_MAX);
	ssize_t size = pread(fd, data, CHAIN_MAX, 0);
	struct audit_head head = { 0 };
	unsigned int found = 0;
	const char *why = "";

	assert_true(size >= 0);
	for (ssize_t at = 0, n; at < size; at += n) {
		struct audit_record r;

		n = audit_record_read(&head, data + at, (size_t)(size - at), &r, &why);
		assert_true(n > 0);
		found += r.kind == kind && memmem(r.payload, r.n_payload, what, strlen(what));
	}
	return found;
}
