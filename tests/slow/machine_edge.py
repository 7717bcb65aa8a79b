# SPDX-License-Identifier: Apache-2.0
"""Parts of machine_memory.py: unusual sizes, copies of full VMs, and saves that fail."""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import machine_fill as fill
import sandbox
from waiting import eventually

FULL = 230  # MiB of 256


# ---- sizes ----
def size(text):
    options = ("--memory", text, "--disk", "64MiB", "--cpus", "1")
    for begin in fill.WAYS.values():
        with fill.boxes() as made:
            box = begin(made, *options)
            out = fill.good("exec", box, "--", "echo", "here")
            fill.require(out == "here", f"{begin.__name__}: '{out}'")


# ---- copies of a VM with full memory ----
@contextlib.contextmanager
def full():
    with fill.boxes() as made:
        box = made.create(*fill.SMALL)
        fill.hold(box, FULL)
        yield made, box


def pieces(box):
    """The number of mappings of the VM's snapshot. Beyond 16,384 the pieces would include holes."""
    return sum("/memory" in line for line in Path(f"/proc/{fill.qemu(box)}/maps").read_text().splitlines())


def forks_of_forks():
    counts = []
    with full() as (made, box):
        for _ in range(3):
            [child] = made.fork(box, 1)
            fill.whole(child)
            fill.whole(box)
            counts.append(pieces(child))
            box = child
    fill.require(max(counts) < 4096, f"{counts} mappings")
    return f"{counts} mappings"


def two_suspends():
    with full() as (_, box):
        for _ in range(2):
            fill.good("suspend", box)
            fill.good("resume", box)
            fill.whole(box)


def try_fork(made, box):
    """Returns the fork, or None if the VM is being saved for another one."""
    try:
        return made.fork(box, 1)[0]
    except AssertionError as e:
        fill.require("a snapshot is being made" in str(e), str(e))
        return None


def two_at_once():
    """Forks a VM twice and a fork of it, all at once. A VM is saved for one fork at a time."""
    with full() as (made, box), concurrent.futures.ThreadPoolExecutor(5) as pool:
        [fork] = made.fork(box, 1)
        new = list(pool.map(lambda one: try_fork(made, one), (box, box, fork)))
        fill.require((new[0] or new[1]) and new[2], f"no fork: {new}")
        list(pool.map(fill.whole, filter(None, (box, fork, *new))))
        return f"{new.count(None)} of 3 refused"


# ---- saves that fail ----
def home():
    return Path(os.environ["HUTCH_STATE_DIR"]) / "machine/snapshots"


def entries():
    return sorted(os.listdir(home()))


def child_of(warden, known):
    """The pid of a new child of the warden, or None."""
    new = set(Path(f"/proc/{warden}/task/{warden}/children").read_text().split()) - known
    return int(new.pop()) if new else None


def writes_memory(before):
    """Whether a snapshot that is being made has memory already."""
    for name in set(os.listdir(home())) - set(before):
        with contextlib.suppress(FileNotFoundError):
            if (home() / name / "memory").stat().st_blocks > 0:
                return True
    return False


def kill_saver(box, command, before, late):
    warden = sandbox.warden_of(box)
    known = set(Path(f"/proc/{warden}/task/{warden}/children").read_text().split())
    p = sandbox.start(*command, box, stderr=subprocess.PIPE)
    saver = eventually(lambda: child_of(warden, known), "the saving process", pause_max=0.002)
    if late:
        eventually(lambda: writes_memory(before), "the memory in the snapshot", pause_max=0.002)
    os.kill(saver, signal.SIGKILL)
    said = p.communicate(timeout=fill.PATIENCE)[1].decode()
    fill.require(p.returncode == 125, f"{command} ended with {p.returncode}: {said}")
    return said.strip()


def saver_is_killed():
    with full() as (_, box):
        before = entries()
        for command in (("snapshot", "create"), ("fork",), ("suspend",)):
            for late in (False, True):
                said = kill_saver(box, command, before, late)
                fill.require(entries() == before, f"left behind after {command}: {set(entries()) - set(before)}")
                fill.whole(box)
        fill.good("suspend", box)
        fill.good("resume", box)
        fill.whole(box)
        return f"the last message was '{said}'"


@contextlib.contextmanager
def small_file_system():
    """The files of VMs, without the snapshots, on a file system of 600 MiB."""
    state = home().parent
    with tempfile.NamedTemporaryFile(dir=state.parent) as f, tempfile.TemporaryDirectory(dir=state.parent) as aside:
        f.truncate(600 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", f.name], check=True)
        subprocess.run(["mount", "-o", "loop", f.name, aside], check=True)
        os.rmdir(f"{aside}/lost+found")
        for path in state.iterdir():
            if path.name != "snapshots":
                subprocess.run(["cp", "-a", "--sparse=always", path, aside], check=True)
        shutil.copystat(state, aside)
        subprocess.run(["mount", "--move", aside, state], check=True)
        try:
            yield
        finally:
            eventually(lambda: subprocess.run(["umount", state], check=False).returncode == 0, "that nothing uses the file system")


def no_space():
    """Leaves 100 MiB for a snapshot of a VM that uses 230 MiB."""
    said = []
    with small_file_system(), full() as (_, box):
        before, free = entries(), os.statvfs(home())
        with tempfile.TemporaryFile(dir=home().parent) as f:
            os.posix_fallocate(f.fileno(), 0, free.f_bavail * free.f_frsize - (100 << 20))
            left = os.statvfs(home()).f_bfree - 2048  # blocks; the VM may write to its disk
            for command in (("snapshot", "create"), ("fork",), ("suspend",)):
                r = sandbox.hutch(*command, box, timeout=fill.PATIENCE)
                said.append(r.stderr.decode().strip())
                fill.require(r.returncode == 125 and entries() == before and os.statvfs(home()).f_bfree >= left,
                             f"{command} ended with {r.returncode} ({said[-1]}), and left {set(entries()) - set(before)}")
                fill.whole(box)
        fill.require("No space left on device" in sandbox.log_of(box), f"the log does not say why: {sandbox.log_of(box)}")
    return f"the last message was '{said[-1]}'"
