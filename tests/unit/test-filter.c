/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner of the output filter, with the shipped rules. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/str.h"
#include "filter/filter.h"

enum {
	OUT_MAX = 4 * 1024 * 1024,
	HITS_MAX = 64,
	RULES_WANTED = 150,
};

static struct filter_rules *shipped;
static struct filter *secrets;

static int setup(void **state)
{
	static bool on[FILTER_RULES_MAX];
	_cleanup_buf_ struct buf text = BUF_INIT(FILTER_FILE_MAX);
	struct err e = ERR_INIT;

	if (fd_read_file(AT_FDCWD, HUTCH_RULES, &text, &e) < 0 ||
	    filter_rules_read(text.data, text.len, &shipped, &e) < 0) {
		print_error("%s\n", e.msg);
		return -1;
	}
	for (size_t i = 0; i < shipped->n; i++)
		on[i] = shipped->rule[i].group == FILTER_SECRETS;
	return filter_new(shipped, on, NULL, 0, &secrets, &e);
}

static int teardown(void **state)
{
	secrets = filter_free(secrets);
	shipped = filter_rules_free(shipped);
	return 0;
}

int main(void)
{
	return unit_run(setup, teardown);
}

static struct filter *filter_of(const char *rule, const struct filter_value *values, size_t n)
{
	static bool on[FILTER_RULES_MAX];
	struct filter *f = NULL;
	struct err e = ERR_INIT;

	memset(on, 0, sizeof(on));
	if (rule)
		on[filter_rules_find(shipped, rule)] = true;
	if (filter_new(shipped, on, values, n, &f, &e) < 0)
		fail_msg("%s", e.msg);
	return f;
}

/* ---- one run ---- */

struct run {
	struct buf out;
	unsigned int hits, late;
	char first[FILTER_HIT_NAME_MAX];
};

static void on_hit(void *arg, const char *name, bool late)
{
	struct run *run = arg;

	if (run->hits++ == 0)
		(void)snprintf(run->first, sizeof(run->first), "%s", name);
	run->late += late;
}

static void run_init(struct run *run)
{
	*run = (struct run){ .out = BUF_INIT(OUT_MAX) };
}

static void run_done(struct run *run)
{
	buf_done(&run->out);
}
#define _cleanup_run_ _cleanup_(run_done)

static struct filter_stream *stream_of(struct filter *f, enum filter_action action, struct run *run)
{
	struct filter_stream *s;

	run_init(run);
	s = filter_stream_new(f, action, on_hit, run);
	assert_non_null(s);
	return s;
}

/* Feeds the text in pieces of `step` bytes, the first one of `first`. */
static void run_text(struct filter *f, enum filter_action action, const char *text, size_t n,
		     size_t first, size_t step, struct run *run)
{
	_cleanup_filter_stream_ struct filter_stream *s = stream_of(f, action, run);

	for (size_t at = 0, take; at < n; at += take) {
		_cleanup_free_ char *piece = NULL;

		take = MIN(n - at, at == 0 && first > 0 ? first : step);
		piece = unit_copy(text + at, take);
		assert_int_equal(filter_put(s, piece, take, &run->out), 0);
	}
	assert_int_equal(filter_pause(s, &run->out), 0);
	assert_int_equal(filter_held(s), 0);
}

static void check_out(struct filter *f, enum filter_action action, const char *text,
		      const char *wanted)
{
	_cleanup_run_ struct run run = { 0 };

	run_text(f, action, text, strlen(text), 0, SIZE_MAX, &run);
	assert_string_equal(buf_text(&run.out), wanted);
}

/* The result is the same for each way to cut the text. */
static void check_splits(struct filter *f, const char *text, size_t n, const char *wanted,
			 const char *what)
{
	for (size_t first = 0; first <= n; first++) {
		_cleanup_run_ struct run run = { 0 };

		run_text(f, FILTER_REDACT, text, n, first, first == 0 ? 1 : SIZE_MAX, &run);
		if (!str_eq(buf_text(&run.out), wanted))
			fail_msg("%s, cut at %zu: '%s' instead of '%s'", what, first,
				 buf_text(&run.out), wanted);
		assert_int_equal(run.late, 0);
	}
}

