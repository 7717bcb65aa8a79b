/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by copying in and copying out. */
#include "cli/copy.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/view.h"

#define SHOW_AFTER NSEC_PER_SEC
#define SHOW_EVERY (200 * NSEC_PER_MSEC)

bool copy_base(const char *path, char *out, size_t n)
{
	size_t len = strlen(path), from;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (from = len; from > 0 && path[from - 1] != '/'; from--)
		;
	if (len - from >= n)
		return false;
	memcpy(out, path + from, len - from);
	out[len - from] = '\0';
	if (len == from || str_eq(out, "..") || str_eq(out, "."))
		memcpy(out, ".", 2);
	return true;
}

void copy_tick(struct copy *c, uint64_t entries, uint64_t bytes)
{
	uint64_t now = clock_mono(), since = now - c->began;
	char size[32], rate[32];

	if (!c->show || since < SHOW_AFTER || now - c->told < SHOW_EVERY)
		return;
	c->told = now;
	c->drawn = true;
	view_size(bytes, size, sizeof(size));
	view_size((uint64_t)((double)bytes * 1e9 / (double)since), rate, sizeof(rate));
	(void)fprintf(stderr, "\r\033[K%s  %s/s", size, rate);
	if (entries > 1)
		(void)fprintf(stderr, "  %llu entries", (unsigned long long)entries);
	(void)fflush(stderr);
}
