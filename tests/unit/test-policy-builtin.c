/* SPDX-License-Identifier: Apache-2.0 */
/* All built-in agents and presets of this version compile. */
#include "builtin/builtin.h"
#include "test-policy.h"

#define BUILTIN_STORE POLICY_STORE_INIT(builtin_files, builtin_files_n, NULL)

TEST(the_table_is_sorted)
{
	assert_true(builtin_files_n > 0);
	for (size_t i = 0; i < builtin_files_n; i++) {
		assert_int_equal(strlen(builtin_files[i].text), builtin_files[i].len);
		assert_true(i == 0 || strcmp(builtin_files[i - 1].path, builtin_files[i].path) < 0);
	}
}

TEST(every_agent_compiles)
{
	_cleanup_store_ struct policy_store store = BUILTIN_STORE;
	const char *const *names = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(store_list(&store, STORE_AGENTS, &names, &e), 0);
	assert_non_null(names[0]);
	for (; *names; names++) {
		char digest[2][POLICY_DIGEST_HEX + 1];

		for (size_t i = 0; i < 2; i++) {
			_cleanup_store_ struct policy_store own = BUILTIN_STORE;
			_cleanup_diags_ struct diags d = { 0 };
			_cleanup_policy_ struct policy *p = NULL;

			assert_int_equal(policy_compile(&own, *names, &d, &p, &e), 0);
			assert_diags(&d, "");
			assert_string_equal(p->name, *names);
			assert_non_null(p->summary);
			digest_of(p, digest[i]);
			/* the floor */
			assert_false(may_dial(p, "metadata.google.internal:80"));
			assert_false(may_dial(p, "dns.google:443"));
		}
		assert_string_equal(digest[0], digest[1]);
	}
}

/* Each preset alone in an agent, and its head. */
TEST(every_preset_compiles)
{
	static const char *const section[] = { "egress", "capabilities", "prompt" };

	for (int kind = 0; kind < PRESET_KIND_MAX; kind++) {
		_cleanup_store_ struct policy_store store = BUILTIN_STORE;
		const char *const *names = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(
			store_list(&store, preset_folder((enum preset_kind)kind), &names, &e), 0);
		assert_non_null(names[0]);
		for (; *names; names++) {
			_cleanup_store_ struct policy_store own = BUILTIN_STORE;
			_cleanup_diags_ struct diags d = { 0 };
			struct policy_head h;
			char text[200];

			(void)snprintf(text, sizeof(text), AGENT "%s: {presets: [%s]}\n",
				       section[kind], *names);
			(void)policy_free(compiled(&own, text));
			assert_int_equal(policy_preset_head(&own, (enum preset_kind)kind, *names,
							    &d, &h, &e),
					 0);
			assert_string_equal(h.name, *names);
			assert_non_null(h.summary);
			assert_true(kind != PRESET_EGRESS || h.risk);
		}
	}
}
