/* SPDX-License-Identifier: Apache-2.0 */
/* host.yaml: valid files, every error message, and which of several files counts. */
#include "unit.h"

#include <string.h>
#include <sys/stat.h>

#include "fail.h"
#include "vm/host-config.h"

static void right(const char *text, enum accel_wish accel, uint64_t timeout)
{
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	host_config_read(&src, &config, &d);
	assert_int_equal(diags_result(&d), 0);
	assert_int_equal(config.accel, accel);
	assert_int_equal(config.accel_timeout, timeout);
}

TEST(what_is_right)
{
	right("accel: auto\n", ACCEL_AUTO, 15000);
	right("accel: kvm\n", ACCEL_WANT_KVM, 15000);
	right("# comment\naccel: \"tcg\"\n", ACCEL_WANT_TCG, 15000);
	right("accel_timeout: 90s\naccel: kvm\n", ACCEL_WANT_KVM, 90000);
	right("accel_timeout: 10m\n", ACCEL_AUTO, 600000);
	right("{}\n", ACCEL_AUTO, 15000);
}

static void space(const char *text, uint64_t expected)
{
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	host_config_read(&src, &config, &d);
	assert_int_equal(diags_result(&d), 0);
	assert_int_equal(config.snapshot_space, expected);
}

TEST(how_much_space)
{
	space("accel: auto\n", UINT64_C(64) << 30);
	space("snapshot_space: 1MiB\n", UINT64_C(1) << 20);
	space("snapshot_space: 500GiB\n", UINT64_C(500) << 30);
}

static void overcommit(const char *text, unsigned int expected)
{
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	host_config_read(&src, &config, &d);
	assert_int_equal(diags_result(&d), 0);
	assert_int_equal(config.disk_overcommit, expected);
}

TEST(whether_disks_are_reserved)
{
	overcommit("accel: auto\n", 0);
	overcommit("disk_overcommit: true\n", 1);
	overcommit("disk_overcommit: false\n", 0);
}

/* Expects these diagnostics of a file, a line each. */
static void wrong(const char *text, const char *expected)
{
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	_cleanup_buf_ struct buf said = BUF_INIT(64 * 1024);
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	host_config_read(&src, &config, &d);
	diags_sort(&d);
	assert_int_equal(diags_result(&d), -EINVAL);
	for (size_t i = 0; i < d.n; i++) {
		assert_int_equal(diag_format(&d.list[i], &said), 0);
		assert_int_equal(buf_putc(&said, '\n'), 0);
	}
	assert_string_equal(buf_text(&said), expected);
}

