# SPDX-License-Identifier: Apache-2.0
"""
Every client in a sandbox works if the policy names its host. If not, it fails at once with its
usual exit code and message, `hutch egress log` has the reason, and the resolver has not seen the
name. After the name is allowed in the running sandbox, the client works. test_world.py runs the
same clients in a box with a network device.
"""

import time

from boxes import WORLD, SharedEgress, log, policy, run
from clients import clients, wrap
from sandbox import MACHINE, PATIENCE, hutch
from waiting import eventually

CLIENTS = clients(WORLD)
OTHER = "other.hutch.test"
# A denial is fast. The same client's time in the plain box for a missing name is measured
# alongside, because a busy host slows both. The best of several tries counts.
SECONDS, FACTOR, TRIES = 1, 5, 5


def try_in(sandbox, client):
    argv, text = wrap(client)
    return run(sandbox, *argv, data=text.replace("/usr/local/bin/dial", "/tmp/dial"))


def time_in_plain_box(client):
    """Returns how long the client takes to fail in a box with a network device if the name does
    not exist."""
    argv, text = wrap(client)
    for name in client.names:
        WORLD("plain_dns", name=name, entry=None)
    start = time.monotonic()
    WORLD.box(*argv, data=text)
    took = time.monotonic() - start
    for name in client.names:
        WORLD("plain_dns", name=name, entry=WORLD.names[name])
    return took


class Allowed(SharedEgress):
    rules = sorted({r for c in CLIENTS.values() for r in c.rules})

    def check(self, client):
        r = try_in(self.sandbox, client)
        self.assertEqual(r.code, 0, r)
        self.assertIn(client.works, r.out)
        for name in client.names:
            self.logged(self.sandbox, name=name, verdict="allowed")
        self.assertLessEqual(client.names, self.asked())

    def test_log_for_people(self):
        """One line for each stream."""
        self.check(CLIENTS["curl"])
        text = hutch("egress", "log", self.sandbox).stdout.decode()
        self.assertRegex(text, r"(?m)^.*web\.hutch\.test.*93\.184\.216\.10.*443.*allowed.*$")
        self.assertEqual(sum("hutch.test" in line for line in text.splitlines()), len(log(self.sandbox)))

    def test_many_at_once(self):
        # A program starved of CPU time abandons its DNS query. In an emulated VM 40 clients share a
        # processor so slow that none sends its ClientHello within the limit of 30 s.
        n = 6 if MACHINE else 40
        r = run(self.sandbox, "sh", "-c", f"for i in $(seq {n}); do curl -sS https://web.hutch.test/ & done; wait",
                opts=("-e", f"RES_OPTIONS=timeout:{5 * PATIENCE}"))
        self.assertEqual((r.code, r.out), (0, "hello from web.hutch.test\n" * n), r)

    def test_ipv6_alone(self):
        box = self.box(["six.hutch.test", "both.hutch.test"])
        for name in ("six", "both"):
            r = run(box, "curl", "-sS", f"https://{name}.hutch.test/")
            self.assertEqual(r.out, f"hello from {name}.hutch.test\n", r)


class Denied(SharedEgress):
    """All tests share one sandbox: names allowed for one client are denied again for the next."""

    rules = [OTHER]

    def check(self, client):
        known = len(log(self.sandbox))
        took = self.fails_at_once(self.sandbox, client)
        self.assertEqual(client.names & self.asked(), set(), "looked up, though denied")
        for name in client.names:
            # Only the first of many denials in a second have a line of their own; the line for the
            # others comes a little later.
            denied = eventually(lambda n=name: [line for line in log(self.sandbox)[known:] if line["name"] == n and line["verdict"] == "denied"],
                                f"a line of the log about {name}")
            self.assertTrue(denied[0]["reason"], denied)
        for rule in client.rules:
            self.ended(hutch("egress", "allow", self.sandbox, rule), 0)
            self.addCleanup(hutch, "egress", "deny", self.sandbox, rule if ":" in rule else f"{rule}:443")
        r = try_in(self.sandbox, client)
        self.assertEqual(r.code, 0, r)
        self.assertIn(client.works, r.out)
        if MACHINE:  # may be emulated, unlike the plain box: compare with its time to succeed
            self.assertLess(took, SECONDS * PATIENCE + FACTOR * r.took)

    def fails_at_once(self, box, client):
        late = []
        while len(late) < TRIES:
            r = try_in(box, client)
            self.assertEqual(r.code, client.code, r)
            self.assertRegex(r.err + r.out, client.says)
            self.assertNotIn(client.works, r.out)
            usual = 0 if MACHINE else time_in_plain_box(client)
            if MACHINE or r.took < SECONDS + FACTOR * usual:
                return r.took
            late.append((r.took, usual))
        return self.fail(f"denied too late: {late}")

    def test_suggest(self):
        box = self.box([OTHER])
        self.assertNotEqual(try_in(box, CLIENTS["psql"]).code, 0)
        self.assertIn('- "db.hutch.test:443"', hutch("egress", "suggest", box).stdout.decode())

    def test_no_policy(self):
        """Row 68: an agent without egress reaches nothing and fails at once; no name can be
        allowed, and the error says why."""
        box = self.create("--agent", policy("egress-nothing"))
        r = run(box, "curl", "-sS", "https://web.hutch.test/")
        self.assertEqual(r.code, 6, r)
        self.assertIn(b"no network", self.ended(hutch("egress", "explain", box, "web.hutch.test:443"), 1).stdout)
        self.assertIn(b"has no network", self.ended(hutch("egress", "allow", box, "web.hutch.test"), 1).stderr)
        self.assertEqual(log(box), [])


for _name, _client in CLIENTS.items():
    for _class in (Allowed, Denied):
        setattr(_class, f"test_{_name}", lambda self, c=_client: self.check(c))
del _class  # otherwise its tests would be found again under this name
