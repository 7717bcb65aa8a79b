#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
full_disk.py [-n N]: fills the host's disk under N VMs and N containers (10 of each), and frees it,
as root. The disk is a file system of the test. Half of the sandboxes have their disk reserved, half
are overcommitted. All write and sync while there is no room.

Reserved sandboxes must finish while the disk is full. An overcommitted VM must report that it has
stopped, continue when there is room, and have written every byte. The writer in an overcommitted
container gets an error; `ps` names the lost writes, and the sandbox still answers.

Then one reserved container writes and syncs without end, and a command in each of two neighbours,
a container and a VM, must take less than twice as long as without it. Both are measured in turn,
and beside a loop that uses the processor and no disk, which shows how much is due to the disk.

HUTCH, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_RAM_SO and HUTCH_TEST_KERNEL_DIR as for
tests/integration/run_as.py.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
run_as = importlib.import_module("run_as")
waiting = importlib.import_module("waiting")

MIB = 1 << 20
BYTES = 60_000_000
SUM = hashlib.sha256(b"x" * BYTES).hexdigest()
WRITE = f"echo ready; read go; head -c {BYTES} /dev/zero | tr '\\0' x >/tmp/x && sync /tmp/x && sha256sum </tmp/x"
ENDLESS = "while :; do head -c 20000000 /dev/zero >/tmp/y; sync /tmp/y; done"
SPIN = "while :; do head -c 20000000 /dev/zero >/dev/null; done"
LOST = "writes to its disk were lost: the host's disk was full, or failed"
TURNS, ROUNDS = 5, 9


class Box:
    def __init__(self, world, level, reserved):
        self.world, self.level, self.reserved = world, level, reserved
        self.writer = None
        with world.sandbox.host_yaml(f"disk_overcommit: {'false' if reserved else 'true'}\n"):
            self.name = world.say("create", "--disk", "128MiB", "--memory", "128MiB", "--pids", "64", *(("--level", "microvm") if level == "microvm" else ()),
                                  env={"HUTCH_LEVEL": ""})

    def __str__(self):
        return f"{'reserved' if self.reserved else 'overcommitted'} {self.level} {self.name}"

    def begin(self):
        """Starts its writer, which waits: a stopped VM starts no command."""
        self.writer = self.world.sandbox.start("exec", "-i", "--timeout", "10m", self.name, "--", "sh", "-c", WRITE, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE)
        if self.writer.stdout.readline() != b"ready\n":
            raise AssertionError(f"{self}: no writer")

    def ended(self):
        """Lets its writer write: the exit status, and whether all bytes are there."""
        out, _ = self.writer.communicate(b"\n")
        return self.writer.returncode, SUM in out.decode()

    def state(self):
        rows = {row["id"]: row for row in self.world.json("ps", "-a", "--json")}
        return rows[self.name]["state"], rows[self.name]["reason"]


