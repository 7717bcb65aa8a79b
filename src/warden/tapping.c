/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in hutch-tap. It makes the sandbox's CA before the sandbox starts, starts
 * hutch-tap when the keeper first needs it, and gives it the values of secrets, again whenever the
 * store changes. The keeper gets a socket to hutch-tap and never sees a value.
 *
 * Programs of a saved VM hold the CA's certificate in memory. So a snapshot carries the CA, sealed
 * under the host key in a file that the VM never sees, and every VM that starts from the snapshot
 * continues it.
 *
 * hutch-tap parses bytes of the sandbox and of servers. It gets only this sandbox's secrets, and a
 * user id that no other process of the host has.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/oci.h"
#include "tap-link/tap-link.h"
#include "warden/warden.h"

#define SAVED_CA   "box/ca"
#define CA_PURPOSE "hutch sandbox CA"

enum {
	CA_S = 30,	       /* for making a CA */
	CA_OUTPUT_MAX = 16384, /* JSON with certificate and key */
	ROOTS_MAX = 1024 * 1024,
	AGAIN_S = 1, /* between two starts */
	VALUES_MAX = 2 * TAP_SECRETS_MAX * (SECRET_VALUE_MAX + SECRET_NAME_MAX), /* in JSON */
};

static_assert(SPEC_TAP_MAX + VALUES_MAX + 2 * ROOTS_MAX + 4 * TAP_CA_MAX <= TAP_CONFIG_MAX,
	      "a sandbox that starts can start its hutch-tap");

static bool is_needed(const struct warden *w)
{
	return w->spec.tap && w->spec.tap[0];
}

/* ---- the beginning ---- */

static int find_program(struct warden *w, struct err *e)
{
	char own[PATH_MAX];
	int r = proc_own_directory(own);

	if (r == 0 && (proc_find_in(own, ".", "hutch-tap", w->tap.program) ||
		       proc_find_in(own, "../tap", "hutch-tap", w->tap.program)))
		return 0;
	return err_set(
		e, -ENOENT,
		"no hutch-tap beside hutch-keeper, and the policy binds secrets or has rules "
		"on HTTP requests: is hutch installed as a whole?");
}

static int take_part(const json_t *j, const char *key, struct buf *ret, struct err *e)
{
	const char *text;

	if (json_get_string(j, key, TAP_CA_MAX - 1, &text, e) < 0)
		return err_wrap(e, "the output of hutch-tap --ca");
	*ret = (struct buf)BUF_INIT(TAP_CA_MAX);
	return buf_put(ret, text, strlen(text) + 1) < 0 ? err_oom(e) : 0;
}

static int take_ca(struct warden *w, const struct buf *text, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;

	if (json_read(text->data, text->len, &j, e) < 0 || take_part(j, "cert", &w->tap.ca, e) < 0)
		return e->num;
	return take_part(j, "key", &w->tap.key, e);
}

/* A program of its own makes the CA: OpenSSL is not linked into the warden. */
static int make_ca(struct warden *w, struct err *e)
{
	const char *const argv[] = { "hutch-tap", "--ca", NULL };
	_cleanup_secret_ struct buf out = BUF_INIT(CA_OUTPUT_MAX);
	int status = 0;

	if (proc_capture(w->tap.program, argv, false, clock_mono() + CA_S * NSEC_PER_SEC, &out,
			 &status, e) < 0)
		return err_wrap(e, "making the sandbox's CA");
	if (status != 0)
		return err_set(e, -EIO, "hutch-tap could not make the sandbox's CA (status %d)",
			       status);
	return take_ca(w, &out, e);
}

/* 1 if the snapshot has a CA; 0 if not: it was made without hutch-tap. */
static int continue_ca(struct warden *w, struct err *e)
{
	_cleanup_secret_ struct buf text = BUF_INIT(CA_OUTPUT_MAX);
	_cleanup_buf_ struct buf sealed = BUF_INIT(CA_OUTPUT_MAX);
	struct err own = ERR_INIT;
	int r;

	if (w->origin.from.kind != SNAPSHOT_SAVED || w->origin.from.dir < 0)
		return 0;
	r = fd_read_file(w->origin.from.dir, SAVED_CA, &sealed, &own);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return (*e = own).num;
	if (secret_box_open(&w->tap.store, CA_PURPOSE, &sealed, &text, e) < 0 ||
	    take_ca(w, &text, e) < 0)
		return err_wrap(e, "the CA of the snapshot");
	return 1;
}

