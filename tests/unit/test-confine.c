/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of confinement. Each change of a process is tested in a child. */
#include "unit.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "confine/become.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/root.h"
#include "confine/self.h"
#include "confine/stages.h"

enum {
	ID = 12345,
};

/* Runs `fn`, which returns 0 or the line of the first failed EXPECT(). */
static void in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0) {
		int line = fn();

		if (line != 0)
			(void)fprintf(stderr, "# line %d\n", line);
		_exit(line != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define EXPECT(what)                     \
	do {                             \
		if (!(what))             \
			return __LINE__; \
	} while (0)

/* ---- stages ---- */

static char passed[16];

static int note(const char *what, int r)
{
	(void)strncat(passed, what, sizeof(passed) - strlen(passed) - 1);
	return r;
}

static int run_a(void *arg)
{
	return note("a", 0);
}

static int run_b(void *arg)
{
	return note("b", *(int *)arg);
}

static int check_a(void *arg)
{
	return note("A", 0);
}

static int check_b(void *arg)
{
	return note("B", -ESRCH);
}

static void stages_stop_at_the_first_failure(void **state)
{
	static const struct confine_stage good[] = {
		{ "one", run_a, check_a }, { "two", run_b }, { "three", run_a }, { NULL }
	};
	static const struct confine_stage bad[] = { { "one", run_b, check_b },
						    { "two", run_a },
						    { NULL } };
	struct err e = ERR_INIT;
	const char *at = NULL;
	int result = 0;

	passed[0] = '\0';
	assert_int_equal(confine_run(good, &result, &at), 0);
	assert_string_equal(passed, "aAba");
	assert_null(at);
	passed[0] = '\0';
	result = -EIO;
	assert_int_equal(confine_run(good, &result, &at), -EIO);
	assert_string_equal(passed, "aAb");
	assert_string_equal(at, "two");
	assert_int_equal(confine_run(good, &result, NULL), -EIO);
	passed[0] = '\0';
	assert_int_equal(confine_run(bad, &result, &at), -EIO);
	assert_string_equal(passed, "b");
	passed[0] = '\0';
	result = 0;
	assert_int_equal(confine_run_err(bad, &result, "confining it", &e), -ESRCH);
	assert_string_equal(passed, "bB");
	assert_string_equal(e.msg, "confining it, one: No such process");
}

/* ---- capabilities and ids ---- */

static int no_capabilities(void)
{
	if (geteuid() == 0) {
		EXPECT(caps_check(0) == -EPERM);
		EXPECT(caps_bound(CAPS_BIT(CAP_CHOWN)) == 0);
		EXPECT(prctl(PR_CAPBSET_READ, CAP_KILL, 0, 0, 0) == 0);
		EXPECT(prctl(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0) == 1);
		EXPECT(caps_only(CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_KILL)) == 0);
		EXPECT(caps_check(CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_KILL)) == 0);
		EXPECT(caps_check(CAPS_BIT(CAP_CHOWN)) == -EPERM);
		/* Permitted, but not effective. */
		EXPECT(caps_limit(CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_FOWNER), 0) == 0);
		EXPECT(caps_check(CAPS_BIT(CAP_CHOWN)) == 0 && caps_check(0) == -EPERM);
	}
	EXPECT(caps_only(0) == 0);
	EXPECT(caps_check(0) == 0);
	EXPECT(caps_only(CAPS_BIT(CAP_CHOWN)) == -EPERM);
	EXPECT(caps_limit(CAPS_BIT(CAP_CHOWN), CAPS_BIT(CAP_CHOWN)) == 0);
	EXPECT(caps_check(0) == 0);
	EXPECT(caps_bound(0) == -EPERM);
	return 0;
}

static void capabilities(void **state)
{
	in_child(no_capabilities);
}

static int another_user(void)
{
	const uid_t root = geteuid();

	EXPECT(become_ids(geteuid(), getegid()) == 0);
	if (root != 0) {
		EXPECT(become_ids(0, getegid()) == -EPERM);
		EXPECT(become(0) == -EPERM);
		return 0;
	}
	EXPECT(setgroups(1, &(gid_t){ 7 }) == 0);
	EXPECT(become(ID) == 0);
	EXPECT(getgroups(0, NULL) == 0);
	EXPECT(getuid() == ID && geteuid() == ID && getgid() == ID && getegid() == ID);
	EXPECT(become_ids(0, 0) == -EPERM);
	EXPECT(become(ID) == -EPERM); /* it can no longer drop supplementary groups */
	return 0;
}

static void changes_of_user(void **state)
{
	in_child(another_user);
}

/* ---- the process ---- */

static int own_attributes(void)
{
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)
		EXPECT(self_check_privileges() == -EPERM);
	EXPECT(self_no_new_privileges() == 0 && self_check_privileges() == 0);
	EXPECT(self_not_dumpable() == 0 && prctl(PR_GET_DUMPABLE) == 0);
	EXPECT(self_die_with_parent() == 0);
	return 0;
}

static bool is_null(int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat("/dev/null", &b) == 0 && a.st_rdev == b.st_rdev &&
	       S_ISCHR(a.st_mode);
}

static int no_stdio(void)
{
	/* The new file gets the number that was closed, and must stay open. */
	EXPECT(close(0) == 0 && self_null_stdio(2) == 0);
	EXPECT(is_null(0) && is_null(1));
	EXPECT(close(2) == 0 && self_null_stdio(3) == 0);
	EXPECT(is_null(0) && is_null(1) && is_null(2));
	return 0;
}

