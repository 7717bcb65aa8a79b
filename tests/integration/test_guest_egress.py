# SPDX-License-Identifier: Apache-2.0
"""
Egress of a sandbox with its own kernel, the guest's half: hutch-guest, in its own network
namespace, makes the sockets that capture connections and asks the keeper, which this test plays.
The programs are real. Allowed are allowed.test, its subdomains, and addresses.
"""

import json
import threading

import wire
from guest import ROOT, GuestCase
from waiting import LONG, eventually

PORTS = "32768 60999"
PRELUDE = """
import errno, json, signal, socket, struct, sys
def dial(host, port=443):
    return socket.create_connection((host, port), 120)
def fate(host, port=443, say=b""):  # a reset may come before the program knows that it is connected
    try:
        s = dial(host, port)
        s.sendall(say)
        return s.recv(100).decode()
    except OSError as e:
        return errno.errorcode[e.errno]
"""


class Keeper(threading.Thread):
    """Answers requests of a guest; `serve(channel)` handles the streams."""

    def __init__(self, link, serve, ask=None):
        super().__init__(daemon=True)
        self.link, self.serve, self.ask = link, serve, ask or self.allows
        self.questions, self.streams, self.failed, self.over = [], [], [], False
        self.start()

    @staticmethod
    def allows(name):
        return name == "allowed.test" or name.endswith(".allowed.test")

    def run(self):
        done = 0
        while True:
            try:
                self.link.wait(lambda n=done: len(self.link.asked) > n or self.over, "a question", 1200)
            except Exception:
                return
            if self.over:
                return
            threading.Thread(target=self.answer, args=[self.link.asked[done]], daemon=True).start()
            done += 1

    def answer(self, ch):
        try:
            if ch.op == "connect":
                self.streams.append((ch.fields["host"], ch.fields["port"]))
                self.serve(ch)
                return
            self.questions.append(ch.fields["host"])
            may = self.ask(ch.fields["host"])
            if may is None:
                return
            if may:
                ch.accept()
            ch.close(wire.DONE if may else wire.PERMISSION, None if may else "not on the list")
        except Exception as e:
            self.failed.append(repr(e))


def deny(ch):
    ch.close(wire.PERMISSION, "not allowed by the policy")


def echo(ch):
    """Echoes everything, then ends the stream."""
    ch.accept()
    s, sent = ch.streams[0], 0
    while True:
        ch.link.wait(lambda: len(s.data) > sent or s.got_eof or ch.closed, "bytes")
        if ch.closed:
            return
        piece = bytes(s.data[sent:])
        sent += len(piece)
        if piece:
            ch.send(piece)
        elif s.got_eof:
            ch.eof()
            return


def web(ch):
    """Returns the destination as an HTTP response."""
    ch.accept()
    ch.wait_data(b"\r\n\r\n", 0)
    body = f"{ch.fields['host']}:{ch.fields['port']}\n".encode()
    ch.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    ch.eof()


