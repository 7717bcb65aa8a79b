/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/inject.h"

#include <sodium.h>
#include <string.h>

#include "base/base64.h"
#include "base/str.h"
#include "tap/aws.h"
#include "tap/mask.h"
#include "tap/percent.h"

#define BASIC_USER "x-access-token" /* as GitHub accepts it; most servers ignore the name */

enum {
	TEXT_MAX = 2 * EXCHANGE_HEAD_MAX,
};

/* ---- which secrets are bound ---- */

static bool binds_host(const struct tap_secret *s, const struct name *host)
{
	for (size_t i = 0; host && i < s->hosts.n; i++)
		if (str_eq(s->hosts.v[i], host->text))
			return true;
	return false;
}

static bool binds(const struct tap_secret *s, const struct name *host, const struct request *q)
{
	return binds_host(s, host) && l7_patterns_match(&s->paths, request_rule_path(q));
}

bool inject_names_paths(const struct tap_config *c, const struct name *host)
{
	for (size_t i = 0; i < c->n_secrets; i++)
		if (c->secrets[i].paths.n > 0 && binds_host(&c->secrets[i], host))
			return true;
	return false;
}

/* ---- finding a placeholder ---- */

static bool contains(const char *s, size_t n, const char *word)
{
	return word[0] != '\0' && memmem(s, n, word, strlen(word));
}

/* Decodes USER:PASSWORD of a Basic credential; NULL for any other value. The caller frees the text.
 */
static char *decode_basic(struct http_text value)
{
	char *text;
	size_t n;

	if (value.n < 6 || strncasecmp(value.s, "basic ", 6) != 0)
		return NULL;
	value.s += 6;
	value.n -= 6;
	while (value.n > 0 && value.s[0] == ' ') {
		value.s++;
		value.n--;
	}
	if (base64_decode(value.s, value.n, &text, &n) < 0)
		return NULL;
	return text;
}

static bool field_has(const struct head_field *f, const char *placeholder)
{
	_cleanup_free_ char *pair = NULL;

	if (contains(f->value.s, f->value.n, placeholder))
		return true;
	pair = decode_basic(f->value);
	return pair && contains(pair, strlen(pair), placeholder);
}

/* Is the field one that may hold a credential for this secret? */
static bool is_field_of(const struct tap_secret *s, struct http_text name)
{
	return head_is_credential(name) ||
	       (s->form == SECRET_HEADER && head_name_same(name, head_text(s->header))) ||
	       (s->form == SECRET_AWS && head_name_same(name, head_text("x-amz-security-token")));
}

/* Takes the next NAME=VALUE off the query. */
static bool next_pair(struct http_text *query, struct http_text *ret, struct http_text *ret_name)
{
	const char *end, *equal;

	if (query->n == 0)
		return false;
	end = memchr(query->s, '&', query->n);
	*ret = (struct http_text){ query->s, end ? (size_t)(end - query->s) : query->n };
	query->s += ret->n + (end != NULL);
	query->n -= ret->n + (end != NULL);
	equal = memchr(ret->s, '=', ret->n);
	*ret_name = (struct http_text){ ret->s, equal ? (size_t)(equal - ret->s) : ret->n };
	return true;
}

static bool is_parameter_of(const struct tap_secret *s, struct http_text name)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(TEXT_MAX);

	if (s->form != SECRET_QUERY)
		return false;
	percent_decode(&plain, name.s, name.n, true);
	return plain.err || (plain.len == strlen(s->parameter) &&
			     strncasecmp(buf_text(&plain), s->parameter, plain.len) == 0);
}

static bool request_has(const struct tap_secret *s, const struct request *q)
{
	struct http_text query = q->query, pair, name;

	for (size_t i = 0; i < q->head.n; i++)
		if (is_field_of(s, q->head.field[i].name) &&
		    field_has(&q->head.field[i], s->placeholder))
			return true;
	while (next_pair(&query, &pair, &name))
		if (is_parameter_of(s, name) && contains(pair.s, pair.n, s->placeholder))
			return true;
	return false;
}

/* ---- choosing ---- */

static const struct head_field *find_aws(struct request *q, struct aws_auth *ret)
{
	const struct head_field *f = head_find(&q->head, "authorization", NULL);

	return f && aws_auth_parse(f->value, ret) == 0 ? f : NULL;
}

static int choose_aws(const struct tap_secret *s, struct request *q, struct injection *inj,
		      struct refusal *why)
{
	const struct head_field *hash = head_find(&q->head, "x-amz-content-sha256", NULL);
	struct aws_auth a;

