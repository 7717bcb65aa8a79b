/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "fail.h"
#include "receipt/layer.h"
#include "state/spec.h"
#include "unit.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *env[] = { "A=b", "EMPTY=", "X=y=z", NULL };
static const char *all[] = { "/", NULL };
static const char *allow[] = { "example.com:443", ".example.org:22/tcp", NULL };
static const char *deny[] = { "admin.example.org", NULL };
static const char *some[] = { "/workspace", "/tmp", NULL };

static const struct spec example = {
	.level = LEVEL_CONTAINER,
	.id = "abcdefgh01234567",
	.agent = "default",
	.policy = HEX64,
	.image = "base",
	.image_digest = HEX64,
	.root = "/var/lib/hutch/images/trees/x/root",
	.image_uid = 0x70000000,
	.image_gid = 100000,
	.created = UINT64_C(1790000000123456789),
	.require = UINT64_C(1) << LAYER_SECCOMP | UINT64_C(1) << LAYER_KVM,
	.limits_asked = UINT64_C(1) << LAYER_CGROUP_MEMORY | UINT64_C(1) << LAYER_DISK_QUOTA,
	.limits = { 1500, 1 << 30, 1 << 20, 4096, 64, 60000, 0, 5 },
	.deadline = 2000,
	.on_timeout = ON_TIMEOUT_PAUSE,
	.egress = { .allow = { allow, 2 },
		    .deny = { deny, 1 },
		    .bytes_out = 1,
		    .bytes_in = 2,
		    .streams = 3,
		    .streams_per_minute = 4,
		    .names = 5 },
	.user = "",
	.workspace = "/workspace",
	.api = "{}",
	.env = { env, 3 },
	.read = { all, 1 },
	.write = { some, 2 },
	.execute = { NULL, 0 },
	.once = true,
};

static void assert_list(const struct spec_list *got, const struct spec_list *want)
{
	assert_int_equal(got->n, want->n);
	for (size_t i = 0; i < want->n; i++)
		assert_string_equal(got->v[i], want->v[i]);
	assert_null(got->v[got->n]);
}

static void assert_example(const struct spec *s)
{
	assert_string_equal(s->id, example.id);
	assert_string_equal(s->agent, "default");
	assert_string_equal(s->policy, HEX64);
	assert_string_equal(s->image, "base");
	assert_string_equal(s->image_digest, HEX64);
	assert_string_equal(s->root, example.root);
	assert_string_equal(s->user, "");
	assert_string_equal(s->workspace, "/workspace");
	assert_int_equal(s->image_uid, example.image_uid);
	assert_int_equal(s->image_gid, example.image_gid);
	assert_int_equal(s->created, example.created);
	assert_int_equal(s->require, example.require);
	/* The last two are optional. */
	assert_memory_equal(&s->limits, &example.limits,
			    sizeof(example.limits) - 2 * sizeof(uint64_t));
	assert_int_equal(s->deadline, example.deadline);
	assert_int_equal(s->on_timeout, example.on_timeout);
	assert_list(&s->env, &example.env);
	assert_list(&s->read, &example.read);
	assert_list(&s->write, &example.write);
	assert_list(&s->execute, &example.execute);
	assert_list(&s->egress.allow, &example.egress.allow);
	assert_list(&s->egress.deny, &example.egress.deny);
	assert_memory_equal(&s->egress.bytes_out, &example.egress.bytes_out,
			    sizeof(s->egress) - offsetof(typeof(s->egress), bytes_out));
	assert_true(s->once);
	assert_false(s->remove);
}

TEST_IN_DIR(what_is_written_is_read)
{
	struct unit_dir *d = *state;
	_cleanup_free_ char *text = spec_write(&example), *again = NULL;
	_cleanup_spec_ struct spec s = { 0 }, t = { 0 };
	struct err e = ERR_INIT;

	assert_non_null(text);
	assert_int_equal(spec_parse(text, strlen(text), &s, &e), 0);
	assert_example(&s);
	again = spec_write(&s);
	assert_string_equal(text, again);
	assert_int_equal(spec_read(d->fd, &t, &e), -ENOENT);
	unit_dir_write(d, "spec.json", text, strlen(text));
	assert_int_equal(spec_read(d->fd, &t, &e), 0);
	assert_example(&t);
}

