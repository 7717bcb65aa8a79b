/* SPDX-License-Identifier: Apache-2.0 */
/* hutch doctor */
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/proc.h"
#include "base/state-dir.h"
#include "base/str.h"
#include "cli/cli.h"
#include "host/host.h"
#include "sandbox/sandbox.h"
#include "secret/change.h"
#include "state/state.h"
#include "vm/accel.h"
#include "vm/host-config.h"
#include "vm/machine.h"

enum {
	TAP_S = 30,
	TAP_OUTPUT_MAX = 64,
};

/* Finds the kernel that VMs boot; false if there is none. */
static bool find_kernel(struct machine_kernel *ret)
{
	struct err e = ERR_INIT;
	char guest[4096];

	return sandbox_find_guest(guest, &e) == 0 &&
	       machine_kernel_find(guest, false, ret, &e) == 0;
}

/* Collects facts about VMs; with `probe`, boots one first. */
static void look_at_machines(bool probe, struct host_machine *ret)
{
	struct machine_kernel found, *kernel = find_kernel(&found) ? &found : NULL;
	char why[ACCEL_WHY_MAX] = "";
	enum accel accel = ACCEL_TCG;
	struct err e = ERR_INIT;
	int r = 0;

	*ret = (struct host_machine){ .accel = 0 };
	if (kernel)
		(void)snprintf(ret->kernel, sizeof(ret->kernel), "%s", kernel->name);
	if (probe && kernel)
		r = accel_probe(kernel, &e);
	if (r == 0)
		r = accel_choose(kernel, false, &accel, why, &e);
	ret->accel = r < 0 ? r : accel == ACCEL_KVM;
	(void)snprintf(ret->why, sizeof(ret->why), "%s", r < 0 ? e.msg : why);
}

/* The directories that all other commands of this user use. */
struct places {
	char state[PATH_MAX], run[PATH_MAX];
	struct err no_state, no_run;
};

static void find_places(struct places *p, struct host_options *o)
{
	*p = (struct places){ .no_state = ERR_INIT, .no_run = ERR_INIT };
	if (state_dir_path(p->state, sizeof(p->state), &p->no_state) == 0)
		o->state_dir = p->state;
	if (state_root_path(p->run, sizeof(p->run), &p->no_run) == 0)
		o->run_dir = p->run;
	o->state_why = p->no_state.msg;
	o->run_why = p->no_run.msg;
}

static int check_store(long *ret_n, struct err *e)
{
	_cleanup_secret_store_ struct secret_store store = SECRET_STORE_INIT;
	size_t n = 0;
	int r = secret_store_open(false, &store, e);

	if (r == 0 && store.dir >= 0)
		r = secret_store_check(&store, &n, e);
	*ret_n = (long)n;
	return r;
}

/* Runs hutch-tap, which counts the certificates. */
static int run_tap(long *ret_roots, struct err *e)
{
	const char *const argv[] = { "hutch-tap", "--roots", NULL };
	_cleanup_buf_ struct buf out = BUF_INIT(TAP_OUTPUT_MAX);
	char path[PATH_MAX];
	uint64_t n = 0;
	int status = 0, r = sandbox_find_program("hutch-tap", path, e);

	if (r < 0)
		return r;
	r = proc_capture(path, argv, false, clock_mono() + TAP_S * NSEC_PER_SEC, &out, &status, e);
	if (r < 0)
		return r;
	if (status != 0 ||
	    str_to_u64(buf_text(&out), strcspn(buf_text(&out), "\n"), INT32_MAX, &n) < 0)
		return err_set(e, -EIO, "%s --roots: status %d", path, status);
	*ret_roots = (long)n;
	return 0;
}

static void look_at_secrets(struct host_secrets *ret)
{
	struct err store = ERR_INIT, tap = ERR_INIT, token = ERR_INIT;
	char path[PATH_MAX];

	*ret = (struct host_secrets){ 0 };
	ret->store = check_store(&ret->count, &store);
	ret->tap = run_tap(&ret->roots, &tap);
	ret->token = sandbox_find_program("hutch-token", path, &token);
	(void)snprintf(ret->store_why, sizeof(ret->store_why), "%s", store.msg);
	(void)snprintf(ret->tap_why, sizeof(ret->tap_why), "%s", tap.msg);
	(void)snprintf(ret->token_why, sizeof(ret->token_why), "%s", token.msg);
}

static int run_doctor(struct invocation *inv)
{
	_cleanup_free_ struct host_report *report = calloc(1, sizeof(*report));
	struct host_machine machine;
	struct host_secrets secrets;
	struct host_options options;
	struct places places;
	struct err e = ERR_INIT, ignored = ERR_INIT;
	struct host_config config = HOST_CONFIG_INIT;
	json_t *j = NULL;
	int code;

	if (!report)
		return cli_fail(inv, (err_oom(&e), &e));
	look_at_machines(cli_option(inv, "probe"), &machine);
	host_options_default(&options);
	options.machine = &machine;
	look_at_secrets(&secrets);
	options.secrets = &secrets;
	/* The row of the accelerator reports errors of host.yaml. */
	if (host_config_load(&config, &ignored) == 0)
		options.engine = host_config_engine(&config);
	options.overcommit = config.disk_overcommit;
	find_places(&places, &options);
	if (host_probe(&options, report, &e) < 0)
		return cli_fail(inv, &e);
	code = report->levels[LEVEL_DEFAULT].verdict == HOST_UNAVAILABLE ? EXIT_NO : EXIT_OK;
	if (cli_option(inv, "json"))
		return cli_print_json(host_report_json(report, &j) == 0 ? j : NULL, code);
	return host_report_print(report, stdout, inv->color) < 0 ? EXIT_HUTCH : code;
}

/* clang-format off */
const struct command cmd_doctor = {
	.name = "doctor", .args = "",
	.summary = "show what this host can enforce, and how to enable the rest",
	.help = "Tests features instead of trusting version numbers. Changes nothing, except that it makes a missing initrd\n"
		"for microVMs, as after an upgrade, and keeps the result of --probe until the host reboots. Exits 0 if\n"
		"level 'container' is available, 1 if not.",
	.options = OPTIONS(
		OPT_JSON,
		{ "probe", 0, NULL, "boot a VM to test whether KVM works" }),
	.run = run_doctor,
};
/* clang-format on */
