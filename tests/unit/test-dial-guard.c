/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dial guard on this host, as root: rules become the expected trie, the programs judge packets
 * by it, and the guard limits the sockets of processes in the group. Every refused connection is
 * first shown to work without the guard.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "egress/check.h"
#include "engine/cgroup.h"
#include "engine/dial-guard.h"
#include "fail.h"

enum {
	RULES_MAX = 8,
	PACKET_MAX = 64,
	START_MS = 20, /* detects a tenfold slowdown; a busy host still passes */
};

/* ---- rules ---- */

struct given {
	const char *v[RULES_MAX];
	const char *proxy, *server;
	const char *more; /* a rule that was added in an earlier run */
};

static struct addr addr_of(const char *text)
{
	struct addr a = { 0 };
	struct err e = ERR_INIT;

	if (addr_parse(text, strlen(text), &a, &e) < 0) {
		/* Programs can connect to addresses that a policy cannot contain. */
		a = (struct addr){ .family = 6, .prefix = 128 };
		assert_int_equal(inet_pton(AF_INET6, text, a.bytes), 1);
	}
	return a;
}

static int fill(int map, const struct given *given, struct err *e)
{
	struct spec_list allow = { .v = (const char **)given->v };
	struct target server = { 0 };
	struct spec_list more = { .v = (const char **)&given->more, .n = given->more != NULL };
	struct dial_rules rules = {
		.allow = &allow, .more = &more, .proxy = given->proxy, .servers = &server
	};

	while (allow.n < RULES_MAX && given->v[allow.n])
		allow.n++;
	if (given->server) {
		assert_int_equal(target_parse(given->server, strlen(given->server), &server, e), 0);
		rules.n_servers = 1;
	}
	return dial_rules_put(map, &rules, e);
}

static int new_map(const struct given *given)
{
	int map = bpf_trie_new("unit", sizeof(struct dial_key), 1, DIAL_ENTRIES_MAX);
	struct err e = ERR_INIT;

	assert_true(map >= 0);
	assert_int_equal(fill(map, given, &e), 0);
	return map;
}

static uint8_t find(int map, uint32_t what, const struct addr *a)
{
	struct dial_key k = { .prefix = DIAL_KEY_BITS + 128, .what = what };
	uint8_t found = 0;

	if (a->family == 4) {
		k.addr[10] = k.addr[11] = 0xff;
		memcpy(k.addr + 12, a->bytes, 4);
	} else {
		memcpy(k.addr, a->bytes, 16);
	}
	return bpf_map_get(map, &k, &found) < 0 ? 0 : found;
}

/* Decides from the map as the programs do. */
static bool may(int map, unsigned int protocol, const char *text, uint16_t port)
{
	struct addr a = addr_of(text);

	return find(map, DIAL_KIND, &a) & find(map, dial_what(protocol, port), &a) & ~DIAL_HERE;
}

