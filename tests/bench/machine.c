/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates and clones of VMs without sandboxes around them, for the script `tests/bench/machine`
 * and for tests/integration/test_machine.py.
 *
 *   `bench-machine template KERNEL INITRD ROOT BLANK MIB`
 *       finds or makes the template; prints its path and how long that took
 *   `bench-machine clones PATH KERNEL INITRD ROOT BLANK MIB N bare|jail`
 *       starts N clones, one after another, and keeps all: prints the ms from the start of each
 *       to its first answer, the PSS of each when all run, and the ms until its guest began to run.
 *       "bare" is plain QEMU, "jail" the jail of a sandbox. Each must echo a byte.
 *   `bench-machine turns PATH KERNEL INITRD ROOT BLANK MIB N`
 *       prints the same times in pairs, a bare clone and one in a jail in turn, each ended before
 *       the next
 *   `bench-machine boots KERNEL INITRD ROOT BLANK MIB N`
 *       boots bare VMs, each ended before the next: ms from the start to the first answer
 *   `bench-machine open PATH`
 *       opens the snapshot, as a start does
 *
 * With -a before the rest, the VM's first process is hutch-guest. It gets HELLO instead of a byte
 * and answers it when it is ready.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sodium.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/qemu.h"
#include "engine/qmp.h"
#include "image/ids.h"
#include "snapshot/disk-copy.h"
#include "vm/template-vm.h"
#include "wire/message.h"

#define MIB UINT64_C(1048576)

enum {
	CLONES_MAX = 256,
	ANSWER_MS = 60000,
	TSC_MSEC = 20,
};

static bool has_agent; /* -a */

static double ms_since(uint64_t then)
{
	return (double)(clock_mono() - then) / (double)NSEC_PER_MSEC;
}

static _noreturn_ void die(const struct err *e)
{
	(void)fprintf(stderr, "benchmark failed: %s\n", e->msg);
	exit(1);
}

static _noreturn_ void die_errno(const char *what)
{
	struct err e = ERR_INIT;

	(void)err_errno(&e, "%s", what);
	die(&e);
}

static void fill_spec(char **v, struct spec *s)
{
	struct id_ranges ids = { 0 };
	struct err e = ERR_INIT;
	struct stat blank;
	uint64_t mib = 0;

	if (stat(v[3], &blank) < 0)
		die_errno(v[3]);
	if (str_to_u64(v[4], strlen(v[4]), 1 << 20, &mib) < 0)
		exit(2);
	if (ids_find(&ids, &e) < 0)
		die(&e);
	*s = (struct spec){
		.id = "",
		.image = "measured",
		.image_digest = "",
		.image_uid = ids.uid,
		.image_gid = ids.gid,
		.limits = { .cpus = 1000,
			    .memory = mib * MIB,
			    .disk = (uint64_t)blank.st_size,
			    .pids = 64 },
		.machine = { .kernel = v[0],
			     .initrd = v[1],
			     .root = v[2],
			     .blank = v[3],
			     .snapshot = "",
			     .accel = "tcg" },
	};
}

static void say(const char *text, void *arg)
{
	(void)fprintf(stderr, "%s\n", text);
}

static int run_template(char **v)
{
	uint64_t start = clock_mono();
	char path[4096];
	struct err e = ERR_INIT;
	struct spec s;

	fill_spec(v, &s);
	if (template_find_or_make(&s, path, say, NULL, &e) < 0)
		die(&e);
	(void)printf("%s %.1f\n", path, ms_since(start));
	return 0;
}

static int run_open(const char *path)
{
	_cleanup_snapshot_ struct snapshot s = SNAPSHOT_INIT;
	uint64_t start = clock_mono();
	struct err e = ERR_INIT;

	if (snapshot_open(path, &s, &e) < 0)
		die(&e);
	(void)printf("%.2f\n", ms_since(start));
	return 0;
}

/* ---- clones ---- */

struct clone {
	struct proc qemu;
	int channel, qmp;
	int seen[QMP_WRONG + 1]; /* number of QEMU's lines of each kind */
	double ms, resumed_ms;
};

