/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the HTTP server that API tests wrap (ld --wrap). */
#pragma once

#include "http/http-server.h"

#include "api/api-inner.h"

const char *__wrap_http_field(const struct exchange *x, const char *name);
void __wrap_http_collect(struct exchange *x, size_t max,
			 void (*collected)(struct exchange *x, const char *data, size_t n));
void __wrap_http_body(struct exchange *x, const struct http_body *ops);
void __wrap_http_body_pause(struct exchange *x, bool pause);
void __wrap_http_answer(struct exchange *x, int status, const char *type, const void *data,
			size_t n);
void __wrap_http_begin(struct exchange *x, int status, const char *type, int64_t length,
		       void (*room)(struct exchange *x));
bool __wrap_http_full(const struct exchange *x);
void __wrap_http_write(struct exchange *x, const void *data, size_t n);
void __wrap_http_end(struct exchange *x);
void __wrap_http_finish(struct exchange *x, const void *data, size_t n);
void __wrap_http_cut(struct exchange *x);
