/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel: features that confine a process or redirect its connections. */
#include <string.h>

#include "base/apparmor.h"
#include "base/str.h"
#include "host/probe.h"

static bool probe_seccomp(const struct probe_ctx *x, struct host_check *c)
{
	const struct host_facts *f = x->facts;

	if (f->seccomp < 0 || f->seccomp_kill < 0) {
		check_value(c, HOST_FAIL, "%s",
			    f->seccomp < 0 ? "no filters" : "no KILL_PROCESS action");
		check_detail(c, "%s", strerror(f->seccomp < 0 ? -f->seccomp : -f->seccomp_kill));
		check_advice(c, "boot a kernel with CONFIG_SECCOMP_FILTER, 4.14 or later");
		return true;
	}
	check_value(c, HOST_OK, "filters, kill process%s",
		    f->seccomp_notify == 0 ? ", user notification" : "");
	return true;
}

static bool probe_landlock(const struct probe_ctx *x, struct host_check *c)
{
	static const char *const since[] = {
		"files", "rename", "truncate", "TCP ports", "ioctl", "signals and abstract sockets"
	};
	_cleanup_buf_ struct buf has = BUF_INIT(256);
	int abi = x->facts->landlock;

	if (abi < 1) {
		check_value(c, HOST_WARN, "%s", abi == -EOPNOTSUPP ? "switched off" : "missing");
		check_detail(c, "the keeper of a sandbox has one layer of isolation less");
		check_advice(
			c,
			abi == -EOPNOTSUPP
				? "add landlock to lsm= on the kernel's command line"
				: "boot a kernel of 5.13 or later with CONFIG_SECURITY_LANDLOCK");
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(since) && i < (size_t)abi; i++)
		(void)buf_printf(&has, "%s%s", i ? ", " : "", since[i]);
	check_value(c, HOST_OK, "ABI %d: %s", abi, buf_text(&has));
	return true;
}

static bool probe_no_new_privs(const struct probe_ctx *x, struct host_check *c)
{
	bool ok = x->facts->no_new_privs == 0;

	check_value(c, ok ? HOST_OK : HOST_FAIL, "%s", ok ? "works" : "refused");
	if (!ok)
		check_advice(c, "boot a kernel of 3.5 or later");
	return true;
}

static bool probe_lsm(const struct probe_ctx *x, struct host_check *c)
{
	char list[HOST_SHORT_MAX], enabled[8];
	bool known = host_line(x, "sys/kernel/security/lsm", list, sizeof(list));
	bool apparmor =
		host_line(x, "sys/module/apparmor/parameters/enabled", enabled, sizeof(enabled)) &&
		enabled[0] == 'Y';

	if (known)
		apparmor = str_has_word(list, "apparmor");
	check_value(c, apparmor ? HOST_OK : HOST_INFO, "%s%s",
		    apparmor ? "AppArmor" : "no AppArmor", known ? "" : ", securityfs not mounted");
	if (known)
		check_detail(c, "active: %s", list);
	if (!apparmor)
		check_detail(c, "containers are confined without a profile: by namespaces, seccomp "
				"and capabilities alone");
	return true;
}

static bool probe_apparmor(const struct probe_ctx *x, struct host_check *c)
{
	int r = x->facts->apparmor;

	if (r == -EOPNOTSUPP || r == -ENODATA)
		return false; /* the row "security modules" reports it */
	if (r == 0) {
		check_value(c, HOST_OK, "%s is loaded", APPARMOR_PROFILE);
		return true;
	}
	check_value(c, HOST_WARN, "%s %s", APPARMOR_PROFILE,
		    r == -ENOENT ? "is not loaded" : "cannot be used");
	if (r == -ENOENT)
		check_detail(c, "containers run without it, and a policy that requires apparmor is "
				"refused");
	else
		check_detail(c, "%s", strerror(-r));
	check_advice(c, "as root: %s", APPARMOR_LOAD);
	return true;
}

/* How connections to any address reach one listener inside a sandbox. */
static bool probe_steering(const struct probe_ctx *x, struct host_check *c)
{
	bool nft = x->facts->program[HOST_NFT].found == 0;
	int bpf = x->facts->bpf_sk_lookup;

	if (bpf == 0) {
		check_value(c, HOST_OK, "BPF sk_lookup%s", nft ? ", nft" : "");
		return true;
	}
	if (nft) {
		check_value(c, HOST_OK, "nft");
		check_detail(c, "BPF sk_lookup: %s", strerror(-bpf));
		return true;
	}
	check_value(c, HOST_WARN, "neither BPF sk_lookup nor nft");
	check_detail(c, "outbound connections by name need one of them; BPF: %s", strerror(-bpf));
	check_advice(c, "apt-get install nftables");
	return true;
}

