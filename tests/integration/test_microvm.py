# SPDX-License-Identifier: Apache-2.0
"""
VM sandboxes from outside, where they differ from containers: snapshots, forks, suspend; damaged
snapshots are not loaded. run_as.py runs these tests with HUTCH_TEST_LEVEL=microvm.
"""

import concurrent.futures
import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import hutchd
import memory
from sandbox import CONFIG, LONG, LOOSE, ROOT, RUN, STATE, SandboxCase, agent, as_root, children_of, clock_of, eventually, host_yaml, hutch, ledger, named, start, warden_of

HOME = STATE / "machine"
SNAPSHOTS = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent")) / "machine/snapshots"
MIB = 1 << 20
CLOCK = 0.05  # seconds, the allowed error of a clock
IDENTITY = """
import hashlib, os, uuid
print(os.getrandom(32).hex(), open("/etc/machine-id").read().strip(), open("/proc/sys/kernel/random/boot_id").read().strip(), uuid.uuid4(), os.uname().nodename)
"""
SLEEP = """
import select, time
for _ in range(60):
    began = time.monotonic()
    select.select([], [], [], 1)
    took = time.monotonic() - began
    if took < 1.5:
        break
print(took)
"""


def payload(line):
    return json.loads(line)["payload"]


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

    def test_timers_are_right_where_cpu_time_is_scarce(self):
        """An emulated kernel calibrates its timer at boot, while the host throttles it: sleeps
        took twice their time, in every clone."""
        self.assertLess(float(self.run_("python3", "-c", SLEEP, opts=[*LOOSE, "--cpus", "0.3"]).stdout), 1.5, "the shortest of many")

    def test_receipt(self):
        sandbox = self.create()
        receipt = self.json("receipt", "--json", sandbox)
        self.assertEqual((receipt["level"], receipt["engine"]), ("microvm", "qemu"))
        facts = receipt["facts"]
        self.assertRegex(facts["hypervisor"], r"^QEMU [0-9]+\.[0-9]+")
        self.assertRegex(facts["kernel"], r"^linux-\S+ [0-9]")
        self.assertRegex(facts["start"], "^template [0-9a-f]{64}$")
        self.assertEqual(facts["memory"], "shared with other VMs from there until written")
        self.assertRegex(self.ended(hutch("receipt", sandbox), 0).stdout.decode(), f"(?m)^kernel +{re.escape(facts['kernel'])}$")
        booted = self.create(env={"HUTCH_TEMPLATES": "off"})
        self.assertEqual({**facts, "start": "boot", "memory": "private"}, self.json("receipt", "--json", booted)["facts"])
        self.say("suspend", booted)
        [name] = self.saved()
        self.say("resume", booted)
        self.assertEqual(self.json("receipt", "--json", booted)["facts"]["start"], f"snapshot {name}")
        missing = {row["name"] for row in receipt["layers"] if not row["enforced"]}
        self.assertLessEqual(missing, {"kvm", "apparmor", "cgroup-cpu", "cgroup-memory", "cgroup-pids"})
        [qemu] = children_of(warden_of(sandbox), "qemu-system-x86")
        if os.geteuid() == 0:
            self.assertEqual(os.listdir(f"/proc/{qemu}/root/"), [])

    def test_usage_is_within_its_limit(self):
        """The host sees QEMU, which needs more than the policy gives to the VM."""
        sandbox = self.create(*LOOSE, "--memory", "256MiB")
        seen = self.inspect(sandbox)
        usage = seen["usage"]
        self.assertGreaterEqual(usage["memory_limit"], seen["limits"]["memory"] + (128 << 20))
        self.assertLessEqual(max(usage["memory"], usage["memory_peak"]), usage["memory_limit"])
        self.assertLessEqual(usage["pids"], usage["pids_limit"])
        said = self.ended(hutch("inspect", sandbox), 0).stdout.decode()
        self.assertRegex(said, r"(?m)^memory +256MiB$")
        self.assertRegex(said, rf"(?m)^vm-memory +{usage['memory_limit'] >> 20}MiB\b")
        self.assertRegex(said, rf"(?m)^vm-threads +{usage['pids_limit']} +[0-9]+$")

    def test_a_container_has_no_snapshots(self):
        sandbox = self.create(env={"HUTCH_LEVEL": ""})
        self.assertIn("level microvm", self.refused("snapshot", "create", sandbox))
        self.assertIn("level microvm", self.refused("fork", sandbox))
        self.assertIn("level microvm", self.refused("suspend", sandbox))