/* Sandboxes of earlier versions have no deadline. */
TEST(an_older_one)
{
	_cleanup_free_ char *text = spec_write(&example), *changed = NULL;
	_cleanup_json_ json_t *j = json_loads(text, 0, NULL);
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(json_object_del(j, "deadline"), 0);
	assert_int_equal(json_object_del(j, "on_timeout"), 0);
	assert_int_equal(json_object_del(j, "api"), 0);
	assert_int_equal(json_object_del(j, "limits_asked"), 0);
	changed = json_write_line(j);
	assert_int_equal(spec_parse(changed, strlen(changed), &s, &e), 0);
	assert_string_equal(s.api, "");
	assert_int_equal(s.limits_asked, 0);
	assert_true(s.deadline == 0 && s.on_timeout == ON_TIMEOUT_END);
}

static const char tap_text[] =
	"{\"http\": [], \"secrets\": [{\"name\": \"A\"}, {\"name\": \"B\"}]}";

/* A spec with the tap of `text` and the secret names `names`; an error must contain `wrong`. */
static void assert_tap(const char *text, const char *roots, size_t hosts, size_t names,
		       const char *wrong)
{
	static const char *host[] = { "a.example", ".b.example", NULL };
	static const char *name[] = { "A", "B", "C", NULL };
	_cleanup_free_ char *written = NULL, *again = NULL;
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;
	struct spec t = example;
	int r;

	t.tap = text;
	t.tap_roots = roots;
	t.tap_hosts = (struct spec_list){ host, hosts };
	t.tap_secrets = (struct spec_list){ name, names };
	written = spec_write(&t);
	r = spec_parse(written, strlen(written), &s, &e);
	if (wrong) {
		assert_int_equal(r, -EINVAL);
		assert_string_equal(e.msg, wrong);
		return;
	}
	assert_int_equal(r, 0);
	assert_string_equal(s.tap, text);
	assert_string_equal(s.tap_roots, roots ? roots : "");
	assert_int_equal(s.tap_hosts.n, hosts);
	assert_int_equal(s.tap_secrets.n, names);
	again = spec_write(&s);
	assert_string_equal(written, again);
}

TEST(tap)
{
	_cleanup_free_ char *text = spec_write(&example);

	assert_null(strstr(text, "tap"));
	assert_tap(tap_text, NULL, 2, 2, NULL);
	assert_tap(tap_text, "/etc/corp.pem", 1, 2, NULL);
	assert_tap("{\"http\": [{}], \"secrets\": []}", "", 1, 0, NULL);
	assert_tap(tap_text, "corp.pem", 1, 2, "'tap_roots' is not an absolute path");
	assert_tap(tap_text, "", 0, 2, "'tap_hosts' is empty");
	assert_tap(tap_text, "", 1, 1, "'tap_secrets' has another number of secrets than 'tap'");
	assert_tap("{\"http\": [], \"secrets\": [{\"name\": \"B\"}, {}]}", "", 1, 2,
		   "'tap_secrets' and 'tap' differ");
	assert_tap("{\"secrets\": []}", "", 1, 0, "'tap' has no lists 'secrets' and 'http'");
	assert_tap("{\"http\": [], \"secrets\": [], \"ca\": 1}", "", 1, 0, "tap: unknown key 'ca'");
	assert_tap("x", "", 1, 0, "tap: line 1 column 1: invalid token near 'x'");
}

/* All four keys or none. */
TEST(a_part_of_tap)
{
	static const char *const keys[] = { "tap", "tap_roots", "tap_hosts", "tap_secrets" };
	static const char *host[] = { "a.example", NULL }, *name[] = { "A", "B", NULL };
	struct spec t = example;

	t.tap = tap_text;
	t.tap_hosts = (struct spec_list){ host, 1 };
	t.tap_secrets = (struct spec_list){ name, 2 };
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		_cleanup_free_ char *text = spec_write(&t), *less = NULL;
		_cleanup_json_ json_t *j = json_loads(text, 0, NULL);
		struct err e = ERR_INIT;
		struct spec s = { 0 };
		char want[64];

		assert_int_equal(json_object_del(j, keys[i]), 0);
		less = json_write_line(j);
		assert_int_equal(spec_parse(less, strlen(less), &s, &e), -EINVAL);
		(void)snprintf(want, sizeof(want), "'%s' is missing", keys[i]);
		assert_string_equal(e.msg, want);
	}
}

