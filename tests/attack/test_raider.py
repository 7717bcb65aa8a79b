# SPDX-License-Identifier: Apache-2.0
"""
A sandbox under the attacker's control from its first process: raider.c in place of hutch-guest.
Whatever it sends, hutch reports the result, the sandbox ends, the keeper stays small, and nothing
is left behind.
"""

import contextlib
import os
import re
import socket
import stat
import time
from pathlib import Path

import wire
from sandbox import RUN, SandboxCase, as_root, children_of, create, hutch, log_of, start, warden_of
from waiting import LONG, eventually

BROKE = "broke the protocol"
# Instead of HELLO: the sandbox never starts.
EARLY = {"garbage": BROKE, "version": BROKE, "early": BROKE, "huge": BROKE, "fields": BROKE,
         "leave": "ended before it answered", "end": "ended before it answered"}
# Instead of an answer to a command. The keeper's log names the rule.
LATE = {"unknown-channel": "not in this state", "accept-twice": "not in this state", "data-first": "not in this state",
        "after-eof": "after EOF", "after-close": "not in this state", "own-open": "no such operation", "credit": "wrong amount",
        "no-credit": "wrong amount", "stream": "no such stream", "reserved": "not a frame", "type": "not a frame", "too-long": "too long",
        "two-ends": "a code or a signal", "late-hello": "a second HELLO", "late-garbage": ""}
SMALL = 24 << 20  # limit for a keeper under attack; an idle one uses 2 MiB plus buffers


def peak(pid):
    """Returns the peak memory use of a process."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) << 10


def cpu(pid):
    """Returns the CPU time in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def keeper_of(sandbox):
    return children_of(warden_of(sandbox), "hutch-keeper")[0]


