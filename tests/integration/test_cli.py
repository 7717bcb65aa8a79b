# SPDX-License-Identifier: Apache-2.0
"""The command line: help, usage, exit codes, JSON, compile and explain."""

import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

from support import AGENT, ROOT, Case, environment, hutch, hutch_path

COMMANDS = {
    "run": ["true"],
    "create": [],
    "exec": ["x", "true"],
    "cp": ["x:/a", "b"],
    "watch": ["x:/a"],
    "commit": ["x", "y"],
    "ps": [],
    "shell": ["x"],
    "attach": ["x"],
    "logs": ["x"],
    "wait": ["x"],
    "signal": ["x", "TERM"],
    "debug": ["x"],
    "inspect": ["x"],
    "receipt": ["x"],
    "pause": ["x"],
    "suspend": ["x"],
    "resume": ["x"],
    "ttl": ["x", "5m"],
    "kill": ["x"],
    "rm": ["x"],
    "gc": [],
    "egress": None,
    "egress log": [],
    "egress explain": ["x", "github.com:443"],
    "egress allow": ["x", "github.com"],
    "egress deny": ["x", "github.com"],
    "egress suggest": [],
    "secret": None,
    "secret set": ["X"],
    "secret rotate": ["X"],
    "secret refresh": ["X"],
    "secret ls": [],
    "secret rm": ["X"],
    "llm": None,
    "llm usage": [],
    "llm spans": [],
    "key": None,
    "key create": [],
    "key ls": [],
    "key set": ["x"],
    "key revoke": ["x"],
    "audit": None,
    "audit show": [],
    "audit verify": [],
    "audit export": [],
    "audit checkpoint": [],
    "audit key": [],
    "config": None,
    "config validate": ["FILE"],
    "config compile": ["devops"],
    "config explain": ["devops", "github.com:443"],
    "config docs": [],
    "agents": [],
    "presets": [],
    "image": None,
    "image build": ["base"],
    "image import": ["x", "FILE"],
    "image ls": [],
    "image inspect": ["x"],
    "image rm": ["x"],
    "image kernel": [],
    "snapshot": None,
    "snapshot create": ["x"],
    "snapshot ls": [],
    "snapshot rm": ["x"],
    "fork": ["x"],
    "template": None,
    "template ls": [],
    "template share": ["NAME"],
    "template unshare": ["NAME"],
    "template rm": ["NAME"],
    "pool": None,
    "pool fill": [],
    "pool ls": [],
    "pool drain": [],
    "mcp": [],
    "doctor": [],
    "completion": ["bash"],
    "help": [],
    "version": [],
}
# Image commands need a store and a network, sandbox commands an engine: test_image.py,
# test_sandbox_run.py and others run them.
SANDBOX = ("run", "create", "exec", "shell", "attach", "logs", "wait", "signal", "cp", "commit", "watch", "ps", "inspect", "debug", "receipt", "pause", "suspend", "resume", "ttl",
           "kill", "rm", "gc", "fork", "mcp")
LEAVES = [c for c, args in COMMANDS.items() if args is not None and not c.startswith(("image ", "snapshot ", "template ", "pool ", "egress ", "audit ", "key ", "llm ", "secret ")) and c not in SANDBOX]
WITH_JSON = [c for c in LEAVES if c not in ("completion", "help")]
ORDINARY_USER = 65534


def method(prefix, name):
    return f"test_{prefix}_{re.sub('[^a-z0-9]+', '_', name.lower())}"


def arguments(command):
    """The words of a call of `command` that succeeds."""
    agent = str(ROOT / "agents" / "devops.yaml")
    return command.split() + [agent if a == "FILE" else a for a in COMMANDS[command]]


