/* SPDX-License-Identifier: Apache-2.0 */
/* The probes on invented hosts: a tree of text files and a set of facts for each. */
#include "unit.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/path.h"
#include "base/str.h"
#include "host/facts.h"
#include "host/host.h"
#include "host/probe.h"

static struct host_report report;
static struct host_facts facts;
static struct host_machine machine;
static struct host_secrets secrets;
static const char *chosen; /* engine */

static void put(const struct unit_dir *d, const char *path, const char *text)
{
	char parent[256];

	assert_int_equal(path_parent(path, parent, sizeof(parent)), 0);
	assert_int_equal(path_mkdirs(d->fd, parent, 0755), 0);
	unit_dir_write(d, path, text, strlen(text));
}

static void install(struct host_program *p, const char *name, const char *banner)
{
	*p = (struct host_program){ .privileged = true };
	(void)snprintf(p->path, sizeof(p->path), "/usr/bin/%s", name);
	(void)snprintf(p->banner, sizeof(p->banner), "%s", banner);
}

static struct host_program *program_of(const char *name)
{
	for (size_t i = 0; engines[i]; i++)
		if (str_eq(engines[i]->name, name))
			return &facts.engine[i];
	fail_msg("no engine '%s'", name);
	return NULL;
}

static void install_engine(const char *name, const char *banner)
{
	install(program_of(name), engine_find(name)->program, banner);
}

/* Everything works, on a plain Debian with cgroups v2 and KVM; each test then removes something. */
static void good_facts(void)
{
	memset(&facts, 0, sizeof(facts));
	facts.landlock = 6;
	facts.kvm = 12;
	for (enum host_program_id i = 0; i < HOST_PROGRAM_MAX; i++)
		install(&facts.program[i], host_program_name(i), "");
	for (size_t i = 0; i < HOST_ENGINES_MAX; i++)
		facts.engine[i].found = -ENOENT;
	install_engine("crun", "crun version 1.30.1");
	install_engine("qemu", "QEMU emulator version 11.1.1 (Debian 1:11.1.1+ds-1)");
	machine = (struct host_machine){ .kernel = "small 6.1.190", .accel = 1 };
	secrets = (struct host_secrets){ .count = 2, .roots = 140 };
}

