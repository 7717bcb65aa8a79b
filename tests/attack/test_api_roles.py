# SPDX-License-Identifier: Apache-2.0
"""
Asks a running hutchd for every route in every role and compares the status with a table. A route
missing from the table fails the test, and so does a row without a route.
"""

import json
import os
import struct
import subprocess

from api import JSON, ApiCase, new_key
from sandbox import MACHINE, create, hutch
from waiting import eventually

# No credential, a wrong key, a key for metrics, another user's key, the owner's key, an
# administrator's key, the Unix socket of the daemon's own user, the sandbox's token, another
# sandbox's token, a signed URL for one file.
ROLES = ("nobody", "wrong", "metrics", "other", "user", "admin", "unix", "token", "stranger", "signed")
# A request with a token and no sandbox name goes to the sandbox that has this token, where the
# control plane's paths do not exist. /health and /metrics exist on both planes.
TABLE = """
control POST   /sandboxes                               401 401 403 404 404 404 404 404 404 401
control POST   /v2/sandboxes                            401 401 403 404 404 404 404 404 404 401
control GET    /sandboxes                               401 401 403 200 200 200 200 404 404 401
control GET    /v2/sandboxes                            401 401 403 200 200 200 200 404 404 401
control GET    /sandboxes/metrics                       401 401 403 400 400 400 400 404 404 401
control GET    /sandboxes/{}                            401 401 403 404 200 200 200 404 404 401
control DELETE /sandboxes/{}                            401 401 403 404 204 204 204 404 404 401
control POST   /sandboxes/{}/connect                    401 401 403 404 200 200 200 404 404 401
control POST   /v2/sandboxes/{}/connect                 401 401 403 404 200 200 200 404 404 401
control POST   /sandboxes/{}/resume                     401 401 403 404 409 409 409 404 404 401
control POST   /sandboxes/{}/timeout                    401 401 403 404 204 204 204 404 404 401
control POST   /sandboxes/{}/refreshes                  401 401 403 404 204 204 204 404 404 401
control POST   /sandboxes/{}/pause                      401 401 403 404 204 204 204 404 404 401
control PUT    /sandboxes/{}/network                    401 401 403 404 204 204 204 404 404 401
control POST   /sandboxes/{}/snapshots                  401 401 403 404 400 400 400 404 404 401
control POST   /sandboxes/{}/fork                       401 401 403 404 400 400 400 404 404 401
control GET    /snapshots                               401 401 403 200 200 200 200 404 404 401
control GET    /sandboxes/{}/metrics                    401 401 403 404 200 200 200 404 404 401
control GET    /sandboxes/{}/logs                       401 401 403 404 200 200 200 404 404 401
control GET    /v2/sandboxes/{}/logs                    401 401 403 404 200 200 200 404 404 401
control GET    /teams                                   401 401 403 200 200 200 200 404 404 401
control POST   /v3/templates                            401 401 403 400 400 400 400 404 404 401
control GET    /templates                               401 401 403 200 200 200 200 404 404 401
control POST   /templates/tags                          401 401 403 404 404 404 404 404 404 401
control DELETE /templates/tags                          401 401 403 404 404 404 404 404 404 401
control GET    /templates/aliases/{}                    401 401 403 404 404 404 404 404 404 401
control GET    /templates/{}/tags                       401 401 403 404 404 404 404 404 404 401
control GET    /templates/{}/files/{}                   401 401 403 404 404 404 404 404 404 401
control PUT    /templates/{}/files/{}                   401 401 403 401 401 401 401 404 404 401
control POST   /v2/templates/{}/builds/{}               401 401 403 400 400 400 400 404 404 401
control GET    /templates/{}/builds/{}/status           401 401 403 400 400 400 400 404 404 401
control DELETE /templates/{}                            401 401 403 404 404 404 404 404 404 401
control GET    /health                                  200 200 200 200 200 200 200 204 204 200
control GET    /metrics                                 401 401 200 403 403 200 200 200 200 401
control GET    /hutch/v1/openapi.json                   200 200 200 200 200 200 200 404 404 200
control GET    /hutch/v1/version                        401 401 403 200 200 200 200 404 404 401
control GET    /hutch/v1/doctor                         401 401 403 403 403 200 200 404 404 401
control GET    /hutch/v1/images                         401 401 403 200 200 200 200 404 404 401
control GET    /hutch/v1/images/{}                      401 401 403 200 200 200 200 404 404 401
control GET    /hutch/v1/policies                       401 401 403 200 200 200 200 404 404 401
control GET    /hutch/v1/policies/{}                    401 401 403 200 200 200 200 404 404 401
control GET    /hutch/v1/sandboxes/{}                   401 401 403 404 200 200 200 404 404 401
control GET    /hutch/v1/sandboxes/{}/receipt           401 401 403 404 200 200 200 404 404 401
control GET    /hutch/v1/sandboxes/{}/egress            401 401 403 404 200 200 200 404 404 401
control POST   /hutch/v1/sandboxes/{}/egress            401 401 403 403 403 400 400 404 404 401
control GET    /hutch/v1/audit                          401 401 403 403 403 200 200 404 404 401
control GET    /hutch/v1/audit/verify                   401 401 403 403 403 200 200 404 404 401
control GET    /hutch/v1/events                         401 401 403 403 403 200 200 404 404 401
control POST   /mcp                                     401 401 403 200 200 200 200 404 404 401
control DELETE /mcp                                     401 401 403 400 400 400 400 404 404 401
sandbox POST   /process.Process/Start                   401 401 401 401 401 401 401 200 401 401
sandbox POST   /process.Process/Connect                 401 401 401 401 401 401 401 200 401 401
sandbox POST   /process.Process/List                    401 401 401 401 401 401 401 200 401 401
sandbox POST   /process.Process/SendInput               401 401 401 401 401 401 401 400 401 401
sandbox POST   /process.Process/StreamInput             401 401 401 401 401 401 401 200 401 401
sandbox POST   /process.Process/CloseStdin              401 401 401 401 401 401 401 400 401 401
sandbox POST   /process.Process/SendSignal              401 401 401 401 401 401 401 400 401 401
sandbox POST   /process.Process/Update                  401 401 401 401 401 401 401 400 401 401
sandbox POST   /filesystem.Filesystem/Stat              401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/MakeDir           401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/Move              401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/Remove            401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/ListDir           401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/WatchDir          401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/CreateWatcher     401 401 401 401 401 401 401 200 401 401
sandbox POST   /filesystem.Filesystem/GetWatcherEvents  401 401 401 401 401 401 401 404 401 401
sandbox POST   /filesystem.Filesystem/RemoveWatcher     401 401 401 401 401 401 401 404 401 401
sandbox GET    /files                                   401 401 401 401 401 401 401 200 401 200
sandbox POST   /files                                   401 401 401 401 401 401 401 200 401 200
sandbox GET    /health                                  204 204 204 204 204 204 204 204 204 204
sandbox GET    /envs                                    401 401 401 401 401 401 401 200 401 401
sandbox GET    /metrics                                 401 401 401 401 401 401 401 200 401 401
"""

