/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/plan-tap.h"

#include <sys/stat.h>

#include "fail.h"
#include "image/ids.h"
#include "image/image-store.h"
#include "sandbox/sandbox.h"
#include "sandbox/spares.h"
#include "secret/change.h"
#include "tap/config.h"
#include "test-policy.h"

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct builtin_file files[] = {
	BUILTIN("agents/keys.yaml",
		"agent: {name: keys, type: test}\n"
		"egress:\n"
		"  domains: [api.example.org, s3.example.org, .web.example.org]\n"
		"  http:\n"
		"    - {host: .web.example.org, methods: [GET], paths: [/a/**], rate: 60}\n"
		"    - {host: api.example.org, paths: [/admin/**], deny: true}\n"
		"secrets:\n"
		"  GITHUB_TOKEN: {hosts: [api.example.org], paths: [/**]}\n"
		"  PLAIN: {hosts: [s3.example.org], header: X-Key, paths: [/x]}\n"
		"  STORE: {hosts: [s3.example.org], form: aws, paths: [/bucket/**]}\n"
		"  MAYBE: {hosts: [other.web.example.org], optional: true}\n"
		"env: {PIP_CERT: mine}\n"),
	BUILTIN("agents/models.yaml", "agent: {name: models, type: test}\n"
				      "egress:\n"
				      "  domains: [api.anthropic.com, llm.example.org]\n"
				      "llm:\n"
				      "  - {provider: anthropic, models: [a-*, b], secret: PLAIN, "
				      "budget: {tokens: 7, usd: 0.5}}\n"
				      "  - {provider: openai-compatible, hosts: [llm.example.org], "
				      "price: {input: 1, output: 2.5}}\n"),
	BUILTIN("agents/plain.yaml", "agent: {name: plain, type: test}\n"),
	BUILTIN("agents/rules.yaml", "agent: {name: rules, type: test}\n"
				     "egress:\n"
				     "  domains: [api.example.org]\n"
				     "  http: [{host: api.example.org, max_body: 1KiB}]\n"),
	FLOOR_FILE,
	BUILTIN("prices/llm.yaml", "prices:\n"
				   "  - {model: a-1, input: 3, cached: 2, output: 5}\n"
				   "  - {model: a-*, input: 10, cache_write: 11, output: 12}\n"),
};

#define STORE POLICY_STORE_INIT(files, ARRAY_SIZE(files), NULL)

static void set_secret(const char *name)
{
	const struct secret_origin origin = { .source = SECRET_STDIN };
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	_cleanup_buf_ struct buf value = BUF_INIT(64);
	struct err e = ERR_INIT;

	assert_int_equal(buf_puts(&value, "correct-horse-battery"), 0);
	assert_int_equal(secret_store_open(true, &s, &e), 0);
	assert_int_equal(secret_set(&s, name, &value, &origin, SECRET_NEW, &e), 0);
}

static int setup(void **state)
{
	static const char image[] =
		"{\"name\":\"base\",\"sha256\":\"" HEX_A
		"\",\"env\":{\"SSL_CERT_FILE\":\"/image\",\"PLAIN\":\"image\"}}";
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	struct err e = ERR_INIT;
	struct id_ranges ids;
	struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	if (setenv("HUTCH_STATE_DIR", d->path, 1) < 0 || image_store_open(&s, true, &e) < 0)
		return -1;
	(void)mkdirat(d->fd, "images/trees/sha256-" HEX_A, 0700);
	unit_dir_write(d, "images/trees/sha256-" HEX_A "/meta.json", "{}", 2);
	unit_dir_write(d, "images/names/base.json", image, strlen(image));
	return ids_find(&ids, &e) < 0 ? -1 : 0;
}

static int plan(const struct sandbox_options *o, struct spec *ret, struct err *e)
{
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_diags_ struct diags d = { 0 };
	int r = sandbox_plan(&store, o, &d, ret, e);

	assert_int_equal(d.errors, 0);
	return r;
}

static void plan_keys(struct spec *ret)
{
	struct err e = ERR_INIT;

	if (plan(&(struct sandbox_options){ .agent = "keys" }, ret, &e) < 0)
		fail_msg("%s", e.msg);
}

static void set_all(void)
{
	set_secret("GITHUB_TOKEN");
	set_secret("PLAIN");
	set_secret("STORE");
}

