/* SPDX-License-Identifier: Apache-2.0 */
/* From HELLO to "go": the keeper sends the guest the policy's settings, reports the guest's
 * answer to the warden, and accepts clients once the warden says "go". */
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "keeper/greet.h"
#include "keeper/serve.h"
#include "names/rule.h"

enum {
	GUEST_HELLO_MS = 20 * 1000,
	MACHINE_HELLO_MS = 60 * 1000,
	MACHINE_ID_BYTES = 16,
};

static void put_paths(struct buf *b, enum wire_tag tag, const struct spec_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		fields_put_text(b, tag, list->v[i]);
}

/* The VM's own seed, time and machine-id: other VMs booted from the same memory. */
static void put_identity(const struct spec *s, struct buf *b)
{
	uint8_t id[MACHINE_ID_BYTES];
	char text[2 * MACHINE_ID_BYTES + 1];

	guest_clock_put(b);
	(void)crypto_generichash(id, sizeof(id), (const uint8_t *)s->id, strlen(s->id), NULL, 0);
	(void)sodium_bin2hex(text, sizeof(text), id, sizeof(id));
	fields_put_text(b, TAG_MACHINE, text);
}

/* Networks that rules name by address: the guest needs a route to each. */
static void put_networks(const struct spec_list *rules, struct buf *b)
{
	char text[ADDR_TEXT_MAX];

	for (size_t i = 0; i < rules->n; i++) {
		struct err ignored = ERR_INIT;
		struct rule rule;

		if (rule_parse(rules->v[i], strlen(rules->v[i]), &rule, &ignored) == 0 &&
		    rule.kind == RULE_ADDR)
			fields_put_text(b, TAG_NETWORK, addr_format(&rule.addr, text));
	}
}

/* The fields that only a VM gets, from TAG_CWD on. */
static void put_machine(const struct keeper *k, struct buf *b)
{
	const struct spec *s = k->spec;

	fields_put_text(b, TAG_CWD, s->workspace);
	put_identity(s, b);
	put_networks(&s->egress.allow, b);
	fields_put_number(b, TAG_PIDS, MIN(s->limits.pids, (uint64_t)INT32_MAX));
	if (egress_is_asked_for(k->engine, s))
		fields_put_flag(b, TAG_EGRESS);
}

/* Fields must be in the order of their tags. */
void greet_put(const struct keeper *k, struct buf *b)
{
	const bool machine = engine_has(k->engine, ENGINE_OWN_KERNEL);
	const struct spec *s = k->spec;

	fields_put_number(b, TAG_VERSION, WIRE_VERSION);
	if (machine)
		fields_put_text(b, TAG_HOSTNAME, s->id);
	put_paths(b, TAG_READ, &s->read);
	put_paths(b, TAG_WRITE, &s->write);
	put_paths(b, TAG_EXECUTE, &s->execute);
	if (machine)
		put_machine(k, b);
	if (k->ca && k->ca[0])
		fields_put_text(b, TAG_CA, k->ca);
}

static void on_no_hello(struct loop_timer *t)
{
	log_error("the guest sent no HELLO, or stopped reading after it");
	keeper_stop(t->arg, KEEPER_GUEST_BROKE);
}

/* A VM has to boot first, perhaps under emulation. */
static unsigned int hello_ms(const struct keeper *k)
{
	return engine_has(k->engine, ENGINE_OWN_KERNEL) ? MACHINE_HELLO_MS : GUEST_HELLO_MS;
}

int greet_guest(struct keeper *k)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);
	int r;

	greet_put(k, &b);
	k->deadline = (struct loop_timer){ .cb = on_no_hello, .arg = k };
	r = link_hello(k->guest.link, &b);
	if (r < 0)
		return r;
	tracing_hello(k);
	r = port_watch(&k->guest, k->loop);
	if (r < 0)
		return r;
	return loop_set_timer(k->loop, &k->deadline, clock_mono() + hello_ms(k) * NSEC_PER_MSEC);
}

void greet_clients(struct keeper *k, int first)
{
	k->phase = PHASE_SERVING;
	memory_settle();
	if (first >= 0 && !client_new(k, first))
		keeper_stop(k, KEEPER_FAILED);
	if (k->clients.listener.fd >= 0 && clients_listen(k) < 0)
		keeper_stop(k, KEEPER_FAILED);
	idle_arm(k);
}

static void ready(struct keeper *k)
{
	k->phase = PHASE_WAITING;
	loop_del_timer(&k->deadline);
	if (k->warden.fd < 0)
		greet_clients(k, -EBADF);
	else if (note_send(k->warden.fd, NOTE_READY, k->landlock, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED); /* the warden has ended */
}

void keeper_ready(struct keeper *k, uint32_t landlock)
{
	(void)FAULT("keeper-hello");
	k->landlock = landlock;
	if (engine_has(k->engine, ENGINE_OWN_KERNEL))
		keeper_wake(k);
	else
		ready(k);
}

void keeper_heard(struct keeper *k, uint64_t token)
{
	if (guest_clock_heard(k, token) && k->phase == PHASE_HELLO)
		ready(k);
}
