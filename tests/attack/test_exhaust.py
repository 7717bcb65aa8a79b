# SPDX-License-Identifier: Apache-2.0
"""
Rows 51 to 65: exhausting resources. The kernel refuses a sandbox more than its limit of the
resources it counts for each sandbox; resources of the whole host (terminals, disks, device nodes,
crash handlers) are out of its reach. tests/integration/test_sandbox_bombs.py measures bombs against
a neighbour. Run by run_as.py, as root and as an ordinary user.
"""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys

from sandbox import BOX, MACHINE, LOOSE, RUN, SandboxCase, SharedCase, as_root, children_of, hutch, start, warden_of
from waiting import LONG, eventually, quiet_for, without_error

# Allocates memory of one kind up to a number of MiB and prints "all" if it got it.
TAKE = """
import ctypes, mmap, os, socket, sys
kind, most = sys.argv[1], int(sys.argv[2]) << 20
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
CHUNK = 1 << 20
keep = []
def fill(fd):
    os.set_blocking(fd, False)
    n = 0
    try:
        while True:
            n += os.write(fd, bytes(65536))
    except BlockingIOError:
        return n
def anonymous():
    keep.append(mmap.mmap(-1, CHUNK))
    keep[-1][:] = bytes(CHUNK)
    return CHUNK
def memfd():
    keep.append(os.memfd_create('x'))
    return os.write(keep[-1], bytes(CHUNK))
def pipes():
    keep.extend(os.pipe())
    return fill(keep[-1])
def sockets():
    keep.extend(socket.socketpair())
    return fill(keep[-1].fileno())
def segments():
    ctypes.memset(libc.shmat(libc.shmget(0, CHUNK, 0o1600), None, 0), 1, CHUNK)
    return CHUNK
taken = 0
while taken < most:
    taken += globals()[kind]()
print('all')
"""
# Looks up missing names, each of which the kernel caches.
FORGET = """
import os
for i in range(150000):
    try:
        os.stat('/tmp/' + 'n' * 200 + str(i))
    except FileNotFoundError:
        pass
"""
# Creates processes or threads that stay, prints how many it got and which error stopped it, and
# ends them.
MANY = """
import errno, os, signal, sys, threading, time
most, pids, threads, why = int(sys.argv[2]), [], 0, 'no'
end = threading.Event()
threading.stack_size(65536)
while len(pids) + threads < most:
    try:
        if sys.argv[1] == 'threads':
            threading.Thread(target=end.wait).start()
            threads += 1
            continue
        pid = os.fork()
    except (OSError, RuntimeError):  # Python does not tell the error of a thread
        why = 'refused'
        break
    if pid == 0:
        signal.pause()
    pids.append(pid)
print(why, len(pids) + threads)
end.set()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""
# Keeps the number of processes at the limit; all of them ignore SIGTERM. The first one reports when
# fork fails.
FOREVER = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
first = os.getpid()
while True:
    try:
        os.fork()
    except OSError:
        if os.getpid() == first:
            print('full', flush=True)
            first = 0
"""
ZOMBIES = """
import os
for _ in range(100):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os._exit(0)  # a child of nobody, dead at once
        os._exit(0)
print('made')
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
TERMINALS = """
import errno, os, sys
held = []
try:
    while len(held) < int(sys.argv[1]):
        held.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
    print('all', flush=True)
except OSError as e:
    print(len(held), errno.errorcode[e.errno], flush=True)
