/* SPDX-License-Identifier: Apache-2.0 */
#include "oci.h"

#include <string.h>

#include "json-util.h"
#include "seccomp.h"

enum {
	CPU_PERIOD_US = 100000
};

/*
 * What PID 1 keeps, inside its own user namespace: to become the asked user, to signal and to give
 * files away. Commands are started without any of it.
 */
static const char *const guest_capabilities[] = { "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
						  "CAP_KILL",  "CAP_SETGID",	   "CAP_SETPCAP",
						  "CAP_SETUID" };

static const char *const namespaces[] = {
	"cgroup", "ipc", "mount", "network", "pid", "user", "uts"
};

static const char *const masked[] = {
	"/proc/acpi",	       "/proc/asound",	      "/proc/config.gz",   "/proc/interrupts",
	"/proc/kallsyms",      "/proc/kcore",	      "/proc/key-users",   "/proc/keys",
	"/proc/kmsg",	       "/proc/kpagecgroup",   "/proc/kpagecount",  "/proc/kpageflags",
	"/proc/latency_stats", "/proc/modules",	      "/proc/sched_debug", "/proc/scsi",
	"/proc/slabinfo",      "/proc/sysrq-trigger", "/proc/timer_list",  "/proc/timer_stats",
	"/proc/vmallocinfo",   "/proc/zoneinfo",
};

