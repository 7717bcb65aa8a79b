/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/cpio.h"

#include <string.h>
#include <sys/stat.h>

enum {
	CPIO_ALIGN = 4
};

static void pad(struct cpio *c)
{
	while (c->out->err == 0 && c->out->len % CPIO_ALIGN != 0)
		(void)buf_putc(c->out, '\0');
}

struct entry {
	const char *name;
	uint32_t mode, major, minor;
	const void *data;
	size_t n;
};

static void put(struct cpio *c, const struct entry *e)
{
	size_t name_n = strlen(e->name) + 1;

	assert(e->n <= UINT32_MAX);
	pad(c); /* after another archive */
	c->n++;
	/* inode, mode, uid, gid, links, time, size, device, own device, name size, no checksum */
	(void)buf_printf(c->out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", c->n,
			 e->mode, 0U, 0U, S_ISDIR(e->mode) ? 2U : 1U, 0U, (uint32_t)e->n, 0U, 0U,
			 e->major, e->minor, (uint32_t)name_n, 0U);
	(void)buf_put(c->out, e->name, name_n);
	pad(c);
	(void)buf_put(c->out, e->data, e->n);
	pad(c);
}

void cpio_dir(struct cpio *c, const char *name)
{
	put(c, &(struct entry){ .name = name, .mode = S_IFDIR | 0755, .data = "" });
}

void cpio_device(struct cpio *c, const char *name, uint32_t mode, uint32_t major, uint32_t minor)
{
	put(c, &(struct entry){
		       .name = name, .mode = mode, .major = major, .minor = minor, .data = "" });
}

void cpio_file(struct cpio *c, const char *name, uint32_t mode, const void *data, size_t n)
{
	put(c, &(struct entry){ .name = name, .mode = S_IFREG | mode, .data = data, .n = n });
}

int cpio_end(struct cpio *c)
{
	put(c, &(struct entry){ .name = "TRAILER!!!", .data = "" });
	return c->out->err;
}
