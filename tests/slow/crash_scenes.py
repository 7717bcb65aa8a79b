# SPDX-License-Identifier: Apache-2.0
"""Scenes for crash.py: sequences of hutch commands during which a fault strikes. Running them
without a fault also lists the fault points."""

import collections
import contextlib
import ctypes
import os
import random
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import crash_net
from crash_ledger import (AUDIT, FOREVER, ID, LOGS, RUN, STATE, Failure, audited, good, host_files, hutch, names, orphans_end, ps,
                          records, tidy, until, warden_of)
from waiting import ended

HOST_FILE = 256 << 10  # size at which a file of the host chain is full
NEXT_FILE = 4 << 20  # size at which a sandbox's chain needs another file


IN_CREATE, IN_ONLYDIR = 0x100, 0x1000000
libc = ctypes.CDLL(None, use_errno=True)


class Logs:
    """Opens the log of each sandbox as soon as it exists, because it is removed with its
    directory: holds the messages of wardens and keepers."""

    def __init__(self):
        self.files = {}
        self.fd = libc.inotify_init1(os.O_CLOEXEC)
        self.end, self.ask = os.pipe()
        self.add(RUN / "sandboxes")
        self.thread = threading.Thread(target=self.watch)

    def add(self, path):
        """Watches a directory for new entries. Adding it twice does no harm."""
        libc.inotify_add_watch(self.fd, os.fsencode(path), IN_CREATE | IN_ONLYDIR)

    def look(self):
        for sandbox in names(RUN / "sandboxes"):
            if sandbox not in self.files:
                self.add(RUN / "sandboxes" / sandbox)
                with contextlib.suppress(OSError):
                    self.files[sandbox] = open(RUN / "sandboxes" / sandbox / "log", encoding="utf-8", errors="replace")

    def watch(self):
        while self.end not in select.select([self.fd, self.end], [], [])[0]:
            os.read(self.fd, 1 << 16)
            self.look()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.ask)
        self.thread.join()
        self.look()
        for fd in (self.fd, self.end):
            os.close(fd)
        self.text = ""
        for file in self.files.values():
            self.text += file.read()
            file.close()


class Scene:
    """Runs commands with a fault and collects exit codes and the messages of all processes
    involved."""

    def __init__(self, ledger, fault, env):
        self.ledger, self.fault, self.env, self.log = ledger, fault, dict(env or {}), AUDIT
        self.stderr, self.codes, self.logs = "", [], Logs()
        self.frozen = False  # its leftovers may be frozen and then cannot end by themselves

    def step(self, *args, **env):
        r = hutch(*args, fault=self.fault, env={**self.env, **env})
        self.stderr += r.stderr
        self.codes.append(r.returncode)
        if self.fault and "=kill" in self.fault:
            self.settle(f"hutch {args[0]} with {self.fault}", {**self.env, **env})
        return r.stdout.strip()

    def settle(self, what, env):
        """Frozen processes need a hutch command to end: a deadline may freeze them just before
        the fault strikes."""
        orphans_end(self.ledger, what, (lambda: good("ps", env=env)) if self.frozen else lambda: None)

    def quick(self, *args):
        """Runs one of many commands."""
        r = hutch(*args, fault=self.fault, env=self.env)
        self.stderr += r.stderr
        if r.returncode:
            self.codes.append(r.returncode)

    def use_log(self, path):
        """Switches to another audit log."""
        self.log, self.env["HUTCH_AUDIT_DIR"] = path, str(path)

    def look(self, sandbox):
        """Reads everything about a sandbox in any state: an answer or a refusal, never a crash."""
        for command in (["ps", "-e"], ["inspect", sandbox], ["receipt", sandbox], ["logs", f"{sandbox}/1"], ["logs", f"{sandbox}/2"]):
            hutch(*command, fault=self.fault, env=self.env)

    @property
    def said(self):
        return self.stderr + self.logs.text


def life(s):
    """Creates, uses, ends and forgets a sandbox."""
    sandbox = s.step("create")
    if not ID.fullmatch(sandbox):
        sandbox = next(iter(ps()), None)
    if sandbox:
        s.step("exec", sandbox, "--", "true")
        s.step("exec", "-d", sandbox, "--", "sh", "-c", "echo one; echo two >&2")
        s.step("wait", f"{sandbox}/2")
        s.step("ttl", sandbox, "30m")
        with tempfile.TemporaryDirectory() as d:
            (Path(d) / "file").write_text("crash")
            s.step("cp", f"{d}/file", f"{sandbox}:/tmp/file")
            s.step("cp", f"{sandbox}:/tmp/file", f"{d}/back")
        s.step("kill", sandbox)
        s.look(sandbox)
        s.step("rm", "-f", sandbox)
    s.step("gc", "--ended")


def once(s):
    s.step("run", "--rm", "--", "true")
    s.step("run", "--", "sh", "-c", "echo x")


