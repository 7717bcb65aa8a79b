/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths and patterns, one a line: first a path, then patterns. A canonical path is its own
 * canonical form, and no spelling of a path escapes a pattern.
 */
#include <string.h>

#include "base/util.h"
#include "fuzz.h"
#include "l7/l7.h"

enum {
	PATTERNS = 8
};

/* Spells every byte of the path, except slashes and encodings, as an encoding. */
static void encode_all(const char *path, char *out)
{
	while (*path) {
		if (*path == '%') {
			memcpy(out, path, 3);
			path += 3;
			out += 3;
		} else if (*path == '/') {
			*out++ = *path++;
		} else {
			out += sprintf(out, "%%%02x", (unsigned char)*path++);
		}
	}
	*out = '\0';
}

static void check_path(const char *path)
{
	char again[L7_PATH_MAX + 1], spelled[3 * L7_PATH_MAX + 1];
	const char *why = NULL;

	assert(path[0] == '/' && !strstr(path, "//") && !strpbrk(path, ";\\?# "));
	assert(!strstr(path, "/../") && !strstr(path, "/./"));
	assert(l7_path(path, strlen(path), again, &why) == 0 && strcmp(path, again) == 0);
	assert(l7_pattern_match("/**", path));
	encode_all(path, spelled);
	if (l7_path(spelled, strlen(spelled), again, &why) < 0) {
		assert(strlen(spelled) > L7_PATH_MAX || strchr(path, '%'));
		return;
	}
	if (strlen(path) <= L7_PATTERN_MAX && !strchr(path, '*'))
		assert(l7_pattern_match(path, again) && l7_pattern_match(spelled, path));
}

/* strndup(3) is for strings; the input has no NUL at its end. */
static char *text_of(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	assert(text);
	memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = text_of(data, size);
	char path[L7_PATH_MAX + 1], format[32], *rest = text, *line = strsep(&rest, "\n");
	const char *why = NULL, *patterns[PATTERNS], *methods[] = { "GET" };
	struct l7_list list = { .v = patterns };
	struct l7_rule rule = { .host = { .kind = RULE_NAME, .name = { 5, "a.com" } }, .at = "" };
	struct err e = ERR_INIT;
	struct l7_request q = { &rule.host.name, "GET", path };
	struct l7_verdict v;

	assert(text);
	if (l7_path(line, strlen(line), path, &why) < 0) {
		assert(why && why[0]);
		return 0;
	}
	check_path(path);
	while (list.n < PATTERNS && (line = strsep(&rest, "\n")))
		if (l7_pattern_check(line, strlen(line), &e) == 0)
			patterns[list.n++] = line;
	rule.paths = list;
	rule.methods = (struct l7_list){ methods, 1 };
	v = l7_check(&rule, 1, &q);
	assert(v.allowed == l7_patterns_match(&list, path));
	assert(v.rule == (v.allowed ? 0 : -1) && v.near == (v.allowed ? -1 : 0));
	/* A deny rule applies wherever an allow rule does. */
	rule.deny = true;
	assert(!v.allowed || !l7_check(&rule, 1, &q).allowed);
	assert(strlen(l7_rule_format(&rule, format, sizeof(format))) < sizeof(format));
	return 0;
}
