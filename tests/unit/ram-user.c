/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps memory as QEMU does, checks each page and writes to it: test-ram.c starts it with
 * hutch-ram.so. `ram-user mapped|plain snapshot|empty`; plain maps the file as a whole. Exits with
 * 0 if all was as in the snapshot, 1 if not, 2 if descriptors stayed open, 3 if mmap(2) failed.
 *
 * A program of its own, because a sanitizer's runtime allows no library before it.
 */
#include "ram-user.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map_as_qemu(void)
{
	char *at = mmap(NULL, SIZE + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int placeholder = memfd_create("placeholder", MFD_CLOEXEC);

	if (at == MAP_FAILED || placeholder < 0 || ftruncate(placeholder, SIZE) < 0)
		return MAP_FAILED;
	return mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, placeholder, 0);
}

static int use_memory(bool plain, bool snapshot)
{
	char *at = plain ? mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, RAM_FD_MEMORY, 0)
			 : map_as_qemu();

	if (at == MAP_FAILED)
		return 3;
	for (size_t i = 0; i < PAGES; i++) {
		const char wanted = (char)(snapshot && has_data(i) ? 'a' + i % 26 : 0);

		if (at[i * PAGE] != wanted || at[i * PAGE + PAGE - 1] != wanted)
			return 1;
		at[i * PAGE] = 'w';
	}
	/* Both are closed: QEMU keeps neither. */
	if (!plain && (fcntl(RAM_FD_REPORT, F_GETFD) >= 0 ||
		       (snapshot && fcntl(RAM_FD_MEMORY, F_GETFD) >= 0)))
		return 2;
	return 0;
}

int main(int argc, char **argv)
{
	return argc == 3
		       ? use_memory(strcmp(argv[1], "plain") == 0, strcmp(argv[2], "snapshot") == 0)
		       : 9;
}
