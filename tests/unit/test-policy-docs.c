/* SPDX-License-Identifier: Apache-2.0 */
/* The reference contains every key of the schema and every preset of the store. */
#include "policy/docs.h"

#include "policy/schema.h"
#include "test-policy.h"

/* Calls `each` for every key with its path. */
static void each_key(const struct key *keys, const char *prefix,
		     void (*each)(const struct key *, const char *, void *), void *arg)
{
	for (; keys->name; keys++) {
		char path[128];

		(void)snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] ? "." : "",
			       keys->name);
		each(keys, path, arg);
		if (keys->type == KEY_SECRETS)
			(void)strcat(path, ".NAME");
		if (keys->keys)
			each_key(keys->keys, path, each, arg);
	}
}

static void in_text(const struct key *k, const char *path, void *arg)
{
	char line[160];

	(void)snprintf(line, sizeof(line),
		       k->type == KEY_SECTION ? "\n### %s\n" : "\n- `%s`: ", path);
	if (!strstr(arg, line) || !strstr(arg, k->doc) ||
	    (k->fallback && !strstr(arg, k->fallback)))
		fail_msg("%s is not there", path);
	for (size_t i = 0; k->words && k->words[i]; i++)
		assert_non_null(strstr(arg, k->words[i]));
}

TEST(text_holds_every_key)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs(&store, &b, &e), 0);
	each_key(agent_keys, "", in_text, b.data);
	for (size_t i = 0; i < PRESET_KIND_MAX; i++)
		each_key(preset_keys[i], "", in_text, b.data);
	assert_non_null(strstr(b.data, "- `mail`: Mail. Risk: Sends mail.\n"));
	assert_non_null(strstr(b.data, "- `brief`: Short answers.\n"));
	assert_non_null(strstr(b.data,
			       "- `resources.cpus`: a number such as 2 or 0.5, from 0.01 to "
			       "1024. Default: `1`.\n"));
	assert_non_null(strstr(b.data, "`isolation.level`: one of: `container`, `gvisor`, "
				       "`microvm`. Default: `container`.\n"));
	assert_non_null(strstr(b.data, "from 100ms to 365d. Default: `10m`."));
	assert_non_null(strstr(b.data, "from 32MiB to 64TiB. Default: `1GiB`."));
	assert_non_null(strstr(b.data, "from 4 to 4194304. Default: `512`."));
	assert_null(strstr(b.data, "(null)"));
}

/* Removes it from the list, so that the rest was never in the schema. */
static void in_json(const struct key *k, const char *path, void *arg)
{
	json_t *o = NULL;
	size_t i = 0;

	while (i < json_array_size(arg)) {
		o = json_array_get(arg, i);
		if (str_eq(json_string_value(json_object_get(o, "key")), path))
			break;
		i++;
	}
	assert_true(i < json_array_size(arg));
	assert_string_equal(json_string_value(json_object_get(o, "doc")), k->doc);
	assert_string_equal(json_string_value(json_object_get(o, "expects")),
			    key_type_expects(k->type));
	assert_int_equal(json_is_true(json_object_get(o, "required")), k->required);
	if (k->fallback)
		assert_string_equal(json_string_value(json_object_get(o, "default")), k->fallback);
	else
		assert_null(json_object_get(o, "default"));
	assert_true((k->type >= KEY_SIZE && k->type <= KEY_THOUSANDTHS) ==
		    (json_object_get(o, "range") != NULL));
	assert_true((k->words != NULL) == json_is_array(json_object_get(o, "words")));
	assert_int_equal(json_array_remove(arg, i), 0);
}

TEST(json_holds_every_key)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_json_ json_t *j = NULL, *again = NULL;
	_cleanup_free_ char *text = NULL;
	json_t *presets, *keys;
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs_json(&store, &j, &e), 0);
	text = json_write_line(j);
	assert_int_equal(json_read(text, strlen(text), &again, &e), 0);
	assert_true(json_equal(j, again));
	keys = json_object_get(j, "agent");
	each_key(agent_keys, "", in_json, keys);
	assert_int_equal(json_array_size(keys), 0); /* and no others */
	presets = json_object_get(j, "presets");
	assert_int_equal(json_object_size(presets), PRESET_KIND_MAX);
	for (size_t i = 0; i < PRESET_KIND_MAX; i++) {
		keys = json_object_get(json_object_get(presets, preset_kind_names[i]), "keys");
		each_key(preset_keys[i], "", in_json, keys);
		assert_int_equal(json_array_size(keys), 0);
	}
}

TEST(lists_of_presets)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_json_ json_t *list = NULL;
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_presets_json(&store, PRESET_EGRESS, &list, &e), 0);
	text = json_write_line(list);
	assert_string_equal(
		text,
		"[{\"file\":\"presets/egress/floor.yaml\",\"name\":\"floor\",\"summary\":\"Shut\"},"
		"{\"file\":\"presets/egress/mail.yaml\",\"name\":\"mail\",\"risk\":\"Sends mail\","
		"\"summary\":\"Mail\"},"
		"{\"file\":\"presets/egress/site.yaml\",\"name\":\"site\",\"summary\":\"A site\"}"
		"]");
}

/* A wrong preset is reported, without partial output. */
TEST(a_wrong_preset_is_an_error)
{
	static const struct builtin_file files[] = {
		BUILTIN("presets/prompts/bad.yaml", "preset: {kind: prompts, name: bad}\n"),
	};
	_cleanup_store_ struct policy_store store = POLICY_STORE_INIT(files, 1, NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	json_t *j = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs(&store, &b, &e), -EINVAL);
	assert_string_equal(e.msg, "preset 'bad': presets/prompts/bad.yaml cannot be read");
	assert_int_equal(policy_docs_json(&store, &j, &e), -EINVAL);
	assert_int_equal(policy_presets_json(&store, PRESET_PROMPTS, &j, &e), -EINVAL);
	assert_null(j);
}

TEST(a_full_buffer_is_an_error)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf whole = BUF_INIT(1024 * 1024);
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs(&store, &whole, &e), 0);
	for (size_t n = 0; n < whole.len; n += n + 100 < whole.len ? 97 : 1) {
		_cleanup_buf_ struct buf b = BUF_INIT(n);

		assert_true(policy_docs(&store, &b, &e) < 0);
	}
}

TEST(also_without_presets)
{
	_cleanup_store_ struct policy_store store = POLICY_STORE_INIT(NULL, 0, NULL);
	_cleanup_buf_ struct buf whole = BUF_INIT(1024 * 1024), little = BUF_INIT(1000);
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs(&store, &whole, &e), 0);
	assert_true(policy_docs(&store, &little, &e) < 0);
}
