/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmdebstrap builds the tree in its own user namespace and writes it as a tar archive straight to a
 * confined worker. On the host's file system it uses only its temporary directory, which it also
 * removes if we are killed (setpriv --pdeathsig).
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/image-make.h"

enum {
	ARGS_MAX = 256,
	END_TIMEOUT_S = 60,
	SCRIPT_TEXT_MAX = 120 * 1024, /* MAX_ARG_STRLEN is 128 KiB */
	INCLUDE_MAX = 120 * 1024,
};

/* As in Debian's "slim" images: documentation is left out, licences stay. */
static const char *const slim[] = {
	"--dpkgopt=path-exclude=/usr/share/man/*",
	"--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*",
	"--dpkgopt=path-include=/usr/share/locale/locale.alias",
	"--dpkgopt=path-exclude=/usr/share/doc/*",
	"--dpkgopt=path-include=/usr/share/doc/*/copyright",
};

static const char *const passed_on[] = { "TMPDIR",     "http_proxy",  "https_proxy", "no_proxy",
					 "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY" };

struct words {
	const char *v[ARGS_MAX + 1];
	size_t n;
	struct arena *arena;
	int err;
};

static void add(struct words *w, const char *fmt, ...) _printf_(2, 3);

static void add(struct words *w, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		text = NULL;
	if (w->n == ARGS_MAX)
		w->err = -E2BIG;
	else if (n < 0 || !(w->v[w->n] = arena_strdup(w->arena, text)))
		w->err = -ENOMEM;
	else
		w->n++;
}

static void add_include(struct words *w, const struct text_list *packages)
{
	_cleanup_buf_ struct buf b = BUF_INIT(INCLUDE_MAX);

	for (size_t i = 0; i < packages->n; i++)
		(void)buf_printf(&b, "%s%s", i > 0 ? "," : "", packages->v[i]);
	if (b.err < 0)
		w->err = -E2BIG;
	else if (packages->n > 0)
		add(w, "--include=%s", buf_text(&b));
}

/* Passes the script in the environment, so that it needs no quoting for two shells. */
static void add_hooks(struct words *w, const struct image_spec *s)
{
	for (size_t i = 0; i < s->policy.capabilities.scripts.n; i++)
		add(w,
		    "--customize-hook=env -i "
		    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
		    "/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "
		    "SOURCE_DATE_EPOCH=%d chroot \"$1\" /bin/sh -euc \"$HUTCH_SCRIPT_%zu\"",
		    FINISH_TIME, i);
}

static void make_argv(struct words *w, const struct image_build *b, const char *program)
{
	const struct image_spec *s = b->spec;

	add(w, "setpriv");
	add(w, "--pdeathsig");
	add(w, "TERM");
	add(w, "%s", program);
	add(w, "--mode=unshare");
	add(w, "--format=tar");
	add(w, "--skip=output/dev");
	add(w, "--variant=%s", variant_names[s->variant]);
	add_include(w, &s->policy.capabilities.packages);
	for (size_t i = 0; s->variant != VARIANT_EXTRACT && i < ARRAY_SIZE(slim); i++)
		add(w, "%s", slim[i]);
	add_hooks(w, s);
	add(w, "%s", s->suite);
	add(w, "-");
	if (b->mirror)
		add(w, "%s", b->mirror);
	for (size_t i = 0; !b->mirror && i < s->mirrors.n; i++)
		add(w, "%s", s->mirrors.v[i]);
}

/* export NAME='value', for the shell that runs a script. */
static void put_export(struct buf *b, const struct pair *p)
{
	(void)buf_printf(b, "export %s='", p->key);
	for (const char *c = p->value; *c; c++)
		(void)(*c == '\'' ? buf_puts(b, "'\\''") : buf_putc(b, *c));
	(void)buf_puts(b, "'\n");
}

