# SPDX-License-Identifier: Apache-2.0
"""
Shared by the sandbox tests: hutch as users run it, with the real engine, and the ledger.

The ledger lists everything that sandboxes hold on this host: processes, control groups, mounts,
loop devices, files, ids. Every test must leave it unchanged. run_as.py runs these tests and sets
the directories.
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from waiting import eventually

ROOT = os.geteuid() == 0
STATE = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent"))
RUN = Path(os.environ.get("HUTCH_RUN_DIR", "/nonexistent"))
CONFIG = Path(os.environ.get("HUTCH_CONFIG_PATH", "/nonexistent"))
ID = re.compile(r"[a-z][a-z0-9]{15}")
# Every sandbox is a VM, emulated on hosts without KVM.
MACHINE = os.environ.get("HUTCH_LEVEL") == "microvm"
ENGINE = os.environ.get("HUTCH_ENGINE") or "crun"  # the container engine
# The process that the host sees for a sandbox: PID 1 of a container, or QEMU.
BOX = "qemu-system-x86" if MACHINE else "hutch-guest"
# How much longer a VM may take than a container, because its CPU may be emulated. Every limit in
# seconds is multiplied by this.
PATIENCE = 5 if MACHINE else 1
# Far above the expected time, for busy hosts.
LONG = 300 if MACHINE else 120
# With limits on the command line: on many hosts an ordinary user has no control groups, and hutch
# refuses such limits.
LOOSE = () if ROOT else ("--best-effort",)
IDS_FIRST = 0x70010000  # for root's sandboxes
IDS = 65535
ENGINES = ("crun", "qemu-system-x86")
COMMS = ("hutch", "hutchd", "hutch-keeper", "hutch-guest", "hutch-tap", "hutch-filter", "newuidmap", "newgidmap")
# Writes this many bytes to a file and syncs it. Prints the error or "no", and the number of bytes
# written.
FILL = """
import errno, os, sys
n, most = 0, int(sys.argv[2])
try:
    with open(sys.argv[1], 'wb', buffering=0) as f:
        while n < most:
            n += f.write(os.urandom(65536))
        os.fsync(f.fileno())
    print('no', n)
except OSError as e:
    print(errno.errorcode[e.errno], n)
"""


def as_root(thing):
    """For tests that need root. For other users the test does not exist, so that none is
    skipped."""
    return thing if ROOT else None


def as_user(thing):
    return None if ROOT else thing


def in_machine(thing):
    return thing if MACHINE else None


def hutch(*args, timeout=LONG, env=None, **more):
    """Runs hutch to its end; stdin is `input`, or empty."""
    if "input" not in more:
        more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([os.environ["HUTCH"], *args], timeout=timeout, check=False, capture_output=True,
                          env={**os.environ, **(env or {})}, **more)


def start(*args, **more):
    """Starts hutch; the caller waits for it."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.DEVNULL)
    more.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen([os.environ["HUTCH"], *args], **more)


@contextlib.contextmanager
def host_yaml(text):
    """Sets the host's configuration for a moment."""
    file = CONFIG / "host.yaml"
    was = file.read_text() if file.exists() else None
    CONFIG.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    try:
        yield
    finally:
        if was is None:
            file.unlink()
        else:
            file.write_text(was)


NOW = "import sys, time\nfor line in sys.stdin: print(time.time(), flush=True)"


