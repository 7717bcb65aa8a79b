/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of spares. A process that fills a pool locks the pool's file `filling`, so only one does at
 * a time; it starts several spares at once (starters.h). A process that takes a spare locks the
 * pool's directory from its choice to the warden's answer (start.c), so a spare gets one owner.
 * Both locks end with their process. */
#include "sandbox/spares.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/plan-tap.h"
#include "sandbox/prepare.h"
#include "sandbox/starters.h"

#define WANT "want"

static const char placeholder_id[] = "aaaaaaaaaaaaaaaa";

/* ---- the plan ---- */

/* The plan without its owner's parts. A spare that was never taken leaves nothing behind
 * (remove). */
static struct spec common(const struct spec *plan)
{
	struct spec s = *plan;

	s.id = placeholder_id;
	s.created = 0;
	s.api = "";
	s.chain = "";
	s.deadline = 0;
	s.on_timeout = ON_TIMEOUT_END;
	s.once = false;
	s.remove = true;
	return s;
}

/* Includes the kernel, disk and accelerator that it would start with now: if one changes, the plan
 * is another. */
static char *describe(const struct spec *plan, const char *guest, struct err *e)
{
	_cleanup_free_ struct prepared *p = calloc(1, sizeof(*p));
	_cleanup_arena_ struct arena a = ARENA_INIT;
	struct spec s = common(plan);
	char *text;
	int r = p ? prepare_parts(guest, p, &s, e) : err_oom(e);

	if (r == 0 && plan_tap_blank(&a, &s) < 0)
		r = err_oom(e);

	if (r < 0)
		return NULL;
	text = spec_write(&s);
	if (!text)
		(void)err_oom(e);
	return text;
}

static void key_of(const char *text, char ret[static SPARE_KEY + 1])
{
	unsigned char digest[SPARE_KEY / 2];

	(void)crypto_generichash(digest, sizeof(digest), (const unsigned char *)text, strlen(text),
				 NULL, 0);
	(void)sodium_bin2hex(ret, SPARE_KEY + 1, digest, sizeof(digest));
}

int spares_key(const struct spec *plan, const char *guest, char ret[static SPARE_KEY + 1],
	       struct err *e)
{
	_cleanup_free_ char *text = describe(plan, guest, e);

	if (!text)
		return e->num;
	key_of(text, ret);
	return 0;
}

static int write_plan(int pool, const char *text, const struct spec *plan, struct err *e)
{
	int r = state_write(pool, "spec.json", text, strlen(text), e);

	if (r == 0 && plan->policy_text)
		r = state_write(pool, "policy.json", plan->policy_text, strlen(plan->policy_text),
				e);
	return r;
}

/* ---- existing spares ---- */

