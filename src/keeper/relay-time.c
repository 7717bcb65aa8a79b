/* SPDX-License-Identifier: Apache-2.0 */
/* Time limits of commands. They stand still while the sandbox is paused. */
#include <string.h>

#include "base/clock.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

static void on_time(struct loop_timer *t)
{
	static const struct {
		uint64_t ms;
		const char *name;
	} units[] = { { 3600000, "h" }, { 60000, "m" }, { 1000, "s" }, { 1, "ms" } };
	struct relay *r = t->arg;
	char text[128];
	size_t i = 0;

	while (r->clock.limit % units[i].ms != 0)
		i++;
	(void)snprintf(text, sizeof(text), "time limit of %llu%s reached%s%s",
		       (unsigned long long)(r->clock.limit / units[i].ms), units[i].name,
		       halted(r->keeper) ? "; the VM has stopped: " : "",
		       life_stop_texts[halted(r->keeper) ? r->keeper->halt.why : LIFE_RUNS]);
	journal_limit(r, text);
	relay_finish(r, WIRE_TIMEOUT, text, strlen(text));
}

int relay_start_timer(struct relay *r)
{
	r->clock.timer = (struct loop_timer){ .cb = on_time, .arg = r };
	if (r->op != WIRE_OP_EXEC || r->clock.limit >= UINT64_MAX / NSEC_PER_MSEC / 2)
		return 0;
	if (r->keeper->life.paused) {
		r->clock.left = r->clock.limit * NSEC_PER_MSEC;
		return 0;
	}
	return loop_set_timer(r->keeper->loop, &r->clock.timer,
			      clock_mono() + r->clock.limit * NSEC_PER_MSEC);
}

static int set_clock(struct relay *r, bool stop, uint64_t now)
{
	uint64_t left = r->clock.left;

	if (stop && r->clock.timer.slot != 0)
		r->clock.left = MAX(r->clock.timer.when, now + 1) - now;
	if (stop) {
		loop_del_timer(&r->clock.timer);
		return 0;
	}
	r->clock.left = 0;
	/* The command may have ended during the pause. */
	return left > 0 && r->guest_ch != 0
		       ? loop_set_timer(r->keeper->loop, &r->clock.timer, now + left)
		       : 0;
}

void relays_set_clocks(struct keeper *k)
{
	const uint64_t now = clock_mono();

	for (struct relay *r = k->relays.list; r; r = r->next)
		if (set_clock(r, k->life.paused, now) < 0)
			keeper_stop(k, KEEPER_FAILED);
}
