/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the value of a secret. The buffer has its full size before the first byte, so it never
 * moves and leaves no copy behind; no other buffer gets a byte of the value.
 */
#include "cli/secret-input.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "cli/secret-refresh.h"

enum {
	LINE_END = 3,	      /* bytes: "\r\n", and one more, which only a longer value fills */
	TERMINAL_LINE = 4095, /* the kernel drops the rest of a longer line, without an error */
};

int secret_input_source(const struct invocation *inv, struct secret_origin *ret)
{
	const bool file = cli_option(inv, "file"), env = cli_option(inv, "env"),
		   exec = cli_option(inv, "exec"), oauth = cli_option(inv, "oauth"),
		   app = cli_option(inv, "github-app");
	struct secret_origin o = { .source = isatty(STDIN_FILENO) ? SECRET_PROMPT : SECRET_STDIN };

	if (file + env + exec + oauth + app > 1)
		return cli_usage(inv,
				 "--file, --env, --exec, --oauth and --github-app exclude each "
				 "other");
	if (inv->n_args > 1 && !exec)
		return cli_usage(inv,
				 "a value is not an argument: other users see command lines (ps), "
				 "and the shell keeps them; consider this value leaked. Use the "
				 "prompt, standard input, --file, --env or --exec");
	if (exec && inv->n_args < 2)
		return cli_usage(inv, "--exec needs a command, as in: --exec -- pass show name");
	if (file)
		o.source = SECRET_FILE;
	if (env)
		o.source = SECRET_ENV;
	if (oauth || app)
		o.source = oauth ? SECRET_OAUTH : SECRET_GITHUB_APP;
	if (exec)
		o = (struct secret_origin){ .source = SECRET_EXEC,
					    .command = inv->args + 1,
					    .n = (size_t)inv->n_args - 1 };
	*ret = o;
	return EXIT_OK;
}

/* ---- descriptors ---- */

/* Reads what is there. 1 at the end of the file, 0 if a nonblocking descriptor is empty now. */
static int read_more(int fd, struct buf *b)
{
	for (;;) {
		ssize_t k;

		if (b->len == b->max)
			return -EFBIG;
		k = read(fd, b->data + b->len, b->max - b->len);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (k == 0)
			return 1;
		buf_commit(b, (size_t)k);
	}
}

static int wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return RETRY_EINTR(poll(&p, 1, -1)) < 0 ? -errno : 0;
}

/* The descriptor may be nonblocking: we share it with other processes. */
static int read_all(int fd, struct buf *b)
{
	int r = read_more(fd, b);

	while (r == 0) {
		r = wait_readable(fd);
		if (r == 0)
			r = read_more(fd, b);
	}
	return r < 0 ? r : 0;
}

static int explain(int r, const char *from, struct err *e)
{
	if (r == -EFBIG)
		return err_set(e, -EINVAL, "%s: the value is longer than %d bytes", from,
			       SECRET_VALUE_MAX);
	return err_set(e, r, "cannot read %s: %s", from, strerror(-r));
}

static int read_file(const struct invocation *inv, const char *path, struct buf *b, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;
	int r;

	/* A FIFO is welcome: <(command) in a shell. Opening it waits for its writer. */
	fd = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY));
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, -errno, "cannot open '%.128s': %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return err_set(e, -EINVAL, "'%.128s' is not a file", path);
	if (S_ISREG(st.st_mode) && (st.st_mode & (S_IRGRP | S_IROTH)))
		(void)fprintf(stderr,
			      "%s: warning: other users can read this file: remove it, or change "
			      "its mode to 0600\n",
			      inv->path);
	r = read_all(fd, b);
	return r < 0 ? explain(r, "the file", e) : 0;
}

static int read_env(const char *variable, struct buf *b, struct err *e)
{
	char *value = getenv(variable);
	size_t n = value ? strlen(value) : 0;

	if (!value)
		return err_set(e, -EINVAL, "no variable '%.128s' in the environment", variable);
	if (buf_put(b, value, n) < 0)
		return explain(-EFBIG, "the variable", e);
	explicit_bzero(value, n);
	return 0;
}

/* ---- a prompt ---- */

/* Signals that end or stop us; they wait until the terminal echoes again. */
static const int delayed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };

