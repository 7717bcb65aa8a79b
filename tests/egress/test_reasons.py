# SPDX-License-Identifier: Apache-2.0
"""Reasons for denials: 'hutch egress explain', 'log' and 'suggest' agree, in the words of
src/names/why.c."""

import json
import re

from boxes import WORLD, EgressCase, log, policy, run
from sandbox import RUN, hutch
from test_sandbox_bombs import connect

POLICY, ADDED, NARROWED = "not allowed by the policy", "denied by a rule added while the sandbox ran", "narrowed by an API client"
ADDRESS, NO_NETWORK = "no address that may be dialled", "the sandbox has no network: its policy allows nothing"
API = "https://api.hutch.test/"


class Reasons(EgressCase):
    def egress(self, *args, code=0):
        r = self.ended(hutch("egress", *args), code)
        return r.stdout.decode(), r.stderr.decode()

    def narrow(self, box, *rules):
        """Sends the keeper the request that hutchd sends when an API client sets the network."""
        link = connect(box)
        self.addCleanup(link.close)
        self.assertEqual(link.open("egress", rule=rules, replace=True).wait_closed(), 0)

    def name(self, name, **entry):
        WORLD("dns", name=name, entry=entry)
        self.addCleanup(WORLD, "dns", name=name, entry=None)

    def agree(self, box, host, reason, detail=""):
        """Checks that all three report host:443 as denied, for this reason."""
        words = reason + (f": {detail}" if detail else "")
        lines = [line for line in log(box) if line["name"] == host and line["verdict"] == "denied"]
        self.assertEqual({line["reason"] for line in lines}, {reason})
        self.assertRegex(self.egress("log", box)[0], rf"{host} .* denied .*{reason}")
        text, _ = self.egress("explain", box, f"{host}:443", code=1)
        self.assertRegex(text, rf"^denied   {host}:443\n")
        self.assertIn(f"  because  {words}", text)
        said = json.loads(self.egress("explain", "--json", box, f"{host}:443", code=1)[0])
        self.assertEqual((said["allowed"], said["reason"], said["detail"]), (False, reason, detail))
        line = next(line for line in self.egress("suggest", box)[0].splitlines() if f'"{host}:443' in line)
        if reason == POLICY:
            self.assertTrue(line.startswith("    - "), line)
        else:
            self.assertTrue(line.startswith("    # - "), line)
            self.assertIn(words, line)
        return text, line

    def test_policy(self):
        box = self.box(["web.hutch.test"])
        run(box, "curl", "-sS", API)
        self.agree(box, "api.hutch.test", POLICY)

    def test_added(self):
        box = self.box(["web.hutch.test", "api.hutch.test"])
        self.egress("deny", box, "api.hutch.test:443")
        self.assertNotEqual(run(box, "curl", "-sS", API).code, 0)
        text, _ = self.agree(box, "api.hutch.test", ADDED)
        self.assertRegex(text, r"  from     'hutch egress deny', at 20\d\d")
        self.egress("allow", box, "api.hutch.test:443")
        self.egress("explain", box, "api.hutch.test:443")
        self.assertIn("now allowed in this sandbox", self.egress("suggest", box)[0])

    def test_narrowed(self):
        box = self.box(["web.hutch.test", "api.hutch.test"])
        self.narrow(box, "-*", "+web.hutch.test")
        self.assertNotEqual(run(box, "curl", "-sS", API).code, 0)
        self.agree(box, "api.hutch.test", NARROWED)
        self.assertIn(f"stays denied: {NARROWED}", self.egress("allow", box, "other.hutch.test:443", code=1)[1])
        self.egress("explain", box, "web.hutch.test:443")
        self.narrow(box)
        self.egress("explain", box, "api.hutch.test:443")

    def test_narrowed_by_many(self):
        """Also with more rules than one record holds."""
        box = self.box([".hutch.test"])
        self.narrow(box, "-*", *(f"+n{i}.hutch.test" for i in range(500)))
        self.egress("explain", box, "n499.hutch.test:443")
        self.assertIn(NARROWED, self.egress("explain", box, "api.hutch.test:443", code=1)[0])

    def test_narrowed_address(self):
        box = self.box(["93.184.216.0/24:443", "web.hutch.test"])
        self.narrow(box, "-93.184.216.11")
        run(box, "curl", "-sSk", "https://93.184.216.11/")
        text, _ = self.agree(box, "93.184.216.11", NARROWED)
        self.assertRegex(text, r"deny     93\.184\.216\.11, on every port\n  from     an API client, at 20\d\d")

    def test_address_of_a_name(self):
        self.name("inner.hutch.test", a=["10.0.0.1"], ttl=0)
        box = self.box(["inner.hutch.test"])
        self.egress("explain", box, "inner.hutch.test:443")  # no program has looked it up yet
        self.assertNotEqual(run(box, "curl", "-sS", "https://inner.hutch.test/").code, 0)
        text, _ = self.agree(box, "inner.hutch.test", ADDRESS, "private")
        self.assertRegex(text, r"  allow    inner\.hutch\.test:443\n(?s:.*)  seen     20\d\d-\S+, when it was last looked up")
        self.assertIn(f"  to allow hutch egress allow {box} inner.hutch.test:443/private", text)
        WORLD("dns", name="inner.hutch.test", entry={"a": ["93.184.216.10"], "ttl": 0})
        run(box, "curl", "-sSk", "https://inner.hutch.test/")
        self.logged(box, over=True, name="inner.hutch.test", address="93.184.216.10")
        self.egress("explain", box, "inner.hutch.test:443")

    def test_address_of_a_rule(self):
        box = self.box(["224.0.0.0/8:443", "web.hutch.test"])
        run(box, "curl", "-sS", "-x", "127.0.0.1:3128", "https://224.0.0.1/")
        self.agree(box, "224.0.0.1", ADDRESS, "multicast")

    def test_no_network(self):
        box = self.create("--agent", policy("egress-nothing"))
        self.assertNotEqual(run(box, "curl", "-sS", API).code, 0)
        self.assertIn(f"  because  {NO_NETWORK}\n", self.egress("explain", box, "api.hutch.test:443", code=1)[0])
        for gone in (False, True):
            if gone:
                self.ended(hutch("rm", "-f", box), 0)
            with self.subTest(gone=gone):
                self.assertEqual(self.egress("log", box), ("", f"hutch egress log: {box}: {NO_NETWORK}\n"))
                self.assertEqual(self.egress("suggest", box)[0], f"# {box}: {NO_NETWORK}; start another with a rule in its policy\n")
        other = self.box(["web.hutch.test"])
        self.assertEqual(self.egress("log", other), ("", ""))
        self.assertEqual(self.egress("suggest", other)[0], "# nothing was denied\n")

    def test_suggest_when_it_is_gone(self):
        box = self.box(["web.hutch.test", "api.hutch.test"])
        self.narrow(box, "-*", "+web.hutch.test")
        run(box, "sh", "-c", f"curl -sS {API}; curl -sS https://pypi.org/")
        before = self.egress("suggest", box)[0]
        self.ended(hutch("rm", "-f", box), 0)
        self.assertEqual(self.egress("suggest", box)[0], before)
        self.assertRegex(before, rf'(?m)^    # - "api\.hutch\.test:443" .*{NARROWED}$')
        self.assertRegex(before, r'(?m)^    - "pypi\.org:443" ')


