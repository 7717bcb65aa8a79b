/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/netlink.h"

#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"

enum {
	ANSWERS_MAX = 8192
};

int netlink_open(struct netlink *nl, int family)
{
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);

	if (sock < 0)
		return -errno;
	*nl = (struct netlink){ .sock = sock };
	return 0;
}

void netlink_done(struct netlink *nl)
{
	nl->sock = fd_close(nl->sock);
}

/* Pads to four bytes; the buffer starts zeroed. */
static void put(struct netlink *nl, const void *data, size_t n)
{
	struct nlmsghdr *h;

	assert(n <= sizeof(nl->data) - nl->n);
	if (n > 0)
		memcpy(nl->data + nl->n, data, n);
	nl->n = NLMSG_ALIGN(nl->n + n);
	h = (struct nlmsghdr *)(void *)(nl->data + nl->msg);
	h->nlmsg_len = (uint32_t)(nl->n - nl->msg);
}

void netlink_begin(struct netlink *nl, uint16_t type, uint16_t flags, const void *head, size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type,
			      .nlmsg_flags = flags | NLM_F_REQUEST,
			      .nlmsg_seq = ++nl->seq };

	nl->msg = nl->n;
	put(nl, &h, sizeof(h));
	put(nl, head, n);
}

void netlink_put(struct netlink *nl, uint16_t attr, const void *data, size_t n)
{
	struct nlattr a = { .nla_type = attr, .nla_len = (uint16_t)(NLA_HDRLEN + n) };

	put(nl, &a, sizeof(a));
	put(nl, data, n);
}

void netlink_put_text(struct netlink *nl, uint16_t attr, const char *text)
{
	netlink_put(nl, attr, text, strlen(text) + 1);
}

void netlink_put_be32(struct netlink *nl, uint16_t attr, uint32_t v)
{
	v = __builtin_bswap32(v);
	netlink_put(nl, attr, &v, sizeof(v));
}

size_t netlink_nest(struct netlink *nl, uint16_t attr)
{
	size_t nest = nl->n;

	netlink_put(nl, attr | NLA_F_NESTED, NULL, 0);
	return nest;
}

void netlink_nest_end(struct netlink *nl, size_t nest)
{
	struct nlattr *a = (struct nlattr *)(void *)(nl->data + nest);

	a->nla_len = (uint16_t)(nl->n - nest);
}

/* Reads one packet of answers: 0, or the first error. */
static int read_answers(const uint8_t *data, size_t n)
{
	struct nlmsghdr h;
	struct nlmsgerr a;

	for (size_t at = 0; at < n; at += NLMSG_ALIGN(h.nlmsg_len)) {
		if (n - at < sizeof(h) + sizeof(a))
			return -EBADMSG;
		memcpy(&h, data + at, sizeof(h));
		memcpy(&a, data + at + NLMSG_HDRLEN, sizeof(a));
		if (h.nlmsg_type != NLMSG_ERROR || h.nlmsg_len < sizeof(h) + sizeof(a) ||
		    h.nlmsg_len > n - at)
			return -EBADMSG;
		if (a.error)
			return a.error;
	}
	return 0;
}

/* The kernel has answered before send(2) returns. */
static int take_answers(int sock)
{
	uint8_t data[ANSWERS_MAX];
	bool answered = false;

	for (;;) {
		ssize_t n = RETRY_EINTR(recv(sock, data, sizeof(data), MSG_DONTWAIT));
		int r;

		if (n < 0)
			return errno == EAGAIN && answered ? 0 : -errno;
		r = read_answers(data, (size_t)n);
		if (r < 0)
			return r;
		answered = true;
	}
}

int netlink_send(struct netlink *nl)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	ssize_t k = RETRY_EINTR(sendto(nl->sock, nl->data, nl->n, 0,
				       (const struct sockaddr *)&kernel, sizeof(kernel)));

	memset(nl->data, 0, nl->n);
	nl->n = 0;
	return k < 0 ? -errno : take_answers(nl->sock);
}
