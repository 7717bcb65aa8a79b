/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form: policies with the same meaning have the same JSON text and digest. Sets are
 * sorted and without duplicates, numbers are integers (thousandths, bytes, milliseconds), and
 * sequences whose order matters (scripts, prompt) keep it. File paths, positions and preset names
 * are left out.
 */
#include <sodium.h>
#include <string.h>

#include "base/json-util.h"
#include "policy/policy.h"

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* An array in the given order. */
static json_t *sequence(const struct text_list *list)
{
	return json_texts(list->v, list->n);
}

/* A sorted array; the readers have removed duplicates. */
static json_t *set(const struct text_list *list)
{
	struct text_list sorted = *list;
	json_t *a;

	sorted.v = calloc(list->n + 1, sizeof(list->v[0]));
	if (!sorted.v)
		return NULL;
	if (list->n > 0)
		memcpy(sorted.v, list->v, list->n * sizeof(list->v[0]));
	qsort(sorted.v, sorted.n, sizeof(sorted.v[0]), compare_text);
	a = sequence(&sorted);
	free(sorted.v);
	return a;
}

static json_t *require(const struct policy *p)
{
	struct text_list list = { 0 };
	const char *names[LAYER_MAX];

	list.v = names;
	for (unsigned int i = 0; i < LAYER_MAX; i++)
		if (p->require >> i & 1)
			names[list.n++] = layer_names[i];
	return set(&list);
}

/* Ports of entries [i, end), which have the same host; an empty array means every port. */
static json_t *ports(const struct ruleset_entry *v, size_t i, size_t end)
{
	json_t *a = json_array();
	int r = 0;

	/* An entry for every port sorts first and includes the others. */
	for (; r == 0 && i < end && v[i].rule.port != 0; i++)
		r = json_push(a, json_number(v[i].rule.port));
	if (r == 0)
		return a;
	json_decref(a);
	return NULL;
}

