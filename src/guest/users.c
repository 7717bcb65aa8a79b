/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/users.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "confine/become.h"

#define DEFAULT_NAME "user"
#define NO_HOME	     "/tmp"

enum {
	DEFAULT_ID = 1000,
	PASSWD_FIELDS = 7, /* name, password, uid, gid, gecos, home, shell */
	GROUP_FIELDS = 4,  /* name, password, gid, members */
	NAMES_KEPT = 64,   /* of users and of groups; saves a search for each listed entry */
};

#define ID_MAX (UINT32_MAX - 1) /* the kernel takes -1 as "leave unchanged" */

static bool may_switch;

/* Read only by children. */
static struct buf passwd_file = BUF_INIT(USER_FILE_MAX), group_file = BUF_INIT(USER_FILE_MAX);

/* Identifies a version of a file. While all members are equal, the file need not be read again. */
struct version {
	bool known;
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec modified, changed;
};

static struct version passwd_version, group_version;

struct kept_name {
	uint32_t id;
	char name[USER_NAME_MAX + 1]; /* "": unused */
};

struct part {
	const char *s;
	size_t n;
};

/* Splits a line into exactly `want` parts at colons. */
static bool split(const char *line, size_t n, struct part *ret, size_t want)
{
	size_t count = 0;

	for (;;) {
		const char *colon = memchr(line, ':', n);
		size_t len = colon ? (size_t)(colon - line) : n;

		if (count == want)
			return false;
		ret[count++] = (struct part){ line, len };
		if (!colon)
			return count == want;
		line += len + 1;
		n -= len + 1;
	}
}

/* The next line of a text, without its newline; false at the end. */
static bool next_line(const struct buf *text, size_t *pos, struct part *ret)
{
	const char *start = buf_text(text) + *pos, *newline;
	size_t left = text->len - *pos;

	if (left == 0)
		return false;
	newline = memchr(start, '\n', left);
	ret->s = start;
	ret->n = newline ? (size_t)(newline - start) : left;
	*pos += ret->n + (newline ? 1 : 0);
	return true;
}

static bool part_is(const struct part *p, const char *s)
{
	return p->n == strlen(s) && memcmp(p->s, s, p->n) == 0;
}

static bool to_id(const struct part *p, uint32_t *ret)
{
	uint64_t id;

	if (str_to_u64(p->s, p->n, ID_MAX, &id) < 0)
		return false;
	*ret = (uint32_t)id;
	return true;
}

/* A file modified a moment ago is unknown: it may change again within the same timestamp. */
static struct version version_of(const char *path)
{
	const time_t now = (time_t)(clock_wall() / NSEC_PER_SEC);
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct version){ 0 };
	return (struct version){ .known =
					 st.st_mtim.tv_sec < now - 1 && st.st_ctim.tv_sec < now - 1,
				 .dev = st.st_dev,
				 .ino = st.st_ino,
				 .size = st.st_size,
				 .modified = st.st_mtim,
				 .changed = st.st_ctim };
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_version(const struct version *a, const struct version *b)
{
	return a->known && b->known && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       same_time(&a->modified, &b->modified) && same_time(&a->changed, &b->changed);
}

/* Reads a file. A missing, oversized or unreadable file has no entries. */
static void load(const char *path, struct buf *ret, struct version *have)
{
	struct err ignored = ERR_INIT;
	struct version now = version_of(path);

	if (same_version(have, &now))
		return;
	*have = now; /* taken before reading, so that a concurrent change is seen the next time */
	buf_reset(ret);
	if (fd_read_file(AT_FDCWD, path, ret, &ignored) < 0)
		buf_reset(ret);
}

static bool take_entry(const struct part p[PASSWD_FIELDS], struct user *u)
{
	if (p[0].n > USER_NAME_MAX || p[5].n >= USER_HOME_MAX || memchr(p[0].s, '\0', p[0].n) ||
	    memchr(p[5].s, '\0', p[5].n) || !to_id(&p[2], &u->uid) || !to_id(&p[3], &u->gid))
		return false;
	memcpy(u->name, p[0].s, p[0].n);
	u->name[p[0].n] = '\0';
	if (p[5].n > 0 && p[5].s[0] == '/') {
		memcpy(u->home, p[5].s, p[5].n);
		u->home[p[5].n] = '\0';
	}
	return true;
}

/* Finds the first entry with this name or, without a name, with this uid. */
static bool find_entry(const char *name, uid_t uid, struct user *u)
{
	struct part line, p[PASSWD_FIELDS];
	size_t pos = 0;

	while (next_line(&passwd_file, &pos, &line)) {
		uint32_t id;

		if (!split(line.s, line.n, p, PASSWD_FIELDS) || !to_id(&p[2], &id))
			continue;
		if (name ? part_is(&p[0], name) : id == uid)
			return take_entry(p, u);
	}
	return false;
}