static const char *variable(const struct spec *s, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < s->env.n; i++)
		if (strncmp(s->env.v[i], name, n) == 0 && s->env.v[i][n] == '=')
			return s->env.v[i] + n + 1;
	return NULL;
}

/* A shape: "ghp_" and 36 more of the letters. */
static void assert_shape(const char *text, const char *prefix, size_t n, const char *letters)
{
	assert_non_null(text);
	assert_true(str_has_prefix(text, prefix));
	text += strlen(prefix);
	assert_int_equal(strlen(text), n);
	assert_int_equal(strspn(text, letters), n);
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz0123456789"
#define LETTER LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static const char *placeholder(const struct spec *s, size_t i)
{
	static char text[200];
	struct err e = ERR_INIT;
	_cleanup_json_ json_t *j = NULL;

	assert_int_equal(json_read(s->tap, strlen(s->tap), &j, &e), 0);
	(void)snprintf(text, sizeof(text), "%s",
		       json_string_value(json_object_get(
			       json_array_get(json_object_get(j, "secrets"), i), "placeholder")));
	return text;
}

TEST_WITH(nothing_without_secrets_and_rules, setup, unit_dir_teardown)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(plan(&(struct sandbox_options){ .agent = "plain" }, &s, &e), 0);
	assert_string_equal(s.tap, "");
	assert_string_equal(s.tap_roots, "");
	assert_int_equal(s.tap_hosts.n + s.tap_secrets.n, 0);
	assert_string_equal(variable(&s, "SSL_CERT_FILE"), "/image");
	assert_null(variable(&s, "NODE_EXTRA_CA_CERTS"));
	text = spec_write(&s);
	assert_null(strstr(text, "tap"));
}

TEST_WITH(rules_without_secrets, setup, unit_dir_teardown)
{
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(plan(&(struct sandbox_options){ .agent = "rules" }, &s, &e), 0);
	assert_string_equal(s.tap, "{\n"
				   "  \"http\": [\n"
				   "    {\n"
				   "      \"at\": \"rules.yaml:4\",\n"
				   "      \"deny\": false,\n"
				   "      \"host\": \"api.example.org\",\n"
				   "      \"max_body\": 1024,\n"
				   "      \"methods\": [],\n"
				   "      \"paths\": [],\n"
				   "      \"rate\": 0\n"
				   "    }\n"
				   "  ],\n"
				   "  \"secrets\": []\n"
				   "}");
	assert_int_equal(s.tap_hosts.n, 1);
	assert_int_equal(s.tap_secrets.n, 0);
	assert_string_equal(variable(&s, "SSL_CERT_FILE"), "/etc/hutch/bundle.pem");
}

TEST_WITH(a_plan_with_secrets, setup, unit_dir_teardown)
{
	static const char *const hosts[] = { "api.example.org", "s3.example.org",
					     ".web.example.org" };
	static const char *const secrets[] = { "GITHUB_TOKEN", "PLAIN", "STORE" };
	static const char *const first = "{\n"
					 "      \"form\": \"bearer\",\n"
					 "      \"format\": \"\",\n"
					 "      \"header\": \"\",\n"
					 "      \"hosts\": [\n"
					 "        \"api.example.org\"\n"
					 "      ],\n"
					 "      \"name\": \"GITHUB_TOKEN\",\n"
					 "      \"parameter\": \"\",\n"
					 "      \"paths\": [\n"
					 "        \"/**\"\n"
					 "      ],\n"
					 "      \"placeholder\": \"ghp_";
	_cleanup_spec_ struct spec s = { 0 }, other = { 0 };

	set_all();
	plan_keys(&s);
	assert_int_equal(s.tap_hosts.n, ARRAY_SIZE(hosts));
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++)
		assert_string_equal(s.tap_hosts.v[i], hosts[i]);
	assert_int_equal(s.tap_secrets.n, ARRAY_SIZE(secrets));
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
		assert_string_equal(s.tap_secrets.v[i], secrets[i]);
	assert_non_null(strstr(s.tap, first));
	assert_non_null(strstr(s.tap, "\"format\": \"{}\",\n      \"header\": \"X-Key\""));
	assert_shape(variable(&s, "GITHUB_TOKEN"), "ghp_", 36, LETTER);
	assert_shape(variable(&s, "PLAIN"), "hutch-placeholder-", 24, LOWER);
	assert_shape(variable(&s, "AWS_ACCESS_KEY_ID"), "AKIA", 16,
		     "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
	assert_shape(variable(&s, "AWS_SECRET_ACCESS_KEY"), "", 40, LETTER);
	assert_null(variable(&s, "STORE"));
	assert_null(variable(&s, "MAYBE"));
	assert_string_equal(variable(&s, "GITHUB_TOKEN"), placeholder(&s, 0));
	assert_string_equal(variable(&s, "PLAIN"), placeholder(&s, 1));
	assert_string_equal(variable(&s, "AWS_ACCESS_KEY_ID"), placeholder(&s, 2));
	/* The policy's variables win over those for the CA, which win over the image's. */
	assert_string_equal(variable(&s, "PIP_CERT"), "mine");
	assert_string_equal(variable(&s, "SSL_CERT_FILE"), "/etc/hutch/bundle.pem");
	assert_string_equal(variable(&s, "NODE_EXTRA_CA_CERTS"), "/etc/hutch/ca.pem");
	/* Each sandbox has its own. */
	plan_keys(&other);
	assert_string_not_equal(variable(&s, "GITHUB_TOKEN"), variable(&other, "GITHUB_TOKEN"));
	assert_string_equal(s.policy, other.policy);
}