TEST(what_is_wrong)
{
	wrong("accel: kmv\n", "host.yaml:1:8: error: accel: 'kmv' is not one of: auto, kvm, tcg; "
			      "did you mean 'kvm'?\n");
	wrong("accel: KVM\n", "host.yaml:1:8: error: accel: 'KVM' is not one of: auto, kvm, tcg\n");
	wrong("accel:\n",
	      "host.yaml:1:7: error: accel: expected one of: auto, kvm, tcg, found nothing\n");
	wrong("accel: [kvm]\n",
	      "host.yaml:1:8: error: accel: expected one of: auto, kvm, tcg, found a list\n");
	wrong("acel: kvm\n",
	      "host.yaml:1:1: error: acel: unknown key; expected one of: accel, "
	      "accel_timeout, snapshot_space, keep_ended, ended_space, "
	      "disk_overcommit, engine, egress_proxy, tap_roots; did you mean 'accel'?\n");
	wrong("engine: lxc\n",
	      "host.yaml:1:9: error: engine: 'lxc' is not an engine: expected one of "
	      "crun, runc, qemu\n");
	wrong("accel: kvm\nmotor:\n  x: 1\n",
	      "host.yaml:2:1: error: motor: unknown key; expected one of: accel, accel_timeout, "
	      "snapshot_space, keep_ended, ended_space, disk_overcommit, engine, "
	      "egress_proxy, tap_roots\n");
	wrong("accel: kvm\naccel: tcg\n",
	      "host.yaml:2:1: error: accel: written twice; the first stands at line 1\n");
	wrong("disk_overcommit: maybe\n",
	      "host.yaml:1:18: error: disk_overcommit: 'maybe' is not one of: false, true\n");
	wrong("accel_timeout: 15\n",
	      "host.yaml:1:16: error: accel_timeout: expected a duration such as 90s (ms, s, m, h, "
	      "d), found '15'; did you mean '15s'?\n");
	wrong("accel_timeout: 500ms\n",
	      "host.yaml:1:16: error: accel_timeout: '500ms' is out of range: from 1s to 10m\n");
	wrong("snapshot_space: 1KiB\n",
	      "host.yaml:1:17: error: snapshot_space: '1KiB' is out of range: from 1MiB to "
	      "1024TiB\n");
	wrong("accel_timeout: 11m\n",
	      "host.yaml:1:16: error: accel_timeout: '11m' is out of range: from 1s to 10m\n");
	wrong("- accel\n", "host.yaml:1:1: error: expected a mapping, found a list\n");
	wrong("kvm\n", "host.yaml:1:1: error: expected a mapping, found 'kvm'\n");
	wrong("", "host.yaml:1:1: error: the file is empty\n");
	wrong("accel: &a kvm\n",
	      "host.yaml:1:8: error: anchors (&a) are not used here: write the value out\n");
	/* All errors are reported, not only the first. */
	wrong("accel: x\naccel_timeout: soon\nmore: 1\n",
	      "host.yaml:1:8: error: accel: 'x' is not one of: auto, kvm, tcg\n"
	      "host.yaml:2:16: error: accel_timeout: expected a duration such as 90s (ms, s, m, h, "
	      "d), found 'soon'\n"
	      "host.yaml:3:1: error: more: unknown key; expected one of: accel, accel_timeout, "
	      "snapshot_space, keep_ended, ended_space, disk_overcommit, engine, "
	      "egress_proxy, tap_roots\n");
}

TEST(what_has_ended)
{
	static const char text[] = "keep_ended: 30d\nended_space: 5GiB\n";
	static const char none[] = "keep_ended: 0s\n";
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	const struct source off = { .label = "host.yaml", .text = none, .len = strlen(none) };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	assert_int_equal(config.keep_ended, UINT64_C(7) * 24 * 3600 * 1000);
	assert_int_equal(config.ended_space, UINT64_C(1) << 30);
	host_config_read(&src, &config, &d);
	assert_int_equal(config.keep_ended, UINT64_C(30) * 24 * 3600 * 1000);
	assert_int_equal(config.ended_space, UINT64_C(5) << 30);
	host_config_read(&off, &config, &d);
	assert_int_equal(config.keep_ended, 0);
	assert_int_equal(diags_result(&d), 0);
	wrong("keep_ended: 7\n",
	      "host.yaml:1:13: error: keep_ended: expected a duration such as 90s (ms, s, m, h, "
	      "d), found '7'; did you mean '7s'?\n");
	wrong("ended_space: 0MiB\n",
	      "host.yaml:1:14: error: ended_space: '0MiB' is out of range: from 1MiB to 1024TiB\n");
}

TEST(proxies)
{
	static const char text[] = "egress_proxy: http://proxy.corp.example:3128\n"
				   "tap_roots: /etc/ssl/corp.pem\n";
	const struct source src = { .label = "host.yaml", .text = text, .len = strlen(text) };
	struct host_config config = HOST_CONFIG_INIT;
	_cleanup_diags_ struct diags d = { 0 };

	assert_string_equal(config.egress_proxy, "");
	host_config_read(&src, &config, &d);
	assert_int_equal(diags_result(&d), 0);
	assert_string_equal(config.egress_proxy, "proxy.corp.example:3128");
	assert_string_equal(config.tap_roots, "/etc/ssl/corp.pem");
	wrong("egress_proxy: proxy.corp.example:3128\n",
	      "host.yaml:1:15: error: egress_proxy: expected http://HOST:PORT\n");
	wrong("egress_proxy: https://proxy.corp.example:3128\n",
	      "host.yaml:1:15: error: egress_proxy: expected http://HOST:PORT\n");
	wrong("egress_proxy: http://me:secret@proxy.corp.example:3128\n",
	      "host.yaml:1:15: error: egress_proxy: a proxy with a name or password is not "
	      "supported\n");
	wrong("egress_proxy: http://proxy.corp.example\n",
	      "host.yaml:1:15: error: egress_proxy: expected http://HOST:PORT: the port is "
	      "missing: "
	      "write it as NAME:PORT, such as github.com:443\n");
	wrong("egress_proxy: http://proxy.corp.example:3128/\n",
	      "host.yaml:1:15: error: egress_proxy: expected http://HOST:PORT: after ':PORT/' "
	      "stands "
	      "tls, tls+ech, http, tcp or private\n");
	wrong("tap_roots: corp.pem\n",
	      "host.yaml:1:12: error: tap_roots: expected an absolute path of at most 1023 bytes, "
	      "without '.' or '..', found 'corp.pem'\n");
	wrong("egress_ca: /etc/ssl/corp.pem\n",
	      "host.yaml:1:1: error: egress_ca: unknown key; "
	      "expected one of: accel, accel_timeout, "
	      "snapshot_space, keep_ended, ended_space, disk_overcommit, engine, "
	      "egress_proxy, tap_roots\n");
}

