/* SPDX-License-Identifier: Apache-2.0 */
/* The bundle, as data. tests/attack shows its effect in a real runtime. */
#include "unit.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/json-util.h"
#include "engine/oci.h"
#include "engine/seccomp.h"
#include "fail.h"

static const struct oci_spec spec = {
	.rootfs = "/r",
	.guest = "/g",
	.hostname = "h",
	.host_uid = 100000,
	.host_gid = 200000,
	.shm = 4096,
	.nofile = 1024,
};

static json_t *config(const struct oci_spec *s)
{
	_cleanup_free_ char *text = oci_config(s);
	struct err e = ERR_INIT;
	json_t *j = NULL;

	assert_non_null(text);
	assert_int_equal(json_read(text, strlen(text), &j, &e), 0);
	return j;
}

static const json_t *at(const json_t *j, const char *a, const char *b)
{
	const json_t *found = json_object_get(json_object_get(j, a), b);

	assert_non_null(found);
	return found;
}

static bool lists(const json_t *array, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach((json_t *)array, i,
			   one) if (strcmp(json_string_value(one), text) == 0) return true;
	return false;
}

TEST(every_namespace_is_new)
{
	static const char *const all[] = {
		"cgroup", "ipc", "mount", "network", "pid", "user", "uts"
	};
	_cleanup_json_ json_t *j = config(&spec);
	const json_t *list = at(j, "linux", "namespaces"), *one;
	size_t i;

	assert_int_equal(json_array_size(list), ARRAY_SIZE(all));
	json_array_foreach((json_t *)list, i, one)
	{
		assert_string_equal(json_string_value(json_object_get(one, "type")), all[i]);
		assert_null(json_object_get(one, "path")); /* none is joined */
	}
}

TEST(ids_are_mapped)
{
	_cleanup_json_ json_t *j = config(&spec);
	const json_t *uid = json_array_get(at(j, "linux", "uidMappings"), 0);
	const json_t *gid = json_array_get(at(j, "linux", "gidMappings"), 0);

	assert_int_equal(json_integer_value(json_object_get(uid, "containerID")), 0);
	assert_int_equal(json_integer_value(json_object_get(uid, "hostID")), 100000);
	assert_int_equal(json_integer_value(json_object_get(uid, "size")), 65535);
	assert_int_equal(json_integer_value(json_object_get(gid, "hostID")), 200000);
	assert_int_equal(json_array_size(at(j, "linux", "uidMappings")), 1);
}

TEST(only_the_user_namespace_can_be_joined)
{
	struct oci_spec s = spec;
	_cleanup_json_ json_t *j = NULL;
	const json_t *one;
	size_t i;

	s.user_namespace = "/n";
	j = config(&s);
	json_array_foreach((json_t *)at(j, "linux", "namespaces"), i, one)
	{
		const char *path = json_string_value(json_object_get(one, "path"));

		if (strcmp(json_string_value(json_object_get(one, "type")), "user") == 0)
			assert_string_equal(path, "/n");
		else
			assert_null(path);
	}
	assert_int_equal(json_array_size(at(j, "linux", "uidMappings")), 1);
}

TEST(apparmor_is_asked_for_where_it_is)
{
	struct oci_spec s = spec;
	_cleanup_json_ json_t *without = config(&s), *with = NULL;

	s.apparmor = "hutch-sandbox";
	with = config(&s);
	assert_null(json_object_get(json_object_get(without, "process"), "apparmorProfile"));
	assert_string_equal(json_string_value(at(with, "process", "apparmorProfile")),
			    "hutch-sandbox");
}

TEST(nothing_of_the_host_is_mounted)
{
	_cleanup_json_ json_t *j = config(&spec);
	const json_t *one;
	size_t i, binds = 0;

	json_array_foreach(json_object_get(j, "mounts"), i, one)
	{
		const json_t *options = json_object_get(one, "options");

		assert_true(lists(options, "nosuid"));
		if (strcmp(json_string_value(json_object_get(one, "type")), "bind") != 0)
			continue;
		binds++;
		assert_string_equal(json_string_value(json_object_get(one, "source")), "/g");
		assert_string_equal(json_string_value(json_object_get(one, "destination")),
				    OCI_GUEST_PATH);
		assert_true(lists(options, "ro"));
	}
	assert_int_equal(binds, 1);
	assert_true(json_is_true(at(j, "process", "noNewPrivileges")));
	assert_null(json_object_get(j, "hooks"));
	assert_null(json_object_get(j, "annotations"));
}

static bool holds(const json_t *comparison, const uint64_t args[static 3])
{
	uint64_t mask = (uint64_t)json_integer_value(json_object_get(comparison, "value"));
	uint64_t want = (uint64_t)json_integer_value(json_object_get(comparison, "valueTwo"));
	json_int_t index = json_integer_value(json_object_get(comparison, "index"));

	const char *op = json_string_value(json_object_get(comparison, "op"));

	assert_in_range(index, 0, 2);
	if (strcmp(op, "SCMP_CMP_NE") == 0)
		return args[index] != mask;
	assert_string_equal(op, "SCMP_CMP_MASKED_EQ");
	return (args[index] & mask) == want;
}

