#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' CSV, and tests/bench/report, which makes tables and a picture of it. Nothing
is measured here."""

import argparse
import contextlib
import csv
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path
from unittest import mock

SOURCE = Path(os.environ.get("HUTCH_SOURCE") or Path(__file__).parents[2]).resolve()
REPORT = SOURCE / "tests/bench/report"
CSV, PAGE, PICTURE = (SOURCE / "docs" / name for name in ("benchmarks.csv", "BENCHMARKS.md", "benchmarks.svg"))
SVG = "{http://www.w3.org/2000/svg}"

sys.path.insert(0, str(SOURCE / "tests/bench"))
import figures  # noqa: E402
from common import Trouble  # noqa: E402


def load(path):
    loader = importlib.machinery.SourceFileLoader("report", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", loader))
    loader.exec_module(module)
    return module


def report(*args):
    """(status, output, errors)"""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = load(REPORT).main([str(a) for a in args])
    return status, out.getvalue(), err.getvalue()


def options(**more):
    given = {"short": False, "json": False, "csv": None, "only": None, "verbose": False}
    return argparse.Namespace(**{**given, **more})


def run(bench, found, **more):
    """Records figures as a benchmark does; returns (status, output)."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out), mock.patch("signal.signal"):
        status = figures.run(bench, options(**more), lambda *_: None, {"only": lambda _: iter(found)})
    return status, out.getvalue()


class Case(unittest.TestCase):
    def setUp(self):
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.csv, self.page, self.picture = (self.tmp / name for name in ("f.csv", "page.md", "picture.svg"))
        self.files = ["--csv", self.csv, "--page", self.page, "--picture", self.picture]

    def rows(self):
        with open(self.csv, newline="", encoding="utf-8") as f:
            return list(csv.DictReader(f))

    def record(self, bench, *found, **more):
        return run(bench, found, csv=self.csv, **more)

    def edit(self, line, **cells):
        rows = self.rows()
        rows[line].update(cells)
        with open(self.csv, "w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, figures.FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def draw(self):
        shutil.copy(PAGE, self.page)
        status, _, errors = report(*self.files)
        self.assertEqual(status, 0, errors)
        return self.page.read_text(), self.picture.read_text()


class Tree(Case):
    def test_page_and_picture_are_made_of_the_csv(self):
        shutil.copy(CSV, self.csv)
        text, picture = self.draw()
        self.assertEqual(text, PAGE.read_text(), "run tests/bench/report")
        self.assertEqual(picture, PICTURE.read_text(), "run tests/bench/report")

    def test_every_benchmark_records(self):
        for bench in ("start", "egress", "api", "policy", "machine", "microvm"):
            head = (SOURCE / "tests/bench" / bench).read_text()
            self.assertTrue(head.startswith("#!/usr/bin/python3\n"), bench)
            self.assertIn(f'figures.run("{bench}", ', head)
            self.assertIn("    --csv FILE", head, bench)


class Recording(Case):
    def test_a_line_for_each_figure(self):
        found = [figures.ratio("exec", "ours / theirs, in turn", [0.004, 0.006, 0.005], [0.002, 0.003, 0.0025], most=1.8),
                 figures.Figure("memory", "PSS", 2, most=2.5, unit="MiB"), figures.Figure("run", "podman", None, least=5),
                 figures.Figure("live", "shown only", 7)]
        status, printed = self.record("start", *found)
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"exec +ours / theirs, in turn +2 +at most 1\.8 +2 - 2 +MISS +5 ms / 2\.5 ms")
        self.assertRegex(printed, r"run +podman +- +at least 5 +skip")
        first, second, third = self.rows()
        self.assertEqual({k: first[k] for k in ("bench", "part", "figure", "value", "low", "high", "n", "sides", "bar", "bound", "ok", "run")},
                         {"bench": "start", "part": "exec", "figure": "ours / theirs, in turn", "value": "2", "low": "2", "high": "2",
                          "n": "3", "sides": "5 ms / 2.5 ms", "bar": "1.8", "bound": "at most", "ok": "no", "run": "full"})
        self.assertEqual((second["unit"], second["ok"], third["ok"], third["bar"]), ("MiB", "yes", "", ""))
        self.assertEqual({r["date"] for r in (first, second, third)}, {first["date"]})
        self.assertEqual(first["kernel"], os.uname().release)

    def test_runs_are_appended(self):
        for value in (1, 2):
            self.assertEqual(self.record("api", figures.Figure("exec", "x", value, most=2))[0], 0)
        self.assertEqual([r["value"] for r in self.rows()], ["1", "2"])

    def test_short_bars_are_looser(self):
        found = [figures.Figure("a", "default", 6, most=1.8), figures.Figure("a", "least", 0.16, least=0.6),
                 figures.Figure("a", "own", 3.9, most=1.5, short=4)]
        self.assertEqual(self.record("api", *found, short=True)[0], 0)
        self.assertEqual([(r["bar"], r["run"]) for r in self.rows()], [("7.2", "short"), ("0.15", "short"), ("4", "short")])
        self.assertEqual(run("api", [figures.Figure("a", "own", 4.1, most=1.5, short=4)], short=True)[0], 1)

    def test_a_foreign_file_is_refused_before_measuring(self):
        self.csv.write_text("a,b\n")

        def part(_):
            raise AssertionError("measured")
        with contextlib.redirect_stderr(io.StringIO()) as err, mock.patch("signal.signal"):
            self.assertEqual(figures.run("api", options(csv=self.csv), lambda *_: None, {"x": part}), 2)
        self.assertIn("first line is not date,commit", err.getvalue())
        self.assertEqual(self.csv.read_text(), "a,b\n")

    def test_an_error_in_a_part_is_an_error_of_the_run(self):
        def bad(_):
            raise Trouble("no sandbox was made")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err, mock.patch("signal.signal"):
            status = figures.run("api", options(csv=self.csv), lambda *_: None,
                                 {"bad": bad, "good": lambda _: iter([figures.Figure("good", "x", 1, most=2)])})
        self.assertEqual(status, 2)
        self.assertIn("api: bad: Trouble: no sandbox was made", err.getvalue())
        self.assertEqual([r["part"] for r in self.rows()], ["good"])


