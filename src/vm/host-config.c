/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/host-config.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "builtin/default-store.h"
#include "engine/engine.h"
#include "policy/reading.h"
#include "snapshot/snapshot-room.h"

static const char *const yes_names[] = { "false", "true", NULL };

static const char *const wish_names[] = {
	[ACCEL_AUTO] = "auto",
	[ACCEL_WANT_KVM] = "kvm",
	[ACCEL_WANT_TCG] = "tcg",
	NULL,
};

/* clang-format off */
static const struct key host_keys[] = {
	{ "accel", KEY_WORD, .words = wish_names, .field = offsetof(struct host_config, accel) },
	{ "accel_timeout", KEY_DURATION, .min = 1000, .max = 600 * 1000,
	  .field = offsetof(struct host_config, accel_timeout) },
	{ "snapshot_space", KEY_SIZE, .min = UINT64_C(1) << 20, .max = UINT64_C(1) << 50,
	  .field = offsetof(struct host_config, snapshot_space) },
	{ "keep_ended", KEY_DURATION, .min = 0, .max = UINT64_C(3660) * 24 * 3600 * 1000,
	  .field = offsetof(struct host_config, keep_ended) },
	{ "ended_space", KEY_SIZE, .min = UINT64_C(1) << 20, .max = UINT64_C(1) << 50,
	  .field = offsetof(struct host_config, ended_space) },
	{ "disk_overcommit", KEY_WORD, .words = yes_names,
	  .field = offsetof(struct host_config, disk_overcommit) },
	{ "engine", KEY_LINE, .max = SPEC_ENGINE_MAX, .field = offsetof(struct host_config, engine) },
	{ "egress_proxy", KEY_LINE, .max = RULE_TEXT_MAX + STRLEN("http://"),
	  .field = offsetof(struct host_config, egress_proxy) },
	{ "tap_roots", KEY_PATH, .field = offsetof(struct host_config, tap_roots) },
	{ 0 }
};
/* clang-format on */

/* http://HOST:PORT. User name and password are not supported: they would be secret, and a spec is
 * not. */
static void read_proxy(struct reading *rd, const struct yaml_node *n, char *ret)
{
	static const char scheme[] = "http://";
	const char *s = reading_scalar(rd, n, "a proxy such as http://proxy.corp.example:3128");
	size_t len;
	struct target t;
	struct err e = ERR_INIT;

	if (!s)
		return;
	/* Not quoted in the message: it may contain a password. */
	if (memchr(s, '@', n->len))
		return reading_wrong(rd, n->pos, NULL,
				     "a proxy with a name or password is not supported");
	if (!str_has_prefix(s, scheme) || n->len != strlen(s))
		return reading_wrong(rd, n->pos, NULL, "expected http://HOST:PORT");
	s += sizeof(scheme) - 1;
	len = strlen(s);
	if (target_parse(s, len, &t, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "expected http://HOST:PORT: %s", e.msg);
	assert(len < RULE_TEXT_MAX);
	memcpy(ret, s, len + 1);
}

static void read_engine(struct reading *rd, const struct yaml_node *n,
			char ret[static SPEC_ENGINE_MAX + 1])
{
	const char *s = reading_scalar(rd, n, "the name of an engine");
	const struct engine *ignored;
	struct err e = ERR_INIT;

	if (!s)
		return;
	if (engine_choose(LEVEL_DEFAULT, s, &ignored, &e) < 0)
		return reading_wrong(rd, n->pos, NULL, "%s", e.msg);
	(void)snprintf(ret, SPEC_ENGINE_MAX + 1, "%s", s);
}

static void read_file_path(struct reading *rd, const struct yaml_node *n,
			   char ret[static HOST_CONFIG_PATH])
{
	char path[READING_PATH_TEXT_MAX];

	static_assert((int)READING_PATH_TEXT_MAX <= (int)HOST_CONFIG_PATH, "every path fits");
	if (reading_path(rd, n, path, sizeof(path)))
		memcpy(ret, path, strlen(path) + 1);
}

static void read_key(struct reading *rd, const struct yaml_node *n, struct host_config *ret)
{
	size_t was = reading_enter(rd, n->key, 0);
	const struct key *k = host_keys;

	while (k->name && !str_eq(k->name, n->key))
		k++;
	if (!k->name)
		reading_unknown_key(rd, host_keys, n);
	else if (str_eq(k->name, "engine"))
		read_engine(rd, n, ret->engine);
	else if (k->type == KEY_PATH)
		read_file_path(rd, n, ret->tap_roots);
	else if (k->type == KEY_LINE)
		read_proxy(rd, n, ret->egress_proxy);
	else if (k->type == KEY_WORD)
		read_word(rd, k, n, (char *)ret + k->field);
	else
		read_number(rd, k, n, (char *)ret + k->field);
	reading_leave(rd, was);
}

void host_config_read(const struct source *src, struct host_config *ret, struct diags *d)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT;
	struct reading rd = { .d = d };
	const struct yaml_node *root = yaml_read(&arena, src, d);

	if (!root || !reading_is_kind(&rd, root, YAML_MAP, "a mapping"))
		return;
	yaml_foreach (n, root)
		read_key(&rd, n, ret);
}

/* The first existing file; *ret is NULL if there is none. */
static int find(struct default_store *s, const struct source **ret, struct err *e)
{
	char path[4096];
	int r = -ENOENT;

	for (size_t i = 0; (r == -ENOENT || r == -ENOTDIR) && s->dirs[i]; i++) {
		if ((size_t)snprintf(path, sizeof(path), "%s/host.yaml", s->dirs[i]) >=
		    sizeof(path))
			return err_set(e, -ENAMETOOLONG, "'%.80s...' is too long", s->dirs[i]);
		r = store_read(&s->store, path, ret, e);
	}
	if (r == -ENOENT || r == -ENOTDIR) {
		*ret = NULL;
		r = 0;
	}
	return r;
}

int host_config_load(struct host_config *ret, struct err *e)
{
	_cleanup_default_store_ struct default_store store = { 0 };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };
	const struct source *src = NULL;
	int r;

	r = default_store_open(&store, NULL, 0, e);
	if (r == 0)
		r = find(&store, &src, e);
	if (r < 0)
		return r;
	if (src)
		host_config_read(src, &config, &d);
	r = diags_result(&d);
	if (r == -ENOMEM)
		return err_oom(e);
	if (r < 0) {
		diags_sort(&d);
		return diags_first(&d, r, e);
	}
	*ret = config;
	return 0;
}

int accel_wish(enum accel_wish *ret, struct err *e)
{
	const char *text = getenv("HUTCH_ACCEL");
	struct host_config config = HOST_CONFIG_INIT;
	int r;

	for (unsigned int i = 0; text && wish_names[i]; i++)
		if (str_eq(text, wish_names[i])) {
			*ret = i;
			return 0;
		}
	if (text && text[0])
		return err_set(e, -EINVAL, "HUTCH_ACCEL is '%.40s', not auto, kvm or tcg", text);
	r = host_config_load(&config, e);
	if (r == 0)
		*ret = config.accel;
	return r;
}

int host_snapshot_room(uint64_t need, struct err *e)
{
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_close_ int home = -EBADF;
	int r = snapshot_home(&home, e);

	if (r == 0)
		r = host_config_load(&config, e);
	return r < 0 ? r : snapshot_room(home, config.snapshot_space, need, e);
}

const char *host_config_engine(const struct host_config *c)
{
	const char *set = getenv("HUTCH_ENGINE");

	return set && set[0] ? set : c->engine;
}
