/* SPDX-License-Identifier: Apache-2.0 */
#include "receipt/receipt.h"

#include <stdarg.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"

enum {
	NAMED_MAX = 4 /* rows named in the message; more are counted */
};

static bool bit(uint64_t set, unsigned int row)
{
	return row < LAYER_MAX && (set & (UINT64_C(1) << row)) != 0;
}

void receipt_init(struct receipt *r, uint64_t require)
{
	static_assert(LAYER_MAX <= 64, "a bit for every layer");

	*r = (struct receipt){ .pause_seen = "not checked" };
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		struct receipt_row *row = &r->row[i];

		row->required = i >= LAYER_MAX || bit(require, i);
		row->asked = row->required || (i != LAYER_APPARMOR && i != LAYER_KVM);
		(void)snprintf(row->seen, sizeof(row->seen), "not checked");
	}
}

void receipt_explicit(struct receipt *r, uint64_t asked)
{
	for (unsigned int i = 0; i < LAYER_MAX; i++)
		r->row[i].explicit = bit(asked, i);
}

static bool is_best_effort(const struct receipt_row *row)
{
	return row->explicit && !row->required;
}

/* The text may be a file's contents, and truncation may split a character: make it UTF-8. */
static void set_text(char out[static RECEIPT_SEEN_MAX], const char *fmt, va_list args)
	_printf_(2, 0);
static void set_text(char out[static RECEIPT_SEEN_MAX], const char *fmt, va_list args)
{
	(void)vsnprintf(out, RECEIPT_SEEN_MAX, fmt, args);
	str_make_utf8(out);
}

void receipt_yes(struct receipt *r, unsigned int row, const char *fmt, ...)
{
	va_list args;

	assert(row < RECEIPT_ROWS);
	va_start(args, fmt);
	set_text(r->row[row].seen, fmt, args);
	va_end(args);
	r->row[row].enforced = true;
	r->row[row].advice[0] = '\0';
}

void receipt_no(struct receipt *r, unsigned int row, const char *fmt, ...)
{
	va_list args;

	assert(row < RECEIPT_ROWS);
	va_start(args, fmt);
	set_text(r->row[row].seen, fmt, args);
	va_end(args);
	r->row[row].enforced = false;
}

void receipt_advise(struct receipt *r, unsigned int row, const char *fmt, ...)
{
	va_list args;

	assert(row < RECEIPT_ROWS);
	va_start(args, fmt);
	set_text(r->row[row].advice, fmt, args);
	va_end(args);
}

void receipt_pause(struct receipt *r, const char *by, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	set_text(r->pause_seen, fmt, args);
	va_end(args);
	r->pause = by;
}

static bool is_missing(const struct receipt_row *row)
{
	return row->required && !row->enforced;
}

/* Default advice for rows without one of their own. */
static const char *advice_of(unsigned int row)
{
	switch (row) {
	case LAYER_CGROUP_CPU:
	case LAYER_CGROUP_MEMORY:
	case LAYER_CGROUP_PIDS:
		return "run hutch as root, or boot with cgroup v2 alone and a delegated group";
	default:
		return row < LAYER_MAX ? "see 'hutch doctor', or use an agent that does not "
					 "require it"
				       : "see 'hutch doctor'";
	}
}

/* The command-line option for the limit that a layer enforces. */
static const char *option_of(unsigned int row)
{
	switch (row) {
	case LAYER_CGROUP_CPU:
		return "--cpus";
	case LAYER_CGROUP_MEMORY:
		return "--memory";
	case LAYER_CGROUP_PIDS:
		return "--pids";
	case LAYER_DISK_QUOTA:
		return "--disk";
	default:
		return receipt_row_name(row);
	}
}

static bool all_explicit(const struct receipt *r)
{
	for (unsigned int i = 0; i < RECEIPT_ROWS; i++)
		if (is_missing(&r->row[i]) && !r->row[i].explicit)
			return false;
	return true;
}

