/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 of a box that the test only inspects: waits until the other end of descriptor 3 is
 * closed. With an argument it acts as a delayed program and exits after half a second. */
#include <unistd.h>

enum {
	DELAY_US = 500 * 1000
};

int main(int argc, char **argv)
{
	char c;

	(void)argv;
	if (argc > 1)
		return usleep(DELAY_US);
	while (read(3, &c, 1) > 0)
		;
	return 0;
}
