# SPDX-License-Identifier: Apache-2.0
"""
hutch-guest as PID 1 of real namespaces, driven by wire.py over its channel. For root, commands run
as other users. For an ordinary user, the namespace has one user, and tests that need a second one
are skipped.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import wire
from waiting import LONG, eventually

ROOT = os.geteuid() == 0
UID = 12345
NAMESPACES = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--uts", "--kill-child"]
if not ROOT:
    NAMESPACES[1:1] = ["--user", "--map-root-user"]

PASSWD = f"""root:x:0:0:root:{"/root" if ROOT else "HOME"}:/bin/sh
daemon:x:1:1::relative:/usr/sbin/nologin
broken:x:5:5
user:x:{UID}:{UID}::HOME:/bin/sh
other:x:{UID + 1}:{UID + 1}:::/bin/sh
odd\xff:x:{UID + 9}:{UID + 9}:::/bin/sh
"""
GROUP = f"""root:x:0:
user:x:{UID}:
team:x:{UID + 7}:other,user
"""
SETUP = f"""
mount -t tmpfs -o mode=755 none "$1" && mkdir "$1/w" "$1/w/home" "$1/small" "$1/plain" && chmod 1777 "$1/w" &&
	mount -t tmpfs -o mode=1777,size=1m none "$1/small" && mount -t ramfs -o mode=1777 none "$1/plain" || exit 90
[ "$2" = root ] && chown {UID}:{UID} "$1/w/home"
mount --bind "$3" /etc/passwd && mount --bind "$4" /etc/group || exit 91
[ -z "$5" ] || {{ mount --bind "$6" /etc/resolv.conf && ip link set lo up && echo "$5" > /proc/sys/net/ipv4/ip_local_port_range; }} || exit 92
shift 6
exec "$@"
"""
PROCESSES = """
import os
for p in sorted(filter(str.isdigit, os.listdir('/proc')), key=int):
    try:
        s = open(f'/proc/{p}/stat').read()
    except OSError:
        continue
    if int(p) != os.getpid() and '(hutch-standby)' not in s:
        print(p, s[s.rindex(')') + 2], s[s.index('(') + 1 : s.rindex(')')])
"""


def guest_path():
    path = os.environ.get("HUTCH_GUEST")
    return os.path.abspath(path) if path else None


def namespaces_work():
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False, timeout=LONG).returncode == 0


def environment():
    """LeakSanitizer works by ptrace, and no process may trace the guest."""
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class Guest:
    """
    A running guest. `dir` is a world-writable directory, `home` the home of the default user,
    `small` a file system of one megabyte, `plain` one without extended attributes. Only the guest
    sees their contents. With `ports` the guest has its own network namespace, and connections to it
    come from these ports.
    """

    def __init__(self, ports=""):
        self.top = tempfile.mkdtemp(prefix="hutch-guest-")
        os.chmod(self.top, 0o755)
        mount = os.path.join(self.top, "mnt")
        os.mkdir(mount)
        self.dir, self.home, self.small, self.plain = f"{mount}/w", f"{mount}/w/home", f"{mount}/small", f"{mount}/plain"
        Path(self.top, "passwd").write_text(PASSWD.replace("HOME", self.home), "latin-1")
        Path(self.top, "group").write_text(GROUP)
        Path(self.top, "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [*NAMESPACES, *(["--net"] if ports else []), "sh", "-c", SETUP, "sh", mount, "root" if ROOT else "user", f"{self.top}/passwd",
             f"{self.top}/group", ports, f"{self.top}/resolv.conf", guest_path(), "--channel", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        theirs.close()
        self.link = wire.Link(ours)

    def end(self, timeout=LONG):
        """Closes the channel. Returns the guest's exit status and its messages."""
        self.link.close()
        try:
            said = self.process.communicate(timeout=timeout)[1]
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.top, ignore_errors=True)
        return self.process.returncode, said.decode(errors="replace")


@unittest.skipUnless(guest_path(), "HUTCH_GUEST is not set")
@unittest.skipUnless(namespaces_work(), "no namespaces for this user on this machine")
class GuestCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.start()

    def start(self, greet=True, ports="", **hello):
        self.guest = Guest(ports)
        self.addCleanup(self.end, self.guest)
        self.link, self.dir = self.guest.link, self.guest.dir
        if greet:
            self.link.hello(**hello)

    def end(self, guest):
        """No test reports how a guest ended that exited on its own; print it here."""
        itself = guest.link.ended
        code, said = guest.end()
        if itself:
            print(f"# the guest had ended: {code}, {said!r}")

    def restart(self, **more):
        self.guest.end()
        self.start(**more)

    # ---- commands ----
    def run_(self, *argv, stdin=None, timeout=wire.TIMEOUT, **more):
        """Runs a command and waits for its end."""
        if stdin is not None:
            more["stdin"] = True
        ch = self.link.open("exec", argv=list(argv), **more)
        if stdin is not None and ch.wait_accepted() is not None:
            ch.send(stdin)
            ch.eof()
        ch.wait_closed(timeout)
        return ch

    def sh(self, script, **more):
        return self.run_("/bin/sh", "-c", script, **more)

    def ok(self, script, **more):
        """The output of a script, which must exit 0 and write nothing to stderr."""
        ch = self.sh(script, **more)
        self.assertEqual((ch.closed, ch.exit and ch.exit.get("code"), ch.out(2)), ({"code": 0}, 0, b""), script)
        return ch.out().decode()

    def python(self, script, **more):
        ch = self.run_("python3", "-c", script, **more)
        self.assertEqual((ch.closed["code"], ch.exit and ch.exit.get("code")), (0, 0), ch.out(2).decode())
        return ch.out().decode()

    # ---- files ----
    def op(self, op, path, data=None, **more):
        """Runs a file operation and waits for its end."""
        ch = self.link.open(op, path=path, **more)
        if op == "write" and ch.wait_accepted() is not None:
            try:
                ch.send(data)
                ch.eof()
            except BrokenPipeError:
                pass
        ch.wait_closed()
        return ch

    def code(self, *args, **more):
        return self.op(*args, **more).closed["code"]

    def read(self, path, **more):
        ch = self.op("read", path, **more)
        self.assertEqual(ch.closed["code"], 0, ch.closed)
        self.assertTrue(ch.streams[0].got_eof)
        return ch.out(0)

    def write(self, path, data, **more):
        ch = self.op("write", path, data, **more)
        self.assertEqual(ch.closed["code"], 0, ch.closed)
        return ch.entries()[0]

    # ---- waiting ----
    def processes(self):
        """(pid, state, name) of all processes in the sandbox, without this command and the
        standby for the next command."""
        return [line.split(" ", 2) for line in self.python(PROCESSES).splitlines()]

    def alone(self):
        """Waits until only the agent is left."""
        eventually(lambda: len(self.processes()) == 1, "the end of all but PID 1", also=self.processes)

    def gate(self):
        """A line of a script that lasts until open_gate()."""
        return f"until [ -e {self.dir}/gate ]; do sleep 0.05; done"

    def open_gate(self):
        self.write(f"{self.dir}/gate", b"")
