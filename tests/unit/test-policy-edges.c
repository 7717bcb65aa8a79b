/* SPDX-License-Identifier: Apache-2.0 */
/* Every limit of `secrets` and `egress.http`: the last value that is read, and the message of the
 * next one. */
#include "test-policy.h"

#define EGRESS "egress: {domains: [h.example.org]"
#define RULE   AGENT EGRESS ", http: [{host: h.example.org, "
#define SECRET AGENT EGRESS "}\nsecrets: {S: {hosts: [h.example.org], "

/* `text` has one error, with this key and message; NULL: it has none. */
static void says(const char *text, const char *key, const char *message)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	struct err e = ERR_INIT;
	size_t found = 0;

	(void)policy_compile_text(&store, "t.yaml", text, strlen(text), &d, &p, &e);
	for (size_t i = 0; i < d.n; i++)
		if (d.list[i].level == DIAG_ERROR) {
			if (!message)
				fail_msg("%s: %s", d.list[i].key, d.list[i].text);
			assert_string_equal(d.list[i].key, key);
			assert_string_equal(d.list[i].text, message);
			found++;
		}
	assert_int_equal(found, message ? 1 : 0);
	assert_int_equal(p != NULL, message == NULL);
}

struct edge {
	const char *head, *item, *tail; /* `item` comes `most` times, with a number for each %zu */
	size_t most;
	const char *key, *message; /* with one more */
};

static void check(const struct edge *x, size_t n, bool is_good)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	const char *number = strstr(x->item, "#");

	(void)buf_puts(&b, x->head);
	for (size_t i = 0; i < n; i++)
		if (number)
			(void)buf_printf(&b, "%.*s%zu%s", (int)(number - x->item), x->item, i,
					 number + 1);
		else
			(void)buf_puts(&b, x->item);
	assert_int_equal(buf_puts(&b, x->tail), 0);
	says(b.data, x->key, is_good ? NULL : x->message);
}

TEST(lists_and_texts)
{
	static const struct edge edges[] = {
		{ AGENT EGRESS ", http: [", "{host: h.example.org, paths: [/p#]},", "]}", 1024,
		  "egress.http[1024]", "more than 1024 rules on requests" },
		{ RULE "paths: [", "/p#,", "]}]}", 256, "egress.http[0].paths[256]",
		  "more than 256 paths" },
		{ RULE "methods: [", "M#,", "]}]}", 16, "egress.http[0].methods[16]",
		  "more than 16 methods" },
		{ RULE "methods: [", "M", "]}]}", 24, "egress.http[0].methods[0]",
		  "'MMMMMMMMMMMMMMMMMMMMMMMMM': a method has 25 bytes, at most 24" },
		{ RULE "paths: [/", "p", "]}]}", 1023, "egress.http[0].paths[0]",
		  "'/ppppppppppppppppppppppppppppppppppppppp': a path has 1025 bytes, at most "
		  "1024" },
		{ SECRET "paths: [", "/p#,", "]}}", 256, "secrets.S.paths[256]",
		  "more than 256 paths" },
		{ SECRET "form: header, header: X", "h", "}}", 63, "secrets.S.header",
		  "text of 65 bytes, at most 64" },
		{ SECRET "form: header, header: X-Key, format: '{}", "f", "'}}", 254,
		  "secrets.S.format", "text of 257 bytes, at most 256" },
		{ SECRET "form: basic, user: ", "u", "}}", 128, "secrets.S.user",
		  "text of 129 bytes, at most 128" },
		{ SECRET "form: query, parameter: ", "p", "}}", 64, "secrets.S.parameter",
		  "text of 65 bytes, at most 64" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
		check(&edges[i], edges[i].most, true);
		check(&edges[i], edges[i].most + 1, false);
	}
}

TEST(numbers)
{
	static const struct {
		const char *value, *key, *message;
	} cases[] = {
		{ "rate: 1", NULL, NULL },
		{ "rate: 1000000", NULL, NULL },
		{ "rate: 1000001", "rate", "'1000001' is out of range: from 1 to 1000000" },
		{ "rate: 18446744073709551615", "rate",
		  "'18446744073709551615' is out of range: from 1 to 1000000" },
		{ "max_body: 1KiB", NULL, NULL },
		{ "max_body: 1TiB", NULL, NULL },
		{ "max_body: 1024GiB", NULL, NULL },
		{ "max_body: 1025GiB", "max_body", "'1025GiB' is out of range: from 1B to 1TiB" },
		/* The last one below 2^64, and that. */
		{ "max_body: 16777215TiB", "max_body",
		  "'16777215TiB' is out of range: from 1B to 1TiB" },
		{ "max_body: 16777216TiB", "max_body",
		  "'16777216TiB' is out of range: from 1B to 1TiB" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[256], key[64];

		(void)snprintf(text, sizeof(text), RULE "%s}]}", cases[i].value);
		(void)snprintf(key, sizeof(key), "egress.http[0].%s",
			       cases[i].key ? cases[i].key : "");
		says(text, key, cases[i].message);
	}
}

#define LABEL "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" /* 63 bytes */
#define LONGEST                       \
	LABEL "." LABEL "." LABEL "." \
	      "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" /* 253 bytes */
#define SHOWN "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

TEST(names_of_hosts)
{
	static_assert(sizeof(LONGEST) - 1 == NAME_TEXT_MAX, "the longest name");
	says(AGENT "egress: {domains: [" LONGEST "], http: [{host: " LONGEST "}]}\n"
		   "secrets: {S: {hosts: [" LONGEST "]}}",
	     NULL, NULL);
	says(RULE "methods: [GET]}, {host: n" LONGEST "}]}", "egress.http[1].host",
	     "'n" SHOWN "' is not a host: the name has 254 bytes, at most 253");
	says(AGENT EGRESS "}\nsecrets: {S: {hosts: [n" LONGEST "]}}", "secrets.S.hosts[0]",
	     "'n" SHOWN "' is not the name of a host: the name has 254 bytes, at most 253");
}
