/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the receipt of a running box:
 *	receipt PID ID HOST-ID DISK MEMORY PIDS CPUS [rootless]
 * Uses the groups hutch/ID below /sys/fs/cgroup; the receipt reports missing ones.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/str.h"
#include "engine/container.h"
#include "engine/engine.h"

static uint64_t number(const char *text)
{
	uint64_t value;

	if (str_to_u64(text, strlen(text), INT64_MAX, &value) < 0)
		exit(2);
	return value;
}

/* Opens the groups that the test made, with its own limits. */
static void open_groups(const char *id, struct cgroup *g)
{
	cgroup_open(id, g);
	for (size_t i = 0; i < CGROUP_PARTS; i++)
		g->has[i] = g->dir[i] >= 0;
}

int main(int argc, char **argv)
{
	static struct receipt receipt;
	struct cgroup group = CGROUP_INIT;
	struct spec spec = { 0 };
	struct engine_start start = {
		.engine = engine_find("crun"), .spec = &spec, .group = &group, .channel = -EBADF
	};
	struct engine_sandbox box = { 0 };
	_cleanup_json_ json_t *j = NULL;

	if (argc < 8)
		return 2;
	spec.id = argv[2];
	start.ids = (uint32_t)number(argv[3]);
	start.rootless = argc > 8;
	spec.in_memory =
		str_eq(getenv("KIND"), "memory"); /* the requested kind; the box has a tmpfs */
	box.disk = spec.limits.disk = number(argv[4]);
	spec.limits.memory = number(argv[5]);
	spec.limits.pids = number(argv[6]);
	spec.limits.cpus = number(argv[7]);
	box.init.pid = (pid_t)number(argv[1]);
	box.init.pidfd = (int)syscall(SYS_pidfd_open, box.init.pid, 0);
	open_groups(spec.id, &group);
	receipt_init(&receipt, 0);
	verify_container(&start, &box, &receipt);
	j = receipt_json(&receipt, &(struct receipt_head){ spec.id, "container", "crun", "", "" });
	return !j || json_dumpf(j, stdout, 0) < 0;
}