TEST(where_files_are)
{
	struct spec disk = example, memory = example, wrong = example;
	_cleanup_free_ char *a = NULL, *b = NULL, *c = NULL;
	_cleanup_spec_ struct spec s = { 0 }, t = { 0 }, u = { 0 };
	struct err e = ERR_INIT;

	disk.blank = "/k/4096.ext4";
	memory.in_memory = true;
	wrong.blank = "k/../4096.ext4";
	a = spec_write(&disk);
	b = spec_write(&memory);
	c = spec_write(&wrong);
	assert_int_equal(spec_parse(a, strlen(a), &s, &e), 0);
	assert_true(!s.in_memory && str_eq(s.blank, "/k/4096.ext4"));
	assert_int_equal(spec_parse(b, strlen(b), &t, &e), 0);
	assert_true(t.in_memory && str_eq(t.blank, ""));
	assert_int_equal(spec_parse(c, strlen(c), &u, &e), -EINVAL);
	assert_string_equal(e.msg, "'blank' is not an absolute path");
}

static struct spec machine(void)
{
	struct spec s = example;

	s.level = LEVEL_MICROVM;
	s.engine = "an-engine";
	s.machine.kernel = "/k/kernel";
	s.machine.initrd = "/k/initrd";
	s.machine.root = "/k/root.erofs";
	s.machine.blank = "/k/blank.ext4";
	s.machine.snapshot = "";
	s.machine.snapshots = "/k/snapshots";
	s.machine.accel = "tcg";
	s.machine.hypervisor = "QEMU 7.2";
	s.machine.kernel_version = "linux 6.1";
	s.snapshot_space = UINT64_C(64) << 30;
	s.limits.disk_bandwidth = 1 << 20;
	s.limits.disk_ops = 100;
	s.overcommit = true;
	s.nested = true;
	return s;
}

TEST(one_of_a_machine)
{
	struct spec m = machine();
	_cleanup_free_ char *text = spec_write(&m), *again = NULL;
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(spec_parse(text, strlen(text), &s, &e), 0);
	assert_example(&s);
	assert_int_equal(s.level, LEVEL_MICROVM);
	assert_string_equal(s.engine, "an-engine");
	assert_string_equal(s.machine.kernel, m.machine.kernel);
	assert_string_equal(s.machine.initrd, m.machine.initrd);
	assert_string_equal(s.machine.root, m.machine.root);
	assert_string_equal(s.machine.blank, m.machine.blank);
	assert_string_equal(s.machine.snapshot, "");
	assert_string_equal(s.machine.snapshots, m.machine.snapshots);
	assert_string_equal(s.machine.accel, "tcg");
	assert_string_equal(s.machine.hypervisor, "QEMU 7.2");
	assert_string_equal(s.machine.kernel_version, "linux 6.1");
	assert_int_equal(s.snapshot_space, m.snapshot_space);
	assert_int_equal(s.limits.disk_bandwidth, 1 << 20);
	assert_int_equal(s.limits.disk_ops, 100);
	assert_true(s.overcommit);
	assert_true(s.nested);
	assert_string_equal(spec_chain(&s), s.id);
	again = spec_write(&s);
	assert_string_equal(text, again);
}

TEST(nested_is_for_machines)
{
	struct spec m = machine();
	_cleanup_free_ char *text = NULL;
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	m.level = LEVEL_CONTAINER;
	text = spec_write(&m);
	assert_int_equal(spec_parse(text, strlen(text), &s, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "'nested' is for VMs"));
}

/* A resumed sandbox has a different audit chain than that of its id. */
TEST(a_chain_of_its_own)
{
	char chain[SPEC_CHAIN + 1];
	struct spec m = machine();
	_cleanup_free_ char *text = NULL;
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;

	(void)snprintf(chain, sizeof(chain), "%szyxwvuts01234567", m.id);
	m.chain = chain;
	text = spec_write(&m);
	assert_int_equal(spec_parse(text, strlen(text), &s, &e), 0);
	assert_string_equal(spec_chain(&s), chain);
	assert_string_equal(s.id, example.id);
}

