/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy of one agent, compiled from its YAML file, the agents that the file extends and the
 * presets that they name. A struct policy has all defaults filled in, is checked, and is immutable.
 */
#pragma once

#include "l7/l7.h"
#include "names/match.h"
#include "policy/diag.h"
#include "policy/policy-llm.h"
#include "policy/store.h"
#include "receipt/layer.h"
#include "receipt/level.h"

/* Where a container's writable layer is stored. */
enum scratch_kind {
	SCRATCH_UNSET,
	SCRATCH_DISK,
	SCRATCH_MEMORY,
	SCRATCH_MAX,
};

/* output.action */
enum output_action {
	OUTPUT_UNSET,
	OUTPUT_OFF,
	OUTPUT_REDACT,
	OUTPUT_BLOCK,
	OUTPUT_REPORT,
	OUTPUT_ACTIONS,
};

extern const char *const output_action_names[OUTPUT_ACTIONS + 1]; /* [OUTPUT_UNSET] is "" */

/* isolation.nested */
enum nested {
	NESTED_UNSET,
	NESTED_NO,
	NESTED_YES,
	NESTED_MAX,
};

extern const char *const nested_names[NESTED_MAX + 1]; /* [NESTED_UNSET] is "" */

extern const char *const scratch_names[SCRATCH_MAX + 1]; /* [SCRATCH_UNSET] is "" */

enum preset_kind {
	PRESET_EGRESS,
	PRESET_CAPABILITIES,
	PRESET_PROMPTS,
	PRESET_KIND_MAX,
};

extern const char *const preset_kind_names[PRESET_KIND_MAX + 1];

/* How a secret is sent; hutch-tap has the same list. */
enum auth_form {
	AUTH_UNSET,
	AUTH_BEARER, /* Authorization: Bearer VALUE */
	AUTH_HEADER, /* HEADER: FORMAT with {} replaced by VALUE */
	AUTH_BASIC,  /* Authorization: Basic, with USER and VALUE */
	AUTH_QUERY,  /* the query parameter PARAMETER */
	AUTH_AWS,    /* SigV4: VALUE has a key id and a secret key */
	AUTH_MAX,
};

extern const char *const auth_form_names[AUTH_MAX + 1]; /* [AUTH_UNSET] is "" */

enum {
	POLICY_SECRETS_MAX = 64,     /* hutch-tap's limit */
	POLICY_SECRET_NAME_MAX = 64, /* the limit of the store of secrets */
};

/* Complete after policy_finish_secrets(): a form, and a format if the form is AUTH_HEADER. */
struct secret {
	const char *name;
	struct pos pos;
	struct host_list hosts;
	struct text_list paths; /* patterns; none: every path */
	unsigned int form;	/* enum auth_form */
	struct pos form_pos;
	struct located header, format, user, parameter;
	unsigned int optional; /* 1: the sandbox starts without it if it has no value */
};

struct secret_list {
	struct secret *v;
	size_t n, cap;
};

/* A rule of egress.http. */
struct http_rule {
	struct rule host; /* RULE_NAME or RULE_SUBTREE, no port */
	struct text_list methods, paths;
	uint64_t max_body, rate; /* 0: no limit */
	unsigned int deny;
	struct pos pos;
	const struct policy_file *file;
	uint32_t index; /* in the list of `file` */
};

struct http_list {
	struct http_rule *v;
	size_t n, cap;
};

struct port_list {
	uint16_t *v;
	size_t n, cap;
};

/* An agent or preset file that is part of a policy. */
struct policy_file {
	const struct source *src;
	bool is_preset;
	bool by_name;	     /* looked up by name: agent.name must match the file name */
	struct pos named_at; /* where another file names this one; .src NULL for the agent itself */
	unsigned int preset_kind; /* enum preset_kind, from the file */
	const char *name, *summary, *risk, *text, *extends;
	struct pos head_pos;	/* position of `agent` or `preset` */
	struct port_list ports; /* used for the file's rules without a port */
};

/* Where a rule comes from; ruleset_entry.id is an index into policy.origins. */
struct origin {
	struct pos pos;
	const struct policy_file *file;
	uint32_t index;	   /* in the list of `file` */
	bool default_port; /* the rule names no port: the port comes from policy_file.ports */
};

