# SPDX-License-Identifier: Apache-2.0
"""The damage that tests/slow/machine_kill.py does to files: see tests/slow/damage_file.py."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["HUTCH_SOURCE"]) / "tests" / "slow"))

import damage_file  # noqa: E402


class DamageFile(unittest.TestCase):
    def damage(self, contents):
        """Returns {name of a way: contents afterwards, None without a file}."""
        seen = {}
        with tempfile.TemporaryDirectory() as where:
            path = Path(where) / "file"
            path.write_bytes(contents)
            for how in damage_file.applicable(path, damage_file.ALL):
                path.write_bytes(contents)
                how(path)
                seen[how.__name__] = path.read_bytes() if path.exists() else None
        return seen

    def test_every_way_changes_the_file(self):
        for contents in (b"x", b"some bytes"):
            seen = self.damage(contents)
            self.assertEqual(set(seen), {"flip", "cut", "drop"})
            self.assertNotIn(contents, seen.values())
            self.assertLess(len(seen["cut"]), len(contents))
            self.assertEqual(len(seen["flip"]), len(contents))

    def test_an_empty_file_can_be_damaged(self):
        seen = self.damage(b"")
        self.assertEqual(set(seen), {"flip", "drop"})
        self.assertEqual(len(seen["flip"]), 1)