struct clones {
	struct spec spec;
	struct snapshot from;
	struct cgroup group;
	bool jail;
	uint32_t ids;
	uint64_t tsc_khz;	 /* for VMs that boot */
	const char *placeholder; /* bare VMs make it in this directory: ram.h */
};

/* Writes a keeper's first message, with all permissions. */
static void put_hello(struct buf *b)
{
	uint8_t seed[WIRE_SEED];

	if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		die_errno("random numbers");
	fields_put_number(b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(b, TAG_HOSTNAME, "bare");
	fields_put_text(b, TAG_READ, "/");
	fields_put_text(b, TAG_WRITE, "/");
	fields_put_text(b, TAG_EXECUTE, "/");
	fields_put_text(b, TAG_CWD, "/work");
	fields_put_bytes(b, TAG_SEED, seed, sizeof(seed));
	fields_put_number(b, TAG_TIME, clock_wall());
	fields_put_text(b, TAG_MACHINE, "0123456789abcdef0123456789abcdef");
	fields_put_number(b, TAG_PIDS, 64);
}

/* Sends a byte and expects the same back, or sends HELLO and expects the guest's. */
static void ping(struct clone *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct pollfd p = { .fd = c->channel, .events = POLLIN };
	uint8_t head[WIRE_HEADER] = { 'p' }, wanted = 'p';
	size_t n = 1, type = 0;

	if (has_agent) {
		put_hello(&b);
		head[0] = 0;
		head[2] = (uint8_t)(b.len >> 8);
		head[3] = (uint8_t)b.len;
		head[8] = wanted = WIRE_HELLO;
		n = sizeof(head);
		type = 8;
	}
	if (write(c->channel, head, n) != (ssize_t)n ||
	    write(c->channel, b.data, b.len) != (ssize_t)b.len || poll(&p, 1, ANSWER_MS) != 1 ||
	    recv(c->channel, head, n, MSG_WAITALL) != (ssize_t)n || head[type] != wanted)
		die_errno("the VM does not answer");
}

/* Reads until this line has come so often since the VM started. */
static void expect(struct clone *c, enum qmp_line wanted, int times)
{
	static char line[QMP_LINE_MAX];
	size_t n = 0;

	while (c->seen[wanted] < times) {
		if (read(c->qmp, &line[n], 1) != 1)
			die_errno("QEMU has ended");
		if (line[n] != '\n') {
			n += n < sizeof(line) - 1;
			continue;
		}
		c->seen[qmp_read_line(line, n)]++;
		if (c->seen[QMP_ERROR] + c->seen[QMP_WRONG] + c->seen[QMP_MIGRATION_FAILED] > 0) {
			(void)fprintf(stderr, "QEMU: %.*s\n", (int)n, line);
			exit(1);
		}
		n = 0;
	}
}

static void tell(struct clone *c, const char *text)
{
	if (write(c->qmp, text, strlen(text)) != (ssize_t)strlen(text))
		die_errno("QMP");
}

/* Resumes the VM as a keeper does. */
static void resume(struct clone *c, bool jail, const struct engine_start *s,
		   struct engine_sandbox *b)
{
	struct err e = ERR_INIT;

	expect(c, QMP_GREETING, 1);
	tell(c, "{\"execute\":\"qmp_capabilities\"}\n");
	expect(c, QMP_RETURN, 1);
	if (jail && engine_find("qemu")->seal(s, b, &e) < 0)
		die(&e);
	if (s->state >= 0) {
		tell(c,
		     "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":["
		     "{\"capability\":\"x-ignore-shared\",\"state\":true},"
		     "{\"capability\":\"events\",\"state\":true}]}}\n"
		     "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:8\"}}\n");
		expect(c, QMP_MIGRATED, 1);
	}
	tell(c, "{\"execute\":\"cont\"}\n");
	expect(c, QMP_RESUME, 1);
}

/* Starts QEMU with the same arguments and descriptors, without a jail. */
static void start_bare(const struct clones *all, const struct engine_start *s, int root,
		       struct proc *ret)
{
	const int fds[] = { s->channel,
			    s->monitor,
			    root,
			    s->disk,
			    s->memory,
			    s->state,
			    open("/dev/null", O_WRONLY | O_CLOEXEC) };
	_cleanup_buf_ struct buf text = BUF_INIT(QEMU_TEXT_MAX), vars = BUF_INIT(QEMU_TEXT_MAX);
	const char *argv[QEMU_ARGS_MAX], *env[QEMU_ENVIRONMENT_MAX];
	char program[PATH_MAX], library[PATH_MAX];
	struct err e = ERR_INIT;
	struct qemu_machine m;

	qemu_describe(&all->spec, s->state >= 0 ? VM_RESTORE : VM_BOOT, &m);
	m.tsc_khz = all->tsc_khz;
	m.placeholder = all->placeholder;
	if (engine_program(&engine_qemu, program, &e) < 0)
		die(&e);
	if (qemu_arguments(&m, program, &text, argv) < 0)
		die_errno("arguments");
	if (qemu_ram_library(library, &e) < 0 || qemu_ram_environment(&m, library, &vars, env) < 0)
		die(&e);
	/* Without a jail these files are not in the root directory. */
	for (size_t i = 0; argv[i]; i++)
		if (str_eq(argv[i], QEMU_KERNEL) || str_eq(argv[i], QEMU_INITRD))
			argv[i] = str_eq(argv[i], QEMU_KERNEL) ? all->spec.machine.kernel
							       : all->spec.machine.initrd;
	if (proc_fork(ret) == 1) {
		int high[ARRAY_SIZE(fds)];

		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			high[i] = fds[i] < 0 ? fds[i] : fcntl(fds[i], F_DUPFD_CLOEXEC, 32);
		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			if (fds[i] >= 0 && dup2(high[i], QEMU_FD_CHANNEL + (int)i) < 0)
				_exit(1);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execve(program, (char *const *)argv, (char *const *)env);
		_exit(1);
	}
}

static void start_one(struct clones *all, struct clone *c)
{
	_cleanup_close_ int disk = -EBADF, root = -EBADF, state = -EBADF, blank = -EBADF;
	struct engine_sandbox box = ENGINE_SANDBOX_INIT;
	struct engine_start s;
	struct err e = ERR_INIT;
	uint64_t start = clock_mono();
	int a[2], b[2];
	char path[64];

	/* Opens the file again to get a separate file position. */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", all->from.state);
	if (all->from.state >= 0 && (state = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		die_errno("the state of a clone");
	root = open(all->spec.machine.root, O_RDONLY | O_CLOEXEC);
	blank = open(all->spec.machine.blank, O_RDONLY | O_CLOEXEC);
	if (root < 0 || blank < 0 || disk_new(all->from.dir, blank, &disk, &e) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b) < 0)
		die_errno("arranging a clone");
	c->channel = a[0];
	c->qmp = b[0];
	s = (struct engine_start){ .engine = engine_find("qemu"),
				   .spec = &all->spec,
				   .group = &all->group,
				   .channel = a[1],
				   .ids = all->ids,
				   .monitor = b[1],
				   .disk = disk,
				   .memory = all->from.memory,
				   .state = state };
	if (!all->jail)
		start_bare(all, &s, root, &box.init);
	else if (engine_find("qemu")->start(&s, &box, &e) < 0)
		die(&e);
	(void)close(a[1]);
	(void)close(b[1]);
	c->qemu = box.init;
	resume(c, all->jail, &s, &box);
	c->resumed_ms = ms_since(start);
	ping(c);
	c->ms = ms_since(start);
}

static unsigned long pss_kib(const struct clone *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;
	const char *at;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)c->qemu.pid);
	if (fd_read_file(AT_FDCWD, path, &b, &e) < 0)
		die(&e);
	at = strstr(buf_text(&b), "\nPss:");
	return at ? strtoul(at + STRLEN("\nPss:"), NULL, 10) : 0;
}

/* Sets up what a warden has when it starts an engine: its own ids, mounts and groups. */
static void become_warden(struct clones *all, const struct state_root *run, int *ret_range)
{
	const struct cgroup_limits limits = { .cpus = 16000, .memory = 16384 * MIB, .pids = 16384 };
	struct err e = ERR_INIT;
	char name[CGROUP_NAME_MAX];

	(void)snprintf(name, sizeof(name), "bench-%d", (int)getpid());
	if (state_take_ids(run, &all->ids, ret_range, &e) < 0 ||
	    cgroup_make(name, &limits, &all->group, &e) < 0)
		die(&e);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		die_errno("mounts");
}

/* Closes a clone's descriptors and kills QEMU. */
static void end_one(struct clone *c)
{
	proc_done(&c->qemu);
	(void)close(c->channel);
	(void)close(c->qmp);
	*c = (struct clone){ 0 };
}

static void run_turns(struct clones *all, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		double ms[2];

		for (int how = 0; how < 2; how++) {
			struct clone c = { 0 };

			all->jail = how == 1;
			start_one(all, &c);
			ms[how] = c.ms;
			end_one(&c);
		}
		(void)printf("%.1f %.1f\n", ms[0], ms[1]);
	}
}

