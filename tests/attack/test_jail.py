# SPDX-License-Identifier: Apache-2.0
"""
The VM jail, as root and as an ordinary user. tests/attack/cell.c tries, in QEMU's place, what a
QEMU taken over by its guest could reach. Also the receipt of the real QEMU, and its rows when a
layer is missing.

Controls: the same tries without a jail (in the test's own namespaces, so that the host is not
harmed), and in a jail that is not sealed.

JAIL and CELL are the programs.
"""
import contextlib
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from waiting import LONG as DEADLINE
from waiting import ended

MIB = 1 << 20
RAM = (64 + 2 + 80) * MIB  # a VM with 64 MiB for its programs: src/state/spec.h
NEVER = ("landlock", "apparmor", "kvm", "cgroup-cpu", "cgroup-memory", "cgroup-pids", "dial-guard", "keeper-locked", "audit")


def whose():
    """Returns the ids of the sandbox, as a warden passes them."""
    if os.geteuid() == 0:
        return [f"ids={1_900_000_000 + os.getpid() % 1000 * 65536}"]  # unique to this run
    for line in pathlib.Path("/etc/subuid").read_text().splitlines():
        name, first, _ = line.split(":")
        if name in (getpass.getuser(), str(os.getuid())):
            return ["ids=1", f"rootless={first}"]
    raise unittest.SkipTest("no subordinate ids")


class Jail:
    """A program in the jail; `fds` are passed on under their keys."""

    def __init__(self, *args, **fds):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(DEADLINE)
        fds.setdefault("channel", theirs.fileno())
        self.process = subprocess.Popen([os.environ["JAIL"], *whose(), *args, *(f"{k}={v}" for k, v in fds.items())],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        pass_fds=list(fds.values()),
                                        env={**os.environ, "HUTCH_LIBEXEC_DIR": os.path.dirname(os.environ["HUTCH_RAM_SO"])})
        theirs.close()
        word, _, pid = self.process.stdout.readline().partition(" ")
        self.pid = int(pid) if word == "started" else None

    def do(self, letter):
        self.process.stdin.write(letter)
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def receipt(self):
        return {row["name"]: row for row in json.loads(self.do("v"))["layers"]}

    def end(self):
        self.ours.close()
        self.process.communicate(timeout=DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def tries(link, victim):
    """Returns cell.c's results: {"open /usr": "ENOENT", ...}."""
    link.sendall(f"{victim}\n".encode())
    said = b""
    while not said.endswith(b"\nend: ok\n"):
        more = link.recv(65536)
        if not more:
            raise AssertionError(f"the probe has ended early: {said!r}")
        said += more
    return dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in said.decode().splitlines())


