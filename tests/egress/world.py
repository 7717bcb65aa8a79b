#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
world.py COMMAND...: makes the test's own internet (see nets.py), runs the command in the namespace
`host`, and takes everything down again. Needs root. WORLD in the command's environment is a socket;
outside.py is the other end of it.

HUTCH_EGRESS_IMAGE is the tarball of make-image.sh, made if missing; DIAL and DIAL_MUSL are programs
that tests put into sandboxes. All files that a command needs are copied below a public directory,
because it may run as another user. HUTCH_WORLD_REGISTRY adds an empty registry of container images,
registry.hutch.test:5000. HUTCH_WORLD_SERVICES adds the servers of services.py.
"""

import contextlib
import json
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import capture
import nets
import origin
import resolver
import servers
import services
import web

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "integration"))
import run_as  # noqa: E402

CANARY_PORT = 65000
# Each name has its own address, so that a packet shows which name it was for. All other addresses
# are canaries.
WEB = {"web.hutch.test": "93.184.216.10", "api.hutch.test": "93.184.216.11", "pip.hutch.test": "93.184.216.12",
       "npm.hutch.test": "93.184.216.13", "apt.hutch.test": "93.184.216.14", "git.hutch.test": "93.184.216.15",
       "upload.hutch.test": "93.184.216.16", "other.hutch.test": "93.184.216.17", "a.wild.hutch.test": "93.184.216.18",
       "wild.hutch.test": "93.184.216.18", "rebind.hutch.test": "93.184.216.19", "git.corp.test": "10.20.30.40"}
DB, TCP, PROXY, REGISTRY, GRPC = "93.184.216.20", "93.184.216.21", "93.184.216.22", "93.184.216.23", "93.184.216.24"
SIX = "2606:2800:220:1::10"
PORTS = {7: servers.echo, 25: servers.banner, 7000: servers.count, 7777: servers.banner, 9000: servers.source}
CANARIES = {"www.canary.test": "93.184.217.66", "evil.canary.test": "93.184.217.67"}


def names():
    found = {n: {"a": [a]} for n, a in {**WEB, "db.hutch.test": DB, "tcp.hutch.test": TCP, "proxy.hutch.test": PROXY,
                                     "registry.hutch.test": REGISTRY, "pubsub.googleapis.com": GRPC, **origin.HOSTS, **origin.BAD, **services.HOSTS, **CANARIES}.items()}
    found["six.hutch.test"] = {"aaaa": [SIX]}
    found["both.hutch.test"] = {"a": [WEB["web.hutch.test"]], "aaaa": [SIX]}
    found[".deep.hutch.test"] = {"a": [WEB["wild.hutch.test"]]}
    return found


def listeners():
    yield from ((a, p) for a in WEB.values() for p in (80, 443))
    yield from ((a, p) for a in (*origin.HOSTS.values(), *origin.BAD.values(), *services.HOSTS.values()) for p in (80, 443))
    yield from ((SIX, p) for p in (80, 443))
    yield from [(WEB["git.hutch.test"], 22), (DB, 5432), (PROXY, 3128), (REGISTRY, 5000), (GRPC, 443), *((TCP, p) for p in PORTS)]


class World:
    def __init__(self, where, image, stack):
        self.where, self.image, self.stack = where, image, stack
        self.host, self.internet, self.plain = nets.make()
        nets.canary_rules(self.internet, list(listeners()), CANARY_PORT)
        self.resolver = resolver.Resolver(names())
        self.resolver.listen(self.host)
        self.plain_resolver = resolver.Resolver(names())
        self.plain_resolver.listen(self.plain)
        self.captures = {"host": capture.Capture(self.host), "internet": capture.Capture(self.internet)}
        self.tree, self.tree_lock = None, threading.Lock()

    def serve(self):
        self.authority = self.where / "authority.pem"
        shutil.copy(f"{self.image}.ca.pem", self.authority)
        self.authority.chmod(0o644)
        site = self.where / "site"
        site.mkdir()
        repository = web.make(site, "https://npm.hutch.test")
        cert, key = web.certificate(self.where, self.image, [*WEB, "six.hutch.test", "both.hutch.test", "db.hutch.test", "registry.hutch.test",
                                                            "pubsub.googleapis.com", "*.deep.hutch.test", *origin.HOSTS, *services.HOSTS, *CANARIES])
        self.web = [web.Web(self.internet, 80, site), web.Web(self.internet, 443, site, web.tls_with(cert, key))]
        self.origin = origin.Origin(self.internet, (cert, key), origin.self_signed(self.where, "selfsigned.hutch.test"))
        self.tcp = {port: servers.Tcp(self.internet, TCP, port, do) for port, do in PORTS.items()}
        self.canaries = [servers.Tcp(self.internet, "::", CANARY_PORT, servers.canary)]
        self.canaries += [servers.Tcp(self.host, "::", port, servers.canary) for port in (80, 443, 8080)]
        self.udp = [servers.UdpCanary(self.internet, g, CANARY_PORT) for g in nets.GATEWAY]
        servers.NaiveProxy(self.plain, 3128, self.plain_resolver.entries)
        self.proxy = servers.NaiveProxy(self.internet, 3128, self.plain_resolver.entries, PROXY)
        self.ssh = self.stack.enter_context(servers.sshd(self.internet, self.where, WEB["git.hutch.test"], repository))
        self.grpc = self.stack.enter_context(servers.grpc(self.internet, self.where, GRPC, cert, key))
        self.stack.enter_context(servers.postgres(self.internet, self.where, DB, cert, key))
        if "HUTCH_WORLD_REGISTRY" in os.environ:
            self.stack.enter_context(servers.registry(self.internet, self.where, REGISTRY, cert, key))

        if "HUTCH_WORLD_SERVICES" in os.environ:
            self.services = services.Services(self.internet, os.environ["HUTCH_WORLD_SERVICES"], self.where, (cert, key), self.stack)

    # ---- requests of tests; arguments and answers are JSON ----
    def do_about(self):
        user, key, host_key = self.ssh
        return {"names": names(), "ssh": {"user": user, "key": key, "host": host_key}, "host": nets.ADDRESSES["host"],
                "git": str(self.where / "site/git/demo.git"), "authority": str(self.authority)}

    def do_dns(self, name, entry):
        """Sets a name's entry; None removes it. Also for the control's resolver, which starts
        with the same names."""
        for r in (self.resolver, self.plain_resolver):
            with r.lock:
                r.entries[name] = entry
                for kind in (1, 28):
                    r.seen.pop((name, kind), None)
                if entry is None:
                    del r.entries[name]

    def do_plain_dns(self, name, entry):
        with self.plain_resolver.lock:
            self.plain_resolver.entries.pop(name, None)
            if entry:
                self.plain_resolver.entries[name] = entry

    def do_asked(self):
        """Returns the questions to the host's resolver since the last call."""
        with self.resolver.lock:
            asked, self.resolver.asked = self.resolver.asked, []
        return asked

    def do_plain_asked(self):
        with self.plain_resolver.lock:
            asked, self.plain_resolver.asked = self.plain_resolver.asked, []
        return asked

    def do_packets(self, where="host"):
        c = self.captures[where]
        return {"packets": c.take(), "lost": c.lost}

    def do_mark(self, text):
        """Starts counting packets with this payload, in all captures."""
        for c in self.captures.values():
            with c.lock:
                c.marks[text.encode()] = 0

    def do_marks(self):
        return {m.decode(): sum(c.seen(m) for c in self.captures.values()) for m in list(self.captures["host"].marks)}

    def do_canaries(self):
        """Returns everything that reached a canary since the last call."""
        return [note for c in (*self.canaries, *self.udp) for note in take(c.log)]

    def do_web(self):
        return {"requests": [r for w in self.web for r in take(w.requests)], "connections": [c for w in self.web for c in take(w.connections)]}

    def do_proxy(self):
        """Returns the requests to the internet's proxy since the last call."""
        return take(self.proxy.asked)

    def do_origin(self):
        """Returns the connections to the servers of origin.py since the last call."""
        return take(self.origin.connections)

    def do_origin_now(self):
        """The same, without forgetting them."""
        return list(self.origin.connections)

    def do_grpc(self):
        """Returns the calls to the gRPC server so far."""
        return [json.loads(line) for line in self.grpc.read_text().splitlines()]

    def do_services(self):
        """Returns the credential that each server of services.py demands."""
        return self.services.keys

    def do_expect(self, host, value):
        """Makes a server refuse requests without this credential; None makes it accept all."""
        self.origin.expected[host] = value

    def do_hold(self, gate):
        """Makes models wait for this gate before the end of their task."""
        self.origin.hold = gate

    def do_release(self, gate):
        self.origin.gate(gate).set()

    def do_tcp(self, port):
        """Returns all connections so far, including open ones."""
        return self.tcp[port].log

    def do_box(self, argv, data="", timeout=600, root=False, host=False):
        """Runs a command in the image's tree, in a namespace with a network device: the positive
        control."""
        with self.tree_lock:
            self.tree = self.tree or self.unpack()
        ns = self.host if host else self.plain
        who = [] if root else ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        script = 'mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs -o mode=1777 tmp tmp && ' \
                 'exec chroot . /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"'
        p = subprocess.run(ns.argv("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", script,
                                   str(self.tree), *who, *argv), input=data.encode("latin-1"), capture_output=True, timeout=timeout, check=False)
        return {"code": p.returncode, "out": p.stdout.decode("latin-1"), "err": p.stderr.decode("latin-1")}

    def unpack(self):
        tree = self.where / "tree"
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", tree, "-f", self.image], check=True)
        (tree / "etc/resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        (tree / "dev").mkdir(exist_ok=True)
        for name in ("DIAL", "DIAL_MUSL"):
            if name in os.environ:
                shutil.copy(os.environ[name], tree / "usr/local/bin" / name.lower())
        return tree


def take(log):
    found = list(log)
    del log[:len(found)]
    return found


class Control(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class Request(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            asked = json.loads(line)
            try:
                answer = {"ok": getattr(self.server.world, "do_" + asked.pop("do"))(**asked)}
            except Exception as e:  # every error goes to the test
                answer = {"error": f"{type(e).__name__}: {e}"}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def image():
    path = Path(os.environ.get("HUTCH_EGRESS_IMAGE") or "egress-image.tar").resolve()
    subprocess.run(["bash", HERE / "make-image.sh", path], check=True, stdout=sys.stderr)
    return path


def public(where, stack):
    """Copies the command's files to a world-readable directory."""
    place = Path(tempfile.mkdtemp(prefix="hutch-world-", dir="/tmp"))
    stack.callback(shutil.rmtree, place)
    place.chmod(0o755)
    shutil.copytree(HERE, place / "egress", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [place / "egress", *(place / "egress").rglob("*")]:
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    env = {"WORLD": str(place / "control"), "PYTHONPATH": str(place / "egress"), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("DIAL", "DIAL_MUSL"):
        if name in os.environ:
            env[name] = str(place / name.lower())
            shutil.copy(os.environ[name], env[name])
            os.chmod(env[name], 0o755)
    return env


def main(argv):
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root: it makes network namespaces")
        return 0
    run_as.own_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tarball = image()
    with contextlib.ExitStack() as stack:
        where = Path(tempfile.mkdtemp(prefix="hutch-world-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, where, ignore_errors=True)
        where.chmod(0o755)
        env = {**os.environ, **public(where, stack), "HUTCH_TEST_IMAGE": str(tarball)}
        world = World(where, tarball, stack)
        world.serve()
        control = Control(env["WORLD"], Request)
        control.world = world
        os.chmod(env["WORLD"], 0o666)
        threading.Thread(target=control.serve_forever, daemon=True).start()
        return subprocess.run(world.host.argv(*argv), env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
