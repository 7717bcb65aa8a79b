/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spec: the complete plan of a sandbox. hutch writes it as spec.json into the sandbox's
 * directory; the warden and later `hutch inspect` read it. All values are final and checked: the
 * policy is compiled, the image found. The file is replaced at a suspend (remaining deadline), at a
 * resume (chain) and when a spare is taken (its owner's values).
 */
#pragma once

#include <stdint.h>

#include "base/json-util.h"
#include "base/quota.h"
#include "receipt/level.h"

enum {
	SPEC_ID = 16,			   /* length of an id: [a-z][a-z0-9]{15} */
	SPEC_SLOW_DISK = 16 * 1024 * 1024, /* bytes per second */
	SPEC_CHAIN = 2 * SPEC_ID,	   /* length of an audit chain's id after a resume */
	SPEC_REQUEST_MAX = 32,
	SPEC_DIGEST = 64, /* hex */
	SPEC_FILE_MAX = 16 * 1024 * 1024,
	SPEC_API_MAX = 256 * 1024,
	SPEC_LIST_MAX = 100000, /* same limit as a policy's rules */
	SPEC_OWNER_MAX = 63,	/* length of an API key's name */
	SPEC_ENGINE_MAX = 31,
	SPEC_TAP_MAX = 2 * 1024 * 1024, /* bytes of spec.tap */
};

/* Is this a well-formed, complete id? */
bool spec_id_valid(const char *id);

/* A list of strings, owned by the spec. */
struct spec_list {
	const char **v; /* NULL-terminated */
	size_t n;
};

/* Action at the deadline. */
enum on_timeout {
	ON_TIMEOUT_END,
	ON_TIMEOUT_PAUSE,
	ON_TIMEOUTS,
};
extern const char *const on_timeout_names[ON_TIMEOUTS + 1]; /* "end", "pause" */
int on_timeout_parse(const char *s, enum on_timeout *ret);  /* 0 or -EINVAL */

struct spec {
	json_t *json;			  /* owns every string below; private */
	char *policy_text;		  /* plans only: canonical JSON, owned; else NULL */
	const char *id, *agent, *policy;  /* policy: its digest in hex */
	const char *image, *image_digest; /* name, hex */
	const char *root;		  /* absolute path of the image's tree on the host */
	uint64_t image_uid, image_gid; /* first of the tree's 65,536 user and group ids on disk */
	uint64_t created;	       /* wall clock, ns */
	uint64_t require;	       /* bits of enum layer */
	/* Layers of limits from the command line; --best-effort if not in `require` too. */
	uint64_t limits_asked;
	struct {
		uint64_t cpus;		       /* thousandths */
		uint64_t memory, disk, output; /* bytes */
		uint64_t pids;
		uint64_t timeout, ttl, idle;	   /* milliseconds; 0: none */
		uint64_t disk_bandwidth, disk_ops; /* per second, of its disk; 0: none */
	} limits;
	struct {
		const char *proxy; /* HOST:PORT of the host's HTTP proxy; "" or NULL: none */
		struct spec_list allow, deny; /* rules, as rule_format() writes them */
		struct spec_list narrow;      /* narrowing of the rules: names/narrow.h */
		uint64_t bytes_out, bytes_in, streams, streams_per_minute, names; /* budgets */
	} egress;	       /* without allow rules the sandbox has no network at all */
	const char *user;      /* default user of commands; "": the guest chooses */
	const char *workspace; /* default cwd of commands */
	struct spec_list env;  /* default environment of commands, NAME=value */
	struct spec_list read, write, execute;
	/*
	 * Work of hutch-tap for this sandbox; "" and empty lists: none, and it does not run.
	 * JSON {"secrets": [...], "http": [...]} as in tap/config.h; a host rule ("name" or
	 * ".suffix") per host with a secret or a rule; the names of the secrets, in the order of
	 * the JSON; a PEM file of more trusted CAs, or "".
	 */
	const char *tap, *tap_roots;
	/* The sandbox whose budgets for language models it shares; "" or NULL: its own. */
	const char *ledger;
	struct spec_list tap_hosts, tap_secrets;
	/* The output filter: its action, and names of rules and groups; "" and none: no filter. */
	const char *filter;
	struct spec_list filter_rules;
	const char *api; /* data of hutchd, a JSON object; "" if hutchd did not create it */
	/*
	 * First deadline, ms from the start; 0: only the ttl, which no deadline exceeds and which
	 * always ends the sandbox. Clients can change the deadline later (life.h).
	 */
	uint64_t deadline;
	enum on_timeout on_timeout;
	enum level level;
	const char *engine; /* row of the engine table; "" or NULL: the first one of `level` */
	/* Containers: the scratch is in memory, as the policy says. */
	bool in_memory;
	bool nested;	 /* isolation.nested: root in the VM is not confined */
	bool overcommit; /* its disk reserves no room: disk_overcommit of host.yaml */
	/* Containers with their scratch on disk: path of the empty ext4 of limits.disk that is
	 * copied for it. Set at the start; "" or NULL: none. */
	const char *blank;
	/*
	 * VMs only; set at the start, and `kernel` is NULL before. Paths are absolute and lead to
	 * files of this user's hutch.
	 */
	struct {
		const char *kernel, *initrd;
		const char *root;      /* the image as EROFS: first disk, read only */
		const char *blank;     /* file that is copied for the second disk: limits.disk */
		const char *snapshot;  /* directory of the snapshot it starts from; "": boots */
		const char *snapshots; /* directory for snapshots of it */
		const char *accel;     /* "kvm", "tcg" */
		/* For the receipt, "" if not known: versions of the hypervisor at this start, and
		 * of the kernel that the VM booted, perhaps before a snapshot. */
		const char *hypervisor, *kernel_version;
	} machine;
	uint64_t snapshot_space;   /* disk space for all snapshots together */
	uint64_t ttl_left;	   /* rest of limits.ttl, ms, after a suspend; 0: all of it */
	const char *chain;	   /* id of the audit chain after a resume: id and 16 characters */
	const char *request;	   /* id of the request that started it; "": none */
	const struct quota *quota; /* plans only: limits of its owner; NULL: none */
	bool trace;		   /* trace lines of the start go to the sandbox's log */
	bool once;		   /* ends when its first client disconnects: `hutch run` */
	bool remove;		   /* nothing is kept after its end: --rm */
};

/* A VM's RAM, in whole MiB: what its programs may use, and what its kernel and hutch-guest use.
 * Measured with Debian's kernel 6.12: 89 MiB of 256, 172 of 1,024, 346 of 4,096. */
static inline uint64_t spec_ram(const struct spec *s)
{
	return ((s->limits.memory + s->limits.memory / 32) >> 20 << 20) + (UINT64_C(80) << 20);
}

/* The most that a snapshot of a VM takes on disk. */
static inline uint64_t spec_snapshot_max(const struct spec *s)
{
	return spec_ram(s) + s->limits.disk;
}

/* Seconds that a slow disk may take to write or read a VM's memory; 0 for a container. */
static inline uint64_t spec_transfer_s(const struct spec *s)
{
	return s->machine.kernel ? s->limits.memory / SPEC_SLOW_DISK : 0;
}

/* Id of the sandbox's audit chain. */
const char *spec_chain(const struct spec *s);

/* Returns the name of the API key that created the sandbox; "" if none did. */
int spec_owner(const struct spec *s, char out[static SPEC_OWNER_MAX + 1], struct err *e);

/* Does the sandbox build a template? */
int spec_is_build(const struct spec *s, bool *ret, struct err *e);

/* Parse `n` bytes of JSON, or "spec.json" below `dir`; unknown and missing keys are errors. The
 * caller frees the spec with spec_done(). */
int spec_parse(const char *text, size_t n, struct spec *ret, struct err *e);
int spec_read(int dir, struct spec *ret, struct err *e);

/* Returns the text of spec.json; the spec need not come from spec_parse(). The caller frees it;
 * NULL without memory. */
char *spec_write(const struct spec *s);
int spec_store(int dir, const struct spec *s, struct err *e); /* as "spec.json", atomically */
void spec_done(struct spec *s);

#define _cleanup_spec_ _cleanup_(spec_done)
