# SPDX-License-Identifier: Apache-2.0
"""
Two tenants on one hutchd: what a key can learn about the host and about other keys, and what it can
get beyond its grants. Both keys own real objects, answers are compared as a whole, and each refusal
has a control that succeeds.
"""

import datetime
import json
import os
import urllib.parse
from pathlib import Path

from api import DOMAIN, ApiCase, Daemon, new_key, read_all, request, send_all
from sandbox import CONFIG, agent, eventually, host_yaml, hutch, start

WRONG = "e2b_" + "0" * 40


class Mcp:
    """An MCP session over HTTP."""

    def __init__(self, daemon, key):
        self.daemon, self.key = daemon, key
        self.session = None
        begun = self.post({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}})
        self.session = begun[1]["mcp-session-id"]
        self.post({"method": "notifications/initialized"})

    def post(self, body):
        fields = [("X-API-Key", self.key), ("Connection", "close"), ("Content-Type", "application/json"),
                  ("Accept", "application/json, text/event-stream")] + ([("Mcp-Session-Id", self.session)] if self.session else [])
        return self.daemon.raw(request("POST", "/mcp", *fields, body=json.dumps({"jsonrpc": "2.0", **body}).encode())).list[0]

    def call(self, tool, **arguments):
        return json.loads(self.post({"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})[2])["result"]


class TestCredentials(ApiCase):
    """A credential in the request decides, also on the Unix socket, where root and the daemon's
    own user need none."""

    def on_unix(self, *fields, target="/sandboxes"):
        answer = self.daemon.raw(request("GET", target, ("Connection", "close"), *fields), unix=True).list[0]
        return answer[0], answer[2]

    def test_a_presented_key_decides_on_the_unix_socket(self):
        keys = self.daemon.keys
        status, text = self.on_unix()
        self.assertEqual(status, 200, "control: without a key")
        self.assertLessEqual({self.box.id, self.others.id}, {one["sandboxID"] for one in json.loads(text)}, "control: an administrator sees all")
        for name, field in {
            "wrong": ("X-API-Key", WRONG),
            "empty": ("X-API-Key", ""),
            "none of ours": ("X-API-Key", "secret"),
            "a wrong bearer": ("Authorization", "Bearer " + WRONG),
            "another scheme": ("Authorization", "Basic cm9vdDpyb290"),
            "an empty field": ("Authorization", ""),
        }.items():
            with self.subTest(name):
                self.assertEqual(self.on_unix(field)[0], 401)
        for name, fields in {"key": [("X-API-Key", keys["user"])], "bearer": [("Authorization", "Bearer " + keys["user"])],
                             "both": [("X-API-Key", keys["user"]), ("Authorization", "Bearer " + WRONG)]}.items():
            with self.subTest(name):
                status, text = self.on_unix(*fields)
                self.assertEqual((status, [one["sandboxID"] for one in json.loads(text)]), (200, [self.box.id]))
        self.assertEqual(self.on_unix(("X-API-Key", keys["user"]), target="/hutch/v1/audit")[0], 403)
        self.assertEqual(self.on_unix(("X-API-Key", keys["metrics"]))[0], 403)
        self.assertEqual(self.on_unix(("X-API-Key", keys["admin"]), target="/hutch/v1/doctor")[0], 200, "control")


class TestErrorsAreNoDefaults(ApiCase):
    """Only "no such agent" falls back to the default policy, and only "no such image" falls back
    to the templates of clients."""

    def agent_of_new(self):
        box = self.daemon.make()
        try:
            return self.json("inspect", "--json", box.id)["agent"]
        finally:
            hutch("rm", "-f", box.id)

    def test_an_agent_that_cannot_be_read(self):
        """An invalid file in place of the agent of template base: no sandbox starts, under any
        policy."""
        self.assertEqual(self.agent_of_new(), "e2b", "control: without an agent of the template's name, the default")
        place = CONFIG / "agents" / "base.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        self.addCleanup(lambda: place.unlink(missing_ok=True))

        def refused(what):
            before = self.ps("-a")
            status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, "user")
            if status == 201:
                hutch("rm", "-f", json.loads(text)["sandboxID"])
            self.assertEqual(status, 500, (what, text))
            self.assertEqual(self.ps("-a"), before, what)

        place.mkdir()
        self.addCleanup(lambda: place.is_dir() and place.rmdir())
        with self.subTest("a directory"):
            refused("a directory")
        place.rmdir()
        place.symlink_to(place)
        with self.subTest("a link to itself"):
            refused("a link to itself")
        place.unlink()
        agent("base")
        self.assertEqual(self.agent_of_new(), "base", "control: the agent of that name")
        place.unlink()
        self.assertEqual(self.agent_of_new(), "e2b", "control: the default again")

    def test_an_image_that_cannot_be_read(self):
        """A broken image of the operator is an error; no client's template of that name replaces
        it."""
        names = Path(os.environ["HUTCH_STATE_DIR"]) / "images" / "names"
        record = next(p for p in names.iterdir() if p.name.startswith("base"))
        text = record.read_bytes()
        self.addCleanup(record.write_bytes, text)
        self.assertEqual(self.daemon.ask("GET", "/templates/aliases/base", key="user")[0], 200, "control")
        record.write_bytes(b"{")
        status, said = self.daemon.ask("GET", "/templates/aliases/base", key="user")
        self.assertNotIn(status, (200, 404), said)
        status, said = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, "user")
        self.assertNotIn(status, (201, 404), said)
        record.write_bytes(text)
        self.assertEqual(self.agent_of_new(), "e2b", "control")


class TestWhatErrorsSay(ApiCase):
    """Messages to a user's key hold no host path and no contents of host files. An administrator
    and the log get the details."""

    SECRET = "hunter2-in-a-file"

    def write_agent(self, name, text):
        place = CONFIG / "agents" / f"{name}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        self.addCleanup(place.unlink, missing_ok=True)

    def is_closed(self, text, what):
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        for secret in (self.SECRET, "root:x:0:0", str(CONFIG), os.environ["HUTCH_STATE_DIR"], os.environ["HUTCH_RUN_DIR"], "/etc/passwd:"):
            self.assertNotIn(secret, text, what)

    def test_policies_by_name_only(self):
        secret = Path(os.environ["TMPDIR"]) / "secret.yaml"
        secret.write_text(f"{self.SECRET}: yes\n")
        self.addCleanup(secret.unlink)
        for name in ("/etc/passwd", str(secret), "etc/passwd", "secret.yaml", "e2b.yaml", "-", "--help", "E2B", "no-such-agent"):
            quoted = urllib.parse.quote(name, safe="")
            for key in ("user", "admin"):
                with self.subTest(name, key=key):
                    status, text = self.daemon.ask("GET", f"/hutch/v1/policies/{quoted}", key=key)
                    self.assertEqual((status, json.loads(text)["message"]), (404, f"there is no agent '{name}'"))
                    self.assertEqual(self.daemon.ask("GET", f"/hutch/v1/images/{quoted}", key=key)[0], 404)
        status, text = self.daemon.ask("GET", "/hutch/v1/policies/e2b", key="user")
        self.assertEqual((status, json.loads(text)["agent"]["name"]), (200, "e2b"), "control")

    def test_policies_of_agents_that_are_granted(self):
        """Policies of other agents may name hosts of the operator's network."""
        agent("inner", "egress: {domains: ['git.corp.example:443/private']}\n")
        self.addCleanup((CONFIG / "agents" / "inner.yaml").unlink)
        granted = new_key("inner", "--agent", "e2b,inner")
        self.addCleanup(hutch, "key", "revoke", "inner")

        def names(key):
            return {one["name"] for one in json.loads(self.daemon.ask("GET", "/hutch/v1/policies", key=key)[1])}

        status, text = self.daemon.ask("GET", "/hutch/v1/policies/inner", key="user")
        self.assertEqual((status, json.loads(text)["message"]), (404, "there is no agent 'inner'"))
        self.assertEqual(names("user"), {"e2b"})
        for key in (granted, "admin"):
            status, text = self.daemon.ask("GET", "/hutch/v1/policies/inner", key=key)
            self.assertEqual(status, 200, "control")
            self.assertIn(b"git.corp.example", text, "control")
            self.assertIn("inner", names(key), "control")

    def test_answers_have_no_place_of_the_host(self):
        for target in ("/hutch/v1/images", "/hutch/v1/images/base", "/hutch/v1/policies", "/hutch/v1/policies/e2b", f"/hutch/v1/sandboxes/{self.box.id}",
                       f"/hutch/v1/sandboxes/{self.box.id}/receipt", f"/sandboxes/{self.box.id}", "/sandboxes", "/templates"):
            with self.subTest(target):
                status, text = self.daemon.ask("GET", target, key="user")
                self.assertEqual(status, 200, text)
                self.is_closed(text, target)
        text = self.daemon.ask("GET", "/hutch/v1/images", key="admin")[1].decode()
        self.assertIn(os.environ["HUTCH_STATE_DIR"], text, "control: an administrator reads where they are")

    def test_a_configuration_of_the_host_that_is_wrong(self):
        self.enterContext(host_yaml(f"egress_proxy: https://svc:{self.SECRET}@proxy.corp.example:3128\n"))
        for what, ask in {
            "create": lambda key: self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, key)[1].decode(),
            "a tool": self.tool,
            "a build": self.build,
        }.items():
            with self.subTest(what):
                self.is_closed(ask("user"), what)
                said = ask("admin")
                self.assertIn("host.yaml", said, "control: an administrator reads where it is")
                self.assertNotIn(self.SECRET, said, "and nobody reads the password")

    def test_a_policy_that_does_not_compile(self):
        self.write_agent("base", f"agent:\n  name: base\n  type: test\n  {self.SECRET}: 1\n")
        wanted = "the policy of agent 'base' does not compile on this host; the operator sees why in hutchd's log"
        for what, ask in {
            "create": ("POST", "/sandboxes", {"templateID": "base", "timeout": 60}),
            "the policy": ("GET", "/hutch/v1/policies/base"),
        }.items():
            with self.subTest(what):
                status, text = self.daemon.ask(*ask, key="user")
                self.assertEqual((status, json.loads(text)["message"]), (500, wanted))
                self.is_closed(text, what)
                status, text = self.daemon.ask(*ask, key="admin")
                self.assertIn(status, (400, 500))
                self.assertIn(str(CONFIG).encode(), text, "control: an administrator reads the details")
        self.assertIn(self.SECRET, self.daemon.log(), "control: the log has the details")

    def tool(self, key):
        """Returns the message of the MCP tool create_sandbox."""
        answer = Mcp(self.daemon, self.daemon.keys[key]).call("create_sandbox")
        self.assertTrue(answer["isError"], answer)
        return answer["content"][0]["text"]

    def build(self, key):
        """Returns why a build that cannot start failed, and its log."""
        status, text = self.daemon.ask("POST", "/v3/templates", {"name": f"built-by-{key}"}, key)
        self.assertEqual(status, 202, text)
        made = json.loads(text)
        place = f"/templates/{made['templateID']}"
        self.addCleanup(self.daemon.ask, "DELETE", place, None, key)
        self.assertEqual(self.daemon.ask("POST", f"/v2{place}/builds/{made['buildID']}", {"fromImage": "base", "steps": []}, key)[0], 202)
        status = eventually(lambda: (s := json.loads(self.daemon.ask("GET", f"{place}/builds/{made['buildID']}/status", key=key)[1]))["status"]
                            in ("error", "ready") and s, "the end of a build")
        self.assertEqual(status["status"], "error", status)
        return json.dumps(status)

    def test_an_agent_that_is_in_two_places(self):
        """The default agent, which applies to every sandbox except those of a template with its
        own agent."""
        self.write_agent("e2b", f"agent:\n  name: e2b\n  type: test\n  summary: {self.SECRET}\n")
        for what, ask in {
            "create": lambda key: self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, key)[1].decode(),
            "a tool": self.tool,
            "a build": self.build,
        }.items():
            with self.subTest(what):
                said = ask("user")
                self.is_closed(said, what)
                self.assertIn("log", said)
                self.assertIn(str(CONFIG), ask("admin"), "control: an administrator reads the details")
        self.assertIn(str(CONFIG), self.daemon.log(), "control: the log has the details")


