# SPDX-License-Identifier: Apache-2.0
"""
Operations on VMs for machine_kill.py, requested from hutch or from hutchd, and the processes that
take part. Call run_as.prepare() first: the modules of tests/integration need the environment.
"""

import collections
import contextlib
import http.client
import json
import os
import signal
import threading
import time
from pathlib import Path

import hutchd
import sandbox
from waiting import LONG as PATIENCE  # for one command, on a busy host
from waiting import eventually

AGENT = "struck"
POLICY = "extends: e2b-microvm\nresources:\n  memory: 128MiB\n  disk: 64MiB\n  cpus: 1\n"
OPTIONS = ("--agent", AGENT)
LOOK_S = 0.02


class Failure(Exception):
    pass


def good(*args, env=None):
    r = sandbox.hutch(*args, timeout=PATIENCE, env=env)
    if r.returncode != 0:
        raise Failure(f"hutch {' '.join(args)} ended with {r.returncode}: {r.stderr.decode()}")
    return r.stdout.decode().strip()


def snapshots():
    return {one["id"]: one for one in json.loads(good("snapshot", "ls", "--json"))}


def home():
    return Path(os.environ["HUTCH_STATE_DIR"]) / "machine" / "snapshots"


# ---- operations ----
class Operation:
    """The preparation and the operation under attack: a hutch command, and a request to hutchd
    if there is one."""

    env = {}
    parts = ("hutch", "warden", "keeper", "qemu", "hutchd", "job")

    def prepare(self, env=None):
        return ()

    def command(self, *_):
        return ("create", *OPTIONS)

    def request(self, *_):
        return "/sandboxes", {"templateID": "base", "timeout": 600}


class Boot(Operation):
    env = {"HUTCH_TEMPLATES": "off"}


class Clone(Operation):
    """A clone that verifies the template, as the first one after a boot of the host."""

    def prepare(self, env=None):
        for path in (Path(os.environ["HUTCH_STATE_DIR"]) / "machine/snapshots").glob("*/verified"):
            path.unlink()
        return ()


class Template(Operation):
    """The first VM of its kind, which makes the template."""

    parts = ("hutch", "maker", "warden", "keeper", "qemu", "hutchd", "job")

    def prepare(self, env=None):
        for key, one in snapshots().items():
            if one.get("kind") == "template":
                good("snapshot", "rm", key)
        return ()


class Running(Operation):
    """An operation on a running VM. The process that saves it gets this environment."""

    def prepare(self, env=None):
        return (good("create", *OPTIONS, env=env),)


class Pause(Running):
    parts = ("hutch", "warden", "keeper", "qemu")  # hutchd suspends instead

    def command(self, box):
        return ("pause", box)


class Resume(Running):
    parts = (*Pause.parts, "hutchd")

    def prepare(self, env=None):
        [box] = super().prepare(env)
        good("pause", box)
        return (box,)

    def command(self, box):
        return ("resume", box)

    def request(self, box):
        return f"/sandboxes/{box}/resume", {"timeout": 600}


class Suspend(Running):
    def command(self, box):
        return ("suspend", box)

    def request(self, box):
        return f"/sandboxes/{box}/pause", {}


class Wake(Running):
    """Resumes a suspended VM."""

    def prepare(self, env=None):
        [box] = super().prepare()
        good("suspend", box)
        return (box,)

    def command(self, box):
        return ("resume", box)

    def request(self, box):
        return f"/sandboxes/{box}/resume", {"timeout": 600}


class Snapshot(Running):
    def command(self, box):
        return ("snapshot", "create", box)

    def request(self, box):
        return f"/sandboxes/{box}/snapshots", {}


class Fork(Running):
    def command(self, box):
        return ("fork", box)

    def request(self, box):
        return f"/sandboxes/{box}/fork", {"count": 1, "timeout": 600}


class Restore(Operation):
    def prepare(self, env=None):
        box = good("create", *OPTIONS)
        saved = good("snapshot", "create", box)
        good("rm", "-f", box)
        return (saved,)

    def command(self, saved):
        return ("create", *OPTIONS, "--snapshot", saved)

    def request(self, saved):
        return "/sandboxes", {"templateID": saved, "timeout": 600}


