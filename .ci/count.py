#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Prints "passed failed skipped" of a meson testlog.junit.xml; no file or no case counts as a failure. With --failed, of a testlog.json,
the names of the programs that had failures.
"""
import json
import sys
import xml.etree.ElementTree as tree


def print_failed() -> None:
    with open(sys.argv[2], encoding="utf-8") as f:
        for program in map(json.loads, f):
            if program["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
                print(program["name"].split(" / ")[-1])


def main() -> None:
    if sys.argv[1] == "--failed":
        print_failed()
        return
    passed = failed = skipped = 0
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    if passed + failed == 0:
        failed = 1
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
