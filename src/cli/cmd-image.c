/* SPDX-License-Identifier: Apache-2.0 */
/* hutch image build, import, ls, inspect, rm; hutch commit */
#include <string.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/cli-sandbox.h"
#include "cli/view.h"
#include "image/image-make.h"
#include "policy/store.h"

enum {
	LOG_TAIL_LINES = 15,
	LOG_BYTES_MAX = 20 * 1024 * 1024,
	COLUMNS = 80
};

static const char *const phases[] = {
	[PHASE_START] = "starting",   [PHASE_PACKAGES] = "packages",
	[PHASE_UNPACK] = "unpacking", [PHASE_VERIFY] = "checking blobs",
	[PHASE_DIGEST] = "digest",    [PHASE_KEEP] = "writing to disk",
};

static_assert(ARRAY_SIZE(phases) == PHASE_MAX, "every phase has a name");

/* ---- progress, on stderr ---- */

struct progress {
	bool terminal;
	bool drawn;
	enum image_phase phase;
	char line[256];
};

static int columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : COLUMNS;
}

/* Redraws one line. */
static void draw(struct progress *p, const struct image_progress *now)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	char size[32];

	view_size(now->bytes, size, sizeof(size));
	(void)buf_printf(&b, "%s  %llu:%02llu", phases[now->phase],
			 (unsigned long long)now->seconds / 60,
			 (unsigned long long)now->seconds % 60);
	if (now->entries > 0)
		(void)buf_printf(&b, "  %llu files, %s", (unsigned long long)now->entries, size);
	else if (now->line) {
		(void)buf_puts(&b, "  ");
		(void)str_escape(&b, now->line, strlen(now->line));
	}
	/* Cut by bytes: terminals do not show an incomplete character. */
	(void)fprintf(stderr, "\r\033[K%.*s", columns() - 1, buf_text(&b));
	p->drawn = true;
}

static void plain(struct progress *p, const struct image_progress *now)
{
	if (now->phase != p->phase)
		(void)fprintf(stderr, "%s\n", phases[now->phase]);
	if (now->line && strcmp(now->line, p->line) != 0 && now->phase == PHASE_PACKAGES) {
		(void)snprintf(p->line, sizeof(p->line), "%s", now->line);
		/* mmdebstrap's own messages; the output of apt and dpkg is in the log. */
		if (str_has_prefix(now->line, "I: ")) {
			cli_puts(stderr, now->line);
			(void)fputc('\n', stderr);
		}
	}
	p->phase = now->phase;
}

static void show_progress(void *arg, const struct image_progress *now)
{
	struct progress *p = arg;

	if (p->terminal)
		draw(p, now);
	else
		plain(p, now);
}

static void progress_end(struct progress *p)
{
	if (p->drawn)
		(void)fputs("\r\033[K", stderr);
	p->drawn = false;
}

/* ---- results ---- */

static int print_done(const struct invocation *inv, const char *name, const struct image_done *d)
{
	const struct image_counts *c = &d->counts;
	uint64_t dropped = c->devices + c->fifos + c->covered;
	char size[32];

	if (cli_option(inv, "json"))
		return cli_print_json(JSON_OBJECT({ "name", json_string(name) },
						  { "sha256", json_string(d->digest) },
						  { "up_to_date", json_boolean(d->up_to_date) }),
				      EXIT_OK);
	(void)printf("%s  sha256:%s", name, d->digest);
	if (d->up_to_date) {
		(void)puts("  up to date");
		return EXIT_OK;
	}
	view_size(d->tree.bytes, size, sizeof(size));
	(void)printf("  %llu files, %s%s\n", (unsigned long long)d->tree.files, size,
		     d->is_new ? "" : ", the same tree as before");
	if (dropped + c->setids + c->xattrs > 0)
		(void)fprintf(
			stderr,
			"by rule: %llu device nodes, FIFOs and files under mount points left out, "
			"%llu set-ID bits cleared, %llu extended attributes left out\n",
			(unsigned long long)dropped, (unsigned long long)c->setids,
			(unsigned long long)c->xattrs);
	return EXIT_OK;
}