class Check(Case):
    def check(self):
        status, out, errors = report("--check", "--csv", self.csv)
        return status, out + errors

    def test_the_newest_run_counts(self):
        self.record("start", figures.Figure("exec", "static", 2.1, most=1.8), figures.Figure("stdout", "head", 0.7, least=0.6))
        status, said = self.check()
        self.assertEqual(status, 1)
        self.assertRegex(said, r"^start: exec: static: 2\.10, at most 1\.8 \(full run of .*, commit .*, load [0-9.]+\)\n$")
        self.record("start", figures.Figure("exec", "static", 1.7, most=1.8))
        self.assertEqual(self.check(), (0, ""))
        self.record("start", figures.Figure("stdout", "head", 0.59, least=0.6))
        status, said = self.check()
        self.assertEqual((status, said.split(" (")[0]), (1, "start: stdout: head: 0.59, at least 0.6"))

    def test_as_a_program(self):
        for value, status in ((1.7, 0), (2.1, 1)):
            self.record("start", figures.Figure("exec", "static", value, most=1.8))
            done = subprocess.run([REPORT, "--check", "--csv", self.csv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, status)

    def test_newest_is_by_date_not_by_line(self):
        self.record("start", figures.Figure("exec", "static", 1.7, most=1.8))
        self.record("start", figures.Figure("exec", "static", 2.1, most=1.8))
        self.edit(1, date="2001-01-01T00:00:00Z")
        self.assertEqual(self.check(), (0, ""))

    def test_a_bad_file_is_not_good_news(self):
        self.assertEqual(self.check()[0], 2)
        self.csv.write_text(",".join(figures.FIELDS) + "\n")
        self.assertIn("no run recorded", self.check()[1])
        self.assertEqual(self.check()[0], 2)
        for cells in ({"ok": "no"}, {"value": "nan"}, {"value": ""}, {"bound": "about"}, {"bar": ""}, {"bench": "other"},
                      {"date": "yesterday"}, {"run": ""}):
            self.csv.unlink()
            self.record("start", figures.Figure("exec", "static", 1.7, most=1.8))
            self.edit(0, **cells)
            status, said = self.check()
            self.assertEqual(status, 2, (cells, said))
            self.assertIn("f.csv:2: ", said, cells)


class Drawing(Case):
    def test_table_and_text(self):
        self.record("api", figures.Figure("exec", "a | b", 1.2345, most=1.5, spread=(1.1, 1.3), n=61, sides="5 ms / 4 ms"),
                    figures.Figure("many", "memory", 80, most=64, unit="MiB"))
        text, _ = self.draw()
        table = text.split("<!-- figures of api -->\n")[1].split("<!-- end -->")[0]
        self.assertIn("| exec | a \\| b | 1.23 | at most 1.5 | holds | 1.10 to 1.30 | 5 ms / 4 ms | 61 |", table)
        self.assertIn("| many | memory | 80 MiB | at most 64 MiB | **missed** |", table)
        self.assertIn("No run recorded.", text.split("<!-- figures of start -->")[1].split("<!-- end -->")[0])
        self.assertEqual(self.outside(text), self.outside(PAGE.read_text()))

    @staticmethod
    def outside(text):
        """The page without its tables."""
        first, *rest = text.split("<!-- figures of ")
        return [first, *(part.split("<!-- end -->")[1] for part in rest)]

    def test_short_runs_are_left_out(self):
        self.record("api", figures.Figure("exec", "full figure", 1, most=1.5))
        self.record("api", figures.Figure("exec", "short figure", 1, most=1.5), short=True)
        for made in self.draw():
            self.assertIn("full figure", made)
            self.assertNotIn("short figure", made)

    def test_a_page_without_markers_is_refused(self):
        self.record("api", figures.Figure("exec", "x", 1, most=1.5))
        self.page.write_text("# Speed\n")
        status, _, errors = report(*self.files)
        self.assertEqual(status, 2)
        self.assertIn("<!-- figures of start -->", errors)
        self.assertEqual((self.page.read_text(), self.picture.exists()), ("# Speed\n", False))

    def marks(self):
        """y of the bar's line, and of the markers in the plot, from left to right."""
        root = xml.etree.ElementTree.fromstring(self.picture.read_text())
        [bar] = [float(e.get("y1")) for e in root.iter(f"{SVG}line") if e.get("class") == "bar"]
        plot = next(e for e in root.iter(f"{SVG}rect") if e.get("class") == "plot")
        right = float(plot.get("x")) + float(plot.get("width"))
        points = sorted((float(e.get("cx")), float(e.get("cy"))) for e in root.iter(f"{SVG}circle"))
        return bar, [y for x, y in points if x < right]

    def test_history_against_the_bar(self):
        for value in (1, 2, 4):
            self.record("start", figures.Figure("exec", "static", value, most=2))
            self.edit(-1, date=f"2026-01-0{value}T00:00:00Z")  # runs in the same second would count as one
        self.draw()
        bar, points = self.marks()
        self.assertEqual(len(points), 3)
        self.assertGreater(points[0], bar)  # y grows downwards
        self.assertAlmostEqual(points[1], bar)
        self.assertLess(points[2], bar)
        self.assertIn("<polyline", self.picture.read_text())
        self.assertIn("prefers-color-scheme: dark", self.picture.read_text())

    def test_at_least_is_turned_over(self):
        self.record("start", figures.Figure("stdout", "head", 0.9, least=0.6))
        self.draw()
        bar, [point] = self.marks()
        self.assertGreater(point, bar)

    def test_no_bar_and_a_bar_of_zero_are_not_drawn(self):
        self.record("start", figures.Figure("live", "errors", 0, most=0), figures.Figure("live", "shown", 3),
                    figures.Figure("exec", "<static>", 1, most=2))
        _, picture = self.draw()
        self.assertEqual(len(self.marks()[1]), 1)
        self.assertIn("exec: &lt;static&gt;", picture)


if __name__ == "__main__":
    unittest.main()
