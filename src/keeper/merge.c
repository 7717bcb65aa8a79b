/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the environment, user and workspace of the policy into the requests of clients. */
#include <string.h>

#include "keeper/merge.h"
#include "keeper/serve.h"

/* A name ends at the first '=', or with the text. */
static size_t name_length(const char *s, size_t n)
{
	const char *equals = memchr(s, '=', n);

	return equals ? (size_t)(equals - s) : n;
}

static int compare_names(const char *a, size_t a_n, const char *b, size_t b_n)
{
	int c = memcmp(a, b, MIN(a_n, b_n));

	return c != 0 ? c : (a_n > b_n) - (a_n < b_n);
}

static int compare_env(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return compare_names(*x, name_length(*x, strlen(*x)), *y, name_length(*y, strlen(*y)));
}

const char **merge_index(const struct spec *s)
{
	const char **v = calloc(s->env.n + 1, sizeof(*v));

	if (!v)
		return NULL;
	for (size_t i = 0; i < s->env.n; i++)
		v[i] = s->env.v[i];
	qsort(v, s->env.n, sizeof(*v), compare_env);
	return v;
}

/* The index of a name in `env`, or `n`. */
static size_t find_env(const char *const *env, size_t n, const char *name, size_t name_n)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = (low + high) / 2;
		int c = compare_names(env[mid], name_length(env[mid], strlen(env[mid])), name,
				      name_n);

		if (c == 0)
			return mid;
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return n;
}

/* Puts the policy's variables that the client does not set. One pass over each list. */
static void put_env(const struct keeper *k, const struct fields *f, struct buf *b)
{
	size_t n = k->spec->env.n, pos = 0, len;
	_cleanup_free_ bool *given = calloc(n + 1, sizeof(*given));
	const char *value;

	if (!given) {
		b->err = -ENOMEM;
		return;
	}
	while (fields_next(f, TAG_ENV, &pos, &value, &len))
		given[find_env(k->env, n, value, name_length(value, len))] = true;
	for (size_t i = 0; i < n; i++)
		if (!given[i])
			fields_put_text(b, TAG_ENV, k->env[i]);
}

static void put_slice(const struct fields *f, enum wire_tag first, enum wire_tag last,
		      struct buf *b)
{
	size_t n;
	const void *bytes = fields_slice(f, first, last, &n);

	(void)buf_put(b, bytes, n);
}

/* Fields must stay in the order of their tags. After TAG_LANDLOCK only the four tags below go to
 * the guest. */
void merge_open(const struct keeper *k, enum wire_op op, const struct fields *f, struct buf *b)
{
	bool exec = op == WIRE_OP_EXEC;

	put_slice(f, TAG_VERSION, TAG_ENV, b);
	if (exec)
		put_env(k, f, b);
	put_slice(f, TAG_CWD, TAG_CWD, b);
	if (exec && !fields_has(f, TAG_CWD) && k->spec->workspace[0] != '\0')
		fields_put_text(b, TAG_CWD, k->spec->workspace);
	put_slice(f, TAG_PATH, TAG_USER, b);
	if (op != WIRE_OP_PORT && !fields_has(f, TAG_USER) && k->spec->user[0] != '\0')
		fields_put_text(b, TAG_USER, k->spec->user);
	put_slice(f, TAG_STDIN, TAG_LANDLOCK, b);
	put_slice(f, TAG_PORT, TAG_PORT, b);
	put_slice(f, TAG_META, TAG_META, b);
	put_slice(f, TAG_FOLLOW, TAG_FOLLOW, b);
	if (op != WIRE_OP_PORT)
		put_slice(f, TAG_OWNERS, TAG_OWNERS, b);
}
