# SPDX-License-Identifier: Apache-2.0
"""
A compromised keeper (taken.c: the real one, which obeys the sandbox) dials from the host's network.
The kernel's guard lets it reach addresses that the policy could allow, and no special-purpose
address unless a rule names it. The tests check what listeners received; each try reaches one in a
control without the guard.
"""

import contextlib
import ipaddress
import itertools
import os
import socket
from pathlib import Path

from boxes import WORLD, policy, run
from sandbox import RUN, SandboxCase, as_root, create, hutch
from waiting import eventually

WEB, WEB6 = "93.184.216.10", "2606:2800:220:1::10"
OTHER = "93.184.217.66"  # public, and a canary
HOST, HOST6 = WORLD.host
# On port 443, which the policy allows, so that only the address is a reason to refuse.
SPECIAL = {"loopback": "127.0.0.1", "another loopback": "127.8.8.8", "metadata": "169.254.169.254", "private": "10.20.30.41", "private too": "192.168.1.1",
           "shared": "100.64.0.1", "link-local": "169.254.7.7", "reserved": "198.18.0.1", "loopback of IPv6": "::1", "unique local": "fd00::1",
           "loopback mapped": "::ffff:127.0.0.1", "metadata mapped": "::ffff:169.254.169.254", "private mapped": "::ffff:10.20.30.41",
           "NAT64": "64:ff9b::a9fe:a9fe", "6to4": "2002:7f00:1::1", "this host": "0.0.0.0", "this host of IPv6": "::"}
HERE = {"an address of the host": HOST, "one of IPv6": HOST6}
NO_SOCKET = ("raw", "ping", "sctp", "mptcp", "udplite")


def hexed(address):
    return ipaddress.ip_address(address).packed.hex()