static void set(const char *name, const char *value)
{
	assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

TEST_IN_DIR(which_file)
{
	const struct unit_dir *d = *state;
	struct host_config config = HOST_CONFIG_INIT;
	struct err e = ERR_INIT;
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/a:%s/b", d->path, d->path);
	set("HUTCH_CONFIG_PATH", path);
	assert_int_equal(host_config_load(&config, &e), 0);
	assert_int_equal(config.accel, ACCEL_AUTO);
	assert_int_equal(mkdirat(d->fd, "b", 0755), 0);
	unit_dir_write(d, "b/host.yaml", "accel: tcg\n", 11);
	assert_int_equal(host_config_load(&config, &e), 0);
	assert_int_equal(config.accel, ACCEL_WANT_TCG);
	assert_int_equal(mkdirat(d->fd, "a", 0755), 0);
	unit_dir_write(d, "a/host.yaml", "accel: kvm\n", 11);
	assert_int_equal(host_config_load(&config, &e), 0);
	assert_int_equal(config.accel, ACCEL_WANT_KVM);
	/* The first file counts, even if it is wrong. */
	unit_dir_write(d, "a/host.yaml", "accel: x\n", 9);
	assert_int_equal(host_config_load(&config, &e), -EINVAL);
	(void)snprintf(path, sizeof(path), "%s/a/host.yaml:1:8: error: accel: 'x' is not one of",
		       d->path);
	assert_non_null(strstr(e.msg, path));
	assert_int_equal(config.accel, ACCEL_WANT_KVM);
	set("HUTCH_CONFIG_PATH", NULL);
}

TEST_IN_DIR(environment)
{
	static const char *const words[] = { "auto", "kvm", "tcg" };
	const struct unit_dir *d = *state;
	struct err e = ERR_INIT;
	enum accel_wish wish;

	set("HUTCH_CONFIG_PATH", d->path);
	unit_dir_write(d, "host.yaml", "accel: tcg\n", 11);
	for (enum accel_wish i = 0; i < ARRAY_SIZE(words); i++) {
		set("HUTCH_ACCEL", words[i]);
		assert_int_equal(accel_wish(&wish, &e), 0);
		assert_int_equal(wish, i);
	}
	set("HUTCH_ACCEL", "KVM");
	assert_int_equal(accel_wish(&wish, &e), -EINVAL);
	assert_string_equal(e.msg, "HUTCH_ACCEL is 'KVM', not auto, kvm or tcg");
	set("HUTCH_ACCEL", "");
	assert_int_equal(accel_wish(&wish, &e), 0);
	assert_int_equal(wish, ACCEL_WANT_TCG);
	set("HUTCH_ACCEL", NULL);
	assert_int_equal(accel_wish(&wish, &e), 0);
	assert_int_equal(wish, ACCEL_WANT_TCG);
	set("HUTCH_CONFIG_PATH", NULL);
}

static int load(void)
{
	struct host_config config = HOST_CONFIG_INIT;
	struct err e = ERR_INIT;

	return host_config_load(&config, &e);
}

TEST_IN_DIR(faults)
{
	const struct unit_dir *d = *state;

	set("HUTCH_CONFIG_PATH", d->path);
	unit_dir_write(d, "host.yaml", "accel: tcg\n", 11);
	FAIL_SWEEP(load());
	set("HUTCH_CONFIG_PATH", NULL);
}
