/* SPDX-License-Identifier: Apache-2.0 */
/* Archives for the kernel, compressed kernels, and the dependencies of modules. */
#include "unit.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "fail.h"
#include "vm/cpio.h"
#include "vm/modules.h"
#include "vm/tool-run.h"
#include "vm/unpack-kernel.h"

enum {
	IMAGE_SIZE = 8192,
	PAYLOAD = 2048, /* where it is in images of these tests */
	HEAD = 110	/* bytes of an entry before its name */
};

/* ---- cpio ---- */

static int make_archive(struct buf *b)
{
	struct cpio c = { .out = b };

	cpio_dir(&c, "dev");
	cpio_device(&c, "dev/console", S_IFCHR | 0600, 5, 1);
	cpio_file(&c, "init", 0755, "12345", 5);
	return cpio_end(&c);
}

TEST(test_cpio_is_what_the_kernel_reads)
{
	static const char want[] =
		"07070100000001000041ED00000000000000000000000200000000000000000000000000000000"
		"00000000000000000000000400000000dev\0\0\0"
		"0707010000000200002180000000000000000000000001000000000000000000000000000000000000"
		"0005"
		"000000010000000C00000000dev/console\0\0\0"
		"07070100000003000081ED00000000000000000000000100000000000000050000000000000000"
		"00000000000000000000000500000000init\0\0"
		"12345\0\0\0"
		"0707010000000400000000000000000000000000000001000000000000000000000000000000000000"
		"0000"
		"000000000000000B00000000TRAILER!!!\0\0\0\0";
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	(void)state;
	assert_int_equal(make_archive(&b), 0);
	assert_int_equal(b.len, sizeof(want) - 1);
	assert_memory_equal(b.data, want, b.len);
}

/* Parses like the kernel: a head, a name, data, each aligned to four bytes. */
static const char *next_entry(const struct buf *b, size_t *at, size_t *ret_n)
{
	char hex[9] = "";
	const char *name;
	size_t size, name_n;

	while (*at < b->len && b->data[*at] == '\0')
		(*at)++;
	if (*at == b->len)
		return NULL;
	assert_true(b->len - *at >= HEAD);
	assert_memory_equal(b->data + *at, "070701", 6);
	assert_int_equal(*at % 4, 0);
	memcpy(hex, b->data + *at + 54, 8);
	size = strtoul(hex, NULL, 16);
	memcpy(hex, b->data + *at + 94, 8);
	name_n = strtoul(hex, NULL, 16);
	name = b->data + *at + HEAD;
	assert_int_equal(strlen(name) + 1, name_n);
	*at = (*at + HEAD + name_n + 3) & ~(size_t)3;
	*at = (*at + size + 3) & ~(size_t)3;
	*ret_n = size;
	return name;
}

TEST(test_cpio_archives_can_follow_each_other)
{
	static const char *const want[] = { "dev", "dev/console", "init", "TRAILER!!!",
					    "a",   "bc",	  "def",  "TRAILER!!!" };
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct cpio c = { .out = &b };
	size_t at = 0, size;

	(void)state;
	assert_int_equal(make_archive(&b), 0);
	cpio_file(&c, "a", 0644, "", 0);
	cpio_file(&c, "bc", 0644, "x", 1);
	cpio_file(&c, "def", 0644, "1234", 4);
	assert_int_equal(cpio_end(&c), 0);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		assert_string_equal(next_entry(&b, &at, &size), want[i]);
	assert_null(next_entry(&b, &at, &size));
}

static int make_and_drop(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	return make_archive(&b);
}

TEST(test_cpio_without_memory_or_room)
{
	_cleanup_buf_ struct buf small = BUF_INIT(200);

	(void)state;
	assert_int_equal(make_archive(&small), -ENOBUFS);
	FAIL_SWEEP(make_and_drop());
}

/* ---- bzImages ---- */

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* A bzImage of IMAGE_SIZE bytes whose payload has `n` bytes, with the four of its size. */
static void make_image(uint8_t image[static IMAGE_SIZE], const void *payload, uint32_t n)
{
	memset(image, 0, IMAGE_SIZE);
	image[0x1f1] = 2;
	memcpy(image + 0x202, "HdrS", 4);
	image[0x206] = 0x0f;
	image[0x207] = 0x02;
	put32(image + 0x248, PAYLOAD - 3 * 512);
	put32(image + 0x24c, n + 4);
	memcpy(image + PAYLOAD, payload, n);
}

TEST(test_payload_is_found)
{
	uint8_t image[IMAGE_SIZE];
	uint64_t at = 0, n = 0;

	(void)state;
	make_image(image, "hello", 5);
	assert_int_equal(bzimage_payload(image, IMAGE_SIZE, &at, &n), 0);
	assert_int_equal(at, PAYLOAD);
	assert_int_equal(n, 5);
	image[0x1f1] = 0; /* means 4 */
	assert_int_equal(bzimage_payload(image, IMAGE_SIZE, &at, &n), 0);
	assert_int_equal(at, PAYLOAD + 1024);
}

