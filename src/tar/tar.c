/* SPDX-License-Identifier: Apache-2.0 */
#include "tar/tar.h"

#include <string.h>

#include "tar/tar-header.h"
#include "tar/tar-pax.h"

/* Reads exactly n bytes: 1, 0 if the input ends before the first one, or -errno. */
static int read_whole(struct tar *t, void *buf, size_t n, struct err *e)
{
	size_t have = 0;

	while (have < n) {
		int64_t k = t->read(t->arg, (char *)buf + have, n - have, e);

		if (k < 0)
			return (int)k;
		if (k == 0 && have == 0)
			return 0;
		if (k == 0)
			break;
		have += (size_t)k;
	}
	return have == n ? 1 : err_set(e, -EINVAL, "the archive is cut off");
}

static int need(struct tar *t, void *buf, size_t n, struct err *e)
{
	int r = read_whole(t, buf, n, e);

	if (r == 0)
		return err_set(e, -EINVAL, "the archive is cut off");
	return r < 0 ? r : 0;
}

static int skip(struct tar *t, uint64_t n, struct err *e)
{
	char scratch[4096];
	int r = 0;

	while (r == 0 && n > 0) {
		size_t part = (size_t)MIN(n, (uint64_t)sizeof(scratch));

		r = need(t, scratch, part, e);
		n -= part;
	}
	return r;
}

