/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confinement of the keeper. Each attempt runs twice: in a confined child, where it must die or
 * fail, and in an unconfined one, where it must work, as the positive control.
 */
#include "unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"
#include "keeper/keeper-confine.h"
#include "unit-engine.h"

enum {
	ID = 0x70000001,
	WORKED = 0,
	REFUSED = 1,
	BROKEN = 99, /* the test itself */
	KILLED = 1000,
};

static struct spec spec;

/* ---- attempts: true on success ---- */

static bool try_open(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0;
}

static bool try_openat2(void)
{
	uint64_t how[3] = { O_PATH };

	return syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof(how)) >= 0;
}

static bool try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool try_connect(void)
{
	return connect(2, NULL, 0) < 0 && errno != ENOSYS;
}

static bool try_kill(void)
{
	return kill(getppid(), 0) == 0;
}

static bool try_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid > 0;
}

static bool try_exec(void)
{
	(void)execl("/bin/true", "true", NULL);
	return false;
}

static bool try_setuid(void)
{
	return setresuid(0, 0, 0) == 0;
}

static bool try_ptrace(void)
{
	return syscall(SYS_ptrace, 0, 0, 0, 0) == 0;
}

static bool try_exec_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED;
}

static bool try_mprotect(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool try_other_sockopt(void)
{
	socklen_t n = sizeof(int);
	int value;

	return getsockopt(2, SOL_SOCKET, SO_TYPE, &value, &n) == 0 || errno == ENOTSOCK;
}

static bool try_unshare(void)
{
	return unshare(CLONE_NEWNS) == 0;
}

static bool try_prctl(void)
{
	return prctl(PR_GET_DUMPABLE) >= 0;
}

static bool try_truncate(void)
{
	return ftruncate(4, 0) == 0;
}

static bool try_read_at(void)
{
	char byte;

	return pread(4, &byte, 1, 0) >= 0;
}

static bool try_send_files(void)
{
	struct iovec v = { .iov_base = (void *)"x", .iov_len = 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	return sendmsg(3, &m, 0) == 1;
}

/* ---- allowed ---- */

/* Writes a record, up to a limit. */
static bool try_record(void)
{
	char byte = 'x';
	struct iovec v[2] = { { &byte, 1 }, { &byte, 1 } };

	return pwrite(4, &byte, 1, 4096) == 1 && pwritev(4, v, 2, 4097) == 2;
}

static bool try_long_record(void)
{
	char byte = 'x';

	return pwrite(4, &byte, 1, 64 << 20) == 1;
}

/* Receives a file descriptor from the warden. */
static bool try_note(void)
{
	int files[NOTE_FILES_MAX];
	struct keeper_note note;
	size_t n = 0;

	return note_receive(3, &note, files, &n) == 0 && note.value == 7 && n == 2 &&
	       write(files[1], "x", 1) == 1;
}

static bool try_log(void)
{
	log_error("a line of an isolated keeper");
	return true;
}

static bool try_memory(void)
{
	for (size_t n = 1; n <= (size_t)32 << 20; n *= 2) {
		char *p = malloc(n), *q;

		if (!p)
			return false;
		memset(p, 1, n);
		q = realloc(p, n * 2);
		if (!q)
			return false;
		q[2 * n - 1] = 1;
		free(q);
	}
	return true;
}

static bool try_peercred(void)
{
	socklen_t n = sizeof(struct ucred);
	struct ucred c;

	return getsockopt(3, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0;
}

static bool try_clock(void)
{
	struct timespec t;

	return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0;
}

/* A too large allocation fails and kills no process. */
static bool try_much_memory(void)
{
	void *volatile p = malloc((size_t)1 << 30); /* or clang removes the unused malloc() */

	return p != NULL;
}

/* ---- running them ---- */

static const struct engine *engine = &unit_container;

static struct keeper_start start_of(int fd)
{
	return (struct keeper_start){ .spec = &spec,
				      .engine = engine,
				      .guest = fd,
				      .listener = -EBADF,
				      .warden = -EBADF,
				      .id = ID,
				      .parent = getppid() };
}

static _noreturn_ void child(bool (*try)(void), bool isolated)
{
	struct err e = ERR_INIT;
	struct keeper_start s;
	int fds[2];

	(void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
	(void)signal(SIGXFSZ, SIG_IGN);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) < 0 || dup2(fds[0], 3) < 0 ||
	    dup2(memfd_create("record", 0), 4) < 0)
		_exit(BROKEN);
	if (note_send(fds[1], NOTE_RECORDS, 7, (const int[]){ 2, 4 }, 2) < 0)
		_exit(BROKEN);
	s = start_of(3);
	s.listener = 4; /* stays open */
	if (isolated && (keeper_confine_fds(&s, &e) < 0 || keeper_confine(&s, &e) < 0))
		_exit(BROKEN);
	_exit(try() ? WORKED : REFUSED);
}

static int run(bool (*try)(void), bool isolated)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		child(try, isolated);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}

struct deed {
	const char *name;
	bool (*try)(void);
};

/* Each deed works in an unconfined process, and kills a confined one. */
static void assert_deeds_kill(const struct deed *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		print_message("# %s\n", rows[i].name);
		assert_int_equal(run(rows[i].try, false), WORKED);
		assert_int_equal(run(rows[i].try, true), KILLED + SIGSYS);
	}
}

