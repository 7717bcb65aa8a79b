# SPDX-License-Identifier: Apache-2.0
"""Secrets that are refreshed: hutch secret set --oauth and --github-app, and hutch secret refresh,
with a token endpoint of the test's own."""

import base64
import contextlib
import json
import os
import subprocess
import tempfile
import unittest
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import unquote

from support import hutch, hutch_path
from test_secret import Secrets, unseal
from token_server import TokenServer, basic, form, make_authority
from waiting import LONG, eventually

CLIENT_SECRET = "client+secret/0123456789=%"


class Tokens(Secrets):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.keys.cleanup)
        cls.cert, cls.key = make_authority(Path(cls.keys.name))
        cls.other, cls.other_key = make_authority(Path(cls.keys.name), "localhost")

    def setUp(self):
        super().setUp()
        self.server = self.serve(self.cert, self.key)
        self.trust(self.cert)

    def serve(self, cert, key):
        server = TokenServer(cert, key)
        self.addCleanup(server.stop)
        return server

    def trust(self, cert):
        config = self.dir / "config"
        config.mkdir(exist_ok=True)
        (config / "host.yaml").write_text(f"tap_roots: {cert}\n")
        self.env["HUTCH_CONFIG_PATH"] = str(config)

    def client(self, **more):
        o = {"token_url": f"{self.server.url}/oauth/token?a=b", "client_id": "my client", "client_secret": CLIENT_SECRET, "scope": "read write", **more}
        return json.dumps({k: v for k, v in o.items() if v is not None})

    def set_client(self, name="API", code=0, **more):
        return self.secret("set", "--replace", name, "--oauth", "-", given=self.client(**more), code=code)

    def token(self, name="API"):
        """NAME.token, opened as hutch-state(5) says."""
        set_at = json.loads(self.sealed(name))["set"]
        data = (self.store / f"{name}.token").read_bytes()
        text = unseal((self.store / "key").read_bytes(), data[:24], f"hutch token {name} {set_at}".encode(), data[24:])
        self.assertIsNotNone(text)
        return json.loads(text)

    def started(self, *args):
        return subprocess.Popen([hutch_path(), "secret", *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class OAuth(Tokens):
    def test_client_credentials(self):
        self.assertRegex(self.set_client(), r"\AAPI: set\nAPI: refreshed 2\d\d\d-.*Z\n\Z")
        request, = self.server.requests
        self.assertEqual(request["path"], "/oauth/token?a=b")
        self.assertEqual(form(request), {"grant_type": "client_credentials", "scope": "read write"})
        user, _, password = basic(request).partition(":")
        self.assertEqual((user, unquote(password)), ("my%20client", CLIENT_SECRET))
        self.assertEqual(self.token()["token"], self.server.tokens[0])
        self.assertEqual(json.loads(self.value("API"))["client_secret"], CLIENT_SECRET)
        self.assertEqual(self.listed()[0]["source"], "oauth")
        self.check_nowhere(CLIENT_SECRET, self.server.tokens[0])

    def test_secret_in_the_body(self):
        self.set_client(auth="body", audience="https://api.example")
        request, = self.server.requests
        self.assertNotIn("authorization", request["headers"])
        self.assertEqual(form(request), {"grant_type": "client_credentials", "scope": "read write", "audience": "https://api.example",
                                         "client_id": "my client", "client_secret": CLIENT_SECRET})

    def test_yaml(self):
        path = self.write("client.yaml", f"token_url: {self.server.url}/t\nclient_id: me\nclient_secret: {CLIENT_SECRET}  # comment\n")
        path = str(path)
        self.secret("set", "API", "--oauth", path)
        self.assertEqual(self.token()["token"], self.server.tokens[0])

    def test_chunked_answer(self):
        self.server.chunked = True
        self.set_client()
        self.assertEqual(self.token()["token"], self.server.tokens[0])

    def test_fresh_until_a_quarter_is_left(self):
        self.set_client()
        self.assertIn("API: fresh ", self.secret("refresh", "API"))
        self.assertEqual(len(self.server.requests), 1)
        self.assertIn("API: refreshed ", self.secret("refresh", "--force", "API"))
        self.assertEqual(self.token()["token"], self.server.tokens[1])

    def test_expiry(self):
        self.server.life = 10
        self.set_client()
        token = self.token()
        self.assertEqual(parsed(token["expires"]) - parsed(token["issued"]), timedelta(seconds=10))

        def refreshed():
            self.secret("refresh", "API")
            return len(self.server.tokens) > 1
        eventually(refreshed, "a second token after three quarters of ten seconds")
        self.assertLess(datetime.now(timezone.utc), parsed(token["expires"]) + timedelta(seconds=LONG))
        self.assertEqual(self.token()["token"], self.server.tokens[-1])

    def test_refresh_token_rotation(self):
        self.server.rotate = True
        self.set_client(client_secret=None, refresh_token="first-refresh-token")
        self.secret("refresh", "--force", "API")
        self.server.rotate = False
        self.secret("refresh", "--force", "API")
        self.secret("refresh", "--force", "API")
        sent = [form(r)["refresh_token"] for r in self.server.requests]
        self.assertEqual(sent, ["first-refresh-token", *self.server.refreshes, self.server.refreshes[-1]])
        self.assertEqual({form(r)["grant_type"] for r in self.server.requests}, {"refresh_token"})
        self.assertEqual(form(self.server.requests[0])["client_id"], "my client")
        self.assertEqual(self.token()["refresh_token"], self.server.refreshes[-1])
        self.check_nowhere("first-refresh-token", *self.server.refreshes, *self.server.tokens)

    def test_rotation_is_one_rename(self):
        """A process that cannot write the file keeps token and refresh token of before."""
        self.server.rotate = True
        self.set_client(client_secret=None, refresh_token="first-refresh-token")
        before = (self.store / "API.token").read_bytes()
        env = {**self.env, "ASAN_OPTIONS": self.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # that needs ptrace, too
        r = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat", "-e", "inject=rename,renameat:error=EIO",
                            hutch_path(), "secret", "refresh", "--force", "API"], env=env, capture_output=True, timeout=LONG, check=False)
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertEqual((self.store / "API.token").read_bytes(), before)

    def test_processes_at_once_refresh_once(self):
        self.server.answers = [(503, "{}")]
        self.set_client(code=125)
        self.server.gate.clear()
        running = [self.started("refresh", "API") for _ in range(4)]
        eventually(lambda: len(self.server.requests) == 2, "the request of the first one")
        self.server.gate.set()
        for p in running:
            out, err = p.communicate(timeout=LONG)
            self.assertEqual(p.returncode, 0, err)
            self.assertRegex(out, rb"API: (fresh|refreshed) ")
        self.assertEqual(len(self.server.requests), 2)

    def test_a_slow_endpoint_does_not_lock_the_store(self):
        self.set_client()
        self.server.gate.clear()
        slow = self.started("refresh", "--force", "API")
        eventually(lambda: len(self.server.requests) == 2, "its request")
        self.secret("set", "OTHER", given="0123456789")
        # The answer for a credential that was removed meanwhile is not stored.
        self.secret("rm", "API")
        self.server.gate.set()
        out, err = slow.communicate(timeout=LONG)
        self.assertEqual((slow.returncode, out), (125, b""), err)
        self.assertFalse((self.store / "API.token").exists())

    def test_who_speaks_with_the_endpoint(self):
        """The process with the connection has no descriptor of the store, and is not root."""
        self.set_client()
        self.server.gate.clear()
        slow = self.started("refresh", "--force", "API")
        eventually(lambda: len(self.server.requests) == 2, "its request")
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "comm").read_text() == "hutch-token\n":
                    links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
                    found[process.name] = (links, (process / "status").read_text())
        speaks = [(links, status) for links, status in found.values() if any(f.startswith("socket:") for f in links)]
        self.server.gate.set()
        slow.communicate(timeout=LONG)
        self.assertTrue(any(str(self.store) in f for links, _ in found.values() for f in links) or os.geteuid() != 0, found)
        for links, status in speaks:
            self.assertEqual([f for f in links if str(self.dir) in f], [])
            if os.geteuid() == 0:
                self.assertIn("\nUid:\t65534\t65534\t65534\t65534\n", status)
                self.assertIn("\nCapEff:\t0000000000000000\n", status)
        self.assertEqual(len(speaks) > 0, os.geteuid() == 0, found)  # others cannot look into it

    def test_it_gives_up_files_once_connected(self):
        """The process that speaks with the endpoint opens no file and makes no socket from then on."""
        self.set_client()
        trace = self.dir / "trace"
        # With sanitizers it fails at its end: their search for leaks needs ptrace, too.
        subprocess.run(["strace", "-ff", "-qq", "-o", trace, "-e", "trace=connect,landlock_restrict_self,openat,openat2,socket,sendto,write", hutch_path(),
                        "secret", "refresh", "--force", "API"], env=self.env, check=False, capture_output=True, timeout=LONG)
        calls = [f.read_text() for f in self.dir.glob("trace.*")]
        checks = json.loads(hutch("doctor", "--json", env=self.env).stdout)["checks"]
        if next(c["state"] for c in checks if c["id"] == "sec.landlock") != "ok":
            self.skipTest("no Landlock")
        [speaks] = [text for text in calls if "landlock_restrict_self" in text]
        before, _, after = speaks.partition("landlock_restrict_self")
        self.assertRegex(before, r"connect\(\d+, .*sin_port.* = 0\n")
        self.assertIn('openat(AT_FDCWD, "/", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = -1 EACCES', after, "the check of Landlock itself")
        self.assertNotRegex(after, r"(open|openat2?|socket|connect)\(.* = \d+\n")
        self.assertRegex(after, r"write\(\d+, .* = \d+\n")

    def test_a_new_credential_has_no_old_token(self):
        self.set_client()
        self.server.answers = [(503, "{}")]
        self.set_client(scope="other", code=125)
        self.assertFalse((self.store / "API.token").exists())


