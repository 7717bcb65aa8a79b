#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
run.py [--as root|user]: runs the official client of the Model Context Protocol from npm against
`hutch mcp` and against POST /mcp of its own hutchd, and sends requests that no client would send.
Prints TAP. Anything left on the host afterwards is a failure. See tests/conformance/server.py for
its requirements.
"""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "conformance"))
import report  # noqa: E402
import sdk  # noqa: E402
from waiting import LONG as PATIENCE  # noqa: E402
from waiting import eventually, readable  # noqa: E402

PACKAGE, VERSION = "@modelcontextprotocol/sdk", "1.32.2"
LINE_MAX = 4 * 1024 * 1024
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@contextlib.contextmanager
def client(config):
    with tempfile.TemporaryDirectory(prefix="hutch-mcp-") as directory:
        shutil.copy(HERE / "client.mjs", directory)
        (Path(directory) / "node_modules").symlink_to(sdk.modules(f"mcp-{VERSION}", f"{PACKAGE}@{VERSION}"))
        with subprocess.Popen(["node", "client.mjs", json.dumps(config)], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace") as process:
            try:
                yield process
            finally:
                process.kill()


def run_client(tap, name, config):
    """Reports each of the client's lines as one of ours."""
    last, failed = "", []
    with client(config) as process:
        for line in process.stdout:
            match = re.match(r"(ok|not ok) \d+ - (.*)", line)
            if match:
                tap.tell("passed" if match[1] == "ok" else "failed", f"{name}: {match[2]}")
            elif line.startswith("#"):
                tap.comment(line[1:].strip())
            else:
                failed.append(line.rstrip())
            last = line.strip()
    tap.check(last == "done", f"{name}: the client came to its end", failed)


