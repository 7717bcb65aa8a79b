/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a proxy stream: whole or byte by byte, the result and the reply are the same, and the
 * target has the canonical form of names and addresses.
 */
#include <string.h>

#include "egress/front.h"
#include "fuzz.h"

enum {
	OUT_MAX = 64
};

static size_t feed(struct front *f, const uint8_t *data, size_t size, size_t step, struct buf *out)
{
	size_t used = 0;

	while (used < size && f->state == FRONT_MORE)
		used += front_feed(f, data + used, MIN(step, size - used), out);
	assert(out->err == 0);
	return used;
}

static void check_target(const struct target *t)
{
	struct name name;
	struct err e = ERR_INIT;

	assert(t->port != 0);
	if (t->is_addr)
		assert(t->addr.prefix == (t->addr.family == 4 ? 32 : 128));
	else
		assert(name_parse(t->name.text, t->name.len, &name, &e) == 0 &&
		       strcmp(name.text, t->name.text) == 0);
}

static void check_same(const struct target *a, const struct target *b)
{
	assert(a->is_addr == b->is_addr && a->port == b->port);
	assert(a->is_addr ? memcmp(&a->addr, &b->addr, sizeof(a->addr)) == 0
			  : strcmp(a->name.text, b->name.text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf a = BUF_INIT(OUT_MAX), b = BUF_INIT(OUT_MAX);
	struct front whole = { 0 }, pieces = { 0 };
	size_t used = feed(&whole, data, size, size, &a);

	assert(feed(&pieces, data, size, 1, &b) == used);
	assert(whole.state == pieces.state && whole.kind == pieces.kind);
	assert(whole.result == pieces.result && whole.reason == pieces.reason);
	assert(a.len == b.len && memcmp(buf_text(&a), buf_text(&b), a.len) == 0);
	assert(used == size || whole.state != FRONT_MORE);
	if (whole.state == FRONT_DONE) {
		check_same(&whole.target, &pieces.target);
		check_target(&whole.target);
	}
	return 0;
}
