/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a directory in a worker, with inotify(7). Each directory has one watch. The table of
 * watches is also the queue of directories still to be scanned, in order of discovery.
 *
 * If PID 1 does not read events, the worker blocks, the kernel's queue overflows, and the worker
 * reports lost events to the keeper.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/str.h"
#include "guest/worker.h"

enum {
	WATCHES_MAX = 8192,
	EVENT_PATH_MAX = 4096,
};

#define MASK                                                                           \
	(IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | \
	 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK)

struct watched {
	int wd;
	char *path; /* relative to the top; "" is the top */
};

static struct {
	struct worker *w;
	int inotify;
	bool recursive;
	struct watched table[WATCHES_MAX];
	size_t n, looked; /* table[looked] is the first unscanned directory */
	bool lost;	  /* a directory could not be watched */
	uint32_t cookie;  /* from the last rename of a temporary file */
	bool cookie_new;
} x;

/* Makes `path` below the top absolute. No descriptor is kept, because inotify does not report the
 * deletion of an open directory. */
static int whole(const char *path, char out[static WORKER_PATH_MAX])
{
	int n = snprintf(out, WORKER_PATH_MAX, "%s/%s", x.w->path, path);

	return n > 0 && n < WORKER_PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int event(enum wire_event kind, const char *path)
{
	char full[WORKER_PATH_MAX];

	if (whole(path, full) < 0)
		full[0] = '\0';
	return worker_send_event(x.w, kind, full, path);
}

/* Joins "dir/name"; either may be empty. Returns false if the result is too long. */
static bool join(char out[static EVENT_PATH_MAX + 1], const char *dir, const char *name)
{
	int n = snprintf(out, EVENT_PATH_MAX + 1, "%s%s%s", dir, dir[0] && name[0] ? "/" : "",
			 name);

	return n > 0 && n <= EVENT_PATH_MAX;
}

/* Watches the directory `path` below the top. 0 or -errno. */
static int add(const char *path)
{
	char full[WORKER_PATH_MAX];
	int wd, r = whole(path, full);
	char *copy;

	if (r < 0)
		return r;
	if (x.n == WATCHES_MAX)
		return -ENOSPC;
	/* The slash after the top's path follows a symbolic link to a directory. */
	wd = inotify_add_watch(x.inotify, full, MASK);
	if (wd < 0)
		return -errno;
	for (size_t i = 0; i < x.n; i++)
		if (x.table[i].wd == wd)
			return 0;
	copy = strdup(path);
	if (!copy) {
		(void)inotify_rm_watch(x.inotify, wd);
		return -ENOMEM;
	}
	x.table[x.n++] = (struct watched){ .wd = wd, .path = copy };
	return 0;
}

static void forget(size_t i)
{
	free(x.table[i].path);
	memmove(&x.table[i], &x.table[i + 1], (x.n - i - 1) * sizeof(x.table[0]));
	x.n--;
	if (x.looked > i)
		x.looked--;
}

/* The directory `path` is gone, with all directories below it. */
static void forget_below(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = x.n; i > 0; i--) {
		const struct watched *t = &x.table[i - 1];

		if (strncmp(t->path, path, len) == 0 &&
		    (t->path[len] == '\0' || t->path[len] == '/')) {
			(void)inotify_rm_watch(x.inotify, t->wd);
			forget(i - 1);
		}
	}
}

static void add_or_lose(const char *path)
{
	int r = add(path);

	/* A missing or unreadable directory has no visible events anyway. */
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -EACCES)
		x.lost = true;
}

/* Adds watches for the subdirectories of `path`; with `news`, reports the entries found. */
static int look_into(const char *path, bool news)
{
	char full[WORKER_PATH_MAX];
	const struct dirent *d;
	int fd, r = 0;
	DIR *dir;

	if (whole(path, full) < 0)
		return 0;
	fd = open(full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (!dir) {
		(void)fd_close(fd);
		return 0;
	}
	while (r == 0 && (d = readdir(dir))) {
		char child[EVENT_PATH_MAX + 1];
		struct stat st;

		if (str_eq(d->d_name, ".") || str_eq(d->d_name, "..") ||
		    !join(child, path, d->d_name))
			continue;
		if (news)
			r = event(WIRE_CREATED, child);
		if (d->d_type == DT_DIR ||
		    (d->d_type == DT_UNKNOWN &&
		     fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)))
			add_or_lose(child);
	}
	(void)closedir(dir);
	return r;
}

/* Scans all directories in the table that have not been scanned. */
static int look(bool news)
{
	while (x.recursive && x.looked < x.n) {
		char path[EVENT_PATH_MAX + 1];

		(void)snprintf(path, sizeof(path), "%s", x.table[x.looked++].path);
		if (look_into(path, news) < 0)
			return -1;
	}
	x.looked = x.n;
	return 0;
}

