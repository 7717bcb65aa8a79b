# SPDX-License-Identifier: Apache-2.0
"""
The same world with a sandbox in a VM: the VM's own kernel catches outgoing connections and asks.
Packets and log must be the same as for a container. HUTCH_TEST_KERNEL is a directory with the
package of Debian's cloud kernel.
"""

import os
import unittest

from boxes import WORLD, SharedEgress, log, policy, run
from sandbox import create, hutch
from test_wire import SEND, payload

START = 300  # seconds: the VM may be emulated
BANNER = "import socket; print(socket.create_connection(('tcp.hutch.test', 25)).recv(3).decode())"
REQUESTS = "import requests; print(requests.get('https://web.hutch.test/').status_code)"
REFUSED = """
import socket
for host in ('93.184.217.66', '127.0.0.1', '10.0.0.1', '169.254.169.254'):
    try:
        socket.create_connection((host, 443), 120)
        print('reached', host)
    except OSError:
        pass
s = socket.create_connection(('127.0.0.1', 3128))
s.sendall(b'CONNECT www.canary.test:443 HTTP/1.1\\r\\n\\r\\n')
print(s.recv(12).decode())
"""


@unittest.skipUnless(os.environ.get("HUTCH_TEST_KERNEL"), "HUTCH_TEST_KERNEL is not set")
class Machine(SharedEgress):
    rules = ("web.hutch.test", "tcp.hutch.test:7000", "tcp.hutch.test:25", "93.184.216.21:7000")

    @classmethod
    def setUpClass(cls):
        r = hutch("image", "kernel", "--from", os.environ["HUTCH_TEST_KERNEL"], timeout=START)
        if r.returncode != 0:
            raise AssertionError(r.stderr.decode())
        cls.sandbox = create("--level", "microvm", "--memory", "512MiB", "--agent", policy("egress-machine", cls.rules), timeout=START)
        cls.sandboxes = (cls.sandbox,)

    def python(self, program):
        return run(self.sandbox, "python3", "-c", program)

    def test_clients(self):
        """curl and requests with complete TLS sessions, and a server that speaks first."""
        r = run(self.sandbox, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://web.hutch.test/")
        self.assertEqual((r.code, r.out), (0, "200"), r)
        self.assertEqual(self.python(REQUESTS).out, "200\n")
        self.assertEqual(len(self.python(BANNER).out.strip()), 3)
        self.logged(self.sandbox, over=True, name="web.hutch.test", port=443, verdict="allowed")

    def test_the_log_has_every_byte(self):
        WORLD("packets")
        for host in ("tcp.hutch.test", "93.184.216.21"):
            r = self.python(SEND.replace("tcp.hutch.test", host))
            self.assertEqual(r.out.strip(), str(64 * 4096), r)
            line = self.logged(self.sandbox, over=True, name=host, port=7000, verdict="allowed")[0]
            self.assertEqual((line["bytes_out"], line["bytes_in"]), (64 * 4096, len(f"{64 * 4096}\n")))
        found = WORLD("packets")["packets"]
        self.assertEqual(payload(found, "93.184.216.21", 7000), (2 * 64 * 4096, 2 * len(f"{64 * 4096}\n")))

    def test_denied(self):
        """By name, by address and by proxy: nothing is looked up and nothing goes out, as the
        canaries show."""
        r = run(self.sandbox, "curl", "-sS", "https://www.canary.test/")
        self.assertEqual(r.code, 6, r)
        self.assertEqual(self.python(REFUSED).out, "HTTP/1.1 403\n")
        self.assertEqual(WORLD("packets")["packets"], [])
        denied = [(line["name"], line.get("port")) for line in log(self.sandbox) if line["verdict"] == "denied"]
        self.assertIn(("www.canary.test", 443), denied)
        self.assertEqual({name for name, _ in denied}, {"www.canary.test"})

    def test_first_bytes(self):
        """A connection to an allowed name that asks for another one."""
        r = run(self.sandbox, "curl", "-sS", "-k", "--connect-to", "other.hutch.test:443:web.hutch.test:443", "https://other.hutch.test/")
        self.assertNotEqual(r.code, 0)
        self.logged(self.sandbox, name="web.hutch.test", port=443, verdict="denied")