class Help(Case):
    def test_root(self):
        text = self.run_ok("--help")
        self.assertEqual(text, self.run_ok("-h"))
        self.assertEqual(text, self.run_ok("help"))
        for command in COMMANDS:
            if " " not in command:
                self.assertRegex(text, rf"(?m)^  {command} ")

    def test_exit_codes_are_documented(self):
        text = self.run_ok("--help")
        for code in ("0", "1", "2", "125"):
            self.assertRegex(text, rf"\b{code}\b")

    def test_every_command_is_known_here(self):
        """A new command of the program must be added to these tests."""
        found = set()
        for path in ("", "config", "image", "snapshot", "template", "pool", "egress", "key", "llm", "secret", "audit"):
            text = self.run_ok(*path.split(), "--help")
            listed = text.split("\nCommands:\n")[1].split("\n\n")[0]
            for line in listed.splitlines():
                found.add(f"{path} {line.split()[0]}".strip())
        self.assertEqual(found, set(COMMANDS))

    def test_lines_fit_a_terminal(self):
        for command in ["", *COMMANDS]:
            for line in self.run_ok(*command.split(), "--help").splitlines():
                self.assertLessEqual(len(line), 110, command)

    def test_version(self):
        text = self.run_ok("version")
        self.assertRegex(text, r"^hutch \d+\.\d+")
        self.assertEqual(text, self.run_ok("--version"))
        self.assertIn(json.loads(self.run_ok("version", "--json"))["version"], text)

    def check(self, command):
        words = command.split()
        text = self.run_ok(*words, "--help")
        self.assertIn(f"Usage: hutch {command}", text)
        self.assertEqual(text, self.run_ok(*words, "-h"))
        self.assertEqual(text, self.run_ok("help", *words))
        # --help wins over all other words.
        self.assertEqual(text, self.run_ok(*words, "--nonsense", "--help"))


class Usage(Case):
    def usage(self, *args):
        said = self.run_fails(2, *args)
        self.assertIn("--help", said)
        return said

    def test_nothing(self):
        self.assertIn("Usage: hutch", self.run_fails(2))

    def test_group_without_command(self):
        self.assertIn("Usage: hutch config", self.run_fails(2, "config"))

    def test_unknown_command(self):
        self.assertIn("did you mean 'config'?", self.usage("confg"))
        self.assertIn("did you mean 'validate'?", self.usage("config", "valdate"))
        self.assertIn("did you mean 'doctor'?", self.usage("docter"))
        self.assertNotIn("did you mean", self.usage("frobnicate"))

    def test_unknown_command_in_help(self):
        self.assertIn("did you mean 'config'?", self.usage("help", "confg"))
        self.assertIn("did you mean 'compile'?", self.usage("help", "config", "compil"))

    def test_unknown_option(self):
        self.assertIn("did you mean '--json'?", self.usage("doctor", "--jsno"))
        self.assertIn("did you mean '--digest'?", self.usage("config", "compile", "--diges", "x"))
        self.usage("config", "compile", "-x", "devops")

    def test_help_misspelt(self):
        self.assertIn("did you mean '--help'?", self.usage("--hlep"))

    def test_option_value(self):
        self.assertIn("takes no argument", self.usage("doctor", "--json=yes"))
        self.assertIn("needs an argument", self.usage("config", "docs", "--include"))
        self.assertIn("needs an argument", self.usage("config", "docs", "-I"))

    def test_number_of_arguments(self):
        self.assertIn("FILE", self.usage("config", "validate"))
        self.assertIn("AGENT", self.usage("config", "compile"))
        self.assertIn("one argument too many", self.usage("config", "compile", "devops", "locked"))
        self.assertIn("NAME:PORT", self.usage("config", "explain", "devops"))
        self.assertIn("one argument too many", self.usage("doctor", "now"))
        self.usage("completion")
        self.assertIn("bash", self.usage("completion", "zsh"))

    def test_target(self):
        for target in (
            "github.com",
            "github.com:0",
            "github.com:https",
            ".github.com:443",
            "10.0.0.0/8:443",
            "https://github.com:443",
            "127.1:443",
            "::1:443",
        ):
            self.usage("config", "explain", "devops", target)

    def test_options_end(self):
        file = self.write("-file.yaml", AGENT)
        self.assertIn("valid", self.run_ok("config", "validate", "--", "-file.yaml", cwd=self.dir))
        self.run_fails(2, "config", "validate", "-file.yaml", cwd=self.dir)
        self.assertTrue(os.path.exists(file))

    def test_options_anywhere(self):
        want = self.run_ok("config", "compile", "--digest", "devops")
        self.assertEqual(want, self.run_ok("config", "compile", "devops", "--digest"))
        self.assertEqual(want, self.run_ok("config", "compile", "devops", "-d"))


