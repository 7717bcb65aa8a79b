/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/explain-http.h"
#include "test-policy.h"

struct asked {
	struct policy_store store;
	struct policy *p;
	struct explanation x;
};

static void asked_done(struct asked *a)
{
	(void)policy_free(a->p);
	policy_store_done(&a->store);
}

#define _cleanup_asked_ _cleanup_(asked_done)

static const char agent[] = AGENT "egress:\n"
				  "  presets: [site]\n"
				  "  ports: [80, 443]\n"
				  "  domains:\n"
				  "    - a.example.org\n"
				  "    - .b.example.org:22\n"
				  "    - c.b.example.org:8443\n"
				  "    - relay.example.com:443\n"
				  "    - 9.9.9.0/24\n"
				  "  deny:\n"
				  "    - no.b.example.org\n"
				  "    - a.example.org:80\n";

static void ask(struct asked *a, const char *where)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct target t;
	struct err e = ERR_INIT;

	a->store = (struct policy_store)SMALL_STORE(NULL);
	assert_int_equal(
		policy_compile_text(&a->store, "t.yaml", agent, strlen(agent), &d, &a->p, &e), 0);
	assert_int_equal(target_parse(where, strlen(where), &t, &e), 0);
	assert_int_equal(policy_explain(a->p, &a->store, &t, &a->x, &e), 0);
}

/* "t.yaml:6", with a '*' if the port is the file's default. */
static void assert_origin(const struct origin *o, const char *want)
{
	char text[200] = "";

	if (o)
		(void)snprintf(text, sizeof(text), "%s:%u%s", o->pos.src->label, o->pos.line,
			       o->default_port ? "*" : "");
	assert_string_equal(text, want);
	assert_true(!o || o->file->src == o->pos.src);
}

TEST(explanations)
{
	static const struct {
		const char *where;
		bool allowed;
		const char *allow, *deny, *ports, *presets;
	} cases[] = {
		{ "a.example.org:443", true, "t.yaml:6*", "", "", "" },
		{ "x.b.example.org:22", true, "t.yaml:7", "", "", "" },
		{ "www.example.org:443", true, "presets/egress/site.yaml:2*", "", "", "" },
		{ "9.9.9.9:443", true, "t.yaml:10*", "", "", "" },
		/* a rule against it, over one for it */
		{ "a.example.org:80", false, "t.yaml:6*", "t.yaml:13", "", "" },
		{ "no.b.example.org:22", false, "t.yaml:7", "t.yaml:12", "", "" },
		{ "no.b.example.org:443", false, "", "t.yaml:12", "", "" },
		{ "ads.static.example.org:443", false, "presets/egress/site.yaml:2*",
		  "presets/egress/site.yaml:3", "", "" },
		{ "x.metadata.example.com:443", false, "", "presets/egress/floor.yaml:2", "", "" },
		{ "relay.example.com:22", false, "", "presets/egress/floor.yaml:2", "", "" },
		/* no rule at all */
		{ "nobody.example.net:443", false, "", "", "", "" },
		{ "8.8.8.8:443", false, "", "", "", "" },
		/* the same host on another port; the denied port is not named */
		{ "a.example.org:8080", false, "", "", "443 ", "" },
		{ "c.b.example.org:443", false, "", "", "22 8443 ", "" },
		{ "relay.example.com:80", false, "", "", "443 ", "" },
		{ "9.9.9.9:53", false, "", "", "80 443 ", "" },
		/* presets that would allow it */
		{ "mail.example.org:465", false, "", "", "", "mail " },
		{ "mail.example.org:443", false, "", "", "", "" },
		{ "web.mail.example.org:443", false, "", "", "", "mail " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_asked_ struct asked a = { 0 };
		_cleanup_buf_ struct buf ports = BUF_INIT(1000), presets = BUF_INIT(1000);

		ask(&a, cases[i].where);
		assert_int_equal(a.x.verdict.allowed, cases[i].allowed);
		assert_origin(a.x.allow, cases[i].allow);
		assert_origin(a.x.deny, cases[i].deny);
		for (size_t k = 0; k < a.x.n_ports; k++)
			(void)buf_printf(&ports, "%u ", a.x.ports[k]);
		assert_string_equal(buf_text(&ports), cases[i].ports);
		for (size_t k = 0; k < a.x.n_presets; k++)
			(void)buf_printf(&presets, "%s ", a.x.presets[k]);
		assert_string_equal(buf_text(&presets), cases[i].presets);
	}
}

TEST(lists_have_a_limit)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = NULL;
	struct explanation x;
	struct target t;
	struct err e = ERR_INIT;

	p = compiled(&store, AGENT "egress: {domains: [a.example.org], ports: [1,2,3,4,5,6,7,8,9,"
				   "10,11,12,13,14,15,16,17,18]}\n");
	assert_int_equal(target_parse("a.example.org:99", 16, &t, &e), 0);
	assert_int_equal(policy_explain(p, &store, &t, &x, &e), 0);
	assert_int_equal(x.n_ports, EXPLAIN_MAX);
	assert_int_equal(x.ports[15], 16);
}

