#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
complaints.py [--as root|user] [--long]: complaints by users of other systems, as tests with the SDK
from npm (complaints.mjs) against its own hutchd. With --long, the upload has 1 GB instead of 256
MB. Prints TAP.
"""

import sys

import report
import sdk

MEGABYTES = {False: 256, True: 1024}


def complaints(is_long, tap, running):
    version = sdk.latest()
    with running.policy("resources: {memory: 3GiB, disk: 2GiB, output: 64MiB}"):
        results = sdk.run(version, running, ["complaints"], script="complaints.mjs", CONF_UPLOAD_MB=MEGABYTES[is_long],
                          HUTCHD_PID=running.process.pid, HUTCHD_RUN_DIR=running.run_dir())
    for result in results:
        tap.result(version, result)
    report.nothing_runs(tap, running, "complaints")


def main(args):
    parser = report.options(__doc__)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args(args)
    return report.with_server(options, lambda tap, running: complaints(options.long, tap, running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