class PassedOn(Case):
    """run and exec: what is ours ends where the other command begins, and our failures are 125."""

    def setUp(self):
        super().setUp()
        self.env = environment(HUTCH_RUN_DIR=str(self.dir / "run"), HUTCH_STATE_DIR=str(self.dir / "state"))

    def fails(self, *args, code=125):
        return self.run_fails(code, *args, env=self.env)

    def test_wrong_usage(self):
        self.assertIn("expected [--] COMMAND", self.fails("run"))
        self.assertIn("expected [--] COMMAND", self.fails("run", "--"))
        self.assertIn("expected ID", self.fails("exec", "abc"))
        self.assertIn("did you mean '--memory'?", self.fails("run", "--memroy", "1GiB", "true"))
        self.assertIn("needs an argument", self.fails("run", "--memory"))

    def test_letters(self):
        for words in (["-it"], ["-ti"], ["-i", "-t"], ["-iteA=1"], ["-ite", "A=1"]):
            self.assertIn("--tty: standard input is not a terminal", self.fails("run", *words, "true"))
        self.assertIn("unknown option '-ix'", self.fails("run", "-ix", "true"))
        self.assertIn("--env '-t': expected NAME=VALUE", self.fails("run", "-ie", "-t", "true"))

    def test_values(self):
        self.assertIn("did you mean '64MiB'?", self.fails("run", "--memory", "64MB", "true"))
        self.assertIn("absolute path", self.fails("run", "-w", "here", "true"))
        self.assertIn("did you mean '10m'?", self.fails("exec", "--timeout", "10min", "abc", "true"))
        self.assertIn("'nosuch'", self.fails("run", "--agent", "nosuch", "true"))

    def test_options_of_the_other_command(self):
        """These options belong to the command: the error is a missing image or sandbox."""
        for words in (["true", "--json"], ["--", "--json"], ["true", "--help"], ["--memory", "64MiB", "true", "-h"],
                      ["x", "--", "--"], ["-e", "A=--help", "true"]):
            self.assertIn("no image", self.fails("run", *words))
        for words in (["abc", "true", "--help"], ["abc", "--", "--help"], ["-i", "abc", "ls", "-l"]):
            self.assertIn("no sandbox 'abc'", self.fails("exec", *words))

    def test_help_before_it(self):
        for words in (["--help"], ["-i", "--help", "true"], ["--memory", "1GiB", "-h"]):
            self.assertIn("Usage: hutch run", self.run_ok("run", *words, env=self.env))
        self.assertIn("Usage: hutch exec", self.run_ok("exec", "abc", "--help", env=self.env))

    def test_many_arguments(self):
        self.assertIn("no image", self.fails("run", "echo", *["x"] * 5000))

    def test_no_sandboxes(self):
        self.assertRegex(self.run_ok("ps", env=self.env), r"^ID +AGENT +IMAGE +STATE +AGE\n$")
        self.assertEqual(json.loads(self.run_ok("ps", "-a", "--json", env=self.env)), [])
        for command in ("debug", "inspect", "receipt", "pause", "resume", "kill", "rm"):
            self.assertIn("no sandbox 'abc'", self.fails(command, "abc", code=1))
        self.assertIn("no sandbox 'abc'", self.fails("ttl", "abc", "5m", code=1))


