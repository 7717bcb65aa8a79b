# SPDX-License-Identifier: Apache-2.0
"""
Real servers other than the web: sshd with a git repository, PostgreSQL and plain TCP. Also the
canaries, which must not be reached and record it if they are.
"""

import contextlib
import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))
from waiting import LONG, eventually  # noqa: E402

SO_ORIGINAL_DST = 80


def wait_for(ns, address, port, child):
    def listens():
        if child.poll() is not None:
            raise RuntimeError(f"{child.args} ended with {child.returncode}")
        with ns, socket.socket() as s:
            return s.connect_ex((address, port)) == 0

    eventually(listens, f"{child.args} listens on {port}")


@contextlib.contextmanager
def child(ns, *argv, **more):
    """Runs a server in a namespace. It ends with this process, also if this process is killed."""
    p = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *ns.argv(*argv)], stdin=subprocess.DEVNULL, **more)
    try:
        yield p
    finally:
        p.terminate()
        try:
            p.wait(LONG)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


@contextlib.contextmanager
def account():
    """Makes a user for sshd. No password matches `*`; `!` would lock the account."""
    name = f"hutch-git-{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", "-p", "*", name], check=True)
    try:
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", name], check=True, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def sshd(ns, where, address, repository):
    """Runs an sshd whose user can only run git. Yields (user, private key, line for
    known_hosts)."""
    with account() as user:
        place = where / "ssh"
        place.mkdir()
        for key in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
        (place / "authorized_keys").write_text(f'restrict,command="git-shell -c \\"$SSH_ORIGINAL_COMMAND\\"" {(place / "client.pub").read_text()}')
        (place / "sshd_config").write_text(f"""ListenAddress {address}
HostKey {place}/host
AuthorizedKeysFile {place}/authorized_keys
StrictModes no
UsePAM no
UseDNS no
PidFile none
PasswordAuthentication no
""")
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", repository], check=True)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with child(ns, "/usr/sbin/sshd", "-D", "-e", "-f", str(place / "sshd_config"), stderr=open(place / "log", "wb")) as p:
            wait_for(ns, address, 22, p)
            yield user.pw_name, (place / "client").read_text(), (place / "host.pub").read_text()


@contextlib.contextmanager
def postgres(ns, where, address, cert, key):
    """Runs PostgreSQL with TLS as its own user, with files in memory, which is faster."""
    who = pwd.getpwnam("postgres")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    place = where / "postgres"
    place.mkdir(mode=0o700)
    for n, f in (("server.crt", cert), ("server.key", key)):
        shutil.copy(f, place / n)
        os.chmod(place / n, 0o600)
    subprocess.run(["chown", "-R", "postgres:", place], check=True)
    as_it = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"]
    subprocess.run([*as_it, programs / "initdb", "-D", place / "data", "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"],
                   check=True, stdout=subprocess.DEVNULL, cwd="/")
    with open(place / "data/pg_hba.conf", "a") as f:
        f.write("host all all all trust\n")
    with child(ns, *as_it, str(programs / "postgres"), "-D", str(place / "data"), "-h", address, "-k", "", "-c", "fsync=off", "-c", "ssl=on",
               "-c", f"ssl_cert_file={place}/server.crt", "-c", f"ssl_key_file={place}/server.key", cwd="/",
               stdout=open(where / "postgres.log", "wb"), stderr=subprocess.STDOUT) as p:
        wait_for(ns, address, 5432, p)
        yield


@contextlib.contextmanager
def registry(ns, where, address, cert, key):
    """Runs Debian's docker-registry with TLS and no images."""
    (where / "registry").mkdir()
    (where / "registry.yml").write_text(f"""version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {where}/registry}}}}
http: {{addr: "{address}:5000", tls: {{certificate: {cert}, key: {key}}}}}
""")
    with child(ns, "docker-registry", "serve", str(where / "registry.yml"), stdout=open(where / "registry.log", "wb"), stderr=subprocess.STDOUT) as p:
        wait_for(ns, address, 5000, p)
        yield


@contextlib.contextmanager
def grpc(ns, where, address, cert, key):
    """Runs grpc_server.py, whose threads must not be in a process that forks. Yields its log."""
    log = where / "grpc.calls"
    log.touch()
    program = Path(__file__).resolve().parent / "grpc_server.py"
    with child(ns, sys.executable, str(program), address, str(cert), str(key), str(log), stdout=open(where / "grpc.log", "wb"),
               stderr=subprocess.STDOUT) as p:
        wait_for(ns, address, 443, p)
        yield log


