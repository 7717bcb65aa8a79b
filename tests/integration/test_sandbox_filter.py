# SPDX-License-Identifier: Apache-2.0
"""The output filter: what commands write, as people, records and the audit log get it."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import urllib.parse

import hutchd
from sandbox import LONG, PATIENCE, SandboxCase, agent, children_of, eventually, hutch, start, warden_of
from waiting import readable

TOKEN = "gh" + "p_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ4"
GONE = "[hutch: redacted github-token]"
WITHHELD = "[hutch: output withheld: the output filter has failed]"


class FilterCase(SandboxCase):
    def box(self, name, text="output: {action: redact}\n"):
        return self.create("-a", agent(name, text))

    def filters(self, sandbox):
        return children_of(warden_of(sandbox), "hutch-filter")

    def filter_of(self, sandbox):
        (pid,) = eventually(lambda: self.filters(sandbox), "a hutch-filter")
        return pid

    def records(self, sandbox):
        lines = self.ended(hutch("audit", "show", "--json", "--sandbox", sandbox), 0).stdout.decode()
        return [r for r in map(json.loads, lines.splitlines()) if r["kind"] == "output"], lines


class Redact(FilterCase):
    def test_output_of_commands(self):
        box = self.box("redacts")
        r = self.exec_(box, "sh", "-c", f"echo a {TOKEN} b; echo {TOKEN} >&2; exit 3", code=3)
        self.assertEqual((r.stdout.decode(), r.stderr.decode()), (f"a {GONE} b\n", f"{GONE}\n"))
        # The same text in another spelling is not a token: the filter looks at bytes.
        self.assertEqual(self.sh(box, f"echo {TOKEN} | rev"), TOKEN[::-1] + "\n")

    def test_records_and_their_readers(self):
        box = self.box("records")
        handle = self.exec_(box, "sh", "-c", f"echo {TOKEN}; echo {TOKEN} >&2", opts=["--name", "one"])
        self.assertEqual(handle.stdout.decode(), GONE + "\n")
        r = self.ended(hutch("logs", f"{box}/one"), 0)
        self.assertEqual((r.stdout.decode(), r.stderr.decode()), (GONE + "\n", GONE + "\n"))
        handle = self.ended(hutch("exec", "-d", box, "--", "sh", "-c", f"echo {TOKEN}"), 0).stdout.decode().strip()
        self.ended(hutch("wait", handle), 0)
        self.assertEqual(self.ended(hutch("logs", handle), 0).stdout.decode(), GONE + "\n")
        self.assertEqual(self.ended(hutch("attach", handle), 0).stdout.decode(), GONE + "\n")

    def test_a_match_in_two_writes(self):
        box = self.box("pieces")
        for cut in (1, 4, 20, len(TOKEN) - 1):
            out = self.python(box, "import os, sys\nt, n = sys.argv[1], int(sys.argv[2])\nos.write(1, t[:n].encode())\n"
                              "os.write(1, t[n:].encode())", TOKEN, str(cut))
            self.assertEqual(out, GONE)

    def test_a_prompt_does_not_wait(self):
        box = self.box("prompts")
        with start("exec", "-i", box, "--", "sh", "-c", "printf 'Name: '; read x; echo hello $x", stdin=subprocess.PIPE,
                   stdout=subprocess.PIPE) as p:
            out = b""
            while len(out) < 6:
                readable(p.stdout, PATIENCE)
                out += os.read(p.stdout.fileno(), 100)
            self.assertEqual(out, b"Name: ")
            p.stdin.write(b"you\n")
            p.stdin.close()
            self.assertEqual(p.stdout.read(), b"hello you\n")

    def test_much_output_is_unchanged(self):
        box = self.box("much")
        script = "import sys\nfor i in range(400000): sys.stdout.buffer.write(b'%031d\\n' % i)\nsys.exit(4)"
        with start("exec", box, "--", "python3", "-c", script, stdout=subprocess.PIPE) as p:
            readable(p.stdout, PATIENCE)  # a client that does not read at first
            got = hashlib.sha256(p.stdout.read()).hexdigest()
        self.assertEqual(p.returncode, 4)
        wanted = hashlib.sha256(b"".join(b"%031d\n" % i for i in range(400000))).hexdigest()
        self.assertEqual(got, wanted)

    def test_many_matches_and_credit(self):
        """Texts longer and shorter than the matches: the command is neither stopped for lack of credit nor cut."""
        box = self.box("many")
        for line, gone in ((TOKEN, GONE), ("whsec_" + "aB3d" * 60, "[hutch: redacted stripe-webhook-secret]")):
            n = 2000000 // len(line)
            out = self.python(box, "import sys\nsys.stdout.write((sys.argv[1] + '\\n') * int(sys.argv[2]))", line, str(n))
            self.assertEqual(out, (gone + "\n") * n)

    def test_the_audit_log_has_no_text(self):
        box = self.box("audited")
        self.exec_(box, "sh", "-c", f"echo {TOKEN}; echo {TOKEN}", opts=["--name", "one"])
        found, text = self.records(box)
        self.assertEqual({(r["payload"]["rule"], r["payload"]["action"]) for r in found}, {("github-token", "redact")})
        self.assertEqual(sum(r["payload"]["matches"] for r in found), 2)  # a slow host may pause between the two
        self.assertEqual(found[0]["payload"]["command"], 1)
        self.assertNotIn(TOKEN, "".join(json.dumps(r) for r in found))
        self.assertIn('"output"', text)
        self.ended(hutch("audit", "verify"), 0)

    def test_a_filter_that_dies(self):
        box = self.box("dies")
        first = self.filter_of(box)
        with start("exec", "-i", box, "--", "sh", "-c", "echo before; read x; echo after; exit 5", stdin=subprocess.PIPE,
                   stdout=subprocess.PIPE) as p:
            self.assertEqual(p.stdout.readline(), b"before\n")
            os.kill(first, signal.SIGKILL)
            eventually(lambda: first not in self.filters(box), "the end of hutch-filter")
            p.stdin.write(b"\n")
            p.stdin.close()
            rest = p.stdout.read().decode()
            self.assertEqual(p.wait(PATIENCE), 5)
        self.assertIn(WITHHELD, rest)
        self.assertNotIn("after", rest)
        # hutch-filter is started at most once a second: until then, output is withheld.
        eventually(lambda: self.sh(box, f"echo {TOKEN}") == GONE + "\n", "a new hutch-filter")

    def test_jail(self):
        box = self.box("jailed")
        pid = self.filter_of(box)
        self.sh(box, f"echo {TOKEN}")
        status = dict(line.split(":\t") for line in open(f"/proc/{pid}/status", encoding="ascii").read().splitlines() if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"], status["CapEff"].strip("0")), ("2", "1", ""))
        if os.geteuid() == 0:
            self.assertNotEqual(status["Uid"].split()[0], "0")
            self.assertEqual(os.listdir(f"/proc/{pid}/root/"), [])


class Actions(FilterCase):
    def test_off(self):
        box = self.box("off", "")
        self.assertEqual(self.sh(box, f"echo {TOKEN}"), TOKEN + "\n")
        self.assertEqual((self.filters(box), self.records(box)[0]), ([], []))

    def test_block(self):
        box = self.box("blocks", "output: {action: block}\n")
        r = self.exec_(box, "sh", "-c", f"echo a; echo {TOKEN}; echo b; echo err >&2; exit 6", code=6)
        self.assertEqual((r.stdout.decode(), r.stderr.decode()), ("a\n[hutch: blocked github-token]", "err\n"))
        self.assertEqual(self.sh(box, "echo next"), "next\n")

    def test_report(self):
        box = self.box("reports", "output: {action: report}\n")
        self.assertEqual(self.sh(box, f"echo {TOKEN}"), TOKEN + "\n")
        self.assertEqual([r["payload"]["action"] for r in self.records(box)[0]], ["report"])

    def test_rules(self):
        box = self.box("chooses", "output: {action: redact, rules: [email, jwt]}\n")
        self.assertEqual(self.sh(box, f"echo joe@example.org {TOKEN}"), f"[hutch: redacted email] {TOKEN}\n")

    def test_inherited(self):
        agent("parent", "output: {action: redact}\n")
        box = self.box("child", "extends: parent\noutput: {rules: [email]}\n")
        self.assertEqual(self.sh(box, f"echo joe@example.org {TOKEN}"), f"[hutch: redacted email] {TOKEN}\n")
        box = self.box("quiet", "extends: parent\noutput: {action: off}\n")
        self.assertEqual(self.sh(box, f"echo {TOKEN}"), TOKEN + "\n")

    def test_explained(self):
        agent("explained", "output: {action: block, rules: [pii]}\n")
        out = json.loads(self.ended(hutch("config", "compile", "explained"), 0).stdout)
        self.assertEqual(out["output"], {"action": "block", "rules": ["pii"]})
        agent("plain", "")
        self.assertNotIn("output", json.loads(self.ended(hutch("config", "compile", "plain"), 0).stdout))


class KnownValues(FilterCase):
    """Values of secrets of two sandboxes of one user."""

    A, B = "tr0ub4dor/&3+a", "c0rrect-h0rse=b"

    def boxes(self):
        for name, value in (("FILTER_A", self.A), ("FILTER_B", self.B)):
            self.ended(hutch("secret", "set", "--replace", name, input=value.encode()), 0)
            self.addCleanup(hutch, "secret", "rm", name)
        for name in ("A", "B"):
            yield self.box(f"owns-{name.lower()}",
                           f"egress: {{domains: [example.org]}}\nsecrets: {{FILTER_{name}: {{hosts: [example.org]}}}}\noutput: {{action: redact}}\n")

    def test_only_the_own_ones(self):
        a, b = self.boxes()
        say = "import sys\nprint(sys.argv[1])"
        gone = {a: "[hutch: redacted secret:FILTER_A]\n", b: "[hutch: redacted secret:FILTER_B]\n"}
        self.assertEqual(self.python(a, say, self.A), gone[a])
        self.assertEqual(self.python(a, say, self.B), self.B + "\n")
        self.assertEqual(self.python(b, say, self.B), gone[b])
        self.assertEqual(self.python(b, say, self.A), self.A + "\n")
        for form in (urllib.parse.quote(self.A, safe=""), self.A.encode().hex()):
            self.assertEqual(self.python(a, say, form), gone[a])
            self.assertEqual(self.python(b, say, form), form + "\n")
        for before in range(3):
            text = base64.b64encode(b"x" * before + self.A.encode() + b"yyyy").decode()
            self.assertIn(gone[a].strip(), self.python(a, say, text))
            self.assertEqual(self.python(b, say, text), text + "\n")

    def test_a_new_value(self):
        a, _ = self.boxes()
        self.ended(hutch("secret", "set", "--replace", "FILTER_A", input=b"an0ther-value"), 0)
        eventually(lambda: self.sh(a, "echo an0ther-value") == "[hutch: redacted secret:FILTER_A]\n", "the new value in the filter")


class Clients(hutchd.BoxCase):
    """The same filter for clients of the E2B API and of MCP."""

    @classmethod
    def setUpClass(cls):
        cls.agent = agent("api-filter", "extends: e2b\noutput: {action: redact}\n")
        cls.server = hutchd.Server("--default-agent", cls.agent)
        cls.addClassCleanup(cls.server.stop)
        cls.box, cls.token = cls.make()
        eventually(lambda: children_of(warden_of(cls.box), "hutch-filter"), "a hutch-filter")  # the ledger then knows it

    def test_e2b(self):
        script = f"echo a {TOKEN} b; echo {TOKEN} >&2"
        out = {"stdout": b"", "stderr": b""}
        for message in self.stream("/process.Process/Start", {"process": {"cmd": "/bin/sh", "args": ["-c", script]}}):
            for name, data in message["event"].get("data", {}).items():
                out[name] += base64.b64decode(data)
        self.assertEqual(out, {"stdout": f"a {GONE} b\n".encode(), "stderr": f"{GONE}\n".encode()})

    def test_mcp(self):
        calls = [("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
                 ("tools/call", {"name": "run_command", "arguments": {"command": f"echo a {TOKEN} b"}})]
        with start("mcp", "--agent", self.agent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            for i, (method, params) in enumerate(calls):
                p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": i, "method": method, "params": params}).encode() + b"\n")
                p.stdin.flush()
                self.assertTrue(line := p.stdout.readline())
            p.stdin.close()
            self.assertEqual(p.wait(LONG), 0)
        answer = json.loads(line)["result"]
        self.assertIn(f"a {GONE} b\n", [c["text"] for c in answer["content"]])
        self.assertNotIn(TOKEN, line.decode())