class Snapshots(MachineCase):
    def test_fork(self):
        """Files, memory and processes are copied; identities are not."""
        sandbox = self.create()
        self.sh(sandbox, "echo kept >/tmp/file; mkdir /dev/shm/d")
        self.exec_(sandbox, "sleep", "4321", opts=["-d"])
        boot = self.sh(sandbox, "cat /proc/sys/kernel/random/boot_id")  # a kernel keeps it once it was read
        forks = self.fork(sandbox, 2)
        self.assertEqual(len(set(forks) | {sandbox}), 3)
        seen = []
        for one in [sandbox, *forks]:
            self.assertEqual(self.sh(one, "cat /tmp/file; ls /dev/shm; pgrep -x sleep | wc -l 2>/dev/null || true").split()[:2], ["kept", "d"])
            seen.append(self.python(one, IDENTITY).split())
            self.assertEqual(seen[-1][-1], one)
        self.assertEqual(seen[0][2], boot.strip(), "the original goes on")
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
        for one in (*self.fork(sandbox, 1), sandbox):
            self.assertLess(clock_of(one), CLOCK)

    def test_damage_is_found(self):
        sandbox = self.create()
        name = self.snapshot(sandbox)
        place = SNAPSHOTS / name
        for file in ("state", "memory", "disk", "meta.json", "box/spec.json"):
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
        """Also after a reboot of the host, which removes the run directory."""
        sandbox = self.create()
        self.exec_(sandbox, "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >/tmp/m; mv /tmp/m /tmp/n; sleep 0.2; done", opts=["-d"])
        eventually(lambda: self.sh(sandbox, "cat /tmp/n 2>/dev/null || true").strip(), "the counter")
        for lose in (False, True):
            self.assertEqual(self.say("suspend", sandbox), [sandbox])
            self.assertEqual(self.ps()[sandbox]["state"], "suspended")
            self.assertIn(f"is suspended: hutch resume {sandbox}", self.refused("exec", sandbox, "--", "true"))
            eventually(lambda: all(line.startswith("file") for line in ledger() - self.before), "that it takes nothing but space")
            if lose:
                policy = (RUN / "sandboxes" / sandbox / "policy.json").read_bytes()
                shutil.rmtree(RUN / "sandboxes" / sandbox)
                self.assertEqual(self.ps()[sandbox]["state"], "suspended")
                self.assertEqual((RUN / "sandboxes" / sandbox / "policy.json").read_bytes(), policy)
            self.assertEqual(self.say("resume", sandbox), [sandbox])
            at = int(self.sh(sandbox, "cat /tmp/n"))
            eventually(lambda: int(self.sh(sandbox, "cat /tmp/n")) > at, "the counter goes on")
            self.assertEqual(self.saved(), set())
        self.assertLess(clock_of(sandbox), CLOCK)

    def test_by_its_deadline(self):
        """The deadline has passed then: the sandbox continues without a deadline, or with a new
        one."""
        sandbox = self.create("--deadline", "1h", "--on-timeout", "pause")
        self.exec_(sandbox, "sh", "-c", "echo $$ >/tmp/pid; exec sleep 4321", opts=["-d"])
        eventually(lambda: self.sh(sandbox, "cat /tmp/pid 2>/dev/null || true"), "its start")
        self.say("ttl", sandbox, "1s")
        eventually(lambda: self.ps()[sandbox]["state"] == "suspended", "its pause")
        eventually(lambda: {line.split()[0] for line in ledger() - self.before} == {"file"}, "that it takes nothing but space")
        self.assertEqual(len(self.saved()), 1)
        self.say("resume", sandbox)
        self.assertGreater(self.json("inspect", "--json", sandbox)["deadline"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)))
        self.assertEqual(self.sh(sandbox, "kill -0 $(cat /tmp/pid) && echo alive"), "alive\n")
        # After an explicit suspend, the remaining time counts from the resume.
        self.say("ttl", sandbox, "30m")
        self.say("suspend", sandbox)
        self.say("resume", sandbox)
        self.assertLess(self.json("inspect", "--json", sandbox)["deadline"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1801)))
        self.say("suspend", sandbox)
        self.say("resume", "--deadline", "3s", sandbox)
        eventually(lambda: self.ps()[sandbox]["state"] == "suspended", "its second pause")
        said = [json.loads(line)["payload"] for line in hutch("audit", "show", "--json", "-s", sandbox).stdout.splitlines()]
        self.assertEqual([p.get("reason") for p in said if p.get("op") == "suspend" and "snapshot" not in p], ["deadline", None, None, "deadline"])

    def test_a_deadline_set_meanwhile_is_saved_or_refused(self):
        sandbox = self.create("--ttl", "1000h")
        self.sh(sandbox, "head -c 30000000 /dev/urandom > /tmp/x; sync")  # so that it takes a while
        self.say("ttl", sandbox, "10h")
        suspend = start("suspend", sandbox)
        self.addCleanup(suspend.kill)
        hours, refused = 10, []
        while suspend.poll() is None:
            r = hutch("ttl", sandbox, f"{hours + 1}h")
            if r.returncode == 0:
                hours += 1
            else:
                refused.append(r.stderr.decode())
        self.assertEqual(suspend.wait(), 0)
        for said in refused:
            self.assertRegex(said, f"is (being )?suspended.*: hutch resume {sandbox}")
        self.say("resume", sandbox)
        left = datetime.datetime.fromisoformat(self.inspect(sandbox)["deadline"][:19]) - datetime.datetime.utcnow()
        self.assertAlmostEqual(left.total_seconds() / 3600, hours, delta=0.5)

    def test_end(self):
        sandbox = self.create()
        self.say("suspend", sandbox)
        self.assertEqual(len(self.saved()), 1)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(self.saved(), set())
        self.refused("resume", sandbox, code=1)

    def test_its_snapshot_stays(self):
        """Another process removes the snapshot: a dead sandbox remains, as after a kill during
        the suspend."""
        sandbox = self.create()
        self.say("suspend", sandbox)
        [name] = self.saved()
        self.assertIn(f"hutch resume {sandbox}", self.refused("snapshot", "rm", name))
        shutil.rmtree(SNAPSHOTS / name)
        self.assertEqual(self.ps("-a")[sandbox]["state"], "ended")
        self.refused("resume", sandbox)

    def test_damaged(self):
        """The sandbox stays suspended, and the error says so."""
        sandbox = self.create()
        self.say("suspend", sandbox)
        [name] = self.saved()
        os.truncate(SNAPSHOTS / name / "disk", 4096)
        self.assertIn("stays suspended", self.refused("resume", sandbox))
        self.assertEqual(self.ps()[sandbox]["state"], "suspended")


