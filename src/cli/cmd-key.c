/* SPDX-License-Identifier: Apache-2.0 */
/* hutch key create, ls, set, revoke */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "engine/engine.h"
#include "keys/keys.h"
#include "policy/value.h"

enum {
	GRANT_TEXT_MAX = 2048,
};

/* "2026-11-15T08:00:00Z": seconds are precise enough for people. */
static const char *shown(uint64_t wall, char out[static CLOCK_RFC3339_MAX])
{
	(void)clock_format(wall, out);
	memcpy(out + STRLEN("2026-11-15T08:00:00"), "Z", 2);
	return out;
}

static int read_expiry(const struct invocation *inv, uint64_t *ret)
{
	const char *text = cli_option(inv, "expires");
	uint64_t now = clock_wall(), ms;

	*ret = 0;
	if (!text)
		return EXIT_OK;
	if (clock_parse(text, ret) < 0) {
		if (value_duration(text, &ms) < 0 || ms > (UINT64_MAX - now) / NSEC_PER_MSEC)
			return cli_usage(inv,
					 "--expires '%s': expected 2026-12-31T08:00:00Z, or a time "
					 "from now such as 30d",
					 text);
		*ret = now + ms * NSEC_PER_MSEC;
	}
	return *ret > now ? EXIT_OK : cli_usage(inv, "--expires '%s': this time has passed", text);
}

/* Values from the options. */
struct wish {
	struct key_change change;
	uint64_t quota[QUOTA_KINDS];
	bool any;
};

static int read_number(const char *s, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(s, &end, 10);
	return ascii_is_digit(s[0]) && !*end && errno == 0 ? 0 : -EINVAL;
}

/* "" and 0 mean no limit. */
static int read_quota(const struct invocation *inv, enum quota_kind kind, struct wish *w)
{
	static const char *const expected[QUOTA_KINDS] = { [QUOTA_SANDBOXES] =
								   "a number such as 20",
							   [QUOTA_CPUS] =
								   "a number such as 4 or 0.5",
							   [QUOTA_MEMORY] = "a size such as 16GiB",
							   [QUOTA_DISK] = "a size such as 100GiB",
							   [QUOTA_BUILDS] = "a number such as 2" };
	const char *text = cli_option(inv, quota_names[kind]);
	uint64_t *value = &w->quota[kind];
	int r = 0;

	if (!text)
		return EXIT_OK;
	if (!text[0] || str_eq(text, "0"))
		*value = 0;
	else if (quota_is_count(kind))
		r = read_number(text, value);
	else
		r = kind == QUOTA_CPUS ? value_thousandths(text, value) : value_size(text, value);
	if (r < 0)
		return cli_usage(inv, "--%s '%s': expected %s, or 0 for no limit",
				 quota_names[kind], text, expected[kind]);
	w->change.quota[kind] = value;
	w->any = true;
	return EXIT_OK;
}

static int read_wish(const struct invocation *inv, struct wish *w)
{
	const struct engine *engine;
	struct err e = ERR_INIT;
	enum level level;

	*w = (struct wish){ .change = { .agents = cli_option(inv, "agent"),
					.level = cli_option(inv, "level") } };
	w->any = w->change.agents || w->change.level;
	if (w->change.level && w->change.level[0] &&
	    (level_parse(w->change.level, &level) < 0 || engine_choose(level, "", &engine, &e) < 0))
		return cli_usage(inv, "--level '%s': %s", w->change.level,
				 e.num ? e.msg : "not an isolation level");
	for (enum quota_kind i = 0; i < QUOTA_KINDS; i++) {
		int r = read_quota(inv, i, w);

		if (r != EXIT_OK)
			return r;
	}
	return EXIT_OK;
}

/* Applies the options to `g`. */
static int read_grant(const struct invocation *inv, enum key_role role, const struct wish *w,
		      struct key_grant *g)
{
	struct err e = ERR_INIT;

	if (w->any && role != KEY_USER)
		return cli_usage(
			inv, "--agent, --level and limits are for keys of role user: they have no "
			     "effect on other roles");
	return key_grant_change(g, &w->change, &e) < 0 ? cli_usage(inv, "%s", e.msg) : EXIT_OK;
}