/* The limits on the addresses that a compromised keeper can dial. */
static bool probe_dial_guard(const struct probe_ctx *x, struct host_check *c)
{
	struct cgroup_layout l;
	int bpf = x->facts->bpf_cgroup;

	(void)cgroup_layout_read(x->root_fd, &l);
	if (x->uid != 0) {
		check_value(c, HOST_INFO, "only for root");
		check_detail(c, "a compromised keeper can dial any address from the host's "
				"network");
		return true;
	}
	if (bpf == 0 && l.v2[0]) {
		check_value(c, HOST_OK, "BPF on the keeper's own cgroup");
		return true;
	}
	check_value(c, HOST_WARN, "not available");
	check_detail(c, "%s: a compromised keeper can dial any address from here",
		     bpf == 0 ? "no cgroup v2 tree is mounted" : strerror(-bpf));
	check_advice(c,
		     bpf == 0 ? "mount -t cgroup2 none /sys/fs/cgroup/unified"
			      : "use a kernel with CONFIG_CGROUP_BPF, and run outside a container");
	return true;
}

static bool probe_bpf(const struct probe_ctx *x, struct host_check *c)
{
	long long off = host_number(x, "proc/sys/kernel/unprivileged_bpf_disabled");

	if (off < 0) {
		check_value(c, HOST_INFO, "unknown");
		check_detail(c, "no kernel.unprivileged_bpf_disabled here");
	} else if (off > 0) {
		check_value(c, HOST_OK, "only for root");
	} else {
		check_value(c, HOST_WARN, "open to every user");
		check_detail(c, "a large and often attacked part of the kernel");
		check_advice(c, "sysctl -w kernel.unprivileged_bpf_disabled=1");
	}
	return true;
}

static bool probe_io_uring(const struct probe_ctx *x, struct host_check *c)
{
	static const char *const words[] = { "open to every user", "only for one group", "off" };
	long long n = host_number(x, "proc/sys/kernel/io_uring_disabled");

	if (n < 0 || n >= (long long)ARRAY_SIZE(words)) {
		check_value(c, HOST_INFO, "open to every user");
		check_detail(c, "no kernel.io_uring_disabled before 6.6; a sandbox's seccomp list "
				"must block it");
		return true;
	}
	check_value(c, n == 0 ? HOST_INFO : HOST_OK, "%s", words[n]);
	if (n == 0)
		check_detail(c, "only the seccomp list blocks it in a sandbox");
	return true;
}

static bool probe_yama(const struct probe_ctx *x, struct host_check *c)
{
	static const char *const words[] = { "between processes of one user",
					     "of own children only", "by root only", "off" };
	long long n = host_number(x, "proc/sys/kernel/yama/ptrace_scope");

	if (n < 0 || n >= (long long)ARRAY_SIZE(words)) {
		check_value(c, HOST_INFO, "between processes of one user (no Yama)");
		return true;
	}
	if (n == 3) {
		check_value(c, HOST_WARN, "%s", words[n]);
		check_detail(c,
			     "the memory of a VM cannot be saved: every VM boots, and snapshots, "
			     "forks and suspend are refused");
		check_advice(c, "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and "
				"reboot: 3 cannot be changed before");
		return true;
	}
	check_value(c, n == 0 ? HOST_INFO : HOST_OK, "%s", words[n]);
	return true;
}

const struct probe probe_lockdown[] = {
	{ "sec.seccomp", "seccomp", probe_seccomp },
	{ "sec.landlock", "Landlock", probe_landlock },
	{ "sec.no-new-privs", "no_new_privs", probe_no_new_privs },
	{ "sec.lsm", "security modules", probe_lsm },
	{ "sec.apparmor", "AppArmor profile", probe_apparmor },
	{ "net.steering", "egress steering", probe_steering },
	{ "net.dial-guard", "dial guard", probe_dial_guard },
	{ "sec.bpf", "BPF", probe_bpf },
	{ "sec.io-uring", "io_uring", probe_io_uring },
	{ "sec.ptrace", "ptrace", probe_yama },
	{ NULL, NULL, NULL },
};
