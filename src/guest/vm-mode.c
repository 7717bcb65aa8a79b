/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/nested.h"
#include "base/str.h"
#include "guest/vm.h"

#define CMDLINE_MAX 4096

static bool nested;

int vm_read_mode(struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(CMDLINE_MAX);
	const char *at;

	if (fd_read_file(AT_FDCWD, "/proc/cmdline", &b, e) < 0)
		return e->num;
	for (at = buf_text(&b); *at; at += strspn(at, " \n")) {
		size_t n = strcspn(at, " \n");

		nested |= n == STRLEN(NESTED_WORD) && memcmp(at, NESTED_WORD, n) == 0;
		at += n;
	}
	return 0;
}

bool vm_is_nested(void)
{
	return nested;
}