/* The trie and addr_classify() agree on every address. */
TEST(test_kinds_are_those_of_the_table)
{
	static const struct given none = { .v = { NULL } };
	_cleanup_close_ int map = new_map(&none);
	enum addr_class class;
	unsigned int seed = 1;
	struct addr a;

	for (unsigned int i = 0; i < 20000; i++) {
		size_t row = (size_t)rand_r(&seed) % 64;
		uint8_t kind;

		/* Random addresses, and addresses in each row or one bit away from it. */
		if (!addr_class_row(row, &a, &class))
			a = (struct addr){ .family = row % 2 ? 4 : 6 };
		for (unsigned int bit = a.prefix; bit < (a.family == 4 ? 32U : 128U); bit++)
			if (rand_r(&seed) & 1)
				a.bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		if (a.prefix > 0 && rand_r(&seed) % 4 == 0)
			a.bytes[(a.prefix - 1) / 8] ^= (uint8_t)(0x80 >> (a.prefix - 1) % 8);
		a.prefix = a.family == 4 ? 32 : 128;
		kind = find(map, DIAL_KIND, &a);
		class = addr_classify(&a);
		if (a.family == 6 && memcmp(a.bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0)
			continue; /* the kernel treats it as IPv4 */
		assert_int_equal(kind == DIAL_PUBLIC, class == ADDR_PUBLIC);
		assert_int_equal(kind == DIAL_PRIVATE, class == ADDR_PRIVATE);
		assert_int_equal(kind == DIAL_SHARED, class == ADDR_SHARED);
		assert_int_equal(kind == DIAL_NEVER, check_literal(&a) != NULL);
	}
}

TEST(test_rules)
{
	static const struct given given = {
		.v = { "github.com:443", ".corp.example:8443/private", "10.1.0.0/16:22",
		       "[::1]:5432", "127.0.0.1:6000", "0.0.0.0/0:9" },
		.server = "127.0.0.53:53",
		.more = "192.168.7.0/24:2222",
	};
	static const struct {
		const char *addr;
		uint16_t port;
		bool may;
	} tries[] = {
		{ "93.184.216.34", 443, true },
		{ "93.184.216.34", 444, false },
		{ "93.184.216.34", 80, false },
		{ "93.184.216.34", 0, false },
		{ "127.0.0.1", 443, false },
		{ "10.1.2.3", 443, false },
		{ "169.254.169.254", 443, false },
		{ "0.0.0.0", 443, false },
		{ "100.64.0.1", 443, false },
		{ "224.0.0.1", 443, false },
		{ "::1", 443, false },
		{ "fe80::1", 443, false },
		{ "fd00::1", 443, false },
		{ "::ffff:127.0.0.1", 443, false },
		{ "::ffff:93.184.216.34", 443, true },
		{ "64:ff9b::7f00:1", 443, false },
		{ "2002:7f00:1::", 443, false },
		{ "::7f00:1", 443, false },
		{ "::", 443, false },
		{ "2606:2800:220:1::10", 443, true },
		{ "10.1.2.3", 8443, true },
		{ "fd00::1", 8443, true },
		{ "93.184.216.34", 8443, true },
		{ "127.0.0.1", 8443, false },
		{ "100.64.0.1", 8443, false },
		{ "169.254.169.254", 8443, false },
		{ "fd00:ec2::254", 8443, false },
		{ "10.1.2.3", 22, true },
		{ "10.2.2.3", 22, false },
		{ "93.184.216.34", 22, false },
		{ "::1", 5432, true },
		{ "127.0.0.1", 5432, false },
		{ "127.0.0.1", 6000, true },
		{ "127.0.0.2", 6000, false },
		{ "127.0.0.1", 9, true },
		{ "169.254.169.254", 9, false },
		{ "0.0.0.0", 9, false },
		{ "127.0.0.53", 53, true },
		{ "127.0.0.1", 53, false },
		{ "192.168.7.9", 2222, true },
		{ "192.168.8.9", 2222, false },
	};
	_cleanup_close_ int map = new_map(&given);
	struct rule rule;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++)
		if (may(map, IPPROTO_TCP, tries[i].addr, tries[i].port) != tries[i].may)
			fail_msg("%s port %u", tries[i].addr, tries[i].port);
	assert_true(may(map, IPPROTO_UDP, "127.0.0.53", 53));
	assert_false(may(map, IPPROTO_UDP, "93.184.216.34", 443));
	assert_false(may(map, IPPROTO_UDP, "93.184.216.34", 53));
	assert_false(may(map, IPPROTO_ICMP, "93.184.216.34", 443));
	/* A rule can be added while it runs; the existing ones stay. */
	assert_int_equal(rule_parse("10.1.2.3:443", 12, &rule, &e), 0);
	assert_int_equal(dial_rules_add(map, &rule), 0);
	assert_true(may(map, IPPROTO_TCP, "10.1.2.3", 443));
	assert_false(may(map, IPPROTO_TCP, "10.1.2.4", 443));
	assert_int_equal(rule_parse("git.corp:443/private", 20, &rule, &e), 0);
	assert_int_equal(dial_rules_add(map, &rule), 0);
	assert_true(may(map, IPPROTO_TCP, "10.1.2.4", 443));
	assert_int_equal(rule_parse("a.example:443", 13, &rule, &e), 0);
	assert_int_equal(dial_rules_add(map, &rule), 0);
	assert_true(may(map, IPPROTO_TCP, "10.1.2.4", 443));
	assert_false(may(map, IPPROTO_TCP, "127.0.0.1", 443));
}

