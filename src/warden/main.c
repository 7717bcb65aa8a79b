/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-keeper: started by hutch with the state directory as descriptor 3, a pipe for the report as
 * 4 and, with --client, the first client as 5. The report says how the start went: the warden
 * writes an error message to the pipe, or nothing, and closes it. With --socket a service manager
 * starts the program, and the descriptors come over standard input (state/handover.h).
 */
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "base/trace.h"
#include "state/handover.h"
#include "warden/warden.h"

enum {
	FD_STATE = 3,
	FD_REPORT,
	FD_CLIENT,
};

static int usage(void)
{
	(void)fputs("usage: hutch-keeper --guest PATH [--client | --socket]\n"
		    "Holds one sandbox; started by hutch, not by hand.\n",
		    stderr);
	return 2;
}

static int parse(int argc, char **argv, struct warden *w, bool *ret_socket)
{
	for (int i = 1; i < argc; i++) {
		if (str_eq(argv[i], "--client"))
			w->client = FD_CLIENT;
		else if (str_eq(argv[i], "--socket"))
			*ret_socket = true;
		else if (str_eq(argv[i], "--guest") && i + 1 < argc && argv[i + 1][0] == '/')
			w->guest = argv[++i];
		else
			return -EINVAL;
	}
	w->dir = FD_STATE;
	w->report = FD_REPORT;
	return w->guest && !(*ret_socket && w->client >= 0) ? 0 : -EINVAL;
}

/* Receives over standard input the descriptors that a parent would have given. */
static int take_handover(struct warden *w, struct err *e)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct handover h;
	int r = null < 0 ? err_errno(e, "cannot open /dev/null")
			 : handover_receive(STDIN_FILENO, &h, e);

	if (r < 0)
		return r;
	w->dir = h.dir;
	w->report = h.report;
	w->client = h.client;
	r = dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
			    dup2(h.log, STDERR_FILENO) < 0
		    ? err_errno(e, "cannot use what was handed over")
		    : 0;
	(void)fd_close(h.log);
	log_open("hutch-keeper", LOG_LEVEL_INFO);
	trace_set_process("warden");
	return r;
}

/* Checks that the descriptors exist, and keeps children from inheriting them. */
static int take_fds(const struct warden *w)
{
	struct stat st;

	if (fstat(FD_STATE, &st) < 0 || !S_ISDIR(st.st_mode))
		return -EBADF;
	for (int fd = FD_STATE; fd <= (w->client >= 0 ? FD_CLIENT : FD_REPORT); fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	return 0;
}

/* Other processes see the sandbox before warden_wait() handles signals. A signal that comes
 * earlier stays pending until then, and does not kill the warden, which has to clean up. */
static void hold_signals(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Starts the sandbox until it serves. A spare may have to end before it is taken: then *ret_over
 * is true and *ret_reason says why. */
static int start(struct warden *w, bool *ret_over, enum end_reason *ret_reason, struct err *e)
{
	int r = warden_start(w, e);

	if (r == 0 && w->pool >= 0 && !spare_wait(w, ret_reason, e)) {
		*ret_over = e->num == 0;
		r = e->num;
	}
	if (r < 0 || *ret_over)
		return r;
	r = warden_go(w, e);
	spare_done(w, true);
	return r;
}

static void report(struct warden *w, const struct err *e)
{
	if (e)
		(void)fd_write_all(w->report, e->msg, strlen(e->msg));
	w->report = fd_close(w->report);
}

int main(int argc, char **argv)
{
	static struct warden w = WARDEN_INIT;
	struct err e = ERR_INIT;
	bool socket = false, over = false;
	enum end_reason reason = END_KEEPER;
	int r;

	log_open("hutch-keeper", LOG_LEVEL_INFO);
	trace_set_process("warden");
	if (parse(argc, argv, &w, &socket) < 0)
		return usage();
	if (socket && take_handover(&w, &e) < 0) {
		log_error("%s", e.msg);
		return 2;
	}
	if (!socket && take_fds(&w) < 0) {
		log_error("the descriptors of a sandbox are missing: this is not a program to be "
			  "started by hand");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a file above its limit is an ordinary error */
	hold_signals();
	(void)umask(077);
	(void)!chdir("/");
	/* Before the first hash: it picks the code for this processor, for the keeper too. */
	r = sodium_init() < 0 ? err_set(&e, -ENOSYS, "libsodium does not work here")
			      : FAULT_ERR("warden-begin", &e);
	if (r == 0)
		r = start(&w, &over, &reason, &e);
	report(&w, r < 0 ? &e : NULL);
	if (r == 0) { /* the start is over; from here on `hutch debug` traces */
		log_trace(false);
		trace_set_request("");
	}
	if (r < 0) {
		log_error("%s", e.msg);
		witness_refused(&w, &e);
	}
	(void)FAULT("warden-reported");
	spare_done(&w, false);
	warden_end(&w, r < 0 || over ? reason : warden_wait(&w), r == 0);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
