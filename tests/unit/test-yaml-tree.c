/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/yaml-tree.h"

#include <string.h>

#include "fail.h"
#include "unit.h"

struct doc {
	struct arena arena;
	struct diags d;
	struct source src;
	const struct yaml_node *root;
};

static void doc_done(struct doc *x)
{
	arena_done(&x->arena);
	diags_done(&x->d);
	free((char *)x->src.text);
}

#define _cleanup_doc_ _cleanup_(doc_done)

static void doc_read(struct doc *x, const char *text, size_t n)
{
	x->src = (struct source){ "f", unit_copy(text, n), n };
	x->root = yaml_read(&x->arena, &x->src, &x->d);
}

/* {key@1:1=plain@1:6 ...}@1:1, [...], with quotes around quoted text. */
static void dump(const struct yaml_node *n, struct buf *b)
{
	static const char *const open[] = { "", "[", "{" }, *const shut[] = { "", "]", "}" };

	if (n->kind == YAML_SCALAR) {
		assert_int_equal(strlen(n->text), n->len);
		(void)buf_printf(b, n->quoted ? "\"%s\"" : "%s", n->text);
	}
	(void)buf_puts(b, open[n->kind]);
	yaml_foreach (i, n) {
		if (i != n->child)
			(void)buf_putc(b, ' ');
		assert_true((n->kind == YAML_MAP) == (i->key != NULL));
		if (i->key)
			(void)buf_printf(b, "%s@%u:%u=", i->key, i->key_pos.line,
					 i->key_pos.column);
		dump(i, b);
	}
	(void)buf_printf(b, "%s@%u:%u", shut[n->kind], n->pos.line, n->pos.column);
}

static void assert_said(struct doc *x, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	for (size_t i = 0; i < x->d.n; i++)
		(void)buf_printf(&b, "%u:%u: %s%s%s\n", x->d.list[i].pos.line,
				 x->d.list[i].pos.column, x->d.list[i].key,
				 x->d.list[i].key[0] ? ": " : "", x->d.list[i].text);
	assert_string_equal(buf_text(&b), want);
}

TEST(trees_and_positions)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "a: b", "{a@1:1=b@1:4}@1:1" },
		{ "# c\n\na:\n  - x\n  -  y # z\n", "{a@3:1=[x@4:5 y@5:6]@4:3}@3:1" },
		{ "{a: [1, {b: c}], d: e}",
		  "{a@1:2=[1@1:6 {b@1:10=c@1:13}@1:9]@1:5 d@1:18=e@1:21}@1:1" },
		{ "- a\n- - b\n", "[a@1:3 [b@2:5]@2:3]@1:1" },
		{ "word", "word@1:1" },
		{ "--- word\n...\n", "word@1:5" },
		{ "---\n", "@2:1" },
		{ "\xef\xbb\xbf"
		  "a: b\nc: d\n",
		  "{a@1:1=b@1:4 c@2:1=d@2:4}@1:1" },
		{ "a: b\r\nc: d\r\n", "{a@1:1=b@1:4 c@2:1=d@2:4}@1:1" },
		/* some languages need joiners */
		{ "a\xe2\x80\x8d: b", "{a\xe2\x80\x8d@1:1=b@1:5}@1:1" },
		/* columns are characters, not bytes */
		{ "\xc3\xa4: \xe2\x82\xac", "{\xc3\xa4@1:1=\xe2\x82\xac@1:4}@1:1" },
		/* nothing is guessed */
		{ "[1, 1.0, true, ~, null, no, 2024-01-01, 0x10]",
		  "[1@1:2 1.0@1:5 true@1:10 ~@1:16 null@1:19 no@1:25 2024-01-01@1:29 "
		  "0x10@1:41]@1:1" },
		/* quoted or not */
		{ "a:\nb: ''\nc: \"\"\nd: |\ne: >-\n  x\n  y\n",
		  "{a@1:1=@1:3 b@2:1=\"\"@2:4 c@3:1=\"\"@3:4 d@4:1=\"\"@4:4 e@5:1=\"x y\"@5:4}@1:"
		  "1" },
		{ "a: |\n  one\n   two\n", "{a@1:1=\"one\n two\n\"@1:4}@1:1" },
		{ "\"a b\": \"\\t\\u20ac\"", "{a b@1:1=\"\t\xe2\x82\xac\"@1:8}@1:1" },
		{ "? a\n: b\n", "{a@1:3=b@2:3}@1:1" },
		{ "{a, b: }", "{a@1:2=@1:3 b@1:5=@1:8}@1:1" },
		{ "? \n: x", "{@1:2=x@2:3}@1:1" },
		{ "[]", "[]@1:1" },
		{ "{}", "{}@1:1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_doc_ struct doc x = { 0 };
		_cleanup_buf_ struct buf b = BUF_INIT(4096);

		doc_read(&x, cases[i].text, strlen(cases[i].text));
		assert_said(&x, "");
		assert_non_null(x.root);
		dump(x.root, &b);
		assert_string_equal(buf_text(&b), cases[i].want);
	}
}