class Raid(SandboxCase):
    @contextlib.contextmanager
    def raider(self, mode):
        """Runs hutch with another agent."""
        with self.instead_of("guest", Path(os.environ["RAIDER"]), b"\0" + mode.encode()):
            yield

    @contextlib.contextmanager
    def sandbox(self, mode, *opts):
        with self.raider(mode):
            sandbox = create(*opts)
            try:
                yield sandbox
            finally:
                hutch("rm", "-f", sandbox)

    def client(self, sandbox):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(RUN / "sandboxes" / sandbox / "sock"))
        link = wire.Link(s)
        self.addCleanup(link.close)
        link.hello(read=(), write=(), execute=())
        return link

    # ---- rules broken ----
    def test_instead_of_hello(self):
        for mode, said in EARLY.items():
            with self.subTest(mode=mode), self.raider(mode):
                self.assertRegex(self.refused("run", "--rm", "--", "true"), said)

    def test_hello_for_ever(self):
        """The sandbox may start between the first and the second HELLO."""
        with self.raider("hellos"):
            self.assertRegex(self.refused("run", "--rm", "--", "true"), BROKE)

    @as_root
    def test_no_hello(self):
        """Sends three bytes of HELLO and nothing else. The keeper waits for the rest."""
        with self.raider("half"):
            self.assertRegex(self.refused("run", "--rm", "--", "true"), BROKE)

    def test_instead_of_an_answer(self):
        for mode, rule in LATE.items():
            with self.subTest(mode=mode), self.sandbox(mode) as sandbox:
                self.assertRegex(self.refused("exec", sandbox, "--", "true"), BROKE)
                self.gone(sandbox, "protocol")
                self.assertIn(rule, log_of(sandbox))

    def test_more_data_than_was_asked_for(self):
        with self.sandbox("without-credit") as sandbox:
            link = self.client(sandbox)
            link.open("exec", argv=["true"], env=[], give_credit=False)
            link.wait_ended()
            self.gone(sandbox, "protocol")
            self.assertIn("more than there is credit for", log_of(sandbox))

    def test_leaves(self):
        for mode in ("late-leave", "late-end"):
            with self.subTest(mode=mode), self.sandbox(mode) as sandbox:
                self.assertIn("ended", self.refused("exec", sandbox, "--", "true"))
                self.gone(sandbox, "guest-ended")

    # ---- no rule broken ----
    def test_never_answers(self):
        for mode in ("mute", "pings"):
            with self.subTest(mode=mode), self.sandbox(mode) as sandbox:
                keeper = keeper_of(sandbox)
                self.assertIn("time limit", self.refused("exec", "--timeout", "2s", sandbox, "--", "true", code=124))
                self.assertLess(peak(keeper), SMALL)
                self.assertLess(cpu(keeper), 1)
                self.ended(hutch("kill", sandbox), 0)
                self.gone(sandbox, "killed")

    def test_does_not_make_the_keeper_spin(self):
        """A deaf agent with pending data. The control listens and does not answer: the keeper is
        idle and uses no CPU time."""
        with self.sandbox("deaf") as sandbox:
            keeper, begun = keeper_of(sandbox), time.monotonic()
            # The first command makes the agent deaf at an unknown time; the keeper notices with the
            # next data it sends.
            clients, used = [], 0

            def noticed():
                nonlocal used
                if len(clients) < time.monotonic() - begun:
                    clients.append(start("exec", sandbox, "--", "true"))
                with contextlib.suppress(OSError):
                    used = cpu(keeper)
                return any(c.poll() is not None for c in clients)

            eventually(noticed, "the end of a client")
            self.assertEqual({c.wait(LONG) for c in clients}, {125})
            self.assertLess(used, 0.5)
            self.gone(sandbox, "protocol")

    def test_codes_and_texts_of_its_own(self):
        with self.sandbox("codes") as sandbox:
            for i in range(4):  # 14 to 17: the guest's, the keeper's, undefined
                said = self.refused("exec", sandbox, "--", "true")
                self.assertEqual(said.count("\n"), 1, said)
                self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f\u202e]")
                self.assertIn("owned", said)
            link = self.client(sandbox)
            codes = {link.open("exec", argv=["true"], env=[]).wait_closed() for _ in range(200)}
            self.assertEqual(codes, {wire.IO}, "from 18 on")

    def test_an_exit_is_told_once(self):
        with self.sandbox("lie") as sandbox:
            ch = self.client(sandbox).open("exec", argv=["true"], env=[])
            ch.wait_closed()
            self.assertEqual(len([k for k, _ in ch.msgs if k == wire.EXIT]), 1)

    def test_descriptors_are_not_taken(self):
        with self.sandbox("rights") as sandbox:
            keeper = keeper_of(sandbox)
            self.ended(hutch("exec", sandbox, "--", "true"), 0)
            self.ended(hutch("exec", sandbox, "--", "true"), 0)
            if os.geteuid() == 0:
                self.assertLess(len(os.listdir(f"/proc/{keeper}/fd")), 20)
            self.assertLess(peak(keeper), SMALL)

    def test_urgent_bytes(self):
        """Out-of-band bytes arrive in line or not at all. At worst they end the sandbox."""
        with self.sandbox("urgent") as sandbox:
            r = hutch("exec", "--timeout", "3s", sandbox, "--", "true")
            self.assertIn(r.returncode, (124, 125))

    # ---- PID 1 ----
    def test_pid_1_cannot_touch_its_host(self):
        """Tries with all capabilities it has. The last line is the control: it can write its own
        file."""
        guest_before = Path(os.environ["RAIDER"]).read_bytes()
        null = os.stat("/dev/null")
        with self.raider("reports"):
            path = Path(os.environ["HUTCH_GUEST"])
            before = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), path.stat().st_uid)
            said = dict(line.split(": ") for line in self.out("true").splitlines())
            self.assertEqual(before, (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), path.stat().st_uid))
        self.assertEqual(said.pop("write own"), "ok")
        self.assertEqual(len(said), 14)
        self.assertEqual({k: v for k, v in said.items() if v not in ("EACCES", "EROFS", "EPERM")}, {})
        now = os.stat("/dev/null")
        self.assertEqual((null.st_uid, null.st_gid, null.st_mode), (now.st_uid, now.st_gid, now.st_mode))
        self.assertEqual(Path(os.environ["RAIDER"]).read_bytes(), guest_before)
