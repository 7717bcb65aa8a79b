/* SPDX-License-Identifier: Apache-2.0 */
/* hutch gc */
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/cli-sandbox.h"

static const char *const keys[] = {
	[LEFT_DEAD] = "dead",	 [LEFT_ENDED] = "ended",	[LEFT_GROUP] = "groups",
	[LEFT_IMAGE] = "images", [LEFT_SNAPSHOT] = "snapshots", [LEFT_LEDGER] = "ledgers",
	[LEFT_IDS] = "ids",
};
static_assert(ARRAY_SIZE(keys) == LEFT_MAX, "each has a key");

static const char *const words[] = {
	[LEFT_DEAD] = "dead sandbox",	 [LEFT_ENDED] = "ended sandbox",
	[LEFT_GROUP] = "control group",	 [LEFT_IMAGE] = "unnamed image",
	[LEFT_SNAPSHOT] = "snapshot",	 [LEFT_LEDGER] = "used budget",
	[LEFT_IDS] = "unused id ranges",
};
static_assert(ARRAY_SIZE(words) == LEFT_MAX, "each has words");

struct found {
	const struct invocation *inv;
	json_t *lists; /* NULL: output for people */
	uint64_t ids;
	int r;
};

static void took(void *arg, enum sandbox_left what, const char *name)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct found *f = arg;

	audit_put_text(&p, "took", words[what]);
	audit_put_text(&p, what == LEFT_DEAD || what == LEFT_ENDED ? "sandbox" : "name", name);
	cli_audit_try(f->inv, AUDIT_GC, &p);
	if (!f->lists) {
		(void)printf("%-16s  ", words[what]);
		cli_puts(stdout, name);
		(void)fputc('\n', stdout);
		return;
	}
	if (what == LEFT_IDS)
		(void)str_to_u64(name, strlen(name), UINT32_MAX, &f->ids);
	else
		f->r |= json_push(json_object_get(f->lists, keys[what]), cli_json_text(name));
}

static json_t *make_lists(void)
{
	return JSON_OBJECT({ keys[LEFT_DEAD], json_array() }, { keys[LEFT_ENDED], json_array() },
			   { keys[LEFT_GROUP], json_array() }, { keys[LEFT_IMAGE], json_array() },
			   { keys[LEFT_SNAPSHOT], json_array() },
			   { keys[LEFT_LEDGER], json_array() });
}

static int run_gc(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct found f = { .inv = inv };
	struct err e = ERR_INIT;
	int r, code;

	if (cli_option(inv, "json") && !(f.lists = make_lists()))
		return cli_fail(inv, (err_oom(&e), &e));
	/* gc frees space, so a full log must not prevent it. */
	cli_audit_begin(&p, "gc", NULL, NULL);
	cli_audit_try(inv, AUDIT_GC, &p);
	r = state_root_open(&root, &e);
	if (r == 0)
		r = sandbox_reclaim_all(
			&root, &(struct sandbox_gc){ took, &f, cli_option(inv, "ended") }, &e);
	code = r < 0 ? cli_fail(inv, &e) : EXIT_OK;
	if (!f.lists)
		return code;
	/* Reclaimed objects are reported even if others could not be reclaimed. */
	f.r |= json_put(f.lists, keys[LEFT_IDS], json_number(f.ids));
	if (f.r < 0)
		json_decref(TAKE_PTR(f.lists));
	return cli_print_json(f.lists, code);
}

/* clang-format off */
const struct command cmd_gc = {
	.name = "gc", .args = "",
	.summary = "reclaim everything that no running sandbox uses, and list it",
	.help = "Removes the remains of sandboxes whose warden was killed; records of ended sandboxes beyond the age or\n"
		"number that host.yaml allows, or all with --ended; unused control groups, id ranges and incomplete images\n"
		"and snapshots; used budgets of models that no sandbox or snapshot continues; microVM templates whose image\n"
		"or kernel is gone, and cached memory of templates. Running sandboxes and builds in progress are not\n"
		"touched.",
	.options = OPTIONS(
		OPT_JSON,
		{ "ended", 0, NULL, "also remove everything kept of ended sandboxes" }),
	.run = run_gc,
};
/* clang-format on */
