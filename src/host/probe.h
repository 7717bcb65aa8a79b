/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to host/: probes and their helpers. */
#pragma once

#include "base/buf.h"
#include "engine/engine.h"
#include "host/facts.h"
#include "host/host.h"

struct probe_ctx {
	int root_fd;
	uid_t uid;
	const char *user; /* may be NULL */
	const char *state_dir, *state_why;
	const char *run_dir, *run_why;
	const struct host_facts *facts;
	const struct host_machine *machine;
	const struct host_secrets *secrets; /* may be NULL */
	const char *engine;		    /* may be NULL */
	bool overcommit;		    /* disks reserve no space */
};

/* Fills in state, value, detail and advice; returns false if the check does not apply to this host.
 */
struct probe {
	const char *id;
	const char *title;
	bool (*run)(const struct probe_ctx *x, struct host_check *c);
};

/* One table per file, terminated by an empty row. */
extern const struct probe probe_kernel[];
extern const struct probe probe_lockdown[];
extern const struct probe probe_cgroups[];
extern const struct probe probe_kvm[];
extern const struct probe probe_machine[];
extern const struct probe probe_users[];
extern const struct probe probe_storage[];
extern const struct probe probe_secrets[];
extern const struct probe probe_hardware[];

/* Set one field. Text that does not fit ends in "..."; bytes from outside are escaped. */
void check_value(struct host_check *c, enum host_state s, const char *fmt, ...) _printf_(3, 4);
void check_detail(struct host_check *c, const char *fmt, ...) _printf_(2, 3); /* adds a sentence */
void check_advice(struct host_check *c, const char *fmt, ...) _printf_(2, 3);
void host_set_text(char *out, size_t n, const char *s);

/* The first line of a file below the root; false if it cannot be read. */
bool host_line(const struct probe_ctx *x, const char *path, char *out, size_t n);

/* The number in a file; -1 if it has none. */
long long host_number(const struct probe_ctx *x, const char *path);

/* A whole file, or as much of its start as `b` holds; "" if it cannot be read. */
const char *host_text(int root_fd, const char *path, struct buf *b);

/* "kvm_intel" or "kvm_amd" if loaded, or NULL. */
const char *host_kvm_vendor(const struct probe_ctx *x);

/* True if the first processor has the flag: "vmx", "svm", "hypervisor". */
bool host_cpu_flag(const struct probe_ctx *x, const char *flag);

/*
 * Runs `fn` in a child process and returns its result: 0 or -errno. -ETIME after two seconds, -EIO
 * if the child died.
 */
int try_in_child(int (*fn)(long arg), long arg);

/* try-*.c: one group of facts each. */
void try_namespaces(struct host_facts *f);
void try_mounts(struct host_facts *f);
void try_calls(struct host_facts *f);
void try_programs(struct host_facts *f);
void try_cgroups(struct host_facts *f);

/* engine.c: one row of the engine table; false: another one of its level is installed. */
bool probe_engine(const struct probe_ctx *x, size_t row, struct host_check *c);

/* The row of the engine that starts sandboxes of this level, as engine_choose() decides; -ENOENT:
 * none is installed. */
int host_engine(const struct probe_ctx *x, enum level level);

/* engine.c: the version in a banner, such as "1.8.1" or "7.2.22"; false if it has none. */
bool engine_version(const char *banner, char *out, size_t n);

/* cve.c */

/* True if `version` is older than the fix. */
bool cve_applies(const struct engine_cve *row, const char *version);

/* <0, 0, >0, by up to three numbers; a release candidate is older than its release. */
int cve_version_compare(const char *a, const char *b);

/* One bit for each row whose id appears in `changelog`. */
uint64_t cve_patched(const struct engine_cve *rows, const char *changelog);

/* level.c: the verdicts, from the finished checks. */
void level_judge(const struct probe_ctx *x, struct host_report *r);
