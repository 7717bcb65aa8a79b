/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/schema.h"

#include "llm/llm.h"
#include "policy/policy.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)
#define SEC UINT64_C(1000)
#define DAY (24 * 3600 * SEC)

const char *const scratch_names[SCRATCH_MAX + 1] = {
	[SCRATCH_UNSET] = "",
	[SCRATCH_DISK] = "disk",
	[SCRATCH_MEMORY] = "memory",
};

const char *const output_action_names[OUTPUT_ACTIONS + 1] = {
	[OUTPUT_UNSET] = "",	  [OUTPUT_OFF] = "off",	      [OUTPUT_REDACT] = "redact",
	[OUTPUT_BLOCK] = "block", [OUTPUT_REPORT] = "report",
};

const char *const nested_names[NESTED_MAX + 1] = {
	[NESTED_UNSET] = "",
	[NESTED_NO] = "false",
	[NESTED_YES] = "true",
};

const char *const auth_form_names[AUTH_MAX + 1] = {
	[AUTH_UNSET] = "",	[AUTH_BEARER] = "bearer", [AUTH_HEADER] = "header",
	[AUTH_BASIC] = "basic", [AUTH_QUERY] = "query",	  [AUTH_AWS] = "aws",
};

const char *const llm_words[] = { "", "anthropic", "openai", "gemini", "openai-compatible", NULL };

static_assert(ARRAY_SIZE(llm_words) == LLM_PROVIDERS + 2, "each provider has a word");

static const char *const yes_names[] = { "false", "true", NULL };

static_assert(LAYER_MAX <= 64, "policy.require has a bit for every layer");

const char *const preset_kind_names[PRESET_KIND_MAX + 1] = {
	[PRESET_EGRESS] = "egress",
	[PRESET_CAPABILITIES] = "capabilities",
	[PRESET_PROMPTS] = "prompts",
};

#define FIELD(f)	.field = offsetof(struct policy, f)
#define SECRET_FIELD(f) .field = offsetof(struct secret, f)
#define HTTP_FIELD(f)	.field = offsetof(struct http_rule, f)
#define LLM_FIELD(f)	.field = offsetof(struct llm_rule, f)
#define PRICE_FIELD(f)	.field = offsetof(struct price, f)
#define FILE_FIELD(f)	.in_file = true, .field = offsetof(struct policy_file, f)

/* clang-format off */
static const struct key agent_section[] = {
	{ "name", KEY_NAME, FIELD(name), .required = true,
	  .doc = "Name of the agent, in lists and records." },
	{ "type", KEY_NAME, FIELD(type),
	  .doc = "Kind of agent, such as debugger; recorded, for your own grouping. Required, unless inherited." },
	{ "summary", KEY_LINE, FIELD(summary), .max = 100,
	  .doc = "One line for people." },
	{ 0 }
};

static const struct key isolation_section[] = {
	{ "level", KEY_WORD, FIELD(level), .words = level_names, .fallback = LEVEL_DEFAULT_NAME,
	  .doc = "Strength of the boundary: a hardened container, gVisor's user-space kernel, or a VM of its own." },
	{ "require", KEY_WORD_SET, FIELD(require), .words = layer_names,
	  .doc = "Layers without which the sandbox must not start. Other layers are used where the host supports them; the receipt lists them." },
	{ "nested", KEY_WORD, FIELD(nested), .words = nested_names, .fallback = "false",
	  .doc = "true: root in the sandbox has the whole kernel of its VM, for Docker and Podman inside. Needs level microvm. Nothing confines programs inside the VM; the VM is the boundary." },
	{ 0 }
};