sys.stdin.read()
"""
# Watches the six devices with inotify and prints the number of open events at end of input.
WATCH = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
for name in sys.argv[1:]:
    assert libc.inotify_add_watch(fd, name.encode(), 0x20) > 0
print('watching', flush=True)
sys.stdin.read()
try:
    print(len(os.read(fd, 1 << 20)) // 16)
except BlockingIOError:
    print(0)
"""
DEVICES = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
# Sets a limit to several values and prints the results and the limit.
CORE = """
import ctypes, errno, json, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(number, *[ctypes.c_ulong(a) for a in args])
    return 'ok' if r == 0 else errno.errorcode[ctypes.get_errno()]
zero = (ctypes.c_ulong * 2)(0, 0)
at = ctypes.addressof(zero)
said = []
for high in (0, 1 << 32):
    said += [call(160, 4 | high, at), call(302, 0, 4 | high, at, 0)]
print(json.dumps([said, resource.getrlimit(resource.RLIMIT_CORE)]))
"""
SYNC = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
print('ok' if libc.syncfs(-1) == 0 else errno.errorcode[ctypes.get_errno()])
"""


@as_root
class Memory(SandboxCase):
    """Row 52. An ordinary user has a limit only with delegated control groups; the receipt shows
    that."""

    def test_every_kind_of_memory_is_counted(self):
        """The control is a sandbox with a higher limit. docs/THREAT-MODEL.md covers TCP buffers."""
        limit = "128MiB" if MACHINE else "48MiB"  # includes the guest's kernel
        small, large = self.create(*LOOSE, "--memory", limit), self.create(*LOOSE, "--memory", "512MiB")
        for kind in ("anonymous", "memfd", "pipes", "sockets", "segments"):
            with self.subTest(kind=kind):
                r = hutch("exec", small, "--", "python3", "-c", TAKE, kind, "100")
                self.assertEqual((r.returncode, r.stdout), (137, b""), r.stderr)
                self.assertEqual(self.python(large, TAKE, kind, "100"), "all\n")
                self.assertIn(f"memory limit of {limit} reached", r.stderr.decode())
        self.assertEqual(self.inspect(small)["state"], "running")
        self.assertGreaterEqual(self.inspect(small)["met"]["memory"]["killed"], 5)
        self.assertEqual(self.inspect(large)["met"]["memory"]["killed"], 0)
        if MACHINE:  # all its memory is allocated at start
            return
        # The segments still exist and still count, and the sandbox still runs.
        self.assertLessEqual(self.inspect(small)["usage"]["memory"], 48 << 20)

    def test_what_the_kernel_remembers_is_counted(self):
        """
        Row 62. 150,000 names take over 60 MiB; the kernel reclaims them under memory pressure and
        with the sandbox's group. On a busy host it may reclaim them too late and kill the program
        for its limit instead, which also shows that they count.
        """
        small, large = self.create(*LOOSE, "--memory", "48MiB"), self.create(*LOOSE, "--memory", "512MiB")
        self.assertIn(hutch("exec", small, "--", "python3", "-c", FORGET).returncode, (0, 137))
        self.python(large, FORGET)
        self.assertLessEqual(self.inspect(small)["usage"]["memory"], 48 << 20)
        self.assertGreater(self.inspect(large)["usage"]["memory"], 48 << 20)


class Processes(SandboxCase):
    def test_processes_and_threads_are_counted(self):
        """Row 51. Counted by a control group, or without one by the user namespace. The control
        is a sandbox with a higher limit."""
        small, large = self.create(*LOOSE, "--pids", "40"), self.create(*LOOSE, "--pids", "400")
        for kind in ("processes", "threads"):
            with self.subTest(kind=kind):
                why, n = self.python(small, MANY, kind, "100").split()
                self.assertEqual(why, "refused")
                self.assertLess(int(n), 40)
                self.assertGreater(int(n), 20)
                self.assertEqual(self.python(large, MANY, kind, "100"), "no 100\n")
                eventually(lambda: self.commands_in(small) == [], "their end")

    def test_the_limit_is_for_all_users_inside_together(self):
        sandbox = self.create(*LOOSE, "--pids", "40")
        held = start("exec", "-i", "-u", "root", sandbox, "--", "python3", "-c",
                     MANY.replace("print(", "print('held', flush=True); sys.stdin.read(); print("), "processes", "25",
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(held.stdout.readline(), b"held\n")
        for user in ("user", "12345"):
            # The killed processes of the user before count until they have ended.
            r = without_error(lambda u=user: self.exec_(sandbox, "python3", "-c", MANY, "processes", "25", opts=["-u", u]), AssertionError, "room")
            why, n = r.stdout.decode().split()
            self.assertEqual(why, "refused")
            self.assertLess(int(n), 15)
        held.communicate(b"", timeout=LONG)

    def test_a_bomb_that_goes_on_is_ended(self):
        """Also row 64: rm works although all processes ignore SIGTERM."""
        sandbox = self.create(*LOOSE, "--pids", "64", "--cpus", "1")
        bomb = start("exec", sandbox, "--", "python3", "-c", FOREVER, stdout=subprocess.PIPE)
        self.assertEqual(bomb.stdout.readline(), b"full\n")
        self.ended(hutch("rm", "-f", sandbox), 0)
        bomb.communicate(timeout=LONG)

    def test_zombies_are_reaped(self):
        sandbox = self.create()
        self.assertEqual(self.python(sandbox, ZOMBIES), "made\n")
        eventually(lambda: self.sh(sandbox, "ps -eo stat= | grep -c ^Z; true") == "0\n", "the end of all zombies")

    def test_control_zombies_are_seen(self):
        said = self.out("python3", "-c", """