class Held(MachineCase):
    """Policy and limits of a saved sandbox hold after resume, and for its forks."""

    def may(self, sandbox, name):
        """Whether the name resolves inside, which it does if any rule allows it. An emulated VM on
        a busy host needs more than the usual 5 s."""
        r = hutch("exec", "-e", "RES_OPTIONS=timeout:30", sandbox, "--", "getent", "hosts", name)
        self.assertIn(r.returncode, (0, 2), r.stderr)
        return r.returncode == 0

    def test_rules(self):
        box = self.create("-a", agent("held", "egress:\n  domains: [one.example.com, two.example.com]\n"))
        self.say("egress", "deny", box, "one.example.com")
        self.say("egress", "allow", box, "three.example.com:443")
        names = {"one.example.com": False, "two.example.com": True, "three.example.com": True, "four.example.com": False}
        kept = self.snapshot(box)
        [fork] = self.fork(box, 1)
        self.say("suspend", box)
        self.say("resume", box)
        for sandbox in (box, fork):
            self.assertEqual({name: self.may(sandbox, name) for name in names}, names)
            self.assertIn("denied", hutch("egress", "explain", sandbox, "one.example.com:443").stdout.decode())
        # A sandbox from a snapshot has the rules of its own policy, and no others.
        fresh = self.create("-a", "held", "--snapshot", kept)
        self.assertEqual({name: self.may(fresh, name) for name in names}, {**names, "one.example.com": True, "three.example.com": False})
        # A resumed sandbox can be forked.
        [again] = self.fork(box, 1)
        self.assertFalse(self.may(again, "one.example.com"))
        # The dial guard allows more than the policy only by a file of the operator, which the
        # keeper cannot write.
        for sandbox in (box, fork, again, fresh):
            widened = RUN / "sandboxes" / sandbox / "widened"
            self.assertEqual(widened.read_text() if widened.exists() else "", "three.example.com:443\n" if ROOT and sandbox != fresh else "")

    def test_ttl(self):
        began = time.monotonic()
        sandbox = self.create("--ttl", "1h")
        for _ in range(2):
            self.say("suspend", sandbox)
            self.say("resume", sandbox)
        left = json.loads((RUN / "sandboxes" / sandbox / "spec.json").read_text())["ttl_left"]
        self.assertTrue(3600_000 - 1000 * (time.monotonic() - began) - 1000 < left < 3600_000, left)
        [fork] = self.fork(sandbox, 1)
        self.assertNotIn("ttl_left", json.loads((RUN / "sandboxes" / fork / "spec.json").read_text()))

    def test_who_ends_it(self):
        """A fork or a resumed sandbox does not end with the first client of the original."""
        run = start("run", "--", "sleep", "4321")
        self.addCleanup(run.kill)
        box = eventually(lambda: next(iter(self.ps()), None), "the sandbox")
        eventually(lambda: self.ps()[box]["state"] == "running", "that it runs")
        [fork] = self.fork(box, 1)
        self.say("suspend", box)
        run.wait()
        self.say("resume", box)
        self.addCleanup(hutch, "rm", "-f", box)
        for sandbox in (box, fork, box, fork):
            self.assertEqual(self.sh(sandbox, "echo here"), "here\n")


