/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tree.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"

enum {
	READ_CHUNK = 256 * 1024,
	LINK_MAX_BYTES = 4096
};

static int empty(int fd, int depth);

static bool is_dots(const char *name)
{
	return str_eq(name, ".") || str_eq(name, "..");
}

static int remove_one(int dirfd, const char *name, int depth)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth > TREE_DEPTH_MAX)
		return -ELOOP;
	fd = RETRY_EINTR(openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, 0) == 0)
		fd = RETRY_EINTR(
			openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	(void)fchmod(fd, 0700); /* it is removed anyway, so its mode may change */
	r = empty(fd, depth + 1);
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int empty(int fd, int depth)
{
	struct dirent *entry;
	DIR *d = fd_list(fd);
	int r = 0;

	if (!d)
		return -errno;
	for (errno = 0; r == 0 && (entry = readdir(d)); errno = 0)
		if (!is_dots(entry->d_name))
			r = remove_one(dirfd(d), entry->d_name, depth);
	if (r == 0)
		r = -errno;
	(void)closedir(d);
	return r;
}

int tree_empty(int fd)
{
	return empty(fd, 0);
}

int tree_remove(int dirfd, const char *name)
{
	return remove_one(dirfd, name, 0);
}

/* ---- the digest ---- */

struct walk {
	crypto_hash_sha256_state hash;
	void (*tick)(void *arg, uint64_t files, uint64_t bytes);
	void *arg;
	struct tree_info info;
	char *chunk;
	char path[PATH_MAX * 2];
	size_t len;
};

static void put(struct walk *w, const char *s, size_t n)
{
	(void)crypto_hash_sha256_update(&w->hash, (const unsigned char *)s, n);
}

/* A field and its terminating NUL, which no field can contain. */
static void put_text(struct walk *w, const char *s)
{
	put(w, s, strlen(s) + 1);
}

static void put_head(struct walk *w, const char *type, const struct stat *st)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%04o", (unsigned int)st->st_mode & 07777);
	put_text(w, type);
	put_text(w, text);
	(void)snprintf(text, sizeof(text), "%u", (unsigned int)st->st_uid);
	put_text(w, text);
	(void)snprintf(text, sizeof(text), "%u", (unsigned int)st->st_gid);
	put_text(w, text);
	put_text(w, w->len > 0 ? w->path : ".");
}

static int hash_file(struct walk *w, int fd, char hex[static IMAGE_DIGEST_HEX + 1])
{
	unsigned char sum[IMAGE_DIGEST];
	crypto_hash_sha256_state state;
	ssize_t k;

	(void)crypto_hash_sha256_init(&state);
	while ((k = RETRY_EINTR(read(fd, w->chunk, READ_CHUNK))) > 0) {
		(void)crypto_hash_sha256_update(&state, (unsigned char *)w->chunk,
						(unsigned long long)k);
		w->info.bytes += (uint64_t)k;
		if (w->tick)
			w->tick(w->arg, w->info.files, w->info.bytes);
	}
	if (k < 0)
		return -errno;
	(void)crypto_hash_sha256_final(&state, sum);
	(void)sodium_bin2hex(hex, IMAGE_DIGEST_HEX + 1, sum, sizeof(sum));
	return 0;
}

static int walk_file(struct walk *w, int dirfd, const char *name, const struct stat *st,
		     struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char hex[IMAGE_DIGEST_HEX + 1];
	int r;

	fd = RETRY_EINTR(openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	r = fd < 0 ? -errno : hash_file(w, fd, hex);
	if (r < 0)
		return err_set(e, r, "cannot read '/%.100s': %s", w->path, strerror(-r));
	w->info.files++;
	put_head(w, "f", st);
	put_text(w, hex);
	return 0;
}

static int walk_link(struct walk *w, int dirfd, const char *name, const struct stat *st,
		     struct err *e)
{
	char target[LINK_MAX_BYTES + 1];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target));

	if (n < 0)
		return err_errno(e, "cannot read the link '/%.100s'", w->path);
	if (n > LINK_MAX_BYTES)
		return err_set(e, -EINVAL, "'/%.100s': the link is too long", w->path);
	target[n] = '\0';
	w->info.links++;
	put_head(w, "l", st);
	put_text(w, target);
	return 0;
}

