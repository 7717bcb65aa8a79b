#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
clones.py [-n N] [--at-once N]: N clones (200) of one template, some at a time, as root. What must not be the same in two of them is not: random
numbers, machine-id, boot id, UUIDs, where programs are in memory, ssh host keys where the image can make them. The clock of each is within 50 ms
of the host's, and nothing has run in it before its first command but its first process. Nothing is left afterwards.

HUTCH, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_HOLD, HUTCH_TEST_IMAGE and HUTCH_TEST_KERNEL_DIR as for tests/integration/run_as.py.
"""

import argparse
import concurrent.futures
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
import run_as  # noqa: E402

CLOCK = 0.05
LOOK = r"""
import json, os, shutil, subprocess, time, uuid
def read(path):
    return open(path).read().strip()
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid()) and os.path.exists(f"/proc/{pid}/cmdline")
          and read(f"/proc/{pid}/cmdline")]
seen = {"random": os.getrandom(32).hex(), "machine": read("/etc/machine-id"), "boot": read("/proc/sys/kernel/random/boot_id"),
        "uuid": str(uuid.uuid4()), "name": os.uname().nodename,
        "memory": [line.split("-")[0] for line in open("/proc/self/maps") if "[stack]" in line or "libc.so" in line][0]}
if shutil.which("ssh-keygen"):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/key"], check=True)
    seen["ssh"] = read("/tmp/key.pub").split()[1]
print(json.dumps({"distinct": seen, "others": others, "pid": os.getpid()}))
"""
NOW = "import sys, time\nfor line in sys.stdin: print(time.time(), flush=True)"
QUESTIONS = 5


def clock_of(sandbox, name):
    """
    How far its clock is off, at least. A command is asked for it, which runs already: the start of one takes so long that a clock that is
    a second slow would still be between two readings of ours. The quickest of some answers counts.
    """
    times = []
    with sandbox.start("exec", "-i", name, "--", "python3", "-uc", NOW, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        for _ in range(QUESTIONS):
            before = time.time()
            p.stdin.write("\n")
            p.stdin.flush()
            inside, after = float(p.stdout.readline()), time.time()
            times.append((after - before, max(before - inside, inside - after, 0)))
        p.stdin.close()
    return min(times)[1]


def clone(sandbox, number):
    """One clone, from its start to its end: what was seen in it, and how far its clock was off."""
    made = sandbox.hutch("create", "--rm", "--memory", "256MiB", "--cpus", "1", timeout=600)
    if made.returncode != 0:
        raise RuntimeError(f"clone {number}: {made.stderr.decode()}")
    name = made.stdout.decode().strip()
    try:
        seen = sandbox.hutch("exec", name, "--", "python3", "-c", LOOK, timeout=600)
        if seen.returncode != 0:
            raise RuntimeError(f"clone {number}: {seen.stderr.decode()}")
        return json.loads(seen.stdout.splitlines()[0]), clock_of(sandbox, name)
    finally:
        sandbox.hutch("kill", name, timeout=600)


def judge(results):
    for key in results[0][0]["distinct"]:
        values = [seen["distinct"][key] for seen, _ in results]
        yield f"{key}: {len(values)} clones, {len(set(values))} different", len(set(values)) == len(values)
    off = sorted(off for _, off in results)
    yield f"clock: off by at most {off[-1] * 1000:.1f} ms, median {off[len(off) // 2] * 1000:.1f} ms", off[-1] <= CLOCK
    others = [seen["others"] for seen, _ in results if seen["others"]]
    yield f"processes before the first command: {others or 'none'}", not others


def run(options):
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([], run_as.image(), None, stack)
        os.environ.update({k: v for k, v in env.items() if k.startswith("HUTCH")})
        sandbox = importlib.import_module("sandbox")
        before = sandbox.ledger()
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            results = list(pool.map(lambda number: clone(sandbox, number), range(options.n)))
        lines = list(judge(results))
        left = sandbox.settle(before)
        lines.append((f"left behind: {sorted(left) or 'nothing'}", not left))
        for number, (text, good) in enumerate(lines, 1):
            print(f"{'ok' if good else 'not ok'} {number} - {text}")
        print(f"1..{len(lines)}\n# {options.n} clones in {time.monotonic() - start:.0f} s")
        return 0 if all(good for _, good in lines) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
