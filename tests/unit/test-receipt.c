/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "receipt/receipt.h"
#include "unit.h"

#define BIT(x) (UINT64_C(1) << (x))

static void all_yes(struct receipt *r)
{
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++)
		receipt_yes(r, i, "seen");
}

TEST(nothing_is_enforced_at_first)
{
	struct receipt r;
	struct err e = ERR_INIT;

	receipt_init(&r, 0);
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		assert_false(r.row[i].enforced);
		assert_int_equal(r.row[i].required, i >= LAYER_MAX);
		assert_int_equal(r.row[i].asked, i != LAYER_APPARMOR && i != LAYER_KVM);
		assert_string_equal(r.row[i].seen, "not checked");
	}
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	receipt_init(&r, BIT(LAYER_KVM));
	assert_true(r.row[LAYER_KVM].asked && r.row[LAYER_KVM].required);
	assert_false(r.row[LAYER_SECCOMP].required);
}

TEST(one_row_decides)
{
	struct receipt r;
	struct err e = ERR_INIT;

	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		bool layer = i < LAYER_MAX;

		receipt_init(&r, layer ? BIT(i) : 0);
		all_yes(&r);
		assert_int_equal(receipt_check(&r, &e), 0);
		receipt_no(&r, i, "gone");
		assert_int_equal(receipt_check(&r, &e), -EPERM);
		assert_non_null(strstr(e.msg, receipt_row_name(i)));
		/* the same layer, not required */
		receipt_init(&r, 0);
		all_yes(&r);
		receipt_no(&r, i, "gone");
		assert_int_equal(receipt_check(&r, &e), layer ? 0 : -EPERM);
	}
}

TEST(the_message_says_what_to_do)
{
	struct receipt r;
	struct err e = ERR_INIT;

	receipt_init(&r, BIT(LAYER_CGROUP_CPU) | BIT(LAYER_CGROUP_MEMORY));
	all_yes(&r);
	receipt_no(&r, LAYER_CGROUP_CPU, "hybrid: %s", "Permission denied");
	receipt_no(&r, LAYER_CGROUP_MEMORY, "the same");
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_string_equal(
		e.msg,
		"isolation.require: not enforced on this host: cgroup-cpu, cgroup-memory (hybrid: "
		"Permission denied); run hutch as root, or boot with cgroup v2 alone and a "
		"delegated group");
	receipt_advise(&r, LAYER_CGROUP_MEMORY, "ask %s", "root");
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_string_equal(e.msg, "isolation.require: not enforced on this host: cgroup-cpu, "
				   "cgroup-memory (hybrid: Permission denied); ask root");
	/* advice for a fixed layer is not repeated */
	receipt_yes(&r, LAYER_CGROUP_MEMORY, "limit");
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_null(strstr(e.msg, "ask root"));
}

/* A limit of the command line: the message names the option, and the one that waives it. */
TEST(limits_of_the_command_line)
{
	const uint64_t limits = BIT(LAYER_CGROUP_MEMORY) | BIT(LAYER_CGROUP_PIDS);
	struct receipt r;
	struct err e = ERR_INIT;

	receipt_init(&r, limits);
	receipt_explicit(&r, limits);
	all_yes(&r);
	assert_int_equal(receipt_check(&r, &e), 0);
	receipt_no(&r, LAYER_CGROUP_MEMORY, "Permission denied");
	receipt_no(&r, LAYER_CGROUP_PIDS, "Permission denied");
	receipt_advise(&r, LAYER_CGROUP_PIDS, "run hutch as root");
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_string_equal(e.msg, "--memory, --pids cannot be enforced on this host (Permission "
				   "denied); run hutch as root; or use --best-effort");
	/* No option can waive a layer that the policy requires. */
	receipt_explicit(&r, BIT(LAYER_CGROUP_PIDS));
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_non_null(strstr(e.msg,
			       "isolation.require: not enforced on this host: cgroup-memory, "
			       "cgroup-pids"));
	assert_null(strstr(e.msg, "--best-effort"));
}

TEST(best_effort_is_in_the_receipt)
{
	_cleanup_json_ json_t *j = NULL;
	const json_t *rows, *memory, *pids;
	struct receipt r;
	struct err e = ERR_INIT;

	receipt_init(&r, BIT(LAYER_CGROUP_PIDS));
	receipt_explicit(&r, BIT(LAYER_CGROUP_MEMORY) | BIT(LAYER_CGROUP_PIDS));
	all_yes(&r);
	receipt_no(&r, LAYER_CGROUP_MEMORY, "Permission denied");
	assert_int_equal(receipt_check(&r, &e), 0);
	j = receipt_json(&r,
			 &(const struct receipt_head){ "abc", "container", "crun", "p", "base" });
	rows = json_object_get(j, "layers");
	memory = json_array_get(rows, LAYER_CGROUP_MEMORY);
	pids = json_array_get(rows, LAYER_CGROUP_PIDS);
	assert_true(json_is_true(json_object_get(memory, "best_effort")));
	assert_true(json_is_false(json_object_get(memory, "enforced")));
	assert_null(json_object_get(pids, "best_effort"));
}

