/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host chain has many writers, one at a time under the lock. Each first finds the end of the
 * chain: it reads the newest file, from the last known end. Half a record there was left by a
 * killed writer: it is removed, and a record says so. Anything else that is wrong is damage, and
 * nothing is appended to it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "audit/audit-inner.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"

enum {
	CHECK_STEP_MAX = 16 * 1024,
	CHECK_STEPS = 1024, /* minimum number of steps in the cap */
	HOST_READ_MAX = AUDIT_HOST_FILE_MAX + 4 * AUDIT_RECORD_MAX,
};

/* The cap is checked when the host chain grows past a multiple of this. */
static uint64_t check_step(const struct audit_log *l)
{
	return MIN(MAX(l->max / CHECK_STEPS, UINT64_C(1)), (uint64_t)CHECK_STEP_MAX);
}

static int open_host(const struct audit_log *l, uint32_t number, int flags)
{
	char name[AUDIT_NAME_MAX];

	audit_file_name("", number, name);
	return path_open_nofollow(l->dir, name, flags, flags & O_CREAT ? 0600 : 0);
}

static int sync_dir(int dir)
{
	return RETRY_EINTR(fsync(dir)) < 0 ? -errno : 0;
}

/* Opens the newest file, created if there is none. */
static int open_newest(struct audit_log *l, int *ret_fd, struct err *e)
{
	_cleanup_audit_set_ struct audit_set s = AUDIT_SET_INIT;
	uint32_t number = 0;
	int fd;

	if (l->head.count == 0) {
		int r = audit_set_list(l, &s, e);

		if (r < 0)
			return r;
		for (size_t i = 0; i < s.n && !s.files[i].id[0]; i++)
			number = s.files[i].number;
		l->number = number;
		l->offset = 0;
	}
	/* Other processes may have rotated since we looked. */
	fd = open_host(l, l->number + 1, O_RDWR | O_APPEND);
	while (fd >= 0) {
		(void)fd_close(fd);
		l->number++;
		l->offset = 0;
		fd = open_host(l, l->number + 1, O_RDWR | O_APPEND);
	}
	fd = open_host(l, l->number, O_RDWR | O_APPEND | O_CREAT);
	if (fd < 0)
		return err_set(e, fd, "cannot open the audit log '%s': %s", l->path, strerror(-fd));
	*ret_fd = fd;
	return 0;
}

static int read_from(int fd, uint64_t offset, struct buf *b)
{
	for (;;) {
		char *p = buf_reserve(b, MIN((size_t)AUDIT_RECORD_MAX, b->max - b->len));
		ssize_t k;

		if (!p || b->len == b->max)
			return p ? -EFBIG : b->err;
		k = RETRY_EINTR(pread(fd, p, MIN((size_t)AUDIT_RECORD_MAX, b->max - b->len),
				      (off_t)(offset + b->len)));
		if (k <= 0)
			return k < 0 ? -errno : 0;
		buf_commit(b, (size_t)k);
	}
}

/* Reads file `number` from `*offset` on and moves `head` and `*offset` to its last complete record.
 */
static int walk(struct audit_log *l, int fd, uint32_t number, struct audit_head *head,
		uint64_t *offset, size_t *ret_torn, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HOST_READ_MAX);
	const char *why = NULL;
	size_t at = 0;
	ssize_t k = 0;
	int r = read_from(fd, *offset, &b);

	if (r < 0)
		return err_set(e, r, "cannot read the audit log '%s': %s", l->path, strerror(-r));
	if (*offset == 0)
		(void)audit_record_before((const uint8_t *)b.data, b.len, head);
	while (at < b.len) {
		struct audit_record rec;

		k = audit_record_read(head, (const uint8_t *)b.data + at, b.len - at, &rec, &why);
		if (k <= 0)
			break;
		at += (size_t)k;
	}
	if (k < 0)
		return err_set(e, -EBADMSG,
			       "the audit log is damaged (host-%08u.log, byte %llu: %s); "
			       "nothing is started: see 'hutch audit verify'",
			       number, (unsigned long long)(*offset + at), why);
	*offset += at;
	*ret_torn = b.len - at;
	return 0;
}