class GuestEgress(GuestCase):
    def setUp(self):
        if not ROOT:
            self.skipTest("PID 1 of a machine is root of all of it")

    def begin(self, serve=web, ask=None, networks=()):
        self.start(ports=PORTS, egress=True, network=list(networks))
        self.keeper = Keeper(self.link, serve, ask)
        self.addCleanup(setattr, self.keeper, "over", True)

    def program(self, script, **more):
        return json.loads(self.python(PRELUDE + script, **more))

    def gone(self, n=1):
        """Both sides have closed all channels of the guest."""
        self.link.wait(lambda: len(self.link.asked) >= n and all(c.closed for c in self.link.asked), "the end of all channels")
        self.assertEqual(self.keeper.failed, [])

    # ---- names ----

    def test_names(self):
        self.begin()
        found = self.program("""
def ask(name):
    try:
        return [a[4][0] for a in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)]
    except socket.gaierror as e:
        return e.errno == socket.EAI_NONAME
print(json.dumps([ask("allowed.test"), ask("Sub.Allowed.Test"), ask("denied.test"), ask("nas"), ask("localhost")]))
""")
        self.assertEqual(found, [["198.18.1.0"], ["198.18.1.1"], True, True, ["127.0.0.1"]])
        self.assertEqual(set(self.keeper.questions), {"allowed.test", "sub.allowed.test", "denied.test"})
        self.gone()

    def test_nobody_answers(self):
        """The program gets an error, and later queries are answered."""
        self.begin(ask=lambda name: None if name == "silent.test" else True)
        found = self.program("""
try:
    socket.getaddrinfo("silent.test", 443)
except socket.gaierror as e:
    print(json.dumps([e.errno == socket.EAI_AGAIN, bool(socket.getaddrinfo("other.test", 443))]))
""")
        self.assertEqual(found, [True, True])

    # ---- real clients ----

    def test_curl(self):
        self.begin(networks=["192.0.2.0/24", "[2001:db8::/32]"])
        curl = "curl --silent --show-error --max-time 120"
        self.assertEqual(self.ok(f"{curl} http://allowed.test/"), "allowed.test:80\n")
        self.assertEqual(self.ok(f"{curl} http://allowed.test:8080/"), "allowed.test:8080\n")
        self.assertEqual(self.ok(f"{curl} http://192.0.2.7:5432/"), "192.0.2.7:5432\n")
        self.assertEqual(self.ok(f"{curl} -g 'http://[2001:db8::7]/'"), "[2001:db8::7]:80\n")
        self.assertEqual(self.ok(f"{curl} -p -x http://127.0.0.1:3128 http://proxied.test/"), "proxied.test:80\n")
        self.assertEqual(self.ok(f"{curl} -x socks5h://127.0.0.1:3128 http://proxied.test/"), "proxied.test:80\n")
        # There is no route, so the guest makes no request.
        self.assertEqual(self.sh(f"{curl} http://192.0.3.7/").exit["code"], 7)
        self.gone()
        self.assertEqual([host for host, _ in self.keeper.streams],
                         ["allowed.test", "allowed.test", "192.0.2.7", "[2001:db8::7]", "proxied.test", "proxied.test"])

    def test_denied(self):
        """A direct connection is reset; a proxy reports the refusal."""
        self.begin(serve=deny)
        self.assertEqual(self.program('print(json.dumps(fate("allowed.test")))'), "ECONNRESET")
        said = self.program("""
s = dial("127.0.0.1", 3128)
s.sendall(b"CONNECT other.test:443 HTTP/1.1\\r\\n\\r\\n")
print(json.dumps(s.makefile("rb").read().decode()))
""")
        self.assertIn("403", said)
        self.assertIn("not allowed by the policy", said)
        self.assertEqual(self.keeper.streams, [("allowed.test", 443), ("other.test", 443)])
        self.gone()

    def test_what_a_proxy_says(self):
        codes = {wire.NOT_FOUND: 502, wire.IO: 502, wire.TOO_MANY: 503, wire.GONE: 504, wire.PERMISSION: 403}
        self.begin(serve=lambda ch: ch.close(ch.fields["port"]))
        found = self.program(f"""
def ask(port):
    s = dial("127.0.0.1", 3128)
    s.sendall(b"CONNECT allowed.test:%d HTTP/1.1\\r\\n\\r\\n" % port)
    return int(s.makefile("rb").read().split()[1])
print(json.dumps([ask(p) for p in {list(codes)}]))
""")
        self.assertEqual(dict(zip(codes, found)), codes)

    # ---- bytes ----

    def test_the_server_speaks_first(self):
        def serve(ch):
            ch.accept()
            ch.send(b"220 ready\r\n")
            ch.wait_data(b"HELO", 0)
            ch.send(b"250 hello\r\n")
            ch.eof()
        self.begin(serve)
        self.assertEqual(self.program("""
s = dial("allowed.test", 25)
first = s.recv(100).decode()
s.sendall(b"HELO")
print(json.dumps([first, s.makefile("rb").read().decode()]))
"""), ["220 ready\r\n", "250 hello\r\n"])
        self.gone()

    def test_much_both_ways(self):
        """Far more bytes than all buffers hold, in both directions at once; the sum covers every
        byte."""
        self.begin(echo)
        self.assertEqual(self.program("""
import hashlib, threading
N = 6 << 20
data = bytes(range(256)) * (N // 256)
s = dial("allowed.test")
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = s.makefile("rb").read()
print(json.dumps([len(got), hashlib.sha256(got).digest() == hashlib.sha256(data).digest()]))
"""), [6 << 20, True])
        self.gone()

    def test_half_closed(self):
        """Bytes sent after the other side's end of stream still arrive, in either direction."""
        def serve(ch):
            ch.accept()
            if ch.fields["port"] == 1:  # the server ends first
                ch.send(b"bye")
                ch.eof()
            ch.link.wait(lambda: ch.streams[0].got_eof, "EOF")
            if ch.fields["port"] == 2:
                ch.send(b"heard " + bytes(ch.streams[0].data))
                ch.eof()
        self.begin(serve)
        self.assertEqual(self.program("""
a, b = dial("allowed.test", 1), dial("allowed.test", 2)
first = a.makefile("rb").read().decode()
a.sendall(b"more")
a.close()
b.sendall(b"all")
b.shutdown(socket.SHUT_WR)
print(json.dumps([first, b.makefile("rb").read().decode()]))
"""), ["bye", "heard all"])
        self.gone()
        self.assertEqual([bytes(c.streams[0].data) for c in self.link.asked if c.op == "connect"], [b"more", b"all"])
        self.assertEqual([c.closed["code"] for c in self.link.asked if c.op == "connect"], [0, 0])

    def test_reset_from_outside(self):
        def serve(ch):
            ch.accept()
            ch.wait_data(b"x", 0)
            ch.close(wire.IO, "reset by the other side")
        self.begin(serve)
        self.assertEqual(self.program('print(json.dumps(fate("allowed.test", say=b"x")))'), "ECONNRESET")
        self.gone()

    def test_reset_from_inside(self):
        """Also before an answer: then the keeper need not dial."""
        self.begin(lambda ch: ch.accept() if ch.fields["port"] == 1 else None)
        program = self.link.open("exec", argv=["python3", "-uc", PRELUDE + """
for port in (1, 2):
    s = dial("allowed.test", port)
    sys.stdin.readline()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
"""], stdin=True)
        program.wait_accepted()
        for n in (1, 2):
            eventually(lambda n=n: len(self.keeper.streams) == n and self.link.asked[-1].op == "connect", "a connection")
            if n == 1:
                eventually(lambda: self.link.asked[-1].accepted is not None, "its answer")
            self.link.ping(n)  # the guest has received the answer
            program.send(b"reset\n")
        self.assertEqual(program.wait_closed(), 0)
        self.gone()
        self.assertEqual([c.closed["code"] for c in self.link.asked if c.op == "connect"], [wire.GONE, wire.GONE])

    def test_a_program_that_does_not_read(self):
        """It stops only its own stream, when the credit is used up."""
        def serve(ch):
            ch.accept()
            if ch.fields["port"] == 80:
                web_(ch)
                return
            sent = 0
            while not ch.closed and sent < 64 << 20:
                if ch.streams[0].may_send == 0:
                    stalled.set()
                ch.send(bytes(65536))
                sent += 65536
        def web_(ch):
            ch.wait_data(b"\r\n\r\n", 0)
            ch.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfine")
            ch.eof()
        stalled = threading.Event()
        self.begin(serve)
        sleeper = self.link.open("exec", argv=["python3", "-c", PRELUDE + 's = dial("allowed.test", 9); print(1, flush=True); signal.pause()'])
        sleeper.wait_data(b"1")
        self.assertTrue(stalled.wait(LONG))
        self.assertEqual(self.ok("curl --silent --max-time 120 http://allowed.test/"), "fine")
        sleeper.close()  # kills it with unread bytes, which causes a reset
        self.link.wait(lambda: all(c.closed for c in self.link.asked), "its end")

    def test_many_at_once(self):
        """More connections than the guest has jobs for, and commands still run; over the limit,
        programs get an error."""
        self.begin(lambda ch: ch.accept())
        many = self.link.open("exec", argv=["python3", "-c", PRELUDE + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 4096))
