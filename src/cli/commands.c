/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#define OPT_JSON                                           \
	{                                                  \
		"json", 0, NULL, "print JSON for programs" \
	}
#define OPT_INCLUDE                                                                  \
	{                                                                            \
		"include", 'I', "DIR",                                               \
			"look for agents/ and presets/ in DIR too (can be repeated)" \
	}

static const struct option opts_json[] = { OPT_JSON, { 0 } };
static const struct option opts_config[] = { OPT_JSON, OPT_INCLUDE, { 0 } };
static const struct option opts_compile[] = {
	OPT_JSON,
	OPT_INCLUDE,
	{ "digest", 'd', NULL, "print only the SHA-256 of the policy" },
	{ 0 },
};

static const struct option opts_image_build[] = {
	OPT_JSON,
	OPT_INCLUDE,
	{ "force", 'f', NULL, "build also when nothing has changed" },
	{ "mirror", 'm', "URL", "fetch packages from here" },
	{ 0 },
};

/* clang-format off */
#define OPTS_SESSION                                                                    \
	{ "interactive", 'i', NULL, "pass standard input on" },                         \
	{ "tty", 't', NULL, "give the command a terminal" },                            \
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },               \
	{ "user", 'u', "USER", "run as this user: a name, UID or UID:GID" },            \
	{ "workdir", 'w', "DIR", "start in this directory" }
#define OPTS_SANDBOX                                                                    \
	OPT_INCLUDE,                                                                    \
	{ "agent", 'a', "AGENT", "the policy to hold it to" },                          \
	{ "image", 0, "IMAGE", "the root tree to start from" },                         \
	{ "memory", 'm', "SIZE", "memory, such as 256MiB" },                            \
	{ "cpus", 0, "N", "processors, such as 0.5" },                                  \
	{ "disk", 0, "SIZE", "what it may write" },                                     \
	{ "pids", 0, "N", "processes and threads" },                                    \
	{ "timeout", 0, "TIME", "of a command, such as 30s" },                          \
	{ "ttl", 0, "TIME", "of the sandbox" }

static const struct option opts_run[] = {
	{ "rm", 0, NULL, "keep nothing of the sandbox when it has ended" },
	OPTS_SESSION,
	OPTS_SANDBOX,
	{ 0 },
};
static const struct option opts_create[] = {
	OPT_JSON,
	{ "rm", 0, NULL, "keep nothing of the sandbox when it has ended" },
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },
	{ "user", 'u', "USER", "run commands as this user: a name, UID or UID:GID" },
	{ "workdir", 'w', "DIR", "start commands in this directory" },
	OPTS_SANDBOX,
	{ "idle", 0, "TIME", "of the sandbox, when nothing runs in it" },
	{ 0 },
};
static const struct option opts_exec[] = {
	OPTS_SESSION,
	{ "timeout", 0, "TIME", "of the command, such as 30s; not over that of the sandbox" },
	{ 0 },
};
static const struct option opts_ps[] = {
	OPT_JSON,
	{ "all", 'a', NULL, "show also what has ended" },
	{ 0 },
};
static const struct option opts_rm[] = {
	{ "force", 'f', NULL, "kill what is running" },
	{ 0 },
};
/* clang-format on */

static const char agent_help[] = "AGENT is a name (see 'hutch agents') or a file: anything with a "
				 "'/' in it or ending in .yaml.";

/* clang-format off */
static const struct command config_commands[] = {
	{ .name = "validate", .args = "FILE...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "check agent and preset files, and show every error at once",
	  .help = "Each message has the file, line and column, the key, what was expected and what was probably meant.\n"
		  "Exits 0 if every file is right (there may be warnings), 1 if one is not.",
	  .options = opts_config, .run = cmd_config_validate },
	{ .name = "compile", .args = "AGENT", .min_args = 1, .max_args = 1,
	  .summary = "print the canonical policy of an agent",
	  .help = "The text on stdout is the policy: sorted JSON, the same bytes on every machine. Its SHA-256, which\n"
		  "names it in records, goes to stderr; 'hutch config compile AGENT | sha256sum' gives the same.",
	  .options = opts_compile, .run = cmd_config_compile },
	{ .name = "explain", .args = "AGENT NAME:PORT", .min_args = 2, .max_args = 2,
	  .summary = "say whether an agent may connect, and why",
	  .help = "Shows the rule that decides, the file and line it stands in, and which preset brought it. For what is\n"
		  "denied, shows which preset would allow it. Exits 0 if allowed, 1 if denied.",
	  .options = opts_config, .run = cmd_config_explain },
	{ .name = "docs", .args = "",
	  .summary = "print the reference of every key and preset",
	  .help = "As Markdown, made from the tables that the compiler itself uses.",
	  .options = opts_config, .run = cmd_config_docs },
	{ 0 }
};

