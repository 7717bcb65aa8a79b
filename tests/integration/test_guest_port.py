# SPDX-License-Identifier: Apache-2.0
"""Connections to ports in a sandbox."""

import contextlib
import hashlib
import os
import socket
import time
import unittest

import wire
from guest import GuestCase
from servers import DEAF, DIGEST, ECHO, FLOOD, RESET, SAYS, TELL, server
from waiting import eventually


def deaf_socket():
    """A socket that reserves a port, for IPv4 and IPv6 if the host has both, and does not
    listen, so that no other process can."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        s = stack.enter_context(socket.socket(socket.AF_INET6))
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", 0))
        stack.pop_all()
        return s
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    return s


class TestPort(GuestCase):
    def serve(self, how, **more):
        """Starts a server in the sandbox; returns its port and the command."""
        ch = self.link.open("exec", argv=["python3", "-c", server(how, **more)])
        return int(ch.wait_data(b"\n").split()[0]), ch

    def connect(self, port):
        ch = self.link.open("port", port=port)
        self.assertEqual(ch.wait_accepted(), {}, ch.closed)
        return ch

    def ends_well(self, ch):
        self.assertEqual((ch.wait_closed(), ch.closed.get("text")), (0, None))

    def test_both_ways(self):
        port, _ = self.serve(ECHO)
        ch = self.connect(port)
        for piece in (b"a", b"hello" * 1000, os.urandom(200_000)):
            before = len(ch.out(0))
            ch.send(piece)
            self.link.wait(lambda: len(ch.streams[0].data) == before + len(piece), "the echo")
            self.assertEqual(ch.out(0)[before:], piece)
        self.assertFalse(ch.streams[0].got_eof)
        ch.eof()
        self.ends_well(ch)
        self.assertTrue(ch.streams[0].got_eof)

    def test_the_end_of_one_direction_is_not_that_of_the_other(self):
        port, _ = self.serve(DIGEST)
        data = os.urandom(20_000_000)
        ch = self.connect(port)
        ch.send(data)
        self.assertEqual(ch.out(0), b"")
        ch.eof()
        self.ends_well(ch)
        self.assertEqual(ch.out(0).decode(), hashlib.sha256(data).hexdigest())
        port, program = self.serve(SAYS)
        ch = self.connect(port)
        self.link.wait(lambda: ch.streams[0].got_eof, "EOF")
        self.assertEqual(ch.out(0), b"all I have to say")
        self.assertIsNone(ch.closed)
        ch.send(b"x" * 3_000_000)
        ch.eof()
        self.ends_well(ch)
        program.wait_data(b"heard 3000000\n")

    def test_nothing_listens(self):
        with deaf_socket() as s:
            port = s.getsockname()[1]
            ch = self.link.open("port", port=port)
            self.assertEqual((ch.wait_closed(), ch.closed["text"]), (wire.NOT_FOUND, f"nothing listens on port {port}"))

    @unittest.skipUnless(socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"), "no IPv6")
    def test_ipv6_is_tried_after_ipv4(self):
        port, _ = self.serve(ECHO, six=True)
        ch = self.connect(port)
        ch.send(b"six")
        ch.eof()
        self.ends_well(ch)
        self.assertEqual(ch.out(0), b"six")

    def test_nobody_is_connected_to_himself(self):
        self.restart(ports="40000 40000")
        self.assertEqual(self.link.open("port", port=40000).wait_closed(), wire.NOT_FOUND)
        # The positive control: without the check, a socket connects to itself.
        self.restart(ports="40000 40000")
        self.assertEqual(self.python("import socket\nprint(socket.create_connection(('127.0.0.1', 40000)).getsockname())"),
                         "('127.0.0.1', 40000)\n")

    def test_a_listener_that_does_not_answer(self):
        port, _ = self.serve(ECHO, backlog=0, accepting=False)
        echo, _ = self.serve(ECHO)
        stuck = [self.link.open("port", port=port) for _ in range(8)]
        start = time.monotonic()
        ch = self.connect(echo)
        ch.send(b"meanwhile")
        ch.wait_data(b"meanwhile", 0)
        self.link.wait(lambda: sum(c.accepted is not None for c in stuck) + sum(c.closed is not None for c in stuck) == 8,
                       "all to be answered")
        given_up = [c.closed for c in stuck if c.closed]
        self.assertGreater(len(given_up), 4)  # a queue of 0 holds one or two
        self.assertGreater(time.monotonic() - start, 5)
        for closed in given_up:
            self.assertEqual(closed["code"], wire.IO)
            self.assertIn(f"port {port}", closed["text"])

    def test_broken_connections(self):
        port, _ = self.serve(RESET)
        ch = self.connect(port)
        ch.send(b"x")
        self.ends_well(ch)
        # In the other direction: the program notices the close.
        port, program = self.serve(TELL)
        ch = self.connect(port)
        ch.send(b"12345")
        ch.close()
        ch.wait_closed()
        program.wait_data(b"ended after 5\n")
        # A program that ends.
        port, program = self.serve(DEAF)
        ch = self.connect(port)
        program.signal(9)
        self.link.wait(lambda: ch.streams[0].got_eof, "EOF")

        def closed():
            with contextlib.suppress(BrokenPipeError):
                ch.send(b"anybody there?")
            return ch.closed
        eventually(closed, "a reset for the first bytes, which is the end")
        self.ends_well(ch)

    def test_numbers_that_are_no_port(self):
        for fields in ({"port": 0}, {"port": 65536}, {"port": 70000}, {}, {"port": 80, "user": "user"}, {"port": 80, "path": "/"}):
            self.restart()
            self.link.open("port", **fields)
            self.link.wait_ended()

    def test_hundreds_at_once(self):
        port, _ = self.serve(ECHO)
        many = [self.link.open("port", port=port) for _ in range(762)]
        for i, ch in enumerate(many):
            self.assertEqual(ch.wait_accepted(), {}, ch.closed)
            ch.send(f"{i}:".encode() + os.urandom(3000))
        for i, ch in enumerate(many):
            self.link.wait(lambda c=ch, i=i: len(c.streams[0].data) == 3001 + len(str(i)), "the echo")
            self.assertTrue(ch.out(0).startswith(f"{i}:".encode()))
        more = [self.link.open("port", port=port) for _ in range(6)]  # with the server: 769
        self.link.wait(lambda: all(c.accepted is not None or c.closed for c in more), "an answer")
        self.assertEqual([c.closed["code"] for c in more if c.closed], [wire.TOO_MANY])
        for ch in many:
            ch.eof()
        for ch in many:
            self.ends_well(ch)
        self.ends_well(self.finished(port))

    def finished(self, port):
        ch = self.connect(port)
        ch.send(b"last")
        ch.eof()
        ch.wait_closed()
        self.assertEqual(ch.out(0), b"last")
        return ch

    def test_floods_and_the_deaf_stop_nobody_else(self):
        flood, _ = self.serve(FLOOD)
        deaf, _ = self.serve(DEAF)
        echo, _ = self.serve(ECHO)
        flooding = [self.link.open("port", port=flood, give_credit=False) for _ in range(40)]
        silent = [self.connect(deaf) for _ in range(40)]
        for ch in silent:  # all of the credit, which is not returned
            ch.send(bytes(wire.CREDIT_START))
        # The control: they flood up to their credit; the rest of their bytes is not read.
        self.link.wait(lambda: all(c.streams[0].total == wire.CREDIT_START for c in flooding), "the flood")
        greedy = [self.connect(flood) for _ in range(3)]  # these flood without end
        for ch in greedy:
            ch.keep = False
        for _ in range(10):
            self.finished(echo)
            self.assertEqual(self.ok("echo 1"), "1\n")
        self.link.wait(lambda: all(c.streams[0].total > 4 * wire.CREDIT_START for c in greedy), "a flood without an end")
        self.assertTrue(all(c.streams[0].total == wire.CREDIT_START and not c.closed for c in flooding))
        for ch in flooding + silent + greedy:
            ch.close()
        for ch in flooding + silent + greedy:
            ch.wait_closed()
        self.finished(echo)


if __name__ == "__main__":
    unittest.main()
