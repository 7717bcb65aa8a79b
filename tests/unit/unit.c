/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

/* By line number; cmocka skips empty entries. */
static struct CMUnitTest tests[UNIT_TESTS_MAX];
static int lines[UNIT_TESTS_MAX];
static size_t n_tests;

void unit_add(int line, const struct CMUnitTest *test)
{
	size_t i;

	assert(n_tests < UNIT_TESTS_MAX);
	for (i = n_tests++; i > 0 && lines[i - 1] > line; i--) {
		lines[i] = lines[i - 1];
		tests[i] = tests[i - 1];
	}
	lines[i] = line;
	tests[i] = *test;
}

int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	if (n_tests == 0) {
		(void)fputs("a test program without tests\n", stderr);
		return EXIT_FAILURE;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}

int unit_run_as_root(const char *why, CMFixtureFunction setup, CMFixtureFunction teardown)
{
	if (geteuid() == 0)
		return unit_run(setup, teardown);
	(void)printf("1..0 # SKIP %s\n", why);
	return EXIT_SUCCESS;
}

int unit_dir_setup(void **state)
{
	static const char template[] = "/tmp/hutch-unit-XXXXXX";
	struct unit_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -1;
	memcpy(d->path, template, sizeof(template));
	d->fd = mkdtemp(d->path) ? open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	*state = d;
	return d->fd < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

int unit_dir_teardown(void **state)
{
	struct unit_dir *d = *state;
	int r = nftw(d->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	(void)fd_close(d->fd);
	free(d);
	return r;
}

size_t unit_dir_entries(const struct unit_dir *d)
{
	DIR *dir = opendir(d->path);
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2; /* . and .. */
}

void unit_dir_write(const struct unit_dir *d, const char *name, const void *data, size_t n)
{
	_cleanup_close_ int fd =
		openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
}

char *unit_copy(const void *data, size_t n)
{
	char *p = malloc(n > 0 ? n : 1);

	assert_non_null(p);
	if (n > 0)
		memcpy(p, data, n);
	return p;
}
