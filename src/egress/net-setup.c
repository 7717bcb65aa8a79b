/* SPDX-License-Identifier: Apache-2.0 */
/* Uses netlink(7) instead of running ip(8) and nft(8): microseconds instead of milliseconds. */
#include "egress/net-setup.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fault.h"
#include "egress/netlink.h"
#include "egress/pool.h"

#define TABLE "hutch"
#define CHAIN "capture"

#define STREAM_ADDR CAPTURE_ADDR

enum {
	LOOPBACK_INDEX = 1, /* in every network namespace */
	BACKLOG = 256,
	/* Port of the stream listeners, on 198.18.0.1 and ::1. No program needs this port. */
	STREAM_PORT = 1,
	PRIORITY = -150, /* mangle: before filters */
};

static const struct addr names_network = { .family = 4,
					   .prefix = POOL_PREFIX,
					   .bytes = { 198, 18 } };
static const struct addr loopback4 = { .family = 4, .prefix = 8, .bytes = { 127 } };
static const struct addr loopback6 = { .family = 6, .prefix = 128, .bytes = { [15] = 1 } };

/* ---- loopback and routes ---- */

static int raise_loopback(struct netlink *nl)
{
	const struct ifinfomsg head = { .ifi_index = LOOPBACK_INDEX,
					.ifi_flags = IFF_UP,
					.ifi_change = IFF_UP };

	netlink_begin(nl, RTM_NEWLINK, NLM_F_ACK, &head, sizeof(head));
	return netlink_send(nl);
}

/* Makes every address of a network local. Connections to them have the source 127.0.0.1 or ::1, as
 * all local connections. */
static int add_route(struct netlink *nl, const struct addr *a)
{
	static const uint8_t from4[] = { 127, 0, 0, 1 };
	const uint32_t device = LOOPBACK_INDEX;
	bool v4 = a->family == 4;
	const struct rtmsg head = { .rtm_family = v4 ? AF_INET : AF_INET6,
				    .rtm_dst_len = a->prefix,
				    .rtm_table = RT_TABLE_LOCAL,
				    .rtm_protocol = RTPROT_STATIC,
				    .rtm_scope = RT_SCOPE_HOST,
				    .rtm_type = RTN_LOCAL };
	int r;

	netlink_begin(nl, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, &head, sizeof(head));
	netlink_put(nl, RTA_DST, a->bytes, v4 ? 4 : 16);
	netlink_put(nl, RTA_OIF, &device, sizeof(device));
	netlink_put(nl, RTA_PREFSRC, v4 ? from4 : loopback6.bytes, v4 ? 4 : 16);
	r = netlink_send(nl);
	return r == -EEXIST ? 0 : r; /* two rules with the same network */
}

/* If the host has IPv6 disabled, nothing is reachable by it either. */
static bool has_ipv6(void)
{
	const struct sockaddr_in6 a = { .sin6_family = AF_INET6,
					.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	_cleanup_close_ int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
}

static bool is_loopback(const struct addr *a)
{
	return addr_within(a, &loopback4) || addr_within(a, &loopback6);
}

static int add_routes(const struct addr *networks, size_t n, bool *ret_v6, struct err *e)
{
	_cleanup_netlink_ struct netlink nl = NETLINK_INIT;
	char text[ADDR_TEXT_MAX];
	bool v6 = false, can_v6;
	int r = netlink_open(&nl, NETLINK_ROUTE);

	if (r == 0)
		r = raise_loopback(&nl);
	if (r == 0)
		r = add_route(&nl, &names_network);
	if (r < 0)
		return err_set(e, r, "cannot set up loopback: %s", strerror(-r));
	can_v6 = n > 0 && has_ipv6();
	for (size_t i = 0; i < n; i++) {
		if (is_loopback(&networks[i]) || (networks[i].family == 6 && !can_v6))
			continue;
		r = add_route(&nl, &networks[i]);
		if (r < 0)
			return err_set(e, r, "cannot add a local route to %s: %s",
				       addr_format(&networks[i], text), strerror(-r));
		v6 |= networks[i].family == 6;
	}
	*ret_v6 = v6;
	return 0;
}

/* ---- nf_tables ---- */

/* Match and target of an nf_tables rule. */
struct steer {
	uint8_t family;	      /* NFPROTO_* */
	uint32_t offset, len; /* position of the destination in the header */
	const uint8_t *own; /* a destination with this prefix is not redirected: loopback itself */
	const uint8_t *to;  /* the listener's address */
	uint32_t to_len;
};

static const uint8_t stream_addr[] = { 198, 18, 0, 1 };
static_assert(STREAM_ADDR == (198U << 24 | 18U << 16 | 1U), "two forms of one address");

enum {
	SOURCE4 = 12,	  /* position of the source in an IPv4 header */
	UNTRACKED = -300, /* raw: before connection tracking, and so before NAT */
};

static const struct steer steer4 = { NFPROTO_IPV4, 16, 1, loopback4.bytes, stream_addr, 4 };
static const struct steer steer6 = { NFPROTO_IPV6, 24, 16, loopback6.bytes, loopback6.bytes, 16 };

static void begin(struct netlink *nl, uint8_t family, unsigned int what, uint16_t flags)
{
	const struct nfgenmsg head = { .nfgen_family = family, .version = NFNETLINK_V0 };

	netlink_begin(nl, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | what), flags, &head, sizeof(head));
}