def pool(s):
    """Makes, takes and uses a spare; another one replaces it; removes all."""
    s.step("pool", "fill")
    sandbox = s.step("create", "--rm")
    if ID.fullmatch(sandbox):
        s.step("exec", sandbox, "--", "true")
        s.step("rm", "-f", sandbox)
    s.step("pool", "drain")


def lost(s):
    """Kills the warden; another command reclaims the sandbox."""
    sandbox = good("create").strip()
    os.kill(warden_of(sandbox), signal.SIGKILL)
    s.ledger.zero("kill -9", "process")
    s.step("ps", "-a")
    s.step("rm", sandbox)


def paused(s):
    """Pauses, resumes, lets the deadline pause, and ends a paused sandbox."""
    s.frozen = True
    sandbox = s.step("create")
    if not ID.fullmatch(sandbox):
        sandbox = next(iter(ps()), None)
    if not sandbox:
        return
    s.step("exec", "-d", sandbox, "--", *FOREVER)
    s.step("pause", sandbox)
    s.look(sandbox)
    s.step("resume", "--deadline", "20m", sandbox)
    if not any(s.codes):
        s.step("ttl", "--on-timeout", "pause", sandbox, "1ms")
        until(lambda: ps("-a").get(sandbox, {}).get("state") != "running", "the pause of a deadline")
        s.step("ps")
        s.step("resume", sandbox)
        s.step("pause", sandbox)
    s.step("kill", sandbox)
    s.step("rm", "-f", sandbox)


def lost_paused(s):
    """Kills the warden of a paused sandbox: the frozen processes stay until a command reclaims
    them."""
    s.frozen = True
    sandbox = good("create").strip()
    good("exec", "-d", sandbox, "--", *FOREVER)
    good("pause", sandbox)
    warden = warden_of(sandbox)
    os.kill(warden, signal.SIGKILL)
    ended(warden, "the warden")  # wait for the process: it drops its lock earlier
    s.step("ps", "-a")
    s.step("rm", sandbox)


def image(s):
    """An image is imported and removed."""
    with tempfile.TemporaryDirectory() as d:
        (Path(d) / "etc").mkdir()
        (Path(d) / "etc/motd").write_text("crash")
        subprocess.run(["tar", "-C", d, "-cf", f"{d}/image.tar", "etc"], check=True)
        s.step("image", "import", "crashed", f"{d}/image.tar")
    s.step("image", "rm", "crashed")
    if (STATE / "images/names/crashed.json").exists():
        good("image", "rm", "crashed")


def egress(s):
    """A sandbox with egress to names without a server and to an unreachable address. Nothing is
    sent: there is only loopback."""
    s.env["HUTCH_RESOLVER"] = "127.0.0.1:53"
    sandbox = s.step("create", "-a", egress_agent())
    if ID.fullmatch(sandbox):
        # An allowed name, a denied name and a stream: each gets an answer, and all fail.
        ask = "import socket\nfor host, port in (('crash.example', 443), ('other.example', 443), ('192.0.2.1', 443)):\n" \
              "    s = socket.socket()\n    s.settimeout(120)\n    try:\n        s.connect((host, port))\n    except OSError:\n        pass\n"
        s.step("exec", sandbox, "--", "python3", "-c", ask)
        s.step("rm", "-f", sandbox)


def egress_agent():
    from sandbox import agent
    return agent("crashed", "egress:\n  domains: [crash.example, '192.0.2.0/24:443']\n")


# Two requests over one connection; hutch-tap starts for the first one.
ASK = f"""
import http.client, os
c = http.client.HTTPSConnection('{crash_net.HOST}', timeout=60)
for _ in range(2):
    c.request('GET', '/', headers={{'Authorization': 'Bearer ' + os.environ['{crash_net.SECRET}']}})
    r = c.getresponse()
    r.read()
    if r.status != 200:
        raise SystemExit(f'status {{r.status}}')
"""


def tap(s):
    """A sandbox with a secret makes requests through hutch-tap, before and after the secret gets
    another value. A request without the value fails."""
    from sandbox import CONFIG, agent
    policy = agent("tapped", f"egress:\n  domains: [{crash_net.HOST}]\nsecrets:\n  {crash_net.SECRET}: {{hosts: [{crash_net.HOST}]}}\n")
    value = {"CRASH_VALUE": crash_net.VALUES[0]}
    s.env.update(HUTCH_RESOLVER=crash_net.RESOLVER, HUTCH_CONFIG_PATH=f"{crash_net.PLACE}:{CONFIG}")
    good("secret", "set", "--replace", "--env", "CRASH_VALUE", crash_net.SECRET, env=value)
    sandbox = s.step("create", "-a", policy)
    if ID.fullmatch(sandbox):
        s.step("exec", sandbox, "--", "python3", "-c", ASK)
        s.step("secret", "rotate", "--env", "CRASH_VALUE", crash_net.SECRET, CRASH_VALUE=crash_net.VALUES[1])
        s.step("exec", sandbox, "--", "python3", "-c", ASK)
        s.stderr += hutch("egress", "log", sandbox, env=s.env).stdout
        s.step("rm", "-f", sandbox)
    good("secret", "rm", crash_net.SECRET)


