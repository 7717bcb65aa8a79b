/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a worker to its master. */
#include <string.h>

#include "base/clock.h"
#include "image/worker.h"

#define TELL_EVERY (200 * NSEC_PER_MSEC)

void worker_tell(struct worker *w, enum image_phase phase, const struct image_counts *counts)
{
	uint64_t now = clock_mono();
	struct channel_msg m;

	if (phase == w->phase && now - w->told < TELL_EVERY)
		return;
	w->told = now;
	w->phase = phase;
	m = (struct channel_msg){ .type = CHANNEL_PROGRESS, .phase = phase, .counts = *counts };
	/* Progress is optional: a message that does not fit is dropped. */
	(void)channel_send(w->sock, &m, -EBADF, false);
}

int worker_config(struct worker *w, const char *key, const char *value, struct err *e)
{
	struct channel_msg m = { .type = CHANNEL_CONFIG };
	int n = snprintf(m.text, sizeof(m.text), "%s %s", key, value), r;

	if (n < 0 || (size_t)n >= sizeof(m.text))
		return err_set(e, -EINVAL,
			       "the image's configuration has a text of more than %d bytes",
			       IMAGE_TEXT_MAX);
	r = channel_send(w->sock, &m, -EBADF, true);
	return r < 0 ? err_set(e, r, "cannot talk to the master: %s", strerror(-r)) : 0;
}
