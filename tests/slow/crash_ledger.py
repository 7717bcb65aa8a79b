# SPDX-License-Identifier: Apache-2.0
"""
Shared by crash.py's parts: running hutch, the ledger of existing objects, and the audit log, read
by the format in hutch-audit(5) and not by the code that wrote it.
"""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
from pathlib import Path

from waiting import LONG, eventually

PATIENCE = LONG  # for one command; far above what it takes
ERRORS = ("ENOSPC", "EMFILE", "ENOMEM", "EIO", "EINTR")
FOREVER = ("sleep", "4321")
LOG_MAX = 1 << 20  # then begin a new audit log: the time to verify grows with its size
GROUPS = Path("/sys/fs/cgroup")
RUN = Path(os.environ.get("HUTCH_RUN_DIR", "/nonexistent"))
STATE = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent"))
AUDIT = Path(os.environ.get("HUTCH_AUDIT_DIR", "/nonexistent"))
LOGS = AUDIT.with_name("logs")  # other audit logs, of scenes
ID = re.compile(r"[a-z][a-z0-9]{15}")


class Failure(Exception):
    pass


# ---- hutch ----
def hutch(*args, fault=None, env=None, prefix=(), timeout=PATIENCE):
    env = {**os.environ, **(env or {})}
    if fault:
        env["HUTCH_FAULT"] = fault
    try:
        r = subprocess.run([*prefix, env["HUTCH"], *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                           check=False, text=True, errors="replace")
    except subprocess.TimeoutExpired as e:
        raise Failure(f"hutch {' '.join(args)} (fault {fault}) did not end within {timeout} s: {e.stderr}") from e
    # hutch must never crash; kill -9 was requested, and 141 is a closed pipe.
    if r.returncode < 0 and r.returncode != -signal.SIGKILL or "Assertion" in r.stderr:
        raise Failure(f"hutch {' '.join(args)} (fault {fault}) crashed: {r.returncode} {r.stderr}")
    if r.returncode not in (0, -signal.SIGKILL) and not r.stderr and args[:2] != ("audit", "verify"):
        raise Failure(f"hutch {' '.join(args)} (fault {fault}) ended with {r.returncode} and said nothing")
    return r


def good(*args, **more):
    r = hutch(*args, **more)
    if r.returncode != 0:
        raise Failure(f"hutch {' '.join(args)} ended with {r.returncode}: {r.stderr}")
    return r.stdout


def ps(*args, **more):
    return {row["id"]: row for row in json.loads(good("ps", "--json", *args, **more))}


def warden_of(sandbox):
    from sandbox import warden_of as ask  # the module needs the environment
    return ask(sandbox)


# ---- the audit log ----
HEADER = 152
MAGIC = b"HAR1"
BEGIN, SEAL, TORN, DROPPED, CREATE, END = 1, 2, 4, 6, 16, 19


def records(path):
    """Yields the complete records of a file: (offset, kind, payload)."""
    data, at = path.read_bytes(), 0
    while at + HEADER <= len(data):
        magic, kind, _, n = struct.unpack_from(">4sHHI", data, at)
        if magic != MAGIC or at + HEADER + n > len(data):
            return
        yield at, kind, json.loads(data[at + HEADER:at + HEADER + n])
        at += HEADER + n


def host_files(log):
    return sorted(log.glob("host-*.log"))


def verify(log, what):
    """Returns the report of `hutch audit verify`; an invalid log is a failure."""
    r = hutch("audit", "verify", "--json", env={"HUTCH_AUDIT_DIR": str(log)})
    if r.returncode != 0:
        raise Failure(f"{what}: the audit log is not good: {r.stdout} {r.stderr}")
    report = json.loads(r.stdout)
    if not report["good"] or report["bad"]:
        raise Failure(f"{what}: the audit log is not good, with exit code 0: {report}")
    return report


def lives(log):
    """Returns the kinds of the host chain's records for each sandbox that began."""
    found = {}
    for file in host_files(log):
        for _, kind, payload in records(file):
            if "sandbox" in payload and (kind == BEGIN or payload["sandbox"] in found):
                found.setdefault(payload["sandbox"], []).append(kind)
    return found


def new_log(log=AUDIT):
    """Empties the log and makes its key."""
    for path in [*host_files(log), *log.glob("sandbox/*")]:
        path.unlink()
    good("audit", "key", env={"HUTCH_AUDIT_DIR": str(log)})


def audited(log, what, listed=tuple):
    """Checks that the log is valid and that each sandbox that began and is not listed has an end
    and a seal. Lists first, because a listed sandbox may be gone a moment later."""
    if not host_files(log):
        return None
    known = set(listed())
    report = verify(log, what)
    for sandbox, kinds in lives(log).items():
        if sandbox not in known and not {END, SEAL} <= set(kinds):
            raise Failure(f"{what}: sandbox {sandbox} began and is gone, and the audit log has no end or no seal of it: {kinds}")
    return report


# ---- the ledger ----
def tag(run_dir):
    st = os.stat(run_dir / "sandboxes")
    return f"-d{st.st_dev:x}i{st.st_ino:x}"


def names(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


class Ledger:
    """Existing objects, as lines. Only the suite's own processes are known by name."""

    def __init__(self):
        (RUN / "sandboxes").mkdir(parents=True, exist_ok=True, mode=0o700)
        for place in (AUDIT, LOGS, Path(os.environ["HUTCH_CONFIG_PATH"])):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.tags = [tag(RUN)]
        self.innocent = set()  # pids that a part has started itself
        self.before = set()
        self.before = self.look()

    def processes(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text()
                yield int(pid), stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]

    def look(self):
        lines = set()
        for pid, comm, state in self.processes():
            if pid in self.innocent:
                continue
            lines.add(f"process {pid} {comm} {state if state == 'Z' else ''}")
            for kind in names(f"/proc/{pid}/ns"):
                with contextlib.suppress(OSError):
                    lines.add(f"namespace {os.readlink(f'/proc/{pid}/ns/{kind}')}")
            # The mounts of every namespace.
            with contextlib.suppress(OSError):
                lines.update(f"mount {line.split(' - ')[0]}" for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
        lines.update(f"socket {line.split(maxsplit=6)[6]}" for line in Path("/proc/net/unix").read_text().splitlines()[1:])
        for top in {GROUPS, *GROUPS.glob("*/")}:
            lines.update(f"control group {top}/hutch/{name}" for name in names(top / "hutch") if name.endswith(tuple(self.tags)))
        for place in (RUN / "sandboxes", RUN / "ids", *(STATE / "images" / name for name in ("tmp", "trees", "names")),
                      Path(os.environ["TMPDIR"])):
            lines.update(f"file {place / name}" for name in names(place))
        # Ended sandboxes are kept until `gc --ended`; the two files beside them record when space
        # was made.
        lines.update(f"file {RUN / 'ended' / name}" for name in names(RUN / "ended") if name not in ("since", "trimmed"))
        # Files of the audit log are not leftovers: audited() checks them.
        for place, ours in ((AUDIT, r"lock|key|key\.pub|sandbox|host-\d{8}\.log"), (AUDIT / "sandbox", r"[a-z0-9]{16}-\d{8}\.log")):
            lines.update(f"file {place / name}" for name in names(place) if not re.fullmatch(ours, name))
        for place in ("/run/crun", f"{os.environ['XDG_RUNTIME_DIR']}/crun"):
            lines.update(f"state of crun {place}/{name}" for name in names(place) if ID.fullmatch(name))
        st = os.stat("/dev/null")  # a runtime may change its owner
        lines.add(f"/dev/null {st.st_uid}:{st.st_gid} {st.st_mode:o}")
        return lines

    def more(self, *kinds):
        return {line for line in self.look() - self.before if line.startswith(kinds or "")}

    def zero(self, what, *kinds, timeout=LONG):
        until(lambda: not self.more(*kinds), f"an end of all after {what}", timeout, also=lambda: sorted(self.more(*kinds)))


def until(test, what, timeout=LONG, **more):
    """Like eventually(), but a timeout is a failure of the case."""
    try:
        return eventually(test, what, timeout, **more)
    except AssertionError as e:
        raise Failure(str(e)) from e


def orphans_end(ledger, what, help_them=lambda: None):
    """Waits until processes without a warden end by themselves, without a hutch command; a user
    without control groups could not end them."""
    def ended():
        if not ledger.more("process") or any(map(has_warden, names(RUN / "sandboxes"))):  # it may still take its lock
            return True
        help_them()
        return False

    until(ended, f"an end of all after {what}", also=lambda: sorted(ledger.more("process")))


def has_warden(sandbox):
    try:
        return warden_of(sandbox) is not None
    except OSError:
        return False


def removed(ledger, what, env):
    """Removes all sandboxes; returns whether no process is left."""
    good("pool", "drain", env=env)
    for sandbox in ps(env=env):
        r = hutch("rm", "-f", sandbox, env=env)
        if r.returncode != 0 and sandbox in ps("-a", env=env):  # may end by itself
            raise Failure(f"{what}: {r.stderr}")
    return not ledger.more("process")


def tidy(ledger, what, log=AUDIT):
    """
    Cleans up after a case: ps and gc work, gc leaves live sandboxes alone, then everything is
    removed and the audit log is complete. A sandbox whose creator was killed becomes ready, or
    ends, a moment later.
    """
    env, alive = {"HUTCH_AUDIT_DIR": str(log)}, {}

    def look():
        good("pool", "drain", env=env)
        alive.clear()
        alive.update(ps(env=env))

    def settled():
        if any(map(has_warden, names(RUN / "sandboxes"))):  # the others must end by themselves
            look()
        return any(row["state"] in ("running", "paused", "suspended", "starting") for row in alive.values()) or \
            not ledger.more("process", "namespace", "mount", "socket")

    look()
    until(settled, f"an end of all after {what}, before gc", also=lambda: (alive, sorted(ledger.more())))
    took = json.loads(good("gc", "--ended", "--json", env=env))
    # A sandbox may have ended by itself since; gc then reports it as ended, not as dead.
    wrong = [i for i, row in alive.items() if row["state"] in ("running", "paused", "suspended") and i in took["dead"]]
    if wrong:
        raise Failure(f"{what}: gc took {wrong}, which lived")
    # Sandboxes that are still listed get their end later.
    audited(log, f"{what}, after gc", lambda: ps("-a", env=env))
    until(lambda: removed(ledger, what, env), f"an end of all after {what}", also=lambda: sorted(ledger.more("process")))
    good("gc", "--ended", env=env)
    ledger.zero(what)
    audited(log, what)
    if sum(f.stat().st_size for f in log.rglob("*.log")) > LOG_MAX:
        new_log(log)
