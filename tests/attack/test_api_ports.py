# SPDX-License-Identifier: Apache-2.0
"""
Programs in a sandbox that send invalid HTTP on a port. The client gets one answer or an error, and
no byte of the program appears in an answer to another request, even over the same connection. The
programs see no credential.
"""

import json
import socket

from api import DOMAIN, ApiCase, Answers, read_all, request, send_all
from sandbox import hutch, start
from waiting import LONG, eventually, steady

POISON = b"POISON"
SECOND = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Poison: POISON\r\n\r\nPOISON"
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FLOOD = 100_000

# Sends the bytes of a file to each connection. Records the request, and notes when all bytes were
# sent or refused.
SERVER = """
import os, socket, sys, threading
def serve(s):
    data = b''
    while b'\\r\\n\\r\\n' not in data:
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    with open('/tmp/asked', 'ab') as f:
        f.write(data)
    try:
        try:
            s.sendall(open('/tmp/answer', 'rb').read())
            s.shutdown(socket.SHUT_WR)
        finally:
            open('/tmp/served', 'w').close()
        while s.recv(65536):
            pass
    except OSError:
        pass
    s.close()
l = socket.create_server(('127.0.0.1', 3000), backlog=64)
print('ready', flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""
# (the program's answer, statuses that the client may see)
ANSWERS = {
    "two answers": (WELL + SECOND, (200,)),
    "two answers in chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + SECOND, (200,)),
    "more than its length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloPOISON", (200,)),
    "204 with contents": (b"HTTP/1.1 204 No\r\nContent-Length: 6\r\n\r\n" + SECOND, (204,)),
    "304 with contents": (b"HTTP/1.1 304 No\r\n\r\n" + SECOND, (304,)),
    "no length and more": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + SECOND, (200,)),
    "both lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND, (502,)),
    "both, the other way round": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SECOND, (502,)),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + SECOND, (502,)),
    "a list of lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello" + SECOND, (502,)),
    "a negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello" + SECOND, (502,)),
    "a length of 2^64+5": (b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello" + SECOND, (502,)),
    "xchunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SECOND, (502,)),
    "a fold": (b"HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Length: 5\r\n\r\nhello" + SECOND, (502,)),
    "a blank before the colon": (b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello" + SECOND, (502,)),
    "LF": (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello" + SECOND, (502,)),
    "a line that ends in LF": (b"HTTP/1.1 200 OK\r\nX-A: b\nX-Poison: POISON\r\nContent-Length: 5\r\n\r\nhello", (502,)),
    "CR in a value": (b"HTTP/1.1 200 OK\r\nX-A: b\rX-Poison: POISON\r\nContent-Length: 5\r\n\r\nhello", (502,)),
    "NUL in a value": (b"HTTP/1.1 200 OK\r\nX-A: b\0POISON\r\nContent-Length: 5\r\n\r\nhello", (502,)),
    "no status": (b"HTTP/1.1 OK\r\n\r\n" + SECOND, (502,)),
    "status 99": (b"HTTP/1.1 099 OK\r\n\r\n" + SECOND, (502,)),
    "status 1000": (b"HTTP/1.1 1000 OK\r\n\r\n" + SECOND, (502,)),
    "HTTP/2": (b"HTTP/2.0 200 OK\r\n\r\n" + SECOND, (502,)),
    "no HTTP": (b"SSH-2.0-POISON\r\n\r\n", (502,)),
    "nothing": (b"", (502,)),
    "half a head": (b"HTTP/1.1 200 OK\r\nX-Poison: POISON", (502,)),
    "a head of 200 kB": (b"HTTP/1.1 200 OK\r\nX-A: " + b"POISON" * 33_000 + b"\r\n\r\n", (502,)),
    "10,000 fields": (b"HTTP/1.1 200 OK\r\n" + b"X-Poison: POISON\r\n" * 10_000 + b"\r\n", (502,)),
    "100 Continue, often": (b"HTTP/1.1 100 Continue\r\nX-Poison: POISON\r\n\r\n" * 20_000 + WELL, (502,)),
    "103, often and large": ((b"HTTP/1.1 103 Early\r\nX-A: " + b"a" * 30_000 + b"\r\n\r\n") * 50 + WELL, (502,)),
    "100 and 103": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX-Poison: POISON\r\n\r\n" + WELL, (200,)),
    "101 that was not asked for": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + SECOND, (502,)),
}
# A valid head with an invalid body: the connection ends in the middle.
CUT = {
    "less than its length": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
    "a chunk that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloPOISON\r\n0\r\n\r\n" + SECOND,
    "a chunk with a sign": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n" + SECOND,
    "a chunk of 2^64-1": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + SECOND,
    "no last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
}


class TestPorts(ApiCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.serve(cls.box)

    @classmethod
    def serve(cls, box):
        p = start("exec", box.id, "--", "python3", "-c", SERVER, stdout=-1)
        cls.addClassCleanup(p.stdout.close)
        cls.addClassCleanup(p.wait, LONG)
        cls.addClassCleanup(hutch, "rm", "-f", box.id)
        if p.stdout.readline() != b"ready\n":
            raise AssertionError("no server in the sandbox")

    def answer(self, data, box=None):
        """Sets the program's answer from now on."""
        box = box or self.box
        r = hutch("exec", "-i", box.id, "--", "sh", "-c", "cat > /tmp/new && mv /tmp/new /tmp/answer && rm -f /tmp/asked /tmp/served", input=data)
        self.assertEqual(r.returncode, 0, r.stderr)

    def asked(self):
        return self.inside("cat /tmp/asked").encode()

    def get(self, *fields, method="GET", target="/x"):
        return request(method, target, *self.box.fields(3000), *fields)

    def followed(self, data=None):
        """Asks for the port, and then, over the same connection, for the other sandbox and for
        the control plane."""
        others = request("GET", "/files?path=/etc/motd&username=user", *self.others.fields(), ("X-Access-Token", self.others.token))
        api = request("GET", "/sandboxes", ("X-API-Key", self.daemon.keys["user"]), ("Connection", "close"))
        with self.daemon.connect() as s:
            send_all(s, data or self.get())
            got = b""
            while b"\r\n\r\n" not in got:
                piece = s.recv(65536)
                if not piece:
                    break
                got += piece
            # Surplus bytes are on their way before the next request is sent.
            eventually(lambda: self.inside("ls /tmp").split().count("served"), "the end of the program's answer")
            send_all(s, others)
            send_all(s, api)
            return Answers(got + read_all(s))

    def check(self, statuses):
        answers = self.followed()
        self.assertIn(answers.statuses[:1], [[s] for s in statuses], answers.list[:1])
        self.assertNotIn(POISON, answers.rest)
        if len(answers.list) > 1:
            self.assertEqual(answers.statuses[1:], [200, 200], answers.list[1:])
            self.assertEqual(answers.list[1][2], b"the image\n")
            self.assertIn(self.box.id, [one["sandboxID"] for one in json.loads(answers.list[2][2])])
        for status, fields, body in answers.list[1:]:
            self.assertNotIn(POISON, body)
            self.assertNotIn("x-poison", fields)
        return answers

    def test_control_a_right_answer(self):
        self.answer(WELL)
        answers = self.check((200,))
        self.assertEqual((answers.list[0][2], len(answers.list), answers.rest), (b"hello", 3, b""))

    def test_answers(self):
        for name, (data, statuses) in ANSWERS.items():
            with self.subTest(name):
                self.answer(data)
                first = self.check(statuses).list[0]
                self.assertNotIn("x-poison", first[1])
                if first[0] == 200:
                    self.assertIn(first[2], (b"hello", b""))
        self.is_well()

    def test_answers_that_stop_in_the_middle(self):
        for name, data in CUT.items():
            with self.subTest(name):
                self.answer(data)
                with self.daemon.connect() as s:
                    send_all(s, self.get() + request("GET", "/sandboxes", ("X-API-Key", self.daemon.keys["user"]),
                                                   ("Connection", "close")))
                    got = read_all(s)
                self.assertNotIn(b"sandboxID", got, "the connection ended with it")
                self.assertFalse(got.endswith(b"0\r\n\r\n"), "it does not look complete")
                self.assertNotIn(b"X-Poison: POISON", got.split(b"\r\n\r\n")[0])
        self.is_well()

    def test_fields_about_connections_are_ours(self):
        self.answer(b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-A\r\nKeep-Alive: timeout=9999\r\nTE: x\r\nTrailer: X-API-Key\r\n"
                    b"Upgrade: h2c\r\nProxy-Connection: x\r\nAlt-Svc: h2=\"evil.example\"\r\nX-B: c\r\nContent-Length: 5\r\n\r\nhello")
        fields = self.check((200,)).list[0][1]
        self.assertEqual(fields.get("x-b"), "c", "control: others pass")
        for name in ("keep-alive", "te", "trailer", "upgrade", "proxy-connection", "alt-svc", "connection"):
            self.assertNotIn(name, fields)

    def test_programs_see_no_credential(self):
        traffic = "0" * 40
        secrets = [("X-API-Key", self.daemon.keys["user"]), ("X-Access-Token", self.box.token), ("E2b-Traffic-Access-Token", traffic),
                   ("e2b-other", "secret-of-e2b"), ("Proxy-Authorization", "Basic c2VjcmV0"),
                   ("Authorization", f"Bearer {self.daemon.keys['admin']}")]
        self.answer(WELL)
        for way in (self.get(*secrets), request("GET", "/x", *secrets, host=f"3000-{self.box.id}.{DOMAIN}"),
                    self.get(*secrets, ("Upgrade", "websocket"), ("Connection", "Upgrade, X-API-Key"))):
            with self.daemon.connect() as s:
                s.sendall(way)
                self.assertTrue(s.recv(65536).startswith(b"HTTP/1.1 200"))
        seen = self.asked()
        self.assertEqual(seen.count(b"GET /x HTTP/1.1\r\n"), 3, seen)
        for name, value in secrets:
            self.assertNotIn(value.encode(), seen)
            if name != "Authorization":
                self.assertNotIn(name.lower().encode(), seen.lower())
        self.answer(WELL)
        with self.daemon.connect() as s:
            s.sendall(self.get(("Authorization", "Bearer of-the-program"), ("Cookie", "a=b"), ("X-Other", "c")))
            s.recv(65536)
        for own in (b"Bearer of-the-program", b"a=b", b"X-Other: c"):
            self.assertIn(own, self.asked(), "control: what is for the program comes")

    def test_requests_are_one_request(self):
        """Nothing in a request becomes a second request to the program."""
        self.answer(WELL)
        for data in (self.get(target="/x%0d%0aX-Smuggled:%201"), self.get(("X-A", "b\r X-Smuggled: 1")),
                     self.get(("Content-Length", "5"), ("Transfer-Encoding", "chunked")) + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"):
            answers = self.daemon.raw(data)
            self.assertEqual((answers.statuses, answers.rest), ([400], b""))
        chunked = b"POST /x HTTP/1.1\r\nHost: x\r\n" + "".join(f"{n}: {v}\r\n" for n, v in self.box.fields(3000)).encode()
        with self.daemon.connect() as s:
            s.sendall(chunked + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
            self.assertTrue(s.recv(65536).startswith(b"HTTP/1.1 200"), "control")
        seen = self.asked()
        self.assertNotIn(b"muggled", seen)
        self.assertEqual(seen.count(b"HTTP/1.1\r\n"), 1)

    def test_websockets(self):
        upgrade = (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "eA=="))
        self.answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-B: c\r\n\r\n" + SECOND)
        with self.daemon.connect() as s:
            send_all(s, self.get(*upgrade))
            got = read_all(s)
        head, rest = got.split(b"\r\n\r\n", 1)
        self.assertTrue(head.startswith(b"HTTP/1.1 101 "), head)
        self.assertEqual(rest, SECOND, "control: a stream, and what came with its head is the first of it")
        # An upgrade request with an ordinary answer, and the reverse, where no stream follows.
        self.answer(WELL)
        with self.daemon.connect() as s:
            send_all(s, self.get(*upgrade) + request("GET", "/health", ("Connection", "close")))
            self.assertEqual(Answers(read_all(s)).statuses, [200, 200])
        self.answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nPOISON POISON POISON\r\n\r\n")
        answers = self.check((502,))
        self.assertNotIn(POISON, answers.list[0][2])

    def test_an_upgrade_is_for_its_sandbox_alone(self):
        """After 101 all bytes go to the program, also those that look like a request to hutchd."""
        self.answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        with self.daemon.connect() as s:
            send_all(s, self.get(("Upgrade", "x"), ("Connection", "Upgrade")))
            self.assertTrue(s.recv(65536).startswith(b"HTTP/1.1 101"))
            send_all(s, request("GET", "/sandboxes", ("X-API-Key", self.daemon.keys["user"])))
            s.shutdown(socket.SHUT_WR)
            self.assertNotIn(b"sandboxID", read_all(s))

    def test_ports_that_are_none(self):
        token = ("X-Access-Token", self.box.token)
        for port in ("0", "-1", "65536", "80 80", "0x50", "3000.0", "", "+3000", "99999999999999999999", "3000,3000", "\u0663"):
            with self.subTest(port):
                data = "GET /sandboxes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" \
                       f"E2b-Sandbox-Id: {self.box.id}\r\nE2b-Sandbox-Port: {port}\r\n\r\n"
                self.assertEqual(self.daemon.raw(data.encode()).statuses, [400])
        for host in (f"0-{self.box.id}", f"65536-{self.box.id}", f"99999-{self.box.id}", f"-1-{self.box.id}", f"3000-3000-{self.box.id}"):
            with self.subTest(host):
                answers = self.daemon.raw(request("GET", "/sandboxes", ("Connection", "close"), host=f"{host}.{DOMAIN}"))
                self.assertIn(answers.statuses, ([400], [421], [502]))
        # The port for files and commands does not belong to the sandbox, in any spelling, and needs
        # its token.
        for port in ("49983", "049983"):
            fields = (("E2b-Sandbox-Id", self.box.id), ("E2b-Sandbox-Port", port), ("Connection", "close"))
            self.assertIn(self.daemon.raw(request("GET", "/envs", *fields)).statuses, ([401], [400]))
        answers = self.daemon.raw(request("GET", "/envs", ("Connection", "close"), host=f"49983-{self.box.id}.{DOMAIN}"))
        self.assertEqual(answers.statuses, [401])
        self.assertEqual(self.daemon.raw(request("GET", "/envs", token, ("Connection", "close"), host=f"49983-{self.box.id}.{DOMAIN}")).statuses,
                         [200], "control")

    def test_a_port_that_is_not_public(self):
        box = self.daemon.make(network={"allowPublicTraffic": False})
        self.addCleanup(hutch, "rm", "-f", box.id)
        self.serve(box)
        self.answer(WELL, box)
        self.assertTrue(box.traffic)
        for token in (None, "", box.token, "0" * 40, box.traffic[:-1], box.traffic + "0", self.daemon.keys["user"]):
            fields = (("E2b-Traffic-Access-Token", token),) if token is not None else ()
            answers = self.daemon.raw(request("GET", "/x", *box.fields(3000), *fields, ("Connection", "close")))
            self.assertEqual(answers.statuses, [403], token)
        right = request("GET", "/x", *box.fields(3000), ("E2b-Traffic-Access-Token", box.traffic), ("Connection", "close"))
        self.assertEqual(self.daemon.raw(right).statuses, [200], "control")
        self.assertNotIn(box.traffic, self.inside("cat /tmp/asked", box))

    def test_an_answer_without_end_that_nobody_reads(self):
        """The program waits, hutchd does not grow, and other clients are served."""
        self.inside(f"python3 -c 'f = open(\"/tmp/new\", \"wb\"); f.write(b\"HTTP/1.1 200 OK\\r\\n\\r\\n\"); "
                    f"[f.write(bytes(1000)) for _ in range({FLOOD})]' && mv /tmp/new /tmp/answer")
        self.daemon.clear_peak()
        before = self.daemon.peak()
        with self.daemon.connect() as s:
            send_all(s, self.get(("Connection", "close")))
            s.recv(1000)
            steady(self.daemon.peak, "hutchd's memory")
            self.is_well()
            self.assertLess(self.daemon.peak() - before, 16 << 10)
            n = 1000
            while piece := s.recv(1 << 20):
                n += len(piece)
            self.assertGreater(n, FLOOD * 1000, "control: it was all there")
        self.inside("rm /tmp/answer")


DRIPPING = """\
import asyncio
async def serve(r, w):
    head = await r.readuntil(b'\\r\\n\\r\\n')
    if head.startswith(b'GET /drip'):
        w.write(b'HTTP/1.1 200 OK\\r\\n\\r\\n')
        while True:
            w.write(b'x')
            await w.drain()
            await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=1)
    w.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')
    await w.drain()
    w.close()
async def main():
    s = await asyncio.start_server(serve, '127.0.0.1', 3000, backlog=512)
    print('ready', flush=True)
    await s.serve_forever()
asyncio.run(main())
"""


class TestFlood(ApiCase):
    """Strangers use all of a sandbox's port connections open to them, and are never idle for
    long."""

    STRANGERS, ALL = 192, 300

    def get(self, *fields):
        return self.daemon.raw(request("GET", "/", *self.box.fields(3000), *fields, ("Connection", "close"))).list[0]

    def test_the_owner_has_room(self):
        server = start("exec", self.box.id, "--", "python3", "-c", DRIPPING, stdout=-1)
        self.addCleanup(server.wait, LONG)
        self.addCleanup(server.stdout.close)
        self.addCleanup(hutch, "rm", "-f", self.box.id)
        self.assertEqual(server.stdout.readline(), b"ready\n")
        self.assertEqual(self.get()[2], b"hello", "control: a stranger")
        many = [self.daemon.connect() for _ in range(self.ALL)]
        for s in many:
            self.addCleanup(s.close)
            send_all(s, request("GET", "/drip", *self.box.fields(3000)))
        self.assertEqual(sorted(s.recv(12) for s in many), [b"HTTP/1.1 200"] * self.STRANGERS + [b"HTTP/1.1 429"] * (self.ALL - self.STRANGERS))
        status, _, text = self.get()
        self.assertEqual((status, b"connections to ports" in text), (429, True), text)
        for what, fields in {"the sandbox's token": ("X-Access-Token", self.box.token), "its key": ("X-API-Key", self.daemon.keys["user"]),
                             "an administrator": ("X-API-Key", self.daemon.keys["admin"])}.items():
            self.assertEqual(self.get(fields)[2], b"hello", what)
        for what, fields in {"a wrong token": ("X-Access-Token", "0" * 40), "another sandbox's": ("X-Access-Token", self.others.token),
                             "another key": ("X-API-Key", self.daemon.keys["other"])}.items():
            self.assertEqual(self.get(fields)[0], 429, what)
        # Commands and files still work.
        self.assertEqual(self.inside("echo well"), "well\n")
        status, text = self.daemon.ask("GET", f"/files?{self.box.signed('/etc/hostname', 'read')}", E2b_Sandbox_Id=self.box.id, E2b_Sandbox_Port="49983")
        self.assertEqual(status, 200, text)
        self.is_well()
        # Closing them makes room for other clients.
        for s in many:
            s.close()
        eventually(lambda: self.get()[2] == b"hello", "room for a stranger")