static void make_env(struct words *w, const struct image_spec *s)
{
	const struct text_list *scripts = &s->policy.capabilities.scripts;

	add(w, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	add(w, "LC_ALL=C.UTF-8");
	add(w, "SOURCE_DATE_EPOCH=%d", FINISH_TIME);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		if (getenv(passed_on[i]))
			add(w, "%s=%s", passed_on[i], getenv(passed_on[i]));
	for (size_t i = 0; i < scripts->n; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(SCRIPT_TEXT_MAX);

		for (size_t k = 0; k < s->policy.env.n; k++)
			put_export(&b, &s->policy.env.v[k]);
		(void)buf_puts(&b, scripts->v[i]);
		if (b.err < 0)
			w->err = -E2BIG;
		else
			add(w, "HUTCH_SCRIPT_%zu=%s", i, buf_text(&b));
	}
}

static int make_pipe(int *ret_from, int *ret_to, struct err *e)
{
	return fd_pipe(0, ret_from, ret_to) < 0 ? err_errno(e, "cannot create a pipe") : 0;
}

static int find_programs(char *setpriv, char *mmdebstrap, size_t n, struct err *e)
{
	if (proc_find("setpriv", setpriv, n) < 0)
		return err_set(e, -ENOENT, "setpriv is needed: apt-get install util-linux");
	if (proc_find("mmdebstrap", mmdebstrap, n) < 0)
		return err_set(e, -ENOENT,
			       "mmdebstrap is needed: apt-get install mmdebstrap uidmap");
	return 0;
}

/* Starts mmdebstrap with its output connected to the job's input, its messages to the job's news.
 */
static int start_producer(struct image_making *m, const struct image_build *b, struct proc *ret,
			  struct err *e)
{
	_cleanup_close_ int tar_to = -EBADF, news_to = -EBADF;
	_cleanup_arena_ struct arena arena = ARENA_INIT;
	char setpriv[PATH_MAX], mmdebstrap[PATH_MAX];
	struct words argv = { .arena = &arena }, env = { .arena = &arena };
	int r = find_programs(setpriv, mmdebstrap, PATH_MAX, e);

	if (r < 0)
		return r;
	make_argv(&argv, b, mmdebstrap);
	make_env(&env, b->spec);
	if (argv.err < 0 || env.err < 0)
		return err_set(e, argv.err < 0 ? argv.err : env.err,
			       "too many packages or scripts, or too long ones");
	r = make_pipe(&m->job.input, &tar_to, e);
	if (r == 0)
		r = make_pipe(&m->job.news, &news_to, e);
	if (r < 0)
		return r;
	return proc_spawn(&(struct proc_spec){ .path = setpriv,
					       .argv = argv.v,
					       .env = env.v,
					       .in = -EBADF,
					       .out = tar_to,
					       .err = news_to,
					       .own_session = true },
			  ret, e);
}

/* How mmdebstrap ended: 0, or -EIO. With `stop` (the worker failed first), asks it to clean up. */
static int end_producer(struct proc *p, bool stop, struct err *e)
{
	siginfo_t info = { 0 };
	int r;

	if (stop)
		(void)proc_signal(p, SIGTERM);
	r = proc_wait(p, clock_mono() + END_TIMEOUT_S * NSEC_PER_SEC, &info);
	if (r < 0)
		return err_set(e, r, "mmdebstrap does not exit: %s", strerror(-r));
	if (info.si_code != CLD_EXITED || info.si_status != 0)
		return err_set(e, -EIO, "mmdebstrap failed");
	return 0;
}

static int open_log(const struct image_build *b, int *ret_fd, struct err *e)
{
	char name[128];
	int fd;

	(void)snprintf(name, sizeof(name), "%s.log", b->spec->name);
	fd = RETRY_EINTR(openat(b->store->logs, name,
				O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return err_errno(e, "cannot write '%s/logs/%s'", b->store->path, name);
	*ret_fd = fd;
	return 0;
}

static int run(struct image_making *m, const struct image_build *b, struct err *e)
{
	_cleanup_proc_ struct proc producer = PROC_INIT;
	const struct image_finish finish = { .user = b->spec->user, .files = &b->spec->files };
	struct err ended = ERR_INIT;
	int r = open_log(b, &m->job.log, e);

	if (r == 0)
		r = start_producer(m, b, &producer, e);
	if (r < 0)
		return r;
	m->job.spec = (struct work_spec){ .kind = WORK_TAR, .finish = &finish };
	m->job.phase = PHASE_PACKAGES;
	m->job.reporter = b->reporter;
	r = job_run(&m->job, &m->result, e);
	/* A truncated archive is the consequence, mmdebstrap's failure the cause. */
	if (end_producer(&producer, r < 0 && r != -EINVAL, &ended) < 0 &&
	    (r == 0 || r == -EINVAL)) {
		*e = ended;
		r = ended.num;
	}
	return r;
}

static bool is_up_to_date(const struct image_build *b, struct image_done *done)
{
	_cleanup_json_ json_t *info = NULL;
	struct err ignored = ERR_INIT;
	const char *spec, *digest;

	if (b->force || image_store_get(b->store, b->spec->name, &info, &ignored) < 0)
		return false;
	spec = json_string_value(json_object_get(json_object_get(info, "source"), "spec"));
	digest = json_string_value(json_object_get(info, "sha256"));
	if (!spec || !digest || !str_eq(spec, b->spec->digest))
		return false;
	*done = (struct image_done){ .up_to_date = true };
	(void)snprintf(done->digest, sizeof(done->digest), "%s", digest);
	return true;
}

static json_t *info_json(const struct image_spec *s)
{
	json_t *env = json_object();
	int r = env ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < s->policy.env.n; i++)
		r = json_put(env, s->policy.env.v[i].key, json_string(s->policy.env.v[i].value));
	if (r < 0) {
		json_decref(env);
		return NULL;
	}
	return JSON_OBJECT({ "env", env }, { "user", json_string(s->user) },
			   { "workdir", json_string("/workspace") },
			   { "summary", json_string(s->summary ? s->summary : "") },
			   { "source", JSON_OBJECT({ "kind", json_string("build") },
						   { "spec", json_string(s->digest) },
						   { "suite", json_string(s->suite) }) });
}

int image_build(const struct image_build *b, struct image_done *ret, struct err *e)
{
	_cleanup_making_ struct image_making m = IMAGE_MAKING_INIT(b->store);
	int r;

	if (is_up_to_date(b, ret))
		return 0;
	r = image_making_start(&m, b->store, e);
	if (r == 0)
		r = run(&m, b, e);
	return r < 0 ? r : image_making_keep(&m, b->spec->name, info_json(b->spec), ret, e);
}