/* Adds {"5432": "tcp"} for the entries that name a protocol. */
static int put_protocols(json_t *rule, const struct ruleset_entry *v, size_t i, size_t end)
{
	json_t *o = NULL;
	char port[8];

	for (; i < end; i++) {
		if (v[i].rule.proto == RULE_PROTO_DEFAULT)
			continue;
		if (!o) {
			o = json_object();
			if (json_put(rule, "protocols", o) < 0)
				return -ENOMEM;
		}
		(void)snprintf(port, sizeof(port), "%u", v[i].rule.port);
		if (json_put(o, port, json_string(rule_proto_name(v[i].rule.proto))) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Adds [443], the ports on which the keeper may dial private addresses of the name, if any. */
static int put_private(json_t *rule, const struct ruleset_entry *v, size_t i, size_t end)
{
	json_t *a = NULL;

	for (; i < end; i++) {
		if (!v[i].rule.private)
			continue;
		if (!a) {
			a = json_array();
			if (json_put(rule, "private", a) < 0)
				return -ENOMEM;
		}
		if (json_push(a, json_number(v[i].rule.port)) < 0)
			return -ENOMEM;
	}
	return 0;
}

static json_t *rule_object(const struct ruleset_entry *v, size_t i, size_t end, const char *host)
{
	_cleanup_json_ json_t *o =
		JSON_OBJECT({ "host", json_string(host) }, { "ports", ports(v, i, end) });

	if (!o || put_protocols(o, v, i, end) < 0 || put_private(o, v, i, end) < 0)
		return NULL;
	return TAKE_PTR(o);
}

/* Allow or deny rules, sorted, one object per host: {"host": ".sentry.io", "ports": [443]}. */
static json_t *rules(const struct ruleset *s, bool deny)
{
	char host[RULE_TEXT_MAX], next[RULE_TEXT_MAX];
	_cleanup_json_ json_t *a = json_array();
	const struct ruleset_entry *v;
	size_t n, end;

	v = ruleset_entries(s, &n);
	for (size_t i = 0; a && i < n; i = end) {
		rule_format_host(&v[i].rule, host);
		for (end = i + 1; end < n && v[end].deny == v[i].deny; end++)
			if (strcmp(rule_format_host(&v[end].rule, next), host) != 0)
				break;
		if (v[i].deny == deny && json_push(a, rule_object(v, i, end, host)) < 0)
			return NULL;
	}
	return TAKE_PTR(a);
}

static json_t *env(const struct policy *p)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < p->env.n; i++)
		if (json_put(o, p->env.v[i].key, json_string(p->env.v[i].value)) < 0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

static json_t *hosts(const struct secret *s)
{
	struct text_list list = { .v = calloc(s->hosts.n + 1, sizeof(list.v[0])), .n = s->hosts.n };
	json_t *a = NULL;

	for (size_t i = 0; list.v && i < list.n; i++)
		list.v[i] = s->hosts.v[i].name.text;
	if (list.v)
		a = set(&list);
	free(list.v);
	return a;
}

/* The array of hosts alone if every other key has its default: such policies keep their digest. */
static json_t *secret(const struct secret *s)
{
	const struct {
		const char *key;
		const char *text;
	} texts[] = { { "header", s->header.text },
		      { "format", s->format.text },
		      { "user", s->user.text },
		      { "parameter", s->parameter.text } };
	_cleanup_json_ json_t *o = NULL;
	int r = 0;

	if (s->form == AUTH_BEARER && s->paths.n == 0 && !s->optional)
		return hosts(s);
	o = JSON_OBJECT({ "hosts", hosts(s) }, { "paths", set(&s->paths) },
			{ "form", json_string(auth_form_names[s->form]) },
			{ "optional", json_boolean(s->optional) });
	for (size_t i = 0; o && i < ARRAY_SIZE(texts); i++)
		if (texts[i].text)
			r |= json_put(o, texts[i].key, json_string(texts[i].text));
	return r == 0 ? TAKE_PTR(o) : NULL;
}

static json_t *secrets(const struct policy *p)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < p->secrets.n; i++)
		if (json_put(o, p->secrets.v[i].name, secret(&p->secrets.v[i])) < 0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

/* The agent's prompt: the role and the fragments, separated by blank lines. */
static json_t *prompt(const struct policy *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	if (p->prompt.role)
		(void)buf_puts(&b, p->prompt.role);
	for (size_t i = 0; i < p->prompt.fragments.n; i++) {
		if (b.len > 0)
			(void)buf_puts(&b, b.data[b.len - 1] == '\n' ? "\n" : "\n\n");
		(void)buf_puts(&b, p->prompt.fragments.v[i]);
	}
	return b.err ? NULL : json_stringn(buf_text(&b), b.len);
}

/* Optional keys are written only if they are set: other policies keep their digest. */
static json_t *resources(const struct policy *p)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "cpus_thousandths", json_number(p->resources.cpus) },
			    { "memory_bytes", json_number(p->resources.memory) },
			    { "pids", json_number(p->resources.pids) },
			    { "disk_bytes", json_number(p->resources.disk) },
			    { "scratch", json_string(scratch_names[p->resources.scratch]) },
			    { "output_bytes", json_number(p->resources.output) },
			    { "timeout_ms", json_number(p->resources.timeout) },
			    { "ttl_ms", json_number(p->resources.ttl) },
			    { "idle_ms", json_number(p->resources.idle) });
	int r = j ? 0 : -ENOMEM;

	if (p->resources.disk_bandwidth > 0)
		r |= json_put(j, "disk_bandwidth", json_number(p->resources.disk_bandwidth));
	if (p->resources.disk_ops > 0)
		r |= json_put(j, "disk_ops", json_number(p->resources.disk_ops));
	return r == 0 ? TAKE_PTR(j) : NULL;
}

static json_t *budgets(const struct policy *p)
{
	return JSON_OBJECT(
		{ "bytes_out", json_number(p->egress.budgets.bytes_out) },
		{ "bytes_in", json_number(p->egress.budgets.bytes_in) },
		{ "streams", json_number(p->egress.budgets.streams) },
		{ "streams_per_minute", json_number(p->egress.budgets.streams_per_minute) },
		{ "names", json_number(p->egress.budgets.names) });
}

/* In the order written: the first rule that allows a request counts it against its rate. */
static json_t *http(const struct http_list *list)
{
	_cleanup_json_ json_t *a = json_array();

	for (size_t i = 0; a && i < list->n; i++) {
		const struct http_rule *r = &list->v[i];
		char host[RULE_TEXT_MAX];

		if (json_push(a,
			      JSON_OBJECT({ "host", json_string(rule_format_host(&r->host, host)) },
					  { "methods", set(&r->methods) },
					  { "paths", set(&r->paths) },
					  { "max_body", json_number(r->max_body) },
					  { "rate", json_number(r->rate) },
					  { "deny", json_boolean(r->deny) })) < 0)
			return NULL;
	}
	return TAKE_PTR(a);
}

