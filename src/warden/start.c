/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a sandbox in this order; each step needs the ones above it:
 *
 *   lock, spec, image, socket   need the host's file system unchanged
 *   ids, namespaces             from here on mounts end with the warden
 *   groups                      before the sandbox's first process
 *   engine                      starts the sandbox up to hutch-guest, which waits for HELLO
 *   disk, guard, keeper         meanwhile: room for the disk is reserved; the keeper, guarded,
 *                               confines itself and waits
 *   receipt                     verified from the running PID 1, the keeper and Landlock;
 *                               the start fails if a required layer is missing
 *   go                          only now the keeper serves clients
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "engine/oci.h"
#include "engine/userns.h"
#include "snapshot/disk-copy.h"
#include "snapshot/ram-save.h"
#include "warden/warden.h"

enum {
	HELLO_TIMEOUT_S = 30,
	MACHINE_TIMEOUT_S = 90, /* a VM boots, perhaps under emulation */
	KEEPER_END_S = 2,
	BACKLOG = 64,
	STATUS_MAX = 16 * 1024,
	USER_FIRST = 1, /* the sandbox's id 0 in a user's own namespace; see userns_enter() */
};

static int take_state(struct warden *w, struct err *e)
{
	if (state_lock(w->dir, &w->held.lock, e) < 0 || FAULT_ERR("warden-lock", e) < 0 ||
	    spec_read(w->dir, &w->spec, e) < 0 || engine_to_start(&w->spec, &w->engine, e) < 0)
		return e->num;
	warden_name_lines(&w->spec);
	if (FAULT_ERR("warden-spec", e) < 0 || state_root_open(&w->root, e) < 0 ||
	    spare_find_pool(w, e) < 0 || state_lock_tree(w->spec.root, &w->held.tree, e) < 0 ||
	    FAULT_ERR("warden-tree", e) < 0 || warden_take_snapshots(w, e) < 0)
		return e->num;
	tokens_begin(w);
	if (budgets_begin(w, e) < 0 || tapping_begin(w, e) < 0)
		return e->num;
	return warden_filter_begin(w, e);
}

/* Binds through the directory's descriptor: the path of a state directory may be too long for a
 * socket address. */
static int listen_in(struct warden *w, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", w->dir);
	w->ends.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->ends.listener < 0 || bind(w->ends.listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(w->ends.listener, BACKLOG) < 0)
		return err_errno(e, "cannot listen in the sandbox's directory");
	return FAULT_ERR("warden-socket", e);
}

