/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware: its size, and what two sandboxes on it could learn about each other. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/str.h"
#include "host/probe.h"

/* "0-3,6" is five. */
static uint64_t count_range(const char *s)
{
	uint64_t n = 0;

	while (*s) {
		uint64_t from = 0, to;
		size_t len = strspn(s, "0123456789");

		if (str_to_u64(s, len, UINT32_MAX, &from) < 0)
			return 0;
		to = from;
		s += len;
		if (*s == '-') {
			len = strspn(++s, "0123456789");
			if (str_to_u64(s, len, UINT32_MAX, &to) < 0 || to < from)
				return 0;
			s += len;
		}
		n += to - from + 1;
		s += *s == ',';
	}
	return n;
}

/* A line "Name:   123 kB" of /proc/meminfo, in bytes; 0 if there is none. */
static uint64_t meminfo(const char *text, const char *name)
{
	const char *p = strstr(text, name);
	uint64_t kib = 0;

	if (!p)
		return 0;
	p += strlen(name);
	p += strspn(p, ": ");
	(void)str_to_u64(p, strspn(p, "0123456789"), UINT64_MAX / 1024, &kib);
	return kib * 1024;
}

static bool probe_cpu(const struct probe_ctx *x, struct host_check *c)
{
	char online[HOST_SHORT_MAX];
	uint64_t n = 0;

	if (host_line(x, "sys/devices/system/cpu/online", online, sizeof(online)))
		n = count_range(online);
	if (n > 0)
		check_value(c, HOST_OK, "%llu%s", (unsigned long long)n,
			    host_cpu_flag(x, "hypervisor") ? ", in a VM" : "");
	else
		check_value(c, HOST_INFO, "unknown");
	return true;
}

static bool probe_memory(const struct probe_ctx *x, struct host_check *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16 * 1024);
	const char *text = host_text(x->root_fd, "proc/meminfo", &b);
	double gib = (double)(1 << 30);
	double total = (double)meminfo(text, "MemTotal") / gib;
	double free = (double)meminfo(text, "MemAvailable") / gib;
	double swap = (double)meminfo(text, "SwapTotal") / gib;

	check_value(c, swap > 0 ? HOST_INFO : HOST_OK, "%.1f GiB, %.1f GiB available, %s", total,
		    free, swap > 0 ? "swap on" : "no swap");
	if (swap > 0)
		check_detail(c, "memory of a sandbox may be written to disk; if that "
				"matters, encrypt the swap or use swapoff -a");
	if (total > 0 && total < 1) {
		c->state = HOST_WARN;
		check_detail(c, "less than 1 GiB: room for few sandboxes");
	}
	return true;
}

static bool probe_smt(const struct probe_ctx *x, struct host_check *c)
{
	long long on = host_number(x, "sys/devices/system/cpu/smt/active");

	if (on <= 0) {
		check_value(c, HOST_OK, "off");
		return true;
	}
	check_value(c, HOST_INFO, "on");
	check_detail(c, "two sandboxes may share a core; a leak only between different owners");
	check_advice(c, "if sandboxes of several owners run here: echo off > "
			"/sys/devices/system/cpu/smt/control");
	return true;
}

static bool probe_ksm(const struct probe_ctx *x, struct host_check *c)
{
	if (host_number(x, "sys/kernel/mm/ksm/run") != 1) {
		check_value(c, HOST_OK, "off");
		return true;
	}
	check_value(c, HOST_WARN, "on");
	check_detail(c,
		     "equal pages are shared, so a sandbox can time writes to learn what another "
		     "holds");
	check_advice(c, "echo 2 > /sys/kernel/mm/ksm/run");
	return true;
}

static bool probe_thp(const struct probe_ctx *x, struct host_check *c)
{
	char line[HOST_SHORT_MAX];
	const char *open;

	if (!host_line(x, "sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		return false;
	open = strchr(line, '[');
	if (!open)
		return false;
	check_value(c, HOST_OK, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
	return true;
}

/* The part of "Mitigation: ...; BHI: Vulnerable" that admits a vulnerability, or NULL. */
static const char *admitted(char *line)
{
	while (line) {
		char *part = strsep(&line, ";");

		if (strcasestr(part, "vulnerable"))
			return part + strspn(part, " ");
	}
	return NULL;
}

static int open_flaws(const struct probe_ctx *x, DIR **ret)
{
	_cleanup_close_ int fd = openat(x->root_fd, "sys/devices/system/cpu/vulnerabilities",
					O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret = fdopendir(fd);
	if (!*ret)
		return -errno;
	(void)TAKE_FD(fd);
	return 0;
}

static void list_flaws(DIR *d, struct buf *names, struct host_check *c)
{
	struct probe_ctx here = { .root_fd = dirfd(d) };
	struct dirent *e;

	while ((e = readdir(d))) {
		char line[512];
		const char *part;

		if (e->d_name[0] == '.' || !host_line(&here, e->d_name, line, sizeof(line)))
			continue;
		part = admitted(line);
		if (!part)
			continue;
		(void)buf_printf(names, "%s%s", names->len ? ", " : "", e->d_name);
		check_detail(c, "%s: %s", e->d_name, part);
	}
}

static bool probe_flaws(const struct probe_ctx *x, struct host_check *c)
{
	_cleanup_buf_ struct buf names = BUF_INIT(512);
	DIR *d = NULL;

	if (open_flaws(x, &d) < 0 || !d) {
		check_value(c, HOST_INFO, "unknown");
		return true;
	}
	list_flaws(d, &names, c);
	(void)closedir(d);
	if (names.len == 0) {
		check_value(c, HOST_OK, "mitigated or not affected");
		return true;
	}
	check_value(c, HOST_WARN, "vulnerable: %s", buf_text(&names));
	check_advice(c, host_cpu_flag(x, "hypervisor")
				? "ask the operator of the physical host for a "
				  "mitigated kernel and current microcode"
				: "update the kernel and the microcode (apt-get install "
				  "intel-microcode or amd64-microcode), then reboot");
	return true;
}

const struct probe probe_hardware[] = {
	{ "hw.cpu", "processors", probe_cpu },
	{ "hw.memory", "memory", probe_memory },
	{ "hw.smt", "SMT", probe_smt },
	{ "hw.ksm", "page sharing (KSM)", probe_ksm },
	{ "hw.thp", "huge pages", probe_thp },
	{ "hw.vulnerabilities", "CPU flaws", probe_flaws },
	{ NULL, NULL, NULL },
};
