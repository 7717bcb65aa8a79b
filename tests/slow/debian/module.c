/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a socket of SCTP, which is a module that the kernel of the host loads for whoever asks. No
 * namespace and no capability is in the way, and seccomp sees an internet socket like any other.
 * Prints "made", or the name of the error.
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