static int take_namespaces(struct warden *w, struct err *e)
{
	w->rootless = geteuid() != 0;
	if (w->rootless) {
		w->ids = USER_FIRST;
		return userns_enter(w->spec.image_uid, w->spec.image_gid, e);
	}
	if (state_take_ids(&w->root, &w->ids, &w->held.range, e) < 0 ||
	    FAULT_ERR("warden-ids", e) < 0)
		return e->num;
	/* Slave, not private: a file system that the host unmounts must not stay mounted here. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_errno(e, "cannot make a mount namespace");
	return 0;
}

/* The guest creates the workspace, but cannot report why it failed. So the warden checks the
 * path first in the directory tree that the image's disk was made from; no link leads out of it. */
static int check_workspace(const struct spec *spec, struct err *e)
{
	_cleanup_close_ int root = open(spec->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int there = -EBADF, plain = -EBADF;
	const char *path = spec->workspace + 1;

	if (root < 0)
		return err_errno(e, "cannot open '%s'", spec->root);
	if (spec->workspace[0] != '/' || !path[0])
		return 0;
	there = path_open_in_root(root, path, O_PATH, 0);
	if (there >= 0)
		return 0;
	plain = path_open_nofollow(root, path, O_PATH, 0);
	if (plain >= 0 || plain == -ENOENT)
		return 0;
	return err_set(e, plain, "cannot make the workspace '%s' in the image: %s", spec->workspace,
		       strerror(-plain));
}

/* The directory of its disk. */
static const char *disk_place(const struct warden *w, char ret[static PATH_MAX])
{
	if (engine_has(w->engine, ENGINE_OWN_KERNEL))
		return w->spec.machine.snapshots;
	return path_parent(w->spec.blank, ret, PATH_MAX) < 0 ? w->spec.blank : ret;
}

static int without_room(const struct warden *w, struct err *e)
{
	char where[PATH_MAX];

	return disk_no_room(disk_place(w, where), w->spec.limits.disk, e);
}

/* Creates a container's disk, an unnamed file. Memory is used instead if the spec says so, or
 * for an ordinary user, who can mount nothing else. */
static int make_disk(struct warden *w, struct err *e)
{
	int r;

	if (!engine_has(w->engine, ENGINE_SCRATCH) || w->spec.in_memory || w->rootless)
		return 0;
	if (!w->spec.blank[0])
		return err_set(e, -EINVAL,
			       "spec.json names no empty disk: it is of another "
			       "version of hutch; start the sandbox again with this version");
	r = disk_new_beside(w->spec.blank, &w->disk, e);
	return r == -ENOSPC ? without_room(w, e) : r;
}

/* Creates a VM's monitor socket pair and its disk, an unnamed file that ends with its last
 * holder. */
static int make_machine(struct warden *w, struct err *e)
{
	int q[2], r;

	if (!engine_has(w->engine, ENGINE_OWN_KERNEL))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, q) < 0)
		return err_errno(e, "cannot make the VM's monitor");
	w->ends.monitor_keeper = q[0];
	w->ends.monitor = q[1];
	/* A saved VM that ran before already has its workspace. */
	r = w->origin.from.kind != SNAPSHOT_SAVED ? check_workspace(&w->spec, e) : 0;
	if (r < 0)
		return r;
	r = w->origin.from.disk >= 0
		    ? disk_new(w->saving.dir, w->origin.from.disk, &w->disk, e)
		    : disk_new_from(w->saving.dir, w->spec.machine.blank, &w->disk, e);
	return r == -ENOSPC ? without_room(w, e) : r;
}

static int make_channels(struct warden *w, struct err *e)
{
	if (fd_socket_pair(SOCK_STREAM, &w->ends.guest_keeper, &w->ends.guest) < 0)
		return err_errno(e, "cannot make the guest's channel");
	if (fd_socket_pair(SOCK_SEQPACKET, &w->note, &w->ends.note_keeper) < 0)
		return err_errno(e, "cannot make the keeper's channel");
	/* A keeper that does not read must not block the warden, which may have to end it. */
	return fcntl(w->note, F_SETFL, O_RDWR | O_NONBLOCK) < 0
		       ? err_errno(e, "cannot make the keeper's channel")
		       : 0;
}

/* Writes why no snapshot can be made, or "". */
static void why_no_snapshots(const struct engine *engine, char *ret, size_t n)
{
	const struct engine *other = engine_with(ENGINE_SNAPSHOTS);
	struct err why = ERR_INIT;

	ret[0] = '\0';
	if (!engine_has(engine, ENGINE_SNAPSHOTS))
		(void)snprintf(ret, n,
			       "only a sandbox of level %s can be saved; 'hutch commit' keeps the "
			       "files of this one",
			       other ? level_names[other->level] : "(none)");
	else if (ram_save_allowed(&why) < 0)
		(void)snprintf(ret, n, "%s", why.msg);
}

static int start_keeper(struct warden *w, struct err *e)
{
	char no_snapshots[128];
	const struct keeper_start s = {
		.spec = &w->spec,
		.engine = w->engine,
		.no_snapshots = no_snapshots,
		.guest = w->ends.guest_keeper,
		.monitor = w->ends.monitor_keeper,
		.listener = w->ends.listener,
		.chain = &w->witness.chain,
		.no_freezer = w->group.why[CGROUP_FREEZER],
		.warden = w->ends.note_keeper,
		.ca = w->tap.ca.len > 0 ? w->tap.ca.data : NULL,
		.id = w->ids + OCI_KEEPER_OFFSET,
		.parent = getpid(),
		.guarded = w->guard.group >= 0,
	};
	int r;

	why_no_snapshots(w->engine, no_snapshots, sizeof(no_snapshots));
	r = s.guarded ? proc_fork_into(w->guard.group, &w->keeper) : proc_fork(&w->keeper);

	if (r == 1)
		keeper_run(&s);
	if (r < 0)
		return err_set(e, r, "cannot start the keeper: %s", strerror(-r));
	/* From now on only the keeper holds these: they close when it ends. */
	w->ends.guest_keeper = fd_close(w->ends.guest_keeper);
	w->ends.monitor_keeper = fd_close(w->ends.monitor_keeper);
	w->ends.note_keeper = fd_close(w->ends.note_keeper);
	w->ends.listener = fd_close(w->ends.listener);
	return 0;
}

