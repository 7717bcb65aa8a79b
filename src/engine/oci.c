/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/oci.h"

#include <linux/capability.h>
#include <string.h>

#include "base/json-util.h"
#include "base/proc-hidden.h"
#include "base/str.h"
#include "engine/seccomp.h"

/* Capabilities that PID 1 keeps in its own user namespace: to change to a command's user, to
 * signal, to chown files, and to read all files for an image. Commands start with none. */
static const struct {
	const char *name;
	unsigned int number;
} guest_capabilities[] = {
	{ "CAP_CHOWN", CAP_CHOWN },   { "CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH },
	{ "CAP_FOWNER", CAP_FOWNER }, { "CAP_KILL", CAP_KILL },
	{ "CAP_SETGID", CAP_SETGID }, { "CAP_SETPCAP", CAP_SETPCAP },
	{ "CAP_SETUID", CAP_SETUID },
};

static const char *const namespaces[] = {
	"cgroup", "ipc", "mount", "network", "pid", "user", "uts"
};

uint64_t oci_guest_capabilities(void)
{
	uint64_t bits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(guest_capabilities); i++)
		bits |= UINT64_C(1) << guest_capabilities[i].number;
	return bits;
}

#define TEXTS(...)                                       \
	json_texts((const char *const[]){ __VA_ARGS__ }, \
		   sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static json_t *mount(const char *destination, const char *type, const char *source, json_t *options)
{
	return JSON_OBJECT({ "destination", json_string(destination) },
			   { "type", json_string(type) }, { "source", json_string(source) },
			   { "options", options });
}

/* No sysfs: it reveals the host's hardware, and no program needs it. /sys is an empty directory. */
static json_t *mounts(const struct oci_spec *s)
{
	_cleanup_json_ json_t *a = json_array();
	char shm[32];
	int r;

	/* The kernel has 4,096 terminals in all: without "max" one sandbox could take all. */
	(void)snprintf(shm, sizeof(shm), "size=%llu", (unsigned long long)s->shm);
	r = json_push(a, mount("/proc", "proc", "proc", TEXTS("nosuid", "noexec", "nodev")));
	if (r == 0)
		r = json_push(a, mount("/dev", "tmpfs", "tmpfs",
				       TEXTS("nosuid", "noexec", "strictatime", "mode=755",
					     "size=64k", "nr_inodes=64")));
	if (r == 0)
		r = json_push(a, mount("/dev/pts", "devpts", "devpts",
				       TEXTS("nosuid", "noexec", "newinstance", "ptmxmode=0666",
					     "mode=0620", "max=128")));
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

static json_t *capability_names(void)
{
	const char *names[ARRAY_SIZE(guest_capabilities)];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		names[i] = guest_capabilities[i].name;
	return json_texts(names, ARRAY_SIZE(names));
}

static json_t *capabilities(void)
{
	return JSON_OBJECT({ "bounding", capability_names() }, { "effective", capability_names() },
			   { "permitted", capability_names() }, { "inheritable", json_array() },
			   { "ambient", json_array() });
}

static json_t *rlimit(const char *type, uint64_t hard)
{
	return JSON_OBJECT({ "type", json_string(type) }, { "soft", json_number(hard) },
			   { "hard", json_number(hard) });
}

static json_t *rlimits(const struct oci_spec *s)
{
	_cleanup_json_ json_t *a = json_array();
	int r = 0;

	if (s->nofile == 0)
		return TAKE_PTR(a);
	r = json_push(a, rlimit("RLIMIT_NOFILE", s->nofile));

	/* Not 0: a limit of 1 also stops the kernel from starting the host's crash handler,
	 * which runs as root and would parse data of an untrusted process. See core(5) and
	 * fs/coredump.c. */
	if (r == 0)
		r = json_push(a, rlimit("RLIMIT_CORE", MIN(s->core, (uint64_t)OCI_CORE)));
	return r < 0 ? NULL : TAKE_PTR(a);
}

/* For PID 1; commands get their environment over the channel. */
static json_t *environment(void)
{
	static const char *const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
#ifdef HUTCH_FAULT_POINTS
	const char *points = getenv("HUTCH_FAULT");
	char fault[1024];

	if (points && snprintf(fault, sizeof(fault), "HUTCH_FAULT=%s", points) < (int)sizeof(fault))
		return TEXTS(path, fault);
#endif
	return TEXTS(path);
}

static json_t *process(const struct oci_spec *s)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "terminal", json_false() },
		{ "user", JSON_OBJECT({ "uid", json_number(0) }, { "gid", json_number(0) }) },
		{ "args", TEXTS(OCI_GUEST_PATH) }, { "env", environment() },
		{ "cwd", json_string("/") }, { "capabilities", capabilities() },
		{ "rlimits", rlimits(s) }, { "noNewPrivileges", json_true() },
		{ "oomScoreAdj", json_number(0) });

	if (s->apparmor && json_put(j, "apparmorProfile", json_string(s->apparmor)) < 0)
		return NULL;
	return TAKE_PTR(j);
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

static json_t *namespace(const char *type, const char *path)
{
	if (!path)
		return JSON_OBJECT({ "type", json_string(type) });
	return JSON_OBJECT({ "type", json_string(type) }, { "path", json_string(path) });
}

static json_t *namespace_list(const struct oci_spec *s)
{
	_cleanup_json_ json_t *a = json_array();

	for (size_t i = 0; a && i < ARRAY_SIZE(namespaces); i++) {
		const char *join = str_eq(namespaces[i], "user") ? s->user_namespace : NULL;

		if (json_push(a, namespace(namespaces[i], join)) < 0)
			return NULL;
	}
	return TAKE_PTR(a);
}

/* A NULL-terminated list of texts. */
static json_t *json_list(const char *const *list)
{
	size_t n = 0;

	while (list[n])
		n++;
	return json_texts(list, n);
}

static json_t *linux_part(const struct oci_spec *s)
{
	return JSON_OBJECT(
		{ "uidMappings", id_map(s->host_uid) }, { "gidMappings", id_map(s->host_gid) },
		{ "namespaces", namespace_list(s) }, { "maskedPaths", json_list(proc_masked) },
		{ "readonlyPaths", json_list(proc_readonly) }, { "seccomp", seccomp_profile() });
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
