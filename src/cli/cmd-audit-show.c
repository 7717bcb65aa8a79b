/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch audit show. A first pass notes place and time of each record; sorted by time, the records
 * are read again to be printed, which keeps memory use small. The end of each chain is remembered:
 * with -f, when a file of the log changes, both passes continue from there.
 */
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/audit-view.h"
#include "cli/view.h"

enum {
	NAP_MS = 50, /* between two scans of a log that is being written */
};

/* Place of a record; sorted by time, then by position. */
struct place {
	uint64_t wall, seq;
	size_t first, until; /* the files of its chain */
};

/* How far a chain has been read. */
struct tail {
	char id[AUDIT_ID_MAX + 1];
	uint32_t number;
	uint64_t offset;
	struct audit_head head;
};

struct show {
	struct audit_view view;
	struct place *v;
	size_t n, cap;
	struct tail *tails, *next; /* sorted by id; from the last pass, from this one */
	size_t n_tails, n_next;
	uint64_t since;
	const char *sandbox; /* prefix of an id, or NULL */
};

/*
 * Each chain is ordered, but a clock can be set back. To keep a chain's order, a record is shown at
 * the latest time that its chain has reached.
 */
static int by_time(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->wall != y->wall)
		return x->wall < y->wall ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->seq == y->seq ? 0 : x->seq < y->seq ? -1 : 1;
}

static int note(struct show *w, const struct place *p, struct err *e)
{
	if (!w->v || w->n == w->cap) {
		size_t more = w->cap ? 2 * w->cap : 1024;
		struct place *v = reallocarray(w->v, more, sizeof(*v));

		if (!v)
			return err_oom(e);
		w->v = v;
		w->cap = more;
	}
	w->v[w->n++] = *p;
	return 0;
}

static int by_id(const void *key, const void *tail)
{
	return strcmp(key, ((const struct tail *)tail)->id);
}

/* Positions the scan where the last pass stopped; a new chain is read from its beginning. */
static int resume(const struct show *w, struct audit_scan *s, const struct audit_set *set,
		  size_t first, size_t until)
{
	const struct tail *t = w->n_tails == 0 ? NULL
					       : bsearch(set->files[first].id, w->tails, w->n_tails,
							 sizeof(*t), by_id);

	while (t && first + 1 < until && set->files[first].number < t->number)
		first++;
	audit_scan_init(s, set, first, until);
	if (!t || set->files[first].number != t->number)
		return set->files[first].number > 0 ? audit_scan_adopt(s) : 0;
	s->offset = s->at = t->offset;
	s->head = t->head;
	return 0;
}

static int damaged(const struct audit_scan *s, int r, const char *why, struct err *e)
{
	const char *name = s->set->files[MIN(s->file, s->until - 1)].name;

	if (r == -EBADMSG)
		return err_set(e, -EINVAL,
			       "%s, record %llu at byte %llu: %s; see 'hutch audit verify'", name,
			       (unsigned long long)s->head.count, (unsigned long long)s->offset,
			       why);
	return err_set(e, r, "cannot read '%s': %s", name, strerror(-r));
}

/* Files of sandboxes are selected by name, records of the host chain by their contents. */
static bool is_wanted(const struct show *w, const struct audit_file *f,
		      const struct audit_record *rec)
{
	_cleanup_json_ json_t *o = NULL;
	struct err ignored = ERR_INIT;

	if (rec->wall < w->since)
		return false;
	if (!w->sandbox || f->id[0])
		return true;
	(void)json_read(rec->payload, rec->n_payload, &o, &ignored);
	return str_has_prefix(audit_view_sandbox(f, o), w->sandbox);
}

