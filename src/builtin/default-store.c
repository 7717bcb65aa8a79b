/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/default-store.h"

#include <string.h>

#include "builtin/builtin.h"

enum {
	DIRS_MAX = 31
};

static int add_dir(struct default_store *s, size_t *n, const char *dir, struct err *e)
{
	if (!dir[0])
		return 0;
	if (*n == DIRS_MAX)
		return err_set(e, -E2BIG, "more than %d directories to search", DIRS_MAX);
	s->dirs[(*n)++] = dir;
	return 0;
}

/* Adds the directories of HUTCH_CONFIG_PATH, separated by colons. Splits a copy in place. */
static int add_path(struct default_store *s, size_t *n, const char *path, struct err *e)
{
	char *dir = s->path_copy = strdup(path);
	int r = dir ? 0 : err_oom(e);

	while (r == 0 && dir) {
		char *colon = strchr(dir, ':');

		if (colon)
			*colon = '\0';
		r = add_dir(s, n, dir, e);
		dir = colon ? colon + 1 : NULL;
	}
	return r;
}

static int add_defaults(struct default_store *s, size_t *n, struct err *e)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int r = 0;

	if (xdg && xdg[0] == '/')
		(void)snprintf(s->user_dir, sizeof(s->user_dir), "%s/hutch", xdg);
	else if (home && home[0] == '/')
		(void)snprintf(s->user_dir, sizeof(s->user_dir), "%s/.config/hutch", home);
	r = add_dir(s, n, s->user_dir, e);
	return r < 0 ? r : add_dir(s, n, "/etc/hutch", e);
}

int default_store_open(struct default_store *s, const char *const *include, size_t n_include,
		       struct err *e)
{
	const char *path = getenv("HUTCH_CONFIG_PATH");
	size_t n = 0;
	int r = 0;

	*s = (struct default_store){ 0 };
	for (size_t i = 0; r == 0 && i < n_include; i++)
		r = add_dir(s, &n, include[i], e);
	if (r == 0)
		r = path ? add_path(s, &n, path, e) : add_defaults(s, &n, e);
	s->store = (struct policy_store)POLICY_STORE_INIT(builtin_files, builtin_files_n, s->dirs);
	return r;
}

void default_store_close(struct default_store *s)
{
	policy_store_done(&s->store);
	free(s->path_copy);
}