TEST(what_kills)
{
	static const struct deed rows[] = {
		{ "open", try_open },
		{ "openat2", try_openat2 },
		{ "socket", try_socket },
		{ "connect", try_connect },
		{ "kill", try_kill },
		{ "fork", try_fork },
		{ "exec", try_exec },
		{ "setuid", try_setuid },
		{ "ptrace", try_ptrace },
		{ "executable memory", try_exec_memory },
		{ "mprotect", try_mprotect },
		{ "another socket option", try_other_sockopt },
		{ "unshare", try_unshare },
		{ "prctl", try_prctl },
		{ "truncate", try_truncate },
		{ "read at an offset", try_read_at },
		{ "send files", try_send_files },
	};

	assert_deeds_kill(rows, ARRAY_SIZE(rows));
}

/* ---- a keeper that dials ---- */

static bool try_tcp(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) >= 0 &&
	       socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP) >= 0;
}

static bool try_udp(void)
{
	return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP) >= 0 &&
	       socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0) >= 0;
}

static bool try_unix_packets(void)
{
	return socket(AF_UNIX, SOCK_DGRAM, 0) >= 0;
}

static bool try_netlink(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0) >= 0;
}

/* A kernel may lack some of them; the call itself is what counts. */
static bool try_raw(void)
{
	return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 || errno != ENOSYS;
}

static bool try_ping(void)
{
	return socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP) >= 0 || errno != ENOSYS;
}

static bool try_sctp(void)
{
	return socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP) >= 0 || errno != ENOSYS;
}

static bool try_packet(void)
{
	return socket(AF_PACKET, SOCK_DGRAM, 0) >= 0 || errno != ENOSYS;
}

static bool try_vsock(void)
{
	return socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 || errno != ENOSYS;
}

static bool try_bind_to_device(void)
{
	return setsockopt(3, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0 || errno != ENOSYS;
}

static bool try_mark(void)
{
	int mark = 1;

	return setsockopt(3, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) == 0 || errno != ENOSYS;
}

static bool try_nodelay(void)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct linger now = { .l_onoff = 1 };

	return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0 &&
	       setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0;
}

static bool try_listen(void)
{
	return listen(3, 1) == 0 || errno != ENOSYS;
}

static bool try_bind(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	return bind(3, (struct sockaddr *)&a, sizeof(a)) == 0 || errno != ENOSYS;
}

static bool try_dup(void)
{
	return fcntl(3, F_DUPFD, 0) >= 0;
}

static bool try_pipe(void)
{
	int fds[2];

	return pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0 && fcntl(fds[0], F_SETPIPE_SZ, 65536) > 0;
}

