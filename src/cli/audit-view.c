/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a record on one line: time, sandbox, kind, and then its members, each in its form
 * (forms[]). Texts of a payload were escaped when they were recorded, so backslashes are kept; but
 * a file may hold any bytes, so other bytes that must not reach a terminal are escaped again.
 */
#include "cli/audit-view.h"

#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/view.h"
#include "policy/value.h"
#include "state/spec.h"

int audit_view_open(struct audit_log *l, struct audit_set *set, struct err *e)
{
	return audit_open(l, e) < 0 ? e->num : audit_set_open(l, set, e);
}

enum {
	DIGITS_SHOWN = 12,
	ARGUMENT_SHOWN = 160, /* bytes of an argument */
	LINE_MAX_BYTES = 512 * 1024,
};

enum form {
	FORM_PLAIN,
	FORM_SIZE,
	FORM_MS,
	FORM_US,
	FORM_CPUS,
	FORM_MODE,
	FORM_DIGEST,
	FORM_TEXT,   /* the rest of the line, without its key */
	FORM_HIDDEN, /* shown elsewhere on the line, or only for programs */
};

static const struct {
	const char *key, *label; /* label: NULL for the key */
	enum form form;
} forms[] = {
	{ "sandbox", NULL, FORM_HIDDEN },
	{ "n", NULL, FORM_HIDDEN },
	{ "argv", NULL, FORM_HIDDEN },
	{ "argc", NULL, FORM_HIDDEN },
	{ "argv_sha256", NULL, FORM_HIDDEN },
	{ "request", NULL, FORM_HIDDEN },
	{ "signature", NULL, FORM_HIDDEN },
	{ "since", NULL, FORM_HIDDEN },
	{ "until", NULL, FORM_HIDDEN },
	{ "op", NULL, FORM_TEXT },
	{ "text", NULL, FORM_TEXT },
	{ "reason", NULL, FORM_TEXT },
	{ "what", NULL, FORM_TEXT },
	{ "limit", NULL, FORM_TEXT },
	{ "memory", NULL, FORM_SIZE },
	{ "memory_peak", "peak", FORM_SIZE },
	{ "disk", NULL, FORM_SIZE },
	{ "bytes", NULL, FORM_SIZE },
	{ "bytes_in", "in", FORM_SIZE },
	{ "bytes_out", "out", FORM_SIZE },
	{ "cpus_thousandths", "cpus", FORM_CPUS },
	{ "timeout_ms", "timeout", FORM_MS },
	{ "ttl_ms", "ttl", FORM_MS },
	{ "deadline_ms", "deadline", FORM_MS },
	{ "cpu_us", "cpu", FORM_US },
	{ "user_us", "user", FORM_US },
	{ "system_us", "system", FORM_US },
	{ "mode", NULL, FORM_MODE },
	{ "policy", NULL, FORM_DIGEST },
	{ "image_sha256", "sha256", FORM_DIGEST },
	{ "sha256", NULL, FORM_DIGEST },
	{ "blake2b", NULL, FORM_DIGEST },
	{ "first", NULL, FORM_DIGEST },
	{ "last", NULL, FORM_DIGEST },
	{ "hash", NULL, FORM_DIGEST },
	{ "key", NULL, FORM_DIGEST },
};

/* ---- texts ---- */

/* Appends the text with unsafe bytes escaped; a backslash stays one. */
static void put_once(struct buf *b, const char *s, size_t n)
{
	size_t from = 0;

	for (size_t i = 0; i <= n; i++) {
		if (i < n && s[i] != '\\')
			continue;
		(void)str_escape(b, s + from, i - from);
		if (i < n)
			(void)buf_putc(b, '\\');
		from = i + 1;
	}
}

static bool is_plain(const char *s)
{
	static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				   "@%+=:,./_-";

	return s[0] && s[strspn(s, safe)] == '\0';
}

/* Returns true if only backslashes were escaped: then a shell's '...' shows the original. */
static bool is_literal(const char *s)
{
	for (; *s; s++)
		if (*s == '\\' && *++s != '\\')
			return false;
	return true;
}

/* Returns the length of the beginning of a text without cutting a character or an escape. */
static size_t part_of(const char *s, size_t max)
{
	size_t i = 0;

	while (i < max && s[i]) {
		uint32_t cp;
		size_t n = utf8_decode(s + i, strlen(s + i), &cp);

		i += s[i] == '\\' && s[i + 1] ? 2 : MAX(n, (size_t)1);
	}
	return i;
}

