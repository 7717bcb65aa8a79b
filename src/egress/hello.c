/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 8446, section 4.1.2 and 5.1; RFC 6066, section 3 (server_name). */
#include "egress/hello.h"

#include <string.h>

#include "base/buf.h"

enum {
	RECORD_HEAD = 5,
	RECORD_HANDSHAKE = 22,
	MESSAGE_HEAD = 4,
	CLIENT_HELLO = 1,
	EXT_SERVER_NAME = 0,
	EXT_ESNI = 0xffce, /* name of ECH as a draft */
	EXT_ECH = 0xfe0d,
	FRAGMENT_MAX = 1 << 14,
};

static int wrong(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* The message, as far as its records have arrived. */
struct message {
	uint8_t data[HELLO_MAX];
	size_t n;
};

/* Length of the message by its header; SIZE_MAX while unknown. */
static size_t whole(const struct message *m)
{
	if (m->n < MESSAGE_HEAD)
		return SIZE_MAX;
	return MESSAGE_HEAD + ((size_t)m->data[1] << 16 | (size_t)m->data[2] << 8 | m->data[3]);
}

/* Appends the available part of a fragment of `len` bytes. The message must end where a fragment
 * ends.
 */
static int join(struct message *m, struct reader *in, size_t len, const char **why)
{
	size_t part = MIN(len, reader_left(in));

	if (len == 0 || len > FRAGMENT_MAX)
		return wrong(why, "a broken TLS record");
	if (part > HELLO_MAX - m->n)
		return wrong(why, "a ClientHello that is too long");
	if (part > 0)
		memcpy(m->data + m->n, reader_bytes(in, part), part);
	len += m->n;
	m->n += part;
	if (m->n > 0 && m->data[0] != CLIENT_HELLO)
		return wrong(why, "not a ClientHello");
	if (m->n < MESSAGE_HEAD)
		return 0;
	if (whole(m) > HELLO_MAX)
		return wrong(why, "a ClientHello that is too long");
	return len > whole(m) ? wrong(why, "bytes behind the ClientHello") : 0;
}

static int read_records(struct message *m, struct reader *in, const char **why)
{
	int r = 0;

	while (r == 0 && reader_left(in) > 0 && m->n < whole(m)) {
		if (in->pos[0] != RECORD_HANDSHAKE)
			return wrong(why, "not a TLS handshake");
		if (reader_left(in) < RECORD_HEAD)
			break;
		if (reader_be(in, 3) >> 8 != (RECORD_HANDSHAKE << 8 | 3))
			return wrong(why, "not a version of TLS");
		r = join(m, in, (size_t)reader_be(in, 2), why);
	}
	return r;
}

/* A vector preceded by its length in `bytes` bytes. */
static struct reader vector(struct reader *r, unsigned int bytes)
{
	uint64_t n = reader_be(r, bytes);
	const uint8_t *p = reader_bytes(r, n);
	struct reader v = reader_of(p ? p : (const uint8_t *)"", p ? n : 0);

	v.err = r->err;
	return v;
}

/* Accepts exactly one host name: RFC 6066 allows a list, but implementations disagree on its
 * meaning. */
static int read_name(struct reader ext, struct hello *ret, const char **why)
{
	struct reader list = vector(&ext, 2), name;
	uint64_t type = reader_be(&list, 1);
	struct err e;

	name = vector(&list, 2);
	if (reader_finish(&ext) < 0 || reader_finish(&list) < 0 || name.err || type != 0)
		return wrong(why, "a broken list of server names");
	if (name_parse((const char *)name.pos, reader_left(&name), &ret->name, &e) < 0)
		return wrong(why, "an invalid server name");
	ret->has_name = true;
	return 0;
}

static int read_extensions(struct reader exts, struct hello *ret, const char **why)
{
	uint8_t seen[65536 / 8] = { 0 };

	while (!exts.err && reader_left(&exts) > 0) {
		uint64_t type = reader_be(&exts, 2);
		struct reader ext = vector(&exts, 2);
		int r = 0;

		if (exts.err)
			break;
		if (seen[type / 8] >> type % 8 & 1)
			return wrong(why, "an extension twice");
		seen[type / 8] |= (uint8_t)(1U << type % 8);
		if (type == EXT_SERVER_NAME)
			r = read_name(ext, ret, why);
		ret->ech |= type == EXT_ECH || type == EXT_ESNI;
		if (r < 0)
			return r;
	}
	return exts.err ? wrong(why, "broken extensions") : 0;
}

static int read_message(const uint8_t *p, size_t n, struct hello *ret, const char **why)
{
	struct reader r = reader_of(p + MESSAGE_HEAD, n - MESSAGE_HEAD), sid, suites, methods, exts;
	uint64_t version = reader_be(&r, 2);

	(void)reader_bytes(&r, 32); /* random */
	sid = vector(&r, 1);
	suites = vector(&r, 2);
	methods = vector(&r, 1);
	if (r.err || version >> 8 != 3 || reader_left(&sid) > 32 || reader_left(&suites) < 2 ||
	    reader_left(&suites) % 2 != 0 || reader_left(&methods) < 1)
		return wrong(why, "a broken ClientHello");
	if (reader_left(&r) == 0)
		return 0; /* no extensions: TLS 1.0 to 1.2 allow that */
	exts = vector(&r, 2);
	if (reader_finish(&r) < 0)
		return wrong(why, "a broken ClientHello");
	return read_extensions(exts, ret, why);
}

int hello_parse(const void *data, size_t n, struct hello *ret, const char **ret_why)
{
	struct reader in = reader_of(data, n);
	struct message m;
	struct hello h = { 0 };
	int r;

	m.n = 0;
	r = read_records(&m, &in, ret_why);
	if (r < 0)
		return r;
	if (m.n < whole(&m))
		return 0;
	r = read_message(m.data, m.n, &h, ret_why);
	if (r < 0)
		return r;
	*ret = h;
	return 1;
}
