/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: their paths, their versions, and the security fixes that their package lists. A
 * distribution patches old versions, so the version alone would give false alarms.
 */
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/proc.h"
#include "base/str.h"
#include "host/probe.h"

enum {
	PROGRAM_TIMEOUT_S = 5,
	BANNER_MAX = 16 * 1024,
	CHANGELOG_MAX = 8 * 1024 * 1024,
};

DEFINE_NAMES(host_program_name, enum host_program_id, HOST_PROGRAM_MAX,
	     "unknown", [HOST_NEWUIDMAP] = "newuidmap", [HOST_NEWGIDMAP] = "newgidmap",
	     [HOST_NFT] = "nft", [HOST_MMDEBSTRAP] = "mmdebstrap", [HOST_MKFS_EROFS] = "mkfs.erofs",
	     [HOST_MKFS_EXT4] = "mkfs.ext4", [HOST_LZ4] = "lz4", [HOST_TAR] = "tar",
	     [HOST_GZIP] = "gzip", [HOST_ZSTD] = "zstd");

static uint64_t deadline(void)
{
	return clock_mono() + PROGRAM_TIMEOUT_S * NSEC_PER_SEC;
}

static bool is_privileged(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return false;
	if (st.st_mode & S_ISUID && st.st_uid == 0)
		return true;
	return getxattr(path, "security.capability", NULL, 0) > 0;
}

static void ask_version(struct host_program *p)
{
	_cleanup_buf_ struct buf out = BUF_INIT(BANNER_MAX);
	const char *const argv[] = { p->path, "--version", NULL };
	struct err e = ERR_INIT;
	int status = 0;

	p->ran = proc_capture(p->path, argv, true, deadline(), &out, &status, &e);
	if (p->ran == 0 && status != 0)
		p->ran = -ENOEXEC;
	(void)snprintf(p->banner, sizeof(p->banner), "%.*s", (int)strcspn(buf_text(&out), "\n"),
		       buf_text(&out));
}

static void read_changelog(const struct engine *engine, struct host_program *p)
{
	_cleanup_buf_ struct buf out = BUF_INIT(CHANGELOG_MAX);
	char gzip[HOST_PATH_MAX], path[HOST_PATH_MAX];
	const char *const argv[] = { "gzip", "-dc", path, NULL };
	struct err e = ERR_INIT;
	int status = 0;

	/* A local build does not come from the package. */
	if (str_has_prefix(p->path, "/usr/local/") || proc_find("gzip", gzip, sizeof(gzip)) < 0)
		return;
	(void)snprintf(path, sizeof(path), "/usr/share/doc/%s/changelog.Debian.gz",
		       engine->package);
	if (access(path, R_OK) < 0)
		return;
	if (proc_capture(gzip, argv, false, deadline(), &out, &status, &e) == 0 && status == 0)
		p->patched = cve_patched(engine->cves, buf_text(&out));
}

static void found(struct host_program *p, int r)
{
	p->found = r;
	if (p->found == 0)
		p->privileged = is_privileged(p->path);
}

void try_programs(struct host_facts *f)
{
	for (enum host_program_id i = 0; i < HOST_PROGRAM_MAX; i++)
		found(&f->program[i], proc_find(host_program_name(i), f->program[i].path,
						sizeof(f->program[i].path)));
	for (size_t i = 0; i < HOST_ENGINES_MAX && engines[i]; i++) {
		struct host_program *p = &f->engine[i];
		struct err ignored = ERR_INIT;

		found(p, engine_program(engines[i], p->path, &ignored));
		if (p->found < 0)
			continue;
		ask_version(p);
		read_changelog(engines[i], p);
	}
}