def clock_of(sandbox):
    """
    The minimum error of the sandbox's clock in seconds. A command that already runs answers:
    starting one takes so long that a clock that is a second slow would still fall between our two
    readings. The quickest of several answers counts.
    """
    times = []
    with start("exec", "-i", sandbox, "--", "python3", "-uc", NOW, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        for _ in range(5):
            before = time.time()
            p.stdin.write("\n")
            p.stdin.flush()
            inside, after = float(p.stdout.readline()), time.time()
            times.append((after - before, max(before - inside, inside - after, 0)))
        p.stdin.close()
    return min(times)[1]


# ---- processes ----
class Process:
    """A line of /proc."""

    def __init__(self, pid):
        self.pid = pid
        stat = Path(f"/proc/{pid}/stat").read_text()
        self.comm = stat[stat.index("(") + 1:stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2:].split()
        self.state, self.parent, self.born = fields[0], int(fields[1]), int(fields[19])
        status = Path(f"/proc/{pid}/status").read_text()
        self.uids = {int(x) for x in re.search(r"(?m)^Uid:(.*)", status)[1].split()}
        try:
            st = os.stat(f"/proc/{pid}/exe")
            self.exe = (st.st_dev, st.st_ino)
        except OSError:  # not for us to know
            self.exe = None

    def __str__(self):
        return f"process {self.pid} {self.comm}, started at {self.born}"


def found(pids):
    """The living ones among these processes."""
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            p = Process(int(pid))
            if p.state not in "ZX":
                yield p


def processes():
    return found(entry for entry in os.listdir("/proc") if entry.isdigit())


def programs():
    """The files that our processes run."""
    files = [os.stat(os.environ[name]) for name in ("HUTCH", "HUTCH_KEEPER", "HUTCH_GUEST", "HUTCH_TAP", "HUTCH_FILTER", "HUTCHD") if name in os.environ]
    return {(st.st_dev, st.st_ino) for st in files}


def subordinate():
    """The subordinate ids of our sandboxes, for an ordinary user."""
    name = pwd.getpwuid(os.getuid()).pw_name
    for line in Path("/etc/subuid").read_text().splitlines():
        who, first, count = line.split(":")
        if who in (name, str(os.getuid())):
            return range(int(first), int(first) + int(count))
    return range(0)


def below(p, mine):
    """Whether one of our programs is a near ancestor of it: other users may run crun on this
    host."""
    for _ in range(3):
        with contextlib.suppress(OSError, ValueError):
            p = Process(p.parent)
            if p.exe in mine:
                return True
    return False


def tag():
    """The suffix of our sandboxes' control group names: the identity of our run directory."""
    st = os.stat(RUN / "sandboxes") if (RUN / "sandboxes").is_dir() else None
    return f"-d{st.st_dev:x}i{st.st_ino:x}" if st else None


def grouped(p, end):
    """Whether it is in one of our control groups, even if its parent has ended."""
    with contextlib.suppress(OSError):
        return bool(end) and any(line.endswith(end) or f"{end}/" in line for line in Path(f"/proc/{p.pid}/cgroup").read_text().splitlines())
    return False


def our_processes():
    """Root sees which file a process runs. An ordinary user sees only its uid, and has its own
    subordinate ids."""
    mine, inside, end = programs(), None if ROOT else subordinate(), tag()
    for p in processes():
        if p.exe in mine or p.comm in ENGINES and (below(p, mine) or grouped(p, end) if ROOT else os.getuid() in p.uids):
            yield p
        elif not ROOT and (p.comm in COMMS and os.getuid() in p.uids or any(u in inside for u in p.uids)):
            yield p


def named(*names):
    return [p for p in our_processes() if p.comm in names]


def warden_of(sandbox):
    """The process that holds the lock, according to fcntl(2)."""
    with open(RUN / "sandboxes" / sandbox / "lock", "rb+") as f:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def children_of(pid, *names):
    return [p.pid for p in processes() if p.parent == pid and p.comm in names]


# ---- the ledger ----
def list_dir(path):
    try:
        return os.listdir(path)
    except OSError:  # missing, or ended meanwhile
        return []


def mounts():
    """The host's mounts, without those of other programs below /tmp."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        _, _, device, root, point, rest = line.split(" ", 5)
        if not point.startswith("/tmp/") or "hutch" in point:
            yield f"{device} {root} {point} {rest}"


def held(path):
    """Whether a process holds a lock on the file."""
    with open(path, "rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def groups():
    """Control groups of sandboxes in our run directory only."""
    top, end = Path("/sys/fs/cgroup"), tag()
    own = [top / line.split(":", 2)[2].lstrip("/") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for place in {above / name for above in {top, *top.glob("*/"), *own} for name in ("hutch", "hutch-keepers")}:
        with contextlib.suppress(OSError):
            for group in place.iterdir():
                if end and group.is_dir() and group.name.endswith(end):
                    yield group


def loops():
    """Loop devices of sandbox disks: their files are unnamed and below our state directory."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has just ended
            path = file.read_text().strip()
            if path.startswith(f"{STATE}/machine/disks/"):
                found.append(f"{file.parts[3]} {path}")
    return sorted(found)


def ledger():
    """A set of lines, one for each thing that sandboxes hold on this host."""
    lines = {str(p) for p in our_processes()}
    lines.update(f"control group {group}" for group in groups())
    lines.update(f"mount {line}" for line in mounts())
    lines.update(f"loop device {line}" for line in loops())
    lines.update(f"ids {name} are held" for name in list_dir(RUN / "ids") if held(RUN / "ids" / name))
    for sandbox in list_dir(RUN / "sandboxes"):
        # The sandbox's removal also removes command records and added rules.
        kept = [name for name in list_dir(RUN / "sandboxes" / sandbox) if not name.startswith(("cmd-", "widened"))]
        lines.update(f"file {sandbox}/{name}" for name in ["", *kept])
    for place in ("/run/crun", f"/run/user/{os.getuid()}/crun", f"{os.environ.get('XDG_RUNTIME_DIR')}/crun"):
        lines.update(f"state of crun {place}/{name}" for name in list_dir(place) if ID.fullmatch(name))
    # A runtime that gets the host's /dev/null as stdin would chown it to the sandbox's user.
    st = os.stat("/dev/null")
    lines.add(f"/dev/null {st.st_uid}:{st.st_gid} {st.st_mode:o}")
    return lines


def log_of(sandbox):
    """The log of its warden and keeper. The directory of an ending sandbox can move at any
    moment."""
    for place in ("sandboxes", "ended", "sandboxes"):
        try:
            return (RUN / place / sandbox / "log").read_text(errors="replace")
        except FileNotFoundError:
            pass
    raise FileNotFoundError(f"the log of {sandbox}")


def forget_ended():
    """Removes kept sandboxes that earlier tests left in ended/ on purpose."""
    for sandbox in list_dir(RUN / "ended"):
        if ID.fullmatch(sandbox):
            shutil.rmtree(RUN / "ended" / sandbox, ignore_errors=True)


def settle(before, timeout=LONG):
    """Ledger lines that are new since `before`; {} if they disappear within the time."""
    more = set()

    def over():
        nonlocal more
        more = ledger() - before
        return not more

    with contextlib.suppress(AssertionError):
        eventually(over, "an end", timeout)
    return more


# Limits in seconds for a clock that runs while a test prepares: the first limit that leaves enough
# time is used. A busy host retries with a longer one.
LIMITS = tuple(seconds * PATIENCE for seconds in (3, 15, 60, 240))


class SandboxCase(unittest.TestCase):
    """A test that leaves no trace on the host, without the help of a later command."""

    maxDiff = None

    def setUp(self):
        forget_ended()
        self.before = ledger()
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        left = settle(self.before)
        for sandbox in {line.split()[1].split("/")[0] for line in left if line.startswith("file")}:
            hutch("rm", "-f", sandbox)  # one failure must not fail the tests after it
        self.assertEqual(left, set(), "left behind")
        self.assertLessEqual({m for m in self.before if m.startswith(("mount", "/dev"))}, ledger(), "taken away")

    @contextlib.contextmanager
    def instead_of(self, role, program, tail):
        """Runs hutch with `program`, these bytes appended, as its guest or keeper. The ledger
        recognises our processes by their files."""
        variable = f"HUTCH_{role.upper()}"
        was, other = os.environ[variable], {"guest": "keeper", "keeper": "guest"}[role]
        with tempfile.TemporaryDirectory(dir=program.parent if os.geteuid() == 0 else None) as lib:
            os.chmod(lib, 0o755)
            copy = Path(lib) / f"hutch-{role}"
            copy.write_bytes(program.read_bytes() + tail)
            copy.chmod(0o755)
            os.symlink(os.environ[f"HUTCH_{other.upper()}"], Path(lib) / f"hutch-{other}")
            os.environ.update({variable: str(copy), "HUTCH_LIBEXEC_DIR": lib})
            try:
                yield
                self.nothing_is_left()
            finally:
                os.environ[variable] = was
                del os.environ["HUTCH_LIBEXEC_DIR"]

    # ---- running ----
    def ended(self, r, code):
        self.assertEqual(r.returncode, code, (r.stderr + r.stdout[-2000:]).decode(errors="replace"))
        return r

    def run_(self, *cmd, code=0, opts=(), **more):
        """hutch run --rm, which must end with `code`."""
        return self.ended(hutch("run", "--rm", *opts, "--", *cmd, **more), code)

    def out(self, *cmd, **more):
        """The output of a command, which must exit 0 and write nothing to stderr."""
        r = self.run_(*cmd, **more)
        self.assertEqual(r.stderr, b"")
        return r.stdout.decode()

    def refused(self, *args, code=125, **more):
        """The error message of a hutch command that must fail."""
        r = self.ended(hutch(*args, **more), code)
        said = r.stderr.decode()
        self.assertEqual(r.stdout, b"")
        self.assertRegex(said, r"(?m)^hutch ", "says who speaks")
        return said

    # ---- long-running sandboxes ----
    def create(self, *opts, **more):
        sandbox = create(*opts, **more)
        self.addCleanup(hutch, "rm", "-f", sandbox)
        return sandbox

    def exec_(self, sandbox, *cmd, code=0, opts=(), **more):
        return self.ended(hutch("exec", *opts, sandbox, "--", *cmd, **more), code)

    def sh(self, sandbox, script, **more):
        return self.exec_(sandbox, "sh", "-c", script, **more).stdout.decode()

    def python(self, sandbox, script, *args, **more):
        return self.exec_(sandbox, "python3", "-c", script, *args, **more).stdout.decode()

    def json(self, *args):
        return json.loads(self.ended(hutch(*args), 0).stdout)

    def ps(self, *opts):
        return {row["id"]: row for row in self.json("ps", "--json", *opts)}

    def inspect(self, sandbox):
        return self.json("inspect", "--json", sandbox)

    def gone(self, sandbox, reason):
        """Waits for its end, which must have this reason."""
        eventually(lambda: self.ps("-a")[sandbox]["state"] == "ended", f"the end of {sandbox}")
        self.assertEqual(self.inspect(sandbox)["end"]["reason"], reason)

    def first_in_time(self, attempt):
        """The first value of attempt(SECONDS) that is not None; None means that the clock ran
        out first."""
        for seconds in LIMITS:
            if (value := attempt(seconds)) is not None:
                return value
        self.fail(f"{LIMITS[-1]} s were not enough")

    def commands_in(self, sandbox):
        """Processes inside, without PID 1, its standby for the next command, kernel threads and
        this ps."""
        rows = self.sh(sandbox, "exec ps -eo pid=,ppid=,comm=,args=").splitlines()
        rows = [row.split(None, 3) for row in rows]
        kernel = "2" if MACHINE else None
        return [args for pid, parent, comm, args in rows if comm not in ("hutch-guest", "hutch-standby") and pid != "1"
                and kernel not in (pid, parent) and not args.startswith("ps -eo")]


def create(*opts, **more):
    r = hutch("create", *opts, **more)
    if r.returncode != 0 or not ID.fullmatch(r.stdout.decode().strip()):
        raise AssertionError(f"hutch create ended with {r.returncode}: {r.stdout} {r.stderr.decode()}")
    return r.stdout.decode().strip()


def agent(name, text=""):
    """Writes a policy file where hutch looks for agents, and returns its name."""
    (CONFIG / "agents").mkdir(parents=True, exist_ok=True)
    (CONFIG / "agents" / f"{name}.yaml").write_text(f"agent:\n  name: {name}\n  type: test\n{text}")
    return name


class SharedCase(SandboxCase):
    """Tests that share one existing sandbox and must leave it running."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.start = ledger()
        cls.sandbox = create(*cls.options)

    @classmethod
    def tearDownClass(cls):
        r = hutch("rm", "-f", cls.sandbox)
        if r.returncode != 0:
            raise AssertionError(f"hutch rm: {r.stderr.decode()}")
        if left := settle(cls.start):
            raise AssertionError(f"left behind: {left}")