static json_t *host_set(const struct host_list *list)
{
	const struct secret s = { .hosts = *list };

	return hosts(&s);
}

static json_t *price(const struct llm_rule *r)
{
	if (!r->price.set)
		return json_null();
	return JSON_OBJECT({ "input", json_number(r->price.input) },
			   { "output", json_number(r->price.output) },
			   { "cached", json_number(r->price.cached) });
}

/* In the order written: records and the ledger number the rules. */
static json_t *llm(const struct llm_list *list)
{
	_cleanup_json_ json_t *a = json_array();

	for (size_t i = 0; a && i < list->n; i++) {
		const struct llm_rule *r = &list->v[i];

		if (json_push(a, JSON_OBJECT({ "provider", json_string(llm_words[r->provider]) },
					     { "hosts", host_set(&r->hosts) },
					     { "models", set(&r->models) },
					     { "requests", json_number(r->budget.requests) },
					     { "tokens", json_number(r->budget.tokens) },
					     { "usd_thousandths", json_number(r->budget.usd) },
					     { "price_thousandths", price(r) },
					     { "secret", json_string(r->secret ?: "") })) < 0)
			return NULL;
	}
	return TAKE_PTR(a);
}

static json_t *egress(const struct policy *p)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "allow", rules(p->egress.rules, false) },
			    { "deny", rules(p->egress.rules, true) }, { "budgets", budgets(p) });

	if (j && p->egress.http.n > 0 && json_put(j, "http", http(&p->egress.http)) < 0)
		return NULL;
	return TAKE_PTR(j);
}

static json_t *filesystem(const struct policy *p)
{
	return JSON_OBJECT({ "workspace", json_string(p->filesystem.workspace) },
			   { "read", set(&p->filesystem.read) },
			   { "write", set(&p->filesystem.write) },
			   { "execute", set(&p->filesystem.execute) });
}

static json_t *isolation(const struct policy *p)
{
	_cleanup_json_ json_t *j = JSON_OBJECT({ "level", json_string(level_names[p->level]) },
					       { "require", require(p) });

	if (j && p->nested == NESTED_YES && json_put(j, "nested", json_true()) < 0)
		return NULL;
	return TAKE_PTR(j);
}

/* Written only if there is a filter: other policies keep their digest. */
static int put_output(json_t *j, const struct policy *p)
{
	if (p->output.action == OUTPUT_OFF)
		return 0;
	return json_put(
		j, "output",
		JSON_OBJECT({ "action", json_string(output_action_names[p->output.action]) },
			    { "rules", set(&p->output.rules) }));
}

static json_t *document(const struct policy *p)
{
	_cleanup_json_ json_t *j = NULL;
	json_t *agent =
		JSON_OBJECT({ "name", json_string(p->name) }, { "type", json_string(p->type) });
	json_t *capabilities =
		JSON_OBJECT({ "packages", set(&p->capabilities.packages) },
			    { "install_scripts", sequence(&p->capabilities.scripts) });

	j = JSON_OBJECT({ "schema", json_string("hutch.policy/1") }, { "agent", agent },
			{ "isolation", isolation(p) }, { "resources", resources(p) },
			{ "egress", egress(p) }, { "capabilities", capabilities },
			{ "filesystem", filesystem(p) }, { "secrets", secrets(p) },
			{ "env", env(p) }, { "prompt", prompt(p) });
	/* Policies without it keep their digest. */
	if (j && p->llm.n > 0 && json_put(j, "llm", llm(&p->llm)) < 0)
		return NULL;
	return j && put_output(j, p) == 0 ? TAKE_PTR(j) : NULL;
}

int policy_canonical(const struct policy *p, char **ret_text,
		     char ret_digest[static POLICY_DIGEST_HEX + 1])
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	_cleanup_json_ json_t *j = document(p);
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;
	char *line;
	size_t n;

	static_assert(POLICY_DIGEST_HEX == 2 * crypto_hash_sha256_BYTES, "two digits a byte");
	if (!text)
		return -ENOMEM;
	n = strlen(text);
	line = realloc(text, n + 2);
	if (!line)
		return -ENOMEM;
	text = line;
	memcpy(text + n, "\n", 2);
	(void)crypto_hash_sha256(hash, (const unsigned char *)text, n + 1);
	(void)sodium_bin2hex(ret_digest, POLICY_DIGEST_HEX + 1, hash, sizeof(hash));
	*ret_text = TAKE_PTR(text);
	return 0;
}
