/* SPDX-License-Identifier: Apache-2.0 */
/* An audit export from an untrusted sender, through all readers of a log. Each error has a
 * position. */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/mman.h>

#include "audit/audit-read.h"
#include "base/fd.h"
#include "fuzz.h"

/* A single chain: each accepted record can be rebuilt from its parts, byte for byte. */
static void walk(const uint8_t *data, size_t size)
{
	static uint8_t out[AUDIT_RECORD_MAX];
	struct audit_head head = { 0 }, again = { 0 };
	struct audit_record rec;
	const char *why = NULL;
	ssize_t n;

	while (size > 0 && (n = audit_record_read(&head, data, size, &rec, &why)) > 0) {
		assert(audit_record_write(&again, &rec, out) == (size_t)n);
		assert(memcmp(out, data, (size_t)n) == 0);
		data += n;
		size -= (size_t)n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	struct audit_report report;
	struct audit_mark mark;
	struct err e = ERR_INIT;
	int fd = memfd_create("export", MFD_CLOEXEC), r;

	walk(data, size);
	(void)audit_mark_read((const char *)data, size, &mark, &e);
	assert(fd >= 0 && fd_write_all(fd, data, size) == 0);
	r = audit_set_import(fd, &set, &e);
	assert(r == 0 || e.msg[0]);
	if (r < 0)
		return 0;
	r = audit_verify(&set, set.key, NULL, &report, &e);
	assert(r == 0 || e.msg[0]);
	assert(r < 0 || !report.bad || (report.file[0] && report.what[0]));
	return 0;
}