/* Appends a word as one would type it in a shell. */
static void put_word(const struct audit_view *v, struct buf *b, const char *s)
{
	size_t n = v->all ? strlen(s) : part_of(s, ARGUMENT_SHOWN);
	bool literal = is_literal(s);

	if (n > 0 && !s[n] && is_plain(s)) {
		put_once(b, s, n);
		return;
	}
	(void)buf_puts(b, literal ? "'" : "$'");
	for (size_t i = 0, run; i < n; i += run) {
		run = strcspn(s + i, "'\\");
		run = MIN(run, n - i);
		put_once(b, s + i, run);
		if (run > 0)
			continue;
		run = s[i] == '\\' && s[i + 1] ? 2 : 1;
		if (s[i] == '\'')
			(void)buf_puts(b, literal ? "'\\''" : "\\'");
		else
			put_once(b, s + i, literal ? 1 : run);
	}
	(void)buf_puts(b, s[n] ? "...'" : "'");
}

/* ---- members ---- */

static void put_number(struct buf *b, enum form form, uint64_t n)
{
	char text[VALUE_HINT_MAX];

	if (form == FORM_SIZE) {
		view_size(n, text, sizeof(text));
		for (const char *c = text; *c; c++) {
			if (str_has_prefix(c, ".0 "))
				c += STRLEN(".0");
			if (*c != ' ')
				(void)buf_putc(b, *c);
		}
	} else if (form == FORM_MS) {
		(void)buf_puts(b, value_format_duration(n, text));
	} else if (form == FORM_US) {
		(void)buf_printf(b, n < 1000000 ? "%.3gms" : "%.4gs",
				 n < 1000000 ? (double)n / 1e3 : (double)n / 1e6);
	} else if (form == FORM_CPUS) {
		(void)buf_puts(b, view_cpus(n, text));
	} else {
		(void)buf_printf(b, form == FORM_MODE ? "%04llo" : "%llu", (unsigned long long)n);
	}
}

static int append(const char *text, size_t n, void *arg)
{
	return buf_put(arg, text, n);
}

static void put_value(const struct audit_view *v, struct buf *b, enum form form,
		      const json_t *value)
{
	_cleanup_buf_ struct buf text = BUF_INIT(JSON_SIZE_MAX);
	const char *s = json_string_value(value);

	if (s && form == FORM_DIGEST && !v->all)
		put_once(b, s, MIN(strlen(s), (size_t)DIGITS_SHOWN));
	else if (s && form != FORM_TEXT && form != FORM_DIGEST)
		put_word(v, b, s);
	else if (s)
		put_once(b, s, strlen(s));
	else if (json_is_integer(value) && json_integer_value(value) >= 0 && !v->all)
		put_number(b, form, (uint64_t)json_integer_value(value));
	else if (json_dump_callback(value, append, &text, JSON_ENCODE_ANY | JSON_COMPACT) == 0)
		put_once(b, buf_text(&text), text.len);
}

/* Unset values are not shown. */
static bool is_nothing(enum form form, const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) == 0 &&
	       (form == FORM_SIZE || form == FORM_MS || form == FORM_US || form == FORM_CPUS);
}

static void put_member(const struct audit_view *v, struct buf *b, const char *key,
		       const json_t *value)
{
	const char *label = key;
	enum form form = FORM_PLAIN;

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
		if (str_eq(key, forms[i].key)) {
			label = forms[i].label && !v->all ? forms[i].label : key;
			form = forms[i].form;
		}
	if (!v->all && (form == FORM_HIDDEN || is_nothing(form, value)))
		return;
	(void)buf_puts(b, "  ");
	if (form != FORM_TEXT) {
		(void)buf_puts(b, cli_style(v->inv, "\033[2m"));
		put_once(b, label, strlen(label));
		(void)buf_printf(b, "=%s", cli_style(v->inv, "\033[0m"));
	}
	put_value(v, b, form, value);
}

static void put_command(const struct audit_view *v, struct buf *b, const json_t *o)
{
	const json_t *argv = json_object_get(o, "argv"), *word;
	json_int_t argc = json_integer_value(json_object_get(o, "argc"));
	size_t i;

	if (!json_is_array(argv))
		return;
	(void)buf_printf(b, "  %s", cli_style(v->inv, "\033[1m"));
	json_array_foreach(argv, i, word)
	{
		(void)buf_puts(b, i > 0 ? " " : "");
		put_word(v, b, json_is_string(word) ? json_string_value(word) : "?");
	}
	if (argc > (json_int_t)json_array_size(argv))
		(void)buf_printf(b, " ... and %lld more",
				 (long long)argc - (long long)json_array_size(argv));
	(void)buf_puts(b, cli_style(v->inv, "\033[0m"));
}

static void put_members(const struct audit_view *v, struct buf *b, const char *kind, json_t *o)
{
	const char *op = json_string_value(json_object_get(o, "op"));
	const json_t *n = json_object_get(o, "n");
	const char *key;
	json_t *value;

	if (json_is_integer(n))
		(void)buf_printf(b, "  #%lld", (long long)json_integer_value(n));
	put_command(v, b, o);
	json_object_foreach(o, key, value)
	{
		/* The kind includes the operation. */
		if (v->all || !str_eq(key, "op") || !op || !str_has_prefix(kind, op))
			put_member(v, b, key, value);
	}
}

