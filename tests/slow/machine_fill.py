# SPDX-License-Identifier: Apache-2.0
"""
VMs for machine_memory.py, and programs that fill their memory. Call run_as.prepare() first: the
modules of tests/integration need the environment.
"""

import contextlib

import sandbox
from memory import CHECK, FILL, HELD, HOLD
from waiting import eventually

PATIENCE = 1800  # seconds for one command: 4 GiB, emulated on a busy host
SMALL = ("--memory", "256MiB", "--disk", "64MiB", "--cpus", "1")


def good(*args, env=None, timeout=PATIENCE):
    r = sandbox.hutch(*args, timeout=timeout, env=env)
    if r.returncode != 0:
        raise AssertionError(f"hutch {' '.join(args)[:80]} ended with {r.returncode}: {r.stderr.decode()[-2000:]}")
    return r.stdout.decode().strip()


def require(condition, said):
    if not condition:
        raise AssertionError(said)


class Boxes:
    """Sandboxes that end together."""

    def __init__(self):
        self.ids = []

    def create(self, *options, env=None):
        self.ids.append(good("create", *options, env=env))
        return self.ids[-1]

    def fork(self, box, n):
        new = good("fork", "-n", str(n), box).split()
        self.ids += new
        return new

    def end(self):
        while self.ids:
            sandbox.hutch("rm", "-f", self.ids.pop(), timeout=PATIENCE)


@contextlib.contextmanager
def boxes():
    made = Boxes()
    try:
        yield made
    finally:
        made.end()


def qemu(box):
    [pid] = sandbox.children_of(sandbox.warden_of(box), "qemu-system-x86")
    return pid


# ---- ways to begin ----
def clone(made, *options):
    return made.create(*options)


def fork(made, *options):
    return made.fork(made.create(*options), 1)[0]


def resumed(made, *options):
    box = made.create(*options)
    good("suspend", box)
    good("resume", box)
    return box


def booted(made, *options):
    return made.create(*options, env={"HUTCH_TEMPLATES": "off"})


WAYS = {"a clone": clone, "a fork": fork, "a resumed VM": resumed, "a booted VM": booted}


# ---- programs ----
def fill(box, size, disk):
    """Fills 90 % of `size` MiB, and of a disk of 256 MiB."""
    memory, on_disk = size * 9 // 10, 230 if disk else 0
    out = good("exec", box, "--", "python3", "-c", FILL + CHECK + "print('whole')", str(memory), str(on_disk))
    require(out == "whole", f"the program printed '{out}'")
    return f"{memory} MiB{f', {on_disk} MiB on disk' if disk else ''}"


def checks(box):
    """The pid of the program of hold() and the number of its good checks; [] before it has filled
    its memory."""
    return sandbox.hutch("exec", box, "--", "cat", HELD, timeout=PATIENCE).stdout.decode().split()


def hold(box, memory):
    """Starts a program that fills `memory` MiB and holds them."""
    job = good("exec", "-d", box, "--", "python3", "-c", HOLD, str(memory), "0")
    eventually(lambda: checks(box), f"the memory of {job}", PATIENCE, pause_max=1)


def whole(box):
    """The program of hold() checks its memory, here or in a copy of the VM."""
    pid, n = checks(box)
    good("exec", box, "--", "kill", "-USR1", pid)
    eventually(lambda: checks(box)[1] != n, f"the check of {box}", PATIENCE, pause_max=1)
    require(checks(box)[1] == str(int(n) + 1), f"the memory of {box} has changed")