/* Appends the names of missing rows; returns the first of them, or RECEIPT_ROWS. */
static unsigned int name_missing(const struct receipt *r, bool options, struct buf *b)
{
	unsigned int first = RECEIPT_ROWS, n = 0;

	for (unsigned int i = 0; i < RECEIPT_ROWS; i++) {
		if (!is_missing(&r->row[i]))
			continue;
		if (n == 0)
			first = i;
		if (n < NAMED_MAX)
			(void)buf_printf(b, "%s%s", n > 0 ? ", " : "",
					 options ? option_of(i) : receipt_row_name(i));
		n++;
	}
	if (n > NAMED_MAX)
		(void)buf_printf(b, " and %u more", n - NAMED_MAX);
	return first;
}

static const char *first_advice(const struct receipt *r, unsigned int first)
{
	for (unsigned int i = first; i < RECEIPT_ROWS; i++)
		if (is_missing(&r->row[i]) && r->row[i].advice[0])
			return r->row[i].advice;
	return advice_of(first);
}

int receipt_check(const struct receipt *r, struct err *e)
{
	const bool options = all_explicit(r);
	const char *before = options ? "" : "isolation.require: not enforced on this host: ",
		   *behind = options ? " cannot be enforced on this host" : "",
		   *last = options ? "; or use --best-effort" : "";
	_cleanup_buf_ struct buf names = BUF_INIT(ERR_MSG_MAX);
	unsigned int first = name_missing(r, options, &names);
	const char *advice, *seen;
	size_t n;

	if (first == RECEIPT_ROWS)
		return 0;
	seen = r->row[first].seen;
	advice = first_advice(r, first);
	n = strlen(before) + names.len + strlen(behind) + strlen(seen) + strlen(advice) +
	    strlen(last) + STRLEN(" (); ");
	/* If the message is too long, keep the advice and drop the reason. */
	if (n >= ERR_MSG_MAX)
		return err_set(e, -EPERM, "%s%s%s; %s%s", before, buf_text(&names), behind, advice,
			       last);
	return err_set(e, -EPERM, "%s%s%s (%s); %s%s", before, buf_text(&names), behind, seen,
		       advice, last);
}

static json_t *row_json(const struct receipt_row *row, const char *name)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "name", json_string(name) }, { "asked", json_boolean(row->asked) },
		{ "required", json_boolean(row->required) },
		{ "enforced", json_boolean(row->enforced) }, { "seen", json_string(row->seen) });

	if (is_best_effort(row) && json_put(j, "best_effort", json_true()) < 0)
		return NULL;
	if (row->advice[0] && json_put(j, "advice", json_string(row->advice)) < 0)
		return NULL;
	return TAKE_PTR(j);
}

static json_t *rows_json(const struct receipt *r)
{
	_cleanup_json_ json_t *rows = json_array();

	for (unsigned int i = 0; rows && i < RECEIPT_ROWS; i++)
		if (json_push(rows, row_json(&r->row[i], receipt_row_name(i))) < 0)
			return NULL;
	return TAKE_PTR(rows);
}

static json_t *facts_json(const struct receipt_head *head)
{
	_cleanup_json_ json_t *facts = json_object();

	for (size_t i = 0; facts && i < head->n_facts; i++)
		if (head->facts[i].value[0] &&
		    json_put(facts, head->facts[i].name, json_string(head->facts[i].value)) < 0)
			return NULL;
	return TAKE_PTR(facts);
}

json_t *receipt_json(const struct receipt *r, const struct receipt_head *head)
{
	char time[CLOCK_RFC3339_MAX];

	return JSON_OBJECT(
		{ "schema", json_string("hutch.receipt/1") },
		{ "sandbox", json_string(head->sandbox) }, { "level", json_string(head->level) },
		{ "engine", json_string(head->engine) }, { "policy", json_string(head->policy) },
		{ "image", json_string(head->image) },
		{ "time", json_string(clock_format(clock_wall(), time)) },
		{ "facts", facts_json(head) },
		{ "pause", JSON_OBJECT({ "by", json_string(r->pause ? r->pause : "none") },
				       { "seen", json_string(r->pause_seen) }) },
		{ "layers", rows_json(r) });
}
