# SPDX-License-Identifier: Apache-2.0
"""
Computes, prints, judges and records the figures of all benchmarks, so that all have the same
options, table, JSON, CSV and exit status.

A figure is a ratio of two medians wherever possible: both sides are measured in turn, so a busy
host slows both. A figure may have a bar, `most` or `least`. With --short, the bar is `short`, or
SLACK times looser than usual: a busy host must not miss it. Memory and counts, which load does not
change, have a `short` close to their bar.

--csv FILE appends one line for each figure, in the columns of FIELDS. tests/bench/report makes
docs/BENCHMARKS.md of it.
"""

import argparse
import contextlib
import csv
import datetime
import fcntl
import http.client
import io
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from common import SOURCE, Trouble

SLACK = 4
FIELDS = ("date", "commit", "load", "cores", "kernel", "bench", "part", "figure", "value", "unit", "low", "high", "n", "sides", "bar",
          "bound", "ok", "run")


def number(value):
    """Formats a value for the CSV; a figure is judged by this form."""
    return f"{value:.5g}" if abs(value) < 1e5 else f"{value:.0f}"


def brief(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(value, unit=""):
    """Formats a value for a table; ratios near 1 have one more digit."""
    if unit or value == round(value):
        return f"{brief(value)} {unit}".rstrip()
    return f"{value:.3f}" if abs(value - 1) < 0.1 else f"{value:.2f}"


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, max(0, round(p / 100 * (len(values) - 1))))]


def holds(value, bar, bound):
    return not bound or (value <= bar if bound == "at most" else value >= bar)


class Figure:
    """A figure. A value of None means that it could not be measured here; `sides` says why."""

    def __init__(self, part, name, value, most=None, least=None, spread=None, n=1, sides="", unit="", short=None):
        self.part, self.name, self.n, self.sides, self.unit, self.short = part, name, n, sides, unit, short
        self.value = value if value is None else float(number(value))
        self.spread = spread
        self.bar, self.bound = (most, "at most") if most is not None else (least, "at least") if least is not None else (None, "")

    def loosen(self):
        """Applies the bar of --short."""
        if self.short is not None:
            self.bar = self.short
        elif self.bar is not None:
            self.bar = self.bar * SLACK if self.bound == "at most" else self.bar / SLACK

    def ok(self):
        return self.value is None or holds(self.value, self.bar, self.bound)

    def verdict(self):
        return "skip" if self.value is None else "" if self.bar is None else "pass" if self.ok() else "MISS"

    def cells(self):
        unit = f" {self.unit}" if self.unit else ""
        value = "-" if self.value is None else shown(self.value, self.unit)
        bar = f"{self.bound} {self.bar:g}{unit}" if self.bound else ""
        spread = " - ".join(map(shown, self.spread)) if self.spread else ""
        return self.part, self.name, value, bar, spread, self.verdict(), self.sides

    def json(self):
        return {"part": self.part, "figure": self.name, "value": self.value, "unit": self.unit, "bar": self.bar, "bound": self.bound,
                "spread": self.spread, "n": self.n, "sides": self.sides, "verdict": self.verdict()}

    def record(self):
        low, high = map(number, self.spread) if self.spread else ("", "")
        return {"part": self.part, "figure": self.name, "value": number(self.value), "unit": self.unit, "low": low, "high": high,
                "n": self.n, "sides": self.sides, "bar": "" if self.bar is None else number(self.bar), "bound": self.bound,
                "ok": "" if self.bar is None else "yes" if self.ok() else "no"}


def ratio(part, name, above, below, scale=1e3, unit="ms", sides=None, **bar):
    """Returns the ratio of the medians of two series measured in turn. Its spread is that of the
    rounds, from the 10th to the 90th percentile."""
    a, b = statistics.median(above), statistics.median(below)
    each = [x / y for x, y in zip(above, below)]
    return Figure(part, name, a / b, spread=(percentile(each, 10), percentile(each, 90)), n=len(each),
                  sides=sides or f"{brief(a * scale)} {unit} / {brief(b * scale)} {unit}", **bar)


