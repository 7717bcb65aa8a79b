/* SPDX-License-Identifier: Apache-2.0 */
/* "Signature Version 4 signing process" in the manual of AWS IAM. */
#include "tap/aws.h"

#include <sodium.h>
#include <string.h>

#include "base/str.h"
#include "tap/percent.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

enum {
	PARAMETERS_MAX = 512, /* in one query */
	CANONICAL_MAX = 8 * EXCHANGE_HEAD_MAX,
	DATE_LEN = 8,
	SHA_LEN = crypto_hash_sha256_BYTES,
};

/* ---- parsing ---- */

/* Takes the text up to `c`, which must be there, off `*t`. */
static bool split(struct http_text *t, char c, struct http_text *ret)
{
	const char *end = memchr(t->s, c, t->n);

	if (!end)
		return false;
	*ret = (struct http_text){ t->s, (size_t)(end - t->s) };
	t->s += ret->n + 1;
	t->n -= ret->n + 1;
	return true;
}

static bool has_prefix(struct http_text *t, const char *prefix)
{
	size_t n = strlen(prefix);

	if (t->n < n || memcmp(t->s, prefix, n) != 0)
		return false;
	t->s += n;
	t->n -= n;
	return true;
}

static bool credential_parse(struct http_text t, struct aws_auth *a)
{
	if (!split(&t, '/', &a->key_id))
		return false;
	a->scope = t;
	return split(&t, '/', &a->date) && split(&t, '/', &a->region) &&
	       split(&t, '/', &a->service) && http_text_is(t, "aws4_request") &&
	       a->date.n == DATE_LEN && a->service.n > 0;
}

int aws_auth_parse(struct http_text value, struct aws_auth *ret)
{
	struct aws_auth a = { 0 };
	struct http_text item;
	bool credential = false;

	if (!has_prefix(&value, ALGORITHM " "))
		return -EBADMSG;
	while (head_list_next(&value, &item)) {
		if (has_prefix(&item, "Credential="))
			credential = credential_parse(item, &a);
		else if (has_prefix(&item, "SignedHeaders="))
			a.signed_fields = item;
		else if (!has_prefix(&item, "Signature="))
			return -EBADMSG;
	}
	if (!credential || a.signed_fields.n == 0)
		return -EBADMSG;
	*ret = a;
	return 0;
}

int aws_key_parse(const char *value, struct aws_key *ret)
{
	struct http_text t = head_text(value);
	struct aws_key k = { 0 };

	if (!split(&t, ':', &k.id))
		return -EBADMSG;
	if (!split(&t, ':', &k.secret)) {
		k.secret = t;
		t.n = 0;
	}
	k.token = t;
	if (k.id.n == 0 || k.secret.n == 0 || http_token_len(k.id.s, k.id.n) != k.id.n)
		return -EBADMSG;
	*ret = k;
	return 0;
}

/* ---- the canonical request ---- */

struct parameter {
	size_t at, name, value; /* in the text of all parameters; lengths */
};

struct parameters {
	struct buf text;
	size_t n;
	struct parameter v[PARAMETERS_MAX];
};

static int compare_part(const char *a, size_t an, const char *b, size_t bn)
{
	int r = memcmp(a, b, MIN(an, bn));

	return r != 0 ? r : (an > bn) - (an < bn);
}

static int compare_parameters(const void *a, const void *b, void *arg)
{
	const struct parameter *x = a, *y = b;
	const char *text = arg;
	int r = compare_part(text + x->at, x->name, text + y->at, y->name);

	return r != 0 ? r
		      : compare_part(text + x->at + x->name, x->value, text + y->at + y->name,
				     y->value);
}

/* Appends the text in the one encoding that is signed; returns its length. */
static size_t put_recoded(struct buf *out, struct http_text t)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(EXCHANGE_HEAD_MAX * 2);
	size_t at = out->len;

	percent_decode(&plain, t.s, t.n, true);
	percent_put(out, buf_text(&plain), plain.len, false);
	if (plain.err)
		out->err = plain.err;
	return out->len - at;
}

/* Splits the query, and encodes names and values in the one form that is signed. */
static int read_query(struct parameters *all, struct http_text query)
{
	struct http_text pair, name;
	bool more = query.n > 0;

	while (more) {
		struct parameter *p = &all->v[all->n];

		more = split(&query, '&', &pair);
		if (!more)
			pair = query;
		if (pair.n == 0)
			continue;
		if (all->n == PARAMETERS_MAX)
			return -E2BIG;
		if (!split(&pair, '=', &name)) {
			name = pair;
			pair.n = 0;
		}
		p->at = all->text.len;
		p->name = put_recoded(&all->text, name);
		p->value = put_recoded(&all->text, pair);
		all->n++;
	}
	return all->text.err;
}

