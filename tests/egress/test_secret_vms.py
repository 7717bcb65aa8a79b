# SPDX-License-Identifier: Apache-2.0
"""
Secrets of sandboxes in VMs that are saved and continued. Programs in a saved VM hold the CA and the
placeholder in memory, so both stay the same after resume and in forks; values come from the store
as it is then. Neither a value nor the CA's private key is ever in a VM's memory or in a snapshot.
`tests/slow/machine.sh` runs these tests with HUTCH_TEST_LEVEL=microvm.
"""

import base64
import re
import ssl
import tempfile
import time

from boxes import run
from sandbox import STATE, as_root, children_of, hutch, in_machine, warden_of
from tapped import API, TapCase, contents, forms, headers, memory_of
from waiting import eventually

SNAPSHOTS = STATE / "machine/snapshots"
GITHUB = {"hosts": [API]}
KEY_BLOCK = re.compile(rb"-----BEGIN PRIVATE KEY-----(.*?)-----END", re.S)
# Keeps the placeholder and a TLS context in memory, and makes a request for each line of a pipe.
PROGRAM = r"""
import http.client, os, ssl, sys
context = ssl.create_default_context()
field = {'Authorization': 'Bearer ' + os.environ.pop('GITHUB_TOKEN')}
os.mkfifo('/tmp/asked')
print('ready', flush=True)
while True:
    with open('/tmp/asked') as f:
        path = f.read().strip()
    try:
        c = http.client.HTTPSConnection('HOST', timeout=240, context=context)
        c.request('GET', path, headers=field)
        answer = c.getresponse()
        answer.read()
        said = str(answer.status)
    except OSError as e:
        said = f'{type(e).__name__}: {e}'
    with open('/tmp/new', 'w') as f:
        f.write(path + ' ' + said)
    os.rename('/tmp/new', '/tmp/said')
""".replace("HOST", API)


def key_of(pid):
    """The number that is the CA's private key, from the memory of the warden."""
    for data in memory_of(pid):
        for text in KEY_BLOCK.findall(data):
            der = base64.b64decode(text.replace(b"\\n", b"").replace(b"\n", b""))
            return der[der.index(b"\x04\x20") + 2:][:32]
    raise AssertionError("the warden has no CA")


def key_forms(key):
    """Its bytes in both orders, and the beginning of each base64 text, before a line ends."""
    looked = {"key": key, "key backwards": key[::-1], "key in hex": key.hex().encode()}
    for shift in range(3):
        looked[f"key in base64 at {shift}"] = base64.b64encode(b"\0" * shift + key)[4:14]
    return looked


def search(parts, wanted):
    return sorted({form for data in parts for form, text in wanted.items() if text in data})


@in_machine
class Saved(TapCase):
    def say(self, *args):
        return self.ended(hutch(*args, env=self.config), 0).stdout.decode().split()

    def fork(self, box):
        [one] = self.say("fork", "-n", "1", box)
        self.addCleanup(hutch, "rm", "-f", one)
        self.own.append(one)
        return one

    def snapshot(self, box):
        [name] = self.say("snapshot", "create", box)
        self.addCleanup(hutch, "snapshot", "rm", name)
        return name

    def holding(self):
        """A sandbox with a program that was started before it is saved."""
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        self.agents = self.n
        self.ended(hutch("exec", "-d", box, "--", "python3", "-c", PROGRAM), 0)
        eventually(lambda: run(box, "test", "-p", "/tmp/asked").code == 0, "the program")
        return box

    def asks(self, box):
        """A request of that program: the status, and the credential that arrived."""
        self.n += 1
        path = f"/held-{self.n}"
        self.assertEqual(run(box, "sh", "-c", f"echo {path} >/tmp/asked").code, 0)
        said = eventually(lambda: (s := run(box, "cat", "/tmp/said").out.split(" ", 1))[0] == path and s, "its answer")[1]
        return said, [value for r in self.requests(API, path) for value in headers(r, "authorization")]

    def ca(self, box):
        return run(box, "cat", "/etc/hutch/ca.pem").out

    def held(self, box):
        return self.placeholder(box, "GITHUB_TOKEN"), self.ca(box)

    def uses(self, box, value):
        eventually(lambda: self.asks(box) == ("200", [f"Bearer {value}"]), f"a request of {box} with this value")

    def test_suspended_and_forked(self):
        """Both continue with the CA and the placeholder, and with the store's value of now."""
        old, box = self.key("GITHUB_TOKEN"), self.holding()
        held = self.held(box)
        self.uses(box, old)
        fork = self.fork(box)
        self.uses(fork, old)
        self.say("suspend", box)
        new = self.key("GITHUB_TOKEN")
        self.say("resume", box)
        for one in (box, fork):
            self.uses(one, new)
            self.assertEqual(self.held(one), held)
        self.nothing_of(held[0])
        self.ended(hutch("secret", "rm", "GITHUB_TOKEN"), 0)
        for one in (box, fork):
            said, arrived = eventually(lambda: (s := self.asks(one))[0] != "200" and s, "that the value is gone")
            self.assertRegex(said, "^[45]")
            self.assertEqual(arrived, [])

    def test_created_from_a_snapshot(self):
        """Also while the first one is gone."""
        value, box = self.key("GITHUB_TOKEN"), self.holding()
        held, name = self.held(box), self.snapshot(box)
        self.account_once()
        self.ended(hutch("rm", "-f", box), 0)
        again = self.create("--agent", f"tapped-{self.agents}", "--snapshot", name, env=self.config)
        self.own[:] = [again]
        self.uses(again, value)
        self.assertEqual(self.held(again), held)

    def test_the_certificate_outlives_a_long_suspend(self):
        """Its host may sleep for years; clocks of guests may be a little slow."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        with tempfile.NamedTemporaryFile("w") as f:
            f.write(self.ca(box))
            f.flush()
            context = ssl.create_default_context(cafile=f.name)
        [ca] = [c for c in context.get_ca_certs() if "Hutch sandbox CA" in str(c["subject"])]
        self.assertLess(ssl.cert_time_to_seconds(ca["notBefore"]), time.time() - 12 * 3600)
        self.assertGreater(ssl.cert_time_to_seconds(ca["notAfter"]), time.time() + 5 * 365 * 86400)

    @as_root
    def test_nowhere_in_memory_or_snapshots(self):
        value, control = self.key("GITHUB_TOKEN"), "the/control+of-this-search-0123456789"
        box = self.holding()
        self.ended(hutch("exec", "-d", "-e", f"CONTROL={control}", box, "--", "sleep", "4321"), 0)
        self.uses(box, value)
        key = key_of(warden_of(box))
        wanted = {**forms(value), **key_forms(key)}
        self.assertIn("key in base64 at 0", search(memory_of(warden_of(box)), wanted))
        self.assertIn("plain", search(memory_of(self.tap(box).pid), wanted))
        [qemu] = children_of(warden_of(box), "qemu-system-x86")
        self.assertEqual(search(memory_of(qemu), wanted), [])
        self.assertIn("plain", search(memory_of(qemu), forms(control)))
        self.say("suspend", box)
        files = [p for p in SNAPSHOTS.rglob("*") if p.is_file()]
        self.assertIn("ca", {p.name for p in files})
        found = {str(p): search(contents(p), wanted) for p in files}
        self.assertEqual({path: got for path, got in found.items() if got}, {})
        self.assertIn("memory", {p.name for p in files if search(contents(p), forms(control))})
        self.say("resume", box)
        self.uses(box, value)
