/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "audit/audit.h"
#include "base/str.h"

/* Texts are compared up to their recorded length. */
static void count(struct audit_tally *t, enum audit_kind kind, const char *text)
{
	size_t n = strnlen(text, AUDIT_TALLY_TEXT - 1), i = 0;

	t->counted++;
	while (i < t->n_keys && (t->keys[i].kind != kind || strlen(t->keys[i].text) != n ||
				 memcmp(t->keys[i].text, text, n) != 0))
		i++;
	if (i == AUDIT_TALLY_KEYS) {
		t->others++;
		return;
	}
	if (i == t->n_keys) {
		t->keys[i].kind = kind;
		t->keys[i].count = 0;
		memcpy(t->keys[i].text, text, n);
		t->keys[i].text[n] = '\0';
		t->n_keys++;
	}
	t->keys[i].count++;
}

bool audit_tally_add(struct audit_tally *t, enum audit_kind kind, const char *text, uint64_t now)
{
	/* A window without counts needs no record. */
	if (t->counted == 0 && (t->since == 0 || now - t->since >= AUDIT_TALLY_WINDOW)) {
		t->since = MAX(now, UINT64_C(1));
		t->single = 0;
	}
	if (t->counted == 0 && t->single < AUDIT_TALLY_SINGLE) {
		t->single++;
		return true;
	}
	count(t, kind, text);
	return false;
}

uint64_t audit_tally_due(const struct audit_tally *t)
{
	return t->counted > 0 ? t->since + AUDIT_TALLY_WINDOW : 0;
}

static void put_keys(const struct audit_tally *t, struct audit_payload *p)
{
	(void)buf_puts(&p->text, ",\"keys\":[");
	for (size_t i = 0; i < t->n_keys; i++) {
		/* Built like a payload, then appended to the list. */
		_cleanup_audit_payload_ struct audit_payload key = AUDIT_PAYLOAD_INIT(p->secrets);

		audit_put_text(&key, "kind", audit_kind_name(t->keys[i].kind));
		audit_put_text(&key, "text", t->keys[i].text);
		audit_put_number(&key, "count", t->keys[i].count);
		if (key.text.err)
			p->text.err = key.text.err;
		(void)buf_printf(&p->text, "%s%s}", i > 0 ? "," : "", buf_text(&key.text));
	}
	(void)buf_putc(&p->text, ']');
}

int audit_tally_record(struct audit_tally *t, struct audit_chain *c, enum audit_kind sum,
		       uint64_t now, struct audit_payload *scratch)
{
	uint64_t before = c->head.count;
	int r;

	if (t->counted == 0)
		return 0;
	audit_payload_reset(scratch);
	audit_put_number(scratch, "since", t->since);
	audit_put_number(scratch, "until", now);
	audit_put_number(scratch, "events", t->counted);
	put_keys(t, scratch);
	audit_put_number(scratch, "others", t->others);
	r = audit_append(c, sum, scratch);
	/* A partly written record will be completed, so its counts are recorded. */
	if (r < 0 && c->head.count == before)
		return r;
	t->n_keys = 0;
	t->counted = t->others = t->since = 0;
	t->single = 0;
	return r;
}
