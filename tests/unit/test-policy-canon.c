/* SPDX-License-Identifier: Apache-2.0 */
/* Equal policies have the same canonical text, and different ones do not. */
#include "test-policy.h"

#include <sodium.h>

#include "base/json-util.h"

static const char golden[] = "{\n"
			     "  \"agent\": {\n"
			     "    \"name\": \"gold\",\n"
			     "    \"type\": \"test\"\n"
			     "  },\n"
			     "  \"capabilities\": {\n"
			     "    \"install_scripts\": [\n"
			     "      \"echo tools\",\n"
			     "      \"echo b\",\n"
			     "      \"echo a\"\n"
			     "    ],\n"
			     "    \"packages\": [\n"
			     "      \"curl\",\n"
			     "      \"git\",\n"
			     "      \"vim\"\n"
			     "    ]\n"
			     "  },\n"
			     "  \"egress\": {\n"
			     "    \"allow\": [\n"
			     "      {\n"
			     "        \"host\": \"a.example.org\",\n"
			     "        \"ports\": [\n"
			     "          80,\n"
			     "          443\n"
			     "        ]\n"
			     "      },\n"
			     "      {\n"
			     "        \"host\": \".a.example.org\",\n"
			     "        \"ports\": [\n"
			     "          22\n"
			     "        ]\n"
			     "      }\n"
			     "    ],\n"
			     "    \"budgets\": {\n"
			     "      \"bytes_in\": 17179869184,\n"
			     "      \"bytes_out\": 268435456,\n"
			     "      \"names\": 512,\n"
			     "      \"streams\": 128,\n"
			     "      \"streams_per_minute\": 1200\n"
			     "    },\n"
			     "    \"deny\": [\n"
			     "      {\n"
			     "        \"host\": \".metadata.example.com\",\n"
			     "        \"ports\": []\n"
			     "      },\n"
			     "      {\n"
			     "        \"host\": \"relay.example.com\",\n"
			     "        \"ports\": [\n"
			     "          22\n"
			     "        ]\n"
			     "      }\n"
			     "    ]\n"
			     "  },\n"
			     "  \"env\": {\n"
			     "    \"A\": \"\\u20AC\",\n"
			     "    \"TOOLS\": \"1\",\n"
			     "    \"WHO\": \"tools\"\n"
			     "  },\n"
			     "  \"filesystem\": {\n"
			     "    \"execute\": [\n"
			     "      \"/\"\n"
			     "    ],\n"
			     "    \"read\": [\n"
			     "      \"/\"\n"
			     "    ],\n"
			     "    \"workspace\": \"/workspace\",\n"
			     "    \"write\": []\n"
			     "  },\n"
			     "  \"isolation\": {\n"
			     "    \"level\": \"container\",\n"
			     "    \"require\": [\n"
			     "      \"kvm\",\n"
			     "      \"seccomp\"\n"
			     "    ]\n"
			     "  },\n"
			     "  \"prompt\": \"Be exact.\\n\\nBe kind.\\n\\nBe brief.\",\n"
			     "  \"resources\": {\n"
			     "    \"cpus_thousandths\": 1500,\n"
			     "    \"disk_bytes\": 2147483648,\n"
			     "    \"idle_ms\": 3600000,\n"
			     "    \"memory_bytes\": 1073741824,\n"
			     "    \"output_bytes\": 16777216,\n"
			     "    \"pids\": 512,\n"
			     "    \"scratch\": \"disk\",\n"
			     "    \"timeout_ms\": 600000,\n"
			     "    \"ttl_ms\": 28800000\n"
			     "  },\n"
			     "  \"schema\": \"hutch.policy/1\",\n"
			     "  \"secrets\": {\n"
			     "    \"KEY\": [\n"
			     "      \"a.example.org\",\n"
			     "      \"b.a.example.org\"\n"
			     "    ]\n"
			     "  }\n"
			     "}\n";

