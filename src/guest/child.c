/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/str.h"
#include "confine/become.h"
#include "guest/guest-confine.h"
#include "guest/vm.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
	NOFILE_OWN = 8192,
	ENV_ADDED = 4, /* HOME, USER, LOGNAME, PATH */
	RLIMIT_BYTES = 8,
	CWD_BYTES = 4096, /* with the NUL, the kernel's limit */
};

static struct rlimit nofile;
static bool nofile_raised;

void child_start(void)
{
	struct rlimit own;

	if (getrlimit(RLIMIT_NOFILE, &nofile) < 0 || nofile.rlim_cur >= NOFILE_OWN)
		return;
	own = nofile;
	own.rlim_cur = MIN(nofile.rlim_max, (rlim_t)NOFILE_OWN);
	nofile_raised = setrlimit(RLIMIT_NOFILE, &own) == 0;
}

/* ---- failures ---- */

enum wire_code code_of_errno(int err)
{
	switch (err) {
	case ENOENT:
		return WIRE_NOT_FOUND;
	case EEXIST:
		return WIRE_EXISTS;
	case EACCES:
	case EPERM:
	case EROFS:
		return WIRE_PERMISSION;
	case ENOTDIR:
		return WIRE_NOT_DIRECTORY;
	case EISDIR:
		return WIRE_IS_DIRECTORY;
	case ENOTEMPTY:
		return WIRE_NOT_EMPTY;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return WIRE_NO_SPACE;
	case EAGAIN:
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return WIRE_TOO_MANY;
	case EINVAL:
	case ELOOP:
	case ENAMETOOLONG:
		return WIRE_INVALID;
	case EXDEV:
	case ENOSYS:
	case EOPNOTSUPP:
		return WIRE_UNSUPPORTED;
	default:
		return WIRE_IO;
	}
}

int fail_with(struct failure *ret, enum wire_code code, const char *fmt, ...)
{
	va_list ap;

	ret->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(ret->text, sizeof(ret->text), fmt, ap);
	va_end(ap);
	return -1;
}

int fail_errno(struct failure *ret, int err, const char *what, const char *which)
{
	/* Long names are cut off, so that the reason fits. */
	return fail_with(ret, code_of_errno(err), "cannot %s '%.180s': %s", what, which,
			 strerror(err));
}

/* ---- becoming the user ---- */

static int set_limits(const struct fields *f, struct failure *fail)
{
	const char *value;
	size_t pos = 0, n;

	/* Children do not inherit the guest's raised limit; a requested limit overrides it. */
	if (nofile_raised)
		(void)setrlimit(RLIMIT_NOFILE, &nofile);
	while (fields_next(f, TAG_RLIMIT, &pos, &value, &n)) {
		struct reader r = reader_of(value, n);
		unsigned int resource = (unsigned int)reader_be(&r, 1);
		struct rlimit limit;

		limit.rlim_cur = reader_be(&r, RLIMIT_BYTES);
		limit.rlim_max = reader_be(&r, RLIMIT_BYTES);
		if (resource >= RLIM_NLIMITS || limit.rlim_cur > limit.rlim_max)
			return fail_with(fail, WIRE_INVALID, "there is no such limit: %u",
					 resource);
		if (setrlimit((__rlimit_resource_t)resource, &limit) < 0)
			return fail_with(fail, code_of_errno(errno), "cannot set limit %u: %s",
					 resource, strerror(errno));
	}
	return 0;
}

static int switch_user(const struct user *u, struct failure *fail)
{
	bool same = u->uid == geteuid() && u->gid == getegid();
	const char *name = u->name[0] ? u->name : "that number";
	int r;

	/* A user namespace with one user allows no setgroups(2), and has no group to leave. */
	if (setgroups(u->n_groups, u->groups) < 0 && !same)
		return fail_errno(fail, errno == EINVAL ? EPERM : errno, "take the groups of",
				  name);
	r = become_ids(u->uid, u->gid);
	return r < 0 ? fail_errno(fail, r == -EINVAL ? EPERM : -r, "become user", name) : 0;
}

