# SPDX-License-Identifier: Apache-2.0
"""User code is confined, the keeper cannot send invalid messages, and the guest ends cleanly."""

import fcntl
import os
import struct
import subprocess
import termios
import threading
import unittest
from pathlib import Path

import wire
from guest import ROOT, UID, GuestCase, guest_path
from waiting import LONG, eventually, quiet_for

SYSTEM = ["/usr", "/bin", "/lib", "/lib64"]


class TestConfinement(GuestCase):
    """Landlock on the policy's paths; each probe succeeds where it is allowed."""

    def setUp(self):
        pass

    def start_with(self, read=("/",), write=(), execute=("/",)):
        """Starts a guest with these paths; @ is its directory."""
        self.start(greet=False)
        at = [[p.replace("@", self.dir) for p in paths] for paths in (read, write, execute)]
        if not self.link.hello(*at).get("landlock"):
            self.skipTest("this kernel has no Landlock")

    def can(self, script):
        return self.sh(script.replace("@", self.dir) + " 2>/dev/null").exit["code"] == 0

    def test_write(self):
        self.start_with(write=["@/home"])
        self.assertTrue(self.can("cd @/home && echo 1 > f && mkdir d && mv f d/g && ln -s d s && rm -r d s"))
        self.ok(f"echo 1 > {self.dir}/home/x")
        for script in ("echo 1 > @/f", "mkdir @/d", "ln -s / @/s", "mkfifo @/p", "ln @/home/x @/x", "mv @/home/x @/x",
                       "cp @/home/x @/x", "touch @/x", ": > /etc/passwd"):
            self.assertFalse(self.can(script), script)
        self.assertEqual(self.code("write", f"{self.dir}/f", b"x"), wire.PERMISSION)
        self.assertEqual(self.code("mkdir", f"{self.dir}/d"), wire.PERMISSION)
        self.assertEqual(self.code("move", f"{self.dir}/home/x", target=f"{self.dir}/x"), wire.PERMISSION)
        self.assertEqual(self.code("write", f"{self.dir}/home/f", b"x"), 0)

    def test_write_by_a_script_that_calls_a_program(self):
        for write, can in (("@/home", False), ("@", True)):
            self.start_with(write=[write])
            script = f"#!/bin/sh\nenv sh -c 'cp /etc/group {self.dir}/f'\n"
            self.write(f"{self.dir}/home/script", script, mode=0o755)
            self.assertEqual(self.can("@/home/script"), can)

    def test_execute(self):
        self.start_with(write=["@"], execute=SYSTEM)
        self.ok(f"cp /bin/true {self.dir}/true")
        self.write(f"{self.dir}/script", "#!/bin/sh\necho ran\n", mode=0o755)
        self.assertTrue(self.can("/bin/true"))
        for path in (f"{self.dir}/true", f"{self.dir}/script"):
            self.assertEqual(self.run_(path).closed["code"], wire.PERMISSION)
            self.assertFalse(self.can(path))
            self.assertFalse(self.can(f"env sh -c {path}"))
        self.assertEqual(self.sh(f"sh {self.dir}/script").out(), b"ran\n")  # a shell reads it as data

    def test_execute_is_what_stops_it(self):
        """The positive control of the test above."""
        self.start_with(write=["@"], execute=[*SYSTEM, "@"])
        self.ok(f"cp /bin/true {self.dir}/true; env sh -c {self.dir}/true")
        self.assertEqual(self.run_(f"{self.dir}/true").exit["code"], 0)

    def test_read(self):
        self.start_with(read=[*SYSTEM, "@"], write=["@/home"], execute=SYSTEM)
        self.assertFalse(self.can("cat /etc/passwd >/dev/null"))
        self.assertFalse(self.can("ls /etc >/dev/null"))
        self.assertTrue(self.can("ls @ >/dev/null"))
        self.assertEqual(self.code("read", "/etc/passwd"), wire.PERMISSION)
        self.assertEqual(self.code("list", "/etc", depth=1), wire.PERMISSION)
        self.assertEqual(self.code("watch", "/etc"), wire.PERMISSION)

    def test_what_every_program_needs(self):
        self.start_with(write=["@/home"])
        self.ok("echo x > /dev/null; head -c 5 /dev/zero > /dev/null; head -c 5 /dev/urandom > /dev/null")
        self.ok("cat /proc/self/status > /dev/null")
        ch = self.link.open("exec", argv=["sh", "-c", "echo x > /dev/tty; stty size < /dev/tty"], columns=80, rows=24)
        ch.wait_closed()
        self.assertEqual(ch.exit["code"], 0, ch.out())
        if os.path.isdir("/dev/shm"):
            self.python("import multiprocessing; multiprocessing.Lock()")

    def test_nothing_named_nothing_allowed(self):
        self.start_with(read=[], write=[], execute=[])
        self.assertEqual(self.run_("/bin/true").closed["code"], wire.PERMISSION)
        self.assertEqual(self.code("read", "/etc/passwd"), wire.PERMISSION)

    def test_a_path_that_does_not_exist(self):
        self.start_with(write=["/nonexistent/x", "@/home"])
        self.ok(f"echo 1 > {self.dir}/home/f")