/* ---- the shipped rules ---- */

TEST(test_enough_rules)
{
	size_t n = 0;

	for (size_t i = 0; i < shipped->n; i++)
		n += shipped->rule[i].group == FILTER_SECRETS;
	assert_true(n >= RULES_WANTED);
}

static void check_vector(const struct filter_vector *v)
{
	const struct filter_rule *rule = &shipped->rule[v->rule];
	_cleanup_filter_ struct filter *f = filter_of(rule->name, NULL, 0);
	_cleanup_run_ struct run run = { 0 };
	char text[FILTER_VECTOR_MAX + 1];
	const size_t n = filter_vector_text(v->text, text);

	run_text(f, FILTER_REDACT, text, n, 0, SIZE_MAX, &run);
	if (run.hits != v->yes)
		fail_msg("line %zu, rule %s: %u hits, %u expected", v->line, rule->name, run.hits,
			 v->yes);
	if (v->yes)
		assert_string_equal(run.first, rule->name);
	else
		assert_memory_equal(buf_text(&run.out), text, n);
	check_splits(f, text, n, buf_text(&run.out), rule->name);
}

TEST(test_vectors_at_every_split)
{
	for (size_t i = 0; i < shipped->n_vector; i++)
		check_vector(&shipped->vector[i]);
}

/* With all rules at once, inside other text, at every split. */
TEST(test_vectors_together)
{
	for (size_t i = 0; i < shipped->n_vector; i++) {
		const struct filter_vector *v = &shipped->vector[i];
		_cleanup_run_ struct run whole = { 0 };
		char text[2 * FILTER_VECTOR_MAX] = "first line\nsee ";
		size_t n = strlen(text);

		if (!v->yes || shipped->rule[v->rule].group != FILTER_SECRETS)
			continue;
		n += filter_vector_text(v->text, text + n);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\nlast line\n");
		run_text(secrets, FILTER_REDACT, text, n, 0, SIZE_MAX, &whole);
		if (whole.hits == 0)
			fail_msg("line %zu is not found", v->line);
		assert_true(str_has_prefix(buf_text(&whole.out), "first line\nsee "));
		check_splits(secrets, text, n, buf_text(&whole.out), shipped->rule[v->rule].name);
	}
}

