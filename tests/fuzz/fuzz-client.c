/* SPDX-License-Identifier: Apache-2.0 */
/* A keeper that receives fuzzed bytes from a client; our guest does every operation requested of
 * it. */
#include "keeper-world.h"

static const char *const env[] = { "A=1", "B=2", NULL };
static const struct spec spec = { .id = "abcdefghijklmnop",
				  .user = "user",
				  .workspace = "/w",
				  .env = { (const char **)env, 2 } };

static void put_entry(struct buf *b)
{
	fields_put_text(b, TAG_PATH, "/x");
	fields_put_number(b, TAG_MODE, 0644);
	fields_put_number(b, TAG_KIND, WIRE_FILE);
	fields_put_number(b, TAG_SIZE, 1);
	fields_put_number(b, TAG_UID, 1);
	fields_put_number(b, TAG_GID, 1);
	fields_put_number(b, TAG_MTIME, 1);
}

static void answer(struct world *w, size_t i)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	enum wire_message m = MESSAGE_NONE;

	assert(message_of_accept((uint8_t)w->op[i], false, &m) == 0);
	if (m == MESSAGE_STARTED)
		fields_put_number(&b, TAG_PID, 7);
	if (m == MESSAGE_ENTRY)
		put_entry(&b);
	w->open[i] = link_accept(w->ours, w->ch[i], &b) == 0;
}

static void act_exit(struct world *w, size_t i)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	fields_put_number(&b, TAG_CODE, 1);
	fields_put_number(&b, TAG_USER_US, 0);
	fields_put_number(&b, TAG_SYSTEM_US, 0);
	fields_put_number(&b, TAG_MAX_RSS, 0);
	(void)link_msg(w->ours, w->ch[i], WIRE_MSG_EXIT, &b);
}

/* Answers a pending request, even if its client has gone; an answer without a request is
 * refused. */
static void act_warden(struct world *w)
{
	const struct life_answer a = { .result = (enum life_result)draw(w, LIFE_RESULTS),
				       .paused = draw(w, 2),
				       .ms = draw(w, 1000) };
	const bool asked = w->k.life.n > 0;

	assert(life_answered(&w->k, life_answer_pack(&a)) == asked);
	if (draw(w, 32) == 0)
		life_paused(&w->k);
}

static void act(struct world *w)
{
	if (draw(w, 4) == 0)
		act_warden(w);
	for (size_t i = 0; i < w->n; i++) {
		uint32_t what = draw(w, 20);

		if (w->ch[i] == 0)
			continue;
		if (what == 0)
			act_close(w, i);
		else if (!w->open[i] && what < 10)
			answer(w, i);
		else if (what == 1 && w->open[i])
			act_exit(w, i);
		else if (what < 10)
			act_read(w, i);
		else
			act_stream(w, i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t hello[] = { 0, 0, 0, 12, 0, 0, 0, 0, WIRE_HELLO, 0, 0, 0,
					 1, 0, 0, 8,  0, 0, 0, 0, 0,	      0, 0, 1 };
	static struct world w;
	struct err e = ERR_INIT;

	world_start(&w, &spec, LINK_GUEST);
	assert(link_feed(w.theirs, hello, sizeof(hello), &e) == 0);
	world_run(&w, data, size, act);
	world_end(&w);
	return 0;
}
