/* SPDX-License-Identifier: Apache-2.0 */
#include "client/terminal.h"

#include <sys/ioctl.h>

enum {
	COLUMNS = 80,
	ROWS = 24,
};

int terminal_raw(struct terminal *t, int fd)
{
	struct termios raw;

	if (tcgetattr(fd, &t->before) < 0)
		return -errno;
	raw = t->before;
	cfmakeraw(&raw);
	if (tcsetattr(fd, TCSANOW, &raw) < 0)
		return -errno;
	t->fd = fd;
	return 0;
}

void terminal_restore(struct terminal *t)
{
	if (t->fd >= 0)
		(void)tcsetattr(t->fd, TCSANOW, &t->before);
	t->fd = -EBADF;
}

void terminal_size(int fd, uint16_t *ret_columns, uint16_t *ret_rows)
{
	struct winsize w = { 0 };

	(void)ioctl(fd, TIOCGWINSZ, &w);
	*ret_columns = w.ws_col > 0 ? w.ws_col : COLUMNS;
	*ret_rows = w.ws_row > 0 ? w.ws_row : ROWS;
}
