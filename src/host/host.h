/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports what this host can enforce: the library behind `hutch doctor`.
 *
 * There are two steps. facts.h tries things (namespaces, mounts, programs, a cgroup) and notes the
 * results; the probes read text files below a root directory and turn both into checks that a
 * person can act on. A test passes a fixture tree and invented facts and runs only the second step.
 * Nothing on the host is changed, every attempt has a deadline, and everything works as an ordinary
 * user.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"
#include "receipt/level.h"

struct host_facts;

enum host_area {
	HOST_AREA_KERNEL,
	HOST_AREA_CGROUPS,
	HOST_AREA_ENGINES,
	HOST_AREA_USERS,
	HOST_AREA_STORAGE,
	HOST_AREA_SECRETS,
	HOST_AREA_HARDWARE,
	HOST_AREA_MAX
};

enum host_state {
	HOST_OK,   /* works */
	HOST_INFO, /* worth knowing, nothing to do */
	HOST_WARN, /* works less well or less safely than possible */
	HOST_FAIL, /* missing or broken, and something needs it */
	HOST_STATE_MAX
};

enum host_verdict {
	HOST_READY,
	HOST_LIMITED,	  /* starts, but `why` names what is not enforced or slow */
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

/* All texts are UTF-8 without control characters: text from outside was escaped on entry. */
struct host_check {
	const char *id;	   /* "ns.user"; stable, for programs */
	const char *title; /* "user namespaces"; for people */
	enum host_area area;
	enum host_state state;
	char value[HOST_VALUE_MAX];   /* result, a few words */
	char detail[HOST_DETAIL_MAX]; /* meaning; may be empty */
	char advice[HOST_ADVICE_MAX]; /* next step; may be empty */
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

/* Facts about VMs, from libraries above this one that can boot one. */
struct host_machine {
	char kernel[HOST_SHORT_MAX]; /* guest kernel; "": none is installed */
	int accel;		     /* 1: KVM; 0: TCG; -errno: no VM can start */
	char why[HOST_WHY_MAX];	     /* why it is not KVM */
};

/* Facts about secrets, from libraries above this one. */
struct host_secrets {
	int store;  /* 0 or -errno */
	long count; /* secrets, all of which can be unsealed */
	int tap;    /* 0 or -errno; hutch-tap has run */
	int token;  /* 0 or -errno; hutch-token was found */
	long roots; /* CA certificates of the host, if hutch-tap has run */
	char store_why[HOST_WHY_MAX], tap_why[HOST_WHY_MAX], token_why[HOST_WHY_MAX];
};

struct host_options {
	int root_fd; /* stands for "/", for text files; -EBADF means "/" */
	uid_t uid;   /* the user to report for; only 0 or not 0 and the subordinate ids matter */
	const char *user;		    /* name of that uid; NULL: unknown */
	const char *state_dir;		    /* absolute path of the images; NULL: none */
	const char *run_dir;		    /* absolute path of the sandboxes; NULL: none */
	const char *state_why;		    /* why state_dir is NULL */
	const char *run_why;		    /* why run_dir is NULL */
	const struct host_facts *facts;	    /* NULL: try for real */
	const struct host_machine *machine; /* NULL: no kernel, nothing tried */
	const struct host_secrets *secrets; /* NULL: not checked */
	const char *engine; /* the operator's choice (engine_choose()); NULL or "": none */
	bool overcommit;    /* disk_overcommit of host.yaml */
};

/*
 * Options for the running process on the real host, except for the directories, which libraries
 * above this one set. The strings are static.
 */
void host_options_default(struct host_options *ret);

/*
 * Probes the host. Fails only if memory or the root directory is unavailable; the report lists what
 * the host lacks.
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