int child_become(const struct fields *f, int terminal, struct user *ret, struct failure *fail)
{
	_cleanup_free_ char *name = NULL;
	struct err e = ERR_INIT;
	bool oom = false;
	int r;

	name = fields_copy(f, TAG_USER, &oom);
	if (oom)
		return fail_with(fail, WIRE_TOO_MANY, "no memory");
	if (user_find(name, ret, &e) < 0)
		return fail_with(fail, WIRE_NO_USER, "%s", e.msg);
	/* If fchown() is not permitted, the user still has the terminal as 0, 1 and 2. */
	if (terminal >= 0 && ret->uid != geteuid())
		(void)!fchown(terminal, ret->uid, (gid_t)-1);
	r = vm_users_join();
	if (r < 0)
		return fail_with(fail, code_of_errno(-r),
				 r == -EAGAIN ? "too many processes" : "cannot count the process");
	if (set_limits(f, fail) < 0 || switch_user(ret, fail) < 0)
		return -1;
	r = confine_child(fields_has(f, TAG_OWNERS) && ret->uid == 0);
	if (r < 0)
		return fail_with(fail, WIRE_IO, "cannot confine the process: %s", strerror(-r));
	return 0;
}

int child_path(const struct fields *f, enum wire_tag tag, const struct user *u, char *ret,
	       size_t size, struct failure *fail)
{
	const char *path = "";
	size_t pos = 0, n = 0;
	int r;

	(void)fields_next(f, tag, &pos, &path, &n);
	r = user_path(u, path, n, ret, size);
	if (r == -EINVAL)
		return fail_with(fail, WIRE_INVALID, "'%.*s' is another user's home directory",
				 (int)MIN(n, (size_t)100), path);
	return r < 0 ? fail_with(fail, WIRE_INVALID, "the path '%.*s...' is too long",
				 (int)MIN(n, (size_t)100), path)
		     : 0;
}

/* ---- running a program ---- */

void child_session(void)
{
	(void)setsid();
}

static int set_stdio(const struct child_spec *spec, struct failure *fail)
{
	const int want[3] = { spec->in, spec->out, spec->err };

	if (!spec->session)
		child_session();
	if (spec->terminal && ioctl(spec->in, TIOCSCTTY, 0) < 0)
		return fail_errno(fail, errno, "take", "the terminal");
	/* Descriptors 0 to 2 belong to the guest; the wanted ones are above them. */
	for (int i = 0; i < 3; i++)
		if (dup2(want[i], i) < 0)
			return fail_errno(fail, errno, "set up", "standard streams");
	/* All descriptors are opened with CLOEXEC; this catches a forgotten one. */
	(void)syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
	return 0;
}

/* Returns the values of a tag as a vector with `extra` free places; one block, never freed. */
static char **collect(const struct fields *f, enum wire_tag tag, size_t extra, size_t *ret_n)
{
	size_t count = 0, pos = 0, n;
	const char *value;
	char **list, *text;

	while (fields_next(f, tag, &pos, &value, &n))
		count++;
	/* A value and its NUL are shorter than the value and its 4-byte header. */
	list = malloc((count + extra + 1) * sizeof(*list) + f->len);
	if (!list)
		return NULL;
	text = (char *)(list + count + extra + 1);
	count = 0;
	for (pos = 0; fields_next(f, tag, &pos, &value, &n); text += n + 1) {
		memcpy(text, value, n);
		text[n] = '\0';
		list[count++] = text;
	}
	list[count] = NULL;
	*ret_n = count;
	return list;
}

