/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the policy compiler's tests: a small store, and diagnostics as text. */
#pragma once

#include <string.h>

#include "base/str.h"
#include "policy/policy.h"
#include "unit.h"

#define BUILTIN(path, text)                    \
	{                                      \
		path, "" text "", STRLEN(text) \
	}

/* The minimum that every store needs. */
#define FLOOR_FILE                                                     \
	BUILTIN("presets/egress/floor.yaml",                           \
		"preset: {kind: egress, name: floor, summary: Shut}\n" \
		"deny: [.metadata.example.com, relay.example.com:22]\n")

static const struct builtin_file small_files[] = {
	BUILTIN("agents/plain.yaml", "agent: {name: plain, type: test}\n"),
	BUILTIN("presets/capabilities/more.yaml",
		"preset: {kind: capabilities, name: more, summary: More}\n"
		"packages: [git, zip]\n"
		"install_scripts: [echo more]\n"
		"env: {WHO: more, MORE: '1'}\n"),
	BUILTIN("presets/capabilities/tools.yaml",
		"preset: {kind: capabilities, name: tools, summary: Tools}\n"
		"packages: [git, curl]\n"
		"install_scripts: [echo tools]\n"
		"env: {WHO: tools, TOOLS: '1'}\n"),
	FLOOR_FILE,
	BUILTIN("presets/egress/mail.yaml",
		"preset: {kind: egress, name: mail, summary: Mail, risk: Sends mail}\n"
		"ports: [465, 993]\n"
		"domains: [mail.example.org, web.mail.example.org:443]\n"),
	BUILTIN("presets/egress/site.yaml", "preset: {kind: egress, name: site, summary: A site}\n"
					    "domains: [www.example.org, .static.example.org]\n"
					    "deny: [ads.static.example.org]\n"),
	BUILTIN("presets/prompts/brief.yaml",
		"preset: {kind: prompts, name: brief, summary: Short answers}\n"
		"text: Be brief.\n"),
	BUILTIN("presets/prompts/kind.yaml",
		"preset: {kind: prompts, name: kind, summary: Kind answers}\n"
		"text: |\n  Be kind.\n"),
};

#define SMALL_STORE(dirs) POLICY_STORE_INIT(small_files, ARRAY_SIZE(small_files), dirs)

/* The first line of most agents in these tests. */
#define AGENT "agent: {name: a, type: t}\n"

/* All of them, a line each. */
static inline void assert_diags(const struct diags *d, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256 * 1024);

	for (size_t i = 0; i < d->n; i++) {
		assert_int_equal(diag_format(&d->list[i], &b), 0);
		assert_int_equal(buf_putc(&b, '\n'), 0);
	}
	assert_string_equal(buf_text(&b), want);
}

/* Compiles valid text with the warnings `want`; the caller frees the policy. */
static inline struct policy *compile_with(struct policy_store *store, const char *text,
					  const char *want)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;
	int r = policy_compile_text(store, "t.yaml", text, strlen(text), &d, &p, &e);

	assert_diags(&d, want);
	assert_int_equal(r, 0);
	assert_non_null(p);
	return p;
}

static inline struct policy *compiled(struct policy_store *store, const char *text)
{
	return compile_with(store, text, "");
}

/* Text that must be refused, with all its diagnostics. */
static inline void assert_refused(struct policy_store *store, const char *text, const char *want)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_compile_text(store, "t.yaml", text, strlen(text), &d, &p, &e),
			 -EINVAL);
	assert_diags(&d, want);
	assert_null(p);
	assert_int_equal(e.num, -EINVAL);
}

static inline bool may_dial(const struct policy *p, const char *where)
{
	struct target t;
	struct err e = ERR_INIT;

	assert_int_equal(target_parse(where, strlen(where), &t, &e), 0);
	return ruleset_check(p->egress.rules, &t).allowed;
}

/* "a b c" */
static inline void assert_texts(const struct text_list *list, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256 * 1024);

	for (size_t i = 0; i < list->n; i++)
		(void)buf_printf(&b, "%s%s", i > 0 ? " " : "", list->v[i]);
	assert_string_equal(buf_text(&b), want);
}

static inline void digest_of(const struct policy *p, char out[static POLICY_DIGEST_HEX + 1])
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(policy_canonical(p, &text, out), 0);
}

/* The digest of valid text. */
static inline void digest_text(struct policy_store *store, const char *text,
			       char out[static POLICY_DIGEST_HEX + 1])
{
	_cleanup_policy_ struct policy *p = compiled(store, text);

	digest_of(p, out);
}
