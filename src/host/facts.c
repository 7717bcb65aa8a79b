/* SPDX-License-Identifier: Apache-2.0 */
#include "host/facts.h"

#include <string.h>

#include "host/probe.h"

void host_facts_clear(struct host_facts *ret)
{
	struct host_facts f = {
		.userns = -ENODATA,
		.userns_plain = -ENODATA,
		.overlay_user = -ENODATA,
		.overlay_root = -ENODATA,
		.idmap = -ENODATA,
		.seccomp = -ENODATA,
		.seccomp_kill = -ENODATA,
		.seccomp_notify = -ENODATA,
		.no_new_privs = -ENODATA,
		.landlock = -ENODATA,
		.apparmor = -ENODATA,
		.bpf_filter = -ENODATA,
		.bpf_sk_lookup = -ENODATA,
		.bpf_cgroup = -ENODATA,
		.kvm = -ENOENT,
	};

	for (size_t i = 0; i < HOST_NS_MAX; i++)
		f.ns[i] = -ENODATA;
	for (size_t i = 0; i < HOST_CALL_MAX; i++)
		f.call[i] = -ENODATA;
	for (size_t i = 0; i < CG_MAX; i++)
		f.cg[i] = -ENODATA;
	for (size_t i = 0; i < HOST_PROGRAM_MAX; i++)
		f.program[i].found = -ENOENT;
	for (size_t i = 0; i < HOST_ENGINES_MAX; i++)
		f.engine[i].found = -ENOENT;
	*ret = f;
}

void host_facts_try(struct host_facts *ret)
{
	host_facts_clear(ret);
	try_namespaces(ret);
	try_mounts(ret);
	try_calls(ret);
	try_programs(ret);
	try_cgroups(ret);
}