/* The directory of the sandbox `name` if it is a living spare; else -EBADF. */
static int open_spare(const struct state_root *root, const char *name)
{
	_cleanup_close_ int dir = RETRY_EINTR(
		openat(root->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	return dir >= 0 && state_phase(dir) == STATE_HELD ? TAKE_FD(dir) : -EBADF;
}

int spares_next(const struct state_root *root, int pool, char ret[static SPEC_ID + 1], int *ret_dir)
{
	DIR *d = fd_list(pool);
	const struct dirent *de;
	int dir = -EBADF;

	while (d && dir < 0 && (de = readdir(d))) {
		if (!spec_id_valid(de->d_name))
			continue;
		dir = open_spare(root, de->d_name);
		if (dir >= 0)
			memcpy(ret, de->d_name, SPEC_ID + 1);
		else
			(void)unlinkat(pool, de->d_name, 0); /* its warden has ended */
	}
	if (d)
		(void)closedir(d);
	*ret_dir = dir;
	return dir >= 0;
}

static unsigned int count(const struct state_root *root, int pool)
{
	DIR *d = fd_list(pool);
	const struct dirent *de;
	unsigned int n = 0;

	while (d && (de = readdir(d))) {
		_cleanup_close_ int dir =
			spec_id_valid(de->d_name) ? open_spare(root, de->d_name) : -EBADF;

		n += dir >= 0;
	}
	if (d)
		(void)closedir(d);
	return n;
}

/* 0 if the pool was dropped. */
static unsigned int wanted(int pool)
{
	char text[16];
	uint64_t n = 0;

	if (fd_read_line(pool, WANT, text, sizeof(text)) < 0 ||
	    str_to_u64(text, strlen(text), SPARES_MAX, &n) < 0)
		return 0;
	return (unsigned int)n;
}

/* ---- filling ---- */

static int write_wanted(int pool, unsigned int want, struct err *e)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u\n", want);
	return state_write(pool, WANT, text, strlen(text), e);
}

static int lock_filling(int pool, bool wait, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = RETRY_EINTR(
		openat(pool, "filling", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd < 0 || RETRY_EINTR(flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB))) < 0)
		return err_errno(e, "cannot lock the pool");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* A pool that is being filled. */
struct filling {
	const struct state_root *root;
	int pool;
	const char *key;
	struct spec plan;
	spares_start_fn *start;
	void (*say)(unsigned int there, unsigned int want);
};

static void filling_done(struct filling *f)
{
	spec_done(&f->plan);
}

/* A spare may be ready while the process that starts it has not ended, so it counts twice for a
 * moment, never not at all. */
static unsigned int missing(void *arg)
{
	const struct filling *f = arg;
	unsigned int there = count(f->root, f->pool), want = wanted(f->pool);

	return want > there ? want - there : 0;
}

static void say_start(unsigned int being_started, void *arg)
{
	const struct filling *f = arg;
	unsigned int want = wanted(f->pool);

	if (f->say && want > 0)
		f->say(MIN(count(f->root, f->pool) + being_started, want - 1), want);
}

static int start_spare(void *arg, struct err *e)
{
	const struct filling *f = arg;

	return f->start(f->root, &f->plan, f->key, e);
}

/* Starts spares until there are as many as wanted; another process may change that number
 * meanwhile. */
static int fill(const struct state_root *root, int pool, const char *key, bool wait,
		spares_start_fn *start, void (*say)(unsigned int there, unsigned int want),
		struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	_cleanup_(filling_done) struct filling f = {
		.root = root, .pool = pool, .key = key, .start = start, .say = say
	};
	const struct starters_work work = {
		.missing = missing, .say = say_start, .start = start_spare, .arg = &f
	};
	int r = lock_filling(pool, wait, &lock, e);

	if (r == 0)
		r = sandbox_read_plan(pool, &f.plan, e);
	f.plan.machine.kernel = NULL; /* find the current parts again */
	return r < 0 ? r : starters_run(&work, starters_fit(), e);
}

int spares_fill(const struct state_root *root, const struct spec *plan, unsigned int want,
		spares_start_fn *start, void (*say)(unsigned int there, unsigned int want),
		struct err *e)
{
	_cleanup_close_ int pool = -EBADF;
	_cleanup_free_ char *text = NULL;
	char key[SPARE_KEY + 1], guest[PATH_MAX];
	int r = sandbox_find_guest(guest, e);

	assert(want > 0 && want <= SPARES_MAX);
	text = r < 0 ? NULL : describe(plan, guest, e);
	if (!text)
		return e->num;
	key_of(text, key);
	r = spare_pool_open(root, key, true, &pool);
	if (r < 0)
		return err_set(e, r, "cannot make a pool: %s", strerror(-r));
	r = write_plan(pool, text, plan, e);
	if (r == 0)
		r = write_wanted(pool, want, e);
	return r < 0 ? r : fill(root, pool, key, true, start, say, e);
}

static _noreturn_ void refill(const char *key, spares_start_fn *start)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_close_ int pool = -EBADF;
	struct err e = ERR_INIT;

	/* Close the caller's descriptors: another process may wait for the end of one. */
	(void)syscall(SYS_close_range, 0, ~0U, 0);
	for (int i = 0; i <= STDERR_FILENO; i++)
		(void)open("/dev/null", O_RDWR);
	log_forked();
	(void)setsid();
	if (state_root_open(&root, &e) < 0 || spare_pool_open(&root, key, false, &pool) < 0)
		_exit(EXIT_FAILURE);
	/* Look again without the lock: a spare may have been taken after the last look, by a
	 * process that found the pool locked. */
	while (fill(&root, pool, key, false, start, NULL, &e) == 0 &&
	       count(&root, pool) < wanted(pool))
		;
	_exit(EXIT_SUCCESS);
}