static const struct key resources_section[] = {
	{ "cpus", KEY_THOUSANDTHS, FIELD(resources.cpus), 
	  .min = 10, .max = 1024 * 1000, .fallback = "1",
	  .doc = "CPU time, in processors." },
	{ "memory", KEY_SIZE, FIELD(resources.memory), .min = 32 * MIB, .max = 64 * TIB, .fallback = "1GiB",
	  .doc = "Memory of everything in the sandbox together." },
	{ "pids", KEY_COUNT, FIELD(resources.pids), .min = 4, .max = 4194304, .fallback = "512",
	  .doc = "Processes and threads at once." },
	{ "disk", KEY_SIZE, FIELD(resources.disk), .min = MIB, .max = 64 * TIB, .fallback = "2GiB",
	  .doc = "Bytes that the sandbox may write to its own file system." },
	{ "scratch", KEY_WORD, FIELD(resources.scratch), .words = scratch_names, .fallback = "disk",
	  .doc = "Where a container's writes are stored: on disk, or in memory, where they count as memory and can take at most three quarters of it." },
	{ "disk_bandwidth", KEY_SIZE, FIELD(resources.disk_bandwidth), .min = 64 * KIB, .max = TIB,
	  .doc = "Bytes per second that the sandbox may read from and write to its disk; no limit if missing. See hutch-agent(5) for how it is enforced." },
	{ "disk_ops", KEY_COUNT, FIELD(resources.disk_ops), .min = 10, .max = 10000000,
	  .doc = "Reads and writes per second of the sandbox's disk; no limit if missing." },
	{ "output", KEY_SIZE, FIELD(resources.output), .min = 4 * KIB, .max = TIB, .fallback = "16MiB",
	  .doc = "Output kept of each command; older output is dropped and counted." },
	{ "timeout", KEY_DURATION, FIELD(resources.timeout), .min = 100, .max = 365 * DAY, .fallback = "10m",
	  .doc = "Longest run of one command." },
	{ "ttl", KEY_DURATION, FIELD(resources.ttl), .min = SEC, .max = 365 * DAY, .fallback = "8h",
	  .doc = "Longest life of the sandbox, whatever it does." },
	{ "idle", KEY_DURATION, FIELD(resources.idle), .min = SEC, .max = 365 * DAY, .fallback = "1h",
	  .doc = "How long the sandbox lives with no command running and no client attached." },
	{ 0 }
};

static const struct key budgets_section[] = {
	{ "bytes_out", KEY_SIZE, FIELD(egress.budgets.bytes_out), .min = 1, .max = 1024 * TIB, .fallback = "256MiB",
	  .doc = "Bytes sent out in the sandbox's life." },
	{ "bytes_in", KEY_SIZE, FIELD(egress.budgets.bytes_in), .min = 1, .max = 1024 * TIB, .fallback = "16GiB",
	  .doc = "Bytes received in the sandbox's life." },
	{ "streams", KEY_COUNT, FIELD(egress.budgets.streams), .min = 1, .max = 65536, .fallback = "128",
	  .doc = "Connections at once." },
	{ "streams_per_minute", KEY_COUNT, FIELD(egress.budgets.streams_per_minute), .min = 1, .max = 1000000,
	  .fallback = "1200", .doc = "New connections in any minute." },
	{ "names", KEY_COUNT, FIELD(egress.budgets.names), .min = 1, .max = 1000000, .fallback = "512",
	  .doc = "Different names in the sandbox's life; each name looked up can carry data out." },
	{ 0 }
};

static const char domains_doc[] =
	"Rules: a name (github.com), a name and all below it (.sentry.io), an address or network (192.0.2.7, "
	"10.1.0.0/16, [2001:db8::1]), each with an optional port (github.com:22).";
static const char deny_doc[] =
	"Rules that win over every allow rule of every file. Without a port: on every port.";
static const char ports_doc[] = "Ports of this file's rules that name none.";

static const char http_doc[] =
	"Rules on HTTP requests, for hosts that domains allow. Deny wins. A host with an allow rule here allows only "
	"requests that one matches. Hutch opens the TLS of these hosts, with a certificate authority of the sandbox's own.";

