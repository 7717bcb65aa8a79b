/* SPDX-License-Identifier: Apache-2.0 */
/* hutch run, create, exec */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "cli/cli-life.h"
#include "cli/cli-record.h"
#include "cli/egress-log.h"
#include "cli/view.h"
#include "engine/engine.h"
#include "wire/message.h"

enum {
	END_WAIT_MS = 10 * 1000, /* for a sandbox that is ending */
};

/* ---- options ---- */

static bool env_valid(const char *text)
{
	size_t n = strcspn(text, "=");

	if (n == 0 || !text[n] || ascii_is_digit(text[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(ascii_lower(text[i])) && !ascii_is_digit(text[i]) &&
		    text[i] != '_')
			return false;
	return true;
}

/* Adds NAME=value, replacing one of the same name. */
static void set_env(const char **list, size_t *n, const char *text)
{
	size_t name = strcspn(text, "=") + 1;

	for (size_t i = 0; i < *n; i++)
		if (strncmp(list[i], text, name) == 0) {
			list[i] = text;
			return;
		}
	list[(*n)++] = text;
}

/* Returns `before` with every -e applied. The caller frees the list, not the texts. */
static int take_env(const struct invocation *inv, const struct spec_list *before,
		    const char *const **ret, size_t *ret_n)
{
	const char **list = calloc(before->n + (size_t)inv->n_given + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return cli_fail(inv, &(struct err){ -ENOMEM, "out of memory" });
	for (size_t i = 0; i < before->n; i++)
		set_env(list, &n, before->v[i]);
	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, "env"))
			set_env(list, &n, inv->given[i].value);
	*ret = list;
	*ret_n = n;
	return EXIT_OK;
}

/* Secrets' variables hold placeholders, which -e must not replace. */
static int check_env(const struct invocation *inv, const struct spec *spec)
{
	struct err e = ERR_INIT;

	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, "env") &&
		    sandbox_check_env(spec, &inv->given[i].value, 1, &e) < 0)
			return cli_usage(inv, "--env: %s", e.msg);
	return EXIT_OK;
}

static int check_options(const struct invocation *inv)
{
	const char *dir = cli_option(inv, "workdir");

	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, "env") && !env_valid(inv->given[i].value))
			return cli_usage(inv, "--env '%s': expected NAME=VALUE",
					 inv->given[i].value);
	if (dir && dir[0] != '/')
		return cli_usage(inv, "--workdir '%s': expected an absolute path", dir);
	if (cli_option(inv, "tty") && !isatty(STDIN_FILENO))
		return cli_usage(inv, "--tty: standard input is not a terminal");
	return EXIT_OK;
}

static int take_timeout(const struct invocation *inv, uint64_t *ret)
{
	const char *text = cli_option(inv, "timeout");

	*ret = 0;
	return text ? cli_take_time(inv, "--timeout", text, ret) : EXIT_OK;
}

/* ---- how it ended ---- */

/* Returns the keeper of a sandbox, or -EBADF if it has gone. */
static int keeper_of(const struct sandbox *b)
{
	int pidfd = -EBADF;
	pid_t pid;

	return state_warden(b->dir, &pidfd, &pid) < 0 ? -EBADF : pidfd;
}

/* Waits until a keeper has cleaned up, and reaps it if it is our child: PID 1 may be slow to reap.
 */
static void wait_for_end(int keeper)
{
	struct pollfd p = { .fd = keeper, .events = POLLIN };
	siginfo_t info;

	if (keeper >= 0 && RETRY_EINTR(poll(&p, 1, END_WAIT_MS)) > 0)
		(void)waitid(P_PIDFD, (id_t)keeper, &info, WEXITED | WNOHANG);
}

static uint64_t oom_kills(const struct state_root *root, const struct sandbox *b)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct cgroup_usage u = { 0 };
	char group[STATE_GROUP_MAX];

	cgroup_open(state_group(root, b->id, group), &g);
	cgroup_usage(&g, &u);
	return u.oom_kills;
}

static void say_memory(const struct spec *spec)
{
	char limit[VALUE_HINT_MAX];

	(void)fprintf(stderr, "hutch: memory limit of %s reached%s; raise it with --memory\n",
		      value_format_size(spec->limits.memory, limit),
		      /* The agent of a VM reports the limits that its own kernel enforces. */
		      engine_can(spec, ENGINE_OWN_KERNEL) ? VIEW_TOLD : "");
}

static int say(const struct invocation *inv, const char *what, const char *why, int code)
{
	(void)fprintf(stderr, "%s: %s%s", inv->path, what, why[0] && what[0] ? ": " : "");
	cli_puts(stderr, why);
	(void)fputc('\n', stderr);
	return code;
}

