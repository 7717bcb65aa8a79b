/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy: what one agent may do, compiled from its YAML file, the agents it extends and the
 * presets it names. A struct policy is complete (defaults filled in), checked, and does not change.
 */
#pragma once

#include "diag.h"
#include "layer.h"
#include "level.h"
#include "match.h"
#include "store.h"

/* Where what a container writes is kept. */
enum scratch_kind {
	SCRATCH_UNSET,
	SCRATCH_DISK,
	SCRATCH_MEMORY,
	SCRATCH_MAX,
};

extern const char *const scratch_names[SCRATCH_MAX + 1]; /* [SCRATCH_UNSET] is "" */

enum preset_kind {
	PRESET_EGRESS,
	PRESET_CAPABILITIES,
	PRESET_PROMPTS,
	PRESET_KIND_MAX,
};

extern const char *const preset_kind_names[PRESET_KIND_MAX + 1];

/* A list that grows in the policy's arena. `set`: some file wrote it, be it empty. */
struct text_list {
	const char **v;
	size_t n, cap;
	bool set;
};

/* Pairs in the order written: environment. */
struct pair {
	const char *key;
	const char *value;
	struct pos pos;
};

struct pair_list {
	struct pair *v;
	size_t n, cap;
};

/* Names of presets, and where they were written. */
struct preset_ref {
	const char *name;
	struct pos pos;
	uint32_t index; /* in its list */
};

struct preset_list {
	struct preset_ref *v;
	size_t n, cap;
};

struct secret_host {
	struct name name;
	struct pos pos;
	uint32_t index; /* in its list */
};

struct host_list {
	struct secret_host *v;
	size_t n, cap;
};

struct secret {
	const char *name;
	struct pos pos;
	struct host_list hosts;
};

struct secret_list {
	struct secret *v;
	size_t n, cap;
};

struct port_list {
	uint16_t *v;
	size_t n, cap;
};

/* One of the files a policy is made of. */
struct policy_file {
	const struct source *src;
	bool is_preset;
	bool by_name;	     /* found under its file name, which it must bear */
	struct pos named_at; /* where another file names this one; .src NULL for the agent itself */
	unsigned int preset_kind; /* enum preset_kind, as the file says it */
	const char *name, *summary, *risk, *text, *extends;
	struct pos head_pos;	/* of `agent` or `preset` */
	struct port_list ports; /* what its rules without a port mean */
};

/* Where a rule comes from; ruleset_entry.id is an index into policy.origins. */
struct origin {
	struct pos pos;
	const struct policy_file *file;
	uint32_t index;	   /* in its list */
	bool default_port; /* the rule names no port; it got the file's */
};

struct rule_list {
	struct ruleset_entry *v;
	struct origin *origin;
	size_t n, cap;
	bool full; /* RULESET_MAX was passed, and said so */
};

struct policy {
	struct arena arena;
	struct pos pos;	       /* of the agent's head: for what has no better place */
	struct pos limits_pos; /* of the timeout, or else the ttl, that a file wrote last */
	const char *name, *type, *summary;
	enum level level;
	uint64_t require; /* bits of enum layer */
	struct {
		uint64_t cpus;		       /* thousandths */
		uint64_t memory, disk, output; /* bytes */
		uint64_t pids;
		uint64_t timeout, ttl, idle; /* milliseconds */
		enum scratch_kind scratch;
	} resources;
	struct {
		struct rule_list list;
		struct ruleset *rules;
		struct {
			uint64_t bytes_out, bytes_in, streams, streams_per_minute, names;
		} budgets;
		struct preset_list presets;
	} egress;
	struct {
		struct text_list packages, scripts;
		struct preset_list presets;
	} capabilities;
	struct {
		const char *workspace;
		struct text_list read, write, execute;
	} filesystem;
	struct secret_list secrets;
	struct pair_list env;
	struct {
		const char *role;
		struct text_list fragments;
		struct preset_list presets;
	} prompt;
};

/*
 * Compiles agent `ref`: a name known to the store, or a path (anything with '/' or ending in
 * .yaml). Errors and warnings go to `d`, whose sources live as long as the store. 0, -EINVAL (see
 * d), -ENOENT (no such agent, told in `e`), -EIO (the file cannot be read), -ENOMEM.
 */
int policy_compile(struct policy_store *store, const char *ref, struct diags *d,
		   struct policy **ret, struct err *e);

/* The same from text; `label` is what messages call it. */
int policy_compile_text(struct policy_store *store, const char *label, const char *text, size_t len,
			struct diags *d, struct policy **ret, struct err *e);

/* Checks one file, agent or preset, without keeping anything of it but the diagnostics. */
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
 * The canonical JSON, with a newline at its end, and the SHA-256 of exactly these bytes. The caller
 * frees *ret_text. Nothing in it depends on the machine, the paths of the files, or the order of
 * their keys.
 */
int policy_canonical(const struct policy *p, char **ret_text,
		     char ret_digest[static POLICY_DIGEST_HEX + 1]);

/*
 * Heads of preset and agent files, for lists and documentation. The strings live as long as the
 * store.
 */
struct policy_head {
	const char *name, *summary, *risk, *label;
};

/* "presets/egress", the folder of the store where presets of a kind are. */
const char *preset_folder(enum preset_kind kind);

int policy_preset_head(struct policy_store *store, enum preset_kind kind, const char *name,
		       struct diags *d, struct policy_head *ret, struct err *e);

/* Why a target may or may not be dialled. Points into the policy and the store. */
enum {
	EXPLAIN_MAX = 16
};

struct explanation {
	struct verdict verdict;
	const struct origin *deny,
		*allow; /* where the rules of the verdict stand; NULL if there is none */
	uint16_t ports[EXPLAIN_MAX]; /* denied by no rule: where the same host is allowed */
	size_t n_ports;
	const char *presets[EXPLAIN_MAX]; /* not allowed: presets that would allow it */
	size_t n_presets;
};

int policy_explain(const struct policy *p, struct policy_store *store, const struct target *t,
		   struct explanation *ret, struct err *e);

/* The same of rules that stand in no file: nothing is known of where they come from. */
int policy_explain_rules(const struct ruleset *rules, struct policy_store *store,
			 const struct target *t, struct explanation *ret, struct err *e);