class Refusals(Tokens):
    def refused(self, pattern, answer=None, **more):
        """No token comes; the credential stays, and no text of the answer is shown or stored."""
        if answer:
            self.server.answers = [answer]
        self.assertRegex(self.set_client(code=125, **more), pattern)
        self.assertFalse((self.store / "API.token").exists())
        self.assertTrue((self.store / "API.value").exists())
        self.check_nowhere(CLIENT_SECRET, "leaky")

    def test_wrong_authority(self):
        self.trust(self.other)
        self.refused("the certificate of '127.0.0.1' is not valid: self-signed certificate")
        self.assertEqual(self.server.requests, [])

    def test_wrong_name(self):
        self.server = self.serve(self.other, self.other_key)
        self.trust(self.other)
        self.refused("the certificate of '127.0.0.1' is not valid: IP address mismatch")
        self.assertEqual(self.server.requests, [])

    def test_error_of_the_endpoint(self):
        body = json.dumps({"error": "invalid_grant", "error_description": "leaky-0123456789"})
        self.refused(r"refused with status 400: invalid_grant\n", (400, body))

    def test_unknown_error(self):
        self.refused(r"refused with status 401\n", (401, json.dumps({"error": "leaky-0123456789"})))

    def test_redirect(self):
        self.refused(r"refused with status 302\n", (302, "leaky"))

    def test_invalid_answers(self):
        good = {"access_token": "leaky-0123456789", "token_type": "bearer", "expires_in": 60}
        for o in ({**good, "token_type": "mac"}, {**good, "expires_in": "60"}, {**good, "expires_in": -1}, {**good, "access_token": "leaky\n0123456789"},
                  {**good, "access_token": 1}, {"token_type": "bearer"}, [good]):
            self.refused("the token endpoint's", (200, json.dumps(o)))
        for text in ("leaky", json.dumps(good)[:-1], json.dumps(good) + "x", '{"access_token":"leaky-0123456789","access_token":"leaky-0123456789"}'):
            self.refused("the token endpoint's", (200, text))
        self.refused("longer than 65536 bytes|its length", (200, json.dumps({**good, "more": "leaky" * 20000})))

    def test_nobody_listens(self):
        url = self.server.url
        self.server.stop()
        self.server.stop = lambda: None
        self.refused("cannot connect to '127.0.0.1'", token_url=url + "/")

    def test_the_old_token_stays(self):
        self.set_client()
        before = (self.store / "API.token").read_bytes()
        self.server.answers = [(500, "leaky")]
        self.assertIn("status 500", self.secret("refresh", "--force", "API", code=125))
        self.assertEqual((self.store / "API.token").read_bytes(), before)
        self.check_nowhere("leaky")

    def test_wrong_credentials(self):
        for more, pattern in (({"token_url": "http://127.0.0.1/"}, "https://"), ({"token_url": "https://u@h/"}, "host"), ({"token_url": "https://h/ x"}, "encoded"),
                              ({"client_id": None}, "'client_id' is missing"), ({"client_secret": None}, "'client_secret' or 'refresh_token'"),
                              ({"auth": "both"}, "'auth'"), ({"extra": "x"}, "extra")):
            self.assertRegex(self.set_client(code=1, **more), pattern)
        self.assertEqual(self.files() if self.store.exists() else [], [])

    def test_other_secrets_are_not_refreshed(self):
        self.secret("set", "PLAIN", given="0123456789")
        self.assertIn("'PLAIN' is not refreshed", self.secret("refresh", "PLAIN", code=125))
        self.assertIn("no secret 'NONE'", self.secret("refresh", "NONE", code=1))

    def test_a_token_is_not_rotated(self):
        self.set_client()
        self.assertIn("--oauth", self.secret("rotate", "API", given="0123456789", code=2))

    def test_removal(self):
        self.set_client()
        self.secret("rm", "API")
        self.assertEqual(self.files(), [])

    def test_audit(self):
        self.server.answers = [(400, json.dumps({"error": "invalid_client"}))]
        self.set_client(code=125)
        records = self.call("ls") and subprocess.run([hutch_path(), "audit", "show", "--json", "-v"], env=self.env, capture_output=True, check=True).stdout
        self.assertIn(b"refresh", records)
        self.assertIn(b"invalid_client", records)