OPERATIONS = {"boot": Boot(), "template": Template(), "clone": Clone(), "pause": Pause(), "resume": Resume(), "suspend": Suspend(),
              "wake": Wake(), "snapshot": Snapshot(), "fork": Fork(), "restore": Restore()}


class ByHutch:
    """An operation performed by a hutch command."""

    first = "hutch"

    def __init__(self, op, args):
        self.child = sandbox.start(*op.command(*args), env={**os.environ, **op.env})

    def pid(self):
        return self.child.pid if self.child.poll() is None else -1

    def runs(self):
        return self.child.poll() is None

    def kill(self):
        self.child.kill()

    def end(self):
        """Returns its exit status."""
        try:
            return f"exit {self.child.wait(PATIENCE)}"
        finally:
            self.child.kill()
            self.child.wait()


class ByHutchd:
    """An operation requested from a hutchd."""

    first = "hutchd"

    def __init__(self, op, args):
        self.server = hutchd.Server("--default-agent", AGENT, role="admin", env=op.env)
        self.said = "no answer"
        self.thread = threading.Thread(target=self.ask, args=op.request(*args))
        self.thread.start()

    def ask(self, path, body):
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = self.server.api("POST", path, body)
            self.said = f"status {status}" if status < 400 else f"status {status} {answer}"

    def pid(self):
        return self.server.process.pid

    def runs(self):
        return self.thread.is_alive()

    def kill(self):
        self.server.kill()

    def end(self):
        """Restarts a killed hutchd and checks that it answers."""
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            raise Failure("hutchd does not answer")
        if self.server.process.poll() is not None:
            self.server.start()
        self.server.stop()
        return self.said


# ---- processes that take part ----
def cast(first):
    """Returns {part: [process]} of the running processes. `first` is the process that got the
    request."""
    ours = list(sandbox.our_processes())
    keepers = {p.pid for p in ours if p.comm == "hutch-keeper"}
    found = collections.defaultdict(list)
    for p in ours:
        if p.comm == "hutch":
            found["hutch" if p.pid == first else "maker"].append(p)
        elif p.comm == "hutchd":
            found["hutchd" if p.pid == first else "job"].append(p)
        elif p.comm == "hutch-keeper":
            found["keeper" if p.parent in keepers else "warden"].append(p)
        elif p.comm == "qemu-system-x86":
            found["qemu"].append(p)
    return found


def windows(op):
    """Returns how long the operation takes undisturbed, and {part: [first seen, last seen]},
    over both ways to request it."""
    seen, took, began_with = {}, 0.0, set()
    for way in (ByHutch, ByHutchd) if "hutchd" in op.parts else (ByHutch,):
        args = op.prepare()
        began_with = {p.pid for parts in cast(-1).values() for p in parts}
        work = way(op, args)
        began = time.monotonic()

        def look(work=work, began=began, began_with=began_with):
            if not work.runs():
                return True
            at = time.monotonic() - began
            for part, who in cast(work.pid()).items():
                if who and part in op.parts:
                    seen.setdefault(part, [0.0 if who[0].pid in began_with else at, at])[1] = at
            return False

        eventually(look, f"the end of {type(op).__name__}", pause_max=LOOK_S)
        took = max(took, time.monotonic() - began)
        seen[work.first] = [0.0, time.monotonic() - began]
        said = work.end()
        if said != "exit 0" and not said.startswith("status 2"):
            raise Failure(f"{type(op).__name__} goes wrong by itself: {said}")
        yield_back()
    return took, seen


def kill(p):
    """Kills by descriptor, because the pid may have been reused."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(p.pid)
        try:
            if sandbox.Process(p.pid).born == p.born:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                return True
        except (FileNotFoundError, ProcessLookupError):
            pass
        finally:
            os.close(fd)
    return False


# ---- cleanup ----
def yield_back():
    """Ends all sandboxes and removes all snapshots."""
    for row in json.loads(good("ps", "-a", "--json")):
        r = sandbox.hutch("rm", "-f", row["id"])
        if r.returncode != 0 and b"no sandbox" not in r.stderr:
            raise Failure(f"hutch rm: {r.stderr.decode()}")
    for key, one in snapshots().items():
        if one.get("kind") == "saved":
            good("snapshot", "rm", key)
