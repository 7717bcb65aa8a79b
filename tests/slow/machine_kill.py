#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
machine_kill.py [--rounds N] [--short] [--seed N] [--part kill|damage|fault|silent]...: VMs and
kill -9, as root. 60 rounds take about ten minutes; --short is ten rounds, one for each operation,
and no other part.

Parts:
  kill    performs one of: boot, clone, template, pause, resume, suspend, wake (resume of a
          suspended VM), snapshot, restore, fork; and kills (kill -9) one of the processes that
          take part: hutch, hutchd, its job, the process that makes a template, warden, keeper,
          QEMU. Processes without a warden end by themselves; `hutch ps` reclaims the
          rest; nothing is left. Each snapshot is then complete and starts, paused VMs resume, and
          `hutch gc` removes the leftovers of a dead creator.
  damage  flips a bit of each file of a snapshot, truncates each, removes each: `--snapshot` refuses
          it, and a template is rebuilt. The control is the undamaged snapshot.
  fault   kill -9 at each fault point that only VMs have, of the process that passes it; on a build
          with -Dfault=true, and only on request
  silent  a guest that never says HELLO is killed within its deadline, with the reason. Takes a
          minute.

HUTCH, HUTCHD, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_RAM_SO, WILD (attack-wild) and HUTCH_TEST_KERNEL_DIR
as for tests/integration/run_as.py.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import run_as  # noqa: E402


def run(args):
    """Returns the number of failures and of checks."""
    import machine_damage as damage  # they need the environment
    import machine_ops as ops
    import machine_rounds as rounds
    import sandbox

    sandbox.agent(ops.AGENT, ops.POLICY)
    parts = args.part or (["kill"] if args.short else ["kill", "damage", "silent"])
    failed = n = 0
    if "kill" in parts:
        pairs = rounds.SHORT if args.short else rounds.plan(args.rounds)
        failed, n = rounds.run(pairs, rounds.Usual(not args.short))
    for part, fn in (("damage", damage.part_damage), ("fault", damage.part_fault), ("silent", damage.part_silent)):
        if part in parts:
            results = fn(args.short)
            failed, n = failed + results.count(False), n + len(results)
    return failed, n


def take_back():
    import machine_ops as ops
    ops.yield_back()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--short", action="store_true")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--part", action="append", choices=("kill", "damage", "fault", "silent"))
    args = p.parse_args()
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root")
        return 0
    random.seed(args.seed)
    print(f"# --seed {args.seed}", flush=True)
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([HERE], run_as.image(), None, stack)
        os.environ.update(env)
        stack.callback(take_back)
        failed, n = run(args)
    print(f"1..{n}\n# {n - failed} of {n}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
