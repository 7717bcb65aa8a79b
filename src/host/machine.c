/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements of VMs besides their engine: programs, a kernel, and KVM that has booted a guest. */
#include "host/probe.h"

static bool probe_tools(const struct probe_ctx *x, struct host_check *c)
{
	static const struct {
		enum host_program_id id;
		const char *package;
	} tools[] = {
		{ HOST_MKFS_EROFS, "erofs-utils" }, /* converts the image to a disk */
		{ HOST_MKFS_EXT4, "e2fsprogs" },    /* creates the sandbox's disk */
		{ HOST_LZ4, "lz4" },		    /* unpacks the kernel */
	};
	_cleanup_buf_ struct buf good = BUF_INIT(128), bad = BUF_INIT(128), get = BUF_INIT(128);

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		bool has = x->facts->program[tools[i].id].found == 0;

		(void)buf_printf(has ? &good : &bad, " %s", host_program_name(tools[i].id));
		if (!has)
			(void)buf_printf(&get, " %s", tools[i].package);
	}
	if (bad.len == 0) {
		check_value(c, HOST_OK, "%s", buf_text(&good) + 1);
		return true;
	}
	check_value(c, HOST_INFO, "missing:%s", buf_text(&bad));
	check_detail(c, "VMs need them");
	check_advice(c, "apt-get install%s", buf_text(&get));
	return true;
}

static bool probe_kernel_of_guests(const struct probe_ctx *x, struct host_check *c)
{
	if (x->machine->kernel[0]) {
		check_value(c, HOST_OK, "%s", x->machine->kernel);
		return true;
	}
	check_value(c, HOST_INFO, "not installed");
	check_detail(c, "VMs need one");
	check_advice(c, "hutch image kernel");
	return true;
}

static bool probe_accel(const struct probe_ctx *x, struct host_check *c)
{
	const struct host_machine *m = x->machine;

	if (m->accel > 0) {
		check_value(c, HOST_OK, "KVM: a guest has booted with it");
		return true;
	}
	if (m->accel < 0) {
		check_value(c, HOST_FAIL, "none: no VM can start");
		check_advice(c, "fix host.yaml or HUTCH_ACCEL: man hutch-host");
	} else {
		check_value(c, HOST_WARN, "TCG: microVMs are emulated");
		/* Otherwise the KVM row has the advice. */
		if (x->facts->kvm >= 0 && host_kvm_vendor(x))
			check_advice(c, "run hutch doctor --probe to test KVM");
	}
	check_detail(c, "%s", m->why);
	return true;
}

const struct probe probe_machine[] = {
	{ "engine.tools", "microVM tools", probe_tools },
	{ "engine.kernel", "guest kernel", probe_kernel_of_guests },
	{ "engine.accel", "acceleration", probe_accel },
	{ NULL, NULL, NULL },
};
