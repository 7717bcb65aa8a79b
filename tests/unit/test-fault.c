/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points, compiled in by -Dfault=true. Each case is a child, because the table is read
 * once. */
#include "unit.h"

#include <string.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/proc.h"

/* Runs `fn` in a child with this HUTCH_FAULT; returns its status, or 1000 + a signal. */
static int in_child(const char *faults, int (*fn)(void))
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)unsetenv("HUTCH_FAULT_LIST");
		(void)(faults ? setenv("HUTCH_FAULT", faults, 1) : unsetenv("HUTCH_FAULT"));
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Passes two points three times each; returns the number of each one's first failure, by tens. */
static int walk(void)
{
	int first = 0;

	for (int i = 1; i <= 3; i++) {
		int a = fault_pass("one"), b = fault_pass("two");

		if (a < 0)
			first += a == -ENOSPC ? i : 9;
		if (b < 0)
			first += 10 * (b == -EIO ? i : 9);
	}
	return first;
}

static int with_message(void)
{
	struct err e = ERR_INIT;
	int r = fault_err("one", &e);

	return r == -ENOMEM && e.num == -ENOMEM && strstr(e.msg, "one") ? 0 : 1;
}

static int kill_another(void)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info;

	if (proc_fork(&p) == 1)
		for (;;)
			(void)pause();
	fault_kill("one", p.pidfd);
	fault_kill("two", p.pidfd);
	return proc_wait(&p, UINT64_MAX, &info) == 0 && info.si_status == SIGKILL ? 0 : 1;
}

TEST(nothing_asked_nothing_happens)
{
	assert_int_equal(in_child(NULL, walk), 0);
	assert_int_equal(in_child("", walk), 0);
	assert_int_equal(in_child("other=kill,onetwo=EIO,on=EIO", walk), 0);
}

TEST(an_error_at_the_passing_asked_for_and_once)
{
	assert_int_equal(in_child("one=ENOSPC", walk), 1);
	assert_int_equal(in_child("one:1=ENOSPC", walk), 1);
	assert_int_equal(in_child("one:3=ENOSPC", walk), 3);
	assert_int_equal(in_child("one:4=ENOSPC", walk), 0);
	assert_int_equal(in_child("one:2=ENOSPC,two:3=EIO", walk), 32);
	assert_int_equal(in_child("one=ENOMEM", with_message), 0);
	assert_int_equal(in_child("two=ENOMEM", with_message), 1);
}

TEST(death)
{
	assert_int_equal(in_child("one=kill", walk), 1000 + SIGKILL);
	assert_int_equal(in_child("two:3=kill", walk), 1000 + SIGKILL);
	assert_int_equal(in_child("two:4=kill", walk), 0);
	assert_int_equal(in_child("two=kill", kill_another), 0);
}

TEST(what_is_not_understood_is_no_passed_test)
{
	static const char *const wrong[] = {
		"one",	     "one=",	  "=kill",    "one=EWHAT",
		"one:0=EIO", "one:x=EIO", "one:=EIO", "one=EIO,,two=EIO"
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(in_child(wrong[i], walk), 2);
	assert_int_equal(in_child("a=EIO,b=EIO,c=EIO,d=EIO,e=EIO,f=EIO,g=EIO,h=EIO,i=EIO", walk),
			 2);
}

/* The environment of a child that has no other variables, without one that is too long. */
static int passed_on(void)
{
	const char *const *env = fault_env();
	int code;

	if (!env[0] || strcmp(env[0], "HUTCH_FAULT=one=EIO") != 0 || env[1])
		return 1;
	(void)setenv("HUTCH_FAULT_LIST", "1", 1);
	env = fault_env();
	if (!env[1] || strcmp(env[1], "HUTCH_FAULT_LIST=1") != 0 || env[2])
		return 2;
	(void)unsetenv("HUTCH_FAULT");
	env = fault_env();
	code = env[0] && strcmp(env[0], "HUTCH_FAULT_LIST=1") == 0 && !env[1] ? 0 : 3;
	(void)unsetenv("HUTCH_FAULT_LIST");
	return fault_env()[0] ? 4 : code;
}

static int too_long(void)
{
	return fault_env()[0] ? 1 : 0;
}

TEST(a_child_gets_the_variables)
{
	char text[2000];

	assert_int_equal(in_child("one=EIO", passed_on), 0);
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(in_child(text, too_long), 0);
}
