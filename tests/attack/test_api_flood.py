# SPDX-License-Identifier: Apache-2.0
"""Slow, numerous and endless clients: hutchd serves other clients meanwhile and stays small."""

import contextlib
import resource
import socket

from api import ApiCase, Daemon, request
from sandbox import SandboxCase
from waiting import LONG, eventually, steady

CONNECTIONS = 8192  # as in src/daemon/main.c
MEMORY = 64 << 10  # KiB for all connections together


def more_files(n):
    """Raises this process's limit of open files to n."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n if hard == resource.RLIM_INFINITY else min(n, hard), hard))


@contextlib.contextmanager
def many(daemon, n, data=b""):
    """Opens n connections, each of which has sent `data`."""
    sockets = []
    try:
        for _ in range(n):
            s = socket.socket()
            s.settimeout(LONG)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                s.connect(("127.0.0.1", daemon.port))
                s.sendall(data)
            sockets.append(s)
        yield sockets
    finally:
        for s in sockets:
            s.close()


class TestFlood(ApiCase):
    def test_connections_that_do_nothing(self):
        more_files(4096)
        self.daemon.clear_peak()
        before = self.daemon.peak()
        with many(self.daemon, 2000) as sockets:
            for _ in range(5):
                self.is_well()
            self.assertLess(self.daemon.peak() - before, MEMORY)
            for s in sockets[::400]:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"), "control: they are connections")
        self.is_well()

    def test_heads_that_never_end(self):
        """Sends a byte now and then. hutchd limits the time for the whole head."""
        with many(self.daemon, 200, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ") as sockets:
            live = set(sockets)

            def drip():
                for s in list(live):
                    s.setblocking(False)
                    try:
                        s.send(b"a")
                        data = s.recv(4096)
                        if data:
                            self.assertTrue(data.startswith(b"HTTP/1.1 408"), data)
                        live.remove(s)
                    except BlockingIOError:
                        pass
                    except OSError:
                        live.remove(s)
                self.is_well()
                return not live

            eventually(drip, "the end of every head", also=lambda: len(live))

    def test_bodies_that_never_end(self):
        key = self.daemon.keys["user"]
        data = f"POST /sandboxes/{self.box.id}/timeout HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nContent-Length: 1000000\r\n\r\n{{"
        chunked = data.replace("Content-Length: 1000000", "Transfer-Encoding: chunked").replace("{", "1\r\n{\r\n")
        self.daemon.clear_peak()
        before = self.daemon.peak()
        with many(self.daemon, 200, data.encode()), many(self.daemon, 200, chunked.encode()):
            for _ in range(20):
                self.is_well()
            self.assertLess(self.daemon.peak() - before, MEMORY)
        self.is_well()

    def test_lengths_of_a_terabyte(self):
        key = ("X-API-Key", self.daemon.keys["user"])
        for target in (f"/sandboxes/{self.box.id}/timeout", "/sandboxes", "/health", "/nothing"):
            answer = self.daemon.head("POST", target, (key, ("Content-Length", str(1 << 40))))
            self.assertIn(answer, (404, 405, 413), target)

    def test_chunks_without_end(self):
        """hutchd ends a body that it collects at the limit, and does not read an unwanted body
        for ever."""
        key = self.daemon.keys["user"]
        self.daemon.clear_peak()
        before = self.daemon.peak()
        for target, expected in ((f"/sandboxes/{self.box.id}/timeout", b"413"), ("/nothing", b"404")):
            with self.daemon.connect() as s:
                s.sendall(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    for _ in range(4000):
                        s.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
                    self.fail("all 256 MB of it were taken")
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(s.recv(4096)[9:12], expected)
        self.assertLess(self.daemon.peak() - before, MEMORY)
        self.is_well()

    def test_answers_that_nobody_reads(self):
        """Downloads of 50 MB each: hutchd buffers little for each client and leaves the rest in
        the sandbox."""
        self.inside("head -c 50000000 /dev/zero > /tmp/large")
        self.daemon.clear_peak()
        before = self.daemon.peak()
        data = request("GET", "/files?path=/tmp/large&username=user", *self.box.fields(), ("X-Access-Token", self.box.token), ("Connection", "close"))
        with many(self.daemon, 20, data) as sockets:
            steady(self.daemon.peak, "hutchd's memory")
            self.is_well()
            self.assertLess(self.daemon.peak() - before, MEMORY)
            n = 0
            while piece := sockets[0].recv(1 << 20):
                n += len(piece)
            self.assertGreater(n, 50_000_000, "control: it is all there")
        self.is_well()
        self.inside("rm /tmp/large")

    def test_keys_that_are_wrong_without_end(self):
        wrong = b"GET /sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: e2b_" + b"0" * 40 + b"\r\n\r\n"
        with self.daemon.connect() as s:
            for _ in range(50):
                s.sendall(wrong * 20)
                got = b""
                while got.count(b"HTTP/1.1 401") < 20:
                    got += s.recv(65536)
                self.is_well()
        self.assertLess(len(self.daemon.log()), 100_000, "they do not fill the log")


class TestLimits(SandboxCase):
    def other_than(self, daemon, unix=False):
        """Checks that a new client is served."""
        return daemon.head("GET", "/health", unix=unix) == 200

    def is_served(self, daemon):
        try:
            return self.other_than(daemon) and self.other_than(daemon, unix=True)
        except (OSError, AssertionError):
            return False

    def test_more_connections_than_there_may_be(self):
        """Idle connections and those in the middle of a head make room for new ones, also on the
        Unix socket."""
        more_files(CONNECTIONS + 2000)
        for data in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "):
            with self.subTest(data):
                daemon = Daemon()
                self.addCleanup(daemon.stop)
                with many(daemon, CONNECTIONS + 500, data):
                    self.assertTrue(self.is_served(daemon))
                    self.assertIsNone(daemon.process.poll())
                self.assertTrue(self.other_than(daemon))

    def test_more_connections_than_descriptors(self):
        daemon = Daemon(files=128)
        self.addCleanup(daemon.stop)
        more_files(4096)
        with many(daemon, 600):
            eventually(lambda: self.is_served(daemon), "an answer to a new client")
            self.assertIsNone(daemon.process.poll())
        eventually(lambda: self.is_served(daemon), "an answer, control")
