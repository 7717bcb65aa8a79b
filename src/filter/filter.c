/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a filter. */
#include <string.h>

#include "base/str.h"
#include "filter/filter-inner.h"

DEFINE_NAMES(filter_action_name, enum filter_action, FILTER_ACTIONS,
	     "unknown", [FILTER_OFF] = "off", [FILTER_REDACT] = "redact", [FILTER_BLOCK] = "block",
	     [FILTER_REPORT] = "report");

/* The input of Hyperscan's compiler. */
struct table {
	const char **text;
	unsigned int *flags, *ids;
	size_t *n;
	unsigned int used;
};

static void table_done(struct table *t)
{
	free(t->text);
	free(t->flags);
	free(t->ids);
	free(t->n);
}

static int table_init(struct table *t, size_t n)
{
	n++; /* calloc(0) may return NULL */
	t->text = calloc(n, sizeof(*t->text));
	t->flags = calloc(n, sizeof(*t->flags));
	t->ids = calloc(n, sizeof(*t->ids));
	t->n = calloc(n, sizeof(*t->n));
	return t->text && t->flags && t->ids && t->n ? 0 : -ENOMEM;
}

static int to_errno(hs_error_t r)
{
	switch (r) {
	case HS_SUCCESS:
		return 0;
	case HS_NOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* Frees the error. */
static int not_compiled(hs_error_t r, hs_compile_error_t *why, const char *what, struct err *e)
{
	if (r == HS_SUCCESS)
		return 0;
	(void)err_set(e, to_errno(r), "cannot compile %s: %s", what,
		      why ? why->message : "Hyperscan failed");
	(void)hs_free_compile_error(why);
	return e->num;
}

/* ---- literals ---- */

static void put_literal(struct filter *f, struct table *t, const char *text, size_t n,
			bool caseless, struct filter_literal literal)
{
	literal.n = (uint32_t)n;
	f->literal[t->used] = literal;
	t->text[t->used] = text;
	t->n[t->used] = n;
	t->flags[t->used] = caseless ? HS_FLAG_CASELESS : 0;
	t->ids[t->used] = t->used;
	t->used++;
}

static void put_literals(struct filter *f, struct table *t)
{
	for (size_t i = 0; i < f->rules->n; i++) {
		const struct filter_rule *rule = &f->rules->rule[i];

		for (size_t k = 0; f->on[i] && k < rule->n_find; k++)
			put_literal(f, t, rule->find[k], strlen(rule->find[k]), rule->caseless,
				    (struct filter_literal){ .index = (uint32_t)i });
	}
	for (size_t i = 0; i < f->forms.n; i++) {
		const struct filter_form *form = &f->forms.form[i];

		put_literal(f, t, form->text, MIN(form->n, (size_t)FILTER_PREFIX_MAX),
			    form->caseless,
			    (struct filter_literal){ .index = (uint32_t)i, .is_form = true });
	}
}

static size_t count_literals(const struct filter *f)
{
	size_t n = f->forms.n;

	for (size_t i = 0; i < f->rules->n; i++)
		n += f->on[i] ? f->rules->rule[i].n_find : 0;
	return n;
}

static int compile_literals(struct filter *f, struct err *e)
{
	_cleanup_(table_done) struct table t = { 0 };
	const size_t n = count_literals(f);
	hs_compile_error_t *why = NULL;
	hs_error_t r;

	f->literal = calloc(n + 1, sizeof(*f->literal));
	if (!f->literal || table_init(&t, n) < 0)
		return err_oom(e);
	put_literals(f, &t);
	f->n_literal = t.used;
	if (t.used == 0)
		return 0;
	r = hs_compile_lit_multi(t.text, t.flags, t.ids, t.n, t.used, HS_MODE_BLOCK, NULL,
				 &f->literals, &why);
	return not_compiled(r, why, "the literals of the output filter", e);
}

/* ---- patterns ---- */

static unsigned int flags_of(const struct filter_rule *rule)
{
	return HS_FLAG_SOM_LEFTMOST | (rule->caseless ? HS_FLAG_CASELESS : 0);
}

static int compile_bare(struct filter *f, struct err *e)
{
	_cleanup_(table_done) struct table t = { 0 };
	hs_compile_error_t *why = NULL;
	hs_error_t r;

	if (table_init(&t, f->rules->n) < 0)
		return err_oom(e);
	for (size_t i = 0; i < f->rules->n; i++)
		if (f->on[i] && f->rules->rule[i].n_find == 0) {
			t.text[t.used] = f->rules->rule[i].match;
			t.flags[t.used] = flags_of(&f->rules->rule[i]);
			t.ids[t.used++] = (unsigned int)i;
		}
	if (t.used == 0)
		return 0;
	r = hs_compile_multi(t.text, t.flags, t.ids, t.used, HS_MODE_BLOCK, NULL, &f->bare, &why);
	return not_compiled(r, why, "the patterns of the output filter", e);
}

int filter_need_pattern(struct filter *f, size_t rule)
{
	const struct filter_rule *of = &f->rules->rule[rule];
	hs_compile_error_t *why = NULL;
	hs_database_t *db = NULL;
	hs_error_t r;

	if (f->pattern[rule])
		return 0;
	r = hs_compile(of->match, flags_of(of), HS_MODE_BLOCK, NULL, &db, &why);
	if (r != HS_SUCCESS) {
		(void)hs_free_compile_error(why);
		return to_errno(r);
	}
	r = hs_alloc_scratch(db, &f->scratch);
	if (r != HS_SUCCESS) {
		(void)hs_free_database(db);
		return to_errno(r);
	}
	f->pattern[rule] = db;
	return 0;
}

/* ---- a filter ---- */

/* Sets which bytes end every match, and the longest match. */
static void set_bounds(struct filter *f)
{
	f->window = FILTER_PREFIX_MAX;
	for (size_t i = 0; i < f->rules->n; i++)
		if (f->on[i])
			f->window = MAX(f->window, f->rules->rule[i].max);
	for (unsigned int c = 0; c < ARRAY_SIZE(f->ends); c++)
		f->ends[c] = (c < ' ' && c != '\t') || c > '~';
	for (size_t i = 0; i < f->forms.n; i++)
		for (size_t k = 0; k < f->forms.form[i].n; k++)
			f->ends[(uint8_t)f->forms.form[i].text[k]] = false;
}

static int begin(struct filter *f, const bool *on, const struct filter_value *values,
		 size_t n_values, struct err *e)
{
	const size_t n = f->rules->n + 1;

	f->on = f->on_copy = calloc(n, sizeof(*f->on_copy));
	f->pattern = calloc(n, sizeof(*f->pattern));
	if (!f->on || !f->pattern)
		return err_oom(e);
	memcpy(f->on_copy, on, f->rules->n * sizeof(*on));
	for (size_t i = 0; i < n_values; i++)
		if (filter_forms_add(&f->forms, &values[i]) < 0)
			return err_oom(e);
	return 0;
}

static int make_scratch(struct filter *f, struct err *e)
{
	hs_database_t *const all[] = { f->literals, f->bare };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i] && hs_alloc_scratch(all[i], &f->scratch) != HS_SUCCESS)
			return err_oom(e);
	return 0;
}

