/* SPDX-License-Identifier: Apache-2.0 */
/* Common part of the OCI engines: the runtime starts hutch-guest as PID 1 of a bundle and exits.
 * The warden is a subreaper, so PID 1 becomes its child. Each row (crun.c, ...) says how to call
 * its runtime.
 *
 * A runtime may chown the files behind its standard descriptors to the sandbox's root. So these are
 * pipes made for this purpose; /dev/null would be the host's. PID 1 inherits them and replaces all
 * but stderr. */
#include "engine/container.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/apparmor.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "confine/self.h"
#include "engine/oci.h"
#include "engine/scratch.h"
#include "engine/userns.h"

#define PID_FILE      SCRATCH_BUNDLE "/pid"
#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define SHM_MAX	      (UINT64_C(64) << 20)

/* The runtime's descriptors; it passes on those up to the channel. */
enum {
	FD_CHANNEL = 3,
	FD_USERNS = OCI_USERNS_FD,
	N_FDS,
	SAID_MAX = 4096,
	NOFILE_MAX = 16384,
};

/* The limits of PID 1: never above our own, since few processes may raise a hard limit. */
static int read_limits(struct rlimit *nofile, struct rlimit *core)
{
	if (getrlimit(RLIMIT_NOFILE, nofile) < 0 || getrlimit(RLIMIT_CORE, core) < 0)
		return -errno;
	nofile->rlim_cur = nofile->rlim_max = MIN(nofile->rlim_max, (rlim_t)NOFILE_MAX);
	core->rlim_cur = core->rlim_max = MIN(core->rlim_max, (rlim_t)OCI_CORE);
	return 0;
}

static int write_config(const struct engine_start *s, struct err *e)
{
	const struct oci_runtime *runtime = s->engine->own;
	struct oci_spec spec = { .rootfs = SCRATCH_ROOT,
				 .guest = SCRATCH_GUEST,
				 .hostname = s->spec->id,
				 .host_uid = s->ids,
				 .host_gid = s->ids,
				 .user_namespace = runtime->userns };
	_cleanup_free_ char *text = NULL;
	struct rlimit nofile = { 0 }, core = { 0 };
	int r = read_limits(&nofile, &core);

	if (r < 0)
		return err_set(e, r, "cannot read our own limits: %s", strerror(-r));
	spec.shm = MIN(SHM_MAX, s->spec->limits.memory / 4);
	spec.nofile = runtime->limits_inherited ? 0 : nofile.rlim_max;
	spec.core = core.rlim_max;
	/* Without AppArmor a sandbox runs unless the policy requires it; the receipt shows it. */
	spec.apparmor = apparmor_try(APPARMOR_PROFILE) == 0 ? APPARMOR_PROFILE : NULL;
	text = oci_config(&spec);
	if (!text)
		return err_oom(e);
	return fd_replace_file(AT_FDCWD, SCRATCH_BUNDLE "/config.json", 0600, text, strlen(text),
			       e);
}

/* ---- the child that becomes the runtime ---- */

/* Moves `fds` to descriptors 0 to N_FDS - 1 and closes all others. */
static int arrange_fds(const int fds[static N_FDS])
{
	int high[N_FDS];

	/* First move them out of each other's way. */
	for (int i = 0; i < N_FDS; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, N_FDS);
		if (high[i] < 0)
			return -errno;
	}
	for (int i = 0; i < N_FDS; i++)
		if (dup2(high[i], i) < 0)
			return -errno;
	return syscall(SYS_close_range, N_FDS, ~0U, 0) < 0 ? -errno : 0;
}

static int set_limits(void)
{
	struct rlimit nofile = { 0 }, core = { 0 };
	int r = read_limits(&nofile, &core);

	if (r == 0 && (setrlimit(RLIMIT_NOFILE, &nofile) < 0 || setrlimit(RLIMIT_CORE, &core) < 0))
		r = -errno;
	return r;
}

static _noreturn_ void become_runtime(const struct engine_start *s, const char *program,
				      const int fds[static N_FDS], pid_t warden)
{
	const struct oci_runtime *runtime = s->engine->own;
	const char *argv[] = { s->engine->program,
			       "--root=" SCRATCH_STATE,
			       runtime->option,
			       "run",
			       "--detach",
			       "--bundle=" SCRATCH_BUNDLE,
			       "--pid-file=" PID_FILE,
			       "--preserve-fds=1",
			       s->spec->id,
			       NULL };
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
					   "XDG_RUNTIME_DIR=" SCRATCH_STATE, NULL };
	const char *at = "entering control groups";
	int r = cgroup_enter(s->group), out = fds[2];

	if (r == 0)
		r = FAULT("runtime-groups");
	if (r == 0 && (at = "arranging descriptors"))
		r = arrange_fds(fds);
	if (r == 0)
		out = 2;
	if (r == 0 && runtime->limits_inherited && (at = "setting limits"))
		r = set_limits();
	if (r == 0 && runtime->enter && (at = "preparing the runtime"))
		r = runtime->enter();
	if (r == 0 && (at = "asking to die with the warden"))
		r = self_die_with_parent();
	if (r == 0 && getppid() != warden)
		r = -ESRCH;
	if (r == 0)
		r = FAULT("runtime-exec");
	if (r == 0) {
		at = program;
		proc_reset_signals();
		(void)setsid();
		(void)execve(program, (char *const *)argv, (char *const *)env);
		r = -errno;
	}
	(void)dprintf(out, "%s: %s\n", at, strerror(-r));
	_exit(127);
}

/* ---- the parent ---- */

struct said {
	char text[SAID_MAX + 1];
	size_t n;
};