struct rule_list {
	struct ruleset_entry *v;
	struct origin *origin;
	size_t n, cap;
	bool full; /* RULESET_MAX was exceeded, and the error is reported */
};

struct policy {
	struct arena arena;
	struct pos pos;	       /* agent's head: for diagnostics without a better position */
	struct pos limits_pos; /* last timeout written, or else the last ttl */
	const char *name, *type, *summary;
	enum level level;
	uint64_t require; /* bits of enum layer */
	enum nested nested;
	struct pos nested_pos; /* last `nested` written */
	struct {
		uint64_t cpus;		       /* thousandths */
		uint64_t memory, disk, output; /* bytes */
		uint64_t pids;
		uint64_t timeout, ttl, idle; /* milliseconds */
		enum scratch_kind scratch;
		uint64_t disk_bandwidth, disk_ops; /* per second; 0: no limit */
	} resources;
	struct {
		struct rule_list list;
		struct ruleset *rules;
		struct {
			uint64_t bytes_out, bytes_in, streams, streams_per_minute, names;
		} budgets;
		struct preset_list presets;
		struct http_list http;
	} egress;
	struct {
		struct text_list packages, scripts;
		struct preset_list presets;
	} capabilities;
	struct {
		const char *workspace;
		struct text_list read, write, execute;
	} filesystem;
	struct {
		enum output_action action;
		struct text_list rules; /* names of rules and groups; not empty unless off */
		struct pos rules_pos;	/* last `rules` written */
	} output;
	struct secret_list secrets;
	struct llm_list llm;
	struct price_list prices; /* read only if there are rules in `llm` */
	struct pair_list env;
	struct {
		const char *role;
		struct text_list fragments;
		struct preset_list presets;
	} prompt;
};

/*
 * Compiles agent `ref`: a name known to the store, or a path (anything with '/' or ending in
 * .yaml). Errors and warnings go to `d`, whose sources live as long as the store. Returns 0,
 * -EINVAL (details in `d`), -ENOENT (unknown agent), -EIO (the file cannot be read) or -ENOMEM.
 */
int policy_compile(struct policy_store *store, const char *ref, struct diags *d,
		   struct policy **ret, struct err *e);

/* Compiles `text`, an agent file that messages call `label`. */
int policy_compile_text(struct policy_store *store, const char *label, const char *text, size_t len,
			struct diags *d, struct policy **ret, struct err *e);

/* Checks one agent or preset file; the diagnostics in `d` are the only result. */
int policy_validate(struct policy_store *store, const char *path, struct diags *d, struct err *e);

struct policy *policy_free(struct policy *p);

static inline void cleanup_policy(struct policy **p)
{
	(void)policy_free(*p);
}

#define _cleanup_policy_ _cleanup_(cleanup_policy)

enum {
	POLICY_DIGEST_HEX = 64
};

/*
 * Returns the canonical JSON with a final newline, and the SHA-256 of exactly these bytes. The
 * caller frees *ret_text. The text depends neither on the host nor on file paths or key order.
 */
int policy_canonical(const struct policy *p, char **ret_text,
		     char ret_digest[static POLICY_DIGEST_HEX + 1]);

/* Head of a preset file, for lists and documentation. The strings live as long as the store. */
struct policy_head {
	const char *name, *summary, *risk, *label;
};

/* Folder of the store that contains the presets of a kind: "presets/egress". */
const char *preset_folder(enum preset_kind kind);

int policy_preset_head(struct policy_store *store, enum preset_kind kind, const char *name,
		       struct diags *d, struct policy_head *ret, struct err *e);

enum {
	EXPLAIN_MAX = 16
};

/* Why a target is allowed or denied. Points into the policy and the store. */
struct explanation {
	struct verdict verdict;
	const struct origin *deny, *allow; /* origins of the verdict's rules, or NULL */
	uint16_t ports[EXPLAIN_MAX]; /* if no rule matches: ports on which the host is allowed */
	size_t n_ports;
	const char *presets[EXPLAIN_MAX]; /* if no rule matches: presets that would allow it */
	size_t n_presets;
};

int policy_explain(const struct policy *p, struct policy_store *store, const struct target *t,
		   struct explanation *ret, struct err *e);

/* The same for rules that come from no file: `deny` and `allow` of the result stay NULL. */
int policy_explain_rules(const struct ruleset *rules, struct policy_store *store,
			 const struct target *t, struct explanation *ret, struct err *e);