static const char source[] =
	"agent: {name: gold, type: test, summary: Not part of it}\n"
	"isolation: {require: [seccomp, kvm]}\n"
	"resources: {cpus: '1.5'}\n"
	"egress: {ports: [443, 80], domains: [a.example.org, '.a.example.org:22']}\n"
	"capabilities: {presets: [tools], packages: [vim, git], install_scripts: [echo b, echo "
	"a]}\n"
	"filesystem: {write: []}\n"
	"secrets: {KEY: {hosts: [b.a.example.org, a.example.org]}}\n"
	"env: {A: \"\\u20ac\"}\n"
	"prompt: {role: Be exact., presets: [kind, brief]}\n";

TEST(golden_text)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = compile_with(&store, source, "");
	unsigned char hash[crypto_hash_sha256_BYTES];
	char digest[POLICY_DIGEST_HEX + 1], want[POLICY_DIGEST_HEX + 1];
	_cleanup_free_ char *text = NULL;

	assert_int_equal(policy_canonical(p, &text, digest), 0);
	assert_string_equal(text, golden);
	(void)crypto_hash_sha256(hash, (const unsigned char *)golden, strlen(golden));
	assert_string_equal(digest, sodium_bin2hex(want, sizeof(want), hash, sizeof(hash)));
}

TEST(optional_limits_are_written_if_set)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p =
		compile_with(&store,
			     "agent: {name: a, type: t}\n"
			     "resources: {disk_bandwidth: 1MiB, disk_ops: 100}\n",
			     "");
	char digest[POLICY_DIGEST_HEX + 1];
	_cleanup_free_ char *text = NULL;

	assert_int_equal(policy_canonical(p, &text, digest), 0);
	assert_non_null(strstr(text, "    \"disk_bandwidth\": 1048576,\n"));
	assert_non_null(strstr(text, "    \"disk_ops\": 100,\n"));
}

TEST(nested_is_written_if_set)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	static const char *const values[] = { "true", "false" };
	char digests[2][POLICY_DIGEST_HEX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		_cleanup_policy_ struct policy *p = NULL;
		_cleanup_free_ char *text = NULL;
		char agent[128];

		(void)snprintf(agent, sizeof(agent),
			       "agent: {name: a, type: t}\n"
			       "isolation: {level: microvm, nested: %s}\n",
			       values[i]);
		p = compile_with(&store, agent, "");
		assert_int_equal(policy_canonical(p, &text, digests[i]), 0);
		assert_int_equal(strstr(text, "    \"nested\": true,\n") != NULL, i == 0);
		assert_int_equal(strstr(text, "nested") != NULL, i == 0);
	}
	assert_string_not_equal(digests[0], digests[1]);
}

#define BASE AGENT "egress: {domains: [a.example.org]}\n"

/* Keys that are not used, or have their default, change nothing. */
TEST(secrets_and_rules_are_written_if_set)
{
	static const char *const plain[] = {
		BASE "secrets: {K: {hosts: [a.example.org]}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], form: bearer, optional: 'false'}}\n",
	};
	static const char *const other[] = {
		BASE "secrets: {K: {hosts: [a.example.org], optional: true}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], paths: [/a]}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], header: A}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], header: A, format: 'x {}'}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], form: basic, user: u}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], form: query, parameter: u}}\n",
		BASE "secrets: {K: {hosts: [a.example.org], form: aws}}\n",
		AGENT "egress: {domains: [a.example.org], http: [{host: a.example.org}]}\n"
		      "secrets: {K: {hosts: [a.example.org]}}\n",
		AGENT "egress: {domains: [a.example.org], http: [{host: a.example.org, rate: 1}]}\n"
		      "secrets: {K: {hosts: [a.example.org]}}\n",
	};
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	char want[POLICY_DIGEST_HEX + 1], got[ARRAY_SIZE(other)][POLICY_DIGEST_HEX + 1];

	digest_text(&store, plain[0], want);
	digest_text(&store, plain[1], got[0]);
	assert_string_equal(got[0], want);
	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		digest_text(&store, other[i], got[i]);
		assert_string_not_equal(got[i], want);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(got[i], got[k]);
	}
}

