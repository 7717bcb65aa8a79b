/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a sandbox: makes a directory with its spec, and runs a hutch-keeper, which does the rest.
 * The keeper gets descriptors: 3 the directory, 4 a pipe for its report, 5 the first client.
 *
 * The directory is locked (LOCK_SH) from its first moment. The lock belongs to the open file
 * description, which the warden inherits as descriptor 3 and keeps, so at no moment can a sweep
 * mistake the directory for a dead one. For the same reason no process but the warden keeps that
 * description after the start; the caller gets the directory opened anew.
 *
 * With $HUTCH_STARTER the keeper is not our child: state/handover.h. With $HUTCH_PREPARER another
 * process makes the parts of a VM: src/preparer.
 *
 * We do not lock the image's tree: the warden does that first (state_lock_tree), and either gets it
 * or reports that the image was removed. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "audit/audit-log.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/engine.h"
#include "sandbox/plan-tap.h"
#include "sandbox/prepare.h"
#include "sandbox/programs.h"
#include "sandbox/quota-enter.h"
#include "sandbox/sandbox.h"
#include "sandbox/spares.h"
#include "sandbox/start-log.h"
#include "snapshot/snapshot.h"
#include "state/handover.h"

enum {
	REPORT_MAX = 4096,
	READY_S = 120,	 /* for the keeper's report; an emulated VM may boot */
	PARTS_S = 600,	 /* for another process to make the parts of a VM */
	CLEAN_UP_S = 10, /* for a failed keeper to clean up */
	LOG_MAX = 64 * 1024,
	ENV_TEXT = 1024,
};

/* ---- the keeper ---- */

struct start {
	const struct state_root *root;
	struct programs programs;
	char id[SPEC_ID + 1];
	const char *spare;	    /* makes a spare for the pool of this key; or NULL */
	bool resumed;		    /* its directory existed before, and stays on failure */
	char chain[SPEC_CHAIN + 1]; /* resumed: a new chain of the audit log */
	int dir;		    /* as state_new() returned it */
	int log;		    /* the keeper's stderr */
	int report;		    /* our end of the pipe */
	int client, keeper_client;  /* both ends of the first client's connection */
	int *quota;		    /* the owner's lock, held until the spec is stored; or NULL */
	struct proc keeper;
	struct start_log lines;
};

#define START_INIT(r)                                                                          \
	{                                                                                      \
		.root = (r), .dir = -EBADF, .log = -EBADF, .report = -EBADF, .client = -EBADF, \
		.keeper_client = -EBADF, .keeper = PROC_INIT, .lines = START_LOG_INIT,         \
	}

static void start_done(struct start *s)
{
	cgroup_expected();
	proc_done(&s->keeper);
	start_log_done(&s->lines);
	s->dir = fd_close(s->dir);
	s->log = fd_close(s->log);
	s->report = fd_close(s->report);
	s->client = fd_close(s->client);
	s->keeper_client = fd_close(s->keeper_client);
}

/* This sandbox counts now: releases the quota lock for others of the same owner. */
static void counts(const struct start *s)
{
	if (s->quota)
		*s->quota = fd_close(*s->quota);
}

/* The process that makes parts of VMs for us: a socket's path, or NULL. */
static const char *preparer(const struct spec *spec)
{
	return engine_can(spec, ENGINE_OWN_KERNEL) && !spec->machine.kernel
		       ? getenv("HUTCH_PREPARER")
		       : NULL;
}

static int write_spec(const struct start *s, const struct spec *spec, struct err *e)
{
	struct spec own = *spec; /* strings and lists stay the caller's */
	_cleanup_free_ struct prepared *p = calloc(1, sizeof(*p));
	int r = p ? 0 : err_oom(e);

	if (r == 0 && !preparer(spec))
		r = prepare_machine(s->programs.guest, p, &own, e);
	if (r < 0)
		return r;
	own.id = s->id;
	own.request = trace_request();
	own.trace = trace_on;
	if (s->resumed) {
		own.chain = s->chain;
	} else {
		own.chain = ""; /* not the original's, if this is a fork */
		own.ttl_left = 0;
		own.created = clock_wall();
	}
	return spec_store(s->dir, &own, e);
}

