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
static const struct option opts_doctor[] = {
	OPT_JSON,
	{ "probe", 0, NULL, "boot a virtual machine, to see whether KVM works" },
	{ 0 },
};
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

static const struct option opts_image_kernel[] = {
	OPT_JSON,
	{ "small", 0, NULL,
	  "build a small one from source, with nothing that a guest does not need" },
	{ "from", 0, "DIR", "take the package from here, rather than from the network" },
	{ 0 },
};

/* clang-format off */
#define OPT_QUIET                                                                       \
	{ "quiet", 'q', NULL, "when it fails, do not report denied connections" }
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
	{ "level", 0, "LEVEL", "isolate it at least so: container, microvm" },           \
	{ "memory", 'm', "SIZE", "memory, such as 256MiB" },                            \
	{ "cpus", 0, "N", "processors, such as 0.5" },                                  \
	{ "disk", 0, "SIZE", "what it may write" },                                     \
	{ "scratch", 0, "KIND", "where that is kept: disk, memory" },                   \
	{ "pids", 0, "N", "processes and threads" },                                    \
	{ "best-effort", 0, NULL, "start even if this host cannot enforce these limits" }, \
	{ "timeout", 0, "TIME", "of a command, such as 30s" },                          \
	{ "ttl", 0, "TIME", "of the sandbox" }

#define OPT_SNAPSHOT { "snapshot", 0, "NAME", "begin as this snapshot of a microVM" }

static const struct option opts_run[] = {
	OPT_QUIET,
	{ "rm", 0, NULL, "keep nothing of the sandbox when it has ended" },
	OPTS_SESSION,
	OPTS_SANDBOX,
	OPT_SNAPSHOT,
	{ 0 },
};
static const struct option opts_gc[] = {
	OPT_JSON,
	{ "ended", 0, NULL, "also all that is kept of sandboxes that have ended" },
	{ 0 },
};
static const struct option opts_create[] = {
	OPT_JSON,
	{ "rm", 0, NULL, "keep nothing of the sandbox when it has ended" },
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },
	{ "user", 'u', "USER", "run commands as this user: a name, UID or UID:GID" },
	{ "workdir", 'w', "DIR", "start commands in this directory" },
	OPTS_SANDBOX,
	OPT_SNAPSHOT,
	{ "idle", 0, "TIME", "of the sandbox, when nothing runs in it" },
	{ "deadline", 0, "TIME", "of the sandbox, within its ttl; can be changed: hutch ttl" },
	{ "on-timeout", 0, "WHAT", "what the deadline does: end, or pause" },
	{ 0 },
};
static const struct option opts_pool_fill[] = {
	{ "count", 'n', "N", "how many spares there are to be; without it, one" },
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },
	{ "user", 'u', "USER", "run commands as this user: a name, UID or UID:GID" },
	{ "workdir", 'w', "DIR", "start commands in this directory" },
	OPTS_SANDBOX,
	{ "idle", 0, "TIME", "of the sandbox, when nothing runs in it" },
	{ 0 },
};
static const struct option opts_exec[] = {
	OPT_JSON,
	OPT_QUIET,
	OPTS_SESSION,
	{ "detach", 'd', NULL, "do not wait for it; print its handle" },
	{ "name", 'n', "NAME", "of the command, for handles" },
	{ "timeout", 0, "TIME", "of the command, such as 30s; not over that of the sandbox" },
	{ 0 },
};
static const struct option opts_cp[] = {
	OPT_JSON,
	{ "user", 'u', "USER", "read or write in the sandbox as this user" },
	{ "max-entries", 0, "N", "files and directories to take out of a sandbox at most: 1000000" },
	{ "max-size", 0, "SIZE", "bytes to take out of a sandbox at most: 64GiB" },
	{ 0 },
};
static const struct option opts_commit[] = {
	OPT_JSON,
	{ "env", 'e', "NAME=VALUE", "set a variable of the image (can be repeated)" },
	{ "user", 'u', "USER", "who commands run as" },
	{ "workdir", 'w', "DIR", "the working directory that the image names" },
	{ "start", 0, "COMMAND", "what is to run in a sandbox of the image, for /bin/sh -c" },
	{ "ready", 0, "COMMAND", "what ends well when that is ready, for /bin/sh -c" },
	{ "max-size", 0, "SIZE", "bytes to take out of the sandbox at most" },
	{ 0 },
};
static const struct option opts_watch[] = {
	OPT_JSON,
	{ "recursive", 'r', NULL, "watch the directories below it too" },
	{ "user", 'u', "USER", "watch as this user" },
	{ 0 },
};
static const struct option opts_ps[] = {
	OPT_JSON,
	{ "all", 'a', NULL, "show also what has ended" },
	{ "exec", 'e', NULL, "list commands, of sandbox ID or of all" },
	{ 0 },
};
#define OPT_FROM                                                                        \
	{ "from", 0, "OFFSET", "begin at this byte of the output" }
