/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries are sorted by (deny, host, port), so that all entries of one host and verb are adjacent:
 * a group. An open-addressing hash table maps a host to its allow group and its deny group.
 *
 * Names are hashed from their end to their beginning. Hashing "a.b.c" passes through the hashes of
 * ".c" and ".b.c", which are the hash keys of the subtree rules: one pass gives all of them.
 */
#include "names/match.h"

#include <string.h>

#include "base/str.h"

enum verb {
	ALLOW,
	DENY,
	VERB_MAX,
};

struct group {
	uint32_t first;
	uint32_t count; /* 0: no such rules */
};

struct slot {
	const struct rule *host; /* a rule with this host; NULL: free */
	uint64_t hash;
	struct group group[VERB_MAX];
};

struct ruleset {
	struct ruleset_entry *entries;
	size_t n;
	struct slot *slots;
	size_t mask;
	/* Bit sets of the network lengths in use (IPv4, IPv6): only these are probed. */
	uint64_t prefixes[2][3];
};

static uint64_t hash_byte(uint64_t h, char c)
{
	return (h ^ (unsigned char)c) * UINT64_C(0x100000001b3);
}

static const uint64_t hash_start = UINT64_C(0xcbf29ce484222325);

/* FNV-1a's low bits are weak for short keys, so fold in the high ones. */
static size_t hash_slot(const struct ruleset *s, uint64_t h)
{
	return (size_t)(h ^ h >> 32) & s->mask;
}

static uint64_t hash_name(const struct name *name)
{
	uint64_t h = hash_start;

	for (size_t i = name->len; i-- > 0;)
		h = hash_byte(h, name->text[i]);
	return h;
}

static uint64_t hash_addr(const struct addr *a)
{
	uint64_t h = hash_byte(hash_byte(hash_start, (char)a->family), (char)a->prefix);

	for (size_t i = 0; i < sizeof(a->bytes); i++)
		h = hash_byte(h, (char)a->bytes[i]);
	return h;
}

static uint64_t hash_host(const struct rule *r)
{
	if (r->kind == RULE_ADDR)
		return hash_addr(&r->addr);
	return r->kind == RULE_SUBTREE ? hash_byte(hash_name(&r->name), '.') : hash_name(&r->name);
}

static int compare_addr(const struct addr *a, const struct addr *b)
{
	int d = a->family - b->family;

	if (d == 0)
		d = memcmp(a->bytes, b->bytes, sizeof(a->bytes));
	return d != 0 ? d : a->prefix - b->prefix;
}

static int compare_host(const struct rule *a, const struct rule *b)
{
	bool addr_a = a->kind == RULE_ADDR, addr_b = b->kind == RULE_ADDR;
	int d;

	if (addr_a != addr_b)
		return addr_a - addr_b;
	if (addr_a)
		return compare_addr(&a->addr, &b->addr);
	d = strcmp(a->name.text, b->name.text);
	return d != 0 ? d : (int)a->kind - (int)b->kind;
}

/* Sorts the strictest protocol first: normalise() keeps it, so joining lists removes no check. */
static int laxity(const struct rule *r)
{
	static const uint8_t order[] = {
		[RULE_PROTO_TLS] = 0,	  [RULE_PROTO_HTTP] = 1, [RULE_PROTO_DEFAULT] = 2,
		[RULE_PROTO_TLS_ECH] = 3, [RULE_PROTO_ANY] = 4,	 [RULE_PROTO_TCP] = 5,
	};

	return order[r->proto];
}

static int compare_entry(const void *x, const void *y)
{
	const struct ruleset_entry *a = x, *b = y;
	int d = a->deny - b->deny;

	if (d == 0)
		d = compare_host(&a->rule, &b->rule);
	if (d == 0)
		d = a->rule.port - b->rule.port;
	if (d == 0)
		d = laxity(&a->rule) - laxity(&b->rule);
	if (d == 0)
		d = a->id < b->id ? -1 : a->id > b->id;
	return d;
}

/* Sorts the entries and merges those with the same verb, host and port. */
static void normalise(struct ruleset *s)
{
	size_t kept = 0;

	qsort(s->entries, s->n, sizeof(s->entries[0]), compare_entry);
	for (size_t i = 0; i < s->n; i++) {
		struct ruleset_entry *last = kept > 0 ? &s->entries[kept - 1] : NULL;
		const struct ruleset_entry *this = &s->entries[i];

		assert(this->deny || this->rule.port != 0);
		if (last && last->deny == this->deny && last->rule.port == this->rule.port &&
		    compare_host(&last->rule, &this->rule) == 0) {
			/* Allowing private addresses is explicit: a rule without the suffix, such
			 * as a preset's, does not revoke it. */
			if (this->rule.private && !last->rule.private) {
				last->rule.private = true;
				last->id = this->id;
			}
			continue;
		}
		s->entries[kept++] = *this;
	}
	s->n = kept;
}

static struct slot *slot_for(const struct ruleset *s, const struct rule *host, uint64_t hash)
{
	size_t i = hash_slot(s, hash);

	while (s->slots[i].host && compare_host(s->slots[i].host, host) != 0)
		i = (i + 1) & s->mask;
	return &s->slots[i];
}

static void index_entry(struct ruleset *s, uint32_t i)
{
	const struct rule *r = &s->entries[i].rule;
	uint64_t hash = hash_host(r);
	struct slot *slot = slot_for(s, r, hash);
	struct group *g = &slot->group[s->entries[i].deny ? DENY : ALLOW];

	if (!slot->host) {
		slot->host = r;
		slot->hash = hash;
	}
	if (g->count++ == 0)
		g->first = i;
	if (r->kind == RULE_ADDR)
		s->prefixes[r->addr.family == 6][r->addr.prefix / 64] |= UINT64_C(1)
									 << r->addr.prefix % 64;
}