TEST(refusals)
{
#define CASE(text, want)                            \
	{                                           \
		"" text "", STRLEN(text), want "\n" \
	}
	static const struct {
		const char *text;
		size_t n;
		const char *want;
	} cases[] = {
		CASE("", "1:1: the file is empty"),
		CASE("# only\n\n", "1:1: the file is empty"),
		CASE("a: &x b", "1:4: anchors (&x) are not used here: write the value out"),
		CASE("a: &x [b]", "1:4: anchors (&x) are not used here: write the value out"),
		CASE("&x {a: b}", "1:1: anchors (&x) are not used here: write the value out"),
		CASE("a: b\nc: *x", "2:4: aliases (*x) are not used here: write the value out"),
		CASE("*x : b", "1:1: aliases (*x) are not used here: write the value out"),
		CASE("a: !!str b", "1:4: tags (!!str) are not used here"),
		CASE("a: !x [b]", "1:4: tags (!x) are not used here"),
		CASE("! {}", "1:1: tags (!) are not used here"),
		CASE("%YAML 1.1\n---\na: b", "1:1: directives (%YAML, %TAG) are not used here"),
		CASE("%TAG ! t\n---\na: b", "1:1: directives (%YAML, %TAG) are not used here"),
		CASE("a: b\n---\nc: d", "2:1: a second document: one file holds one"),
		CASE("---\n---\n", "2:1: a second document: one file holds one"),
		CASE("a: {<<: b}", "1:5: merge keys (<<) are not used here: write the keys out"),
		CASE("'<<': b", "1:1: merge keys (<<) are not used here: write the keys out"),
		CASE("? [a]\n: b", "1:3: a key is plain text, not a list or mapping"),
		CASE("{{a: b}: c}", "1:2: a key is plain text, not a list or mapping"),
		/* written as escapes */
		CASE("a: \"x\\0y\"", "1:4: control character 0x00 in the text"),
		CASE("a: \"\\e[31m\"", "1:4: control character 0x1b in the text"),
		CASE("\"a\\rb\": c", "1:1: control character 0x0d in the text"),
		CASE("a: \"\\x7f\"", "1:4: control character 0x7f in the text"),
		CASE("a: \"\\u202e\"", "1:4: control character U+202E in the text"),
		CASE("a: \"\\N\"", "1:4: control character U+0085 in the text"),
		/* unescaped, also in comments */
		CASE("ab: \x01", "1:5: control character 0x01 in the text"),
		CASE("a: b\0", "1:5: control character 0x00 in the text"),
		CASE("a: b\r", "1:5: control character 0x0d in the text"),
		CASE("a: b\rc: d\n", "1:5: control character 0x0d in the text"),
		CASE("a: b # \x1b[2J", "1:8: control character 0x1b in the text"),
		CASE("a: b # \xe2\x80\xa8"
		     "c: d",
		     "1:8: control character U+2028 in the text"),
		CASE("a: b\n# \xc3\xa4\xc2\x85"
		     "c: d",
		     "2:4: control character U+0085 in the text"),
		CASE("\xe2\x81\xa6", "1:1: control character U+2066 in the text"),
		CASE("a: b\nccc: \xff", "2:6: byte 0xff is not UTF-8"),
		CASE("a: \xc3", "1:4: byte 0xc3 is not UTF-8"),
		CASE("a: \xed\xa0\x80", "1:4: byte 0xed is not UTF-8"),
		CASE("a: \xc0\x80", "1:4: byte 0xc0 is not UTF-8"),
		CASE("\xff\xfe"
		     "a\0",
		     "1:1: the file is UTF-16: save it as UTF-8"),
		CASE("\xfe\xff\0a", "1:1: the file is UTF-16: save it as UTF-8"),
		CASE("a: [b", "2:1: not YAML: did not find expected ',' or ']' while parsing a "
			      "flow sequence that begins at line 1"),
		CASE("a: b\n\tc: d",
		     "2:1: not YAML: found a tab character that violates indentation while "
		     "scanning a plain scalar that begins at line 1"),
		CASE("a: b\n c: d",
		     "2:3: not YAML: mapping values are not allowed in this context"),
		CASE("a: 'b", "1:6: not YAML: found unexpected end of stream while scanning a "
			      "quoted scalar"),
		CASE("a: \"\\ud800\"", "1:7: not YAML: found invalid Unicode character escape "
				       "code while parsing a quoted scalar"),
	};
#undef CASE

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_doc_ struct doc x = { 0 };

		doc_read(&x, cases[i].text, cases[i].n);
		assert_said(&x, cases[i].want);
		assert_null(x.root);
		assert_int_equal(diags_result(&x.d), -EINVAL);
	}
}

/* Input that libyaml rejects before it has a position. */
TEST(characters_that_are_none)
{
	static const char *const texts[] = { "a: b\nc: \xef\xbf\xbf", "a: b\nc: \xef\xbf\xbe" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		_cleanup_doc_ struct doc x = { 0 };

		doc_read(&x, texts[i], strlen(texts[i]));
		assert_null(x.root);
		assert_int_equal(x.d.n, 1);
		assert_int_equal(x.d.list[0].pos.line, 2);
		assert_int_equal(x.d.list[0].pos.column, 4);
	}
}

