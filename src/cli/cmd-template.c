/* SPDX-License-Identifier: Apache-2.0 */
/* hutch template: templates built by clients of hutchd, and which of them all keys may use. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/view.h"
#include "template/template.h"

/* Opens the store of OWNER/NAME, or of the operator for NAME; *ret is the name. */
static int open_store(const char *arg, struct template_store *s, const char **ret, struct err *e)
{
	const char *slash = strchr(arg, '/');
	char owner[TEMPLATE_NAME_MAX + 1] = "";
	int r;

	if (slash && (size_t)(slash - arg) > TEMPLATE_NAME_MAX)
		return err_set(e, -EINVAL, "'%.80s': expected OWNER/NAME", arg);
	if (slash)
		(void)snprintf(owner, sizeof(owner), "%.*s", (int)(slash - arg), arg);
	*ret = slash ? slash + 1 : arg;
	r = template_store_open(s, owner, false, e);
	return r == -ENOENT ? err_set(e, r, "no template '%.80s': hutch template ls", arg) : r;
}

/* ---- ls ---- */

static int list_store(const struct template_store *s, void *arg, struct err *e)
{
	_cleanup_json_ json_t *all = NULL;
	json_t *list = arg, *one;
	size_t i;
	int r = template_list(s, NULL, &all, e);

	json_array_foreach(all, i, one)
	{
		const char *name = json_string_value(json_object_get(one, "name"));
		char owner[TEMPLATE_NAME_MAX + 1], id[TEMPLATE_ID + 1];
		struct err own = ERR_INIT;
		bool shared = template_shared(name, owner, id, &own) == 0 &&
			      str_eq(id, json_string_value(json_object_get(one, "id")));

		if (json_put(one, "owner", json_string(s->owner)) < 0 ||
		    json_put(one, "shared", json_boolean(shared)) < 0 ||
		    json_push(list, json_incref(one)) < 0)
			return err_oom(e);
	}
	return r;
}

static void print_row(const json_t *one)
{
	uint64_t made = (uint64_t)json_integer_value(json_object_get(one, "when"));
	const char *owner = json_string_value(json_object_get(one, "owner")), *tag;
	char name[2 * TEMPLATE_NAME_MAX + 2], age[VALUE_HINT_MAX];
	const json_t *ignored;

	(void)snprintf(name, sizeof(name), "%s%s%s", owner, owner[0] ? "/" : "",
		       json_string_value(json_object_get(one, "name")));
	(void)printf("%s  %-30s  %6s  %-6s ", json_string_value(json_object_get(one, "id")), name,
		     view_age(made, age),
		     json_is_true(json_object_get(one, "shared")) ? "shared" : "");
	json_object_foreach(json_object_get(one, "tags"), tag, ignored)
	{
		(void)fputc(' ', stdout);
		cli_puts(stdout, tag);
	}
	(void)fputc('\n', stdout);
}

static int run_template_ls(struct invocation *inv)
{
	_cleanup_json_ json_t *list = json_array();
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;

	if ((list ? template_each_store(list_store, list, &e) : err_oom(&e)) < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(TAKE_PTR(list), EXIT_OK);
	json_array_foreach(list, i, one)
	{
		print_row(one);
	}
	return EXIT_OK;
}

/* ---- share, unshare, rm: only after the intent is recorded ---- */

static int record(const char *op, const char *arg, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, op, "template", arg);
	return cli_audit(AUDIT_IMAGE, &p, e);
}

static int change(struct invocation *inv, const char *op, const char *done,
		  int (*fn)(const struct template_store *s, const char *ref, struct err *e))
{
	int code = EXIT_OK;

	for (int i = 0; i < inv->n_args; i++) {
		_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
		char id[TEMPLATE_ID + 1];
		const char *ref = NULL;
		struct err e = ERR_INIT;
		int r = open_store(inv->args[i], &s, &ref, &e);

		if (r == 0)
			r = template_find(&s, ref, id, &e);
		if (r == 0)
			r = record(op, inv->args[i], &e);
		if (r == 0)
			r = fn(&s, id, &e);
		if (r < 0)
			code = cli_fail(inv, &e);
		else
			(void)printf("%s: %s\n", inv->args[i], done);
	}
	return code;
}

static int run_template_share(struct invocation *inv)
{
	return change(inv, "share", "all keys may use it", template_share);
}

static int run_template_rm(struct invocation *inv)
{
	return change(inv, "rm", "removed", template_remove);
}

/* OWNER/NAME must be the shared template; NAME is the shared one of any owner. */
static int check_shared(const char *arg, const char **ret_name, struct err *e)
{
	const char *slash = strchr(arg, '/');
	const char *name = slash ? slash + 1 : arg;
	char owner[TEMPLATE_NAME_MAX + 1], id[TEMPLATE_ID + 1];
	int r = template_shared(name, owner, id, e);
	size_t n = slash ? (size_t)(slash - arg) : 0;

	if (r == 0 && slash && (strlen(owner) != n || memcmp(owner, arg, n) != 0))
		r = err_set(e, -ENOENT, "'%.80s' is not shared; '%s' is that of %s%s", arg, name,
			    owner[0] ? "the key " : "the operator", owner);
	if (r == 0)
		*ret_name = name;
	return r;
}

static int run_template_unshare(struct invocation *inv)
{
	int code = EXIT_OK;

	for (int i = 0; i < inv->n_args; i++) {
		const char *name = NULL;
		struct err e = ERR_INIT;
		int r = check_shared(inv->args[i], &name, &e);

		if (r == 0)
			r = record("unshare", inv->args[i], &e);
		if (r == 0)
			r = template_unshare(name, &e);
		if (r < 0)
			code = cli_fail(inv, &e);
		else
			(void)printf("%s: only its owner may use it\n", inv->args[i]);
	}
	return code;
}

/* clang-format off */
static const struct command cmd_template_ls = {
	.name = "ls", .args = "",
	.summary = "list templates: id, OWNER/NAME, age, whether it is shared, tags",
	.options = OPTIONS(OPT_JSON), .run = run_template_ls,
};

static const struct command cmd_template_share = {
	.name = "share", .args = "OWNER/NAME...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "let all keys use a template, by its name",
	.help = "A key uses the shared template only if it has no template of that name and no image has that name. Only the\n"
		"owner can change the template.",
	.run = run_template_share,
};

static const struct command cmd_template_unshare = {
	.name = "unshare", .args = "NAME...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "stop sharing a template",
	.help = "Existing sandboxes of the template keep running.",
	.run = run_template_unshare,
};

static const struct command cmd_template_rm = {
	.name = "rm", .args = "OWNER/NAME...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "remove templates",
	.help = "hutchd removes the images of the template's builds when it starts, a day later at the earliest. Existing\n"
		"sandboxes keep running.",
	.run = run_template_rm,
};

const struct command cmd_template = {
	.name = "template", .args = "",
	.summary = "list, share and remove the templates of API keys",
	.help = "A template is an image that a client of hutchd has built, under a name that only its API key knows.\n"
		"Templates that the operator built through the Unix socket have no OWNER/ before their name.",
	.sub = COMMANDS(&cmd_template_ls, &cmd_template_share, &cmd_template_unshare, &cmd_template_rm),
};
/* clang-format on */
