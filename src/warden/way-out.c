/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in egress: it creates the capturing sockets in the sandbox's network namespace,
 * before any user code runs, and passes them to the keeper. It reads nothing from them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/fd.h"
#include "egress/resolve.h"
#include "engine/engine.h"
#include "engine/netns.h"
#include "names/rule.h"
#include "warden/warden.h"

/* Collects the networks that rules name by address: the sandbox needs a route to each. */
static int find_networks(const struct spec_list *rules, struct addr *ret, size_t *ret_n,
			 struct err *e)
{
	for (size_t i = 0; i < rules->n; i++) {
		struct rule rule;

		if (rule_parse(rules->v[i], strlen(rules->v[i]), &rule, e) < 0)
			return e->num;
		if (rule.kind != RULE_ADDR)
			continue;
		if (*ret_n == NET_NETWORKS_MAX)
			return err_set(e, -E2BIG, "more than %d rules name an address",
				       NET_NETWORKS_MAX);
		ret[(*ret_n)++] = rule.addr;
	}
	return 0;
}

static int hand_over(struct warden *w, const struct capture_sockets *s)
{
	int files[CAPTURE_SOCKETS];
	uint64_t which = 0;
	size_t n = 0;

	static_assert((int)CAPTURE_SOCKETS <= (int)NOTE_FILES_MAX, "they go with one note");
	for (unsigned int i = 0; i < CAPTURE_SOCKETS; i++)
		if (s->fds[i] >= 0) {
			files[n++] = s->fds[i];
			which |= UINT64_C(1) << i;
		}
	return note_send(w->note, NOTE_EGRESS, which, files, n);
}

/* A warden of an ordinary user, though root in its own namespace, may not load BPF programs. */
static int no_guard(struct dial_guard *g, const char *why)
{
	(void)snprintf(g->why, sizeof(g->why), "%s", why);
	return 0;
}

/* Takes over the list of added rules from a fork's or resumed VM's snapshot; a kept snapshot has
 * none. */
static int take_over_widened(struct warden *w, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(STATE_WIDENED_MAX);
	struct err own = ERR_INIT;
	int r;

	if (w->origin.from.kind != SNAPSHOT_SAVED || w->origin.from.dir < 0)
		return 0;
	r = fd_read_file(w->origin.from.dir, SAVED_WIDENED, &b, &own);
	if (r == 0)
		return state_write(w->dir, STATE_WIDENED, b.data, b.len, e);
	return r == -ENOENT ? 0 : (*e = own).num;
}

/* Reads the rules that the operator has added; cuts `text` into strings in place. */
static int read_widened(struct warden *w, struct buf *text, struct spec_list *ret, struct err *e)
{
	struct err own = ERR_INIT;
	int r = take_over_widened(w, e);
	char *rest;

	if (r < 0)
		return r;
	r = fd_read_file(w->dir, STATE_WIDENED, text, &own);
	if (r < 0)
		return r == -ENOENT ? 0 : (*e = own).num;
	for (size_t i = 0; i < text->len; i++)
		ret->n += text->data[i] == '\n';
	ret->v = calloc(ret->n + 1, sizeof(ret->v[0]));
	if (!ret->v)
		return err_oom(e);
	rest = text->data;
	for (size_t i = 0; i < ret->n; i++)
		ret->v[i] = strsep(&rest, "\n");
	return 0;
}

int warden_guard_keeper(struct warden *w, const char *group, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(STATE_WIDENED_MAX);
	struct target servers[RESOLVE_SERVERS_MAX];
	struct spec_list more = { 0 };
	struct dial_rules rules = { .allow = &w->spec.egress.allow,
				    .more = &more,
				    .proxy = w->spec.egress.proxy,
				    .servers = servers };
	int r = 0;

	if (w->rootless)
		return no_guard(&w->guard, "only root may load BPF programs for a group");
	if (rules.allow->n > 0)
		r = resolver_servers(getenv("HUTCH_RESOLVER"), servers, &rules.n_servers, e);
	if (r == 0)
		r = read_widened(w, &text, &more, e);
	if (r == 0)
		r = dial_guard_make(group, &rules, &w->guard, e);
	free(more.v);
	return r < 0 ? err_wrap(e, "guarding the keeper") : 0;
}

int warden_open_egress(struct warden *w, struct err *e)
{
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	const struct spec_list *rules = &w->spec.egress.allow;
	_cleanup_free_ struct addr *networks = NULL;
	size_t n = 0;
	int r;

	/* In a VM hutch-guest creates them, in the VM's kernel. */
	if (rules->n == 0 || engine_has(w->engine, ENGINE_OWN_KERNEL))
		return 0;
	networks = calloc(NET_NETWORKS_MAX, sizeof(*networks));
	if (!networks)
		return err_oom(e);
	if (find_networks(rules, networks, &n, e) < 0 ||
	    netns_capture(w->box.init.pidfd, networks, n, &s, e) < 0 ||
	    FAULT_ERR("egress-captured", e) < 0)
		return err_wrap(e, "setting up egress");
	r = hand_over(w, &s);
	if (r < 0)
		return err_set(e, r, "the keeper of the sandbox has ended: %s", strerror(-r));
	return FAULT_ERR("egress-given", e);
}
