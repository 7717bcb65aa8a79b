/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in the audit log. It records the creation of the sandbox before anything of it
 * exists, reached limits, how the sandbox ended, and the seal of the chain that the keeper wrote.
 * These are records of the host chain, because the sandbox's own chain belongs to the keeper
 * meanwhile.
 *
 * To seal the chain, the warden reads the keeper's records. It checks fixed headers and hashes and
 * parses no payload: an attacker who controls the keeper can only end its own chain early.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "warden/warden.h"

static void put_deadline(struct audit_payload *p, const struct spec *s)
{
	if (s->deadline > 0)
		audit_put_number(p, "deadline_ms", s->deadline);
	if (s->on_timeout != ON_TIMEOUT_END)
		audit_put_text(p, "on_timeout", on_timeout_names[s->on_timeout]);
}

static void put_limits(struct audit_payload *p, const struct spec *s)
{
	audit_put_number(p, "memory", s->limits.memory);
	audit_put_number(p, "cpus_thousandths", s->limits.cpus);
	audit_put_number(p, "pids", s->limits.pids);
	audit_put_number(p, "disk", s->limits.disk);
	audit_put_number(p, "timeout_ms", s->limits.timeout);
	audit_put_number(p, "ttl_ms", s->limits.ttl);
	put_deadline(p, s);
}

/* Puts the name of the API key that requested the sandbox; without one, `uid` says who did. */
static int put_key(struct audit_payload *p, const struct spec *s, struct err *e)
{
	char owner[SPEC_OWNER_MAX + 1];
	int r = spec_owner(s, owner, e);

	if (r == 0 && owner[0])
		audit_put_text(p, "api_key", owner);
	return r;
}

int witness_create(struct warden *w, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	const struct spec *s = &w->spec;
	int r = audit_open(&w->witness.log, e);

	if (r < 0)
		return r;
	audit_put_text(&p, "sandbox", s->id);
	if (s->chain[0])
		audit_put_text(&p, "chain", s->chain);
	if (s->request[0])
		audit_put_text(&p, "request", s->request);
	audit_put_text(&p, "agent", s->agent);
	audit_put_text(&p, "policy", s->policy);
	audit_put_text(&p, "image", s->image);
	audit_put_text(&p, "image_sha256", s->image_digest);
	audit_put_number(&p, "uid", getuid());
	r = put_key(&p, s, e);
	if (r < 0)
		return r;
	audit_put_number(&p, "egress_rules", s->egress.allow.n);
	if (w->pool >= 0)
		audit_put_number(&p, "spare", 1);
	put_limits(&p, s);
	r = audit_host(&w->witness.log, AUDIT_CREATE, &p, e);
	if (r == 0)
		r = FAULT_ERR("witness-create", e);
	return r < 0 ? r
		     : audit_sandbox_begin(&w->witness.log, spec_chain(s), &w->witness.chain, e);
}

/* A spare was taken: records its owner. */
int witness_taken(struct warden *w, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	int r;

	audit_put_text(&p, "sandbox", w->spec.id);
	if (w->spec.request[0])
		audit_put_text(&p, "request", w->spec.request);
	r = put_key(&p, &w->spec, e);
	if (r < 0)
		return r;
	put_deadline(&p, &w->spec);
	return w->witness.log.off ? 0 : audit_host(&w->witness.log, AUDIT_START, &p, e);
}

/* Verifies that the chain's file still exists and holds all appended bytes. */
void witness_receipt(struct warden *w)
{
	struct receipt_row *row = &w->receipt.row[EXTRA_AUDIT];
	struct stat st;

	if (w->witness.log.off) {
		receipt_no(&w->receipt, EXTRA_AUDIT, "switched off by HUTCH_AUDIT=off");
		row->asked = row->required = false;
	} else if (fstat(w->witness.chain.fd, &st) < 0 || st.st_nlink == 0 ||
		   (uint64_t)st.st_size < w->witness.chain.bytes) {
		receipt_no(&w->receipt, EXTRA_AUDIT, "its chain has gone from '%.80s'",
			   w->witness.log.path);
		receipt_advise(&w->receipt, EXTRA_AUDIT, "see 'hutch audit verify'");
	} else {
		receipt_yes(&w->receipt, EXTRA_AUDIT,
			    "chain %s has begun, by record %llu of the host chain",
			    spec_chain(&w->spec),
			    (unsigned long long)w->witness.log.head.count - 1);
	}
}