/* The rule that applies to a call, evaluated by hand; there is at most one. */
static const json_t *rule_of(const json_t *profile, const char *call, const uint64_t args[static 3])
{
	const json_t *rule, *arg, *found = NULL;
	size_t i, k;

	json_array_foreach(json_object_get(profile, "syscalls"), i, rule)
	{
		bool match = lists(json_object_get(rule, "names"), call);

		if (!match)
			continue;
		json_array_foreach(json_object_get(rule, "args"), k, arg) match =
			match && holds(arg, args);
		if (!match)
			continue;
		assert_null(found);
		found = rule;
	}
	return found;
}

static bool allows_call(const json_t *profile, const char *call, const uint64_t args[static 3])
{
	const json_t *action = json_object_get(rule_of(profile, call, args), "action");

	return action && strcmp(json_string_value(action), "SCMP_ACT_ALLOW") == 0;
}

/* Whether the call is faked as successful. */
static bool ignores_call(const json_t *profile, const char *call, const uint64_t args[static 3])
{
	const json_t *number = json_object_get(rule_of(profile, call, args), "errnoRet");

	return number && json_integer_value(number) == 0;
}

/* The other arguments are 0. */
static bool allows(const json_t *profile, const char *call, size_t index, uint64_t value)
{
	uint64_t args[3] = { 0 };

	args[index] = value;
	return allows_call(profile, call, args);
}

TEST(ioctl_but_two)
{
	_cleanup_json_ json_t *p = seccomp_profile();

	/* All values that differ from either in up to their lowest 16 bits, alone and with bits
	 * that the kernel ignores. */
	for (uint64_t v = 0; v < 0x10000; v += v < 0x5400 || v > 0x5500 ? 251 : 1) {
		bool typing = v == TIOCSTI || v == TIOCLINUX;

		assert_int_equal(allows(p, "ioctl", 1, v), !typing);
		assert_int_equal(allows(p, "ioctl", 1, v | UINT64_C(1) << 32), !typing);
		assert_true(allows(p, "ioctl", 1, v | 0x80000000));
	}
}

TEST(prctl_but_filters)
{
	_cleanup_json_ json_t *p = seccomp_profile();

	for (uint64_t v = 0; v < 256; v++) {
		assert_int_equal(allows(p, "prctl", 0, v), v != PR_SET_SECCOMP);
		assert_int_equal(allows(p, "prctl", 0, v | UINT64_C(1) << 32), v != PR_SET_SECCOMP);
	}
	for (unsigned int bit = 8; bit < 32; bit++)
		assert_false(allows(p, "prctl", 0, PR_SET_SECCOMP | UINT64_C(1) << bit));
	assert_true(allows(p, "prctl", 0, PR_SET_PTRACER));
	assert_true(allows(p, "prctl", 0, PR_SET_VMA));
	assert_false(allows(p, "seccomp", 0, 0));
}

TEST(setsockopt_but_filters_and_protocols)
{
	_cleanup_json_ json_t *p = seccomp_profile();

	for (uint64_t level = 0; level < 300; level++)
		for (uint64_t v = 0; v < 128; v++) {
			const uint64_t high = UINT64_C(1) << 32;
			bool filter = (level == SOL_SOCKET &&
				       (v == SO_ATTACH_FILTER || v == SO_ATTACH_BPF ||
					v == SO_ATTACH_REUSEPORT_CBPF ||
					v == SO_ATTACH_REUSEPORT_EBPF)) ||
				      (level == IPPROTO_TCP && v == TCP_ULP) ||
				      (level == IPPROTO_UDP && v == UDP_ENCAP);

			assert_int_equal(allows_call(p, "setsockopt", (uint64_t[]){ 0, level, v }),
					 !filter);
			assert_int_equal(allows_call(p, "setsockopt",
						     (uint64_t[]){ 0, level | high, v | high }),
					 !filter);
			if (level > 64)
				v += 7;
		}
}

TEST(limits_but_of_core_files)
{
	_cleanup_json_ json_t *p = seccomp_profile();

	for (uint64_t v = 0; v < RLIM_NLIMITS; v++)
		for (uint64_t high = 0; high <= UINT64_C(1) << 32; high += UINT64_C(1) << 32) {
			const uint64_t set[] = { v | high, 0, 0 }, asked[] = { 0, v | high, 0 },
				       other[] = { 0, v | high, UINT64_C(1) << 32 };
			bool core = v == RLIMIT_CORE;

			assert_int_equal(allows_call(p, "setrlimit", set), !core);
			assert_int_equal(ignores_call(p, "setrlimit", set), core);
			assert_true(allows_call(p, "prlimit64", asked));
			assert_int_equal(allows_call(p, "prlimit64", other), !core);
			assert_int_equal(ignores_call(p, "prlimit64", other), core);
		}
}