class Stdio:
    """A hutch mcp process; sends and reads lines."""

    def __init__(self, server, *args):
        self.process = subprocess.Popen([server.env["HUTCH"], "mcp", *args], env=server.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        **server.who)
        self.number = 0

    def send(self, data):
        self.process.stdin.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        readable(self.process.stdout, "an answer")
        return json.loads(self.process.stdout.readline() or "null")

    def ask(self, method, **params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.answer()

    def begin(self):
        self.ask("initialize", **HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def tool(self, name, **arguments):
        return self.ask("tools/call", name=name, arguments=arguments)["result"]

    def end(self):
        """Closes its input and returns the exit code."""
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


def running(server):
    return {row["id"] for row in json.loads(server.hutch("ps", "--json"))}


def wait_until_gone(server, before):
    eventually(lambda: not running(server) - before, "the end of every new sandbox", also=lambda: running(server) - before)


def wait_for_command(server, sandbox, text):
    eventually(lambda: any(text in json.dumps(row) for row in json.loads(server.hutch("ps", "--json", "-e", sandbox))), f"{text} in {sandbox}")


def malformed(tap, server):
    m = Stdio(server)
    codes = {
        "not JSON": (b"{\n", -32700),
        "deep nesting": (b"[" * 100000 + b"\n", -32700),
        "bad UTF-8": (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}\n', -32700),
        "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
        "a line that is too long": (b'{"x":"' + b"a" * LINE_MAX + b'"}\n', -32700),
        "no version": (b'{"id":1,"method":"ping"}\n', -32600),
        "a tool before the beginning": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', -32600),
        "no such method": (b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n', -32601),
    }
    for name, (line, code) in codes.items():
        m.send(line)
        said = m.answer()
        tap.check(said.get("error", {}).get("code") == code, f"stdio: {name}", [str(said)])
    m.send(b"\n\r\n")
    tap.check(m.ask("ping").get("result") == {}, "stdio: after all that it answers")
    said = m.ask("initialize", **{**HELLO, "protocolVersion": "1999-01-01"})
    tap.check(said["result"]["protocolVersion"] == "2025-06-18", "stdio: the newest version for one that is not known")
    tap.check(m.end() == 0, "stdio: it ends well")


def endings(tap, server):
    before = running(server)
    m = Stdio(server).begin()
    m.tool("run_command", command="true")
    m.tool("create_sandbox")
    tap.check(len(running(server) - before) == 2, "stdio: there are sandboxes (control)")
    tap.check(m.end() == 0 and running(server) == before, "stdio: with the end of input, nothing is left")

    m = Stdio(server).begin()
    m.tool("run_command", command="true")
    mine, = running(server) - before
    m.send({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "run_command", "arguments": {"command": "sleep 4321"}}})
    wait_for_command(server, mine, "sleep 4321")
    m.process.send_signal(signal.SIGTERM)
    code = m.process.wait(PATIENCE)
    tap.check(code == 0 and running(server) == before, "stdio: SIGTERM ends it while a command runs, which it does not wait for, and nothing is left")
    m.end()

    for seconds in (4, 30, 120):  # on a slow host the first may expire before the test looks
        m = Stdio(server, "--deadline", f"{seconds}s").begin()
        m.tool("run_command", command="true")
        m.process.kill()
        m.end()
        if left := running(server) - before:
            break
    tap.check(len(left) == 1, "stdio: kill -9 leaves a sandbox (control)")
    wait_until_gone(server, before)
    tap.check(True, "stdio: that its deadline ends")


def sandbox_killed(tap, server):
    m = Stdio(server).begin()
    before = running(server)
    m.tool("run_command", command="true")
    mine, = running(server) - before
    m.send({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "run_command", "arguments": {"command": "echo on; sleep 4321"}}})
    wait_for_command(server, mine, "sleep 4321")
    server.hutch("kill", mine)
    said = m.answer()
    result = said.get("result", {})
    tap.check(said.get("id") == 99 and result.get("isError") and result["structuredContent"]["exitStatus"] is None,
              "stdio: a command whose sandbox is killed is reported as an error", [str(said)])
    tap.check(not m.tool("run_command", command="true")["isError"], "stdio: and the next one has a new sandbox")
    tap.check(m.end() == 0 and running(server) == before, "stdio: which ends too")


def client_killed(tap, server, config):
    before = running(server)
    with client({**config, "linger": True}) as process:
        for line in process.stdout:
            if line.startswith("lingers"):
                break
        tap.check(len(running(server) - before) == 1, "stdio: the client has a sandbox (control)")
        process.kill()
        process.wait()
    wait_until_gone(server, before)
    tap.check(True, "stdio: when the client is killed, nothing is left")


class Http:
    def __init__(self, server, key=None):
        self.server, self.key, self.session, self.number = server, key or server.key, None, 0

    def request(self, method, body=None, **more):
        headers = {"X-API-Key": self.key, **({"Mcp-Session-Id": self.session} if self.session else {}), **more}
        return self.server.request(method, "/mcp", body, {k: v for k, v in headers.items() if v})

    def ask(self, method, **params):
        self.number += 1
        return self.request("POST", {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})

    def begin(self):
        status, headers, said = self.ask("initialize", **HELLO)
        assert status == 200, said
        self.session = headers["Mcp-Session-Id"]
        return self

    def tool(self, name, **arguments):
        status, _, said = self.ask("tools/call", name=name, arguments=arguments)
        assert status == 200, said
        return said["result"]


def http(tap, server):
    before = running(server)
    other = Http(server, server.make_key("other")).begin()
    h = Http(server)
    tap.check(h.ask("ping")[0] == 400, "http: 400 without a session")
    h.begin()
    tap.check(re.fullmatch("[0-9a-f]{32}", h.session), "http: an id of 128 bits")
    tap.check(h.request("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})[0] == 202, "http: 202 for a notification")
    tap.check(h.request("GET")[0] == 405, "http: 405 for GET")
    tap.check(h.request("POST", [])[0] == 400, "http: 400 for a batch")
    tap.check(h.request("POST", {}, **{"X-API-Key": None})[0] == 401, "http: 401 without a key")
    tap.check(h.request("POST", {}, Origin="http://evil.example")[0] == 403, "http: 403 for a web page")
    tap.check(h.request("POST", {}, **{"MCP-Protocol-Version": "1999-01-01"})[0] == 400, "http: 400 for another version")
    h.tool("write_file", path="/tmp/kept", content="kept")
    stolen = Http(server, other.key)
    stolen.session = h.session
    tap.check(stolen.ask("ping")[0] == 404, "http: 404 for the session of another key")
    tap.check(stolen.request("DELETE")[0] == 404, "http: which cannot end it either")
    server.kill()
    server.start()
    tap.check(h.tool("read_file", path="/tmp/kept").get("structuredContent", {}).get("content") == "kept", "http: a session outlives kill -9 of hutchd")
    tap.check(stolen.ask("ping")[0] == 404, "http: and stays its key's")
    tap.check(other.ask("ping")[0] == 404, "http: one without a sandbox is forgotten, and told so")
    tap.check(h.request("DELETE")[0] == 204 and running(server) == before, "http: DELETE ends it, and nothing is left")
    tap.check(h.ask("ping")[0] == 404 and h.request("DELETE")[0] == 404, "http: 404 afterwards")
    many = [Http(server) for _ in range(64)]
    for one in many:
        one.begin()
    tap.check(Http(server).ask("initialize", **HELLO)[0] == 429, "http: sessions of a key are counted")
    tap.check(many[0].request("DELETE")[0] == 204 and Http(server).begin().session, "http: one that is ended makes room")


def everything(options, tap, server):
    who = server.who
    command = [server.env["HUTCH"], "mcp"]
    if "user" in who:
        command = ["setpriv", f"--reuid={who['user']}", f"--regid={who['group']}", "--clear-groups", *command]
    env = {k: v for k, v in server.env.items() if k.startswith("HUTCH") or k in ("PATH", "HOME", "XDG_RUNTIME_DIR", "TMPDIR")}
    config = {"command": command[0], "args": command[1:], "env": env}
    run_client(tap, "stdio", config)
    run_client(tap, "http", {"url": f"{server.url}/mcp", "key": server.key})
    malformed(tap, server)
    endings(tap, server)
    sandbox_killed(tap, server)
    client_killed(tap, server, config)
    http(tap, server)


def main(args):
    options = report.options(__doc__).parse_args(args)
    if not shutil.which("node") or not shutil.which("npm"):
        print("1..0 # SKIP needs node and npm")
        return 0
    return report.with_server(options, lambda tap, server: everything(options, tap, server))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