/* Chains come sorted by id. */
static int remember(struct show *w, const struct audit_scan *s, struct err *e)
{
	const struct audit_file *f = &s->set->files[s->file];
	struct tail *t = reallocarray(w->next, w->n_next + 1, sizeof(*t));

	if (!t)
		return err_oom(e);
	w->next = t;
	t += w->n_next++;
	*t = (struct tail){ .number = f->number, .offset = s->offset, .head = s->head };
	memcpy(t->id, f->id, sizeof(t->id));
	return 0;
}

static int gather(struct show *w, struct audit_scan *s, size_t first, size_t until, struct err *e)
{
	struct place p = { .first = first, .until = until };
	struct audit_record rec;
	const char *why = "";
	uint64_t torn = 0;
	int r = resume(w, s, s->set, first, until);

	while (r >= 0 && (r = audit_scan_next(s, &rec, &torn, &why)) == 1) {
		p.wall = MAX(p.wall, rec.wall);
		p.seq = rec.seq;
		r = is_wanted(w, &s->set->files[first], &rec) ? note(w, &p, e) : 0;
		if (r < 0)
			break;
	}
	if (r == 0)
		r = remember(w, s, e);
	audit_scan_done(s);
	return r < 0 && !e->num ? damaged(s, r, why, e) : r;
}

/* A scan that walks through one chain as its records are printed. */
struct cursor {
	struct audit_scan scan;
	size_t first;
	struct cursor *next;
};

static int print_record(struct show *w, const struct audit_file *f, const struct audit_record *rec)
{
	_cleanup_json_ json_t *o = NULL;
	struct err ignored = ERR_INIT;

	(void)json_read(rec->payload, rec->n_payload, &o, &ignored);
	return audit_view_print(&w->view, f, rec, o);
}

static struct cursor *cursor_of(const struct show *w, struct cursor **all,
				const struct audit_set *set, const struct place *p)
{
	struct cursor *c = *all;

	while (c && c->first != p->first)
		c = c->next;
	if (c)
		return c;
	c = malloc(sizeof(*c));
	if (!c)
		return NULL;
	c->first = p->first;
	c->next = *all;
	*all = c;
	(void)resume(w, &c->scan, set, p->first, p->until);
	return c;
}

static void drop_cursor(struct cursor **all, struct cursor *c)
{
	struct cursor **at = all;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	audit_scan_done(&c->scan);
	free(c);
}

static int print_place(struct show *w, struct cursor **all, const struct audit_set *set,
		       const struct place *p, struct err *e)
{
	struct cursor *c = cursor_of(w, all, set, p);
	struct audit_record rec;
	const char *why = "";
	uint64_t torn = 0;
	int r;

	if (!c)
		return err_oom(e);
	do
		r = audit_scan_next(&c->scan, &rec, &torn, &why);
	while (r == 1 && rec.seq < p->seq);
	if (r == 1 && print_record(w, &set->files[c->scan.file], &rec) < 0)
		return err_oom(e);
	if (r < 0)
		return damaged(&c->scan, r, why, e);
	if (r == 0 ||
	    (c->scan.file + 1 == c->scan.until && c->scan.offset >= set->files[c->scan.file].size))
		drop_cursor(all, c);
	return 0;
}

/* Returns the end of the chain that begins at `first`. */
static size_t chain_end(const struct audit_set *set, size_t first)
{
	size_t until = first + 1;

	while (until < set->n && str_eq(set->files[first].id, set->files[until].id))
		until++;
	return until;
}

static bool is_chain_wanted(const struct show *w, const struct audit_file *f)
{
	return !w->sandbox || !f->id[0] || str_has_prefix(f->id, w->sandbox);
}

/* Records before the damage are still shown; the damage is reported at the end. */
static void gather_all(struct show *w, struct audit_scan *s, const struct audit_set *set,
		       struct err *broken)
{
	s->set = set;
	w->n = w->n_next = 0;
	for (size_t i = 0, until; i < set->n; i = until) {
		struct err one = ERR_INIT;

		until = chain_end(set, i);
		if (is_chain_wanted(w, &set->files[i]) && gather(w, s, i, until, &one) < 0 &&
		    !broken->num)
			*broken = one;
	}
	if (w->n > 0)
		qsort(w->v, w->n, sizeof(*w->v), by_time);
}

