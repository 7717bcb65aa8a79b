/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-preparer: finds or makes the parts of a VM (sandbox/prepare.h) for a hutchd whose service
 * may neither make namespaces nor run an emulator. A service manager starts it for each connection
 * to $HUTCH_PREPARER; the descriptors come over standard input (state/handover.h). It completes
 * the spec in the directory, and reports an error message or nothing. The directory's lock is held
 * meanwhile, by the descriptor.
 */
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "sandbox/prepare.h"
#include "sandbox/programs.h"
#include "state/handover.h"

static int take_handover(struct handover *h, struct err *e)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = null < 0 ? err_errno(e, "cannot open /dev/null")
			 : handover_receive(STDIN_FILENO, h, e);

	if (r < 0)
		return r;
	if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(h->log, STDERR_FILENO) < 0)
		return err_errno(e, "cannot use what was handed over");
	return 0;
}

static int complete(int dir, struct err *e)
{
	_cleanup_free_ struct prepared *p = calloc(1, sizeof(*p));
	_cleanup_spec_ struct spec plan = { 0 };
	struct programs programs;
	struct spec own;
	int r = p ? programs_find(&programs, e) : err_oom(e);

	if (r == 0)
		r = spec_read(dir, &plan, e);
	if (r < 0)
		return r;
	own = plan; /* strings and lists stay the plan's */
	r = prepare_machine(programs.guest, p, &own, e);
	return r < 0 ? r : spec_store(dir, &own, e);
}

int main(void)
{
	struct err e = ERR_INIT;
	struct handover h;
	int r;

	log_open("hutch-preparer", LOG_LEVEL_INFO);
	if (sodium_init() < 0 || take_handover(&h, &e) < 0) {
		log_error("%s", e.num < 0 ? e.msg : "libsodium does not work here");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)umask(077);
	(void)!chdir("/");
	r = complete(h.dir, &e);
	if (r < 0) {
		log_error("%s", e.msg);
		(void)fd_write_all(h.report, e.msg, strlen(e.msg));
	}
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
