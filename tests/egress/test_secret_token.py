# SPDX-License-Identifier: Apache-2.0
"""Secrets that are refreshed, in real sandboxes: the requests have the current token, and the
warden gets a new one before it expires."""

import json
import tempfile
import threading
from pathlib import Path

from boxes import WORLD
from sandbox import STATE, hutch
from tapped import API, TapCase, credentials
from token_server import TokenServer, make_authority
from waiting import eventually

NAME = "API_TOKEN"
BOUND = {NAME: {"hosts": [API]}}


class Refreshed(TapCase):
    def setUp(self):
        super().setUp()
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        cert, key = make_authority(Path(where.name))
        self.server = TokenServer(cert, key)
        self.addCleanup(self.server.stop)
        config = Path(self.config["HUTCH_CONFIG_PATH"].split(":")[0])
        (config / "roots.pem").write_text(Path(WORLD.authority).read_text() + cert.read_text())
        (config / "host.yaml").write_text(f"disk_overcommit: true\ntap_roots: {config}/roots.pem\n")

    def account_packet(self, packet, dialled):
        """hutch and the warden speak with the token endpoint, on the loopback interface."""
        device, _, proto, src, sport, dst, dport, *_ = packet
        port = self.server.server_address[1]
        if (device, proto, src, dst) != ("lo", "tcp", "127.0.0.1", "127.0.0.1") or port not in (sport, dport):
            super().account_packet(packet, dialled)

    def client(self, life=3600):
        self.server.life = life
        given = json.dumps({"token_url": f"{self.server.url}/token", "client_id": "me", "client_secret": "client-secret-0123456789"})
        self.ended(hutch("secret", "set", NAME, "--oauth", "-", input=given.encode(), env=self.config), 0)
        self.addCleanup(hutch, "secret", "rm", NAME)

    def forget(self):
        """Removes the token, as if it had never come."""
        path, = Path(STATE).rglob(f"{NAME}.token")
        path.unlink()

    def sent(self, box, path):
        self.curl(box, f"https://{API}{path}")
        return credentials(self.one(API, path)).get("authorization")

    def test_a_request_has_the_token(self):
        self.client()
        self.assertEqual(self.sent(self.tapped(BOUND), "/first"), f"Bearer {self.server.tokens[0]}")
        self.assertEqual(len(self.server.requests), 1)

    def test_the_first_stream_waits_for_a_token(self):
        self.client()
        self.forget()
        box = self.tapped(BOUND)
        self.assertEqual(self.sent(box, "/waits"), f"Bearer {self.server.tokens[1]}")

    def test_refreshed_before_it_expires(self):
        self.client(life=10)
        box = self.tapped(BOUND)
        self.assertIn(self.sent(box, "/before"), [f"Bearer {t}" for t in self.server.tokens])
        seen, self.server.life = len(self.server.tokens), 3600
        eventually(lambda: len(self.server.tokens) > seen, "a new token without a request of the sandbox")
        newest = f"Bearer {self.server.tokens[-1]}"
        paths = (f"/after-{i}" for i in range(1000))
        eventually(lambda: self.sent(box, next(paths)) == newest, "a request with the new token")
        records = hutch("audit", "show", "--json", "-v").stdout.splitlines()
        self.assertTrue([r for r in records if b'"refresh"' in r and box.encode() in r], records[-5:])

    def test_the_old_token_is_used_until_it_expires(self):
        self.client(life=10)
        box = self.tapped(BOUND)
        self.server.answers = [(500, "leaky-0123456789")] * 100
        self.assertEqual(self.sent(box, "/good"), f"Bearer {self.server.tokens[0]}")
        eventually(lambda: len(self.server.requests) > 1, "a request that fails")
        self.assertEqual(self.sent(box, "/still"), f"Bearer {self.server.tokens[0]}")
        paths = (f"/over-{i}" for i in range(1000))

        def refused():
            path = next(paths)
            self.curl(box, f"-o /dev/null https://{API}{path}")
            return not self.requests(API, path)
        eventually(refused, "a request that has no token")
        self.assertNotIn(b"leaky", hutch("audit", "show", "--json", "-v").stdout)

    def test_two_sandboxes_refresh_once(self):
        self.client()
        boxes = [self.tapped(BOUND), self.tapped(BOUND)]
        self.forget()
        self.server.gate.clear()
        seen = {}
        threads = [threading.Thread(target=lambda i=i, b=b: seen.update({i: self.curl(b, f"https://{API}/both-{i}")})) for i, b in enumerate(boxes)]
        for t in threads:
            t.start()
        eventually(lambda: len(self.server.requests) == 2, "one request for both")
        self.server.gate.set()
        for t in threads:
            t.join()
        for i in range(2):
            self.assertEqual(credentials(self.one(API, f"/both-{i}"))["authorization"], f"Bearer {self.server.tokens[1]}")
        self.assertEqual(len(self.server.requests), 2)

    def test_without_a_token_nothing_is_sent(self):
        self.client()
        self.forget()
        self.server.answers = [(400, json.dumps({"error": "invalid_client", "error_description": "leaky-0123456789"}))]
        box = self.tapped(BOUND)
        self.curl(box, f"-o /dev/null https://{API}/without")
        self.assertEqual(self.requests(API, "/without"), [])
        records = hutch("audit", "show", "--json", "-v").stdout
        self.assertIn(b"invalid_client", records)
        self.assertNotIn(b"leaky", records)
