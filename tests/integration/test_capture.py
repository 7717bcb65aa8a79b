# SPDX-License-Identifier: Apache-2.0
"""
Egress as programs see it: real programs in a network namespace that netns_capture() prepared, with
the capture behind it (capture-box.c). The tests run as the current user, and for root also as an
ordinary user. Allowed are allowed.test, its subdomains, and addresses that a rule names.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from waiting import LONG

NOBODY = 65534
RESOLV = "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n"  # as src/engine/scratch.c writes it
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
FETCH = """
def fetch(url):
    try:
        return urllib.request.urlopen(url).read().decode()
    except urllib.error.URLError as e:
        return errno.errorcode[e.reason.errno]
"""
RESOLVE_C = r"""
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *a = NULL;
	int r = getaddrinfo(argv[1], "80", &hints, &a);

	for (; r == 0 && a; a = a->ai_next)
		if (a->ai_family == AF_INET)
			printf("%s\n", inet_ntoa(((struct sockaddr_in *)a->ai_addr)->sin_addr));
		else
			puts("another family");
	return r ? r == EAI_NONAME ? 2 : 3 : 0;
}
"""


class Box:
    """Mixed in below, to run the same tests for two users."""

    who = {}

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="hutch-test-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.dir.chmod(0o755)
        self.resolv = self.dir / "resolv.conf"
        self.resolv.write_text(RESOLV)
        self.resolv.chmod(0o644)
        # Another user cannot reach a build in a private directory.
        self.box = self.dir / "capture-box"
        shutil.copy(os.environ["CAPTURE_BOX"], self.box)
        self.box.chmod(0o755)

    def run_in(self, *command, networks=(), options=()):
        rules = [word for net in networks for word in ("-a", net)]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}
        return subprocess.run([self.box, *options, self.resolv, *rules, *command], env=env, cwd="/", stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LONG, check=False, text=True, **self.who)

    def python(self, program, **more):
        """Runs a program and parses its output as JSON."""
        r = self.run_in(PYTHON, "-I", "-c", "import errno, json, socket, urllib.request\n" + program, **more)
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def curl(self, *args):
        return self.run_in("curl", "--silent", "--show-error", "--max-time", "120", *args)

    def need(self, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")

    # ---- names ----

    def test_a_name_that_is_allowed(self):
        self.assertEqual(self.python("""
print(json.dumps([urllib.request.urlopen(f"http://{host}:{port}/").read().decode()
                  for host, port in (("allowed.test", 80), ("Sub.Allowed.Test", 1), ("allowed.test", 65535))]))
"""), ["allowed.test:80 direct\n", "sub.allowed.test:1 direct\n", "allowed.test:65535 direct\n"])

    def test_a_name_has_one_address_and_no_other(self):
        found = self.python("""
ask = lambda name: [a[4][0] for a in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)]
a, b = ask("a.allowed.test"), ask("b.allowed.test")
print(json.dumps([a, b, ask("A.allowed.TEST"), socket.gethostbyaddr(a[0])[0]]))
""")
        self.assertEqual(found, [["198.18.1.0"], ["198.18.1.1"], ["198.18.1.0"], "a.allowed.test"])

    def test_a_name_that_is_denied_is_not_there(self):
        """Not EAI_AGAIN, which a resolver returns after a timeout."""
        self.assertEqual(self.python("""
def ask(name):
    try:
        return socket.getaddrinfo(name, 443)
    except socket.gaierror as e:
        return e.errno == socket.EAI_NONAME
print(json.dumps([ask("denied.test"), ask("nas"), ask("_x._tcp.allowed.test")]))
"""), [True, True, True])

    def test_musl(self):
        self.need("musl-gcc")
        program, source = self.dir / "resolve", self.dir / "resolve.c"
        source.write_text(RESOLVE_C)
        subprocess.run(["musl-gcc", "-static", "-o", program, source], check=True)
        program.chmod(0o755)
        r = self.run_in(program, "allowed.test")
        self.assertEqual((r.returncode, r.stdout), (0, "198.18.1.0\n"))
        self.assertEqual(self.run_in(program, "denied.test").returncode, 2)

    # ---- curl, with and without a proxy ----

    def test_curl(self):
        self.need("curl")
        self.assertEqual(self.curl("http://allowed.test:8080/").stdout, "allowed.test:8080 direct\n")
        self.assertEqual(self.curl("http://denied.test/").returncode, 6)

    def test_proxy(self):
        self.need("curl")
        proxies = {("--proxytunnel", "--proxy", "http://127.0.0.1:3128"): ("connect", 56),
                   ("--proxy", "socks5h://127.0.0.1:3128"): ("socks5", 97),
                   ("--proxy", "socks5h://user:secret@127.0.0.1:3128"): ("socks5", 97),
                   # The client resolves the name itself and sends our address, which stands for the
                   # name.
                   ("--proxy", "socks5://127.0.0.1:3128"): ("socks5", None)}
        for args, (how, denied) in proxies.items():
            with self.subTest(args):
                self.assertEqual(self.curl(*args, "http://x.allowed.test:81/").stdout, f"x.allowed.test:81 {how}\n")
                if denied:
                    self.assertEqual(self.curl(*args, "http://denied.test:81/").returncode, denied)

    # ---- addresses ----

    def test_everything_else_is_unreachable_at_once(self):
        """For every protocol; allowed destinations have no UDP either."""
        found = self.python("""
