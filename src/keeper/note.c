/* SPDX-License-Identifier: Apache-2.0 */
/* Notes between warden and keeper. */
#include <sys/socket.h>

#include "fd-pass.h"
#include "keeper.h"

static_assert((int)NOTE_FILES_MAX <= (int)FD_PASS_MAX, "all files of a note go in one packet");

/* Without files it is write(2): the keeper has no other way. */
int note_send(int fd, enum note_kind kind, uint64_t value, const int *files, size_t n)
{
	const struct keeper_note note = { .kind = kind, .value = value };

	assert(n <= NOTE_FILES_MAX);
	if (n > 0)
		return fd_pass(fd, MSG_DONTWAIT, &note, sizeof(note), files, n);
	return RETRY_EINTR(write(fd, &note, sizeof(note))) < 0 ? -errno : 0;
}

int note_receive(int fd, struct keeper_note *ret, int files[static NOTE_FILES_MAX], size_t *ret_n)
{
	int r = fd_receive(fd, MSG_DONTWAIT, ret, sizeof(*ret), files, NOTE_FILES_MAX);
	size_t n = 0;

	if (r < 0)
		return r;
	while (n < NOTE_FILES_MAX && files[n] >= 0)
		n++;
	*ret_n = n;
	return 0;
}