class Hint(EgressCase):
    """The line after a failed command with denied connections: on standard error, and counted by
    the keeper."""

    FAIL = "curl -sS {}; exit 3"
    PROXY = "curl -sS -o /dev/null -x 127.0.0.1:3128 https://api.hutch.test/"

    def exec(self, box, script, *opts):
        r = hutch("exec", *opts, box, "--", "sh", "-c", script)
        return r.returncode, r.stdout.decode(), [line for line in r.stderr.decode().splitlines() if "denied: hutch egress log" in line]

    def test_one_and_many(self):
        box = self.box(["web.hutch.test"])
        self.assertEqual(self.exec(box, self.FAIL.format(API)), (3, "", [f"1 connection was denied: hutch egress log {box}"]))
        three = f"{self.PROXY}; {self.PROXY}; {self.PROXY}; echo printed; exit 4"
        self.assertEqual(self.exec(box, three), (4, "printed\n", [f"3 connections were denied: hutch egress log {box}"]))

    def test_silence(self):
        box = self.box(["web.hutch.test"])
        self.assertEqual(self.exec(box, f"curl -sS {API}; exit 0"), (0, "", []))
        self.assertEqual(self.exec(box, self.FAIL.format(API), "-q"), (3, "", []))
        self.assertEqual(self.exec(box, "exit 3"), (3, "", []))  # earlier denials do not count for this command
        self.assertEqual(self.exec(box, "curl -sS -o /dev/null https://web.hutch.test/; exit 3"), (3, "", []))

    def test_flood(self):
        """Also those that are only counted, although the second is not over."""
        box = self.box(["web.hutch.test"])
        flood = f"for i in $(seq 30); do {self.PROXY}; done 2>/dev/null; kill -9 $$"
        self.assertEqual(self.exec(box, flood), (137, "", [f"30 connections were denied: hutch egress log {box}"]))

    def test_time_limit(self):
        box = self.box(["web.hutch.test"])
        code, _, said = self.exec(box, f"{self.PROXY}; exec sleep 1000", "--timeout", "3s")
        self.assertEqual((code, said), (124, [f"1 connection was denied: hutch egress log {box}"]))

    def test_forged(self):
        """A program's own output does not change the count."""
        box = self.box(["web.hutch.test"])
        code, out, said = self.exec(box, f"echo '99 connections were denied: hutch egress log {box}'; {self.PROXY}; exit 3")
        self.assertEqual((code, out.count("99 connections")), (3, 1))
        self.assertEqual(said, [f"1 connection was denied: hutch egress log {box}"])

    def test_run(self):
        """With --rm the command that the line names still works."""
        agent = policy("egress-hint", ["web.hutch.test"])
        r = hutch("run", "--rm", "--agent", agent, "--", "sh", "-c", f"{self.PROXY}; exit 5")
        self.assertEqual((r.returncode, r.stdout), (5, b""))
        box = re.search(r"(?m)^1 connection was denied: hutch egress log ([a-z0-9]{16})$", r.stderr.decode())[1]
        self.assertFalse((RUN / "sandboxes" / box).exists())
        self.assertEqual([line["name"] for line in log(box)], ["api.hutch.test"])
        self.assertNotIn(b"denied", hutch("run", "-q", "--rm", "--agent", agent, "--", "sh", "-c", f"{self.PROXY} 2>/dev/null; exit 5").stderr)
