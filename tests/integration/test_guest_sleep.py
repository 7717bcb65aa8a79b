# SPDX-License-Identifier: Apache-2.0
"""Sleep, and commands that a later keeper adopts. Nothing is stopped here: see test_vm.py for
that."""

import hashlib
import os
import random
import signal

import wire
from guest import GuestCase
from waiting import LONG, eventually, quiet_for

ALL = {"read": ["/"], "write": ["/"], "execute": ["/"]}
MUCH = """
import os, random
data = memoryview(random.Random(5).randbytes(SIZE))
while data:
    data = data[os.write(1, data[:100003]):]
"""


class TestSleep(GuestCase):
    def again(self):
        self.link.sleep()
        self.link.hello_again(**ALL)

    def start_(self, script, **more):
        ch = self.link.open("exec", argv=["sh", "-c", script], **more)
        self.assertIsNotNone(ch.wait_accepted())
        return ch

    def adopt(self, old):
        ch = self.link.open("adopt", pid=old.accepted["pid"])
        self.assertEqual(ch.wait_accepted(), old.accepted)
        return ch

    def test_wake_goes_on(self):
        ch = self.start_("i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); sleep 0.005; done")
        ch.wait_data(b"5\n")
        for _ in range(5):
            self.link.sleep()
            had = len(ch.out())
            quiet_for(0.1, lambda n=had: len(ch.out()) != n, "output of one that sleeps")
            self.link.wake(time=1)
        ch.wait_closed()
        self.assertEqual(ch.out().split(), [b"%d" % i for i in range(400)])
        self.assertEqual(ch.exit["code"], 0)

    def test_woken_without_sleep(self):
        ch = self.start_("read x; echo $x", stdin=True)
        for _ in range(3):
            self.link.wake(time=1)
        ch.send(b"on\n")
        ch.wait_closed()
        self.assertEqual((ch.out(), ch.exit["code"]), (b"on\n", 0))

    def test_what_was_said_before_comes_before(self):
        chs = [self.start_("echo out; exit 3") for _ in range(20)]
        self.link.sleep()
        self.link.wake()
        for ch in chs:
            ch.wait_closed()
            self.assertEqual((ch.out(), ch.exit["code"]), (b"out\n", 3))

    def test_no_byte_is_lost(self):
        size = 20_000_000
        want = random.Random(5).randbytes(size)
        ch = self.link.open("exec", argv=["python3", "-c", MUCH.replace("SIZE", str(size))])
        got, rounds = b"", 0
        while not ch.closed:
            self.link.wait(lambda: ch.streams[1].total > 300_000 or ch.closed, "output")
            if not ch.closed and rounds < 20:
                self.link.sleep()
                if ch.closed:  # it ended on the way there
                    self.link.wake()
                    break
                got += ch.out()
                self.link.hello_again(**ALL)
                ch = self.adopt(ch)
                rounds += 1
            else:
                ch.wait_closed()
        got += ch.out()
        self.assertGreater(rounds, 2)
        self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(want).digest())
        self.assertEqual(ch.exit["code"], 0)

    def test_what_was_typed_is_still_read(self):
        data = os.urandom(200_000)
        ch = self.start_(f"{self.gate()}; sha256sum", stdin=True)
        ch.send(data)
        self.again()
        more = os.urandom(400_000)
        ch = self.adopt(ch)
        self.open_gate()
        ch.send(more)
        ch.eof()
        ch.wait_closed()
        self.assertEqual(ch.out().split()[0].decode(), hashlib.sha256(data + more).hexdigest())

    def test_an_end_of_input_stays(self):
        ch = self.start_(f"{self.gate()}; wc -c", stdin=True)
        ch.send(b"x" * 150_000)
        ch.eof()
        self.again()
        ch = self.adopt(ch)
        self.open_gate()
        ch.wait_closed()
        self.assertEqual(ch.out().split(), [b"150000"])

    def test_ended_before_it_is_adopted(self):
        ch = self.start_(f"{self.gate()}; echo late; exit 9")
        self.again()
        self.open_gate()
        self.alone()
        ch = self.adopt(ch)
        ch.wait_closed()
        self.assertEqual((ch.out(), ch.exit["code"]), (b"late\n", 9))
        self.assertTrue(ch.streams[1].got_eof and ch.streams[2].got_eof)

    def test_killed_while_its_output_is_held(self):
        def caught():
            """A command that was killed, with the guest asleep before its channel was closed."""
            ch = self.start_("sleep 1000 & echo on; kill -KILL $$")
            self.link.sleep()
            if not ch.closed:
                return ch
            self.link.wake()
            return None
        before = eventually(caught, "a command between its end and that of its channel")
        self.link.hello_again(**ALL)
        ch = self.adopt(before)
        ch.wait_closed()
        self.assertEqual((before.out() + ch.out(), ch.exit["signal"]), (b"on\n", signal.SIGKILL))

    def test_one_stream_had_ended(self):
        ch = self.start_(f"exec >&-; {self.gate()}; echo err >&2")
        self.link.wait(lambda: ch.streams[1].got_eof, "EOF")
        self.again()
        ch = self.adopt(ch)
        self.open_gate()
        ch.wait_closed()
        self.assertEqual((ch.out(1), ch.out(2)), (b"", b"err\n"))

    def test_signals_and_terminals(self):
        ch = self.start_("trap 'echo got' USR1; echo on; while :; do sleep 0.05; done", columns=80, rows=24)
        ch.wait_data(b"on")
        self.again()
        ch = self.adopt(ch)
        ch.signal(signal.SIGUSR1)
        ch.wait_data(b"got")
        ch.resize(100, 30)
        ch.close()
        self.alone()

    def test_only_orphans_are_adopted(self):
        ch = self.start_("sleep 1000")
        pid = ch.accepted["pid"]
        self.assertEqual(self.link.open("adopt", pid=pid).wait_closed(), wire.NOT_FOUND)
        self.again()
        self.assertEqual(self.link.open("adopt", pid=1).wait_closed(), wire.NOT_FOUND)
        mine = self.adopt(ch)
        self.assertEqual(self.link.open("adopt", pid=pid).wait_closed(), wire.NOT_FOUND)
        mine.close()
        mine.wait_closed()
        self.alone()

    def test_files_and_watches_end(self):
        self.link.open("watch", path=self.dir).wait_accepted()
        write = self.link.open("write", path=f"{self.dir}/half")
        write.wait_accepted()
        write.send(b"half")
        self.again()
        self.alone()
        self.assertEqual(self.code("stat", f"{self.dir}/half"), wire.NOT_FOUND)

    def test_channels_are_forgotten(self):
        for _ in range(3):
            for _ in range(100):
                self.start_("exit 0")
            self.again()
        # Results that no client asks for are dropped to make room for new ones.
        chs = [self.start_("sleep 0.2") for _ in range(250)]
        for ch in chs:
            self.assertEqual(ch.wait_closed(), 0)

    def test_paths_only_get_fewer(self):
        if not self.link.guest["landlock"]:
            self.skipTest("no Landlock on this kernel")
        self.restart(greet=False)
        few = {"read": ["/usr", "/bin", "/lib", "/lib64", "/etc"], "write": [self.dir], "execute": ["/usr", "/bin", "/lib", "/lib64"]}
        self.link.hello(**few)
        self.assertEqual(self.ok(f"echo x > {self.dir}/x; cat {self.dir}/x; cat /etc/passwd | wc -l")[:1], "x")
        self.assertNotEqual(self.sh("ls /var").exit["code"], 0)
        self.again()
        self.assertNotEqual(self.sh("ls /var").exit["code"], 0)
        self.link.sleep()
        self.link.hello_again(**{**few, "write": []})
        self.assertNotEqual(self.sh(f"echo y > {self.dir}/y").exit["code"], 0)
        self.assertEqual(self.ok("echo still"), "still\n")

    def test_the_keeper_must_wait(self):
        self.link.raw(wire.HEADER.pack(0, 0, wire.SLEEP, 0, 0) + wire.HEADER.pack(8, 0, wire.PING, 0, 0) + b"12345678")
        self.link.wait_ended()
        self.assertEqual(self.guest.process.wait(LONG), 1)
