#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compiling, explaining, and where agents and presets are found."""
import hashlib
import json
import shutil
import subprocess
import unittest

from support import AGENT, NOWHERE, ROOT, Case, environment, hutch, hutch_path

FULL = """\
agent:
  name: whole
  type: debugger
  summary: Has something of everything
isolation:
  level: gvisor
  require: [seccomp, landlock]
resources:
  cpus: 1.5
  memory: 2GiB
  pids: 99
egress:
  presets: [pypi, github]
  domains: [example.com, "example.org:8443", .example.net]
  deny: [ads.example.com]
  ports: [443, 80]
  budgets:
    bytes_out: 1MiB
    names: 7
capabilities:
  presets: [git]
  packages: [curl, jq]
  install_scripts: ["true", "echo done"]
filesystem:
  workspace: /work
  write: [/work, /tmp]
secrets:
  TOKEN: {hosts: [example.com, pypi.org]}
  OTHER: {hosts: [api.github.com]}
env:
  B: "2"
  A: "1"
prompt:
  role: You test.
  presets: [test-first, plan-first]
"""

# The same policy with mappings and sets in another order and other quotes.
TURNED = """\
# A comment
prompt: {presets: [test-first, plan-first], role: "You test."}
env: {A: 1, B: 2}
secrets:
  OTHER:
    hosts:
      - API.github.com
  TOKEN:
    hosts:
      - pypi.org
      - example.com
filesystem:
  write: [/tmp/, //work]
  workspace: /work
capabilities:
  install_scripts:
    - 'true'
    - echo done
  packages: [jq, curl, jq]
  presets: [git]
egress:
  budgets: {names: 7, bytes_out: 1024KiB}
  deny: [ADS.example.com]
  domains:
    - .example.net
    - example.org:8443
    - Example.COM
    - example.com
  presets: [github, pypi]
  ports: [80, 443]
resources:
  pids: 99
  memory: 2048MiB
  cpus: 1.500
isolation:
  require: [landlock, seccomp]
  level: gvisor
agent:
  summary: Another summary is not another policy
  type: debugger
  name: whole
"""


