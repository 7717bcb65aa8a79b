/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only writer of a chain. Builds a record in c->out and writes it with one write(2), so the
 * file gets all of it or, if the disk is full, a part. Then the rest stays in c->out and is written
 * before anything else: nothing has to be undone, which the writer has no right to do.
 */
#include <string.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "base/fault.h"

void audit_chain_close(struct audit_chain *c)
{
	c->fd = fd_close(c->fd);
}

/* Writes the rest of the record in c->out. */
static int drain(struct audit_chain *c)
{
	while (c->done < c->n_out) {
		ssize_t k = RETRY_EINTR(write(c->fd, c->out + c->done, c->n_out - c->done));

		if (k < 0)
			return -errno;
		c->done += (size_t)k;
		c->bytes += (size_t)k;
	}
	c->n_out = c->done = 0;
	return 0;
}

/* Encodes the record; p->text lacks its closing `}`. */
static size_t encode(struct audit_chain *c, struct audit_head *head, enum audit_kind kind,
		     const struct audit_payload *p)
{
	static const char empty[] = "{";
	char *text = (char *)c->out + AUDIT_HEADER;
	size_t n = p && p->text.len > 0 ? p->text.len : 1;
	struct audit_record r = {
		.kind = kind,
		.wall = clock_wall(),
		.mono = clock_mono(),
		.payload = text,
		.n_payload = n + 1,
	};

	memcpy(r.boot, c->boot, AUDIT_BOOT);
	memcpy(text, p && p->text.len > 0 ? p->text.data : empty, n);
	text[n] = '}';
	return audit_record_write(head, &r, c->out);
}

static int append(struct audit_chain *c, enum audit_kind kind, const struct audit_payload *p)
{
	struct audit_head head = c->head;
	int r;

	c->n_out = encode(c, &head, kind, p);
	r = FAULT("audit-encoded");
	if (r == 0)
		r = drain(c);
	if (r < 0 && c->done == 0) { /* nothing was written: the record does not exist */
		c->n_out = 0;
		return r;
	}
	c->head = head;
	(void)FAULT("audit-written");
	return r;
}

int audit_append(struct audit_chain *c, enum audit_kind kind, const struct audit_payload *p)
{
	int r;

	if (p && p->text.err)
		return p->text.err;
	if (p && p->text.len + 1 > AUDIT_PAYLOAD_MAX)
		return -ENOBUFS;
	if (c->fd < 0)
		return 0;
	r = drain(c);
	if (r < 0)
		return r;
	if (c->bytes + AUDIT_HEADER + (p ? p->text.len : 1) + 1 > AUDIT_SANDBOX_FILE_MAX)
		return -EFBIG;
	return append(c, kind, p);
}

bool audit_chain_wants_file(const struct audit_chain *c)
{
	return c->fd >= 0 && c->bytes >= AUDIT_SANDBOX_FILE_MAX / 2;
}

int audit_chain_switch(struct audit_chain *c, int fd)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	_cleanup_close_ int next = fd;
	int r;

	if (c->fd < 0)
		return 0;
	r = drain(c);
	if (r < 0)
		return r;
	audit_put_number(&p, "file", c->number + 1);
	if (p.text.err)
		return p.text.err;
	(void)fd_close(c->fd);
	c->fd = TAKE_FD(next);
	c->number++;
	c->bytes = 0;
	return append(c, AUDIT_ROTATE, &p);
}
