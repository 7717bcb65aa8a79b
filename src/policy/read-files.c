/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files that a recipe adds to an image: a mapping of path to text. */
#include <string.h>

#include "base/str.h"
#include "policy/reading.h"

enum {
	FILES_MAX = 1024
};

static void read_file(struct reading *rd, struct pair_list *list, const struct yaml_node *n)
{
	const struct yaml_node key = {
		.kind = YAML_SCALAR, .pos = n->key_pos, .text = n->key, .len = strlen(n->key)
	};
	char path[READING_PATH_TEXT_MAX];
	struct pair *slot;

	if (!reading_path(rd, &key, path, sizeof(path)))
		return;
	if (n->kind != YAML_SCALAR || (n->len == 0 && !n->quoted))
		return reading_wrong_kind(rd, n, "text (\"\" for an empty file)");
	reading_check_credential(rd, n);
	for (size_t i = 0; i < list->n; i++)
		if (str_eq(list->v[i].key, path))
			return reading_wrong(rd, n->key_pos, NULL, "'%s' is written twice", path);
	if (list->n == FILES_MAX)
		return reading_wrong(rd, n->key_pos, NULL, "more than %d files", FILES_MAX);
	slot = list_slot(rd, list);
	if (!slot)
		return;
	*slot = (struct pair){ reading_keep(rd, path), reading_keep(rd, n->text), n->key_pos };
	if (slot->key && slot->value)
		list->n++;
}

void read_files(struct reading *rd, const struct key *k, const struct yaml_node *n, void *field)
{
	if (!reading_is_kind(rd, n, YAML_MAP, key_type_expects(k->type)))
		return;
	yaml_foreach (value, n) {
		size_t was = reading_enter(rd, value->key, 0);

		read_file(rd, field, value);
		reading_leave(rd, was);
	}
}