class Failures(Case):
    """Exit codes: 1 the answer is no, 125 hutch itself failed."""

    def test_unknown_names(self):
        self.assertIn("did you mean 'devops'?", self.run_fails(1, "config", "compile", "devop"))
        self.assertIn("did you mean 'devops'?", self.run_fails(1, "agents", "devop"))
        self.assertIn("did you mean 'github'?", self.run_fails(1, "presets", "githb"))
        self.run_fails(1, "config", "explain", "nosuchagent", "github.com:443")
        self.run_fails(1, "presets", "../../etc/passwd")
        self.run_fails(1, "config", "compile", "")

    def test_no_such_file(self):
        self.assertIn("No such file", self.run_fails(125, "config", "validate", str(self.dir / "x")))
        self.run_fails(125, "config", "compile", "./nothing.yaml")

    def test_directory(self):
        self.run_fails(125, "config", "validate", str(self.dir))

    def test_device(self):
        self.run_fails(125, "config", "validate", "/dev/zero")

    def test_large_file(self):
        path = self.write("large.yaml", b"#" * (3 * 1024 * 1024))
        self.assertIn("larger than", self.run_fails(125, "config", "validate", path))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_not_readable(self):
        path = self.write("closed.yaml", AGENT)
        os.chmod(path, 0o600)
        os.chmod(self.dir, 0o755)
        program = shutil.copy(hutch_path(), self.dir / "hutch")
        os.chmod(program, 0o755)
        said = self.run_fails(
            125, "config", "validate", path, program=program, user=ORDINARY_USER, extra_groups=[]
        )
        self.assertIn("Permission denied", said)

    def test_wrong_agent(self):
        path = self.write("a.yaml", AGENT + "resources:\n  memory: 1GB\n")
        for command in (["compile", path], ["explain", path, "github.com:443"]):
            r = hutch("config", *command)
            self.assertEqual(r.returncode, 1)
            self.assertEqual(r.stdout, b"")
            self.assertIn(b":5:11: error: resources.memory: ", r.stderr)

    def test_warnings_do_not_disturb_the_policy(self):
        path = self.write("a.yaml", AGENT + "egress:\n  domains: [.github.io]\n")
        r = hutch("config", "compile", path)
        self.assertEqual(r.returncode, 0)
        self.assertIn(b": warning: ", r.stderr)
        json.loads(r.stdout)

    def test_several_files(self):
        good = self.write("good.yaml", AGENT)
        bad = self.write("bad.yaml", "agnet: {}\n")
        r = hutch("config", "validate", good, bad, good)
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stdout.decode().count(f"{good}: valid"), 2)
        r = hutch("config", "validate", bad, str(self.dir / "nothing"), good, "--json")
        self.assertEqual(r.returncode, 125)
        self.assertFalse(json.loads(r.stdout)["valid"])

    def test_more_errors_than_are_shown(self):
        names = "".join(f"    - a_{i}.example.com\n" for i in range(300))
        path = self.write("a.yaml", AGENT + "egress:\n  domains:\n" + names)
        r = hutch("config", "validate", path)
        self.assertEqual(r.returncode, 1)
        lines = r.stdout.decode().splitlines()
        self.assertEqual(len(lines), 201)
        self.assertEqual(lines[-1], "... and 100 more")
        told = json.loads(hutch("config", "validate", path, "--json").stdout)
        self.assertEqual(len(told["diagnostics"]), 200)
        self.assertEqual(told["dropped"], 100)

    def used(self, text):
        """CPU time and memory that hutch needs to refuse a file: (seconds, bytes)."""
        path = self.write("a.yaml", AGENT + text)
        child = subprocess.Popen(
            [hutch_path(), "config", "validate", path],
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 1)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024

    def test_many_unknown_presets_take_little_memory(self):
        names = ", ".join(f"zz{i}" for i in range(20000))
        _, memory = self.used(f"egress:\n  presets: [{names}]\n")
        self.assertLess(memory, 400 << 20)

    def test_many_rules_on_many_ports_take_little_time(self):
        ports = ", ".join(map(str, range(1, 20001)))
        names = ", ".join(f"a{i}.example.com" for i in range(5000))
        seconds, _ = self.used(f"egress:\n  ports: [{ports}]\n  domains: [{names}]\n")
        self.assertLess(seconds, 10)

    def check_full(self, command):
        with open("/dev/full", "wb") as full:
            r = hutch(*arguments(command), stdout=full)
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"cannot write to standard output: No space left on device", r.stderr)

    def test_full_while_saying_no(self):
        path = self.write("a.yaml", "agnet: {}\n")
        with open("/dev/full", "wb") as full:
            for more in ([], ["--json"]):
                r = hutch("config", "validate", path, *more, stdout=full)
                self.assertEqual(r.returncode, 125)

    def test_closed_output(self):
        r = subprocess.run(
            ["sh", "-c", 'exec "$0" config compile devops >&-', hutch_path()],
            env=environment(),
            stderr=subprocess.PIPE,
            check=False,
        )
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"cannot write to standard output", r.stderr)


