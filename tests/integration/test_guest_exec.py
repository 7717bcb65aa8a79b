# SPDX-License-Identifier: Apache-2.0
"""Commands in a sandbox: streams, signals, ends, credit, terminals, users."""

import contextlib
import hashlib
import os
import random
import resource
import signal
import time
import unittest
from pathlib import Path

import wire
from guest import ROOT, UID, GuestCase
from waiting import ended, eventually, until_clock

TWO_STREAMS = """
import os, random, threading
def write(fd, seed):
    data = memoryview(random.Random(seed).randbytes(SIZE))
    while data:
        data = data[os.write(fd, data[:1000003]):]
t = threading.Thread(target=write, args=(2, 2))
t.start()
write(1, 1)
t.join()
"""


class TestExec(GuestCase):
    def test_run(self):
        ch = self.sh("echo out; echo err >&2; exit 3")
        self.assertEqual((ch.out(1), ch.out(2), ch.exit["code"], ch.closed), (b"out\n", b"err\n", 3, {"code": 0}))
        self.assertTrue(ch.streams[1].got_eof and ch.streams[2].got_eof)
        self.assertGreater(ch.accepted["pid"], 1)
        self.assertGreater(ch.exit["max_rss_kib"], 100)

    def test_exit_codes(self):
        for code in (0, 1, 127, 255):
            self.assertEqual(self.sh(f"exit {code}").exit["code"], code)

    def test_usage_is_counted(self):
        ch = self.run_("python3", "-c", "x = 0\nfor i in range(2000000): x += i")
        self.assertGreater(ch.exit["user_us"] + ch.exit["system_us"], 10000)

    def test_ended_by_a_signal(self):
        ch = self.sh("kill -TERM $$")
        self.assertEqual(ch.exit["signal"], signal.SIGTERM)
        self.assertNotIn("code", ch.exit)

    def test_signal_from_the_keeper(self):
        script = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.1; done"
        ch = self.link.open("exec", argv=["sh", "-c", script])
        ch.wait_data(b"ready\n")
        ch.signal(signal.SIGUSR1)
        ch.wait_closed()
        self.assertEqual((ch.exit["code"], ch.out()), (7, b"ready\ngot\n"))

    def test_signal_reaches_the_group(self):
        ch = self.link.open("exec", argv=["sh", "-c", "sleep 1000 & echo ready; wait"])
        ch.wait_data(b"ready\n")
        ch.signal(signal.SIGKILL)
        ch.wait_closed()
        self.assertEqual(ch.exit["signal"], 9)
        self.alone()
        # The child reports the signal itself; only the signal ends the two processes.
        child = "trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.1; done"
        ch = self.link.open("exec", argv=["sh", "-c", f'trap "wait; echo parent; exit 7" USR1; sh -c "{child}" & wait'])
        ch.wait_data(b"ready\n")
        ch.signal(signal.SIGUSR1)
        ch.wait_closed()
        self.assertEqual((ch.out(), ch.exit["code"]), (b"ready\nchild\nparent\n", 7))

    def test_both_streams_are_exact(self):
        size = 50_000_000
        ch = self.run_("python3", "-c", TWO_STREAMS.replace("SIZE", str(size)))
        for stream in (1, 2):
            want = random.Random(stream).randbytes(size)
            self.assertEqual(hashlib.sha256(ch.out(stream)).digest(), hashlib.sha256(want).digest())
        self.assertEqual(ch.exit["code"], 0)

    def test_stdin(self):
        data = os.urandom(3_000_000)
        ch = self.run_("cat", stdin=data)
        self.assertEqual(hashlib.sha256(ch.out()).digest(), hashlib.sha256(data).digest())

    def test_stdin_end(self):
        self.assertEqual(self.run_("wc", "-c", stdin=b"").out().strip(), b"0")
        self.assertEqual(self.run_("wc", "-c").out().strip(), b"0")  # /dev/null

    def test_stdin_that_nobody_reads(self):
        ch = self.link.open("exec", argv=["sh", "-c", f"exec <&-; echo closed; {self.gate()}"], stdin=True)
        ch.wait_data(b"closed\n")
        ch.send(b"x" * 2_000_000)
        ch.eof()
        self.open_gate()
        self.assertEqual(ch.wait_closed(), 0)

    def test_stdin_queue_is_bounded(self):
        """A program that does not read gets only as much as pipe and credit hold."""
        ch = self.link.open("exec", argv=["sleep", "1000"], stdin=True)
        ch.wait_accepted()
        sent = empty = 0
        while empty < 20 and sent < 2_000_000:
            n = min(ch.streams[0].may_send, 65536)
            if n > 0:
                ch.send(b"x" * n)
                sent += n
                empty = 0
            else:
                empty += 1
                self.link.ping(sent + empty)  # credit for all bytes sent would have arrived
        self.assertTrue(wire.CREDIT_START <= sent < 2_000_000, sent)
        self.ok("true")
        ch.close()
        self.alone()

    def test_no_output_holder_is_waited_for_after_a_kill(self):
        ch = self.link.open("exec", argv=["sh", "-c", "setsid sh -c 'echo ready; exec sleep 1000' & wait"])
        ch.wait_data(b"ready\n")
        start = time.monotonic()
        ch.signal(signal.SIGKILL)
        ch.wait_closed()
        self.assertGreater(time.monotonic() - start, 0.5)  # for a while it is
        self.assertEqual(ch.exit["signal"], 9)

    def test_output_holder_is_waited_for(self):
        self.assertEqual(self.sh("(sleep 0.5; echo late) & exit 0").out(), b"late\n")

    def test_environment(self):
        ch = self.run_("/usr/bin/env", env=["A=1", "HOME=/x", "PATH=/bin", "EMPTY="])
        got = {x for x in ch.out().splitlines() if not x.startswith((b"USER=", b"LOGNAME="))}
        self.assertEqual(got, {b"A=1", b"HOME=/x", b"PATH=/bin", b"EMPTY="})
        self.assertEqual(self.run_("true", env=["NOVALUE"]).closed["code"], wire.INVALID)
        self.assertEqual(self.run_("true", env=["=x"]).closed["code"], wire.INVALID)

    def test_large_environment(self):
        env = [f"V{i}=" + "x" * 1000 for i in range(900)]
        self.assertEqual(self.sh('echo "${#V899}"', env=env).out(), b"1000\n")

    def test_path_of_the_environment_is_searched(self):
        self.write(f"{self.dir}/bin/mine", "#!/bin/sh\necho mine", mode=0o755, parents=True)
        self.assertEqual(self.run_("mine", env=[f"PATH=/nonexistent:{self.dir}/bin"]).out(), b"mine\n")
        self.assertEqual(self.run_("mine", env=["PATH=/bin"]).closed["code"], wire.NOT_FOUND)

    def test_cwd(self):
        self.assertEqual(self.sh("pwd", cwd="/usr").out(), b"/usr\n")
        self.op("mkdir", "a/b", parents=True)
        for cwd, want in (("", ""), ("~", ""), ("~/", ""), ("a", "/a"), ("a/b", "/a/b"), ("~/a/b", "/a/b"), ("./a", "/a")):
            self.assertEqual(self.sh("pwd -P", cwd=cwd).out().decode(), f"{self.guest.home}{want}\n", cwd)

    def test_cwd_that_cannot_be_entered(self):
        self.op("mkdir", "closed", mode=0)
        for cwd, code in (("/nonexistent", wire.NOT_DIRECTORY), ("/etc/passwd", wire.NOT_DIRECTORY), ("usr", wire.NOT_DIRECTORY),
                          ("/etc/passwd/x", wire.NOT_DIRECTORY), ("/" + "x" * 300, wire.NOT_DIRECTORY),
                          ("closed", wire.NOT_DIRECTORY), ("~root", wire.INVALID), ("~~", wire.INVALID),
                          ("x" * 4096, wire.INVALID)):
            ch = self.sh("pwd", cwd=cwd)
            self.assertEqual((ch.closed["code"], ch.accepted), (code, None), ch.closed)
            self.assertIn(cwd[:100], ch.closed["text"])
        # No other failure of a command has this code.
        for program, code in (("/nonexistent", wire.NOT_FOUND), ("/etc/passwd/x", wire.CANNOT_EXECUTE)):
            self.assertEqual(self.run_(program).closed["code"], code, program)

    def test_limits(self):
        limit = [wire.rlimit(resource.RLIMIT_NOFILE, 77, 99), wire.rlimit(resource.RLIMIT_CORE, 0, 0)]
        self.assertEqual(self.ok("ulimit -Sn; ulimit -Hn; ulimit -c", rlimit=limit), "77\n99\n0\n")
        self.assertEqual(self.sh("true", rlimit=wire.rlimit(99, 1, 1)).closed["code"], wire.INVALID)
        self.assertEqual(self.sh("true", rlimit=wire.rlimit(resource.RLIMIT_NOFILE, 2, 1)).closed["code"], wire.INVALID)

    def test_the_guests_own_limit_is_not_inherited(self):
        self.assertEqual(self.ok("ulimit -Sn").strip(), str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))

    def test_failures_to_execute(self):
        for name, text, mode in (("plain", "x", 0o755), ("noexec", "x", 0o644), ("lost", "#!/nonexistent\n", 0o755)):
            self.write(f"{self.dir}/{name}", text, mode=mode)
        for argv0, code in (("/nonexistent", wire.NOT_FOUND), ("nonexistent", wire.NOT_FOUND), ("", wire.NOT_FOUND),
                            (f"{self.dir}/noexec", wire.PERMISSION), (self.dir, wire.PERMISSION),
                            (f"{self.dir}/plain", wire.CANNOT_EXECUTE), (f"{self.dir}/lost", wire.CANNOT_EXECUTE)):
            ch = self.run_(argv0)
            self.assertEqual((ch.closed["code"], ch.accepted, ch.exit), (code, None, None), (argv0, ch.closed))
            self.assertTrue(ch.closed["text"])

    def test_unknown_user(self):
        for user in ("nobody-here", "broken", "", "12 34", "-1", "+5", "4294967295", "1:2:3", "1:", "0x10"):
            ch = self.sh("id", user=user)
            self.assertEqual(ch.closed["code"], wire.NO_USER, (user, ch.closed))

    def test_text_with_a_name_that_is_not_utf8(self):
        ch = self.run_(b"/nonexistent/\xff\xfe" + b"\xc3\xa4" * 200)
        self.assertEqual(ch.closed["code"], wire.NOT_FOUND)
        self.assertLessEqual(len(ch.closed["text"].encode()), 256)

    def test_orphans_are_reaped(self):
        self.ok("for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'exec >/dev/null 2>&1; sleep 0.1' &) ; done")
        self.alone()

    def test_no_zombies(self):
        for _ in range(20):
            self.sh("sh -c 'exit 0' & exit 0")
        self.alone()

    def test_close_kills_the_group(self):
        ch = self.link.open("exec", argv=["sh", "-c", "sleep 1000 & echo ready; sleep 1000"])
        ch.wait_data(b"ready\n")
        ch.close()
        self.assertEqual(ch.wait_closed(), 0)
        self.alone()

    def test_close_at_once(self):
        for _ in range(50):
            self.link.open("exec", argv=["sleep", "1000"]).close()
        self.alone()

    def test_a_reader_without_credit_blocks_only_its_own_command(self):
        ch = self.link.open("exec", argv=["head", "-c", "20000000", "/dev/zero"], give_credit=False)
        self.link.wait(lambda: ch.streams[1].total == wire.CREDIT_START, "all that there is credit for")
        for _ in range(5):
            self.assertEqual(self.ok("echo hello"), "hello\n")
        self.assertEqual((ch.streams[1].total, ch.closed), (wire.CREDIT_START, None))
        ch.credit(1, 1)
        self.link.wait(lambda: ch.streams[1].total == wire.CREDIT_START + 1, "one byte more")
        ch.give_credit = True
        ch.credit(wire.CREDIT_START, 1)
        ch.wait_closed()
        self.assertEqual((ch.streams[1].total, ch.exit["code"]), (20000000, 0))

    def test_a_blocked_command_can_be_killed(self):
        """The rest of its pipe is delivered as soon as there is credit again."""
        ch = self.link.open("exec", argv=["head", "-c", "20000000", "/dev/zero"], give_credit=False)
        self.link.wait(lambda: ch.streams[1].total == wire.CREDIT_START, "all that there is credit for")
        eventually(lambda: self.state_of("head") == "S", "a full pipe", also=self.processes)
        ch.signal(signal.SIGKILL)
        eventually(lambda: not self.state_of("head"), "its end", also=self.processes)
        until_clock(time.monotonic() + 1.2)  # longer than the guest waits for other holders of its output
        self.ok("true")
        ch.give_credit = True
        ch.credit(wire.CREDIT_START, 1)
        ch.wait_closed()
        self.assertEqual(ch.exit["signal"], 9)
        self.assertGreater(ch.streams[1].total, wire.CREDIT_START)

    def state_of(self, name):
        return next((state for _, state, comm in self.processes() if comm == name), None)

    def test_200_at_once(self):
        script = "read x; echo $0 $x; exit $0"
        all_ = [self.link.open("exec", argv=["sh", "-c", script, str(i)], stdin=True) for i in range(200)]
        for ch in all_:
            ch.wait_accepted()
        for ch in all_:
            ch.send(b"go\n")
            ch.eof()
        for i, ch in enumerate(all_):
            ch.wait_closed()
            self.assertEqual((ch.exit["code"], ch.out()), (i, f"{i} go\n".encode()))

    def test_too_many(self):
        all_ = [self.link.open("exec", argv=["sleep", "1000"]) for _ in range(768)]
        for ch in all_:
            self.assertIsNotNone(ch.wait_accepted(), ch.closed)
        for op, more in (("exec", {"argv": ["true"]}), ("stat", {"path": "/"})):
            self.assertEqual(self.link.open(op, **more).wait_closed(), wire.TOO_MANY)
        for ch in all_:
            ch.close()
        for ch in all_:
            ch.wait_closed()
        eventually(lambda: self.sh("true").closed["code"] == 0, "room for more")

    def test_unused_streams(self):
        ch = self.link.open("exec", argv=["cat"], stdin=True)
        ch.wait_accepted()
        ch.send(b"x" * 1_000_000, 2)
        ch.eof(2)
        ch.eof()
        self.assertEqual(ch.wait_closed(), 0)


