# SPDX-License-Identifier: Apache-2.0
"""Parts of machine_kill.py: damaged snapshots, fault points, and a silent guest."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import machine_rounds as rounds
import sandbox
from damage_file import ALL, applicable, flip
from machine_ops import OPERATIONS, OPTIONS, PATIENCE, Failure, Restore, good, home, snapshots, yield_back


# ---- damage ----
@contextlib.contextmanager
def damaged(path, how):
    """Damages a file and restores it afterwards if its directory still exists."""
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
    return sorted(p for p in (home() / key).rglob("*") if p.is_file() and p.name != "verified")


def check(name, fn):
    try:
        fn()
        print(f"ok - {name}", flush=True)
        return True
    except (Failure, AssertionError) as e:
        print(f"not ok - {name}\n# {e}", flush=True)
        return False


def refused(saved, path, how):
    with damaged(path, how):
        r = sandbox.hutch("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true", timeout=PATIENCE)
    if r.returncode != 125:
        raise Failure(f"it was started: {r.returncode} {r.stderr.decode()}")


def made_anew(key, path, how):
    """Damages a template and checks that it is rebuilt."""
    beside = home() / key / ("state" if path.name == "meta.json" else "meta.json")
    made = beside.stat().st_ctime_ns
    path.chmod(0o600)
    how(path)
    good("run", "--rm", *OPTIONS, "--", "true")
    if beside.stat().st_ctime_ns == made:
        raise Failure("it was used as it is")


def part_damage(short):
    results = []
    [saved] = Restore().prepare()
    hows = (flip,) if short else ALL
    good("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true")
    for path in files_of(saved):
        for how in applicable(path, hows if path.name != "meta.json" else ALL):
            results.append(check(f"saved: {how.__name__} {path.relative_to(home() / saved)}", lambda p=path, h=how: refused(saved, p, h)))
    results.append(check("saved: it works as it was", lambda: good("run", "--rm", *OPTIONS, "--snapshot", saved, "--", "true")))
    good("snapshot", "rm", saved)
    [key] = [k for k, one in snapshots().items() if one["kind"] == "template"]
    for name in ("state",) if short else [p.name for p in files_of(key)]:
        for how in applicable(home() / key / name, hows):
            results.append(check(f"template: {how.__name__} {name}", lambda n=name, h=how: made_anew(key, home() / key / n, h)))
    return results


# ---- fault points ----
# The child that becomes QEMU passes these and cannot report it; so does a warden that survives and
# removes its log: there QEMU is struck.
SILENT = {"jail-root": "clone", "jail-dropped": "clone", "jail-groups": "clone", "jail-cloned": "clone", "machine-run": "clone"}
MACHINE = re.compile(r"^(jail|machine|ram|save|snapshot|template|suspend|resume)-|^warden-snapshot$")
# Points that another operation passes first and that leave something different here.
MORE = (("ram-saver", "snapshot"), ("ram-saver", "suspend"), ("snapshot-written", "suspend"), ("snapshot-placed", "suspend"), ("save-finished", "suspend"), ("snapshot-placed", "fork"))
FEW = ("jail-cloned", "machine-sealed", "ram-saver", "save-disk", "snapshot-hashed", "template-booted")


def perform(op, env):
    """
    Runs an operation with a fault in all processes that take part. Returns the messages of hutch
    and of its sandboxes' logs, the exit code, and the snapshots that existed before.
    """
    faulty = {**op.env, **env}
    args = op.prepare(env)
    known = rounds.saved()
    r = sandbox.hutch(*op.command(*args), timeout=PATIENCE, env=faulty)
    logs = [p.read_text(errors="replace") for p in sandbox.RUN.glob("sandboxes/*/log")]
    return r.stderr.decode() + "".join(logs), r.returncode, known


def discover():
    """Returns {point: operation}: the fault points of VMs, each with the first operation that
    passes it."""
    found = {}
    for name in ("template", "clone", "snapshot", "restore", "fork", "suspend", "wake"):
        said, code, _ = perform(OPERATIONS[name], {"HUTCH_FAULT_LIST": "1"})
        if code != 0:
            raise Failure(f"{name} goes wrong by itself: {said}")
        for point in re.findall(r"(?m)^fault point (\S+) in \d+$", said):
            if MACHINE.match(point):
                found.setdefault(point, name)
        yield_back()
    return {**SILENT, **found}


def one_fault(point, name, before):
    said, code, known = perform(OPERATIONS[name], {"HUTCH_FAULT": f"{point}=kill"})
    if f"struck at {point} " not in said and not (point in SILENT and code != 0):
        raise Failure(f"{point} did not strike in {name}: {code} {said}")
    rounds.settled(f"{point} in {name}", before, known, may_stay=name == "snapshot")


def part_fault(short):
    results, before = [], sandbox.ledger()
    points = discover()
    if len(points) < 12:
        raise Failure(f"only {len(points)} fault points were found: is this a build with -Dfault=true?")
    for point, name in (*points.items(), *MORE):
        if not short or point in FEW:
            results.append(check(f"kill at {point} in {name}", lambda p=point, n=name: one_fault(p, n, before)))
    return results


# ---- silent ----
def part_silent(_):
    def silent():
        lib = Path(os.environ["WILD"]).parent / "silent"
        lib.mkdir()
        (lib / "hutch-guest").write_bytes(Path(os.environ["WILD"]).read_bytes() + b"\0mute")
        (lib / "hutch-guest").chmod(0o755)
        for name in ("HUTCH_KEEPER", "HUTCH_RAM_SO"):
            os.symlink(os.environ[name], lib / Path(os.environ[name]).name)
        before = sandbox.ledger()
        r = sandbox.hutch("run", "--rm", *OPTIONS, "--", "true", timeout=PATIENCE,
                          env={"HUTCH_LIBEXEC_DIR": str(lib), "HUTCH_TEMPLATES": "off"})
        if r.returncode != 125 or b"broke the protocol" not in r.stderr:
            raise Failure(f"{r.returncode}: {r.stderr.decode()}")
        rounds.wait_gone(lambda: sandbox.ledger() - before, "a guest that says nothing")
    return [check("a guest that says nothing", silent)]
