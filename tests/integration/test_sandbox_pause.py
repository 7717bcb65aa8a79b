# SPDX-License-Identifier: Apache-2.0
"""Changed deadlines and paused sandboxes: processes that stop and continue, clocks that stand
still, and ends during a pause."""

import json
import os
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path

import wire
from sandbox import BOX, LONG, MACHINE, LOOSE, RUN, SandboxCase, as_root, as_user, children_of, eventually, hutch, named, start, warden_of
from waiting import quiet_for, until_clock

# A number that grows while the sandbox runs.
COUNTER = "i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done"


def life(sandbox):
    return json.loads((RUN / "sandboxes" / sandbox / "life.json").read_text())


def moment(text):
    return datetime.fromisoformat(text[:19] + "+00:00").timestamp()


class PauseCase(SandboxCase):
    def pause(self, sandbox):
        self.assertEqual(self.ended(hutch("pause", sandbox), 0).stdout.decode().strip(), sandbox)
        self.assertEqual(self.ps()[sandbox]["state"], "paused")

    def resume(self, sandbox, *opts):
        self.ended(hutch("resume", *opts, sandbox), 0)
        self.assertEqual(self.ps()[sandbox]["state"], "running")

    def deadline(self, sandbox):
        return moment(self.inspect(sandbox)["deadline"])

    def assert_behind(self, when, seconds, began):
        """`when` is `seconds` after a moment between `began` and now. It may have whole seconds
        only."""
        self.assertTrue(began + seconds - 1 <= when <= time.time() + seconds + 1, (began, seconds, when, time.time()))

    def made_in_time(self, clock, do):
        """A sandbox with this clock in which `do` came in time, and the seconds it had; a late
        `do` is refused."""
        def attempt(seconds):
            sandbox = self.create(*clock(seconds))
            return (sandbox, seconds) if do(sandbox).returncode == 0 else self.gone(sandbox, self.over)
        return self.first_in_time(attempt)

    over = "ttl"