TEST(duplicate_keys_leave_a_tree)
{
	static const char text[] = "a: 1\nb: {c: 1, c: 2}\na: 3\na: 4\nl: [x, {k: 1, k: 2}]\n";
	_cleanup_doc_ struct doc x = { 0 };

	doc_read(&x, text, strlen(text));
	assert_said(&x, "2:11: b.c: written twice; the first stands at line 2\n"
			"3:1: a: written twice; the first stands at line 1\n"
			"4:1: a: written twice; the first stands at line 1\n"
			"5:15: l.[1].k: written twice; the first stands at line 5\n");
	assert_non_null(x.root);
	assert_string_equal(yaml_get(x.root, "a")->text, "1");
	assert_null(yaml_get(x.root, "d"));
	assert_null(yaml_get(yaml_get(x.root, "a"), "a"));
}

TEST(hints)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "a: b\n\tc: d", "indent with spaces, not with tabs" },
		{ "a:\n\tb: c\n", "indent with spaces, not with tabs" },
		{ "a: *.example.org\n", "quote text that begins with '*' or '&'; for a name and "
					"all below it write '.name'" },
		{ "a: [*]\n", "quote text that begins with '*' or '&'; for a name and all below "
			      "it write '.name'" },
		{ "a: [", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_doc_ struct doc x = { 0 };

		doc_read(&x, cases[i].text, strlen(cases[i].text));
		assert_int_equal(x.d.n, 1);
		if (cases[i].want)
			assert_string_equal(x.d.list[0].hint, cases[i].want);
		else
			assert_null(x.d.list[0].hint);
	}
}

TEST(describes)
{
	static const char text[] = "[{}, [], x, '', 0]";
	static const char *const want[] = { "a mapping", "a list", "text", "empty text", "text" };
	_cleanup_doc_ struct doc x = { 0 };
	size_t i = 0;

	doc_read(&x, "a:", 2);
	assert_string_equal(yaml_describe(x.root->child), "nothing");
	doc_done(&x);
	x = (struct doc){ 0 };
	doc_read(&x, text, strlen(text));
	assert_non_null(x.root);
	yaml_foreach (n, x.root)
		assert_string_equal(yaml_describe(n), want[i++]);
	assert_int_equal(i, ARRAY_SIZE(want));
}

/* `head`, `n` times `one`, `tail`; and the expected error. */
static void assert_repeated(const char *head, size_t n, const char *one, const char *tail,
			    const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * 1024 * 1024);
	_cleanup_doc_ struct doc x = { 0 };

	(void)buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		(void)buf_puts(&b, one);
	assert_int_equal(buf_puts(&b, tail), 0);
	doc_read(&x, b.data, b.len);
	assert_said(&x, want);
	assert_true((x.root != NULL) == (want[0] == '\0'));
}

TEST(limits_are_exact)
{
	assert_repeated("a: ", YAML_SCALAR_MAX, "x", "\n", "");
	assert_repeated("a: ", YAML_SCALAR_MAX + 1, "x", "\n",
			"1:4: text of 65537 bytes, at most 65536\n");
	assert_repeated("", YAML_SCALAR_MAX + 1, "x", "",
			"1:1: text of 65537 bytes, at most 65536\n");
	assert_repeated("", YAML_DEPTH_MAX, "- ", "x", "");
	assert_repeated("", YAML_DEPTH_MAX + 1, "- ", "x", "1:25: nested deeper than 12\n");
	assert_repeated("", 100000, "[", "", "1:13: nested deeper than 12\n");
	assert_repeated("[", YAML_NODES_MAX - 1, "x,", "]", "");
	assert_repeated("[\n", YAML_NODES_MAX, "x,", "]",
			"2:499999: more than 250000 values in one file\n");
	assert_repeated("#", YAML_TEXT_MAX - 3, "-", "\nx", "");
	assert_repeated("#", YAML_TEXT_MAX - 2, "-", "\nx",
			"1:1: file of 2097153 bytes, at most 2097152 are read\n");
}

TEST(keys_have_a_limit)
{
	for (int over = 0; over < 2; over++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
		_cleanup_doc_ struct doc x = { 0 };

		for (int i = 0; i < YAML_KEYS_MAX + over; i++)
			assert_int_equal(buf_printf(&b, "k%d: v\n", i), 0);
		doc_read(&x, b.data, b.len);
		assert_said(&x, over ? "1025:1: more than 1024 keys in one mapping\n" : "");
	}
}

static int read_once(const char *text)
{
	const struct source src = { "f", text, strlen(text) };
	_cleanup_arena_ struct arena arena = ARENA_INIT;
	_cleanup_diags_ struct diags d = { 0 };
	const struct yaml_node *root = yaml_read(&arena, &src, &d);
	int r = diags_result(&d);

	assert_int_equal(r, root ? 0 : -ENOMEM);
	return r;
}

TEST(sweep)
{
	FAIL_SWEEP(read_once("a: {b: [c, 'd'], e: f}\ng: h\n"));
}
