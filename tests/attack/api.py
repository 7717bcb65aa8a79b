# SPDX-License-Identifier: Apache-2.0
"""
Starts the hutchd under attack, on TCP and on its Unix socket, with one key for each role. Sends raw
bytes to it and returns its raw answers.
"""

import base64
import hashlib
import http.client
import itertools
import json
import os
import re
import socket
import subprocess
from pathlib import Path

from sandbox import SandboxCase, hutch
from waiting import LONG, eventually

DOMAIN = "hutch.test"
NUMBERS = itertools.count(1)
JSON = "application/json"


def new_key(name, *opts):
    made = hutch("key", "create", "--name", name, *opts)
    if made.returncode != 0:
        raise AssertionError(made.stderr.decode())
    return made.stdout.decode().strip()


class Answers:
    """Splits everything the server sent before it closed into answers, by their stated lengths.
    `rest` holds the bytes that are not an answer."""

    def __init__(self, data):
        self.list = []
        while data.startswith(b"HTTP/1.1 ") and b"\r\n\r\n" in data:
            head, data = data.split(b"\r\n\r\n", 1)
            status = int(head[9:12])
            fields = {n.lower(): v.strip() for n, v in (f.split(":", 1) for f in head.decode("latin-1").split("\r\n")[1:])}
            body = b""
            if fields.get("transfer-encoding") == "chunked":
                while m := re.match(rb"([0-9a-f]+)\r\n", data):
                    n = int(m[1], 16)
                    body += data[m.end():m.end() + n]
                    data = data[m.end() + n + 2:]
                    if n == 0:
                        break
            else:
                n = int(fields.get("content-length", 0))
                body, data = data[:n], data[n:]
            self.list.append((status, fields, body))
        self.rest = data

    @property
    def statuses(self):
        return [status for status, _, _ in self.list]


def read_all(s):
    """Reads until the peer closes or resets the connection."""
    data = bytearray()
    try:
        while piece := s.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def send_all(s, data):
    """Sends until the peer closes or resets the connection."""
    try:
        s.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


class Daemon:
    """One running hutchd. log() returns its log."""

    def __init__(self, *options, files=None, domain=DOMAIN, tcp=True):
        # This socket stays bound and never listens, so that no other process takes the port before
        # hutchd.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.port = self.reserved.getsockname()[1]
        self.number = next(NUMBERS)  # a port number may be reused
        place = Path(os.environ["TMPDIR"]) / f"hutchd-{self.number}"
        place.mkdir(mode=0o700)
        self.unix, self.log_file = place / "sock", place / "log"
        self.keys = {
            "user": new_key(f"user-{self.number}", "--agent", "e2b,base"),
            "other": new_key(f"other-{self.number}"),
            "admin": new_key(f"admin-{self.number}", "--role", "admin"),
            "metrics": new_key(f"metrics-{self.number}", "--role", "metrics"),
        }
        limit = ["prlimit", f"--nofile={files}"] if files else []
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen([*limit, os.environ["HUTCHD"], *(["--listen", f"127.0.0.1:{self.port}"] if tcp else []),
                                             "--unix", self.unix, *(["--domain", domain] if domain else []), *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(self.is_up, "an answer of hutchd", also=self.log)
        except BaseException:
            self.process.kill()
            self.process.wait()
            self.reserved.close()
            raise

    def is_up(self):
        try:
            return self.head("GET", "/health", unix=True) == 200
        except OSError:
            return False

    def stop(self):
        self.reserved.close()
        self.process.terminate()
        if self.process.wait(LONG) != 0:
            raise AssertionError(f"hutchd ended with {self.process.returncode}: {self.log()}")

    def log(self):
        return self.log_file.read_text(errors="replace")

    def status(self, name):
        return int(re.search(rf"(?m)^{name}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])

    def peak(self):
        """Returns the peak memory use in KiB."""
        return self.status("VmHWM")

    def clear_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    # ---- bytes ----
    def connect(self, unix=False, timeout=LONG):
        if not unix:
            return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(str(self.unix))
        return s

    def raw(self, data, unix=False):
        """Sends these bytes and returns everything hutchd sends until it closes."""
        with self.connect(unix) as s:
            send_all(s, data)
            return Answers(read_all(s))

    def head(self, method, target, fields=(), body=b"", unix=False):
        """Returns the status of the answer. Does not wait for the body, which may never end."""
        with self.connect(unix) as s:
            send_all(s, request(method, target, *fields, body=body))
            data = b""
            while b"\r\n" not in data:
                piece = s.recv(4096)
                if not piece:
                    raise AssertionError(f"{method} {target}: closed without an answer: {data}")
                data += piece
            return int(data[9:12])

    def ask(self, method, target, body=None, key=None, **fields):
        """Sends an ordinary request over a new connection and returns (status, body)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        if key:
            named["X-API-Key"] = self.keys.get(key, key)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            named.setdefault("Content-Type", JSON)
        try:
            c.request(method, target, body, named)
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def make(self, key="user", **more):
        status, text = self.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 600, **more}, key)
        if status != 201:
            raise AssertionError((status, text))
        made = json.loads(text)
        return Box(made["sandboxID"], made["envdAccessToken"], made.get("trafficAccessToken"))


class Box:
    def __init__(self, name, token, traffic):
        self.id, self.token, self.traffic = name, token, traffic

    def fields(self, port=49983):
        return [("E2b-Sandbox-Id", self.id), ("E2b-Sandbox-Port", str(port))]

    def signed(self, path, op, user="user", until=None, token=None):
        """Returns the query of a signed URL, built the way the SDKs build it."""
        parts = [path, op, user, token or self.token] + ([str(until)] if until is not None else [])
        mark = base64.b64encode(hashlib.sha256(":".join(parts).encode()).digest()).rstrip(b"=").decode()
        query = f"path={path}&username={user}&signature=v1_{mark.replace('+', '%2B')}"
        return query + (f"&signature_expiration={until}" if until is not None else "")


def request(method, target, *fields, body=b"", host="127.0.0.1"):
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"] + [f"{name}: {value}" for name, value in fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class ApiCase(SandboxCase):
    """All tests of a class share one hutchd and two sandboxes with different owners."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)
        cls.box = cls.make()
        cls.others = cls.make("other")

    @classmethod
    def make(cls, key="user", **more):
        box = cls.daemon.make(key, **more)
        cls.addClassCleanup(hutch, "rm", "-f", box.id)
        return box

    def is_well(self):
        """Checks that hutchd is alive and serves other clients."""
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log())
        status, text = self.daemon.ask("GET", f"/sandboxes/{self.box.id}", key="user")
        self.assertEqual(status, 200, text)

    def inside(self, script, box=None, user="user"):
        r = hutch("exec", "--user", user, (box or self.box).id, "--", "sh", "-c", script)
        self.assertEqual(r.returncode, 0, r.stderr.decode(errors="replace"))
        return r.stdout.decode()