class TestTerminal(GuestCase):
    def open(self, script, columns=80, rows=24):
        return self.link.open("exec", argv=["/bin/sh", "-c", script], columns=columns, rows=rows)

    def test_size(self):
        ch = self.open("test -t 0 && test -t 1 && test -t 2 && stty size", 132, 43)
        ch.wait_closed()
        self.assertEqual((ch.out(1), ch.out(2), ch.exit["code"]), (b"43 132\r\n", b"", 0))
        self.assertTrue(ch.streams[1].got_eof and ch.streams[2].got_eof)

    def test_resize(self):
        ch = self.open("trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done")
        ch.wait_data(b"ready")
        ch.resize(100, 50)
        ch.wait_closed()
        self.assertEqual(ch.out().split(b"\r\n")[1], b"50 100")

    def test_interrupt(self):
        ch = self.open("echo ready; exec sleep 1000")
        ch.wait_data(b"ready")
        ch.send(b"\x03")
        ch.wait_closed()
        self.assertEqual(ch.exit["signal"], signal.SIGINT)

    def test_echo_and_end(self):
        ch = self.open("stty -echo; echo ready; cat")
        ch.wait_data(b"ready")
        ch.send(b"hello\n")
        ch.wait_data(b"hello\r\n")
        ch.eof()
        ch.wait_closed()
        self.assertEqual(ch.exit["code"], 0)

    def test_controlling_terminal(self):
        ch = self.open("echo controlled > /dev/tty; tty")
        ch.wait_closed()
        self.assertIn(b"controlled", ch.out())
        self.assertIn(b"/dev/pts/", ch.out())

    def test_much_output(self):
        ch = self.open("stty -opost; head -c 5000000 /dev/zero")
        ch.wait_closed()
        self.assertEqual(ch.streams[1].total, 5000000)

    def test_close_kills(self):
        ch = self.open("trap '' HUP; echo ready; sleep 1000")
        ch.wait_data(b"ready")
        ch.close()
        ch.wait_closed()
        self.alone()

    def test_resize_without_a_terminal_means_nothing(self):
        ch = self.link.open("exec", argv=["cat"], stdin=True)
        ch.wait_accepted()
        ch.resize(1, 1)
        ch.eof()
        self.assertEqual(ch.wait_closed(), 0)


