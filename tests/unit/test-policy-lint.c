/* SPDX-License-Identifier: Apache-2.0 */
/* Policies that are legal but unwise, or whose parts are legal only on their own. */
#include "test-policy.h"

/* Level and text of each diagnostic of a compilation, which may have errors; one line each. */
static void assert_lint(const char *text, const char *want)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;
	int r = policy_compile_text(&store, "t", text, strlen(text), &d, &p, &e);

	for (size_t i = 0; i < d.n; i++)
		(void)buf_printf(&b, "%u:%u %c %s\n", d.list[i].pos.line, d.list[i].pos.column,
				 d.list[i].level == DIAG_ERROR ? 'E' : 'W', d.list[i].text);
	assert_string_equal(buf_text(&b), want);
	assert_int_equal(r, strstr(want, " E ") ? -EINVAL : 0);
}

#define DOMAINS(list) AGENT "egress: {domains: [" list "]}\n"

TEST(suffixes)
{
	static const char *const public_ones[] = { ".co.uk",  ".com.au",      ".gov.uk", ".ck",
						   ".foo.ck", ".kawasaki.jp", ".com.br" };
	static const char *const shared_ones[] = { ".github.io",       ".amazonaws.com",
						   ".herokuapp.com",   ".core.windows.net",
						   ".googleapis.com",  ".blogspot.com",
						   ".fastly.net",      ".azure.com",
						   ".s3.amazonaws.com" };
	static const char *const fine[] = { ".example.org",	 ".github.com",
					    "foo.github.io",	 "co.uk",
					    ".bbc.co.uk",	 ".foo.github.io",
					    "amazonaws.com",	 ".www.ck",
					    ".city.kawasaki.jp", ".sub.googleapis.com" };

	for (size_t i = 0; i < ARRAY_SIZE(public_ones); i++) {
		char text[200], want[200];

		(void)snprintf(text, sizeof(text), DOMAINS("%s"), public_ones[i]);
		(void)snprintf(want, sizeof(want),
			       "2:20 E '%s' is a public suffix: anyone can register a name below "
			       "it\n",
			       public_ones[i]);
		if (memchr(public_ones[i] + 1, '.', strlen(public_ones[i] + 1)))
			assert_lint(text, want);
	}
	for (size_t i = 0; i < ARRAY_SIZE(shared_ones); i++) {
		char text[200], want[300];

		(void)snprintf(text, sizeof(text), DOMAINS("%s"), shared_ones[i]);
		(void)snprintf(want, sizeof(want),
			       "2:20 W '%s' is shared by many customers: anyone can get a name "
			       "below it and receive the agent's data\n",
			       shared_ones[i]);
		assert_lint(text, want);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), DOMAINS("%s"), fine[i]);
		assert_lint(text, "");
	}
}

/* Deny rules may be as wide as the author likes. */
TEST(deny_rules_are_not_judged)
{
	assert_lint(AGENT "egress: {deny: [.co.uk, .github.io, 169.254.169.254, 0.0.0.0/0]}\n", "");
}

/* Once for each rule, not for each port; and in every file that contains it. */
TEST(a_rule_is_judged_once)
{
	assert_lint(AGENT "egress: {ports: [80, 443, 8080], domains: [.github.io, .github.io]}\n",
		    "2:44 W '.github.io' is shared by many customers: anyone can get a name "
		    "below it and receive the agent's data\n"
		    "2:56 W '.github.io' is shared by many customers: anyone can get a name "
		    "below it and receive the agent's data\n");
}

