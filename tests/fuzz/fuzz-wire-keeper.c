/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's end of the link, which receives the guest's bytes, the least trusted input of all.
 * It has opened every operation once (channels 2 to 22, and 26: a port), and channel 24 is a
 * running command. If the second byte is odd, the guest has its own kernel and may open channels.
 */
#include "wire-shadow.h"

enum {
	LAST_ASKED = 2 * WIRE_OP_UNPACK,
	RUNNING = LAST_ASKED + 2,
};

static void ask(struct world *w, enum wire_op op)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	struct shadow *s;
	uint32_t ch = 0;

	if (op == WIRE_OP_PORT)
		fields_put_number(&b, TAG_PORT, 80);
	else
		fields_put_text(&b, op == WIRE_OP_EXEC ? TAG_ARGV : TAG_PATH, "x");
	if (op == WIRE_OP_MOVE)
		fields_put_text(&b, TAG_TARGET, "y");
	if (op == WIRE_OP_LIST)
		fields_put_number(&b, TAG_DEPTH, 1);
	assert(link_open(w->l, op, &b, NULL, &ch) == 0);
	s = shadow_new(w, ch, SHADOW_ASKING);
	link_set_cookie(w->l, ch, s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf hello = BUF_INIT(256), theirs = BUF_INIT(256),
				 first = BUF_INIT(256), pid = BUF_INIT(64);
	struct world w;

	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	fields_put_number(&theirs, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&theirs, TAG_AGENT, "fuzz");
	put_frame(&first, WIRE_HELLO, 0, 0, &theirs);
	world_start(&w, LINK_KEEPER, &hello, &first);
	for (unsigned int op = WIRE_OP_EXEC; op <= WIRE_OP_UNPACK; op++)
		ask(&w, (enum wire_op)op);
	ask(&w, WIRE_OP_EXEC);
	ask(&w, WIRE_OP_PORT);
	buf_reset(&first);
	fields_put_number(&pid, TAG_PID, 1);
	put_frame(&first, WIRE_ACCEPT, RUNNING, 0, &pid);
	w.asked = size > 1 && data[1] % 2 == 1;
	if (w.asked)
		link_guest_asks(w.l);
	w.seed = 6; /* draws that leave it open */
	world_feed(&w, (const uint8_t *)first.data, first.len);
	world_run(&w, data, size);
	world_end(&w);
	return 0;
}