static int read_roots(struct warden *w, struct err *e)
{
	w->tap.roots = (struct buf)BUF_INIT(ROOTS_MAX);
	if (!w->spec.tap_roots || !w->spec.tap_roots[0])
		return 0;
	return fd_read_file(AT_FDCWD, w->spec.tap_roots, &w->tap.roots, e) < 0
		       ? err_wrap(e, "tap_roots of host.yaml")
		       : 0;
}

/* Watches by the directory's descriptor: its path may be another one for another process. */
static int watch_store(struct warden *w, struct err *e)
{
	char path[64];

	w->tap.changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->tap.changes < 0)
		return err_errno(e, "cannot watch the store of secrets");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", w->tap.store.dir);
	return inotify_add_watch(w->tap.changes, path, IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) < 0
		       ? err_errno(e, "cannot watch the store of secrets")
		       : 0;
}

/* A VM's CA is sealed into its snapshots, also without any secret. */
static int open_store(struct warden *w, struct err *e)
{
	const bool make = engine_has(w->engine, ENGINE_SNAPSHOTS);

	if (secret_store_open(make, &w->tap.store, e) < 0)
		return e->num;
	if (w->spec.tap_secrets.n == 0)
		return 0;
	if (w->tap.store.dir < 0)
		return err_set(e, -ENOENT,
			       "there is no store of secrets, but the policy binds "
			       "some: see 'hutch secret set'");
	return watch_store(w, e);
}

int tapping_begin(struct warden *w, struct err *e)
{
	int r;

	if (!is_needed(w))
		return 0;
	if (find_program(w, e) < 0 || open_store(w, e) < 0 || read_roots(w, e) < 0)
		return e->num;
	r = continue_ca(w, e);
	if (r == 0)
		r = make_ca(w, e);
	return r < 0 ? r : FAULT_ERR("warden-tap", e);
}

/* ---- the configuration ---- */

/* A JSON string; the text is UTF-8 without NUL. */
static void put_string(struct buf *b, const char *s, size_t n)
{
	(void)buf_putc(b, '"');
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)s[i];

		if (c < 0x20)
			(void)buf_printf(b, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			(void)buf_printf(b, "\\%c", c);
		else
			(void)buf_putc(b, (char)c);
	}
	(void)buf_putc(b, '"');
}

/* A removed secret has no value: hutch-tap then refuses requests that need it. */
void tapping_put_values(const struct warden *w, struct buf *b)
{
	const struct spec_list *names = &w->spec.tap_secrets;
	const char *comma = "";

	(void)buf_putc(b, '{');
	for (size_t i = 0; i < names->n; i++) {
		_cleanup_secret_ struct buf value = BUF_INIT(SECRET_VALUE_MAX + 1);
		struct err e = ERR_INIT;
		int r = buf_reserve(&value, SECRET_VALUE_MAX) ? 0 : err_oom(&e);

		if (r == 0)
			r = secret_get(&w->tap.store, names->v[i], &value, &e);
		if (r < 0) {
			log_warning("secret '%s' is not used: %s", names->v[i], e.msg);
			continue;
		}
		(void)buf_puts(b, comma);
		put_string(b, names->v[i], strlen(names->v[i]));
		(void)buf_putc(b, ':');
		put_string(b, value.data, value.len);
		comma = ",";
	}
	(void)buf_putc(b, '}');
}

