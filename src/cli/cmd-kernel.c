/* SPDX-License-Identifier: Apache-2.0 */
/* hutch image kernel */
#include <string.h>

#include "cli/cli-audit.h"
#include "cli/view.h"
#include "vm/machine.h"

struct progress {
	bool terminal, drawn;
	unsigned int told;
};

enum {
	TELL_EVERY = 100 /* files per line without a terminal */
};

/* Prints one line per phase; on a terminal, a count overwrites the last one. */
static void show(const char *phase, unsigned int count, void *arg)
{
	struct progress *p = arg;

	if (count > 0 && !p->terminal && count < p->told + TELL_EVERY)
		return;
	if (p->drawn)
		(void)fputs("\r\033[K", stderr);
	cli_puts(stderr, phase);
	if (count > 0)
		(void)fprintf(stderr, ": %u files", count);
	p->drawn = p->terminal && count > 0;
	p->told = count;
	if (!p->drawn)
		(void)fputc('\n', stderr);
}

static void put_outcome(const struct invocation *inv, const char *name,
			const struct machine_kernel_made *made, const struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, inv->cmd->name, "kernel", name);
	audit_put_text(&p, "result", e->num ? "failed" : "done");
	audit_put_text(&p, "text", e->num ? e->msg : made->package);
	cli_audit_try(inv, AUDIT_IMAGE, &p);
}

static int intend(const struct invocation *inv, const char *name, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, inv->cmd->name, "kernel", name);
	if (cli_option(inv, "from"))
		audit_put_text(&p, "source", cli_option(inv, "from"));
	return cli_audit(AUDIT_IMAGE, &p, e);
}

static int print_made(const struct invocation *inv, const char *name,
		      const struct machine_kernel_made *made)
{
	char size[32];

	if (cli_option(inv, "json"))
		return cli_print_json(JSON_OBJECT({ "name", json_string(name) },
						  { "package", json_string(made->package) },
						  { "version", json_string(made->version) },
						  { "up_to_date", json_boolean(made->up_to_date) }),
				      EXIT_OK);
	view_size(made->bytes, size, sizeof(size));
	(void)printf("%s  %s %s  %s\n", name, made->package, made->version,
		     made->up_to_date ? "up to date" : size);
	return cli_finish(EXIT_OK);
}

static int run_image_kernel(struct invocation *inv)
{
	struct progress p = { .terminal = isatty(STDERR_FILENO) };
	const struct machine_kernel_job job = { .kind = cli_option(inv, "small")
								? MACHINE_KERNEL_SMALL
								: MACHINE_KERNEL_CLOUD,
						.from = cli_option(inv, "from"),
						.say = show,
						.arg = &p };
	const char *name = machine_kernel_names[job.kind];
	struct machine_kernel_made made = { .package = "" };
	struct err e = ERR_INIT;
	int r = intend(inv, name, &e);

	if (r == 0) {
		r = machine_kernel_make(&job, &made, &e);
		if (p.drawn)
			(void)fputs("\r\033[K", stderr);
		put_outcome(inv, name, &made, &e);
	}
	return r < 0 ? cli_fail(inv, &e) : print_made(inv, name, &made);
}

/* clang-format off */
const struct command cmd_image_kernel = {
	.name = "kernel", .args = "",
	.summary = "make the kernel for VMs from Debian's packages",
	.help = "Unpacks Debian's cloud kernel; with --small, builds a smaller kernel from Debian's source, which takes\n"
		"minutes and needs: apt-get install gcc make flex bison libelf-dev bc xz-utils. Hutch uses the small kernel\n"
		"if it exists. An unchanged kernel is not made again. apt-get fetches and verifies packages; packages from\n"
		"--from are not verified.",
	.options = OPTIONS(
		OPT_JSON,
		{ "small", 0, NULL, "build a small kernel from source, with only what a guest needs" },
		{ "from", 0, "DIR", "take the package from this directory instead of the network" }),
	.run = run_image_kernel,
};
/* clang-format on */