TEST(addresses)
{
#define OPENS(class) \
	" is a " class " address: this opens a part of your own network or host to the agent\n"
#define HOLDS                                                                                  \
	" contains a cloud metadata service, which stays denied; this opens the rest of that " \
	"network to the agent\n"
#define PUBLIC " is an address: its owner may change, and no certificate is checked against it\n"
	static const struct {
		const char *rule, *want;
	} cases[] = {
		{ "8.8.8.8", "W '8.8.8.8'" PUBLIC },
		{ "9.0.0.0/8", "W '9.0.0.0/8'" PUBLIC },
		{ "'[2606:4700::1111]:853'", "W '[2606:4700::1111]'" PUBLIC },
		{ "169.254.169.0/24", "W '169.254.169.0/24'" HOLDS },
		{ "'[fd00::/8]'", "W '[fd00::/8]'" HOLDS },
		{ "127.0.0.1", "W '127.0.0.1'" OPENS("loopback") },
		{ "10.1.0.0/16", "W '10.1.0.0/16'" OPENS("private") },
		{ "192.168.0.1", "W '192.168.0.1'" OPENS("private") },
		{ "'[fd00::1]'", "W '[fd00::1]'" OPENS("private") },
		{ "'[fe80::1]'", "W '[fe80::1]'" OPENS("link-local") },
		{ "224.0.0.1", "W '224.0.0.1'" OPENS("multicast") },
		{ "240.0.0.1", "W '240.0.0.1'" OPENS("reserved") },
	};
	static const char *const refused[] = { "169.254.169.254", "100.100.100.200",
					       "168.63.129.16",	  "'[fd00:ec2::254]'",
					       "0.0.0.0/0",	  "0.0.0.0/7",
					       "128.0.0.0/1",	  "'[2000::/3]'",
					       "'[::/0]'" };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[200], want[300];

		(void)snprintf(text, sizeof(text), DOMAINS("%s"), cases[i].rule);
		(void)snprintf(want, sizeof(want), "2:20 %s", cases[i].want);
		assert_lint(text, want);
	}
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), DOMAINS("%s"), refused[i]);
		{
			_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
			_cleanup_diags_ struct diags d = { 0 };
			struct policy *p = NULL;
			struct err e = ERR_INIT;

			assert_int_equal(
				policy_compile_text(&store, "t", text, strlen(text), &d, &p, &e),
				-EINVAL);
			assert_int_equal(d.n, 1);
		}
	}
}

/* Whether text in the environment, a script or the role is recognised as a credential. */
static void assert_credential(const char *text, const char *what)
{
	static const char *const where[] = { AGENT "env:\n  A: \"%s\"\n",
					     AGENT "capabilities:\n  install_scripts: [\"%s\"]\n",
					     AGENT "prompt:\n  role: \"%s\"\n" };
	static const char *const pos[] = { "3:6", "3:21", "3:9" };

	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		char want[200] = "";
		_cleanup_buf_ struct buf b = BUF_INIT(65536);

		(void)buf_puts(&b, where[i]);
		b.len = (size_t)(strchr(b.data, '%') - b.data);
		(void)buf_printf(&b, "%s%s", text, strchr(where[i], '%') + 2);
		if (what)
			(void)snprintf(want, sizeof(want),
				       "%s E looks like %s: no credential goes into a sandbox\n",
				       pos[i], what);
		assert_lint(b.data, want);
	}
}

#define X16 "abcdEFGH0123_-zz"
#define X20 X16 "0123"

TEST(credentials)
{
	assert_credential("ghp_" X20 X16, "a GitHub token");
	assert_credential("gho_" X20 X16, "a GitHub token");
	assert_credential("x=github_pat_" X20 "ab y", "a GitHub token");
	assert_credential("glpat-" X20, "a GitLab token");
	assert_credential("sk-ant-" X20, "an Anthropic key");
	assert_credential("sk-proj-" X20, "an OpenAI key");
	assert_credential("AKIA" X16, "an AWS access key");
	assert_credential("AIza" X20 X16, "a Google API key");
	assert_credential("xoxb-" X20, "a Slack token");
	assert_credential("hf_" X20 X16, "a Hugging Face token");
	assert_credential("npm_" X20 X16, "an npm token");
	assert_credential("pypi-" X20 X20 X16, "a PyPI token");
	assert_credential("-----BEGIN RSA PRIVATE KEY-----", "a private key");
	assert_credential("-----BEGIN PRIVATE KEY-----", "a private key");
	assert_credential("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key");
	assert_credential("https://me:geheim@git.example.org/x", "a password in a URL");
	assert_credential("a://b c://u:p@h", "a password in a URL");
	/* the second one is whole */
	assert_credential("AKIA! AKIA" X16, "an AWS access key");
}

