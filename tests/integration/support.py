# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the hutch program: where it is, and how to run it."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from waiting import LONG

ROOT = Path(__file__).resolve().parents[2]
WRONG = ROOT / "tests" / "wrong"

# Missing directories, so that no file of this host affects a test.
NOWHERE = "/nonexistent/hutch"

AGENT = "agent:\n  name: mine\n  type: debugger\n"


def hutch_path():
    path = os.environ.get("HUTCH")
    if not path:
        raise RuntimeError("set HUTCH to the path of the program under test")
    return os.path.abspath(path)


def environment(**more):
    """A small environment; a value of None removes the variable."""
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": NOWHERE, "HUTCH_CONFIG_PATH": ""}
    # Keep the options of sanitizers and coverage.
    for name in os.environ:
        if name.endswith("SAN_OPTIONS") or name.startswith(("GCOV_", "LLVM_PROFILE_")):
            env[name] = os.environ[name]
    for name, value in more.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def hutch(*args, cwd=None, env=None, **more):
    """Runs hutch with `args`; the result has bytes in stdout and stderr."""
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run(
        [more.pop("program", None) or hutch_path(), *args],
        cwd=cwd,
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        timeout=LONG,
        check=False,
        **more,
    )


class Case(unittest.TestCase):
    """A test with its own directory."""

    maxDiff = None

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="hutch-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def run_ok(self, *args, **more):
        r = hutch(*args, **more)
        self.assertEqual(r.returncode, 0, r.stderr.decode(errors="replace"))
        return r.stdout.decode()

    def run_fails(self, code, *args, **more):
        """Runs a command that must exit with `code`; returns its stderr."""
        r = hutch(*args, **more)
        said = r.stderr.decode(errors="replace")
        self.assertEqual(r.returncode, code, said + r.stdout.decode(errors="replace"))
        return said
