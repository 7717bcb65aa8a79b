/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive from an untrusted sender. For any bytes, names come out in canonical form and sizes
 * within their limits, and the split of the input into reads changes nothing.
 */
#include <string.h>

#include "fuzz.h"
#include "tar/tar.h"

struct input {
	const uint8_t *data;
	size_t n, step;
};

static int64_t give(void *arg, void *buf, size_t n, struct err *e)
{
	struct input *in = arg;
	size_t k = MIN(MIN(n, in->n), in->step);

	memcpy(buf, in->data, k);
	in->data += k;
	in->n -= k;
	return (int64_t)k;
}

static void check_name(const char *name)
{
	static char again[TAR_NAME_MAX + 1];
	struct err e = ERR_INIT;

	assert(name[0] && name[0] != '/' && strlen(name) <= TAR_NAME_MAX);
	assert(tar_clean_name(name, strlen(name), again, &e) == 0 && strcmp(name, again) == 0);
}

/* A checksum over all results. */
static uint64_t walk(const uint8_t *data, size_t size, size_t step)
{
	static struct tar_entry en;
	struct input in = { data, size, step };
	struct tar t = { .read = give, .arg = &in };
	struct err e = ERR_INIT;
	uint64_t sum = 5381, bytes = 0;
	char chunk[700];
	int64_t k;
	int r;

	while ((r = tar_next(&t, &en, &e)) > 0) {
		check_name(en.name);
		if (en.type == TAR_HARDLINK)
			check_name(en.link);
		assert(en.mode <= 07777 && en.size <= TAR_SIZE_MAX);
		assert(en.type == TAR_FILE || en.size == 0);
		for (const char *p = en.name; *p; p++)
			sum = sum * 33 + (unsigned char)*p;
		sum = sum * 33 + en.size + en.uid + en.gid + en.mtime + en.xattrs;
		while ((k = tar_read(&t, chunk, sizeof(chunk), &e)) > 0)
			bytes += (uint64_t)k;
		if (k < 0)
			break;
	}
	assert(r >= 0 || (r == -EINVAL && e.msg[0]));
	assert(bytes <= size);
	return sum * 33 + bytes + (uint64_t)(r < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	assert(walk(data, size, SIZE_MAX) == walk(data, size, 7));
	return 0;
}
