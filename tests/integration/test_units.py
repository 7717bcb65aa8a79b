# SPDX-License-Identifier: Apache-2.0
"""The systemd units: their restrictions, and that systemd accepts them. test_systemd.py runs
them."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from waiting import LONG

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "dist" / "systemd"
# The highest allowed scores of 'systemd-analyze security'. The second unit runs rootless
# containers; its file says why its score cannot be better.
SCORES = {"hutchd.service": 1.4, "hutch-starter@.service": 6.6, "hutch-preparer@.service": 6.2}


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def analyze(self, *args):
        return subprocess.run(["systemd-analyze", *map(str, args)], text=True, capture_output=True, check=False, timeout=LONG)

    def test_score(self):
        for unit, most in SCORES.items():
            with self.subTest(unit=unit):
                r = self.analyze("security", "--offline=yes", "--no-pager", UNITS / unit)
                score = re.search(r"exposure level for \S+: (\d+\.\d)", r.stdout)
                self.assertTrue(score, r.stdout + r.stderr)
                self.assertLessEqual(float(score[1]), most, r.stdout)

    def test_a_line_less_is_seen(self):
        """The positive control: the score gets worse."""
        text = (UNITS / "hutchd.service").read_text()
        for line in ("NoNewPrivileges=yes\n", "RestrictNamespaces=yes\n", "SystemCallFilter=@system-service\n"):
            with self.subTest(line=line):
                self.assertIn(line, text)
                path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "hutchd.service"
                path.write_text(text.replace(line, ""))
                r = self.analyze("security", "--offline=yes", "--no-pager", f"--threshold={int(SCORES['hutchd.service'] * 10)}", path)
                self.assertNotEqual(r.returncode, 0)

    def test_systemd_understands_them(self):
        r = self.analyze("verify", "--man=no", *sorted(UNITS.glob("*")))
        # Missing programs, and a key that systemd before 254 does not know, are not errors.
        said = [line for line in r.stderr.splitlines()
                if "is not executable" not in line and "Unknown key 'DelegateSubgroup'" not in line and "hutch" in line]
        self.assertEqual(said, [])


if __name__ == "__main__":
    unittest.main()