/* Connections through a proxy may reach the proxy only. */
TEST(test_proxies)
{
	static const struct given by_addr = { .v = { "github.com:443", "10.1.0.0/16:22" },
					      .proxy = "127.0.0.1:3128",
					      .more = "10.1.0.1:25" },
				  by_name = { .v = { "github.com:443" },
					      .proxy = "proxy.corp.example:3128",
					      .server = "10.0.0.53:53" },
				  nothing = { .proxy = "127.0.0.1:3128", .server = "10.0.0.53:53" };
	_cleanup_close_ int a = new_map(&by_addr), n = new_map(&by_name), no = new_map(&nothing);

	assert_true(may(a, IPPROTO_TCP, "127.0.0.1", 3128));
	assert_false(may(a, IPPROTO_TCP, "127.0.0.1", 443));
	assert_false(may(a, IPPROTO_TCP, "93.184.216.34", 443));
	assert_false(may(a, IPPROTO_TCP, "10.1.0.1", 22));
	assert_false(may(a, IPPROTO_TCP, "10.1.0.1", 25));
	assert_true(may(n, IPPROTO_TCP, "10.9.9.9", 3128));
	assert_true(may(n, IPPROTO_TCP, "93.184.216.34", 3128));
	assert_true(may(n, IPPROTO_UDP, "10.0.0.53", 53));
	assert_false(may(n, IPPROTO_TCP, "127.0.0.1", 3128));
	assert_false(may(n, IPPROTO_TCP, "93.184.216.34", 443));
	assert_false(may(no, IPPROTO_TCP, "127.0.0.1", 3128));
	assert_false(may(no, IPPROTO_UDP, "10.0.0.53", 53));
}

TEST(test_rules_that_are_none)
{
	static const struct given wrong = { .v = { "not a rule" } },
				  proxy = { .v = { "a.example:443" }, .proxy = "no port" };
	_cleanup_close_ int map = new_map(&(struct given){ .v = { NULL } });
	struct err e = ERR_INIT;

	assert_int_equal(fill(map, &wrong, &e), -EINVAL);
	e = (struct err)ERR_INIT;
	assert_int_equal(fill(map, &proxy, &e), -EINVAL);
	e = (struct err)ERR_INIT;
	assert_int_equal(fill(-1, &(struct given){ .v = { NULL } }, &e), -EBADF);
	assert_non_null(strstr(e.msg, "cannot add a rule"));
}

/* ---- programs over packets ---- */

struct packet {
	uint8_t bytes[PACKET_MAX];
	size_t n;
};

/* Offsets of the fields that the guard checks, by version of IP. */
static const struct packet_form {
	int family;
	uint8_t version;
	size_t size, protocol, from, to, ports;
} v4 = { AF_INET, 0x45, 40, 9, 12, 16, 20 }, v6 = { AF_INET6, 0x60, 60, 6, 8, 24, 40 };

static struct packet packet(const struct packet_form *f, const char *from, const char *to,
			    uint8_t protocol, uint16_t sport, uint16_t dport, uint8_t flags)
{
	struct packet p = { .n = f->size };
	uint16_t ports[2] = { htons(sport), htons(dport) };

	p.bytes[0] = f->version;
	p.bytes[f->protocol] = protocol;
	assert_int_equal(inet_pton(f->family, from, p.bytes + f->from), 1);
	assert_int_equal(inet_pton(f->family, to, p.bytes + f->to), 1);
	memcpy(p.bytes + f->ports, ports, 4);
	p.bytes[f->ports + 13] = flags;
	return p;
}

static int load(const struct dial_program *p, int map)
{
	_cleanup_buf_ struct buf code = BUF_INIT(DIAL_CODE_MAX);
	struct bpf_program program = { .name = p->name, .type = p->type, .at = p->at };
	char words[BPF_WORDS_MAX];
	int fd;

	p->write(&code, map);
	assert_int_equal(code.err, 0);
	program.code = (const struct bpf_insn *)(const void *)code.data;
	program.n = code.len / sizeof(struct bpf_insn);
	fd = bpf_load(&program, words);
	if (fd < 0)
		fail_msg("%s: %s: %s", p->name, strerror(-fd), words);
	return fd;
}

/*
 * Runs the program over a packet that leaves or arrives by the device of that number. The kernel
 * requires an Ethernet header, which the programs do not see.
 */
static int judge(int program, const struct packet *p, unsigned int device)
{
	uint8_t frame[14 + PACKET_MAX] = { [12] = 0x08 };
	struct __sk_buff skb = { .ifindex = device };
	union bpf_attr attr = { .test.prog_fd = (uint32_t)program,
				.test.data_in = (uint64_t)(uintptr_t)frame,
				.test.data_size_in = (uint32_t)(14 + p->n),
				.test.ctx_in = (uint64_t)(uintptr_t)&skb,
				.test.ctx_size_in = sizeof(skb),
				.test.repeat = 1 };

	if (p->bytes[0] >> 4 == 6)
		memcpy(frame + 12, "\x86\xdd", 2);
	memcpy(frame + 14, p->bytes, p->n);
	assert_int_equal(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof(attr)), 0);
	return (int)attr.test.retval;
}

