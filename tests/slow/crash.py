#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
crash.py [--build DIR] [--as root|user] [--short] [--part NAME]... [--count N] [--seed N]
[--point NAME]: makes the programs die and fail at every point and checks that nothing is left. As
root, on a build with -Dfault=true. Without arguments it runs everything, which takes about an hour.

Parts:
  control  the ledger notices every kind of leftover, a signal to an unrelated process, and an audit
           log that lacks an end or was changed
  cycles   create, exec, destroy, 1,000 times
  kill     the process dies (kill -9) at each fault point, 5 times each: hutch, warden, keeper, the
           child that becomes crun, PID 1
  crun     crun is killed at its N-th syscall of each kind that changes something
  errno    1,000 errors at fault points: ENOSPC, EMFILE, ENOMEM, EIO, EINTR
  syscall  1,000 failing syscalls of our processes or of crun (strace --inject); only as root,
           because the set-user-ID bit has no effect on a traced program
  power    200 copies of the run directory and the audit log at random instants, opened by ps,
           inspect, gc and audit verify: no crash, everything is reclaimed, no live sandbox is
           touched, and nothing is reported as forged
  reuse    unrelated processes get the pids of a sandbox's dead processes and must get no signal
  disk     the disk of the audit log is full at a random moment: hutch starts nothing, reports the
           reason, and continues once there is space
  torn     a record of the audit log is cut short before the next start: the log says so and is
           valid

After each case the ledger is as before: processes, namespaces, sockets, control groups, mounts,
files. `hutch audit verify` accepts the audit log, which has the end and the seal of every sandbox
that began. The suite runs in its own PID, mount and network namespaces, so that everything in them
is ours. The first process there reaps; a second one stays root and hands out pids; the third is the
suite, as root or as a user made for it.

crash_ledger.py has the ledger, crash_scenes.py the operations, crash_net.py the server that they
reach, crash_trace.py and crash_log.py some of the parts, crash_pids.py the first two processes.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("integration", "egress")]

import crash_net  # noqa: E402
from crash_ledger import (ERRORS, FOREVER, LOGS, RUN, Failure, Ledger, audited, good, hutch, new_log, ps, tidy,  # noqa: E402
                          until, warden_of)
from crash_log import Logged  # noqa: E402
from crash_pids import Taker, reap_until, serve_pids  # noqa: E402
from crash_scenes import OTHERS, SILENT, act, discover  # noqa: E402
from crash_trace import Traced  # noqa: E402

GONE = re.compile("the sandbox ended before it answered|ended at [0-9TZ:-]+: guest-ended|has ended: its keeper was killed")