/* A file without a complete header continues where the file before it ends. */
static int end_before(struct audit_log *l, uint32_t number, struct audit_head *head, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	uint64_t offset = 0;
	size_t torn = 0;
	int r;

	*head = (struct audit_head){ 0 };
	if (number == 0)
		return 0;
	fd = open_host(l, number - 1, O_RDONLY);
	if (fd < 0)
		return err_set(e, fd,
			       "the audit log lacks host-%08u.log; nothing is started: see 'hutch "
			       "audit verify'",
			       number - 1);
	r = walk(l, fd, number - 1, head, &offset, &torn, e);
	if (r == 0 && torn > 0)
		r = err_set(e, -EBADMSG,
			    "host-%08u.log of the audit log ends in the middle of a record",
			    number - 1);
	return r;
}

static int failed(const struct audit_log *l, int r, struct err *e)
{
	return err_set(e, r,
		       "cannot write to the audit log '%s': %s; nothing is started without it",
		       l->path, strerror(-r));
}

/* Appends one record to the file at c->fd, or leaves the file unchanged. */
static int put_record(struct audit_log *l, struct audit_chain *c, enum audit_kind kind,
		      const struct audit_payload *p, struct err *e)
{
	uint64_t before = c->bytes;
	struct audit_head head = c->head;
	int r = audit_append(c, kind, p);

	if (r < 0) {
		/* If this fails, the next writer finds half a record and removes it. */
		if (c->done > 0 && ftruncate(c->fd, (off_t)before) < 0)
			c->done = 0;
		c->head = head;
		c->bytes = before;
		c->n_out = c->done = 0;
		return failed(l, r, e);
	}
	l->check = l->check || before / check_step(l) != c->bytes / check_step(l);
	l->head = c->head;
	l->offset = c->bytes;
	return 0;
}

static int repair(struct audit_log *l, struct audit_chain *c, size_t torn, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (ftruncate(c->fd, (off_t)c->bytes) < 0)
		return failed(l, -errno, e);
	(void)FAULT("audit-cut");
	audit_put_number(&p, "bytes", torn);
	return put_record(l, c, AUDIT_TORN, &p, e);
}

/* Writes the first record of a file. */
static int put_first(struct audit_log *l, struct audit_chain *c, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	uint8_t key[AUDIT_PUBLIC];
	int r = audit_public_key(l, key, e);

	if (r < 0)
		return r;
	if (l->number == 0)
		audit_put_text(&p, "version", HUTCH_VERSION);
	else
		audit_put_number(&p, "file", l->number);
	audit_put_hex(&p, "key", key, sizeof(key));
	return put_record(l, c, l->number == 0 ? AUDIT_BEGIN : AUDIT_ROTATE, &p, e);
}

/* Opens c->fd at the end of the chain, with at least one record in the file. */
static int find_end(struct audit_log *l, struct audit_chain *c, struct err *e)
{
	struct audit_head head;
	size_t torn = 0;
	struct stat st;
	int r = open_newest(l, &c->fd, e);

	if (r < 0)
		return r;
	if (fstat(c->fd, &st) < 0)
		return err_errno(e, "cannot stat the audit log '%s'", l->path);
	head = l->head;
	if (l->offset == 0 && st.st_size < AUDIT_HEADER)
		r = end_before(l, l->number, &head, e);
	if (r == 0)
		r = walk(l, c->fd, l->number, &head, &l->offset, &torn, e);
	if (r < 0) {
		l->head.count = 0; /* search from the beginning next time */
		return r;
	}
	memcpy(c->boot, l->boot, AUDIT_BOOT);
	c->number = l->number;
	c->bytes = l->offset;
	c->head = l->head = head;
	if (torn > 0)
		r = repair(l, c, torn, e);
	return r == 0 && l->offset == 0 ? put_first(l, c, e) : r;
}