/* Reads the example with `key` set to `value` (taken; NULL: without the key), which must fail. */
static void refused_of(const struct spec *of, const char *section, const char *key, json_t *value,
		       const char *want)
{
	_cleanup_free_ char *text = spec_write(of), *changed = NULL;
	_cleanup_json_ json_t *j = json_loads(text, 0, NULL);
	json_t *at = section ? json_object_get(j, section) : j;
	struct spec s = { 0 };
	struct err e = ERR_INIT;

	if (value)
		(void)json_object_set_new(at, key, value);
	else
		assert_int_equal(json_object_del(at, key), 0);
	changed = json_write_line(j);
	assert_int_equal(spec_parse(changed, strlen(changed), &s, &e), -EINVAL);
	assert_string_equal(e.msg, want);
	assert_null(s.json);
}

static void refused(const char *section, const char *key, json_t *value, const char *want)
{
	refused_of(&example, section, key, value, want);
}

TEST(wrong_machines)
{
	static const char *const paths[] = { "kernel", "initrd",   "root",
					     "blank",  "snapshot", "snapshots" };
	static const char no_path[] = "'machine' has an entry that is not an absolute path";
	const struct spec m = machine();
	char want[64];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		refused_of(&m, "machine", paths[i], json_string("k/x"), no_path);
		refused_of(&m, "machine", paths[i], json_string("/k/../x"), no_path);
		(void)snprintf(want, sizeof(want), "machine: '%s' is missing", paths[i]);
		refused_of(&m, "machine", paths[i], NULL, want);
	}
	refused_of(&m, "machine", "kernel", json_string(""), no_path);
	refused_of(&m, "machine", "accel", json_string("xen"),
		   "'machine.accel' is neither kvm nor tcg");
	refused_of(&m, "machine", "accel", NULL, "machine: 'accel' is missing");
	refused_of(&m, "machine", "more", json_string("/x"), "machine: unknown key 'more'");
	refused_of(&m, NULL, "machine", json_array(), "machine: expected a JSON object");
	refused_of(&m, NULL, "level", json_string("vm"), "'level': 'vm' is not an isolation level");
	refused_of(&m, NULL, "engine", json_true(), "'engine' is not a string");
	refused_of(&m, NULL, "level", json_true(), "'level' is not a string");
	refused_of(&m, NULL, "chain", json_string("../x"),
		   "'chain' does not belong to this sandbox");
	refused_of(&m, NULL, "chain", json_string("zyxwvuts01234567zyxwvuts01234567"),
		   "'chain' does not belong to this sandbox");
	refused_of(&m, NULL, "chain", json_integer(1), "'chain' is not a string");
	refused_of(&m, NULL, "disk_overcommit", json_string("yes"),
		   "'disk_overcommit' is neither true nor false");
	refused_of(&m, NULL, "snapshot_space", json_string("1"),
		   "'snapshot_space' is not a whole number from 0 on");
}

TEST(every_key_is_needed)
{
	_cleanup_free_ char *text = spec_write(&example);
	_cleanup_json_ json_t *j = json_loads(text, 0, NULL);
	const char *key;
	json_t *value;
	char want[64];

	json_object_foreach(j, key, value)
	{
		if (str_eq(key, "api") || str_eq(key, "egress_narrow") || str_eq(key, "deadline") ||
		    str_eq(key, "on_timeout") || str_eq(key, "limits_asked"))
			continue;
		(void)snprintf(want, sizeof(want), "'%s' is missing", key);
		refused(NULL, key, NULL, want);
	}
	json_object_foreach(json_object_get(j, "limits"), key, value)
	{
		(void)snprintf(want, sizeof(want), "limits: '%s' is missing", key);
		refused("limits", key, NULL, want);
	}
}

