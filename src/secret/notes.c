/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.json: the hosts that policies bind a secret to, and its last use. Only `hutch secret ls`
 * reads it. A lost note does no harm: writers, which may be event loops, do not wait long for the
 * lock and do not sync. An empty file, as a power cut may leave it, contains no notes.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "secret/inner.h"

enum {
	VERSION = 1,
	HOSTS_MAX = 64,
	HOST_MAX = 255,
	TRIES = 20, /* for the lock, 5 ms apart */
};

#define USE_EVERY (60 * NSEC_PER_SEC)

/* ---- reading ---- */

static bool host_valid(const char *host)
{
	size_t n = host ? strlen(host) : 0;

	for (size_t i = 0; i < n; i++)
		if (host[i] <= ' ' || host[i] >= 0x7f)
			return false;
	return n > 0 && n <= HOST_MAX;
}

static int check_hosts(const json_t *list, struct err *e)
{
	if (!json_is_array(list) || json_array_size(list) > HOSTS_MAX)
		return err_set(e, -EINVAL, "'hosts' is not a list of at most %d names", HOSTS_MAX);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!host_valid(json_string_value(json_array_get(list, i))))
			return err_set(e, -EINVAL, "'hosts' has an item that is not a name");
	return 0;
}

int secret_notes_text(const struct buf *text, struct secret_info *info, struct err *e)
{
	static const char *const known[] = { "version", "hosts", "used", NULL };
	_cleanup_json_ json_t *o = NULL;
	const char *used = "";
	uint64_t version = 0, time = 0;
	json_t *hosts;
	int r = json_read(buf_text(text), text->len, &o, e);

	if (r == 0)
		r = json_only_keys(o, known, e);
	if (r == 0)
		r = json_get_u64(o, "version", INT64_MAX, &version, e);
	if (r == 0 && version != VERSION)
		r = err_set(e, -EINVAL, "'version' is %llu, this hutch supports %d",
			    (unsigned long long)version, VERSION);
	hosts = r == 0 ? json_object_get(o, "hosts") : NULL;
	if (r == 0)
		r = check_hosts(hosts, e);
	if (r == 0 && json_object_get(o, "used"))
		r = json_get_string(o, "used", CLOCK_RFC3339_MAX, &used, e);
	if (r == 0 && json_object_get(o, "used") && (clock_parse(used, &time) < 0 || time == 0))
		r = err_set(e, -EINVAL, "'used' is not a time");
	if (r < 0)
		return r;
	info->hosts = json_incref(hosts);
	info->used = time;
	return 0;
}

int secret_read_notes(const struct secret_store *s, struct secret_info *info, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SECRET_FILE_MAX);
	char file[SECRET_FILE_NAME];
	int r = secret_read_file(s, secret_file_name(info->name, NOTES_FILE, file), &b, e);

	if (r == -ENOENT || (r == 0 && b.len == 0))
		return 0;
	if (r == 0 && secret_notes_text(&b, info, e) < 0)
		r = err_wrap(e, "file '%s' of the store of secrets", file);
	return r;
}

/* ---- writing ---- */

static int add_host(struct secret_info *info, const char *host)
{
	if (!info->hosts)
		info->hosts = json_array();
	/* The oldest is forgotten. */
	if (json_array_size(info->hosts) == HOSTS_MAX && json_array_remove(info->hosts, 0) < 0)
		return -ENOMEM;
	return json_push(info->hosts, json_string(host));
}

static bool has_host(const struct secret_info *info, const char *host)
{
	for (size_t i = 0; i < json_array_size(info->hosts); i++)
		if (str_eq(json_string_value(json_array_get(info->hosts, i)), host))
			return true;
	return false;
}

static char *notes_text(const struct secret_info *info)
{
	_cleanup_json_ json_t *o = NULL;
	char used[CLOCK_RFC3339_MAX];
	json_t *hosts = info->hosts ? json_incref(info->hosts) : json_array();

	o = JSON_OBJECT({ "version", json_integer(VERSION) }, { "hosts", hosts });
	if (o && info->used && json_put(o, "used", json_string(clock_format(info->used, used))) < 0)
		return NULL;
	return o ? json_write_canonical(o) : NULL;
}

/* Unreadable notes are replaced by new ones. */
static void read_old(const struct secret_store *s, const char *name, struct secret_info *ret)
{
	struct err ignored = ERR_INIT;

	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	(void)secret_read_notes(s, ret, &ignored);
}

/* Returns whether the notes say so already. */
static bool is_known(const struct secret_info *info, const char *host, uint64_t used)
{
	if (host)
		return has_host(info, host);
	return info->used && info->used <= used && used - info->used < USE_EVERY;
}

static int lock_soon(const struct secret_store *s, int tries, int *ret_fd, struct err *e)
{
	int r;

	while ((r = secret_lock(s, false, ret_fd, e)) == -EWOULDBLOCK && --tries > 0)
		(void)poll(NULL, 0, 5);
	return r;
}

/* Replaces the file without sync. A left-over temporary file is removed by the next change. */
static void write_notes(const struct secret_store *s, const char *name, const char *text)
{
	char file[SECRET_FILE_NAME], tmp[SECRET_FILE_NAME];
	_cleanup_close_ int fd = -EBADF;

	(void)secret_file_name(name, NOTES_FILE, file);
	(void)secret_file_name(name, NOTES_FILE ".tmp", tmp);
	(void)unlinkat(s->dir, tmp, 0);
	fd = RETRY_EINTR(
		openat(s->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return;
	if (fchmod(fd, 0600) < 0 || fd_write_all(fd, text, strlen(text)) < 0 ||
	    renameat(s->dir, tmp, s->dir, file) < 0)
		(void)unlinkat(s->dir, tmp, 0);
}

/* Either a host or a time. */
static void note(const struct secret_store *s, const char *name, const char *host, uint64_t used)
{
	_cleanup_secret_info_ struct secret_info before = { 0 }, now = { 0 };
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int held = -EBADF;
	struct err ignored = ERR_INIT;

	if (s->dir < 0 || secret_has(s, name, &ignored) != 1)
		return;
	read_old(s, name, &before);
	if (is_known(&before, host, used) || lock_soon(s, host ? TRIES : 1, &held, &ignored) < 0)
		return;
	/* Another process may have changed the notes or removed the secret. */
	read_old(s, name, &now);
	if (is_known(&now, host, used) || secret_has(s, name, &ignored) != 1)
		return;
	if (host && add_host(&now, host) < 0)
		return;
	if (!host)
		now.used = used;
	text = notes_text(&now);
	if (text)
		write_notes(s, name, text);
}

void secret_note_host(const struct secret_store *s, const char *name, const char *host)
{
	if (host_valid(host))
		note(s, name, host, 0);
}

void secret_note_use(const struct secret_store *s, const char *name)
{
	note(s, name, NULL, clock_wall());
}