def attempt(host, kind):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as s:
        try:
            s.connect((host, 443))
            s.send(b"x")
            return s.recv(1).decode()
        except OSError as e:
            return errno.errorcode[e.errno]
socket.getaddrinfo("allowed.test", 443)
hosts = ("192.0.2.1", "10.0.0.1", "169.254.169.254", "2001:db8::1", "198.18.1.0", "198.19.255.255")
print(json.dumps({h: [attempt(h, socket.SOCK_STREAM) if h != "198.18.1.0" else "", attempt(h, socket.SOCK_DGRAM)] for h in hosts}))
""")
        for host in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "2001:db8::1"):
            self.assertEqual(found[host], ["ENETUNREACH", "ENETUNREACH"], host)
        self.assertEqual(found["198.18.1.0"], ["", "ECONNREFUSED"])
        self.assertEqual(found["198.19.255.255"], ["ECONNRESET", "ECONNREFUSED"])

    def test_networks_of_rules(self):
        found = self.python(FETCH + """
print(json.dumps([fetch(u) for u in ("http://10.1.2.3:22/", "http://10.2.0.1/", "http://[2001:db8::5]:81/", "http://[2001:db9::5]/",
                                     "http://127.0.0.1:81/", "http://[::1]:81/")]))
""", networks=["10.1.0.0/16", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "127.0.0.0/8", "::1"])
        self.assertEqual(found, ["10.1.2.3:22 direct\n", "ENETUNREACH", "[2001:db8::5]:81 direct\n", "ENETUNREACH",
                                 "ECONNREFUSED", "ECONNREFUSED"])

    def test_a_host_without_ipv6(self):
        found = self.python(FETCH + """
print(json.dumps([fetch(u) for u in ("http://[2001:db8::5]:81/", "http://10.1.2.3:81/", "http://allowed.test/")]))
""", networks=["2001:db8::/32", "10.1.0.0/16"], options=["-4"])
        self.assertIn(found.pop(0), ("EADDRNOTAVAIL", "ENETUNREACH"))
        self.assertEqual(found, ["10.1.2.3:81 direct\n", "allowed.test:80 direct\n"])

    def test_the_whole_of_ipv4(self):
        found = self.python(FETCH + """
print(json.dumps([fetch(u) for u in ("http://192.0.2.1:81/", "http://127.0.0.1:81/", "http://allowed.test/")]))
""", networks=["0.0.0.0/0"])
        self.assertEqual(found, ["192.0.2.1:81 direct\n", "ECONNREFUSED", "allowed.test:80 direct\n"])

    # ---- programs in their own network ----

    def test_loopback_is_the_sandboxs_own(self):
        """Its own servers work and get no outgoing connections, nor does the program's own
        source address."""
        found = self.python("""
addr = socket.gethostbyname("allowed.test")
own = socket.create_server(("", 8080))
there = socket.create_server((addr, 8081))
client = socket.create_connection(("127.0.0.1", 8080))
got = own.accept()[0].getsockname()
def fetch(port, source):
    with socket.create_connection((addr, port), source_address=source) as s:
        s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return s.makefile().read().split("\\n")[-2]
print(json.dumps([got, fetch(8080, None), fetch(8081, None), fetch(8082, ("198.18.7.7", 0)), fetch(8083, (addr, 0))]))
""")
        self.assertEqual(found, [["127.0.0.1", 8080]] + [f"allowed.test:{port} direct" for port in (8080, 8081, 8082, 8083)])

    def test_the_ports_are_taken(self):
        """By a program without capabilities, like all programs of a sandbox."""
        found = self.python("""
import ctypes
assert ctypes.CDLL(None).setresuid(0, 0, 0) == 0
head, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(head, none) == 0
def attempt(kind, addr, port, option=None):
    with socket.socket(socket.AF_INET, kind) as s:
        try:
            if option:
                s.setsockopt(*option)
            s.bind((addr, port))
            return "bound"
        except OSError as e:
            return errno.errorcode[e.errno]
again = (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
print(json.dumps([attempt(socket.SOCK_DGRAM, "127.0.0.1", 53), attempt(socket.SOCK_DGRAM, "0.0.0.0", 53, again),
                  attempt(socket.SOCK_STREAM, "127.0.0.1", 3128, again), attempt(socket.SOCK_STREAM, "198.18.0.1", 1, again),
                  attempt(socket.SOCK_STREAM, "127.0.0.1", 0, (socket.SOL_IP, 19, 1)),
                  attempt(socket.SOCK_STREAM, "127.0.0.1", 3129)]))
""")
        self.assertEqual(found, ["EACCES", "EACCES", "EADDRINUSE", "EACCES", "EPERM", "bound"])

    def test_many_at_once(self):
        """Three hundred connections and as many DNS queries, all answered."""
        self.assertEqual(self.python("""
streams = [socket.create_connection(("allowed.test", 1000 + i)) for i in range(300)]
for s in streams:
    s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(json.dumps(all(f"allowed.test:{1000 + i} direct" in s.makefile().read() for i, s in enumerate(streams))))
"""), True)


class AsCaller(Box, unittest.TestCase):
    pass


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be somebody else")
class AsUser(Box, unittest.TestCase):
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