static void run_kept(struct clones *all, uint64_t n)
{
	static struct clone clones[CLONES_MAX];

	for (uint64_t i = 0; i < n; i++)
		start_one(all, &clones[i]);
	for (uint64_t i = 0; i < n; i++)
		(void)printf("%.1f %lu %.1f\n", clones[i].ms, pss_kib(&clones[i]),
			     clones[i].resumed_ms);
	for (uint64_t i = 0; i < n; i++)
		end_one(&clones[i]);
}

static int run_clones(const char *path, char **v)
{
	_cleanup_state_root_ struct state_root run = STATE_ROOT_INIT;
	struct clones all = { .group = CGROUP_INIT, .from = SNAPSHOT_INIT, .placeholder = "/tmp" };
	struct err e = ERR_INIT;
	uint64_t n = 0;
	int range = -EBADF;

	fill_spec(v, &all.spec);
	all.jail = !v[6] || str_eq(v[6], "jail");
	if (str_to_u64(v[5], strlen(v[5]), CLONES_MAX, &n) < 0)
		return 2;
	if (state_root_open(&run, &e) < 0 || snapshot_open(path, &all.from, &e) < 0)
		die(&e);
	if (all.jail)
		become_warden(&all, &run, &range);
	if (v[6])
		run_kept(&all, n);
	else
		run_turns(&all, n);
	if (range >= 0)
		(void)cgroup_remove(all.group.name, &e);
	snapshot_done(&all.from);
	return 0;
}

