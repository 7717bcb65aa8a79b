/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known vulnerabilities of the engines, with the releases that fixed them upstream. A row is here
 * because a sandbox could have reached it, or because somebody will ask why it is not; then it says
 * why. Sources: the release notes and advisories of each project.
 */
#include <string.h>

#include "probe.h"
#include "str.h"

static const char no_exec[] = "Hutch never calls crun exec";
static const char no_krun[] = "Hutch never uses krun";

static const struct cve crun_rows[] = {
	{ "CVE-2019-18837", "0.10.5", "an image's symlink reached host files", NULL },
	{ "CVE-2022-27650", "1.4.4", "exec left inheritable capabilities", no_exec },
	{ "CVE-2026-30892", "1.27", "exec -u ran as another user", no_exec },
	{ "CVE-2026-47766", "1.28", "an image whose /dev is a symlink writes on the host", NULL },
	{ "CVE-2025-24965", "1.20", "an image wrote host files through krun", no_krun },
	{ "CVE-2026-84042", "1.30.1", "krun with passt ran a program of the image", no_krun },
	{ "CVE-2026-88264", "1.30", "an image's /dev/console symlink makes a host file", NULL },
	{ "CVE-2026-88265", "1.30", "an image's /dev/null symlink opens a mounted file", NULL },
	{ NULL },
};

static const struct cve qemu_rows[] = {
	{ "CVE-2024-3446", "7.2.11 8.2.3 9.0.0", "virtio-serial freed memory twice", NULL },
	{ "CVE-2026-48914", "10.0.11 11.0.2", "virtio-blk wrote outside its buffer", NULL },
	{ NULL },
};

const struct cve *cve_rows(enum host_program_id p)
{
	static const struct cve none[] = { { NULL } };

	switch (p) {
	case HOST_CRUN:
		return crun_rows;
	case HOST_QEMU:
		return qemu_rows;
	default:
		return none;
	}
}

/* "1.4.0-rc.2" is { 1, 4, 0 } and a candidate. Missing numbers are 0, unreadable ones too. */
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

bool cve_applies(const struct cve *row, const char *version)
{
	const char *fix = row->fixed;

	for (;;) {
		const char *next = strchr(fix, ' ');
		bool reached = cve_version_compare(version, fix) >= 0;

		/* Beyond the last one all branches are good; before it only the fixed ones. */
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

uint64_t cve_patched(const struct cve *rows, const char *changelog)
{
	uint64_t mask = 0;

	for (size_t i = 0; rows[i].id; i++)
		if (mentions(changelog, rows[i].id))
			mask |= UINT64_C(1) << i;
	return mask;
}