/* spec.tap is a JSON object; this writes it with more members. */
static int write_config(const struct warden *w, struct buf *b)
{
	size_t n = strlen(w->spec.tap);

	while (n > 0 && w->spec.tap[n - 1] != '}')
		n--;
	if (n < 2)
		return -EINVAL;
	(void)buf_put(b, w->spec.tap, n - 1);
	(void)buf_puts(b, ",\"values\":");
	tapping_put_values(w, b);
	(void)buf_puts(b, ",\"roots\":");
	put_string(b, w->tap.roots.data ?: "", w->tap.roots.len);
	(void)buf_puts(b, ",\"ca\":{\"cert\":");
	put_string(b, w->tap.ca.data, strlen(w->tap.ca.data));
	(void)buf_puts(b, ",\"key\":");
	put_string(b, w->tap.key.data, strlen(w->tap.key.data));
	(void)buf_puts(b, "}}");
	return b->err;
}

/* An upper bound: a byte takes at most 6 in JSON. */
static size_t config_size(const struct warden *w)
{
	const size_t values = w->spec.tap_secrets.n * 2 * (SECRET_VALUE_MAX + SECRET_NAME_MAX);

	return MIN(strlen(w->spec.tap) + values + 2 * w->tap.roots.len + 4 * TAP_CA_MAX,
		   (size_t)TAP_CONFIG_MAX);
}