static uint32_t padding_of(uint64_t size)
{
	return (uint32_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

/* Parses leading spaces, octal digits, then NUL or space; or GNU's base 256. Empty is 0. */
static int number(const char *field, size_t n, uint64_t max, const char *what, uint64_t *ret,
		  struct err *e)
{
	const unsigned char *p = (const unsigned char *)field;
	uint64_t v = 0;
	size_t i = 0;

	if (p[0] == 0x80) {
		for (i = 1; i < n; i++) {
			if (v > UINT64_MAX >> 8)
				return err_set(e, -EINVAL, "a %s out of range", what);
			v = v << 8 | p[i];
		}
	} else {
		while (i < n && p[i] == ' ')
			i++;
		for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
			v = v << 3 | (uint64_t)(p[i] - '0'); /* 12 digits at most: 36 bits */
		for (; i < n; i++)
			if (p[i] != '\0' && p[i] != ' ')
				return err_set(e, -EINVAL, "a %s that is not a number", what);
	}
	if (v > max)
		return err_set(e, -EINVAL, "a %s out of range", what);
	*ret = v;
	return 0;
}

static int check_header(const struct tar_header *h, struct err *e)
{
	const unsigned char *p = (const unsigned char *)h;
	const size_t from = offsetof(struct tar_header, checksum);
	uint64_t said = 0, sum = 0;
	int r = number(h->checksum, sizeof(h->checksum), UINT32_MAX, "checksum", &said, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= from && i < from + sizeof(h->checksum) ? ' ' : p[i];
	if (sum != said)
		return err_set(e, -EINVAL, "a header with a wrong checksum: not a tar archive?");
	if (memcmp(h->magic,
		   "ustar\0"
		   "00",
		   8) != 0 &&
	    memcmp(h->magic, "ustar  ", 8) != 0)
		return err_set(e, -EINVAL, "neither ustar nor pax nor GNU format");
	return 0;
}

static bool is_gnu(const struct tar_header *h)
{
	return h->magic[5] == ' ';
}

/* Reads the data of an 'L' or 'K' entry: a name and a NUL. */
static int read_gnu_name(struct tar *t, uint64_t size, bool *has, char *out, size_t *out_len,
			 struct err *e)
{
	int r;

	if (*has)
		return err_set(e, -EINVAL, "two long names for one entry");
	if (size < 2 || size > TAR_NAME_MAX + 1)
		return err_set(e, -EINVAL, "a name of %llu bytes", (unsigned long long)size);
	r = need(t, out, (size_t)size, e);
	if (r == 0)
		r = skip(t, padding_of(size), e);
	if (r < 0)
		return r;
	if (out[size - 1] != '\0' || memchr(out, '\0', (size_t)size - 1))
		return err_set(e, -EINVAL, "a name with a NUL byte");
	*out_len = (size_t)size - 1;
	*has = true;
	return 0;
}

/*
 * Reads one record of a pax header, "LENGTH KEY=VALUE\n"; LENGTH is that of the whole record.
 * *left is the unread rest of the header.
 */
static int read_record(struct tar *t, struct tar_more *m, bool global, uint64_t *left,
		       struct err *e)
{
	static const size_t key_max = 256;
	char text[TAR_RECORD_MAX + 1], *equals;
	uint64_t length = 0, head = 0, body;
	int r;
	char c;

	for (;; length = length * 10 + (uint64_t)(c - '0')) {
		r = *left > head ? need(t, &c, 1, e) : err_set(e, -EINVAL, "a bad extended header");
		if (r < 0)
			return r;
		head++;
		if (c == ' ')
			break;
		if (c < '0' || c > '9' || head > 8 || (head == 1 && c == '0'))
			return err_set(e, -EINVAL, "a bad extended header");
	}
	if (length < head + 3 || length > *left)
		return err_set(e, -EINVAL, "a bad extended header");
	*left -= length;
	body = length - head;
	r = need(t, text, (size_t)MIN(body, (uint64_t)TAR_RECORD_MAX), e);
	if (r < 0)
		return r;
	equals = memchr(text, '=', (size_t)MIN(body, (uint64_t)key_max));
	if (!equals || equals == text)
		return err_set(e, -EINVAL, "a bad extended header");
	if (body > TAR_RECORD_MAX) {
		r = pax_skipped(m, global, text, (size_t)(equals - text), e);
		return r < 0 ? r : skip(t, body - TAR_RECORD_MAX, e);
	}
	if (text[body - 1] != '\n')
		return err_set(e, -EINVAL, "a bad extended header");
	return pax_record(m, global, text, (size_t)(equals - text), equals + 1,
			  (size_t)body - 2 - (size_t)(equals - text), e);
}

static int read_pax(struct tar *t, struct tar_more *m, bool global, uint64_t size, struct err *e)
{
	uint64_t left = size;
	int r = 0;

	if (size > TAR_PAX_MAX)
		return err_set(e, -EINVAL, "an extended header of %llu bytes",
			       (unsigned long long)size);
	while (r == 0 && left > 0)
		r = read_record(t, m, global, &left, e);
	return r < 0 ? r : skip(t, padding_of(size), e);
}

/* Takes names from the header's fields unless an extended header has given them. */
static int fill_names(const struct tar_header *h, struct tar_more *m)
{
	size_t n = strnlen(h->name, sizeof(h->name)), at = 0;

	if (!m->has_name) {
		size_t prefix = is_gnu(h) ? 0 : strnlen(h->prefix, sizeof(h->prefix));

		memcpy(m->name, h->prefix, prefix);
		at = prefix;
		if (prefix > 0)
			m->name[at++] = '/';
		memcpy(m->name + at, h->name, n);
		m->name_len = at + n;
		m->name[m->name_len] = '\0';
	}
	if (!m->has_link) {
		m->link_len = strnlen(h->link, sizeof(h->link));
		memcpy(m->link, h->link, m->link_len);
		m->link[m->link_len] = '\0';
	}
	return m->name_len == 0 ? -EINVAL : 0;
}

static int fill_numbers(const struct tar_header *h, struct tar_more *m, uint32_t *ret_mode,
			struct err *e)
{
	uint64_t mode = 0;
	int r = number(h->mode, sizeof(h->mode), UINT32_MAX, "mode", &mode, e);

	if (r == 0 && !m->has_uid)
		r = number(h->uid, sizeof(h->uid), TAR_ID_MAX, "uid", &m->uid, e);
	if (r == 0 && !m->has_gid)
		r = number(h->gid, sizeof(h->gid), TAR_ID_MAX, "gid", &m->gid, e);
	if (r == 0 && !m->has_mtime && (unsigned char)h->mtime[0] != 0xff)
		r = number(h->mtime, sizeof(h->mtime), UINT64_MAX >> 24, "time", &m->mtime, e);
	*ret_mode = (uint32_t)mode & 07777;
	return r;
}

static int type_of(const struct tar_header *h, enum tar_type *ret, struct err *e)
{
	switch (h->type) {
	case '0':
	case '\0':
	case '7':
		*ret = TAR_FILE;
		return 0;
	case '1':
		*ret = TAR_HARDLINK;
		return 0;
	case '2':
		*ret = TAR_SYMLINK;
		return 0;
	case '3':
	case '4':
		*ret = TAR_DEVICE;
		return 0;
	case '5':
		*ret = TAR_DIR;
		return 0;
	case '6':
		*ret = TAR_FIFO;
		return 0;
	case 'S':
		return err_set(e, -EINVAL, "sparse files are not accepted: pack without --sparse");
	default:
		return err_set(e, -EINVAL, "an entry of unknown type 0x%02x",
			       (unsigned int)(unsigned char)h->type);
	}
}

static int clean_name(const struct tar *t, const char *name, size_t n,
		      char out[static TAR_NAME_MAX + 1], struct err *e)
{
	if (t->relative && name[0] == '/')
		return err_set(e, -EINVAL, "'%.100s': names must not be absolute", name);
	return tar_clean_name(name, n, out, e);
}

static int make_entry(struct tar *t, const struct tar_header *h, struct tar_more *m, uint64_t size,
		      struct tar_entry *ret, struct err *e)
{
	int r = type_of(h, &ret->type, e);

	if (r == 0 && fill_names(h, m) < 0)
		r = err_set(e, -EINVAL, "an entry without a name");
	if (r == 0)
		r = clean_name(t, m->name, m->name_len, ret->name, e);
	if (r == 0)
		r = fill_numbers(h, m, &ret->mode, e);
	if (r < 0)
		return r;
	/* Old archives mark a directory by a slash at the end of a file's name. */
	if (ret->type == TAR_FILE && m->name[m->name_len - 1] == '/')
		return err_set(e, -EINVAL, "'%.100s': a file whose name ends in '/'", ret->name);
	if ((ret->type == TAR_HARDLINK || ret->type == TAR_SYMLINK) && m->link_len == 0)
		return err_set(e, -EINVAL, "'%.100s': a link to nothing", ret->name);
	if (ret->type == TAR_HARDLINK)
		r = clean_name(t, m->link, m->link_len, ret->link, e);
	else
		memcpy(ret->link, m->link, m->link_len + 1);
	if (r < 0)
		return r;
	ret->uid = (uint32_t)m->uid;
	ret->gid = (uint32_t)m->gid;
	ret->mtime = m->mtime;
	ret->xattrs = m->xattrs;
	if (m->has_size)
		size = m->size;
	/* pax(1) ignores the size field of links and the like; readers differ, so reject data. */
	if (ret->type != TAR_FILE && size != 0)
		return err_set(e, -EINVAL, "'%.100s': data where none can be", ret->name);
	ret->size = t->left = size;
	t->padding = padding_of(size);
	return 0;
}

/* Two blocks of zeros end an archive; only more of them may follow. */
static int read_end(struct tar *t, struct err *e)
{
	static const char zero[TAR_BLOCK];
	char block[TAR_BLOCK];
	int r = need(t, block, sizeof(block), e);

	t->ended = true;
	while (r >= 0 && memcmp(block, zero, TAR_BLOCK) == 0) {
		r = read_whole(t, block, sizeof(block), e);
		if (r == 0)
			return 0;
	}
	return r < 0 ? r : err_set(e, -EINVAL, "bytes behind the end of the archive");
}

static int next(struct tar *t, struct tar_entry *ret, struct err *e)
{
	static const char zero[TAR_BLOCK];
	struct tar_more m = { 0 };
	struct tar_header h;
	uint64_t size = 0;
	bool more = false;
	int r = skip(t, t->left + t->padding, e);

	t->left = t->padding = 0;
	for (; r == 0; more = true) {
		t->entries++;
		r = need(t, &h, sizeof(h), e);
		if (r == 0 && memcmp(&h, zero, sizeof(h)) == 0)
			return more ? err_set(e, -EINVAL, "an extended header for nothing")
				    : read_end(t, e);
		if (r == 0)
			r = check_header(&h, e);
		if (r == 0)
			r = number(h.size, sizeof(h.size), TAR_SIZE_MAX, "size", &size, e);
		if (r < 0)
			return r;
		if (h.type == 'x' || h.type == 'g')
			r = read_pax(t, &m, h.type == 'g', size, e);
		else if (h.type == 'L')
			r = read_gnu_name(t, size, &m.has_name, m.name, &m.name_len, e);
		else if (h.type == 'K')
			r = read_gnu_name(t, size, &m.has_link, m.link, &m.link_len, e);
		else
			break;
	}
	r = r < 0 ? r : make_entry(t, &h, &m, size, ret, e);
	return r < 0 ? r : 1;
}

int tar_next(struct tar *t, struct tar_entry *ret, struct err *e)
{
	int r;

	if (t->ended)
		return 0;
	r = next(t, ret, e);
	if (r == -EINVAL)
		return err_wrap(e, "tar header %llu", (unsigned long long)t->entries);
	return r;
}

int64_t tar_read(struct tar *t, void *buf, size_t n, struct err *e)
{
	int64_t k;

	n = (size_t)MIN((uint64_t)n, t->left);
	if (n == 0)
		return 0;
	k = t->read(t->arg, buf, n, e);
	if (k == 0)
		return err_set(e, -EINVAL, "the archive is cut off");
	if (k > 0)
		t->left -= (uint64_t)k;
	return k;
}