TEST(test_payload_outside_is_refused)
{
	static const struct {
		size_t at;
		uint32_t value;
	} wrong[] = {
		{ 0x202, 0x53726449 }, { 0x206, 0x0207 },     { 0x248, 0xffffffff },
		{ 0x248, IMAGE_SIZE }, { 0x24c, 0xffffffff }, { 0x24c, IMAGE_SIZE - PAYLOAD + 1 },
		{ 0x24c, 4 },	       { 0x24c, 0 },
	};
	uint8_t image[IMAGE_SIZE];
	uint64_t at = 77, n = 78;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		make_image(image, "hello", 5);
		put32(image + wrong[i].at, wrong[i].value);
		assert_int_equal(bzimage_payload(image, IMAGE_SIZE, &at, &n), -EINVAL);
	}
	assert_int_equal(at, 77); /* not written */
	make_image(image, "hello", 5);
	put32(image + 0x24c, IMAGE_SIZE - PAYLOAD); /* up to the last byte */
	assert_int_equal(bzimage_payload(image, IMAGE_SIZE, &at, &n), 0);
	assert_int_equal(bzimage_payload(image, IMAGE_SIZE - 1, &at, &n), -EINVAL);
}

/* For any head, the payload found is inside the file. */
TEST(test_payload_of_anything_is_inside)
{
	uint8_t image[IMAGE_SIZE];
	uint64_t at, n, seed = 1;
	int found = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		make_image(image, "", 0);
		for (int k = 0; k < 9; k++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			image[k == 8 ? 0x1f1 : 0x248 + k] = (uint8_t)(k % 4 < 2 ? seed >> 33 : 0);
		}
		if (bzimage_payload(image, IMAGE_SIZE * 8, &at, &n) < 0)
			continue;
		found++;
		assert_true(n > 0 && at < IMAGE_SIZE * 8 && n <= IMAGE_SIZE * 8 - at);
	}
	assert_in_range(found, 100, 19900);
}

/* A file in memory with these bytes. */
static int file_of(const void *data, size_t n)
{
	int fd = memfd_create("unit", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	return fd;
}

static int unpack(const uint8_t *image, size_t n, struct err *e)
{
	_cleanup_close_ int from = file_of(image, n);
	_cleanup_close_ int to = memfd_create("out", MFD_CLOEXEC);

	return bzimage_unpack(from, to, e);
}

static Elf64_Ehdr good_elf(void)
{
	Elf64_Ehdr h = { .e_type = ET_EXEC, .e_machine = EM_X86_64 };

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	return h;
}

TEST(test_kernel_is_unpacked)
{
	Elf64_Ehdr elf = good_elf();
	uint8_t image[IMAGE_SIZE];
	struct err e = ERR_INIT;

	(void)state;
	make_image(image, &elf, sizeof(elf));
	assert_int_equal(unpack(image, sizeof(image), &e), 0);
	elf.e_machine = EM_386;
	make_image(image, &elf, sizeof(elf));
	assert_int_equal(unpack(image, sizeof(image), &e), -EINVAL);
	assert_non_null(strstr(e.msg, "not a kernel for x86-64"));
	make_image(image, "what", 4);
	assert_int_equal(unpack(image, sizeof(image), &e), -EINVAL);
	assert_non_null(strstr(e.msg, "unknown compression"));
	assert_int_equal(unpack(image, 512, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "not a bzImage"));
	make_image(image, "\x1f\x8bthis is no gzip", 17);
	assert_int_equal(unpack(image, sizeof(image), &e), -EIO);
	assert_non_null(strstr(e.msg, "gzip"));
}

TEST(test_packings)
{
	(void)state;
	assert_string_equal(packed_with((const uint8_t *)"\x02\x21\x4c\x18", 4), "lz4");
	assert_string_equal(packed_with((const uint8_t *)"\x1f\x8b", 2), "gzip");
	assert_string_equal(packed_with((const uint8_t *)"\xfd"
							 "7zXZ",
					6),
			    "xz");
	assert_string_equal(packed_with((const uint8_t *)"\x28\xb5\x2f\xfd", 4), "zstd");
	assert_string_equal(packed_with((const uint8_t *)"\x7f"
							 "ELF",
					4),
			    "");
	assert_null(packed_with((const uint8_t *)"\x02\x21\x4c", 3));
	assert_null(packed_with((const uint8_t *)"", 0));
}

/* ---- modules ---- */

TEST(test_module_says_what_it_needs)
{
	static const char module[] = "\x7f"
				     "ELF..\0license=GPL\0depends=a,b-c\0retpoline=Y\0";
	static const char cut[] = "\x7f"
				  "ELF..\0depends=a,b";
	static const char none[] = "\x7f"
				   "ELF..depends=a\0";
	_cleanup_free_ char *whole = unit_copy(module, sizeof(module) - 1);
	_cleanup_free_ char *part = unit_copy(cut, sizeof(cut) - 1);
	_cleanup_free_ char *other = unit_copy(none, sizeof(none) - 1);

	(void)state;
	assert_string_equal(module_depends(whole, sizeof(module) - 1), "a,b-c");
	assert_null(module_depends(part, sizeof(cut) - 1)); /* without its end */
	assert_null(module_depends(other, sizeof(none) - 1));
	assert_null(module_depends(whole, 0));
}

static void write_module(const struct unit_dir *d, const char *path, const char *depends)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s%c%s%s%c",
			 "\x7f"
			 "ELF",
			 0, "depends=", depends, 0);

	unit_dir_write(d, path, text, (size_t)n);
}

