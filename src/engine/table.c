/* SPDX-License-Identifier: Apache-2.0 */
/* The engine table. Rows of one level are in order of preference. */
#include "base/str.h"
#include "engine/engine.h"

/* clang-format off */
#define ROWS(row) \
	row(crun) \
	row(runc) \
	row(qemu) \

#define DECLARE(name) extern const struct engine engine_##name;
#define ENTRY(name) &engine_##name,

ROWS(DECLARE)
const struct engine *const engines[] = { ROWS(ENTRY) NULL };
/* clang-format on */

enum {
	NAMES_MAX = 128,
};

const struct engine *engine_find(const char *name)
{
	for (size_t i = 0; engines[i]; i++)
		if (str_eq(engines[i]->name, name))
			return engines[i];
	return NULL;
}

const struct engine *engine_first(enum level level)
{
	for (size_t i = 0; engines[i]; i++)
		if (engines[i]->level == level)
			return engines[i];
	return NULL;
}

const struct engine *engine_with(unsigned int traits)
{
	for (size_t i = 0; engines[i]; i++)
		if (engine_has(engines[i], traits))
			return engines[i];
	return NULL;
}

static int unknown(const char *name, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(NAMES_MAX);

	for (size_t i = 0; engines[i]; i++)
		(void)buf_printf(&b, "%s%s", i ? ", " : "", engines[i]->name);
	return err_set(e, -EINVAL, "'%.40s' is not an engine: expected one of %s", name,
		       buf_text(&b));
}

static const struct engine *first_installed(enum level level)
{
	struct err ignored = ERR_INIT;
	char path[PATH_MAX];

	for (size_t i = 0; engines[i]; i++)
		if (engines[i]->level == level && engine_program(engines[i], path, &ignored) == 0)
			return engines[i];
	return engine_first(level);
}

/* "container or microvm" */
static void list_levels(struct buf *b)
{
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++)
		if (engine_first(l))
			(void)buf_printf(b, "%s%s", b->len ? " or " : "", level_names[l]);
}

int engine_choose(enum level level, const char *wish, const struct engine **ret, struct err *e)
{
	const struct engine *row = wish[0] ? engine_find(wish) : NULL;
	_cleanup_buf_ struct buf b = BUF_INIT(NAMES_MAX);

	if (wish[0] && !row)
		return unknown(wish, e);
	if (!row || row->level != level)
		row = first_installed(level);
	if (!row) {
		list_levels(&b);
		return err_set(e, -ENOTSUP,
			       "this version has no engine of isolation level '%s': use %s",
			       level_names[level], buf_text(&b));
	}
	*ret = row;
	return 0;
}

int engine_of(const struct spec *spec, const struct engine **ret, struct err *e)
{
	const bool named = spec->engine && spec->engine[0];
	const struct engine *row = named ? engine_find(spec->engine) : engine_first(spec->level);

	if (!row && named)
		return unknown(spec->engine, e);
	if (!row || row->level != spec->level)
		return err_set(e, -EINVAL, "the sandbox's engine does not support its level, '%s'",
			       level_names[spec->level]);
	*ret = row;
	return 0;
}

int engine_to_start(const struct spec *spec, const struct engine **ret, struct err *e)
{
	int r = engine_of(spec, ret, e);

	if (r == 0 && engine_has(*ret, ENGINE_OWN_KERNEL) != (spec->machine.kernel != NULL))
		r = err_set(e, -EINVAL, "'level' and 'machine' in spec.json contradict each other");
	return r;
}

bool engine_can(const struct spec *spec, unsigned int traits)
{
	const struct engine *row;
	struct err ignored = ERR_INIT;

	return engine_of(spec, &row, &ignored) == 0 && engine_has(row, traits);
}