static const char *env_get(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* Adds NAME=value unless the environment has NAME. */
static void env_default(char **env, size_t *count, const char *name, const char *value)
{
	if (env_get(env, name) || asprintf(&env[*count], "%s=%s", name, value) < 0) {
		env[*count] = NULL;
		return;
	}
	env[++*count] = NULL;
}

static int make_env(const struct fields *f, const struct user *u, char ***ret, struct failure *fail)
{
	size_t n = 0;
	char **env = collect(f, TAG_ENV, ENV_ADDED, &n);

	if (!env)
		return fail_with(fail, WIRE_TOO_MANY, "no memory");
	for (size_t i = 0; i < n; i++)
		if (env[i][0] == '=' || !strchr(env[i], '='))
			return fail_with(fail, WIRE_INVALID,
					 "'%.100s' is not of the form NAME=value", env[i]);
	env_default(env, &n, "HOME", u->home);
	if (u->name[0]) {
		env_default(env, &n, "USER", u->name);
		env_default(env, &n, "LOGNAME", u->name);
	}
	env_default(env, &n, "PATH", DEFAULT_PATH);
	*ret = env;
	return 0;
}

/* Enters the working directory. The client can tell a bad directory from a missing program. */
static int enter(const struct fields *f, const struct user *u, struct failure *fail)
{
	char cwd[CWD_BYTES];

	if (!fields_has(f, TAG_CWD))
		return chdir(u->home) < 0 && chdir("/") < 0 ? fail_errno(fail, errno, "enter", "/")
							    : 0;
	if (child_path(f, TAG_CWD, u, cwd, sizeof(cwd), fail) < 0)
		return -1;
	if (chdir(cwd) == 0)
		return 0;
	(void)fail_errno(fail, errno, "enter", cwd);
	fail->code = WIRE_NOT_DIRECTORY;
	return -1;
}

/* Tries each directory of PATH as execvpe(3) does. Returns the most specific errno. */
static int run_in_path(char *const *argv, char *const *env)
{
	const char *dirs = env_get(env, "PATH");
	int best = ENOENT;

	if (!dirs) /* env_default() ran out of memory */
		return ENOMEM;
	for (;;) {
		size_t n = strcspn(dirs, ":");
		char path[4096];
		int len = snprintf(path, sizeof(path), "%.*s%s%s", (int)n, dirs, n > 0 ? "/" : "",
				   argv[0]);

		if (len > 0 && (size_t)len < sizeof(path)) {
			(void)execve(path, argv, env);
			if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
				return errno;
			if (errno == EACCES)
				best = EACCES;
		}
		if (dirs[n] == '\0')
			return best;
		dirs += n + 1;
	}
}

static int run(char *const *argv, char *const *env, struct failure *fail)
{
	bool path;
	int err;

	assert(argv[0]); /* the message check requires at least one argument */
	path = strchr(argv[0], '/') != NULL;
	if (argv[0][0] == '\0')
		return fail_with(fail, WIRE_NOT_FOUND, "the program has no name");
	if (path) {
		(void)execve(argv[0], argv, env);
		err = errno;
	} else {
		err = run_in_path(argv, env);
	}
	if (err == ENOENT && path && access(argv[0], F_OK) == 0)
		return fail_with(fail, WIRE_CANNOT_EXECUTE,
				 "cannot run '%.180s': its interpreter is missing", argv[0]);
	(void)fail_errno(fail, err, "run", argv[0]);
	if (err != ENOENT && err != EACCES && err != EPERM)
		fail->code = WIRE_CANNOT_EXECUTE;
	return -1;
}

/* The client chooses the paths from here on; /proc/self/fd must not offer open directories. */
static int close_others(const struct child_spec *spec, struct failure *fail)
{
	const unsigned int report = (unsigned int)spec->report;

	if ((report > 3 && syscall(SYS_close_range, 3, report - 1, 0) < 0) ||
	    syscall(SYS_close_range, report + 1, ~0U, 0) < 0)
		return fail_errno(fail, errno, "close", "descriptors");
	return 0;
}

static int try_exec(const struct child_spec *spec, struct failure *fail)
{
	struct user user = { 0 };
	size_t n;
	char **argv = collect(spec->fields, TAG_ARGV, 0, &n), **env = NULL;
	sigset_t none;

	if (!argv)
		return fail_with(fail, WIRE_TOO_MANY, "no memory");
	if (set_stdio(spec, fail) < 0 ||
	    child_become(spec->fields, spec->terminal ? 0 : -EBADF, &user, fail) < 0 ||
	    close_others(spec, fail) < 0 || make_env(spec->fields, &user, &env, fail) < 0 ||
	    enter(spec->fields, &user, fail) < 0)
		return -1;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	return run(argv, env, fail);
}

void child_exec(const struct child_spec *spec)
{
	struct failure fail = { 0 };

	if (try_exec(spec, &fail) < 0)
		(void)fd_write_all(spec->report, &fail, sizeof(fail));
	_exit(127);
}
