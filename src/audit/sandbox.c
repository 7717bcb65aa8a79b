/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's chain, seen from the host: its beginning, rotation and end.
 *
 * It begins under the lock: first the file with its first record, then a record with its hash in
 * the host chain. If the process is killed in between, a chain of one record is left that the host
 * chain does not know; it says nothing, and audit_verify() accepts it. At the end, whatever the
 * writer did, the host chain records the actual contents of the files. Mode 0400 marks a sealed
 * file.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "audit/audit-inner.h"
#include "base/fault.h"
#include "base/path.h"

static int new_file(const struct audit_log *l, const char *id, uint32_t number, int *ret_fd,
		    struct err *e)
{
	char name[AUDIT_NAME_MAX];
	int fd;

	if (!audit_id_valid(id))
		return err_set(e, -EINVAL, "'%.40s' cannot be the id of a sandbox", id);
	audit_file_name(id, number, name);
	fd = path_open_nofollow(l->sandboxes, name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return err_set(
			e, fd,
			"cannot create '%s' in the audit log: %s; nothing is started without it",
			name, strerror(-fd));
	*ret_fd = fd;
	return 0;
}

static void remove_file(const struct audit_log *l, const char *id, uint32_t number)
{
	char name[AUDIT_NAME_MAX];

	audit_file_name(id, number, name);
	(void)unlinkat(l->sandboxes, name, 0);
}

static int tell_begin(struct audit_log *l, const char *id, const struct audit_chain *c,
		      struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "sandbox", id);
	audit_put_hex(&p, "first", c->head.hash, AUDIT_HASH);
	return audit_host_locked(l, AUDIT_BEGIN, &p, e);
}

static int begin_locked(struct audit_log *l, const char *id, struct audit_chain *c, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	int r = new_file(l, id, 0, &c->fd, e);

	if (r < 0)
		return r;
	memcpy(c->boot, l->boot, AUDIT_BOOT);
	audit_put_text(&p, "sandbox", id);
	r = audit_append(c, AUDIT_BEGIN, &p);
	if (r < 0)
		(void)err_set(
			e, r,
			"cannot write to the audit log '%s': %s; nothing is started without it",
			l->path, strerror(-r));
	if (r == 0)
		r = FAULT_ERR("audit-chain", e);
	if (r == 0)
		r = tell_begin(l, id, c, e);
	if (r < 0)
		remove_file(l, id, 0);
	return r;
}

/* ---- the end ---- */

struct ending {
	struct audit_head head;
	size_t last; /* index of its last file with a record */
	uint64_t offset;
	uint64_t torn;
	const char *why; /* why the chain is broken: it is not trusted from here on */
};

static int look(const struct audit_set *set, size_t first, size_t until, struct ending *ret,
		struct err *e)
{
	_cleanup_scan_ struct audit_scan *s = malloc(sizeof(*s));
	struct audit_record rec;
	const char *why = NULL;
	int r;

	if (!s)
		return err_oom(e);
	audit_scan_init(s, set, first, until);
	do
		r = audit_scan_next(s, &rec, &ret->torn, &why);
	while (r == 1);
	if (r < 0 && r != -EBADMSG)
		return err_set(e, r, "cannot read '%s' of the audit log: %s",
			       set->files[s->file].name, strerror(-r));
	ret->head = s->head;
	ret->last = s->file;
	ret->offset = s->offset;
	ret->why = r < 0 ? why : NULL;
	return 0;
}

static int cannot(const struct audit_file *f, int r, struct err *e)
{
	return err_set(e, r, "cannot seal '%s' in the audit log: %s", f->name, strerror(-r));
}

/* Removes half a record, and records that. */
static int repair(const struct audit_log *l, const struct audit_file *f, struct ending *end,
		  struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	_cleanup_free_ struct audit_chain *c = calloc(1, sizeof(*c));
	_cleanup_close_ int fd = path_open_nofollow(l->sandboxes, f->name, O_WRONLY | O_APPEND, 0);
	int r;

	if (!c)
		return err_oom(e);
	if (fd < 0 || ftruncate(fd, (off_t)end->offset) < 0)
		return cannot(f, fd < 0 ? fd : -errno, e);
	(void)FAULT("audit-cut");
	/* There is no chain to record it in; the seal says that it has no record. */
	if (end->head.count == 0)
		return 0;
	c->fd = fd;
	c->head = end->head;
	memcpy(c->boot, l->boot, AUDIT_BOOT);
	audit_put_number(&p, "bytes", end->torn);
	r = audit_append(c, AUDIT_TORN, &p);
	end->head = c->head;
	return r < 0 ? cannot(f, r, e) : 0;
}

static int tell_seal(struct audit_log *l, const char *id, const struct ending *end,
		     const struct audit_file *f, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	int r;

	audit_put_text(&p, "sandbox", id);
	audit_put_number(&p, "records", end->head.count);
	audit_put_hex(&p, "last", end->head.hash, AUDIT_HASH);
	if (end->why) {
		audit_put_text(&p, "damaged", f->name);
		audit_put_number(&p, "offset", end->offset);
	}
	r = audit_host_locked(l, AUDIT_SEAL, &p, e);
	if (r == 0)
		r = FAULT_ERR("audit-sealing", e);
	return r == 0 ? audit_checkpoint_locked(l, NULL, e) : r;
}