static int walk_dir(struct walk *w, int fd, const struct stat *st, int depth, struct err *e);

static int walk_one(struct walk *w, int dirfd, const char *name, int depth, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, "cannot stat '/%.100s'", w->path);
	if (!S_ISLNK(st.st_mode) && st.st_mode & (S_ISUID | S_ISGID))
		return err_set(e, -EINVAL, "'/%.100s' has set-ID bits", w->path);
	if (S_ISREG(st.st_mode))
		return walk_file(w, dirfd, name, &st, e);
	if (S_ISLNK(st.st_mode))
		return walk_link(w, dirfd, name, &st, e);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -EINVAL, "'/%.100s' is neither file, directory nor link",
			       w->path);
	fd = RETRY_EINTR(openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return err_errno(e, "cannot open '/%.100s'", w->path);
	return walk_dir(w, fd, &st, depth, e);
}

struct names {
	char **v;
	size_t n, cap;
};

static void names_done(struct names *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->v[i]);
	free(list->v);
}

static int names_add(struct names *list, const char *name)
{
	if (list->n == list->cap) {
		size_t cap = list->cap > 0 ? list->cap * 2 : 32;
		char **v = realloc(list->v, cap * sizeof(v[0]));

		if (!v)
			return -ENOMEM;
		list->v = v;
		list->cap = cap;
	}
	list->v[list->n] = strdup(name);
	return list->v[list->n++] ? 0 : -ENOMEM;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All names in a directory, sorted by bytes. */
static int read_names(int fd, struct names *list)
{
	struct dirent *entry;
	DIR *d = fd_list(fd);
	int r = 0;

	if (!d)
		return -errno;
	for (errno = 0; r == 0 && (entry = readdir(d)); errno = 0)
		if (!is_dots(entry->d_name))
			r = names_add(list, entry->d_name);
	if (r == 0)
		r = -errno;
	(void)closedir(d);
	if (r == 0 && list->n > 1)
		qsort(list->v, list->n, sizeof(list->v[0]), compare_names);
	return r;
}

static int walk_dir(struct walk *w, int fd, const struct stat *st, int depth, struct err *e)
{
	_cleanup_(names_done) struct names list = { 0 };
	size_t was = w->len;
	int r = depth > TREE_DEPTH_MAX ? -ELOOP : read_names(fd, &list);

	if (r < 0)
		return err_set(e, r, "cannot list '/%.100s': %s", w->path, strerror(-r));
	w->info.dirs++;
	put_head(w, "d", st);
	put_text(w, "");
	for (size_t i = 0; r == 0 && i < list.n; i++) {
		size_t n = strlen(list.v[i]);

		if (was + n + 2 > sizeof(w->path))
			return err_set(e, -EINVAL, "'/%.100s...': the path is too long", w->path);
		w->len = was;
		if (was > 0)
			w->path[w->len++] = '/';
		memcpy(w->path + w->len, list.v[i], n + 1);
		w->len += n;
		r = walk_one(w, fd, list.v[i], depth + 1, e);
	}
	w->len = was;
	w->path[was] = '\0';
	return r;
}

int tree_digest(int root_fd, void (*tick)(void *arg, uint64_t files, uint64_t bytes), void *arg,
		struct tree_info *ret, struct err *e)
{
	_cleanup_free_ char *chunk = malloc(READ_CHUNK);
	_cleanup_free_ struct walk *w = calloc(1, sizeof(*w));
	struct stat st;
	int r;

	if (!chunk || !w)
		return err_oom(e);
	w->chunk = chunk;
	w->tick = tick;
	w->arg = arg;
	if (fstat(root_fd, &st) < 0)
		return err_errno(e, "cannot stat the tree");
	(void)crypto_hash_sha256_init(&w->hash);
	put_text(w, "hutch-tree-1");
	r = walk_dir(w, root_fd, &st, 0, e);
	if (r < 0)
		return r;
	(void)crypto_hash_sha256_final(&w->hash, w->info.digest);
	*ret = w->info;
	return 0;
}
