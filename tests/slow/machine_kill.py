#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
machine_kill.py [--rounds N] [--short] [--seed N] [--part kill|damage|fault|silent]...: virtual machines and kill -9, as root. 60 rounds take
about ten minutes, --short (8 rounds, less damage) about one.

Parts:
  kill    one of: boot, clone, template, snapshot, restore, fork; and kill -9 of one of the processes that take part (hutch, the process
          that makes a template, warden, keeper, QEMU) after a random part of the time that it takes. What lost its warden ends with
          nobody's help; `hutch ps` takes back the rest; nothing is left. Each snapshot that is there then is whole and starts, and what
          a dead maker left is removed by `hutch gc`.
  damage  a bit of each file of a snapshot is flipped, each is cut short, each is taken away: `--snapshot` refuses it, and a template is
          made anew. The control is the one that was not touched.
  fault   kill -9 at each fault point that only machines have, of whoever passes it; on a build with -Dfault=true, and only if asked for
  silent  a guest that never says HELLO is ended within its deadline, with the reason. Takes a minute; not in the short form.

HUTCH, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_HOLD, WILD (attack-wild) and HUTCH_TEST_KERNEL_DIR as for tests/integration/run_as.py.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import run_as  # noqa: E402

OPTIONS = ("--memory", "128MiB", "--disk", "64MiB")
PATIENCE = 240  # for one command, on a machine that does much else
SETTLE = 60


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


# ---- what is done ----
class Operation:
    """Commands that come before, and the one that is struck."""

    env = None

    def prepare(self, env=None):
        return ()

    def command(self, *_):
        return ("create", *OPTIONS)


class Boot(Operation):
    env = {"HUTCH_TEMPLATES": "off"}


class Clone(Operation):
    pass


class Template(Operation):
    """The first of its kind."""

    def prepare(self, env=None):
        for key, one in snapshots().items():
            if one.get("kind") == "template":
                good("snapshot", "rm", key)
        return ()


class Snapshot(Operation):
    def prepare(self, env=None):
        return (good("create", *OPTIONS, env=env),)  # who saves is in there

    def command(self, source):
        return ("snapshot", "create", source)


class Fork(Snapshot):
    def command(self, source):
        return ("fork", source)


class Restore(Operation):
    def prepare(self, env=None):
        source = good("create", *OPTIONS)
        saved = good("snapshot", "create", source)
        good("rm", "-f", source)
        return (saved,)

    def command(self, saved):
        return ("create", *OPTIONS, "--snapshot", saved)


OPERATIONS = {"boot": Boot(), "template": Template(), "clone": Clone(), "snapshot": Snapshot(), "fork": Fork(), "restore": Restore()}


def begin(op, args):
    return sandbox.start(*op.command(*args), env={**os.environ, **(op.env or {})})


def measure():
    """How long each takes now."""
    took = {}
    for name, op in OPERATIONS.items():
        args = op.prepare()
        began = time.monotonic()
        if begin(op, args).wait(PATIENCE) != 0:
            raise Failure(f"{name} goes wrong by itself")
        took[name] = time.monotonic() - began
        sweep()
    print("# seconds: " + ", ".join(f"{name} {s:.1f}" for name, s in took.items()), flush=True)
    return took


# ---- who is struck ----
def cast(hutch_pid):
    """{part: [process]} of what runs now."""
    ours = list(sandbox.our_processes())
    parents = {p.parent for p in ours}
    found = collections.defaultdict(list)
    for p in ours:
        if p.comm == "hutch":
            found["hutch" if p.pid == hutch_pid else "maker"].append(p)
        elif p.comm == "hutch-keeper":
            found["warden" if p.pid in parents else "keeper"].append(p)
        elif p.comm == "qemu-system-x86":
            found["qemu"].append(p)
    return found


def kill(p):
    """By descriptor: the number may be somebody else's by now."""
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


def strike(child, delay, wanted):
    """Kills one of the wanted part if there is one by then, else of another; which it was."""
    end = time.monotonic() + delay
    while time.monotonic() < end and child.poll() is None:
        time.sleep(min(0.005, max(0, end - time.monotonic())))
    there = cast(child.pid if child.poll() is None else -1)
    for part in [wanted, *random.sample(sorted(there), len(there))]:
        if there.get(part) and kill(random.choice(there[part])):
            return part
    return "nobody"


# ---- what is left ----
def orphans(before):
    """Processes of ours that no living warden has."""
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
    return [str(p) for p in sandbox.our_processes() if str(p) not in before and not is_kept(p)]


def wait_gone(look, what):
    end = time.monotonic() + SETTLE
    while left := look():
        if time.monotonic() > end:
            raise Failure(f"left after {what}: {sorted(left)}")
        time.sleep(0.02)


