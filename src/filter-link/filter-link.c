/* SPDX-License-Identifier: Apache-2.0 */
#include "filter-link/filter-link.h"

#include <string.h>
#include <sys/socket.h>

#include "base/fd-pass.h"
#include "base/util.h"

int filter_send(int fd, const struct filter_packet *p)
{
	assert(p->head.n <= FILTER_BYTES_MAX);
	if (RETRY_EINTR(write(fd, p, filter_packet_size(p))) >= 0)
		return 0;
	return errno == ECONNRESET ? -EPIPE : errno == ENOBUFS ? -EAGAIN : -errno;
}

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return n > 0 && n <= FILTER_RULE_NAME_MAX;
}

static bool is_valid(const struct filter_packet *p, size_t n)
{
	const struct filter_head *h = &p->head;

	if (n < sizeof(*h) || h->n > FILTER_BYTES_MAX || n != filter_packet_size(p))
		return false;
	switch ((enum filter_kind)h->kind) {
	case FILTER_DATA:
		return h->count == 0 && h->late == 0;
	case FILTER_HIT:
		return h->count > 0 && h->count <= FILTER_COUNT_MAX && h->late <= h->count &&
		       h->taken == 0 && is_name(p->bytes, h->n);
	case FILTER_END:
		return h->n == 0 && h->taken == 0 && h->count == 0 && h->late == 0;
	default:
		return false;
	}
}

int filter_receive(int fd, struct filter_packet *ret)
{
	const ssize_t n = RETRY_EINTR(read(fd, ret, sizeof(*ret)));

	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (n == 0)
		return -EPIPE;
	return is_valid(ret, (size_t)n) ? 0 : -EBADMSG;
}

int filter_send_config(int fd, int file)
{
	const struct filter_head head = { .kind = FILTER_CONFIG };
	int r = fd_pass(fd, MSG_DONTWAIT, &head, sizeof(head), &file, 1);

	return r == -ECONNRESET ? -EPIPE : r;
}

int filter_receive_config(int fd, int *ret_file)
{
	struct filter_head head = { 0 };
	int r = fd_receive(fd, MSG_DONTWAIT, &head, sizeof(head), ret_file, 1);

	if (r < 0)
		return r;
	if (head.kind == FILTER_CONFIG && *ret_file >= 0)
		return 0;
	*ret_file = fd_close(*ret_file);
	return -EBADMSG;
}
