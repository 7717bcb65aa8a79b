/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "guest/child.h"
#include "guest/guest-confine.h"
#include "guest/guest.h"
#include "guest/vm.h"

enum {
	CHANNEL_FD = 3,
	FD_MAX = 65535,
};

struct options {
	const char *channel; /* descriptor or path; NULL: CHANNEL_FD */
	bool not_init;
};

static int usage(void)
{
	(void)fputs("usage: hutch-guest [--channel FD|PATH] [--not-init]\n"
		    "PID 1 of a Hutch sandbox; not started by hand.\n",
		    stderr);
	return 2;
}

static int parse(int argc, char **argv, struct options *ret)
{
	for (int i = 1; i < argc; i++) {
		if (str_eq(argv[i], "--not-init"))
			ret->not_init = true;
		else if (str_eq(argv[i], "--channel") && i + 1 < argc)
			ret->channel = argv[++i];
		else
			return -EINVAL;
	}
	return 0;
}

/*
 * In a VM the kernel runs /init of the initramfs, with the rest of its command line as arguments.
 */
static bool is_machine(const char *name)
{
	return getpid() == 1 && name && str_eq(name, "/init");
}

/* A VM opens its channel last; /dev/null is the placeholder until then. */
static int begin_machine(void)
{
	struct err e = ERR_INIT;

	if (vm_begin(&e) == 0)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	log_error("%s", e.msg);
	return e.num;
}

static int boot(void)
{
	struct err e = ERR_INIT;

	if (vm_boot(&e) < 0)
		log_error("%s", e.msg);
	return e.num;
}

static int open_port(void)
{
	struct err e = ERR_INIT;

	if (vm_open_channel(CHANNEL_FD, &e) < 0)
		log_error("%s", e.msg);
	return e.num;
}

/* The channel's descriptor, or -errno. */
static int open_channel(const char *channel)
{
	uint64_t number = CHANNEL_FD;
	int fd;

	if (channel && channel[0] == '/')
		fd = open(channel, O_RDWR | O_NOCTTY | O_CLOEXEC);
	else if (channel && str_to_u64(channel, strlen(channel), FD_MAX, &number) < 0)
		return -EINVAL;
	else
		fd = (int)number;
	return fd < 0 ? -errno : fd;
}

/*
 * Makes the channel descriptor 3 and closes everything above; 0 and 1 become /dev/null, which is
 * also kept as *ret_null. 2 stays, for messages.
 */
static int arrange_fds(int channel, int *ret_null)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	/* The channel may be one of the descriptors to be replaced. */
	channel = fcntl(channel, F_DUPFD_CLOEXEC, CHANNEL_FD + 2);
	if (channel < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		return -errno;
	if (fcntl(2, F_GETFD) < 0 && dup2(null, 2) < 0)
		return -errno;
	if (dup3(0, CHANNEL_FD + 1, O_CLOEXEC) < 0 || dup3(channel, CHANNEL_FD, O_CLOEXEC) < 0 ||
	    syscall(SYS_close_range, CHANNEL_FD + 2, ~0U, 0) < 0)
		return -errno;
	*ret_null = CHANNEL_FD + 1;
	return 0;
}

/*
 * Blocks every signal for good; the loop handles only SIGCHLD. Resets dispositions, because
 * children inherit ignored signals.
 */
static void arrange_signals(void)
{
	sigset_t all;

	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
}

int main(int argc, char **argv)
{
	static struct guest guest;
	struct options o = { 0 };
	bool machine = is_machine(argv[0]);
	int r;

	log_open("hutch-guest", LOG_LEVEL_INFO);
	if (!machine && parse(argc, argv, &o) < 0)
		return usage();
	if (getpid() != 1 && !o.not_init) {
		log_error("this is PID 1 of a sandbox, not a program to be started by hand");
		return 2;
	}
	r = FAULT("guest-begin");
	if (r == 0)
		r = machine ? begin_machine() : open_channel(o.channel);
	if (r >= 0)
		r = arrange_fds(r, &guest.null);
	if (r == 0 && machine)
		r = boot();
	if (r == 0) {
		arrange_signals();
		(void)umask(022);
		(void)!chdir("/");
		child_start();
		users_start();
		confine_self();
		r = machine ? open_port() : 0;
	}
	if (r == 0) {
		r = guest_start(&guest, CHANNEL_FD);
		if (r == 0)
			r = FAULT("guest-ready");
	}
	if (r < 0)
		log_error("cannot start: %s", strerror(-r));
	r = r < 0 ? EXIT_FAILURE : guest_serve(&guest);
	vm_end();
	return r;
}
