/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the stores of templates, locks them, and reads and writes their files. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

#define ID_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789"

enum {
	RECORD_MAX = 64 * 1024,
};

/* Accepts the same names as key_name_valid(). */
static bool owner_valid(const char *owner)
{
	return owner[0] != '\0' && owner[0] != '.' && strlen(owner) <= TEMPLATE_NAME_MAX &&
	       owner[strspn(owner, ID_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-")] == '\0';
}

static int open_home(struct template_store *s, const char *owner, bool make, struct err *e)
{
	char below[TEMPLATE_NAME_MAX + 32];

	if (!owner[0])
		return image_home_open("templates", make, s->path, &s->dir, e);
	if (!owner_valid(owner))
		return err_set(e, -EINVAL, "'%.80s' cannot own templates", owner);
	(void)snprintf(s->owner, sizeof(s->owner), "%s", owner);
	(void)snprintf(below, sizeof(below), "templates/owners/%s", owner);
	return image_home_open(below, make, s->path, &s->dir, e);
}

int template_store_open(struct template_store *s, const char *owner, bool make, struct err *e)
{
	int r;

	*s = (struct template_store)TEMPLATE_STORE_INIT;
	r = open_home(s, owner, make, e);
	if (r == 0)
		r = image_home_dir(s->dir, "names", make, &s->names, e);
	if (r == 0)
		r = image_home_dir(s->dir, "builds", make, &s->builds, e);
	if (r == 0)
		r = image_home_dir(s->dir, "files", make, &s->files, e);
	if (r < 0)
		template_store_close(s);
	return r < 0 && s->path[0] ? err_wrap(e, "%s", s->path) : r;
}

static int call_for(const char *owner,
		    int (*fn)(const struct template_store *s, void *arg, struct err *e), void *arg,
		    struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct err own = ERR_INIT;
	int r = template_store_open(&s, owner, false, &own);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? (*e = own).num : fn(&s, arg, e);
}

int template_each_store(int (*fn)(const struct template_store *s, void *arg, struct err *e),
			void *arg, struct err *e)
{
	_cleanup_close_ int owners = -EBADF;
	char path[IMAGE_HOME_MAX];
	struct err own = ERR_INIT;
	const struct dirent *entry;
	DIR *d;
	int r = call_for("", fn, arg, e);

	if (r != 0)
		return r;
	r = image_home_open("templates/owners", false, path, &owners, &own);
	if (r < 0)
		return r == -ENOENT ? 0 : (*e = own).num;
	d = fd_list(owners);
	if (!d)
		return err_errno(e, "cannot list '%s'", path);
	while (r == 0 && (entry = readdir(d)))
		if (owner_valid(entry->d_name))
			r = call_for(entry->d_name, fn, arg, e);
	(void)closedir(d);
	return r;
}

void template_store_close(struct template_store *s)
{
	s->dir = fd_close(s->dir);
	s->names = fd_close(s->names);
	s->builds = fd_close(s->builds);
	s->files = fd_close(s->files);
}

int template_lock(const struct template_store *s, int *ret_fd, struct err *e)
{
	return image_home_lock(s->dir, s->path, ret_fd, e);
}

static bool is_made_of(const char *s, size_t n, const char *letters)
{
	return strlen(s) == n && strspn(s, letters) == n;
}

bool template_id_valid(const char *id)
{
	return is_made_of(id, TEMPLATE_ID, ID_LETTERS);
}

bool template_build_valid(const char *build)
{
	if (!is_made_of(build, TEMPLATE_BUILD_ID, "0123456789abcdef-"))
		return false;
	for (size_t i = 0; i < TEMPLATE_BUILD_ID; i++)
		if ((build[i] == '-') != (i == 8 || i == 13 || i == 18 || i == 23))
			return false;
	return true;
}

int template_random(char *out, size_t n)
{
	const size_t fair = 256 - 256 % STRLEN(ID_LETTERS);
	unsigned char byte;

	for (size_t i = 0; i < n;) {
		if (RETRY_EINTR(getrandom(&byte, 1, 0)) != 1)
			return -EIO;
		if (byte < fair)
			out[i++] = ID_LETTERS[byte % STRLEN(ID_LETTERS)];
	}
	out[n] = '\0';
	return 0;
}

int template_uuid(char out[static TEMPLATE_BUILD_ID + 1])
{
	unsigned char b[16];

	if (RETRY_EINTR(getrandom(b, sizeof(b), 0)) != (ssize_t)sizeof(b))
		return -EIO;
	b[6] = (b[6] & 0x0f) | 0x40; /* version 4, variant 1: RFC 9562 */
	b[8] = (b[8] & 0x3f) | 0x80;
	(void)snprintf(out, TEMPLATE_BUILD_ID + 1,
		       "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		       b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
		       b[13], b[14], b[15]);
	return 0;
}

int template_read(int dir, const char *file, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(RECORD_MAX);
	int r = fd_read_file(dir, file, &b, e);

	if (r == 0 && json_read(buf_text(&b), b.len, ret, e) < 0)
		r = e->num = e->num == -ENOMEM ? -ENOMEM : -EBADMSG;
	return r < 0 && r != -ENOENT ? err_wrap(e, "the template's '%s'", file) : r;
}

int template_write(int dir, const char *file, const json_t *j, struct err *e)
{
	_cleanup_free_ char *text = json_write_line(j);

	if (!text)
		return err_oom(e);
	if (strlen(text) > RECORD_MAX)
		return err_set(e, -EUSERS, "the template's '%s' would be too long", file);
	return fd_replace_file(dir, file, 0600, text, strlen(text), e);
}

int template_count(int dir, size_t *ret, struct err *e)
{
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	size_t n = 0;

	if (!d)
		return err_errno(e, "cannot list templates");
	while ((entry = readdir(d)))
		n += str_has_suffix(entry->d_name, ".json");
	(void)closedir(d);
	*ret = n;
	return 0;
}

int template_ref_parse(const char *text, struct template_ref *ret, struct err *e)
{
	size_t n = strcspn(text, ":");

	if (!image_name_valid(text))
		return err_set(e, -EINVAL, "'%.80s' is not a name: " IMAGE_NAME_RULE, text);
	(void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, text);
	(void)snprintf(ret->tag, sizeof(ret->tag), "%s", text[n] ? text + n + 1 : "default");
	return 0;
}