/* Marks a spare, before any process reads the directory. */
static int write_spare(const struct start *s, struct err *e)
{
	return s->spare ? state_write(s->dir, STATE_SPARE, s->spare, strlen(s->spare), e) : 0;
}

/* Stores the policy whose digest is in the spec, the receipt and the audit log. */
static int write_policy(const struct start *s, const struct spec *spec, struct err *e)
{
	if (!spec->policy_text)
		return 0;
	return state_write(s->dir, "policy.json", spec->policy_text, strlen(spec->policy_text), e);
}

static int open_log(struct start *s, struct err *e)
{
	s->log = RETRY_EINTR(openat(s->dir, "log",
				    O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (s->log < 0)
		return err_errno(e, "cannot open the sandbox's log");
	start_log_open(&s->lines, s->dir);
	return 0;
}

static int make_client(struct start *s, struct err *e)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return err_errno(e, "cannot make a socket");
	s->client = fds[0];
	s->keeper_client = fds[1];
	return 0;
}

/* Variables passed on to the keeper. */
static const char *const passed_on[] = {
	"XDG_RUNTIME_DIR", "HUTCH_LOG",	       "HUTCH_AUDIT", "HUTCH_AUDIT_DIR",
	"HUTCH_AUDIT_MAX", "XDG_STATE_HOME",   "HOME",	      "HUTCH_RESOLVER",
	"HUTCH_STATE_DIR", "XDG_DATA_HOME",
#ifdef HUTCH_FAULT_POINTS
	"HUTCH_FAULT",	   "HUTCH_FAULT_LIST",
#endif
};

/* Appends to `env`, which has `n` entries. -E2BIG if a variable is too long. */
static int pass_on(char texts[static ARRAY_SIZE(passed_on)][ENV_TEXT], const char **env, size_t n,
		   struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++) {
		const char *value = getenv(passed_on[i]);

		if (!value)
			continue;
		if (snprintf(texts[i], ENV_TEXT, "%s=%s", passed_on[i], value) >= ENV_TEXT)
			return err_set(e, -E2BIG, "the variable %s is too long", passed_on[i]);
		env[n++] = texts[i];
	}
	return 0;
}

/* Hands the start over to the service manager, if there is one, or to a spare's warden. The keeper
 * is then not our child, but we get a pidfd. */
static int hand_over(struct start *s, const char *to, int report, struct err *e)
{
	const struct handover h = {
		.dir = s->dir, .report = report, .log = s->log, .client = s->keeper_client
	};

	return handover_send(to, &h, &s->keeper.pidfd, e);
}

static int spawn(struct start *s, int report, struct err *e)
{
	const char *argv[] = { "hutch-keeper", "--guest", s->programs.guest,
			       s->keeper_client >= 0 ? "--client" : NULL, NULL };
	char run_dir[ENV_TEXT], texts[ARRAY_SIZE(passed_on)][ENV_TEXT];
	const char *env[ARRAY_SIZE(passed_on) + 4] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", run_dir
	};
	const int more[] = { s->dir, report, s->keeper_client };
	int r = pass_on(texts, env, 3, e);

	if (r < 0)
		return r;
	/* The root that we use, however we found it. */
	(void)snprintf(run_dir, sizeof(run_dir), "HUTCH_RUN_DIR=%s", s->root->path);
	return proc_spawn(&(struct proc_spec){ .path = s->programs.keeper,
					       .argv = argv,
					       .env = env,
					       .in = -EBADF,
					       .out = -EBADF,
					       .err = s->log,
					       .more = more,
					       .n_more = s->keeper_client >= 0 ? 3 : 2,
					       .own_session = true },
			  &s->keeper, e);
}