/* ---- lines ---- */

const char *audit_view_sandbox(const struct audit_file *f, const json_t *payload)
{
	const char *named = json_string_value(json_object_get(payload, "sandbox"));

	return f->id[0] ? f->id : named ? named : "";
}

static const char *kind_of(const struct audit_record *r, char *spare, size_t n)
{
	const char *name = audit_kind_name(r->kind);

	(void)snprintf(spare, n, "kind-%u", r->kind);
	return name ? name : spare;
}

/* Red: failures and denials. Yellow: kills. Green: changes. Dim: records about the log itself. */
static const char *colour_of(unsigned int kind, const json_t *o)
{
	const char *verdict = json_string_value(json_object_get(o, "verdict"));

	switch (kind) {
	case AUDIT_EGRESS:
	case AUDIT_HTTP:
	case AUDIT_LLM:
		return verdict && str_eq(verdict, "deny") ? "\033[31m" : "";
	case AUDIT_REFUSED:
	case AUDIT_LIMIT:
	case AUDIT_TORN:
	case AUDIT_DROPPED:
		return "\033[31m";
	case AUDIT_KILL:
	case AUDIT_SIGNAL:
	case AUDIT_OUTPUT:
		return "\033[33m";
	case AUDIT_CREATE:
	case AUDIT_EXEC:
	case AUDIT_FILE_WRITE:
	case AUDIT_IMAGE:
	case AUDIT_API_KEY:
	case AUDIT_SECRET:
		return "\033[32m";
	case AUDIT_BEGIN:
	case AUDIT_SEAL:
	case AUDIT_CHECKPOINT:
	case AUDIT_ROTATE:
		return "\033[2m";
	default:
		return "";
	}
}

static int print_text(const struct audit_view *v, const struct audit_file *f,
		      const struct audit_record *r, json_t *o)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES), id = BUF_INIT(LINE_MAX_BYTES);
	char time[CLOCK_RFC3339_MAX], spare[32];
	const char *sandbox = audit_view_sandbox(f, o), *kind = kind_of(r, spare, sizeof(spare));

	(void)clock_format(r->wall, time);
	time[v->all ? STRLEN("2026-11-15T08:00:00.123456") : STRLEN("2026-11-15T08:00:00.123")] =
		'\0';
	put_once(&id, sandbox[0] ? sandbox : "-", sandbox[0] ? strnlen(sandbox, SPEC_ID) : 1);
	(void)buf_printf(&b, "%s%sZ%s  %-16s  %s%-10s%s", cli_style(v->inv, "\033[2m"), time,
			 cli_style(v->inv, "\033[0m"), buf_text(&id),
			 cli_style(v->inv, colour_of(r->kind, o)), kind,
			 cli_style(v->inv, "\033[0m"));
	if (json_is_object(o))
		put_members(v, &b, kind, o);
	if (b.err || id.err)
		return -ENOMEM;
	(void)puts(buf_text(&b));
	return 0;
}

static int print_json(const struct audit_file *f, const struct audit_record *r, json_t *o)
{
	char time[CLOCK_RFC3339_MAX], spare[32], hash[2 * AUDIT_HASH + 1], boot[2 * AUDIT_BOOT + 1];
	const char *sandbox = audit_view_sandbox(f, o);
	uint64_t mono = MIN(r->mono, (uint64_t)INT64_MAX), seq = MIN(r->seq, (uint64_t)INT64_MAX);
	_cleanup_json_ json_t *line = NULL;
	_cleanup_free_ char *text = NULL;

	(void)sodium_bin2hex(hash, sizeof(hash), r->hash, AUDIT_HASH);
	(void)sodium_bin2hex(boot, sizeof(boot), r->boot, AUDIT_BOOT);
	line = JSON_OBJECT(
		{ "time", json_string(clock_format(r->wall, time)) },
		{ "monotonic", json_number(mono) }, { "boot", json_string(boot) },
		{ "chain", json_string(f->id[0] ? f->id : "host") },
		{ "sandbox",
		  sandbox[0] ? json_stringn(sandbox, strnlen(sandbox, SPEC_ID)) : json_null() },
		{ "seq", json_number(seq) },
		{ "kind", json_string(kind_of(r, spare, sizeof(spare))) },
		{ "hash", json_string(hash) }, { "payload", o ? json_incref(o) : json_null() });
	text = line ? json_write_line(line) : NULL;
	if (!text)
		return -ENOMEM;
	(void)puts(text);
	return 0;
}

int audit_view_print(const struct audit_view *v, const struct audit_file *f,
		     const struct audit_record *r, json_t *payload)
{
	/* The first record of a sandbox's chain repeats one of the host chain. */
	if (!v->json && !v->all && f->id[0] && r->kind == AUDIT_BEGIN)
		return 0;
	return v->json ? print_json(f, r, payload) : print_text(v, f, r, payload);
}
