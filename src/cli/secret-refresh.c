/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/secret-refresh.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/proc.h"
#include "base/str.h"
#include "policy/yaml-tree.h"
#include "sandbox/sandbox.h"
#include "token/credential.h"
#include "vm/host-config.h"

enum {
	OUTPUT_MAX = 1024,
	ROOTS_MAX = 1024 * 1024,
};

/* ---- credentials ---- */

/* Every scalar is a text. */
static json_t *json_of(const struct yaml_node *n)
{
	json_t *o;

	if (n->kind == YAML_SCALAR)
		return json_stringn(n->text, n->len);
	o = n->kind == YAML_LIST ? json_array() : json_object();
	yaml_foreach (child, n) {
		int r = !o		       ? -ENOMEM
			: n->kind == YAML_LIST ? json_push(o, json_of(child))
					       : json_put(o, child->key, json_of(child));

		if (r < 0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

/* A message of the parser names positions, not contents, except for keys. */
static int parse(const struct source *src, json_t **ret, struct err *e)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT;
	struct diags d = { 0 };
	const struct yaml_node *root = yaml_read(&arena, src, &d);
	int r = 0;

	if (!root || d.errors > 0)
		r = err_set(e, -EINVAL, "'%.128s' is not strict YAML or JSON", src->label);
	else if (root->kind != YAML_MAP)
		r = err_set(e, -EINVAL, "'%.128s' is not a mapping", src->label);
	else if (!(*ret = json_of(root)))
		r = err_oom(e);
	diags_done(&d);
	return r;
}

int secret_credential_text(const char *path, enum secret_source type, const struct buf *text,
			   struct buf *ret, struct err *e)
{
	const struct source src = { .label = path, .text = buf_text(text), .len = text->len };
	_cleanup_credential_ struct credential c = { 0 };
	_cleanup_json_ json_t *o = NULL;
	char *line;
	int r = parse(&src, &o, e);

	if (r < 0)
		return r;
	line = json_write_line(o);
	if (!line)
		return err_oom(e);
	r = credential_parse(line, strlen(line), type, &c, e);
	if (r == 0 && buf_puts(ret, line) < 0)
		r = err_set(e, -EINVAL, "the credential is longer than %d bytes", SECRET_VALUE_MAX);
	explicit_bzero(line, strlen(line));
	free(line);
	return r;
}

/* ---- hutch-token ---- */

/* The CAs of tap_roots in host.yaml, as a file to read from. */
static int open_roots(int *ret_fd, struct err *e)
{
	_cleanup_buf_ struct buf roots = BUF_INIT(ROOTS_MAX);
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_close_ int fd = memfd_create("roots", MFD_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "cannot make a file in memory");
	if (host_config_load(&config, e) < 0)
		return e->num;
	if (config.tap_roots[0] && fd_read_file(AT_FDCWD, config.tap_roots, &roots, e) < 0)
		return err_wrap(e, "tap_roots of host.yaml");
	if (fd_write_all(fd, buf_text(&roots), roots.len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot write a file in memory");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int run(const struct secret_store *s, const char *const *argv, struct buf *out,
	       siginfo_t *ret_info, struct err *e)
{
	_cleanup_close_ int roots = -EBADF, from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct proc_spec spec = { .argv = argv, .more = &s->dir, .n_more = 1 };
	char program[PATH_MAX];
	int r;

	if (sandbox_find_program("hutch-token", program, e) < 0 || open_roots(&roots, e) < 0)
		return e->num;
	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot make a pipe");
	spec.path = program;
	spec.in = roots;
	spec.out = spec.err = to;
	if (proc_spawn(&spec, &p, e) < 0)
		return e->num;
	to = fd_close(to);
	r = fd_read_all(from, out);
	if (r == 0)
		r = proc_wait(&p, UINT64_MAX, ret_info);
	return r < 0 ? err_set(e, r, "cannot wait for hutch-token: %s", strerror(-r)) : 0;
}

int secret_refresh(const struct secret_store *s, const char *name, bool force,
		   char ret[static SECRET_REFRESH_TEXT], struct err *e)
{
	const char *const always[] = { "hutch-token", "--force", name, NULL }, *const soon[] = {
		"hutch-token", name, NULL
	};
	_cleanup_buf_ struct buf out = BUF_INIT(OUTPUT_MAX);
	siginfo_t info = { 0 };
	const char *text;
	int r;

	/* Says what is missing, without a process. */
	r = secret_has(s, name, e);
	if (r == 0) {
		_cleanup_buf_ struct buf none = BUF_INIT(SECRET_VALUE_MAX);

		r = secret_get(s, name, &none, e);
	}
	if (r < 0)
		return r;
	r = run(s, force ? always : soon, &out, &info, e);
	if (r < 0)
		return r;
	text = buf_text(&out);
	if (info.si_code == CLD_EXITED && info.si_status == 0) {
		(void)snprintf(ret, SECRET_REFRESH_TEXT, "%.*s", (int)strcspn(text, "\n"), text);
		return 0;
	}
	return err_set(e, -EACCES, "no token: %.*s", (int)strcspn(text, "\n"),
		       text[0] ? text : "hutch-token was killed");
}
