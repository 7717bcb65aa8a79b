# SPDX-License-Identifier: Apache-2.0
"""
Every file in tests/wrong is wrong, and NAME.expect contains the output of `hutch config validate`
for it. The command runs in tests/wrong with HUTCH_CONFIG_PATH=lib, so that labels are bare file
names; tests/wrong/lib has the agents and presets that the files refer to.
"""

import json
import re
import unicodedata
import unittest

from support import WRONG, environment, hutch

LINE = re.compile(r"^[^:]+:\d+:\d+: (error|warning): ")


def escape(text):
    """Escapes as str_escape() in src/base/str.c does."""
    names = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    out = []
    for c in text:
        if c in names:
            out.append(names[c])
        elif unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp"):
            out.append("\\x%02x" % ord(c) if ord(c) < 0x80 else "\\u{%x}" % ord(c))
        else:
            out.append(c)
    return "".join(out)


def line_of(diagnostic):
    """The text line for an object of --json."""
    d = diagnostic
    key = escape(d["key"]) + ": " if d["key"] else ""
    hint = "; " + escape(d["hint"]) if "hint" in d else ""
    place = f"{escape(d['file'])}:{d['line']}:{d['column']}"
    return f"{place}: {d['level']}: {key}{escape(d['message'])}{hint}"


def validate(*args):
    return hutch("config", "validate", *args, cwd=WRONG, env=environment(HUTCH_CONFIG_PATH="lib"))


class Wrong(unittest.TestCase):
    maxDiff = None

    def check(self, file):
        expected = file.with_suffix(".expect").read_text(encoding="utf-8").splitlines()
        errors = any(": error: " in line for line in expected)
        r = validate(file.name)
        lines = r.stdout.decode().split("\n")
        self.assertEqual(lines.pop(), "", "the output ends with a newline")
        if not errors:
            self.assertEqual(lines.pop(), f"{file.name}: valid, with warnings")
        self.assertEqual(lines, expected)
        for line in lines:
            self.assertRegex(line, LINE)
        self.assertEqual(r.returncode, 1 if errors else 0)
        self.assertEqual(r.stderr, b"")
        self.check_json(file, expected, errors)

    def check_json(self, file, expected, errors):
        r = validate("--json", file.name)
        told = json.loads(r.stdout)
        self.assertEqual(sorted(map(line_of, told["diagnostics"])), sorted(expected), "with --json")
        self.assertEqual(told["valid"], not errors)
        self.assertEqual(r.returncode, 1 if errors else 0, "with --json")

    def test_there_are_enough(self):
        files = {f.stem for f in WRONG.glob("*.yaml")}
        self.assertGreaterEqual(len(files), 60)
        self.assertEqual(files, {f.stem for f in WRONG.glob("*.expect")})

    def test_every_message_says_something(self):
        for f in WRONG.glob("*.expect"):
            lines = f.read_text(encoding="utf-8").splitlines()
            self.assertTrue(lines, f.name)
            for line in lines:
                self.assertRegex(line, LINE, f.name)


def add_tests():
    for file in sorted(WRONG.glob("*.yaml")):

        def test(self, file=file):
            self.check(file)

        setattr(Wrong, "test_" + file.stem.replace("-", "_"), test)


add_tests()

if __name__ == "__main__":
    unittest.main()
