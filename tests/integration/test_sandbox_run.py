# SPDX-License-Identifier: Apache-2.0
"""`hutch run`: one command in its own sandbox, as if it ran here."""

import hashlib
import json
import os
import subprocess

from sandbox import LONG, SandboxCase, SharedCase, hutch, start
from waiting import quiet_for

MANY = 20 << 20
# Generates the same bytes on both sides, with no two equal blocks.
BYTES = """
import hashlib, sys
def blocks(n):
    for i in range(n // 65536):
        yield hashlib.sha256(b'%d' % i).digest() * 2048
"""
ARGUMENTS = "import os, sys; print([os.fsencode(a).hex() for a in sys.argv[1:]])"


def blocks(n):
    scope = {}
    exec(BYTES, scope)  # pylint: disable=exec-used
    return b"".join(scope["blocks"](n))


class Output(SandboxCase):
    def test_prints(self):
        self.assertEqual(self.out("echo", "hello"), "hello\n")

    def test_stdout_and_stderr_stay_apart(self):
        r = self.run_("sh", "-c", "echo to out; echo to err >&2")
        self.assertEqual((r.stdout, r.stderr), (b"to out\n", b"to err\n"))

    def test_every_byte_comes_out(self):
        r = self.run_("python3", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)))")
        self.assertEqual(r.stdout, bytes(range(256)))

    def test_20_mb_come_out_intact(self):
        r = self.run_("python3", "-c", BYTES + f"for b in blocks({MANY}): sys.stdout.buffer.write(b)")
        self.assertEqual(len(r.stdout), MANY)
        self.assertTrue(r.stdout == blocks(MANY), "other bytes")

    def test_20_mb_go_in_intact(self):
        data = blocks(MANY)
        r = self.run_("sha256sum", opts=["-i"], input=data)
        self.assertEqual(r.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_20_mb_go_both_ways_at_once(self):
        data = blocks(MANY)
        self.assertTrue(self.run_("cat", opts=["-i"], input=data).stdout == data, "other bytes")

    def test_output_is_complete_when_the_command_has_ended(self):
        r = self.run_("sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 3", code=3)
        self.assertEqual((len(r.stdout), len(r.stderr)), (3000000, 3000000))

    def test_a_reader_that_goes_ends_it(self):
        p = start("run", "--rm", "--", "yes", stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.read(4), b"y\ny\n")
        p.stdout.close()
        self.assertNotEqual(p.wait(LONG), 0)

    def test_a_reader_that_waits_loses_nothing(self):
        p = start("run", "--rm", "--", "sh", "-c", "head -c 8000000 /dev/zero; echo end", stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.read(1), b"\0")
        quiet_for(1, lambda: p.poll() is not None, "its end")
        data = p.stdout.read()
        p.stdout.close()
        self.assertEqual((len(data), data[-4:], p.wait(LONG)), (8000003, b"end\n", 0))


class Input(SandboxCase):
    def test_stdin_and_its_end_go_in(self):
        self.assertEqual(self.out("sh", "-c", "cat; echo end", opts=["-i"], input=b"one\ntwo\n"), "one\ntwo\nend\n")

    def test_an_empty_stdin_is_an_end(self):
        self.assertEqual(self.out("wc", "-c", opts=["-i"]), "0\n")

    def test_stdin_that_is_not_asked_for_stays_outside(self):
        self.assertEqual(self.out("wc", "-c", input=b"for somebody else"), "0\n")

    def test_answers_before_the_end_of_stdin(self):
        p = start("run", "--rm", "-i", "--", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for line in (b"first\n", b"second\n"):
            p.stdin.write(line)
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), line)
        p.stdin.close()
        self.assertEqual((p.stdout.read(), p.wait(LONG)), (b"", 0))
        p.stdout.close()

    def test_a_stdin_without_end_does_not_hold_it(self):
        p = start("run", "--rm", "-i", "--", "sh", "-c", "exit 3", stdin=subprocess.PIPE)
        self.assertEqual(p.wait(LONG), 3)
        p.stdin.close()

    def test_input_that_nobody_reads_is_thrown_away(self):
        self.run_("sh", "-c", "exec <&-; exit 4", code=4, opts=["-i"], input=b"x" * (4 << 20))


