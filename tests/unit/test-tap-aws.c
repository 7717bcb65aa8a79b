/* SPDX-License-Identifier: Apache-2.0 */
/* SigV4: the examples that AWS publishes, and requests that hutch-tap signs again. */
#include "unit.h"

#include "tap-world.h"
#include "tap/aws-chunk.h"

#define KEY_ID "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define EMPTY  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static struct aws_chain chain;

/* Signs the head with the published key; returns the signature. */
static const char *signature_of(const char *method, const char *path, const char *query,
				const char *fields, const char *auth, const char *key,
				const char *payload)
{
	static char text[4096], head_out[4096];
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	struct head_input in = HEAD_INPUT_INIT;
	const char *why = NULL;
	struct aws_auth a;
	struct aws_key k;
	struct head h;
	size_t used;

	(void)snprintf(head_out, sizeof(head_out), "X\r\n%s\r\n", fields);
	assert_int_equal(head_feed(&in, head_out, strlen(head_out), &used, &why), 1);
	assert_int_equal(head_parse(&in, &h, &why), 0);
	assert_int_equal(aws_auth_parse(head_text(auth), &a), 0);
	assert_int_equal(aws_key_parse(key, &k), 0);
	assert_int_equal(
		aws_sign(&a, &k,
			 &(struct aws_request){ method, path,
						query ? head_text(query) : (struct http_text){ 0 },
						&h, payload },
			 &out, &chain),
		0);
	head_input_reset(&in);
	(void)snprintf(text, sizeof(text), "%s", buf_text(&out));
	assert_non_null(strstr(text, ", Signature="));
	return strstr(text, ", Signature=") + STRLEN(", Signature=");
}

#define AUTH(scope, fields)                                                             \
	"AWS4-HMAC-SHA256 Credential=PLACEHOLDER/" scope ", SignedHeaders=" fields ", " \
	"Signature=00"