const struct key http_keys[] = {
	{ "host", KEY_HTTP_HOST, HTTP_FIELD(host), .required = true,
	  .doc = "Host of the request; .github.com is that name and all below it." },
	{ "methods", KEY_METHOD_LIST, HTTP_FIELD(methods),
	  .doc = "Methods in upper case; every method if missing." },
	{ "paths", KEY_PATTERN_LIST, HTTP_FIELD(paths),
	  .doc = "Paths without the query: * is a part of one segment, ** any number of segments. Every path if missing." },
	{ "max_body", KEY_SIZE, HTTP_FIELD(max_body), .min = 1, .max = TIB,
	  .doc = "Longest body of a request; no limit if missing." },
	{ "rate", KEY_COUNT, HTTP_FIELD(rate), .min = 1, .max = L7_RATE_MAX,
	  .doc = "Requests in any minute that this rule allows; no limit if missing." },
	{ "deny", KEY_WORD, HTTP_FIELD(deny), .words = yes_names,
	  .doc = "true: the rule denies what it matches." },
	{ 0 }
};

static const struct key llm_budget_keys[] = {
	{ "requests", KEY_COUNT, LLM_FIELD(budget.requests), .min = 1, .max = 1000000000,
	  .doc = "Calls of models in the sandbox's life; no limit if missing." },
	{ "tokens", KEY_COUNT, LLM_FIELD(budget.tokens), .min = 1, .max = 1000000000000,
	  .doc = "Tokens in the sandbox's life, those sent and those received; no limit if missing." },
	{ "usd", KEY_THOUSANDTHS, LLM_FIELD(budget.usd), .min = 1, .max = 100000000,
	  .doc = "Dollars in the sandbox's life, by prices/llm.yaml or `price`; no limit if missing. A model without a price is then refused." },
	{ 0 }
};

static const struct key llm_price_keys[] = {
	{ "input", KEY_THOUSANDTHS, LLM_FIELD(price.input), .max = 100000000, .required = true,
	  .doc = "Dollars for a million tokens sent." },
	{ "output", KEY_THOUSANDTHS, LLM_FIELD(price.output), .max = 100000000, .required = true,
	  .doc = "Dollars for a million tokens received." },
	{ "cached", KEY_THOUSANDTHS, LLM_FIELD(price.cached), .max = 100000000,
	  .doc = "Dollars for a million tokens that the provider read from its cache." },
	{ 0 }
};

const struct key llm_keys[] = {
	{ "provider", KEY_WORD, LLM_FIELD(provider), .words = llm_words, .required = true,
	  .doc = "The API: it decides which requests call a model, how usage is read and how a request is refused. vLLM, Ollama and llama-server are openai-compatible." },
	{ "hosts", KEY_HOST_LIST, LLM_FIELD(hosts),
	  .doc = "Names of the servers; the provider's own if missing. Required for openai-compatible." },
	{ "models", KEY_MODEL_LIST, LLM_FIELD(models),
	  .doc = "Models that may be called; * is any text. Every model if missing." },
	{ "budget", KEY_MEMBERS, .keys = llm_budget_keys,
	  .doc = "Limits of use. Forks of a sandbox share its budget." },
	{ "price", KEY_MEMBERS, .keys = llm_price_keys,
	  .doc = "The price of these models, instead of prices/llm.yaml." },
	{ "secret", KEY_LINE, LLM_FIELD(secret), .max = POLICY_SECRET_NAME_MAX,
	  .doc = "Name of the provider's key: sent with requests to models, as the provider wants it. Needs no entry under secrets." },
	{ 0 }
};

static const struct key price_keys[] = {
	{ "model", KEY_LINE, PRICE_FIELD(model), .max = POLICY_MODEL_MAX, .required = true, .doc = "Model; * is any text." },
	{ "input", KEY_COUNT, PRICE_FIELD(input), .max = 1000000000000, .required = true, .doc = "Tokens sent." },
	{ "cached", KEY_COUNT, PRICE_FIELD(cached), .max = 1000000000000, .doc = "Tokens read from a cache." },
	{ "cache_write", KEY_COUNT, PRICE_FIELD(cache_write), .max = 1000000000000, .doc = "Tokens written to a cache." },
	{ "output", KEY_COUNT, PRICE_FIELD(output), .max = 1000000000000, .required = true, .doc = "Tokens received." },
	{ 0 }
};

