# SPDX-License-Identifier: Apache-2.0
"""
Sandboxes that are virtual machines: what is different from a container, from outside. Snapshots, forks, suspended ones; what is damaged
is not loaded. Run by run_as.py with HUTCH_TEST_LEVEL=microvm.
"""

import json
import os
import shutil
import time
from pathlib import Path

from sandbox import RUN, SandboxCase, children_of, eventually, hutch, ledger, warden_of

SNAPSHOTS = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent")) / "machine/snapshots"
IDENTITY = """
import hashlib, os, uuid
print(os.getrandom(32).hex(), open("/etc/machine-id").read().strip(), open("/proc/sys/kernel/random/boot_id").read().strip(), uuid.uuid4(), os.uname().nodename)
"""


class MachineCase(SandboxCase):
    def say(self, *args):
        return self.ended(hutch(*args), 0).stdout.decode().split()

    def snapshot(self, sandbox):
        [name] = self.say("snapshot", "create", sandbox)
        self.addCleanup(hutch, "snapshot", "rm", name)
        return name

    def fork(self, sandbox, n):
        forks = self.say("fork", "-n", str(n), sandbox)
        for fork in forks:
            self.addCleanup(hutch, "rm", "-f", fork)
        return forks

    def saved(self):
        return {row["id"] for row in self.json("snapshot", "ls", "--json") if row.get("kind") == "saved"}


class Boots(MachineCase):
    def test_has_a_kernel_of_its_own(self):
        self.assertNotEqual(self.out("uname", "-r"), os.uname().release + "\n")

    def test_receipt(self):
        sandbox = self.create()
        receipt = self.json("receipt", "--json", sandbox)
        self.assertEqual(receipt["engine"], "microvm")
        missing = {row["name"] for row in receipt["layers"] if not row["enforced"]}
        self.assertLessEqual(missing, {"kvm", "apparmor", "cgroup-cpu", "cgroup-memory", "cgroup-pids"})
        [qemu] = children_of(warden_of(sandbox), "qemu-system-x86")
        if os.geteuid() == 0:
            self.assertEqual(os.listdir(f"/proc/{qemu}/root/"), [])

    def test_a_container_has_no_snapshots(self):
        sandbox = self.create(env={"HUTCH_LEVEL": ""})
        self.assertIn("level microvm", self.refused("snapshot", "create", sandbox))
        self.assertIn("level microvm", self.refused("fork", sandbox))
        self.assertIn("level microvm", self.refused("suspend", sandbox))


class Snapshots(MachineCase):
    def test_fork(self):
        """Files, memory and processes are the original's; what tells one from another is not."""
        sandbox = self.create()
        self.sh(sandbox, "echo kept >/tmp/file; mkdir /dev/shm/d")
        self.exec_(sandbox, "sleep", "4321", opts=["-d"])
        forks = self.fork(sandbox, 2)
        self.assertEqual(len(set(forks) | {sandbox}), 3)
        seen = []
        for one in [sandbox, *forks]:
            self.assertEqual(self.sh(one, "cat /tmp/file; ls /dev/shm; pgrep -x sleep | wc -l 2>/dev/null || true").split()[:2], ["kept", "d"])
            seen.append(self.python(one, IDENTITY).split())
            self.assertEqual(seen[-1][-1], one)
        for values in zip(*seen):
            self.assertEqual(len(set(values)), 3, values)
        self.assertEqual(self.saved(), set(), "what forks were made of is gone")

    def test_a_new_one_begins_as_a_snapshot(self):
        sandbox = self.create()
        self.sh(sandbox, "echo before >/tmp/file")
        name = self.snapshot(sandbox)
        self.sh(sandbox, "echo after >/tmp/file")
        self.assertEqual(self.out("cat", "/tmp/file", opts=["--snapshot", name]), "before\n")
        self.assertEqual(self.sh(sandbox, "cat /tmp/file"), "after\n")
        self.assertIn("another 'memory'", self.refused("run", "--rm", "--memory", "300MiB", "--snapshot", name, "--", "true"))

    def test_clock(self):
        sandbox = self.create()
        for one in (sandbox, *self.fork(sandbox, 1)):
            before = time.time()
            inside = float(self.python(one, "import time; print(time.time())"))
            self.assertTrue(before - 0.05 <= inside <= time.time() + 0.05, (before, inside, time.time()))

    def test_damage_is_found(self):
        sandbox = self.create()
        name = self.snapshot(sandbox)
        place = SNAPSHOTS / name
        for file in ("state", "disk", "meta.json", "box/spec.json"):
            path = place / file
            good = path.read_bytes() if path.stat().st_size < 1 << 20 else None
            size, middle = path.stat().st_size, path.stat().st_size // 2
            path.chmod(0o600)
            with self.subTest(file=file, damage="a bit"), open(path, "r+b") as f:
                f.seek(middle)
                byte = f.read(1)
                f.seek(middle)
                f.write(bytes([byte[0] ^ 4]))
                f.flush()
                self.refused("run", "--rm", "--snapshot", name, "--", "true")
                f.seek(middle)
                f.write(byte)
            if good is not None:
                with self.subTest(file=file, damage="cut off"):
                    os.truncate(path, size - 1)
                    self.refused("run", "--rm", "--snapshot", name, "--", "true")
                    path.write_bytes(good)
        self.assertEqual(self.out("echo", "whole", opts=["--snapshot", name]), "whole\n")


class Suspended(MachineCase):
    def test_goes_on(self):
        """Also after a restart of the host, which takes the run directory away."""
        sandbox = self.create()
        self.exec_(sandbox, "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >/tmp/m; mv /tmp/m /tmp/n; sleep 0.2; done", opts=["-d"])
        eventually(lambda: self.sh(sandbox, "cat /tmp/n 2>/dev/null || true").strip(), "the counter")
        for lose in (False, True):
            self.assertEqual(self.say("suspend", sandbox), [sandbox])
            self.assertEqual(self.ps()[sandbox]["state"], "paused")
            self.assertIn(f"is suspended: hutch resume {sandbox}", self.refused("exec", sandbox, "--", "true"))
            eventually(lambda: all(line.startswith("file") for line in ledger() - self.before), "that it takes nothing but space")
            if lose:
                shutil.rmtree(RUN / "sandboxes" / sandbox)
            self.assertEqual(self.say("resume", sandbox), [sandbox])
            at = int(self.sh(sandbox, "cat /tmp/n"))
            eventually(lambda: int(self.sh(sandbox, "cat /tmp/n")) > at, "the counter goes on")
            self.assertEqual(self.saved(), set())

    def test_end(self):
        sandbox = self.create()
        self.say("suspend", sandbox)
        self.assertEqual(len(self.saved()), 1)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(self.saved(), set())
        self.refused("resume", sandbox, code=1)

    def test_damaged(self):
        """It stays as it is, and says so."""
        sandbox = self.create()
        self.say("suspend", sandbox)
        [name] = self.saved()
        os.truncate(SNAPSHOTS / name / "disk", 4096)
        self.assertIn("stays suspended", self.refused("resume", sandbox))
        self.assertEqual(self.ps()[sandbox]["state"], "paused")


class Templates(MachineCase):
    def test_one_for_all(self):
        self.run_("true")
        before = sorted(os.listdir(SNAPSHOTS))
        self.run_("true")
        self.assertEqual(sorted(os.listdir(SNAPSHOTS)), before)
        kinds = [json.loads((SNAPSHOTS / name / "meta.json").read_text())["kind"] for name in before if not name.startswith(".")]
        self.assertIn("template", kinds)
