# SPDX-License-Identifier: Apache-2.0
"""
The CA of the sandbox: the guest, in a root directory of its own with an /etc like Debian's, gets
it in HELLO, and programs trust it. test-ca-store.c tests the files for other distributions.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import wire
from guest import GROUP, NAMESPACES, PASSWD, ROOT, Guest, GuestCase, environment, guest_path

OWN_ROOT = """
mount -t tmpfs -o mode=755 none "$1" && cd "$1" && mkdir -p etc/ssl/certs proc dev tmp w/home && chmod 1777 tmp w || exit 90
for d in bin sbin lib lib32 lib64 usr; do
	if [ -L /$d ]; then cp -P /$d $d; elif [ -d /$d ]; then mkdir $d && mount --rbind /$d $d || exit 91; fi
done
mount --rbind /proc proc && mount --rbind /dev dev && cp "$2" guest && cp "$3" etc/passwd && cp "$4" etc/group || exit 92
[ -z "$5" ] || cp "$5" etc/ssl/certs/ca-certificates.crt || exit 93
[ "$6" != ro ] || mount -o remount,ro "$1" || exit 94
shift 6
exec chroot . /guest "$@"
"""
SYSTEM = ["/usr", "/bin", "/lib", "/lib64"]
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# A TLS server and a client with the defaults of OpenSSL in one program.
TLS = """
import socket, ssl, sys, threading
ours, theirs = socket.socketpair()
def serve():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain("/tmp/server.pem")
    try:
        c.wrap_socket(theirs, server_side=True).sendall(b"hello")
    except ssl.SSLError:
        theirs.close()
t = threading.Thread(target=serve)
t.start()
try:
    print(ssl.create_default_context().wrap_socket(ours, server_hostname="api.test").recv(5).decode())
except ssl.SSLCertVerificationError as e:
    print(e.verify_message)
    ours.close()
t.join()
"""


def openssl(*args, **more):
    return subprocess.run(["openssl", *args], check=True, capture_output=True, text=True, **more).stdout


def make_ca(top, name):
    """The certificate of a CA as hutch-tap makes it, and a server's certificate with its key."""
    key, ca = f"{top}/{name}.key", f"{top}/{name}.pem"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl("req", "-x509", *new, "-keyout", key, "-out", ca, "-subj", "/CN=Hutch sandbox CA")
    server = openssl("req", "-x509", *new, "-keyout", f"{top}/server.key", "-CA", ca, "-CAkey", key, "-subj", "/CN=api.test",
                     "-addext", "subjectAltName=DNS:api.test", "-addext", "basicConstraints=CA:FALSE")
    return Path(ca).read_text(), server + Path(f"{top}/server.key").read_text()