/* No text names of the form "[hutch: redacted" are in what is clean. */
TEST(test_clean_text)
{
	static const char *const clean[] = {
		"total 12\ndrwxr-xr-x 2 root root 4096 Nov 19 10:10 w\n",
		"commit a1cc62904f7dd20f1e7f5a9a1f5c1b7b0c1b6a75\nAuthor: A <a@example.org>\n",
		"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n",
		"https://example.org/a/b?c=d&e=f#g http://user@example.org/\n",
		"api_key = os.environ[\"API_KEY\"]\npassword = getpass.getpass()\n",
		"id: 123e4567-e89b-12d3-a456-426614174000\n",
		"export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(clean); i++)
		check_out(secrets, FILTER_REDACT, clean[i], clean[i]);
}

#define TOKEN  \
	"ghp_" \
	"aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ4"
#define GONE "[hutch: redacted github-token]"

TEST(test_edges)
{
	check_out(secrets, FILTER_REDACT, TOKEN, GONE);
	check_out(secrets, FILTER_REDACT, "a=" TOKEN "&b", "a=" GONE "&b");
	check_out(secrets, FILTER_REDACT, "\x1b[1;32m" TOKEN "\x1b[0m\n",
		  "\x1b[1;32m" GONE "\x1b[0m\n");
	check_out(secrets, FILTER_REDACT, "{\"a\":\"b\\n" TOKEN "\"}", "{\"a\":\"b\\n" GONE "\"}");
	check_out(secrets, FILTER_REDACT, "a%3D" TOKEN "%26", "a%3D" GONE "%26");
	check_out(secrets, FILTER_REDACT, "32m" TOKEN, "32m" TOKEN);
	check_out(secrets, FILTER_REDACT, TOKEN "5", TOKEN "5");
	check_out(secrets, FILTER_REDACT, TOKEN " " TOKEN "\n" TOKEN, GONE " " GONE "\n" GONE);
}

/* A match anywhere in long output without line ends. */
TEST(test_long_lines)
{
	for (size_t before = FILTER_PIECE - 60; before < FILTER_PIECE + 20; before += 7) {
		_cleanup_buf_ struct buf text = BUF_INIT(OUT_MAX), wanted = BUF_INIT(OUT_MAX);
		_cleanup_run_ struct run run = { 0 };

		for (size_t i = 0; i < before; i++) {
			(void)buf_putc(&text, i % 9 ? 'x' : ' ');
			(void)buf_putc(&wanted, i % 9 ? 'x' : ' ');
		}
		(void)buf_printf(&text, " %s %01000d", TOKEN, 0);
		(void)buf_printf(&wanted, " %s %01000d", GONE, 0);
		run_text(secrets, FILTER_REDACT, text.data, text.len, 0, SIZE_MAX, &run);
		assert_string_equal(buf_text(&run.out), buf_text(&wanted));
		run_done(&run);
		run_text(secrets, FILTER_REDACT, text.data, text.len, before % 97, 1000, &run);
		assert_string_equal(buf_text(&run.out), buf_text(&wanted));
	}
}

/* More matches than fit into any table. */
TEST(test_many)
{
	enum {
		MANY = 20000
	};
	_cleanup_buf_ struct buf text = BUF_INIT(OUT_MAX);
	_cleanup_run_ struct run run = { 0 };

	for (size_t i = 0; i < MANY; i++)
		(void)buf_puts(&text, TOKEN " ");
	run_text(secrets, FILTER_REDACT, text.data, text.len, 0, SIZE_MAX, &run);
	assert_int_equal(run.hits, MANY);
	assert_int_equal(run.out.len, MANY * STRLEN(GONE " "));
}

TEST(test_tails)
{
	_cleanup_buf_ struct buf jwt = BUF_INIT(OUT_MAX);
	_cleanup_run_ struct run run = { 0 };

	check_out(secrets, FILTER_REDACT,
		  "a\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE+/==\n"
		  "-----END RSA PRIVATE KEY-----\nnext line\n",
		  "a\n[hutch: redacted private-key]\nnext line\n");
	check_out(secrets, FILTER_REDACT,
		  "{\"k\":\"-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n\"}",
		  "{\"k\":\"[hutch: redacted private-key]\\n\"}");
	check_out(secrets, FILTER_REDACT, "starts with -----BEGIN PRIVATE KEY----- in a line",
		  "starts with [hutch: redacted private-key] in a line");
	(void)buf_puts(&jwt, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx");
	for (size_t i = 0; i < FILTER_TOKEN_TAIL_MAX - 100; i++)
		(void)buf_putc(&jwt, "aB3_-"[i % 5]);
	(void)buf_puts(&jwt, ".x after");
	run_text(secrets, FILTER_REDACT, jwt.data, jwt.len, 0, 777, &run);
	assert_string_equal(buf_text(&run.out), "[hutch: redacted jwt] after");
}

/* ---- pauses ---- */

TEST(test_pause)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_filter_stream_ struct filter_stream *s = stream_of(secrets, FILTER_REDACT, &run);

	assert_int_equal(filter_put(s, "line\nPassword: ", 15, &run.out), 0);
	assert_string_equal(buf_text(&run.out), "line\n");
	assert_int_equal(filter_held(s), 10);
	assert_int_equal(filter_pause(s, &run.out), 0);
	assert_string_equal(buf_text(&run.out), "line\nPassword: ");
	assert_int_equal(filter_held(s), 0);
}

/* The rest of a token that a pause has cut. */
TEST(test_late)
{
	static const char text[] = TOKEN "\n";

	for (size_t cut = 1; cut < STRLEN(TOKEN); cut++) {
		_cleanup_run_ struct run run = { 0 };
		_cleanup_filter_stream_ struct filter_stream *s =
			stream_of(secrets, FILTER_REDACT, &run);
		char wanted[200];

		assert_int_equal(filter_put(s, TOKEN, cut, &run.out), 0);
		assert_int_equal(filter_pause(s, &run.out), 0);
		assert_int_equal(filter_put(s, &text[cut], strlen(text) - cut, &run.out), 0);
		(void)snprintf(wanted, sizeof(wanted), "%.*s" GONE "\n", (int)cut, TOKEN);
		assert_string_equal(buf_text(&run.out), wanted);
		assert_int_equal(run.hits, 1);
		assert_int_equal(run.late, 1);
	}
}

/* A match that grows after a pause is one match. */
TEST(test_growing)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_filter_stream_ struct filter_stream *s = stream_of(secrets, FILTER_REDACT, &run);
	const char text[] = "hvs.aB3dE5gH7jK9mN1pQ3sT5vW7";

	assert_int_equal(filter_put(s, text, strlen(text), &run.out), 0);
	assert_int_equal(filter_pause(s, &run.out), 0);
	assert_int_equal(filter_put(s, "moreOfIt rest\n", 14, &run.out), 0);
	assert_string_equal(buf_text(&run.out), "[hutch: redacted vault-service-token] rest\n");
	assert_int_equal(run.hits, 1);
}