TEST(advice_stays_in_a_long_message)
{
	char longest[RECEIPT_SEEN_MAX];
	struct receipt r;
	struct err e = ERR_INIT;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	receipt_init(&r, UINT64_MAX);
	receipt_no(&r, LAYER_USER_NAMESPACE, "%s", longest);
	receipt_advise(&r, LAYER_USER_NAMESPACE, "do this");
	assert_int_equal(receipt_check(&r, &e), -EPERM);
	assert_string_equal(e.msg, "isolation.require: not enforced on this host: user-namespace, "
				   "pid-namespace, no-network-device, seccomp and 22 more; do "
				   "this");
}

TEST(texts_are_cut_to_fit)
{
	char longest[2 * RECEIPT_SEEN_MAX];
	struct receipt r;

	memset(longest, 'x', sizeof(longest) - 1);
	memcpy(longest + RECEIPT_SEEN_MAX - 2, "\xc3\xa4", 2); /* cut in two */
	longest[sizeof(longest) - 1] = '\0';
	receipt_init(&r, 0);
	receipt_yes(&r, LAYER_SECCOMP, "%s", longest);
	assert_int_equal(strlen(r.row[LAYER_SECCOMP].seen), RECEIPT_SEEN_MAX - 1);
	assert_int_equal(r.row[LAYER_SECCOMP].seen[RECEIPT_SEEN_MAX - 2], '?');
}

static const struct receipt_head head = { "abc", "container", "crun", "p", "base" };

TEST(as_json)
{
	_cleanup_json_ json_t *j = NULL;
	const json_t *rows, *row;
	struct receipt r;

	receipt_init(&r, BIT(LAYER_SECCOMP));
	receipt_yes(&r, LAYER_SECCOMP, "Seccomp: 2");
	receipt_advise(&r, LAYER_LANDLOCK, "a newer kernel");
	j = receipt_json(&r, &head);
	assert_string_equal(json_string_value(json_object_get(j, "schema")), "hutch.receipt/1");
	assert_string_equal(json_string_value(json_object_get(j, "sandbox")), "abc");
	assert_string_equal(json_string_value(json_object_get(j, "level")), "container");
	assert_string_equal(json_string_value(json_object_get(j, "engine")), "crun");
	assert_int_equal(json_object_size(j), 10);
	assert_int_equal(json_object_size(json_object_get(j, "facts")), 0);
	row = json_object_get(j, "pause");
	assert_string_equal(json_string_value(json_object_get(row, "by")), "none");
	assert_string_equal(json_string_value(json_object_get(row, "seen")), "not checked");
	rows = json_object_get(j, "layers");
	assert_int_equal(json_array_size(rows), RECEIPT_ROWS);
	row = json_array_get(rows, LAYER_SECCOMP);
	assert_string_equal(json_string_value(json_object_get(row, "name")), "seccomp");
	assert_string_equal(json_string_value(json_object_get(row, "seen")), "Seccomp: 2");
	assert_true(json_is_true(json_object_get(row, "required")));
	assert_true(json_is_true(json_object_get(row, "enforced")));
	assert_null(json_object_get(row, "advice"));
	row = json_array_get(rows, LAYER_LANDLOCK);
	assert_false(json_is_true(json_object_get(row, "enforced")));
	assert_string_equal(json_string_value(json_object_get(row, "advice")), "a newer kernel");
	row = json_array_get(rows, EXTRA_KEEPER);
	assert_string_equal(json_string_value(json_object_get(row, "name")), "keeper-locked");
}

TEST(facts)
{
	static const struct receipt_fact some[] = { { "kernel", "linux 6.1" }, { "start", "" } };
	struct receipt_head with = head;
	_cleanup_json_ json_t *j = NULL;
	const json_t *facts;
	struct receipt r;

	receipt_init(&r, 0);
	with.facts = some;
	with.n_facts = ARRAY_SIZE(some);
	j = receipt_json(&r, &with);
	facts = json_object_get(j, "facts");
	assert_string_equal(json_string_value(json_object_get(facts, "kernel")), "linux 6.1");
	assert_int_equal(json_object_size(facts), 1); /* an unknown one is left out */
}

static int make_json(const struct receipt *r)
{
	_cleanup_json_ json_t *j = receipt_json(r, &head);

	return j ? 0 : -ENOMEM;
}

TEST(without_memory)
{
	struct receipt r;

	receipt_init(&r, 0);
	receipt_advise(&r, 0, "x");
	FAIL_SWEEP(make_json(&r));
}