class Json(Case):
    def check(self, command):
        r = hutch(*arguments(command), "--json")
        self.assertIn(r.returncode, (0, 1) if command == "doctor" else (0,), r.stderr)
        json.loads(r.stdout)
        self.assertTrue(r.stdout.endswith(b"\n"))

    def test_commands_without_json_say_so(self):
        self.run_fails(2, "completion", "bash", "--json")
        self.run_fails(2, "help", "--json")

    def test_named_agent_or_preset(self):
        """--json prints JSON or is refused, and is never ignored."""
        for args in (["agents", "devops"], ["presets", "github"]):
            r = hutch(*args, "--json")
            if r.returncode != 2:
                self.assertEqual(r.returncode, 0)
                json.loads(r.stdout)

    def test_validate(self):
        path = self.write("a.yaml", AGENT + "resources:\n  memroy: 1GiB\n")
        r = hutch("config", "validate", path, "--json")
        self.assertEqual(r.returncode, 1)
        told = json.loads(r.stdout)
        self.assertIs(told["valid"], False)
        (d,) = told["diagnostics"]
        self.assertEqual((d["file"], d["line"], d["column"]), (path, 5, 3))
        self.assertEqual((d["level"], d["key"]), ("error", "resources.memroy"))
        self.assertEqual(d["hint"], "did you mean 'memory'?")
        good = self.write("b.yaml", AGENT)
        told = json.loads(self.run_ok("config", "validate", good, "--json"))
        self.assertEqual(told, {"valid": True, "diagnostics": [], "dropped": 0})

    def test_validate_text_cut_in_a_character(self):
        for n in range(36, 42):
            path = self.write("a.yaml", AGENT + "resources:\n  memory: " + "x" * n + "é" * 40 + "\n")
            r = hutch("config", "validate", path, "--json")
            self.assertEqual(r.returncode, 1, n)
            self.assertEqual(len(json.loads(r.stdout)["diagnostics"]), 1, n)

    def test_validate_long_key(self):
        for n in range(236, 260):
            path = self.write("a.yaml", AGENT + "resources:\n  " + "x" * n + "é" * 40 + ": 1\n")
            r = hutch("config", "validate", path, "--json")
            self.assertEqual(r.returncode, 1, n)
            self.assertEqual(len(json.loads(r.stdout)["diagnostics"]), 1, n)

    def test_validate_file_name_not_utf8(self):
        path = os.path.join(os.fsencode(self.dir), b"a\xff.yaml")
        with open(path, "wb") as f:
            f.write(b"agnet: {}\n")
        r = hutch("config", "validate", path, "--json")
        self.assertEqual(r.returncode, 1)
        self.assertTrue(json.loads(r.stdout)["diagnostics"])

    def test_compile(self):
        told = json.loads(self.run_ok("config", "compile", "devops", "--json"))
        text = self.run_ok("config", "compile", "devops")
        self.assertEqual(told["policy"], json.loads(text))
        self.assertEqual(told["sha256"], hashlib.sha256(text.encode()).hexdigest())

    def test_explain(self):
        told = json.loads(self.run_ok("config", "explain", "devops", "github.com:443", "--json"))
        self.assertIs(told["allowed"], True)
        self.assertEqual(told["allow"]["preset"], "github")
        self.assertIsNone(told["deny"])
        r = hutch("config", "explain", "devops", "nowhere.example:443", "--json")
        self.assertEqual(r.returncode, 1)
        told = json.loads(r.stdout)
        self.assertIs(told["allowed"], False)
        self.assertIsNone(told["allow"])

    def test_agents(self):
        agents = json.loads(self.run_ok("agents", "--json"))
        self.assertEqual(
            [a["name"] for a in agents], sorted(f.stem for f in (ROOT / "agents").glob("*.yaml"))
        )
        for a in agents:
            digest = self.run_ok("config", "compile", a["name"], "--digest").strip()
            self.assertEqual(a["sha256"], digest)

    def test_a_summary_is_its_agents_own(self):
        self.write("more/agents/heir.yaml", "agent:\n  name: heir\nextends: debugger\n")
        r = hutch("agents", "--json", env=environment(HUTCH_CONFIG_PATH=str(self.dir / "more")))
        self.assertEqual(r.returncode, 0, r.stderr)
        agents = {a["name"]: a for a in json.loads(r.stdout)}
        self.assertNotIn("summary", agents["heir"])
        self.assertEqual(agents["heir"]["type"], agents["debugger"]["type"])
        self.assertIn("summary", agents["debugger"])

    def test_presets(self):
        presets = json.loads(self.run_ok("presets", "--json"))
        for kind in ("egress", "capabilities", "prompts"):
            files = (ROOT / "presets" / kind).glob("*.yaml")
            self.assertEqual([p["name"] for p in presets[kind]], sorted(f.stem for f in files))
            for p in presets[kind]:
                self.assertTrue(p["summary"])

    def test_docs(self):
        told = self.run_ok("config", "docs", "--json")
        text = self.run_ok("config", "docs")
        for key in ("streams_per_minute", "install_scripts", "workspace", "untrusted-content"):
            self.assertIn(key, told)
            self.assertIn(key, text)


class Shipped(Case):
    """All built-in agents and presets are valid, without warnings."""

    def check(self, file):
        self.assertEqual(self.run_ok("config", "validate", str(file)), f"{file}: valid\n")


