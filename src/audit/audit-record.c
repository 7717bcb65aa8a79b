/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/audit-record.h"

#include <sodium.h>
#include <string.h>

#include "base/buf.h"

/* Offsets in the header; numbers are in network byte order. */
enum {
	AT_MAGIC = 0,
	AT_KIND = 4,
	AT_ZERO = 6,
	AT_LENGTH = 8,
	AT_ZERO_TOO = 12,
	AT_SEQ = 16,
	AT_BOOT = 24,
	AT_WALL = 40,
	AT_MONO = 48,
	AT_PAYLOAD_HASH = 56,
	AT_PREV = 88,
	AT_HASH = 120,
};

static const char magic[] = "HAR1";

static_assert(AT_HASH + AUDIT_HASH == AUDIT_HEADER, "the header has no holes");
static_assert(AUDIT_HASH == crypto_hash_sha256_BYTES, "the hash is SHA-256");

DEFINE_NAMES(
	audit_kind_name, unsigned int, AUDIT_KINDS,
	NULL, [AUDIT_BEGIN] = "begin", [AUDIT_SEAL] = "seal", [AUDIT_CHECKPOINT] = "checkpoint",
	[AUDIT_TORN] = "torn", [AUDIT_ROTATE] = "rotate", [AUDIT_DROPPED] = "dropped",
	[AUDIT_CREATE] = "create", [AUDIT_POLICY] = "policy", [AUDIT_START] = "start",
	[AUDIT_END] = "end", [AUDIT_EXEC] = "exec", [AUDIT_EXEC_END] = "exec-end",
	[AUDIT_SIGNAL] = "signal", [AUDIT_LIMIT] = "limit", [AUDIT_FILE_READ] = "file-read",
	[AUDIT_FILE_WRITE] = "file-write", [AUDIT_FILE_END] = "file-end", [AUDIT_EGRESS] = "egress",
	[AUDIT_EGRESS_SUM] = "egress-sum", [AUDIT_IMAGE] = "image", [AUDIT_REFUSED] = "refused",
	[AUDIT_KILL] = "kill", [AUDIT_GC] = "gc", [AUDIT_API_KEY] = "api-key",
	[AUDIT_LIFE] = "life", [AUDIT_LIFE_END] = "life-end", [AUDIT_HTTP] = "http",
	[AUDIT_LLM] = "llm", [AUDIT_OUTPUT] = "output", [AUDIT_SECRET] = "secret");

