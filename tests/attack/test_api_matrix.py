# SPDX-License-Identifier: Apache-2.0
"""
Two keys own one object of each kind: a sandbox with files, a command and a port; a template with a
build, an archive and an image; an MCP session; in a microVM also a snapshot. The test sends every
route of hutchd a request for one owner's object: without a key, with a wrong key, with the other
key, with the owner's key and as an administrator. A route without a row fails the test.

Answers to the others contain no word of the owner's data and equal the answers for a missing
object. After all of these requests the owner's objects are unchanged. The control: with the same
request the owner reads the data or changes something.
"""

import base64
import json
import re
import struct
import uuid
from urllib.parse import quote

from api import JSON, Answers, ApiCase, Box, new_key, read_all, request
from sandbox import MACHINE, hutch, in_machine, start
from test_api_roles import STREAMS, has_freezer, routes
from test_api_tenants import CONFIG, Mcp
from waiting import eventually

# reads: the owner reads private data. answers: the owner gets a different answer than the others.
# acts: the owner makes a visible change. ends: the same, and the object is gone. makes: the others
# may do it too, for themselves only. copies, lists: acts and reads in a microVM; a container only
# answers. operator: for administrators only, who get a different answer. public: holds no private
# data.
TABLE = """
control POST   /sandboxes                               acts
control POST   /v2/sandboxes                            acts
control GET    /sandboxes                               reads
control GET    /v2/sandboxes                            reads
control GET    /sandboxes/metrics                       answers
control GET    /sandboxes/{box}                         reads
control DELETE /sandboxes/{box}                         ends
control POST   /sandboxes/{box}/connect                 reads
control POST   /v2/sandboxes/{box}/connect              reads
control POST   /sandboxes/{box}/resume                  answers
control POST   /sandboxes/{box}/timeout                 acts
control POST   /sandboxes/{box}/refreshes               acts
control POST   /sandboxes/{box}/pause                   acts
control POST   /sandboxes/{box}/snapshots               copies
control POST   /sandboxes/{box}/fork                    copies
control GET    /snapshots                               lists
control PUT    /sandboxes/{box}/network                 acts
control GET    /sandboxes/{box}/metrics                 answers
control GET    /sandboxes/{box}/logs                    answers
control GET    /v2/sandboxes/{box}/logs                 answers
control GET    /teams                                   public
control POST   /v3/templates                            makes
control GET    /templates                               reads
control POST   /templates/tags                          acts
control DELETE /templates/tags                          acts
control GET    /templates/aliases/{name}                reads
control GET    /templates/{template}/tags               reads
control GET    /templates/{template}/files/{hash}       answers
control PUT    /templates/{template}/files/{hash}       answers
control POST   /v2/templates/{template}/builds/{build}  answers
control GET    /templates/{template}/builds/{build}/status reads
control DELETE /templates/{template}                    ends
control GET    /health                                  public
control GET    /metrics                                 public
control GET    /hutch/v1/openapi.json                   public
control GET    /hutch/v1/version                        public
control GET    /hutch/v1/doctor                         public
control GET    /hutch/v1/images                         operator
control GET    /hutch/v1/images/{image}                 operator
control GET    /hutch/v1/policies                       reads
control GET    /hutch/v1/policies/{agent}               reads
control GET    /hutch/v1/sandboxes/{box}                reads
control GET    /hutch/v1/sandboxes/{box}/receipt        answers
control GET    /hutch/v1/sandboxes/{box}/egress         answers
control POST   /hutch/v1/sandboxes/{box}/egress         operator
control GET    /hutch/v1/audit                          operator
control GET    /hutch/v1/audit/verify                   public
control GET    /hutch/v1/events                         operator
control POST   /mcp                                     answers
control DELETE /mcp                                     ends
sandbox POST   /process.Process/Start                   acts
sandbox POST   /process.Process/Connect                 answers
sandbox POST   /process.Process/List                    reads
sandbox POST   /process.Process/SendInput               acts
sandbox POST   /process.Process/StreamInput             acts
sandbox POST   /process.Process/CloseStdin              ends
sandbox POST   /process.Process/SendSignal              ends
sandbox POST   /process.Process/Update                  answers
sandbox POST   /filesystem.Filesystem/Stat              answers
sandbox POST   /filesystem.Filesystem/MakeDir           acts
sandbox POST   /filesystem.Filesystem/Move              acts
sandbox POST   /filesystem.Filesystem/Remove            acts
sandbox POST   /filesystem.Filesystem/ListDir           reads
sandbox POST   /filesystem.Filesystem/WatchDir          answers
sandbox POST   /filesystem.Filesystem/CreateWatcher     answers
sandbox POST   /filesystem.Filesystem/GetWatcherEvents  answers
sandbox POST   /filesystem.Filesystem/RemoveWatcher     answers
sandbox GET    /files                                   reads
sandbox POST   /files                                   acts
sandbox GET    /health                                  public
sandbox GET    /envs                                    reads
sandbox GET    /metrics                                 answers
"""
ENDLESS = ("/hutch/v1/events", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir")
WRONG = "e2b_" + "0" * 40
ZERO = "00000000-0000-4000-8000-000000000000"
# Well-formed names of missing objects.
NONE = {"box": "i" + "0" * 19, "name": "no-such-name", "template": "0" * 20, "build": ZERO, "hash": "0" * 64, "image": "0" * 20 + ":" + ZERO,
        "agent": "no-such-agent", "session": "0" * 32, "pid": 2 ** 31 - 1, "watcher": "0" * 32, "path": "/tmp/no-such-path", "ticket": "0" * 32}
SERVER = """\
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', str(len(sys.argv[1])))
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
s = http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H)
print('ready', flush=True)
s.serve_forever()
"""


def envelopes(*messages):
    texts = [json.dumps(m).encode() for m in messages]
    return b"".join(b"\0" + struct.pack(">I", len(t)) + t for t in texts)


def rows():
    for line in TABLE.strip().splitlines():
        yield line.split()


def with_objects(path, objects):
    for name, value in objects.items():
        path = path.replace("{" + name + "}", quote(str(value), safe=":"))
    return path


class Owner:
    """A key with one object of each kind. `mark` appears in names, `secret` in contents."""

    def __init__(self, case, key):
        self.case, self.daemon, self.key = case, case.daemon, key
        self.mark, self.secret = "m" + uuid.uuid4().hex, "s" + uuid.uuid4().hex
        self.objects = {"agent": f"agent-{self.mark}", "name": f"t-{self.mark}", "hash": uuid.uuid4().hex * 2, "path": f"/tmp/{self.mark}"}
        self.daemon.keys[key] = new_key(f"{key}-{self.mark[:9]}", "--agent", f"e2b,{self.objects['agent']}")
        self.write_agent()
        self.make_box()
        self.make_template()
        self.begin_session()

    def write_agent(self):
        place = CONFIG / "agents" / f"{self.objects['agent']}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"agent: {{name: {self.objects['agent']}, type: test, summary: {self.secret}}}\negress: {{domains: [{self.secret}.example]}}\n")
        self.case.addClassCleanup(place.unlink)

    def ok(self, method, path, body=None, also=()):
        status, text = self.daemon.ask(method, path, body, self.key)
        if status not in (200, 201, 202, 204, *also):
            raise AssertionError((self.key, method, path, status, text))
        return text

    def make_box(self):
        made = json.loads(self.ok("POST", "/sandboxes", {"templateID": "base", "timeout": 1800, "metadata": {"mark": self.secret},
                                                         "envVars": {"MARK": self.secret}, "network": {"allowPublicTraffic": False}}))
        self.box = Box(made["sandboxID"], made["envdAccessToken"], made["trafficAccessToken"])
        self.objects["box"] = self.box.id
        self.case.addClassCleanup(hutch, "rm", "-f", self.box.id)
        self.inside(f"mkdir /tmp/dir; echo {self.secret} > /tmp/{self.mark}; echo x > /tmp/dir/{self.secret}")
        server = start("exec", self.box.id, "--", "python3", "-c", SERVER, self.secret, stdout=-1)
        self.case.addClassCleanup(server.wait)
        self.case.addClassCleanup(server.stdout.close)
        self.case.addClassCleanup(hutch, "rm", "-f", self.box.id)
        assert server.stdout.readline() == b"ready\n"
        self.start_cat()
        self.objects["watcher"] = json.loads(self.envd("/filesystem.Filesystem/CreateWatcher", {"path": "/tmp"})[2])["watcherId"]

    def inside(self, script):
        r = hutch("exec", "--user", "user", self.box.id, "--", "sh", "-c", script)
        assert r.returncode == 0, r.stderr
        return r.stdout.decode()

    def envd(self, path, *messages):
        """Returns (status, fields, body)."""
        body = envelopes(*messages) if path in STREAMS else json.dumps(messages[0]).encode()
        kind = "application/connect+json" if path in STREAMS else JSON
        return self.daemon.raw(request("POST", path, *self.box.fields(), ("X-Access-Token", self.box.token), ("Content-Type", kind), ("Connection", "close"),
                                       body=body)).list[0]

    def start_cat(self):
        """Starts a command that copies its stdin to a file."""
        cat = {"process": {"cmd": "sh", "args": ["-c", "cat >> /tmp/in; echo end >> /tmp/ended", self.secret]}, "stdin": True}
        s = self.daemon.connect()
        self.case.addClassCleanup(s.close)
        s.sendall(request("POST", "/process.Process/Start", *self.box.fields(), ("X-Access-Token", self.box.token),
                          ("Content-Type", "application/connect+json"), body=envelopes(cat)))
        data = b""
        while not (found := re.search(rb'"pid": ?(\d+)', data)):
            piece = s.recv(65536)
            assert piece, data
            data += piece
        self.objects["pid"] = int(found[1])

    def make_template(self):
        made = json.loads(self.ok("POST", "/v3/templates", {"name": self.objects["name"]}))
        self.objects |= {"template": made["templateID"], "build": made["buildID"], "image": f"{made['templateID']}:{made['buildID']}"}
        place = f"/templates/{made['templateID']}"
        self.case.addClassCleanup(self.daemon.ask, "DELETE", place, None, "admin")
        url = json.loads(self.ok("GET", f"{place}/files/{self.objects['hash']}"))["url"]
        self.objects["ticket"] = url[url.index("?") + 1:]
        self.ok("PUT", url[url.index("/templates/"):], b"x")
        self.ok("POST", f"/v2{place}/builds/{made['buildID']}", {"fromImage": "base", "steps": [{"type": "RUN", "args": [f"echo {self.secret}", "root"]}]})
        end = eventually(lambda: (s := json.loads(self.ok("GET", f"{place}/builds/{made['buildID']}/status")))["status"] in ("error", "ready") and s, "a build")
        assert end["status"] == "ready", end

    def begin_session(self):
        self.objects["session"] = Mcp(self.daemon, self.daemon.keys[self.key]).session

    def make_snapshot(self):
        self.objects["snapshot"] = json.loads(self.ok("POST", f"/sandboxes/{self.box.id}/snapshots", {}))["snapshotID"]
        self.case.addClassCleanup(hutch, "snapshot", "rm", self.objects["snapshot"])

    def words(self):
        """Returns the words that no other key may read."""
        known = ("agent", "path", "hash")
        return {self.mark, self.secret, self.box.token, self.box.traffic, *(str(v) for k, v in self.objects.items() if k not in (*known, "pid"))}

    def has(self):
        """Returns the key's sandboxes."""
        return sorted(one["sandboxID"] for one in json.loads(self.ok("GET", "/sandboxes")))

    def state(self):
        """Returns the state of all the owner's objects, as the owner and the operator see it."""
        info = json.loads(self.ok("GET", f"/sandboxes/{self.box.id}", also=(404,)))
        runs = info.get("state") == "running"
        template = f"/templates/{self.objects['template']}"
        return {
            "info": info,
            "files": runs and self.inside("ls -lR --time-style=full-iso /tmp; cat /tmp/in /tmp/ended 2>/dev/null; true"),
            "commands": runs and self.envd("/process.Process/List", {})[2],
            "sandboxes": self.has(),
            "templates": self.ok("GET", "/templates"),
            "tags": self.ok("GET", template + "/tags", also=(404,)),
            "build": self.ok("GET", f"{template}/builds/{self.objects['build']}/status", also=(404,)),
            "archive": json.loads(self.ok("GET", f"{template}/files/{self.objects['hash']}", also=(404,))).get("present"),
            "snapshots": self.ok("GET", "/snapshots"),
            "rules": hutch("egress", "ls", "--json", self.box.id).stdout,
            "session": self.daemon.raw(request("POST", "/mcp", *mcp_fields(self.objects["session"]), ("X-API-Key", self.daemon.keys[self.key]), ("Connection", "close"),
                                               body=json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}).encode())).list[0][0],
        }