/* Makes a namespace with a device other than loopback; returns its number. */
static unsigned int new_device(int *ret_fd)
{
	struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "out" };

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	*ret_fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	assert_true(*ret_fd >= 0);
	assert_int_equal(ioctl(*ret_fd, TUNSETIFF, &r), 0);
	return if_nametoindex("out");
}

#define TCP IPPROTO_TCP
#define UDP IPPROTO_UDP
enum {
	SYN = 2,
	ACK = 16,
	LO = 1,
};

static const struct given some = { .v = { "github.com:443", "[::1]:5432", "10.1.0.0/16:22" },
				   .server = "127.0.0.53:53" };
#define HOST4 "93.184.215.2"
#define HOST6 "2606:2800:220:1::2"
#define FAR4  "93.184.216.34"
#define FAR6  "2606:2800:220:1::10"

TEST(test_packets_that_come)
{
	_cleanup_close_ int map = new_map(&some), fd = load(&dial_programs[1], map);
	const struct {
		struct packet p;
		int want;
	} tries[] = {
		{ packet(&v4, FAR4, HOST4, TCP, 443, 40000, SYN | ACK), 1 },
		{ packet(&v4, FAR4, HOST4, TCP, 443, 40000, ACK), 1 },
		{ packet(&v4, FAR4, HOST4, TCP, 443, 40000, 4), 1 },
		{ packet(&v4, FAR4, HOST4, TCP, 443, 40000, SYN), 0 },
		{ packet(&v4, FAR4, HOST4, TCP, 443, 40000, SYN | 0xc0), 0 },
		{ packet(&v4, "127.0.0.53", HOST4, UDP, 53, 40000, 0), 1 },
		{ packet(&v4, "127.0.0.54", HOST4, UDP, 53, 40000, 0), 0 },
		{ packet(&v4, FAR4, HOST4, UDP, 443, 40000, 0), 0 },
		{ packet(&v4, FAR4, HOST4, IPPROTO_SCTP, 443, 40000, 0), 0 },
		{ packet(&v6, FAR6, HOST6, TCP, 443, 40000, SYN | ACK), 1 },
		{ packet(&v6, FAR6, HOST6, TCP, 443, 40000, SYN), 0 },
		{ packet(&v6, FAR6, HOST6, UDP, 53, 40000, 0), 0 },
		{ { .bytes = { 0x50 }, .n = 60 }, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++)
		if (judge(fd, &tries[i].p, LO) != tries[i].want)
			fail_msg("packet %zu", i);
}

/* The error for a rejected program contains the verifier's message. */
TEST(test_a_wrong_program)
{
	static const struct bpf_insn code[] = { { .code = BPF_JMP | BPF_EXIT } };
	const struct bpf_program p = { "wrong", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS,
				       code, 1 };
	char words[BPF_WORDS_MAX];

	assert_int_equal(bpf_load(&p, words), -EACCES);
	assert_string_equal(words, "R0 !read_ok");
}

/* ---- sockets of a process in the group ---- */

static char name[32];

static void new_name(void)
{
	static unsigned int count;

	(void)snprintf(name, sizeof(name), "unitguard%dx%u", getpid(), count++);
}

static int make(const struct given *given, struct dial_guard *ret)
{
	struct spec_list allow = { .v = (const char **)given->v };
	struct target server = { 0 };
	struct dial_rules rules = { .allow = &allow, .proxy = given->proxy, .servers = &server };
	struct err e = ERR_INIT;
	int r;

	while (given->v[allow.n])
		allow.n++;
	if (given->server) {
		assert_int_equal(target_parse(given->server, strlen(given->server), &server, &e),
				 0);
		rules.n_servers = 1;
	}
	e = (struct err)ERR_INIT;
	r = dial_guard_make(name, &rules, ret, &e);
	if (r == 0 && ret->group < 0)
		print_message("# not here: %s\n", ret->why);
	return r;
}

static int listen_at(struct sockaddr_in *ret)
{
	socklen_t n = sizeof(*ret);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)ret, n), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &n), 0);
	return fd;
}