/* Reads the available bytes, as far as they fit. */
static void hear(int fd, struct said *s)
{
	ssize_t k;

	while (s->n < SAID_MAX) {
		k = read(fd, s->text + s->n, SAID_MAX - s->n);
		if (k <= 0)
			return;
		s->n += (size_t)k;
	}
}

/* Does not wait for end of file: PID 1 keeps the other end open. */
static int await_end(struct proc *runtime, int from, struct said *said, siginfo_t *ret)
{
	struct pollfd fds[] = { { .fd = runtime->pidfd, .events = POLLIN },
				{ .fd = from, .events = POLLIN } };
	uint64_t deadline = clock_mono() + START_TIMEOUT;

	while (!fds[0].revents && clock_mono() < deadline) {
		uint64_t left = deadline - MIN(clock_mono(), deadline);

		if (poll(fds, ARRAY_SIZE(fds), (int)(left / NSEC_PER_MSEC) + 1) < 0 &&
		    errno != EINTR)
			return -errno;
		hear(from, said);
		if (said->n == SAID_MAX || (fds[1].revents & (POLLHUP | POLLERR)))
			fds[1].fd = -EBADF;
	}
	return proc_wait(runtime, deadline, ret);
}

/* The last non-empty line. */
static const char *last_line(struct said *s)
{
	char *nl;

	while (s->n > 0 && s->text[s->n - 1] == '\n')
		s->n--;
	s->text[s->n] = '\0';
	nl = strrchr(s->text, '\n');
	return nl ? nl + 1 : s->text;
}

static int judge(const char *name, int r, const siginfo_t *info, struct said *said, struct err *e)
{
	const char *line = last_line(said);

	if (r == -ETIME)
		return err_set(e, r, "%s did not start the sandbox within %d seconds: %s", name,
			       (int)(START_TIMEOUT / NSEC_PER_SEC), line);
	if (r < 0)
		return err_set(e, r, "cannot wait for %s: %s", name, strerror(-r));
	if (info->si_code == CLD_EXITED && info->si_status == 0)
		return 0;
	if (line[0])
		return err_set(e, -EIO, "%s: %s", name, line);
	return err_set(e, -EIO, "%s ended with %s %d and printed nothing", name,
		       info->si_code == CLD_EXITED ? "status" : "signal", info->si_status);
}

static int run_runtime(const struct engine_start *s, int userns, struct err *e)
{
	_cleanup_close_ int in = -EBADF, in_end = -EBADF, from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct said said = { .n = 0 };
	const pid_t warden = getpid();
	siginfo_t info = { 0 };
	const char *name = s->engine->program;
	char program[PATH_MAX];
	int r;

	if (engine_program(s->engine, program, e) < 0)
		return e->num;
	r = fd_pipe(0, &in, &in_end);
	if (r == 0)
		r = fd_pipe(0, &from, &to);
	if (r == 0 && fcntl(from, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r == 0)
		r = proc_fork(&p);
	if (r > 0)
		become_runtime(s, program, (const int[N_FDS]){ in, to, to, s->channel, userns },
			       warden);
	if (r < 0)
		return err_set(e, r, "cannot start %s: %s", name, strerror(-r));
	FAULT_KILL("runtime-forked", p.pidfd);
	r = FAULT_ERR("engine-forked", e);
	if (r < 0)
		return r;
	to = fd_close(to);
	if (s->meanwhile && s->meanwhile(s->arg, e) < 0)
		return e->num;
	r = await_end(&p, from, &said, &info);
	return judge(name, r, &info, &said, e);
}

static int hold_init(struct proc *ret, struct err *e)
{
	uint64_t pid = 0;
	char line[16];
	int r = fd_read_line(AT_FDCWD, PID_FILE, line, sizeof(line));

	if (r == 0)
		r = str_to_u64(line, strlen(line), INT_MAX, &pid);
	if (r < 0)
		return err_set(e, r, "cannot read the sandbox's PID 1 from " PID_FILE ": %s",
			       strerror(-r));
	r = proc_adopt((pid_t)pid, ret);
	return r < 0 ? err_set(e, r, "PID 1 of the sandbox (%d) is not our child: %s", (int)pid,
			       strerror(-r))
		     : 0;
}

int container_start(const struct engine_start *s, struct engine_sandbox *ret, struct err *e)
{
	const struct oci_runtime *runtime = s->engine->own;
	_cleanup_close_ int userns = -EBADF;
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;
	int r = scratch_mount(s, &b, e);

	assert(runtime->option && runtime->userns);
	if (r == 0 && runtime->prepare)
		r = runtime->prepare(e);
	if (r == 0 && !s->rootless)
		r = scratch_own_devices(e);
	if (r == 0)
		r = FAULT_ERR("engine-scratch", e);
	if (r == 0)
		r = userns_make(s->ids, s->group->has[CGROUP_PIDS] ? 0 : s->spec->limits.pids,
				&userns, e);
	if (r == 0)
		r = FAULT_ERR("engine-userns", e);
	if (r == 0)
		r = write_config(s, e);
	if (r == 0)
		r = FAULT_ERR("engine-config", e);
	if (r == 0)
		r = run_runtime(s, userns, e);
	if (r == 0)
		r = FAULT_ERR("engine-ran", e);
	if (r == 0)
		r = hold_init(&b.init, e);
	if (r < 0)
		return r;
	*ret = b;
	return 0;
}

struct cgroup_limits container_limits(const struct spec *spec)
{
	return (struct cgroup_limits){ .cpus = spec->limits.cpus,
				       .memory = spec->limits.memory,
				       .pids = spec->limits.pids,
				       .disk_bandwidth = spec->limits.disk_bandwidth,
				       .disk_ops = spec->limits.disk_ops };
}
