/* SPDX-License-Identifier: Apache-2.0 */
/* The spellings in which a known value may leave a sandbox. */
#include <string.h>

#include "base/str.h"
#include "filter/filter-inner.h"

enum {
	FORMS_OF_A_VALUE = 12,
	ALIGNMENTS = 3, /* of base64: the value may follow other bytes */
};

/* Takes the text. */
static int add(struct filter_forms *all, const struct filter_value *value, char *text, size_t n,
	       bool caseless)
{
	struct filter_form *form;

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < all->n; i++)
		if (all->form[i].n == n && memcmp(all->form[i].text, text, n) == 0) {
			free(text);
			return 0;
		}
	if (n < FILTER_VALUE_MIN) {
		free(text);
		return 0;
	}
	form = &all->form[all->n++];
	*form = (struct filter_form){ .text = text, .n = n, .caseless = caseless };
	(void)snprintf(form->name, sizeof(form->name), "secret:%.64s", value->name);
	return 0;
}

static int add_buf(struct filter_forms *all, const struct filter_value *value, struct buf *b,
		   bool caseless)
{
	const size_t n = b->len;

	return b->err ? b->err : add(all, value, buf_take(b), n, caseless);
}

/*
 * The base64 of a text that contains the value after `skip` bytes (modulo 3), without the
 * characters at both ends that depend on the neighbours.
 */
static int add_base64(struct filter_forms *all, const struct filter_value *value,
		      const char *alphabet, size_t skip)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * FILTER_VALUE_MAX);
	const size_t first = (8 * skip + 5) / 6, end = 8 * (skip + value->n) / 6;

	for (size_t i = first; i < end; i++) {
		unsigned int six = 0;

		for (size_t bit = 6 * i; bit < 6 * i + 6; bit++) {
			const uint8_t byte = (uint8_t)value->data[bit / 8 - skip];

			six = six << 1 | (byte >> (7 - bit % 8) & 1);
		}
		(void)buf_putc(&b, alphabet[six]);
	}
	return add_buf(all, value, &b, false);
}

static int add_hex(struct filter_forms *all, const struct filter_value *value)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * FILTER_VALUE_MAX);

	for (size_t i = 0; i < value->n; i++)
		(void)buf_printf(&b, "%02x", (uint8_t)value->data[i]);
	return add_buf(all, value, &b, true);
}

static bool is_plain(char c)
{
	return ascii_is_lower(ascii_lower(c)) || ascii_is_digit(c);
}

/* With and without the escapes of '/': encoders differ. */
static int add_url(struct filter_forms *all, const struct filter_value *value, const char *kept)
{
	_cleanup_buf_ struct buf b = BUF_INIT(3 * FILTER_VALUE_MAX);

	for (size_t i = 0; i < value->n; i++) {
		const char c = value->data[i];

		if (is_plain(c) || (c != '\0' && strchr(kept, c)))
			(void)buf_putc(&b, c);
		else
			(void)buf_printf(&b, "%%%02X", (uint8_t)c);
	}
	/* The digits of an escape have either case. */
	return add_buf(all, value, &b, true);
}

static int add_json(struct filter_forms *all, const struct filter_value *value, const char *escaped)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * FILTER_VALUE_MAX);

	for (size_t i = 0; i < value->n; i++) {
		const char c = value->data[i];

		if (c != '\0' && strchr(escaped, c))
			(void)buf_putc(&b, '\\');
		(void)buf_putc(&b, c);
	}
	return add_buf(all, value, &b, false);
}

int filter_forms_add(struct filter_forms *all, const struct filter_value *value)
{
	static const char *const alphabets[] = {
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
	};
	struct filter_form *more;
	char *text;
	int r;

	if (value->n < FILTER_VALUE_MIN || value->n > FILTER_VALUE_MAX)
		return 0;
	more = realloc(all->form, (all->n + FORMS_OF_A_VALUE) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	all->form = more;
	text = malloc(value->n);
	if (text)
		memcpy(text, value->data, value->n);
	r = add(all, value, text, value->n, false);
	for (size_t i = 0; i < ARRAY_SIZE(alphabets) && r == 0; i++)
		for (size_t skip = 0; skip < ALIGNMENTS && r == 0; skip++)
			r = add_base64(all, value, alphabets[i], skip);
	if (r == 0)
		r = add_hex(all, value);
	if (r == 0)
		r = add_url(all, value, "-._~");
	if (r == 0)
		r = add_url(all, value, "-._~/");
	if (r == 0)
		r = add_json(all, value, "\"\\");
	return r < 0 ? r : add_json(all, value, "\"\\/");
}

void filter_forms_done(struct filter_forms *all)
{
	for (size_t i = 0; i < all->n; i++) {
		explicit_bzero(all->form[i].text, all->form[i].n);
		free(all->form[i].text);
	}
	free(all->form);
	*all = (struct filter_forms){ 0 };
}
