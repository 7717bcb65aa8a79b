/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container engine: crun starts hutch-guest as PID 1 of a bundle and goes away. We are a
 * subreaper, so PID 1 then is our child.
 *
 * crun gives the file behind its standard descriptors to the sandbox's root, so these are pipes of
 * no other use: /dev/null would be the host's. PID 1 inherits them and replaces all but the last.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "apparmor.h"
#include "clock.h"
#include "engine.h"
#include "fault.h"
#include "fd.h"
#include "oci.h"
#include "str.h"

#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define SHM_MAX	      (UINT64_C(64) << 20)
#define PID_FILE      SCRATCH_BUNDLE "/pid"

/* What the runtime is started with; it passes on all up to the channel. */
enum {
	FD_CHANNEL = 3,
	FD_USERNS = 4,
	N_FDS,
	SAID_MAX = 4096,
	NOFILE_MAX = 16384,
};

#define USERNS_PATH "/proc/self/fd/4"

static int write_config(const struct engine_start *s, struct err *e)
{
	struct oci_spec spec = { .rootfs = SCRATCH_ROOT,
				 .guest = SCRATCH_GUEST,
				 .hostname = s->spec->id,
				 .host_uid = s->ids,
				 .host_gid = s->ids,
				 .user_namespace = USERNS_PATH };
	_cleanup_free_ char *text = NULL;
	struct rlimit nofile, core;

	if (getrlimit(RLIMIT_NOFILE, &nofile) < 0 || getrlimit(RLIMIT_CORE, &core) < 0)
		return err_errno(e, "cannot read our own limits");
	spec.shm = MIN(SHM_MAX, s->spec->limits.memory / 4);
	spec.nofile = MIN(nofile.rlim_max, (rlim_t)NOFILE_MAX);
	spec.core = core.rlim_max;
	/* Without it a sandbox runs if no policy requires it; the receipt tells. */
	spec.apparmor = apparmor_try(APPARMOR_PROFILE) == 0 ? APPARMOR_PROFILE : NULL;
	text = oci_config(&spec);
	if (!text)
		return err_oom(e);
	return fd_replace_file(AT_FDCWD, SCRATCH_BUNDLE "/config.json", 0600, text, strlen(text),
			       e);
}

/* ---- the child that becomes crun ---- */

/* Descriptors 0 to N_FDS - 1 become `fds`, and nothing else stays open. */
static int arrange_fds(const int fds[static N_FDS])
{
	int high[N_FDS];

	/* First out of the way of each other. */
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

static _noreturn_ void become_crun(const struct engine_start *s, const char *crun,
				   const int fds[static N_FDS], pid_t warden)
{
	const char *const argv[] = { "crun",
				     "--root=" SCRATCH_STATE,
				     "--cgroup-manager=disabled",
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
		r = FAULT("crun-groups");
	if (r == 0 && (at = "arranging descriptors"))
		r = arrange_fds(fds);
	if (r == 0)
		out = 2;
	if (r == 0 && (at = "asking to die with the warden"))
		r = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;
	if (r == 0 && getppid() != warden)
		r = -ESRCH;
	if (r == 0)
		r = FAULT("crun-exec");
	if (r == 0) {
		at = crun;
		proc_reset_signals();
		(void)setsid();
		(void)execve(crun, (char *const *)argv, (char *const *)env);
		r = -errno;
	}
	(void)dprintf(out, "%s: %s\n", at, strerror(-r));
	_exit(127);
}

/* ---- the parent ---- */

static int make_pipe(int *ret_read, int *ret_write)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = fds[0];
	*ret_write = fds[1];
	return 0;
}

struct said {
	char text[SAID_MAX + 1];
	size_t n;
};

/* What can be read now, as far as there is room. */
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

/* Not until end of file: PID 1 keeps the other end. */
static int await_end(struct proc *crun, int from, struct said *said, siginfo_t *ret)
{
	struct pollfd fds[] = { { .fd = crun->pidfd, .events = POLLIN },
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
	return proc_wait(crun, deadline, ret);
}

/* The last line that is not empty. */
static const char *last_line(struct said *s)
{
	char *nl;

	while (s->n > 0 && s->text[s->n - 1] == '\n')
		s->n--;
	s->text[s->n] = '\0';
	nl = strrchr(s->text, '\n');
	return nl ? nl + 1 : s->text;
}

static int judge(int r, const siginfo_t *info, struct said *said, struct err *e)
{
	const char *line = last_line(said);

	if (r == -ETIME)
		return err_set(e, r, "crun did not start the sandbox within %d seconds: %s",
			       (int)(START_TIMEOUT / NSEC_PER_SEC), line);
	if (r < 0)
		return err_set(e, r, "cannot wait for crun: %s", strerror(-r));
	if (info->si_code == CLD_EXITED && info->si_status == 0)
		return 0;
	if (line[0])
		return err_set(e, -EIO, "crun: %s", line);
	return err_set(e, -EIO, "crun ended with %s %d and said nothing",
		       info->si_code == CLD_EXITED ? "status" : "signal", info->si_status);
}

static int run_crun(const struct engine_start *s, int userns, struct err *e)
{
	_cleanup_close_ int in = -EBADF, in_end = -EBADF, from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct said said = { .n = 0 };
	const pid_t warden = getpid();
	siginfo_t info = { 0 };
	char crun[PATH_MAX];
	int r;

	if (proc_find("crun", crun, sizeof(crun)) < 0)
		return err_set(e, -ENOENT, "crun is needed: apt-get install crun");
	r = make_pipe(&in, &in_end);
	if (r == 0)
		r = make_pipe(&from, &to);
	if (r == 0 && fcntl(from, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r == 0)
		r = proc_fork(&p);
	if (r > 0)
		become_crun(s, crun, (const int[N_FDS]){ in, to, to, s->channel, userns }, warden);
	if (r < 0)
		return err_set(e, r, "cannot start crun: %s", strerror(-r));
	FAULT_KILL("crun-forked", p.pidfd);
	r = FAULT_ERR("engine-forked", e);
	if (r < 0)
		return r;
	to = fd_close(to);
	r = await_end(&p, from, &said, &info);
	return judge(r, &info, &said, e);
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

static int container_start(const struct engine_start *s, struct engine_sandbox *ret, struct err *e)
{
	_cleanup_close_ int userns = -EBADF;
	struct engine_sandbox b = { .init = PROC_INIT };
	int r = scratch_mount(s, &b.disk, e);

	if (r == 0)
		r = scratch_hide_controllers(e);
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
		r = run_crun(s, userns, e);
	if (r == 0)
		r = FAULT_ERR("engine-ran", e);
	if (r == 0)
		r = hold_init(&b.init, e);
	if (r < 0)
		return r;
	*ret = b;
	return 0;
}

const struct engine engine_container = {
	.name = "container",
	.start = container_start,
	.verify = verify_container,
};
