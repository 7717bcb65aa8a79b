/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that the keeper only passes on, to a guest that the test plays. */
#include "test-keeper.h"

/* Passes on every field that a client may send with an operation, and adds the user. */
TEST(what_files_need_is_passed_on)
{
	static const struct {
		enum wire_op op;
		enum wire_message m;
		enum wire_tag flag, text;
	} rows[] = { { WIRE_OP_WRITE, MESSAGE_WRITE, TAG_PARENTS, TAG_META },
		     { WIRE_OP_STAT, MESSAGE_STAT, TAG_FOLLOW, 0 },
		     { WIRE_OP_REMOVE, MESSAGE_REMOVE, 0, 0 } };
	_cleanup_bench_ struct bench b;

	bench_init(&b, state);
	b.spec.user = "agent";
	bench_start(&b, false);
	bench_go(&b);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf sent = BUF_INIT(256);
		struct err e = ERR_INIT;
		const struct talk *g;
		struct fields f;

		fields_put_text(&sent, TAG_PATH, "x");
		if (rows[i].flag)
			fields_put_flag(&sent, rows[i].flag);
		if (rows[i].text)
			fields_put_text(&sent, rows[i].text, "key=value");
		(void)peer_open(b.client, rows[i].op, &sent);
		g = asked(&b);
		assert_int_equal(fields_parse(rows[i].m, g->open.data, g->open.len, &f, &e), 0);
		assert_true(fields_has(&f, TAG_USER));
		assert_true(!rows[i].flag || fields_has(&f, rows[i].flag));
		assert_true(!rows[i].text || fields_has(&f, rows[i].text));
	}
}

/* Both directions of the one stream, and no user. */
TEST(a_port_is_passed_on)
{
	_cleanup_bench_ struct bench b;
	_cleanup_buf_ struct buf port = BUF_INIT(64);
	struct talk *t, *g;

	bench_init(&b, state);
	b.spec.user = "agent";
	bench_start(&b, false);
	bench_go(&b);
	fields_put_number(&port, TAG_PORT, 8080);
	t = peer_open(b.client, WIRE_OP_PORT, &port);
	g = asked(&b);
	assert_int_equal(g->op, WIRE_OP_PORT);
	assert_int_equal(g->open.len, port.len);
	assert_memory_equal(g->open.data, port.data, port.len);
	assert_int_equal(link_accept(b.guest->l, g->ch, NULL), 0);
	UNTIL2(b.guest, b.client, t->accepted);
	assert_int_equal(link_data(b.client->l, t->ch, 0, "request", 7), 7);
	assert_int_equal(link_eof(b.client->l, t->ch, 0), 0);
	UNTIL2(b.guest, b.client, g->eof[0]);
	assert_string_equal(g->out[0], "request");
	assert_int_equal(link_data(b.guest->l, g->ch, 0, "answer", 6), 6);
	assert_int_equal(link_data(b.guest->l, g->ch, 1, "no such stream", 14), 14);
	assert_int_equal(link_eof(b.guest->l, g->ch, 0), 0);
	assert_int_equal(link_close(b.guest->l, g->ch, WIRE_DONE, NULL), 0);
	UNTIL2(b.guest, b.client, t->closed);
	assert_string_equal(t->out[0], "answer");
	assert_true(t->eof[0] && t->got[1] == 0);
	assert_int_equal(t->code, WIRE_DONE);
}

int main(void)
{
	return unit_run_as_root("the keeper's ids are taken by root, and clients are root",
				unit_dir_setup, unit_dir_teardown);
}