/* Costs a millisecond for 2 GiB on ext4. */
static int reserve_disk(struct warden *w, struct err *e)
{
	char where[PATH_MAX];

	if (w->disk < 0 || w->spec.overcommit)
		return 0;
	return disk_reserve(w->disk, disk_place(w, where), e);
}

/* The keeper can start while the guest does: the guard holds from its first instruction, and it
 * reads nothing from the guest before it is confined. */
static int guard_and_start_keeper(void *arg, struct err *e)
{
	struct warden *w = arg;
	char group[STATE_GROUP_MAX];

	if (reserve_disk(w, e) < 0 ||
	    warden_guard_keeper(w, state_group(&w->root, w->spec.id, group), e) < 0 ||
	    FAULT_ERR("warden-guard", e) < 0 || start_keeper(w, e) < 0)
		return e->num;
	return FAULT_ERR("warden-keeper", e);
}

/* The disk's device exists now, and no program of the user runs yet. */
static int limit_disk(struct warden *w, struct err *e)
{
	const struct cgroup_limits limits = w->engine->limits(&w->spec);
	int r;

	if ((limits.disk_bandwidth == 0 && limits.disk_ops == 0) || w->box.disk_dev == 0)
		return 0;
	r = cgroup_limit_disk(&w->group, w->box.disk_dev, &limits, e);
	if (r < 0 || w->group.has[CGROUP_IO] ||
	    !(w->spec.require & UINT64_C(1) << LAYER_DISK_QUOTA))
		return r;
	return err_set(
		e, -EPERM,
		"resources.disk_bandwidth and disk_ops cannot be enforced on this host (%s); "
		"use --level microvm, or --best-effort",
		w->group.why[CGROUP_IO]);
}

static int start_engine(struct warden *w, struct err *e)
{
	int r;

	w->start = (struct engine_start){
		.engine = w->engine,
		.spec = &w->spec,
		.group = &w->group,
		.guest = w->guest,
		.channel = w->ends.guest,
		.ids = w->ids,
		.rootless = w->rootless,
		.egress = w->spec.egress.allow.n > 0,
		.monitor = w->ends.monitor,
		.disk = w->disk,
		.memory = w->origin.from.memory,
		.state = w->origin.from.state,
		.meanwhile = guard_and_start_keeper,
		.arg = w,
	};
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return err_errno(e, "cannot become the parent of the sandbox");
	r = w->engine->start(&w->start, &w->box, e);
	if (r == 0)
		r = limit_disk(w, e);
	if (r == 0)
		r = FAULT_ERR("warden-engine", e);
	FAULT_KILL("guest-started", w->box.init.pidfd);
	cgroup_warmed(&w->group);
	w->ends.guest = fd_close(w->ends.guest);
	w->ends.monitor = fd_close(w->ends.monitor);
	if (engine_has(w->engine, ENGINE_SCRATCH))
		w->disk = fd_close(w->disk); /* the loop device holds it */
	return r;
}

/* Adds the last output of the engine's process to the error. */
static int with_last_words(struct warden *w, struct err *e)
{
	char words[ERR_MSG_MAX / 2] = "";

	if (w->engine->last_words && w->box.said >= 0)
		w->engine->last_words(&w->box, words, sizeof(words));
	return words[0] ? err_set(e, e->num, "%.*s: %s", ERR_MSG_MAX / 2 - 8, e->msg, words)
			: e->num;
}