# ---- the parts ----
class Suite(Traced, Logged):
    def __init__(self, args, taker):
        self.args, self.taker, self.ledger = args, taker, Ledger()
        new_log()
        self.number, self.failed = 0, 0

    def count(self, full, short):
        return self.args.count or (short if self.args.short else full)

    def check(self, name, fn):
        """Runs one check and prints one line of TAP."""
        began = time.monotonic()
        self.number += 1
        try:
            told = fn()
            print(f"ok {self.number} - {name}{f' ({told})' if told else ''} # {time.monotonic() - began:.1f} s", flush=True)
        except (Failure, OSError) as e:
            self.failed += 1
            print(f"not ok {self.number} - {name}\n# " + str(e).replace("\n", "\n# "), flush=True)
            self.rescue()

    def rescue(self):
        """Cleans up after a failure, so that it does not affect the next check."""
        for _ in range(3):
            with contextlib.suppress(Failure, OSError):
                for sandbox in ps("-a"):
                    hutch("rm", "-f", sandbox)
                good("gc", "--ended")
        for pid, _, _ in list(self.ledger.processes()):
            if f"process {pid} " not in "".join(self.ledger.before) and pid not in self.ledger.innocent:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.ledger.before |= self.ledger.look()
        new_log()

    # ---- control ----
    def seen(self, kind, make):
        def check():
            with contextlib.ExitStack() as stack:
                make(stack)
                until(lambda: self.ledger.more(kind), f"the ledger sees a {kind}")
                try:
                    self.ledger.zero("nothing", kind, timeout=0)
                except Failure:
                    pass
                else:
                    raise Failure(f"the ledger does not complain of a {kind}")
            self.ledger.zero(f"the control of {kind}")
        self.check(f"control: the ledger sees a {kind}", check)

    def control(self):
        def process(stack):
            p = stack.enter_context(subprocess.Popen(FOREVER))
            stack.callback(p.kill)

        def sock(stack):
            stack.enter_context(socket.socketpair()[0])

        def file(stack):
            path = RUN / "sandboxes" / "left"
            path.touch()
            stack.callback(path.unlink)

        def namespace(stack):
            p = stack.enter_context(subprocess.Popen(["unshare", "--user", *FOREVER]))
            stack.callback(p.kill)

        def mount(stack):
            p = stack.enter_context(subprocess.Popen(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                                                      "mount -t tmpfs left /mnt && exec sleep 4321"]))
            stack.callback(p.kill)

        def group(stack):
            sandbox = good("create").strip()
            stack.callback(good, "gc")
            stack.callback(good, "rm", "-f", sandbox)

        self.seen("process", process)
        self.seen("socket", sock)
        self.seen("file", file)
        self.seen("namespace", namespace)
        self.seen("mount", mount)
        if os.geteuid() == 0:
            self.seen("control group", group)
        self.check("control: a signal to an innocent process is noticed", self.control_signal)
        self.check("control: a fault that does not strike is noticed", self.control_fault)
        self.check("control: an audit log without an end, or changed, is noticed", self.control_log)

    def control_signal(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
            with self.innocents([0]) as [pid]:
                untouched(pid)
                os.kill(pid, number)
                until(lambda pid=pid: is_touched(pid), f"signal {number} is seen")
        self.ledger.zero("innocent processes")

    def control_fault(self):
        try:
            self.one_kill("no-such-point", "life", 1)
        except Failure as e:
            if "did not strike" not in str(e):
                raise
            return
        raise Failure("it was not noticed")

    def control_log(self):
        """A valid log without its last records lacks the end of a sandbox; with a changed byte
        it is forged."""
        log = LOGS / "control"
        sandbox = good("create", env={"HUTCH_AUDIT_DIR": str(log)}).strip()
        unended = LOGS / "unended"
        shutil.copytree(log, unended)
        good("rm", "-f", sandbox, env={"HUTCH_AUDIT_DIR": str(log)})
        audited(log, "control")
        chain = log / f"sandbox/{sandbox}-00000000.log"
        chain.chmod(0o600)
        chain.write_bytes(chain.read_bytes().replace(b"begin", b"began").replace(sandbox.encode(), sandbox[::-1].encode()))
        for path, wrong in ((unended, "no end or no seal"), (log, "is not good")):
            try:
                audited(path, "control")
            except Failure as e:
                if wrong in str(e):
                    continue
                raise
            raise Failure(f"it was not noticed: {wrong}")
        shutil.rmtree(log)
        shutil.rmtree(unended)
        tidy(self.ledger, "the control of the log")

    # ---- cycles ----
    def cycles(self):
        def check():
            n = self.count(1000, 20)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(cycle, range(n)))
            tidy(self.ledger, f"{n} cycles")
            return f"{n} cycles"

        def cycle(i):
            sandbox = good("create").strip()
            if good("exec", sandbox, "--", "echo", str(i)) != f"{i}\n":
                raise Failure("another output than was asked for")
            good("rm", "-f", sandbox)

        self.check("cycles", check)

    # ---- kill ----
    def one_kill(self, point, scene, n):
        fault, s = self.strike(point, scene, n, "kill")
        tidy(self.ledger, f"{fault} in {scene}", s.log)

    def strike(self, point, scene, n, what):
        """The number of passes of a point may depend on timing: if N is not reached, use the
        first pass."""
        for i in sorted({n, 1}, reverse=True):
            fault = f"{point}:{i}={what}"
            s = act(self.ledger, scene, fault=fault)
            if struck(s, point) or point in SILENT and what != "kill":
                return fault, s
            tidy(self.ledger, f"{fault} in {scene}", s.log)
        raise Failure(f"{fault} did not strike in {scene}: {s.codes} {s.said[-1000:]}")

    def kill(self):
        points = self.points()
        times = self.count(5, 1)
        for point, places in points.items():
            def check(point=point, places=places):
                chosen = [random.choice(places)] if times == 1 else (random.sample(places, len(places)) * times)[:max(times, len(places))]
                for place in chosen:
                    self.one_kill(point, *place)
                return f"{len(chosen)} times"
            self.check(f"kill at {point}", check)

    def points(self):
        points = discover(self.ledger)
        if len(points) < 90:
            raise Failure(f"only {len(points)} fault points were found: is this a build with -Dfault=true?")
        if self.args.point:
            points = {p: v for p, v in points.items() if p in self.args.point}
        if self.args.short:  # the slow scene only for points that no other scene reaches
            points = {p: [place for place in places if place[0] != "more"] or places for p, places in points.items()}
        print(f"# {len(points)} fault points", flush=True)
        return points

    # ---- errno ----
    def errno(self):
        points = {p: v for p, v in self.points().items() if not OTHERS.match(p)}
        total, done, rounds = self.count(1000, 40), 0, 0
        results = collections.defaultdict(list)
        order = [(point, random.sample(places, len(places))) for point, places in points.items()]
        if self.args.short:
            random.shuffle(order)
        while done < total:
            for i, (point, places) in enumerate(order):
                if done == total:
                    break
                scene, n = places[rounds % len(places)]
                error = ERRORS[(i + rounds) % len(ERRORS)]
                try:
                    fault, s = self.strike(point, scene, n, error)
                    if -signal.SIGKILL in s.codes:
                        raise Failure(f"{fault}: an error killed hutch: {s.said}")
                    tidy(self.ledger, f"{fault} in {scene}", s.log)
                    results[point].append(None)
                except Failure as e:
                    results[point].append(str(e))
                    self.rescue()
                done += 1
            rounds += 1
        for point, list_ in sorted(results.items()):
            def check(list_=list_):
                wrong = [e for e in list_ if e]
                if wrong:
                    raise Failure(f"{len(wrong)} of {len(list_)}: {wrong[0]}")
                return f"{len(list_)} times"
            self.check(f"error at {point}", check)

    # ---- reuse ----
    def reuse(self):
        for what in ("warden", "keeper", "guest", "all"):
            def check(what=what):
                n = self.count(10, 2)
                for _ in range(n):
                    self.one_reuse(what)
                return f"{n} times"
            self.check(f"reuse of the number of {what}", check)

    @contextlib.contextmanager
    def innocents(self, pids):
        """Starts processes of the suite's user with these pids (0: any). They block all signals,
        so that a signal sent to them stays pending."""
        taken = [self.taker.take(pid) for pid in pids]
        self.ledger.innocent |= set(taken)
        try:
            yield taken
        finally:
            for pid in taken:
                self.taker.end(pid)
            self.ledger.innocent -= set(taken)

    def one_reuse(self, what):
        from sandbox import children_of
        sandbox = good("create").strip()
        warden = warden_of(sandbox)
        [keeper], [guest] = children_of(warden, "hutch-keeper"), children_of(warden, "hutch-guest")
        victims = {"warden": [warden], "keeper": [keeper], "guest": [guest], "all": [warden, keeper, guest]}[what]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):  # gone with the previous one
                os.kill(pid, signal.SIGKILL)
        self.ledger.zero("kill -9", "process")  # killing any of them ends the sandbox
        with self.innocents([warden, keeper, guest]) as pids:
            if sorted(pids) != sorted([warden, keeper, guest]):
                raise Failure("the numbers were not taken")
            for command in (["ps", "-a"], ["inspect", sandbox], ["kill", sandbox], ["gc"], ["ps"], ["run", "--rm", "--", "true"]):
                good(*command)
                for pid in pids:
                    untouched(pid)
        tidy(self.ledger, f"reuse of {what}")