/* Hutch measures it at every boot; this benchmark excludes it. */
static uint64_t tsc_khz(void)
{
#if defined(__x86_64__)
	const struct timespec pause = { .tv_nsec = TSC_MSEC * (long)NSEC_PER_MSEC };
	uint64_t then = clock_mono(), counter = __builtin_ia32_rdtsc();

	(void)nanosleep(&pause, NULL);
	return (__builtin_ia32_rdtsc() - counter) * 1000000 / (clock_mono() - then);
#else
	return 0;
#endif
}

static int run_boots(char **v)
{
	struct clones all = { .group = CGROUP_INIT,
			      .from = SNAPSHOT_INIT,
			      .tsc_khz = tsc_khz(),
			      .placeholder = "/tmp" };
	_cleanup_close_ int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t n = 0;

	fill_spec(v, &all.spec);
	if (str_to_u64(v[5], strlen(v[5]), CLONES_MAX, &n) < 0)
		return 2;
	all.from.dir = dir;
	while (n-- > 0) {
		struct clone c = { 0 };

		start_one(&all, &c);
		(void)printf("%.1f\n", c.ms);
		end_one(&c);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (sodium_init() < 0)
		return 1;
	if (argc > 1 && str_eq(argv[1], "-a")) {
		has_agent = true;
		argc--;
		argv++;
	}
	if (argc == 8 && str_eq(argv[1], "boots"))
		return run_boots(argv + 2);
	if (argc == 7 && str_eq(argv[1], "template"))
		return run_template(argv + 2);
	if (argc == 3 && str_eq(argv[1], "open"))
		return run_open(argv[2]);
	if ((argc == 10 && str_eq(argv[1], "clones")) || (argc == 9 && str_eq(argv[1], "turns")))
		return run_clones(argv[2], argv + 3);
	(void)fputs("usage: see the script `tests/bench/machine`\n", stderr);
	return 2;
}
