# SPDX-License-Identifier: Apache-2.0
"""
Kept sandboxes: all that can be inspected stays the same after the end, however the sandbox ended
and whatever created it. Kept sandboxes are deleted by age, size and number, each owner's own first.
"""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from hutchd import JSON, Server
from sandbox import BOX, LONG, PATIENCE, RUN, SandboxCase, eventually, host_yaml, hutch, named, start, warden_of
from support import hutch_path

DAY = 24 * 3600 * 10**9
ENDED = RUN / "ended"
BY = f"it was killed by uid {os.getuid()}"
SCRIPT = "printf 'one\\n'; printf 'two\\n' >&2; exit 3"


def looks(sandbox, *more):
    """All output about a sandbox that has run a command, byte for byte; of `inspect`, the fields
    that do not change over time."""
    found = {" ".join(args): hutch(*args, sandbox) for args in (("receipt",), ("receipt", "--json"), *more)}
    found["logs"] = hutch("logs", f"{sandbox}/1")
    found["ps -e"] = hutch("ps", "--json", "-e", sandbox)
    said = {name: (r.returncode, r.stdout, r.stderr) for name, r in found.items()}
    inspected = json.loads(hutch("inspect", "--json", sandbox).stdout)
    said["inspect"] = {key: value for key, value in inspected.items() if key not in ("state", "end", "usage", "met", "life", "deadline", "on_timeout")}
    return said


class KeptCase(SandboxCase):
    def nothing_is_left(self):
        super().nothing_is_left()
        for name in os.listdir(ENDED):
            hutch("rm", name)

    def row(self, sandbox):
        return self.ps("-a")[sandbox]

    def worked(self, *opts):
        """A sandbox that has run a command, and all output about it."""
        sandbox = self.create(*opts)
        self.exec_(sandbox, "sh", "-c", SCRIPT, code=3)
        before = looks(sandbox)
        self.assertEqual(before["logs"], (0, b"one\n", b"two\n"), "the control")
        return sandbox, before

    def kept(self, sandbox, before, reason, code):
        """The sandbox has ended in this way, and all output is unchanged."""
        eventually(lambda: self.row(sandbox)["state"] == "ended", f"the end of {sandbox}")
        row = self.row(sandbox)
        self.assertEqual((row["exit"], row["reason"]), (code, reason))
        self.assertRegex(row["ended_at"], r"^20\d\d-\d\d-\d\dT")
        self.assertEqual(looks(sandbox), before)
        self.assertEqual(self.ps(), {}, "ps alone shows the living")
        self.assertFalse((RUN / "sandboxes" / sandbox).exists(), "not in the way of the living")
        self.assertEqual((ENDED / sandbox).stat().st_mode & 0o777, 0o700)
        said = self.ended(hutch("ps", "-a"), 0).stdout.decode()
        self.assertRegex(said, rf"(?m)^{sandbox} .* ended +{code} .* {re.escape(reason)}$")