const struct key price_file_keys[] = {
	{ "prices", KEY_PRICE_LIST, FIELD(prices), .keys = price_keys, .doc = "Prices, the first match counts." },
	{ 0 }
};

static const struct key egress_section[] = {
	{ "presets", KEY_PRESET_LIST, FIELD(egress.presets), .kind = PRESET_EGRESS,
	  .doc = "Egress presets whose rules are added." },
	{ "domains", KEY_ALLOW_LIST, FIELD(egress.list), .doc = domains_doc },
	{ "deny", KEY_DENY_LIST, FIELD(egress.list), .doc = deny_doc },
	{ "ports", KEY_PORT_LIST, FILE_FIELD(ports), .fallback = "443", .doc = ports_doc },
	{ "http", KEY_HTTP_LIST, FIELD(egress.http), .keys = http_keys, .doc = http_doc },
	{ "budgets", KEY_SECTION, .keys = budgets_section, .doc = "Limits on all connections together." },
	{ 0 }
};

static const struct key capabilities_section[] = {
	{ "presets", KEY_PRESET_LIST, FIELD(capabilities.presets), .kind = PRESET_CAPABILITIES,
	  .doc = "Capability presets: the software in the image." },
	{ "packages", KEY_PACKAGE_LIST, FIELD(capabilities.packages),
	  .doc = "Debian packages in the image." },
	{ "install_scripts", KEY_TEXT_LIST, FIELD(capabilities.scripts), .max = 64 * KIB,
	  .doc = "Shell scripts run as root while the image is built, after the packages, in the order written." },
	{ 0 }
};

static const struct key filesystem_section[] = {
	{ "workspace", KEY_PATH, FIELD(filesystem.workspace), .fallback = "/workspace",
	  .doc = "Directory in which commands start, with the agent's files." },
	{ "read", KEY_PATH_LIST, FIELD(filesystem.read), .fallback = "/",
	  .doc = "Readable paths, with all below them." },
	{ "write", KEY_PATH_LIST, FIELD(filesystem.write), .fallback = "/workspace /tmp /var/tmp /home",
	  .doc = "Writable paths, with all below them." },
	{ "execute", KEY_PATH_LIST, FIELD(filesystem.execute), .fallback = "/",
	  .doc = "Paths from which programs can be started, with all below them." },
	{ 0 }
};

static const struct key output_section[] = {
	{ "action", KEY_WORD, FIELD(output.action), .words = output_action_names, .fallback = "off",
	  .doc = "Filter of what commands write. redact: a text replaces each match. block: nothing leaves after a match. report: matches are only recorded." },
	{ "rules", KEY_FILTER_LIST, FIELD(output.rules),
	  .doc = "Rules of the filter, or groups of them: secrets, pii. Missing: secrets. Values of the sandbox's own secrets are always searched for." },
	{ 0 }
};

static const struct key prompt_section[] = {
	{ "role", KEY_TEXT, FIELD(prompt.role), .max = 16 * KIB,
	  .doc = "The agent's role; comes first in its prompt." },
	{ "presets", KEY_PRESET_LIST, FIELD(prompt.presets), .kind = PRESET_PROMPTS,
	  .doc = "Prompt presets, appended in this order." },
	{ 0 }
};