TEST(test_list_users)
{
	assert_string_equal(
		signature_of(
			"GET", "/", "Action=ListUsers&Version=2010-05-08",
			"Host: iam.amazonaws.com\r\n"
			"Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
			"X-Amz-Date: 20150830T123600Z\r\n",
			AUTH("20150830/us-east-1/iam/aws4_request", "content-type;host;x-amz-date"),
			KEY_ID ":" SECRET, EMPTY),
		"5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
}

#define SUITE "20150830/us-east-1/service/aws4_request"
#define DATE  "Host:example.amazonaws.com\r\nX-Amz-Date:20150830T123600Z\r\n"

/* aws-sig-v4-test-suite */
TEST(test_suite)
{
	static const struct {
		const char *method, *path, *query, *fields, *names, *wanted;
	} rows[] = {
		{ "GET", "/", NULL, DATE, "host;x-amz-date",
		  "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
		{ "POST", "/", NULL, DATE, "host;x-amz-date",
		  "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
		{ "GET", "/", "Param2=value2&Param1=value1", DATE, "host;x-amz-date",
		  "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500" },
		/* Empty parameters, and several spellings of one. */
		{ "GET", "/", "&=&Param2=value2&", DATE, "host;x-amz-date",
		  "61695c76dd08da3480ab463a5e4d9260354a70dba5e8270faeb8801e18388a67" },
		{ "GET", "/", "b=%7e+%2f&a&%61=%", DATE, "host;x-amz-date",
		  "b8b5f503c0467767940ab9f33e26bc3add0068474eed3db6fe63ee0801426f92" },
		{ "GET", "/", NULL,
		  "Host:example.amazonaws.com\r\nMy-Header1: value1\r\n"
		  "My-Header2: \"a   b   c\"\r\nX-Amz-Date:20150830T123600Z\r\n",
		  "host;my-header1;my-header2;x-amz-date",
		  "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736" },
		{ "GET", "/", NULL,
		  "Host:example.amazonaws.com\r\nMy-Header1:value2\r\nMy-Header1:value2\r\n"
		  "My-Header1:value1\r\nX-Amz-Date:20150830T123600Z\r\n",
		  "host;my-header1;x-amz-date",
		  "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea" },
		{ "GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
		  NULL, DATE, "host;x-amz-date",
		  "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char auth[512];

		(void)snprintf(auth, sizeof(auth), AUTH(SUITE, "%s"), rows[i].names);
		assert_string_equal(signature_of(rows[i].method, rows[i].path, rows[i].query,
						 rows[i].fields, auth, KEY_ID ":" SECRET, EMPTY),
				    rows[i].wanted);
	}
}

/* The examples in the manual of S3. */
TEST(test_s3)
{
	static const char key[] = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
	static const char scope[] =
		AUTH("20130524/us-east-1/s3/aws4_request", "host;x-amz-content-sha256;x-amz-date");

	assert_string_equal(
		signature_of("GET", "/test.txt", NULL,
			     "Host: examplebucket.s3.amazonaws.com\r\nRange: bytes=0-9\r\n"
			     "x-amz-content-sha256: " EMPTY "\r\nx-amz-date: 20130524T000000Z\r\n",
			     AUTH("20130524/us-east-1/s3/aws4_request",
				  "host;range;x-amz-content-sha256;x-amz-date"),
			     key, EMPTY),
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	assert_string_equal(signature_of("GET", "/", "lifecycle",
					 "Host: examplebucket.s3.amazonaws.com\r\n"
					 "x-amz-content-sha256: " EMPTY
					 "\r\nx-amz-date: 20130524T000000Z\r\n",
					 scope, key, EMPTY),
			    "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	assert_string_equal(signature_of("GET", "/", "max-keys=2&prefix=J",
					 "Host: examplebucket.s3.amazonaws.com\r\n"
					 "x-amz-content-sha256: " EMPTY
					 "\r\nx-amz-date: 20130524T000000Z\r\n",
					 scope, key, EMPTY),
			    "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
	assert_string_equal(
		signature_of("PUT", "/test%24file.text", NULL,
			     "Date: Fri, 24 May 2013 00:00:00 GMT\r\n"
			     "Host: examplebucket.s3.amazonaws.com\r\n"
			     "x-amz-content-sha256: "
			     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\r\n"
			     "x-amz-date: 20130524T000000Z\r\n"
			     "x-amz-storage-class: REDUCED_REDUNDANCY\r\n",
			     AUTH("20130524/us-east-1/s3/aws4_request",
				  "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class"),
			     key,
			     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(test_parse)
{
	static const char *const bad[] = {
		"Bearer x",
		"AWS4-HMAC-SHA256",
		"AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, Signature=0",
		"AWS4-HMAC-SHA256 Credential=a/2015/r/s/aws4_request,SignedHeaders=host",
		"AWS4-HMAC-SHA256 Credential=a/20150830/r/s/x, SignedHeaders=host, Signature=0",
		"AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=0",
		"AWS4-HMAC-SHA256 X=a",
	};
	struct aws_auth a;
	struct aws_key k;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(aws_auth_parse(head_text(bad[i]), &a), -EBADMSG);
	assert_int_equal(aws_key_parse("x", &k), -EBADMSG);
	assert_int_equal(aws_key_parse(":x", &k), -EBADMSG);
	assert_int_equal(aws_key_parse("x:", &k), -EBADMSG);
	assert_int_equal(aws_key_parse("i:s:t:u", &k), 0);
	assert_int_equal(k.id.n, 1);
	assert_int_equal(k.secret.n, 1);
	assert_int_equal(k.token.n, 3);
}

/* ---- chunks: the example in the manual of S3 ---- */

#define S3_KEY "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define ZEROS  "0000000000000000000000000000000000000000000000000000000000000000"

TEST(test_chunks)
{
	_cleanup_buf_ struct buf in = BUF_INIT(1024 * 1024), wanted = BUF_INIT(1024 * 1024);
	static const char *const signatures[] = {
		"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
	};
	static const size_t sizes[] = { 65536, 1024, 0 };

	assert_string_equal(
		signature_of(
			"PUT", "/examplebucket/chunkObject.txt", NULL,
			"Host: s3.amazonaws.com\r\nx-amz-date: 20130524T000000Z\r\n"
			"x-amz-storage-class: REDUCED_REDUNDANCY\r\n"
			"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n"
			"Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 66560\r\n"
			"Content-Length: 66824\r\n",
			AUTH("20130524/us-east-1/s3/aws4_request",
			     "content-encoding;content-length;host;x-amz-content-sha256;"
			     "x-amz-date;x-amz-decoded-content-length;x-amz-storage-class"),
			S3_KEY, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
		"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		(void)buf_printf(&in, "%zx;chunk-signature=" ZEROS "\r\n", sizes[i]);
		(void)buf_printf(&wanted, "%zx;chunk-signature=%s\r\n", sizes[i], signatures[i]);
		for (size_t k = 0; k < sizes[i]; k++) {
			(void)buf_putc(&in, 'a');
			(void)buf_putc(&wanted, 'a');
		}
		(void)buf_puts(&in, "\r\n");
		(void)buf_puts(&wanted, "\r\n");
	}
	for (size_t step = 1; step < in.len * 2; step = step * 3 + 1) {
		struct aws_chunks *a = aws_chunks_new(&chain, false);
		_cleanup_buf_ struct buf out = BUF_INIT(1024 * 1024);

		for (size_t at = 0; at < in.len; at += step) {
			assert_false(aws_chunks_done(a));
			assert_int_equal(
				aws_chunks_feed(a, in.data + at, MIN(step, in.len - at), &out), 0);
		}
		assert_true(aws_chunks_done(a));
		assert_string_equal(out.data, wanted.data);
		assert_int_equal(aws_chunks_feed(a, "x\r\n", 3, &out), -EBADMSG);
		(void)aws_chunks_free(a);
	}
}

/* The example with trailers. */
TEST(test_trailers)
{
	struct aws_chunks *a;
	_cleanup_buf_ struct buf out = BUF_INIT(1024 * 1024);
	static const char body[] = "0;chunk-signature=" ZEROS "\r\n"
				   "x-amz-checksum-crc32c:sOO8/Q==\r\n"
				   "x-amz-trailer-signature:" ZEROS "\r\n\r\n";
	static char data[65536], line[128];

	assert_string_equal(
		signature_of(
			"PUT", "/examplebucket/chunkObject.txt", NULL,
			"Host: s3.amazonaws.com\r\nx-amz-date: 20130524T000000Z\r\n"
			"x-amz-storage-class: REDUCED_REDUNDANCY\r\n"
			"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\r\n"
			"Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 66560\r\n"
			"x-amz-trailer: x-amz-checksum-crc32c\r\n",
			AUTH("20130524/us-east-1/s3/aws4_request",
			     "content-encoding;host;x-amz-content-sha256;"
			     "x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-"
			     "trailer"),
			S3_KEY, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
		"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
	a = aws_chunks_new(&chain, true);
	memset(data, 'a', sizeof(data));
	for (size_t size = 65536; size > 0; size = size == 65536 ? 1024 : 0) {
		(void)snprintf(line, sizeof(line), "%zx;chunk-signature=" ZEROS "\r\n", size);
		assert_int_equal(aws_chunks_feed(a, line, strlen(line), &out), 0);
		assert_int_equal(aws_chunks_feed(a, data, size, &out), 0);
		assert_int_equal(aws_chunks_feed(a, "\r\n", 2, &out), 0);
	}
	buf_reset(&out);
	assert_int_equal(aws_chunks_feed(a, body, strlen(body), &out), 0);
	assert_true(aws_chunks_done(a));
	assert_string_equal(
		out.data,
		"0;chunk-signature="
		"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n"
		"x-amz-checksum-crc32c:sOO8/Q==\r\n"
		"x-amz-trailer-signature:"
		"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n");
	(void)aws_chunks_free(a);
}

TEST(test_bad_chunks)
{
	static const char *const bad[] = {
		"0\r\n",
		";chunk-signature=" ZEROS "\r\n",
		"1;chunk-signature=" ZEROS "0\r\n",
		"1;chunk-signature=0\r\n",
		"1;chunk-signature=" ZEROS "\n",
		"000000001;chunk-signature=" ZEROS "\r\n",
		"1;chunk-signature=" ZEROS "\r\naa\r\n",
		"0;chunk-signature=" ZEROS "\r\na:b\r\n",
		"-1;chunk-signature=" ZEROS "\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct aws_chunks *a = aws_chunks_new(&chain, false);
		_cleanup_buf_ struct buf out = BUF_INIT(4096);

		assert_int_equal(aws_chunks_feed(a, bad[i], strlen(bad[i]), &out), -EBADMSG);
		(void)aws_chunks_free(a);
	}
}

/* ---- within an exchange ---- */

#define FIELDS \
	"Host: " WORLD_HOST "\r\nX-Amz-Date: 20150830T123600Z\r\nX-Amz-Security-Token: theirs\r\n"
#define CLIENT_AUTH                                                       \
	"Authorization: " AUTH("20150830/us-east-1/service/aws4_request", \
			       "host;x-amz-date;x-amz-security-token") "\r\n"

static void start(struct world *w, const char *value)
{
	world_init(w);
	world_secret(w, "AWS", SECRET_AWS, value)->placeholder = "PLACEHOLDER";
}

/* Sends the request in pieces; returns the output, which must not depend on them. */
static const char *sent(struct world *w, const char *request)
{
	static char first[8192];

	for (uint32_t seed = 0; seed < 6; seed++) {
		w->seed = seed;
		world_begin(w);
		world_talk(w, request, NULL);
		if (seed == 0)
			(void)snprintf(first, sizeof(first), "%s", buf_text(&w->to_server));
		assert_string_equal(buf_text(&w->to_server), first);
	}
	return first;
}

TEST(test_exchange)
{
	struct world w;
	const char *text;

	start(&w, KEY_ID ":" SECRET ":session/token");
	text = sent(&w, "GET /a HTTP/1.1\r\n" FIELDS CLIENT_AUTH "\r\n");
	assert_non_null(strstr(text, "\r\nX-Amz-Security-Token: session/token\r\n"));
	assert_null(strstr(text, "theirs"));
	assert_null(strstr(text, "PLACEHOLDER"));
	assert_non_null(strstr(text,
			       "Credential=" KEY_ID "/20150830/us-east-1/service/aws4_request, "
			       "SignedHeaders=host;x-amz-date;x-amz-security-token, Signature="));
	assert_non_null(
		strstr(text, signature_of("GET", "/a", NULL,
					  "Host: " WORLD_HOST "\r\n"
					  "X-Amz-Date: 20150830T123600Z\r\n"
					  "X-Amz-Security-Token: session/token\r\n",
					  AUTH(SUITE, "host;x-amz-date;x-amz-security-token"),
					  KEY_ID ":" SECRET, EMPTY)));
	world_done(&w);
}

/* The body is hashed before the head is sent. */
TEST(test_exchange_body)
{
	struct world w;
	const char *signature;
	char hash[AWS_HASH_LEN + 1];

	start(&w, KEY_ID ":" SECRET);
	aws_hash("hello", 5, hash);
	signature = signature_of("POST", "/", NULL, DATE, AUTH(SUITE, "host;x-amz-date"),
				 KEY_ID ":" SECRET, hash);
	w.host.len = (uint8_t)snprintf(w.host.text, sizeof(w.host.text), "example.amazonaws.com");
	w.secrets[0].hosts.v = (const char *const[]){ "example.amazonaws.com" };
	assert_non_null(strstr(
		sent(&w, "POST / HTTP/1.1\r\nHost: example.amazonaws.com\r\n"
			 "X-Amz-Date: 20150830T123600Z\r\nContent-Length: 5\r\n"
			 "Expect: 100-continue\r\n"
			 "Authorization: " AUTH(SUITE, "host;x-amz-date;expect") "\r\n\r\nhello"),
		signature));
	assert_string_equal(buf_text(&w.to_client), "HTTP/1.1 100 Continue\r\n\r\n");
	assert_non_null(strstr(
		sent(&w, "POST / HTTP/1.1\r\nHost: example.amazonaws.com\r\n"
			 "X-Amz-Date: 20150830T123600Z\r\nTransfer-Encoding: chunked\r\n"
			 "Authorization: " AUTH(
				 SUITE, "host;x-amz-date") "\r\n\r\n"
							   "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
		signature));
	assert_true(str_has_suffix(buf_text(&w.to_server), "\r\n\r\nhello"));
	assert_non_null(strstr(buf_text(&w.to_server), "\r\nContent-Length: 5\r\n"));
	world_done(&w);
}

TEST(test_exchange_refused)
{
	struct world w;

	start(&w, KEY_ID ":" SECRET);
	assert_string_equal(
		sent(&w, "GET /?X-Amz-Signature=1&a HTTP/1.1\r\nHost: " WORLD_HOST "\r\n\r\n"), "");
	assert_int_equal(w.record[0].result, TAP_NO_SECRET);
	assert_string_equal(w.record[0].text, "secret AWS cannot be applied to a presigned URL");
	assert_string_equal(
		sent(&w, "GET / HTTP/1.1\r\nHost: " WORLD_HOST "\r\n" CLIENT_AUTH "\r\n"), "");
	assert_int_equal(w.record[0].result, TAP_NO_SECRET);
	assert_string_equal(sent(&w, "POST / HTTP/1.1\r\n" FIELDS CLIENT_AUTH
				     "Content-Length: 2000000\r\n\r\n"),
			    "");
	assert_int_equal(w.record[0].result, TAP_TOO_LARGE);
	/* Without a signature the request stays anonymous. */
	assert_string_equal(sent(&w, "GET / HTTP/1.1\r\nHost: " WORLD_HOST
				     "\r\nAuthorization: Bearer x\r\n\r\n"),
			    "GET / HTTP/1.1\r\nHost: " WORLD_HOST "\r\n\r\n");
	w.secrets[0].value = "not-a-pair";
	assert_string_equal(sent(&w, "GET / HTTP/1.1\r\n" FIELDS CLIENT_AUTH "\r\n"), "");
	assert_string_equal(w.record[0].text, "secret AWS is not KEY-ID:SECRET-KEY");
	world_done(&w);
}

TEST(test_exchange_chunks)
{
	struct world w;
	const char *text;

	start(&w, KEY_ID ":" SECRET);
	text = sent(&w,
		    "PUT /a HTTP/1.1\r\n" FIELDS CLIENT_AUTH "Content-Length: 177\r\n"
		    "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n\r\n"
		    "5;chunk-signature=" ZEROS "\r\nhello\r\n0;chunk-signature=" ZEROS "\r\n\r\n");
	assert_null(strstr(text, ZEROS));
	assert_non_null(strstr(text, "\r\n\r\n5;chunk-signature="));
	assert_non_null(strstr(text, "\r\nhello\r\n0;chunk-signature="));
	assert_int_equal(strlen(strstr(text, "\r\n\r\n") + 4), 177);
	assert_false(exchange_over(w.x));
	w.seed = 0;
	world_begin(&w);
	world_talk(&w,
		   "PUT /a HTTP/1.1\r\n" FIELDS CLIENT_AUTH "Content-Length: 93\r\n"
		   "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n\r\n"
		   "5;chunk-signature=" ZEROS "\r\nhello\r\n\r\n",
		   NULL);
	assert_int_equal(w.record[0].result, TAP_BAD_REQUEST);
	world_done(&w);
}

/* Parts of the value are secret, the key's id is public. */
TEST(test_exchange_mask)
{
	struct world w;
	const char *const server[] = { "HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n" KEY_ID
				       " " SECRET " session/token" };

	start(&w, KEY_ID ":" SECRET ":session/token");
	w.seed = 0;
	world_begin(&w);
	world_talk(&w, "GET /a HTTP/1.1\r\n" FIELDS CLIENT_AUTH "\r\n",
		   (const char *const[]){ server[0], NULL });
	assert_non_null(strstr(buf_text(&w.to_client), "\r\n\r\n" KEY_ID " **"));
	assert_null(strstr(buf_text(&w.to_client), SECRET));
	assert_null(strstr(buf_text(&w.to_client), "session"));
	assert_true(w.record[0].reflected);
	world_done(&w);
}
