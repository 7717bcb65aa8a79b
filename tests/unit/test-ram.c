/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-ram.so in a process that maps memory as QEMU does, ram-user.c. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "ram-user.h"

/* ---- starting it ---- */

static int make_snapshot(int dir)
{
	int fd = openat(dir, "memory", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char page[PAGE];

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	for (size_t i = 0; i < PAGES; i++) {
		if (!has_data(i))
			continue;
		memset(page, (char)('a' + i % 26), sizeof(page));
		assert_int_equal(pwrite(fd, page, PAGE, (off_t)i * PAGE), PAGE);
	}
	assert_int_equal(fsync(fd), 0);
	return fd;
}

/* Runs it with the descriptors of QEMU. Returns its exit status. */
static int run(const char *how, int memory, int report, bool library)
{
	char preload[4096], size[64];
	const char *env[] = { size,
			      memory >= 0 ? RAM_SNAPSHOT "=1" : "X=", library ? preload : NULL,
			      NULL };
	const char *self = getenv("RAM_USER");
	const char *argv[] = { self, how, memory >= 0 ? "snapshot" : "empty", NULL };
	int status;
	pid_t pid;

	(void)snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", getenv("HUTCH_RAM_SO"));
	(void)snprintf(size, sizeof(size), RAM_SIZE "=%d", (int)SIZE);
	pid = fork();
	if (pid == 0) {
		int high_memory = memory >= 0 ? fcntl(memory, F_DUPFD, 20) : -1;
		int high_report = fcntl(report, F_DUPFD, 20);

		if (dup2(high_report, RAM_FD_REPORT) < 0 ||
		    (memory >= 0 && dup2(high_memory, RAM_FD_MEMORY) < 0))
			_exit(9);
		(void)execve(self, (char *const *)argv, (char *const *)env);
		_exit(9);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Pages of the file in the host's cache. */
static size_t cached(int fd)
{
	static unsigned char in_core[PAGES];
	void *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	size_t n = 0;

	assert_true(at != MAP_FAILED);
	assert_int_equal(mincore(at, SIZE, in_core), 0);
	for (size_t i = 0; i < PAGES; i++)
		n += in_core[i] & 1;
	assert_int_equal(munmap(at, SIZE), 0);
	return n;
}

static uint64_t blocks(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks;
}

/* ---- tests ---- */

/* Contents are those of the snapshot, and writing changes neither the file nor its cache. */
TEST_IN_DIR(a_snapshot_is_mapped)
{
	const struct unit_dir *d = *state;
	_cleanup_close_ int memory = make_snapshot(d->fd);
	const size_t before = cached(memory);
	const uint64_t size = blocks(memory);
	struct ram_report report = { 0 };
	_cleanup_close_ int from = -EBADF, to = -EBADF;

	assert_int_equal(fd_pipe(O_NONBLOCK, &from, &to), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(run("mapped", memory, to, true), 0);
		assert_int_equal(read(from, &report, sizeof(report)), sizeof(report));
		assert_true(report.address != 0 && report.address % PAGE == 0);
		assert_int_equal(cached(memory), before);
		assert_int_equal(blocks(memory), size);
	}
}

/* A booting VM has no snapshot: whatever is at that descriptor is not used. */
TEST_IN_DIR(without_a_snapshot_it_is_empty)
{
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	char byte;

	assert_int_equal(fd_pipe(O_NONBLOCK, &from, &to), 0);
	assert_int_equal(run("mapped", -EBADF, to, true), 0);
	assert_int_equal(read(from, &byte, 1), 1);
}

/* The control: a private mapping of all of the file leaves a trace of each written hole, and a
 * memfd grows for good. */
TEST_IN_DIR(a_plain_mapping_leaves_traces)
{
	const struct unit_dir *d = *state;
	_cleanup_close_ int memory = make_snapshot(d->fd);
	_cleanup_close_ int memfd = memfd_create("memory", MFD_CLOEXEC);
	const size_t before = cached(memory);
	_cleanup_close_ int from = -EBADF, to = -EBADF;

	assert_int_equal(fd_pipe(O_NONBLOCK, &from, &to), 0);
	assert_int_equal(run("plain", memory, to, false), 0);
	assert_true(cached(memory) > before);
	assert_int_equal(cached(memory), PAGES);
	assert_int_equal(ftruncate(memfd, SIZE), 0);
	assert_int_equal(blocks(memfd), 0);
	(void)run("plain", memfd, to, false);
	assert_true(blocks(memfd) > 0);
}

/* Fails closed: a file of another size, or nowhere to report to. */
TEST_IN_DIR(a_wrong_file_is_refused)
{
	const struct unit_dir *d = *state;
	_cleanup_close_ int memory = make_snapshot(d->fd);
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	char byte;

	assert_int_equal(fd_pipe(O_NONBLOCK, &from, &to), 0);
	assert_int_equal(ftruncate(memory, SIZE - PAGE), 0);
	assert_int_equal(run("mapped", memory, to, true), 3);
	assert_true(read(from, &byte, 1) < 0 && errno == EAGAIN);
	assert_int_equal(ftruncate(memory, SIZE), 0);
	assert_int_equal(run("mapped", memory, from, true), 3);
}

/* Without the library the memory is empty and nothing is reported, which hutch takes for a failure.
 */
TEST_IN_DIR(without_the_library_nothing_is_reported)
{
	const struct unit_dir *d = *state;
	_cleanup_close_ int memory = make_snapshot(d->fd);
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	char byte;

	assert_int_equal(fd_pipe(O_NONBLOCK, &from, &to), 0);
	assert_int_equal(run("mapped", memory, to, false), 1);
	assert_true(read(from, &byte, 1) < 0 && errno == EAGAIN);
}
