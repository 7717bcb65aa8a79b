#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
run.py [--as root|user] [--version V]... [--only SECTIONS] [--skip SECTIONS] [--known] [--parallel]
[-v]: runs the E2B SDK from npm, in each version (`latest` by default), against its own hutchd; see
server.py for its requirements. Prints TAP and a last line "N passed, N failed, N skipped". Anything
left on the host afterwards is a failure.

With --known, no test is skipped: features that known.py lists as missing in a version or in Hutch
must be missing, and everything else must pass.
"""

import concurrent.futures
import sys

import known
import report
import sdk


def words(text):
    return [word for word in (text or "").split(",") if word]


def parse(args):
    parser = report.options(__doc__)
    parser.add_argument("--version", action="append", default=[])
    parser.add_argument("--only", type=words, default=[])
    parser.add_argument("--skip", type=words, default=[])
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--parallel", action="store_true", help="all versions at once")
    parser.add_argument("--short", action="store_true", help="the latest, and quick sections of the others, at once, --known")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args(args)


def plan(options):
    """Returns which version runs which sections."""
    latest = sdk.latest()
    if options.short:
        return [(latest, known.SECTIONS), *((version, known.QUICK) for version in sdk.OLD)]
    versions = [latest if version == "latest" else version for version in options.version or ["latest"]]
    sections = [s for s in options.only or known.SECTIONS if s not in options.skip]
    return [(version, sections) for version in versions]


def run_all(options, tap, running):
    def one(version, sections):
        return sdk.run(version, running, sections, verbose=options.verbose, CONF_IMAGE=known.BUILD_IMAGE)

    with concurrent.futures.ThreadPoolExecutor(8 if options.parallel or options.short else 1) as pool:
        started = [(version, pool.submit(one, version, sections)) for version, sections in plan(options)]
        for version, future in started:
            results = future.result()
            for result in known.judge(version, options.who, results) if options.known or options.short else results:
                tap.result(version, result)
    report.nothing_runs(tap, running, "the sections")


def main(args):
    options = parse(args)
    return report.with_server(options, lambda tap, running: run_all(options, tap, running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
