/* SPDX-License-Identifier: Apache-2.0 */
/* The engines: installed or not, their versions, and the known vulnerabilities of these. */
#include <string.h>

#include "base/str.h"
#include "host/probe.h"

enum {
	VERSION_MAX = 64,
};

bool engine_version(const char *banner, char *out, size_t n)
{
	const char *v = strstr(banner, "version ");
	size_t len;

	if (!v)
		return false;
	v += STRLEN("version ");
	if (!ascii_is_digit(*v))
		return false;
	len = strcspn(v, " \t,(");
	if (len >= n)
		return false;
	memcpy(out, v, len);
	out[len] = '\0';
	return true;
}

/* Lists of open, patched and unreachable vulnerabilities. */
struct holes {
	struct buf open, patched, apart;
	size_t n_open;
	const struct engine_cve *floor; /* the open one that was fixed last */
};

static void holes_done(struct holes *h)
{
	buf_done(&h->open);
	buf_done(&h->patched);
	buf_done(&h->apart);
}

static const char *last_fix(const struct engine_cve *row)
{
	const char *space = strrchr(row->fixed, ' ');

	return space ? space + 1 : row->fixed;
}

static void add_open(struct holes *h, const struct engine_cve *row)
{
	(void)buf_printf(&h->open, "%s%s (%s)", h->open.len ? ", " : "", row->id, row->what);
	h->n_open++;
	if (!h->floor || cve_version_compare(last_fix(row), last_fix(h->floor)) > 0)
		h->floor = row;
}

static bool is_apart(const struct engine_cve *rows, size_t i, const char *version, uint64_t patched)
{
	return rows[i].not_us && cve_applies(&rows[i], version) && !(patched & UINT64_C(1) << i);
}

/* "CVE-1, CVE-2: why; CVE-3: why": each reason once; reasons are compared as pointers. */
static void list_apart(struct holes *h, const struct engine_cve *rows, const char *version,
		       uint64_t patched)
{
	for (size_t i = 0; rows[i].id; i++) {
		bool first = is_apart(rows, i, version, patched);

		for (size_t k = 0; k < i; k++)
			if (rows[k].not_us == rows[i].not_us && is_apart(rows, k, version, patched))
				first = false;
		if (!first)
			continue;
		(void)buf_printf(&h->apart, "%s%s", h->apart.len ? "; " : "", rows[i].id);
		for (size_t k = i + 1; rows[k].id; k++)
			if (rows[k].not_us == rows[i].not_us && is_apart(rows, k, version, patched))
				(void)buf_printf(&h->apart, ", %s", rows[k].id);
		(void)buf_printf(&h->apart, ": %s", rows[i].not_us);
	}
}

static void sort_holes(struct holes *h, const struct engine_cve *rows, const char *version,
		       uint64_t patched)
{
	for (size_t i = 0; rows[i].id; i++) {
		if (!cve_applies(&rows[i], version))
			continue;
		if (patched & UINT64_C(1) << i)
			(void)buf_printf(&h->patched, " %s", rows[i].id);
		else if (!rows[i].not_us)
			add_open(h, &rows[i]);
	}
	list_apart(h, rows, version, patched);
}

static void advise_upgrade(struct host_check *c, const char *name, const char *fixed)
{
	char list[64];

	(void)snprintf(list, sizeof(list), "%s", fixed);
	for (char *p = list; (p = strchr(p, ' ')); p++)
		*p = '/';
	check_advice(c,
		     "upgrade %s to %s or later, or to a package whose changelog names the fixes",
		     name, list);
}

static void judge_holes(struct host_check *c, const struct engine *engine, const char *version,
			uint64_t patched)
{
	_cleanup_(holes_done) struct holes h = { .open = BUF_INIT(1024),
						 .patched = BUF_INIT(512),
						 .apart = BUF_INIT(1024) };

	sort_holes(&h, engine->cves, version, patched);
	if (h.n_open > 0) {
		check_value(c, HOST_WARN, "%s, %zu known vulnerabilit%s open", version, h.n_open,
			    h.n_open == 1 ? "y" : "ies");
		check_detail(c, "not known to be fixed: %s", buf_text(&h.open));
		advise_upgrade(c, engine->program, h.floor->fixed);
	}
	if (h.patched.len > 0)
		check_detail(c, "patched by the distribution:%s", buf_text(&h.patched));
	if (h.apart.len > 0)
		check_detail(c, "out of reach: %s", buf_text(&h.apart));
}

/* The version of an installed engine; false, with the check filled in, if it reports none. */
static bool judge_version(const struct host_program *p, struct host_check *c, const char *name,
			  char *version, size_t n)
{
	if (p->ran < 0) {
		check_value(c, HOST_FAIL, "does not run");
		check_detail(c, "%s --version: %s", p->path, strerror(-p->ran));
		check_advice(c, "reinstall %s", name);
		return false;
	}
	if (!engine_version(p->banner, version, n)) {
		check_value(c, HOST_WARN, "version unknown");
		check_detail(c, "%s says '%s', so known vulnerabilities cannot be ruled out",
			     p->path, p->banner);
		check_advice(c, "install %s from your distribution", name);
		return false;
	}
	check_value(c, HOST_OK, "%s", version);
	return true;
}

/* One engine per level is enough, and only the default level is required. */
static bool judge_missing(const struct probe_ctx *x, struct host_check *c,
			  const struct engine *engine)
{
	if (host_engine(x, engine->level) >= 0)
		return false;
	check_value(c, engine->level == LEVEL_DEFAULT ? HOST_FAIL : HOST_INFO, "not installed");
	check_detail(c, "an engine of level %s", level_names[engine->level]);
	check_advice(c, "apt-get install %s", engine->package);
	return true;
}

bool probe_engine(const struct probe_ctx *x, size_t row, struct host_check *c)
{
	const struct host_program *p = &x->facts->engine[row];
	const struct engine *engine = engines[row];
	char version[VERSION_MAX];

	if (p->found < 0)
		return judge_missing(x, c, engine);
	if (judge_version(p, c, engine->program, version, sizeof(version)))
		judge_holes(c, engine, version, p->patched);
	return true;
}

int host_engine(const struct probe_ctx *x, enum level level)
{
	int first = -ENOENT;

	for (int i = 0; i < HOST_ENGINES_MAX && engines[i]; i++) {
		const bool found = x->facts->engine[i].found == 0;

		if (engines[i]->level != level)
			continue;
		if (x->engine && str_eq(engines[i]->name, x->engine))
			return found ? i : -ENOENT;
		if (first < 0 && found)
			first = i;
	}
	return first;
}
