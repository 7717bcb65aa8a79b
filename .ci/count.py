#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Prints "passed failed skipped" of a meson junit.xml. A file without cases counts as one failure.
"""
import sys
import xml.etree.ElementTree as tree


def main() -> None:
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