# Expired credentials are treated like invalid ones: a revoked key, an expired key, a URL with an
# expired signature, the token of a sandbox that has ended.
OVER = {"revoked": "wrong", "expired": "wrong", "late": "wrong", "ended": "stranger"}

# Values for the {} of a route, and request bodies: they succeed for permitted roles and change
# little.
ARGS = {
    "/templates": ("no-such-template", "0" * 64),
    "/v2/templates": ("no-such-template", "no-such-build"),
    "/hutch/v1/images": ("base",),
    "/hutch/v1/policies": ("e2b",),
}
BODIES = {
    "/sandboxes": {"templateID": "no-such-template"},
    "/v2/sandboxes": {"templateID": "no-such-template"},
    "/sandboxes/{}/connect": {"timeout": 600},
    "/v2/sandboxes/{}/connect": {"timeout": 600},
    "/sandboxes/{}/resume": {"timeout": 600},
    "/sandboxes/{}/timeout": {"timeout": 600},
    "/sandboxes/{}/refreshes": {"duration": 600},
    "/sandboxes/{}/network": {"denyOut": ["192.0.2.1/32"]},
    "/hutch/v1/sandboxes/{}/egress": {"deny": "denied.example"},
    "/templates/tags": {"target": "no-such-template", "name": "no-such-template", "tags": ["t"]},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
    "/filesystem.Filesystem/Stat": {"path": "/"},
    "/filesystem.Filesystem/ListDir": {"path": "/"},
    "/filesystem.Filesystem/MakeDir": {"path": "/tmp/d"},
    "/filesystem.Filesystem/Move": {"source": "/tmp/d", "destination": "/tmp/e"},
    "/filesystem.Filesystem/Remove": {"path": "/tmp/e"},
}
STREAMS = ("/process.Process/Start", "/process.Process/Connect", "/process.Process/StreamInput", "/filesystem.Filesystem/WatchDir")


