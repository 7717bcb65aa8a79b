# SPDX-License-Identifier: Apache-2.0
"""The processes of crash.py itself: one stays root and gives pids to unrelated processes, one
reaps."""

import contextlib
import os
import signal
from pathlib import Path

from crash_ledger import Failure


class Taker:
    """Asks the root process to start processes with given pids (ns_last_pid)."""

    def __init__(self, sock):
        self.file = sock.makefile("rw")

    def ask(self, line):
        print(line, file=self.file, flush=True)
        return int(self.file.readline())

    def take(self, pid):
        got = self.ask(f"take {pid}")
        if got < 0:
            raise Failure(f"pid {pid} could not be had")
        return got

    def end(self, pid):
        self.ask(f"end {pid}")


def be_innocent(ids, ready):
    if ids:
        os.setgroups([])
        os.setresgid(ids[1], ids[1], ids[1])
        os.setresuid(ids[0], ids[0], ids[0])
    os.close(ready)
    while True:
        signal.pause()


def take(pid, ids):
    for _ in range(50):
        if pid:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        wait, ready = os.pipe()
        got = os.fork()
        if got == 0:
            os.close(wait)
            be_innocent(ids, ready)
        os.close(ready)
        os.read(wait, 1)
        os.close(wait)
        if pid in (0, got):
            return got
        os.kill(got, signal.SIGKILL)
        os.waitpid(got, 0)
    return -1


def serve_pids(sock, ids):
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))  # children inherit it
    file = sock.makefile("rw")
    for line in file:
        what, pid = line.split()
        answer = 0
        if what == "take":
            answer = take(int(pid), ids)
        else:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
                os.waitpid(int(pid), 0)
        print(answer, file=file, flush=True)
    os._exit(0)


def reap_until(pid):
    while True:
        got, status = os.waitpid(-1, 0)
        if got == pid:
            return os.waitstatus_to_exitcode(status)