/* Prints the end of mmdebstrap's messages. */
static void print_log(const struct image_store *s, const char *name)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LOG_BYTES_MAX);
	struct err ignored = ERR_INIT;
	const char *text, *at;
	char file[128];
	int lines = 0;

	(void)snprintf(file, sizeof(file), "%s.log", name);
	if (fd_read_file(s->logs, file, &b, &ignored) < 0 || b.len == 0)
		return;
	text = buf_text(&b);
	for (at = text + b.len - 1; at > text && lines < LOG_TAIL_LINES; at--)
		lines += at[-1] == '\n';
	for (at = at > text ? at + 1 : at; *at;) {
		_cleanup_buf_ struct buf line = BUF_INIT(64 * 1024);
		size_t n = strcspn(at, "\n");

		(void)str_escape(&line, at, n);
		(void)fprintf(stderr, "  %s\n", buf_text(&line));
		at += n + (at[n] == '\n');
	}
	(void)fprintf(stderr, "All of it: %s/logs/%s\n", s->path, file);
	(void)fputs("If a package was not found or could not be fetched, check that this host can "
		    "reach the "
		    "mirror, and try again.\n",
		    stderr);
}

/* ---- the audit log ---- */

/* Records the intent to change an image; on failure the image must not change. */
static int intend(const char *op, const char *name, const char *key, const char *value,
		  struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, op, "image", name);
	if (value)
		audit_put_text(&p, key, value);
	return cli_audit(AUDIT_IMAGE, &p, e);
}

static void outcome(const struct invocation *inv, const char *name, const char *digest,
		    const struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, inv->cmd->name, "image", name);
	audit_put_text(&p, "result", e->num ? "failed" : "done");
	if (e->num)
		audit_put_text(&p, "text", e->msg);
	else if (digest)
		audit_put_text(&p, "sha256", digest);
	cli_audit_try(inv, AUDIT_IMAGE, &p);
}

/* ---- commands ---- */

static int run_image_build(struct invocation *inv)
{
	_cleanup_default_store_ struct default_store s = { 0 };
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	_cleanup_image_spec_ struct image_spec *spec = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	struct progress p = { .terminal = isatty(STDERR_FILENO) };
	struct image_done done = { 0 };
	struct err e = ERR_INIT;
	bool intended;
	int r = cli_store_open(&s, inv, &e);

	if (r == 0)
		r = image_spec_read(&s.store, inv->args[0], &d, &spec, &e);
	cli_diags(stderr, &d);
	if (r == 0)
		r = image_store_open(&images, true, &e);
	if (r == 0)
		r = intend("build", spec->name, "mirror", cli_option(inv, "mirror"), &e);
	intended = r == 0;
	if (r == 0)
		r = image_build(&(struct image_build){ .store = &images,
						       .spec = spec,
						       .mirror = cli_option(inv, "mirror"),
						       .force = cli_option(inv, "force"),
						       .reporter = { show_progress, &p } },
				&done, &e);
	progress_end(&p);
	if (intended)
		outcome(inv, spec->name, done.digest, &e);
	if (r == 0)
		return print_done(inv, spec->name, &done);
	r = cli_fail(inv, &e);
	if (spec && str_has_prefix(e.msg, "mmdebstrap failed"))
		print_log(&images, spec->name);
	return r;
}