/* The keeper has ended or is about to: turns its exit status into an error. */
static int keeper_ended(struct warden *w, struct err *e)
{
	siginfo_t info = { 0 };
	int r = proc_wait(&w->keeper, clock_mono() + KEEPER_END_S * NSEC_PER_SEC, &info);

	if (r == 0 && info.si_code == CLD_EXITED && info.si_status == KEEPER_GUEST_BROKE)
		return err_set(e, -EPROTO, "the first process of the sandbox broke the protocol");
	if (r == 0 && info.si_code == CLD_EXITED && info.si_status == KEEPER_DISK_FULL)
		return err_set(e, -ENOSPC,
			       "the host's disk is full, and the VM stopped: free some space in "
			       "hutch's state directory");
	if (r == 0 && info.si_code == CLD_EXITED && info.si_status == KEEPER_GUEST_GONE)
		(void)err_set(e, -EPIPE, "the sandbox ended before it answered");
	else
		(void)err_set(e, -EPIPE, "the keeper of the sandbox failed (%s %d)",
			      info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
	return with_last_words(w, e);
}

struct expected {
	struct warden *w;
	bool came;
	uint64_t value;
};

static bool on_expected(void *arg, uint64_t value, const int *files, size_t n)
{
	struct expected *x = arg;

	x->came = true;
	x->value = value;
	return true;
}

/* The programs of a resumed VM run already, and their requests are recorded. */
static bool on_dirty(void *arg, uint64_t value, const int *files, size_t n)
{
	struct expected *x = arg;

	witness_sync(x->w);
	return true;
}

static note_handler *const starting[NOTE_KINDS] = {
	[NOTE_MACHINE_UP] = on_expected,
	[NOTE_READY] = on_expected,
	[NOTE_DIRTY] = on_dirty,
};

/* Receives the keeper's next note; keeper or PID 1 may die meanwhile. */
static int receive(struct expected *x, enum note_phase phase, uint64_t until, struct err *e)
{
	struct warden *w = x->w;
	struct pollfd fds[] = { { .fd = w->note, .events = POLLIN },
				{ .fd = w->box.init.pidfd, .events = POLLIN } };
	const uint64_t now = clock_mono();
	int ms = now < until ? (int)((until - now) / NSEC_PER_MSEC) + 1 : 0;
	int n = RETRY_EINTR(poll(fds, ARRAY_SIZE(fds), ms)), r;

	if (n < 0)
		return err_errno(e, "cannot wait for the sandbox");
	if (n == 0)
		return -ETIME;
	if (!fds[0].revents)
		return keeper_ended(w, e);
	r = note_dispatch(w->note, NOTE_BY_KEEPER, phase, starting, x);
	if (r == -EBADMSG)
		return err_set(e, -EPROTO, "unexpected note from the keeper");
	return r < 0 ? keeper_ended(w, e) : 0;
}

/* Waits for the note that ends the phase. */
static int wait_for_note(struct warden *w, enum note_phase phase, int seconds, uint64_t *ret,
			 struct err *e)
{
	const uint64_t until = clock_mono() + (uint64_t)seconds * NSEC_PER_SEC;
	struct expected x = { .w = w };
	int r = 0;

	while (r == 0 && !x.came)
		r = receive(&x, phase, until, e);
	if (r == -ETIME)
		return err_set(e, r, "the sandbox did not answer within %d s", seconds);
	*ret = x.value;
	return r;
}

static int machine_s(const struct warden *w)
{
	return MACHINE_TIMEOUT_S + (int)spec_transfer_s(&w->spec);
}

/* Waits for the process of a VM. No guest code has run yet; the engine removes everything that only
 * the start of its process needed. */
static int seal_machine(struct warden *w, struct err *e)
{
	uint64_t ignored;

	if (wait_for_note(w, PHASE_BOOT, machine_s(w), &ignored, e) < 0 ||
	    FAULT_ERR("machine-up", e) < 0 || w->engine->seal(&w->start, &w->box, e) < 0 ||
	    FAULT_ERR("machine-sealed", e) < 0)
		return e->num;
	return 0;
}

/* Lets a VM's guest run. */
static int run_machine(struct warden *w, struct err *e)
{
	if (w->origin.rules >= 0 && note_send(w->note, NOTE_RULES, 0, &w->origin.rules, 1) < 0)
		return keeper_ended(w, e);
	w->origin.rules = fd_close(w->origin.rules);
	FAULT_KILL("machine-run", w->box.init.pidfd);
	return note_send(w->note, NOTE_RUN, w->box.how, NULL, 0) < 0 ? keeper_ended(w, e) : 0;
}

/* Fills in the keeper's row of the receipt, from /proc. */
static void verify_keeper(struct warden *w)
{
	static const char *const wanted[] = { "\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n",
					      "\nCapPrm:\t0000000000000000\n",
					      "\nCapBnd:\t0000000000000000\n" };
	_cleanup_buf_ struct buf b = BUF_INIT(STATUS_MAX);
	struct err e = ERR_INIT;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)w->keeper.pid);
	if (fd_read_file(AT_FDCWD, path, &b, &e) < 0) {
		receipt_no(&w->receipt, EXTRA_KEEPER, "%s", e.msg);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!strstr(buf_text(&b), wanted[i])) {
			receipt_no(&w->receipt, EXTRA_KEEPER, "not found in %s: %.*s", path,
				   (int)strcspn(wanted[i] + 1, "\n"), wanted[i] + 1);
			return;
		}
	receipt_yes(&w->receipt, EXTRA_KEEPER, "Seccomp: 2, NoNewPrivs: 1, no capability");
}