class Cell(unittest.TestCase):
    """Results of cell.c."""

    @classmethod
    def setUpClass(cls):
        cls.victim = subprocess.Popen(["sleep", "1000"])
        cls.addClassCleanup(cls.victim.wait)
        cls.addClassCleanup(cls.victim.kill)
        cls.hard = cls.inside(seal=True)

    @classmethod
    def inside(cls, seal):
        with Jail(f"program={os.environ['CELL']}") as jail:
            if jail.pid is None:
                raise AssertionError(jail.process.stderr.read())
            if seal:
                answer = jail.do("s")
                if answer != "sealed":
                    raise AssertionError(answer)
            return tries(jail.ours, cls.victim.pid)

    @classmethod
    def outside(cls):
        """Runs without a jail, in new namespaces as root. The pid namespace is that of the
        victim."""
        ours, theirs = socket.socketpair()
        ours.settimeout(DEADLINE)
        spaces = ["unshare", "--mount", "--net", "--ipc", "--uts"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        with ours, theirs:
            p = subprocess.Popen([*spaces, "bash", "-c", f'exec "$0" 3<&{theirs.fileno()} {theirs.fileno()}<&-', os.environ["CELL"]],
                                 pass_fds=[theirs.fileno()])
            theirs.close()
            seen = tries(ours, cls.victim.pid)
        p.wait(DEADLINE)
        return seen

    def test_nothing_is_reached(self):
        expected = {"descriptors": "0 1 2 3", "names in the root": "0", "hostname": "hutch", "capabilities": "0 0 0",
                    "bounding set": "0", "most descriptors": "256", "core": "0", "make a file": "EROFS", "signal": "ESRCH",
                    "limits of another": "ESRCH", "io_uring_setup": "ENOSYS", "clone3": "ENOSYS", "end": "ok"}
        for what, result in self.hard.items():
            if what in expected:
                self.assertEqual(result, expected[what], what)
            elif what.startswith("open ") or what == "above the root":
                self.assertEqual(result, "ENOENT", what)
            else:
                self.assertEqual(result, "EPERM", what)
        self.assertEqual(expected.keys() - self.hard.keys(), set())
        # A syscall of another architecture kills the process before it can report.
        self.assertNotIn("i386", self.hard)

    def test_control_without_a_jail(self):
        weak = self.outside()
        for what in ("open /usr", "open /etc/passwd", "open /proc/self/status", "open /dev/null", "above the root", "signal",
                     "hold", "socket unix", "socket inet", "socket netlink", "unshare user", "clone user", "mount", "chroot",
                     "sethostname", "become root", "i386"):
            self.assertEqual(weak[what], "ok", what)
            self.assertNotEqual(self.hard.get(what), "ok", what)
        for what in ("names in the root", "bounding set", "capabilities", "hostname", "most descriptors", "keyctl", "bpf",
                     "perf_event_open", "io_uring_setup", "open_tree", "setns", "execute memory"):
            self.assertNotEqual(weak[what], self.hard[what], what)

    def test_control_not_sealed(self):
        weak = self.inside(seal=False)
        for what in ("open /usr", "open /usr/bin/true", "open /program"):
            self.assertEqual(weak[what], "ok", what)
        self.assertNotEqual(weak["names in the root"], "0")
        # The rest of the host is missing even then.
        for what in ("open /etc/passwd", "open /dev/null", "open /sys/kernel"):
            self.assertEqual(weak[what], "ENOENT", what)

    def test_dies_with_who_started_it(self):
        with Jail(f"program={os.environ['CELL']}") as jail:
            self.assertTrue(os.path.exists(f"/proc/{jail.pid}"))
            jail.process.send_signal(signal.SIGKILL)
            ended(jail.pid)

    def test_what_cannot_be_executed(self):
        with tempfile.NamedTemporaryFile() as f, Jail(f"program={f.name}") as jail:
            self.assertIsNone(jail.pid)
            self.assertIn("cannot start QEMU in its jail: /program: Permission denied", jail.process.stderr.read())

    def test_what_is_not_there(self):
        with Jail("program=/nonexistent/program") as jail:
            self.assertIsNone(jail.pid)
            self.assertIn("cannot stat '/nonexistent/program'", jail.process.stderr.read())


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "QEMU is not installed")
class Machine(unittest.TestCase):
    """The real QEMU, waiting for a state that never comes: the whole jail without a guest."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        tmp = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.root, self.disk, self.state = tmp / "root", tmp / "disk", tmp / "state"
        for path, size in ((self.root, MIB), (self.disk, 4 * MIB), (self.state, 0)):
            with open(path, "wb") as f:
                f.truncate(size)

    def open(self, path, flags):
        fd = os.open(path, flags)
        self.stack.callback(os.close, fd)
        return fd

    def start(self, *args, memory=None, disk=None):
        """Starts QEMU and returns its first answer, which comes once the VM is set up (the
        greeting comes earlier)."""
        ours, theirs = socket.socketpair()
        self.stack.enter_context(ours)
        ours.settimeout(DEADLINE)
        if memory is None:
            memory = os.memfd_create("memory")
            self.stack.callback(os.close, memory)
            os.ftruncate(memory, RAM)
        jail = Jail(f"root={self.root}", "accel=tcg", "mib=64", f"size={4 * MIB}", *args, qmp=theirs.fileno(), memory=memory,
                    state=self.open(self.state, os.O_RDONLY), disk=self.open(disk or self.disk, os.O_RDWR))
        theirs.close()
        self.stack.callback(jail.end)
        if not jail.pid:
            return jail, jail.process.stderr.read()
        said = ours.recv(4096)
        if said:
            ours.sendall(b'{"execute":"qmp_capabilities"}\n')
        while said and b'{"return": {}}' not in said and (more := ours.recv(4096)):
            said += more
        return jail, said

    def test_every_row(self):
        jail, greeting = self.start()
        self.assertIn(b'{"QMP": {', greeting)
        for name, row in jail.receipt().items():
            # The files that QEMU keeps open are known once it is sealed.
            wanted = name not in NEVER and name not in ("masked-proc", "no-sysfs", "no-devices", "read-only-root")
            self.assertEqual(row["enforced"], wanted, row)
        self.assertEqual(jail.do("s"), "sealed")
        for name, row in jail.receipt().items():
            self.assertEqual(row["enforced"], name not in NEVER, row)
        self.assertEqual(jail.do("w"), "")

    def test_image_that_can_be_written(self):
        jail, _ = self.start(disk=self.root)
        row = jail.receipt()["read-only-root"]
        self.assertFalse(row["enforced"])
        self.assertEqual(row["seen"], "QEMU has the image's disk open for writing")

    def test_disk_that_is_too_large(self):
        jail, _ = self.start(f"size={MIB}")
        self.assertFalse(jail.receipt()["disk-quota"]["enforced"])

    def test_says_what_qemu_said(self):
        """A memory file that has not the VM's size is not mapped."""
        with tempfile.TemporaryFile() as f:
            f.truncate(RAM - MIB)
            jail, greeting = self.start(memory=f.fileno())
            self.assertEqual(greeting, b"")
            self.assertIn("unable to map backing store for guest RAM: Bad message", jail.do("w"))

    def test_without_an_image(self):
        self.root.unlink()
        _, complaint = self.start()
        self.assertIn("cannot open the image's disk", complaint)