class Compile(Case):
    def compile(self, file, *args, **more):
        r = hutch("config", "compile", file, *args, **more)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        return r.stdout

    def setUp(self):
        super().setUp()
        self.file = self.write("whole.yaml", FULL)
        self.text = self.compile(self.file)

    def test_digest(self):
        digest = hashlib.sha256(self.text).hexdigest()
        self.assertEqual(self.compile(self.file, "--digest"), digest.encode() + b"\n")
        self.assertEqual(self.compile(self.file, "-d"), digest.encode() + b"\n")
        r = hutch("config", "compile", self.file)
        self.assertIn(f"sha256 {digest}\n", r.stderr.decode())

    def test_sha256sum(self):
        command = '"$0" config compile "$1" 2>/dev/null | sha256sum'
        out = subprocess.run(
            ["sh", "-c", command, hutch_path(), self.file],
            env=environment(),
            stdout=subprocess.PIPE,
            check=True,
        ).stdout.decode()
        self.assertEqual(out.split()[0], self.compile(self.file, "-d").decode().strip())

    def test_is_canonical_json(self):
        policy = json.loads(self.text)
        self.assertEqual(policy["schema"], "hutch.policy/1")
        self.assertTrue(self.text.endswith(b"}\n"))

        def keys_sorted(pairs):
            keys = [k for k, _ in pairs]
            self.assertEqual(keys, sorted(keys))
            return dict(pairs)

        json.loads(self.text, object_pairs_hook=keys_sorted)

    def test_has_what_was_written(self):
        policy = json.loads(self.text)
        self.assertEqual(policy["agent"], {"name": "whole", "type": "debugger"})
        self.assertEqual(policy["isolation"], {"level": "gvisor", "require": ["landlock", "seccomp"]})
        self.assertEqual(policy["resources"]["cpus_thousandths"], 1500)
        self.assertEqual(policy["resources"]["memory_bytes"], 2 << 30)
        self.assertEqual(policy["env"]["A"], "1")
        self.assertEqual(policy["secrets"]["TOKEN"], ["example.com", "pypi.org"])
        self.assertEqual(policy["capabilities"]["install_scripts"][-2:], ["true", "echo done"])
        allow = {r["host"]: r["ports"] for r in policy["egress"]["allow"]}
        self.assertEqual(allow["example.com"], [80, 443])
        self.assertEqual(allow["example.org"], [8443])
        self.assertEqual(allow["github.com"], [22, 443])
        self.assertIn({"host": "ads.example.com", "ports": []}, policy["egress"]["deny"])
        self.assertTrue(policy["prompt"].startswith("You test."))

    def test_directory_does_not_matter(self):
        self.assertEqual(self.text, self.compile("whole.yaml", cwd=self.dir))
        self.assertEqual(self.text, self.compile("./whole.yaml", cwd=self.dir))
        self.assertEqual(self.text, self.compile(self.file, cwd="/"))

    def test_place_of_the_file_does_not_matter(self):
        other = self.write("else/where/renamed.yaml", FULL)
        self.assertEqual(self.text, self.compile(other))
        link = self.dir / "link.yaml"
        link.symlink_to(other)
        self.assertEqual(self.text, self.compile(str(link)))

    def test_locale_does_not_matter(self):
        for locale in ("C", "C.UTF-8", "POSIX", "tr_TR.UTF-8", "de_DE.ISO-8859-1", "nonsense"):
            env = environment(LC_ALL=locale, LANG=locale, LC_NUMERIC=locale)
            self.assertEqual(self.text, self.compile(self.file, env=env), locale)

    def test_environment_does_not_matter(self):
        env = environment(HOME="/", TZ="Asia/Tokyo", COLUMNS="20", TERM="xterm", NO_COLOR="1")
        self.assertEqual(self.text, self.compile(self.file, env=env))
        self.assertEqual(self.text, self.compile(self.file, env=dict(reversed(env.items()))))
        self.assertEqual(self.text, self.compile(self.file, env={}))
        home = environment(HOME=str(self.dir), HUTCH_CONFIG_PATH=None)
        self.assertEqual(self.text, self.compile(self.file, env=home))

    def test_order_of_keys_does_not_matter(self):
        self.assertEqual(self.text, self.compile(self.write("turned.yaml", TURNED)))

    def test_line_ends_do_not_matter(self):
        crlf = self.write("crlf.yaml", FULL.replace("\n", "\r\n"))
        self.assertEqual(self.text, self.compile(crlf))

    def test_ten_times(self):
        self.assertEqual({self.compile(self.file) for _ in range(10)}, {self.text})

    def test_meaning_matters(self):
        digests = {self.compile(self.file, "-d")}
        changes = (
            ("memory: 2GiB", "memory: 3GiB"),
            ("cpus: 1.5", "cpus: 1.501"),
            ("ports: [443, 80]", "ports: [443]"),
            ("8443", "8444"),
            (".example.net", "example.net"),
            ("deny: [ads.example.com]", "deny: [.ads.example.com]"),
            ('["true", "echo done"]', '["echo done", "true"]'),
            ("[test-first, plan-first]", "[plan-first, test-first]"),
            ("You test.", "You  test."),
            ('A: "1"', 'A: "01"'),
            ("[example.com, pypi.org]", "[example.com]"),
            ("landlock", "kvm"),
            ("/tmp", "/var/tmp"),
            ("name: whole", "name: hole"),
        )
        for n, (old, new) in enumerate(changes):
            self.assertIn(old, FULL)
            digests.add(self.compile(self.write(f"{n}.yaml", FULL.replace(old, new)), "-d"))
        self.assertEqual(len(digests), len(changes) + 1)

    def test_by_name_and_by_file(self):
        for file in sorted((ROOT / "agents").glob("*.yaml")):
            self.assertEqual(self.compile(file.stem), self.compile(str(file)))