static const struct option opts_attach[] = {
	{ "interactive", 'i', NULL, "pass standard input on" },
	OPT_FROM,
	{ 0 },
};
static const struct option opts_logs[] = {
	OPT_JSON,
	{ "follow", 'f', NULL, "go on until the command ends" },
	OPT_FROM,
	{ "since", 0, "TIME", "only what came later; an RFC 3339 time, or a time ago such as 5m" },
	{ "stdout", 0, NULL, "only standard output" },
	{ "stderr", 0, NULL, "only standard error" },
	{ 0 },
};
static const struct option opts_shell[] = {
	{ "name", 'n', "NAME", "of the shell; without it, 'shell'" },
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },
	{ "user", 'u', "USER", "run as this user: a name, UID or UID:GID" },
	{ "workdir", 'w', "DIR", "start in this directory" },
	{ 0 },
};
static const struct option opts_key_create[] = {
	OPT_JSON,
	{ "name", 'n', "NAME", "what it is called, and whose its sandboxes are" },
	{ "role", 'r', "ROLE", "admin, user or metrics; without it, user" },
	{ "expires", 0, "TIME", "an RFC 3339 time, or a time from now such as 30d" },
	{ "agent", 'a', "A,B", "whose policies it may use, the first by default" },
	{ "level", 0, "LEVEL", "isolate at least so: container or microvm" },
	{ "sandboxes", 0, "N", "how many sandboxes it may have at once; without it, no limit" },
	{ "cpus", 0, "N", "processors of all its sandboxes together" },
	{ "memory", 0, "SIZE", "memory of all of them together" },
	{ "disk", 0, "SIZE", "disk of all of them together" },
	{ "builds", 0, "N", "how many templates it may build at once" },
	{ 0 },
};
static const struct option opts_key_set[] = {
	OPT_JSON,
	{ "agent", 'a', "A,B", "whose policies it may use, the first by default; '' for hutchd's default agent" },
	{ "level", 0, "LEVEL", "isolate at least so: container or microvm; '' for no minimum" },
	{ "sandboxes", 0, "N", "how many sandboxes it may have at once; 0 for no limit" },
	{ "cpus", 0, "N", "processors of all its sandboxes together" },
	{ "memory", 0, "SIZE", "memory of all of them together" },
	{ "disk", 0, "SIZE", "disk of all of them together" },
	{ "builds", 0, "N", "how many templates it may build at once" },
	{ 0 },
};
static const struct option opts_audit_show[] = {
	OPT_JSON,
	{ "sandbox", 's', "ID", "only of this sandbox, by the beginning of its id" },
	{ "since", 0, "TIME", "only from then on: 30m, 2h, 7d, 2026-11-15T08:00:00Z" },
	{ "follow", 'f', NULL, "go on with what is recorded from now on" },
	{ "verbose", 'v', NULL, "digests, arguments and times in full, and signatures" },
	{ 0 },
};
static const struct option opts_audit_verify[] = {
	OPT_JSON,
	{ "from", 0, "FILE", "a checkpoint that was kept elsewhere: it must be in the log" },
	{ "key", 0, "KEY", "the public key, rather than the log's own word" },
	{ 0 },
};
static const struct option opts_egress_log[] = {
	OPT_JSON,
	{ "follow", 'f', NULL, "go on with what comes" },
	{ "since", 0, "TIME", "only what came later; an RFC 3339 time, or a time ago such as 5m" },
	{ 0 },
};
static const struct option opts_resume[] = {
	{ "deadline", 0, "TIME", "a new one, such as 10m, from now" },
	{ 0 },
};
static const struct option opts_ttl[] = {
	{ "on-timeout", 0, "WHAT", "what the deadline does: end, or pause" },
	{ 0 },
};
static const struct option opts_mcp[] = {
	{ "agent", 'a', "AGENT", "the policy of its sandboxes" },
	{ "image", 'i', "IMAGE", "what they start from, unless the client names a template" },
	{ "deadline", 0, "TIME", "of a sandbox, after its last use; without it, 1h" },
	{ 0 },
};
static const struct option opts_fork[] = {
	{ "count", 'n', "N", "how many; without it, one" },
	{ 0 },
};
static const struct option opts_debug[] = {
	OPT_JSON,
	{ "now", 0, NULL, "print what runs now, and end" },
	{ "kind", 'k', "KIND", "only frame, note, state, verdict, syscall, time, log or lost" },
	{ "request", 'r', "REQUEST", "only of this request" },
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
	  .summary = "import a root tarball, a saved image or an OCI image layout",
	  .help = "FILE is a tar archive, plain or compressed (gzip, zstd, xz): a root tree, or an image that 'docker save' or\n"
		  "'skopeo copy' wrote (docker-archive, oci-archive); or the directory of an OCI image layout.\n"
		  "FILE:TAG or FILE:NAME:TAG chooses one of several images. Device nodes, FIFOs and extended attributes are\n"
		  "left out, set-ID bits cleared. Names that lead out, and /dev, /proc, /sys or /run that are no directories,\n"
		  "are refused.",
	  .options = opts_json, .run = cmd_image_import },
	{ .name = "ls", .args = "",
	  .summary = "list the images", .options = opts_json, .run = cmd_image_ls },
	{ .name = "inspect", .args = "NAME", .min_args = 1, .max_args = 1,
	  .summary = "show what is known of an image", .options = opts_json, .run = cmd_image_inspect },
	{ .name = "rm", .args = "NAME", .min_args = 1, .max_args = 1,
	  .summary = "remove an image, and its tree if nothing else uses it", .run = cmd_image_rm },
	{ .name = "kernel", .args = "",
	  .summary = "make the kernel of virtual machines from Debian's packages",
	  .help = "Debian's kernel for clouds, unpacked; with --small one that is built from Debian's source, which takes minutes\n"
		  "and needs a compiler. The small one is used if it is there. What has not changed is not made again. Packages\n"
		  "come by apt-get, which checks them; those of --from are taken as they are.",
	  .options = opts_image_kernel, .run = cmd_image_kernel },
	{ 0 }
};

