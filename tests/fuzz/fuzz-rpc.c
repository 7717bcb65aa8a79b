/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of process.Process requests: the first byte selects the method, the second the content
 * type and the split into pieces. There is no sandbox, so a valid request ends in an error. For any
 * input there is one answer, and a stream has a last envelope.
 */
#include <assert.h>
#include <string.h>

#include "../unit/http-wrap.h"
#include "envd/process.h"
#include "fuzz.h"

enum {
	METHODS = 8,
	OUT_MAX = 64 * 1024,
};

static struct {
	const uint8_t *body;
	size_t n, piece;
	bool stream, answered, paused;
	int status;
	char out[OUT_MAX];
	size_t n_out;
} now;

const char *__wrap_http_field(const struct exchange *x, const char *name)
{
	(void)x;
	if (str_eq(name, "content-type"))
		return now.stream ? RPC_STREAM : RPC_JSON;
	return NULL;
}

void __wrap_http_collect(struct exchange *x, size_t max,
			 void (*collected)(struct exchange *x, const char *data, size_t n))
{
	assert(now.n <= max);
	collected(x, (const char *)now.body, now.n);
}

void __wrap_http_body(struct exchange *x, const struct http_body *ops)
{
	for (size_t at = 0; at < now.n && !now.answered && !now.paused;) {
		size_t k = MIN(now.piece, now.n - at);

		ops->data(x, (const char *)now.body + at, k);
		at += k;
	}
	if (!now.answered && !now.paused)
		ops->end(x);
}

void __wrap_http_body_pause(struct exchange *x, bool pause)
{
	(void)x;
	now.paused = pause;
}

static void write_out(const void *data, size_t n)
{
	assert(!now.answered && n <= sizeof(now.out) - now.n_out);
	memcpy(now.out + now.n_out, data, n);
	now.n_out += n;
}

void __wrap_http_answer(struct exchange *x, int status, const char *type, const void *data,
			size_t n)
{
	(void)x;
	(void)type;
	write_out(data, n);
	now.status = status;
	now.answered = true;
}

void __wrap_http_begin(struct exchange *x, int status, const char *type, int64_t length,
		       void (*room)(struct exchange *x))
{
	(void)x;
	(void)type;
	(void)length;
	(void)room;
	now.status = status;
}

bool __wrap_http_full(const struct exchange *x)
{
	(void)x;
	return false;
}

void __wrap_http_write(struct exchange *x, const void *data, size_t n)
{
	(void)x;
	write_out(data, n);
}

void __wrap_http_end(struct exchange *x)
{
	(void)x;
	now.answered = true;
}

void __wrap_http_finish(struct exchange *x, const void *data, size_t n)
{
	__wrap_http_write(x, data, n);
	__wrap_http_end(x);
}

void __wrap_http_cut(struct exchange *x)
{
	(void)x;
	now.answered = true;
}

static void check_stream(void)
{
	struct reader in = reader_of(now.out, now.n_out);
	unsigned int flags = 0;

	while (flags == 0) {
		struct err e = ERR_INIT;
		json_t *j = NULL;
		const uint8_t *text;
		size_t n;

		flags = (unsigned int)reader_be(&in, 1);
		n = (size_t)reader_be(&in, RPC_HEADER - 1);
		text = reader_bytes(&in, n);
		assert(text && json_read((const char *)text, n, &j, &e) == 0);
		json_decref(j);
	}
	assert(flags == 2 && reader_finish(&in) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct api_config config = { 0 };
	static struct api api = { .config = &config };
	struct box box = { .api = &api, .sandbox = SANDBOX_INIT };
	struct exchange x = { .method = "POST" };
	struct request *r;

	if (n < 2)
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return 0;
	memset(&now, 0, offsetof(__typeof__(now), out));
	now.n_out = 0;
	now.body = data + 2;
	now.n = MIN(n - 2, (size_t)HTTP_SERVER_JSON_MAX);
	now.stream = data[1] & 1;
	now.piece = 1 + (data[1] >> 1);
	*r = (struct request){ .api = &api, .x = &x };
	x.cookie = r;
	request_join(r, &box);
	envd_process_routes[data[0] % METHODS].handle(r);
	assert(now.answered);
	if (now.stream && now.status == 200)
		check_stream();
	commands_drop(&box);
	return 0;
}
