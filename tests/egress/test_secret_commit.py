# SPDX-License-Identifier: Apache-2.0
"""
An image made of a sandbox with secrets does not trust the sandbox's CA: it has the same digest as
one of a sandbox without secrets.
"""

import json

from boxes import run
from sandbox import hutch
from tapped import API, TapCase

OPEN = "filesystem:\n  workspace: /workspace\n  read: [/]\n  write: [/]\n  execute: [/]\n"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CHANGE = "echo changed >/etc/changed && mkdir /opt/mine && cp /etc/passwd /opt/mine"


class Committed(TapCase):
    def digest(self, box, name):
        self.addCleanup(hutch, "image", "rm", name)
        return json.loads(self.ended(hutch("commit", "--json", box, name), 0).stdout)["sha256"]

    def root(self, box, script):
        r = run(box, "sh", "-ec", script, opts=("-u", "0"))
        self.assertEqual(r.code, 0, r)
        return r.out

    def both(self, script):
        """Runs a script in a sandbox with a secret and in one without; returns them."""
        self.key("GITHUB_TOKEN")
        tapped, plain = self.tapped({"GITHUB_TOKEN": {"hosts": [API]}}, more=OPEN), self.tapped(domains=[API], more=OPEN)
        for box in (tapped, plain):
            self.root(box, script)
        ca = self.root(tapped, "cat /etc/hutch/ca.pem")
        self.assertIn(ca, self.root(tapped, f"cat {BUNDLE}"), "control")
        self.assertNotIn(ca, self.root(plain, f"cat {BUNDLE}"))
        return tapped, plain, ca

    def test_the_image_is_the_same(self):
        tapped, plain, ca = self.both(CHANGE)
        self.assertEqual(self.digest(tapped, "of-tapped"), self.digest(plain, "of-plain"))
        # The sandbox itself still trusts its CA, and a sandbox of the image gets its own.
        self.assertIn(ca, self.root(tapped, f"cat {BUNDLE}"))
        again = self.tapped({"GITHUB_TOKEN": {"hosts": [API]}}, more=OPEN, opts=("--image", "of-tapped"))
        self.arrives(again, API, self.key("GITHUB_TOKEN"))
        self.assertNotIn(ca, self.root(again, f"cat {BUNDLE}"))
        self.assertEqual(self.root(again, f"grep -c 'Hutch sandbox CA begin' {BUNDLE}; cat /etc/changed"), "1\nchanged\n")

    def test_after_update_ca_certificates(self):
        """It copies the CA into a bundle and links of its own."""
        tapped, plain, _ = self.both("update-ca-certificates --fresh >/dev/null 2>&1")
        self.assertEqual(self.root(tapped, "ls /etc/ssl/certs/hutch-sandbox-ca.pem"), "/etc/ssl/certs/hutch-sandbox-ca.pem\n", "control")
        self.assertEqual(self.digest(tapped, "updated-tapped"), self.digest(plain, "updated-plain"))