@unittest.skipUnless(ROOT, "switching users needs root")
class TestUsers(GuestCase):
    def ids(self, **more):
        return self.ok("id -u; id -g; id -G; echo $HOME $USER $LOGNAME; pwd", **more).splitlines()

    def test_default_user(self):
        home = self.guest.home
        self.assertEqual(self.ids(), [str(UID), str(UID), f"{UID} {UID + 7}", f"{home} user user", home])

    def test_by_name(self):
        other = UID + 1
        self.assertEqual(self.ids(user="other"), [str(other), str(other), f"{other} {UID + 7}", "/tmp other other", "/tmp"])
        self.assertEqual(self.ids(user="root")[:2], ["0", "0"])
        self.assertEqual(self.ids(user="daemon")[3], "/tmp daemon daemon")

    def test_by_number(self):
        self.assertEqual(self.ids(user=str(UID))[:3], [str(UID), str(UID), f"{UID} {UID + 7}"])
        self.assertEqual(self.ids(user="54321"), ["54321", "54321", "54321", "/tmp", "/tmp"])
        self.assertEqual(self.ids(user=f"{UID}:77")[:3], [str(UID), "77", f"77 {UID + 7}"])

    def test_terminal_belongs_to_the_user(self):
        script = "stat -c %u $(tty); exec 3<>$(tty); echo fine >&3"
        ch = self.link.open("exec", argv=["sh", "-c", script], columns=80, rows=24)
        ch.wait_closed()
        self.assertEqual(ch.out(), f"{UID}\r\nfine\r\n".encode())

    def test_permissions_are_the_users(self):
        self.ok(f"umask 077; echo secret > {self.dir}/secret", user="other")
        self.assertEqual(self.code("read", f"{self.dir}/secret"), wire.PERMISSION)
        self.assertEqual(self.read(f"{self.dir}/secret", user="other"), b"secret\n")
        self.assertEqual(self.code("remove", f"{self.dir}/secret"), wire.PERMISSION)
        self.assertEqual(self.code("write", f"{self.dir}/secret", b"x"), wire.PERMISSION)
        self.assertEqual(self.code("write", "/etc/x", b"x"), wire.PERMISSION)
        self.assertEqual(self.code("read", "/etc/shadow"), wire.PERMISSION)
        self.assertEqual(self.code("stat", "/", user="nobody-here"), wire.NO_USER)

    def test_written_files_belong_to_the_user(self):
        self.assertEqual(self.write(f"{self.dir}/mine", b"x")["uid"], UID)
        self.assertEqual(self.write(f"{self.dir}/a/b/c", b"x", user="other", parents=True)["uid"], UID + 1)
        self.assertEqual(self.op("stat", f"{self.dir}/a/b").accepted["uid"], UID + 1)

    def test_a_file_that_may_not_be_written_is_not_replaced(self):
        self.ok(f"cd {self.dir}; mkdir shared; chmod 777 shared; echo old > shared/f", user="other")
        self.assertEqual(self.code("write", f"{self.dir}/shared/f", b"new"), wire.PERMISSION)
        self.assertEqual(self.read(f"{self.dir}/shared/f"), b"old\n")


