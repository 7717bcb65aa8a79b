/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an SCTP socket, which causes the host's kernel to load a module for any caller. Namespaces
 * and capabilities do not prevent it, and seccomp sees an ordinary internet socket. Prints "made",
 * or the name of the error.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(void)
{
	int fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);

	return puts(fd < 0 ? strerrorname_np(errno) : "made") < 0;
}
