/* SPDX-License-Identifier: Apache-2.0 */
#include "tar/tar-write.h"

#include <string.h>

#include "tar/tar-header.h"

enum {
	RECORD_HEAD = 32, /* room for the length and key of a pax record */
};

#define OCTAL_MAX(field) ((UINT64_C(1) << (3 * (sizeof(field) - 1))) - 1)

size_t tar_padding(uint64_t size)
{
	return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

/* Fills the field with octal digits and a NUL. */
static void put_number(char *field, size_t n, uint64_t value)
{
	field[--n] = '\0';
	while (n > 0) {
		field[--n] = (char)('0' + (value & 7));
		value >>= 3;
	}
}

static void finish(struct tar_header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned int sum = 0;

	memcpy(h->magic, "ustar", 6);
	memcpy(h->magic + 6, "00", 2);
	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += p[i];
	put_number(h->checksum, sizeof(h->checksum) - 1, sum);
}

/* Writes "LENGTH KEY=VALUE\n"; LENGTH includes its own digits. */
static size_t put_record(char *out, const char *key, const char *value, size_t n)
{
	size_t rest = strlen(key) + n + 3, length = rest + 1;
	char digits[RECORD_HEAD];

	while ((size_t)snprintf(digits, sizeof(digits), "%zu", length) + rest != length)
		length++;
	rest = (size_t)snprintf(out, RECORD_HEAD, "%zu %s=", length, key);
	memcpy(out + rest, value, n);
	out[rest + n] = '\n';
	return length;
}

/* Writes an extended header for values that do not fit into the ordinary one; 0 if all fit. */
static size_t put_extended(const struct tar_item *item, size_t name_len, char *out)
{
	size_t link_len = item->link ? strlen(item->link) : 0, at = TAR_BLOCK;
	struct tar_header h = { .name = "PaxHeader", .type = 'x' };
	char size[RECORD_HEAD];

	if (name_len > sizeof(h.name))
		at += put_record(out + at, "path", item->name, strlen(item->name));
	if (link_len > sizeof(h.link))
		at += put_record(out + at, "linkpath", item->link, link_len);
	if (item->size > OCTAL_MAX(h.size)) {
		int n = snprintf(size, sizeof(size), "%llu", (unsigned long long)item->size);

		at += put_record(out + at, "size", size, (size_t)n);
	}
	if (at == TAR_BLOCK)
		return 0;
	put_number(h.mode, sizeof(h.mode), 0644);
	put_number(h.size, sizeof(h.size), at - TAR_BLOCK);
	finish(&h);
	memcpy(out, &h, sizeof(h));
	memset(out + at, 0, tar_padding(at));
	return at + tar_padding(at);
}

static char type_of(enum tar_type type)
{
	return type == TAR_DIR ? '5' : type == TAR_SYMLINK ? '2' : '0';
}

size_t tar_write_header(const struct tar_item *item, char out[static TAR_HEADER_MAX])
{
	size_t len = strlen(item->name), slash = item->type == TAR_DIR ? 1 : 0, at;
	struct tar_header h = { .type = type_of(item->type) };

	if (len > TAR_NAME_MAX || (item->link && strlen(item->link) > TAR_NAME_MAX))
		return 0;
	assert(item->uid <= TAR_OWNER_MAX && item->gid <= TAR_OWNER_MAX);
	at = put_extended(item, len + slash, out);
	memcpy(h.name, item->name, MIN(len, sizeof(h.name)));
	if (slash && len < sizeof(h.name))
		h.name[len] = '/';
	if (item->link)
		memcpy(h.link, item->link, MIN(strlen(item->link), sizeof(h.link)));
	put_number(h.mode, sizeof(h.mode), item->mode & 07777);
	put_number(h.uid, sizeof(h.uid), item->uid);
	put_number(h.gid, sizeof(h.gid), item->gid);
	put_number(h.size, sizeof(h.size), MIN(item->size, OCTAL_MAX(h.size)));
	put_number(h.mtime, sizeof(h.mtime), MIN(item->mtime, OCTAL_MAX(h.mtime)));
	finish(&h);
	memcpy(out + at, &h, sizeof(h));
	return at + sizeof(h);
}
