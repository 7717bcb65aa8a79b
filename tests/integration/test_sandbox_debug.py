# SPDX-License-Identifier: Apache-2.0
"""hutch debug and HUTCH_LOG=debug: the sessions of docs/DEBUGGING.md, and secrets that they do
not show."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from hutchd import BoxCase
from sandbox import LONG, SandboxCase, SharedCase, hutch, start
from waiting import eventually

PAGE = Path(__file__).resolve().parents[2] / "docs/DEBUGGING.md"
LINE = re.compile(r"(\d+\.\d{6}) +(\S+) +(\S+) +(\S+) +(frame|note|state|verdict|syscall|time|log|lost) +(.*)")
DEBUG = {"HUTCH_LOG": "debug"}


def normal(line):
    """Masks all that differs between runs: ids, times, numbers."""
    line = re.sub(r"\b(?:[a-z][a-z0-9]{15}|[0-9a-f]{16})\b", "ID", line)  # ids of sandboxes and requests
    line = re.sub(r"^\d+\.\d{6} ", "TIME ", line)
    return re.sub(r"\d+", "N", line).rstrip()


def matches(wanted, seen):
    """Is `seen` the lines of `wanted`, where '...' stands for any number of them?"""
    if not wanted:
        return not seen
    if wanted[0] == "...":
        return any(matches(wanted[1:], seen[i:]) for i in range(len(seen) + 1))
    return bool(seen) and normal(wanted[0]) == normal(seen[0]) and matches(wanted[1:], seen[1:])


def sections(text):
    """(title, {file: text}, [(command, [line])]) of each section with a session."""
    files = {}
    for part in re.split(r"(?m)^## ", text)[1:]:
        files |= dict(re.findall(r"(?ms)`([\w.-]+\.yaml)`[^`]*```yaml\n(.*?)^```$", part))
        steps = []
        for block in re.findall(r"(?ms)^```console\n(.*?)^```$", part):
            for line in block.splitlines():
                if line.startswith("$ "):
                    steps.append((line[2:], []))
                else:
                    steps[-1][1].append(line)
        if steps:
            yield part.splitlines()[0], dict(files), steps


# A reader types the next command later than this shell: by then the background command waits for
# its input.
ASLEEP = "until hutch debug --now --kind state $id | grep -q 'state S'; do :; done\n"


class Page(SandboxCase):
    def play(self, files, steps):
        """The output of each step, all run in one shell."""
        mark = "@@step"
        script = "".join(f"echo '{mark}'; {{ {command}\n}} 2>&1\n{ASLEEP if command.startswith('hutch exec -d') else ''}" for command, _ in steps)
        with tempfile.TemporaryDirectory() as work:
            for name, text in files.items():
                Path(work, name).write_text(text)
            env = {**os.environ, "PATH": f"{Path(os.environ['HUTCH']).parent}:{os.environ['PATH']}"}
            r = subprocess.run(["bash", "-c", script], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, timeout=LONG, check=False)
        return [part.splitlines()[1:] for part in r.stdout.split(mark)[1:]]

    def test_the_sessions_of_the_page(self):
        self.addCleanup(hutch, "gc")  # the page ends its sandboxes, but leaves their records
        found = list(sections(PAGE.read_text()))
        self.assertEqual([title for title, _, _ in found], ["A start fails", "A connection is denied", "A command hangs"])
        for title, files, steps in found:
            with self.subTest(title):
                for (command, wanted), seen in zip(steps, self.play(files, steps), strict=True):
                    if not matches(wanted, seen):
                        self.fail("\n".join([command, "--- wanted", *wanted, "--- seen", *seen]))

    def test_the_comparison_can_fail(self):
        self.assertTrue(matches(["a 1", "...", "c"], ["a 2", "b", "b", "c"]))
        self.assertFalse(matches(["a 1", "...", "c"], ["a 2", "b"]))
        self.assertFalse(matches(["a"], ["a", "b"]))
        self.assertFalse(matches(["a"], []))


class Debug(SharedCase):
    def lines(self, text):
        found = [LINE.fullmatch(line) for line in text.splitlines()]
        self.assertNotIn(None, found, text)
        return [m.groups() for m in found]

    def test_one_request_from_end_to_end(self):
        r = self.ended(hutch("exec", self.sandbox, "--", "true", env=DEBUG), 0)
        lines = self.lines(r.stderr.decode())
        requests = {line[3] for line in lines if line[1] == "cli"}
        self.assertEqual(len(requests), 1)
        request = requests.pop()
        self.assertRegex(request, "^[0-9a-f]{16}$")
        asked = [line for line in lines if line[1] == "keeper" and line[3] == request and "exec asked of the guest" in line[5]]
        self.assertEqual(len(asked), 1, lines)
        self.assertTrue(any(line[1] == "guest" and "OPEN exec" in line[5] for line in lines), lines)
        records = [json.loads(line) for line in self.ended(hutch("audit", "show", "--json", "--sandbox", self.sandbox), 0).stdout.splitlines()]
        self.assertIn(request, [x["payload"].get("request") for x in records if x["kind"] == "exec"])

    def test_no_contents(self):
        r = self.ended(hutch("exec", "-i", "-e", "TOKEN=grape-env", self.sandbox, "--", "sh", "-c", "cat >/dev/null; : pear-arg",
                             env=DEBUG, input=b"plum-stdin"), 0)
        self.assertIn(b" frame ", r.stderr)
        for secret in (b"grape", b"pear", b"plum"):
            self.assertNotIn(secret, r.stderr)

    def test_off_says_nothing(self):
        r = self.ended(hutch("exec", self.sandbox, "--", "true"), 0)
        self.assertEqual(r.stderr, b"")

    def test_follow(self):
        with tempfile.NamedTemporaryFile() as out:
            p = start("debug", "--json", self.sandbox, stdout=out)

            def seen():
                # Opened anew: the program writes at the offset of `out`.
                text = Path(out.name).read_text()
                return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

            try:
                eventually(lambda: [x for x in seen() if x["text"].startswith("jobs: ")], "the list of commands")
                self.ended(hutch("exec", self.sandbox, "--", "sh", "-c", "exit 7"), 7)
                eventually(lambda: [x for x in seen() if x["kind"] == "state" and x["text"].endswith("ended: exit 7")], "the end of the command")
                self.ended(hutch("ttl", self.sandbox, "10m"), 0)
                eventually(lambda: [x for x in seen() if x["process"] == "warden" and x["kind"] == "note"], "a line of the warden")
                for x in seen():
                    self.assertEqual(x.keys(), {"time_us", "process", "sandbox", "request", "kind", "text"})
                    self.assertEqual(x["sandbox"], self.sandbox)
            finally:
                p.terminate()
                p.wait()

    def test_only_some(self):
        r = self.ended(hutch("debug", "--now", "-k", "state", self.sandbox), 0)
        self.assertEqual({line[4] for line in self.lines(r.stdout.decode())}, {"state"})
        r = self.ended(hutch("debug", "--now", "-r", "no-such", self.sandbox), 0)
        self.assertEqual(r.stdout, b"")
        r = self.ended(hutch("debug", "--now", "-k", "fram", self.sandbox), 2)
        self.assertIn(b"did you mean 'frame'?", r.stderr)

    def test_a_ninth_reader(self):
        readers = [start("debug", self.sandbox, stdout=subprocess.PIPE) for _ in range(8)]
        try:
            for p in readers:
                self.assertTrue(p.stdout.readline())
            r = self.ended(hutch("debug", self.sandbox), 125)
            self.assertIn(b"too many clients read trace lines", r.stderr)
        finally:
            for p in readers:
                p.kill()
                p.communicate()
        eventually(lambda: hutch("debug", "--now", self.sandbox).returncode == 0, "a place for another reader")

    def test_a_reader_that_sleeps_stops_nobody(self):
        p = start("debug", self.sandbox, stdout=subprocess.PIPE)
        try:
            self.assertTrue(p.stdout.readline())
            r = self.ended(hutch("exec", self.sandbox, "--", "head", "-c", "50000000", "/dev/zero"), 0)
            self.assertEqual(len(r.stdout), 50000000)
        finally:
            p.kill()
            p.communicate()


class Ends(SandboxCase):
    def test_it_ends_with_the_sandbox(self):
        sandbox = self.create()
        p = start("debug", sandbox, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # The keeper sends the first lines. The warden, which reports the reason of the end, sends
        # its lines from here on.
        self.assertTrue(any(b"received: trace lines" in line for line in p.stdout))
        self.ended(hutch("kill", sandbox), 0)
        out, err = p.communicate(timeout=LONG)
        self.assertEqual(p.returncode, 0, err)
        self.assertIn(b"the sandbox has ended", err)
        self.assertIn(b"the sandbox ends: killed", out)
        r = hutch("debug", sandbox)
        self.assertNotEqual(r.returncode, 0)


class Api(BoxCase):
    def test_the_request_of_an_answer_is_in_the_audit_log(self):
        c = self.server.connection()
        self.addCleanup(c.close)
        message = json.dumps({"process": {"cmd": "/bin/true"}}).encode()
        c.request("POST", "/process.Process/Start", b"\0" + len(message).to_bytes(4, "big") + message,
                  self.headers(Content_Type="application/connect+json"))
        answer = c.getresponse()
        answer.read()
        request = answer.getheader("X-Request-Id")
        self.assertRegex(request or "", "^[0-9a-f]{16}$")
        records = [json.loads(line) for line in hutch("audit", "show", "--json", "--sandbox", self.box).stdout.splitlines()]
        self.assertEqual([x["payload"]["argv"] for x in records if x["payload"].get("request") == request], [["/bin/true"]])
        self.assertTrue([x for x in records if x["kind"] == "create" and x["payload"].get("request")])

    def test_ids_differ(self):
        with self.subTest("two requests"):
            seen = set()
            for _ in range(2):
                c = self.server.connection()
                c.request("GET", "/sandboxes", None, {"X-API-Key": self.server.key})
                answer = c.getresponse()
                answer.read()
                c.close()
                seen.add(answer.getheader("X-Request-Id"))
            self.assertEqual(len(seen), 2)