	if (aws_is_presigned(q->query))
		return refuse(why, TAP_NO_SECRET, 403,
			      "secret %s cannot be applied to a presigned URL", s->name);
	if (!find_aws(q, &a)) {
		inj->secret = -1; /* an anonymous request stays one */
		return 0;
	}
	inj->trailers =
		hash && http_text_is(hash->value, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
	inj->chunks = inj->trailers ||
		      (hash && http_text_is(hash->value, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"));
	inj->need_body = !hash && q->framing != FRAMING_NONE;
	return 0;
}

int inject_choose(const struct tap_config *c, const struct name *host, struct request *q,
		  struct injection *ret, struct refusal *why)
{
	const struct tap_secret *s;
	size_t bound = 0;
	int only = -1;

	*ret = (struct injection){ .secret = -1 };
	for (size_t i = 0; i < c->n_secrets; i++) {
		if (!binds(&c->secrets[i], host, q))
			continue;
		bound++;
		only = (int)i;
		if (ret->secret < 0 && request_has(&c->secrets[i], q))
			ret->secret = (int)i;
	}
	ret->bound = bound > 0;
	if (ret->secret < 0 && bound == 1)
		ret->secret = only;
	if (ret->secret < 0)
		return 0;
	s = &c->secrets[ret->secret];
	if (s->form == SECRET_AWS && choose_aws(s, q, ret, why) < 0)
		return -EBADMSG;
	if (ret->secret < 0 || s->value)
		return 0;
	return refuse(why, TAP_NO_SECRET, 403, "secret %s has no value: hutch secret set %s",
		      s->name, s->name);
}

/* ---- applying ---- */

static int no_memory(const struct buf *b)
{
	return b->err == -ENOBUFS ? -ENOBUFS : b->err;
}

/* Removes every credential that a bound secret could stand for. */
static void strip_fields(const struct tap_config *c, const struct name *host, struct request *q)
{
	for (size_t i = 0; i < q->head.n; i++) {
		struct head_field *f = &q->head.field[i];

		f->drop |= head_is_credential(f->name);
		for (size_t k = 0; k < c->n_secrets; k++)
			f->drop |= binds(&c->secrets[k], host, q) &&
				   is_field_of(&c->secrets[k], f->name);
	}
}

static bool is_bound_parameter(const struct tap_config *c, const struct name *host,
			       const struct request *q, struct http_text name)
{
	for (size_t i = 0; i < c->n_secrets; i++)
		if (is_parameter_of(&c->secrets[i], name) && binds(&c->secrets[i], host, q))
			return true;
	return false;
}

/* Writes the query again without the parameters of bound secrets, and with the chosen one. */
static int rewrite_query(const struct tap_config *c, const struct name *host,
			 const struct tap_secret *chosen, struct request *q)
{
	struct http_text query = q->query, pair, name;
	const char *joint = "";
	bool changed = chosen != NULL;

	while (next_pair(&query, &pair, &name)) {
		if (is_bound_parameter(c, host, q, name)) {
			changed = true;
			continue;
		}
		(void)buf_puts(&q->new_query, joint);
		(void)buf_put(&q->new_query, pair.s, pair.n);
		joint = "&";
	}
	if (chosen) {
		(void)buf_printf(&q->new_query, "%s%s=", joint, chosen->parameter);
		percent_put(&q->new_query, chosen->value, strlen(chosen->value), false);
	}
	if (changed)
		q->query = (struct http_text){ q->new_query.len > 0 ? q->new_query.data : NULL,
					       q->new_query.len };
	return no_memory(&q->new_query);
}

/* FORMAT with {} replaced. */
static void put_format(struct buf *b, const char *format, const char *value)
{
	const char *mark = strstr(format, "{}");

	if (!mark) {
		(void)buf_puts(b, format);
		return;
	}
	(void)buf_put(b, format, (size_t)(mark - format));
	(void)buf_puts(b, value);
	(void)buf_puts(b, mark + 2);
}

/* `pair` is what the client sent, or NULL: its user name is kept if the policy names none. */
static void put_basic(struct buf *b, const struct tap_secret *s, const char *pair)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(TEXT_MAX);
	const char *colon = pair ? strchr(pair, ':') : NULL;

	if (s->user[0] != '\0')
		(void)buf_puts(&plain, s->user);
	else if (colon)
		(void)buf_put(&plain, pair, (size_t)(colon - pair));
	else
		(void)buf_puts(&plain, BASIC_USER);
	(void)buf_putc(&plain, ':');
	(void)buf_puts(&plain, s->value);
	(void)buf_puts(b, "Basic ");
	if (plain.err || base64_put(b, plain.data, plain.len) < 0)
		b->err = -ENOMEM;
	if (plain.data)
		sodium_memzero(plain.data, plain.cap);
}

static int apply_aws(const struct tap_secret *s, const struct aws_auth *a, const struct buf *body,
		     struct request *q, struct refusal *why)
{
	const struct head_field *hash = head_find(&q->head, "x-amz-content-sha256", NULL);
	struct aws_request r = {
		.method = q->method, .path = q->path, .query = q->query, .head = &q->head
	};
	char payload[AWS_HASH_LEN + 1];
	struct aws_key k;
	int ret;

	if (aws_key_parse(s->value, &k) < 0)
		return refuse(why, TAP_NO_SECRET, 403, "secret %s is not KEY-ID:SECRET-KEY",
			      s->name);
	if (hash && hash->value.n > AWS_HASH_LEN)
		return refuse(why, TAP_BAD_REQUEST, 400,
			      "the request has an X-Amz-Content-Sha256 field that is too long");
	if (hash)
		(void)snprintf(payload, sizeof(payload), "%.*s", (int)hash->value.n, hash->value.s);
	else
		aws_hash(body ? buf_text(body) : "", body ? body->len : 0, payload);
	r.payload = payload;
	if (k.token.n > 0 && buf_put(&q->token, k.token.s, k.token.n) == 0)
		head_add(&q->head, "X-Amz-Security-Token",
			 (struct http_text){ q->token.data, q->token.len });
	ret = aws_sign(a, &k, &r, &q->credential, &q->chain);
	if (ret == -E2BIG)
		return refuse(why, TAP_NO_SECRET, 403,
			      "secret %s cannot be applied to a query of so many parameters",
			      s->name);
	if (ret == -EBADMSG)
		return refuse(why, TAP_NO_SECRET, 403,
			      "secret %s cannot be applied to a request without a valid X-Amz-Date",
			      s->name);
	return ret;
}

static int set(const struct tap_secret *s, const struct aws_auth *aws, const char *pair,
	       const struct buf *body, struct request *q, struct refusal *why)
{
	int r = 0;

	switch (s->form) {
	case SECRET_BEARER:
		(void)buf_printf(&q->credential, "Bearer %s", s->value);
		break;
	case SECRET_HEADER:
		put_format(&q->credential, s->format, s->value);
		break;
	case SECRET_BASIC:
		put_basic(&q->credential, s, pair);
		break;
	case SECRET_AWS:
		r = apply_aws(s, aws, body, q, why);
		break;
	case SECRET_QUERY:
	case SECRET_FORMS:
		return 0;
	}
	if (r < 0 || q->credential.err)
		return r < 0 ? r : no_memory(&q->credential);
	if (!http_value_valid(q->credential.data, q->credential.len))
		return refuse(why, TAP_NO_SECRET, 403,
			      "the value of secret %s has a line break or control character",
			      s->name);
	head_add(&q->head, s->form == SECRET_HEADER ? s->header : "Authorization",
		 (struct http_text){ q->credential.data, q->credential.len });
	return 0;
}

int inject_apply(const struct tap_config *c, const struct name *host, const struct injection *inj,
		 const struct buf *body, struct request *q, struct refusal *why)
{
	const struct tap_secret *s = inj->secret < 0 ? NULL : &c->secrets[inj->secret];
	_cleanup_free_ char *pair = NULL;
	const struct head_field *auth;
	struct aws_auth aws = { 0 };
	size_t count;
	int r;

	assert(c->secrets || c->n_secrets == 0);
	auth = head_find(&q->head, "authorization", &count);
	if (!inj->bound) {
		if (count > 1)
			(void)head_drop(&q->head, "authorization");
		return 0;
	}
	if (auth)
		pair = decode_basic(auth->value);
	(void)find_aws(q, &aws);
	strip_fields(c, host, q);
	r = rewrite_query(c, host, s && s->form == SECRET_QUERY ? s : NULL, q);
	if (r < 0 || !s)
		return r;
	return set(s, &aws, pair, body, q, why);
}

int inject_mask(const struct tap_secret *s, struct mask *m)
{
	struct aws_key k;
	int r;

	if (s->form == SECRET_AWS && aws_key_parse(s->value, &k) == 0) {
		r = mask_add(m, k.secret.s, k.secret.n, NULL);
		return r < 0 ? r : mask_add(m, k.token.s, k.token.n, NULL);
	}
	return mask_add(m, s->value, strlen(s->value),
			s->form == SECRET_BASIC ? (s->user[0] ? s->user : BASIC_USER) : NULL);
}