DESCRIPTORS = "import os\nprint([f for f in range(1000) if os.path.exists(f'/proc/self/fd/{f}')])"
SIGNALS = """
import os
for s in [9, 19, 15, 11, 17, 1, 2, 34, 64] * 3:
    try:
        os.kill(1, s)
    except PermissionError:
        pass
print('sent')
"""
MEMORY = """
import os
def attempt(what, f):
    try:
        print(what, f())
    except OSError:
        pass
for name in ('mem', 'environ', 'auxv', 'maps', 'smaps', 'syscall', 'stack', 'io', 'fd/3'):
    attempt(name, lambda: open(f'/proc/1/{name}', 'rb').read(10))
    for flags in (os.O_WRONLY, os.O_RDWR):
        attempt('open ' + name, lambda: os.open(f'/proc/1/{name}', flags))
for name in ('fd', 'map_files', 'cwd', 'root'):
    attempt(name, lambda: os.listdir(f'/proc/1/{name}'))
for name in ('exe', 'cwd', 'fd/3'):
    attempt('link ' + name, lambda: os.readlink(f'/proc/1/{name}'))
attempt('oom', lambda: os.open('/proc/1/oom_score_adj', os.O_WRONLY))
"""
TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0), libc.ptrace(0x4206, 1, 0, 0)) # ATTACH, SEIZE
fd = libc.syscall(434, 1, 0) # pidfd_open
print(fd >= 0, libc.syscall(438, fd, 3, 0)) # pidfd_getfd of the channel
b = ctypes.create_string_buffer(8)
iov = (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)
print(libc.process_vm_readv(1, iov, 1, iov, 1, 0), libc.process_vm_writev(1, iov, 1, iov, 1, 0))
"""
OWN_CHILD = """
import os, subprocess
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
print(len(os.listdir(f'/proc/{p.pid}/fd')) > 0, len(open(f'/proc/{p.pid}/maps').read()) > 0)
os.kill(p.pid, 9)
print(p.wait())
"""
LIMITS = """
import resource
try:
    resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))
    print('set')
except PermissionError:
    print('no')
