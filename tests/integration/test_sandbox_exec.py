# SPDX-License-Identifier: Apache-2.0
"""Commands that outlive the client that started them: records, handles, and their readers."""

import json
import os
import pty
import random
import re
import signal
import subprocess
import uuid

from sandbox import BOX, LONG, PATIENCE, RUN, SandboxCase, SharedCase, agent, children_of, eventually, hutch, start, warden_of
from waiting import readable, without_error

# Each line of 16 bytes contains its number, and so its offset.
LINES = "import sys\nfor i in range({n}): sys.stdout.buffer.write(b'%015d\\n' % i)"
SLOW = "import select, sys\nfor i in range({n}):\n  sys.stdout.buffer.write(b'%015d\\n' % i)\n" \
       "  if i % {every} == 0: sys.stdout.flush(); select.select([], [], [], {pause})"


def lines(n):
    return b"".join(b"%015d\n" % i for i in range(n))


class ExecCase(SandboxCase):
    def detach(self, sandbox, *cmd, opts=()):
        handle = self.ended(hutch("exec", "-d", *opts, sandbox, "--", *cmd), 0).stdout.decode().strip()
        self.assertRegex(handle, rf"^{sandbox}/[0-9]+$")
        return handle

    def gate(self):
        """A line of a script that blocks until the returned command runs."""
        path = f"/tmp/gate-{uuid.uuid4().hex}"
        return f"until [ -e {path} ]; do sleep 0.05; done", ("touch", path)

    def wait(self, handle, code=0):
        return self.ended(hutch("wait", handle), code)

    def logs(self, handle, *opts, **more):
        return self.ended(hutch("logs", *opts, handle, **more), 0).stdout

    def commands(self, sandbox):
        return {row["number"]: row for row in self.json("ps", "-e", "--json", sandbox)}

    def dropped(self, r):
        return sum(int(n) for n in re.findall(rb"hutch: \.\.\. ([0-9]+) bytes dropped \.\.\.\n", r.stderr))


