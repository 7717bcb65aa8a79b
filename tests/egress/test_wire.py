# SPDX-License-Identifier: Apache-2.0
"""
Compares bytes on the wire with the log: the log reports all bytes in and out, and nothing else was
sent. EgressCase checks every packet after each test; these tests compare the sums.
"""

from boxes import WORLD, EgressCase, log, run
from sandbox import hutch

SEND = """
import socket, sys
s = socket.create_connection(('tcp.hutch.test', 7000))
for _ in range(64):
    s.sendall(b'x' * 4096)
s.shutdown(socket.SHUT_WR)
print(s.makefile().read())
"""


def payload(packets, address, port):
    """Returns (bytes out, bytes in) of all streams with that peer."""
    out = sum(p[8] for p in packets if p[0] == "out" and p[1] == "out" and p[5:7] == [address, port])
    back = sum(p[8] for p in packets if p[0] == "out" and p[1] == "in" and p[3:5] == [address, port])
    return out, back


class Wire(EgressCase):
    def test_the_log_has_every_byte(self):
        """Plain TCP: payloads add up to the bytes sent."""
        box = self.box(["tcp.hutch.test:7000"])
        r = run(box, "python3", "-c", SEND)
        self.assertEqual(r.out.strip(), str(64 * 4096), r)
        line = self.logged(box, over=True, name="tcp.hutch.test", port=7000, verdict="allowed")[0]
        found = WORLD("packets")["packets"]
        self.assertEqual((line["bytes_out"], line["bytes_in"]), (64 * 4096, len(f"{64 * 4096}\n")))
        self.assertEqual(payload(found, "93.184.216.21", 7000), (64 * 4096, len(f"{64 * 4096}\n")))

    def test_one_lookup_a_stream_and_nothing_without_one(self):
        """A name that gets an address inside is not looked up outside; a stream looks it up."""
        box = self.box([".deep.hutch.test:443", "web.hutch.test"])
        r = run(box, "getent", "ahostsv4", "secret.deep.hutch.test")
        self.assertRegex(r.out, r"^198\.1[89]\.")
        self.assertEqual(self.asked(), set())
        self.assertEqual(WORLD("packets")["packets"], [])
        self.assertEqual(run(box, "curl", "-sS", "https://web.hutch.test/").code, 0)
        self.assertEqual(self.asked(), {"web.hutch.test"})

    def test_nothing_at_start_and_end(self):
        box = self.box(["web.hutch.test"])
        run(box, "true")
        hutch("kill", box)
        self.assertEqual(WORLD("packets")["packets"], [])
        self.assertEqual(self.asked(), set())
        self.assertEqual(log(box), [])