TEST(no_credentials)
{
	assert_credential("ghp_short", NULL);
	assert_credential("AKIA", NULL);
	assert_credential("glpat-" X16 "...", NULL);
	assert_credential("akia" X16, NULL);
	assert_credential("npm_config_cache", NULL);
	assert_credential("AKIA is what the keys of AWS begin with", NULL);
	assert_credential("https://git.example.org:443/a@b", NULL);
	assert_credential("https://me@git.example.org", NULL);
	assert_credential("https://me:$PASSWORD@git.example.org", NULL);
	assert_credential("https://me:@git.example.org", NULL);
	assert_credential("https://", NULL);
	assert_credential("-----BEGIN CERTIFICATE-----", NULL);
}

/* Text that ends where a credential would begin: nothing after it is read. */
TEST(nothing_behind_the_text_is_read)
{
	static const char *const prefix[] = { "ghp_", "AKIA", "-----BEGIN ", "hf_" };

	for (size_t i = 0; i < ARRAY_SIZE(prefix); i++) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
		_cleanup_buf_ struct buf b = BUF_INIT(65536);
		size_t n = strlen(prefix[i]);

		/* As long as a block of the arena, which ends with the text. */
		(void)buf_puts(&b, AGENT "prompt: {role: '");
		for (size_t k = 0; k < 16384 - 1 - n; k++)
			(void)buf_putc(&b, '.');
		assert_int_equal(buf_printf(&b, "%s'}\n", prefix[i]), 0);
		(void)policy_free(compiled(&store, b.data));
	}
}

TEST(secrets)
{
	static const char head[] = AGENT "egress: {domains: [a.example.org, 'b.example.org:80', "
					 ".c.example.org]}\n";
	char text[600];

	(void)snprintf(text, sizeof(text),
		       "%ssecrets: {K: {hosts: [a.example.org, x.c.example.org]}}\n", head);
	assert_lint(text, "");
	(void)snprintf(text, sizeof(text),
		       "%ssecrets:\n  K: {hosts: [b.example.org]}\n  L: {hosts: [d.example.org]}\n"
		       "  M: {hosts: [metadata.example.com]}\n",
		       head);
	assert_lint(
		text,
		"4:15 W bound to b.example.org, which the egress rules allow on port 80 without "
		"TLS: a secret is sent over TLS only\n"
		"5:15 W bound to d.example.org, which the egress rules do not allow\n"
		"6:15 W bound to metadata.example.com, which the egress rules do not allow\n");
	(void)snprintf(text, sizeof(text),
		       "%ssecrets: {K: {hosts: [a.example.org]}}\nenv: {K: x, L: y}\n", head);
	assert_lint(text,
		    "3:11 E also set under env: a name is a secret or a variable, not both\n");
	/* also where a preset sets it */
	(void)snprintf(text, sizeof(text),
		       "%ssecrets: {WHO: {hosts: [a.example.org]}}\n"
		       "capabilities: {presets: [tools]}\n",
		       head);
	assert_lint(text,
		    "3:11 E also set under env: a name is a secret or a variable, not both\n");
}