def sweep():
    for row in json.loads(good("ps", "-a", "--json")):
        r = sandbox.hutch("rm", "-f", row["id"])
        if r.returncode != 0 and b"no sandbox" not in r.stderr:
            raise Failure(f"hutch rm: {r.stderr.decode()}")
    for key, one in snapshots().items():
        if one.get("kind") == "saved":
            good("snapshot", "rm", key)


def start_saved(known):
    """Every one that is there can be started: it is whole."""
    for key, one in snapshots().items():
        if "error" in one:
            raise Failure(f"snapshot {key}: {one['error']}")
        if one["kind"] == "saved" and key not in known:
            good("run", "--rm", *OPTIONS, "--snapshot", key, "--", "true")


def one_round(name, wanted, delay, before):
    op = OPERATIONS[name]
    args = op.prepare()
    known = set(snapshots())
    child = begin(op, args)
    try:
        part = strike(child, delay, wanted)
        child.wait(PATIENCE)
    finally:
        child.kill()
        child.wait()
    what = f"kill -9 of {part} {delay:.2f} s into {name}"
    wait_gone(lambda: orphans(before), f"{what}, with nobody's help")
    settled(what, before, known)
    return part


def settled(what, before, known):
    """After whatever happened: `hutch ps` takes back, what was saved is whole, and nothing is left."""
    good("ps")
    start_saved(known)
    sweep()
    wait_gone(lambda: sandbox.ledger() - before, what)
    good("gc")
    if left := [p.name for p in home().iterdir() if p.name.startswith("tmp-")]:
        raise Failure(f"left in snapshots after {what} and gc: {left}")


PARTS = ("hutch", "maker", "warden", "keeper", "qemu")


def part_kill(rounds):
    took = measure()
    before = sandbox.ledger()
    struck, failed = collections.Counter(), 0
    for i in range(rounds):
        name = list(OPERATIONS)[i % len(OPERATIONS)]
        wanted = random.choice([p for p in PARTS if p != "maker" or name == "template"])
        try:
            part = one_round(name, wanted, random.uniform(0, 1.1 * took[name]), before)
            struck[f"{name}: {part}"] += 1
            print(f"ok {i + 1} - {name}, {part}", flush=True)
        except (Failure, AssertionError) as e:
            failed += 1
            print(f"not ok {i + 1} - {name}, {wanted}\n# {e}", flush=True)
            with contextlib.suppress(Failure):
                sweep()
                good("gc")
            before |= sandbox.ledger()
    print("# struck: " + ", ".join(f"{what} {n}" for what, n in sorted(struck.items())), flush=True)
    return failed


# ---- damage ----
def flip(path):
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(path):
    os.truncate(path, random.randrange(path.stat().st_size))


def drop(path):
    path.unlink()


@contextlib.contextmanager
def damaged(path, how):
    """The file is as it was afterwards, unless somebody has made another."""
    mode = path.stat().st_mode
    shutil.copy2(path, home().parent / "spare")
    path.chmod(0o600)
    how(path)
    try:
        yield
    finally:
        if path.parent.exists():
            path.unlink(missing_ok=True)
            shutil.copy2(home().parent / "spare", path)
            path.chmod(mode)


def files_of(key):
    return sorted(p for p in (home() / key).rglob("*") if p.is_file())


def check(name, fn):
    try:
        fn()
        print(f"ok - {name}", flush=True)
        return 0
    except (Failure, AssertionError) as e:
        print(f"not ok - {name}\n# {e}", flush=True)
        return 1


def refused(saved, path, how):
    with damaged(path, how):
        r = sandbox.hutch("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true", timeout=PATIENCE)
    if r.returncode != 125:
        raise Failure(f"it was started: {r.returncode} {r.stderr.decode()}")


def made_anew(key, path, how):
    """gc ends what has it in memory: the next one reads the file."""
    good("gc")
    beside = home() / key / ("state" if path.name == "meta.json" else "meta.json")
    made = beside.stat().st_ctime_ns
    path.chmod(0o600)
    how(path)
    good("run", "--rm", *OPTIONS, "--", "true")
    if beside.stat().st_ctime_ns == made:
        raise Failure("it was used as it is")


