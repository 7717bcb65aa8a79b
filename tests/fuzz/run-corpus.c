/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over every file of the given directories, as a regression test for earlier
 * findings. Prints TAP, one line for each file.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "fuzz.h"

static unsigned int done;

static int run_file(int dirfd, const char *dir, const char *name)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * 1024 * 1024);
	_cleanup_free_ uint8_t *exact = NULL;
	struct err e = ERR_INIT;

	if (fd_read_file(dirfd, name, &b, &e) < 0) {
		(void)printf("not ok %u - %s/%s # %s\n", ++done, dir, name, e.msg);
		return -1;
	}
	/* Exactly as long as the input, so that the sanitizer detects overreads. */
	exact = malloc(b.len > 0 ? b.len : 1);
	if (!exact)
		return -1;
	memcpy(exact, buf_text(&b), b.len);
	(void)LLVMFuzzerTestOneInput(exact, b.len);
	(void)printf("ok %u - %s/%s\n", ++done, dir, name);
	return 0;
}

static int run_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct dirent *entry;
	int bad = 0;
	DIR *d = opendir(path);

	if (!d) {
		(void)printf("not ok %u - cannot open %s\n", ++done, path);
		return 1;
	}
	while ((entry = readdir(d)))
		if (entry->d_type == DT_REG &&
		    run_file(dirfd(d), slash ? slash + 1 : path, entry->d_name) < 0)
			bad++;
	(void)closedir(d);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc; i++)
		bad += run_dir(argv[i]);
	(void)printf("1..%u\n", done);
	return bad > 0 || done == 0;
}
