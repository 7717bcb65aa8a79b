/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON: limits before parsing, no duplicate or unknown keys, no trailing bytes, one
 * canonical output format. The values are jansson's.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
	JSON_SIZE_MAX = 16 * 1024 * 1024,
	JSON_DEPTH_MAX = 32,
};

static inline void cleanup_json(json_t **j)
{
	json_decref(*j);
}

#define _cleanup_json_ _cleanup_(cleanup_json)

/*
 * Parses one JSON value of exactly `n` bytes. Rejects, with the position: size beyond
 * JSON_SIZE_MAX, depth beyond JSON_DEPTH_MAX, bad UTF-8, U+0000, duplicate keys, numbers out of
 * range, bytes after the value.
 */
int json_read(const char *text, size_t n, json_t **ret, struct err *e);

/*
 * Writes the canonical text: keys sorted by byte, ASCII only, two spaces of indentation, no newline
 * at the end.
 */
char *json_write_canonical(const json_t *j);

/* Writes the value on one line, for programs and logs. The caller frees both texts; NULL beyond
 * JSON_SIZE_MAX or without memory. */
char *json_write_line(const json_t *j);

/*
 * Fails, naming the key, if `obj` is not an object or holds a key missing from the NULL-terminated
 * list.
 */
int json_only_keys(const json_t *obj, const char *const *keys, struct err *e);

/*
 * Returns a member of an object by type. A missing key is -ENOENT, a wrong type or range -EINVAL,
 * with a message that names the key. The string stays owned by `obj`.
 */
int json_get_string(const json_t *obj, const char *key, size_t max, const char **ret,
		    struct err *e);
int json_get_u64(const json_t *obj, const char *key, uint64_t max, uint64_t *ret, struct err *e);
int json_get_bool(const json_t *obj, const char *key, bool *ret, struct err *e);

/*
 * Like jansson's *_set_new and *_append_new (they always consume the value), with -ENOMEM for a
 * NULL value or a failed insertion, so that results can be or-ed together.
 */
int json_put(json_t *obj, const char *key, json_t *value);
int json_push(json_t *array, json_t *value);

/* Makes an array of strings; NULL without memory. */
json_t *json_texts(const char *const *list, size_t n);

/* Makes an integer; a value beyond JSON's integer range is a bug of the caller. */
json_t *json_number(uint64_t n);

struct json_member {
	const char *key;
	json_t *value;
};

/*
 * Makes an object of `n` members and consumes their values, also on failure; NULL if a value is
 * NULL or without memory.
 */
json_t *json_object_from(const struct json_member *members, size_t n);

/* JSON_OBJECT({ "name", json_string(x) }, { "port", json_integer(y) }) */
#define JSON_OBJECT(...)                                                       \
	json_object_from((const struct json_member[]){ __VA_ARGS__ },          \
			 sizeof((const struct json_member[]){ __VA_ARGS__ }) / \
				 sizeof(struct json_member))
