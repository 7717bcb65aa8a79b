/* SPDX-License-Identifier: Apache-2.0 */
#include "filter/rules.h"

#include <string.h>

#include "base/str.h"

enum {
	VECTORS_MAX = 8 * FILTER_RULES_MAX,
};

static const char *const group_names[] = { "secrets", "pii", NULL };
static const char *const part_names[] = { "all", "word", "password", "space", NULL };
static const char *const tail_names[] = { "none", "token", "pem", NULL };
static const char *const edge_names[] = { "none", "left", "right", "both", NULL };
static const char *const check_names[] = { "none", "random", "luhn",	 "iban", "ssn",
					   "cpf",  "ean",    "verhoeff", "dni",	 NULL };
static_assert(ARRAY_SIZE(group_names) == FILTER_GROUPS + 1, "a name for each");
static_assert(ARRAY_SIZE(part_names) == FILTER_PARTS + 1, "a name for each");
static_assert(ARRAY_SIZE(check_names) == FILTER_CHECKS + 1, "a name for each");

const char *filter_group_name(enum filter_group i)
{
	return (unsigned int)i < FILTER_GROUPS ? group_names[i] : "unknown";
}

struct reading {
	struct filter_rules *rules;
	struct filter_rule *now; /* NULL: between two rules */
	unsigned int seen;	 /* a bit for each field of the rule */
	size_t line;
	struct err *e;
};

enum field {
	FIELD_RULE,
	FIELD_ABOUT,
	FIELD_GROUP,
	FIELD_FIND,
	FIELD_MATCH,
	FIELD_CASELESS,
	FIELD_PART,
	FIELD_TAIL,
	FIELD_EDGE,
	FIELD_CHECK,
	FIELD_YES,
	FIELD_NO,
	FIELDS,
};

static const char *const field_names[] = { "rule", "about", "group", "find",  "match", "caseless",
					   "part", "tail",  "edge",  "check", "yes",   "no" };
static_assert(ARRAY_SIZE(field_names) == FIELDS, "a name for each");

static int wrong(struct reading *r, const char *what, const char *text)
{
	return err_set(r->e, -EINVAL, "line %zu: %s '%.60s'", r->line, what, text);
}

static int take_word(struct reading *r, const char *text, const char *const *words,
		     unsigned int *ret)
{
	for (unsigned int i = 0; words[i]; i++)
		if (str_eq(words[i], text)) {
			*ret = i;
			return 0;
		}
	return wrong(r, "unknown word", text);
}

