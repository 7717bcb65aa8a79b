/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one part of a VM, for test_machine.py; no hutch command makes a single part.
 *
 *   `machine-parts kernel GUEST`   lines: name, kernel, initrd, digest
 *   `machine-parts root TREE`      the path of the EROFS
 *   `machine-parts blank SIZE`     the path of the empty disk
 *   `machine-parts disk BLANK`     copies it to the file on standard output, prints its size
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/str.h"
#include "snapshot/disk-copy.h"
#include "vm/machine.h"

static int print_kernel(const char *guest, struct err *e)
{
	struct machine_kernel k;
	int r = machine_kernel_find(guest, false, &k, e);

	if (r == 0)
		(void)printf("%s\n%s\n%s\n%s\n", k.name, k.kernel, k.initrd, k.digest);
	return r;
}

static int print_disk(const char *blank, struct err *e)
{
	uint64_t start = clock_mono();
	_cleanup_close_ int dir = open(dirname(strdupa(blank)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = -EBADF, r;
	struct stat st;

	if (dir < 0)
		return err_errno(e, "cannot open '%s'", blank);
	r = disk_new_from(dir, blank, &fd, e);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot look at the copy");
	(void)printf("%" PRIu64 " %ju %ju %ju /proc/%d/fd/%d\n", (clock_mono() - start) / 1000,
		     (uintmax_t)st.st_size, (uintmax_t)st.st_blocks * 512, (uintmax_t)st.st_nlink,
		     getpid(), fd);
	(void)fflush(stdout);
	(void)getchar(); /* until the test has seen it */
	(void)close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	char path[4096] = "";
	uint64_t size = 0;
	int r = -EINVAL;

	if (argc != 3)
		return 2;
	if (str_eq(argv[1], "kernel"))
		r = print_kernel(argv[2], &e);
	else if (str_eq(argv[1], "disk"))
		r = print_disk(argv[2], &e);
	else if (str_eq(argv[1], "root"))
		r = machine_root(argv[2], path, &e);
	else if (str_eq(argv[1], "blank") &&
		 str_to_u64(argv[2], strlen(argv[2]), UINT64_MAX / 2, &size) == 0)
		r = machine_blank(size, path, &e);
	if (path[0] && r == 0)
		(void)puts(path);
	if (r < 0)
		(void)fprintf(stderr, "%s\n", e.msg);
	return r < 0;
}