/* BEGIN or END of a transaction. */
static void put_bracket(struct netlink *nl, uint16_t type)
{
	const struct nfgenmsg head = { .version = NFNETLINK_V0,
				       .res_id = htons(NFNL_SUBSYS_NFTABLES) };

	netlink_begin(nl, type, 0, &head, sizeof(head));
}

static void put_data(struct netlink *nl, uint16_t attr, const void *data, size_t n)
{
	size_t nest = netlink_nest(nl, attr);

	netlink_put(nl, NFTA_DATA_VALUE, data, n);
	netlink_nest_end(nl, nest);
}

/* One expression of a rule: put_expr(), its attributes, end_expr(). */
struct expr {
	size_t item, data;
};

static struct expr put_expr(struct netlink *nl, const char *name)
{
	struct expr x = { .item = netlink_nest(nl, NFTA_LIST_ELEM) };

	netlink_put_text(nl, NFTA_EXPR_NAME, name);
	x.data = netlink_nest(nl, NFTA_EXPR_DATA);
	return x;
}

static void end_expr(struct netlink *nl, struct expr x)
{
	netlink_nest_end(nl, x.data);
	netlink_nest_end(nl, x.item);
}

static void put_compare(struct netlink *nl, uint32_t op, const void *data, size_t n)
{
	struct expr x = put_expr(nl, "cmp");

	netlink_put_be32(nl, NFTA_CMP_SREG, NFT_REG_1);
	netlink_put_be32(nl, NFTA_CMP_OP, op);
	put_data(nl, NFTA_CMP_DATA, data, n);
	end_expr(nl, x);
}

static void put_tcp_only(struct netlink *nl)
{
	static const uint8_t tcp = IPPROTO_TCP;
	struct expr x = put_expr(nl, "meta");

	netlink_put_be32(nl, NFTA_META_DREG, NFT_REG_1);
	netlink_put_be32(nl, NFTA_META_KEY, NFT_META_L4PROTO);
	end_expr(nl, x);
	put_compare(nl, NFT_CMP_EQ, &tcp, sizeof(tcp));
}

