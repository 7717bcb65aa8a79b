# SPDX-License-Identifier: Apache-2.0
"""How tests wait: see waiting.py."""

import os
import subprocess
import time
import unittest
from pathlib import Path

import waiting

HERE = Path(__file__).resolve().parent
SLEEPS = "time" + ".sleep("


class Waiting(unittest.TestCase):
    def test_one_file_sleeps(self):
        self.assertEqual([p.name for p in sorted(HERE.glob("*.py")) if SLEEPS in p.read_text()], ["waiting.py"])

    def test_eventually(self):
        values = iter((0, "", "found"))
        self.assertEqual(waiting.eventually(lambda: next(values), "a value"), "found")
        with self.assertRaisesRegex(AssertionError, "a value: not within 0 s; seen last: 'other'"):
            waiting.eventually(lambda: False, "a value", 0, also=lambda: "other")

    def test_equals(self):
        values = iter((1, 2, 3))
        waiting.equals(lambda: next(values), 3, "three")
        with self.assertRaisesRegex(AssertionError, "wanted 3: not within 0 s; seen last: 4"):
            waiting.equals(lambda: 4, 3, "three", 0)

    def test_without_error(self):
        values = iter(("x", "7"))
        self.assertEqual(waiting.without_error(lambda: int(next(values)), ValueError, "a number"), 7)
        with self.assertRaisesRegex(AssertionError, "a number: not within 0 s.*invalid literal"):
            waiting.without_error(lambda: int("x"), ValueError, "a number", 0)
        with self.assertRaises(TypeError):
            waiting.without_error(lambda: int([]), ValueError, "a number")

    def test_processes_and_pipes(self):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            with self.assertRaisesRegex(AssertionError, "did not end within 0 s"):
                waiting.ended(p.pid, timeout=0)
            with self.assertRaisesRegex(AssertionError, "a line: nothing came within 0 s"):
                waiting.readable(p.stdout, "a line", 0)
            p.stdin.write(b"line\n")
            p.stdin.flush()
            waiting.readable(p.stdout, "a line")
            self.assertEqual(p.stdout.readline(), b"line\n")
            p.stdin.close()
            waiting.ended(p.pid)
            self.assertEqual(os.waitpid(p.pid, os.WNOHANG)[0], p.pid)

    def test_quiet(self):
        waiting.quiet_for(0.2, lambda: None, "noise")
        with self.assertRaisesRegex(AssertionError, "noise: 'bang'"):
            waiting.quiet_for(0.2, lambda: "bang", "noise")

    def test_a_moment(self):
        when = time.monotonic() + 0.2
        waiting.until_clock(when)
        self.assertGreaterEqual(time.monotonic(), when)