class Ways(KeptCase):
    """Each way to end."""

    def test_killed(self):
        sandbox, before = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        self.kept(sandbox, before, BY, 3)
        self.assertEqual(self.inspect(sandbox)["end"]["reason"], "killed")

    def test_by_a_signal_of_somebody(self):
        sandbox, before = self.worked()
        os.kill(warden_of(sandbox), signal.SIGTERM)
        self.kept(sandbox, before, "it was killed", 3)

    def test_deadline(self):
        def attempt(seconds):
            sandbox = self.create("--deadline", f"{seconds}s")
            if hutch("exec", sandbox, "--", "sh", "-c", SCRIPT).returncode != 3:
                return None
            return sandbox, looks(sandbox) if sandbox in self.ps() else None

        sandbox, before = self.first_in_time(attempt)
        eventually(lambda: self.row(sandbox)["state"] == "ended", "its deadline")
        self.kept(sandbox, before or looks(sandbox), "its deadline was reached", 3)

    def test_by_itself(self):
        self.ended(hutch("run", "--", "sh", "-c", SCRIPT), 3)
        [(sandbox, row)] = self.ps("-a").items()
        self.assertEqual((row["exit"], row["ended"], row["reason"]), (3, None, "its command ended, or its client"))
        self.assertEqual(looks(sandbox)["logs"], (0, b"one\n", b"two\n"))

    def test_of_a_run_whose_client_is_killed(self):
        p = start("run", "--", "sh", "-c", "echo ready; exec sleep 4321", stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.kill()
        p.communicate(timeout=LONG)
        eventually(lambda: [row["state"] for row in self.ps("-a").values()] == ["ended"], "its end")
        [(sandbox, row)] = self.ps("-a").items()
        self.assertIn(row["exit"], (125, 137), "lost, or killed with everything")
        self.assertEqual(hutch("logs", f"{sandbox}/1").stdout, b"ready\n")

    def test_of_a_run_whose_warden_is_killed(self):
        p = start("run", "--", "sh", "-c", "echo ready; exec sleep 4321", stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        [sandbox] = self.ps()
        os.kill(warden_of(sandbox), signal.SIGKILL)
        p.communicate(timeout=LONG)
        eventually(lambda: self.row(sandbox)["state"] == "ended", "its end")
        self.assertEqual((self.row(sandbox)["reason"], self.row(sandbox)["exit"]), ("its keeper was killed", 125))
        self.assertEqual(hutch("logs", f"{sandbox}/1").stdout, b"ready\n")

    def test_while_it_is_listed(self):
        """ps -a and ps -a -e show a sandbox that ends between any two of their looks at directories."""
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for args in (("ps", "-a", "--json"), ("ps", "-a", "-e", "--json")):
            for when in range(1, 100):
                sandbox, _ = self.worked()
                trace = directory / f"{len(args)}-{when}"
                p = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, "-e", "trace=getdents64", "-e", f"inject=getdents64:signal=STOP:when={when}",
                                      hutch_path(), *args], stdout=subprocess.PIPE)
                eventually(lambda p=p, trace=trace: p.poll() is not None or (trace.exists() and "stopped by SIGSTOP" in trace.read_text()), "its stop")
                if p.poll() is not None:
                    break
                self.ended(hutch("kill", sandbox), 0)
                eventually((ENDED / sandbox).exists, f"the end of {sandbox}")
                os.kill(int(trace.read_text().split()[0]), signal.SIGCONT)
                said = json.loads(p.communicate(timeout=LONG)[0])
                self.assertIn(sandbox, {row.get("id") or row["handle"].split("/")[0] for row in said}, f"{args}, stopped at look {when}")
                self.ended(hutch("rm", sandbox), 0)
            self.assertGreater(when, 4, "the control: it looks at both directories")
            p.communicate(timeout=LONG)

    def test_lost(self):
        """kill -9 of the warden: the next command records the end."""
        sandbox, before = self.worked()
        os.kill(warden_of(sandbox), signal.SIGKILL)
        self.kept(sandbox, before, "its keeper was killed", 3)
        self.assertEqual(self.inspect(sandbox)["end"]["reason"], "warden")

    def test_memory(self):
        """PID 1 is killed for memory, and end.json says so."""
        sandbox, before = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        end = json.loads((ENDED / sandbox / "end.json").read_text())
        del end["by"]
        (ENDED / sandbox / "end.json").write_text(json.dumps({**end, "reason": "guest-ended", "oom_kills": 2}))
        limit = re.search(r"(?m)^memory +(\S+)", self.ended(hutch("inspect", sandbox), 0).stdout.decode())[1]
        self.kept(sandbox, before, f"memory limit of {limit} reached", 3)

    def test_in_the_middle(self):
        """end.json exists, and the warden was killed before it moved the directory: the next
        hutch moves it."""
        sandbox, before = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        os.rename(ENDED / sandbox, RUN / "sandboxes" / sandbox)
        self.kept(sandbox, before, BY, 3)

    def test_without_being_kept(self):
        self.run_("true")
        self.assertEqual((self.ps("-a"), [x for x in os.listdir(ENDED) if x not in ("since", "trimmed")]), ({}, []))