TEST(ports_of_secrets)
{
	assert_lint(AGENT "egress: {domains: ['a.example.org:8443/tls']}\n"
			  "secrets: {K: {hosts: [a.example.org]}}\n",
		    "");
	assert_lint(AGENT "egress: {domains: ['a.example.org:5000']}\n"
			  "secrets: {K: {hosts: [a.example.org]}}\n",
		    "");
	assert_lint(AGENT "egress: {domains: ['a.example.org:8443/http', b.example.org]}\n"
			  "secrets: {K: {hosts: [a.example.org, b.example.org]}}\n",
		    "3:23 W bound to a.example.org, which the egress rules allow on port 8443 "
		    "without TLS: a secret is sent over TLS only\n");
}

#define SECRETS(text) AGENT "egress: {domains: [a.example.org, b.example.org]}\nsecrets:\n" text

TEST(secrets_of_one_host)
{
	assert_lint(SECRETS("  A: {hosts: [a.example.org], paths: [/a/**]}\n"
			    "  B: {hosts: [a.example.org, b.example.org], paths: [/b]}\n"
			    "  C: {hosts: [b.example.org], paths: [/c]}\n"),
		    "");
	assert_lint(SECRETS("  A: {hosts: [a.example.org], paths: [/a/**]}\n"
			    "  B: {hosts: [b.example.org, a.example.org], paths: [/a/x]}\n"),
		    "5:30 W a.example.org is also bound to A, at t:4: a request without a "
		    "placeholder gets neither\n");
	assert_lint(SECRETS("  A: {hosts: [a.example.org]}\n"
			    "  B: {hosts: [a.example.org], paths: [/a/x]}\n"),
		    "5:15 W a.example.org is also bound to A, at t:4: a request without a "
		    "placeholder gets neither\n");
}

TEST(variables_of_aws)
{
	assert_lint(SECRETS("  A: {hosts: [a.example.org], form: aws}\n"
			    "env: {AWS_SECRET_ACCESS_KEY: ''}\n"),
		    "4:3 E form aws sets AWS_SECRET_ACCESS_KEY, which is also set under env\n");
	assert_lint(SECRETS("  A: {hosts: [a.example.org], form: aws}\n"
			    "  AWS_ACCESS_KEY_ID: {hosts: [b.example.org]}\n"),
		    "5:3 E sets the same variable as secret A: AWS programs have one key\n");
	assert_lint(SECRETS("  AWS_ACCESS_KEY_ID: {hosts: [a.example.org], form: aws}\n"), "");
}

#define HTTP(text)                                                                                 \
	AGENT "egress:\n  domains: [a.example.org, .b.example.org]\n  deny: [no.b.example.org]\n " \
	      " http:\n" text

TEST(rules_on_requests)
{
	assert_lint(HTTP("    - {host: a.example.org, paths: [/a]}\n"
			 "    - {host: .b.example.org}\n"
			 "    - {host: .x.b.example.org, deny: true}\n"
			 "    - {host: .example.org, methods: [PUT], deny: true}\n"
			 "    - {host: b.example.org, methods: [GET], deny: true}\n"),
		    "");
	assert_lint(HTTP("    - {host: c.example.org}\n"
			 "    - {host: .c.example.org}\n"
			 "    - {host: no.b.example.org}\n"),
		    "6:7 W never applies: the egress rules do not allow c.example.org\n"
		    "7:7 W never applies: the egress rules do not allow .c.example.org\n"
		    "8:7 W never applies: the egress rules do not allow no.b.example.org\n");
	/* The later one of two allow rules; the allow rule, wherever the deny rule is. */
	assert_lint(HTTP("    - {host: .b.example.org, methods: [GET, PUT], paths: [/a, /b]}\n"
			 "    - {host: x.b.example.org, methods: [PUT], paths: [/b], rate: 1}\n"
			 "    - {host: a.example.org, paths: [/x]}\n"
			 "    - {host: a.example.org, paths: [/**], deny: true}\n"),
		    "7:7 W never decides: t:6 already allows all of it\n"
		    "8:7 W never decides: t:9 denies all of it\n");
	/* Fewer paths, methods or names. */
	assert_lint(HTTP("    - {host: x.b.example.org, methods: [GET], paths: [/a]}\n"
			 "    - {host: .b.example.org, methods: [GET], paths: [/a]}\n"
			 "    - {host: x.b.example.org, methods: [GET], paths: [/a, /b]}\n"
			 "    - {host: x.b.example.org, methods: [GET]}\n"
			 "    - {host: x.b.example.org, paths: [/a]}\n"),
		    "");
}

