/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the text files of /proc/PID: lines, words and the few formats that a receipt needs. Reads
 * no files and copies nothing: all results point into the caller's text. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct span {
	const char *s;
	size_t n;
};

struct span span_of(const char *text);

/* Takes the next line, without its newline, or the next word off the front of *rest. False at the
 * end. */
bool span_line(struct span *rest, struct span *ret);
bool span_word(struct span *rest, struct span *ret);

bool span_is(struct span s, const char *text);
bool span_begins(struct span s, const char *text);
bool span_ends(struct span s, const char *text);

/* Decimal; exactly 16 hexadecimal digits. False for anything else. */
bool span_number(struct span s, uint64_t *ret);
bool span_hex(struct span s, uint64_t *ret);

/* For a comma-separated list: whether it contains `name`; the value of "name=value". */
bool span_lists(struct span list, const char *name);
bool span_option(struct span list, const char *name, struct span *ret);

/* status, limits: the text after `key`, such as "Key:", at the beginning of a line. */
bool text_field(const char *text, const char *key, struct span *ret);
bool text_field_number(const char *text, const char *key, uint64_t *ret);
bool text_field_hex(const char *text, const char *key, uint64_t *ret);

/* Whether `text` has words, all of them numbers from `least` to `most`: "Uid: 7 7 7 7". */
bool text_all_are(struct span text, uint64_t least, uint64_t most);

/* uid_map, gid_map: a single line, which maps ids from 0 on. */
bool text_one_map(const char *text, uint64_t *ret_first, uint64_t *ret_count);

/* net/dev and net/route, net/if_inet6, net/ipv6_route: the first device other than lo. False if
 * there is none. */
enum text_net {
	TEXT_NET_DEV,	/* two header lines, then NAME: */
	TEXT_NET_ROUTE, /* one header line, then NAME */
	TEXT_NET_INET6, /* NAME is the last word */
};
bool text_other_device(const char *text, enum text_net kind, struct span *ret);

/* cgroup: the path in the hierarchy that has `controller`; NULL: in the v2 hierarchy. */
bool text_cgroup(const char *text, const char *controller, struct span *ret);

/* mountinfo. */
enum {
	TEXT_MOUNTS_MAX = 256
};

struct text_mount {
	struct span root, point, options, type, super;
};

struct text_mounts {
	size_t n;
	struct text_mount m[TEXT_MOUNTS_MAX];
};

/* 0; -EBADMSG: not a mountinfo; -E2BIG. */
int text_mounts(const char *text, struct text_mounts *ret);

/* The mount at `point`; NULL if there is none, or several, since the visible one is then
 * unknown. */
const struct text_mount *text_mount_at(const struct text_mounts *all, const char *point);
