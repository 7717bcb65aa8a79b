# SPDX-License-Identifier: Apache-2.0
"""
A hutchd for tests, driven byte by byte. Its sandboxes are in the directories that run_as.py sets.
"""

import contextlib
import http.client
import json
import os
import re
import socket
import struct
import subprocess
from pathlib import Path

from sandbox import LONG, PATIENCE, SandboxCase, eventually, hutch

STREAM = "application/connect+json"
JSON = "application/json"


class Server:
    """hutchd with these options; it can be killed and restarted at the same port."""

    def __init__(self, *options, role="user", env=None):
        self.options = options
        self.env = {**os.environ, **(env or {})}
        # Reserves the port, without listening, for as long as a hutchd may use it, so that no other
        # process gets it between a stop and the next start.
        self.kept = socket.socket()
        self.kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.kept.bind(("127.0.0.1", 0))
        self.port = self.kept.getsockname()[1]
        made = hutch("key", "create", "--role", role, "--name", f"test-{self.port}")
        if made.returncode != 0:
            raise AssertionError(made.stderr.decode())
        self.key = made.stdout.decode().strip()
        self.start()

    def start(self):
        self.process = subprocess.Popen([os.environ["HUTCHD"], "--listen", f"127.0.0.1:{self.port}", *self.options],
                                        env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self.answers, "an answer of hutchd")

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.api("GET", "/sandboxes")[0] == 200
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        if self.process.wait(LONG) != 0:
            raise AssertionError(f"hutchd ended with {self.process.returncode}")

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)

    def api(self, method, path, body=None):
        with contextlib.closing(self.connection()) as c:
            c.request(method, path, json.dumps(body) if body is not None else None, {"X-API-Key": self.key, "Content-Type": JSON})
            answer = c.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def memory(self):
        """Its resident memory in KiB."""
        return int(re.search(r"(?m)^VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])


def envelope(message):
    """An envelope around a message, or around bytes that are not a message."""
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"\0" + struct.pack(">I", len(text)) + text


class Messages:
    """The envelopes of a response, as they arrive; `trailer` is the content of the last one."""

    def __init__(self, connection):
        self.connection = connection
        self.answer = connection.getresponse()
        self.trailer = None

    def __iter__(self):
        return self

    def read(self, n):
        data = self.answer.read(n)
        if len(data) != n:
            raise EOFError
        return data

    def __next__(self):
        if self.trailer is not None:
            raise StopIteration
        flags, n = struct.unpack(">BI", self.read(5))
        message = json.loads(self.read(n))
        if flags == 0:
            return message
        self.trailer = message
        raise StopIteration


class BoxCase(SandboxCase):
    """One hutchd and one sandbox for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.box, cls.token = cls.make()

    @classmethod
    def make(cls):
        status, made = cls.server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 3600 * PATIENCE, "envVars": {"A": "b=c"}})
        if status != 201:
            raise AssertionError(made)
        cls.addClassCleanup(hutch, "rm", "-f", made["sandboxID"])
        return made["sandboxID"], made["envdAccessToken"]

    def headers(self, box=None, **more):
        named = {k.replace("_", "-"): v for k, v in more.items()}
        name, token = box or (self.box, self.token)
        return {"E2b-Sandbox-Id": name, "E2b-Sandbox-Port": "49983", "X-Access-Token": token, **named}

    def inside(self, script, user="user", timeout=LONG):
        """Runs a shell script in the sandbox; returns its output."""
        r = hutch("exec", "--user", user, self.box, "--", "sh", "-c", script, timeout=timeout)
        self.assertEqual(r.returncode, 0, r.stderr.decode(errors="replace"))
        return r.stdout

    def ask(self, method, path, body=None, **headers):
        """A request of the data plane: status, contents."""
        with contextlib.closing(self.server.connection()) as c:
            c.request(method, path, body, self.headers(**headers))
            answer = c.getresponse()
            return answer.status, answer.read()

    def rpc(self, method, message, **headers):
        status, text = self.ask("POST", method, json.dumps(message), Content_Type=JSON, **headers)
        return status, json.loads(text)

    def stream(self, method, message, **headers):
        c = self.server.connection()
        self.addCleanup(c.close)
        c.request("POST", method, envelope(message), self.headers(Content_Type=STREAM, **headers))
        return Messages(c)
