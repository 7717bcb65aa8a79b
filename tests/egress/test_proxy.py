# SPDX-License-Identifier: Apache-2.0
"""egress_proxy in host.yaml: every allowed stream goes through the host's proxy, and all rules
still apply."""

import tempfile
from pathlib import Path

from boxes import WORLD, EgressCase, policy, run
from sandbox import CONFIG, hutch

PROXY = "proxy.hutch.test:3128"
WEB = "https://web.hutch.test/"


class Proxied(EgressCase):
    def proxied(self, *domains, proxy=f"http://{PROXY}"):
        """Makes a sandbox while host.yaml names a proxy."""
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        (Path(where.name) / "host.yaml").write_text(f"egress_proxy: {proxy}\n")
        agent = policy(f"egress-proxy-{len(self.own)}", domains)
        box = self.create("--agent", agent, env={"HUTCH_CONFIG_PATH": f"{where.name}:{CONFIG}"})
        self.own.append(box)
        WORLD("proxy")
        return box

    def get(self, box, url=WEB, *more):
        return run(box, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *more, url)

    def test_goes_through_it(self):
        box = self.proxied("web.hutch.test", "93.184.216.11:443")
        self.assertEqual(self.get(box).out, "200")
        self.assertEqual(WORLD("proxy"), ["CONNECT web.hutch.test:443 HTTP/1.1"])
        self.logged(box, over=True, name="web.hutch.test", port=443, address="93.184.216.22", proxy=PROXY)
        self.assertEqual(self.asked(), {"proxy.hutch.test"})  # the proxy looks up the name itself
        self.assertEqual(self.get(box, "https://93.184.216.11/", "-k").out, "200")
        self.assertEqual(WORLD("proxy"), ["CONNECT 93.184.216.11:443 HTTP/1.1"])

    def test_rules_hold(self):
        """Denied connections do not reach the proxy, and the first bytes are still checked."""
        box = self.proxied("web.hutch.test", "224.0.0.0/8:443")
        self.assertNotEqual(self.get(box, "https://api.hutch.test/").code, 0)
        self.assertNotEqual(self.get(box, "http://web.hutch.test/").code, 0)
        self.assertNotEqual(self.get(box, "https://224.0.0.1/", "-x", "127.0.0.1:3128").code, 0)
        self.assertEqual(WORLD("proxy"), [])
        self.assertNotEqual(self.get(box, "https://api.hutch.test/", "--connect-to", "api.hutch.test:443:web.hutch.test:443").code, 0)
        self.logged(box, name="web.hutch.test", reason="asks for something else than it connected to")

    def test_addresses_are_the_proxys(self):
        """The limit that docs/THREAT-MODEL.md names: behind a proxy, hutch does not see a name's
        address."""
        box = self.proxied("git.corp.test")
        self.assertEqual(self.get(box, "https://git.corp.test/").out, "200")
        self.assertEqual(WORLD("proxy"), ["CONNECT git.corp.test:443 HTTP/1.1"])

    def test_refused_by_it(self):
        box = self.proxied("nowhere.hutch.test")
        self.assertNotEqual(self.get(box, "https://nowhere.hutch.test/").code, 0)
        self.logged(box, over=True, name="nowhere.hutch.test", reason="no address answered", detail="the proxy answered 403")

    def test_not_there(self):
        """Without its proxy nothing goes out: there is no direct way."""
        box = self.proxied("web.hutch.test", proxy="http://no-proxy.hutch.test:3128")
        self.assertNotEqual(self.get(box).code, 0)
        self.logged(box, over=True, name="web.hutch.test", reason="the name has no address")

    def test_speaks_first(self):
        """Server bytes right after the proxy's answer belong to the stream."""
        box = self.proxied("tcp.hutch.test:7777")
        self.assertTrue(run(box, "bash", "-c", "exec 3<>/dev/tcp/tcp.hutch.test/7777 && head -1 <&3").out)

    def test_wrong_configuration(self):
        with tempfile.TemporaryDirectory() as where:
            (Path(where) / "host.yaml").write_text("egress_proxy: proxy.hutch.test:3128\n")
            r = hutch("create", "--agent", policy("egress-proxy-wrong", ["web.hutch.test"]), env={"HUTCH_CONFIG_PATH": f"{where}:{CONFIG}"})
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(b"egress_proxy: expected http://HOST:PORT", r.stderr)