static const char golden_rules[] = "    \"http\": [\n"
				   "      {\n"
				   "        \"deny\": false,\n"
				   "        \"host\": \".a.example.org\",\n"
				   "        \"max_body\": 1024,\n"
				   "        \"methods\": [\n"
				   "          \"GET\",\n"
				   "          \"PUT\"\n"
				   "        ],\n"
				   "        \"paths\": [\n"
				   "          \"/a\",\n"
				   "          \"/b\"\n"
				   "        ],\n"
				   "        \"rate\": 5\n"
				   "      }\n"
				   "    ]\n";

static const char golden_secret[] = "    \"K\": {\n"
				    "      \"form\": \"header\",\n"
				    "      \"format\": \"{}\",\n"
				    "      \"header\": \"X-Key\",\n"
				    "      \"hosts\": [\n"
				    "        \"a.example.org\"\n"
				    "      ],\n"
				    "      \"optional\": false,\n"
				    "      \"paths\": [\n"
				    "        \"/x\",\n"
				    "        \"/y\"\n"
				    "      ]\n"
				    "    }\n";

TEST(secrets_and_rules)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = compiled(
		&store,
		AGENT "egress:\n"
		      "  domains: [.a.example.org]\n"
		      "  http: [{host: .A.example.org, methods: [PUT, GET], paths: [/b, /a], "
		      "max_body: 1KiB, rate: 5}]\n"
		      "secrets: {K: {hosts: [a.example.org], header: X-Key, paths: [/y, /x]}}\n");
	char digest[POLICY_DIGEST_HEX + 1];
	_cleanup_free_ char *text = NULL;

	assert_int_equal(policy_canonical(p, &text, digest), 0);
	assert_non_null(strstr(text, golden_rules));
	assert_non_null(strstr(text, golden_secret));
}

TEST(it_is_json)
{
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *again = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(json_read(golden, strlen(golden), &j, &e), 0);
	again = json_write_canonical(j);
	assert_int_equal(strlen(again), strlen(golden) - 1);
	assert_memory_equal(again, golden, strlen(again));
}

/* Heap's algorithm over the top-level keys; every order must give the same digest. */
static void permute(const char **v, size_t n, size_t k, const char *want, size_t *count)
{
	if (k == 1) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
		_cleanup_buf_ struct buf b = BUF_INIT(4096);
		char digest[POLICY_DIGEST_HEX + 1];

		for (size_t i = 0; i < n; i++)
			(void)buf_puts(&b, v[i]);
		digest_text(&store, b.data, digest);
		assert_string_equal(digest, want);
		(*count)++;
		return;
	}
	for (size_t i = 0; i < k; i++) {
		size_t j = k % 2 ? 0 : i;
		const char *t;

		permute(v, n, k - 1, want, count);
		t = v[j];
		v[j] = v[k - 1];
		v[k - 1] = t;
	}
}

TEST(the_order_of_keys_means_nothing)
{
	const char *parts[] = {
		"agent: {name: a, type: t}\n",
		"egress: {domains: [www.example.org], presets: [mail], ports: [80]}\n",
		"env: {B: b, A: a}\n",
		"capabilities: {presets: [tools], packages: [vim]}\n",
		"filesystem: {write: [/b, /a], read: [/]}\n",
	};
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	char want[POLICY_DIGEST_HEX + 1];
	size_t count = 0;

	digest_text(&store,
		    "agent: {type: t, name: a}\n"
		    "filesystem: {read: [/], write: [/a, /b]}\n"
		    "capabilities: {packages: [vim], presets: [tools]}\n"
		    "env: {A: a, B: b}\n"
		    "egress: {ports: [80], presets: [mail], domains: [www.example.org]}\n",
		    want);
	permute(parts, ARRAY_SIZE(parts), ARRAY_SIZE(parts), want, &count);
	assert_int_equal(count, 120);
}