def part_damage(short):
    failed = 0
    [saved] = Restore().prepare()
    hows = (flip,) if short else (flip, cut, drop)
    good("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true")
    for path in files_of(saved):
        for how in hows if path.name != "meta.json" else (flip, cut, drop):
            failed += check(f"saved: {how.__name__} {path.relative_to(home() / saved)}", lambda p=path, h=how: refused(saved, p, h))
    failed += check("saved: it works as it was", lambda: good("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true"))
    good("snapshot", "rm", saved)
    [key] = [k for k, one in snapshots().items() if one["kind"] == "template"]
    for name in ("state",) if short else ("meta.json", "state", "memory"):
        for how in hows:
            failed += check(f"template: {how.__name__} {name}", lambda n=name, h=how: made_anew(key, home() / key / n, h))
    return failed


# ---- fault points ----
# Passed by the child that becomes QEMU, who has nobody to tell.
SILENT = {"jail-root": "clone", "jail-dropped": "clone", "jail-groups": "clone", "jail-cloned": "clone"}
MACHINE = re.compile(r"^(jail|machine|save|snapshot|template|suspend)-|^warden-snapshot$")
FEW = ("jail-cloned", "machine-sealed", "save-disk", "snapshot-hashed", "template-booted")


def perform(op, env):
    """An operation with a fault in all that takes part; what hutch and the logs of its sandboxes said, and whether it went well."""
    faulty = {**(op.env or {}), **env}
    args = op.prepare(env)
    r = sandbox.hutch(*op.command(*args), timeout=PATIENCE, env=faulty)
    logs = [p.read_text(errors="replace") for p in sandbox.RUN.glob("sandboxes/*/log")]
    return r.stderr.decode() + "".join(logs), r.returncode


def discover():
    """{point: operation}: the points of machines, each where it is passed first."""
    found = {}
    for name in ("template", "clone", "snapshot", "restore", "fork"):
        said, code = perform(OPERATIONS[name], {"HUTCH_FAULT_LIST": "1"})
        if code != 0:
            raise Failure(f"{name} goes wrong by itself: {said}")
        for point in re.findall(r"(?m)^fault point (\S+) in \d+$", said):
            if MACHINE.match(point):
                found.setdefault(point, name)
        sweep()
    return {**SILENT, **found}


def one_fault(point, name, before):
    said, code = perform(OPERATIONS[name], {"HUTCH_FAULT": f"{point}=kill"})
    if f"struck at {point} " not in said and not (point in SILENT and code != 0):
        raise Failure(f"{point} did not strike in {name}: {code} {said}")
    wait_gone(lambda: orphans(before), f"{point} in {name}, with nobody's help")
    settled(f"{point} in {name}", before, set())


def part_fault(short):
    failed, before = 0, sandbox.ledger()
    points = discover()
    if len(points) < 12:
        raise Failure(f"only {len(points)} fault points were found: is this a build with -Dfault=true?")
    for point, name in points.items():
        if not short or point in FEW:
            failed += check(f"kill at {point} in {name}", lambda p=point, n=name: one_fault(p, n, before))
    return failed


# ---- silent ----
def part_silent():
    def silent():
        lib = Path(os.environ["WILD"]).parent / "silent"
        lib.mkdir()
        (lib / "hutch-guest").write_bytes(Path(os.environ["WILD"]).read_bytes() + b"\0mute")
        (lib / "hutch-guest").chmod(0o755)
        for name in ("HUTCH_KEEPER", "HUTCH_HOLD"):
            os.symlink(os.environ[name], lib / Path(os.environ[name]).name)
        before, began = sandbox.ledger(), time.monotonic()
        r = sandbox.hutch("run", "--rm", *OPTIONS, "--", "true", timeout=PATIENCE,
                          env={"HUTCH_LIBEXEC_DIR": str(lib), "HUTCH_TEMPLATES": "off"})
        if r.returncode != 125 or b"broke the protocol" not in r.stderr or time.monotonic() - began > 120:
            raise Failure(f"{r.returncode} after {time.monotonic() - began:.0f} s: {r.stderr.decode()}")
        wait_gone(lambda: sandbox.ledger() - before, "a guest that says nothing")
    return check("a guest that says nothing", silent)


def main():
    global sandbox
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int)
    p.add_argument("--short", action="store_true")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--part", action="append", choices=("kill", "damage", "fault", "silent"))
    args = p.parse_args()
    parts = args.part or ["kill", "damage"] + ([] if args.short else ["silent"])
    random.seed(args.seed)
    print(f"# --seed {args.seed}", flush=True)
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([HERE], run_as.image(), None, stack)
        os.environ.update(env)
        import sandbox  # its module wants the environment
        failed = 0
        if "kill" in parts:
            failed += part_kill(args.rounds or (8 if args.short else 60))
        if "damage" in parts:
            failed += part_damage(args.short)
        if "fault" in parts:
            failed += part_fault(args.short)
        if "silent" in parts:
            failed += part_silent()
        sweep()
    print(f"# {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
