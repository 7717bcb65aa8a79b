/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json-util.h"
#include "token/credential.h"
#include "token/jwt.h"

#define NOW   (UINT64_C(1800000000) * NSEC_PER_SEC)
#define OAUTH "{\"token_url\":\"https://h.test/t\",\"client_id\":\"i\",\"client_secret\":\"s\"}"

static int parse(const char *text, enum secret_source type, struct err *e)
{
	_cleanup_credential_ struct credential c = { 0 };

	*e = (struct err)ERR_INIT;
	return credential_parse(text, strlen(text), type, &c, e);
}

TEST(urls)
{
	static const char *const bad[] = {
		"http://h/",	"https://",	    "https:///x",     "https://u@h/",
		"https://h:0/", "https://h:65536/", "https://h:/",    "https://h/#f",
		"https://h/ x", "https://h?x",	    "https://[::1/",  "https://[x]/",
		"https://-h/",	"https://h\\x/",    "https://h/\x7f",
	};
	struct err e = ERR_INIT;
	struct token_url u;

	assert_int_equal(token_url_parse("https://h.test:8443/a?b=c", &u, &e), 0);
	assert_string_equal(u.host, "h.test");
	assert_string_equal(u.port, "8443");
	assert_string_equal(u.target, "/a?b=c");
	assert_false(u.is_addr);
	assert_int_equal(token_url_parse("https://[::1]", &u, &e), 0);
	assert_string_equal(u.host, "::1");
	assert_string_equal(u.port, "443");
	assert_string_equal(u.target, "/");
	assert_true(u.is_addr);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e = (struct err)ERR_INIT;
		assert_int_equal(token_url_parse(bad[i], &u, &e), -EINVAL);
	}
}

TEST(credentials)
{
	struct err e;

	assert_int_equal(parse(OAUTH, SECRET_OAUTH, &e), 0);
	assert_int_equal(parse(OAUTH, SECRET_GITHUB_APP, &e), -EINVAL);
	assert_int_equal(parse("[]", SECRET_OAUTH, &e), -EINVAL);
	assert_int_equal(
		parse("{\"token_url\":\"https://h/\",\"client_id\":\"i\",\"client_secret\":"
		      "\"leaky\\u0007\"}",
		      SECRET_OAUTH, &e),
		-EINVAL);
	assert_non_null(strstr(e.msg, "'client_secret'"));
	assert_null(strstr(e.msg, "leaky"));
}

TEST(requests)
{
	_cleanup_credential_ struct credential c = { 0 };
	struct buf b = BUF_INIT(TOKEN_REQUEST_MAX);
	struct err e = ERR_INIT;

	assert_int_equal(credential_parse(OAUTH, strlen(OAUTH), SECRET_OAUTH, &c, &e), 0);
	assert_int_equal(credential_request(&c, "", "", &b, &e), 0);
	assert_non_null(strstr(buf_text(&b), "POST /t HTTP/1.1\r\nHost: h.test\r\n"));
	assert_non_null(strstr(buf_text(&b), "Authorization: Basic aTpz\r\n"));
	assert_non_null(strstr(buf_text(&b), "\r\n\r\ngrant_type=client_credentials"));
	buf_reset(&b);
	assert_int_equal(credential_request(&c, "a b&c", "", &b, &e), 0);
	assert_non_null(
		strstr(buf_text(&b), "\r\n\r\ngrant_type=refresh_token&refresh_token=a%20b%26c"));
	buf_done(&b);
}

/* ---- responses ---- */

static int body(const char *text, bool end, char *out, size_t size)
{
	char copy[1024], *at = NULL;
	struct err e = ERR_INIT;
	unsigned int status = 0;
	size_t n = 0;
	int r;

	(void)snprintf(copy, sizeof(copy), "%s", text);
	r = response_body(copy, strlen(copy), end, &status, &at, &n, &e);
	if (r == 1)
		(void)snprintf(out, size, "%u %.*s", status, (int)n, at);
	return r;
}

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

