/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dial-rules.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "egress/check.h"
#include "engine/dial-programs.h"

enum {
	PORTS = 65536,
	/* A longer prefix hides a shorter one, so each set includes the sets above it. */
	BY_NAME = DIAL_PUBLIC,
	BY_PRIVATE_NAME = BY_NAME | DIAL_PRIVATE,
	BY_PROXY_NAME = BY_PRIVATE_NAME | DIAL_SHARED | DIAL_HERE,
	BY_ADDRESS = BY_PROXY_NAME | DIAL_NAMED,
	BY_HOST = BY_ADDRESS | DIAL_NEVER,
};

static struct dial_key key_of(uint32_t what, const struct addr *a)
{
	struct dial_key k = { .prefix = DIAL_KEY_BITS + a->prefix, .what = what };

	if (a->family == 6) {
		memcpy(k.addr, a->bytes, 16);
		return k;
	}
	k.prefix += 96;
	k.addr[10] = k.addr[11] = 0xff;
	memcpy(k.addr + 12, a->bytes, 4);
	return k;
}

static int put(int map, struct dial_key k, uint8_t kinds)
{
	return bpf_map_put(map, &k, &kinds);
}

/* ---- kinds of places ---- */

/* The kind of a row's first address: a whole network overlaps other rows. */
static uint8_t kind_of(struct addr a, enum addr_class class)
{
	a.prefix = a.family == 4 ? 32 : 128;
	if (check_literal(&a))
		return DIAL_NEVER;
	switch (class) {
	case ADDR_PUBLIC:
		return DIAL_PUBLIC;
	case ADDR_PRIVATE:
		return DIAL_PRIVATE;
	case ADDR_SHARED:
		return DIAL_SHARED;
	default:
		return DIAL_NAMED;
	}
}

static bool is_mapped(const struct addr *net)
{
	static const uint8_t head[12] = { [10] = 0xff, [11] = 0xff };

	return net->family == 6 && net->prefix == 96 && memcmp(net->bytes, head, sizeof(head)) == 0;
}

/* Enters the rows of the address table and a default for the rest. Skips the row of IPv4-mapped
 * addresses: to the kernel they are IPv4, which has its own rows. */
static int put_kinds(int map)
{
	static const struct addr v4 = { .family = 4 }, v6 = { .family = 6 };
	enum addr_class class;
	struct addr net;
	int r = put(map, key_of(DIAL_KIND, &v4), DIAL_PUBLIC);

	if (r == 0)
		r = put(map, key_of(DIAL_KIND, &v6), DIAL_NAMED);
	for (size_t i = 0; r == 0 && addr_class_row(i, &net, &class); i++)
		if (!is_mapped(&net))
			r = put(map, key_of(DIAL_KIND, &net), kind_of(net, class));
	return r;
}

/* ---- rules ---- */

/* Adds to an entry. bpf_map_get() may find a shorter prefix, which the new entry hides and must
 * therefore include. */
static int widen(int map, struct dial_key k, uint8_t kinds)
{
	uint8_t had = 0;

	(void)bpf_map_get(map, &k, &had);
	return put(map, k, had | kinds);
}

static struct dial_key port_key(uint16_t port)
{
	return (struct dial_key){ .prefix = DIAL_KEY_BITS, .what = dial_what(IPPROTO_TCP, port) };
}

static uint8_t kinds_at_port(const struct rule *rule)
{
	return rule->private ? BY_PRIVATE_NAME : BY_NAME;
}

int dial_rules_add(int map, const struct rule *rule)
{
	if (rule->kind == RULE_ADDR)
		return widen(map, key_of(dial_what(IPPROTO_TCP, rule->port), &rule->addr),
			     BY_ADDRESS);
	return widen(map, port_key(rule->port), kinds_at_port(rule));
}

/* Joins rules by port first: a policy may have a hundred thousand names, but few ports. */
static int put_rules(int map, const struct spec_list *list, struct err *e)
{
	_cleanup_free_ uint8_t *ports = calloc(PORTS, 1);
	struct rule rule;
	int r = ports ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < list->n; i++) {
		if (rule_parse(list->v[i], strlen(list->v[i]), &rule, e) < 0)
			return e->num;
		if (rule.kind == RULE_ADDR)
			r = dial_rules_add(map, &rule);
		else
			ports[rule.port] |= kinds_at_port(&rule);
	}
	for (size_t port = 1; r == 0 && port < PORTS; port++)
		if (ports[port])
			r = widen(map, port_key((uint16_t)port), ports[port]);
	return r;
}

static int put_host(int map, unsigned int protocol, const struct target *t)
{
	return widen(map, key_of(dial_what(protocol, t->port), &t->addr), BY_HOST);
}

static int put_servers(int map, const struct dial_rules *rules)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < rules->n_servers; i++) {
		r = put_host(map, IPPROTO_UDP, &rules->servers[i]);
		if (r == 0)
			r = put_host(map, IPPROTO_TCP, &rules->servers[i]); /* long answers */
	}
	return r;
}

/* DNS decides the address of a proxy given by name; loopback stays excluded. */
static int put_proxy(int map, const char *text, struct err *e)
{
	struct target proxy;

	if (target_parse(text, strlen(text), &proxy, e) < 0)
		return err_wrap(e, "the proxy in spec.json");
	return proxy.is_addr ? put_host(map, IPPROTO_TCP, &proxy)
			     : widen(map, port_key(proxy.port), BY_PROXY_NAME);
}

int dial_rules_put(int map, const struct dial_rules *rules, struct err *e)
{
	const bool any = rules->allow->n > 0, by_proxy = rules->proxy && rules->proxy[0];
	int r = put_kinds(map);

	if (r == 0 && any && by_proxy)
		r = put_proxy(map, rules->proxy, e);
	else if (r == 0 && any)
		r = put_rules(map, rules->allow, e);
	if (r == 0 && any && !by_proxy && rules->more)
		r = put_rules(map, rules->more, e);
	if (r == 0 && any)
		r = put_servers(map, rules);
	return r < 0 && e->num == 0
		       ? err_set(e, r, "cannot add a rule to the BPF map: %s", strerror(-r))
		       : r;
}