class TestStandby(GuestCase):
    """The child that the guest forks before there is a command for it."""

    def standby(self):
        """The standby's pid on the host. The guest forks it when one command soon follows
        another, and it lives for a second; a slow host may need several tries."""
        return eventually(self.look_for_standby, "a standby")

    def look_for_standby(self):
        for _ in range(3):
            self.ok("true")
        children = Path(f"/proc/{self.guest.process.pid}/task/{self.guest.process.pid}/children")
        family = [int(p) for p in children.read_text().split()]
        while family:
            pid = family.pop()
            try:
                if Path(f"/proc/{pid}/comm").read_text() == "hutch-standby\n":
                    return pid
                family += [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            except FileNotFoundError:
                pass
        return None

    def test_commands_in_a_row(self):
        numbers = set()
        for i in range(20):
            ch = self.sh(f"echo {i}; cat; echo $V; exit {i}", stdin=b"in", env=[f"V={i}"])
            self.assertEqual((ch.out(), ch.exit["code"]), (f"{i}\nin{i}\n".encode(), i))
            numbers.add(ch.accepted["pid"])
        self.assertEqual(len(numbers), 20)

    def test_failures_in_a_row(self):
        for _ in range(3):
            self.assertEqual(self.run_("/nonexistent").closed["code"], wire.NOT_FOUND)
            self.assertEqual(self.sh("true", user="nobody-here").closed["code"], wire.NO_USER)
            self.ok("true")

    def test_long_ones_are_forked(self):
        """Longer than any pipe, however small the kernel makes it."""
        for n in (10, 3000, *range(4000, 4100, 7), 5000, 9000, 30_000, 40_000, 10):
            self.assertEqual(self.ok("printf %s ${#V}", env=["V=" + "x" * n]), str(n))

    def test_it_holds_nothing_of_other_commands(self):
        """A command sees the end of its input although a standby was forked beside it."""
        self.ok("true")
        ch = self.link.open("exec", argv=["cat"], stdin=True)
        ch.wait_accepted()
        self.standby()
        ch.eof()
        ch.wait_closed()
        self.assertEqual(ch.exit["code"], 0)

    def test_it_ends_when_nothing_follows(self):
        pid = self.standby()
        ended(pid, "the standby")
        self.ok("true")

    def test_killed(self):
        pid = self.standby()
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(pid, signal.SIGKILL)
        ended(pid, "the standby")
        self.assertEqual(self.ok("echo here"), "here\n")

    def test_stopped(self):
        """Root in the sandbox can kill the standby, but not PID 1."""
        pid = self.standby()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self.assertEqual(self.ok("echo here"), "here\n")
        pid = self.standby()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        ended(pid, "a standby that was stopped")

    @unittest.skipUnless(ROOT, "others than root have one user")
    def test_users_that_change(self):
        passwd = Path(self.guest.top, "passwd")
        self.ok("true")
        self.ok("true")
        passwd.write_text(passwd.read_text("latin-1") + "late:x:1234:1234::/:/bin/sh\n", "latin-1")
        self.assertEqual(self.ok("id -u", user="late"), "1234\n")