held, gone = [], 0
for i in range(960):
    try:
        held.append(dial("allowed.test"))
        held[-1].settimeout(120 if i >= 896 else 0)
        held[-1].recv(1)
    except (BlockingIOError, TimeoutError):
        pass
    except ConnectionResetError:
        gone += 1
print(gone, flush=True)
sys.stdin.read()
"""], stdin=True)
        said = many.wait_data(b"\n", timeout=LONG)
        self.assertEqual(int(said), 960 - 896)
        self.assertEqual(self.ok("echo still here"), "still here\n")
        many.eof()
        self.assertEqual(many.wait_closed(), 0)
        for c in self.link.asked:
            if c.op == "connect" and not c.closed:
                c.eof()
        self.link.wait(lambda: all(c.closed for c in self.link.asked), "the end of all channels")
        self.assertEqual(self.ok("echo still here"), "still here\n")

    # ---- without it ----

    def test_without_egress(self):
        self.start(ports=PORTS)
        found = self.program("""
print(json.dumps([fate("127.0.0.1", 53), fate("127.0.0.1", 3128)]))
""")
        self.assertEqual(found, ["ECONNREFUSED", "ECONNREFUSED"])
        self.assertEqual(self.link.asked, [])

    def test_networks_that_are_none(self):
        for wrong in ("10.0.0.1/8", "allowed.test", "", "10.0.0.0/8:80"):
            with self.subTest(wrong):
                self.start(greet=False, ports=PORTS)
                self.link.hello(egress=True, network=[wrong], wait=False)
                self.link.wait_ended()
                self.assertIsNone(self.link.guest)
