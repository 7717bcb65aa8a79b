/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Read-only segments hold only pages of the file: the dynamic linker writes only to writable ones
 * (which include PT_GNU_RELRO). So dropping them loses nothing.
 */
static int drop_constant(struct dl_phdr_info *info, size_t size, void *arg)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size;
	(void)arg;
	for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
		uintptr_t to = (info->dlpi_addr + p->p_vaddr + p->p_filesz) & ~(page - 1);

		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && to > from)
			/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
			(void)madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 1; /* the program comes first; libraries are shared with other processes */
}

void memory_settle(void)
{
#ifdef __GLIBC__
	(void)malloc_trim(0);
#endif
	(void)dl_iterate_phdr(drop_constant, NULL);
}
