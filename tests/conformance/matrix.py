#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
matrix.py [--as root|user] [--write FILE] [VERSION...]: runs every section with every version of the
E2B SDK, one after the other, and prints a table in Markdown: passed / failed / skipped. With
--write it replaces the text between the marks in FILE (docs/E2B.md).
"""

import datetime
import sys
from pathlib import Path

import known
import report
import sdk
import server

BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"


def cell(results, section):
    chosen = [r.outcome for r in results if r.section == section]
    return " / ".join(str(chosen.count(outcome)) for outcome in ("passed", "failed", "skipped"))


def table(by_version):
    """Returns the table: rows are sections, columns are versions."""
    lines = ["| section | " + " | ".join(f"e2b {version}" for version in by_version) + " |", "|---" * (len(by_version) + 1) + "|"]
    for section in known.ALL:
        lines.append(f"| {section} | " + " | ".join(cell(results, section) for results in by_version.values()) + " |")
    total = [" / ".join(str(sum(r.outcome == outcome for r in results)) for outcome in ("passed", "failed", "skipped"))
             for results in by_version.values()]
    lines.append("| **all** | " + " | ".join(f"**{text}**" for text in total) + " |")
    return lines


def explain(by_version):
    """Prints failed and skipped tests of the sections that must pass; the text explains the
    others."""
    for version, results in by_version.items():
        for outcome in ("failed", "skipped"):
            names = [f"{r.section}: {r.name}" for r in results if r.outcome == outcome and r.section in known.SECTIONS]
            if names:
                yield f"- e2b {version}, {outcome}: {'; '.join(names)}"


def replace(path, lines):
    text = Path(path).read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    Path(path).write_text("\n".join([before + BEGIN, *lines, END + after]))


def main(args):
    parser = report.options(__doc__)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("version", nargs="*", default=[*sdk.OLD, "latest"])
    options = parser.parse_args(args)
    by_version = {}
    with server.Place(options.who, options.log) as place:
        for version in options.version:
            version = sdk.latest() if version == "latest" else version
            print(f"e2b {version}", file=sys.stderr)
            by_version[version] = sdk.run(version, place.server, CONF_IMAGE=known.BUILD_IMAGE)
            for result in by_version[version]:
                if result.outcome == "failed":
                    print(f"  {result.section}: {result.name}", *result.details, sep="\n    ", file=sys.stderr)
    when = datetime.datetime.now(datetime.timezone.utc).date()
    lines = ["", f"Passed / failed / skipped, {when}, as {options.who}:", "", *table(by_version), "", *explain(by_version), ""]
    print("\n".join(lines))
    if options.write:
        replace(options.write, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