struct prompt {
	struct termios before;
	sigset_t mask;
	int signals;
};

static int prompt_begin(struct prompt *p)
{
	struct termios quiet;
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(delayed); i++)
		(void)sigaddset(&set, delayed[i]);
	if (tcgetattr(STDIN_FILENO, &p->before) < 0)
		return -errno;
	p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p->signals < 0 || sigprocmask(SIG_BLOCK, &set, &p->mask) < 0)
		return -errno;
	quiet = p->before;
	quiet.c_lflag &= (tcflag_t)~ECHO;
	quiet.c_lflag |= ICANON | ECHONL | ISIG;
	/* Keys typed before the prompt were shown: they are dropped. */
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0)
		return 0;
	(void)sigprocmask(SIG_SETMASK, &p->mask, NULL);
	return -errno;
}

/* Signals that arrived take effect here. */
static void prompt_end(struct prompt *p)
{
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &p->before);
	p->signals = fd_close(p->signals);
	(void)sigprocmask(SIG_SETMASK, &p->mask, NULL);
}

/* Reads one line. -EINTR: a signal arrived, or is about to. */
static int read_line(const struct prompt *p, struct buf *b)
{
	struct pollfd f[] = { { .fd = STDIN_FILENO, .events = POLLIN },
			      { .fd = p->signals, .events = POLLIN } };

	while (b->len == 0 || b->data[b->len - 1] != '\n') {
		ssize_t k;

		if (RETRY_EINTR(poll(f, ARRAY_SIZE(f), -1)) < 0)
			return -errno;
		if (f[1].revents)
			return -EINTR;
		if (b->len == b->max)
			return -EFBIG;
		k = RETRY_EINTR(read(STDIN_FILENO, b->data + b->len, b->max - b->len));
		if (k < 0 && errno != EAGAIN)
			return -errno;
		if (k == 0)
			return b->len > 0 ? 0 : -ENODATA;
		if (k > 0)
			buf_commit(b, (size_t)k);
	}
	return 0;
}

static int ask(const char *before, const char *name, struct buf *b, struct err *e)
{
	struct prompt p = { .signals = -EBADF };
	int r;

	do { /* again after a stop and a SIGCONT */
		buf_reset(b);
		r = prompt_begin(&p);
		if (r < 0)
			break;
		(void)fprintf(stderr, "%s %s: ", before, name);
		r = read_line(&p, b);
		prompt_end(&p);
		if (r == -EINTR)
			(void)fputc('\n', stderr);
	} while (r == -EINTR);
	(void)fd_close(p.signals);
	if (r == 0 && b->len >= TERMINAL_LINE)
		return err_set(e, -EINVAL,
			       "the value is too long for a line of a terminal: use --file or "
			       "standard input");
	if (r == -ENODATA)
		return err_set(e, -EINVAL, "no value");
	return r < 0 ? explain(r, "the terminal", e) : 0;
}

/* Makes room once: the buffer never moves. */
static int make_room(struct buf *b, struct err *e)
{
	b->max = SECRET_VALUE_MAX + LINE_END;
	return buf_reserve(b, b->max) ? 0 : err_oom(e);
}

static int read_prompt(const char *name, struct buf *b, struct err *e)
{
	_cleanup_secret_ struct buf again = BUF_INIT(0);
	int r = ask("value of", name, b, e);

	if (r == 0)
		r = make_room(&again, e);
	if (r == 0)
		r = ask("the same again for", name, &again, e);
	if (r < 0)
		return r;
	if (b->len != again.len || memcmp(b->data, again.data, b->len) != 0)
		return err_set(e, -EINVAL, "the two values differ");
	return 0;
}

/* ---- a command ---- */

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

/* Looks in the user's $PATH, as a shell does, but not in relative directories. */
static int find_program(const char *name, char ret[static PATH_MAX], struct err *e)
{
	const char *path = getenv("PATH");
	int k;

	if (name[0] == '/') {
		k = snprintf(ret, PATH_MAX, "%s", name);
		if (k > 0 && k < PATH_MAX)
			return 0;
	}
	for (; path && *path; path += *path == ':') {
		int n = (int)strcspn(path, ":");

		k = snprintf(ret, PATH_MAX, "%.*s/%s", n, path, name);
		if (path[0] == '/' && k > 0 && k < PATH_MAX && is_program(ret))
			return 0;
		path += n;
	}
	return err_set(e, -ENOENT, "no program '%.80s' in $PATH", name);
}