class OwnRoot(Guest):
    def __init__(self, bundle=None, readonly=False):  # pylint: disable=super-init-not-called
        self.top = tempfile.mkdtemp(prefix="hutch-guest-")
        os.chmod(self.top, 0o755)
        self.dir, self.home = "/w", "/w/home"
        os.mkdir(f"{self.top}/mnt")
        Path(self.top, "passwd").write_text(PASSWD.replace("HOME", self.home), "latin-1")
        Path(self.top, "group").write_text(GROUP)
        if bundle:
            Path(self.top, "bundle").write_text(bundle)
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [*NAMESPACES, "sh", "-c", OWN_ROOT, "sh", f"{self.top}/mnt", guest_path(), f"{self.top}/passwd", f"{self.top}/group",
             f"{self.top}/bundle" if bundle else "", "ro" if readonly else "rw", "--channel", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        theirs.close()
        self.link = wire.Link(ours)


@unittest.skipUnless(shutil.which("openssl"), "there is no openssl")
class TestTrust(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.top = tempfile.mkdtemp(prefix="hutch-ca-")
        cls.addClassCleanup(shutil.rmtree, cls.top)
        cls.ca, cls.server = make_ca(cls.top, "one")
        cls.other, cls.other_server = make_ca(cls.top, "two")
        cls.root = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null",
                           "-subj", "/CN=A root of the image")

    def setUp(self):
        pass

    def start(self, greet=True, bundle=None, readonly=False, **hello):  # pylint: disable=arguments-differ,arguments-renamed
        self.guest = OwnRoot(bundle, readonly)
        self.addCleanup(self.end, self.guest)
        self.link, self.dir = self.guest.link, self.guest.dir
        if greet:
            self.link.hello(**hello)

    def speaks(self, server):
        self.write("/tmp/server.pem", server)
        return self.python(TLS).strip()

    @staticmethod
    def block(ca):
        return f"# Hutch sandbox CA begin\n{ca}# Hutch sandbox CA end\n"

    # ---- files ----
    def test_files(self):
        self.start(bundle=self.root, ca=self.ca)
        self.assertEqual(self.ok("cat /etc/hutch/ca.pem"), self.ca)
        self.assertEqual(self.ok("cat /etc/hutch/bundle.pem"), self.root + self.block(self.ca))
        self.assertEqual(self.ok(f"cat {BUNDLE}"), self.root + self.block(self.ca))
        self.assertEqual(self.ok("stat -c '%A %u:%g' /etc/hutch /etc/hutch/ca.pem " + BUNDLE),
                         "drwxr-xr-x 0:0\n-rw-r--r-- 0:0\n-rw-r--r-- 0:0\n")
        self.assertEqual(self.ok("ls -A /etc/hutch /etc/ssl/certs | grep -v pem"),
                         "/etc/hutch:\n\n/etc/ssl/certs:\n0b35cce6.0\nca-certificates.crt\n")

    def test_no_ca(self):
        self.start(bundle=self.root)
        self.assertEqual(self.ok(f"ls -A /etc/ssl/certs; cat {BUNDLE}"), "ca-certificates.crt\n" + self.root)
        self.assertEqual(self.ok("ls -d /etc/hutch 2>&1 || :").count("No such"), 1)

    # ---- programs ----
    def test_programs_trust_it(self):
        self.start(bundle=self.root, ca=self.ca)
        self.assertEqual(self.speaks(self.server), "hello")
        self.assertIn("unable to get local issuer", self.speaks(self.other_server))
        self.write("/tmp/leaf.pem", self.server)
        for where in ("", "-no-CApath", "-no-CAfile", "-CAfile /etc/hutch/bundle.pem", "-CAfile /etc/hutch/ca.pem -no-CApath"):
            self.assertEqual(self.ok(f"openssl verify {where} /tmp/leaf.pem"), "/tmp/leaf.pem: OK\n", where)

    def test_image_without_certificates(self):
        self.start(ca=self.ca)
        self.assertEqual(self.speaks(self.server), "hello")
        self.assertEqual(self.ok("cat /etc/hutch/bundle.pem"), self.block(self.ca))

    def test_without_it_they_do_not(self):
        self.start(bundle=self.root)
        self.assertIn("unable to get local issuer", self.speaks(self.server))

    # ---- policies ----
    def test_every_policy_can_read_it(self):
        self.start(greet=False, bundle=self.root)
        if not self.link.hello(read=[*SYSTEM, "/tmp"], write=["/tmp"], execute=SYSTEM, ca=self.ca).get("landlock"):
            self.skipTest("this kernel has no Landlock")
        self.assertEqual(self.ok("cat /etc/hutch/ca.pem"), self.ca)
        self.assertEqual(self.ok(f"cat {BUNDLE} /etc/hutch/bundle.pem"), 2 * (self.root + self.block(self.ca)))
        self.assertEqual(self.speaks(self.server), "hello")
        for denied in ("cat /etc/passwd", "ls /etc", "touch /etc/hutch/x", f"echo >> {BUNDLE}"):
            self.assertNotEqual(self.sh(denied, user="root").exit["code"], 0, denied)

    def test_another_hello(self):
        self.start(bundle=self.root, ca=self.ca, read=[*SYSTEM, "/tmp"], write=["/tmp"], execute=SYSTEM)
        for ca, server, wrong in ((self.other, self.other_server, self.server), (self.ca, self.server, self.other_server)):
            self.link.sleep()
            self.link.hello_again(read=[*SYSTEM, "/tmp"], write=["/tmp"], execute=SYSTEM, ca=ca)
            self.assertEqual(self.ok("cat /etc/hutch/bundle.pem"), self.root + self.block(ca))
            self.assertEqual(self.speaks(server), "hello")
            self.assertIn("unable to get local issuer", self.speaks(wrong))

    # ---- trouble ----
    def test_users_have_damaged_the_files(self):
        """The sandbox continues: its users did that to themselves."""
        self.start(bundle=self.root, ca=self.ca)
        # A secret of PID 1 is not copied to a place that users can read.
        self.ok(f"cd /etc/hutch && rm ca.pem bundle.pem && mkdir ca.pem && ln -sf /proc/1/environ {BUNDLE}", user="root")
        self.link.sleep()
        self.link.hello_again(read=["/"], write=["/"], execute=["/"], ca=self.other)
        self.assertEqual(self.ok("ls -d /etc/hutch/ca.pem"), "/etc/hutch/ca.pem\n")
        self.assertEqual(self.ok(f"cat {BUNDLE}"), self.block(self.other))
        code, said = self.guest.end()
        self.assertEqual(code, 0)
        self.assertIn("warning: cannot write the CA of the sandbox to /etc/hutch: Is a directory", said)

    @unittest.skipUnless(ROOT, "root alone can remount")
    def test_read_only_root(self):
        self.start(bundle=self.root, readonly=True, ca=self.ca)
        self.assertEqual(self.ok(f"cat {BUNDLE}"), self.root)
        code, said = self.guest.end()
        self.assertEqual(code, 0)
        self.assertIn(f"cannot add the CA of the sandbox to {BUNDLE}: Read-only file system; the sandbox continues without it", said)

    def fails(self, ca):
        self.start(greet=False, bundle=self.root)
        self.link.hello(ca=ca, wait=False)
        self.link.wait_ended()
        self.assertIsNone(self.link.guest)
        code, said = self.guest.end()
        self.assertEqual(code, 1)
        return said

    def test_not_a_certificate(self):
        for ca in ("x", self.ca + self.other, self.ca + "# Hutch sandbox CA end\n", ""):
            self.assertIn("the CA of the sandbox is not one PEM certificate", self.fails(ca))

    def test_longest(self):
        lines = ["-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"]
        left = 4096 - sum(map(len, lines)) - 3
        self.assertEqual(left % 4, 0, "it is base64")
        longest = f"{lines[0]}\n{'A' * 64}\n{'A' * (left - 64)}\n{lines[1]}"
        self.assertEqual(len(longest), 4096)
        self.start(ca=longest)
        self.assertEqual(self.ok("cat /etc/hutch/ca.pem"), longest)
        self.assertIn("field 63 has an invalid value", self.fails(longest + "\n"))


if __name__ == "__main__":
    unittest.main()