class Explain(Case):
    TEXT = (
        AGENT
        + "egress:\n"
        + "  presets: [pypi]\n"
        + "  domains: [example.com, 'ssh.example.com:22', .example.org]\n"
        + "  deny: [bad.example.org, 'half.example.org:443']\n"
        + "  ports: [443, 8443]\n"
    )

    def explain(self, target, code, file=None, title=None):
        file = file or self.write("mine.yaml", self.TEXT)
        r = hutch("config", "explain", file, target)
        out = r.stdout.decode()
        self.assertEqual(r.returncode, code, out + r.stderr.decode())
        self.assertTrue(out.startswith("denied " if code else "allowed "), out)
        self.assertIn((title or target).lower(), out.splitlines()[0].lower())
        return out

    def test_allowed(self):
        out = self.explain("example.com:443", 0)
        self.assertIn("mine.yaml:6", out)
        self.assertIn("because the rule names none", out)
        self.explain("example.com:8443", 0)
        self.explain("EXAMPLE.com:443", 0)

    def test_allowed_with_port(self):
        out = self.explain("ssh.example.com:22", 0)
        self.assertIn("port 22", out)
        self.assertNotIn("names none", out)

    def test_allowed_below(self):
        for name in ("example.org", "a.example.org", "a.b.c.example.org"):
            self.assertIn(".example.org", self.explain(name + ":443", 0))
        self.explain("notexample.org:443", 1)
        self.explain("example.org.evil.example:443", 1)

    def test_requests(self):
        text = (
            AGENT
            + "egress:\n"
            + "  domains: [example.com, example.org]\n"
            + "  http:\n"
            + "    - {host: example.com, methods: [GET, HEAD], paths: [/repos/**]}\n"
            + "    - {host: example.com, paths: [/repos/x/**], deny: true}\n"
            + "secrets:\n"
            + "  TOKEN: {hosts: [example.com], header: X-Key}\n"
        )
        file = self.write("mine.yaml", text)
        out = self.explain("GET https://example.com/repos/a?b", 0, file, "GET example.com/repos/a")
        place = file.rsplit("/", 1)[-1]
        self.assertIn("allow    GET, HEAD /repos/**\n", out)
        self.assertIn(f"{place}:7\n", out)
        self.assertIn("secret   TOKEN, as header X-Key\n", out)
        self.assertIn(f"{place}:10\n", out)
        out = self.explain("POST example.com/repos/a", 1, file)
        self.assertRegex(out, r"\n  no rule  \S*mine.yaml:7 allows GET, HEAD /repos/\*\*\n$")
        out = self.explain("GET example.com/repos/x/%79", 1, file, "GET example.com/repos/x/y")
        self.assertIn("deny     any method /repos/x/**\n", out)
        self.assertIn("names none", self.explain("PUT example.org/", 0, file))
        self.assertIn("no rule of this agent", self.explain("GET nowhere.example/", 1, file))
        r = hutch("config", "explain", "--json", file, "GET example.com/repos/a")
        told = json.loads(r.stdout)
        self.assertEqual(told["rule"]["line"], 7)
        self.assertEqual(told["secrets"][0]["name"], "TOKEN")
        self.assertTrue(told["connect"]["allowed"])

    def test_allowed_by_preset(self):
        out = self.explain("pypi.org:443", 0)
        self.assertIn("preset   pypi", out)
        self.assertIn("presets/egress/pypi.yaml:", out)
        self.assertIn("mine.yaml:5", out)

    def test_denied(self):
        out = self.explain("nowhere.example:443", 1)
        self.assertIn("no rule", out)
        self.assertIn("egress.domains", out)

    def test_denied_by_own_rule(self):
        out = self.explain("bad.example.org:8443", 1)
        self.assertIn("mine.yaml:7", out)
        self.assertIn("on every port", out)
        self.assertIn("which wins over", out)
        self.assertIn("mine.yaml:6", out)

    def test_denied_on_one_port(self):
        self.explain("half.example.org:443", 1)
        self.explain("half.example.org:8443", 0)

    def test_denied_by_floor(self):
        file = self.write(
            "floor.yaml", AGENT + "egress:\n  domains: ['metadata.google.internal:80']\n"
        )
        out = self.explain("metadata.google.internal:80", 1, file)
        self.assertIn("floor", out)
        self.assertIn("part of every policy", out)
        self.assertIn("which wins over", out)
        out = self.explain("a.dns.google:443", 1)
        self.assertIn("presets/egress/floor.yaml:", out)

    def test_denied_but_other_port(self):
        out = self.explain("ssh.example.com:443", 1)
        self.assertRegex(out, r"allowed on 22\b")
        out = self.explain("example.com:80", 1)
        self.assertRegex(out, r"allowed on 443, 8443\b")

    def test_denied_but_preset(self):
        out = self.explain("registry.npmjs.org:443", 1)
        self.assertIn("npm", out.split("preset", 1)[1])

    def test_address(self):
        file = self.write("addr.yaml", AGENT + "egress:\n  domains: [192.0.2.0/28]\n")
        self.explain("192.0.2.7:443", 0, file)
        self.explain("192.0.2.17:443", 1, file)
        self.explain("[2001:db8::1]:443", 1, file)

    def test_metadata_is_never_allowed(self):
        """A network that contains a metadata service: refused as a whole, or the service stays
        denied."""
        for net, address in (
            ("169.254.0.0/16", "169.254.169.254"),
            ("168.63.0.0/16", "168.63.129.16"),
            ("128.0.0.0/1", "169.254.169.254"),
            ("'[fd00::/8]'", "[fd00:ec2::254]"),
        ):
            file = self.write("net.yaml", AGENT + f"egress:\n  domains: [{net}]\n")
            r = hutch("config", "explain", file, address + ":443")
            self.assertEqual(r.returncode, 1, f"{net}: {r.stdout.decode()}")

    def test_shipped_agents(self):
        for file in (ROOT / "agents").glob("*.yaml"):
            for target in ("169.254.169.254:80", "metadata.google.internal:80", "dns.google:443"):
                self.explain(target, 1, str(file))