/* ---- actions ---- */

TEST(test_report)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_filter_stream_ struct filter_stream *s = stream_of(secrets, FILTER_REPORT, &run);

	assert_int_equal(filter_put(s, "a " TOKEN, STRLEN("a " TOKEN), &run.out), 0);
	assert_string_equal(buf_text(&run.out), "a " TOKEN);
	assert_int_equal(filter_held(s), 0);
	assert_int_equal(filter_put(s, " " TOKEN "\n", STRLEN(" " TOKEN "\n"), &run.out), 0);
	assert_int_equal(filter_pause(s, &run.out), 0);
	assert_string_equal(buf_text(&run.out), "a " TOKEN " " TOKEN "\n");
	assert_int_equal(run.hits, 2);
}

TEST(test_block)
{
	_cleanup_run_ struct run run = { 0 };

	run_text(secrets, FILTER_BLOCK, "a\n" TOKEN "\nb " TOKEN "\n",
		 STRLEN("a\n" TOKEN "\nb " TOKEN "\n"), 0, 5, &run);
	assert_string_equal(buf_text(&run.out), "a\n[hutch: blocked github-token]");
	assert_int_equal(run.hits, 1);
}

/* ---- known values ---- */

static void check_known(const char *value, const char *text, const char *wanted)
{
	const struct filter_value v = { .name = "db", .data = value, .n = strlen(value) };
	_cleanup_filter_ struct filter *f = filter_of(NULL, &v, 1);

	check_out(f, FILTER_REDACT, text, wanted);
	check_splits(f, text, strlen(text), wanted, text);
}

#define KNOWN "[hutch: redacted secret:db]"

TEST(test_known_values)
{
	check_known("hunter2/+x", "a hunter2/+x b", "a " KNOWN " b");
	check_known("hunter2/+x", "ahunter2/+xb", "a" KNOWN "b");
	check_known("hunter2/+x", "a=hunter2%2F%2Bx", "a=" KNOWN);
	check_known("hunter2/+x", "a=hunter2%2f%2bx", "a=" KNOWN);
	check_known("hunter2/+x", "a=hunter2/%2Bx", "a=" KNOWN);
	check_known("hunter2/+x", "{\"hunter2\\/+x\"}", "{\"" KNOWN "\"}");
	check_known("hunter2/+x", "68756e746572322f2b78", KNOWN);
	check_known("hunter2/+x", "68756E746572322F2B78.", KNOWN ".");
	check_known("hunter2/+x", "hunter2/+", "hunter2/+");
	check_known("p\xc3\xa4sswort\n", "a p\xc3\xa4sswort\nb", "a " KNOWN "b");
	check_known("short", "a short value", "a short value");
}

/* Base64 of texts with the value at each alignment: no character that only the value decides is
 * left. */