class Escaping(Case):
    """Text from outside is escaped before it reaches a terminal."""

    EVIL = "a\x1b[31m\x07\r\nb\u202e\x9b.yaml"

    def check_clean(self, r):
        for text in (r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")):
            for c in "\x1b\x07\r\u202e\x9b":
                self.assertNotIn(c, text)

    def test_name_of_a_valid_file(self):
        self.write(self.EVIL, AGENT)
        r = hutch("config", "validate", self.EVIL, cwd=self.dir)
        self.assertEqual(r.returncode, 0)
        self.check_clean(r)
        self.assertEqual(len(r.stdout.decode().splitlines()), 1)

    def test_name_of_a_wrong_file(self):
        self.write(self.EVIL, "agnet: {}\n")
        r = hutch("config", "validate", self.EVIL, cwd=self.dir)
        self.assertEqual(r.returncode, 1)
        self.check_clean(r)
        for line in r.stdout.decode().splitlines():
            self.assertTrue(line.startswith("a\\x1b[31m\\x07\\r\\nb\\u{202e}\\u{9b}.yaml:1:1: "))

    def test_name_of_no_file(self):
        for command in (["config", "validate"], ["config", "compile"]):
            r = hutch(*command, self.EVIL)
            self.assertEqual(r.returncode, 125)
            self.check_clean(r)

    def test_arguments(self):
        for args in (
            [self.EVIL],
            ["config", self.EVIL],
            ["help", self.EVIL],
            ["agents", self.EVIL],
            ["presets", self.EVIL],
            ["completion", self.EVIL],
            ["doctor", "--" + self.EVIL],
            ["doctor", self.EVIL],
            ["config", "explain", "devops", self.EVIL],
            ["config", "explain", self.EVIL, "github.com:443"],
        ):
            r = hutch(*args)
            self.assertIn(r.returncode, (1, 2, 125))
            self.assertTrue(r.stderr)
            self.check_clean(r)

    def test_directory(self):
        self.write("d\x1b[31m/agents/ours.yaml", "agnet: {}\n")
        r = hutch("config", "compile", "ours", "-I", str(self.dir / "d\x1b[31m"))
        self.assertEqual(r.returncode, 1)
        self.check_clean(r)

    def test_explain_shows_place_and_risk(self):
        folder = "d\x1b[31m"
        self.write(
            folder + "/presets/egress/inside.yaml",
            "preset:\n  kind: egress\n  name: inside\n  summary: A preset\n"
            '  risk: "none \\u202E \\x9b31m"\ndomains: [wiki.example.com]\n',
        )
        agent = self.write("a.yaml", AGENT + "egress: {presets: [inside]}\n")
        r = hutch("config", "explain", agent, "wiki.example.com:443", "-I", str(self.dir / folder))
        self.check_clean(r)

    def test_keys_and_values(self):
        path = self.write("a.yaml", AGENT + '"x\\u202E\\x9b": 1\nresources: {memory: "\\u202E"}\n')
        r = hutch("config", "validate", path)
        self.assertEqual(r.returncode, 1)
        self.check_clean(r)

    def test_not_utf8(self):
        r = hutch(b"config", b"validate", b"a\xff\xfe.yaml")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"a\\xff\\xfe.yaml", r.stderr)


class Colour(Case):
    CALLS = {
        "explain": ["config", "explain", "devops", "github.com:443"],
        "presets": ["presets"],
        "doctor": ["doctor"],
    }

    def on_terminal(self, *args, **more):
        """The output of a call with a terminal as stdout."""
        main, side = pty.openpty()
        env = environment(TERM="xterm-256color", **more)
        child = subprocess.Popen(
            [hutch_path(), *args], env=env, stdin=subprocess.DEVNULL, stdout=side, stderr=side
        )
        os.close(side)
        out = b""
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not chunk:
                break
            out += chunk
        os.close(main)
        child.wait(timeout=300)
        return out

    def check(self, args):
        self.assertIn(b"\x1b[", self.on_terminal(*args))
        self.assertNotIn(b"\x1b[", self.on_terminal(*args, NO_COLOR="1"))
        self.assertNotIn(b"\x1b[", hutch(*args, env=environment(TERM="xterm-256color")).stdout)

    def test_same_text(self):
        args = self.CALLS["explain"]
        coloured = re.sub(rb"\x1b\[[0-9;]*m", b"", self.on_terminal(*args)).replace(b"\r\n", b"\n")
        self.assertEqual(coloured, hutch(*args).stdout)

    def test_compile_is_never_coloured(self):
        self.assertNotIn(b"\x1b[", self.on_terminal("config", "compile", "devops"))