@as_root
class Pause(PauseCase):
    def count(self, sandbox):
        """
        The counter, read from outside through PID 1's root, so that nothing in the sandbox has to
        run. The files of a VM cannot be read from outside: there it is QEMU's CPU time.
        """
        [init] = children_of(warden_of(sandbox), BOX)
        if MACHINE:
            return int(Path(f"/proc/{init}/stat").read_text().rsplit(") ", 1)[1].split()[11])
        path = Path(f"/proc/{init}/root/tmp/count")
        return int(path.read_text()) if path.exists() else 0

    def counting(self, *opts):
        sandbox = self.create(*opts)
        self.exec_(sandbox, "sh", "-c", COUNTER, opts=["-d"])
        eventually(lambda: self.count(sandbox) > 2, "the counter")
        return sandbox

    def test_everything_stops_and_goes_on(self):
        sandbox = self.counting()
        self.pause(sandbox)
        at = self.count(sandbox)
        quiet_for(1, lambda: self.count(sandbox) != at, "something runs")
        self.assertEqual(life(sandbox)["state"], "paused")
        self.resume(sandbox)
        eventually(lambda: self.count(sandbox) > at + 3, "the counter after it")
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_life_json_is_there_from_the_start(self):
        began = time.time()
        sandbox = self.create("--deadline", "10m")
        said = life(sandbox)
        self.assertEqual(set(said), {"schema", "state", "deadline_ms", "on_timeout"})
        self.assertEqual((said["schema"], said["state"], said["on_timeout"]), ("hutch.life/1", "running", "end"))
        self.assert_behind(said["deadline_ms"] / 1000, 600, began)

    def test_the_receipt_says_what_a_pause_is(self):
        sandbox = self.create()
        self.assertEqual(self.json("receipt", "--json", sandbox)["pause"],
                         {"by": "freezer", "seen": "every process stops, memory stays, nothing is written to disk"})
        self.assertRegex(hutch("receipt", sandbox).stdout.decode(), "(?m)^pause +freezer: every process stops")

    def test_asking_for_what_is_so_already(self):
        sandbox = self.create()
        self.assertIn("running already", self.refused("resume", sandbox))
        self.pause(sandbox)
        self.assertIn("paused already", self.refused("pause", sandbox))
        self.resume(sandbox)

    def test_nothing_new_begins_in_a_paused_one(self):
        sandbox = self.create()
        self.pause(sandbox)
        for command in (["exec", sandbox, "--", "true"], ["cp", f"{sandbox}:/etc/passwd", "/dev/null"]):
            with self.subTest(command=command):
                self.assertIn(f"the sandbox is paused: hutch resume {sandbox}", self.refused(*command))
        self.resume(sandbox)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_a_command_and_its_client_stay(self):
        sandbox = self.create()
        p = start("exec", "-i", sandbox, "--", "sh", "-c", "echo one; read x; echo $x", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"one\n")
        self.pause(sandbox)
        p.stdin.write(b"two\n")
        p.stdin.flush()
        quiet_for(0.5, lambda: p.poll() is not None, "it went on")
        self.resume(sandbox)
        self.assertEqual(p.communicate(timeout=LONG)[0], b"two\n")
        self.assertEqual(p.returncode, 0)

    def test_the_time_limit_of_a_command_stands_still(self):
        sandbox = self.create()

        def attempt(seconds):
            p = start("exec", "--timeout", f"{seconds}s", sandbox, "--", "sh", "-c", "echo begun; exec sleep 4321", stdout=subprocess.PIPE)
            self.addCleanup(p.stdout.close)
            p.stdout.readline()
            self.pause(sandbox)
            if any(row["state"] == "running" for row in self.json("ps", "-e", "--json", sandbox)):
                return p, seconds
            return self.resume(sandbox)

        p, seconds = self.first_in_time(attempt)
        until_clock(time.monotonic() + seconds + 1)
        self.assertIsNone(p.poll(), "the limit is over by the clock on the wall")
        self.resume(sandbox)
        self.assertEqual(p.wait(LONG), 124)

    def test_a_paused_one_is_not_idle(self):
        self.over = "idle"
        sandbox, seconds = self.made_in_time(lambda s: ("--idle", f"{s}s"), lambda sandbox: hutch("pause", sandbox))
        until_clock(time.monotonic() + seconds + 1)
        self.assertEqual(self.ps()[sandbox]["state"], "paused")
        self.resume(sandbox)
        self.gone(sandbox, "idle")

    def test_a_paused_one_has_no_deadline(self):
        sandbox, seconds = self.made_in_time(lambda s: ("--ttl", f"{s}s"), lambda sandbox: hutch("pause", sandbox))
        self.assertIsNone(self.inspect(sandbox)["deadline"])
        self.assertEqual(life(sandbox)["deadline_ms"], 0)
        until_clock(time.monotonic() + seconds + 1)
        self.assertEqual(self.ps()[sandbox]["state"], "paused")
        self.resume(sandbox)
        self.gone(sandbox, "ttl")

    def test_a_deadline_that_pauses(self):
        sandbox = self.create("--deadline", "1s", "--on-timeout", "pause")
        eventually(lambda: self.ps()[sandbox]["state"] == "paused", "the pause")
        self.assertEqual(life(sandbox)["on_timeout"], "pause")
        began = time.time()
        self.resume(sandbox, "--deadline", "10m")
        self.assert_behind(self.deadline(sandbox), 600, began)
        self.ended(hutch("ttl", sandbox, "1s"), 0)
        eventually(lambda: self.ps()[sandbox]["state"] == "paused", "the second pause")
        # The deadline has passed: the policy's ttl remains.
        self.resume(sandbox)
        self.assertGreater(self.deadline(sandbox), time.time() + 3600)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        self.ended(hutch("ttl", "--on-timeout", "end", sandbox, "1s"), 0)
        self.gone(sandbox, "ttl")

    def test_the_ttl_ends_also_where_a_deadline_would_pause(self):
        self.gone(self.create("--ttl", "1s", "--on-timeout", "pause"), "ttl")

    def test_a_new_deadline_of_a_paused_one_counts_from_its_resume(self):
        sandbox = self.create()
        self.pause(sandbox)
        self.assertEqual(self.ended(hutch("ttl", sandbox, "10m"), 0).stdout, b"paused\n")
        until_clock(time.monotonic() + 3)
        began = time.time()
        self.resume(sandbox)
        self.assert_behind(self.deadline(sandbox), 600, began)

    def test_a_paused_one_is_killed(self):
        sandbox = self.counting()
        self.pause(sandbox)
        self.assertIn("is paused", self.refused("rm", sandbox))
        self.ended(hutch("kill", sandbox), 0)
        self.gone(sandbox, "killed")
        self.assertEqual(named("hutch-keeper", BOX), [])

    def test_a_paused_one_is_removed_by_force(self):
        sandbox = self.counting()
        self.pause(sandbox)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertNotIn(sandbox, self.ps("-a"))

    def test_a_killed_keeper_ends_a_paused_one(self):
        sandbox = self.counting()
        [keeper] = children_of(warden_of(sandbox), "hutch-keeper")
        self.pause(sandbox)
        os.kill(keeper, signal.SIGKILL)
        self.gone(sandbox, "keeper")

    def test_a_killed_warden_of_a_paused_one_leaves_nothing_for_long(self):
        for command in (["ps"], ["gc"]):
            with self.subTest(command=command):
                sandbox = self.counting()
                self.pause(sandbox)
                os.kill(warden_of(sandbox), signal.SIGKILL)
                eventually(lambda: named("hutch-keeper") == [], "the end of the keeper")
                self.assertNotEqual(named(BOX), [], "what is frozen cannot end by itself")
                self.ended(hutch(*command), 0)
                eventually(lambda: named(BOX) == [], "the end of what was frozen")
                if command == ["ps"]:
                    self.ended(hutch("rm", sandbox), 0)

    def test_processes_that_fork_are_stopped_too(self):
        sandbox = self.create(*LOOSE, "--pids", "64")
        self.exec_(sandbox, "sh", "-c", "while :; do (exec true) & (exec true); wait; done", opts=["-d"])
        for _ in range(5):
            self.pause(sandbox)
            self.resume(sandbox)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_many_at_once(self):
        """Exactly one of the concurrent requests succeeds; the others find it done."""
        sandbox = self.create()
        for command in ("pause", "resume"):
            pairs = [start(command, sandbox) for _ in range(6)]
            self.assertEqual(sorted(p.wait(LONG) for p in pairs), [0] + [125] * 5)

    def test_as_the_protocol_has_it(self):
        """By a client that was written from PROTOCOL.md alone."""
        began = time.time()
        sandbox = self.create("--ttl", "1h")
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(RUN / "sandboxes" / sandbox / "sock"))
        link = wire.Link(s)
        self.addCleanup(link.close)
        link.hello(read=(), write=(), execute=())

        def ask(code=wire.DONE, **fields):
            ch = link.open("life", **fields)
            self.assertEqual(ch.wait_closed(), code, (ch.closed, fields))
            return ch.accepted

        now = ask()
        self.assertEqual(now["want"], 2)
        self.assert_behind(now["deadline"] / 1000, 3600, began)
        began = time.time()
        self.assert_behind(ask(timeout=1200000)["deadline"] / 1000, 1200, began)
        ask(timeout=3600001, code=wire.INVALID)
        self.assertEqual(ask(timeout=600000, on_timeout=2, want=1), {"want": 1, "deadline": 0})
        ask(want=1, code=wire.EXISTS)
        self.assertEqual(link.open("stat", path="/").wait_closed(), wire.UNSUPPORTED)
        began = time.time()
        now = ask(want=2)
        self.assertEqual(now["want"], 2)
        self.assert_behind(now["deadline"] / 1000, 600, began)
        self.assertEqual(link.open("stat", path="/").wait_closed(), wire.DONE)
        # The client does not wait for the answer; the request still takes effect.
        link.open("life", want=1).close()
        eventually(lambda: life(sandbox)["state"] == "paused", "the pause")
        ask(want=2)

    def test_it_is_recorded(self):
        sandbox = self.create()
        self.pause(sandbox)
        self.resume(sandbox)
        began = time.time()
        self.ended(hutch("ttl", sandbox, "30m"), 0)
        self.refused("resume", sandbox)
        lines = [json.loads(line) for line in self.ended(hutch("audit", "show", "--json", "-s", sandbox), 0).stdout.splitlines()]
        said = [(r["kind"], r["payload"].get("op"), r["payload"].get("state"), r["payload"].get("result"))
                for r in lines if r["kind"].startswith("life")]
        self.assertEqual(said, [("life", "pause", None, None), ("life-end", "pause", "paused", None), ("life", "resume", None, None),
                                ("life-end", "resume", "running", None), ("life", "deadline", None, None),
                                ("life-end", "deadline", "running", None), ("life", "resume", None, None),
                                ("life-end", "resume", "running", "exists")])
        [done] = [r["payload"] for r in lines if r["kind"] == "life-end" and r["payload"]["op"] == "deadline"]
        self.assert_behind(moment(done["deadline"]), 1800, began)
        self.assertRegex(hutch("audit", "show", "-s", sandbox).stdout.decode(), "(?m)life-end +.*deadline +state=running +deadline=20")


