# SPDX-License-Identifier: Apache-2.0
"""
A sandbox that exhausts one resource: each bomb hits its named limit, `hutch inspect` reports it,
the keeper does not grow, and a neighbour stays responsive. In a VM the agent reports the limit,
except for CPU time. BOMB is the program of tests/attack/bomb.c. HUTCH_BAR is the allowed slowdown
of a neighbour's commands: 2 in tests/slow/bombs.sh, more in CI, whose hosts are busy.
"""
import os
import socket
import statistics
import time
import unittest
from pathlib import Path

import wire
from sandbox import MACHINE, PATIENCE, LOOSE, RUN, SandboxCase, as_root, children_of, eventually, hutch, warden_of

BAR = float(os.environ.get("HUTCH_BAR", "6"))
ROUNDS = 60 // PATIENCE
LIMITS = (*LOOSE, "--memory", "256MiB", "--pids", "64", "--disk", "32MiB", "--cpus", "0.5")


def connect(sandbox):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(RUN / "sandboxes" / sandbox, os.O_RDONLY)
    try:
        s.connect(f"/proc/self/fd/{here}/sock")
    finally:
        os.close(here)
    link = wire.Link(s)
    link.hello(read=(), write=(), execute=())
    return link


def round_trip(link, rounds=ROUNDS):
    """The median time of the neighbour's commands."""
    times = []
    for _ in range(rounds):
        start = time.monotonic()
        link.open("exec", argv=["/bin/true"]).wait_closed()
        times.append(time.monotonic() - start)
    return statistics.median(times)


def rss(pid):
    """Anonymous memory of a process in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError(f"no RssAnon of {pid}")


@as_root
class Bombs(SandboxCase):
    def setUp(self):
        super().setUp()
        self.neighbour = connect(self.create(*LOOSE, "--memory", "256MiB"))
        self.addCleanup(self.neighbour.close)
        self.sandbox = self.create(*LIMITS)
        bomb = Path(os.environ["BOMB"]).read_bytes()
        self.exec_(self.sandbox, "sh", "-c", "cat >/tmp/bomb; chmod +x /tmp/bomb", opts=("-i",), input=bomb)
        self.keeper = children_of(warden_of(self.sandbox), "hutch-keeper")[0]
        self.link = connect(self.sandbox)
        self.addCleanup(self.link.close)
        self.base = round_trip(self.neighbour)
        self.size = rss(self.keeper)

    def set_off(self, what, **more):
        return self.link.open("exec", argv=["/tmp/bomb", what], **more)

    def neighbour_is_well(self):
        # Other load on the host slows some of these; the bomb slows all of them.
        times = min(self.ratios())
        print(f"# {self.id().rsplit('_', 1)[1]}: a neighbour's command takes {times:.2f} times what it took, "
              f"the keeper has grown by {rss(self.keeper) - self.size} KiB")
        self.assertLess(times, BAR)
        self.assertLess(rss(self.keeper) - self.size, 2048, "the keeper grows")

    def ratios(self):
        for _ in range(5):
            yield (times := round_trip(self.neighbour) / self.base)
            if times < BAR:
                return

    def met(self):
        return self.inspect(self.sandbox)["met"]

    def refused(self, what, errno, closed=0, **more):
        """The bomb reports that it was refused, while a neighbour stays responsive."""
        bomb = self.set_off(what, **more)
        eventually(lambda: b"\n" in bomb.out(), f"the end of what there is of {what}")
        self.neighbour_is_well()
        self.assertEqual(bomb.wait_closed(), closed)
        name, count, why = bomb.out().decode().split()
        self.assertEqual((name, why), (what, errno))
        return int(count)

    def test_fork(self):
        """Its children hold its output, so it runs until its time limit, and they end with it."""
        self.assertLess(self.refused("fork", "EAGAIN", closed=wire.TIME_LIMIT, timeout=20000 * PATIENCE), 64)
        if MACHINE:  # the host counts its threads
            eventually(lambda: self.commands_in(self.sandbox) == [], "the end of all but PID 1")
        else:
            eventually(lambda: self.inspect(self.sandbox)["usage"]["pids"] == 1, "the end of all but PID 1")
        self.assertGreater(self.met()["pids"]["refused"], 0)

    def test_memory(self):
        bomb = self.set_off("memory")
        self.neighbour_is_well()
        bomb.wait_closed()
        self.assertEqual(bomb.exit["signal"], 9)
        eventually(lambda: self.met()["memory"]["killed"] > 0, "a number")

    def test_disk(self):
        self.assertLessEqual(self.refused("disk", "ENOSPC") * 65536, 32 << 20)
        eventually(lambda: self.met()["disk"]["full"], "a word")

    def test_inodes(self):
        self.assertLess(self.refused("inodes", "ENOSPC"), 1 << 20)
        eventually(lambda: self.met()["disk"]["inodes_full"], "a word")

    def test_descriptors(self):
        """A limit of each process, not of the sandbox: the program gets an error, and hutch
        reports nothing."""
        self.assertLess(self.refused("descriptors", "EMFILE"), 16384)

    def test_cpu(self):
        bomb = self.set_off("cpu")
        eventually(lambda: self.met()["cpu"]["throttled"] > 3, "the limit on CPU time")
        self.neighbour_is_well()
        bomb.close()

    def test_flood(self):
        """No client reads: full buffers stop the program, and the keeper's memory does not grow."""
        ready = hutch("exec", self.sandbox, "--", "true")
        self.ended(ready, 0)
        bomb = self.set_off("flood", give_credit=False)
        self.link.wait(lambda: bomb.streams[1].total >= wire.CREDIT_START, "all that there is credit for")
        self.neighbour_is_well()
        self.ended(hutch("exec", self.sandbox, "--", "true"), 0)


if __name__ == "__main__":
    unittest.main()
