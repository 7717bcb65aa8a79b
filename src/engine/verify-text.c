/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/verify-text.h"

#include <string.h>

#include "base/str.h"

enum {
	HEX_DIGITS = 16,
	MOUNT_OPTIONAL_MAX = 16, /* shared:N master:N propagate_from:N unbindable */
};

struct span span_of(const char *text)
{
	return (struct span){ text, strlen(text) };
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

bool span_line(struct span *rest, struct span *ret)
{
	const char *end;

	if (rest->n == 0)
		return false;
	end = memchr(rest->s, '\n', rest->n);
	ret->s = rest->s;
	ret->n = end ? (size_t)(end - rest->s) : rest->n;
	rest->s += ret->n + (end ? 1 : 0);
	rest->n -= ret->n + (end ? 1 : 0);
	return true;
}

bool span_word(struct span *rest, struct span *ret)
{
	size_t n = 0;

	while (rest->n > 0 && is_blank(*rest->s)) {
		rest->s++;
		rest->n--;
	}
	while (n < rest->n && !is_blank(rest->s[n]))
		n++;
	if (n == 0)
		return false;
	*ret = (struct span){ rest->s, n };
	rest->s += n;
	rest->n -= n;
	return true;
}

bool span_is(struct span s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

bool span_begins(struct span s, const char *text)
{
	return s.n >= strlen(text) && memcmp(s.s, text, strlen(text)) == 0;
}

bool span_ends(struct span s, const char *text)
{
	size_t n = strlen(text);

	return s.n >= n && memcmp(s.s + s.n - n, text, n) == 0;
}

bool span_number(struct span s, uint64_t *ret)
{
	return str_to_u64(s.s, s.n, UINT64_MAX, ret) == 0;
}

bool span_hex(struct span s, uint64_t *ret)
{
	uint64_t value = 0;

	if (s.n != HEX_DIGITS)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.s[i];

		if (ascii_is_digit(c))
			value = value << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*ret = value;
	return true;
}

/* Takes the next item off a comma-separated list. */
static bool next_item(struct span *rest, struct span *ret)
{
	const char *end;

	if (rest->n == 0)
		return false;
	end = memchr(rest->s, ',', rest->n);
	ret->s = rest->s;
	ret->n = end ? (size_t)(end - rest->s) : rest->n;
	rest->s += ret->n + (end ? 1 : 0);
	rest->n -= ret->n + (end ? 1 : 0);
	return true;
}

bool span_lists(struct span list, const char *name)
{
	struct span item;

	while (next_item(&list, &item))
		if (span_is(item, name))
			return true;
	return false;
}

bool span_option(struct span list, const char *name, struct span *ret)
{
	size_t n = strlen(name);
	struct span item;

	while (next_item(&list, &item)) {
		if (!span_begins(item, name) || item.n == n || item.s[n] != '=')
			continue;
		*ret = (struct span){ item.s + n + 1, item.n - n - 1 };
		return true;
	}
	return false;
}

bool text_field(const char *text, const char *key, struct span *ret)
{
	struct span rest = span_of(text), line;

	while (span_line(&rest, &line)) {
		if (!span_begins(line, key))
			continue;
		*ret = (struct span){ line.s + strlen(key), line.n - strlen(key) };
		return true;
	}
	return false;
}

/* The only word of a field. */
static bool field_word(const char *text, const char *key, struct span *ret)
{
	struct span rest, word, more;

	if (!text_field(text, key, &rest) || !span_word(&rest, &word) || span_word(&rest, &more))
		return false;
	*ret = word;
	return true;
}

bool text_field_number(const char *text, const char *key, uint64_t *ret)
{
	struct span word;

	return field_word(text, key, &word) && span_number(word, ret);
}

bool text_field_hex(const char *text, const char *key, uint64_t *ret)
{
	struct span word;

	return field_word(text, key, &word) && span_hex(word, ret);
}

bool text_all_are(struct span text, uint64_t least, uint64_t most)
{
	struct span word;
	size_t n = 0;

	for (; span_word(&text, &word); n++) {
		uint64_t value;

		if (!span_number(word, &value) || value < least || value > most)
			return false;
	}
	return n > 0;
}

bool text_one_map(const char *text, uint64_t *ret_first, uint64_t *ret_count)
{
	struct span rest = span_of(text), line, word[3], more;
	uint64_t inside, first, count;

	if (!span_line(&rest, &line) || rest.n > 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(word); i++)
		if (!span_word(&line, &word[i]))
			return false;
	if (span_word(&line, &more) || !span_number(word[0], &inside) || inside != 0 ||
	    !span_number(word[1], &first) || !span_number(word[2], &count))
		return false;
	*ret_first = first;
	*ret_count = count;
	return true;
}

static struct span last_word(struct span line)
{
	struct span word = { line.s, 0 }, next;

	while (span_word(&line, &next))
		word = next;
	return word;
}

bool text_other_device(const char *text, enum text_net kind, struct span *ret)
{
	static const size_t heading[] = { [TEXT_NET_DEV] = 2, [TEXT_NET_ROUTE] = 1 };
	struct span rest = span_of(text), line, name;
	size_t skip = kind == TEXT_NET_INET6 ? 0 : heading[kind];

	for (size_t i = 0; span_line(&rest, &line); i++) {
		if (i < skip)
			continue;
		if (kind == TEXT_NET_INET6)
			name = last_word(line);
		else if (!span_word(&line, &name))
			continue;
		/* The byte count may follow the colon without a space. */
		if (kind == TEXT_NET_DEV ? span_begins(name, "lo:") : span_is(name, "lo"))
			continue;
		*ret = name;
		return true;
	}
	return false;
}

/* N:CONTROLLERS:PATH */
static bool cgroup_line(struct span line, struct span *ret_controllers, struct span *ret_path)
{
	const char *a = memchr(line.s, ':', line.n), *end = line.s + line.n, *b;

	b = a ? memchr(a + 1, ':', (size_t)(end - a - 1)) : NULL;
	if (!b)
		return false;
	*ret_controllers = (struct span){ a + 1, (size_t)(b - a - 1) };
	*ret_path = (struct span){ b + 1, (size_t)(end - b - 1) };
	return true;
}

bool text_cgroup(const char *text, const char *controller, struct span *ret)
{
	struct span rest = span_of(text), line, controllers, path;

	while (span_line(&rest, &line)) {
		if (!cgroup_line(line, &controllers, &path))
			return false;
		if (controller ? !span_lists(controllers, controller) : !span_begins(line, "0::"))
			continue;
		*ret = path;
		return true;
	}
	return false;
}

/* id parent major:minor root point options [optional...] - type source super */
static bool mount_line(struct span line, struct text_mount *ret)
{
	struct span word;
	size_t optional = 0;

	for (size_t i = 0; i < 3; i++)
		if (!span_word(&line, &word))
			return false;
	if (!span_word(&line, &ret->root) || !span_word(&line, &ret->point) ||
	    !span_word(&line, &ret->options))
		return false;
	do {
		if (!span_word(&line, &word) || ++optional > MOUNT_OPTIONAL_MAX)
			return false;
	} while (!span_is(word, "-"));
	/* An empty source leaves two blanks in a row, and is not a word. */
	if (!span_word(&line, &ret->type))
		return false;
	ret->super = last_word(line);
	return ret->super.n > 0;
}

int text_mounts(const char *text, struct text_mounts *ret)
{
	struct span rest = span_of(text), line;

	ret->n = 0;
	while (span_line(&rest, &line)) {
		if (ret->n == TEXT_MOUNTS_MAX)
			return -E2BIG;
		if (!mount_line(line, &ret->m[ret->n]))
			return -EBADMSG;
		ret->n++;
	}
	return ret->n > 0 ? 0 : -EBADMSG;
}

const struct text_mount *text_mount_at(const struct text_mounts *all, const char *point)
{
	const struct text_mount *found = NULL;

	for (size_t i = 0; i < all->n; i++) {
		if (!span_is(all->m[i].point, point))
			continue;
		if (found)
			return NULL;
		found = &all->m[i];
	}
	return found;
}