static int make_config(const struct warden *w, int *ret_fd)
{
	_cleanup_secret_ struct buf b = BUF_INIT(TAP_CONFIG_MAX);
	_cleanup_close_ int fd = memfd_create("hutch-tap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	/* At once: growing it would leave copies of values behind. */
	r = buf_reserve(&b, config_size(w)) ? write_config(w, &b) : -ENOMEM;
	if (r == 0)
		r = fd_write_all(fd, b.data, b.len);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int send_config(const struct warden *w)
{
	const struct tap_message m = { .kind = TAP_CONFIG };
	_cleanup_close_ int fd = -EBADF;
	int r = make_config(w, &fd);

	return r < 0 ? r : tap_send(w->tap.sock, &m, &fd, 1);
}

/* ---- snapshots ---- */

int tapping_save(const struct warden *w, int box, struct err *e)
{
	_cleanup_secret_ struct buf text = BUF_INIT(CA_OUTPUT_MAX);
	_cleanup_buf_ struct buf sealed = BUF_INIT(CA_OUTPUT_MAX);

	if (!is_needed(w))
		return 0;
	(void)buf_puts(&text, "{\"cert\":");
	put_string(&text, w->tap.ca.data, strlen(w->tap.ca.data));
	(void)buf_puts(&text, ",\"key\":");
	put_string(&text, w->tap.key.data, strlen(w->tap.key.data));
	(void)buf_putc(&text, '}');
	if (text.err < 0)
		return err_oom(e);
	if (secret_box_seal(&w->tap.store, CA_PURPOSE, &text, &sealed, e) < 0)
		return err_wrap(e, "saving the sandbox's CA");
	return fd_replace_file(box, "ca", 0600, sealed.data, sealed.len, e);
}

/* ---- the process ---- */

static void stop(struct warden *w)
{
	loop_del_fd(&w->tap.src);
	budgets_drop(w);
	w->tap.sock = fd_close(w->tap.sock);
	proc_done(&w->tap.proc);
}

/* An ordinary user's sandboxes have no id to spare: hutch-tap then gets the keeper's. */
uint32_t tapping_user(const struct warden *w)
{
	return w->rootless ? w->ids + OCI_KEEPER_OFFSET : state_tap_id(w->ids);
}

static int spawn(struct warden *w, int ours, int keepers, struct err *e)
{
	const int more[] = { ours, keepers };
	char uid[16];
	const char *const argv[] = { "hutch-tap", "--uid", uid, NULL };
	const struct proc_spec spec = {
		.path = w->tap.program,
		.argv = argv,
		.env = FAULT_ENV,
		.in = -EBADF,
		.out = -EBADF,
		.err = STDERR_FILENO,
		.more = more,
		.n_more = ARRAY_SIZE(more),
		.own_session = true,
	};

	(void)snprintf(uid, sizeof(uid), "%u", tapping_user(w));
	return proc_spawn(&spec, &w->tap.proc, e);
}

static void on_tap(struct loop_fd *src, uint32_t events)
{
	(void)events;
	if (!budgets_take(src->arg))
		stop(src->arg);
}

static int watch(struct warden *w)
{
	w->tap.src = (struct loop_fd){ .cb = on_tap, .arg = w };
	return loop_add_fd(w->tap.loop, &w->tap.src, w->tap.sock, EPOLLIN);
}

/* *ret_fd: the keeper's end. */
static int start(struct warden *w, int *ret_fd, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF, keeper = -EBADF, tap = -EBADF;
	int r;

	if (fd_socket_pair(SOCK_SEQPACKET, &ours, &theirs) < 0 ||
	    fd_socket_pair(SOCK_SEQPACKET, &keeper, &tap) < 0 ||
	    fcntl(ours, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
	    fcntl(keeper, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return err_errno(e, "cannot make the channels of hutch-tap");
	if (spawn(w, theirs, tap, e) < 0)
		return e->num;
	FAULT_KILL("tap-spawned", w->tap.proc.pidfd);
	w->tap.sock = TAKE_FD(ours);
	r = send_config(w);
	if (r < 0)
		return err_set(e, r, "cannot configure hutch-tap: %s", strerror(-r));
	if (w->budgets.n > 0 && (!w->tap.loop || watch(w) < 0))
		return err_set(e, -EIO, "cannot watch hutch-tap");
	*ret_fd = TAKE_FD(keeper);
	return FAULT_ERR("tap-started", e);
}

void tapping_start(struct warden *w)
{
	const uint64_t now = clock_mono();
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;
	int r;

	/* A sandbox that can crash its hutch-tap must not keep the host busy with new ones. */
	if (!is_needed(w) ||
	    (w->tap.started != 0 && now - w->tap.started < AGAIN_S * NSEC_PER_SEC)) {
		(void)note_send(w->note, NOTE_TAP, EAGAIN, NULL, 0);
		return;
	}
	stop(w);
	w->tap.started = now;
	r = start(w, &fd, &e);
	if (r == 0) {
		(void)note_send(w->note, NOTE_TAP, 0, &fd, 1);
		return;
	}
	log_error("%s", e.msg);
	stop(w);
	(void)note_send(w->note, NOTE_TAP, (uint64_t)-r, NULL, 0);
}

/* Is it about the value of a secret of this sandbox? Each use of any secret changes the store, too.
 */
static bool concerns(const struct warden *w, const struct inotify_event *event)
{
	if (event->len == 0)
		return true; /* events were lost */
	for (size_t i = 0; i < w->spec.tap_secrets.n; i++) {
		const char *name = w->spec.tap_secrets.v[i];
		const size_t n = strlen(name);

		if (strncmp(event->name, name, n) == 0 &&
		    (str_eq(event->name + n, SECRET_VALUE_FILE) ||
		     str_eq(event->name + n, SECRET_TOKEN_FILE)))
			return true;
	}
	return false;
}

bool tapping_changed(struct warden *w)
{
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	bool changed = false;
	ssize_t n;

	while ((n = read(w->tap.changes, events, sizeof(events))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *event = (const void *)(events + at);

			changed |= concerns(w, event);
			at += (ssize_t)(sizeof(*event) + event->len);
		}
	if (changed)
		tapping_refill(w);
	return changed;
}

void tapping_refill(struct warden *w)
{
	/* If hutch-tap does not take the new values, it must not continue with the old ones. */
	if (w->tap.sock >= 0 && send_config(w) < 0)
		stop(w);
	(void)FAULT("tap-refilled");
}

void tapping_used(struct warden *w, uint64_t secret)
{
	if (secret < w->spec.tap_secrets.n)
		secret_note_use(&w->tap.store, w->spec.tap_secrets.v[secret]);
}

void tapping_end(struct warden *w)
{
	stop(w);
	w->tap.changes = fd_close(w->tap.changes);
	secret_store_close(&w->tap.store);
	secret_wipe(&w->tap.key);
	buf_done(&w->tap.ca);
	buf_done(&w->tap.roots);
}
