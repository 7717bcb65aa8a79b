# SPDX-License-Identifier: Apache-2.0
"""
Real sandboxes in the test's internet, and checks that apply to all of them. After each test every
packet that left the host must belong to a stream in `hutch egress log`, no canary was reached, and
no denied name was looked up.
"""

import ipaddress
import json
import os
import time
from types import SimpleNamespace

from outside import World
from sandbox import PATIENCE, SandboxCase, agent, create, hutch
from waiting import LONG, eventually

RESOLVER = "127.0.0.1:53"
# Reasons and verdicts of src/egress/broker-report.c and src/names/why.c, as these tests name them.
VERDICTS = {"allow": "allowed", "end": "allowed", "deny": "denied"}
BY_RULES = ("not allowed by the policy", "denied by a rule added", "narrowed by an API client")
WORLD = World()
os.environ["HUTCH_RESOLVER"] = RESOLVER


def policy(name, domains=(), deny=(), more=""):
    """Writes an agent file with these rules."""
    lists = {"domains": domains, "deny": deny}
    text = "".join(f"  {key}: {json.dumps(list(rules))}\n" for key, rules in lists.items() if rules)
    return agent(name, f"egress:\n{text}{more}" if text or more else "")


def run(sandbox, *argv, data="", opts=(), timeout=LONG * PATIENCE):
    """Runs a command in a sandbox: .code, .out, .err, .took"""
    start = time.monotonic()
    r = hutch("exec", "-i", *opts, sandbox, "--", *argv, input=data.encode("latin-1"), timeout=timeout)
    return SimpleNamespace(code=r.returncode, out=r.stdout.decode("latin-1"), err=r.stderr.decode("latin-1"), took=time.monotonic() - start)


def log(sandbox):
    """Returns the streams of a sandbox as dictionaries."""
    r = hutch("egress", "log", "--json", sandbox)
    if r.returncode != 0:
        raise AssertionError(f"hutch egress log: {r.stderr.decode()}")
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    return [{**line, "verdict": VERDICTS.get(line["verdict"], line["verdict"])} for line in lines]


def put(sandbox):
    """Copies the tests' own programs into a sandbox, where clients.py expects them."""
    for name in ("DIAL", "DIAL_MUSL"):
        with open(os.environ[name], "rb") as f:
            r = hutch("exec", "-i", sandbox, "--", "sh", "-c", f"cat >/tmp/{name.lower()} && chmod 755 /tmp/{name.lower()}", stdin=f)
        if r.returncode != 0:
            raise AssertionError(r.stderr.decode())


class EgressCase(SandboxCase):
    """After each of these tests everything on the wire is accounted for."""

    sandboxes = ()  # shared by the class
    private = ()  # non-public addresses that the test expects

    def setUp(self):
        super().setUp()
        self.own, self.accounted = [], False
        for what in ("canaries", "packets", "web", "asked"):
            WORLD(what)
        self.heard = set()  # names that the resolver was asked for

    def box(self, domains=(), deny=(), more="", name=None):
        """Makes a sandbox with these rules for this test."""
        made = policy(name or f"egress-{len(self.own)}", domains, deny, more)
        sandbox = self.create("--agent", made)
        self.own.append(sandbox)
        return sandbox

    def create(self, *opts, **more):
        # account_once() needs the logs, so it must run before any sandbox is removed. Cleanups run
        # in reverse order, and only the first call has an effect.
        sandbox = super().create(*opts, **more)
        self.addCleanup(self.account_once)
        return sandbox

    def asked(self):
        self.heard |= WORLD.asked()
        return self.heard

    def account_once(self):
        if not self.accounted:
            self.accounted = True
            self.account()

    def account(self):
        """Checks that each packet belongs to the resolver or to an allowed stream."""
        found = WORLD("packets")
        self.assertEqual(found["lost"], 0)
        streams, dialled = self.streams({tuple(p[5:7]) for p in found["packets"] if p[:3] == ["out", "out", "tcp"]})
        for packet in found["packets"]:
            self.account_packet(packet, dialled)
        denied = {line["name"] for line in streams if line["verdict"] == "denied" and line["reason"].startswith(BY_RULES)}
        allowed = {line["name"] for line in streams if line["verdict"] == "allowed"}
        self.assertEqual((denied - allowed) & self.asked(), set(), "looked up, though denied")
        self.assertEqual({n for n in self.asked() if n.endswith("canary.test")}, set())
        self.assertEqual(WORLD("canaries"), [])

    def streams(self, peers):
        """Returns all lines and the addresses they name. The log has a stream's address once it
        ends, which may take a moment."""
        streams, dialled = [], set()

        def told():
            streams[:] = [line for s in (*self.sandboxes, *self.own) for line in log(s)]
            dialled.update((line["address"].strip("[]"), int(line["proxy"].rpartition(":")[2]) if "proxy" in line else line["port"])
                           for line in streams if line.get("address"))
            return peers <= dialled

        eventually(told, "lines of the log for all that was dialled", also=lambda: (peers - dialled, streams))
        return streams, dialled

    def account_packet(self, packet, dialled):
        device, way, proto, src, sport, dst, dport, count, size = packet
        if device == "lo" and 53 in (sport, dport) and {src, dst} == {"127.0.0.1"} and proto in ("udp", "tcp"):
            return
        if device == "lo" and proto == "icmp" and {src, dst} == {"127.0.0.1"}:
            return  # ICMP error to the resolver: the asking sandbox had ended
        what = f"{count} packets, {size} bytes: {device} {way} {proto} {src} {sport} > {dst} {dport}"
        peer = (dst, dport) if way == "out" else (src, sport)
        self.assertEqual((device, proto), ("out", "tcp"), what)
        self.assertIn(peer, dialled, what)
        self.assertTrue(ipaddress.ip_address(peer[0]).is_global or peer[0] in self.private, what)

    def logged(self, sandbox, over=False, **wanted):
        """Waits for a log line with these values; with `over`, for a line of an ended stream."""
        def look():
            return [line for line in log(sandbox) if all(str(line.get(k)) == str(v) for k, v in wanted.items())
                    and (not over or "bytes_out" in line)]
        return eventually(look, f"a line with {wanted} in the log of {sandbox}")


class SharedEgress(EgressCase):
    """These tests share one sandbox with these rules."""

    rules = ()

    @classmethod
    def setUpClass(cls):
        cls.sandbox = create("--agent", policy("egress-shared", cls.rules))
        cls.sandboxes = (cls.sandbox,)
        put(cls.sandbox)

    @classmethod
    def tearDownClass(cls):
        hutch("rm", "-f", cls.sandbox)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.account_once)