import os, subprocess
for _ in range(3):
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and still there
print(subprocess.run(['ps', '-eo', 'stat='], capture_output=True).stdout.count(b'Z'))""")
        self.assertEqual(said, "3\n")

    def test_signals_end_at_the_sandbox(self):
        """Signals sent to all processes, by root and by a user. Control: another command of the
        same sandbox receives them."""
        sandbox = self.create()
        outside = subprocess.Popen(["sleep", "4321"])
        self.addCleanup(outside.wait)
        self.addCleanup(outside.kill)
        for user in ("root", "user"):
            other = start("exec", "-u", user, sandbox, "--", "sh", "-c", "echo ready; exec sleep 4321", stdout=subprocess.PIPE)
            self.assertEqual(other.stdout.readline(), b"ready\n")
            hutch("exec", "-u", user, sandbox, "--", "sh", "-c", "kill -9 -1; kill -9 1 2 3")
            other.communicate(timeout=LONG)
            self.assertEqual(other.returncode, 137, user)
            self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        self.assertIsNone(outside.poll())

    @as_root
    def test_what_is_stopped_is_ended(self):
        """Rows 65 and 173: rm ends a sandbox whose PID 1 and keeper are stopped. Control: after
        SIGCONT they work."""
        sandbox = self.create()
        warden = warden_of(sandbox)
        parts = children_of(warden, "hutch-keeper", BOX)
        self.assertEqual(len(parts), 2)
        for pid in parts:
            os.kill(pid, signal.SIGSTOP)
        waiting = start("exec", sandbox, "--", "echo", "late", stdout=subprocess.PIPE)
        quiet_for(0.5, lambda: waiting.poll() is not None, "an answer of those who are stopped")
        for pid in parts:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(waiting.communicate(timeout=LONG)[0], b"late\n")
        for pid in parts:
            os.kill(pid, signal.SIGSTOP)
        self.ended(hutch("rm", "-f", sandbox), 0)


class Records(SandboxCase):
    def size(self, sandbox):
        return sum(p.stat().st_blocks * 512 for p in (RUN / "sandboxes" / sandbox).iterdir() if not p.is_socket())

    def test_output_that_is_recorded_has_a_limit(self):
        """Rows 11 and 56: a limit for each command and for all commands together. The end of the
        output is kept."""
        sandbox = self.create()
        for _ in range(3):
            handles = [self.sh_detached(sandbox, "echo first; head -c 40000000 /dev/zero; echo last") for _ in range(3)]
            for handle in handles:
                self.ended(hutch("wait", handle), 0)
                self.assertLess(self.size(sandbox), 66 << 20)
        said = self.ended(hutch("logs", handles[-1]), 0).stdout
        self.assertLess(len(said), 20 << 20)
        self.assertTrue(said.endswith(b"last\n"))

    def test_control_what_is_short_is_there_as_a_whole(self):
        sandbox = self.create()
        handle = self.sh_detached(sandbox, "echo first; head -c 1000000 /dev/zero; echo last")
        self.ended(hutch("wait", handle), 0)
        self.assertEqual(self.ended(hutch("logs", handle), 0).stdout, b"first\n" + bytes(1000000) + b"last\n")

    def sh_detached(self, sandbox, script):
        return self.exec_(sandbox, "sh", "-c", script, opts=["-d"]).stdout.decode().strip()


class Everybodys(SharedCase):
    """Resources that the kernel has once for the whole host."""

    def hold(self, sandbox, script, *args):
        p = start("exec", "-i", sandbox, "--", "python3", "-c", script, *map(str, args), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(p.communicate)
        return p, p.stdout.readline().decode().strip()

    def test_terminals(self):
        """The kernel has 4,096 for all, of which 1,024 are reserved for the host."""
        p, said = self.hold(self.sandbox, TERMINALS, 5000)
        self.assertEqual(said, "128 ENOSPC")
        other = self.create()
        _, said = self.hold(other, TERMINALS, 100)
        self.assertEqual(said, "all")
        p.communicate(timeout=LONG)

    def test_control_terminals_are_there_for_many(self):
        p = subprocess.Popen([sys.executable, "-c", TERMINALS, "200"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(p.communicate(timeout=LONG)[0], b"all\n")

    def test_disks_are_not_written_out(self):
        """Row 60. syncfs(2) with an invalid descriptor succeeds: the filter answers without
        calling the kernel. On the host it fails."""
        self.assertEqual(self.python(self.sandbox, SYNC), "ok\n")
        file = "/dev/null" if MACHINE else "/dev/hutch-guest"
        self.assertEqual(self.sh(self.sandbox, f"sync && sync -f {file} && echo done"), "done\n")
        self.assertEqual(subprocess.check_output([sys.executable, "-c", SYNC]), b"EBADF\n")

    def test_crashes_are_nobodys_business(self):
        """
        Row 159. A crash leaves no core file and does not start the host's handler (core_pattern
        with a pipe), which runs at every limit except 1. Setting the limit to 0 seems to work, also
        with high bits that the kernel ignores.
        """
        said, limit = json.loads(self.python(self.sandbox, CORE))
        self.assertEqual(said, ["ok"] * 4)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        # A VM's kernel has no handler: there the limit is 0.
        self.assertEqual(limit, [0 if MACHINE else min(1, hard) if hard != resource.RLIM_INFINITY else 1] * 2)
        self.exec_(self.sandbox, "sh", "-c", "cd /tmp; kill -SEGV $$", code=139)
        self.assertEqual(self.sh(self.sandbox, "ls /tmp /workspace | grep -c core; true"), "0\n")
        self.assertEqual(self.sh(self.sandbox, "ulimit -c 0 && ulimit -n 64 && ulimit -n"), "64\n")

    def test_control_the_limit_of_core_files_can_be_set_on_the_host(self):
        said, limit = json.loads(subprocess.check_output([sys.executable, "-c", CORE]))
        self.assertEqual((said[0], said[1], limit), ("ok", "ok", [0, 0]))

    @as_root
    def test_devices_are_its_own(self):
        """A sandbox can neither watch nor lock the devices of the host and of other sandboxes.
        Control: it sees its own use."""
        watch, said = self.hold(self.sandbox, WATCH, *DEVICES)
        self.assertEqual(said, "watching")
        other = self.create()
        for name in DEVICES:
            with open(name, "rb"):
                pass
            self.sh(other, f"head -c 1 {name} | wc -c")
        self.assertEqual(watch.communicate(timeout=LONG)[0], b"0\n")
        watch, said = self.hold(self.sandbox, WATCH, *DEVICES)
        self.sh(self.sandbox, "for d in " + " ".join(DEVICES) + "; do head -c 1 $d; done | wc -c")
        self.assertGreaterEqual(int(watch.communicate(timeout=LONG)[0]), len(DEVICES))
        lock, said = self.hold(self.sandbox, """
import fcntl, sys
held = open('/dev/null', 'rb')
fcntl.flock(held, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()""")
        self.assertEqual(said, "held")
        with open("/dev/null", "rb") as f:  # other processes of the host may lock it for a moment
            without_error(lambda: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB), BlockingIOError, "a lock on the host's device")
        with self.assertRaises(AssertionError):  # the control: the same lock, taken inside
            self.python(self.sandbox, "import fcntl; fcntl.flock(open('/dev/null', 'rb'), fcntl.LOCK_EX | fcntl.LOCK_NB)")
        lock.communicate(timeout=LONG)
