/* SPDX-License-Identifier: Apache-2.0 */
/* A keeper that hears a guest, while a client of ours has asked for one thing of every kind. */
#include "keeper-world.h"

static const char *const env[] = { "A=1", "B=2", NULL };
static const struct spec spec = { .id = "abcdefghijklmnop",
				  .user = "user",
				  .workspace = "/w",
				  .env = { (const char **)env, 2 } };

static void ask(struct world *w, enum wire_op op)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	if (op == WIRE_OP_EXEC)
		fields_put_text(&b, TAG_ARGV, "x");
	else if (op == WIRE_OP_PORT)
		fields_put_number(&b, TAG_PORT, 80);
	else
		fields_put_text(&b, TAG_PATH, "/x");
	if (op == WIRE_OP_MOVE)
		fields_put_text(&b, TAG_TARGET, "/y");
	if (op == WIRE_OP_LIST)
		fields_put_number(&b, TAG_DEPTH, 1);
	assert(link_open(w->ours, op, &b, NULL, &w->ch[w->n]) == 0);
	w->n++;
}

static void act(struct world *w)
{
	size_t i = draw(w, CHANNELS);
	uint32_t what = draw(w, 16);

	if (i >= w->n || w->ch[i] == 0)
		return;
	if (what == 0)
		act_close(w, i);
	else if (what < 8)
		act_read(w, i);
	else
		act_stream(w, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;

	world_start(&w, &spec, LINK_KEEPER);
	for (unsigned int op = WIRE_OP_EXEC; op <= WIRE_OP_UNPACK; op++)
		ask(&w, (enum wire_op)op);
	ask(&w, WIRE_OP_EXEC);
	ask(&w, WIRE_OP_PORT);
	(void)move(w.ours, w.client->port.link);
	keeper_round(&w.k);
	(void)move(w.k.guest.link, NULL);
	world_run(&w, data, size, act);
	world_end(&w);
	return 0;
}
