/* SPDX-License-Identifier: Apache-2.0 */
/* Common uses of the link: check a result, refuse a channel, hold back small frames. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "guest/guest.h"

enum {
	HOLD_US = 500,
};

void guest_check(struct guest *g, int r)
{
	if (r >= 0 || r == -ESTALE || g->ended)
		return;
	log_error("the link to the keeper failed: %s", strerror(-r));
	g->ended = true;
	g->result = EXIT_FAILURE;
}

void guest_hold(struct guest *g, bool more)
{
	size_t n;

	if (more && g->held == 0)
		return;
	(void)link_pending(g->link, &n);
	g->held_bytes = n;
	if (!more)
		g->held = clock_mono() + HOLD_US * NSEC_PER_MSEC / 1000;
}

/* Makes a text fit for the wire: valid UTF-8 of limited length. File names in it may be neither. */
static const char *fit(const char *text, char out[static WIRE_TEXT_MAX + 1])
{
	size_t n = strnlen(text, WIRE_TEXT_MAX);

	memcpy(out, text, n);
	out[n] = '\0';
	str_make_utf8(out);
	return out;
}

void guest_refuse(struct guest *g, uint32_t ch, enum wire_code code, const char *text)
{
	char clean[WIRE_TEXT_MAX + 1];

	guest_check(g, link_close(g->link, ch, code, text ? fit(text, clean) : NULL));
}