/* Records a failed start and why: a missing layer, a failed engine. */
void witness_refused(struct warden *w, const struct err *why)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;

	if (w->witness.log.off)
		return;
	audit_put_text(&p, "sandbox", w->spec.id);
	if (w->spec.request && w->spec.request[0])
		audit_put_text(&p, "request", w->spec.request);
	audit_put_text(&p, "reason", why->msg);
	if (audit_host(&w->witness.log, AUDIT_REFUSED, &p, &e) < 0)
		log_error("%s", e.msg);
}

void witness_token(struct warden *w, const char *secret, const char *why)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;

	if (w->witness.log.off)
		return;
	audit_put_text(&p, "op", "refresh");
	audit_put_text(&p, "name", secret);
	audit_put_text(&p, "sandbox", w->spec.id);
	audit_put_text(&p, "result", why ? "failed" : "done");
	if (why)
		audit_put_text(&p, "text", why);
	if (audit_host(&w->witness.log, AUDIT_SECRET, &p, &e) < 0)
		log_error("%s", e.msg);
}

void witness_next_file(struct warden *w, uint64_t number)
{
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;

	/* A keeper that asks for a wrong number harms only its own sandbox. */
	if (number == (uint64_t)w->witness.file + 1 && number <= UINT32_MAX &&
	    FAULT_ERR("witness-next", &e) == 0 &&
	    audit_sandbox_next(&w->witness.log, spec_chain(&w->spec), (uint32_t)number, &fd, &e) ==
		    0 &&
	    note_send(w->note, NOTE_AUDIT, number, &fd, 1) == 0) {
		w->witness.file++;
		return;
	}
	log_error("no further file for the audit log: %s", e.msg);
	(void)note_send(w->note, NOTE_AUDIT, number, NULL, 0); /* the keeper asks again */
}

void witness_sync(struct warden *w)
{
	int r = audit_sync(&w->witness.log, &w->witness.chain);

	if (r < 0)
		log_error("cannot sync the audit log: %s", strerror(-r));
}

/* Records a reached limit of the whole sandbox; limits of commands are in its own chain. */
static int put_limit(struct warden *w, const char *limit, uint64_t times, bool told, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "sandbox", w->spec.id);
	audit_put_text(&p, "limit", limit);
	audit_put_number(&p, "times", times);
	if (told)
		audit_put_text(&p, "source", AGENT_WORD);
	return audit_host(&w->witness.log, AUDIT_LIMIT, &p, e);
}

static void tell_limit(struct warden *w, const char *limit, uint64_t times, bool told)
{
	struct err e = ERR_INIT;

	if (times > 0 && put_limit(w, limit, times, told, &e) < 0)
		log_error("%s", e.msg);
}

int witness_lost(struct warden *w, struct err *e)
{
	return w->witness.log.off ? 0 : put_limit(w, "disk-lost", 1, false, e);
}

/* Marks the end as unrecorded; the next hutch process records it: sandbox/kill.c. */
static bool owe(struct warden *w, bool ended, const struct err *why)
{
	struct err e = ERR_INIT;

	log_error("%s", why->msg);
	if (state_write(w->dir, STATE_UNSEALED, "end", ended ? STRLEN("end") : 0, &e) < 0)
		log_error("%s", e.msg);
	return false;
}

bool witness_end(struct warden *w, const struct end *end, bool started)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;
	bool ended;
	int r;

	if (w->witness.chain.fd < 0)
		return true;
	tell_limit(w, "memory", end->oom_kills, end->told);
	tell_limit(w, "pids", end->pids_refused, end->told);
	tell_limit(w, "disk", end->disk_full, end->told);
	tell_limit(w, "inodes", end->inodes_full, end->told);
	audit_put_text(&p, "sandbox", w->spec.id);
	audit_put_text(&p, "reason", started ? end_reason_names[end->reason] : "not started");
	audit_put_number(&p, "cpu_us", end->cpu_us);
	audit_put_number(&p, "memory_peak", end->memory_peak);
	r = audit_host(&w->witness.log, AUDIT_END, &p, &e);
	ended = r == 0;
	if (r == 0)
		r = audit_sandbox_seal(&w->witness.log, spec_chain(&w->spec), &e);
	(void)FAULT("witness-sealed");
	audit_chain_close(&w->witness.chain);
	audit_close(&w->witness.log);
	return r == 0 || owe(w, ended, &e);
}