class Doctor(Case):
    def check(self, r):
        told = json.loads(r.stdout)
        levels = {x["level"]: x for x in told["levels"]}
        self.assertEqual(list(levels), ["container", "gvisor", "microvm"])
        for level in levels.values():
            self.assertIn(level["state"], ("ready", "limited", "unavailable"))
            if level["state"] != "ready":
                self.assertTrue(level["why"])
        self.assertEqual(r.returncode, 1 if levels["container"]["state"] == "unavailable" else 0)
        self.assertTrue(told["checks"])
        for check in told["checks"]:
            self.assertIn(check["state"], ("ok", "info", "warn", "fail"))
        ids = [check["id"] for check in told["checks"]]
        self.assertEqual(len(ids), len(set(ids)))
        # Only engines that can run sandboxes are checked, and none runs gVisor.
        self.assertNotIn("engine.runsc", ids)
        self.assertEqual(levels["gvisor"]["state"], "unavailable")
        return told

    def test_json(self):
        told = self.check(hutch("doctor", "--json"))
        self.assertEqual(told["host"]["uid"], os.geteuid())

    def test_text(self):
        r = hutch("doctor")
        self.assertIn(r.returncode, (0, 1))
        for level in ("container", "gvisor", "microvm"):
            self.assertIn(level, r.stdout.decode())

    def test_changes_nothing(self):
        before = sorted(os.listdir("/tmp"))
        hutch("doctor", cwd=self.dir)
        self.assertEqual(os.listdir(self.dir), [])
        left = [n for n in set(os.listdir("/tmp")) - set(before) if "hutch" in n]
        others = ("hutch-test-", "hutch-unit-", "hutch-guest-", "hutch-attack-", "hutch-suite-", "hutch-bench-")  # tests that run concurrently
        self.assertEqual([n for n in left if not n.startswith(others)], [])

    def places(self, **env):
        told = self.check(hutch("doctor", "--json", env=environment(**env)))
        return {c["id"]: c for c in told["checks"]}

    def test_the_directories_that_are_used(self):
        state, run = self.dir / "my-state", self.dir / "my-run"
        checks = self.places(HUTCH_STATE_DIR=str(state), HUTCH_RUN_DIR=str(run))
        self.assertTrue(checks["storage.state"]["value"].startswith(f"{state}:"), checks["storage.state"])
        self.assertTrue(checks["storage.run"]["value"].startswith(f"{run}:"), checks["storage.run"])
        self.assertEqual(os.listdir(self.dir), [])
        checks = self.places(HUTCH_RUN_DIR="relative")
        self.assertEqual(checks["storage.run"]["state"], "fail")
        self.assertIn("HUTCH_RUN_DIR is not an absolute path", checks["storage.run"]["detail"])

    def test_secrets(self):
        """A store that cannot be unsealed, other people's access, and a half installation."""
        state = self.dir / "my-state"
        env = {"HUTCH_STATE_DIR": str(state)}
        checks = self.places(**env)
        self.assertEqual({k: checks[k]["state"] for k in ("secret.store", "secret.tap", "secret.token")},
                         {"secret.store": "ok", "secret.tap": "ok", "secret.token": "ok"})
        self.assertFalse(state.exists(), "it makes no store")
        for name in ("ONE", "TWO"):
            self.assertEqual(hutch("secret", "set", "--file", self.write("value", "a-long-value"), name, env=environment(**env)).returncode, 0)
        self.assertEqual(self.places(**env)["secret.store"]["value"], "2 secrets")
        key = state / "secrets/key"
        good = key.read_bytes()
        key.write_bytes(bytes(len(good)))
        check = self.places(**env)["secret.store"]
        self.assertEqual(check["state"], "fail")
        self.assertIn("secret set --replace", check["advice"])
        key.write_bytes(good)
        key.parent.chmod(0o755)
        check = self.places(**env)["secret.store"]
        self.assertEqual(check["state"], "fail")
        self.assertIn("0700", check["detail"] + check["advice"])
        key.parent.chmod(0o700)
        self.assertEqual(self.places(**env)["secret.store"]["state"], "ok")
        checks = self.places(HUTCH_LIBEXEC_DIR=str(self.dir), **env)
        self.assertEqual((checks["secret.tap"]["value"], checks["secret.token"]["value"], "secret.roots" in checks), ("missing", "missing", False))

    def accel(self, **env):
        told = self.check(hutch("doctor", "--json", env=environment(HUTCH_CONFIG_PATH=str(self.dir), **env)))
        levels = {x["level"]: x["state"] for x in told["levels"]}
        return next(c for c in told["checks"] if c["id"] == "engine.accel"), levels["microvm"]

    def test_host_yaml(self):
        file = self.dir / "host.yaml"
        file.write_text("accel: tcg\n")
        check, _ = self.accel()
        self.assertEqual((check["state"], check["detail"]), ("warn", "TCG is configured"))
        file.write_text("accel: tcg\nacel: kvm\n")
        check, level = self.accel()
        self.assertEqual((check["state"], level), ("fail", "unavailable"))
        self.assertEqual(check["detail"], f"{file}:2:1: error: acel: unknown key; expected one of: accel, accel_timeout, snapshot_space, keep_ended, ended_space, disk_overcommit, engine, egress_proxy, tap_roots; did you mean 'accel'?")
        check, _ = self.accel(HUTCH_ACCEL="tcg")
        self.assertEqual(check["detail"], "TCG is configured")
        check, level = self.accel(HUTCH_ACCEL="fast")
        self.assertEqual((check["state"], level), ("fail", "unavailable"))
        self.assertIn("HUTCH_ACCEL is 'fast'", check["detail"])

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_ordinary_user(self):
        os.chmod(self.dir, 0o755)
        program = shutil.copy(hutch_path(), self.dir / "hutch")
        os.chmod(program, 0o755)
        who = {
            "program": program,
            "user": ORDINARY_USER,
            "group": ORDINARY_USER,
            "extra_groups": [],
            "cwd": "/",
        }
        told = self.check(hutch("doctor", "--json", **who))
        self.assertEqual(told["host"]["uid"], ORDINARY_USER)
        r = hutch("doctor", **who)
        self.assertIn(r.returncode, (0, 1))
        self.assertNotIn(b"hutch doctor:", r.stderr)