class Commands(MachineCase):
    """A command that runs during a snapshot is a command of every sandbox that continues from
    it."""
    SCRIPT = "echo before; while [ ! -e /tmp/go ]; do sleep 0.2; done; echo after; exit 7"

    def commands(self, sandbox, state):
        return [row for row in self.json("ps", "-e", "--json", sandbox) if row["name"] == "job" and row["state"] == state]

    def finish(self, sandbox, was):
        """The command is complete, continues to print, and ends."""
        [job] = eventually(lambda: self.commands(sandbox, "running"), "the command in ps -e")
        self.assertEqual([job[key] for key in ("pid", "argv", "user", "cwd", "started")], [was[key] for key in ("pid", "argv", "user", "cwd", "started")])
        self.sh(sandbox, "touch /tmp/go")
        self.ended(hutch("wait", job["handle"]), 7)
        self.assertEqual(self.ended(hutch("logs", job["handle"]), 0).stdout, b"after\n")

    def test_go_on(self):
        sandbox = self.create()
        self.exec_(sandbox, "sh", "-c", self.SCRIPT, opts=["-d", "-n", "job"])
        [was] = eventually(lambda: self.commands(sandbox, "running"), "the command")
        eventually(lambda: hutch("logs", was["handle"]).stdout == b"before\n", "its first line")
        self.finish(self.fork(sandbox, 1)[0], was)
        self.assertEqual([job["number"] for job in self.commands(sandbox, "running")], [was["number"]])
        attached = start("attach", was["handle"], stderr=subprocess.PIPE)
        self.say("suspend", sandbox)
        attached.communicate(timeout=LONG)
        self.assertNotEqual(attached.returncode, 0)
        self.say("resume", sandbox)
        [old] = self.commands(sandbox, "ended")
        self.assertEqual(old["number"], was["number"])
        self.assertIn("was suspended", json.dumps(old["end"]))
        [job] = eventually(lambda: self.commands(sandbox, "running"), "the command in ps -e")
        self.assertEqual(job["number"], was["number"] + 1)
        self.assertEqual(self.ended(hutch("ps", "-e", sandbox), 0).stderr, b"", "no command was dropped")
        self.finish(sandbox, was)