@as_root
class Taken(SandboxCase):
    counter = itertools.count()

    def setUp(self):
        super().setUp()
        for what in ("canaries", "web"):
            WORLD(what)

    @contextlib.contextmanager
    def keeper(self, mode):
        """Runs hutch with that keeper."""
        with self.instead_of("keeper", Path(os.environ["TAKEN"]), mode.encode()):
            yield

    @contextlib.contextmanager
    def box(self, mode="", rules=("web.hutch.test:443",)):
        with self.keeper(mode):
            box = create("--agent", policy("egress-taken", rules))
            try:
                yield box
            finally:
                hutch("rm", "-f", box)

    def log(self, box):
        return (RUN / "sandboxes" / box / "log").read_text()

    def deed(self, box, what, address="0.0.0.0", port=443):
        """Performs an action and returns its result: "ok" or the name of an error."""
        name = f"{next(self.counter)}.{what}.{hexed(address)}.{port}.taken.test"
        run(box, "getent", "ahostsv4", name)
        line = eventually(lambda: [x for x in self.log(box).splitlines() if x.startswith(f"taken: {name}: ")], f"{what} to {address}",
                          also=lambda: self.log(box))
        return line[0].rpartition(" ")[2]

    def heard(self):
        """Returns what a forbidden listener received."""
        return eventually(lambda: WORLD("canaries"), "a canary that was reached")

    def unheard(self, box):
        """Checks that no listener received anything: earlier packets would arrive before this
        connection."""
        self.assertEqual(self.deed(box, "tcp", WEB), "ok")
        eventually(lambda: WORLD("web")["connections"], "the connection that is allowed")
        self.assertEqual(WORLD("canaries"), [])

    # ---- the guard ----
    def test_the_keeper_that_is_shipped_does_not_obey(self):
        self.assertTrue(b"taken.test" in Path(os.environ["TAKEN"]).read_bytes())
        self.assertFalse(b"taken.test" in Path(os.environ["HUTCH_KEEPER"]).read_bytes())

    def test_what_is_allowed(self):
        with self.box() as box:
            for address in (WEB, WEB6, f"::ffff:{WEB}"):
                self.assertEqual(self.deed(box, "tcp", address), "ok")
                eventually(lambda: WORLD("web")["connections"], f"a connection to {address}")
            self.assertEqual(self.deed(box, "fast", WEB), "ok")
            eventually(lambda: WORLD("web")["connections"], "a fast connection")
            self.assertEqual(run(box, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://web.hutch.test/").out, "200")

    def test_special_addresses(self):
        with self.box() as box:
            for name, address in SPECIAL.items():
                for what in ("tcp", "fast"):
                    with self.subTest(name=name, what=what):
                        self.assertEqual(self.deed(box, what, address), "EPERM")
            self.unheard(box)

    def test_control_special_addresses(self):
        with self.box("unguarded") as box:
            for name in ("loopback", "metadata", "private", "link-local", "loopback of IPv6", "unique local", "loopback mapped", "this host"):
                for what in ("tcp", "fast"):
                    with self.subTest(name=name, what=what):
                        self.assertEqual(self.deed(box, what, SPECIAL[name]), "ok")
                        self.heard()

    def test_the_hosts_own_addresses(self):
        """They are public and yet local to the host: only a packet shows that."""
        with self.box() as box:
            for address in HERE.values():
                self.assertEqual(self.deed(box, "tcp", address), "ETIMEDOUT")
            self.unheard(box)
        with self.box("unguarded") as box:
            for address in HERE.values():
                self.assertEqual(self.deed(box, "tcp", address), "ok")
                self.heard()

    def test_ports(self):
        with self.box() as box:
            for port in (22, 80, 444, 8080):
                self.assertEqual(self.deed(box, "tcp", WEB, port), "EPERM")
            self.unheard(box)
        with self.box("unguarded") as box:
            self.assertEqual(self.deed(box, "tcp", WEB, 444), "ok")
            self.heard()

    def test_udp(self):
        with self.box() as box:
            for address in (WEB, WEB6, OTHER, "127.0.0.1", "10.20.30.41"):
                for port in (443, 53, 8053):
                    if (address, port) != ("127.0.0.1", 53):  # the resolver of this world
                        self.assertEqual(self.deed(box, "udp", address, port), "EPERM", (address, port))
            self.assertEqual(self.deed(box, "connected", WEB), "EPERM")
            self.assertEqual(self.deed(box, "redirect", "10.20.30.41"), "EPERM")
            self.assertEqual(self.deed(box, "udp", "127.0.0.1", 53), "ok")
            self.unheard(box)
        with self.box("unguarded") as box:
            for what, address in (("udp", OTHER), ("connected", WEB), ("redirect", "10.20.30.41")):
                self.assertEqual(self.deed(box, what, address), "ok")
                self.heard()

    # ---- with every privilege that the keeper drops by itself ----
    def test_bare_special_addresses(self):
        with self.box("bare") as box:
            for name in ("loopback", "metadata", "private", "loopback of IPv6", "loopback mapped"):
                self.assertEqual(self.deed(box, "tcp", SPECIAL[name]), "EPERM", name)
            self.unheard(box)

    def test_bare_other_protocols(self):
        with self.box("bare") as box:
            for what in NO_SOCKET:
                with self.subTest(what=what):
                    # The kernel refuses protocols it lacks, or denies to this group, before it asks
                    # the guard.
                    self.assertIn(self.deed(box, what, WEB), ("EPERM", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EACCES"))
            self.assertEqual(self.deed(box, "raw", WEB), "EPERM")
            self.unheard(box)
        with self.box("bare unguarded") as box:
            self.assertEqual(self.deed(box, "raw", WEB), "ok")

    def test_bare_bind(self):
        with self.box("bare") as box:
            for address, port in (("0.0.0.0", 0), ("0.0.0.0", 8443), ("127.0.0.1", 0), ("::", 8443), ("::1", 0)):
                self.assertEqual(self.deed(box, "bind", address, port), "EPERM")
        with self.box("bare unguarded") as box:
            self.assertEqual(self.deed(box, "bind", "0.0.0.0", 8443), "ok")

    def listens(self, box):
        self.assertEqual(self.deed(box, "listen"), "ok")
        [line] = [x for x in self.log(box).splitlines() if x.startswith("taken: listens on ")]
        return int(line.rpartition(" ")[2])

    def test_bare_listener(self):
        """A socket can listen without bind(); connections to it are dropped."""
        with self.box("bare") as box:
            with self.assertRaises(TimeoutError):
                socket.create_connection(("127.0.0.1", self.listens(box)), timeout=1)
            self.assertEqual(self.deed(box, "accept"), "EAGAIN")
        with self.box("bare unguarded") as box:
            with socket.create_connection(("127.0.0.1", self.listens(box)), timeout=60):
                self.assertEqual(self.deed(box, "accept"), "ok")

    # ---- addresses that rules open ----
    def test_named_addresses(self):
        with self.box(rules=("web.hutch.test:443", "127.0.0.1:8080", "10.20.0.0/16:443", "git.corp.test:8443/private")) as box:
            for address, port, want in (("127.0.0.1", 8080, "ok"), ("127.0.0.2", 8080, "EPERM"), ("127.0.0.1", 443, "EPERM"), ("10.20.30.41", 443, "ok"),
                                        ("10.21.30.41", 443, "EPERM"), ("10.21.30.41", 8443, "ok"), ("fd00::1", 8443, "ok"), ("127.0.0.1", 8443, "EPERM"),
                                        ("169.254.169.254", 8443, "EPERM"), ("100.64.0.1", 8443, "EPERM")):
                with self.subTest(address=address, port=port):
                    self.assertEqual(self.deed(box, "tcp", address, port), want)
                    if want == "ok":
                        self.heard()
            self.unheard(box)

    def test_rules_that_are_added(self):
        """Rules come from the operator: a keeper that adds some to itself gains nothing."""
        with self.box() as box:
            self.assertEqual(self.deed(box, "tcp", "10.20.30.41", 8443), "EPERM")
            self.ended(hutch("egress", "allow", box, "git.corp.test:8443/private"), 0)
            self.assertEqual(self.deed(box, "tcp", "10.20.30.41", 8443), "ok")
            self.heard()
            self.assertEqual(self.deed(box, "tcp", "127.0.0.1", 8443), "EPERM")
            self.assertEqual(self.deed(box, "tcp", "127.0.0.1", 8080), "EPERM")
            self.ended(hutch("egress", "allow", box, "127.0.0.1:8080"), 0)
            self.assertEqual(self.deed(box, "tcp", "127.0.0.1", 8080), "ok")
            self.heard()
            self.unheard(box)

    def test_nothing_allowed(self):
        """Without any allowed egress there is no DNS to ask through; the keeper cannot make a
        socket, and its group could not use one."""
        box = self.create("--agent", policy("egress-nothing"))
        [row] = [r for r in self.json("receipt", "--json", box)["layers"] if r["name"] == "dial-guard"]
        self.assertTrue(row["enforced"], row)