/* hutch-tap reads the plan's part as the warden completes it; takes `values`. */
static void read_as_tap(const struct spec *s, json_t *values, const char *roots,
			struct tap_config *ret)
{
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(json_read(s->tap, strlen(s->tap), &j, &e), 0);
	assert_int_equal(json_put(j, "values", values), 0);
	assert_int_equal(json_put(j, "roots", json_string(roots)), 0);
	assert_int_equal(json_put(j, "ca", json_pack("{s:s, s:s}", "cert", "c", "key", "k")), 0);
	text = json_write_line(j);
	assert_in_range(strlen(text), 1, TAP_CONFIG_MAX);
	if (tap_config_parse(text, strlen(text), ret, &e) < 0)
		fail_msg("%s", e.msg);
}

TEST_WITH(hutch_tap_reads_it, setup, unit_dir_teardown)
{
	_cleanup_spec_ struct spec s = { 0 };
	struct tap_config c = { 0 };

	set_all();
	plan_keys(&s);
	read_as_tap(&s, json_pack("{s:s}", "PLAIN", "value"), "", &c);
	assert_int_equal(c.n_secrets, 3);
	assert_int_equal(c.n_http, 2);
	assert_int_equal(c.secrets[0].form, SECRET_BEARER);
	assert_int_equal(c.secrets[1].form, SECRET_HEADER);
	assert_string_equal(c.secrets[1].value, "value");
	assert_string_equal(c.secrets[1].placeholder, variable(&s, "PLAIN"));
	assert_int_equal(c.secrets[2].form, SECRET_AWS);
	assert_int_equal(c.http[0].rate, 60);
	assert_string_equal(c.http[0].at, "keys.yaml:5");
	assert_true(c.http[1].deny);
	tap_config_done(&c);
}