/* Where the VM's memory comes from, while its snapshot is open. */
static void describe_origin(struct warden *w)
{
	const char *name = strrchr(w->spec.machine.snapshot ?: "", '/');
	struct warden_origin *o = &w->origin;

	if (!w->spec.machine.kernel)
		return;
	if (!name) {
		(void)snprintf(o->text, sizeof(o->text), "boot");
		o->sharing = "private";
		return;
	}
	(void)snprintf(o->text, sizeof(o->text), "%s %.80s",
		       o->from.kind == SNAPSHOT_TEMPLATE ? "template" : "snapshot", name + 1);
	o->sharing = "shared with other VMs from there until written";
}

static int write_receipt(struct warden *w, struct err *e)
{
	const struct receipt_fact facts[] = {
		{ "hypervisor", w->spec.machine.hypervisor ?: "" },
		{ "kernel", w->spec.machine.kernel_version ?: "" },
		{ "start", w->origin.text },
		{ "memory", w->origin.sharing ?: "" },
	};
	const struct receipt_head head = { .sandbox = w->spec.id,
					   .level = level_names[w->engine->level],
					   .engine = w->engine->name,
					   .policy = w->spec.policy,
					   .image = w->spec.image_digest,
					   .facts = facts,
					   .n_facts = ARRAY_SIZE(facts) };
	_cleanup_json_ json_t *j = receipt_json(&w->receipt, &head);
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;

	return text ? state_write(w->dir, "receipt.json", text, strlen(text), e) : err_oom(e);
}

static void trace_receipt(const struct receipt *r)
{
	for (unsigned int i = 0; trace_on && i < RECEIPT_ROWS; i++)
		TRACE(TRACE_VERDICT, "%s: %s%s (%s)", receipt_row_name(i),
		      r->row[i].enforced ? "enforced" : "not enforced",
		      r->row[i].required ? ", required" : "", r->row[i].seen);
}

static void look_at_sandbox(struct warden *w)
{
	receipt_init(&w->receipt, w->spec.require);
	receipt_explicit(&w->receipt, w->spec.limits_asked);
	w->engine->verify(&w->start, &w->box, &w->receipt);
	verify_keeper(w);
	dial_guard_verify(&w->guard, w->keeper.pid, &w->receipt);
	dial_guard_close(&w->guard);
	witness_receipt(w);
}

/* Starts a VM's guest and fills in the receipt. Its process and the keeper have dropped their
 * privileges. A guest that boots, or whose template has run no program of a user, is looked at
 * while it starts; one that has, before it continues. */