static int put_query(struct buf *out, struct http_text query)
{
	_cleanup_free_ struct parameters *all = calloc(1, sizeof(*all));
	const char *text;
	int r;

	if (!all)
		return -ENOMEM;
	all->text = (struct buf)BUF_INIT(CANONICAL_MAX);
	r = read_query(all, query);
	text = buf_text(&all->text);
	if (r == 0)
		qsort_r(all->v, all->n, sizeof(all->v[0]), compare_parameters, (void *)text);
	for (size_t i = 0; r == 0 && i < all->n; i++) {
		const struct parameter *p = &all->v[i];

		(void)buf_puts(out, i > 0 ? "&" : "");
		(void)buf_put(out, text + p->at, p->name);
		(void)buf_putc(out, '=');
		(void)buf_put(out, text + p->at + p->name, p->value);
	}
	buf_done(&all->text);
	return r;
}

/* S3 signs the path as it is meant, the other services sign it as it is spelt. */
static void put_path(struct buf *out, const char *path, struct http_text service)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(L7_PATH_MAX);

	if (service.n < 2 || memcmp(service.s, "s3", 2) != 0) {
		percent_put(out, path, strlen(path), true);
		return;
	}
	percent_decode(&plain, path, strlen(path), false);
	percent_put(out, buf_text(&plain), plain.len, true);
	if (plain.err)
		out->err = plain.err;
}

/* Is the field signed? The client's list is between semicolons. */
static bool is_signed(struct http_text list, struct http_text name)
{
	struct http_text item;
	bool more = true;

	if (http_text_is(name, "host") || (name.n > 6 && strncasecmp(name.s, "x-amz-", 6) == 0))
		return true;
	while (more) {
		more = split(&list, ';', &item);
		if (http_text_same(more ? item : list, name))
			return true;
	}
	return false;
}

static void put_lower(struct buf *out, struct http_text t)
{
	for (size_t i = 0; i < t.n; i++)
		(void)buf_putc(out, ascii_lower(t.s[i]));
}

/* Without repeated blanks. */
static void put_value(struct buf *out, struct http_text t)
{
	for (size_t i = 0; i < t.n; i++)
		if (!http_is_blank(t.s[i]))
			(void)buf_putc(out, t.s[i]);
		else if (!http_is_blank(t.s[i - 1]))
			(void)buf_putc(out, ' ');
}

static int compare_fields(const void *a, const void *b)
{
	const struct head_field *x = *(const struct head_field *const *)a;
	const struct head_field *y = *(const struct head_field *const *)b;
	size_t n = MIN(x->name.n, y->name.n);
	int r = strncasecmp(x->name.s, y->name.s, n);

	if (r == 0)
		r = (x->name.n > y->name.n) - (x->name.n < y->name.n);
	return r != 0 ? r : (x > y) - (x < y); /* in the order of the head */
}

/* Writes the signed fields to `out`, their names to `names`. */
static void put_fields(struct buf *out, struct buf *names, const struct head *h,
		       struct http_text list)
{
	const struct head_field *sorted[EXCHANGE_FIELDS_MAX + HEAD_ADDED_MAX] = { NULL };
	size_t n = 0;

	for (size_t i = 0; i < h->n; i++)
		if (!h->field[i].drop && is_signed(list, h->field[i].name))
			sorted[n++] = &h->field[i];
	qsort(sorted, n, sizeof(sorted[0]), compare_fields);
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && http_text_same(sorted[i - 1]->name, sorted[i]->name)) {
			(void)buf_putc(out, ',');
		} else {
			(void)buf_puts(out, i > 0 ? "\n" : "");
			put_lower(out, sorted[i]->name);
			(void)buf_putc(out, ':');
			(void)buf_puts(names, i > 0 ? ";" : "");
			put_lower(names, sorted[i]->name);
		}
		put_value(out, sorted[i]->value);
	}
	(void)buf_puts(out, "\n");
}

/* ---- signing ---- */

static void to_hex(const unsigned char *hash, char ret[static AWS_HASH_LEN + 1])
{
	(void)sodium_bin2hex(ret, AWS_HASH_LEN + 1, hash, SHA_LEN);
}

void aws_hash(const char *data, size_t n, char ret[static AWS_HASH_LEN + 1])
{
	unsigned char hash[SHA_LEN];

	(void)crypto_hash_sha256(hash, (const unsigned char *)data, n);
	to_hex(hash, ret);
}

static void mac(const void *key, size_t key_n, struct http_text t, unsigned char ret[SHA_LEN])
{
	crypto_auth_hmacsha256_state s;

	(void)crypto_auth_hmacsha256_init(&s, key, key_n);
	(void)crypto_auth_hmacsha256_update(&s, (const unsigned char *)t.s, t.n);
	(void)crypto_auth_hmacsha256_final(&s, ret);
	sodium_memzero(&s, sizeof(s));
}