class GitHub(Tokens):
    def app(self, **more):
        o = {"app_id": "12345", "installation_id": "678", "private_key": self.key.read_text(), "api_url": f"{self.server.url}/api/v3", **more}
        return json.dumps(o)

    def claims(self, request):
        """The claims of the proof, after its signature was verified with the public key."""
        head, body, signature = request["headers"]["authorization"].removeprefix("Bearer ").split(".")
        decode = lambda s: base64.urlsafe_b64decode(s + "=" * (-len(s) % 4))
        public = subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout"], check=True, capture_output=True).stdout
        (self.dir / "public").write_bytes(public)
        (self.dir / "signature").write_bytes(decode(signature))
        subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.dir / "public", "-signature", self.dir / "signature"],
                       input=f"{head}.{body}".encode(), check=True, capture_output=True)
        self.assertEqual(json.loads(decode(head)), {"alg": "RS256", "typ": "JWT"})
        return json.loads(decode(body))

    def test_installation_token(self):
        expires = datetime.now(timezone.utc) + timedelta(hours=1)
        answer = {"token": "ghs_0123456789abcdef", "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "permissions": {"issues": "write"}}
        self.server.answers = [(201, json.dumps(answer))]
        limits = {"repositories": ["hutch"], "permissions": {"issues": "write"}}
        self.secret("set", "GH", "--github-app", "-", given=self.app(**limits))
        request, = self.server.requests
        self.assertEqual(request["path"], "/api/v3/app/installations/678/access_tokens")
        self.assertEqual(json.loads(request["body"]), limits)
        claims, now = self.claims(request), datetime.now(timezone.utc).timestamp()
        self.assertEqual(claims["iss"], "12345")
        self.assertTrue(now - 60 - LONG < claims["iat"] <= now - 60 and now < claims["exp"] <= now + 600, claims)
        self.assertEqual(self.token("GH")["token"], "ghs_0123456789abcdef")
        key = self.key.read_text().splitlines()[1]
        self.check_nowhere(key, "ghs_0123456789abcdef")

    def test_wrong_keys(self):
        self.assertIn("not a private key", self.secret("set", "GH", "--github-app", "-", given=self.app(private_key="x"), code=1))
        head, *lines = self.key.read_text().splitlines()
        broken = "\n".join([head, lines[0][::-1], *lines[1:]])
        self.assertIn("not an RSA key", self.secret("set", "GH", "--github-app", "-", given=self.app(private_key=broken), code=125))
        self.assertEqual(self.server.requests, [])


def parsed(text):
    return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc)


if __name__ == "__main__":
    unittest.main()