TEST(times)
{
	assert_lint(AGENT "resources: {timeout: 2h, ttl: 1h}\n",
		    "2:22 W a command may run longer than the sandbox lives (ttl)\n");
	assert_lint(AGENT "resources: {timeout: 9h}\n",
		    "2:22 W a command may run longer than the sandbox lives (ttl)\n");
	assert_lint(AGENT "resources: {timeout: 1h, ttl: 1h}\n", "");
}

TEST(rules_that_are_overruled)
{
	assert_lint(
		DOMAINS("metadata.example.com"),
		"2:20 W 'metadata.example.com' can never be reached: '.metadata.example.com' is "
		"denied at presets/egress/floor.yaml:2\n");
	assert_lint(AGENT "egress:\n  domains: [a.example.org]\n  deny: [a.example.org]\n",
		    "3:13 W 'a.example.org' can never be reached: 'a.example.org' is denied at "
		    "t:4\n");
	assert_lint(AGENT "egress:\n  domains: [.a.example.org]\n  deny: [.example.org]\n",
		    "3:13 W '.a.example.org' can never be reached: '.example.org' is denied at "
		    "t:4\n");
	assert_lint(AGENT "egress:\n  domains: [a.example.org]\n  deny: ['a.example.org:80']\n",
		    "");
	/* a preset is not the author's mistake */
	assert_lint(AGENT "egress: {presets: [site], deny: [www.example.org]}\n", "");
}

/* A part of the rule still has an effect. */
TEST(rules_that_are_overruled_in_part)
{
	assert_lint(AGENT "egress:\n  domains: [.a.example.org]\n  deny: [a.example.org]\n", "");
	assert_lint(AGENT "egress:\n  domains: [9.1.0.0/16]\n  deny: [9.1.0.0]\n",
		    "3:13 W '9.1.0.0/16' is an address: its owner may change, and no "
		    "certificate is checked against it\n");
	assert_lint(AGENT "egress:\n  ports: [22, 443]\n  domains: [a.example.org]\n"
			  "  deny: ['a.example.org:22']\n",
		    "");
}

TEST(said_once)
{
	assert_lint(AGENT "egress:\n  ports: [22, 443]\n  domains: [a.example.org]\n"
			  "  deny: [a.example.org]\n",
		    "4:13 W 'a.example.org' can never be reached: 'a.example.org' is denied at "
		    "t:5\n");
}

TEST(names_of_credentials)
{
	static const char want[] =
		"2:%d W has the name of a credential; no credential goes into a sandbox\n";
	static const char *const suspicious[] = { "DB_PASSWORD", "api_key", "X_TOKEN_Y", "SECRET" };

	for (size_t i = 0; i < ARRAY_SIZE(suspicious); i++) {
		char text[200], line[200];

		(void)snprintf(text, sizeof(text), AGENT "env: {%s: x}\n", suspicious[i]);
		(void)snprintf(line, sizeof(line), want, 9 + (int)strlen(suspicious[i]));
		assert_lint(text, line);
	}
	assert_lint(AGENT "env: {TOKEN: '', HOME: /x, KEYS: y}\n", "");
	/* one diagnostic for one mistake */
	assert_lint(AGENT "env: {TOKEN: x}\nsecrets: {TOKEN: {hosts: [www.example.org]}}\n"
			  "egress: {presets: [site]}\n",
		    "3:11 E also set under env: a name is a secret or a variable, not both\n");
}