class Deadline(PauseCase):
    def test_is_made_shorter(self):
        sandbox = self.create("--ttl", "1h")
        self.ended(hutch("ttl", sandbox, "1s"), 0)
        self.gone(sandbox, "ttl")
        self.assertEqual(self.inspect(sandbox)["end"]["text"], "its deadline was reached")

    def test_is_made_longer(self):
        began, said = time.time(), []

        def longer(sandbox):
            said[:] = [hutch("ttl", sandbox, "30m")]
            return said[0]

        sandbox, seconds = self.made_in_time(lambda s: ("--ttl", "1h", "--deadline", f"{s}s"), longer)
        self.assert_behind(moment(said[0].stdout.decode().strip()), 1800, began)
        self.assert_behind(self.deadline(sandbox), 1800, began)
        until_clock(time.monotonic() + seconds + 1)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_a_first_one_of_its_own(self):
        self.gone(self.create("--ttl", "1h", "--deadline", "1s"), "ttl")

    def test_is_never_behind_the_ttl(self):
        sandbox = self.create("--ttl", "1h")
        self.assertRegex(self.refused("ttl", sandbox, "61m"), "the policy's ttl has 3[0-9]{3} s left")
        self.assertGreater(self.deadline(sandbox), time.time() + 1800)
        self.assertIn("later than the ttl of agent 'default', 60 s", self.refused("create", "--ttl", "1m", "--deadline", "2m", code=1))

    def test_what_is_no_time(self):
        sandbox = self.create()
        for text, said in (("soon", "expected a time"), ("0s", "expected a time"), ("10", "did you mean '10s'")):
            with self.subTest(text=text):
                self.assertIn(said, self.refused("ttl", sandbox, text, code=2))
        self.assertIn("expected 'end' or 'pause'", self.refused("ttl", "--on-timeout", "stop", sandbox, "5m", code=2))

    def test_of_one_that_has_ended(self):
        sandbox = self.create()
        hutch("kill", sandbox)
        self.assertRegex(self.refused("ttl", sandbox, "5m"), rf"sandbox {sandbox} ended at 20[0-9T:-]+Z: killed by uid {os.getuid()}\n")


@as_user
class NoFreezer(PauseCase):
    """Where the user cannot create control groups."""

    def test_is_said_by_name(self):
        sandbox = self.create()
        pause = self.json("receipt", "--json", sandbox)["pause"]
        self.assertEqual(pause["by"], "none")
        self.assertIn("only root can make groups", pause["seen"])
        for args in (["pause", sandbox], ["ttl", "--on-timeout", "pause", sandbox, "5m"]):
            with self.subTest(args=args):
                said = self.refused(*args)
                self.assertIn("cannot pause this sandbox: there is no freezer: ", said)
                self.assertIn("only root can make groups", said)
        self.assertEqual(self.ps()[sandbox]["state"], "running")
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_is_not_promised_at_the_start(self):
        said = self.refused("create", "--deadline", "5m", "--on-timeout", "pause")
        self.assertIn("a deadline cannot pause this sandbox, there is no freezer", said)
