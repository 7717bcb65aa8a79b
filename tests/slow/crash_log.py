# SPDX-License-Identifier: Apache-2.0
"""The parts of crash.py about disks: power cuts, a full disk, torn records."""

import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

from crash_ledger import (AUDIT, BEGIN, FOREVER, ID, LOGS, RUN, SEAL, TORN, Failure, audited, good, host_files, hutch, lives, names,
                          new_log, ps, records, tag, tidy, until, verify, warden_of)
from crash_scenes import cut


class Logged:
    """Part of Suite."""

    # ---- power ----
    def power(self):
        n, round_ = self.count(200, 8), 25  # ended sandboxes are copied too, so start afresh
        for i in range(0, n, round_):
            self.check("power", lambda i=i: self.power_cuts(min(round_, n - i)))

    def power_cuts(self, n):
        stop, errors = threading.Event(), []
        witness = good("create").strip()
        watched = subprocess.Popen([os.environ["HUTCH"], "exec", witness, "--", *FOREVER], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        warden = warden_of(witness)

        def activity():
            while not stop.is_set() and not errors:
                try:
                    sandbox = good("create").strip()
                    good("exec", sandbox, "--", "echo", "recorded")
                    good("exec", sandbox, "--", "sh", "-c", "echo again")
                    good("exec", "-d", sandbox, "--", "sh", "-c", "for i in $(seq 200); do echo $i; done")
                    good("run", "--rm", "--", "true")
                    good("kill", sandbox)
                    if random.random() < 0.7:
                        good("rm", sandbox)
                except Failure as e:
                    errors.append(str(e))

        threads = [threading.Thread(target=activity) for _ in range(2)]
        for t in threads:
            t.start()
        kinds = collections.Counter()
        try:
            for i in range(n):
                wanted = size_of(AUDIT) + random.choice((0, random.randrange(2000)))
                until(lambda: errors or size_of(AUDIT) >= wanted, "more in the audit log")
                kinds.update(self.power_cut(Path(os.environ["TMPDIR"]) / f"copy{i}"))
        finally:
            stop.set()
            for t in threads:
                t.join()
        if errors:
            raise Failure(f"a living sandbox was hit: {errors[0]}")
        if watched.poll() is not None or warden_of(witness) != warden or ps()[witness]["state"] != "running":
            raise Failure(f"the witness was hit: {watched.poll()}")
        watched.kill()
        watched.communicate()
        tidy(self.ledger, f"{n} power cuts")
        new_log()
        return f"{n} times, {dict(kinds)}"

    def power_cut(self, copy):
        """Opens a copy as found after a power cut."""
        def copy_file(a, b, **_):
            with contextlib.suppress(OSError):
                st = os.lstat(a)
                if os.path.stat.S_ISREG(st.st_mode):
                    Path(b).write_bytes(Path(a).read_bytes())
                    os.chmod(b, 0o600)
                elif os.path.stat.S_ISSOCK(st.st_mode):
                    with socket.socket(socket.AF_UNIX) as s:
                        s.bind(os.fspath(b))

        log = LOGS / "power"
        for _ in range(100):
            for place in (copy, log):
                shutil.rmtree(place, ignore_errors=True)
            with self.stopped() as running:
                with contextlib.suppress(shutil.Error, OSError):
                    shutil.copytree(RUN, copy, copy_function=copy_file, symlinks=True)
                shutil.copytree(AUDIT, log)
                if not running():  # no process was started meanwhile
                    break
        for place in (copy, copy / "sandboxes", copy / "ids", *copy.glob("sandboxes/*")):
            if place.is_dir():
                place.chmod(0o700)
        found = len(names(copy / "sandboxes"))
        (copy / "sandboxes").mkdir(exist_ok=True, mode=0o700)
        self.ledger.tags.append(tag(copy))
        env = {"HUTCH_RUN_DIR": str(copy), "HUTCH_AUDIT_DIR": str(log)}
        torn = lose(log)
        verify(log, "a power cut")
        rows = ps("-a", env=env)
        if any(row["state"] in ("running", "starting") for row in rows.values()):
            raise Failure(f"a copy has living sandboxes: {rows}")
        for sandbox in random.sample(sorted(rows), min(len(rows), 3)):
            good("inspect", sandbox, env=env)
            for command in (["ps", "-e"], ["receipt", sandbox], ["logs", f"{sandbox}/1"], ["logs", f"{sandbox}/2"]):
                hutch(*command, env=env)
        said = json.loads(good("gc", "--ended", "--json", env=env))
        left = names(copy / "sandboxes") + names(copy / "ids") + [name for name in names(copy / "ended") if ID.match(name)]
        if left:
            raise Failure(f"gc left {left} of a copy, and said {said}")
        if random.random() < 0.5 and hutch("ps", "-a", env=env).returncode != 0:
            raise Failure("ps fails after gc")
        audited(log, "a power cut and gc")
        good("run", "--rm", "--", "true", env={"HUTCH_AUDIT_DIR": str(log)})
        audited(log, "a power cut and a start")
        shutil.rmtree(copy)
        shutil.rmtree(log)
        return {"copies": 1, "sandboxes": found, "torn chains": torn}

    @contextlib.contextmanager
    def stopped(self):
        """Stops all writers; writes in progress complete. A process that waits in vfork() for a
        stopped child does not stop, but does not write either."""
        held = set()

        def running():
            return {pid for pid, comm, state in self.ledger.processes() if comm in ("hutch", "hutch-keeper") and
                    state not in ("TZXD" if pid in held else "TZX")}

        def stop():
            for pid in (pids := running()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
                    held.add(pid)
            return not pids

        try:
            until(stop, "everybody stands still", pause_max=0.0005)
            yield running
        finally:
            for pid in held:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)


    # ---- torn ----
    def torn(self):
        def check(which):
            n = self.count(20, 2)
            for i in range(n):
                self.one_torn(which, i)
            return f"{n} times"

        for which in ("host", "chain", "both"):
            self.check(f"torn record: {which}", lambda which=which: check(which))

    def one_torn(self, which, i):
        """Cuts the log of a used sandbox, or every other time of one whose chain has a single
        record, which may vanish completely."""
        sandbox = good("create").strip()
        if i % 2 == 0:
            good("exec", sandbox, "--", "true")
        os.kill(warden_of(sandbox), signal.SIGKILL)
        self.ledger.zero("kill -9", "process")
        if i % 2 == 0:
            good("audit", "checkpoint")
        if which in ("host", "both"):
            cut(host_files(AUDIT)[-1])
        if which in ("chain", "both"):
            cut(AUDIT / f"sandbox/{sandbox}-00000000.log")
        report = verify(AUDIT, f"{which} cut short")
        if report["torn"] != (2 if which == "both" else 1):
            raise Failure(f"verify does not tell of torn records: {report}")
        good("run", "--rm", "--", "true")
        report = verify(AUDIT, f"{which} cut short, and a start")
        if which != "chain" and not any(kind == TORN for file in host_files(AUDIT) for _, kind, _ in records(file)):
            raise Failure("the host chain does not say that a record was torn")
        tidy(self.ledger, f"{which} cut short")


    # ---- disk ----
    def disk(self):
        if os.geteuid() != 0:
            return  # mount(2) needs root
        log = LOGS / "small"
        log.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "crash", log], check=True)
        self.ledger.before |= {line for line in self.ledger.look() if "crash" in line or str(log) in line}
        try:
            self.check("the disk of the audit log is full", lambda: self.full_disks(log))
        finally:
            subprocess.run(["umount", log], check=True)

    def full_disks(self, log):
        env, n, told = {"HUTCH_AUDIT_DIR": str(log)}, self.count(40, 4), collections.Counter()
        fill = log / "fill"
        for _ in range(n):
            new_log(log)
            good("run", "--rm", "--", "true", env=env)
            stop = threading.Event()
            left = random.choice((0, 1, 2, 3)) * 4096
            later = size_of(log) + random.randrange(40000) if random.random() < 0.7 else 0

            def fill_up(left=left, later=later, stop=stop):
                until(lambda: stop.is_set() or size_of(log) >= later, "more in the audit log")
                st = os.statvfs(log)
                with contextlib.suppress(OSError), open(fill, "wb", buffering=0) as f:
                    for _ in range(max(0, st.f_bavail * st.f_bsize - left) // 4096):
                        f.write(bytes(4096))

            filler = threading.Thread(target=fill_up)
            filler.start()
            if not later:
                filler.join()
            said = []
            for _ in range(3):
                r = hutch("create", env=env)
                said.append((r.returncode, r.stderr.strip()))
                sandbox = r.stdout.strip()
                if r.returncode == 0:
                    for _ in range(3):
                        e = hutch("exec", sandbox, "--", "sh", "-c", "exit 0", "x" * 3000, env=env)
                        said.append((e.returncode, e.stderr.strip()))
                    hutch("rm", "-f", sandbox, env=env)
            stop.set()
            filler.join()
            # With no space at all: hutch refuses and says why.
            with open(fill, "ab", buffering=0) as f, contextlib.suppress(OSError):
                while True:
                    f.write(bytes(4096))
            r = None
            for _ in range(40):  # the last page of a file may have space
                r = hutch("create", env=env)
                if r.returncode != 0:
                    break
                hutch("rm", "-f", r.stdout.strip(), env=env)
            if r.returncode == 0 or not re.search("No space left|audit", r.stderr):
                raise Failure(f"it was started on a full disk, or nobody said why: {r.returncode} {r.stderr}")
            for code, text in said:
                told["done" if code == 0 else "refused"] += 1
                if code != 0 and not re.search("No space left|audit log", text):
                    raise Failure(f"refused, and nobody said why: {code} {text}")
            self.ledger.zero("a full disk", "process", "namespace", "mount", "socket", "control group")
            fill.unlink()
            sandbox = good("create", env=env).strip()
            good("exec", sandbox, "--", "true", env=env)
            good("rm", "-f", sandbox, env=env)
            tidy(self.ledger, "a full disk with room again", log)
        if not told["refused"]:
            raise Failure("the disk was never full")
        return f"{n} times, {dict(told)}"


def size_of(log):
    """Returns the size of all files of an audit log."""
    return sum(path.stat().st_size for path in (*host_files(log), *log.glob("sandbox/*")))


def lose(log):
    """Removes what a power cut may lose from a copy: the end of the host chain, if no other
    chain depends on it, and the ends of chains of live sandboxes."""
    torn, sealed = 0, {sandbox for sandbox, kinds in lives(log).items() if SEAL in kinds}
    for file in [*host_files(log)[-1:], *log.glob("sandbox/*")]:
        host = file.parent == log
        last = [kind for _, kind, _ in records(file)][-1:]
        if last and random.random() < 0.5 and (last[0] not in (BEGIN, SEAL) if host else file.name[:16] not in sealed and last[0] != BEGIN):
            cut(file)
            torn += 1
    return torn