static const char *const readonly[] = { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys" };

#define TEXTS(...)                                       \
	json_texts((const char *const[]){ __VA_ARGS__ }, \
		   sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static json_t *mount(const char *destination, const char *type, const char *source, json_t *options)
{
	return JSON_OBJECT({ "destination", json_string(destination) },
			   { "type", json_string(type) }, { "source", json_string(source) },
			   { "options", options });
}

/* No sysfs: it tells of the host's hardware and is needed by nobody. An empty directory stands in
 * its place. */
static json_t *mounts(const struct oci_spec *s)
{
	_cleanup_json_ json_t *a = json_array();
	char shm[32];
	int r;

	(void)snprintf(shm, sizeof(shm), "size=%llu", (unsigned long long)s->shm);
	r = json_push(a, mount("/proc", "proc", "proc", TEXTS("nosuid", "noexec", "nodev")));
	if (r == 0)
		r = json_push(a, mount("/dev", "tmpfs", "tmpfs",
				       TEXTS("nosuid", "noexec", "strictatime", "mode=755",
					     "size=64k", "nr_inodes=64")));
	if (r == 0)
		r = json_push(a, mount("/dev/pts", "devpts", "devpts",
				       TEXTS("nosuid", "noexec", "newinstance", "ptmxmode=0666",
					     "mode=0620")));
	if (r == 0)
		r = json_push(a, mount("/dev/shm", "tmpfs", "shm",
				       TEXTS("nosuid", "noexec", "nodev", "mode=1777", shm)));
	if (r == 0)
		r = json_push(a, mount("/dev/mqueue", "mqueue", "mqueue",
				       TEXTS("nosuid", "noexec", "nodev")));
	if (r == 0)
		r = json_push(a, mount("/sys", "tmpfs", "tmpfs",
				       TEXTS("ro", "nosuid", "noexec", "nodev", "mode=555",
					     "size=4k", "nr_inodes=2")));
	if (r == 0)
		r = json_push(a, mount(OCI_GUEST_PATH, "bind", s->guest,
				       TEXTS("bind", "ro", "nosuid", "nodev")));
	return r < 0 ? NULL : TAKE_PTR(a);
}

static json_t *capabilities(void)
{
	return JSON_OBJECT(
		{ "bounding", json_texts(guest_capabilities, ARRAY_SIZE(guest_capabilities)) },
		{ "effective", json_texts(guest_capabilities, ARRAY_SIZE(guest_capabilities)) },
		{ "permitted", json_texts(guest_capabilities, ARRAY_SIZE(guest_capabilities)) },
		{ "inheritable", json_array() }, { "ambient", json_array() });
}

static json_t *rlimit(const char *type, uint64_t hard)
{
	return JSON_OBJECT({ "type", json_string(type) }, { "soft", json_number(hard) },
			   { "hard", json_number(hard) });
}

static json_t *rlimits(const struct oci_spec *s)
{
	_cleanup_json_ json_t *a = json_array();
	int r = json_push(a, rlimit("RLIMIT_NOFILE", s->nofile));

	if (r == 0)
		r = json_push(a, rlimit("RLIMIT_CORE", 0));
	return r < 0 ? NULL : TAKE_PTR(a);
}

static json_t *process(const struct oci_spec *s)
{
	return JSON_OBJECT(
		{ "terminal", json_false() },
		{ "user", JSON_OBJECT({ "uid", json_number(0) }, { "gid", json_number(0) }) },
		{ "args", TEXTS(OCI_GUEST_PATH) },
		{ "env", TEXTS("PATH=/usr/sbin:/usr/bin:/sbin:/bin") }, { "cwd", json_string("/") },
		{ "capabilities", capabilities() }, { "rlimits", rlimits(s) },
		{ "noNewPrivileges", json_true() }, { "oomScoreAdj", json_number(0) });
}

static json_t *id_map(uint32_t host)
{
	json_t *a = json_array();
	json_t *one =
		JSON_OBJECT({ "containerID", json_number(0) }, { "hostID", json_number(host) },
			    { "size", json_number(OCI_IDS) });

	if (json_push(a, one) == 0)
		return a;
	json_decref(a);
	return NULL;
}

static json_t *namespace_list(void)
{
	_cleanup_json_ json_t *a = json_array();

	for (size_t i = 0; a && i < ARRAY_SIZE(namespaces); i++)
		if (json_push(a, JSON_OBJECT({ "type", json_string(namespaces[i]) })) < 0)
			return NULL;
	return TAKE_PTR(a);
}

/* No device of the host; the runtime adds null, zero, full, random, urandom and tty itself. */
static json_t *no_devices(void)
{
	json_t *a = json_array();

	if (json_push(a, JSON_OBJECT({ "allow", json_false() },
				     { "access", json_string("rwm") })) == 0)
		return a;
	json_decref(a);
	return NULL;
}

static json_t *resources(const struct oci_spec *s)
{
	uint64_t quota = s->cpus * CPU_PERIOD_US / 1000;

	/* Swap as much as memory means no swap at all. */
	return JSON_OBJECT({ "devices", no_devices() },
			   { "memory", JSON_OBJECT({ "limit", json_number(s->memory) },
						   { "swap", json_number(s->memory) }) },
			   { "pids", JSON_OBJECT({ "limit", json_number(s->pids) }) },
			   { "cpu", JSON_OBJECT({ "quota", json_number(quota) },
						{ "period", json_number(CPU_PERIOD_US) }) });
}

static json_t *linux_part(const struct oci_spec *s)
{
	_cleanup_json_ json_t *o = JSON_OBJECT(
		{ "uidMappings", id_map(s->host_uid) }, { "gidMappings", id_map(s->host_gid) },
		{ "namespaces", namespace_list() },
		{ "maskedPaths", json_texts(masked, ARRAY_SIZE(masked)) },
		{ "readonlyPaths", json_texts(readonly, ARRAY_SIZE(readonly)) },
		{ "seccomp", seccomp_profile() });
	int r = o ? 0 : -ENOMEM;

	if (r == 0 && s->cgroup)
		r = json_put(o, "cgroupsPath", json_string(s->cgroup));
	if (r == 0 && s->cgroup)
		r = json_put(o, "resources", resources(s));
	return r < 0 ? NULL : TAKE_PTR(o);
}

char *oci_config(const struct oci_spec *s)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "ociVersion", json_string("1.0.2") }, { "process", process(s) },
			    { "root", JSON_OBJECT({ "path", json_string(s->rootfs) },
						  { "readonly", json_false() }) },
			    { "hostname", json_string(s->hostname) }, { "mounts", mounts(s) },
			    { "linux", linux_part(s) });

	return j ? json_write_line(j) : NULL;
}
