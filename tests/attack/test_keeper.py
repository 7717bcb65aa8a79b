# SPDX-License-Identifier: Apache-2.0
"""
Attacks on a keeper's socket, by another user and by a runaway program of the owner: the sandbox
continues, other clients are served, and the keeper's memory and descriptors are bounded.
"""

import array
import json
import os
import random
import socket
import stat
import subprocess
import sys

import wire
from sandbox import ROOT, RUN, SharedCase, as_root, hutch
from test_raider import cpu, keeper_of, peak
from waiting import LONG, eventually, quiet_for

HELLO = wire.HEADER.pack(12, 0, wire.HELLO, 0, 0) + wire.encode(version=wire.VERSION)
MEMORY = 96 << 20  # forty OPENs of 1 MiB, sixty streams of 256 KiB in each direction, and the links
CONNECT = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(120)
try:
    s.connect(sys.argv[1])
    s.sendall(bytes.fromhex(sys.argv[2]))
    print('answered' if s.recv(12) else 'closed')
except OSError as e:
    print(type(e).__name__)
"""


def frame(kind, channel=0, sub=0, payload=b"", length=None, zero=0):
    return wire.HEADER.pack(len(payload) if length is None else length, channel, kind, sub, zero) + payload


# Invalid client data, each sent on its own connection.
WRONG = {
    "noise": random.Random(1).randbytes(4096),
    "zeros": bytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a GiB": frame(wire.HELLO, length=1 << 30),
    "another version": frame(wire.HELLO, payload=wire.encode(version=2)),
    "paths": frame(wire.HELLO, payload=wire.encode(version=1, read=["/"])),
    "no hello": frame(wire.OPEN, 2, 1, wire.encode(argv=["true"])),
    "hello twice": HELLO + HELLO,
    "an unknown channel": HELLO + frame(wire.DATA, 2, 0, b"x"),
    "a guest's channel": HELLO + frame(wire.OPEN, 1, 1, wire.encode(argv=["true"])),
    "no such operation": HELLO + frame(wire.OPEN, 2, 200, wire.encode(argv=["true"])),
    "no argv": HELLO + frame(wire.OPEN, 2, 1, b""),
    "a number twice": HELLO + 2 * frame(wire.OPEN, 2, 4, wire.encode(path="/")),
    "reserved bits": HELLO + frame(wire.PING, payload=bytes(8), zero=1),
    "a guest's answer": HELLO + frame(wire.OPEN, 2, 4, wire.encode(path="/")) + frame(wire.ACCEPT, 2),
    "more than 2 MiB": HELLO + frame(wire.OPEN, 2, 1, length=2 << 20),
}


class Socket(SharedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = str(RUN / "sandboxes" / cls.sandbox / "sock")
        cls.keeper = keeper_of(cls.sandbox)

    def setUp(self):
        super().setUp()
        self.good = self.link()
        self.addCleanup(self.still_well)

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.connect(self.path)
        s.settimeout(LONG)
        return s

    def link(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)
        link = wire.Link(s)
        self.addCleanup(link.close)
        link.hello(read=(), write=(), execute=())
        return link

    def closed(self, s):
        """Reads to end of file, which must come."""
        try:
            while s.recv(65536):
                pass
        except ConnectionResetError:
            pass

    def well(self, link=None):
        """Checks that an existing client is served."""
        ch = (link or self.good).open("exec", argv=["echo", "well"], env=[])
        self.assertEqual((ch.wait_closed(), ch.out()), (wire.DONE, b"well\n"))

    def waits(self):
        """Checks that an idle keeper uses no CPU."""
        before = cpu(self.keeper)
        quiet_for(1, lambda: cpu(self.keeper) - before > 0.5, "the keeper is busy")

    def still_well(self):
        """Checks that the same keeper serves a new client."""
        eventually(lambda: hutch("exec", self.sandbox, "--", "echo", "well").stdout == b"well\n", "an answer")
        self.assertEqual(keeper_of(self.sandbox), self.keeper)
        self.assertLess(peak(self.keeper), MEMORY)
        self.end_commands()

    def end_commands(self):
        """Kills commands whose client disconnected without closing them: they keep running."""
        for command in json.loads(hutch("ps", "-e", "--json", self.sandbox).stdout):
            if command["state"] not in ("ended", "lost"):
                hutch("signal", command["handle"], "KILL")
        eventually(lambda: self.commands_in(self.sandbox) == [], "the end of every command")

    # ---- other users ----
    def test_modes(self):
        """Row 138."""
        for path in (RUN, RUN / "sandboxes", RUN / "sandboxes" / self.sandbox):
            st = os.stat(path)
            self.assertEqual((st.st_uid, stat.S_IMODE(st.st_mode)), (os.getuid(), 0o700), path)
        for name in os.listdir(RUN / "sandboxes" / self.sandbox):
            st = os.stat(RUN / "sandboxes" / self.sandbox / name)
            self.assertEqual((st.st_uid, stat.S_IMODE(st.st_mode) & 0o077), (os.getuid(), 0), name)

    def other(self, uid):
        return subprocess.run([sys.executable, "-c", CONNECT, self.path, HELLO.hex()], user=uid, group=uid, extra_groups=[], cwd="/",
                              capture_output=True, text=True, check=True).stdout.strip()

    @as_root
    def test_other_users(self):
        """The keeper rejects another user who gets past the directories. Control: root is
        accepted."""
        self.assertEqual(self.other(12345), "PermissionError")
        self.assertEqual(self.other(0), "answered")
        opened = [*list((RUN / "sandboxes" / self.sandbox).parents)[:3], RUN / "sandboxes" / self.sandbox, self.path]
        modes = {p: os.stat(p).st_mode for p in opened}
        try:
            for p in opened:
                os.chmod(p, 0o777)
            self.assertIn(self.other(12345), ("closed", "ConnectionResetError", "BrokenPipeError"))
            self.assertEqual(self.other(0), "answered")
        finally:
            for p, mode in modes.items():
                os.chmod(p, stat.S_IMODE(mode))

    # ---- the owner ----
    def test_what_is_wrong_costs_its_own_connection(self):
        for name, data in WRONG.items():
            with self.subTest(name=name):
                s = self.connect()
                s.sendall(data)
                self.closed(s)
                self.well()
        self.well(self.link())

    def test_pieces(self):
        """Frames sent one byte at a time are still valid: the refusals above are not due to the
        size of the pieces."""
        s = self.connect()
        for b in HELLO:
            s.sendall(bytes([b]))
        self.assertEqual(s.recv(12)[8], wire.HELLO)

    def test_silent_clients(self):
        """The keeper accepts 64. Silent clients and those that sent half a HELLO have ten
        seconds."""
        silent = [self.connect() for _ in range(100)]
        for s in silent[::2]:
            try:
                s.sendall(HELLO[:7])
            except OSError:
                pass
        self.well()
        for s in silent:
            self.closed(s)
        self.well()

    def test_clients_that_stay(self):
        links = []
        while len(links) < 63:
            links.append(self.link())
        s = self.connect()
        self.closed(s)
        self.well()
        self.well(links[-1])

    def test_a_flood_of_questions(self):
        """More than 128 requests at once are refused, also to other clients, who must retry;
        more than 2,048 left open cost the client its connection."""
        s = self.connect()
        s.sendall(HELLO)
        ask = wire.encode(path="/")
        try:
            for i in range(1, 20000):
                s.sendall(frame(wire.OPEN, 2 * i, wire.OPS.index("stat"), ask))
        except OSError:  # closed, or the keeper has stopped reading: both are fine
            pass
        eventually(lambda: self.good.open("exec", argv=["true"], env=[]).wait_closed() == wire.DONE, "room for another")
        self.well()

    def test_a_flood_of_connections_to_a_port(self):
        """Strangers may open these. They take no room from the owner's commands and files."""
        server = "import socket, time\ns = socket.create_server(('127.0.0.1', 4321), backlog=512)\nprint('up', flush=True)\nkeep = []\nwhile True: keep.append(s.accept())"
        listen = self.good.open("exec", argv=["python3", "-c", server], env=[])
        self.good.wait(lambda: listen.out() == b"up\n", "a server")
        flood = self.link()
        many = [flood.open("port", port=4321) for _ in range(300)]
        flood.wait(lambda: all(c.accepted is not None or c.closed for c in many), "an answer to each")
        self.assertEqual([c.closed["code"] for c in many if c.closed], [wire.TOO_MANY] * 108)
        own = [self.good.open("port", port=4321, owners=True) for _ in range(64)]
        self.good.wait(lambda: all(c.accepted is not None for c in own), "the owner's room")
        for c in own:
            c.close()
        for _ in range(5):
            self.assertEqual(self.good.open("exec", argv=["true"], env=[]).wait_closed(), wire.DONE)
            self.assertEqual(self.good.open("stat", path="/").wait_closed(), wire.DONE)
        flood.close()
        listen.close()
        self.well()

    def test_readers_that_do_not_read(self):
        """Sixty commands with more output than their clients read."""
        clients = []
        for _ in range(20):
            s = self.connect()
            s.sendall(HELLO + b"".join(frame(wire.OPEN, ch, 1, wire.encode(argv=["cat", "/dev/zero"])) for ch in (2, 4, 6)))
            clients.append(s)
        eventually(lambda: len(self.commands_in(self.sandbox)) == 60, "sixty commands")
        self.well()
        self.waits()
        self.well()
        for s in clients:
            s.close()
        self.end_commands()

    def test_half_a_question(self):
        """The largest OPEN without its last byte, from many clients."""
        big = frame(wire.OPEN, 2, 1, b"", length=wire.OPEN_MAX) + bytes(wire.OPEN_MAX - 1)
        for _ in range(40):
            s = self.connect()
            s.sendall(HELLO)
            s.sendall(big)
        self.well()

    def test_descriptors_and_urgent_bytes(self):
        before = len(os.listdir(f"/proc/{self.keeper}/fd")) if ROOT else 0
        s = self.connect()
        fds = array.array("i", [s.fileno()] * 200)
        for byte in HELLO:
            s.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self.assertEqual(s.recv(12)[8], wire.HELLO)
        if ROOT:
            self.assertLess(len(os.listdir(f"/proc/{self.keeper}/fd")) - before, 3)
        try:
            s.send(b"!", socket.MSG_OOB)
        except OSError:
            pass
        self.well()

    def test_one_ear(self):
        """Clients that shut down one direction: the keeper neither blocks nor spins."""
        for how in (socket.SHUT_RD, socket.SHUT_WR):
            s = self.connect()
            s.sendall(HELLO + frame(wire.OPEN, 2, 1, wire.encode(argv=["sh", "-c", "echo x; sleep 1000"])))
            s.shutdown(how)
        self.waits()
        self.well()