/* A preset that does not compile is not suggested, and does not affect the others. */
TEST(presets_that_are_wrong)
{
	static const struct builtin_file files[] = {
		BUILTIN("presets/egress/broken.yaml",
			"preset: {kind: egress, name: broken, summary: S}\n"
			"domains: [x.example.net, '*']\n"),
		FLOOR_FILE,
		BUILTIN("presets/egress/good.yaml",
			"preset: {kind: egress, name: good, summary: S}\n"
			"domains: [x.example.net]\n"),
	};
	_cleanup_store_ struct policy_store store =
		POLICY_STORE_INIT(files, ARRAY_SIZE(files), NULL);
	_cleanup_policy_ struct policy *p = compiled(&store, AGENT);
	struct explanation x;
	struct target t;
	struct err e = ERR_INIT;

	assert_int_equal(target_parse("x.example.net:443", 17, &t, &e), 0);
	assert_int_equal(policy_explain(p, &store, &t, &x, &e), 0);
	assert_int_equal(x.n_presets, 1);
	assert_string_equal(x.presets[0], "good");
}

static const char http_agent[] =
	AGENT "egress:\n"
	      "  domains: [api.example.org, 'api.example.org:80', .files.example.org]\n"
	      "  http:\n"
	      "    - {host: api.example.org, methods: [GET, HEAD], paths: [/repos/**]}\n"
	      "    - {host: api.example.org, paths: [/repos/x/**], deny: true}\n"
	      "secrets:\n"
	      "  A: {hosts: [api.example.org], paths: [/repos/a/**]}\n"
	      "  B: {hosts: [api.example.org, a.files.example.org], paths: [/repos/a/b, /f]}\n";

/* "+5 A B": allowed by the rule of line 5, with both secrets; "-~5": denied, and that rule is the
 * nearest. */
static void assert_request(struct policy *p, struct policy_store *store, const char *text,
			   const char *want)
{
	struct request_explanation x;
	struct err e = ERR_INIT;
	char got[128] = "";
	struct request r;
	size_t n;

	assert_int_equal(request_parse(text, &r, &e), 0);
	assert_int_equal(policy_explain_request(p, store, &r, &x, &e), 0);
	n = (size_t)snprintf(got, sizeof(got), "%s", x.allowed ? "+" : "-");
	if (x.rule)
		n += (size_t)snprintf(got + n, sizeof(got) - n, "%u", x.rule->pos.line);
	if (x.near)
		n += (size_t)snprintf(got + n, sizeof(got) - n, "~%u", x.near->pos.line);
	for (size_t i = 0; i < x.n_secrets; i++)
		n += (size_t)snprintf(got + n, sizeof(got) - n, " %s", x.secrets[i]->name);
	if (!str_eq(got, want))
		fail_msg("%s: '%s', not '%s'", text, got, want);
}

TEST(requests)
{
	static const struct unit_row rows[] = {
		{ "GET api.example.org/repos/a", "+5 A" },
		{ "GET https://api.example.org/repos/a/c?x=1#y", "+5 A" },
		{ "HEAD API.example.org:443/repos/a/b", "+5 A B" },
		{ "GET http://api.example.org/repos/a/b", "+5" },
		{ "GET api.example.org/repos/z", "+5" },
		{ "POST api.example.org/repos/z", "-~5" },
		{ "GET api.example.org", "-~5" },
		{ "GET api.example.org/repos/x/y", "-6" },
		{ "PUT a.files.example.org/f", "+ B" },
		{ "PUT a.files.example.org/g?", "+" },
		{ "GET nowhere.example.org/f", "-" },
		{ "GET api.example.org:8443/repos/a", "-5" },
	};
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(
		policy_compile_text(&store, "t.yaml", http_agent, strlen(http_agent), &d, &p, &e),
		0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_request(p, &store, rows[i].given, rows[i].wanted);
}

TEST(no_requests)
{
	static const struct unit_row rows[] = {
		{ "GET", "expected METHOD HOST/PATH" },
		{ " api.example.org/", "a method is empty" },
		{ "get api.example.org/", "a method is in upper case, such as GET" },
		{ "GET  api.example.org/",
		  "byte 0x20 at 1: a name has letters, digits, hyphens and dots" },
		{ "GET api.example.org/a/../b",
		  "Hutch refuses a request of this path: a path has a segment '.' or '..'" },
		{ "GET api.example.org:0/", "the port is a number from 1 to 65535" },
		{ "GET 192.0.2.7/", "" },
		{ "GET /", "" },
	};
	struct err e = ERR_INIT;
	struct request r;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(request_parse(rows[i].given, &r, &e), -EINVAL);
		if (rows[i].wanted[0])
			assert_string_equal(e.msg, rows[i].wanted);
	}
}