TEST(test_known_base64)
{
	const char *value = "s3cr\xfft\xfe-value>?";
	const struct filter_value v = { .name = "db", .data = value, .n = strlen(value) };
	_cleanup_filter_ struct filter *f = filter_of(NULL, &v, 1);

	for (size_t before = 0; before < 18; before++) {
		_cleanup_buf_ struct buf raw = BUF_INIT(256), text = BUF_INIT(256);
		_cleanup_run_ struct run run = { 0 };

		for (size_t i = 0; i < before / 2; i++)
			(void)buf_putc(&raw, 'x');
		(void)buf_printf(&raw, "%syyyy", value);
		assert_int_equal(base64_put(&text, raw.data, raw.len), 0);
		for (size_t i = 0; before % 2 && i < text.len; i++)
			text.data[i] = text.data[i] == '+'   ? '-'
				       : text.data[i] == '/' ? '_'
							     : text.data[i];
		run_text(f, FILTER_REDACT, text.data, text.len, 0, 1, &run);
		assert_int_equal(run.hits, 1);
		assert_true(run.out.len - STRLEN(KNOWN) <= text.len - (8 * strlen(value) / 6) + 1);
	}
}

/* Values longer than what is searched for are taken out as a whole. */
TEST(test_known_long)
{
	char value[3000 + 1], text[4000], wanted[200];

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[i * i % 36];
	value[sizeof(value) - 1] = '\0';
	(void)snprintf(text, sizeof(text), "a %s b", value);
	(void)snprintf(wanted, sizeof(wanted), "a %s b", KNOWN);
	check_known(value, text, wanted);
}

/* ---- rule files ---- */

#define RULE "rule a\nabout b\nmatch abcdef\nyes abcdef\nno b\n"

static void check_file(const char *text, const char *wanted)
{
	_cleanup_filter_rules_ struct filter_rules *r = NULL;
	_cleanup_free_ char *copy = unit_copy(text, strlen(text));
	struct err e = ERR_INIT;

	if (wanted) {
		assert_int_not_equal(filter_rules_read(copy, strlen(text), &r, &e), 0);
		if (!strstr(e.msg, wanted))
			fail_msg("'%s' instead of '%s'", e.msg, wanted);
	} else if (filter_rules_read(copy, strlen(text), &r, &e) < 0) {
		fail_msg("%s", e.msg);
	}
}

TEST(test_files)
{
	check_file("", NULL);
	check_file("# x\n\n" RULE, NULL);
	check_file(RULE "\nrule a\n", "line 7: duplicate rule 'a'");
	check_file(RULE "rule b\n", "line 6: an empty line is missing before rule 'b'");
	check_file("rule a", "line 1 does not end");
	check_file("rule A\n", "invalid name of a rule");
	check_file("rule pii\n", "invalid name of a rule");
	check_file("rule a\nabout b\n", "about, match, yes and no are required: see rule 'a'");
	check_file("match abcdef\n", "no rule begins before 'match'");
	check_file("rule a\nx y\n", "line 2: unknown field 'x'");
	check_file("rule a\nabout\n", "missing text after 'about'");
	check_file("rule a\ncaseless x\n", "unexpected text after 'caseless'");
	check_file("rule a\nabout b\nabout c\n", "line 3: duplicate field 'about'");
	check_file("rule a\ntail x\n", "unknown word 'x'");
	check_file("rule a\n#\n", "comment inside a rule");
}

TEST(test_patterns)
{
	static const struct unit_row wrong[] = {
		{ "abcde", "a match of 5 bytes" },
		{ "[a-z]{2}", "a match of 2 bytes" },
		{ "abcdefg.", "needs a backslash" },
		{ "abcdef+", "needs a backslash" },
		{ "abcdef*", "needs a backslash" },
		{ "^abcdef", "needs a backslash" },
		{ "\\dabcdef", "punctuation" },
		{ "\\nabcdef", "punctuation" },
		{ "[^a]abcdef", "lists its characters" },
		{ "[a", "unfinished class" },
		{ "(abcdef)", "begins with '(?:'" },
		{ "(?:abcdef", "unfinished group" },
		{ "abcdef)", "without a group" },
		{ "abcdef{2,1}", "invalid repetition" },
		{ "abcdef{0}", "invalid repetition" },
		{ "abcdef{,2}", "a repetition is a number" },
		{ "abcdef{2,}", "a repetition is a number" },
		{ "[a-z]{200}[a-z]{57}", "longer than 256" },
		{ "(?:[a-z]{200}){200}", "longer than 256" },
		{ "abcdef\xc3\xa4", "not ASCII" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), "rule a\nmatch %s\n", wrong[i].given);
		check_file(text, wrong[i].wanted);
	}
}
