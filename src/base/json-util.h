/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON, strictly: limits before parsing, no duplicate or unknown keys, no trailing bytes, and one
 * canonical way of writing. The values are jansson's.
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
 * Reads one JSON value of exactly `n` bytes. Refused with the position: larger than JSON_SIZE_MAX,
 * deeper than JSON_DEPTH_MAX, bad UTF-8, U+0000, duplicate keys, numbers out of range, anything
 * behind the value.
 */
int json_read(const char *text, size_t n, json_t **ret, struct err *e);

/*
 * The canonical text: keys sorted by byte, ASCII only, two spaces of indentation, no newline at the
 * end.
 */
char *json_write_canonical(const json_t *j);

/* The same value on one line, for programs and logs. The caller frees both; NULL past JSON_SIZE_MAX
 * or without memory. */
char *json_write_line(const json_t *j);

/*
 * Fails, naming the key, if `obj` is not an object or holds a key that is not in the
 * NULL-terminated list.
 */
int json_only_keys(const json_t *obj, const char *const *keys, struct err *e);

/*
 * Members of an object by type. A missing key is -ENOENT, a wrong type or range -EINVAL, with a
 * message that names the key. The string stays owned by `obj`.
 */
int json_get_string(const json_t *obj, const char *key, size_t max, const char **ret,
		    struct err *e);
int json_get_u64(const json_t *obj, const char *key, uint64_t max, uint64_t *ret, struct err *e);
int json_get_bool(const json_t *obj, const char *key, bool *ret, struct err *e);

/*
 * Building: like jansson's *_set_new and *_append_new (the value is taken, also on failure), with
 * -ENOMEM for a NULL value or a failed insertion, so that a sequence can be or-ed together.
 */
int json_put(json_t *obj, const char *key, json_t *value);
int json_push(json_t *array, json_t *value);

/* An array of texts; NULL without memory. */
json_t *json_texts(const char *const *list, size_t n);

/* A whole number; one that JSON's readers could not hold is a bug of the caller. */
json_t *json_number(uint64_t n);

struct json_member {
	const char *key;
	json_t *value;
};

/*
 * An object of `n` members, whose values are taken also on failure; NULL if one is NULL or memory
 * is short.
 */
json_t *json_object_from(const struct json_member *members, size_t n);

/* JSON_OBJECT({ "name", json_string(x) }, { "port", json_integer(y) }) */
#define JSON_OBJECT(...)                                                       \
	json_object_from((const struct json_member[]){ __VA_ARGS__ },          \
			 sizeof((const struct json_member[]){ __VA_ARGS__ }) / \
				 sizeof(struct json_member))
