/* SPDX-License-Identifier: Apache-2.0 */
/* Users: requirements for an ordinary user, whose sandboxes need their own ids. */
#include <string.h>

#include "base/str.h"
#include "host/probe.h"

enum {
	SUBIDS_NEEDED = 65536,
	SUBIDS_FIRST = 100000,
	SUBIDS_FILE_MAX = 1024 * 1024,
};

struct subids {
	uint64_t count; /* longest range of this user */
	uint64_t next;	/* after all ranges: where a new one may start */
};

/* One line "name:start:count"; the name may be a numeric uid. */
static void take_line(const struct probe_ctx *x, const char *line, size_t n, struct subids *s)
{
	const char *name = line, *end = line + n, *colon = memchr(line, ':', n), *second;
	uint64_t start, count, uid;
	size_t len;

	if (!colon)
		return;
	len = (size_t)(colon - name);
	second = memchr(colon + 1, ':', (size_t)(end - colon - 1));
	if (!second ||
	    str_to_u64(colon + 1, (size_t)(second - colon - 1), UINT32_MAX, &start) < 0 ||
	    str_to_u64(second + 1, (size_t)(end - second - 1), UINT32_MAX, &count) < 0)
		return;
	s->next = MAX(s->next, start + count);
	if ((x->user && strlen(x->user) == len && memcmp(x->user, name, len) == 0) ||
	    (str_to_u64(name, len, UINT32_MAX, &uid) == 0 && uid == x->uid))
		s->count = MAX(s->count, count);
}

static void read_subids(const struct probe_ctx *x, const char *path, struct subids *ret)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SUBIDS_FILE_MAX);
	const char *p = host_text(x->root_fd, path, &b);

	*ret = (struct subids){ .next = SUBIDS_FIRST };
	while (*p) {
		size_t n = strcspn(p, "\n");

		take_line(x, p, n, ret);
		p += n + (p[n] == '\n');
	}
}

static bool probe_subids(const struct probe_ctx *x, struct host_check *c)
{
	struct subids u, g;
	uint64_t from;

	if (x->uid == 0) {
		check_value(c, HOST_OK, "not needed: root can map any id");
		return true;
	}
	read_subids(x, "etc/subuid", &u);
	read_subids(x, "etc/subgid", &g);
	if (u.count >= SUBIDS_NEEDED && g.count >= SUBIDS_NEEDED) {
		check_value(c, HOST_OK, "%llu uids, %llu gids", (unsigned long long)u.count,
			    (unsigned long long)g.count);
		return true;
	}
	check_value(c, HOST_FAIL, "%s", u.count || g.count ? "too few" : "none");
	check_detail(c, "a sandbox needs %d of each, this user has %llu uids and %llu gids",
		     SUBIDS_NEEDED, (unsigned long long)u.count, (unsigned long long)g.count);
	from = MAX(u.next, g.next);
	if (x->user)
		check_advice(
			c, "as root: usermod --add-subuids %llu-%llu --add-subgids %llu-%llu %s",
			(unsigned long long)from, (unsigned long long)(from + SUBIDS_NEEDED - 1),
			(unsigned long long)from, (unsigned long long)(from + SUBIDS_NEEDED - 1),
			x->user);
	else
		check_advice(c, "as root: echo %u:%llu:%d | tee -a /etc/subuid /etc/subgid", x->uid,
			     (unsigned long long)from, SUBIDS_NEEDED);
	return true;
}

static bool probe_newidmap(const struct probe_ctx *x, struct host_check *c)
{
	const struct host_program *u = &x->facts->program[HOST_NEWUIDMAP];
	const struct host_program *g = &x->facts->program[HOST_NEWGIDMAP];

	if (x->uid == 0)
		return false;
	if (u->found < 0 || g->found < 0) {
		check_value(c, HOST_FAIL, "not installed");
		check_detail(c, "they map a sandbox's subordinate ids");
		check_advice(c, "as root: apt-get install uidmap");
	} else if (!u->privileged || !g->privileged) {
		check_value(c, HOST_FAIL, "installed without privileges");
		check_detail(
			c,
			"neither set-user-id nor with file capabilities, so they cannot map ids");
		check_advice(c, "as root: apt-get install --reinstall uidmap");
	} else {
		check_value(c, HOST_OK, "%s", u->path);
	}
	return true;
}

const struct probe probe_users[] = {
	{ "user.subids", "subordinate ids", probe_subids },
	{ "user.newidmap", "newuidmap, newgidmap", probe_newidmap },
	{ NULL, NULL, NULL },
};