static const struct command image_commands[] = {
	{ .name = "build", .args = "IMAGE", .min_args = 1, .max_args = 1,
	  .summary = "build the image of a file images/NAME.yaml or of an agent",
	  .help = "IMAGE is the name of an image file or of an agent, or a path to a file of either kind. An agent's\n"
		  "image is 'base' with the packages, scripts and environment of its policy. Needs mmdebstrap. What has not\n"
		  "changed since it was built is not built again.",
	  .options = opts_image_build, .run = cmd_image_build },
	{ .name = "import", .args = "NAME FILE", .min_args = 2, .max_args = 2,
	  .summary = "import a root tarball or an OCI image layout",
	  .help = "FILE is a tar archive, plain or compressed (gzip, zstd, xz), or the directory of an OCI image layout,\n"
		  "DIRECTORY:TAG if it has several images. Device nodes, FIFOs and extended attributes are left out, set-ID\n"
		  "bits cleared. Names that lead out, and /dev, /proc, /sys or /run that are no directories, are refused.",
	  .options = opts_json, .run = cmd_image_import },
	{ .name = "ls", .args = "",
	  .summary = "list the images", .options = opts_json, .run = cmd_image_ls },
	{ .name = "inspect", .args = "NAME", .min_args = 1, .max_args = 1,
	  .summary = "show what is known of an image", .options = opts_json, .run = cmd_image_inspect },
	{ .name = "rm", .args = "NAME", .min_args = 1, .max_args = 1,
	  .summary = "remove an image, and its tree if nothing else uses it", .run = cmd_image_rm },
	{ 0 }
};

static const struct command top_commands[] = {
	{ .name = "run", .args = "[--] COMMAND [ARG...]", .min_args = 1, .max_args = ARGS_MAX, .passes_on = true,
	  .summary = "run a command in a sandbox of its own",
	  .help = "The sandbox ends with the command. Without --rm, 'hutch ps -a', 'hutch inspect' and 'hutch receipt' know it\n"
		  "for a day, or until 'hutch rm'. Exits with the command's own status; 128+N if signal N ended it, 124 at the\n"
		  "time limit, 125 if hutch failed, 126 if the command cannot be executed, 127 if it is not found.",
	  .options = opts_run, .run = cmd_run },
	{ .name = "create", .args = "",
	  .summary = "make a sandbox that stays, and print its id",
	  .help = "It stays until 'hutch kill', the end of its ttl, or of its idle time.",
	  .options = opts_create, .run = cmd_create },
	{ .name = "exec", .args = "ID [--] COMMAND [ARG...]", .min_args = 2, .max_args = ARGS_MAX, .passes_on = true, .own_args = 1,
	  .summary = "run a command in a sandbox that is there",
	  .help = "ID is an id or the beginning of one. Exits like 'hutch run'.",
	  .options = opts_exec, .run = cmd_exec },
	{ .name = "ps", .args = "",
	  .summary = "list the sandboxes", .options = opts_ps, .run = cmd_ps },
	{ .name = "inspect", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "show a sandbox: its limits, what it uses, how it ended",
	  .options = opts_json, .run = cmd_inspect },
	{ .name = "receipt", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "show what is enforced around a sandbox, as seen from outside",
	  .options = opts_json, .run = cmd_receipt },
	{ .name = "kill", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "end sandboxes", .run = cmd_kill },
	{ .name = "rm", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "forget sandboxes that have ended", .options = opts_rm, .run = cmd_rm },
	{ .name = "config", .args = "", .sub = config_commands,
	  .summary = "check, compile and explain agent files", .help = agent_help },
	{ .name = "agents", .args = "[NAME]", .max_args = 1,
	  .summary = "list the agents, or print the file of one",
	  .options = opts_config, .run = cmd_agents },
	{ .name = "presets", .args = "[NAME]", .max_args = 1,
	  .summary = "list the presets, or print the file of one",
	  .options = opts_config, .run = cmd_presets },
	{ .name = "image", .args = "", .sub = image_commands,
	  .summary = "build, import and list the root trees of sandboxes" },
	{ .name = "doctor", .args = "",
	  .summary = "show what this host can enforce, and what to do about the rest",
	  .help = "Tries things out rather than believing version numbers; changes nothing. Exits 0 if sandboxes can be\n"
		  "had at level 'container', 1 if not.",
	  .options = opts_json, .run = cmd_doctor },
	{ .name = "completion", .args = "bash", .min_args = 1, .max_args = 1,
	  .summary = "print a completion script for a shell",
	  .help = "To use it now: source <(hutch completion bash)",
	  .run = cmd_completion },
	{ .name = "help", .args = "[COMMAND...]", .max_args = COMMAND_DEPTH_MAX,
	  .summary = "show help for a command", .run = cmd_help },
	{ .name = "version", .args = "",
	  .summary = "print the version", .options = opts_json, .run = cmd_version },
	{ 0 }
};

const struct command root_command = {
	.name = "hutch", .args = "", .sub = top_commands,
	.summary = "run the code of AI agents in disposable sandboxes",
};
/* clang-format on */