class Commands(KeptCase):
    def test_a_name_is_found_by_its_beginning(self):
        sandbox, before = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        self.assertEqual(hutch("logs", f"{sandbox[:10]}/1").stdout, before["logs"][1])
        self.assertEqual(hutch("egress", "log", sandbox[:10]).returncode, 0)
        self.assertEqual(hutch("logs", "-f", f"{sandbox}/1").stdout, b"one\n")
        self.assertEqual(hutch("wait", f"{sandbox}/1").returncode, 3)
        self.assertEqual(hutch("ps", "-a", "-e", "--json").stdout, before["ps -e"][1])

    def test_what_cannot_be_done_any_more(self):
        sandbox, _ = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        for args in (["exec", sandbox, "--", "true"], ["cp", f"{sandbox}:/etc/hostname", "."], ["pause", sandbox], ["resume", sandbox],
                     ["ttl", sandbox, "5m"], ["commit", sandbox, "new"], ["watch", f"{sandbox}:/tmp"], ["egress", "allow", sandbox, "a.example"]):
            with self.subTest(args=args):
                r = hutch(*args)
                self.assertNotEqual(r.returncode, 0)
                self.assertRegex(r.stderr.decode(), rf"sandbox {sandbox} ended at 20[0-9T:-]+Z: killed by uid {os.getuid()}")
        self.assertEqual(hutch("kill", sandbox).stdout.decode().strip(), sandbox, "it has ended, as was asked for")

    def test_rm(self):
        ended, living = self.worked()[0], self.worked()[0]
        self.ended(hutch("kill", ended), 0)
        self.assertIn("use 'rm -f'", self.refused("rm", living))
        self.ended(hutch("rm", ended), 0)
        self.assertEqual(list(self.ps("-a")), [living])
        self.assertIn("no sandbox", hutch("logs", f"{ended}/1").stderr.decode())
        self.ended(hutch("rm", "-f", living), 0)
        self.assertEqual(self.ps("-a"), {}, "nothing is kept of it")

    def test_many_at_once(self):
        """Concurrent kill, list, remove and inspect: none fails, and each sandbox is either
        listed or gone."""
        boxes = [self.create() for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda i: hutch(*(["kill", boxes[i % 4]], ["ps", "-a"], ["gc"], ["inspect", boxes[i % 4]])[i // 4]), range(16)))
        self.assertEqual([r.stderr for r in done if r.returncode], [])
        self.assertEqual({row["state"] for row in self.ps("-a").values()}, {"ended"})
        self.assertEqual(set(self.ps("-a")), set(boxes))


class Damaged(KeptCase):
    def test_is_shown_and_removable(self):
        boxes = [self.worked()[0] for _ in range(3)]
        self.ended(hutch("kill", *boxes), 0)
        gone, link, broken = boxes
        target = RUN / "target"
        target.mkdir()
        self.addCleanup(shutil.rmtree, target)
        (target / "file").write_text("mine")
        shutil.rmtree(ENDED / link)
        (ENDED / link).symlink_to(target)
        (ENDED / broken / "spec.json").write_text("{")
        (ENDED / broken / "kept").unlink()
        (ENDED / broken / "kept").symlink_to(target / "file")
        (ENDED / broken / "d").mkdir()
        (ENDED / broken / "cmd-1").unlink()
        os.mkfifo(ENDED / broken / "cmd-1")
        rows = self.ps("-a")
        self.assertEqual([rows[box]["state"] for box in boxes], ["ended", "damaged", "damaged"])
        self.assertIn(f"is damaged: hutch rm {link}", hutch("inspect", link).stderr.decode())
        for args in (["inspect", broken], ["logs", f"{broken}/1"], ["receipt", link], ["exec", link, "--", "true"]):
            self.assertIn(hutch(*args).returncode, (1, 125), args)
        self.ended(hutch("gc"), 0)
        self.assertEqual(set(self.ps("-a")), set(boxes))
        for box in boxes:
            self.ended(hutch("rm", box), 0)
        self.assertEqual((self.ps("-a"), (target / "file").read_text()), ({}, "mine"))

    def test_gc_removes_all(self):
        """Damaged entries, with any end time."""
        boxes = [self.create() for _ in range(4)]
        self.ended(hutch("kill", *boxes), 0)
        link, empty, file, ahead = boxes
        for box in (link, empty, file):
            shutil.rmtree(ENDED / box)
        (ENDED / link).symlink_to("/etc")
        (ENDED / empty).mkdir(mode=0o700)
        (ENDED / file).write_text("")
        say(ahead, -DAY, size=0)
        self.ended(hutch("gc"), 0)
        self.assertEqual(set(self.ps("-a")), set(boxes), "the control")
        self.assertEqual(set(json.loads(self.ended(hutch("gc", "--ended", "--json"), 0).stdout)["ended"]), set(boxes))
        self.assertEqual(set(os.listdir(ENDED)), {"since", "trimmed"})
        self.assertTrue(os.path.exists("/etc/passwd"))


def say(sandbox, age=0, size=4096, owner=None):
    """Sets the age and size that a kept sandbox's file states."""
    _, _, whole, name = (ENDED / sandbox / "kept").read_text().rstrip("\n").split(" ", 3)
    (ENDED / sandbox / "kept").write_text(f"{time.time_ns() - age} {size} {whole} {name if owner is None else owner}\n")


class Retention(KeptCase):
    def make(self, n):
        boxes = [self.create() for _ in range(n)]
        self.ended(hutch("kill", *boxes), 0)
        return boxes

    def test_by_days(self):
        old, young = self.make(2)
        say(old, 7 * DAY + 1)
        say(young, 7 * DAY - 3600 * 10**9)
        self.assertEqual(json.loads(hutch("gc", "--json").stdout)["ended"], [old])
        self.assertEqual(list(self.ps("-a")), [young])
        with host_yaml("keep_ended: 2d\n"):
            self.ended(hutch("gc"), 0)
        self.assertEqual(self.ps("-a"), {})

    def test_without_gc(self):
        """Listing and starting sandboxes trims, but not each time."""
        [old] = self.make(1)
        self.ended(hutch("gc"), 0)
        say(old, 8 * DAY)
        self.assertIn(old, self.ps("-a"), "it was looked through a moment ago")
        os.utime(ENDED / "trimmed", (0, 0))
        self.run_("true")
        self.assertEqual(self.ps("-a"), {})

    def test_gc_waits_for_another(self):
        [ended] = self.make(1)
        with (ENDED / "since").open("r+b") as since:
            fcntl.flock(since, fcntl.LOCK_EX)
            self.assertIn(ended, self.ps("-a"), "others go on")
            p = start("gc", "--ended", "--json", stdout=subprocess.PIPE)
            eventually(lambda: re.search(rf"-> FLOCK .* {p.pid} ", Path("/proc/locks").read_text()), "gc, which waits")
            self.assertIn(ended, self.ps("-a"))
        self.assertEqual(json.loads(p.communicate(timeout=LONG)[0])["ended"], [ended])
        self.assertEqual((p.returncode, self.ps("-a")), (0, {}))

    def test_nothing(self):
        with host_yaml("keep_ended: 0s\n"):
            [ended] = self.make(1)
            self.ended(hutch("run", "--", "true"), 0)
            self.assertEqual(self.ps("-a"), {})
        self.assertIn("no sandbox", hutch("inspect", ended).stderr.decode())

    def test_a_wrong_host_yaml_removes_nothing(self):
        [ended] = self.make(1)
        say(ended, 8 * DAY)
        with host_yaml("keep_ended: seven days\n"):
            r = hutch("gc")
            self.assertEqual(r.returncode, 1)
            self.assertIn("keep_ended: expected a duration", r.stderr.decode())
            self.assertIn(ended, self.ps("-a"))

    def test_by_space(self):
        boxes = self.make(3)
        for age, box in enumerate(reversed(boxes)):
            say(box, age * 10**9, 2 << 20)
        with host_yaml("ended_space: 5MiB\n"):
            self.ended(hutch("gc"), 0)
        self.assertEqual(set(self.ps("-a")), set(boxes[1:]), "the oldest has gone")

    def test_more_than_a_share(self):
        """A sandbox that alone exceeds the limit loses its output, and hutch says so."""
        sandbox, before = self.worked()
        self.ended(hutch("kill", sandbox), 0)
        say(sandbox, size=2 << 30)
        with host_yaml("ended_space: 1MiB\n"):
            self.ended(hutch("gc"), 0)
        self.assertEqual(self.row(sandbox)["reason"], BY)
        self.assertIn("was removed to make room: see ended_space", hutch("logs", f"{sandbox}/1").stderr.decode())
        self.assertEqual((0, hutch("receipt", sandbox).stdout), before["receipt"][:2])

    def test_by_number(self):
        """10,000 at most: the oldest are deleted. All but one of them are empty."""
        [ended] = self.make(1)
        say(ended, 10**12)
        copies = [f"z{i:015d}" for i in range(10000)]
        for age, copy in enumerate(reversed(copies)):
            (ENDED / copy).mkdir(mode=0o700)
            self.addCleanup(shutil.rmtree, ENDED / copy, ignore_errors=True)
            (ENDED / copy / "kept").write_text(f"{time.time_ns() - age * 10**6} 4096 whole \n")
        self.ended(hutch("gc"), 0)
        self.assertEqual(set(os.listdir(ENDED)) - {"since", "trimmed"}, set(copies), "the oldest has gone, and no other")


class Tenants(KeptCase):
    """Sandboxes of two API keys."""

    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.unix = f"{work.name}/hutchd"
        cls.server = Server("--unix", cls.unix)
        cls.addClassCleanup(cls.server.stop)
        cls.names, cls.keys = {}, {}
        for who in ("alice", "mallory"):
            cls.names[who] = f"{who}-{cls.server.port}"
            cls.keys[who] = hutch("key", "create", "--role", "user", "--name", cls.names[who]).stdout.decode().strip()

    def ask(self, who, method, path, body=None):
        with contextlib.closing(self.server.connection()) as c:
            c.request(method, path, json.dumps(body) if body is not None else None, {"X-API-Key": self.keys[who], "Content-Type": JSON})
            answer = c.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def make(self, who, timeout=3600 * PATIENCE):
        status, made = self.ask(who, "POST", "/sandboxes", {"templateID": "base", "timeout": timeout})
        self.assertEqual(status, 201, made)
        sandbox = made["sandboxID"]
        self.addCleanup(hutch, "rm", "-f", sandbox)
        return sandbox

    def work(self, who, **more):
        sandbox = self.make(who, **more)
        self.exec_(sandbox, "sh", "-c", SCRIPT, code=3)
        return sandbox, looks(sandbox)

    def test_deleted(self):
        sandbox, before = self.work("alice")
        self.assertEqual(self.ask("alice", "DELETE", f"/sandboxes/{sandbox}")[0], 204)
        self.kept(sandbox, before, f"it was killed by key {self.names['alice']}", 3)
        self.assertEqual(self.row(sandbox)["key"], self.names["alice"])

    def test_deleted_over_the_unix_socket(self):
        """Without a key, the Unix user is the owner."""
        sandbox, before = self.work("alice")
        with contextlib.closing(self.server.connection()) as c:
            c.sock = socket.socket(socket.AF_UNIX)
            c.sock.connect(self.unix)
            c.request("DELETE", f"/sandboxes/{sandbox}")
            self.assertEqual(c.getresponse().status, 204)
        self.kept(sandbox, before, BY, 3)

    def test_its_deadline(self):
        sandbox, before = self.work("alice")
        self.assertEqual(self.ask("alice", "POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 1})[0], 204)
        eventually(lambda: sandbox not in self.ps(), "its deadline")
        self.kept(sandbox, before, "its deadline was reached", 3)

    def test_kill_9_of_hutchd(self):
        server = Server()
        self.addCleanup(server.stop)
        sandbox = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 3600 * PATIENCE})[1]["sandboxID"]
        self.exec_(sandbox, "sh", "-c", SCRIPT, code=3)
        before, warden = looks(sandbox), warden_of(sandbox)
        server.kill()
        os.kill(warden, signal.SIGKILL)
        eventually(lambda: not named("hutch-keeper", BOX), "the end of all processes")
        server.start()  # which reclaims dead sandboxes
        eventually(lambda: (ENDED / sandbox).exists(), "hutchd, which takes back")
        self.kept(sandbox, before, "its keeper was killed", 3)

    def test_the_api_says_what_e2b_says(self):
        sandbox, _ = self.work("alice")
        other = self.make("alice")
        logs = self.ask("alice", "GET", f"/sandboxes/{sandbox}/logs")
        mine = {path: self.ask("alice", "GET", path) for path in
                (f"/v2/sandboxes/{sandbox}/logs", f"/hutch/v1/sandboxes/{sandbox}/receipt")}
        self.assertEqual(logs[0], 200)
        self.assertIn("ended: exit status 3", [line["line"] for line in logs[1]["logs"]], "the control")
        self.assertEqual(self.ask("alice", "DELETE", f"/sandboxes/{sandbox}")[0], 204)
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/metrics"), ("POST", "/pause"), ("POST", "/timeout")):
            status, said = self.ask("alice", method, f"/sandboxes/{sandbox}{path}", {"timeout": 5} if method == "POST" else None)
            self.assertEqual(status, 404, (method, path, said))
        for path in ("/sandboxes", "/v2/sandboxes"):
            self.assertEqual([box["sandboxID"] for box in self.ask("alice", "GET", path)[1]], [other])
        self.assertEqual(self.ask("alice", "GET", f"/sandboxes/{sandbox}/logs"), logs, "what it did stays its owner's to read")
        for path, answer in mine.items():
            self.assertEqual(self.ask("alice", "GET", path), answer)
        self.assertEqual(self.ask("alice", "GET", f"/hutch/v1/sandboxes/{sandbox}")[1]["state"], "ended")
        self.assertEqual(self.ask("alice", "GET", f"/hutch/v1/sandboxes/{sandbox[:8]}")[0], 404, "by its whole id")
        for path in (f"/sandboxes/{sandbox}/logs", f"/v2/sandboxes/{sandbox}/logs", f"/hutch/v1/sandboxes/{sandbox}",
                     f"/hutch/v1/sandboxes/{sandbox}/receipt", f"/hutch/v1/sandboxes/{sandbox}/egress"):
            refused = self.ask("mallory", "GET", path)
            self.assertEqual(refused, (404, {"code": 404, "message": f'sandbox "{sandbox}" doesn\'t exist or you don\'t have access to it'}))

    def test_one_key_does_not_push_out_another(self):
        alice = self.make("alice")
        self.assertEqual(self.ask("alice", "DELETE", f"/sandboxes/{alice}")[0], 204)
        mallory = []
        for _ in range(4):
            mallory.append(self.make("mallory"))
            self.assertEqual(self.ask("mallory", "DELETE", f"/sandboxes/{mallory[-1]}")[0], 204)
        say(alice, 10**12, 2 << 20)  # the oldest of all
        for age, box in enumerate(reversed(mallory)):
            say(box, age * 10**9, 2 << 20)
        with host_yaml("ended_space: 6MiB\n"):
            self.ended(hutch("gc"), 0)
        self.assertEqual(set(self.ps("-a")), {alice, *mallory[2:]})

    def test_the_audit_log_names_the_key(self):
        mine, ours = self.make("alice"), self.create()
        records = [json.loads(line) for line in hutch("audit", "show", "--json").stdout.splitlines()]
        created = {r["payload"]["sandbox"]: r["payload"] for r in records if r["kind"] == "create"}
        self.assertEqual(created[mine]["api_key"], self.names["alice"])
        self.assertNotIn("api_key", created[ours])
        self.assertEqual((created[mine]["uid"], created[ours]["uid"]), (os.getuid(), os.getuid()))
        self.assertRegex(hutch("audit", "show", "-s", mine).stdout.decode(), rf"(?m) create .* api_key={self.names['alice']} ")


class Mcp(KeptCase):
    def talk(self, p, number, method, **params):
        p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        p.stdin.flush()
        return json.loads(p.stdout.readline())["result"]

    def test_the_end_of_a_session(self):
        with start("mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            self.talk(p, 1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"})
            self.talk(p, 2, "tools/call", name="run_command", arguments={"command": SCRIPT})
            [sandbox] = self.ps()
            before = looks(sandbox)
            self.assertEqual(before["logs"], (0, b"one\n", b"two\n"), "the control")
            p.stdin.close()
            p.wait(LONG)
        self.kept(sandbox, before, "it was killed by an MCP session", 3)
