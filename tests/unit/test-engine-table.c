/* SPDX-License-Identifier: Apache-2.0 */
/* The engine table: required fields of every row, and how a row is found. */
#include "unit.h"

#include <string.h>

#include "engine/engine.h"

/* Code outside the table uses these without a check. */
TEST(every_row_is_whole)
{
	for (size_t i = 0; engines[i]; i++) {
		const struct engine *row = engines[i];
		const bool vm = engine_has(row, ENGINE_OWN_KERNEL);
		char check[64];

		(void)snprintf(check, sizeof(check), "engine.%s", row->name);
		assert_string_equal(row->check, check);
		assert_true(strlen(row->name) <= SPEC_ENGINE_MAX);
		assert_true(row->level >= LEVEL_FIRST && row->level < LEVEL_MAX);
		assert_non_null(row->title);
		assert_non_null(row->program);
		assert_non_null(row->package);
		assert_non_null(row->cves);
		assert_true(row->limits && row->start && row->verify && row->pause && row->resume);
		/* A sandbox has a root directory on the host, or its own kernel. */
		assert_true(vm != engine_has(row, ENGINE_SCRATCH));
		assert_true(vm == (row->seal != NULL) && vm == (row->monitor != NULL));
		assert_true(vm || !(row->traits & (ENGINE_SNAPSHOTS | ENGINE_FORKS)));
		assert_ptr_equal(engine_find(row->name), row);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(engines[k]->name, row->name);
	}
	assert_non_null(engine_first(LEVEL_DEFAULT));
	assert_non_null(engine_with(ENGINE_SNAPSHOTS | ENGINE_FORKS));
	assert_null(engine_find(""));
}

TEST(the_wish_counts_for_its_level)
{
	const struct engine *first = engine_first(LEVEL_CONTAINER),
			    *vm = engine_first(LEVEL_MICROVM), *ret = NULL;
	struct err e = ERR_INIT;

	for (size_t i = 0; engines[i]; i++) {
		assert_int_equal(engine_choose(engines[i]->level, engines[i]->name, &ret, &e), 0);
		assert_ptr_equal(ret, engines[i]);
	}
	/* A preference for one level does not affect another. */
	assert_int_equal(engine_choose(LEVEL_MICROVM, first->name, &ret, &e), 0);
	assert_ptr_equal(ret, vm);
	ret = NULL;
	assert_int_equal(engine_choose(LEVEL_CONTAINER, "lxc", &ret, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "'lxc' is not an engine: expected one of "));
	assert_non_null(strstr(e.msg, first->name));
	e = (struct err)ERR_INIT;
	assert_int_equal(engine_choose(LEVEL_GVISOR, "", &ret, &e), -ENOTSUP);
	assert_non_null(strstr(e.msg, "'gvisor': use container or microvm"));
	assert_null(ret);
}

TEST(of_a_spec)
{
	struct spec s = { .level = LEVEL_MICROVM };
	const struct engine *ret = NULL;
	struct err e = ERR_INIT;

	/* Written by a version with one engine for each level. */
	assert_int_equal(engine_of(&s, &ret, &e), 0);
	assert_ptr_equal(ret, engine_first(LEVEL_MICROVM));
	s.engine = engine_first(LEVEL_CONTAINER)->name;
	assert_int_equal(engine_of(&s, &ret, &e), -EINVAL);
	assert_string_equal(e.msg, "the sandbox's engine does not support its level, 'microvm'");
	s.engine = "bhyve";
	assert_int_equal(engine_of(&s, &ret, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "'bhyve' is not an engine"));
	s = (struct spec){ .level = LEVEL_GVISOR };
	assert_int_equal(engine_of(&s, &ret, &e), -EINVAL);
}

/* A VM's spec never starts a container, nor the other way round. */
TEST(level_and_machine_fit)
{
	struct spec s = { .level = LEVEL_MICROVM, .machine.kernel = "/kernel" };
	const struct engine *ret = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(engine_to_start(&s, &ret, &e), 0);
	s.machine.kernel = NULL;
	assert_int_equal(engine_to_start(&s, &ret, &e), -EINVAL);
	assert_string_equal(e.msg, "'level' and 'machine' in spec.json contradict each other");
	s.level = LEVEL_CONTAINER;
	assert_int_equal(engine_to_start(&s, &ret, &e), 0);
	s.machine.kernel = "/kernel";
	assert_int_equal(engine_to_start(&s, &ret, &e), -EINVAL);
}
