/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest EROFS: one block with a superblock and an empty root directory, for a test guest
 * that must mount an image. The structures are the kernel's (fs/erofs/erofs_fs.h), little-endian as
 * on x86-64.
 */
#include <string.h>

#include "vm/accel-inner.h"

enum {
	BLOCK_BITS = 12,
	SUPER_AT = 1024,
	INODE_SIZE = 32,
	ROOT_AT = SUPER_AT + 128,
	FLAT_INLINE = 2 << 1, /* compact inode, data inline */
	TYPE_DIRECTORY = 2,
};
static_assert(ACCEL_ROOT_SIZE == 1 << BLOCK_BITS, "one block");

struct super {
	uint32_t magic, checksum, feature_compat;
	uint8_t block_bits, slots;
	uint16_t root;
	uint64_t inodes, time;
	uint32_t time_nsec, blocks, meta_at, xattr_at;
	uint8_t rest[80]; /* uuid, label, features: none */
} __attribute__((packed));
static_assert(sizeof(struct super) == ROOT_AT - SUPER_AT, "the kernel's size of it");

struct inode {
	uint16_t format, xattrs, mode, links;
	uint32_t size, reserved, block, number;
	uint16_t uid, gid;
	uint32_t reserved2;
} __attribute__((packed));
static_assert(sizeof(struct inode) == INODE_SIZE, "the kernel's size of it");

struct entry {
	uint64_t inode;
	uint16_t name;
	uint8_t type, reserved;
} __attribute__((packed));

void accel_empty_root(char ret[static ACCEL_ROOT_SIZE])
{
	const uint16_t root = ROOT_AT / INODE_SIZE;
	const struct super super = { .magic = 0xe0f5e1e2,
				     .block_bits = BLOCK_BITS,
				     .root = root,
				     .inodes = 1,
				     .blocks = 1 };
	static const char names[] = { '.', '.', '.' }; /* "." and ".." */
	const struct entry entries[2] = { { root, sizeof(entries), TYPE_DIRECTORY, 0 },
					  { root, sizeof(entries) + 1, TYPE_DIRECTORY, 0 } };
	const struct inode inode = { .format = FLAT_INLINE,
				     .mode = 0040755,
				     .links = 2,
				     .size = sizeof(entries) + sizeof(names),
				     .number = 1 };

	memset(ret, 0, ACCEL_ROOT_SIZE);
	memcpy(ret + SUPER_AT, &super, sizeof(super));
	memcpy(ret + ROOT_AT, &inode, sizeof(inode));
	memcpy(ret + ROOT_AT + sizeof(inode), entries, sizeof(entries));
	memcpy(ret + ROOT_AT + sizeof(inode) + sizeof(entries), names, sizeof(names));
}
