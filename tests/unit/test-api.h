/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request without a connection: the wrapped functions of the HTTP server (meson.build:
 * api_wrap_args) collect the API's response. All code in between is real.
 */
#pragma once

#include "unit.h"

#include <string.h>

#include "base/clock.h"
#include "envd/records-watch.h"
#include "envd/rpc.h"
#include "fail.h"
#include "http-wrap.h"

enum {
	OUT_MAX = 8 * 1024 * 1024,
	FIELDS = 4,
};

/* The state of a test's single request. */
struct client {
	struct exchange x;
	struct request *r; /* NULL: it has ended */
	const char *fields[FIELDS][2];
	const char *body;
	size_t n_body;
	struct buf out;
	int status; /* 0: not answered */
	char type[64];
	bool begun, ended, cut, full;
	unsigned int writes;
	void (*room)(struct exchange *x);
};

static struct client client;
static char memory[OUT_MAX]; /* memory of client.out */
static struct api_config config;
static struct api api;

/* ---- the functions of the server ---- */

const char *__wrap_http_field(const struct exchange *x, const char *name)
{
	for (size_t i = 0; i < FIELDS && client.fields[i][0]; i++)
		if (str_eq(client.fields[i][0], name))
			return client.fields[i][1];
	return NULL;
}

void __wrap_http_collect(struct exchange *x, size_t max,
			 void (*collected)(struct exchange *x, const char *data, size_t n))
{
	assert_true(client.n_body <= max);
	collected(x, client.body, client.n_body);
}

static void answer_with(int status, const char *type)
{
	assert_int_equal(client.status, 0);
	client.status = status;
	(void)snprintf(client.type, sizeof(client.type), "%s", type ? type : "");
}

static void write_out(const void *data, size_t n)
{
	assert_false(client.ended || client.cut);
	client.writes++;
	assert_int_equal(buf_put(&client.out, data, n), 0);
}

void __wrap_http_answer(struct exchange *x, int status, const char *type, const void *data,
			size_t n)
{
	answer_with(status, type);
	write_out(data, n);
	client.ended = true;
	client.r = NULL;
}

void __wrap_http_begin(struct exchange *x, int status, const char *type, int64_t length,
		       void (*room)(struct exchange *x))
{
	assert_int_equal(length, -1);
	answer_with(status, type);
	client.begun = true;
	client.room = room;
}

bool __wrap_http_full(const struct exchange *x)
{
	return client.full;
}

void __wrap_http_write(struct exchange *x, const void *data, size_t n)
{
	assert_true(client.begun);
	write_out(data, n);
}

void __wrap_http_end(struct exchange *x)
{
	client.ended = true;
	client.r = NULL;
}

void __wrap_http_finish(struct exchange *x, const void *data, size_t n)
{
	__wrap_http_write(x, data, n);
	__wrap_http_end(x);
}

void __wrap_http_cut(struct exchange *x)
{
	client.cut = true;
	client.r = NULL;
}

/* ---- requests ---- */

static struct request *ask(const char *type)
{
	struct request *r = calloc(1, sizeof(*r));

	client = (struct client){
		.out = { .data = memory, .cap = sizeof(memory), .max = sizeof(memory) - 1 },
		.r = r,
	};
	if (!r)
		return NULL; /* an injected fault */
	client.fields[0][0] = "content-type";
	client.fields[0][1] = type;
	client.x.cookie = r;
	*r = (struct request){ .api = &api, .x = &client.x };
	return r;
}

/* Disconnects the client, if it is still connected. */
static void leave_client(void)
{
	if (client.r)
		request_free(client.r);
	client.r = NULL;
}

static int api_setup(void **state)
{
	struct err e = ERR_INIT;

	if (loop_new(&config.loop) < 0)
		return -1;
	api = (struct api){ .config = &config };
	return records_watch_new(config.loop, &api.records, &e);
}

static int api_teardown(void **state)
{
	leave_client();
	api.records = records_watch_free(api.records);
	config.loop = loop_free(config.loop);
	return 0;
}

/* ---- responses ---- */

/* The next envelope after *at; the caller frees the text. */
static inline char *next_envelope(size_t *at, unsigned int *ret_flags)
{
	struct reader in = reader_of(client.out.data + *at, client.out.len - *at);
	size_t n;

	*ret_flags = (unsigned int)reader_be(&in, 1);
	n = (size_t)reader_be(&in, 4);
	assert_int_equal(in.err, 0);
	assert_true(n <= reader_left(&in));
	*at += 5 + n;
	return strndup((const char *)in.pos, n);
}

static inline void expect_envelope(size_t *at, unsigned int flags, const char *text)
{
	unsigned int got;
	_cleanup_free_ char *is = next_envelope(at, &got);

	assert_int_equal(got, flags);
	assert_string_equal(is, text);
}
