# SPDX-License-Identifier: Apache-2.0
"""
Rounds of machine_kill.py: one operation, one kill -9, and a check of the result. A round first
picks the process to kill, each part with the same probability, and then the moment: any time during
which that part ran in an undisturbed operation.
"""

import collections
import contextlib
import json
import random
import time
from pathlib import Path

import sandbox
from machine_ops import OPERATIONS, OPTIONS, PATIENCE, ByHutch, ByHutchd, Failure, cast, good, home, kill, snapshots, windows, yield_back
from waiting import eventually

LATE = 1.1  # latest moment of a kill, as a factor of the part's usual end
SOON = 0.3  # seconds; used if nothing was measured


# ---- when ----
class Usual:
    """The times of undisturbed operations. Without `measured` none is known, and every kill
    comes within SOON."""

    def __init__(self, measured):
        self.took, self.seen = {}, {}
        good("run", "--rm", *OPTIONS, "--", "true")  # makes everything that is made only once
        for name, op in OPERATIONS.items() if measured else ():
            self.took[name], self.seen[name] = windows(op)
        print("# seconds: " + ", ".join(f"{name} {s:.1f}" for name, s in self.took.items()), flush=True)

    def moment(self, name, part):
        first, last = self.seen.get(name, {}).get(part, (0.0, SOON))
        return random.uniform(first, max(first, last) * LATE)


# ---- the kill ----
def strike(work, part, delay):
    """Kills a process of that part at that moment or as soon as one runs. Returns the moment, or
    None if there was none until the end."""
    began = time.monotonic()
    eventually(lambda: not work.runs() or time.monotonic() - began >= delay, f"{delay} s, or the end", pause_max=0.005)

    def struck():
        """Returns ("yes", when), ("over", None), or None for not yet."""
        running = work.runs()
        if part == work.first and work.pid() > 0:
            work.kill()
            return "yes", time.monotonic() - began
        who = cast(work.pid())[part]
        if who and kill(random.choice(who)):
            return "yes", time.monotonic() - began
        return None if running else ("over", None)

    return eventually(struck, f"a {part}", pause_max=0)[1]