def mcp_fields(session):
    return [("Mcp-Session-Id", session), ("Content-Type", JSON), ("Accept", "application/json, text/event-stream")]


def base64_text(text):
    return base64.b64encode(text.encode()).decode()


class TestRows(ApiCase):
    def test_every_route_has_a_row(self):
        self.assertEqual(sorted(route for route, _ in routes()), sorted((plane, method, re.sub(r"{\w+}", "{}", path)) for plane, method, path, _ in rows()))


class TwoOwners(ApiCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a, cls.b = Owner(cls, "first"), Owner(cls, "second")


class TestMatrix(TwoOwners):
    """At the end of this test the first owner has nothing left."""

    # ---- one request ----
    def body_of(self, path, o):
        """Returns the body of a request to this route about these objects."""
        process = {"process": {"pid": o["pid"]}}
        bodies = {
            "/sandboxes": {"templateID": o["name"], "timeout": 60},
            "/v2/sandboxes": {"templateID": o["name"], "timeout": 60},
            "/sandboxes/{box}/connect": {"timeout": 1000},
            "/v2/sandboxes/{box}/connect": {"timeout": 1000},
            "/sandboxes/{box}/resume": {"timeout": 1000},
            "/sandboxes/{box}/timeout": {"timeout": 500},
            "/sandboxes/{box}/refreshes": {"duration": 3000},
            "/sandboxes/{box}/network": {"denyOut": ["192.0.2.7/32"]},
            "/v3/templates": {"name": o["name"]},
            "/templates/tags": {"target": o["template"], "name": o["template"], "tags": ["planted"]},
            "/v2/templates/{template}/builds/{build}": {"fromImage": "base", "steps": []},
            "/hutch/v1/sandboxes/{box}/egress": {"deny": "planted.example"},
            "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            "/process.Process/Start": {"process": {"cmd": "touch", "args": ["/tmp/planted"]}},
            "/process.Process/Connect": process,
            "/process.Process/SendInput": {**process, "input": {"stdin": base64_text("planted\n")}},
            "/process.Process/StreamInput": [{"start": process}, {"data": {"input": {"stdin": base64_text("streamed\n")}}}],
            "/process.Process/CloseStdin": process,
            "/process.Process/SendSignal": {**process, "signal": "SIGNAL_SIGKILL"},
            "/process.Process/Update": {**process, "pty": {"size": {"cols": 80, "rows": 24}}},
            "/filesystem.Filesystem/Stat": {"path": o["path"]},
            "/filesystem.Filesystem/ListDir": {"path": "/tmp/dir"},
            "/filesystem.Filesystem/MakeDir": {"path": "/tmp/made"},
            "/filesystem.Filesystem/Move": {"source": "/tmp/made", "destination": "/tmp/moved"},
            "/filesystem.Filesystem/Remove": {"path": "/tmp/moved"},
            "/filesystem.Filesystem/WatchDir": {"path": "/tmp"},
            "/filesystem.Filesystem/CreateWatcher": {"path": "/tmp"},
            "/filesystem.Filesystem/GetWatcherEvents": {"watcherId": o["watcher"]},
            "/filesystem.Filesystem/RemoveWatcher": {"watcherId": o["watcher"]},
        }
        return bodies.get(path, {})

    def bytes_of(self, row, objects, credentials):
        plane, method, path, _ = row
        fields, body = [*credentials, ("Connection", "close")], b""
        if plane == "sandbox":
            fields += [("E2b-Sandbox-Id", objects["box"]), ("E2b-Sandbox-Port", "49983")]
        if path == "/mcp":
            fields += mcp_fields(objects["session"])
        elif path in STREAMS:
            fields.append(("Content-Type", "application/connect+json"))
        elif path != "/files" and method != "GET" and path != "/templates/{template}/files/{hash}":
            fields.append(("Content-Type", JSON))
        if path == "/files" and method == "POST":
            fields.append(("Content-Type", "multipart/form-data; boundary=b"))
            body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nplanted\r\n--b--\r\n'
        elif path == "/templates/{template}/files/{hash}" and method == "PUT":
            body = b"planted"
        elif method != "GET" and not (method == "DELETE" and path != "/templates/tags"):
            message = self.body_of(path, objects)
            body = envelopes(*(message if isinstance(message, list) else [message])) if path in STREAMS else json.dumps(message).encode()
        query = {"/files": f"?path={objects['path'] if method == 'GET' else '/tmp/planted-file'}&username=user",
                 "/sandboxes/metrics": f"?sandbox_ids={objects['box']}"}.get(path, "")
        if path == "/templates/{template}/files/{hash}" and method == "PUT":
            query = "?" + objects["ticket"]
        return request(method, with_objects(path, objects) + query, *fields, body=body)

    def ask(self, row, objects, credentials):
        """Returns (status, body), or (status, b"") for an endless stream."""
        data = self.bytes_of(row, objects, credentials)
        if row[2] in ENDLESS:
            with self.daemon.connect() as s:
                s.sendall(data)
                head = s.recv(12)
                if head == b"HTTP/1.1 200":
                    return 200, b""
                answer = Answers(head + read_all(s)).list[0]
        else:
            answer = self.daemon.raw(data).list[0]
        return answer[0], answer[2]

    # ---- every caller ----
    def strangers(self, plane):
        key = self.daemon.keys[self.b.key]
        yield "nobody", []
        yield "a wrong key", [("X-API-Key", WRONG)]
        yield "the other's key", [("X-API-Key", key)]
        if plane == "sandbox":
            yield "a wrong token", [("X-Access-Token", "0" * len(self.a.box.token))]
            yield "the other's token", [("X-Access-Token", self.b.box.token)]
            yield "the other's key and token", [("X-API-Key", key), ("X-Access-Token", self.b.box.token)]

    def owner(self, plane):
        return [("X-Access-Token", self.a.box.token)] if plane == "sandbox" else [("X-API-Key", self.daemon.keys[self.a.key])]

    def plain(self, text, objects):
        """Returns an answer without the parts that repeat the request."""
        for name, value in sorted(((n, v) for n, v in objects.items() if n != "pid"), key=lambda o: -len(o[1])):
            text = text.replace(str(value).encode(), f"<{name}>".encode())
        return text

    def by_strangers(self, row, before):
        plane, method, path, kind = row
        asked = self.bytes_of(row, self.a.objects, [])
        words = [w for w in self.a.words() if w.encode() not in asked]
        told = {}
        for who, credentials in self.strangers(plane):
            # A ticket authorizes its holder to send, so strangers use a ticket of their own.
            status, text = self.ask(row, {**self.a.objects, "ticket": self.b.objects["ticket"]}, credentials)
            told[who] = (status, text)
            for word in words:
                self.assertNotIn(word.encode(), text, f"{who} reads it: {status}")
            if kind == "makes":
                self.forget(who, status, text)
            elif kind != "public" and plane == "control":  # an address shows that a sandbox runs
                none = self.ask(row, NONE, credentials)
                self.assertEqual((status, self.plain(text, self.a.objects)), (none[0], self.plain(none[1], NONE)), f"{who} learns that it exists")
        self.assertEqual(self.a.state(), before, "somebody has changed it")
        return told["the other's key"]

    def forget(self, who, status, text):
        """Deletes what the other key made for itself."""
        self.assertEqual(status, 202 if who == "the other's key" else 401, who)
        if status == 202:
            self.b.ok("DELETE", f"/templates/{json.loads(text)['templateID']}")

    def by_owner(self, row, before, stranger):
        """The control: the same request lets the owner, or an administrator, read or change
        something."""
        plane, method, path, kind = row
        asked = self.bytes_of(row, self.a.objects, [])
        status, text = self.ask(row, self.a.objects, [("X-API-Key", self.daemon.keys["admin"])] if kind == "operator" else self.owner(plane))
        if kind == "public":
            return
        if kind == "makes":
            self.assertEqual((status, json.loads(text)["templateID"]), (202, self.a.objects["template"]))
        elif kind in ("acts", "ends"):
            eventually(lambda: self.a.state() != before, f"an effect of {method} {path}: {status} {text}")
        elif kind == "reads":
            self.assertEqual(status, 200, text)
            self.assertTrue([w for w in self.a.words() if w.encode() in text and w.encode() not in asked], text)
        else:
            self.assertNotEqual((status, text), stranger, "the owner is told what everybody is told")

    def clean_up(self, row):
        """Removes the effects of the owner's request and restores what it deleted."""
        path = row[2]
        for name in set(self.a.has()) - {self.a.box.id}:
            hutch("rm", "-f", name)
        if path.endswith("/pause"):
            self.a.ok("POST", f"/sandboxes/{self.a.box.id}/connect", {"timeout": 1800})
        if path in ("/process.Process/CloseStdin", "/process.Process/SendSignal"):
            self.a.start_cat()

    def kind_here(self, row):
        plane, method, path, kind = row
        if kind in ("copies", "lists"):
            kind = {"copies": "acts", "lists": "reads"}[kind] if MACHINE else "answers"
        if path == "/snapshots" and not MACHINE:
            kind = "public"
        if path.endswith("/pause") and not self.freezer:
            kind = "answers"
        return [plane, method, path, kind]

    def test_every_route_about_what_is_anothers(self):
        self.freezer = has_freezer()
        if MACHINE:
            self.a.make_snapshot()
        last = {"control DELETE /mcp": 1, "control DELETE /templates/{template}": 2, "control DELETE /sandboxes/{box}": 3}
        before = self.a.state()
        self.assertEqual(before, self.a.state(), "control: nothing changes by itself")
        for row in sorted(map(self.kind_here, rows()), key=lambda row: last.get(" ".join(row[:3]), 0)):
            with self.subTest(" ".join(row[:3])):
                self.by_owner(row, before, self.by_strangers(row, before))
                if row[3] not in ("public", "reads", "answers"):
                    self.clean_up(row)
                    before = self.a.state()


class TestOthers(TwoOwners):
    """Objects without a route of their own."""

    def test_ports(self):
        """A port that is not public needs its token."""
        def get(*fields):
            answer = self.daemon.raw(request("GET", "/", *self.a.box.fields(3000), *fields, ("Connection", "close"))).list[0]
            return answer[0], answer[2]

        self.assertEqual(get(("E2b-Traffic-Access-Token", self.a.box.traffic)), (200, self.a.secret.encode()), "control")
        for fields in ((), (("E2b-Traffic-Access-Token", self.b.box.traffic),), (("X-Access-Token", self.b.box.token),),
                       (("X-API-Key", self.daemon.keys[self.b.key]),), (("E2b-Traffic-Access-Token", self.a.box.token),)):
            status, text = get(*fields)
            self.assertEqual((status, self.a.secret.encode() in text), (403, False), fields)

    def test_file_urls(self):
        """A URL is signed for one sandbox, file and operation."""
        def get(query, box=self.a.box, method="GET"):
            answer = self.daemon.raw(request(method, f"/files?{query}", *box.fields(), ("Connection", "close"))).list[0]
            return answer[0], answer[2]

        path = self.a.objects["path"]
        right = self.a.box.signed(path, "read")
        self.assertEqual(get(right), (200, self.a.secret.encode() + b"\n"), "control")
        for what, query in {"the other's token": self.a.box.signed(path, "read", token=self.b.box.token), "another operation": self.a.box.signed(path, "write"),
                            "another file": right.replace(path, "/tmp/dir/" + self.a.secret), "another user": right.replace("username=user", "username=root"),
                            "in the past": self.a.box.signed(path, "read", until=1)}.items():
            status, text = get(query)
            self.assertEqual((status, self.a.secret.encode() in text), (401, False), (what, text))
        self.assertNotIn(self.a.secret.encode(), get(right, self.b.box)[1])
        before = self.a.state()
        self.assertEqual(get(right, method="POST")[0], 401, "to read is not to write")
        self.assertEqual(self.a.state(), before)

    def test_sandboxes_of_a_session(self):
        """MCP tools find only the sandboxes of their key."""
        for owner in (self.a, self.b):
            self.addCleanup(lambda o=owner: [hutch("rm", "-f", name) for name in set(o.has()) - {o.box.id}])
        mine, theirs = (Mcp(self.daemon, self.daemon.keys[o.key]) for o in (self.a, self.b))
        box = mine.call("create_sandbox")["structuredContent"]["sandbox"]
        path = self.a.objects["path"]
        self.assertEqual(hutch("exec", box, "--", "sh", "-c", f"echo {self.a.secret} > {path}").returncode, 0)
        self.assertIn(self.a.secret, json.dumps(mine.call("run_command", sandbox=box, command=f"cat {path}")), "control")
        listed = theirs.post({"id": 3, "method": "tools/list"})
        schemas = {one["name"]: one["inputSchema"] for one in json.loads(listed[2])["result"]["tools"]}
        for tool in schemas:
            for target in (box, self.a.box.id):
                every = {"sandbox": target, "command": f"cat {path}; touch /tmp/planted", "code": f"print(open('{path}').read())", "path": path, "content": "x", "new_text": "x"}
                known = schemas[tool]["properties"]
                answer = theirs.post({"id": 4, "method": "tools/call", "params": {"name": tool, "arguments": {k: v for k, v in every.items() if k in known}}})[2]
                self.assertNotIn(self.a.secret.encode(), answer, tool)
        for one in (box, self.a.box.id):
            left = hutch("exec", one, "--", "sh", "-c", f"cat {path}; ls /tmp/planted").stdout.decode()
            self.assertEqual(left, self.a.secret + "\n", "nothing has changed, and both live")

    @in_machine
    def test_snapshots(self):
        self.a.make_snapshot()
        name = self.a.objects["snapshot"]
        before = self.a.state()
        for method, path, body in (("POST", "/sandboxes", {"templateID": name, "timeout": 60}), ("DELETE", f"/templates/{name}", None)):
            status, text = self.daemon.ask(method, path, body, self.b.key)
            none = self.daemon.ask(method, path.replace(name, "0" * len(name)), body and {**body, "templateID": "0" * len(name)}, self.b.key)
            self.assertEqual((status, text.replace(name.encode(), b"0" * len(name))), none)
        self.assertEqual(self.a.state(), before)
        made = json.loads(self.a.ok("POST", "/sandboxes", {"templateID": name, "timeout": 60}))["sandboxID"]
        self.addCleanup(hutch, "rm", "-f", made)
        self.assertEqual(hutch("exec", made, "--", "cat", self.a.objects["path"]).stdout.decode().strip(), self.a.secret, "control")
