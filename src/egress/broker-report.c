/* SPDX-License-Identifier: Apache-2.0 */
/* Reports events of a request, and names their values. */
#include "base/clock.h"
#include "egress/broker-inner.h"
#include "names/why.h"

DEFINE_NAMES(broker_what_name, enum broker_what, BROKER_WHAT_MAX,
	     "unknown", [BROKER_ALLOW] = "allow", [BROKER_DENY] = "deny", [BROKER_END] = "end");

static DEFINE_NAMES(
	text_of, enum broker_reason, BROKER_REASON_MAX,
	"unknown", [BROKER_OK] = "", [BROKER_BUDGET] = "a budget is spent",
	[BROKER_LOOKUP] = "the name has no address", [BROKER_DIAL] = "no address answered",
	[BROKER_CONTENT] = "asks for something else than it connected to",
	[BROKER_TIME] = "took too long", [BROKER_POLICY] = "no longer allowed by the policy",
	[BROKER_RESET_INSIDE] = "reset by the sandbox",
	[BROKER_RESET_OUTSIDE] = "reset by the other side",
	[BROKER_FAULT] = "out of memory or descriptors",
	[BROKER_UNRECORDED] = "it cannot be recorded", [BROKER_TAP] = "ended by hutch-tap",
	[BROKER_STOPPED] = "the sandbox ended");

const char *broker_reason_text(enum broker_reason r)
{
	if (r == BROKER_RULES)
		return why_text(WHY_POLICY);
	return r == BROKER_ADDRESS ? why_text(WHY_ADDRESS) : text_of(r);
}

void broker_report(const struct request *r, enum broker_what what, enum broker_reason reason,
		   const char *detail, const struct stream *s)
{
	const struct broker_conf *c = &r->broker->conf;
	struct broker_event ev = {
		.what = what,
		.reason = reason,
		.stream = r->number,
		.target = &r->target,
		.addr = s && s->dialled ? &s->addr : NULL,
		.rule = r->rule,
		.rule_id = r->rule_id,
		.detail = detail ? detail : "",
		.ns = clock_mono() - r->since,
		.cookie = r->cookie,
	};

	if (s && s->tap) {
		ev.bytes_out = s->tap->out;
		ev.bytes_in = s->tap->in;
	} else if (s) {
		ev.bytes_out = s->pump.dir[PUMP_CLIENT].bytes;
		ev.bytes_in = s->pump.dir[PUMP_SERVER].bytes;
	}
	c->ops->report(c->arg, &ev);
}
