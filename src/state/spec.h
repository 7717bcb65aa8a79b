/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox is to be: written by hutch as spec.json into the sandbox's state directory, read
 * by its warden, and by `hutch inspect` later. Everything in it is already decided and checked: the
 * policy is compiled, the image found. It is replaced as a whole at a suspend (what is left of the
 * deadline), at a resume (the chain) and when a spare is taken (what is its owner's).
 */
#pragma once

#include <stdint.h>

#include "json-util.h"
#include "level.h"
#include "quota.h"

enum {
	SPEC_ID = 16,			   /* letters of an id: [a-z][a-z0-9]{15} */
	SPEC_SLOW_DISK = 16 * 1024 * 1024, /* bytes a second */
	SPEC_CHAIN = 2 * SPEC_ID,	   /* of a chain of the audit log that a resume has begun */
	SPEC_REQUEST_MAX = 32,
	SPEC_DIGEST = 64, /* hex */
	SPEC_FILE_MAX = 16 * 1024 * 1024,
	SPEC_API_MAX = 256 * 1024,
	SPEC_LIST_MAX = 100000, /* as many rules as a policy can have */
	SPEC_OWNER_MAX = 63,	/* the name of an API key */
	SPEC_ENGINE_MAX = 31,
};

/* Whether this is what an id looks like, as a whole. */
bool spec_id_valid(const char *id);

/* Texts of a list; belongs to the spec. */
struct spec_list {
	const char **v; /* NULL-terminated */
	size_t n;
};

/* What a deadline does. */
enum on_timeout {
	ON_TIMEOUT_END,
	ON_TIMEOUT_PAUSE,
	ON_TIMEOUTS,
};
extern const char *const on_timeout_names[ON_TIMEOUTS + 1]; /* "end", "pause" */
int on_timeout_parse(const char *s, enum on_timeout *ret);  /* 0 or -EINVAL */

struct spec {
	json_t *json;			  /* owns every text below; private */
	char *policy_text;		  /* of a plan: canonical JSON, owned; else NULL */
	const char *id, *agent, *policy;  /* policy: its digest in hex */
	const char *image, *image_digest; /* name, hex */
	const char *root;		  /* absolute path of the image's tree on the host */
	uint64_t image_uid, image_gid; /* what id 0 of the tree is on disk; 65,536 of each follow */
	uint64_t created;	       /* wall clock, ns */
	uint64_t require;	       /* bits of enum layer */
	/* Those of limits that the command line names; one that is not required is --best-effort */
	uint64_t limits_asked;
	struct {
		uint64_t cpus;		       /* thousandths */
		uint64_t memory, disk, output; /* bytes */
		uint64_t pids;
		uint64_t timeout, ttl, idle; /* milliseconds; 0: none */
	} limits;
	struct {
		const char *proxy; /* HOST:PORT of the host's HTTP proxy; "" or NULL: none */
		struct spec_list allow, deny; /* rules, as rule_format() writes them */
		struct spec_list narrow;      /* what is left of them: names/narrow.h */
		uint64_t bytes_out, bytes_in, streams, streams_per_minute, names; /* budgets */
	} egress;	  /* no allow rule: nothing goes out, and there is nothing to go out by */
	const char *user; /* of commands that name none; "" for the guest's own choice */
	const char *workspace; /* cwd of commands that name none */
	struct spec_list env;  /* NAME=value, for commands that do not say otherwise */
	struct spec_list read, write, execute;
	const char
		*api; /* what hutchd wrote down about it, a JSON object; "" if it did not make it */
	/* Its first deadline, ms from the start; 0: none but the ttl, which it cannot exceed. Can
	 * be changed while it lives (life.h). The ttl itself always ends it. */
	uint64_t deadline;
	enum on_timeout on_timeout;
	enum level level;
	const char *engine; /* a row of the engine table; "" or NULL: the first one of `level` */
	/* Of a container: what it writes is in memory, as the policy asks for it. */
	bool in_memory;
	/* Of a container whose scratch is on a disk: the path of what that is a copy of, an empty
	 * ext4 of limits.disk. Filled in when it is started; "" or NULL: there is none. */
	const char *blank;
	/*
	 * Of one that is; filled in when it is started, and `kernel` is NULL until then. Paths are
	 * absolute, and below what this user's hutch keeps.
	 */
	struct {
		const char *kernel, *initrd; /* what it boots */
		const char *root;	     /* the image as EROFS: its first disk, read only */
		const char *blank;	     /* what its second disk is a copy of: limits.disk */
		const char *snapshot;	     /* the directory that it starts from; "": it boots */
		const char *snapshots;	     /* the directory of those that are made of it */
		const char *accel;	     /* "kvm", "tcg" */
	} machine;
	uint64_t snapshot_space; /* how much of the disk snapshots may take, all together */
	uint64_t ttl_left;	 /* of limits.ttl, ms, if it was suspended; 0: all of it */
	const char *chain; /* of the audit log, if it was resumed: its id, and 16 characters more */
	const char *request;	   /* the id of the request that started it; "": none */
	const struct quota *quota; /* of a plan: what its owner may have in all; NULL: no limit */
	bool trace;		   /* trace lines of its start go to its log */
	bool once;		   /* ends when its first client goes: `hutch run` */
	bool remove;		   /* nothing is kept of it after its end: --rm */
};

/* Seconds that a slow disk may take to write or read a VM's memory; 0 of a container. */
static inline uint64_t spec_transfer_s(const struct spec *s)
{
	return s->machine.kernel ? s->limits.memory / SPEC_SLOW_DISK : 0;
}

/* What the sandbox's chain of the audit log is called. */
const char *spec_chain(const struct spec *s);

/* The API key that it was made with, by its name; "" of one that no key made. */
int spec_owner(const struct spec *s, char out[static SPEC_OWNER_MAX + 1], struct err *e);

/* Whether a template is built in it. */
int spec_is_build(const struct spec *s, bool *ret, struct err *e);

/* Reads `n` bytes of JSON, strictly: unknown and missing keys are errors. The caller ends it with
 * spec_done(). */
int spec_parse(const char *text, size_t n, struct spec *ret, struct err *e);
int spec_read(int dir, struct spec *ret, struct err *e); /* "spec.json" below `dir` */

/* The text of spec.json (json and lists need not be arranged by spec_parse). NULL without memory;
 * the caller frees it. */
char *spec_write(const struct spec *s);
int spec_store(int dir, const struct spec *s, struct err *e); /* as "spec.json", atomically */
void spec_done(struct spec *s);

#define _cleanup_spec_ _cleanup_(spec_done)
