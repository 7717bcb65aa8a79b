/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two machines that are copies of one state would draw the same random numbers, at the same time,
 * under the same name. The kernel mixes the seed in and throws its key away at once
 * (RNDRESEEDCRNG), so that what was drawn before the copy tells nothing about what comes.
 */
#include "vm.h"

#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "clock.h"
#include "fd.h"
#include "log.h"
#include "path.h"

enum {
	MACHINE_ID = 32, /* hexadecimal digits */
};

/* Opened once, in the initramfs: users may put something else in its place. */
static int random_device(void)
{
	static int fd = -EBADF;

	if (fd < 0)
		fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	return fd;
}

static int reseed(const char *seed, size_t n)
{
	int fd = random_device();
	/* struct rand_pool_info: bits, bytes, and the bytes themselves */
	int pool[2 + WIRE_SEED / sizeof(int)] = { WIRE_SEED * 8, WIRE_SEED };

	assert(n == WIRE_SEED);
	memcpy(&pool[2], seed, n);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0)
		return -errno;
	explicit_bzero(pool, sizeof(pool));
	return 0;
}

int vm_refresh(const struct fields *f, struct err *e)
{
	uint64_t now = fields_number(f, TAG_TIME, 0);
	const struct timespec t = { .tv_sec = (time_t)(now / NSEC_PER_SEC),
				    .tv_nsec = (long)(now % NSEC_PER_SEC) };
	const char *seed;
	size_t pos = 0, n;
	int r = 0;

	if (fields_next(f, TAG_SEED, &pos, &seed, &n))
		r = reseed(seed, n);
	if (r < 0)
		return err_set(e, r, "cannot seed the random numbers: %s", strerror(-r));
	if (fields_has(f, TAG_TIME) && clock_settime(CLOCK_REALTIME, &t) < 0)
		return err_errno(e, "cannot set the time");
	return 0;
}

static bool is_machine_id(const char *text, size_t n)
{
	if (n != MACHINE_ID)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	return true;
}

int vm_name(const struct fields *hello, struct err *e)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char text[MACHINE_ID + 1];
	const char *value;
	size_t pos = 0, n;
	int r;

	if (fields_next(hello, TAG_HOSTNAME, &pos, &value, &n) && sethostname(value, n) < 0)
		return err_errno(e, "cannot set the host name");
	pos = 0;
	if (!fields_next(hello, TAG_MACHINE, &pos, &value, &n))
		return 0;
	if (!is_machine_id(value, n))
		return err_set(e, -EINVAL, "the machine-id is not 32 hexadecimal digits");
	memcpy(text, value, n);
	text[n] = '\n';
	r = root < 0 ? -errno : vm_replace(root, "machine-id", 0444, text, n + 1);
	/* Its /etc is the sandbox's own: who has spoilt it has an old number, and goes on. */
	if (r < 0)
		log_warning("cannot write /etc/machine-id: %s", strerror(-r));
	return 0;
}