class Tcp:
    """A listener with a thread for each connection, which it records."""

    def __init__(self, ns, address, port, serve, reuse_port=False):
        self.log, self.serve = [], serve
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with ns:
            self.listener = socket.create_server((address, port), family=family, backlog=512, dualstack_ipv6=address == "::", reuse_port=reuse_port)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            s, peer = self.listener.accept()
            note = {"time": time.time(), "peer": peer[0].removeprefix("::ffff:"), "to": original(s), "bytes": 0, "first": "", "end": None}
            self.log.append(note)
            threading.Thread(target=self.one, args=(s, note), daemon=True).start()

    def one(self, s, note):
        with s:
            s.settimeout(600)
            try:
                self.serve(s, note)
                note["end"] = note["end"] or "closed"
            except OSError as e:
                note["end"] = str(e)


def original(s):
    """Returns the address that the client connected to, before any redirection."""
    here = s.getsockname()
    try:
        if here[0].startswith("::ffff:") or s.family == socket.AF_INET:
            data = s.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
            return f"{socket.inet_ntoa(data[4:8])}:{struct.unpack('>H', data[2:4])[0]}"
        data = s.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28)
        return f"[{socket.inet_ntop(socket.AF_INET6, data[8:24])}]:{struct.unpack('>H', data[2:4])[0]}"
    except OSError:  # not redirected
        return f"{here[0].removeprefix('::ffff:')}:{here[1]}"


def note_data(note, data):
    note["bytes"] += len(data)
    if len(note["first"]) < 512:
        note["first"] += data[:256].hex()


def banner(s, note):
    """The server speaks first, then echoes."""
    s.sendall(b"220 this is the banner\r\n")
    echo(s, note)


def echo(s, note):
    while data := s.recv(65536):
        note_data(note, data)
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)


def count(s, note):
    """Reads to end of file, however late, and only then answers: tests half-closed connections."""
    while data := s.recv(65536):
        note_data(note, data)
    note["end"] = "end of file"
    s.sendall(f"{note['bytes']}\n".encode())


def source(s, note):
    """Sends endless bytes and counts them."""
    while True:
        note["bytes"] += s.send(b"x" * 65536)


def canary(s, note):
    """Answers like a web server or with a banner, so that a probe notices that it got here."""
    s.settimeout(1)
    with contextlib.suppress(TimeoutError):
        note_data(note, s.recv(65536))
    s.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nCANARY\n")
    with contextlib.suppress(TimeoutError):
        while data := s.recv(65536):
            note_data(note, data)


class UdpCanary:
    def __init__(self, ns, address, port):
        self.log = []
        with ns:
            self.s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            self.s.bind((address, port))
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            data, peer = self.s.recvfrom(65536)
            self.log.append({"time": time.time(), "peer": peer[0], "bytes": len(data), "first": data[:256].hex()})
            with contextlib.suppress(OSError):
                self.s.sendto(b"CANARY", peer)


class NaiveProxy:
    """A naive proxy for the plain box: it has no policy, and treats names as C strings. The
    positive control for hutch's proxy."""

    def __init__(self, ns, port, entries, address="127.0.0.1"):
        self.ns, self.entries, self.asked = ns, entries, []
        Tcp(ns, address, port, self.serve)

    def serve(self, s, _):
        first = s.recv(1, socket.MSG_PEEK)
        target = self.socks(s) if first == b"\5" else self.connect(s)
        up = self.dial(*target) if target else None
        if first == b"\5":
            s.sendall(b"\5" + (b"\0" if up else b"\2") + b"\0\1" + bytes(6))
        else:
            s.sendall(b"HTTP/1.1 200 Connected\r\n\r\n" if up else b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        if up:
            back = threading.Thread(target=pump, args=(up, s), daemon=True)
            back.start()
            pump(s, up)
            back.join()
            up.close()

    def socks(self, s):
        s.sendall(b"\5\0" if s.recv(2 + 255) else b"")
        data = s.recv(512)
        name = data[5:-2] if data[3] == 3 else socket.inet_ntop(socket.AF_INET if data[3] == 1 else socket.AF_INET6, data[4:-2]).encode()
        return name, struct.unpack(">H", data[-2:])[0]

    def connect(self, s):
        data = b""
        while b"\r\n\r\n" not in data and (more := s.recv(4096)):
            data += more
        self.asked.append(data.partition(b"\r\n")[0].decode("latin-1"))
        name, _, port = data[len("CONNECT "):].partition(b" HTTP/1.1\r\n")[0].rpartition(b":")
        return (name, int(port)) if port.isdigit() else None

    def dial(self, name, port):
        name = name.split(b"\0")[0].split(b"\r")[0].decode("latin-1").lower().strip("[]").rstrip(".")
        entry = self.entries.get(name, {})
        for address in entry.get("a", []) or [name]:
            with contextlib.suppress(OSError, ValueError), self.ns:
                # A number in any spelling that inet_aton() accepts is an address.
                address = socket.inet_ntoa(socket.inet_aton(address)) if ":" not in address else address
                return socket.create_connection((address, port), 120)
        return None


def pump(one, two):
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            two.sendall(data)
        two.shutdown(socket.SHUT_WR)