/* `starter`: socket of the process that starts the keeper; NULL: we do. */
static int start_keeper(struct start *s, const char *starter, struct err *e)
{
	_cleanup_close_ int to = -EBADF;
	int r;

	if (fd_pipe(0, &s->report, &to) < 0)
		return err_errno(e, "cannot make a pipe");
	if (fcntl(s->report, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, "cannot make a pipe");
	r = starter ? hand_over(s, starter, to, e) : spawn(s, to, e);
	/* Close our copies: a reader sees the end only after the last writer has closed. */
	s->keeper_client = fd_close(s->keeper_client);
	return r;
}

/* ---- its report ---- */

/* Reads to the end of the pipe or of the process. 0, -ETIME, -EFBIG or -errno. */
static int gather(struct start *s, uint64_t deadline, struct buf *b)
{
	struct pollfd fds[] = { { .fd = s->report, .events = POLLIN },
				{ .fd = s->keeper.pidfd, .events = POLLIN } };

	for (;;) {
		uint64_t now = clock_mono();
		int ms = deadline > now ? (int)((deadline - now) / NSEC_PER_MSEC) + 1 : 0;
		int n = poll(fds, ARRAY_SIZE(fds), trace_on ? MIN(ms, START_LOG_MS) : ms), r;

		start_log_follow(&s->lines);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && clock_mono() < deadline)
			continue;
		if (n == 0)
			return -ETIME;
		/* poll() came before the read: the bytes of an ended process are in the pipe by
		 * now. */
		r = fd_read_all(s->report, b);
		if (r != -EAGAIN)
			return r;
		if (n > 0 && fds[1].revents)
			return 0;
	}
}

/* The keeper's last log line, for the message about its death. */
static void last_words(const struct start *s, char *out, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LOG_MAX), shown = BUF_INIT(LOG_MAX);
	struct err ignored = ERR_INIT;
	const char *line;
	size_t len;

	out[0] = '\0';
	if (fd_read_file(s->dir, "log", &b, &ignored) < 0 || b.len == 0)
		return;
	len = b.len - (b.data[b.len - 1] == '\n');
	for (;;) {
		line = memrchr(b.data, '\n', len);
		line = line ? line + 1 : b.data;
		if (line == b.data || !start_log_is_trace(line, (size_t)(b.data + len - line)))
			break;
		len = (size_t)(line - b.data) - 1;
	}
	if (str_escape(&shown, line, (size_t)(b.data + len - line)) == 0)
		(void)snprintf(out, n, ": %s", buf_text(&shown));
}

/* `r` and `b` are from gather(). 0 if the report is empty; else the reported failure of `who`. */
static int read_report(const char *who, int r, const struct buf *b, struct err *e)
{
	_cleanup_buf_ struct buf shown = BUF_INIT((size_t)8 * REPORT_MAX);

	if (r < 0 && r != -EFBIG)
		return err_set(e, r, "cannot read the %s's report: %s", who, strerror(-r));
	if (b->len == 0)
		return 0;
	if (str_escape(&shown, b->data, b->len) < 0)
		return err_set(e, -EIO, "the %s failed", who);
	return err_set(e, -EIO, "%s", buf_text(&shown));
}

/* An empty report means ready, but a killed keeper reports nothing, either. The receipt, written
 * before, makes the difference. */
static int judge(const struct start *s, int r, unsigned int seconds, const struct buf *b,
		 struct err *e)
{
	char words[160];