static const struct command pool_commands[] = {
	{ .name = "fill", .args = "",
	  .summary = "have spares of a kind of sandbox, from now on",
	  .help = "A 'hutch run', 'hutch create' or request to hutchd with the same options, policy and image gets one that is\n"
		  "ready, and another takes its place. What a spare cannot know does not matter: deadline, --rm, metadata.\n"
		  "Returns when they are there.",
	  .options = opts_pool_fill, .run = cmd_pool_fill },
	{ .name = "ls", .args = "",
	  .summary = "list the kinds of spares, and how many there are",
	  .options = opts_json, .run = cmd_pool_ls },
	{ .name = "drain", .args = "[KEY...]", .max_args = ARGS_MAX,
	  .summary = "end the spares of these kinds, or of all",
	  .run = cmd_pool_drain },
	{ 0 },
};
static const struct command snapshot_commands[] = {
	{ .name = "create", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "save a microVM that runs: its memory and its disk",
	  .help = "The sandbox stands still meanwhile and then goes on. Prints the snapshot's name: 'hutch create --snapshot\n"
		  "NAME' begins a sandbox as it, also after a restart of the host. What such a sandbox may do is decided by\n"
		  "the policy of that time.",
	  .run = cmd_snapshot_create },
	{ .name = "ls", .args = "",
	  .summary = "list templates and snapshots of microVMs",
	  .help = "A template is a machine that has booted and is nobody's yet: sandboxes of level microvm begin as clones of\n"
		  "one. It is made when it is first needed. Shown are id, kind, what it takes of the disk, age and image.",
	  .options = opts_json, .run = cmd_snapshot_ls },
	{ .name = "rm", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "remove templates and snapshots",
	  .help = "ID is an id or the beginning of one. What a sandbox was started from stays as long as that lives.",
	  .run = cmd_snapshot_rm },
	{ 0 }
};

static const struct command template_commands[] = {
	{ .name = "ls", .args = "",
	  .summary = "list what clients of hutchd have built: id, OWNER/NAME, age, whether it is shared, tags",
	  .options = opts_json, .run = cmd_template_ls },
	{ .name = "share", .args = "OWNER/NAME...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "let all keys use a template, by its name",
	  .help = "It counts for those who have no template and find no image of that name. To change it stays its owner's.",
	  .run = cmd_template_share },
	{ .name = "unshare", .args = "NAME...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "take that back",
	  .help = "Sandboxes that were made of it go on.",
	  .run = cmd_template_unshare },
	{ .name = "rm", .args = "OWNER/NAME...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "remove templates",
	  .help = "The images of its builds go a day later, with a start of hutchd. Sandboxes that were made of it go on.",
	  .run = cmd_template_rm },
	{ 0 }
};