static int seal_file(const struct audit_log *l, const struct audit_file *f, struct err *e)
{
	_cleanup_close_ int fd =
		path_open_nofollow(l->sandboxes, f->name, O_RDONLY | O_NONBLOCK, 0);

	if (fd < 0 || fchmod(fd, 0400) < 0)
		return cannot(f, fd < 0 ? fd : -errno, e);
	return 0;
}

/* Syncs the files before the seal: otherwise a power cut would look like forgery. */
static int sync_file(const struct audit_log *l, const struct audit_file *f, struct err *e)
{
	_cleanup_close_ int fd =
		path_open_nofollow(l->sandboxes, f->name, O_RDONLY | O_NONBLOCK, 0);

	if (fd < 0 || RETRY_EINTR(fdatasync(fd)) < 0)
		return cannot(f, fd < 0 ? fd : -errno, e);
	return 0;
}

static bool is_sealed(const struct audit_log *l, const struct audit_file *f)
{
	struct stat st;

	return fstatat(l->sandboxes, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (st.st_mode & 07777) == 0400;
}

/* Finds the files of one chain by name: there may be very many others. */
static int own_files(const struct audit_log *l, const char *id, struct audit_set *ret,
		     struct err *e)
{
	struct audit_file f = { 0 }, *p;
	struct stat st;

	ret->sandboxes = l->sandboxes;
	for (;; f.number++) {
		audit_file_name(id, f.number, f.name);
		if (fstatat(l->sandboxes, f.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : cannot(&f, -errno, e);
		(void)snprintf(f.id, sizeof(f.id), "%s", id);
		f.size = (uint64_t)st.st_size;
		p = realloc(ret->files, (ret->n + 1) * sizeof(*p));
		if (!p)
			return err_oom(e);
		ret->files = p;
		ret->files[ret->n++] = f;
	}
}

static int seal_locked(struct audit_log *l, const char *id, struct err *e)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	struct ending end = { 0 };
	int r = own_files(l, id, &set, e);

	if (r < 0 || set.n == 0 || is_sealed(l, &set.files[set.n - 1]))
		return r;
	r = look(&set, 0, set.n, &end, e);
	if (r == 0 && !end.why && end.torn > 0)
		r = repair(l, &set.files[end.last], &end, e);
	for (size_t i = 0; r == 0 && i < set.n; i++)
		r = sync_file(l, &set.files[i], e);
	if (r == 0)
		r = tell_seal(l, id, &end, &set.files[end.last], e);
	if (r == 0)
		r = FAULT_ERR("audit-sealed", e);
	for (size_t i = 0; r == 0 && i < set.n; i++)
		r = seal_file(l, &set.files[i], e);
	return r;
}

static int tell_end(struct audit_log *l, const char *id, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "sandbox", id);
	audit_put_text(&p, "reason", "not started");
	return audit_host_locked(l, AUDIT_END, &p, e);
}

/* ---- public functions ---- */

int audit_sandbox_begin(struct audit_log *l, const char *id, struct audit_chain *ret, struct err *e)
{
	struct err ignored = ERR_INIT;
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->fd = -EBADF;
	if (l->off)
		return 0;
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	r = begin_locked(l, id, ret, e);
	if (r == 0) {
		r = audit_gc_locked(l, e);
		if (r < 0 && tell_end(l, id, &ignored) == 0) /* it has begun, so it must end */
			(void)seal_locked(l, id, &ignored);
	}
	audit_unlock(l);
	if (r < 0)
		audit_chain_close(ret);
	return r;
}

int audit_sandbox_next(struct audit_log *l, const char *id, uint32_t number, int *ret_fd,
		       struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (l->off)
		return err_set(e, -ENOENT, "the audit log is off");
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	l->check = true;
	r = audit_gc_locked(l, e);
	if (r == 0)
		r = new_file(l, id, number, &fd, e);
	audit_unlock(l);
	(void)FAULT("audit-next");
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

bool audit_sandbox_open(const struct audit_log *l, const char *id)
{
	struct audit_file f = { 0 };

	if (l->off || !audit_id_valid(id))
		return false;
	audit_file_name(id, 0, f.name);
	return faccessat(l->sandboxes, f.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && !is_sealed(l, &f);
}

int audit_sandbox_seal(struct audit_log *l, const char *id, struct err *e)
{
	struct err ignored = ERR_INIT;
	int r;

	if (l->off)
		return 0;
	if (!audit_id_valid(id))
		return err_set(e, -EINVAL, "'%.40s' cannot be the id of a sandbox", id);
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	r = seal_locked(l, id, e);
	/* An end is always recorded: only new operations fail if the log is full. */
	if (r == 0)
		(void)audit_gc_locked(l, &ignored);
	audit_unlock(l);
	return r;
}
