/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/sockets.h"

uint8_t capture_sockets_mask(const struct capture_sockets *s)
{
	unsigned int mask = 0;

	for (unsigned int i = 0; i < CAPTURE_SOCKETS; i++)
		if (s->fds[i] >= 0)
			mask |= 1U << i;
	return (uint8_t)mask;
}

int capture_sockets_place(struct capture_sockets *s, uint8_t mask)
{
	struct capture_sockets placed = CAPTURE_SOCKETS_INIT;
	size_t k = 0;

	for (unsigned int i = 0; i < CAPTURE_SOCKETS; i++)
		if (mask & 1U << i)
			placed.fds[i] = s->fds[k++];
	if (capture_sockets_mask(&placed) != mask || (k < CAPTURE_SOCKETS && s->fds[k] >= 0))
		return -EBADMSG;
	*s = placed;
	return 0;
}
