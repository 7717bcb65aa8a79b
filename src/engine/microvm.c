/* SPDX-License-Identifier: Apache-2.0 */
/* The VM engine: QEMU in a jail. QEMU is PID 1 of the jail's pid namespace, and the process that
 * the warden holds; the guest's kernel, agent and processes run inside it.
 *
 * start() returns when QEMU executes and waits for a command of the keeper. When the keeper has
 * QEMU's first answer, QEMU has opened every file that it will ever open; seal() then empties its
 * root directory, and only then does the keeper start the guest. (The greeting is not enough: a
 * monitor thread sends it while the main thread still builds the VM.) */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/qemu-jail.h"
#include "engine/qemu.h"

#define MIB UINT64_C(1048576)

enum {
	/* QEMU's memory beside the guest's: measured 58 MiB after a boot with TCG (data, devices,
	 * page tables, half of the translated code) and 20 MiB in a clone. The group's limit must
	 * never kill because of it, so allow twice that, and twice the translated code. */
	OVERHEAD_KVM_MIB = 128,
	OVERHEAD_TCG_MIB = 128 + 2 * QEMU_TB_MIB,
	/* Threads for the disks (64 at most), for saving and restoring, and QEMU's own. One per CPU
	 * comes on top. */
	THREADS = 96,
	VCPUS_MAX = 64,
	SAID_MAX = 4096,
	SAID_READS = 64,
	TSC_MSEC = 20,
};

static bool uses_kvm(const struct spec *spec)
{
	return spec->machine.accel && str_eq(spec->machine.accel, "kvm");
}

/* Rounds up to whole CPUs; the control group has the exact limit. */
static unsigned int vcpus(const struct spec *spec)
{
	uint64_t n = (spec->limits.cpus + 999) / 1000;

	return (unsigned int)MIN(MAX(n, UINT64_C(1)), (uint64_t)VCPUS_MAX);
}

static struct cgroup_limits microvm_limits(const struct spec *spec)
{
	const uint64_t overhead = (uses_kvm(spec) ? OVERHEAD_KVM_MIB : OVERHEAD_TCG_MIB) * MIB;

	return (struct cgroup_limits){ .cpus = spec->limits.cpus,
				       .memory = spec_ram(spec) + overhead,
				       .pids = THREADS + vcpus(spec) };
}

/* ---- the VM ---- */

/* The emulated CPU shows the host's TSC to the guest. No system call reports its rate, and not
 * every CPU does: measure it. */
static uint64_t tsc_khz(void)
{
#if defined(__x86_64__)
	const struct timespec pause = { .tv_nsec = TSC_MSEC * (long)NSEC_PER_MSEC };
	uint64_t t0, t1, c0, c1;

	t0 = clock_mono();
	c0 = __builtin_ia32_rdtsc();
	(void)nanosleep(&pause, NULL);
	t1 = clock_mono();
	c1 = __builtin_ia32_rdtsc();
	return t1 > t0 ? (uint64_t)((unsigned __int128)(c1 - c0) * 1000000 / (t1 - t0)) : 0;
#else
	return 0;
#endif
}

static enum vm_start kind_of_start(const struct engine_start *s)
{
	return s->state >= 0 ? VM_RESTORE : VM_BOOT;
}

void qemu_describe(const struct spec *spec, enum vm_start start, struct qemu_machine *ret)
{
	*ret = (struct qemu_machine){
		.start = start,
		.kvm = uses_kvm(spec),
		.memory = spec_ram(spec),
		.placeholder = QEMU_MEMORY,
		.vcpus = vcpus(spec),
		.disk_bandwidth = spec->limits.disk_bandwidth,
		.disk_ops = spec->limits.disk_ops,
		.nested = spec->nested,
		.reserved = !spec->overcommit,
	};
}

static struct qemu_machine machine_of(const struct engine_start *s)
{
	struct qemu_machine m;

	qemu_describe(s->spec, kind_of_start(s), &m);
	m.console = s->console;
	if (!m.kvm && m.start == VM_BOOT)
		m.tsc_khz = tsc_khz();
	return m;
}

/* ---- the start ---- */

/* The files that QEMU is loaded from and, if it boots, those that the VM boots. */
static void choose_files(const struct engine_start *s, bool boots, const char *program,
			 const char *library, struct qemu_jail_file files[static 9])
{
	static const char *const system[] = { "/usr", "/lib", "/lib64", "/bin" };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(system); i++)
		files[n++] = (struct qemu_jail_file){ system[i], system[i], true };
	files[n++] = (struct qemu_jail_file){ program, QEMU_IN_JAIL, false };
	files[n++] = (struct qemu_jail_file){ library, QEMU_RAM, false };
	if (boots) {
		files[n++] = (struct qemu_jail_file){ s->spec->machine.kernel, QEMU_KERNEL, false };
		files[n++] = (struct qemu_jail_file){ s->spec->machine.initrd, QEMU_INITRD, false };
	}
	files[n] = (struct qemu_jail_file){ 0 };
}

static int know_files(const struct engine_start *s, int root, struct engine_sandbox *b,
		      struct err *e)
{
	const int fds[ENGINE_FILES] = {
		[ENGINE_FILE_ROOT] = root,
		[ENGINE_FILE_DISK] = s->disk,
		[ENGINE_FILE_MEMORY] = -EBADF, /* known from seal() on */
		[ENGINE_FILE_STATE] = s->state,
	};
	struct stat st;