static void make_dirs(const struct unit_dir *d)
{
	assert_int_equal(mkdirat(d->fd, "kernel", 0755), 0);
	assert_int_equal(mkdirat(d->fd, "kernel/fs", 0755), 0);
	unit_dir_write(d, "modules.builtin", "kernel/fs/built-in.ko\n", 22);
}

TEST_IN_DIR(test_modules_come_in_order)
{
	static const char want[] = "/lib/modules/virtio.ko\n/lib/modules/virtio_mmio.ko\n"
				   "/lib/modules/virtio_console.ko\n/lib/modules/virtio_blk.ko\n"
				   "/lib/modules/erofs.ko\n/lib/modules/overlay.ko\n"
				   "/lib/modules/nf_a.ko\n/lib/modules/nft_tproxy.ko\n";
	static const char extra[] = "/lib/modules/stp.ko\n/lib/modules/bridge.ko\n";
	const struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	_cleanup_buf_ struct buf more = BUF_INIT(65536);
	struct cpio c = { .out = &b }, nested = { .out = &more };
	struct err e = ERR_INIT;

	make_dirs(d);
	write_module(d, "kernel/virtio.ko", "");
	write_module(d, "kernel/virtio_mmio.ko", "virtio");
	write_module(d, "kernel/virtio_console.ko", "virtio");
	write_module(d, "kernel/virtio_blk.ko", "virtio");
	write_module(d, "kernel/fs/erofs.ko", "built_in");
	write_module(d, "kernel/fs/overlay.ko", "");
	write_module(d, "kernel/nf-a.ko", "");
	assert_int_equal(modules_add(d->fd, &c, &nested, &e), -EINVAL); /* one is missing */
	assert_string_equal(e.msg, "the kernel has no module 'nft_tproxy'");
	write_module(d, "kernel/nft_tproxy.ko", "nf-a");
	write_module(d, "kernel/bridge.ko", "stp");
	write_module(d, "kernel/stp.ko", "");
	buf_reset(&b);
	c.n = 0;
	assert_int_equal(modules_add(d->fd, &c, &nested, &e), 0);
	assert_non_null(memmem(b.data, b.len, want, sizeof(want) - 1));
	/* The modules of isolation.nested are apart, as far as the kernel has them. */
	assert_null(memmem(b.data, b.len, "bridge", 6));
	assert_non_null(memmem(more.data, more.len, extra, sizeof(extra) - 1));
	assert_null(memmem(more.data, more.len, "veth", 4));
}

TEST_IN_DIR(test_modules_in_a_circle)
{
	const struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct cpio c = { .out = &b }, nested = { .out = &b };
	struct err e = ERR_INIT;

	make_dirs(d);
	write_module(d, "kernel/virtio.ko", "virtio_mmio");
	write_module(d, "kernel/virtio_mmio.ko", "virtio");
	assert_int_equal(modules_add(d->fd, &c, &nested, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "circular"));
}

/* ---- programs ---- */

TEST(test_tools_and_what_they_say)
{
	static const char *const good[] = { "true", NULL };
	static const char *const bad[] = { "ls", "/nowhere/at/all", NULL };
	static const char *const absent[] = { "no-such-program", NULL };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(
		tool_run(&(struct tool){ good, "coreutils", -EBADF, -EBADF, NULL, NULL, NULL }, &e),
		0);
	assert_int_equal(
		tool_run(&(struct tool){ bad, "coreutils", -EBADF, -EBADF, NULL, NULL, NULL }, &e),
		-EIO);
	assert_non_null(strstr(e.msg, "ls failed: "));
	assert_non_null(strstr(e.msg, "/nowhere/at/all"));
	assert_int_equal(
		tool_run(&(struct tool){ absent, "a-package", -EBADF, -EBADF, NULL, NULL, NULL },
			 &e),
		-ENOENT);
	assert_non_null(strstr(e.msg, "apt-get install a-package"));
}