class Speed(MachineCase):
    WRITE = "import os, time; f = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY); b = time.monotonic(); os.write(f, bytes(16 << 20)); os.fsync(f); print(time.monotonic() - b)"

    def test_of_the_disk_is_limited(self):
        slow = self.create("--agent", agent("slow-disk", "extends: default\nresources: {disk_bandwidth: 4MiB}\n"))
        self.assertGreater(float(self.python(slow, self.WRITE)), 3, "16 MiB at 4 MiB/s, with a second's burst")
        row = next(x for x in self.json("receipt", "--json", slow)["layers"] if x["name"] == "disk-quota")
        self.assertTrue(row["enforced"], row)
        self.assertIn("; QEMU allows 4194304 bytes/s, 0 operations/s (0: any number)", row["seen"])


@as_root
class FullHost(MachineCase):
    """The disks of VMs are on a small file system of the test, which it fills."""

    def setUp(self):
        super().setUp()
        self.enterContext(host_yaml("disk_overcommit: false\n"))
        hutch("gc")  # ends the processes that hold templates
        with tempfile.NamedTemporaryFile(dir=STATE) as image, tempfile.TemporaryDirectory(dir=STATE) as old:
            image.truncate(1900 * MIB)  # reservations leave 1 GiB
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image.name], check=True)
            subprocess.run(["cp", "-a", f"{HOME}/.", old], check=True)
            shutil.rmtree(f"{old}/snapshots", ignore_errors=True)
            subprocess.run(["mount", "-o", "loop", image.name, HOME], check=True)
            self.addCleanup(eventually, lambda: subprocess.run(["umount", HOME], check=False).returncode == 0, "the file system's end")
            self.addCleanup(hutch, "gc")
            subprocess.run(["cp", "-a", f"{old}/.", HOME], check=True)

    def fill(self):
        """Leaves no room on the file system; the room comes back when the file is removed."""
        path = HOME / "filler"
        st = os.statvfs(HOME)
        with open(path, "wb", buffering=0) as f, contextlib.suppress(OSError):
            os.posix_fallocate(f.fileno(), 0, max(st.f_bavail - 64, 1) * st.f_frsize)
            f.seek(0, os.SEEK_END)
            while True:
                f.write(bytes(4096))
        self.addCleanup(path.unlink, missing_ok=True)
        return path

    def state(self, sandbox):
        found = self.inspect(sandbox)
        return found["state"], found["stopped"]

    def test_stops_and_continues(self):
        with host_yaml("disk_overcommit: true\n"):
            sandbox = self.create("--disk", "4GiB")
        filler = self.fill()
        job = self.exec_(sandbox, "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x >/tmp/x; sync; sha256sum /tmp/x", opts=["-d"]).stdout.decode().strip()
        eventually(lambda: self.state(sandbox) == ("stopped", "disk-full"), "the stop", also=lambda: self.state(sandbox))
        self.assertIn("the host's disk is full", self.ended(hutch("inspect", sandbox), 0).stdout.decode())
        self.assertIn("stopped", self.ended(hutch("ps"), 0).stdout.decode())
        self.assertIn("the sandbox has stopped: the host's disk is full", self.refused("exec", sandbox, "--", "true"))
        self.assertIn("has stopped", self.refused("snapshot", "create", sandbox))
        filler.unlink()
        eventually(lambda: self.state(sandbox) == ("running", None), "room", also=lambda: self.state(sandbox))
        self.ended(hutch("wait", job), 0)
        out = self.ended(hutch("logs", job), 0).stdout.decode()
        self.assertEqual(out.split()[0], hashlib.sha256(b"x" * 100000000).hexdigest())
        self.assertLess(clock_of(sandbox), CLOCK)
        said = [r for r in map(payload, hutch("audit", "show", "--json", "-s", sandbox).stdout.splitlines()) if r.get("op") in ("stop", "continue")]
        self.assertEqual([(r["op"], r["state"], r["reason"]) for r in said], [("stop", "stopped", "disk-full"), ("continue", "running", "disk-full")])

    def test_a_template_without_room(self):
        with host_yaml("disk_overcommit: true\n"):
            self.ended(hutch("kill", self.create("--disk", "200MiB")), 0)  # makes the empty disk
            filler = self.fill()
            os.truncate(filler, filler.stat().st_size - 800_000)  # room for its disk, and not for its memory
            said = self.refused("create", "--disk", "200MiB", "--memory", "192MiB")
        self.assertIn("cannot create a template of image ", said)
        self.assertRegex(said, "No space left on device|the host's disk is full")

    def test_reserved_disks_notice_nothing(self):
        """A disk that is not overcommitted has its space before the sandbox starts."""
        sandbox = self.create("--disk", "200MiB")
        self.fill()
        self.sh(sandbox, "head -c 100000000 /dev/zero >/tmp/x; sync; rm /tmp/x; sync; head -c 100000000 /dev/zero >/tmp/y; sync")
        self.assertEqual(self.state(sandbox), ("running", None))
        said = self.refused("create", "--disk", "200MiB")
        for part in ("200 MiB", "free", "disk_overcommit: true", str(SNAPSHOTS)):
            self.assertIn(part, said)