TEST(what_kills_one_that_dials)
{
	static const struct deed rows[] = {
		{ "a Unix socket", try_socket },
		{ "a Unix socket for packets", try_unix_packets },
		{ "netlink", try_netlink },
		{ "a raw socket", try_raw },
		{ "a socket for pings", try_ping },
		{ "SCTP", try_sctp },
		{ "a packet socket", try_packet },
		{ "vsock", try_vsock },
		{ "another device", try_bind_to_device },
		{ "a mark", try_mark },
		{ "bind", try_bind },
		{ "listen", try_listen },
		{ "dup", try_dup },
		{ "open", try_open },
		{ "fork", try_fork },
		{ "kill", try_kill },
		{ "send files", try_send_files },
	};

	spec.egress.allow.n = 1;
	assert_deeds_kill(rows, ARRAY_SIZE(rows));
	spec.egress.allow.n = 0;
}

/* The same with and without egress. */
TEST(what_dials)
{
	bool (*const tries[])(void) = { try_tcp, try_udp, try_connect, try_nodelay, try_pipe };

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		assert_int_equal(run(tries[i], true), KILLED + SIGSYS);
		spec.egress.allow.n = 1;
		assert_int_equal(run(tries[i], true), WORKED);
		spec.egress.allow.n = 0;
	}
}

/* A pair of sockets, connected to each other, that can connect to nothing else. */
static bool try_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0 &&
	       send(fds[0], "x", 1, MSG_NOSIGNAL) == 1 && shutdown(fds[0], SHUT_WR) == 0;
}

/* connect(2) on a datagram pair could go anywhere. */
static bool try_packet_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds) == 0;
}

static bool try_sequence_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0;
}

static struct sockaddr_un somebody = { .sun_family = AF_UNIX };
static socklen_t somebody_len;

static bool try_somebody(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&somebody, somebody_len) == 0;
}

static bool try_rejoin(void)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		_exit(BROKEN);
	return connect(fds[0], (struct sockaddr *)&somebody, somebody_len) == 0;
}

/* Only the keeper of a VM with egress may create socket pairs. */
TEST(who_pairs)
{
	_cleanup_close_ int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	somebody_len = sizeof(sa_family_t); /* an abstract name that the kernel chooses */
	assert_int_equal(bind(listener, (struct sockaddr *)&somebody, somebody_len), 0);
	assert_int_equal(listen(listener, 8), 0);
	somebody_len = sizeof(somebody);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&somebody, &somebody_len), 0);
	assert_int_equal(run(try_pair, true), KILLED + SIGSYS);
	spec.egress.allow.n = 1;
	assert_int_equal(run(try_pair, true), KILLED + SIGSYS);
	engine = &unit_vm;
	assert_int_equal(run(try_pair, true), WORKED);
	assert_int_equal(run(try_somebody, false), WORKED);
	assert_int_equal(run(try_rejoin, false), REFUSED);
	assert_int_equal(run(try_rejoin, true), REFUSED);
	assert_int_equal(run(try_packet_pair, false), WORKED);
	assert_int_equal(run(try_packet_pair, true), KILLED + SIGSYS);
	assert_int_equal(run(try_sequence_pair, false), WORKED);
	assert_int_equal(run(try_sequence_pair, true), KILLED + SIGSYS);
	assert_int_equal(run(try_socket, true), KILLED + SIGSYS);
	spec.egress.allow.n = 0;
	assert_int_equal(run(try_pair, true), KILLED + SIGSYS);
	engine = &unit_container;
}

TEST(what_works)
{
	assert_int_equal(run(try_log, true), WORKED);
	assert_int_equal(run(try_memory, true), WORKED);
	assert_int_equal(run(try_peercred, true), WORKED);
	assert_int_equal(run(try_clock, true), WORKED);
	assert_int_equal(run(try_record, true), WORKED);
	assert_int_equal(run(try_note, true), WORKED);
	assert_int_equal(run(try_long_record, false), WORKED);
	assert_int_equal(run(try_long_record, true), REFUSED);
	assert_int_equal(run(try_much_memory, false), WORKED);
	assert_int_equal(run(try_much_memory, true), REFUSED);
}

