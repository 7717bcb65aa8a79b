/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/reading.h"

#include <stdarg.h>
#include <string.h>

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
