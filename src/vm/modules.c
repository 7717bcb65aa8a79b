/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A package contains its modules without an index: depmod(8) creates it on installation. So this
 * searches the tree, and reads the dependencies from each module.
 */
#include "vm/modules.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/nested.h"
#include "base/str.h"
#include "vm/unpack-kernel.h"

enum {
	MODULES_MAX = 160, /* modules taken at most */
	MODULE_NAME = 56,
	DEPTH_MAX = 16,	       /* of directories, and of dependencies */
	BUILTIN_MAX = 1 << 20, /* bytes of modules.builtin */
	MODULE_MAX = 16 << 20,
};

/* Devices, file systems, and redirection of connections to the broker. */
static const char *const wanted[] = { "virtio_mmio", "virtio_console", "virtio_blk",
				      "erofs",	     "overlay",	       "nft_tproxy" };

/*
 * For Docker and Podman in a VM with isolation.nested. Kernels differ in these: a missing one is
 * left out. br_netfilter is not among them: it shows frames of a bridge to the rule that captures
 * connections, and the kernel then drops the socket that the rule has found.
 */
static const char *const nested[] = {
	"bridge",
	"veth",

	"macvlan",
	"ipvlan",
	"vxlan",
	"tun",
	"fuse",
	"loop",
	"nf_tables",
	"nf_conntrack",
	"nf_conntrack_netlink",
	"nf_nat",
	"nft_chain_nat",
	"nft_compat",
	"nft_ct",
	"nft_nat",
	"nft_masq",
	"nft_redir",
	"nft_reject",
	"nft_reject_inet",
	"nft_reject_ipv4",
	"nft_reject_ipv6",
	"nft_limit",
	"nft_log",
	"nft_fib",
	"nft_fib_inet",
	"nft_fib_ipv4",
	"nft_fib_ipv6",
	"nft_numgen",
	"nft_hash",
	"nft_quota",
	"ip_tables",
	"iptable_filter",
	"iptable_nat",
	"iptable_mangle",
	"iptable_raw",
	"ip6_tables",
	"ip6table_filter",
	"ip6table_nat",
	"ip6table_mangle",
	"ip6table_raw",
	"x_tables",
	"xt_addrtype",
	"xt_comment",
	"xt_conntrack",
	"xt_limit",
	"xt_LOG",
	"xt_mark",
	"xt_MASQUERADE",
	"xt_multiport",
	"xt_nat",
	"xt_NFLOG",
	"xt_physdev",
	"xt_REDIRECT",
	"xt_recent",
	"xt_state",
	"xt_statistic",
	"xt_set",
	"xt_tcpudp",
	"xt_TCPMSS",
	"ipt_REJECT",
	"ip6t_REJECT",
	"ip_set",
	"ip_set_hash_ip",
	"ip_set_hash_net",
};

struct modules {
	int dir;
	struct cpio *cpio;  /* the archive that gets modules now */
	struct buf builtin; /* modules.builtin, with '_' instead of '-' */
	struct buf list;    /* contents of modules-list */
	char names[MODULES_MAX][MODULE_NAME];
	size_t n;
};

static void underscores(char *s)
{
	for (; *s; s++)
		if (*s == '-')
			*s = '_';
}

/* Is the file `entry` the module `name`, compressed or not? */
static bool is_module(const char *entry, const char *name)
{
	const char *dot = strchr(entry, '.');
	size_t n = strlen(name);

	if (!dot || (size_t)(dot - entry) != n || !str_has_prefix(dot, ".ko"))
		return false;
	for (size_t i = 0; i < n; i++)
		if (entry[i] != name[i] && !(entry[i] == '-' && name[i] == '_'))
			return false;
	return true;
}

static int find(int dir, const char *name, int depth);