class Space(MachineCase):
    """snapshot_space of host.yaml, and references that keep an image."""

    def allow(self, size):
        self.enterContext(host_yaml(f"snapshot_space: {size}\n"))

    def test_is_kept_free(self):
        sandbox = self.create()
        self.allow("1GiB")
        before = sorted(os.listdir(SNAPSHOTS))
        for args in (("snapshot", "create"), ("fork",), ("suspend",)):
            said = self.refused(*args, sandbox)
            self.assertIn("this one may need 3184 MiB more, and 1024 MiB are allowed", said)
            self.assertIn("raise snapshot_space in host.yaml", said)
        self.assertIn("snapshot_space", self.refused("run", "--rm", "--memory", "2GiB", "--", "true"), "a template")
        self.assertEqual(sorted(os.listdir(SNAPSHOTS)), before)
        self.assertEqual(self.sh(sandbox, "echo goes on"), "goes on\n")
        self.allow("32GiB")
        self.snapshot(sandbox)

    def test_a_deadline_without_it_pauses_in_memory(self):
        self.run_("true")  # makes its template
        self.allow("1MiB")
        sandbox = self.create("--deadline", "3s", "--on-timeout", "pause")
        eventually(lambda: self.ps()[sandbox]["state"] == "paused", "its pause")
        self.assertEqual(self.saved(), set())
        self.assertEqual(len(children_of(warden_of(sandbox), "qemu-system-x86")), 1)
        self.say("resume", sandbox)
        self.assertEqual(self.sh(sandbox, "echo goes on"), "goes on\n")

    def test_an_image_that_is_needed_stays(self):
        """Also by gc, when its name refers to another tree."""
        [base] = [row for row in self.json("image", "ls", "--json") if row["name"] == "base"]
        sandbox = self.create()
        name = self.snapshot(sandbox)
        self.say("suspend", sandbox)
        [suspended] = self.saved() - {name}
        self.assertRegex(self.refused("image", "rm", "base"), f"({name}|{sandbox}).* needs the image.*; 1 more: hutch snapshot ls")
        names = Path(os.environ["HUTCH_STATE_DIR"]) / "images/names/base.json"
        names.rename(names.with_suffix(".kept"))
        self.ended(hutch("gc"), 0)
        names.with_suffix(".kept").rename(names)
        self.assertTrue((Path(base["root"]).parent / "root.erofs").exists())
        self.ended(hutch("snapshot", "rm", name), 0)
        self.assertIn(f"hutch resume {sandbox}", self.refused("image", "rm", "base"))
        self.assertEqual(self.saved(), {suspended})
        self.ended(hutch("resume", sandbox), 0)
        self.assertEqual(self.sh(sandbox, "echo whole"), "whole\n")


class Templates(MachineCase):
    def test_one_for_all(self):
        self.run_("true")
        before = sorted(os.listdir(SNAPSHOTS))
        self.run_("true")
        self.assertEqual(sorted(os.listdir(SNAPSHOTS)), before)
        kinds = [json.loads((SNAPSHOTS / name / "meta.json").read_text())["kind"] for name in before if not name.startswith(".")]
        self.assertIn("template", kinds)

    @as_root
    def test_a_hypervisor_among_the_own_programs_comes_first(self):
        """tools/small-qemu.sh makes one. Here it is a copy, in a directory that the jail does not have."""
        with tempfile.TemporaryDirectory() as lib:
            for path in (*map(os.environ.get, ("HUTCH_KEEPER", "HUTCH_GUEST", "HUTCH_RAM_SO")), shutil.which("qemu-system-x86_64")):
                shutil.copy(path, lib)
            sandbox = self.create(env={"HUTCH_LIBEXEC_DIR": lib})
            [pid] = children_of(warden_of(sandbox), "qemu-system-x86")
            self.assertTrue(os.path.samefile(f"/proc/{pid}/exe", f"{lib}/qemu-system-x86_64"))
            self.assertEqual(self.sh(sandbox, "echo runs"), "runs\n")
            self.say("rm", "-f", sandbox)