static const struct command audit_commands[] = {
	{ .name = "show", .args = "",
	  .summary = "print what was recorded, in the order of time",
	  .help = "One line a record: time, sandbox, kind, and what it says. Commands are shown as one would type them, digests\n"
		  "by their first 12 digits. With --json an object on each line, with everything there is.",
	  .options = opts_audit_show, .run = cmd_audit_show },
	{ .name = "verify", .args = "[EXPORT]", .max_args = 1,
	  .summary = "check every record, chain and signature",
	  .help = "Of this host's log, or of what 'hutch audit export' wrote. Exits 0 if all is good; 1 if not, and says the\n"
		  "first record that is wrong: file, sequence number, byte offset and why. That the end of the log was cut off\n"
		  "can only be seen against a checkpoint that was kept elsewhere: --from.",
	  .options = opts_audit_verify, .run = cmd_audit_verify },
	{ .name = "export", .args = "",
	  .summary = "write the whole log as one stream on standard output",
	  .run = cmd_audit_export },
	{ .name = "checkpoint", .args = "",
	  .summary = "sign what has been recorded so far, and print the signature",
	  .help = "Keep what it prints on another machine: 'hutch audit verify --from' then finds whatever happens to the log\n"
		  "up to here.",
	  .run = cmd_audit_checkpoint },
	{ .name = "key", .args = "",
	  .summary = "print the public key of this host's log, and its fingerprint",
	  .options = opts_json, .run = cmd_audit_key },
	{ 0 }
};

static const struct command key_commands[] = {
	{ .name = "create", .args = "",
	  .summary = "make an API key, and print it this once",
	  .help = "The key is on standard output, what is known of it on standard error. Only its hash is kept. A key of role\n"
		  "'user' is for the E2B SDKs and sees the sandboxes of its own name, 'metrics' is for GET /metrics, 'admin' is\n"
		  "for everything.",
	  .options = opts_key_create, .run = cmd_key_create },
	{ .name = "ls", .args = "",
	  .summary = "list the API keys", .options = opts_json, .run = cmd_key_ls },
	{ .name = "set", .args = "NAME|PREFIX", .min_args = 1, .max_args = 1,
	  .summary = "change what an API key may have",
	  .help = "Options that are not given leave that as it is.\n"
		  "It counts within a second, for sandboxes that are made from then on.",
	  .options = opts_key_set, .run = cmd_key_set },
	{ .name = "revoke", .args = "NAME|PREFIX", .min_args = 1, .max_args = 1,
	  .summary = "take an API key back",
	  .help = "By its name or its first 8 digits. It stops working within a second.",
	  .run = cmd_key_revoke },
	{ 0 }
};