@unittest.skipUnless(shutil.which("bash"), "no bash")
class Completion(Case):
    def setUp(self):
        super().setUp()
        (self.dir / "hutch").symlink_to(hutch_path())
        self.env = environment(PATH=f"{self.dir}:{os.environ['PATH']}")
        self.script = self.write("script", self.run_ok("completion", "bash"))

    def complete(self, *words):
        """The completions that TAB offers after `words`; the last word is incomplete."""
        command = (
            'source "$1" || exit 1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            'COMPREPLY=(); _hutch; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        r = subprocess.run(
            ["bash", "--norc", "-c", command, "bash", self.script, "hutch", *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=True,
        )
        self.assertEqual(r.stderr, b"")
        return r.stdout.decode().split()

    def test_syntax(self):
        subprocess.run(["bash", "-n", self.script], check=True)

    def test_is_registered(self):
        r = subprocess.run(
            ["bash", "--norc", "-c", 'source "$1"; complete -p hutch', "bash", self.script],
            stdout=subprocess.PIPE,
            check=True,
        )
        self.assertIn(b"-F _hutch hutch", r.stdout)

    def test_commands(self):
        self.assertEqual(self.complete("con"), ["config"])
        self.assertEqual(self.complete("config", "exp"), ["explain"])
        offered = self.complete("")
        for command in COMMANDS:
            if " " not in command:
                self.assertIn(command, offered)

    def test_options(self):
        self.assertEqual(self.complete("doctor", "--j"), ["--json"])
        self.assertEqual(self.complete("config", "compile", "--d"), ["--digest"])
        self.assertIn("--help", self.complete("version", "--"))

    def test_agents(self):
        names = {f.stem for f in (ROOT / "agents").glob("*.yaml")}
        for command in (["config", "explain"], ["config", "compile"], ["agents"]):
            self.assertLessEqual(names, set(self.complete(*command, "")))
        self.assertEqual(self.complete("config", "explain", "devo"), ["devops"])

    def test_own_agents(self):
        self.write("more/agents/ours.yaml", "agent:\n  name: ours\n  type: debugger\n")
        self.env["HUTCH_CONFIG_PATH"] = str(self.dir / "more")
        self.assertEqual(self.complete("config", "compile", "our"), ["ours"])

    def test_others(self):
        self.assertEqual(self.complete("completion", "b"), ["bash"])
        self.assertEqual(self.complete("help", "doc"), ["doctor"])

    def test_presets(self):
        names = sorted(f.stem for f in (ROOT / "presets" / "egress").glob("githu*.yaml"))
        self.assertEqual(sorted(self.complete("presets", "githu")), names)

    def test_help_below(self):
        self.assertEqual(self.complete("help", "config", "val"), ["validate"])


def add_tests():
    def add(cls, name, function, *args):
        setattr(cls, name, lambda self: function(self, *args))

    for command in COMMANDS:
        add(Help, method("help", command), Help.check, command)
    for command in LEAVES:
        add(Failures, method("full", command), Failures.check_full, command)
    for command in WITH_JSON:
        add(Json, method("parses", command), Json.check, command)
    for name, args in Colour.CALLS.items():
        add(Colour, method("colour", name), Colour.check, args)
    files = [*(ROOT / "agents").glob("*.yaml"), *(ROOT / "presets").glob("*/*.yaml")]
    for file in sorted(files):
        add(Shipped, method("valid", str(file.relative_to(ROOT))), Shipped.check, file)


add_tests()

if __name__ == "__main__":
    unittest.main()