static int show_all(struct show *w, const struct audit_set *set, struct err *e)
{
	struct cursor *all = NULL;
	struct audit_scan *s = malloc(sizeof(*s));
	struct err broken = ERR_INIT;
	int r = s ? 0 : err_oom(e);

	if (r == 0)
		gather_all(w, s, set, &broken);
	for (size_t i = 0; r == 0 && i < w->n; i++)
		r = print_place(w, &all, set, &w->v[i], e);
	while (all)
		drop_cursor(&all, all);
	free(s);
	free(w->tails);
	w->tails = TAKE_PTR(w->next);
	w->n_tails = w->n_next;
	if (r == 0 && broken.num) {
		*e = broken;
		r = e->num;
	}
	return r;
}

/* ---- -f ---- */

static int watch(const struct audit_log *l, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char path[AUDIT_PATH_MAX + 16];

	(void)snprintf(path, sizeof(path), "%s/sandbox", l->path);
	if (fd < 0 || inotify_add_watch(fd, l->path, IN_MODIFY | IN_CREATE) < 0 ||
	    inotify_add_watch(fd, path, IN_MODIFY | IN_CREATE) < 0)
		return err_errno(e, "cannot watch '%s'", l->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Waits until the log changes. */
static int wait_for_news(int fd, struct err *e)
{
	const struct timespec nap = { .tv_nsec = NAP_MS * (long)NSEC_PER_MSEC };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char events[4096];

	if (RETRY_EINTR(poll(&p, 1, -1)) < 0)
		return err_errno(e, "cannot wait for the audit log");
	(void)nanosleep(&nap, NULL);
	while (read(fd, events, sizeof(events)) > 0)
		;
	return 0;
}

static int follow(struct show *w, const struct audit_log *l, int events, struct err *e)
{
	int r = 0;

	while (r == 0 && fflush(stdout) == 0) {
		_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;

		r = wait_for_news(events, e);
		if (r == 0)
			r = audit_set_open(l, &set, e);
		if (r == 0)
			r = show_all(w, &set, e);
	}
	return r;
}

static int run_audit_show(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	_cleanup_close_ int events = -EBADF;
	bool follows = cli_option(inv, "follow");
	struct show w = { .view = { .inv = inv,
				    .json = cli_option(inv, "json"),
				    .all = cli_option(inv, "verbose") },
			  .sandbox = cli_option(inv, "sandbox") };
	struct err e = ERR_INIT;
	int r;

	if (cli_since(inv, &w.since) != EXIT_OK)
		return EXIT_USAGE;
	r = audit_view_open(&l, &set, &e);
	/* Watch before the first scan, so that no change is missed in between. */
	if (r == 0 && follows)
		r = watch(&l, &events, &e);
	if (r == 0)
		r = show_all(&w, &set, &e);
	if (r == 0 && follows)
		r = follow(&w, &l, events, &e);
	free(w.v);
	free(w.tails);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

/* clang-format off */
const struct command cmd_audit_show = {
	.name = "show", .args = "",
	.summary = "print the audit records in order of time",
	.help = "Prints a line for each record: time, sandbox, kind and contents. Commands are quoted for a shell, digests\n"
		"shortened to 12 digits. With --json, each line is an object with the complete record.",
	.options = OPTIONS(
		OPT_JSON,
		{ "sandbox", 's', "ID", "only records of this sandbox; ID may be a prefix" },
		{ "since", 0, "TIME", "only newer records: 30m, 2h, 7d, 2026-11-15T08:00:00Z" },
		{ "follow", 'f', NULL, "continue with new records as they are written" },
		{ "verbose", 'v', NULL, "show full digests, arguments and times, and signatures" }),
	.run = run_audit_show,
};
/* clang-format on */