class World:
    def __init__(self, sandbox, stack):
        self.sandbox, self.hutch = sandbox, sandbox.hutch
        self.home = sandbox.STATE / "machine"
        self.filler = self.home / "filler"
        self.mount(stack)

    def say(self, *args, **more):
        r = self.hutch(*args, **more)
        if r.returncode != 0:
            raise AssertionError(f"hutch {args}: {r.returncode}: {r.stderr.decode()}")
        return r.stdout.decode().strip()

    def json(self, *args):
        return json.loads(self.say(*args))

    def mount(self, stack):
        old = stack.enter_context(tempfile.TemporaryDirectory(dir=self.sandbox.STATE))
        image = stack.enter_context(tempfile.NamedTemporaryFile(dir=self.sandbox.STATE))
        image.truncate(6 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image.name], check=True)
        subprocess.run(["cp", "-a", f"{self.home}/.", old], check=True)
        shutil.rmtree(f"{old}/snapshots", ignore_errors=True)
        subprocess.run(["mount", "-o", "loop", image.name, self.home], check=True)
        stack.callback(waiting.eventually, lambda: subprocess.run(["umount", self.home], check=False).returncode == 0, "the file system's end")
        stack.callback(self.hutch, "gc")
        subprocess.run(["cp", "-a", f"{old}/.", self.home], check=True)

    def fill(self):
        st = os.statvfs(self.home)
        with open(self.filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            os.posix_fallocate(f.fileno(), 0, max(st.f_bavail - 64, 1) * st.f_frsize)
            f.seek(0, os.SEEK_END)
            while True:
                f.write(bytes(4096))

    def times(self, box):
        """Times of a short command, in milliseconds."""
        for _ in range(ROUNDS):
            begin = time.monotonic()
            self.say("exec", box.name, "--", "true")
            yield 1e3 * (time.monotonic() - begin)


def full(world, boxes, lines):
    for box in boxes:
        box.begin()
    world.fill()
    with concurrent.futures.ThreadPoolExecutor(len(boxes)) as pool:
        done = {box: pool.submit(box.ended) for box in boxes}
        for box in (b for b in boxes if b.reserved):
            lines.append((f"{box}: writes while the disk is full: {done[box].result()}, {box.state()}", done[box].result() == (0, True) and box.state()[0] == "running"))
        machines = [b for b in boxes if not b.reserved and b.level == "microvm"]
        for box in machines:
            waiting.eventually(lambda box=box: box.state()[0] == "stopped", f"the stop of {box}", also=box.state)
            lines.append((f"{box}: has stopped", True))
        world.filler.unlink()
        for box in machines:
            lines.append((f"{box}: continues: {done[box].result()}", done[box].result() == (0, True)))
            waiting.eventually(lambda box=box: box.state()[0] == "running", f"the end of the stop of {box}", also=box.state)
        for box in (b for b in boxes if not b.reserved and b.level == "container"):
            code, whole = done[box].result()
            waiting.eventually(lambda box=box: box.state() == ("running", LOST), f"the loss of {box}", also=box.state)
            alive = world.hutch("exec", box.name, "--", "true").returncode == 0
            lines.append((f"{box}: writer exited {code}, {'whole' if whole else 'not whole'}; {box.state()}", code != 0 and alive))


def neighbours(world, boxes, lines):
    noisy = next(b for b in boxes if b.reserved and b.level == "container")
    quiet = [next(b for b in boxes if b.reserved and b.level == level and b is not noisy) for level in ("container", "microvm")]
    took = {(box, what): [] for box in quiet for what in (None, ENDLESS, SPIN)}
    for _ in range(TURNS):
        for what in (None, ENDLESS, SPIN):
            job = world.say("exec", "-d", noisy.name, "--", "sh", "-c", what) if what else None
            for box in quiet:
                took[box, what] += world.times(box)
            if job:
                world.say("signal", job, "KILL")
                world.hutch("wait", job)
    for box in quiet:
        base, now, spin = (statistics.median(took[box, what]) for what in (None, ENDLESS, SPIN))
        lines.append((f"{box}: a command takes {now:.1f} ms beside a writer, {base:.1f} ms alone: {now / base:.2f} times; "
                      f"{spin / base:.2f} times beside a loop that writes nothing", now < 2 * base))


def run(options):
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([], run_as.image(), None, stack)
        os.environ.update({k: v for k, v in env.items() if k.startswith("HUTCH")})
        sandbox = importlib.import_module("sandbox")
        world = World(sandbox, stack)
        before = sandbox.ledger()
        kinds = [(level, i % 2 == 0) for level in ("container", "microvm") for i in range(options.n)]
        boxes = [Box(world, *kind) for kind in kinds]
        lines = []
        try:
            full(world, boxes, lines)
            neighbours(world, boxes, lines)
        finally:
            world.filler.unlink(missing_ok=True)
            world.hutch("rm", "-f", *(b.name for b in boxes))
        left = sandbox.settle(before)
        lines.append((f"left behind: {sorted(left) or 'nothing'}", not left))
        for number, (text, good) in enumerate(lines, 1):
            print(f"{'ok' if good else 'not ok'} {number} - {text}")
        print(f"1..{len(lines)}")
        return 0 if all(good for _, good in lines) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10)
    options = parser.parse_args()
    if options.n < 4:
        parser.error("-n: at least 4, for two reserved containers")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
