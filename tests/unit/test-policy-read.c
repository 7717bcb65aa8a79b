/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics of wrong keys and values, with positions; right ones are read. */
#include "test-policy.h"

#include "policy/yaml-tree.h"

struct refusal {
	const char *text, *want;
};

static void assert_refusals(const struct refusal *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);

		assert_refused(&store, v[i].text, v[i].want);
	}
}

TEST(heads_and_sections)
{
	static const struct refusal cases[] = {
		{ "agent: x", "t.yaml:1:8: error: agent: expected a mapping, found 'x'\n" },
		{ "[a, b]", "t.yaml:1:1: error: expected a mapping, found a list\n" },
		{ "word", "t.yaml:1:1: error: expected a mapping, found 'word'\n" },
		{ "---\n", "t.yaml:2:1: error: expected a mapping, found nothing\n" },
		{ "{}", "t.yaml:1:1: error: agent: missing; expected a mapping\n" },
		{ "agent: {name: a}",
		  "t.yaml:1:8: error: agent.type: missing; expected a name of 1 to 63 letters a-z, "
		  "digits and hyphens, no hyphen first\n" },
		{ "agent: {type: t}",
		  "t.yaml:1:8: error: agent.name: missing; expected a name of 1 to 63 letters a-z, "
		  "digits and hyphens, no hyphen first\n" },
		{ "agent: {name: A, type: t t}",
		  "t.yaml:1:15: error: agent.name: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found 'A'\n"
		  "t.yaml:1:24: error: agent.type: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found 't t'\n" },
		{ "agent: {name: [a], type: {a: b}}",
		  "t.yaml:1:15: error: agent.name: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found a list\n"
		  "t.yaml:1:26: error: agent.type: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found a mapping\n" },
		{ "agent:\n  name:\n  type: ''\n",
		  "t.yaml:2:8: error: agent.name: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found nothing\n"
		  "t.yaml:3:9: error: agent.type: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found empty text\n" },
		{ "agent: {name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg, "
		  "type: t}",
		  "t.yaml:1:15: error: agent.name: expected a name of 1 to 63 letters a-z, digits "
		  "and hyphens, no hyphen first, found "
		  "'aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd'...\n" },
		{ AGENT "nonsense: 1",
		  "t.yaml:2:1: error: nonsense: unknown key; expected one of: "
		  "agent, extends, isolation, resources, egress, "
		  "capabilities, filesystem, output, secrets, llm, env, prompt\n" },
		{ AGENT "egres: {}",
		  "t.yaml:2:1: error: egres: unknown key; expected one of: "
		  "agent, extends, isolation, resources, egress, capabilities, "
		  "filesystem, output, secrets, llm, env, prompt; did you mean 'egress'?\n" },
		{ AGENT "ports: [80]",
		  "t.yaml:2:1: error: ports: unknown key; expected one of: "
		  "agent, extends, isolation, resources, egress, "
		  "capabilities, filesystem, output, secrets, llm, env, prompt\n" },
		{ AGENT "egress: {domain: []}",
		  "t.yaml:2:10: error: egress.domain: unknown key; expected one of: presets, "
		  "domains, deny, ports, http, budgets; did you mean 'domains'?\n" },
		{ AGENT "resources: {budgets: {}}",
		  "t.yaml:2:13: error: resources.budgets: unknown key; expected one of: cpus, "
		  "memory, pids, disk, scratch, disk_bandwidth, disk_ops, output, timeout, ttl, "
		  "idle\n" },
		{ AGENT "egress: [x]",
		  "t.yaml:2:9: error: egress: expected a mapping, found a list\n" },
		{ AGENT "egress:",
		  "t.yaml:2:8: error: egress: expected a mapping, found nothing\n" },
		{ AGENT "env: {A: b}\nenv: {A: c}",
		  "t.yaml:3:1: error: env: written twice; the first stands at line 2\n" },
		{ AGENT "extends: [b]",
		  "t.yaml:2:10: error: extends: expected a name of 1 to 63 letters a-z, digits and "
		  "hyphens, no hyphen first, found a list\n" },
		{ AGENT "extends: B",
		  "t.yaml:2:10: error: extends: expected a name of 1 to 63 letters a-z, digits and "
		  "hyphens, no hyphen first, found 'B'\n" },
		{ AGENT "extends: nobody",
		  "t.yaml:2:10: error: extends: agent 'nobody' is not known\n" },
		{ AGENT "extends: plane", "t.yaml:2:10: error: extends: agent 'plane' is not "
					  "known; did you mean 'plain'?\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(texts)
{
	static const struct refusal cases[] = {
		{ "agent: {name: a, type: t, summary: [x]}",
		  "t.yaml:1:36: error: agent.summary: expected one line of text, found a list\n" },
		{ "agent:\n  name: a\n  type: t\n  summary: |\n    two\n    lines\n",
		  "t.yaml:4:12: error: agent.summary: expected one line of text, found several\n" },
		{ "agent: {name: a, type: t, summary: "
		  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		  "xxxxxxxxxxxxxxxxxxxxx}",
		  "t.yaml:1:36: error: agent.summary: text of 101 bytes, at most 100\n" },
		{ AGENT "prompt: {role: ''}",
		  "t.yaml:2:16: error: prompt.role: expected text, found empty text\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(words)
{
	static const struct refusal cases[] = {
		{ AGENT "isolation: {level: containr}",
		  "t.yaml:2:20: error: isolation.level: 'containr' is not one of: container, "
		  "gvisor, microvm; did you mean 'container'?\n" },
		{ AGENT "isolation: {level: ''}",
		  "t.yaml:2:20: error: isolation.level: expected one of: container, gvisor, "
		  "microvm, found empty text\n" },
		{ AGENT "isolation: {level: xyz}", "t.yaml:2:20: error: isolation.level: 'xyz' is "
						   "not one of: container, gvisor, microvm\n" },
		{ AGENT "isolation: {level: [gvisor]}",
		  "t.yaml:2:20: error: isolation.level: expected one of: container, gvisor, "
		  "microvm, found a list\n" },
		{ AGENT "isolation: {require: seccomp}",
		  "t.yaml:2:22: error: isolation.require: expected a list of: user-namespace, "
		  "pid-namespace, no-network-device, seccomp, no-capabilities, no-new-privileges, "
		  "read-only-root, landlock, apparmor, cgroup-cpu, cgroup-memory, cgroup-pids, "
		  "disk-quota, kvm, dial-guard, found 'seccomp'\n" },
		{ AGENT "isolation: {require: [seccomp, secomp, [x], '']}",
		  "t.yaml:2:32: error: isolation.require[1]: 'secomp' is not one of: "
		  "user-namespace, pid-namespace, no-network-device, seccomp, no-capabilities, "
		  "no-new-privileges, read-only-root, landlock, apparmor, cgroup-cpu, "
		  "cgroup-memory, cgroup-pids, disk-quota, kvm, dial-guard; did you mean "
		  "'seccomp'?\n"
		  "t.yaml:2:40: error: isolation.require[2]: expected one of: user-namespace, "
		  "pid-namespace, no-network-device, seccomp, no-capabilities, no-new-privileges, "
		  "read-only-root, landlock, apparmor, cgroup-cpu, cgroup-memory, cgroup-pids, "
		  "disk-quota, kvm, dial-guard, found a list\n"
		  "t.yaml:2:45: error: isolation.require[3]: expected one of: user-namespace, "
		  "pid-namespace, no-network-device, seccomp, no-capabilities, no-new-privileges, "
		  "read-only-root, landlock, apparmor, cgroup-cpu, cgroup-memory, cgroup-pids, "
		  "disk-quota, kvm, dial-guard, found empty text\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(numbers)
{
	static const struct refusal cases[] = {
		{ AGENT "resources: {cpus: 0}",
		  "t.yaml:2:19: error: resources.cpus: '0' is out of range: from 0.01 to 1024\n" },
		{ AGENT "resources: {cpus: '1025'}", "t.yaml:2:19: error: resources.cpus: '1025' "
						     "is out of range: from 0.01 to 1024\n" },
		{ AGENT "resources: {cpus: two}", "t.yaml:2:19: error: resources.cpus: expected a "
						  "number such as 2 or 0.5, found 'two'\n" },
		{ AGENT "resources: {cpus: -1}", "t.yaml:2:19: error: resources.cpus: expected a "
						 "number such as 2 or 0.5, found '-1'\n" },
		{ AGENT "resources: {cpus: 99999999999999999999}",
		  "t.yaml:2:19: error: resources.cpus: '99999999999999999999' is out of range: "
		  "from 0.01 to 1024\n" },
		{ AGENT "resources: {memory: 512MB}",
		  "t.yaml:2:21: error: resources.memory: expected a size such as 512MiB (KiB, MiB, "
		  "GiB, TiB), found '512MB'; did you mean '512MiB'?\n" },
		{ AGENT "resources: {memory: 512}",
		  "t.yaml:2:21: error: resources.memory: expected a size such as 512MiB (KiB, MiB, "
		  "GiB, TiB), found '512'; did you mean '512MiB'?\n" },
		{ AGENT "resources: {memory: lots}",
		  "t.yaml:2:21: error: resources.memory: expected a size such as 512MiB (KiB, MiB, "
		  "GiB, TiB), found 'lots'\n" },
		{ AGENT "resources: {memory: 31MiB}",
		  "t.yaml:2:21: error: resources.memory: '31MiB' is out of range: from 32MiB to "
		  "64TiB\n" },
		{ AGENT "resources: {memory: 65TiB}",
		  "t.yaml:2:21: error: resources.memory: '65TiB' is out of range: from 32MiB to "
		  "64TiB\n" },
		{ AGENT "resources: {memory: 99999999999TiB}",
		  "t.yaml:2:21: error: resources.memory: '99999999999TiB' is out of range: from "
		  "32MiB to 64TiB\n" },
		{ AGENT "resources: {pids: 3}",
		  "t.yaml:2:19: error: resources.pids: '3' is out of range: from 4 to 4194304\n" },
		{ AGENT "resources: {pids: 4194305}",
		  "t.yaml:2:19: error: resources.pids: '4194305' is out of range: from 4 to "
		  "4194304\n" },
		{ AGENT "resources: {pids: 1e3}",
		  "t.yaml:2:19: error: resources.pids: expected a whole number, found '1e3'\n" },
		{ AGENT "resources: {pids: 18446744073709551616}",
		  "t.yaml:2:19: error: resources.pids: '18446744073709551616' is out of range: "
		  "from 4 to 4194304\n" },
		{ AGENT "resources: {timeout: 10min}",
		  "t.yaml:2:22: error: resources.timeout: expected a duration such as 90s (ms, s, "
		  "m, h, d), found '10min'; did you mean '10m'?\n" },
		{ AGENT "resources: {timeout: 99ms}",
		  "t.yaml:2:22: error: resources.timeout: '99ms' is out of range: from 100ms to "
		  "365d\n" },
		{ AGENT "resources: {ttl: 366d}",
		  "t.yaml:2:18: error: resources.ttl: '366d' is out of range: from 1s to 365d\n" },
		{ AGENT "resources: {idle: {}}",
		  "t.yaml:2:19: error: resources.idle: expected a duration such as 90s (ms, s, m, "
		  "h, d), found a mapping\n" },
		{ AGENT "egress: {budgets: {names: 0, streams: 65537, bytes_out: 0B}}",
		  "t.yaml:2:27: error: egress.budgets.names: '0' is out of range: from 1 to "
		  "1000000\n"
		  "t.yaml:2:39: error: egress.budgets.streams: '65537' is out of range: from 1 to "
		  "65536\n"
		  "t.yaml:2:57: error: egress.budgets.bytes_out: '0B' is out of range: from 1B to "
		  "1024TiB\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(paths)
{
	static const struct refusal cases[] = {
		{ AGENT "filesystem: {workspace: work}",
		  "t.yaml:2:25: error: filesystem.workspace: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found 'work'\n" },
		{ AGENT "filesystem: {workspace: /a/../b}",
		  "t.yaml:2:25: error: filesystem.workspace: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found '/a/../b'\n" },
		{ AGENT "filesystem: {workspace: [/a]}",
		  "t.yaml:2:25: error: filesystem.workspace: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found a list\n" },
		{ AGENT "filesystem: {workspace: \"/a\\nb\"}",
		  "t.yaml:2:25: error: filesystem.workspace: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found '/a\\nb'\n" },
		{ AGENT "filesystem: {read: /a, write: [/a, b, '', [c]]}",
		  "t.yaml:2:20: error: filesystem.read: expected a list of absolute paths, found "
		  "'/a'\n"
		  "t.yaml:2:36: error: filesystem.write[1]: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found 'b'\n"
		  "t.yaml:2:39: error: filesystem.write[2]: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found empty text\n"
		  "t.yaml:2:43: error: filesystem.write[3]: expected an absolute path of at most "
		  "1023 bytes, without '.' or '..', found a list\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(rules)
{
	static const struct refusal cases[] = {
		{ AGENT "egress: {domains: www.example.org}",
		  "t.yaml:2:19: error: egress.domains: expected a list of rules such as "
		  "github.com, .sentry.io or db.example.com:5432, found 'www.example.org'\n" },
		{ AGENT "egress: {domains: ['https://www.example.org/x', '*', '*.example.org', a "
			"b, '', [x]]}",
		  "t.yaml:2:20: error: egress.domains[0]: 'https://www.example.org/x' is not a "
		  "rule: a rule is a name, not a URL: did you mean 'www.example.org'?\n"
		  "t.yaml:2:49: error: egress.domains[1]: '*' is not a rule: there is no rule for "
		  "everything: name the hosts\n"
		  "t.yaml:2:54: error: egress.domains[2]: '*.example.org' is not a rule: '*' is "
		  "not used; a dot in front means the name and all below it: did you mean "
		  "'.example.org'?\n"
		  "t.yaml:2:71: error: egress.domains[3]: 'a b' is not a rule: byte 0x20 at 2: a "
		  "name has letters, digits, hyphens and dots\n"
		  "t.yaml:2:76: error: egress.domains[4]: expected a rule such as github.com, "
		  ".sentry.io or db.example.com:5432, found empty text\n"
		  "t.yaml:2:80: error: egress.domains[5]: expected a rule such as github.com, "
		  ".sentry.io or db.example.com:5432, found a list\n" },
		{ AGENT "egress: {domains: ['www.example.org:0', 'www.example.org:65536', '1.2.3', "
			"'[::1', www]}",
		  "t.yaml:2:20: error: egress.domains[0]: 'www.example.org:0' is not a rule: the "
		  "port is a number from 1 to 65535\n"
		  "t.yaml:2:41: error: egress.domains[1]: 'www.example.org:65536' is not a rule: "
		  "the port is a number from 1 to 65535\n"
		  "t.yaml:2:66: error: egress.domains[2]: '1.2.3' is not a rule: '1.2.3' is not an "
		  "IPv4 address in its usual spelling\n"
		  "t.yaml:2:75: error: egress.domains[3]: '[::1' is not a rule: '[' without ']'\n"
		  "t.yaml:2:83: error: egress.domains[4]: 'www' is not a rule: the name has no "
		  "dot: a full name such as github.com is needed\n" },
		{ AGENT "egress: {domains: "
			"['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.example.org_']}",
		  "t.yaml:2:20: error: egress.domains[0]: "
		  "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is not a rule: '_' at byte 63: "
		  "host names have no underscore\n" },
		{ AGENT "egress: {deny: ['*']}",
		  "t.yaml:2:17: error: egress.deny[0]: '*' is not a rule: there is no rule for "
		  "everything: name the hosts\n" },
		{ AGENT "egress: {ports: 443}",
		  "t.yaml:2:17: error: egress.ports: expected a list of ports, found '443'\n" },
		{ AGENT "egress: {ports: []}", "t.yaml:2:17: error: egress.ports: expected a list "
					       "of ports, found an empty one\n" },
		{ AGENT "egress: {ports: [0, 65536, https, 80, 80, '080', [1]]}",
		  "t.yaml:2:18: error: egress.ports[0]: expected a port from 1 to 65535, found "
		  "'0'\n"
		  "t.yaml:2:21: error: egress.ports[1]: expected a port from 1 to 65535, found "
		  "'65536'\n"
		  "t.yaml:2:28: error: egress.ports[2]: expected a port from 1 to 65535, found "
		  "'https'\n"
		  "t.yaml:2:39: error: egress.ports[4]: port 80 is written twice\n"
		  "t.yaml:2:43: error: egress.ports[5]: expected a port from 1 to 65535, found "
		  "'080'\n"
		  "t.yaml:2:50: error: egress.ports[6]: expected a port from 1 to 65535, found a "
		  "list\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(presets_and_packages)
{
	static const struct refusal cases[] = {
		{ AGENT "egress: {presets: [Site, [x], '']}",
		  "t.yaml:2:20: error: egress.presets[0]: expected the name of a preset, found "
		  "'Site'\n"
		  "t.yaml:2:26: error: egress.presets[1]: expected the name of a preset, found a "
		  "list\n"
		  "t.yaml:2:31: error: egress.presets[2]: expected the name of a preset, found "
		  "empty text\n" },
		{ AGENT "egress: {presets: site}", "t.yaml:2:19: error: egress.presets: expected a "
						   "list of preset names, found 'site'\n" },
		{ AGENT "egress: {presets: [sit, nothing-like-it]}",
		  "t.yaml:2:20: error: egress.presets[0]: preset 'sit' is not known; did you mean "
		  "'site'?\n"
		  "t.yaml:2:25: error: egress.presets[1]: preset 'nothing-like-it' is not "
		  "known\n" },
		{ AGENT "egress: {presets: [site, mail, site]}",
		  "t.yaml:2:32: error: egress.presets[2]: 'site' is written twice\n" },
		{ AGENT "capabilities: {presets: [tool]}\nprompt: {presets: [bref]}",
		  "t.yaml:2:26: error: capabilities.presets[0]: preset 'tool' is not known; did "
		  "you mean 'tools'?\n"
		  "t.yaml:3:20: error: prompt.presets[0]: preset 'bref' is not known; did you mean "
		  "'brief'?\n" },
		{ AGENT "capabilities: {presets: [site]}",
		  "t.yaml:2:26: error: capabilities.presets[0]: preset 'site' is not known; a "
		  "preset of that name exists for egress\n" },
		{ AGENT "capabilities: {packages: [a, Git, 'x y', git, '+x', git-, '', [x], "
			"ppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp]}",
		  "t.yaml:2:27: error: capabilities.packages[0]: expected the name of a Debian "
		  "package, found 'a'\n"
		  "t.yaml:2:30: error: capabilities.packages[1]: expected the name of a Debian "
		  "package, found 'Git'\n"
		  "t.yaml:2:35: error: capabilities.packages[2]: expected the name of a Debian "
		  "package, found 'x y'\n"
		  "t.yaml:2:47: error: capabilities.packages[4]: expected the name of a Debian "
		  "package, found '+x'\n"
		  "t.yaml:2:53: error: capabilities.packages[5]: expected the name of a Debian "
		  "package, found 'git-'\n"
		  "t.yaml:2:59: error: capabilities.packages[6]: expected the name of a Debian "
		  "package, found empty text\n"
		  "t.yaml:2:63: error: capabilities.packages[7]: expected the name of a Debian "
		  "package, found a list\n"
		  "t.yaml:2:68: error: capabilities.packages[8]: expected the name of a Debian "
		  "package, found 'pppppppppppppppppppppppppppppppppppppppp'...\n" },
		{ AGENT "capabilities: {install_scripts: [[x], '']}",
		  "t.yaml:2:34: error: capabilities.install_scripts[0]: expected text, found a "
		  "list\n"
		  "t.yaml:2:39: error: capabilities.install_scripts[1]: expected text, found empty "
		  "text\n" },
		{ AGENT "capabilities: {install_scripts: echo}",
		  "t.yaml:2:33: error: capabilities.install_scripts: expected a list of texts, "
		  "found 'echo'\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

TEST(env_and_secrets)
{
	static const struct refusal cases[] = {
		{ AGENT "env: [A]",
		  "t.yaml:2:6: error: env: expected a mapping of NAME: text, found a list\n" },
		{ AGENT "env: {1A: x, A-B: x, '': x, B: , C: [x], ok: ''}",
		  "t.yaml:2:7: error: env.1A: a variable's name has 1 to 128 letters, digits and "
		  "'_', no digit first\n"
		  "t.yaml:2:14: error: env.A-B: a variable's name has 1 to 128 letters, digits and "
		  "'_', no digit first\n"
		  "t.yaml:2:22: error: env.: a variable's name has 1 to 128 letters, digits and "
		  "'_', no digit first\n"
		  "t.yaml:2:32: error: env.B: expected text (\"\" for none), found nothing\n"
		  "t.yaml:2:37: error: env.C: expected text (\"\" for none), found a list\n" },
		{ AGENT "env: "
			"{AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
			"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA: x}",
		  "t.yaml:2:7: error: "
		  "env."
		  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA: a variable's name has 1 to "
		  "128 letters, digits and '_', no digit first\n" },
		{ AGENT "secrets: [A]", "t.yaml:2:10: error: secrets: expected a mapping of NAME: "
					"{hosts: [...]}, found a list\n" },
		{ AGENT "secrets: {A: x, B: {}, C: {hosts: []}, D: {hosts: x.example.org}, 1E: "
			"{hosts: [a.example.org]}}",
		  "t.yaml:2:14: error: secrets.A: expected a mapping with the key 'hosts', found "
		  "'x'\n"
		  "t.yaml:2:20: error: secrets.B: a secret needs 'hosts': the names it may be sent "
		  "to\n"
		  "t.yaml:2:35: error: secrets.C: a secret needs hosts: the names it may be sent "
		  "to\n"
		  "t.yaml:2:51: error: secrets.D.hosts: expected a list of host names, found "
		  "'x.example.org'\n"
		  "t.yaml:2:67: error: secrets.1E: a variable's name has 1 to 128 letters, digits "
		  "and '_', no digit first\n" },
		{ AGENT
		  "secrets:\n  A: {value: geheim, hosts: [www.example.org]}\n  B: {host: [x]}\n",
		  "t.yaml:3:7: error: secrets.A.value: a policy never contains values: remove it, "
		  "and consider it leaked\n"
		  "t.yaml:3:30: warning: secrets.A.hosts[0]: bound to www.example.org, which the "
		  "egress rules do not allow\n"
		  "t.yaml:4:6: error: secrets.B: a secret needs 'hosts': the names it may be sent "
		  "to\n"
		  "t.yaml:4:7: error: secrets.B.host: unknown key; expected one of: hosts, paths, "
		  "form, header, format, user, parameter, optional; did you mean 'hosts'?\n" },
		{ AGENT "secrets: {A: {hosts: [localhost, .example.org, 'a.example.org:443', "
			"1.2.3.4, [x]]}}",
		  "t.yaml:2:23: error: secrets.A.hosts[0]: 'localhost' is not the name of a host: "
		  "the name has no dot: a full name such as github.com is needed\n"
		  "t.yaml:2:34: error: secrets.A.hosts[1]: '.example.org' is not one host: a "
		  "secret is bound to names, such as api.github.com\n"
		  "t.yaml:2:48: error: secrets.A.hosts[2]: 'a.example.org:443' is not one host: a "
		  "secret is bound to names, such as api.github.com\n"
		  "t.yaml:2:69: error: secrets.A.hosts[3]: '1.2.3.4' is not one host: a secret is "
		  "bound to names, such as api.github.com\n"
		  "t.yaml:2:78: error: secrets.A.hosts[4]: expected the name of a host, found a "
		  "list\n" },
	};

	assert_refusals(cases, ARRAY_SIZE(cases));
}

/* `head`, `n` times `one`, `tail`. */
static void assert_repeated(const char *head, size_t n, const char *one, const char *tail,
			    const char *want)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	(void)buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		(void)buf_puts(&b, one);
	assert_int_equal(buf_puts(&b, tail), 0);
	if (want)
		assert_refused(&store, b.data, want);
	else
		(void)policy_free(compiled(&store, b.data));
}

TEST(lengths_are_exact)
{
	static const char summary[] = "agent: {name: a, type: t, summary: ";

	assert_repeated(summary, 100, "x", "}", NULL);
	assert_repeated(summary, 101, "x", "}",
			"t.yaml:1:36: error: agent.summary: text of 101 bytes, at most 100\n");
	assert_repeated(AGENT "prompt: {role: ", 16384, "x", "}", NULL);
	assert_repeated(AGENT "prompt: {role: ", 16385, "x", "}",
			"t.yaml:2:16: error: prompt.role: text of 16385 bytes, at most 16384\n");
	assert_repeated(AGENT "capabilities: {install_scripts: [", 65536, "x", "]}", NULL);
	assert_repeated(AGENT "env: {A: ", 32768, "x", "}", NULL);
	assert_repeated(AGENT "env: {A: ", 32769, "x", "}",
			"t.yaml:2:10: error: env.A: text of 32769 bytes, at most 32768\n");
	assert_repeated(AGENT "env: {", 128, "A", ": x}", NULL);
	assert_repeated(AGENT "capabilities: {packages: [", 64, "p", "]}", NULL);
	assert_repeated(AGENT "filesystem: {workspace: /", 255, "w", "}", NULL);
	assert_repeated(AGENT "filesystem: {workspace: ", 127, "/wwwwwww", "}", NULL);
	assert_repeated(AGENT "filesystem: {workspace: ", 128, "/wwwwwww", "}",
			"t.yaml:2:25: error: filesystem.workspace: expected an absolute path "
			"of at most 1023 bytes, without '.' or '..', found "
			"'/wwwwwww/wwwwwww/wwwwwww/wwwwwww/wwwwwww'...\n");
	assert_repeated(AGENT, 1, "", "", NULL);
}

/* A very long key is truncated where it is shown, and the path continues after it. */
TEST(long_keys)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	(void)buf_puts(&b, AGENT "env:\n  ? ");
	for (size_t i = 0; i < YAML_SCALAR_MAX; i++)
		(void)buf_putc(&b, 'K');
	assert_int_equal(buf_puts(&b, "\n  : [x]\n  0: x\n"), 0);
	assert_int_equal(policy_compile_text(&store, "t.yaml", b.data, b.len, &d, &p, &e), -EINVAL);
	assert_int_equal(d.n, 2);
	assert_int_equal(strlen(d.list[0].key), 255);
	assert_string_equal(d.list[1].key, "env.0");
	assert_string_equal(e.msg, "t.yaml: 2 errors");
}

TEST(lists_have_a_limit)
{
	static const struct {
		const char *head, *item, *want;
	} cases[] = {
		{ "capabilities: {packages: [", "p",
		  "t.yaml:3:1: error: capabilities.packages[4096]: more than 4096 items\n" },
		{ "filesystem: {read: [", "/p",
		  "t.yaml:3:1: error: filesystem.read[4096]: more than 4096 items\n" },
		{ "capabilities: {install_scripts: [", "p",
		  "t.yaml:3:1: error: capabilities.install_scripts[4096]: more than 4096 items\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
		_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
		size_t len;

		(void)buf_printf(&b, AGENT "%s", cases[i].head);
		for (int k = 0; k < 4096; k++)
			(void)buf_printf(&b, "%s%d,", cases[i].item, k);
		len = b.len;
		assert_int_equal(buf_puts(&b, "]}"), 0);
		(void)policy_free(compiled(&store, b.data));
		b.len = len;
		assert_int_equal(buf_printf(&b, "\n%smore]}", cases[i].item), 0);
		assert_refused(&store, b.data, cases[i].want);
	}
}

TEST(other_lists_have_a_limit)
{
	static const struct {
		const char *head, *item, *tail, *key, *text;
	} cases[] = {
		{ "egress: {ports: [", "1", "]}", "egress.ports[64]", "more than 64 ports" },
		{ "secrets: {S: {hosts: [", "h.example.h", "]}}", "secrets.S.hosts[64]",
		  "more than 64 hosts" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
		_cleanup_diags_ struct diags d = { 0 };
		_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
		struct policy *p = NULL;
		struct err e = ERR_INIT;
		size_t said = 0;

		(void)buf_printf(&b, AGENT "%s", cases[i].head);
		for (int k = 0; k <= 64; k++)
			(void)buf_printf(&b, "%s%d,", cases[i].item, k);
		assert_int_equal(buf_puts(&b, cases[i].tail), 0);
		assert_int_equal(policy_compile_text(&store, "t.yaml", b.data, b.len, &d, &p, &e),
				 -EINVAL);
		assert_int_equal(d.errors, 1);
		for (size_t k = 0; k < d.n; k++)
			said += str_eq(d.list[k].key, cases[i].key) &&
				str_eq(d.list[k].text, cases[i].text);
		assert_int_equal(said, 1);
	}
}

TEST(presets_have_a_limit)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	struct policy *p = NULL;
	struct err e = ERR_INIT;
	size_t said = 0;

	(void)buf_puts(&b, AGENT "prompt: {presets: [");
	for (int k = 0; k <= 256; k++)
		(void)buf_printf(&b, "p%d,", k);
	assert_int_equal(buf_puts(&b, "]}"), 0);
	assert_int_equal(policy_compile_text(&store, "t.yaml", b.data, b.len, &d, &p, &e), -EINVAL);
	for (size_t k = 0; k < d.n; k++)
		said += str_eq(d.list[k].key, "prompt.presets[256]") &&
			str_eq(d.list[k].text, "more than 256 presets");
	assert_int_equal(said, 1);
}

TEST(rules_have_a_limit)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(YAML_TEXT_MAX);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	/* 50 ports, 2000 hosts: 100000; with the floor's rules that is too many. */
	(void)buf_puts(&b, AGENT "egress:\n  ports: [");
	for (int i = 1; i <= 50; i++)
		(void)buf_printf(&b, "%d,", i);
	(void)buf_puts(&b, "]\n  domains: [");
	for (int i = 0; i < 2000; i++)
		(void)buf_printf(&b, "h%d.example.org,", i);
	assert_int_equal(buf_puts(&b, "]\n"), 0);
	assert_int_equal(policy_compile_text(&store, "t.yaml", b.data, b.len, &d, &p, &e), -EINVAL);
	assert_diags(&d, "presets/egress/floor.yaml:2:8: error: deny[0]: more than 100000 rules in "
			 "one policy\n"); /* once is enough */
	assert_null(p);
}

/* All errors of a file are reported, up to a limit; the rest is counted. */
TEST(all_errors_are_reported)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(YAML_TEXT_MAX);
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	(void)buf_puts(&b, AGENT "egress:\n  domains:\n");
	for (int i = 0; i < DIAG_MAX + 50; i++)
		(void)buf_puts(&b, "    - '*'\n");
	assert_int_equal(policy_compile_text(&store, "t.yaml", b.data, b.len, &d, &p, &e), -EINVAL);
	assert_int_equal(d.n, DIAG_MAX);
	assert_int_equal(d.dropped, 50);
	assert_int_equal(d.errors, DIAG_MAX + 50);
	assert_string_equal(e.msg, "t.yaml: 250 errors");
}

TEST(values_arrive)
{
	static const char text[] =
		"agent: {name: full, type: test, summary: All of it}\n"
		"isolation: {level: gvisor, require: [seccomp, kvm, seccomp]}\n"
		"resources: {cpus: '1.5', memory: 2GiB, pids: 64, disk: 1GiB, output: 1MiB, "
		"timeout: 90s, ttl: 1h, idle: 5m, disk_bandwidth: 5MiB, disk_ops: 50}\n"
		"egress:\n"
		"  domains: [a.example.org, A.example.org, 'b.example.org:22']\n"
		"  ports: [443, 80]\n"
		"  budgets: {bytes_out: 1MiB, bytes_in: 2MiB, streams: 3, streams_per_minute: 4, "
		"names: 5}\n"
		"capabilities: {packages: [g++, python3.11, g++], install_scripts: [b, a, b]}\n"
		"filesystem: {workspace: //work/, read: [/, /usr//lib/, /usr/lib], write: [], "
		"execute: [/bin]}\n"
		"secrets: {TOKEN: {hosts: [A.example.org, a.example.org]}}\n"
		"env: {EMPTY: '', _A1: \"x\\ty\"}\n"
		"prompt: {role: Be.}\n";
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = compiled(&store, text);

	assert_string_equal(p->name, "full");
	assert_string_equal(p->type, "test");
	assert_string_equal(p->summary, "All of it");
	assert_int_equal(p->level, LEVEL_GVISOR);
	assert_int_equal(p->require, 1u << LAYER_SECCOMP | 1u << LAYER_KVM);
	assert_int_equal(p->resources.cpus, 1500);
	assert_int_equal(p->resources.memory, UINT64_C(2) << 30);
	assert_int_equal(p->resources.pids, 64);
	assert_int_equal(p->resources.disk, 1 << 30);
	assert_int_equal(p->resources.output, 1 << 20);
	assert_int_equal(p->resources.disk_bandwidth, 5 << 20);
	assert_int_equal(p->resources.disk_ops, 50);
	assert_int_equal(p->resources.timeout, 90000);
	assert_int_equal(p->resources.ttl, 3600000);
	assert_int_equal(p->resources.idle, 300000);
	assert_int_equal(p->egress.budgets.bytes_out, 1 << 20);
	assert_int_equal(p->egress.budgets.bytes_in, 2 << 20);
	assert_int_equal(p->egress.budgets.streams, 3);
	assert_int_equal(p->egress.budgets.streams_per_minute, 4);
	assert_int_equal(p->egress.budgets.names, 5);
	assert_true(may_dial(p, "a.example.org:443") && may_dial(p, "a.example.org:80"));
	assert_true(may_dial(p, "b.example.org:22") && !may_dial(p, "b.example.org:443"));
	assert_texts(&p->capabilities.packages, "g++ python3.11");
	assert_texts(&p->capabilities.scripts, "b a b");
	assert_string_equal(p->filesystem.workspace, "/work");
	assert_texts(&p->filesystem.read, "/ /usr/lib");
	assert_texts(&p->filesystem.write, "");
	assert_texts(&p->filesystem.execute, "/bin");
	assert_int_equal(p->secrets.n, 1);
	assert_string_equal(p->secrets.v[0].name, "TOKEN");
	assert_int_equal(p->secrets.v[0].hosts.n, 1);
	assert_string_equal(p->secrets.v[0].hosts.v[0].name.text, "a.example.org");
	assert_int_equal(p->env.n, 2);
	assert_string_equal(p->env.v[0].value, "");
	assert_string_equal(p->env.v[1].value, "x\ty");
	assert_string_equal(p->prompt.role, "Be.");
}