TEST(responses)
{
	static const char *const bad[] = {
		"HTTP/2 200\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\nx: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx",
		CHUNKED "x\r\n",
	};
	char out[64];

	assert_int_equal(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", false, out, 64),
			 1);
	assert_string_equal(out, "200 ab");
	assert_int_equal(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", false, out, 64), 0);
	assert_int_equal(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", true, out, 64),
			 -EBADMSG);
	assert_int_equal(body("HTTP/1.1 404 No\r\n\r\nabc", false, out, 64), 0);
	assert_int_equal(body("HTTP/1.1 404 No\r\n\r\nabc", true, out, 64), 1);
	assert_string_equal(out, "404 abc");
	assert_int_equal(body(CHUNKED "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", false, out, 64), 1);
	assert_string_equal(out, "200 abc");
	assert_int_equal(body(CHUNKED "1\r\na\r\n", false, out, 64), 0);
	assert_int_equal(body(CHUNKED "1\r\na\r\n", true, out, 64), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(body(bad[i], true, out, 64), -EBADMSG);
}

static int answer(enum secret_source type, unsigned int status, const char *text,
		  struct secret_token *t, struct err *e)
{
	const struct credential c = { .type = type };

	secret_token_done(t);
	*t = (struct secret_token)SECRET_TOKEN_INIT;
	*e = (struct err)ERR_INIT;
	return token_answer(&c, status, text, strlen(text), NOW, t, e);
}

TEST(answers)
{
	_cleanup_secret_token_ struct secret_token t = SECRET_TOKEN_INIT;
	struct err e;

	assert_int_equal(answer(SECRET_OAUTH, 200,
				"{\"access_token\":\"12345678\",\"token_type\":\"BEARER\"}", &t,
				&e),
			 0);
	assert_string_equal(buf_text(&t.token), "12345678");
	assert_int_equal(t.refresh.len, 0);
	assert_int_equal(t.expires, NOW + TOKEN_LIFE_S * NSEC_PER_SEC);
	assert_int_equal(secret_token_due(&t), NOW + TOKEN_LIFE_S * NSEC_PER_SEC / 4 * 3);
	assert_int_equal(
		answer(SECRET_OAUTH, 200,
		       "{\"access_token\":\"12345678\",\"token_type\":\"bearer\","
		       "\"expires_in\":9223372036854775807,\"refresh_token\":\"abcdefgh\"}",
		       &t, &e),
		0);
	assert_string_equal(buf_text(&t.refresh), "abcdefgh");
	assert_int_equal(t.expires, NOW + TOKEN_LIFE_MAX_S * NSEC_PER_SEC);
	assert_int_equal(answer(SECRET_OAUTH, 400, "{\"error\":\"invalid_scope\"}", &t, &e),
			 -EACCES);
	assert_non_null(strstr(e.msg, "status 400: invalid_scope"));
	assert_int_equal(answer(SECRET_OAUTH, 400, "{\"error\":\"leaky\"}", &t, &e), -EACCES);
	assert_null(strstr(e.msg, "leaky"));
	assert_int_equal(answer(SECRET_OAUTH, 200, "leaky", &t, &e), -EBADMSG);
	assert_null(strstr(e.msg, "leaky"));
	assert_int_equal(answer(SECRET_GITHUB_APP, 201,
				"{\"token\":\"12345678\",\"expires_at\":\"2027-01-15T09:00:00Z\"}",
				&t, &e),
			 0);
	assert_int_equal(answer(SECRET_GITHUB_APP, 201,
				"{\"token\":\"12345678\",\"expires_at\":\"2027-01-15T08:00:00Z\"}",
				&t, &e),
			 -EBADMSG); /* the time of the request */
}

/* ---- JWT ---- */

static char *pem_of(EVP_PKEY *key)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *text, *copy;
	long n;

	assert_int_equal(PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL), 1);
	n = BIO_get_mem_data(b, &text);
	copy = calloc((size_t)n + 1, 1);
	assert_non_null(copy);
	memcpy(copy, text, (size_t)n); /* without a NUL */
	BIO_free(b);
	return copy;
}

static void verify(EVP_PKEY *key, const char *jwt)
{
	const char *dot = strrchr(jwt, '.');
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char *signature = NULL;
	size_t n = 0;

	assert_non_null(dot);
	assert_int_equal(base64_decode(dot + 1, strlen(dot + 1), &signature, &n), 0);
	assert_int_equal(EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, key), 1);
	assert_int_equal(EVP_DigestVerify(ctx, (unsigned char *)signature, n,
					  (const unsigned char *)jwt, (size_t)(dot - jwt)),
			 1);
	EVP_MD_CTX_free(ctx);
	free(signature);
}

TEST(jwt)
{
	struct buf b = BUF_INIT(16384);
	EVP_PKEY *key = EVP_RSA_gen(2048), *small = EVP_RSA_gen(1024);
	char *pem = pem_of(key), *small_pem = pem_of(small), *claims = NULL;
	struct err e = ERR_INIT;
	char *first, *second;
	size_t n = 0;

	assert_int_equal(jwt_make(pem, "123", 1800000000, &b, &e), 0);
	verify(key, buf_text(&b));
	first = strchr(b.data, '.') + 1;
	second = strchr(first, '.');
	assert_int_equal(base64_decode(first, (size_t)(second - first), &claims, &n), 0);
	assert_non_null(strstr(claims, "1799999940"));
	assert_non_null(strstr(claims, "1800000540"));
	assert_non_null(strstr(claims, "\"123\""));
	assert_int_equal(jwt_make(small_pem, "123", 1800000000, &b, &e), -EINVAL);
	assert_int_equal(jwt_make("leaky", "123", 1800000000, &b, &e), -EINVAL);
	assert_null(strstr(e.msg, "leaky"));
	free(claims);
	free(pem);
	free(small_pem);
	EVP_PKEY_free(key);
	EVP_PKEY_free(small);
	buf_done(&b);
}
