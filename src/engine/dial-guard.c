/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dial-guard.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/fault.h"
#include "base/fd.h"
#include "engine/cgroup-inner.h"

enum {
	PROCS_MAX = 4096
};

#define MAP_NAME "hutch_dial"

/* Sets `why`: the host does not support the guard, or does not let us use it. */
static int not_here(struct dial_guard *g, int r, const char *fmt, ...) _printf_(3, 4);
static int not_here(struct dial_guard *g, int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(g->why, sizeof(g->why), fmt, ap);
	va_end(ap);
	return r;
}

static int load(int map, const struct dial_program *p, struct dial_guard *g)
{
	_cleanup_buf_ struct buf code = BUF_INIT(DIAL_CODE_MAX);
	struct bpf_program program = { .name = p->name, .type = p->type, .at = p->at };
	char words[BPF_WORDS_MAX];
	int fd;

	p->write(&code, map);
	if (code.err)
		return code.err;
	program.code = (const struct bpf_insn *)(const void *)code.data;
	program.n = code.len / sizeof(struct bpf_insn);
	fd = bpf_load(&program, words);
	if (fd < 0)
		return not_here(g, fd, "the kernel does not take program %s: %s%s%s", p->name,
				strerror(-fd), words[0] ? ", " : "", words);
	return fd;
}

static int attach(int map, size_t i, struct dial_guard *g)
{
	const struct dial_program *p = &dial_programs[i];
	_cleanup_close_ int fd = load(map, p, g);
	int r = fd < 0 ? fd : bpf_id(fd, &g->ids[i]);

	if (r == 0)
		r = bpf_attach(g->group, fd, p->at);
	if (r < 0 && !g->why[0])
		return not_here(g, r, "program %s cannot be attached: %s", p->name, strerror(-r));
	return r;
}

static int attach_all(int map, struct dial_guard *g)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < DIAL_PROGRAMS; i++)
		r = attach(map, i, g);
	return r;
}

static int make_group(const char *name, struct dial_guard *g)
{
	int r = g->group = cgroup_keeper_make(name);

	if (r == -ENODATA)
		return not_here(g, r, "no cgroup v2 tree is mounted");
	return r < 0 ? not_here(g, r, "no group for the keeper: %s", strerror(-r)) : 0;
}

static int make(const char *name, const struct dial_rules *rules, struct dial_guard *g,
		struct err *e)
{
	_cleanup_close_ int map =
		bpf_trie_new(MAP_NAME, sizeof(struct dial_key), 1, DIAL_ENTRIES_MAX);
	int r;

	if (map < 0)
		return not_here(g, map, "bpf(2): %s", strerror(-map));
	r = dial_rules_put(map, rules, e);
	if (r < 0)
		return r;
	r = make_group(name, g);
	if (r == 0)
		r = FAULT_ERR("guard-group", e);
	return r < 0 ? r : attach_all(map, g);
}

static void remove_group(const char *name, struct dial_guard *g)
{
	struct err ignored = ERR_INIT;

	if (g->group < 0)
		return;
	dial_guard_close(g);
	(void)cgroup_keeper_remove(name, &ignored);
}

int dial_guard_make(const char *name, const struct dial_rules *rules, struct dial_guard *ret,
		    struct err *e)
{
	struct dial_guard g = DIAL_GUARD_INIT;
	int r = make(name, rules, &g, e);

	if (r < 0)
		remove_group(name, &g);
	if (r < 0 && (e->num || cgroup_full(r) || r == -EEXIST))
		return e->num ? e->num
			      : err_set(e, r, "cannot restrict the keeper's connections: %s",
					g.why);
	g.group = r < 0 ? -EBADF : g.group;
	*ret = g;
	return 0;
}

void dial_guard_close(struct dial_guard *g)
{
	g->group = fd_close(g->group);
}

/* ---- verification ---- */

static int check_attached(const struct dial_guard *g, size_t i, struct err *e)
{
	uint32_t ids[BPF_IDS_MAX];
	int n = bpf_attached(g->group, dial_programs[i].at, ids);

	if (n < 0)
		return err_set(e, n, "cannot list the BPF programs of its group: %s", strerror(-n));
	for (int k = 0; k < n; k++)
		if (ids[k] == g->ids[i])
			return 0;
	return err_set(e, -EPERM, "program %s is not attached", dial_programs[i].name);
}

static int check_alone(const struct dial_guard *g, pid_t keeper, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PROCS_MAX);
	char wanted[16];

	(void)snprintf(wanted, sizeof(wanted), "%d\n", (int)keeper);
	if (fd_read_file(g->group, "cgroup.procs", &b, e) < 0)
		return e->num;
	return strcmp(buf_text(&b), wanted) == 0
		       ? 0
		       : err_set(e, -EPERM, "the keeper's group contains other processes");
}

void dial_guard_verify(const struct dial_guard *g, pid_t keeper, struct receipt *r)
{
	struct err e = ERR_INIT;

	if (g->group < 0) {
		receipt_no(r, LAYER_DIAL_GUARD, "%s", g->why);
		receipt_advise(r, LAYER_DIAL_GUARD,
			       "run hutch as root on a kernel with BPF and a cgroup v2 tree");
		return;
	}
	for (size_t i = 0; i < DIAL_PROGRAMS && e.num == 0; i++)
		(void)check_attached(g, i, &e);
	if (e.num == 0 && check_alone(g, keeper, &e) == 0)
		receipt_yes(r, LAYER_DIAL_GUARD,
			    "%d programs on the keeper's group; a connection it tried was refused",
			    DIAL_PROGRAMS);
	else
		receipt_no(r, LAYER_DIAL_GUARD, "%s", e.msg);
}

/* ---- requests of the operator ---- */

/* Opens the guard's map, which all its programs share. */
/* Other processes may have attached programs to the group, too. */
static int open_map(int group)
{
	uint32_t ids[BPF_IDS_MAX];
	int n = bpf_attached(group, dial_programs[0].at, ids), r = MIN(n, 0);

	for (int i = 0; i < n; i++) {
		r = bpf_map_of(ids[i], dial_programs[0].name);
		if (r != -ENOENT)
			return r;
	}
	return r < 0 ? r : -ENOENT;
}

int dial_guard_allow(const char *name, const struct rule *rule, struct err *e)
{
	_cleanup_close_ int group = cgroup_keeper_open(name), map = -EBADF;
	int r;

	if (group == -ENOENT)
		return 0;
	map = group < 0 ? group : open_map(group);
	r = map < 0 ? map : dial_rules_add(map, rule);
	return r < 0 ? err_set(e, r, "cannot add the rule to the keeper's dial guard: %s",
			       strerror(-r))
		     : 1;
}