/* The result of a connect() to the address, by a process in the group (-1: in no group). */
static int connects(int group, const struct sockaddr_in *to)
{
	struct proc p = PROC_INIT;
	siginfo_t info = { 0 };
	int r = group >= 0 ? proc_fork_into(group, &p) : proc_fork(&p);

	if (r == 1) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		_exit(connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 ? errno : 0);
	}
	assert_int_equal(r, 0);
	assert_int_equal(proc_wait(&p, clock_mono() + 10 * NSEC_PER_SEC, &info), 0);
	proc_done(&p);
	return info.si_status;
}

TEST(test_a_guarded_process)
{
	_cleanup_dial_guard_ struct dial_guard g = DIAL_GUARD_INIT;
	struct sockaddr_in to;
	_cleanup_close_ int listener = listen_at(&to);
	char text[64];
	struct rule rule;
	struct err e = ERR_INIT;

	assert_return_code(listener, 0);
	new_name();
	assert_int_equal(make(&some, &g), 0);
	assert_true(g.group >= 0);
	assert_int_equal(connects(-1, &to), 0);
	assert_int_equal(connects(g.group, &to), EPERM);
	(void)snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(to.sin_port));
	assert_int_equal(rule_parse(text, strlen(text), &rule, &e), 0);
	assert_int_equal(dial_guard_allow(name, &rule, &e), 1);
	assert_int_equal(connects(g.group, &to), 0);
	assert_int_equal(cgroup_remove(name, &e), 0);
	assert_int_equal(cgroup_keeper_open(name), -ENOENT);
	assert_int_equal(dial_guard_allow(name, &rule, &e), 0);
}

TEST(test_what_is_seen)
{
	_cleanup_dial_guard_ struct dial_guard g = DIAL_GUARD_INIT, none = DIAL_GUARD_INIT;
	struct proc p = PROC_INIT;
	struct err e = ERR_INIT;
	struct receipt r;
	int k;

	new_name();
	assert_int_equal(make(&some, &g), 0);
	k = proc_fork_into(g.group, &p);
	if (k == 1)
		for (;;)
			(void)pause();
	assert_int_equal(k, 0);
	receipt_init(&r, 0);
	dial_guard_verify(&g, p.pid, &r);
	assert_true(r.row[LAYER_DIAL_GUARD].enforced);
	dial_guard_verify(&g, getpid(), &r);
	assert_false(r.row[LAYER_DIAL_GUARD].enforced);
	assert_string_equal(r.row[LAYER_DIAL_GUARD].seen,
			    "the keeper's group contains other processes");
	g.ids[3]++;
	dial_guard_verify(&g, p.pid, &r);
	assert_string_equal(r.row[LAYER_DIAL_GUARD].seen, "program hutch_connect4 is not attached");
	(void)snprintf(none.why, sizeof(none.why), "no reason");
	dial_guard_verify(&none, p.pid, &r);
	assert_false(r.row[LAYER_DIAL_GUARD].enforced);
	assert_string_equal(r.row[LAYER_DIAL_GUARD].seen, "no reason");
	assert_true(r.row[LAYER_DIAL_GUARD].advice[0]);
	/* Removing the group kills the process, as for a keeper whose warden was killed. */
	assert_int_equal(cgroup_keeper_remove(name, &e), 0);
	assert_int_equal(proc_wait(&p, clock_mono() + 10 * NSEC_PER_SEC, &(siginfo_t){ 0 }), 0);
	proc_done(&p);
}

static int make_and_remove(void)
{
	_cleanup_dial_guard_ struct dial_guard g = DIAL_GUARD_INIT;
	struct err e = ERR_INIT;
	int r = make(&some, &g);

	fail_off();
	dial_guard_close(&g);
	(void)cgroup_keeper_remove(name, &e);
	return r;
}

TEST(test_each_call_fails)
{
	new_name();
	FAIL_SWEEP(make_and_remove());
	assert_int_equal(cgroup_keeper_open(name), -ENOENT);
}

/* Making a guard must not slow down the start of a sandbox. */
TEST(test_it_is_made_in_no_time)
{
	uint64_t best = UINT64_MAX;

	new_name();
	for (unsigned int i = 0; i < 20; i++) {
		_cleanup_dial_guard_ struct dial_guard g = DIAL_GUARD_INIT;
		uint64_t begin = clock_mono();
		struct err e = ERR_INIT;

		assert_int_equal(make(&some, &g), 0);
		best = MIN(best, clock_mono() - begin);
		assert_int_equal(cgroup_keeper_remove(name, &e), 0);
	}
	print_message("# made in %llu us\n", (unsigned long long)(best / 1000));
	assert_true(best < START_MS * NSEC_PER_MSEC);
}

