/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in what goes out: it makes the sockets that catch it, in the network namespace
 * of the sandbox and before any code of a user runs, and gives them to the keeper. It reads nothing
 * from them.
 */
#include <string.h>

#include "fault.h"
#include "netns.h"
#include "rule.h"
#include "warden.h"

/* The networks that rules name by address: the sandbox needs a route to each. */
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

int warden_open_egress(struct warden *w, struct err *e)
{
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	const struct spec_list *rules = &w->spec.egress.allow;
	_cleanup_free_ struct addr *networks = NULL;
	size_t n = 0;
	int r;

	/* A machine has a kernel of its own, and its agent makes them there. */
	if (rules->n == 0 || w->spec.machine.kernel)
		return 0;
	networks = calloc(NET_NETWORKS_MAX, sizeof(*networks));
	if (!networks)
		return err_oom(e);
	r = find_networks(rules, networks, &n, e);
	if (r == 0)
		r = netns_capture(w->box.init.pidfd, networks, n, &s, e);
	if (r == 0)
		r = FAULT_ERR("egress-captured", e);
	if (r < 0)
		return err_wrap(e, "opening the way out");
	r = hand_over(w, &s);
	if (r < 0)
		return err_set(e, r, "the keeper of the sandbox has gone: %s", strerror(-r));
	return FAULT_ERR("egress-given", e);
}