const struct key secret_keys[] = {
	{ "hosts", KEY_HOST_LIST, SECRET_FIELD(hosts), .required = true,
	  .doc = "Names to which the credential may be sent, over TLS only." },
	{ "paths", KEY_PATTERN_LIST, SECRET_FIELD(paths),
	  .doc = "Paths of requests that get the credential, as in egress.http; every path if missing." },
	{ "form", KEY_WORD, SECRET_FIELD(form), .words = auth_form_names,
	  .doc = "How the credential is sent: Authorization: Bearer, a header of its own, Authorization: Basic, a query parameter, or an AWS signature. Default: bearer; with header: header." },
	{ "header", KEY_LINE, SECRET_FIELD(header), .max = 64,
	  .doc = "Form header: name of the header, such as X-Api-Key." },
	{ "format", KEY_LINE, SECRET_FIELD(format), .max = 256,
	  .doc = "Form header: the header's text, with {} for the credential; {} alone if missing." },
	{ "user", KEY_LINE, SECRET_FIELD(user), .max = 128,
	  .doc = "Form basic: name of the user, such as x-access-token." },
	{ "parameter", KEY_LINE, SECRET_FIELD(parameter), .max = 64,
	  .doc = "Form query: name of the parameter. Servers often log queries: use it only if a server accepts nothing else." },
	{ "optional", KEY_WORD, SECRET_FIELD(optional), .words = yes_names,
	  .doc = "true: if the credential has no value, the sandbox starts without it. Otherwise it does not start." },
	{ 0 }
};

static const char env_doc[] = "Environment of every command. Put credentials under secrets, never here.";

const struct key agent_keys[] = {
	{ "agent", KEY_SECTION, .keys = agent_section, .required = true, .doc = "Identity of the agent." },
	{ "extends", KEY_NAME, FILE_FIELD(extends),
	  .doc = "Another agent to start from. Single values written here replace its values; lists are joined." },
	{ "isolation", KEY_SECTION, .keys = isolation_section, .doc = "Isolation of the sandbox." },
	{ "resources", KEY_SECTION, .keys = resources_section, .doc = "Limits of the sandbox." },
	{ "egress", KEY_SECTION, .keys = egress_section,
	  .doc = "Allowed outgoing connections. Everything that no rule allows is denied." },
	{ "capabilities", KEY_SECTION, .keys = capabilities_section, .doc = "Software in the image." },
	{ "filesystem", KEY_SECTION, .keys = filesystem_section, .doc = "Paths that commands may read, write and execute." },
	{ "output", KEY_SECTION, .keys = output_section, .doc = "Secrets and personal data in the output of commands." },
	{ "secrets", KEY_SECRETS, FIELD(secrets), .keys = secret_keys,
	  .doc = "Names of credentials and where each is sent. Never write values into this file: 'hutch secret set NAME' stores one. Values stay outside the sandbox, where the variable NAME has a placeholder." },
	{ "llm", KEY_LLM_LIST, FIELD(llm), .keys = llm_keys,
	  .doc = "Providers of language models that egress allows: which models, budgets, the key. Hutch opens the TLS of these hosts, reads the model and the usage of each call, and records both." },
	{ "env", KEY_ENV, FIELD(env), .doc = env_doc },
	{ "prompt", KEY_SECTION, .keys = prompt_section, .doc = "The agent's prompt." },
	{ 0 }
};

static const struct key preset_section[] = {
	{ "kind", KEY_WORD, FILE_FIELD(preset_kind), .words = preset_kind_names, .required = true,
	  .doc = "Kind of preset." },
	{ "name", KEY_NAME, FILE_FIELD(name), .required = true, .doc = "The file's name without .yaml." },
	{ "summary", KEY_LINE, FILE_FIELD(summary), .max = 100, .required = true, .doc = "One line for people." },
	{ "risk", KEY_LINE, FILE_FIELD(risk), .max = 200,
	  .doc = "Gain for an attacker who controls the agent; shown by explain." },
	{ 0 }
};

#define PRESET_HEAD \
	{ "preset", KEY_SECTION, .keys = preset_section, .required = true, .doc = "Identity of the preset." }

