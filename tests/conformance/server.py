# SPDX-License-Identifier: Apache-2.0
"""
Runs a hutchd for tests: with its own copies of the programs, directories, image `base` and key, on
a free loopback port. The ledger of tests/integration/sandbox.py finds anything that it leaves on
the host.

HUTCH, HUTCHD, HUTCH_KEEPER and HUTCH_GUEST are the programs; HUTCH_E2B_IMAGE is the tarball of
make-image.sh, made if missing.
"""

import contextlib
import http.client
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "integration"))
import run_as  # noqa: E402
from waiting import LONG as PATIENCE  # noqa: E402
from waiting import eventually  # noqa: E402

DOMAIN = "hutch.test"  # never looked up: requests for ports go to hutchd directly


def image():
    path = os.environ.get("HUTCH_E2B_IMAGE") or "e2b-image.tar"
    subprocess.run(["bash", HERE / "make-image.sh", path], check=True, stdout=sys.stderr)
    return path


class Server:
    """A hutchd that can be killed and restarted on the same port."""

    def __init__(self, env, who, log):
        self.env, self.who, self.log = env, who, log
        # This socket stays bound and never listens, so that no other process takes the port, also
        # while hutchd is down.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.port = self.reserved.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None
        self.key = self.make_key()

    def hutch(self, *args, timeout=PATIENCE, check=True):
        r = subprocess.run([self.env["HUTCH"], *args], env=self.env, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True,
                           check=False, **self.who)
        if check and r.returncode != 0:
            raise RuntimeError(f"hutch {' '.join(args)} ended with {r.returncode}: {r.stderr.decode(errors='replace')}")
        return r.stdout.decode()

    def make_key(self, name="conformance", role="user"):
        """Makes a key. A user's key may use the policy that policy() makes for the template
        `base`; an administrator may use all."""
        agents = ["--agent", "e2b,base"] if role == "user" else []
        printed = self.hutch("key", "create", "--name", name, "--role", role, *agents).strip()
        if not re.fullmatch("e2b_[0-9a-f]{40}", printed):
            raise RuntimeError(f"hutch key create printed {printed!r}")
        return printed

    def spawn(self):
        """Starts hutchd without waiting for it."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.env["HUTCHD"], "--listen", f"127.0.0.1:{self.port}", "--domain", f"{DOMAIN}:{self.port}"],
                                            env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.who)

    def start(self):
        self.spawn()

        def up():
            if self.process.poll() is not None:
                raise RuntimeError(f"hutchd ended with {self.process.returncode}: {self.said()}")
            return self.answers()

        eventually(up, "an answer of hutchd", PATIENCE, also=self.said)

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/sandboxes")[0] == 200
        return False

    def request(self, method, path, body=None, headers=None):
        """Sends a request to the control plane, or with other headers anywhere. Returns the
        status, the headers and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {**({"X-API-Key": self.key} if headers is None else headers), "Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, json.loads(answer.read() or "null")
        finally:
            connection.close()

    def make(self, key=None, **more):
        """Makes a sandbox and returns the answer of POST /sandboxes."""
        body = {"templateID": "base", "timeout": 300, "secure": True, **more}
        status, _, made = self.request("POST", "/sandboxes", body, {"X-API-Key": key or self.key})
        if status != 201:
            raise RuntimeError(f"POST /sandboxes: {status} {made}")
        return made

    def call(self, sandbox, method, body):
        """Makes a data-plane call that is answered by one message."""
        headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": sandbox["envdAccessToken"]}
        return self.request("POST", method, body, headers)

    def sandboxes(self, key=None):
        """Returns the ids of all sandboxes that the key may see, page by page."""
        ids, token = [], ""
        while True:
            status, headers, listed = self.request("GET", f"/v2/sandboxes?limit=100{token}", headers={"X-API-Key": key or self.key})
            if status != 200:
                raise RuntimeError(f"GET /v2/sandboxes: {status}")
            ids += [entry["sandboxID"] for entry in listed]
            if not headers.get("x-next-token"):
                return ids
            token = f"&nextToken={headers['x-next-token']}"

    def kill(self):
        """Kills hutchd, like a crash."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Kills hutchd if it still runs."""
        if self.process and self.process.poll() is None:
            self.kill()
        self.reserved.close()

    def stop(self):
        """Stops hutchd as an administrator does. It must exit by itself, with success."""
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"hutchd did not end within {PATIENCE} s of SIGTERM: {self.said()}") from None
        if code != 0:
            raise RuntimeError(f"hutchd ended with {code}: {self.said()}")

    def said(self):
        return Path(self.log).read_text(errors="replace")[-4000:]

    def status(self, name):
        """Returns a line of /proc/PID/status, in KiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"(?m)^{name}:\s+(\d+) kB", text)[1])

    @contextlib.contextmanager
    def policy(self, text):
        """Gives sandboxes of the template `base` the policy of the agent with that name, while
        this context lasts."""
        path = Path(self.env["HUTCH_CONFIG_PATH"]) / "agents/base.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.parent.chmod(0o755)
        path.write_text(f"agent: {{name: base, type: test}}\n{text}\n")
        try:
            yield
        finally:
            path.unlink()

    def run_dir(self):
        return Path(self.env["HUTCH_RUN_DIR"])


class Place:
    """A server's environment, as a context; fails if anything is left behind."""

    def __init__(self, who="root", log=None):
        self.who, self.log = who, log
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            user = stack.enter_context(run_as.account()) if self.who == "user" and run_as.ROOT else None
            env, place, _ = run_as.prepare([], image(), user, stack)
            os.environ.update({k: v for k, v in env.items() if k.startswith("HUTCH")})
            # The module reads the environment when it is loaded.
            self.sandbox = importlib.reload(importlib.import_module("sandbox"))
            self.before = self.sandbox.ledger()
            log = self.log or str(Path(env["HOME"]) / "hutchd.log")
            self.server = Server(env, place, log)
            stack.callback(self.server.end)
            self.server.start()
            self.stack = stack.pop_all()
        return self

    def left(self):
        """Returns sandbox objects that did not exist at the beginning."""
        return self.sandbox.settle(self.before | self.own())

    def own(self):
        """The server itself is not a leftover."""
        return {str(p) for p in self.sandbox.found([self.server.process.pid])}

    def __exit__(self, kind, *_):
        with self.stack:
            left = self.left() if not kind else set()
            self.server.stop()
            left |= self.sandbox.settle(self.before) if not kind else set()
            for name in self.sandbox.list_dir(self.server.run_dir() / "sandboxes"):
                self.server.hutch("rm", "-f", name, check=False)
        if left:
            raise RuntimeError("left behind:\n  " + "\n  ".join(sorted(left)))