static int good_host(void **state)
{
	const struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	put(d, "dev/loop-control", "");
	put(d, "etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n");
	put(d, "etc/subuid", "alice:100000:65536\nbob:165536:65536\n");
	put(d, "etc/subgid", "alice:100000:65536\n1001:165536:65536\n");
	put(d, "proc/sys/kernel/osrelease", "6.12.9-amd64\n");
	put(d, "proc/sys/kernel/unprivileged_bpf_disabled", "2\n");
	put(d, "proc/sys/kernel/io_uring_disabled", "2\n");
	put(d, "proc/sys/kernel/yama/ptrace_scope", "1\n");
	put(d, "proc/filesystems", "nodev\ttmpfs\n\text4\n\terofs\n");
	put(d, "proc/self/mountinfo",
	    "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
	    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
	put(d, "proc/self/cgroup", "0::/user.slice/s.scope\n");
	put(d, "proc/cgroups",
	    "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t9\t1\nmemory\t0\t9\t1\n");
	put(d, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
	put(d, "sys/fs/cgroup/user.slice/s.scope/cgroup.controllers",
	    "cpuset cpu io memory pids\n");
	put(d, "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\n");
	put(d, "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapTotal: 0 kB\n");
	put(d, "sys/devices/system/cpu/online", "0-2,5\n");
	put(d, "sys/devices/system/cpu/smt/active", "0\n");
	put(d, "sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
	put(d, "sys/kernel/mm/ksm/run", "0\n");
	put(d, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	put(d, "sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor\n");
	put(d, "sys/module/kvm_intel/parameters/nested", "N\n");
	good_facts();
	return 0;
}

static void probe_as(const struct unit_dir *d, uid_t uid, const char *user)
{
	struct host_options o = {
		.root_fd = d->fd, .uid = uid, .user = user, .facts = &facts, .engine = chosen
	};
	struct err e = ERR_INIT;

	o.state_dir = user ? "/" : NULL;
	o.state_why = "set HOME";
	o.run_dir = "/run/hutch";
	o.machine = &machine;
	o.secrets = &secrets;
	assert_int_equal(host_probe(&o, &report, &e), 0);
}

static const struct host_check *expect(const char *id, enum host_state s, const char *value)
{
	const struct host_check *c = host_report_find(&report, id);

	if (!c)
		fail_msg("no check '%s'", id);
	if (c->state != s || !strstr(c->value, value))
		fail_msg("%s is in state %d, '%s'; expected %d, '%s'", id, (int)c->state, c->value,
			 (int)s, value);
	return c;
}

static void expect_detail(const struct host_check *c, const char *text)
{
	if (!strstr(c->detail, text))
		fail_msg("%s: no '%s' in '%s'", c->id, text, c->detail);
}

static void expect_advice(const struct host_check *c, const char *text)
{
	if (!strstr(c->advice, text))
		fail_msg("%s: no '%s' in '%s'", c->id, text, c->advice);
}

static void expect_level(enum level l, enum host_verdict v, const char *why)
{
	if (report.levels[l].verdict != v || !strstr(report.levels[l].why, why))
		fail_msg("%s is %s, '%s'; expected %s, '%s'", level_names[l],
			 host_verdict_name(report.levels[l].verdict), report.levels[l].why,
			 host_verdict_name(v), why);
}

TEST_WITH(all_good, good_host, unit_dir_teardown)
{
	probe_as(*state, 0, "root");
	for (size_t i = 0; i < report.n_checks; i++) {
		const struct host_check *c = &report.checks[i];

		/* The test does not fake the disk of the user who runs it. */
		if (c->area != HOST_AREA_STORAGE && c->state != HOST_OK)
			fail_msg("%s: state %d '%s' '%s'", c->id, (int)c->state, c->value,
				 c->detail);
		if (c->state == HOST_OK)
			assert_string_equal(c->advice, "");
	}
	assert_string_equal(report.os, "Debian GNU/Linux 13 (trixie)");
	assert_string_equal(report.kernel, "6.12.9-amd64");
	(void)expect("cgroup.mode", HOST_OK, "v2");
	assert_null(host_report_find(&report, "cgroup.hybrid"));
	(void)expect("cgroup.controllers", HOST_OK, "cpu memory pids freezer io");
	(void)expect("fs.erofs", HOST_OK, "without a loop device");
	(void)expect("hw.cpu", HOST_OK, "4");
	(void)expect("hw.memory", HOST_OK, "8.0 GiB, 4.0 GiB available, no swap");
	(void)expect("sec.landlock", HOST_OK,
		     "ABI 6: files, rename, truncate, TCP ports, ioctl, si");
	(void)expect("engine.kvm", HOST_OK, "kvm_intel, API 12");
	(void)expect("engine.accel", HOST_OK, "KVM: a guest has booted with it");
	(void)expect("engine.kernel", HOST_OK, "small 6.1.190");
	(void)expect("engine.tools", HOST_OK, "mkfs.erofs mkfs.ext4 lz4");
	expect_level(LEVEL_CONTAINER, HOST_READY, "crun 1.30.1");
	/* No engine of ours runs it: an installed runsc or runc is not probed. */
	expect_level(LEVEL_GVISOR, HOST_UNAVAILABLE, "not supported by this version");
	assert_null(host_report_find(&report, "engine.runc"));
	assert_null(host_report_find(&report, "engine.runsc"));
	expect_level(LEVEL_MICROVM, HOST_READY, "qemu-system-x86_64 11.1.1");
}

TEST_WITH(memory_that_cannot_be_saved, good_host, unit_dir_teardown)
{
	const struct unit_dir *d = *state;

	probe_as(d, 1000, "alice");
	expect("sec.ptrace", HOST_OK, "of own children only");
	put(d, "proc/sys/kernel/yama/ptrace_scope", "3\n");
	probe_as(d, 1000, "alice");
	assert_non_null(strstr(expect("sec.ptrace", HOST_WARN, "off")->advice, "ptrace_scope"));
}

TEST_WITH(ubuntu_apparmor, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	put(*state, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
	put(*state, "proc/sys/kernel/unprivileged_userns_clone", "1\n");
	put(*state, "proc/sys/user/max_user_namespaces", "31221\n");
	facts.userns = facts.overlay_user = -EACCES;
	for (size_t i = 0; i < HOST_NS_MAX; i++)
		facts.ns[i] = -EACCES;
	probe_as(*state, 1000, "alice");
	c = expect("ns.user", HOST_FAIL, "refused");
	expect_detail(c, "AppArmor");
	expect_advice(c, "'userns,'");
	expect_advice(c, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
	expect_advice(expect("ns.other", HOST_FAIL, "missing: mnt"), "user namespaces work first");
	(void)expect("fs.overlay-user", HOST_FAIL, "refused");
	expect_level(LEVEL_CONTAINER, HOST_UNAVAILABLE, "no user namespaces");

	/* Root is not restricted, but the report says that users are. */
	good_facts();
	facts.userns_plain = facts.overlay_user = -EACCES;
	probe_as(*state, 0, "root");
	expect_advice(expect("ns.user-plain", HOST_INFO, "refused"), "userns,");
	(void)expect("fs.overlay-user", HOST_INFO, "refused");
	expect_level(LEVEL_CONTAINER, HOST_READY, "crun");
}

TEST_WITH(userns_switched_off, good_host, unit_dir_teardown)
{
	facts.userns = -EPERM;
	probe_as(*state, 1000, "alice");
	expect_advice(expect("ns.user", HOST_FAIL, "refused"), "not inside a container");
	(void)expect("net.dial-guard", HOST_INFO, "only for root");
	put(*state, "proc/sys/kernel/unprivileged_userns_clone", "0\n");
	probe_as(*state, 1000, "alice");
	expect_advice(expect("ns.user", HOST_FAIL, "refused"),
		      "sysctl -w kernel.unprivileged_userns_clone=1");
	put(*state, "proc/sys/user/max_user_namespaces", "0\n");
	facts.userns = -ENOSPC;
	probe_as(*state, 1000, "alice");
	expect_advice(expect("ns.user", HOST_FAIL, "refused"), "user.max_user_namespaces=15000");
}

TEST_WITH(in_a_container, good_host, unit_dir_teardown)
{
	for (size_t i = 0; i < HOST_NS_MAX; i++)
		facts.ns[i] = -EPERM;
	facts.overlay_root = facts.bpf_sk_lookup = facts.bpf_cgroup = -EPERM;
	facts.program[HOST_NFT].found = -ENOENT;
	facts.call[HOST_CALL_CLONE3] = -ENOSYS;
	for (size_t i = 0; i < CG_MAX; i++)
		facts.cg[i] = -EROFS;
	probe_as(*state, 0, "root");
	expect_advice(expect("ns.other", HOST_FAIL, "missing: mnt"), "not inside a container");
	expect_advice(expect("fs.overlay", HOST_FAIL, "refused"), "not inside a container");
	(void)expect("sys.calls", HOST_FAIL, "missing: clone3");
	expect_advice(expect("net.steering", HOST_WARN, "neither"), "apt-get install nftables");
	expect_detail(expect("net.dial-guard", HOST_WARN, "not available"), "not permitted");
	expect_advice(expect("net.dial-guard", HOST_WARN, "not available"), "outside a container");
	expect_detail(expect("cgroup.create", HOST_WARN, "cannot make"), "Read-only file system");
	expect_level(LEVEL_CONTAINER, HOST_UNAVAILABLE, "system calls are missing; namespaces");
}

TEST_WITH(no_v2_tree, good_host, unit_dir_teardown)
{
	put(*state, "proc/self/mountinfo",
	    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
	probe_as(*state, 0, "root");
	expect_detail(expect("net.dial-guard", HOST_WARN, "not available"), "no cgroup v2 tree");
	expect_advice(expect("net.dial-guard", HOST_WARN, "not available"), "mount -t cgroup2");
}

TEST_WITH(hybrid_cgroups, good_host, unit_dir_teardown)
{
	put(*state, "proc/self/mountinfo",
	    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
	    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
	    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	    "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
	    "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
	    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
	put(*state, "proc/self/cgroup", "4:memory:/x\n0::/\n");
	put(*state, "sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n");
	probe_as(*state, 0, "root");
	(void)expect("cgroup.mode", HOST_OK, "hybrid");
	(void)expect("cgroup.controllers", HOST_INFO, "missing: io");
	expect_detail(expect("cgroup.hybrid", HOST_INFO, "hugetlb"), "Hutch hides the file");
	expect_level(LEVEL_CONTAINER, HOST_READY, "crun");

	for (size_t i = 0; i < CG_MAX; i++)
		facts.cg[i] = -EACCES;
	probe_as(*state, 1000, "alice");
	expect_advice(expect("cgroup.create", HOST_WARN, "cannot make"), "run hutch as root");
	expect_level(LEVEL_CONTAINER, HOST_LIMITED, "limits are not enforced");
	put(*state, "sys/fs/cgroup/unified/cgroup.controllers", "\n");
	probe_as(*state, 0, "root");
	assert_null(host_report_find(&report, "cgroup.hybrid"));
}

TEST_WITH(other_cgroups, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	/* A session scope of systemd: readable, but not ours. */
	for (size_t i = 0; i < CG_MAX; i++)
		facts.cg[i] = -EACCES;
	probe_as(*state, 1000, "alice");
	c = expect("cgroup.create", HOST_WARN, "cannot make one for cpu");
	expect_detail(c, "not enforceable for this user");
	expect_advice(c, "Delegate=yes");
	/* A Raspberry Pi. */
	put(*state, "sys/fs/cgroup/user.slice/s.scope/cgroup.controllers", "cpu io pids\n");
	put(*state, "proc/cgroups", "#subsys_name\thierarchy\tnum\tenabled\nmemory\t0\t9\t0\n");
	probe_as(*state, 0, "root");
	expect_advice(expect("cgroup.controllers", HOST_WARN, "missing: memory"),
		      "cgroup_disable=memory");
	/* An empty file, and malformed lines. */
	put(*state, "proc/self/mountinfo", "24 1 8:1 / / rw - ext4\n- - -\n\ncgroup2\n");
	probe_as(*state, 0, "root");
	(void)expect("cgroup.mode", HOST_FAIL, "none");
	assert_null(host_report_find(&report, "cgroup.create"));
}

TEST_WITH(kvm_states, good_host, unit_dir_teardown)
{
	const struct unit_dir *d = *state;
	char dir[UNIT_PATH_MAX + 32];

	put(d, "sys/module/kvm_intel/parameters/nested", "Y\n");
	probe_as(d, 0, "root");
	expect_advice(expect("engine.kvm-nested", HOST_INFO, "on"), "options kvm_intel nested=0");
	facts.kvm = -EACCES;
	probe_as(d, 1000, "alice");
	expect_advice(expect("engine.kvm", HOST_WARN, "Permission denied"),
		      "usermod -aG kvm alice");
	facts.kvm = -ENOENT;
	machine.accel = 0;
	probe_as(d, 0, "root");
	expect_advice(expect("engine.kvm", HOST_WARN, "no /dev/kvm"), "modprobe kvm_intel");
	put(d, "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
	probe_as(d, 0, "root");
	expect_advice(expect("engine.kvm", HOST_WARN, "no /dev/kvm"), "nested virtualisation");
	expect_level(LEVEL_MICROVM, HOST_LIMITED, "no usable KVM");

	/* A paravirtual KVM that answers but boots nothing. */
	(void)snprintf(dir, sizeof(dir), "%s/sys/module/kvm_intel", d->path);
	(void)unlinkat(d->fd, "sys/module/kvm_intel/parameters/nested", 0);
	(void)unlinkat(d->fd, "sys/module/kvm_intel/parameters", AT_REMOVEDIR);
	assert_int_equal(rmdir(dir), 0);
	put(d, "sys/module/kvm_pvm/refcnt", "0\n");
	facts.kvm = 12;
	probe_as(d, 0, "root");
	expect_detail(expect("engine.kvm", HOST_WARN, "not trusted: TCG will be used"), "kvm_pvm");
	assert_null(host_report_find(&report, "engine.kvm-nested"));
	expect_level(LEVEL_MICROVM, HOST_LIMITED, "no usable KVM");
}

TEST_WITH(secrets_of_the_user, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	probe_as(*state, 0, "root");
	(void)expect("secret.store", HOST_OK, "2 secrets");
	(void)expect("secret.roots", HOST_OK, "140");
	secrets = (struct host_secrets){ .store = -EPERM, .tap = -ENOENT, .token = -EIO };
	(void)snprintf(secrets.store_why, sizeof(secrets.store_why), "others have access\033[31m");
	(void)snprintf(secrets.tap_why, sizeof(secrets.tap_why), "no hutch-tap beside hutch");
	probe_as(*state, 0, "root");
	c = expect("secret.store", HOST_FAIL, "cannot be used");
	expect_detail(c, "others have access\\x1b[31m");
	expect_advice(c, "0700");
	expect_advice(expect("secret.tap", HOST_FAIL, "missing"), "install hutch again");
	(void)expect("secret.token", HOST_FAIL, "does not run");
	assert_null(host_report_find(&report, "secret.roots"));
	expect_level(LEVEL_CONTAINER, HOST_READY, "");
	secrets = (struct host_secrets){ .store = -EBADMSG };
	probe_as(*state, 0, "root");
	expect_advice(expect("secret.store", HOST_FAIL, ""), "hutch secret set --replace");
	c = expect("secret.roots", HOST_WARN, "none");
	expect_advice(c, "ca-certificates");
}

TEST_WITH(machines, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	/* Not tried yet, or a guest did not boot: a retry may work. */
	machine.accel = 0;
	(void)snprintf(machine.why, sizeof(machine.why), "KVM: a guest did not boot\033[31m");
	probe_as(*state, 0, "root");
	c = expect("engine.accel", HOST_WARN, "TCG: microVMs are emulated");
	expect_detail(c, "KVM: a guest did not boot\\x1b[31m");
	expect_advice(c, "hutch doctor --probe");
	expect_level(LEVEL_MICROVM, HOST_LIMITED, "no usable KVM: emulated, slow");
	/* If nothing can be tried, the KVM row has the advice. */
	facts.kvm = -ENOENT;
	probe_as(*state, 0, "root");
	assert_string_equal(expect("engine.accel", HOST_WARN, "TCG")->advice, "");

	machine.accel = -EINVAL;
	(void)snprintf(machine.why, sizeof(machine.why), "host.yaml:1:8: error: accel: no");
	probe_as(*state, 0, "root");
	c = expect("engine.accel", HOST_FAIL, "no VM can start");
	expect_detail(c, "host.yaml:1:8: error");
	expect_advice(c, "host.yaml");
	expect_level(LEVEL_MICROVM, HOST_UNAVAILABLE, "the configured accelerator is not usable");

	good_facts();
	machine.kernel[0] = '\0';
	probe_as(*state, 0, "root");
	expect_advice(expect("engine.kernel", HOST_INFO, "not installed"), "hutch image kernel");
	expect_level(LEVEL_MICROVM, HOST_UNAVAILABLE, "no guest kernel is installed");

	good_facts();
	facts.program[HOST_MKFS_EXT4].found = facts.program[HOST_LZ4].found = -ENOENT;
	probe_as(*state, 0, "root");
	expect_advice(expect("engine.tools", HOST_INFO, "missing: mkfs.ext4 lz4"),
		      "apt-get install e2fsprogs lz4");
	expect_level(LEVEL_MICROVM, HOST_UNAVAILABLE, "programs that create its disks");
	expect_level(LEVEL_CONTAINER, HOST_LIMITED, "sandboxes start only with --scratch");
}

/* The file systems that containers write to. */
TEST_WITH(disks, good_host, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	struct statfs fs;

	probe_as(d, 0, "root");
	if (fstatfs(d->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		expect_advice(expect("storage.disk", HOST_WARN, "no disk"), "HUTCH_STATE_DIR");
	else
		(void)expect("storage.disk", HOST_OK, "ext4 on loop devices; space is reserved");
	facts.program[HOST_MKFS_EXT4].found = -ENOENT;
	probe_as(d, 0, "root");
	expect_advice(expect("storage.disk", HOST_FAIL, "no disk for containers"),
		      "apt-get install e2fsprogs");
	assert_int_equal(unlinkat(d->fd, "dev/loop-control", 0), 0);
	probe_as(d, 0, "root");
	expect_advice(expect("storage.disk", HOST_FAIL, "no disk for containers"), "modprobe loop");
	probe_as(d, 1000, "alice");
	expect_detail(expect("storage.disk", HOST_INFO, "containers write to memory"),
		      "only root can mount");
}

TEST_WITH(subordinate_ids, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	probe_as(*state, 1000, "alice");
	(void)expect("user.subids", HOST_OK, "65536 uids, 65536 gids");
	/* bob has uids by name and gids by number. */
	probe_as(*state, 1001, "bob");
	(void)expect("user.subids", HOST_OK, "65536 uids");
	probe_as(*state, 1002, "carol");
	c = expect("user.subids", HOST_FAIL, "none");
	expect_advice(c, "usermod --add-subuids 231072-296607 --add-subgids 231072-296607 carol");
	expect_level(LEVEL_CONTAINER, HOST_UNAVAILABLE, "no subordinate ids");
	probe_as(*state, 1002, NULL);
	expect_advice(expect("user.subids", HOST_FAIL, "none"), "echo 1002:231072:65536");
	put(*state, "etc/subuid", "carol:1:10\nnonsense\n::\ncarol:x:70000\n");
	probe_as(*state, 1002, "carol");
	(void)expect("user.subids", HOST_FAIL, "too few");
	probe_as(*state, 0, "root");
	(void)expect("user.subids", HOST_OK, "not needed");
	assert_null(host_report_find(&report, "user.newidmap"));

	facts.program[HOST_NEWGIDMAP].privileged = false;
	probe_as(*state, 1000, "alice");
	expect_advice(expect("user.newidmap", HOST_FAIL, "without privileges"), "--reinstall");
	facts.program[HOST_NEWUIDMAP].found = -ENOENT;
	probe_as(*state, 1000, "alice");
	expect_advice(expect("user.newidmap", HOST_FAIL, "not installed"),
		      "apt-get install uidmap");
}

TEST_WITH(versions_of_engines, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	install_engine("crun", "crun version 1.8.1+ds1");
	program_of("crun")->patched = cve_patched(engine_find("crun")->cves, "fix CVE-2026-47766.");
	program_of("qemu")->found = -ENOENT;
	probe_as(*state, 0, "root");
	c = expect("engine.crun", HOST_WARN, "1.8.1+ds1, 2 known");
	expect_detail(c, "CVE-2026-88264 (an image's /dev/console");
	expect_detail(c, "CVE-2026-30892: Hutch never calls crun exec");
	expect_detail(c, "patched by the distribution: CVE-2026-47766");
	expect_advice(c, "upgrade crun to 1.30 or later");
	expect_level(LEVEL_CONTAINER, HOST_LIMITED, "crun 1.8.1");
	expect_level(LEVEL_MICROVM, HOST_UNAVAILABLE, "qemu-system-x86_64 is not installed");

	program_of("crun")->found = -ENOENT;
	probe_as(*state, 0, "root");
	c = expect("engine.crun", HOST_FAIL, "not installed");
	expect_detail(c, "an engine of level container");
	expect_advice(c, "apt-get install crun");
	expect_level(LEVEL_CONTAINER, HOST_UNAVAILABLE, "crun is not installed");
	install_engine("crun", "\033[31mcrun version UNKNOWN\xff");
	probe_as(*state, 0, "root");
	expect_detail(expect("engine.crun", HOST_WARN, "version unknown"), "\\x1b[31m");
	program_of("crun")->ran = -ETIME;
	probe_as(*state, 0, "root");
	(void)expect("engine.crun", HOST_FAIL, "does not run");
}

/* The operator's choice is checked, installed or not: no other engine starts sandboxes. */
TEST_WITH(an_engine_that_was_chosen, good_host, unit_dir_teardown)
{
	install_engine("runc", "runc version 1.4.0");
	probe_as(*state, 0, "root");
	expect_level(LEVEL_CONTAINER, HOST_READY, "crun 1.30.1");
	chosen = "runc";
	probe_as(*state, 0, "root");
	expect_level(LEVEL_CONTAINER, HOST_READY, "runc 1.4.0");
	program_of("runc")->found = -ENOENT;
	probe_as(*state, 0, "root");
	expect_level(LEVEL_CONTAINER, HOST_UNAVAILABLE, "runc is not installed");
	expect_advice(expect("engine.runc", HOST_FAIL, "not installed"), "apt-get install runc");
	chosen = NULL;
	probe_as(*state, 0, "root");
	expect_level(LEVEL_CONTAINER, HOST_READY, "crun 1.30.1");
}

TEST_WITH(side_channels, good_host, unit_dir_teardown)
{
	put(*state, "sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable: no microcode\n");
	put(*state, "sys/devices/system/cpu/vulnerabilities/l1tf",
	    "PTE Inversion; VMX: vulnerable\n");
	put(*state, "sys/devices/system/cpu/smt/active", "1\n");
	put(*state, "sys/kernel/mm/ksm/run", "1\n");
	put(*state, "proc/meminfo", "MemTotal: 524288 kB\nMemAvailable: 1 kB\nSwapTotal: 99 kB\n");
	put(*state, "proc/sys/kernel/unprivileged_bpf_disabled", "0\n");
	put(*state, "proc/sys/kernel/io_uring_disabled", "0\n");
	put(*state, "sys/kernel/security/lsm", "capability,selinux\n");
	facts.landlock = -EOPNOTSUPP;
	probe_as(*state, 0, "root");
	expect_detail(expect("hw.vulnerabilities", HOST_WARN, "mds"), "l1tf: VMX: vulnerable");
	(void)expect("hw.smt", HOST_INFO, "on");
	expect_advice(expect("hw.ksm", HOST_WARN, "on"), "echo 2 > /sys/kernel/mm/ksm/run");
	expect_detail(expect("hw.memory", HOST_WARN, "swap on"), "less than 1 GiB");
	expect_advice(expect("sec.bpf", HOST_WARN, "every user"), "unprivileged_bpf_disabled=1");
	(void)expect("sec.io-uring", HOST_INFO, "every user");
	(void)expect("sec.lsm", HOST_INFO, "no AppArmor");
	expect_advice(expect("sec.landlock", HOST_WARN, "switched off"), "lsm=");
	expect_level(LEVEL_CONTAINER, HOST_LIMITED, "without Landlock");
}

TEST_WITH(apparmor_profile, good_host, unit_dir_teardown)
{
	const struct host_check *c;

	facts.apparmor = -ENOENT;
	probe_as(*state, 1000, "alice");
	c = expect("sec.apparmor", HOST_WARN, "hutch-sandbox is not loaded");
	expect_detail(c, "requires apparmor is refused");
	expect_advice(c, "apparmor_parser -r /etc/apparmor.d/hutch-sandbox");
	facts.apparmor = -EACCES;
	probe_as(*state, 1000, "alice");
	(void)expect("sec.apparmor", HOST_WARN, "cannot be used");
	facts.apparmor = -EOPNOTSUPP;
	probe_as(*state, 1000, "alice");
	assert_null(host_report_find(&report, "sec.apparmor"));
	facts.apparmor = 0;
	probe_as(*state, 1000, "alice");
	(void)expect("sec.apparmor", HOST_OK, "hutch-sandbox is loaded");
}

/* An empty root and no facts: no crash, and nothing unseen is reported as good. */
TEST_IN_DIR(empty_host)
{
	struct unit_dir *d = *state;

	host_facts_clear(&facts);
	probe_as(d, 1000, NULL);
	assert_string_equal(report.os, "Linux");
	assert_string_equal(report.user, "uid 1000");
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++)
		assert_int_equal(report.levels[l].verdict, HOST_UNAVAILABLE);
	expect_detail(expect("storage.state", HOST_FAIL, "no directory"), "set HOME");
	expect_advice(expect("storage.tools", HOST_WARN, "missing: mmdebstrap"),
		      "apt-get install mmdebstrap tar gzip zstd");
}