/* A rule on models: its secret as the provider wants it, budgets, prices. */
TEST_WITH(hutch_tap_reads_models, setup, unit_dir_teardown)
{
	_cleanup_spec_ struct spec s = { 0 };
	struct tap_config c = { 0 };
	struct err e = ERR_INIT;

	set_secret("PLAIN");
	if (plan(&(struct sandbox_options){ .agent = "models" }, &s, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(s.tap_hosts.n, 2);
	assert_non_null(variable(&s, "PLAIN"));
	read_as_tap(&s, json_object(), "", &c);
	assert_int_equal(c.n_secrets, 1);
	assert_int_equal(c.secrets[0].form, SECRET_HEADER);
	assert_string_equal(c.secrets[0].header, "x-api-key");
	assert_string_equal(c.secrets[0].hosts.v[0], "api.anthropic.com");
	assert_string_equal(c.secrets[0].paths.v[0], "/v1/messages");
	assert_int_equal(c.n_llm, 2);
	assert_int_equal(c.llm[0].provider, LLM_ANTHROPIC);
	assert_int_equal(c.llm[0].models.n, 2);
	assert_int_equal(c.llm[0].tokens, 7);
	assert_int_equal(c.llm[0].usd, 500000);
	assert_int_equal(c.llm[0].requests, 0);
	assert_false(c.llm[0].has_price);
	assert_string_equal(c.llm[0].at, "models.yaml:5");
	assert_int_equal(c.llm[1].provider, LLM_COMPATIBLE);
	assert_false(tap_llm_has_budget(&c.llm[1]));
	assert_true(c.llm[1].has_price);
	assert_int_equal(c.llm[1].price.cached, 1000000);
	assert_int_equal(c.llm[1].price.output, 2500000);
	/* A price that is not listed is that of the input. */
	assert_int_equal(c.n_prices, 2);
	assert_int_equal(c.prices[0].cached, 2);
	assert_int_equal(c.prices[0].cache_write, 3);
	assert_int_equal(c.prices[1].cached, 10);
	assert_int_equal(c.prices[1].cache_write, 11);
	tap_config_done(&c);
}

TEST_WITH(a_missing_value, setup, unit_dir_teardown)
{
	struct spec s = { 0 };
	struct err e = ERR_INIT;

	set_secret("GITHUB_TOKEN");
	set_secret("STORE");
	assert_int_equal(plan(&(struct sandbox_options){ .agent = "keys" }, &s, &e), -ENOKEY);
	assert_string_equal(e.msg,
			    "secret 'PLAIN' has no value: set it with 'hutch secret set PLAIN'");
}

TEST_WITH(an_optional_value, setup, unit_dir_teardown)
{
	_cleanup_spec_ struct spec s = { 0 };

	set_all();
	set_secret("MAYBE");
	plan_keys(&s);
	assert_int_equal(s.tap_secrets.n, 4);
	assert_non_null(variable(&s, "MAYBE"));
}

TEST_WITH(variables_of_the_user, setup, unit_dir_teardown)
{
	static const char *const given[] = { "PLAIN=x", "STORE=y", "SSL_CERT_FILE=/z", NULL };
	static const char *const aws[] = { "AWS_SECRET_ACCESS_KEY=x", NULL };
	struct sandbox_options o = { .agent = "keys", .env = given };
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	set_all();
	assert_int_equal(plan(&o, &s, &e), -EINVAL);
	assert_string_equal(e.msg,
			    "cannot set PLAIN: agent 'keys' has the secret 'PLAIN', whose value "
			    "stays outside the sandbox; do not pass it, or use another agent");
	o.env = given + 1;
	assert_int_equal(plan(&o, &s, &e), 0);
	assert_string_equal(variable(&s, "SSL_CERT_FILE"), "/z");
	assert_string_equal(variable(&s, "STORE"), "y");
	assert_int_equal(sandbox_check_env(&s, given, 1, &e), -EINVAL);
	assert_int_equal(sandbox_check_env(&s, given + 1, 2, &e), 0);
	assert_int_equal(sandbox_check_env(&s, aws, 1, &e), -EINVAL);
}

/* A saved VM has the placeholders in its memory. */
TEST_WITH(a_saved_one_keeps_its_placeholders, setup, unit_dir_teardown)
{
	static const char *const names[] = { "GITHUB_TOKEN", "PLAIN", "AWS_ACCESS_KEY_ID",
					     "AWS_SECRET_ACCESS_KEY" };
	_cleanup_arena_ struct arena a = ARENA_INIT;
	_cleanup_spec_ struct spec was = { 0 }, now = { 0 };
	struct spec s, blank;

	set_all();
	plan_keys(&was);
	set_secret("MAYBE");
	plan_keys(&now);
	s = now;
	assert_int_equal(plan_tap_fill(&was, &a, &s), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_string_equal(variable(&s, names[i]), variable(&was, names[i]));
	for (size_t i = 0; i < 3; i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), "%s", placeholder(&was, i));
		assert_string_equal(placeholder(&s, i), text);
	}
	/* One that it did not have is new. */
	assert_shape(variable(&s, "MAYBE"), "hutch-placeholder-", 24, LOWER);
	assert_string_not_equal(variable(&s, "MAYBE"), variable(&now, "MAYBE"));
	blank = s;
	assert_int_equal(plan_tap_blank(&a, &blank), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_string_equal(variable(&blank, names[i]), "");
	assert_string_equal(placeholder(&blank, 0), "");
	assert_int_equal(plan_tap_fill(NULL, &a, &blank), 0);
	assert_shape(variable(&blank, "GITHUB_TOKEN"), "ghp_", 36, LETTER);
	assert_string_equal(variable(&blank, "GITHUB_TOKEN"), placeholder(&blank, 0));
}

/* ---- the largest plan ---- */

enum {
	RULES = 1024,
	ROOTS = 1024 * 1024, /* of host.yaml */
};

static void put_times(struct buf *b, char c, size_t n)
{
	while (n-- > 0)
		(void)buf_putc(b, c);
}

/* A name of 64 bytes. */
static void name_of(size_t i, char out[static SECRET_NAME_MAX + 1])
{
	memset(out, 'N', SECRET_NAME_MAX);
	(void)snprintf(out + SECRET_NAME_MAX - 3, 4, "_%02zu", i);
}

/* An agent with every secret and rule that there may be, each rule with two paths of `n` bytes. */
static void write_big(struct buf *b, size_t n)
{
	char name[SECRET_NAME_MAX + 1];

	(void)buf_puts(b, "agent: {name: big, type: test}\negress:\n  domains: [.example.org]\n"
			  "  http:\n");
	for (size_t i = 0; i < RULES; i++) {
		(void)buf_printf(b, "    - {host: h%zu.example.org, rate: 1, paths: [/a", i);
		put_times(b, 'p', n - 2);
		(void)buf_puts(b, ", /b");
		put_times(b, 'p', n - 2);
		(void)buf_puts(b, "]}\n");
	}
	(void)buf_puts(b, "secrets:\n");
	for (size_t i = 0; i < POLICY_SECRETS_MAX; i++) {
		name_of(i, name);
		(void)buf_printf(b, "  %s: {hosts: [s%zu.example.org]}\n", name, i);
	}
	assert_int_equal(b->err, 0);
}

static int plan_big(size_t n, struct spec *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * 1024 * 1024);
	struct builtin_file v[2] = { { "agents/big.yaml", NULL, 0 }, FLOOR_FILE };
	_cleanup_store_ struct policy_store store = POLICY_STORE_INIT(v, 2, NULL);
	_cleanup_diags_ struct diags d = { 0 };
	int r;

	write_big(&b, n);
	v[0].text = b.data;
	v[0].len = b.len;
	r = sandbox_plan(&store, &(struct sandbox_options){ .agent = "big" }, &d, ret, e);
	assert_int_equal(d.errors, 0);
	return r;
}

TEST_WITH(the_largest_plan_reaches_hutch_tap, setup, unit_dir_teardown)
{
	_cleanup_buf_ struct buf value = BUF_INIT(SECRET_VALUE_MAX), roots = BUF_INIT(ROOTS);
	_cleanup_spec_ struct spec s = { 0 }, again = { 0 }, none = { 0 };
	_cleanup_free_ char *text = NULL;
	struct tap_config c = { 0 };
	char name[SECRET_NAME_MAX + 1];
	json_t *values = json_object();
	struct err e = ERR_INIT;

	put_times(&value, '"', SECRET_VALUE_MAX); /* the longest in JSON */
	while (roots.len + 65 <= ROOTS) {
		put_times(&roots, 'r', 64); /* lines as in PEM */
		(void)buf_putc(&roots, '\n');
	}
	for (size_t i = 0; i < POLICY_SECRETS_MAX; i++) {
		name_of(i, name);
		set_secret(name);
		assert_int_equal(json_put(values, name, json_string(buf_text(&value))), 0);
	}
	if (plan_big(840, &s, &e) < 0)
		fail_msg("%s", e.msg);
	assert_in_range(strlen(s.tap), SPEC_TAP_MAX / 10 * 9, SPEC_TAP_MAX);
	text = spec_write(&s);
	assert_non_null(text);
	if (spec_parse(text, strlen(text), &again, &e) < 0)
		fail_msg("%s", e.msg);
	read_as_tap(&again, values, buf_text(&roots), &c);
	assert_int_equal(c.n_secrets, POLICY_SECRETS_MAX);
	assert_int_equal(c.n_http, RULES);
	assert_int_equal(c.http[RULES - 1].rate, 1);
	assert_int_equal(strlen(c.secrets[63].value), SECRET_VALUE_MAX);
	assert_string_equal(c.secrets[63].placeholder, variable(&s, name));
	tap_config_done(&c);
	/* Longer paths. */
	assert_int_equal(plan_big(940, &none, &e), -E2BIG);
	assert_non_null(strstr(e.msg, "of agent 'big' are too large: "));
	assert_non_null(strstr(e.msg, " bytes, at most "));
}

static int make_plan(void)
{
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	return plan(&(struct sandbox_options){ .agent = "keys" }, &s, &e);
}

TEST_WITH(faults, setup, unit_dir_teardown)
{
	set_all();
	FAIL_SWEEP(make_plan());
}
