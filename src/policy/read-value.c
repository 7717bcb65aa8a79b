/* SPDX-License-Identifier: Apache-2.0 */
/* Readers for single values. */
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "policy/reading.h"
#include "policy/value.h"

void read_name(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	const char *s = reading_scalar(rd, n, key_type_expects(k->type));

	if (!s)
		return;
	if (!store_name_valid(s, n->len))
		return reading_wrong_kind(rd, n, key_type_expects(k->type));
	*(const char **)field = reading_keep(rd, s);
}

void read_text(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	const char *s = reading_scalar(rd, n, key_type_expects(k->type));

	if (!s)
		return;
	if (n->len > k->max)
		return reading_wrong(rd, n->pos, NULL, "text of %zu bytes, at most %llu", n->len,
				     (unsigned long long)k->max);
	if (k->type == KEY_LINE && strchr(s, '\n'))
		return reading_wrong(rd, n->pos, NULL, "expected one line of text, found several");
	reading_check_credential(rd, n);
	*(const char **)field = reading_keep(rd, s);
}

/* Returns the index of a word, or -1 after an error that lists the words. */
static int word_index(struct reading *rd, const struct yaml_node *n, const char *const *words)
{
	char all[READING_EXPECTS_MAX] = "one of: ", mean[128];
	const size_t skip = STRLEN("one of: ");
	const char *s;

	reading_join(words, all + skip, sizeof(all) - skip);
	s = reading_scalar(rd, n, all);
	if (!s)
		return -1;
	for (int i = 0; words[i]; i++)
		if (str_eq(words[i], s))
			return i;
	reading_wrong(rd, n->pos, reading_hint(str_closest(s, words), mean, sizeof(mean)),
		      "'%.*s' is not %s", READING_FOUND_MAX, s, all);
	return -1;
}

void read_word(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	int i = word_index(rd, n, k->words);

	if (i >= 0)
		*(unsigned int *)field = (unsigned int)i;
}

void read_word_set(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	char all[READING_EXPECTS_MAX];
	size_t index = 0;

	if (!reading_is_kind(rd, n, YAML_LIST, reading_expects(k, all, sizeof(all))))
		return;
	yaml_foreach (item, n) {
		size_t was = reading_enter(rd, NULL, index++);
		int i = word_index(rd, item, k->words);

		if (i >= 0)
			*(uint64_t *)field |= UINT64_C(1) << i;
		reading_leave(rd, was);
	}
}

/* Functions to parse, suggest and format the numbers of a type. */
static const struct {
	int (*parse)(const char *s, uint64_t *ret);
	bool (*hint)(const char *s, char out[static VALUE_HINT_MAX]);
	const char *(*format)(uint64_t value, char out[static VALUE_HINT_MAX]);
} numbers[] = {
	[KEY_SIZE] = { value_size, value_size_hint, value_format_size },
	[KEY_DURATION] = { value_duration, value_duration_hint, value_format_duration },
};

static int parse_number(enum key_type type, const struct yaml_node *n, uint64_t *ret)
{
	if (type == KEY_COUNT)
		return str_to_u64(n->text, n->len, UINT64_MAX, ret);
	if (type == KEY_THOUSANDTHS)
		return value_thousandths(n->text, ret);
	return numbers[type].parse(n->text, ret);
}

static const char *format_number(enum key_type type, uint64_t value,
				 char out[static VALUE_HINT_MAX])
{
	if (type == KEY_COUNT)
		(void)snprintf(out, VALUE_HINT_MAX, "%llu", (unsigned long long)value);
	else if (type == KEY_THOUSANDTHS)
		(void)snprintf(out, VALUE_HINT_MAX, "%g", (double)value / 1000);
	else
		(void)numbers[type].format(value, out);
	return out;
}

void read_number(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	char low[VALUE_HINT_MAX], high[VALUE_HINT_MAX], meant[VALUE_HINT_MAX], mean[128];
	const char *s = reading_scalar(rd, n, key_type_expects(k->type)), *hint = NULL;
	uint64_t value;
	int r;

	if (!s)
		return;
	r = parse_number(k->type, n, &value);
	if (r == -EINVAL) {
		if ((k->type == KEY_SIZE || k->type == KEY_DURATION) &&
		    numbers[k->type].hint(s, meant))
			hint = reading_hint(meant, mean, sizeof(mean));
		return reading_wrong(rd, n->pos, hint, "expected %s, found '%.*s'",
				     key_type_expects(k->type), READING_FOUND_MAX, s);
	}
	if (r < 0 || value < k->min || value > k->max)
		return reading_wrong(rd, n->pos, NULL, "'%.*s' is out of range: from %s to %s",
				     READING_FOUND_MAX, s, format_number(k->type, k->min, low),
				     format_number(k->type, k->max, high));
	*(uint64_t *)field = value;
}

const char *reading_path(struct reading *rd, const struct yaml_node *n, char *out, size_t size)
{
	const char *s = reading_scalar(rd, n, key_type_expects(KEY_PATH));

	if (!s)
		return NULL;
	if (path_canonical(s, out, size) == 0 && !strpbrk(s, "\n\t"))
		return out;
	reading_wrong_kind(rd, n, key_type_expects(KEY_PATH));
	return NULL;
}

void read_path(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	char path[READING_PATH_TEXT_MAX];

	if (reading_path(rd, n, path, sizeof(path)))
		*(const char **)field = reading_keep(rd, path);
}