class Memory(MachineCase):
    """A VM can use all of its memory, and pays for the pages that it writes. tests/slow/machine_memory.py
    has more VMs and sizes."""
    OPTIONS = (*LOOSE, "--memory", "256MiB", "--disk", "64MiB")
    FULL = 230  # MiB of 256

    def qemu(self, sandbox):
        [pid] = children_of(warden_of(sandbox), "qemu-system-x86")
        return pid

    @as_root
    def test_its_writes_are_its_own(self):
        """Another clone has the same template and cannot observe any of it."""
        first, second = self.create(*self.OPTIONS), self.create(*self.OPTIONS)
        [path] = {line.split(None, 5)[5] for box in (first, second) for line in Path(f"/proc/{self.qemu(box)}/maps").read_text().splitlines()
                  if line.endswith("/memory")}
        memory.warm(path)
        blocks, before = os.stat(path).st_blocks, memory.cached_pages(path)
        self.assertEqual(self.python(second, memory.FILL + memory.CHECK + "print('whole')", str(self.FULL), "50"), "whole\n")
        self.assertEqual(memory.cached_pages(path) - before, set(), "new in the host's cache")
        self.assertEqual(os.stat(path).st_blocks, blocks)
        of = memory.of_file(self.qemu(second), "/memory")
        self.assertLessEqual(of["Shared_Dirty"] + of["Private_Dirty"], of["Anonymous"], "written pages are anonymous")
        # Both still share the pages that neither has written.
        for box in (first, second):
            self.assertLess(memory.file_share(self.qemu(box), "/memory"), 0.7)

    def test_all_of_it_is_saved(self):
        sandbox = self.create(*self.OPTIONS)
        self.exec_(sandbox, "python3", "-c", memory.HOLD, str(self.FULL), "0", opts=["-d"])
        pid, _ = eventually(lambda: self.sh(sandbox, f"cat {memory.HELD} 2>/dev/null || true").split(), "the program has filled its memory")
        [fork] = self.fork(sandbox, 1)
        self.say("suspend", sandbox)
        self.say("resume", sandbox)
        for box in (sandbox, fork):
            self.sh(box, f"kill -USR1 {pid}")
            said = eventually(lambda box=box: [n for _, n in [self.sh(box, f"cat {memory.HELD}").split()] if n != "0"], "the check")
            self.assertEqual(said, ["1"])