/* Collects the output until the command ends or closes it; later writers are ignored. */
static int collect(const struct proc *p, int from, struct buf *b)
{
	struct pollfd f[] = { { .fd = from, .events = POLLIN },
			      { .fd = p->pidfd, .events = POLLIN } };
	int r = 0;

	while (r == 0 && !f[1].revents) {
		if (RETRY_EINTR(poll(f, ARRAY_SIZE(f), -1)) < 0)
			return -errno;
		r = read_more(from, b);
	}
	return r < 0 ? r : 0;
}

static int run(const char *path, const struct secret_origin *o, struct buf *b, siginfo_t *ret_info,
	       struct err *e)
{
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct proc_spec spec = { .path = path,
				  .argv = o->command,
				  .env = (const char *const *)environ,
				  .in = STDIN_FILENO,
				  .err = STDERR_FILENO };
	int r = fd_pipe(0, &from, &to);

	if (r == 0 && fcntl(from, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0)
		return err_set(e, r, "cannot make a pipe: %s", strerror(-r));
	spec.out = to;
	r = proc_spawn(&spec, &p, e);
	to = fd_close(to);
	if (r < 0)
		return r;
	r = collect(&p, from, b);
	if (r < 0)
		return explain(r, "the output of the command", e);
	r = proc_wait(&p, UINT64_MAX, ret_info);
	return r < 0 ? err_set(e, r, "cannot wait for the command: %s", strerror(-r)) : 0;
}

static int read_command(const struct secret_origin *o, struct buf *b, struct err *e)
{
	siginfo_t info = { 0 };
	char path[PATH_MAX];
	int r = secret_command_check(o->command, o->n, e);

	if (r == 0)
		r = find_program(o->command[0], path, e);
	if (r == 0)
		r = run(path, o, b, &info, e);
	if (r < 0)
		return r;
	if (info.si_code != CLD_EXITED)
		return err_set(e, -EINVAL, "the command '%.80s' was killed by signal %d",
			       o->command[0], info.si_status);
	if (info.si_status != 0)
		return err_set(e, -EINVAL, "the command '%.80s' failed with status %d",
			       o->command[0], info.si_status);
	return 0;
}

/* "-" is standard input. */
static int read_credential(const struct invocation *inv, enum secret_source source, struct buf *b,
			   struct err *e)
{
	const char *path = cli_option(inv, source == SECRET_OAUTH ? "oauth" : "github-app");
	_cleanup_secret_ struct buf text = BUF_INIT(0);
	int r = make_room(&text, e);

	if (r == 0 && str_eq(path, "-")) {
		r = read_all(STDIN_FILENO, &text);
		if (r < 0)
			r = explain(r, "standard input", e);
	} else if (r == 0) {
		r = read_file(inv, path, &text, e);
	}
	return r < 0 ? r : secret_credential_text(path, source, &text, b, e);
}

int secret_input_read(const struct invocation *inv, const char *name,
		      const struct secret_origin *origin, struct buf *ret, struct err *e)
{
	int r = make_room(ret, e);

	if (r < 0)
		return r;
	switch (origin->source) {
	case SECRET_PROMPT:
		r = read_prompt(name, ret, e);
		break;
	case SECRET_FILE:
		r = read_file(inv, cli_option(inv, "file"), ret, e);
		break;
	case SECRET_ENV:
		r = read_env(cli_option(inv, "env"), ret, e);
		break;
	case SECRET_EXEC:
		r = read_command(origin, ret, e);
		break;
	case SECRET_OAUTH:
	case SECRET_GITHUB_APP:
		r = read_credential(inv, origin->source, ret, e);
		break;
	default:
		r = read_all(STDIN_FILENO, ret);
		if (r < 0)
			r = explain(r, "standard input", e);
	}
	if (r < 0)
		return r;
	secret_value_trim(ret);
	return secret_value_check(ret->data, ret->len, e);
}