/* "; at most 20 sandboxes, 16GiB memory" */
static void quota_text(const struct quota *q, struct buf *b)
{
	const char *before = "; at most ";
	char size[VALUE_HINT_MAX];

	for (enum quota_kind i = 0; i < QUOTA_KINDS; i++) {
		const uint64_t most = q->most[i];

		if (most == 0)
			continue;
		(void)buf_puts(b, before);
		if (quota_is_count(i))
			(void)buf_printf(b, "%llu", (unsigned long long)most);
		else if (i == QUOTA_CPUS)
			(void)buf_printf(b, "%g", (double)most / 1000);
		else
			(void)buf_puts(b, value_format_size(most, size));
		(void)buf_printf(b, " %s", quota_names[i]);
		before = ", ";
	}
}

/* "agents e2b,devops, level microvm", or the defaults of a key without a grant. */
static void grant_text(const struct key_info *i, struct buf *b)
{
	const struct key_grant *g = &i->grant;

	if (i->role != KEY_USER) {
		(void)buf_puts(b, i->role == KEY_ADMIN ? "everything" : "-");
		return;
	}
	(void)buf_puts(b, g->n_agents ? "agents " : "the default agent");
	for (size_t k = 0; k < g->n_agents; k++)
		(void)buf_printf(b, "%s%s", k ? "," : "", g->agents[k]);
	if (g->level[0])
		(void)buf_printf(b, "; level %s", g->level);
	quota_text(&g->quota, b);
}

/* Records the intent to change a key; on failure the key must not change. */
static int intend(const char *op, const struct key_info *info, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	_cleanup_buf_ struct buf may = BUF_INIT(GRANT_TEXT_MAX);

	cli_audit_begin(&p, op, "name", info->name);
	audit_put_text(&p, "prefix", info->prefix);
	audit_put_text(&p, "role", key_role_names[info->role]);
	grant_text(info, &may);
	audit_put_text(&p, "may_have", buf_text(&may));
	return cli_audit(AUDIT_API_KEY, &p, e);
}

static void outcome(const struct invocation *inv, const struct key_info *info, const struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, inv->cmd->name, "name", info->name);
	audit_put_text(&p, "prefix", info->prefix);
	audit_put_text(&p, "result", e->num ? "failed" : "done");
	if (e->num)
		audit_put_text(&p, "text", e->msg);
	cli_audit_try(inv, AUDIT_API_KEY, &p);
}