static int run_image_import(struct invocation *inv)
{
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	struct progress p = { .terminal = isatty(STDERR_FILENO) };
	const char *name = inv->args[0];
	struct image_done done = { 0 };
	struct err e = ERR_INIT;
	bool intended;
	int r;

	if (!image_name_valid(name))
		return cli_usage(inv, "'%s' is not a name: " IMAGE_NAME_RULE, name);
	r = image_store_open(&images, true, &e);
	if (r == 0)
		r = intend("import", name, "source", inv->args[1], &e);
	intended = r == 0;
	if (r == 0)
		r = image_import(&images, name, inv->args[1],
				 (struct image_reporter){ show_progress, &p }, &done, &e);
	progress_end(&p);
	if (intended)
		outcome(inv, name, done.digest, &e);
	return r < 0 ? cli_fail(inv, &e) : print_done(inv, name, &done);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void print_row(const json_t *one)
{
	const json_t *source = json_object_get(one, "source");
	char size[32];

	(void)printf("%-20s ", text_of(one, "name"));
	if (json_object_get(one, "error")) {
		cli_puts(stdout, text_of(one, "error"));
		(void)fputc('\n', stdout);
		return;
	}
	view_size((uint64_t)json_integer_value(json_object_get(one, "size")), size, sizeof(size));
	(void)printf("%.12s  %10s  %-14s %.19s  ", text_of(one, "sha256"), size,
		     text_of(source, "kind"), text_of(one, "created"));
	cli_puts(stdout,
		 text_of(one, "summary")[0] ? text_of(one, "summary") : text_of(source, "file"));
	(void)fputc('\n', stdout);
}

static int run_image_ls(struct invocation *inv)
{
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	_cleanup_json_ json_t *list = NULL;
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;
	int r = image_store_open(&images, false, &e);

	if (r == 0)
		r = image_store_list(&images, &list, &e);
	else if (r == -ENOENT && (list = json_array()))
		r = 0;
	if (r < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(TAKE_PTR(list), EXIT_OK);
	if (json_array_size(list) == 0)
		(void)fputs("no images yet: hutch image build base\n", stderr);
	json_array_foreach(list, i, one)
	{
		print_row(one);
	}
	return EXIT_OK;
}

/* ---- commit ---- */

/* `env` has room for all given options. */
static int commit_options(const struct invocation *inv, struct sandbox_commit *c, const char **env)
{
	const char *size = cli_option(inv, "max-size");

	for (int i = 0; i < inv->n_given; i++)
		if (str_eq(inv->given[i].name, "env"))
			*env++ = inv->given[i].value;
	c->config.user = cli_option(inv, "user");
	c->config.workdir = cli_option(inv, "workdir");
	c->config.start = cli_option(inv, "start");
	c->config.ready = cli_option(inv, "ready");
	if (!image_name_valid(c->name))
		return cli_usage(inv, "'%s' is not a name: " IMAGE_NAME_RULE, c->name);
	if (size && (value_size(size, &c->max_bytes) < 0 || c->max_bytes == 0))
		return cli_usage(inv, "--max-size '%s': expected a size such as 10GiB", size);
	return EXIT_OK;
}

static int run_commit(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct progress p = { .terminal = isatty(STDERR_FILENO) };
	struct sandbox_commit c = { .name = inv->args[1], .reporter = { show_progress, &p } };
	const char *env[OPTIONS_MAX + 1] = { NULL };
	char note[ERR_MSG_MAX] = "";
	struct image_done done = { 0 };
	struct err e = ERR_INIT;
	bool intended;
	int r = commit_options(inv, &c, env);

	c.config.env = env;
	if (r != EXIT_OK)
		return r;
	r = cli_state_open(&root, &e);
	if (r == 0)
		r = sandbox_find(&root, inv->args[0], &b, &e);
	if (r == 0)
		r = intend("commit", c.name, "source", b.id, &e);
	intended = r == 0;
	if (r == 0)
		r = sandbox_commit(&b, &c, note, &done, &e);
	progress_end(&p);
	if (intended)
		outcome(inv, c.name, done.digest, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	if (note[0]) {
		(void)fprintf(stderr, "%s: ", inv->path);
		cli_puts(stderr, note);
		(void)fputc('\n', stderr);
	}
	return print_done(inv, c.name, &done);
}

/* Without a store no image exists. */
static int open_existing(const char *name, struct image_store *s, struct err *e)
{
	int r = image_store_open(s, false, e);

	return r == -ENOENT ? err_set(e, r, "no image '%s'", name) : r;
}

/* Prints words roughly as in a shell: a word with a space is quoted. */
static void print_words(const json_t *list)
{
	json_t *word;
	size_t i;

	json_array_foreach(list, i, word)
	{
		const char *s = json_string_value(word) ?: "?";
		const char *quote = s[strcspn(s, " \t\n'\"")] || !s[0] ? "'" : "";

		(void)printf("%s%s", i > 0 ? " " : "", quote);
		cli_puts(stdout, s);
		(void)fputs(quote, stdout);
	}
}

static void print_value(const char *indent, const char *key, const json_t *value)
{
	const char *name;
	json_t *inner;

	if (json_is_object(value)) {
		if (json_object_size(value) > 0)
			(void)printf("%s%s\n", indent, key);
		json_object_foreach((json_t *)value, name, inner)
		{
			print_value("  ", name, inner);
		}
		return;
	}
	(void)printf("%s", indent);
	cli_puts(stdout, key);
	(void)printf("%*s ", MAX(20 - (int)strlen(key) - (int)strlen(indent), 0), "");
	if (json_is_string(value))
		cli_puts(stdout, json_string_value(value));
	else if (json_is_integer(value))
		(void)printf("%lld", (long long)json_integer_value(value));
	else if (json_is_array(value))
		print_words(value);
	else
		(void)fputs(json_is_true(value) ? "yes" : "no", stdout);
	(void)fputc('\n', stdout);
}

static int run_image_inspect(struct invocation *inv)
{
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	_cleanup_json_ json_t *one = NULL;
	struct err e = ERR_INIT;
	const char *key;
	json_t *value;
	int r = open_existing(inv->args[0], &images, &e);

	if (r == 0)
		r = image_store_get(&images, inv->args[0], &one, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(TAKE_PTR(one), EXIT_OK);
	json_object_foreach(one, key, value)
	{
		print_value("", key, value);
	}
	return EXIT_OK;
}

static int run_image_rm(struct invocation *inv)
{
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	_cleanup_json_ json_t *one = NULL;
	struct id_ranges ids = { 0 };
	struct err e = ERR_INIT, ignored = ERR_INIT;
	bool tree = false, intended;
	int r = open_existing(inv->args[0], &images, &e);

	if (r == 0)
		r = ids_find(&ids, &e);
	/* An image with a damaged description has no digest. */
	if (r == 0)
		(void)image_store_get(&images, inv->args[0], &one, &ignored);
	if (r == 0)
		r = intend("rm", inv->args[0], "sha256", text_of(one, "sha256"), &e);
	intended = r == 0;
	if (r == 0)
		r = image_store_remove(&images, inv->args[0], &ids, sandbox_needs_image, &tree, &e);
	if (intended)
		outcome(inv, inv->args[0], NULL, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	(void)printf("%s: removed%s\n", inv->args[0],
		     tree ? ", with its tree" : ", its tree has other names");
	return EXIT_OK;
}

/* clang-format off */
static const struct command cmd_image_build = {
	.name = "build", .args = "IMAGE", .min_args = 1, .max_args = 1,
	.summary = "build the image of a file images/NAME.yaml or of an agent",
	.help = "IMAGE is the name of an image file or of an agent, or a path to a file of either kind. An agent's image is\n"
		"'base' with the packages, scripts and environment of its policy. Needs mmdebstrap. An unchanged image is\n"
		"not built again.",
	.options = OPTIONS(
		OPT_JSON, OPT_INCLUDE,
		{ "force", 'f', NULL, "build even if nothing has changed" },
		{ "mirror", 'm', "URL", "fetch packages from this mirror" }),
	.run = run_image_build,
};

static const struct command cmd_image_import = {
	.name = "import", .args = "NAME FILE", .min_args = 2, .max_args = 2,
	.summary = "import a root tarball, a saved image or an OCI image layout",
	.help = "FILE is a tar archive, plain or compressed (gzip, zstd, xz): a root tree, or an image that 'docker save' or\n"
		"'skopeo copy' wrote (docker-archive, oci-archive); or the directory of an OCI image layout.\n"
		"FILE:TAG or FILE:NAME:TAG chooses one of several images. Device nodes, FIFOs and extended attributes are\n"
		"left out, set-ID bits cleared. Rejects names that lead out of the tree, and a /dev, /proc, /sys or\n"
		"/run that is not a directory.",
	.options = OPTIONS(OPT_JSON), .run = run_image_import,
};

static const struct command cmd_image_ls = {
	.name = "ls", .args = "",
	.summary = "list the images", .options = OPTIONS(OPT_JSON), .run = run_image_ls,
};

static const struct command cmd_image_inspect = {
	.name = "inspect", .args = "NAME", .min_args = 1, .max_args = 1,
	.summary = "show the properties of an image", .options = OPTIONS(OPT_JSON), .run = run_image_inspect,
};

static const struct command cmd_image_rm = {
	.name = "rm", .args = "NAME", .min_args = 1, .max_args = 1,
	.summary = "remove an image, and its tree if nothing else uses it", .run = run_image_rm,
};

const struct command cmd_commit = {
	.name = "commit", .args = "ID NAME", .min_args = 2, .max_args = 2,
	.summary = "make an image from the current files of a sandbox",
	.help = "Owners, modes and links are kept. The image omits the contents of /dev, /proc, /sys and /tmp, files in\n"
		"/run, and set-ID bits. Variables, user, working directory and commands are those of the sandbox's image,\n"
		"unless options change them. NAME may have a tag: NAME:TAG. The sandbox keeps running.",
	.options = OPTIONS(
		OPT_JSON,
		{ "env", 'e', "NAME=VALUE", "set a variable of the image (can be repeated)" },
		{ "user", 'u', "USER", "user that runs commands" },
		{ "workdir", 'w', "DIR", "working directory of commands" },
		{ "start", 0, "COMMAND", "command to start in sandboxes of the image, for /bin/sh -c" },
		{ "ready", 0, "COMMAND", "readiness check: exits 0 when the start command is ready, for /bin/sh -c" },
		{ "max-size", 0, "SIZE", "maximum number of bytes to copy out of the sandbox" }),
	.run = run_commit,
};

const struct command cmd_image = {
	.name = "image", .args = "",
	.summary = "build, import and list the root trees of sandboxes",
	.sub = COMMANDS(&cmd_image_build, &cmd_image_import, &cmd_image_ls, &cmd_image_inspect, &cmd_image_rm, &cmd_image_kernel),
};
/* clang-format on */