PRESET = "preset:\n  kind: {kind}\n  name: {name}\n  summary: A preset of the test\n{rest}"


class Store(Case):
    """Where agents and presets are found."""

    def preset(self, folder, kind, name, rest):
        text = PRESET.format(kind=kind, name=name, rest=rest)
        return self.write(f"{folder}/presets/{kind}/{name}.yaml", text)

    def agent(self, path, name, rest=""):
        return self.write(path, f"agent:\n  name: {name}\n  type: debugger\n{rest}")

    def setUp(self):
        super().setUp()
        self.one = str(self.dir / "one")
        self.preset("one", "egress", "inside", "domains: [wiki.example.com]\n")
        self.preset("one", "capabilities", "tools", "packages: [jq]\nenv: {TOOL: jq}\n")
        self.preset("one", "prompts", "words", "text: Speak softly.\n")
        self.agent(
            "one/agents/ours.yaml",
            "ours",
            "egress: {presets: [inside]}\n"
            "capabilities: {presets: [tools]}\n"
            "prompt: {presets: [words]}\n",
        )

    def check_found(self, *options, **more):
        policy = json.loads(self.run_ok("config", "compile", "ours", *options, **more))
        self.assertEqual(policy["egress"]["allow"], [{"host": "wiki.example.com", "ports": [443]}])
        self.assertEqual(policy["capabilities"]["packages"], ["jq"])
        self.assertEqual(policy["env"], {"TOOL": "jq"})
        self.assertEqual(policy["prompt"].strip(), "Speak softly.")
        self.assertIn("ours ", self.run_ok("agents", *options, **more))
        listed = self.run_ok("presets", *options, **more)
        for name in ("inside", "tools", "words"):
            self.assertIn(f"  {name} ", listed)
        self.assertIn("Speak softly.", self.run_ok("presets", "words", *options, **more))
        self.assertIn("inside", self.run_ok("config", "docs", *options, **more))
        self.run_ok("config", "explain", "ours", "wiki.example.com:443", *options, **more)

    def test_include(self):
        self.check_found("-I", self.one)
        self.check_found("-I" + self.one)
        self.check_found("--include", self.one)
        self.check_found(f"--include={self.one}")
        self.check_found("-I", NOWHERE, "-I", self.one)

    def test_config_path(self):
        self.check_found(env=environment(HUTCH_CONFIG_PATH=self.one))
        self.check_found(env=environment(HUTCH_CONFIG_PATH=f":{NOWHERE}::{self.one}:"))

    def test_home(self):
        shutil.copytree(self.one, self.dir / ".config" / "hutch")
        self.check_found(env=environment(HUTCH_CONFIG_PATH=None, HOME=str(self.dir)))

    def test_xdg(self):
        shutil.copytree(self.one, self.dir / "xdg" / "hutch")
        xdg = str(self.dir / "xdg")
        self.check_found(env=environment(HUTCH_CONFIG_PATH=None, XDG_CONFIG_HOME=xdg))

    def test_config_path_takes_the_place_of_home(self):
        shutil.copytree(self.one, self.dir / ".config" / "hutch")
        self.run_fails(1, "config", "compile", "ours", env=environment(HOME=str(self.dir)))

    def test_nothing_from_the_current_directory(self):
        self.run_fails(1, "config", "compile", "ours", cwd=self.one)

    def test_did_you_mean_knows_them(self):
        said = self.run_fails(1, "config", "compile", "-I", self.one, "uors")
        self.assertIn("did you mean 'ours'?", said)

    def test_shadowed_preset(self):
        path = self.preset("two", "egress", "github", "domains: [evil.example]\n")
        two = str(self.dir / "two")
        for args in (
            ["config", "compile", "devops"],
            ["config", "explain", "devops", "github.com:443"],
            ["presets", "github"],
            ["presets"],
        ):
            r = hutch(*args, "-I", two)
            said = r.stderr.decode()
            self.assertNotEqual(r.returncode, 0, args)
            self.assertIn("github", said)
            self.assertIn("built in", said)
            self.assertIn(path, said)
        # Agents that do not use it are unaffected.
        self.run_ok("config", "compile", "locked", "-I", two)

    def test_shadowed_floor(self):
        """The floor of every policy cannot be replaced: compilation fails."""
        path = self.preset("two", "egress", "floor", "deny: []\n")
        r = hutch("config", "compile", "locked", "-I", str(self.dir / "two"))
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stdout, b"")
        self.assertIn(path, r.stderr.decode())

    def test_shadowed_agent(self):
        path = self.agent("two/agents/devops.yaml", "devops")
        r = hutch("config", "compile", "devops", "-I", str(self.dir / "two"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("built in", r.stderr.decode())
        self.assertIn(path, r.stderr.decode())

    def test_twice_in_own_directories(self):
        path = self.agent("two/agents/ours.yaml", "ours")
        r = hutch("config", "compile", "ours", "-I", self.one, "-I", str(self.dir / "two"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn(path, r.stderr.decode())
        self.assertIn(f"{self.one}/agents/ours.yaml", r.stderr.decode())

    def test_directory_given_twice(self):
        """The same directory twice is one place."""
        self.run_ok("config", "compile", "ours", "-I", self.one, "-I", self.one)

    def test_extends_builtin(self):
        file = self.agent("mine.yaml", "mine", "extends: devops\nresources: {memory: 9GiB}\n")
        policy = json.loads(self.run_ok("config", "compile", file))
        base = json.loads(self.run_ok("config", "compile", "devops"))
        self.assertEqual(policy["resources"]["memory_bytes"], 9 << 30)
        policy["resources"]["memory_bytes"] = base["resources"]["memory_bytes"]
        policy["agent"] = base["agent"]
        self.assertEqual(policy, base)

    def test_extends_beside(self):
        self.agent("team/base.yaml", "base", "egress: {domains: [a.example.com]}\nenv: {A: '1'}\n")
        file = self.agent(
            "team/child.yaml",
            "child",
            "extends: base\negress: {domains: [b.example.com]}\nenv: {A: '2'}\n",
        )
        want = self.run_ok("config", "compile", file)
        policy = json.loads(want)
        hosts = [r["host"] for r in policy["egress"]["allow"]]
        self.assertEqual(hosts, ["a.example.com", "b.example.com"])
        self.assertEqual(policy["env"], {"A": "2"})
        self.assertEqual(policy["agent"]["name"], "child")
        team = self.dir / "team"
        self.assertEqual(want, self.run_ok("config", "compile", "child.yaml", cwd=team))
        self.assertEqual(want, self.run_ok("config", "compile", "./child.yaml", cwd=team))
        self.assertEqual(want, self.run_ok("config", "compile", "team/child.yaml", cwd=self.dir))
        r = hutch("config", "explain", file, "a.example.com:443")
        self.assertIn("team/base.yaml:4", r.stdout.decode())

    def test_extends_takes_type(self):
        self.agent("base.yaml", "base")
        file = self.write("child.yaml", "agent:\n  name: child\nextends: base\n")
        policy = json.loads(self.run_ok("config", "compile", file))
        self.assertEqual(policy["agent"], {"name": "child", "type": "debugger"})

    def test_child_cannot_undo_deny(self):
        self.agent("base.yaml", "base", "egress: {deny: [bad.example.com]}\n")
        file = self.agent(
            "child.yaml", "child", "extends: base\negress: {domains: [bad.example.com]}\n"
        )
        r = hutch("config", "explain", file, "bad.example.com:443")
        self.assertEqual(r.returncode, 1)

    def test_broken_agent_does_not_hide_the_others(self):
        self.write("one/agents/broken.yaml", "agnet: {}\n")
        r = hutch("agents", "-I", self.one)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"broken", r.stderr)
        self.assertIn(b"ours ", r.stdout)
        self.assertIn(b"devops ", r.stdout)

    def test_files_are_shown_as_they_are(self):
        shown = self.run_ok("agents", "devops")
        text = (ROOT / "agents" / "devops.yaml").read_text()
        self.assertEqual(shown, "# agents/devops.yaml\n" + text)

    def test_too_many_directories(self):
        words = [w for _ in range(40) for w in ("-I", NOWHERE)]
        r = hutch("agents", *words)
        self.assertIn(r.returncode, (2, 125))
        self.assertTrue(r.stderr)


if __name__ == "__main__":
    unittest.main()
