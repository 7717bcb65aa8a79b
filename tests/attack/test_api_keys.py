# SPDX-License-Identifier: Apache-2.0
"""
Keys, tokens and signatures: what they give access to, for how long, and where they must not appear.
"""

import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from api import ApiCase, new_key, request
from sandbox import ROOT, as_root, hutch, our_processes
from waiting import LONG, eventually, until_clock

LATER, BEFORE = 4_000_000_000, 1_000_000_000
SETTLE = 1  # seconds until a change of keys takes effect, hutch-keys(5)


class TestKeys(ApiCase):
    def status(self, key):
        return self.daemon.ask("GET", "/sandboxes", key=key)[0]

    def test_keys_that_are_none(self):
        right = self.daemon.keys["user"]
        for wrong in ("e2b_", right[:-1], right + "0", right[4:], right.upper(), right.replace("e2b_", "E2B_"), "x" * 10_000, "e2b_" + "g" * 40,
                      right[:-1] + ("0" if right[-1] != "0" else "1"), right + " x", "nobody", "\u00e9".encode().decode("latin-1"), "*", "null"):
            with self.subTest(wrong[:60]):
                self.assertEqual(self.status(wrong), 401)
        self.assertEqual(self.status(right), 200, "control")

    def test_a_revoked_key(self):
        key = new_key("to-be-revoked")
        eventually(lambda: self.status(key) == 200, "control: the new key")
        self.assertEqual(hutch("key", "revoke", "to-be-revoked").returncode, 0)
        until_clock(time.monotonic() + SETTLE)
        self.assertEqual(self.status(key), 401)
        self.assertEqual(self.status("user"), 200)

    def test_an_expired_key(self):
        for seconds in (5, 30, 120):  # on a slow host the first may expire before it is used
            key = new_key(f"lives-{seconds}", "--expires", f"{seconds}s")
            if seen := self.status(key) == 200:
                break
        self.assertTrue(seen, "control: the new key")
        eventually(lambda: self.status(key) == 401, "the end of the key")

    def test_a_key_is_checked_for_every_request_of_a_connection(self):
        key = new_key("on-one-connection")
        c = self.daemon.connect()
        self.addCleanup(c.close)

        def ask():
            c.sendall(f"GET /teams HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n".encode())
            return int(c.recv(65536)[9:12])

        eventually(lambda: ask() == 200, "control: the new key")
        self.assertEqual(hutch("key", "revoke", "on-one-connection").returncode, 0)
        until_clock(time.monotonic() + SETTLE)
        self.assertEqual(ask(), 401)

    def test_a_file_of_keys_that_is_wrong_lets_nobody_in(self):
        path = Path(os.environ["HUTCH_STATE_DIR"]) / "keys.json"
        right = path.read_bytes()
        try:
            for wrong in (right[:-10], right + b"x", b"", b"[]"):
                path.write_bytes(wrong)
                until_clock(time.monotonic() + SETTLE)
                self.assertEqual(self.status("user"), 401, wrong[:40])
                self.assertEqual(self.daemon.head("GET", "/sandboxes", unix=True), 200, "control: by the socket")
        finally:
            path.write_bytes(right)
        eventually(lambda: self.status("user") == 200, "the keys again")

    # ---- tokens ----
    def data(self, box, token, path="/envs"):
        return self.daemon.ask("GET", path, E2b_Sandbox_Id=box.id, E2b_Sandbox_Port="49983", X_Access_Token=token)[0]

    def test_a_token_opens_its_sandbox_and_no_other(self):
        self.assertEqual((self.data(self.box, self.box.token), self.data(self.others, self.others.token)), (200, 200), "control")
        self.assertEqual((self.data(self.box, self.others.token), self.data(self.others, self.box.token)), (401, 401))
        for wrong in ("", "0" * 40, self.box.token[:-1], self.box.token + "0", self.box.token.upper(), self.daemon.keys["user"],
                      self.daemon.keys["admin"], self.box.id):
            self.assertEqual(self.data(self.box, wrong), 401, wrong)

    def test_a_wrong_token_is_not_made_good_by_anything(self):
        """Neither a valid signature nor a key makes up for a wrong token."""
        target = f"/files?{self.box.signed('/etc/motd', 'read')}"
        self.assertEqual(self.daemon.ask("GET", target)[0], 200, "control")
        self.assertEqual(self.daemon.ask("GET", target, E2b_Sandbox_Id=self.box.id, X_Access_Token="0" * 40)[0], 401)
        self.assertEqual(self.daemon.ask("GET", "/envs", key="admin", E2b_Sandbox_Id=self.box.id, X_Access_Token="0" * 40)[0], 401)

    def test_a_token_ends_with_its_sandbox(self):
        box = self.daemon.make()
        self.assertEqual(self.data(box, box.token), 200, "control")
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{box.id}", key="user")[0], 204)
        self.assertEqual(self.data(box, box.token), 502)
        self.assertEqual(self.daemon.ask("GET", "/envs", X_Access_Token=box.token)[0], 502)

    def test_tokens_and_ids_are_drawn(self):
        made = [self.daemon.make() for _ in range(4)]
        for box in made:
            hutch("rm", "-f", box.id)
            self.assertRegex(box.token, "^[0-9a-f]{40}$")
            self.assertRegex(box.id, "^[a-z][a-z0-9]{15}$")
        self.assertEqual(len({b.token for b in made}), 4)
        self.assertEqual(len({b.token[:8] for b in made}), 4)
        self.assertEqual(len({b.id[:5] for b in made}), 4)

    # ---- signatures ----
    def test_signatures(self):
        self.inside("echo secret > /tmp/other")
        self.inside("cp /etc/motd /tmp/motd")
        right = self.box.signed("/tmp/motd", "read", until=LATER)
        get = lambda query, **more: self.daemon.ask("GET", f"/files?{query}", **more)[0]
        self.assertEqual(self.daemon.ask("GET", f"/files?{right}"), (200, b"the image\n"), "control")
        self.assertEqual(get(right, E2b_Sandbox_Id=self.box.id), 200, "control")
        for name, query in {
            "another file": right.replace("/tmp/motd", "/tmp/other"),
            "a path that leads there": right.replace("/tmp/motd", "/tmp/./motd"),
            "another user": right.replace("username=user", "username=root"),
            "no user": right.replace("username=user&", ""),
            "a later end": right.replace(str(LATER), str(LATER + 1)),
            "no end": right.replace(f"&signature_expiration={LATER}", ""),
            "over": self.box.signed("/tmp/motd", "read", until=BEFORE),
            "over before the beginning": self.box.signed("/tmp/motd", "read", until=-1),
            "an end that is none": self.box.signed("/tmp/motd", "read", until="never"),
            "an end of 2^64": self.box.signed("/tmp/motd", "read", until=1 << 64),
            "for writing": self.box.signed("/tmp/motd", "write"),
            "by another token": self.box.signed("/tmp/motd", "read", token="0" * 40),
            "by an empty token": self.box.signed("/tmp/motd", "read", token=" ").replace(" ", ""),
            "cut": re.sub("signature=(v1_.{30})[^&]*", r"signature=\1", right),
            "none": re.sub("signature=[^&]*", "signature=", right),
            "the path twice, the other way round": "path=/tmp/other&" + right,
        }.items():
            with self.subTest(name):
                self.assertIn(get(query), (400, 401))
                self.assertIn(get(query, E2b_Sandbox_Id=self.box.id), (400, 401))
        self.assertEqual(self.daemon.ask("GET", f"/files?{right}&path=/tmp/other"), (200, b"the image\n"), "what is signed is what is read")
        self.assertEqual(get(right, E2b_Sandbox_Id=self.others.id), 401, "for another sandbox")
        self.assertEqual(self.daemon.ask("POST", f"/files?{right}", b"x", Content_Type="application/octet-stream")[0], 401, "for another act")
        for path in ("/envs", "/metrics"):
            self.assertEqual(self.daemon.ask("GET", f"{path}?{right}", E2b_Sandbox_Id=self.box.id)[0], 401, path)
        self.assertEqual(self.daemon.ask("GET", f"/sandboxes?{right}")[0], 401)
        self.assertEqual(self.inside("cat /tmp/motd /tmp/other"), "the image\nsecret\n")
        self.inside("rm /tmp/motd /tmp/other")

    # ---- where secrets appear ----
    def test_where_secrets_are(self):
        """No secret appears in the logs, the audit log, printed output, any process's command
        line or a sandbox."""
        key, token = self.daemon.keys["user"], self.box.token
        # Requests that fail with every kind of message.
        self.daemon.ask("GET", f"/sandboxes/{key}", key="admin")
        self.daemon.ask("GET", "/nothing", key=key)
        self.daemon.ask("POST", "/sandboxes", {"templateID": "no-such"}, key)
        self.daemon.ask("GET", "/sandboxes", key=key[:-1])
        self.data(self.others, token)
        self.daemon.ask("GET", f"/files?{self.box.signed('/none', 'read')}")
        secrets = {"key": key[12:], "admin": self.daemon.keys["admin"][12:], "token": token, "token of another": self.others.token}
        places = {"log": self.daemon.log(), "inside": self.inside("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")}
        for name, args in {"inspect": ("inspect", "--json", self.box.id), "ps": ("ps", "-a", "--json"), "audit": ("audit", "show", "--json"),
                           "receipt": ("receipt", "--json", self.box.id), "keys": ("key", "ls", "--json")}.items():
            r = hutch(*args)
            self.assertEqual(r.returncode, 0, r.stderr)
            places[name] = r.stdout.decode()
        places["command lines"] = " ".join(Path(f"/proc/{p.pid}/cmdline").read_bytes().decode("latin-1") for p in our_processes())
        places["metrics"] = self.daemon.ask("GET", "/metrics", key="metrics")[1].decode()
        places["info by the API"] = self.daemon.ask("GET", f"/hutch/v1/sandboxes/{self.box.id}", key="user")[1].decode()
        self.assertIn("hutchd", places["command lines"], "control")
        self.assertIn(self.box.id, places["audit"], "control")
        self.assertIn(key[4:12], places["keys"], "control: what is shown of a key")
        for place, text in places.items():
            for name, secret in secrets.items():
                with self.subTest(place, secret=name):
                    self.assertNotIn(secret, text)
        kept = (Path(os.environ["HUTCH_STATE_DIR"]) / "keys.json").read_text()
        self.assertNotIn(key[12:], kept)

    def test_files_and_sockets_are_the_owners(self):
        """Other users cannot reach them: every directory of ours on the path is closed to them."""
        run = Path(os.environ["HUTCH_RUN_DIR"])
        state = Path(os.environ["HUTCH_STATE_DIR"])
        self.assertEqual((state / "keys.json").stat().st_mode & 0o077, 0)
        self.assertEqual(self.daemon.unix.stat().st_mode & 0o007, 0)
        self.assertEqual(run.stat().st_mode & 0o077, 0)
        for name in ("spec.json", "sock"):
            self.assertEqual((run / "sandboxes" / self.box.id).stat().st_mode & 0o077, 0, name)
        self.assertEqual(json.loads(self.daemon.ask("GET", "/health")[1]), {"status": "ok"}, "control")

    def test_sessions_of_others(self):
        """An MCP session belongs to its key; another key gets the same answer as for a missing
        session."""
        def say(method, key, session=None, verb="POST", version="2025-06-18"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"protocolVersion": version, "capabilities": {}}}
            fields = [("X-API-Key", self.daemon.keys[key]), ("Connection", "close"), ("Content-Type", "application/json"),
                      ("Accept", "application/json, text/event-stream")] + ([("Mcp-Session-Id", session)] if session is not None else [])
            return self.daemon.raw(request(verb, "/mcp", *fields, body=json.dumps(body).encode() if verb == "POST" else b"")).list[0]

        status, fields, text = say("initialize", "user")
        self.assertEqual(status, 200, text)
        session = fields["mcp-session-id"]
        absent = session[:-1] + ("0" if session[-1] != "0" else "1")
        for key in ("other", "admin"):
            for verb in ("POST", "DELETE"):
                got, none = (say("tools/list", key, one, verb) for one in (session, absent))
                self.assertEqual((got[0], got[2]), (none[0], none[2]))
                self.assertEqual(got[0], 404)
        for wrong in ("..", "../" + session, session + "0", "", "*", "a" * 5000, self.box.id):
            self.assertIn(say("tools/list", "user", wrong)[0], (400, 404), wrong[:40])
        self.assertEqual(say("tools/list", "user", session)[0], 200, "control")
        self.assertIn(say("", "user", session, "DELETE")[0], (200, 202, 204), "control")
        self.assertEqual(say("tools/list", "user", session)[0], 404)

    # ---- variables ----
    def test_variables(self):
        for name, variables in {
            "1 MB": {"A": "a" * (1 << 20)},
            "100,000 of them": {f"A{i}": "a" for i in range(100_000)},
            "NUL": {"A": "a\0b"},
            "half a surrogate": {"A": "\ud800"},
            "no name": {"": "a"},
            "= in the name": {"A=B": "a"},
            "a number": {"A": 1},
            "a list": ["A=b"],
        }.items():
            with self.subTest(name):
                status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "envVars": variables}, "user")
                self.assertIn(status, (400, 413), text[:300])
        odd = {"A": "b=c\n\u202e'\"$(id)", "B": ""}
        box = self.daemon.make(envVars=odd)
        self.addCleanup(hutch, "rm", "-f", box.id)
        got = json.loads(self.daemon.ask("GET", "/envs", E2b_Sandbox_Id=box.id, X_Access_Token=box.token)[1])
        self.assertEqual({name: got.get(name) for name in odd}, odd, "control")

    # ---- concurrent requests ----
    def test_the_end_and_everything_else_at_once(self):
        box = self.daemon.make()
        self.addCleanup(hutch, "rm", "-f", box.id)
        place = f"/sandboxes/{box.id}"
        asked = [("DELETE", place, None), ("POST", place + "/pause", {}), ("POST", place + "/connect", {"timeout": 60}),
                 ("POST", place + "/timeout", {"timeout": 60}), ("GET", place, None), ("DELETE", place, None), ("DELETE", place, None)]
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda one: self.daemon.ask(one[0], one[1], one[2], "user"), asked * 2))
        got = [answer[0] for answer in answers]
        # A user without a freezer cannot pause, and gets that answer if the sandbox still exists.
        told = [status for status, one in zip(got, asked * 2) if ROOT or status != 501 or not one[1].endswith("/pause")]
        self.assertLessEqual(set(told), {200, 201, 204, 400, 404, 409, 502}, answers)
        self.assertIn(204, [status for status, one in zip(got, asked * 2) if one[0] == "DELETE"], "somebody ended it")
        eventually(lambda: self.daemon.ask("GET", place, key="user")[0] == 404, "the end")

    # ---- other users of this host ----
    @as_root
    def test_other_users_of_this_machine(self):
        """They cannot connect. If the path is opened to them, they have no role."""
        ask = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(120)\ns.connect(sys.argv[1])\n" \
              "s.sendall(b'GET /sandboxes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\nprint(s.recv(4096)[9:12].decode())"

        def status(**who):
            r = subprocess.run(["/usr/bin/python3", "-c", ask, self.daemon.unix], capture_output=True, check=False, cwd="/", **who)
            return r.stdout.decode().strip() or r.stderr.decode().strip().rsplit("\n", 1)[-1]

        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        self.assertEqual(status(), "200", "control: root")
        self.assertIn("Permission", status(**nobody))
        opened = [p for p in self.daemon.unix.parents if str(p) not in ("/", "/tmp")]
        was = [(p, p.stat().st_mode & 0o7777) for p in [*opened, self.daemon.unix]]
        try:
            for p, mode in was:
                p.chmod(mode | 0o777)
            self.assertEqual(status(**nobody), "401")
        finally:
            for p, mode in was:
                p.chmod(mode)

    def test_a_place_for_the_socket_that_is_something_else(self):
        place = Path(os.environ["TMPDIR"]) / "elsewhere"
        place.mkdir(mode=0o700)
        (place / "file").write_text("mine")
        (place / "link").symlink_to(place / "file")
        (place / "directory").mkdir()

        def start(path):
            return subprocess.Popen([os.environ["HUTCHD"], "--unix", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE)

        for name in ("file", "link", "directory"):
            with self.subTest(name), start(place / name) as p:
                self.assertEqual(p.wait(LONG), 1)
                self.assertIn(name.encode(), p.stderr.read())
        self.assertEqual((place / "file").read_text(), "mine")
        self.assertTrue((place / "link").is_symlink())
        with start(place / "new") as p:
            eventually((place / "new").is_socket, "control: a socket")
            p.terminate()
            self.assertEqual(p.wait(LONG), 0)
