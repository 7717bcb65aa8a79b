# SPDX-License-Identifier: Apache-2.0
"""Requests of a client to a real keeper, and the guest's answers: file operations and ports."""

import os
import socket

import wire
from sandbox import SharedCase, agent
from servers import DEAF, DIGEST, ECHO, FLOOD, TELL, server
from test_sandbox_bombs import connect


class Client:
    """A client's connection to the keeper of self.sandbox."""

    def setUp(self):
        super().setUp()
        self.link = connect(self.sandbox)
        self.addCleanup(self.link.close)

    def op(self, op, path, data=None, link=None, **more):
        ch = (link or self.link).open(op, path=path, **more)
        if data is not None and ch.wait_accepted() is not None:
            ch.send(data)
            ch.eof()
        ch.wait_closed()
        return ch

    def entry(self, op, path, **more):
        ch = self.op(op, path, **more)
        self.assertEqual(ch.closed["code"], 0, ch.closed)
        return ch.entries()[-1] if op == "write" else ch.accepted

    def serve(self, how, **more):
        ch = self.link.open("exec", argv=["python3", "-c", server(how, **more)], env=[])
        self.addCleanup(ch.close)
        return int(ch.wait_data(b"\n").split()[0]), ch

    def connect(self, port, link=None):
        ch = (link or self.link).open("port", port=port)
        self.assertEqual(ch.wait_accepted(), {}, ch.closed)
        return ch

    def echoes(self, port, link=None):
        ch = self.connect(port, link)
        data = os.urandom(100_000)
        ch.send(data)
        ch.eof()
        self.assertEqual((ch.wait_closed(), ch.out(0) == data), (0, True))


class Files(Client, SharedCase):
    def test_paths_are_at_home(self):
        self.assertEqual(self.entry("write", "a/f", data=b"1", parents=True)["path"], b"/home/user/a/f")
        self.assertEqual(self.entry("stat", "~/a")["path"], b"/home/user/a")
        self.assertEqual(self.entry("stat", "")["path"], b"/home/user")
        self.assertEqual(self.entry("stat", "", user="root")["path"], b"/root")
        self.assertEqual(self.op("stat", "~root").closed["code"], wire.INVALID)
        self.assertEqual(self.entry("move", "a/f", target="b/c/g", parents=True)["path"], b"/home/user/b/c/g")

    def test_where_commands_start(self):
        self.entry("mkdir", "d")
        for cwd, want in ((None, b"/workspace\n"), ("d", b"/home/user/d\n"), ("~", b"/home/user\n"), ("", b"/home/user\n")):
            ch = self.link.open("exec", argv=["pwd"], env=[], cwd=cwd)
            self.assertEqual((ch.wait_closed(), ch.out()), (0, want))
        ch = self.link.open("exec", argv=["pwd"], env=[], cwd="nowhere")
        self.assertEqual(ch.wait_closed(), wire.NOT_DIRECTORY)
        self.assertIn("/home/user/nowhere", ch.closed["text"])

    def test_owners_and_links(self):
        entry = self.entry("write", "o", data=b"123")
        self.assertEqual((entry["owner"], entry["group"]), ("user", "user"))
        entry = self.entry("stat", "/etc/motd")
        self.assertEqual((entry["owner"], entry["group"]), ("root", "root"))
        self.sh(self.sandbox, "ln -s o ~/ol; ln -s nowhere ~/broken")
        entry = self.entry("stat", "ol", follow=True)
        self.assertEqual((entry["kind"], entry["size"], entry["target"]), (wire.FILE, 3, b"/home/user/o"))
        self.assertEqual(self.entry("stat", "ol")["kind"], wire.SYMLINK)
        self.assertEqual(self.entry("stat", "broken", follow=True)["kind"], wire.SYMLINK)
        listed = {e["path"]: e["kind"] for e in self.op("list", "", depth=1, follow=True).entries()}
        self.assertEqual((listed[b"ol"], listed[b"broken"]), (wire.FILE, wire.SYMLINK))

    def test_metadata(self):
        """Everywhere a user can write: the root's overlay, and mounts."""
        for top in ("/home/user", "/workspace", "/tmp"):
            with self.subTest(top=top):
                path = f"{top}/meta"
                self.assertEqual(self.entry("write", path, data=b"1", meta=["by=me", "why=" + "x" * 1024])["meta"],
                                 self.entry("stat", path)["meta"])
                self.assertEqual(sorted(self.entry("stat", path)["meta"]), [b"by=me", b"why=" + b"x" * 1024])
                self.assertEqual(self.python(self.sandbox, f"import os; print(os.getxattr('{path}', 'user.e2b.by'))"), "b'me'\n")
                self.assertNotIn("meta", self.entry("write", path, data=b"2"))