static int find_in(int dir, const struct dirent *entry, const char *name, int depth)
{
	_cleanup_close_ int sub = -EBADF;

	if (entry->d_name[0] == '.')
		return -ENOENT;
	if (is_module(entry->d_name, name))
		return RETRY_EINTR(openat(dir, entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	if (strchr(entry->d_name, '.') || depth == 0)
		return -ENOENT;
	sub = RETRY_EINTR(
		openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	return sub < 0 ? -ENOENT : find(sub, name, depth - 1);
}

/* A descriptor of the module, or -ENOENT. */
static int find(int dir, const char *name, int depth)
{
	DIR *d = fd_list(dir);
	struct dirent *entry;
	int r = -ENOENT;

	while (d && r < 0 && (entry = readdir(d)))
		r = find_in(dir, entry, name, depth);
	if (d)
		(void)closedir(d);
	return r;
}

static int read_module(int from, struct buf *b, struct err *e)
{
	_cleanup_close_ int fd = memfd_create("module", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return err_errno(e, "cannot create a memfd");
	r = packed_copy(from, fd, e);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot seek");
	r = fd_read_all(fd, b);
	return r < 0 ? err_set(e, r, "cannot read: %s", strerror(-r)) : 0;
}

const char *module_depends(const char *data, size_t n)
{
	static const char key[] = "\0depends="; /* an entry of .modinfo, between others */
	const char *at = memmem(data, n, key, sizeof(key) - 1), *value;

	if (!at)
		return NULL;
	value = at + sizeof(key) - 1;
	return memchr(value, '\0', n - (size_t)(value - data)) ? value : NULL;
}

static int add(struct modules *m, const char *name, int depth, struct err *e);

/* Dependencies come first. */
static int add_depends(struct modules *m, const char *list, int depth, struct err *e)
{
	int r = 0;

	while (r == 0 && *list) {
		size_t n = strcspn(list, ",");
		char name[MODULE_NAME];

		if (n >= sizeof(name))
			return err_set(e, -EINVAL, "a module's name is too long");
		memcpy(name, list, n);
		name[n] = '\0';
		underscores(name);
		r = n > 0 ? add(m, name, depth - 1, e) : 0;
		list += n + (list[n] == ',');
	}
	return r;
}

static bool is_known(const struct modules *m, const char *name)
{
	char line[MODULE_NAME + 8];

	for (size_t i = 0; i < m->n; i++)
		if (str_eq(m->names[i], name))
			return true;
	(void)snprintf(line, sizeof(line), "/%s.ko\n", name);
	return strstr(buf_text(&m->builtin), line) != NULL;
}

static int add_file(struct modules *m, const char *name, int from, int depth, struct err *e)
{
	_cleanup_buf_ struct buf data = BUF_INIT(MODULE_MAX);
	char path[MODULE_NAME + 32];
	const char *depends;
	int r = read_module(from, &data, e);

	if (r < 0)
		return err_wrap(e, "module %s", name);
	depends = module_depends(data.data, data.len);
	if (!depends)
		return err_set(e, -EINVAL, "'%s' is not a module", name);
	r = add_depends(m, depends, depth, e);
	if (r < 0)
		return r;
	if (m->n == MODULES_MAX)
		return err_set(e, -E2BIG, "more than %d modules", MODULES_MAX);
	(void)snprintf(m->names[m->n++], MODULE_NAME, "%s", name);
	(void)snprintf(path, sizeof(path), "lib/modules/%s.ko", name);
	cpio_file(m->cpio, path, 0644, data.data, data.len);
	(void)buf_printf(&m->list, "/%s\n", path);
	return 0;
}

static int add(struct modules *m, const char *name, int depth, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;

	if (is_known(m, name))
		return 0;
	if (depth == 0)
		return err_set(e, -EINVAL, "modules have circular dependencies");
	fd = find(m->dir, name, DEPTH_MAX);
	if (fd < 0)
		return err_set(e, -EINVAL, "the kernel has no module '%s'", name);
	return add_file(m, name, fd, depth, e);
}

static int finish(struct modules *m, const char *list, struct err *e)
{
	cpio_file(m->cpio, list, 0644, buf_text(&m->list), m->list.len);
	if (m->cpio->out->err < 0 || m->list.err < 0)
		return err_oom(e);
	buf_reset(&m->list);
	return 0;
}

static int add_nested(struct modules *m, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(nested) && r == 0; i++) {
		_cleanup_close_ int fd = find(m->dir, nested[i], DEPTH_MAX);

		if (fd >= 0)
			r = add(m, nested[i], DEPTH_MAX, e);
	}
	return r < 0 ? r : finish(m, NESTED_MODULES, e);
}

int modules_add(int dir, struct cpio *base, struct cpio *more, struct err *e)
{
	struct modules m = { .dir = dir,
			     .cpio = base,
			     .builtin = BUF_INIT(BUILTIN_MAX),
			     .list = BUF_INIT(MODULES_MAX * (MODULE_NAME + 32)) };
	int r = fd_read_file(dir, "modules.builtin", &m.builtin, e);

	if (r == 0 && m.builtin.data)
		underscores(m.builtin.data);
	cpio_dir(base, "lib");
	cpio_dir(base, "lib/modules");
	for (size_t i = 0; i < ARRAY_SIZE(wanted) && r == 0; i++)
		r = add(&m, wanted[i], DEPTH_MAX, e);
	if (r == 0)
		r = finish(&m, "lib/modules-list", e);
	m.cpio = more;
	if (r == 0)
		r = add_nested(&m, e);
	buf_done(&m.builtin);
	buf_done(&m.list);
	return r;
}
