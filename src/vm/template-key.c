/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/qemu.h"
#include "vm/template-vm.h"

enum {
	CPUINFO_MAX = 4 * 1024 * 1024,
};

/* ---- files ---- */

static json_t *identity(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return NULL;
	return JSON_OBJECT({ "path", json_string(path) },
			   { "size", json_number((uint64_t)st.st_size) },
			   { "mtime", json_number(clock_of(st.st_mtim)) });
}

static int list_needs(const struct spec *spec, const char *qemu, json_t **ret, struct err *e)
{
	const char *const paths[] = { qemu, spec->machine.kernel, spec->machine.initrd,
				      spec->machine.root };
	_cleanup_json_ json_t *needs = json_array();

	for (size_t i = 0; needs && i < ARRAY_SIZE(paths); i++) {
		errno = 0;
		if (json_push(needs, identity(paths[i])) < 0)
			return errno == ENOENT ? err_errno(e, "cannot stat '%s'", paths[i])
					       : err_oom(e);
	}
	*ret = TAKE_PTR(needs);
	return *ret ? 0 : err_oom(e);
}

/* ---- the CPU ---- */

/* The first processor's lines with its model and features. */
static int read_cpu(json_t **ret, struct err *e)
{
	static const char *const wanted[] = { "vendor_id",  "cpu family", "model",
					      "model name", "stepping",	  "flags" };
	_cleanup_buf_ struct buf b = BUF_INIT(CPUINFO_MAX);
	_cleanup_json_ json_t *cpu = json_object();
	int r = cpu ? fd_read_file(AT_FDCWD, "/proc/cpuinfo", &b, e) : err_oom(e);
	const char *line = buf_text(&b);

	for (size_t n; r == 0 && (n = strcspn(line, "\n")) > 0; line += n + (line[n] == '\n')) {
		const char *colon = memchr(line, ':', n);
		size_t name = strcspn(line, "\t:");

		for (size_t i = 0; colon && i < ARRAY_SIZE(wanted); i++)
			if (name == strlen(wanted[i]) && memcmp(line, wanted[i], name) == 0 &&
			    json_put(cpu, wanted[i],
				     json_stringn(colon + 1, (size_t)(line + n - colon - 1))) < 0)
				return err_oom(e);
	}
	if (r == 0)
		*ret = TAKE_PTR(cpu);
	return r;
}

/* ---- the key ---- */

static json_t *arguments(const struct spec *spec, enum vm_start start)
{
	_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX);
	const char *argv[QEMU_ARGS_MAX];
	struct qemu_machine m;
	size_t n = 0;

	qemu_describe(spec, start, &m);
	/* Limits of a clone, not of its template. */
	m.disk_bandwidth = m.disk_ops = 0;
	m.reserved = false;
	if (qemu_arguments(&m, QEMU_PROGRAM, &text, argv) < 0)
		return NULL;
	while (argv[n])
		n++;
	return json_texts(argv, n);
}

static int hash_of(const json_t *all, char ret[static SNAPSHOT_KEY + 1], struct err *e)
{
	_cleanup_free_ char *text = json_write_canonical(all);
	unsigned char digest[SNAPSHOT_KEY / 2];

	if (!text)
		return err_oom(e);
	(void)crypto_generichash(digest, sizeof(digest), (const unsigned char *)text, strlen(text),
				 NULL, 0);
	(void)sodium_bin2hex(ret, SNAPSHOT_KEY + 1, digest, sizeof(digest));
	return 0;
}

static json_t *describe(const struct spec *spec, json_t *needs)
{
	return JSON_OBJECT({ "image", json_string(spec->image) },
			   { "image_digest", json_string(spec->image_digest) },
			   { "accel", json_string(spec->machine.accel) },
			   { "memory", json_number(spec->limits.memory) },
			   { "disk", json_number(spec->limits.disk) },
			   { "cpus", json_number(spec->limits.cpus) },
			   { "needs", json_incref(needs) });
}

int template_key(const struct spec *spec, char ret[static SNAPSHOT_KEY + 1], json_t **ret_info,
		 struct err *e)
{
	_cleanup_json_ json_t *needs = NULL, *cpu = NULL, *all = NULL, *info = NULL;
	char qemu[PATH_MAX];
	int r = engine_program(&engine_qemu, qemu, e);

	if (r == 0)
		r = list_needs(spec, qemu, &needs, e);
	if (r == 0)
		r = read_cpu(&cpu, e);
	if (r < 0)
		return r;
	all = JSON_OBJECT(
		{ "hutch", json_string(HUTCH_VERSION) }, { "format", json_number(SNAPSHOT_FORMAT) },
		{ "needs", json_incref(needs) }, { "cpu", json_incref(cpu) },
		{ "disk", json_number(spec->limits.disk) }, { "boot", arguments(spec, VM_BOOT) },
		{ "clone", arguments(spec, VM_RESTORE) });
	info = describe(spec, needs);
	if (!all || !info)
		return err_oom(e);
	r = hash_of(all, ret, e);
	if (r == 0)
		*ret_info = TAKE_PTR(info);
	return r;
}
