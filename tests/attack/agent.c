/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int channel = -1;
unsigned char bytes[PAYLOAD_MAX];

const char *mode_of(const char *path)
{
	static char tail[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const char *nul;

	if (fd < 0 || lseek(fd, 1 - (off_t)sizeof(tail), SEEK_END) < 0 ||
	    read(fd, tail, sizeof(tail) - 1) < 1)
		_exit(3);
	(void)close(fd);
	nul = memrchr(tail, '\0', sizeof(tail) - 1);
	return nul ? nul + 1 : "";
}

void forever(void)
{
	for (;;)
		(void)pause();
}

void put(const void *data, size_t n)
{
	const char *p = data;

	while (n > 0) {
		ssize_t k = write(channel, p, n);

		if (k < 0)
			forever();
		p += k;
		n -= (size_t)k;
	}
}

void put_head(uint32_t length, uint32_t ch, int type, int sub, int zero)
{
	unsigned char h[HEADER] = { 0 };

	memcpy(h, &(uint32_t){ htonl(length) }, 4);
	memcpy(h + 4, &(uint32_t){ htonl(ch) }, 4);
	h[8] = (unsigned char)type;
	h[9] = (unsigned char)sub;
	h[11] = (unsigned char)zero;
	put(h, sizeof(h));
}

void frame(uint32_t ch, int type, int sub, const void *data, size_t n)
{
	put_head((uint32_t)n, ch, type, sub, 0);
	put(data, n);
}

void frame_of(uint32_t ch, int type, int sub, const struct payload *p)
{
	frame(ch, type, sub, p->data, p->n);
}

void add_bytes(struct payload *p, int tag, const void *value, size_t n)
{
	p->data[p->n++] = (unsigned char)tag;
	p->data[p->n++] = 0;
	p->data[p->n++] = (unsigned char)(n >> 8);
	p->data[p->n++] = (unsigned char)n;
	memcpy(p->data + p->n, value, n);
	p->n += n;
}

void add_number(struct payload *p, int tag, uint64_t value)
{
	unsigned char b[8];

	for (int i = 0; i < 8; i++)
		b[i] = (unsigned char)(value >> (56 - 8 * i));
	add_bytes(p, tag, b, sizeof(b));
}

void say_hello(const char *name, uint64_t version)
{
	struct payload p = { .n = 0 };

	add_number(&p, TAG_VERSION, version);
	add_bytes(&p, TAG_AGENT, name, strlen(name));
	add_number(&p, TAG_LANDLOCK, 7);
	frame_of(0, HELLO, 0, &p);
}

void say_accepted(uint32_t ch)
{
	struct payload p = { .n = 0 };

	add_number(&p, TAG_PID, 2);
	frame_of(ch, ACCEPT, 0, &p);
}

void say_exit(uint32_t ch, int with_code, int with_signal)
{
	struct payload p = { .n = 0 };

	if (with_code)
		add_number(&p, TAG_CODE, 0);
	if (with_signal)
		add_number(&p, TAG_SIGNAL, 9);
	add_number(&p, TAG_USER_US, 1);
	add_number(&p, TAG_SYSTEM_US, 1);
	add_number(&p, TAG_RSS, 1);
	frame_of(ch, MSG, EXIT, &p);
}

void say_closed(uint32_t ch, uint64_t code, const char *text)
{
	struct payload p = { .n = 0 };

	add_number(&p, TAG_CODE, code);
	if (text)
		add_bytes(&p, TAG_TEXT, text, strlen(text));
	frame_of(ch, CLOSE, 0, &p);
}

void say_garbage(void)
{
	for (uint32_t i = 0, x = 1; i < PAYLOAD_MAX; i++, x = x * 1664525 + 1013904223)
		bytes[i] = (unsigned char)(x >> 24);
	for (;;)
		put(bytes, sizeof(bytes));
}
