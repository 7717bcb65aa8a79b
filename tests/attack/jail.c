/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts QEMU, or another program in its place, in the VM jail:
 *
 *   jail KEY=VALUE ...
 *
 *   ids, channel, qmp, disk, memory, state   numbers; inherited descriptors
 *   kernel, initrd, root, accel              of the VM
 *   mib, cpus, size                          memory in MiB, thousandths of a CPU, bytes of disk
 *   console=1                                with a console
 *   rootless                                 the first subordinate id of an ordinary user
 *   program                                  a static program instead of QEMU
 *
 * Prints "started PID", then obeys one letter at a time from stdin and reports each: s seals the
 * jail, v prints the receipt on one line, w prints QEMU's last message. At end of file it kills
 * the program.
 */
#include <string.h>

#include "base/str.h"
#include "engine/engine.h"
#include "engine/qemu-jail.h"
#include "engine/qemu.h"
#include "engine/userns.h"

static struct spec spec = { .limits = { .cpus = 1000, .memory = 256 << 20, .disk = 64 << 20 } };
static struct cgroup group = CGROUP_INIT;
static struct engine_start start = { .spec = &spec,
				     .group = &group,
				     .channel = -EBADF,
				     .monitor = -EBADF,
				     .disk = -EBADF,
				     .memory = -EBADF,
				     .state = -EBADF };

static uint64_t subordinate;

static uint64_t number(const char *text)
{
	uint64_t value;

	if (str_to_u64(text, strlen(text), INT64_MAX, &value) < 0)
		exit(2);
	return value;
}

static bool take_text(const char *key, const char *value, const char **program)
{
	const struct {
		const char *key, **at;
	} texts[] = { { "kernel", &spec.machine.kernel },
		      { "initrd", &spec.machine.initrd },
		      { "root", &spec.machine.root },
		      { "accel", &spec.machine.accel },
		      { "program", program } };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (str_eq(key, texts[i].key)) {
			*texts[i].at = value;
			return true;
		}
	return false;
}

static void take_number(const char *key, uint64_t n)
{
	const struct {
		const char *key;
		int *at;
	} fds[] = { { "channel", &start.channel },
		    { "qmp", &start.monitor },
		    { "disk", &start.disk },
		    { "memory", &start.memory },
		    { "state", &start.state } };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (str_eq(key, fds[i].key)) {
			*fds[i].at = (int)n;
			return;
		}
	if (str_eq(key, "ids"))
		start.ids = (uint32_t)n;
	else if (str_eq(key, "mib"))
		spec.limits.memory = n << 20;
	else if (str_eq(key, "cpus"))
		spec.limits.cpus = n;
	else if (str_eq(key, "size"))
		spec.limits.disk = n;
	else if (str_eq(key, "console"))
		start.console = n > 0;
	else if (str_eq(key, "rootless"))
		subordinate = n;
	else
		exit(2);
}

static int start_program(const char *program, struct engine_sandbox *ret, struct err *e)
{
	static const char *const argv[] = { "/program", NULL };
	const struct qemu_jail_file files[] = { { program, "/program", false },
						{ "/usr", "/usr", false },
						{ 0 } };
	int fds[QEMU_FDS];
	const struct qemu_jail j = { .group = &group,
				     .ids = start.ids,
				     .rootless = start.rootless,
				     .pids = 16,
				     .file = spec.limits.disk,
				     .program = argv[0],
				     .argv = argv,
				     .files = files,
				     .fds = fds };

	for (size_t i = 0; i < QEMU_FDS; i++)
		fds[i] = -EBADF;
	fds[QEMU_FD_CHANNEL] = start.channel;
	return qemu_jail_start(&j, &ret->init, &ret->said, e);
}

static void print_receipt(const struct engine_sandbox *b)
{
	static struct receipt r;
	_cleanup_json_ json_t *j = NULL;

	receipt_init(&r, 0);
	start.engine->verify(&start, b, &r);
	j = receipt_json(&r, &(struct receipt_head){ spec.id, "microvm", "qemu", "", "" });
	if (!j || json_dumpf(j, stdout, JSON_COMPACT) < 0)
		exit(1);
	(void)putchar('\n');
}

static const char *seal(struct engine_sandbox *b, struct err *e)
{
	int r = b->ram_report >= 0 ? start.engine->seal(&start, b, e) : qemu_jail_seal(&b->init, e);

	return r < 0 ? e->msg : "sealed";
}

static void act(int c, struct engine_sandbox *b)
{
	struct err e = ERR_INIT;
	char words[256];

	if (c == 's') {
		(void)printf("%s\n", seal(b, &e));
	} else if (c == 'v') {
		print_receipt(b);
	} else if (c == 'w') {
		start.engine->last_words(b, words, sizeof(words));
		(void)printf("%s\n", words);
	}
	(void)fflush(stdout);
}

static int complain(const struct err *e)
{
	(void)fprintf(stderr, "%s\n", e->msg);
	return 1;
}

int main(int argc, char **argv)
{
	struct engine_sandbox box = ENGINE_SANDBOX_INIT;
	const char *program = NULL;
	struct err e = ERR_INIT;
	int r, c;

	start.engine = engine_find("qemu");
	spec.id = "abcdefghijklmnop";
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			return 2;
		*value++ = '\0';
		if (!take_text(argv[i], value, &program))
			take_number(argv[i], number(value));
	}
	for (size_t i = 0; i < CGROUP_PARTS; i++)
		(void)snprintf(group.why[i], sizeof(group.why[i]), "the test makes none");
	start.rootless = subordinate > 0;
	if (start.rootless && userns_enter(subordinate, subordinate, &e) < 0)
		return complain(&e);
	r = program ? start_program(program, &box, &e) : start.engine->start(&start, &box, &e);
	if (r < 0)
		return complain(&e);
	/* The peers see end of file when QEMU closes its copies only if these are closed. */
	start.channel = fd_close(start.channel);
	start.monitor = fd_close(start.monitor);
	(void)printf("started %d\n", (int)box.init.pid);
	(void)fflush(stdout);
	while ((c = getchar()) != EOF)
		act(c, &box);
	proc_done(&box.init);
	return 0;
}