/* Only limited kinds; cpus in thousandths, as in the file. */
static json_t *quota_json(const struct quota *q)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < QUOTA_KINDS; i++)
		if (q->most[i] > 0 &&
		    json_put(o, quota_names[i], json_integer((json_int_t)q->most[i])) < 0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

static json_t *info_json(const struct key_info *i)
{
	char created[CLOCK_RFC3339_MAX], expires[CLOCK_RFC3339_MAX];
	const char *agents[KEY_AGENTS_MAX];

	for (size_t k = 0; k < i->grant.n_agents; k++)
		agents[k] = i->grant.agents[k];
	return JSON_OBJECT(
		{ "name", json_string(i->name) }, { "prefix", json_string(i->prefix) },
		{ "role", json_string(key_role_names[i->role]) },
		{ "created", json_string(clock_format(i->created, created)) },
		{ "expires",
		  i->expires ? json_string(clock_format(i->expires, expires)) : json_null() },
		{ "agents", json_texts(agents, i->grant.n_agents) },
		{ "level", i->grant.level[0] ? json_string(i->grant.level) : json_null() },
		{ "quota", quota_json(&i->grant.quota) },
		{ "expired", json_boolean(i->expires && clock_wall() >= i->expires) });
}

static int print_new(const struct invocation *inv, const char *text, const struct key_info *i)
{
	char when[CLOCK_RFC3339_MAX];
	json_t *o;

	if (cli_option(inv, "json")) {
		o = info_json(i);
		if (o && json_put(o, "key", json_string(text)) < 0) {
			json_decref(o);
			o = NULL;
		}
		return cli_print_json(o, EXIT_OK);
	}
	(void)puts(text);
	(void)fprintf(stderr, "%s, for %s, expires %s; the key is not shown again\n", i->name,
		      key_role_names[i->role], i->expires ? shown(i->expires, when) : "never");
	return EXIT_OK;
}

static int run_key_create(struct invocation *inv)
{
	_cleanup_keys_ struct keys k = KEYS_INIT;
	const char *role_word = cli_option(inv, "role");
	enum key_role role = KEY_USER;
	char text[KEY_TEXT + 1] = "";
	struct key_info info = { 0 };
	struct err e = ERR_INIT;
	uint64_t expires;
	struct wish w;
	int r = read_expiry(inv, &expires);

	if (r == EXIT_OK)
		r = read_wish(inv, &w);
	if (r != EXIT_OK)
		return r;
	if (role_word && key_role_parse(role_word, &role) < 0)
		return cli_usage(inv, "--role '%s': expected admin, user or metrics", role_word);
	r = key_draw(cli_option(inv, "name"), role, expires, text, &info, &e);
	if (r == -EINVAL)
		return cli_usage(inv, "--name: %s", e.msg);
	if (r == 0 && read_grant(inv, role, &w, &info.grant) != EXIT_OK) {
		sodium_memzero(text, sizeof(text));
		return EXIT_USAGE;
	}
	if (r == 0)
		r = keys_open(&k, true, &e);
	if (r == 0)
		r = intend("create", &info, &e);
	if (r == 0) {
		r = keys_add(&k, &info, text, &e);
		outcome(inv, &info, &e);
	}
	r = r < 0 ? cli_fail(inv, &e) : print_new(inv, text, &info);
	sodium_memzero(text, sizeof(text));
	return r;
}

/* Without a directory no keys exist. */
static int open_existing(struct keys *k, struct err *e)
{
	int r = keys_open(k, false, e);

	if (r == -ENOENT) {
		*e = (struct err)ERR_INIT;
		return 0;
	}
	return r < 0 ? r : keys_load(k, e);
}

static void print_row(const struct key_info *i)
{
	_cleanup_buf_ struct buf may = BUF_INIT(GRANT_TEXT_MAX);
	char created[CLOCK_RFC3339_MAX], expires[CLOCK_RFC3339_MAX], until[48];

	grant_text(i, &may);
	(void)snprintf(until, sizeof(until), "%s%s",
		       i->expires ? shown(i->expires, expires) : "never",
		       i->expires && clock_wall() >= i->expires ? " (over)" : "");
	(void)printf("%-24s %-12s %-8s %-20s  %-20s  %s\n", i->name, i->prefix,
		     key_role_names[i->role], shown(i->created, created), until, buf_text(&may));
}

static int run_key_ls(struct invocation *inv)
{
	_cleanup_keys_ struct keys k = KEYS_INIT;
	_cleanup_json_ json_t *list = json_array();
	struct err e = ERR_INIT;
	int r = open_existing(&k, &e);

	if (r < 0)
		return cli_fail(inv, &e);
	if (!cli_option(inv, "json"))
		(void)printf("%-24s %-12s %-8s %-20s  %-20s  %s\n", "NAME", "PREFIX", "ROLE",
			     "CREATED", "EXPIRES", "MAY HAVE");
	for (size_t i = 0; i < k.n; i++) {
		if (!cli_option(inv, "json"))
			print_row(&k.list[i].info);
		else if (json_push(list, info_json(&k.list[i].info)) < 0)
			return cli_fail(inv, (err_oom(&e), &e));
	}
	return cli_option(inv, "json") ? cli_print_json(TAKE_PTR(list), EXIT_OK) : EXIT_OK;
}

static int run_key_set(struct invocation *inv)
{
	_cleanup_keys_ struct keys k = KEYS_INIT;
	_cleanup_buf_ struct buf may = BUF_INIT(GRANT_TEXT_MAX);
	const char *which = inv->args[0];
	const struct key_entry *found;
	struct key_info info = { 0 };
	struct err e = ERR_INIT;
	struct wish w;
	int r = open_existing(&k, &e);

	if (r < 0)
		return cli_fail(inv, &e);
	r = read_wish(inv, &w);
	if (r != EXIT_OK)
		return r;
	if (!w.any)
		return cli_usage(inv, "nothing to change: give --agent, --level, --sandboxes, "
				      "--cpus, --memory, --disk or --builds");
	found = keys_find(&k, which);
	if (!found)
		return cli_fail(inv,
				(err_set(&e, -ENOENT, "no key '%.80s': hutch key ls", which), &e));
	info = found->info;
	r = read_grant(inv, info.role, &w, &info.grant);
	if (r != EXIT_OK)
		return r;
	r = intend("set", &info, &e);
	if (r == 0) {
		r = keys_set_grant(&k, info.name, &w.change, &info, &e);
		outcome(inv, &info, &e);
	}
	if (r < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(info_json(&info), EXIT_OK);
	grant_text(&info, &may);
	(void)printf("%s: %s\n", info.name, buf_text(&may));
	return EXIT_OK;
}

static int run_key_revoke(struct invocation *inv)
{
	_cleanup_keys_ struct keys k = KEYS_INIT;
	const char *which = inv->args[0];
	const struct key_entry *found;
	struct key_info info = { 0 };
	struct err e = ERR_INIT;
	int r = open_existing(&k, &e);

	if (r < 0)
		return cli_fail(inv, &e);
	found = keys_find(&k, which);
	if (!found)
		return cli_fail(inv,
				(err_set(&e, -ENOENT, "no key '%.80s': hutch key ls", which), &e));
	info = found->info;
	r = intend("revoke", &info, &e);
	if (r == 0) {
		r = keys_revoke(&k, which, &info, &e);
		outcome(inv, &info, &e);
	}
	if (r < 0)
		return cli_fail(inv, &e);
	(void)printf("%s: revoked\n", info.name);
	return EXIT_OK;
}

/* clang-format off */
#define OPTS_LIMITS                                                                     \
	{ "cpus", 0, "N", "total processors of its sandboxes" },                 \
	{ "memory", 0, "SIZE", "total memory of its sandboxes" },                      \
	{ "disk", 0, "SIZE", "total disk space of its sandboxes" },                          \
	{ "builds", 0, "N", "maximum number of template builds at once" }

static const struct command cmd_key_create = {
	.name = "create", .args = "",
	.summary = "make an API key and print it; it cannot be printed again",
	.help = "Prints the key on standard output and its properties on standard error. Hutch keeps only a hash of the key.\n"
		"A key of role 'user' is for the E2B SDKs and sees only its own sandboxes, 'metrics' is for GET /metrics,\n"
		"'admin' may do everything.",
	.options = OPTIONS(
		OPT_JSON,
		{ "name", 'n', "NAME", "name of the key, and owner of its sandboxes" },
		{ "role", 'r', "ROLE", "admin, user or metrics; default user" },
		{ "expires", 0, "TIME", "an RFC 3339 time, or a time from now such as 30d" },
		{ "agent", 'a', "A,B", "agents whose policies it may use; the first is the default" },
		{ "level", 0, "LEVEL", "minimum isolation level: container or microvm" },
		{ "sandboxes", 0, "N", "maximum number of sandboxes; default no limit" },
		OPTS_LIMITS),
	.run = run_key_create,
};

static const struct command cmd_key_ls = {
	.name = "ls", .args = "",
	.summary = "list the API keys", .options = OPTIONS(OPT_JSON), .run = run_key_ls,
};

static const struct command cmd_key_set = {
	.name = "set", .args = "NAME|PREFIX", .min_args = 1, .max_args = 1,
	.summary = "change the permissions and limits of an API key",
	.help = "Settings without an option stay as they are. Changes take effect within a second, for new sandboxes.",
	.options = OPTIONS(
		OPT_JSON,
		{ "agent", 'a', "A,B", "agents whose policies it may use, the default first; '' for hutchd's default agent" },
		{ "level", 0, "LEVEL", "minimum isolation level: container or microvm; '' for no minimum" },
		{ "sandboxes", 0, "N", "maximum number of sandboxes; 0 for no limit" },
		OPTS_LIMITS),
	.run = run_key_set,
};

static const struct command cmd_key_revoke = {
	.name = "revoke", .args = "NAME|PREFIX", .min_args = 1, .max_args = 1,
	.summary = "revoke an API key",
	.help = "Takes the name of the key or its first 8 digits. The key stops working within a second.",
	.run = run_key_revoke,
};

const struct command cmd_key = {
	.name = "key", .args = "",
	.summary = "make, list and revoke the API keys of hutchd",
	.sub = COMMANDS(&cmd_key_create, &cmd_key_ls, &cmd_key_set, &cmd_key_revoke),
};
/* clang-format on */
