#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
machine_memory.py [--short] [--size MIB]... [--part fill|crowd|trace|cost|time|gc|edge|save]...: the
memory of VMs, as root. Takes about an hour; --short takes some minutes and uses 256 MiB and few VMs.

Parts:
  fill   a program fills 90 % of its memory and of its disk and checks both, in a clone, a fork, a
         resumed VM and one that has booted, with 256 MiB, 1 GiB and 4 GiB
  crowd  40 clones fill their memory at the same time
  trace  a clone that writes to its memory leaves no trace in the template: no block, no page in the
         host's cache. The controls map a copy of the file, and a memfd, as a whole.
  cost   private memory of 1, 10 and 40 forks of a VM that holds 500 MiB, at most 1.3 times that of
         clones
  time   a fork of a VM of 1 GiB takes at most twice as long as one of 256 MiB; 100 MiB are in use
  gc     `hutch gc` between the starts of two clones: they share the template's pages
  edge   odd sizes, the smallest size; a full memory through forks of forks, two suspends, and two
         forks at the same time
  save   a save that fails: its process is killed, or the file system is full. The VM continues and
         nothing is left.

HUTCH, HUTCHD, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_RAM_SO and HUTCH_TEST_KERNEL_DIR as for
tests/integration/run_as.py.
"""

import argparse
import concurrent.futures
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import run_as  # noqa: E402

SIZES = (256, 1024, 4096)  # MiB
DISK = "256MiB"
COST, TIME = 1.3, 2.0  # the bars of the parts of these names


# ---- parts ----
def part_fill(args):
    import machine_fill as fill

    for size in args.size or (SIZES[:1] if args.short else SIZES):
        for way, begin in fill.WAYS.items():
            def one(size=size, begin=begin):
                with fill.boxes() as made:
                    box = begin(made, "--memory", f"{size}MiB", "--disk", DISK, "--cpus", "1")
                    return fill.fill(box, size, disk=True)
            yield f"{way} of {size} MiB fills its memory and disk", one


def part_crowd(args):
    import machine_fill as fill

    n = 4 if args.short else 40

    def crowd():
        with fill.boxes() as made, concurrent.futures.ThreadPoolExecutor(n) as pool:
            for _ in range(n):
                made.create("--memory", "256MiB", "--disk", "64MiB", "--cpus", "1")
            return max(pool.map(lambda box: fill.fill(box, 256, disk=False), made.ids), key=len)
    yield f"{n} clones fill their memory at the same time", crowd


def part_trace(_):
    import machine_trace as trace

    yield "a clone leaves no trace in its template", trace.no_trace
    yield "control: a private mapping of the whole file does", trace.file_grows
    yield "control: a private mapping of a memfd does", trace.memfd_grows


def part_cost(args):
    import machine_fill as fill
    import memory

    hold, size = (100, 256) if args.short else (500, 1024)
    options = ("--memory", f"{size}MiB", "--disk", "64MiB", "--cpus", "1")

    def mean(made, n):
        for box in made.ids[:n]:
            fill.good("exec", box, "--", "true")
        return sum(memory.private(fill.qemu(box)) for box in made.ids[:n]) / n / 2**20

    def cost(n):
        def one():
            with fill.boxes() as made:
                for _ in range(n):
                    made.create(*options)
                clones = mean(made, n)
            with fill.boxes() as origin, fill.boxes() as made:
                box = origin.create(*options)
                fill.hold(box, hold)
                made.fork(box, n)
                origin.end()
                forks = mean(made, n)
            said = f"{forks:.1f} MiB for each fork, {clones:.1f} for each clone, ratio {forks / clones:.2f}"
            fill.require(forks <= COST * clones, said)
            return said
        return one
    for n in (1, 4) if args.short else (1, 10, 40):
        yield f"private memory of {n} forks of a VM of {size} MiB that holds {hold} MiB", cost(n)


def part_time(args):
    import machine_fill as fill

    def took(box):
        with fill.boxes() as made:
            began = time.monotonic()
            made.fork(box, 1)
            return time.monotonic() - began

    def compare():
        with fill.boxes() as made:
            both = [made.create("--memory", f"{size}MiB", "--disk", "64MiB", "--cpus", "1") for size in (256, 1024)]
            for box in both:
                fill.hold(box, 100)
                took(box)
            times = [[took(box) for box in both] for _ in range(3 if args.short else 9)]
        small, large = (statistics.median(column) for column in zip(*times))
        said = f"{large:.2f} s with 1 GiB, {small:.2f} s with 256 MiB, ratio {large / small:.2f}"
        fill.require(large <= TIME * small, said)
        return said
    yield "time of a fork with 100 MiB in use", compare


def part_gc(_):
    import machine_fill as fill
    import memory

    def shares():
        with fill.boxes() as made:
            first = made.create(*fill.SMALL)
            fill.good("exec", first, "--", "true")
            alone = memory.file_share(fill.qemu(first), "/memory")
            fill.good("gc")
            second = made.create(*fill.SMALL)
            fill.good("exec", second, "--", "true")
            both = [memory.file_share(fill.qemu(box), "/memory") for box in (first, second)]
        said = f"{both[0]:.2f} and {both[1]:.2f} of the file's pages; {alone:.2f} alone"
        fill.require(alone > 0.9 and all(0.45 < share < 0.65 for share in both), said)
        return said
    yield "two clones share their template after hutch gc", shares


def part_edge(_):
    import machine_edge as edge

    for size in ("32MiB", "100000001B", "257MiB", "300001KiB"):
        yield f"a VM with {size} of memory boots, is cloned, forked and resumed", lambda size=size: edge.size(size)
    yield "forks of forks of a VM with full memory", edge.forks_of_forks
    yield "two suspends of a VM with full memory", edge.two_suspends
    yield "two forks at the same time", edge.two_at_once


def part_save(_):
    import machine_edge as edge

    yield "the saving process is killed", edge.saver_is_killed
    yield "the file system of the snapshots is full", edge.no_space


PARTS = {"fill": part_fill, "crowd": part_crowd, "trace": part_trace, "cost": part_cost, "time": part_time, "gc": part_gc, "edge": part_edge,
         "save": part_save}


def check(n, name, fn):
    began = time.monotonic()
    try:
        said = fn()
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as e:
        print(f"not ok {n} - {name}\n# {e}", flush=True)
        return False
    print(f"ok {n} - {name}{f': {said}' if said else ''}\n# {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.0f}", flush=True)
    return True


def run(args):
    """Returns the number of failures and of checks."""
    import machine_fill as fill  # they need the environment
    import sandbox

    before, results = sandbox.ledger(), []
    for part in args.part or PARTS:
        for name, fn in PARTS[part](args):
            results.append(check(len(results) + 1, f"{part}: {name}", fn))
    results.append(check(len(results) + 1, "nothing is left", lambda: fill.require(not (left := sandbox.settle(before)), f"{left}")))
    return results.count(False), len(results)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--short", action="store_true")
    p.add_argument("--part", action="append", choices=tuple(PARTS))
    p.add_argument("--size", action="append", type=int, help="MiB of the VMs of part fill")
    args = p.parse_args()
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root")
        return 0
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([HERE], run_as.image(), None, stack)
        os.environ.update(env)
        failed, n = run(args)
    print(f"1..{n}\n# {n - failed} of {n}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