TEST(what_is_wrong_is_refused)
{
	refused(NULL, "more", json_true(), "unknown key 'more'");
	refused("limits", "more", json_integer(1), "limits: unknown key 'more'");
	refused(NULL, "schema", json_string("hutch.spec/2"), "'schema' is not hutch.spec/1");
	refused(NULL, "id", json_string("../../etc/passwd"), "'id' is no id");
	refused(NULL, "id", json_string("ABCDEFGH01234567"), "'id' is no id");
	refused(NULL, "id", json_string("0bcdefgh01234567"), "'id' is no id");
	refused(NULL, "id", json_string("abc"), "'id' is no id");
	refused(NULL, "policy", json_string("12"), "'policy' or 'image_digest' is not a digest");
	refused(NULL, "root", json_string("var/x"),
		"'root' or 'workspace' is not an absolute path");
	refused(NULL, "root", json_string("/a/../b"),
		"'root' or 'workspace' is not an absolute path");
	refused(NULL, "workspace", json_string(""),
		"'root' or 'workspace' is not an absolute path");
	refused(NULL, "image_uid", json_integer(UINT32_MAX), "'image_uid' is more than 4294901759");
	refused(NULL, "image_gid", json_integer(-1), "'image_gid' is not a whole number from 0 on");
	refused(NULL, "once", json_integer(1), "'once' is neither true nor false");
	refused(NULL, "limits", json_array(), "limits: expected a JSON object");
	refused("limits", "memory", json_real(1.5),
		"limits: 'memory' is not a whole number from 0 on");
	refused(NULL, "deadline", json_integer(-1), "'deadline' is not a whole number from 0 on");
	refused("limits", "ttl", json_integer(1999), "'deadline' is later than the end of the ttl");
	refused(NULL, "on_timeout", json_string("stop"), "'on_timeout' is not known");
	refused(NULL, "on_timeout", json_true(), "'on_timeout' is not a string");
	refused(NULL, "env", json_string("A=b"), "'env' is not a list");
	refused(NULL, "env", json_pack("[s]", "Ab"), "'env' has an entry that is not NAME=value");
	refused(NULL, "env", json_pack("[s]", "=b"), "'env' has an entry that is not NAME=value");
	refused(NULL, "read", json_pack("[s]", "x"),
		"'read' has an entry that is not an absolute path");
	refused(NULL, "write", json_pack("[s]", "/x/"),
		"'write' has an entry that is not an absolute path");
	refused(NULL, "execute", json_pack("[i]", 1),
		"'execute' has an entry that is not a text of at most 4095 bytes");
	refused(NULL, "require", json_pack("[s]", "moat"),
		"'require' has an entry that is not a layer");
	refused(NULL, "require", json_pack("[i]", 3), "'require' has an entry that is not a layer");
}

TEST_IN_DIR(limits_of_lists_and_files)
{
	struct unit_dir *d = *state;
	_cleanup_free_ char *large = malloc(SPEC_FILE_MAX + 1);
	_cleanup_spec_ struct spec s = { 0 };
	json_t *many = json_array();
	struct err e = ERR_INIT;

	for (int i = 0; i <= SPEC_LIST_MAX; i++)
		(void)json_array_append_new(many, json_string("/x"));
	refused(NULL, "read", many, "'read' has more than 100000 entries");
	memset(large, ' ', SPEC_FILE_MAX + 1);
	assert_int_equal(spec_parse(large, SPEC_FILE_MAX + 1, &s, &e), -EFBIG);
	unit_dir_write(d, "spec.json", large, SPEC_FILE_MAX + 1);
	assert_int_equal(spec_read(d->fd, &s, &e), -EFBIG);
}

/* A plan has no id yet; a sandbox on disk must have one. */
TEST_IN_DIR(without_an_id)
{
	struct unit_dir *d = *state;
	struct spec plan = example;
	_cleanup_spec_ struct spec s = { 0 };
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;

	plan.id = "";
	text = spec_write(&plan);
	assert_int_equal(spec_parse(text, strlen(text), &s, &e), 0);
	unit_dir_write(d, "spec.json", text, strlen(text));
	spec_done(&s);
	assert_int_equal(spec_read(d->fd, &s, &e), -EINVAL);
	assert_string_equal(e.msg, "spec.json: 'id' is empty");
}

static int write_and_read(const struct unit_dir *d)
{
	_cleanup_free_ char *text = spec_write(&example);
	_cleanup_spec_ struct spec s = { 0 }, t = { 0 };
	struct err e = ERR_INIT;
	int r = text ? spec_parse(text, strlen(text), &s, &e) : -ENOMEM;

	return r < 0 ? r : spec_read(d->fd, &t, &e);
}

TEST_IN_DIR(faults)
{
	struct unit_dir *d = *state;
	_cleanup_free_ char *text = spec_write(&example);

	unit_dir_write(d, "spec.json", text, strlen(text));
	FAIL_SWEEP(write_and_read(d));
}