static int tell_lost(void)
{
	if (!x.lost)
		return 0;
	x.lost = false;
	return event(WIRE_LOST, ".");
}

/* Is this the temporary file of a write? */
static bool is_temp(const char *name, bool *ret_new)
{
	*ret_new = strncmp(name, TEMP_NEW, TEMP_PREFIX) == 0;
	return (*ret_new || strncmp(name, TEMP_OLD, TEMP_PREFIX) == 0) &&
	       strspn(name + TEMP_PREFIX, "0123456789abcdef") == TEMP_RANDOM &&
	       name[TEMP_PREFIX + TEMP_RANDOM] == '\0';
}

static int on_moved_to(const struct inotify_event *ev, const char *path)
{
	bool written = ev->cookie != 0 && ev->cookie == x.cookie;

	if (written && !x.cookie_new)
		return event(WIRE_WRITTEN, path);
	if (event(WIRE_CREATED, path) < 0)
		return -1;
	return written ? event(WIRE_WRITTEN, path) : 0;
}

/* Handles an event of an entry in a watched directory. */
static int on_entry(const struct inotify_event *ev, const char *path)
{
	bool is_new;

	if (is_temp(ev->name, &is_new)) {
		if (ev->mask & IN_MOVED_FROM) {
			x.cookie = ev->cookie;
			x.cookie_new = is_new;
		}
		return 0;
	}
	if ((ev->mask & IN_ISDIR) && (ev->mask & (IN_MOVED_FROM | IN_DELETE)))
		forget_below(path);
	if ((ev->mask & IN_ISDIR) && x.recursive && (ev->mask & (IN_MOVED_TO | IN_CREATE)))
		add_or_lose(path);
	if (ev->mask & IN_MOVED_TO)
		return on_moved_to(ev, path);
	if (ev->mask & IN_CREATE)
		return event(WIRE_CREATED, path);
	if (ev->mask & IN_MODIFY)
		return event(WIRE_WRITTEN, path);
	if (ev->mask & IN_DELETE)
		return event(WIRE_REMOVED, path);
	if (ev->mask & IN_MOVED_FROM)
		return event(WIRE_RENAMED, path);
	return ev->mask & IN_ATTRIB ? event(WIRE_ATTRIBUTES, path) : 0;
}

static int on_event(const struct inotify_event *ev)
{
	char path[EVENT_PATH_MAX + 1];
	size_t i = 0;

	if (ev->mask & IN_Q_OVERFLOW)
		return event(WIRE_LOST, ".");
	while (i < x.n && x.table[i].wd != ev->wd)
		i++;
	if (i == x.n)
		return 0;
	if (ev->len > 0)
		return join(path, x.table[i].path, ev->name) ? on_entry(ev, path) : 0;
	/* An event of the directory itself; except for the top, its parent reports it too. */
	if (i == 0 && (ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)))
		return fail_with(&x.w->fail, WIRE_GONE, "'%.180s' is gone", x.w->path);
	if (i == 0)
		return ev->mask & IN_ATTRIB ? event(WIRE_ATTRIBUTES, ".") : 0;
	if (ev->mask & IN_IGNORED)
		forget(i);
	return 0;
}

static int on_events(void)
{
	static char events[64 * 1024] __attribute__((aligned(8)));
	ssize_t n = RETRY_EINTR(read(x.inotify, events, sizeof(events)));

	if (n <= 0)
		return worker_fail(x.w, "watch");
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *ev = (const void *)(events + at);

		/* New directories are scanned at once, before their own events. */
		if (on_event(ev) < 0 || look(true) < 0 || tell_lost() < 0)
			return -1;
		at += (ssize_t)(sizeof(*ev) + ev->len);
	}
	return 0;
}

int worker_watch(struct worker *w)
{
	int fd = open(w->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC), r;

	x.w = w;
	x.recursive = fields_has(w->fields, TAG_RECURSIVE);
	/* inotify(7) checks only permission bits; opening the directory also checks Landlock. */
	if (fd < 0)
		return worker_fail(w, "watch");
	(void)close(fd);
	x.inotify = inotify_init1(IN_CLOEXEC);
	if (x.inotify < 0)
		return worker_fail(w, "watch");
	r = add("");
	if (r < 0)
		return fail_errno(&w->fail, -r == ENOSPC ? EMFILE : -r, "watch", w->path);
	if (look(false) < 0 || worker_send(w, PACKET_ACCEPT, AT_FDCWD, NULL, NULL, NULL) < 0 ||
	    tell_lost() < 0)
		return -1;
	while (on_events() == 0)
		;
	return -1;
}