# ---- scenes of the audit log ----
class Template:
    """A log with ended sandboxes whose host file has space for one record: made once, copied for
    each scene."""

    path = None

    @classmethod
    def copy(cls):
        if not cls.path:
            path = LOGS / "template"
            env = {"HUTCH_AUDIT_DIR": str(path)}
            for _ in range(3):
                good("run", "--rm", "--", "true", env=env)
            while host_files(path)[-1].stat().st_size < HOST_FILE - 200:
                good("audit", "checkpoint", env=env)
            cls.path = path
        copy = LOGS / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(cls.path, copy)
        return copy


def log(s):
    """Makes the key, continues the host chain in another file, and removes the excess."""
    s.use_log(Template.copy())
    fresh = LOGS / "fresh"
    s.step("audit", "key", HUTCH_AUDIT_DIR=str(fresh))
    good("audit", "key", env={"HUTCH_AUDIT_DIR": str(fresh)})
    audited(fresh, "making the key")
    shutil.rmtree(fresh)
    s.step("run", "--rm", "--", "true")
    s.step("run", "--rm", "--", "true", HUTCH_AUDIT_MAX="200000")


def more(s):
    """Continues a sandbox's chain in another file."""
    sandbox = s.step("create")
    if not ID.fullmatch(sandbox):
        return
    argument = "\x01" * 2900  # the record holds an escape for each
    for _ in range(400):
        first = AUDIT / "sandbox" / f"{sandbox}-00000000.log"
        if not first.exists() or first.stat().st_size >= NEXT_FILE or any(s.codes):
            break
        s.quick("exec", sandbox, "--", "true", argument, argument, argument)
    second = AUDIT / "sandbox" / f"{sandbox}-00000001.log"
    for _ in range(200):  # the new file is made while other records are written
        if any(s.codes) or second.exists() and second.stat().st_size > 0:
            break
        s.quick("exec", sandbox, "--", "true")
    else:
        raise Failure(f"the chain of {sandbox} got no second file")
    s.step("rm", "-f", sandbox)


def cut(path, at_least=1):
    """Cuts the file in the middle of its last record, as a power cut does."""
    *_, (offset, _, _) = records(path)
    size = path.stat().st_size
    os.truncate(path, random.randrange(offset + at_least, size))


def torn(s):
    """A torn record at the end of the host chain, and at the end of a dead sandbox's chain."""
    sandbox = good("create").strip()
    good("exec", sandbox, "--", "true")
    os.kill(warden_of(sandbox), signal.SIGKILL)
    s.ledger.zero("kill -9", "process")
    cut(AUDIT / "sandbox" / f"{sandbox}-00000000.log")
    good("audit", "checkpoint")
    cut(host_files(AUDIT)[-1])
    s.step("run", "--rm", "--", "true")
    s.step("gc")


SCENES = {"life": life, "once": once, "lost": lost, "image": image, "egress": egress, "log": log, "more": more, "torn": torn, "pool": pool,
          "paused": paused, "lost-paused": lost_paused, "tap": tap}
FREEZING = ("paused", "lost-paused")  # a user has no freezer


def act(ledger, scene, fault=None, env=None):
    s = Scene(ledger, fault, env)
    with s.logs:
        SCENES[scene](s)
    return s


# PID 1 and the child that becomes crun cannot report which points they pass.
SILENT = {"guest-begin": "life", "guest-ready": "life", "guest-exec": "life", "guest-forked": "life", "guest-reaped": "life",
          "runtime-exec": "life"}
# A fault at these points kills another process; they cannot return an error.
OTHERS = re.compile(r"^(runtime-forked|warden-spawned|guest-(started|noted|receipt)|keeper-receipt|netns-child|tap-spawned)$")


def discover(ledger):
    """Finds the fault points: {point: [(scene, N)...]}. N counts the passes in one process, up
    to three, or all for the audit log."""
    found = collections.defaultdict(list)
    for scene in SCENES:
        if scene in FREEZING and os.geteuid() != 0:
            continue
        s = act(ledger, scene, env={"HUTCH_FAULT_LIST": "1"})
        if any(s.codes):
            raise Failure(f"{scene} went wrong without a fault: {s.codes} {s.said}")
        passed = collections.Counter(re.findall(r"(?m)^fault point (\S+ in \d+)$", s.said))
        for point in {p.split()[0] for p in passed}:
            n = max(n for p, n in passed.items() if p.split()[0] == point)
            found[point].extend((scene, i + 1) for i in range(min(n, 8 if point.startswith("audit-") else 3)))
        tidy(ledger, f"discovery by {scene}", s.log)
    for point, scene in SILENT.items():
        found.setdefault(point, [(scene, 1)])
    return {point: found[point] for point in sorted(found)}
