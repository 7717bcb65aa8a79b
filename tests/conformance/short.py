#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
short.py [--as root|user]: the tests that CI runs, all with one hutchd. As root: the latest SDK with
every section that must pass, older ones with the quick sections (run.py --short), complaints.py,
kill.py --short, sides.py. As a user, with the same hutchd: the latest SDK and sides.py.
"""

import shutil
import sys

import complaints
import kill
import report
import run
import sides


def everything(options, tap, running):
    sides.sides(tap, running)
    if options.who == "user":
        run.run_all(run.parse(["--known", "--as", "user"]), tap, running)
        return
    run.run_all(run.parse(["--short"]), tap, running)
    complaints.complaints(False, tap, running)
    kill.both(True, tap, running)


def main(args):
    options = report.options(__doc__).parse_args(args)
    if not shutil.which("node") or not shutil.which("npm"):
        print("1..0 # SKIP needs node and npm")
        return 0
    return report.with_server(options, lambda tap, running: everything(options, tap, running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
