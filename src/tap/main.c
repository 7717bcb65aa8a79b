/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-tap: started by a sandbox's warden, with a socket to the warden as descriptor 3 and one to
 * the keeper as 4. `hutch-tap --ca` writes a new CA as JSON and exits, `hutch-tap --roots` the
 * number of the host's CA certificates.
 */
#include <malloc.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/json-memory.h"
#include "base/json-util.h"
#include "base/log.h"
#include "base/str.h"
#include "tap/tap-confine.h"
#include "tap/tap.h"
#include "tap/trust.h"

enum {
	EXIT_USAGE = 2,
	UID_LARGEST = INT32_MAX,
	FILES_OWN = 32, /* descriptors that belong to no stream */
	BLOCK_LARGE = 4 * 1024 * 1024,
	HEAP_SPARE = 2 * 1024 * 1024,
};

static int usage(void)
{
	(void)fputs("usage: hutch-tap [--uid N] | --ca | --roots\n"
		    "Serves one sandbox; started by hutch, not by hand.\n",
		    stderr);
	return EXIT_USAGE;
}

/* ---- --ca ---- */

static int write_ca(struct err *e)
{
	_cleanup_buf_ struct buf cert = BUF_INIT(TAP_CA_MAX), key = BUF_INIT(TAP_CA_MAX);
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *text = NULL;
	int r;

	if (ca_make(&cert, &key, e) < 0)
		return e->num;
	j = JSON_OBJECT({ "cert", json_string(buf_text(&cert)) },
			{ "key", json_string(buf_text(&key)) });
	text = j ? json_write_line(j) : NULL;
	if (!text)
		return err_oom(e);
	r = fd_write_all(STDOUT_FILENO, text, strlen(text));
	return r < 0 ? err_set(e, r, "cannot write the CA: %s", strerror(-r)) : 0;
}

/* ---- --roots ---- */

static int write_roots(struct err *e)
{
	X509_STORE *store = NULL;
	size_t n = 0;
	int r = trust_load(&store, &n, e);

	if (r < 0)
		return r;
	X509_STORE_free(store);
	return printf("%zu\n", n) < 0 || fflush(stdout) < 0 ? err_errno(e, "cannot write") : 0;
}

/* ---- serving ---- */

typedef int answer_fn(struct err *e);

/* *ret: what the program writes instead of serving, or NULL. */
static int parse(int argc, char **argv, struct tap_jail *j, answer_fn **ret)
{
	uint64_t uid;

	*ret = NULL;
	if (argc == 2 && str_eq(argv[1], "--ca"))
		*ret = write_ca;
	else if (argc == 2 && str_eq(argv[1], "--roots"))
		*ret = write_roots;
	if (argc == 1 || *ret)
		return 0;
	if (argc != 3 || !str_eq(argv[1], "--uid") ||
	    str_to_u64(argv[2], strlen(argv[2]), UID_LARGEST, &uid) < 0 || uid == 0)
		return -EINVAL;
	j->has_uid = true;
	j->uid = (uid_t)uid;
	return 0;
}

static int check_sockets(struct err *e)
{
	struct stat st;

	for (int fd = TAP_FD_WARDEN; fd <= TAP_FD_KEEPER; fd++)
		if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
			return err_set(e, -EBADF,
				       "descriptor %d is not a socket: this is not a program to be "
				       "started by hand",
				       fd);
	return 0;
}

/* Everything that libraries read or ask for once happens here: later it would kill the process. */
static int warm_up(struct err *e)
{
	_cleanup_buf_ struct buf cert = BUF_INIT(TAP_CA_MAX), key = BUF_INIT(TAP_CA_MAX);
	X509_STORE *store = X509_STORE_new();
	struct ca *ca = NULL;
	struct tls *tls = NULL;
	int r;

	tzset();
	json_object_seed(0);
	json_memory_wipe();
	if (!store || OPENSSL_init_ssl(0, NULL) != 1 || ca_make(&cert, &key, e) < 0 ||
	    ca_load(buf_text(&cert), buf_text(&key), &ca, e) < 0) {
		X509_STORE_free(store);
		return e->num ? e->num : err_set(e, -ENOMEM, "cannot set up TLS");
	}
	r = tls_new(ca, store, &tls, e);
	(void)tls_free(tls);
	return r;
}

/* As many streams as there can be descriptors. */
static size_t streams_allowed(void)
{
	struct rlimit now = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &now);
	now.rlim_max = now.rlim_max > FILES_OWN ? (now.rlim_max - FILES_OWN) / 2 : 1;
	return MIN((size_t)now.rlim_max, (size_t)TAP_STREAMS_MAX);
}

/* Buffers come and go with each event: the heap keeps some of them. */
static void set_heap(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, BLOCK_LARGE);
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_SPARE);
	(void)mallopt(M_TOP_PAD, 256 * 1024);
}

static int serve(const struct tap_jail *j, struct err *e)
{
	static struct tap t;
	size_t n_roots = 0;
	int r;

	t.max_streams = streams_allowed();
	if (trust_load(&t.store, &n_roots, e) < 0 || warm_up(e) < 0)
		return e->num;
	if (n_roots == 0)
		log_warning("this host has no CA certificates: hutch-tap trusts only those of "
			    "tap_roots");
	r = loop_new(&t.loop);
	if (r == 0)
		r = loop_new(&t.narrow);
	if (r < 0)
		return err_set(e, r, "cannot make an event loop: %s", strerror(-r));
	if (tap_confine(j, e) < 0 || FAULT_ERR("tap-confined", e) < 0)
		return e->num;
	return tap_run(&t, e);
}

int main(int argc, char **argv)
{
	struct tap_jail jail = { .parent = getppid() };
	struct err e = ERR_INIT;
	answer_fn *answer;
	int r = parse(argc, argv, &jail, &answer);

	if (r < 0)
		return usage();
	/* Lines go to stderr only: a socket to journald would be one more way out. */
	(void)unsetenv("JOURNAL_STREAM");
	log_open("hutch-tap", LOG_LEVEL_INFO);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	set_heap();
	r = answer ? answer(&e) : check_sockets(&e);
	if (r == 0 && !answer) {
		r = tap_confine_fds(&e);
		if (r == 0)
			r = serve(&jail, &e);
	}
	if (r < 0)
		log_error("%s", e.msg);
	/* No cleanup: it would make system calls that the filter does not know. */
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