class Codes(SandboxCase):
    def test_that_of_the_command(self):
        for code in (0, 1, 7, 255):
            with self.subTest(code=code):
                self.run_("sh", "-c", f"exit {code}", code=code)

    def test_128_and_the_signal(self):
        for number in (9, 15, 11):
            with self.subTest(signal=number):
                self.run_("sh", "-c", f"kill -{number} $$", code=128 + number)

    def test_127_for_what_is_not_found(self):
        self.assertIn("no-such-program", self.refused("run", "--rm", "--", "no-such-program", code=127))

    def test_127_for_a_path_that_is_not_there(self):
        self.assertIn("/no/such/program", self.refused("run", "--rm", "--", "/no/such/program", code=127))

    def test_126_for_what_is_not_executable(self):
        self.assertIn("/etc/motd", self.refused("run", "--rm", "--", "/etc/motd", code=126))

    def test_126_for_a_directory(self):
        self.assertIn("/tmp", self.refused("run", "--rm", "--", "/tmp", code=126))

    def test_125_for_what_hutch_cannot_do(self):
        for what, said in ((["--image", "nowhere"], "nowhere"), (["--agent", "nobody-knows"], "nobody-knows"),
                           (["--memory", "much"], "memory"), (["--memory", "1"], "memory"), (["--cpus", "-1"], "cpus"),
                           (["--timeout", "soon"], "timeout"), (["-e", "NOTHING"], "NOTHING"), (["-u", "stranger"], "stranger"),
                           (["-w", "relative"], "relative")):
            with self.subTest(what=what):
                self.assertIn(said, self.refused("run", "--rm", *what, "--", "true"))

    def test_a_command_is_needed(self):
        for args in (("run",), ("run", "--rm", "--")):
            with self.subTest(args=args):
                r = hutch(*args)
                self.assertIn(r.returncode, (2, 125), r.stderr)
                self.assertIn(b"hutch run", r.stderr)

    def test_without_a_double_dash(self):
        r = self.ended(hutch("run", "--rm", "echo", "hi"), 0)
        self.assertEqual(r.stdout, b"hi\n")


class Surroundings(SandboxCase):
    def test_variables_are_given(self):
        said = self.out("env", opts=["-e", "COLOUR=deep blue", "-e", "EMPTY="]).splitlines()
        self.assertIn("COLOUR=deep blue", said)
        self.assertIn("EMPTY=", said)

    def test_variables_of_the_host_stay_outside(self):
        self.assertNotIn("CANARY", self.out("env", env={"HUTCH_CANARY": "CANARY", "LC_CANARY": "CANARY"}))

    def test_a_home_and_a_name(self):
        said = self.out("env").splitlines()
        for line in ("HOME=/home/user", "USER=user"):
            self.assertIn(line, said)

    def test_starts_in_the_workspace(self):
        self.assertEqual(self.out("pwd"), "/workspace\n")

    def test_starts_where_it_is_told(self):
        self.assertEqual(self.out("pwd", opts=["-w", "/usr/lib"]), "/usr/lib\n")

    def test_runs_as_user_1000(self):
        self.assertEqual(self.out("id", "-u"), "1000\n")
        self.assertEqual(self.out("id", "-G"), "1000 1007\n")

    def test_runs_as_who_is_named(self):
        for user, ids in (("root", "0:0"), ("nobody", "65534:65534"), ("1234", "1234:1234"), ("12:34", "12:34")):
            with self.subTest(user=user):
                self.assertEqual(self.out("sh", "-c", "echo $(id -u):$(id -g)", opts=["-u", user]), ids + "\n")

    def test_another_image_by_name(self):
        self.assertEqual(self.out("cat", "/etc/motd", opts=["--image", "base"]), "the image\n")


class Arguments(SharedCase):
    """Each argument arrives unchanged, with any contents."""

    def check(self, *args):
        r = self.exec_(self.sandbox, "python3", "-c", ARGUMENTS, *args)
        self.assertEqual(json.loads(r.stdout.replace(b"'", b'"')), [os.fsencode(a).hex() for a in args])

    def test_every_byte_but_nul(self):
        self.check(bytes(range(1, 256)))

    def test_empty_ones(self):
        self.check("", "x", "")

    def test_what_looks_like_options(self):
        self.check("--rm", "-i", "--", "-t", "--help")

    def test_spaces_lines_and_quotes(self):
        self.check("a b", "two\nlines", "'\"`$(id)\\", "*")

    def test_a_long_one(self):
        self.check("x" * 100000)

    def test_a_thousand(self):
        self.check(*(str(i) for i in range(1000)))


class Afterwards(SandboxCase):
    def test_rm_keeps_nothing(self):
        self.run_("true")
        self.assertEqual(self.ps("-a"), {})

    def test_without_rm_it_can_be_looked_at(self):
        self.ended(hutch("run", "--", "sh", "-c", "exit 5"), 5)
        [(sandbox, row)] = self.ps("-a").items()
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.assertEqual(row["state"], "ended")
        self.assertEqual(self.ps(), {}, "ps alone shows the living")
        self.assertEqual(self.inspect(sandbox)["end"]["reason"], "client-gone")
        self.ended(hutch("rm", sandbox), 0)
        self.assertEqual(self.ps("-a"), {})
