/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-token [--force] NAME: refreshes the token of one secret.
 *
 * Descriptor 3 is the directory of the store of secrets; standard input has more CAs to trust, as
 * PEM. A lock of the secret makes processes that want the same token wait for one request; those
 * that waited find its token. Prints "refreshed TIME" or "fresh TIME", the time of its expiry, or
 * one line with the reason on standard error.
 *
 * This process runs as the owner of the store and has no data of a sandbox. It connects only to the
 * endpoint that the credential names: apart.c.
 */
#include <fcntl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "tap/trust.h"
#include "token/apart.h"
#include "token/jwt.h"

enum {
	EXIT_USAGE = 2,
	FD_STORE = 3,
	LIMIT_S = 30,
	WAIT_S = 60, /* for other processes with the lock */
	ROOTS_MAX = 1024 * 1024,
};

DEFINE_CLEANUP(X509_STORE *, cleanup_store, X509_STORE_free);

static void on_alarm(int signo)
{
	static const char text[] = "the token endpoint did not answer within 30 seconds\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)ignored;
	_exit(EXIT_FAILURE);
}

static int load_trust(X509_STORE **ret, struct err *e)
{
	_cleanup_buf_ struct buf roots = BUF_INIT(ROOTS_MAX);
	_cleanup_(cleanup_store) X509_STORE *store = NULL;
	size_t n = 0;
	int r = fd_read_all(STDIN_FILENO, &roots);

	if (r < 0)
		return err_set(e, r, "cannot read the additional CAs: %s", strerror(-r));
	if (trust_load(&store, &n, e) < 0 ||
	    (roots.len > 0 && trust_add(store, buf_text(&roots), e) < 0))
		return e->num;
	*ret = TAKE_PTR(store);
	return 0;
}

/* Keeps the credential out of core dumps, and from other processes of the user. */
static void hide(void)
{
	const struct rlimit none = { 0, 0 };

	(void)setrlimit(RLIMIT_CORE, &none);
	if (!SANITIZED)
		(void)prctl(PR_SET_DUMPABLE, 0);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* Gets a token for the credential; `ret` has the latest refresh token already. */
static int request(const struct credential *c, const char *refresh, struct secret_token *ret,
		   struct err *e)
{
	_cleanup_secret_ struct buf text = BUF_INIT(TOKEN_REQUEST_MAX),
				    jwt = BUF_INIT(TOKEN_REQUEST_MAX),
				    body = BUF_INIT(TOKEN_RESPONSE_MAX);
	_cleanup_(cleanup_store) X509_STORE *trusted = NULL;
	const uint64_t now = clock_wall();
	unsigned int status = 0;

	if (load_trust(&trusted, e) < 0 ||
	    (c->type == SECRET_GITHUB_APP &&
	     jwt_make(c->private_key, c->app_id, now / NSEC_PER_SEC, &jwt, e) < 0) ||
	    credential_request(c, refresh, buf_text(&jwt), &text, e) < 0 ||
	    apart_exchange(&c->url, trusted, &text, &status, &body, e) < 0)
		return e->num;
	return token_answer(c, status, buf_text(&body), body.len, now, ret, e);
}

static int say(const char *word, const struct secret_token *t, struct err *e)
{
	char time[CLOCK_RFC3339_MAX], line[64];
	int n = snprintf(line, sizeof(line), "%s %s\n", word, clock_format(t->expires, time)), r;

	r = fd_write_all(STDOUT_FILENO, line, (size_t)n);
	return r < 0 ? err_set(e, r, "cannot write the result: %s", strerror(-r)) : 0;
}

static int refresh(const struct secret_store *s, const char *name, bool force, struct err *e)
{
	_cleanup_secret_token_ struct secret_token old = SECRET_TOKEN_INIT, new = SECRET_TOKEN_INIT;
	_cleanup_secret_ struct buf credential = BUF_INIT(SECRET_VALUE_MAX + 1);
	_cleanup_secret_info_ struct secret_info info = { 0 };
	_cleanup_credential_ struct credential c = { 0 };
	_cleanup_close_ int held = -EBADF;

	(void)alarm(WAIT_S);
	if (secret_token_lock(s, name, &held, e) < 0)
		return e->num;
	(void)alarm(LIMIT_S);
	if (secret_token_read(s, name, &info, &credential, &old, e) < 0)
		return e->num;
	if (!force && old.token.len > 0 && clock_wall() < secret_token_due(&old))
		return say("fresh", &old, e);
	if (credential_parse(buf_text(&credential), credential.len, info.source, &c, e) < 0 ||
	    request(&c, buf_text(&old.refresh), &new, e) < 0)
		return e->num;
	(void)alarm(0); /* the old refresh token may be invalid now: the new one must be stored */
	/* The old refresh token stays valid if the endpoint sent no new one: RFC 6749, 6. */
	if (new.refresh.len == 0 &&
	    buf_put(&new.refresh, buf_text(&old.refresh), old.refresh.len) < 0)
		return err_oom(e);
	if (secret_token_write(s, &info, &new, e) < 0)
		return e->num;
	return say("refreshed", &new, e);
}

static int usage(void)
{
	(void)fputs("usage: hutch-token [--force] NAME\n"
		    "Started by hutch, not by hand: see 'hutch secret refresh'.\n",
		    stderr);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const bool force = argc == 3 && str_eq(argv[1], "--force");
	struct secret_store s = { .dir = FD_STORE, .path = "the store of secrets" };
	const struct sigaction on = { .sa_handler = on_alarm };
	struct err e = ERR_INIT;
	struct stat st;

	if (argc != 2 + force || argv[argc - 1][0] == '-')
		return usage();
	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigaction(SIGALRM, &on, NULL);
	hide();
	if (fstat(FD_STORE, &st) < 0 || !S_ISDIR(st.st_mode))
		return usage();
	if (fcntl(FD_STORE, F_SETFD, FD_CLOEXEC) < 0 ||
	    refresh(&s, argv[argc - 1], force, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.msg);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