TEST(disks_are_not_synced)
{
	_cleanup_json_ json_t *p = seccomp_profile();
	const uint64_t args[3] = { 0 };

	assert_true(ignores_call(p, "sync", args));
	assert_true(ignores_call(p, "syncfs", args));
	assert_true(allows_call(p, "fsync", args));
}

TEST(core_files_and_handlers_are_off)
{
	static const uint64_t own[] = { 0, 1, 4096, INT64_MAX };
	const json_t *one;
	size_t k;

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		struct oci_spec s = spec;
		_cleanup_json_ json_t *j = NULL;
		uint64_t found = 2;

		s.core = own[i];
		j = config(&s);
		json_array_foreach((json_t *)at(j, "process", "rlimits"), k,
				   one) if (strcmp(json_string_value(json_object_get(one, "type")),
						   "RLIMIT_CORE") == 0) found =
			(uint64_t)json_integer_value(json_object_get(one, "hard"));
		assert_int_equal(found, MIN(own[i], UINT64_C(1)));
	}
}

TEST(clone_without_namespaces)
{
	_cleanup_json_ json_t *p = seccomp_profile();

	assert_true(allows(p, "clone", 0, 0x11));
	for (unsigned int bit = 0; bit < 64; bit++) {
		uint64_t flag = UINT64_C(1) << bit;

		assert_int_equal(allows(p, "clone", 0, flag), (flag & 0x7e020000) == 0);
	}
	assert_false(allows(p, "unshare", 0, 0));
	assert_false(allows(p, "setns", 0, 0));
	assert_false(allows(p, "clone3", 0, 0));
	assert_false(allows(p, "io_uring_setup", 0, 0));
	assert_false(allows(p, "bpf", 0, 0));
	assert_true(allows(p, "read", 0, 0));
}

/* Sockets that programs use, by family, type and protocol. The filter refuses all others. */
static bool is_good_socket(uint64_t family, uint64_t type, uint64_t protocol)
{
	if (family == AF_UNIX)
		return (type == SOCK_STREAM || type == SOCK_DGRAM || type == SOCK_SEQPACKET) &&
		       protocol <= PF_UNIX;
	if (family != AF_INET && family != AF_INET6)
		return false;
	if (type == SOCK_STREAM)
		return protocol == 0 || protocol == IPPROTO_TCP;
	return type == SOCK_DGRAM &&
	       (protocol == 0 || protocol == IPPROTO_UDP ||
		protocol == (family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6));
}

static void check_sockets(const json_t *p, uint64_t family, uint64_t type, uint64_t protocol)
{
	const uint64_t high = UINT64_C(1) << 40, flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
	const uint64_t plain[] = { family, type, protocol },
		       more[] = { family | high, type | flags | high, protocol | high };
	bool good = is_good_socket(family, type, protocol), pair = good && family == AF_UNIX;

	assert_int_equal(allows_call(p, "socket", plain), good);
	assert_int_equal(allows_call(p, "socket", more), good);
	assert_int_equal(allows_call(p, "socketpair", plain), pair);
	assert_int_equal(allows_call(p, "socketpair", more), pair);
}

TEST(named_sockets)
{
	static const uint64_t families[] = { AF_UNIX, AF_INET, AF_INET6 };
	/* Among them families for which a kernel loads a module, or has rarely reviewed code. */
	static const uint64_t protocols[] = { PF_UNIX,
					      2,
					      IPPROTO_TCP,
					      IPPROTO_UDP,
					      IPPROTO_DCCP,
					      IPPROTO_GRE,
					      IPPROTO_ICMP,
					      IPPROTO_ICMPV6,
					      115 /* L2TP */,
					      IPPROTO_SCTP,
					      IPPROTO_UDPLITE,
					      IPPROTO_RAW,
					      262 /* MPTCP */ };
	_cleanup_json_ json_t *p = seccomp_profile();

	for (uint64_t family = 0; family < 64; family++)
		for (uint64_t type = 0; type < 8; type++)
			check_sockets(p, family, type, 0);
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		for (uint64_t type = 0; type < 16; type++)
			for (size_t k = 0; k < ARRAY_SIZE(protocols); k++)
				check_sockets(p, families[i], type, protocols[k]);
	/* Only valid flags may be added to a type. */
	for (unsigned int bit = 4; bit < 32; bit++) {
		const uint64_t flag = UINT64_C(1) << bit,
			       inet[] = { AF_INET, SOCK_STREAM | flag, 0 };

		assert_int_equal(allows_call(p, "socket", inet),
				 flag == SOCK_CLOEXEC || flag == SOCK_NONBLOCK);
	}
}

static int make_once(void)
{
	_cleanup_free_ char *text = oci_config(&spec), *whole = NULL;
	int r = text ? 0 : -ENOMEM;

	fail_off();
	whole = oci_config(&spec);
	if (r == 0)
		assert_string_equal(text, whole); /* never a bundle with a layer left out */
	return r;
}

TEST(no_layer_is_lost)
{
	FAIL_SWEEP(make_once());
}