def in_turn(rounds, say, **sides):
    """Measures every side once in each round, in a different order each time; the first round is
    a warm-up."""
    series = {name: [] for name in sides}
    names = list(sides)
    for i in range(rounds + 1):
        for name in names[i % len(names):] + names[:i % len(names)]:
            value = sides[name]()
            if i > 0:
                series[name].append(value)
        say(f"round {i} of {rounds}")
    return series


# ---- records ----
def commit():
    """Returns the commit of the source, with a + if the programs' source differs from it."""
    def git(*args):
        return subprocess.run(["git", "-c", f"safe.directory={SOURCE}", "-C", SOURCE, *args], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False, text=True).stdout.strip()
    with contextlib.suppress(OSError):
        return (git("rev-parse", "--short=9", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "--", "src") else "")
    return "unknown"


def surroundings(bench, short):
    """Returns the columns that all figures of a run share. The load is that of the minute before
    the run."""
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit(),
            "load": f"{os.getloadavg()[0]:.1f}", "cores": len(os.sched_getaffinity(0)), "kernel": os.uname().release, "bench": bench,
            "run": "short" if short else "full"}


def check_csv(path):
    """Rejects a file with other columns before anything is measured."""
    if path.exists() and path.stat().st_size > 0:
        with open(path, newline="", encoding="utf-8") as f:
            if tuple(next(csv.reader(f), ())) != FIELDS:
                raise Trouble(f"{path}: first line is not {','.join(FIELDS)}")


def append(path, shared, figures):
    """Appends all lines in one write under a lock, because runs may end at the same time."""
    with open(path, "a", newline="", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
        if os.fstat(f.fileno()).st_size == 0:
            writer.writeheader()
        for figure in figures:
            if figure.value is not None:
                writer.writerow({**shared, **figure.record()})
        f.write(text.getvalue())


# ---- the command line ----
def parser(what, rounds, parts):
    p = argparse.ArgumentParser(description=f"{what}; the top of this file says more.")
    p.add_argument("--build", default=SOURCE / "build", type=Path, metavar="DIR", help="the build (default: build)")
    p.add_argument("--only", action="append", choices=list(parts), metavar="PART", help=f"one of {', '.join(parts)}; may be repeated")
    p.add_argument("--rounds", type=rounds_type, metavar="N", help=f"rounds of each measurement (default: {rounds})")
    p.add_argument("--short", action="store_true", help="fewer rounds and looser bars, for CI")
    p.add_argument("--csv", type=Path, metavar="FILE", help="append the figures to this file")
    p.add_argument("--json", action="store_true", help="print JSON instead of a table")
    p.add_argument("-v", "--verbose", action="store_true", help="report progress")
    return p


def rounds_type(text):
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a number from 1 on")
    return int(text)


def table(figures):
    rows = [("part", "figure", "value", "bar", "10 - 90 %", "", "medians"), *(f.cells() for f in figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def measure(name, options, begin, parts):
    """Returns (figures, whether something failed) of all selected parts."""
    found, trouble = [], False
    with contextlib.ExitStack() as stack:
        bench = begin(options, stack)
        for part in options.only or parts:
            if options.verbose:
                print(f"# part {part}", file=sys.stderr, flush=True)
            try:
                found.extend(parts[part](bench))
            except (Trouble, OSError, subprocess.SubprocessError, http.client.HTTPException) as e:
                trouble = True
                print(f"{name}: {part}: {type(e).__name__}: {e}", file=sys.stderr)
    return found, trouble


def run(name, options, begin, parts):
    """
    Measures, prints and records; returns the exit status. `begin(options, stack)` makes the object
    that the parts share and registers its cleanup with the stack. A part takes this object and
    yields figures.
    """
    for n in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C: clean up
        signal.signal(n, signal.default_int_handler)
    try:
        if options.csv:
            check_csv(options.csv)
        shared = surroundings(name, options.short)
        found, trouble = measure(name, options, begin, parts)
    except (Trouble, OSError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    for figure in found if options.short else ():
        figure.loosen()
    if options.json:
        print(json.dumps({**shared, "figures": [f.json() for f in found]}, indent=2))
    else:
        print(table(found))
    if options.csv:
        append(options.csv, shared, found)
    return 2 if trouble else 0 if all(f.ok() for f in found) else 1