/* The connection ended before the command. */
static int report_lost(const struct invocation *inv, const struct spec *spec,
		       const struct sandbox *b, const struct session_result *result, bool memory)
{
	_cleanup_close_ int keeper = keeper_of(b);
	struct err ignored = ERR_INIT;
	struct end end = { 0 };
	char why[128] = "";

	if (result->text[0] && result->number != WIRE_GONE)
		return say(inv, "the command was aborted", result->text, EXIT_HUTCH);
	wait_for_end(keeper);
	if (end_read(b->dir, &end, &ignored) == 0) {
		memory = end.reason == END_GUEST && end.oom_kills > 0;
		view_end(spec, &end, why, sizeof(why));
	}
	if (memory) {
		say_memory(spec);
		return EXIT_SIGNAL + SIGKILL;
	}
	return say(inv, "the sandbox ended", why, EXIT_HUTCH);
}

static int refused_code(const struct session_result *result)
{
	/* 126 and 127 concern the command. Errors of the start directory have the same wire codes.
	 */
	if (!str_has_prefix(result->text, "cannot run "))
		return EXIT_HUTCH;
	switch (result->number) {
	case WIRE_NOT_FOUND:
		return EXIT_NOT_FOUND;
	case WIRE_CANNOT_EXECUTE:
	case WIRE_PERMISSION:
	case WIRE_IS_DIRECTORY:
	case WIRE_NOT_DIRECTORY:
		return EXIT_NOT_EXECUTED;
	default:
		return EXIT_HUTCH;
	}
}

/*
 * A command missing from the default image may be in the agent's own image: if that is not built,
 * prints how to build it.
 */
static void hint_image(const struct invocation *inv, const struct spec *spec)
{
	_cleanup_json_ json_t *policy = NULL;
	const char *agent = cli_option(inv, "agent");
	json_t *has;

	if (!agent || cli_option(inv, "image") || !str_eq(spec->image, "base") ||
	    !spec->policy_text)
		return;
	policy = json_loads(spec->policy_text, 0, NULL);
	has = json_object_get(policy, "capabilities");
	if (json_array_size(json_object_get(has, "packages")) == 0 &&
	    json_array_size(json_object_get(has, "install_scripts")) == 0)
		return;
	(void)fprintf(stderr,
		      "%s: this is image 'base', because the image of agent '%s' is not built: ",
		      inv->path, agent);
	(void)fprintf(stderr, "hutch image build %s\n", agent);
}

int cli_exit_code(const struct session_result *result)
{
	switch (result->how) {
	case SESSION_EXITED:
		return (int)result->number;
	case SESSION_TIMEOUT:
		return EXIT_TIMEOUT;
	case SESSION_REFUSED:
		return refused_code(result);
	case SESSION_LOST:
		return EXIT_HUTCH;
	default:
		return EXIT_SIGNAL + (int)result->number;
	}
}

/* `memory`: processes were killed at the memory limit. */
int cli_report(const struct invocation *inv, const struct spec *spec, const struct sandbox *b,
	       const struct session_result *result, bool memory)
{
	const char *text = result->text[0] ? result->text : wire_code_name(result->number);

	if (memory && (result->how == SESSION_SIGNALED || result->how == SESSION_EXITED))
		say_memory(spec);
	switch (result->how) {
	case SESSION_TIMEOUT:
		return say(inv, "", result->text, EXIT_TIMEOUT);
	case SESSION_REFUSED:
		(void)say(inv, "", text, EXIT_HUTCH);
		if (refused_code(result) == EXIT_NOT_FOUND)
			hint_image(inv, spec);
		return refused_code(result);
	case SESSION_LOST:
		return report_lost(inv, spec, b, result, memory);
	default:
		return cli_exit_code(result);
	}
}

/* Ends by SIGPIPE like a program whose reader has gone. */
static int finish(const struct session_result *result, int code)
{
	if (result->how == SESSION_PIPE) {
		(void)signal(SIGPIPE, SIG_DFL);
		(void)raise(SIGPIPE);
	}
	return code;
}

/*
 * Reports denied connections, a possible cause of a failed command. The keeper counts them in the
 * audit log, so code inside cannot forge the number. If it cannot be read, only the command's own
 * failure is reported.
 */