int ruleset_new(const struct ruleset_entry *entries, size_t n, struct ruleset **ret)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;
	size_t slots = 16;

	if (n > RULESET_MAX)
		return -E2BIG;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	while (slots < n * 2)
		slots *= 2;
	s->mask = slots - 1;
	s->slots = calloc(slots, sizeof(s->slots[0]));
	s->entries = calloc(n + 1, sizeof(s->entries[0]));
	if (!s->slots || !s->entries)
		return -ENOMEM;
	if (n > 0)
		memcpy(s->entries, entries, n * sizeof(entries[0]));
	s->n = n;
	normalise(s);
	for (uint32_t i = 0; i < s->n; i++)
		index_entry(s, i);
	*ret = TAKE_PTR(s);
	return 0;
}

struct ruleset *ruleset_free(struct ruleset *s)
{
	if (s) {
		free(s->entries);
		free(s->slots);
		free(s);
	}
	return NULL;
}

const struct ruleset_entry *ruleset_entries(const struct ruleset *s, size_t *ret_n)
{
	*ret_n = s->n;
	return s->entries;
}

/* Finds a group's entry for `port`. An entry for every port (0) sorts first and wins. */
static const struct ruleset_entry *in_group(const struct ruleset *s, const struct group *g,
					    uint16_t port)
{
	const struct ruleset_entry *first = s->entries + g->first;
	size_t low = 0, high = g->count;

	if (g->count > 0 && first->rule.port == 0)
		return first;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (first[mid].rule.port == port)
			return &first[mid];
		if (first[mid].rule.port < port)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* Records a match. Slots come least specific first: keep the first deny and the last allow rule. */
static void note(const struct ruleset *s, const struct slot *slot, uint16_t port, struct verdict *v)
{
	const struct ruleset_entry *allow = in_group(s, &slot->group[ALLOW], port);

	if (!v->deny)
		v->deny = in_group(s, &slot->group[DENY], port);
	if (allow)
		v->allow = allow;
}

/* Finds the slot of name `text`, or for RULE_SUBTREE of the subtree ".text". */
static const struct slot *find_name(const struct ruleset *s, uint64_t hash, enum rule_kind kind,
				    const char *text)
{
	for (size_t i = hash_slot(s, hash); s->slots[i].host; i = (i + 1) & s->mask) {
		const struct slot *slot = &s->slots[i];

		if (slot->hash == hash && slot->host->kind == kind &&
		    str_eq(slot->host->name.text, text))
			return slot;
	}
	return NULL;
}

enum {
	MATCHES_MAX = (NAME_TEXT_MAX + 1) / 2 + 2 /* a subtree per label, and the name */
};

/* Finds all matching slots, the most specific last. */
static size_t match_name(const struct ruleset *s, const struct name *name,
			 const struct slot *ret[static MATCHES_MAX])
{
	const char *text = name->text;
	uint64_t h = hash_start;
	size_t n = 0;

	for (size_t i = name->len; i-- > 0;) {
		h = hash_byte(h, text[i]);
		if (text[i] == '.' && (ret[n] = find_name(s, h, RULE_SUBTREE, text + i + 1)))
			n++;
	}
	ret[n] = find_name(s, hash_byte(h, '.'), RULE_SUBTREE, text);
	n += ret[n] != NULL;
	ret[n] = find_name(s, h, RULE_NAME, text);
	return n + (ret[n] != NULL);
}

static void check_name(const struct ruleset *s, const struct target *t, struct verdict *v)
{
	const struct slot *slots[MATCHES_MAX];
	size_t n = match_name(s, &t->name, slots);

	for (size_t i = 0; i < n; i++)
		note(s, slots[i], t->port, v);
}

static void check_addr(const struct ruleset *s, const struct target *t, struct verdict *v)
{
	const uint64_t *prefixes = s->prefixes[t->addr.family == 6];
	unsigned int longest = t->addr.family == 6 ? 128 : 32;

	for (unsigned int p = 0; p <= longest; p++) {
		struct rule host = { .kind = RULE_ADDR };
		const struct slot *slot;

		if (!(prefixes[p / 64] >> p % 64 & 1))
			continue;
		host.addr = addr_network(&t->addr, (uint8_t)p);
		slot = slot_for(s, &host, hash_addr(&host.addr));
		if (slot->host)
			note(s, slot, t->port, v);
	}
}

struct verdict ruleset_check(const struct ruleset *s, const struct target *t)
{
	struct verdict v = { 0 };

	if (t->is_addr)
		check_addr(s, t, &v);
	else
		check_name(s, t, &v);
	v.allowed = v.allow && !v.deny;
	return v;
}

/* A deny rule may cover only some ports, so check each port that an allow rule names. */
bool ruleset_knows(const struct ruleset *s, const struct name *name)
{
	const struct slot *slots[MATCHES_MAX];
	struct target t = { .name = *name };
	size_t n = match_name(s, name, slots);

	for (size_t i = 0; i < n; i++) {
		const struct group *g = &slots[i]->group[ALLOW];

		for (size_t k = 0; k < g->count; k++) {
			t.port = s->entries[g->first + k].rule.port;
			if (ruleset_check(s, &t).allowed)
				return true;
		}
	}
	return false;
}