class Detached(SharedCase, ExecCase):
    def test_a_handle_finds_it(self):
        handle = self.detach(self.sandbox, "sh", "-c", "echo out; echo err >&2; exit 7", opts=["--name", "first"])
        self.wait(handle, 7)
        self.wait(f"{self.sandbox}/first", 7)
        self.wait(f"{self.sandbox[:6]}/first", 7)
        r = hutch("logs", handle)
        self.assertEqual((r.stdout, r.stderr), (b"out\n", b"err\n"))
        self.assertEqual(self.logs(handle, "--stdout"), b"out\n")
        r = hutch("logs", "--stderr", handle)
        self.assertEqual((r.stdout, r.stderr), (b"", b"err\n"))
        r = self.ended(hutch("attach", handle), 7)
        self.assertEqual((r.stdout, r.stderr), (b"out\n", b"err\n"))
        row = self.commands(self.sandbox)[int(handle.split("/")[1])]
        self.assertEqual((row["name"], row["state"], row["end"]["exit"], row["stdout"], row["stderr"], row["dropped"]),
                         ("first", "ended", 7, 4, 4, 0))
        self.assertEqual(row["argv"], ["sh", "-c", "echo out; echo err >&2; exit 7"])

    def test_an_attached_one_is_recorded_too(self):
        self.exec_(self.sandbox, "sh", "-c", "echo kept; exit 3", code=3, opts=["--name", "seen"])
        self.assertEqual(self.logs(f"{self.sandbox}/seen"), b"kept\n")
        self.wait(f"{self.sandbox}/seen", 3)

    def test_names(self):
        self.detach(self.sandbox, "sleep", "4321", opts=["-n", "busy"])
        self.assertIn("running", self.refused("exec", "-d", "-n", "busy", self.sandbox, "--", "true"))
        for wrong in ("", "1", "12", "A", "-x", "a/b", "a b", "x" * 64):
            with self.subTest(name=wrong):
                self.refused("exec", "-d", f"--name={wrong}", self.sandbox, "--", "true")
        self.ended(hutch("signal", f"{self.sandbox}/busy", "SIGTERM"), 0)
        self.wait(f"{self.sandbox}/busy", 128 + 15)
        again = self.detach(self.sandbox, "true", opts=["-n", "busy"])  # the name is free again, and means the newer command
        self.wait(again)
        self.wait(f"{self.sandbox}/busy")

    def test_what_is_no_handle(self):
        for wrong in ("", "x", self.sandbox, f"{self.sandbox}/", f"{self.sandbox}/999999", f"{self.sandbox}/nobody", "/1",
                      f"{self.sandbox}/A", f"{self.sandbox}/0", f"{self.sandbox}/-1"):
            with self.subTest(handle=wrong):
                r = hutch("logs", wrong)
                self.assertEqual((r.returncode, r.stdout), (1, b""), r.stderr)
                self.assertIn(b"hutch logs: ", r.stderr)

    def test_signals(self):
        handle = self.detach(self.sandbox, "sh", "-c", "trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
        eventually(lambda: self.logs(handle) == b"ready\n", "the first line")
        self.ended(hutch("signal", handle, "USR1"), 0)
        self.wait(handle, 9)
        self.assertEqual(self.logs(handle), b"ready\ngot it\n")
        self.assertIn("not running", self.refused("signal", handle, "USR1"))
        self.refused("signal", handle, "NOSUCH", code=2)

    def test_stdin_by_attach(self):
        handle = self.detach(self.sandbox, "sh", "-c", "read a; echo one $a; cat; echo end", opts=["-i"])
        first = start("attach", "-i", handle, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first.stdin.write(b"x\n")
        first.stdin.flush()
        self.assertEqual(first.stdout.readline(), b"one x\n")
        self.assertIn("another client", self.refused("attach", "-i", handle))
        first.kill()
        first.wait()
        first.stdin.close()
        first.stdout.close()
        r = eventually(lambda: (r := hutch("attach", "-i", handle, input=b"more\n")).returncode == 0 and r, "the input is free")
        self.assertEqual(r.stdout, b"one x\nmore\nend\n")
        self.wait(handle)

    def test_a_time_limit_holds_for_it(self):
        handle = self.detach(self.sandbox, "sh", "-c", "echo x; sleep 4321", opts=["--timeout", f"{10 * PATIENCE}s"])
        self.wait(handle, 124)
        self.assertEqual(self.logs(handle), b"x\n")

    def test_one_that_cannot_run(self):
        self.refused("exec", "-d", self.sandbox, "--", "no-such-program", code=127)

    def test_json_of_output(self):
        gate, opens = self.gate()
        handle = self.detach(self.sandbox, "sh", "-c", rf"printf 'a\n'; {gate}; printf '\377' >&2")
        eventually(lambda: self.logs(handle) == b"a\n", "the first line")
        self.exec_(self.sandbox, *opens)
        self.wait(handle)
        rows = [json.loads(line) for line in self.logs(handle, "--json").splitlines()]
        self.assertEqual([(r["offset"], r["stream"], r.get("text"), r.get("base64")) for r in rows],
                         [(0, "stdout", "a\n", None), (2, "stderr", None, "/w==")])

    def test_since(self):
        gate, opens = self.gate()
        handle = self.detach(self.sandbox, "sh", "-c", f"echo old; {gate}; sleep 2; echo new")
        eventually(lambda: self.logs(handle) == b"old\n", "the first line")
        self.exec_(self.sandbox, *opens)
        self.wait(handle)
        rows = [json.loads(line) for line in self.logs(handle, "--json").splitlines()]
        self.assertEqual(self.logs(handle, "--since", rows[1]["time"]), b"new\n")
        self.assertEqual(self.logs(handle, "--since", "1h"), b"old\nnew\n")

    def test_what_is_shown_is_escaped(self):
        handle = self.detach(self.sandbox, "printf", "\x1b[31mred")
        self.wait(handle)
        self.assertEqual(self.logs(handle), b"\x1b[31mred")
        self.assertNotIn(b"\x1b", hutch("ps", "-e", self.sandbox).stdout)
        self.assertNotIn("\x1b", json.dumps(self.commands(self.sandbox)))


class Killed(SharedCase, ExecCase):
    def test_attach_after_the_client_was_killed(self):
        p = start("exec", "--name", "job", self.sandbox, "--", "python3", "-uc", SLOW.format(n=300, every=10, pause=0.05),
                  stdout=subprocess.PIPE)
        first = p.stdout.read(160)
        p.kill()
        p.wait()
        p.stdout.close()
        self.assertEqual(first, lines(10))
        r = self.ended(hutch("attach", f"{self.sandbox}/job"), 0)
        self.assertTrue(r.stdout == lines(300), "other bytes")
        self.assertEqual(r.stderr, b"")
        r = self.ended(hutch("attach", "--from", "160", f"{self.sandbox}/job"), 0)
        self.assertTrue(r.stdout == lines(300)[160:], "other bytes")

    def test_a_hangup_is_no_end(self):
        gate, opens = self.gate()
        p = start("exec", "--name", "hup", self.sandbox, "--", "sh", "-c", f"echo a; {gate}; echo b; exit 5", stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"a\n")
        p.send_signal(signal.SIGHUP)
        self.assertEqual(p.wait(LONG), 129)
        p.stdout.close()
        self.exec_(self.sandbox, *opens)
        self.assertEqual(self.ended(hutch("attach", f"{self.sandbox}/hup"), 5).stdout, b"a\nb\n")

    def test_one_that_was_blocked_by_its_client_goes_on(self):
        p = start("exec", "--name", "blocked", self.sandbox, "--", "python3", "-c", LINES.format(n=500000), stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.read(16), lines(1))
        eventually(lambda: self.sh(self.sandbox, "ps -o stat= -C python3 || true").startswith("S"), "that it waits for us to read")
        self.assertEqual([row["state"] for row in self.commands(self.sandbox).values() if row["name"] == "blocked"][-1:], ["running"])
        p.kill()
        p.wait()
        p.stdout.close()
        self.wait(f"{self.sandbox}/blocked")
        self.assertTrue(self.logs(f"{self.sandbox}/blocked") == lines(500000), "other bytes")


class Readers(SharedCase, ExecCase):
    N = 1 << 19  # lines: 8 MiB

    def test_1000_reconnects_at_random_offsets(self):
        want = lines(20000)
        handle = self.detach(self.sandbox, "python3", "-c", SLOW.format(n=20000, every=100, pause=0.02))
        seen = 0
        for _ in range(1000):
            at = random.randrange(len(want))
            got = self.logs(handle, "--from", str(at))
            self.assertTrue(got == want[at:at + len(got)], f"other bytes from {at} on")
            seen += len(got)
        self.wait(handle)
        self.assertGreater(seen, 0)
        self.assertTrue(self.logs(handle) == want)

    def test_49_that_do_not_read_and_one_that_does(self):
        script = "import time; t = time.monotonic()\n" + LINES.format(n=self.N) + \
                 "\nsys.stdout.flush(); open('/tmp/took', 'w').write(str(time.monotonic() - t))"
        self.wait(self.detach(self.sandbox, "python3", "-c", script))
        alone = float(self.sh(self.sandbox, "cat /tmp/took; rm /tmp/took"))
        gate = "import sys; open('/tmp/gate').read()\n"
        self.sh(self.sandbox, "mkfifo /tmp/gate")
        handle = self.detach(self.sandbox, "python3", "-c", gate + script)
        asleep = [start("attach", handle, stdout=subprocess.PIPE) for _ in range(49)]  # never read
        reads = start("attach", handle, stdout=subprocess.PIPE)
        for p in asleep[:25]:
            p.send_signal(signal.SIGSTOP)
        self.sh(self.sandbox, "echo > /tmp/gate")
        got = reads.stdout.read()
        reads.stdout.close()
        self.assertEqual(reads.wait(LONG), 0)
        self.assertTrue(got == lines(self.N), f"{len(got)} other bytes")
        self.wait(handle)
        took = float(self.sh(self.sandbox, "cat /tmp/took"))
        self.assertLess(took, 50 * alone + LONG, "somebody held it up")
        for p in asleep:
            p.kill()
            p.wait()
            p.stdout.close()


class Limits(ExecCase):
    def test_a_flood_is_cut_in_the_middle(self):
        sandbox = self.create("-a", agent("flood", "resources:\n  output: 256KiB\n"))
        n = 1 << 20
        handle = self.detach(sandbox, "python3", "-c", LINES.format(n=n))
        self.wait(handle)
        r = hutch("logs", handle)
        rows = [json.loads(line) for line in hutch("logs", "--json", handle).stdout.splitlines()]
        dropped = self.dropped(r)
        self.assertEqual(len(r.stdout) + dropped, 16 * n)
        gap = next(row for row in rows if "dropped" in row)
        head, want = gap["offset"], lines(n)
        self.assertEqual(gap["dropped"], dropped)
        self.assertTrue(r.stdout[:head] == want[:head], "the head")
        self.assertTrue(r.stdout[head:] == want[head + dropped:], "the tail")
        self.assertGreater(head, 120 << 10)
        # The ring may drop a sixteenth of its 128 KiB in advance, and block headers take space.
        self.assertGreater(len(r.stdout) - head, 112 << 10)
        self.assertLessEqual(len(r.stdout), 256 << 10)
        number = int(handle.split("/")[1])
        self.assertEqual(self.commands(sandbox)[number]["dropped"], dropped)
        self.assertLessEqual(os.stat(RUN / "sandboxes" / sandbox / f"cmd-{number}").st_size, (256 << 10) + 4096)

    def test_old_records_go_first(self):
        sandbox = self.create()
        for i in range(6):
            self.wait(self.detach(sandbox, "head", "-c", "20M", "/dev/zero"))
        total = sum(os.stat(p).st_size for p in (RUN / "sandboxes" / sandbox).glob("cmd-*"))
        self.assertLess(total, 65 << 20)
        kept = self.commands(sandbox)
        self.assertEqual(max(kept), 6)
        self.assertNotIn(1, kept)
        self.assertIn(b"older commands", hutch("ps", "-e", sandbox).stderr)

    def test_what_runs_is_not_idle(self):
        def attempt(seconds):
            sandbox = self.create("--idle", f"{seconds}s")
            r = hutch("exec", "-d", sandbox, "--", "sh", "-c", f"sleep {seconds + 2}; echo done")
            return (sandbox, r.stdout.decode().strip()) if r.returncode == 0 else self.gone(sandbox, "idle")

        sandbox, handle = self.first_in_time(attempt)
        self.wait(handle)
        self.assertEqual(self.logs(handle), b"done\n")
        self.gone(sandbox, "idle")


class Ends(ExecCase):
    def test_records_stay_until_rm(self):
        sandbox = self.create()
        done = self.detach(sandbox, "echo", "done")
        self.wait(done)
        lost = self.detach(sandbox, "sh", "-c", "echo said before; sleep 4321")
        eventually(lambda: self.logs(lost) == b"said before\n", "the first line")
        follows = start("logs", "-f", lost, stdout=subprocess.PIPE)
        waits = start("wait", lost, stderr=subprocess.PIPE)
        self.assertEqual(follows.stdout.readline(), b"said before\n")
        self.ended(hutch("kill", sandbox), 0)
        self.assertEqual((follows.stdout.read(), follows.wait(LONG)), (b"", 0))
        follows.stdout.close()
        self.assertEqual(waits.wait(LONG), 125)
        self.assertIn(b"the sandbox ended", waits.stderr.read())
        waits.stderr.close()
        self.assertEqual((self.logs(done), self.logs(lost)), (b"done\n", b"said before\n"))
        rows = self.commands(sandbox)
        self.assertEqual((rows[1]["state"], rows[2]["state"]), ("ended", "lost"))
        self.ended(hutch("rm", sandbox), 0)
        self.assertEqual(hutch("logs", done).returncode, 1)

    def test_nothing_is_lost_by_force(self):
        for victim in ("warden", "keeper", "guest"):
            with self.subTest(victim=victim):
                sandbox = self.create()
                handle = self.detach(sandbox, "python3", "-uc", SLOW.format(n=100000, every=1, pause=0.01))
                eventually(lambda h=handle: len(self.logs(h)) > 320, "some lines")
                seen = self.logs(handle)
                warden = warden_of(sandbox)
                pid = {"warden": lambda: warden, "keeper": lambda: children_of(warden, "hutch-keeper")[0],
                       "guest": lambda: children_of(warden, BOX)[0]}[victim]()
                os.kill(pid, signal.SIGKILL)
                self.ended(hutch("wait", handle), 125)
                got = self.logs(handle)
                self.assertTrue(got == lines(len(got) // 16 + 1)[:len(got)] and got.startswith(seen))
                eventually(lambda s=sandbox: self.commands(s)[1]["state"] == "lost", "the end of the sandbox")
                self.ended(hutch("rm", "-f", sandbox), 0)


class Terminal:
    """hutch on its own terminal."""

    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(os.environ["HUTCH"], [os.environ["HUTCH"], *args])
        self.data = b""

    def type(self, data):
        os.write(self.fd, data)

    def until(self, what):
        while what not in self.data:
            readable(self.fd, f"{what} behind {self.data}")
            try:
                more = os.read(self.fd, 4096)
            except OSError:
                more = b""
            if not more:
                raise AssertionError(f"{what} did not come before the end: {self.data}")
            self.data += more
        self.data = self.data.partition(what)[2]

    def end(self):
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


class Shell(SharedCase, ExecCase):
    def test_left_and_entered_again(self):
        t = Terminal("shell", self.sandbox)
        t.type(b"echo $((6*7))-a; mine=yes\n")
        t.until(b"42-a")
        t.type(b"\x10\x11")
        t.until(b"which keeps running")
        self.assertEqual(t.end(), 0)
        t = Terminal("shell", self.sandbox)
        t.type(b"echo $((6*7))-$mine\n")
        t.until(b"42-yes")
        os.kill(t.pid, signal.SIGKILL)  # closing the terminal does not end the command either
        t.end()
        t = without_error(self.entered, AssertionError, "the terminal is free")
        t.type(b"echo $((6*7))-$mine-again; exit 4\n")
        t.until(b"42-yes-again")
        self.assertEqual(t.end(), 4)
        self.wait(f"{self.sandbox}/shell", 4)

    def entered(self):
        t = Terminal("shell", self.sandbox)
        t.type(b"echo $((6*7))-here\n")
        try:
            t.until(b"42-here")
        except AssertionError:
            t.end()
            raise
        return t

    def test_two_shells(self):
        a, b = Terminal("shell", "-n", "one", self.sandbox), Terminal("shell", "-n", "two", self.sandbox)
        a.type(b"echo a-$((6*7))\n")
        b.type(b"echo b-$((6*7))\n")
        a.until(b"a-42")
        b.until(b"b-42")
        for t in (a, b):
            t.type(b"exit\n")
            self.assertEqual(t.end(), 0)
