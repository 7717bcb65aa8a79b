# SPDX-License-Identifier: Apache-2.0
"""
Tests of the world itself: every client reaches its server from a box with a network device, and
fails with its usual message if the name does not exist. The tests of sandboxes depend on this. Run
by world.py, only as root.
"""

import re
import time
import unittest

from clients import clients, wrap
from outside import World
from waiting import quiet_for

WORLD = World()


class Clients(unittest.TestCase):
    """One test for each client: it fails, the name appears, it works."""

    def setUp(self):
        self.addCleanup(self.restore)

    def restore(self):
        for name, entry in WORLD.names.items():
            WORLD("plain_dns", name=name, entry=entry)

    def check(self, client):
        argv, text = wrap(client)
        for name in client.names:
            WORLD("plain_dns", name=name, entry=None)
        WORLD("web")
        start = time.monotonic()
        r = WORLD.box(*argv, data=text)
        took = time.monotonic() - start
        self.assertEqual(r.code, client.code, r)
        self.assertRegex(r.err + r.out, client.says)
        self.assertNotIn(client.works, r.out)
        self.assertEqual(WORLD("web"), {"requests": [], "connections": []})
        self.restore()
        r = WORLD.box(*argv, data=text)
        self.assertEqual(r.code, 0, r)
        self.assertIn(client.works, r.out)
        print(f"# {self.id()}: failed in {took:.2f} s", flush=True)


for client_name, client_ in clients(WORLD).items():
    setattr(Clients, f"test_{client_name}", lambda self, c=client_: self.check(c))


class Canaries(unittest.TestCase):
    """Canary and capture record every connection from a box with a network device."""

    def setUp(self):
        WORLD("canaries")
        WORLD("packets")
        WORLD("packets", where="internet")

    def test_every_address_and_port_is_a_canary(self):
        addresses = ("169.254.169.254", "10.0.0.1", "192.168.1.1", "100.100.100.200", "8.8.8.8", "168.63.129.16", "198.18.0.1", "93.184.217.66",
                     "fd00:ec2::254", "2606:4700:4700::1111", "64:ff9b::a00:1", "2002:a00:1::1")
        ports = (1, 22, 53, 80, 6379, 65535)
        r = WORLD.box("python3", "-c", f"""
import socket
for address in {addresses}:
    for port in {ports}:
        with socket.create_connection((address, port), 120) as s:
            s.sendall(b'hello')
            assert b'CANARY' in s.recv(999), (address, port)""")
        self.assertEqual(r.code, 0, r)
        self.assertEqual({c["to"] for c in WORLD("canaries")}, {f"[{a}]:{p}" if ":" in a else f"{a}:{p}" for a in addresses for p in ports})

    def test_udp(self):
        for where in ("8.8.8.8", "2606:4700:4700::1111"):
            r = WORLD.box("python3", "-c", f"""
import socket
s = socket.socket(socket.AF_INET6 if ':' in '{where}' else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(120)
s.sendto(b'by udp', ('{where}', 443))
print(s.recv(100))""")
            self.assertIn("CANARY", r.out, r)
            self.assertEqual([c["first"] for c in WORLD("canaries")], [b"by udp".hex()])
            seen = {(p[2], p[5], p[6]) for p in WORLD("packets", where="internet")["packets"] if p[1] == "in"}
            self.assertIn(("udp", where, 443), seen)

    def test_loopback_of_the_host(self):
        for where in ("127.0.0.1", WORLD.host[0], "[::1]"):
            r = WORLD.box("curl", "-sS", f"http://{where}:8080/", host=True)
            self.assertIn("CANARY", r.out, r)
            self.assertEqual(len(WORLD("canaries")), 1)

    def test_a_quiet_wire(self):
        """An idle wire is empty, so every packet on it was sent by a process under test."""
        def seen():
            found = WORLD("packets")
            return found["packets"] or found["lost"]

        quiet_for(3, seen, "on the wire")

    def test_every_packet_is_counted(self):
        r = WORLD.box("curl", "-sS", "--data-binary", "@-", "https://web.hutch.test/sink", data="x" * 100000, host=True)
        self.assertIn("100000", r.out, r)
        found = WORLD("packets")
        self.assertEqual(found["lost"], 0)
        sent = [p for p in found["packets"] if p[0] == "out" and p[1] == "out"]
        self.assertEqual({(p[2], p[5], p[6]) for p in sent}, {("tcp", "93.184.216.10", 443)})
        self.assertGreater(sent[0][8], 100000)
        self.assertEqual({(p[2], p[6]) for p in found["packets"] if p[0] == "lo" and p[6] < 1024}, {("udp", 53)})

    def test_marks(self):
        WORLD("mark", text="find-me-6a1f")
        WORLD.box("curl", "-sS", "http://web.hutch.test/find-me-6a1f", host=True)
        self.assertGreater(WORLD("marks")["find-me-6a1f"], 0)


class Resolver(unittest.TestCase):
    """Dishonest answers are as configured."""

    def lookup(self, name):
        r = WORLD.box("python3", "-c", f"""
import socket
try:
    print(sorted({{a[4][0] for a in socket.getaddrinfo('{name}', 443, proto=6)}}))
except OSError as e:
    print(type(e).__name__, e)""", host=True)
        self.assertEqual(r.code, 0, r)
        return r.out.strip()

    def entry(self, **entry):
        WORLD("dns", name="odd.hutch.test", entry=entry)
        self.addCleanup(WORLD, "dns", name="odd.hutch.test", entry=None)
        return self.lookup("odd.hutch.test")

    def test_answers(self):
        self.assertEqual(self.lookup("web.hutch.test"), "['93.184.216.10']")
        self.assertEqual(self.lookup("both.hutch.test"), "['2606:2800:220:1::10', '93.184.216.10']")
        self.assertEqual(self.lookup("x.deep.hutch.test"), "['93.184.216.18']")
        self.assertIn("gaierror", self.lookup("nobody.hutch.test"))
        self.assertIn("nobody.hutch.test", WORLD.asked())

    def test_rebinding(self):
        self.assertEqual(self.entry(a=["93.184.216.10"], ttl=0, then={"a": ["10.0.0.1"], "ttl": 0}), "['93.184.216.10']")
        self.assertEqual(self.lookup("odd.hutch.test"), "['10.0.0.1']")

    def test_cname(self):
        self.assertEqual(self.entry(cname="web.hutch.test"), "['93.184.216.10']")

    def test_truncated(self):
        self.assertEqual(self.entry(a=["93.184.216.10"], truncated=True), "['93.184.216.10']")
        self.assertIn("tcp", {how for _, _, _, how in WORLD("asked")})

    def test_wrong_answers(self):
        for wrong in ("id", "garbage"):
            self.assertTrue(re.match("gaierror", self.entry(a=["93.184.216.10"], wrong=wrong)), wrong)

    def test_errors(self):
        self.assertIn("gaierror", self.entry(rcode=2))
        self.assertIn("gaierror", self.entry(rcode=5))


def tearDownModule():
    WORLD.close()