class Ports(Client, SharedCase):
    def test_both_ways(self):
        port, _ = self.serve(ECHO)
        self.echoes(port)
        port, _ = self.serve(ECHO, six=True)
        self.echoes(port)
        port, _ = self.serve(DIGEST)
        ch = self.connect(port)
        ch.send(bytes(20_000_000))
        ch.eof()
        self.assertEqual((ch.wait_closed(), len(ch.out(0))), (0, 64))

    def test_nothing_listens(self):
        ch = self.link.open("port", port=7)
        self.assertEqual((ch.wait_closed(), ch.closed["text"]), (wire.NOT_FOUND, "nothing listens on port 7"))

    def test_it_is_the_sandbox_that_is_connected_to(self):
        """Not the host, where a server listens on the same port."""
        with socket.create_server(("127.0.0.1", 0)) as here:
            self.assertEqual(self.link.open("port", port=here.getsockname()[1]).wait_closed(), wire.NOT_FOUND)

    def test_a_client_that_goes_takes_its_connections_along(self):
        port, program = self.serve(TELL)
        other = connect(self.sandbox)
        self.connect(port, other).send(b"123")
        program.wait_data(b"got 3\n")
        other.close()
        program.wait_data(b"ended after 3\n")

    def test_no_port(self):
        for fields in ({"port": 0}, {"port": 70000}, {}, {"port": 80, "user": "user"}):
            other = connect(self.sandbox)
            other.open("port", **fields)
            other.wait_ended()
            other.close()
        self.serve(ECHO)

    def test_hundreds_at_once(self):
        port, _ = self.serve(ECHO)
        many = [self.link.open("port", port=port, owners=True) for _ in range(200)]
        for ch in many:
            self.assertEqual(ch.wait_accepted(), {}, ch.closed)
            ch.send(b"x" * 3000)
        for ch in many:
            self.link.wait(lambda c=ch: len(c.streams[0].data) == 3000, "the echo")
            ch.eof()
        self.assertEqual({ch.wait_closed() for ch in many}, {0})

    def test_floods_and_the_deaf_stop_nobody_else(self):
        flood, _ = self.serve(FLOOD)
        deaf, _ = self.serve(DEAF)
        echo, _ = self.serve(ECHO)
        other = connect(self.sandbox)
        self.addCleanup(other.close)
        flooding = [other.open("port", port=flood, give_credit=False) for _ in range(20)]
        for _ in range(20):
            self.connect(deaf, other).send(bytes(wire.CREDIT_START))
        other.wait(lambda: all(c.streams[0].total == wire.CREDIT_START for c in flooding), "the flood")
        for link in (self.link, other):
            for _ in range(5):
                self.echoes(echo, link)
            self.assertEqual(link.open("exec", argv=["true"], env=[]).wait_closed(), 0)


class PortsBesideEgress(Client, SharedCase):
    """A sandbox in which connections to all but loopback are captured."""

    @classmethod
    def setUpClass(cls):
        cls.options = ("--agent", agent("way-out", "egress:\n  domains: [web.hutch.test, '192.0.2.0/24', '[2001:db8::1]']\n"))
        super().setUpClass()

    def test_loopback_is_not_captured(self):
        for six in (False, True):
            port, _ = self.serve(ECHO, six=six)
            self.echoes(port)
        self.assertEqual(self.link.open("port", port=7).wait_closed(), wire.NOT_FOUND)