static int make_key(const struct aws_auth *a, struct http_text secret, unsigned char key[SHA_LEN])
{
	_cleanup_buf_ struct buf first = BUF_INIT(EXCHANGE_HEAD_MAX);

	(void)buf_puts(&first, "AWS4");
	if (buf_put(&first, secret.s, secret.n) < 0)
		return first.err;
	mac(first.data, first.len, a->date, key);
	sodium_memzero(first.data, first.cap);
	mac(key, SHA_LEN, a->region, key);
	mac(key, SHA_LEN, a->service, key);
	mac(key, SHA_LEN, head_text("aws4_request"), key);
	return 0;
}

void aws_chain_next(struct aws_chain *c, enum aws_chain_kind kind, const char *hash)
{
	static const char empty[] =
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";
	unsigned char signature[SHA_LEN];
	char text[512];

	(void)snprintf(text, sizeof(text), "%s\n%s\n%s\n%s\n%s%s",
		       kind == AWS_CHAIN_CHUNK ? ALGORITHM "-PAYLOAD" : ALGORITHM "-TRAILER",
		       c->date, c->scope, c->signature, kind == AWS_CHAIN_CHUNK ? empty : "", hash);
	mac(c->key, sizeof(c->key), head_text(text), signature);
	to_hex(signature, c->signature);
}

/* The text whose MAC is the signature: algorithm, time, scope, hash of the canonical request. */
static int text_to_sign(const struct aws_auth *a, struct head *h, const struct buf *canonical,
			struct aws_chain *c, struct buf *text)
{
	const struct head_field *date = head_find(h, "x-amz-date", NULL);
	char hash[AWS_HASH_LEN + 1];

	if (!date)
		date = head_find(h, "date", NULL);
	if (!date || date->value.n >= sizeof(c->date) || a->scope.n >= sizeof(c->scope))
		return -EBADMSG;
	(void)snprintf(c->date, sizeof(c->date), "%.*s", (int)date->value.n, date->value.s);
	(void)snprintf(c->scope, sizeof(c->scope), "%.*s", (int)a->scope.n, a->scope.s);
	aws_hash(canonical->data, canonical->len, hash);
	return buf_printf(text, ALGORITHM "\n%s\n%s\n%s", c->date, c->scope, hash);
}

static int canonical_request(const struct aws_auth *a, const struct aws_request *q, struct buf *out,
			     struct buf *names)
{
	int r;

	(void)buf_printf(out, "%s\n", q->method);
	put_path(out, q->path, a->service);
	(void)buf_putc(out, '\n');
	r = put_query(out, q->query);
	if (r < 0)
		return r;
	(void)buf_putc(out, '\n');
	put_fields(out, names, q->head, a->signed_fields);
	(void)buf_printf(out, "\n%s\n%s", buf_text(names), q->payload);
	return out->err ? out->err : names->err;
}

int aws_sign(const struct aws_auth *a, const struct aws_key *k, const struct aws_request *q,
	     struct buf *ret, struct aws_chain *ret_chain)
{
	_cleanup_buf_ struct buf canonical = BUF_INIT(CANONICAL_MAX),
				 names = BUF_INIT(CANONICAL_MAX);
	_cleanup_buf_ struct buf text = BUF_INIT(EXCHANGE_HEAD_MAX * 2);
	unsigned char signature[SHA_LEN];
	int r = canonical_request(a, q, &canonical, &names);

	r = r < 0 ? r : text_to_sign(a, q->head, &canonical, ret_chain, &text);
	r = r < 0 ? r : make_key(a, k->secret, ret_chain->key);
	if (r < 0)
		return r;
	mac(ret_chain->key, SHA_LEN, (struct http_text){ text.data, text.len }, signature);
	to_hex(signature, ret_chain->signature);
	(void)buf_puts(ret, ALGORITHM " Credential=");
	(void)buf_put(ret, k->id.s, k->id.n);
	(void)buf_putc(ret, '/');
	(void)buf_put(ret, a->scope.s, a->scope.n);
	return buf_printf(ret, ", SignedHeaders=%s, Signature=%s", names.data,
			  ret_chain->signature);
}

bool aws_is_presigned(struct http_text query)
{
	static const char word[] = "x-amz-signature=";
	const size_t n = STRLEN("x-amz-signature=");

	for (size_t i = 0; query.s && i + n <= query.n; i++)
		if ((i == 0 || query.s[i - 1] == '&') && strncasecmp(query.s + i, word, n) == 0)
			return true;
	return false;
}
