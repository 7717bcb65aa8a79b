/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host can really enforce: the library behind `hutch doctor`.
 *
 * Two steps. facts.h tries things out (namespaces, mounts, programs, a cgroup) and notes the
 * results; the probes read text files below a root directory and turn both into checks that a
 * person can act on. A test hands in a fixture tree and invented facts and runs the second step
 * alone. Nothing on the host is changed, everything tried has a deadline, and it all works as an
 * ordinary user.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "err.h"
#include "level.h"
#include "util.h"

struct host_facts;

enum host_area {
	HOST_AREA_KERNEL,
	HOST_AREA_CGROUPS,
	HOST_AREA_ENGINES,
	HOST_AREA_USERS,
	HOST_AREA_STORAGE,
	HOST_AREA_HARDWARE,
	HOST_AREA_MAX
};

enum host_state {
	HOST_OK,   /* works */
	HOST_INFO, /* worth knowing, nothing to do */
	HOST_WARN, /* works less well or less safely than it could */
	HOST_FAIL, /* missing or does not work, and something needs it */
	HOST_STATE_MAX
};

enum host_verdict {
	HOST_READY,
	HOST_LIMITED,	  /* starts, but `why` names what is not enforced or not fast */
	HOST_UNAVAILABLE, /* cannot start here */
	HOST_VERDICT_MAX
};

enum {
	HOST_CHECKS_MAX = 64,
	HOST_SHORT_MAX = 96,
	HOST_VALUE_MAX = 160,
	HOST_DETAIL_MAX = 1024,
	HOST_ADVICE_MAX = 384,
	HOST_WHY_MAX = 384,
};

/* Every text is UTF-8 without control characters: what came from outside was escaped on entry. */
struct host_check {
	const char *id;	   /* "ns.user"; stable, for programs */
	const char *title; /* "user namespaces"; for people */
	enum host_area area;
	enum host_state state;
	char value[HOST_VALUE_MAX];   /* what was found, a few words */
	char detail[HOST_DETAIL_MAX]; /* what it means; may be empty */
	char advice[HOST_ADVICE_MAX]; /* what to do next; empty if nothing */
};

struct host_level_report {
	enum host_verdict verdict;
	char why[HOST_WHY_MAX]; /* one sentence */
};

struct host_report {
	char kernel[HOST_SHORT_MAX]; /* "6.1.0-18-amd64" */
	char arch[HOST_SHORT_MAX];   /* "x86_64" */
	char os[HOST_SHORT_MAX];     /* "Debian GNU/Linux 12 (bookworm)" */
	char user[HOST_SHORT_MAX];   /* "root" */
	uid_t uid;
	size_t n_checks;
	struct host_check checks[HOST_CHECKS_MAX];
	struct host_level_report levels[LEVEL_MAX]; /* [LEVEL_UNSET] is not used */
};

/* What is known of virtual machines by who can try one out: libraries above this one. */
struct host_machine {
	char kernel[HOST_SHORT_MAX]; /* the guest's; "": none is installed */
	int accel;		     /* 1: KVM; 0: TCG; -errno: no machine starts */
	char why[HOST_WHY_MAX];	     /* why it is not KVM */
};

struct host_options {
	int root_fd;	       /* stands for "/": where text files are read; -EBADF means "/" */
	uid_t uid;	       /* on whose behalf; only 0 or not 0 and the subordinate ids matter */
	const char *user;      /* name of that uid; NULL if it has none */
	const char *state_dir; /* absolute, where images live; NULL: there is none */
	const char *run_dir;   /* absolute, where sandboxes live; NULL: there is none */
	const char *state_why; /* why state_dir is NULL */
	const char *run_why;   /* why run_dir is NULL */
	const struct host_facts *facts;	    /* NULL: try for real */
	const struct host_machine *machine; /* NULL: no kernel, and nothing tried */
	const char *engine; /* the operator's choice (engine_choose()); NULL or "": none */
};

/*
 * Options for the running process on the real host, but for the directories, which libraries above
 * this one decide. The strings are static.
 */
void host_options_default(struct host_options *ret);

/*
 * Probes the host. Fails only for want of memory or of the root directory; what the host lacks is
 * in the report.
 */
int host_probe(const struct host_options *o, struct host_report *ret, struct err *e);

/* The check with this id, or NULL. */
const struct host_check *host_report_find(const struct host_report *r, const char *id);

const char *host_verdict_name(enum host_verdict v);

/* {"host": {...}, "checks": [...], "levels": [...]}; the caller owns *ret. 0 or -ENOMEM. */
int host_report_json(const struct host_report *r, json_t **ret);

/* A table for people: as wide as the terminal behind `f`, at most 100 columns. 0 or -errno. */
int host_report_print(const struct host_report *r, FILE *f, bool color);

/* The same at a width of 60 to 100 columns. */
int host_report_print_width(const struct host_report *r, FILE *f, bool color, size_t width);