static int lower_limits(void)
{
	static const struct limit low[] = { { RLIMIT_NOFILE, 20 }, { RLIMIT_CORE, 0 } },
				  high[] = { { RLIMIT_NOFILE, 21 } },
				  none[] = { { RLIM_NLIMITS, 1 } };
	struct rlimit now;

	EXPECT(rlimits_lower(low, ARRAY_SIZE(low)) == 0);
	EXPECT(getrlimit(RLIMIT_CORE, &now) == 0 && now.rlim_cur == 0 && now.rlim_max == 0);
	EXPECT(rlimits_lower(high, ARRAY_SIZE(high)) == 0);
	EXPECT(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 20 && now.rlim_max == 20);
	EXPECT(rlimits_lower(none, ARRAY_SIZE(none)) == -EINVAL);
	return 0;
}

static void attributes_of_a_process(void **state)
{
	in_child(own_attributes);
	in_child(no_stdio);
	in_child(lower_limits);
}

/* ---- Landlock and seccomp ---- */

static void rights_of_versions(void **state)
{
	struct landlock_rights r = landlock_all_rights(3, false);

	assert_int_equal(landlock_file_rights(1), 0x1fff);
	assert_int_equal(landlock_file_rights(2), 0x3fff);
	assert_int_equal(landlock_file_rights(3), 0x7fff);
	assert_int_equal(landlock_file_rights(4), 0x7fff);
	assert_int_equal(landlock_file_rights(5), 0xffff);
	assert_int_equal(landlock_file_rights(7), 0xffff);
	assert_true(r.fs == 0x7fff && r.net == 0 && r.scoped == 0);
	r = landlock_all_rights(4, false);
	assert_true(r.fs == 0x7fff && r.net == 3 && r.scoped == 0);
	r = landlock_all_rights(6, true);
	assert_true(r.fs == 0xffff && r.net == 1 && r.scoped == 3);
}

static int no_files(void)
{
	const int abi = landlock_abi();
	struct landlock_rights rights = landlock_all_rights(abi, false);
	int ruleset, tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	EXPECT(tmp >= 0);
	if (abi < 1) {
		EXPECT(landlock_check() == 0);
		return 0;
	}
	EXPECT(landlock_check() == -EPERM);
	ruleset = landlock_ruleset(&rights);
	EXPECT(ruleset >= 0 && fcntl(ruleset, F_GETFD) == FD_CLOEXEC);
	EXPECT(landlock_allow(ruleset, tmp, LANDLOCK_ACCESS_FS_READ_DIR) == 0);
	EXPECT(landlock_allow(ruleset, -EBADF, LANDLOCK_ACCESS_FS_READ_DIR) == -EBADF);
	EXPECT(self_no_new_privileges() == 0 && landlock_restrict(ruleset) == 0);
	EXPECT(landlock_check() == 0);
	EXPECT(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0);
	EXPECT(open("/proc/self/status", O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
	return 0;
}

static int few_calls(void)
{
	static const struct sock_filter filter[] = {
		FILTER_HEAD,
		UNLESS(__NR_getppid, 1),
		RETURN(SECCOMP_RET_ERRNO | ENOTTY),
		RETURN(SECCOMP_RET_ALLOW),
	};

	EXPECT(self_no_new_privileges() == 0);
	EXPECT(filter_apply(filter, ARRAY_SIZE(filter)) == 0);
	EXPECT(syscall(SYS_getppid) == -1 && errno == ENOTTY);
	EXPECT(getpid() > 0);
	return 0;
}

static void files_and_calls(void **state)
{
	in_child(no_files);
	in_child(few_calls);
}

/* ---- root ---- */

static int empty_root(void)
{
	const int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
	struct stat st;

	EXPECT(unshare(flags) == 0);
	EXPECT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	EXPECT(root_check_empty() == -EPERM);
	EXPECT(root_enter_empty("/no such directory") == -ENOENT);
	EXPECT(root_enter("/proc/self") == -EINVAL); /* no mount */
	EXPECT(root_enter_empty("/run") == 0);
	EXPECT(root_check_empty() == 0);
	EXPECT(stat("/run", &st) < 0 && errno == ENOENT);
	EXPECT(stat("/..", &st) == 0 && st.st_nlink == 2);
	EXPECT(mkdir("/x", 0755) < 0 && errno == EROFS);
	return 0;
}

/* Read-only, but with a directory. */
static int root_with_a_directory(void)
{
	const int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;

	EXPECT(unshare(flags) == 0);
	EXPECT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	EXPECT(mount("x", "/run", "tmpfs", 0, "nr_inodes=2") == 0);
	EXPECT(root_enter("/run") == 0);
	EXPECT(root_check_empty() == -EPERM);
	EXPECT(mkdir("/x", 0755) == 0);
	EXPECT(mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
	EXPECT(root_check_empty() == -EPERM);
	return 0;
}

static void roots(void **state)
{
	in_child(empty_root);
	in_child(root_with_a_directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_stop_at_the_first_failure),
		cmocka_unit_test(capabilities),
		cmocka_unit_test(changes_of_user),
		cmocka_unit_test(attributes_of_a_process),
		cmocka_unit_test(rights_of_versions),
		cmocka_unit_test(files_and_calls),
		cmocka_unit_test(roots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