def struck(s, point):
    """Returns whether the fault struck. PID 1 and the child that becomes crun cannot report it;
    other processes report how they ended."""
    told = f"struck at {point} " in s.said or f"fault point {point}: " in s.said
    return told or point in SILENT and any(s.codes) and bool(GONE.search(s.said))


def is_touched(pid):
    try:
        untouched(pid)
    except Failure:
        return True
    return False


def untouched(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        raise Failure(f"process {pid}, which is nobody's, is dead") from None
    pending = [int(re.search(rf"(?m)^{key}:\s*(\w+)", status)[1], 16) for key in ("SigPnd", "ShdPnd")]
    state = re.search(r"(?m)^State:\s*(\w)", status)[1]
    if any(pending) or state in "ZXTt":
        raise Failure(f"process {pid}, which is nobody's, was sent signals: {pending}, and is {state}")


# ---- the suite itself ----
def inside(args):
    """PID 1 of the suite's namespaces."""
    ids = (int(os.environ["CRASH_UID"]), int(os.environ["CRASH_GID"])) if args.who == "user" else None
    crash_net.start()
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        serve_pids(theirs, ids)
    theirs.close()
    suite = os.fork()
    if suite == 0:
        if ids:
            os.setgroups([])
            os.setresgid(ids[1], ids[1], ids[1])
            os.setresuid(ids[0], ids[0], ids[0])
        os._exit(play(args, ours))
    ours.close()
    return abs(reap_until(suite))


PARTS = ("control", "cycles", "kill", "crun", "errno", "syscall", "power", "reuse", "disk", "torn")


def play(args, sock):
    random.seed(args.seed)
    print(f"# seed {args.seed}", flush=True)
    suite = Suite(args, Taker(sock))
    for part in args.part or PARTS:
        try:
            getattr(suite, part)()
        except Failure as e:
            suite.check(part, lambda e=e: (_ for _ in ()).throw(e))
    print(f"1..{suite.number}", flush=True)
    return 1 if suite.failed else 0


def outside(args):
    import run_as
    build = Path(args.build).resolve() if args.build else None
    if build:
        os.environ.update({name: str(build / place) for name, place in run_as.PROGRAMS.items() if "/" in place})
    with contextlib.ExitStack() as stack:
        tarball = run_as.image()
        user = stack.enter_context(run_as.account()) if args.who == "user" else None
        env, place, public = run_as.prepare([HERE, HERE.parent / "egress"], tarball, user, stack)
        if user:
            env.update(CRASH_UID=str(user.pw_uid), CRASH_GID=str(user.pw_gid))
        words = [a for a in sys.argv[1:] if a != "--inside"] + ["--inside", "--seed", str(args.seed)]
        return subprocess.run(["unshare", "--fork", "--kill-child", "--pid", "--mount", "--net", "--mount-proc", "/usr/bin/python3",
                               public / "tests/slow/crash.py", *words], env=env, cwd=place["cwd"], check=False).returncode


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", help="a build with -Dfault=true; or HUTCH, HUTCH_KEEPER and HUTCH_GUEST are set")
    p.add_argument("--as", dest="who", choices=("root", "user"), default="root")
    p.add_argument("--short", action="store_true")
    p.add_argument("--part", action="append", choices=PARTS)
    p.add_argument("--point", action="append")
    p.add_argument("--count", type=int)
    p.add_argument("--seed", type=int, help="of what is chosen by chance; the short form has always the same")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.seed is None:  # the short run always makes the same choices
        args.seed = 1 if args.short else random.randrange(1 << 32)
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return inside(args) if args.inside else outside(args)


if __name__ == "__main__":
    sys.exit(main())