static void put_header(struct netlink *nl, uint32_t offset, uint32_t len)
{
	struct expr x = put_expr(nl, "payload");

	netlink_put_be32(nl, NFTA_PAYLOAD_DREG, NFT_REG_1);
	netlink_put_be32(nl, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
	netlink_put_be32(nl, NFTA_PAYLOAD_OFFSET, offset);
	netlink_put_be32(nl, NFTA_PAYLOAD_LEN, len);
	end_expr(nl, x);
}

static void put_not_loopback(struct netlink *nl, const struct steer *s)
{
	put_header(nl, s->offset, s->len);
	put_compare(nl, NFT_CMP_NEQ, s->own, s->len);
}

/* The address at `offset` of the header is in the network `a`. */
static void put_within(struct netlink *nl, uint32_t offset, const struct addr *a)
{
	static const uint8_t zero[16];
	const uint32_t len = a->family == 4 ? 4 : 16;
	uint8_t mask[16] = { 0 };
	struct expr x;

	for (unsigned int i = 0; i < a->prefix; i++)
		mask[i / 8] |= (uint8_t)(0x80U >> i % 8);
	put_header(nl, offset, len);
	x = put_expr(nl, "bitwise");
	netlink_put_be32(nl, NFTA_BITWISE_SREG, NFT_REG_1);
	netlink_put_be32(nl, NFTA_BITWISE_DREG, NFT_REG_1);
	netlink_put_be32(nl, NFTA_BITWISE_LEN, len);
	put_data(nl, NFTA_BITWISE_MASK, mask, len);
	put_data(nl, NFTA_BITWISE_XOR, zero, len);
	end_expr(nl, x);
	put_compare(nl, NFT_CMP_EQ, a->bytes, len);
}

static void put_load(struct netlink *nl, uint32_t reg, const void *data, size_t n)
{
	struct expr x = put_expr(nl, "immediate");

	netlink_put_be32(nl, NFTA_IMMEDIATE_DREG, reg);
	put_data(nl, NFTA_IMMEDIATE_DATA, data, n);
	end_expr(nl, x);
}

static void put_tproxy(struct netlink *nl, const struct steer *s)
{
	const uint16_t port = htons(STREAM_PORT);
	struct expr x;

	put_load(nl, NFT_REG_1, s->to, s->to_len);
	put_load(nl, NFT_REG_2, &port, sizeof(port));
	x = put_expr(nl, "tproxy");
	netlink_put_be32(nl, NFTA_TPROXY_FAMILY, s->family);
	netlink_put_be32(nl, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
	netlink_put_be32(nl, NFTA_TPROXY_REG_PORT, NFT_REG_2);
	end_expr(nl, x);
}

/* Creates the table, too, unless it exists. */
static void put_chain(struct netlink *nl, uint8_t family, const char *name, uint32_t where,
		      int priority)
{
	size_t hook;

	begin(nl, family, NFT_MSG_NEWTABLE, NLM_F_CREATE);
	netlink_put_text(nl, NFTA_TABLE_NAME, TABLE);

	begin(nl, family, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
	netlink_put_text(nl, NFTA_CHAIN_TABLE, TABLE);
	netlink_put_text(nl, NFTA_CHAIN_NAME, name);
	hook = netlink_nest(nl, NFTA_CHAIN_HOOK);
	netlink_put_be32(nl, NFTA_HOOK_HOOKNUM, where);
	netlink_put_be32(nl, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	netlink_nest_end(nl, hook);
	netlink_put_text(nl, NFTA_CHAIN_TYPE, "filter");
}

/* One rule: begin_rule(), its expressions, netlink_nest_end(). */
static size_t begin_rule(struct netlink *nl, uint8_t family, const char *chain)
{
	begin(nl, family, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK);
	netlink_put_text(nl, NFTA_RULE_TABLE, TABLE);
	netlink_put_text(nl, NFTA_RULE_CHAIN, chain);
	return netlink_nest(nl, NFTA_RULE_EXPRESSIONS);
}

/*
 * Redirects TCP to the network `to`. NULL: to anything but loopback; the routes decide which
 * addresses exist.
 */
static void put_rule(struct netlink *nl, const struct steer *s, const struct addr *to)
{
	size_t exprs = begin_rule(nl, s->family, CHAIN);

	put_tcp_only(nl);
	if (to)
		put_within(nl, s->offset, to);
	else
		put_not_loopback(nl, s);
	put_tproxy(nl, s);
	netlink_nest_end(nl, exprs);
}

/*
 * Containers publish ports by NAT of every local address, and so of those that stand for names: a
 * published port 443 would take over all connections to port 443. NAT ignores untracked packets.
 */
static void put_untracked(struct netlink *nl, const char *chain, uint32_t where)
{
	const uint32_t offsets[] = { SOURCE4, steer4.offset };

	put_chain(nl, NFPROTO_IPV4, chain, where, UNTRACKED);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		size_t exprs = begin_rule(nl, NFPROTO_IPV4, chain), item;

		put_within(nl, offsets[i], &names_network);
		item = netlink_nest(nl, NFTA_LIST_ELEM);
		netlink_put_text(nl, NFTA_EXPR_NAME, "notrack");
		netlink_nest_end(nl, item);
		netlink_nest_end(nl, exprs);
	}
}

static int send_batch(struct netlink *nl)
{
	put_bracket(nl, NFNL_MSG_BATCH_END);
	return netlink_send(nl);
}

/* The rest of a plan with networks of the sandbox itself: only given networks are captured. */
static int steer_some(struct netlink *nl, const struct net_plan *plan, bool v6)
{
	int r;

	put_bracket(nl, NFNL_MSG_BATCH_BEGIN);
	put_untracked(nl, "in", NF_INET_PRE_ROUTING);
	put_untracked(nl, "out", NF_INET_LOCAL_OUT);
	r = send_batch(nl);
	for (size_t i = 0; i < plan->n && r == 0; i++) {
		const struct addr *a = &plan->networks[i];

		if (is_loopback(a) || (a->family == 6 && !v6))
			continue;
		put_bracket(nl, NFNL_MSG_BATCH_BEGIN);
		put_rule(nl, a->family == 4 ? &steer4 : &steer6, a);
		r = send_batch(nl);
	}
	return r;
}

static int steer_streams(const struct net_plan *plan, bool v6, struct err *e)
{
	_cleanup_netlink_ struct netlink nl = NETLINK_INIT;
	int r = netlink_open(&nl, NETLINK_NETFILTER);

	if (r == 0) {
		put_bracket(&nl, NFNL_MSG_BATCH_BEGIN);
		put_chain(&nl, NFPROTO_IPV4, CHAIN, NF_INET_PRE_ROUTING, PRIORITY);
		put_rule(&nl, &steer4, plan->shared ? &names_network : NULL);
		if (v6)
			put_chain(&nl, NFPROTO_IPV6, CHAIN, NF_INET_PRE_ROUTING, PRIORITY);
		if (v6 && !plan->shared)
			put_rule(&nl, &steer6, NULL);
		r = send_batch(&nl);
	}
	if (r == 0 && plan->shared)
		r = steer_some(&nl, plan, v6);
	if (r == -ENOENT || r == -EOPNOTSUPP || r == -EPROTONOSUPPORT)
		return err_set(e, -EOPNOTSUPP,
			       "this kernel has no nf_tables with tproxy, which egress needs: "
			       "load nft_tproxy");
	return r < 0 ? err_set(e, r, "cannot redirect connections: %s", strerror(-r)) : 0;
}

/* ---- sockets ---- */

struct place {
	enum capture_socket which;
	int type;
	bool transparent, v6;
	uint32_t addr;
	uint16_t port;
	bool confined; /* not if the sandbox has networks of its own */
	bool shared;   /* only then */
};

static const struct place places[] = {
	{ CAPTURE_TCP, SOCK_STREAM, true, false, STREAM_ADDR, STREAM_PORT },
	{ CAPTURE_DNS_UDP, SOCK_DGRAM, false, false, INADDR_LOOPBACK, CAPTURE_DNS_PORT, true },
	{ CAPTURE_DNS_TCP, SOCK_STREAM, false, false, INADDR_LOOPBACK, CAPTURE_DNS_PORT, true },
	/* TCP to this address is captured like any other: see capture.c. */
	{ CAPTURE_DNS_UDP, SOCK_DGRAM, false, false, STREAM_ADDR, CAPTURE_DNS_PORT, false, true },
	{ CAPTURE_PROXY, SOCK_STREAM, false, false, INADDR_LOOPBACK, CAPTURE_PROXY_PORT },
	{ CAPTURE_TCP6, SOCK_STREAM, true, true, 0, STREAM_PORT },
};

static int bind_to(int fd, const struct place *p)
{
	const struct sockaddr_in in = { .sin_family = AF_INET,
					.sin_port = htons(p->port),
					.sin_addr.s_addr = htonl(p->addr) };
	const struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
					  .sin6_port = htons(p->port),
					  .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	return p->v6 ? bind(fd, (const struct sockaddr *)&in6, sizeof(in6))
		     : bind(fd, (const struct sockaddr *)&in, sizeof(in));
}

static int make_socket(const struct place *p, int *ret, struct err *e)
{
	_cleanup_close_ int fd =
		socket(p->v6 ? AF_INET6 : AF_INET, p->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int level = p->v6 ? SOL_IPV6 : SOL_IP, on = 1;
	int option = p->v6 ? IPV6_TRANSPARENT : IP_TRANSPARENT;

	/* An accepted socket has the port that the program connected to. With SO_REUSEADDR, which
	 * it inherits, programs can listen on that port meanwhile. */
	if (fd < 0 ||
	    (p->transparent && (setsockopt(fd, level, option, &on, sizeof(on)) < 0 ||
				setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)) ||
	    bind_to(fd, p) < 0 || (p->type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return err_errno(e, "cannot listen on port %u of the sandbox", p->port);
	*ret = TAKE_FD(fd);
	return 0;
}

/* ---- all of it ---- */

static bool is_wanted(const struct place *p, const struct net_plan *plan, bool v6)
{
	return (!p->v6 || v6) && !(plan->shared ? p->confined : p->shared);
}

int net_capture(const struct net_plan *plan, struct capture_sockets *ret, struct err *e)
{
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	bool v6 = false;
	int r;

	if (plan->n > NET_NETWORKS_MAX)
		return err_set(e, -E2BIG, "the rules name %zu networks; at most %d are allowed",
			       plan->n, NET_NETWORKS_MAX);
	r = add_routes(plan->networks, plan->n, &v6, e);
	if (r == 0)
		r = FAULT_ERR("netns-routed", e);
	if (r == 0)
		r = steer_streams(plan, v6, e);
	if (r == 0)
		r = FAULT_ERR("netns-steered", e);
	for (size_t i = 0; i < ARRAY_SIZE(places) && r == 0; i++)
		if (is_wanted(&places[i], plan, v6))
			r = make_socket(&places[i], &s.fds[places[i].which], e);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct capture_sockets)CAPTURE_SOCKETS_INIT;
	return 0;
}
