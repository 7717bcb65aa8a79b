# SPDX-License-Identifier: Apache-2.0
"""Shared by the image tests: archives in memory, and a separate store for each test."""

import io
import json
import os
import stat
import subprocess
import tarfile
import time
from pathlib import Path

from support import ROOT, Case, environment, hutch, hutch_path
from waiting import eventually, until_clock

IDS = 65535
AS_ROOT = os.geteuid() == 0


def entry(name, kind=tarfile.REGTYPE, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    info.mode = more.pop("mode", 0o755 if kind == tarfile.DIRTYPE else 0o644)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def archive(*entries, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def page_digest():
    """Extracts the function of hutch-image(5) that computes the digest of a tree."""
    lines = (ROOT / "man/hutch-image.5").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("import hashlib"))
    end = next(i for i in range(at, len(lines)) if lines[i].startswith(".Ed"))
    scope = {}
    exec("\n".join(lines[at:end]).replace("\\e", "\\").replace("\\&", ""), scope)  # pylint: disable=exec-used
    return scope["tree_digest"]


def inode(path):
    try:
        return os.lstat(path).st_ino
    except OSError:  # it has just gone
        return None


class ImageCase(Case):
    """A test with its own store, and a canary file beside it that must not change."""

    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"
        self.state.mkdir()
        self.env = environment(HUTCH_STATE_DIR=str(self.state), HOME=str(self.dir))
        self.canary = self.dir / "canary"
        self.canary.write_text("alive")
        self.addCleanup(self.clean)

    def clean(self):
        """Files of trees belong to other ids; an ordinary user needs hutch to remove them."""
        for name in self.names():
            hutch("image", "rm", name, env=self.env)

    def names(self):
        folder = self.state / "images/names"
        return sorted(p.stem for p in folder.glob("*.json")) if folder.exists() else []

    def trees(self):
        folder = self.state / "images/trees"
        return sorted(p.name for p in folder.iterdir()) if folder.exists() else []

    def leftovers(self):
        folder = self.state / "images/tmp"
        return sorted(p.name for p in folder.iterdir()) if folder.exists() else []

    def image(self, *args, **more):
        return json.loads(self.run_ok("image", *args, "--json", env=self.env, **more))

    def inspect(self, name):
        return self.image("inspect", name)

    def root(self, name):
        return Path(self.inspect(name)["root"])

    def import_ok(self, data, name="x", suffix="tar"):
        return self.image("import", name, self.write(f"{name}.{suffix}", data))

    def refused(self, data, pattern, suffix="tar"):
        """Imports an image, which must be refused and leave nothing behind."""
        said = self.run_fails(1, "image", "import", "x", self.write(f"x.{suffix}", data), env=self.env)
        self.assertRegex(said, pattern)
        self.nothing_left()
        return said

    def killed(self, *args, at=(0.1, 0.4, 0.7, 0.9), before=lambda: None):
        """Runs hutch once for each of these fractions of its run time and kills it then; calls
        `before` before each run and yields after each kill."""
        began = time.monotonic()
        self.run_ok(*args, env=self.env)
        took = time.monotonic() - began
        for part in at:
            self.alone()
            before()
            with subprocess.Popen([hutch_path(), *args], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
                until_clock(time.monotonic() + part * took)
                p.kill()
            yield part
        self.alone()

    def alone(self):
        """Waits until nothing works on this store. An ending process first loses its memory, and
        with it what processes() knows it by, and then its locks."""
        eventually(lambda: not self.processes() and not self.locks(), "the end of those who worked for it",
                   also=lambda: (self.processes(), self.locks()))

    def locks(self):
        """Locked files of this store, by /proc/locks: to try a lock could disturb its owner."""
        held = {line.split()[-3].rpartition(":")[2] for line in Path("/proc/locks").read_text().splitlines()}
        return [path for pattern in ("*", "*/*", "*/*/*") for path in self.state.glob(pattern)
                if (st := inode(path)) and str(st) in held]

    def processes(self):
        """Processes of this store: workers, and programs started for it."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                env, line = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
                if f"HUTCH_STATE_DIR={self.state}".encode() in env or str(self.state).encode() in line:
                    found.append(line)
            except OSError:
                pass
        return found

    def nothing_left(self):
        self.assertEqual((self.names(), self.trees(), self.leftovers()), ([], [], []))
        self.assertEqual(self.canary.read_text(), "alive")
        self.assertEqual(stat.S_IMODE(self.canary.stat().st_mode) & 0o7022, 0)
        self.assertEqual(sorted(p.name for p in self.state.iterdir()), ["images"])