class Api(SandboxCase):
    """hutchd: pause suspends a VM to disk."""

    @contextlib.contextmanager
    def resuming(self, server, sandbox, resume):
        """Suspends the sandbox, calls `resume`, which resumes it, and stops the new warden."""
        self.assertEqual(server.api("POST", f"/sandboxes/{sandbox}/pause", {})[0], 204)
        eventually(lambda: not named("hutch-keeper", "qemu-system-x86"), "the end of its processes")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = pool.submit(resume)
            warden = eventually(lambda: warden_of(sandbox), "the new warden")
            os.kill(warden, signal.SIGSTOP)
            try:
                self.assertEqual(self.ps()[sandbox]["state"], "starting")
                yield pool
            finally:
                os.kill(warden, signal.SIGCONT)
            done.result()

    def resumed_meanwhile(self, server, sandbox, token):
        """Requests that arrive during a resume wait for it, also if another process resumes."""
        def connect():
            return server.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 500})[0]

        def prolong():
            return server.api("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 600})[0]

        def read():
            with contextlib.closing(server.connection()) as c:
                c.request("GET", "/files?path=/tmp/file", None, {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "X-Access-Token": token})
                answer = c.getresponse()
                return answer.status, answer.read()

        for resume in (connect, lambda: self.ended(hutch("resume", sandbox), 0)):
            with self.resuming(server, sandbox, resume) as pool:
                asked = [pool.submit(fn) for fn in (connect, prolong, read)]
                eventually(lambda: children_of(server.process.pid, "hutchd"), "hutchd's job")
                self.assertEqual(server.api("GET", f"/sandboxes/{sandbox}")[0], 200)
                self.assertFalse(any(a.done() for a in asked))
            self.assertIn(asked[0].result(), (200, 201))
            self.assertEqual([a.result() for a in asked[1:]], [204, (200, b"kept\n")])

    def test_pause_and_connect(self):
        server = hutchd.Server("--default-agent", agent("narrowed", "extends: e2b-microvm\negress:\n  domains: [one.example.com]\n"))
        self.addCleanup(server.stop)
        status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 600})
        self.assertEqual(status, 201)
        sandbox = made["sandboxID"]
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.sh(sandbox, "echo kept > /tmp/file")
        self.exec_(sandbox, "getent", "hosts", "one.example.com")
        self.assertEqual(server.api("PUT", f"/sandboxes/{sandbox}/network", {"denyOut": ["0.0.0.0/0"]})[0], 204)
        self.exec_(sandbox, "getent", "hosts", "one.example.com", code=2)
        self.assertEqual(server.api("POST", f"/sandboxes/{sandbox}/pause", {})[0], 204)
        eventually(lambda: not named("hutch-keeper", "qemu-system-x86"), "the end of its processes")
        self.assertEqual(server.api("POST", f"/sandboxes/{sandbox}/pause", {})[0], 409)
        server.kill()
        server.start()
        [row] = server.api("GET", "/v2/sandboxes?state=paused")[1]
        self.assertEqual((row["sandboxID"], row["state"]), (sandbox, "paused"))
        status, again = server.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 500})
        self.assertEqual((status, again.get("envdAccessToken")), (201, made["envdAccessToken"]), again)
        self.assertEqual(self.sh(sandbox, "cat /tmp/file"), "kept\n")
        self.exec_(sandbox, "getent", "hosts", "one.example.com", code=2)
        self.resumed_meanwhile(server, sandbox, made["envdAccessToken"])
        # A token of the original does not work for a fork that another user makes.
        fork = self.ended(hutch("fork", sandbox), 0).stdout.decode().strip()
        self.assertEqual(json.loads((RUN / "sandboxes" / fork / "spec.json").read_text())["api"], "")
        self.ended(hutch("rm", "-f", fork), 0)
        self.assertEqual(server.api("GET", f"/sandboxes/{sandbox}")[1]["state"], "running")
        self.assertEqual(server.api("POST", f"/sandboxes/{sandbox}/pause", {})[0], 204)
        self.assertEqual(server.api("DELETE", f"/sandboxes/{sandbox}")[0], 204)
        self.assertEqual(server.api("GET", f"/sandboxes/{sandbox}")[0], 404)

    def test_what_is_saved_has_no_credential(self):
        """Row 153: the snapshot's memory and disk contain neither the API key nor the access
        token. Hutch keeps the token in a file of its own beside them, for the same sandbox to
        continue with. Positive control: the memory of a program inside is in the snapshot."""
        server = hutchd.Server("--default-agent", "e2b-microvm")
        self.addCleanup(server.stop)
        status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 600})
        self.assertEqual(status, 201)
        sandbox, word = made["sandboxID"], "in-the-memory-of-a-program"
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.exec_(sandbox, "python3", "-c", f"import signal; word = '{word}'.upper(); open('/tmp/up', 'w'); signal.pause()", opts=["-d"])
        eventually(lambda: self.sh(sandbox, "ls /tmp/up 2>/dev/null || true"), "the program")
        before = set(os.listdir(SNAPSHOTS))
        self.assertEqual(server.api("POST", f"/sandboxes/{sandbox}/pause", {})[0], 204)
        [name] = set(os.listdir(SNAPSHOTS)) - before

        def found(text):
            r = subprocess.run(["grep", "-rlaF", "--", text, SNAPSHOTS / name], capture_output=True, text=True, check=False)
            return {str(Path(line).relative_to(SNAPSHOTS / name)) for line in r.stdout.splitlines()}
        self.assertEqual(found(word.upper()), {"memory"})
        self.assertEqual((found(server.key), found(made["envdAccessToken"])), (set(), {"box/spec.json"}))
        self.assertEqual((SNAPSHOTS / name / "box/spec.json").stat().st_mode & 0o077, 0)