static void say_denied(const struct invocation *inv, const struct spec *spec,
		       const struct sandbox *b, uint64_t since)
{
	struct err ignored = ERR_INIT;
	uint64_t n = 0;

	if (cli_option(inv, "quiet") || spec->egress.allow.n == 0 ||
	    egress_count_denied(b->id, since, &n, &ignored) < 0 || n == 0)
		return;
	(void)fprintf(stderr, "%llu connection%s denied: hutch egress log %s\n",
		      (unsigned long long)n, n == 1 ? " was" : "s were", b->id);
}

/* ---- one command ---- */

/* `before`: processes killed at the memory limit earlier. */
static int run_command(const struct invocation *inv, const struct state_root *root,
		       const struct spec *spec, const struct sandbox *b, uint64_t before, int fd,
		       struct session_spec *s, struct session_result *result)
{
	const char *type = getenv("TERM");
	struct spec_list none = { 0 }, terminal = { 0 };
	_cleanup_free_ const char *const *env = NULL;
	uint64_t since = clock_wall();
	struct err e = ERR_INIT;
	char term[256];
	const char *one[] = { term, NULL };
	size_t n = 0;
	int code;

	(void)snprintf(term, sizeof(term), "TERM=%s", type && type[0] ? type : "xterm");
	terminal = (struct spec_list){ .v = one, .n = 1 };
	s->terminal |= cli_option(inv, "tty") != NULL;
	s->input = cli_option(inv, "interactive") && !s->detach;
	s->keep_input = cli_option(inv, "interactive");
	s->in = STDIN_FILENO;
	s->out = STDOUT_FILENO;
	s->err = STDERR_FILENO;
	code = take_env(inv, s->terminal ? &terminal : &none, &env, &n);
	if (code != EXIT_OK)
		return code;
	s->env = env;
	if (session_run(fd, s, result, &e) < 0)
		return cli_fail(inv, &e);
	/* A successful command needs no report. */
	if (result->how == SESSION_DETACHED ||
	    (result->how == SESSION_EXITED && result->number == 0))
		return EXIT_OK;
	code = cli_report(inv, spec, b, result, result->memory || oom_kills(root, b) > before);
	if (result->how == SESSION_EXITED || result->how == SESSION_SIGNALED ||
	    result->how == SESSION_TIMEOUT || result->how == SESSION_LOST)
		say_denied(inv, spec, b, since);
	return code;
}

/* ---- commands ---- */

/*
 * Limits of the command line are checked as if they were in a file; errors omit the position in
 * that generated text.
 */
static size_t option_errors(const struct invocation *inv, const struct diags *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct diag *g = &d->list[i];
		const char *dot = strchr(g->key, '.');

		if (g->level != DIAG_ERROR || !g->pos.src ||
		    !str_eq(g->pos.src->label, "command line"))
			continue;
		(void)fprintf(stderr, "%s: --%s: ", inv->path, dot ? dot + 1 : g->key);
		cli_puts(stderr, g->text);
		if (g->hint) {
			(void)fputs("; ", stderr);
			cli_puts(stderr, g->hint);
		}
		(void)fputc('\n', stderr);
		n++;
	}
	return n;
}

static int take_deadline(const struct invocation *inv, struct sandbox_options *o)
{
	const char *text = cli_option(inv, "deadline");
	int code = text ? cli_take_time(inv, "--deadline", text, &o->deadline) : EXIT_OK;

	return code == EXIT_OK ? cli_take_on_timeout(inv, &o->on_timeout) : code;
}