"""


class TestIsolation(GuestCase):
    """User code cannot affect the agent: neither as the default user, nor as root without
    capabilities."""

    def setUp(self):
        self.start(greet=False)
        self.link.hello(write=[self.dir])  # as in every policy: not /proc

    def each(self, script):
        return [(self.run_("python3", "-c", script, user=user), user) for user in ([None, "root"] if ROOT else [None])]

    def test_descriptors(self):
        for ch, user in self.each(DESCRIPTORS):
            self.assertEqual(ch.out(), b"[0, 1, 2]\n", (user, ch.out(2)))
        ch = self.link.open("exec", argv=["python3", "-c", DESCRIPTORS], columns=80, rows=24)
        ch.wait_closed()
        self.assertEqual(ch.out(), b"[0, 1, 2]\r\n")

    def test_no_privileges(self):
        for ch, user in self.each("print(open('/proc/self/status').read())"):
            status = dict(line.split(":\t", 1) for line in ch.out().decode().splitlines() if ":\t" in line)
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigBlk"):
                self.assertEqual(int(status[name], 16), 0, (user, name))
            self.assertEqual(status["NoNewPrivs"], "1")
            self.assertEqual(int(status["SigIgn"], 16) & ~(1 << 12 | 1 << 24), 0)  # python ignores PIPE and XFSZ

    def test_signals(self):
        for ch, user in self.each(SIGNALS):
            self.assertEqual(ch.out(), b"sent\n", (user, ch.out(2)))
            self.link.ping(os.getpid())
            self.ok("true")

    def test_memory(self):
        for ch, user in self.each(MEMORY):
            said = ch.out().splitlines()
            if user == "root" or not ROOT:
                # Root can see that a file descriptor exists, but not where it leads.
                said = [line for line in said if not line.startswith(b"fd [")]
            self.assertEqual((said, ch.out(2)), ([], b""), user)

    def test_trace(self):
        for ch, user in self.each(TRACE):
            self.assertEqual(ch.out(), b"-1 -1\nTrue -1\n-1 -1\n", (user, ch.out(2)))

    def test_an_ordinary_process_can_be_reached(self):
        """The positive control of the tests above."""
        self.assertEqual(self.python(OWN_CHILD), "True True\n-9\n")

    @unittest.skipUnless(ROOT, "in a user namespace of one, everybody is the same user")
    def test_limits_of_the_agent(self):
        for ch, user in self.each(LIMITS):
            self.assertEqual(ch.out(), b"no\n", (user, ch.out(2)))

    @unittest.skipUnless(ROOT, "a set-user-ID program needs a second user")
    def test_set_user_id_gains_nothing(self):
        self.ok(f"cp /usr/bin/id {self.dir}/id; chmod 4755 {self.dir}/id", user="other")
        self.assertEqual(self.ok(f"{self.dir}/id -u"), f"{UID}\n")

    def test_workers_are_out_of_reach(self):
        ch = self.link.open("watch", path=self.dir)
        ch.wait_accepted()
        pid = [p[0] for p in self.processes() if p[0] != "1"][0]
        ch = self.run_("python3", "-c", MEMORY.replace("/proc/1/", f"/proc/{pid}/"))
        self.assertEqual([line for line in ch.out().splitlines() if not line.startswith(b"fd [")], [])


def frame(kind, channel=0, sub=0, payload=b"", zero=0, length=None):
    return wire.HEADER.pack(len(payload) if length is None else length, channel, kind, sub, zero) + payload


TOKEN = b"12345678"
RUN = wire.encode(argv=["sleep", "1000"])
ILLEGAL = {
    "oversize": [frame(wire.DATA, 2, 0, length=65537)],
    "oversize open": [frame(wire.OPEN, 2, 1, length=1048577)],
    "unknown type": [frame(14)],
    "asleep": [frame(wire.ASLEEP)],
    "woken before it sleeps": [frame(wire.SLEEP) + frame(wire.WAKE)],
    "to sleep twice": [frame(wire.SLEEP), frame(wire.SLEEP)],
    "type 0": [frame(0)],
    "zero bytes": [frame(wire.PING, 0, 0, TOKEN, zero=1)],
    "second hello": [frame(wire.HELLO, 0, 0, wire.encode(version=1))],
    "short ping": [frame(wire.PING, 0, 0, TOKEN[1:])],
    "sub of a ping": [frame(wire.PING, 0, 1, TOKEN)],
    "open of an odd number": [frame(wire.OPEN, 3, 1, RUN)],
    "open of 0": [frame(wire.OPEN, 0, 1, RUN)],
    "unknown operation": [frame(wire.OPEN, 2, 99, RUN)],
    "open without argv": [frame(wire.OPEN, 2, 1, b"")],
    "unknown field": [frame(wire.OPEN, 2, 1, RUN + b"\xc8\0\0\0")],
    "field out of order": [frame(wire.OPEN, 2, 1, RUN + wire.encode(version=1))],
    "field cut": [frame(wire.OPEN, 2, 1, RUN + b"\x08\0\0\x05x")],
    "nul in argv": [frame(wire.OPEN, 2, 1, wire.encode(argv=[b"a\0b"]))],
    "columns alone": [frame(wire.OPEN, 2, 1, wire.encode(argv=["true"], columns=1))],
    "depth 65": [frame(wire.OPEN, 2, 5, wire.encode(path="/", depth=65))],
    "opened twice": [frame(wire.OPEN, 2, 1, RUN), frame(wire.OPEN, 2, 1, RUN)],
    "number goes back": [frame(wire.OPEN, 8, 1, RUN), frame(wire.OPEN, 4, 1, RUN)],
    "data on nothing": [frame(wire.DATA, 2, 0, b"x")],
    "data before accept": [frame(wire.OPEN, 2, 1, RUN), frame(wire.DATA, 2, 0, b"x")],
    "accept by the keeper": [frame(wire.OPEN, 2, 1, RUN), frame(wire.ACCEPT, 2, 0, wire.encode(pid=1))],
    "close of nothing": [frame(wire.CLOSE, 2, 0, wire.encode(code=0))],
}
ILLEGAL_FIRST = {
    "ping": frame(wire.PING, 0, 0, TOKEN),
    "open": frame(wire.OPEN, 2, 1, RUN),
    "wake": frame(wire.WAKE),
    "other version": frame(wire.HELLO, 0, 0, wire.encode(version=2)),
    "noise": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}
ILLEGAL_OPEN = {
    "empty data": (wire.DATA, 0, b""),
    "stream 3": (wire.DATA, 3, b"x"),
    "no credit": (wire.CREDIT, 1, b"\0\0\0\0"),
    "too much credit": (wire.CREDIT, 1, (wire.CREDIT_MAX - wire.CREDIT_START + 1).to_bytes(4, "big")),
    "long credit": (wire.CREDIT, 1, b"\0\0\0\0\1"),
    "eof with payload": (wire.EOF, 0, b"x"),
    "unknown message": (wire.MSG, 9, b""),
    "message of the guest": (wire.MSG, 3, b""),
    "signal 65": (wire.MSG, 1, wire.encode(number=65)),
    "open again": (wire.OPEN, 1, RUN),
}


class TestLife(GuestCase):
    def test_refuses_to_run_by_hand(self):
        r = subprocess.run([guest_path()], capture_output=True, check=False, timeout=LONG)
        self.assertEqual(r.returncode, 2)
        self.assertIn(b"PID 1", r.stderr)
        for args in (["--x"], ["--channel"], ["--not-init", "--channel", "-1"], ["--not-init", "--channel", "99"]):
            r = subprocess.run([guest_path(), *args], capture_output=True, check=False, timeout=LONG)
            self.assertNotEqual(r.returncode, 0, args)

    def test_hello(self):
        self.assertIn("hutch-guest", self.link.guest["agent"])
        self.restart(hostname="sandbox-7")
        self.assertEqual(self.ok("uname -n"), "sandbox-7\n")

    def test_requests_right_behind_hello(self):
        self.restart(greet=False)
        self.link.hello(wait=False)
        self.assertEqual(self.ok("echo early"), "early\n")

    def test_the_end_of_the_channel_is_everybodys(self):
        marker = f"31{os.getpid()}.5"
        self.link.open("exec", argv=["sh", "-c", f"setsid sleep {marker} & sleep {marker}"])
        eventually(lambda: self.running(marker) == 2, "the start of both")
        self.assertEqual(self.guest.end(), (0, ""))
        eventually(lambda: self.running(marker) == 0, "the end of everybody")

    @staticmethod
    def running(marker):
        n = 0
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                n += marker.encode() in Path("/proc", p, "cmdline").read_bytes().split(b"\0")
            except OSError:
                pass
        return n

    def ends(self, what):
        """The link ends, and the guest reports the reason."""
        self.link.wait_ended()
        code, said = self.guest.end()
        self.assertEqual(code, 1, (what, said))
        self.assertIn("protocol", said)

    def test_illegal_frames(self):
        for what, frames in ILLEGAL.items():
            self.restart()
            self.link.raw(b"".join(frames))
            self.ends(what)

    def test_illegal_frames_before_hello(self):
        for what, first in ILLEGAL_FIRST.items():
            self.restart(greet=False)
            self.link.raw(first)
            self.ends(what)

    def test_illegal_frames_on_an_open_channel(self):
        for what, (kind, sub, payload) in ILLEGAL_OPEN.items():
            self.restart()
            ch = self.link.open("exec", argv=["sleep", "1000"], stdin=True)
            ch.wait_accepted()
            self.link.frame(kind, ch.number, sub, payload)
            self.ends(what)

    def test_data_beyond_credit(self):
        ch = self.link.open("exec", argv=["sleep", "1000"], stdin=True)
        ch.wait_accepted()
        with self.assertRaises((OSError, EOFError)):
            for _ in range(200):
                self.link.frame(wire.DATA, ch.number, 0, b"x" * 65536)
            self.link.wait(lambda: False, "the end")
        self.ends("data beyond credit")

    def taken(self):
        """Whether the guest has read all bytes sent: see unix(7), SIOCOUTQ."""
        return struct.unpack("i", fcntl.ioctl(self.link.sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0] == 0

    def test_bytes_in_small_pieces(self):
        self.restart(greet=False)
        data = frame(wire.HELLO, 0, 0, wire.encode(version=1, read=["/"], execute=["/"]))
        for i in range(len(data)):
            self.link.raw(data[i : i + 1])
            if i % 7 == 0:
                eventually(self.taken, "what reads it")
        self.link.wait(lambda: self.link.guest, "HELLO")
        self.link.ping(1)

    def test_a_keeper_that_does_not_read(self):
        """Answers accumulate up to a limit, then the guest stops reading; nothing is lost."""
        done = threading.Event()
        n = 300_000

        def flood():
            self.link.raw(frame(wire.PING, 0, 0, TOKEN) * n)
            done.set()

        with self.link.lock:  # the reading thread stops here
            t = threading.Thread(target=flood, daemon=True)
            t.start()
            quiet_for(2, done.is_set, "all was taken")
        t.join(LONG)
        self.link.wait(lambda: len(self.link.pongs) == n, "all answers")
        self.ok("true")
