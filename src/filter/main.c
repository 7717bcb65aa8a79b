/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-filter: started by a sandbox's warden, with a socket to the warden as descriptor 3 and one
 * to the keeper as 4.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "base/json-memory.h"
#include "base/json-util.h"
#include "base/log.h"
#include "base/str.h"
#include "filter-link/filter-link.h"
#include "filter/filter-confine.h"
#include "filter/filter-rules.h"
#include "filter/serve.h"

enum {
	EXIT_USAGE = 2,
	UID_LARGEST = INT32_MAX,
	WARM_TOKENS = 500,
};

static int parse(int argc, char **argv, struct filter_jail *j)
{
	uint64_t uid;

	if (argc == 1)
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

	for (int fd = FILTER_FD_WARDEN; fd <= FILTER_FD_KEEPER; fd++)
		if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) ||
		    fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
			return err_set(e, -EBADF,
				       "descriptor %d is not a socket: this is not a program to be "
				       "started by hand",
				       fd);
	return 0;
}

/* Everything that libraries read or ask for once happens here: later it would kill the process. */
static int warm_up(const struct filter_rules *rules, struct err *e)
{
	static const char text[] = "{\"action\":\"redact\",\"rules\":[\"jwt\"],\"values\":{}}";
	struct filter_setup setup = { 0 };
	_cleanup_filter_stream_ struct filter_stream *s = NULL;
	_cleanup_buf_ struct buf out = BUF_INIT(64 * 1024), many = BUF_INIT(64 * 1024);
	static const char token[] = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3\n";
	int r;

	tzset();
	json_object_seed(0);
	json_memory_wipe();
	if (filter_config_read(rules, text, strlen(text), &setup, e) < 0)
		return e->num;
	/* So many that qsort(3) asks for the size of the memory. */
	for (int i = 0; i < WARM_TOKENS; i++)
		(void)buf_puts(&many, token);
	s = filter_stream_new(setup.filter, setup.action, NULL, NULL);
	r = s && !many.err ? filter_put(s, many.data, many.len, &out) : -ENOMEM;
	assert(r < 0 || out.len < many.len); /* it finds them */
	s = filter_stream_free(s);
	(void)filter_free(setup.filter);
	return r < 0 ? err_set(e, r, "cannot set up the output filter: %s", strerror(-r)) : 0;
}

static int serve(const struct filter_jail *j, struct err *e)
{
	struct filter_rules *rules = NULL;
	struct loop *l = NULL;
	int r;

	if (filter_rules_read(filter_rules_text, filter_rules_text_n, &rules, e) < 0 ||
	    warm_up(rules, e) < 0)
		return e->num;
	r = loop_new(&l);
	if (r < 0)
		return err_set(e, r, "cannot make an event loop: %s", strerror(-r));
	if (filter_confine(j, e) < 0)
		return e->num;
	return filter_serve(l, rules, e);
}

int main(int argc, char **argv)
{
	struct filter_jail jail = { .parent = getppid() };
	struct err e = ERR_INIT;
	int r;

	if (parse(argc, argv, &jail) < 0) {
		(void)fputs("usage: hutch-filter [--uid N]\n"
			    "Serves one sandbox; started by hutch, not by hand.\n",
			    stderr);
		return EXIT_USAGE;
	}
	/* Lines go to stderr only: a socket to journald would be one more way out. */
	(void)unsetenv("JOURNAL_STREAM");
	log_open("hutch-filter", LOG_LEVEL_INFO);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	r = check_sockets(&e);
	if (r == 0)
		r = filter_confine_fds(&e);
	if (r == 0)
		r = serve(&jail, &e);
	if (r < 0)
		log_error("%s", e.msg);
	/* No cleanup: it would make system calls that the filter does not know. */
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