/* The other stages, seen from outside: the filter hides them from the child itself. */
static void read_proc(pid_t pid, const char *name, const char *key, char *out, size_t n)
{
	char path[64], line[256];
	_cleanup_fclose_ FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	f = fopen(path, "re");
	assert_non_null(f);
	out[0] = '\0';
	while (fgets(line, sizeof(line), f))
		if (str_has_prefix(line, key))
			(void)snprintf(out, n, "%s", line);
}

TEST(what_the_kernel_says)
{
	static const char *const want[][2] = {
		{ "Uid:", "Uid:\t1879048193\t1879048193\t1879048193\t1879048193\n" },
		{ "Gid:", "Gid:\t1879048193\t1879048193\t1879048193\t1879048193\n" },
		{ "Groups:", "Groups:\t \n" },
		{ "CapInh:", "CapInh:\t0000000000000000\n" },
		{ "CapPrm:", "CapPrm:\t0000000000000000\n" },
		{ "CapEff:", "CapEff:\t0000000000000000\n" },
		{ "CapBnd:", "CapBnd:\t0000000000000000\n" },
		{ "CapAmb:", "CapAmb:\t0000000000000000\n" },
		{ "NoNewPrivs:", "NoNewPrivs:\t1\n" },
		{ "Seccomp:", "Seccomp:\t2\n" },
	};
	static const char *const limits[][2] = {
		{ "Max processes", " 0 " },
		{ "Max core file size", " 0 " },
		{ "Max open files", " 512 " },
		{ "Max address space", " 536870912 " },
	};
	int fds[2], extra = open("/", O_RDONLY | O_DIRECTORY), status;
	char line[256], path[64];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = fork();
	if (pid == 0) {
		struct err e = ERR_INIT;
		struct keeper_start s = start_of(fds[1]);
		char byte;

		if (keeper_confine_fds(&s, &e) < 0 || keeper_confine(&s, &e) < 0 ||
		    write(fds[1], "r", 1) != 1)
			_exit(BROKEN);
		_exit((int)read(fds[1], &byte, 1));
	}
	assert_int_equal(read(fds[0], line, 1), 1);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		read_proc(pid, "status", want[i][0], line, sizeof(line));
		assert_string_equal(line, want[i][1]);
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, extra);
	assert_int_equal(access(path, F_OK), -1);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fds[1]);
	assert_int_equal(readlink(path, line, sizeof(line)) > 0, 1);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		read_proc(pid, "limits", limits[i][0], line, sizeof(line));
		assert_non_null(strstr(line, limits[i][1]));
	}
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 1 << 8);
	(void)close(extra);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* The keeper is killed with its warden. */
TEST(it_dies_with_its_parent)
{
	int fds[2];
	char byte;
	pid_t warden;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	warden = fork();
	if (warden == 0) {
		pid_t keeper = fork();

		if (keeper == 0) {
			struct err e = ERR_INIT;
			struct keeper_start s = start_of(fds[1]);

			if (keeper_confine_fds(&s, &e) < 0 || keeper_confine(&s, &e) < 0 ||
			    write(fds[1], "r", 1) != 1)
				_exit(BROKEN);
			for (;;)
				(void)!read(fds[1], &byte, 1);
		}
		(void)close(fds[1]);
		(void)pause();
	}
	(void)close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(kill(warden, SIGKILL), 0);
	assert_int_equal(waitpid(warden, NULL, 0), warden);
	/* The only other holder of the socket has ended. */
	assert_true(read(fds[0], &byte, 1) <= 0);
	(void)close(fds[0]);
}

/* A keeper whose parent has already ended exits. */
TEST(an_orphan_does_not_start)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct err e = ERR_INIT;
		struct keeper_start s = start_of(-EBADF);

		s.parent = 1 << 22;
		_exit(keeper_confine(&s, &e) == -ESRCH ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	return unit_run_as_root("the keeper's ids are taken by root", NULL, NULL);
}
