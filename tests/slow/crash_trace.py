# SPDX-License-Identifier: Apache-2.0
"""The parts of crash.py that need strace: kills crun at a syscall, and makes syscalls fail."""

import collections
import contextlib
import os
import random
import re
import signal
import subprocess
from pathlib import Path

from crash_ledger import ERRORS, PATIENCE, Failure, good, hutch, tidy, until


class Traced:
    """Part of Suite."""

    # ---- crun ----
    def crun(self):
        if os.geteuid() != 0:
            return
        kinds = {"mount": (1, 4, 9), "clone3,clone,fork,vfork": (1, 2), "unshare,setns": (1, 2), "openat": (2, 8), "write": (1, 4),
                 "execve": (1,), "pivot_root": (1,), "setresuid,setresgid": (1,), "prctl": (3,), "sendmsg,sendto": (1,)}
        done, killed = 0, 0
        for calls, moments in kinds.items():
            def check(calls=calls, moments=moments):
                nonlocal done, killed
                hits = 0
                for n in moments[:1] if self.args.short else moments:
                    hits += self.crun_killed(calls, n)
                    done += 1
                killed += hits
                return f"{hits} killed"
            self.check(f"crun killed at {calls}", check)

        def enough():
            if killed < done * 2 / 3:
                raise Failure("too few: the rest tests nothing")
            return f"{killed} of {done}"
        self.check("crun was killed often enough", enough)

    def crun_killed(self, calls, n):
        """Returns whether crun was killed. Retries, because the tracer may attach too late."""
        for _ in range(4):
            code, hits = self.traced_crun(calls, n)
            tidy(self.ledger, f"crun killed at {calls} {n}: {code}")
            if hits:
                return 1
        return 0

    def traced_crun(self, calls, n):
        """Attaches to crun as soon as it runs. Calls that only crun makes are traced from the
        start. hutch and its warden must not be killed here."""
        trace = Path(os.environ["TMPDIR"]) / "trace"
        strace = ["strace", "-f", "-q", "-o", trace, "-e", f"trace={calls}", "-e", "signal=SIGKILL",
                  "-e", f"inject={calls}:signal=KILL:when={n}"]
        alone = calls == "pivot_root"
        p = subprocess.Popen([*(strace if alone else ()), os.environ["HUTCH"], "run", "--rm", "--", "true"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tracer = None

        def found():
            return p.poll() is not None or [pid for pid, comm, _ in self.ledger.processes() if comm == "crun"]

        if not alone and isinstance(crun := until(found, "crun, or an end", pause_max=0), list):
            tracer = attach(strace, crun[0])
        p.communicate(timeout=PATIENCE)
        if tracer:
            tracer.wait(PATIENCE)
        text = trace.read_text() if trace.exists() else ""
        trace.unlink(missing_ok=True)
        return p.returncode, text.count("+++ killed by SIGKILL +++") if p.returncode != 0 else 0


    # ---- syscall ----
    CALLS = ("openat", "read", "write", "mkdirat", "mkdir", "unlinkat", "renameat", "fcntl", "flock", "socket", "socketpair", "pipe2",
             "clone", "clone3", "vfork", "mount", "move_mount", "open_tree", "mount_setattr", "unshare", "mmap", "bind",
             "listen", "poll", "epoll_create1", "epoll_ctl", "epoll_wait", "waitid", "wait4", "execve", "dup2", "prctl", "recvfrom",
             "sendto", "setresuid", "setresgid", "getrandom", "pidfd_open", "statfs", "newfstatat", "fstat", "chown", "getdents64",
             "connect", "accept4", "faccessat2", "signalfd4", "timerfd_create", "close_range", "seccomp", "setsid", "readlink",
             "setrlimit", "prlimit64", "landlock_create_ruleset", "pidfd_send_signal", "mremap", "munmap", "writev", "access",
             "capset", "setgroups", "chdir", "fchdir", "openat2", "ftruncate", "nanosleep", "umount2", "pivot_root")

    def syscall(self):
        if os.geteuid() != 0:
            return
        total, results, hits = self.count(1000, 24), collections.defaultdict(list), 0
        most = self.calls_made()
        calls = random.sample(sorted(most), len(most))
        for i in range(total):
            call = calls[i % len(calls)]
            # No kernel returns another error here.
            error = "EINTR" if call in ("wait4", "waitid") else random.choice(ERRORS)
            n = min(int(random.expovariate(0.25)) + 1, most[call])
            if call == "mmap":  # the dynamic loader's calls cannot be handled
                n = min(n + 40, most[call])
            if call == "getrandom":  # nor those of libsodium's start, which calls abort(3)
                n = min(n + 2, most[call])
            name = f"{call}:error={error}:when={n}"
            try:
                r, injected = self.traced(call, name)
                hits += injected > 0
                tidy(self.ledger, f"{name} ({r.returncode} {r.stderr.strip()[-200:]})")
                results[call].append(None)
            except Failure as e:
                results[call].append(f"{name}: {e}")
                self.rescue()
        for call, list_ in sorted(results.items()):
            def check(list_=list_):
                wrong = [e for e in list_ if e]
                if wrong:
                    raise Failure(f"{len(wrong)} of {len(list_)}: " + "\n".join(wrong[:3]))
                return f"{len(list_)} times"
            self.check(f"failing {call}", check)

        def enough():
            if hits < total * 0.9:
                raise Failure(f"of {total} system calls only {hits} were made and failed: the rest tests nothing")
            return f"{hits} of {total} were made, and failed"
        self.check("enough system calls failed", enough)

    def calls_made(self):
        """Returns for each call how often the process that makes it most often does so."""
        trace, most = Path(os.environ["TMPDIR"]) / "trace", collections.Counter()
        good("run", "--rm", "--", "true", prefix=["strace", "-f", "-qqq", "-o", trace, "-e", f"trace={','.join(self.CALLS)}",
                                                  "-e", "signal=none"])
        made = collections.Counter(re.findall(r"(?m)^(\d+) +(\w+)\(", trace.read_text(errors="replace")))
        trace.unlink()
        for (_, call), n in made.items():
            most[call] = max(most[call], n)
        if len(most) < 40:
            raise Failure(f"only these are made: {sorted(most)}")
        return most

    def traced(self, call, inject):
        """Runs hutch run under strace; returns how many calls failed for us."""
        trace = Path(os.environ["TMPDIR"]) / "trace"
        try:
            r = hutch("run", "--rm", "--", "true", prefix=["strace", "-f", "-qqq", "-o", trace, "-e", f"trace={call}", "-e", "signal=none",
                                                           "-e", f"inject={inject}"])
            return r, trace.read_text(errors="replace").count("(INJECTED)")
        finally:
            trace.unlink(missing_ok=True)


def attach(strace, pid):
    """Stops the process while strace attaches: it runs for a few milliseconds only."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
    tracer = subprocess.Popen([*strace, "-p", str(pid)], stderr=subprocess.DEVNULL)
    with contextlib.suppress(OSError):
        until(lambda: tracer.poll() is not None or "\nTracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text(), "a tracer")
        os.kill(pid, signal.SIGCONT)
    return tracer
