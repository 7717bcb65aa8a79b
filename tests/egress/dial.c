/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial NAME PORT [TEXT]: looks the name up with libc's own resolver, connects, sends the text and
 * prints the first bytes that come. Static, once with glibc and once with musl: two resolvers that
 * environment variables do not affect. Exits with 1 if the name is not found and with 2 if the
 * connection fails.
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int dial(const struct addrinfo *found)
{
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			return fd;
		if (fd >= 0)
			(void)close(fd);
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
	char buf[256];
	ssize_t n;
	int r, fd;

	if (argc < 3)
		return 64;
	r = getaddrinfo(argv[1], argv[2], &hints, &found);
	if (r != 0) {
		(void)fprintf(stderr, "dial: %s: %s\n", argv[1], gai_strerror(r));
		return 1;
	}
	fd = dial(found);
	freeaddrinfo(found);
	if (fd < 0) {
		perror("dial: connect");
		return 2;
	}
	if (argc > 3 && send(fd, argv[3], strlen(argv[3]), MSG_NOSIGNAL) < 0) {
		perror("dial: send");
		return 2;
	}
	n = recv(fd, buf, sizeof(buf), 0);
	if (n <= 0) {
		(void)fprintf(stderr, "dial: nothing came\n");
		return 2;
	}
	(void)fwrite(buf, 1, (size_t)n, stdout);
	return 0;
}