static int put_mark(struct audit_log *l, struct audit_chain *c, struct audit_mark *ret,
		    struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct audit_mark m;
	int r = audit_sign(l, &c->head, &m, e);

	if (r < 0)
		return r;
	audit_put_number(&p, "seq", m.seq);
	audit_put_hex(&p, "hash", m.hash, AUDIT_HASH);
	audit_put_hex(&p, "key", m.key, AUDIT_PUBLIC);
	audit_put_hex(&p, "signature", m.signature, AUDIT_SIGNATURE);
	r = put_record(l, c, AUDIT_CHECKPOINT, &p, e);
	if (r == 0 && ret)
		*ret = m;
	return r;
}

/* Ends the old file with a checkpoint and starts a new one. */
static int rotate(struct audit_log *l, struct audit_chain *c, struct err *e)
{
	int fd, r = put_mark(l, c, NULL, e);

	if (r < 0)
		return r;
	if (RETRY_EINTR(fsync(c->fd)) < 0)
		return failed(l, -errno, e);
	fd = open_host(l, l->number + 1, O_RDWR | O_APPEND | O_CREAT | O_EXCL);
	if (fd < 0)
		return failed(l, fd, e);
	(void)fd_close(c->fd);
	c->fd = fd;
	c->number = ++l->number;
	c->bytes = l->offset = 0;
	r = FAULT("audit-rotated");
	if (r == 0)
		r = sync_dir(l->dir);
	return r < 0 ? failed(l, r, e) : put_first(l, c, e);
}

static void free_chain(struct audit_chain **c)
{
	if (*c)
		audit_chain_close(*c);
	free(*c);
}

static int begin(struct audit_log *l, struct audit_chain **ret, struct err *e)
{
	struct audit_chain *c = calloc(1, sizeof(*c));

	if (!c)
		return err_oom(e);
	c->fd = -EBADF;
	*ret = c;
	return find_end(l, c, e);
}

int audit_host_locked(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
		      struct err *e)
{
	_cleanup_(free_chain) struct audit_chain *c = NULL;
	int r = begin(l, &c, e);

	if (r == 0 && c->bytes + AUDIT_HEADER + (p ? p->text.len : 0) > AUDIT_HOST_FILE_MAX)
		r = rotate(l, c, e);
	return r == 0 ? put_record(l, c, kind, p, e) : r;
}

int audit_checkpoint_locked(struct audit_log *l, struct audit_mark *ret, struct err *e)
{
	_cleanup_(free_chain) struct audit_chain *c = NULL;
	int r = begin(l, &c, e);

	/* A log that gets only checkpoints is rotated at the same size. */
	if (r == 0 && c->bytes > AUDIT_HOST_FILE_MAX)
		r = rotate(l, c, e);
	return r == 0 ? put_mark(l, c, ret, e) : r;
}

int audit_checkpoint(struct audit_log *l, struct audit_mark *ret, struct err *e)
{
	int r;

	if (l->off)
		return err_set(e, -ENOENT, "the audit log is off: HUTCH_AUDIT=off");
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	r = audit_checkpoint_locked(l, ret, e);
	audit_unlock(l);
	if (r < 0)
		return r;
	r = audit_sync(l, NULL);
	return r < 0 ? failed(l, r, e) : 0;
}

int audit_sync(struct audit_log *l, const struct audit_chain *c)
{
	_cleanup_close_ int fd = -EBADF;

	if (l->off)
		return 0;
	/* Skipped if we wrote nothing to the host chain: then its writers sync it. */
	if (l->head.count > 0) {
		fd = open_host(l, l->number, O_RDONLY);
		if (fd < 0)
			return fd;
		if (RETRY_EINTR(fdatasync(fd)) < 0)
			return -errno;
	}
	/* The host chain first: a power cut in between must not leave a chain that the host chain
	 * does not know.
	 */
	return c && c->fd >= 0 && RETRY_EINTR(fdatasync(c->fd)) < 0 ? -errno : 0;
}