# ---- leftovers ----
def is_frozen(p):
    """Frozen by a freezer of version 1: a killed process dies once it is thawed; without its
    warden the next hutch command does that."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{p.pid}/cgroup").read_text().splitlines():
            _, kind, group = line.split(":", 2)
            if kind == "freezer":
                return Path(f"/sys/fs/cgroup/freezer{group}/freezer.state").read_text().strip() != "THAWED"
    return False


def orphans(before):
    """Returns processes of ours without a live warden."""
    wardens = set()
    for name in sandbox.list_dir(sandbox.RUN / "sandboxes"):
        with contextlib.suppress(OSError):
            wardens.add(sandbox.warden_of(name))
    every = {p.pid: p for p in sandbox.processes()}

    def is_kept(p):
        while p:
            if p.pid in wardens:
                return True
            p = every.get(p.parent)
        return False
    return [str(p) for p in sandbox.our_processes() if str(p) not in before and not is_kept(p) and not is_frozen(p)]


def wait_gone(look, what):
    eventually(lambda: not look(), f"an end of all after {what}", also=look)


def saved():
    return {key for key, one in snapshots().items() if one.get("kind") == "saved"}


def boxes():
    return {row["id"]: row["state"] for row in json.loads(good("ps", "-a", "--json"))}


def start_saved(known):
    """Checks that every existing snapshot is complete: starts it."""
    for key, one in snapshots().items():
        if "error" in one:
            raise Failure(f"snapshot {key}: {one['error']}")
        if one["kind"] == "saved" and key not in known and not one["info"]["suspended"]:
            good("run", "--rm", *OPTIONS, "--snapshot", key, "--", "true")


def suspended():
    return [key for key, one in snapshots().items() if one.get("info", {}).get("suspended")]


def resume_all():
    for box, state in boxes().items():
        if state not in ("paused", "suspended") or all(sandbox.hutch(*cmd, timeout=PATIENCE).returncode == 0 for cmd in (("resume", box), ("exec", box, "--", "true"))):
            continue
        # Frozen processes die once thawed, and the end of a sandbox takes a moment.
        wait_gone(lambda box=box: {box: boxes()[box]} if boxes()[box] != "ended" else None, "what was to go on")


def go_on():
    """Resumes paused sandboxes; only these may have a snapshot. The client may have been killed
    while the warden was still pausing: then the sandbox is paused a moment later."""
    def gone_on():
        resume_all()
        return not suspended()

    eventually(gone_on, "an end of all that is saved for suspended sandboxes", also=suspended)


def left_over(known, may_stay):
    """Returns snapshots without an owner, after gc."""
    good("gc")
    new = saved() - known
    return set() if may_stay and len(new) == 1 else new


def settled(what, before, known, may_stay=False):
    """Checks the state after a kill: `hutch ps` reclaims, snapshots are complete, and nothing is
    left."""
    wait_gone(lambda: orphans(before), f"{what}, with nobody's help")
    wait_gone(lambda: [box for box, state in boxes().items() if state == "starting"], f"{what}, not ready")
    states = sorted(boxes().values())
    start_saved(known)
    go_on()
    wait_gone(lambda: left_over(known, may_stay), f"{what} and gc")
    yield_back()
    good("gc")
    wait_gone(lambda: sandbox.ledger() - before, what)
    if left := [p.name for p in home().iterdir() if p.name.startswith("tmp-")]:
        raise Failure(f"left in snapshots after {what} and gc: {left}")
    return ", ".join(f"{n} {state}" for state, n in sorted(collections.Counter(states).items())) or "no sandbox"


# ---- rounds ----
def one_round(name, part, delay, before):
    """Runs one round. Returns a description of the result, or None if the part did not run."""
    op = OPERATIONS[name]
    args = op.prepare()
    known = saved() if name == "restore" else set()
    work = (ByHutchd if part in ("hutchd", "job") else ByHutch)(op, args)
    try:
        at = strike(work, part, delay)
    finally:
        said = work.end()
    outcome = settled(f"kill -9 of {part} in {name}", before, known, may_stay=name == "snapshot")
    return f"at {at:.2f} s: {said}, {outcome}" if at is not None else None


def plan(rounds):
    """Returns (operation, part) for each round: every operation in turn, and every part of it
    before one repeats."""
    decks = {name: [] for name in OPERATIONS}
    for i in range(rounds):
        name = list(OPERATIONS)[i % len(OPERATIONS)]
        if not decks[name]:
            decks[name] = random.sample(OPERATIONS[name].parts, len(OPERATIONS[name].parts))
        yield name, decks[name].pop()


# Every operation and every part once, for a short run.
SHORT = (("boot", "qemu"), ("clone", "qemu"), ("pause", "warden"), ("resume", "hutchd"), ("suspend", "warden"), ("wake", "keeper"),
         ("snapshot", "hutch"), ("fork", "job"), ("restore", "keeper"), ("template", "maker"))


def run(pairs, usual):
    """Returns the number of failed rounds and of all rounds."""
    before = sandbox.ledger()
    struck, failed, n = collections.Counter(), 0, 0
    for name, part in pairs:
        n += 1
        try:
            said = None
            for i in range(5):  # strike earlier if it was over: finding the processes takes time
                said = said or one_round(name, part, usual.moment(name, part) / 2**i, before)
            if not said:
                raise Failure(f"there was no {part} in {name}")
            struck[part] += 1
            print(f"ok {n} - {name}, {part} {said}", flush=True)
        except (Failure, AssertionError) as e:
            failed += 1
            print(f"not ok {n} - {name}, {part}\n# {e}", flush=True)
            with contextlib.suppress(Failure):
                yield_back()
                good("gc")
            before |= sandbox.ledger()
    print("# struck: " + ", ".join(f"{part} {n}" for part, n in sorted(struck.items())), flush=True)
    return failed, n