static bool is_name(const char *s)
{
	const size_t n = strlen(s);

	return n > 0 && n <= FILTER_NAME_MAX && s[0] != '-' && s[n - 1] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static bool is_group(const char *s)
{
	return str_eq(s, group_names[FILTER_SECRETS]) || str_eq(s, group_names[FILTER_PII]);
}

static int begin_rule(struct reading *r, const char *name)
{
	struct filter_rules *all = r->rules;

	if (r->now)
		return wrong(r, "an empty line is missing before rule", name);
	if (!is_name(name) || is_group(name))
		return wrong(r, "invalid name of a rule", name);
	if (filter_rules_find(all, name) < all->n)
		return wrong(r, "duplicate rule", name);
	if (all->n == FILTER_RULES_MAX)
		return wrong(r, "more than 1024 rules: the first too many is", name);
	r->now = &all->rule[all->n];
	*r->now = (struct filter_rule){ .name = name, .edge = FILTER_EDGE_BOTH, .line = r->line };
	all->n++;
	r->seen = 0;
	return 0;
}

static int add_find(struct reading *r, const char *text)
{
	struct filter_rule *rule = r->now;
	const size_t n = strlen(text);

	if (n < FILTER_FIND_MIN || n > FILTER_FIND_MAX || rule->n_find == FILTER_FINDS_MAX)
		return wrong(r,
			     "a literal has 1 to 32 bytes, and a rule at most 32 of them:", text);
	rule->find[rule->n_find++] = text;
	return 0;
}

static int add_vector(struct reading *r, const char *text, bool yes)
{
	struct filter_rules *all = r->rules;

	if (all->n_vector == VECTORS_MAX || strlen(text) > FILTER_VECTOR_MAX || !*text)
		return wrong(r, "a vector is empty, too long or one too many:", text);
	all->vector[all->n_vector++] = (struct filter_vector){
		.rule = all->n - 1, .yes = yes, .text = text, .line = r->line
	};
	return 0;
}

static int take_field(struct reading *r, enum field field, const char *text)
{
	struct filter_rule *rule = r->now;
	unsigned int word = 0;
	int k = 0;

	switch (field) {
	case FIELD_ABOUT:
		rule->about = text;
		break;
	case FIELD_GROUP:
		k = take_word(r, text, group_names, &word);
		rule->group = (enum filter_group)word;
		break;
	case FIELD_FIND:
		return add_find(r, text);
	case FIELD_MATCH:
		rule->match = text;
		k = strlen(text) > FILTER_PATTERN_MAX
			    ? err_set(r->e, -EINVAL, "a pattern has at most 512 bytes")
			    : filter_pattern_width(text, &rule->min, &rule->max, r->e);
		return k < 0 ? err_wrap(r->e, "line %zu", r->line) : 0;
	case FIELD_CASELESS:
		rule->caseless = true;
		break;
	case FIELD_PART:
		k = take_word(r, text, part_names, &word);
		rule->part = (enum filter_part)word;
		break;
	case FIELD_TAIL:
		k = take_word(r, text, tail_names, &word);
		rule->tail = (enum filter_tail)word;
		break;
	case FIELD_EDGE:
		k = take_word(r, text, edge_names, &word);
		rule->edge = (enum filter_edge)word;
		break;
	case FIELD_CHECK:
		k = take_word(r, text, check_names, &word);
		rule->check = (enum filter_check)word;
		break;
	case FIELD_YES:
	case FIELD_NO:
		return add_vector(r, text, field == FIELD_YES);
	default:
		break;
	}
	return k;
}

/* Does the pattern begin with this literal, and has no second branch? */
static bool starts_with(const char *pattern, const char *find)
{
	for (; *find; find++, pattern++) {
		if (*pattern == '\\')
			pattern++;
		else if (*pattern && strchr("[(.?{|", *pattern))
			return false;
		if (*pattern != *find)
			return false;
	}
	return *pattern != '?' && *pattern != '{';
}

/* A '|' outside of groups. */
static bool has_branches(const char *pattern)
{
	int depth = 0;

	for (; *pattern; pattern++) {
		if (*pattern == '\\' && pattern[1])
			pattern++;
		else if (*pattern == '(')
			depth++;
		else if (*pattern == ')')
			depth--;
		else if (*pattern == '|' && depth <= 0)
			return true;
	}
	return false;
}

static int end_rule(struct reading *r)
{
	struct filter_rule *rule = r->now;
	bool yes = false, no = false;

	if (!rule)
		return 0;
	r->now = NULL;
	for (size_t i = r->rules->n_vector; i > 0; i--) {
		const struct filter_vector *v = &r->rules->vector[i - 1];

		if (v->rule != r->rules->n - 1)
			break;
		yes |= v->yes;
		no |= !v->yes;
	}
	if (!rule->about || !rule->match || !yes || !no)
		return wrong(r, "about, match, yes and no are required: see rule", rule->name);
	rule->starts = rule->n_find == 1 && !has_branches(rule->match) &&
		       starts_with(rule->match, rule->find[0]);
	return 0;
}

static int read_line(struct reading *r, char *line)
{
	static const unsigned int many = 1U << FIELD_FIND | 1U << FIELD_YES | 1U << FIELD_NO;
	char *text = strchr(line, ' ');
	enum field field = 0;

	if (line[0] == '\0')
		return end_rule(r);
	if (line[0] == '#')
		return r->now ? wrong(r, "comment inside a rule:", line) : 0;
	if (text)
		*text++ = '\0';
	while (field < FIELDS && !str_eq(field_names[field], line))
		field++;
	if (field == FIELDS)
		return wrong(r, "unknown field", line);
	if (!text != (field == FIELD_CASELESS))
		return wrong(r, text ? "unexpected text after" : "missing text after", line);
	if (field == FIELD_RULE)
		return begin_rule(r, text);
	if (!r->now)
		return wrong(r, "no rule begins before", line);
	if (r->seen & 1U << field & ~many)
		return wrong(r, "duplicate field", line);
	r->seen |= 1U << field;
	return take_field(r, field, text);
}

static int read_lines(struct reading *r)
{
	char *at = r->rules->text;

	for (r->line = 1; *at; r->line++) {
		char *end = strchr(at, '\n');

		if (!end)
			return err_set(r->e, -EINVAL, "line %zu does not end", r->line);
		*end = '\0';
		if (read_line(r, at) < 0)
			return r->e->num;
		at = end + 1;
	}
	return end_rule(r);
}

int filter_rules_read(const char *text, size_t n, struct filter_rules **ret, struct err *e)
{
	_cleanup_filter_rules_ struct filter_rules *rules = calloc(1, sizeof(*rules));
	struct reading r = { .rules = rules, .e = e };

	if (n > FILTER_FILE_MAX)
		return err_set(e, -E2BIG, "a rule file has at most 1 MiB");
	if (memchr(text, '\0', n))
		return err_set(e, -EINVAL, "a rule file has no NUL byte");
	if (!rules)
		return err_oom(e);
	rules->text = calloc(1, n + 1);
	rules->rule = calloc(FILTER_RULES_MAX, sizeof(*rules->rule));
	rules->vector = calloc(VECTORS_MAX, sizeof(*rules->vector));
	if (!rules->text || !rules->rule || !rules->vector)
		return err_oom(e);
	memcpy(rules->text, text, n);
	if (read_lines(&r) < 0)
		return e->num;
	*ret = TAKE_PTR(rules);
	return 0;
}

struct filter_rules *filter_rules_free(struct filter_rules *r)
{
	if (!r)
		return NULL;
	free(r->text);
	free(r->rule);
	free(r->vector);
	free(r);
	return NULL;
}

size_t filter_rules_find(const struct filter_rules *r, const char *name)
{
	size_t i = 0;

	while (i < r->n && !str_eq(r->rule[i].name, name))
		i++;
	return i;
}

bool filter_rules_select(const struct filter_rules *r, const char *name, bool *on)
{
	const size_t one = filter_rules_find(r, name);
	bool any = one < r->n;

	if (any)
		on[one] = true;
	for (size_t i = 0; i < r->n; i++)
		if (str_eq(group_names[r->rule[i].group], name))
			any = on[i] = true;
	return any;
}

size_t filter_vector_text(const char *text, char ret[static FILTER_VECTOR_MAX])
{
	size_t n = 0;

	for (; *text && n < FILTER_VECTOR_MAX; text++) {
		if (*text == '`')
			continue;
		if (*text == '\\' && text[1]) {
			text++;
			ret[n++] = *text == 'n'	  ? '\n'
				   : *text == 't' ? '\t'
				   : *text == 'e' ? '\x1b'
						  : *text;
		} else {
			ret[n++] = *text;
		}
	}
	return n;
}