static const struct command egress_commands[] = {
	{ .name = "log", .args = "[ID]", .max_args = 1,
	  .summary = "print what sandboxes connected to, and what was denied",
	  .help = "One line a stream: time, sandbox, name, address, port, bytes out and in, verdict, and the rule or the reason.\n"
		  "With -f the beginning and the end of a stream are a line each. Also of sandboxes that have ended.",
	  .options = opts_egress_log, .run = cmd_egress_log },
	{ .name = "explain", .args = "ID NAME:PORT", .min_args = 2, .max_args = 2,
	  .summary = "say whether a sandbox may connect, and why",
	  .help = "By its policy, added rules, what an API client narrowed, and the addresses that a name had. Exits 0 if\n"
		  "allowed, 1 if denied.",
	  .options = opts_config, .run = cmd_egress_explain },
	{ .name = "allow", .args = "ID RULE", .min_args = 2, .max_args = 2,
	  .summary = "let a sandbox that runs connect to more",
	  .help = "RULE is written as in egress.domains of an agent file; without a port it means 443. It takes back the same\n"
		  "rule of 'hutch egress deny'. What the policy denies stays denied: that exits 1, and says so. A sandbox whose\n"
		  "policy allows nothing has no way out that could be opened.",
	  .run = cmd_egress_allow },
	{ .name = "deny", .args = "ID RULE", .min_args = 2, .max_args = 2,
	  .summary = "let a sandbox that runs connect to less, and end what it has there",
	  .help = "Without a port the rule means all ports. It takes back the same rule of 'hutch egress allow'.",
	  .run = cmd_egress_deny },
	{ .name = "suggest", .args = "[ID]", .max_args = 1,
	  .summary = "print rules that would allow what a sandbox was denied",
	  .help = "As lines for an agent file, with the presets that hold them. Without ID, of the one that was denied something\n"
		  "last. They are what the code inside asked for, be it good or bad: read them.",
	  .run = cmd_egress_suggest },
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
	  .help = "ID is an id or the beginning of one. Exits like 'hutch run'. The command is recorded, and goes on if hutch\n"
		  "is killed or its terminal goes; SIGINT and SIGTERM are passed on to it. With --detach its handle is printed,\n"
		  "ID/NUMBER; with a name, ID/NAME is another one.",
	  .options = opts_exec, .run = cmd_exec },
	{ .name = "shell", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "enter a shell of a sandbox, which can be left and entered again",
	  .help = "Ctrl-P Ctrl-Q leaves it, and so does the end of the terminal. It goes on until it exits.",
	  .options = opts_shell, .run = cmd_shell },
	{ .name = "attach", .args = "HANDLE", .min_args = 1, .max_args = 1,
	  .summary = "follow the output of a command to its end, and exit as it does",
	  .help = "HANDLE is ID/NUMBER or ID/NAME. A command with a terminal gets this one; Ctrl-P Ctrl-Q leaves it. Whoever\n"
		  "reads, or does not, never holds up the command.",
	  .options = opts_attach, .run = cmd_attach },
	{ .name = "logs", .args = "HANDLE", .min_args = 1, .max_args = 1,
	  .summary = "print what a command has printed",
	  .help = "Until 'hutch rm' also of a sandbox that has ended. Where output was dropped, a line on standard error says\n"
		  "how much.",
	  .options = opts_logs, .run = cmd_logs },
	{ .name = "wait", .args = "HANDLE", .min_args = 1, .max_args = 1,
	  .summary = "wait for the end of a command, and exit as it does",
	  .options = opts_json, .run = cmd_wait },
	{ .name = "signal", .args = "HANDLE SIGNAL", .min_args = 2, .max_args = 2,
	  .summary = "send a signal to a command", .run = cmd_signal },
	{ .name = "cp", .args = "SRC DST", .min_args = 2, .max_args = 2,
	  .summary = "copy files and directories into a sandbox, or out of it",
	  .help = "One of SRC and DST is ID:PATH with an absolute path. Like 'cp -r': into DST if that is a directory, else to\n"
		  "that name. SRC/. means what is in the directory. '-' is a tar archive on standard input or output. Sockets,\n"
		  "FIFOs, devices and set-ID bits are left out. Exits 1 if something was left out or refused.",
	  .options = opts_cp, .run = cmd_cp },
	{ .name = "commit", .args = "ID NAME", .min_args = 2, .max_args = 2,
	  .summary = "make an image of what a sandbox's files are now",
	  .help = "Owners, modes and links are kept. Left out are what is in /dev, /proc, /sys and /tmp, files in /run, and\n"
		  "set-ID bits. Variables, user, working directory and commands are those of the image that the sandbox\n"
		  "came from, unless options say otherwise. NAME may have a tag: NAME:TAG. The sandbox goes on.",
	  .options = opts_commit, .run = cmd_commit },
	{ .name = "watch", .args = "ID:PATH", .min_args = 1, .max_args = 1,
	  .summary = "print what happens to files in a directory of a sandbox",
	  .help = "A line for each event: created, written, removed, renamed, attributes, or lost where there were too many.\n"
		  "Ends when the directory is gone.",
	  .options = opts_watch, .run = cmd_watch },
	{ .name = "ps", .args = "[ID]", .max_args = 1,
	  .summary = "list the sandboxes, or (-e) their commands", .options = opts_ps, .run = cmd_ps },
	{ .name = "inspect", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "show a sandbox: its limits, what it uses, how it ended",
	  .options = opts_json, .run = cmd_inspect },
	{ .name = "debug", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "follow what a sandbox does, step by step",
	  .help = "Prints a line for each frame, note, state change, verdict and timing of the keeper, the warden and the\n"
		  "guest, until it is interrupted or the sandbox ends. A line has time, process, sandbox, request, kind and\n"
		  "text. See docs/DEBUGGING.md.",
	  .options = opts_debug, .run = cmd_debug },
	{ .name = "receipt", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "show what is enforced around a sandbox, as seen from outside",
	  .options = opts_json, .run = cmd_receipt },
	{ .name = "pause", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "stop sandboxes where they are",
	  .help = "Every process of it stops and keeps its memory; nothing is written to disk, and nothing inside notices. It\n"
		  "has no deadline while it is paused, and the time limits of its commands stand still. Needs a freezer: see\n"
		  "'hutch receipt'.",
	  .run = cmd_pause },
	{ .name = "suspend", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "save microVMs to disk and end them, until they are resumed",
	  .help = "Memory and disk are kept, also over a restart of the host, and take nothing but space. Processes go on where\n"
		  "they were after 'hutch resume'; commands that ran go on in records of their own.",
	  .run = cmd_suspend },
	{ .name = "resume", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "let paused and suspended sandboxes go on",
	  .help = "With what was left of the deadline, or with a new one. One that its deadline has paused has none any more.",
	  .options = opts_resume, .run = cmd_resume },
	{ .name = "ttl", .args = "ID TIME", .min_args = 2, .max_args = 2,
	  .summary = "set the deadline of a sandbox: TIME from now",
	  .help = "Earlier or later than the one it has, but not behind the end of the ttl of its policy, for which pauses do\n"
		  "not count. Prints when it is.",
	  .options = opts_ttl, .run = cmd_ttl },
	{ .name = "kill", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "end sandboxes", .run = cmd_kill },
	{ .name = "rm", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	  .summary = "remove what is kept of sandboxes that have ended", .options = opts_rm, .run = cmd_rm },
	{ .name = "gc", .args = "",
	  .summary = "take back everything that no living sandbox has, and say what",
	  .help = "What sandboxes have left whose warden was killed; what is kept of sandboxes that have ended, once it is older\n"
		  "or more than host.yaml allows, or all of it with --ended; control groups, id ranges, half-made images and\n"
		  "snapshots that nobody has; templates of microVMs whose image or kernel is gone, and the memory of templates\n"
		  "that is kept for the next start. What lives, and what is being made, is left alone.",
	  .options = opts_gc, .run = cmd_gc },
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
	{ .name = "snapshot", .args = "", .sub = snapshot_commands,
	  .summary = "save microVMs, list and remove snapshots and templates" },
	{ .name = "template", .args = "", .sub = template_commands,
	  .summary = "list and share what API keys have built",
	  .help = "A template is an image that a client of hutchd has built, under a name that only its API key knows. What the\n"
		  "operator has built through the Unix socket has no OWNER/ before its name." },
	{ .name = "fork", .args = "ID", .min_args = 1, .max_args = 1,
	  .summary = "make copies of a microVM that runs",
	  .help = "Each copy has the memory, processes and files of the original, and its policy; its own name, random numbers,\n"
		  "limits and records. The original goes on. Commands that were started in the original go on in each copy, in\n"
		  "records of its own.",
	  .options = opts_fork, .run = cmd_fork },
	{ .name = "pool", .args = "", .sub = pool_commands,
	  .summary = "keep sandboxes ready before somebody wants them" },
	{ .name = "egress", .args = "", .sub = egress_commands,
	  .summary = "show and change what sandboxes may connect to" },
	{ .name = "key", .args = "", .sub = key_commands,
	  .summary = "make, list and revoke the API keys of hutchd" },
	{ .name = "audit", .args = "", .sub = audit_commands,
	  .summary = "show and verify what was recorded" },
	{ .name = "mcp", .args = "",
	  .summary = "serve a model: tools that run code in sandboxes (MCP, over stdio)",
	  .help = "Started by a client of the Model Context Protocol. Its tools run commands and code, and read and write files,\n"
		  "in a sandbox that is made when it is first needed. The end of standard input, or SIGTERM, ends the session\n"
		  "and all its sandboxes; should hutch be killed, their deadline does.",
	  .options = opts_mcp, .run = cmd_mcp },
	{ .name = "doctor", .args = "",
	  .summary = "show what this host can enforce, and what to do about the rest",
	  .help = "Tries things out rather than believing version numbers; changes nothing, but that the initrd of microVMs is\n"
		  "made if it is not there, as after an upgrade, and that what --probe finds out is kept until the host boots\n"
		  "again. Exits 0 if sandboxes can be had at level 'container', 1 if not.",
	  .options = opts_doctor, .run = cmd_doctor },
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