static int start_and_look(struct warden *w, struct err *e)
{
	const bool saved = w->origin.from.kind == SNAPSHOT_SAVED;

	if (seal_machine(w, e) < 0)
		return e->num;
	if (saved)
		look_at_sandbox(w);
	if (run_machine(w, e) < 0)
		return e->num;
	if (!saved)
		look_at_sandbox(w);
	return 0;
}

/* In a container the privileges are those of hutch-guest, which has dropped them when it
 * answers. */
static int look(struct warden *w, uint64_t *ret_landlock, struct err *e)
{
	const bool early = w->engine->seal != NULL;
	const int seconds = early ? machine_s(w) : HELLO_TIMEOUT_S;

	if (early && start_and_look(w, e) < 0)
		return e->num;
	if (wait_for_note(w, PHASE_HELLO, seconds, ret_landlock, e) < 0 ||
	    FAULT_ERR("warden-note", e) < 0)
		return e->num;
	FAULT_KILL("guest-noted", w->box.init.pidfd);
	if (!early)
		look_at_sandbox(w);
	return 0;
}

static int check_receipt(struct warden *w, struct err *e)
{
	uint64_t landlock = 0;
	int r = look(w, &landlock, e);

	if (r < 0)
		return r;
	describe_origin(w);
	/* The VM has a disk of its own and maps the memory: its snapshot may be removed. */
	w->origin.memory = TAKE_FD(w->origin.from.memory);
	snapshot_done(&w->origin.from);
	if (w->spec.nested) {
		receipt_no(&w->receipt, LAYER_LANDLOCK, RECEIPT_NESTED);
		w->receipt.row[LAYER_LANDLOCK].asked = false;
	} else if (landlock > 0)
		receipt_yes(&w->receipt, LAYER_LANDLOCK, "version %u, " AGENT_WORD,
			    (unsigned int)landlock);
	else
		receipt_no(&w->receipt, LAYER_LANDLOCK, "the agent inside says that there is none");
	trace_receipt(&w->receipt);
	r = receipt_check(&w->receipt, e);
	return r < 0 ? r : FAULT_ERR("warden-verified", e);
}

int warden_go(struct warden *w, struct err *e)
{
	if (lifetime_begin(w, e) < 0 || write_receipt(w, e) < 0)
		return e->num;
	FAULT_KILL("guest-receipt", w->box.init.pidfd);
	FAULT_KILL("keeper-receipt", w->keeper.pidfd);
	if (FAULT_ERR("warden-receipt", e) < 0 || warden_open_egress(w, e) < 0)
		return e->num;
	if (w->client >= 0 && fcntl(w->client, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return err_errno(e, "cannot use the client's socket");
	if (w->origin.commands >= 0 &&
	    note_send(w->note, NOTE_ADOPT, 0, &w->origin.commands, 1) < 0)
		return keeper_ended(w, e);
	w->origin.commands = fd_close(w->origin.commands);
	if (note_send(w->note, NOTE_GO, w->spec.once, &w->client, w->client >= 0) < 0)
		return keeper_ended(w, e);
	w->client = fd_close(w->client);
	warden_forget_suspended(w);
	warden_give_records(w, RECORDS_AT_START);
	return FAULT_ERR("warden-go", e);
}

int warden_start(struct warden *w, struct err *e)
{
	struct cgroup_limits limits;
	char group[STATE_GROUP_MAX];

	if (take_state(w, e) < 0 || witness_create(w, e) < 0 || FAULT_ERR("warden-audit", e) < 0 ||
	    listen_in(w, e) < 0 || take_namespaces(w, e) < 0 ||
	    FAULT_ERR("warden-namespaces", e) < 0)
		return e->num;
	limits = w->engine->limits(&w->spec);
	if (cgroup_make(state_group(&w->root, w->spec.id, group), &limits, &w->group, e) < 0)
		return e->num;
	cgroup_warm(&w->group);
	if (FAULT_ERR("warden-groups", e) < 0 || make_channels(w, e) < 0 ||
	    make_machine(w, e) < 0 || make_disk(w, e) < 0 || FAULT_ERR("warden-channels", e) < 0 ||
	    start_engine(w, e) < 0)
		return e->num;
	return check_receipt(w, e);
}
