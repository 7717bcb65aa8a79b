/* SPDX-License-Identifier: Apache-2.0 */
/* Which known vulnerabilities of an engine (engine.h) affect a version. */
#include <string.h>

#include "base/str.h"
#include "host/probe.h"

/* "1.4.0-rc.2" is { 1, 4, 0 } and a release candidate. Missing and unreadable numbers are 0. */
static bool split_version(const char *s, uint64_t out[static 3])
{
	bool candidate = strstr(s, "-rc") || strstr(s, "~rc");

	for (size_t i = 0; i < 3; i++) {
		size_t n = strspn(s, "0123456789");

		out[i] = 0;
		(void)str_to_u64(s, n, UINT32_MAX, &out[i]);
		s += n;
		if (*s == '.')
			s++;
	}
	return candidate;
}

int cve_version_compare(const char *a, const char *b)
{
	uint64_t va[3], vb[3];
	bool ca = split_version(a, va), cb = split_version(b, vb);

	for (size_t i = 0; i < 3; i++)
		if (va[i] != vb[i])
			return va[i] < vb[i] ? -1 : 1;
	return (int)cb - (int)ca;
}

static bool same_branch(const char *a, const char *b)
{
	uint64_t va[3], vb[3];

	(void)split_version(a, va);
	(void)split_version(b, vb);
	return va[0] == vb[0] && va[1] == vb[1];
}

bool cve_applies(const struct engine_cve *row, const char *version)
{
	const char *fix = row->fixed;

	for (;;) {
		const char *next = strchr(fix, ' ');
		bool reached = cve_version_compare(version, fix) >= 0;

		/* Beyond the last fix all branches are fixed; before it only the branches with a
		 * fix. */
		if (reached && (!next || same_branch(version, fix)))
			return false;
		if (!next)
			return true;
		fix = next + 1;
	}
}

static bool mentions(const char *text, const char *id)
{
	size_t n = strlen(id);

	for (const char *p = text; (p = strstr(p, id)); p += n)
		if (!ascii_is_digit(p[n]))
			return true;
	return false;
}

uint64_t cve_patched(const struct engine_cve *rows, const char *changelog)
{
	uint64_t mask = 0;

	for (size_t i = 0; rows[i].id; i++)
		if (mentions(changelog, rows[i].id))
			mask |= UINT64_C(1) << i;
	return mask;
}
