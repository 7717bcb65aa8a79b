/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/unpack-kernel.h"

#include <elf.h>
#include <endian.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/proc.h"
#include "base/str.h"
#include "vm/tool-run.h"

enum {
	SECTOR = 512,
	SETUP_SECTORS = 0x1f1,
	MAGIC = 0x202,
	VERSION = 0x206,
	VERSION_PAYLOAD = 0x208, /* the first version with a payload offset */
	PAYLOAD_AT = 0x248,
	PAYLOAD_SIZE = 0x24c,
	MAGIC_MAX = 6,
	SUM = 4, /* bytes after the payload: its unpacked size */
};

#define KERNEL_MAX (UINT64_C(256) << 20)

static const struct {
	const char *magic;
	size_t n;
	const char *program;
} packings[] = {
	{ "\x7f"
	  "ELF",
	  4, "" },
	{ "\x02\x21\x4c\x18", 4, "lz4" },
	{ "\x1f\x8b", 2, "gzip" },
	{ "\xfd"
	  "7zXZ\0",
	  6, "xz" },
	{ "\x28\xb5\x2f\xfd", 4, "zstd" },
};

const char *packed_with(const uint8_t *head, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(packings); i++)
		if (n >= packings[i].n && memcmp(head, packings[i].magic, packings[i].n) == 0)
			return packings[i].program;
	return NULL;
}

static uint32_t le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

int bzimage_payload(const uint8_t head[static BOOT_HEADER], uint64_t size, uint64_t *ret_at,
		    uint64_t *ret_n)
{
	/* 0 means 4 (Documentation/x86/boot.rst). */
	uint64_t sectors = head[SETUP_SECTORS] ? head[SETUP_SECTORS] : 4, at, n;

	if (memcmp(head + MAGIC, "HdrS", 4) != 0 ||
	    (head[VERSION] | head[VERSION + 1] << 8) < VERSION_PAYLOAD)
		return -EINVAL;
	at = (sectors + 1) * SECTOR + le32(head + PAYLOAD_AT);
	n = le32(head + PAYLOAD_SIZE);
	if (n <= SUM || at >= size || n > size - at)
		return -EINVAL;
	*ret_at = at;
	*ret_n = n - SUM;
	return 0;
}

/* Copies `n` bytes from offset `at` to the current position of `to`. */
static int copy_bytes(int from, uint64_t at, uint64_t n, int to, struct err *e)
{
	off_t pos = (off_t)at;

	while (n > 0) {
		ssize_t k = RETRY_EINTR(sendfile(to, from, &pos, n));

		if (k < 0)
			return err_errno(e, "cannot copy");
		if (k == 0)
			return err_set(e, -EINVAL, "the file is truncated");
		n -= (uint64_t)k;
	}
	return 0;
}

/* prlimit: output larger than any kernel is not a kernel. */
static int run_unpacker(const char *program, int from, int to, struct err *e)
{
	const char *const argv[] = { "prlimit", "--fsize=268435456", program, "-dc", NULL };
	char path[PATH_MAX];

	static_assert(KERNEL_MAX == 268435456, "as above");
	if (proc_find(program, path, sizeof(path)) < 0)
		return err_set(e, -ENOENT, "%s is needed to unpack the kernel: apt-get install %s",
			       program, str_eq(program, "xz") ? "xz-utils" : program);
	return tool_run(
		&(struct tool){ .argv = argv, .package = "util-linux", .in = from, .out = to }, e);
}

static int unpack(int from, uint64_t at, uint64_t n, int to, struct err *e)
{
	_cleanup_close_ int in = memfd_create("packed", MFD_CLOEXEC);
	uint8_t head[MAGIC_MAX] = { 0 };
	const char *program;
	int r;

	if (in < 0)
		return err_errno(e, "cannot create a memfd");
	if (n > KERNEL_MAX)
		return err_set(e, -EFBIG, "larger than a kernel can be");
	r = copy_bytes(from, at, n, in, e);
	if (r < 0)
		return r;
	if (lseek(in, 0, SEEK_SET) < 0 || pread(in, head, sizeof(head), 0) < 0)
		return err_errno(e, "cannot read the compressed file");
	program = packed_with(head, sizeof(head));
	if (!program)
		return err_set(e, -EINVAL, "unknown compression");
	return program[0] == '\0' ? copy_bytes(in, 0, n, to, e) : run_unpacker(program, in, to, e);
}

int packed_copy(int from, int to, struct err *e)
{
	struct stat st;

	if (fstat(from, &st) < 0)
		return err_errno(e, "cannot stat the compressed file");
	return unpack(from, 0, (uint64_t)st.st_size, to, e);
}

static int check_elf(int fd, struct err *e)
{
	Elf64_Ehdr h;

	if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
	    memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_machine != EM_X86_64 || h.e_type != ET_EXEC)
		return err_set(e, -EINVAL, "the unpacked file is not a kernel for x86-64");
	return 0;
}

int bzimage_unpack(int from, int to, struct err *e)
{
	uint8_t head[BOOT_HEADER];
	uint64_t at, n;
	struct stat st;
	int r;

	if (fstat(from, &st) < 0)
		return err_errno(e, "cannot stat the kernel");
	if (pread(from, head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    bzimage_payload(head, (uint64_t)st.st_size, &at, &n) < 0)
		return err_set(e, -EINVAL, "not a bzImage with a payload");
	r = unpack(from, at, n, to, e);
	return r < 0 ? r : check_elf(to, e);
}

int kernel_copy(int from, int to, struct err *e)
{
	int r = packed_copy(from, to, e);

	return r < 0 ? r : check_elf(to, e);
}
