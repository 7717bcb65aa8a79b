/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups: can limits be set for a sandbox? */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cgroup-layout.h"
#include "host/probe.h"

static const char *const mode_names[] = {
	[CGROUP_NONE] = "none mounted",
	[CGROUP_V1] = "v1",
	[CGROUP_HYBRID] = "hybrid: limits through v1",
	[CGROUP_V2] = "v2",
};
static_assert(ARRAY_SIZE(mode_names) == CGROUP_MODE_MAX, "a mode without a name");

/* Creates a child group with a unique name and removes it at once. Existing files stay untouched.
 */
static int make_group(const char *parent)
{
	char path[2 * CGROUP_PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/hutch-doctor-%d", parent, getpid());
	if (mkdir(path, 0755) < 0)
		return -errno;
	return rmdir(path) < 0 ? -errno : 0;
}

void try_cgroups(struct host_facts *f)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_layout l;
	int v2 = -ENODATA;

	if (root < 0)
		return;
	(void)cgroup_layout_read(root, &l);
	if (l.v2[0])
		v2 = make_group(l.own[0] ? l.own : l.v2);
	for (enum cg c = 0; c < CG_MAX; c++) {
		if (l.v1[c][0])
			f->cg[c] = make_group(l.v1[c]);
		else if (l.v2_has[c])
			f->cg[c] = v2;
	}
}

static bool probe_mode(const struct probe_ctx *x, struct host_check *c)
{
	struct cgroup_layout l;

	(void)cgroup_layout_read(x->root_fd, &l);
	check_value(c, l.mode == CGROUP_NONE ? HOST_FAIL : HOST_OK, "%s", mode_names[l.mode]);
	if (l.mode == CGROUP_NONE)
		check_advice(c, "mount -t cgroup2 none /sys/fs/cgroup");
	if (l.mode == CGROUP_V1 || l.mode == CGROUP_HYBRID)
		check_detail(c, "v1 works for root only; systemd.unified_cgroup_hierarchy=1 on the "
				"kernel's command line gives v2");
	return true;
}

static bool has_controller(const struct cgroup_layout *l, enum cg cg)
{
	return l->v1[cg][0] || (l->v2[0] && l->v2_has[cg]);
}

static void explain_controllers(const struct probe_ctx *x, const struct cgroup_layout *l,
				struct host_check *c)
{
	for (enum cg i = 0; i < CG_MAX; i++)
		if (!has_controller(l, i) && l->disabled[i]) {
			check_detail(c, "%s is switched off on the kernel's command line",
				     cgroup_controller_name(i));
			check_advice(c,
				     "remove cgroup_disable=%s (or add cgroup_enable=%s) on the "
				     "kernel's command line and reboot",
				     cgroup_controller_name(i), cgroup_controller_name(i));
			return;
		}
	if (l->mode == CGROUP_V2)
		check_advice(c, x->uid == 0
					? "enable them in cgroup.subtree_control of the parent "
					  "groups, or start hutch as a systemd service with "
					  "Delegate=yes"
					: "systemctl edit user@.service: [Service] "
					  "Delegate=cpu cpuset io memory pids; then log in again");
	else
		check_advice(c, "boot with systemd.unified_cgroup_hierarchy=1");
}

static bool probe_controllers(const struct probe_ctx *x, struct host_check *c)
{
	_cleanup_buf_ struct buf good = BUF_INIT(128), bad = BUF_INIT(128);
	enum host_state worst = HOST_OK;
	struct cgroup_layout l;

	(void)cgroup_layout_read(x->root_fd, &l);
	if (l.mode == CGROUP_NONE)
		return false;
	for (enum cg i = 0; i < CG_MAX; i++) {
		bool has = has_controller(&l, i);

		(void)buf_printf(has ? &good : &bad, " %s", cgroup_controller_name(i));
		/* Only io is optional. */
		if (!has && i != CG_IO)
			worst = HOST_WARN;
		else if (!has && worst == HOST_OK)
			worst = HOST_INFO;
	}
	if (worst == HOST_OK) {
		check_value(c, HOST_OK, "%s", buf_text(&good) + 1);
		return true;
	}
	check_value(c, worst, "missing:%s", buf_text(&bad));
	check_detail(c, "usable:%s", good.len ? buf_text(&good) : " none");
	if (worst == HOST_WARN)
		explain_controllers(x, &l, c);
	return true;
}

/* The first required controller in which no group could be created, or CG_MAX. */
static enum cg first_refused(const struct host_facts *f, const struct cgroup_layout *l)
{
	for (enum cg i = 0; i < CG_IO; i++)
		if (has_controller(l, i) && f->cg[i] < 0)
			return i;
	return CG_MAX;
}

static bool probe_create(const struct probe_ctx *x, struct host_check *c)
{
	struct cgroup_layout l;
	enum cg bad;

	(void)cgroup_layout_read(x->root_fd, &l);
	if (l.mode == CGROUP_NONE)
		return false;
	bad = first_refused(x->facts, &l);
	if (bad == CG_MAX) {
		check_value(c, HOST_OK, "made and removed one in each hierarchy");
		return true;
	}
	check_value(c, HOST_WARN, "cannot make one for %s", cgroup_controller_name(bad));
	if (x->uid == 0) {
		check_detail(c, "%s; memory, CPU and process limits cannot be enforced",
			     strerror(-x->facts->cg[bad]));
		check_advice(c, "run hutch where /sys/fs/cgroup is writable: on the host, or in a "
				"systemd service with Delegate=yes");
	} else if (l.mode == CGROUP_V2) {
		check_detail(c, "limits are not enforceable for this user: no writable group of "
				"its own");
		check_advice(c, "systemd-run --user --scope -p Delegate=yes -- hutch ..., or run "
				"hutch as root");
	} else {
		check_detail(c, "limits are not enforceable for this user: v1 hierarchies belong "
				"to root");
		check_advice(c, "run hutch as root, or boot with "
				"systemd.unified_cgroup_hierarchy=1 and Delegate=yes");
	}
	return true;
}

/* Some OCI runtimes refuse a hybrid host whose v2 side offers any controller. */
static bool probe_hybrid_trap(const struct probe_ctx *x, struct host_check *c)
{
	char path[CGROUP_PATH_MAX + 32], list[HOST_SHORT_MAX];
	struct cgroup_layout l;

	(void)cgroup_layout_read(x->root_fd, &l);
	if (l.mode != CGROUP_HYBRID)
		return false;
	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", l.v2);
	if (!host_line(x, path + 1, list, sizeof(list)) || !list[0])
		return false;
	check_value(c, HOST_INFO, "v2 side offers: %s", list);
	check_detail(c, "some runtimes refuse such a host; Hutch hides the file from them");
	return true;
}

const struct probe probe_cgroups[] = {
	{ "cgroup.mode", "control groups", probe_mode },
	{ "cgroup.controllers", "controllers", probe_controllers },
	{ "cgroup.create", "own groups", probe_create },
	{ "cgroup.hybrid", "hybrid hierarchy", probe_hybrid_trap },
	{ NULL, NULL, NULL },
};
