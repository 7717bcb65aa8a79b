/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper that receives fuzzed bytes from a guest while our client has one operation of every kind
 * open. If the second byte is odd, the guest has its own kernel and requests connections. None
 * leaves the host: the resolver's port is unused. Some streams are marked as connected
 * nevertheless.
 */
#include "keeper-world.h"
#include "keeper/connect.h"

static const char *const env[] = { "A=1", "B=2", NULL };
static const char *const allow[] = { ".allowed.test:80/tcp", "web.allowed.test:443" };
static const struct spec spec = { .id = "abcdefghijklmnop",
				  .user = "user",
				  .workspace = "/w",
				  .env = { (const char **)env, 2 } };
static const struct spec machine = {
	.id = "abcdefghijklmnop",
	.user = "user",
	.workspace = "/w",
	.env = { (const char **)env, 2 },
	.limits.pids = 64,
	.machine.kernel = "/kernel",
	.egress = { .allow = { (const char **)allow, 2 },
		    .bytes_out = 1 << 30,
		    .bytes_in = 1 << 30,
		    .streams = 8,
		    .streams_per_minute = 1 << 20,
		    .names = 64 },
};

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

/* Reports a connection, as the broker would; the lookup continues. */
static void connect_one(struct world *w)
{
	uint32_t ch = 1 + 2 * draw(w, CHANNELS);
	void *c = link_cookie(w->k.guest.link, ch);

	if (!c || w->connected[ch / 2])
		return;
	w->connected[ch / 2] = true;
	connection_reply(&w->k, c, -EBADF, true, BROKER_OK);
}

static void act(struct world *w)
{
	size_t i = draw(w, CHANNELS);
	uint32_t what = draw(w, 16);

	if (w->k.egress) {
		connect_one(w);
		(void)loop_once(w->k.loop, 0);
		assert(w->k.egress->n_sockets <= machine.egress.streams + 1);
		assert(w->k.egress->held <= machine.egress.streams * WIRE_CREDIT_START);
	}
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

	(void)setenv("HUTCH_RESOLVER", "127.0.0.1:9", 1);
	world_start(&w, size > 1 && data[1] % 2 == 1 ? &machine : &spec, LINK_KEEPER);
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