/* Forks twice, so that the caller need not reap the process that refills. */
void spares_refill_later(const char *key, spares_start_fn *start)
{
	pid_t pid = fork();

	if (pid == 0) {
		pid = fork();
		if (pid == 0)
			refill(key, start);
		_exit(EXIT_SUCCESS);
	}
	if (pid > 0)
		(void)RETRY_EINTR(waitpid(pid, NULL, 0));
}

/* ---- looking and ending ---- */

static bool look(const struct state_root *root, const char *key, struct spares *ret)
{
	_cleanup_close_ int pool = -EBADF;
	_cleanup_spec_ struct spec plan = { 0 };
	struct err ignored = ERR_INIT;

	if (spare_pool_open(root, key, false, &pool) < 0 || spec_read(pool, &plan, &ignored) < 0)
		return false;
	*ret = (struct spares){ .there = count(root, pool),
				.want = wanted(pool),
				.level = plan.level };
	(void)snprintf(ret->key, sizeof(ret->key), "%s", key);
	(void)snprintf(ret->agent, sizeof(ret->agent), "%s", plan.agent);
	(void)snprintf(ret->image, sizeof(ret->image), "%s", plan.image);
	return true;
}

int spares_list(const struct state_root *root, struct spares **ret, size_t *ret_n, struct err *e)
{
	_cleanup_close_ int pools = -EBADF;
	_cleanup_free_ struct spares *list = NULL;
	const struct dirent *de;
	size_t n = 0;
	DIR *d;

	*ret = NULL;
	*ret_n = 0;
	if (spare_pool_open(root, NULL, false, &pools) < 0)
		return 0; /* no pool was ever made */
	d = fd_list(pools);
	while (d && (de = readdir(d))) {
		struct spares *more;

		if (!spare_key_valid(de->d_name))
			continue;
		more = reallocarray(list, n + 1, sizeof(*list));
		if (!more) {
			(void)closedir(d);
			return err_oom(e);
		}
		list = more;
		n += look(root, de->d_name, &list[n]);
	}
	if (d)
		(void)closedir(d);
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}

static int end_all(const struct state_root *root, int pool, struct err *e)
{
	struct err owed = ERR_INIT;
	int r = 0;

	while (r == 0) {
		_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;

		if (!spares_next(root, pool, b.id, &b.dir))
			break;
		r = sandbox_kill(root, &b, NULL, &owed, e);
		(void)unlinkat(pool, b.id, 0);
	}
	return r;
}

static void empty(int pool)
{
	DIR *d = fd_list(pool);
	const struct dirent *de;

	while (d && (de = readdir(d)))
		(void)unlinkat(pool, de->d_name, 0);
	if (d)
		(void)closedir(d);
}

int spares_drain(const struct state_root *root, const char *key, struct err *e)
{
	_cleanup_close_ int pools = -EBADF, pool = -EBADF, lock = -EBADF;
	int r = spare_pool_open(root, NULL, false, &pools);

	if (r == 0)
		r = spare_pool_open(root, key, false, &pool);
	if (r < 0)
		return err_set(e, r, "no pool '%s': hutch pool ls", key);
	/* The process that fills the pool stops then; wait for it. */
	(void)unlinkat(pool, WANT, 0);
	r = lock_filling(pool, true, &lock, e);
	if (r == 0 && RETRY_EINTR(flock(pool, LOCK_EX)) < 0)
		r = err_errno(e, "cannot lock the pool");
	if (r == 0)
		r = end_all(root, pool, e);
	if (r == 0)
		empty(pool);
	if (r == 0 && unlinkat(pools, key, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = err_errno(e, "cannot remove pool %s", key);
	return r;
}
