# SPDX-License-Identifier: Apache-2.0
"""
VMs in trouble: a closed monitor, a blocked warden, snapshots and images that are removed while VMs
use them, and clients that may not wake a suspended VM. run_as.py runs these tests with
HUTCH_TEST_LEVEL=microvm.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import hutchd
from sandbox import LONG, RUN, SandboxCase, agent, as_root, children_of, eventually, hutch, log_of, named, start, warden_of
from test_microvm import SNAPSHOTS, MachineCase

PIDFD_GETFD = 438


def take_descriptor(pid, fd):
    """A copy of another process's descriptor."""
    libc, pidfd = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    try:
        taken = libc.syscall(PIDFD_GETFD, pidfd, fd, 0)
    finally:
        os.close(pidfd)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return taken


@as_root
class Monitor(MachineCase):
    """QEMU closes its monitor and continues to run: its keeper can neither save nor continue it."""

    def shut(self, sandbox, name):
        """Shuts down QEMU's socket with this name."""
        [qemu] = children_of(warden_of(sandbox), "qemu-system-x86")
        [fd] = re.findall(rf"socket,id={name},fd=(\d+)", Path(f"/proc/{qemu}/cmdline").read_text())
        with socket.socket(fileno=take_descriptor(qemu, int(fd))) as s:
            s.shutdown(socket.SHUT_RDWR)

    def begin(self):
        sandbox = self.create()
        command = start("exec", sandbox, "--", "sh", "-c", "echo begun; exec sleep 4321", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(command.kill)
        self.assertEqual(command.stdout.readline(), b"begun\n")
        return sandbox, command

    def over(self, sandbox, command, reason):
        self.gone(sandbox, reason)
        said = command.communicate(timeout=LONG)[1].decode()
        self.assertEqual(command.returncode, 125, said)
        self.assertRegex(said, "^hutch exec: ")
        self.nothing_is_left()

    def test_closed(self):
        sandbox, command = self.begin()
        self.shut(sandbox, "qmp")
        self.over(sandbox, command, "protocol")
        self.assertIn("the VM runs, but its monitor is closed", log_of(sandbox))

    def test_the_channel_closed(self):
        """The guest's channel instead of the monitor ends the sandbox too."""
        sandbox, command = self.begin()
        self.shut(sandbox, "channel")
        self.over(sandbox, command, "guest-ended")

    def test_closed_during_a_snapshot(self):
        sandbox, command = self.begin()
        warden = warden_of(sandbox)
        os.kill(warden, signal.SIGSTOP)  # so that the order stays open
        try:
            save = start("snapshot", "create", sandbox, stderr=subprocess.PIPE)
            self.addCleanup(save.kill)
            asked(sandbox, "snapshot")
            self.shut(sandbox, "qmp")
            [keeper] = children_of(warden, "hutch-keeper")
            eventually(lambda: not [p for p in named("hutch-keeper") if p.pid == keeper], "the keeper's end")
        finally:
            os.kill(warden, signal.SIGCONT)
        said = save.communicate(timeout=LONG)[1].decode()
        self.assertEqual(save.returncode, 125, said)
        self.assertRegex(said, "^hutch snapshot create: .*no snapshot was made")
        self.over(sandbox, command, "protocol")
        self.assertEqual(self.saved(), set())


def asked(sandbox, op):
    """Waits until a request for a snapshot or suspend has reached the keeper, which records it first."""
    def payloads():
        return [json.loads(line)["payload"] for line in hutch("audit", "show", "--json", "-s", sandbox).stdout.splitlines()]
    eventually(lambda: [p for p in payloads() if p.get("op") == op], f"the record of the {op}", also=payloads)


class Blocked(MachineCase):
    """A warden that does not run: snapshots wait for it, and end with it."""

    def stop(self, sandbox, *args):
        """Stops the warden, and starts a command of hutch."""
        warden = warden_of(sandbox)
        os.kill(warden, signal.SIGSTOP)

        def go_on():
            with contextlib.suppress(ProcessLookupError):
                os.kill(warden, signal.SIGCONT)
        self.addCleanup(go_on)
        p = start(*args, sandbox, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        asked(sandbox, args[0])
        self.assertIsNone(p.poll())
        return p, go_on

    def test_a_suspend_waits_for_it(self):
        sandbox = self.create()
        self.sh(sandbox, "echo kept >/tmp/file")
        suspend, go_on = self.stop(sandbox, "suspend")
        go_on()
        self.assertEqual(suspend.wait(LONG), 0)
        self.assertEqual(self.ps()[sandbox]["state"], "suspended")
        self.say("resume", sandbox)
        self.assertEqual(self.sh(sandbox, "cat /tmp/file"), "kept\n")

    def test_a_snapshot_ends_with_it(self):
        sandbox = self.create()
        save, _ = self.stop(sandbox, "snapshot", "create")
        self.ended(hutch("rm", "-f", sandbox), 0)
        said = save.communicate(timeout=LONG)[1].decode()
        self.assertEqual(save.returncode, 125, said)
        self.assertRegex(said, "^hutch snapshot create: .*(ended|gone|closed)")
        self.assertEqual(self.saved(), set())
        self.nothing_is_left()


class InUse(MachineCase):
    """Removing what a VM uses: refused with the VM's name, or without an effect on the VM."""

    def test_a_snapshot(self):
        """A VM keeps the memory file of its snapshot open."""
        first = self.create()
        self.sh(first, "head -c 20000000 /dev/urandom >/dev/shm/x; sha256sum /dev/shm/x >/tmp/sum")
        name = self.snapshot(first)
        second = self.create("--snapshot", name)
        self.say("snapshot", "rm", name)
        self.assertFalse((SNAPSHOTS / name).exists())
        self.assertIn(f"no snapshot '{name}'", self.refused("create", "--snapshot", name, code=1))
        for _ in range(2):  # its own snapshots read the same file
            self.assertIn("OK", self.sh(second, "sha256sum -c /tmp/sum"))
            [third] = self.fork(second, 1)
            self.assertIn("OK", self.sh(third, "sha256sum -c /tmp/sum"))
            self.say("suspend", second)
            self.say("resume", second)

    def test_a_template(self):
        """The next VM makes another one."""
        sandbox = self.create()
        [template] = [row["id"] for row in self.json("snapshot", "ls", "--json") if self.json("receipt", "--json", sandbox)["facts"]["start"].endswith(row["id"])]
        self.say("snapshot", "rm", template)
        self.assertEqual(self.sh(sandbox, "ls / >/dev/null; echo alive"), "alive\n")
        self.assertEqual(self.out("echo", "another"), "another\n")

    def test_an_image(self):
        """The refusal names the user."""
        sandbox = self.create()
        said = self.refused("image", "rm", "base")
        self.assertIn(f"sandbox {sandbox} uses the image: hutch rm -f {sandbox}", said)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_a_sandbox_that_is_saved(self):
        """rm -f during a snapshot: the client gets an error, and a half snapshot is gone. A whole one
        may be there, if only the answer is missing."""
        sandbox = self.create()
        self.sh(sandbox, "head -c 30000000 /dev/urandom >/tmp/x; sync")
        before = set(os.listdir(SNAPSHOTS))
        save = start("snapshot", "create", sandbox, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(save.kill)
        eventually(lambda: set(os.listdir(SNAPSHOTS)) != before or save.poll() is not None, "the snapshot's directory")
        self.ended(hutch("rm", "-f", sandbox), 0)
        said = save.communicate(timeout=LONG)[1]
        if save.returncode != 0:
            self.assertRegex(said.decode(), "^hutch snapshot create: .*(ended|gone|closed)")
        self.nothing_is_left()
        self.ended(hutch("gc"), 0)
        whole = {row["id"] for row in self.json("snapshot", "ls", "--json")} - before
        self.assertLessEqual(set(os.listdir(SNAPSHOTS)) - before, whole)
        for name in whole:
            self.say("snapshot", "rm", name)


@as_root
class Unreadable(MachineCase):
    """Yama forbids every process to read the memory of another (kernel.yama.ptrace_scope is 3). The test
    mounts another /proc/sys/kernel, in the mount namespace of this suite."""

    def setUp(self):
        super().setUp()
        self.run_("true")  # there is a template
        with tempfile.TemporaryDirectory() as copy:
            subprocess.run(["cp", "-r", "--no-preserve=all", "/proc/sys/kernel/.", copy], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/proc/sys/kernel"], check=True)
            self.addCleanup(subprocess.run, ["umount", "/proc/sys/kernel"], check=True)
            subprocess.run(["cp", "-r", f"{copy}/.", "/proc/sys/kernel"], check=True)
        Path("/proc/sys/kernel/yama").mkdir(exist_ok=True)
        Path("/proc/sys/kernel/yama/ptrace_scope").write_text("3\n")

    def test_boots_and_is_not_saved(self):
        self.assertRegex(self.json("receipt", "--json", self.create())["facts"]["start"], "^template ", "an existing template")
        r = self.ended(hutch("create", "--memory", "320MiB", "--disk", "64MiB", env={"HUTCH_LOG": "info"}), 0)
        sandbox = r.stdout.decode().strip()
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.assertIn("the VM boots without a template: kernel.yama.ptrace_scope is 3", r.stderr.decode())
        self.assertEqual(self.json("receipt", "--json", sandbox)["facts"]["start"], "boot")
        for args in (("snapshot", "create"), ("fork",), ("suspend",)):
            self.assertIn("kernel.yama.ptrace_scope is 3, so the memory of a VM cannot be saved", self.refused(*args, sandbox))
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        [row] = [c for c in json.loads(hutch("doctor", "--json").stdout)["checks"] if c["id"] == "sec.ptrace"]
        self.assertEqual(row["state"], "warn")


class Wake(SandboxCase):
    """A suspended VM that wakes by requests (autoResume) does so for its owner only."""

    BAD = "e2b_" + "0" * 40

    def setUp(self):
        super().setUp()
        self.server = hutchd.Server("--default-agent", agent("wake", "extends: e2b-microvm\n"))
        self.addCleanup(self.server.stop)
        made = hutch("key", "create", "--name", "wake-other")
        self.other = self.ended(made, 0).stdout.decode().strip()
        body = {"templateID": "base", "timeout": 600, "autoPause": True, "autoResume": {"enabled": True}, "secure": True,
                "network": {"allowPublicTraffic": False}}
        status, self.box = self.server.api("POST", "/sandboxes", body)
        self.assertEqual(status, 201, self.box)
        self.name = self.box["sandboxID"]
        self.addCleanup(hutch, "rm", "-f", self.name)
        self.suspend()

    def suspend(self):
        self.assertEqual(self.server.api("POST", f"/sandboxes/{self.name}/pause", {})[0], 204)
        eventually(lambda: not named("hutch-keeper", "qemu-system-x86"), "the end of its processes")

    def ask(self, method, path, body=None, **fields):
        with contextlib.closing(self.server.connection()) as c:
            c.request(method, path, json.dumps(body) if body is not None else None,
                      {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in fields.items()}})
            answer = c.getresponse()
            answer.read()
            return answer.status

    def control(self):
        """Requests to the API that wake it, or change it."""
        return (("POST", f"/sandboxes/{self.name}/connect", {"timeout": 500}), ("POST", f"/sandboxes/{self.name}/resume", {"timeout": 500}),
                ("POST", f"/sandboxes/{self.name}/timeout", {"timeout": 600}), ("POST", f"/sandboxes/{self.name}/refreshes", {"duration": 600}),
                ("DELETE", f"/sandboxes/{self.name}", None), ("POST", f"/hutch/v1/sandboxes/{self.name}/resume", {}))

    def data(self, port=49983):
        return {"E2b-Sandbox-Id": self.name, "E2b-Sandbox-Port": str(port)}

    def sleeps(self):
        self.assertEqual(self.ps()[self.name]["state"], "suspended")
        self.assertEqual(named("hutch-keeper", "qemu-system-x86"), [])

    def records(self):
        return hutch("audit", "show", "--json", "-s", self.name).stdout.count(b"\n")

    def test_only_for_its_owner(self):
        before, files = self.records(), sorted(os.listdir(RUN / "sandboxes" / self.name))
        for key in ({}, {"X_API_Key": self.BAD}, {"X_API_Key": self.other}, {"X_API_Key": ""}):
            for method, path, body in self.control():
                with self.subTest(key=key, path=path):
                    self.assertIn(self.ask(method, path, body, **key), (401, 403, 404))
        for token in ({}, {"X-Access-Token": "0" * 64}, {"X-Access-Token": ""}, {"X-API-Key": self.other}, {"X-API-Key": self.server.key}):
            for port, path in ((49983, "/files?path=/etc/passwd"), (49983, "/health"), (8080, "/")):
                with self.subTest(token=token, port=port, path=path):
                    self.assertIn(self.ask("GET", path, **self.data(port), **token), (401, 403, 404, 502))
        self.sleeps()
        self.assertEqual(sorted(os.listdir(RUN / "sandboxes" / self.name)), files)
        self.assertEqual(self.records(), before)
        # The controls: the owner's token wakes it, and so does the owner's key.
        self.assertEqual(self.ask("GET", "/files?path=/etc/passwd", **self.data(), **{"X-Access-Token": self.box["envdAccessToken"]}), 200)
        self.assertEqual(self.ps()[self.name]["state"], "running")
        self.suspend()
        self.assertEqual(self.server.api("POST", f"/sandboxes/{self.name}/connect", {"timeout": 500})[0], 201)
        self.assertEqual(self.ps()[self.name]["state"], "running")