static int plan(const struct invocation *inv, bool once, struct spec *ret)
{
	static const char *const resources[] = { "memory", "cpus",    "disk", "scratch",
						 "pids",   "timeout", "ttl",  "idle" };
	_cleanup_default_store_ struct default_store store = { 0 };
	_cleanup_diags_ struct diags d = { 0 };
	struct sandbox_options o = { .agent = cli_option(inv, "agent"),
				     .image = cli_option(inv, "image"),
				     .level = cli_option(inv, "level"),
				     .snapshot = cli_option(inv, "snapshot"),
				     .user = cli_option(inv, "user"),
				     .must_limit = true,
				     .best_effort = cli_option(inv, "best-effort"),
				     .once = once,
				     .remove = cli_option(inv, "rm") };
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = take_deadline(inv, &o);

	if (r != EXIT_OK)
		return r;
	r = cli_store_open(&store, inv, &e);
	static_assert(ARRAY_SIZE(resources) < ARRAY_SIZE(o.resources), "and a NULL");
	for (size_t i = 0; i < ARRAY_SIZE(resources); i++)
		if (cli_option(inv, resources[i])) {
			o.resources[n][0] = resources[i];
			o.resources[n++][1] = cli_option(inv, resources[i]);
		}
	if (r == 0)
		r = sandbox_plan(&store.store, &o, &d, ret, &e);
	if (r < 0 && option_errors(inv, &d) > 0)
		return EXIT_HUTCH;
	if (d.errors > 0)
		cli_diags(stderr, &d);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

int cli_plan(const struct invocation *inv, bool once, struct cli_plan *ret)
{
	const char *dir = cli_option(inv, "workdir");
	int code = check_options(inv);

	if (code == EXIT_OK)
		code = plan(inv, once, &ret->policy);
	if (code != EXIT_OK)
		return code;
	ret->with = ret->policy; /* the borrowed texts still belong to `policy` */
	code = check_env(inv, &ret->policy);
	if (code == EXIT_OK)
		code = take_env(inv, &ret->policy.env, &ret->env, &ret->with.env.n);
	if (code != EXIT_OK)
		return code;
	ret->with.env.v = (const char **)ret->env;
	if (dir && !once) /* a missing directory is made, but not for a single command */
		ret->with.workspace = dir;
	return EXIT_OK;
}

void cli_plan_done(struct cli_plan *p)
{
	free((void *)p->env);
	spec_done(&p->policy);
}

/* Plans and starts. The caller releases *ret_spec, *root and *ret. */
static int start(const struct invocation *inv, bool once, struct state_root *root,
		 struct spec *ret_spec, struct sandbox *ret, int *ret_client)
{
	_cleanup_(cli_plan_done) struct cli_plan p = { 0 };
	struct err e = ERR_INIT;
	int code;

	cgroup_expect();
	code = cli_plan(inv, once, &p);
	if (code != EXIT_OK)
		return code;
	*ret_spec = p.policy;
	p.policy = (struct spec){ 0 };
	if (state_root_open(root, &e) < 0 || sandbox_start(root, &p.with, ret, ret_client, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

static int run_run(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_close_ int client = -EBADF, keeper = -EBADF;
	struct session_spec s = { .argv = inv->args, .cwd = cli_option(inv, "workdir") };
	struct session_result result = { 0 };
	int code = start(inv, true, &root, &spec, &b, &client);

	if (code != EXIT_OK)
		return code;
	(void)FAULT("run-started");
	keeper = keeper_of(&b);
	code = run_command(inv, &root, &spec, &b, 0, client, &s, &result);
	client = fd_close(client);
	(void)FAULT("run-done");
	wait_for_end(keeper);
	(void)FAULT("run-ended");
	/* A sandbox that ended before its command is left for hutch to report why. */
	if (spec.remove && state_phase(b.dir) == STATE_ENDED &&
	    faccessat(b.dir, STATE_UNSEALED, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		(void)state_remove(&root, b.id);
	return finish(&result, code);
}

/* The caller did not get the ID and could not end the sandbox. */
static int end_unannounced(const struct invocation *inv, const struct state_root *root,
			   const struct sandbox *b)
{
	struct err owed = ERR_INIT, e = ERR_INIT;

	if (sandbox_kill(root, b, "hutch create: its ID could not be written", &owed, &e) < 0)
		return cli_fail(inv, &e);
	(void)fprintf(stderr, "%s: sandbox %s was ended again: its ID could not be written\n",
		      inv->path, b->id);
	return EXIT_HUTCH;
}

static int run_create(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	int code = start(inv, false, &root, &spec, &b, NULL);

	if (code != EXIT_OK)
		return code;
	(void)signal(SIGPIPE, SIG_IGN);
	if (cli_option(inv, "json"))
		code = cli_print_json(JSON_OBJECT({ "id", json_string(b.id) }), EXIT_OK);
	else
		(void)puts(b.id);
	if (code != EXIT_OK || fflush(stdout) != 0 || ferror(stdout))
		return end_unannounced(inv, &root, &b);
	return EXIT_OK;
}

int cli_exec(struct invocation *inv, const struct state_root *root, const struct spec *spec,
	     const struct sandbox *b, struct session_spec *s, struct session_result *result)
{
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;
	int code = check_options(inv);

	if (code != EXIT_OK)
		return code;
	if (sandbox_connect(b, &fd, &e) < 0)
		return cli_fail(inv, &e);
	return run_command(inv, root, spec, b, s->detach ? UINT64_MAX : oom_kills(root, b), fd, s,
			   result);
}

static int print_handle(const struct invocation *inv, const struct sandbox *b, uint64_t number)
{
	char handle[64];

	(void)snprintf(handle, sizeof(handle), "%s/%llu", b->id, (unsigned long long)number);
	if (cli_option(inv, "json"))
		return cli_print_json(JSON_OBJECT({ "handle", json_string(handle) },
						  { "number", json_number(number) }),
				      EXIT_OK);
	(void)puts(handle);
	return EXIT_OK;
}

static int check_exec(struct invocation *inv)
{
	const char *name = cli_option(inv, "name");

	if (name && !record_name_valid(name, strlen(name)))
		return cli_usage(
			inv,
			"--name '%s': expected up to %d letters, digits, '.', '_' and '-', "
			"which are not a number",
			name, RECORD_NAME_MAX);
	if (cli_option(inv, "json") && !cli_option(inv, "detach"))
		return cli_usage(inv, "--json: only with --detach");
	return EXIT_OK;
}

static int run_exec(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	struct session_spec s = { .argv = inv->args + 1,
				  .user = cli_option(inv, "user"),
				  .cwd = cli_option(inv, "workdir"),
				  .name = cli_option(inv, "name"),
				  .detach = cli_option(inv, "detach") };
	struct session_result result = { 0 };
	struct err e = ERR_INIT;
	int code = check_exec(inv);

	if (code == EXIT_OK)
		code = take_timeout(inv, &s.timeout);
	if (code != EXIT_OK)
		return code;
	if (state_root_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    spec_read(b.dir, &spec, &e) < 0)
		return cli_fail(inv, &e);
	code = cli_exec(inv, &root, &spec, &b, &s, &result);
	if (result.how == SESSION_DETACHED && code == EXIT_OK)
		return print_handle(inv, &b, result.record);
	return finish(&result, code);
}

/* clang-format off */
#define OPT_QUIET                                                                       \
	{ "quiet", 'q', NULL, "when it fails, do not report denied connections" }
#define OPTS_SESSION                                                                    \
	{ "interactive", 'i', NULL, "pass standard input on" },                         \
	{ "tty", 't', NULL, "give the command a terminal" },                            \
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },               \
	{ "user", 'u', "USER", "run as this user: a name, UID or UID:GID" },            \
	{ "workdir", 'w', "DIR", "start in this directory" }
#define OPT_SNAPSHOT { "snapshot", 0, "NAME", "start from this snapshot of a microVM" }

const struct command cmd_run = {
	.name = "run", .args = "[--] COMMAND [ARG...]", .min_args = 1, .max_args = ARGS_MAX, .passes_on = true,
	.summary = "run a command in a new sandbox",
	.help = "The sandbox ends with the command. Without --rm, 'hutch ps -a', 'hutch inspect' and 'hutch receipt' show it\n"
		"for seven days, or until 'hutch rm'. Exits with the command's status; 128+N if signal N ended it, 124 at the\n"
		"time limit, 125 if hutch failed, 126 if the command cannot be executed, 127 if it is not found.",
	.options = OPTIONS(
		OPT_QUIET,
		{ "rm", 0, NULL, "keep nothing of the sandbox after its end" },
		OPTS_SESSION, OPTS_SANDBOX, OPT_SNAPSHOT),
	.run = run_run,
};

const struct command cmd_create = {
	.name = "create", .args = "",
	.summary = "create a sandbox and print its id",
	.help = "The sandbox runs until 'hutch kill', or until its ttl, deadline or idle time ends.",
	.options = OPTIONS(
		OPT_JSON,
		{ "rm", 0, NULL, "keep nothing of the sandbox after its end" },
		OPTS_COMMANDS, OPTS_SANDBOX, OPT_SNAPSHOT,
		{ "idle", 0, "TIME", "maximum time without a running command" },
		{ "deadline", 0, "TIME", "deadline of the sandbox, within its ttl; hutch ttl changes it" },
		{ "on-timeout", 0, "WHAT", "action at the deadline: end, or pause" }),
	.run = run_create,
};

const struct command cmd_exec = {
	.name = "exec", .args = "ID [--] COMMAND [ARG...]", .min_args = 2, .max_args = ARGS_MAX, .passes_on = true, .own_args = 1,
	.summary = "run a command in an existing sandbox",
	.help = "ID is an id or a prefix of one. Exits like 'hutch run'. The command is recorded, and continues if hutch is\n"
		"killed or its terminal closes; SIGINT and SIGTERM are passed on to it. --detach prints its handle,\n"
		"ID/NUMBER; with a name, ID/NAME works too.",
	.options = OPTIONS(
		OPT_JSON, OPT_QUIET, OPTS_SESSION,
		{ "detach", 'd', NULL, "do not wait for it; print its handle" },
		{ "name", 'n', "NAME", "name of the command, for handles" },
		{ "timeout", 0, "TIME", "time limit, such as 30s; not above that of the sandbox" }),
	.run = run_exec,
};
/* clang-format on */