/* Pairs of texts with the same meaning, or not. */
TEST(the_digest_is_of_the_meaning)
{
	static const struct {
		const char *a, *b;
		bool same;
	} cases[] = {
		{ "", "agent: {name: a, type: t, summary: Said}\n", true },
		{ "", AGENT "isolation: {level: container}\n", true },
		{ "", AGENT "egress: {ports: [80]}\n", true },
		{ "", AGENT "egress: {presets: [floor]}\n", true },
		{ "", AGENT "egress: {deny: [.metadata.example.com]}\n", true },
		{ "", AGENT "resources: {timeout: 600s, memory: 1024MiB}\n", true },
		{ "", AGENT "filesystem: {write: [/home, /tmp, /var/tmp, /workspace]}\n", true },
		{ "", AGENT "# said\n", true },
		{ "", "agent: {name: b, type: t}\n", false },
		{ "", "agent: {name: a, type: u}\n", false },
		{ "", AGENT "resources: {timeout: 601s}\n", false },
		{ "", AGENT "filesystem: {write: []}\n", false },
		{ "", AGENT "egress: {deny: [a.example.org]}\n", false },
		{ AGENT "egress: {domains: [b.example.org, a.example.org, b.example.org]}\n",
		  AGENT "egress: {domains: [A.Example.org, 'b.example.org:443']}\n", true },
		{ AGENT "egress: {presets: [site]}\n",
		  AGENT "egress: {domains: [www.example.org, .static.example.org], deny: "
			"[ads.static.example.org]}\n",
		  true },
		{ AGENT "egress: {domains: [a.example.org]}\n",
		  AGENT "egress: {domains: [.a.example.org]}\n", false },
		{ AGENT "capabilities: {packages: [vim, git, vim]}\n",
		  AGENT "capabilities: {packages: [git, vim]}\n", true },
		{ AGENT "capabilities: {install_scripts: [a, b]}\n",
		  AGENT "capabilities: {install_scripts: [b, a]}\n", false },
		{ AGENT "prompt: {presets: [kind, brief]}\n",
		  AGENT "prompt: {presets: [brief, kind]}\n", false },
		{ AGENT "prompt: {role: A, presets: [brief]}\n",
		  AGENT "prompt: {role: \"A\\n\", presets: [brief]}\n", true },
		{ AGENT "env: {A: ''}\n", AGENT, false },
		{ AGENT "egress: {domains: [a.example.org]}\n",
		  AGENT "egress: {domains: ['a.example.org:443/private']}\n", false },
		{ AGENT "egress: {domains: [a.example.org, 'a.example.org:443/private']}\n",
		  AGENT "egress: {domains: ['a.example.org:443/tls/private']}\n", true },
		/* protocols: the port's default or another */
		{ AGENT "egress: {domains: [a.example.org]}\n",
		  AGENT "egress: {domains: ['a.example.org:443/tls']}\n", true },
		{ AGENT "egress: {domains: ['a.example.org:22']}\n",
		  AGENT "egress: {domains: ['a.example.org:22/tls']}\n", false },
		{ AGENT "egress: {domains: ['a.example.org:22/tls', 'a.example.org:22/tcp']}\n",
		  AGENT "egress: {domains: ['a.example.org:22/tls', 'a.example.org:22']}\n", true },
		/* a rule for every port holds one for a single port */
		{ AGENT "egress: {deny: [a.example.org, 'a.example.org:22']}\n",
		  AGENT "egress: {deny: ['a.example.org:22']}\n", false },
		{ AGENT "egress: {deny: ['a.example.org:22', a.example.org]}\n",
		  AGENT "egress: {deny: [a.example.org]}\n", true },
		/* one host, denied and allowed */
		{ AGENT "egress: {deny: ['a.example.org:22'], domains: [a.example.org]}\n",
		  AGENT "egress: {deny: [a.example.org], domains: ['a.example.org:22']}\n", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *text[] = { cases[i].a[0] ? cases[i].a : AGENT, cases[i].b };
		char digest[2][POLICY_DIGEST_HEX + 1];

		for (size_t k = 0; k < 2; k++) {
			_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
			_cleanup_diags_ struct diags d = { 0 };
			_cleanup_policy_ struct policy *p = NULL;
			struct err e = ERR_INIT;

			assert_int_equal(policy_compile_text(&store, "t", text[k], strlen(text[k]),
							     &d, &p, &e),
					 0);
			digest_of(p, digest[k]);
		}
		if (str_eq(digest[0], digest[1]) != cases[i].same)
			fail_msg("%s and %s", text[0], text[1]);
	}
}