/* Runs last, because it leaves its network namespace. */
TEST(test_packets_that_leave)
{
	_cleanup_close_ int map = new_map(&some), fd = load(&dial_programs[0], map), tun = -EBADF;
	unsigned int out = new_device(&tun);
	const struct {
		struct packet p;
		unsigned int device;
		int want;
	} tries[] = {
		{ packet(&v4, HOST4, FAR4, TCP, 40000, 443, SYN), out, 1 },
		{ packet(&v4, HOST4, FAR4, TCP, 40000, 443, SYN), LO, 0 },
		{ packet(&v4, HOST4, FAR4, TCP, 40000, 444, SYN), out, 0 },
		{ packet(&v4, HOST4, FAR4, TCP, 443, 40000, ACK), out, 0 },
		{ packet(&v4, HOST4, FAR4, UDP, 40000, 443, 0), out, 0 },
		{ packet(&v4, HOST4, FAR4, IPPROTO_ICMP, 40000, 443, 0), out, 0 },
		{ packet(&v4, HOST4, FAR4, IPPROTO_SCTP, 40000, 443, 0), out, 0 },
		{ packet(&v4, HOST4, "127.0.0.1", TCP, 40000, 443, SYN), LO, 0 },
		{ packet(&v4, HOST4, "169.254.169.254", TCP, 40000, 443, SYN), out, 0 },
		{ packet(&v4, HOST4, "10.1.2.3", TCP, 40000, 443, SYN), out, 0 },
		{ packet(&v4, HOST4, "10.1.2.3", TCP, 40000, 22, SYN), out, 1 },
		{ packet(&v4, HOST4, "10.1.2.3", TCP, 40000, 22, SYN), LO, 1 },
		{ packet(&v4, HOST4, "127.0.0.53", UDP, 40000, 53, 0), LO, 1 },
		{ packet(&v4, HOST4, "127.0.0.53", UDP, 40000, 54, 0), LO, 0 },
		{ packet(&v4, HOST4, "127.0.0.53", TCP, 40000, 53, SYN), LO, 1 },
		{ packet(&v6, HOST6, FAR6, TCP, 40000, 443, SYN), out, 1 },
		{ packet(&v6, HOST6, FAR6, TCP, 40000, 443, SYN), LO, 0 },
		{ packet(&v6, HOST6, FAR6, UDP, 40000, 443, 0), out, 0 },
		{ packet(&v6, HOST6, FAR6, IPPROTO_ROUTING, 40000, 443, SYN), out, 0 },
		{ packet(&v6, HOST6, "::1", TCP, 40000, 443, SYN), LO, 0 },
		{ packet(&v6, HOST6, "::1", TCP, 40000, 5432, SYN), LO, 1 },
		{ packet(&v6, HOST6, "64:ff9b::a01:203", TCP, 40000, 443, SYN), out, 0 },
		{ packet(&v6, HOST6, "fe80::1", TCP, 40000, 443, SYN), out, 0 },
		/* Protocol and port both 0. */
		{ packet(&v6, HOST6, FAR6, IPPROTO_HOPOPTS, 0x1100, 0, SYN), out, 0 },
		{ packet(&v6, HOST6, "fd00::1", IPPROTO_HOPOPTS, 0x1100, 0, SYN), out, 0 },
		{ packet(&v4, HOST4, "169.254.169.254", 0, 1, 0, 0), out, 0 },
		{ { .bytes = { 0x45 }, .n = 20 }, out, 0 },
		{ { .bytes = { 0x60 }, .n = 40 }, out, 0 },
		{ { .bytes = { 0x50 }, .n = 60 }, out, 0 },
	};
	struct packet odd = tries[0].p;

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++)
		if (judge(fd, &tries[i].p, tries[i].device) != tries[i].want)
			fail_msg("packet %zu", i);
	odd.bytes[0] = 0x46; /* IP options, which may contain a source route */
	assert_int_equal(judge(fd, &odd, out), 0);
	odd.bytes[0] = 0x45;
	odd.bytes[7] = 8; /* a fragment has no port at this place */
	assert_int_equal(judge(fd, &odd, out), 0);
	odd.bytes[6] = 0x40;
	odd.bytes[7] = 0; /* don't-fragment, as for all TCP */
	assert_int_equal(judge(fd, &odd, out), 1);
}

int main(void)
{
	return unit_run_as_root("only root may load BPF programs", NULL, NULL);
}