def rows():
    for line in TABLE.strip().splitlines():
        plane, method, path, *expected = line.split()
        yield (plane, method, path), [int(status) for status in expected]


def routes():
    """Yields the routes that hutchd reports."""
    printed = subprocess.run([os.environ["HUTCHD"], "--print-routes"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    for line in printed.stdout.decode().splitlines():
        plane, method, path, roles = line.split("\t")
        yield (plane, method, path), roles.split(",")


def has_freezer():
    """An ordinary user without delegated control groups cannot pause."""
    sandbox = create()
    r = hutch("pause", sandbox)
    hutch("rm", "-f", sandbox)
    return r.returncode == 0


class TestRoles(ApiCase):
    over = {}

    def filled(self, path, box):
        args = next((a for start, a in ARGS.items() if path.startswith(start + "/")), (box.id, "x"))
        for arg in args:
            path = path.replace("{}", arg, 1)
        return path

    def who(self, role, plane, op):
        """Returns (fields, query) of a role."""
        box = self.box.fields() if plane == "sandbox" else []
        if role in self.over:
            return [self.over[role], *box], ""
        if role == "late":
            return box, self.box.signed("/tmp/f", op, until=1_000_000_000)
        if role in self.daemon.keys:
            return [("X-API-Key", self.daemon.keys[role]), *box], ""
        if role == "wrong":
            return [("X-API-Key", "e2b_" + "0" * 40), *box], ""
        if role == "token":
            return [("X-Access-Token", self.box.token), *box], ""
        if role == "stranger":
            return [("X-Access-Token", self.others.token), *box], ""
        return box, self.box.signed("/tmp/f", op) if role == "signed" else ""

    def one(self, route, role, box):
        """Sends one request and returns its status."""
        plane, method, path = route
        fields, query = self.who(role, plane, "read" if method == "GET" else "write")
        body = b""
        if path in STREAMS:
            fields = [*fields, ("Content-Type", "application/connect+json")]
            body = b"\0" + struct.pack(">I", 2) + b"{}"
        elif method in ("POST", "PUT", "PATCH") or path in BODIES and method == "DELETE":
            fields = [*fields, ("Content-Type", JSON)]
            body = json.dumps(BODIES.get(path, {})).encode()
        target = self.filled(path, box)
        if path == "/files":
            query = query or "path=/tmp/f&username=user"
            if method == "POST":
                fields = [*fields[:-1], ("Content-Type", "multipart/form-data; boundary=b")]
                body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--\r\n'
        return self.daemon.head(method, target + ("?" + query if query else ""), fields, body, unix=role == "unix")

    def statuses(self, route):
        """Returns the status that each role gets. A request that ends a sandbox gets a new
        sandbox each time."""
        plane, method, path = route
        got = []
        for role in ROLES:
            ends = (method, path) == ("DELETE", "/sandboxes/{}")
            got.append(self.one(route, role, self.make() if ends and role in ("user", "admin", "unix") else self.box))
            if path.endswith("/pause"):
                self.daemon.ask("POST", f"/sandboxes/{self.box.id}/connect", {"timeout": 600}, "user")
        return got

    def forget_copies(self, before):
        """Removes the VMs that were forked and the snapshots that were taken."""
        for sandbox in set(self.ps("-a")) - before:
            self.ended(hutch("rm", "-f", sandbox), 0)
        for row in self.json("snapshot", "ls", "--json"):
            if row["kind"] == "saved":
                self.ended(hutch("snapshot", "rm", row["id"]), 0)

    def test_every_route_is_in_the_table(self):
        self.assertEqual(sorted(route for route, _ in routes()), sorted(route for route, _ in rows()))

    def test_every_route_by_everybody(self):
        self.box = self.daemon.make()  # leftovers go away with the old one
        self.addCleanup(hutch, "rm", "-f", self.box.id)
        self.addCleanup(self.forget_copies, set(self.ps("-a")))
        self.inside("echo x > /tmp/f")
        seen = [(route, self.statuses(route)) for route, _ in routes()]
        table = dict(rows())
        if not has_freezer():
            pause = ("control", "POST", "/sandboxes/{}/pause")
            table[pause] = [501 if status == 204 else status for status in table[pause]]
        for what in ("snapshots", "fork") if MACHINE else ():  # a container cannot be snapshotted
            route = ("control", "POST", f"/sandboxes/{{}}/{what}")
            table[route] = [201 if status == 400 else status for status in table[route]]
        for route, got in seen:
            with self.subTest(" ".join(route)):
                self.assertEqual(dict(zip(ROLES, got)), dict(zip(ROLES, table.get(route, []))))

    def status_of(self, key):
        return self.daemon.ask("GET", "/teams", key=key)[0]

    def test_every_route_by_who_is_nobody_any_more(self):
        revoked, expired, gone = new_key("revoked"), new_key("expired", "--expires", "3s"), self.daemon.make()
        eventually(lambda: self.status_of(revoked) == 200, "control: the new key")
        self.assertEqual(self.daemon.head("GET", "/envs", [("X-Access-Token", gone.token)]), 200, "control: a sandbox's token")
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{gone.id}", key="user")[0], 204)
        self.assertEqual(hutch("key", "revoke", "revoked").returncode, 0)
        for key in (revoked, expired):
            eventually(lambda k=key: self.status_of(k) == 401, "the end of a key")
        self.inside("echo x > /tmp/f")
        self.over = {"revoked": ("X-API-Key", revoked), "expired": ("X-API-Key", expired), "ended": ("X-Access-Token", gone.token)}
        before = self.inside("find /tmp /home -type f | sort"), self.daemon.ask("GET", "/sandboxes", key="admin")
        for route, expected in rows():
            for role, like in OVER.items():
                if role == "ended" and route[0] == "control":
                    continue  # names a sandbox that has ended: 502
                with self.subTest(" ".join(route), role=role):
                    self.assertEqual(self.one(route, role, self.box), expected[ROLES.index(like)])
        self.assertEqual((self.inside("find /tmp /home -type f | sort"), self.daemon.ask("GET", "/sandboxes", key="admin")), before)
        self.assertEqual(self.daemon.head("GET", "/files?" + self.box.signed("/tmp/f", "read", until=4_000_000_000)), 200, "control: a URL in time")

    def test_the_table_and_the_roles_of_hutchd_agree(self):
        """hutchd admits exactly the roles that its own row names. Callers without access get 401
        or 403."""
        table = dict(rows())
        for route, named in routes():
            if route == ("control", "PUT", "/templates/{}/files/{}"):
                continue  # needs a ticket requested earlier, not a role
            for role, status in zip(ROLES, table[route]):
                plane = route[0]
                is_key = role in ("metrics", "other", "user", "admin", "unix")
                if plane == "control" and role in ("token", "stranger") or plane == "sandbox" and role == "stranger":
                    continue  # these belong to the other plane or have no role; the status shows it
                kind = "nobody" if role == "wrong" or plane == "sandbox" and is_key or plane == "control" and role == "signed" else \
                    {"other": "user", "unix": "admin"}.get(role, role)
                if route[2] != "/files" and role == "signed" and plane == "sandbox":
                    kind = "nobody"
                with self.subTest(" ".join(route), role=role):
                    self.assertEqual(status not in (401, 403), kind in named, status)