static bool is_member(struct part list, const char *name)
{
	while (list.n > 0) {
		const char *comma = memchr(list.s, ',', list.n);
		struct part one = { list.s, comma ? (size_t)(comma - list.s) : list.n };

		if (part_is(&one, name))
			return true;
		if (!comma)
			return false;
		list.s += one.n + 1;
		list.n -= one.n + 1;
	}
	return false;
}

/* Finds the user's own group and those that list the user, like initgroups(3). */
static void find_groups(struct user *u)
{
	struct part line, p[GROUP_FIELDS];
	size_t pos = 0;

	u->groups[0] = u->gid;
	u->n_groups = 1;
	if (u->name[0] == '\0')
		return;
	while (u->n_groups < USER_GROUPS_MAX && next_line(&group_file, &pos, &line)) {
		uint32_t gid;

		if (split(line.s, line.n, p, GROUP_FIELDS) && is_member(p[3], u->name) &&
		    to_id(&p[2], &gid) && gid != u->gid)
			u->groups[u->n_groups++] = gid;
	}
}

/* Parses "UID" or "UID:GID". A uid without an entry gets the gid of the same number. */
static bool find_number(const char *spec, struct user *u)
{
	struct part p[2] = { 0 };
	bool group = split(spec, strlen(spec), p, 2);
	uint32_t uid, gid;

	if (!group)
		p[0] = (struct part){ spec, strlen(spec) };
	if (!to_id(&p[0], &uid) || (group && !to_id(&p[1], &gid)))
		return false;
	if (!find_entry(NULL, uid, u))
		u->uid = u->gid = uid;
	if (group)
		u->gid = gid;
	return true;
}

static void find_default(struct user *u)
{
	uid_t uid = may_switch ? DEFAULT_ID : geteuid();

	if (may_switch && find_entry(DEFAULT_NAME, 0, u))
		return;
	if (find_entry(NULL, uid, u))
		return;
	u->uid = uid;
	u->gid = may_switch ? DEFAULT_ID : getegid();
}

int user_find(const char *spec, struct user *ret, struct err *e)
{
	struct user u = { .home = NO_HOME };

	load("/etc/passwd", &passwd_file, &passwd_version);
	load("/etc/group", &group_file, &group_version);
	if (!spec)
		find_default(&u);
	else if (spec[0] == '\0' || (!find_number(spec, &u) && !find_entry(spec, 0, &u)))
		return err_set(e, -ENOENT, "there is no user '%s' in the sandbox", spec);
	find_groups(&u);
	*ret = u;
	return 0;
}

/* Finds the name in the first line with this id, if it is valid text. */
static void find_name(const struct buf *file, size_t columns, uint32_t id, struct kept_name *ret)
{
	struct part line, p[PASSWD_FIELDS];
	size_t pos = 0;
	uint32_t other;

	ret->id = id;
	(void)snprintf(ret->name, sizeof(ret->name), "%u", id);
	while (next_line(file, &pos, &line)) {
		if (!split(line.s, line.n, p, columns) || !to_id(&p[2], &other) || other != id)
			continue;
		if (p[0].n > 0 && p[0].n <= USER_NAME_MAX && !memchr(p[0].s, '\0', p[0].n) &&
		    utf8_valid(p[0].s, p[0].n))
			(void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)p[0].n, p[0].s);
		return;
	}
}

static const char *name_of(const struct buf *file, size_t columns, struct kept_name *kept,
			   uint32_t id)
{
	struct kept_name *k = &kept[id % NAMES_KEPT];

	if (k->name[0] == '\0' || k->id != id)
		find_name(file, columns, id, k);
	return k->name;
}

const char *user_name(uid_t uid)
{
	static struct kept_name kept[NAMES_KEPT];

	return name_of(&passwd_file, PASSWD_FIELDS, kept, uid);
}

const char *group_name(gid_t gid)
{
	static struct kept_name kept[NAMES_KEPT];

	return name_of(&group_file, GROUP_FIELDS, kept, gid);
}

int user_path(const struct user *u, const char *path, size_t n, char *ret, size_t size)
{
	bool tilde = n > 0 && path[0] == '~', absolute = n > 0 && path[0] == '/';
	int len;

	if (tilde && n > 1 && path[1] != '/')
		return -EINVAL;
	if (tilde) {
		path++;
		n--;
	}
	len = snprintf(ret, size, "%s%s%.*s", absolute ? "" : u->home,
		       absolute || tilde || n == 0 ? "" : "/", (int)n, path);
	return len >= 0 && (size_t)len < size ? 0 : -ENAMETOOLONG;
}

void users_start(void)
{
	pid_t pid = fork();
	int status = 1;

	/* The child tries it: uid maps, capabilities and other kernels all affect the result. */
	if (pid == 0)
		_exit(become_ids(DEFAULT_ID, DEFAULT_ID) < 0);
	if (pid > 0 && RETRY_EINTR(waitpid(pid, &status, 0)) == pid)
		may_switch = status == 0 && geteuid() != DEFAULT_ID;
}