class TestPublicTraffic(ApiCase):
    """Ports of a running sandbox are closed and opened again."""

    SERVER = "import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_GET(self):\n" \
             "    self.send_response(200)\n    self.send_header('Content-Length', '5')\n    self.end_headers()\n" \
             "    self.wfile.write(b'hello' if self.path != '/slow' else b'h')\n    self.wfile.flush()\n" \
             "    if self.path == '/slow':\n      import threading\n      threading.Event().wait(600)\n" \
             "s = http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H)\nprint('ready', flush=True)\ns.serve_forever()\n"

    def setUp(self):
        self.mine = self.daemon.make()
        self.addCleanup(hutch, "rm", "-f", self.mine.id)
        server = start("exec", self.mine.id, "--", "python3", "-c", self.SERVER, stdout=-1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(hutch, "rm", "-f", self.mine.id)
        self.assertEqual(server.stdout.readline(), b"ready\n")

    def port(self, daemon=None, token=None):
        fields = [("E2b-Traffic-Access-Token", token)] if token else []
        answer = (daemon or self.daemon).raw(request("GET", "/", *self.mine.fields(3000), *fields, ("Connection", "close"))).list[0]
        return answer[0], answer[2] if answer[0] == 200 else b""

    def put(self, body, key="user"):
        return self.daemon.ask("PUT", f"/sandboxes/{self.mine.id}/network", body, key)

    def token(self, daemon=None, key="user"):
        status, text = (daemon or self.daemon).ask("POST", f"/sandboxes/{self.mine.id}/connect", {"timeout": 600}, self.daemon.keys[key])
        self.assertEqual(status, 200, text)
        return json.loads(text)["trafficAccessToken"]

    def test_ports_close_and_open(self):
        self.assertEqual(self.port(), (200, b"hello"), "control: open")
        self.assertIsNone(self.token(), "control")
        self.assertEqual(self.put({"allowPublicTraffic": False}, "other")[0], 404)
        self.assertEqual(self.port(), (200, b"hello"), "another key changes nothing")
        self.assertEqual(self.put({"allowPublicTraffic": False})[0], 204)
        self.assertEqual(self.port()[0], 403)
        token = self.token()
        self.assertEqual(self.port(token=token), (200, b"hello"), "control: with the token")
        self.assertEqual(self.port(token="0" * 40)[0], 403)
        info = json.loads(self.daemon.ask("GET", f"/sandboxes/{self.mine.id}", key="user")[1])
        self.assertIs(info["network"]["allowPublicTraffic"], False)
        # A body that does not name it leaves the setting, and repeating it keeps the token.
        for body in ({"denyOut": ["192.0.2.1/32"]}, {"allowPublicTraffic": None}, {"allowPublicTraffic": False}):
            self.assertEqual(self.put(body)[0], 204, body)
            self.assertEqual((self.port()[0], self.token()), (403, token), body)
        # The setting is stored: another hutchd finds it.
        other = Daemon()
        self.addCleanup(other.stop)
        self.assertEqual((self.port(other)[0], self.port(other, token)), (403, (200, b"hello")))
        for wrong in ("no", 0, [], {}):
            self.assertEqual(self.put({"allowPublicTraffic": wrong})[0], 400, wrong)
        self.assertEqual(self.port()[0], 403)
        self.assertEqual(self.put({"allowPublicTraffic": True})[0], 204)
        self.assertEqual(self.port(), (200, b"hello"))
        self.assertIsNone(self.token())

    def test_answers_under_way_are_cut(self):
        with self.daemon.connect() as s:
            send_all(s, request("GET", "/slow", *self.mine.fields(3000)))
            data = b""
            while not data.endswith(b"\r\n\r\nh"):
                piece = s.recv(4096)
                self.assertTrue(piece, data)
                data += piece
            self.assertEqual(self.put({"allowPublicTraffic": False})[0], 204)
            self.assertEqual(read_all(s), b"", "the end, and no byte more")


class TestTemplates(ApiCase):
    def test_the_list_of_templates(self):
        """The list is readable when there are templates, and has their creation times."""
        made = json.loads(self.daemon.ask("POST", "/v3/templates", {"name": "listed"}, "user")[1])
        self.addCleanup(self.daemon.ask, "DELETE", f"/templates/{made['templateID']}", None, "user")
        status, text = self.daemon.ask("GET", "/templates", key="user")
        self.assertEqual(status, 200, text)
        listed = {one["templateID"]: one for one in json.loads(text)}[made["templateID"]]
        self.assertEqual((listed["names"], listed["aliases"]), (["listed"], ["listed"]))
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(listed["createdAt"][:19] + "+00:00")
        self.assertLess(abs(age.total_seconds()), 600)


class TestDomain(ApiCase):
    """The SDKs build host names of ports from the reported domain. Without one they use the
    domain of a third-party service."""

    def told(self, daemon):
        """Returns the domains that create, connect and get report."""
        def ask(method, target, body=b""):
            fields = [("Content-Type", "application/json"), ("Connection", "close")]
            return json.loads(daemon.raw(request(method, target, *fields, body=body), unix=True).list[0][2])

        made = ask("POST", "/sandboxes", b'{"templateID": "base", "timeout": 60}')
        self.addCleanup(hutch, "rm", "-f", made["sandboxID"])
        place = f"/sandboxes/{made['sandboxID']}"
        return made["sandboxID"], {made["domain"], ask("POST", place + "/connect", b'{"timeout": 60}')["domain"], ask("GET", place)["domain"]}

    def test_what_clients_are_told(self):
        self.assertEqual(self.told(self.daemon)[1], {DOMAIN}, "control: with --domain")
        local = Daemon(domain=None)
        self.addCleanup(local.stop)
        name, domains = self.told(local)
        self.assertEqual(domains, {f"localhost:{local.port}"})
        # The name that getHost() builds leads to the sandbox: no program listens there, and hutchd
        # reports that for the port.
        answers = [local.raw(request("GET", "/", ("Connection", "close"), host=f"3000-{one}.localhost:{local.port}")).list[0]
                   for one in (name, "a" * 16)]
        self.assertEqual([status for status, _, _ in answers], [502, 502])
        self.assertIn(b"3000", answers[0][2])
        self.assertNotEqual(answers[0][2].replace(name.encode(), b"a" * 16), answers[1][2], "control: no such sandbox")
        unix = Daemon(domain=None, tcp=False)
        self.addCleanup(unix.stop)
        self.assertEqual(self.told(unix)[1], {"hutch.invalid"})


class TestGrants(ApiCase):
    """A template with an agent's name gets that agent's policy only if the key is granted the
    agent."""

    def agent_of(self, key, template="wide", daemon=None):
        status, text = (daemon or self.daemon).ask("POST", "/sandboxes", {"templateID": template, "timeout": 60}, key)
        self.assertEqual(status, 201, text)
        name = json.loads(text)["sandboxID"]
        try:
            return self.json("inspect", "--json", name)["agent"]
        finally:
            hutch("rm", "-f", name)

    def key(self, name, *opts):
        self.addCleanup(hutch, "key", "revoke", name)
        return new_key(name, *opts)

    def build(self, key, name):
        """Builds a template of this name, as a client does."""
        made = json.loads(self.daemon.ask("POST", "/v3/templates", {"name": name}, key)[1])
        place = f"/templates/{made['templateID']}"
        self.addCleanup(hutch, "image", "rm", f"{made['templateID']}:{made['buildID']}")
        self.addCleanup(self.daemon.ask, "DELETE", place, None, "admin")
        self.assertEqual(self.daemon.ask("POST", f"/v2{place}/builds/{made['buildID']}", {"fromImage": "base", "steps": []}, key)[0], 202)
        status = eventually(lambda: (s := json.loads(self.daemon.ask("GET", f"{place}/builds/{made['buildID']}/status", key=key)[1]))["status"]
                            in ("error", "ready") and s, "the end of a build")
        self.assertEqual(status["status"], "ready", status)

    def test_a_template_named_like_an_agent(self):
        agent("wide", "egress: {domains: [example.com]}\n")
        self.addCleanup((CONFIG / "agents" / "wide.yaml").unlink)
        plain = self.key("plain")
        self.build(plain, "wide")
        self.assertEqual(hutch("template", "share", "plain/wide").returncode, 0)
        self.addCleanup(hutch, "template", "unshare", "wide")
        self.assertEqual(self.agent_of(plain), "e2b", "a key without a grant: the default agent")
        self.assertEqual(self.agent_of(self.key("locked-only", "--agent", "locked")), "locked", "its only agent")
        self.assertEqual(self.agent_of(self.key("granted", "--agent", "locked,wide")), "wide", "control: granted")
        self.assertEqual(self.agent_of("admin"), "wide", "control: an administrator")
        self.assertEqual(self.agent_of(self.key("two", "--agent", "locked,wide"), "base"), "locked", "the first is the default")
        # The grant can be changed while hutchd runs.
        self.assertEqual(hutch("key", "set", "plain", "--agent", "e2b,wide").returncode, 0)
        eventually(lambda: self.agent_of(plain) == "wide", "the new grant")
        self.assertEqual(hutch("key", "set", "plain", "--agent", "").returncode, 0)
        eventually(lambda: self.agent_of(plain) == "e2b", "the end of the grant")

    def test_a_session_of_mcp_goes_on_with_what_its_key_has_now(self):
        key = self.key("changing", "--agent", "locked")
        session = Mcp(self.daemon, key)

        def agent_of_new():
            answer = session.call("create_sandbox")
            self.assertFalse(answer.get("isError"), answer)
            name = answer["structuredContent"]["sandbox"]
            try:
                return self.json("inspect", "--json", name)["agent"]
            finally:
                hutch("rm", "-f", name)

        self.assertEqual(agent_of_new(), "locked", "control")
        self.assertEqual(hutch("key", "set", "changing", "--agent", "e2b").returncode, 0)
        eventually(lambda: agent_of_new() == "e2b", "the new grant")

    def test_a_level_is_a_minimum(self):
        """A key of level microvm gets no container: if no VM can be started, the request fails."""
        key = self.key("strong", "--level", "microvm")
        before = self.ps("-a")
        status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, key)
        if status == 201:
            name = json.loads(text)["sandboxID"]
            self.addCleanup(hutch, "rm", "-f", name)
            self.assertEqual(self.json("inspect", "--json", name)["level"], "microvm")
        else:
            self.assertGreaterEqual(status, 400, text)
            self.assertEqual(self.ps("-a"), before)
        self.assertEqual(self.agent_of(self.key("weak", "--level", "container"), "base"), "e2b", "control")
