/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/reading.h"

#include <stdarg.h>
#include <string.h>

#include "base/str.h"
#include "policy/credential.h"

size_t reading_enter(struct reading *rd, const char *name, size_t index)
{
	size_t was = strlen(rd->path);

	if (name)
		(void)snprintf(rd->path + was, sizeof(rd->path) - was, "%s%s", was > 0 ? "." : "",
			       name);
	else
		(void)snprintf(rd->path + was, sizeof(rd->path) - was, "[%zu]", index);
	return was;
}

void reading_leave(struct reading *rd, size_t was)
{
	rd->path[was] = '\0';
}

void reading_wrong(struct reading *rd, struct pos pos, const char *hint, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	diag_add(rd->d, DIAG_ERROR, pos, rd->path, hint, "%s", text);
}

const char *reading_hint(const char *word, char *out, size_t n)
{
	if (!word)
		return NULL;
	(void)snprintf(out, n, "did you mean '%s'?", word);
	return out;
}

void reading_join(const char *const *words, char *out, size_t n)
{
	size_t used = 0;

	out[0] = '\0';
	for (; *words && used < n; words++)
		if (**words)
			used += (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? ", " : "",
						 *words);
}

void reading_wrong_kind(struct reading *rd, const struct yaml_node *n, const char *expected)
{
	if (n->kind == YAML_SCALAR && n->len > 0)
		reading_wrong(rd, n->pos, NULL, "expected %s, found '%.*s'%s", expected,
			      READING_FOUND_MAX, n->text, n->len > READING_FOUND_MAX ? "..." : "");
	else
		reading_wrong(rd, n->pos, NULL, "expected %s, found %s", expected,
			      yaml_describe(n));
}

const char *reading_scalar(struct reading *rd, const struct yaml_node *n, const char *expected)
{
	if (n->kind == YAML_SCALAR && n->len > 0)
		return n->text;
	reading_wrong_kind(rd, n, expected);
	return NULL;
}

bool reading_is_kind(struct reading *rd, const struct yaml_node *n, enum yaml_kind kind,
		     const char *expected)
{
	if (n->kind == kind)
		return true;
	reading_wrong_kind(rd, n, expected);
	return false;
}

void *reading_grow(struct reading *rd, void *v, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap > 0 ? *cap * 2 : 8;
	void *bigger;

	if (n < *cap)
		return v;
	bigger = arena_calloc(&rd->p->arena, want, size);
	if (!bigger) {
		rd->d->oom = true;
		return NULL;
	}
	if (n > 0)
		memcpy(bigger, v, n * size);
	*cap = want;
	return bigger;
}

char *reading_keep(struct reading *rd, const char *s)
{
	char *copy = arena_strdup(&rd->p->arena, s);

	if (!copy)
		rd->d->oom = true;
	return copy;
}

const char *reading_expects(const struct key *k, char *out, size_t n)
{
	const char *what = key_type_expects(k->type);
	size_t used;

	if (!k->words)
		return what;
	used = (size_t)snprintf(out, n, "%s: ", what);
	reading_join(k->words, out + used, n - used);
	return out;
}

void reading_check_credential(struct reading *rd, const struct yaml_node *n)
{
	const char *what = credential_find(n->text);

	if (what)
		reading_wrong(rd, n->pos,
			      "bind it to its hosts under 'secrets'; consider this one leaked",
			      "looks like %s: no credential goes into a sandbox", what);
}

/* ---- members of a mapping ---- */

const struct key *reading_key(const struct key *keys, const char *name)
{
	for (; keys->name; keys++)
		if (str_eq(keys->name, name))
			return keys;
	return NULL;
}

void reading_unknown_key(struct reading *rd, const struct key *keys, const struct yaml_node *n)
{
	const char *names[32];
	char all[READING_EXPECTS_MAX], mean[128];
	size_t count = 0;

	for (; keys->name && count < ARRAY_SIZE(names) - 1; keys++)
		names[count++] = keys->name;
	names[count] = NULL;
	reading_join(names, all, sizeof(all));
	reading_wrong(rd, n->key_pos, reading_hint(str_closest(n->key, names), mean, sizeof(mean)),
		      "unknown key; expected one of: %s", all);
}

void reading_member(struct reading *rd, const struct key *keys, const struct yaml_node *n,
		    void *base)
{
	const struct key *k = reading_key(keys, n->key);
	size_t was = reading_enter(rd, n->key, 0);

	if (k)
		rd->readers[k->type](rd, k, n, (char *)base + k->field);
	else
		reading_unknown_key(rd, keys, n);
	reading_leave(rd, was);
}

void reading_check_required(struct reading *rd, const struct key *keys, const struct yaml_node *map)
{
	char all[READING_EXPECTS_MAX];

	for (const struct key *k = keys; k->name; k++) {
		size_t was;

		if (!k->required || yaml_get(map, k->name))
			continue;
		was = reading_enter(rd, k->name, 0);
		reading_wrong(rd, map->pos, NULL, "missing; expected %s",
			      reading_expects(k, all, sizeof(all)));
		reading_leave(rd, was);
	}
}
