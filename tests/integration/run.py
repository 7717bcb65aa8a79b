#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs every test_*.py of this directory, or of the directories in the first arguments, and prints
TAP, so that meson counts single tests. HUTCH or an argument names the program under test. Further
arguments select tests by a part of their name; a leading minus sign excludes them.

HUTCH_TEST_LEVEL=microvm leaves out the tests of not_in_machines.py and names them.
HUTCH_TEST_REPEAT=N runs each test N times, in N rounds with new fixtures, to find flaky tests.
"""

import copy
import os
import signal
import sys
import time
import unittest
from pathlib import Path

from not_in_machines import LEFT_OUT

HERE = Path(__file__).resolve().parent
SLOW = 5  # seconds; slower tests are reported


class TapResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.failed = 0
        self.began = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def tell(self, ok, test, more="", details=""):
        self.count += 1
        self.failed += not ok
        name = test.id().replace("#", "") + getattr(getattr(test, "test_case", test), "turn", "")
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}{more}")
        for line in details.splitlines():
            print("#   " + line)
        if time.monotonic() - self.began > SLOW:
            print(f"#   took {time.monotonic() - self.began:.1f} s")
        sys.stdout.flush()

    def addSuccess(self, test):
        self.tell(True, test)

    def addError(self, test, err):
        self.tell(False, test, details=self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        self.tell(False, test, details=self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self.tell(True, test, more=f" # SKIP {reason}")

    def addExpectedFailure(self, test, err):
        self.tell(True, test)

    def addUnexpectedSuccess(self, test):
        self.tell(False, test, details="was expected to fail")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.tell(False, subtest, details=self._exc_info_to_string(err, test))


def every_test(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from every_test(t)
        else:
            yield t


def exists(name):
    """Whether the test exists. A test that is None (as_root, as_user) exists for another user.
    Modules that were not loaded are not checked."""
    module, *rest = name.split(".")
    thing = sys.modules.get(module)
    for part in rest if thing else []:
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
        if thing is None:
            return True
    return True


def without_machines(tests):
    """The tests that can run with microVM sandboxes, if HUTCH_TEST_LEVEL asks for them."""
    if os.environ.get("HUTCH_TEST_LEVEL") != "microvm":
        return tests
    for name in LEFT_OUT:
        if not exists(name):
            sys.exit(f"Bail out! not_in_machines.py names {name}, which there is not")
    kept = []
    for t in tests:
        why = [LEFT_OUT[name] for name in LEFT_OUT if f"{t.id()}.".startswith(f"{name}.")]
        if why:
            print(f"# left out: {t.id()}: {why[0]}")
        else:
            kept.append(t)
    return kept


def rounds(tests, times):
    """All tests, N times, with a number after each name."""
    if times < 1:
        sys.exit("Bail out! HUTCH_TEST_REPEAT is a number from 1 on")
    for k in range(1, times + 1):
        again = [copy.deepcopy(t) for t in tests]
        for t in again if times > 1 else []:
            t.turn = f" ({k})"
        yield unittest.TestSuite(again)


def take_signals():
    """A background job of a script, or nohup(1), ignores some signals, and child processes would
    inherit that."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def main(args):
    take_signals()
    where = []
    while args and os.path.isdir(args[0]):
        where.append(args.pop(0))
    if args and os.path.sep in args[0]:
        os.environ["HUTCH"] = args.pop(0)
    if not where and not os.environ.get("HUTCH"):
        print("Bail out! set HUTCH to the path of the program under test")
        return 1
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    # One loader for each: a loader remembers its first directory.
    found = [unittest.TestLoader().discover(w, pattern="test_*.py") for w in where or [str(HERE)]]
    wanted, unwanted = [a for a in args if a[0] != "-"], [a[1:] for a in args if a[0] == "-"]
    chosen = [t for t in every_test(found) if not any(a in t.id() for a in unwanted)
              and (not wanted or any(a in t.id() for a in wanted))]
    chosen = without_machines(chosen)
    result = TapResult()
    start = time.monotonic()
    for suite in rounds(chosen, int(os.environ.get("HUTCH_TEST_REPEAT") or 1)):
        suite.run(result)
        result._previousTestClass = None  # otherwise a second round of a class has no fixtures
    print(f"1..{result.count}")
    print(f"# {result.count - result.failed} passed, {result.failed} failed", end="")
    print(f", {time.monotonic() - start:.1f} s")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
