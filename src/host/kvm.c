/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM, as far as it can be judged without starting a guest. A working /dev/kvm is no proof: a
 * paravirtual one (kvm_pvm) creates a VM and runs it to its first HLT, but boots no kernel. So a
 * vendor module is required as well; `machine.c` reports the result of a test boot.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <string.h>

#include "base/str.h"
#include "host/probe.h"

static const char tcg[] = "microVMs are emulated (TCG): slower, and with weaker isolation";

static bool exists(const struct probe_ctx *x, const char *path)
{
	return faccessat(x->root_fd, path, F_OK, 0) == 0;
}

static void explain_missing(const struct probe_ctx *x, struct host_check *c)
{
	check_value(c, HOST_WARN, "no /dev/kvm");
	check_detail(c, "%s", tcg);
	if (host_cpu_flag(x, "vmx"))
		check_advice(c, "modprobe kvm_intel");
	else if (host_cpu_flag(x, "svm"))
		check_advice(c, "modprobe kvm_amd");
	else if (host_cpu_flag(x, "hypervisor"))
		check_advice(c, "enable nested virtualisation for this VM, or use a "
				"physical host");
	else
		check_advice(c, "enable VT-x or AMD-V in the firmware setup");
}

static void explain_refused(const struct probe_ctx *x, struct host_check *c, int r)
{
	check_value(c, HOST_WARN, "/dev/kvm: %s", strerror(-r));
	check_detail(c, "%s", tcg);
	if ((r == -EACCES || r == -EPERM) && x->user)
		check_advice(c, "usermod -aG kvm %s, then log in again", x->user);
	else if (r == -EACCES || r == -EPERM)
		check_advice(c, "add this user to the group kvm, then log in again");
	else
		check_advice(c, "look for kvm in the kernel's log: dmesg | grep -i kvm");
}

const char *host_kvm_vendor(const struct probe_ctx *x)
{
	if (exists(x, "sys/module/kvm_intel"))
		return "kvm_intel";
	return exists(x, "sys/module/kvm_amd") ? "kvm_amd" : NULL;
}

static bool probe_device(const struct probe_ctx *x, struct host_check *c)
{
	const char *vendor = host_kvm_vendor(x);
	int api = x->facts->kvm;

	if (api == -ENOENT) {
		explain_missing(x, c);
	} else if (!vendor || (api >= 0 && api != KVM_API_VERSION)) {
		check_value(c, HOST_WARN, "/dev/kvm exists, not trusted: TCG will be used");
		check_detail(c,
			     "no kvm_intel or kvm_amd behind it%s: such a device may answer and "
			     "still boot no kernel",
			     exists(x, "sys/module/kvm_pvm") ? " (but kvm_pvm)" : "");
		check_advice(c, "for microVMs at full speed use a host with VT-x or AMD-V");
	} else if (api < 0) {
		explain_refused(x, c, api);
	} else {
		check_value(c, HOST_OK, "%s, API %d", vendor, api);
	}
	return true;
}

static bool probe_nested(const struct probe_ctx *x, struct host_check *c)
{
	char on[8];
	const char *vendor = "kvm_intel";

	if (x->facts->kvm < 0)
		return false;
	if (!host_line(x, "sys/module/kvm_intel/parameters/nested", on, sizeof(on))) {
		vendor = "kvm_amd";
		if (!host_line(x, "sys/module/kvm_amd/parameters/nested", on, sizeof(on)))
			return false;
	}
	if (on[0] != 'Y' && on[0] != '1') {
		check_value(c, HOST_OK, "off");
		return true;
	}
	check_value(c, HOST_INFO, "on");
	check_detail(c, "guests have escaped from KVM through it (CVE-2026-53359), and no sandbox "
			"needs it");
	check_advice(c, "echo options %s nested=0 > /etc/modprobe.d/hutch-kvm.conf, then reboot",
		     vendor);
	return true;
}

const struct probe probe_kvm[] = {
	{ "engine.kvm", "KVM", probe_device },
	{ "engine.kvm-nested", "nested KVM", probe_nested },
	{ NULL, NULL, NULL },
};