	for (size_t i = 0; i < ENGINE_FILES; i++) {
		if (fds[i] < 0)
			continue;
		if (fstat(fds[i], &st) < 0)
			return err_errno(e, "cannot inspect a file of the VM");
		b->file[i].dev = st.st_dev;
		b->file[i].ino = st.st_ino;
	}
	return 0;
}

/* `report`: the pipe for the address of the memory. */
static int start_qemu(const struct engine_start *s, const char *program, int root, int report,
		      struct engine_sandbox *b, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX), vars = BUF_INIT(QEMU_TEXT_MAX);
	const struct qemu_machine m = machine_of(s);
	const char *argv[QEMU_ARGS_MAX], *env[QEMU_ENVIRONMENT_MAX];
	struct qemu_jail_file files[9];
	char library[PATH_MAX];
	const int fds[QEMU_FDS] = {
		[QEMU_FD_CHANNEL] = s->channel, [QEMU_FD_QMP] = s->monitor,
		[QEMU_FD_ROOT] = root,		[QEMU_FD_DISK] = s->disk,
		[QEMU_FD_MEMORY] = s->memory,	[QEMU_FD_STATE] = s->state,
		[QEMU_FD_REPORT] = report,
	};
	const struct qemu_jail j = {
		.group = s->group,
		.ids = s->ids,
		.rootless = s->rootless,
		.pids = s->group->has[CGROUP_PIDS] ? 0 : THREADS + m.vcpus,
		.file = s->spec->limits.disk,
		.memory = m.memory,
		.program = QEMU_IN_JAIL,
		.argv = argv,
		.env = env,
		.files = files,
		.fds = fds,
		.kvm = m.kvm,
	};

	if (qemu_arguments(&m, program, &text, argv) < 0 ||
	    qemu_ram_environment(&m, QEMU_RAM, &vars, env) < 0)
		return err_oom(e);
	if (qemu_ram_library(library, e) < 0)
		return e->num;
	choose_files(s, m.start == VM_BOOT, program, library, files);
	return qemu_jail_start(&j, &b->init, &b->said, e);
}

static int microvm_start(const struct engine_start *s, struct engine_sandbox *ret, struct err *e)
{
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;
	_cleanup_close_ int root = -EBADF, from = -EBADF, to = -EBADF;
	char program[PATH_MAX];
	int r;

	b.disk = s->spec->limits.disk;
	b.how = kind_of_start(s);
	b.ram_size = spec_ram(s->spec);
	if (engine_program(s->engine, program, e) < 0)
		return e->num;
	root = open(s->spec->machine.root, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (root < 0)
		return err_errno(e, "cannot open the image's disk '%s'", s->spec->machine.root);
	if (fd_pipe(O_NONBLOCK, &from, &to) < 0)
		return err_errno(e, "cannot create a pipe");
	r = know_files(s, root, &b, e);
	if (r == 0)
		r = start_qemu(s, program, root, to, &b, e);
	if (r < 0)
		return r;
	if (s->meanwhile && s->meanwhile(s->arg, e) < 0) {
		proc_done(&b.init);
		(void)fd_close(b.said);
		return e->num;
	}
	b.ram_report = TAKE_FD(from);
	*ret = b;
	return 0;
}

/* The library has reported by now: QEMU maps its memory before it answers its monitor. */
static int microvm_seal(const struct engine_start *s, struct engine_sandbox *b, struct err *e)
{
	struct ram_report at;
	int r = qemu_ram_report(b->ram_report, &at, e);

	(void)s;
	b->ram_report = fd_close(b->ram_report);
	if (r < 0)
		return r;
	b->ram = at.address;
	b->file[ENGINE_FILE_MEMORY].dev = at.dev;
	b->file[ENGINE_FILE_MEMORY].ino = at.ino;
	return qemu_jail_seal(&b->init, e);
}

/* The guest may control by now what QEMU prints, so escape it. */
static void microvm_last_words(const struct engine_sandbox *b, char *ret, size_t n)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(4 * SAID_MAX);
	char text[SAID_MAX] = "";
	size_t end = 0, start;
	ssize_t k;

	/* Keep the last read. Bounded, since QEMU may be alive and keep writing. */
	for (int i = 0; i < SAID_READS && (k = RETRY_EINTR(read(b->said, text, sizeof(text)))) > 0;
	     i++)
		end = (size_t)k;
	while (end > 0 && text[end - 1] == '\n')
		end--;
	for (start = end; start > 0 && text[start - 1] != '\n';)
		start--;
	(void)str_escape(&shown, text + start, end - start);
	(void)snprintf(ret, n, "%s", buf_text(&shown));
}

static const struct engine_cve cves[] = {
	{ "CVE-2024-3446", "7.2.11 8.2.3 9.0.0", "virtio-serial freed memory twice", NULL },
	{ "CVE-2026-48914", "10.0.11 11.0.2", "virtio-blk wrote outside its buffer", NULL },
	{ NULL },
};

const struct engine engine_qemu = {
	.name = "qemu",
	.level = LEVEL_MICROVM,
	.traits = ENGINE_OWN_KERNEL | ENGINE_SNAPSHOTS | ENGINE_FORKS,
	.title = "QEMU",
	.check = "engine.qemu",
	.program = QEMU_PROGRAM,
	.package = "qemu-system-x86",
	.cves = cves,
	.limits = microvm_limits,
	.start = microvm_start,
	.seal = microvm_seal,
	.last_words = microvm_last_words,
	.verify = verify_machine,
	.pause = cgroup_freeze,
	.resume = cgroup_thaw,
	.monitor = &qemu_monitor,
};
