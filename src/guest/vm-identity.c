/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each copy of a saved VM its own identity. Without it, two copies would draw the same random
 * numbers and have the same time and name. The kernel mixes in the seed and replaces its key at
 * once (RNDRESEEDCRNG), so that numbers drawn before the copy do not reveal later ones.
 */
#include "guest/vm.h"

#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"

enum {
	MACHINE_ID = 32, /* hexadecimal digits */
};

/* Opened once, in the initramfs, because users may replace the file later. */
static int device = -EBADF;

int vm_random_open(struct err *e)
{
	device = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	return device < 0 ? err_errno(e, "cannot open /dev/urandom") : 0;
}

/*
 * The kernel draws its boot id at the first read and keeps it. If a process has read it, all copies
 * of the VM share it. So users see a file of ours in its place.
 */
static int boot_id = -EBADF;

int vm_boot_id_open(const char *path, struct err *e)
{
	boot_id = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	return boot_id < 0 ? err_errno(e, "cannot make %s", path) : 0;
}

/* Draws a version 4 UUID, like the kernel's. */
static int new_boot_id(void)
{
	unsigned char u[16] = { 0 };
	char text[40];
	int n;

	if (RETRY_EINTR(getrandom(u, sizeof(u), 0)) != (ssize_t)sizeof(u))
		return -EIO;
	u[6] = (u[6] & 0x0f) | 0x40;
	u[8] = (u[8] & 0x3f) | 0x80;
	n = snprintf(text, sizeof(text),
		     "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", u[0],
		     u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		     u[13], u[14], u[15]);
	return pwrite(boot_id, text, (size_t)n, 0) == n ? 0 : -errno;
}

static int reseed(const char *seed, size_t n)
{
	/* struct rand_pool_info: bits, bytes, and the bytes themselves */
	int pool[2 + WIRE_SEED / sizeof(int)] = { WIRE_SEED * 8, WIRE_SEED };

	assert(n == WIRE_SEED);
	memcpy(&pool[2], seed, n);
	if (ioctl(device, RNDADDENTROPY, pool) < 0 || ioctl(device, RNDRESEEDCRNG) < 0)
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
	r = new_boot_id();
	if (r < 0)
		return err_set(e, r, "cannot draw a boot id: %s", strerror(-r));
	pos = 0;
	if (!fields_next(hello, TAG_MACHINE, &pos, &value, &n))
		return 0;
	if (!is_machine_id(value, n))
		return err_set(e, -EINVAL, "the machine-id is not 32 hexadecimal digits");
	memcpy(text, value, n);
	text[n] = '\n';
	r = root < 0 ? -errno : path_replace(root, "etc", "machine-id", 0444, text, n + 1);
	/* The sandbox owns its /etc. If a user has damaged it, the VM keeps the old machine-id. */
	if (r < 0)
		log_warning("cannot write /etc/machine-id: %s", strerror(-r));
	return 0;
}