	if (r == -ETIME)
		return err_set(e, r, "the sandbox was not ready within %u s", seconds);
	r = read_report("keeper", r, b, e);
	if (r < 0)
		return r;
	if (faccessat(s->dir, "receipt.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	    (s->spare && state_phase(s->dir) == STATE_HELD))
		return 0;
	last_words(s, words, sizeof(words));
	return err_set(e, -EIO, "the keeper ended before the sandbox was ready%s", words);
}

/* A saved VM is read twice: the first time to check that it is complete. */
static int wait_ready(struct start *s, const struct spec *spec, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(REPORT_MAX);
	const unsigned int seconds = READY_S + (unsigned int)(2 * spec_transfer_s(spec));

	return judge(s, gather(s, clock_mono() + seconds * NSEC_PER_SEC, &b), seconds, &b, e);
}

/* ---- parts of a VM that another process makes ---- */

/* A killed preparer reports nothing, either. Its result is the completed spec. */
static int judge_parts(const struct start *s, int r, const struct buf *b, struct err *e)
{
	_cleanup_spec_ struct spec now = { 0 };

	if (r == -ETIME)
		return err_set(e, r, "the parts of the VM were not made within %d s", PARTS_S);
	r = read_report("preparer", r, b, e);
	if (r == 0)
		r = spec_read(s->dir, &now, e);
	return r < 0 || now.machine.kernel ? r : err_set(e, -EIO, "hutch-preparer was killed");
}

/* The warden may have been killed after it began an audit chain: ends that chain. */
static int seal(const struct start *s, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	_cleanup_audit_log_ struct audit_log log = AUDIT_LOG_INIT;
	const char *chain = s->resumed ? s->chain : s->id;
	int r;

	/* If the log cannot be opened now, the warden could not begin a chain. */
	if (audit_open(&log, e) < 0 || !audit_sandbox_open(&log, chain))
		return 0;
	audit_put_text(&p, "sandbox", s->id);
	audit_put_text(&p, "reason", "not started");
	r = audit_host(&log, AUDIT_END, &p, e);
	return r < 0 ? r : audit_sandbox_seal(&log, chain, e);
}

/* Ends a process that is not our child: signals it and waits by its pidfd. */
static void end_other(const struct start *s, bool hangs)
{
	struct pollfd p = { .fd = s->keeper.pidfd, .events = POLLIN };

	if (p.fd < 0)
		return;
	(void)syscall(SYS_pidfd_send_signal, p.fd, hangs ? SIGKILL : SIGTERM, NULL, 0);
	(void)RETRY_EINTR(poll(&p, 1, CLEAN_UP_S * 1000));
}

/* Passes the directory with the unfinished spec to hutch-preparer, which completes the spec. */
static int have_parts_made(struct start *s, const char *path, struct err *e)
{
	_cleanup_(start_done) struct start other = START_INIT(s->root);
	_cleanup_buf_ struct buf b = BUF_INIT(REPORT_MAX);
	_cleanup_close_ int to = -EBADF;
	struct handover h = { .dir = s->dir, .log = s->log, .client = -EBADF };
	int r = fd_pipe(O_NONBLOCK, &other.report, &to);

	if (r < 0)
		return err_set(e, r, "cannot make a pipe: %s", strerror(-r));
	h.report = to;
	r = handover_send(path, &h, &other.keeper.pidfd, e);
	to = fd_close(to);
	if (r < 0)
		return r;
	r = gather(&other, clock_mono() + PARTS_S * NSEC_PER_SEC, &b);
	if (r < 0)
		end_other(&other, true);
	return judge_parts(s, r, &b, e);
}

/* Cleans up after a failure. A keeper that has reported its failure is cleaning up and must not be
 * disturbed; one that reported nothing is killed. */
static void clean_up_failed(struct start *s, bool hangs)
{
	char group[STATE_GROUP_MAX];
	struct err ignored = ERR_INIT;
	siginfo_t info;

	s->client = fd_close(s->client);
	if (s->keeper.pid == 0)
		end_other(s, hangs);
	/* If the failure is ours, the keeper does not know: ask it to end. While it cleans up, it
	 * ignores the signal. */
	if (!hangs && proc_signal(&s->keeper, SIGTERM) == 0)
		(void)proc_wait(&s->keeper, clock_mono() + CLEAN_UP_S * NSEC_PER_SEC, &info);
	proc_done(&s->keeper);
	/* Keep the directory while there is a group or an unfinished chain. */
	if (cgroup_remove(state_group(s->root, s->id, group), &ignored) == 0 &&
	    seal(s, &ignored) == 0 && !s->resumed)
		(void)state_remove(s->root, s->id);
}

static int run(struct start *s, const struct spec *spec, bool client, struct err *e)
{
	const char *other = preparer(spec);
	int r = write_spec(s, spec, e);

	if (r == 0)
		counts(s);
	if (r == 0)
		r = open_log(s, e);
	if (r == 0 && other)
		r = have_parts_made(s, other, e);
	if (r == 0)
		r = write_policy(s, spec, e);
	if (r == 0)
		r = write_spare(s, e);
	if (r == 0)
		r = FAULT_ERR("start-spec", e);
	if (r == 0 && client)
		r = make_client(s, e);
	if (r == 0)
		r = FAULT_ERR("start-log", e);
	if (r == 0)
		r = start_keeper(s, getenv("HUTCH_STARTER"), e);
	FAULT_KILL("warden-spawned", s->keeper.pidfd);
	if (r == 0)
		r = FAULT_ERR("start-spawned", e);
	if (r == 0)
		r = wait_ready(s, spec, e);
	(void)FAULT("start-ready");
	return r;
}

/* Opens the directory again, without our lock. */
static int reopen(const struct start *s, int *ret_dir, struct err *e)
{
	int fd = RETRY_EINTR(openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	if (fd < 0)
		return err_errno(e, "cannot open the state of '%s'", s->id);
	*ret_dir = fd;
	return 0;
}

/* Detaches from the keeper, which continues without us. */
static void let_go(struct start *s)
{
	s->keeper.pidfd = fd_close(s->keeper.pidfd);
	s->keeper = (struct proc)PROC_INIT;
}

/* ---- spares ---- */

/* Adds the owner's settings to a spare's spec. */
static int write_owner(const struct start *s, const struct spec *spec, struct err *e)
{
	_cleanup_spec_ struct spec own = { 0 };
	int r = spec_read(s->dir, &own, e);

	if (r < 0)
		return r;
	own.created = clock_wall();
	own.request = trace_request();
	own.trace = trace_on;
	own.api = spec->api;
	own.deadline = spec->deadline;
	own.on_timeout = spec->on_timeout;
	own.once = spec->once;
	own.remove = spec->remove;
	return spec_store(s->dir, &own, e);
}

/* The caller has locked the pool. */
static int take_one(struct start *s, int pool, const struct spec *spec, bool client, struct err *e)
{
	char path[64];
	int r = write_owner(s, spec, e);

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", pool, s->id);
	if (r == 0)
		r = open_log(s, e);
	if (r == 0 && client)
		r = make_client(s, e);
	if (r < 0)
		return r; /* the spare keeps waiting */
	r = start_keeper(s, path, e);
	(void)unlinkat(pool, s->id, 0);
	if (r == 0)
		counts(s);
	return r < 0 ? r : FAULT_ERR("start-taken", e);
}

/* Takes a spare from the pool of this key. 1; 0: there is none, and the caller starts a new one. */
static int take_spare(struct start *s, const struct spec *spec, bool client, const char *key,
		      struct err *e)
{
	_cleanup_close_ int pool = -EBADF;
	int r = -ENOENT;

	if (spare_pool_open(s->root, key, false, &pool) < 0)
		return 0;
	if (RETRY_EINTR(flock(pool, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock the pool");
	while (r < 0 && spares_next(s->root, pool, s->id, &s->dir)) {
		*e = (struct err)ERR_INIT;
		r = take_one(s, pool, spec, client, e);
		if (r < 0)
			start_done(s);
	}
	*e = (struct err)ERR_INIT;
	pool = fd_close(pool);
	spares_refill_later(key, sandbox_start_spare);
	return r == 0;
}

/* Only plans without parts of their own, such as a snapshot's, have pools. */
static int start_from_pool(struct start *s, const struct spec *spec, bool client, struct err *e)
{
	_cleanup_close_ int pools = -EBADF;
	char key[SPARE_KEY + 1];
	int r;

	if (spec->machine.kernel || spare_pool_open(s->root, NULL, false, &pools) < 0)
		return 0;
	r = spares_key(spec, s->programs.guest, key, e);
	if (r < 0 && preparer(spec)) { /* parts are missing, so there are no spares */
		*e = (struct err)ERR_INIT;
		return 0;
	}
	if (r == 0)
		r = take_spare(s, spec, client, key, e);
	if (r <= 0)
		return r;
	r = wait_ready(s, spec, e);
	return r < 0 ? r : 1;
}

static int start_new(struct start *s, const struct spec *spec, bool client, struct err *e)
{
	int r = state_new(s->root, s->id, &s->dir, e);

	if (r == 0)
		r = FAULT_ERR("start-new", e);
	return r < 0 ? r : run(s, spec, client, e);
}

int sandbox_start_spare(const struct state_root *root, const struct spec *plan, const char *key,
			struct err *e)
{
	_cleanup_(start_done) struct start s = START_INIT(root);
	_cleanup_arena_ struct arena a = ARENA_INIT;
	struct spec own = *plan;
	int r = programs_find(&s.programs, e);

	/* A pool's plan has no placeholders: each spare gets its own. */
	if (r < 0)
		return r;
	r = plan_tap_fill(NULL, &a, &own);
	if (r < 0)
		return err_set(e, r, "cannot make placeholders of secrets: %s", strerror(-r));
	s.spare = key;
	r = start_new(&s, &own, false, e);
	if (r < 0 && s.dir >= 0)
		clean_up_failed(&s, r == -ETIME);
	else if (r == 0)
		let_go(&s);
	return r;
}

int sandbox_start(const struct state_root *root, const struct spec *spec, struct sandbox *ret,
		  int *ret_client, struct err *e)
{
	_cleanup_close_ int quota = -EBADF;
	_cleanup_(start_done) struct start s = START_INIT(root);
	struct err ignored = ERR_INIT;
	int dir = -EBADF, r = programs_find(&s.programs, e);

	if (r < 0)
		return r;
	s.quota = &quota;
	cgroup_expect();
	TRACE(TRACE_STATE, "start: agent '%s', image '%s', %s", spec->agent, spec->image,
	      level_names[spec->level]);
	/* Start even if other sandboxes cannot be reclaimed. */
	(void)sandbox_reclaim(root, &ignored);
	if (spec->quota)
		r = quota_enter(root, spec, &quota, e);
	if (r == 0)
		r = start_from_pool(&s, spec, ret_client, e);
	if (r == 0)
		r = start_new(&s, spec, ret_client, e);
	if (r >= 0)
		r = reopen(&s, &dir, e);
	if (r < 0) {
		if (s.dir >= 0)
			clean_up_failed(&s, r == -ETIME);
		return r;
	}
	let_go(&s);
	start_log_follow(&s.lines);
	TRACE(TRACE_STATE, "started: sandbox %s", s.id);
	memcpy(ret->id, s.id, sizeof(ret->id));
	ret->dir = dir;
	if (ret_client)
		*ret_client = TAKE_FD(s.client);
	return 0;
}

/* ---- suspended sandboxes ---- */

/* Removes files of the last run. */
static int forget_last_run(int dir, struct err *e)
{
	static const char *const files[] = { "sock", "receipt.json", "life.json", "end.json" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (unlinkat(dir, files[i], 0) < 0 && errno != ENOENT)
			return err_errno(e, "cannot remove '%s'", files[i]);
	return 0;
}

/* The plan of the last run, to start from its snapshot. */
static int plan_again(int dir, struct spec *ret, struct err *e)
{
	_cleanup_spec_ struct spec spec = { 0 };
	char name[SANDBOX_SNAPSHOT];
	int r = fd_read_line(dir, STATE_SUSPENDED, name, sizeof(name));

	if (r < 0)
		return err_set(e, r, "it is not suspended");
	r = spec_read(dir, &spec, e);
	if (r == 0)
		r = sandbox_use_snapshot(name, &spec, e);
	if (r < 0)
		return r;
	spec.once = false; /* the client that it was to end with is gone */
	*ret = spec;
	spec = (struct spec){ 0 };
	return 0;
}

int sandbox_resume(const struct state_root *root, const struct sandbox *b, uint64_t deadline,
		   struct err *e)
{
	_cleanup_(start_done) struct start s = START_INIT(root);
	_cleanup_spec_ struct spec spec = { 0 };
	struct err ignored = ERR_INIT;
	int r = programs_find(&s.programs, e);

	cgroup_expect();
	/* The last warden may have been killed before it had cleaned up. */
	(void)sandbox_reclaim(root, &ignored);
	s.resumed = true;
	memcpy(s.id, b->id, sizeof(s.id));
	if (r == 0 && state_claim(b->dir, &s.dir) < 0)
		r = err_set(e, -EBUSY, "another process resumes or ends sandbox %s", b->id);
	/* Downgrade our exclusive lock to the shared one that the warden will keep. */
	if (r == 0 && flock(s.dir, LOCK_SH) < 0)
		r = err_errno(e, "cannot lock sandbox %s", b->id);
	if (r == 0)
		r = plan_again(s.dir, &spec, e);
	if (deadline > 0)
		spec.deadline = deadline;
	memcpy(s.chain, b->id, SPEC_ID);
	if (r == 0 && state_draw_id(s.chain + SPEC_ID) < 0)
		r = err_set(e, -EIO, "no random numbers");
	if (r == 0)
		r = forget_last_run(s.dir, e);
	if (r < 0)
		return r;
	r = run(&s, &spec, NULL, e);
	if (r < 0) {
		clean_up_failed(&s, r == -ETIME);
		if (!state_is_suspended(s.dir))
			return err_wrap(e, "sandbox %s", b->id);
		return err_wrap(e, "sandbox %s stays suspended", b->id);
	}
	let_go(&s);
	return 0;
}
