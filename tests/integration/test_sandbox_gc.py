# SPDX-License-Identifier: Apache-2.0
"""hutch gc removes and reports sandboxes without a living warden, and leaves living ones alone."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from sandbox import BOX, LONG, RUN, STATE, SandboxCase, as_root, eventually, hutch, ledger, named, start, warden_of


def gc(**more):
    return json.loads(hutch("gc", "--ended", "--json", **more).stdout)


class Gc(SandboxCase):
    def test_nothing_there(self):
        self.ended(hutch("gc"), 0)
        self.assertEqual(self.ended(hutch("gc"), 0).stdout, b"")
        self.assertEqual(gc(), {"dead": [], "ended": [], "groups": [], "ids": 0, "images": [], "ledgers": [], "snapshots": []})

    def test_used_budgets(self):
        """One that no sandbox or snapshot names goes, except while a process has it locked."""
        alive = self.create()
        directory = STATE / "ledger"
        directory.mkdir(mode=0o700, exist_ok=True)
        for name in (alive, "a" * 16, "b" * 16):
            (directory / name).write_bytes(b"")
        with (directory / ("b" * 16)).open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_SH)
            self.assertEqual(gc()["ledgers"], ["a" * 16])
        self.assertEqual(gc()["ledgers"], ["b" * 16])
        self.assertEqual(os.listdir(directory), [alive])
        self.ended(hutch("rm", "-f", alive), 0)
        self.assertEqual(gc()["ledgers"], [alive])

    def test_the_living_stay_and_the_ended_go(self):
        alive, ended = self.create(), self.create()
        self.ended(hutch("kill", ended), 0)
        self.assertEqual(gc()["ended"], [ended])
        self.assertEqual(list(self.ps("-a")), [alive])
        self.assertEqual(self.sh(alive, "echo alive"), "alive\n")

    def test_the_dead_go(self):
        sandbox = self.create()
        os.kill(warden_of(sandbox), signal.SIGKILL)
        eventually(lambda: not named("hutch-keeper", BOX), "the end of all processes")
        said = self.ended(hutch("gc", "--ended"), 0).stdout.decode()
        self.assertRegex(said, rf"(?m)^dead sandbox +{sandbox}\nended sandbox +{sandbox}$")
        self.assertEqual(self.ps("-a"), {})

    def test_one_that_is_being_made_stays(self):
        for _ in range(5):
            p = start("run", "--rm", "--", "true")
            while p.poll() is None:  # gc may remove a directory without a lock; create then makes another one
                gc()
            self.assertEqual(p.wait(LONG), 0)

    @as_root
    def test_a_group_without_a_sandbox(self):
        """Another process has removed the directory of a running sandbox."""
        sandbox = self.create()
        shutil.rmtree(RUN / "sandboxes" / sandbox)
        [group] = gc()["groups"]
        self.assertTrue(group.startswith(f"{sandbox}-"), group)
        eventually(lambda: not named("hutch-keeper", BOX), "the end of all processes")

    @as_root
    def test_groups_of_another_run_directory_stay(self):
        sandbox = self.create()
        with tempfile.TemporaryDirectory() as other:
            self.assertEqual(gc(env={"HUTCH_RUN_DIR": other})["groups"], [])
            self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_a_copy_of_the_run_directory_touches_nothing(self):
        """Another run directory uses the same ids and has no living owner: gc reclaims there and
        changes nothing here."""
        sandbox = self.create()
        eventually(lambda: not named("crun", "runc"), "the end of the runtime that made the sandbox")
        before = ledger()
        with tempfile.TemporaryDirectory() as other:
            copy = Path(other) / "run"
            subprocess.run(["cp", "-a", RUN, copy], check=True)
            self.assertEqual(gc(env={"HUTCH_RUN_DIR": str(copy)})["dead"], [sandbox])
            self.assertEqual(os.listdir(copy / "sandboxes"), [])
        self.assertEqual(ledger(), before)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