static const struct key egress_preset_keys[] = {
	PRESET_HEAD,
	{ "domains", KEY_ALLOW_LIST, FIELD(egress.list), .doc = domains_doc },
	{ "deny", KEY_DENY_LIST, FIELD(egress.list), .doc = deny_doc },
	{ "ports", KEY_PORT_LIST, FILE_FIELD(ports), .fallback = "443", .doc = ports_doc },
	{ "http", KEY_HTTP_LIST, FIELD(egress.http), .keys = http_keys, .doc = http_doc },
	{ 0 }
};

static const struct key capabilities_preset_keys[] = {
	PRESET_HEAD,
	{ "packages", KEY_PACKAGE_LIST, FIELD(capabilities.packages), .doc = "Debian packages." },
	{ "install_scripts", KEY_TEXT_LIST, FIELD(capabilities.scripts), .max = 64 * KIB,
	  .doc = "Shell scripts run as root while the image is built." },
	{ "env", KEY_ENV, FIELD(env), .doc = env_doc },
	{ 0 }
};

static const struct key prompts_preset_keys[] = {
	PRESET_HEAD,
	{ "text", KEY_TEXT, FILE_FIELD(text), .max = 16 * KIB, .required = true,
	  .doc = "The fragment that is added to the prompt." },
	{ 0 }
};
/* clang-format on */

const struct key *const preset_keys[] = {
	[PRESET_EGRESS] = egress_preset_keys,
	[PRESET_CAPABILITIES] = capabilities_preset_keys,
	[PRESET_PROMPTS] = prompts_preset_keys,
};

static_assert(ARRAY_SIZE(preset_keys) == PRESET_KIND_MAX, "keys for every kind");

const char *key_type_expects(enum key_type type)
{
	static const char *const expects[] = {
		[KEY_SECTION] = "a mapping",
		[KEY_NAME] = "a name of 1 to 63 letters a-z, digits and hyphens, no hyphen first",
		[KEY_LINE] = "one line of text",
		[KEY_TEXT] = "text",
		[KEY_WORD] = "one of",
		[KEY_WORD_SET] = "a list of",
		[KEY_SIZE] = "a size such as 512MiB (KiB, MiB, GiB, TiB)",
		[KEY_DURATION] = "a duration such as 90s (ms, s, m, h, d)",
		[KEY_COUNT] = "a whole number",
		[KEY_THOUSANDTHS] = "a number such as 2 or 0.5",
		[KEY_PATH] = "an absolute path of at most 1023 bytes, without '.' or '..'",
		[KEY_PATH_LIST] = "a list of absolute paths",
		[KEY_PORT_LIST] = "a list of ports",
		[KEY_ALLOW_LIST] =
			"a list of rules such as github.com, .sentry.io or db.example.com:5432",
		[KEY_DENY_LIST] =
			"a list of rules such as github.com, .sentry.io or db.example.com:5432",
		[KEY_PRESET_LIST] = "a list of preset names",
		[KEY_PACKAGE_LIST] = "a list of Debian package names",
		[KEY_TEXT_LIST] = "a list of texts",
		[KEY_ENV] = "a mapping of NAME: text",
		[KEY_HOST_LIST] = "a list of host names",
		[KEY_SECRETS] = "a mapping of NAME: {hosts: [...]}",
		[KEY_HTTP_LIST] =
			"a list of mappings such as {host: api.github.com, methods: [GET]}",
		[KEY_HTTP_HOST] = "a host such as api.github.com or .github.com",
		[KEY_METHOD_LIST] = "a list of methods such as GET",
		[KEY_PATTERN_LIST] = "a list of paths such as /repos/acme/**",
		[KEY_LLM_LIST] = "a list of mappings such as {provider: anthropic}",
		[KEY_MODEL_LIST] = "a list of models such as claude-*",
		[KEY_PRICE_LIST] = "a list of prices",
		[KEY_MEMBERS] = "a mapping",
		[KEY_FILTER_LIST] = "a list of rules or groups such as secrets",
		[KEY_FILES] = "a mapping of /path: text",
	};

	static_assert(ARRAY_SIZE(expects) == KEY_TYPE_MAX, "every type says what it expects");
	return expects[type];
}
