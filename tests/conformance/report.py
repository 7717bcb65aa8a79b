# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts of this directory: TAP, and a run with a server that must leave nothing
behind."""

import argparse
import contextlib
import json
import sys
import traceback

import server
from waiting import eventually

SOON = 120  # seconds, shorter than the sandboxes of harness.mjs live


class Tap:
    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def tell(self, outcome, name, details=(), note=""):
        self.counts[outcome] += 1
        print(f"{'not ok' if outcome == 'failed' else 'ok'} {sum(self.counts.values())} - {name}{note}")
        for line in details:
            print(f"#   {line}")
        sys.stdout.flush()

    def check(self, ok, name, details=()):
        self.tell("passed" if ok else "failed", name, () if ok else details)

    def comment(self, text, lines=()):
        print(f"# {text}")
        for line in lines:
            print(f"#   {line}")

    def result(self, version, result):
        self.tell(result.outcome, f"e2b {version} {result.section}: {result.name}", result.details,
                  f" # SKIP {result.skip}" if result.outcome == "skipped" else "")

    def end(self):
        print(f"1..{sum(self.counts.values())}")
        print("# {passed} passed, {failed} failed, {skipped} skipped".format(**self.counts))
        return 1 if self.counts["failed"] or not self.counts["passed"] else 0


def options(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--as", dest="who", choices=["root", "user"], default="root")
    parser.add_argument("--log", help="where hutchd's output is kept")
    return parser


def nothing_runs(tap, running, after):
    """Clients end the sandboxes they make. The server may still start those whose clients have
    left, which have a short deadline. Any other was leaked and would stay longer than SOON."""
    left = []

    def gone():
        left[:] = json.loads(running.hutch("ps", "--json"))
        return not left

    with contextlib.suppress(AssertionError):
        eventually(gone, "the end of all sandboxes", SOON)
    tap.check(not left, f"no sandbox is left by {after}", [json.dumps(row) for row in left])


def with_server(chosen, work):
    """Calls work(tap, server). Reports an exception, and anything left on the host, as a failed
    test."""
    tap = Tap()
    try:
        with server.Place(chosen.who, chosen.log) as place:
            work(tap, place.server)
            if tap.counts["failed"]:
                tap.comment("what hutchd said last:", place.server.said().splitlines()[-20:])
        tap.tell("passed", "nothing is left on the machine")
    except Exception:
        tap.tell("failed", "the run itself", traceback.format_exc().splitlines())
    return tap.end()