int filter_new(const struct filter_rules *rules, const bool *on, const struct filter_value *values,
	       size_t n_values, struct filter **ret, struct err *e)
{
	_cleanup_filter_ struct filter *f = calloc(1, sizeof(*f));

	assert(n_values <= FILTER_VALUES_MAX);
	if (!f)
		return err_oom(e);
	if (hs_valid_platform() != HS_SUCCESS)
		return err_set(e, -EOPNOTSUPP,
			       "the output filter needs a CPU with SSSE3, which Hyperscan uses");
	f->rules = rules;
	if (begin(f, on, values, n_values, e) < 0 || compile_literals(f, e) < 0 ||
	    compile_bare(f, e) < 0 || make_scratch(f, e) < 0)
		return e->num;
	set_bounds(f);
	*ret = TAKE_PTR(f);
	return 0;
}

struct filter *filter_free(struct filter *f)
{
	if (!f)
		return NULL;
	for (size_t i = 0; f->pattern && i < f->rules->n; i++)
		(void)hs_free_database(f->pattern[i]);
	(void)hs_free_database(f->literals);
	(void)hs_free_database(f->bare);
	(void)hs_free_scratch(f->scratch);
	filter_forms_done(&f->forms);
	free(f->literal);
	free(f->pattern);
	free(f->on_copy);
	free(f);
	return NULL;
}

static int count_one(unsigned int id, unsigned long long from, unsigned long long to,
		     unsigned int flags, void *arg)
{
	(*(uint64_t *)arg)++;
	return 0;
}

uint64_t filter_bare_scan(struct filter *f, const void *data, size_t n)
{
	uint64_t found = 0;

	if (f->literals)
		(void)hs_scan(f->literals, data, (unsigned int)n, 0, f->scratch, count_one, &found);
	return found;
}