static void put(uint8_t *p, uint64_t value, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static uint64_t get(const uint8_t *data, unsigned int bytes)
{
	struct reader r = reader_of(data, bytes);

	return reader_be(&r, bytes);
}

static void sha256(uint8_t out[static AUDIT_HASH], const void *data, size_t n)
{
	(void)crypto_hash_sha256(out, data, n);
}

size_t audit_record_write(struct audit_head *head, const struct audit_record *r,
			  uint8_t out[static AUDIT_RECORD_MAX])
{
	assert(r->n_payload <= AUDIT_PAYLOAD_MAX);
	memset(out, 0, AUDIT_HEADER);
	memcpy(out + AT_MAGIC, magic, STRLEN("HAR1"));
	put(out + AT_KIND, r->kind, 2);
	put(out + AT_LENGTH, r->n_payload, 4);
	put(out + AT_SEQ, head->count, 8);
	memcpy(out + AT_BOOT, r->boot, AUDIT_BOOT);
	put(out + AT_WALL, r->wall, 8);
	put(out + AT_MONO, r->mono, 8);
	sha256(out + AT_PAYLOAD_HASH, r->payload, r->n_payload);
	memcpy(out + AT_PREV, head->hash, AUDIT_HASH);
	sha256(out + AT_HASH, out, AT_HASH);
	if (r->n_payload > 0)
		memcpy(out + AUDIT_HEADER, r->payload, r->n_payload);
	head->count++;
	memcpy(head->hash, out + AT_HASH, AUDIT_HASH);
	return AUDIT_HEADER + r->n_payload;
}

/* Whether `n` bytes, less than a header, can be the beginning of the record behind `head`. */
static bool begins_well(const struct audit_head *head, const uint8_t *data, size_t n)
{
	uint8_t want[AT_HASH];
	static const struct {
		size_t at, n;
	} known[] = { { AT_MAGIC, 4 },
		      { AT_ZERO, 2 },
		      { AT_ZERO_TOO, 4 },
		      { AT_SEQ, 8 },
		      { AT_PREV, AUDIT_HASH } };

	memset(want, 0, sizeof(want));
	memcpy(want + AT_MAGIC, magic, STRLEN("HAR1"));
	put(want + AT_SEQ, head->count, 8);
	memcpy(want + AT_PREV, head->hash, AUDIT_HASH);
	for (size_t i = 0; i < ARRAY_SIZE(known) && known[i].at < n; i++)
		if (memcmp(data + known[i].at, want + known[i].at,
			   MIN(known[i].n, n - known[i].at)) != 0)
			return false;
	return true;
}

static void decode(const uint8_t *data, struct audit_record *r)
{
	r->kind = (unsigned int)get(data + AT_KIND, 2);
	r->n_payload = (size_t)get(data + AT_LENGTH, 4);
	r->seq = get(data + AT_SEQ, 8);
	r->wall = get(data + AT_WALL, 8);
	r->mono = get(data + AT_MONO, 8);
	memcpy(r->boot, data + AT_BOOT, AUDIT_BOOT);
	memcpy(r->payload_hash, data + AT_PAYLOAD_HASH, AUDIT_HASH);
	memcpy(r->prev, data + AT_PREV, AUDIT_HASH);
	memcpy(r->hash, data + AT_HASH, AUDIT_HASH);
	r->payload = (const char *)data + AUDIT_HEADER;
}

/* The fault of a complete header, or NULL. Checks the hash first: the fields that it covers
 * can then be trusted. */
static const char *header_fault(const struct audit_head *head, const uint8_t *data,
				const struct audit_record *r)
{
	uint8_t hash[AUDIT_HASH];

	if (memcmp(data + AT_MAGIC, magic, STRLEN("HAR1")) != 0)
		return "no record begins here";
	sha256(hash, data, AT_HASH);
	if (memcmp(hash, r->hash, AUDIT_HASH) != 0)
		return "its header does not match its hash";
	if (get(data + AT_ZERO, 2) != 0 || get(data + AT_ZERO_TOO, 4) != 0)
		return "bytes of its header that must be zero are not";
	if (r->n_payload > AUDIT_PAYLOAD_MAX)
		return "its payload is too long";
	if (r->seq != head->count)
		return r->seq > head->count ? "records are missing before it"
					    : "its sequence number was used before";
	if (memcmp(r->prev, head->hash, AUDIT_HASH) != 0)
		return "it does not follow the record before it";
	return NULL;
}

ssize_t audit_record_read(struct audit_head *head, const uint8_t *data, size_t n,
			  struct audit_record *ret, const char **ret_why)
{
	uint8_t hash[AUDIT_HASH];
	struct audit_record r;

	*ret_why = "no record begins here";
	if (n < AUDIT_HEADER)
		return begins_well(head, data, n) ? 0 : -EBADMSG;
	decode(data, &r);
	*ret_why = header_fault(head, data, &r);
	if (*ret_why)
		return -EBADMSG;
	if (n - AUDIT_HEADER < r.n_payload)
		return 0;
	sha256(hash, r.payload, r.n_payload);
	if (memcmp(hash, r.payload_hash, AUDIT_HASH) != 0) {
		*ret_why = "its payload does not match its hash";
		return -EBADMSG;
	}
	head->count++;
	memcpy(head->hash, r.hash, AUDIT_HASH);
	*ret = r;
	return AUDIT_HEADER + (ssize_t)r.n_payload;
}

bool audit_record_before(const uint8_t *data, size_t n, struct audit_head *ret)
{
	if (n < AUDIT_HEADER)
		return false;
	ret->count = get(data + AT_SEQ, 8);
	memcpy(ret->hash, data + AT_PREV, AUDIT_HASH);
	return true;
}
