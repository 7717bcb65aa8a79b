/* SPDX-License-Identifier: Apache-2.0 */
/* hutch agents, hutch presets */
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "policy/docs.h"

/* Prints the source of `name` if the folder has it. 0, -ENOENT or another error. */
static int print_source(struct default_store *s, const char *folder, const char *name, json_t *list,
			struct err *e)
{
	const struct source *src = NULL;
	int r = store_find(&s->store, folder, name, NULL, &src, e);

	if (r < 0)
		return r;
	if (list) {
		r = json_push(list, JSON_OBJECT({ "file", json_string(src->label) },
						{ "text", json_stringn(src->text, src->len) }));
		return r < 0 ? err_oom(e) : 0;
	}
	(void)fputs("# ", stdout);
	cli_puts(stdout, src->label);
	(void)fputc('\n', stdout);
	(void)fwrite(src->text, 1, src->len, stdout);
	return 0;
}

static int not_known(const struct invocation *inv, struct default_store *s,
		     const char *const *folders)
{
	const char *const *names = NULL, *close = NULL;
	struct err e = ERR_INIT;

	for (; *folders && !close; folders++)
		if (store_list(&s->store, *folders, &names, &e) == 0)
			close = str_closest(inv->args[0], names);
	if (close)
		(void)err_set(&e, -ENOENT, "'%s' is not known; did you mean '%s'?", inv->args[0],
			      close);
	else
		(void)err_set(&e, -ENOENT, "'%s' is not known", inv->args[0]);
	return cli_fail(inv, &e);
}

/* Prints the files of that name from all folders. */
static int show(const struct invocation *inv, struct default_store *s, const char *const *folders)
{
	_cleanup_json_ json_t *list = cli_option(inv, "json") ? json_array() : NULL;
	struct err e = ERR_INIT;
	int found = 0;

	for (size_t i = 0; folders[i]; i++) {
		int r = print_source(s, folders[i], inv->args[0], list, &e);

		if (r < 0 && r != -ENOENT)
			return cli_fail(inv, (err_wrap(&e, "'%s'", inv->args[0]), &e));
		found += r == 0;
	}
	if (found == 0)
		return not_known(inv, s, folders);
	return list ? cli_print_json(TAKE_PTR(list), EXIT_OK) : EXIT_OK;
}

static json_t *agent_json(const struct policy *p, const char *digest)
{
	return json_pack("{s:s, s:s, s:s*, s:s, s:s, s:s}", "name", p->name, "type", p->type,
			 "summary", p->summary, "level", level_names[p->level], "file",
			 p->pos.src->label, "sha256", digest);
}

static int one_agent(const struct invocation *inv, struct default_store *s, const char *name,
		     json_t *list)
{
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ char *text = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;

	if (policy_compile(&s->store, name, &d, &p, &e) < 0)
		return cli_fail(inv, &e);
	if (list &&
	    (policy_canonical(p, &text, digest) < 0 || json_push(list, agent_json(p, digest)) < 0))
		return cli_fail(inv, (err_oom(&e), &e));
	if (list)
		return EXIT_OK;
	(void)printf("%-24s %-10s ", p->name, level_names[p->level]);
	cli_puts(stdout, p->summary ? p->summary : "");
	(void)fputc('\n', stdout);
	return EXIT_OK;
}

static int run_agents(struct invocation *inv)
{
	static const char *const folders[] = { STORE_AGENTS, NULL };
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_json_ json_t *list = cli_option(inv, "json") ? json_array() : NULL;
	const char *const *names = NULL;
	struct err e = ERR_INIT;
	int code = EXIT_OK;

	if (cli_store_open(&s, inv, &e) < 0)
		return cli_fail(inv, &e);
	if (inv->n_args > 0)
		return show(inv, &s, folders);
	if (store_list(&s.store, STORE_AGENTS, &names, &e) < 0)
		return cli_fail(inv, &e);
	for (size_t i = 0; names[i]; i++)
		code = MAX(code, one_agent(inv, &s, names[i], list));
	return list ? cli_print_json(TAKE_PTR(list), code) : code;
}

static void print_presets(const struct invocation *inv, enum preset_kind kind, const json_t *list)
{
	const json_t *one;
	size_t i;

	(void)printf("%s%s%s%s\n", kind > 0 ? "\n" : "", cli_style(inv, "\033[1m"),
		     preset_kind_names[kind], cli_style(inv, "\033[0m"));
	json_array_foreach((json_t *)list, i, one)
	{
		(void)printf("  %-24s ", json_string_value(json_object_get(one, "name")));
		cli_puts(stdout, json_string_value(json_object_get(one, "summary")));
		(void)fputc('\n', stdout);
	}
}

static int run_presets(struct invocation *inv)
{
	const char *folders[PRESET_KIND_MAX + 1] = { NULL };
	_cleanup_json_ json_t *all = json_object();
	_cleanup_default_store_ struct default_store s = { 0 };
	struct err e = ERR_INIT;

	if (cli_store_open(&s, inv, &e) < 0)
		return cli_fail(inv, &e);
	for (int kind = 0; kind < PRESET_KIND_MAX; kind++)
		folders[kind] = preset_folder((enum preset_kind)kind);
	if (inv->n_args > 0)
		return show(inv, &s, folders);
	for (int kind = 0; kind < PRESET_KIND_MAX; kind++) {
		json_t *list = NULL;

		if (policy_presets_json(&s.store, (enum preset_kind)kind, &list, &e) < 0)
			return cli_fail(inv, &e);
		if (!cli_option(inv, "json"))
			print_presets(inv, (enum preset_kind)kind, list);
		if (json_put(all, preset_kind_names[kind], list) < 0)
			return cli_fail(inv, (err_oom(&e), &e));
	}
	return cli_option(inv, "json") ? cli_print_json(TAKE_PTR(all), EXIT_OK) : EXIT_OK;
}

/* clang-format off */
const struct command cmd_agents = {
	.name = "agents", .args = "[NAME]", .max_args = 1,
	.summary = "list the agents, or print the file of one",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_agents,
};

const struct command cmd_presets = {
	.name = "presets", .args = "[NAME]", .max_args = 1,
	.summary = "list the presets, or print the file of one",
	.options = OPTIONS(OPT_JSON, OPT_INCLUDE), .run = run_presets,
};
/* clang-format on */
